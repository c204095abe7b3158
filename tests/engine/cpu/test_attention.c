/* test_attention.c: rope_store and attention of every tier against double precision, and the bits
 * of a row against each other however it was computed. */
#include "engine/cpu/cpu.h"
#include "tests/engine/cpu/paged.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* heads, kv, dim, block, window, rope, softcap, sinks, qk_norm, dtype, lengths, both ways, int8 */
static const setting_t settings[] = {
    {1, 1, 16, 16, 0, 16, 0, false, false, DTYPE_F32, {1, 17, 40, 0}, false, false},
    {14, 2, 64, 16, 0, 64, 0, false, false, DTYPE_BF16, {300, 5, 0, 0}, false, false},
    {6, 2, 80, 32, 0, 40, 0, false, true, DTYPE_F16, {130, 33, 64, 0}, false, false},
    {8, 1, 96, 64, 50, 96, 0, true, false, DTYPE_BF16, {200, 129, 0, 0}, false, false},
    {2, 2, 128, 16, 7, 0, 30, false, false, DTYPE_F32, {90, 100, 3, 16}, false, false},
    {4, 2, 256, 16, 300, 256, 5, true, true, DTYPE_BF16, {600, 0, 0, 0}, false, false},
    {3, 1, 20, 4, 0, 20, 0, true, false, DTYPE_F32, {70, 9, 0, 0}, false, false},
    {40, 1, 64, 1, 0, 64, 0, false, false, DTYPE_F16, {30, 2, 0, 0}, false, false},
    {2, 1, 48, 128, 33, 48, 0, false, true, DTYPE_BF16, {270, 40, 0, 0}, false, false},
    {5, 1, 37, 1, 0, 36, 0, false, false, DTYPE_BF16, {45, 6, 0, 0}, false, false},
    {7, 1, 24, 2, 31, 24, 0, false, false, DTYPE_BF16, {290, 33, 0, 0}, false, false},
    {32, 2, 128, 16, 0, 128, 0, false, false, DTYPE_BF16, {320, 31, 0, 0}, false, false},
    {3, 3, 80, 8, 100, 80, 0, true, false, DTYPE_BF16, {280, 65, 1, 0}, false, false},
    {14, 2, 64, 16, 0, 64, 0, false, false, DTYPE_BF16, {300, 5, 0, 0}, false, true},
    {8, 2, 128, 32, 50, 96, 30, true, true, DTYPE_F32, {130, 33, 64, 0}, false, true},
    {5, 1, 37, 1, 0, 36, 0, false, false, DTYPE_F16, {45, 6, 0, 0}, false, true},
    {3, 3, 80, 8, 100, 80, 0, true, false, DTYPE_BF16, {280, 65, 1, 0}, false, true},
    {2, 1, 256, 128, 0, 256, 0, false, false, DTYPE_BF16, {270, 40, 0, 0}, false, true},
};
enum { NUM_SETTINGS = sizeof settings / sizeof *settings };

/* The same for attention in both directions, which takes whole sequences. */
static const setting_t both_ways[] = {
    {1, 1, 16, 16, 0, 16, 0, false, false, DTYPE_F32, {1, 17, 40, 0}, true, false},
    {12, 12, 64, 16, 0, 0, 0, false, false, DTYPE_BF16, {300, 5, 130, 0}, true, false},
    {6, 2, 80, 32, 65, 80, 0, false, true, DTYPE_BF16, {330, 33, 64, 0}, true, false},
    {3, 1, 20, 4, 9, 20, 0, true, false, DTYPE_F32, {70, 9, 1, 0}, true, false},
    {4, 2, 256, 16, 257, 256, 5, false, true, DTYPE_F16, {600, 40, 0, 0}, true, false},
    {2, 2, 32, 16, 0, 32, 0, false, false, DTYPE_BF16, {257, 256, 100, 0}, true, false},
    {2, 2, 32, 16, 0, 32, 0, false, false, DTYPE_BF16, {257, 256, 100, 0}, true, true},
};
enum { NUM_BOTH_WAYS = sizeof both_ways / sizeof *both_ways };

/* K and V are rounded after fp32 arithmetic, so a rounding may fall the other way: half a unit of
 * the type, in a weighted mean, of values up to 2 and scores up to 8. Tiers with a bf16 product
 * round queries and weights too, and the numbers that codes of 8 bits stand for. */
