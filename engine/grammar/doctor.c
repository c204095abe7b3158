/* doctor.c: the doctor of JSON schemas.
 *
 * The whole schema is compiled first. If it is refused, every subschema is compiled alone, the
 * inner ones before those that hold them: a place is to blame if it fails while all places in it
 * pass. So one report names all of them, where a request names the first. The lists of keywords
 * follow from the tables of keywords.h, by the dialect of the root.
 */
#include "engine/grammar/doctor.h"

#include "engine/base/util.h"
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A subschema of the document. Those that hold it stand before it. */
typedef struct place {
  const json_t *schema;
  const char *pointer;
  uint32_t holder;    /* index; its own for the root */
  const char *reason; /* message of the refusal; NULL = none */
  const char *at;     /* JSON pointer of what is refused */
  int code;
  bool ill; /* it, or a place in it, is refused */
} place_t;

typedef struct doctor {
  const grammar_source_t *source;
  const grammar_vocabulary_t *vocabulary;
  grammar_account_t *account;
  inferd_error_t *error;
  arena_t arena;
  place_t *places;
  uint32_t count, capacity;
  size_t pointer_bytes; /* of all places together: each has the names of those around it */
  schema_t dialect;
  bool incomplete; /* the report does not have all places */
} doctor_t;

enum { REPORT_BYTES_MAX = 1 << 20, EXAMINE_NS_MAX = 1000000000 };

/* ---- places ---- */

/* NULL: the report has no room for more places, and says so. */
static char *pointer_to(doctor_t *doctor, const char *base, const char *name, size_t length) {
  size_t at = strlen(base), bytes = at + 2 * length + 2;
  bool fits = bytes <= REPORT_BYTES_MAX - doctor->pointer_bytes;
  char *out = fits ? arena_alloc(&doctor->arena, bytes, 1) : NULL;
  if (out == NULL) {
    doctor->incomplete = true;
    return NULL;
  }
  doctor->pointer_bytes += bytes;
  memcpy(out, base, at);
  out[at++] = '/';
  for (size_t i = 0; i < length; i++) {
    bool escaped = name[i] == '~' || name[i] == '/';
    out[at++] = escaped ? '~' : name[i];
    if (escaped) out[at++] = name[i] == '~' ? '0' : '1';
  }
  out[at] = '\0';
  return out;
}

static void add_places(doctor_t *doctor, const json_t *schema, const char *pointer,
                       uint32_t holder);

/* The members or items of a value that holds several schemas. */
static void add_each(doctor_t *doctor, const json_t *list, const char *base, uint32_t holder) {
  uint32_t index = 0;
  JSON_EACH(child, list) {
    if (doctor->incomplete) return;
    char number[16];
    snprintf(number, sizeof number, "%u", index++);
    bool named = list->type == JSON_OBJECT;
    add_places(doctor, child,
               pointer_to(doctor, base, named ? child->key : number,
                          named ? child->key_length : strlen(number)),
               holder);
  }
}

static bool holds_many(const json_t *json) {
  static const char *const maps[] = {
      "properties", "patternProperties", "dependentSchemas", "dependencies",
      "$defs",      "definitions"};
  static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
  if (json->type == JSON_OBJECT) return json_named_one_of(json, maps, ARRAY_LEN(maps));
  return json->type == JSON_ARRAY && json_named_one_of(json, lists, ARRAY_LEN(lists));
}

static bool holds_one(const json_t *json) {
  static const char *const ones[] = {"not",
                                     "if",
                                     "then",
                                     "else",
                                     "items",
                                     "contains",
                                     "additionalItems",
                                     "additionalProperties",
                                     "propertyNames",
                                     "unevaluatedItems",
                                     "unevaluatedProperties"};
  return json->type == JSON_OBJECT && json_named_one_of(json, ones, ARRAY_LEN(ones));
}

/* The root is a place, and within it objects are: true and false have no keywords. The reader
 * bounds the depth. */
