/* attention.c: attention over the paged K/V pool, for decodes and prefill chunks alike.
 *
 * This file decides how the work is divided. Called on the engine thread; pool workers take (query
 * tile, K/V head) pairs, and for a long decode (query tile, K/V head, split). The softmax is
 * computed online over strips of 256 keys. It starts anew every 2,048 keys, at absolute positions
 * (a split); the splits of a row are then merged in order. Both paths below do exactly these steps
 * for each row, so the bits of a row do not depend on tiles, threads, chunks or the path. A strip
 * is computed by the tier's `scores`, `softmax` and `values`, or all at once by its `attend`: which
 * of them is a matter of the tier, the type of the pool and the layer, never of the batch. A strip
 * of a pool in 8 bits becomes numbers first, and then takes the same path as a pool of these.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/isa/attend.h"
#include "engine/device/cross_weights.h"

#include <math.h>
#include <string.h>

typedef struct attending {
  device_t *device;
  const attention_t *attention;
  const kv_kind_t *kind; /* of the layer */
  const float *qkv;
  float *out;
  int32_t group;
  int64_t width; /* of a qkv row */
  dtype_t dtype; /* of the elements of a strip */
  bool at_once;  /* the tier's `attend` takes all rows of a strip in one call */
  int32_t rows;  /* of a query tile, at most */
  int32_t rank;  /* columns of the values in a latent row; 0 = the pool has values */
} attending_t;

/* Returns the first key that `position` attends to. */
static int32_t first_key(const attention_t *attention, int32_t position) {
  return attention->window > 0 && position >= attention->window ? position - attention->window + 1
                                                                : 0;
}

/* Returns the key behind the last one that a token of a row of the batch attends to. It is never
 * less than that of the token before: pictures do not overlap. */
static int32_t end_key(const attending_t *job, int32_t row, int32_t token) {
  const attention_t *attention = job->attention;
  const batch_t *batch = job->device->batch;
  int32_t end = batch->seq_lens[row], position = batch->positions[token];
  if (attention->crosses) return batch->cross_lens[row];
  if (attention->sees_pictures && batch->seen_until != NULL)
    return MAX(position + 1, batch->seen_until[token]);
  if (!attention->bidirectional) return position + 1;
  return attention->window > 0 && end - position > attention->window ? position + attention->window
                                                                     : end;
}

/* Keys of [base, base + length) that token i of an item sees, relative to base; empty when *first
 * >= *last. */
static void visible_keys(const attending_t *job, const item_t *item, int32_t i, int32_t base,
                         int32_t length, int32_t *first, int32_t *last) {
  int32_t position = job->device->batch->positions[item->token + i];
  int32_t low = first_key(job->attention, position) - base;
  int32_t high = end_key(job, item->request, item->token + i) - base;
  *first = MAX(low, 0);
  *last = MIN(high, length);
}

/* Makes a segment of a pool in 8 bits numbers in the worker's own memory; `slots` is where it
 * begins in its block. */
static void widen_segment(const attending_t *job, const uint8_t *block, int32_t kv_head,
                          int32_t slots, int32_t segment, attention_scratch_t *scratch) {
  const device_t *device = job->device;
  const kernels_t *kernels = device->kernels;
  strip_t *strip = &scratch->strip;
  size_t element = dtype_size(job->dtype), keys = (size_t)strip->segment_keys;
  uint8_t *own = device->widened + (size_t)scratch->worker * device->widened_bytes;
  uint8_t *k = own + (size_t)segment * (size_t)strip->head_dim * SEGMENT_KEYS * element;
  uint8_t *v = own + device->widened_keys +
               (size_t)segment * keys * (size_t)job->kind->head_stride * element;
  kernels->kv8_widen_keys(k, strip->k[segment],
                          kv_scales(device, job->kind, block, kv_head, false) + slots,
                          strip->head_dim, device->key_stride);
  kernels->kv8_widen_values(v, strip->v[segment],
                            kv_scales(device, job->kind, block, kv_head, true) + slots,
                            strip->segment_keys, job->kind->head_stride);
  strip->k[segment] = k;
  strip->v[segment] = v;
}

