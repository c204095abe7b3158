/* lark_terminal.c: the terminals of a Lark grammar: strings, regexes, common ones; and what is
 * ignored between them.
 *
 * Part of a compilation, on its thread. A terminal is one automaton. Terminals may contain others,
 * never themselves: their trees are shared, and the size when everything is written out is bounded.
 */
#include "engine/grammar/automaton/regex_sets.h"
#include "engine/grammar/lark/lark.h"

#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

enum { CHAIN_MAX = 50, HEIGHT_MAX = 400, WHAT_MAX = 64 };

static void name_line(const lark_t *lark, size_t at, char what[WHAT_MAX]) {
  uint32_t line = 1;
  for (size_t i = 0; i < at; i++) line += lark->text[i] == '\n';
  snprintf(what, WHAT_MAX, "grammar, line %u, terminal", line);
}

/* ---- strings ---- */

/* One escape of a string, after the backslash at `from`. */
static regex_t *string_escape(lark_t *lark, size_t from) {
  char text[16] = "[", what[WHAT_MAX];
  char ch = from + 1 < lark->length ? lark->text[from + 1] : 0;
  size_t length = ch == 'x' ? 4 : ch == 'u' ? 6 : ch == 'U' ? 10 : 2;
  if (from + length > lark->length || ch == 0 || (ch & 0x80) != 0)
    lark_fail(lark, from, "the escape has no end");
  if (strchr("dDwWsSpP", ch) != NULL) lark_fail(lark, from, "a class has no place in a string");
  memcpy(text + 1, lark->text + from, length);
  text[length + 1] = ']';
  name_line(lark, from, what);
  regex_options_t options = {.dialect = REGEX_PYTHON, .what = what};
  lark->at = from + length;
  return regex_parse(lark->ebnf->compile, text, length + 2, &options);
}

static regex_t *string_character(lark_t *lark) {
  size_t from = lark->at;
  unsigned length;
  if (lark_here(lark) == '\\') return string_escape(lark, from);
  if (utf8_span(lark->text + from, lark->length - from) < 0) lark_fail(lark, from, "invalid UTF-8");
  uint32_t ch = utf8_read((const uint8_t *)lark->text + from, &length);
  lark->at += length;
  return regex_character(lark->ebnf->compile, ch);
}

static regex_t *quoted(lark_t *lark) {
  size_t start = lark->at++;
  regex_t *cat = regex_node(lark->ebnf->compile, REGEX_CAT);
  while (lark_here(lark) != '"') {
    if (lark->at >= lark->length || lark_here(lark) == '\n')
      lark_fail(lark, start, "the string has no end");
    regex_append(cat, string_character(lark));
  }
  lark->at++;
  return cat;
}

static uint32_t only_character(const lark_t *lark, const regex_t *cat, size_t at) {
  if (cat->first == NULL || cat->first != cat->last || cat->first->set.count != 1)
    lark_fail(lark, at, "both ends of a range are strings of one character");
  return cat->first->set.ranges[0].low;
}

/* "a".."z"; the first string and the dots were read. */
static regex_t *range(lark_t *lark, const regex_t *first, size_t at) {
  while (lark_here(lark) == ' ') lark->at++;
  if (lark_here(lark) != '"') lark_fail(lark, at, "both ends of a range are strings");
  const regex_t *last = quoted(lark);
  regex_t *node = regex_character(lark->ebnf->compile, only_character(lark, first, at));
  node->set.ranges[0].high = only_character(lark, last, at);
  if (node->set.ranges[0].high < node->set.ranges[0].low)
    lark_fail(lark, at, "the range is out of order");
  return node;
}

regex_t *lark_string(lark_t *lark) {
  size_t start = lark->at;
  regex_t *cat = quoted(lark);
  if (lark_here(lark) == 'i') {
    lark->at++;
    for (regex_t *child = cat->first; child != NULL; child = child->sibling)
      child->set = sets_any_case(lark->ebnf->compile, child->set, REGEX_PYTHON);
    return cat;
  }
  size_t end = lark->at;
  while (lark_here(lark) == ' ') lark->at++;
  if (lark_at(lark, "..", 2)) {
    lark->at += 2;
    return range(lark, cat, start);
  }
  lark->at = end;
  return cat;
}

/* ---- regexes ---- */

static void take_flags(lark_t *lark, regex_options_t *options) {
  for (;; lark->at++) {
    switch (lark_here(lark)) {
    case 'i': options->ignore_case = true; break;
    case 's': options->dot_all = true; break;
    case 'm': /* changes anchors, which are refused */
    case 'u': break;
    case 'x': lark_refuse(lark, lark->at, "the flag x of a regex");
    case 'l': lark_refuse(lark, lark->at, "the flag l of a regex");
    default: return;
    }
  }
}

