/* test_json.c: what the strict JSON reader takes, refuses and returns. */
#include "engine/base/json.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_limits_t wide = {1000, 1000000, 65536, false, true, false};

/* Parses a copy of exactly `length` bytes, so that the sanitizer sees a read behind the end. */
static int parse_bytes(const char *text, size_t length, const json_limits_t *limits,
                       inferd_error_t *error) {
  char *copy = malloc(length > 0 ? length : 1);
  json_doc_t *doc = NULL;
  memcpy(copy, text, length);
  int rc = json_parse(length > 0 ? copy : NULL, length, limits, &doc, error);
  ASSERT_EQ((rc == 0), (doc != NULL));
  json_free(doc);
  free(copy);
  return rc;
}

static int parse_with(const char *text, const json_limits_t *limits) {
  inferd_error_t error = {0};
  int rc = parse_bytes(text, strlen(text), limits, &error);
  ASSERT_EQ_FOR(error.code, rc, "%s", text);
  return rc;
}

static int parse(const char *text) {
  return parse_with(text, &json_limits_request);
}

static json_doc_t *document(const char *text) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(json_parse(text, strlen(text), &wide, &doc, &error), 0, "%s", error.message);
  return doc;
}

static const char *const valid[] = {"null",
                                    "true",
                                    "false",
                                    "0",
                                    "-0",
                                    "1",
                                    "-1",
                                    "1.5",
                                    "1e5",
                                    "1E+5",
                                    "1.25e-3",
                                    "-0.0e0",
                                    "\"\"",
                                    "\"a\"",
                                    "[]",
                                    "{}",
                                    "[[]]",
                                    "[{}]",
                                    "[1,2]",
                                    " [ 1 , 2 ] ",
                                    "{\"a\":1}",
                                    "\t\r\n {\"\":0}",
                                    "{\"a\":{\"a\":{\"a\":[]}}}",
                                    "{\"a\":1,\"b\":1}",
                                    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                    "\"\\u0041\\u00e9\\u4e2d\"",
                                    "\"\\ud83d\\ude00\"",
                                    "\"\\uD83D\\uDE00\"",
                                    "\"\x7F\"",
                                    "\"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\"",
                                    "\xEF\xBB\xBF[]",
                                    "[1,[2,[3,[4]]],5]",
                                    "123456789012345678901234567890",
                                    "1e-999",
                                    "0e999999999999",
                                    "[null,true,false,\"x\",0]"};

Test(json, valid_texts) {
  for (size_t i = 0; i < sizeof valid / sizeof valid[0]; i++) {
    ASSERT_EQ_FOR(parse(valid[i]), 0, "refused: %s", valid[i]);
  }
}

static const char *const invalid[] = {"",
                                      " ",
                                      "nul",
                                      "nulll",
                                      "True",
                                      "NaN",
                                      "Infinity",
                                      "-Infinity",
                                      "-",
                                      "+1",
                                      "01",
                                      "-01",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "1e+",
                                      "1.e5",
                                      "0x10",
                                      "1_000",
                                      "1e999",
                                      "-1e999",
                                      "[",
                                      "]",
                                      "[1",
                                      "[1,",
                                      "[1,]",
                                      "[,1]",
                                      "[1 2]",
                                      "[1,,2]",
                                      "[1}",
                                      "{",
                                      "}",
                                      "{\"a\"",
                                      "{\"a\":",
                                      "{\"a\":1",
                                      "{\"a\":1,",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{'a':1}",
                                      "{1:1}",
                                      "{\"a\" 1}",
                                      "{\"a\":1]",
                                      "{,}",
                                      "{\"a\":1 \"b\":2}",
                                      "\"",
                                      "\"a",
                                      "'a'",
                                      "\"\\",
                                      "\"\\x\"",
                                      "\"\\u\"",
                                      "\"\\u123\"",
                                      "\"\\u123g\"",
                                      "\"\\U0041\"",
                                      "\"\n\"",
                                      "\"\t\"",
                                      "\"\x1F\"",
                                      "[] []",
                                      "{} 1",
                                      "1 2",
                                      "null,",
                                      "//x\n1",
                                      "/**/1",
                                      "[1]#",
                                      "\"\\ud800\"",
                                      "\"\\ud800x\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\ud800\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud83d\\\"",
                                      "\"\x80\"",
                                      "\"\xC0\x80\"",
                                      "\"\xED\xA0\x80\"",
                                      "\"\xF4\x90\x80\x80\"",
                                      "\"\xE4\xB8\"",
                                      "\"\xFF\"",
                                      "\xEF\xBB",
                                      "\xEF\xBB\xBF",
                                      "\xEF\xBB\xBF\xEF\xBB\xBF[]",
                                      "[\x0B]",
                                      "{\"a\":1,\"a\":2}",
                                      "{\"a\":1,\"\\u0061\":2}",
                                      "{\"\":1,\"\":2}",
                                      "[{\"x\":0,\"y\":0,\"x\":0}]"};

