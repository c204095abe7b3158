/* naive_ops.h: the ops table in plain loops, to tell a wrong model from a wrong kernel.
 *
 * Everything is fp32 in memory and summed in double, in the order in which the formulas are
 * written; nothing is shared with engine/cpu. One thread. Greedy only: `sample` is not there.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_NAIVE_OPS_H
#define INFERD_TESTS_ENGINE_MODEL_NAIVE_OPS_H

#include "engine/device/ops.h"

extern const ops_t ops_naive;

#endif
