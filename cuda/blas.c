/* blas.c: the shapes of a model's products, and their launch through cuBLASLt.
 *
 * Engine thread. Row-major out[M, n] = in[M, k] . W[n, k]^T is, column by column, D (n x M) =
 * W^T (k x n, transposed) . in (k x M); so no matrix is moved in memory. The descriptions are
 * made when a shape is registered; a launch only changes the number of columns and allocates
 * nothing.
 */
#include "cuda/blas.h"

#include "cuda/operations.h"
#include "cuda/sleep.h"

int32_t blas_range(int32_t rows) {
  int32_t range = 0;
  while (range < BLAS_RANGES_MAX - 1 && rows > 64 << range) range++;
  return range;
}

int blas_open(device_t *device, inferd_error_t *error) {
  void *taken;
  if (device->is_batch_invariant) return 0;
  int code = device_take_heap(device, &taken, sizeof(blas_t), "cuBLASLt", error);
  if (code) return code;
  blas_t *blas = taken;
  if (!blas_library_open(&blas->api)) return 0;
  if (blas->api.create(&blas->handle) != CUBLAS_STATUS_SUCCESS) {
    blas_library_close(&blas->api);
    return 0;
  }
  device->blas = blas;
  return sleep_take(device, SLEEP_DROPS, &blas->workspace, BLAS_WORKSPACE, "cuBLASLt", error);
}

static void release_shape(const blas_api_t *api, blas_shape_t *shape) {
  if (shape->desc != NULL) api->desc_destroy(shape->desc);
  if (shape->a != NULL) api->layout_destroy(shape->a);
  if (shape->b != NULL) api->layout_destroy(shape->b);
  if (shape->d != NULL) api->layout_destroy(shape->d);
}

void blas_release(device_t *device) {
  blas_t *blas = device->blas;
  if (blas == NULL) return;
  for (int32_t i = 0; i < blas->num_shapes; i++) release_shape(&blas->api, &blas->shapes[i]);
  blas->api.destroy(blas->handle);
  blas_library_close(&blas->api);
  device->blas = NULL;
}

static int32_t stride_of(const gpu_skinny_t *layer) {
  return layer->stride != 0 ? layer->stride : layer->n;
}

static blas_shape_t *find_shape(blas_t *blas, const gpu_skinny_t *layer) {
  for (int32_t i = 0; i < blas->num_shapes; i++) {
    blas_shape_t *shape = &blas->shapes[i];
    if (shape->n == layer->n && shape->k == layer->k && shape->stride == stride_of(layer) &&
        shape->has_bias == (layer->bias != NULL) &&
        shape->has_residual == (layer->residual != NULL) &&
        shape->is_logits == (layer->logits != 0)) {
      return shape;
    }
  }
  return NULL;
}

/* Makes the descriptions of a new shape. Returns false if the library refuses one. */
static bool describe(const device_t *device, const blas_api_t *api, blas_shape_t *shape) {
  const cudaDataType type = device->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
  const cudaDataType out = shape->is_logits ? CUDA_R_32F : type;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue =
      shape->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  const uint64_t n = (uint64_t)shape->n, k = (uint64_t)shape->k;
  return api->desc_create(&shape->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
         api->desc_set(shape->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
             CUBLAS_STATUS_SUCCESS &&
         api->desc_set(shape->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ==
             CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&shape->a, type, k, n, shape->k) == CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&shape->b, type, k, BLAS_ROWS_MIN, shape->k) == CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&shape->d, out, n, BLAS_ROWS_MIN, shape->stride) ==
             CUBLAS_STATUS_SUCCESS;
}

static bool is_taken(const gpu_skinny_t *layer) {
  const bool biased_logits = layer->logits && layer->bias != NULL; /* would need a bias in fp32 */
  if (layer->packed.codes != GPU_CODES_PLAIN) return false;
  return layer->softcap == 0 && !layer->norm && !layer->activate && !biased_logits;
}

void blas_learn(device_t *device, const blas_call_t *call) {
  blas_t *blas = device->blas;
  const gpu_skinny_t *layer = call->layer;
  if (!is_taken(layer)) return;
  blas_shape_t *shape = find_shape(blas, layer);
  if (shape == NULL) {
    if (blas->num_shapes == BLAS_SHAPES_MAX) return;
    shape = &blas->shapes[blas->num_shapes];
    *shape = (blas_shape_t){.n = layer->n,
                            .k = layer->k,
                            .stride = stride_of(layer),
                            .has_bias = layer->bias != NULL,
                            .has_residual = layer->residual != NULL,
                            .is_logits = layer->logits != 0};
    if (!describe(device, &blas->api, shape)) {
      release_shape(&blas->api, shape);
      return;
    }
    blas->num_shapes++;
  }
  if (layer->weight == device->unpacked && shape->num_weights > 0) return; /* one for all */
  if (shape->num_weights < BLAS_WEIGHTS_MAX) shape->weights[shape->num_weights++] = layer->weight;
}

cublasStatus_t blas_set_call(const blas_t *blas, const blas_shape_t *shape,
                             const blas_call_t *call) {
  const uint64_t rows = (uint64_t)call->layer->rows;
  cublasStatus_t status =
      blas->api.layout_set(shape->b, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = blas->api.layout_set(shape->d, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
  if (status == CUBLAS_STATUS_SUCCESS && shape->has_bias)
    status = blas->api.desc_set(shape->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call->narrow_bias,
                                sizeof call->narrow_bias);
  return status;
}

cublasStatus_t blas_run(device_t *device, blas_shape_t *shape, const blas_call_t *call,
                        const cublasLtMatmulAlgo_t *algo) {
  const blas_t *blas = device->blas;
  const gpu_skinny_t *layer = call->layer;
  const float one = 1, beta = shape->has_residual ? 1 : 0;
  cublasStatus_t status = blas_set_call(blas, shape, call);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return blas->api.matmul(blas->handle, shape->desc, &one, layer->weight, shape->a, layer->in,
                          shape->b, &beta, shape->has_residual ? layer->residual : layer->out,
                          shape->d, layer->out, shape->d, algo, blas->workspace, BLAS_WORKSPACE,
                          device->stream);
}

bool blas_linear(device_t *device, const blas_call_t *call) {
  blas_t *blas = device->blas;
  const gpu_skinny_t *layer = call->layer;
  if (!blas->is_tuned || layer->rows < BLAS_ROWS_MIN || !is_taken(layer)) return false;
  blas_shape_t *shape = find_shape(blas, layer);
  if (shape == NULL) return false;
  const blas_choice_t *choice = &shape->choices[blas_range(layer->rows)];
  if (!choice->is_known || choice->is_own) return false;
  return blas_run(device, shape, call, &choice->algo) == CUBLAS_STATUS_SUCCESS;
}
