/* draw.c: sampling parameters to the device, drawn ids and logprobs back; stage 7 of 9.
 *
 * Engine thread. A row of the engine becomes a gpu_sample_row_t in the packet, followed by the
 * arrays to which it points. The tokens so far are not sent: the device keeps the id of every token
 * beside its K and V. Next: engine/commit.c.
 */
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/order.h"
#include "engine/device/sampling_params.h"

#include <math.h>
#include <string.h>

enum { WORD_ENTRY = 3 /* int32 of a banned sequence: length, at most one before, the last */ };

static size_t mask_bytes(int32_t vocab) {
  return ((size_t)vocab + 31) / 32 * sizeof(uint32_t);
}

size_t draw_payload_max(int32_t vocab) {
  return 2 * mask_bytes(vocab) + LOGIT_BIAS_MAX * sizeof(gpu_sample_bias_t) +
         BAD_WORDS_MAX * WORD_ENTRY * sizeof(int32_t) +
         (SUPPRESSED_IDS_MAX + LOGPROB_TOKEN_IDS_MAX) * sizeof(int32_t) + 8 * PACKET_ALIGN;
}

/* Packs an array and returns where it will lie on the device; NULL when it is empty. */
static const void *pack(device_t *device, const void *from, size_t bytes) {
  size_t offset;
  if (bytes == 0) return NULL;
  memcpy(packet_room(device, bytes, &offset), from, bytes);
  return device->packet + offset;
}

/* Packs ids as a bit set, because a request may have many ids and repeat them. */
static const uint32_t *pack_allowed(device_t *device, const sampling_params_t *params) {
  const int32_t vocab = device->limits.vocab_size;
  size_t offset;
  if (params->num_allowed_ids == 0) return NULL;
  uint32_t *bits = packet_room(device, mask_bytes(vocab), &offset);
  memset(bits, 0, mask_bytes(vocab));
  for (int32_t i = 0; i < params->num_allowed_ids; i++) {
    int32_t id = params->allowed_ids[i];
    if (id >= 0 && id < vocab) bits[id / 32] |= 1u << (id % 32);
  }
  return (const uint32_t *)(const void *)(device->packet + offset);
}

/* Returns true if the tokens that the host knows end with the prefix of the word, without its last
 * `unknown` ids. */
static bool may_match(const token_sequence_t *word, const sample_row_t *row, int32_t unknown) {
  int32_t known = word->count - 1 - unknown;
  if (known <= 0) return word->count - 1 <= row->num_output + unknown;
  if (known > row->num_output) return false;
  const int32_t *tail = row->output_ids + row->num_output - known;
  return memcmp(tail, word->ids, (size_t)known * sizeof *tail) == 0;
}

/* Packs of each banned sequence only the ids that the host cannot check: the id that is still being
 * drawn, if there is one, and the last id. */
static void pack_bad_words(device_t *device, const sample_row_t *row, int32_t unknown,
                           gpu_sample_row_t *to) {
  const sampling_params_t *params = row->params;
  size_t offset, used = 0;
  if (params->num_bad_words == 0) return;
  CHECK_LE(params->num_bad_words, BAD_WORDS_MAX);
  size_t room = (size_t)params->num_bad_words * WORD_ENTRY * sizeof(int32_t);
  int32_t *entries = packet_room(device, room, &offset);
  for (int32_t i = 0; i < params->num_bad_words; i++) {
    const token_sequence_t *word = &params->bad_words[i];
    if (!may_match(word, row, unknown)) continue;
    int32_t left = MIN(word->count - 1, unknown);
    entries[used++] = left + 1;
    for (int32_t j = word->count - 1 - left; j < word->count; j++) entries[used++] = word->ids[j];
    to->num_bad_words++;
  }
  to->bad_words = (const int32_t *)(const void *)(device->packet + offset);
}

static void pack_bias(device_t *device, const sampling_params_t *params, gpu_sample_row_t *to) {
  size_t offset;
  if (params->num_logit_bias == 0) return;
  CHECK_LE(params->num_logit_bias, LOGIT_BIAS_MAX);
  gpu_sample_bias_t *bias =
      packet_room(device, (size_t)params->num_logit_bias * sizeof *bias, &offset);
  for (int32_t i = 0; i < params->num_logit_bias; i++) {
    bias[i] = (gpu_sample_bias_t){params->logit_bias[i].id, params->logit_bias[i].bias};
  }
  to->num_bias = params->num_logit_bias;
  to->logit_bias = (const gpu_sample_bias_t *)(const void *)(device->packet + offset);
}

