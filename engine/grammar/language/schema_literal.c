/* schema_literal.c: one keyword that must not hold, or one member that must or must not occur.
 *
 * Part of a compilation, on its thread. Where another keyword says the opposite (minLength n,
 * maxLength n - 1), a literal is that keyword; the others are taken out of what the keywords of the
 * value allow, as automata over one spelling of each value.
 */
#include "engine/base/util.h"
#include "engine/grammar/automaton/regex.h"
#include "engine/grammar/language/schema_logic.h"

#include <stdio.h>
#include <string.h>

#define TYPE_JSON(name)                                                                            \
  { .type = JSON_STRING, .text = name, .length = sizeof(name) - 1 }
static const json_t array_type = TYPE_JSON("array"), object_type = TYPE_JSON("object"),
                    string_type = TYPE_JSON("string"), number_type = TYPE_JSON("number"),
                    yes = {.type = JSON_TRUE},
                    zero = {.type = JSON_NUMBER, .text = "0", .length = 1},
                    one = {.type = JSON_NUMBER, .text = "1", .length = 1};

/* ---- literals as keywords ---- */

/* Sets a keyword that counts to the number `add` beside that of another. */
static void set_count(const schema_t *schema, keywords_t *out, keyword_t keyword,
                      const json_t *other, int add) {
  enum { BYTES = 24 };
  int64_t value = 0;
  json_int64(other, &value);
  json_t *json = compile_scratch(schema->compile, 1, sizeof *json);
  char *text = compile_scratch(schema->compile, BYTES, 1);
  int length = snprintf(text, BYTES, "%lld", (long long)MIN(value, INT64_MAX - 1) + add);
  *json = (json_t){.type = JSON_NUMBER, .text = text, .length = (uint32_t)length};
  out->values[keyword] = json;
}

/* Not at least n is at most n - 1; not at most n is at least n + 1. */
static bool set_opposite_count(const schema_t *schema, keywords_t *out, keyword_t keyword,
                               const json_t *value) {
  static const struct {
    keyword_t low, high;
    const json_t *type;
  } rows[] = {{KEYWORD_MIN_PROPERTIES, KEYWORD_MAX_PROPERTIES, &object_type},
              {KEYWORD_MIN_ITEMS, KEYWORD_MAX_ITEMS, &array_type},
              {KEYWORD_MIN_LENGTH, KEYWORD_MAX_LENGTH, &string_type}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    if (keyword != rows[i].low && keyword != rows[i].high) continue;
    out->values[KEYWORD_TYPE] = rows[i].type;
    bool low = keyword == rows[i].low;
    set_count(schema, out, low ? rows[i].high : rows[i].low, value, low ? -1 : 1);
    return true;
  }
  return false;
}

/* A bound that includes its value becomes one that does not, on the other side. In draft 4 a
 * boolean says which of both it is. */
static bool set_opposite_bound(const schema_t *schema, keywords_t *out, keyword_t keyword,
                               const keywords_t *plain) {
  static const struct {
    keyword_t keyword, opposite, open, opposite_open;
  } rows[] = {
      {KEYWORD_MINIMUM, KEYWORD_MAXIMUM, KEYWORD_EXCLUSIVE_MINIMUM, KEYWORD_EXCLUSIVE_MAXIMUM},
      {KEYWORD_MAXIMUM, KEYWORD_MINIMUM, KEYWORD_EXCLUSIVE_MAXIMUM, KEYWORD_EXCLUSIVE_MINIMUM}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    bool open = keyword == rows[i].open;
    if (keyword != rows[i].keyword && !open) continue;
    const json_t *value = plain->values[keyword], *modifier = plain->values[rows[i].open];
    out->values[KEYWORD_TYPE] = &number_type;
    if (!schema->old_exclusive) {
      out->values[open ? rows[i].opposite : rows[i].opposite_open] = value;
      return true;
    }
    out->values[rows[i].opposite] = value;
    bool was_open = modifier != NULL && modifier->type == JSON_TRUE;
    if (!was_open) out->values[rows[i].opposite_open] = &yes;
    return true;
  }
  return false;
}

/* Fewer items than the minimum satisfy `contains`, or more than the maximum. */
static bool set_opposite_contains(const schema_t *schema, keywords_t *out, keyword_t keyword,
                                  const keywords_t *plain) {
  if (keyword != KEYWORD_CONTAINS && keyword != KEYWORD_MAX_CONTAINS) return false;
  const json_t *min = plain->values[KEYWORD_MIN_CONTAINS];
  out->values[KEYWORD_TYPE] = &array_type;
  out->values[KEYWORD_CONTAINS] = plain->values[KEYWORD_CONTAINS];
  if (keyword == KEYWORD_CONTAINS) {
    out->values[KEYWORD_MIN_CONTAINS] = &zero;
    set_count(schema, out, KEYWORD_MAX_CONTAINS, min != NULL ? min : &one, -1);
  } else {
    set_count(schema, out, KEYWORD_MIN_CONTAINS, plain->values[KEYWORD_MAX_CONTAINS], 1);
  }
  return true;
}

