/* test_inputs.cc: the packet of a step spread over the arrays of the device, padding included, from
 * the device or from the host's memory, and the copies of ids that follow blocks.
 */
#include "cuda/kernels/inputs.h"
#include "tests/cuda/check.h"

enum { UNTOUCHED = -77, DRAWN = 9, TABLE = 50, SLOTS = 30000, SAVES = 11 };

struct step_t {
  int num_tokens, num_reqs, num_selected, num_updates;
  int tokens, reqs, selected_rows; /* padded */
  bool adapters, states;
};

/* The arrays of a packet, each filled at random, in one buffer. */
struct packet_t {
  std::vector<char> bytes = std::vector<char>(sizeof(gpu_packet_t));
  std::vector<int32_t> ids, positions, start, lens, selected, adapters, state_slots, first_save;
  std::vector<int64_t> slots;
  std::vector<gpu_update_t> updates;
  std::vector<gpu_save_t> saves;

  template <class T> int32_t add(const std::vector<T> &values) {
    bytes.resize((bytes.size() + 15) / 16 * 16);
    const size_t at = bytes.size();
    bytes.resize(at + values.size() * sizeof(T));
    if (!values.empty()) memcpy(&bytes[at], values.data(), values.size() * sizeof(T));
    return (int32_t)at;
  }

  explicit packet_t(const step_t &s) {
    for (int i = 0; i < s.num_tokens; i++) {
      ids.push_back(i % 3 ? random_below(1000) : -1 - random_below(DRAWN));
      positions.push_back(random_below(1000));
      slots.push_back(i % 5 == 4 ? -1 : i + (SLOTS - s.num_tokens)); /* each slot once */
      adapters.push_back(random_below(4));
    }
    for (int i = 0; i <= s.num_reqs; i++) start.push_back(random_below(1000));
    for (int i = 0; i < s.num_reqs; i++) {
      lens.push_back(random_below(1000));
      state_slots.push_back(1 + random_below(100));
      first_save.push_back(i % (SAVES + 1));
    }
    first_save.push_back(SAVES);
    for (int i = 0; i < SAVES; i++) saves.push_back({random_below(50), random_below(50)});
    for (int i = 0; i < s.num_selected; i++) selected.push_back(random_below(1000));
    for (int i = 0; i < s.num_updates; i++) updates.push_back({i * 2, random_below(1000)});
    gpu_packet_t head = {};
    head.num_tokens = s.num_tokens, head.num_reqs = s.num_reqs;
    head.num_selected = s.num_selected, head.num_updates = s.num_updates;
    head.input_ids = add(ids), head.positions = add(positions), head.slots = add(slots);
    head.query_start_loc = add(start), head.seq_lens = add(lens), head.selected = add(selected);
    head.updates = add(updates);
    if (s.adapters) head.adapters = add(adapters);
    if (s.states) {
      head.state_slots = add(state_slots), head.first_save = add(first_save);
      head.saves = add(saves);
    }
    head.bytes = (int32_t)bytes.size();
    memcpy(bytes.data(), &head, sizeof head);
  }
};

template <class T> static std::vector<T> padded(std::vector<T> values, int count, T with) {
  values.resize((size_t)count, with);
  return values;
}

static std::vector<int32_t> untouched(int count) {
  return std::vector<int32_t>((size_t)count, UNTOUCHED);
}

/* Pinned memory that all kernels see. */
struct pinned_bytes {
  char *p = nullptr;
  explicit pinned_bytes(const std::vector<char> &bytes) {
    MUST(cudaMallocHost((void **)&p, bytes.size() + 16));
    memset(p, 0x5a, bytes.size() + 16);
    memcpy(p, bytes.data(), bytes.size());
  }
  ~pinned_bytes() { cudaFreeHost(p); }
};

/* What a launch of a step finds and must leave, whichever way its packet comes. */
enum packet_way { ON_DEVICE, FIRST_OF_HOST, SECOND_OF_HOST };