/* Finds the segments of a strip; `strip` is that of `scratch`, or keeps its shape. */
static void load_strip(const attending_t *job, const item_t *item, int32_t kv_head, int32_t base,
                       int32_t first, int32_t last, attention_scratch_t *scratch, strip_t *strip) {
  const device_t *device = job->device;
  size_t element = kv_element(&device->kv), size = (size_t)device->kv.block_size;
  size_t key_head = (size_t)job->kind->head_dim * (size_t)device->key_stride * element;
  size_t value_row = (size_t)job->kind->head_stride * element;
  const kv_place_t place = kv_place(device, job->attention, job->rank > 0 ? 0 : kv_head);
  const batch_t *batch = device->batch;
  const int32_t *table = job->attention->crosses ? batch->cross_table[item->request]
                                                 : batch->block_table[item->request] +
                                                       place.group * batch->block_table_stride;
  const size_t head = (size_t)place.head;
  for (int32_t s = first; s < last; s++) {
    size_t key = (size_t)(base + s * strip->segment_keys);
    int32_t block = table[key / size];
    CHECK_RANGE(block, 0, device->kv.num_blocks);
    size_t offset = key % size;
    const uint8_t *at = place.first + (size_t)block * place.stride;
    strip->k[s] = at + head * key_head + offset * element;
    strip->v[s] = at + job->kind->key_bytes + (head * size + offset) * value_row;
    if (device->kv.int8) widen_segment(job, at, place.head, (int32_t)offset, s, scratch);
  }
  /* Scores are computed for whole groups of segments; no code reads those past the last key. */
  for (int32_t s = last; s % SEGMENT_GROUP != 0; s++) strip->k[s] = strip->k[last - 1];
}

/* Adds weights . values for the rows of positions [from, to) of the tile. */
static void add_values(const attending_t *job, attention_scratch_t *scratch, int32_t from,
                       int32_t to, int32_t first, int32_t last) {
  if (first >= last) return;
  const device_t *device = job->device;
  int64_t row = (int64_t)from * job->group;
  device->kernels->values[job->dtype](scratch->acc + row * job->kind->head_stride,
                                      job->kind->head_stride, scratch->scores + row * SCORE_STRIDE,
                                      (to - from) * job->group, &scratch->strip, first, last);
}

/* The same for latent rows, position by position: the products with the keys of a strip are summed
 * at its end, so a row must see them in one call. */
static void add_latent(const attending_t *job, const item_t *item, int32_t base,
                       attention_scratch_t *scratch) {
  const device_t *device = job->device;
  for (int32_t i = 0; i < item->count; i++) {
    int32_t first, last;
    int64_t row = (int64_t)i * job->group;
    visible_keys(job, item, i, base, STRIP_KEYS, &first, &last);
    if (first >= last) continue;
    device->kernels->latent_values[job->dtype](
        scratch->acc + row * job->kind->head_stride, job->kind->head_stride,
        scratch->scores + row * SCORE_STRIDE, job->group, &scratch->strip, last, job->rank);
  }
}

/* Adds to the scores of a row [first, last) what follows from the distances of its keys. */
static void add_distances(const attention_t *attention, int32_t head, int32_t distance,
                          float *scores, int32_t first, int32_t last) {
  const int32_t reach = attention->reach;
  const float *numbers = NULL;
  if (attention->distances != NULL)
    numbers = attention->distances->values + (int64_t)head * (2 * reach + 1) + reach;
  for (int32_t j = first; numbers != NULL && j < last; j++)
    scores[j] += numbers[MIN(MAX(distance + j, -reach), reach)];
  for (int32_t j = first; attention->slopes != NULL && j < last; j++)
    scores[j] -= attention->slopes->values[head] * fabsf((float)(distance + j));
}

