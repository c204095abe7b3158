/* writer.c: the output of a chat -> content blocks of /v1/messages, whole or as events.
 *
 * Stage 9 of 9: reasoning, text and calls -> bytes. Loop thread. Parts of one kind that follow each
 * other are one block. Text waits in `pending` until the chunk is sent, so a chunk has one delta
 * for each block. The event line of every frame is needed: clients drop frames without it.
 */
#include "server/messages/messages.h"

#include "engine/base/util.h"
#include "server/completion/chat.h"
#include "server/completion/dialect.h"
#include "server/dialect/rename.h"
#include "server/http/http.h"

#include <stdlib.h>
#include <string.h>

/* Clients send the signature of a thinking block back; nothing reads it, but it must not be empty.
 */
#define SIGNATURE "inferd"

static messages_state_t *state_of(const completion_t *completion) {
  return completion->dialect_state;
}

/* ---- what both forms of the answer print ---- */

static void print_usage(buffer_t *out, const completion_t *completion, int64_t generated) {
  token_usage_t usage = completion_usage(completion);
  buffer_text(out, "\"usage\":{\"input_tokens\":");
  buffer_int(out, usage.prompt - usage.cached);
  buffer_text(out, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
  buffer_int(out, usage.cached);
  buffer_text(out, ",\"output_tokens\":");
  buffer_int(out, generated);
  buffer_char(out, '}');
}

/* Prints the members of a message up to its content, without the brace. */
static void print_head(buffer_t *out, const completion_t *completion) {
  buffer_append(out, completion->head, completion->head_length);
}

/* "stop_reason":..,"stop_sequence":.. of a choice that has ended */
static void print_stop(buffer_t *out, const choice_t *choice) {
  const messages_state_t *state = state_of(choice->input->completion);
  const request_t *request = &choice->input->request;
  const char *reason = state->num_calls > 0 ? "tool_use" : "end_turn", *string = NULL;
  size_t length = 0;
  if (choice->finish == FINISH_LENGTH) {
    bool cut = state->max_tokens > request->params.max_tokens;
    reason = cut ? "model_context_window_exceeded" : "max_tokens";
  } else if (choice->stop_string >= 0) {
    reason = "stop_sequence";
    string = stop_set_string(request->stops, choice->stop_string, &length);
  }
  buffer_text(out, "\"stop_reason\":\"");
  buffer_text(out, reason);
  buffer_text(out, "\",\"stop_sequence\":");
  if (string != NULL) {
    buffer_quote(out, string, length);
  } else {
    buffer_text(out, "null");
  }
}

static bool prepare(completion_t *completion) {
  const char *model = completion_model_name(completion);
  buffer_t head = {0};
  buffer_text(&head, "\"id\":\"msg_");
  buffer_text(&head, completion->exchange->request_id);
  buffer_text(&head, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
  buffer_quote(&head, model, strlen(model));
  completion->head_length = head.length;
  if (!head.failed) completion->head = arena_copy(&completion->arena, head.data, head.length);
  buffer_free(&head);
  return completion->head != NULL;
}

/* ---- blocks ---- */

/* "id":"toolu_..": the random letters of an id of chat under the prefix that clients expect. */
static void print_call_id(buffer_t *out, const completion_t *completion) {
  static const char prefix[] = "call_";
  buffer_t id = {0};
  chat_print_call_id(&id, completion);
  size_t skip = sizeof prefix - 1;
  bool has_prefix = id.length > skip && memcmp(id.data, prefix, skip) == 0;
  /* Templates of some models want ids of nine letters: these stay as they are. */
  if (has_prefix) buffer_text(out, "toolu_");
  if (!id.failed)
    buffer_append(out, id.data + (has_prefix ? skip : 0), id.length - (has_prefix ? skip : 0));
  out->failed = out->failed || id.failed;
  buffer_free(&id);
}

static void event_begin(buffer_t *out, const char *name) {
  buffer_text(out, "event: ");
  buffer_text(out, name);
  buffer_text(out, "\ndata: {\"type\":\"");
  buffer_text(out, name);
  buffer_char(out, '"');
}

static void block_event(messages_state_t *state, const char *name) {
  event_begin(&state->out, name);
  buffer_text(&state->out, ",\"index\":");
  buffer_int(&state->out, state->num_blocks - 1);
}

/* Prints a delta of the open block: DELTA has a member that is a string, TEXT. */
static void print_delta(messages_state_t *state, const char *type, const char *member,
                        const char *text, size_t length) {
  buffer_t *out = &state->out;
  block_event(state, "content_block_delta");
  buffer_text(out, ",\"delta\":{\"type\":\"");
  buffer_text(out, type);
  buffer_text(out, "\",\"");
  buffer_text(out, member);
  buffer_text(out, "\":");
  buffer_quote(out, text, length);
  buffer_text(out, "}}\n\n");
}

/* Stream: prints what has come of the open block as one delta. */
static void flush(messages_state_t *state) {
  const buffer_t *text = &state->pending;
  if (text->length == 0) return;
  switch (state->open) {
  case BLOCK_THINKING:
    print_delta(state, "thinking_delta", "thinking", text->data, text->length);
    break;
  case BLOCK_TEXT: print_delta(state, "text_delta", "text", text->data, text->length); break;
  case BLOCK_CALL:
    print_delta(state, "input_json_delta", "partial_json", text->data, text->length);
    break;
  case BLOCK_NONE: break;
  }
  buffer_clear(&state->pending);
}

/* Prints the arguments of a call, which are an object. A call that was cut by the end of the output
 * is none: then an object holds what there is. */
static void print_input(buffer_t *out, const buffer_t *text) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  int code = text->length == 0
                 ? ERR_INVALID_JSON
                 : json_parse(text->data, text->length, &json_limits_model, &doc, &error);
  bool object = code == 0 && json_root(doc)->type == JSON_OBJECT;
  if (object) {
    buffer_append(out, text->data, text->length);
  } else if (text->length == 0) {
    buffer_text(out, "{}");
  } else {
    buffer_text(out, "{\"partial_json\":");
    buffer_quote(out, text->data, text->length);
    buffer_char(out, '}');
  }
  json_free(doc);
}

static void close_block(messages_state_t *state, bool stream) {
  buffer_t *out = &state->out;
  if (state->open == BLOCK_NONE) return;
  if (stream) {
    flush(state);
    if (state->open == BLOCK_THINKING) {
      print_delta(state, "signature_delta", "signature", SIGNATURE, sizeof SIGNATURE - 1);
    }
    block_event(state, "content_block_stop");
    buffer_text(out, "}\n\n");
  } else if (state->open == BLOCK_CALL) {
    print_input(out, &state->pending);
    buffer_char(out, '}');
  } else {
    buffer_text(out, state->open == BLOCK_THINKING ? "\",\"signature\":\"" SIGNATURE "\"}" : "\"}");
  }
  buffer_clear(&state->pending);
  state->open = BLOCK_NONE;
}

/* Begins a block; `name` is of a call. */
static void open_block(completion_t *completion, messages_block_t kind, const char *name,
                       size_t length) {
  messages_state_t *state = state_of(completion);
  bool stream = completion->params.stream;
  buffer_t *out = &state->out;
  close_block(state, stream);
  state->open = kind;
  state->num_blocks++;
  if (stream) {
    block_event(state, "content_block_start");
    buffer_text(out, ",\"content_block\":");
  } else if (state->num_blocks > 1) {
    buffer_char(out, ',');
  }
  const char *end = stream ? "\"\"" : "\""; /* the text of a whole block follows at once */
  if (kind == BLOCK_THINKING) {
    buffer_text(out, "{\"type\":\"thinking\",\"thinking\":");
    buffer_text(out, end);
    if (stream) buffer_text(out, ",\"signature\":\"\"");
  } else if (kind == BLOCK_TEXT) {
    buffer_text(out, "{\"type\":\"text\",\"text\":");
    buffer_text(out, end);
  } else {
    buffer_text(out, "{\"type\":\"tool_use\",\"id\":\"");
    print_call_id(out, completion);
    buffer_text(out, "\",\"name\":");
    buffer_quote(out, name, length);
    buffer_text(out, stream ? ",\"input\":{}" : ",\"input\":");
  }
  if (stream) buffer_text(out, "}}\n\n");
}

/* Adds text to a block of this kind; opens one if another is open. */
static void add_text(completion_t *completion, messages_block_t kind, const char *text,
                     size_t length) {
  messages_state_t *state = state_of(completion);
  if (length == 0) return;
  if (state->open != kind) open_block(completion, kind, NULL, 0);
  if (kind == BLOCK_THINKING && state->omit_thinking) return;
  if (completion->params.stream || kind == BLOCK_CALL) {
    buffer_append(&state->pending, text, length);
  } else {
    buffer_escape(&state->out, text, length);
  }
}

static void message_start(completion_t *completion) {
  messages_state_t *state = state_of(completion);
  buffer_t *out = &state->out;
  if (state->begun) return;
  state->begun = true;
  event_begin(out, "message_start");
  buffer_text(out, ",\"message\":{");
  print_head(out, completion);
  buffer_text(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
  print_usage(out, completion, 1);
  buffer_text(out, "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void take(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  completion_t *completion = choice->input->completion;
  messages_state_t *state = state_of(completion);
  if (completion->params.stream) message_start(completion);
  switch (kind) {
  case OUTPUT_CONTENT: add_text(completion, BLOCK_TEXT, text, length); break;
  case OUTPUT_REASONING: add_text(completion, BLOCK_THINKING, text, length); break;
  case OUTPUT_CALL_ID: break; /* chat_print_call_id has it */
  case OUTPUT_CALL_BEGIN:
    state->num_calls++;
    open_block(completion, BLOCK_CALL, text, length);
    break;
  case OUTPUT_CALL_TEXT: add_text(completion, BLOCK_CALL, text, length); break;
  case OUTPUT_CALL_END: close_block(state, completion->params.stream); break;
  }
  choice->text.failed = choice->text.failed || state->out.failed || state->pending.failed;
}

/* An answer without any block gets one of empty text. */
static void end_blocks(completion_t *completion) {
  messages_state_t *state = state_of(completion);
  if (state->num_blocks == 0) open_block(completion, BLOCK_TEXT, NULL, 0);
  close_block(state, completion->params.stream);
}

/* ---- the stream ---- */

static void send_out(completion_t *completion) {
  messages_state_t *state = state_of(completion);
  if (state->out.length == 0 && !state->out.failed) return;
  sse_send_buffer(completion, &state->out);
  /* A failed request has freed the buffer. */
  buffer_clear(&state->out);
}

static void chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  messages_state_t *state = state_of(completion);
  choice->sent_any = true;
  choice->unsent_tokens = 0;
  message_start(completion);
  if (last) {
    end_blocks(completion);
    event_begin(&state->out, "message_delta");
    buffer_text(&state->out, ",\"delta\":{");
    print_stop(&state->out, choice);
    buffer_text(&state->out, "},");
    print_usage(&state->out, completion, choice->num_tokens);
    buffer_text(&state->out, "}\n\n");
  } else {
    flush(state);
  }
  state->out.failed = state->out.failed || state->pending.failed || chat_failed(choice);
  send_out(completion);
}

static void done(completion_t *completion) {
  static const char stop[] = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  sse_send(completion, stop, sizeof stop - 1);
}

static void ping(completion_t *completion) {
  static const char ping_event[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  if (state_of(completion)->begun) {
    sse_send(completion, ping_event, sizeof ping_event - 1);
  } else {
    message_start(completion); /* it has a ping behind it */
    send_out(completion);
  }
}

static void fail(completion_t *completion, const inferd_error_t *error) {
  static const char begin[] = "event: error\ndata: ";
  size_t length;
  char *body = error_body_messages(error, completion->exchange->request_id, &length);
  if (body == NULL) return;
  sse_send(completion, begin, sizeof begin - 1);
  sse_send(completion, body, length);
  sse_send(completion, "\n\n", 2);
  free(body);
}

/* ---- the whole answer ---- */

static bool response(completion_t *completion) {
  messages_state_t *state = state_of(completion);
  const choice_t *choice = &completion->choices[0];
  cord_t *out = &completion->reply;
  end_blocks(completion);
  buffer_char(&out->own, '{');
  print_head(&out->own, completion);
  buffer_text(&out->own, ",\"content\":[");
  cord_bytes(out, state->out.data, state->out.length);
  buffer_text(&out->own, "],");
  print_stop(&out->own, choice);
  buffer_char(&out->own, ',');
  print_usage(&out->own, completion, choice->num_tokens);
  buffer_char(&out->own, '}');
  return !state->out.failed && !state->pending.failed && !chat_failed(choice) && !cord_failed(out);
}

/* ---- the dialect ---- */

/* Names of chat in errors that are found behind the translation, and those of this format. */
static const struct {
  const char *of_chat, *name;
} names[] = {{".function.parameters", ".input_schema"},
             {".function.name", ".name"},
             {"response_format", "output_config.format"},
             {"'stop'", "'stop_sequences'"},
             {"'max_completion_tokens'", "'max_tokens'"}};

/* An error has no place of its own here, so the message begins with it: clients print nothing else.
 */
static void name_place(inferd_error_t *error, const char *prefix) {
  char said[sizeof error->message];
  if (strncmp(error->param, prefix, strlen(prefix)) != 0) return;
  if (strstr(error->message, error->param) != NULL) return;
  memcpy(said, error->message, sizeof said);
  int n = snprintf(error->message, sizeof error->message, "%s: ", error->param);
  snprintf(error->message + n, sizeof error->message - (size_t)n, "%.*s",
           (int)(sizeof said - 1) - n, said);
}

static void rename_places(const completion_t *completion, inferd_error_t *error) {
  (void)completion;
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    rename_first(error->param, sizeof error->param, names[i].of_chat, names[i].name);
    rename_first(error->message, sizeof error->message, names[i].of_chat, names[i].name);
  }
  name_place(error, "tools[");
  name_place(error, "output_config");
}

static int translate_for(completion_t *completion, reader_t *reader, const json_t *root,
                         bool counting, buffer_t *chat) {
  messages_state_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return field_no_memory(reader);
  completion->dialect_state = state;
  return messages_translate(reader, root,
                            (completion->server->live->rules.refused[0] & SHAPE_LATE_SYSTEM) == 0,
                            counting, state, chat);
}

static int translate(completion_t *completion, reader_t *reader, const json_t *root,
                     buffer_t *chat) {
  return translate_for(completion, reader, root, false, chat);
}

static size_t held(const completion_t *completion) {
  const messages_state_t *state = state_of(completion);
  return state != NULL ? state->out.capacity + state->pending.capacity : 0;
}

static void forget(completion_t *completion) {
  messages_state_t *state = state_of(completion);
  if (state == NULL) return;
  buffer_free(&state->out);
  buffer_free(&state->pending);
}

static const dialect_t messages_dialect = {.route = "/v1/messages",
                                           .effort = "output_config.effort",
                                           .is_chat = true,
                                           .clips_max_tokens = true,
                                           .translate = translate,
                                           .rename = rename_places,
                                           .prepare = prepare,
                                           .take = take,
                                           .chunk = chunk,
                                           .done = done,
                                           .error = fail,
                                           .ping = ping,
                                           .response = response,
                                           .held = held,
                                           .free = forget};

/* ---- counting ---- */

static int translate_to_count(completion_t *completion, reader_t *reader, const json_t *root,
                              buffer_t *chat) {
  return translate_for(completion, reader, root, true, chat);
}

static bool count(completion_t *completion) {
  buffer_t *out = &completion->reply.own;
  buffer_text(out, "{\"input_tokens\":");
  buffer_int(out, completion->inputs[0].request.num_prompt_tokens);
  buffer_char(out, '}');
  return true;
}

static const dialect_t counting_dialect = {.effort = "output_config.effort",
                                           .is_chat = true,
                                           .translate = translate_to_count,
                                           .rename = rename_places,
                                           .counts = true,
                                           .describe = count,
                                           .held = held,
                                           .free = forget};

void api_count_tokens(exchange_t *exchange) {
  completion_start(exchange, &counting_dialect);
}

void api_messages(exchange_t *exchange) {
  completion_start(exchange, &messages_dialect);
}
