/* regex.c: reads an ECMA-262 pattern into a tree.
 *
 * Part of a compilation, on its thread. Constructs that a byte automaton cannot decide exactly are
 * refused by name: look-around, back references, word boundaries, Unicode properties, flags.
 * Recursion is bounded by the limit on nested groups. Next: regex_nfa.c.
 */
#include "engine/grammar/automaton/regex.h"

#include "engine/base/hex.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <string.h>

typedef struct regex_parser {
  compile_t *compile;
  const char *text;
  size_t length, at;
  const char *what;
  uint32_t depth;
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

static const char_range_t digits[] = {{'0', '9'}};
static const char_range_t words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const char_range_t spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const char_range_t line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/* The ranges of a constant set, and how many. */
#define SET(name) name, ARRAY_LEN(name)

static void add_range(regex_parser_t *parser, grammar_list_t *list, uint32_t low, uint32_t high) {
  *(char_range_t *)list_add(parser->compile, list, sizeof(char_range_t)) =
      (char_range_t){low, high};
}

static void add_set(regex_parser_t *parser, grammar_list_t *list, const char_range_t *ranges,
                    uint32_t count, bool invert) {
  if (invert) {
    charset_t others = charset_invert(parser->compile, ranges, count);
    ranges = others.ranges, count = others.count;
  }
  for (uint32_t i = 0; i < count; i++) add_range(parser, list, ranges[i].low, ranges[i].high);
}

static regex_t *set_node(regex_parser_t *parser, grammar_list_t *list, bool invert) {
  regex_t *node = regex_node(parser->compile, REGEX_SET);
  node->set = (charset_t){list->items, list->count};
  charset_normalize(&node->set);
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

/* After the backslash: a class such as \d. */
static bool take_class(regex_parser_t *parser, grammar_list_t *list) {
  char ch = at_end(parser) ? 0 : parser->text[parser->at];
  switch (ch) {
  case 'd': add_set(parser, list, SET(digits), false); break;
  case 'D': add_set(parser, list, SET(digits), true); break;
  case 'w': add_set(parser, list, SET(words), false); break;
  case 'W': add_set(parser, list, SET(words), true); break;
  case 's': add_set(parser, list, SET(spaces), false); break;
  case 'S': add_set(parser, list, SET(spaces), true); break;
  default: return false;
  }
  parser->at++;
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
  case 'b':
    if (in_class) return '\b';
    refuse(parser, start, "a word boundary (\\b)");
  case 'B': refuse(parser, start, "a word boundary (\\B)");
  case 'k': refuse(parser, start, "a back reference (\\k)");
  case 'p':
  case 'P': refuse(parser, start, "a Unicode property (\\p)");
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
  bool invert = take(parser, "^");
  if (!invert && looking_at(parser, "]")) refuse(parser, start, "an empty class");
  while (!take(parser, "]")) {
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

static regex_t *parse_group(regex_parser_t *parser) {
  size_t start = parser->at - 1;
  if (++parser->depth > parser->compile->limits->regex_depth_max) {
    compile_fail(parser->compile, ERR_BAD_REQUEST, "%s: groups nest deeper than %u at byte %zu.",
                 parser->what, parser->compile->limits->regex_depth_max, start);
  }
  if (take(parser, "?")) {
    if (looking_at(parser, "=") || looking_at(parser, "!")) refuse(parser, start, "look-ahead");
    if (looking_at(parser, "<=") || looking_at(parser, "<!")) refuse(parser, start, "look-behind");
    if (take(parser, "<")) {
      skip_group_name(parser);
    } else if (!take(parser, ":")) {
      refuse(parser, start, "this kind of group or flag");
    }
  }
  regex_t *inside = parse_alternatives(parser);
  if (!take(parser, ")")) fail(parser, ERR_INVALID_VALUE, start, "the group has no end");
  parser->depth--;
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
  if (take(parser, "{") && take_number(parser, min)) {
    *max = *min;
    if (take(parser, ",") && !take_number(parser, max)) *max = NONE;
    if (take(parser, "}")) return true;
  }
  parser->at = start;
  return false;
}

static regex_t *parse_quantifier(regex_parser_t *parser, regex_t *term) {
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
  if (term->kind == REGEX_BEGIN || term->kind == REGEX_FINISH) {
    malformed(parser, "an anchor cannot be repeated");
  }
  take(parser, "?"); /* lazy: the same language */
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

static regex_t *parse_atom(regex_parser_t *parser) {
  grammar_list_t list = {0};
  if (take(parser, "(")) return parse_group(parser);
  if (take(parser, "[")) return parse_bracket(parser);
  if (take(parser, "^")) return regex_node(parser->compile, REGEX_BEGIN);
  if (take(parser, "$")) return regex_node(parser->compile, REGEX_FINISH);
  if (take(parser, ".")) {
    add_set(parser, &list, SET(line_ends), true);
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
      regex_append(sequence, parse_quantifier(parser, parse_atom(parser)));
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
  regex_parser_t parser = {
      .compile = compile, .text = text, .length = length, .what = options->what};
  if (length > compile->limits->pattern_bytes_max) {
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
