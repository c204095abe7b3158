/* tower.c: attention of towers, whose rows see all rows of their segment.
 *
 * Called on the engine thread; pool workers take (query tile, head) pairs. A worker packs K and V
 * of a strip of 256 keys as the kernels of attention.c read them, so there is no cache and no limit
 * on rows. The softmax is computed online over the strips of a segment, from its first row on, so
 * the bits of a row depend neither on tiles and threads nor on the other segments. A strip is
 * computed by the tier's `scores`, `softmax` and `values` in fp32, or, where rounding is allowed
 * and the tier has it, by its `attend`.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/isa/attend.h"

#include <math.h>
#include <string.h>

/* Rows of a tile: of `attend` more, since K and V are packed for each tile anew. */
enum { TILE_ROWS = 64, ROUNDED_ROWS = 256 };

/* What a worker needs; D is the widest head, padded. For `attend` q, k and v are bf16. */
struct tower_scratch {
  float *q, *acc;   /* [ROUNDED_ROWS, D] */
  float *scores;    /* [TILE_ROWS, SCORE_STRIDE], or the space of `attend` */
  float *max, *sum; /* [ROUNDED_ROWS] */
  float *k;         /* [STRIP_KEYS / SEGMENT_KEYS][D][SEGMENT_KEYS], or [STRIP_KEYS, D] */
  float *v;         /* [STRIP_KEYS, D] */
  strip_t strip;
};

typedef struct seeing {
  device_t *device;
  const tower_attention_t *attention;
  const tower_segments_t *segments;
  float *out, *qkv;
  int64_t width;  /* of a row of qkv */
  int32_t stride; /* head_dim padded to HEAD_ALIGN */
  int32_t depth;  /* the same to DEPTH_ALIGN, of rows of bf16 */
  bool at_once;   /* by the tier's `attend` */
  int32_t tile;   /* rows */
} seeing_t;

static int cpu_tower_prepare(device_t *device, int32_t head_dim_max, inferd_error_t *error) {
  size_t threads = (size_t)pool_num_threads(device->pool);
  size_t dims = ROUND_UP((size_t)head_dim_max, DEPTH_ALIGN);
  size_t scores = MAX(TILE_ROWS * SCORE_STRIDE * sizeof(float), attend_bytes(dims));
  size_t floats = 2 * ROUNDED_ROWS * (dims + 1) + 2 * STRIP_KEYS * dims + scores / sizeof(float);
  device->tower = memory_take(device, threads * sizeof *device->tower);
  if (device->tower == NULL) return no_memory(error, "a tower", threads * sizeof *device->tower);
  for (size_t i = 0; i < threads; i++) {
    tower_scratch_t *scratch = &device->tower[i];
    scratch->q = memory_take(device, floats * sizeof(float));
    if (scratch->q == NULL) return no_memory(error, "a tower", floats * sizeof(float));
    scratch->acc = scratch->q + ROUNDED_ROWS * dims;
    scratch->k = scratch->acc + ROUNDED_ROWS * dims;
    scratch->v = scratch->k + STRIP_KEYS * dims;
    scratch->scores = scratch->v + STRIP_KEYS * dims;
    scratch->max = scratch->scores + scores / sizeof(float);
    scratch->sum = scratch->max + ROUNDED_ROWS;
  }
  device->tower_dims = (int32_t)dims;
  return 0;
}

/* What is done with q, k and v before they meet: norms of heads, then the rotation. */
static void turn_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const seeing_t *job = context;
  const tower_attention_t *attention = job->attention;
  const kernels_t *kernels = job->device->kernels;
  int32_t dim = attention->head_dim, parts = attention->rope_parts, half = dim / parts / 2;
  const vector_t *const norms[] = {attention->q_norm, attention->k_norm, NULL};
  const norm_args_t plain = {NORM_RMS, dim, attention->norm_eps, NULL, NULL};
  for (int64_t row = first; row < last; row++) {
    float *value = job->qkv + row * job->width;
    for (int32_t i = 0; norms[0] != NULL && i < 3 * attention->num_heads; i++) {
      norm_args_t args = plain;
      const vector_t *norm = norms[i / attention->num_heads];
      if (norm != NULL) args.weight = norm->values;
      kernels->norm(value + (int64_t)i * dim, value + (int64_t)i * dim, NULL, &args);
    }
    if (attention->cosine == NULL) continue;
    const float *cosine = attention->cosine + row * (dim / 2);
    const float *sine = attention->sine + row * (dim / 2);
    for (int32_t i = 0; i < 2 * attention->num_heads * parts; i++, value += dim / parts)
      kernels->rotate(value, cosine + i % parts * half, sine + i % parts * half, half);
  }
}