/* Packs the part that only sampled rows have. The history of a row ends with the token at its own
 * position. */
static void pack_draw(device_t *device, const sample_row_t *row, int32_t index,
                      gpu_sample_row_t *to) {
  const sampling_params_t *params = row->params;
  const batch_t *batch = device->batch;
  const int32_t token = batch->selected_token_indices[index], r = batch->selected_row[index];
  const int32_t length = batch->positions[token] + 1;
  const int32_t unknown = length - row->num_prompt - row->num_output;
  CHECK_GE(unknown, 0);
  CHECK_LE(unknown, 1);
  CHECK_LE(row->num_suppressed, SUPPRESSED_IDS_MAX);
  to->history = device->inputs.history;
  to->blocks = device->inputs.block_table + (size_t)r * (size_t)device->block_table_stride;
  to->block_size = device->kv.block_size;
  to->num_prompt = row->num_prompt;
  to->num_output = length - row->num_prompt;
  to->suppressed_ids =
      pack(device, row->suppressed_ids, (size_t)row->num_suppressed * sizeof(int32_t));
  to->num_suppressed = row->num_suppressed;
  to->allowed_ids = pack_allowed(device, params);
  pack_bias(device, params, to);
  pack_bad_words(device, row, unknown, to);
  if (row->num_top < 0) return;
  to->logprob_ids = pack(device, params->logprob_token_ids,
                         (size_t)params->num_logprob_token_ids * sizeof(int32_t));
  to->num_logprob_ids = params->num_logprob_token_ids;
}

/* Returns true if the host sorts the row, see sort_row. */
static bool is_sorted(const sample_row_t *row) {
  return row->num_top > LOGPROBS_MAX;
}

static void pack_row(device_t *device, const sample_row_t *row, int32_t index,
                     gpu_sample_row_t *to) {
  const sampling_params_t *params = row->params;
  *to = (gpu_sample_row_t){
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  .name = params->name,
#include "engine/device/sampling.def"
      .top_k = params->top_k,
      .score_id = row->score_id,
      .num_top = is_sorted(row) ? 0 : row->num_top,
      .rng_key = row->rng_key,
      .rng_position = row->rng_position,
  };
  if (!device_copies_results(device)) {
    to->host_result = &device->step->results[index];
    to->host_top = &device->step->tops[index];
  }
  if (row->allowed_mask != NULL)
    to->allowed_mask = pack(device, row->allowed_mask, mask_bytes(device->limits.vocab_size));
  if (row->score_id < 0) pack_draw(device, row, index, to);
}

/* Launches the sampler over rows [first, first + num_rows) of the packet. */
static void launch_rows(device_t *device, int32_t first, int32_t num_rows) {
  const size_t at = device->samples_at + (size_t)first * sizeof(gpu_sample_row_t);
  if (device->mode == STEP_EAGER) {
    packet_send(device); /* the arrays to which the rows point; then the rows, whose place was sent
                            before */
    device_note(device,
                (int)cudaMemcpyAsync(device->packet + at, device->step->packet + at,
                                     (size_t)num_rows * sizeof(gpu_sample_row_t),
                                     cudaMemcpyHostToDevice, device->stream),
                "sampling parameters");
  }
  if (!device_is_live(device)) return;
  device_note(device,
              gpu_sample(device->logits, device->limits.vocab_size,
                         (const gpu_sample_row_t *)(const void *)(device->packet + at), num_rows,
                         device->scratch, device->results + first, device->tops + first,
                         device->stream),
              "sample");
}

/* ---- rows that the host sorts ---- */

/* The kernel finds few alternatives, one after another. For more, the row is copied to the host
 * before the kernel changes it and sorted here, and the sum that makes logits to logprobs is read
 * after it. The launch waits for both: at `end` the request may be gone, with the memory for the
 * alternatives. */

/* Applies the grammar's mask, and shares all probability among logits of +infinity, as the kernel
 * does. */
static void change_logits(float *logits, int32_t vocab, const uint32_t *allowed) {
  float most = -INFINITY;
  for (int32_t i = 0; i < vocab; i++) {
    if (allowed != NULL && !(allowed[i / 32] >> (i % 32) & 1)) logits[i] = -INFINITY;
    most = logits[i] > most ? logits[i] : most;
  }
  if (most != INFINITY) return;
  for (int32_t i = 0; i < vocab; i++) logits[i] = logits[i] == INFINITY ? 0.0f : -INFINITY;
}

