/* test_attention.cc: plan, decode and prefill over a paged cache, against softmax in double. */
#include "cuda/device_code/pieces.h"
#include "tests/cuda/attention_case.h"

TEST(decode_head_sizes) {
  for (int dim : {64, 80, 96, 128, 256}) {
    const lens_t lens = {1, 15, 16, 17, 63, 64, 65, 130 + random_below(90)};
    attention_case<bf16_t>({4, 2, dim, 16}, lens, ones(lens));
    attention_case<f16_t>({4, 2, dim, 64}, lens, ones(lens));
  }
}

TEST(decode_groups) {
  for (int group = 1; group <= 8; group++) {
    const lens_t lens = {77 + random_below(50), 5};
    attention_case<bf16_t>({2 * group, 2, 64, 32}, lens, ones(lens));
  }
  attention_case<bf16_t>({20, 1, 64, 16}, {90, 33}, {1, 1});
}

/* More heads a KV head than a tile has, in rows that are cut: each tile has tickets of its own. */
TEST(decode_groups_beyond_a_tile) {
  attention_options o;
  attention_case<bf16_t>({20, 1, 64, 16}, {400, 33, 2300}, {1, 1, 1});
  o.decode_queries = GPU_DECODE_QUERIES_MAX;
  attention_case<bf16_t>({48, 1, 128, 16}, {700, 300}, {1, 5}, o);
}

TEST(decode_items) { /* rows cut into their pieces, into a few, not at all */
  const lens_t lens = {400, 1, 129, 128, 700};
  for (int items_max : {0, 7, 5}) {
    attention_options o;
    o.items_max = items_max;
    attention_case<bf16_t>({8, 2, 128, 16}, lens, ones(lens), o);
    o.workers = 1;
    attention_case<f16_t>({8, 2, 64, 64}, lens, ones(lens), o);
    attention_case<bf16_t>({3, 1, 80, 32, true}, lens, ones(lens), o);
  }
}

TEST(decode_long_walk) { /* a warp's 32 block ids are used up */
  attention_options o;
  o.items_max = 1;
  attention_case<bf16_t>({1, 1, 64, 16}, {2300}, {1}, o);
}

TEST(decode_windows) {
  for (int window : {1, 16, 40, 100, 1000}) {
    attention_options o;
    o.window = window;
    const lens_t lens = {200, 16, 17, 1, 150 + random_below(100)};
    attention_case<bf16_t>({4, 2, 128, 16}, lens, ones(lens), o);
  }
}

TEST(decode_softcap_and_sinks) {
  attention_options o;
  o.softcap = 2.5f, o.query_size = 8;
  attention_case<f16_t>({4, 2, 64, 16}, {100, 20}, {1, 1}, o);
  o.softcap = 0, o.sinks = true;
  attention_case<f16_t>({4, 2, 64, 16}, {100, 20}, {1, 1}, o);
}

/* Rows of up to 16 query tokens share the tiles of the decode kernel, each with its own mask. */
TEST(decode_several_queries) {
  attention_options o;
  o.decode_queries = GPU_DECODE_QUERIES_MAX;
  for (int group : {1, 2, 3, 4, 7, 8, 20}) {
    const lens_t lens = {140 + random_below(150), 16, 77, 1, 130}, queries = {5, 16, 1, 1, 2};
    o.items_max = group % 2 == 0 ? 25 : 0;
    attention_case<bf16_t>({2 * group, 2, 64, 16 << group % 3}, lens, queries, o);
  }
  o.items_max = 0;
  for (int dim : {80, 128, 256}) {
    attention_case<f16_t>({4, 1, dim, 16}, {300, 9}, {2 + random_below(15), 9}, o);
    attention_case<bf16_t>({6, 2, dim, 32, true}, {150, 131}, {11, 4}, o);
  }
}

TEST(decode_several_queries_with_windows_caps_and_sinks) {
  attention_options o;
  o.decode_queries = GPU_DECODE_QUERIES_MAX;
  for (int window : {1, 5, 40, 128, 1000}) {
    o.window = window;
    attention_case<bf16_t>({8, 2, 64, 16}, {290, 16, 40, 129}, {7, 16, 1, 3}, o);
  }
  o.softcap = 3, o.sinks = true, o.query_size = 8;
  attention_case<f16_t>({6, 2, 64, 16}, {270, 30}, {6, 2}, o);
}

