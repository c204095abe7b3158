/* regex_sets.c: the sets of characters that escapes of patterns name: \d, \w, \s, \p{..}, and the
 * other cases of letters.
 *
 * Part of a compilation, on its thread. property_tables.c is generated.
 */
#include "engine/grammar/automaton/regex_sets.h"

#include "engine/base/unicode_case.h"
#include "engine/base/util.h"

#include <string.h>

enum { PROPERTY_NAME_MAX = 40, CASE_ROUNDS = 3 };

/* ---- \d, \w, \s, dot ---- */

static const char_range_t digits[] = {{'0', '9'}};
static const char_range_t words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const char_range_t spaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const char_range_t line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
static const char_range_t line_feed[] = {{'\n', '\n'}};

static void add_range(compile_t *compile, grammar_list_t *list, uint32_t low, uint32_t high) {
  *(char_range_t *)list_add(compile, list, sizeof(char_range_t)) = (char_range_t){low, high};
}

static charset_t normal(const grammar_list_t *list) {
  charset_t set = {list->items, list->count};
  charset_normalize(&set);
  return set;
}

/* Returns a copy, which the caller may change. */
static charset_t constant(compile_t *compile, const char_range_t *ranges, uint32_t count) {
  charset_t set = {compile_scratch(compile, count, sizeof *ranges), count};
  memcpy(set.ranges, ranges, count * sizeof *ranges);
  return set;
}

/* Characters with one of the CHAR_ bits, without surrogates. */
static charset_t of_class(compile_t *compile, unsigned bits, bool underscore) {
  grammar_list_t list = {0};
  compile_spend(compile, unicode_classes_count / 4);
  if (underscore) add_range(compile, &list, '_', '_');
  for (uint32_t i = 0; i < unicode_classes_count; i++) {
    if (!(unicode_classes[i].bits & bits)) continue;
    uint32_t end = i + 1 < unicode_classes_count ? unicode_classes[i + 1].first : 0x110000;
    add_range(compile, &list, unicode_classes[i].first, end - 1);
  }
  return normal(&list);
}

charset_t sets_class(compile_t *compile, char which, regex_dialect_t dialect) {
  bool python = dialect == REGEX_PYTHON;
  switch (which) {
  case 'd':
    return python ? of_class(compile, CHAR_DECIMAL, false)
                  : constant(compile, digits, ARRAY_LEN(digits));
  case 'w':
    return python ? of_class(compile, CHAR_ALPHA | CHAR_DECIMAL | CHAR_DIGIT | CHAR_NUMERIC, true)
                  : constant(compile, words, ARRAY_LEN(words));
  case 's':
    return python ? of_class(compile, CHAR_SPACE, false)
                  : constant(compile, spaces, ARRAY_LEN(spaces));
  default:
    return python ? charset_invert(compile, line_feed, ARRAY_LEN(line_feed))
                  : charset_invert(compile, line_ends, ARRAY_LEN(line_ends));
  }
}

/* ---- properties ---- */

/* Writes a name in lower case without blanks, - and _; false if it is too long. */
static bool plain_name(const char *name, size_t length, char out[PROPERTY_NAME_MAX]) {
  size_t at = 0;
  for (size_t i = 0; i < length; i++) {
    char ch = name[i];
    if (ch == ' ' || ch == '-' || ch == '_') continue;
    if (at == PROPERTY_NAME_MAX - 1) return false;
    out[at++] = ch >= 'A' && ch <= 'Z' ? (char)(ch | 0x20) : ch;
  }
  out[at] = '\0';
  return at > 0;
}

typedef enum property_kind { ANY_KIND, CATEGORY, SCRIPT } property_kind_t;

/* Reads "script=" and its like before a value. */
static property_kind_t kind_of(const char *plain, const char **value) {
  static const struct {
    const char *name;
    property_kind_t kind;
  } kinds[] = {
      {"generalcategory=", CATEGORY}, {"gc=", CATEGORY}, {"script=", SCRIPT}, {"sc=", SCRIPT}};
  *value = plain;
  for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
    size_t length = strlen(kinds[i].name);
    if (strncmp(plain, kinds[i].name, length) != 0) continue;
    *value = plain + length;
    return kinds[i].kind;
  }
  return ANY_KIND;
}

charset_t sets_property(compile_t *compile, const char *name, size_t length) {
  char plain[PROPERTY_NAME_MAX];
  const char *value;
  grammar_list_t list = {0};
  if (!plain_name(name, length, plain)) return (charset_t){NULL, 0};
  property_kind_t kind = kind_of(plain, &value);
  if (kind == ANY_KIND && strcmp(value, "any") == 0) add_range(compile, &list, 0, 0x10FFFF);
  if (kind == ANY_KIND && strcmp(value, "ascii") == 0) add_range(compile, &list, 0, 0x7F);
  for (uint32_t i = 0; i < property_names_count; i++) {
    const property_name_t *row = &property_names[i];
    if (kind == (row->is_script ? CATEGORY : SCRIPT) || strcmp(row->name, value) != 0) continue;
    compile_spend(compile, row->count);
    for (uint32_t k = row->first; k < (uint32_t)row->first + row->count; k++)
      add_range(compile, &list, property_ranges[k].low, property_ranges[k].high);
  }
  return normal(&list);
}

/* ---- cases ---- */

static bool holds(const charset_t *set, uint32_t ch) {
  uint32_t low = 0, high = set->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (set->ranges[middle].high < ch) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < set->count && set->ranges[low].low <= ch;
}

/* Adds the character of each pair whose other one is a member. Returns true if one is new. */
static bool add_pairs(compile_t *compile, const charset_t *set, grammar_list_t *list,
                      const case_pair_t *pairs, uint32_t count, bool python) {
  bool added = false;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t from = pairs[i].from, to = pairs[i].to;
    if (!python && (from < 128) != (to < 128)) continue;
    bool has_from = holds(set, from), has_to = holds(set, to);
    if (has_from == has_to) continue;
    add_range(compile, list, has_from ? to : from, has_from ? to : from);
    added = true;
  }
  return added;
}

charset_t sets_any_case(compile_t *compile, charset_t set, regex_dialect_t dialect) {
  static const case_pair_t extra[] = {{0x130, 'i'}}; /* its lower case is two characters */
  bool python = dialect == REGEX_PYTHON;
  bool ascii = !python && set.count > 0 && set.ranges[set.count - 1].high < 128;
  for (int round = 0; round < CASE_ROUNDS; round++) {
    grammar_list_t list = {0};
    bool added = false;
    for (uint32_t i = 0; i < set.count; i++)
      add_range(compile, &list, set.ranges[i].low, set.ranges[i].high);
    for (uint32_t ch = 'a'; ch <= 'z'; ch++) {
      bool lower = holds(&set, ch), upper = holds(&set, ch ^ 0x20);
      if (lower == upper) continue;
      add_range(compile, &list, lower ? ch ^ 0x20 : ch, lower ? ch ^ 0x20 : ch);
      added = true;
    }
    if (!ascii) {
      compile_spend(compile, (unicode_lower_count + unicode_upper_count) / 4);
      added |= add_pairs(compile, &set, &list, unicode_lower, unicode_lower_count, python);
      added |= add_pairs(compile, &set, &list, unicode_upper, unicode_upper_count, python);
      if (python) added |= add_pairs(compile, &set, &list, extra, ARRAY_LEN(extra), true);
    }
    set = normal(&list);
    if (!added) break;
  }
  return set;
}
