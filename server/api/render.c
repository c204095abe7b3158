/* render.c: what a request becomes: /v1/completions/render, /v1/chat/completions/render, and what a
 * client needs to do the same, /tokenizer_info.
 *
 * Loop thread. A request takes the way of one that runs, up to the engine, and is described
 * instead, in the form in which vLLM describes it; `prompt` is our own addition.
 */
#include "server/completion/dialect.h"
#include "server/http/reply_json.h"

#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

/* ---- render ---- */

static void print_id(buffer_t *out, const void *list, size_t index) {
  buffer_int(out, ((const request_t *)list)->prompt_ids[index]);
}

static void print_sampling(buffer_t *out, const completion_t *completion,
                           const request_t *request) {
  const params_t *params = &completion->params;
  const sampling_params_t *sampling = &request->params;
  const struct {
    const char *name;
    float value;
  } numbers[] = {
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  {#name, sampling->name},
#include "engine/device/sampling.def"
  };
  buffer_text(out, "{\"n\":");
  buffer_int(out, params->n);
  for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
    buffer_text(out, ",\"");
    buffer_text(out, numbers[i].name);
    buffer_text(out, "\":");
    buffer_float(out, numbers[i].value);
  }
  buffer_text(out, ",\"top_k\":");
  buffer_int(out, sampling->top_k);
  buffer_text(out, ",\"seed\":");
  if (params->has_seed) {
    buffer_int(out, params->seed);
  } else {
    buffer_text(out, "null");
  }
  buffer_text(out, ",\"max_tokens\":");
  buffer_int(out, sampling->max_tokens);
  buffer_text(out, ",\"min_tokens\":");
  buffer_int(out, sampling->min_tokens);
  buffer_text(out, ",\"ignore_eos\":");
  buffer_text(out, sampling->ignore_eos ? "true" : "false");
  buffer_text(out, ",\"stop\":[");
  for (int32_t i = 0; i < params->num_stop; i++) {
    if (i > 0) buffer_char(out, ',');
    buffer_quote(out, params->stop[i].text, params->stop[i].length);
  }
  buffer_text(out, "],\"stop_token_ids\":");
  buffer_ids(out, sampling->stop_token_ids, (size_t)sampling->num_stop_token_ids);
  buffer_char(out, '}');
}

/* The text is null if the client sent ids, or if it was put into a layout of ids. */
static void print_request(completion_t *completion, int32_t index) {
  cord_t *out = &completion->reply;
  const params_t *params = &completion->params;
  const request_t *request = &completion->inputs[index].request;
  const prompt_t *prompt = &params->prompts[index];
  const char *model = completion_model_name(completion);
  buffer_text(&out->own,
              params->is_chat ? "{\"request_id\":\"chatcmpl-" : "{\"request_id\":\"cmpl-");
  buffer_append(&out->own, completion->head, completion->head_length);
  if (completion->num_inputs > 1) {
    buffer_char(&out->own, '-');
    buffer_int(&out->own, index);
  }
  buffer_text(&out->own, "\",\"model\":");
  buffer_quote(&out->own, model, strlen(model));
  buffer_text(&out->own, ",\"prompt\":");
  if (prompt->text == NULL || params_fills_in(params)) {
    buffer_text(&out->own, "null");
  } else {
    buffer_char(&out->own, '"');
    cord_escape(out, prompt->text, prompt->length);
    buffer_char(&out->own, '"');
  }
  buffer_text(&out->own, ",\"token_ids\":[");
  cord_items(out, print_id, request, (size_t)request->num_prompt_tokens);
  buffer_text(&out->own, "],\"features\":null,\"sampling_params\":");
  print_sampling(&out->own, completion, request);
  buffer_text(&out->own, params->stream ? ",\"stream\":true" : ",\"stream\":false");
  buffer_text(&out->own, ",\"stream_options\":null,\"cache_salt\":");
  if (params->cache_salt != NULL) {
    buffer_quote(&out->own, params->cache_salt->text, params->cache_salt->length);
  } else {
    buffer_text(&out->own, "null");
  }
  buffer_text(&out->own, ",\"priority\":");
  buffer_int(&out->own, params->priority);
  buffer_text(&out->own, ",\"kv_transfer_params\":null}");
}

/* The id of the request: while the reply is printed, the exchange is the transport's. */
static bool keep_id(completion_t *completion) {
  const char *id = completion->exchange->request_id;
  completion->head_length = strlen(id);
  completion->head = arena_copy(&completion->arena, id, completion->head_length);
  return completion->head != NULL;
}

static bool describe_chat(completion_t *completion) {
  if (!keep_id(completion)) return false;
  print_request(completion, 0);
  return true;
}

/* A list, because a request for completions may have several prompts. Each is described when those
 * before it are printed: a thousand with long stop strings would take megabytes at once. */
static bool describe_next_prompt(completion_t *completion) {
  int32_t index = completion->num_described;
  if (index == completion->num_inputs) return false;
  buffer_char(&completion->reply.own, index == 0 ? '[' : ',');
  print_request(completion, index);
  completion->num_described++;
  if (completion->num_described == completion->num_inputs) buffer_char(&completion->reply.own, ']');
  return true;
}

static bool describe_prompts(completion_t *completion) {
  return keep_id(completion) && describe_next_prompt(completion);
}

static const dialect_t text_rendering = {.describe = describe_prompts,
                                         .describe_next = describe_next_prompt};
static const dialect_t chat_rendering = {.is_chat = true, .describe = describe_chat};

void api_render_completion(exchange_t *exchange) {
  completion_start(exchange, &text_rendering);
}

void api_render_chat(exchange_t *exchange) {
  completion_start(exchange, &chat_rendering);
}

/* ---- /tokenizer_info ---- */

static bool print_info(void *owner, buffer_t *out, size_t room) {
  return cord_print(owner, out, room);
}

static void free_info(void *owner) {
  cord_free(owner);
  free(owner);
}

void api_tokenizer_info(exchange_t *exchange) {
  const completions_t *live = exchange->server->live;
  if (live->tokenizer_info.length == 0) {
    inferd_error_t error;
    error_set(&error, ERR_UNKNOWN_URL, NULL,
              "Unknown request URL: GET /tokenizer_info. It is there with "
              "--enable-tokenizer-info-endpoint.");
    exchange_error(exchange, &error);
    return;
  }
  cord_t *reply = calloc(1, sizeof *reply);
  if (reply != NULL) cord_bytes(reply, live->tokenizer_info.data, live->tokenizer_info.length);
  if (reply == NULL || cord_failed(reply)) {
    if (reply != NULL) free_info(reply);
    reply_no_memory(exchange);
    return;
  }
  exchange_reply_pieces(exchange, "application/json", (pieces_t){print_info, free_info, reply});
}