TEST(decode_several_queries_beside_prefill) {
  attention_options o;
  o.decode_queries = 3;
  attention_case<bf16_t>({6, 2, 128, 16}, {50, 0, 200, 7, 33, 0, 140}, {1, 0, 60, 3, 4, 0, 2}, o);
  attention_case<bf16_t>({2, 1, 64, 16}, {0, 70, 0, 9, 0}, {0, 2, 0, 3, 0}, o);
}

TEST(decode_padding_rows) {
  attention_case<bf16_t>({4, 2, 128, 16}, {0, 70, 0, 9, 0}, {0, 1, 0, 1, 0});
}

TEST(extreme_logits) {
  attention_options o;
  o.query_size = 400;
  attention_case<f16_t>({2, 1, 64, 16}, {200, 40}, {1, 1}, o);
  attention_case<f16_t>({2, 1, 64, 16}, {100, 40}, {60, 40}, o);
}

TEST(prefill_head_sizes) {
  for (int dim : {64, 80, 96, 128, 256})
    attention_case<bf16_t>({2, 1, dim, 16}, {150, 20}, {140, 20});
  attention_case<f16_t>({2, 2, 128, 64}, {130}, {130});
}

TEST(prefill_groups) {
  for (int group = 1; group <= 8; group++)
    attention_case<bf16_t>({2 * group, 2, 64, 16 << group % 3}, {40 + group}, {20});
  attention_case<f16_t>({5, 1, 128, 32, true}, {66}, {9});
}

TEST(prefill_with_cached_keys) {
  for (int size : {16, 32, 64}) {
    const int cached = 1 + random_below(150);
    attention_case<bf16_t>({4, 2, 64, size}, {cached + 70, 64, 3}, {70, 64, 2});
  }
  for (int cached : {30, 31}) /* a warp's first query sees all of a tile but its last key, or all */
    attention_case<bf16_t>({1, 1, 64, 16}, {cached + 80}, {80});
}

TEST(prefill_windows_caps_and_sinks) {
  for (int window : {1, 63, 64, 100}) {
    attention_options o;
    o.window = window;
    attention_case<bf16_t>({2, 1, 64, 16}, {290, 30}, {80, 30}, o);
  }
  attention_options o;
  o.softcap = 3, o.sinks = true, o.query_size = 8;
  attention_case<f16_t>({2, 1, 64, 16}, {120}, {70}, o);
}

TEST(mixed_batch) {
  attention_case<bf16_t>({6, 2, 128, 16}, {50, 0, 200, 7, 33, 0}, {1, 0, 60, 1, 33, 0});
  attention_options o;
  o.window = 20;
  attention_case<bf16_t>({6, 2, 64, 16}, {50, 200, 7, 33}, {1, 60, 1, 33}, o);
}

TEST(plan_of_many_rows) { /* more rows than the planner has threads */
  const int rows = 300;
  lens_t lens(rows), queries(rows);
  for (int r = 0; r < rows; r++) {
    queries[r] = r % 7 == 3 ? 0 : r % 50 == 9 ? 3 : 1;
    lens[r] = queries[r] == 0 ? 0 : queries[r] + random_below(40);
  }
  attention_case<bf16_t>({1, 1, 64, 16}, lens, queries);
}

/* e4m3 keys and values with a scale for each head; computed in bf16 or half. */
TEST(fp8_cache) {
  for (int dim : {64, 80, 96, 128, 256}) {
    const lens_t lens = {1, 16, 65, 130 + random_below(90)};
    attention_case<bf16_t>({4, 2, dim, 16, true}, lens, ones(lens));
    attention_case<f16_t>({2, 1, dim, 64, true}, {150, 20}, {70, 20});
    attention_case<bf16_t>({2, 1, dim, 32, true}, {150, 20}, {2, 20});
  }
  attention_options o;
  o.window = 40, o.softcap = 3, o.sinks = true;
  attention_case<bf16_t>({6, 2, 128, 32, true}, {50, 200, 7, 33}, {1, 60, 1, 33}, o);
}

