/* test_sample.cc: the sampler on the device against a plain one that sorts, in double. */
#include "cuda/device_code/random.h"
#include "cuda/kernels/sample.h"
#include "engine/base/random.h"
#include "tests/cuda/check.h"

typedef std::vector<int32_t> ids_t;

/* A row as the host sees it. */
struct sample_case {
  std::vector<float> logits;
  gpu_sample_row_t row = {};
  ids_t allowed, suppressed, prompt, output, logprob_ids, bad_words;
  std::vector<uint32_t> mask;
  std::vector<gpu_sample_bias_t> bias;
  int num_bad_words = 0;
  explicit sample_case(int vocab, float size) : logits(random_values<float>(vocab, size)) {
    row.temperature = 1, row.top_p = 1, row.repetition_penalty = 1;
    row.score_id = -1, row.num_top = -1;
    row.rng_key = random_bits(), row.rng_position = random_below(1000);
  }
  int vocab() const { return (int)logits.size(); }
};

static void forbid(std::vector<double> &l, int32_t id) {
  if (id >= 0 && id < (int)l.size()) l[id] = -INFINITY;
}

static void reference_penalties(const sample_case &c, std::vector<double> &l) {
  for (int id = 0; id < c.vocab(); id++) {
    const long count = std::count(c.output.begin(), c.output.end(), id);
    const bool seen = count > 0 || std::count(c.prompt.begin(), c.prompt.end(), id) > 0;
    const double repetition = (double)c.row.repetition_penalty;
    if (seen && repetition != 1) l[id] = l[id] > 0 ? l[id] / repetition : l[id] * repetition;
    if (count > 0)
      l[id] -= (double)c.row.frequency_penalty * count + (double)c.row.presence_penalty;
  }
}

static void reference_changes(const sample_case &c, std::vector<double> &l) {
  for (int id = 0; id < c.vocab() && !c.allowed.empty(); id++)
    if (std::count(c.allowed.begin(), c.allowed.end(), id) == 0) forbid(l, id);
  for (size_t i = 0; i < c.bad_words.size(); i += 1 + c.bad_words[i]) {
    const size_t prefix = c.bad_words[i] - 1;
    const int32_t *word = &c.bad_words[i + 1];
    if (prefix <= c.output.size() && std::equal(word, word + prefix, c.output.end() - prefix))
      forbid(l, word[prefix]);
  }
  for (int32_t id : c.suppressed) forbid(l, id);
  for (const auto &b : c.bias) l[b.id] += (double)b.bias;
  reference_penalties(c, l);
}

/* Rounding may move a score, and the edges of min_p and top_p, by this much. */
static const double SLACK = 1e-5;

