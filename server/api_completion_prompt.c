/* api_completion_prompt.c: from the body of a completion request to requests for the engine.
 *
 * Stage 2 of 9: JSON -> checked parameters, token ids, request_t. Runs in libuv's pool (small
 * bodies of token ids: on the loop thread); it has the completion alone while it runs and reads
 * nothing else but constants: configuration, model names, engine_info, the tokenizer. Next:
 * engine/mailbox.c, by way of api_completion.c.
 */
#include "server/api_completion.h"

#include "engine/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int completion_read(completion_t *completion) {
  error_t *error = &completion->error;
  completions_t *live = completion->server->live;
  reader_t reader = {.limits = &completion->limits, .arena = &completion->arena, .error = error};
  int code = json_parse(completion->body, completion->body_length, &json_limits_request,
                        &completion->doc, error);
  if (code != 0) return code;
  code =
      params_read(&completion->params, &completion->defaults, &reader, json_root(completion->doc));
  completion->num_ignored = reader.num_ignored;
  memcpy(completion->ignored, reader.ignored, sizeof completion->ignored);
  if (code != 0) return code;
  code = model_check(live, completion->server->config->any_model, completion->params.model, error);
  if (code != 0) return code;
  return params_check(&completion->params, &completion->limits, error);
}

bool completion_has_text(const completion_t *completion) {
  const params_t *params = &completion->params;
  if (params->num_bad_words > 0) return true;
  for (int32_t i = 0; i < params->num_prompts; i++) {
    if (params->prompts[i].text != NULL || params->echo) return true;
  }
  return false;
}

/* max_tokens that a prompt of `prompt_tokens` gets. Completions count 16 by default, or what is
 * left of the context. */
static int64_t effective_max_tokens(const completion_t *completion, int64_t prompt_tokens) {
  int64_t asked = params_max_tokens(&completion->params);
  int64_t left = completion->info->max_model_len - prompt_tokens;
  if (asked != ABSENT) return asked;
  return left < DEFAULT_MAX_TOKENS ? left : DEFAULT_MAX_TOKENS;
}

/* `at_least`: tokenising stopped early, so the count is a lower bound. */
static int check_length(completion_t *completion, int64_t tokens, bool at_least) {
  int64_t context = completion->info->max_model_len;
  int64_t asked = params_max_tokens(&completion->params);
  int64_t wanted = asked == ABSENT ? 1 : asked;
  if (tokens <= context && tokens + wanted <= context) return 0;
  if (asked == ABSENT) wanted = DEFAULT_MAX_TOKENS;
  const char *bound = at_least ? "at least " : "";
  return error_set(&completion->error, ERR_CONTEXT_LENGTH, "prompt",
                   "This model's maximum context length is %" PRId64 " tokens. However, you "
                   "requested %s%" PRId64 " tokens (%s%" PRId64 " in the prompt, %" PRId64
                   " in the completion). Please reduce the length of the prompt or completion.",
                   context, bound, tokens + wanted, bound, tokens, wanted);
}

/* Tokens that a prompt is cut to; 0 = it is not cut. */
static int truncation(completion_t *completion, int64_t *keep) {
  const params_t *params = &completion->params;
  *keep = 0;
  if (params->truncate_prompt_tokens == -2) return 0;
  int64_t asked = params_max_tokens(params);
  int64_t most = completion->info->max_model_len - (asked == ABSENT ? DEFAULT_MAX_TOKENS : asked);
  *keep = params->truncate_prompt_tokens == -1 ? most : params->truncate_prompt_tokens;
  if (*keep > most || most <= 0) {
    return error_set(&completion->error, ERR_ABOVE_MAX, "truncate_prompt_tokens",
                     "Invalid 'truncate_prompt_tokens': at most %" PRId64 " prompt tokens fit "
                     "beside the completion.",
                     most > 0 ? most : 0);
  }
  if (*keep == 0) return params_fail_empty(&completion->error);
  return 0;
}