Test(json, invalid_texts) {
  for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
    ASSERT_EQ_FOR(parse(invalid[i]), ERR_INVALID_JSON, "accepted: %s", invalid[i]);
  }
}

Test(json, a_raw_nul_is_never_text) {
  ASSERT_EQ(parse_bytes("\"a\0b\"", 5, &json_limits_model, NULL), ERR_INVALID_JSON);
  ASSERT_EQ(parse_bytes("1\0", 2, &json_limits_model, NULL), ERR_INVALID_JSON);
  ASSERT_EQ(parse_bytes("\"\\\0\"", 4, &json_limits_model, NULL), ERR_INVALID_JSON);
}

Test(json, an_escaped_nul_is_for_model_files_only) {
  ASSERT_EQ(parse("\"\\u0000\""), ERR_INVALID_JSON);
  json_doc_t *doc = document("{\"a\\u0000b\":\"\\u0000\"}");
  const json_t *value = json_first(json_root(doc));
  ASSERT_EQ(value->key_length, 3);
  cr_assert(memcmp(value->key, "a\0b", 3) == 0);
  ASSERT_EQ(value->length, 1);
  ASSERT_EQ(value->text[0], '\0');
  cr_assert_null(json_get(json_root(doc), "a"));
  json_free(doc);
}

