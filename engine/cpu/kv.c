/* kv.c: the paged K/V pool: its layout, stores and page copies.
 *
 * Owns the K/V pool. Called on the engine thread; pool workers store tokens and copy layers. Layout
 * of a block in one layer, chosen so that attention needs no sum across lanes:
 *   K part [kv_head][head_dim][key_stride]: keys are lanes; key_stride = block_size, at least 16
 *   V part [kv_head][block_size][head_stride]: head_stride = head_dim padded to 16 with zeros
 *   scales of a pool in 8 bits, fp32: of K [kv_head][key_stride], of V [kv_head][block_size]
 * A pool of latent rows has no V part. Layers of two kinds differ in heads and head_dim; the blocks
 * of a layer lie side by side, and the layers behind each other. With window_heads (kv_desc.h) the
 * layers of a block lie side by side, and the blocks behind each other: a block has either all
 * layers of the one kind or single heads of the other.
 * Block 0 is zeroed like the others and never written: no batch has a slot of it.
 */
#include "engine/base/check.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include "engine/base/half.h"
#include "engine/base/util.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ALIGN = 64, HEAD_DIM_MAX = 1024, BLOCK_SIZE_MAX = 65536 };

size_t kv_element(const kv_cache_desc_t *desc) {
  return desc->int8 ? 1 : dtype_size(desc->dtype);
}

/* Layers of one kind, or of the other. */
static bool kind_of(const kv_cache_desc_t *desc, bool other, kv_kind_t *out) {
  int32_t size = desc->block_size, key_stride = MAX(size, SEGMENT_KEYS);
  *out = (kv_kind_t){.num_heads = other ? desc->other_kv_heads : desc->num_kv_heads,
                     .head_dim = other ? desc->other_head_dim : desc->head_dim};
  if (!other && desc->window_heads > 0) out->num_heads = 1;
  if (size < 1 || size > BLOCK_SIZE_MAX || (size & (size - 1)) != 0) return false;
  if (out->head_dim < 1 || out->head_dim > HEAD_DIM_MAX || out->num_heads < 1) return false;
  if (desc->latent && desc->int8) return false;
  out->head_stride = ROUND_UP(out->head_dim, HEAD_ALIGN);
  size_t element = kv_element(desc), heads = (size_t)out->num_heads, scales;
  if (!size_product(&out->key_bytes, heads * element, (size_t)out->head_dim, (size_t)key_stride) ||
      !size_product(&out->value_bytes, desc->latent ? 0 : heads * element, (size_t)out->head_stride,
                    (size_t)size) ||
      !size_product(&scales, desc->int8 ? heads : 0, (size_t)key_stride + (size_t)size,
                    sizeof(float)) ||
      __builtin_add_overflow(out->key_bytes, out->value_bytes, &out->block_bytes) ||
      __builtin_add_overflow(out->block_bytes, scales, &out->block_bytes) ||
      out->block_bytes > SIZE_MAX / 2)
    return false;
  out->block_bytes = ROUND_UP(out->block_bytes, BLOCK_ALIGN);
  return true;
}

/* False when a block would be too large. */
static bool find_kinds(const kv_cache_desc_t *desc, kv_kind_t out[2]) {
  if (!kind_of(desc, false, &out[0])) return false;
  out[1] = out[0];
  return desc->other_head_dim == 0 || kind_of(desc, true, &out[1]);
}

/* Bytes of a block in all layers, whatever it holds. False when it would be too large. */
static bool whole_block(const kv_cache_desc_t *desc, const kv_kind_t kinds[2], size_t *out) {
  size_t heads, bytes = 0;
  if (desc->window_heads < 0 ||
      !size_product(&heads, (size_t)desc->window_heads, kinds[0].block_bytes, 1))
    return false;
  for (int32_t layer = 0; layer < desc->num_layers; layer++) {
    size_t own = kinds[kv_layer_is_other(desc, layer)].block_bytes;
    if (__builtin_add_overflow(bytes, own, &bytes)) return false;
  }
  *out = MAX(bytes, heads);
  return true;
}

size_t cpu_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks) {
  kv_kind_t kinds[2];
  size_t one, bytes;
  if (num_blocks < 0 || desc->num_layers < 0 || desc->num_layers > KV_LAYERS_MAX ||
      !find_kinds(desc, kinds) || !whole_block(desc, kinds, &one) ||
      !size_product(&bytes, (size_t)num_blocks, one, 1))
    return SIZE_MAX;
  return bytes;
}