static void add_places(doctor_t *doctor, const json_t *schema, const char *pointer,
                       uint32_t holder) {
  uint32_t index = doctor->count;
  bool object = schema->type == JSON_OBJECT;
  if ((!object && index > 0) || doctor->incomplete || pointer == NULL) return;
  if (index == grammar_limits_default.schema_nodes_max) {
    doctor->incomplete = true;
    return;
  }
  if (index == doctor->capacity) {
    place_t *more = arena_grow(&doctor->arena, doctor->places, index, MAX(64, 2 * index),
                               sizeof *more, &doctor->capacity);
    if (more == NULL) {
      doctor->incomplete = true;
      return;
    }
    doctor->places = more;
  }
  doctor->places[doctor->count++] = (place_t){.schema = schema, .pointer = pointer};
  doctor->places[index].holder = index == 0 ? 0 : holder;
  if (!object) return;
  JSON_EACH(json, schema) {
    bool many = holds_many(json);
    if (!many && !holds_one(json)) continue;
    const char *inner = pointer_to(doctor, pointer, json->key, json->key_length);
    if (inner == NULL) return;
    if (many) {
      add_each(doctor, json, inner, index);
    } else {
      add_places(doctor, json, inner, index);
    }
  }
}

/* ---- refusals ---- */

/* A small constraint spends less than compile_spend looks at, so it is looked at here. */
static bool is_spent(const doctor_t *doctor) {
  const grammar_account_t *account = doctor->account;
  return account->work > grammar_limits_default.compile_work_max ||
         account->cpu_ns > EXAMINE_NS_MAX;
}

static bool is_about_schema(int code) {
  return code == ERR_INVALID_VALUE || code == ERR_INVALID_TYPE ||
         code == ERR_UNSUPPORTED_PARAMETER || code == ERR_BAD_REQUEST ||
         code == ERR_CONSTRAINT_TOO_EXPENSIVE;
}

static void note(doctor_t *doctor, place_t *place, int code) {
  const char *at = doctor->account->place[0] != '\0' ? doctor->account->place : place->pointer;
  place->code = code;
  place->reason =
      arena_copy(&doctor->arena, doctor->error->message, strlen(doctor->error->message));
  place->at = arena_copy(&doctor->arena, at, strlen(at));
  if (place->reason == NULL || place->at == NULL) place->reason = NULL;
}

static int try_place(const doctor_t *doctor, const place_t *place) {
  grammar_source_t source = *doctor->source;
  grammar_t *grammar = NULL;
  source.known_only = source.known_only || source.strict;
  source.strict = false; /* it is about the whole */
  source.place = place->schema;
  source.pointer = place->pointer;
  int code =
      grammar_compile(&source, doctor->vocabulary, NULL, doctor->account, &grammar, doctor->error);
  grammar_unref(grammar);
  return code;
}

/* Compiles the inner places, from the last one on. A place that no value satisfies is a refusal of
 * the whole only. Returns 0, or the error that ends the search. */
static int search(doctor_t *doctor) {
  for (uint32_t i = doctor->count; i-- > 1;) {
    place_t *place = &doctor->places[i];
    if (!place->ill) {
      int code = try_place(doctor, place);
      doctor->incomplete = doctor->incomplete || is_spent(doctor);
      if (doctor->incomplete) return 0;
      if (code != 0 && !is_about_schema(code)) return code;
      bool empty = code == ERR_INVALID_VALUE && doctor->account->place[0] == '\0';
      place->ill = code != 0 && !empty;
      if (place->ill) note(doctor, place, code);
    }
    if (place->ill) doctor->places[place->holder].ill = true;
  }
  return 0;
}

/* ---- the report ---- */

