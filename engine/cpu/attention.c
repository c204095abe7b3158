/* attention.c: attention over the paged K/V pool, for decodes and prefill chunks alike.
 *
 * Owns how the work is cut. Called on the engine thread; pool workers take (query tile, K/V head)
 * pairs, and for a long decode (query tile, K/V head, split). Softmax is online over strips of 256
 * keys and starts afresh every 2,048 keys, at absolute positions; the splits of a row are then
 * merged in order. Both paths below make these very steps for each row, so its bits do not depend
 * on tiles, threads, chunks, or which path it took.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct attending {
  device_t *device;
  const attention_t *a;
  const float *qkv;
  float *out;
  int32_t group;
  int64_t width; /* of a qkv row */
} attending_t;

/* First key that `position` sees. */
static int32_t first_key(const attention_t *a, int32_t position) {
  return a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
}

/* Keys of [base, base + length) that a position sees, relative to base; empty when *first >= *last.
 */
static void visible_keys(const attention_t *a, int32_t position, int32_t base, int32_t length,
                         int32_t *first, int32_t *last) {
  int32_t low = first_key(a, position) - base, high = position + 1 - base;
  *first = low > 0 ? low : 0;
  *last = high < length ? high : length;
}

static void load_strip(const attending_t *c, const item_t *item, int32_t kv_head, int32_t base,
                       int32_t first, int32_t last, strip_t *strip) {
  const device_t *d = c->device;
  size_t element = dtype_size(d->kv.dtype), size = (size_t)d->kv.block_size;
  size_t key_head = (size_t)d->kv.head_dim * (size_t)d->key_stride * element;
  size_t value_row = (size_t)d->head_stride * element;
  const int32_t *table = d->batch->block_table[item->request];
  for (int32_t s = first; s < last; s++) {
    size_t key = (size_t)(base + s * strip->segment_keys);
    int32_t block = table[key / size];
    CHECK_RANGE(block, 0, d->kv.num_blocks);
    size_t offset = key % size;
    const uint8_t *at = kv_block(d, c->a->layer, block);
    strip->k[s] = at + (size_t)kv_head * key_head + offset * element;
    strip->v[s] = at + d->key_bytes + ((size_t)kv_head * size + offset) * value_row;
  }
  /* Scores are made for whole groups of segments; those past the last key are never looked at. */
  for (int32_t s = last; s % SEGMENT_GROUP != 0; s++) strip->k[s] = strip->k[last - 1];
}

/* Adds weights . values for the rows of positions [from, to) of the tile. */
static void add_values(const attending_t *c, attention_scratch_t *s, int32_t from, int32_t to,
                       int32_t first, int32_t last) {
  if (first >= last) return;
  const device_t *d = c->device;
  int64_t row = (int64_t)from * c->group;
  d->kernels->values[d->kv.dtype](s->acc + row * d->head_stride, d->head_stride,
                                  s->scores + row * SCORE_STRIDE, (to - from) * c->group, &s->strip,
                                  first, last);
}

static void attend_strip(const attending_t *c, const item_t *item, int32_t kv_head, int32_t base,
                         attention_scratch_t *s) {
  const device_t *d = c->device;
  const attention_t *a = c->a;
  const int32_t *positions = d->batch->positions + item->token;
  int32_t count = item->count, low, high, low_end, high_end;
  visible_keys(a, positions[0], base, STRIP_KEYS, &low, &high);
  visible_keys(a, positions[count - 1], base, STRIP_KEYS, &low_end, &high_end);
  int32_t keys = s->strip.segment_keys;
  int32_t from = low / keys / SEGMENT_GROUP * SEGMENT_GROUP, to = (high_end + keys - 1) / keys;
  load_strip(c, item, kv_head, base, from, to, &s->strip);
  d->kernels->scores[d->kv.dtype](s->scores, s->q, d->head_stride, count * c->group, &s->strip,
                                  from, to);
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(a, positions[i], base, STRIP_KEYS, &first, &last);
    if (first >= last) continue;
    for (int32_t row = i * c->group; row < (i + 1) * c->group; row++) {
      float factor = d->kernels->softmax(s->scores + (int64_t)row * SCORE_STRIDE, first, last,
                                         a->softcap, &s->max[row], &s->sum[row]);
      d->kernels->scale(s->acc + (int64_t)row * d->head_stride, factor, d->head_stride);
    }
  }
  /* Keys that all positions see go through one product; each row's keys still come in order, and
   * kernels that take two at a time find the same pairs. */
  low_end += low_end % 2;
  high -= high % 2;
  bool shared = low_end < high;
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(a, positions[i], base, STRIP_KEYS, &first, &last);
    add_values(c, s, i, i + 1, first, shared ? low_end : last);
  }
  if (!shared) return;
  add_values(c, s, 0, count, low_end, high);
  for (int32_t i = 0; i < count; i++) {
    int32_t first, last;
    visible_keys(a, positions[i], base, STRIP_KEYS, &first, &last);
    add_values(c, s, i, i + 1, high, last);
  }
}

