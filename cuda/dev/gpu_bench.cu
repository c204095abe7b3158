/* gpu_bench.cu: the kernels by the clock, beside the ceilings of the same run. Laboratory: never in
 * the product, started by scripts/gpu_check, a process for each part.
 *
 *   gpu_bench [--tiny] [ceiling] [decode] [prefill] [linear] [packed] [sampler] [rest]
 *
 * One JSON object a line: {"part": ..., shape ..., "us": median time, and what it amounts to}. Data
 * are random, because products of zeros take less power and run at a higher clock. What a step
 * reads from memory is read cold: weights and keys rotate over four times the L2 cache. Calls are
 * replayed from a graph, as the product does. `packed` compares layers of quantised weights with
 * bf16, and their bits with those of the weights unpacked; the program ends with 1 if they differ.
 * `rest` is what a step has besides: plan, norm, rope and store, activation, experts, and a whole
 * layer. --tiny shrinks every shape, to try the program itself on the emulator.
 */
#include "cuda/dev/bench.h"

#include <chrono>

enum { LEAST_US = 10000, ROUNDS_MAX = 100 }; /* of the rounds of a measurement together */

bench_t bench;

void must(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorString((cudaError_t)status));
  exit(1);
}

/* ---- memory ---- */

/* SplitMix64 of the index: any thread makes any element. */
__global__ void fill_kernel(uint64_t *out, size_t words, uint64_t seed, int kind) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
    uint64_t x = (i + seed) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    if (kind == FILL_E4M3) { /* exponents of 2^-7 to 1: no NaN */
      out[i] = x & 0xbfbfbfbfbfbfbfbfu;
      continue;
    }
    if (kind == FILL_BITS) {
      out[i] = x;
      continue;
    }
    const float low = (float)(int32_t)(uint32_t)x * 0x1p-31f;
    const float high = (float)(int32_t)(x >> 32) * 0x1p-31f;
    if (kind == FILL_F32) {
      const float pair[2] = {low, high};
      memcpy(out + i, pair, sizeof pair);
      continue;
    }
    const uint32_t halves[2] = {pack<bf16_t>(low, high), pack<bf16_t>(high * low, low - high)};
    memcpy(out + i, halves, sizeof halves);
  }
}

static void draw(void *out, size_t words, fill_t fill) {
  static uint64_t seed;
  MUST(LAUNCH(fill_kernel, ((unsigned)(bench.tiny ? 1 : 8 * bench.multiprocessors)), (256), 0,
              bench.stream, (uint64_t *)out, words, seed += words, (int)fill));
}

memory_t::~memory_t() {
  for (void *p : taken) cudaFree(p);
}

void *memory_t::take(size_t bytes, fill_t fill) {
  void *p;
  const size_t words = bytes / 8 + 1;
  MUST(cudaMalloc(&p, words * 8));
  taken.push_back(p);
  if (fill == FILL_ZERO)
    MUST(cudaMemset(p, 0, words * 8));
  else
    draw(p, words, fill);
  MUST(cudaDeviceSynchronize());
  return p;
}

/* ---- the clock ---- */

int cold_copies(size_t bytes) {
  return bench.tiny ? 2 : (int)std::min((size_t)256, bench.cold / std::max(bytes, (size_t)1) + 1);
}

/* Runs the multiprocessors until their clock is that of work: an idle card needs a while. */
static void wake_up() {
  if (bench.tiny) return;
  const size_t words = (size_t)32 << 20;
  memory_t memory;
  void *p = memory.take(words * 8);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(300)) {
    draw(p, words, FILL_BF16);
    MUST(cudaStreamSynchronize(bench.stream));
  }
}

