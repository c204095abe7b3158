/* naive_ops.c: the ops table in plain loops; a reference for tests, never for serving. */
#include "tests/engine/model/naive_ops.h"
#include "engine/cpu/act.h"

#include "engine/base/check.h"
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "tests/engine/model/naive_numbers.h"
#include "tests/engine/model/naive_route.h"
#include "tests/engine/model/naive_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weight {
  int64_t rows, cols;
  float *values;
};
struct vector {
  int64_t count;
  float *values;
};

struct device {
  const batch_t *batch;
  kv_cache_desc_t kv;
  float *keys, *values; /* [layers, slots, Hk, D] */
  float *logits;        /* [logits_rows_max, V] */
  int32_t vocab;
  void **memory; /* everything to free at close */
  size_t num_memory;
};

static void *take(device_t *device, size_t bytes) {
  void *memory = calloc(1, bytes + 64);
  void **list = realloc(device->memory, (device->num_memory + 1) * sizeof(void *));
  CHECK(memory != NULL);
  CHECK(list != NULL);
  device->memory = list;
  device->memory[device->num_memory++] = memory;
  return memory;
}

void *naive_take(device_t *device, size_t bytes) {
  return take(device, bytes);
}
const batch_t *naive_batch(const device_t *device) {
  return device->batch;
}
const float *naive_values(const vector_t *vector) {
  return vector->values;
}

static int naive_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  (void)options;
  (void)error;
  *out = calloc(1, sizeof(**out));
  CHECK(*out != NULL);
  return 0;
}

static void naive_close(device_t *device) {
  for (size_t i = 0; i < device->num_memory; i++) free(device->memory[i]);
  free(device->memory);
  free(device);
}

static const char *naive_describe(const device_t *device) {
  (void)device;
  return "plain loops";
}

static size_t naive_memory_free(const device_t *device) {
  (void)device;
  return (size_t)1 << 32;
}

static int naive_weight(device_t *device, const weight_source_t *source, weight_t **out,
                        inferd_error_t *error) {
  (void)error;
  weight_t *weight = take(device, sizeof(*weight));
  weight->rows = source->rows;
  weight->cols = source->cols;
  weight->values = take(device, (size_t)(source->rows * source->cols) * sizeof(float));
  void *scratch = aligned_alloc(64, ((size_t)source->cols * 4 + 63) / 64 * 64);
  CHECK(scratch != NULL);
  for (int64_t row = 0; row < source->rows; row++) {
    const void *in = source->row(source->context, row, scratch);
    for (int64_t i = 0; i < source->cols; i++) {
      weight->values[row * source->cols + i] = naive_load(in, source->dtype, i);
    }
  }
  free(scratch);
  *out = weight;
  return 0;
}

static int naive_vector(device_t *device, const float *values, int64_t count, vector_t **out,
                        inferd_error_t *error) {
  (void)error;
  vector_t *vector = take(device, sizeof(*vector));
  vector->count = count;
  vector->values = take(device, (size_t)count * sizeof(float));
  memcpy(vector->values, values, (size_t)count * sizeof(float));
  *out = vector;
  return 0;
}

/* Values of K in the layers before `layer`. */
static int64_t values_before(const kv_cache_desc_t *desc, int32_t layer, int32_t num_blocks) {
  int64_t total = 0;
  for (int32_t i = 0; i < layer; i++)
    total += kv_layer_is_other(desc, i) ? desc->other_kv_heads * desc->other_head_dim
                                        : desc->num_kv_heads * desc->head_dim;
  return total * num_blocks * desc->block_size;
}

static int64_t first_value(const device_t *device, int32_t layer) {
  return values_before(&device->kv, layer, device->kv.num_blocks);
}

static size_t naive_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks) {
  return (size_t)values_before(desc, desc->num_layers, num_blocks) * 2 * sizeof(float);
}

static int naive_kv_cache(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error) {
  (void)error;
  device->kv = *desc;
  device->keys = take(device, naive_kv_bytes(desc, desc->num_blocks) / 2);
  device->values = take(device, naive_kv_bytes(desc, desc->num_blocks) / 2);
  return 0;
}

static int naive_prepare(device_t *device, const step_limits_t *limits, inferd_error_t *error) {
  (void)error;
  device->vocab = limits->vocab_size;
  device->logits =
      take(device, (size_t)limits->logits_rows_max * (size_t)limits->vocab_size * sizeof(float));
  return 0;
}

static act_t *naive_buffer(device_t *device, int64_t rows, int64_t width) {
  return take(device, (size_t)(rows * width) * sizeof(float));
}

static void naive_begin(device_t *device, const batch_t *batch) {
  device->batch = batch;
}

static void naive_embed(device_t *device, act_t *x, const weight_t *table, float scale) {
  const batch_t *batch = device->batch;
  float *out = FLOATS(x);
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    const float *row = table->values + batch->input_ids[t] * table->cols;
    for (int64_t i = 0; i < table->cols; i++) out[t * table->cols + i] = row[i] * scale;
  }
}

static void naive_embed_positions(device_t *device, act_t *x, const weight_t *table,
                                  int32_t offset) {
  const batch_t *batch = device->batch;
  float *out = FLOATS(x);
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    const float *row = table->values + (batch->positions[t] + offset) * table->cols;
    for (int64_t i = 0; i < table->cols; i++) out[t * table->cols + i] += row[i];
  }
}

