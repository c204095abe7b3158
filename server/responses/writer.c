/* writer.c: the output of a model -> items and events of a response.
 *
 * Stage 9 of 9. Loop thread. One item is open at a time. A stream and a whole answer build the same
 * items; a stream also prints an event for each step. An event carries what came since the last
 * one. Blank text opens no item, so that a line break before a call is no message of its own. The
 * events at the end hold the text four times, as clients expect. If it is large, they point to it
 * in completion->reply, which is printed while it is sent, and so is all that follows until then.
 * REPEATED_BYTES_MAX (responses.h) bounds what they repeat of the request, SCORES_REPEATED_MAX the
 * log probabilities.
 */
#include "server/responses/responses.h"

#include "server/completion/chat.h"
#include "server/parser/json_scan.h"
#include "server/responses/background.h"

#include <stdio.h>
#include <time.h>

/* Bytes of log probabilities; the events at the end repeat no more, the deltas have had them. */
enum { SCORES_REPEATED_MAX = 32 << 10 };

/* ---- where events are printed ---- */

/* From here on events are printed while the client takes them: they may point to large texts. */
static void print_in_pieces(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  buffer_t *frames = &response->frames.own;
  if (completion->in_pieces) return;
  completion->in_pieces = true;
  response->out = &completion->reply;
  buffer_append(&response->out->own, frames->data, frames->length);
  response->out->own.failed = response->out->own.failed || frames->failed;
  buffer_clear(frames);
}

/* Sends the events that are printed in `out`. */
static void send_out(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  if (completion->exchange == NULL) return; /* the client has left */
  sse_send_buffer(completion, &response->out->own);
  if (!completion->in_pieces) buffer_clear(&response->frames.own);
}

/* ---- events ---- */

static size_t event_begin(responses_answer_t *response, const char *type) {
  buffer_t *out = &response->out->own;
  size_t begin = out->length;
  buffer_text(out, "event: ");
  buffer_text(out, type);
  buffer_text(out, "\ndata: {\"type\":\"");
  buffer_text(out, type);
  buffer_text(out, "\",\"sequence_number\":");
  buffer_int(out, response->sequence_number++);
  return begin;
}

static void event_end(responses_answer_t *response) {
  buffer_text(&response->out->own, "}\n\n");
}

static void print_response_event(completion_t *completion, const char *type,
                                 response_status_t status, const inferd_error_t *error) {
  responses_answer_t *response = completion->dialect_state;
  event_begin(response, type);
  buffer_text(&response->out->own, ",\"response\":");
  responses_print(response->out, completion, status, error);
  event_end(response);
}

/* The first events of a stream. */
static void begin_stream(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  if (response->begun) return;
  response->begun = true;
  size_t repeated = strlen(response->instructions) + strlen(response->metadata) +
                    strlen(response->tools) + strlen(response->tool_choice) +
                    strlen(response->format);
  if (repeated > LARGE_BYTES) print_in_pieces(completion);
  response->out->flat = repeated <= LARGE_BYTES;
  print_response_event(completion, "response.created", RESPONSE_IN_PROGRESS, NULL);
  print_response_event(completion, "response.in_progress", RESPONSE_IN_PROGRESS, NULL);
  response->out->flat = true;
}

static void print_index(responses_answer_t *response) {
  buffer_text(&response->out->own, ",\"output_index\":");
  buffer_int(&response->out->own, response->num_items);
}

/* Begins an event of the open item: its type, the item, and for text the part. */
static size_t part_begin(responses_answer_t *response, const char *type) {
  buffer_t *out = &response->out->own;
  size_t begin = event_begin(response, type);
  buffer_text(out, ",\"item_id\":\"");
  buffer_append(out, response->item_id.data, response->item_id.length);
  buffer_char(out, '"');
  print_index(response);
  bool has_parts = response->open == ITEM_REASONING || response->open == ITEM_TEXT;
  if (has_parts) buffer_text(out, ",\"content_index\":0");
  return begin;
}

static void print_item_event(responses_answer_t *response, const char *type, const char *status,
                             bool whole) {
  event_begin(response, type);
  print_index(response);
  buffer_text(&response->out->own, ",\"item\":");
  responses_print_item(response->out, response, status, whole);
  event_end(response);
}

/* The text of an event, from byte `from` of the open item on. */
static void print_rest(responses_answer_t *response, const char *name, size_t from) {
  buffer_t *out = &response->out->own;
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":\"");
  if (from < response->text.length) /* an empty text may have no bytes at all */
    cord_escape(response->out, response->text.data + from, response->text.length - from);
  buffer_char(out, '"');
}

