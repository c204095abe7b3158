/* sse.c: stream chunks and whole responses of the completions and the chat API.
 *
 * Stage 9 of 9: tokens and text -> bytes. Loop thread. Every frame is built in one buffer of the
 * server, which is used again and again, so a steady stream allocates nothing. events.c decides
 * when a frame is sent.
 */
#include "server/completion/dialect.h"

#include "server/completion/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool prepare(completion_t *completion) {
  const char *model = completion_model_name(completion);
  buffer_t head = {0};
  completion->created = (int64_t)time(NULL);
  const char *object = "text_completion";
  if (completion->dialect->is_chat) {
    object = completion->params.stream ? "chat.completion.chunk" : "chat.completion";
  }
  buffer_text(&head, completion->dialect->is_chat ? "\"id\":\"chatcmpl-" : "\"id\":\"cmpl-");
  buffer_text(&head, completion->exchange->request_id);
  buffer_text(&head, "\",\"object\":\"");
  buffer_text(&head, object);
  buffer_text(&head, "\",\"created\":");
  buffer_int(&head, completion->created);
  buffer_text(&head, ",\"model\":");
  buffer_quote(&head, model, strlen(model));
  buffer_char(&head, ',');
  completion->head_length = head.length;
  if (!head.failed) completion->head = arena_copy(&completion->arena, head.data, head.length);
  buffer_free(&head);
  completion->obfuscation = (uint32_t)completion->arrival_ns | 1;
  return completion->head != NULL;
}

static const char *finish_text(const choice_t *choice) {
  if (choice->finish != FINISH_STOP) return "\"length\"";
  bool named = choice->input->completion->params.chat.tool_choice == TOOLS_NAMED;
  return choice->num_calls > 0 && !named && !choice->call_cut ? "\"tool_calls\"" : "\"stop\"";
}

static void print_stop_reason(buffer_t *out, const choice_t *choice) {
  size_t length;
  if (choice->stop_string >= 0) {
    const char *text = stop_set_string(choice->input->request.stops, choice->stop_string, &length);
    buffer_quote(out, text, length);
  } else if (choice->stop_token_id >= 0) {
    buffer_int(out, choice->stop_token_id);
  } else {
    buffer_text(out, "null");
  }
}

token_usage_t completion_usage(const completion_t *completion) {
  token_usage_t usage = {0};
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    const input_t *input = &completion->inputs[i];
    int32_t tokens = input_prompt_tokens(input), hit = input->num_cached_tokens;
    usage.prompt += tokens;
    usage.cached += hit >= tokens ? tokens - 1 : hit;
    usage.floor += input->num_floor_tokens;
  }
  for (int32_t i = 0; i < completion->num_choices; i++) {
    usage.generated += completion->choices[i].num_tokens;
    usage.reasoning += completion->choices[i].num_reasoning_tokens;
  }
  return usage;
}

/* Prints the usage so far. `seen`: without the tokens of choices of which no frame has gone out
 * yet, because clients of a stream of chat take differences between frames. */
static void print_usage(buffer_t *out, const completion_t *completion, bool seen) {
  token_usage_t usage = completion_usage(completion);
  for (int32_t i = 0; seen && i < completion->num_choices; i++) {
    const choice_t *choice = &completion->choices[i];
    if (choice->role_sent) continue;
    usage.generated -= choice->num_tokens;
    usage.reasoning -= choice->num_reasoning_tokens;
  }
  buffer_text(out, "{\"prompt_tokens\":");
  buffer_int(out, usage.prompt);
  buffer_text(out, ",\"completion_tokens\":");
  buffer_int(out, usage.generated);
  buffer_text(out, ",\"total_tokens\":");
  buffer_int(out, usage.prompt + usage.generated);
  buffer_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
  buffer_int(out, usage.cached);
  if (completion->info->hearing != NULL) {
    buffer_text(out, ",\"audio_tokens\":");
    buffer_int(out, pictures_sound_tokens(&completion->pictures));
  }
  if (usage.floor > 0) {
    buffer_text(out, ",\"floor_cached_tokens\":");
    buffer_int(out, usage.floor);
  }
  buffer_text(out, "},\"completion_tokens_details\":");
  if (completion->reasoning_format != NULL) {
    buffer_text(out, "{\"reasoning_tokens\":");
    buffer_int(out, usage.reasoning);
    buffer_text(out, "}}");
  } else {
    buffer_text(out, "null}");
  }
}