/* Takes the numbers that the codes of a strip become, for each worker. */
static int take_widened(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error) {
  size_t lanes = STRIP_KEYS / (size_t)MIN(desc->block_size, SEGMENT_KEYS) * SEGMENT_KEYS, bytes;
  size_t element = dtype_size(device->kernels->kv8_type);
  const kv_kind_t *kinds = device->kv_kinds;
  size_t stride = (size_t)MAX(kinds[0].head_stride, kinds[1].head_stride);
  device->widened_keys = lanes * stride * element;
  device->widened_bytes = device->widened_keys + STRIP_KEYS * stride * element;
  size_product(&bytes, device->widened_bytes, (size_t)pool_num_threads(device->pool), 1);
  device->widened = memory_take(device, bytes);
  return device->widened != NULL ? 0 : no_memory(error, "attention", bytes);
}

int cpu_kv_cache(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error) {
  kv_kind_t kinds[2];
  if (!find_kinds(desc, kinds))
    return error_set(error, ERR_CONFIGURATION, "block_size",
                     "block_size is %d; with %d values in a head, a KV block of it is too large",
                     desc->block_size, MAX(desc->head_dim, desc->other_head_dim));
  size_t bytes = cpu_kv_bytes(desc, desc->num_blocks), first = 0;
  populate_stop(&device->kv_populate);
  memory_unmap(device->kv_base, device->kv_mapped);
  device->kv_base = NULL;
  device->kv_mapped = 0;
  device->kv = *desc;
  device->kv_block_bytes = 0;
  if (desc->num_layers == 0) return 0; /* no layer has attention: blocks are names of tokens */
  device->kv_base = bytes > 0 && bytes < SIZE_MAX ? memory_map(bytes, &device->kv_mapped) : NULL;
  if (device->kv_base == NULL) return no_memory(error, "the K/V pool", bytes);
  device->key_stride = MAX(desc->block_size, SEGMENT_KEYS);
  memcpy(device->kv_kinds, kinds, sizeof kinds);
  CHECK(whole_block(desc, kinds, &device->kv_block_bytes));
  for (int32_t layer = 0; layer < desc->num_layers; layer++) {
    CHECK(desc->window_heads == 0 || kv_layer_is_other(desc, layer));
    device->kv_first[layer] = first;
    first += (size_t)(desc->window_heads > 0 ? 1 : desc->num_blocks) *
             kv_kind(device, layer)->block_bytes;
  }
  populate_start(&device->kv_populate, device->kv_base, device->kv_mapped);
  return desc->int8 ? take_widened(device, desc, error) : 0;
}

const kv_kind_t *kv_kind(const device_t *device, int32_t layer) {
  return &device->kv_kinds[kv_layer_is_other(&device->kv, layer)];
}

/* Bytes from a block to the next. */
static size_t stride_of(const device_t *device, const kv_kind_t *kind) {
  return device->kv.window_heads > 0 ? device->kv_block_bytes : kind->block_bytes;
}

uint8_t *kv_block(const device_t *device, int32_t layer, int32_t block) {
  return device->kv_base + device->kv_first[layer] +
         (size_t)block * stride_of(device, kv_kind(device, layer));
}

/* Whether blocks of the layer have single heads. */
static bool by_heads(const device_t *device, const attention_t *attention) {
  return attention->group > 0 && device->kv.window_heads > 0;
}

kv_place_t kv_place(const device_t *device, const attention_t *attention, int32_t kv_head) {
  if (by_heads(device, attention)) {
    const kv_kind_t *kind = &device->kv_kinds[0];
    int32_t at = attention->layer + kv_head, heads = device->kv.window_heads;
    return (kv_place_t){kind, attention->group + at / heads, 0,
                        device->kv_base + (size_t)(at % heads) * kind->block_bytes,
                        stride_of(device, kind)};
  }
  const kv_kind_t *kind = kv_kind(device, attention->layer);
  return (kv_place_t){kind, attention->group, kv_head, kv_block(device, attention->layer, 0),
                      stride_of(device, kind)};
}

void kv_check(const device_t *device, const attention_t *attention) {
  bool heads = by_heads(device, attention);
  CHECK(device->kv_base);
  CHECK_RANGE(attention->layer, 0, heads ? device->kv.window_heads : device->kv.num_layers);
  const int32_t head_dim = kv_place(device, attention, 0).kind->head_dim;
  CHECK_LE(attention->head_dim, head_dim); /* keys of an indexer may stand behind latent rows */
  if (device->kv.latent) return;
  CHECK_EQ(attention->head_dim, head_dim);
  CHECK_EQ(attention->num_kv_heads,
           heads ? device->kv.num_kv_heads : kv_kind(device, attention->layer)->num_heads);
}

