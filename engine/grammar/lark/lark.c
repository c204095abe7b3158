/* lark.c: user grammars in the notation of Lark, as vLLM and llguidance take them.
 *
 *   start: greeting ("," NAME)* "!"i    // a comment; the text is a `start`
 *   ?greeting: "hello" | /good (day|morning)/ -> polite
 *   NAME.2: /[A-Z][a-z]+/
 *   %import common.WS
 *   %ignore WS
 *
 * Rules are in lower case, terminals in upper case. Read: strings with `i`, ranges, regexes of
 * Python with flags, | ( ) [ ] ? * + ~n ~n..m {n,m}, %import of common terminals, %ignore. Names of
 * trees do not matter to the language: ? and ! before a rule, -> alias, priorities. Refused by name
 * and line: templates, %declare, %override, %extend, other imports, references to tokens.
 *
 * Every way of cutting a text into terminals counts, as with Lark's Earley parser and its lexer
 * dynamic_complete. Part of a compilation, on its thread. Next: lark_terminal.c, ebnf_check.c.
 */
#include "engine/grammar/lark/lark.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

static regex_t *parse_alternatives(lark_t *lark);

_Noreturn void lark_fail(const lark_t *lark, size_t at, const char *reason) {
  ebnf_fail(lark->ebnf, at, reason, NULL, 0);
}

_Noreturn void lark_refuse(const lark_t *lark, size_t at, const char *construct) {
  char reason[96];
  snprintf(reason, sizeof reason, "%s is not supported", construct);
  ebnf_fail(lark->ebnf, at, reason, NULL, 0);
}

static bool take(lark_t *lark, const char *text) {
  size_t length = strlen(text);
  if (!lark_at(lark, text, length)) return false;
  lark->at += length;
  return true;
}

/* ---- white space, comments, names ---- */

static void skip_line(lark_t *lark) {
  while (lark->at < lark->length && lark->text[lark->at] != '\n') lark->at++;
}

/* Skips blanks and comments; with `lines`, line ends too. */
static void skip(lark_t *lark, bool lines) {
  while (lark->at < lark->length) {
    char ch = lark->text[lark->at];
    if (ch == '#' || lark_at(lark, "//", 2)) {
      skip_line(lark);
    } else if (ch == ' ' || ch == '\t' || ch == '\r' || ch == '\f' || (lines && ch == '\n')) {
      lark->at++;
    } else {
      return;
    }
  }
}

