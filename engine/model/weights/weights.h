/* weights.h: reads the tensors of a model and passes them to a device.
 *
 * A loader owns the open files (or the seed of dummy weights) and the expected list. It checks that
 * files and list agree before a byte of data is read, then passes the matrices one by one, fused
 * and transposed as the model needs them. Engine thread; the back end may call row() from many.
 */
#ifndef INFERD_ENGINE_MODEL_WEIGHTS_WEIGHTS_H
#define INFERD_ENGINE_MODEL_WEIGHTS_WEIGHTS_H

#include "engine/model/source/safetensors.h"
#include "engine/model/weights/packed.h"
#include "engine/model/weights/tensors.h"

typedef struct weight_loader {
  const ops_t *ops;
  device_t *device;
  const model_options_t *options;
  const blueprint_t *blueprint; /* which part of the model, too */
  dtype_t dtype;                /* run type */
  tensor_list_t list;           /* owned */
  int32_t num_experts;
  bool is_gguf;
  weight_files_t *files;          /* owned; NULL for dummy weights */
  const stored_tensor_t **stored; /* [list.count], owned; NULL for dummy weights */
  packed_t *packed; /* [list.count], owned: quantised layers; NULL = the checkpoint has none */
  /* [list.count], owned: factors of NVFP4 blocks in GGUF files, one of each matrix of a stack */
  const stored_tensor_t **factors;
  float *kv_scales; /* [layers][K, V], owned; NULL = the files have none */
  int64_t elements_done, elements_total;
  size_t *planned; /* NULL, or the loader only adds here what the tensors will take on the device */
  uint64_t hash;   /* of names, shapes and a sample of the data */
} weight_loader_t;

/* Opens and checks. On error nothing is left to close. */
int weight_loader_open(weight_loader_t *loader, const ops_t *ops, device_t *device,
                       const blueprint_t *blueprint, const model_options_t *options,
                       inferd_error_t *error);
void weight_loader_close(weight_loader_t *loader);

/* The matrices of `roles` (at most 4, those that exist), stacked by rows, on the device as `dtype`.
 * Blocks of GGUF files stay as they are if `keep_blocks` and the device takes their formats. Roles
 * of experts make a stack with one such matrix per expert. *out = NULL when none exists. */
int weight_loader_matrix(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, dtype_t dtype, bool keep_blocks, weight_t **out,
                         inferd_error_t *error);
/* Rows of the matrix of a role in host memory, [count, cols] of `dtype`, from row `first` on; count
 * 0: all. The caller frees *out, which is NULL when the loader only plans. */
int weight_loader_rows(weight_loader_t *loader, tensor_role_t role, int32_t layer, dtype_t dtype,
                       int64_t first, int64_t count, void **out, inferd_error_t *error);
/* The vector or bias of a role that has one, in host memory as the model uses it. The caller frees
 * *out. */
int weight_loader_values(weight_loader_t *loader, tensor_role_t role, int32_t layer, bool bias,
                         float **out, inferd_error_t *error);
/* Passes a matrix on that the caller makes from such rows, or plans it. */
int weight_loader_pass(weight_loader_t *loader, const weight_source_t *source, weight_t **out,
                       inferd_error_t *error);
/* The vectors or biases of `roles`, concatenated; *out = NULL if none exists. Every
 * element becomes (element + add) * factor; with is_logarithm (exp(element) + add) * factor. */
typedef struct vector_change {
  float add, factor;
  bool exact; /* in fp32, not rounded to the run type */
  bool is_logarithm;
} vector_change_t;
int weight_loader_vector(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, bool bias, vector_change_t change, vector_t **out,
                         inferd_error_t *error);
/* Reads a layer behind the pooling, DIR/PATH/model.safetensors, in float32. `device` NULL: only
 * adds what it takes to *planned. */
int weights_dense(const ops_t *ops, device_t *device, const char *dir, const dense_layer_t *layer,
                  size_t *planned, weight_t **weight, vector_t **bias, inferd_error_t *error);
/* Call after the last tensor: returns 0 if the files have not changed while they were read. */
int weight_loader_finish(weight_loader_t *loader, inferd_error_t *error);

/* Checks names, shapes and types of the files against the list; fills `stored`, `packed` and
 * `kv_scales`. weights_check.c. */
int weights_check(weight_loader_t *loader, const layout_t *layout, const blueprint_t *blueprint,
                  inferd_error_t *error);
/* True when the files in `dir` hold a head that is not the embedding. A problem with the files is
 * left to model_load: false. weights_check.c. */
bool weights_head_differs(const char *dir, const layout_t *layout, const blueprint_t *blueprint);
int weights_check_type(const stored_tensor_t *tensor, form_t form, inferd_error_t *error);
dtype_t weights_stored_dtype(const stored_tensor_t *tensor);
/* `hash` and eight bytes at each of up to 16 places. */
uint64_t weights_sample_hash(uint64_t hash, const stored_tensor_t *tensor);
/* Writes "[12, 8]". Returns `out`. */
const char *weights_shape_text(char *out, size_t capacity, const int64_t *shape, int rank);

/* The scales of an fp8 KV cache; their names begin with `prefix`. *out [num_layers][K, V] is the
 * caller's, NULL when the files have none; what was read is marked in `taken` [files' tensors].
 * ERR_MODEL_MALFORMED: not one finite number above 0 each, or not in every layer. kv_scales.c. */
int kv_scales_read(const weight_files_t *files, const tensor_list_t *list, const char *prefix,
                   uint8_t *taken, float **out, inferd_error_t *error);

#endif
