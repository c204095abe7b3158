/* sampler_draw.c: stage 7 of 9, continued: temperature, min_p, top_k, top_p and the draw itself.
 *
 * Worker threads, one row per call; allocates nothing and sorts nothing. A filter is a cut (l >=
 * cut), which radix selection finds among the logits of the blocks with the largest tops. The draw
 * reads only blocks that can hold the winner. Both give exactly the result of the plain definition.
 * Next: sampler.c, which computes the logprobs.
 */
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/device/sampling_params.h"
#include "engine/sample/sampler_work.h"

/* The ids that pass the filters: l > cut, or l == cut and id <= last_tie. */
typedef struct draw_filter {
  float cut;
  int32_t last_tie;
} draw_filter_t;

/* ---- selection ---- */

/* Maps floats to unsigned numbers in the same order; -0 and +0 map to the same number. */
static uint32_t order_key(float value) {
  uint32_t bits;
  value += 0.0f;
  memcpy(&bits, &value, sizeof bits);
  return bits ^ (bits >> 31 != 0 ? UINT32_MAX : UINT32_C(0x80000000));
}

/* Where a selection stops. The entries above `value` weigh `above` in total; `ties` entries are
 * equal to `value` and weigh `weight` each. */
typedef struct selection {
  float value;
  double above;
  int32_t ties;
  double weight;
} selection_t;

/* Finds the largest value of values[0..n) such that the entries >= this value weigh at least
 * `target` together: each weighs 1, or weights[i]. If all entries together weigh less, finds the
 * smallest value whose weight is not 0. Radix selection on 11, 11 and 10 bits of the key: linear
 * time for any values; overwrites the arrays. (The last digit reads one bit of the second digit
 * again; that bit is equal for all entries left by then.) */
static selection_t select_weight(work_t *work, int32_t n, bool weighted, double target) {
  static const int shifts[] = {21, 10, 0};
  double above = 0;
  for (int level = 0; level < 3; level++) {
    memset(work->digits, 0, DIGITS * sizeof *work->digits);
    for (int32_t i = 0; i < n; i++) {
      uint32_t digit = (order_key(work->values[i]) >> shifts[level]) & (DIGITS - 1);
      work->digits[digit] += weighted ? (double)work->weights[i] : 1.0;
    }
    int chosen = -1;
    for (int digit = DIGITS - 1; digit >= 0; digit--) {
      if (work->digits[digit] == 0) continue;
      if (chosen >= 0) above += work->digits[chosen];
      chosen = digit;
      if (above + work->digits[digit] >= target) break;
    }
    int32_t left = 0;
    for (int32_t i = 0; i < n; i++) {
      uint32_t digit = (order_key(work->values[i]) >> shifts[level]) & (DIGITS - 1);
      if ((int)digit != chosen) continue;
      work->values[left] = work->values[i];
      if (weighted) work->weights[left] = work->weights[i];
      left++;
    }
    n = left;
  }
  double weight = weighted ? (double)work->weights[0] : 1.0;
  return (selection_t){work->values[0], above, n, weight};
}

/* Returns a value that at least `count` logits reach: the count-th largest block top; -infinity if
 * there are fewer than `count` blocks. */
static float bound_of_top(work_t *work, int32_t count) {
  if (count > work->num_blocks) return -INFINITY;
  memcpy(work->values, work->block_top, (size_t)work->num_blocks * sizeof *work->values);
  return select_weight(work, work->num_blocks, false, count).value;
}

/* Copies the logits >= bound to `values`, in order of id. Returns how many. */
static int32_t collect(work_t *work, float bound) {
  int32_t n = 0;
  for (int32_t b = 0; b < work->num_blocks; b++) {
    if (work->block_top[b] < bound) continue;
    const float *l = work->logits + (size_t)b * BLOCK;
    int32_t length = block_length(work, b);
    for (int32_t i = 0; i < length; i++) {
      work->values[n] = l[i];
      n += l[i] >= bound;
    }
  }
  return n;
}

static void filter_min_p(const work_t *work, float min_p, float temperature,
                         draw_filter_t *filter) {
  if (min_p <= 0.0f) return;
  double offset = (double)temperature * log((double)min_p);
  float cut = (float)((double)work->max + offset);
  filter->cut = MIN(cut, work->max);
}

static void filter_top_k(work_t *work, int32_t top_k, draw_filter_t *filter) {
  if (top_k <= 0 || top_k >= work->vocab) return;
  float bound = bound_of_top(work, top_k);
  int32_t n = collect(work, MAX(bound, filter->cut));
  if (n < top_k) return; /* min_p left fewer than k */
  filter->cut = select_weight(work, n, false, top_k).value;
}

/* top_p drops ids in ascending order as long as the dropped ids weigh <= 1 - top_p. So, in
 * descending order, an id is kept if the ids before it weigh less than top_p. Candidates are the
 * logits above the 32nd, then the 256th largest block top, then all, until they weigh enough. */
