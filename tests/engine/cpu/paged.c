/* paged.c: see paged.h. Runs in the test process only. */
#include "tests/engine/cpu/paged.h"
#include "engine/cpu/act.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 700, LENGTH_MAX = 8192, BLOCKS_EXTRA = 5, GROUP_HEADS = 2, GROUPS_MAX = 8 };

static void make_sequences(world_t *w, uint64_t block_order) {
  random_state_t random = random_start(40), order = random_start(41 + block_order);
  int32_t total = 1 + BLOCKS_EXTRA;
  for (int i = 0; i < SEQUENCES_MAX; i++) {
    sequence_rows_t *q = &w->seq[i];
    q->length = w->s.lengths[i];
    if (q->length == 0) continue;
    q->num_blocks = (q->length + w->s.block_size - 1) / w->s.block_size;
    total += q->num_blocks * w->groups;
    w->blocks_stride = q->num_blocks > w->blocks_stride ? q->num_blocks : w->blocks_stride;
    q->qkv = random_floats(&random, q->length * w->width, 2);
    q->out = calloc((size_t)(q->length * w->s.heads * w->s.dim), sizeof(float));
  }
  int32_t *blocks = malloc((size_t)total * sizeof *blocks);
  for (int32_t i = 0; i < total; i++) blocks[i] = i;
  for (int32_t i = total - 1; i > 1; i--) { /* block 0 stays the null block */
    int32_t j = 1 + random_below(&order, i), swap = blocks[i];
    blocks[i] = blocks[j], blocks[j] = swap;
  }
  int32_t used = 1;
  for (int i = 0; i < SEQUENCES_MAX; i++) {
    sequence_rows_t *q = &w->seq[i];
    q->blocks = calloc((size_t)(w->blocks_stride * w->groups) + 1, sizeof *q->blocks);
    for (int32_t g = w->by_heads; g < w->groups; g++) {
      for (int32_t b = 0; b < q->num_blocks; b++)
        q->blocks[g * w->blocks_stride + b] = blocks[used++];
    }
  }
  free(blocks);
  kv_cache_desc_t desc = {.num_layers = 2,
                          .num_kv_heads = w->s.kv_heads + 1, /* layer 0 is of another kind */
                          .head_dim = w->s.dim + 3,
                          .other_kv_heads = w->s.kv_heads,
                          .other_head_dim = w->s.dim,
                          .others = {2},
                          .num_blocks = total,
                          .block_size = w->s.block_size,
                          .dtype = w->s.kv_dtype,
                          .int8 = w->s.int8};
  if (w->by_heads) {
    desc.num_layers = 1; /* group 0, of which no sequence has a block */
    desc.others[0] = 1;
    desc.other_kv_heads = w->s.kv_heads + 1, desc.other_head_dim = w->s.dim + 3;
    desc.num_kv_heads = w->s.kv_heads, desc.head_dim = w->s.dim;
    desc.window_heads = GROUP_HEADS;
  }
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.kv_cache(w->device, &desc, &error), 0, "%s", error.message);
}

/* Distances have entries of their own up to half of the span, then two share one. */
static int32_t entry_of(int32_t away, int32_t span) {
  const int32_t far = abs(away), half = span / 2;
  const int32_t bucket = far <= half ? far : half + (far - half) / 2;
  const int32_t entry = (away < 0 ? -bucket : bucket) + span;
  return entry < 0 ? 0 : entry > 2 * span - 1 ? 2 * span - 1 : entry;
}

static void make_tables(world_t *w, random_state_t *random, int parts) {
  enum { REACH = 500 };
  const int32_t entries = (2 * w->span + 15) / 16 * 16;
  const int64_t count = (int64_t)w->s.heads * entries * w->s.dim;
  w->entries = malloc((2 * REACH + 1) * sizeof *w->entries);
  for (int32_t i = 0; i <= 2 * REACH; i++) w->entries[i] = entry_of(REACH - i, w->span);
  const vector_t **to[2] = {&w->attention.key_table, &w->attention.query_table};
  for (int i = 0; i < 2; i++) {
    w->tables[i] = random_floats(random, count, 1);
    if (parts & 1 << i) *to[i] = vector_make(w->device, w->tables[i], count);
  }
  w->attention.entries = w->entries;
  w->attention.num_entries = entries;
  w->attention.reach = REACH;
}

