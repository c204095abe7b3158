/* bench_packed.cu: layers and experts of quantised weights beside bf16, for gpu_bench.
 *
 * Codes are random bits and scales random numbers of a usual size. A line has the time of the
 * packed layer, of the same layer in bf16 by the faster of our own kernels and cuBLASLt, and for
 * many rows that of unpacking the matrix slice by slice, which cards with fast tensor cores do
 * (cuda/unpacked.c).
 */
#include "cuda/dev/bench.h"
#include "cuda/kernels/moe.h"

enum { SLICE_BYTES = 64 << 20, COMPARED_ROWS = 256, CHUNKED_ROWS = 128, PADDED = 16 };

struct kind_t {
  const char *name;
  gpu_codes_t codes;
  gpu_scales_t scales;
  gpu_unpack_t unpack;
  int group_shift;
  bool has_min;
  float zero;
};
static const kind_t kinds[] = {
    {"4 bits, groups of 128", GPU_CODES_4, GPU_SCALES_F16_ZERO, GPU_UNPACK_FUSED, 7, true, 136},
    {"Q4_K", GPU_CODES_4, GPU_SCALES_TWO_LEVEL, GPU_UNPACK_PRODUCT, 5, true, 128},
    {"Q8_0", GPU_CODES_8, GPU_SCALES_F16, GPU_UNPACK_FUSED, 5, false, 32768 + 128},
    {"FP8", GPU_CODES_E4M3, GPU_SCALES_F32_WIDE, GPU_UNPACK_STEPS, 8, false, 0}};
static const kind_t mxfp4 = {
    "MXFP4", GPU_CODES_E2M1, GPU_SCALES_EXPONENT, GPU_UNPACK_FUSED, 5, false, 0};

/* ---- a packed matrix ---- */

/* Where all lies, as kernel_types.h says. */
static gpu_packed_t form_of(const kind_t &kind, int cols) {
  const bool is_8 = kind.codes == GPU_CODES_8 || kind.codes == GPU_CODES_E4M3;
  const bool is_two_level = kind.scales == GPU_SCALES_TWO_LEVEL;
  const int slots = kind.group_shift > 7 ? 1 : GPU_UNIT_COLS >> kind.group_shift;
  const int one = kind.scales == GPU_SCALES_F32_WIDE                   ? 4
                  : is_two_level || kind.scales == GPU_SCALES_EXPONENT ? 1
                                                                       : 2;
  gpu_packed_t form = {};
  form.codes = kind.codes, form.scales = kind.scales, form.unpack = kind.unpack;
  form.group_shift = kind.group_shift, form.has_min = kind.has_min, form.zero = kind.zero;
  form.supers_at = (uint32_t)((is_8 ? 2 : 1) * GPU_BLOCK_BYTES +
                              GPU_PANEL_ROWS * slots * one * (kind.has_min ? 2 : 1));
  const uint32_t supers = is_two_level ? GPU_PANEL_ROWS * (kind.has_min ? 4 : 2) : 0;
  form.unit_bytes = (form.supers_at + supers + PADDED - 1) / PADDED * PADDED;
  form.panel_bytes = (uint64_t)((cols + GPU_UNIT_COLS - 1) / GPU_UNIT_COLS) * form.unit_bytes;
  return form;
}

static size_t packed_bytes(const gpu_packed_t &form, int rows) {
  return (size_t)((rows + GPU_PANEL_ROWS - 1) / GPU_PANEL_ROWS) * form.panel_bytes;
}

/* 2^-8 times a number of [1, 2), as the low half of a word. */
GPU_FN uint16_t small_half(uint32_t drawn) {
  return (uint16_t)pack<f16_t>((1.0f + (float)(drawn % 64) / 64.0f) * 0x1p-8f, 0.0f);
}

/* The scales of a row of a unit, of `slots`, each the same in all the ways that it may be written.
 */
GPU_FN void put_scales(const gpu_packed_t &form, uint8_t *unit, int row, uint32_t drawn) {
  const int slots = form.group_shift > 7 ? 1 : GPU_UNIT_COLS >> form.group_shift;
  const bool is_8 = form.codes == GPU_CODES_8 || form.codes == GPU_CODES_E4M3;
  uint8_t *to = unit + (is_8 ? 2 : 1) * GPU_BLOCK_BYTES;
  for (int i = row * slots; i < (row + 1) * slots; i++, drawn = drawn * 1664525u + 1013904223u) {
    if (form.scales == GPU_SCALES_F32_WIDE) {
      ((float *)to)[i] = (1.0f + (float)(drawn >> 8 & 0xffff) * 0x1p-16f) * 0x1p-8f;
    } else if (form.scales == GPU_SCALES_F16_ZERO) {
      const float point = form.zero + (float)(drawn >> 8 & 7);
      ((uint16_t *)to)[2 * i] = small_half(drawn >> 16);
      ((uint16_t *)to)[2 * i + 1] = (uint16_t)pack<f16_t>(point, 0.0f);
    } else if (form.scales == GPU_SCALES_F16) {
      ((uint16_t *)to)[i] = small_half(drawn >> 16);
    } else if (form.scales == GPU_SCALES_TWO_LEVEL) {
      to[2 * i] = (uint8_t)(1 + (drawn >> 8) % 63), to[2 * i + 1] = (uint8_t)(drawn >> 16 & 63);
    } else {
      to[i] = (uint8_t)(118 + (drawn >> 8 & 7));
    }
  }
  if (form.scales != GPU_SCALES_TWO_LEVEL) return;
  uint16_t *supers = (uint16_t *)(unit + form.supers_at) + 2 * row;
  supers[0] = small_half(drawn >> 8), supers[1] = small_half(drawn >> 16);
}

