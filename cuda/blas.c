/* blas.c: the shapes of a model's products, and their launch through cuBLASLt.
 *
 * Engine thread. Row-major out[M, n] = in[M, k] . W[n, k]^T is, column by column, D (n x M) =
 * W^T (k x n, transposed) . in (k x M); so all three keep their memory as it is. Descriptions are
 * made when a shape is learnt; a launch only changes the number of columns and allocates nothing.
 */
#include "cuda/blas.h"

#include "cuda/operations.h"

int32_t blas_range(int32_t rows) {
  int32_t range = 0;
  while (range < BLAS_RANGES_MAX - 1 && rows > 64 << range) range++;
  return range;
}

int blas_open(device_t *d, error_t *error) {
  void *taken;
  if (d->is_batch_invariant) return 0;
  int code = device_take_heap(d, &taken, sizeof(blas_t), "cuBLASLt", error);
  if (code) return code;
  blas_t *b = taken;
  if (!blas_library_open(&b->api)) return 0;
  if (b->api.create(&b->handle) != CUBLAS_STATUS_SUCCESS) {
    blas_library_close(&b->api);
    return 0;
  }
  d->blas = b;
  return device_take(d, &b->workspace, BLAS_WORKSPACE, "cuBLASLt", error);
}

static void release_shape(const blas_api_t *api, blas_shape_t *s) {
  if (s->desc != NULL) api->desc_destroy(s->desc);
  if (s->a != NULL) api->layout_destroy(s->a);
  if (s->b != NULL) api->layout_destroy(s->b);
  if (s->d != NULL) api->layout_destroy(s->d);
}

void blas_release(device_t *d) {
  blas_t *b = d->blas;
  if (b == NULL) return;
  for (int32_t i = 0; i < b->num_shapes; i++) release_shape(&b->api, &b->shapes[i]);
  b->api.destroy(b->handle);
  blas_library_close(&b->api);
  d->blas = NULL;
}

static blas_shape_t *find_shape(blas_t *b, const gpu_skinny_t *layer) {
  for (int32_t i = 0; i < b->num_shapes; i++) {
    blas_shape_t *s = &b->shapes[i];
    if (s->n == layer->n && s->k == layer->k && s->has_bias == (layer->bias != NULL) &&
        s->has_residual == (layer->residual != NULL) && s->is_logits == (layer->logits != 0)) {
      return s;
    }
  }
  return NULL;
}

/* Descriptions of a new shape; false when the library refuses one. */
static bool describe(const device_t *d, const blas_api_t *api, blas_shape_t *s) {
  const cudaDataType type = d->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
  const cudaDataType out = s->is_logits ? CUDA_R_32F : type;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue =
      s->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  const uint64_t n = (uint64_t)s->n, k = (uint64_t)s->k;
  return api->desc_create(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
         api->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
             CUBLAS_STATUS_SUCCESS &&
         api->desc_set(s->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) ==
             CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&s->a, type, k, n, s->k) == CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&s->b, type, k, BLAS_ROWS_MIN, s->k) == CUBLAS_STATUS_SUCCESS &&
         api->layout_create(&s->d, out, n, BLAS_ROWS_MIN, s->n) == CUBLAS_STATUS_SUCCESS;
}

static bool is_taken(const gpu_skinny_t *layer) {
  return layer->softcap == 0 && !layer->norm && !layer->activate;
}

void blas_learn(device_t *d, const blas_call_t *call) {
  blas_t *b = d->blas;
  const gpu_skinny_t *layer = call->layer;
  if (!is_taken(layer)) return;
  blas_shape_t *s = find_shape(b, layer);
  if (s == NULL) {
    if (b->num_shapes == BLAS_SHAPES_MAX) return;
    s = &b->shapes[b->num_shapes];
    *s = (blas_shape_t){.n = layer->n,
                        .k = layer->k,
                        .has_bias = layer->bias != NULL,
                        .has_residual = layer->residual != NULL,
                        .is_logits = layer->logits != 0};
    if (!describe(d, &b->api, s)) {
      release_shape(&b->api, s);
      return;
    }
    b->num_shapes++;
  }
  if (s->num_weights < BLAS_WEIGHTS_MAX) s->weights[s->num_weights++] = layer->weight;
}

/* Sets what differs between calls of a shape. */
static cublasStatus_t set_call(const blas_t *b, const blas_shape_t *s, const blas_call_t *call) {
  const uint64_t rows = (uint64_t)call->layer->rows;
  cublasStatus_t status = b->api.layout_set(s->b, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = b->api.layout_set(s->d, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
  if (status == CUBLAS_STATUS_SUCCESS && s->has_bias)
    status = b->api.desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call->narrow_bias,
                             sizeof call->narrow_bias);
  return status;
}

cublasStatus_t blas_run(device_t *d, blas_shape_t *s, const blas_call_t *call,
                        const cublasLtMatmulAlgo_t *algo) {
  const blas_t *b = d->blas;
  const gpu_skinny_t *layer = call->layer;
  const float one = 1, beta = s->has_residual ? 1 : 0;
  cublasStatus_t status = set_call(b, s, call);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return b->api.matmul(b->handle, s->desc, &one, layer->weight, s->a, layer->in, s->b, &beta,
                       s->has_residual ? layer->residual : layer->out, s->d, layer->out, s->d, algo,
                       b->workspace, BLAS_WORKSPACE, d->stream);
}

bool blas_linear(device_t *d, const blas_call_t *call) {
  blas_t *b = d->blas;
  const gpu_skinny_t *layer = call->layer;
  if (!b->is_tuned || layer->rows < BLAS_ROWS_MIN || !is_taken(layer)) return false;
  blas_shape_t *s = find_shape(b, layer);
  if (s == NULL) return false;
  const blas_choice_t *choice = &s->choices[blas_range(layer->rows)];
  if (!choice->is_known || choice->is_own) return false;
  return blas_run(d, s, call, &choice->algo) == CUBLAS_STATUS_SUCCESS;
}
