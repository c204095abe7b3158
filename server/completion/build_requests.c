/* build_requests.c: fills in the requests to the engine, except for the ids of the prompt.
 *
 * Stage 2 of 9, last part: checked parameters -> sampling parameters, limits, and memory that the
 * engine borrows, in the request_t of every input. Same thread and rules as prompt.c. Next:
 * completion.c, which submits the requests by engine/submit.c.
 */
#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/completion/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Most memory that one request may lend to the engine for choices which are known only at the end.
 * The pages are used only as the choices grow. */
static const size_t ROOM_BYTES_MAX = (size_t)1 << 28;

/* Alternatives in one response. Those of a prompt are printed as they come and kept as JSON, about
 * 64 bytes each; where a position has more than SAMPLE_TOP_MAX, they are printed while they are
 * sent, and 8 bytes each are kept. Either takes 64 MiB. */
enum { PRINTED_MAX = 1 << 20, KEPT_MAX = 1 << 23 };

enum { HASHED_TOKENS_MIN = 1024 };

/* Bans a word in two forms: as given, and after a space. */
static int add_bad_word(completion_t *completion, tokenizer_scratch_t *scratch, const span_t *word,
                        token_sequence_t *list, int32_t *num_list) {
  char spaced[BAD_WORD_BYTES_MAX + 1];
  spaced[0] = ' ';
  memcpy(spaced + 1, word->text, word->length);
  for (int with_space = 0; with_space <= 1; with_space++) {
    int32_t *ids = NULL;
    size_t count = 0;
    tokenize_options_t options = {.cancelled = &completion->cancelled};
    int code = completion_encode(completion, scratch, with_space ? spaced : word->text,
                                 word->length + (size_t)with_space, &options, &ids, &count);
    if (code != 0) return code;
    int32_t *kept = count == 0 ? NULL : arena_calloc(&completion->arena, count, sizeof *kept);
    if (kept != NULL) {
      memcpy(kept, ids, count * sizeof *kept);
      list[(*num_list)++] = (token_sequence_t){kept, (int32_t)count};
    }
    free(ids);
    if (kept == NULL && count > 0) {
      return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
    }
  }
  return 0;
}

static int build_bad_words(completion_t *completion, tokenizer_scratch_t *scratch,
                           sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  if (params->num_bad_words == 0) return 0;
  size_t room = (size_t)params->num_bad_words * 2;
  token_sequence_t *list = arena_calloc(&completion->arena, room, sizeof *list);
  if (list == NULL) {
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  }
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
  if (params->num_stop > 0 && tokenizer_is_none(completion->tokenizer)) {
    return tokenizer_refuse("stop", &completion->intake->error);
  }
  for (int32_t i = 0; i < params->num_stop; i++) {
    strings[i] = params->stop[i].text;
    lengths[i] = params->stop[i].length;
  }
  return stop_set_new(strings, lengths, params->num_stop, &completion->stops,
                      &completion->intake->error);
}

/* Beam search does not sample, so the sampling defaults of the model do not apply. */
static void build_beams(const completion_t *completion, sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  sampling->beam_width = (int32_t)(params->best_of == 0 ? params->n : params->best_of);
  sampling->best_of = 0;
  sampling->length_penalty = params->length_penalty;
  sampling->early_stopping = params->early_stopping;
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  sampling->name = (noop);
#include "engine/device/sampling.def"
  sampling->top_k = 0;
  sampling->beam_counts_end = completion->info->source != NULL;
}

/* Fills in the sampling parameters, which all prompts of the request share. */
static void build_sampling(const completion_t *completion, sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  bool first_only = params->top_p == 0; /* OpenAI's least value: the most likely token */
  bool top_k_off = params->top_k <= 0 || params->top_k >= completion->info->vocab_size;
  int64_t prompt_best = params->prompt_logprobs;
  if (params_echoes_scores(params) && params->logprobs > prompt_best) {
    prompt_best = params->logprobs;
  }
  *sampling = (sampling_params_t){
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  .name = params->name,
#include "engine/device/sampling.def"
      .top_k = first_only  ? 1
               : top_k_off ? 0
                           : (int32_t)params->top_k,
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
      .n = (int32_t)params->n,
      .best_of = (int32_t)(params->best_of == 0 ? params->n : params->best_of),
  };
  if (first_only) sampling->top_p = 1;
  if (params->use_beam_search) build_beams(completion, sampling);
}

/* Returns the max_tokens of a prompt. The default is 16 for completions, and the value of the
 * model's generation_config for chat. It is at most what is left of the context, and of the KV
 * cache if each of the sequences generates as much. */
