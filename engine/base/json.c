/* json.c: the strict JSON reader and the string writer of json.h.
 *
 * One pass over the text fills a flat array of values in document order: the first child of a
 * container stands right behind it, a sibling is `next` places further. Strings without escapes
 * point into the text; the others are decoded into one arena, which is as large as the text that
 * was left at the first escape and so can never be too small. Open containers live on a small
 * explicit stack. Any thread; a parser is local to its call.
 */
#include "engine/base/json.h"

#include "engine/base/hex.h"
#include "engine/base/siphash.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const json_limits_t json_limits_request = {64, 1000000, 256, false, false, false};
const json_limits_t json_limits_mended = {64, 1000000, 256, false, false, true};
const json_limits_t json_limits_model = {128, 64000000, 65536, false, true, false};

struct json_doc {
  json_t *nodes;
  char *arena;
  size_t bytes; /* of both */
  bool mended;  /* some string has U+FFFD in the place of what no text may have */
};

typedef struct json_frame {
  uint32_t container; /* index of the open array or object */
  uint32_t last;      /* index of its last child so far */
} json_frame_t;

/* Slot of the duplicate-key table: `member` 0 = free (index 0 is the root, never a member). */
typedef struct json_slot {
  uint32_t hash;
  uint32_t member;
} json_slot_t;

typedef struct json_parser {
  const char *start, *at, *end;
  const json_limits_t *limits;
  json_t *nodes;
  uint32_t num_nodes, capacity;
  json_frame_t *frames;
  uint32_t depth;
  char *arena;
  size_t arena_used, arena_capacity;
  bool mends;  /* in the string that is read half a character becomes U+FFFD; not in a key */
  bool mended; /* since the last time that a reader of strings cleared it */
  bool any_mended;
  json_slot_t *slots;
  size_t num_slots;
  uint64_t hash_key[2]; /* drawn at the first large object */
  inferd_error_t *error;
} json_parser_t;

enum {
  SMALL_OBJECT = 8, /* members up to which every pair of keys is compared */
  NODES_AT_START = 64,
  NUMBER_BUFFER = 128
};

static int fail_at(json_parser_t *json_parser, const char *where, const char *reason) {
  error_set(json_parser->error, ERR_INVALID_JSON, NULL, "Invalid JSON at byte %zu: %s.",
            (size_t)(where - json_parser->start), reason);
  return ERR_INVALID_JSON;
}

static int fail(json_parser_t *json_parser, const char *reason) {
  return fail_at(json_parser, json_parser->at, reason);
}

/* `reason` is a format with one %u, for the limit. */
static int fail_limit(json_parser_t *json_parser, const char *where, const char *reason,
                      uint32_t limit) {
  char text[96];
  snprintf(text, sizeof text, "%s; at most %u are allowed", reason, limit);
  return fail_at(json_parser, where, text);
}

static int fail_memory(json_parser_t *json_parser) {
  error_set(json_parser->error, ERR_INTERNAL, NULL, "Out of memory while reading JSON.");
  return ERR_INTERNAL;
}

static void skip_blanks(json_parser_t *json_parser) {
  while (json_parser->at < json_parser->end) {
    char c = *json_parser->at;
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    json_parser->at++;
  }
}

/* ---- duplicate keys ---- */

/* SipHash-1-3 with a random key, so that a client cannot send member names that all collide. */
static uint32_t hash_name(const uint64_t key[2], const char *bytes, size_t length) {
  siphash_t siphash = siphash_begin(key);
  siphash_bytes(&siphash, bytes, length, 1);
  uint64_t hash = siphash_end(&siphash, 1);
  return (uint32_t)(hash ^ (hash >> 32));
}

static bool same_key(const json_t *left, const json_t *right) {
  return left->key_length == right->key_length &&
         memcmp(left->key, right->key, left->key_length) == 0;
}

static int fail_duplicate(json_parser_t *json_parser, const json_t *member) {
  char name[64];
  const char *where = json_parser->at;
  if (member->key >= json_parser->start && member->key < json_parser->end) where = member->key;
  error_quote(name, sizeof name, member->key, member->key_length);
  error_set(json_parser->error, ERR_INVALID_JSON, NULL,
            "Invalid JSON at byte %zu: the key \"%s\" appears twice in one object.",
            (size_t)(where - json_parser->start), name);
  return ERR_INVALID_JSON;
}

