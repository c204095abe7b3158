/* object.c: the JSON of a response and of its items.
 *
 * Loop thread. Pure printing into a cord. If it is not flat, large texts stay where they are.
 */
#include "server/responses/responses.h"

#include <time.h>

/* ---- items ---- */

static void print_text(cord_t *out, const buffer_t *text, bool whole) {
  buffer_char(&out->own, '"');
  if (whole) cord_escape(out, text->data, text->length);
  buffer_char(&out->own, '"');
}

static void print_content(cord_t *out, const responses_answer_t *response) {
  bool is_reasoning = response->open == ITEM_REASONING;
  buffer_text(&out->own, is_reasoning ? "{\"type\":\"reasoning_text\",\"text\":"
                                      : "{\"type\":\"output_text\",\"text\":");
  print_text(out, &response->text, true);
  if (!is_reasoning) {
    buffer_text(&out->own, ",\"annotations\":[],\"logprobs\":[");
    cord_bytes(out, response->logprobs.data, response->logprobs.length);
    buffer_char(&out->own, ']');
  }
  buffer_char(&out->own, '}');
}

static void print_call(cord_t *out, const responses_answer_t *response, bool whole) {
  const response_tool_t *tool = response->tool;
  buffer_text(&out->own, ",\"call_id\":\"");
  buffer_append(&out->own, response->call_id.data, response->call_id.length);
  buffer_text(&out->own, "\",\"name\":");
  if (tool != NULL) {
    buffer_quote(&out->own, tool->own, strlen(tool->own));
  } else {
    buffer_quote(&out->own, response->name.data, response->name.length);
  }
  if (tool != NULL && tool->space != NULL) {
    buffer_text(&out->own, ",\"namespace\":");
    buffer_quote(&out->own, tool->space, strlen(tool->space));
  }
  buffer_text(&out->own, response->open == ITEM_CUSTOM ? ",\"input\":" : ",\"arguments\":");
  print_text(out, &response->text, whole);
}

void responses_print_item(cord_t *out, const responses_answer_t *response, const char *status,
                          bool whole) {
  static const char *const types[] = {[ITEM_REASONING] = "reasoning",
                                      [ITEM_TEXT] = "message",
                                      [ITEM_CALL] = "function_call",
                                      [ITEM_CUSTOM] = "custom_tool_call"};
  buffer_text(&out->own, "{\"id\":\"");
  buffer_append(&out->own, response->item_id.data, response->item_id.length);
  buffer_text(&out->own, "\",\"type\":\"");
  buffer_text(&out->own, types[response->open]);
  buffer_char(&out->own, '"');
  if (response->open == ITEM_TEXT) buffer_text(&out->own, ",\"role\":\"assistant\"");
  if (response->open == ITEM_REASONING) {
    buffer_text(&out->own, ",\"summary\":[],\"content\":[");
    if (whole) print_content(out, response);
    buffer_char(&out->own, ']');
  }
  buffer_text(&out->own, ",\"status\":\"");
  buffer_text(&out->own, status);
  buffer_char(&out->own, '"');
  if (response->open == ITEM_TEXT) {
    buffer_text(&out->own, ",\"content\":[");
    if (whole) print_content(out, response);
    buffer_char(&out->own, ']');
  } else if (response->open != ITEM_REASONING) {
    print_call(out, response, whole);
  }
  buffer_char(&out->own, '}');
}

/* ---- the response ---- */

/* Codex reads these codes: it tries again after the second, with the third it says what happened.
 */
static const char *failure_code(const inferd_error_t *error) {
  if (error->code == ERR_CONTEXT_LENGTH) return "context_length_exceeded";
  int status = error_http_status(error->code);
  bool busy = status == 429 || error->code == ERR_QUEUE_TIMEOUT;
  return busy ? "rate_limit_exceeded" : "server_error";
}

void responses_print_error(buffer_t *out, const inferd_error_t *error) {
  buffer_text(out, "{\"code\":\"");
  buffer_text(out, failure_code(error));
  buffer_text(out, "\",\"message\":");
  buffer_quote(out, error->message, strlen(error->message));
  buffer_char(out, '}');
}

static void print_number(buffer_t *out, const char *name, int64_t value, int64_t absent,
                         const char *fallback) {
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":");
  if (value == absent) {
    buffer_text(out, fallback);
  } else {
    buffer_int(out, value);
  }
}

static void print_kept(cord_t *out, const char *name, const char *json) {
  buffer_text(&out->own, ",\"");
  buffer_text(&out->own, name);
  buffer_text(&out->own, "\":");
  cord_bytes(out, json, strlen(json));
}