float *kv_scales(const device_t *device, const kv_kind_t *kind, const uint8_t *block,
                 int32_t kv_head, bool values) {
  uint8_t *base = (uint8_t *)(uintptr_t)block + kind->key_bytes + kind->value_bytes;
  int64_t heads = kind->num_heads, keys = (int64_t)kv_head * device->key_stride;
  if (values) keys = heads * device->key_stride + (int64_t)kv_head * device->kv.block_size;
  return (float *)(void *)base + keys;
}

typedef struct copying {
  device_t *device;
  const batch_t *batch;
} copying_t;

/* Layer number `layer` of num_layers equal parts of blocks that are copied whole: which of the two
 * kinds they have, no one knows. */
static void copy_part(const device_t *device, const batch_t *batch, int64_t layer) {
  size_t all = device->kv_block_bytes, parts = (size_t)device->kv.num_layers;
  size_t begin = all * (size_t)layer / parts, end = all * ((size_t)layer + 1) / parts;
  for (int32_t i = 0; i < batch->num_copies; i++) {
    size_t src = (size_t)batch->copies[i].src * all, dst = (size_t)batch->copies[i].dst * all;
    memcpy(device->kv_base + dst + begin, device->kv_base + src + begin, end - begin);
  }
}

static void copy_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const copying_t *job = context;
  const device_t *device = job->device;
  size_t element = kv_element(&device->kv);
  size_t key_row = (size_t)device->key_stride * element;
  for (int64_t layer = first; layer < last; layer++) {
    if (device->kv.window_heads > 0) {
      copy_part(device, job->batch, layer);
      continue;
    }
    const kv_kind_t *kind = kv_kind(device, (int32_t)layer);
    size_t value_row = (size_t)kind->head_stride * element;
    size_t value_head = value_row * (size_t)device->kv.block_size;
    size_t key_rows = (size_t)kind->num_heads * (size_t)kind->head_dim;
    for (int32_t i = 0; i < job->batch->num_copies; i++) {
      const block_copy_t *copy = &job->batch->copies[i];
      const uint8_t *src = kv_block(device, (int32_t)layer, copy->src);
      uint8_t *dst = kv_block(device, (int32_t)layer, copy->dst);
      size_t rows = (size_t)copy->rows;
      for (size_t r = 0; r < key_rows; r++)
        memcpy(dst + r * key_row, src + r * key_row, rows * element);
      for (int32_t h = 0; h < kind->num_heads && !device->kv.latent; h++) {
        size_t at = kind->key_bytes + (size_t)h * value_head;
        memcpy(dst + at, src + at, rows * value_row);
      }
      for (int32_t part = 0; part < 2 * kind->num_heads && device->kv.int8; part++)
        memcpy(kv_scales(device, kind, dst, part / 2, part % 2 == 1),
               kv_scales(device, kind, src, part / 2, part % 2 == 1), rows * sizeof(float));
    }
  }
}

void kv_copy_blocks(device_t *device, const batch_t *batch) {
  for (int32_t i = 0; i < batch->num_copies; i++) {
    const block_copy_t *copy = &batch->copies[i];
    CHECK_RANGE(copy->src, 0, device->kv.num_blocks);
    CHECK_RANGE(copy->dst, 1, device->kv.num_blocks);
    CHECK_NE(copy->src, copy->dst);
    CHECK_GE(copy->rows, 0);
    CHECK_LE(copy->rows, device->kv.block_size);
  }
  copying_t job = {device, batch};
  if (batch->num_copies > 0) pool_run(device->pool, copy_task, &job, device->kv.num_layers, 1);
}

static void table_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  device_t *device = context;
  const rope_table_t *table = &device->rope_tables[device->rope_next];
  const rope_t *rope = table->rope;
  const batch_t *batch = device->batch;
  const int32_t *by_axis = rope->axes != NULL ? batch->rope_positions : NULL;
  int32_t half = rope->dims / 2;
  for (int64_t t = first; t < last; t++) {
    float position = (float)batch->positions[t];
    for (int32_t i = 0; i < half; i++) {
      if (by_axis != NULL)
        position = (float)by_axis[(int64_t)rope->axes[i] * batch->rope_stride + t];
      float angle = position * rope->inv_freq[i];
      table->cosine[t * half + i] = cosf(angle) * rope->scale;
      table->sine[t * half + i] = sinf(angle) * rope->scale;
    }
  }
}

