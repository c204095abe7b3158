/* ptx_read.cc: the reader of PTX: tokens, directives, statements.
 *
 * nvcc's own lines and the bodies of asm statements share one grammar here. Names that an asm
 * statement declares in braces are made unique by the number of the braces, since the same
 * statement stands in a kernel many times.
 */
#include "ptx_read.h"
#include <algorithm>
#include <ctype.h>
#include <fstream>
#include <sstream>
#include <stdlib.h>
#include <string.h>

namespace ptx {

/* ---- Tokens ---- */

/* The next token of a text; comments and white space are passed over. */
class Tokens {
public:
  Tokens(const Module &module, size_t at, int line) : module_(module), at_(at), line_(line) {
    advance();
  }
  const std::string &now() const { return token_; }
  int line() const { return token_line_; }
  size_t begin() const { return begin_; }
  bool ends() const { return token_.empty(); }
  bool is(const char *text) const { return token_ == text; }
  [[noreturn]] void fail(const std::string &what) const { fail(token_line_, what); }
  [[noreturn]] void fail(int line, const std::string &what) const {
    throw Error(module_.file, line, what);
  }
  std::string take() {
    std::string token = token_;
    if (token.empty()) fail("the file ends here");
    advance();
    return token;
  }
  bool take_if(const char *text) {
    if (!is(text)) return false;
    advance();
    return true;
  }
  void expect(const char *text) {
    if (!take_if(text)) fail("expected " + std::string(text) + " and not " + token_);
  }
  int64_t number() {
    char *end;
    const int64_t value = (int64_t)strtoull(token_.c_str(), &end, 0);
    if (token_.empty() || *end) fail("expected a number and not " + token_);
    advance();
    return value;
  }

private:
  static bool is_word(char c) { return isalnum((unsigned char)c) || strchr("_$%.:", c); }
  void skip_space() {
    const std::string &t = module_.text;
    for (; at_ < t.size(); at_++) {
      if (t[at_] == '/' && t.compare(at_, 2, "//") == 0)
        while (at_ < t.size() && t[at_] != '\n') at_++;
      if (at_ >= t.size()) return;
      if (t[at_] == '\n') line_++;
      if (!isspace((unsigned char)t[at_])) return;
    }
  }
  void advance();

  const Module &module_;
  size_t at_, begin_ = 0;
  int line_, token_line_ = 0;
  std::string token_;
};

/* A word may hold colons only inside: "shared::cta", but "LABEL" ":". */
void Tokens::advance() {
  const std::string &t = module_.text;
  skip_space();
  token_line_ = line_;
  begin_ = at_;
  if (at_ >= t.size()) {
    token_.clear();
    return;
  }
  size_t end = at_ + 1;
  if (t[at_] == '"') {
    end = t.find('"', at_ + 1);
    end = end == std::string::npos ? t.size() : end + 1;
  } else if (t[at_] != ':' && is_word(t[at_])) {
    while (end < t.size() && t[end] != '\0' && is_word(t[end]) &&
           (t[end] != ':' || t.compare(end, 2, "::") == 0 || t[end - 1] == ':'))
      end++;
  }
  token_ = t.substr(at_, end - at_);
  at_ = end;
}

/* ---- Variables ---- */

static int bits_of_type(const Tokens &tokens, const std::string &type) {
  static const std::map<std::string, int> bits = {
      {".pred", 1}, {".b8", 8},   {".u8", 8},   {".s8", 8},   {".b16", 16}, {".u16", 16},
      {".s16", 16}, {".f16", 16}, {".b32", 32}, {".u32", 32}, {".s32", 32}, {".f32", 32},
      {".b64", 64}, {".u64", 64}, {".s64", 64}, {".f64", 64}};
  const auto found = bits.find(type);
  if (found == bits.end()) tokens.fail("unknown type " + type);
  return found->second;
}

/* [.align N] .type name [[count]], after the word for its memory. */
static Variable read_variable(Tokens &tokens) {
  Variable v;
  v.align = 0;
  if (tokens.take_if(".align")) v.align = (size_t)tokens.number();
  const std::string type = tokens.take();
  const size_t element = (size_t)bits_of_type(tokens, type) / 8;
  if (!element) tokens.fail("a variable of type " + type);
  v.name = tokens.take();
  v.size = element;
  if (!v.align) v.align = element;
  if (!tokens.take_if("[")) return v;
  v.is_dynamic = tokens.is("]");
  v.size = v.is_dynamic ? 0 : element * (size_t)tokens.number();
  tokens.expect("]");
  return v;
}

static void read_bytes(Tokens &tokens, Variable *v) {
  tokens.expect("{");
  do v->bytes.push_back((uint8_t)tokens.number());
  while (tokens.take_if(","));
  tokens.expect("}");
  if (v->bytes.size() > v->size) tokens.fail("more bytes than " + v->name + " has");
  v->bytes.resize(v->size);
}

/* ---- Statements ---- */

/* What the braces of an entry's body have declared, innermost last. */
struct Scope {
  int number;
  std::map<std::string, std::string> renamed;
};

class Body {
public:
  Body(Tokens &tokens, Entry &entry) : tokens_(tokens), entry_(entry) {}
  void read();

private:
  void read_registers();
  void read_statement();
  void read_label(const std::string &name, int line);
  bool read_directive();
  std::string resolve(const std::string &name) const;
  Operand read_operand();
  Operand read_list();
  Operand read_address();
  Operand read_word(std::string word, bool is_negative);

