/* schema_string.c: strings and numbers of a conjunction.
 *
 * Part of a compilation, on its thread. Patterns and formats are automata over the text inside the
 * quotes, joined by their product; a length without them is a counter, so that maxLength costs no
 * states.
 */
#include "engine/base/util.h"
#include "engine/grammar/automaton/regex.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_names.h"

#include <stdio.h>
#include <string.h>

const dfa_t *schema_pattern(schema_t *schema, const char *text, uint32_t length, bool json,
                            const char *pointer) {
  const pattern_dfa_t *known = schema->patterns.items;
  for (uint32_t i = 0; i < schema->patterns.count; i++) {
    if (known[i].length == length && known[i].json == json &&
        memcmp(known[i].text, text, length) == 0)
      return known[i].dfa;
  }
  char what[160], place[128];
  error_quote(place, sizeof place, pointer, strlen(pointer));
  snprintf(what, sizeof what, "Invalid schema at '%s': pattern", place);
  regex_options_t options = {.json = json, .search = true, .what = what};
  const dfa_t *dfa = regex_dfa(schema->compile, text, length, &options);
  *(pattern_dfa_t *)list_add(schema->compile, &schema->patterns, sizeof(pattern_dfa_t)) =
      (pattern_dfa_t){text, length, json, dfa};
  return dfa;
}

static const dfa_t *both(schema_t *schema, const dfa_t *left, const dfa_t *right) {
  if (left == NULL || right == NULL || left == right) return left != NULL ? left : right;
  return dfa_product(schema->compile, left, right, false);
}

const dfa_t *schema_string_content(schema_t *schema, const conjunction_t *conjunction, bool json,
                                   uint32_t *min, uint32_t *max) {
  const dfa_t *content = NULL;
  *min = 0;
  *max = NONE;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const char *base = keywords->part->pointer;
    uint32_t low = schema_count(schema, keywords, KEYWORD_MIN_LENGTH, 0);
    uint32_t high = schema_count(schema, keywords, KEYWORD_MAX_LENGTH, NONE);
    if (low > *min) *min = low;
    if (high < *max) *max = high;
    const json_t *pattern = keywords->values[KEYWORD_PATTERN],
                 *format = keywords->values[KEYWORD_FORMAT];
    if (pattern != NULL) {
      const char *place = schema_pointer_to(schema, base, "pattern");
      content = both(schema, content,
                     schema_pattern(schema, pattern->text, pattern->length, json, place));
    }
    if (format != NULL) {
      content = both(schema, content,
                     format_dfa(schema, format, json, schema_pointer_to(schema, base, "format")));
    }
    content = schema_literal_content(schema, keywords, content, json);
  }
  return content;
}

/* A lexeme of strings, and what it was made of. */
typedef struct content_lexeme {
  const dfa_t *content;
  uint32_t min, max, kind, lexeme;
} content_lexeme_t;

/* Strings of one pattern or format at many places share a lexeme: its states count once. */
static uint32_t content_lexeme(schema_t *schema, const dfa_t *content, uint32_t min, uint32_t max,
                               uint32_t kind) {
  const content_lexeme_t *known = schema->contents.items;
  compile_spend(schema->compile, schema->contents.count / 4 + 1);
  for (uint32_t i = 0; i < schema->contents.count; i++) {
    if (known[i].content == content && known[i].min == min && known[i].max == max &&
        known[i].kind == kind)
      return known[i].lexeme;
  }
  uint32_t lexeme = kind ? lexeme_outside(schema->compile, content, kind, min, max)
                         : lexeme_content(schema->compile, content, min, max);
  *(content_lexeme_t *)list_add(schema->compile, &schema->contents, sizeof(content_lexeme_t)) =
      (content_lexeme_t){content, min, max, kind, lexeme};
  return lexeme;
}

uint32_t schema_string(schema_t *schema, const conjunction_t *conjunction) {
  uint32_t min, max;
  uint32_t lexeme, kind = schema_text_kind(schema, conjunction);
  const dfa_t *content = schema_string_content(schema, conjunction, kind == 0, &min, &max);
  if (content != NULL || kind) {
    lexeme = content_lexeme(schema, content, min, max, kind);
  } else {
    lexeme = lexeme_string(schema->compile, min, max, schema->source->literals != NULL);
  }
  return schema_text(schema, kind, lexeme);
}

/* ---- numbers ---- */

static decimal_t bound_of(const schema_t *schema, const keywords_t *keywords, keyword_t keyword,
                          bool open, bool integer) {
  decimal_t decimal = decimal_of(keywords->values[keyword]);
  /* A double cannot distinguish such a fraction from its neighbours, so readers could disagree. */
  bool rough = open && !integer && decimal.num_fraction > 0 &&
               decimal.num_integer + decimal.num_fraction > 15;
  if (decimal.fine || rough) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, keywords->part->pointer,
                "a bound has more digits than can be compared exactly.");
  }
  return decimal;
}

