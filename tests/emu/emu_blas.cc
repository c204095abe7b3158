/* emu_blas.cc: a fake cuBLASLt: checks what it is told, computes naively, as work of the stream.
 *
 * Three "algorithms" that sum in different orders, so that a choice shows in the bits; the second
 * needs workspace and the third is refused for more than 4096 columns, as real ones are. A wrong
 * leading dimension, a shape that does not fit or memory that is not the device's is an error and
 * says so on stderr.
 */
#include "emu_runtime.h"

#include <cublasLt.h>

/* The alignment is what heuristics assume unless they are told. */
enum { ALGORITHMS = 3, ALIGNMENT = 256, NARROW_COLUMNS_MAX = 4096, NEEDED_WORKSPACE = 4096 };

struct cublasLtContext {
  std::set<uint64_t>
      loaded; /* algorithms that have run: the others have no code on the device yet */
};
struct cublasLtMatmulDescOpaque {
  bool transposed_a, transposed_b, has_bias;
  const void *bias;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace;
};

static cublasStatus_t refuse(const char *why) {
  fprintf(stderr, "emu: cublasLt: %s\n", why);
  return CUBLAS_STATUS_INVALID_VALUE;
}

size_t cublasLtGetVersion(void) {
  return 130000;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  emu::Call call("cublasLtCreate");
  if (call.error) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new cublasLtMatmulDescOpaque();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
  int word = 0;
  if (bytes == sizeof word) memcpy(&word, value, sizeof word);
  switch (name) {
  case CUBLASLT_MATMUL_DESC_TRANSA: desc->transposed_a = word == CUBLAS_OP_T; break;
  case CUBLASLT_MATMUL_DESC_TRANSB: desc->transposed_b = word == CUBLAS_OP_T; break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE: desc->has_bias = word == CUBLASLT_EPILOGUE_BIAS; break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    if (bytes != sizeof desc->bias) return refuse("size of the bias pointer");
    memcpy(&desc->bias, value, sizeof desc->bias);
    break;
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes) {
  uint64_t number;
  if (bytes != sizeof number) return refuse("size of a layout's attribute");
  memcpy(&number, value, sizeof number);
  switch (name) {
  case CUBLASLT_MATRIX_LAYOUT_ROWS: layout->rows = number; break;
  case CUBLASLT_MATRIX_LAYOUT_COLS: layout->cols = number; break;
  case CUBLASLT_MATRIX_LAYOUT_LD: layout->ld = (int64_t)number; break;
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = new cublasLtMatmulPreferenceOpaque();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes) {
  if (name != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || bytes != sizeof preference->workspace)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  memcpy(&preference->workspace, value, sizeof preference->workspace);
  return CUBLAS_STATUS_SUCCESS;
}

/* m x n = (m x k) (k x n); the sizes, or a refusal. */
struct Sizes {
  uint64_t m, n, k;
};
static cublasStatus_t check_sizes(const cublasLtMatmulDescOpaque &desc,
                                  const cublasLtMatrixLayoutOpaque &a,
                                  const cublasLtMatrixLayoutOpaque &b,
                                  const cublasLtMatrixLayoutOpaque &d, Sizes *sizes) {
  const uint64_t m = desc.transposed_a ? a.cols : a.rows, k = desc.transposed_a ? a.rows : a.cols;
  const uint64_t n = desc.transposed_b ? b.rows : b.cols, k2 = desc.transposed_b ? b.cols : b.rows;
  if (k != k2 || m != d.rows || n != d.cols) return refuse("shapes that do not fit");
  for (const auto *layout : {&a, &b, &d})
    if (layout->ld < (int64_t)layout->rows || layout->cols == 0) return refuse("leading dimension");
  if (a.type != b.type || a.type == CUDA_R_32F) return refuse("types of the factors");
  if (d.type != a.type && d.type != CUDA_R_32F) return refuse("type of the product");
  *sizes = {m, n, k};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
  Sizes sizes;
  if (cublasStatus_t status = check_sizes(*desc, *a, *b, *d, &sizes)) return status;
  if (desc->has_bias && !desc->bias)
    return refuse("a bias without a pointer, which tells alignment");
  if (algo->data[0] >= ALGORITHMS || algo->data[7] != 0x656d75) return CUBLAS_STATUS_INVALID_VALUE;
  if (algo->data[0] == 2 && sizes.n > NARROW_COLUMNS_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
  memset(result, 0, sizeof *result);
  result->algo = *algo;
  result->workspaceSize = algo->data[0] == 1 ? NEEDED_WORKSPACE : 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *found) {
  *found = 0;
  for (uint64_t i = 0; i < ALGORITHMS && *found < wanted; i++) {
    cublasLtMatmulAlgo_t algo = {};
    algo.data[0] = i, algo.data[7] = 0x656d75;
    cublasLtMatmulHeuristicResult_t *result = &results[*found];
    result->state = cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, &algo, result);
    if (result->state == CUBLAS_STATUS_INVALID_VALUE) return result->state;
    if (result->state == CUBLAS_STATUS_SUCCESS && result->workspaceSize <= preference->workspace)
      ++*found;
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float load(const void *p, cudaDataType type, uint64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float *>(p)[index];
  const uint16_t bits = static_cast<const uint16_t *>(p)[index];
  return type == CUDA_R_16F ? emu::half_bits_to_float(bits) : emu::bf16_bits_to_float(bits);
}
static void store(void *p, cudaDataType type, uint64_t index, float x) {
  if (type == CUDA_R_32F)
    static_cast<float *>(p)[index] = x;
  else
    static_cast<uint16_t *>(p)[index] =
        type == CUDA_R_16F ? emu::float_to_half_bits(x) : emu::float_to_bf16_bits(x);
}

/* Everything of a call, as it was when it was made. */
struct Product {
  cublasLtMatmulDescOpaque desc;
  cublasLtMatrixLayoutOpaque a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void *d;
  float alpha, beta;
  Sizes sizes;
  uint64_t algorithm;
  void *workspace;
};

/* Algorithm 0 sums forwards, 1 in two halves, 2 backwards. */
static float dot(const Product &p, uint64_t row, uint64_t column) {
  const uint64_t k = p.sizes.k, half = p.algorithm == 1 ? k / 2 : k;
  float sums[2] = {0, 0};
  for (uint64_t step = 0; step < k; step++) {
    const uint64_t i = p.algorithm == 2 ? k - 1 - step : step;
    const uint64_t at_a =
        p.desc.transposed_a ? i + row * (uint64_t)p.a_layout.ld : row + i * (uint64_t)p.a_layout.ld;
    const uint64_t at_b = p.desc.transposed_b ? column + i * (uint64_t)p.b_layout.ld
                                              : i + column * (uint64_t)p.b_layout.ld;
    sums[step >= half] += load(p.a, p.a_layout.type, at_a) * load(p.b, p.b_layout.type, at_b);
  }
  return sums[0] + sums[1];
}

static void multiply(const Product &p) {
  if (p.algorithm == 1) memset(p.workspace, 0x5a, NEEDED_WORKSPACE);
  for (uint64_t column = 0; column < p.sizes.n; column++) {
    for (uint64_t row = 0; row < p.sizes.m; row++) {
      float x = p.alpha * dot(p, row, column);
      if (p.beta != 0)
        x += p.beta * load(p.c, p.c_layout.type, row + column * (uint64_t)p.c_layout.ld);
      if (p.desc.has_bias) x += load(p.desc.bias, p.a_layout.type, row);
      store(p.d, p.d_layout.type, row + column * (uint64_t)p.d_layout.ld, x);
    }
  }
}

static bool is_device(const void *p, const cublasLtMatrixLayoutOpaque &layout) {
  const size_t size = layout.type == CUDA_R_32F ? 4 : 2;
  const size_t last = (size_t)layout.ld * (layout.cols - 1) + layout.rows;
  return reinterpret_cast<uintptr_t>(p) % ALIGNMENT == 0 &&
         emu::is_inside(emu::runtime().device, p, last * size);
}

/* By the device's clock the library is fast where a matrix has at least as many rows as columns,
 * and slow elsewhere: so which products are faster by the own kernels does not depend on the host.
 */
static void multiply_timed(const Product &p) {
  const double begun_s = emu::host_clock_s();
  multiply(p);
  const double taken_s = p.sizes.m >= p.sizes.k ? 1e-6 : 1;
  emu::runtime().ahead_s += taken_s - (emu::host_clock_s() - begun_s);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
  emu::Call call("cublasLtMatmul");
  if (call.error) return CUBLAS_STATUS_EXECUTION_FAILED;
  Product p = {*desc,
               *a_layout,
               *b_layout,
               *c_layout,
               *d_layout,
               a,
               b,
               c,
               d,
               *static_cast<const float *>(alpha),
               *static_cast<const float *>(beta),
               {},
               algo->data[0],
               workspace};
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, desc, a_layout, b_layout, c_layout, d_layout, algo, &result);
  if (status) return status;
  check_sizes(*desc, *a_layout, *b_layout, *d_layout, &p.sizes);
  if (result.workspaceSize > workspace_bytes) return refuse("too little workspace");
  if (c_layout->rows != d_layout->rows || c_layout->cols != d_layout->cols ||
      c_layout->type != d_layout->type)
    return refuse("C and D differ");
  if (!is_device(a, *a_layout) || !is_device(b, *b_layout) || !is_device(d, *d_layout))
    return refuse("a matrix that is not aligned device memory");
  if (p.beta != 0 && !is_device(c, *c_layout)) return refuse("C is not device memory");
  if (desc->has_bias && !emu::is_inside(emu::runtime().device, desc->bias, p.sizes.m * 2))
    return refuse("a bias that is not device memory");
  if (reinterpret_cast<uintptr_t>(workspace) % ALIGNMENT) return refuse("alignment of workspace");
  if (handle->loaded.insert(p.algorithm).second && emu::stream_of(stream)->capture) {
    emu::refuse_in_capture();
    return refuse("an algorithm is captured and has never run");
  }
  return emu::set_error(emu::enqueue(stream, [p] { multiply_timed(p); }))
             ? CUBLAS_STATUS_EXECUTION_FAILED
             : CUBLAS_STATUS_SUCCESS;
}