static bool truncates_left(const completion_t *completion) {
  truncation_side_t side = completion->params.truncation_side;
  if (side == TRUNCATE_DEFAULT) return tokenizer_truncates_left(completion->tokenizer);
  return side == TRUNCATE_LEFT;
}

/* Cuts ids to `keep`. From the left, a BOS that the tokenizer put in front stays in front. */
static void truncate_ids(const completion_t *completion, int32_t *ids, size_t *count, int64_t keep,
                         bool from_text) {
  if (keep == 0 || *count <= (size_t)keep) return;
  size_t dropped = *count - (size_t)keep, head = 0;
  if (truncates_left(completion)) {
    int32_t bos = tokenizer_bos_id(completion->tokenizer);
    if (from_text && completion->params.add_special_tokens && bos >= 0 && ids[0] == bos) head = 1;
    memmove(ids + head, ids + head + dropped, (*count - head - dropped) * sizeof *ids);
  }
  *count = (size_t)keep;
}

static int encode(completion_t *completion, tokenizer_scratch_t *scratch, const char *text,
                  size_t length, bool special, size_t ids_max, int32_t **ids, size_t *count) {
  tokenize_options_t options = {special, ids_max, &completion->cancelled};
  return tokenizer_encode(completion->tokenizer, scratch, text, length, &options, ids, count,
                          &completion->error);
}

static int encode_prompt(completion_t *completion, tokenizer_scratch_t *scratch, choice_t *choice,
                         const prompt_t *prompt, int64_t keep) {
  size_t context = (size_t)completion->info->max_model_len;
  size_t longest = tokenizer_longest_token(completion->tokenizer);
  size_t count = 0;
  if (keep == 0 && longest > 0 && prompt->length / longest > context) {
    return error_set(&completion->error, ERR_CONTEXT_LENGTH, "prompt",
                     "This model's maximum context length is %zu tokens. However, the prompt has "
                     "%zu bytes, which cannot fit. Please reduce the length of the prompt.",
                     context, prompt->length);
  }
  uint64_t start = clock_now_ns();
  int code = encode(completion, scratch, prompt->text, prompt->length,
                    completion->params.add_special_tokens, keep == 0 ? context + 1 : 0,
                    &choice->ids, &count);
  completion->tokenize_ns += clock_now_ns() - start;
  completion->tokenize_bytes += prompt->length;
  if (code != 0) return code;
  if (keep == 0 && count > context) return check_length(completion, (int64_t)count, true);
  truncate_ids(completion, choice->ids, &count, keep, true);
  if (count > INT32_MAX) return check_length(completion, (int64_t)count, false);
  choice->request.prompt_ids = choice->ids;
  choice->request.num_prompt_tokens = (int32_t)count;
  return 0;
}

static int take_id_prompt(completion_t *completion, choice_t *choice, const prompt_t *prompt,
                          int64_t keep) {
  size_t count = (size_t)prompt->count;
  const int32_t *ids = prompt->ids;
  if (keep != 0 && count > (size_t)keep) {
    if (truncates_left(completion)) ids += count - (size_t)keep;
    count = (size_t)keep;
  }
  choice->request.prompt_ids = ids;
  choice->request.num_prompt_tokens = (int32_t)count;
  return 0;
}

/* Echo: what of the prompt stands in front of the output. */
static int take_echo(completion_t *completion, choice_t *choice, const prompt_t *prompt) {
  const params_t *params = &completion->params;
  size_t length = prompt->length;
  const char *text = prompt->text;
  /* A truncated prompt is echoed as the model saw it. */
  if (text == NULL || params->truncate_prompt_tokens != -2) {
    int code =
        tokenizer_decode(completion->tokenizer, choice->request.prompt_ids,
                         (size_t)choice->request.num_prompt_tokens, params->skip_special_tokens,
                         &choice->decoded, &length, &completion->error);
    if (code != 0) return code;
    text = choice->decoded;
  }
  buffer_append(&choice->text, text, length);
  choice->echo_length = length;
  if (params->logprobs == ABSENT) {
    text_offset_bytes(&choice->offset, text, length);
    return 0;
  }
  token_style_t style = {completion->tokenizer, params->tokens_as_ids, params->skip_special_tokens};
  logprob_entry_t first = {.id = choice->request.prompt_ids[0]};
  logprob_text_add(&choice->logprobs, &style, &first);
  text_offset_prompt(&choice->offset, &style, first.id, text, length);
  return 0;
}

