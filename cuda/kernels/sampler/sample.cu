/* sample.cu: masks, penalties, temperature, min_p, top_k, top_p, the draw and logprobs of one row.
 *
 * logits (S, V) fp32 -> results (S). One block computes one row, in passes over the row, which
 * stays in L2: a pass reads 4 V bytes; a greedy row takes one pass, any other two where its
 * candidates decide (sample_list.h): they are the ids that top_k and top_p may leave, and only they
 * are looked at further. Where they do not, radix selection finds the thresholds in about ten
 * passes more (sample_select.h): the bits of a float are mapped to an unsigned integer of the same
 * order, whose four bytes are decided one after the other. The draw is the argmax of
 * l / T - log(e), e exponentially distributed (engine/sample/sampler.h); 16 random bits rule out
 * nearly all ids before a logarithm is computed. Measured: not yet.
 */
#include "cuda/device_code/random.h"
#include "cuda/kernels/sampler/sample_list.h"
#include "cuda/kernels/sampler/sample_select.h"

#define GREEDY_BELOW 1e-5f
#define LOGPROB_MIN (-9999.0f)

GPU_FN bool valid_id(const sample_work_t &work, int32_t id) {
  return id >= 0 && id < work.vocab;
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

GPU_FN void apply_suppressed(const sample_work_t &work, const gpu_sample_row_t &row) {
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
  /* Each row of PENALTY as a variable: one that is not used below does not compile. */
#define TAKE_DRAW(name)
#define TAKE_PENALTY(name) const float name = row.name;
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) TAKE_##kind(name)
#include "engine/device/sampling.def"
#undef TAKE_DRAW
#undef TAKE_PENALTY
  for (int i = first + threadIdx.x; i < last; i += SAMPLE_THREADS) {
    const int32_t id = history_id(row, i);
    if (!valid_id(work, id)) continue;
    const int32_t count = atomicExch(&work.counts[id], -1);
    if (count < 0) continue;
    float l = work.logits[id];
    if (repetition_penalty != 1.0f) l = l > 0.0f ? l / repetition_penalty : l * repetition_penalty;
    if (count > 0) { /* rounded as on the host: no fma */
      l = add_rn(l, -mul_rn(frequency_penalty, (float)count));
      l -= presence_penalty;
    }
    work.logits[id] = l;
  }
  __syncthreads();
}