static void print_scores(responses_answer_t *response, size_t from) {
  buffer_t *out = &response->out->own;
  buffer_text(out, ",\"logprobs\":[");
  if (from < response->logprobs.length)
    cord_bytes(response->out, response->logprobs.data + from, response->logprobs.length - from);
  buffer_char(out, ']');
}

static void print_part(responses_answer_t *response, bool whole) {
  buffer_t *out = &response->out->own;
  bool is_reasoning = response->open == ITEM_REASONING;
  buffer_text(out, ",\"part\":{\"type\":");
  buffer_text(out, is_reasoning ? "\"reasoning_text\"" : "\"output_text\"");
  print_rest(response, "text", whole ? 0 : response->text.length);
  if (!is_reasoning) {
    buffer_text(out, ",\"annotations\":[]");
    print_scores(response, whole ? 0 : response->logprobs.length);
  }
  buffer_char(out, '}');
}

/* Sends what the open item has got since the last event. */
static void flush_delta(completion_t *completion) {
  static const char *const types[] = {[ITEM_REASONING] = "response.reasoning_text.delta",
                                      [ITEM_TEXT] = "response.output_text.delta",
                                      [ITEM_CALL] = "response.function_call_arguments.delta",
                                      [ITEM_CUSTOM] = "response.custom_tool_call_input.delta"};
  responses_answer_t *response = completion->dialect_state;
  if (response->open == ITEM_NONE || response->sent == response->text.length) return;
  response->out->flat = true;
  size_t begin = part_begin(response, types[response->open]);
  print_rest(response, "delta", response->sent);
  if (response->open == ITEM_TEXT) {
    size_t from = response->sent_logprobs;
    if (from > 0 && from < response->logprobs.length) from++; /* the comma between */
    print_scores(response, from);
    response->sent_logprobs = response->logprobs.length;
  }
  response->sent = response->text.length;
  dialect_pad(&response->out->own, begin, completion);
  event_end(response);
}

/* ---- items ---- */

static const response_tool_t *find_tool(const responses_answer_t *response, const buffer_t *name) {
  for (int32_t i = 0; i < response->num_shown; i++) {
    const response_tool_t *tool = &response->shown[i];
    if (strlen(tool->name) == name->length && memcmp(tool->name, name->data, name->length) == 0) {
      return tool;
    }
  }
  return NULL;
}

static void close_item(completion_t *completion, const char *status);

static void open_item(completion_t *completion, item_kind_t kind) {
  static const char *const prefixes[] = {
      [ITEM_REASONING] = "rs_", [ITEM_TEXT] = "msg_", [ITEM_CALL] = "fc_", [ITEM_CUSTOM] = "ctc_"};
  responses_answer_t *response = completion->dialect_state;
  close_item(completion, "completed");
  response->open = kind;
  buffer_clear(&response->text);
  buffer_clear(&response->logprobs);
  response->sent = response->sent_logprobs = 0;
  buffer_clear(&response->item_id);
  dialect_print_id(&response->item_id, prefixes[kind]);
  bool is_call = kind == ITEM_CALL || kind == ITEM_CUSTOM;
  buffer_clear(&response->call_id);
  if (is_call) chat_print_call_id(&response->call_id, completion);
  if (!completion->params.stream) return;
  begin_stream(completion);
  print_item_event(response, "response.output_item.added", "in_progress", false);
  if (is_call) return;
  part_begin(response, "response.content_part.added");
  print_part(response, false);
  event_end(response);
}

/* {"input": "..."} -> the text; arguments of another shape stay as the model wrote them. */
static void unwrap_input(responses_answer_t *response) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  const buffer_t *text = &response->text;
  if (text->length == 0) return;
  if (json_parse(text->data, text->length, &json_limits_request, &doc, &error) != 0) return;
  const json_t *input = json_get(json_root(doc), "input");
  if (input != NULL && input->type == JSON_STRING) {
    buffer_t bare = {0};
    buffer_append(&bare, input->text, input->length);
    json_free(doc); /* its strings point into the text */
    buffer_free(&response->text);
    response->text = bare;
    return;
  }
  json_free(doc);
}

