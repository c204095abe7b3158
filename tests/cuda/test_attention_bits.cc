/* test_attention_bits.cc: a token's attention has the same bits in any batch, chunk and plan.
 *
 * Every token of a request is computed with the whole request in one prefill, then in other ways:
 * in chunks, alone or among others, as decodes, with rows cut or not. Compared bit for bit.
 */
#include "tests/cuda/attention_bits.h"

template <class T> static void all_ways(const paged_shape &shape, const attention_options &o) {
  const int a = 262 + random_below(20), b = 130 + random_below(9);
  bits_case<T> c(shape, {a, b}, o);
  c.check("in the other order, with other workers", {{1, 0, b}, {0, 0, a}});
  c.check("alone", {{1, 0, b}});
  c.check("in chunks, one of them a single token",
          {{0, 0, 70}, {0, 70, 1}, {0, 71, 150}, {0, 221, a - 221}});
  segments_t decodes;
  for (int key : {0, 1, 15, 16, 63, 127, 128, 129, 255, 256, a - 2, a - 1})
    decodes.push_back({0, key, 1});
  for (int key : {63, 64, b - 1}) decodes.push_back({1, key, 1});
  c.check("as decodes", decodes);
  c.check("as decodes that are not cut", decodes, (int)decodes.size());
  c.check("as decodes that are cut in two", decodes, 2 * (int)decodes.size() - 3);
  c.check("a decode alone", {{0, a - 1, 1}});
  c.check("decodes beside chunks", {{0, a - 1, 1}, {1, 100, b - 100}, {0, 200, 1}});
  const segments_t drafts = {{0, a - 5, 5}, {1, b - 1, 1}, {0, 120, 16}, {1, 60, 3}, {0, 0, 9}};
  c.check("drafts", drafts, 0, GPU_DECODE_QUERIES_MAX);
  c.check("drafts that are not cut", drafts, 34, GPU_DECODE_QUERIES_MAX);
  c.check("some drafts as chunks", drafts, 0, 5);
}

TEST(attention_bits_do_not_depend_on_the_batch) {
  attention_options o;
  all_ways<bf16_t>({4, 2, 64, 16}, o);
  all_ways<f16_t>({2, 1, 128, 64}, o);
  all_ways<bf16_t>({2, 1, 80, 32, true}, o);
}

TEST(attention_bits_with_windows_caps_and_sinks) {
  attention_options o;
  o.window = 100;
  all_ways<bf16_t>({2, 1, 64, 16}, o);
  o.softcap = 4, o.sinks = true, o.query_size = 8;
  all_ways<f16_t>({3, 1, 64, 32, true}, o);
}

TEST(attention_bits_of_wide_heads) {
  attention_options o;
  bits_case<bf16_t> c({1, 1, 256, 16}, {150}, o);
  c.check("as decodes and chunks", {{0, 149, 1}, {0, 0, 100}, {0, 128, 1}, {0, 100, 49}});
  c.check("not cut", {{0, 149, 1}, {0, 128, 1}}, 2);
  c.check("drafts", {{0, 134, 16}, {0, 126, 4}}, 0, GPU_DECODE_QUERIES_MAX);
}

/* Pieces grow from key 4096 on: a chunk at the end, and its tokens as decodes. */
TEST(attention_bits_of_long_rows) {
  attention_options o;
  const int len = 4600 + random_below(100);
  paged_problem<bf16_t> p({1, 1, 64, 64}, {len}, {20}, 3);
  attention_device<bf16_t> chunk(p, o, {0});
  chunk.run(o);
  const auto expected = chunk.out.get();
  for (int items_max : {0, 5, 1}) {
    paged_problem<bf16_t> last = p;
    last.query_lens = {1}, last.query_start_loc = {0, 1}, last.tokens = 1;
    last.qkv.assign(p.qkv.end() - p.width(), p.qkv.end());
    o.items_max = items_max;
    attention_device<bf16_t> decode(last, o, {0});
    decode.run(o);
    check_that(memcmp(decode.out.get().data(), &expected[19 * 64], 64 * sizeof(bf16_t)) == 0,
               "the last of " + std::to_string(len) + " tokens, items " +
                   std::to_string(items_max));
  }
}

/* The pages a request has, and their size, do not show either. */
TEST(attention_bits_do_not_depend_on_pages) {
  paged_problem<bf16_t> a({2, 1, 64, 16}, {300, 77}, {1, 70}, 3), b = a;
  b.shape.block_size = 64;
  b.stride = 6, b.num_blocks = 9;
  b.block_table = {7, 2, 5, 1, 8, 0, 3, 6, 0, 0, 0, 0};
  b.cache.assign(b.shape.block_bytes() * b.num_blocks * b.shape.num_layers, 0);
  for (int r = 0; r < 2; r++)
    for (int key = 0; key < a.seq_lens[r]; key++)
      for (int value = 0; value < 2; value++)
        for (int d = 0; d < 64; d++)
          store_value<bf16_t>(
              b.shape,
              &b.cache[b.shape.at(b.num_blocks, 1, b.block_of(r, key), value, 0, key % 64, d)],
              (float)a.element(r, key, value, 0, d));
  attention_options o;
  attention_device<bf16_t> small(a, o, {0, 0}), large(b, o, {0, 0});
  small.run(o), large.run(o);
  const auto x = small.out.get(), y = large.out.get();
  check_that(memcmp(x.data(), y.data(), x.size() * sizeof(bf16_t)) == 0, "pages of 16 and of 64");
}
