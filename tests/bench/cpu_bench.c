/* cpu_bench.c: linear layers and attention of the CPU back end beside the ceilings of this machine.
 *
 *   cpu_bench [--threads N] [--isa TIER] [--quick] [--ceilings] [--quantised] [--attention]
 *             [--experts] [--cpu-time]
 *
 * --attention leaves out linear layers and experts; --experts leaves out all others. --cpu-time
 * runs one thread and takes its CPU time for the clock: for a machine that does other work too.
 * Ceilings are measured in the same run: memory read bandwidth of all threads over 1 GiB, and the
 * highest rate of the tier's own linear kernel on a problem that stays in the second-level cache.
 * Each figure is the best of several rounds. Shapes are those of a 494M model (hidden 896, ffn
 * 4864, 14/2 heads of 64, vocabulary 151,936), and for experts those of a layer of 64 with hidden
 * 2048 and width 768, of which a row takes 8: in bf16, and in MXFP4. --quantised runs the linear
 * layers over quantised weights alone; their bytes are those of the packed panels.
 */
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { READ_BYTES = 1 << 30, ROWS_MAX = 256, HIDDEN = 896, FFN = 4864, VOCAB = 151936 };

static clockid_t bench_clock = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(bench_clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct reading {
  const uint8_t *bytes;
  uint64_t *sums; /* [threads * 8] */
} reading_t;

static void read_task(void *context, int64_t first, int64_t last, int worker) {
  const reading_t *r = context;
  typedef uint64_t lanes __attribute__((vector_size(64), aligned(64), may_alias));
  const lanes *p = (const lanes *)(const void *)r->bytes;
  lanes a = {0}, b = {0}, c = {0}, d = {0};
  for (int64_t mib = first; mib < last; mib++) {
    for (int64_t i = mib << 14; i < (mib + 1) << 14; i += 4) {
      a += p[i];
      b += p[i + 1];
      c += p[i + 2];
      d += p[i + 3];
    }
  }
  a += b + c + d;
  r->sums[worker * 8] += a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static double read_bandwidth(device_t *device, int rounds) {
  size_t mapped;
  uint8_t *bytes = memory_map(READ_BYTES, &mapped);
  uint64_t *sums = calloc((size_t)pool_num_threads(device->pool) * 8, sizeof *sums);
  if (!bytes || !sums) exit(1);
  memset(bytes, 1, READ_BYTES);
  reading_t reading = {bytes, sums};
  double best = 0;
  for (int i = 0; i < rounds; i++) {
    double start = now();
    pool_run(device->pool, read_task, &reading, READ_BYTES >> 20, 1);
    double rate = READ_BYTES / (now() - start);
    if (rate > best) best = rate;
  }
  if (sums[0] == 42) puts("");
  free(sums);
  memory_unmap(bytes, mapped);
  return best;
}

typedef struct peak {
  const kernels_t *kernels;
  dtype_t dtype;
} peak_t;

/* One panel of depth 256 and 96 rows: all of it stays in the second-level cache. */
static void peak_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const peak_t *p = context;
  enum { DEPTH = 256, ROWS = 96 };
  _Alignas(64) uint8_t panel[DEPTH * PANEL_COLS * 4] = {0};
  _Alignas(64) float x[ROWS * DEPTH] = {0}, out[ROWS * PANEL_COLS];
  gemm_t g = {.x = x,
              .ldx = DEPTH,
              .panel = panel,
              .depth = DEPTH,
              .rows = ROWS,
              .cols = PANEL_COLS,
              .out = out,
              .ldo = PANEL_COLS};
  for (int64_t i = first; i < last; i++) p->kernels->gemm[p->dtype](&g);
}

static double peak_rate(device_t *device, dtype_t dtype, int rounds) {
  peak_t peak = {device->kernels, dtype};
  double best = 0;
  for (int i = 0; i < rounds; i++) {
    enum { UNITS = 800 };
    double start = now();
    pool_run(device->pool, peak_task, &peak, UNITS, 2);
    double rate = 2.0 * 96 * 256 * PANEL_COLS * UNITS / (now() - start);
    if (rate > best) best = rate;
  }
  return best;
}

static const void *zero_row(void *context, int64_t row, void *scratch) {
  const int64_t *cols = context;
  uint16_t *out = scratch; /* small numbers with changing bits */
  for (int64_t i = 0; i < *cols; i++) out[i] = (uint16_t)(0x3c00 + ((row * 31 + i * 7) & 255));
  return out;
}

static void bench_linear(device_t *device, const char *name, int64_t n, int64_t k, double bandwidth,
                         double peak, int rounds) {
  inferd_error_t error;
  weight_source_t source = {
      .name = name, .rows = n, .cols = k, .dtype = DTYPE_BF16, .row = zero_row, .context = &k};
  enum { COPIES_MAX = 64 };
  weight_t *weights[COPIES_MAX];
  int copies = (int)(400000000 / (n * k * 2)); /* more than the caches hold */
  if (copies > COPIES_MAX) copies = COPIES_MAX;
  if (copies < 1) copies = 1;
  for (int i = 0; i < copies; i++)
    if (ops_cpu.weight(device, &source, &weights[i], &error)) exit(1);
  act_t *x = ops_cpu.buffer(device, ROWS_MAX, k), *out = ops_cpu.buffer(device, ROWS_MAX, n);
  if (!x || !out) exit(1);
  for (int64_t i = 0; i < ROWS_MAX * k; i++) FLOATS(x)[i] = (float)(i % 17) - 8;
  static const int32_t rows[] = {1, 2, 4, 8, 12, 16, 24, 32, 64, 256};
  for (size_t m = 0; m < sizeof rows / sizeof *rows; m++) {
    double best = 1e9;
    for (int i = 0; i < rounds; i++) {
      double start = now();
      for (int c = 0; c < copies; c++)
        ops_cpu.linear(device, out, x, weights[c], NULL, NULL, rows[m]);
      double time = (now() - start) / copies;
      if (time < best) best = time;
    }
    double bytes = (double)n * (double)k * 2, flops = bytes * rows[m];
    double floor = bytes / bandwidth > flops / peak ? bytes / bandwidth : flops / peak;
    printf("%-8s M %3d  %8.1f us  %6.1f GB/s  %7.1f GFLOP/s  %4.2f of the roofline\n", name,
           rows[m], best * 1e6, bytes / best * 1e-9, flops / best * 1e-9, floor / best);
  }
}

typedef struct quant_rows {
  const quant_format_t *format;
  int64_t cols;
} quant_rows_t;

/* Random codes with scales of about 1. */
static const void *quant_row(void *context, int64_t row, void *scratch) {
  static const int halves[][3] = {
      {WEIGHT_Q4_0, 0, 0},     {WEIGHT_Q5_0, 0, 0}, {WEIGHT_Q8_0, 0, 0}, {WEIGHT_Q2_K, 80, 82},
      {WEIGHT_Q3_K, 108, 108}, {WEIGHT_Q4_K, 0, 2}, {WEIGHT_Q5_K, 0, 2}, {WEIGHT_Q6_K, 208, 208}};
  const quant_rows_t *rows = context;
  size_t bytes = quant_row_bytes(rows->format, 0, rows->cols);
  uint8_t *out = scratch;
  for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)((uint64_t)row * 31 + i * i * 7 + i / 13);
  for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
    for (int j = 1; j < 3 && halves[i][0] == (int)rows->format->format; j++)
      for (size_t at = 0; at < bytes; at += (size_t)rows->format->block_bytes)
        memcpy(out + at + halves[i][j], &(uint16_t){0x2c00}, 2);
  return out;
}

