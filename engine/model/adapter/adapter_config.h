/* adapter_config.h: adapter_config.json as PEFT's LoraConfig writes it: what an adapter says of
 * each module. Any thread; nothing changes once it is read.
 *
 * Every key is understood, harmless or refused by name (adapter_keys.def). */
#ifndef INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_CONFIG_H
#define INFERD_ENGINE_MODEL_ADAPTER_ADAPTER_CONFIG_H

#include "engine/model/adapter/adapter.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"

typedef struct adapter_config {
  model_file_t file;
  config_reader_t reader;
  const json_t *targets, *excluded; /* a list of names, or an expression; excluded: or NULL */
  const json_t *layers;             /* a number, a list, or NULL = all */
  const json_t *layer_names;        /* names before a layer's number: one, a list, or NULL = any */
  const json_t *ranks, *alphas;     /* by expressions of modules, or NULL */
  const json_t *invocation;         /* [ids] or NULL */
  const json_t *saved;              /* names of modules that are saved whole, or NULL */
  int64_t rank;
  double alpha;
  bool stable;        /* the scale is alpha / sqrt(rank) */
  bool dora;          /* rows of a weight with its adapter have the lengths of a vector */
  bool lora_bias;     /* B has a bias */
  bool needs_tensors; /* PEFT begins with random numbers where the file has none */
} adapter_config_t;

/* What the adapter does with a module. */
typedef struct adapter_module {
  bool is_target;
  bool is_saved; /* whole */
  int64_t rank;
  double scale;
} adapter_module_t;

/* Reads DIR/adapter_config.json. 0, ERR_MODEL_MISSING, ERR_MODEL_MALFORMED, which names the key.
 * Free with adapter_config_free after success only. `error` is also that of later calls. */
int adapter_config_read(const char *dir, adapter_config_t *out, inferd_error_t *error);
void adapter_config_free(adapter_config_t *config);
/* Of the module with this full name, "model.layers.0.self_attn.q_proj". 0 or ERR_MODEL_MALFORMED:
 * an expression is not read here. */
int adapter_config_module(adapter_config_t *config, const char *module, adapter_module_t *out);
/* The invocation tokens, which the caller frees. 0 or ERR_NO_MEMORY. */
int adapter_config_invocation(const adapter_config_t *config, invocation_t *out);

#endif