/* Where the segments of a strip are packed. */
static void place_segments(const seeing_t *job, tower_scratch_t *scratch) {
  const size_t element = job->at_once ? sizeof(uint16_t) : sizeof(float);
  const size_t key = (size_t)(job->at_once ? job->depth : job->attention->head_dim) * element;
  strip_t *strip = &scratch->strip;
  strip->segment_keys = strip->k_stride = SEGMENT_KEYS;
  strip->head_dim = job->attention->head_dim;
  for (size_t s = 0; s < STRIP_KEYS / SEGMENT_KEYS; s++) {
    strip->k[s] = (const uint8_t *)scratch->k + s * SEGMENT_KEYS * key;
    strip->v[s] = (const uint8_t *)scratch->v + s * SEGMENT_KEYS * (size_t)job->stride * element;
  }
}

/* Packs K and V of `count` rows from `row` on, for a head. */
static void pack_strip(const seeing_t *job, int64_t row, int32_t count, int32_t head,
                       tower_scratch_t *scratch) {
  int32_t dim = job->attention->head_dim;
  int64_t columns = (int64_t)job->attention->num_heads * dim;
  const float *from = job->qkv + row * job->width + columns + (int64_t)head * dim;
  for (int32_t key = 0; key < count; key++, from += job->width) {
    float *k = (float *)(uintptr_t)scratch->strip.k[key / SEGMENT_KEYS] + key % SEGMENT_KEYS;
    float *v = (float *)(uintptr_t)scratch->strip.v[key / SEGMENT_KEYS] +
               key % SEGMENT_KEYS * (int64_t)job->stride;
    for (int32_t i = 0; i < dim; i++) k[(int64_t)i * SEGMENT_KEYS] = from[i];
    memcpy(v, from + columns, (size_t)dim * sizeof *v);
  }
}

/* Adds to the scores of a row what follows from the distances of its keys, the first of which is
 * `distance` behind it. */
static void add_distances(const tower_attention_t *attention, int32_t head, int32_t distance,
                          float *scores, int32_t keys) {
  const int32_t reach = attention->reach;
  const float *numbers = attention->distances->values + (int64_t)head * (2 * reach + 1) + reach;
  for (int32_t j = 0; j < keys; j++) scores[j] += numbers[MIN(MAX(distance + j, -reach), reach)];
}

/* Keys [base, base + keys) for rows [row, row + rows), of a head. */
static void see_strip(const seeing_t *job, int32_t row, int32_t rows, int32_t base, int32_t keys,
                      int32_t head, tower_scratch_t *scratch) {
  const kernels_t *kernels = job->device->kernels;
  int32_t last = DIV_UP(keys, SEGMENT_KEYS);
  kernels->scores[DTYPE_F32](scratch->scores, scratch->q, job->stride, rows, &scratch->strip, 0,
                             last);
  for (int32_t r = 0; r < rows; r++) {
    if (job->attention->distances != NULL)
      add_distances(job->attention, head, base - row - r,
                    scratch->scores + (int64_t)r * SCORE_STRIDE, keys);
    float factor = kernels->softmax(scratch->scores + (int64_t)r * SCORE_STRIDE, 0, keys, 0,
                                    &scratch->max[r], &scratch->sum[r]);
    kernels->scale(scratch->acc + (int64_t)r * job->stride, factor, job->stride);
  }
  kernels->values[DTYPE_F32](scratch->acc, job->stride, scratch->scores, rows, &scratch->strip, 0,
                             keys);
}