/* acc, max and sum of the tile's rows over one split. */
static void attend_split(const attending_t *c, const item_t *item, int32_t kv_head, int32_t split,
                         attention_scratch_t *s) {
  const device_t *d = c->device;
  const int32_t *positions = d->batch->positions + item->token;
  int32_t rows = item->count * c->group, begin = split * SPLIT_KEYS;
  for (int32_t r = 0; r < rows; r++) {
    s->max[r] = -INFINITY;
    s->sum[r] = 0;
  }
  memset(s->acc, 0, (size_t)rows * (size_t)d->head_stride * sizeof(float));
  int32_t first = first_key(c->a, positions[0]), last = positions[item->count - 1] + 1;
  if (first < begin) first = begin;
  if (last > begin + SPLIT_KEYS) last = begin + SPLIT_KEYS;
  for (int32_t base = first / STRIP_KEYS * STRIP_KEYS; base < last; base += STRIP_KEYS)
    attend_strip(c, item, kv_head, base, s);
}

/* True when `position` sees a key of the split. */
static bool sees_split(const attention_t *a, int32_t position, int32_t split) {
  int32_t first, last;
  visible_keys(a, position, split * SPLIT_KEYS, SPLIT_KEYS, &first, &last);
  return first < last;
}

static void merge_split(const attending_t *c, const item_t *item, int32_t split, const float *acc,
                        int64_t stride, const float *max, const float *sum, int64_t state_stride,
                        attention_scratch_t *s) {
  const device_t *d = c->device;
  for (int32_t row = 0; row < item->count * c->group; row++) {
    int32_t position = d->batch->positions[item->token + row / c->group];
    if (!sees_split(c->a, position, split)) continue;
    d->kernels->merge(s->total + (int64_t)row * d->head_stride, &s->total_max[row],
                      &s->total_sum[row], acc + row * stride, max[row * state_stride],
                      sum[row * state_stride], d->head_stride);
  }
}

static void reset_total(const attending_t *c, const item_t *item, attention_scratch_t *s) {
  int32_t rows = item->count * c->group;
  for (int32_t r = 0; r < rows; r++) {
    s->total_max[r] = -INFINITY;
    s->total_sum[r] = 0;
  }
  memset(s->total, 0, (size_t)rows * (size_t)c->device->head_stride * sizeof(float));
}

static void write_rows(const attending_t *c, const item_t *item, int32_t kv_head,
                       const attention_scratch_t *s) {
  const attention_t *a = c->a;
  for (int32_t row = 0; row < item->count * c->group; row++) {
    int32_t head = kv_head * c->group + row % c->group;
    int64_t token = item->token + row / c->group;
    float *out = c->out + (token * a->num_heads + head) * a->head_dim;
    float sink = a->sinks != NULL ? a->sinks->values[head] : -INFINITY;
    c->device->kernels->finish(out, s->total + (int64_t)row * c->device->head_stride,
                               s->total_max[row], s->total_sum[row], sink, a->head_dim);
  }
}

static void load_queries(const attending_t *c, const item_t *item, int32_t kv_head,
                         attention_scratch_t *s) {
  const attention_t *a = c->a;
  for (int32_t row = 0; row < item->count * c->group; row++) {
    const float *q = c->qkv + (item->token + row / c->group) * c->width +
                     (int64_t)(kv_head * c->group + row % c->group) * a->head_dim;
    float *to = s->q + (int64_t)row * c->device->head_stride;
    for (int32_t i = 0; i < a->head_dim; i++) to[i] = q[i] * a->scale;
  }
}

/* First row in `partials` of a split of an item and K/V head. */
static float *partial_rows(const attending_t *c, const item_t *item, int32_t split,
                           int32_t kv_head) {
  int64_t rows = (int64_t)item->count * c->group;
  int64_t row = item->partial + ((int64_t)split * c->a->num_kv_heads + kv_head) * rows;
  return c->device->partials + row * c->device->partial_stride;
}

