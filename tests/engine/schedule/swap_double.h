/* swap_double.h: the CPU back end with swap space, for tests.
 *
 * The product never swaps on a CPU, whose KV cache is host memory already. This double keeps real
 * K and V in a pool of its own, so that the engine's swapping runs with real arithmetic.
 */
#ifndef INFERD_TESTS_ENGINE_SCHEDULE_SWAP_DOUBLE_H
#define INFERD_TESTS_ENGINE_SCHEDULE_SWAP_DOUBLE_H

#include "engine/device/ops.h"

/* ops_cpu with `swap`. One engine at a time, with a draft model or without. */
const ops_t *swap_double_ops(void);

#endif