/* Ids in order of their logits, those that min_p, top_k and top_p leave. */
static ids_t reference_nucleus(const sample_case &c, const std::vector<double> &l, double slack) {
  const double t = (double)c.row.temperature;
  ids_t order(c.vocab());
  for (int i = 0; i < c.vocab(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
  const double top = l[order[0]];
  size_t n = order.size(), nucleus = 0;
  if (c.row.min_p > 0)
    while (n > 1 && l[order[n - 1]] < top + t * std::log((double)c.row.min_p) - slack) n--;
  if (c.row.top_k > 0)
    while (n > (size_t)c.row.top_k && l[order[n - 1]] < l[order[c.row.top_k - 1]]) n--;
  double total = 0, kept = 0;
  for (size_t i = 0; i < n; i++) total += std::exp((l[order[i]] - top) / t);
  const double target = (double)c.row.top_p * total * (1 + slack);
  while (nucleus < n && (c.row.top_p >= 1 || kept < target))
    kept += std::exp((l[order[nucleus++]] - top) / t);
  order.resize(nucleus);
  return order;
}

/* What may be drawn: one id, two where rounding decides. */
static ids_t reference_draws(const sample_case &c, const std::vector<double> &l) {
  const double t = (double)c.row.temperature;
  const int32_t best_id = (int32_t)(std::max_element(l.begin(), l.end()) - l.begin());
  if (t < 1e-5) return {best_id};
  const uint64_t stream = random_stream(c.row.rng_key, c.row.rng_position);
  ids_t draws;
  for (double slack : {-SLACK, SLACK}) {
    const ids_t ids = reference_nucleus(c, l, slack);
    std::vector<double> scores;
    for (int32_t id : ids) {
      const double e = -std::log1p(-random_uniform(stream, (uint32_t)id));
      scores.push_back((l[id] - l[best_id]) / t - std::log(e));
    }
    const double best = *std::max_element(scores.begin(), scores.end());
    for (size_t i = 0; i < ids.size(); i++)
      if (scores[i] >= best - SLACK) draws.push_back(ids[i]);
  }
  return draws;
}

struct sample_answer : gpu_sample_result_t, gpu_sample_top_t {};

/* Pinned memory that gets an answer, too. */
struct host_answer {
  sample_answer *p = nullptr;
  host_answer() {
    MUST(cudaMallocHost((void **)&p, sizeof *p));
    memset((void *)p, 0x5a, sizeof *p);
  }
  ~host_answer() { cudaFreeHost(p); }
  void check(const sample_answer &device) const {
    const gpu_sample_result_t &r = device, &mine = *p;
    check_that(mine.id == r.id && mine.status == r.status && mine.num_top == r.num_top &&
                   mine.rank == r.rank && mine.logprob == r.logprob && mine.log_sum == r.log_sum,
               "the host's result is the device's");
    check_that(std::equal(p->ids, p->ids + r.num_top, device.ids) &&
                   std::equal(p->logprobs, p->logprobs + r.num_top, device.logprobs),
               "the host's alternatives are the device's");
    const int untouched = 0x5a5a5a5a;
    check_that(r.num_top == GPU_SAMPLE_TOP_MAX + GPU_SAMPLE_IDS_MAX ||
                   p->ids[r.num_top] == untouched,
               "no more alternatives than there are");
  }
};

/* Prompt and output as they stand in scattered blocks of a cache, or flat with block_size 0. */
struct history_t {
  ids_t slots, blocks;
  history_t(const sample_case &c, int block_size) {
    ids_t ids = c.prompt;
    ids.insert(ids.end(), c.output.begin(), c.output.end());
    slots = ids;
    if (block_size == 0) return;
    const int count = (int)ids.size() / block_size + 1;
    slots.assign((size_t)(2 * count + 1) * block_size, -7);
    for (int i = 0; i < count; i++) blocks.push_back(2 * (count - i));
    for (size_t i = 0; i < ids.size(); i++)
      slots[(size_t)blocks[i / block_size] * block_size + i % block_size] = ids[i];
  }
};

static sample_answer run_sampler(const sample_case &c) {
  gpu_sample_row_t row = c.row;
  row.block_size = 16 * random_below(3);
  const history_t past(c, row.block_size);
  std::vector<uint32_t> bits((c.vocab() + 31) / 32);
  for (int32_t id : c.allowed)
    if (id >= 0 && id < c.vocab()) bits[id / 32] |= 1u << (id % 32);
  device_array<float> logits(c.logits);
  device_array<int32_t> suppressed(c.suppressed), history(past.slots), blocks(past.blocks),
      logprob_ids(c.logprob_ids), bad_words(c.bad_words);
  device_array<uint32_t> mask(c.mask), allowed(bits);
  device_array<gpu_sample_bias_t> bias(c.bias);
  row.allowed_ids = c.allowed.empty() ? nullptr : allowed.p;
  row.suppressed_ids = suppressed.p, row.num_suppressed = (int32_t)c.suppressed.size();
  row.num_prompt = (int32_t)c.prompt.size(), row.num_output = (int32_t)c.output.size();
  row.history = history.p, row.blocks = row.block_size > 0 ? blocks.p : nullptr;
  row.logprob_ids = logprob_ids.p, row.num_logprob_ids = (int32_t)c.logprob_ids.size();
  row.bad_words = bad_words.p, row.num_bad_words = c.num_bad_words;
  row.logit_bias = bias.p, row.num_bias = (int32_t)c.bias.size();
  row.allowed_mask = c.mask.empty() ? nullptr : mask.p;
  const host_answer host;
  static int runs;
  const bool for_host = runs++ % 4 != 0;
  row.host_result = for_host ? host.p : nullptr, row.host_top = for_host ? host.p : nullptr;
  device_array<gpu_sample_row_t> rows(std::vector<gpu_sample_row_t>{row});
  device_array<gpu_sample_result_t> results((size_t)1);
  device_array<gpu_sample_top_t> tops((size_t)1);
  device_array<uint8_t> scratch(gpu_sample_scratch_bytes(c.vocab()));
  MUST(gpu_sample(logits.p, c.vocab(), rows.p, 1, scratch.p, results.p, tops.p, nullptr));
  sample_answer answer;
  (gpu_sample_result_t &)answer = results.get()[0];
  (gpu_sample_top_t &)answer = tops.get()[0];
  if (for_host) host.check(answer);
  return answer;
}

static void check_logprobs(const sample_case &c, const std::vector<double> &raw,
                           const sample_answer &r, const std::string &what) {
  double sum = 0, top = *std::max_element(raw.begin(), raw.end());
  ids_t order(c.vocab());
  for (int i = 0; i < c.vocab(); i++) order[i] = i, sum += std::exp(raw[i] - top);
  const double log_sum = top + std::log(sum);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return raw[a] > raw[b]; });
  order.resize(std::min(c.row.num_top, c.vocab()));
  for (int32_t id : c.logprob_ids)
    if (c.row.score_id < 0 && id >= 0 && id < c.vocab() &&
        std::count(order.begin(), order.end(), id) == 0)
      order.push_back(id);
  check_that(r.num_top == (int)order.size() && std::equal(order.begin(), order.end(), r.ids),
             what + ": the best ids");
  for (int i = 0; i < r.num_top; i++)
    check_that(std::fabs(std::max(raw[r.ids[i]] - log_sum, -9999.0) - (double)r.logprobs[i]) < 2e-5,
               what + ": logprob " + std::to_string(i));
  const long rank =
      1 + std::count_if(raw.begin(), raw.end(), [&](double l) { return l > raw[r.id]; });
  check_that(r.rank == rank && std::fabs(raw[r.id] - log_sum - (double)r.logprob) < 2e-5,
             what + ": logprob and rank of the id");
}