__global__ void scales_kernel(uint8_t *units, size_t rows, const gpu_packed_t form) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += stride)
    put_scales(form, units + i / GPU_PANEL_ROWS * form.unit_bytes, (int)(i % GPU_PANEL_ROWS),
               (uint32_t)i * 2654435761u);
}

static void *take_packed(memory_t &memory, const gpu_packed_t &form, int rows) {
  const size_t bytes = packed_bytes(form, rows), units = bytes / form.unit_bytes;
  void *p = memory.take(bytes, form.codes == GPU_CODES_E4M3 ? FILL_E4M3 : FILL_BITS);
  MUST(LAUNCH(scales_kernel, ((unsigned)(bench.tiny ? 1 : 8 * bench.multiprocessors)), (256), 0,
              bench.stream, (uint8_t *)p, units * GPU_PANEL_ROWS, form));
  MUST(cudaStreamSynchronize(bench.stream));
  return p;
}

/* ---- equal bits ---- */

__global__ void differ_kernel(const uint16_t *left, const uint16_t *right, size_t count,
                              int *found) {
  const size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
    if (left[i] != right[i]) atomicAdd(found, 1);
}

/* How many of the numbers of two arrays have other bits. */
static int differing(memory_t &memory, const void *left, const void *right, size_t count) {
  int *found = (int *)memory.take(sizeof(int)), result = 0;
  MUST(LAUNCH(differ_kernel, ((unsigned)(bench.tiny ? 1 : 8 * bench.multiprocessors)), (256), 0,
              bench.stream, (const uint16_t *)left, (const uint16_t *)right, count, found));
  MUST(cudaStreamSynchronize(bench.stream));
  MUST(cudaMemcpy(&result, found, sizeof result, cudaMemcpyDeviceToHost));
  return result;
}

/* ---- layers ---- */

typedef std::vector<int> sizes_t;
static sizes_t rows_of() {
  return bench.tiny ? sizes_t{1, 33, 129} : sizes_t{1, 8, 32, 33, 64, 256, 4096};
}

/* A line, of the time of bf16 too. `bytes` 0: not known how many are read. */
static void say(const char *layer, const char *weights, int rows, double us, double bytes,
                double bf16_us, double unpack_us, bool equal) {
  printf(
      "{\"part\": \"packed\", \"layer\": \"%s\", \"weights\": \"%s\", \"rows\": %d, \"us\": %.2f, "
      "\"bf16_us\": %.2f, \"equal\": %s",
      layer, weights, rows, us, bf16_us, equal ? "true" : "false");
  if (bytes > 0) printf(", \"tb_s\": %.4f", bytes / us * 1e-6);
  if (unpack_us > 0) printf(", \"unpack_us\": %.2f", unpack_us);
  printf("}\n");
}

struct packed_bench_t {
  const char *name;
  int n, k;
  memory_t memory;
  gpu_skinny_t args = {};
  void *out, *other;
  std::vector<double> bf16_us; /* by rows_of() */
  packed_bench_t(const char *layer, int columns, int depth);
  double linear_us(const std::vector<void *> &weights, int rows);
  void time_bf16(product_t *lib);
  double unpack_us(const gpu_packed_t &form, const std::vector<void *> &weights);
  bool is_equal(const gpu_packed_t &form, void *packed, int rows);
  bool run(const kind_t &kind);
};

packed_bench_t::packed_bench_t(const char *layer, int columns, int depth)
    : name(layer), n(columns), k(depth) {
  const size_t most = (size_t)rows_of().back();
  args.in = memory.take(most * k * 2, FILL_BF16);
  out = memory.take(most * n * 2), other = memory.take((size_t)COMPARED_ROWS * n * 2);
  args.n = n, args.k = k, args.workers = bench.multiprocessors;
  if (n > 32 * bench.multiprocessors) return;
  args.partial = (float *)memory.take(gpu_skinny_partial_bytes(GPU_SKINNY_ROWS_MAX, n));
  args.tickets = (int32_t *)memory.take(((size_t)n / 8 + 1) * 4);
}

