/* schema_values.c: enum and const, and proofs that the branches of oneOf are disjoint.
 *
 * Part of a compilation, on its thread. A value stays when every other keyword of the conjunction
 * admits it, and is written in its canonical form: one lexeme holds all of them.
 */
#include "engine/grammar/language/schema.h"

#include <stdio.h>
#include <string.h>

/* ---- canonical text ---- */

typedef struct writer {
  compile_t *c;
  char *text;
  size_t length, capacity;
} writer_t;

static void put(writer_t *w, const char *text, size_t length) {
  if (w->capacity - w->length < length) {
    size_t capacity = 2 * w->capacity + length + 64;
    char *grown = compile_scratch(w->c, capacity, 1);
    if (w->length) memcpy(grown, w->text, w->length);
    w->text = grown;
    w->capacity = capacity;
  }
  memcpy(w->text + w->length, text, length);
  w->length += length;
}

static void put_string(writer_t *w, const char *text, uint32_t length) {
  text_t inside = canonical_text(w->c, text, length);
  put(w, "\"", 1);
  put(w, inside.bytes, inside.length);
  put(w, "\"", 1);
}

/* Integers as digits, 1.0 and 1e2 too; other numbers as they were written. */
static void put_number(writer_t *w, const json_t *v) {
  decimal_t d = decimal_of(v);
  if (d.huge || d.fine || d.num_fraction > 0) {
    put(w, v->text, v->length);
    return;
  }
  if (d.negative) put(w, "-", 1);
  if (d.num_integer == 0) put(w, "0", 1);
  put(w, d.digits, d.num_integer);
}

/* Recursion is bounded by the JSON reader's limit on depth. */
static void put_value(writer_t *w, const json_t *v, bool spaced) {
  const char *comma = "";
  compile_spend(w->c, 4);
  switch ((json_type_t)v->type) {
  case JSON_NULL: put(w, "null", 4); break;
  case JSON_FALSE: put(w, "false", 5); break;
  case JSON_TRUE: put(w, "true", 4); break;
  case JSON_NUMBER: put_number(w, v); break;
  case JSON_STRING: put_string(w, v->text, v->length); break;
  case JSON_ARRAY:
  case JSON_OBJECT:
    put(w, v->type == JSON_ARRAY ? "[" : "{", 1);
    JSON_EACH(child, v) {
      put(w, comma, strlen(comma));
      comma = spaced ? ", " : ",";
      if (v->type == JSON_OBJECT) {
        put_string(w, child->key, child->key_length);
        put(w, ": ", spaced ? 2 : 1);
      }
      put_value(w, child, spaced);
    }
    put(w, v->type == JSON_ARRAY ? "]" : "}", 1);
    break;
  }
}

static text_t text_of(schema_t *s, const json_t *v, bool spaced) {
  writer_t w = {.c = s->c};
  put_value(&w, v, spaced);
  return (text_t){w.text, (uint32_t)w.length};
}

/* ---- which values stay ---- */

const json_t *schema_first_values(const conjunction_t *k) {
  for (uint32_t i = 0; i < k->count; i++) {
    const keywords_t *w = &k->items[i];
    if (w->values[KEYWORD_CONST] != NULL) return w->values[KEYWORD_CONST];
    if (w->values[KEYWORD_ENUM] != NULL) return w->values[KEYWORD_ENUM];
  }
  return NULL;
}

static bool is_enum(const conjunction_t *k, const json_t *values) {
  for (uint32_t i = 0; i < k->count; i++) {
    if (k->items[i].values[KEYWORD_ENUM] == values) return true;
  }
  return false;
}

/* Every enum and const of the conjunction holds the value. */
static bool listed_everywhere(schema_t *s, const conjunction_t *k, const json_t *v) {
  for (uint32_t i = 0; i < k->count; i++) {
    const json_t *one = k->items[i].values[KEYWORD_CONST];
    const json_t *list = k->items[i].values[KEYWORD_ENUM];
    if (one != NULL && !schema_equal(one, v)) return false;
    if (list == NULL) continue;
    bool found = false;
    JSON_EACH(other, list) {
      compile_spend(s->c, 1);
      if (other == v || schema_equal(other, v)) {
        found = true;
        break;
      }
    }
    if (!found) return false;
  }
  return true;
}

/* Arrays and objects are not checked against further keywords: refused instead. */
static void refuse_structure(schema_t *s, const conjunction_t *k, bool is_object) {
  for (uint32_t i = 0; i < k->count; i++) {
    int first = is_object ? KEYWORD_PROPERTIES : KEYWORD_ITEMS;
    int last = is_object ? KEYWORD_MAX_PROPERTIES : KEYWORD_UNIQUE_ITEMS;
    for (int word = first; word <= last; word++) {
      if (k->items[i].values[word] == NULL) continue;
      schema_fail(s, ERR_UNSUPPORTED_PARAMETER, k->items[i].part->pointer,
                  "an enum or const of %s together with other keywords about them.",
                  is_object ? "objects" : "arrays");
    }
  }
}

typedef struct admission {
  const dfa_t *content, *number; /* NULL = anything */
  uint32_t min, max;
  uint32_t tagged; /* schema_tagged_types */
  bool number_known;
} admission_t;

static uint32_t count_characters(const char *text, uint32_t length) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < length; i++) count += ((uint8_t)text[i] & 0xC0) != 0x80;
  return count;
}

static bool has_bounds(const conjunction_t *k) {
  for (uint32_t i = 0; i < k->count; i++) {
    for (int word = KEYWORD_MINIMUM; word <= KEYWORD_MULTIPLE_OF; word++) {
      if (k->items[i].values[word] != NULL) return true;
    }
  }
  return false;
}