static void set_keyword(const schema_t *schema, keywords_t *out, keyword_t keyword,
                        const keywords_t *plain) {
  static const struct {
    keyword_t keyword;
    literal_t literal;
    const json_t *type;
  } rows[] = {
      {KEYWORD_TYPE, LITERAL_TYPE, NULL},
      {KEYWORD_ENUM, LITERAL_ENUM, NULL},
      {KEYWORD_CONST, LITERAL_CONST, NULL},
      {KEYWORD_PATTERN, LITERAL_PATTERN, &string_type},
      {KEYWORD_MULTIPLE_OF, LITERAL_MULTIPLE_OF, &number_type},
      {KEYWORD_REQUIRED, LITERAL_REQUIRED, &object_type},
      {KEYWORD_DEPENDENT_REQUIRED, LITERAL_DEPENDENT, &object_type},
      {KEYWORD_DEPENDENCIES, LITERAL_DEPENDENT, &object_type},
      {KEYWORD_ADDITIONAL_PROPERTIES, LITERAL_EXTRA, &object_type},
  };
  const json_t *value = plain->values[keyword];
  if (set_opposite_count(schema, out, keyword, value)) return;
  if (set_opposite_bound(schema, out, keyword, plain)) return;
  if (set_opposite_contains(schema, out, keyword, plain)) return;
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    if (rows[i].keyword != keyword) continue;
    bool whole = keyword == KEYWORD_REQUIRED || keyword == KEYWORD_ADDITIONAL_PROPERTIES;
    out->literal = rows[i].literal;
    out->about = whole ? plain->part->schema : value;
    out->values[KEYWORD_TYPE] = rows[i].type;
  }
}

keywords_t schema_literal(const schema_t *schema, const schema_part_t *part) {
  keywords_t out = {.part = part};
  part_mode_t mode = schema_part_mode(part);
  switch (mode) {
  case PART_PLAIN:
  case PART_DEPENDENT:
  case PART_NOT: break;
  case PART_NOT_KEYWORD: {
    schema_part_t plain = {part->schema, part->pointer, 0, part->from};
    keywords_t keywords = schema_keywords(schema, &plain);
    set_keyword(schema, &out, (keyword_t)schema_part_number(part), &keywords);
    break;
  }
  case PART_NOT_MEMBER:
  case PART_NOT_MEMBER_PRESENT:
  case PART_PRESENT:
    out.literal = mode == PART_PRESENT ? LITERAL_PRESENT : LITERAL_MEMBER;
    out.about = out.against = part->schema;
    out.is_present = mode != PART_NOT_MEMBER;
    out.values[KEYWORD_TYPE] = &object_type;
    break;
  case PART_ABSENT:
    out.literal = LITERAL_ABSENT;
    out.about = part->schema;
    break;
  case PART_NOT_ITEM:
  case PART_NOT_REST:
    out.literal = mode == PART_NOT_ITEM ? LITERAL_ITEM : LITERAL_REST;
    out.about = part->schema;
    out.values[KEYWORD_TYPE] = &array_type;
    set_count(schema, &out, KEYWORD_MIN_ITEMS, &one, (int)schema_part_number(part));
    break;
  case PART_SOME_MATCHING:
  case PART_SOME_NAMED:
  case PART_SOME_OTHER:
    out.values[KEYWORD_TYPE] = &object_type;
    schema_some_literal(schema, part, &out);
    break;
  }
  return out;
}

/* ---- listed values ---- */

bool schema_literal_allows(schema_t *schema, const keywords_t *keywords, const json_t *value) {
  if (keywords->literal == LITERAL_CONST) return !schema_equal(keywords->about, value);
  if (keywords->literal != LITERAL_ENUM) return true;
  JSON_EACH(other, keywords->about) {
    compile_spend(schema->compile, 1);
    if (schema_equal(other, value)) return false;
  }
  return true;
}

bool schema_allows_word(schema_t *schema, const conjunction_t *conjunction, json_type_t type) {
  json_t value = {.type = (uint8_t)type};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    if (!schema_literal_allows(schema, &conjunction->items[i], &value)) return false;
  }
  return true;
}

/* Calls `see` with each value that a literal takes out. */
static void each_value(const keywords_t *keywords, void (*see)(void *context, const json_t *value),
                       void *context) {
  if (keywords->literal == LITERAL_CONST) see(context, keywords->about);
  if (keywords->literal != LITERAL_ENUM) return;
  JSON_EACH(value, keywords->about) see(context, value);
}

