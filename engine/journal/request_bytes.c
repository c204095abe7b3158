/* request_bytes.c: the fields of a request in a fixed order, both ways.
 *
 * What is written and what is read stand in the same order in two functions each: a field that is
 * added goes into both, and raises JOURNAL_VERSION.
 */
#include "engine/journal/request_bytes.h"

#include "engine/grammar/source_bytes.h"

enum {
  HAS_QUOTA = 1,
  SKIPS_SPECIAL = 2,
  INCLUDES_STOP = 4,
  IGNORES_EOS = 8,
  BEST_EFFORT = 16,
  HAS_SOURCE = 32,
  HAS_ROWS = 64
};

/* ---- writing ---- */

static void put_ids(byte_sink_t *sink, const int32_t *ids, int32_t count) {
  put_uint(sink, (uint64_t)count);
  for (int32_t i = 0; i < count; i++) put_int(sink, ids[i]);
}

static void put_string(byte_sink_t *sink, const char *text) {
  put_text(sink, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

static void write_params(byte_sink_t *sink, const sampling_params_t *params) {
#define SAMPLING(name, ...) put_float(sink, params->name);
#include "engine/device/sampling.def"
  put_int(sink, params->top_k);
  put_fixed_64(sink, params->seed);
  put_int(sink, params->max_tokens);
  put_int(sink, params->min_tokens);
  put_int(sink, params->num_logprobs);
  put_int(sink, params->num_prompt_logprobs);
  put_ids(sink, params->stop_token_ids, params->num_stop_token_ids);
  put_uint(sink, (uint64_t)params->num_logit_bias);
  for (int32_t i = 0; i < params->num_logit_bias; i++) {
    put_int(sink, params->logit_bias[i].id);
    put_float(sink, params->logit_bias[i].bias);
  }
  put_ids(sink, params->allowed_ids, params->num_allowed_ids);
  put_uint(sink, (uint64_t)params->num_bad_words);
  for (int32_t i = 0; i < params->num_bad_words; i++)
    put_ids(sink, params->bad_words[i].ids, params->bad_words[i].count);
  put_ids(sink, params->logprob_token_ids, params->num_logprob_token_ids);
  put_int(sink, params->n);
  put_int(sink, params->best_of);
  put_int(sink, params->beam_width);
  put_float(sink, params->length_penalty);
  put_uint(sink, params->early_stopping);
}

static uint64_t constraint_of(const request_t *request) {
  size_t length;
  if (request->grammar == NULL) return 0;
  bool is_kept = grammar_source_of(request->grammar, &length) != NULL;
  return is_kept ? grammar_serial(request->grammar) + 1 : UINT64_MAX;
}

void request_write(byte_sink_t *sink, const request_t *request) {
  const bool has_quota = request->quota != NULL;
  put_uint(sink, request->id);
  put_string(sink, request->name);
  put_uint(sink, (has_quota ? HAS_QUOTA : 0) | (request->skip_special_tokens ? SKIPS_SPECIAL : 0) |
                     (request->include_stop_string ? INCLUDES_STOP : 0) |
                     (request->params.ignore_eos ? IGNORES_EOS : 0) |
                     (request->best_effort ? BEST_EFFORT : 0) |
                     (request->source != NULL ? HAS_SOURCE : 0) |
                     (request->rows != NULL ? HAS_ROWS : 0));
  put_ids(sink, request->prompt_ids, request->num_prompt_tokens);
  write_params(sink, &request->params);
  put_uint(sink, request->pooling);
  put_int(sink, request->num_images);
  put_int(sink, request->second_text);
  put_ids(sink, request->shown_ids, request->num_shown_ids);
  put_int(sink, request->priority);
  put_fixed_64(sink, request->tenant);
  if (has_quota) put_uint(sink, quota_weight(request->quota));
  if (has_quota) put_int(sink, quota_max_running(request->quota));
  put_fixed_64(sink, request->salt);
  put_fixed_64(sink, request->base_salt);
  put_int(sink, request->adapter);
  put_string(sink, request->adapter > 0 ? request->adapter_dir : NULL);
  put_uint(sink, request->arrival_ns);
  put_uint(sink, constraint_of(request));
  put_uint(sink, (uint64_t)stop_set_count(request->stops));
  for (int i = 0; i < stop_set_count(request->stops); i++) {
    size_t length;
    const char *text = stop_set_string(request->stops, i, &length);
    put_text(sink, text, length);
  }
}

/* ---- reading ---- */

static const int32_t *take_ids(byte_source_t *source, arena_t *arena, int32_t *count) {
  *count = take_count(source);
  int32_t *ids = arena_alloc(arena, (size_t)*count, sizeof *ids);
  source->failed = source->failed || ids == NULL;
  for (int32_t i = 0; i < *count && !source->failed; i++) ids[i] = take_int32(source);
  return ids;
}

static const char *take_string(byte_source_t *source, arena_t *arena) {
  size_t length;
  const char *text = take_text(source, &length), *copy = arena_copy(arena, text, length);
  source->failed = source->failed || copy == NULL;
  return copy;
}

static void read_lists(byte_source_t *source, arena_t *arena, sampling_params_t *params) {
  params->stop_token_ids = take_ids(source, arena, &params->num_stop_token_ids);
  params->num_logit_bias = take_count(source);
  logit_bias_t *bias = arena_calloc(arena, (size_t)params->num_logit_bias, sizeof *bias);
  source->failed = source->failed || bias == NULL;
  for (int32_t i = 0; i < params->num_logit_bias && !source->failed; i++) {
    bias[i].id = take_int32(source);
    bias[i].bias = take_float(source);
  }
  params->logit_bias = bias;
  params->allowed_ids = take_ids(source, arena, &params->num_allowed_ids);
  params->num_bad_words = take_count(source);
  token_sequence_t *words = arena_calloc(arena, (size_t)params->num_bad_words, sizeof *words);
  source->failed = source->failed || words == NULL;
  for (int32_t i = 0; i < params->num_bad_words && !source->failed; i++)
    words[i].ids = take_ids(source, arena, &words[i].count);
  params->bad_words = words;
  params->logprob_token_ids = take_ids(source, arena, &params->num_logprob_token_ids);
}

static void read_params(byte_source_t *source, arena_t *arena, sampling_params_t *params) {
#define SAMPLING(name, ...) params->name = take_float(source);
#include "engine/device/sampling.def"
  params->top_k = take_int32(source);
  params->seed = take_fixed_64(source);
  params->max_tokens = take_int32(source);
  params->min_tokens = take_int32(source);
  params->num_logprobs = take_int32(source);
  params->num_prompt_logprobs = take_int32(source);
  read_lists(source, arena, params);
  params->n = take_int32(source);
  params->best_of = take_int32(source);
  params->beam_width = take_int32(source);
  params->length_penalty = take_float(source);
  uint64_t early = take_uint(source);
  if (early > EARLY_STOPPING_NEVER) source->failed = true;
  params->early_stopping = source->failed ? EARLY_STOPPING_OFF : (early_stopping_t)early;
}

static bool is_finite(const sampling_params_t *params) {
  double sum = params->length_penalty;
#define SAMPLING(name, ...) sum += params->name;
#include "engine/device/sampling.def"
  for (int32_t i = 0; i < params->num_logit_bias; i++) sum += params->logit_bias[i].bias;
  return sum - sum == 0;
}

/* What the engine takes for granted, because the server has checked it. */
static bool is_sound(const kept_request_t *kept) {
  const request_t *request = &kept->request;
  const sampling_params_t *params = &request->params;
  enum { CHOICES_MAX = 1 << 16 };
  bool sound = request->num_prompt_tokens >= 1 && params->max_tokens >= 0 &&
               params->min_tokens >= 0 && params->min_tokens <= params->max_tokens &&
               params->n >= 0 && params->n <= CHOICES_MAX && params->best_of >= 0 &&
               params->best_of <= CHOICES_MAX && params->beam_width >= 0 &&
               params->beam_width <= CHOICES_MAX && params->num_logprobs >= -1 &&
               params->num_prompt_logprobs >= -1 && params->top_k >= 0 &&
               params->num_stop_token_ids <= STOP_TOKEN_IDS_MAX &&
               params->num_logit_bias <= LOGIT_BIAS_MAX && params->num_bad_words <= BAD_WORDS_MAX &&
               params->num_logprob_token_ids <= LOGPROB_TOKEN_IDS_MAX && request->adapter >= 0;
  for (int32_t i = 0; i < params->num_bad_words; i++)
    sound = sound && params->bad_words[i].count >= 1;
  for (int i = 0; i < kept->num_stops; i++) sound = sound && kept->stop_lengths[i] > 0;
  return sound && is_finite(params);
}

static void read_quota(byte_source_t *source, kept_request_t *out) {
  uint64_t weight = take_uint(source);
  int32_t running = take_int32(source);
  if (weight > INT32_MAX) source->failed = true;
  atomic_store(&out->quota.weight, source->failed ? 1 : (int)weight);
  atomic_store(&out->quota.max_running, running);
}

bool request_read(const uint8_t *bytes, size_t length, arena_t *arena, kept_request_t *out) {
  byte_source_t whole = {.at = bytes, .end = bytes + length}, *source = &whole;
  request_t *request = &out->request;
  request->id = take_uint(source);
  request->name = take_string(source, arena);
  uint64_t flags = take_uint(source);
  request->skip_special_tokens = (flags & SKIPS_SPECIAL) != 0;
  request->include_stop_string = (flags & INCLUDES_STOP) != 0;
  request->prompt_ids = take_ids(source, arena, &request->num_prompt_tokens);
  read_params(source, arena, &request->params);
  request->params.ignore_eos = (flags & IGNORES_EOS) != 0;
  request->best_effort = (flags & BEST_EFFORT) != 0;
  out->has_source = (flags & HAS_SOURCE) != 0;
  out->has_rows = (flags & HAS_ROWS) != 0;
  uint64_t pooling = take_uint(source);
  if (pooling > POOLING_EACH) source->failed = true;
  request->pooling = source->failed ? POOLING_NONE : (pooling_t)pooling;
  out->num_images = take_int32(source);
  request->second_text = take_int32(source);
  request->shown_ids = take_ids(source, arena, &request->num_shown_ids);
  request->priority = take_int(source);
  request->tenant = take_fixed_64(source);
  if ((flags & HAS_QUOTA) != 0) read_quota(source, out);
  if ((flags & HAS_QUOTA) != 0) request->quota = &out->quota;
  request->salt = take_fixed_64(source);
  request->base_salt = take_fixed_64(source);
  request->adapter = take_int32(source);
  request->adapter_dir = take_string(source, arena);
  request->arrival_ns = take_uint(source);
  out->constraint = take_uint(source);
  int32_t count = take_count(source);
  if (count > STOP_STRINGS_MAX) source->failed = true;
  for (int32_t i = 0; i < count && !source->failed; i++) {
    const char *text = take_text(source, &out->stop_lengths[i]);
    out->stops[i] = arena_copy(arena, text, out->stop_lengths[i]);
    source->failed = source->failed || out->stops[i] == NULL;
  }
  out->num_stops = source->failed ? 0 : count;
  return !source->failed && source->at == source->end && is_sound(out);
}