static void print_usage(buffer_t *out, const completion_t *completion) {
  token_usage_t usage = completion_usage(completion);
  buffer_text(out, "{\"input_tokens\":");
  buffer_int(out, usage.prompt);
  buffer_text(out, ",\"input_tokens_details\":{\"cached_tokens\":");
  buffer_int(out, usage.cached);
  buffer_text(out, ",\"cache_write_tokens\":0},\"output_tokens\":");
  buffer_int(out, usage.generated);
  buffer_text(out, ",\"output_tokens_details\":{\"reasoning_tokens\":");
  buffer_int(out, usage.reasoning);
  buffer_text(out, "},\"total_tokens\":");
  buffer_int(out, usage.prompt + usage.generated);
  buffer_char(out, '}');
}

static void print_head(buffer_t *out, const completion_t *completion, response_status_t status,
                       const inferd_error_t *error) {
  static const char *const words[] = {"queued", "in_progress", "completed", "incomplete", "failed"};
  buffer_append(out, completion->head, completion->head_length);
  buffer_text(out, ",\"completed_at\":");
  if (status == RESPONSE_COMPLETED) {
    buffer_int(out, (int64_t)time(NULL));
  } else {
    buffer_text(out, "null");
  }
  buffer_text(out, ",\"status\":\"");
  buffer_text(out, words[status]);
  const responses_answer_t *response = completion->dialect_state;
  buffer_text(out, "\",\"background\":");
  buffer_text(out, response->background ? "true" : "false");
  buffer_text(out, ",\"error\":");
  if (error != NULL) {
    responses_print_error(out, error);
  } else {
    buffer_text(out, "null");
  }
  buffer_text(out, ",\"incomplete_details\":");
  buffer_text(out, status == RESPONSE_INCOMPLETE ? "{\"reason\":\"max_output_tokens\"}" : "null");
}

void responses_print(cord_t *out, const completion_t *completion, response_status_t status,
                     const inferd_error_t *error) {
  responses_answer_t *response = completion->dialect_state;
  const params_t *params = &completion->params;
  const char *model = completion_model_name(completion);
  buffer_t *own = &out->own;
  bool ended = status != RESPONSE_IN_PROGRESS && status != RESPONSE_QUEUED;
  print_head(own, completion, status, error);
  print_kept(out, "instructions", response->instructions);
  print_number(own, "max_output_tokens", response->max_output_tokens, ABSENT, "null");
  buffer_text(own, ",\"max_tool_calls\":null");
  print_kept(out, "metadata", response->metadata);
  buffer_text(own, ",\"model\":");
  buffer_quote(own, model, strlen(model));
  buffer_text(own, ",\"output\":[");
  if (ended) cord_append(out, &response->items);
  buffer_text(own, "],\"parallel_tool_calls\":");
  buffer_text(own, params->chat.parallel_tool_calls ? "true" : "false");
  buffer_text(own, ",\"previous_response_id\":");
  if (response->previous[0] != '\0') {
    buffer_quote(own, response->previous, strlen(response->previous));
  } else {
    buffer_text(own, "null");
  }
  if (response->conversation[0] != '\0') {
    buffer_text(own, ",\"conversation\":{\"id\":");
    buffer_quote(own, response->conversation, strlen(response->conversation));
    buffer_char(own, '}');
  }
  buffer_text(own, ",\"prompt_cache_key\":null,\"reasoning\":{\"effort\":");
  buffer_text(own, response->effort);
  buffer_text(own, ",\"summary\":null},\"safety_identifier\":null,\"service_tier\":\"default\","
                   "\"store\":");
  buffer_text(own, response->is_kept ? "true" : "false");
  buffer_text(own, ",\"temperature\":");
  buffer_float(own, params->temperature);
  buffer_text(own, ",\"text\":{\"format\":");
  buffer_text(own, response->format);
  buffer_char(own, '}');
  buffer_text(own, ",\"presence_penalty\":");
  buffer_float(own, params->presence_penalty);
  buffer_text(own, ",\"frequency_penalty\":");
  buffer_float(own, params->frequency_penalty);
  print_kept(out, "tool_choice", response->tool_choice);
  print_kept(out, "tools", response->tools);
  print_number(own, "top_logprobs", response->top_logprobs, ABSENT, "0");
  buffer_text(own, ",\"top_p\":");
  buffer_float(own, params->top_p);
  buffer_text(own, ",\"truncation\":\"disabled\",\"user\":null,\"usage\":");
  if (ended) {
    print_usage(own, completion);
  } else {
    buffer_text(own, "null");
  }
  buffer_char(own, '}');
}
