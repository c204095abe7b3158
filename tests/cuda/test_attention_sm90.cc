/* test_attention_sm90.cc: the prefill kernel for Hopper, against softmax in double and itself. */
#include "tests/cuda/attention_bits.h"
#include "tests/cuda/attention_case.h"

/* Elsewhere it must say so: attend.c then takes the other kernel. */
static bool is_here() {
  gpu_kv_t kv = {};
  int major = 0, minor = 0;
  kv.num_layers = kv.num_blocks = kv.num_kv_heads = 1;
  kv.block_size = 16, kv.head_dim = 64, kv.dtype = DTYPE_BF16;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  const bool fits = gpu_attention_prefill_sm90_fits(&kv);
  check_that(fits == (major == 9 && minor == 0), "the kernel for Hopper is for Hopper");
  return fits;
}

static attention_options hopper() {
  attention_options o;
  o.hopper = true;
  return o;
}

TEST(sm90_head_sizes) {
  if (!is_here()) return;
  for (int dim : {64, 80, 96, 128})
    attention_case<bf16_t>({2, 1, dim, 16}, {150, 20}, {140, 20}, hopper());
  attention_case<f16_t>({2, 2, 128, 64}, {130}, {130}, hopper());
  attention_case<f16_t>({1, 1, 64, 32}, {257}, {2}, hopper());
}

TEST(sm90_groups) {
  if (!is_here()) return;
  for (int group = 1; group <= 8; group++)
    attention_case<bf16_t>({2 * group, 2, 64, 16 << group % 3}, {40 + group}, {20}, hopper());
}

/* Both stages are taken again and again; the chunk begins anywhere in a tile. */
TEST(sm90_with_cached_keys) {
  if (!is_here()) return;
  for (int size : {16, 32, 64}) {
    const int cached = 1 + random_below(150);
    attention_case<bf16_t>({4, 2, 64, size}, {cached + 70, 64, 3}, {70, 64, 2}, hopper());
  }
  for (int cached : {62, 63, 64, 126, 127, 128}) /* the last key of a tile, and the first */
    attention_case<bf16_t>({1, 1, 64, 32}, {cached + 70}, {70}, hopper());
  attention_case<bf16_t>({2, 1, 128, 64}, {640 + random_below(100)}, {129}, hopper());
  attention_case<f16_t>({1, 1, 64, 16}, {900 + random_below(100)}, {64 + random_below(3)},
                        hopper());
}

TEST(sm90_windows_caps_and_sinks) {
  if (!is_here()) return;
  attention_options o = hopper();
  for (int window : {1, 63, 64, 128, 245}) { /* 245: its end is where a tile begins */
    o.window = window;
    attention_case<bf16_t>({2, 1, 64, 16}, {390, 30}, {80, 30}, o);
  }
  o.softcap = 3, o.sinks = true, o.query_size = 8;
  attention_case<f16_t>({2, 1, 64, 16}, {220}, {170}, o);
}

TEST(sm90_extreme_logits) {
  if (!is_here()) return;
  attention_options o = hopper();
  o.query_size = 400;
  attention_case<f16_t>({2, 1, 64, 16}, {300, 40}, {60, 40}, o);
  o.softcap = 30;
  attention_case<f16_t>({2, 1, 64, 16}, {300, 40}, {60, 40}, o);
}

TEST(sm90_mixed_batch) {
  if (!is_here()) return;
  attention_case<bf16_t>({6, 2, 128, 16}, {50, 0, 200, 7, 33, 0}, {1, 0, 60, 1, 33, 0}, hopper());
}

/* Those of a decode differ; chunks of any length do not. */
template <class T> static void chunks(const paged_shape &shape, const attention_options &o) {
  const int a = 362 + random_below(20), b = 130 + random_below(9);
  bits_case<T> c(shape, {a, b}, o);
  c.check("in chunks", {{0, 0, 70}, {0, 70, 2}, {0, 72, 150}, {0, 222, a - 222}});
  c.check("beside others", {{1, 100, b - 100}, {0, 99, 130}, {1, 0, b}});
}

TEST(sm90_bits_do_not_depend_on_the_chunk) {
  if (!is_here()) return;
  attention_options o = hopper();
  chunks<bf16_t>({2, 1, 128, 16}, o);
  o.window = 100, o.softcap = 4, o.sinks = true;
  chunks<f16_t>({1, 1, 64, 64}, o);
}

TEST(sm90_refuses) {
  paged_problem<bf16_t> p({2, 1, 256, 16}, {20}, {20}, 1), q({2, 1, 64, 16, true}, {20}, {20}, 1);
  attention_device<bf16_t> wide(p, hopper(), {0, 0}), fp8(q, hopper(), {0, 0});
  for (auto *device : {&wide, &fp8}) {
    check_that(!gpu_attention_prefill_sm90_fits(&device->args.kv), "does not fit");
    check_that(gpu_attention_prefill_sm90(&device->args, 1, nullptr) == cudaErrorInvalidValue,
               "is refused");
  }
}
