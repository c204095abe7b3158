/* sample.h: one row of logits on the device -> one token id and its logprobs, without a copy back.
 *
 * The launcher of sample.cu, callable from C. Semantics and order of operations are those of
 * engine/sample/sampler.h; the same random numbers, so the same ids except where two scores differ
 * in the last digits of a double. All pointers are device memory, but for those to the host's.
 * Engine thread.
 */
#ifndef INFERD_CUDA_KERNELS_SAMPLE_H
#define INFERD_CUDA_KERNELS_SAMPLE_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_SAMPLE_TOP_MAX = 20, GPU_SAMPLE_IDS_MAX = 128 };
/* Status of a row: the model said nothing usable (ERR_INTERNAL), or the request forbids every id
 * (ERR_NO_CHOICE). The id is then 0. */
enum { GPU_SAMPLE_OK, GPU_SAMPLE_NO_LOGITS, GPU_SAMPLE_NO_CHOICE };

typedef struct gpu_sample_bias {
  int32_t id;
  float bias;
} gpu_sample_bias_t;

typedef struct gpu_sample_result {
  int32_t id, status;
  float logprob; /* raw log-softmax of id, at least -9999; only if num_top >= 0 */
  int32_t rank;
  int32_t num_top; /* entries of the row's gpu_sample_top_t */
  double log_sum;  /* logarithm of the sum of exp(raw logit); only if num_top >= 0 of the row */
} gpu_sample_result_t;

typedef struct gpu_sample_top {
  int32_t ids[GPU_SAMPLE_TOP_MAX + GPU_SAMPLE_IDS_MAX];
  float logprobs[GPU_SAMPLE_TOP_MAX + GPU_SAMPLE_IDS_MAX];
} gpu_sample_top_t;

/* Score of a row that pads a captured graph: nothing is read, its result says id 0. */
enum { GPU_SAMPLE_PADDING = -2 };

/* One row; ids outside the vocabulary are ignored everywhere. The tokens so far are num_prompt +
 * num_output ids: entry i is history[blocks[i / block_size] * block_size + i % block_size], as the
 * ids stand in the slots of the KV cache; with blocks NULL it is history[i]. */
typedef struct gpu_sample_row {
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) float name;
#include "engine/device/sampling.def"
  int32_t top_k;
  int32_t score_id; /* >= 0: no draw, report this id; -1: draw; GPU_SAMPLE_PADDING */
  int32_t num_top;  /* alternatives, at most GPU_SAMPLE_TOP_MAX; -1 = no logprobs */
  uint64_t rng_key, rng_position;
  const uint32_t *allowed_mask; /* grammar: bit per id, or NULL */
  const uint32_t *allowed_ids;  /* of the request: bit per id, or NULL */
  const int32_t *suppressed_ids, *logprob_ids;
  const gpu_sample_bias_t *logit_bias;
  const int32_t *bad_words; /* [num_bad_words] times: length, then that many ids */
  const int32_t *history, *blocks;
  int32_t num_suppressed, num_prompt, num_output, num_logprob_ids;
  int32_t num_bias, num_bad_words, block_size;
  gpu_sample_result_t *host_result; /* pinned memory that gets the result, too, and the */
  gpu_sample_top_t *host_top;       /* alternatives, the first num_top of them; or NULL, both */
} gpu_sample_row_t;

/* Bytes of scratch of one row; the contents never matter between calls. */
size_t gpu_sample_scratch_bytes(int32_t vocab);
/* results[rows] and tops[rows] from logits[rows, vocab] (fp32, overwritten). */
int gpu_sample(float *logits, int32_t vocab, const gpu_sample_row_t *rows, int32_t num_rows,
               void *scratch, gpu_sample_result_t *results, gpu_sample_top_t *tops,
               gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
