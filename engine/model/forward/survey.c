/* survey.c: says what the weight files of a model hold, from their headers.
 *
 * Any thread; reads no weights. The checks are those of a load (weights_check.c), so a model that
 * passes is refused later only for what stands in the data itself.
 */
#include "engine/base/util.h"
#include "engine/model/sizes.h"
#include "engine/model/weights/weights.h"

#include <stdio.h>
#include <string.h>

enum { CLASS_EMBED, CLASS_ATTENTION, CLASS_MLP, CLASS_EXPERTS, CLASS_REST, CLASS_COUNT };
enum { TYPES_MAX = 8 }; /* of one class; further ones are counted with the last */

static const char *const class_names[CLASS_COUNT] = {"embedding and head", "attention", "mlp",
                                                     "experts", "norms and others"};

static int class_of(const expected_tensor_t *tensor) {
  if (tensor->cols == 0) return CLASS_REST;
  switch (tensor->role) {
  case ROLE_EMBED:
  case ROLE_HEAD:
  case ROLE_POSITIONS:
  case ROLE_TYPES:
  case ROLE_TASKS:
  case ROLE_PROJECT_IN:
  case ROLE_PROJECT_OUT: return CLASS_EMBED;
  case ROLE_QKV:
  case ROLE_Q:
  case ROLE_K:
  case ROLE_V:
  case ROLE_CROSS_Q:
  case ROLE_CROSS_K:
  case ROLE_CROSS_V:
  case ROLE_CROSS_O:
  case ROLE_O: return CLASS_ATTENTION;
  case ROLE_GATE:
  case ROLE_UP:
  case ROLE_GATE_UP:
  case ROLE_UP_GATE:
  case ROLE_DOWN: return CLASS_MLP;
  default: return CLASS_EXPERTS;
  }
}

typedef struct type_count {
  char type[16];
  size_t bytes;
} type_count_t;

static void count_type(type_count_t counts[TYPES_MAX], const char *type, size_t bytes) {
  int i = 0;
  while (i + 1 < TYPES_MAX && counts[i].bytes > 0 && strcmp(counts[i].type, type) != 0) i++;
  snprintf(counts[i].type, sizeof counts[i].type, "%s", type);
  counts[i].bytes += bytes;
}

/* "AWQ 4 bits", "FP8": the type of the codes alone would say "I32". */
static void name_packed(const packed_t *packed, char *out, size_t capacity) {
  const char *scheme = packed->packing == PACKING_AWQ    ? "AWQ"
                       : packed->packing == PACKING_GPTQ ? "GPTQ"
                                                         : "int";
  if (packed->packing == PACKING_FP8)
    snprintf(out, capacity, "FP8");
  else if (packed->packing == PACKING_FP4)
    snprintf(out, capacity, strcmp(packed->scales->type, "F8_E4M3") == 0 ? "NVFP4" : "MXFP4");
  else
    snprintf(out, capacity, "%s %d bits", scheme, packed->bits);
}

/* A quantised layer counts with its scales, zero points and order of the columns. */
static void count_tensor(type_count_t counts[TYPES_MAX], const expected_tensor_t *tensor,
                         const stored_tensor_t *stored, const packed_t *packed) {
  char type[16];
  if (packed == NULL || packed->packing == PACKING_NONE) {
    bool mxfp4 = tensor->form == FORM_STACK_BLOCKS || tensor->form == FORM_STACK_SCALES;
    count_type(counts, mxfp4 ? "MXFP4" : stored->type, stored->bytes);
    return;
  }
  size_t bytes = stored->bytes + packed->scales->bytes;
  if (packed->zeros != NULL) bytes += packed->zeros->bytes;
  if (packed->order != NULL) bytes += packed->order->bytes;
  name_packed(packed, type, sizeof type);
  count_type(counts, type, bytes);
}

static void say_class(const model_options_t *options, int class, const type_count_t *counts) {
  char line[256];
  size_t used = (size_t)snprintf(line, sizeof line, "tensors   %s", class_names[class]);
  for (int i = 0; i < TYPES_MAX && counts[i].bytes > 0 && used < sizeof line; i++) {
    const bool small = counts[i].bytes < 1 << 20;
    int n = snprintf(line + used, sizeof line - used, "%s %s %.1f %s", i > 0 ? "," : ":",
                     counts[i].type, (double)counts[i].bytes / (small ? 1024.0 : 1048576.0),
                     small ? "KiB" : "MiB");
    used += n > 0 ? (size_t)n : 0;
  }
  options->log(options->log_context, line);
}

static void say_all(const weight_loader_t *loader, const blueprint_t *blueprint) {
  const model_options_t *options = loader->options;
  type_count_t counts[CLASS_COUNT][TYPES_MAX] = {0};
  char line[128];
  snprintf(line, sizeof line, "model     %.3f billion parameters, %s%s",
           (double)blueprint->num_parameters * 1e-9,
           blueprint->tied ? "one matrix for embedding and head" : "a head of its own",
           loader->stored == NULL ? ", random weights" : "");
  options->log(options->log_context, line);
  for (int32_t i = 0; loader->stored != NULL && i < loader->list.count; i++) {
    const expected_tensor_t *tensor = &loader->list.tensors[i];
    count_tensor(counts[class_of(tensor)], tensor, loader->stored[i],
                 loader->packed != NULL ? &loader->packed[i] : NULL);
  }
  for (int i = 0; i < CLASS_COUNT; i++) {
    if (counts[i][0].bytes > 0) say_class(options, i, counts[i]);
  }
}

