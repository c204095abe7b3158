/* regex.c: reads an ECMA-262 pattern into a tree.
 *
 * Part of a compilation, on its thread. What a byte automaton cannot decide exactly is refused by
 * name: look-around, back references, word boundaries, Unicode properties, flags. Recursion is
 * bounded by the limit on nested groups. Next: regex_nfa.c.
 */
#include "engine/grammar/automaton/regex.h"

#include "engine/base/utf8.h"

#include <string.h>

typedef struct parser {
  compile_t *c;
  const char *text;
  size_t length, at;
  const char *what;
  uint32_t depth;
} parser_t;

static regex_t *parse_alternatives(parser_t *p);

_Noreturn static void fail(parser_t *p, int code, size_t at, const char *reason) {
  compile_fail(p->c, code, "%s: %s at byte %zu.", p->what, reason, at);
}

_Noreturn static void malformed(parser_t *p, const char *reason) {
  fail(p, ERR_INVALID_VALUE, p->at, reason);
}

_Noreturn static void refuse(parser_t *p, size_t at, const char *construct) {
  char reason[96];
  size_t length = 0;
  for (const char *s = construct; *s && length < 60; s++) reason[length++] = *s;
  memcpy(reason + length, " is not supported", sizeof " is not supported");
  fail(p, ERR_UNSUPPORTED_PARAMETER, at, reason);
}

static bool at_end(const parser_t *p) {
  return p->at >= p->length;
}

static bool looking_at(const parser_t *p, const char *text) {
  size_t length = strlen(text);
  return p->length - p->at >= length && memcmp(p->text + p->at, text, length) == 0;
}

static bool take(parser_t *p, const char *text) {
  if (!looking_at(p, text)) return false;
  p->at += strlen(text);
  return true;
}

static uint32_t decode(const char *text, int span) {
  const uint8_t *s = (const uint8_t *)text;
  if (span == 1) return s[0];
  uint32_t value = s[0] & (0xFFu >> (span + 1));
  for (int i = 1; i < span; i++) value = value << 6 | (s[i] & 0x3F);
  return value;
}

static uint32_t take_character(parser_t *p) {
  if (at_end(p)) malformed(p, "the pattern ends too soon");
  int span = utf8_span(p->text + p->at, p->length - p->at);
  if (span < 0) malformed(p, "invalid UTF-8");
  p->at += (size_t)span;
  return decode(p->text + p->at - span, span);
}

/* ---- sets ---- */

static const range_t digits[] = {{'0', '9'}};
static const range_t words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const range_t spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const range_t line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

#define SET(name) ((charset_t){(range_t *)(uintptr_t)(name), sizeof(name) / sizeof *(name)})

static void add_range(parser_t *p, list_t *list, uint32_t low, uint32_t high) {
  *(range_t *)list_add(p->c, list, sizeof(range_t)) = (range_t){low, high};
}

static void add_set(parser_t *p, list_t *list, charset_t set, bool invert) {
  if (invert) set = charset_invert(p->c, &set);
  for (uint32_t i = 0; i < set.count; i++) {
    add_range(p, list, set.ranges[i].low, set.ranges[i].high);
  }
}

static regex_t *set_node(parser_t *p, list_t *list, bool invert) {
  regex_t *node = regex_node(p->c, REGEX_SET);
  node->set = (charset_t){list->items, list->count};
  charset_normalize(&node->set);
  if (invert) node->set = charset_invert(p->c, &node->set);
  return node;
}

/* ---- escapes ---- */

static uint32_t take_hex(parser_t *p, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; i++) {
    char ch = at_end(p) ? 0 : p->text[p->at];
    int digit = ch >= '0' && ch <= '9'   ? ch - '0'
                : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                         : -1;
    if (digit < 0) malformed(p, "expected a hexadecimal digit");
    value = value << 4 | (uint32_t)digit;
    p->at++;
  }
  return value;
}