static void open_world(world_t *w, const setting_t *setting, const char *isa, int threads,
                       uint64_t block_order) {
  w->s = *setting;
  w->groups = w->by_heads ? 1 + (1 + setting->kv_heads + GROUP_HEADS - 1) / GROUP_HEADS : 1;
  ASSERT_LE(w->groups, GROUPS_MAX);
  w->width = (int64_t)(setting->heads + 2 * setting->kv_heads) * setting->dim;
  step_limits_t limits = {.tokens_max = TOKENS_MAX,
                          .reqs_max = SEQUENCES_MAX,
                          .logits_rows_max = 1,
                          .hidden_max = (int32_t)w->width,
                          .vocab_size = 16,
                          .max_model_len = LENGTH_MAX,
                          .heads_max = setting->heads,
                          .head_dim_max = setting->dim};
  w->device = device_prepared(isa, threads, &limits);
  random_state_t random = random_start(39);
  w->inv_freq = malloc((size_t)setting->dim * sizeof(float));
  for (int32_t i = 0; i < setting->rope_dims / 2; i++)
    w->inv_freq[i] = (float)pow(10000.0, -2.0 * i / setting->rope_dims);
  w->sinks = random_floats(&random, setting->heads, 2);
  w->q_norm = random_floats(&random, setting->dim, 2);
  w->k_norm = random_floats(&random, setting->dim, 2);
  w->rope = (rope_t){setting->rope_dims, w->inv_freq, 1.25f, NULL};
  w->attention = (attention_t){.layer = 1,
                               .num_heads = setting->heads,
                               .num_kv_heads = setting->kv_heads,
                               .head_dim = setting->dim,
                               .scale = 1 / sqrtf((float)setting->dim),
                               .softcap = setting->softcap,
                               .window = setting->window,
                               .bidirectional = setting->bidirectional,
                               .sees_pictures = w->picture > 0,
                               .norm_eps = 1e-6f};
  if (w->by_heads) w->attention.group = 1; /* `layer` 1: the second head of a block */
  if (setting->rope_dims) w->attention.rope = &w->rope;
  if (setting->sinks) w->attention.sinks = vector_make(w->device, w->sinks, setting->heads);
  if (setting->qk_norm) {
    w->attention.q_norm = vector_make(w->device, w->q_norm, setting->dim);
    w->attention.k_norm = vector_make(w->device, w->k_norm, setting->dim);
  }
  w->qkv = FLOATS(ops_cpu.buffer(w->device, TOKENS_MAX, w->width));
  w->out = FLOATS(ops_cpu.buffer(w->device, TOKENS_MAX, setting->heads * setting->dim));
  cr_assert(w->qkv);
  cr_assert(w->out);
  make_sequences(w, block_order);
}

void world_open_distances(world_t *w, const setting_t *setting, const char *isa, int threads,
                          uint64_t block_order, int32_t span, int parts) {
  random_state_t random = random_start(38);
  memset(w, 0, sizeof *w);
  open_world(w, setting, isa, threads, block_order);
  w->span = span;
  make_tables(w, &random, parts);
}

void world_open(world_t *w, const setting_t *setting, const char *isa, int threads,
                uint64_t block_order) {
  memset(w, 0, sizeof *w);
  open_world(w, setting, isa, threads, block_order);
}

void world_open_by_heads(world_t *w, const setting_t *setting, const char *isa, int threads,
                         uint64_t block_order) {
  memset(w, 0, sizeof *w);
  w->by_heads = true;
  open_world(w, setting, isa, threads, block_order);
}

void world_open_pictures(world_t *w, const setting_t *setting, const char *isa, int threads,
                         uint64_t block_order, int32_t picture) {
  memset(w, 0, sizeof *w);
  w->picture = picture;
  open_world(w, setting, isa, threads, block_order);
}

int32_t world_seen_until(const world_t *w, int sequence, int32_t position) {
  enum { BEFORE = 3, BETWEEN = 5 };
  if (w->picture == 0 || position < BEFORE) return 0;
  int32_t period = w->picture + BETWEEN, at = (position - BEFORE) % period;
  int32_t end = position - at + w->picture;
  return at < w->picture && end <= w->seq[sequence].length ? end : 0;
}