static void attend_task(void *context, int64_t first, int64_t last, int worker) {
  const attending_t *c = context;
  device_t *d = c->device;
  attention_scratch_t *s = &d->attention[worker];
  s->strip.segment_keys = d->kv.block_size < SEGMENT_KEYS ? d->kv.block_size : SEGMENT_KEYS;
  s->strip.k_stride = d->key_stride;
  s->strip.head_dim = d->kv.head_dim;
  for (int64_t unit = first; unit < last; unit++) {
    int32_t kv_head = (int32_t)(unit / d->num_items);
    const item_t *item = &d->items[unit % d->num_items];
    load_queries(c, item, kv_head, s);
    if (item->partial >= 0) {
      attend_split(c, item, kv_head, item->split_first, s);
      float *to = partial_rows(c, item, 0, kv_head);
      for (int32_t row = 0; row < item->count * c->group; row++, to += d->partial_stride) {
        memcpy(to, s->acc + (int64_t)row * d->head_stride, (size_t)d->head_stride * sizeof(float));
        to[d->head_stride] = s->max[row];
        to[d->head_stride + 1] = s->sum[row];
      }
      continue;
    }
    reset_total(c, item, s);
    for (int32_t split = item->split_first; split < item->split_last; split++) {
      attend_split(c, item, kv_head, split, s);
      merge_split(c, item, split, s->acc, d->head_stride, s->max, s->sum, 1, s);
    }
    write_rows(c, item, kv_head, s);
  }
}

static void merge_task(void *context, int64_t first, int64_t last, int worker) {
  const attending_t *c = context;
  device_t *d = c->device;
  attention_scratch_t *s = &d->attention[worker];
  for (int64_t unit = first; unit < last; unit++) {
    int32_t kv_head = (int32_t)(unit / d->num_split_items);
    const item_t *item = &d->split_items[unit % d->num_split_items];
    reset_total(c, item, s);
    for (int32_t split = item->split_first; split < item->split_last; split++) {
      const float *rows = partial_rows(c, item, split - item->split_first, kv_head);
      merge_split(c, item, split, rows, d->partial_stride, rows + d->head_stride,
                  rows + d->head_stride + 1, d->partial_stride, s);
    }
    write_rows(c, item, kv_head, s);
  }
}

/* Lists the query tiles. The splits of a request with one tile run apart while there is room. */
static void list_items(const attending_t *c) {
  device_t *d = c->device;
  const batch_t *b = d->batch;
  int32_t tile = ATTENTION_ROWS / c->group > 1 ? ATTENTION_ROWS / c->group : 1;
  int32_t used = 0; /* rows of `partials` */
  d->num_items = d->num_split_items = 0;
  for (int32_t r = 0; r < b->num_reqs; r++) {
    int32_t begin = b->query_start_loc[r], end = b->query_start_loc[r + 1];
    for (int32_t t = begin; t < end; t += tile) {
      int32_t count = end - t < tile ? end - t : tile;
      int32_t split_first = first_key(c->a, b->positions[t]) / SPLIT_KEYS;
      int32_t split_last = b->positions[t + count - 1] / SPLIT_KEYS + 1;
      item_t item = {r, t, count, split_first, split_last, -1};
      int64_t rows = (int64_t)count * c->a->num_heads;
      int64_t all = rows * (split_last - split_first);
      if (end - begin > tile || split_last - split_first == 1 || used + all > PARTIAL_ROWS) {
        d->items[d->num_items++] = item;
        continue;
      }
      item.partial = used;
      d->split_items[d->num_split_items++] = item;
      for (int32_t split = split_first; split < split_last; split++) {
        item_t part = item;
        part.partial = used + (int32_t)rows * (split - split_first);
        part.split_first = split;
        part.split_last = split + 1;
        d->items[d->num_items++] = part;
      }
      used += (int32_t)all;
    }
  }
}

void cpu_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention) {
  const attention_t *a = attention;
  CHECK(device->kv_base);
  CHECK_RANGE(a->layer, 0, device->kv.num_layers);
  CHECK_EQ(a->head_dim, device->kv.head_dim);
  CHECK_EQ(a->num_kv_heads, device->kv.num_kv_heads);
  CHECK_EQ(a->num_heads % a->num_kv_heads, 0);
  CHECK_LE(a->num_heads, device->limits.heads_max);
  CHECK_LE(device->batch->num_tokens, device->limits.tokens_max);
  attending_t c = {device, a, qkv, out, a->num_heads / a->num_kv_heads, 0};
  c.width = (int64_t)(a->num_heads + 2 * a->num_kv_heads) * a->head_dim;
  list_items(&c);
  pool_run(device->pool, attend_task, &c, (int64_t)device->num_items * a->num_kv_heads, 1);
  pool_run(device->pool, merge_task, &c, (int64_t)device->num_split_items * a->num_kv_heads, 1);
}