/* The keyword that a refusal is about: the last name of its place, or the first name in quotes. */
static const char *keyword_of(const place_t *place, size_t *length) {
  const char *last = strrchr(place->at, '/'), *text = strstr(place->reason, "': ");
  json_t name = {.key = last != NULL ? last + 1 : ""};
  name.key_length = (uint32_t)strlen(name.key);
  if (strcmp(place->at, place->pointer) == 0 || schema_name_kind(&name) == NAME_UNKNOWN) {
    const char *begin = text != NULL ? strchr(text + 2, '\'') : NULL;
    const char *end = begin != NULL ? strchr(begin + 1, '\'') : NULL;
    if (end == NULL) return NULL;
    name = (json_t){.key = begin + 1, .key_length = (uint32_t)(end - begin - 1)};
    if (json_member(place->schema, name.key, name.key_length) == NULL) return NULL;
  }
  *length = name.key_length;
  return name.key;
}

static void print_refused(const place_t *place, buffer_t *out) {
  size_t length = 0;
  const char *keyword = keyword_of(place, &length);
  buffer_text(out, "{\"pointer\":");
  buffer_quote(out, place->at, strlen(place->at));
  buffer_text(out, ",\"keyword\":");
  if (keyword != NULL) buffer_quote(out, keyword, length);
  if (keyword == NULL) buffer_text(out, "null");
  buffer_text(out, ",\"message\":");
  buffer_quote(out, place->reason, strlen(place->reason));
  buffer_char(out, '}');
}

typedef enum verdict { ENFORCED, ANNOTATED, IGNORED, REFUSED, UNSAID } verdict_t;

static verdict_t verdict_of(const doctor_t *doctor, const place_t *place, const json_t *json) {
  size_t length = 0;
  const char *refused = place->reason != NULL ? keyword_of(place, &length) : NULL;
  if (json->type == JSON_NULL && !json_named(json, "const")) return UNSAID;
  if (refused != NULL && length == json->key_length && memcmp(refused, json->key, length) == 0)
    return REFUSED;
  bool alone = schema_ref_is_alone(&doctor->dialect, place->schema);
  switch (schema_name_kind(json)) {
  case NAME_ENFORCED:
    if (alone && !json_named(json, "$ref")) return IGNORED;
    if (json_named(json, "additionalItems") && !doctor->dialect.old_arrays) return IGNORED;
    return json_named(json, "format") && !format_is_known(json) ? IGNORED : ENFORCED;
  case NAME_ANNOTATION: return ANNOTATED;
  case NAME_NOT_BUILT: return REFUSED;
  case NAME_UNKNOWN: break;
  }
  return IGNORED;
}

static void print_place(const doctor_t *doctor, const place_t *place, buffer_t *out) {
  static const char *const names[] = {
      [ENFORCED] = "enforced", [ANNOTATED] = "annotations", [IGNORED] = "ignored"};
  buffer_text(out, "{\"pointer\":");
  buffer_quote(out, place->pointer, strlen(place->pointer));
  for (verdict_t verdict = ENFORCED; verdict <= IGNORED; verdict++) {
    buffer_text(out, ",\"");
    buffer_text(out, names[verdict]);
    buffer_text(out, "\":[");
    bool first = true, object = place->schema->type == JSON_OBJECT;
    for (const json_t *json = object ? json_first(place->schema) : NULL; json != NULL;
         json = json_next(json)) {
      if (verdict_of(doctor, place, json) != verdict) continue;
      if (!first) buffer_char(out, ',');
      buffer_quote(out, json->key, json->key_length);
      first = false;
    }
    buffer_char(out, ']');
  }
  buffer_char(out, '}');
}

static void print_error(const inferd_error_t *whole, buffer_t *out) {
  const char *code = error_openai_code(whole->code);
  buffer_text(out, "{\"code\":");
  if (code != NULL) buffer_quote(out, code, strlen(code));
  if (code == NULL) buffer_text(out, "null");
  buffer_text(out, ",\"message\":");
  buffer_quote(out, whole->message, strlen(whole->message));
  buffer_char(out, '}');
}