double time_us(const std::function<void(int)> &run, int copies, int calls, int rounds) {
  const double least_us = rounds > 1 && !bench.tiny ? LEAST_US : 0;
  calls = bench.tiny ? 2 : std::max(calls, copies);
  rounds = bench.tiny ? 1 : rounds;
  cudaEvent_t begin, end;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  std::vector<double> times;
  double spent_us = 0;
  run(0); /* loads the kernel, which a capture may not */
  MUST(cudaStreamSynchronize(bench.stream));
  MUST(cudaStreamBeginCapture(bench.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; i++) run(i % copies);
  if (cudaStreamEndCapture(bench.stream, &graph) != cudaSuccess) {
    (void)cudaGetLastError(); /* a library's call that no graph can hold */
    return INFINITY;
  }
  MUST(cudaGraphInstantiate(&ready, graph, 0));
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  for (int round = bench.tiny ? 1 : 0;
       round <= rounds || (spent_us < least_us && round < ROUNDS_MAX); round++) {
    float ms;
    MUST(cudaEventRecord(begin, bench.stream));
    MUST(cudaGraphLaunch(ready, bench.stream));
    MUST(cudaEventRecord(end, bench.stream));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, begin, end));
    spent_us += (double)ms * 1e3;
    if (round > 0) times.push_back((double)ms * 1e3 / calls); /* the first warms up */
  }
  MUST(cudaEventDestroy(begin));
  MUST(cudaEventDestroy(end));
  MUST(cudaGraphExecDestroy(ready));
  MUST(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/* ---- cuBLASLt ---- */

bool product_t::open() {
  if (!blas_library_open(&api) || api.create(&handle)) return false;
  workspace = memory.take(BLAS_WORKSPACE);
  return true;
}

struct operands_t {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t layouts[3]; /* of the weights, in, out */
  const void *in;
  const std::vector<void *> &weights;
  void *out;
};

/* Times one algorithm. Returns infinity if it cannot run. */
static double algorithm_us(product_t &lib, const operands_t &of,
                           const cublasLtMatmulAlgo_t *algorithm, int calls, int rounds) {
  const float one = 1, zero = 0;
  auto call = [&](int turn) {
    return lib.api.matmul(lib.handle, of.desc, &one, of.weights[turn], of.layouts[0], of.in,
                          of.layouts[1], &zero, of.out, of.layouts[2], of.out, of.layouts[2],
                          algorithm, lib.workspace, BLAS_WORKSPACE, bench.stream);
  };
  if (call(0) != CUBLAS_STATUS_SUCCESS) return INFINITY;
  return time_us([&](int turn) { (void)call(turn); }, rounds > 1 ? (int)of.weights.size() : 1,
                 calls, rounds);
}

double best_product_us(product_t &lib, int rows, int cols, int depth, const void *in,
                       const std::vector<void *> &weights, void *out) {
  operands_t of = {{}, {}, in, weights, out};
  cublasLtMatmulDesc_t &desc = of.desc;
  cublasLtMatrixLayout_t(&layouts)[3] = of.layouts;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t results[BLAS_CANDIDATES];
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const uint64_t room = BLAS_WORKSPACE;
  int found = 0;
  lib.api.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  lib.api.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  lib.api.layout_create(&layouts[0], CUDA_R_16BF, depth, cols, depth);
  lib.api.layout_create(&layouts[1], CUDA_R_16BF, depth, rows, depth);
  lib.api.layout_create(&layouts[2], CUDA_R_16BF, cols, rows, cols);
  lib.api.preference_create(&preference);
  lib.api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
  lib.api.heuristic(lib.handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference,
                    BLAS_CANDIDATES, results, &found);
  std::vector<std::pair<double, int>> order; /* of a short trial; the best four run to the end */
  for (int i = 0; i < found; i++)
    order.push_back({algorithm_us(lib, of, &results[i].algo, 4, 1), i});
  std::sort(order.begin(), order.end());
  double best = INFINITY;
  for (size_t i = 0; i < std::min(order.size(), (size_t)4) && std::isfinite(order[i].first); i++)
    best = std::min(best, algorithm_us(lib, of, &results[order[i].second].algo, 20, 3));
  lib.api.preference_destroy(preference);
  for (cublasLtMatrixLayout_t layout : layouts) lib.api.layout_destroy(layout);
  lib.api.desc_destroy(desc);
  return best;
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
  if (mixed == 0x9E3779B9u) *sink = mixed; /* keeps the loads */
}

/* What the runtime says of the card, beside what the driver's tool does. */
static void say_card() {
  struct cudaDeviceProp card;
  MUST(cudaGetDeviceProperties(&card, 0));
  printf("{\"part\": \"card\", \"name\": \"%s\", \"capability\": \"%d.%d\", "
         "\"multiprocessors\": %d, \"l2_mib\": %.1f}\n",
         card.name, card.major, card.minor, bench.multiprocessors,
         (double)bench.cold / 4 / (1 << 20));
}

static void bench_ceiling(product_t *lib) {
  memory_t memory;
  say_card();
  const size_t bytes = bench.tiny ? 1 << 16 : (size_t)4 << 30;
  const uint4 *from = (const uint4 *)memory.take(bytes, FILL_BF16);
  uint32_t *sink = (uint32_t *)memory.take(4);
  double best = 0;
  for (int blocks : {2, 4, 8}) {
    const double us = time_us(
        [&](int) {
          MUST(LAUNCH(read_kernel, ((unsigned)(blocks * bench.multiprocessors)), (256), 0,
                      bench.stream, from, bytes / 16, sink));
        },
        1, 5);
    best = std::max(best, (double)bytes / us * 1e-6);
  }
  printf("{\"part\": \"ceiling\", \"what\": \"read\", \"tb_s\": %.4f}\n", best);
  if (lib == nullptr) return;
  const int size = bench.tiny ? 64 : 8192;
  const size_t matrix = (size_t)size * size * 2;
  std::vector<void *> weight = {memory.take(matrix, FILL_BF16)};
  void *in = memory.take(matrix, FILL_BF16), *out = memory.take(matrix);
  const double us = best_product_us(*lib, size, size, size, in, weight, out);
  if (std::isfinite(us))
    printf("{\"part\": \"ceiling\", \"what\": \"gemm %d\", \"tflop_s\": %.1f}\n", size,
           2.0 * size * size * (double)size / us * 1e-6);
}

/* ---- linear layers ---- */

static void bench_layer(product_t *lib, const char *name, int n, int k) {
  memory_t memory;
  const size_t bytes = (size_t)n * k * 2;
  const int most = bench.tiny ? 64 : n > 100000 ? 64 : 4096, copies = cold_copies(bytes);
  std::vector<void *> weights;
  for (int i = 0; i < copies; i++) weights.push_back(memory.take(bytes, FILL_BF16));
  void *in = memory.take((size_t)most * k * 2, FILL_BF16), *out = memory.take((size_t)most * n * 2);
  gpu_skinny_t args = {};
  args.in = in, args.out = out, args.n = n, args.k = k, args.workers = bench.multiprocessors;
  if (n <= 32 * bench.multiprocessors) {
    args.partial = (float *)memory.take(gpu_skinny_partial_bytes(GPU_SKINNY_ROWS_MAX, n));
    args.tickets = (int32_t *)memory.take(((size_t)n / 8 + 1) * 4);
  }
  for (int rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096}) {
    if (rows > most || (bench.tiny && rows > 1 && rows < most)) continue;
    args.rows = rows;
    const double us = time_us(
        [&](int turn) {
          args.weight = weights[turn];
          MUST(gpu_linear(DTYPE_BF16, &args, bench.stream));
        },
        copies);
    const double peer =
        lib != nullptr ? best_product_us(*lib, rows, n, k, in, weights, out) : INFINITY;
    printf("{\"part\": \"linear\", \"layer\": \"%s\", \"rows\": %d, \"us\": %.2f, \"tb_s\": %.4f, "
           "\"tflop_s\": %.1f, \"cublaslt_us\": %s}\n",
           name, rows, us, (double)bytes / us * 1e-6, 2.0 * rows * n * k / us * 1e-6,
           std::isfinite(peer) ? std::to_string(peer).c_str() : "null");
  }
}

