/* indexed.c: attention to the tokens that an indexer chooses: its keys, the choice, and the sums of
 * the latent rows of what was chosen.
 *
 * This file decides how the work is divided; latent.c does the rest. Called on the engine thread;
 * pool workers take tokens, or pairs of a token and a group of heads. What a token chooses, and the
 * bits of its sums, depend on its own rows alone: keys are scored in the order of their positions
 * and of the heads, and a strip of attention has segments of keys of which some were chosen, in
 * order. A token that chooses all keys takes the steps of attention.c, so that a step of such
 * tokens may go there. Bytes moved: the keys of the indexer once a token, and the segments of
 * latent rows that hold a chosen one once for each group of heads.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct indexing {
  device_t *device;
  const latent_t *latent;
  const indexer_t *indexer;
  const rope_table_t *table;
  float *keys;          /* [T, d] that are stored */
  float *q;             /* [T, Hi d] */
  const float *weights; /* [T, Hi] */
  float *chosen;        /* [T, 2 top]: keys as int32_t, and room for their scores */
  /* of attention */
  const float *queries; /* [T, Hq (R + r)] */
  float *sums;          /* [T, Hq R] */
  int32_t group;        /* heads of a unit */
} indexing_t;

/* The best keys so far as a heap whose first one is the worst. */
typedef struct best_keys {
  int32_t *keys;
  float *scores;
  int32_t count;
} best_keys_t;

/* Of two keys with one score the later one is worse. */
static bool is_worse(const best_keys_t *best, int32_t left, int32_t right) {
  if (best->scores[left] != best->scores[right]) return best->scores[left] < best->scores[right];
  return best->keys[left] > best->keys[right];
}

static void swap(best_keys_t *best, int32_t left, int32_t right) {
  const int32_t key = best->keys[left];
  const float score = best->scores[left];
  best->keys[left] = best->keys[right];
  best->scores[left] = best->scores[right];
  best->keys[right] = key;
  best->scores[right] = score;
}

static void sink(best_keys_t *best, int32_t i) {
  for (int32_t worst = i;; i = worst) {
    for (int32_t child = 2 * i + 1; child <= 2 * i + 2 && child < best->count; child++)
      if (is_worse(best, child, worst)) worst = child;
    if (worst == i) return;
    swap(best, i, worst);
  }
}

/* Keys come in the order of their positions. */
static void offer(best_keys_t *best, int32_t most, int32_t key, float score) {
  if (best->count < most) {
    best->keys[best->count] = key;
    best->scores[best->count++] = score;
    for (int32_t i = best->count / 2; best->count == most && i-- > 0;) sink(best, i);
    return;
  }
  if (!(score > best->scores[0])) return;
  best->keys[0] = key;
  best->scores[0] = score;
  sink(best, 0);
}

/* By position: a heap whose first one is the last goes to the end, one by one. */
static void sort_by_position(best_keys_t *best) {
  const int32_t count = best->count;
  for (int32_t i = 0; i < count; i++) best->scores[i] = 0.0F; /* then the later one is worse */
  for (int32_t i = count / 2; i-- > 0;) sink(best, i);
  while (best->count > 1) {
    swap(best, 0, --best->count);
    sink(best, 0);
  }
  best->count = count;
}

static int32_t segment_keys(const device_t *device) {
  return MIN(device->kv.block_size, SEGMENT_KEYS);
}

/* Where column `column` of the rows of a segment lies. */
static const uint8_t *segment_at(const indexing_t *job, int64_t token, int32_t position,
                                 int32_t column) {
  const device_t *device = job->device;
  const batch_t *batch = device->batch;
  const int32_t size = device->kv.block_size;
  const int32_t block = batch->block_table[batch->request_row[token]][position / size];
  CHECK_RANGE(block, 0, device->kv.num_blocks);
  const size_t lane = (size_t)column * (size_t)device->key_stride + (size_t)(position % size);
  return kv_block(device, job->latent->layer, block) + lane * dtype_size(device->kv.dtype);
}

static void shape_strip(const device_t *device, strip_t *strip, int32_t dims) {
  strip->segment_keys = segment_keys(device);
  strip->k_stride = device->key_stride;
  strip->head_dim = dims;
}

/* No code reads the keys of the segments that fill the last group. */
static void fill_group(strip_t *strip, int32_t used) {
  for (int32_t s = used; s % SEGMENT_GROUP != 0; s++) strip->k[s] = strip->k[used - 1];
}

