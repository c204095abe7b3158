/* moe.h: mixture of experts on the CPU: workspace and operation.
 *
 * The workspace is allocated in `prepare`. The engine thread and the pool workers use it in a step.
 */
#ifndef INFERD_ENGINE_CPU_MOE_H
#define INFERD_ENGINE_CPU_MOE_H

#include "engine/device/ops.h"

enum {
  MOE_ROWS = 512,       /* rows that are routed at a time */
  EXPERTS_TOP_MAX = 64, /* experts of a row */
  GROUPS_MAX = 32,      /* groups of experts of such a router */
  ROUTED_MAX = 1024     /* experts of a router that scores them */
};

/* Workspace of the experts; pairs = rows * k. See moe.c. */
typedef struct moe_space {
  float *logits;                  /* [rows, E] */
  int32_t *chosen;                /* [rows, k] experts of a row, ascending */
  float *shares;                  /* [rows, k] their weights */
  int32_t *place;                 /* [rows, k] place of the pair */
  int32_t *first, *next, *active; /* [E + 1] first pair, next free place; experts with pairs */
  uint8_t *staged;                /* [pairs, depth] inputs of the product at hand */
  float *up, *down;               /* [pairs, 2 I], [pairs, h] */
} moe_space_t;

void cpu_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual, const moe_t *moe,
             int32_t rows);
/* route.c: the k experts of a row, ascending, and their shares. Any worker. */
void route_row(const moe_t *moe, const float *logits, int32_t *chosen, float *shares);
/* The gate of a shared expert; rows.c. */
void cpu_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                   const act_t *residual, int32_t width, int32_t rows);
int moe_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */

#endif
