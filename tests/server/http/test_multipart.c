/* test_multipart.c: bodies of multipart/form-data: what SDKs write is read, all else is refused. */
#include "tests/expect.h"

#include "engine/base/util.h"
#include "server/http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "multipart/form-data; boundary=xyz"
#define PART(name, rest, text)                                                                     \
  "--xyz\r\nContent-Disposition: form-data; name=\"" name "\"" rest "\r\n\r\n" text "\r\n"
#define END "--xyz--\r\n"

static multipart_t form;
static inferd_error_t error;

static int read_form(const char *type, const char *body) {
  error = (inferd_error_t){0};
  /* an exact copy, so that a read behind it is found */
  size_t length = strlen(body);
  char *copy = malloc(length + (length == 0));
  memcpy(copy, body, length);
  int code = multipart_read(type, copy, length, &form, &error);
  for (int i = 0; i < form.count && code == 0; i++)
    form.parts[i].bytes = body + (form.parts[i].bytes - copy);
  free(copy);
  return code;
}

static void expect_part(const char *name, const char *file, const char *text) {
  const multipart_part_t *part = multipart_find(&form, name);
  cr_assert(part != NULL, "%s", name);
  EXPECT_STR_EQ(part->file, file);
  ASSERT_EQ(part->length, strlen(text));
  ASSERT_EQ(memcmp(part->bytes, text, part->length), 0);
}

Test(multipart, parts_are_read_as_they_are) {
  const char *body = PART("purpose", "", "batch")
      PART("file", "; filename=\"a \\\"b\\\".jsonl\"\r\nContent-Type: text/plain",
           "{}\r\n--xy\r\n\n--xyz\n") PART("empty", "", "") END;
  ASSERT_EQ_FOR(read_form(TYPE, body), 0, "%s", error.message);
  ASSERT_EQ(form.count, 3);
  expect_part("purpose", "", "batch");
  expect_part("file", "a \"b\".jsonl", "{}\r\n--xy\r\n\n--xyz\n");
  expect_part("empty", "", "");
  cr_assert(multipart_find(&form, "other") == NULL);
}

Test(multipart, boundaries_are_read_in_all_spellings) {
  static const char *const types[] = {"multipart/form-data; boundary=\"xyz\"",
                                      "Multipart/Form-Data;boundary=xyz",
                                      "multipart/form-data; charset=utf-8; Boundary=xyz ",
                                      "multipart/form-data;  boundary=xyz; a=b"};
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    ASSERT_EQ_FOR(read_form(types[i], PART("a", "", "b") END), 0, "%s: %s", types[i],
                  error.message);
    expect_part("a", "", "b");
  }
}

Test(multipart, another_type_is_refused) {
  static const char *const types[] = {"application/json", "multipart/mixed; boundary=xyz",
                                      "multipart/form-datax; boundary=xyz", ""};
  for (size_t i = 0; i < ARRAY_LEN(types); i++)
    ASSERT_EQ_FOR(read_form(types[i], PART("a", "", "b") END), ERR_UNSUPPORTED_MEDIA_TYPE, "%s",
                  types[i]);
  ASSERT_EQ(read_form(NULL, ""), ERR_UNSUPPORTED_MEDIA_TYPE);
}

Test(multipart, what_is_malformed_is_refused_with_its_place) {
  static const struct {
    const char *type, *body, *words;
  } cases[] = {
      {"multipart/form-data; x=y", END, "needs a boundary"},
      {"multipart/form-data; boundary=", END, "needs a boundary"},
      {TYPE, "", "at byte 0: it begins with no boundary"},
      {TYPE, "preamble\r\n" END, "it begins with no boundary"},
      {TYPE, "--xy", "it begins with no boundary"},
      {TYPE, "--xyzA", "a boundary does not end its line"},
      {TYPE, "--xyz", "a boundary does not end its line"},
      {TYPE, "--xyz-", "a boundary does not end its line"},
      {TYPE, "--xyz\r\nContent-Disposition: form-data; name=\"a\"", "a header does not end"},
      {TYPE, "--xyz\r\n\r\nb\r\n" END, "a part has no name"},
      {TYPE, "--xyz\r\nContent-Type: text/plain\r\n\r\nb\r\n" END, "a part has no name"},
      {TYPE, "--xyz\r\nContent-Disposition: file; name=\"a\"\r\n\r\nb\r\n" END, "not form-data"},
      {TYPE, "--xyz\r\nContent-Disposition: form-data\r\n\r\nb\r\n" END, "needs one name"},
      {TYPE, "--xyz\r\nContent-Disposition: form-data; name=\"a\r\n\r\nb\r\n" END,
       "needs one name"},
      {TYPE, PART("a", "; filename=\"x\x01\"", "b") END, "a file name has"},
      {TYPE, PART("a", "\r\nContent-Transfer-Encoding: base64", "b") END, "only Content-Disp"},
      {TYPE, PART("a", "", "b") PART("a", "", "c") END, "a name is there twice"},
      {TYPE, PART("a", "", "b") "--xyz--\r\nmore", "bytes follow the last boundary"},
      {TYPE, "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb", "does not end"}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    ASSERT_EQ_FOR(read_form(cases[i].type, cases[i].body), ERR_BAD_REQUEST, "%zu", i);
    cr_assert(strstr(error.message, cases[i].words) != NULL, "%zu: %s", i, error.message);
  }
}