double packed_bench_t::linear_us(const std::vector<void *> &weights, int rows) {
  args.rows = rows, args.out = out;
  return time_us(
      [&](int turn) {
        args.weight = weights[turn];
        MUST(gpu_linear(DTYPE_BF16, &args, bench.stream));
      },
      (int)weights.size());
}

void packed_bench_t::time_bf16(product_t *lib) {
  memory_t plain;
  std::vector<void *> weights;
  const size_t bytes = (size_t)n * k * 2;
  for (int i = cold_copies(bytes); i > 0; i--) weights.push_back(plain.take(bytes, FILL_BF16));
  args.packed = {};
  for (int rows : rows_of()) {
    const double own = linear_us(weights, rows);
    const double library =
        lib != nullptr ? best_product_us(*lib, rows, n, k, args.in, weights, out) : INFINITY;
    bf16_us.push_back(std::min(own, library));
  }
}

/* All slices of the matrix, one after the other, into one piece of memory. */
double packed_bench_t::unpack_us(const gpu_packed_t &form, const std::vector<void *> &weights) {
  memory_t scratch;
  const size_t bytes = std::min((size_t)SLICE_BYTES, (size_t)n * k * 2);
  const int fitting = (int)(bytes / (size_t)k / 2) / GPU_PANEL_ROWS * GPU_PANEL_ROWS;
  void *to = scratch.take(bytes, FILL_BITS);
  return time_us(
      [&](int turn) {
        for (int first = 0; first < n; first += fitting) {
          const gpu_unpack_rows_t rows = {first, std::min(fitting, n - first), k};
          MUST(gpu_unpack(DTYPE_BF16, to, &form, weights[turn], &rows, bench.stream));
        }
      },
      (int)weights.size());
}

/* Whether the layer has the bits of its weights unpacked. */
bool packed_bench_t::is_equal(const gpu_packed_t &form, void *packed, int rows) {
  memory_t plain;
  gpu_skinny_t layer = args;
  void *weight = plain.take((size_t)n * k * 2, FILL_BITS);
  const gpu_unpack_rows_t all = {0, n, k};
  layer.rows = rows, layer.weight = packed, layer.packed = form, layer.out = out;
  MUST(gpu_linear(DTYPE_BF16, &layer, bench.stream));
  MUST(gpu_unpack(DTYPE_BF16, weight, &form, packed, &all, bench.stream));
  layer.weight = weight, layer.packed = {}, layer.out = other;
  MUST(gpu_linear(DTYPE_BF16, &layer, bench.stream));
  return differing(plain, out, other, (size_t)rows * n) == 0;
}

bool packed_bench_t::run(const kind_t &kind) {
  memory_t codes;
  std::vector<void *> weights;
  const gpu_packed_t form = form_of(kind, k);
  const size_t bytes = packed_bytes(form, n);
  bool good = true;
  size_t place = 0;
  for (int i = cold_copies(bytes); i > 0; i--) weights.push_back(take_packed(codes, form, n));
  const double unpacking = unpack_us(form, weights);
  for (int rows : rows_of()) {
    const bool equal = rows > COMPARED_ROWS || is_equal(form, weights[0], rows);
    args.packed = form;
    const double us = linear_us(weights, rows);
    say(name, kind.name, rows, us, (double)bytes, bf16_us[place++],
        rows > CHUNKED_ROWS ? unpacking : 0, equal);
    good = good && equal;
  }
  return good;
}

/* ---- experts ---- */

static const size_t EXPERTS_BYTES = (size_t)8 << 30; /* of all copies */

struct experts_t {
  const char *name;
  int hidden, width, experts, top;
  gpu_activation_t activation;
};

/* The experts' matrices, packed if `kind` is not null, in as many copies as are not in the cache
 * any more when they are used again. */
static std::vector<gpu_moe_t> take_experts(memory_t &memory, const experts_t &shape,
                                           const kind_t *kind) {
  const int up_rows = 2 * shape.width * shape.experts, down_rows = shape.hidden * shape.experts;
  gpu_moe_t args = {};
  if (kind != nullptr)
    args.up_packed = form_of(*kind, shape.hidden), args.down_packed = form_of(*kind, shape.width);
  const size_t up =
      kind != nullptr ? packed_bytes(args.up_packed, up_rows) : (size_t)up_rows * shape.hidden * 2;
  const size_t down = kind != nullptr ? packed_bytes(args.down_packed, down_rows)
                                      : (size_t)down_rows * shape.width * 2;
  const int copies = std::min(cold_copies((up + down) / shape.experts * shape.top),
                              std::max(1, (int)(EXPERTS_BYTES / (up + down))));
  std::vector<gpu_moe_t> turns;
  args.hidden = shape.hidden, args.width = shape.width, args.num_experts = shape.experts,
  args.top_k = shape.top;
  args.normalise = 1, args.activation = shape.activation;
  args.router = (float *)memory.take((size_t)shape.experts * shape.hidden * 4, FILL_F32);
  args.workspace =
      memory.take(gpu_moe_workspace_bytes(shape.hidden, shape.width, shape.experts, shape.top));
  for (int i = 0; i < copies; i++) {
    args.up =
        kind != nullptr ? take_packed(memory, args.up_packed, up_rows) : memory.take(up, FILL_BF16);
    args.down = kind != nullptr ? take_packed(memory, args.down_packed, down_rows)
                                : memory.take(down, FILL_BF16);
    turns.push_back(args);
  }
  return turns;
}