static void check_sample(const sample_case &c, const std::string &what) {
  std::vector<double> l(c.logits.begin(), c.logits.end());
  for (int id = 0; id < c.vocab() && !c.mask.empty(); id++)
    if ((c.mask[id / 32] >> (id % 32) & 1) == 0) forbid(l, id);
  const auto raw = l;
  reference_changes(c, l);
  const sample_answer r = run_sampler(c);
  const ids_t expected = c.row.score_id >= 0 ? ids_t{c.row.score_id} : reference_draws(c, l);
  const bool found = std::count(expected.begin(), expected.end(), r.id) > 0;
  check_that(r.status == GPU_SAMPLE_OK && found,
             what + ": id " + std::to_string(r.id) + ", expected " + std::to_string(expected[0]));
  if (c.row.num_top >= 0 && found) check_logprobs(c, raw, r, what);
}

TEST(sample_random_numbers) {
  for (int i = 0; i < 1000; i++) {
    const uint64_t key = random_bits(), position = random_bits() >> 40;
    const uint32_t id = (uint32_t)random_below(200000);
    const uint64_t stream = random_stream(key, position);
    check_that(device_random_stream(key, position) == stream &&
                   device_random_uniform(stream, id) == random_uniform(stream, id),
               "the same bits as engine/base/random.h");
  }
}

TEST(sample_greedy) {
  sample_case c(5000, 8);
  c.row.temperature = 0;
  c.logits[4000] = c.logits[77] = 9; /* the lower id wins */
  check_sample(c, "greedy");
  c.logits[80] = 9; /* a lane of the same warp */
  check_sample(c, "greedy, a tie within a warp");
  c.row.num_top = 20;
  c.logprob_ids = {5, 77, -1, 5000, 4999};
  check_sample(c, "greedy with logprobs");
  c.row.score_id = 123;
  check_sample(c, "scored");
}