static size_t packed_bytes(const weight_t *weight) {
  int64_t panels = weight->stack * weight->stack_panels;
  return weight->quant[1].at * (size_t)panels; /* the panels of one format are alike */
}

/* The highest rate of products with a panel that stays in the cache, and 64 rows. */
static double quant_peak(device_t *device, weight_t *weight, int rounds) {
  enum { ROWS = 64, TIMES = 40 };
  size_t stride = weight_stride(device, weight);
  float *out = malloc(sizeof(float) * ROWS * PANEL_COLS), *in = calloc((size_t)weight->depth, 4);
  uint8_t *x = aligned_alloc(64, stride * ROWS);
  if (!out || !in || !x) exit(1);
  for (int64_t k = 0; k < weight->cols; k++) in[k] = (float)(k % 17) - 8;
  for (int r = 0; r < ROWS; r++) weight_stage(device, weight, x + (size_t)r * stride, in);
  gemm_t gemm = {.x = x, .rows = ROWS, .cols = PANEL_COLS, .out = out, .ldo = PANEL_COLS};
  double best = 0;
  for (int i = 0; i < rounds; i++) {
    double start = now();
    for (int j = 0; j < TIMES; j++) weight_multiply(device, weight, 0, false, 0, &gemm);
    double rate = 2.0 * ROWS * PANEL_COLS * (double)weight->depth * TIMES / (now() - start);
    if (rate > best) best = rate;
  }
  free(out), free(in), free(x);
  return best * pool_num_threads(device->pool);
}