static double tolerance(const setting_t *s, const char *tier) {
  bool bf16 = strcmp(tier, "avx512bf16") == 0 || strcmp(tier, "amx") == 0;
  if (s->int8) return bf16 ? 4e-2 : 1.2e-2;
  if (s->kv_dtype == DTYPE_F32) return 3e-5;
  if (s->kv_dtype == DTYPE_F16) return 2e-3;
  return bf16 ? 2.4e-2 : 1.2e-2;
}

/* Positions of a sequence that are compared: every one, or every 13th of a long sequence. */
static int32_t sample_step(const world_t *w, int sequence) {
  return w->seq[sequence].length > 100 ? 13 : 1;
}

/* expected[sequence] = the outputs at the sampled positions, the last one first. The caller frees
 * them. All tiers have the same inputs, so one reference serves all. */
static void make_reference(const world_t *w, double *expected[SEQUENCES_MAX]) {
  size_t width = (size_t)(w->s.heads * w->s.dim);
  for (int q = 0; q < SEQUENCES_MAX; q++) {
    int32_t length = w->seq[q].length, step = sample_step(w, q);
    double *to = expected[q] = malloc((size_t)(length / step + 1) * width * sizeof *to);
    for (int32_t p = length - 1; p >= 0; p -= step, to += width) world_reference(w, q, p, to);
  }
}

static void expect_near(const world_t *w, double *const expected[SEQUENCES_MAX], const char *tier,
                        int setting) {
  int32_t width = w->s.heads * w->s.dim;
  double worst = 0, total = 0;
  int64_t elements = 0;
  for (int q = 0; q < SEQUENCES_MAX; q++) {
    const double *wanted = expected[q];
    for (int32_t p = w->seq[q].length - 1; p >= 0; p -= sample_step(w, q), wanted += width) {
      for (int32_t j = 0; j < width; j++) {
        double error = fabs(w->seq[q].out[p * width + j] - wanted[j]);
        if (!(error <= worst)) worst = error;
        total += error, elements++;
      }
    }
  }
  cr_assert(worst <= tolerance(&w->s, tier), "%s setting %d: off by %g, seed %llu", tier, setting,
            worst, SEED);
  cr_assert(total / (double)elements <= tolerance(&w->s, tier) / 20, "%s setting %d: mean error %g",
            tier, setting, total / (double)elements);
}

static void expect_agreement(const setting_t *list, int num_settings, int32_t chunk) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int i = 0; i < num_settings; i++) {
    double *expected[SEQUENCES_MAX];
    for (int t = 0; t < count; t++) {
      world_t w;
      world_open(&w, &list[i], tiers[t], 2, 0);
      world_prefill(&w, chunk);
      if (t == 0) make_reference(&w, expected);
      expect_near(&w, expected, tiers[t], i);
      world_close(&w);
    }
    for (int q = 0; q < SEQUENCES_MAX; q++) free(expected[q]);
  }
}

Test(attention, agrees_with_double_precision) {
  expect_agreement(settings, NUM_SETTINGS, 150);
}

Test(attention, both_directions_agree_with_double_precision) {
  expect_agreement(both_ways, NUM_BOTH_WAYS, 600);
}

static void expect_same(const world_t *a, const world_t *b, const char *tier, int setting,
                        const char *what) {
  for (int q = 0; q < SEQUENCES_MAX; q++) {
    size_t bytes = (size_t)(a->seq[q].length * a->s.heads * a->s.dim) * sizeof(float);
    cr_assert(bytes == 0 || memcmp(a->seq[q].out, b->seq[q].out, bytes) == 0,
              "%s setting %d sequence %d: %s changed bits, seed %llu", tier, setting, q, what,
              SEED);
  }
}

/* Tiles, blocks of keys, strips and splits of them end within these. */
static const setting_t distant[] = {
    {1, 1, 16, 16, 0, 0, 0, false, false, DTYPE_F32, {1, 48, 49, 17}, true, false},
    {12, 12, 64, 16, 0, 0, 0, false, false, DTYPE_BF16, {300, 5, 65, 64}, true, false},
    {3, 3, 20, 4, 0, 0, 0, false, false, DTYPE_F32, {257, 9, 256, 0}, true, false},
    {2, 2, 32, 16, 0, 0, 0, false, false, DTYPE_F16, {690, 0, 0, 0}, true, false},
};
enum { NUM_DISTANT = sizeof distant / sizeof *distant };
static const int32_t spans[NUM_DISTANT] = {3, 128, 20, 256};

