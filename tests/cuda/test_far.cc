/* test_far.cc: blocks of the KV cache and rows of tables far beyond 2^32 bytes and 2^31 elements.
 */
#include "cuda/kernels/rope/qkv.h"
#include "tests/cuda/attention_rig.h"
#include "tests/cuda/far.h"

enum { FAR_BLOCKS = 1200000 };
static int32_t far_block(int32_t block) {
  return FAR_BLOCKS - 1 - 7 * block;
}

TEST(attention_over_far_blocks) {
  check_that(more_memory == 0, "memory of the emulator");
  paged_problem<bf16_t> p({2, 1, 64, 16}, {90, 150}, {1, 140}, 3), far = p;
  attention_options o;
  attention_device<bf16_t> near(p, o, {0, 0});
  near.run(o);
  const size_t block_bytes = p.shape.block_bytes(), layer = p.shape.layer;
  far_memory cache(block_bytes * FAR_BLOCKS * p.shape.num_layers);
  for (int b = 0; b < p.num_blocks; b++)
    cache.put((layer * FAR_BLOCKS + far_block(b)) * block_bytes,
              &p.cache[(layer * p.num_blocks + b) * block_bytes], block_bytes);
  for (int32_t &block : far.block_table) block = far_block(block);
  attention_device<bf16_t> device(far, o, {0, 0});
  device.args.kv.base = cache.p, device.args.kv.num_blocks = FAR_BLOCKS;
  device.run(o);
  const auto expected = near.out.get(), got = device.out.get();
  check_that(memcmp(got.data(), expected.data(), got.size() * sizeof(bf16_t)) == 0,
             "the same bits from far blocks");
}

TEST(store_and_copy_of_far_blocks) {
  const paged_shape s = {1, 1, 64, 16};
  const size_t block_bytes = s.block_bytes(), layer_bytes = block_bytes * FAR_BLOCKS;
  far_memory cache(layer_bytes * s.num_layers);
  const gpu_kv_t kv = {cache.p, s.num_layers, FAR_BLOCKS, 16, 1, 64, DTYPE_BF16, 0, nullptr};
  const auto qkv = random_values<bf16_t>(3 * 64, 1);
  device_array<bf16_t> d_qkv(qkv);
  const int slot = random_below(16);
  device_array<int64_t> slots(std::vector<int64_t>{(int64_t)far_block(3) * 16 + slot});
  gpu_rope_store_t args = {};
  args.qkv = d_qkv.p, args.slots = slots.p, args.num_heads = 1, args.tokens = 1, args.layer = 1;
  MUST(gpu_rope_store(&kv, &args, nullptr));
  const block_copy_t copy = {far_block(3), far_block(5), 16};
  device_array<block_copy_t> copies(std::vector<block_copy_t>{copy});
  MUST(gpu_page_copy(&kv, copies.p, 1, nullptr));
  const auto block = cache.get(layer_bytes + far_block(5) * block_bytes, block_bytes);
  bool stored = true;
  for (int value = 0; value < 2; value++)
    for (int d = 0; d < 64; d++)
      stored = stored && stored_value<bf16_t>(s, &block[s.at(1, 0, 0, value, 0, slot, d)]) ==
                             (double)to_float(qkv[(1 + value) * 64 + d]);
  check_that(stored, "a slot that was stored far away, and copied");
}

TEST(qkv_to_far_blocks) {
  const paged_shape s = {1, 1, 64, 16};
  const size_t block_bytes = s.block_bytes(), layer_bytes = block_bytes * FAR_BLOCKS;
  far_memory cache(layer_bytes * s.num_layers);
  const gpu_kv_t kv = {cache.p, s.num_layers, FAR_BLOCKS, 16, 1, 64, DTYPE_BF16, 0, nullptr};
  device_array<bf16_t> in(random_values<bf16_t>(32, 1)), qkv(3 * 64),
      weight(random_values<bf16_t>(3 * 64 * 32, 1));
  const int slot = random_below(16);
  device_array<int64_t> slots(std::vector<int64_t>{(int64_t)far_block(3) * 16 + slot});
  gpu_skinny_t layer = {};
  layer.in = in.p, layer.weight = weight.p, layer.out = qkv.p;
  layer.rows = 1, layer.n = 3 * 64, layer.k = 32;
  gpu_rope_store_t args = {};
  args.qkv = qkv.p, args.slots = slots.p, args.num_heads = 1, args.tokens = 1, args.layer = 1;
  MUST(gpu_qkv(&kv, &layer, &args, nullptr));
  const auto made = qkv.get();
  const auto block = cache.get(layer_bytes + far_block(3) * block_bytes, block_bytes);
  bool stored = true;
  for (int value = 0; value < 2; value++)
    for (int d = 0; d < 64; d++)
      stored = stored && stored_value<bf16_t>(s, &block[s.at(1, 0, 0, value, 0, slot, d)]) ==
                             (double)to_float(made[(1 + value) * 64 + d]);
  check_that(stored, "a slot that was stored far away by the layer");
}

TEST(rows_of_far_tables) {
  const size_t width = 65536, rows = 70000;
  far_memory table(rows * width * sizeof(bf16_t));
  const auto row = random_values<bf16_t>(width, 1);
  table.put((rows - 1) * width * sizeof(bf16_t), row.data(), width * sizeof(bf16_t));
  device_array<int32_t> ids(std::vector<int32_t>{(int32_t)rows - 1, -1});
  device_array<bf16_t> out(2 * width);
  auto is_row = [&out, &row, width] {
    return memcmp(out.get().data(), row.data(), width * sizeof(bf16_t)) == 0;
  };
  const gpu_table_t args = {table.p, (int32_t)rows, (int32_t)width, {}, 0};
  MUST(gpu_embed(DTYPE_BF16, out.p, &args, ids.p, 1.0f, 2, nullptr));
  check_that(is_row(), "embedding of a far row");
  MUST(cudaMemset(out.p, 0, out.bytes()));
  MUST(gpu_gather(DTYPE_BF16, out.p, table.p, ids.p, (int32_t)width, 2, nullptr));
  check_that(is_row(), "gather of a far row");
}
