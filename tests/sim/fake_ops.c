/* fake_ops.c: see fake_ops.h. All calls come from the engine thread. */
#include "tests/sim/fake_ops.h"

#include "engine/base/clock.h"
#include "engine/device/sampling_params.h"
#include "tests/sim/no_ops.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_OPS_SYMBOL
#define FAKE_OPS_SYMBOL ops_fake
#endif

fake_settings_t fake_settings = {.first_id = 2};

/* What a step has drawn and `end` has not yet handed over. */
typedef struct late {
  sample_result_t *result;
  int32_t id, status;
  int32_t num_top;
} late_t;

enum { DEPTH_MAX = 2 };

struct device {
  uint64_t *shadow; /* [slots] hash of the prefix up to the token stored there; 0 = never written */
  uint64_t *host;   /* the same, of the host pool */
  int64_t num_slots;
  int32_t block_size, vocab_size;
  const batch_t *batch;
  int32_t logits_first;
  late_t *late[DEPTH_MAX]; /* [tokens_max] by selected row, of the steps in flight */
  int32_t num_late[DEPTH_MAX];
  uint64_t num_begun, num_ended;
  uint64_t last_end_ns;
  void *buffers[256];
  int num_buffers;
};

static atomic_ullong steps, violations, resolved;

uint64_t fake_steps(void) {
  return atomic_load(&steps);
}
uint64_t fake_resolved(void) {
  return atomic_load(&resolved);
}
uint64_t fake_violations(void) {
  return atomic_load(&violations);
}

static uint64_t mix(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdu;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 33;
}

static uint64_t extend(uint64_t prefix, int32_t id) {
  return mix(prefix + (uint64_t)id + 1) | 1;
}

static int32_t draw(uint64_t hash, int32_t vocab_size) {
  const fake_settings_t *f = &fake_settings;
  if (f->eos_one_in && mix(hash + 7) % f->eos_one_in == 0) return f->eos_id;
  return f->first_id + (int32_t)(mix(hash) % (uint64_t)(vocab_size - f->first_id));
}

int32_t fake_next(const int32_t *ids, int32_t count, int32_t vocab_size) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < count; i++) hash = extend(hash, ids[i]);
  return draw(hash, vocab_size);
}

int32_t fake_draw(const int32_t *ids, int32_t count, int32_t vocab_size, uint64_t rng_key) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < count; i++) hash = extend(hash, ids[i]);
  return draw(mix(hash + rng_key), vocab_size);
}

/* Logits are spread evenly over 0..8. */
static double logit(uint64_t hash, int32_t id) {
  return (double)(mix(hash + (uint64_t)id * 0x9E3779B97F4A7C15u) >> 40) * 0x1p-21;
}

static void logprobs(uint64_t hash, int32_t vocab_size, float *out) {
  double sum = 0;
  for (int32_t i = 0; i < vocab_size; i++) sum += exp(logit(hash, i));
  for (int32_t i = 0; i < vocab_size; i++) out[i] = (float)(logit(hash, i) - log(sum));
}

void fake_logprobs(const int32_t *ids, int32_t count, int32_t vocab_size, float *out) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < count; i++) hash = extend(hash, ids[i]);
  logprobs(hash, vocab_size, out);
}

static int fake_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  (void)options;
  *out = calloc(1, sizeof **out);
  atomic_store(&steps, 0);
  atomic_store(&violations, 0);
  atomic_store(&resolved, 0);
  return *out ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory");
}

static void fake_close(device_t *d) {
  for (int i = 0; i < d->num_buffers; i++) free(d->buffers[i]);
  free(d->shadow);
  free(d->host);
  free(d);
}

static const char *fake_describe(const device_t *d) {
  (void)d;
  return "fake device";
}

static size_t fake_memory_free(const device_t *d) {
  (void)d;
  return (size_t)1 << 30;
}

static void *keep(device_t *d, size_t bytes) {
  if (d->num_buffers == 256) return NULL;
  return d->buffers[d->num_buffers++] = calloc(1, bytes);
}

