/* sample.c: passes each row of logits to the sampler.
 *
 * Keeps no state; engine/sample/sampler.c has the rules of sampling. Called on the engine thread;
 * pool workers take rows, each with its own scratch.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"

#include "engine/sample/sampler.h"

typedef struct sampling {
  device_t *device;
  const sample_row_t *rows;
} sampling_t;

size_t sample_scratch_bytes(int32_t vocab_size) {
  return sampler_scratch_bytes(vocab_size);
}

static void sample_task(void *context, int64_t first, int64_t last, int worker) {
  const sampling_t *job = context;
  const device_t *device = job->device;
  for (int64_t i = first; i < last; i++)
    sampler_row(device->logits + i * device->logits_stride, (int32_t)device->logits_cols,
                &job->rows[i], device->sample_scratch[worker]);
}

void cpu_sample(device_t *device, const sample_row_t *rows, int32_t num_rows) {
  CHECK_LE(num_rows, device->limits.logits_rows_max);
  CHECK_GT(device->logits_cols, 0);
  sampling_t job = {device, rows};
  pool_run(device->pool, sample_task, &job, num_rows, 1);
}
