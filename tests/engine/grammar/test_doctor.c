/* test_doctor.c: what the doctor says of a schema is what a compilation does with it. */
#include "engine/grammar/doctor.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(doctor, .timeout = 60);

typedef struct report {
  json_doc_t *doc, *schema;
  buffer_t text;
  int code;
} report_t;

static report_t report_of(const char *schema, bool strict) {
  report_t report = {0};
  inferd_error_t error = {0};
  grammar_account_t account = {0};
  int code = json_parse(schema, strlen(schema), &json_limits_request, &report.schema, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", schema, error.message);
  grammar_source_t source = {
      .kind = GRAMMAR_JSON_SCHEMA, .schema = json_root(report.schema), .strict = strict};
  report.code = grammar_examine(&source, NULL, &account, &report.text, &error);
  ASSERT_EQ_FOR(report.code, 0, "%s: %s", schema, error.message);
  code =
      json_parse(report.text.data, report.text.length, &json_limits_request, &report.doc, &error);
  ASSERT_EQ_FOR(code, 0, "%s: %s", schema, error.message);
  return report;
}

static void report_free(report_t *report) {
  json_free(report->doc);
  json_free(report->schema);
  buffer_free(&report->text);
}

/* The members of a row of the report, "a,b" for a list. */
static void member_text(const json_t *row, const char *name, buffer_t *out) {
  const json_t *value = json_get(row, name);
  cr_assert_not_null(value, "%s", name);
  const char *comma = "";
  if (value->type == JSON_STRING) buffer_append(out, value->text, value->length);
  if (value->type != JSON_ARRAY) return;
  JSON_EACH(item, value) {
    buffer_text(out, comma);
    buffer_append(out, item->text, item->length);
    comma = ",";
  }
}

static void expect_rows(const char *schema, const char *list, const char *const *names,
                        const char *rows) {
  report_t report = report_of(schema, false);
  buffer_t found = {0};
  JSON_EACH(row, json_get(json_root(report.doc), list)) {
    for (int i = 0; names[i] != NULL; i++) {
      member_text(row, names[i], &found);
      buffer_char(&found, ' ');
    }
    buffer_char(&found, '\n');
  }
  buffer_char(&found, '\0');
  ASSERT_STR_EQ_FOR(found.data, rows, "%s", schema);
  buffer_free(&found);
  report_free(&report);
}

#define DRAFT_7 "\"$schema\":\"http://json-schema.org/draft-07/schema#\""

/* A request names the first refusal, the doctor all of them. */
Test(doctor, every_refusal_has_its_place) {
  static const char *const names[] = {"pointer", "keyword", NULL};
  static const struct {
    const char *schema, *rows;
  } rows[] = {
      {"{\"type\":\"object\",\"title\":\"t\"}", ""},
      {"true", ""},
      {"{\"properties\":{\"a\":{\"items\":{\"type\":\"string\"},\"type\":\"array\","
       "\"uniqueItems\":true},\"b~/c\":{\"extends\":{}},\"d\":{\"minLenght\":1},"
       "\"e\":{\"minLength\":-1}}}",
       "/properties/a uniqueItems \n/properties/b~0~1c extends \n/properties/d minLenght \n"
       "/properties/e/minLength minLength \n"},
      {"{\"anyOf\":[{\"type\":\"text\"},{\"not\":{\"divisibleBy\":3}},{\"type\":\"null\"}]}",
       "/anyOf/0/type type \n/anyOf/1/not divisibleBy \n"},
      {"{\"$ref\":\"http://x/y\"}", "/$ref $ref \n"},
      {"{\"$schema\":\"http://x/y\"}", "/$schema $schema \n"},
      {"{\"required\":[\"a\"],\"properties\":{\"a\":false},\"type\":\"object\"}", "  \n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_rows(rows[i].schema, "refused", names, rows[i].rows);
}

Test(doctor, every_place_says_what_is_enforced) {
  static const char *const names[] = {"pointer", "enforced", "annotations", "ignored", NULL};
  static const struct {
    const char *schema, *rows;
  } rows[] = {
      {"{\"type\":\"object\",\"title\":\"t\",\"odd\":1,\"x-own\":1,\"required\":null,"
       "\"properties\":{\"a\":{\"type\":\"string\",\"format\":\"int32\"}},"
       "\"additionalProperties\":{\"format\":\"date\"}}",
       " type,properties,additionalProperties title,x-own odd \n/properties/a type  format \n"
       "/additionalProperties format   \n"},
      {"{" DRAFT_7 ",\"$ref\":\"#/definitions/a\",\"type\":\"object\",\"definitions\":{\"a\":"
       "{\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}}}",
       " $ref $schema,definitions type \n/definitions/a items,additionalItems   \n"
       "/definitions/a/items/0 type   \n"},
      {"{\"items\":{\"type\":\"null\"},\"additionalItems\":false}",
       " items  additionalItems \n/items type   \n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_rows(rows[i].schema, "places", names, rows[i].rows);
}

/* The verdict and its words are those of a compilation, for every schema of the list. */
Test(doctor, it_says_what_a_request_is_told) {
  static const char *const schemas[] = {
      "{\"type\":\"object\"}",
      "{\"uniqueItems\":true}",
      "{\"$ref\":\"http://x/y\"}",
      "{\"$schema\":\"http://x/y\"}",
      "{\"pattern\":\"(\"}",
      "{\"pattern\":\"a{9000}\"}",
      "3",
      "{\"not\":{\"enum\":[[1]]}}",
      "{\"multipleOf\":0.00001}",
      "{\"allOf\":[{\"extends\":1}]}",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\"}}}",
      "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"],"
      "\"additionalProperties\":false}"};
  rig_t *rig = rig_new();
  for (size_t i = 0; i < 2 * sizeof schemas / sizeof *schemas; i++) {
    bool strict = i % 2 == 1;
    const char *schema = schemas[i / 2];
    int code = strict ? rig_strict(rig, schema) : rig_schema(rig, schema);
    report_t report = report_of(schema, strict);
    const json_t *root = json_root(report.doc);
    bool accepted = false;
    cr_assert(json_bool(json_get(root, "accepted"), &accepted));
    ASSERT_EQ_FOR(accepted, code == 0, "%s", schema);
    const json_t *message = json_get(json_get(root, "error"), "message");
    if (code != 0) cr_assert(json_equals(message, rig->error.message), "%s", schema);
    bool listed = json_root(report.schema)->type != JSON_OBJECT;
    JSON_EACH(row, json_get(root, "refused"))
    listed = listed || json_equals(json_get(row, "message"), rig->error.message);
    ASSERT_EQ_FOR(listed, code != 0 || json_root(report.schema)->type != JSON_OBJECT, "%s", schema);
    report_free(&report);
  }
  rig_free(rig);
}

/* Ten thousand places are searched for a second at most, and the report says that it is cut. */
Test(doctor, a_large_schema_ends) {
  buffer_t text = {0};
  buffer_text(&text, "{\"properties\":{");
  for (int i = 0; i < 3000; i++) {
    char member[128];
    snprintf(member, sizeof member, "%s\"a%d\":{\"type\":\"string\",\"minLength\":-1}",
             i > 0 ? "," : "", i);
    buffer_text(&text, member);
  }
  buffer_text(&text, "}}");
  buffer_char(&text, '\0');
  report_t report = report_of(text.data, false);
  bool complete = false, accepted = true;
  cr_assert(json_bool(json_get(json_root(report.doc), "complete"), &complete));
  cr_assert(json_bool(json_get(json_root(report.doc), "accepted"), &accepted));
  cr_assert(!accepted);
  cr_assert(json_get(json_root(report.doc), "refused")->count > 0);
  cr_assert(complete == (json_get(json_root(report.doc), "refused")->count == 3000));
  report_free(&report);
  buffer_free(&text);
}

/* Each place names the whole way to it, so long names are in the pointers of all places in them:
 * the pointers of all end at the size of a report. */
Test(doctor, long_names_around_many_places_take_no_memory_for_each) {
  enum { NAME = 256, DEEP = 28, PLACES = 9000 }; /* names and depth as the reader has them */
  buffer_t text = {0};
  struct rusage before, after;
  for (int level = 0; level < DEEP; level++) {
    buffer_text(&text, "{\"properties\":{\"");
    for (int i = 0; i < NAME; i++) buffer_char(&text, '~'); /* two bytes of a pointer */
    buffer_text(&text, "\":");
  }
  buffer_text(&text, "{\"properties\":{");
  for (int i = 0; i < PLACES; i++) {
    char member[64];
    snprintf(member, sizeof member, "%s\"a%d\":{\"minLength\":-1}", i > 0 ? "," : "", i);
    buffer_text(&text, member);
  }
  buffer_text(&text, "}}");
  for (int level = 0; level < DEEP; level++) buffer_text(&text, "}}");
  buffer_char(&text, '\0');
  getrusage(RUSAGE_SELF, &before);
  report_t report = report_of(text.data, false);
  getrusage(RUSAGE_SELF, &after);
  bool complete = true;
  cr_assert(json_bool(json_get(json_root(report.doc), "complete"), &complete));
  cr_assert(!complete);
  /* KiB: the compilation alone takes 65 MiB; 131 MiB with the pointers of all places. */
  ASSERT_LT(after.ru_maxrss - before.ru_maxrss, 100 * 1024);
  report_free(&report);
  buffer_free(&text);
}