GPU_FN bool has_penalties(const gpu_sample_row_t &row) {
  enum { DRAW, PENALTY };
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  if ((kind) == PENALTY && row.name != (noop)) return true;
#include "engine/device/sampling.def"
  return false;
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

/* The last of the ids of the logit `value` that remain, in order of id. */
GPU_FN int32_t find_tie(const sample_work_t &work, float value, double target,
                        unsigned long long above, unsigned long long weight) {
  SHARED(ties, int32_t[SAMPLE_THREADS]);
  SHARED(found, int32_t);
  const int each = (work.vocab + SAMPLE_THREADS - 1) / SAMPLE_THREADS;
  const int first = threadIdx.x * each,
            last = first + each < work.vocab ? first + each : work.vocab;
  int32_t mine = 0, before = 0;
  for (int i = first; i < last; i++) mine += work.logits[i] == value;
  ties[threadIdx.x] = mine;
  __syncthreads();
  for (int i = 0; i < (int)threadIdx.x; i++) before += ties[i];
  const int32_t wanted = ties_kept(target, above, weight, block_total<int32_t>(mine));
  if (before < wanted && before + mine >= wanted) {
    for (int i = first; i < last; i++) {
      if (work.logits[i] != value || ++before < wanted) continue;
      found = i;
      break;
    }
  }
  __syncthreads();
  return found;
}

/* top_k if k > 0, and top_p, by passes over the row. */
GPU_FN void select_filter(const sample_work_t &work, const gpu_sample_row_t &row, int k,
                          gpu_filter_t *filter) {
  const float scale = 1.0f / row.temperature;
  int32_t left = 0;
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    left += work.logits[i] >= filter->cut;
  if (k > 0 && block_total<int32_t>(left) >= k)
    filter->cut = select_weight(work, filter->cut, 0, k).value;
  if (row.top_p >= 1.0f) return;
  for (int i = threadIdx.x; i < work.vocab; i += SAMPLE_THREADS)
    if (work.logits[i] >= filter->cut) mine += weight_of(work, work.logits[i], scale);
  const double target = (double)row.top_p * (double)block_total<unsigned long long>(mine);
  const gpu_selection_t edge = select_weight(work, filter->cut, scale, target);
  filter->cut = edge.value;
  filter->last_tie =
      find_tie(work, edge.value, target, edge.above, weight_of(work, edge.value, scale));
}

/* top_k if k > 0, and top_p, by the list. False if the list does not decide. */
GPU_FN bool list_filter(const sample_work_t &work, const gpu_sample_row_t &row, int k,
                        sample_list_t &list, gpu_filter_t *filter) {
  const float scale = 1.0f / row.temperature;
  const bool sums = k == 0 && row.top_p < 1.0f;
  gpu_filter_t found = *filter;
  bound_list(work, k > 0 ? k : (int)LIST_RANK, list);
  unsigned long long total = fill_list(work, found.cut, scale, sums, list);
  if (list.count > LIST_MAX) return false;
  if (k > 0) found.cut = fmaxf(found.cut, list_highest(k, list));
  if (row.top_p < 1.0f) {
    const unsigned long long listed = weigh_list(work, found.cut, scale, list);
    if (!sums) total = listed;
    const double target = (double)row.top_p * (double)total;
    if (!cut_list(target, found.cut >= list.bound, list)) return false;
    found.cut = list.cut;
    found.last_tie = list_tie(found.cut, target, weight_of(work, found.cut, scale), list);
  }
  *filter = found;
  return true;
}

/* Returns the filters of a row; *is_listed tells that every id that remains is in the list. */
GPU_FN gpu_filter_t make_filter(const sample_work_t &work, const gpu_sample_row_t &row,
                                sample_list_t &list, bool *is_listed) {
  /* The same of the rows of DRAW. */
#define TAKE_DRAW(name) const float name = row.name;
#define TAKE_PENALTY(name)
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) TAKE_##kind(name)
#include "engine/device/sampling.def"
  gpu_filter_t filter = {-INFINITY, INT32_MAX};
  const int k = row.top_k > 0 && row.top_k < work.vocab ? row.top_k : 0;
  *is_listed = false;
  if (min_p > 0.0f) {
    const float cut = (float)((double)work.max + (double)temperature * log((double)min_p));
    filter.cut = cut < work.max ? cut : work.max;
  }
  if (k == 0 && top_p >= 1.0f) return filter;
  if (k <= LIST_RANK) *is_listed = list_filter(work, row, k, list, &filter);
  if (!*is_listed) select_filter(work, row, k, &filter);
  return filter;
}

/* ---- draw ---- */

/* Returns (l - max) / T - log(e) with e = -log(1 - u), u uniform in [0, 1). */
GPU_FN double draw_score(const sample_work_t &work, uint64_t stream, double inverse_t, int32_t id) {
  const double e = -log1p(-device_random_uniform(stream, (uint32_t)id));
  return ((double)work.logits[id] - (double)work.max) * inverse_t - log(e);
}

/* What the threads of a draw share. */
typedef struct gpu_draw {
  gpu_filter_t filter;
  uint64_t stream;
  double inverse_t;
} gpu_draw_t;

/* False if id i cannot win. Because e >= u, an id can beat a score only if
 * u < exp(-score) * weight, weight = exp((l - max) / T); so most ids need no logarithm, and none
 * of them a double, of which many cards compute one where they compute 64 floats. */