static void naive_embed_pictures(device_t *device, act_t *x, int32_t plane, int32_t width) {
  const batch_t *batch = device->batch;
  for (int32_t i = 0; i < batch->num_embedded; i++) {
    float *out = FLOATS(x) + (int64_t)batch->embedded_tokens[i] * width;
    const float *row = batch->embedded_rows[i] + (int64_t)plane * width;
    for (int32_t c = 0; c < width; c++) out[c] = plane == 0 ? row[c] : out[c] + row[c];
  }
}

static void naive_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
                       const norm_t *norm, int32_t rows) {
  (void)device;
  for (int32_t r = 0; r < rows; r++) {
    const float *x = FLOATS(in) + (int64_t)r * norm->width;
    float *y = FLOATS(out) + (int64_t)r * norm->width;
    const float *add = residual == NULL ? NULL : FLOATS(residual) + (int64_t)r * norm->width;
    double mean = 0, squares = 0;
    if (norm->kind == NORM_LAYER) {
      for (int32_t i = 0; i < norm->width; i++) mean += x[i];
      mean /= norm->width;
    }
    for (int32_t i = 0; i < norm->width; i++) squares += (x[i] - mean) * (x[i] - mean);
    double inverse = 1.0 / sqrt(squares / norm->width + norm->eps);
    for (int32_t i = 0; i < norm->width; i++) {
      double value = (x[i] - mean) * inverse;
      if (norm->weight != NULL) value *= norm->weight->values[i];
      if (norm->bias != NULL) value += norm->bias->values[i];
      y[i] = (float)(value + (add != NULL ? add[i] : 0.0F));
    }
  }
}

static void naive_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                         const vector_t *bias, const act_t *residual, int32_t rows) {
  (void)device;
  for (int64_t r = 0; r < rows; r++) {
    const float *x = FLOATS(in) + r * weight->cols;
    for (int64_t n = 0; n < weight->rows; n++) {
      const float *w = weight->values + n * weight->cols;
      double sum = bias != NULL ? bias->values[n] : 0.0;
      for (int64_t k = 0; k < weight->cols; k++) sum += (double)x[k] * w[k];
      if (residual != NULL) sum += FLOATS(residual)[r * weight->rows + n];
      FLOATS(out)[r * weight->rows + n] = (float)sum;
    }
  }
}

/* `width` is head_dim, or that of all heads. */
static void head_norm(float *head, const attention_t *a, const float *weight, int32_t width) {
  double mean = 0, squares = 0;
  for (int32_t i = 0; i < width && a->norm_each; i++) mean += (double)head[i] / width;
  for (int32_t i = 0; i < width; i++) squares += (head[i] - mean) * (head[i] - mean);
  double inverse = 1.0 / sqrt(squares / width + a->norm_eps);
  for (int32_t i = 0; i < width; i++) {
    double factor = weight != NULL ? weight[i] : 1.0;
    head[i] = (float)((head[i] - mean) * inverse * factor);
  }
}

static void norm_heads(float *row, const attention_t *a) {
  const int32_t heads = a->num_heads, kv_heads = a->reads_only ? 0 : a->num_kv_heads;
  const int32_t dim = a->head_dim;
  for (int32_t h = 0; a->v_norm && h < kv_heads; h++)
    head_norm(row + (int64_t)(heads + kv_heads + h) * dim, a, NULL, dim);
  for (int32_t h = 0; h < heads + kv_heads; h++) {
    const vector_t *norm = h < heads ? a->q_norm : a->k_norm;
    int32_t span = !a->norm_whole ? dim : h == 0 ? heads * dim : h == heads ? kv_heads * dim : 0;
    int32_t own = a->norm_each ? (h < heads ? h : h - heads) * dim : 0;
    if (norm != NULL && span > 0) head_norm(row + (int64_t)h * dim, a, norm->values + own, span);
  }
}

static void rotate(float *head, const rope_t *rope, const batch_t *batch, int32_t t) {
  int32_t half = rope->dims / 2;
  for (int32_t i = 0; i < half; i++) {
    int32_t position = batch->positions[t];
    if (rope->axes != NULL && batch->rope_positions != NULL)
      position = batch->rope_positions[rope->axes[i] * batch->rope_stride + t];
    double angle = (float)position * rope->inv_freq[i];
    double c = cos(angle) * rope->scale, s = sin(angle) * rope->scale;
    double a = head[i], b = head[i + half];
    head[i] = (float)(a * c - b * s);
    head[i + half] = (float)(b * c + a * s);
  }
}

static void naive_rope_store(device_t *device, act_t *qkv, const attention_t *a) {
  const batch_t *batch = device->batch;
  const int32_t heads = a->num_heads, dim = a->head_dim;
  const int32_t kv_heads = a->reads_only ? 0 : a->num_kv_heads;
  const int64_t width = (int64_t)(heads + 2 * kv_heads) * dim, kv_width = (int64_t)kv_heads * dim;
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    float *row = FLOATS(qkv) + t * width;
    if (!a->norm_late) norm_heads(row, a);
    for (int32_t h = 0; h < heads + kv_heads; h++) {
      if (a->rope != NULL) rotate(row + (int64_t)h * dim, a->rope, batch, t);
    }
    if (a->norm_late) norm_heads(row, a);
    if (batch->slot_mapping[t] < 0 || a->reads_only) continue;
    int64_t at = first_value(device, a->layer) + batch->slot_mapping[t] * kv_width;
    memcpy(device->keys + at, row + (int64_t)heads * dim, (size_t)kv_width * sizeof(float));
    memcpy(device->values + at, row + (int64_t)(heads + kv_heads) * dim,
           (size_t)kv_width * sizeof(float));
  }
}

