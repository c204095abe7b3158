/* bench_attention.cu: decode and prefill attention over their grids, for gpu_bench. */
#include "cuda/dev/bench_attention.h"

/* Returns a block table: blocks 1 .. count in order, or scattered by a stride that visits each
 * block once. */
static std::vector<int32_t> draw_table(int first, int count, bool is_ordered) {
  std::vector<int32_t> table;
  int64_t stride = is_ordered ? 1 : 7919;
  while (count % stride == 0 && stride > 1) stride += 2;
  for (int i = 0; i < count; i++) table.push_back(first + (int)(i * stride % count));
  return table;
}

attention_t::attention_t(const shape_t &shape, int batch, int queries, int len, bool fp8,
                         bool is_ordered) {
  const int size = 64, stride = (len + size - 1) / size, blocks = batch * stride;
  const int tile = gpu_prefill_tile(shape.dim), items = batch * (gpu_decode_items(len) + 1);
  const size_t tokens = (size_t)batch * queries;
  gpu_kv_t &kv = args.kv;
  kv.num_layers = 1, kv.block_size = size, kv.num_kv_heads = shape.kv_heads,
  kv.head_dim = shape.dim;
  kv.dtype = DTYPE_BF16, kv.fp8 = fp8;
  kv.num_blocks = 1;
  kv_bytes = 2.0 * batch * len * shape.kv_heads * shape.dim * (fp8 ? 1 : 2);
  const int turns = cold_copies((size_t)kv_bytes);
  kv.num_blocks = turns * blocks + 1;
  kv.base =
      memory.take(gpu_kv_block_bytes(&kv) * (size_t)kv.num_blocks, fp8 ? FILL_E4M3 : FILL_BF16);
  for (int i = 0; i < turns; i++)
    tables.push_back(memory.upload(draw_table(1 + i * blocks, blocks, is_ordered)));
  std::vector<int32_t> lens(batch, len), starts;
  for (int i = 0; i <= batch; i++) starts.push_back(i * queries);
  tiles = batch * ((queries + tile - 1) / tile);
  args.plan = {(int32_t *)memory.take(16),
               (gpu_decode_item_t *)memory.take((size_t)items * sizeof(gpu_decode_item_t)),
               (int32_t *)memory.take((size_t)batch * 8),
               (int32_t *)memory.take((tokens / tile + batch + 1) * 8),
               items,
               (int32_t)(tokens / tile + batch)};
  args.qkv = memory.take(tokens * (shape.heads + 2 * shape.kv_heads) * shape.dim * 2, FILL_BF16);
  args.out = memory.take(tokens * shape.heads * shape.dim * 2);
  args.block_table = tables[0], args.seq_lens = memory.upload(lens);
  args.query_start_loc = memory.upload(starts);
  args.partial = (float *)memory.take((size_t)items * shape.heads * shape.dim * 4);
  args.partial_state = (float *)memory.take((size_t)items * shape.heads * 8);
  args.tickets = (uint32_t *)memory.take((size_t)items * shape.heads * sizeof(uint32_t));
  args.decode_queries = 1;
  args.block_table_stride = stride, args.rows = batch, args.num_heads = shape.heads;
  args.scale = 1 / sqrtf((float)shape.dim);
  MUST(gpu_attention_plan(&args, bench.stream));
}

static void bench_decode_case(const shape_t &shape, bool fp8, int batch, int len) {
  attention_t attention(shape, batch, 1, len, fp8);
  const double us = time_us(
      [&](int turn) {
        MUST(gpu_attention_decode(attention.turn(turn), 2 * bench.multiprocessors, bench.stream));
      },
      attention.copies(), attention.kv_bytes > 4e9 ? 5 : 20);
  printf("{\"part\": \"decode\", \"heads\": \"%d/%dx%d\", \"kv\": \"%s\", \"batch\": %d, \"len\": "
         "%d, \"us\": %.2f, \"tb_s\": %.4f}\n",
         shape.heads, shape.kv_heads, shape.dim, fp8 ? "fp8" : "bf16", batch, len, us,
         attention.kv_bytes / us * 1e-6);
}

void bench_decode() {
  typedef std::vector<int> list_t;
  const shape_t shapes[] = {{32, 8, 128}, {28, 4, 128}, {32, 8, 64}};
  const list_t batches = bench.tiny ? list_t{1, 2} : list_t{1, 8, 32, 64, 128};
  const list_t lens = bench.tiny ? list_t{64} : list_t{512, 1024, 4096, 16384, 32768};
  for (const shape_t &shape : shapes)
    for (bool fp8 : {false, true})
      for (int batch : batches)
        for (int len : lens) bench_decode_case(shape, fp8, batch, len);
}

static void bench_prefill_case(int queries, int len, bool is_ordered) {
  const shape_t shape = {32, 8, 128};
  if (bench.tiny) queries /= 256, len /= 256;
  attention_t attention(shape, 1, queries, len, false, is_ordered);
  const double pairs = (double)queries * (len - queries) + (double)queries * queries / 2;
  for (bool hopper : {false, true}) {
    if (hopper && !gpu_attention_prefill_sm90_fits(&attention.args.kv)) continue;
    const double us = time_us(
        [&](int turn) {
          const gpu_attention_t *args = attention.turn(turn);
          MUST(hopper ? gpu_attention_prefill_sm90(args, attention.tiles, bench.stream)
                      : gpu_attention_prefill(args, attention.tiles, bench.stream));
        },
        std::min(attention.copies(), 5), 5);
    printf("{\"part\": \"prefill\", \"kernel\": \"%s\", \"pages\": \"%s\", \"queries\": %d, "
           "\"len\": %d, \"us\": %.1f, \"tflop_s\": %.1f}\n",
           hopper ? "wgmma" : "mma.sync", is_ordered ? "ordered" : "mixed", queries, len, us,
           4 * pairs * shape.heads * shape.dim / us * 1e-6);
  }
}

void bench_prefill() {
  for (int tokens : {512, 1024, 2048, 4096, 8192, 16384})
    if (!bench.tiny || tokens == 1024) bench_prefill_case(tokens, tokens, false);
  bench_prefill_case(8192, 8192, true);
  bench_prefill_case(2048, 8192, false);
  bench_prefill_case(512, 16384, false);
}
