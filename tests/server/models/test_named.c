/* test_named.c: the model that a body names, against the JSON reader of the whole body; that of a
 * form, against the reader of forms. */
#include "tests/expect.h"

#include "engine/base/json.h"
#include "server/http/multipart.h"
#include "server/models/named.h"
#include "tests/random.h"

static named_t named;
static inferd_error_t error;

/* The whole pass, in steps of so many bytes. */
static int named_read(const char *text, size_t length, size_t most) {
  named_scan_t scan;
  named_begin(&scan, text, length);
  int code;
  do {
    size_t at = scan.at;
    code = named_step(&scan, most, &error);
    if (code == NAMED_MORE) {
      ASSERT_EQ(scan.at, at + most);
    } else {
      ASSERT_LE(scan.at, at + most + 1); /* a comma */
    }
  } while (code == NAMED_MORE);
  named = scan.named;
  return code;
}

static int read_text(const char *text) {
  error = (inferd_error_t){0};
  return named_read(text, strlen(text), 1 << 20);
}

static void expect_model(const char *text, const char *model, bool stream) {
  ASSERT_EQ_FOR(read_text(text), 0, "%s: %s", text, error.message);
  EXPECT_STR_EQ(named.model, model);
  EXPECT_EQ_FOR(named.stream, stream, "%s", text);
}

Test(named, the_outermost_member_counts) {
  expect_model("{\"model\":\"a\"}", "a", false);
  expect_model(" {\"stream\" : true , \"model\" : \"a/b:c\" } ", "a/b:c", true);
  expect_model("\xef\xbb\xbf{\"model\":\"a\"}", "a", false);
  expect_model(
      "{\"x\":{\"model\":\"b\",\"stream\":true},\"y\":[{\"model\":\"c\"}],\"model\":\"a\"}", "a",
      false);
  expect_model("{\"prompt\":\"\\\"model\\\":\\\"b\\\"}\",\"model\":\"a\"}", "a", false);
  expect_model("{\"model\":\"\\u0061\\/b\"}", "a/b", false);
  expect_model("{\"mod\\u0065l\":\"a\",\"stream\":false}", "a", false);
  expect_model("{\"model\":\"a\",\"model\":\"b\"}", "b", false);
}

Test(named, what_is_missing_or_wrong_is_said) {
  EXPECT_EQ(read_text("{}"), ERR_MISSING_PARAMETER);
  EXPECT_STR_EQ(error.param, "model");
  EXPECT_EQ(read_text("{\"model\":null}"), ERR_MISSING_PARAMETER);
  EXPECT_EQ(read_text("{\"model\":\"\"}"), ERR_MISSING_PARAMETER);
  EXPECT_EQ(read_text("{\"model\":7}"), ERR_INVALID_TYPE);
  EXPECT_EQ(read_text("[]"), ERR_INVALID_JSON);
  EXPECT_EQ(read_text(""), ERR_INVALID_JSON);
  EXPECT_EQ(read_text("{\"model\":\"a\""), ERR_INVALID_JSON);
  EXPECT_EQ(read_text("{\"model\":\"a"), ERR_INVALID_JSON);
  EXPECT_EQ(read_text("{\"model\":\"a\\"), ERR_INVALID_JSON);
  char text[400] = "{\"model\":\"";
  for (int length = 255; length <= 257; length++) { /* 256 is the most */
    memset(text + 10, 'x', (size_t)length);
    strcpy(text + 10 + length, "\"}");
    EXPECT_EQ_FOR(read_text(text), length <= 256 ? 0 : ERR_MODEL_NOT_FOUND, "%d", length);
  }
}