/* sums[keys] = scores of keys from `base` on for a token. */
static void score_keys(const indexing_t *job, int64_t token, int32_t base, int32_t keys,
                       attention_scratch_t *scratch, float *sums) {
  const device_t *device = job->device;
  const indexer_t *indexer = job->indexer;
  strip_t *strip = &scratch->strip;
  const int32_t heads = indexer->num_heads, dim = indexer->dim;
  const float factor = 1.0F / sqrtf((float)heads * (float)dim);
  shape_strip(device, strip, dim);
  const int32_t segments = DIV_UP(keys, strip->segment_keys);
  for (int32_t s = 0; s < segments; s++)
    strip->k[s] = segment_at(job, token, base + s * strip->segment_keys,
                             job->latent->rank + job->latent->rope_dim);
  fill_group(strip, segments);
  device->kernels->scores[device->kv.dtype](scratch->scores, job->q + token * heads * dim, dim,
                                            heads, strip, 0, segments);
  memset(sums, 0, (size_t)keys * sizeof *sums);
  for (int32_t h = 0; h < heads; h++) {
    const float weight = job->weights[token * heads + h] * factor;
    const float *scores = scratch->scores + (int64_t)h * SCORE_STRIDE;
    for (int32_t j = 0; j < keys; j++) sums[j] += scores[j] > 0 ? weight * scores[j] : 0.0F;
  }
}

static void choose_task(void *context, int64_t first, int64_t last, int worker) {
  const indexing_t *job = context;
  const device_t *device = job->device;
  const int32_t top = job->latent->top, half = job->latent->rope_dim / 2;
  const int32_t heads = job->indexer->num_heads, dim = job->indexer->dim;
  attention_scratch_t *scratch = &device->attention[worker];
  float scores[STRIP_KEYS];
  for (int64_t t = first; t < last; t++) {
    const int32_t count = device->batch->positions[t] + 1;
    if (count <= top) continue;
    for (int32_t h = 0; h < heads; h++)
      device->kernels->rotate(job->q + (t * heads + h) * dim, job->table->cosine + t * half,
                              job->table->sine + t * half, half);
    float *row = job->chosen + t * 2 * top;
    best_keys_t best = {.keys = (int32_t *)(void *)row, .scores = row + top};
    for (int32_t base = 0; base < count; base += STRIP_KEYS) {
      const int32_t keys = MIN(count - base, STRIP_KEYS);
      score_keys(job, t, base, keys, scratch, scores);
      for (int32_t j = 0; j < keys; j++) offer(&best, top, base + j, scores[j]);
    }
    sort_by_position(&best);
  }
}

static void store_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const indexing_t *job = context;
  const latent_t *latent = job->latent;
  const int32_t dim = job->indexer->dim, half = latent->rope_dim / 2;
  const norm_args_t norm = {NORM_LAYER, dim, job->indexer->norm_eps, job->indexer->norm->values,
                            job->indexer->norm_bias->values};
  for (int64_t t = first; t < last; t++) {
    float *row = job->keys + t * dim;
    job->device->kernels->norm(row, row, NULL, &norm);
    job->device->kernels->rotate(row, job->table->cosine + t * half, job->table->sine + t * half,
                                 half);
    const int64_t slot = job->device->batch->slot_mapping[t];
    if (slot >= 0)
      kv_store_columns(job->device, latent->layer, slot, row, latent->rank + latent->rope_dim, dim);
  }
}

static void check(const device_t *device, const latent_t *latent, const indexer_t *indexer) {
  CHECK(device->kv_base);
  CHECK(device->kv.latent);
  CHECK_RANGE(latent->layer, 0, device->kv.num_layers);
  CHECK_EQ(device->kv.head_dim, latent->rank + latent->rope_dim + indexer->dim);
  CHECK_LE(indexer->num_heads, device->limits.heads_max);
  CHECK_LE(latent->rope_dim, indexer->dim);
  CHECK_GT(latent->top, 0);
}

void cpu_store_keys(device_t *device, act_t *keys, const latent_t *latent,
                    const indexer_t *indexer) {
  check(device, latent, indexer);
  indexing_t job = {.device = device,
                    .latent = latent,
                    .indexer = indexer,
                    .table = rope_table(device, latent->rope),
                    .keys = FLOATS(keys)};
  pool_run(device->pool, store_task, &job, device->batch->num_tokens,
           INLINE_ELEMENTS / indexer->dim + 1);
}

void cpu_choose(device_t *device, act_t *chosen, act_t *q, const act_t *weights,
                const latent_t *latent, const indexer_t *indexer) {
  check(device, latent, indexer);
  if (!indexed_chooses(device, latent)) return;
  indexing_t job = {.device = device,
                    .latent = latent,
                    .indexer = indexer,
                    .table = rope_table(device, latent->rope),
                    .q = FLOATS(q),
                    .weights = FLOATS(weights),
                    .chosen = FLOATS(chosen)};
  pool_run(device->pool, choose_task, &job, device->batch->num_tokens, 1);
}

bool indexed_chooses(const device_t *device, const latent_t *latent) {
  const batch_t *batch = device->batch;
  for (int32_t t = 0; t < batch->num_tokens; t++)
    if (batch->positions[t] + 1 > latent->top) return true;
  return false;
}

/* ---- attention ---- */

/* The next keys of a token: segments of which some are chosen. */
typedef struct segments {
  int32_t next, count, segments,
      last; /* of `count` keys the first `next` are taken; behind lanes */
  bool seen[STRIP_KEYS];
} segments_t;