int model_survey(const ops_t *ops, const blueprint_t *blueprint, const model_options_t *options,
                 inferd_error_t *error) {
  weight_loader_t loader;
  int code = weight_loader_open(&loader, ops, NULL, blueprint, options, error);
  if (code != 0) return code;
  if (options->log != NULL) say_all(&loader, blueprint);
  weight_loader_close(&loader);
  return 0;
}

/* The part of a family for which the back end lacks operations, or NULL. */
static const char *find_lack(const ops_t *ops, const blueprint_t *bp) {
  if (!model_states_run(ops, bp)) return "layers with a state";
  if (ops->separate_memory && !model_attends(bp)) return "layers without attention";
  if (bp->kv_rank > 0 && ops->latent == NULL) return "latent attention";
  if (bp->index_top > 0 && ops->latent->choose == NULL) return "indexers";
  if (bp->layer_scalars && ops->per_layer == NULL) return "layers";
  if (bp->num_streams > 0 && (ops->altup == NULL || ops->per_layer == NULL)) return "streams";
  if (bp->attn_gate && ops->state == NULL) return "gated attention";
  if (bp->qkv_limit > 0 && ops->values == NULL) return "clipped q, k and v";
  const bool activates = ops->activations == 0 || (ops->activations & 1u << bp->activation) != 0;
  if ((bp->xielu && ops->values == NULL) || !activates) return "activation";
  const bool by_distance =
      bp->alibi_max > 0 || bp->distance_buckets > 0 || bp->encoder.distance_span > 0;
  if (by_distance && ops->values == NULL) return "scores by distance";
  if (bp->shared_mean && ops->state == NULL) return "mean of experts";
  if (bp->expert_in > 0 && ops->per_layer == NULL) return "experts of a smaller vector";
  if (bp->routing == ROUTING_MIXER && ops->values == NULL) return "router";
  bool missing = bp->num_experts > 0 && (ops->moe == NULL || ops->gated_add == NULL);
  return missing ? "experts" : NULL;
}

static int check_back_end(const ops_t *ops, const blueprint_t *bp, inferd_error_t *error) {
  const char *lack = find_lack(ops, bp);
  if (lack == NULL) return 0;
  return error_set(error, ERR_CONFIGURATION, "device",
                   "device %s cannot run the %s of %s; use --device cpu", ops->name, lack,
                   bp->architecture);
}

static int check_dtype(const blueprint_t *bp, int32_t asked, inferd_error_t *error) {
  dtype_t dtype = asked >= 0 ? (dtype_t)asked : bp->dtype;
  if (!bp->embed_rounds || dtype != DTYPE_F16) return 0;
  return error_set(error, ERR_CONFIGURATION, "dtype",
                   "dtype is float16, in which %s overflows; use bfloat16 or float32",
                   bp->architecture);
}

int model_check_device(const ops_t *ops, const blueprint_t *blueprint, int32_t dtype,
                       inferd_error_t *error) {
  int code = check_dtype(blueprint, dtype, error);
  return code == 0 ? check_back_end(ops, blueprint, error) : code;
}

bool model_states_run(const ops_t *ops, const blueprint_t *bp) {
  const mixer_config_t *mixer = &bp->mixer;
  if (mixer->kind == MIXER_NONE) return true;
  if (ops->state == NULL || mixer->key_dim > ops->state->key_dim_max) return false;
  return mixer->kind != MIXER_MAMBA || ops->state->select != NULL;
}

state_desc_t model_states(const ops_t *ops, const blueprint_t *bp, int32_t num_slots) {
  const mixer_config_t *mixer = &bp->mixer;
  if (mixer->kind == MIXER_NONE || !model_states_run(ops, bp)) return (state_desc_t){0};
  state_desc_t desc = {.num_slots = num_slots};
  for (int32_t i = 0; i < bp->num_layers; i++)
    desc.num_layers += (bp->layer_flags[i] & LAYER_MIXER) != 0;
  desc.values = mixer_conv_values(mixer, bp->hidden_size);
  if (mixer->num_heads > 0) /* of Mamba-1 one head of all channels */
    desc.values += ops->state->values(mixer->num_heads, mixer->key_dim, mixer->value_dim);
  return desc;
}

size_t model_workspace_bytes(const ops_t *ops, const blueprint_t *bp, const step_limits_t *limits) {
  const size_t tokens = (size_t)limits->tokens_max;
  const size_t act = ops->act_bytes > 0 ? (size_t)ops->act_bytes : sizeof(float);
  const size_t bytes = tokens * (size_t)limits->hidden_max * act * 6;
  if (ops->workspace_bytes != NULL) return bytes + ops->workspace_bytes(limits);
  return bytes + (size_t)limits->logits_rows_max * (size_t)bp->vocab_size * sizeof(float) * 2 +
         tokens * (size_t)bp->experts_top * sizeof(float) * 2 *
             ((size_t)bp->hidden_size + (size_t)bp->expert_size);
}