/* Where rows are cut: by the definition, one key at a time. */
TEST(pieces) {
  int pieces = 0, begin = 0;
  for (int key = 0; key < 300000; key++) {
    int size = 128;
    while (key >= 32 * size) size *= 2;
    if (key > 0 && key % size == 0) pieces++, begin = key;
    if (piece_of(key) != pieces || piece_begin(pieces) != begin || piece_end(key) != begin + size)
      return check_that(false, "the piece of key " + std::to_string(key));
  }
  check_that(gpu_decode_items(0) == 0 && gpu_decode_items(1) == 1 && gpu_decode_items(1024) == 8 &&
                 gpu_decode_items(8192) == 48 && gpu_decode_items(131072) == 112,
             "items as the header says");
}

TEST(plan_cuts_less_when_its_list_is_short) {
  attention_options o;
  o.items_max = 5;
  paged_problem<bf16_t> p({2, 1, 64, 16}, {400, 300, 70}, {1, 1, 1}, 3);
  attention_device<bf16_t> device(p, o, {0, 0});
  device.run(o);
  const auto counts = device.counts.get();
  check_that(counts[0] == 5 && counts[2] == 2, "two items a row");
  const auto items = device.items.get();
  check_that(items[0].first == 0 && items[0].last == 384 && items[1].first == 384 &&
                 items[1].last == 400 && !items[1].whole && items[4].whole,
             "a long item, then one of a piece");
}

TEST(plan_of_rows_of_several_queries) {
  attention_options o;
  o.decode_queries = 5, o.items_max = 15;
  paged_problem<bf16_t> p({8, 1, 64, 16}, {300, 70, 140}, {5, 1, 6}, 3);
  attention_device<bf16_t> device(p, o, std::vector<float>(8));
  device.run(o);
  const auto counts = device.counts.get(), rows = device.row_items.get();
  /* 2 queries of 8 heads a tile: 3 tiles in each of 2 cuts, where 3 cuts have 15 + 1 slots */
  check_that(counts[0] == 7 && counts[1] == 1 && counts[2] == 2, "items, tiles, cuts");
  check_that(rows[0] == 0 && rows[1] == 2 && rows[2] == 10 && rows[3] == 1 && rows[5] == 0,
             "slots");
  const auto items = device.items.get();
  check_that(items[2].query == 4 && items[2].queries == 1 && items[2].position == 299 &&
                 items[2].slot == 4 && items[2].last == 256 && !items[2].whole,
             "the last tile of a cut");
  check_that(items[3].first == 256 && items[3].query == 0 && items[3].slot == 5, "the next cut");
}

/* A graph's bucket: rows and tokens beyond the batch have no query, no key, slot -1; what stands in
 * the outputs of padding tokens stays. */
TEST(graph_bucket_padding) {
  for (int layout = 0; layout < 3; layout++) {
    const lens_t lens = layout == 0   ? lens_t{70, 1, 129, 0, 0, 0, 0, 0}
                        : layout == 1 ? lens_t{1, 0, 0, 0}
                                      : lens_t{0, 0};
    const lens_t queries = layout == 0   ? lens_t{1, 1, 129, 0, 0, 0, 0, 0}
                           : layout == 1 ? lens_t{1, 0, 0, 0}
                                         : lens_t{0, 0};
    attention_options o;
    paged_problem<bf16_t> p({4, 2, 64, 16}, lens, queries, 3);
    const size_t real = (size_t)p.tokens * 4 * 64;
    const auto expected = attention_reference(p, o, {0, 0, 0, 0});
    p.tokens += 5; /* tokens of the bucket */
    p.qkv.resize((size_t)p.tokens * p.width(), from_float<bf16_t>(NAN));
    attention_device<bf16_t> device(p, o, {0, 0, 0, 0});
    MUST(cudaMemset(device.out.p, 0x11, device.out.bytes()));
    device.run(o);
    auto out = device.out.get();
    bool untouched = true;
    for (size_t i = real; i < out.size(); i++) {
      uint16_t bits;
      memcpy(&bits, &out[i], sizeof bits);
      untouched = untouched && bits == 0x1111;
    }
    check_that(untouched, "outputs of padding tokens stay as they are");
    out.resize(real);
    check_rows("bucket " + std::to_string(layout), expected, as_double(out), 64, 0.01);
  }
}