/* The events at the end of the open item. */
static void print_end_events(completion_t *completion, const char *status) {
  responses_answer_t *response = completion->dialect_state;
  buffer_t *out = &response->out->own;
  switch (response->open) {
  case ITEM_NONE: return;
  case ITEM_REASONING:
    part_begin(response, "response.reasoning_text.done");
    print_rest(response, "text", 0);
    break;
  case ITEM_TEXT:
    part_begin(response, "response.output_text.done");
    print_rest(response, "text", 0);
    print_scores(response, 0);
    break;
  case ITEM_CALL:
    part_begin(response, "response.function_call_arguments.done");
    buffer_text(out, ",\"name\":");
    if (response->tool != NULL) {
      buffer_quote(out, response->tool->own, strlen(response->tool->own));
    } else {
      buffer_quote(out, response->name.data, response->name.length);
    }
    print_rest(response, "arguments", 0);
    break;
  case ITEM_CUSTOM:
    part_begin(response, "response.custom_tool_call_input.done");
    print_rest(response, "input", 0);
    break;
  }
  event_end(response);
  if (response->open == ITEM_REASONING || response->open == ITEM_TEXT) {
    part_begin(response, "response.content_part.done");
    print_part(response, true);
    event_end(response);
  }
  print_item_event(response, "response.output_item.done", status, true);
}

/* Items and events point to the text, so it stays until the answer is sent. */
static void keep(responses_answer_t *response, buffer_t *text) {
  buffer_append(&response->kept, text, sizeof *text);
  if (response->kept.failed) return;
  response->kept_bytes += text->capacity;
  *text = (buffer_t){0};
}

static void close_item(completion_t *completion, const char *status) {
  responses_answer_t *response = completion->dialect_state;
  if (response->open == ITEM_NONE) return;
  if (response->open == ITEM_CUSTOM) unwrap_input(response);
  if (completion->params.stream) flush_delta(completion);
  if (response->logprobs.length > SCORES_REPEATED_MAX) {
    buffer_clear(&response->logprobs);
    response->sent_logprobs = 0;
  }
  bool large = response->text.length + response->logprobs.length > LARGE_BYTES;
  if (completion->params.stream) {
    if (large) print_in_pieces(completion);
    response->out->flat = !large;
    print_end_events(completion, status);
    response->out->flat = true;
  }
  if (response->num_items > 0) buffer_char(&response->items.own, ',');
  response->items.flat = !large;
  responses_print_item(&response->items, response, status, true);
  if (large) {
    keep(response, &response->text);
    keep(response, &response->logprobs);
  }
  response->num_items++;
  response->open = ITEM_NONE;
}

/* ---- the parts of the output ---- */

static void add_text(completion_t *completion, item_kind_t kind, const char *text, size_t length) {
  responses_answer_t *response = completion->dialect_state;
  if (length == 0) return;
  if (response->open != kind) open_item(completion, kind);
  buffer_append(&response->text, text, length);
}

/* The scores of the tokens belong to the text; those of reasoning and calls are dropped. */
static void take_scores(choice_t *choice) {
  responses_answer_t *response = choice->input->completion->dialect_state;
  buffer_t *scores = &choice->logprobs.tokens;
  if (scores->length == 0) return;
  if (response->logprobs.length > 0) buffer_char(&response->logprobs, ',');
  buffer_append(&response->logprobs, scores->data, scores->length);
  logprob_text_clear(&choice->logprobs);
}

/* A call that was cut ends too; its arguments are no JSON then. */
static void end_call(const choice_t *choice) {
  completion_t *completion = choice->input->completion;
  const responses_answer_t *response = completion->dialect_state;
  bool cut = chat_is_cut(choice);
  json_doc_t *doc = NULL;
  inferd_error_t error;
  if (cut) {
    const buffer_t *text = &response->text;
    cut = text->length == 0 ||
          json_parse(text->data, text->length, &json_limits_request, &doc, &error) != 0;
    json_free(doc);
  }
  close_item(completion, cut ? "incomplete" : "completed");
}

static void take(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  completion_t *completion = choice->input->completion;
  responses_answer_t *response = completion->dialect_state;
  if (kind != OUTPUT_CONTENT) logprob_text_clear(&choice->logprobs);
  switch (kind) {
  case OUTPUT_CONTENT:
    add_text(completion, ITEM_TEXT, text, length);
    if (response->open == ITEM_TEXT) take_scores(choice);
    break;
  case OUTPUT_REASONING:
    if (completion->params.chat.include_reasoning) {
      add_text(completion, ITEM_REASONING, text, length);
    }
    break;
  case OUTPUT_CALL_ID: break; /* chat_print_call_id has it */
  case OUTPUT_CALL_BEGIN:
    close_item(completion, "completed");
    choice->num_calls++;
    buffer_clear(&response->name);
    buffer_append(&response->name, text, length);
    response->tool = find_tool(response, &response->name);
    open_item(completion,
              response->tool != NULL && response->tool->is_custom ? ITEM_CUSTOM : ITEM_CALL);
    break;
  case OUTPUT_CALL_TEXT: buffer_append(&response->text, text, length); break;
  case OUTPUT_CALL_END: end_call(choice); break;
  }
}

