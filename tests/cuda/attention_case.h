/* attention_case.h: attention of a random problem, beside softmax in double. */
#ifndef INFERD_TESTS_CUDA_ATTENTION_CASE_H
#define INFERD_TESTS_CUDA_ATTENTION_CASE_H

#include "tests/cuda/attention_rig.h"

template <class T>
std::vector<double> attention_reference(const paged_problem<T> &p, const attention_options &o,
                                        const std::vector<float> &sinks) {
  const paged_shape &s = p.shape;
  const int dim = s.head_dim, group = s.num_heads / s.num_kv_heads;
  std::vector<double> out((size_t)p.tokens * s.num_heads * dim), score;
  for (size_t r = 0; r < p.seq_lens.size(); r++)
    for (int i = 0; i < p.query_lens[r]; i++)
      for (int h = 0; h < s.num_heads; h++) {
        const int position = p.seq_lens[r] - p.query_lens[r] + i;
        const int first = o.window > 0 ? std::max(0, position - o.window + 1) : 0;
        const size_t token = (size_t)p.query_start_loc[r] + i;
        const T *q = &p.qkv[token * p.width() + (size_t)h * dim];
        double top = o.sinks ? (double)sinks[h] : -1e300, sum = 0;
        score.assign(position + 1, 0);
        for (int key = first; key <= position; key++) {
          for (int d = 0; d < dim; d++)
            score[key] += (double)to_float(q[d]) * p.element((int)r, key, 0, h / group, d);
          score[key] /= std::sqrt((double)dim);
          if (o.softcap != 0) score[key] = o.softcap * std::tanh(score[key] / o.softcap);
          top = std::max(top, score[key]);
        }
        for (int key = first; key <= position; key++) sum += std::exp(score[key] - top);
        if (o.sinks) sum += std::exp((double)sinks[h] - top);
        for (int key = first; key <= position; key++)
          for (int d = 0; d < dim; d++)
            out[(token * s.num_heads + h) * dim + d] +=
                std::exp(score[key] - top) / sum * p.element((int)r, key, 1, h / group, d);
      }
  return out;
}

template <class T> double tolerance_of() {
  return dtype_of<T>() == DTYPE_BF16 ? 0.01 : 0.002;
}

template <class T>
void attention_case(const paged_shape &shape, const lens_t &lens, const lens_t &queries,
                    const attention_options &o = attention_options()) {
  paged_problem<T> p(shape, lens, queries, o.query_size);
  if (o.window > 0) drop_blocks_before(p, o.window);
  const auto sinks = random_values<float>(shape.num_heads, 3);
  attention_device<T> device(p, o, sinks);
  device.run(o);
  const std::string what = std::string(name_of<T>()) + " " + std::to_string(shape.num_heads) + "/" +
                           std::to_string(shape.num_kv_heads) + "x" +
                           std::to_string(shape.head_dim) + " pages of " +
                           std::to_string(shape.block_size) + ", " + std::to_string(lens[0]) +
                           (shape.fp8 ? " e4m3" : "") + " keys, window " + std::to_string(o.window);
  check_rows(what, attention_reference(p, o, sinks), as_double(device.out.get()), shape.head_dim,
             tolerance_of<T>());
}

inline lens_t ones(const lens_t &lens) {
  return lens_t(lens.size(), 1);
}

#endif
