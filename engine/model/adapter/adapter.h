/* adapter.h: an adapter (LoRA, DoRA) as PEFT saves it, read and checked against a model.
 *
 * adapter_config.json and adapter_model.safetensors become fp32 matrices in host memory, with the
 * scale alpha / r in B. Reading needs only the blueprint, and for some adapters the files of the
 * model: any thread. What is not served (adapter_keys.def; modules other than the linear layers of
 * attention and dense MLPs, the embedding and the head) is refused by name.
 */
#ifndef INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_H
#define INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_H

#include "engine/model/model.h"

enum { ADAPTER_RANK_MAX = 512 };

typedef struct adapter adapter_t;

/* Tokens from whose last occurrence in a prompt on an adapter is active (aLoRA). */
typedef struct invocation {
  int32_t *ids;  /* [count]; owned */
  int32_t count; /* 0 = it is always active */
} invocation_t;

/* What an adapter is read for. */
typedef struct adapter_base {
  const blueprint_t *blueprint;
  const ops_t *ops;             /* what it cannot do is refused */
  const model_options_t *model; /* where the weights of the model are */
  int32_t rank_max;             /* larger ranks are refused */
} adapter_base_t;

/* Reads DIR, whole also where several ranks run the model. ERR_MODEL_MISSING, ERR_MODEL_MALFORMED
 * (file, key or tensor, value, what is supported), ERR_NO_MEMORY. */
int adapter_read(const adapter_base_t *base, const char *dir, adapter_t **out,
                 inferd_error_t *error);
void adapter_hold(adapter_t *adapter, int times); /* so many more calls of adapter_free free it */
void adapter_free(adapter_t *adapter);            /* NULL is allowed; any thread */
/* True if a model reads its tables as long as a slot has it: model_set_adapter copies all else. */
bool adapter_stays(const adapter_t *adapter);
/* Moves the invocation tokens to *out, whose own are freed. */
void adapter_take_invocation(adapter_t *adapter, invocation_t *out);
/* Where an adapter begins in a prompt: 0, the first of the invocation tokens, or INT32_MAX when the
 * prompt does not have them. */
int32_t invocation_find(const invocation_t *invocation, const int32_t *ids, int32_t count);

/* Before model_prepare: takes device memory for adapters 1..slots. ERR_CONFIGURATION when the back
 * end has no adapters. */
int model_adapters(model_t *model, int32_t slots, int32_t rank_max, inferd_error_t *error);
/* Returns the bytes that model_adapters takes on a device of `ops`. */
size_t model_adapter_bytes(const ops_t *ops, const blueprint_t *blueprint, int32_t slots,
                           int32_t rank_max);
/* Engine thread, between steps, no request uses the slot: copies the matrices, of which this rank
 * takes its part; NULL empties it. */
void model_set_adapter(model_t *model, int32_t slot, const adapter_t *adapter);
/* Gives all ranks the `bytes` bytes at `data` of rank 0. Returns 0 or an error code. */
typedef int to_ranks_t(void *context, void *data, size_t bytes);
/* The same on all ranks, of which rank 0 has the adapter, read with the limit `rank_max` of all; it
 * is not NULL there, and not looked at elsewhere. `to_ranks` gets `context`; NULL: there is one
 * rank. 0 or what `to_ranks` returned. */
int model_share_adapter(model_t *model, to_ranks_t *to_ranks, void *context, int32_t slot,
                        int32_t rank_max, const adapter_t *adapter);

#endif