/* One line for each place, so that the report can be read without a program. */
static void print_report(doctor_t *doctor, const inferd_error_t *whole, const char *cost,
                         buffer_t *out) {
  size_t begin = out->length;
  bool first = true;
  buffer_text(out, "{\"object\":\"schema.check\",\"accepted\":");
  buffer_text(out, whole->code == 0 ? "true" : "false");
  buffer_text(out, ",\n\"error\":");
  if (whole->code == 0) buffer_text(out, "null");
  if (whole->code != 0) print_error(whole, out);
  buffer_text(out, ",\n\"refused\":[");
  for (uint32_t i = 0; i < doctor->count; i++) {
    if (doctor->places[i].reason == NULL) continue;
    buffer_text(out, first ? "\n" : ",\n");
    print_refused(&doctor->places[i], out);
    first = false;
  }
  buffer_text(out, "],\n\"places\":[");
  for (uint32_t i = 0; i < doctor->count; i++) {
    if (out->length - begin > REPORT_BYTES_MAX) {
      doctor->incomplete = true;
      break;
    }
    buffer_text(out, i == 0 ? "\n" : ",\n");
    print_place(doctor, &doctor->places[i], out);
  }
  buffer_text(out, "],\n\"complete\":");
  buffer_text(out, doctor->incomplete ? "false" : "true");
  buffer_text(out, cost);
}

/* What a request is told is in the report, if need be at the root. */
static int examine_refused(doctor_t *doctor, const inferd_error_t *whole, const char *at) {
  if (doctor->count == 0) return 0;
  doctor->incomplete = doctor->incomplete || is_spent(doctor);
  int code = doctor->incomplete ? 0 : search(doctor);
  if (code != 0) return code;
  for (uint32_t i = 0; i < doctor->count; i++) {
    const place_t *place = &doctor->places[i];
    if (place->reason != NULL && strcmp(place->reason, whole->message) == 0) return 0;
  }
  *doctor->error = *whole;
  snprintf(doctor->account->place, sizeof doctor->account->place, "%s", at);
  note(doctor, &doctor->places[0], whole->code);
  return 0;
}

static int examine(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                   grammar_account_t *account, buffer_t *out, inferd_error_t *error) {
  doctor_t doctor = {.source = source, .vocabulary = vocabulary, .account = account};
  inferd_error_t whole = {0}, inner = {0};
  grammar_t *grammar = NULL;
  char cost[128] = ",\n\"cost\":null}", at[ERROR_PLACE_MAX];
  doctor.error = &inner;
  int code = grammar_compile(source, vocabulary, NULL, account, &grammar, &whole);
  if (code != 0 && !is_about_schema(code)) {
    *error = whole;
    return code;
  }
  if (code == 0) {
    snprintf(cost, sizeof cost, ",\n\"cost\":{\"states\":%u,\"bytes\":%zu,\"compile_us\":%llu}}",
             account->states, grammar_bytes(grammar), (unsigned long long)account->cpu_ns / 1000);
  }
  grammar_unref(grammar);
  memcpy(at, account->place, sizeof at);
  schema_find_dialect(&doctor.dialect, json_get(source->schema, "$schema"));
  doctor.dialect.source = source;
  if (source->schema != NULL) add_places(&doctor, source->schema, "", 0);
  code = code == 0 ? 0 : examine_refused(&doctor, &whole, at);
  if (code == 0) print_report(&doctor, &whole, cost, out);
  if (code != 0) *error = inner;
  arena_free(&doctor.arena);
  return code;
}

static const char *byte_token(const void *bytes, int32_t id, size_t *length) {
  *length = 1;
  return (const char *)bytes + id;
}

int grammar_examine(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                    grammar_account_t *account, buffer_t *out, inferd_error_t *error) {
  enum { BYTES = 256 };
  if (vocabulary != NULL) return examine(source, vocabulary, account, out, error);
  uint8_t bytes[BYTES];
  grammar_vocabulary_t *own = NULL;
  for (int i = 0; i < BYTES; i++) bytes[i] = (uint8_t)i;
  int code = grammar_vocabulary_new(byte_token, bytes, BYTES, BYTES, &own, error);
  if (code == 0) code = examine(source, own, account, out, error);
  grammar_vocabulary_free(own);
  return code;
}