/* The same for `attend`: rows of bf16. */
static void round_strip(const seeing_t *job, int64_t row, int32_t count, int32_t head,
                        tower_scratch_t *scratch) {
  const kernels_t *kernels = job->device->kernels;
  const int32_t dim = job->attention->head_dim;
  const int64_t columns = (int64_t)job->attention->num_heads * dim;
  const float *from = job->qkv + row * job->width + columns + (int64_t)head * dim;
  uint16_t *k = (uint16_t *)(void *)scratch->k, *v = (uint16_t *)(void *)scratch->v;
  for (int32_t key = 0; key < count; key++, from += job->width) {
    kernels->stage(k + (int64_t)key * job->depth, from, dim, job->depth);
    kernels->stage(v + (int64_t)key * job->stride, from + columns, dim, job->stride);
  }
}

/* See see_strip, of all rows in one call. */
static void see_at_once(const seeing_t *job, int32_t rows, int32_t keys, tower_scratch_t *scratch) {
  const key_range_t seen = {0, keys};
  const attend_t attend = {.q = (const uint16_t *)(const void *)scratch->q,
                           .depth = job->depth,
                           .positions = 1,
                           .group = rows,
                           .seen = &seen,
                           .strip = &scratch->strip,
                           .keys_are_rows = true,
                           .acc = scratch->acc,
                           .ldo = job->stride,
                           .max = scratch->max,
                           .sum = scratch->sum,
                           .space = scratch->scores};
  job->device->kernels->attend(&attend);
}

/* The queries of rows [row, row + count), times the scale: floats, or for `attend` bf16. */
static void load_queries(const seeing_t *job, int32_t row, int32_t count, int32_t head,
                         tower_scratch_t *scratch) {
  const tower_attention_t *attention = job->attention;
  const int32_t dim = attention->head_dim;
  uint16_t *rounded = (uint16_t *)(void *)scratch->q;
  for (int32_t r = 0; r < count; r++) {
    const float *q = job->qkv + (row + r) * job->width + (int64_t)head * dim;
    float *to = job->at_once ? scratch->acc : scratch->q + (int64_t)r * job->stride;
    for (int32_t i = 0; i < dim; i++) to[i] = q[i] * attention->scale;
    if (job->at_once)
      job->device->kernels->stage(rounded + (int64_t)r * job->depth, to, dim, job->depth);
  }
}

/* Rows [row, row + count) of segment [begin, end), for a head. */
static void see_tile(const seeing_t *job, int32_t row, int32_t count, int32_t begin, int32_t end,
                     int32_t head, tower_scratch_t *scratch) {
  const tower_attention_t *attention = job->attention;
  int32_t dim = attention->head_dim;
  load_queries(job, row, count, head, scratch);
  for (int32_t r = 0; r < count; r++) {
    scratch->max[r] = -INFINITY;
    scratch->sum[r] = 0;
  }
  memset(scratch->acc, 0, (size_t)count * (size_t)job->stride * sizeof(float));
  for (int32_t base = begin; base < end; base += STRIP_KEYS) {
    int32_t keys = MIN(end - base, STRIP_KEYS);
    if (job->at_once) {
      round_strip(job, base, keys, head, scratch);
      see_at_once(job, count, keys, scratch);
    } else {
      pack_strip(job, base, keys, head, scratch);
      see_strip(job, row, count, base, keys, head, scratch);
    }
  }
  for (int32_t r = 0; r < count; r++)
    job->device->kernels->finish(
        job->out + ((int64_t)(row + r) * attention->num_heads + head) * dim,
        scratch->acc + (int64_t)r * job->stride, scratch->max[r], scratch->sum[r], -INFINITY, dim);
}

/* The segment that has unit `unit` of so many rows; *tile is its place there. Every segment begins
 * a tile. */
