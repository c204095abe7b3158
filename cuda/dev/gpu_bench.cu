/* gpu_bench.cu: the kernels by the clock, beside the ceilings of the same run. Laboratory: never in
 * the product, started by scripts/gpu_check.
 *
 *   gpu_bench [--tiny] [ceiling] [decode] [prefill] [linear] [sampler]
 *
 * One JSON object a line: {"part": ..., shape ..., "us": median time, and what it amounts to}. Each
 * figure is the median of timed batches after a warm-up. Weights of `linear` rotate over more
 * memory than the L2 cache holds. --tiny shrinks every shape, to try the program itself on the
 * emulator.
 */
#include "cuda/blas.h"
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/sample.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

static bool tiny;
static int multiprocessors;

static void must(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorString((cudaError_t)status));
  exit(1);
}
#define MUST(call) must((int)(call), #call)

/* Device memory for one measurement, zeroed, freed at its end. */
struct memory_t {
  std::vector<void *> taken;
  ~memory_t() {
    for (void *p : taken) cudaFree(p);
  }
  void *take(size_t bytes) {
    void *p;
    MUST(cudaMalloc(&p, bytes));
    MUST(cudaMemset(p, 0, bytes));
    taken.push_back(p);
    return p;
  }
  template <class T> T *upload(const std::vector<T> &values) {
    T *p = (T *)take(values.size() * sizeof(T));
    MUST(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
  }
};

/* Median microseconds of one call of `run`, which is called `each` times in a row. */
static double time_us(const std::function<void()> &run, int each = 20) {
  if (tiny) each = 1;
  cudaEvent_t begin, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  run();
  run();
  std::vector<double> times;
  for (int batch = 0; batch < (tiny ? 1 : 5); batch++) {
    float ms;
    MUST(cudaEventRecord(begin, nullptr));
    for (int i = 0; i < each; i++) run();
    MUST(cudaEventRecord(end, nullptr));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, begin, end));
    times.push_back((double)ms * 1e3 / each);
  }
  MUST(cudaEventDestroy(begin));
  MUST(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/* ---- ceilings ---- */

__global__ void read_kernel(const uint4 *from, size_t count, uint32_t *sink) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  uint32_t mixed = 0;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += 4 * stride) {
    uint4 v[4];
    for (int j = 0; j < 4; j++)
      v[j] =
          i + j * stride < count ? load_16_stream(from + i + j * stride) : make_uint4(0, 0, 0, 0);
    for (int j = 0; j < 4; j++) mixed ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (mixed == 1) *sink = mixed; /* never with zeroes; keeps the loads */
}

struct product_t {
  blas_api_t api = {};
  cublasLtHandle_t handle = nullptr;
  void *workspace = nullptr;
  memory_t memory;
  bool open() {
    if (!blas_library_open(&api) || api.create(&handle)) return false;
    workspace = memory.take(BLAS_WORKSPACE);
    return true;
  }
};

/* The fastest of the library's algorithms for out[m, n] = in[m, k] w[n, k]^T, in bf16. */
static double best_product_us(product_t &lib, int m, int n, int k, const void *in,
                              const std::vector<void *> &weights, void *out) {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t results[BLAS_CANDIDATES];
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const uint64_t room = BLAS_WORKSPACE;
  const float one = 1, zero = 0;
  int found = 0;
  lib.api.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  lib.api.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  lib.api.layout_create(&a, CUDA_R_16BF, k, n, k);
  lib.api.layout_create(&b, CUDA_R_16BF, k, m, k);
  lib.api.layout_create(&d, CUDA_R_16BF, n, m, n);
  lib.api.preference_create(&preference);
  lib.api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
  lib.api.heuristic(lib.handle, desc, a, b, d, d, preference, BLAS_CANDIDATES, results, &found);
  double best = INFINITY;
  for (int i = 0; i < found; i++) {
    size_t turn = 0;
    bool good = true;
    const double us = time_us([&] {
      good &= lib.api.matmul(lib.handle, desc, &one, weights[turn++ % weights.size()], a, in, b,
                             &zero, out, d, out, d, &results[i].algo, lib.workspace, BLAS_WORKSPACE,
                             nullptr) == CUBLAS_STATUS_SUCCESS;
    });
    if (good) best = std::min(best, us);
  }
  lib.api.preference_destroy(preference);
  lib.api.layout_destroy(a);
  lib.api.layout_destroy(b);
  lib.api.layout_destroy(d);
  lib.api.desc_destroy(desc);
  return best;
}