/* One query head of one token over its visible keys. */
static void attend(const device_t *device, float *out, const float *q, const attention_t *a,
                   int32_t head, const int32_t *blocks, int32_t t) {
  const int32_t size = device->kv.block_size, dim = a->head_dim;
  const int32_t position = device->batch->positions[t];
  const int64_t base = first_value(device, a->layer);
  const int32_t kv_head = head / (a->num_heads / a->num_kv_heads);
  int32_t first = a->window > 0 && position - a->window + 1 > 0 ? position - a->window + 1 : 0;
  int32_t last = position;
  if (a->sees_pictures && device->batch->seen_until != NULL)
    last = MAX(last, device->batch->seen_until[t] - 1);
  double *scores = malloc((size_t)(last + 1) * sizeof(double));
  CHECK(scores != NULL);
  double most = -INFINITY, total = 0;
  for (int32_t j = first; j <= last; j++) {
    int64_t slot = (int64_t)blocks[j / size] * size + j % size;
    const float *k = device->keys + base + (slot * a->num_kv_heads + kv_head) * dim;
    double dot = 0;
    for (int32_t i = 0; i < dim; i++) dot += (double)q[i] * k[i];
    scores[j] = dot * a->scale;
    if (a->softcap != 0) scores[j] = a->softcap * tanh(scores[j] / a->softcap);
    if (a->slopes != NULL) scores[j] += a->slopes->values[head] * (float)(j - position);
    most = fmax(most, scores[j]);
  }
  if (a->sinks != NULL) {
    most = fmax(most, a->sinks->values[head]);
    total = exp(a->sinks->values[head] - most);
  }
  double sums[512] = {0};
  for (int32_t j = first; j <= last; j++) {
    int64_t slot = (int64_t)blocks[j / size] * size + j % size;
    const float *v = device->values + base + (slot * a->num_kv_heads + kv_head) * dim;
    double share = exp(scores[j] - most);
    total += share;
    for (int32_t i = 0; i < dim; i++) sums[i] += share * v[i];
  }
  for (int32_t i = 0; i < dim; i++) out[i] = (float)(sums[i] / total);
  free(scores);
}

/* ---- latent attention, K and V of every head written out ---- */

static void naive_latent_store(device_t *device, act_t *rows, const latent_t *a) {
  const batch_t *batch = device->batch;
  const int64_t width = a->rank + a->rope_dim;
  const int64_t slots = (int64_t)device->kv.num_blocks * device->kv.block_size;
  const attention_t norm = {.norm_eps = a->norm_eps};
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    float *row = FLOATS(rows) + t * width;
    head_norm(row, &norm, a->norm->values, a->rank);
    rotate(row + a->rank, a->rope, batch, t);
    if (batch->slot_mapping[t] < 0) continue;
    memcpy(device->keys + (a->layer * slots + batch->slot_mapping[t]) * device->kv.head_dim, row,
           (size_t)width * sizeof(float));
  }
}

static void naive_store_keys(device_t *device, act_t *keys, const latent_t *a,
                             const indexer_t *indexer) {
  const batch_t *batch = device->batch;
  const int64_t slots = (int64_t)device->kv.num_blocks * device->kv.block_size;
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    float *row = FLOATS(keys) + (int64_t)t * indexer->dim;
    double mean = 0, squares = 0;
    for (int32_t i = 0; i < indexer->dim; i++) mean += row[i] / (double)indexer->dim;
    for (int32_t i = 0; i < indexer->dim; i++)
      squares += (row[i] - mean) * (row[i] - mean) / indexer->dim;
    for (int32_t i = 0; i < indexer->dim; i++)
      row[i] =
          (float)((row[i] - mean) / sqrt(squares + indexer->norm_eps) * indexer->norm->values[i] +
                  indexer->norm_bias->values[i]);
    rotate(row, a->rope, batch, t);
    if (batch->slot_mapping[t] < 0) continue;
    float *to = device->keys + (a->layer * slots + batch->slot_mapping[t]) * device->kv.head_dim;
    memcpy(to + a->rank + a->rope_dim, row, (size_t)indexer->dim * sizeof(float));
  }
}

/* Scores of all keys of a token. */
static void score_keys(const device_t *device, double *scores, const float *q, const float *weights,
                       const latent_t *a, const indexer_t *indexer, int32_t t) {
  const batch_t *batch = device->batch;
  const int32_t size = device->kv.block_size;
  const int32_t *blocks = batch->block_table[batch->request_row[t]];
  const int64_t slots = (int64_t)device->kv.num_blocks * size;
  for (int32_t j = 0; j <= batch->positions[t]; j++) {
    const int64_t slot = (int64_t)blocks[j / size] * size + j % size;
    const float *key =
        device->keys + (a->layer * slots + slot) * device->kv.head_dim + a->rank + a->rope_dim;
    scores[j] = 0;
    for (int32_t h = 0; h < indexer->num_heads; h++) {
      double score = 0;
      for (int32_t i = 0; i < indexer->dim; i++)
        score += (double)q[(int64_t)h * indexer->dim + i] * key[i];
      scores[j] += weights[h] * fmax(score, 0);
    }
  }
}