/* Half an emoji and a NUL become U+FFFD in values, and the value says so; a key stays an error. */
Test(json, text_is_mended_where_asked) {
  static const struct {
    const char *json, *text;
    bool mended;
  } rows[] = {{"[\"a\\ud83d\"]", "a\xEF\xBF\xBD", true},
              {"[\"\\ude00b\"]",
               "\xEF\xBF\xBD"
               "b",
               true},
              {"[\"\\ud83d\\ud83d\\ude00\"]", "\xEF\xBF\xBD\xF0\x9F\x98\x80", true},
              {"[\"\\ud83dx\\u0041\"]", "\xEF\xBF\xBDxA", true},
              {"[\"a\\u0000b\"]",
               "a\xEF\xBF\xBD"
               "b",
               true},
              {"[\"\\ud83d\\ude00\"]", "\xF0\x9F\x98\x80", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_doc_t *doc = NULL;
    size_t length = strlen(rows[i].json);
    ASSERT_EQ(json_parse(rows[i].json, length, &json_limits_mended, &doc, NULL), 0);
    const json_t *value = json_first(json_root(doc));
    ASSERT_EQ_FOR(json_equals(value, rows[i].text), true, "%s", rows[i].json);
    ASSERT_EQ_FOR(value->mended, rows[i].mended, "%s", rows[i].json);
    ASSERT_EQ_FOR(json_is_mended(doc), rows[i].mended, "%s", rows[i].json);
    json_free(doc);
  }
  static const char *const keys[] = {"{\"\\ud83d\":1}", "{\"a\\u0000\":1}"};
  for (size_t i = 0; i < 2; i++) {
    ASSERT_EQ(parse_bytes(keys[i], strlen(keys[i]), &json_limits_mended, NULL), ERR_INVALID_JSON);
  }
}

Test(json, depth_is_a_limit) {
  for (int object = 0; object < 2; object++) {
    for (int depth = 63; depth <= 66; depth++) {
      char text[400] = "";
      const char *open = object ? "{\"\":" : "[";
      size_t width = strlen(open), at = (size_t)depth * width;
      for (size_t i = 0; i < (size_t)depth; i++) memcpy(text + i * width, open, width);
      text[at++] = '1';
      for (int i = 0; i < depth; i++) text[at++] = object ? '}' : ']';
      ASSERT_EQ_FOR(parse(text), depth <= 64 ? 0 : ERR_INVALID_JSON, "depth %d", depth);
    }
  }
  size_t length = 3000000;
  char *deep = malloc(length);
  memset(deep, '[', length);
  ASSERT_EQ(parse_bytes(deep, length, &json_limits_model, NULL), ERR_INVALID_JSON);
  free(deep);
}

Test(json, values_and_keys_are_limited) {
  json_limits_t few = {8, 5, 3, false, false, false};
  ASSERT_EQ(parse_with("[1,2,3,4]", &few), 0);
  ASSERT_EQ(parse_with("[1,2,3,4,5]", &few), ERR_INVALID_JSON);
  ASSERT_EQ(parse_with("{\"abc\":1}", &few), 0);
  ASSERT_EQ(parse_with("{\"abcd\":1}", &few), ERR_INVALID_JSON);
  ASSERT_EQ(parse_with("{\"\\u4e2d\":1}", &few), 0); /* decoded bytes count */
  json_limits_t flat = {0, 5, 3, false, false, false};
  ASSERT_EQ(parse_with("1", &flat), 0);
  ASSERT_EQ(parse_with("[]", &flat), ERR_INVALID_JSON);
}

Test(json, infinity_is_the_string_of_its_name_where_allowed) {
  const json_limits_t lenient = {8, 5, 8, true, false, false};
  inferd_error_t error = {0};
  json_doc_t *doc = NULL;
  ASSERT_EQ(json_parse("[0.0, Infinity]", 15, &lenient, &doc, &error), 0);
  const json_t *last = json_first(json_root(doc)) + 1;
  cr_assert(json_equals(last, "Infinity"));
  json_free(doc);
  ASSERT_EQ(parse_with("Infinit", &lenient), ERR_INVALID_JSON);
  ASSERT_EQ(parse_with("-Infinity", &lenient), ERR_INVALID_JSON);
  ASSERT_EQ(parse_with("[Infinity]", &wide), ERR_INVALID_JSON);
}

Test(json, duplicates_are_found_in_large_objects) {
  enum { MEMBERS = 20000 };
  const size_t room = MEMBERS * 16;
  char *text = malloc(room), *at = text;
  char *last = NULL;
  for (int i = 0; i < MEMBERS; i++) {
    last = at;
    at += snprintf(at, room - (size_t)(at - text), "%c\"k%d\":%d", i > 0 ? ',' : '{', i, i);
  }
  memcpy(at, "}", 2);
  at++;
  json_doc_t *doc = document(text);
  ASSERT_EQ(json_root(doc)->count, MEMBERS);
  int64_t number;
  cr_assert(json_int64(json_get(json_root(doc), "k19999"), &number));
  ASSERT_EQ(number, 19999);
  json_free(doc);
  memcpy(last, ",\"k00077\"", 9); /* k19999 -> another unused name of the same length: still fine */
  doc = document(text);
  json_free(doc);
  memcpy(last, ",\"k10077\"", 9);
  inferd_error_t error = {0};
  ASSERT_EQ(json_parse(text, (size_t)(at - text), &wide, &doc, &error), ERR_INVALID_JSON);
  cr_assert(strstr(error.message, "k10077") != NULL, "%s", error.message);
  char where[32];
  snprintf(where, sizeof where, "byte %zu:", (size_t)(last + 2 - text));
  cr_assert(strstr(error.message, where) != NULL, "%s, wanted %s", error.message, where);
  free(text);
}

Test(json, equal_keys_in_different_objects_are_fine) {
  ASSERT_EQ(parse("[{\"a\":{\"a\":1,\"b\":{\"a\":1}}},{\"a\":1}]"), 0);
}

Test(json, the_tree_can_be_walked) {
  json_doc_t *doc = document("{\"a\":[1,[2,3],{\"x\":4}],\"b\":\"s\",\"c\":{},\"d\":null}");
  const json_t *root = json_root(doc), *a = json_get(root, "a");
  ASSERT_EQ(root->type, JSON_OBJECT);
  ASSERT_EQ(root->count, 4);
  ASSERT_EQ(a->count, 3);
  int64_t sum = 0, number;
  JSON_EACH(v, a) {
    if (json_int64(v, &number)) sum += number;
    JSON_EACH(inner, v) {
      cr_assert(json_int64(inner, &number));
      sum += 10 * number;
    }
  }
  ASSERT_EQ(sum, 1 + 10 * (2 + 3 + 4));
  const json_t *b = json_next(a);
  ASSERT_EQ(b->key_length, 1);
  ASSERT_EQ(b->key[0], 'b');
  cr_assert(json_equals(b, "s"));
  const json_t *c = json_next(b);
  ASSERT_EQ(json_first(c), NULL);
  ASSERT_EQ(c->count, 0);
  cr_assert_null(json_next(json_next(c)));
  cr_assert_null(json_get(root, "e"));
  cr_assert_null(json_get(a, "a"));
  cr_assert_null(json_get(NULL, "a"));
  cr_assert_null(json_first(NULL));
  cr_assert_null(json_first(b));
  cr_assert_not(json_equals(b, "st"));
  cr_assert_not(json_equals(a, "s"));
  ASSERT_STR_EQ(json_type_name(a), "an array");
  ASSERT_STR_EQ(json_type_name(json_get(root, "d")), "null");
  json_free(doc);
}

Test(json, strings_are_decoded) {
  json_doc_t *doc = document("[\"a\\n\\u00e9\\ud83d\\ude00\\/z\",\"plain\",\"\\u0041\"]");
  const json_t *first = json_first(json_root(doc));
  cr_assert(json_equals(first, "a\n\xC3\xA9\xF0\x9F\x98\x80/z"));
  cr_assert(json_equals(json_next(first), "plain"));
  cr_assert(json_equals(json_next(json_next(first)), "A"));
  json_free(doc);
}

/* A quote, a backslash, a control byte or a high byte at each place of an eight-byte word. */
Test(json, every_special_byte_is_seen_at_every_place) {
  for (size_t place = 0; place < 20; place++) {
    for (int byte = 1; byte < 256; byte++) {
      char text[32];
      memset(text, 'x', sizeof text);
      text[0] = '"';
      text[1 + place] = (char)byte;
      text[25] = '"';
      bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
      int rc = parse_bytes(text, 26, &json_limits_request, NULL);
      ASSERT_EQ_FOR(rc == 0, plain, "byte %d at %zu", byte, place);
    }
  }
}

static bool integer(const char *text, int64_t *out) {
  json_doc_t *doc = document(text);
  bool is_integer = json_int64(json_root(doc), out);
  json_free(doc);
  return is_integer;
}

static void expect_integer(const char *text, int64_t wanted) {
  int64_t number = 0;
  cr_assert(integer(text, &number), "%s is an integer", text);
  ASSERT_EQ_FOR(number, wanted, "%s gave %lld", text, (long long)number);
}

Test(json, integers_are_exact) {
  expect_integer("0", 0);
  expect_integer("-0", 0);
  expect_integer("-0.0e7", 0);
  expect_integer("16", 16);
  expect_integer("16.0", 16);
  expect_integer("1e3", 1000);
  expect_integer("1.5e1", 15);
  expect_integer("150e-1", 15);
  expect_integer("-12300E-2", -123);
  expect_integer("9007199254740993", 9007199254740993); /* 2^53 + 1 */
  expect_integer("9223372036854775807", INT64_MAX);
  expect_integer("-9223372036854775808", INT64_MIN);
  expect_integer("922337203685477580.7e1", INT64_MAX);
  expect_integer("9.223372036854775807e18", INT64_MAX);
  expect_integer("92233720368547758070e-1", INT64_MAX - 0);
  expect_integer("0e99999999999999999999", 0);
  expect_integer("0.000e-99999999999999999999", 0);
  expect_integer("5.000000000000000000000000000000000000000", 5);
}

Test(json, other_numbers_are_not_integers) {
  static const char *const texts[] = {"16.5",
                                      "1e-1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "1e19",
                                      "18446744073709551617",
                                      "0.1e0",
                                      "1e-99999999999999999999",
                                      "100000000000000000000000000000000",
                                      "\"16\"",
                                      "true",
                                      "null",
                                      "[1]"};
  int64_t number = 77;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    cr_assert_not(integer(texts[i], &number), "%s", texts[i]);
  }
  cr_assert_not(json_int64(NULL, &number));
  ASSERT_EQ(number, 77);
}