static void bench_quant(device_t *device, weight_format_t format, int64_t n, int64_t k,
                        double bandwidth, int rounds) {
  inferd_error_t error;
  quant_rows_t rows_of = {quant_format(format), k};
  weight_source_t source = {.name = rows_of.format->name,
                            .rows = n,
                            .cols = k,
                            .format = format,
                            .dtype = DTYPE_BF16,
                            .row = quant_row,
                            .context = &rows_of};
  enum { COPIES = 30 };
  weight_t *weights[COPIES];
  for (int i = 0; i < COPIES; i++)
    if (ops_cpu.weight(device, &source, &weights[i], &error)) exit(1);
  double bytes = (double)packed_bytes(weights[0]), peak = quant_peak(device, weights[0], rounds);
  act_t *x = ops_cpu.buffer(device, ROWS_MAX, k), *out = ops_cpu.buffer(device, ROWS_MAX, n);
  if (!x || !out) exit(1);
  for (int64_t i = 0; i < ROWS_MAX * k; i++) FLOATS(x)[i] = (float)(i % 17) - 8;
  printf("%s [%d, %d]: %.3f bits a weight, products in the cache %.0f GOP/s\n", source.name, (int)n,
         (int)k, bytes * 8 / (double)(n * k), peak * 1e-9);
  static const int32_t rows[] = {1, 4, 8, 16, 32, 256};
  for (size_t m = 0; m < sizeof rows / sizeof *rows; m++) {
    double best = 1e9;
    for (int i = 0; i < rounds; i++) {
      double start = now();
      for (int c = 0; c < COPIES; c++)
        ops_cpu.linear(device, out, x, weights[c], NULL, NULL, rows[m]);
      double time = (now() - start) / COPIES;
      if (time < best) best = time;
    }
    double operations = 2.0 * (double)(n * k) * rows[m];
    double floor = bytes / bandwidth > operations / peak ? bytes / bandwidth : operations / peak;
    printf("%-8s M %3d  %8.1f us  %6.1f GB/s  %7.1f GOP/s  %4.2f of the roofline\n", source.name,
           rows[m], best * 1e6, bytes / best * 1e-9, operations / best * 1e-9, floor / best);
  }
}

/* Two levels need columns in multiples of 256. */
static void bench_quantised(device_t *device, double bandwidth, int rounds) {
  static const weight_format_t formats[] = {WEIGHT_Q8_0, WEIGHT_Q4_0, WEIGHT_Q4_K, WEIGHT_Q5_0,
                                            WEIGHT_Q5_K, WEIGHT_Q6_K, WEIGHT_Q3_K, WEIGHT_Q2_K};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    bench_quant(device, formats[i], 2 * FFN, 1024, bandwidth, rounds);
    bench_quant(device, formats[i], 1024, FFN, bandwidth, rounds);
  }
}

