/* engine.h: the engine as the server sees it.
 *
 * One engine owns one model, and a device and a thread, or several (replicas.h). The loop thread
 * submits requests and drains events by bounded queues (mailbox.h). engine/README.md says more. */
#ifndef INFERD_ENGINE_ENGINE_H
#define INFERD_ENGINE_ENGINE_H

#include "engine/request.h"
#include "engine/schedule/draft.h"
#include "engine/schedule/swap.h"
#include "engine/stats.h"
#include "engine/trace.h"

typedef struct engine engine_t;

typedef struct engine_options {
  const char *model_dir;    /* or the path of a GGUF file */
  bool dummy_weights;       /* random ones, drawn from `seed` by config.json alone */
  const char *mmproj;       /* GGUF file of the tower; NULL = one beside a model in GGUF, if any */
  bool no_images;           /* the tower of a model that sees is left out */
  bool no_sounds;           /* that of one that hears, beside text */
  int32_t image_max_tokens; /* larger pictures are made smaller; 0 = as the model's files say */
  bool prompt_embeds;       /* prompts may be rows (prompt_rows.h) */
  bool skip_tokenizer;      /* prompts and answers are token ids: tokenizer_none */
  bool quantise_q8;         /* 16-bit matrices are quantised while they load */
  const char *dtype;        /* "auto", "float32", "float16", "bfloat16" */
  embedding_options_t embedding; /* what prompts become */
  /* Devices and processes. */
  const struct ops *ops;  /* device/ops.h, of tests; NULL = chosen by `device` */
  const char *device;     /* backend.h: "auto", "cpu", "cuda", "cuda:N" */
  const char *isa;        /* CPU instruction set, or "auto" */
  int32_t num_threads;    /* CPU workers of each rank or replica; 0 = all processors */
  int32_t num_replicas;   /* replicas.h; 0 = one */
  struct comm *comm;      /* device/comm.h: the ranks of this model; NULL = one process */
  uint64_t rank_limit_ns; /* longest wait for another rank; 0 = as long as it lives */
  int32_t planned_ranks;  /* for engine_survey, which has no comm; 0 = one */
  bool add_ranks;         /* ranks add up parts of sums (model_part_t.sums) */
  bool cut_layers;        /* ranks are stages, each with some of the layers */
  int32_t host_experts;   /* layers whose experts lie in host memory, beside a GPU; 0 = none */
  bool batch_invariant;   /* GPU: no bit of a row depends on its batch; a CPU always does so */
  /* Memory. */
  int64_t max_model_len;  /* tokens; 0 = the model's, fitted to memory */
  int64_t kv_cache_bytes; /* 0 = memory_fraction of the free memory */
  double memory_fraction; /* (0, 1]; 0 = 0.7 of host memory, 0.9 of a GPU's */
  bool kv_fp8, kv_int8;   /* keys and values in 8 bits: e4m3, codes with scales; see ops_t */
  int32_t block_size;     /* tokens, a power of two; 0 = back end's default */
  int32_t num_blocks, num_snapshots; /* 0 = from the memory; tests force small pools */
  int64_t sleep_space_bytes; /* of host memory, for weights while the device sleeps; 0 = never */
  int64_t swap_space_bytes;  /* host memory for preempted requests; -1 = 4 GiB on a GPU, else 0 */
  bool enable_prefix_caching;
  const char *prefix_cache_file; /* NULL = none. Where blocks go that leave the prefix cache */
  int64_t prefix_cache_bytes; /* of that file or of host memory; -1 = 4 GiB with a file, else 0 */
  /* Steps. */
  int32_t max_num_seqs;                 /* sequences that run at once; 0: 64, on a GPU 256 */
  int32_t max_num_batched_tokens;       /* tokens of a step; 0: 512, on a GPU 4096 */
  int32_t long_prefill_token_threshold; /* most tokens of a prompt in a step; 0 = no limit */
  int32_t max_step_ms; /* of a step in which something decodes; 0 = no bound; -1 = back end's, or
                        * twice what reading the weights takes, if that is more */
  bool enable_chunked_prefill; /* a long prompt is computed in several steps */
  bool short_prompts_pass;     /* shorter prompts overtake a long one that is being computed */
  draft_options_t draft;       /* speculative decoding; tokens_max 0 = off */
  const char *draft_model_dir; /* NULL = none: prompt lookup, or the layer of the model */
  /* Masks: units of work in a step (glossary), 0 = 200,000; threads beside, -1 = by processors. */
  int32_t mask_units, mask_threads;
  /* Low-rank adapters: slots (0 = none, at most LORAS_MAX), largest rank, and the adapters that are
   * loaded at start into slots 1.. . The strings of lora_dirs must live as long as the engine. */
  int32_t max_loras, max_lora_rank;
  const char *const *lora_dirs;
  int32_t num_lora_dirs;
  /* The queue. */
  bool priority_policy, fair_share; /* by request_t.priority; by shares of tenants */
  bool slo_policy; /* short prompts first, refusals in time: scheduler_options_t.ageing */
  int32_t max_skips, max_preemptions, queue_time_tokens; /* scheduler_options_t */
  preemption_mode_t preemption_mode;
  double watermark;           /* share of the pool kept free at admission, [0, 1) */
  int32_t max_queue_requests; /* that may wait */
  int64_t max_queue_tokens;   /* prompt tokens that wait; 0 = 4 x KV capacity */
  double max_queue_time_s;    /* 0 = no limit */
  int32_t max_logprobs;       /* alternatives that a request may ask for */
  uint64_t seed;              /* of dummy weights and, if not 0, of the prefix cache's hash key */
  /* What the engine tells its owner. */
  struct kv_events *kv_events; /* kv_events.h: hears of the prefix cache; NULL = none */
  struct journal *journal;     /* journal.h: what happens, for replays; NULL = none */
  struct play *play;           /* play.h: a journal to be played; without a thread */
  bool keeps_constraints;      /* their sources, for recipes: engine/journal/recipe.h */
  bool trace;                  /* keeps records for engine_trace */
  void (*wake)(void *context); /* engine thread: events or a new state are there to be read */
  void (*log)(void *context, const char *line); /* engine thread: load progress, memory plan */
  void *context;                                /* passed to wake and log */
} engine_options_t;

