/* bench_rest.cu: what a step has beside attention and products, and a whole layer, for gpu_bench.
 */
#include "cuda/dev/bench_attention.h"
#include "cuda/kernels/moe.h"
#include "cuda/kernels/rope/qkv.h"
#include "cuda/kernels/sample.h"

/* ---- sampler ---- */

static void bench_sampler_case(bool peaked, int rows, int vocab) {
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
  auto *results = (gpu_sample_result_t *)memory.take(sizeof(gpu_sample_result_t) * (size_t)rows);
  auto *tops = (gpu_sample_top_t *)memory.take(sizeof(gpu_sample_top_t) * (size_t)rows);
  const double us = time_us([&](int) {
    MUST(gpu_sample(device, vocab, row, rows, scratch, results, tops, bench.stream));
  });
  printf("{\"part\": \"sampler\", \"logits\": \"%s\", \"rows\": %d, \"vocab\": %d, \"us\": %.1f}\n",
         peaked ? "peaked" : "flat", rows, vocab, us);
}

/* The logits lie in L2, as the last product leaves them there. */
void bench_sampler() {
  for (bool peaked : {true, false})
    for (int rows : {1, 8, 64, 256})
      if (!bench.tiny || rows < 8) bench_sampler_case(peaked, rows, bench.tiny ? 512 : 128256);
}

/* ---- single kernels ---- */

/* `bytes`: what comes from memory, cold; 0 where all of it lies in L2. */
static void say(const char *what, const std::string &shape, double us, double bytes = 0) {
  printf("{\"part\": \"rest\", \"what\": \"%s\", \"shape\": \"%s\", \"us\": %.2f", what,
         shape.c_str(), us);
  if (bytes > 0) printf(", \"tb_s\": %.4f", bytes / us * 1e-6);
  printf("}\n");
}

