/* sampler.c: stage 7 of 9, logits of one row -> token id, logprobs. Next: engine/commit.c.
 *
 * Runs on the back end's worker threads, one row per call; allocates nothing, knows no other row.
 *
 * A row of 150,000 logits is processed in blocks of 64. One pass finds NaNs and the largest logit
 * of each block (block_top). Afterwards the 2,400 block tops answer nearly every question: where
 * the best id is, below which value no id can be among the top k, and which blocks can hold the
 * winner of a draw. The passes over the row are in sampler_lanes.inc.
 */
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/device/order.h"
#include "engine/device/sampling_params.h"
#include "engine/device/speech_rules.h"
#include "engine/sample/sampler_work.h"

#include <math.h>
#include <string.h>

/* ---- scratch ---- */

static size_t round_up(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static char *take(char **at, size_t bytes) {
  char *start = *at;
  *at += round_up(bytes);
  return start;
}

size_t sampler_scratch_bytes(int32_t vocab) {
  size_t v = (size_t)vocab, blocks = DIV_UP(v, BLOCK);
  return round_up(DIGITS * sizeof(double)) + 2 * round_up(blocks * sizeof(float)) +
         3 * round_up(v * sizeof(float)) + round_up((v + 31) / 32 * sizeof(uint32_t));
}

static work_t cut_scratch(float *logits, int32_t vocab, void *scratch) {
  size_t v = (size_t)vocab, blocks = DIV_UP(v, BLOCK);
  char *at = scratch;
  work_t work = {.logits = logits, .vocab = vocab, .num_blocks = (int32_t)blocks};
  work.digits = (double *)(void *)take(&at, DIGITS * sizeof(double));
  work.block_top = (float *)(void *)take(&at, blocks * sizeof(float));
  work.block_weight = (float *)(void *)take(&at, blocks * sizeof(float));
  work.values = (float *)(void *)take(&at, v * sizeof(float));
  work.counts = (int32_t *)(void *)work.values;
  work.weights = (float *)(void *)take(&at, v * sizeof(float));
  work.raw = (float *)(void *)take(&at, v * sizeof(float));
  work.mask = (uint32_t *)(void *)take(&at, (v + 31) / 32 * sizeof(uint32_t));
  return work;
}

/* ---- passes over the row ---- */

/* The largest logit of the incomplete block at the end. `allowed` is the mask of the whole row. */
static float top_of_tail(const work_t *work, const uint32_t *allowed, bool *has_nan) {
  float top = -INFINITY;
  for (int32_t i = work->vocab / BLOCK * BLOCK; i < work->vocab; i++) {
    float *l = &work->logits[i];
    *has_nan = *has_nan || *l != *l;
    if (allowed != NULL && !(allowed[i / 32] >> (i % 32) & 1)) *l = -INFINITY;
    top = *l > top ? *l : top;
  }
  return top;
}

/* Fills block_top, max, best_id and has_nan from the present logits. Logits whose bit in `allowed`
 * is 0 become -infinity, after the test for NaN; NULL allows all. */
static void scan_row(work_t *work, const uint32_t *allowed) {
  int32_t whole = work->vocab / BLOCK, best_block = 0;
  work->has_nan = work->lanes->tops(work->logits, allowed, whole, work->block_top);
  if (whole < work->num_blocks) work->block_top[whole] = top_of_tail(work, allowed, &work->has_nan);
  for (int32_t b = 1; b < work->num_blocks; b++) {
    if (work->block_top[b] > work->block_top[best_block]) best_block = b;
  }
  work->max = work->block_top[best_block];
  work->best_id = best_block * BLOCK;
  if (work->has_nan) return;
  while (work->logits[work->best_id] != work->max) work->best_id++;
}

/* ---- changes to the row ---- */

static void apply_mask(work_t *work, const uint32_t *allowed) {
  for (int32_t first = 0; first < work->vocab; first += 32) {
    uint32_t word = allowed[first / 32];
    if (word == UINT32_MAX) continue;
    int32_t length = MIN(work->vocab - first, 32);
    float *l = work->logits + first;
    for (int32_t i = 0; i < length; i++) l[i] = (word >> i) & 1 ? l[i] : -INFINITY;
  }
}

/* If logits are +infinity, gives all probability to their ids, evenly. */
static void resolve_infinity(work_t *work) {
  if (work->max != INFINITY) return;
  for (int32_t i = 0; i < work->vocab; i++) {
    work->logits[i] = work->logits[i] == INFINITY ? 0.0f : -INFINITY;
  }
  scan_row(work, NULL);
}

static void apply_allowed_ids(work_t *work, const sampling_params_t *params) {
  if (params->num_allowed_ids == 0) return;
  memset(work->mask, 0, ((size_t)work->vocab + 31) / 32 * sizeof *work->mask);
  for (int32_t i = 0; i < params->num_allowed_ids; i++) {
    int32_t id = params->allowed_ids[i];
    if (valid_id(work, id)) work->mask[id / 32] |= UINT32_C(1) << (id % 32);
  }
  apply_mask(work, work->mask);
}

static bool output_ends_with(const sample_row_t *row, const int32_t *ids, int32_t count) {
  if (count > row->num_output) return false;
  const int32_t *tail = row->output_ids + (row->num_output - count);
  for (int32_t i = 0; i < count; i++) {
    if (tail[i] != ids[i]) return false;
  }
  return true;
}

/* Bans the last id of each bad word whose other ids are the end of the output. */
static void apply_bad_words(work_t *work, const sample_row_t *row) {
  for (int32_t i = 0; i < row->params->num_bad_words; i++) {
    const token_sequence_t *bad = &row->params->bad_words[i];
    int32_t prefix = bad->count - 1;
    if (prefix < 0 || !valid_id(work, bad->ids[prefix])) continue;
    if (prefix > 0 && !output_ends_with(row, bad->ids, prefix)) continue;
    work->logits[bad->ids[prefix]] = -INFINITY;
  }
}

static void apply_suppressed(work_t *work, const sample_row_t *row) {
  for (int32_t i = 0; i < row->num_suppressed; i++) {
    int32_t id = row->suppressed_ids[i];
    if (valid_id(work, id)) work->logits[id] = -INFINITY;
  }
}

static void apply_bias(work_t *work, const sampling_params_t *params) {
  for (int32_t i = 0; i < params->num_logit_bias; i++) {
    int32_t id = params->logit_bias[i].id;
    if (valid_id(work, id)) work->logits[id] += params->logit_bias[i].bias;
  }
}

static void clear_counts(work_t *work, const int32_t *ids, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (valid_id(work, ids[i])) work->counts[ids[i]] = 0;
  }
}