/* Makes at least twice `count` slots, all free. *mask is their number minus 1. */
static int clear_slots(json_parser_t *json_parser, uint32_t count, size_t *mask) {
  size_t wanted = 4 * (size_t)SMALL_OBJECT;
  while (wanted < 2 * (size_t)count) wanted *= 2;
  if (wanted > json_parser->num_slots) {
    free(json_parser->slots);
    json_parser->num_slots = 0;
    json_parser->slots = calloc(wanted, sizeof *json_parser->slots);
    if (json_parser->slots == NULL) return fail_memory(json_parser);
    json_parser->num_slots = wanted;
  } else {
    memset(json_parser->slots, 0, wanted * sizeof *json_parser->slots);
  }
  *mask = wanted - 1;
  if (json_parser->hash_key[0] == 0 &&
      getrandom(json_parser->hash_key, sizeof json_parser->hash_key, GRND_NONBLOCK) < 0) {
    /* getrandom fails only at boot, before the kernel has entropy. Then addresses serve as key. */
    json_parser->hash_key[0] = (uint64_t)(uintptr_t)json_parser->slots * 0x9E3779B97F4A7C15u;
    json_parser->hash_key[1] = (uint64_t)(uintptr_t)json_parser * 0xD1B54A32D192ED03u;
  }
  return 0;
}

/* Checks an object for duplicate keys when it closes. For small objects all pairs are compared.
 * Large objects (a vocabulary has 250,000 members) use a table with open addressing, cleared each
 * time. */
static int check_keys(json_parser_t *json_parser, uint32_t container) {
  const json_t *object = &json_parser->nodes[container];
  size_t mask = 0;
  if (object->count <= SMALL_OBJECT) {
    JSON_EACH(left, object) {
      for (const json_t *right = json_next(left); right != NULL; right = json_next(right)) {
        if (same_key(left, right)) return fail_duplicate(json_parser, right);
      }
    }
    return 0;
  }
  int code = clear_slots(json_parser, object->count, &mask);
  if (code < 0) return code;
  JSON_EACH(member, object) {
    uint32_t hash = hash_name(json_parser->hash_key, member->key, member->key_length);
    size_t i = hash & mask;
    for (; json_parser->slots[i].member != 0; i = (i + 1) & mask) {
      if (json_parser->slots[i].hash == hash &&
          same_key(&json_parser->nodes[json_parser->slots[i].member], member)) {
        return fail_duplicate(json_parser, member);
      }
    }
    json_parser->slots[i] = (json_slot_t){hash, (uint32_t)(member - json_parser->nodes)};
  }
  return 0;
}

/* ---- strings ---- */

/* The first byte from `at` on that is a quote, a backslash, a control character or not ASCII. */
static const char *scan_plain(const char *at, const char *end) {
  const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
  while (end - at >= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    /* A borrow can only mark a byte above a byte that is marked already. */
    uint64_t found = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
                     ((word - ones * 0x20) & ~word) | word;
    if ((found & tops) != 0) break;
    at += 8;
  }
  while (at < end && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80 && *at != '"' &&
         *at != '\\') {
    at++;
  }
  return at;
}

static bool read_hex4(const char *at, const char *end, uint32_t *out) {
  uint32_t value = 0;
  if (end - at < 4) return false;
  for (int i = 0; i < 4; i++) {
    int digit = hex_value(at[i]);
    if (digit < 0) return false;
    value = value * 16 + (uint32_t)digit;
  }
  *out = value;
  return true;
}

/* Puts U+FFFD in the place of an escape that is no character, with json_limits_t.mend_text. */
static int mend_escape(json_parser_t *json_parser, const char *reason) {
  enum { REPLACEMENT = 0xFFFD };
  if (!json_parser->mends) return fail(json_parser, reason);
  json_parser->at += 5;
  json_parser->mended = true;
  json_parser->arena_used +=
      (size_t)utf8_write(json_parser->arena + json_parser->arena_used, REPLACEMENT);
  return 0;
}

/* Reads an escape whose 'u' is at json_parser->at. Appends the character; a surrogate pair is one.
 */
