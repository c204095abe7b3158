/* request.h: what the server hands to the engine, and what comes back.
 *
 * The loop thread builds a request, calls engine_submit, and from then on only sets `cancelled`.
 * Everything else is read-only until the one EVENT_DONE of the request has come back through the
 * mailbox; then the loop thread owns the request again and frees it. One request is one prompt.
 */
#ifndef INFERD_ENGINE_REQUEST_H
#define INFERD_ENGINE_REQUEST_H

#include "engine/text/detokenizer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  LOGPROBS_MAX = 20, /* most alternatives per position */
  LOGPROB_TOKEN_IDS_MAX = 128,
  STOP_TOKEN_IDS_MAX = 128, /* of the request; the model's own come on top */
  LOGIT_BIAS_MAX = 1024,
  BAD_WORDS_MAX = 256 /* token sequences (with and without leading space) */
};

typedef struct logit_bias {
  int32_t id;
  float bias; /* -100..100 */
} logit_bias_t;

typedef struct token_sequence {
  const int32_t *ids;
  int32_t count; /* >= 1 */
} token_sequence_t;

/* Checked and clamped by the server; every float is finite. Pointers are owned by the request. */
typedef struct sampling_params {
  float temperature;        /* 0..2; < 1e-5 = greedy */
  float top_p;              /* (0, 1] */
  float min_p;              /* [0, 1] */
  int32_t top_k;            /* 0 = off */
  float presence_penalty;   /* -2..2, counts output tokens */
  float frequency_penalty;  /* -2..2, counts output tokens */
  float repetition_penalty; /* (0, 10], counts prompt and output */
  uint64_t seed;            /* given, or 64 random bits drawn by the server */
  int32_t max_tokens;       /* >= 0; 0 = score the prompt only */
  int32_t min_tokens;       /* <= max_tokens */
  bool ignore_eos;
  int32_t num_logprobs;        /* alternatives per generated token; -1 = no logprobs at all */
  int32_t num_prompt_logprobs; /* the same for prompt tokens; -1 = none */
  int32_t num_stop_token_ids;
  const int32_t
      *stop_token_ids; /* request's ids; with the model's further EOS ids unless ignore_eos */
  int32_t num_logit_bias;
  const logit_bias_t *logit_bias;
  int32_t num_allowed_ids; /* 0 = all */
  const int32_t *allowed_ids;
  int32_t num_bad_words;
  const token_sequence_t *bad_words;
  int32_t num_logprob_token_ids;
  const int32_t *logprob_token_ids; /* reported besides the top ones */
} sampling_params_t;

typedef struct request {
  uint64_t id; /* unique in the process */
  const int32_t *prompt_ids;
  int32_t num_prompt_tokens; /* >= 1, each 0 <= id < vocab */
  sampling_params_t params;
  const stop_set_t *stops; /* NULL = none */
  bool skip_special_tokens;
  bool include_stop_string;
  int64_t priority;                 /* lower runs earlier under the priority policy */
  uint64_t salt;                    /* prefix-cache domain: hash of API key and cache_salt */
  uint64_t arrival_ns;              /* monotonic clock */
  int32_t fault;                    /* tests only: makes the engine fail this request with 500 */
  atomic_bool cancelled;            /* set by the loop, read by the engine once per step */
  void *owner;                      /* the server's own; the engine never looks */
  struct sequence *engine_sequence; /* engine's own; NULL outside */
} request_t;

typedef enum finish_reason {
  FINISH_NONE,
  FINISH_STOP,   /* EOS, stop id or stop string */
  FINISH_LENGTH, /* max_tokens or the context */
  FINISH_ABORT,  /* cancelled by the loop: client gone, deadline, shutdown */
  FINISH_ERROR   /* failed alone; `error_code` says why */
} finish_reason_t;

typedef struct token_logprob {
  int32_t id;
  float logprob; /* natural log, raw distribution; -9999 stands for -inf */
} token_logprob_t;

typedef enum event_kind {
  EVENT_TOKEN,          /* one generated token */
  EVENT_PROMPT_LOGPROB, /* score of the prompt token at `position` (>= 1) */
  EVENT_DONE            /* exactly one per request, always the last */
} event_kind_t;

/* One event as the loop reads it from the mailbox. Pointers are valid during the callback only. */
typedef struct event {
  request_t *request;
  event_kind_t kind;
  int32_t token_id;
  int32_t position; /* output index of a TOKEN; prompt position of a PROMPT_LOGPROB */
  bool has_logprob;
  float logprob; /* of token_id */
  int32_t rank;  /* 1 = most likely */
  int32_t num_top;
  const token_logprob_t *top; /* [num_top]: the best ones first, then logprob_token_ids */
  const char *text;           /* bytes that may be sent now; DONE flushes what was held */
  uint32_t text_length;
  /* DONE only */
  finish_reason_t finish;
  int32_t error_code;    /* ERR_ when finish is FINISH_ERROR */
  int32_t stop_token_id; /* id that stopped it, -1 = none or the primary EOS */
  int32_t stop_string;   /* index into stops, -1 = none */
  int32_t num_output_tokens;
  int32_t num_cached_tokens;
  uint64_t first_scheduled_ns, first_token_ns, finished_ns; /* monotonic; 0 = never */
} event_t;

#endif
