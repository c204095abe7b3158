/* sample.cu: masks, penalties, temperature, min_p, top_k, top_p, the draw and logprobs of one row.
 *
 * logits (S, V) fp32 -> results (S). One block computes one row, in passes over the row, which
 * stays in L2: a pass reads 4 V bytes; a greedy row takes one pass, a row with top_k and top_p
 * about 12. A filter is a threshold on the logits. Radix selection finds it: the bits of a float
 * are mapped to an unsigned integer of the same order, whose four bytes are decided one after the
 * other. Probabilities are summed as integers (the largest is 2^40), so no sum depends on the order
 * of the threads. The draw is the argmax of l / T - log(e), e exponentially distributed
 * (engine/sample/sampler.h); 16 random bits rule out nearly all ids before a logarithm is computed.
 * Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/device_code/random.h"
#include "cuda/kernels/sample.h"

enum { SAMPLE_THREADS = 512, SAMPLE_WARPS = SAMPLE_THREADS / WARP, DIGITS = 256 };
#define GREEDY_BELOW 1e-5f
#define LOGPROB_MIN (-9999.0f)
#define ONE_WEIGHT 0x1p40

/* What a block knows of its row. Every thread has a copy, and the copies are equal. */
typedef struct sample_work {
  float *logits, *raw;
  int32_t *counts;
  uint32_t *mask;
  int32_t vocab;
  float max;
  int32_t best_id; /* lowest id that has max; -1 when a logit is NaN */
} sample_work_t;

typedef struct best {
  double score;
  int32_t id;
} best_t;

GPU_FN bool valid_id(const sample_work_t &work, int32_t id) {
  return id >= 0 && id < work.vocab;
}

/* Returns the highest score among the threads of the block, to every thread; the lowest id wins
 * ties. */
GPU_FN best_t block_best(best_t mine) {
  SHARED(bests, best_t[SAMPLE_WARPS]);
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    const double score = __shfl_xor_sync(FULL_WARP, mine.score, offset);
    const int32_t id = __shfl_xor_sync(FULL_WARP, mine.id, offset);
    if (score > mine.score || (score == mine.score && id < mine.id)) mine = {score, id};
  }
  if (threadIdx.x % WARP == 0) bests[threadIdx.x / WARP] = mine;
  __syncthreads();
  best_t best = bests[0];
  for (int i = 1; i < SAMPLE_WARPS; i++)
    if (bests[i].score > best.score || (bests[i].score == best.score && bests[i].id < best.id))
      best = bests[i];
  __syncthreads();
  return best;
}

template <class N> GPU_FN N block_total(N mine) {
  SHARED(totals, N[SAMPLE_WARPS]);
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    mine += __shfl_xor_sync(FULL_WARP, mine, offset);
  if (threadIdx.x % WARP == 0) totals[threadIdx.x / WARP] = mine;
  __syncthreads();
  N total = 0;
  for (int i = 0; i < SAMPLE_WARPS; i++) total += totals[i];
  __syncthreads();
  return total;
}

/* Sets max and best_id from the present logits. */
GPU_FN void scan_row(sample_work_t &work) {
  best_t mine = {-INFINITY, INT32_MAX};
  int has_nan = 0;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) {
    const float l = work.logits[i];
    if (l != l) has_nan = 1;
    if ((double)l > mine.score || mine.id == INT32_MAX) mine = {(double)l, i};
  }
  const best_t best = block_best(mine);
  work.max = (float)best.score;
  work.best_id = block_total<int32_t>(has_nan) > 0 ? -1 : best.id;
}

/* If logits are +infinity, their ids share all probability evenly. No barrier is needed: a thread
 * scans only the ids that it has written itself. */
GPU_FN void resolve_infinity(sample_work_t &work) {
  if (work.max != INFINITY) return;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    work.logits[i] = work.logits[i] == INFINITY ? 0.0f : -INFINITY;
  scan_row(work);
}

/* Sets the logits of masked ids to -infinity. A thread writes only the ids that it scans. */
GPU_FN void apply_mask(const sample_work_t &work, const uint32_t *mask) {
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    if ((mask[i / 32] >> (i % 32) & 1) == 0) work.logits[i] = -INFINITY;
}

/* ---- changes to the row ---- */

/* Returns token i of the prompt, followed by the output. */
GPU_FN int32_t history_id(const gpu_sample_row_t &row, int i) {
  if (row.blocks == nullptr) return row.history[i];
  const size_t block = (size_t)row.blocks[i / row.block_size];
  return row.history[block * row.block_size + i % row.block_size];
}