void world_close(world_t *w) {
  for (int i = 0; i < SEQUENCES_MAX; i++)
    free(w->seq[i].blocks), free(w->seq[i].qkv), free(w->seq[i].out);
  free(w->inv_freq), free(w->sinks), free(w->q_norm), free(w->k_norm);
  free(w->tables[0]), free(w->tables[1]), free(w->entries);
  ops_cpu.close(w->device);
}

void world_run(world_t *w, const piece_t *pieces, int32_t count) {
  static int32_t positions[TOKENS_MAX], rows[TOKENS_MAX], starts[SEQUENCES_MAX * 8 + 1];
  static int64_t slots[GROUPS_MAX * TOKENS_MAX];
  static const int32_t *tables[SEQUENCES_MAX * 8];
  static int32_t computed[SEQUENCES_MAX * 8], lens[SEQUENCES_MAX * 8], seen[TOKENS_MAX];
  int32_t tokens = 0;
  for (int32_t i = 0; i < count; i++) {
    const piece_t *p = &pieces[i];
    const sequence_rows_t *q = &w->seq[p->sequence];
    starts[i] = tokens;
    computed[i] = p->first;
    lens[i] = p->first + p->count;
    tables[i] = q->blocks;
    for (int32_t j = 0; j < p->count; j++, tokens++) {
      int32_t position = p->first + j, size = w->s.block_size;
      ASSERT_LT(tokens, TOKENS_MAX);
      positions[tokens] = position;
      rows[tokens] = i;
      seen[tokens] = world_seen_until(w, p->sequence, position);
      for (int32_t g = 0; g < w->groups; g++) {
        int64_t block = q->blocks[g * w->blocks_stride + position / size];
        slots[g * TOKENS_MAX + tokens] = p->replay ? -1 : block * size + position % size;
      }
      memcpy(w->qkv + tokens * w->width, q->qkv + position * w->width,
             (size_t)w->width * sizeof(float));
    }
  }
  starts[count] = tokens;
  batch_t batch = {.num_tokens = tokens,
                   .num_reqs = count,
                   .block_size = w->s.block_size,
                   .positions = positions,
                   .request_row = rows,
                   .seen_until = w->picture > 0 ? seen : NULL,
                   .slot_mapping = slots,
                   .slots_stride = TOKENS_MAX,
                   .num_groups = w->groups,
                   .block_table_stride = w->blocks_stride,
                   .query_start_loc = starts,
                   .num_computed_tokens = computed,
                   .seq_lens = lens,
                   .block_table = tables};
  ops_cpu.begin(w->device, &batch);
  ops_cpu.rope_store(w->device, ACT(w->qkv), &w->attention);
  ops_cpu.attention(w->device, ACT(w->out), ACT(w->qkv), &w->attention);
  inferd_error_t error;
  ASSERT_EQ(ops_cpu.end(w->device, &error), 0);
  int64_t width = (int64_t)w->s.heads * w->s.dim;
  for (int32_t i = 0; i < count; i++)
    memcpy(w->seq[pieces[i].sequence].out + pieces[i].first * width, w->out + starts[i] * width,
           (size_t)(pieces[i].count * width) * sizeof(float));
}

void world_prefill(world_t *w, int32_t chunk) {
  for (int32_t first = 0, any = 1; any; first += chunk) {
    piece_t pieces[SEQUENCES_MAX];
    any = 0;
    for (int i = 0; i < SEQUENCES_MAX; i++) {
      int32_t left = w->seq[i].length - first;
      if (left > 0) pieces[any++] = (piece_t){i, first, left < chunk ? left : chunk, false};
    }
    if (any) world_run(w, pieces, any);
  }
}