static void filter_top_p(work_t *work, float top_p, float temperature, draw_filter_t *filter) {
  static const int32_t growth[] = {32, 256, INT32_MAX};
  if (top_p >= 1.0f) return;
  float scale = 1.0f / temperature;
  double target = (double)top_p * work->lanes->sum(work->logits, work->vocab, work->block_top,
                                                   work->max, scale, filter->cut);
  int32_t n = 0;
  for (int round = 0; round < 3; round++) {
    float bound = bound_of_top(work, growth[round]);
    bool all = bound <= filter->cut;
    n = collect(work, all ? filter->cut : bound);
    work->lanes->weigh(work->values, n, work->max, scale, work->weights);
    if (all) break;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)work->weights[i];
    if (sum >= target) break;
  }
  selection_t edge = select_weight(work, n, true, target);
  double kept = ceil((target - edge.above) / edge.weight);
  filter->cut = edge.value;
  if (kept >= (double)edge.ties) return;
  int32_t left = kept < 1 ? 1 : (int32_t)kept;
  for (int32_t id = 0; id < work->vocab && left > 0; id++) {
    if (work->logits[id] != edge.value) continue;
    filter->last_tie = id;
    left--;
  }
}

/* ---- draw ---- */

typedef struct draw {
  uint64_t stream;
  double inverse_t;
  draw_filter_t filter;
  int32_t id;
  double score;
  double win; /* exp(-score): an id beats the score only if e < win * exp((l - max) / T) */
} draw_t;

/* Computes the exact score of one id, (l - max) / T - log(e) with e = -log(1 - u), and keeps the id
 * if it is the best so far. */
static void try_id(const work_t *work, draw_t *draw, int32_t id) {
  float l = work->logits[id];
  if (l < draw->filter.cut || (l == draw->filter.cut && id > draw->filter.last_tie)) return;
  double e = -log1p(-random_uniform(draw->stream, (uint32_t)id));
  double score = ((double)l - (double)work->max) * draw->inverse_t - log(e);
  if (score > draw->score || (score == draw->score && id < draw->id)) {
    draw->id = id;
    draw->score = score;
    draw->win = exp(-score);
  }
}

/* Tries the ids of one block. Because e >= u, an id can win only if u < win * weight, and `bound`
 * is an upper limit of this product in the block. The coarse bits of u alone exclude nearly all
 * ids. */
static void try_block(const work_t *work, draw_t *draw, int32_t block, float bound) {
  const uint16_t limit = bound < 1.0f ? (uint16_t)(bound * 65536.0f) : 65535;
  uint32_t first_word = (uint32_t)(block * (BLOCK / RANDOM_IDS_PER_WORD));
  if (!work->lanes->any_coarse(draw->stream, first_word, limit)) return;
  int32_t length = block_length(work, block);
  for (int32_t i = 0; i < length; i += RANDOM_IDS_PER_WORD) {
    uint64_t word =
        random_coarse_word(draw->stream, first_word + (uint32_t)i / RANDOM_IDS_PER_WORD);
    for (int32_t j = i; j < length && j < i + RANDOM_IDS_PER_WORD;
         j++, word >>= RANDOM_COARSE_BITS) {
      if ((word & 0xFFFF) <= limit) try_id(work, draw, block * BLOCK + j);
    }
  }
}

int32_t sampler_draw(work_t *work, const sample_row_t *row) {
  /* Each row of DRAW as a variable: one that is not used below does not compile. */
#define TAKE_DRAW(name) const float name = row->params->name;
#define TAKE_PENALTY(name)
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) TAKE_##kind(name)
#include "engine/device/sampling.def"
  draw_t draw = {
      .filter = {-INFINITY, INT32_MAX}, .id = work->best_id, .score = -INFINITY, .win = INFINITY};
  filter_min_p(work, min_p, temperature, &draw.filter);
  filter_top_k(work, row->params->top_k, &draw.filter);
  filter_top_p(work, top_p, temperature, &draw.filter);
  draw.stream = random_stream(row->rng_key, row->rng_position);
  draw.inverse_t = 1.0 / (double)temperature;
  const float scale = (float)draw.inverse_t;
  work->lanes->weigh(work->block_top, work->num_blocks, work->max, scale, work->block_weight);
  try_id(work, &draw, work->best_id);
  for (int32_t b = 0; b < work->num_blocks; b++) {
    if (work->block_top[b] < draw.filter.cut) continue;
    /* The factor covers the rounding of the fp32 weight, whose exponent is at most 87. */
    double bound = draw.win * (double)work->block_weight[b] * 1.0001;
    try_block(work, &draw, b, bound < 1.0 ? (float)bound : 1.0f);
  }
  return draw.id;
}
