/* test_scanner.c: where the hand-written patterns cut, and that only exact patterns are known.
 *
 * The cases are the traps of each pattern; the large comparison with the reference library is in
 * tests/parity/parity_tokenizer.py and in the vectors.
 */
#include "engine/text/split/pretokenizer.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char r1[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char r2[] =
    WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES;
static const char r3[] =
    WORDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES;
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
static const char r5[] = LEAD UPPER "*" LOWER "+" WORDS "?|" LEAD UPPER "+" LOWER "*" WORDS
                                    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES;
static const char r6[] = LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER
                                    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES;
static const char r7[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES;

typedef struct joined {
  char text[512];
  size_t length;
} joined_t;

static int join(void *context, const uint8_t *piece, size_t length, const uint8_t *limit) {
  joined_t *j = context;
  ASSERT_GT(length, 0);
  ASSERT_LE(piece + length, limit);
  j->length += (size_t)snprintf(j->text + j->length, sizeof j->text - j->length, "[%.*s]",
                                (int)length, (const char *)piece);
  return 0;
}

/* Splits `text` by one pattern; pieces come out as "[a][b]". */
static void expect_split(const char *pattern, split_behavior_t behavior, bool invert,
                         const char *text, const char *want) {
  pretokenizer_t p;
  pretokenizer_scratch_t scratch = {0};
  joined_t j = {.length = 0};
  cr_assert(pretokenizer_init(&p));
  pretokenizer_step_t *step = pretokenizer_add_step(&p);
  cr_assert(scanner_compile(pattern, strlen(pattern), &step->scanner), "%s", pattern);
  step->behavior = behavior, step->invert = invert;
  const uint8_t *t = (const uint8_t *)text;
  ASSERT_EQ(pretokenizer_run(&p, &scratch, t, strlen(text), t + strlen(text), true, join, &j), 0);
  EXPECT_STR_EQ_FOR(j.text, want, "\"%s\": got %s, expected %s", text, j.text, want);
  pretokenizer_scratch_free(&scratch);
  pretokenizer_free(&p);
}

static void expect(const char *pattern, const char *text, const char *want) {
  expect_split(pattern, SPLIT_ISOLATED, false, text, want);
}

Test(scanner, gpt2) {
  expect(r1, "Hello world's 123 !?", "[Hello][ world]['s][ 123][ !?]");
  expect(r1, "I'LL we'll", "[I]['][LL][ we]['ll]");
  expect(r1, "a  b   ", "[a][ ][ b][   ]");
  expect(r1, "a\n b\t\tc", "[a][\n][ b][\t][\t][c]");
}

Test(scanner, llama3_and_qwen) {
  expect(r2, "I'LL 'ſx it'S", "[I]['LL][ '][ſx][ it]['S]");
  expect(r2, "x'ſy", "[x]['ſ][y]");
  expect(r2, "12345 1", "[123][45][ ][1]");
  expect(r3, "12 3", "[1][2][ ][3]");
  expect(r2, "a.b(c)\n\nd", "[a][.b][(c][)\n\n][d]");
  expect(r2, " \n \n  x\t", "[ \n \n][ ][ x][\t]");
  expect(r2, "\u00a0x\u0301y", "[\u00a0x][\u0301y]");
  expect(r2, "a\r\n", "[a][\r\n]");
}

Test(scanner, o200k_and_tekken) {
  expect(r5, "HelloWorld ABC's", "[Hello][World][ ABC's]");
  expect(r5, "中AB", "[中][AB]");
  expect(r5, "\u0301AB", "[\u0301][AB]");
  expect(r5, "aB a//\n/b 1234", "[a][B][ a][//\n/][b][ ][123][4]");
  expect(r6, "can't 12", "[can]['t][ ][1][2]");
}

Test(scanner, deepseek) {
  expect(r7, "a\u200d b", "[a][\u200d][ b]");
  expect(r7, "a\u200db", "[a][\u200db]");
  expect(r7, "x=foo(bar) 12", "[x][=foo][(bar][)][ ][12]");
  expect(r7,
         "\x01\x02"
         "a\x03\x04 !",
         "[\x01][\x02"
         "a][\x03\x04][ !]");
  expect_split(r7, SPLIT_REMOVED, true, "a\u200d b", "[a][ b]");
}

/* Published files of DeepSeek V3 write CR and LF as themselves. */
Test(scanner, raw_line_ends_are_spelled_like_escapes) {
  static const char raw[] = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                            "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                            "\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
  scanner_t scanner, escaped;
  cr_assert(scanner_compile(raw, sizeof raw - 1, &scanner));
  cr_assert(scanner_compile(r7, sizeof r7 - 1, &escaped));
  cr_expect(scanner.find == escaped.find);
  expect(raw, "a \u1c89b\r\n .x", "[a][ \u1c89b][\r\n][ .][x]");
  cr_expect_not(scanner_compile(raw, sizeof raw - 2, &scanner));
  cr_expect_not(scanner_compile("\\s+\n", 4, &scanner));
  cr_expect_not(scanner_compile(raw, sizeof raw, &scanner), "a NUL at the end");
}

Test(scanner, runs_of_a_class) {
  expect("\\p{N}{1,3}", "a12345b", "[a][123][45][b]");
  expect("[\\r\\n]", "a\r\nb", "[a][\r][\n][b]");
  expect("[0-9][0-9][0-9]", "12 1234567", "[12 ][123][456][7]");
  expect("\\s?\\p{L}+", "1 ab  cd", "[1][ ab][ ][ cd]");
  expect("[一-龥ࠀ-一가-퟿]+", "a中文b", "[a][中文][b]");
  expect("\\s+$", "a  \n b  ", "[a][  ][\n b][  ]");
  expect("\\s+$", " \n \n x", "[ \n ][\n x]");
}

Test(scanner, behaviours) {
  static const char n[] = "\\p{N}";
  expect_split(n, SPLIT_ISOLATED, false, "ab12c3", "[ab][1][2][c][3]");
  expect_split(n, SPLIT_REMOVED, false, "ab12c3", "[ab][c]");
  expect_split(n, SPLIT_REMOVED, true, "ab12c3", "[1][2][3]");
  expect_split(n, SPLIT_CONTIGUOUS, false, "ab12c3", "[ab][12][c][3]");
  expect_split(n, SPLIT_MERGED_WITH_PREVIOUS, false, "ab12c3", "[ab1][2][c3]");
  expect_split(n, SPLIT_MERGED_WITH_PREVIOUS, false, "1a2", "[1][a2]");
  expect_split(n, SPLIT_MERGED_WITH_NEXT, false, "ab12c3", "[ab][1][2c][3]");
  expect_split(n, SPLIT_MERGED_WITH_NEXT, false, "1a2", "[1a][2]");
}

Test(scanner, other_patterns_are_not_known) {
  static const char *const unknown[] = {
      "",      "\\w+|[^\\w\\s]+", "\\p{L}+ ", "[^a]+",     "[a",     "[]",       "[a&&b]+",
      "[z-a]", "[[a]]+",          "\\p{Lu}+", "\\p{X}",    "\\d{2}", "[a]{1,0}", "[a]{2,3}",
      "\\s?",  "[\\d]+",          "(?i)a",    "[a][b][a]", "[a]++"};
  scanner_t s;
  for (unsigned i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
    cr_expect_not(scanner_compile(unknown[i], strlen(unknown[i]), &s), "%s", unknown[i]);
  cr_expect_not(scanner_compile(r2, strlen(r2) - 1, &s));
}
