/* rig.c: one model on one back end, driven without the engine. Tests only; one thread. */
#include "tests/engine/model/rig.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/adapter/adapter.h"
#include "engine/model/forward/mtp.h"
#include "engine/model/sizes.h"
#include "engine/model/towers/towers.h"

#include <stdlib.h>
#include <string.h>

enum { ADAPTER_RANK = 32, BLOCK_SIZE = 16, ROWS_MAX = 8, LENGTH_MAX = 512, STATE_SLOT = 2 };
enum { SEQUENCES = 2 };

static void *take(size_t count, size_t size) {
  void *memory = calloc(count, size);
  CHECK(memory != NULL);
  return memory;
}

static void make_batch(rig_t *rig) {
  size_t tokens = (size_t)rig->tokens_max;
  batch_t *batch = &rig->batch;
  int32_t num_blocks = rig->max_len / BLOCK_SIZE + 1;
  batch->block_size = BLOCK_SIZE;
  batch->input_ids = take(tokens, sizeof(int32_t));
  batch->adapters = take(tokens, sizeof(int32_t));
  batch->embedded_tokens = take(tokens, sizeof(int32_t));
  batch->embedded_rows = take(tokens, sizeof(float *));
  batch->positions = take(tokens, sizeof(int32_t));
  batch->request_row = take(tokens, sizeof(int32_t));
  batch->slot_mapping = take(tokens, sizeof(int64_t));
  batch->selected_token_indices = take(tokens, sizeof(int32_t));
  batch->query_start_loc = take(SEQUENCES + 1, sizeof(int32_t));
  batch->num_computed_tokens = take(SEQUENCES, sizeof(int32_t));
  batch->seq_lens = take(SEQUENCES, sizeof(int32_t));
  batch->do_sample = take(SEQUENCES, 1);
  batch->state_slots = take(SEQUENCES, sizeof(int32_t));
  batch->state_slots[0] = STATE_SLOT;
  batch->state_slots[1] = STATE_SLOT - 1;
  batch->block_table = take(SEQUENCES, sizeof(int32_t *));
  batch->block_table_stride = num_blocks;
  rig->blocks = take((size_t)num_blocks, sizeof(int32_t));
  /* nb, nb-2, ... then nb-1, nb-3, ...: never in order, never the null block. */
  for (int32_t i = 0; i < num_blocks; i++) {
    int32_t half = (num_blocks + 1) / 2;
    rig->blocks[i] = i < half ? num_blocks - 2 * i : num_blocks - 1 - 2 * (i - half);
  }
  batch->block_table[0] = rig->blocks;
}

static int prepare(rig_t *rig, bool kv_int8, inferd_error_t *error) {
  const blueprint_t *bp = &rig->blueprint;
  kv_cache_desc_t kv = model_kv(bp);
  kv.num_blocks = rig->max_len / BLOCK_SIZE + 2;
  kv.block_size = BLOCK_SIZE;
  kv.int8 = kv_int8;
  step_limits_t limits = {
      .tokens_max = rig->tokens_max,
      .reqs_max = SEQUENCES,
      .logits_rows_max = ROWS_MAX,
      .max_model_len = rig->max_len,
  };
  model_limits(bp, &limits);
  int status = rig->ops->kv_cache(rig->device, &kv, error);
  state_desc_t states = model_states(rig->ops, bp, STATE_SLOT + 1);
  if (status == 0 && states.num_layers > 0)
    status = rig->ops->state->make(rig->device, &states, error);
  if (status == 0) status = rig->ops->prepare(rig->device, &limits, error);
  if (status == 0) status = model_prepare(rig->model, &limits, error);
  if (status == 0) make_batch(rig);
  return status;
}

static int adapt(rig_t *rig, const char *dir, const model_options_t *model, inferd_error_t *error) {
  const adapter_base_t base = {&rig->blueprint, rig->ops, model, ADAPTER_RANK};
  int status = model_adapters(rig->model, 2, ADAPTER_RANK, error);
  if (status == 0) status = adapter_read(&base, dir, &rig->adapted, error);
  if (status != 0) return status;
  model_set_adapter(rig->model, 2, rig->adapted);
  rig->adapter = 2;
  return 0;
}

