/* operations.h: the functions of ops_cuda and what they share, file by file; see device.h.
 *
 * Those named cuda_ are entries of the table of engine/device/ops.h, which says what they do.
 * Engine thread.
 */
#ifndef INFERD_CUDA_OPERATIONS_H
#define INFERD_CUDA_OPERATIONS_H

#include "cuda/device.h"

/* memory.c. Zeroed memory that lives until close; 0 or ERR_NO_MEMORY with a message that names
 * `what`. A size of SIZE_MAX stands for an overflow. */
int device_take(device_t *device, void **out, size_t bytes, const char *what,
                inferd_error_t *error);
int device_take_pinned(device_t *device, void **out, size_t bytes, const char *what,
                       inferd_error_t *error);
int device_take_heap(device_t *device, void **out, size_t bytes, const char *what,
                     inferd_error_t *error);
void device_release(device_t *device); /* frees all memory */
/* first * second * third, or SIZE_MAX. */
size_t device_product(size_t first, size_t second, size_t third);
/* ERR_DEVICE_FAILED or ERR_NO_MEMORY from a cudaError_t. */
int device_error(int status, const char *what, inferd_error_t *error);

/* weight.c */
int cuda_weight(device_t *device, const weight_source_t *source, weight_t **out,
                inferd_error_t *error);
int cuda_vector(device_t *device, const float *values, int64_t count, vector_t **out,
                inferd_error_t *error);
int weight_staging_release(device_t *device); /* after all copies: 0, or a cudaError_t */

/* weight_rows.c */
enum { WEIGHT_THREADS_MAX = 32 };
/* A matrix as the items that travel: rows, or panels of packed rows. */
typedef struct weight_items {
  const weight_source_t *source;
  gpu_packed_t packed;
  int64_t count;
  size_t bytes;            /* of an item */
  _Atomic bool is_beyond;  /* a packed number is beyond the run type */
  _Atomic bool is_inexact; /* scales of a panel are no short floats (packed.h) */
} weight_items_t;
/* Writes items [first, first + count) to `to`. `scratch` has scratch_bytes for each of
 * device->num_threads. Engine thread; cannot fail. */
void weight_rows(const device_t *device, weight_items_t *items, int64_t first, int64_t count,
                 uint8_t *to, uint8_t *scratch, size_t scratch_bytes);

/* prepare.c */
size_t cuda_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks);
int cuda_kv_cache(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error);
size_t cuda_workspace_bytes(const step_limits_t *limits);
int cuda_prepare(device_t *device, const step_limits_t *limits, inferd_error_t *error);
act_t *cuda_buffer(device_t *device, int64_t rows, int64_t width);

/* packet.c: host side of a step's inputs. */
void packet_build(device_t *device, const batch_t *batch);
void packet_send(device_t *device); /* sends the bytes packed since the last call */
/* Reserves `bytes` in the packet; *offset is their place. */
void *packet_room(device_t *device, size_t bytes, size_t *offset);

/* graph.c: captured decode steps. */
int32_t cuda_warm_up_rows(device_t *device, int32_t index);
void graph_choose(device_t *device,
                  const batch_t *batch); /* sets mode, rows and graph of the step */
void graph_begin_capture(device_t *device);
void graph_end_capture(device_t *device);
void graph_launch(device_t *device); /* when the packet is whole; once a step */
void graph_release(device_t *device);
/* Tokens of the largest graph. */
int32_t graph_tokens_max(const step_limits_t *limits);
/* Estimate of the bytes of all graphs, for the memory plan. */
size_t graph_bytes(const step_limits_t *limits);

/* device_report.c */
void cuda_report(const device_t *device, void (*say)(void *context, const char *line),
                 void *context);

/* linear.c */
void cuda_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows);
void cuda_fused_linear(device_t *device, act_t *out, const act_t *in, const fused_linear_t *linear,
                       int32_t rows);
void cuda_logits(device_t *device, const act_t *hidden, const weight_t *head, const vector_t *bias,
                 float softcap, int32_t first, int32_t rows);

/* ranks.c */
extern const rank_ops_t cuda_ranks;

/* unpacked.c; its launches are in blas.h */
size_t unpacked_bytes(const step_limits_t *limits);            /* of a slice; 0 = none */
int unpacked_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */

/* experts.c */
size_t experts_bytes(const step_limits_t *limits); /* of the workspace; 0 = none, or out of range */
int experts_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */
void cuda_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                    const act_t *residual, int32_t width, int32_t rows);
void cuda_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows);

/* lora.c */
extern const lora_ops_t cuda_lora_ops;
int cuda_lora_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */
/* Tokens with an adapter that has factors: the model launches more than a graph of adapters has. */
bool lora_has_factors(const device_t *device, const batch_t *batch);

/* state.c: device->state and what it takes; the entries of cuda_state are in state_ops.h. */
extern const state_ops_t cuda_state;
int states_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */
void cuda_state_copies(device_t *device, const gpu_state_copy_t *copies, int32_t num_copies);

/* attend.c */
void cuda_rope_store(device_t *device, act_t *qkv, const attention_t *attention);
/* What gpu_rope_store is told; the first call of a step makes the table of its rotary setting. */
gpu_rope_store_t rope_store_of(device_t *device, act_t *qkv, const attention_t *attention);
void cuda_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention);

/* draw.c */
size_t draw_payload_max(int32_t vocab); /* bytes of one row beyond gpu_sample_row_t */
void cuda_sample(device_t *device, const sample_row_t *rows, int32_t num_rows);
void draw_finish(cuda_step_t *step); /* copies the results to the places that the engine gave */
/* Returns true if a copy takes the results to the host: ranks agree about them after the sampler.
 * Otherwise it writes them to pinned memory, whose address is the same on the device. */
static inline bool device_copies_results(const device_t *device) {
  return device->exchange != NULL;
}

/* step.c */
void cuda_begin(device_t *device, const batch_t *batch);
int cuda_end(device_t *device, inferd_error_t *error);
void step_seal(device_t *device); /* launches the rest of the newest step */
void cuda_embed(device_t *device, act_t *out, const weight_t *table, float scale);
void cuda_embed_positions(device_t *device, act_t *out, const weight_t *table, int32_t offset);
void cuda_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows);
void cuda_activation(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows);
/* The kernels' name of an activation. */
gpu_activation_t activation_of(activation_t kind);
void cuda_gather(device_t *device, act_t *out, const act_t *in, int32_t width);
void cuda_read_logits(device_t *device, float *out, int32_t rows);

#endif
