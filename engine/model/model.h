/* model.h: a Hugging Face model directory as something that can run, stage 6 of 9.
 *
 * config.json becomes a blueprint (plain data: families.c), the blueprint becomes an expected
 * tensor list, the list is checked against the safetensors headers, and only then is memory taken.
 * One decoder forward serves every family. Engine thread only, but for blueprint_read.
 */
#ifndef INFERD_ENGINE_MODEL_MODEL_H
#define INFERD_ENGINE_MODEL_MODEL_H

#include "engine/embedding.h"
#include "engine/model/blueprint.h"

typedef struct model model_t;

typedef struct model_options {
  const char *dir;
  bool dummy; /* seeded random weights from config.json alone */
  uint64_t dummy_seed;
  int32_t dtype;         /* dtype_t, or -1 = as the checkpoint says */
  bool lacks_embed;      /* it has the embedding of another model: */
  const model_t *embeds; /* that one, on the same device; NULL = it is only planned */
  bool sees;             /* a tower reads visual.*, so these are not named as skipped */
  bool hears;            /* or audio_tower.* */
  bool quantise_q8;      /* 16-bit matrices become Q8_0, if the device takes it */
  int32_t host_experts;  /* the experts of so many layers, the first that have some, lie in host
                          * memory: ops_t.host */
  const dense_layer_t *dense; /* [num_dense] layers behind the pooling */
  int32_t num_dense;
  /* Called with 0..1 while weights are read, and with lines about the files; each may be NULL. */
  void (*progress)(void *context, double fraction);
  void *progress_context;
  void (*log)(void *context, const char *line);
  void *log_context;
} model_options_t;

/* Reads the weights into `device`. `max_model_len` (<= blueprint's) fixes dynamic rope. */
int model_load(const ops_t *ops, device_t *device, const blueprint_t *blueprint,
               int32_t max_model_len, const model_options_t *options, model_t **out,
               inferd_error_t *error);
/* Checks the headers as model_load would and logs what they hold; reads no weights. */
int model_survey(const ops_t *ops, const blueprint_t *blueprint, const model_options_t *options,
                 inferd_error_t *error);
/* *out = bytes that the weights take on a device of `ops`, from the headers, without those in host
 * memory; 0 or an error. */
int model_weight_bytes(const ops_t *ops, const blueprint_t *blueprint,
                       const model_options_t *options, size_t *out, inferd_error_t *error);
/* What the experts of a layer take with their router, on the device and in host memory, and what
 * of it a token reads. */
typedef struct expert_bytes {
  size_t device, device_read, host, host_read;
} expert_bytes_t;
/* out[num_layers] = of each layer, wherever its experts will lie; zeros where it has none. For
 * `ops` with `host`. 0 or an error. */
int model_expert_bytes(const ops_t *ops, const blueprint_t *blueprint,
                       const model_options_t *options, expert_bytes_t *out, inferd_error_t *error);
/* Takes the activation buffers; after this the model allocates nothing. */
int model_prepare(model_t *model, const step_limits_t *limits, inferd_error_t *error);
void model_free(model_t *model); /* device memory goes with the device */
/* Stable fingerprint of names, shapes, types and a sample of the data; of the seed when dummy. */
uint64_t model_hash(const model_t *model);
/* [num_layers][K, V] scales for an fp8 KV cache, finite and above 0, as long as the model; NULL =
 * the checkpoint has none. */
const float *model_kv_scales(const model_t *model);

/* Launches one forward of the batch given to ops->begin: embeddings to normed rows [S, E], or what
 * of it this stage has. */
void model_forward(model_t *model, const batch_t *batch);
/* The same on a back end that computes in the call, for a model without states, until between two
 * layers `ends(context)`. Returns whether the forward is complete. If it is not, nothing is read of
 * it, and the K/V that it has written is written again, alike, before it is read. */
bool model_forward_until(model_t *model, const batch_t *batch, bool (*ends)(void *context),
                         void *context);
/* Launches logits of selected rows [first, first + rows). */
void model_logits(model_t *model, int32_t first, int32_t rows);
/* Launches the copy of the selected rows [rows, E] to host memory. */
void model_hidden(const model_t *model, float *out, int32_t rows);
/* The layers behind the pooling, and what they make of pooled rows, in place: [rows, E] becomes
 * [rows, width of the last]. Between two steps. */
bool model_has_post_layers(const model_t *model);
void model_run_post_layers(const model_t *model, float *rows, int32_t num_rows);

#endif