static int load_tower(rig_t *rig, const char *dir, inferd_error_t *error) {
  tower_plan_t plan;
  int status = tower_plan_read(dir, &plan, error);
  if (status != 0) return status;
  CHECK(plan.family != NULL);
  return tower_load(rig->ops, rig->device, dir, &plan, rig->blueprint.dtype, &rig->tower, error);
}

int rig_open(const rig_options_t *options, rig_t *rig, inferd_error_t *error) {
  *rig = (rig_t){.ops = options->ops};
  device_options_t device = {.num_threads = options->num_threads,
                             .isa = options->isa != NULL ? options->isa : "auto"};
  model_options_t model = {.dir = options->dir,
                           .dummy = options->dummy,
                           .dummy_seed = options->seed,
                           .dtype = options->dtype,
                           .host_experts = options->host_experts};
  int status = blueprint_read(options->dir, 0, -1, &rig->blueprint, error);
  if (status != 0) return status;
  if (options->mtp) status = mtp_choose(options->ops, &rig->blueprint, error);
  if (status != 0) {
    rig_close(rig);
    return status;
  }
  if (options->dtype >= 0) rig->blueprint.dtype = (dtype_t)options->dtype;
  rig->max_len = options->max_model_len;
  if (rig->max_len == 0) {
    bool longer = rig->blueprint.max_model_len > LENGTH_MAX;
    rig->max_len = longer ? LENGTH_MAX : rig->blueprint.max_model_len;
  }
  rig->tokens_max = rig->max_len;
  status = rig->ops->open(&device, &rig->device, error);
  if (status == 0) {
    status = model_load(rig->ops, rig->device, &rig->blueprint, rig->max_len, &model, &rig->model,
                        error);
  }
  if (status == 0 && options->adapter != NULL) status = adapt(rig, options->adapter, &model, error);
  if (status == 0 && options->sees) status = load_tower(rig, options->dir, error);
  if (status == 0) status = prepare(rig, options->kv_int8, error);
  if (status != 0) rig_close(rig);
  return status;
}

void rig_close(rig_t *rig) {
  batch_t *batch = &rig->batch;
  void *const memory[] = {batch->input_ids,
                          batch->adapters,
                          batch->embedded_tokens,
                          (void *)batch->embedded_rows,
                          batch->rope_positions,
                          batch->seen_until,
                          batch->positions,
                          batch->request_row,
                          batch->slot_mapping,
                          batch->query_start_loc,
                          batch->selected_token_indices,
                          batch->seq_lens,
                          batch->num_computed_tokens,
                          batch->do_sample,
                          batch->state_slots,
                          batch->block_table,
                          rig->blocks};
  for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) free(memory[i]);
  model_free(rig->model);
  tower_free(rig->tower);
  adapter_free(rig->adapted);
  if (rig->device != NULL) rig->ops->close(rig->device);
  blueprint_free(&rig->blueprint);
  *rig = (rig_t){0};
}

/* What the step has of pictures from token `at` on: tokens start.. of the sequence. */
static void show(rig_t *rig, int32_t at, int32_t count, int32_t start) {
  batch_t *batch = &rig->batch;
  const rig_sight_t *sight = rig->sight;
  const size_t tokens = (size_t)rig->tokens_max;
  if (at == 0) {
    free(batch->rope_positions);
    free(batch->seen_until);
    batch->rope_positions = batch->seen_until = NULL;
    batch->num_embedded = 0;
  }
  if (sight == NULL) return;
  CHECK_LE(start + count, sight->count);
  size_t bytes = (size_t)count * sizeof(int32_t);
  batch->num_deep = sight->num_deep;
  for (int32_t i = 0; i < count; i++) {
    if (sight->rows[start + i] == NULL) continue;
    batch->embedded_rows[batch->num_embedded] = sight->rows[start + i];
    batch->embedded_tokens[batch->num_embedded++] = at + i;
  }
  if (sight->rope_positions != NULL) {
    batch->rope_stride = rig->tokens_max;
    if (at == 0) batch->rope_positions = take(3 * tokens, sizeof(int32_t));
    for (int axis = 0; axis < 3; axis++)
      memcpy(batch->rope_positions + axis * batch->rope_stride + at,
             sight->rope_positions + axis * sight->count + start, bytes);
  }
  if (sight->seen_until != NULL) {
    if (at == 0) batch->seen_until = take(tokens, sizeof(int32_t));
    memcpy(batch->seen_until + at, sight->seen_until + start, bytes);
  }
}

