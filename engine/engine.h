/* engine.h: the engine as the server sees it.
 *
 * One engine owns one model, one device and one thread. The loop thread submits requests and drains
 * events; both directions are bounded mailboxes (mailbox.c). The engine loop is six calls: receive,
 * plan, prepare, forward, sample, commit.
 */
#ifndef INFERD_ENGINE_ENGINE_H
#define INFERD_ENGINE_ENGINE_H

#include "engine/request.h"
#include "engine/schedule/draft.h"
#include "engine/schedule/swap.h"
#include "engine/stats.h"

typedef struct engine engine_t;
struct ops; /* ops.h; NULL = chosen by `backend` */

typedef struct engine_options {
  const char *model_dir;
  const struct ops *ops;                /* tests pass a fake device */
  const char *backend;                  /* "auto", "cpu", "cuda" */
  const char *isa;                      /* CPU tier, "auto" */
  int num_threads;                      /* 0 = all */
  int32_t device_index;                 /* which of several GPUs */
  bool batch_invariant;                 /* ops.h; a CPU always is */
  bool dummy_weights;                   /* --load-format dummy */
  const char *dtype;                    /* "auto", "float32", "float16", "bfloat16" */
  int64_t max_model_len;                /* 0 = the model's, fitted to memory */
  int64_t kv_cache_bytes;               /* 0 = memory_fraction of what is free */
  double memory_fraction;               /* (0, 1]; 0 = the default of host or GPU */
  bool kv_fp8;                          /* keys and values as e4m3, where the device has it */
  int32_t block_size;                   /* power of two, 0 = back end's default */
  int32_t num_blocks;                   /* 0 = from the memory; tests force small pools */
  int32_t max_num_seqs;                 /* sequences in the running set; 0: 64, on a GPU 256 */
  int32_t max_num_batched_tokens;       /* of a step; 0: 512, on a GPU 4096 */
  int32_t long_prefill_token_threshold; /* 0 = off */
  draft_options_t draft;                /* speculative decoding; tokens_max 0 = off */
  const char *draft_model_dir;          /* a small model guesses; NULL = prompt lookup */
  /* Low-rank adapters: how many at once (0 = none, at most LORAS_MAX), their largest rank, and
   * those that are loaded at start into slots 1.. ; the texts live as long as the engine. */
  int32_t max_loras, max_lora_rank;
  const char *const *lora_dirs;
  int32_t num_lora_dirs;
  bool enable_chunked_prefill, enable_prefix_caching;
  bool short_prompts_pass;            /* scheduler.h */
  bool priority_policy, fair_share;   /* else fcfs; between the tenants of one priority */
  int32_t max_skips, max_preemptions; /* scheduler.h */
  int64_t swap_space_bytes;           /* of the host pool; -1 = 4 GiB on a GPU that can, else 0 */
  preemption_mode_t preemption_mode;
  double watermark; /* share of the pool kept free at admission */
  int32_t max_queue_requests;
  int64_t max_queue_tokens;    /* 0 = 4 x KV capacity */
  double max_queue_time_s;     /* 0 = no bound */
  uint64_t seed;               /* of dummy weights and of the hash key in tests; 0 = random key */
  void (*wake)(void *context); /* called on the engine thread, once per step that made events */
  void (*log)(void *context, const char *line); /* engine thread: load progress, memory plan */
  void *context;
} engine_options_t;

enum { LORAS_MAX = 64 };

void engine_options_default(engine_options_t *options);

typedef enum engine_state {
  ENGINE_LOADING,
  ENGINE_READY,
  ENGINE_FAILED, /* load failed or device lost: engine_failure says why */
  ENGINE_STOPPED
} engine_state_t;