static int read_unicode_escape(json_parser_t *json_parser) {
  uint32_t code, low;
  if (!read_hex4(json_parser->at + 1, json_parser->end, &code))
    return fail(json_parser, "\\u needs four hex digits");
  if (code == 0 && !json_parser->limits->allow_nul)
    return mend_escape(json_parser, "\\u0000 is not allowed in a string");
  if (code >= 0xDC00 && code <= 0xDFFF) return mend_escape(json_parser, "lone low surrogate");
  if (code >= 0xD800 && code <= 0xDBFF) {
    const char *behind = json_parser->at + 5;
    if (json_parser->end - behind < 6 || behind[0] != '\\' || behind[1] != 'u' ||
        !read_hex4(behind + 2, json_parser->end, &low) || low < 0xDC00 || low > 0xDFFF) {
      return mend_escape(json_parser, "lone high surrogate");
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    json_parser->at += 6;
  }
  json_parser->at += 5;
  json_parser->arena_used += (size_t)utf8_write(json_parser->arena + json_parser->arena_used, code);
  return 0;
}

/* Reads the rest of an escape, after its backslash. */
static int read_escape(json_parser_t *json_parser) {
  static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
  if (json_parser->at == json_parser->end)
    return fail(json_parser, "the text ends inside a string");
  if (*json_parser->at == 'u') return read_unicode_escape(json_parser);
  const char *name = *json_parser->at == '\0' ? NULL : strchr(names, *json_parser->at);
  if (name == NULL) return fail(json_parser, "unknown escape");
  json_parser->arena[json_parser->arena_used++] = bytes[name - names];
  json_parser->at++;
  return 0;
}

/* Moves json_parser->at over valid unescaped bytes, to a quote or a backslash. */
static int skip_plain(json_parser_t *json_parser) {
  for (;;) {
    json_parser->at = scan_plain(json_parser->at, json_parser->end);
    if (json_parser->at == json_parser->end)
      return fail(json_parser, "the text ends inside a string");
    if (*json_parser->at == '"' || *json_parser->at == '\\') return 0;
    if ((unsigned char)*json_parser->at < 0x20)
      return fail(json_parser, "control character in a string");
    int span = utf8_span(json_parser->at, (size_t)(json_parser->end - json_parser->at));
    if (span < 0) return fail(json_parser, "invalid UTF-8");
    json_parser->at += span;
  }
}

/* Reads a string from its opening quote at json_parser->at to behind its closing quote. */
static int read_string(json_parser_t *json_parser, const char **text, uint32_t *length) {
  const char *start = ++json_parser->at;
  int code = skip_plain(json_parser);
  if (code < 0) return code;
  if (*json_parser->at == '"') {
    *text = start;
    *length = (uint32_t)(json_parser->at++ - start);
    return 0;
  }
  if (json_parser->arena == NULL) {
    json_parser->arena_capacity = (size_t)(json_parser->end - start);
    json_parser->arena = malloc(json_parser->arena_capacity);
    if (json_parser->arena == NULL) return fail_memory(json_parser);
  }
  size_t begin = json_parser->arena_used;
  for (;;) {
    size_t plain = (size_t)(json_parser->at - start);
    memcpy(json_parser->arena + json_parser->arena_used, start, plain);
    json_parser->arena_used += plain;
    if (*json_parser->at++ == '"') break;
    code = read_escape(json_parser);
    if (code < 0) return code;
    start = json_parser->at;
    code = skip_plain(json_parser);
    if (code < 0) return code;
  }
  *text = json_parser->arena + begin;
  *length = (uint32_t)(json_parser->arena_used - begin);
  return 0;
}

/* ---- numbers ---- */

static size_t count_digits(const char *at, const char *end) {
  const char *from = at;
  while (at < end && *at >= '0' && *at <= '9') at++;
  return (size_t)(at - from);
}

static bool text_to_double(const char *text, size_t length, double *out) {
  char buffer[NUMBER_BUFFER];
  char *copy = length < sizeof buffer ? buffer : malloc(length + 1);
  if (copy == NULL) return false;
  memcpy(copy, text, length);
  copy[length] = '\0';
  double value = strtod(copy, NULL); /* the process never leaves the C locale */
  if (copy != buffer) free(copy);
  if (!isfinite(value)) return false;
  *out = value;
  return true;
}

static int read_number(json_parser_t *json_parser, json_t *node) {
  const char *start = json_parser->at;
  bool has_exponent = false;
  if (*json_parser->at == '-') json_parser->at++;
  size_t digits = count_digits(json_parser->at, json_parser->end);
  if (digits == 0) return fail(json_parser, "a number needs a digit here");
  if (digits > 1 && *json_parser->at == '0')
    return fail(json_parser, "a number may not start with 0");
  json_parser->at += digits;
  if (json_parser->at < json_parser->end && *json_parser->at == '.') {
    json_parser->at++;
    digits = count_digits(json_parser->at, json_parser->end);
    if (digits == 0) return fail(json_parser, "a digit must follow the point");
    json_parser->at += digits;
  }
  if (json_parser->at < json_parser->end && (*json_parser->at == 'e' || *json_parser->at == 'E')) {
    has_exponent = true;
    json_parser->at++;
    if (json_parser->at < json_parser->end && (*json_parser->at == '+' || *json_parser->at == '-'))
      json_parser->at++;
    digits = count_digits(json_parser->at, json_parser->end);
    if (digits == 0) return fail(json_parser, "a digit must follow the exponent sign");
    json_parser->at += digits;
  }
  node->type = JSON_NUMBER;
  node->text = start;
  node->length = (uint32_t)(json_parser->at - start);
  /* The largest double is 1.8e308: a number without exponent of up to 308 bytes cannot exceed it.
   */
  double ignored;
  if ((has_exponent || node->length > 308) && !text_to_double(start, node->length, &ignored)) {
    return fail_at(json_parser, start, "the number is too large");
  }
  return 0;
}

/* ---- values ---- */

static int read_word(json_parser_t *json_parser, json_t *node, const char *word, json_type_t type) {
  size_t length = strlen(word);
  if ((size_t)(json_parser->end - json_parser->at) < length ||
      memcmp(json_parser->at, word, length) != 0)
    return fail(json_parser, "a value was expected");
  if (type == JSON_STRING) node->text = word, node->length = (uint32_t)length;
  json_parser->at += length;
  node->type = (uint8_t)type;
  return 0;
}

static int read_text(json_parser_t *json_parser, json_t *node) {
  json_parser->mends = json_parser->limits->mend_text;
  json_parser->mended = false;
  int code = read_string(json_parser, &node->text, &node->length);
  json_parser->mends = false;
  node->type = JSON_STRING;
  node->mended = json_parser->mended;
  json_parser->any_mended = json_parser->any_mended || json_parser->mended;
  return code;
}

static int read_scalar(json_parser_t *json_parser, json_t *node) {
  switch (*json_parser->at) {
  case '"': return read_text(json_parser, node);
  case 'n': return read_word(json_parser, node, "null", JSON_NULL);
  case 't': return read_word(json_parser, node, "true", JSON_TRUE);
  case 'f': return read_word(json_parser, node, "false", JSON_FALSE);
  default:
    if (*json_parser->at == 'I' && json_parser->limits->allow_infinity)
      return read_word(json_parser, node, "Infinity", JSON_STRING);
    if (*json_parser->at == '-' || (*json_parser->at >= '0' && *json_parser->at <= '9'))
      return read_number(json_parser, node);
    return fail(json_parser, "a value was expected");
  }
}

/* Appends a zeroed value and links it into the open container. */
static int add_node(json_parser_t *json_parser, uint32_t *out) {
  if (json_parser->num_nodes >= json_parser->limits->values_max)
    return fail_limit(json_parser, json_parser->at, "too many values",
                      json_parser->limits->values_max);
  if (json_parser->num_nodes == json_parser->capacity) {
    uint32_t capacity = json_parser->capacity == 0 ? NODES_AT_START : json_parser->capacity;
    capacity = capacity > UINT32_MAX / 2 ? UINT32_MAX : capacity * 2;
    json_t *nodes = reallocarray(json_parser->nodes, capacity, sizeof *nodes);
    if (nodes == NULL) return fail_memory(json_parser);
    json_parser->nodes = nodes;
    json_parser->capacity = capacity;
  }
  uint32_t index = json_parser->num_nodes++;
  memset(&json_parser->nodes[index], 0, sizeof json_parser->nodes[index]);
  if (json_parser->depth > 0) {
    json_frame_t *frame = &json_parser->frames[json_parser->depth - 1];
    json_t *container = &json_parser->nodes[frame->container];
    if (container->count++ > 0) json_parser->nodes[frame->last].next = index - frame->last;
    frame->last = index;
  }
  *out = index;
  return 0;
}

static int open_container(json_parser_t *json_parser, uint32_t index) {
  if (json_parser->depth >= json_parser->limits->depth_max)
    return fail_limit(json_parser, json_parser->at, "too many levels of arrays and objects",
                      json_parser->limits->depth_max);
  json_parser->nodes[index].type = *json_parser->at == '{' ? JSON_OBJECT : JSON_ARRAY;
  json_parser->at++;
  json_parser->frames[json_parser->depth++] = (json_frame_t){index, index};
  return 0;
}

/* Reads the key and the colon of the next member. */
static int read_key(json_parser_t *json_parser, const char **key, uint32_t *key_length) {
  if (json_parser->at == json_parser->end || *json_parser->at != '"')
    return fail(json_parser, "a key in quotes was expected");
  const char *start = json_parser->at;
  int code = read_string(json_parser, key, key_length);
  if (code < 0) return code;
  if (*key_length > json_parser->limits->key_bytes_max)
    return fail_limit(json_parser, start, "the key has too many bytes",
                      json_parser->limits->key_bytes_max);
  skip_blanks(json_parser);
  if (json_parser->at == json_parser->end || *json_parser->at != ':')
    return fail(json_parser, "a colon was expected");
  json_parser->at++;
  skip_blanks(json_parser);
  return 0;
}

/* Reads one value; of a container only the opening bracket, and then sets *fresh: no child yet. */
static int read_value(json_parser_t *json_parser, bool *fresh) {
  const char *key = NULL;
  uint32_t key_length = 0, index = 0;
  int code = 0;
  if (json_parser->depth > 0 &&
      json_parser->nodes[json_parser->frames[json_parser->depth - 1].container].type ==
          JSON_OBJECT) {
    code = read_key(json_parser, &key, &key_length);
    if (code < 0) return code;
  }
  if (json_parser->at == json_parser->end)
    return fail(json_parser, "the text ends where a value was expected");
  code = add_node(json_parser, &index);
  if (code < 0) return code;
  json_parser->nodes[index].key = key;
  json_parser->nodes[index].key_length = key_length;
  *fresh = *json_parser->at == '{' || *json_parser->at == '[';
  return *fresh ? open_container(json_parser, index)
                : read_scalar(json_parser, &json_parser->nodes[index]);
}

/* After a value or an opening bracket: closes the containers that end here. Afterwards
 * json_parser->at is at the next value or key, or the depth is 0. */
static int close_containers(json_parser_t *json_parser, bool fresh) {
  while (json_parser->depth > 0) {
    uint32_t container = json_parser->frames[json_parser->depth - 1].container;
    bool is_object = json_parser->nodes[container].type == JSON_OBJECT;
    skip_blanks(json_parser);
    if (json_parser->at == json_parser->end)
      return fail(json_parser, "the text ends inside an array or object");
    if (*json_parser->at == (is_object ? '}' : ']')) {
      json_parser->at++;
      int code = is_object ? check_keys(json_parser, container) : 0;
      if (code < 0) return code;
      json_parser->depth--;
      fresh = false;
      continue;
    }
    if (fresh) return 0;
    if (*json_parser->at != ',')
      return fail(json_parser, "a comma or a closing bracket was expected");
    json_parser->at++;
    skip_blanks(json_parser);
    return 0;
  }
  return 0;
}

static int parse_document(json_parser_t *json_parser) {
  bool fresh = false;
  int code;
  json_parser->frames =
      calloc((size_t)json_parser->limits->depth_max + 1, sizeof *json_parser->frames);
  if (json_parser->frames == NULL) return fail_memory(json_parser);
  if (json_parser->end - json_parser->at >= 3 && memcmp(json_parser->at, "\xEF\xBB\xBF", 3) == 0)
    json_parser->at += 3;
  skip_blanks(json_parser);
  do {
    code = read_value(json_parser, &fresh);
    if (code == 0) code = close_containers(json_parser, fresh);
    if (code < 0) return code;
  } while (json_parser->depth > 0);
  skip_blanks(json_parser);
  return json_parser->at == json_parser->end ? 0 : fail(json_parser, "bytes follow the value");
}

int json_parse(const char *text, size_t length, const json_limits_t *limits, json_doc_t **out,
               inferd_error_t *error) {
  if (length > UINT32_MAX) {
    return error_set(error, ERR_INVALID_JSON, NULL, "Invalid JSON: longer than 4 GiB.");
  }
  if (text == NULL) text = "";
  json_parser_t json_parser = {
      .start = text, .at = text, .end = text + length, .limits = limits, .error = error};
  json_doc_t *doc = NULL;
  int code = parse_document(&json_parser);
  if (code == 0) {
    doc = malloc(sizeof *doc);
    if (doc == NULL) code = fail_memory(&json_parser);
  }
  free(json_parser.frames);
  free(json_parser.slots);
  if (code < 0) {
    free(json_parser.nodes);
    free(json_parser.arena);
    return code;
  }
  /* Gives unused memory back; if realloc fails, the larger block stays in use. */
  json_t *nodes = reallocarray(json_parser.nodes, json_parser.num_nodes, sizeof *nodes);
  *doc = (json_doc_t){.nodes = nodes != NULL ? nodes : json_parser.nodes,
                      .arena = json_parser.arena,
                      .bytes = json_parser.num_nodes * sizeof *nodes + json_parser.arena_capacity,
                      .mended = json_parser.any_mended};
  *out = doc;
  return 0;
}

void json_free(json_doc_t *doc) {
  if (doc == NULL) return;
  free(doc->nodes);
  free(doc->arena);
  free(doc);
}

/* ---- memory ---- */

/* A value other than the root stands behind a comma, or first in a container. The slots of the
 * duplicate-key table are a power of two, less than four times the members of an object. */
size_t json_memory_bound(const char *text, size_t length, const json_limits_t *limits) {
  size_t values = 1 + NODES_AT_START, members = 0;
  for (size_t i = 0; i < length; i++) {
    values += (size_t)(text[i] == ',') + (size_t)((text[i] | 0x20) == '{'); /* and [ */
    members += (size_t)(text[i] == ':');
  }
  if (values > limits->values_max) values = limits->values_max;
  if (members > values) members = values;
  size_t decoded = length > 0 && memchr(text, '\\', length) != NULL ? length : 0;
  return values * sizeof(json_t) + (4 * members + 8 * SMALL_OBJECT) * sizeof(json_slot_t) + decoded;
}

size_t json_memory(const json_doc_t *doc) {
  return doc->bytes;
}

/* ---- reading a document ---- */

bool json_is_mended(const json_doc_t *doc) {
  return doc->mended;
}

const json_t *json_root(const json_doc_t *doc) {
  return doc->nodes;
}

const json_t *json_first(const json_t *container) {
  if (container == NULL || container->type < JSON_ARRAY || container->count == 0) return NULL;
  return container + 1;
}

const json_t *json_next(const json_t *value) {
  return value->next == 0 ? NULL : value + value->next;
}

const json_t *json_member(const json_t *object, const char *name, size_t length) {
  if (object == NULL || object->type != JSON_OBJECT) return NULL;
  JSON_EACH(member, object) {
    if (member->key_length == length && memcmp(member->key, name, length) == 0) return member;
  }
  return NULL;
}

const json_t *json_get(const json_t *object, const char *name) {
  return json_member(object, name, strlen(name));
}

/* The text of a number in parts. `exponent` saturates at 2^40, more than all digits can balance. */
typedef struct json_decimal {
  bool negative;
  const char *whole, *fraction;
  size_t num_whole, num_fraction;
  int64_t exponent;
} json_decimal_t;

static json_decimal_t split_decimal(const json_t *value) {
  const int64_t exponent_max = INT64_C(1) << 40; /* text is at most 2^32 digits */
  const char *at = value->text, *end = at + value->length;
  json_decimal_t json_decimal = {.negative = *at == '-', .fraction = ""};
  if (json_decimal.negative) at++;
  json_decimal.whole = at;
  json_decimal.num_whole = count_digits(at, end);
  at += json_decimal.num_whole;
  if (at < end && *at == '.') {
    json_decimal.fraction = ++at;
    json_decimal.num_fraction = count_digits(at, end);
    at += json_decimal.num_fraction;
  }
  if (at < end) {
    at++; /* the e */
    bool negative = *at == '-';
    if (*at == '-' || *at == '+') at++;
    for (; at < end && json_decimal.exponent < exponent_max; at++) {
      json_decimal.exponent = json_decimal.exponent * 10 + (*at - '0');
    }
    if (negative) json_decimal.exponent = -json_decimal.exponent;
  }
  return json_decimal;
}

bool json_int64(const json_t *value, int64_t *out) {
  if (value == NULL || value->type != JSON_NUMBER) return false;
  json_decimal_t json_decimal = split_decimal(value);
  uint64_t magnitude = 0;
  /* `place` is the power of ten of the current digit; below 0 only zeros are allowed. */
  int64_t place = (int64_t)json_decimal.num_whole - 1 + json_decimal.exponent;
  for (size_t i = 0; i < json_decimal.num_whole + json_decimal.num_fraction; i++, place--) {
    char c = i < json_decimal.num_whole ? json_decimal.whole[i]
                                        : json_decimal.fraction[i - json_decimal.num_whole];
    uint64_t digit = (uint64_t)(c - '0');
    if (place < 0) {
      if (digit != 0) return false;
      continue;
    }
    if (__builtin_mul_overflow(magnitude, 10, &magnitude)) return false;
    if (__builtin_add_overflow(magnitude, digit, &magnitude)) return false;
  }
  for (; place >= 0 && magnitude != 0; place--) {
    if (__builtin_mul_overflow(magnitude, 10, &magnitude)) return false;
  }
  const uint64_t limit = (uint64_t)INT64_MAX + (json_decimal.negative ? 1 : 0);
  if (magnitude > limit) return false;
  *out = json_decimal.negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
  return true;
}

bool json_double(const json_t *value, double *out) {
  if (value == NULL || value->type != JSON_NUMBER) return false;
  return text_to_double(value->text, value->length, out);
}

bool json_bool(const json_t *value, bool *out) {
  if (value == NULL || (value->type != JSON_TRUE && value->type != JSON_FALSE)) return false;
  *out = value->type == JSON_TRUE;
  return true;
}

bool json_equals(const json_t *value, const char *text) {
  if (value == NULL || value->type != JSON_STRING) return false;
  return value->length == strlen(text) && memcmp(value->text, text, value->length) == 0;
}

bool json_named(const json_t *member, const char *name) {
  return member->key_length == strlen(name) && memcmp(member->key, name, member->key_length) == 0;
}

const char *json_type_name(const json_t *value) {
  static const char *const names[] = {"null",     "a boolean", "a boolean", "a number",
                                      "a string", "an array",  "an object"};
  return value == NULL ? "nothing" : names[value->type];
}

/* ---- writing ---- */

/* Writes the escaped form of the character at `text`, at most 6 bytes, to `piece`. Returns its
 * length. */
static size_t escape_piece(char piece[8], const char *text, int span) {
  static const char bytes[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
  unsigned char byte = (unsigned char)*text;
  if (span < 0) return (size_t)utf8_write(piece, 0xFFFD);
  const char *found = byte == 0 ? NULL : strchr(bytes, byte);
  if (found != NULL) {
    piece[0] = '\\';
    piece[1] = names[found - bytes];
    return 2;
  }
  if (byte < 0x20) {
    piece[0] = '\\', piece[1] = 'u', piece[2] = '0', piece[3] = '0';
    piece[4] = hex_digit(byte >> 4);
    piece[5] = hex_digit(byte & 15);
    return 6;
  }
  memcpy(piece, text, (size_t)span);
  return (size_t)span;
}

size_t json_escape(char *out, size_t capacity, const char *text, size_t length) {
  size_t needed = 0;
  bool full = false; /* a piece is written whole or not at all, and nothing after a gap */
  for (size_t i = 0; i < length;) {
    char piece[8];
    int span = utf8_span(text + i, length - i);
    size_t size = escape_piece(piece, text + i, span);
    full = full || capacity - needed < size;
    if (!full) memcpy(out + needed, piece, size);
    needed += size;
    i += (size_t)(span < 0 ? -span : span);
  }
  return needed;
}
