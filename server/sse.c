/* sse.c: stream chunks and whole responses of the completions API.
 *
 * Stage 9 of 9: tokens and text -> bytes. Loop thread. Every frame is built in one buffer of the
 * server that is emptied and filled again, so a steady stream allocates nothing. Never decides when
 * something is sent: api_completion_events.c does.
 */
#include "server/sse.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool sse_prepare(completion_t *completion) {
  completions_t *live = completion->server->live;
  buffer_t head = {0};
  completion->created = (int64_t)time(NULL);
  buffer_text(&head, "\"id\":\"cmpl-");
  buffer_text(&head, completion->exchange->request_id);
  buffer_text(&head, "\",\"object\":\"text_completion\",\"created\":");
  buffer_int(&head, completion->created);
  buffer_text(&head, ",\"model\":");
  buffer_quote(&head, live->names[0], strlen(live->names[0]));
  buffer_char(&head, ',');
  completion->head_length = head.length;
  if (!head.failed) completion->head = arena_copy(&completion->arena, head.data, head.length);
  buffer_free(&head);
  completion->obfuscation = (uint32_t)completion->arrival_ns | 1;
  return completion->head != NULL;
}

static const char *finish_text(finish_reason_t finish) {
  return finish == FINISH_STOP ? "\"stop\"" : "\"length\"";
}

static void print_stop_reason(buffer_t *out, const choice_t *choice) {
  size_t length;
  if (choice->stop_string >= 0) {
    const char *text = stop_set_string(choice->request.stops, choice->stop_string, &length);
    buffer_quote(out, text, length);
  } else if (choice->stop_token_id >= 0) {
    buffer_int(out, choice->stop_token_id);
  } else {
    buffer_text(out, "null");
  }
}

/* What the request has used so far: each prompt once, every token of every choice. */
static void print_usage(buffer_t *out, const completion_t *completion) {
  int64_t prompt = 0, generated = 0, cached = 0;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    const choice_t *choice = &completion->choices[i];
    int32_t hit = choice->num_cached_tokens;
    prompt += choice->request.num_prompt_tokens;
    generated += choice->num_tokens;
    if (hit >= choice->request.num_prompt_tokens) hit = choice->request.num_prompt_tokens - 1;
    cached += hit;
  }
  buffer_text(out, "{\"prompt_tokens\":");
  buffer_int(out, prompt);
  buffer_text(out, ",\"completion_tokens\":");
  buffer_int(out, generated);
  buffer_text(out, ",\"total_tokens\":");
  buffer_int(out, prompt + generated);
  buffer_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
  buffer_int(out, cached);
  buffer_text(out, "},\"completion_tokens_details\":null}");
}

static void print_fingerprint(buffer_t *out, const completion_t *completion) {
  const char *fingerprint = completion->server->system_fingerprint;
  buffer_text(out, ",\"system_fingerprint\":");
  buffer_quote(out, fingerprint, strlen(fingerprint));
}

/* Hands a finished frame to the transport. */
static void send_frame(completion_t *completion, const char *bytes, size_t length) {
  exchange_t *exchange = completion->exchange;
  if (exchange == NULL) return;
  if (!completion->streaming) {
    completion->streaming = true;
    exchange_stream(exchange);
  }
  completion->last_write_ns = completion->server->live->now_ns;
  exchange_write(exchange, bytes, length); /* a slow client: on_gone follows by itself */
}

static buffer_t *frame_begin(completion_t *completion) {
  buffer_t *out = &completion->server->live->scratch;
  buffer_clear(out);
  buffer_text(out, "data: {");
  buffer_append(out, completion->head, completion->head_length);
  return out;
}

/* Pads a frame to a multiple of 32 bytes with letters, so that its length says little about the
 * token in it. */
static void print_obfuscation(buffer_t *out, completion_t *completion) {
  size_t pad = 32 - out->length % 32;
  buffer_text(out, ",\"obfuscation\":\"");
  for (size_t i = 0; i < pad; i++) {
    completion->obfuscation ^= completion->obfuscation << 13;
    completion->obfuscation ^= completion->obfuscation >> 17;
    completion->obfuscation ^= completion->obfuscation << 5;
    buffer_char(out, (char)('a' + completion->obfuscation % 26));
  }
  buffer_char(out, '"');
}

/* A frame that could not be built whole must not leave in part: the request fails instead. */
static void send_or_fail(completion_t *completion, buffer_t *out) {
  if (!out->failed) {
    send_frame(completion, out->data, out->length);
    return;
  }
  out->failed = false;
  error_t error;
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  completion_fail(completion, &error);
}

static bool choice_failed(const choice_t *choice) {
  return choice->text.failed || choice->token_ids.failed || choice->prompt_logprobs.failed ||
         logprob_text_failed(&choice->logprobs);
}

static void print_prompt_ids(buffer_t *out, const choice_t *choice) {
  buffer_text(out, ",\"prompt_token_ids\":");
  buffer_ids(out, choice->request.prompt_ids, (size_t)choice->request.num_prompt_tokens);
}