/* chosen[t][j] = 1 where token t attends to key j of the best `top`; the order of equal ones is
 * that of their positions. */
static void naive_choose(device_t *device, act_t *chosen, act_t *q, const act_t *weights,
                         const latent_t *a, const indexer_t *indexer) {
  const batch_t *batch = device->batch;
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    const int32_t count = batch->positions[t] + 1;
    if (count <= a->top) continue;
    float *queries = FLOATS(q) + (int64_t)t * indexer->num_heads * indexer->dim;
    float *keys = FLOATS(chosen) + (int64_t)t * INDEX_WIDTH(a->top);
    double *scores = calloc((size_t)count, sizeof(double));
    for (int32_t h = 0; h < indexer->num_heads; h++)
      rotate(queries + (int64_t)h * indexer->dim, a->rope, batch, t);
    score_keys(device, scores, queries, FLOATS(weights) + (int64_t)t * indexer->num_heads, a,
               indexer, t);
    for (int32_t n = 0; n < a->top; n++) {
      int32_t best = -1;
      for (int32_t j = 0; j < count; j++)
        if (!isnan(scores[j]) && (best < 0 || scores[j] > scores[best])) best = j;
      keys[n] = (float)best;
      scores[best] = NAN;
    }
    free(scores);
  }
}

/* `keys` NULL = all. */
static bool is_chosen(const float *keys, int32_t top, int32_t key) {
  for (int32_t n = 0; keys != NULL && n < top; n++)
    if ((int32_t)keys[n] == key) return true;
  return keys == NULL;
}

/* out[n] = W[n, K] . x; the matrix of a head, or with `across` its transposition. */
static void times_head(double *out, const double *x, const weight_t *weight, int32_t head,
                       int64_t rows, bool across) {
  const int64_t cols = weight->cols;
  for (int64_t n = 0; n < (across ? cols : rows); n++) {
    out[n] = 0;
    for (int64_t k = 0; k < (across ? rows : cols); k++) {
      int64_t row = head * rows + (across ? k : n), col = across ? n : k;
      out[n] += weight->values[row * cols + col] * x[k];
    }
  }
}

/* One head of one token; `q` is rotated in place. */
static void attend_latent(const device_t *device, float *out, float *q, const latent_t *a,
                          int32_t head, const float *chosen, int32_t t) {
  const int32_t *blocks = device->batch->block_table[device->batch->request_row[t]];
  const int32_t size = device->kv.block_size, position = device->batch->positions[t];
  const int64_t slots = (int64_t)device->kv.num_blocks * size, width = device->kv.head_dim;
  double *scores = calloc((size_t)(position + 1), sizeof(double)), most = -INFINITY, total = 0;
  double latent[1024], key[1024], value[1024], sums[1024] = {0};
  rotate(q + a->nope_dim, a->rope, device->batch, t);
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t j = 0; j <= position; j++) {
      if (!is_chosen(chosen, a->top, j)) continue;
      int64_t slot = (int64_t)blocks[j / size] * size + j % size;
      const float *row = device->keys + (a->layer * slots + slot) * width;
      for (int32_t i = 0; i < a->rank; i++) latent[i] = row[i];
      if (pass == 0) {
        times_head(key, latent, a->key, head, a->rank, true);
        for (int32_t i = 0; i < a->nope_dim; i++) scores[j] += q[i] * key[i];
        for (int32_t i = 0; i < a->rope_dim; i++)
          scores[j] += (double)q[a->nope_dim + i] * row[a->rank + i];
        scores[j] *= a->scale;
        most = fmax(most, scores[j]);
      } else {
        double share = exp(scores[j] - most);
        times_head(value, latent, a->value, head, a->value_dim, false);
        total += share;
        for (int32_t i = 0; i < a->value_dim; i++) sums[i] += share * value[i];
      }
    }
  }
  for (int32_t i = 0; i < a->value_dim; i++) out[i] = (float)(sums[i] / total);
  free(scores);
}

static void naive_attend_chosen(device_t *device, act_t *out, const act_t *q, act_t *queries,
                                act_t *sums, const act_t *chosen, const latent_t *a) {
  const batch_t *batch = device->batch;
  const int32_t dim = a->nope_dim + a->rope_dim;
  (void)queries;
  (void)sums;
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    const bool chooses = chosen != NULL && batch->positions[t] + 1 > a->top;
    const float *keys = chooses ? FLOATS(chosen) + (int64_t)t * INDEX_WIDTH(a->top) : NULL;
    for (int32_t h = 0; h < a->num_heads; h++) {
      float head[1024];
      const int64_t at = (int64_t)t * a->num_heads + h;
      memcpy(head, FLOATS(q) + at * dim, (size_t)dim * sizeof(float));
      attend_latent(device, FLOATS(out) + at * a->value_dim, head, a, h, keys, t);
    }
  }
}

