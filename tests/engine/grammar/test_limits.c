/* test_limits.c: hostile constraints end in an error with a reason, soon, and harm nobody. */
#include "engine/grammar/compile.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `open` count times, `middle`, `close` count times. */
static char *nest(const char *open, int count, const char *middle, const char *close) {
  size_t length = (strlen(open) + strlen(close)) * (size_t)count + strlen(middle) + 1, at = 0;
  char *text = malloc(length);
  cr_assert_not_null(text);
  for (int i = 0; i < 2 * count + 1; i++) {
    const char *part = i < count ? open : i == count ? middle : close;
    memcpy(text + at, part, strlen(part));
    at += strlen(part);
  }
  text[at] = 0;
  return text;
}

static void expect_text(rig_t *rig, grammar_kind_t kind, char *text, const grammar_limits_t *limits,
                        int code, const char *says) {
  grammar_source_t source = {.kind = kind, .param = "p", .text = text, .length = strlen(text)};
  ASSERT_EQ_FOR(rig_compile(rig, &source, limits), code, "%s", rig->error.message);
  cr_assert_not_null(strstr(rig->error.message, says), "'%s' is not in '%s'", says,
                     rig->error.message);
  free(text);
}

/* A stack overflow elsewhere: sixty thousand nested groups. */
Test(limits, nested_groups) {
  rig_t *rig = rig_new();
  grammar_limits_t wide = grammar_limits_default;
  wide.pattern_bytes_max = wide.grammar_bytes_max = 1 << 20;
  expect_text(rig, GRAMMAR_REGEX, nest("(", 60000, "a", ")"), &wide, ERR_BAD_REQUEST, "deeper");
  expect_text(rig, GRAMMAR_REGEX, nest("(?:", 60000, "a", ")*"), &wide, ERR_BAD_REQUEST, "deeper");
  expect_text(rig, GRAMMAR_REGEX, nest("(", 60000, "a", ")"), NULL, ERR_BAD_REQUEST, "bytes");
  char *grammar = nest("(", 60000, "\"a\"", ")");
  char *whole = malloc(strlen(grammar) + 16);
  snprintf(whole, strlen(grammar) + 16, "root ::= %s", grammar);
  free(grammar);
  expect_text(rig, GRAMMAR_EBNF, whole, &wide, ERR_BAD_REQUEST, "deeper");
  rig_free(rig);
}

/* A crash elsewhere: a sequence without anything in it. */
Test(limits, empty_sequences) {
  rig_t *rig = rig_new();
  static const char *const patterns[] = {"", "()", "(|)", "a{0}", "(?:)*", "^$"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    ASSERT_EQ_FOR(rig_text(rig, GRAMMAR_REGEX, patterns[i]), 0, "%s", rig->error.message);
    cr_assert(rig_accepts(rig, ""));
    cr_assert(grammar_matcher_is_finished(rig->matcher));
    cr_assert_not(rig_accepts(rig, "a"));
  }
  ASSERT_EQ(rig_text(rig, GRAMMAR_EBNF, "root ::= "), 0);
  cr_assert(rig_accepts(rig, ""));
  ASSERT_EQ(rig_text(rig, GRAMMAR_EBNF, "root ::= () (| \"a\")"), 0);
  cr_assert(rig_accepts(rig, ""));
  cr_assert(rig_accepts(rig, "a"));
  grammar_source_t nothing = {.kind = GRAMMAR_SEQUENCE};
  ASSERT_EQ(rig_compile(rig, &nothing, NULL), 0);
  nothing.kind = GRAMMAR_ALTERNATIVES;
  ASSERT_EQ(rig_compile(rig, &nothing, NULL), ERR_INVALID_VALUE);
  rig_free(rig);
}

/* Long descriptions are most of a large schema. */
Test(limits, bytes_of_a_schema) {
  rig_t *rig = rig_new();
  for (int kib = 255; kib <= 257; kib += 2) {
    char *text = nest("", 0, "{\"description\":\"\"}", ""), *whole;
    size_t more = (size_t)kib << 10, length = strlen(text);
    whole = malloc(length + more + 1);
    memcpy(whole, text, length - 2);
    memset(whole + length - 2, 'd', more);
    memcpy(whole + length - 2 + more, "\"}", 3);
    ASSERT_EQ_FOR(rig_schema(rig, whole), kib == 255 ? 0 : ERR_BAD_REQUEST, "%s",
                  rig->error.message);
    free(whole);
    free(text);
  }
  rig_free(rig);
}