static std::string sizes(std::initializer_list<int> numbers) {
  std::string text;
  for (int n : numbers) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

static void bench_rows(int rows) {
  const int width = bench.tiny ? 64 : 4096, inner = bench.tiny ? 128 : 14336;
  const shape_t shape = {32, 8, bench.tiny ? 64 : 128};
  memory_t memory;
  void *in = memory.take((size_t)rows * 2 * inner * 2, FILL_BF16);
  void *out = memory.take((size_t)rows * inner * 2);
  float *weight = (float *)memory.take((size_t)inner * 4, FILL_F32);
  const gpu_norm_t norm = {weight, nullptr, 1e-5f, 0, width};
  say("norm", sizes({rows, width}), time_us([&](int) {
        MUST(gpu_norm(DTYPE_BF16, out, in, nullptr, &norm, rows, bench.stream));
      }));
  say("activation", sizes({rows, inner}), time_us([&](int) {
        MUST(gpu_activate(DTYPE_BF16, out, in, GPU_SILU_MUL, inner, rows, bench.stream));
      }));
  attention_t attention(shape, rows, 1, 64, false);
  std::vector<int64_t> slots(rows);
  for (int i = 0; i < rows; i++) slots[i] = (int64_t)(1 + i) * 64 + i % 64;
  gpu_rope_store_t store = {};
  store.qkv = (void *)attention.args.qkv, store.slots = memory.upload(slots);
  store.table = (float *)memory.take((size_t)rows * shape.dim * 4, FILL_F32);
  store.dims = shape.dim, store.num_heads = shape.heads, store.tokens = rows;
  say("rope_store", sizes({rows, shape.heads + 2 * shape.kv_heads, shape.dim}),
      time_us([&](int) { MUST(gpu_rope_store(&attention.args.kv, &store, bench.stream)); }));
}

static void bench_plan(int rows, int len) {
  attention_t attention({32, 8, bench.tiny ? 64 : 128}, rows, 1, bench.tiny ? 64 : len, false);
  say("plan", sizes({rows, len}),
      time_us([&](int) { MUST(gpu_attention_plan(&attention.args, bench.stream)); }));
}

static const size_t EXPERTS_BYTES = (size_t)8 << 30; /* of all copies */

/* Qwen3-30B-A3B's experts; with a width of 8 little is left but the router and the places. */
static void bench_experts(const char *what, int rows, int width) {
  memory_t memory;
  gpu_moe_t args = {};
  args.hidden = bench.tiny ? 64 : 2048, args.width = width, args.num_experts = bench.tiny ? 8 : 128;
  args.rows = rows, args.top_k = bench.tiny ? 2 : 8, args.normalise = 1,
  args.activation = GPU_SILU_MUL;
  const size_t matrix = (size_t)args.num_experts * args.width * args.hidden * 2;
  const size_t router = (size_t)args.num_experts * args.hidden * 4, whole = 3 * matrix + router;
  const int met = std::min(args.num_experts, rows * args.top_k); /* experts that a call reads */
  const int copies = std::min(cold_copies(router + 3 * matrix / args.num_experts * met),
                              std::max(1, (int)(EXPERTS_BYTES / whole)));
  std::vector<gpu_moe_t> turns;
  args.in = args.residual = memory.take((size_t)rows * args.hidden * 2, FILL_BF16);
  args.out = memory.take((size_t)rows * args.hidden * 2);
  args.workspace =
      memory.take(gpu_moe_workspace_bytes(args.hidden, width, args.num_experts, args.top_k));
  for (int i = 0; i < copies; i++) {
    args.router = (float *)memory.take(router, FILL_F32);
    args.up = memory.take(2 * matrix, FILL_BF16), args.down = memory.take(matrix, FILL_BF16);
    turns.push_back(args);
  }
  say(what, sizes({rows, args.num_experts, args.top_k, width}),
      time_us([&](int turn) { MUST(gpu_moe(DTYPE_BF16, &turns[turn], bench.stream)); }, copies));
}

/* ---- a layer ---- */

struct layer_t {
  void *qkv, *o, *up, *down; /* weights */
};

/* A decoder layer as a decode step of up to 32 rows runs it: activation and rotation inside
 * products, and up to 8 rows the norms. */
struct layer_bench_t {
  memory_t memory;
  int hidden, inner, rows;
  shape_t s;
  attention_t a;
  std::vector<layer_t> layers;
  gpu_rope_store_t store = {};
  gpu_skinny_t base = {};
  float *norm;
  void *x, *normed, *mid;

  layer_bench_t(const shape_t &shape, int hidden_size, int inner_size, int num_rows, int len)
      : hidden(hidden_size), inner(inner_size), rows(num_rows), s(shape),
        a(shape, num_rows, 1, len, false) {
    const int copies = cold_copies(weight_bytes());
    for (int c = 0; c < copies; c++)
      layers.push_back({matrix(columns(), hidden), matrix(hidden, s.heads * s.dim),
                        matrix(2 * inner, hidden), matrix(hidden, inner)});
    std::vector<int64_t> slots(rows);
    const int stride = a.args.block_table_stride;
    for (int t = 0; t < rows; t++) slots[t] = (int64_t)(1 + t * stride) * 64;
    store.qkv = (void *)a.args.qkv, store.slots = memory.upload(slots);
    store.table = (float *)memory.take((size_t)rows * s.dim * 4, FILL_F32);
    store.dims = s.dim, store.num_heads = s.heads, store.tokens = rows;
    norm = (float *)memory.take((size_t)hidden * 4, FILL_F32);
    x = memory.take((size_t)rows * hidden * 2, FILL_BF16);
    normed = memory.take((size_t)rows * hidden * 2);
    mid = memory.take((size_t)rows * inner * 2);
    const int widest = std::max(columns(), hidden);
    base.rows = rows, base.workers = bench.multiprocessors;
    base.partial = (float *)memory.take(gpu_skinny_partial_bytes(GPU_SKINNY_ROWS_MAX, widest));
    base.tickets = (int32_t *)memory.take(((size_t)widest / 8 + 1) * 4);
  }
  void *matrix(int n, int k) { return memory.take((size_t)n * k * 2, FILL_BF16); }
  int columns() const { return (s.heads + 2 * s.kv_heads) * s.dim; }
  size_t weight_bytes() const {
    return (size_t)2 * hidden * (columns() + s.heads * s.dim + 3 * inner);
  }
  /* Norms the inputs of a product, inside it if that can be. */
  void norm_inputs(gpu_skinny_t &args) const {
    const gpu_norm_t how = {norm, nullptr, 1e-5f, 0, args.k};
    args.norm = rows <= GPU_NORM_ROWS_MAX, args.norm_weight = norm, args.norm_eps = how.eps;
    if (args.norm) return;
    MUST(gpu_norm(DTYPE_BF16, normed, args.in, nullptr, &how, rows, bench.stream));
    args.in = normed;
  }
  void product(const void *in, const void *weight, void *out, int n, int k, bool has_norm,
               bool has_residual, bool has_activation) const {
    gpu_skinny_t args = base;
    args.in = in, args.weight = weight, args.out = out, args.n = n, args.k = k;
    args.residual = has_residual ? out : nullptr;
    if (has_norm) norm_inputs(args);
    args.activate = has_activation, args.activation = GPU_SILU_MUL;
    if (has_activation) args.partial = nullptr, args.tickets = nullptr;
    MUST(gpu_linear(DTYPE_BF16, &args, bench.stream));
  }
  /* q, k and v: with the rotation and the write to the cache in one kernel where that can be. */
  void heads(const void *weight) {
    gpu_skinny_t args = base;
    args.in = x, args.weight = weight, args.out = store.qkv, args.n = columns(), args.k = hidden;
    norm_inputs(args);
    if (gpu_qkv_fits(&a.args.kv, &args, &store)) {
      MUST(gpu_qkv(&a.args.kv, &args, &store, bench.stream));
      return;
    }
    MUST(gpu_linear(DTYPE_BF16, &args, bench.stream));
    MUST(gpu_rope_store(&a.args.kv, &store, bench.stream));
  }
  void run(int turn) {
    const layer_t &layer = layers[turn % layers.size()];
    heads(layer.qkv);
    MUST(gpu_attention_decode(a.turn(turn % a.copies()), 2 * bench.multiprocessors, bench.stream));
    product(a.args.out, layer.o, x, hidden, s.heads * s.dim, false, true, false);
    product(x, layer.up, mid, inner, hidden, true, false, true);
    product(mid, layer.down, x, hidden, inner, false, true, false);
  }
};

static void bench_layer(const char *name, const shape_t &shape, int hidden, int inner, int rows) {
  layer_bench_t layer_bench(shape, hidden, inner, rows, bench.tiny ? 64 : 1024);
  const int turns = (int)layer_bench.layers.size();
  say(name, sizes({rows, 1024}), time_us([&](int turn) { layer_bench.run(turn); }, turns),
      (double)layer_bench.weight_bytes() + layer_bench.a.kv_bytes);
}

void bench_rest() {
  for (int rows : {1, 64, 1024}) bench_rows(bench.tiny ? std::min(rows, 2) : rows);
  for (int rows : {1, 64, 256}) bench_plan(bench.tiny ? std::min(rows, 3) : rows, 4096);
  for (int rows : {1, 8, 64}) {
    const int count = bench.tiny ? std::min(rows, 3) : rows;
    bench_experts("route", count, 8);
    bench_experts("experts 30B-A3B", count, bench.tiny ? 16 : 768);
  }
  for (int rows : {1, 8, 32}) {
    const int count = bench.tiny ? std::min(rows, 9) : rows;
    if (bench.tiny) {
      bench_layer("layer", {4, 2, 64}, 64, 128, count);
      continue;
    }
    bench_layer("layer 8B", {32, 8, 128}, 4096, 14336, count);
    bench_layer("layer 1B", {32, 8, 64}, 2048, 8192, count);
  }
}