/* Of host_experts: as many as the memory of the GPU asks for; all. */
enum { HOST_EXPERTS_AUTO = -1, HOST_EXPERTS_ALL = INT32_MAX };
enum { LORAS_MAX = 64, MASK_THREADS_MAX = 64 };
void engine_options_default(engine_options_t *options);
typedef enum engine_state {
  ENGINE_LOADING,
  ENGINE_READY,
  ENGINE_FAILED, /* the load failed or the device is lost: engine_failure says why */
  ENGINE_STOPPED
} engine_state_t;

/* Whether the files of a model say that it sees, before anything is loaded. Any thread. */
bool engine_may_see(const char *model_dir, const char *mmproj);
/* Whether they say that it hears: writes down speech, or takes sounds in prompts. */
bool engine_may_hear(const char *model_dir);
/* Copies the options and starts the engine thread, which loads the model. Returns at once: 0 and
 * *out, to be freed with engine_destroy; or ERR_USAGE, ERR_CONFIGURATION, ERR_NO_MEMORY. */
int engine_create(const engine_options_t *options, engine_t **out, inferd_error_t *error);
/* ERR_NO_MEMORY where ulimit -v or -d leaves nothing for any model: before a thread is started. */
int engine_check_room(inferd_error_t *error);
/* What engine_survey has planned. */
typedef struct engine_survey {
  int64_t weights, workspace, kv_cache, states; /* bytes on the device */
  int64_t swap;         /* bytes of host memory for preempted requests, of a GPU */
  int64_t host_weights; /* and for experts that lie there, with what computes them */
  int64_t free;         /* bytes that the device has */
  int64_t host_free;    /* bytes of host memory that can be taken; 0 = not known */
  int64_t context;      /* tokens */
  double contexts;      /* of that length, in kv_cache */
  bool on_host;         /* the device is the CPU */
  bool sees;            /* pictures */
  bool hears;           /* sounds in prompts */
  engine_task_t task;   /* TASK_GENERATE, or what its vectors are */
  engine_info_t info;   /* max_model_len, and the defaults of generation_config.json; no pointers */
  char architecture[64];
} engine_survey_t;
/* Plans what engine_create would load, from the headers of the files alone, as lines of
 * options->log; no thread, no weights. Returns 0 and fills *out unless it is NULL, or the error
 * that would refuse the model. */
int engine_survey(const engine_options_t *options, engine_survey_t *out, inferd_error_t *error);
/* Loop thread: ends the engine thread. Live requests are aborted; their EVENT_DONE can still be
 * drained. No request may be submitted afterwards. */
void engine_stop(engine_t *engine);
void engine_destroy(engine_t *engine); /* stops it if it runs; requests are not freed */

