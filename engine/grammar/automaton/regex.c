/* regex.c: reads an ECMA-262 pattern into a tree.
 *
 * Part of a compilation, on its thread. Constructs that a byte automaton cannot decide exactly are
 * refused by name: back references, atomic groups. Word boundaries are read as look-around.
 * Recursion is bounded by the limit on nested groups. Next: regex_nfa.c.
 */
#include "engine/grammar/automaton/regex_sets.h"

#include "engine/base/hex.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

typedef struct regex_parser {
  compile_t *compile;
  const char *text;
  size_t length, at;
  const char *what;
  const regex_options_t *options;
  bool ignore_case, dot_all; /* flags at this place */
  uint32_t depth, behind;    /* groups, look-behinds around this place */
  regex_t *word;             /* \w of word boundaries; NULL until the first one */
} regex_parser_t;

static regex_t *parse_alternatives(regex_parser_t *parser);

_Noreturn static void fail(regex_parser_t *parser, int code, size_t at, const char *reason) {
  compile_fail(parser->compile, code, "%s: %s at byte %zu.", parser->what, reason, at);
}

_Noreturn static void malformed(regex_parser_t *parser, const char *reason) {
  fail(parser, ERR_INVALID_VALUE, parser->at, reason);
}

_Noreturn static void refuse(regex_parser_t *parser, size_t at, const char *construct) {
  char reason[96];
  size_t length = 0;
  for (const char *s = construct; *s && length < 60; s++) reason[length++] = *s;
  memcpy(reason + length, " is not supported", sizeof " is not supported");
  fail(parser, ERR_UNSUPPORTED_PARAMETER, at, reason);
}

static bool at_end(const regex_parser_t *parser) {
  return parser->at >= parser->length;
}

static bool looking_at(const regex_parser_t *parser, const char *text) {
  size_t length = strlen(text);
  return parser->length - parser->at >= length &&
         memcmp(parser->text + parser->at, text, length) == 0;
}

static bool take(regex_parser_t *parser, const char *text) {
  if (!looking_at(parser, text)) return false;
  parser->at += strlen(text);
  return true;
}

static uint32_t take_character(regex_parser_t *parser) {
  if (at_end(parser)) malformed(parser, "the pattern ends too soon");
  if (utf8_span(parser->text + parser->at, parser->length - parser->at) < 0)
    malformed(parser, "invalid UTF-8");
  unsigned length;
  uint32_t code = utf8_read((const uint8_t *)parser->text + parser->at, &length);
  parser->at += length;
  return code;
}

/* ---- sets ---- */

static void add_range(regex_parser_t *parser, grammar_list_t *list, uint32_t low, uint32_t high) {
  *(char_range_t *)list_add(parser->compile, list, sizeof(char_range_t)) =
      (char_range_t){low, high};
}

static void add_set(regex_parser_t *parser, grammar_list_t *list, charset_t set, bool invert) {
  if (invert) set = charset_invert(parser->compile, set.ranges, set.count);
  for (uint32_t i = 0; i < set.count; i++)
    add_range(parser, list, set.ranges[i].low, set.ranges[i].high);
}

static regex_t *set_node(regex_parser_t *parser, grammar_list_t *list, bool invert) {
  regex_t *node = regex_node(parser->compile, REGEX_SET);
  node->set = (charset_t){list->items, list->count};
  charset_normalize(&node->set);
  if (parser->ignore_case)
    node->set = sets_any_case(parser->compile, node->set, parser->options->dialect);
  if (invert) node->set = charset_invert(parser->compile, node->set.ranges, node->set.count);
  return node;
}

/* ---- escapes ---- */

static uint32_t take_hex(regex_parser_t *parser, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; i++) {
    int digit = at_end(parser) ? -1 : hex_value(parser->text[parser->at]);
    if (digit < 0) malformed(parser, "expected a hexadecimal digit");
    value = value << 4 | (uint32_t)digit;
    parser->at++;
  }
  return value;
}