static void print_fingerprint(buffer_t *out, const completion_t *completion) {
  const char *fingerprint = completion->server->system_fingerprint;
  buffer_text(out, ",\"system_fingerprint\":");
  buffer_quote(out, fingerprint, strlen(fingerprint));
}

/* Tells the transport that there are more frames in completion->reply. */
static void send_frames(completion_t *completion) {
  completion->last_write_ns = completion->server->live->now_ns;
  completion_send_frames(completion);
}

void sse_send(completion_t *completion, const char *bytes, size_t length) {
  exchange_t *exchange = completion->exchange;
  if (exchange == NULL) return;
  if (completion->in_pieces) {
    buffer_append(&completion->reply.own, bytes, length);
    send_frames(completion);
    return;
  }
  if (!completion->streaming) {
    completion->streaming = true;
    exchange_stream(exchange);
  }
  completion->last_write_ns = completion->server->live->now_ns;
  exchange_write(exchange, bytes, length); /* if it fails, the transport calls on_gone */
}

static cord_t *frame_begin(completion_t *completion) {
  cord_t *out = &completion->server->live->frame;
  if (completion->in_pieces) {
    out = &completion->reply;
  } else {
    buffer_clear(&out->own);
  }
  buffer_text(&out->own, "data: {");
  buffer_append(&out->own, completion->head, completion->head_length);
  return out;
}

/* The length of a padded frame shows little about the token in it. */
void dialect_pad(buffer_t *out, size_t begin, completion_t *completion) {
  if (!completion->params.obfuscation) return;
  size_t pad = 32 - (out->length - begin) % 32;
  buffer_text(out, ",\"obfuscation\":\"");
  for (size_t i = 0; i < pad; i++) {
    completion->obfuscation ^= completion->obfuscation << 13;
    completion->obfuscation ^= completion->obfuscation >> 17;
    completion->obfuscation ^= completion->obfuscation << 5;
    buffer_char(out, (char)('a' + completion->obfuscation % 26));
  }
  buffer_char(out, '"');
}

void sse_send_buffer(completion_t *completion, buffer_t *out) {
  if (out == &completion->reply.own) {
    send_frames(completion);
    return;
  }
  if (!out->failed) {
    sse_send(completion, out->data, out->length);
    return;
  }
  out->failed = false;
  inferd_error_t error;
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  completion_fail(completion, &error);
}

static bool choice_failed(const choice_t *choice) {
  const input_t *input = choice->input;
  return choice->text.failed || choice->token_ids.failed || input->prompt_logprobs.failed ||
         input->prompt_gaps.failed || input->prompt_ids.failed || input->echo.failed ||
         input->echo_text.failed || logprob_text_failed(&input->echo_logprobs) ||
         logprob_text_failed(&choice->logprobs) || chat_failed(choice);
}

static void print_prompt_logprobs(cord_t *out, const choice_t *choice) {
  const input_t *input = choice->input;
  buffer_text(&out->own, ",\"prompt_logprobs\":[");
  logprob_splice(out, &input->prompt_logprobs, &input->prompt_gaps);
  buffer_char(&out->own, ']');
}

/* Prints a name and what the buffer holds, between brackets. */
static void print_list(cord_t *out, const char *name, const buffer_t *elements) {
  buffer_text(&out->own, name);
  buffer_char(&out->own, '[');
  cord_bytes(out, elements->data, elements->length);
  buffer_char(&out->own, ']');
}

static void print_prompt_ids(cord_t *out, const choice_t *choice) {
  const buffer_t *ids = &choice->input->prompt_ids;
  buffer_text(&out->own, ",\"prompt_token_ids\":");
  cord_bytes(out, ids->data, ids->length);
}

/* The logprobs of an echoed prompt, which come before those of the choice, once. */
static const logprob_text_t *first_logprobs(const choice_t *choice) {
  static const logprob_text_t none = {0};
  return choice->sent_any ? &none : &choice->input->echo_logprobs;
}

static void print_logprobs(cord_t *out, const choice_t *choice, bool wanted) {
  const logprob_text_t *first = first_logprobs(choice);
  if (!wanted) {
    buffer_text(&out->own, ",\"logprobs\":null");
    return;
  }
  buffer_text(&out->own, ",\"logprobs\":");
  if (choice->input->completion->dialect->is_chat) {
    logprob_text_chat_object(&choice->logprobs, out);
  } else {
    logprob_text_object(first, &choice->logprobs, out);
  }
}

