/* ptx_program.cc: gives every register and constant of an entry its place, and every statement its
 * step.
 *
 * The accumulators of a warpgroup's product must lie side by side, because the emulator keeps them
 * in one array while the product runs; they get the first places. Sizes of operands are checked as
 * ptxas does, so that a step need not.
 */
#include "ptx_program.h"
#include <algorithm>
#include <string.h>
#include <unordered_map>

namespace ptx {

static const char *const special_names[SPECIALS] = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};

const Rule *find_rule(const std::string &opcode) {
  static const auto *rules = [] {
    auto *all = new std::unordered_map<std::string, const Rule *>;
    for (const Rules &table :
         {whole_rules(), move_rules(), real_rules(), memory_rules(), warp_rules()})
      for (size_t i = 0; i < table.count; i++) (*all)[table.first[i].opcode] = &table.first[i];
    return all;
  }();
  const auto found = rules->find(opcode);
  return found == rules->end() ? nullptr : found->second;
}

/* The numbers of a program's words, and what is in them at the start. */
class Places {
public:
  Places(Program &program, const Module &module) : program_(program), module_(module) {}
  void give_specials() { words_ = SPECIALS; }
  void give_products();
  void give_registers();
  void give_symbols();
  uint32_t constant(int64_t value);
  /* -1 where it is no register. */
  int bits_of(const std::string &name) const {
    const auto found = program_.entry.registers.find(name);
    return found == program_.entry.registers.end() ? -1 : found->second;
  }
  bool is_symbol(const std::string &name) const { return symbols_.count(name) != 0; }
  uint32_t place_of(const std::string &name) const;
  void finish();

private:
  void give(const std::string &name, int bits);
  void give_symbol(const Variable &v, SymbolPlace::Memory memory, size_t offset);

  Program &program_;
  const Module &module_;
  uint32_t words_ = 0;
  std::unordered_map<std::string, uint32_t> places_, symbols_;
  std::unordered_map<int64_t, uint32_t> constants_;
};

void Places::give(const std::string &name, int bits) {
  if (bits == 64) words_ = (words_ + 1) & ~1u;
  places_[name] = words_;
  words_ += bits == 64 ? 2 : 1;
}

void Places::give_products() {
  for (const Statement &s : program_.entry.statements) {
    if (s.opcode.compare(0, 15, "wgmma.mma_async") || s.operands.empty()) continue;
    const std::vector<Operand> &parts = s.operands[0].parts;
    const bool is_new = !parts.empty() && !places_.count(parts[0].name);
    for (size_t i = 0; i < parts.size(); i++) {
      if (is_new && !places_.count(parts[i].name)) give(parts[i].name, 32);
      const auto found = places_.find(parts[i].name);
      if (found == places_.end() || found->second != places_[parts[0].name] + i)
        throw Error(module_.file, s.line, "accumulators that other products have in another order");
    }
  }
}

void Places::give_registers() {
  for (const auto &r : program_.entry.registers)
    if (!places_.count(r.first)) give(r.first, r.second);
}

void Places::give_symbol(const Variable &v, SymbolPlace::Memory memory, size_t offset) {
  words_ = (words_ + 1) & ~1u;
  symbols_[v.name] = words_;
  program_.symbols.push_back({words_, &v, memory, offset});
  words_ += 2;
}

/* Where each variable begins when they follow each other; `end` gets the sum. */
static std::vector<size_t> lay_out(const std::vector<Variable> &variables, size_t *end) {
  std::vector<size_t> offsets;
  *end = 0;
  for (const Variable &v : variables) {
    *end = (*end + v.align - 1) / v.align * v.align;
    offsets.push_back(*end);
    *end += v.size;
  }
  return offsets;
}

void Places::give_symbols() {
  Program &p = program_;
  p.parameter_offsets = lay_out(p.entry.parameters, &p.parameter_bytes);
  const std::vector<size_t> local = lay_out(p.entry.local, &p.local_bytes);
  for (size_t i = 0; i < p.entry.parameters.size(); i++)
    give_symbol(p.entry.parameters[i], SymbolPlace::PARAMETER, p.parameter_offsets[i]);
  for (size_t i = 0; i < p.entry.local.size(); i++)
    give_symbol(p.entry.local[i], SymbolPlace::LOCAL, local[i]);
  for (const Variable &v : p.entry.shared) give_symbol(v, SymbolPlace::SHARED, 0);
  for (const Variable &v : module_.shared) give_symbol(v, SymbolPlace::SHARED, 0);
  for (const Variable &v : module_.globals) give_symbol(v, SymbolPlace::GLOBAL, 0);
}

