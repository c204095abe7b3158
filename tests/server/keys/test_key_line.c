/* test_key_line.c: lines of key files that are read, and lines that are refused. */
#include "server/keys/key_line.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

TestSuite(key_line, .timeout = 30);

static const key_place_t place = {.option = "api_key_file",
                                  .text = "api_key_file: line 7 of /etc/keys"};
static char text[700];
static inferd_error_t error;

static int parse(const char *line, key_line_t *out) {
  ASSERT_LT(strlen(line), sizeof text);
  strcpy(text, line); /* NOLINT: the length was checked */
  error = (inferd_error_t){0};
  return key_line_parse(text, &place, out, &error);
}

Test(key_line, every_word) {
  key_line_t line;
  ASSERT_EQ_FOR(parse(" sk-1\tteam-a  max_waiting=64 max_tokens_waiting=200000 grammar=off "
                      "max_running=16 "
                      "weight=2 requests_per_minute=600 tokens_per_minute=90000 # x=1\r",
                      &line),
                0, "%s", error.message);
  EXPECT_EQ(line.limits.weight, 2);
  EXPECT_EQ(line.limits.max_running, 16);
  EXPECT_EQ(line.limits.requests_per_minute, 600);
  EXPECT_EQ(line.limits.tokens_per_minute, 90000);
  EXPECT_STR_EQ(line.key, "sk-1");
  EXPECT_STR_EQ(line.label, "team-a");
  EXPECT_EQ(line.limits.max_waiting, 64);
  EXPECT_EQ(line.limits.max_tokens_waiting, 200000);
  cr_expect(line.limits.grammar_off);
  cr_expect(line.limited);
}

Test(key_line, what_may_be_left_out) {
  key_line_t line;
  static const char *const blank[] = {"", " \t ", "# a comment", "  # sk-1 team"};
  for (size_t i = 0; i < sizeof blank / sizeof *blank; i++) {
    ASSERT_EQ(parse(blank[i], &line), 0);
    EXPECT_EQ_FOR(line.key, NULL, "'%s'", blank[i]);
  }
  ASSERT_EQ(parse("sk-1", &line), 0);
  EXPECT_STR_EQ(line.key, "sk-1");
  EXPECT_STR_EQ(line.label, "");
  EXPECT_EQ(line.limits.max_waiting, 0);
  cr_expect_not(line.limited);
  ASSERT_EQ(parse("sk-1= m\xc3\xbcller grammar=on", &line), 0); /* a key may have any byte */
  EXPECT_STR_EQ(line.key, "sk-1=");
  EXPECT_STR_EQ(line.label, "m\xc3\xbcller");
  cr_expect_not(line.limits.grammar_off);
  ASSERT_EQ(parse("sk-1 max_waiting=1000000", &line), 0);
  EXPECT_STR_EQ(line.label, "");
}

static const struct {
  const char *line, *part;
} bad[] = {
    {"k label max_wating=8", "'max_wating' is unknown, supported: max_"},
    {"k label =8", "'' is unknown"},
    {"k label Max_waiting=8", "'Max_waiting' is unknown"},
    {"k max_waiting=8 label", "word 3 is no NAME=VALUE"},
    {"k label other", "word 3 is no NAME=VALUE; the label is the second word, and one word"},
    {"k label max_waiting", "word 3 is no NAME=VALUE"},
    {"k label max_waiting = 8", "word 3 is no NAME=VALUE"},
    {"k label max_waiting=", "max_waiting is '', supported: 1..1000000"},
    {"k label max_waiting=0", "max_waiting is '0', supported: 1..1000000"},
    {"k label max_waiting=1000001", "max_waiting is '1000001', supported: 1..1000000"},
    {"k label max_waiting=-1", "max_waiting is '-1'"},
    {"k label max_waiting=+1", "max_waiting is '+1'"},
    {"k label max_waiting=1.5", "max_waiting is '1.5'"},
    {"k label max_waiting=8k", "max_waiting is '8k'"},
    {"k label max_waiting=0x8", "max_waiting is '0x8'"},
    {"k label max_waiting=8,", "max_waiting is '8,'"},
    {"k label max_waiting=99999999999999999999", "max_waiting is '99999999999999999999'"},
    {"k label max_waiting=4294967297", "max_waiting is '4294967297'"},
    {"k label max_waiting=8 max_waiting=8", "max_waiting is given twice"},
    {"k label max_tokens_waiting=0", "max_tokens_waiting is '0', supported: 1..1000000000000"},
    {"k label max_tokens_waiting=1000000000001", "supported: 1..1000000000000"},
    {"k label max_running=0", "max_running is '0', supported: 1..65536"},
    {"k label max_running=65537", "max_running is '65537', supported: 1..65536"},
    {"k label requests_per_minute=0", "requests_per_minute is '0', supported: 1..1000000000"},
    {"k label tokens_per_minute=1e3", "tokens_per_minute is '1e3', supported: 1..1000000000000"},
    {"k label weight=0", "weight is '0', supported: 1..1000"},
    {"k label weight=0.5", "weight is '0.5', supported: 1..1000"},
    {"k label grammar=no", "grammar is 'no', supported: on, off"},
    {"k label grammar=", "grammar is '', supported: on, off"},
    {"k label grammar=OFF", "grammar is 'OFF'"},
    {"k la\x01"
     "bel",
     "byte 3 of the label is not allowed"},
    {"k la\xff", "byte 3 of the label is not allowed"},
    {"k 123456789012345678901234567890123456789012345678901234567890abcde",
     "the label has 65 bytes, supported: 1..64"},
};

Test(key_line, what_is_refused) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    key_line_t line;
    ASSERT_EQ_FOR(parse(bad[i].line, &line), ERR_CONFIGURATION, "%s", bad[i].line);
    cr_expect(strstr(error.message, bad[i].part) != NULL, "%s: '%s' is not in '%s'", bad[i].line,
              bad[i].part, error.message);
    cr_expect(strncmp(error.message, place.text, strlen(place.text)) == 0, "%s", error.message);
    EXPECT_STR_EQ(error.param, "api_key_file");
  }
}

/* A second key on the line, or a key in the place of a label, must not reach a log. */
Test(key_line, no_message_shows_a_word_that_may_be_a_key) {
  static const char *const lines[] = {"k sk-secret sk-secret",       "k a b sk-secret",
                                      "k a max_waiting=1 sk-secret", "sk-secret a b c",
                                      "sk-secret a max_waiting=0",   "k sk-secret\x01"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    key_line_t line;
    ASSERT_EQ_FOR(parse(lines[i], &line), ERR_CONFIGURATION, "%s", lines[i]);
    cr_expect(strstr(error.message, "secret") == NULL, "%s", error.message);
  }
}