static const void *block_row(void *context, int64_t row, void *scratch) {
  const int64_t *cols = context;
  uint8_t *out = scratch;
  for (int64_t g = 0; g < *cols / MXFP4_COLS; g++, out += MXFP4_BYTES) {
    for (int k = 0; k < MXFP4_BYTES - 1; k++) out[k] = (uint8_t)(row * 31 + g * 7 + k * 13);
    out[MXFP4_BYTES - 1] = 120;
  }
  return scratch;
}

enum { EXPERTS = 64, EXPERTS_TOP = 8, EXPERT_HIDDEN = 2048, EXPERT_WIDTH = 768 };

static weight_t *expert_stack(device_t *device, int64_t rows, int64_t cols, bool blocks) {
  inferd_error_t error;
  weight_t *weight;
  weight_source_t source = {.name = "experts",
                            .rows = rows * EXPERTS,
                            .cols = cols,
                            .stack = EXPERTS,
                            .format = blocks ? WEIGHT_MXFP4 : WEIGHT_PLAIN,
                            .dtype = DTYPE_BF16,
                            .row = blocks ? block_row : zero_row,
                            .context = &cols};
  if (ops_cpu.weight(device, &source, &weight, &error)) exit(1);
  return weight;
}

static const void *router_row(void *context, int64_t row, void *scratch) {
  (void)context;
  float *out = scratch;
  for (int64_t i = 0; i < EXPERT_HIDDEN; i++) out[i] = (float)((row * 131 + i * 57) % 101) - 50;
  return out;
}

/* Bytes moved are those of the experts that some row chose. */
static void bench_experts(device_t *device, double bandwidth, double peak, bool blocks,
                          int rounds) {
  enum { COPIES = 4 };
  inferd_error_t error;
  weight_source_t router = {.name = "router",
                            .rows = EXPERTS,
                            .cols = EXPERT_HIDDEN,
                            .dtype = DTYPE_F32,
                            .row = router_row};
  moe_t moe = {.num_experts = EXPERTS,
               .top_k = EXPERTS_TOP,
               .width = EXPERT_WIDTH,
               .normalise = true,
               .activation = ACTIVATION_SILU_MUL};
  weight_t *route, *up[COPIES], *down[COPIES];
  if (ops_cpu.weight(device, &router, &route, &error)) exit(1);
  moe.router = route;
  for (int c = 0; c < COPIES; c++) {
    up[c] = expert_stack(device, 2 * EXPERT_WIDTH, EXPERT_HIDDEN, blocks);
    down[c] = expert_stack(device, EXPERT_HIDDEN, EXPERT_WIDTH, blocks);
  }
  step_limits_t limits = device->limits;
  if (ops_cpu.prepare(device, &limits, &error)) exit(1);
  act_t *x = ops_cpu.buffer(device, ROWS_MAX, EXPERT_HIDDEN);
  act_t *out = ops_cpu.buffer(device, ROWS_MAX, EXPERT_HIDDEN);
  if (!x || !out) exit(1);
  for (int64_t i = 0; i < ROWS_MAX * EXPERT_HIDDEN; i++)
    FLOATS(x)[i] = (float)((uint32_t)i * 2654435761u >> 24) / 128 - 1;
  static const int32_t rows[] = {1, 8, 32, 256};
  for (size_t m = 0; m < sizeof rows / sizeof *rows; m++) {
    double best = 1e9;
    for (int i = 0; i < rounds; i++) {
      double start = now();
      for (int c = 0; c < COPIES; c++) {
        moe.up = up[c];
        moe.down = down[c];
        ops_cpu.moe(device, out, x, out, &moe, rows[m]);
      }
      double time = (now() - start) / COPIES;
      if (time < best) best = time;
    }
    int chosen = 0; /* experts of the last run */
    for (int e = 0; e < EXPERTS; e++) chosen += device->moe.first[e + 1] > device->moe.first[e];
    double numbers = 3.0 * EXPERT_WIDTH * EXPERT_HIDDEN;
    double bytes = chosen * numbers * (blocks ? (double)MXFP4_BYTES / MXFP4_COLS : 2);
    double flops = 2 * numbers * EXPERTS_TOP * rows[m];
    double floor = bytes / bandwidth > flops / peak ? bytes / bandwidth : flops / peak;
    printf("experts %s M %3d (%2d of %d)  %8.1f us  %6.1f GB/s  %7.1f GFLOP/s  %4.2f of the "
           "roofline\n",
           blocks ? "mxfp4" : "bf16 ", rows[m], chosen, EXPERTS, best * 1e6, bytes / best * 1e-9,
           flops / best * 1e-9, floor / best);
  }
}

