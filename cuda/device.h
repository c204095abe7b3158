/* device.h: what the host files of the CUDA back end share: the device and its operations.
 *
 * Everything runs on the engine thread. Set-up allocates and may fail. A step never allocates: it
 * packs the batch into pinned memory, sends it or lets the device fetch it, and launches. `end`
 * alone waits, and reports `fault`, the first error of a launch, behind which others are skipped.
 */
#ifndef INFERD_CUDA_DEVICE_H
#define INFERD_CUDA_DEVICE_H

#include "cuda/kernels/attention.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/sample.h"
#include "cuda/kernels/state/state.h"
#include "engine/device/ops.h"

#include <cuda_runtime_api.h>

enum {
  STEPS_IN_FLIGHT_MAX = 2, /* steps between begin and end at most */
  ROPES_MAX = 4,           /* distinct rotary settings of a model */
  WINDOWS_MAX = 4,         /* distinct attention windows of a model */
  GRAPHS_MAX = 128,        /* captured decode steps: sizes, with adapters and without */
  PACKET_ALIGN = 16,       /* of every array in a packet */
  DESCRIPTION_MAX = 160
};

struct weight {
  void *data; /* device, [rows, cols], or as `packed` says */
  int64_t rows, cols;
  gpu_packed_t packed;
};

struct vector {
  float *values; /* device, [count] */
  void *narrow;  /* device, the same in the type of the weights; NULL before the first weight */
  int64_t count;
};

/* cos and sin of the positions of the step, for one rotary setting. */
typedef struct rope_slot {
  const rope_t *rope;          /* NULL = free */
  float *inv_freq, *host_freq; /* [head_dim / 2] device; host, what that is copied from */
  float *table;                /* device, [tokens, dims / 2, 2] */
  bool is_filled;              /* in this step */
} rope_slot_t;

/* The plan of attention for one window and group of heads. */
typedef struct window_slot {
  int32_t window; /* -1 = free */
  int32_t group;  /* query heads of a KV head */
  gpu_plan_t plan;
  bool is_filled;
} window_slot_t;

/* State of one step until its `end`. */
typedef struct cuda_step {
  uint8_t *packet;               /* of host_packets: the one whose turn it is */
  gpu_sample_result_t *results;  /* pinned, [tokens_max] */
  gpu_sample_top_t *tops;        /* pinned, [tokens_max] */
  sample_result_t **targets;     /* [tokens_max] where results go at `end` */
  int32_t *num_sorted;           /* [tokens_max] alternatives that the launch wrote; 0 = none */
  int32_t num_results, num_tops; /* 1 + the last row that asks for alternatives */
  bool is_sealed;                /* launched whole, `done` recorded */
  cudaEvent_t done;
} cuda_step_t;

/* How a step runs: launch by launch, captured into a graph, or as the replay of a graph. */
typedef enum step_mode { STEP_EAGER, STEP_CAPTURE, STEP_REPLAY } step_mode_t;

typedef struct step_graph {
  int32_t tokens; /* of the decode step that was captured */
  bool is_adapted, draws;
  cudaGraphExec_t exec;
} step_graph_t;

/* Host memory through which weights are copied to the device. */
typedef struct cuda_staging {
  uint8_t *halves[2]; /* pinned */
  cudaEvent_t free[2];
  size_t bytes; /* of a half */
  int next;
} cuda_staging_t;

struct device {
  char description[DESCRIPTION_MAX];
  int index, multiprocessors, num_threads /* that gather weights */;
  cudaStream_t stream;
  void **memory;                                                /* device allocations, for close */
  size_t taken, taken_by_weights, taken_by_kv, taken_by_graphs; /* bytes */
  void **pinned, **heap; /* heap: weight_t, vector_t and tables */
  size_t num_memory, room_memory, num_pinned, room_pinned, num_heap, room_heap;
  cuda_staging_t staging;
  bool is_batch_invariant, has_dtype, has_hopper_prefill /* _prefill_sm90 may run */;
  bool has_packed, unpacks /* its tensor cores outrun kernels that unpack */;
  dtype_t dtype; /* of weights, activations and cache: 16 bits */
  gpu_kv_t kv;
  struct swap_state *swap;      /* NULL = no host pool */
  struct sleep_state *sleep;    /* NULL = it never sleeps; sleep.h */
  struct host_experts *host;    /* host.h */
  struct exchange *exchange;    /* NULL = no other ranks; ranks/exchange.h */
  state_desc_t state;           /* num_slots 0 = the model has no states */
  float *states, *conv_borders; /* [num_slots][num_layers][of a layer, aligned]; of gpu_conv_t */
  step_limits_t limits;
  bool is_prepared;
  /* inputs of the step on the device; sizes of step_limits_t */
  uint8_t *packet, *host_packets[GPU_PACKETS]; /* [packet_max], those pinned */
  size_t packet_max, payload_max /* of one sampled row */;
  gpu_inputs_t inputs;
  int32_t *host_ids;           /* [2, vocab] its order, and scratch */
  int32_t *block_table_mirror; /* host, [reqs_max, stride] what the device's table holds */
  rope_slot_t ropes[ROPES_MAX];
  window_slot_t windows[WINDOWS_MAX];
  int32_t workers /* blocks of the decode grid */, block_table_stride;
  int32_t shared_rows_max; /* rows of the widest layer whose tiles several blocks may share */
  float *linear_partial;   /* of gpu_skinny_t, as tickets */
  int32_t *tickets;
  uint32_t *attention_tickets; /* of gpu_attention_t */
  struct blas *blas;           /* NULL = the own kernels do all products */
  void *unpacked;              /* [unpacked_bytes] a slice of a packed matrix; NULL = none is */
  size_t unpacked_bytes;
  float *partial, *partial_state, *logits /* [logits_rows_max, vocab] */;
  float *host_logits, *lora_low; /* pinned, [vocab] of a row; [tokens_max, lora_stride] */
  int32_t lora_stride;           /* widest rank of an adapter's layer; 0 = no adapters */
  int32_t *lora_factors;         /* host, [slots + 1] layers in which the adapter has factors */
  void *experts, *scratch;       /* of gpu_moe; of the sampler, [logits_rows_max] rows */
  gpu_sample_result_t *results;  /* [tokens_max] of the newest step */
  gpu_sample_top_t *tops;
  /* the step being launched */
  const batch_t *batch;
  cuda_step_t steps[STEPS_IN_FLIGHT_MAX], *step;
  uint64_t num_begun, num_ended, num_spread /* steps whose packet a kernel reads */;
  size_t packed, sent; /* bytes of the packet in use, and of them sent */
  size_t samples_at;   /* byte of the first gpu_sample_row_t */
  step_mode_t mode;
  int32_t selected_rows; /* of the step: those of the batch, or of the graph */
  int32_t num_prefill_tiles /* query tiles of the batch */, decode_queries;
  bool has_decodes, is_warming_up, is_launched /* the graph of a replay */;
  step_graph_t graphs[GRAPHS_MAX];
  int32_t num_graphs;
  const step_graph_t *graph; /* of this step's replay */
  int32_t warm_up;           /* index of the current or next warm-up run */
  int fault;                 /* first cudaError_t, sticky */
  const char *fault_at;
};

/* Returns true if a step function must launch: a replay launches everything at once. */
static inline bool device_is_live(const device_t *device) {
  return device->fault == 0 && device->mode != STEP_REPLAY;
}
static inline void device_note(device_t *device, int status, const char *where) {
  if (status == 0 || device->fault != 0) return;
  device->fault = status;
  device->fault_at = where;
}

#endif
