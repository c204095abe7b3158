/* params.c: the table of every field of POST /v1/completions, and the rules between fields.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Runs on the loop thread or in libuv's pool;
 * keeps no state. A field leaves the refused rows when it is implemented, never by being ignored.
 * The readers of structured fields are in params_read.c. Next: server/api_completion_prompt.c.
 */
#include "server/params_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(params_t, member)
#define ANY_COUNT 0x1p53 /* what does not fit is found out by the rules on lengths */

#define BOOLEAN(name, member, fallback)                                                            \
  { name, FIELD_BOOL, 0, AT(member), 0, 0, fallback, 0, 0 }
#define INTEGER(name, member, min, max, fallback)                                                  \
  { name, FIELD_INT, 0, AT(member), min, max, fallback, 0, 0 }
#define INTEGER_FLAGS(name, member, flags, min, max, fallback)                                     \
  { name, FIELD_INT, flags, AT(member), min, max, fallback, 0, 0 }
#define NUMBER(name, member, flags, min, max, fallback)                                            \
  { name, FIELD_NUMBER, flags, AT(member), min, max, fallback, 0, 0 }
#define STRING(name, member, min, max)                                                             \
  { name, FIELD_STRING, 0, AT(member), min, max, 0, 0, 0 }
#define IDS(name, member, min, max)                                                                \
  { name, FIELD_IDS, 0, AT(member), min, max, 0, 0, 0 }
#define CUSTOM(name, reader)                                                                       \
  { name, FIELD_CUSTOM, 0, 0, 0, 0, 0, reader, 0 }
#define REFUSED(name, noop, hint)                                                                  \
  { name, FIELD_REFUSED, noop, 0, 0, 0, 0, 0, hint }
#define REFUSED_UNLESS(name, value, other, hint)                                                   \
  { name, FIELD_REFUSED, NOOP_NUMBERS, 0, value, other, 0, 0, hint }
#define IGNORED(name, max)                                                                         \
  { name, FIELD_IGNORED, 0, 0, 0, max, 0, read_ignored_string, 0 }
#define IGNORED_ANY(name)                                                                          \
  { name, FIELD_IGNORED, 0, 0, 0, 0, 0, 0, 0 }

#define SAY_MAX_TOKENS "; use 'max_tokens'"
#define SAY_MIN_TOKENS "; use 'min_tokens' and 'max_tokens'"
#define SAY_LOGPROBS "; use 'logprobs'"