  Tokens &tokens_;
  Entry &entry_;
  std::vector<Scope> scopes_;
  int scopes_begun_ = 0;
};

std::string Body::resolve(const std::string &name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].renamed.find(name);
    if (found != scopes_[i].renamed.end()) return found->second;
  }
  return name;
}

/* .reg .type name or name<count>, and more of them. */
void Body::read_registers() {
  const std::string type = tokens_.take();
  const int bits = bits_of_type(tokens_, type);
  do {
    std::string name = tokens_.take();
    if (tokens_.take_if("<")) {
      const int64_t count = tokens_.number();
      tokens_.expect(">");
      for (int64_t i = 0; i < count; i++) entry_.registers[name + std::to_string(i)] = bits;
      continue;
    }
    if (scopes_.size() > 1) {
      Scope &scope = scopes_.back();
      name = scope.renamed[name] = name + "#" + std::to_string(scope.number);
    }
    entry_.registers[name] = bits;
  } while (tokens_.take_if(","));
  tokens_.expect(";");
}

Operand Body::read_word(std::string word, bool is_negative) {
  Operand o = {OPERAND_NAME, "", 0, 'i', {}};
  if (word == "_") {
    o.kind = OPERAND_SINK;
    return o;
  }
  if (!isdigit((unsigned char)word[0])) {
    if (is_negative) tokens_.fail("a negative name " + word);
    o.name = resolve(word);
    return o;
  }
  o.kind = OPERAND_NUMBER;
  const bool is_real = word.size() > 2 && word[0] == '0' && strchr("fd", tolower(word[1]));
  char *end;
  if (is_real) {
    o.form = (char)tolower(word[1]);
    if (word.size() != (o.form == 'f' ? 10u : 18u) || is_negative)
      tokens_.fail("a number of an odd length: " + word);
    o.number = (int64_t)strtoull(word.c_str() + 2, &end, 16);
  } else {
    if (word.back() == 'U') word.pop_back();
    o.number = (int64_t)strtoull(word.c_str(), &end, 0);
    if (is_negative) o.number = -o.number;
  }
  if (*end) tokens_.fail("not a number: " + word);
  return o;
}

Operand Body::read_list() {
  Operand o = {OPERAND_LIST, "", 0, 'i', {}};
  do o.parts.push_back(read_operand());
  while (tokens_.take_if(","));
  tokens_.expect("}");
  return o;
}

/* [name], [name+8], [name+-8] */
Operand Body::read_address() {
  Operand o = read_word(tokens_.take(), false);
  if (o.kind != OPERAND_NAME) tokens_.fail("an address that begins with no name");
  o.kind = OPERAND_ADDRESS;
  if (tokens_.take_if("+")) {
    const bool is_negative = tokens_.take_if("-");
    o.number = tokens_.number();
    if (is_negative) o.number = -o.number;
  }
  tokens_.expect("]");
  return o;
}

Operand Body::read_operand() {
  if (tokens_.take_if("{")) return read_list();
  if (tokens_.take_if("[")) return read_address();
  const bool is_negative = tokens_.take_if("-");
  const Operand first = read_word(tokens_.take(), is_negative);
  if (!tokens_.take_if("|")) return first;
  const Operand second = read_word(tokens_.take(), false);
  return {OPERAND_PAIR, "", 0, 'i', {first, second}};
}

void Body::read_label(const std::string &name, int line) {
  const bool is_new = entry_.labels.emplace(name, entry_.statements.size()).second;
  if (!is_new) tokens_.fail(line, "a second label " + name);
}

