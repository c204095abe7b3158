/* test_json_scan.c: the byte-wise scanner accepts and refuses what the strict reader does. */
#include "engine/base/json.h"
#include "server/parser/json_scan.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

TestSuite(json_scan, .timeout = 60);

/* Blanks in front are the reader's affair as well as the scanner's. */
static bool scans(const char *text, size_t length) {
  json_scan_t scan = {0};
  for (size_t i = 0; i < length; i++) {
    if (json_scan_byte(&scan, text[i]) == SCAN_BAD) return false;
  }
  if (scan.state == SCAN_DONE) return true;
  return scan.depth == 0 && json_scan_byte(&scan, ' ') == SCAN_DONE; /* a number ends */
}

static bool reads(const char *text, size_t length) {
  json_doc_t *doc = NULL;
  json_limits_t limits = {JSON_SCAN_DEPTH_MAX, 1000000, 65536, false, true, false};
  bool good = json_parse(text, length, &limits, &doc, NULL) == 0;
  if (good) json_free(doc);
  return good;
}

Test(json_scan, whole_documents) {
  static const char *const good[] = {"{}",
                                     "[]",
                                     "0",
                                     "-0",
                                     "-1.5e+10",
                                     "\"a\\u00e9\\n\"",
                                     "true",
                                     " [1, 2 ] ",
                                     "[[],{}]",
                                     "{\"a\":1}",
                                     "{\"a\":{\"b\":[]}}",
                                     "[1e5,0.1,-3]",
                                     "[\"\\\"\"]",
                                     "null",
                                     "[null,true,false]",
                                     "{\"\":\"\"}"};
  static const char *const bad[] = {
      "",      "{",       "}",           "[1,]",       "{\"a\":}", "01",       "1.",
      ".5",    "+1",      "1e",          "tru",        "nul1",     "[1 2]",    "{\"a\" 1}",
      "{a:1}", "\"\\x\"", "\"\\u12g4\"", "[}",         "{]",       "\"a\nb\"", "{} {}",
      "{,}",   "[,]",     "-",           "{\"a\":1,}", "--1",      "1e+",      "\"abc"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    cr_assert(scans(good[i], strlen(good[i])), "%s", good[i]);
    cr_assert(reads(good[i], strlen(good[i])), "%s", good[i]);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    cr_assert(!scans(bad[i], strlen(bad[i])), "%s", bad[i]);
    cr_assert(!reads(bad[i], strlen(bad[i])), "%s", bad[i]);
  }
}

Test(json_scan, depth_is_bounded) {
  char text[2 * JSON_SCAN_DEPTH_MAX + 2];
  memset(text, '[', JSON_SCAN_DEPTH_MAX);
  memset(text + JSON_SCAN_DEPTH_MAX, ']', JSON_SCAN_DEPTH_MAX);
  cr_assert(scans(text, 2 * JSON_SCAN_DEPTH_MAX));
  memset(text, '[', JSON_SCAN_DEPTH_MAX + 1);
  cr_assert(!scans(text, JSON_SCAN_DEPTH_MAX + 1));
}

/* Random texts of JSON's own letters: the scanner and the reader agree on every one, but for what
 * only a reader can know: keys that appear twice and lone surrogates. */
Test(json_scan, agrees_with_the_reader) {
  static const char *const pieces[] = {
      "{",    "}",    "[", "]",  ",",  ":", "\"a\"", "\"b\\n\"", "1",          "-2.5e3",
      "true", "null", " ", "\"", "\\", "0", ".",     "e",        "\"\\u0041\""};
  srand(7);
  int good = 0;
  for (int round = 0; round < 200000; round++) {
    char text[64] = "";
    int count = 1 + rand() % 8;
    for (int i = 0; i < count; i++) {
      strcat(text, pieces[(size_t)rand() % (sizeof pieces / sizeof pieces[0])]);
    }
    size_t length = strlen(text);
    bool read = reads(text, length);
    good += read;
    if (read) cr_assert(scans(text, length), "%s", text);
    if (!read && scans(text, length)) {
      inferd_error_t error = {0};
      json_doc_t *doc = NULL;
      json_parse(text, length, &json_limits_request, &doc, &error);
      cr_assert(strstr(error.message, "twice") || strstr(error.message, "too large"), "%s: %s",
                text, error.message);
    }
  }
  ASSERT_GT(good, 1000);
}
