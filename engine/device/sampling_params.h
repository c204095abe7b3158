/* sampling_params.h: how the tokens of one request are chosen; part of request.h.
 *
 * Plain data. The server fills it before engine_submit; afterwards it is read-only, for any thread.
 */
#ifndef INFERD_ENGINE_DEVICE_SAMPLING_PARAMS_H
#define INFERD_ENGINE_DEVICE_SAMPLING_PARAMS_H

#include "engine/base/util.h"

#include <stdbool.h>
#include <stdint.h>

#define LOGPROB_NEVER (-9999.0f) /* stands for -infinity */

enum {
  LOGPROBS_MAX = 20, /* alternatives per position that every back end finds by itself */
  LOGPROB_TOKEN_IDS_MAX = 128,
  /* Alternatives of a row within the memory of a step, named ids among them. A row of more lies in
   * memory that its request lends, see request_t.scores. */
  SAMPLE_TOP_MAX = LOGPROBS_MAX + LOGPROB_TOKEN_IDS_MAX,
  STOP_TOKEN_IDS_MAX = 128, /* stop ids of the request, without the EOS ids of the model */
  LOGIT_BIAS_MAX = 1024,
  BAD_WORDS_MAX = 256 /* token sequences (with and without leading space) */
};

/* Largest number of ids that a row may suppress: EOS ids of the model, stop ids of the request. */
enum { SUPPRESSED_IDS_MAX = 32 + STOP_TOKEN_IDS_MAX };

/* One token of a distribution, as the sampler reports it. */
typedef struct token_logprob {
  int32_t id;
  float logprob; /* natural log, raw distribution; -9999 stands for -inf */
} token_logprob_t;

typedef struct logit_bias {
  int32_t id;
  float bias; /* -100..100 */
} logit_bias_t;

typedef struct token_sequence {
  const int32_t *ids;
  int32_t count; /* >= 1 */
} token_sequence_t;

/* When a beam search with `beam_width` finished beams ends. */
typedef enum early_stopping {
  EARLY_STOPPING_OFF,  /* if no live beam can win at its present length; false in the API */
  EARLY_STOPPING_ON,   /* at once; true in the API */
  EARLY_STOPPING_NEVER /* if no live beam can win at the best length that it may reach */
} early_stopping_t;

/* Checked and clamped by the server; every float is finite. The request owns the arrays. */
typedef struct sampling_params {
  /* A temperature below 1e-5 is greedy. Penalties of presence and frequency count the output alone,
   * that of repetition the prompt, too. */
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) float name;
#include "engine/device/sampling.def"
  int32_t top_k;      /* 0 = off */
  uint64_t seed;      /* from the request, or 64 random bits drawn by the server */
  int32_t max_tokens; /* >= 0; 0 = score the prompt only */
  int32_t min_tokens; /* <= max_tokens */
  bool ignore_eos;
  int32_t num_logprobs;        /* alternatives per generated token; -1 = no logprobs at all */
  int32_t num_prompt_logprobs; /* the same for prompt tokens; -1 = none */
  int32_t num_stop_token_ids;
  const int32_t *stop_token_ids; /* the EOS ids of the model stop too, unless ignore_eos */
  int32_t num_logit_bias;
  const logit_bias_t *logit_bias;
  int32_t num_allowed_ids; /* 0 = all */
  const int32_t *allowed_ids;
  int32_t num_bad_words;
  const token_sequence_t *bad_words;
  int32_t num_logprob_token_ids;
  const int32_t *logprob_token_ids; /* ids whose logprobs are reported besides the top ones */
  const struct speech_rules *rules; /* speech_rules.h, of a transcript; NULL = none */
  /* Several choices of one prompt. Sample j draws from the random stream (seed, j). */
  int32_t n;       /* choices returned; 0 means 1 */
  int32_t best_of; /* sequences sampled, >= n, of which the best n are returned; 0 means n */
  /* > 0: beam search, with beam_width >= n; best_of and the fields above that change the draw are
   * not used; stops and min_tokens are. Score = sum of raw logprobs / (generated tokens without
   * EOS)^length_penalty; of an encoder-decoder as transformers counts: with EOS, and with the ids
   * that the decoder is made to begin with. */
  int32_t beam_width;
  float length_penalty;
  bool beam_counts_end;
  int32_t beam_tokens_before;
  early_stopping_t early_stopping;
} sampling_params_t;

/* True if a row of kind PENALTY is not its noop. */
static inline bool params_have_penalties(const sampling_params_t *params) {
  enum { DRAW, PENALTY };
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  if ((kind) == PENALTY && params->name != (noop)) return true;
#include "engine/device/sampling.def"
  return false;
}

static inline int32_t params_num_choices(const sampling_params_t *params) {
  return MAX(params->n, 1);
}
/* Sequences of the request, which may run one by one unless they are beams. */
static inline int32_t params_num_sequences(const sampling_params_t *params) {
  int32_t wanted = params->beam_width > 0 ? params->beam_width : params->best_of;
  return wanted > params_num_choices(params) ? wanted : params_num_choices(params);
}
/* Sequences that must run at once: beams are ranked against each other. */
static inline int32_t params_width(const sampling_params_t *params) {
  return params->beam_width > 0 ? params_num_sequences(params) : 1;
}
/* True if the choices are known only at the end of the request; they need request_t.room. */
static inline bool params_collect(const sampling_params_t *params) {
  return params->beam_width > 0 || params_num_sequences(params) > params_num_choices(params);
}
/* True if each choice ends with its own EVENT_CHOICE_DONE. */
static inline bool params_multiple(const sampling_params_t *params) {
  return params_num_sequences(params) > 1 || params->beam_width > 0;
}

#endif
