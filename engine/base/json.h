/* json.h: one strict JSON reader for request bodies and model files.
 *
 * RFC 8259 without exceptions: UTF-8 is validated, duplicate keys, lone surrogates, trailing bytes,
 * raw control characters and numbers such as `01` or `1.` are errors. Strings keep their length
 * (they may hold NUL when `allow_nul`), numbers keep their source text, so no digit is lost. The
 * parser is iterative: depth is a limit, never a stack overflow. A document is immutable once
 * parsed; any thread may read it.
 */
#ifndef INFERD_ENGINE_BASE_JSON_H
#define INFERD_ENGINE_BASE_JSON_H

#include "engine/base/error.h"

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
  bool allow_nul; /* accept \u0000 in strings (vocabularies have it, requests may not) */
} json_limits_t;

extern const json_limits_t json_limits_request; /* 64, 1e6, 256, false */
extern const json_limits_t json_limits_model;   /* 128, 64e6, 65536, true */

/* One value. Owned by its document; pointers stay valid until json_free. */
typedef struct json {
  uint8_t type;        /* json_type_t */
  uint32_t count;      /* elements of an array, members of an object */
  uint32_t length;     /* bytes of text */
  uint32_t key_length; /* bytes of key; 0 outside objects */
  uint32_t next;       /* index distance to the next sibling, 0 = last */
  const char *text;    /* string: decoded bytes; number: source text; not NUL-terminated */
  const char *key;     /* member name, decoded; NULL outside objects */
} json_t;

typedef struct json_doc json_doc_t;

/* Parses `length` bytes (a leading UTF-8 BOM is skipped). The text must stay alive and unchanged
 * until json_free: strings without escapes point into it. 0, ERR_INVALID_JSON with a reason and
 * byte offset, or ERR_INTERNAL when memory is short. The caller frees *out with json_free. */
int json_parse(const char *text, size_t length, const json_limits_t *limits, json_doc_t **out,
               inferd_error_t *error);
void json_free(json_doc_t *doc); /* NULL is allowed */

const json_t *json_root(const json_doc_t *doc);
const json_t *json_get(const json_t *object,
                       const char *key);           /* linear; NULL = absent or no object */
const json_t *json_first(const json_t *container); /* first child or NULL */
const json_t *json_next(const json_t *value);      /* next sibling or NULL */

/* for (const json_t *v = json_first(a); v; v = json_next(v)) */
#define JSON_EACH(v, container)                                                                    \
  for (const json_t *v = json_first(container); v != NULL; v = json_next(v))

/* Exact integer of a JSON number: `16` and `16.0` and `1e3` are integers, `16.5` is not. */
bool json_int64(const json_t *value, int64_t *out);
/* Finite double; false for another type or a number that overflows to infinity. */
bool json_double(const json_t *value, double *out);
bool json_bool(const json_t *value, bool *out);
/* Byte compare of a string value with a C string. */
bool json_equals(const json_t *value, const char *text);
bool json_named(const json_t *member, const char *name); /* the same of a member's key */
const char *json_type_name(const json_t *value);         /* "a string", "null", ... for messages */

/* Appends `text` as a JSON string body (no quotes) to `out`; invalid UTF-8 becomes U+FFFD. Returns
 * the bytes that were, or would have been, needed; never writes past `capacity`. */
size_t json_escape(char *out, size_t capacity, const char *text, size_t length);

#endif