/* No more output comes: closes the open item. An answer without any item has an empty message. */
static void finish(choice_t *choice) {
  completion_t *completion = choice->input->completion;
  responses_answer_t *response = completion->dialect_state;
  if (response->num_items == 0 && response->open == ITEM_NONE) {
    open_item(completion, ITEM_TEXT);
    take_scores(choice);
  }
  close_item(completion, choice->finish == FINISH_LENGTH ? "incomplete" : "completed");
}

/* ---- the dialect ---- */

static response_status_t final_status(const completion_t *completion) {
  bool cut = completion->choices[0].finish == FINISH_LENGTH;
  return cut ? RESPONSE_INCOMPLETE : RESPONSE_COMPLETED;
}

static bool prepare(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  buffer_t head = {0};
  completion->created = (int64_t)time(NULL);
  if (completion->dialect == &responses_background) { /* it has its id and its time already */
    completion->created = background_created(completion->exchange);
    snprintf(response->id, sizeof response->id, "%.*s", KEPT_ID_BYTES - 1,
             completion->exchange->request_id);
  } else if (completion->exchange->best_effort && response->is_kept) {
    /* a line of a batch: that which runs again after a kill has the id that it had */
    const char *line = strchr(completion->exchange->request_id, '_');
    snprintf(response->id, sizeof response->id, "resp%.*s", KEPT_ID_BYTES - 5, line);
  }
  completion->obfuscation = (uint32_t)completion->arrival_ns | 1;
  buffer_text(&head, "{\"id\":\"");
  if (response->is_kept) { /* a client chooses the id of a request, not that of what is kept */
    buffer_text(&head, response->id);
  } else {
    buffer_text(&head, "resp_");
    buffer_text(&head, completion->exchange->request_id);
  }
  buffer_text(&head, "\",\"object\":\"response\",\"created_at\":");
  buffer_int(&head, completion->created);
  completion->head_length = head.length;
  if (!head.failed) completion->head = arena_copy(&completion->arena, head.data, head.length);
  buffer_free(&head);
  return completion->head != NULL;
}

static bool failed(const completion_t *completion) {
  const responses_answer_t *response = completion->dialect_state;
  const choice_t *choice = &completion->choices[0];
  return cord_failed(&response->items) || response->kept.failed || response->name.failed ||
         response->item_id.failed || response->call_id.failed || response->text.failed ||
         response->logprobs.failed || chat_failed(choice) || logprob_text_failed(&choice->logprobs);
}

/* Sends the events that are printed, or fails the request. */
static void send_events(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  if (!cord_failed(response->out) && !failed(completion)) {
    if (response->out->own.length > 0) send_out(completion);
    return;
  }
  inferd_error_t error;
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  completion_fail(completion, &error);
}

static void chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  const responses_answer_t *response = completion->dialect_state;
  begin_stream(completion);
  if (response->open != ITEM_CUSTOM) flush_delta(completion); /* its input is still JSON */
  if (last) {
    finish(choice); /* sent together with the end */
  } else {
    send_events(completion);
  }
  choice->sent_any = true;
  choice->unsent_tokens = 0;
}

/* The last event, with all items. */
static void print_end(completion_t *completion, const char *type, response_status_t status,
                      const inferd_error_t *error) {
  responses_answer_t *response = completion->dialect_state;
  bool large = cord_held(&response->items) + response->kept_bytes > LARGE_BYTES;
  if (large) print_in_pieces(completion);
  response->out->flat = !large;
  print_response_event(completion, type, status, error);
}

/* Before the end is printed, which says whether the answer is kept. */
static bool settle(completion_t *completion) {
  if (!completion->params.stream) finish(&completion->choices[0]);
  if (failed(completion)) return false; /* what prints the end says so */
  return responses_put(completion, final_status(completion), NULL, true);
}

static void done(completion_t *completion) {
  response_status_t status = final_status(completion);
  print_end(completion,
            status == RESPONSE_INCOMPLETE ? "response.incomplete" : "response.completed", status,
            NULL);
  send_events(completion);
}

