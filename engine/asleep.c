/* asleep.c: the engine thread lets the device sleep, and wakes it.
 *
 * Engine thread, but for the functions of engine.h at the end. A sleep that fails leaves the device
 * as it was, and a device that cannot be woken sleeps on: the reason is in the log, and the next
 * request tries again.
 */
#include "engine/asleep.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/internal.h"
#include "engine/schedule/window/side_blocks.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static int fail(const char *option, const char *why, inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, "sleep_space",
                   "sleep_space is set, and so is %s, %s; leave one of them out", option, why);
}

int asleep_check_options(const engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  if (options->sleep_space_bytes == 0) return 0;
  if (options->comm != NULL || options->planned_ranks > 1)
    return fail("tensor_parallel_size", "whose ranks do not sleep together", error);
  if (options->num_replicas > 1 || engine->replicas.leader != NULL)
    return fail("data_parallel_size", "whose engines share what would be given back", error);
  if (options->draft_model_dir != NULL)
    return fail("speculative_model", "which does not sleep", error);
  if (options->prefix_cache_bytes > 0 || options->prefix_cache_file != NULL)
    return fail("prefix_cache_space or prefix_cache_file", "which is filled from the device",
                error);
  if (options->journal != NULL)
    return fail("journal", "which has no record of a prefix cache that is dropped", error);
  return 0;
}

int asleep_check(const engine_t *engine, int64_t weights, inferd_error_t *error) {
  const int64_t space = engine->options.sleep_space_bytes;
  if (space == 0) return 0;
  if (engine->ops->sleep == NULL)
    return error_set(error, ERR_CONFIGURATION, "sleep_space",
                     "sleep_space is set, but %s has no memory of its own to give back; it must "
                     "be 0",
                     engine->ops->name);
  if (weights <= space) return 0;
  return error_set(error, ERR_CONFIGURATION, "sleep_space",
                   "sleep_space is %.2f GiB; it must be 0, or hold the weights, %.2f GiB",
                   (double)space / GIB, (double)weights / GIB);
}

/* What the device will not have any more. Nothing runs, so nothing holds a block. */
static void drop_prefix_cache(engine_t *engine) {
  block_pool_t *pool = engine->pool;
  for (int32_t b = 1; b < pool->num_blocks; b++)
    if (pool->blocks[b].identity.unique_id != 0) block_forget(pool, b);
  CHECK_EQ(pool->num_cached, 0);
}

static int fall_asleep(engine_t *engine) {
  asleep_t *asleep = &engine->asleep;
  inferd_error_t error = {0};
  const uint64_t begin_ns = clock_now_ns();
  size_t host = 0, given = 0;
  int code = engine->ops->sleep->sleep(engine->device, &error);
  if (code != 0) {
    atomic_store(&asleep->wished, false);
    engine_say(engine, "warning: the model stays awake: %.200s", error.message);
    return code;
  }
  drop_prefix_cache(engine);
  engine->ops->sleep->bytes(engine->device, &host, &given);
  atomic_store(&asleep->host_bytes, host);
  atomic_store(&asleep->given_bytes, given);
  atomic_store(&asleep->sleeps, true);
  engine_say(engine,
             "asleep    %.2f GiB of the device given back, %.2f GiB kept by the host, after %.2f s",
             (double)given / GIB, (double)host / GIB, (double)(clock_now_ns() - begin_ns) * 1e-9);
  return 0;
}

static int wake_up(engine_t *engine) {
  asleep_t *asleep = &engine->asleep;
  inferd_error_t error = {0};
  const uint64_t begin_ns = clock_now_ns();
  int code = engine->ops->sleep->wake(engine->device, &error);
  atomic_store(&asleep->wished, code != 0);
  if (code != 0) {
    engine_say(engine, "warning: the model sleeps on: %.200s", error.message);
    return code;
  }
  atomic_store(&asleep->sleeps, false);
  engine_say(engine, "awake     after %.2f s", (double)(clock_now_ns() - begin_ns) * 1e-9);
  return 0;
}

bool asleep_turn(engine_t *engine, bool needed, int *code) {
  asleep_t *asleep = &engine->asleep;
  const unsigned asked = atomic_load(&asleep->asked);
  const bool wished = atomic_load(&asleep->wished), sleeps = atomic_load(&asleep->sleeps);
  *code = 0;
  if (sleeps && (needed || !wished))
    *code = wake_up(engine);
  else if (wished && !sleeps && !needed && engine->num_steps == 0)
    *code = fall_asleep(engine);
  const bool now = atomic_load(&asleep->sleeps);
  const bool settled = *code != 0 || now == atomic_load(&asleep->wished);
  if (settled && asked != atomic_load(&asleep->answered)) {
    atomic_store(&asleep->code, *code);
    atomic_store(&asleep->answered, asked);
    if (engine->options.wake != NULL) engine->options.wake(engine->options.context);
  }
  return !now;
}

/* ---- engine.h ---- */

unsigned engine_sleep(engine_t *engine, bool sleeps) {
  asleep_t *asleep = &engine->asleep;
  atomic_store(&asleep->wished, sleeps);
  const unsigned asked = atomic_fetch_add(&asleep->asked, 1) + 1;
  mailbox_wake(engine->mailbox);
  return asked;
}

void engine_asleep(const engine_t *engine, engine_sleep_t *out) {
  const asleep_t *asleep = &engine->asleep;
  *out = (engine_sleep_t){.can = engine->options.sleep_space_bytes > 0,
                          .answered = atomic_load(&asleep->answered),
                          .code = atomic_load(&asleep->code),
                          .sleeps = atomic_load(&asleep->sleeps),
                          .wished = atomic_load(&asleep->wished),
                          .host_bytes = (int64_t)atomic_load(&asleep->host_bytes),
                          .given_bytes = (int64_t)atomic_load(&asleep->given_bytes)};
}