static int64_t effective_max_tokens(const completion_t *completion, const request_t *request) {
  int64_t asked = params_max_tokens(&completion->params);
  if (asked != ABSENT && completion->dialect->clips_max_tokens) {
    return MIN(asked, completion_context(completion) - request->num_prompt_tokens);
  }
  if (asked != ABSENT) return asked;
  int64_t most = engine_max_tokens(completion->server->engine, request);
  int64_t usual = completion->params.no_limit ? most : DEFAULT_MAX_TOKENS;
  const bool translates = completion->info->source != NULL;
  if ((completion->params.is_chat || translates) && !completion->params.no_limit) {
    const engine_info_t *model = completion->intake->defaults.model;
    usual = model != NULL && model->max_new_tokens > 0 ? model->max_new_tokens : most;
  }
  return MAX(MIN(most, usual), 1); /* if none fits, the engine says what is missing */
}

/* Allocates the memory that the engine borrows for choices which are known only at the end. */
static int lend_room(completion_t *completion, input_t *input) {
  request_t *request = &input->request;
  size_t bytes = engine_room_bytes(&request->params);
  if (bytes == 0) return 0;
  if (bytes > ROOM_BYTES_MAX) {
    const char *param = completion->params.use_beam_search ? "use_beam_search" : "best_of";
    return error_set(&completion->intake->error, ERR_INVALID_VALUE, param,
                     "%d sequences of up to %d tokens, of which %d are returned, need more memory "
                     "than this server lends to one request. Please lower 'max_tokens' or "
                     "'best_of'.",
                     (int)params_num_sequences(&request->params), (int)request->params.max_tokens,
                     (int)params_num_choices(&request->params));
  }
  int code = completion_charge_ids(completion, bytes);
  if (code != 0) return code;
  input->held += bytes;
  request->room = calloc(1, bytes);
  if (request->room != NULL) return 0;
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* The field that asks for alternatives of the prompt, or of the output. */
static const char *alternatives_field(const params_t *params, bool of_prompt) {
  if (of_prompt && params->prompt_logprobs >= params->logprobs) return "prompt_logprobs";
  return params->is_chat ? "top_logprobs" : "logprobs";
}

static int refuse_alternatives(completion_t *completion, bool of_prompt, int64_t tokens,
                               int32_t each, int32_t most) {
  const char *field = alternatives_field(&completion->params, of_prompt);
  return error_set(&completion->intake->error, ERR_INVALID_VALUE, field,
                   "Invalid '%s': %d alternatives of each of %" PRId64 " %s tokens are more than "
                   "the %d that this server returns in one response. Please ask for fewer "
                   "alternatives, or %s.",
                   field, (int)each, tokens, of_prompt ? "prompt" : "output", (int)most,
                   of_prompt ? "send fewer prompt tokens" : "lower 'max_tokens'");
}

/* Refuses alternatives that would pass the limit on replies, before any work is done. */
static int check_alternatives(completion_t *completion, const sampling_params_t *sampling) {
  int64_t scored = 0, generated = 0;
  int32_t each = sampling->num_prompt_logprobs;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    const input_t *input = &completion->inputs[i];
    scored += (int64_t)input->request.num_prompt_tokens * input->num_choices;
    generated += (int64_t)input->request.params.max_tokens * input->num_choices;
  }
  int32_t most = each > SAMPLE_TOP_MAX ? KEPT_MAX : PRINTED_MAX;
  int64_t entries = each + 2 + (int64_t)sampling->num_logprob_token_ids;
  if (each >= 0 && scored * entries > most)
    return refuse_alternatives(completion, true, scored, each, most);
  each = sampling->num_logprobs;
  if (each > SAMPLE_TOP_MAX && generated * each > KEPT_MAX)
    return refuse_alternatives(completion, false, generated, each, KEPT_MAX);
  return 0;
}

/* Rows of more alternatives than are printed at once. */
static size_t count_rows(const input_t *input) {
  const params_t *params = &input->completion->params;
  const request_t *request = &input->request;
  size_t scored = (size_t)request->num_prompt_tokens - 1, count = 0;
  if (params->prompt_logprobs > SAMPLE_TOP_MAX) count += scored;
  if (params->logprobs <= SAMPLE_TOP_MAX) return count;
  if (params_echoes_scores(params)) count += scored;
  return count + (size_t)request->params.max_tokens * (size_t)input->num_choices;
}