static int fake_weight(device_t *d, const weight_source_t *source, weight_t **out,
                       inferd_error_t *error) {
  (void)source;
  *out = keep(d, 1);
  return *out ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory");
}

static int fake_vector(device_t *d, const float *values, int64_t count, vector_t **out,
                       inferd_error_t *error) {
  (void)values;
  (void)count;
  *out = keep(d, 1);
  return *out ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory");
}

static size_t fake_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks) {
  return (size_t)num_blocks * (size_t)desc->block_size * sizeof(uint64_t);
}

static int fake_kv_cache(device_t *d, const kv_cache_desc_t *desc, inferd_error_t *error) {
  d->num_slots = (int64_t)desc->num_blocks * desc->block_size;
  d->block_size = desc->block_size;
  size_t bytes = (size_t)d->num_slots * sizeof *d->shadow;
  d->shadow = malloc(bytes);
  if (!d->shadow) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  explicit_bzero(d->shadow, bytes); /* resident from the start, as a real pool is */
  return 0;
}

static int fake_pool(device_t *d, int32_t num_blocks, void *memory, inferd_error_t *error) {
  (void)memory;
  d->host = calloc((size_t)num_blocks * (size_t)d->block_size, sizeof *d->host);
  return d->host ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory");
}

static double fake_rate(const device_t *d) {
  (void)d;
  return fake_settings.swap_rate > 0 ? fake_settings.swap_rate : 1e12;
}

static void fake_out(device_t *d, const block_swap_t *swaps, int32_t count) {
  size_t bs = (size_t)d->block_size, bytes = bs * sizeof *d->host;
  for (int32_t i = 0; i < count; i++) {
    memcpy(&d->host[(size_t)swaps[i].host * bs], &d->shadow[(size_t)swaps[i].device * bs], bytes);
  }
}

static void fake_in(device_t *d, const block_swap_t *swaps, int32_t count) {
  size_t bs = (size_t)d->block_size, bytes = bs * sizeof *d->host;
  for (int32_t i = 0; i < count; i++) {
    memcpy(&d->shadow[(size_t)swaps[i].device * bs], &d->host[(size_t)swaps[i].host * bs], bytes);
  }
}

static const swap_ops_t fake_swap = {
    .pool = fake_pool, .rate = fake_rate, .out = fake_out, .in = fake_in};

static int fake_prepare(device_t *d, const step_limits_t *limits, inferd_error_t *error) {
  d->vocab_size = limits->vocab_size;
  for (int i = 0; i < DEPTH_MAX; i++) {
    d->late[i] = keep(d, (size_t)limits->tokens_max * sizeof *d->late[i]);
    if (!d->late[i]) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  }
  return 0;
}

static act_t *fake_buffer(device_t *d, int64_t rows, int64_t width) {
  (void)rows;
  (void)width;
  return keep(d, 1);
}

static int64_t slot_of(const batch_t *b, int32_t row, int32_t position) {
  return (int64_t)b->block_table[row][position / b->block_size] * b->block_size +
         position % b->block_size;
}

static void expect(bool promise) {
  if (!promise) atomic_fetch_add(&violations, 1);
}

/* An id that is not known to the host yet was drawn by the step before. */
static int32_t resolve(const device_t *d, int32_t id) {
  if (id >= 0) return id;
  expect(d->num_begun - d->num_ended == DEPTH_MAX);
  atomic_fetch_add(&resolved, 1);
  return d->late[d->num_begun % DEPTH_MAX][-1 - id].id;
}

static void copy_page(device_t *d, const block_copy_t *copy) {
  int64_t src = (int64_t)copy->src * d->block_size, dst = (int64_t)copy->dst * d->block_size;
  expect(copy->src > 0 && copy->dst > 0 && copy->rows > 0 && copy->rows <= d->block_size);
  for (int32_t i = 0; i < copy->rows; i++) {
    expect(d->shadow[src + i] != 0);
    d->shadow[dst + i] = d->shadow[src + i];
  }
}