static int32_t find_tile(const tower_segments_t *segments, int32_t tile_rows, int64_t unit,
                         int32_t *tile) {
  int32_t segment = 0;
  for (;; segment++) {
    int32_t rows = segments->starts[segment + 1] - segments->starts[segment];
    int32_t tiles = DIV_UP(rows, tile_rows);
    if (unit < tiles) break;
    unit -= tiles;
  }
  *tile = (int32_t)unit;
  return segment;
}

static void see_task(void *context, int64_t first, int64_t last, int worker) {
  const seeing_t *job = context;
  tower_scratch_t *scratch = &job->device->tower[worker];
  int32_t heads = job->attention->num_heads;
  place_segments(job, scratch);
  for (int64_t unit = first; unit < last; unit++) {
    int32_t tile;
    int32_t segment = find_tile(job->segments, job->tile, unit / heads, &tile);
    int32_t begin = job->segments->starts[segment], end = job->segments->starts[segment + 1];
    int32_t row = begin + tile * job->tile;
    if (row < job->attention->first_row || row >= job->attention->end_row) continue;
    see_tile(job, row, MIN(end - row, job->tile), begin, end, (int32_t)(unit % heads), scratch);
  }
}

static void cpu_tower_attend(device_t *device, act_t *out, act_t *qkv,
                             const tower_attention_t *attention, const tower_segments_t *segments) {
  int32_t heads = attention->num_heads, dim = attention->head_dim, rows;
  CHECK(device->tower != NULL);
  CHECK_LE(dim, device->tower_dims);
  CHECK_EQ(segments->starts[0], 0);
  seeing_t job = {.device = device,
                  .attention = attention,
                  .segments = segments,
                  .out = FLOATS(out),
                  .qkv = FLOATS(qkv),
                  .width = 3 * (int64_t)heads * dim,
                  .stride = ROUND_UP(dim, HEAD_ALIGN),
                  .depth = ROUND_UP(dim, DEPTH_ALIGN),
                  .at_once = attention->rounds && attention->distances == NULL &&
                             device->kernels->attend != NULL};
  job.tile = job.at_once ? ROUNDED_ROWS : TILE_ROWS;
  rows = segments->starts[segments->count];
  int64_t tiles = 0;
  for (int32_t i = 0; i < segments->count; i++)
    tiles += DIV_UP(segments->starts[i + 1] - segments->starts[i], job.tile);
  if ((attention->cosine != NULL || attention->q_norm != NULL) && attention->first_row == 0) {
    CHECK_EQ(dim % (2 * attention->rope_parts), 0);
    CHECK_EQ(attention->q_norm == NULL, attention->k_norm == NULL);
    pool_run(device->pool, turn_task, &job, rows, INLINE_ELEMENTS / job.width + 1);
  }
  pool_run(device->pool, see_task, &job, tiles * heads, 1);
}

static act_t *cpu_tower_rows(act_t *act, int64_t values) {
  return ACT(FLOATS(act) + values);
}

typedef struct clipping {
  float *out;
  const float *in;
  const tower_columns_t *columns;
  float least, most;
} clipping_t;

static void clip_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const clipping_t *job = context;
  const tower_columns_t *columns = job->columns;
  for (int64_t row = first; row < last; row++) {
    const float *in = job->in + row * columns->width;
    float *out = job->out + row * columns->stride + columns->first;
    for (int32_t i = 0; i < columns->width; i++) {
      const float value = in[i] < job->least ? job->least : in[i];
      out[i] = value > job->most ? job->most : value;
    }
  }
}

static void cpu_tower_clip(device_t *device, act_t *out, const tower_columns_t *columns,
                           const act_t *in, float least, float most, int32_t rows) {
  clipping_t job = {FLOATS(out), FLOATS(in), columns, least, most};
  CHECK_LE(columns->first + columns->width, columns->stride);
  pool_run(device->pool, clip_task, &job, rows, INLINE_ELEMENTS / columns->width + 1);
}

const tower_ops_t cpu_tower_ops = {.prepare = cpu_tower_prepare,
                                   .rows = cpu_tower_rows,
                                   .attend = cpu_tower_attend,
                                   .clip = cpu_tower_clip};