static bool admits(schema_t *s, const conjunction_t *k, admission_t *a, const json_t *v,
                   text_t text) {
  if (v->type == JSON_STRING) {
    uint32_t count = count_characters(v->text, v->length);
    if (count < a->min || count > a->max) return false;
    if (a->tagged) return a->content == NULL || dfa_matches(a->content, text.bytes, text.length);
    return a->content == NULL || dfa_matches(a->content, text.bytes + 1, text.length - 2);
  }
  if (v->type == JSON_NUMBER && has_bounds(k)) {
    if (!a->number_known) a->number = schema_number_dfa(s, k, false);
    a->number_known = true;
    return dfa_matches(a->number, text.bytes, text.length);
  }
  if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) {
    refuse_structure(s, k, v->type == JSON_OBJECT);
  }
  return true;
}

static void add_value(schema_t *s, list_t *texts, const conjunction_t *k, admission_t *a,
                      uint32_t types, const json_t *v) {
  compile_spend(s->c, 4);
  if (!(schema_type_of(v) & types) || !listed_everywhere(s, k, v)) return;
  text_t text = a->tagged ? (text_t){v->text, v->length} : text_of(s, v, false);
  if (!admits(s, k, a, v, text)) return;
  *(text_t *)list_add(s->c, texts, sizeof text) = text;
  if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) {
    *(text_t *)list_add(s->c, texts, sizeof text) = text_of(s, v, true);
  }
}

uint32_t schema_values(schema_t *s, const conjunction_t *k, uint32_t types) {
  const json_t *values = schema_first_values(k);
  admission_t a = {0};
  list_t texts = {0};
  a.content = schema_string_content(s, k, &a.min, &a.max);
  a.tagged = schema_tagged_types(s, k);
  if (a.tagged) types &= TYPE_STRING;
  if (is_enum(k, values)) {
    JSON_EACH(v, values) add_value(s, &texts, k, &a, types, v);
  } else {
    add_value(s, &texts, k, &a, types, values);
  }
  if (texts.count == 0) return NODE_ID_FAIL;
  const dfa_t *listed = dfa_texts(s->c, texts.items, texts.count);
  uint32_t lexeme =
      a.tagged ? lexeme_tagged(s->c, listed, a.tagged, 0, NONE) : lexeme_add(s->c, listed);
  return build_lex(s->c, lexeme, NODE_ID_RETURN);
}

/* ---- disjoint ---- */

static uint32_t types_of(const schema_t *s, const conjunction_t *k) {
  uint32_t types = TYPE_ALL, listed = 0;
  for (uint32_t i = 0; i < k->count; i++) types &= schema_types(s, &k->items[i]);
  const json_t *values = schema_first_values(k);
  if (values == NULL) return types;
  if (!is_enum(k, values)) return types & schema_type_of(values);
  JSON_EACH(v, values) listed |= schema_type_of(v);
  return types & listed;
}

/* No value that one lists is listed by the other; false when either lists none. */
static bool values_disjoint(schema_t *s, const conjunction_t *a, const conjunction_t *b) {
  const json_t *values = schema_first_values(a);
  if (values == NULL || schema_first_values(b) == NULL) return false;
  if (!is_enum(a, values)) return !listed_everywhere(s, b, values);
  JSON_EACH(v, values) {
    if (listed_everywhere(s, b, v)) return false;
  }
  return true;
}

static bool is_required(const conjunction_t *k, const json_t *name) {
  for (uint32_t i = 0; i < k->count; i++) {
    const json_t *required = k->items[i].values[KEYWORD_REQUIRED];
    if (required == NULL) continue;
    JSON_EACH(v, required) {
      if (v->length == name->length && memcmp(v->text, name->text, v->length) == 0) return true;
    }
  }
  return false;
}

static bool never(const list_t *parts) {
  for (uint32_t i = 0; i < parts->count; i++) {
    if (((const part_t *)parts->items)[i].schema->type == JSON_FALSE) return true;
  }
  return false;
}

/* A member that `a` must have, and that `b` cannot have, or has otherwise. */
static bool members_disjoint(schema_t *s, const conjunction_t *a, const conjunction_t *b,
                             int depth) {
  for (uint32_t i = 0; i < a->count; i++) {
    const json_t *required = a->items[i].values[KEYWORD_REQUIRED];
    if (required == NULL) continue;
    JSON_EACH(name, required) {
      compile_spend(s->c, 20);
      list_t in_b = schema_property_parts(s, b, name->text, name->length);
      if (never(&in_b)) return true;
      if (!is_required(b, name)) continue;
      list_t in_a = schema_property_parts(s, a, name->text, name->length);
      if (schema_disjoint(s, in_a.items, in_a.count, in_b.items, in_b.count, depth + 1)) {
        return true;
      }
    }
  }
  return false;
}

bool schema_disjoint(schema_t *s, const part_t *a, uint32_t num_a, const part_t *b, uint32_t num_b,
                     int depth) {
  enum { DEPTH_MAX = 3 };
  list_t joined_a = {0}, joined_b = {0};
  if (depth > DEPTH_MAX || num_a == 0 || num_b == 0) return false;
  conjunction_t k = schema_join(s, a, num_a, &joined_a), l = schema_join(s, b, num_b, &joined_b);
  if (k.never || l.never) return true;
  uint32_t shared = types_of(s, &k) & types_of(s, &l);
  if (shared == 0 || values_disjoint(s, &k, &l)) return true;
  if (shared != TYPE_OBJECT) return false;
  return members_disjoint(s, &k, &l, depth) || members_disjoint(s, &l, &k, depth);
}