GPU_FN bool may_win(const sample_work_t &work, const gpu_draw_t &draw, float logit, int32_t i,
                    float win) {
  if (!remains(draw.filter, logit, i)) return false;
  const float bound = win * expf((logit - work.max) * (float)draw.inverse_t) * 65536.0f;
  return (float)device_random_coarse(draw.stream, (uint32_t)i) <= bound;
}

/* exp(-score), and 1.0002 times as much for the roundings of the weight and of the bound. The best
 * id has a score above -4, so it is a float. */
GPU_FN float win_of(double score) {
  return (float)(exp(-score) * 1.0002);
}

/* Keeps id i in `best` if it wins. */
GPU_FN void try_id(const sample_work_t &work, const gpu_draw_t &draw, int32_t i, best_t *best,
                   float *win) {
  if (!may_win(work, draw, work.logits[i], i, *win)) return;
  const double score = draw_score(work, draw.stream, draw.inverse_t, i);
  if (score < best->score || (score == best->score && i >= best->id)) return;
  *best = {score, i};
  *win = win_of(score);
}

/* Draws an id among those that the filters leave; every thread begins with the score of the best
 * id. */
GPU_FN int32_t draw_id(const sample_work_t &work, const gpu_sample_row_t &row,
                       sample_list_t &list) {
  bool is_listed;
  const gpu_filter_t filter = make_filter(work, row, list, &is_listed);
  const gpu_draw_t draw = {filter, device_random_stream(row.rng_key, row.rng_position),
                           1.0 / (double)row.temperature};
  best_t mine = {draw_score(work, draw.stream, draw.inverse_t, work.best_id), work.best_id};
  float win = win_of(mine.score);
  if (is_listed) {
    for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS)
      try_id(work, draw, list.ids[c], &mine, &win);
    return block_best(mine).id;
  }
  for (int at = threadIdx.x; at < work.vocab; at += CHUNK) {
    float l[AHEAD];
    unsigned left = 0;
    load_chunk(work, work.logits, at, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) {
      const int i = at + j * SAMPLE_THREADS;
      if (i < work.vocab && may_win(work, draw, l[j], i, win)) left |= 1u << j;
    }
    for (; left != 0; left &= left - 1)
      try_id(work, draw, at + (__ffs((int)left) - 1) * SAMPLE_THREADS, &mine, &win);
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
  for (int at = threadIdx.x; at < work.vocab; at += CHUNK) {
    float l[AHEAD];
    load_chunk(work, work.logits, at, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) mine += (double)expf(l[j] - work.max); /* + 0 beyond the end */
  }
  return (double)work.max + log(block_total<double>(mine));
}

/* Writes the `count` ids with the highest logits by a pass over the row for each. */
GPU_FN void search_top(const sample_work_t &work, int count, double log_sum,
                       gpu_sample_top_t *top) {
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
}

/* The same from the list of candidates. */
GPU_FN void rank_top(int count, double log_sum, const sample_list_t &list, gpu_sample_top_t *top) {
  for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS) {
    const int rank = list_rank(list, c);
    if (rank >= count) continue;
    top->ids[rank] = list.ids[c];
    top->logprobs[rank] = logprob_of(list.logits[c], log_sum);
  }
  __syncthreads(); /* one thread adds the requested ids */
}

/* Writes the ids with the highest logits, best first, then the requested ids that are not among
 * them. The row has not been changed yet. */