/* Bans the last id of each bad word if the output ends in the ids before it. */
GPU_FN void apply_bad_words(const sample_work_t &work, const gpu_sample_row_t &row) {
  const int32_t *word = row.bad_words;
  for (int i = 0; i < row.num_bad_words; i++, word += 1 + word[0]) {
    const int32_t prefix = word[0] - 1;
    if (i % SAMPLE_THREADS != (int)threadIdx.x || prefix < 0 || prefix > row.num_output) continue;
    bool matches = valid_id(work, word[1 + prefix]);
    for (int j = 0; j < prefix && matches; j++)
      matches = history_id(row, row.num_prompt + row.num_output - prefix + j) == word[1 + j];
    if (matches) work.logits[word[1 + prefix]] = -INFINITY;
  }
}

/* Returns true if the grammar allows no id that is not suppressed. The row then ignores its
 * suppressed ids, because no id would be left. */
GPU_FN bool only_suppressed_allowed(const sample_work_t &work, const gpu_sample_row_t &row) {
  if (row.allowed_mask == nullptr) return false;
  const int words = (work.vocab + 31) / 32;
  for (int i = threadIdx.x; i < words; i += SAMPLE_THREADS) work.mask[i] = row.allowed_mask[i];
  __syncthreads();
  for (int i = threadIdx.x; i < row.num_suppressed; i += SAMPLE_THREADS) {
    const int32_t id = row.suppressed_ids[i];
    if (valid_id(work, id)) atomicAnd(&work.mask[id / 32], ~(1u << (id % 32)));
  }
  __syncthreads();
  int left = 0;
  for (int i = threadIdx.x; i < words; i += SAMPLE_THREADS) {
    const bool cut = i == words - 1 && work.vocab % 32 != 0;
    left += (work.mask[i] & (cut ? (1u << (work.vocab % 32)) - 1 : 0xffffffffu)) != 0;
  }
  return block_total<int32_t>(left) == 0;
}

GPU_FN void apply_suppressed(const sample_work_t &work, const gpu_sample_row_t &row) {
  if (row.num_suppressed == 0 || only_suppressed_allowed(work, row)) return;
  for (int i = threadIdx.x; i < row.num_suppressed; i += SAMPLE_THREADS)
    if (valid_id(work, row.suppressed_ids[i])) work.logits[row.suppressed_ids[i]] = -INFINITY;
}

GPU_FN void apply_bias(const sample_work_t &work, const gpu_sample_row_t &row) {
  if (threadIdx.x == 0) /* one thread, because an id may occur twice */
    for (int i = 0; i < row.num_bias; i++)
      if (valid_id(work, row.logit_bias[i].id))
        work.logits[row.logit_bias[i].id] += row.logit_bias[i].bias;
  __syncthreads();
}

/* Applies the penalties of every token in [first, last) once. A token may occur several times: the
 * thread that takes its count (and leaves -1) applies them. */
GPU_FN void penalise(const sample_work_t &work, const gpu_sample_row_t &row, int first, int last) {
  for (int i = first + threadIdx.x; i < last; i += SAMPLE_THREADS) {
    const int32_t id = history_id(row, i);
    if (!valid_id(work, id)) continue;
    const int32_t count = atomicExch(&work.counts[id], -1);
    if (count < 0) continue;
    float l = work.logits[id];
    if (row.repetition_penalty != 1.0f)
      l = l > 0.0f ? l / row.repetition_penalty : l * row.repetition_penalty;
    if (count > 0) {
      l -= row.frequency_penalty * (float)count;
      l -= row.presence_penalty;
    }
    work.logits[id] = l;
  }
  __syncthreads();
}