static uint32_t take_unicode(parser_t *p) {
  uint32_t value = 0;
  if (take(p, "{")) {
    do {
      value = value << 4 | take_hex(p, 1);
      if (value > 0x10FFFF) malformed(p, "a code point is above 10FFFF");
    } while (!take(p, "}"));
  } else {
    value = take_hex(p, 4);
    if (value >= 0xD800 && value <= 0xDBFF && take(p, "\\u")) {
      uint32_t low = take_hex(p, 4);
      if (low < 0xDC00 || low > 0xDFFF) malformed(p, "a surrogate stands alone");
      return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (value >= 0xD800 && value <= 0xDFFF) malformed(p, "a surrogate stands alone");
  return value;
}

/* After the backslash: a class such as \d. */
static bool take_class(parser_t *p, list_t *list) {
  char ch = at_end(p) ? 0 : p->text[p->at];
  switch (ch) {
  case 'd': add_set(p, list, SET(digits), false); break;
  case 'D': add_set(p, list, SET(digits), true); break;
  case 'w': add_set(p, list, SET(words), false); break;
  case 'W': add_set(p, list, SET(words), true); break;
  case 's': add_set(p, list, SET(spaces), false); break;
  case 'S': add_set(p, list, SET(spaces), true); break;
  default: return false;
  }
  p->at++;
  return true;
}

/* After the backslash: one character. */
static uint32_t take_escape(parser_t *p, bool in_class) {
  size_t start = p->at - 1;
  uint32_t ch = take_character(p);
  switch (ch) {
  case 't': return '\t';
  case 'n': return '\n';
  case 'v': return '\v';
  case 'f': return '\f';
  case 'r': return '\r';
  case 'x': return take_hex(p, 2);
  case 'u': return take_unicode(p);
  case 'b':
    if (in_class) return '\b';
    refuse(p, start, "a word boundary (\\b)");
  case 'B': refuse(p, start, "a word boundary (\\B)");
  case 'k': refuse(p, start, "a back reference (\\k)");
  case 'p':
  case 'P': refuse(p, start, "a Unicode property (\\p)");
  case 'c': {
    uint32_t letter = take_character(p);
    if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') malformed(p, "\\c needs a letter");
    return letter & 0x1F;
  }
  default: break;
  }
  if (ch == '0' && (at_end(p) || p->text[p->at] < '0' || p->text[p->at] > '9')) return 0;
  if (ch >= '0' && ch <= '9') refuse(p, start, "a back reference or octal escape");
  if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') refuse(p, start, "an unknown escape");
  return ch;
}

/* ---- brackets ---- */

/* One member of a class: true and *ch for a single character, false for a set. */
static bool take_member(parser_t *p, list_t *list, uint32_t *ch) {
  if (take(p, "\\")) {
    if (take_class(p, list)) return false;
    *ch = take_escape(p, true);
  } else {
    *ch = take_character(p);
  }
  return true;
}

static regex_t *parse_bracket(parser_t *p) {
  list_t list = {0};
  size_t start = p->at - 1;
  bool invert = take(p, "^");
  if (!invert && looking_at(p, "]")) refuse(p, start, "an empty class");
  while (!take(p, "]")) {
    uint32_t low, high;
    if (at_end(p)) fail(p, ERR_INVALID_VALUE, start, "the class has no end");
    compile_spend(p->c, 1);
    bool single = take_member(p, &list, &low);
    if (looking_at(p, "-") && !looking_at(p, "-]")) {
      p->at++;
      if (at_end(p)) fail(p, ERR_INVALID_VALUE, start, "the class has no end");
      if (!single || !take_member(p, &list, &high)) malformed(p, "a class cannot end a range");
      if (high < low) malformed(p, "the range is out of order");
      add_range(p, &list, low, high);
    } else if (single) {
      add_range(p, &list, low, low);
    }
  }
  return set_node(p, &list, invert);
}

/* ---- terms ---- */

static void skip_group_name(parser_t *p) {
  while (!take(p, ">")) take_character(p);
}

static regex_t *parse_group(parser_t *p) {
  size_t start = p->at - 1;
  if (++p->depth > p->c->limits->regex_depth_max) {
    compile_fail(p->c, ERR_BAD_REQUEST, "%s: groups nest deeper than %u at byte %zu.", p->what,
                 p->c->limits->regex_depth_max, start);
  }
  if (take(p, "?")) {
    if (looking_at(p, "=") || looking_at(p, "!")) refuse(p, start, "look-ahead");
    if (looking_at(p, "<=") || looking_at(p, "<!")) refuse(p, start, "look-behind");
    if (take(p, "<")) {
      skip_group_name(p);
    } else if (!take(p, ":")) {
      refuse(p, start, "this kind of group or flag");
    }
  }
  regex_t *inside = parse_alternatives(p);
  if (!take(p, ")")) fail(p, ERR_INVALID_VALUE, start, "the group has no end");
  p->depth--;
  return inside;
}

static bool take_number(parser_t *p, uint32_t *out) {
  uint32_t value = 0;
  size_t start = p->at;
  while (!at_end(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
    value = value * 10 + (uint32_t)(p->text[p->at++] - '0');
    if (value > p->c->limits->regex_nodes_max) value = p->c->limits->regex_nodes_max + 1;
  }
  *out = value;
  return p->at > start;
}

/* {m}, {m,} or {m,n}; anything else is literal text. */
static bool take_braces(parser_t *p, uint32_t *min, uint32_t *max) {
  size_t start = p->at;
  if (take(p, "{") && take_number(p, min)) {
    *max = *min;
    if (take(p, ",") && !take_number(p, max)) *max = NONE;
    if (take(p, "}")) return true;
  }
  p->at = start;
  return false;
}

static regex_t *parse_quantifier(parser_t *p, regex_t *term) {
  uint32_t min = 0, max = NONE;
  if (take(p, "?")) {
    max = 1;
  } else if (take(p, "+")) {
    min = 1;
  } else if (!take(p, "*") && !take_braces(p, &min, &max)) {
    return term;
  }
  if (max < min) malformed(p, "the repetition is out of order");
  if (min > p->c->limits->regex_nodes_max || (max != NONE && max > p->c->limits->regex_nodes_max)) {
    compile_fail(p->c, ERR_BAD_REQUEST, "%s: more than %u repetitions at byte %zu.", p->what,
                 p->c->limits->regex_nodes_max, p->at);
  }
  if (term->kind == REGEX_BEGIN || term->kind == REGEX_FINISH) {
    malformed(p, "an anchor cannot be repeated");
  }
  take(p, "?"); /* lazy: the same language */
  regex_t *node = regex_node(p->c, REGEX_REPEAT);
  regex_append(node, term);
  node->min = min;
  node->max = max;
  uint32_t ignored;
  if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?") ||
      take_braces(p, &ignored, &ignored)) {
    malformed(p, "nothing to repeat");
  }
  return node;
}

static regex_t *parse_atom(parser_t *p) {
  list_t list = {0};
  if (take(p, "(")) return parse_group(p);
  if (take(p, "[")) return parse_bracket(p);
  if (take(p, "^")) return regex_node(p->c, REGEX_BEGIN);
  if (take(p, "$")) return regex_node(p->c, REGEX_FINISH);
  if (take(p, ".")) {
    add_set(p, &list, SET(line_ends), true);
  } else if (take(p, "\\")) {
    if (!take_class(p, &list)) {
      uint32_t ch = take_escape(p, false);
      add_range(p, &list, ch, ch);
    }
  } else {
    uint32_t ignored;
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?") ||
        take_braces(p, &ignored, &ignored)) {
      malformed(p, "nothing to repeat");
    }
    uint32_t ch = take_character(p);
    add_range(p, &list, ch, ch);
  }
  return set_node(p, &list, false);
}

static regex_t *parse_alternatives(parser_t *p) {
  regex_t *either = regex_node(p->c, REGEX_ALT);
  do {
    regex_t *sequence = regex_node(p->c, REGEX_CAT);
    while (!at_end(p) && !looking_at(p, "|") && !looking_at(p, ")")) {
      regex_append(sequence, parse_quantifier(p, parse_atom(p)));
    }
    regex_append(either, sequence);
  } while (take(p, "|"));
  return either->first == either->last ? either->first : either;
}

regex_t *regex_character(compile_t *c, const char *text, int span) {
  regex_t *node = regex_node(c, REGEX_SET);
  uint32_t ch = decode(text, span);
  node->set = (charset_t){compile_scratch(c, 1, sizeof(range_t)), 1};
  node->set.ranges[0] = (range_t){ch, ch};
  return node;
}

regex_t *regex_parse(compile_t *c, const char *text, size_t length,
                     const regex_options_t *options) {
  parser_t p = {.c = c, .text = text, .length = length, .what = options->what};
  if (length > c->limits->pattern_bytes_max) {
    compile_fail(c, ERR_BAD_REQUEST, "%s: %zu bytes long; at most %u are allowed.", options->what,
                 length, c->limits->pattern_bytes_max);
  }
  regex_t *tree = parse_alternatives(&p);
  if (!at_end(&p)) malformed(&p, "a parenthesis closes nothing");
  return tree;
}

dfa_t *regex_dfa(compile_t *c, const char *text, size_t length, const regex_options_t *options) {
  return regex_build(c, regex_parse(c, text, length, options), options);
}