static const field_t rows[] = {
    /* OpenAI's fields */
    STRING("model", model, 0, 256),
    CUSTOM("prompt", read_prompt),
    INTEGER("max_tokens", max_tokens, 0, ANY_COUNT, ABSENT),
    INTEGER("max_completion_tokens", max_completion_tokens, 0, ANY_COUNT, ABSENT),
    INTEGER("n", n, 1, 128, 1),
    INTEGER("best_of", best_of, 0, 20, 0),
    NUMBER("temperature", temperature, 0, 0, 2, 1),
    NUMBER("top_p", top_p, FIELD_OPEN_MIN, 0, 1, 1),
    NUMBER("presence_penalty", presence_penalty, 0, -2, 2, 0),
    NUMBER("frequency_penalty", frequency_penalty, 0, -2, 2, 0),
    CUSTOM("logit_bias", read_logit_bias),
    INTEGER_FLAGS("logprobs", logprobs, FIELD_MAX_LOGPROBS, 0, 0, ABSENT),
    BOOLEAN("echo", echo, 0),
    CUSTOM("stop", read_stop),
    BOOLEAN("stream", stream, 0),
    CUSTOM("stream_options", read_stream_options),
    CUSTOM("seed", read_seed),
    REFUSED("suffix", NOOP_EMPTY, " yet: this model has no fill-in-the-middle support here"),
    IGNORED("user", 256),
    /* extensions */
    INTEGER("top_k", top_k, -1, ANY_COUNT, 0),
    NUMBER("min_p", min_p, 0, 0, 1, 0),
    NUMBER("repetition_penalty", repetition_penalty, FIELD_OPEN_MIN, 0, 10, 1),
    INTEGER("min_tokens", min_tokens, 0, ANY_COUNT, 0),
    IDS("stop_token_ids", stop_token_ids, 0, STOP_TOKEN_IDS_MAX),
    BOOLEAN("include_stop_str_in_output", include_stop_string, 0),
    BOOLEAN("ignore_eos", ignore_eos, 0),
    BOOLEAN("skip_special_tokens", skip_special_tokens, 1),
    BOOLEAN("add_special_tokens", add_special_tokens, 1),
    INTEGER("truncate_prompt_tokens", truncate_prompt_tokens, -1, ANY_COUNT, -2),
    CUSTOM("truncation_side", read_truncation_side),
    CUSTOM("allowed_token_ids", read_allowed_ids),
    CUSTOM("bad_words", read_bad_words),
    CUSTOM("prompt_logprobs", read_prompt_logprobs),
    IDS("logprob_token_ids", logprob_token_ids, 0, LOGPROB_TOKEN_IDS_MAX),
    REFUSED("use_beam_search", NOOP_FALSE, " yet"),
    NUMBER("length_penalty", length_penalty, 0, -10, 10, 1),
    CUSTOM("early_stopping", read_early_stopping),
    BOOLEAN("return_token_ids", return_token_ids, 0),
    BOOLEAN("return_tokens_as_token_ids", tokens_as_ids, 0),
    STRING("cache_salt", cache_salt, 1, 128),
    INTEGER_FLAGS("priority", priority, FIELD_WHOLE_INT64, 0, 0, 0),
    CUSTOM("request_id", read_request_id),
    INTEGER("stream_interval", stream_interval, 1, ANY_COUNT, 1),
    /* known, output-changing, not implemented */
    REFUSED("response_format", NOOP_TEXT_FORMAT, " yet, except for {\"type\":\"text\"}"),
    REFUSED("structured_outputs", NOOP_EMPTY, NULL),
    REFUSED("guided_json", 0, NULL),
    REFUSED("guided_regex", 0, NULL),
    REFUSED("guided_choice", 0, NULL),
    REFUSED("guided_grammar", 0, NULL),
    REFUSED("guided_decoding_backend", 0, NULL),
    REFUSED("guided_whitespace_pattern", 0, NULL),
    REFUSED("grammar", NOOP_EMPTY, NULL),
    REFUSED("json_schema", 0, NULL),
    REFUSED("regex", 0, NULL),
    REFUSED("ebnf", 0, NULL),
    REFUSED("prompt_embeds", 0, NULL),
    REFUSED("kv_transfer_params", NOOP_EMPTY, NULL),
    REFUSED("ec_transfer_params", NOOP_EMPTY, NULL),
    REFUSED("repetition_detection", 0, NULL),
    REFUSED("thinking_token_budget", 0, NULL),
    REFUSED("logits_processors", NOOP_EMPTY, NULL),
    REFUSED("vllm_xargs", NOOP_EMPTY, NULL),
    REFUSED_UNLESS("typical_p", 1, 1, NULL),
    REFUSED_UNLESS("tfs_z", 1, 1, NULL),
    REFUSED_UNLESS("top_a", 0, 0, NULL),
    REFUSED_UNLESS("top_n_sigma", 0, -1, NULL),
    REFUSED_UNLESS("mirostat", 0, 0, NULL),
    REFUSED_UNLESS("mirostat_tau", 5, 5, NULL), /* llama.cpp's defaults, as its clients send them */
    REFUSED_UNLESS("mirostat_eta", 0.1, 0.1, NULL),
    REFUSED_UNLESS("dynatemp_range", 0, 0, NULL),
    REFUSED_UNLESS("dynatemp_exponent", 1, 1, NULL),
    REFUSED_UNLESS("xtc_probability", 0, 0, NULL),
    REFUSED_UNLESS("xtc_threshold", 0.1, 0.1, NULL),
    REFUSED_UNLESS("dry_multiplier", 0, 0, NULL),
    REFUSED_UNLESS("dry_base", 1.75, 1.75, NULL),
    REFUSED_UNLESS("dry_allowed_length", 2, 2, NULL),
    REFUSED_UNLESS("dry_penalty_last_n", -1, 0, NULL),
    {"mirostat", FIELD_REFUSED, FIELD_PREFIX, 0, 0, 0, 0, 0, 0},
    {"dynatemp_", FIELD_REFUSED, FIELD_PREFIX, 0, 0, 0, 0, 0, 0},
    {"xtc_", FIELD_REFUSED, FIELD_PREFIX, 0, 0, 0, 0, 0, 0},
    {"dry_", FIELD_REFUSED, FIELD_PREFIX | NOOP_EMPTY, 0, 0, 0, 0, 0, 0},
    REFUSED("samplers", NOOP_EMPTY, NULL),
    REFUSED_UNLESS("n_probs", 0, 0, SAY_LOGPROBS),
    REFUSED_UNLESS("n_keep", 0, 0, NULL),
    REFUSED("n_predict", 0, SAY_MAX_TOKENS),
    REFUSED("max_new_tokens", 0, SAY_MAX_TOKENS),
    REFUSED("min_new_tokens", 0, SAY_MIN_TOKENS),
    REFUSED("lora", NOOP_EMPTY, NULL),
    REFUSED("adapter_id", NOOP_EMPTY, NULL),
    REFUSED("watermark", NOOP_FALSE, NULL),
    REFUSED_UNLESS("top_n_tokens", 0, 0, SAY_LOGPROBS),
    REFUSED("routed_experts_prompt_start", 0, NULL),
    REFUSED("return_token_offsets", NOOP_FALSE, NULL),
    /* known and harmless */
    {"metadata", FIELD_IGNORED, 0, 0, 0, 0, 0, read_metadata, 0},
    IGNORED_ANY("store"),
    IGNORED_ANY("service_tier"),
    IGNORED("safety_identifier", 64),
    IGNORED("prompt_cache_key", 256),
    IGNORED_ANY("prompt_cache_retention"),
    IGNORED_ANY("session_id"),
    IGNORED_ANY("spaces_between_special_tokens"),
    IGNORED_ANY("cache_prompt"),
    IGNORED_ANY("id_slot"),
    IGNORED_ANY("timings_per_token"),
};