TEST(sample_filters) {
  for (int round = 0; round < 24; round++) {
    sample_case c(1 + random_below(3000), round % 2 ? 0.01f : 12.0f); /* flat and peaked */
    c.row.temperature = 0.3f + 0.1f * (float)(round % 10);
    if (round % 3 != 0) c.row.top_p = 0.05f + 0.04f * (float)round;
    if (round % 4 != 1) c.row.top_k = 1 + random_below(60);
    if (round % 5 == 2) c.row.min_p = 0.02f;
    check_sample(c, "filters " + std::to_string(round));
  }
}

TEST(sample_ties) { /* bf16 logits: many equal ones at the edge of top_p and top_k */
  for (int round = 0; round < 12; round++) {
    sample_case c(2000, 1);
    for (float &l : c.logits) l = std::floor(l * 4) / 4;
    c.row.top_p = 0.03f + 0.07f * (float)round;
    if (round % 3 == 0) c.row.top_k = 300;
    check_sample(c, "ties " + std::to_string(round));
  }
}

/* A draw that would take id k if top_k left one more: numbers are tried until it does. */
TEST(sample_top_k_leaves_no_more) {
  for (int k : {3, 40, 256, 257, 300}) {
    sample_case c(700, 0);
    for (int i = 0; i < c.vocab(); i++) c.logits[i] = -0.001f * (float)i;
    c.row.top_k = k + 1;
    std::vector<double> l(c.logits.begin(), c.logits.end());
    while (reference_draws(c, l) != ids_t{k, k}) c.row.rng_position++;
    c.row.top_k = k;
    check_sample(c, "top_k of " + std::to_string(k));
  }
}

/* Rows longer than one round of loads. With many candidates, or with none that decide, thresholds
 * are found by passes over the row: top_k above those of the list, top_p of flat rows, and more
 * equal logits than the list holds. */
TEST(sample_long_rows) {
  for (int round = 0; round < 12; round++) {
    sample_case c(8000 + random_below(12000), round % 2 ? 0.02f : 9.0f);
    c.row.temperature = 0.5f + 0.1f * (float)round;
    if (round % 3 != 0) c.row.top_p = 0.2f + 0.06f * (float)round;
    if (round % 3 != 1) c.row.top_k = round % 4 < 2 ? 40 : 257 + random_below(2000);
    if (round % 4 == 3)
      for (float &l : c.logits) l = std::floor(l * 2) / 2;
    c.row.num_top = round % 5 == 0 ? 20 : -1;
    check_sample(c, "long row " + std::to_string(round));
  }
}

TEST(sample_more_ties_than_listed) {
  for (int round = 0; round < 6; round++) {
    const int vocab = round % 2 ? 3000 : 1500; /* both more than LIST_MAX */
    sample_case c(vocab, 0);
    const int above = round < 3 ? 40 : 6; /* with 6 the largest ids are searched for, one by one */
    for (int i = 0; i < above; i++) c.logits[random_below(vocab)] = 0.25f * (float)(i % 3);
    c.row.num_top = 4 * round;
    c.row.top_p = round % 2 ? 0.4f : 1;
    c.row.top_k = round % 3 ? 10 + round : 0;
    check_sample(c, "equal logits " + std::to_string(round));
  }
}

TEST(sample_changes) {
  for (int round = 0; round < 16; round++) {
    sample_case c(700, 4);
    const int v = c.vocab();
    c.row.num_top = 5, c.row.top_p = 0.9f;
    if (round & 1)
      for (int i = 0; i < 200; i++) c.allowed.push_back(random_below(v + 9) - 4);
    if (round & 2) c.mask = {}, c.mask.resize((v + 31) / 32);
    for (uint32_t &word : c.mask) word = (uint32_t)random_bits();
    if (round & 4) {
      c.row.repetition_penalty = 1.5f, c.row.frequency_penalty = 0.5f;
      c.row.presence_penalty = -0.7f;
    }
    for (int i = 0; i < 300; i++) c.prompt.push_back(random_below(v));
    for (int i = 0; i < 100; i++) c.output.push_back(random_below(40));
    if (round & 8)
      for (int i = 0; i < 50; i++) c.bias.push_back({random_below(v), random_float(5)});
    for (int i = 0; i < 30; i++) c.suppressed.push_back(random_below(v + 4));
    const int32_t last = c.output[99], before = c.output[98];
    c.bad_words = {1, random_below(v), 3, before, last, random_below(v), 2, before + 41, 3};
    c.num_bad_words = 3;
    check_sample(c, "changes " + std::to_string(round));
  }
}