/* A second sequence, behind the first one in the batch and in blocks that it does not use. */
static void put_beside(rig_t *rig, int32_t at) {
  batch_t *batch = &rig->batch;
  const int32_t count = rig->beside, first = DIV_UP(rig->sight->count, BLOCK_SIZE);
  const int32_t *blocks = rig->blocks + first;
  CHECK_LE(at + count, rig->tokens_max);
  CHECK_LE(first + DIV_UP(count, BLOCK_SIZE), rig->max_len / BLOCK_SIZE + 1);
  for (int32_t i = 0; i < count; i++) {
    batch->input_ids[at + i] = rig->prompt[i];
    batch->positions[at + i] = i;
    batch->adapters[at + i] = 0;
    batch->request_row[at + i] = 1;
    batch->slot_mapping[at + i] = (int64_t)blocks[i / BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE;
  }
  batch->block_table[1] = blocks;
  batch->num_reqs = 2;
  batch->num_tokens = batch->query_start_loc[2] = at + count;
  batch->max_query_len = MAX(batch->max_query_len, count);
  batch->max_seq_len = MAX(batch->max_seq_len, count);
  batch->seq_lens[1] = count;
  show(rig, at, count, 0);
}

void rig_batch(rig_t *rig, const int32_t *ids, int32_t count, int32_t start, int32_t wanted) {
  batch_t *batch = &rig->batch;
  CHECK_LE(count, rig->tokens_max);
  CHECK_LE(start + count, rig->max_len);
  CHECK_LE(wanted, count);
  for (int32_t i = 0; i < count; i++) {
    int32_t position = start + i;
    batch->input_ids[i] = ids[i];
    batch->positions[i] = position;
    batch->request_row[i] = 0;
    batch->adapters[i] = rig->adapter;
    batch->slot_mapping[i] =
        (int64_t)rig->blocks[position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
  }
  for (int32_t i = 0; i < wanted; i++) batch->selected_token_indices[i] = count - wanted + i;
  batch->num_tokens = batch->max_query_len = count;
  batch->num_reqs = 1;
  batch->num_adapted = rig->adapter > 0 ? count : 0;
  batch->max_seq_len = batch->seq_lens[0] = start + count;
  batch->num_computed_tokens[0] = start;
  batch->query_start_loc[1] = count;
  batch->num_selected = wanted;
  batch->do_sample[0] = wanted > 0;
  show(rig, 0, count, start);
  if (rig->beside > 0) put_beside(rig, count);
}

static void read_logits(rig_t *rig, int32_t wanted, float *logits) {
  for (int32_t row = 0; row < wanted; row += ROWS_MAX) {
    int32_t rows = wanted - row < ROWS_MAX ? wanted - row : ROWS_MAX;
    model_logits(rig->model, row, rows);
    rig->ops->read_logits(rig->device, logits + (int64_t)row * rig->blueprint.vocab_size, rows);
  }
}

int rig_run(rig_t *rig, const int32_t *ids, int32_t count, int32_t start, int32_t wanted,
            float *logits, inferd_error_t *error) {
  rig_batch(rig, ids, count, start, wanted);
  rig->ops->begin(rig->device, &rig->batch);
  model_forward(rig->model, &rig->batch);
  read_logits(rig, wanted, logits);
  return rig->ops->end(rig->device, error);
}

int rig_predict(rig_t *rig, const int32_t *next, int32_t count, int32_t start, const float *rows,
                float *out, float *logits, inferd_error_t *error) {
  rig_batch(rig, next, count, start, count);
  rig->ops->begin(rig->device, &rig->batch);
  mtp_forward(rig->model, &rig->batch, rows, out);
  mtp_head(rig->model, out, count);
  read_logits(rig, count, logits);
  return rig->ops->end(rig->device, error);
}
