/* ptx_program.h: an entry made ready to run: every register a place, every statement a step.
 *
 * A CUDA thread is a Lane: an array of words, in which its registers, the constants of the entry
 * and its special registers all have places, so that a step reads every operand in the same way.
 * The tables of ptx_steps_*.cc say which instructions there are, by their whole name: one that is
 * in none is an Error with its line. Modules and programs live as long as the process.
 */
#ifndef TESTS_PTX_PROGRAM_H
#define TESTS_PTX_PROGRAM_H

#include "emu_core.h"
#include "ptx_read.h"

namespace ptx {

enum { NO_GUARD = ~0u, OPERANDS_MAX = 7 };

struct Instruction;
struct Program;
struct Launched;

/* A running CUDA thread. */
struct Lane {
  uint32_t *words;
  const Instruction *next; /* null: it has ended */
  char *shared;            /* of its block, where addresses of shared memory count from */
  size_t shared_bytes;     /* so many belong to the kernel */
  char *local;
  Launched *launch;
  bool has_tried;  /* to wait for an mbarrier: every other try ends too early */
  uint32_t thread; /* in its block */
  bool is_counted; /* its accesses to shared memory are (ptx_banks.h) */
};
typedef void Step(Lane &lane, const Instruction &i);

/* A range of memory that an instruction reached the last time. */
struct Reached {
  uintptr_t begin;
  size_t size;
};

struct Instruction {
  Step *step;
  uint32_t at[OPERANDS_MAX]; /* places of the operands in `words`, or numbers of 'i' */
  uint32_t guard;            /* place of a predicate, or NO_GUARD */
  bool guard_is_negated;
  int line;
  int64_t offset;            /* of the address among the operands */
  const uint32_t *list;      /* places of the operands in braces */
  const Instruction *target; /* of a branch */
  mutable Reached reached;
  const Program *program;
};

/* A row of a table of instructions. `operands` has a letter for each, those of a list in braces:
 *   p h w d  a register of 1, 16, 32, 64 bits; P H W D a number or symbol as well
 *   x        a register of 16 or 32 bits, to which a load extends; X a source of any size
 *   m s      an address of 64 bits, of 32 bits in shared memory; i a number; L a label; _ a sink
 * Optional |p after a letter: a second result. */
struct Rule {
  const char *opcode, *operands;
  Step *step;
};
/* The row for an opcode, or null. */
const Rule *find_rule(const std::string &opcode);

/* The tables. */
struct Rules {
  const Rule *first;
  size_t count;
};
Rules whole_rules();
Rules move_rules();
Rules real_rules();
Rules memory_rules();
Rules warp_rules();

enum Special {
  TID_X,
  TID_Y,
  TID_Z,
  NTID_X,
  NTID_Y,
  NTID_Z,
  CTAID_X,
  CTAID_Y,
  CTAID_Z,
  NCTAID_X,
  NCTAID_Y,
  NCTAID_Z,
  LANEID,
  SPECIALS
};

/* A symbol of the program whose value a launch knows. */
struct SymbolPlace {
  uint32_t at;
  const Variable *variable;
  enum Memory { PARAMETER, SHARED, LOCAL, GLOBAL } memory;
  size_t offset; /* of a parameter or local variable in its memory */
};

struct Program {
  std::string file, name;
  Entry entry;
  std::vector<Instruction> code;
  std::vector<uint32_t> lists; /* what `list` points into */
  std::vector<uint32_t> begin; /* the words of a lane when it starts: constants, then poison */
  std::vector<SymbolPlace> symbols;
  size_t parameter_bytes = 0, local_bytes = 0;
  std::vector<size_t> parameter_offsets;
};

/* Makes a program of an entry; throws Error. */
Program *make_program(const Module &module, const Entry &entry);

/* The program of a launch, while it runs. */
struct Launched {
  const Program *program;
  std::vector<char> parameters;
  std::vector<Reached> memory; /* what the kernel may touch, in order */
  uint64_t steps = 0;          /* instructions of threads so far */
};

} // namespace ptx
#endif