/* by_entry[rows][16 s + lane] = rows . vectors of some segments of a head of a table. */
static void score_entries(const attending_t *job, const vector_t *table, int32_t head,
                          const float *rows, int64_t stride, int32_t num_rows, key_range_t segments,
                          attention_scratch_t *scratch) {
  const attention_t *attention = job->attention;
  strip_t *entries = &scratch->entries;
  const int64_t segment = (int64_t)attention->head_dim * SEGMENT_KEYS;
  const float *values =
      table->values + (int64_t)head * attention->num_entries * attention->head_dim;
  const int32_t count = segments.last - segments.first;
  CHECK_LE(ROUND_UP(count, SEGMENT_GROUP), STRIP_KEYS / SEGMENT_KEYS);
  for (int32_t s = 0; s < ROUND_UP(count, SEGMENT_GROUP); s++)
    entries->k[s] = values + (segments.first + MIN(s, count - 1)) * segment;
  entries->segment_keys = entries->k_stride = SEGMENT_KEYS;
  entries->head_dim = attention->head_dim;
  job->device->kernels->scores[DTYPE_F32](scratch->by_entry, rows, stride, num_rows, entries, 0,
                                          count);
}

/* The entry of a key that stands `distance` behind the query. */
static int32_t entry_at(const attention_t *attention, int32_t distance) {
  const int32_t reach = attention->reach;
  return attention->entries[reach + MIN(MAX(distance, -reach), reach)];
}

/* Adds to the scores of a tile and keys [first, last) of a strip what the tables of disentangled
 * attention give (He et al. 2021, DeBERTa). A block of keys and the tile are at few distances, so
 * that few entries are multiplied. The keys of a request are rows of the step. */
static void add_entries(const attending_t *job, const item_t *item, int32_t head, int32_t base,
                        int32_t first, int32_t last, attention_scratch_t *scratch) {
  const attention_t *attention = job->attention;
  const batch_t *batch = job->device->batch;
  const int32_t begin = batch->query_start_loc[item->request], count = item->count;
  const int32_t *positions = batch->positions + item->token;
  const float *keys = job->qkv + (int64_t)(attention->num_heads + head) * attention->head_dim;
  CHECK_EQ(batch->positions[begin], 0);
  CHECK_LE(count, DISTANCE_KEYS);
  for (int32_t from = first; from < last; from += DISTANCE_KEYS) {
    const int32_t end = MIN(from + DISTANCE_KEYS, last);
    const key_range_t segments = {
        .first = entry_at(attention, base + end - 1 - positions[0]) / SEGMENT_KEYS,
        .last = entry_at(attention, base + from - positions[count - 1]) / SEGMENT_KEYS + 1};
    for (int by_key = 0; by_key < 2; by_key++) {
      const vector_t *table = by_key ? attention->query_table : attention->key_table;
      if (table == NULL) continue;
      if (by_key)
        score_entries(job, table, head, keys + (begin + base + from) * job->width, job->width,
                      end - from, segments, scratch);
      else
        score_entries(job, table, head, scratch->q, job->kind->head_stride, count, segments,
                      scratch);
      const float factor = by_key ? attention->scale : 1.0f; /* q has it already */
      for (int32_t i = 0; i < count; i++) {
        float *scores = scratch->scores + (int64_t)i * SCORE_STRIDE;
        for (int32_t j = from; j < end; j++) {
          const int32_t entry = entry_at(attention, base + j - positions[i]);
          const float *row = scratch->by_entry + (by_key ? j - from : i) * SCORE_STRIDE;
          scores[j] += factor * row[entry - segments.first * SEGMENT_KEYS];
        }
      }
    }
  }
}

