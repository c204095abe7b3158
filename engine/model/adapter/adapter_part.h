/* adapter_part.h: an adapter in host memory, as the files of this folder share it. */
#ifndef INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_PART_H
#define INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_PART_H

#include "engine/model/adapter/adapter.h"
#include "engine/model/roles.h"

#include <stdatomic.h>

/* What it does with one matrix: lora_values_t, all of it owned. */
typedef struct adapter_part {
  int32_t rank; /* 0 = no pair */
  float *a, *b;
  float *factors, *offsets;
  void *whole;
  dtype_t whole_type;
} adapter_part_t;

struct adapter {
  atomic_int others; /* that hold it, too */
  int32_t num_layers;
  adapter_part_t *parts; /* [adapter_part_count], in the order of adapter_part_role */
  invocation_t invocation;
};

/* Parts of the layers, LORA_TARGETS each, then of the embedding, then of the head. */
int32_t adapter_part_count(int32_t num_layers);
/* The role of part `i`, and its layer, -1 outside layers. */
tensor_role_t adapter_part_role(int32_t num_layers, int32_t i, int32_t *layer);

/* What a device has places for: adapters of the embedding, and of the model's head. */
bool adapter_embeds(const ops_t *ops);
bool adapter_heads(const ops_t *ops, const blueprint_t *blueprint);

#endif