/* Equal tokens of the history are different threads': each is penalised once, by all its counts. */
TEST(sample_penalties_by_counts) {
  for (int times = 2; times <= 40; times += 1 + random_below(9)) {
    sample_case c(700, 1);
    const int32_t often = random_below(350), next = 350 + random_below(350);
    c.row.temperature = 0, c.row.frequency_penalty = 0.5f;
    c.logits[often] = 10 + 0.5f * (float)times, c.logits[next] = 10.25f; /* 10 is left */
    for (int i = 0; i < times + 20; i++) c.prompt.push_back(random_below(700));
    for (int i = 0; i < times; i++) c.output.push_back(often);
    check_sample(c, "counts of " + std::to_string(times));
    c.row.repetition_penalty = 1.01f;
    check_sample(c, "counts and repetition of " + std::to_string(times));
  }
}

/* An id at exactly what is left of a higher one: a single rounding of product and sum, below it,
 * would leave that one behind. */
TEST(sample_penalties_round_twice) {
  sample_case c(64, 0.1f);
  c.row.temperature = 0, c.row.frequency_penalty = 0.7f, c.output = {9, 9, 9};
  const volatile float product = 0.7f * 3;
  float logit = 5;
  while (std::fma(-0.7f, 3.0f, logit) >= logit - product) logit += 0.001f;
  c.logits[9] = logit, c.logits[40] = logit - product;
  check_that(run_sampler(c).id == 9, "the lower of two equal ids");
}

TEST(sample_suppressed_under_a_mask) {
  sample_case c(100, 4);
  c.mask = {1u << 7, 0, 0, 0};
  check_sample(c, "only one id is allowed");
  c.suppressed = {7, 9};
  check_that(run_sampler(c).status == GPU_SAMPLE_NO_CHOICE, "only a suppressed id is allowed");
  c.suppressed.clear();
  c.mask = {0, 0, 0, 0xfu << 4}; /* bits behind the vocabulary */
  check_that(run_sampler(c).status == GPU_SAMPLE_NO_CHOICE, "the mask is empty");
}

/* A row that fails reports none of the alternatives that it had found, to the host neither. */
TEST(sample_rows_that_fail_with_alternatives) {
  sample_case c(300, 4);
  c.row.num_top = GPU_SAMPLE_TOP_MAX;
  c.suppressed = {1};
  for (int run = 0; run < 2; run++) {
    for (int i = 0; i < 300; i++) c.logits[i] = i == 1 ? 3.0f : -INFINITY;
    const sample_answer r = run_sampler(c);
    check_that(r.status == GPU_SAMPLE_NO_CHOICE && r.num_top == 0, "nothing to choose");
  }
}

TEST(sample_rows_that_fail) {
  sample_case c(300, 4);
  c.suppressed = {1};
  for (int i = 0; i < 300; i++) c.logits[i] = i == 1 ? 3.0f : -INFINITY;
  check_that(run_sampler(c).status == GPU_SAMPLE_NO_CHOICE, "nothing to choose");
  c.logits[1] = -INFINITY;
  check_that(run_sampler(c).status == GPU_SAMPLE_NO_LOGITS, "nothing above -infinity");
  c.logits[250] = NAN;
  check_that(run_sampler(c).status == GPU_SAMPLE_NO_LOGITS, "a NaN");
  c = sample_case(300, 4);
  c.logits[17] = INFINITY;
  check_that(run_sampler(c).id == 17, "all probability to infinity");
}