static void attend_strip(const attending_t *job, const item_t *item, int32_t kv_head, int32_t base,
                         attention_scratch_t *scratch) {
  const device_t *device = job->device;
  const attention_t *attention = job->attention;
  int32_t count = item->count, low, high, low_end, high_end;
  visible_keys(job, item, 0, base, STRIP_KEYS, &low, &high);
  visible_keys(job, item, count - 1, base, STRIP_KEYS, &low_end, &high_end);
  int32_t keys = scratch->strip.segment_keys;
  int32_t from = low / keys / SEGMENT_GROUP * SEGMENT_GROUP, to = DIV_UP(high_end, keys);
  load_strip(job, item, kv_head, base, from, to, scratch, &scratch->strip);
  device->kernels->scores[job->dtype](scratch->scores, scratch->q, job->kind->head_stride,
                                      count * job->group, &scratch->strip, from, to);
  if (attention->num_entries > 0) add_entries(job, item, kv_head, base, low, high_end, scratch);
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(job, item, i, base, STRIP_KEYS, &first, &last);
    if (first >= last) continue;
    const int32_t distance = base - device->batch->positions[item->token + i];
    for (int32_t row = i * job->group; row < (i + 1) * job->group; row++) {
      float *scores = scratch->scores + (int64_t)row * SCORE_STRIDE;
      if (attention->slopes != NULL || attention->distances != NULL)
        add_distances(attention, kv_head * job->group + row % job->group, distance, scores, first,
                      last);
      float factor = device->kernels->softmax(scores, first, last, attention->softcap,
                                              &scratch->max[row], &scratch->sum[row]);
      device->kernels->scale(scratch->acc + (int64_t)row * job->kind->head_stride, factor,
                             job->kind->head_stride);
    }
  }
  if (job->rank > 0) {
    add_latent(job, item, base, scratch);
    return;
  }
  /* The keys that all positions attend to are multiplied in one product. The keys of each row keep
   * their order, and a kernel that takes two keys at a time gets the same pairs. */
  low_end += low_end % 2;
  high -= high % 2;
  bool shared = low_end < high;
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(job, item, i, base, STRIP_KEYS, &first, &last);
    add_values(job, scratch, i, i + 1, first, shared ? low_end : last);
  }
  if (!shared) return;
  add_values(job, scratch, 0, count, low_end, high);
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(job, item, i, base, STRIP_KEYS, &first, &last);
    add_values(job, scratch, i, i + 1, high, last);
  }
}

/* Where the keys lie that this worker reads behind the strip at `base`, for a decode; NULL where
 * that is no range for each segment: in blocks of more than 16 slots, and in pools of 8 bits. */
static const void *const *next_keys(const attending_t *job, const item_t *item, int32_t kv_head,
                                    int32_t base, attention_scratch_t *scratch) {
  const int32_t keys = scratch->strip.segment_keys;
  int32_t first, last;
  base += STRIP_KEYS;
  if (item->count > 1 || keys != SEGMENT_KEYS || scratch->strip.k_stride != keys ||
      job->device->kv.int8 || (item->partial >= 0 && base % SPLIT_KEYS == 0))
    return NULL;
  visible_keys(job, item, 0, base, STRIP_KEYS, &first, &last);
  if (last <= 0) return NULL;
  scratch->next.segment_keys = keys;
  load_strip(job, item, kv_head, base, 0, DIV_UP(last, keys), scratch, &scratch->next);
  for (int32_t s = DIV_UP(last, keys); s < STRIP_KEYS / keys; s++)
    scratch->next.k[s] = scratch->next.k[0];
  return scratch->next.k;
}

/* The same by the tier's `attend`. */
static void attend_at_once(const attending_t *job, const item_t *item, int32_t kv_head,
                           int32_t base, attention_scratch_t *scratch) {
  const device_t *device = job->device;
  key_range_t *seen = scratch->seen;
  for (int32_t i = 0; i < item->count; i++)
    visible_keys(job, item, i, base, STRIP_KEYS, &seen[i].first, &seen[i].last);
  int32_t keys = scratch->strip.segment_keys;
  load_strip(job, item, kv_head, base, seen[0].first / keys,
             DIV_UP(seen[item->count - 1].last, keys), scratch, &scratch->strip);
  attend_t attend = {.q = (const uint16_t *)(const void *)scratch->q,
                     .depth = ROUND_UP(job->kind->head_dim, DEPTH_ALIGN),
                     .positions = item->count,
                     .group = job->group,
                     .seen = seen,
                     .softcap = job->attention->softcap,
                     .strip = &scratch->strip,
                     .next = next_keys(job, item, kv_head, base, scratch),
                     .acc = scratch->acc,
                     .ldo = job->kind->head_stride,
                     .max = scratch->max,
                     .sum = scratch->sum,
                     .space = scratch->scores};
  (job->attention->crosses ? device->kernels->attend_across : device->kernels->attend)(&attend);
}

