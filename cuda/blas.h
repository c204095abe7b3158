/* blas.h: cuBLASLt for products of many rows: opened at run time, measured before READY.
 *
 * The library is opened by name when the device is, so that one binary runs with and without it;
 * without it our own kernels do all products. Shapes are registered in the first warm-up run. Each
 * shape gets one choice per range of rows: an algorithm of the library, or our kernel if it is
 * faster. The bits of a row then depend on the number of rows, so --batch-invariant never opens the
 * library. Engine thread.
 */
#ifndef INFERD_CUDA_BLAS_H
#define INFERD_CUDA_BLAS_H

#include "cuda/kernels/kernels.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct error;

enum {
  BLAS_SHAPES_MAX = 32, /* distinct layers of a model */
  BLAS_WEIGHTS_MAX = 8, /* matrices of one shape that are timed in turn */
  BLAS_RANGES_MAX = 16, /* 33..64, 65..128, ... up to 2^20 rows */
  BLAS_CANDIDATES = 16, /* algorithms asked for */
  BLAS_ROWS_MIN = 33,   /* fewer rows use the skinny kernel */
  BLAS_WORKSPACE = 32 << 20
};

/* The functions of the library that are used. */
typedef struct blas_api {
  void *handle; /* of dlopen; NULL if the program has the functions itself */
  size_t (*version)(void);
  cublasStatus_t (*create)(cublasLtHandle_t *handle);
  cublasStatus_t (*destroy)(cublasLtHandle_t handle);
  cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                cudaDataType_t scale);
  cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t desc);
  cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                             const void *value, size_t bytes);
  cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                  uint64_t cols, int64_t ld);
  cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t layout);
  cublasStatus_t (*layout_set)(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                               const void *value, size_t bytes);
  cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *preference);
  cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t preference);
  cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t preference,
                                   cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                   size_t bytes);
  cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                              cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout,
                              cublasLtMatmulPreference_t preference, int wanted,
                              cublasLtMatmulHeuristicResult_t *results, int *found);
  cublasStatus_t (*check)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                          cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                          cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout,
                          const cublasLtMatmulAlgo_t *algo,
                          cublasLtMatmulHeuristicResult_t *result);
  cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                           const void *a_data, cublasLtMatrixLayout_t a_layout, const void *b_data,
                           cublasLtMatrixLayout_t b_layout, const void *beta, const void *c_data,
                           cublasLtMatrixLayout_t c_layout, void *d_data,
                           cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                           void *workspace, size_t workspace_bytes, cudaStream_t stream);
} blas_api_t;

/* blas_library.c. Returns false if the library, or one of its functions, is missing. */
bool blas_library_open(blas_api_t *api);
void blas_library_close(blas_api_t *api);

/* The choice for rows in (32 << range, 64 << range]. */
typedef struct blas_choice {
  bool is_known, is_own; /* own = gpu_linear */
  cublasLtMatmulAlgo_t algo;
} blas_choice_t;

/* One kind of layer: out[M, n] = in[M, k] . W[n, k]^T (+ bias) (+ residual). */
typedef struct blas_shape {
  int32_t n, k, stride; /* of gpu_skinny_t, but never 0 */
  bool has_bias, has_residual, is_logits;
  const void *weights[BLAS_WEIGHTS_MAX]; /* device, of several layers */
  int32_t num_weights;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d; /* W, in, out as the library sees them: column-major */
  blas_choice_t choices[BLAS_RANGES_MAX];
} blas_shape_t;

typedef struct blas {
  blas_api_t api;
  cublasLtHandle_t handle;
  void *workspace;
  bool is_tuned;
  int32_t num_timed, num_cached; /* choices measured in this start, and read from the file */
  blas_shape_t shapes[BLAS_SHAPES_MAX];
  int32_t num_shapes;
} blas_t;

/* One product. `layer` is what gpu_linear would be told; narrow_bias is 16-bit. */
typedef struct blas_call {
  const gpu_skinny_t *layer;
  const void *narrow_bias;
} blas_call_t;

/* blas.c. Opens the library. Without it, or with --batch-invariant, device->blas stays NULL. */
int blas_open(struct device *device, struct error *error);
void blas_release(struct device *device);
/* Registers a shape, before tuning. */
void blas_learn(struct device *device, const blas_call_t *call);
/* Launches the product. Returns false if our own kernel must do it. */
bool blas_linear(struct device *device, const blas_call_t *call);
int32_t blas_range(int32_t rows);
/* Sets what differs between calls of a shape. */
cublasStatus_t blas_set_call(const blas_t *blas, const blas_shape_t *shape,
                             const blas_call_t *call);
cublasStatus_t blas_run(struct device *device, blas_shape_t *shape, const blas_call_t *call,
                        const cublasLtMatmulAlgo_t *algo);

/* unpacked.c. Layers of packed weights whose rows are many, by plain products of slices: the same
 * two calls. Both return false if the layer is none. */
bool unpacked_learn(struct device *device, const blas_call_t *call);
bool unpacked_linear(struct device *device, const blas_call_t *call, const char *where);

/* blas_tune.c. Times every shape and range, or reads the choice from the file of an earlier start.
 */
void blas_tune(struct device *device);

#ifdef __cplusplus
}
#endif

#endif
