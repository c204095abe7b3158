/* params.c: the table of the fields of POST /v1/completions, and the rules between fields.
 *
 * Stage 2 of 9, first half: JSON -> checked parameters. Runs on the loop thread or in libuv's pool;
 * keeps no state. The rows are in completion_fields.def. A refused field becomes
 * an accepted one when it is implemented; it is never just ignored. The readers of structured
 * fields are in params_read.c. Next: server/completion/prompt.c.
 */
#include "server/fields/params_read.h"

#include "engine/base/util.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const field_t rows[] = {
#include "server/fields/completion_fields.def"
};

const field_table_t params_table = {rows, ARRAY_LEN(rows), NULL};

static void apply_defaults(params_t *params, const field_table_t *table,
                           const params_defaults_t *defaults) {
  memset(params, 0, sizeof *params);
  fields_default(table, params);
  params->prompt_logprobs = ABSENT;
  params->stream_interval = defaults->stream_interval;
  params->tokens_as_ids = defaults->tokens_as_ids;
  params->return_token_ids = defaults->return_token_ids;
  const engine_info_t *model = defaults->model;
  if (model == NULL) return;
  if (!isnan(model->temperature)) params->temperature = model->temperature;
  if (!isnan(model->top_p)) params->top_p = model->top_p;
  if (!isnan(model->min_p)) params->min_p = model->min_p;
  if (!isnan(model->repetition_penalty)) params->repetition_penalty = model->repetition_penalty;
  if (model->top_k >= 0) params->top_k = model->top_k;
  if (model->source == NULL) return;
  params->temperature = 0; /* what such models make of a text is not drawn, unless told */
  params->length_penalty = model->source->length_penalty;
  params->early_stopping = (early_stopping_t)model->source->early_stopping;
}

/* The beams that the files of a model with an encoder ask for, where the request says nothing that
 * speaks of another way to choose tokens. */
static void apply_beams(params_t *params, const engine_info_t *model, const json_t *root) {
  static const char *const others[] = {"use_beam_search",
                                       "best_of",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "logit_bias",
                                       "bad_words",
                                       "allowed_token_ids",
                                       "seed",
                                       "logprob_token_ids"};
  if (model == NULL || model->source == NULL || model->source->num_beams < 2) return;
  const int32_t beams =
      MIN(MIN(model->source->num_beams, model->max_num_seqs), (int32_t)BEAM_WIDTH_MAX);
  if (params->stream || params->constraint.param != NULL || params->n > beams) return;
  for (size_t i = 0; i < ARRAY_LEN(others); i++)
    if (json_is_given(json_get(root, others[i]))) return;
  params->use_beam_search = true;
  params->best_of = beams;
}

void params_default(params_t *params, const params_defaults_t *defaults) {
  apply_defaults(params, &params_table, defaults);
}