static bool is_letter(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static bool is_digit(char ch) {
  return ch >= '0' && ch <= '9';
}

/* A dash belongs to a name if a letter or a digit follows it. */
static size_t name_length(const lark_t *lark, size_t at) {
  const char *text = lark->text;
  size_t end = at;
  if (end >= lark->length || !is_letter(text[end])) return 0;
  while (end < lark->length) {
    bool dash = text[end] == '-' && end + 1 < lark->length &&
                (is_letter(text[end + 1]) || is_digit(text[end + 1]));
    if (!is_letter(text[end]) && !is_digit(text[end]) && !dash) break;
    end++;
  }
  return end - at;
}

static bool is_terminal_name(const char *name, size_t length) {
  size_t i = 0;
  while (i < length && name[i] == '_') i++;
  return i < length && name[i] >= 'A' && name[i] <= 'Z';
}

static bool at_line_start(const lark_t *lark) {
  size_t at = lark->at;
  while (at > 0 && (lark->text[at - 1] == ' ' || lark->text[at - 1] == '\t')) at--;
  return at == 0 || lark->text[at - 1] == '\n';
}

/* Returns true if a definition begins here: [?!]* name, then a colon, a priority, parameters in
 * braces or options in brackets. */
static bool at_definition(const lark_t *lark) {
  size_t at = lark->at, length;
  while (at < lark->length && (lark->text[at] == '?' || lark->text[at] == '!')) at++;
  length = name_length(lark, at);
  if (length == 0) return false;
  at += length;
  while (at < lark->length && lark->text[at] == ' ') at++;
  if (at >= lark->length) return false;
  char close = lark->text[at] == '{' ? '}' : lark->text[at] == '[' ? ']' : 0;
  if (close != 0) {
    while (at < lark->length && lark->text[at] != close && lark->text[at] != '\n') at++;
    if (at < lark->length) at++;
  }
  while (at < lark->length && (is_digit(lark->text[at]) || strchr(" .-", lark->text[at]) != NULL))
    at++;
  if (at >= lark->length || lark->text[at] != ':') return false;
  return at + 1 >= lark->length || lark->text[at + 1] != ':'; /* '::=' is of GBNF */
}

static bool at_directive(const lark_t *lark) {
  static const char *const names[] = {"%ignore",   "%import", "%declare",
                                      "%override", "%extend", "%llguidance"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    if (lark_at(lark, names[i], strlen(names[i]))) return true;
  }
  return false;
}

static bool at_statement(const lark_t *lark) {
  return at_line_start(lark) && (at_directive(lark) || at_definition(lark));
}

/* ---- terms ---- */

static uint32_t parse_number(lark_t *lark) {
  uint32_t value = 0, most = lark->ebnf->compile->limits->regex_nodes_max;
  if (!is_digit(lark_here(lark))) lark_fail(lark, lark->at, "expected a number");
  for (; is_digit(lark_here(lark)); lark->at++) {
    value = value * 10 + (uint32_t)(lark_here(lark) - '0');
    if (value > most)
      compile_fail(lark->ebnf->compile, ERR_BAD_REQUEST, "grammar: more than %u repetitions.",
                   most);
  }
  return value;
}

/* ~n, ~n..m, {n}, {n,}, {,m}, {n,m}; the opening character was taken. */
static void parse_bounds(lark_t *lark, size_t start, bool braces, uint32_t *min, uint32_t *max) {
  skip(lark, false);
  *min = 0;
  if (!braces || is_digit(lark_here(lark))) *min = parse_number(lark);
  *max = *min;
  skip(lark, false);
  if (braces ? take(lark, ",") : take(lark, "..")) {
    skip(lark, false);
    *max = braces && !is_digit(lark_here(lark)) ? NONE : parse_number(lark);
    skip(lark, false);
  }
  if (braces && !take(lark, "}")) lark_fail(lark, start, "the repetition has no end");
  if (*max < *min) lark_fail(lark, start, "the repetition is out of order");
}

static regex_t *parse_postfix(lark_t *lark, regex_t *term) {
  for (uint32_t repeats = 0;; repeats++) {
    uint32_t min = 0, max = NONE;
    skip(lark, false);
    size_t start = lark->at;
    if (take(lark, "?")) {
      max = 1;
    } else if (take(lark, "+")) {
      min = 1;
    } else if (take(lark, "~")) {
      parse_bounds(lark, start, false, &min, &max);
    } else if (take(lark, "{")) {
      parse_bounds(lark, start, true, &min, &max);
    } else if (!take(lark, "*")) {
      return term;
    }
    if (repeats == lark->ebnf->compile->limits->regex_depth_max)
      lark_fail(lark, start, "too many repetitions");
    regex_t *node = regex_node(lark->ebnf->compile, REGEX_REPEAT);
    regex_append(node, term);
    node->min = min;
    node->max = max;
    term = node;
  }
}

static regex_t *parse_group(lark_t *lark, const char *close) {
  size_t start = lark->at++;
  if (++lark->depth > lark->ebnf->compile->limits->regex_depth_max) {
    compile_fail(lark->ebnf->compile, ERR_BAD_REQUEST, "grammar: groups nest deeper than %u.",
                 lark->ebnf->compile->limits->regex_depth_max);
  }
  regex_t *inside = parse_alternatives(lark);
  if (!take(lark, close)) lark_fail(lark, start, "the group has no end");
  lark->depth--;
  return inside;
}

/* A string or a regex. In a rule it is a terminal of its own. */
static regex_t *parse_literal(lark_t *lark) {
  bool in_rule = !lark->in_terminal;
  if (in_rule) lark->is_lazy = false;
  regex_t *tree = lark_here(lark) == '"' ? lark_string(lark) : lark_regex(lark);
  if (!in_rule) return tree;
  regex_t *terminal = regex_node(lark->ebnf->compile, REGEX_CAT);
  terminal->min = LARK_TERMINAL;
  regex_append(terminal, lark->is_lazy ? lark_cut(lark, tree) : tree);
  return terminal;
}

static regex_t *parse_reference(lark_t *lark) {
  size_t length = name_length(lark, lark->at), at = lark->at;
  if (length == 0)
    lark_fail(lark, at, "expected a string, a regex, a group or the name of a rule or terminal");
  if (lark->in_terminal && !is_terminal_name(lark->text + at, length))
    ebnf_fail(lark->ebnf, at, "a terminal cannot contain the rule", lark->text + at,
              (uint32_t)length);
  if (at + length < lark->length && lark->text[at + length] == '{') {
    size_t open = at + length + 1;
    if (open < lark->length && !is_digit(lark->text[open]) && lark->text[open] != ',')
      lark_refuse(lark, at, "a template (name{...})");
  }
  regex_t *node = regex_node(lark->ebnf->compile, REGEX_RULE);
  node->min = ebnf_rule_of(lark->ebnf, lark->text, at, length);
  node->max = (uint32_t)at;
  lark->at += length;
  return node;
}

static regex_t *parse_term(lark_t *lark) {
  size_t start = lark->at;
  regex_t *term;
  switch (lark_here(lark)) {
  case '"':
  case '/': term = parse_literal(lark); break;
  case '(': term = parse_group(lark, ")"); break;
  case '[':
    term = regex_node(lark->ebnf->compile, REGEX_REPEAT);
    regex_append(term, parse_group(lark, "]"));
    term->min = 0;
    term->max = 1;
    break;
  case '<': lark_refuse(lark, start, "a reference to a token (<name>, <[id]>)");
  case '@': lark_refuse(lark, start, "a reference to another grammar (@name)");
  case '~':
  case '&': lark_refuse(lark, start, "an operator on terminals (& or ~)");
  case '%': lark_refuse(lark, start, "%json, %regex or another block");
  default: term = parse_reference(lark); break;
  }
  return parse_postfix(lark, term);
}

static void skip_alias(lark_t *lark) {
  if (!take(lark, "->")) return;
  skip(lark, false);
  size_t length = name_length(lark, lark->at);
  if (length == 0) lark_fail(lark, lark->at, "expected the name of an alias behind ->");
  lark->at += length;
  skip(lark, true);
}

/* Ends before a statement, or before a character that belongs to the surrounding group. */
static bool at_end_of_terms(lark_t *lark) {
  skip(lark, true);
  char ch = lark_here(lark);
  return lark->at >= lark->length || ch == '|' || ch == ')' || ch == ']' ||
         lark_at(lark, "->", 2) || at_statement(lark);
}

static regex_t *parse_alternatives(lark_t *lark) {
  regex_t *either = regex_node(lark->ebnf->compile, REGEX_ALT);
  for (bool first = true;; first = false) {
    regex_t *cat = regex_node(lark->ebnf->compile, REGEX_CAT);
    while (!at_end_of_terms(lark)) regex_append(cat, parse_term(lark));
    skip_alias(lark);
    /* A bar before the first alternative begins it, where lines are laid out that way. */
    bool leading = first && cat->first == NULL && lark_here(lark) == '|' && at_line_start(lark);
    if (!leading) regex_append(either, cat);
    if (lark_here(lark) != '|') return either;
    lark->at++;
  }
}

/* ---- statements ---- */

static void define(lark_t *lark, size_t at, const char *name, size_t length, regex_t *tree) {
  ebnf_t *ebnf = lark->ebnf;
  uint32_t index = ebnf_rule_of(ebnf, name, 0, length);
  ebnf_rule_t *rule = ebnf_rule(ebnf, index);
  if (rule->tree != NULL)
    ebnf_fail(ebnf, at, "a second rule with the name", name, (uint32_t)length);
  rule->tree = tree;
  rule->at = at;
  rule->is_terminal = is_terminal_name(name, length);
  rule->is_lazy = rule->is_terminal && lark->is_lazy;
}

static void parse_definition(lark_t *lark) {
  while (take(lark, "?") || take(lark, "!")) continue;
  size_t start = lark->at, length = name_length(lark, start);
  const char *name = lark->text + start;
  lark->at += length;
  skip(lark, false);
  if (lark_here(lark) == '{') lark_refuse(lark, start, "a template (name{...})");
  if (lark_here(lark) == '[' && !take(lark, "[capture]"))
    lark_refuse(lark, lark->at, "an option of a rule (name[...]) other than [capture]");
  if (take(lark, ".")) {
    take(lark, "-");
    while (is_digit(lark_here(lark))) lark->at++;
  }
  skip(lark, false);
  if (!take(lark, ":")) lark_fail(lark, lark->at, "expected ':'");
  lark->in_terminal = is_terminal_name(name, length);
  lark->is_lazy = false;
  regex_t *tree = parse_alternatives(lark);
  if (lark->at < lark->length && !at_statement(lark))
    lark_fail(lark, lark->at, "expected a rule: a name and ':'");
  define(lark, start, name, length, tree);
}

static void parse_ignore(lark_t *lark) {
  lark->in_terminal = true;
  lark->is_lazy = false;
  regex_t *tree = parse_alternatives(lark);
  *(lark_ignored_t *)list_add(lark->ebnf->compile, &lark->ignored, sizeof(lark_ignored_t)) =
      (lark_ignored_t){tree, lark->is_lazy};
}

/* common.NAME, or NAME of a list; `-> OTHER` renames it. */
static void import_name(lark_t *lark) {
  size_t at = lark->at, length = name_length(lark, at);
  const char *name = lark->text + at, *as = name;
  size_t as_length = length;
  lark->is_lazy = false;
  regex_t *tree = lark_common(lark, name, length);
  if (tree == NULL)
    ebnf_fail(lark->ebnf, at, "there is no common terminal", name, (uint32_t)length);
  lark->at += length;
  skip(lark, false);
  if (take(lark, "->")) {
    skip(lark, false);
    as = lark->text + lark->at;
    as_length = name_length(lark, lark->at);
    if (!is_terminal_name(as, as_length)) lark_fail(lark, lark->at, "expected a terminal");
    lark->at += as_length;
  }
  uint32_t index = ebnf_rule_of(lark->ebnf, as, 0, as_length);
  if (ebnf_rule(lark->ebnf, index)->tree == NULL) define(lark, at, as, as_length, tree);
}

static void parse_import(lark_t *lark, size_t start) {
  skip(lark, false);
  if (!take(lark, "common")) lark_refuse(lark, start, "%import from anything but common");
  if (take(lark, ".")) {
    import_name(lark);
    return;
  }
  skip(lark, false);
  if (!take(lark, "(")) lark_refuse(lark, start, "%import from anything but common");
  do {
    skip(lark, true);
    import_name(lark);
    skip(lark, true);
  } while (take(lark, ","));
  if (!take(lark, ")")) lark_fail(lark, start, "the list of %import has no end");
}

static void parse_statement(lark_t *lark) {
  size_t start = lark->at;
  if (take(lark, "%ignore")) {
    parse_ignore(lark);
  } else if (take(lark, "%import")) {
    parse_import(lark, start);
  } else if (take(lark, "%declare")) {
    lark_refuse(lark, start, "%declare");
  } else if (take(lark, "%override")) {
    lark_refuse(lark, start, "%override");
  } else if (take(lark, "%extend")) {
    lark_refuse(lark, start, "%extend");
  } else if (take(lark, "%llguidance")) {
    skip(lark, false);
    if (!take(lark, "{}")) lark_refuse(lark, start, "%llguidance with options");
  } else if (at_definition(lark)) {
    parse_definition(lark);
  } else {
    lark_fail(lark, start, "expected a rule: a name and ':'");
  }
}

bool lark_detect(const char *text, size_t length) {
  lark_t lark = {.text = text, .length = length};
  skip(&lark, true);
  return at_directive(&lark) || at_definition(&lark);
}

uint32_t lark_compile(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const char root[] = "start";
  ebnf_t ebnf = {.compile = compile, .text = source->text, .length = source->length};
  lark_t lark = {.ebnf = &ebnf, .text = source->text, .length = source->length};
  ebnf_begin(&ebnf, root);
  for (skip(&lark, true); lark.at < lark.length; skip(&lark, true)) parse_statement(&lark);
  if (ebnf_rule(&ebnf, ebnf.root)->tree == NULL)
    ebnf_fail(&ebnf, 0, "no rule with the name", root, sizeof root - 1);
  lark_expand(&lark);
  lark_weave(&lark);
  ebnf_check(&ebnf);
  return ebnf_build(&ebnf, next);
}