static void check_inputs(const char *what, const step_t &s, packet_way way) {
  const packet_t packet(s), other(s);
  std::vector<gpu_sample_result_t> results(DRAWN);
  for (int i = 0; i < DRAWN; i++) results[(size_t)i].id = 5000 + i;
  const size_t whole = (packet.bytes.size() + 15) / 16 * 16;
  device_array<char> bytes(whole);
  if (way == ON_DEVICE)
    MUST(cudaMemcpy(bytes.p, packet.bytes.data(), packet.bytes.size(), cudaMemcpyHostToDevice));
  const pinned_bytes first(way == FIRST_OF_HOST ? packet.bytes : other.bytes);
  const pinned_bytes second(way == SECOND_OF_HOST ? packet.bytes : other.bytes);
  const int32_t turn_before = way == SECOND_OF_HOST;
  device_array<int32_t> turn(std::vector<int32_t>{turn_before, 0});
  device_array<gpu_sample_result_t> drawn(results);
  device_array<int32_t> ids(untouched(s.tokens)), positions(untouched(s.tokens));
  device_array<int64_t> slots(std::vector<int64_t>((size_t)s.tokens, UNTOUCHED));
  device_array<int32_t> start(untouched(s.reqs + 1)), lens(untouched(s.reqs));
  device_array<int32_t> selected(untouched(s.selected_rows)), adapters(untouched(s.tokens));
  device_array<int32_t> state_slots(untouched(s.reqs)), first_save(untouched(s.reqs + 1));
  device_array<int32_t> saves(untouched(2 * SAVES)), table(untouched(TABLE));
  device_array<int32_t> history(untouched(SLOTS));
  gpu_inputs_t args = {};
  args.packet = (gpu_packet_t *)bytes.p, args.turn = turn.p, args.drawn = drawn.p;
  args.input_ids = ids.p, args.positions = positions.p, args.slots = slots.p;
  args.query_start_loc = start.p, args.seq_lens = lens.p, args.selected = selected.p;
  args.adapters = adapters.p, args.state_slots = state_slots.p, args.first_save = first_save.p;
  args.saves = (gpu_save_t *)saves.p, args.block_table = table.p, args.history = history.p;
  args.tokens = s.tokens, args.reqs = s.reqs, args.selected_rows = s.selected_rows;
  if (way != ON_DEVICE) {
    args.host[0] = (const gpu_packet_t *)first.p;
    args.host[1] = (const gpu_packet_t *)second.p;
  }
  MUST(gpu_inputs(&args, nullptr));

  std::vector<int32_t> known = packet.ids, of_slots = untouched(SLOTS), of_table = untouched(TABLE);
  for (int32_t &id : known)
    if (id < 0) id = 5000 + (-1 - id);
  for (size_t i = 0; i < known.size(); i++)
    if (packet.slots[i] >= 0) of_slots[(size_t)packet.slots[i]] = known[i];
  for (const gpu_update_t &u : packet.updates) of_table[(size_t)u.index] = u.block;
  std::vector<int32_t> of_saves = untouched(2 * SAVES);
  for (size_t i = 0; s.states && i < SAVES; i++)
    of_saves[2 * i] = packet.saves[i].behind, of_saves[2 * i + 1] = packet.saves[i].slot;
  auto is = [what](const char *array, bool holds) {
    check_that(holds, std::string(what) + ": " + array);
  };
  const std::vector<char> copied = bytes.get();
  is("packet", std::equal(packet.bytes.begin(), packet.bytes.end(), copied.begin()));
  is("turn", turn.get() == std::vector<int32_t>{1 - turn_before, 0});
  is("ids", ids.get() == padded(known, s.tokens, -1));
  is("positions", positions.get() == padded(packet.positions, s.tokens, 0));
  is("slots", slots.get() == padded(packet.slots, s.tokens, (int64_t)-1));
  is("starts", start.get() == padded(packet.start, s.reqs + 1, s.num_tokens));
  is("lengths", lens.get() == padded(packet.lens, s.reqs, 0));
  is("selected", selected.get() == padded(packet.selected, s.selected_rows, -1));
  is("adapters",
     adapters.get() == (s.adapters ? padded(packet.adapters, s.tokens, 0) : untouched(s.tokens)));
  is("slots of states",
     state_slots.get() == (s.states ? padded(packet.state_slots, s.reqs, 0) : untouched(s.reqs)));
  is("first saves", first_save.get() == (s.states ? padded(packet.first_save, s.reqs + 1, +SAVES)
                                                  : untouched(s.reqs + 1)));
  is("saves", saves.get() == of_saves);
  is("block table", table.get() == of_table);
  is("history", history.get() == of_slots);
}

static void check_steps(packet_way way) {
  check_inputs("a decode", {3, 3, 3, 2, 4, 4, 4, false, false}, way);
  check_inputs("a full step", {8, 2, 2, 0, 8, 2, 2, false, false}, way);
  check_inputs("adapters and states", {300, 5, 4, 21, 512, 8, 8, true, true}, way);
  check_inputs("more rows than tokens", {0, 0, 0, 1, 1, 600, 1, true, true}, way);
  check_inputs("more tokens than threads", {17000, 1, 1, 1, 20000, 4, 4, true, false}, way);
}

TEST(inputs_of_a_step) {
  check_steps(ON_DEVICE);
}

TEST(inputs_that_the_device_fetches) {
  check_steps(FIRST_OF_HOST);
  check_steps(SECOND_OF_HOST);
}

TEST(inputs_history_copies) {
  enum { SIZE = 100, BLOCKS = 6 };
  std::vector<int32_t> ids(SIZE * BLOCKS);
  for (auto &id : ids) id = random_below(1 << 20);
  const std::vector<block_copy_t> copies = {{1, 4, SIZE}, {1, 5, 70}, {0, 3, 1}};
  device_array<int32_t> history(ids);
  device_array<block_copy_t> d_copies(copies);
  MUST(gpu_history_copy(history.p, SIZE, d_copies.p, (int32_t)copies.size(), nullptr));
  MUST(gpu_history_copy(history.p, SIZE, d_copies.p, 0, nullptr));
  for (const block_copy_t &c : copies)
    std::copy_n(ids.begin() + c.src * SIZE, c.rows, ids.begin() + c.dst * SIZE);
  check_that(history.get() == ids, "ids follow their blocks, and no further than their rows");
}