/* Refuses fields that beam search does not use, unless their value changes nothing. */
static int check_beams(const params_t *params, const json_t *root, inferd_error_t *error) {
  static const struct {
    const char *name;
    double noop, other;
  } fields[] = {
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  {#name, noop, noop},
#include "engine/device/sampling.def"
      {"top_k", 0, -1},    {"logit_bias", 0, 0},        {"allowed_token_ids", 0, 0},
      {"bad_words", 0, 0}, {"logprob_token_ids", 0, 0},
  };
  if (!params->use_beam_search) return 0;
  if (params->stream) {
    return error_set(error, ERR_INVALID_VALUE, "stream",
                     "Beam search ends all its choices at once: 'stream' is not possible.");
  }
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    const json_t *value = json_get(root, fields[i].name);
    double number;
    if (!json_is_given(value)) continue;
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
  const json_t *given = is_chat ? NULL : json_get(root, "prompt_embeds");
  if (json_is_given(given)) params->prompt_embeds = given;
  int code = fields_read(table, reader, root);
  if (code == 0) code = params_take_rows(params, reader);
  if (code != 0) return code;
  const json_t *limit = json_get(root, "max_completion_tokens");
  if (!json_is_given(limit)) limit = json_get(root, "max_tokens");
  params->no_limit = json_is_given(limit) && params_max_tokens(params) == ABSENT;
  if (!params->include_usage) params->continuous_usage = false; /* without effect, as in vLLM */
  if (params->stream && defaults->force_include_usage) {
    params->include_usage = params->continuous_usage = true;
  }
  if (is_chat) {
    code = params_read_chat(params, reader->error);
    if (code == 0) code = params_keep_allowed(&params->chat, reader);
    if (code != 0) return code;
    params->prompts = arena_calloc(reader->arena, 1, sizeof *params->prompts);
    if (params->prompts == NULL) return field_no_memory(reader);
    params->num_prompts = 1;
  }
  /* Named ids take the place of the most likely ones, as in vLLM. */
  if (params->logprob_token_ids.count > 0 && params->logprobs != ABSENT) params->logprobs = 0;
  if (params->num_prompts == 0) return params_fail_empty("prompt", reader->error);
  apply_beams(params, defaults->model, root);
  return check_beams(params, root, reader->error);
}

const char *params_prompt_name(const params_t *params) {
  if (params->pairs.wanted) return params->pairs.documents.name;
  return params->is_chat ? "messages" : params->embedding.wanted ? "input" : "prompt";
}

const char *params_place(const params_t *params, int32_t index, char *out) {
  const pair_params_t *pairs = &params->pairs;
  const char *name = params_prompt_name(params);
  bool is_list = params->num_prompts > 1;
  if (pairs->wanted) {
    const pair_side_t *side = &pairs->documents;
    int32_t queries = pairs->cosine ? pairs->queries.count : 0;
    if (index < queries) side = &pairs->queries;
    index -= index < queries ? 0 : queries;
    is_list = side->is_list;
    name = side->name;
  }
  snprintf(out, PLACE_BYTES_MAX, is_list ? "%.24s[%" PRId32 "]" : "%.24s", name, index);
  return out;
}

bool params_echoes_scores(const params_t *params) {
  return params->echo && params->logprobs != ABSENT && !params->is_chat;
}

int64_t params_max_tokens(const params_t *params) {
  if (params->max_completion_tokens != ABSENT) return params->max_completion_tokens;
  return params->max_tokens;
}

static int fail_cross(inferd_error_t *error, const char *param, const char *message) {
  return error_set(error, ERR_INVALID_VALUE, param, "%s", message);
}

int params_fail_min_tokens(const params_t *params, int64_t max_tokens, inferd_error_t *error) {
  return error_set(error, ERR_INVALID_VALUE, "min_tokens",
                   "'min_tokens' is %lld; it must be less than or equal to 'max_tokens', which is "
                   "%lld.",
                   (long long)params->min_tokens, (long long)max_tokens);
}

static int check_choices(const params_t *params, inferd_error_t *error) {
  int64_t best_of = params->best_of == 0 ? params->n : params->best_of;
  if (best_of < params->n) {
    return error_set(error, ERR_INVALID_VALUE, "best_of",
                     "'best_of' is %lld; it must be greater than or equal to 'n', which is %lld.",
                     (long long)best_of, (long long)params->n);
  }
  if (params->stream && best_of != params->n) {
    return fail_cross(error, "best_of", "'best_of' must be equal to 'n' when 'stream' is true.");
  }
  if (params->use_beam_search && best_of > BEAM_WIDTH_MAX) {
    return error_set(error, ERR_ABOVE_MAX, params->best_of == 0 ? "n" : "best_of",
                     "Beam search keeps at most %d beams; the request asks for %lld.",
                     BEAM_WIDTH_MAX, (long long)best_of);
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

static int check_constraint(const params_t *params, inferd_error_t *error) {
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

/* What is done with the text, or the ids, of a prompt. */
static int check_rows(const params_t *params, inferd_error_t *error) {
  const struct {
    bool given;
    const char *name;
  } fields[] = {{params->echo, "echo"},
                {params->prompt_logprobs != ABSENT, "prompt_logprobs"},
                {params_fills_in(params), "suffix"},
                {params->truncate_prompt_tokens != NOT_TRUNCATED, "truncate_prompt_tokens"}};
  if (params->num_row_prompts == 0) return 0;
  for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
    if (!fields[i].given) continue;
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, fields[i].name,
                     "The parameter '%s' is not supported together with 'prompt_embeds', which are "
                     "no tokens.",
                     fields[i].name);
  }
  return 0;
}

static int check_suffix(const params_t *params, inferd_error_t *error) {
  if (!params_fills_in(params)) return 0;
  if (params->echo) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "suffix",
                     "The parameter 'suffix' is not supported together with 'echo'.");
  }
  if (params->truncate_prompt_tokens == NOT_TRUNCATED) return 0;
  return error_set(error, ERR_UNSUPPORTED_PARAMETER, "suffix",
                   "The parameter 'suffix' is not supported together with "
                   "'truncate_prompt_tokens'.");
}

static int check_streaming(const params_t *params, inferd_error_t *error) {
  if (params->stream_options_given && !params->stream) {
    return fail_cross(error, "stream_options",
                      "Stream options can only be defined when `stream=True`.");
  }
  if (params->stream && params->prompt_logprobs > 0) {
    return fail_cross(error, "prompt_logprobs",
                      "'prompt_logprobs' are not available when 'stream' is true.");
  }
  return 0;
}

static int check_special_ids(const params_t *params, const field_limits_t *limits,
                             inferd_error_t *error) {
  const bool denies = limits->deny_special_ids;
  for (int32_t i = -1; denies && i < params->num_prompts; i++) {
    const prompt_t *prompt = i < 0 ? &params->decoder_prompt : &params->prompts[i];
    for (int32_t j = 0; j < prompt->count; j++) {
      if ((tokenizer_flags(limits->tokenizer, prompt->ids[j]) & TOKEN_SPECIAL) == 0) continue;
      return error_set(error, ERR_INVALID_VALUE,
                       i < 0 ? "decoder_prompt" : params_prompt_name(params),
                       "Token id %d is a special token, which this server does not accept in "
                       "prompts.",
                       (int)prompt->ids[j]);
    }
  }
  return 0;
}

int params_check(const params_t *params, const field_limits_t *limits, inferd_error_t *error) {
  if (params->embedding.wanted) return check_special_ids(params, limits, error);
  const int rows_code = check_rows(params, error);
  if (rows_code != 0) return rows_code;
  int64_t max_tokens = params_max_tokens(params);
  const char *max_name =
      params->max_completion_tokens != ABSENT ? "max_completion_tokens" : "max_tokens";
  if (max_tokens == 0 && (!params->echo || params->is_chat)) {
    return field_fail_limit(error, max_name, 0);
  }
  if (max_tokens != ABSENT && params->min_tokens > max_tokens) {
    return params_fail_min_tokens(params, max_tokens, error);
  }
  if (params->logprob_token_ids.count > 0 && params->logprobs == ABSENT) {
    return fail_cross(error, "logprob_token_ids", "'logprob_token_ids' needs 'logprobs'.");
  }
  int code = check_special_ids(params, limits, error);
  if (code == 0) code = check_choices(params, error);
  if (code == 0) code = check_constraint(params, error);
  if (code == 0) code = closed_check_tools(params, limits, error);
  if (code == 0) code = check_suffix(params, error);
  if (code == 0) code = check_streaming(params, error);
  return code == 0 && params->is_chat ? params_check_chat(params, error) : code;
}