/* Applies the penalties to every id in the list, once: a count of -1 marks an id as done. */
static void penalise(work_t *work, const sampling_params_t *params, const int32_t *ids,
                     int32_t num_ids) {
  /* Each row of PENALTY as a variable: one that is not used below does not compile. */
#define TAKE_DRAW(name)
#define TAKE_PENALTY(name) const float name = params->name;
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) TAKE_##kind(name)
#include "engine/device/sampling.def"
  for (int32_t i = 0; i < num_ids; i++) {
    int32_t id = ids[i];
    if (!valid_id(work, id) || work->counts[id] < 0) continue;
    float l = work->logits[id], count = (float)work->counts[id];
    work->counts[id] = -1;
    if (repetition_penalty != 1.0f) {
      l = l > 0.0f ? l / repetition_penalty : l * repetition_penalty;
    }
    if (count > 0.0f) {
      l -= frequency_penalty * count;
      l -= presence_penalty;
    }
    work->logits[id] = l;
  }
}

/* Takes time by the number of tokens, not by the vocabulary: only the counts of ids that occur in
 * the sequence are cleared and read. */
static void apply_penalties(work_t *work, const sample_row_t *row) {
  const sampling_params_t *params = row->params;
  if (!params_have_penalties(params)) return;
  int32_t num_prompt = params->repetition_penalty != 1.0f ? row->num_prompt : 0;
  clear_counts(work, row->prompt_ids, num_prompt);
  clear_counts(work, row->output_ids, row->num_output);
  for (int32_t i = 0; i < row->num_output; i++) {
    if (valid_id(work, row->output_ids[i])) work->counts[row->output_ids[i]]++;
  }
  penalise(work, params, row->prompt_ids, num_prompt);
  penalise(work, params, row->output_ids, row->num_output);
}