static void bench_attention(device_t *device, int32_t requests, int32_t chunk, int32_t context,
                            double bandwidth, int rounds) {
  enum { HEADS = 14, KV_HEADS = 2, DIM = 64, BLOCK = 16, WIDTH = (HEADS + 2 * KV_HEADS) * DIM };
  int32_t per_request = (context + BLOCK - 1) / BLOCK, tokens = requests * chunk;
  inferd_error_t error;
  kv_cache_desc_t desc = {.num_layers = 1,
                          .num_kv_heads = KV_HEADS,
                          .head_dim = DIM,
                          .num_blocks = 1 + requests * per_request,
                          .block_size = BLOCK,
                          .dtype = DTYPE_BF16};
  if (ops_cpu.kv_cache(device, &desc, &error)) exit(1);
  act_t *qkv = ops_cpu.buffer(device, tokens, WIDTH);
  act_t *out = ops_cpu.buffer(device, tokens, HEADS * DIM);
  int32_t *positions = calloc((size_t)tokens, sizeof *positions);
  int32_t *starts = calloc((size_t)requests + 1, sizeof *starts);
  int32_t *lengths = calloc((size_t)requests, sizeof *lengths);
  int32_t *blocks = calloc((size_t)(requests * per_request), sizeof *blocks);
  const int32_t **table = calloc((size_t)requests, sizeof *table);
  if (!qkv || !out || !positions || !starts || !lengths || !blocks || !table) exit(1);
  for (int32_t r = 0; r < requests; r++) {
    table[r] = blocks + r * per_request;
    starts[r + 1] = (r + 1) * chunk;
    lengths[r] = context;
    for (int32_t i = 0; i < chunk; i++) positions[r * chunk + i] = context - chunk + i;
    for (int32_t b = 0; b < per_request; b++) blocks[r * per_request + b] = 1 + b * requests + r;
  }
  batch_t batch = {.num_tokens = tokens,
                   .num_reqs = requests,
                   .block_size = BLOCK,
                   .positions = positions,
                   .query_start_loc = starts,
                   .seq_lens = lengths,
                   .block_table = table};
  attention_t a = {.num_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = DIM, .scale = 0.125f};
  double best = 1e9;
  for (int i = 0; i < rounds; i++) {
    ops_cpu.begin(device, &batch);
    double start = now();
    ops_cpu.attention(device, out, qkv, &a);
    double time = now() - start;
    if (time < best) best = time;
  }
  double keys = 0;
  for (int32_t t = 0; t < tokens; t++) keys += positions[t] + 1;
  double bytes = (double)requests * context * KV_HEADS * DIM * 4;
  printf("attention %2d x %4d tokens, context %5d  %8.1f us  %5.1f GB/s (%.2f of memory)  %6.1f "
         "GFLOP/s\n",
         requests, chunk, context, best * 1e6, bytes / best * 1e-9, bytes / best / bandwidth,
         keys * HEADS * DIM * 4 / best * 1e-9);
  free(positions), free(starts), free(lengths), free(blocks), free(table);
}