/* Every cut of a good body is refused, but for the last line feed. */
Test(multipart, a_body_that_is_cut_is_refused) {
  const char *whole = PART("purpose", "", "batch") PART("file", "; filename=\"a\"", "{}") END;
  char *cut = strdup(whole);
  for (size_t length = strlen(whole); length-- > 0;) {
    cut[length] = '\0';
    int code = read_form(TYPE, cut);
    ASSERT_EQ_FOR(code, length == strlen(whole) - 2 ? 0 : ERR_BAD_REQUEST, "%zu", length);
  }
  free(cut);
}

Test(multipart, there_are_so_many_parts_and_names_so_long) {
  char body[8192] = "", name[300];
  for (int i = 0; i <= MULTIPART_PARTS_MAX; i++) {
    size_t at = strlen(body);
    if (i == MULTIPART_PARTS_MAX) {
      snprintf(body + at, sizeof body - at, END);
      ASSERT_EQ_FOR(read_form(TYPE, body), 0, "%s", error.message);
      ASSERT_EQ(form.count, MULTIPART_PARTS_MAX);
    }
    snprintf(body + at, sizeof body - at, PART("p%d", "", "x"), i);
  }
  snprintf(body + strlen(body), 16, END);
  ASSERT_EQ(read_form(TYPE, body), ERR_BAD_REQUEST);
  for (int length = 254; length <= 256; length++) {
    memset(name, 'n', sizeof name);
    name[length] = '\0';
    snprintf(body, sizeof body, PART("%s", "", "x") END, name);
    ASSERT_EQ_FOR(read_form(TYPE, body), length <= 255 ? 0 : ERR_BAD_REQUEST, "%d", length);
  }
}

/* However long the steps are, the parts are the same. */
Test(multipart, a_pass_in_steps_reads_the_same_parts) {
  const char *body =
      PART("purpose", "", "batch") PART("file", "; filename=\"a\"", "{}\r\n--xy\r\n\r\n--xy\r\r\n")
          PART("empty", "", "") PART("purpose", "", "again") END;
  static const char *const names[] = {"purpose", "file", "empty", "purpose"};
  static const size_t lengths[] = {5, 19, 0, 5};
  for (size_t most = 1; most < strlen(body) + 2; most++) {
    multipart_pass_t pass;
    size_t parts = 0;
    int code = multipart_begin(TYPE, body, strlen(body), &pass, &error);
    ASSERT_EQ(code, 0);
    while ((code = multipart_step(&pass, most, &error)) > 0) {
      if (code == MULTIPART_MORE) continue;
      ASSERT_LT(parts, ARRAY_LEN(names));
      ASSERT_STR_EQ(pass.part.name, names[parts]);
      ASSERT_EQ_FOR(pass.part.length, lengths[parts], "%zu %zu", most, parts);
      parts++;
    }
    ASSERT_EQ_FOR(code, 0, "%zu: %s", most, error.message);
    ASSERT_EQ(parts, ARRAY_LEN(names));
  }
}

Test(multipart, headers_of_a_part_are_short) {
  static char body[8192];
  static const char rest[] = "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n" END;
  const size_t known = strlen("Content-Type: ") + strlen(rest) - strlen("b\r\n" END);
  for (size_t bytes = 4095; bytes <= 4097; bytes++) {
    const int fill = (int)(bytes - known);
    snprintf(body, sizeof body, "--xyz\r\nContent-Type: %0*d%s", fill, 0, rest);
    EXPECT_EQ_FOR(read_form(TYPE, body), bytes <= 4096 ? 0 : ERR_BAD_REQUEST, "%zu: %s", bytes,
                  error.message);
  }
  cr_assert(strstr(error.message, "4,096 bytes") != NULL, "%s", error.message);
}