static void ban(work_t *work, int32_t first, int32_t end) {
  for (int32_t id = MAX(first, 0); id < MIN(end, work->vocab); id++) work->logits[id] = -INFINITY;
}

/* Stamps come in pairs, which one of text follows; the second is followed by a stamp, or the end.
 */
static void ban_unpaired(work_t *work, const sample_row_t *row, const speech_rules_t *rules) {
  const int32_t count = row->num_output, *ids = row->output_ids;
  const bool last = count >= 1 && ids[count - 1] >= rules->first_stamp_id;
  const bool before = count < 2 || ids[count - 2] >= rules->first_stamp_id;
  if (last && before) ban(work, rules->first_stamp_id, work->vocab);
  if (last && !before) ban(work, 0, rules->eos_id);
  int32_t latest = -1;
  for (int32_t i = count - 1; i >= 0 && latest < 0; i--)
    if (ids[i] >= rules->first_stamp_id) latest = ids[i];
  if (latest >= 0) ban(work, rules->first_stamp_id, latest + !(last && !before));
  if (count > 0) return;
  ban(work, 0, rules->first_stamp_id);
  if (rules->max_initial >= 0)
    ban(work, rules->first_stamp_id + rules->max_initial + 1, work->vocab);
}

/* Text is left out where all stamps together are more likely than any text. */
static void prefer_stamps(work_t *work, const speech_rules_t *rules) {
  float text = -INFINITY, stamp = -INFINITY;
  double sum = 0;
  for (int32_t id = 0; id < work->vocab; id++) {
    float *top = id < rules->first_stamp_id ? &text : &stamp;
    *top = MAX(*top, work->logits[id]);
  }
  if (stamp == -INFINITY) return;
  for (int32_t id = MAX(rules->first_stamp_id, 0); id < work->vocab; id++)
    sum += exp((double)work->logits[id] - (double)stamp);
  if ((double)stamp + log(sum) > (double)text) ban(work, 0, rules->first_stamp_id);
}

static void apply_rules(work_t *work, const sample_row_t *row) {
  const speech_rules_t *rules = row->params->rules;
  if (rules == NULL) return;
  for (int32_t i = 0; row->num_output == 0 && i < rules->num_begin_ids; i++)
    ban(work, rules->begin_ids[i], rules->begin_ids[i] + 1);
  if (!rules->stamps) return;
  ban(work, rules->no_stamps_id, rules->no_stamps_id + 1);
  ban_unpaired(work, row, rules);
  prefer_stamps(work, rules);
}

static bool has_changes(const sample_row_t *row) {
  const sampling_params_t *params = row->params;
  return params->rules != NULL || params->num_allowed_ids > 0 || params->num_bad_words > 0 ||
         row->num_suppressed > 0 || params->num_logit_bias > 0 || params_have_penalties(params);
}

static void apply_changes(work_t *work, const sample_row_t *row) {
  apply_allowed_ids(work, row->params);
  apply_bad_words(work, row);
  apply_suppressed(work, row);
  apply_bias(work, row->params);
  apply_penalties(work, row);
  apply_rules(work, row);
  scan_row(work, NULL);
  resolve_infinity(work);
}

/* ---- logprobs ---- */

static float logprob_of(float logit, double log_sum) {
  float logprob = (float)((double)logit - log_sum);
  return MAX(logprob, SAMPLER_LOGPROB_MIN);
}

/* Finds the `wanted` best ids, in order. A later id displaces an earlier one only if its logit is
 * strictly larger. Returns how many were found. */
static int32_t find_top(const work_t *work, int32_t wanted, token_logprob_t *top) {
  int32_t count = 0;
  if (wanted > work->vocab) wanted = work->vocab;
  for (int32_t b = 0; b < work->num_blocks && wanted > 0; b++) {
    if (count == wanted && work->block_top[b] <= top[count - 1].logprob) continue;
    int32_t length = block_length(work, b);
    for (int32_t i = 0; i < length; i++) {
      float l = work->logits[b * BLOCK + i];
      if (count == wanted && l <= top[count - 1].logprob) continue;
      int32_t at = count < wanted ? count++ : count - 1;
      for (; at > 0 && top[at - 1].logprob < l; at--) top[at] = top[at - 1];
      top[at] = (token_logprob_t){b * BLOCK + i, l};
    }
  }
  return count;
}