/* Minutes of compile time elsewhere: an enum as large as the limits allow. */
Test(limits, large_enums_compile) {
  rig_t *rig = rig_new();
  size_t length = 0, capacity = 64 << 10;
  char *text = malloc(capacity);
  length += (size_t)snprintf(text, capacity, "{\"enum\":[");
  for (int i = 0; i < 1500; i++) {
    length += (size_t)snprintf(text + length, capacity - length, "%s\"v%d\"", i ? "," : "", i * 7);
  }
  snprintf(text + length, capacity - length, "]}");
  ASSERT_EQ_FOR(rig_schema(rig, text), 0, "%s", rig->error.message);
  cr_assert(rig_accepts(rig, "\"v7\""));
  cr_assert(rig_accepts(rig, "\"v10493\""));
  cr_assert_not(rig_accepts(rig, "\"v8\""));
  free(text);
  rig_free(rig);
}

Test(limits, sizes_of_schemas) {
  rig_t *rig = rig_new();
  char *deep = nest("{\"items\":", 70, "{}", "}");
  ASSERT_EQ(rig_schema(rig, deep), ERR_BAD_REQUEST);
  cr_assert_not_null(strstr(rig->error.message, "nests deeper than 32"));
  free(deep);
  char *many = nest("1,", 10500, "1", "");
  char *schema = malloc(strlen(many) + 32);
  snprintf(schema, strlen(many) + 32, "{\"enum\":[%s]}", many);
  ASSERT_EQ(rig_schema(rig, schema), ERR_BAD_REQUEST);
  cr_assert_not_null(strstr(rig->error.message, "at most 10000"));
  free(many);
  free(schema);
  char *wide = nest("a", 70000, "", "");
  schema = malloc(strlen(wide) + 32);
  snprintf(schema, strlen(wide) + 32, "{\"const\":\"%s\"}", wide);
  ASSERT_EQ(rig_schema(rig, schema), ERR_BAD_REQUEST);
  cr_assert_not_null(strstr(rig->error.message, "bytes"));
  free(wide);
  free(schema);
  rig_free(rig);
}

/* What the machine lacks is not the client's fault. */
Test(limits, want_of_memory_is_no_bad_request) {
  inferd_error_t error = {0};
  compile_t compile = {.error = &error};
  if (setjmp(compile.give_up) == 0) compile_scratch(&compile, SIZE_MAX / 4, 1);
  ASSERT_EQ_FOR(error.code, ERR_NO_MEMORY, "%d: %s", error.code, error.message);
  compile.scratch = (arena_t){.limit = 64};
  if (setjmp(compile.give_up) == 0) compile_scratch(&compile, 65, 1);
  ASSERT_EQ_FOR(error.code, ERR_BAD_REQUEST, "%d: %s", error.code, error.message);
}

/* Three choices in each of nine conjuncts: 3^9 rules. */
Test(limits, products_of_alternatives) {
  rig_t *rig = rig_new();
  grammar_limits_t few = grammar_limits_default;
  few.rules_max = 5000;
  char text[4096];
  size_t at = (size_t)snprintf(text, sizeof text, "{\"allOf\":[");
  for (int i = 0; i < 12; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at,
                           "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d},{\"multipleOf\":%d}]}",
                           i ? "," : "", i, i + 50, i + 2);
  }
  snprintf(text + at, sizeof text - at, "]}");
  json_doc_t *doc;
  ASSERT_EQ(json_parse(text, strlen(text), &json_limits_request, &doc, &rig->error), 0);
  grammar_source_t source = {.kind = GRAMMAR_JSON_SCHEMA, .schema = json_root(doc)};
  ASSERT_EQ(rig_compile(rig, &source, &few), ERR_BAD_REQUEST);
  json_free(doc);
  rig_free(rig);
}

Test(limits, work_time_and_cancellation) {
  rig_t *rig = rig_new();
  grammar_limits_t none = grammar_limits_default, little = grammar_limits_default;
  none.compile_ns_max = 0;
  little.compile_work_max = 100000;
  static const char pattern[] = "(?:a|b)*a(?:a|b){12}"; /* more than 8,000 states */
  grammar_source_t source = {.kind = GRAMMAR_REGEX, .text = pattern, .length = sizeof pattern - 1};
  ASSERT_EQ(rig_compile(rig, &source, &none), ERR_OVERLOADED);
  cr_assert_not_null(strstr(rig->error.message, "processor time"));
  ASSERT_EQ(rig_compile(rig, &source, &little), ERR_BAD_REQUEST);
  cr_assert_not_null(strstr(rig->error.message, "100000 steps"));
  atomic_bool cancelled;
  atomic_init(&cancelled, true);
  grammar_account_t account = {.cancelled = &cancelled};
  ASSERT_EQ(grammar_compile(&source, rig->vocabulary, NULL, &account, &rig->grammar, &rig->error),
            ERR_REQUEST_TIMEOUT);
  rig_free(rig);
}