/* They are computed once per step and rotary setting. */
const rope_table_t *rope_table(device_t *device, const rope_t *rope) {
  for (int i = 0; i < ROPE_TABLES; i++)
    if (device->rope_tables[i].rope == rope) return &device->rope_tables[i];
  rope_table_t *table = &device->rope_tables[device->rope_next];
  CHECK_GE(rope->dims, 0);
  CHECK_LE(rope->dims, device->limits.head_dim_max);
  table->rope = rope;
  pool_run(device->pool, table_task, device, device->batch->num_tokens, 16);
  device->rope_next = (device->rope_next + 1) % ROPE_TABLES;
  return table;
}

typedef struct storing {
  device_t *device;
  float *qkv;
  const attention_t *attention;
  const rope_table_t *table; /* NULL = no rotation */
} storing_t;

static void store_elements(void *out, const float *in, int32_t count, int32_t stride,
                           dtype_t dtype) {
  if (dtype == DTYPE_F32) {
    for (int32_t i = 0; i < count; i++) ((float *)out)[(size_t)i * (size_t)stride] = in[i];
  } else if (dtype == DTYPE_F16) {
    uint16_t *to = out;
    for (int32_t i = 0; i < count; i++) to[(size_t)i * (size_t)stride] = f16_from_float(in[i]);
  } else {
    uint16_t *to = out;
    for (int32_t i = 0; i < count; i++) to[(size_t)i * (size_t)stride] = bf16_from_float(in[i]);
  }
}

/* The same in 8 bits: keys and values of one head become codes, each with a scale. */
static void store_codes(const device_t *device, const kv_kind_t *kind, uint8_t *block,
                        int32_t kv_head, int64_t offset, const float *k, const float *v) {
  int8_t codes[HEAD_DIM_MAX];
  int32_t dim = kind->head_dim;
  int64_t stride = device->key_stride, row = kv_head * (int64_t)device->kv.block_size + offset;
  int8_t *keys = (int8_t *)block + kv_head * dim * stride + offset;
  int8_t *values = (int8_t *)block + kind->key_bytes;
  kv_scales(device, kind, block, kv_head, false)[offset] =
      device->kernels->kv8_narrow(codes, k, dim);
  for (int32_t i = 0; i < dim; i++) keys[i * stride] = codes[i];
  kv_scales(device, kind, block, kv_head, true)[offset] =
      device->kernels->kv8_narrow(values + row * kind->head_stride, v, dim);
}

/* k and v: (head_dim) of a head whose place is given. */
static void store_slot(const device_t *device, const kv_place_t *place, int64_t slot,
                       const float *k, const float *v) {
  const kv_kind_t *kind = place->kind;
  int64_t size = device->kv.block_size, block = slot / size, offset = slot % size;
  CHECK_RANGE(block, 1, device->kv.num_blocks);
  uint8_t *base = place->first + (size_t)block * place->stride;
  if (device->kv.int8) {
    store_codes(device, kind, base, place->head, offset, k, v);
    return;
  }
  size_t element = dtype_size(device->kv.dtype), head = (size_t)place->head;
  size_t key_head = (size_t)kind->head_dim * (size_t)device->key_stride * element;
  size_t value_row = (size_t)kind->head_stride * element;
  uint8_t *keys = base + head * key_head + (size_t)offset * element;
  uint8_t *values = base + kind->key_bytes + (head * (size_t)size + (size_t)offset) * value_row;
  store_elements(keys, k, kind->head_dim, device->key_stride, device->kv.dtype);
  store_elements(values, v, kind->head_dim, 1, device->kv.dtype);
}

/* The same of a token of the batch. */
static void store_head(const device_t *device, const kv_place_t *place, int64_t token,
                       const float *k, const float *v) {
  int64_t slot =
      device->batch->slot_mapping[(int64_t)place->group * device->batch->slots_stride + token];
  if (slot >= 0) store_slot(device, place, slot, k, v);
}

typedef struct crossing {
  const device_t *device;
  const float *kv;
  const attention_t *attention;
  const int32_t *blocks;
  int32_t first;
} crossing_t;

static void cross_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const crossing_t *job = context;
  const device_t *device = job->device;
  const int32_t heads = job->attention->num_kv_heads, size = device->kv.block_size;
  const int64_t width = (int64_t)heads * job->attention->head_dim;
  for (int64_t row = first; row < last; row++) {
    const int64_t at = job->first + row;
    const int64_t slot = (int64_t)job->blocks[at / size] * size + at % size;
    for (int32_t h = 0; h < heads; h++) {
      const kv_place_t place = kv_place(device, job->attention, h);
      const float *k = job->kv + row * 2 * width + (int64_t)h * job->attention->head_dim;
      store_slot(device, &place, slot, k, k + width);
    }
  }
}