/* Computes accumulator, maximum and sum of the rows of a tile over one split. */
static void attend_split(const attending_t *job, const item_t *item, int32_t kv_head, int32_t split,
                         attention_scratch_t *scratch) {
  const device_t *device = job->device;
  const int32_t *positions = device->batch->positions + item->token;
  int32_t rows = item->count * job->group, begin = split * SPLIT_KEYS;
  for (int32_t r = 0; r < rows; r++) {
    scratch->max[r] = -INFINITY;
    scratch->sum[r] = 0;
  }
  memset(scratch->acc, 0, (size_t)rows * (size_t)job->kind->head_stride * sizeof(float));
  int32_t first = first_key(job->attention, positions[0]);
  int32_t last = end_key(job, item->request, item->token + item->count - 1);
  if (first < begin) first = begin;
  if (last > begin + SPLIT_KEYS) last = begin + SPLIT_KEYS;
  for (int32_t base = first / STRIP_KEYS * STRIP_KEYS; base < last; base += STRIP_KEYS) {
    if (job->at_once)
      attend_at_once(job, item, kv_head, base, scratch);
    else
      attend_strip(job, item, kv_head, base, scratch);
  }
}

/* Returns true if token i of the item attends to a key of the split. */
static bool sees_split(const attending_t *job, const item_t *item, int32_t i, int32_t split) {
  int32_t first, last;
  visible_keys(job, item, i, split * SPLIT_KEYS, SPLIT_KEYS, &first, &last);
  return first < last;
}

/* What the rows of an item give over one split. */
typedef struct split_result {
  const float *acc;       /* [rows, stride] */
  const float *max, *sum; /* of row r: at r * state_stride */
  int64_t stride, state_stride;
} split_result_t;

/* Adds the result of a split to the totals of the rows that see a key of the split. */
static void merge_split(const attending_t *job, const item_t *item, int32_t split,
                        const split_result_t *result, attention_scratch_t *scratch) {
  const device_t *device = job->device;
  for (int32_t row = 0; row < item->count * job->group; row++) {
    if (!sees_split(job, item, row / job->group, split)) continue;
    device->kernels->merge(scratch->total + (int64_t)row * job->kind->head_stride,
                           &scratch->total_max[row], &scratch->total_sum[row],
                           result->acc + row * result->stride,
                           result->max[row * result->state_stride],
                           result->sum[row * result->state_stride], job->kind->head_stride);
  }
}

static void reset_total(const attending_t *job, const item_t *item, attention_scratch_t *scratch) {
  int32_t rows = item->count * job->group;
  for (int32_t r = 0; r < rows; r++) {
    scratch->total_max[r] = -INFINITY;
    scratch->total_sum[r] = 0;
  }
  memset(scratch->total, 0, (size_t)rows * (size_t)job->kind->head_stride * sizeof(float));
}

static void write_rows(const attending_t *job, const item_t *item, int32_t kv_head,
                       const attention_scratch_t *scratch) {
  const attention_t *attention = job->attention;
  for (int32_t row = 0; row < item->count * job->group; row++) {
    int32_t head = kv_head * job->group + row % job->group;
    int64_t token = item->token + row / job->group;
    int32_t dim = job->rank > 0 ? job->rank : attention->head_dim;
    float *out = job->out + (token * attention->num_heads + head) * dim;
    float sink = attention->sinks != NULL ? attention->sinks->values[head] : -INFINITY;
    job->device->kernels->finish(out, scratch->total + (int64_t)row * job->kind->head_stride,
                                 scratch->total_max[row], scratch->total_sum[row], sink, dim);
  }
}

/* Loads the queries of a tile times the scale: rows of head_stride floats, or for `attend` rows of
 * bf16, padded to whole steps of a product. */