static void bench_linear(product_t *lib) {
  const struct {
    const char *name;
    int n, k;
  } layers[] = {{"8B qkv", 6144, 4096},   {"8B o", 4096, 4096},        {"8B gate_up", 28672, 4096},
                {"8B down", 4096, 14336}, {"8B head", 128256, 4096},   {"1B qkv", 3072, 2048},
                {"1B o", 2048, 2048},     {"1B gate_up", 16384, 2048}, {"1B down", 2048, 8192}};
  for (const auto &layer : layers)
    bench_layer(lib, layer.name, bench.tiny ? layer.n / 128 / 8 * 8 : layer.n,
                bench.tiny ? layer.k / 32 : layer.k);
}

int main(int argc, char **argv) {
  static const char *const names[] = {"ceiling", "decode",  "prefill", "linear",
                                      "packed",  "sampler", "rest"};
  std::vector<std::string> parts;
  int l2 = 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int i = 1; i < argc; i++) {
    const bool known =
        std::find(std::begin(names), std::end(names), argv[i] + std::string()) != std::end(names);
    if (std::string(argv[i]) == "--tiny")
      bench.tiny = true;
    else if (known)
      parts.push_back(argv[i]);
    else
      must(cudaErrorInvalidValue, argv[i]);
  }
  auto wanted = [&](const char *part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  MUST(cudaDeviceGetAttribute(&bench.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  MUST(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
  MUST(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
  bench.cold = (size_t)l2 * 4;
  product_t library; /* half a gigabyte of it is loaded */
  const bool has_products = wanted("ceiling") || wanted("linear") || wanted("packed");
  product_t *lib = has_products && library.open() ? &library : nullptr;
  wake_up();
  if (wanted("ceiling")) bench_ceiling(lib);
  if (wanted("decode")) bench_decode();
  if (wanted("prefill")) bench_prefill();
  if (wanted("linear")) bench_linear(lib);
  const bool good = !wanted("packed") || bench_packed(lib);
  if (wanted("sampler")) bench_sampler();
  if (wanted("rest")) bench_rest();
  return good ? 0 : 1;
}