Test(json, doubles_are_correctly_rounded) {
  static const char *const texts[] = {
      "0.1",      "-2.5e-7",          "1.7976931348623157e308",
      "4.9e-324", "9007199254740993", "0.3000000000000000166533453693773481063544750213623046875"};
  double number = 0;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    json_doc_t *doc = document(texts[i]);
    cr_assert(json_double(json_root(doc), &number));
    ASSERT_EQ_FOR(number, strtod(texts[i], NULL), "%s", texts[i]);
    json_free(doc);
  }
  char text[400]; /* without an exponent, but beyond the range of double */
  memset(text, '9', sizeof text);
  ASSERT_EQ(parse_bytes(text, 309, &wide, NULL), ERR_INVALID_JSON);
  ASSERT_EQ(parse_bytes(text, 308, &wide, NULL), 0);
  text[1] = '.'; /* long, but small */
  ASSERT_EQ(parse_bytes(text, 400, &wide, NULL), 0);
}

Test(json, booleans) {
  json_doc_t *doc = document("[true,false,0,\"true\"]");
  const json_t *v = json_first(json_root(doc));
  bool flag = false;
  cr_assert(json_bool(v, &flag));
  cr_assert(flag);
  cr_assert(json_bool(json_next(v), &flag));
  cr_assert(!flag);
  cr_assert_not(json_bool(json_next(json_next(v)), &flag));
  cr_assert_not(json_bool(json_next(json_next(json_next(v))), &flag));
  cr_assert_not(json_bool(NULL, &flag));
  json_free(doc);
}