static void naive_latent_attend(device_t *device, act_t *out, const act_t *q, act_t *queries,
                                act_t *sums, const latent_t *a) {
  naive_attend_chosen(device, out, q, queries, sums, NULL, a);
}

static const latent_ops_t naive_latent_ops = {naive_latent_store, naive_latent_attend,
                                              naive_store_keys, naive_choose, naive_attend_chosen};

static void naive_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *a) {
  const batch_t *batch = device->batch;
  const int32_t dim = a->head_dim;
  const int64_t width = attention_width(a);
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    const int32_t *blocks = batch->block_table[batch->request_row[t]];
    for (int32_t h = 0; h < a->num_heads; h++) {
      attend(device, FLOATS(out) + ((int64_t)t * a->num_heads + h) * dim,
             FLOATS(qkv) + t * width + (int64_t)h * dim, a, h, blocks, t);
    }
  }
}

static void naive_activation(device_t *device, act_t *out, const act_t *in, activation_t kind,
                             int32_t width, int32_t rows) {
  (void)device;
  bool gated = activation_is_gated(kind);
  int64_t in_width = gated ? 2 * (int64_t)width : width;
  for (int64_t r = 0; r < rows; r++) {
    const float *x = FLOATS(in) + r * in_width;
    for (int32_t i = 0; i < width; i++) {
      double value = gated ? naive_gate(kind, x[i], x[i + width]) : naive_activate(kind, x[i]);
      FLOATS(out)[r * width + i] = (float)value;
    }
  }
}

static void naive_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                            const act_t *residual, int32_t width, int32_t rows) {
  (void)device;
  for (int64_t i = 0; i < (int64_t)rows * width; i++) {
    double share = 1.0 / (1.0 + exp(-(double)FLOATS(gate)[i / width]));
    FLOATS(out)[i] = (float)(FLOATS(residual)[i] + share * FLOATS(in)[i]);
  }
}

/* out[h] += share * expert `e` of x[h]; `scratch` has 2 I numbers. */
static void add_expert(float *out, const float *x, const moe_t *moe, int32_t e, double share,
                       double *scratch) {
  const int64_t width = moe->width, hidden = moe->up->cols;
  const bool gated = activation_is_gated(moe->activation);
  const int64_t rows = gated ? 2 * width : width;
  for (int64_t i = 0; i < rows; i++) {
    const float *w = moe->up->values + (e * rows + i) * hidden;
    scratch[i] = moe->up_bias != NULL ? moe->up_bias->values[e * rows + i] : 0.0;
    for (int64_t k = 0; k < hidden; k++) scratch[i] += (double)x[k] * w[k];
  }
  for (int64_t i = 0; i < width; i++)
    scratch[i] = gated ? naive_gate(moe->activation, scratch[i], scratch[i + width])
                       : naive_activate(moe->activation, scratch[i]);
  for (int64_t n = 0; n < hidden; n++) {
    const float *w = moe->down->values + (e * hidden + n) * width;
    double sum = moe->down_bias != NULL ? moe->down_bias->values[e * hidden + n] : 0.0;
    for (int64_t i = 0; i < width; i++) sum += scratch[i] * w[i];
    out[n] = (float)(out[n] + share * sum);
  }
}

static void naive_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
                      const moe_t *moe, int32_t rows) {
  const int64_t hidden = moe->up->cols, count = moe->num_experts;
  float *logits = calloc((size_t)(rows * count), sizeof(float));
  double *scratch = calloc(2 * (size_t)moe->width, sizeof(double));
  double *shares = calloc((size_t)count, sizeof(double));
  CHECK(logits != NULL);
  CHECK(shares != NULL);
  CHECK(scratch != NULL);
  const act_t *router_in = moe->router_in != NULL ? moe->router_in : in;
  naive_linear(device, ACT(logits), router_in, moe->router, moe->router_bias, NULL, rows);
  for (int64_t r = 0; r < rows; r++) {
    const float *row = logits + r * count;
    float *to = FLOATS(out) + r * hidden;
    memset(to, 0, residual == NULL ? (size_t)hidden * sizeof(float) : 0);
    if (residual != NULL)
      memmove(to, FLOATS(residual) + r * hidden, (size_t)hidden * sizeof(float));
    naive_route(moe, row, moe->choice_bias != NULL ? moe->choice_bias->values : NULL, shares);
    for (int32_t e = 0; moe->share_factors != NULL && e < count; e++)
      shares[e] *= moe->share_factors->values[e];
    for (int32_t e = 0; e < count; e++)
      if (shares[e] != 0) add_expert(to, FLOATS(in) + r * hidden, moe, e, shares[e], scratch);
  }
  free(shares);
  free(logits);
  free(scratch);
}

/* ---- Gemma 4 ---- */

static void naive_embed_layer_pictures(device_t *device, act_t *out, const weight_t *table,
                                       int32_t id, float scale) {
  const batch_t *batch = device->batch;
  for (int32_t i = 0; i < batch->num_embedded; i++) {
    float *row = FLOATS(out) + (int64_t)batch->embedded_tokens[i] * table->cols;
    for (int64_t c = 0; c < table->cols; c++) row[c] = table->values[id * table->cols + c] * scale;
  }
}

