/* fake_as_cpu.c: the fake device under the name of the CPU back end.
 *
 * Linked into build/bench/inferd_fake in place of engine/cpu: the real daemon, HTTP, text and
 * engine, with a model that costs nothing. INFERD_FAKE_STEP_US=20000 makes every step last 20 ms;
 * unset or 0, a step ends at once. Never part of build/inferd.
 */
#define FAKE_OPS_SYMBOL ops_cpu
#include "tests/sim/fake_ops.c"

__attribute__((constructor)) static void read_environment(void) {
  const char *step_us = getenv("INFERD_FAKE_STEP_US");
  if (step_us == NULL) step_us = getenv("FAKE_STEP_US"); /* children of a parent get this one */
  if (step_us) fake_settings.step_ns = strtoull(step_us, NULL, 10) * 1000;
}