static void bench_ceiling(product_t *lib) {
  memory_t memory;
  const size_t bytes = tiny ? 1 << 16 : (size_t)4 << 30;
  const uint4 *from = (const uint4 *)memory.take(bytes);
  uint32_t *sink = (uint32_t *)memory.take(4);
  double best = 0;
  for (int blocks : {2, 4, 8}) {
    const double us = time_us(
        [&] {
          MUST(LAUNCH(read_kernel, ((unsigned)(blocks * multiprocessors)), (256), 0, nullptr, from,
                      bytes / 16, sink));
        },
        5);
    best = std::max(best, (double)bytes / us * 1e-6);
  }
  printf("{\"part\": \"ceiling\", \"what\": \"read\", \"tb_s\": %.4f}\n", best);
  if (!lib) return;
  const int size = tiny ? 64 : 8192;
  std::vector<void *> weight = {memory.take((size_t)size * size * 2)};
  void *in = memory.take((size_t)size * size * 2), *out = memory.take((size_t)size * size * 2);
  const double us = best_product_us(*lib, size, size, size, in, weight, out);
  printf("{\"part\": \"ceiling\", \"what\": \"gemm %d\", \"tflop_s\": %.1f}\n", size,
         2.0 * size * size * (double)size / us * 1e-6);
}

/* ---- attention ---- */

struct shape_t {
  int heads, kv_heads, dim;
};

/* Requests of `queries` new tokens each, `len` keys in all; blocks in a scattered order. */
struct attention_t {
  memory_t memory;
  gpu_attention_t args = {};
  int tiles;
  attention_t(const shape_t &s, int batch, int queries, int len, bool fp8) {
    const int size = 64, stride = (len + size - 1) / size, blocks = batch * stride + 1;
    gpu_kv_t kv = {};
    kv.num_layers = 1, kv.num_blocks = blocks, kv.block_size = size;
    kv.num_kv_heads = s.kv_heads, kv.head_dim = s.dim, kv.dtype = DTYPE_BF16, kv.fp8 = fp8;
    kv.base = memory.take(gpu_kv_block_bytes(&kv) * (size_t)blocks);
    std::vector<int32_t> table, lens(batch, len), starts;
    for (int i = 0; i < batch * stride; i++)
      table.push_back(1 + (int)((int64_t)i * 7919 % (batch * stride)));
    for (int i = 0; i <= batch; i++) starts.push_back(i * queries);
    const int tile = gpu_prefill_tile(s.dim), items = batch * (gpu_decode_items(len) + 1);
    const size_t tokens = (size_t)batch * queries;
    tiles = batch * ((queries + tile - 1) / tile);
    args.kv = kv;
    args.plan = {(int32_t *)memory.take(16),
                 (gpu_decode_item_t *)memory.take((size_t)items * sizeof(gpu_decode_item_t)),
                 (int32_t *)memory.take((size_t)batch * 8),
                 (int32_t *)memory.take((tokens / tile + batch + 1) * 8),
                 items,
                 (int32_t)(tokens / tile + batch)};
    args.qkv = memory.take(tokens * (s.heads + 2 * s.kv_heads) * s.dim * 2);
    args.out = memory.take(tokens * s.heads * s.dim * 2);
    args.block_table = memory.upload(table), args.seq_lens = memory.upload(lens);
    args.query_start_loc = memory.upload(starts);
    args.partial = (float *)memory.take((size_t)items * s.heads * s.dim * 4);
    args.partial_state = (float *)memory.take((size_t)items * s.heads * 8);
    args.block_table_stride = stride, args.rows = batch, args.num_heads = s.heads;
    args.scale = 1 / sqrtf((float)s.dim);
    MUST(gpu_attention_plan(&args, nullptr));
  }
};