/* Fills the alternatives of a row with ids and logits. */
static void sort_row(device_t *device, const sample_row_t *row, int32_t index) {
  const int32_t vocab = device->limits.vocab_size;
  const size_t bytes = (size_t)vocab * sizeof(float);
  float *logits = device->host_logits;
  if (device->fault != 0) return;
  device_note(device,
              (int)cudaMemcpyAsync(logits, device->logits + (size_t)index * (size_t)vocab, bytes,
                                   cudaMemcpyDeviceToHost, device->stream),
              "logits");
  device_note(device, exchange_sync(device), "logits");
  if (device->fault != 0) return;
  change_logits(logits, vocab, row->allowed_mask);
  order_largest(logits, vocab, device->host_ids, device->host_ids + vocab);
  for (int32_t i = 0; i < row->num_top && i < vocab; i++) {
    const int32_t id = device->host_ids[i];
    row->result->top[i] = (token_logprob_t){id, logits[id]};
  }
}

/* Turns the logits of the alternatives into logprobs. */
static void finish_sorted(device_t *device, const sample_row_t *row, int32_t index) {
  const int32_t count = MIN(row->num_top, device->limits.vocab_size);
  cuda_step_t *step = device->step;
  if (device->fault != 0) return;
  gpu_sample_result_t *result = &step->results[index];
  device_note(device,
              (int)cudaMemcpyAsync(result, &device->results[index], sizeof *result,
                                   cudaMemcpyDeviceToHost, device->stream),
              "results");
  device_note(device, exchange_sync(device), "results");
  if (device->fault != 0) return;
  for (int32_t i = 0; i < count; i++) {
    token_logprob_t *top = &row->result->top[i];
    const float logprob = (float)((double)top->logprob - result->log_sum);
    top->logprob = logprob > LOGPROB_NEVER ? logprob : LOGPROB_NEVER;
  }
  step->num_sorted[index] = count;
}

static void launch_sorted(device_t *device, const sample_row_t *rows, int32_t first,
                          int32_t num_rows) {
  for (int32_t i = 0; i < num_rows; i++) {
    if (is_sorted(&rows[i])) sort_row(device, &rows[i], i);
  }
  launch_rows(device, first, num_rows);
  for (int32_t i = 0; i < num_rows; i++) {
    if (is_sorted(&rows[i])) finish_sorted(device, &rows[i], first + i);
  }
}

void cuda_sample(device_t *device, const sample_row_t *rows, int32_t num_rows) {
  if (device->fault != 0 || num_rows == 0) return;
  cuda_step_t *step = device->step;
  const int32_t first = step->num_results;
  CHECK_LE(first + num_rows, device->batch->num_selected);
  CHECK_LE(num_rows, device->limits.logits_rows_max);
  gpu_sample_row_t *to = (gpu_sample_row_t *)(void *)(step->packet + device->samples_at) + first;
  for (int32_t i = 0; i < num_rows; i++) {
    pack_row(device, &rows[i], first + i, &to[i]);
    step->targets[first + i] = rows[i].result;
    step->num_sorted[first + i] = 0;
    if (rows[i].num_top >= 0) step->num_tops = first + i + 1;
  }
  step->num_results += num_rows;
  if (device->mode != STEP_REPLAY) {
    launch_sorted(device, rows, first, num_rows);
  } else if (step->num_results == device->batch->num_selected) {
    graph_launch(device);
  }
}

static int status_of(int32_t status) {
  if (status == GPU_SAMPLE_OK) return 0;
  return status == GPU_SAMPLE_NO_CHOICE ? ERR_NO_CHOICE : ERR_INTERNAL;
}

void draw_finish(cuda_step_t *step) {
  for (int32_t i = 0; i < step->num_results; i++) {
    const gpu_sample_result_t *from = &step->results[i];
    sample_result_t *to = step->targets[i];
    to->id = from->id;
    to->status = status_of(from->status);
    to->logprob = from->logprob;
    to->rank = from->rank;
    to->num_top = i < step->num_tops ? from->num_top : 0;
    CHECK_GE(to->num_top, 0);
    CHECK_LE(to->num_top, SAMPLE_TOP_MAX);
    for (int32_t j = 0; j < to->num_top; j++) {
      to->top[j] = (token_logprob_t){step->tops[i].ids[j], step->tops[i].logprobs[j]};
    }
    if (to->status == 0 && step->num_sorted[i] > 0) to->num_top = step->num_sorted[i];
  }
}
