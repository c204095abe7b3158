/* ptx_steps_memory.cc: loads, stores and atomics.
 *
 * Addresses of global, local and parameter memory are the host's; those of shared memory count from
 * the start of the block's, or are the host's where they are generic. Every access must be aligned
 * to its size and lie in one allocation.
 */
#include "ptx_banks.h"
#include "ptx_steps.h"
#include <algorithm>

namespace ptx {

void fail_at(const Instruction &i, const char *what) {
  emu::fail("%s at %s:%d", what, i.program->file.c_str(), i.line);
}

/* Remembers for the instruction which allocation it reaches: mostly the same the next time. */
static void find_memory(const Lane &lane, const Instruction &i, uintptr_t address, size_t size) {
  const uintptr_t local = reinterpret_cast<uintptr_t>(lane.local);
  const std::vector<Reached> &all = lane.launch->memory;
  auto after = std::upper_bound(all.begin(), all.end(), address,
                                [](uintptr_t at, const Reached &r) { return at < r.begin; });
  if (after != all.begin()) {
    const Reached &r = after[-1];
    if (address - r.begin < r.size && size <= r.size - (address - r.begin)) {
      i.reached = r;
      return;
    }
  }
  if (address - local < i.program->local_bytes &&
      size <= i.program->local_bytes - (address - local))
    return;
  emu::fail("%zu bytes at %p, in no allocation, at %s:%d", size, reinterpret_cast<void *>(address),
            i.program->file.c_str(), i.line);
}

static char *outside(const Lane &lane, const Instruction &i, uint32_t place, size_t size) {
  const uintptr_t address = get<uint64_t>(lane, place) + (uint64_t)i.offset;
  if (address % size) fail_at(i, "misaligned address");
  const uintptr_t of_block = address - reinterpret_cast<uintptr_t>(lane.shared); /* cvta.shared */
  if (of_block < lane.shared_bytes && size <= lane.shared_bytes - of_block)
    return reinterpret_cast<char *>(address);
  const uintptr_t in = address - i.reached.begin;
  if (in >= i.reached.size || i.reached.size - in < size) find_memory(lane, i, address, size);
  return reinterpret_cast<char *>(address);
}

static char *in_shared(const Lane &lane, const Instruction &i, uint32_t place, size_t size) {
  const uint32_t address = get<uint32_t>(lane, place) + (uint32_t)i.offset;
  if (address % size) fail_at(i, "misaligned address in shared memory");
  if (address >= lane.shared_bytes) fail_at(i, "an address beyond shared memory");
  if (lane.is_counted) banks_note(i, lane.thread, address, (uint32_t)size);
  return lane.shared + address;
}

template <bool SHARED>
static char *reach(const Lane &lane, const Instruction &i, uint32_t place, size_t size) {
  return SHARED ? in_shared(lane, i, place, size) : outside(lane, i, place, size);
}

template <class T, class Register, bool SHARED> static void load(Lane &lane, const Instruction &i) {
  T value;
  memcpy(&value, reach<SHARED>(lane, i, i.at[1], sizeof value), sizeof value);
  put<Register>(lane, i.at[0], (Register)value);
}
template <class T, class Register, bool SHARED, int N>
static void load_list(Lane &lane, const Instruction &i) {
  T values[N];
  memcpy(values, reach<SHARED>(lane, i, i.at[0], sizeof values), sizeof values);
  for (int n = 0; n < N; n++) put<Register>(lane, i.list[n], (Register)values[n]);
}
template <class T, bool SHARED> static void store(Lane &lane, const Instruction &i) {
  const T value = get<T>(lane, i.at[1]);
  memcpy(reach<SHARED>(lane, i, i.at[0], sizeof value), &value, sizeof value);
}
template <class T, bool SHARED, int N> static void store_list(Lane &lane, const Instruction &i) {
  T values[N];
  for (int n = 0; n < N; n++) values[n] = get<T>(lane, i.list[n]);
  memcpy(reach<SHARED>(lane, i, i.at[0], sizeof values), values, sizeof values);
}

/* Nothing but a check of the address. */
static void prefetch(Lane &lane, const Instruction &i) {
  outside(lane, i, i.at[0], 1);
}

struct Add {
  template <class T> static T next(T old, T by) { return old + by; }
};
struct And {
  template <class T> static T next(T old, T by) { return old & by; }
};
struct Or {
  template <class T> static T next(T old, T by) { return old | by; }
};
struct Exchange {
  template <class T> static T next(T, T by) { return by; }
};
/* Counts 0 .. by, and begins again. */
struct Increment {
  template <class T> static T next(T old, T by) { return old >= by ? 0 : old + 1; }
};
struct Largest {
  template <class T> static T next(T old, T by) { return old > by ? old : by; }
};

/* Fibers do not preempt each other: a load and a store are atomic here. */
template <class T, bool SHARED, class Next> static void atomic(Lane &lane, const Instruction &i) {
  char *p = reach<SHARED>(lane, i, i.at[1], sizeof(T));
  T old;
  memcpy(&old, p, sizeof old);
  const T fresh = Next::next(old, get<T>(lane, i.at[2]));
  memcpy(p, &fresh, sizeof fresh);
  put<T>(lane, i.at[0], old);
}

#define PTX_LOAD(name, type, m, T, Short, Wide, shared)                                            \
  {"ld." name type, "x" m, load<T, Short, shared>}, {                                              \
    "ld." name type " wide", "d" m, load<T, Wide, shared>                                          \
  }
#define PTX_LOAD_WIDE(name, type, m, shared)                                                       \
  { "ld." name type, "d" m, load<uint64_t, uint64_t, shared> }
#define PTX_LOAD_LIST(name, type, m, T, shared)                                                    \
  {"ld." name "v2." type, "{2x}" m, load_list<T, uint32_t, shared, 2>}, {                          \
    "ld." name "v4." type, "{4x}" m, load_list<T, uint32_t, shared, 4>                             \
  }
#define PTX_LOADS(name, m, shared)                                                                 \
  PTX_LOAD(name, "u8", m, uint8_t, uint32_t, uint64_t, shared),                                    \
      PTX_LOAD(name, "s8", m, int8_t, int32_t, int64_t, shared),                                   \
      PTX_LOAD(name, "u16", m, uint16_t, uint32_t, uint64_t, shared),                              \
      PTX_LOAD(name, "s16", m, int16_t, int32_t, int64_t, shared),                                 \
      PTX_LOAD(name, "u32", m, uint32_t, uint32_t, uint64_t, shared),                              \
      PTX_LOAD(name, "s32", m, int32_t, int32_t, int64_t, shared),                                 \
      PTX_LOAD(name, "f32", m, uint32_t, uint32_t, uint64_t, shared),                              \
      PTX_LOAD_WIDE(name, "u64", m, shared), PTX_LOAD_WIDE(name, "f64", m, shared),                \
      PTX_LOAD_LIST(name, "u8", m, uint8_t, shared),                                               \
      PTX_LOAD_LIST(name, "u16", m, uint16_t, shared),                                             \
      PTX_LOAD_LIST(name, "u32", m, uint32_t, shared),                                             \
      PTX_LOAD_LIST(name, "f32", m, uint32_t, shared), {                                           \
    "ld." name "v2.u64", "{2d}" m, load_list<uint64_t, uint64_t, shared, 2>                        \
  }

#define PTX_STORE(name, type, m, T, shared)                                                        \
  {"st." name type, m "X", store<T, shared>}, {                                                    \
    "st." name "v2." type, m "{2X}", store_list<T, shared, 2>                                      \
  }
#define PTX_STORE_4(name, type, m, T, shared)                                                      \
  PTX_STORE(name, type, m, T, shared), {                                                           \
    "st." name "v4." type, m "{4X}", store_list<T, shared, 4>                                      \
  }
#define PTX_STORES(name, m, shared)                                                                \
  PTX_STORE_4(name, "u8", m, uint8_t, shared), PTX_STORE_4(name, "u16", m, uint16_t, shared),      \
      PTX_STORE_4(name, "u32", m, uint32_t, shared),                                               \
      PTX_STORE_4(name, "f32", m, uint32_t, shared), PTX_STORE(name, "u64", m, uint64_t, shared),  \
      PTX_STORE(name, "f64", m, uint64_t, shared)

#define PTX_ATOMICS(memory, m, shared)                                                             \
  {"atom." memory ".add.u32", "w" m "W", atomic<uint32_t, shared, Add>},                           \
      {"atom." memory ".add.u64", "d" m "D", atomic<uint64_t, shared, Add>},                       \
      {"atom." memory ".and.b32", "w" m "W", atomic<uint32_t, shared, And>},                       \
      {"atom." memory ".or.b32", "w" m "W", atomic<uint32_t, shared, Or>},                         \
      {"atom." memory ".exch.b32", "w" m "W", atomic<uint32_t, shared, Exchange>},                 \
      {"atom." memory ".inc.u32", "w" m "W", atomic<uint32_t, shared, Increment>},                 \
      {"atom." memory ".max.u32", "w" m "W", atomic<uint32_t, shared, Largest>}, {                 \
    "atom." memory ".max.s32", "w" m "W", atomic<int32_t, shared, Largest>                         \
  }

static const Rule rules[] = {
    PTX_LOADS("global.", "m", false),
    PTX_LOADS("global.nc.", "m", false),
    PTX_LOADS("global.cg.", "m", false),
    PTX_LOADS("param.", "m", false),
    PTX_LOADS("local.", "m", false),
    PTX_LOADS("", "m", false),
    PTX_LOADS("shared.", "s", true),
    PTX_LOAD_LIST("global.nc.L1::no_allocate.L2::128B.", "u32", "m", uint32_t, false),
    {"ld.acquire.gpu.global.s32", "wm", load<uint32_t, uint32_t, false>},
    {"prefetch.global.L2", "m", prefetch},
    PTX_STORES("global.", "m", false),
    PTX_STORES("local.", "m", false),
    PTX_STORES("", "m", false),
    PTX_STORES("shared.", "s", true),
    {"st.release.gpu.global.s32", "mw", store<uint32_t, false>},
    PTX_ATOMICS("global", "m", false),
    PTX_ATOMICS("shared", "s", true),
    PTX_1("cvta.to.global.u64", "dD", uint64_t, uint64_t, a),
    PTX_1("cvta.shared.u64", "dD", uint64_t, uint64_t,
          reinterpret_cast<uintptr_t>(lane.shared) + (uint32_t)a),
};

Rules memory_rules() {
  return {rules, sizeof rules / sizeof rules[0]};
}

} // namespace ptx