/* Norm and rope of one head as ops.h defines them, in double but for the angle. */
static void prepare_head(const world_t *w, const float *x, const float *norm, int32_t position,
                         double *out) {
  int32_t dim = w->s.dim, half = w->s.rope_dims / 2;
  double square = 0;
  for (int32_t i = 0; i < dim; i++) square += (double)x[i] * x[i] / dim;
  for (int32_t i = 0; i < dim; i++)
    out[i] = norm ? x[i] / sqrt(square + (double)w->attention.norm_eps) * norm[i] : (double)x[i];
  for (int32_t i = 0; i < half; i++) {
    float angle = (float)position * w->inv_freq[i];
    double c = cos((double)angle) * (double)w->rope.scale;
    double s = sin((double)angle) * (double)w->rope.scale;
    double a = out[i], b = out[i + half];
    out[i] = a * c - b * s;
    out[i + half] = b * c + a * s;
  }
}

/* What the pool holds of a head, in place. */
static void as_stored(const setting_t *s, double *head) {
  double largest = 0;
  for (int32_t i = 0; i < s->dim; i++) largest = fmax(largest, fabs(head[i]));
  for (int32_t i = 0; i < s->dim; i++)
    head[i] = !s->int8      ? (double)round_to((float)head[i], s->kv_dtype)
              : largest > 0 ? nearbyint(head[i] * 127 / largest) * largest / 127
                            : 0;
}

/* What the tables add to the product of a query and a key. */
static double by_distance(const world_t *w, int32_t head, const double *query, const double *key,
                          int32_t away) {
  const double *sides[2] = {query, key};
  const vector_t *has[2] = {w->attention.key_table, w->attention.query_table};
  double sum = 0;
  if (w->span == 0) return 0;
  const int64_t entries = w->attention.num_entries, e = entry_of(away, w->span);
  for (int n = 0; n < 2; n++) {
    const float *table = w->tables[n] + (head * entries + e / 16 * 16) * w->s.dim;
    for (int32_t i = 0; has[n] != NULL && i < w->s.dim; i++)
      sum += sides[n][i] * (double)table[i * 16 + e % 16];
  }
  return sum;
}

void world_reference(const world_t *w, int32_t sequence, int32_t position, double *out) {
  const setting_t *s = &w->s;
  const sequence_rows_t *q = &w->seq[sequence];
  double *query = malloc((size_t)s->dim * sizeof *query), *key = malloc((size_t)s->dim * 8);
  int32_t low = s->window && position >= s->window ? position - s->window + 1 : 0;
  int32_t high = position;
  if (s->bidirectional) {
    high = q->length - 1;
    if (s->window && high > position + s->window - 1) high = position + s->window - 1;
  }
  if (world_seen_until(w, sequence, position) > 0)
    high = world_seen_until(w, sequence, position) - 1;
  double *scores = malloc((size_t)(high + 1) * sizeof *scores);
  for (int32_t h = 0; h < s->heads; h++) {
    int32_t kv = h / (s->heads / s->kv_heads);
    prepare_head(w, q->qkv + position * w->width + h * s->dim, s->qk_norm ? w->q_norm : NULL,
                 position, query);
    double max = s->sinks ? (double)w->sinks[h] : -INFINITY;
    for (int32_t j = low; j <= high; j++) {
      const float *row = q->qkv + j * w->width + (s->heads + kv) * s->dim;
      prepare_head(w, row, s->qk_norm ? w->k_norm : NULL, j, key);
      double dot = by_distance(w, h, query, key, position - j);
      as_stored(s, key);
      for (int32_t i = 0; i < s->dim; i++) dot += query[i] * key[i];
      dot *= (double)w->attention.scale;
      if (s->softcap != 0) dot = (double)s->softcap * tanh(dot / (double)s->softcap);
      scores[j] = dot;
      if (dot > max) max = dot;
    }
    double sum = s->sinks ? exp((double)w->sinks[h] - max) : 0;
    double *to = out + h * s->dim;
    memset(to, 0, (size_t)s->dim * sizeof *to);
    for (int32_t j = low; j <= high; j++) {
      double p = exp(scores[j] - max);
      const float *v = q->qkv + j * w->width + (s->heads + s->kv_heads + kv) * s->dim;
      sum += p;
      for (int32_t i = 0; i < s->dim; i++) key[i] = (double)v[i];
      as_stored(s, key);
      for (int32_t i = 0; i < s->dim; i++) to[i] += p * key[i];
    }
    for (int32_t i = 0; i < s->dim; i++) to[i] /= sum;
  }
  free(query), free(key), free(scores);
}