/* A word is banned as it stands and as it stands after a blank. */
static int add_bad_word(completion_t *completion, tokenizer_scratch_t *scratch, const span_t *word,
                        token_sequence_t *list, int32_t *num_list) {
  char spaced[BAD_WORD_BYTES_MAX + 1];
  spaced[0] = ' ';
  memcpy(spaced + 1, word->text, word->length);
  for (int with_space = 0; with_space <= 1; with_space++) {
    int32_t *ids = NULL;
    size_t count = 0;
    int code = encode(completion, scratch, with_space ? spaced : word->text,
                      word->length + (size_t)with_space, false, 0, &ids, &count);
    if (code != 0) return code;
    int32_t *kept = count == 0 ? NULL : arena_alloc(&completion->arena, count, sizeof *kept);
    if (kept != NULL) {
      memcpy(kept, ids, count * sizeof *kept);
      list[(*num_list)++] = (token_sequence_t){kept, (int32_t)count};
    }
    free(ids);
    if (kept == NULL && count > 0) {
      return error_set(&completion->error, ERR_INTERNAL, NULL, "Out of memory.");
    }
  }
  return 0;
}

static int build_bad_words(completion_t *completion, tokenizer_scratch_t *scratch,
                           sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  if (params->num_bad_words == 0) return 0;
  size_t room = (size_t)params->num_bad_words * 2;
  token_sequence_t *list = arena_alloc(&completion->arena, room, sizeof *list);
  if (list == NULL) return error_set(&completion->error, ERR_INTERNAL, NULL, "Out of memory.");
  for (int32_t i = 0; i < params->num_bad_words; i++) {
    int code =
        add_bad_word(completion, scratch, &params->bad_words[i], list, &sampling->num_bad_words);
    if (code != 0) return code;
  }
  sampling->bad_words = list;
  return 0;
}

static int build_stops(completion_t *completion) {
  const params_t *params = &completion->params;
  const char *strings[STOP_STRINGS_MAX];
  size_t lengths[STOP_STRINGS_MAX];
  for (int32_t i = 0; i < params->num_stop; i++) {
    strings[i] = params->stop[i].text;
    lengths[i] = params->stop[i].length;
  }
  return stop_set_new(strings, lengths, params->num_stop, &completion->stops, &completion->error);
}

/* The sampling parameters that all prompts of the request share. */
static void build_sampling(const completion_t *completion, sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  bool top_k_off = params->top_k <= 0 || params->top_k >= completion->info->vocab_size;
  int64_t prompt_best = params->prompt_logprobs;
  if (params->echo && params->logprobs > prompt_best) prompt_best = params->logprobs;
  *sampling = (sampling_params_t){
      .temperature = params->temperature,
      .top_p = params->top_p,
      .min_p = params->min_p,
      .top_k = top_k_off ? 0 : (int32_t)params->top_k,
      .presence_penalty = params->presence_penalty,
      .frequency_penalty = params->frequency_penalty,
      .repetition_penalty = params->repetition_penalty,
      .min_tokens = (int32_t)params->min_tokens,
      .ignore_eos = params->ignore_eos,
      .num_logprobs = (int32_t)params->logprobs,
      .num_prompt_logprobs = (int32_t)prompt_best,
      .num_stop_token_ids = params->stop_token_ids.count,
      .stop_token_ids = params->stop_token_ids.ids,
      .num_logit_bias = params->num_logit_bias,
      .logit_bias = params->logit_bias,
      .num_allowed_ids = params->allowed_token_ids.count,
      .allowed_ids = params->allowed_token_ids.ids,
      .num_logprob_token_ids = params->logprob_token_ids.count,
      .logprob_token_ids = params->logprob_token_ids.ids,
  };
}