/* Many constraints of one request share one account; the same one costs the same every time. */
Test(limits, one_account_for_a_request) {
  rig_t *rig = rig_new();
  static const char pattern[] = "(?:a|b)*a(?:a|b){8}";
  grammar_source_t source = {.kind = GRAMMAR_REGEX, .text = pattern, .length = sizeof pattern - 1};
  grammar_account_t account = {0};
  uint64_t once = 0;
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(grammar_compile(&source, rig->vocabulary, NULL, &account, &rig->grammar, &rig->error),
              0);
    grammar_unref(rig->grammar);
    rig->grammar = NULL;
    if (i == 0) once = account.work;
    ASSERT_EQ(account.work, (uint64_t)(i + 1) * once);
  }
  cr_assert_gt(once, 10000);
  cr_assert_gt(account.cpu_ns, 0);
  grammar_limits_t limits = grammar_limits_default;
  limits.compile_work_max = 2 * once;
  ASSERT_EQ(
      grammar_compile(&source, rig->vocabulary, &limits, &account, &rig->grammar, &rig->error),
      ERR_BAD_REQUEST);
  rig_free(rig);
}

/* An ambiguity that needs more threads than there are is refused, wherever in a text it is, with
 * the rule that has it. */
enum { AMBIGUOUS = THREADS_MAX + 1 };

static int ambiguous(rig_t *rig, const char *prefix) {
  char text[AMBIGUOUS * 48];
  size_t at = (size_t)snprintf(text, sizeof text, "root ::= \"%s\" many\nmany ::= ", prefix);
  for (int i = 0; i < AMBIGUOUS; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "%sr%d", i ? " | " : "", i);
  }
  for (int i = 0; i < AMBIGUOUS; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "\nr%d ::= \"a\" (r%d | \"b%d\")", i, i, i);
  }
  return rig_text(rig, GRAMMAR_EBNF, text);
}

Test(limits, too_many_threads) {
  rig_t *rig = rig_new();
  ASSERT_EQ(ambiguous(rig, ""), ERR_CONSTRAINT_TOO_EXPENSIVE);
  cr_assert_not_null(strstr(rig->error.message, "ambiguous"), "%s", rig->error.message);
  ASSERT_EQ(ambiguous(rig, "xy"), ERR_CONSTRAINT_TOO_EXPENSIVE);
  cr_assert_not_null(strstr(rig->error.message, "in the rule 'many'"), "%s", rig->error.message);
  rig_free(rig);
}

/* A grammar only uses bytes that the vocabulary can write alone. */
static const char *letters(const void *context, int32_t id, size_t *length) {
  (void)context;
  static const char *const tokens[] = {"a", "b", "\"", "ab", "{", "}", "\"c"};
  *length = id < 7 ? strlen(tokens[id]) : 0;
  return id < 7 ? tokens[id] : "";
}

Test(limits, poor_vocabularies) {
  rig_t *rig = rig_new();
  grammar_vocabulary_t *full = rig->vocabulary;
  ASSERT_EQ(grammar_vocabulary_new(letters, NULL, 7, 8, &rig->vocabulary, &rig->error), 0);
  ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, "[a-z]+c?"), 0);
  rig_start(rig);
  int32_t stop = 7;
  ASSERT_EQ(grammar_matcher_fill(rig->matcher, rig->scratch, &stop, 1, rig->row), 0);
  ASSERT_EQ(rig->row[0], 0xBu); /* a, b, ab */
  ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, "xyz"), ERR_INVALID_VALUE);
  ASSERT_EQ(rig_schema(rig, "{\"type\":\"string\"}"), 0);
  ASSERT_EQ(rig_schema(rig, "{\"type\":\"integer\"}"), ERR_INVALID_VALUE);
  ASSERT_EQ(rig_schema(rig, "{\"type\":\"object\",\"properties\":{\"c\":{}},\"required\":[\"c\"]}"),
            ERR_INVALID_VALUE);
  grammar_vocabulary_free(full);
  rig_free(rig);
}

/* One grammar, many owners. */
Test(limits, references_are_counted) {
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_text(rig, GRAMMAR_REGEX, "a"), 0);
  ASSERT_EQ(grammar_ref(rig->grammar), rig->grammar);
  ASSERT_GT(grammar_bytes(rig->grammar), 100u);
  grammar_unref(rig->grammar);
  cr_assert(rig_accepts(rig, "a"));
  grammar_unref(NULL);
  rig_free(rig);
}