static void naive_input_gate(device_t *device, act_t *out, const act_t *in, const act_t *factors,
                             const input_gate_t *gate, int32_t rows) {
  (void)device;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < gate->width; i++) {
      int64_t at = r * gate->width + i, factor = r * gate->factors_width + gate->column + i;
      FLOATS(out)
      [at] = (float)naive_gate(gate->activation, FLOATS(in)[at], FLOATS(factors)[factor]);
    }
  }
}

static void naive_scale(device_t *device, act_t *x, const vector_t *factor, int32_t width,
                        int32_t rows) {
  (void)device;
  for (int64_t i = 0; i < (int64_t)rows * width; i++) FLOATS(x)[i] *= factor->values[0];
}

static const per_layer_ops_t naive_per_layer_ops = {naive_embed_layer_pictures, naive_input_gate,
                                                    naive_scale};

/* ---- Gemma 3n ---- */

static void naive_embed_known(device_t *device, act_t *x, const weight_t *table, float scale) {
  for (int32_t t = 0; t < device->batch->num_tokens; t++) {
    const int32_t id = device->batch->input_ids[t];
    const float *row = table->values + (id < table->rows ? id : 0) * table->cols;
    for (int64_t c = 0; c < table->cols; c++) FLOATS(x)[t * table->cols + c] = row[c] * scale;
  }
}

static double mean_square(const float *row, int32_t width) {
  double sum = 0;
  for (int32_t i = 0; i < width; i++) sum += (double)row[i] * row[i];
  return sum / width;
}

/* out[count] = matrix[count, N] . tanh(router . the normed row) */
static void stream_factors(const altup_t *altup, const float *row, const vector_t *matrix,
                           int32_t count, double *out) {
  const double length = sqrt(mean_square(row, altup->width) + altup->eps);
  memset(out, 0, (size_t)count * sizeof *out);
  for (int32_t p = 0; p < altup->num_streams; p++) {
    double sum = 0;
    for (int32_t i = 0; i < altup->width; i++)
      sum += (double)altup->router->values[p * altup->width + i] * row[i] / length;
    for (int32_t c = 0; c < count; c++)
      out[c] += matrix->values[c * altup->num_streams + p] * tanh(sum);
  }
}

static void naive_predict(device_t *device, act_t *const *streams, const altup_t *altup,
                          int32_t rows) {
  (void)device;
  const int32_t count = altup->num_streams;
  double factors[ALTUP_STREAMS_MAX * ALTUP_STREAMS_MAX];
  for (int32_t r = 0; r < rows; r++) {
    stream_factors(altup, FLOATS(streams[0]) + r * altup->width, altup->prediction, count * count,
                   factors);
    for (int32_t i = r * altup->width; i < (r + 1) * altup->width; i++) {
      double made[ALTUP_STREAMS_MAX];
      for (int32_t n = 0; n < count; n++) {
        made[n] = FLOATS(streams[n])[i];
        for (int32_t k = 0; k < count; k++)
          made[n] += factors[n * count + k] * FLOATS(streams[k])[i];
      }
      for (int32_t n = 0; n < count; n++) FLOATS(streams[n])[i] = (float)made[n];
    }
  }
}

static void naive_correct(device_t *device, act_t *const *streams, act_t *out,
                          const act_t *computed, const altup_t *altup, int32_t rows) {
  (void)device;
  double factors[ALTUP_STREAMS_MAX];
  for (int32_t r = 0; r < rows; r++) {
    const float *row = FLOATS(computed) + r * altup->width;
    stream_factors(altup, row, altup->correction, altup->num_streams, factors);
    for (int32_t i = 0; i < altup->width; i++) {
      const int32_t at = r * altup->width + i;
      const double change = (double)row[i] - FLOATS(streams[0])[at];
      for (int32_t n = 0; n < altup->num_streams; n++)
        FLOATS(streams[n])[at] = (float)(FLOATS(streams[n])[at] + (1 + factors[n]) * change);
      FLOATS(out)
      [at] = FLOATS(streams[0])[at] * (altup->scale != NULL ? altup->scale->values[i] : 1);
    }
  }
}

static void naive_match(device_t *device, act_t *x, const act_t *like, int32_t width,
                        int32_t rows) {
  (void)device;
  for (int32_t r = 0; r < rows; r++) {
    float *row = FLOATS(x) + r * width;
    const double factor =
        sqrt(mean_square(FLOATS(like) + r * width, width) / fmax(mean_square(row, width), 1e-5));
    for (int32_t i = 0; i < width; i++) row[i] = (float)(row[i] * factor);
  }
}

static void naive_sum(device_t *device, act_t *out, act_t *const *parts, int32_t count,
                      float factor, int32_t width, int32_t rows) {
  (void)device;
  for (int64_t i = 0; i < (int64_t)width * rows; i++) {
    double sum = 0;
    for (int32_t n = 0; n < count; n++) sum += FLOATS(parts[n])[i];
    FLOATS(out)[i] = (float)(sum * factor);
  }
}

