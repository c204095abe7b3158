/* adapter.h: a low-rank adapter (LoRA) as PEFT saves it, read and checked against a model.
 *
 * adapter_config.json and adapter_model.safetensors become fp32 matrices in host memory, with the
 * scale alpha / r in B. Reading needs only the blueprint: any thread. Features
 * of adapters that are not supported (DoRA, biases, modules other than the linear layers of
 * attention and dense MLPs) are refused by name.
 */
#ifndef INFERD_ENGINE_MODEL_ADAPTER_H
#define INFERD_ENGINE_MODEL_ADAPTER_H

#include "engine/device/comm.h"
#include "engine/model/model.h"

enum { ADAPTER_RANK_MAX = 512 };

typedef struct adapter adapter_t;

/* Reads DIR, whole also where several ranks run the model. ERR_MODEL_MISSING, ERR_MODEL_MALFORMED
 * (file, key or tensor, value, what is supported), ERR_NO_MEMORY. `rank_max`: larger ranks are
 * refused. */
int adapter_read(const blueprint_t *blueprint, const char *dir, int32_t rank_max, adapter_t **out,
                 inferd_error_t *error);
void adapter_hold(adapter_t *adapter, int times); /* so many more calls of adapter_free free it */
void adapter_free(adapter_t *adapter);            /* NULL is allowed; any thread */

/* Before model_prepare: takes device memory for adapters 1..slots. ERR_CONFIGURATION when the back
 * end has no adapters. */
int model_adapters(model_t *model, int32_t slots, int32_t rank_max, inferd_error_t *error);
/* Returns the bytes that model_adapters takes. */
size_t model_adapter_bytes(const blueprint_t *blueprint, int32_t slots, int32_t rank_max);
/* Engine thread, between steps, no request uses the slot: copies the matrices, of which this rank
 * takes its part; NULL empties it. */
void model_set_adapter(model_t *model, int32_t slot, const adapter_t *adapter);
/* The same on all ranks, of which rank 0 has the adapter, read with the limit `rank_max` of all; it
 * is not NULL there, and not looked at elsewhere. 0 or the error of the comm_t. */
int model_share_adapter(model_t *model, comm_t *comm, int32_t slot, int32_t rank_max,
                        const adapter_t *adapter);

#endif