GPU_FN void fill_top(const sample_work_t &work, const gpu_sample_row_t &row, double log_sum,
                     sample_list_t &list, gpu_sample_result_t *result, gpu_sample_top_t *top) {
  const int limit = row.num_top < GPU_SAMPLE_TOP_MAX ? row.num_top : GPU_SAMPLE_TOP_MAX;
  int count = limit < work.vocab ? limit : work.vocab;
  if (count > 0) {
    bound_list(work, count, list);
    fill_list(work, 0.0f, 0.0f, false, list);
    if (list.count <= LIST_MAX)
      rank_top(count, log_sum, list, top);
    else
      search_top(work, count, log_sum, top);
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
  for (int at = threadIdx.x; at < work.vocab; at += CHUNK) {
    float l[AHEAD];
    load_chunk(work, raw, at, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) larger += l[j] > raw[id]; /* none beyond the end */
  }
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
  SHARED(list, sample_list_t);
  if (row.score_id == GPU_SAMPLE_PADDING) return finish_row(result, 0, GPU_SAMPLE_OK);
  scan_row(work);
  if (work.best_id < 0) return finish_row(result, 0, GPU_SAMPLE_NO_LOGITS);
  if (row.allowed_mask != nullptr) {
    apply_mask(work, row.allowed_mask);
    scan_row(work);
  }
  resolve_infinity(work);
  if (work.max == -INFINITY) {
    const bool masked = row.allowed_mask != nullptr;
    return finish_row(result, 0, masked ? GPU_SAMPLE_NO_CHOICE : GPU_SAMPLE_NO_LOGITS);
  }
  const float *raw = work.logits;
  double log_sum = 0;
  if (row.num_top >= 0) {
    log_sum = log_sum_of(work);
    fill_top(work, row, log_sum, list, result, top);
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
    id = row.temperature < GREEDY_BELOW ? work.best_id : draw_id(work, row, list);
  }
  if (row.num_top >= 0) finish_logprobs(work, raw, id, log_sum, result);
  finish_row(result, id, GPU_SAMPLE_OK);
}

/* Writes the row's result to the host's memory, too, so that no copy follows the step. */
GPU_FN void hand_to_host(const gpu_sample_row_t &row, const gpu_sample_result_t *result,
                         const gpu_sample_top_t *top) {
  if (row.host_result == nullptr) return;
  if (threadIdx.x == 0) *row.host_result = *result;
  if (row.num_top < 0) return;
  __syncthreads(); /* the first thread wrote how many alternatives there are */
  for (int i = threadIdx.x; i < result->num_top; i += SAMPLE_THREADS) {
    row.host_top->ids[i] = top->ids[i];
    row.host_top->logprobs[i] = top->logprobs[i];
  }
}

__global__ void __launch_bounds__(SAMPLE_THREADS, 1)
    sample_kernel(float *logits, int32_t vocab, const gpu_sample_row_t *rows, uint32_t *scratch,
                  gpu_sample_result_t *results, gpu_sample_top_t *tops) {
  grid_dependency_begin();
  uint32_t *mine = scratch + blockIdx.x * 2 * (size_t)vocab;
  sample_work_t work = {logits + (size_t)blockIdx.x * vocab,
                        (float *)mine,
                        (int32_t *)mine + vocab,
                        vocab,
                        -INFINITY,
                        -1,
                        -INFINITY};
  gpu_sample_result_t *result = &results[blockIdx.x];
  if (threadIdx.x == 0) {
    result->num_top = 0;
    result->rank = vocab;
    result->logprob = LOGPROB_MIN;
    result->log_sum = 0;
  }
  sample_row(work, rows[blockIdx.x], result, &tops[blockIdx.x]);
  hand_to_host(rows[blockIdx.x], result, &tops[blockIdx.x]);
}

size_t gpu_sample_scratch_bytes(int32_t vocab) {
  return 2 * (size_t)vocab * sizeof(uint32_t);
}

int gpu_sample(float *logits, int32_t vocab, const gpu_sample_row_t *rows, int32_t num_rows,
               void *scratch, gpu_sample_result_t *results, gpu_sample_top_t *tops,
               gpu_stream_t stream) {
  if (vocab <= 0 || num_rows < 0) return cudaErrorInvalidValue;
  if (num_rows == 0) return cudaSuccess;
  return LAUNCH_OVERLAPPED(sample_kernel, ((unsigned)num_rows), (SAMPLE_THREADS), 0, stream, logits,
                           vocab, rows, (uint32_t *)scratch, results, tops);
}
