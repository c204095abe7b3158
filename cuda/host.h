/* host.h: experts in host memory, which the CPU back end computes within a step of a GPU.
 *
 * Engine thread, but for the function that a thread of the driver runs; see host.c.
 */
#ifndef INFERD_CUDA_HOST_H
#define INFERD_CUDA_HOST_H

#include "cuda/device.h"
#include "engine/device/host_ops.h"

typedef struct host_experts host_experts_t;

extern const host_ops_t cuda_host;
/* Keeps what `open` of the CPU back end will be told; takes no memory without experts there. */
int host_open(device_t *device, const device_options_t *options, inferd_error_t *error);
int host_prepare(device_t *device, inferd_error_t *error); /* after device->limits is set */
void host_close(device_t *device);                         /* when no step runs any more */
/* Launches the copy of the number of tokens of the step to where host functions read it, behind the
 * packet: graphs have one for all numbers up to theirs. */
void host_count(device_t *device);
/* ops_t.moe of experts with moe_t.host_width. */
void host_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows);
/* For the report, when no step runs: layers that were run, 0 = none; the description of the CPU
 * back end, and the least time that it took for one row of all of them. */
int32_t host_layers(const device_t *device, const char **description, double *token_ms);

#endif