engine_state_t engine_state(const engine_t *engine); /* any thread */
double engine_progress(const engine_t *engine);      /* any thread; 0..1 while LOADING */
void engine_failure(const engine_t *engine, inferd_error_t *out); /* FAILED: the reason */
const engine_info_t *engine_info(const engine_t *engine);         /* NULL before READY */
const tokenizer_t *engine_tokenizer(const engine_t *engine);      /* NULL before READY */
void engine_stats(const engine_t *engine, engine_stats_t *out);   /* any thread */
/* For grammar_compile: the tokens of this model. NULL before READY; any thread. */
const struct grammar_vocabulary *engine_grammar_vocabulary(const engine_t *engine);

/* The bytes that a request must lend; 0 = none, SIZE_MAX on overflow. room: for choices known at
 * the end only, which engine_drain delivers before EVENT_DONE; scores: for long rows. READY. */
size_t engine_room_bytes(const sampling_params_t *params);
size_t engine_scores_bytes(const engine_t *engine, const sampling_params_t *params,
                           int32_t num_prompt_tokens);
/* The largest max_tokens with which context and pool can hold a request; 0 = none. READY. */
int64_t engine_max_tokens(const engine_t *engine, const request_t *request);
enum { SUBMIT_MAX = 2048 };
/* Loop thread only. Admits all requests, 1..SUBMIT_MAX (prompts of one tenant and quota), or none,
 * in O(log n) each; a full queue makes room by share.h. Returns 0, then each gets exactly one
 * EVENT_DONE; or ERR_QUEUE_FULL, ERR_RATE_LIMITED (quota.h), ERR_CONTEXT_LENGTH (it can never be
 * held), ERR_MODEL_LOADING, ERR_ENGINE_FAILED, ERR_BAD_REQUEST (sequences exceed max_num_seqs). */
int engine_submit(engine_t *engine, request_t *const *requests, int count, inferd_error_t *error);
void engine_set_queue(engine_t *engine, int32_t requests, int64_t tokens); /* limits; READY */
int engine_retry_after_s(const engine_t *engine); /* until a refused one may enter; loop thread */
struct adapter; /* an adapter in host memory, engine/model/adapter/adapter.h */
/* Reads a PEFT adapter for this engine's model. After READY, any thread. Returns 0 or an error of
 * adapter_read; the caller owns *out until engine_adapter_set. */
int engine_adapter_read(const engine_t *engine, const char *dir, struct adapter **out,
                        inferd_error_t *error);
void engine_adapter_free(struct adapter *adapter);
/* Loop thread: gives `adapter` to the engine and makes slot 1..max_loras stand for it in all
 * requests submitted from now on. No live request may use the slot. */
void engine_adapter_set(engine_t *engine, int32_t slot, struct adapter *adapter);
/* Any thread: writes request_t.prompt_keys to `out`, if not NULL. Returns their bytes, 0 = none. */
size_t engine_hash_prompt(const engine_t *engine, const request_t *request, void *out);
/* Loop thread: sets request->cancelled and wakes the engine. Only between submit and EVENT_DONE. */
void engine_cancel(engine_t *engine, request_t *request);
/* Loop thread: calls `handle` for every published event, in order, on this thread. Returns the
 * number of events read. `handle` may free a request in its EVENT_DONE. */
int engine_drain(engine_t *engine, void (*handle)(void *context, const event_t *event),
                 void *context);
/* Loop thread, with options.trace: trace_drain of what happened to the requests. After engine_drain
 * it has the FINISHED record of every request whose EVENT_DONE was drained. Returns 0 otherwise. */
uint64_t engine_trace(engine_t *engine, void (*handle)(void *context, const trace_record_t *record),
                      void *context);

/* A device of a model that sleeps: engine_options_t.sleep_space_bytes. */
typedef struct engine_sleep {
  bool can;          /* by the options */
  bool sleeps;       /* the device has given its memory back */
  bool wished;       /* it sleeps once nothing runs, or does so until something comes */
  unsigned answered; /* what engine_sleep returned, of the last wish that is settled */
  int code;          /* of that: 0, ERR_NO_MEMORY, ERR_DEVICE_FAILED */
  int64_t host_bytes, given_bytes; /* of the last sleep: what the host keeps, the device has back */
} engine_sleep_t;
/* Loop thread, READY, only where it can: has the device sleep once no request runs or waits, or
 * wakes it up, as any request does. Returns the number of this wish; options.wake is called when it
 * is settled. */
unsigned engine_sleep(engine_t *engine, bool sleeps);
void engine_asleep(const engine_t *engine, engine_sleep_t *out); /* any thread */

/* Seconds since the start of the memory cgroup, or of the machine, in which some, or all, of its
 * tasks waited for memory. False when the kernel does not say. Any thread. */
bool engine_memory_pressure(double *some_s, double *full_s);

#endif