static void bench_decode() {
  const std::vector<shape_t> shapes = {{32, 8, 128}, {28, 4, 128}, {32, 8, 64}};
  const std::vector<int> batches =
      tiny ? std::vector<int>{1, 2} : std::vector<int>{1, 8, 32, 64, 128};
  const std::vector<int> lens =
      tiny ? std::vector<int>{64} : std::vector<int>{512, 1024, 4096, 16384, 32768};
  for (const shape_t &s : shapes)
    for (bool fp8 : {false, true})
      for (int batch : batches)
        for (int len : lens) {
          attention_t a(s, batch, 1, len, fp8);
          const double us = time_us(
              [&] { MUST(gpu_attention_decode(&a.args, 2 * multiprocessors, nullptr)); }, 10);
          const double bytes = 2.0 * batch * len * s.kv_heads * s.dim * (fp8 ? 1 : 2);
          printf("{\"part\": \"decode\", \"heads\": \"%d/%dx%d\", \"kv\": \"%s\", \"batch\": %d, "
                 "\"len\": %d, \"us\": %.2f, \"tb_s\": %.4f}\n",
                 s.heads, s.kv_heads, s.dim, fp8 ? "fp8" : "bf16", batch, len, us,
                 bytes / us * 1e-6);
        }
}

static void bench_prefill() {
  const shape_t s = {32, 8, 128};
  struct {
    int queries, len;
  } cases[] = {{512, 512},   {1024, 1024},   {2048, 2048}, {4096, 4096},
               {8192, 8192}, {16384, 16384}, {2048, 8192}, {512, 16384}};
  for (const auto &c : cases) {
    const int queries = tiny ? c.queries / 256 : c.queries, len = tiny ? c.len / 256 : c.len;
    attention_t a(s, 1, queries, len, false);
    const double pairs = (double)queries * (len - queries) + (double)queries * queries / 2;
    for (bool hopper : {false, true}) {
      if (hopper && !gpu_attention_prefill_sm90_fits(&a.args.kv)) continue;
      const double us = time_us(
          [&] {
            MUST(hopper ? gpu_attention_prefill_sm90(&a.args, a.tiles, nullptr)
                        : gpu_attention_prefill(&a.args, a.tiles, nullptr));
          },
          5);
      printf("{\"part\": \"prefill\", \"kernel\": \"%s\", \"queries\": %d, \"len\": %d, \"us\": "
             "%.1f, \"tflop_s\": %.1f}\n",
             hopper ? "wgmma" : "mma.sync", queries, len, us,
             4 * pairs * s.heads * s.dim / us * 1e-6);
    }
  }
}

/* ---- linear layers ---- */