static void load_queries(const attending_t *job, const item_t *item, int32_t kv_head,
                         attention_scratch_t *scratch) {
  const attention_t *attention = job->attention;
  const device_t *device = job->device;
  int64_t depth = ROUND_UP(attention->head_dim, DEPTH_ALIGN);
  uint16_t *rounded = (uint16_t *)(void *)scratch->q;
  for (int32_t row = 0; row < item->count * job->group; row++) {
    const float *q = job->qkv + (item->token + row / job->group) * job->width +
                     (int64_t)(kv_head * job->group + row % job->group) * attention->head_dim;
    float *to = job->at_once ? scratch->acc : scratch->q + (int64_t)row * job->kind->head_stride;
    for (int32_t i = 0; i < attention->head_dim; i++) to[i] = q[i] * attention->scale;
    if (job->at_once) device->kernels->stage(rounded + row * depth, to, attention->head_dim, depth);
  }
}

/* First row in `partials` of a split of an item and K/V head. */
static float *partial_rows(const attending_t *job, const item_t *item, int32_t split,
                           int32_t kv_head) {
  int64_t rows = (int64_t)item->count * job->group;
  int64_t row = item->partial + ((int64_t)split * job->attention->num_kv_heads + kv_head) * rows;
  return job->device->partials + row * job->device->partial_stride;
}

static void begin_scratch(const attending_t *job, attention_scratch_t *scratch, int worker) {
  const device_t *device = job->device;
  scratch->strip.segment_keys =
      device->kv.block_size < SEGMENT_KEYS ? device->kv.block_size : SEGMENT_KEYS;
  scratch->strip.k_stride = device->kv.int8 ? SEGMENT_KEYS : device->key_stride;
  scratch->worker = worker;
  scratch->strip.head_dim = job->attention->head_dim;
}

static void attend_task(void *context, int64_t first, int64_t last, int worker) {
  const attending_t *job = context;
  device_t *device = job->device;
  attention_scratch_t *scratch = &device->attention[worker];
  begin_scratch(job, scratch, worker);
  for (int64_t unit = first; unit < last; unit++) {
    int32_t kv_head = (int32_t)(unit / device->num_items);
    const item_t *item = &device->items[unit % device->num_items];
    load_queries(job, item, kv_head, scratch);
    if (item->partial >= 0) {
      attend_split(job, item, kv_head, item->split_first, scratch);
      float *to = partial_rows(job, item, 0, kv_head);
      for (int32_t row = 0; row < item->count * job->group; row++, to += device->partial_stride) {
        memcpy(to, scratch->acc + (int64_t)row * job->kind->head_stride,
               (size_t)job->kind->head_stride * sizeof(float));
        to[job->kind->head_stride] = scratch->max[row];
        to[job->kind->head_stride + 1] = scratch->sum[row];
      }
      continue;
    }
    reset_total(job, item, scratch);
    for (int32_t split = item->split_first; split < item->split_last; split++) {
      attend_split(job, item, kv_head, split, scratch);
      const split_result_t result = {.acc = scratch->acc,
                                     .max = scratch->max,
                                     .sum = scratch->sum,
                                     .stride = job->kind->head_stride,
                                     .state_stride = 1};
      merge_split(job, item, split, &result, scratch);
    }
    write_rows(job, item, kv_head, scratch);
  }
}

static void merge_task(void *context, int64_t first, int64_t last, int worker) {
  const attending_t *job = context;
  device_t *device = job->device;
  attention_scratch_t *scratch = &device->attention[worker];
  for (int64_t unit = first; unit < last; unit++) {
    int32_t kv_head = (int32_t)(unit / device->num_split_items);
    const item_t *item = &device->split_items[unit % device->num_split_items];
    reset_total(job, item, scratch);
    for (int32_t split = item->split_first; split < item->split_last; split++) {
      const float *rows = partial_rows(job, item, split - item->split_first, kv_head);
      const split_result_t result = {.acc = rows,
                                     .max = rows + job->kind->head_stride,
                                     .sum = rows + job->kind->head_stride + 1,
                                     .stride = device->partial_stride,
                                     .state_stride = device->partial_stride};
      merge_split(job, item, split, &result, scratch);
    }
    write_rows(job, item, kv_head, scratch);
  }
}