uint32_t Places::constant(int64_t value) {
  const auto found = constants_.find(value);
  if (found != constants_.end()) return found->second;
  words_ = (words_ + 1) & ~1u;
  constants_[value] = words_;
  words_ += 2;
  return words_ - 2;
}

uint32_t Places::place_of(const std::string &name) const {
  for (int i = 0; i < SPECIALS; i++)
    if (name == special_names[i]) return (uint32_t)i;
  const auto symbol = symbols_.find(name);
  if (symbol != symbols_.end()) return symbol->second;
  return places_.at(name);
}

void Places::finish() {
  program_.begin.assign(words_, 0xffffffffu);
  for (const auto &c : constants_) memcpy(&program_.begin[c.second], &c.first, sizeof c.first);
}

/* ---- Statements ---- */

class Maker {
public:
  Maker(Program &program, Places &places, const std::string &file)
      : program_(program), places_(places), file_(file) {}
  void make(const Statement &s);

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(file_, statement_->line, statement_->opcode + ": " + what);
  }
  uint32_t register_at(const Operand &o, const char *letters) const;
  uint32_t source_at(const Operand &o, char letter);
  uint32_t source_of_any_size(const Operand &o);
  uint32_t address_at(const Operand &o, char letter);
  const Rule *rule_of(const Statement &s) const;
  uint32_t operand_at(const Operand &o, char letter);
  void make_operands(const char *letters);
  void add(uint32_t place);

  Program &program_;
  Places &places_;
  const std::string &file_;
  const Statement *statement_ = nullptr;
  Instruction now_;
  int count_ = 0, addresses_ = 0;
};

static char letter_of(int bits) {
  return bits == 1 ? 'p' : bits == 16 ? 'h' : bits == 32 ? 'w' : bits == 64 ? 'd' : '?';
}

uint32_t Maker::register_at(const Operand &o, const char *letters) const {
  if (o.kind != OPERAND_NAME) fail("an operand that is no register");
  const int bits = places_.bits_of(o.name);
  if (bits < 0) fail(o.name + " is no register");
  if (!strchr(letters, letter_of(bits))) fail(o.name + " has " + std::to_string(bits) + " bits");
  return places_.place_of(o.name);
}

/* A source may be a number, a symbol or a special register. */
uint32_t Maker::source_at(const Operand &o, char letter) {
  const char letters[] = {(char)tolower(letter), '\0'};
  if (o.kind == OPERAND_NUMBER) {
    if ((o.form == 'f' && letter != 'W') || (o.form == 'd' && letter != 'D'))
      fail("a number of another type");
    return places_.constant(o.number);
  }
  if (o.kind == OPERAND_NAME && places_.bits_of(o.name) < 0) {
    if (places_.is_symbol(o.name)) return places_.place_of(o.name);
    for (const char *special : special_names)
      if (o.name == special) return places_.place_of(o.name);
    fail("unknown name " + o.name);
  }
  return register_at(o, letters);
}

/* What is stored may be longer than its type: its low bits count. */
uint32_t Maker::source_of_any_size(const Operand &o) {
  const bool is_register = o.kind == OPERAND_NAME && places_.bits_of(o.name) > 0;
  return is_register ? register_at(o, "hwd") : source_at(o, o.form == 'f' ? 'W' : 'D');
}

uint32_t Maker::address_at(const Operand &o, char letter) {
  if (o.kind != OPERAND_ADDRESS) fail("an operand that is no address");
  if (addresses_++ && (o.number || now_.offset)) fail("offsets beside two addresses");
  now_.offset = o.number;
  if (places_.is_symbol(o.name)) return places_.place_of(o.name);
  return register_at({OPERAND_NAME, o.name, 0, 'i', {}}, letter == 's' ? "w" : "d");
}