/* Prints "index":0,"text":"..." or, for chat, the delta or the message. */
static void print_output(cord_t *out, choice_t *choice, bool whole) {
  buffer_text(&out->own, "\"index\":");
  buffer_int(&out->own, choice->index);
  buffer_char(&out->own, ',');
  if (!choice->input->completion->dialect->is_chat) {
    const buffer_t *echo = &choice->input->echo;
    buffer_text(&out->own, "\"text\":\"");
    if (!choice->sent_any) cord_bytes(out, echo->data, echo->length);
    cord_escape(out, choice->text.data, choice->text.length);
    buffer_char(&out->own, '"');
  } else if (whole) {
    chat_print_message(out, choice);
  } else {
    chat_print_delta(out, choice);
  }
}

static void print_chunk_choice(cord_t *out, choice_t *choice, bool last) {
  const params_t *params = &choice->input->completion->params;
  int32_t scored = first_logprobs(choice)->count + choice->logprobs.count;
  buffer_text(&out->own, "\"choices\":[{");
  print_output(out, choice, false);
  print_logprobs(out, choice, params->logprobs != ABSENT && scored > 0);
  if (last) {
    buffer_text(&out->own, ",\"finish_reason\":");
    buffer_text(&out->own, finish_text(choice));
    buffer_text(&out->own, ",\"stop_reason\":");
    print_stop_reason(&out->own, choice);
  } else {
    buffer_text(&out->own, ",\"finish_reason\":null,\"stop_reason\":null");
  }
  if (params->return_token_ids) {
    print_list(out, ",\"token_ids\":", &choice->token_ids);
    if (!choice->sent_any && !params->is_chat) print_prompt_ids(out, choice);
  }
  if (params->prompt_logprobs >= 0 && !choice->sent_any) {
    print_prompt_logprobs(out, choice);
  }
  buffer_text(&out->own, "}]");
}

/* Prints the end that every frame of a choice has. */
static void end_chunk(buffer_t *out, completion_t *completion) {
  const params_t *params = &completion->params;
  if (params->include_usage) {
    buffer_text(out, ",\"usage\":");
    if (params->continuous_usage) {
      print_usage(out, completion, completion->dialect->is_chat);
    } else {
      buffer_text(out, "null");
    }
  }
  print_fingerprint(out, completion);
  dialect_pad(out, 0, completion);
  buffer_text(out, "}\n\n");
}

static bool any_role_sent(const completion_t *completion) {
  for (int32_t i = 0; i < completion->num_choices; i++) {
    if (completion->choices[i].role_sent) return true;
  }
  return false;
}

/* Chat: sends the first chunk of a choice, which holds only the role; that of the whole answer also
 * holds the ids of the prompt. */
static void send_role(choice_t *choice) {
  completion_t *completion = choice->input->completion;
  cord_t *frame = frame_begin(completion);
  buffer_t *out = &frame->own;
  buffer_text(out, "\"choices\":[{\"index\":");
  buffer_int(out, choice->index);
  buffer_text(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                   "\"finish_reason\":null,\"stop_reason\":null}]");
  if (completion->params.return_token_ids && !any_role_sent(completion)) {
    print_prompt_ids(frame, choice);
  }
  end_chunk(out, completion);
  choice->role_sent = true;
  sse_send_buffer(completion, out);
}

/* Returns true if a chunk would say nothing: marks of tool calls are no text, and the parser holds
 * back what may become one. */
static bool says_nothing(const choice_t *choice) {
  const params_t *params = &choice->input->completion->params;
  return choice->input->completion->dialect->is_chat && chat_delta_is_empty(choice) &&
         !params->return_token_ids && params->logprobs == ABSENT && !params->continuous_usage;
}

static void send_chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  if (completion->exchange == NULL) return;
  if (completion->dialect->is_chat && !choice->role_sent) send_role(choice);
  if (completion->exchange == NULL) return; /* the client disconnected during the write */
  if (!last && says_nothing(choice)) return;
  cord_t *out = frame_begin(completion);
  out->own.failed = out->own.failed || choice_failed(choice);
  print_chunk_choice(out, choice, last);
  end_chunk(&out->own, completion);
  choice->sent_any = true;
  choice->unsent_tokens = 0;
  buffer_clear(&choice->text);
  buffer_clear(&choice->reasoning);
  buffer_clear(&choice->tool_calls);
  buffer_clear(&choice->token_ids);
  logprob_text_clear(&choice->logprobs);
  sse_send_buffer(completion, &out->own);
}