static void send_error(completion_t *completion, const inferd_error_t *error) {
  responses_answer_t *response = completion->dialect_state;
  response->out->own.failed = response->out->parts.failed = false;
  begin_stream(completion);
  if (completion->exchange != NULL && completion->dialect == &responses_background)
    background_fail(completion->exchange, error);
  else
    (void)responses_put(completion, RESPONSE_FAILED, error, false);
  print_end(completion, "response.failed", RESPONSE_FAILED, error);
  response->out->own.failed = response->out->parts.failed = false;
  send_out(completion);
}

static void ping(completion_t *completion) {
  static const char text[] = ": ping\n\n";
  sse_send(completion, text, sizeof text - 1);
}

static void no_ping(completion_t *completion) { /* there is no connection */
  (void)completion;
}

static bool whole_answer(completion_t *completion) {
  if (failed(completion)) return false;
  responses_print(&completion->reply, completion, final_status(completion), NULL);
  return !cord_failed(&completion->reply);
}

static size_t held(const completion_t *completion) {
  const responses_answer_t *response = completion->dialect_state;
  return cord_held(&response->items) + response->input.capacity + response->drawn.capacity +
         response->kept.capacity + response->kept_bytes + response->name.capacity +
         response->item_id.capacity + response->call_id.capacity + response->text.capacity +
         response->logprobs.capacity + response->frames.own.capacity;
}

static void forget(completion_t *completion) {
  responses_answer_t *response = completion->dialect_state;
  if (response == NULL) return;
  const buffer_t *texts = (const buffer_t *)(const void *)response->kept.data;
  for (size_t i = 0; i < response->kept.length / sizeof *texts; i++) {
    buffer_t text = texts[i];
    buffer_free(&text);
  }
  buffer_free(&response->kept);
  buffer_free(&response->input);
  buffer_free(&response->drawn);
  held_free(&response->request);
  response->kept_bytes = 0;
  cord_free(&response->items);
  buffer_free(&response->name);
  buffer_free(&response->item_id);
  buffer_free(&response->call_id);
  buffer_free(&response->text);
  buffer_free(&response->logprobs);
  cord_free(&response->frames);
}

const dialect_t responses_dialect = {.route = "/v1/responses",
                                     .effort = "reasoning.effort",
                                     .is_chat = true,
                                     .translate = responses_translate,
                                     .waits = responses_waits,
                                     .rename = responses_rename,
                                     .prepare = prepare,
                                     .settle = settle,
                                     .take = take,
                                     .drawn = responses_drawn,
                                     .chunk = chunk,
                                     .done = done,
                                     .error = send_error,
                                     .ping = ping,
                                     .response = whole_answer,
                                     .held = held,
                                     .free = forget};

const dialect_t responses_posted = {.route = "/v1/responses",
                                    .effort = "reasoning.effort",
                                    .is_chat = true,
                                    .translate = responses_translate,
                                    .rename = responses_rename,
                                    .take_over = background_take,
                                    .prepare = prepare,
                                    .held = held,
                                    .free = forget};

const dialect_t responses_background = {.route = "/v1/responses",
                                        .effort = "reasoning.effort",
                                        .is_chat = true,
                                        .translate = responses_translate,
                                        .waits = responses_waits,
                                        .rename = responses_rename,
                                        .prepare = prepare,
                                        .settle = settle,
                                        .take = take,
                                        .drawn = responses_drawn,
                                        .chunk = chunk,
                                        .done = done,
                                        .error = send_error,
                                        .ping = no_ping,
                                        .response = whole_answer,
                                        .held = held,
                                        .free = forget};

/* ---- how many tokens a request has ---- */

static bool count_tokens(completion_t *completion) {
  buffer_t *out = &completion->reply.own;
  buffer_text(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":");
  buffer_int(out, completion->inputs[0].request.num_prompt_tokens);
  buffer_char(out, '}');
  return !out->failed;
}

static const dialect_t counting = {.effort = "reasoning.effort",
                                   .is_chat = true,
                                   .translate = responses_translate,
                                   .waits = responses_waits,
                                   .rename = responses_rename,
                                   .counts = true,
                                   .describe = count_tokens,
                                   .free = forget};

void api_responses(exchange_t *exchange) {
  completion_start(exchange, &responses_dialect);
}

void api_responses_input_tokens(exchange_t *exchange) {
  completion_start(exchange, &counting);
}