regex_t *lark_regex(lark_t *lark) {
  char what[WHAT_MAX];
  size_t start = lark->at++;
  while (lark_here(lark) != '/') {
    if (lark_here(lark) == '\\') lark->at++;
    if (lark->at >= lark->length || lark_here(lark) == '\n')
      lark_fail(lark, start, "the regex has no end");
    lark->at++;
  }
  size_t length = lark->at++ - start - 1;
  name_line(lark, start, what);
  regex_options_t options = {
      .dialect = REGEX_PYTHON, .is_part = true, .found_lazy = &lark->is_lazy, .what = what};
  take_flags(lark, &options);
  return regex_parse(lark->ebnf->compile, lark->text + start + 1, length, &options);
}

/* ---- common terminals ---- */

#define SIGN "[+-]?"
#define INT "[0-9]+"
#define EXP "[eE]" SIGN INT
#define DECIMAL "(?:" INT "\\.(?:" INT ")?|\\." INT ")"
#define FLOAT "(?:" INT EXP "|" DECIMAL "(?:" EXP ")?)"
/* The language of lark's common.lark; non-greedy ones as what ends at the first place it can. */
static const struct {
  const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", INT},
    {"SIGNED_INT", SIGN INT},
    {"DECIMAL", DECIMAL},
    {"_EXP", EXP},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", SIGN FLOAT},
    {"NUMBER", "(?:" FLOAT "|" INT ")"},
    {"SIGNED_NUMBER", SIGN "(?:" FLOAT "|" INT ")"},
    {"UNESCAPED_STRING", "\"[^\"]*\""},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*[^*]*\\*+(?:[^\\/*][^*]*\\*+)*\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

regex_t *lark_common(lark_t *lark, const char *name, size_t length) {
  regex_options_t options = {.what = "common terminal"};
  for (size_t i = 0; i < ARRAY_LEN(common); i++) {
    if (strlen(common[i].name) != length || memcmp(common[i].name, name, length) != 0) continue;
    return regex_parse(lark->ebnf->compile, common[i].pattern, strlen(common[i].pattern), &options);
  }
  return NULL;
}

/* ---- terminals inside terminals ---- */

typedef struct expansion {
  lark_t *lark;
  uint8_t *color;          /* [rules] 1 = open, 2 = done */
  uint32_t *size, *height; /* [rules] of the tree, everything written out */
  uint32_t chain;          /* terminals around this one */
  bool is_lazy;            /* the terminal at work contains a lazy one */
} expansion_t;

typedef struct extent {
  uint32_t size, height;
} extent_t;

static void expand_rule(expansion_t *expansion, uint32_t index, size_t at);

static uint32_t written_times(const regex_t *tree) {
  return tree->max == NONE ? tree->min + 1 : tree->max;
}

static extent_t expand_tree(expansion_t *expansion, regex_t *tree) {
  const lark_t *lark = expansion->lark;
  const uint32_t most = lark->ebnf->compile->limits->regex_nodes_max;
  extent_t extent = {1, 1};
  if (tree->kind == REGEX_RULE) {
    uint32_t index = tree->min;
    expand_rule(expansion, index, tree->max);
    const ebnf_rule_t *rule = ebnf_rule(lark->ebnf, index);
    expansion->is_lazy = expansion->is_lazy || rule->is_lazy;
    tree->kind = REGEX_CAT;
    tree->min = tree->max = 0;
    tree->first = tree->last = rule->tree;
    extent = (extent_t){expansion->size[index] + 1, expansion->height[index] + 1};
  } else {
    for (regex_t *child = tree->first; child != NULL; child = child->sibling) {
      const extent_t part = expand_tree(expansion, child);
      extent.size = MIN(extent.size + part.size, most + 1);
      extent.height = MAX(extent.height, part.height + 1);
    }
  }
  if (tree->kind == REGEX_REPEAT)
    extent.size = (uint32_t)MIN((uint64_t)extent.size * written_times(tree), (uint64_t)most + 1);
  tree->is_regular = true;
  if (extent.size > most)
    compile_fail(lark->ebnf->compile, ERR_BAD_REQUEST,
                 "grammar: a terminal has more than %u nodes when it is written out.", most);
  if (extent.height > HEIGHT_MAX)
    compile_fail(lark->ebnf->compile, ERR_BAD_REQUEST, "grammar: a terminal nests deeper than %d.",
                 HEIGHT_MAX);
  return extent;
}

/* `at`: where the terminal is used. */
static void expand_rule(expansion_t *expansion, uint32_t index, size_t at) {
  ebnf_t *ebnf = expansion->lark->ebnf;
  ebnf_rule_t *rule = ebnf_rule(ebnf, index);
  bool outer_lazy = expansion->is_lazy;
  if (expansion->color[index] == 2) return;
  if (rule->tree == NULL)
    ebnf_fail(ebnf, at, "no terminal with the name", rule->name, rule->length);
  if (expansion->color[index] == 1)
    ebnf_fail(ebnf, rule->at, "a terminal contains itself; write a rule, in lower case, for",
              rule->name, rule->length);
  if (++expansion->chain > CHAIN_MAX)
    compile_fail(ebnf->compile, ERR_BAD_REQUEST, "grammar: terminals nest deeper than %d.",
                 CHAIN_MAX);
  expansion->color[index] = 1;
  expansion->is_lazy = rule->is_lazy;
  const extent_t extent = expand_tree(expansion, rule->tree);
  compile_spend(ebnf->compile, 2 * extent.size);
  expansion->size[index] = extent.size;
  expansion->height[index] = extent.height;
  rule->is_lazy = expansion->is_lazy;
  rule->nullable = ebnf_nullable(ebnf, rule->tree);
  rule->productive = ebnf_productive(ebnf, rule->tree);
  expansion->is_lazy = outer_lazy;
  expansion->color[index] = 2;
  expansion->chain--;
}

regex_t *lark_cut(const lark_t *lark, const regex_t *tree) {
  regex_options_t options = {.lazy = true, .what = "grammar"};
  regex_t *node = regex_node(lark->ebnf->compile, REGEX_DFA);
  node->dfa = regex_build(lark->ebnf->compile, tree, &options);
  return node;
}

void lark_expand(lark_t *lark) {
  ebnf_t *ebnf = lark->ebnf;
  uint32_t count = ebnf->rules.count;
  expansion_t expansion = {
      .lark = lark,
      .color = compile_scratch(ebnf->compile, count, sizeof *expansion.color),
      .size = compile_scratch(ebnf->compile, count, sizeof *expansion.size),
      .height = compile_scratch(ebnf->compile, count, sizeof *expansion.height),
  };
  for (uint32_t i = 0; i < count; i++) {
    if (ebnf_rule(ebnf, i)->is_terminal) expand_rule(&expansion, i, 0);
  }
  lark_ignored_t *ignored = lark->ignored.items;
  for (uint32_t i = 0; i < lark->ignored.count; i++) {
    expansion.is_lazy = ignored[i].is_lazy;
    (void)expand_tree(&expansion, ignored[i].tree);
    if (expansion.is_lazy) ignored[i].tree = lark_cut(lark, ignored[i].tree);
  }
  for (uint32_t i = 0; i < count; i++) {
    ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (!rule->is_terminal || !rule->is_lazy) continue;
    rule->tree = lark_cut(lark, rule->tree);
    rule->nullable = ebnf_nullable(ebnf, rule->tree);
  }
}

/* ---- what is ignored ---- */

/* Returns a copy of any number of ignored texts. */
static regex_t *ignored_copy(const lark_t *lark, const regex_t *ignored) {
  regex_t *copy = regex_node(lark->ebnf->compile, REGEX_REPEAT);
  *copy = *ignored;
  copy->sibling = NULL;
  return copy;
}

static void put_before(regex_t *node, regex_t *first) {
  first->sibling = node->first;
  node->first = first;
  if (node->last == NULL) node->last = first;
}

static void weave_tree(const lark_t *lark, regex_t *tree, const regex_t *ignored) {
  if (tree->kind == REGEX_CAT && tree->min == LARK_TERMINAL) {
    put_before(tree, ignored_copy(lark, ignored));
    return;
  }
  for (regex_t *child = tree->first; child != NULL; child = child->sibling)
    weave_tree(lark, child, ignored);
}

void lark_weave(lark_t *lark) {
  ebnf_t *ebnf = lark->ebnf;
  compile_t *compile = ebnf->compile;
  const lark_ignored_t *list = lark->ignored.items;
  if (lark->ignored.count == 0) return;
  regex_t *either = regex_node(compile, REGEX_ALT), *ignored = regex_node(compile, REGEX_REPEAT);
  for (uint32_t i = 0; i < lark->ignored.count; i++) regex_append(either, list[i].tree);
  regex_append(ignored, either);
  ignored->max = NONE;
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (rule->tree == NULL) continue;
    if (!rule->is_terminal) {
      weave_tree(lark, rule->tree, ignored);
      continue;
    }
    regex_t *cat = regex_node(compile, REGEX_CAT);
    regex_append(cat, ignored_copy(lark, ignored));
    regex_append(cat, rule->tree);
    rule->tree = cat;
  }
  ebnf_add_rule(ebnf, ebnf->root);
  regex_t *cat = regex_node(compile, REGEX_CAT), *start = regex_node(compile, REGEX_RULE);
  start->min = ebnf->root;
  regex_append(cat, start);
  regex_append(cat, ignored_copy(lark, ignored));
  ebnf->root = ebnf->rules.count - 1;
  ebnf_rule(ebnf, ebnf->root)->tree = cat;
}
