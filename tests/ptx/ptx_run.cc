/* ptx_run.cc: a grid of lanes over the emulator's threads.
 *
 * Each fiber of the emulator is a lane with a program counter of its own, so divergent threads need
 * nothing: they meet where the instructions that need several threads say so. The words of a lane
 * are kept for the next block; a register that nothing has written holds ones.
 */
#include "ptx_run.h"
#include "emu_runtime.h"
#include <algorithm>
#include <string.h>

namespace ptx {

/* The memory of a fiber's lane, kept from block to block. */
struct LaneMemory {
  std::vector<uint32_t> words;
  std::vector<char> local;
};

static LaneMemory &memory_of(const emu::Fiber *f) {
  static std::vector<LaneMemory *> all;
  const size_t number = (size_t)f->rank * f->owner->threads + f->linear;
  while (all.size() <= number) all.push_back(new LaneMemory);
  return *all[number];
}

static void set_specials(uint32_t *words, const emu::Fiber *f) {
  const uint32_t values[SPECIALS] = {
      f->index.x,      f->index.y,     f->index.z, f->block_size.x, f->block_size.y,
      f->block_size.z, f->block.x,     f->block.y, f->block.z,      f->grid_size.x,
      f->grid_size.y,  f->grid_size.z, f->lane};
  memcpy(words, values, sizeof values);
}

/* Dynamic shared memory begins at 0, static variables follow, as the emulator gives them. */
static uint64_t value_of(const SymbolPlace &symbol, const Lane &lane) {
  const Variable &v = *symbol.variable;
  switch (symbol.memory) {
  case SymbolPlace::PARAMETER:
    return (uint64_t)(uintptr_t)(lane.launch->parameters.data() + symbol.offset);
  case SymbolPlace::LOCAL: return (uint64_t)(uintptr_t)(lane.local + symbol.offset);
  case SymbolPlace::GLOBAL: return (uint64_t)(uintptr_t)v.bytes.data();
  case SymbolPlace::SHARED: break;
  }
  if (v.is_dynamic) return 0;
  return emu::shared_offset(emu::static_shared(&v, v.size, v.align));
}

/* The body of every CUDA thread. */
static void run_lane(void *launched) {
  Launched &launch = *static_cast<Launched *>(launched);
  const Program &program = *launch.program;
  const emu::Fiber *f = emu::self();
  LaneMemory &memory = memory_of(f);
  memory.words = program.begin;
  memory.local.assign(program.local_bytes, (char)0xff);
  Lane lane = {memory.words.data(),
               program.code.data(),
               f->owner->shared,
               0,
               memory.local.data(),
               &launch,
               false,
               f->linear,
               f->block.x + f->block.y + f->block.z == 0};
  set_specials(lane.words, f);
  for (const SymbolPlace &symbol : program.symbols) {
    const uint64_t value = value_of(symbol, lane);
    memcpy(lane.words + symbol.at, &value, sizeof value);
  }
  lane.shared_bytes = f->owner->shared_used;
  uint64_t steps = 0;
  while (lane.next) {
    const Instruction &i = *lane.next++;
    steps++;
    if (i.guard != NO_GUARD && (lane.words[i.guard] != 0) == i.guard_is_negated) continue;
    i.step(lane, i);
  }
  launch.steps += steps;
}

/* The arguments of the call as the parameters of the entry. */
static bool take_parameters(const Program &program, const emu::Launch &launch, Launched *to) {
  emu::Argument arguments[emu::ARGUMENTS_MAX];
  const unsigned count = launch.list(launch.argument, arguments);
  const std::vector<Variable> &wanted = program.entry.parameters;
  to->parameters.resize(program.parameter_bytes);
  bool fits = count == wanted.size();
  for (unsigned i = 0; fits && i < count; i++) {
    fits = arguments[i].size == wanted[i].size;
    if (fits)
      memcpy(to->parameters.data() + program.parameter_offsets[i], arguments[i].value,
             wanted[i].size);
  }
  if (!fits) fprintf(stderr, "ptx: %s has other parameters than the call\n", program.name.c_str());
  return fits;
}

/* Device and pinned memory, the parameters and the module's variables. */
static void list_memory(const Program &program, Launched *to) {
  auto add = [to](uintptr_t begin, size_t size) { to->memory.push_back({begin, size}); };
  for (const auto &range : emu::runtime().device) add(range.first, range.second);
  for (const auto &range : emu::runtime().pinned) add(range.first, range.second);
  add(reinterpret_cast<uintptr_t>(to->parameters.data()), to->parameters.size());
  for (const SymbolPlace &symbol : program.symbols)
    if (symbol.memory == SymbolPlace::GLOBAL)
      add(reinterpret_cast<uintptr_t>(symbol.variable->bytes.data()), symbol.variable->size);
  std::sort(to->memory.begin(), to->memory.end(),
            [](const Reached &a, const Reached &b) { return a.begin < b.begin; });
}

bool run_program(const Program &program, const emu::Launch &launch, Work *work) {
  Launched launched;
  launched.program = &program;
  *work = {};
  if (!take_parameters(program, launch, &launched)) return false;
  list_memory(program, &launched);
  for (const Instruction &i : program.code) i.reached = {0, 0};
  emu::Launch mine = launch;
  mine.run = run_lane;
  mine.argument = &launched;
  mine.argument_bytes = sizeof launched;
  banks_begin();
  const bool good = emu::run_grid(mine);
  work->steps = launched.steps;
  work->banks = banks_end();
  return good;
}

} // namespace ptx
