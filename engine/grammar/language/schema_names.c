/* schema_names.c: the names in a schema that are not enforced: which are refused, which ignored.
 *
 * Part of a compilation, on its thread. JSON Schema makes an unknown name an annotation: it
 * restricts nothing. So inferd ignores it, and lists it for a header of the answer. Two kinds of
 * names are refused, because ignoring them would allow values that the author means to forbid:
 * keywords that are not built, and names that look like a misspelt keyword. Listed are also known
 * keywords that an older dialect ignores, those beside `$ref`.
 */
#include "engine/grammar/language/schema_names.h"
#include "engine/base/util.h"

#include <string.h>
#include <strings.h>

static const char *const not_built[] = {
#define X(text) text,
    KEYWORDS_NOT_BUILT(X)
#undef X
};

static const char *const annotations[] = {
#define X(text) text,
    KEYWORDS_ANNOTATIONS(X)
#undef X
};

static const char *const enforced[] = {
#define X(name, text) text,
    KEYWORDS(X)
#undef X
};

name_kind_t schema_name_kind(const json_t *json) {
  if (json_named_one_of(json, enforced, ARRAY_LEN(enforced))) return NAME_ENFORCED;
  if (json_named_one_of(json, not_built, ARRAY_LEN(not_built))) return NAME_NOT_BUILT;
  bool own = json->key_length >= 2 && json->key[0] == 'x' && json->key[1] == '-';
  if (own || json_named_one_of(json, annotations, ARRAY_LEN(annotations))) return NAME_ANNOTATION;
  return NAME_UNKNOWN;
}

/* ---- misspelt names ---- */

enum { NEAR_LETTERS_MIN = 6, SHORT_LETTERS = 7, NEAR_EDITS_MAX = 2, NAME_LETTERS_MAX = 24 };

/* Returns true if at most NEAR_EDITS_MAX letters, of a short name one, have to be inserted, removed
 * or replaced to make `name` of the other text (Levenshtein's distance, row by row). */
static bool is_near(const char *name, const char *text, size_t length) {
  uint8_t row[NAME_LETTERS_MAX + 1];
  size_t count = strlen(name);
  if (count > NAME_LETTERS_MAX || count < NEAR_LETTERS_MIN) return false;
  if (length > count + NEAR_EDITS_MAX || length + NEAR_EDITS_MAX < count) return false;
  for (size_t k = 0; k <= count; k++) row[k] = (uint8_t)k;
  for (size_t i = 0; i < length; i++) {
    uint8_t diagonal = row[0];
    row[0] = (uint8_t)(i + 1);
    for (size_t k = 0; k < count; k++) {
      uint8_t above = row[k + 1], least = diagonal;
      if (name[k] != text[i]) least = (uint8_t)(MIN(diagonal, MIN(above, row[k])) + 1);
      row[k + 1] = least;
      diagonal = above;
    }
  }
  return row[count] <= (count < SHORT_LETTERS ? 1 : NEAR_EDITS_MAX);
}

/* Returns the keyword that the name seems to mean; NULL if there is none. A name that differs in
 * case alone is another word by the standard, and programs write such names (`readonly`). */
static const char *nearest(const char *const *list, size_t count, const json_t *json) {
  for (size_t i = 0; i < count; i++) {
    bool same = strlen(list[i]) == json->key_length &&
                strncasecmp(list[i], json->key, json->key_length) == 0;
    if (!same && is_near(list[i], json->key, json->key_length)) return list[i];
  }
  return NULL;
}

static void refuse_misspelt(const schema_t *schema, const schema_part_t *part, const json_t *json) {
  char quoted[80];
  compile_spend(schema->compile, 20);
  if (json->key_length > 0 && json->key[0] == '_') return; /* put out of force on purpose */
  const char *meant = nearest(enforced, ARRAY_LEN(enforced), json);
  if (meant == NULL) meant = nearest(not_built, ARRAY_LEN(not_built), json);
  if (meant == NULL) return;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
              "the keyword '%s' is unknown; did you mean '%s'?",
              error_quote(quoted, sizeof quoted, json->key, json->key_length), meant);
}

/* ---- the list ---- */

/* Writes a name as it stands in the header: visible ASCII without the comma, 64 bytes at most. */
static size_t shown(char out[64], const char *prefix, const char *text, size_t length) {
  size_t used = strlen(prefix);
  memcpy(out, prefix, used);
  for (size_t i = 0; i < length && used < 64; i++) {
    bool safe = text[i] > ' ' && text[i] <= '~' && text[i] != ',';
    out[used++] = safe ? text[i] : '?';
  }
  return used;
}

static bool is_listed(const char *list, const char *name, size_t length) {
  for (const char *at = list; *at != '\0';) {
    size_t one = strcspn(at, ",");
    if (one == length && memcmp(at, name, length) == 0) return true;
    at += one + (at[one] == ',');
  }
  return false;
}

/* Returns false if the list had the name already. */
static bool list_name(const schema_t *schema, const char *prefix, const char *text, size_t length) {
  grammar_t *grammar = schema->compile->grammar;
  char name[64];
  size_t count = shown(name, prefix, text, length), used = strlen(grammar->ignored);
  compile_spend(schema->compile, 2);
  if (is_listed(grammar->ignored, name, count)) return false;
  if (grammar->num_ignored == GRAMMAR_IGNORED_NAMES_MAX ||
      used + 1 + count > GRAMMAR_IGNORED_BYTES_MAX)
    return true;
  if (used > 0) grammar->ignored[used++] = ',';
  memcpy(grammar->ignored + used, name, count);
  grammar->num_ignored++;
  return true;
}

void schema_pass_name(const schema_t *schema, const schema_part_t *part, const json_t *json) {
  char quoted[80];
  name_kind_t kind = schema_name_kind(json);
  if (kind == NAME_ANNOTATION) return;
  error_quote(quoted, sizeof quoted, json->key, json->key_length);
  if (kind == NAME_NOT_BUILT) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                "the keyword '%s' is not supported.", quoted);
  }
  if (schema->known_only) {
    schema_fail(
        schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
        "the keyword '%s' is unknown; unknown names are refused in a strict schema and with "
        "--strict-params.",
        quoted);
  }
  if (list_name(schema, "", json->key, json->key_length)) refuse_misspelt(schema, part, json);
}

void schema_pass_beside_ref(const schema_t *schema, const schema_part_t *part, const json_t *json) {
  if (schema->known_only) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                "the dialect ignores '%.*s' beside '$ref', which --strict-params refuses; move "
                "'$ref' into 'allOf'.",
                (int)json->key_length, json->key);
  }
  list_name(schema, "$ref:", json->key, json->key_length);
}

void schema_pass_format(const schema_t *schema, const json_t *format) {
  if (!schema->known_only && !format_is_known(format))
    list_name(schema, "format:", format->text, format->length);
}