static void naive_keep_largest(device_t *device, act_t *x, float deviations, int32_t width,
                               int32_t stride, int32_t rows) {
  (void)device;
  for (int32_t r = 0; r < rows; r++) {
    float *row = FLOATS(x) + r * stride;
    double mean = 0, squares = 0;
    for (int32_t i = 0; i < width; i++) mean += row[i] / (double)width;
    for (int32_t i = 0; i < width; i++) squares += (row[i] - mean) * (row[i] - mean) / width;
    for (int32_t i = 0; i < width; i++)
      row[i] = (float)fmax(row[i] - mean - deviations * sqrt(squares), 0);
  }
}

static const altup_ops_t naive_altup_ops = {naive_embed_known, naive_predict, naive_correct,
                                            naive_match,       naive_sum,     naive_keep_largest};

/* ---- values ---- */

static void naive_clamp(device_t *device, act_t *x, float limit, int32_t width, int32_t rows) {
  (void)device;
  for (int64_t i = 0; i < (int64_t)rows * width; i++)
    FLOATS(x)[i] = fminf(fmaxf(FLOATS(x)[i], -limit), limit);
}

static void naive_grow(device_t *device, act_t *x, const growth_t *growth) {
  for (int64_t t = 0; t < device->batch->num_tokens; t++) {
    const double turns = floor((double)device->batch->positions[t] / growth->from);
    for (int64_t i = 0; i < growth->width; i++)
      FLOATS(x)[t * growth->stride + i] *= (float)(1 + growth->beta * log(1 + turns));
  }
}

static double naive_softplus(const vector_t *of) {
  return log1p(exp((double)naive_values(of)[0]));
}

static void naive_xielu(device_t *device, act_t *x, const xielu_t *xielu, int32_t width,
                        int32_t rows) {
  (void)device;
  const double beta = naive_values(xielu->beta)[0], eps = naive_values(xielu->eps)[0];
  const double above = naive_softplus(xielu->above), below = beta + naive_softplus(xielu->below);
  for (int64_t i = 0; i < (int64_t)rows * width; i++) {
    const double v = FLOATS(x)[i];
    FLOATS(x)
    [i] = (float)(v > 0 ? above * v * v + beta * v : below * (expm1(fmin(v, eps)) - v) + beta * v);
  }
}

static const value_ops_t naive_value_ops = {
    .clamp = naive_clamp, .xielu = naive_xielu, .grow = naive_grow};

typedef struct naive_slot {
  lora_values_t values; /* whose matrices are copies */
  float *a, *b, *factors, *offsets;
} naive_slot_t;

struct lora {
  int64_t rows, cols;
  naive_slot_t slots[2]; /* enough here */
};

static int naive_lora(device_t *device, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                      int32_t rank_max, lora_t **out, inferd_error_t *error) {
  (void)kind, (void)error;
  CHECK_LE(slots, 2);
  *out = take(device, sizeof(lora_t));
  **out = (lora_t){.rows = rows, .cols = cols};
  for (int i = 0; i < slots; i++) {
    naive_slot_t *slot = &(*out)->slots[i];
    slot->a = take(device, (size_t)(rank_max * cols) * sizeof(float));
    slot->b = take(device, (size_t)(rank_max * rows) * sizeof(float));
    slot->factors = take(device, (size_t)rows * sizeof(float));
    slot->offsets = take(device, (size_t)rows * sizeof(float));
  }
  return 0;
}

static const float *copied(float *to, const float *from, int64_t count) {
  if (from == NULL) return NULL;
  memcpy(to, from, (size_t)count * sizeof *to);
  return to;
}

static void naive_lora_set(device_t *device, lora_t *lora, int32_t slot,
                           const lora_values_t *values) {
  (void)device;
  naive_slot_t *at = &lora->slots[slot - 1];
  const int64_t rank = values->rank;
  at->values = *values;
  at->values.a = copied(at->a, rank > 0 ? values->a : NULL, rank * lora->cols);
  at->values.b = copied(at->b, rank > 0 ? values->b : NULL, rank * lora->rows);
  at->values.factors = copied(at->factors, values->factors, lora->rows);
  at->values.offsets = copied(at->offsets, values->offsets, lora->rows);
}

static double naive_whole(const lora_values_t *values, int64_t i) {
  const uint16_t *halves = values->whole;
  if (values->whole_type == DTYPE_F32) return ((const float *)values->whole)[i];
  return values->whole_type == DTYPE_F16 ? float_from_f16(halves[i]) : float_from_bf16(halves[i]);
}

/* out[n] of one row; x NULL: the column `id` of A. */
static void naive_adapt(const lora_t *lora, const lora_values_t *values, float *out, const float *x,
                        const float *plain, int64_t id) {
  for (int64_t n = 0; n < lora->rows; n++) {
    double sum = out[n];
    if (values->factors != NULL) sum += (double)values->factors[n] * plain[n];
    for (int32_t r = 0; r < values->rank; r++) {
      double low = x == NULL ? values->a[r * lora->cols + id] : 0;
      for (int64_t k = 0; x != NULL && k < lora->cols; k++)
        low += (double)x[k] * values->a[r * lora->cols + k];
      sum += low * values->b[n * values->rank + r];
    }
    out[n] = (float)(sum + (values->offsets != NULL ? values->offsets[n] : 0));
  }
}