const field_table_t params_table = {rows, sizeof rows / sizeof rows[0]};

static void apply_defaults(params_t *params, const params_defaults_t *defaults) {
  memset(params, 0, sizeof *params);
  fields_default(&params_table, params);
  params->prompt_logprobs = ABSENT;
  params->stream_interval = defaults->stream_interval;
  params->tokens_as_ids = defaults->tokens_as_ids;
  const engine_info_t *model = defaults->model;
  if (model == NULL) return;
  if (!isnan(model->temperature)) params->temperature = model->temperature;
  if (!isnan(model->top_p)) params->top_p = model->top_p;
  if (!isnan(model->min_p)) params->min_p = model->min_p;
  if (!isnan(model->repetition_penalty)) params->repetition_penalty = model->repetition_penalty;
  if (model->top_k >= 0) params->top_k = model->top_k;
}

int params_read(params_t *params, const params_defaults_t *defaults, reader_t *reader,
                const json_t *root) {
  apply_defaults(params, defaults);
  reader->out = params;
  int code = fields_read(&params_table, reader, root);
  if (code != 0) return code;
  if (params->stream && defaults->force_include_usage) {
    params->include_usage = params->continuous_usage = true;
  }
  if (params->num_prompts == 0) return params_fail_empty(reader->error);
  return 0;
}

int64_t params_max_tokens(const params_t *params) {
  if (params->max_completion_tokens != ABSENT) return params->max_completion_tokens;
  return params->max_tokens;
}

static int fail_cross(error_t *error, const char *param, const char *message) {
  return error_set(error, ERR_INVALID_VALUE, param, "%s", message);
}

/* n, best_of and beams need forked sequences; until then they are refused, not ignored. */
static int check_forks(const params_t *params, error_t *error) {
  int64_t best_of = params->best_of == 0 ? params->n : params->best_of;
  if (best_of < params->n) {
    return fail_cross(error, "best_of", "'best_of' must be greater than or equal to 'n'.");
  }
  if (params->stream && best_of != params->n) {
    return fail_cross(error, "best_of", "'best_of' must be equal to 'n' when 'stream' is true.");
  }
  if (params->n > 1) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "n",
                     "More than one choice per prompt ('n' > 1) is not supported yet.");
  }
  if (best_of > 1) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "best_of",
                     "'best_of' > 1 is not supported yet.");
  }
  return 0;
}

static int check_streaming(const params_t *params, error_t *error) {
  if (params->stream_options_given && !params->stream) {
    return fail_cross(error, "stream_options",
                      "Stream options can only be defined when `stream=True`.");
  }
  if (params->continuous_usage && !params->include_usage) {
    return fail_cross(error, "stream_options",
                      "'stream_options.continuous_usage_stats' needs 'include_usage'.");
  }
  if (params->stream && params->prompt_logprobs > 0) {
    return fail_cross(error, "prompt_logprobs",
                      "'prompt_logprobs' are not available when 'stream' is true.");
  }
  return 0;
}

int params_check(const params_t *params, const field_limits_t *limits, error_t *error) {
  int64_t max_tokens = params_max_tokens(params);
  const char *max_name =
      params->max_completion_tokens != ABSENT ? "max_completion_tokens" : "max_tokens";
  if (max_tokens == 0 && !params->echo) {
    return error_set(error, ERR_BELOW_MIN, max_name,
                     "Invalid '%s': integer below minimum value. Expected a value >= 1, or 0 "
                     "together with 'echo'.",
                     max_name);
  }
  if (max_tokens != ABSENT && params->min_tokens > max_tokens) {
    return fail_cross(error, "min_tokens",
                      "'min_tokens' must be less than or equal to 'max_tokens'.");
  }
  if (params->logprob_token_ids.count > 0 && params->logprobs == ABSENT) {
    return fail_cross(error, "logprob_token_ids", "'logprob_token_ids' needs 'logprobs'.");
  }
  if (limits->deny_special_ids) {
    for (int32_t i = 0; i < params->num_prompts; i++) {
      const prompt_t *prompt = &params->prompts[i];
      for (int32_t j = 0; j < prompt->count; j++) {
        if ((tokenizer_flags(limits->tokenizer, prompt->ids[j]) & TOKEN_SPECIAL) == 0) continue;
        return error_set(error, ERR_INVALID_VALUE, "prompt",
                         "Token id %d is a special token, which this server does not accept in "
                         "prompts.",
                         (int)prompt->ids[j]);
      }
    }
  }
  int code = check_forks(params, error);
  return code != 0 ? code : check_streaming(params, error);
}