static void send_done(completion_t *completion) {
  static const char done[] = "data: [DONE]\n\n";
  if (completion->exchange == NULL) return;
  if (completion->params.include_usage) {
    buffer_t *out = &frame_begin(completion)->own;
    buffer_text(out, "\"choices\":[],\"usage\":");
    print_usage(out, completion, false);
    print_fingerprint(out, completion);
    buffer_text(out, "}\n\n");
    sse_send_buffer(completion, out);
  }
  sse_send(completion, done, sizeof done - 1);
}

static void send_error(completion_t *completion, const inferd_error_t *error) {
  static const char done[] = "data: [DONE]\n\n";
  bool numeric = strcmp(completion->server->config->error_code, "status") == 0;
  buffer_t *out = &completion->server->live->frame.own;
  size_t length;
  char *body = error_body(error, numeric, &length);
  buffer_clear(out);
  if (body != NULL) {
    buffer_text(out, "data: ");
    buffer_append(out, body, length);
    buffer_text(out, "\n\n");
    free(body);
  }
  if (!out->failed && out->length > 0) sse_send(completion, out->data, out->length);
  out->failed = false;
  sse_send(completion, done, sizeof done - 1);
}

static void send_ping(completion_t *completion) {
  static const char ping[] = ": ping\n\n";
  sse_send(completion, ping, sizeof ping - 1);
}

/* Prints ids and logprobs of the prompt: in every choice of completions, once in chat. */
static void print_prompt_parts(cord_t *out, const choice_t *choice) {
  const params_t *params = &choice->input->completion->params;
  if (params->prompt_logprobs >= 0) {
    print_prompt_logprobs(out, choice);
  } else {
    buffer_text(&out->own, ",\"prompt_logprobs\":null");
  }
  if (params->return_token_ids) {
    print_prompt_ids(out, choice);
  } else {
    buffer_text(&out->own, ",\"prompt_token_ids\":null");
  }
}

static void print_choice(cord_t *out, choice_t *choice) {
  const params_t *params = &choice->input->completion->params;
  buffer_char(&out->own, '{');
  print_output(out, choice, true);
  print_logprobs(out, choice, params->logprobs != ABSENT);
  buffer_text(&out->own, ",\"finish_reason\":");
  buffer_text(&out->own, finish_text(choice));
  buffer_text(&out->own, ",\"stop_reason\":");
  print_stop_reason(&out->own, choice);
  if (params->return_token_ids) {
    print_list(out, ",\"token_ids\":", &choice->token_ids);
  } else {
    buffer_text(&out->own, ",\"token_ids\":null");
  }
  if (!params->is_chat) print_prompt_parts(out, choice);
  buffer_char(&out->own, '}');
}

static bool print_response(completion_t *completion) {
  cord_t *out = &completion->reply;
  buffer_char(&out->own, '{');
  buffer_append(&out->own, completion->head, completion->head_length);
  buffer_text(&out->own, "\"choices\":[");
  for (int32_t i = 0; i < completion->num_choices; i++) {
    if (i != 0) buffer_char(&out->own, ',');
    out->own.failed = out->own.failed || choice_failed(&completion->choices[i]);
    print_choice(out, &completion->choices[i]);
  }
  buffer_text(&out->own, "],\"service_tier\":null");
  print_fingerprint(&out->own, completion);
  buffer_text(&out->own, ",\"usage\":");
  print_usage(&out->own, completion, false);
  if (completion->dialect->is_chat) print_prompt_parts(out, &completion->choices[0]);
  buffer_text(&out->own, ",\"kv_transfer_params\":null}");
  return !cord_failed(out);
}

const dialect_t text_dialect = {.route = "/v1/completions",
                                .prepare = prepare,
                                .chunk = send_chunk,
                                .done = send_done,
                                .error = send_error,
                                .ping = send_ping,
                                .response = print_response};
const dialect_t chat_dialect = {.route = "/v1/chat/completions",
                                .is_chat = true,
                                .prepare = prepare,
                                .take = chat_take_part,
                                .chunk = send_chunk,
                                .done = send_done,
                                .error = send_error,
                                .ping = send_ping,
                                .response = print_response};