Test(json, the_reason_names_the_byte) {
  inferd_error_t error = {0};
  ASSERT_EQ(parse_bytes("{\"a\": [1, x]}", 13, &json_limits_request, &error), ERR_INVALID_JSON);
  cr_assert(strstr(error.message, "byte 10") != NULL, "%s", error.message);
}

Test(json, a_limit_is_named_with_its_number) {
  static const json_limits_t small = {.depth_max = 2, .values_max = 4, .key_bytes_max = 3};
  static const struct {
    const char *text, *reason;
  } rows[] = {
      {"[[[1]]]", "byte 2: too many levels of arrays and objects; at most 2 are allowed."},
      {"[1,2,3,4]", "byte 7: too many values; at most 4 are allowed."},
      {"{\"abcd\":1}", "byte 1: the key has too many bytes; at most 3 are allowed."},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    inferd_error_t error = {0};
    ASSERT_EQ(parse_bytes(rows[i].text, strlen(rows[i].text), &small, &error), ERR_INVALID_JSON);
    cr_assert(strstr(error.message, rows[i].reason) != NULL, "%s, wanted %s", error.message,
              rows[i].reason);
  }
}

static const char sample[] =
    "\xEF\xBB\xBF{\"id\": [0, -1.5e+3, 12], \"t\\u00e9xt\": \"\\ud83d\\ude00 \xE4\xB8\xAD\\n\", "
    "\"o\":{\"a\":true,\"b\":false,\"c\":null,\"d\":{},\"e\":[],\"f\":\"\","
    "\"g\":1,\"h\":2,\"i\":3,\"j\":4}}";

Test(json, no_prefix_of_a_document_is_a_document) {
  for (size_t length = 0; length < sizeof sample - 1; length++) {
    ASSERT_EQ_FOR(parse_bytes(sample, length, &wide, NULL), ERR_INVALID_JSON, "%zu bytes", length);
  }
  ASSERT_EQ(parse_bytes(sample, sizeof sample - 1, &wide, NULL), 0);
}

/* Walks everything that a document claims to hold. */
static size_t walk(const json_t *value) {
  size_t bytes = value->length + value->key_length;
  for (uint32_t i = 0; i < value->length; i++) bytes += value->text[i] == 'x';
  for (uint32_t i = 0; i < value->key_length; i++) bytes += value->key[i] == 'x';
  uint32_t children = 0;
  JSON_EACH(child, value) {
    bytes += walk(child);
    children++;
  }
  cr_assert(children == value->count || value->type < JSON_ARRAY);
  return bytes;
}

Test(json, mutated_texts_end_in_a_document_or_an_error) {
  static const char alphabet[] = "{}[]\",:\\u0123eE+-.tfn \xC3\xA9\xED\xA0\x80\x00\x1F";
  uint64_t state = 20240607;
  int accepted = 0;
  for (int round = 0; round < 100000; round++) {
    size_t length = sizeof sample - 1;
    char *text = malloc(length + 8);
    memcpy(text, sample, length);
    int changes = 1 + (int)(next_random(&state) % 3);
    for (int i = 0; i < changes; i++) {
      size_t at = next_random(&state) % length;
      char byte = alphabet[next_random(&state) % (sizeof alphabet - 1)];
      switch (next_random(&state) % 3) {
      case 0: text[at] = byte; break;
      case 1: memmove(text + at, text + at + 1, --length - at); break;
      default:
        memmove(text + at + 1, text + at, length - at);
        text[at] = byte;
        length++;
      }
    }
    text = realloc(text, length);
    json_doc_t *doc = NULL;
    if (json_parse(text, length, &wide, &doc, NULL) == 0) {
      accepted++;
      ASSERT_GT(walk(json_root(doc)), 0u);
    }
    json_free(doc);
    free(text);
  }
  cr_assert(accepted > 1000 && accepted < 90000, "%d accepted", accepted);
}