Test(attention, keys_and_queries_of_distances_agree_with_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int i = 0; i < NUM_DISTANT; i++) {
    for (int parts = 1; parts <= 3; parts++) {
      double *expected[SEQUENCES_MAX];
      for (int t = 0; t < count; t++) {
        world_t w, alone;
        world_open_distances(&w, &distant[i], tiers[t], 2, 0, spans[i], parts);
        world_prefill(&w, 700);
        if (t == 0) make_reference(&w, expected);
        expect_near(&w, expected, tiers[t], i);
        world_open_distances(&alone, &distant[i], tiers[t], 3, 1, spans[i], parts);
        for (int q = 0; q < SEQUENCES_MAX; q++) {
          piece_t piece = {q, 0, alone.seq[q].length, false};
          if (piece.count > 0) world_run(&alone, &piece, 1);
        }
        expect_same(&w, &alone, tiers[t], i, "another way of running");
        world_close(&alone);
        world_close(&w);
      }
      for (int q = 0; q < SEQUENCES_MAX; q++) free(expected[q]);
    }
  }
}

/* Every sequence alone, in chunks of random length, on other blocks and other threads. */
static void run_alone(world_t *w, random_state_t *random, int32_t chunk_max) {
  for (int q = 0; q < SEQUENCES_MAX; q++) {
    for (int32_t p = 0; p < w->seq[q].length;) {
      int32_t left = w->seq[q].length - p, n = 1 + random_below(random, chunk_max);
      piece_t piece = {q, p, n < left ? n : left, false};
      world_run(w, &piece, 1);
      p += piece.count;
    }
  }
}

Test(attention, bits_do_not_depend_on_chunks_mates_blocks_or_threads) {
  static const int threads[] = {1, 2, 3, 7};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(50);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < NUM_SETTINGS; i++) {
      world_t all, other;
      world_open(&all, &settings[i], tiers[t], 1, 0);
      world_prefill(&all, 170);
      for (int v = (t + i) % 2; v < 4; v += 2) { /* two ways here, the others at the next setting */
        world_open(&other, &settings[i], tiers[t], threads[v], (uint64_t)v);
        run_alone(&other, &random, v == 0 ? 1 : v == 1 ? 9 : 600);
        expect_same(&all, &other, tiers[t], i, "another way of running");
        world_close(&other);
      }
      world_close(&all);
    }
  }
}

/* The heads of a layer may stand in blocks of several groups, beside others and beside none. What
 * layers of another size have left there, also where heads are padded, does not matter. */
Test(attention, bits_do_not_depend_on_the_groups_that_heads_stand_in) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(51);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < NUM_SETTINGS; i++) {
      world_t all, other;
      world_open(&all, &settings[i], tiers[t], 1, 0);
      world_prefill(&all, 170);
      world_open_by_heads(&other, &settings[i], tiers[t], 2, 1);
      size_t null_block = other.device->kv_block_bytes;
      memset(other.device->kv_base + null_block, 0xff,
             ops_cpu.kv_bytes(&other.device->kv, other.device->kv.num_blocks) - null_block);
      run_alone(&other, &random, 40);
      expect_same(&all, &other, tiers[t], i, "heads in groups");
      world_close(&other);
      world_close(&all);
    }
  }
}

Test(attention, bits_of_both_directions_do_not_depend_on_mates_blocks_or_threads) {
  static const int threads[] = {1, 2, 3, 7};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < NUM_BOTH_WAYS; i++) {
      world_t all, other;
      world_open(&all, &both_ways[i], tiers[t], 1, 0);
      world_prefill(&all, 600);
      world_open(&other, &both_ways[i], tiers[t], threads[(t + i) % 4], (uint64_t)(1 + t + i));
      for (int q = 0; q < SEQUENCES_MAX; q++) {
        piece_t piece = {q, 0, other.seq[q].length, false};
        if (piece.count > 0) world_run(&other, &piece, 1);
      }
      expect_same(&all, &other, tiers[t], i, "another way of running");
      world_close(&other);
      world_close(&all);
    }
  }
}

/* Tokens of pictures see what stands behind them: pictures of a token, and of more than a tile and
 * a strip of keys; settings have windows that are smaller, and sinks, and codes of 8 bits. */
static const int32_t picture_sizes[] = {1, 2, 29, 256, 270};