typedef struct value_texts {
  schema_t *schema;
  grammar_list_t list; /* dfa_text_t */
  json_type_t type;
  bool json;
} value_texts_t;

static dfa_text_t number_text(compile_t *compile, const decimal_t *decimal) {
  char *text = compile_scratch(compile, DECIMAL_DIGITS_MAX + 4, 1);
  uint32_t used = 0;
  if (decimal->negative) text[used++] = '-';
  if (decimal->num_integer == 0) text[used++] = '0';
  memcpy(text + used, decimal->digits, decimal->num_integer);
  used += decimal->num_integer;
  if (decimal->num_fraction > 0) text[used++] = '.';
  memcpy(text + used, decimal->digits + decimal->num_integer, decimal->num_fraction);
  return (dfa_text_t){text, used + decimal->num_fraction};
}

static void add_text(void *context, const json_t *value) {
  value_texts_t *texts = context;
  compile_t *compile = texts->schema->compile;
  dfa_text_t text = {value->text, value->length};
  if (value->type != texts->type) return;
  compile_spend(compile, 8);
  if (value->type == JSON_STRING && texts->json)
    text = canonical_text(compile, value->text, value->length);
  if (value->type == JSON_NUMBER) {
    decimal_t decimal = decimal_of(value);
    if (decimal.huge || decimal.fine) return; /* longer than what is written */
    text = number_text(compile, &decimal);
  }
  *(dfa_text_t *)list_add(compile, &texts->list, sizeof text) = text;
}

/* Returns the automaton of the values of the type that the literal takes out; NULL = none. */
static const dfa_t *taken_out(schema_t *schema, const keywords_t *keywords, json_type_t type,
                              bool json) {
  value_texts_t texts = {schema, {0}, type, json};
  each_value(keywords, add_text, &texts);
  if (texts.list.count == 0) return NULL;
  return dfa_texts(schema->compile, texts.list.items, texts.list.count);
}

/* ---- strings and numbers ---- */

const dfa_t *schema_literal_content(schema_t *schema, const keywords_t *keywords,
                                    const dfa_t *content, bool json) {
  const dfa_t *out = NULL;
  if (keywords->literal == LITERAL_PATTERN) {
    const json_t *pattern = keywords->about;
    out = schema_pattern(schema, pattern->text, pattern->length, json, keywords->part->pointer);
  } else {
    out = taken_out(schema, keywords, JSON_STRING, json);
  }
  if (out == NULL) return content;
  if (content == NULL) {
    content = json ? canonical_string(schema->compile) : lexeme_dfa(schema->compile, "[^]*");
  }
  return dfa_product(schema->compile, content, out, true);
}

/* One spelling of each number, short enough for the automata of multiples to judge all of them. */
#define WHOLE "0|-?[1-9][0-9]{0,14}"
#define FRACTION "-?(?:0|[1-9][0-9]{0,6})\\.[0-9]{0,6}[1-9]"

static uint32_t number_types(const schema_t *schema, const conjunction_t *conjunction) {
  uint32_t types = TYPE_NUMBER;
  for (uint32_t i = 0; i < conjunction->count; i++)
    types &= schema_types(schema, &conjunction->items[i]);
  return types;
}

bool schema_has_number_literal(const schema_t *schema, const conjunction_t *conjunction) {
  if (number_types(schema, conjunction) == TYPE_FRACTION) return true;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    value_texts_t texts = {(schema_t *)schema, {0}, JSON_NUMBER, true};
    if (keywords->literal == LITERAL_MULTIPLE_OF) return true;
    each_value(keywords, add_text, &texts);
    if (texts.list.count > 0) return true;
  }
  return false;
}

dfa_t *schema_literal_number(schema_t *schema, const conjunction_t *conjunction, dfa_t *number) {
  compile_t *compile = schema->compile;
  if (!schema_has_number_literal(schema, conjunction)) return number;
  bool fraction = number_types(schema, conjunction) == TYPE_FRACTION;
  number = dfa_product(compile, number,
                       lexeme_dfa(compile, fraction ? FRACTION : WHOLE "|" FRACTION), false);
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const dfa_t *out = taken_out(schema, keywords, JSON_NUMBER, true);
    if (keywords->literal == LITERAL_MULTIPLE_OF) {
      keywords_t multiple = {.part = keywords->part};
      multiple.values[KEYWORD_MULTIPLE_OF] = keywords->about;
      out = schema_number_dfa(schema, &(conjunction_t){&multiple, 1, false}, false);
    }
    if (out != NULL) number = dfa_product(compile, number, out, true);
  }
  return number;
}