GPU_FN bool has_penalties(const gpu_sample_row_t &row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

GPU_FN void apply_penalties(const sample_work_t &work, const gpu_sample_row_t &row) {
  if (!has_penalties(row)) return;
  const int output = row.num_prompt, last = row.num_prompt + row.num_output;
  const int first = row.repetition_penalty != 1.0f ? 0 : output;
  for (int i = first + threadIdx.x; i < last; i += SAMPLE_THREADS) {
    const int32_t id = history_id(row, i);
    if (valid_id(work, id)) atomicExch(&work.counts[id], 0);
  }
  __syncthreads();
  for (int i = output + threadIdx.x; i < last; i += SAMPLE_THREADS) {
    const int32_t id = history_id(row, i);
    if (valid_id(work, id)) atomicAdd(&work.counts[id], 1);
  }
  __syncthreads();
  penalise(work, row, first, last);
}

GPU_FN bool has_changes(const gpu_sample_row_t &row) {
  return row.allowed_ids != nullptr || row.num_bad_words > 0 || row.num_suppressed > 0 ||
         row.num_bias > 0 || has_penalties(row);
}

GPU_FN void apply_changes(sample_work_t &work, const gpu_sample_row_t &row) {
  if (row.allowed_ids != nullptr) apply_mask(work, row.allowed_ids);
  apply_bad_words(work, row);
  apply_suppressed(work, row);
  __syncthreads(); /* the steps above only write -infinity, so they need no barrier among them */
  apply_bias(work, row);
  apply_penalties(work, row);
  scan_row(work);
  resolve_infinity(work);
}

/* ---- filters ---- */

/* The tokens that remain: l > cut, or l == cut and id <= last_tie. */
typedef struct gpu_filter {
  float cut;
  int32_t last_tie;
} gpu_filter_t;

/* Maps a float to an unsigned number of the same order, and back; -0 and +0 are equal. */
GPU_FN uint32_t order_key(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
GPU_FN float order_value(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

GPU_FN unsigned long long weight_of(const sample_work_t &work, float logit, float scale) {
  return (unsigned long long)(expf((logit - work.max) * scale) * (float)ONE_WEIGHT);
}

/* The result of a selection: a logit, and the sum of the weights of all logits above it. */
typedef struct gpu_selection {
  float value;
  unsigned long long above;
} gpu_selection_t;

/* Returns the largest logit for which the logits that are at least as large have a sum of weights
 * of at least `target`. Logits below `cut` do not count. If the sum of all is below `target`, the
 * result is the smallest logit that counts. With scale 0 the weight of each logit is 1. A pass over
 * the row decides one byte of the key, the highest byte first. */
GPU_FN gpu_selection_t select_weight(const sample_work_t &work, float cut, float scale,
                                     double target) {
  SHARED(digits, unsigned long long[DIGITS]);
  SHARED(chosen, uint32_t);
  SHARED(weight, unsigned long long);
  uint32_t prefix = 0;
  unsigned long long above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < DIGITS; i += SAMPLE_THREADS) digits[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) {
      const float l = work.logits[i];
      const uint32_t key = order_key(l);
      if (l < cut || (shift < 24 && key >> (shift + 8) != prefix)) continue;
      atomicAdd(&digits[key >> shift & (DIGITS - 1)], scale == 0 ? 1 : weight_of(work, l, scale));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned long long sum = above, last_above = above;
      int last = 0;
      for (int digit = DIGITS - 1; digit >= 0; digit--) {
        if (digits[digit] == 0) continue;
        last = digit, last_above = sum;
        sum += digits[digit];
        if ((double)sum >= target) break;
      }
      chosen = (uint32_t)last;
      weight = last_above;
    }
    __syncthreads();
    prefix = prefix << 8 | chosen; /* safe to read: two barriers stand before the next write */
    above = weight;
  }
  return {order_value(prefix), above};
}

/* Of the ids whose logit equals `value` the first `kept` remain, in order of id. Returns the last
 * of them, or INT32_MAX if all remain. */
GPU_FN int32_t find_tie(const sample_work_t &work, float value, double kept) {
  SHARED(ties, int32_t[SAMPLE_THREADS]);
  SHARED(found, int32_t);
  const int each = (work.vocab + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
  const int first = threadIdx.x * each,
            last = first + each < work.vocab ? first + each : work.vocab;
  int32_t mine = 0, before = 0;
  for (int i = first; i < last; i++) mine += work.logits[i] == value;
  ties[threadIdx.x] = mine;
  if (threadIdx.x == 0) found = INT32_MAX;
  __syncthreads();
  for (int i = 0; i < (int)threadIdx.x; i++) before += ties[i];
  int32_t total = block_total<int32_t>(mine);
  if (kept < (double)total) {
    const int32_t wanted = kept < 1 ? 1 : (int32_t)kept;
    if (before < wanted && before + mine >= wanted) {
      for (int i = first; i < last; i++) {
        if (work.logits[i] != value || ++before < wanted) continue;
        found = i;
        break;
      }
    }
  }
  __syncthreads();
  return found;
}

GPU_FN gpu_filter_t make_filter(const sample_work_t &work, const gpu_sample_row_t &row) {
  gpu_filter_t filter = {-INFINITY, INT32_MAX};
  if (row.min_p > 0.0f) {
    const float cut = (float)((double)work.max + (double)row.temperature * log((double)row.min_p));
    filter.cut = cut < work.max ? cut : work.max;
  }
  if (row.top_k > 0 && row.top_k < work.vocab) {
    int32_t left = 0;
    for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
      left += work.logits[i] >= filter.cut;
    if (block_total<int32_t>(left) >= row.top_k)
      filter.cut = select_weight(work, filter.cut, 0, row.top_k).value;
  }
  if (row.top_p >= 1.0f) return filter;
  const float scale = 1.0f / row.temperature;
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    if (work.logits[i] >= filter.cut) mine += weight_of(work, work.logits[i], scale);
  const double target = (double)row.top_p * (double)block_total<unsigned long long>(mine);
  const gpu_selection_t edge = select_weight(work, filter.cut, scale, target);
  const double weight = (double)weight_of(work, edge.value, scale);
  filter.cut = edge.value;
  filter.last_tie = find_tie(work, edge.value, ceil((target - (double)edge.above) / weight));
  return filter;
}

/* ---- draw ---- */

/* Returns (l - max) / T - log(e) with e = -log(1 - u), u uniform in [0, 1). */
GPU_FN double draw_score(const sample_work_t &work, uint64_t stream, double inverse_t, int32_t id) {
  const double e = -log1p(-device_random_uniform(stream, (uint32_t)id));
  return ((double)work.logits[id] - (double)work.max) * inverse_t - log(e);
}

/* Draws an id among those that the filters leave. Because e >= u, an id can beat a score only if
 * u < exp(-score) * weight, weight = exp((l - max) / T); so most ids need no logarithm. Every
 * thread begins with the score of the best id. The factor 1.0001 covers the rounding of the weight.
 */
GPU_FN int32_t draw_id(const sample_work_t &work, const gpu_sample_row_t &row) {
  const gpu_filter_t filter = make_filter(work, row);
  const uint64_t stream = device_random_stream(row.rng_key, row.rng_position);
  const double inverse_t = 1.0 / (double)row.temperature;
  const float scale = (float)inverse_t;
  best_t mine = {draw_score(work, stream, inverse_t, work.best_id), work.best_id};
  double win = exp(-mine.score) * 1.0001;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) {
    const float l = work.logits[i];
    if (l < filter.cut || (l == filter.cut && i > filter.last_tie)) continue;
    const double bound = win * (double)expf((l - work.max) * scale) * 65536.0;
    if ((double)device_random_coarse(stream, (uint32_t)i) > bound) continue;
    const double score = draw_score(work, stream, inverse_t, i);
    if (score < mine.score || (score == mine.score && i >= mine.id)) continue;
    mine = {score, i};
    win = exp(-score) * 1.0001;
  }
  return block_best(mine).id;
}

/* ---- logprobs ---- */

GPU_FN float logprob_of(float logit, double log_sum) {
  const float logprob = (float)((double)logit - log_sum);
  return logprob > LOGPROB_MIN ? logprob : LOGPROB_MIN;
}

/* Returns the logarithm of the sum of exp(l). The terms are fp32, the sum is a double. */
GPU_FN double log_sum_of(const sample_work_t &work) {
  double mine = 0;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    mine += (double)expf(work.logits[i] - work.max);
  return (double)work.max + log(block_total<double>(mine));
}

/* Writes the ids with the highest logits, best first, then the requested ids that are not among
 * them. The row has not been changed yet. */
GPU_FN void fill_top(const sample_work_t &work, const gpu_sample_row_t &row, double log_sum,
                     gpu_sample_result_t *result, gpu_sample_top_t *top) {
  const int limit = row.num_top < GPU_SAMPLE_TOP_MAX ? row.num_top : GPU_SAMPLE_TOP_MAX;
  int count = limit < work.vocab ? limit : work.vocab;
  best_t last = {INFINITY, -1};
  for (int n = 0; n < count; n++) {
    best_t mine = {-INFINITY, INT32_MAX};
    for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) {
      const double l = (double)work.logits[i];
      const bool later = l < last.score || (l == last.score && i > last.id);
      if (later && (l > mine.score || mine.id == INT32_MAX)) mine = {l, i};
    }
    last = block_best(mine);
    if (threadIdx.x > 0) continue;
    top->ids[n] = last.id;
    top->logprobs[n] = logprob_of((float)last.score, log_sum);
  }
  if (threadIdx.x > 0) return;
  const int extra = row.score_id < 0 ? row.num_logprob_ids : 0;
  for (int i = 0; i < extra && i < GPU_SAMPLE_IDS_MAX; i++) {
    const int32_t id = row.logprob_ids[i];
    int seen = 0;
    if (!valid_id(work, id)) continue;
    while (seen < count && top->ids[seen] != id) seen++;
    if (seen < count) continue;
    top->ids[count] = id;
    top->logprobs[count++] = logprob_of(work.logits[id], log_sum);
  }
  result->num_top = count;
  result->log_sum = log_sum;
}