/* Microseconds by rows_of(). */
static std::vector<double> experts_us(const experts_t &shape, const kind_t *kind) {
  memory_t memory;
  const int most = rows_of().back();
  std::vector<double> found;
  std::vector<gpu_moe_t> turns = take_experts(memory, shape, kind);
  void *in = memory.take((size_t)most * shape.hidden * 2, FILL_BF16);
  void *out = memory.take((size_t)most * shape.hidden * 2);
  for (int rows : rows_of()) {
    for (gpu_moe_t &turn : turns) turn.in = turn.residual = in, turn.out = out, turn.rows = rows;
    found.push_back(
        time_us([&](int turn) { MUST(gpu_moe(DTYPE_BF16, &turns[turn], bench.stream)); },
                (int)turns.size()));
  }
  return found;
}

/* Whether packed experts have the bits of their weights unpacked. */
static bool are_experts_equal(const experts_t &shape, const kind_t &kind) {
  const int rows = 33;
  const size_t values = (size_t)rows * shape.hidden;
  memory_t memory;
  gpu_moe_t args = take_experts(memory, shape, &kind)[0], plain = args;
  const gpu_unpack_rows_t up = {0, 2 * shape.width * shape.experts, shape.hidden};
  const gpu_unpack_rows_t down = {0, shape.hidden * shape.experts, shape.width};
  void *up_plain = memory.take((size_t)up.count * up.cols * 2, FILL_BITS);
  void *down_plain = memory.take((size_t)down.count * down.cols * 2, FILL_BITS);
  void *out = memory.take(values * 2), *other = memory.take(values * 2);
  MUST(gpu_unpack(DTYPE_BF16, up_plain, &args.up_packed, args.up, &up, bench.stream));
  MUST(gpu_unpack(DTYPE_BF16, down_plain, &args.down_packed, args.down, &down, bench.stream));
  args.in = args.residual = memory.take(values * 2, FILL_BF16), args.rows = rows, args.out = out;
  plain.in = plain.residual = args.in, plain.rows = rows, plain.out = other;
  plain.up = up_plain, plain.down = down_plain, plain.up_packed = plain.down_packed = {};
  MUST(gpu_moe(DTYPE_BF16, &args, bench.stream));
  MUST(gpu_moe(DTYPE_BF16, &plain, bench.stream));
  return differing(memory, out, other, values) == 0;
}

static bool bench_experts(const experts_t &shape) {
  const bool equal = are_experts_equal(shape, mxfp4);
  const std::vector<double> bf16 = experts_us(shape, nullptr), packed = experts_us(shape, &mxfp4);
  for (size_t i = 0; i < packed.size(); i++)
    say(shape.name, mxfp4.name, rows_of()[i], packed[i], 0, bf16[i], 0, equal);
  return equal;
}

bool bench_packed(product_t *lib) {
  const struct {
    const char *name;
    int n, k;
  } layers[] = {{"8B qkv", 6144, 4096},
                {"8B o", 4096, 4096},
                {"8B gate_up", 28672, 4096},
                {"8B down", 4096, 14336}};
  bool good = true;
  for (const auto &layer : layers) {
    packed_bench_t of(layer.name, bench.tiny ? layer.n / 128 / 8 * 8 : layer.n,
                      bench.tiny ? layer.k / 32 : layer.k);
    of.time_bf16(lib);
    for (const kind_t &kind : kinds) good = of.run(kind) && good;
  }
  const experts_t all[] = {{"experts 30B-A3B", 2048, 768, 128, 8, GPU_SILU_MUL},
                           {"experts gpt-oss-20b", 2880, 2880, 32, 4, GPU_CLAMPED_SWIGLU}};
  for (experts_t shape : all) {
    if (bench.tiny) shape.hidden /= 32, shape.width = 24, shape.experts = 8, shape.top = 2;
    if (bench.tiny) shape.hidden = shape.hidden / 8 * 8;
    good = bench_experts(shape) && good;
  }
  return good;
}
