/* ptx_read.h: the text of PTX as a tree: modules, entries, statements, operands.
 *
 * The reader takes what nvcc emits for kernels and the inline assembly in it, and nothing else: a
 * directive or form that is not known here ends it with an Error that names file and line. It does
 * not know instructions; ptx_program.h does. One thread.
 */
#ifndef TESTS_PTX_READ_H
#define TESTS_PTX_READ_H

#include <map>
#include <stdexcept>
#include <stdint.h>
#include <string>
#include <vector>

namespace ptx {

/* "file:line: what is wrong". */
struct Error : std::runtime_error {
  Error(const std::string &file, int line, const std::string &what)
      : std::runtime_error(file + ":" + std::to_string(line) + ": " + what) {}
};

enum OperandKind {
  OPERAND_NAME,    /* a register, a symbol, a label, a special register: `name` */
  OPERAND_NUMBER,  /* `number`: an integer, or the bits of 0fXXXXXXXX (4 bytes), 0dXXXX (8) */
  OPERAND_ADDRESS, /* [name + number] */
  OPERAND_LIST,    /* {parts} */
  OPERAND_PAIR,    /* name|name: parts */
  OPERAND_SINK     /* _ */
};
struct Operand {
  OperandKind kind;
  std::string name;
  int64_t number = 0;
  char form = 'i'; /* of a number: i, f, d */
  std::vector<Operand> parts;
};

struct Statement {
  int line;
  std::string opcode; /* with its modifiers: "ld.global.u32" */
  std::string guard;  /* of @guard or @!guard, or "" */
  bool guard_is_negated = false;
  std::vector<Operand> operands;
};

/* A variable of shared, local or global memory, or a parameter. */
struct Variable {
  std::string name;
  size_t align, size;
  bool is_dynamic = false;    /* .extern .shared: as large as the launch says */
  std::vector<uint8_t> bytes; /* what it holds at the start, of a global one */
};

struct Entry {
  std::string name;
  int line = 0;
  std::vector<Variable> parameters, shared, local;
  std::map<std::string, int> registers; /* name -> bits, 1 for a predicate */
  std::map<std::string, size_t> labels; /* name -> the statement that follows it */
  std::vector<Statement> statements;
};

struct Module {
  std::string file, target;
  std::vector<Variable> globals, shared;
  std::vector<std::string> names; /* of its entries, in the order of the file */
  std::string text;
  std::vector<size_t> begins; /* of each entry: where its line begins in the text */
  std::vector<int> lines;
};

/* Reads the parts of a module that stand outside of its entries. */
Module read_module(const std::string &file, const std::string &text);
Module read_module_file(const std::string &path);
/* Reads one entry, by its place in `names`. */
Entry read_entry(const Module &module, size_t number);

} // namespace ptx
#endif