Test(attention, tokens_of_a_picture_see_all_of_it) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int i = 0; i < NUM_SETTINGS; i++) {
    const int32_t size = picture_sizes[i % 5];
    double *expected[SEQUENCES_MAX];
    for (int t = 0; t < count; t++) {
      world_t w;
      world_open_pictures(&w, &settings[i], tiers[t], 2, 0, size);
      world_prefill(&w, 600);
      if (t == 0) make_reference(&w, expected);
      expect_near(&w, expected, tiers[t], i);
      world_close(&w);
    }
    for (int q = 0; q < SEQUENCES_MAX; q++) free(expected[q]);
  }
}

/* A chunk ends between pictures, or in text. */
static void run_between_pictures(world_t *w, random_state_t *random) {
  for (int q = 0; q < SEQUENCES_MAX; q++) {
    for (int32_t p = 0; p < w->seq[q].length;) {
      int32_t end = p + 1 + random_below(random, 80);
      if (end > w->seq[q].length) end = w->seq[q].length;
      if (world_seen_until(w, q, end - 1) > 0) end = world_seen_until(w, q, end - 1);
      piece_t piece = {q, p, end - p, false};
      world_run(w, &piece, 1);
      p = end;
    }
  }
}

Test(attention, bits_of_pictures_do_not_depend_on_mates_blocks_or_threads) {
  static const int threads[] = {1, 2, 3, 7};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(44);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < NUM_SETTINGS; i++) {
      world_t all, other;
      const int32_t size = picture_sizes[i % 5];
      world_open_pictures(&all, &settings[i], tiers[t], 1, 0, size);
      world_prefill(&all, 600);
      world_open_pictures(&other, &settings[i], tiers[t], threads[(t + i) % 4],
                          (uint64_t)(1 + t + i), size);
      run_between_pictures(&other, &random);
      expect_same(&all, &other, tiers[t], i, "another way of running");
      world_close(&other);
      world_close(&all);
    }
  }
}

/* Several splits. */
enum { LONG = SANITIZED ? 2600 : 4300 };
static const setting_t longs[] = {
    {4, 2, 64, 16, 0, 64, 0, true, false, DTYPE_BF16, {LONG, 2049, 0, 0}, false, false},
    {2, 1, 16, 32, 2500, 16, 0, false, false, DTYPE_F32, {LONG, 0, 0, 0}, false, false},
    {4, 2, 64, 16, 0, 64, 0, true, false, DTYPE_BF16, {LONG, 0, 0, 0}, false, true},
};

/* Each row of a chunked prefill is computed again as a decode, which takes the path with splits
 * side by side, and as one of many. */
Test(attention, long_decodes_equal_prefill) {
  static const int32_t wanted[] = {0, 255, 256, 2046, 2047, 2048, 2049, 2599, 4095, 4096, 4299};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < 3; i++) {
      world_t w;
      world_open(&w, &longs[i], tiers[t], 3, 0);
      world_prefill(&w, 333);
      int64_t width = longs[i].heads * longs[i].dim;
      double expected[256];
      float kept[256];
      for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
        int32_t p = wanted[k];
        if (p >= w.seq[0].length) continue;
        memcpy(kept, w.seq[0].out + p * width, (size_t)width * sizeof(float));
        piece_t pieces[2] = {{0, p, 1, true}, {0, p > 40 ? p - 40 : 0, p > 40 ? 41 : p + 1, true}};
        for (int v = 0; v < 2; v++) {
          memset(w.seq[0].out + p * width, 0, (size_t)width * sizeof(float));
          world_run(&w, &pieces[v], 1);
          ASSERT_EQ_FOR(memcmp(kept, w.seq[0].out + p * width, (size_t)width * sizeof(float)), 0,
                        "%s setting %d position %d way %d, seed %llu", tiers[t], i, p, v, SEED);
        }
        world_reference(&w, 0, p, expected);
        for (int64_t j = 0; j < width; j++)
          ASSERT_LE_FOR(fabs(kept[j] - expected[j]), tolerance(&longs[i], tiers[t]),
                        "%s setting %d position %d: %g, expected %g", tiers[t], i, p, kept[j],
                        expected[j]);
      }
      world_close(&w);
    }
  }
}

