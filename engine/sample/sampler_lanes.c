/* sampler_lanes.c: the variants of engine/sample/sampler_lanes.inc, and which of them can run here.
 *
 * Any thread. The target is set by function attributes and not by compiler flags, so one source
 * file has all variants. The processor's features come from the compiler's own table
 * (__builtin_cpu_supports), which is filled before main.
 */
#include "engine/sample/sampler_lanes.h"

#include "engine/base/random.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { SUM_LANES = 16 };

#if defined(__x86_64__)
#define LANES(name) avx512_##name
#define LANES_NAME "avx512"
#define LANES_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES_WIDTH 16
#define LANES_MIX_VECTOR 1
#include "engine/sample/sampler_lanes.inc"

#define LANES(name) avx2_##name
#define LANES_NAME "avx2"
#define LANES_TARGET __attribute__((target("avx2")))
#define LANES_WIDTH 8
#define LANES_MIX_VECTOR 0
#include "engine/sample/sampler_lanes.inc"
#endif

#define LANES(name) portable_##name
#define LANES_NAME "portable"
#define LANES_TARGET
#define LANES_WIDTH 4
#define LANES_MIX_VECTOR 0
#include "engine/sample/sampler_lanes.inc"

const sampler_lanes_t *const *sampler_lanes_all(void) {
#if defined(__x86_64__)
  static const sampler_lanes_t *const all[] = {&avx512_table, &avx2_table, &portable_table, NULL};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return &all[0];
  }
  return __builtin_cpu_supports("avx2") ? &all[1] : &all[2];
#else
  static const sampler_lanes_t *const all[] = {&portable_table, NULL};
  return all;
#endif
}