/* Nothing that is too long for a name is parsed, and no pass is longer than its step. */
Test(named, large_values_are_passed_in_steps) {
  enum { BYTES = 1 << 20 };
  static const struct {
    const char *begin, *end;
    char fill;
    int code;
  } rows[] = {{"{\"model\":[", "]}", '[', ERR_INVALID_JSON},
              {"{\"model\":[", "1]}", ' ', ERR_INVALID_TYPE},
              {"{\"model\":\"", "\"}", 'x', ERR_MODEL_NOT_FOUND},
              {"{\"x\":\"", "\",\"model\":\"a\"}", 'x', 0},
              {"{\"model\":\"a\"", "}", ' ', 0},
              {"", "{\"model\":\"a\"}", ' ', 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t begin = strlen(rows[i].begin), end = strlen(rows[i].end);
    char *text = malloc(begin + BYTES + end);
    memcpy(text, rows[i].begin, begin);
    memset(text + begin, rows[i].fill, BYTES);
    memcpy(text + begin + BYTES, rows[i].end, end);
    EXPECT_EQ_FOR(named_read(text, begin + BYTES + end, 4096), rows[i].code, "row %zu", i);
    free(text);
  }
}

/* Bytes that are drawn and bent never make it read beyond the text, and where the whole is JSON
 * with one model in it, both readers agree. */
Test(named, it_agrees_with_the_reader_of_the_whole) {
  static const char *const parts[] = {"{",          "}",         "[",          "]",    ",",
                                      ":",          "\"model\"", "\"stream\"", "true", "\"a\"",
                                      "\"b\\\"c\"", "1",         " ",          "null", "\"x\""};
  uint64_t random = 3;
  int agreed = 0;
  for (int round = 0; round < 200000; round++) {
    char text[200] = "{\"model\":\"a\",";
    int count = (int)(next_random(&random) % 12);
    for (int i = 0; i < count; i++)
      strcat(text, parts[next_random(&random) % (sizeof parts / sizeof *parts)]);
    strcat(text, "}");
    json_doc_t *doc = NULL;
    size_t length = strlen(text);
    char *exact = malloc(length); /* AddressSanitizer sees a read behind it */
    memcpy(exact, text, length);
    int code = named_read(exact, length, 1 + next_random(&random) % 9);
    if (json_parse(text, length, &json_limits_request, &doc, &error) == 0) {
      const json_t *stream = json_get(json_root(doc), "stream");
      ASSERT_EQ_FOR(code, 0, "%s", text);
      ASSERT_STR_EQ(named.model, "a");
      ASSERT_EQ_FOR(named.stream, stream != NULL && stream->type == JSON_TRUE, "%s", text);
      agreed++;
    }
    json_free(doc);
    free(exact);
  }
  EXPECT_LT(200, agreed);
}

/* ---- forms ---- */

#define FORM "multipart/form-data; boundary=b"
#define PART(name, rest, text)                                                                     \
  "--b\r\nContent-Disposition: form-data; name=\"" name "\"" rest "\r\n\r\n" text "\r\n"
#define END "--b--\r\n"

static int read_form(const char *type, const char *text, size_t length, size_t most) {
  named_scan_t scan;
  error = (inferd_error_t){0};
  int code = named_begin_form(&scan, type, text, length, &error);
  if (code != 0) return code;
  do {
    const size_t at = scan.at;
    code = named_step(&scan, most, &error);
    ASSERT_LE(scan.at, at + 2 * most + 4096 + MULTIPART_BOUNDARY_MAX);
  } while (code == NAMED_MORE);
  named = scan.named;
  return code;
}

static void expect_form(const char *text, int expected, const char *model, bool stream) {
  for (size_t most = 1; most < 40; most += 6) {
    ASSERT_EQ_FOR(read_form(FORM, text, strlen(text), most), expected, "%s: %s", text,
                  error.message);
    if (expected != 0) continue;
    EXPECT_STR_EQ(named.model, model);
    EXPECT_EQ_FOR(named.stream, stream, "%s", text);
  }
}

Test(named, a_form_names_its_model) {
  expect_form(PART("model", "", "a/b:c") END, 0, "a/b:c", false);
  expect_form(PART("file", "; filename=\"x\"", "\r\n--\r\nname=\"model\"")
                  PART("stream", "", "true") PART("model", "", "a") END,
              0, "a", true);
  expect_form(PART("stream", "", "false") PART("model", "", "a") END, 0, "a", false);
  expect_form(PART("model", "", "a") PART("stream", "", "True") END, 0, "a", false);
  expect_form(PART("prompt", "", "a") END, ERR_MISSING_PARAMETER, "", false);
  EXPECT_STR_EQ(error.param, "model");
  expect_form(PART("model", "", "") END, ERR_MISSING_PARAMETER, "", false);
  expect_form(PART("model", "; filename=\"x\"", "a") END, ERR_INVALID_TYPE, "", false);
  expect_form(PART("model", "", "a"), ERR_BAD_REQUEST, "", false);
  expect_form("{\"model\":\"a\"}", ERR_BAD_REQUEST, "", false);
  EXPECT_EQ(read_form("application/json", "{}", 2, 9), ERR_UNSUPPORTED_MEDIA_TYPE);
  EXPECT_EQ(read_form(NULL, "", 0, 9), ERR_UNSUPPORTED_MEDIA_TYPE);
  char name[300], text[400];
  for (int length = 255; length <= 257; length++) { /* 256 is the most */
    memset(name, 'x', sizeof name);
    snprintf(text, sizeof text, PART("model", "", "%.*s") END, length, name);
    EXPECT_EQ_FOR(read_form(FORM, text, strlen(text), 64), length <= 256 ? 0 : ERR_MODEL_NOT_FOUND,
                  "%d", length);
  }
}

/* A file of many bytes is passed in steps, boundaries that almost are ones among them. */
Test(named, large_files_are_passed_in_steps) {
  enum { BYTES = 1 << 20, STEP = 4096 };
  static const char begin[] =
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
  static const char end[] = "\r\n" PART("model", "", "a") END;
  const size_t length = sizeof begin - 1 + BYTES + sizeof end - 1;
  char *text = malloc(length);
  memcpy(text, begin, sizeof begin - 1);
  for (size_t i = 0; i < BYTES; i++) text[sizeof begin - 1 + i] = "\r\n--"[i % 4];
  memcpy(text + sizeof begin - 1 + BYTES, end, sizeof end - 1);
  named_scan_t scan;
  int steps = 0, code;
  ASSERT_EQ(named_begin_form(&scan, FORM, text, length, &error), 0);
  while ((code = named_step(&scan, STEP, &error)) == NAMED_MORE) steps++;
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  EXPECT_STR_EQ(scan.named.model, "a");
  EXPECT_LE(BYTES / STEP - 1, steps);
  EXPECT_LE(steps, BYTES / STEP + 2);
  free(text);
}

/* Forms that are drawn and bent: what the reader of the whole takes, the pass takes, with the same
 * model, whatever its steps. */
Test(named, it_agrees_with_the_reader_of_forms) {
  static const char *const parts[] = {PART("model", "", "b"),
                                      PART("stream", "", "true"),
                                      PART("x[]", "", "\r\n--"),
                                      PART("f", "; filename=\"g\"", "\r\n--"),
                                      "--b",
                                      "\r\n",
                                      "--b--\r\n",
                                      "name=\"model\"",
                                      "--"};
  uint64_t random = 5;
  int agreed = 0;
  for (int round = 0; round < 50000; round++) {
    char text[2000] = PART("model", "", "a");
    const int count = (int)(next_random(&random) % 8);
    for (int i = 0; i < count; i++)
      strcat(text, parts[next_random(&random) % (sizeof parts / sizeof *parts)]);
    strcat(text, END);
    const size_t length = strlen(text);
    char *exact = malloc(length); /* AddressSanitizer sees a read behind it */
    memcpy(exact, text, length);
    const int code = read_form(FORM, exact, length, 1 + next_random(&random) % 90);
    multipart_t form;
    if (multipart_read(FORM, exact, length, &form, &error) == 0) {
      const multipart_part_t *stream = multipart_find(&form, "stream");
      const multipart_part_t *model = multipart_find(&form, "model");
      ASSERT_EQ_FOR(code, 0, "%s", text);
      ASSERT_EQ(strlen(named.model), model->length);
      ASSERT_EQ(memcmp(named.model, model->bytes, model->length), 0);
      ASSERT_EQ(named.stream, stream != NULL && stream->length == 4);
      agreed++;
    }
    free(exact);
  }
  EXPECT_LT(2000, agreed);
}