GPU_FN void finish_logprobs(const sample_work_t &work, const float *raw, int32_t id, double log_sum,
                            gpu_sample_result_t *result) {
  int32_t larger = 0;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) larger += raw[i] > raw[id];
  larger = block_total<int32_t>(larger);
  if (threadIdx.x > 0) return;
  result->logprob = logprob_of(raw[id], log_sum);
  result->rank = 1 + larger;
}

/* ---- one row ---- */

GPU_FN void finish_row(gpu_sample_result_t *result, int32_t id, int32_t status) {
  if (threadIdx.x > 0) return;
  result->id = id;
  result->status = status;
  if (status != GPU_SAMPLE_OK) result->num_top = 0;
}

GPU_FN void sample_row(sample_work_t &work, const gpu_sample_row_t &row,
                       gpu_sample_result_t *result, gpu_sample_top_t *top) {
  if (row.score_id == GPU_SAMPLE_PADDING) return finish_row(result, 0, GPU_SAMPLE_OK);
  scan_row(work);
  if (work.best_id < 0) return finish_row(result, 0, GPU_SAMPLE_NO_LOGITS);
  if (row.allowed_mask != nullptr) {
    apply_mask(work, row.allowed_mask);
    scan_row(work);
  }
  resolve_infinity(work);
  if (work.max == -INFINITY) return finish_row(result, 0, GPU_SAMPLE_NO_LOGITS);
  const float *raw = work.logits;
  double log_sum = 0;
  if (row.num_top >= 0) {
    log_sum = log_sum_of(work);
    fill_top(work, row, log_sum, result, top);
    if (row.score_id < 0 && has_changes(row)) {
      for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS) work.raw[i] = work.logits[i];
      raw = work.raw;
      __syncthreads();
    }
  }
  int32_t id = row.score_id < work.vocab ? row.score_id : 0;
  if (row.score_id < 0) {
    if (has_changes(row)) apply_changes(work, row);
    if (work.best_id < 0) return finish_row(result, 0, GPU_SAMPLE_NO_LOGITS);
    if (work.max == -INFINITY) return finish_row(result, 0, GPU_SAMPLE_NO_CHOICE);
    id = row.temperature < GREEDY_BELOW ? work.best_id : draw_id(work, row);
  }
  if (row.num_top >= 0) finish_logprobs(work, raw, id, log_sum, result);
  finish_row(result, id, GPU_SAMPLE_OK);
}