/* Stores the prefix hash of every token; the one before it must lie where the table says. */
static void fake_begin(device_t *d, const batch_t *b) {
  d->batch = b;
  d->num_begun++;
  d->num_late[(d->num_begun - 1) % DEPTH_MAX] = 0;
  for (int32_t i = 0; i < b->num_copies; i++) copy_page(d, &b->copies[i]);
  for (int32_t t = 0; t < b->num_tokens; t++) {
    int32_t position = b->positions[t], row = b->request_row[t];
    int64_t slot = b->slot_mapping[t];
    uint64_t prefix = position ? d->shadow[slot_of(b, row, position - 1)] : 0;
    expect(slot >= b->block_size && slot < d->num_slots && slot == slot_of(b, row, position));
    expect(position == 0 || prefix != 0);
    d->shadow[slot] = extend(prefix, resolve(d, b->input_ids[t]));
  }
  if (fake_settings.begun != NULL) fake_settings.begun();
}

/* Re-reads the whole prefix of a row as attention would. */
static void check_row(device_t *d, const sample_row_t *row, int32_t batch_row) {
  uint64_t hash = 0;
  int32_t length = d->batch->seq_lens[batch_row], known = row->num_prompt + row->num_output;
  if (length > known) length = known; /* the rest is in flight */
  for (int32_t p = 0; p < length; p++) {
    int32_t id = p < row->num_prompt ? row->prompt_ids[p] : row->output_ids[p - row->num_prompt];
    hash = extend(hash, id);
    expect(d->shadow[slot_of(d->batch, batch_row, p)] == hash);
  }
}

static void fake_logits(device_t *d, const act_t *hidden, const weight_t *head,
                        const vector_t *bias, float softcap, int32_t first, int32_t rows) {
  (void)hidden;
  (void)head;
  (void)bias;
  (void)softcap;
  (void)rows;
  d->logits_first = first;
}

static bool allows(const sample_row_t *row, int32_t id) {
  return row->allowed_mask == NULL || (row->allowed_mask[id / 32] >> (id % 32) & 1);
}

/* The best ids of a row that its grammar allows, in order, lower ids first on ties. */
static int32_t fill_top(const device_t *d, const sample_row_t *row, uint64_t hash) {
  static float values[65536];
  int32_t count = 0, wanted = row->num_top;
  token_logprob_t *top = row->result->top;
  logprobs(hash, d->vocab_size, values);
  for (int32_t id = 0; id < d->vocab_size; id++) {
    int32_t at = count;
    while (at > 0 && top[at - 1].logprob < values[id]) at--;
    if (at == wanted || !allows(row, id)) continue;
    if (count < wanted) count++;
    for (int32_t i = count - 1; i > at; i--) top[i] = top[i - 1];
    top[at] = (token_logprob_t){id, values[id]};
  }
  return count;
}

/* The drawn id, or the next one that the grammar allows. */
static int32_t draw_allowed(const sample_row_t *row, uint64_t hash, int32_t vocab_size) {
  int32_t id = draw(hash, vocab_size);
  if (!row->allowed_mask) return id;
  if (hash % 4 == 0) id = 0; /* ends are among the first ids */
  for (int32_t i = 0; i < vocab_size; i++, id = (id + 1) % vocab_size) {
    if (allows(row, id)) return id;
  }
  return -1;
}