static void expect_escaped(const char *text, size_t length, const char *wanted) {
  size_t needed = strlen(wanted);
  for (size_t capacity = 0; capacity <= needed + 1; capacity++) {
    char *out = malloc(capacity + 1);
    memset(out, '#', capacity + 1);
    ASSERT_EQ(json_escape(out, capacity, text, length), needed);
    size_t written = 0; /* a prefix of the whole, never beyond the capacity */
    while (written < capacity && out[written] != '#') written++;
    cr_assert(memcmp(out, wanted, written) == 0);
    ASSERT_EQ(out[capacity], '#');
    if (capacity >= needed) ASSERT_EQ(written, needed);
    free(out);
  }
}

Test(json, escape_writes_valid_json) {
  expect_escaped("", 0, "");
  expect_escaped("plain /", 7, "plain /");
  expect_escaped("\"\\\b\f\n\r\t", 7, "\\\"\\\\\\b\\f\\n\\r\\t");
  expect_escaped("a\0b\x1F\x7F", 5, "a\\u0000b\\u001f\x7F");
  expect_escaped("\xE4\xB8\xAD\xF0\x9F\x98\x80", 7, "\xE4\xB8\xAD\xF0\x9F\x98\x80");
  expect_escaped("\xFFz\xE4\xB8", 4, "\xEF\xBF\xBDz\xEF\xBF\xBD");
}

Test(json, escape_and_parse_are_inverse) {
  uint64_t state = 99;
  for (int round = 0; round < 2000; round++) {
    char text[40], quoted[300];
    size_t length = 0;
    while (length < 30) { /* valid characters of every length */
      static const char *const pieces[] = {"a",    "\"",       "\\",           "\n",
                                           "\x01", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80"};
      const char *piece = pieces[next_random(&state) % 8];
      memcpy(text + length, piece, strlen(piece));
      length += strlen(piece);
    }
    quoted[0] = '"';
    size_t size = json_escape(quoted + 1, sizeof quoted - 2, text, length);
    quoted[size + 1] = '"';
    json_doc_t *doc = NULL;
    ASSERT_EQ(json_parse(quoted, size + 2, &json_limits_request, &doc, NULL), 0);
    ASSERT_EQ(json_root(doc)->length, length);
    cr_assert(memcmp(json_root(doc)->text, text, length) == 0);
    json_free(doc);
  }
}

/* What a document holds is never more than what was foretold from its bytes. */
Test(json, memory_is_bounded) {
  static const char *const texts[] = {"",
                                      "1",
                                      "[]",
                                      "[1,2,[3,4],{}]",
                                      "{\"a\":1,\"b\":{\"c\":[]},\"d\\n\":\"x\\u00e9y\"}",
                                      "\"a,b:c[d{e\\\\\"",
                                      "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,"
                                      "\"h\":8,\"i\":9,\"j\":10}"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    size_t length = strlen(texts[i]);
    size_t bound = json_memory_bound(texts[i], length, &json_limits_request);
    json_doc_t *doc = NULL;
    if (json_parse(texts[i], length, &json_limits_request, &doc, NULL) != 0) continue;
    ASSERT_GT(json_memory(doc), 0);
    ASSERT_LE(json_memory(doc), bound);
    json_free(doc);
  }
  enum { IDS = 2000000 };
  char *many = malloc(2 * IDS);
  for (int i = 0; i < IDS; i++) memcpy(many + (size_t)(2 * i), "1,", 2);
  /* An array of ids takes a value each, but not more than a document may have. */
  size_t each = sizeof(json_t), few = json_memory_bound(many, 2000, &json_limits_request);
  ASSERT_GE(few, 1000 * each);
  ASSERT_LE(few, 1100 * each);
  ASSERT_LE(json_memory_bound(many, 2 * IDS, &json_limits_request), 1000100 * each);
  free(many);
}