static void naive_lora_add(device_t *device, act_t *out, const act_t *in, const act_t *plain,
                           const lora_t *lora, int32_t column, int32_t width) {
  for (int64_t t = 0; t < device->batch->num_tokens; t++) {
    const int32_t slot = device->batch->adapters[t];
    const int64_t at = t * width + column;
    if (slot > 0)
      naive_adapt(lora, &lora->slots[slot - 1].values, FLOATS(out) + at,
                  FLOATS(in) + t * lora->cols, plain != NULL ? FLOATS(plain) + at : NULL, 0);
  }
}

static void naive_lora_embed(device_t *device, act_t *out, const lora_t *lora, float scale) {
  for (int64_t t = 0; t < device->batch->num_tokens; t++) {
    const int32_t slot = device->batch->adapters[t];
    const int64_t id = device->batch->input_ids[t], width = lora->rows;
    const lora_values_t *values = &lora->slots[MAX(slot, 1) - 1].values;
    float *row = FLOATS(out) + t * width;
    for (int64_t n = 0; slot > 0 && n < width; n++)
      row[n] = values->whole != NULL ? (float)naive_whole(values, id * width + n) : row[n] / scale;
    if (slot > 0) naive_adapt(lora, values, row, NULL, row, id);
    for (int64_t n = 0; slot > 0 && n < width; n++) row[n] *= scale;
  }
}

static void naive_lora_logits(device_t *device, const act_t *hidden, const vector_t *bias,
                              const lora_t *lora, float softcap, int32_t first, int32_t rows) {
  const int64_t vocab = lora->rows, cols = lora->cols;
  float *plain = calloc((size_t)vocab, sizeof *plain);
  CHECK(plain != NULL);
  for (int32_t r = 0; r < rows; r++) {
    const int32_t token = device->batch->selected_token_indices[first + r];
    const int32_t slot = device->batch->adapters[token];
    const lora_values_t *values = &lora->slots[MAX(slot, 1) - 1].values;
    const float *x = FLOATS(hidden) + (first + r) * cols;
    float *row = device->logits + r * vocab;
    for (int64_t n = 0; slot > 0 && n < vocab; n++) {
      plain[n] = row[n] - (bias != NULL ? bias->values[n] : 0);
      double sum = 0;
      for (int64_t k = 0; values->whole != NULL && k < cols; k++)
        sum += naive_whole(values, n * cols + k) * x[k];
      if (values->whole != NULL) row[n] = (float)(row[n] - plain[n] + sum);
    }
    if (slot > 0) naive_adapt(lora, values, row, x, plain, 0);
    for (int64_t n = 0; softcap != 0 && n < vocab; n++) row[n] = softcap * tanhf(row[n] / softcap);
  }
  free(plain);
}

static const lora_ops_t naive_lora_ops = {.has_vectors = true,
                                          .has_wholes = true,
                                          .has_softcap = true,
                                          .make = naive_lora,
                                          .set = naive_lora_set,
                                          .add = naive_lora_add,
                                          .embed = naive_lora_embed,
                                          .logits = naive_lora_logits};

static void naive_gather(device_t *device, act_t *out, const act_t *in, int32_t width) {
  const batch_t *batch = device->batch;
  for (int32_t i = 0; i < batch->num_selected; i++) {
    memcpy(FLOATS(out) + (int64_t)i * width,
           FLOATS(in) + (int64_t)batch->selected_token_indices[i] * width,
           (size_t)width * sizeof(float));
  }
}

static void naive_logits(device_t *device, const act_t *hidden, const weight_t *head,
                         const vector_t *bias, float softcap, int32_t first, int32_t rows) {
  naive_linear(device, ACT(device->logits), ACT(FLOATS(hidden) + first * head->cols), head, bias,
               NULL, rows);
  if (softcap == 0.0F) return;
  for (int64_t i = 0; i < rows * head->rows; i++) {
    device->logits[i] = softcap * tanhf(device->logits[i] / softcap);
  }
}

static int naive_end(device_t *device, inferd_error_t *error) {
  (void)error;
  device->batch = NULL;
  return 0;
}

static void naive_read_logits(device_t *device, float *out, int32_t rows) {
  memcpy(out, device->logits, (size_t)rows * (size_t)device->vocab * sizeof(float));
}

const ops_t ops_naive = {
    .name = "naive",
    .state = &naive_state_ops,
    .per_layer = &naive_per_layer_ops,
    .altup = &naive_altup_ops,
    .values = &naive_value_ops,
    .open = naive_open,
    .close = naive_close,
    .describe = naive_describe,
    .memory_free = naive_memory_free,
    .weight = naive_weight,
    .vector = naive_vector,
    .kv_bytes = naive_kv_bytes,
    .kv_cache = naive_kv_cache,
    .prepare = naive_prepare,
    .buffer = naive_buffer,
    .begin = naive_begin,
    .embed = naive_embed,
    .embed_positions = naive_embed_positions,
    .embed_pictures = naive_embed_pictures,
    .norm = naive_norm,
    .linear = naive_linear,
    .rope_store = naive_rope_store,
    .attention = naive_attention,
    .activation = naive_activation,
    .gated_add = naive_gated_add,
    .moe = naive_moe,
    .latent = &naive_latent_ops,
    .lora = &naive_lora_ops,
    .gather = naive_gather,
    .logits = naive_logits,
    .end = naive_end,
    .read_logits = naive_read_logits,
};