static void raise_low(number_spec_t *spec, decimal_t low, bool open) {
  int order = spec->has_low ? decimal_compare(&low, &spec->low) : 1;
  if (order < 0 || (order == 0 && !open)) return;
  spec->low = low;
  spec->low_open = open;
  spec->has_low = true;
}

static void lower_high(number_spec_t *spec, decimal_t high, bool open) {
  int order = spec->has_high ? decimal_compare(&high, &spec->high) : -1;
  if (order > 0 || (order == 0 && !open)) return;
  spec->high = high;
  spec->high_open = open;
  spec->has_high = true;
}

/* exclusiveMinimum is a number; in draft 4 it is a boolean that modifies minimum. */
static void add_bounds(const schema_t *schema, const keywords_t *keywords, number_spec_t *spec) {
  const json_t *low = keywords->values[KEYWORD_EXCLUSIVE_MINIMUM];
  const json_t *high = keywords->values[KEYWORD_EXCLUSIVE_MAXIMUM];
  bool low_open = schema->old_exclusive && low != NULL && low->type == JSON_TRUE;
  bool high_open = schema->old_exclusive && high != NULL && high->type == JSON_TRUE;
  bool integer = spec->integer;
  if (keywords->values[KEYWORD_MINIMUM] != NULL) {
    raise_low(spec, bound_of(schema, keywords, KEYWORD_MINIMUM, low_open, integer), low_open);
  }
  if (keywords->values[KEYWORD_MAXIMUM] != NULL) {
    lower_high(spec, bound_of(schema, keywords, KEYWORD_MAXIMUM, high_open, integer), high_open);
  }
  if (low != NULL && !schema->old_exclusive) {
    raise_low(spec, bound_of(schema, keywords, KEYWORD_EXCLUSIVE_MINIMUM, true, integer), true);
  }
  if (high != NULL && !schema->old_exclusive) {
    lower_high(spec, bound_of(schema, keywords, KEYWORD_EXCLUSIVE_MAXIMUM, true, integer), true);
  }
}

static uint32_t greatest_divisor(uint32_t left, uint32_t right) {
  while (right) {
    uint32_t rest = left % right;
    left = right;
    right = rest;
  }
  return left;
}

static void add_multiple(const schema_t *schema, const keywords_t *keywords, number_spec_t *spec) {
  enum { MULTIPLE_MAX = 10000, SCALE_MAX = 9 };
  uint64_t value = 0;
  decimal_t decimal = decimal_of(keywords->values[KEYWORD_MULTIPLE_OF]);
  bool fits = !decimal.huge && !decimal.fine && decimal.num_integer <= 5 &&
              decimal.num_fraction <= SCALE_MAX;
  for (int i = 0; fits && i < decimal.num_integer + decimal.num_fraction; i++) {
    value = value * 10 + (uint64_t)(decimal.digits[i] - '0');
  }
  uint32_t scale = decimal.num_fraction;
  if (fits && spec->multiple) {
    /* Both at one scale, then the least common multiple. */
    uint64_t other = spec->multiple;
    for (; spec->scale < scale; spec->scale++) other *= 10;
    for (; scale < spec->scale; scale++) value *= 10;
    fits = value <= UINT32_MAX && other <= UINT32_MAX;
    if (fits) value = value / greatest_divisor((uint32_t)value, (uint32_t)other) * other;
  }
  if (!fits || value == 0 || value > MULTIPLE_MAX) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, keywords->part->pointer,
                "multipleOf is supported up to %d, counted in its last decimal place.",
                MULTIPLE_MAX);
  }
  spec->multiple = (uint32_t)value;
  spec->scale = scale;
}

dfa_t *schema_number_dfa(schema_t *schema, const conjunction_t *conjunction, bool integer) {
  number_spec_t spec = {.integer = integer};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    add_bounds(schema, &conjunction->items[i], &spec);
    if (conjunction->items[i].values[KEYWORD_MULTIPLE_OF] != NULL)
      add_multiple(schema, &conjunction->items[i], &spec);
  }
  return schema_literal_number(schema, conjunction, number_dfa(schema->compile, &spec));
}

uint32_t schema_number(schema_t *schema, const conjunction_t *conjunction, bool integer) {
  static const keyword_t about[] = {KEYWORD_MINIMUM, KEYWORD_MAXIMUM, KEYWORD_EXCLUSIVE_MINIMUM,
                                    KEYWORD_EXCLUSIVE_MAXIMUM, KEYWORD_MULTIPLE_OF};
  bool plain = !schema_has_number_literal(schema, conjunction);
  for (uint32_t i = 0; i < conjunction->count; i++) {
    for (size_t w = 0; w < ARRAY_LEN(about); w++) {
      if (conjunction->items[i].values[about[w]] != NULL) plain = false;
    }
  }
  uint32_t lexeme =
      plain ? lexeme_pattern(schema->compile, integer ? pattern_integer : pattern_number)
            : lexeme_add(schema->compile, schema_number_dfa(schema, conjunction, integer));
  return build_lex(schema->compile, lexeme, NODE_ID_RETURN);
}
