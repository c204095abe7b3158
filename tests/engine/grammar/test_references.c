/* test_references.c: $ref against $id, $anchor and JSON pointers, within one document. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

/* The examples of RFC 3986, sections 5.4.1 and 5.4.2, without fragments: base and reference give
 * the URI. Another URI is another document, which is refused. */
Test(references, examples_of_rfc_3986) {
  static const struct {
    const char *reference, *uri;
  } rows[] = {
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {";x", "http://a/b/c/;x"},
      {"g;x", "http://a/b/c/g;x"},
      {"g;x?y", "http://a/b/c/g;x?y"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../", "http://a/"},
      {"../../g", "http://a/g"},
      {"../../../g", "http://a/g"},
      {"../../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {".g", "http://a/b/c/.g"},
      {"g..", "http://a/b/c/g.."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {"g;x=1/../y", "http://a/b/c/y"},
      {"g?y/./x", "http://a/b/c/g?y/./x"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
  };
  rig_t *rig = rig_new();
  char text[400];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int other = 0; other < 2; other++) {
      snprintf(text, sizeof text,
               "{\"$id\":\"http://a/b/c/d;p?q\",\"$ref\":\"%s\",\"$defs\":{\"t\":{\"$id\":\"%s%s\","
               "\"const\":1}}}",
               rows[i].reference, rows[i].uri, other ? "x" : "");
      int code = rig_schema(rig, text);
      ASSERT_EQ_FOR(code, other ? ERR_UNSUPPORTED_PARAMETER : 0, "%s: %s", text,
                    rig->error.message);
      if (other) cr_assert_not_null(strstr(rig->error.message, "within the document"));
      if (!other) cr_assert(rig_accepts(rig, "1") && !rig_accepts(rig, "2"), "%s", text);
    }
  }
  rig_free(rig);
}

#define DRAFT(name) "\"$schema\":\"http://json-schema.org/" name "/schema#\""

Test(references, ids_and_anchors) {
  static const struct {
    const char *schema, *good, *bad;
  } rows[] = {
      /* without a base of the root, by a relative name */
      {"{\"$ref\":\"item.json\",\"$defs\":{\"i\":{\"$id\":\"item.json\",\"const\":1}}}", "1", "2"},
      {"{\"$ref\":\"item.json#/$defs/x\",\"$defs\":{\"i\":{\"$id\":\"item.json\",\"$defs\":{\"x\":{"
       "\"const\":1}}},\"x\":{\"const\":2}}}",
       "1", "2"},
      /* a pointer inside a schema with an $id starts there, outside at the root */
      {"{\"items\":{\"$id\":\"i\",\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"const\":1}}},"
       "\"$defs\":{\"x\":{\"const\":2}},\"type\":\"array\"}",
       "[1]", "[2]"},
      {"{\"items\":{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"const\":1}}},"
       "\"$defs\":{\"x\":{\"const\":2}},\"type\":\"array\"}",
       "[2]", "[1]"},
      {"{\"type\":\"array\",\"items\":{\"$id\":\"i\",\"enum\":[1,[1]],\"type\":[\"integer\"]},\"$"
       "defs\":"
       "{\"self\":{\"$ref\":\"#\"}}}",
       "[1]", "[[1]]"},
      /* '#' is the innermost schema with an $id */
      {"{\"type\":\"object\",\"additionalProperties\":{\"$id\":\"list\",\"type\":\"array\","
       "\"items\":{"
       "\"$ref\":\"#\"}}}",
       "{\"a\":[[],[[]]]}", "{\"a\":[{}]}"},
      /* nested bases */
      {"{\"$id\":\"http://x/root.json\",\"$ref\":\"dir/b.json\",\"$defs\":{\"a\":{\"$id\":\"dir/"
       "a.json\","
       "\"$defs\":{\"b\":{\"$id\":\"b.json\",\"const\":1}}}}}",
       "1", "2"},
      {"{\"$id\":\"http://x/root.json\",\"$ref\":\"/dir/b.json#\",\"$defs\":{\"b\":{\"$id\":"
       "\"http://x/dir/b.json#\",\"const\":1}}}",
       "1", "2"},
      /* anchors */
      {"{\"$ref\":\"#one\",\"$defs\":{\"a\":{\"$anchor\":\"one\",\"const\":1},\"b\":{\"$anchor\":"
       "\"two\","
       "\"const\":2}}}",
       "1", "2"},
      {"{\"$ref\":\"i#one\",\"$defs\":{\"a\":{\"$anchor\":\"one\",\"const\":2},\"b\":{\"$id\":"
       "\"i\","
       "\"not-a-keyword\":0,\"$defs\":{\"c\":{\"$anchor\":\"one\",\"const\":1}}}}}",
       "1", "2"},
      {"{" DRAFT(
           "draft-07") ",\"$ref\":\"#one\",\"definitions\":{\"a\":{\"$id\":\"#one\",\"const\":1}}}",
       "1", "2"},
      {"{" DRAFT(
           "draft-04") ",\"$ref\":\"#one\",\"definitions\":{\"a\":{\"id\":\"#one\",\"enum\":[1]}}}",
       "1", "2"},
      {"{" DRAFT("draft-04") ",\"$ref\":\"i\",\"definitions\":{\"a\":{\"id\":\"i\",\"enum\":[1]}}}",
       "1", "2"},
      /* a name is no keyword where it is the name of a property, or a value */
      {"{\"properties\":{\"$id\":{\"const\":1},\"$anchor\":{\"const\":2}},\"type\":\"object\"}",
       "{\"$id\":1,\"$anchor\":2}", "{\"$id\":2}"},
      {"{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"enum\":[{\"$id\":\"i\"},1]}}}",
       "{\"$id\":\"i\"}", "2"},
      {"{\"anyOf\":[{" DRAFT("draft-07") ",\"$id\":\"i\",\"const\":1}]," DRAFT("draft-07") "}", "1",
       "2"},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(rig_schema(rig, rows[i].schema), 0, "%s: %s", rows[i].schema, rig->error.message);
    cr_assert(rig_accepts(rig, rows[i].good), "%s", rows[i].schema);
    cr_assert(!rig_accepts(rig, rows[i].bad), "%s", rows[i].schema);
  }
  rig_free(rig);
}

#define SHORT_TEXT "\"definitions\":{\"s\":{\"type\":\"string\",\"maxLength\":3}}}"

/* Drafts 4 to 7 ignore what stands beside a reference, later ones and a strict schema do not. */
Test(references, keywords_beside_them) {
  static const char *const older[] = {"draft-04", "draft-06", "draft-07"};
  static const char schema[] = "{\"$schema\":\"http://json-schema.org/%s/schema#\",\"$ref\":\"#/"
                               "definitions/s\",\"title\":\"t\",\"minLength\":2," SHORT_TEXT;
  static const row_t rows[] = {
      {"{\"$ref\":\"#/definitions/s\",\"minLength\":2," SHORT_TEXT, {"\"ab\""}, {"\"a\"", "1"}},
      {"{\"$schema\":\"https://json-schema.org/draft/2019-09/schema\",\"not\":{\"$ref\":\"#/"
       "definitions/s\",\"minLength\":2}," SHORT_TEXT,
       {"\"a\"", "\"abcd\"", "1"},
       {"\"ab\""}},
      {"{" DRAFT("draft-07") ",\"not\":{\"$ref\":\"#/definitions/s\",\"minLength\":2}," SHORT_TEXT,
       {"\"abcd\"", "1"},
       {"\"a\"", "\"ab\""}},
      /* both branches hold, however long the text is */
      {"{" DRAFT(
           "draft-07") ",\"type\":[\"string\",\"null\"],\"oneOf\":[{\"$ref\":\"#/definitions/s\","
                       "\"maxLength\":1},{\"$ref\":\"#/definitions/s\",\"minLength\":2},{"
                       "\"type\":\"null\"}]," SHORT_TEXT,
       {"null"},
       {"\"a\"", "\"ab\""}},
      /* the reference is one to the root's definition */
      {"{" DRAFT("draft-07") ",\"anyOf\":[{\"$id\":\"http://x/y\",\"$ref\":\"#/definitions/s\","
                             "\"definitions\":{\"s\":{\"const\":1}}}]," SHORT_TEXT,
       {"\"a\""},
       {"1"}},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
    char text[512];
    snprintf(text, sizeof text, schema, older[i]);
    ASSERT_EQ_FOR(rig_schema(rig, text), 0, "%s", rig->error.message);
    cr_expect(rig_accepts(rig, "\"a\""), "%s", text);
    cr_expect(!rig_accepts(rig, "\"abcd\""), "%s", text);
    ASSERT_STR_EQ(grammar_ignored(rig->grammar), "$ref:minLength");
  }
  rig_free(rig);
  CHECK_ROWS(rows);
}

/* An id that two schemas have, and another dialect below the root, matter only where they decide.
 */
Test(references, what_decides_nothing) {
  static const row_t rows[] = {
      {"{\"$defs\":{\"a\":{\"$id\":\"i\"},\"b\":{\"$id\":\"i\",\"$ref\":\"#/"
       "x\",\"x\":{\"const\":1}}},"
       "\"$ref\":\"#/$defs/b\"}",
       {"1"},
       {"2"}},
      {"{\"type\":\"array\",\"items\":{" DRAFT("draft-04") ",\"items\":{\"enum\":[1]},"
                                                           "\"type\":\"array\",\"minItems\":1}}",
       {"[[1]]"},
       {"[[2]]", "[[]]"}},
  };
  CHECK_ROWS(rows);
}

Test(references, what_is_refused) {
  static const struct {
    const char *schema;
    int code;
    const char *says;
  } rows[] = {
      {"{\"$ref\":\"other.json#/x\"}", ERR_UNSUPPORTED_PARAMETER, "'other.json#/x'"},
      {"{\"$ref\":\"http://json-schema.org/draft-07/schema#\"}", ERR_UNSUPPORTED_PARAMETER,
       "/$ref"},
      {"{\"$ref\":\"#no\"}", ERR_INVALID_VALUE, "'#no' points nowhere"},
      {"{\"$ref\":\"i#no\",\"$defs\":{\"i\":{\"$id\":\"i\"}}}", ERR_INVALID_VALUE,
       "points nowhere"},
      {"{\"$ref\":\"#one\",\"items\":{\"$id\":\"i\",\"$anchor\":\"one\"}}", ERR_INVALID_VALUE,
       "points nowhere"},
      {"{\"$defs\":{\"a\":{\"$id\":\"i\"},\"b\":{\"$id\":\"./i\"}},\"$ref\":\"i\"}",
       ERR_INVALID_VALUE, "'i' is the name of two schemas"},
      {"{\"$defs\":{\"a\":{\"$id\":\"i#x\"}}}", ERR_INVALID_VALUE, "has a fragment"},
      {"{\"$ref\":\"#/vendor/a\",\"vendor\":{\"a\":{\"$id\":\"i\",\"const\":1}}}",
       ERR_UNSUPPORTED_PARAMETER, "'/vendor/a': '$id'"},
      {"{\"items\":{" DRAFT("draft-07") ",\"$id\":\"i\"}}", ERR_UNSUPPORTED_PARAMETER, "'$schema'"},
      {"{" DRAFT(
           "draft-07") ",\"items\":{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\","
                       "\"anyOf\":[{\"$ref\":\"#\",\"type\":\"null\"}]}}",
       ERR_UNSUPPORTED_PARAMETER, "'$schema'"},
      {"{\"items\":{" DRAFT("draft-04") ",\"not\":{\"exclusiveMinimum\":1}}}",
       ERR_UNSUPPORTED_PARAMETER, "'$schema'"},
      {"{\"items\":{\"$schema\":1}}", ERR_UNSUPPORTED_PARAMETER, "/items/$schema"},
  };
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(rig_schema(rig, rows[i].schema), rows[i].code, "%s: %s", rows[i].schema,
                  rig->error.message);
    cr_assert_not_null(strstr(rig->error.message, rows[i].says), "%s", rig->error.message);
  }
  rig_free(rig);
}

/* Many schemas with an $id and many references cost work in proportion to both, within the bound.
 */
Test(references, many_bases) {
  rig_t *rig = rig_new();
  enum { COUNT = 300, BYTES = 64 * COUNT };
  static char text[BYTES];
  size_t used = (size_t)snprintf(text, BYTES, "{\"prefixItems\":[");
  for (int i = 0; i < COUNT; i++)
    used += (size_t)snprintf(text + used, BYTES - used, "%s{\"$ref\":\"i%d\"}", i ? "," : "", i);
  used += (size_t)snprintf(text + used, BYTES - used, "],\"$defs\":{");
  for (int i = 0; i < COUNT; i++)
    used += (size_t)snprintf(text + used, BYTES - used, "%s\"d%d\":{\"$id\":\"i%d\",\"const\":%d}",
                             i ? "," : "", i, i, i);
  snprintf(text + used, BYTES - used, "}}");
  ASSERT_EQ_FOR(rig_schema(rig, text), 0, "%s", rig->error.message);
  cr_assert(rig_accepts(rig, "[0,1,2,3]"));
  cr_assert(!rig_accepts(rig, "[0,2]"));
  rig_free(rig);
}