/* Known once the state is READY; constant afterwards. */
typedef struct engine_info {
  int32_t max_model_len;          /* effective context */
  int32_t vocab_size;             /* ids a prompt may use: rows of the embedding */
  int32_t block_size, num_blocks; /* num_blocks includes the null block */
  int32_t num_host_blocks;        /* 0 = no swapping */
  int32_t max_num_seqs, max_num_batched_tokens;
  int32_t primary_eos;
  int32_t num_stop_ids; /* the model's further EOS ids */
  const int32_t *stop_ids;
  /* generation_config defaults; NaN / -1 = not given */
  float temperature, top_p, min_p, repetition_penalty;
  int32_t top_k, max_new_tokens;
  uint64_t weights_hash; /* of names, shapes and a sample of the data: for system_fingerprint */
  const char *backend;   /* "cpu" */
  const char *device;    /* "2 threads, avx512bf16" */
  const char *dtype;     /* "bfloat16" */
  const char *architecture;
} engine_info_t;

/* Copies what it needs of the options, starts the engine thread, returns at once: the model loads
 * on the engine thread. 0 or an error for impossible options. */
int engine_create(const engine_options_t *options, engine_t **out, error_t *error);
/* Ends the engine thread: what is left is aborted and gets its EVENT_DONE, which can still be
 * drained. Nothing may be submitted afterwards. */
void engine_stop(engine_t *engine);
/* Stops if need be, and frees. Requests whose EVENT_DONE was not drained are not freed. */
void engine_destroy(engine_t *engine);

engine_state_t engine_state(const engine_t *engine);            /* any thread */
double engine_progress(const engine_t *engine);                 /* 0..1 while LOADING */
void engine_failure(const engine_t *engine, error_t *out);      /* why FAILED */
const engine_info_t *engine_info(const engine_t *engine);       /* NULL before READY */
const tokenizer_t *engine_tokenizer(const engine_t *engine);    /* NULL before READY */
void engine_stats(const engine_t *engine, engine_stats_t *out); /* any thread */
/* For grammar_compile: the tokens of this model. NULL before READY; any thread. */
const struct grammar_vocabulary *engine_grammar_vocabulary(const engine_t *engine);

/* Bytes of request_t.room that a request with these parameters lends to the engine until its
 * EVENT_DONE; 0 unless params_collect(). Its choices are kept there while they grow; at the end
 * engine_drain hands the best ones over as the same TOKEN and CHOICE_DONE events as ever, best
 * first, all before EVENT_DONE. SIZE_MAX when the product overflows. */
size_t engine_room_bytes(const sampling_params_t *params);

/* Loop thread only. Admits or refuses in O(1): ERR_QUEUE_FULL, ERR_CONTEXT_LENGTH (the
 * context or the pool can never hold it), ERR_MODEL_LOADING, ERR_ENGINE_FAILED, ERR_BAD_REQUEST (n,
 * best_of or the beam width ask for more sequences than max_num_seqs). `count` requests (the
 * prompts of one HTTP request) are admitted together or not at all. On success exactly one
 * EVENT_DONE per request follows. */
int engine_submit(engine_t *engine, request_t *const *requests, int count, error_t *error);
struct adapter; /* an adapter in host memory, engine/model/adapter.h */
/* Reads an adapter of PEFT for this engine's model. After READY, any thread. */
int engine_adapter_read(const engine_t *engine, const char *dir, struct adapter **out,
                        error_t *error);
void engine_adapter_free(struct adapter *adapter);
/* Loop thread: `adapter`, which the engine takes over, is what slot 1..max_loras stands for in
 * every request that is submitted from now on. No request in the engine uses the slot. */
void engine_adapter_set(engine_t *engine, int32_t slot, struct adapter *adapter);
/* Seconds until a refused request is worth retrying, 1..120. */
int engine_retry_after_s(const engine_t *engine);
/* Loop thread: sets request->cancelled and wakes the engine. Only between submit and EVENT_DONE. */
void engine_cancel(engine_t *engine, request_t *request);
/* Loop thread: calls `handle` for every event that is ready, in order. Returns how many. */
int engine_drain(engine_t *engine, void (*handle)(void *context, const event_t *event),
                 void *context);

#endif
