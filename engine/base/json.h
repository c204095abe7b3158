/* json.h: one strict JSON reader for request bodies and model files.
 *
 * RFC 8259 without exceptions: invalid UTF-8, duplicate keys, lone surrogates, trailing bytes, raw
 * control characters and numbers such as `01` or `1.` are errors. Strings have a length, because
 * they may contain NUL with `allow_nul`. `Infinity`, which Python writes, is the string of that
 * name with `allow_infinity`. Numbers keep their source text, so no digit is lost. The parser is
 * iterative: nesting is bounded by a limit and cannot overflow the stack. A document does not
 * change after it is parsed; any thread may read it.
 */
#ifndef INFERD_ENGINE_BASE_JSON_H
#define INFERD_ENGINE_BASE_JSON_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum json_type {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT
} json_type_t;

typedef struct json_limits {
  uint32_t depth_max;  /* nesting of arrays and objects; 64 for requests, 128 for tokenizer.json */
  uint32_t values_max; /* values in the whole document */
  uint32_t key_bytes_max;
  bool allow_infinity;
  bool allow_nul; /* accept \u0000 in strings (vocabularies have it, requests may not) */
  bool mend_text; /* lone surrogates and \u0000 in values become U+FFFD; in keys they are errors */
} json_limits_t;

extern const json_limits_t json_limits_request; /* 64, 1e6, 256, false */
extern const json_limits_t json_limits_mended;  /* the same, with mend_text */
extern const json_limits_t json_limits_model;   /* 128, 64e6, 65536, true */

/* One value. The document owns it; its pointers are valid until json_free. */
typedef struct json {
  uint8_t type;        /* json_type_t */
  bool mended;         /* a string in which U+FFFD stands for what no text may have */
  uint32_t count;      /* elements of an array, members of an object */
  uint32_t length;     /* bytes of text */
  uint32_t key_length; /* bytes of key; 0 outside objects */
  uint32_t next;       /* the next sibling is `next` elements later; 0 = last sibling */
  const char *text;    /* string: decoded bytes; number: source text; not NUL-terminated */
  const char *key;     /* member name, decoded; NULL outside objects */
} json_t;

typedef struct json_doc json_doc_t;

/* Parses `length` bytes (a leading UTF-8 BOM is skipped). The caller keeps the text unchanged until
 * json_free, because strings without escapes point into it. Returns 0 and *out, which the caller
 * frees with json_free; ERR_INVALID_JSON, with the reason and the byte offset; or ERR_INTERNAL
 * without memory. */
int json_parse(const char *text, size_t length, const json_limits_t *limits, json_doc_t **out,
               inferd_error_t *error);
void json_free(json_doc_t *doc); /* NULL is allowed */
/* The most bytes that json_parse takes for this text: by its length, commas, colons and brackets,
 * wherever they stand. One fast pass. */
size_t json_memory_bound(const char *text, size_t length, const json_limits_t *limits);
size_t json_memory(const json_doc_t *doc); /* bytes that a document holds */

bool json_is_mended(const json_doc_t *doc); /* some value of it is `mended` */

const json_t *json_root(const json_doc_t *doc);
/* Returns the member of this name; NULL if there is none, or `object` is NULL or no object. Linear
 * in the number of members. json_member: the name is `length` bytes. */
const json_t *json_get(const json_t *object, const char *name);
const json_t *json_member(const json_t *object, const char *name, size_t length);
const json_t *json_first(const json_t *container); /* first child or NULL */
const json_t *json_next(const json_t *value);      /* next sibling or NULL */
/* Returns true if the value is neither absent (NULL) nor null. */
static inline bool json_is_given(const json_t *value) {
  return value != NULL && value->type != JSON_NULL;
}

/* for (const json_t *v = json_first(a); v; v = json_next(v)) */
#define JSON_EACH(v, container)                                                                    \
  for (const json_t *v = json_first(container); v != NULL; v = json_next(v))

/* These return false, and leave *out as it is, if `value` is NULL or has another type. */
/* The exact integer of a number: `16`, `16.0` and `1e3` are integers; false for `16.5`. */
bool json_int64(const json_t *value, int64_t *out);
/* The nearest double of a number; false if it overflows to infinity. */
bool json_double(const json_t *value, double *out);
bool json_bool(const json_t *value, bool *out);
/* True if the value is a string with exactly these bytes. */
bool json_equals(const json_t *value, const char *text);
bool json_named(const json_t *member, const char *name); /* the same of a member's key */
static inline bool json_named_one_of(const json_t *member, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (json_named(member, names[i])) return true;
  }
  return false;
}
const char *json_type_name(const json_t *value); /* "a string", "null", ... for messages */

/* Writes `text` as the body of a JSON string (no quotes) to `out`; invalid UTF-8 becomes U+FFFD.
 * Writes at most `capacity` bytes. Returns the number of bytes that the whole body needs. */
size_t json_escape(char *out, size_t capacity, const char *text, size_t length);

#endif