static uint32_t take_unicode(regex_parser_t *parser) {
  uint32_t value = 0;
  if (take(parser, "{")) {
    do {
      value = value << 4 | take_hex(parser, 1);
      if (value > 0x10FFFF) malformed(parser, "a code point is above 10FFFF");
    } while (!take(parser, "}"));
  } else {
    value = take_hex(parser, 4);
    if (value >= 0xD800 && value <= 0xDBFF && take(parser, "\\u")) {
      uint32_t low = take_hex(parser, 4);
      if (low < 0xDC00 || low > 0xDFFF) malformed(parser, "a surrogate stands alone");
      return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (value >= 0xD800 && value <= 0xDFFF) malformed(parser, "a surrogate stands alone");
  return value;
}

static uint32_t take_long_unicode(regex_parser_t *parser) {
  uint32_t value = take_hex(parser, 8);
  if (value > 0x10FFFF) malformed(parser, "a code point is above 10FFFF");
  if (value >= 0xD800 && value <= 0xDFFF) malformed(parser, "a surrogate stands alone");
  return value;
}

/* \p{..} and \P{..}, after the letter; also \pL. */
static charset_t take_property(regex_parser_t *parser, size_t start) {
  size_t from = parser->at, length = 1;
  if (take(parser, "{")) {
    from = parser->at;
    while (!at_end(parser) && !looking_at(parser, "}")) parser->at++;
    length = parser->at - from;
    if (!take(parser, "}")) malformed(parser, "the property has no end");
  } else {
    take_character(parser);
  }
  const charset_t set = sets_property(parser->compile, parser->text + from, length);
  if (set.count > 0) return set;
  char reason[96], quoted[48];
  error_quote(quoted, sizeof quoted, parser->text + from, length);
  snprintf(reason, sizeof reason, "the Unicode property '%s'", quoted);
  refuse(parser, start, reason);
}

/* After the backslash: a class such as \d. */
static bool take_class(regex_parser_t *parser, grammar_list_t *list) {
  char ch = at_end(parser) ? 0 : parser->text[parser->at];
  char lower = (char)(ch | 0x20);
  bool invert = ch != lower;
  if (ch == 0 || strchr("dwsp", lower) == NULL) return false;
  parser->at++;
  if (lower == 'p') {
    add_set(parser, list, take_property(parser, parser->at - 2), invert);
  } else {
    add_set(parser, list, sets_class(parser->compile, lower, parser->options->dialect), invert);
  }
  return true;
}

/* After the backslash: one character. */
static uint32_t take_escape(regex_parser_t *parser, bool in_class) {
  size_t start = parser->at - 1;
  uint32_t ch = take_character(parser);
  switch (ch) {
  case 't': return '\t';
  case 'n': return '\n';
  case 'v': return '\v';
  case 'f': return '\f';
  case 'r': return '\r';
  case 'x': return take_hex(parser, 2);
  case 'u': return take_unicode(parser);
  case 'U':
    if (parser->options->dialect != REGEX_ECMA) return take_long_unicode(parser);
    break;
  case 'b':
    if (in_class) return '\b';
    break;
  case 'k': refuse(parser, start, "a back reference (\\k)");
  case 'c': {
    uint32_t letter = take_character(parser);
    if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') malformed(parser, "\\c needs a letter");
    return letter & 0x1F;
  }
  default: break;
  }
  if (ch == '0' &&
      (at_end(parser) || parser->text[parser->at] < '0' || parser->text[parser->at] > '9'))
    return 0;
  if (ch >= '0' && ch <= '9') refuse(parser, start, "a back reference or octal escape");
  if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') refuse(parser, start, "an unknown escape");
  return ch;
}

/* ---- brackets ---- */

/* One member of a class: true and *ch for a single character, false for a set. */
static bool take_member(regex_parser_t *parser, grammar_list_t *list, uint32_t *ch) {
  if (take(parser, "\\")) {
    if (take_class(parser, list)) return false;
    *ch = take_escape(parser, true);
  } else {
    *ch = take_character(parser);
  }
  return true;
}

static regex_t *parse_bracket(regex_parser_t *parser) {
  grammar_list_t list = {0};
  size_t start = parser->at - 1;
  bool invert = take(parser, "^"), python = parser->options->dialect == REGEX_PYTHON;
  if (!invert && !python && looking_at(parser, "]")) refuse(parser, start, "an empty class");
  for (bool first = true; (first && python) || !take(parser, "]"); first = false) {
    uint32_t low, high;
    if (at_end(parser)) fail(parser, ERR_INVALID_VALUE, start, "the class has no end");
    compile_spend(parser->compile, 1);
    bool single = take_member(parser, &list, &low);
    if (looking_at(parser, "-") && !looking_at(parser, "-]")) {
      parser->at++;
      if (at_end(parser)) fail(parser, ERR_INVALID_VALUE, start, "the class has no end");
      if (!single || !take_member(parser, &list, &high))
        malformed(parser, "a class cannot end a range");
      if (high < low) malformed(parser, "the range is out of order");
      add_range(parser, &list, low, high);
    } else if (single) {
      add_range(parser, &list, low, low);
    }
  }
  return set_node(parser, &list, invert);
}

/* ---- terms ---- */

static void skip_group_name(regex_parser_t *parser) {
  while (!take(parser, ">")) take_character(parser);
}

/* The flags of (?i) and (?i-s:...), after the question mark. Returns true if a group begins, false
 * if the flags hold until the end of the group around them. */
static bool take_flags(regex_parser_t *parser, size_t start) {
  for (bool on = true;; parser->at++) {
    char ch = at_end(parser) ? 0 : parser->text[parser->at];
    if (ch == 'i') {
      parser->ignore_case = on;
    } else if (ch == 's') {
      parser->dot_all = on;
    } else if (ch == '-' && on) {
      on = false;
    } else if (ch == ':' || ch == ')') {
      parser->at++;
      return ch == ':';
    } else {
      refuse(parser, start, "this kind of group or flag");
    }
  }
}

/* What stands behind "(?". Returns false if it was flags without a group. */
static bool take_group_kind(regex_parser_t *parser, size_t start) {
  if (looking_at(parser, "P=")) refuse(parser, start, "a back reference (?P=name)");
  if (looking_at(parser, ">")) refuse(parser, start, "an atomic group");
  if (take(parser, "P<") || take(parser, "<")) {
    skip_group_name(parser);
    return true;
  }
  return take_flags(parser, start);
}

static regex_t *look_node(regex_parser_t *parser, size_t start, bool ahead, bool negate) {
  regex_t *node = regex_node(parser->compile, REGEX_LOOK);
  node->min = (uint32_t)start;
  node->ahead = ahead;
  node->negate = negate;
  return node;
}

/* After a parenthesis: a look-around without its body, or NULL. */
static regex_t *take_look(regex_parser_t *parser, size_t start) {
  static const char *const marks[] = {"?=", "?!", "?<=", "?<!"};
  size_t i = 0;
  while (i < ARRAY_LEN(marks) && !take(parser, marks[i])) i++;
  if (i == ARRAY_LEN(marks)) return NULL;
  bool ahead = i < 2;
  if (parser->options->is_part)
    refuse(parser, start, ahead ? "look-ahead in a terminal" : "look-behind in a terminal");
  return look_node(parser, start, ahead, i % 2 == 1);
}

/* \b and \B: on the two sides stand a word character and something else, or not so. */
static regex_t *take_boundary(regex_parser_t *parser) {
  size_t start = parser->at;
  bool inside = looking_at(parser, "\\B");
  if (!take(parser, "\\b") && !take(parser, "\\B")) return NULL;
  if (parser->options->is_part)
    refuse(parser, start,
           inside ? "a word boundary (\\B) in a terminal" : "a word boundary (\\b) in a terminal");
  if (parser->word == NULL) {
    parser->word = regex_node(parser->compile, REGEX_SET);
    parser->word->set = sets_class(parser->compile, 'w', parser->options->dialect);
  }
  regex_t *either = regex_node(parser->compile, REGEX_ALT);
  for (int is_word = 0; is_word < 2; is_word++) {
    regex_t *both = regex_node(parser->compile, REGEX_CAT);
    regex_t *before = look_node(parser, start, false, is_word == 0);
    regex_t *after = look_node(parser, start, true, (is_word == 0) == inside);
    before->first = after->first = parser->word;
    regex_append(both, before);
    regex_append(both, after);
    regex_append(either, both);
  }
  return either;
}

static regex_t *parse_group(regex_parser_t *parser, bool outer_case, bool outer_dot) {
  size_t start = parser->at - 1;
  if (++parser->depth > parser->compile->limits->regex_depth_max) {
    compile_fail(parser->compile, ERR_BAD_REQUEST, "%s: groups nest deeper than %u at byte %zu.",
                 parser->what, parser->compile->limits->regex_depth_max, start);
  }
  regex_t *look = take_look(parser, start);
  bool group = look != NULL || !take(parser, "?") || take_group_kind(parser, start);
  parser->depth -= !group;
  if (!group) return NULL;
  bool behind = look != NULL && !look->ahead;
  parser->behind += behind;
  regex_t *inside = parse_alternatives(parser);
  if (!take(parser, ")")) fail(parser, ERR_INVALID_VALUE, start, "the group has no end");
  parser->behind -= behind;
  parser->depth--;
  if (look != NULL) {
    regex_append(look, inside);
    inside = look;
  }
  parser->ignore_case = outer_case;
  parser->dot_all = outer_dot;
  return inside;
}

static bool take_number(regex_parser_t *parser, uint32_t *out) {
  uint32_t value = 0;
  size_t start = parser->at;
  while (!at_end(parser) && parser->text[parser->at] >= '0' && parser->text[parser->at] <= '9') {
    value = value * 10 + (uint32_t)(parser->text[parser->at++] - '0');
    if (value > parser->compile->limits->regex_nodes_max)
      value = parser->compile->limits->regex_nodes_max + 1;
  }
  *out = value;
  return parser->at > start;
}

/* {m}, {m,} or {m,n}; anything else is literal text. */
static bool take_braces(regex_parser_t *parser, uint32_t *min, uint32_t *max) {
  size_t start = parser->at;
  bool open = take(parser, "{"), python = parser->options->dialect == REGEX_PYTHON;
  *min = 0;
  if (open && (take_number(parser, min) || (python && looking_at(parser, ",")))) {
    *max = *min;
    if (take(parser, ",") && !take_number(parser, max)) *max = NONE;
    if (take(parser, "}")) return true;
  }
  parser->at = start;
  return false;
}

/* is_assertion: the term is an anchor, a word boundary or a look-around. */
static regex_t *parse_quantifier(regex_parser_t *parser, regex_t *term, bool is_assertion) {
  uint32_t min = 0, max = NONE;
  if (take(parser, "?")) {
    max = 1;
  } else if (take(parser, "+")) {
    min = 1;
  } else if (!take(parser, "*") && !take_braces(parser, &min, &max)) {
    return term;
  }
  if (max < min) malformed(parser, "the repetition is out of order");
  if (min > parser->compile->limits->regex_nodes_max ||
      (max != NONE && max > parser->compile->limits->regex_nodes_max)) {
    compile_fail(parser->compile, ERR_BAD_REQUEST, "%s: more than %u repetitions at byte %zu.",
                 parser->what, parser->compile->limits->regex_nodes_max, parser->at);
  }
  if (is_assertion) malformed(parser, "an anchor or look-around cannot be repeated");
  bool lazy = take(parser, "?"); /* the same language */
  if (lazy && parser->options->found_lazy != NULL) *parser->options->found_lazy = true;
  regex_t *node = regex_node(parser->compile, REGEX_REPEAT);
  regex_append(node, term);
  node->min = min;
  node->max = max;
  uint32_t ignored;
  if (looking_at(parser, "*") || looking_at(parser, "+") || looking_at(parser, "?") ||
      take_braces(parser, &ignored, &ignored)) {
    malformed(parser, "nothing to repeat");
  }
  return node;
}

/* An anchor or a word boundary; NULL if there is none. */
static regex_t *parse_assertion(regex_parser_t *parser) {
  bool begin = looking_at(parser, "^"), finish = looking_at(parser, "$");
  if (!begin && !finish) return take_boundary(parser);
  if (parser->options->is_part) refuse(parser, parser->at, "an anchor (^ or $) in a terminal");
  if (finish && parser->behind > 0) refuse(parser, parser->at, "an anchor ($) in a look-behind");
  parser->at++;
  return regex_node(parser->compile, begin ? REGEX_BEGIN : REGEX_FINISH);
}

/* Returns NULL for flags that hold from here on. */
static regex_t *parse_atom(regex_parser_t *parser) {
  grammar_list_t list = {0};
  if (take(parser, "(")) return parse_group(parser, parser->ignore_case, parser->dot_all);
  if (take(parser, "[")) return parse_bracket(parser);
  if (take(parser, ".")) {
    add_range(parser, &list, 0, 0x10FFFF);
    if (parser->dot_all) return set_node(parser, &list, false);
    list.count = 0;
    add_set(parser, &list, sets_class(parser->compile, '.', parser->options->dialect), false);
  } else if (take(parser, "\\")) {
    if (!take_class(parser, &list)) {
      uint32_t ch = take_escape(parser, false);
      add_range(parser, &list, ch, ch);
    }
  } else {
    uint32_t ignored;
    if (looking_at(parser, "*") || looking_at(parser, "+") || looking_at(parser, "?") ||
        take_braces(parser, &ignored, &ignored)) {
      malformed(parser, "nothing to repeat");
    }
    uint32_t ch = take_character(parser);
    add_range(parser, &list, ch, ch);
  }
  return set_node(parser, &list, false);
}

static regex_t *parse_alternatives(regex_parser_t *parser) {
  regex_t *either = regex_node(parser->compile, REGEX_ALT);
  do {
    regex_t *sequence = regex_node(parser->compile, REGEX_CAT);
    while (!at_end(parser) && !looking_at(parser, "|") && !looking_at(parser, ")")) {
      regex_t *assertion = parse_assertion(parser);
      regex_t *atom = assertion != NULL ? assertion : parse_atom(parser);
      if (atom == NULL) continue;
      bool look = assertion != NULL || atom->kind == REGEX_LOOK;
      regex_append(sequence, parse_quantifier(parser, atom, look));
    }
    regex_append(either, sequence);
  } while (take(parser, "|"));
  return either->first == either->last ? either->first : either;
}

regex_t *regex_character(compile_t *compile, uint32_t ch) {
  regex_t *node = regex_node(compile, REGEX_SET);
  node->set = (charset_t){compile_scratch(compile, 1, sizeof(char_range_t)), 1};
  node->set.ranges[0] = (char_range_t){ch, ch};
  return node;
}

regex_t *regex_parse(compile_t *compile, const char *text, size_t length,
                     const regex_options_t *options) {
  regex_parser_t parser = {.compile = compile,
                           .text = text,
                           .length = length,
                           .what = options->what,
                           .options = options,
                           .ignore_case = options->ignore_case,
                           .dot_all = options->dot_all};
  if (!options->own && length > compile->limits->pattern_bytes_max) {
    compile_fail(compile, ERR_BAD_REQUEST, "%s: %zu bytes long; at most %u are allowed.",
                 options->what, length, compile->limits->pattern_bytes_max);
  }
  regex_t *tree = parse_alternatives(&parser);
  if (!at_end(&parser)) malformed(&parser, "a parenthesis closes nothing");
  return tree;
}

dfa_t *regex_dfa(compile_t *compile, const char *text, size_t length,
                 const regex_options_t *options) {
  return regex_build(compile, regex_parse(compile, text, length, options), options);
}