static void bench_products(device_t *device, double bandwidth, double peak, int rounds) {
  bench_linear(device, "qkv", 1152, HIDDEN, bandwidth, peak, rounds);
  bench_linear(device, "gate_up", 2 * FFN, HIDDEN, bandwidth, peak, rounds);
  bench_linear(device, "down", HIDDEN, FFN, bandwidth, peak, rounds);
  bench_linear(device, "head", VOCAB, HIDDEN, bandwidth, peak, rounds);
  bench_experts(device, bandwidth, peak, false, rounds);
  bench_experts(device, bandwidth, peak, true, rounds);
}

static void bench_attentions(device_t *device, double bandwidth, int rounds) {
  bench_attention(device, 32, 1, 160, bandwidth, rounds);
  bench_attention(device, 1, 1, 4096, bandwidth, rounds);
  bench_attention(device, 32, 1, 1024, bandwidth, rounds);
  bench_attention(device, 1, 512, 512, bandwidth, rounds);
  bench_attention(device, 1, 2048, 4096, bandwidth, rounds);
  bench_attention(device, 1, 512, 8000, bandwidth, rounds);
  bench_attention(device, 8, 1, 8000, bandwidth, rounds);
}

int main(int argc, char **argv) {
  device_options_t options = {0};
  int rounds = 7;
  bool ceilings_only = false, quantised_only = false, attention_only = false, experts_only = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--quick") == 0)
      rounds = 2;
    else if (strcmp(argv[i], "--ceilings") == 0)
      ceilings_only = true;
    else if (strcmp(argv[i], "--quantised") == 0)
      quantised_only = true;
    else if (strcmp(argv[i], "--attention") == 0)
      attention_only = true;
    else if (strcmp(argv[i], "--experts") == 0)
      experts_only = true;
    else if (strcmp(argv[i], "--cpu-time") == 0)
      bench_clock = CLOCK_THREAD_CPUTIME_ID;
    else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      options.num_threads = atoi(argv[++i]);
    else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
      options.isa = argv[++i];
    else
      return fprintf(stderr, "usage: cpu_bench [--threads N] [--isa TIER] [--quick] [--ceilings] "
                             "[--quantised] [--attention] [--experts] [--cpu-time]\n"),
             64;
  }
  if (bench_clock != CLOCK_MONOTONIC) options.num_threads = 1; /* others have clocks of their own */
  device_t *device;
  inferd_error_t error;
  if (ops_cpu.open(&options, &device, &error)) return fprintf(stderr, "%s\n", error.message), 78;
  step_limits_t limits = {.tokens_max = 4096,
                          .reqs_max = 64,
                          .logits_rows_max = 1,
                          .hidden_max = FFN,
                          .vocab_size = 64,
                          .max_model_len = 32768,
                          .heads_max = 14,
                          .head_dim_max = 64,
                          .experts_max = EXPERTS,
                          .experts_top_max = EXPERTS_TOP,
                          .expert_width_max = EXPERT_WIDTH};
  if (ops_cpu.prepare(device, &limits, &error)) return fprintf(stderr, "%s\n", error.message), 78;
  double bandwidth = read_bandwidth(device, rounds);
  double peak = peak_rate(device, DTYPE_BF16, rounds);
  printf("%s: memory read %.1f GB/s, bf16 products %.0f GFLOP/s, fp32 %.0f GFLOP/s\n",
         ops_cpu.describe(device), bandwidth * 1e-9, peak * 1e-9,
         peak_rate(device, DTYPE_F32, rounds) * 1e-9);
  if (ceilings_only) return ops_cpu.close(device), 0;
  for (int blocks = 0; blocks < 2 && experts_only; blocks++)
    bench_experts(device, bandwidth, peak, blocks == 1, rounds);
  if (experts_only) return ops_cpu.close(device), 0;
  if (!attention_only) bench_quantised(device, bandwidth, rounds);
  if (quantised_only) return ops_cpu.close(device), 0;
  if (!attention_only) bench_products(device, bandwidth, peak, rounds);
  bench_attentions(device, bandwidth, rounds);
  ops_cpu.close(device);
  return 0;
}