static void bench_linear(product_t *lib) {
  struct {
    const char *name;
    int n, k;
  } layers[] = {{"8B qkv", 6144, 4096},   {"8B o", 4096, 4096},   {"8B gate_up", 28672, 4096},
                {"8B down", 4096, 14336}, {"1B qkv", 3072, 2048}, {"1B gate_up", 16384, 2048}};
  for (const auto &layer : layers) {
    const int n = tiny ? layer.n / 128 : layer.n, k = tiny ? layer.k / 32 : layer.k;
    memory_t memory;
    const size_t bytes = (size_t)n * k * 2, cold = tiny ? 1 : (size_t)256 << 20;
    std::vector<void *> weights;
    for (size_t sum = 0; sum < cold; sum += bytes) weights.push_back(memory.take(bytes));
    const int most = tiny ? 64 : 4096;
    void *in = memory.take((size_t)most * k * 2), *out = memory.take((size_t)most * n * 2);
    gpu_skinny_t a = {};
    a.in = in, a.out = out, a.n = n, a.k = k, a.workers = multiprocessors;
    if (n <= 32 * multiprocessors) {
      a.partial = (float *)memory.take(gpu_skinny_partial_bytes(GPU_SKINNY_ROWS_MAX, n));
      a.tickets = (int32_t *)memory.take(((size_t)n / 8 + 1) * 4);
    }
    for (int rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096}) {
      if (rows > most) break;
      size_t turn = 0;
      a.rows = rows;
      const double us = time_us([&] {
        a.weight = weights[turn++ % weights.size()];
        MUST(gpu_linear(DTYPE_BF16, &a, nullptr));
      });
      const double peer = lib ? best_product_us(*lib, rows, n, k, in, weights, out) : NAN;
      printf(
          "{\"part\": \"linear\", \"layer\": \"%s\", \"rows\": %d, \"us\": %.2f, \"tb_s\": %.4f, "
          "\"tflop_s\": %.1f, \"cublaslt_us\": %s}\n",
          layer.name, rows, us, (double)bytes / us * 1e-6, 2.0 * rows * n * k / us * 1e-6,
          lib ? std::to_string(peer).c_str() : "null");
    }
  }
}

/* ---- sampler ---- */

static void bench_sampler() {
  const int vocab = tiny ? 512 : 128256;
  for (bool peaked : {true, false})
    for (int rows : tiny ? std::vector<int>{1, 2} : std::vector<int>{1, 8, 64, 256}) {
      memory_t memory;
      std::vector<float> logits((size_t)rows * vocab);
      uint32_t state = 1;
      for (float &l : logits) {
        state = state * 1664525u + 1013904223u;
        const float u = (float)(state >> 8) * 0x1p-24f;
        l = peaked ? -logf(1e-7f + u) * 2 : u * 0.1f;
      }
      std::vector<gpu_sample_row_t> described(rows);
      for (int i = 0; i < rows; i++) {
        described[i] = {};
        described[i].temperature = 0.8f, described[i].top_p = 0.9f, described[i].top_k = 50;
        described[i].repetition_penalty = 1, described[i].score_id = -1, described[i].num_top = -1;
        described[i].rng_key = (uint64_t)i;
      }
      float *device = memory.upload(logits);
      gpu_sample_row_t *row = memory.upload(described);
      void *scratch = memory.take(gpu_sample_scratch_bytes(vocab) * (size_t)rows);
      auto *results =
          (gpu_sample_result_t *)memory.take(sizeof(gpu_sample_result_t) * (size_t)rows);
      auto *tops = (gpu_sample_top_t *)memory.take(sizeof(gpu_sample_top_t) * (size_t)rows);
      const double us = time_us(
          [&] { MUST(gpu_sample(device, vocab, row, rows, scratch, results, tops, nullptr)); });
      printf("{\"part\": \"sampler\", \"logits\": \"%s\", \"rows\": %d, \"vocab\": %d, \"us\": "
             "%.1f}\n",
             peaked ? "peaked" : "flat", rows, vocab, us);
    }
}

int main(int argc, char **argv) {
  std::vector<std::string> parts;
  for (int i = 1; i < argc; i++)
    if (std::string(argv[i]) == "--tiny")
      tiny = true;
    else
      parts.push_back(argv[i]);
  auto wanted = [&](const char *part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  MUST(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  product_t library;
  product_t *lib = library.open() ? &library : nullptr;
  if (wanted("ceiling")) bench_ceiling(lib);
  if (wanted("decode")) bench_decode();
  if (wanted("prefill")) bench_prefill();
  if (wanted("linear")) bench_linear(lib);
  if (wanted("sampler")) bench_sampler();
  return 0;
}