void cpu_cross_store(device_t *device, const act_t *kv, const attention_t *attention,
                     const int32_t *blocks, int32_t first, int32_t rows) {
  kv_check(device, attention);
  crossing_t job = {device, FLOATS(kv), attention, blocks, first};
  const int64_t width = 2 * (int64_t)attention->num_kv_heads * attention->head_dim;
  pool_run(device->pool, cross_task, &job, rows, INLINE_ELEMENTS / width + 1);
}

void kv_store_columns(const device_t *device, int32_t layer, int64_t slot, const float *columns,
                      int32_t first, int32_t count) {
  int64_t size = device->kv.block_size;
  int64_t block = slot / size, offset = slot % size;
  CHECK_RANGE(block, 1, device->kv.num_blocks);
  const int64_t lane = (int64_t)first * device->key_stride + offset;
  CHECK_LE(first + count, device->kv.head_dim);
  uint8_t *base = kv_block(device, layer, (int32_t)block);
  store_elements(base + (size_t)lane * dtype_size(device->kv.dtype), columns, count,
                 device->key_stride, device->kv.dtype);
}

/* Applies the norms of q, k and v: over each head, or over all heads of q and all heads of k; of
 * each head by the same weights, or by its own. */
static void norm_heads(const storing_t *job, float *row) {
  const attention_t *attention = job->attention;
  const norm_kind_t kind = attention->norm_each ? NORM_LAYER : NORM_RMS;
  norm_args_t norm = {kind, attention->head_dim, attention->norm_eps, NULL, NULL};
  for (int part = 0; part < (attention->reads_only ? 1 : 2); part++) {
    const vector_t *weight = part == 0 ? attention->q_norm : attention->k_norm;
    int32_t heads = part == 0 ? attention->num_heads : attention->num_kv_heads;
    if (attention->norm_whole) norm.width = heads * attention->head_dim;
    if (weight != NULL) {
      for (int32_t at = 0; at < heads * attention->head_dim; at += norm.width) {
        norm.weight = weight->values + (attention->norm_each ? at : 0);
        job->device->kernels->norm(row + at, row + at, NULL, &norm);
      }
    }
    row += heads * attention->head_dim;
  }
  norm = (norm_args_t){NORM_RMS, attention->head_dim, attention->norm_eps, NULL, NULL};
  for (int32_t h = 0; attention->v_norm && !attention->reads_only && h < attention->num_kv_heads;
       h++, row += norm.width)
    job->device->kernels->norm(row, row, NULL, &norm);
}

static void store_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const storing_t *job = context;
  const attention_t *attention = job->attention;
  const kernels_t *kernels = job->device->kernels;
  int32_t dim = attention->head_dim, heads = attention->num_heads;
  if (!attention->reads_only) heads += attention->num_kv_heads;
  int64_t width = attention_width(attention);
  int32_t half = job->table != NULL ? job->table->rope->dims / 2 : 0;
  for (int64_t t = first; t < last; t++) {
    float *row = job->qkv + t * width;
    if (!attention->norm_late) norm_heads(job, row);
    for (int32_t h = 0; half > 0 && h < heads; h++)
      kernels->rotate(row + (int64_t)h * dim, job->table->cosine + t * half,
                      job->table->sine + t * half, half);
    if (attention->norm_late) norm_heads(job, row);
    const float *k = row + (int64_t)attention->num_heads * dim;
    for (int32_t h = 0; !attention->reads_only && h < attention->num_kv_heads; h++, k += dim) {
      kv_place_t place = kv_place(job->device, attention, h);
      store_head(job->device, &place, t, k, k + (int64_t)attention->num_kv_heads * dim);
    }
  }
}

void cpu_rope_store(device_t *device, act_t *qkv, const attention_t *attention) {
  kv_check(device, attention);
  storing_t job = {device, FLOATS(qkv), attention, NULL};
  if (attention->rope != NULL && attention->rope->dims > 0) {
    CHECK_LE(attention->rope->dims, attention->head_dim);
    job.table = rope_table(device, attention->rope);
  }
  int64_t width = attention_width(attention);
  pool_run(device->pool, store_task, &job, device->batch->num_tokens, INLINE_ELEMENTS / width + 1);
}
