/* request.h: the requests that the server gives to the engine, and the events that come back.
 *
 * One request is one prompt. The loop thread builds a request and calls engine_submit; from then on
 * it only sets `cancelled`, and every other field is read-only. When the loop thread reads the one
 * EVENT_DONE of the request, it owns the request again and frees it.
 */
#ifndef INFERD_ENGINE_REQUEST_H
#define INFERD_ENGINE_REQUEST_H

#include "engine/device/cross_weights.h"
#include "engine/device/sampling_params.h"
#include "engine/embedding.h"
#include "engine/encoder_source.h"
#include "engine/prompt_rows.h"
#include "engine/text/stream/detokenizer.h"
#include "engine/vision/image.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct request {
  uint64_t id;               /* unique in the process */
  const int32_t *prompt_ids; /* [num_prompt_tokens], each 0 <= id < vocab_size */
  int32_t num_prompt_tokens; /* >= 1 */
  /* [num_prompt_tokens / block size] by engine_hash_prompt; NULL = the engine hashes the prompt */
  const struct block_key *prompt_keys;
  sampling_params_t params;
  pooling_t pooling;     /* not NONE: the prompt becomes a vector; params.max_tokens is 0 */
  double *pooled;        /* with pooling: [embedding_room] zeroed, the server's; what was pooled,
                          * not normalised, once EVENT_DONE says FINISH_STOP */
  const image_t *images; /* [num_images] pictures of the prompt, ascending, the server's */
  int32_t num_images;    /* 0 = text alone */
  const encoder_source_t *source; /* of an encoder before the model, the server's; NULL = none */
  const prompt_rows_t *rows;      /* in the place of prompt_ids, the server's; NULL = it is ids */
  /* Of the attention to its rows: then all of the prompt is computed. The server's; NULL = none */
  const cross_weights_t *cross_weights;
  int32_t second_text;     /* the first token of type 1: of a pair of texts; 0 = all have type 0 */
  const stop_set_t *stops; /* NULL = none */
  struct grammar
      *grammar; /* constraint on the output; the request holds a reference; NULL = none */
  bool skip_special_tokens;
  bool include_stop_string;
  const int32_t *shown_ids; /* special tokens that are shown as text, e.g. marks of tool calls */
  int32_t num_shown_ids;
  int64_t priority;    /* with the priority policy, lower values run earlier */
  bool best_effort;    /* runs in what all others leave: rule 15 of engine/README.md */
  uint64_t tenant;     /* the client whose shares it uses; with API keys a hash of the key */
  struct quota *quota; /* limits of the API key, lent until EVENT_DONE (quota.h); NULL = none */
  uint64_t salt;       /* prefix-cache domain: hash of API key, cache_salt and adapter */
  int32_t adapter;     /* slot of the low-rank adapter, 1..max_loras; 0 = none */
  /* The engine's, of an adapter that is active only from its invocation tokens on: the first of
   * them; else 0. `base_salt`, the server's, is the domain of blocks before it: without adapter. */
  int32_t adapter_from;
  uint64_t base_salt;
  uint64_t arrival_ns;   /* monotonic clock */
  atomic_bool cancelled; /* set by the loop thread, by engine_cancel; read by the engine thread */
  void *room; /* with params_collect(): engine_room_bytes() zeroed bytes, owned by the server */
  token_logprob_t *scores; /* engine_scores_bytes() bytes, owned by the server; NULL if 0 */
  void *owner;             /* the server's own; the engine does not use it */
  const char *name;        /* what its client knows it by, for journals; NULL = nothing */
  const char *adapter_dir; /* of `adapter`, for journals */
  /* The engine's, from engine_submit to EVENT_DONE: which replica, the prompt tokens that it is
   * taken to compute, and the index of the group there. */
  int32_t replica, num_uncached, slot;
} request_t;

typedef enum finish_reason {
  FINISH_NONE,
  FINISH_STOP,   /* EOS, stop id or stop string; a vector is complete */
  FINISH_LENGTH, /* max_tokens or the context */
  FINISH_ABORT,  /* cancelled by the loop: client disconnected, deadline, shutdown */
  FINISH_ERROR   /* this request failed; `error_code` says why */
} finish_reason_t;

typedef enum event_kind {
  EVENT_TOKEN,          /* one generated token of `choice` */
  EVENT_PROMPT_LOGPROB, /* score of the prompt token at `position` (>= 1); once, not per choice */
  EVENT_CHOICE_DONE,    /* params_multiple() only: `choice` is complete; exactly one per choice,
                         * unless the request fails or is aborted */
  EVENT_DONE            /* exactly one per request, always the last; with params_multiple() its
                         * finish is that of choice 0, or ERROR or ABORT for the whole request */
} event_kind_t;

/* One event as the loop reads it from the mailbox. Pointers are valid during the callback only. */
typedef struct event {
  request_t *request;
  event_kind_t kind;
  int32_t choice; /* 0..n-1, in the order in which the API returns them */
  int32_t token_id;
  int32_t position; /* output index of a TOKEN; prompt position of a PROMPT_LOGPROB */
  bool has_logprob;
  float logprob; /* of token_id */
  int32_t rank;  /* 1 = most likely */
  int32_t num_top;
  const token_logprob_t *top; /* [num_top]: the most likely first, then logprob_token_ids */
  bool top_lent;    /* `top` lies in the memory of the request: it stays until that is freed */
  const char *text; /* [text_length] bytes that may be sent now; the last event has the held text */
  uint32_t text_length;
  int32_t num_cached_tokens, num_floor_tokens; /* of the prompt; also of TOKEN */
  /* Fields of DONE and CHOICE_DONE. */
  finish_reason_t finish;
  int32_t error_code;        /* ERR_ when finish is FINISH_ERROR */
  int32_t stop_token_id;     /* id that stopped the choice; -1 = none or the primary EOS */
  int32_t stop_string;       /* index of the stop string in `stops`; -1 = none */
  int32_t num_output_tokens; /* of the choice; DONE: sum over the choices returned */
  double cumulative_logprob; /* CHOICE_DONE: raw; if num_logprobs >= 0 or params_collect() */
  uint64_t first_scheduled_ns, first_token_ns, finished_ns; /* monotonic; 0 = never */
} event_t;

#endif