uint32_t Maker::operand_at(const Operand &o, char letter) {
  switch (letter) {
  case 'm':
  case 's': return address_at(o, letter);
  case 'i':
    if (o.kind != OPERAND_NUMBER || o.form != 'i') fail("an operand that is no number");
    return (uint32_t)o.number;
  case 'L': {
    const auto found = program_.entry.labels.find(o.name);
    if (found == program_.entry.labels.end()) fail("unknown label " + o.name);
    if (found->second == program_.entry.statements.size()) fail("a label without a statement");
    now_.target = program_.code.data() + found->second;
    return 0;
  }
  case '_':
    if (o.kind != OPERAND_SINK) fail("a result that no model gives");
    return 0;
  case 'x': return register_at(o, "hw");
  case 'X': return source_of_any_size(o);
  case 'P':
  case 'H':
  case 'W':
  case 'D': return source_at(o, letter);
  default: {
    const char letters[] = {letter, '\0'};
    return register_at(o, letters);
  }
  }
}

void Maker::add(uint32_t place) {
  if (count_ == OPERANDS_MAX) fail("too many operands");
  now_.at[count_++] = place;
}

void Maker::make_operands(const char *letters) {
  const size_t first = program_.lists.size();
  size_t number = 0;
  for (; *letters; letters++, number++) {
    if (number == statement_->operands.size()) fail("an operand is missing");
    const Operand &o = statement_->operands[number];
    if (letters[1] == '|') {
      if (o.kind != OPERAND_PAIR) fail("an operand that is no pair");
      add(operand_at(o.parts[0], letters[0]));
      add(operand_at(o.parts[1], letters[2]));
      letters += 2;
    } else if (*letters == '{') {
      size_t part = 0;
      for (letters++; *letters != '}'; letters++, part++) {
        if (o.kind != OPERAND_LIST || part == o.parts.size()) fail("a list that is too short");
        program_.lists.push_back(operand_at(o.parts[part], *letters));
      }
      if (part != o.parts.size()) fail("a list that is too long");
    } else {
      add(operand_at(o, *letters));
    }
  }
  if (number != statement_->operands.size()) fail("too many operands");
  now_.list = program_.lists.data() + first;
}

/* "{64w}" is 64 letters. */
static std::string spelled_out(const char *operands) {
  std::string out;
  for (; *operands; operands++) {
    int times = 0;
    while (*operands >= '0' && *operands <= '9') times = times * 10 + *operands++ - '0';
    out.append((size_t)std::max(times, 1), *operands);
  }
  return out;
}

/* Moves that take words apart or put them together, and loads to a longer register, have rows of
 * their own. */
const Rule *Maker::rule_of(const Statement &s) const {
  const std::vector<Operand> &o = s.operands;
  if (s.opcode.compare(0, 4, "mov.") == 0 && o.size() == 2) {
    if (o[0].kind == OPERAND_LIST) return find_rule(s.opcode + " apart");
    if (o[1].kind == OPERAND_LIST) return find_rule(s.opcode + " together");
  }
  if (s.opcode.compare(0, 3, "ld.") == 0 && !o.empty() && places_.bits_of(o[0].name) == 64) {
    const Rule *wide = find_rule(s.opcode + " wide");
    if (wide) return wide;
  }
  if (s.opcode.compare(0, 6, "wgmma.") == 0 && o.size() > 1 && o[1].kind == OPERAND_LIST)
    return find_rule(s.opcode + " registers");
  return find_rule(s.opcode);
}

void Maker::make(const Statement &s) {
  statement_ = &s;
  count_ = addresses_ = 0;
  now_ = Instruction();
  now_.guard = NO_GUARD;
  now_.line = s.line;
  now_.program = &program_;
  const Rule *rule = rule_of(s);
  if (!rule) fail("no step for this instruction");
  if (!s.guard.empty()) {
    now_.guard = register_at({OPERAND_NAME, s.guard, 0, 'i', {}}, "p");
    now_.guard_is_negated = s.guard_is_negated;
  }
  const std::string letters = spelled_out(rule->operands);
  now_.step = rule->step;
  make_operands(letters.c_str());
  program_.code.push_back(now_);
}

Program *make_program(const Module &module, const Entry &entry) {
  Program *p = new Program;
  p->file = module.file;
  p->name = entry.name;
  p->entry = entry;
  Places places(*p, module);
  places.give_specials();
  places.give_products();
  places.give_registers();
  places.give_symbols();
  size_t parts = 0;
  for (const Statement &s : p->entry.statements)
    for (const Operand &o : s.operands) parts += o.parts.size();
  p->lists.reserve(parts); /* pointers into both stay */
  p->code.reserve(p->entry.statements.size());
  Maker maker(*p, places, module.file);
  for (const Statement &s : p->entry.statements) maker.make(s);
  places.finish();
  return p;
}

} // namespace ptx