static void fake_sample(device_t *d, const sample_row_t *rows, int32_t num_rows) {
  for (int32_t i = 0; i < num_rows; i++) {
    int32_t index = d->logits_first + i, batch_row = d->batch->selected_row[index];
    int32_t token = d->batch->selected_token_indices[index];
    uint64_t hash = d->shadow[d->batch->slot_mapping[token]];
    int step = (int)((d->num_begun - 1) % DEPTH_MAX);
    bool broken = fake_settings.nan_after > 0 &&
                  (int64_t)rows[i].rng_position >= (int64_t)fake_settings.nan_after;
    if (fake_settings.fail_seed > 0 && rows[i].params->seed == fake_settings.fail_seed) {
      broken = true;
    }
    bool beams = rows[i].params->beam_width > 0, drawn = rows[i].score_id < 0;
    if (rows[i].params->temperature > 0) hash = mix(hash + rows[i].rng_key);
    int32_t num_top = beams ? fill_top(d, &rows[i], hash) : 0;
    int32_t id = drawn ? draw_allowed(&rows[i], hash, d->vocab_size) : rows[i].score_id;
    d->late[step][index] = (late_t){
        .result = rows[i].result,
        .id = id < 0 ? 0 : id,
        .num_top = num_top,
        .status = broken   ? ERR_INTERNAL
                  : id < 0 ? ERR_NO_CHOICE
                           : 0,
    };
    d->num_late[step] = index + 1;
    rows[i].result->id = -1; /* whoever looks before `end` finds nothing */
    if (fake_settings.step_ns == 0 && rows[i].score_id < 0) check_row(d, &rows[i], batch_row);
  }
}

static int fake_end(device_t *d, inferd_error_t *error) {
  int oldest = (int)(d->num_ended++ % DEPTH_MAX);
  for (int32_t i = 0; i < d->num_late[oldest]; i++) {
    const late_t *late = &d->late[oldest][i];
    late->result->id = late->id;
    late->result->status = late->status;
    late->result->logprob = -1.0f - (float)(late->id % 16) / 16;
    late->result->rank = 1;
    late->result->num_top = late->num_top;
  }
  uint64_t step = atomic_fetch_add(&steps, 1) + 1;
  if (fake_settings.fail_at_step > 0 && step == (uint64_t)fake_settings.fail_at_step) {
    return error_set(error, ERR_DEVICE_FAILED, NULL, "the fake device was told to fail");
  }
  while (fake_settings.held) nanosleep(&(struct timespec){0, 1000000}, NULL);
  if (fake_settings.step_ns) {
    uint64_t due = d->last_end_ns + fake_settings.step_ns, now = clock_now_ns();
    if (due < now) due = now;
    struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    d->last_end_ns = due;
  }
  return 0;
}

static int fake_lora(device_t *d, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                     int32_t rank, lora_t **out, inferd_error_t *error) {
  (void)kind, (void)rows, (void)cols, (void)slots, (void)rank;
  *out = keep(d, 1);
  return *out ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory");
}
static const lora_ops_t fake_lora_ops = {.make = fake_lora,
                                         .set = no_lora_set,
                                         .add = no_lora_add,
                                         .embed = no_lora_embed,
                                         .logits = no_lora_logits};

static void zero_logits(device_t *d, float *out, int32_t rows) {
  memset(out, 0, (size_t)rows * (size_t)d->vocab_size * sizeof *out);
}

const ops_t FAKE_OPS_SYMBOL = {
    .name = "fake",
    .swap = &fake_swap,
    .open = fake_open,
    .close = fake_close,
    .describe = fake_describe,
    .memory_free = fake_memory_free,
    .weight = fake_weight,
    .vector = fake_vector,
    .kv_bytes = fake_kv_bytes,
    .kv_cache = fake_kv_cache,
    .prepare = fake_prepare,
    .buffer = fake_buffer,
    .begin = fake_begin,
    .embed = no_embed,
    .embed_positions = no_positions,
    .norm = no_norm,
    .linear = no_linear,
    .rope_store = no_rope,
    .attention = no_attention,
    .activation = no_activation,
    .gated_add = no_gated_add,
    .moe = no_moe,
    .lora = &fake_lora_ops,
    .gather = no_gather,
    .logits = fake_logits,
    .sample = fake_sample,
    .end = fake_end,
    .read_logits = zero_logits,
};

const ops_t *fake_ops_deep(void) {
  static ops_t deep;
  deep = FAKE_OPS_SYMBOL;
  deep.pipeline_depth = DEPTH_MAX;
  return &deep;
}
