/* ranks.h: the CPU as one of several ranks (ranks.c). Engine thread. */
#ifndef INFERD_ENGINE_CPU_RANKS_H
#define INFERD_ENGINE_CPU_RANKS_H

#include "engine/device/ops.h"

extern const rank_ops_t cpu_rank_ops;
int ranks_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */
/* Every rank gets the outputs of all experts; `first` [E + 1] is the first pair of an expert. */
void ranks_gather_pairs(device_t *device, const int32_t *first, const int32_t *cuts,
                        int64_t hidden);

#endif
