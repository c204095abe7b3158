/* params.c: the table of every field of POST /v1/completions, and the rules between fields.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Runs on the loop thread or in libuv's pool;
 * keeps no state. A field leaves the refused rows when it is implemented, never by being ignored.
 * The readers of structured fields are in params_read.c. Next: server/completion/prompt.c.
 */
#include "server/fields/params_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SAY_MAX_TOKENS "; use 'max_tokens'"
#define SAY_MIN_TOKENS "; use 'min_tokens' and 'max_tokens'"
#define SAY_CHAT " here; use /v1/chat/completions"
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
    STRING("suffix", suffix, 0, ANY_COUNT),
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
    BOOLEAN("use_beam_search", use_beam_search, 0),
    NUMBER("length_penalty", length_penalty, 0, -10, 10, 1),
    CUSTOM("early_stopping", read_early_stopping),
    BOOLEAN("return_token_ids", return_token_ids, 0),
    BOOLEAN("return_tokens_as_token_ids", tokens_as_ids, 0),
    STRING("cache_salt", cache_salt, 1, 128),
    INTEGER_FLAGS("priority", priority, FIELD_WHOLE_INT64, 0, 0, 0),
    CUSTOM("request_id", read_request_id),
    INTEGER("stream_interval", stream_interval, 1, ANY_COUNT, 1),
    /* what the output must look like, in OpenAI's words, vLLM's, llama.cpp's and SGLang's */
    CUSTOM("response_format", read_response_format),
    CUSTOM("structured_outputs", read_structured_outputs),
    CUSTOM("guided_json", read_schema),
    CUSTOM("guided_regex", read_regex),
    CUSTOM("guided_choice", read_choice),
    CUSTOM("guided_grammar", read_grammar),
    CUSTOM("json_schema", read_schema),
    CUSTOM("regex", read_regex),
    CUSTOM("grammar", read_grammar),
    CUSTOM("ebnf", read_grammar),
    /* known, output-changing, not implemented */
    REFUSED("guided_decoding_backend", 0, NULL),
    REFUSED("guided_whitespace_pattern", 0, NULL),
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
    /* of chat */
    REFUSED("messages", NOOP_EMPTY, SAY_CHAT),
    REFUSED("tools", NOOP_EMPTY, SAY_CHAT),
    REFUSED("functions", NOOP_EMPTY, SAY_CHAT),
    REFUSED("top_logprobs", 0, "; use 'logprobs'"),
    REFUSED("chat_template", 0, SAY_CHAT),
    REFUSED("chat_template_kwargs", NOOP_EMPTY, SAY_CHAT),
    REFUSED("reasoning_effort", 0, SAY_CHAT),
    REFUSED("include_reasoning", 0, SAY_CHAT),
    REFUSED("tool_choice", 0, SAY_CHAT),
    REFUSED("parallel_tool_calls", 0, SAY_CHAT),
    REFUSED("function_call", 0, SAY_CHAT),
    REFUSED("add_generation_prompt", 0, SAY_CHAT),
    REFUSED("continue_final_message", NOOP_FALSE, SAY_CHAT),
    REFUSED("documents", NOOP_EMPTY, SAY_CHAT),
    REFUSED("modalities", NOOP_EMPTY, SAY_CHAT),
    REFUSED("verbosity", 0, SAY_CHAT),
    /* of OpenAI's chat alone */
    REFUSED("audio", 0, NULL),
    REFUSED("prediction", 0, NULL),
    REFUSED("web_search_options", 0, NULL),
    REFUSED("moderation", 0, NULL),
    REFUSED("mm_processor_kwargs", NOOP_EMPTY, NULL),
    REFUSED("media_io_kwargs", NOOP_EMPTY, NULL),
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

const field_table_t params_table = {rows, sizeof rows / sizeof rows[0], NULL};

static void apply_defaults(params_t *params, const field_table_t *table,
                           const params_defaults_t *defaults) {
  memset(params, 0, sizeof *params);
  fields_default(table, params);
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

/* Fields that beam search has no use for, and the values that say so. */
static int check_beams(const params_t *params, const json_t *root, error_t *error) {
  static const struct {
    const char *name;
    double noop, other;
  } fields[] = {
      {"temperature", 0, 0},
      {"top_p", 1, 1},
      {"top_k", 0, -1},
      {"min_p", 0, 0},
      {"presence_penalty", 0, 0},
      {"frequency_penalty", 0, 0},
      {"repetition_penalty", 1, 1},
      {"logit_bias", 0, 0},
      {"allowed_token_ids", 0, 0},
      {"bad_words", 0, 0},
      {"logprob_token_ids", 0, 0},
  };
  if (!params->use_beam_search) return 0;
  if (params->stream) {
    return error_set(error, ERR_INVALID_VALUE, "stream",
                     "Beam search ends all its choices at once: 'stream' is not possible.");
  }
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    const json_t *value = json_get(root, fields[i].name);
    double number;
    if (value == NULL || value->type == JSON_NULL) continue;
    if (value->type != JSON_NUMBER && value->count == 0) continue;
    bool noop = value->type == JSON_NUMBER && json_double(value, &number) &&
                (number == fields[i].noop || number == fields[i].other);
    if (noop) continue;
    return error_set(error, ERR_INVALID_VALUE, fields[i].name,
                     "'%s' has no meaning in beam search, which draws nothing.", fields[i].name);
  }
  return 0;
}