/* Lists the query tiles. If a request has one tile, its splits are items of their own as long as
 * `partials` has room. */
static void list_items(const attending_t *job) {
  device_t *device = job->device;
  const batch_t *batch = device->batch;
  int32_t tile = MAX(job->rows / job->group, 1);
  int32_t used = 0; /* rows of `partials` */
  device->num_items = device->num_split_items = 0;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    int32_t begin = batch->query_start_loc[r], end = batch->query_start_loc[r + 1];
    for (int32_t t = begin; t < end; t += tile) {
      int32_t count = MIN(end - t, tile);
      int32_t split_first = first_key(job->attention, batch->positions[t]) / SPLIT_KEYS;
      int32_t end_keys = end_key(job, r, t + count - 1);
      int32_t split_last = (end_keys - 1) / SPLIT_KEYS + 1;
      item_t item = {r, t, count, split_first, split_last, -1};
      int64_t rows = (int64_t)count * job->attention->num_heads;
      int64_t all = rows * (split_last - split_first);
      if (end - begin > tile || split_last - split_first == 1 || used + all > PARTIAL_ROWS) {
        device->items[device->num_items++] = item;
        continue;
      }
      item.partial = used;
      device->split_items[device->num_split_items++] = item;
      for (int32_t split = split_first; split < split_last; split++) {
        item_t part = item;
        part.partial = used + (int32_t)rows * (split - split_first);
        part.split_first = split;
        part.split_last = split + 1;
        device->items[device->num_items++] = part;
      }
      used += (int32_t)all;
    }
  }
}

/* Returns how many query rows a tile takes. A copy of K and V serves all rows of a tile of
 * `attend`, so that large tiles are better as long as every thread has some of them. */
static int32_t tile_rows(const device_t *device, const attention_t *attention, bool at_once) {
  if (!at_once) return ATTENTION_ROWS;
  int64_t rows = (int64_t)device->batch->num_tokens * attention->num_heads;
  int64_t share = rows / (TILES_PER_THREAD * pool_num_threads(device->pool));
  return (int32_t)MIN(MAX(share, ATTENTION_ROWS), ATTEND_ROWS);
}

static void run(attending_t *job) {
  device_t *device = job->device;
  int32_t heads = job->attention->num_kv_heads;
  list_items(job);
  pool_run(device->pool, attend_task, job, (int64_t)device->num_items * heads, 1);
  pool_run(device->pool, merge_task, job, (int64_t)device->num_split_items * heads, 1);
}

static void check(const device_t *device, const attention_t *attention) {
  kv_check(device, attention);
  CHECK_EQ(attention->num_heads % attention->num_kv_heads, 0);
  CHECK(attention->num_entries == 0 || attention->num_heads == attention->num_kv_heads);
  CHECK(!attention->crosses || device->batch->cross_table != NULL);
  CHECK_LE(attention->num_heads, device->limits.heads_max);
  CHECK_LE(device->batch->num_tokens, device->limits.tokens_max);
}

void attention_latent(device_t *device, float *out, const float *q, const attention_t *attention,
                      int32_t rank) {
  check(device, attention);
  CHECK(device->kv.latent);
  attending_t job = {.device = device,
                     .attention = attention,
                     .kind = kv_place(device, attention, 0).kind,
                     .qkv = q,
                     .out = out,
                     .group = attention->num_heads / attention->num_kv_heads,
                     .width = (int64_t)attention->num_heads * attention->head_dim,
                     .dtype = device->kv.dtype,
                     .rows = ATTENTION_ROWS,
                     .rank = rank};
  run(&job);
}