/* Allocates the memory for rows of many alternatives: the engine's, and how they are printed. */
static int lend_scores(completion_t *completion, input_t *input) {
  const params_t *params = &completion->params;
  request_t *request = &input->request;
  score_rows_t *scores = &input->scores;
  size_t bytes =
      engine_scores_bytes(completion->server->engine, &request->params, request->num_prompt_tokens);
  bool as_keys = params->logprobs > SAMPLE_TOP_MAX && !params->is_chat;
  size_t slots = as_keys ? seen_tokens_slots(request->params.num_logprobs) : 0;
  size_t rows = count_rows(input);
  size_t held = bytes + slots * sizeof *scores->seen.slots + rows * sizeof *scores->rows;
  if (held == 0) return 0;
  int code = completion_charge_ids(completion, held);
  if (code != 0) return code;
  input->held += held;
  if (bytes > 0) request->scores = calloc(1, bytes);
  if (slots > 0) scores->seen.slots = calloc(slots, sizeof *scores->seen.slots);
  if (rows > 0) scores->rows = calloc(rows, sizeof *scores->rows);
  scores->seen.mask = (uint32_t)slots - 1;
  scores->max = rows;
  bool has_all = (bytes == 0 || request->scores != NULL) &&
                 (slots == 0 || scores->seen.slots != NULL) && (rows == 0 || scores->rows != NULL);
  if (has_all) return 0;
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Hashes a long prompt for the prefix cache here, so that the engine thread need not. An adapter is
 * part of the cache domain and known at the admission only: then the engine hashes. */
static int hash_prompt(completion_t *completion, input_t *input) {
  const engine_t *engine = completion->server->engine;
  request_t *request = &input->request;
  if (request->num_prompt_tokens < HASHED_TOKENS_MIN) return 0;
  request->salt = completion_cache_domain(completion, completion->lora);
  size_t bytes = engine_hash_prompt(engine, request, NULL);
  if (bytes == 0) return 0;
  input->keys.charge = charge_open(completion->server->ledger, completion->source, LEDGER_ids);
  if (!charge_resize(&input->keys.charge, bytes))
    return ledger_refuse(&input->keys.charge, &completion->intake->error);
  input->keys.bytes = malloc(bytes);
  if (input->keys.bytes == NULL)
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  input->keys.length = engine_hash_prompt(engine, request, input->keys.bytes);
  request->prompt_keys = (const struct block_key *)(const void *)input->keys.bytes;
  return 0;
}

/* Allocates the memory in which the engine makes the vector of a prompt. */
static int lend_vector(completion_t *completion, input_t *input) {
  const embedding_info_t *info = completion->info->embedding;
  size_t bytes = embedding_room(info, input->request.num_prompt_tokens) * sizeof(double);
  int code = completion_charge_ids(completion, bytes);
  if (code != 0) return code;
  input->held += bytes;
  input->request.pooling = info->pooling;
  input->request.pooled = calloc(1, bytes);
  if (input->request.pooled != NULL) return 0;
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

static int build_request(completion_t *completion, input_t *input,
                         const sampling_params_t *sampling) {
  const params_t *params = &completion->params;
  request_t *request = &input->request;
  if (request->num_prompt_tokens == 0)
    return params_fail_empty(params_prompt_name(params), &completion->intake->error);
  int code = completion_check_length(input, request->num_prompt_tokens, false);
  if (code != 0) return code;
  request->params = *sampling;
  request->params.beam_tokens_before = input->num_forced;
  request->params.max_tokens = (int32_t)effective_max_tokens(completion, request);
  if (params->min_tokens > request->params.max_tokens) {
    return params_fail_min_tokens(params, request->params.max_tokens, &completion->intake->error);
  }
  request->params.seed = (uint64_t)params->seed;
  bool draws = !params->has_seed && completion->seed == 0;
  if (!params->has_seed) request->params.seed = completion->seed;
  if (draws && getrandom(&request->params.seed, sizeof request->params.seed, 0) < 0) {
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL,
                     "No random numbers to be had.");
  }
  request->stops = completion->stops;
  request->skip_special_tokens = params->skip_special_tokens;
  request->shown_ids = params->constraint.shown.ids;
  request->num_shown_ids = params->constraint.shown.count;
  request->include_stop_string = params->include_stop_string;
  request->priority = params->priority;
  request->owner = input;
  if (params->prompt_logprobs >= 0) buffer_text(&input->prompt_logprobs, "null");
  return hash_prompt(completion, input);
}

/* Lends the engine memory, once it is known that the whole request is within its limits. */
static int lend(completion_t *completion, const sampling_params_t *sampling) {
  int code = check_alternatives(completion, sampling);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    code = lend_room(completion, &completion->inputs[i]);
    if (code == 0) code = lend_scores(completion, &completion->inputs[i]);
    if (code == 0 && completion->dialect->table != NULL)
      code = lend_vector(completion, &completion->inputs[i]);
  }
  completion->in_pieces = completion->params.stream && completion->params.logprobs > SAMPLE_TOP_MAX;
  completion->reply.flat = completion->in_pieces;
  return code;
}

int completion_build_requests(completion_t *completion, tokenizer_scratch_t *scratch) {
  sampling_params_t sampling;
  int code = build_stops(completion);
  build_sampling(completion, &sampling);
  if (code == 0) code = build_bad_words(completion, scratch, &sampling);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    code = build_request(completion, &completion->inputs[i], &sampling);
  }
  return code == 0 ? lend(completion, &sampling) : code;
}