/* `keys` NULL = all of them. */
static void take_segments(const indexing_t *job, int64_t token, const int32_t *keys,
                          segments_t *taken, strip_t *strip) {
  const int32_t size = strip->segment_keys;
  int32_t current = -1;
  memset(taken->seen, 0, sizeof taken->seen);
  taken->segments = 0;
  for (; taken->next < taken->count; taken->next++) {
    const int32_t position = keys != NULL ? keys[taken->next] : taken->next;
    if (position / size != current) {
      if (taken->segments == STRIP_KEYS / size) break;
      current = position / size;
      strip->k[taken->segments++] = segment_at(job, token, current * size, 0);
    }
    taken->last = (taken->segments - 1) * size + position % size + 1;
    taken->seen[taken->last - 1] = true;
  }
  fill_group(strip, taken->segments);
}

static void attend_strip(const indexing_t *job, const segments_t *taken, int64_t stride,
                         attention_scratch_t *scratch) {
  const device_t *device = job->device;
  const kernels_t *kernels = device->kernels;
  kernels->scores[device->kv.dtype](scratch->scores, scratch->q, stride, job->group,
                                    &scratch->strip, 0, taken->segments);
  for (int32_t row = 0; row < job->group; row++) {
    float *scores = scratch->scores + (int64_t)row * SCORE_STRIDE;
    for (int32_t j = 0; j < taken->last; j++)
      if (!taken->seen[j]) scores[j] = -INFINITY;
    const float factor =
        kernels->softmax(scores, 0, taken->last, 0, &scratch->max[row], &scratch->sum[row]);
    kernels->scale(scratch->acc + row * stride, factor, stride);
  }
  kernels->latent_values[device->kv.dtype](scratch->acc, stride, scratch->scores, job->group,
                                           &scratch->strip, taken->last, job->latent->rank);
}

/* As attention.c, a softmax starts anew after SPLIT_KEYS lanes. */
static void attend_token(const indexing_t *job, int64_t token, int64_t head,
                         attention_scratch_t *scratch) {
  const latent_t *latent = job->latent;
  const kernels_t *kernels = job->device->kernels;
  const int32_t width = latent->rank + latent->rope_dim, top = latent->top;
  const int64_t stride = ROUND_UP(width, HEAD_ALIGN), row = token * latent->num_heads + head;
  const size_t bytes = (size_t)job->group * (size_t)stride * sizeof(float);
  segments_t taken = {.count = job->device->batch->positions[token] + 1};
  const int32_t *keys = NULL;
  if (taken.count > top) {
    keys = (const int32_t *)(const void *)(job->chosen + token * 2 * top);
    taken.count = top;
  }
  for (int32_t r = 0; r < job->group; r++) {
    for (int32_t i = 0; i < width; i++)
      scratch->q[r * stride + i] = job->queries[(row + r) * width + i] * latent->scale;
    scratch->total_max[r] = -INFINITY;
    scratch->total_sum[r] = 0;
  }
  memset(scratch->total, 0, bytes);
  shape_strip(job->device, &scratch->strip, width);
  while (taken.next < taken.count) {
    for (int32_t r = 0; r < job->group; r++) {
      scratch->max[r] = -INFINITY;
      scratch->sum[r] = 0;
    }
    memset(scratch->acc, 0, bytes);
    for (int32_t n = 0; n < SPLIT_KEYS / STRIP_KEYS && taken.next < taken.count; n++) {
      take_segments(job, token, keys, &taken, &scratch->strip);
      attend_strip(job, &taken, stride, scratch);
    }
    for (int32_t r = 0; r < job->group; r++)
      kernels->merge(scratch->total + r * stride, &scratch->total_max[r], &scratch->total_sum[r],
                     scratch->acc + r * stride, scratch->max[r], scratch->sum[r], (int32_t)stride);
  }
  for (int32_t r = 0; r < job->group; r++)
    kernels->finish(job->sums + (row + r) * latent->rank, scratch->total + r * stride,
                    scratch->total_max[r], scratch->total_sum[r], -INFINITY, latent->rank);
}

static void attend_task(void *context, int64_t first, int64_t last, int worker) {
  const indexing_t *job = context;
  const int64_t groups = job->latent->num_heads / job->group;
  for (int64_t unit = first; unit < last; unit++)
    attend_token(job, unit / groups, unit % groups * job->group, &job->device->attention[worker]);
}

void indexed_attend(device_t *device, float *sums, const float *queries, const float *chosen,
                    const latent_t *latent, int32_t group) {
  CHECK_LE(latent->num_heads, device->limits.heads_max);
  CHECK_EQ(latent->num_heads % group, 0);
  indexing_t job = {.device = device,
                    .latent = latent,
                    .chosen = (float *)(uintptr_t)chosen,
                    .queries = queries,
                    .sums = sums,
                    .group = group};
  pool_run(device->pool, attend_task, &job,
           (int64_t)device->batch->num_tokens * (latent->num_heads / group), 1);
}