void cpu_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention) {
  check(device, attention);
  CHECK(!device->kv.latent);
  dtype_t dtype = device->kv.int8 ? device->kernels->kv8_type : device->kv.dtype;
  const bool by_distance =
      attention->slopes != NULL || attention->distances != NULL || attention->num_entries > 0;
  bool at_once = dtype == DTYPE_BF16 && device->kernels->attend != NULL && !by_distance;
  attending_t job = {.device = device,
                     .attention = attention,
                     .kind = kv_place(device, attention, 0).kind,
                     .qkv = FLOATS(qkv),
                     .out = FLOATS(out),
                     .group = attention->num_heads / attention->num_kv_heads,
                     .width = attention_width(attention),
                     .dtype = dtype,
                     .at_once = at_once,
                     .rows = tile_rows(device, attention, at_once)};
  run(&job);
}

/* ---- weights that requests ask for ---- */

typedef struct weighing {
  attending_t attending;
  int32_t layer; /* of the decoder */
} weighing_t;

/* Online over strips, as above: scores of the columns that are kept become weights at the end. */
static void weigh_token(const attending_t *job, const item_t *item, int32_t head, int32_t columns,
                        float *out, attention_scratch_t *scratch) {
  const attention_t *attention = job->attention;
  const device_t *device = job->device;
  const int32_t len = device->batch->cross_lens[item->request], keys = scratch->strip.segment_keys;
  const float *q = job->qkv + item->token * job->width + (int64_t)head * attention->head_dim;
  float max = -INFINITY, sum = 0;
  for (int32_t i = 0; i < attention->head_dim; i++) scratch->q[i] = q[i] * attention->scale;
  for (int32_t base = 0; base < len; base += STRIP_KEYS) {
    const int32_t last = MIN(len - base, STRIP_KEYS), end = DIV_UP(last, keys);
    load_strip(job, item, head / job->group, base, 0, end, scratch, &scratch->strip);
    device->kernels->scores[job->dtype](scratch->scores, scratch->q, job->kind->head_stride, 1,
                                        &scratch->strip, 0, end);
    const int32_t kept = MAX(MIN(columns - base, last), 0);
    if (kept > 0) memcpy(out + base, scratch->scores, (size_t)kept * sizeof *out);
    (void)device->kernels->softmax(scratch->scores, 0, last, attention->softcap, &max, &sum);
  }
  for (int32_t i = 0; i < columns; i++) out[i] = expf(out[i] - max) / sum;
}

static void weigh_task(void *context, int64_t first, int64_t last, int worker) {
  const weighing_t *weighing = context;
  const attending_t *job = &weighing->attending;
  const batch_t *batch = job->device->batch;
  attention_scratch_t *scratch = &job->device->attention[worker];
  begin_scratch(job, scratch, worker);
  for (int64_t token = first; token < last; token++) {
    const int32_t row = batch->request_row[token];
    const cross_weights_t *weights = batch->cross_weights[row];
    const int32_t at = weights != NULL ? batch->positions[token] - weights->first : -1;
    if (at < 0 || at >= weights->count) continue;
    const item_t item = {.request = row, .token = (int32_t)token, .count = 1};
    for (int32_t i = 0; i < weights->num_heads; i++) {
      if (weights->heads[i].layer != weighing->layer) continue;
      float *out = weights->out + ((int64_t)i * weights->count + at) * weights->columns;
      weigh_token(job, &item, weights->heads[i].head, weights->columns, out, scratch);
    }
  }
}

void cpu_cross_weigh(device_t *device, const act_t *q, const attention_t *attention,
                     int32_t layer) {
  if (device->batch->num_weighed == 0) return;
  check(device, attention);
  CHECK(attention->crosses && attention->softcap == 0);
  weighing_t job = {
      .attending = {.device = device,
                    .attention = attention,
                    .kind = kv_place(device, attention, 0).kind,
                    .qkv = FLOATS(q),
                    .group = attention->num_heads / attention->num_kv_heads,
                    .width = attention_width(attention),
                    .dtype = device->kv.int8 ? device->kernels->kv8_type : device->kv.dtype},
      .layer = layer};
  pool_run(device->pool, weigh_task, &job, device->batch->num_tokens, 1);
}