static void print_chunk_choice(buffer_t *out, const choice_t *choice, bool last) {
  const params_t *params = &choice->completion->params;
  buffer_text(out, "\"choices\":[{\"index\":");
  buffer_int(out, choice->index);
  buffer_text(out, ",\"text\":");
  buffer_quote(out, choice->text.data, choice->text.length);
  buffer_text(out, ",\"logprobs\":");
  if (params->logprobs == ABSENT || choice->logprobs.count == 0) {
    buffer_text(out, "null");
  } else {
    logprob_text_object(&choice->logprobs, out);
  }
  buffer_text(out, ",\"finish_reason\":");
  buffer_text(out, last ? finish_text(choice->finish) : "null");
  buffer_text(out, ",\"stop_reason\":");
  if (last) {
    print_stop_reason(out, choice);
  } else {
    buffer_text(out, "null");
  }
  if (params->return_token_ids) {
    buffer_text(out, ",\"token_ids\":[");
    buffer_append(out, choice->token_ids.data, choice->token_ids.length);
    buffer_char(out, ']');
    if (!choice->sent_any) print_prompt_ids(out, choice);
  }
  if (params->prompt_logprobs >= 0 && !choice->sent_any) {
    buffer_text(out, ",\"prompt_logprobs\":[");
    buffer_append(out, choice->prompt_logprobs.data, choice->prompt_logprobs.length);
    buffer_char(out, ']');
  }
  buffer_text(out, "}]");
}

void sse_chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->completion;
  const params_t *params = &completion->params;
  if (completion->exchange == NULL) return;
  buffer_t *out = frame_begin(completion);
  out->failed = out->failed || choice_failed(choice);
  print_chunk_choice(out, choice, last);
  if (params->include_usage) {
    buffer_text(out, ",\"usage\":");
    if (params->continuous_usage) {
      print_usage(out, completion);
    } else {
      buffer_text(out, "null");
    }
  } else if (last) {
    print_fingerprint(out, completion);
  }
  if (params->obfuscation) print_obfuscation(out, completion);
  buffer_text(out, "}\n\n");
  choice->sent_any = true;
  choice->unsent_tokens = 0;
  buffer_clear(&choice->text);
  buffer_clear(&choice->token_ids);
  logprob_text_clear(&choice->logprobs);
  send_or_fail(completion, out);
}

void sse_done(completion_t *completion) {
  static const char done[] = "data: [DONE]\n\n";
  if (completion->exchange == NULL) return;
  if (completion->params.include_usage) {
    buffer_t *out = frame_begin(completion);
    buffer_text(out, "\"choices\":[],\"usage\":");
    print_usage(out, completion);
    print_fingerprint(out, completion);
    buffer_text(out, "}\n\n");
    send_or_fail(completion, out);
  }
  send_frame(completion, done, sizeof done - 1);
}

void sse_error(completion_t *completion, const error_t *error) {
  static const char done[] = "data: [DONE]\n\n";
  bool numeric = strcmp(completion->server->config->error_code, "status") == 0;
  buffer_t *out = &completion->server->live->scratch;
  size_t length;
  char *body = error_body(error, numeric, &length);
  buffer_clear(out);
  if (body != NULL) {
    buffer_text(out, "data: ");
    buffer_append(out, body, length);
    buffer_text(out, "\n\n");
    free(body);
  }
  if (!out->failed && out->length > 0) send_frame(completion, out->data, out->length);
  out->failed = false;
  send_frame(completion, done, sizeof done - 1);
}

void sse_ping(completion_t *completion) {
  static const char ping[] = ": ping\n\n";
  send_frame(completion, ping, sizeof ping - 1);
}

static void print_choice(buffer_t *out, const choice_t *choice) {
  const params_t *params = &choice->completion->params;
  buffer_text(out, "{\"index\":");
  buffer_int(out, choice->index);
  buffer_text(out, ",\"text\":");
  buffer_quote(out, choice->text.data, choice->text.length);
  buffer_text(out, ",\"logprobs\":");
  if (params->logprobs == ABSENT) {
    buffer_text(out, "null");
  } else {
    logprob_text_object(&choice->logprobs, out);
  }
  buffer_text(out, ",\"finish_reason\":");
  buffer_text(out, finish_text(choice->finish));
  buffer_text(out, ",\"stop_reason\":");
  print_stop_reason(out, choice);
  buffer_text(out, ",\"token_ids\":");
  if (params->return_token_ids) {
    buffer_char(out, '[');
    buffer_append(out, choice->token_ids.data, choice->token_ids.length);
    buffer_char(out, ']');
  } else {
    buffer_text(out, "null");
  }
  buffer_text(out, ",\"prompt_logprobs\":");
  if (params->prompt_logprobs >= 0) {
    buffer_char(out, '[');
    buffer_append(out, choice->prompt_logprobs.data, choice->prompt_logprobs.length);
    buffer_char(out, ']');
  } else {
    buffer_text(out, "null");
  }
  if (params->return_token_ids) {
    print_prompt_ids(out, choice);
  } else {
    buffer_text(out, ",\"prompt_token_ids\":null");
  }
  buffer_char(out, '}');
}

char *completion_response(completion_t *completion, size_t *length) {
  buffer_t out = {0};
  buffer_char(&out, '{');
  buffer_append(&out, completion->head, completion->head_length);
  buffer_text(&out, "\"choices\":[");
  for (int32_t i = 0; i < completion->num_choices; i++) {
    if (i != 0) buffer_char(&out, ',');
    out.failed = out.failed || choice_failed(&completion->choices[i]);
    print_choice(&out, &completion->choices[i]);
  }
  buffer_text(&out, "],\"service_tier\":null");
  print_fingerprint(&out, completion);
  buffer_text(&out, ",\"usage\":");
  print_usage(&out, completion);
  buffer_text(&out, ",\"kv_transfer_params\":null}");
  return buffer_detach(&out, length);
}