void Body::read_statement() {
  Statement s;
  s.line = tokens_.line();
  if (tokens_.take_if("@")) {
    s.guard_is_negated = tokens_.take_if("!");
    s.guard = resolve(tokens_.take());
  }
  s.opcode = tokens_.take();
  if (!s.guard.empty() || !tokens_.is(":")) {
    if (!isalpha((unsigned char)s.opcode[0])) tokens_.fail("unknown statement " + s.opcode);
    while (!tokens_.take_if(";")) {
      s.operands.push_back(read_operand());
      if (!tokens_.is(";")) tokens_.expect(",");
    }
    entry_.statements.push_back(s);
    return;
  }
  tokens_.expect(":");
  read_label(s.opcode, s.line);
}

/* Returns false where none stands. Pragmas are advice to ptxas. */
bool Body::read_directive() {
  if (tokens_.take_if(".reg")) {
    read_registers();
  } else if (tokens_.is(".shared") || tokens_.is(".local")) {
    const bool is_shared = tokens_.take() == ".shared";
    (is_shared ? entry_.shared : entry_.local).push_back(read_variable(tokens_));
    tokens_.expect(";");
  } else if (tokens_.take_if(".pragma")) {
    tokens_.take();
    tokens_.expect(";");
  } else {
    return false;
  }
  return true;
}

void Body::read() {
  tokens_.expect("{");
  scopes_.push_back({scopes_begun_++, {}});
  while (!scopes_.empty()) {
    if (tokens_.take_if("{"))
      scopes_.push_back({scopes_begun_++, {}});
    else if (tokens_.take_if("}"))
      scopes_.pop_back();
    else if (!read_directive())
      read_statement();
  }
}

/* ---- Entries and modules ---- */

/* .maxntid 256, 1, 1 and its like: promises to ptxas. */
static void skip_promises(Tokens &tokens) {
  while (tokens.is(".maxntid") || tokens.is(".minnctapersm") || tokens.is(".reqntid")) {
    tokens.take();
    do tokens.number();
    while (tokens.take_if(","));
  }
}

static void read_head(Tokens &tokens, Entry *entry) {
  tokens.expect(".visible");
  tokens.expect(".entry");
  entry->line = tokens.line();
  entry->name = tokens.take();
  tokens.expect("(");
  while (!tokens.take_if(")")) {
    tokens.expect(".param");
    entry->parameters.push_back(read_variable(tokens));
    if (!tokens.is(")")) tokens.expect(",");
  }
  skip_promises(tokens);
}

Entry read_entry(const Module &module, size_t number) {
  Tokens tokens(module, module.begins[number], module.lines[number]);
  Entry entry;
  read_head(tokens, &entry);
  Body(tokens, entry).read();
  return entry;
}

/* Where the brace is that closes the body; its statements are read when somebody asks for them. */
static size_t end_of_entry(const Tokens &tokens, const std::string &text) {
  int depth = 0;
  for (size_t at = tokens.begin(); at < text.size(); at++) {
    if (text.compare(at, 2, "//") == 0) at = std::min(text.find('\n', at), text.size() - 1);
    if (text[at] == '{') depth++;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  tokens.fail("an entry without an end");
}

static void read_top(Tokens &tokens, Module *module) {
  if (tokens.take_if(".version")) {
    tokens.take();
  } else if (tokens.take_if(".target")) {
    module->target = tokens.take();
  } else if (tokens.take_if(".address_size")) {
    if (tokens.number() != 64) tokens.fail("addresses are not of 64 bits");
  } else if (tokens.take_if(".extern")) {
    tokens.expect(".shared");
    module->shared.push_back(read_variable(tokens));
    tokens.expect(";");
  } else if (tokens.take_if(".shared")) {
    module->shared.push_back(read_variable(tokens));
    tokens.expect(";");
  } else if (tokens.take_if(".global")) {
    Variable v = read_variable(tokens);
    if (tokens.take_if("=")) read_bytes(tokens, &v);
    tokens.expect(";");
    module->globals.push_back(v);
  } else {
    tokens.fail("unknown directive " + tokens.now());
  }
}

Module read_module(const std::string &file, const std::string &text) {
  Module module;
  module.file = file;
  module.text = text;
  size_t at = 0;
  int line = 1;
  for (;;) {
    Tokens tokens(module, at, line);
    while (!tokens.ends() && !tokens.is(".visible")) read_top(tokens, &module);
    if (tokens.ends()) return module;
    module.begins.push_back(tokens.begin());
    module.lines.push_back(tokens.line());
    Entry head;
    Tokens of_head = tokens;
    read_head(of_head, &head);
    module.names.push_back(head.name);
    at = end_of_entry(of_head, text);
    line = tokens.line();
    for (size_t i = tokens.begin(); i < at; i++) line += text[i] == '\n';
  }
}

Module read_module_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (!in) throw Error(path, 0, "cannot be read");
  text << in.rdbuf();
  return read_module(path.substr(path.rfind('/') + 1), text.str());
}

} // namespace ptx