/* The same for many: all ids are sorted. */
static int32_t sort_top(const work_t *work, int32_t wanted, token_logprob_t *top) {
  int32_t *ids = (int32_t *)(void *)work->values, *spare = (int32_t *)(void *)work->weights;
  int32_t count = MIN(wanted, work->vocab);
  order_largest(work->logits, work->vocab, ids, spare);
  for (int32_t i = 0; i < count; i++) top[i] = (token_logprob_t){ids[i], work->logits[ids[i]]};
  return count;
}

/* Fills result->top with ids and raw logits, before the row is changed. finish_logprobs turns them
 * into logprobs. */
static void fill_top(const work_t *work, const sample_row_t *row) {
  sample_result_t *result = row->result;
  bool many = row->num_top > SAMPLE_TOP_MAX;
  int32_t count =
      many ? sort_top(work, row->num_top, result->top) : find_top(work, row->num_top, result->top);
  int32_t num_extra = row->score_id < 0 ? row->params->num_logprob_token_ids : 0;
  for (int32_t i = 0; i < num_extra && count < SAMPLE_TOP_MAX; i++) {
    int32_t id = row->params->logprob_token_ids[i], seen = 0;
    if (!valid_id(work, id)) continue;
    while (seen < count && result->top[seen].id != id) seen++;
    if (seen == count) result->top[count++] = (token_logprob_t){id, work->logits[id]};
  }
  result->num_top = count;
}

static void finish_logprobs(const work_t *work, const sample_row_t *row, const float *raw,
                            double log_sum) {
  sample_result_t *result = row->result;
  for (int32_t i = 0; i < result->num_top; i++) {
    result->top[i].logprob = logprob_of(result->top[i].logprob, log_sum);
  }
  result->logprob = logprob_of(raw[result->id], log_sum);
  result->rank = 1 + work->lanes->count_larger(raw, work->vocab, raw[result->id]);
}

/* ---- one row ---- */

static void fail_row(const sample_row_t *row, int code) {
  row->result->id = 0;
  row->result->status = code;
}

/* Operations 3 to 10 of sampler.h. Returns 0 and sets the id, or ERR_NO_CHOICE. */
static int choose_id(work_t *work, const sample_row_t *row) {
  if (has_changes(row)) apply_changes(work, row);
  if (work->max == -INFINITY) return ERR_NO_CHOICE;
  bool greedy = row->params->temperature < SAMPLER_GREEDY_BELOW;
  row->result->id = greedy ? work->best_id : sampler_draw(work, row);
  return 0;
}

void sampler_row(float *logits, int32_t vocab, const sample_row_t *row, void *scratch) {
  sampler_row_on(sampler_lanes_all()[0], logits, vocab, row, scratch);
}

void sampler_row_on(const sampler_lanes_t *lanes, float *logits, int32_t vocab,
                    const sample_row_t *row, void *scratch) {
  work_t work = cut_scratch(logits, vocab, scratch);
  work.lanes = lanes;
  sample_result_t *result = row->result;
  const float *raw = logits;
  double log_sum = 0;
  result->id = 0, result->status = 0, result->num_top = 0, result->rank = vocab;
  result->logprob = SAMPLER_LOGPROB_MIN;
  scan_row(&work, row->allowed_mask);
  if (work.has_nan) {
    fail_row(row, ERR_INTERNAL);
    return;
  }
  resolve_infinity(&work);
  if (work.max == -INFINITY) {
    fail_row(row, row->allowed_mask != NULL ? ERR_NO_CHOICE : ERR_INTERNAL);
    return;
  }
  if (row->num_top >= 0) {
    log_sum = (double)work.max +
              log(work.lanes->sum(logits, vocab, work.block_top, work.max, 1.0f, -INFINITY));
    fill_top(&work, row);
    if (row->score_id < 0 && has_changes(row)) {
      memcpy(work.raw, logits, (size_t)vocab * sizeof *logits);
      raw = work.raw;
    }
  }
  if (row->score_id >= 0) {
    result->id = row->score_id < vocab ? row->score_id : 0;
  } else {
    result->status = choose_id(&work, row);
  }
  if (result->status != 0) result->num_top = 0;
  if (result->status == 0 && row->num_top >= 0) finish_logprobs(&work, row, raw, log_sum);
}