/* What stands in slots that a row must not see cannot matter, not even NaN. */
static void expect_unseen(const char *tier, const setting_t *s) {
  world_t clean, dirty;
  world_open(&clean, s, tier, 1, 0);
  world_open(&dirty, s, tier, 1, 0);
  /* Sequence 1 fills the blocks of sequence 0 with NaN before it uses them. */
  for (int64_t i = 0; i < 64 * dirty.width; i++) dirty.seq[1].qkv[i] = NAN;
  int32_t *own = dirty.seq[1].blocks;
  dirty.seq[1].blocks = dirty.seq[0].blocks;
  world_run(&dirty, &(piece_t){1, 0, 64, false}, 1);
  dirty.seq[1].blocks = own;
  for (int32_t p = 0; p < 50; p += 7) {
    piece_t piece = {0, p, 50 - p < 7 ? 50 - p : 7, false};
    world_run(&clean, &piece, 1);
    world_run(&dirty, &piece, 1);
  }
  size_t bytes = 50 * (size_t)(s->heads * s->dim) * sizeof(float);
  ASSERT_EQ_FOR(memcmp(clean.seq[0].out, dirty.seq[0].out, bytes), 0, "%s, type %d", tier,
                (int)s->kv_dtype);
  world_close(&clean);
  world_close(&dirty);
}

Test(attention, unseen_slots_do_not_matter) {
  static const setting_t unseen[] = {
      {2, 1, 32, 16, 20, 0, 0, false, false, DTYPE_F32, {50, 64, 0, 0}, false, false},
      {2, 1, 33, 16, 19, 0, 0, false, false, DTYPE_BF16, {50, 64, 0, 0}, false, false},
      {2, 1, 32, 1, 20, 0, 0, false, false, DTYPE_BF16, {64, 64, 0, 0}, false, false},
      {2, 1, 33, 16, 19, 0, 0, false, false, DTYPE_BF16, {50, 64, 0, 0}, false, true},
  };
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < 4; i++) expect_unseen(tiers[t], &unseen[i]);
  }
}

/* The same for the values of other tokens of the same chunk: later ones, and those that left the
 * window. */
static void expect_apart(const char *tier, const setting_t *s) {
  enum { BAD = 33 };
  world_t clean, dirty;
  world_open(&clean, s, tier, 1, 0);
  world_open(&dirty, s, tier, 1, 0);
  for (int64_t i = dirty.width - s->kv_heads * s->dim; i < dirty.width; i++)
    dirty.seq[0].qkv[BAD * dirty.width + i] = i % 2 == 0 ? INFINITY : NAN;
  world_prefill(&clean, clean.seq[0].length);
  world_prefill(&dirty, dirty.seq[0].length);
  size_t row = (size_t)(s->heads * s->dim) * sizeof(float);
  for (int32_t p = 0; p < s->lengths[0]; p++) {
    const float *left = clean.seq[0].out + p * s->heads * s->dim;
    const float *right = dirty.seq[0].out + p * s->heads * s->dim;
    bool sees = p >= BAD && (s->window == 0 || p < BAD + s->window);
    ASSERT_EQ_FOR(memcmp(left, right, row) != 0, sees, "%s, type %d, position %d", tier,
                  (int)s->kv_dtype, p);
  }
  world_close(&clean);
  world_close(&dirty);
}

Test(attention, unseen_tokens_of_a_chunk_do_not_matter) {
  static const setting_t apart[] = {
      {2, 1, 32, 16, 20, 0, 0, false, false, DTYPE_F32, {70, 0, 0, 0}, false, false},
      {14, 2, 64, 16, 19, 0, 0, false, false, DTYPE_BF16, {330, 0, 0, 0}, false, false},
      {40, 1, 32, 16, 0, 0, 0, false, false, DTYPE_BF16, {70, 0, 0, 0}, false, false},
      {14, 2, 64, 16, 19, 0, 0, false, false, DTYPE_BF16, {330, 0, 0, 0}, false, true},
  };
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (int i = 0; i < 4; i++) expect_apart(tiers[t], &apart[i]);
  }
}

/* A copied block answers as its source does, up to the copied rows. */
Test(attention, page_copies) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  setting_t s = {2, 1, 24, 16, 0, 24, 0, false, false, DTYPE_BF16, {40, 16, 0, 0}, false, false};
  for (int t = 0; t < 2 * count; t++) {
    world_t w;
    s.int8 = t >= count;
    world_open(&w, &s, tiers[t % count], 2, 0);
    world_prefill(&w, 40);
    float kept[48];
    memcpy(kept, w.seq[0].out + 39 * 48, sizeof kept);
    int32_t from = w.seq[0].blocks[2], to = w.seq[1].blocks[0];
    block_copy_t copy = {from, to, 8};
    batch_t batch = {.block_size = 16, .num_copies = 1, .copies = &copy};
    ops_cpu.begin(w.device, &batch);
    w.seq[0].blocks[2] = to;
    world_run(&w, &(piece_t){0, 39, 1, true}, 1);
    ASSERT_EQ_FOR(memcmp(kept, w.seq[0].out + 39 * 48, sizeof kept), 0, "%s", tiers[t % count]);
    copy.rows = 7; /* now row 7 is missing: sequence 1's own comes first */
    w.seq[0].blocks[2] = from;
    world_run(&w, &(piece_t){1, 0, 16, false}, 1);
    ops_cpu.begin(w.device, &batch);
    w.seq[0].blocks[2] = to;
    world_run(&w, &(piece_t){0, 39, 1, true}, 1);
    ASSERT_NE_FOR(memcmp(kept, w.seq[0].out + 39 * 48, sizeof kept), 0, "%s", tiers[t % count]);
    world_close(&w);
  }
}