GPU_BOTH_FN size_t mask_words(int32_t vocab) {
  return ((size_t)vocab + 31) / 32;
}

__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_kernel(float *logits, int32_t vocab, const gpu_sample_row_t *__restrict__ rows,
                  uint32_t *scratch, gpu_sample_result_t *results, gpu_sample_top_t *tops) {
  const size_t words = 2 * (size_t)vocab + mask_words(vocab);
  uint32_t *mine = scratch + blockIdx.x * words;
  sample_work_t work = {logits + (size_t)blockIdx.x * vocab,
                        (float *)mine,
                        (int32_t *)mine + vocab,
                        mine + 2 * (size_t)vocab,
                        vocab,
                        -INFINITY,
                        -1};
  gpu_sample_result_t *result = &results[blockIdx.x];
  if (threadIdx.x == 0) {
    result->num_top = 0;
    result->rank = vocab;
    result->logprob = LOGPROB_MIN;
    result->log_sum = 0;
  }
  sample_row(work, rows[blockIdx.x], result, &tops[blockIdx.x]);
}

size_t gpu_sample_scratch_bytes(int32_t vocab) {
  return (2 * (size_t)vocab + mask_words(vocab)) * sizeof(uint32_t);
}

int gpu_sample(float *logits, int32_t vocab, const gpu_sample_row_t *rows, int32_t num_rows,
               void *scratch, gpu_sample_result_t *results, gpu_sample_top_t *tops,
               gpu_stream_t stream) {
  if (vocab <= 0 || num_rows < 0) return cudaErrorInvalidValue;
  if (num_rows == 0) return cudaSuccess;
  return LAUNCH(sample_kernel, ((unsigned)num_rows), (SAMPLE_THREADS), 0, stream, logits, vocab,
                rows, (uint32_t *)scratch, results, tops);
}