int params_read(params_t *params, bool is_chat, const params_defaults_t *defaults, reader_t *reader,
                const json_t *root) {
  const field_table_t *table = is_chat ? &chat_table : &params_table;
  apply_defaults(params, table, defaults);
  params->is_chat = is_chat;
  reader->out = params;
  int code = fields_read(table, reader, root);
  if (code != 0) return code;
  if (params->stream && defaults->force_include_usage) {
    params->include_usage = params->continuous_usage = true;
  }
  if (is_chat) {
    code = params_read_chat(params, reader->error);
    if (code != 0) return code;
    params->prompts = arena_alloc(reader->arena, 1, sizeof *params->prompts);
    if (params->prompts == NULL) return field_no_memory(reader);
    params->num_prompts = 1;
  }
  if (params->num_prompts == 0) return params_fail_empty(reader->error);
  return check_beams(params, root, reader->error);
}

const char *params_prompt_name(const params_t *params) {
  return params->is_chat ? "messages" : "prompt";
}

bool params_echoes_scores(const params_t *params) {
  return params->echo && params->logprobs != ABSENT && !params->is_chat;
}

int64_t params_max_tokens(const params_t *params) {
  if (params->max_completion_tokens != ABSENT) return params->max_completion_tokens;
  return params->max_tokens;
}

static int fail_cross(error_t *error, const char *param, const char *message) {
  return error_set(error, ERR_INVALID_VALUE, param, "%s", message);
}

static int check_choices(const params_t *params, error_t *error) {
  int64_t best_of = params->best_of == 0 ? params->n : params->best_of;
  if (best_of < params->n) {
    return fail_cross(error, "best_of", "'best_of' must be greater than or equal to 'n'.");
  }
  if (params->stream && best_of != params->n) {
    return fail_cross(error, "best_of", "'best_of' must be equal to 'n' when 'stream' is true.");
  }
  if (params->use_beam_search && best_of > BEAM_WIDTH_MAX) {
    return error_set(error, ERR_ABOVE_MAX, params->best_of == 0 ? "n" : "best_of",
                     "Beam search keeps at most %d beams.", BEAM_WIDTH_MAX);
  }
  if (best_of * params->num_prompts > SEQUENCES_MAX) {
    return error_set(error, ERR_INVALID_VALUE, params->best_of == 0 ? "n" : "best_of",
                     "Too many sequences: prompts times the larger of 'n' and 'best_of' may be at "
                     "most %d.",
                     SEQUENCES_MAX);
  }
  if (params_max_tokens(params) == 0 && best_of > 1) {
    return fail_cross(error, params->best_of == 0 ? "n" : "best_of",
                      "More than one choice needs 'max_tokens' >= 1.");
  }
  return 0;
}

static int check_constraint(const params_t *params, error_t *error) {
  const char *param = params->constraint.param;
  if (param == NULL) return 0;
  if (params->use_beam_search) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "use_beam_search",
                     "Beam search together with '%s' is not supported.", param);
  }
  if (params_max_tokens(params) == 0) {
    return error_set(error, ERR_INVALID_VALUE, param, "'%s' needs 'max_tokens' >= 1.", param);
  }
  return 0;
}

bool params_fills_in(const params_t *params) {
  return params->suffix != NULL && params->suffix->length > 0;
}

static int check_suffix(const params_t *params, error_t *error) {
  if (!params_fills_in(params)) return 0;
  if (params->echo) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "suffix",
                     "The parameter 'suffix' is not supported together with 'echo'.");
  }
  if (params->truncate_prompt_tokens == -2) return 0;
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, "suffix",
                   "The parameter 'suffix' is not supported together with "
                   "'truncate_prompt_tokens'.");
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
  if (max_tokens == 0 && (!params->echo || params->is_chat)) {
    return error_set(error, ERR_BELOW_MIN, max_name,
                     "Invalid '%s': integer below minimum value. Expected a value >= 1%s.",
                     max_name, params->is_chat ? "" : ", or 0 together with 'echo'");
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
  int code = check_choices(params, error);
  if (code == 0) code = check_constraint(params, error);
  if (code == 0) code = check_suffix(params, error);
  if (code == 0) code = check_streaming(params, error);
  return code == 0 && params->is_chat ? params_check_chat(params, error) : code;
}
