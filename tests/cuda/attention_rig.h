/* attention_rig.h: what the attention tests share: a problem on the device, and its launches. */
#ifndef INFERD_TESTS_CUDA_ATTENTION_RIG_H
#define INFERD_TESTS_CUDA_ATTENTION_RIG_H

#include "cuda/kernels/attention.h"
#include "tests/cuda/paged.h"

typedef std::vector<int32_t> lens_t;

struct attention_options {
  int window = 0, workers = 6;
  int items_max = 0; /* 0: as many as may be */
  int decode_queries = 1;
  float softcap = 0, query_size = 3;
  bool sinks = false;
  bool hopper = false; /* chunks by gpu_attention_prefill_sm90 */
};

/* Slots of all rows, each cut wherever it may be. */
template <class T> int items_of(const paged_problem<T> &p, const attention_options &o) {
  int items = (int)p.seq_lens.size();
  for (size_t r = 0; r < p.seq_lens.size(); r++)
    if (p.query_lens[r] <= o.decode_queries)
      items += p.query_lens[r] * gpu_decode_items(p.seq_lens[r]);
  return items;
}

/* Device copies of a problem, and the arguments of the launchers. */
template <class T> struct attention_device {
  device_array<uint8_t> cache;
  device_array<T> qkv, out;
  device_array<int32_t> table, lens, starts, counts, row_items, tiles;
  device_array<uint32_t> tickets;
  device_array<gpu_decode_item_t> items;
  device_array<float> scales, sinks, partial, state;
  gpu_attention_t args = {};

  attention_device(const paged_problem<T> &p, const attention_options &o,
                   const std::vector<float> &sink_values)
      : attention_device(p, o, sink_values, o.items_max > 0 ? o.items_max : items_of(p, o)) {}
  attention_device(const paged_problem<T> &p, const attention_options &o,
                   const std::vector<float> &sink_values, int items_max)
      : cache(p.cache), qkv(p.qkv), out((size_t)p.tokens * p.shape.num_heads * p.shape.head_dim),
        table(p.block_table), lens(p.seq_lens), starts(p.query_start_loc), counts(4),
        row_items(2 * p.seq_lens.size()), tiles(2 * (p.tokens + p.seq_lens.size())),
        tickets(std::vector<uint32_t>((size_t)items_max * p.shape.num_heads)), items(items_max),
        scales(p.scales), sinks(sink_values),
        partial((size_t)items_max * p.shape.num_heads * p.shape.head_dim),
        state((size_t)items_max * p.shape.num_heads * 2) {
    args.kv = p.kv(cache.p, scales.p);
    args.plan = {counts.p, items.p, row_items.p, tiles.p, items_max, (int32_t)tiles.count / 2};
    args.qkv = qkv.p, args.out = out.p;
    args.block_table = table.p, args.seq_lens = lens.p, args.query_start_loc = starts.p;
    args.sinks = o.sinks ? sinks.p : nullptr;
    args.partial = partial.p, args.partial_state = state.p, args.tickets = tickets.p;
    args.decode_queries = o.decode_queries;
    args.block_table_stride = p.stride, args.rows = (int32_t)p.seq_lens.size();
    args.layer = p.shape.layer, args.num_heads = p.shape.num_heads, args.window = o.window;
    args.scale = 1.0f / std::sqrt((float)p.shape.head_dim), args.softcap = o.softcap;
  }

  void run(const attention_options &o) {
    MUST(gpu_attention_plan(&args, nullptr));
    MUST(gpu_attention_decode(&args, o.workers, nullptr));
    for (uint32_t ticket : tickets.get())
      if (ticket != 0) return check_that(false, "tickets are zeroes after a launch");
    MUST(o.hopper ? gpu_attention_prefill_sm90(&args, args.plan.tiles_max, nullptr)
                  : gpu_attention_prefill(&args, args.plan.tiles_max, nullptr));
  }
};

#endif