/* The same where a block may have layers or heads: it is copied whole. */
Test(attention, copies_of_blocks_of_heads) {
  setting_t s = {2, 2, 24, 16, 0, 24, 0, false, false, DTYPE_BF16, {40, 16, 0, 0}, false, false};
  for (int t = 0; t < 2; t++) {
    world_t w;
    s.int8 = t == 1;
    world_open_by_heads(&w, &s, "portable", 2, 0);
    world_prefill(&w, 40);
    float kept[48];
    memcpy(kept, w.seq[0].out + 39 * 48, sizeof kept);
    block_copy_t copies[2];
    for (int g = 0; g < 2; g++) { /* the two heads are in groups 1 and 2 */
      int32_t *from = &w.seq[0].blocks[(1 + g) * w.blocks_stride + 2];
      copies[g] = (block_copy_t){*from, w.seq[1].blocks[(1 + g) * w.blocks_stride], 8};
      *from = copies[g].dst;
    }
    batch_t batch = {.block_size = 16, .num_copies = 1, .copies = copies};
    ops_cpu.begin(w.device, &batch);
    world_run(&w, &(piece_t){0, 39, 1, true}, 1);
    ASSERT_NE(memcmp(kept, w.seq[0].out + 39 * 48, sizeof kept), 0);
    batch.num_copies = 2;
    ops_cpu.begin(w.device, &batch);
    world_run(&w, &(piece_t){0, 39, 1, true}, 1);
    ASSERT_EQ(memcmp(kept, w.seq[0].out + 39 * 48, sizeof kept), 0);
    world_close(&w);
  }
}

Test(attention, pools_that_cannot_be) {
  device_t *device = device_open("portable", 1);
  inferd_error_t error;
  kv_cache_desc_t desc = {.num_layers = 2,
                          .num_kv_heads = 2,
                          .head_dim = 64,
                          .num_blocks = 10,
                          .block_size = 16,
                          .dtype = DTYPE_BF16};
  ASSERT_EQ(ops_cpu.kv_bytes(&desc, 10), (size_t)10 * 2 * (2 * 2 * 16 * 64 * 2));
  desc.int8 = true; /* a byte an element, and two scales a token and head */
  ASSERT_EQ(ops_cpu.kv_bytes(&desc, 10), (size_t)10 * 2 * (2 * 2 * 16 * (64 + 4)));
  desc.latent = true;
  ASSERT_EQ_FOR(ops_cpu.kv_cache(device, &desc, &error), ERR_CONFIGURATION, "latent rows");
  desc.int8 = desc.latent = false;
  desc.window_heads = 9; /* more than the place of two layers with heads twice as wide */
  desc.other_kv_heads = 2, desc.other_head_dim = 128, desc.others[0] = 3;
  ASSERT_EQ(ops_cpu.kv_bytes(&desc, 10), (size_t)10 * 9 * (2 * 16 * 64 * 2));
  desc.window_heads = 8;
  ASSERT_EQ(ops_cpu.kv_bytes(&desc, 10), (size_t)10 * 2 * (2 * 2 * 16 * 128 * 2));
  desc.window_heads = desc.other_head_dim = 0;
  desc.block_size = 24;
  ASSERT_EQ(ops_cpu.kv_cache(device, &desc, &error), ERR_CONFIGURATION);
  desc.block_size = 16;
  desc.num_layers = 1 << 30;
  desc.num_blocks = 1 << 30;
  ASSERT_EQ(ops_cpu.kv_cache(device, &desc, &error), ERR_NO_MEMORY);
  desc.num_layers = 2;
  desc.num_blocks = 4;
  ASSERT_EQ(ops_cpu.kv_cache(device, &desc, &error), 0);
  ops_cpu.close(device);
}