/* Prompt logprobs are bounded by what their JSON may weigh, before any work is done. */
static int check_logprob_budget(completion_t *completion, const sampling_params_t *sampling) {
  if (sampling->num_prompt_logprobs < 0) return 0;
  int64_t each = sampling->num_prompt_logprobs + 2 + sampling->num_logprob_token_ids, tokens = 0;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    tokens += completion->choices[i].request.num_prompt_tokens;
  }
  if (tokens * each <= PROMPT_LOGPROBS_BYTES_MAX / PROMPT_LOGPROB_BYTES) return 0;
  const char *param = completion->params.prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs";
  return error_set(
      &completion->error, ERR_INVALID_VALUE, param,
      "Logprobs of %" PRId64 " prompt tokens with %d alternatives each are more than "
      "this server returns in one response. Please send fewer prompt tokens or ask for "
      "fewer alternatives.",
      tokens, (int)sampling->num_prompt_logprobs);
}

static int build_request(completion_t *completion, choice_t *choice,
                         const sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  request_t *request = &choice->request;
  if (request->num_prompt_tokens == 0) return params_fail_empty(&completion->error);
  int code = check_length(completion, request->num_prompt_tokens, false);
  if (code != 0) return code;
  request->params = *sampling;
  request->params.max_tokens =
      (int32_t)effective_max_tokens(completion, request->num_prompt_tokens);
  if (params->min_tokens > request->params.max_tokens) {
    return error_set(&completion->error, ERR_INVALID_VALUE, "min_tokens",
                     "'min_tokens' must be less than or equal to 'max_tokens'.");
  }
  request->params.seed = (uint64_t)params->seed;
  if (!params->has_seed && getrandom(&request->params.seed, sizeof request->params.seed, 0) < 0) {
    return error_set(&completion->error, ERR_INTERNAL, NULL, "No random numbers to be had.");
  }
  request->stops = completion->stops;
  request->skip_special_tokens = params->skip_special_tokens;
  request->include_stop_string = params->include_stop_string;
  request->priority = params->priority;
  request->owner = choice;
  if (params->prompt_logprobs >= 0) buffer_text(&choice->prompt_logprobs, "null");
  return 0;
}

static int build_choices(completion_t *completion, tokenizer_scratch_t *scratch) {
  const params_t *params = &completion->params;
  int64_t keep;
  int code = truncation(completion, &keep);
  for (int32_t i = 0; code == 0 && i < params->num_prompts; i++) {
    const prompt_t *prompt = &params->prompts[i];
    choice_t *choice = &completion->choices[i];
    choice->completion = completion;
    choice->index = i;
    code = prompt->text != NULL ? encode_prompt(completion, scratch, choice, prompt, keep)
                                : take_id_prompt(completion, choice, prompt, keep);
  }
  if (code == 0) code = build_stops(completion);
  sampling_params_t sampling;
  build_sampling(completion, &sampling);
  if (code == 0) code = build_bad_words(completion, scratch, &sampling);
  for (int32_t i = 0; code == 0 && i < completion->num_choices; i++) {
    code = build_request(completion, &completion->choices[i], &sampling);
  }
  if (code == 0) code = check_logprob_budget(completion, &sampling);
  for (int32_t i = 0; code == 0 && params->echo && i < completion->num_choices; i++) {
    code = take_echo(completion, &completion->choices[i], &params->prompts[i]);
  }
  return code;
}

int completion_build(completion_t *completion) {
  completions_t *live = completion->server->live;
  size_t count = (size_t)completion->params.num_prompts;
  completion->choices = arena_alloc(&completion->arena, count, sizeof *completion->choices);
  tokenizer_scratch_t *scratch = NULL;
  if (completion_has_text(completion)) {
    scratch = scratch_take(live, completion->tokenizer);
    if (scratch == NULL) completion->choices = NULL;
  }
  if (completion->choices == NULL) {
    return error_set(&completion->error, ERR_INTERNAL, NULL, "Out of memory.");
  }
  completion->num_choices = (int32_t)count;
  int code = build_choices(completion, scratch);
  scratch_give(live, scratch);
  return code;
}
