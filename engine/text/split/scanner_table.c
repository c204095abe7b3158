/* scanner_table.c: which scanner stands for which pattern.
 *
 * The patterns are the ones that published tokenizer.json files hold, byte for byte, with their
 * other spellings that match the same text. CR, LF and TAB may stand in a file as themselves or as
 * escapes: the look-up reads both alike. Simple patterns of the form  \s? class quantifier  are
 * read by a small strict parser instead. Runs on the loading thread; anything else is not known.
 */
#include "engine/base/util.h"
#include "engine/text/split/scanner.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

typedef struct known_pattern {
  const char *pattern;
  scanner_t scanner;
} known_pattern_t;

/* Script=Han of Unicode 16 (Scripts.txt). */
#define HAN                                                                                        \
  {0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005}, {0x3007, 0x3007},        \
      {0x3021, 0x3029}, {0x3038, 0x303B}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D},    \
      {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF},                \
      {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0},              \
      {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {                                \
    0x31350, 0x323AF                                                                               \
  }
enum { HAN_RANGES = 22 };

/* In these files' regex dialect (Oniguruma) X{1,3}+ is a repetition of X{1,3}, not a possessive
 * quantifier, so the pattern with \p{N}{1,3}+ has no bound on digits. */
static const known_pattern_t known_patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt, .contraction = CONTRACTION_LOWER, .letters = CLASS_LETTER}},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|"
     "\\s+(?!\\S)|\\s",
     {.find = scanner_find_gpt, .contraction = CONTRACTION_LOWER, .letters = CLASS_LETTER}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 3,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 3,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 0,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 1,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 1,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER | CLASS_MARK,
      .digits_max = 1,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true}},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     {.find = scanner_find_gpt,
      .contraction = CONTRACTION_ANY_CASE,
      .letters = CLASS_LETTER,
      .digits_max = 0,
      .lead = true,
      .newline_tail = true,
      .newline_runs = true,
      .whole_at_end = true}},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "+(?i:'s|"
     "'t|'re|'ve|'m|'ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "*(?i:'s|"
     "'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     {.find = scanner_find_o200k,
      .contraction = CONTRACTION_ANY_CASE,
      .digits_max = 3,
      .slash_tail = true,
      .newline_runs = true}},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
     "*|"
     "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_o200k, .digits_max = 1, .slash_tail = true, .newline_runs = true}},
    {"[\\p{Han}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_o200k,
      .contraction = CONTRACTION_ANY_CASE,
      .digits_max = 3,
      .newline_runs = true,
      .num_ranges = HAN_RANGES,
      .range = {HAN}}},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
     "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     {.find = scanner_find_deepseek, .newline_runs = true}},
    {"\\s+$", {.find = scanner_find_space_end}},
};

static void add_range(scanner_t *scanner, uint32_t first, uint32_t last) {
  for (uint32_t c = first; c <= last && c < 128; c++) scanner->ascii[c >> 6] |= 1ULL << (c & 63);
  scanner->range[scanner->num_ranges][0] = first;
  scanner->range[scanner->num_ranges][1] = last;
  scanner->num_ranges++;
}

static int by_first(const void *left, const void *right) {
  const uint32_t *x = left, *y = right;
  return (x[0] > y[0]) - (x[0] < y[0]);
}

static void join_ranges(scanner_t *scanner) {
  qsort(scanner->range, scanner->num_ranges, sizeof scanner->range[0], by_first);
  uint32_t kept = 0;
  for (uint32_t i = 1; i < scanner->num_ranges; i++) {
    if (scanner->range[i][0] <= scanner->range[kept][1]) {
      if (scanner->range[i][1] > scanner->range[kept][1])
        scanner->range[kept][1] = scanner->range[i][1];
    } else {
      kept++;
      scanner->range[kept][0] = scanner->range[i][0],
      scanner->range[kept][1] = scanner->range[i][1];
    }
  }
  if (scanner->num_ranges > 0) scanner->num_ranges = kept + 1;
}

/* Reads one member of a bracket class: a literal character, or an escaped CR or LF. */
static bool class_char(const uint8_t *pattern, size_t end, size_t *at, uint32_t *codepoint) {
  if (*at >= end) return false;
  if (pattern[*at] == '\\') {
    if (*at + 1 >= end || (pattern[*at + 1] != 'r' && pattern[*at + 1] != 'n')) return false;
    *codepoint = pattern[*at + 1] == 'r' ? '\r' : '\n';
    *at += 2;
    return true;
  }
  unsigned n;
  *codepoint = utf8_read(pattern + *at, &n);
  *at += n;
  return *codepoint != '[' && *codepoint != ']' && *codepoint != '^' && *codepoint != '&' &&
         *codepoint != '-';
}

/* [abc-z\r\n]: literal characters and ranges only. */
static bool bracket_class(const uint8_t *pattern, size_t end, size_t *at, scanner_t *scanner) {
  (*at)++;
  while (*at < end && pattern[*at] != ']') {
    uint32_t first, last;
    if (!class_char(pattern, end, at, &first)) return false;
    last = first;
    if (*at < end && pattern[*at] == '-') {
      (*at)++;
      if (!class_char(pattern, end, at, &last) || last < first) return false;
    }
    if (scanner->num_ranges == SCANNER_RANGES_MAX) return false;
    add_range(scanner, first, last);
  }
  if (*at >= end || scanner->num_ranges == 0) return false;
  (*at)++;
  join_ranges(scanner);
  return true;
}

static bool property_class(const uint8_t *pattern, size_t end, size_t *at, scanner_t *scanner) {
  if (end - *at < 5 || memcmp(pattern + *at, "\\p{", 3) != 0 || pattern[*at + 4] != '}')
    return false;
  switch (pattern[*at + 3]) {
  case 'L': scanner->run_classes = CLASS_LETTER; break;
  case 'N': scanner->run_classes = CLASS_NUMBER; break;
  case 'M': scanner->run_classes = CLASS_MARK; break;
  case 'P': scanner->run_classes = CLASS_PUNCTUATION; break;
  case 'S': scanner->run_classes = CLASS_SYMBOL; break;
  default: return false;
  }
  *at += 5;
  return true;
}

/* The grammar is  (\s?)? class (+ | {1,k})?  and the same class written three times. */
static bool compile_run(const char *pattern, size_t length, scanner_t *scanner) {
  const uint8_t *p = (const uint8_t *)pattern;
  size_t at = 0;
  *scanner = (scanner_t){.find = scanner_find_run, .run_min = 1, .run_max = 1};
  if (length > 3 && memcmp(p, "\\s?", 3) == 0) scanner->run_lead = true, at = 3;
  size_t class_start = at;
  if (at >= length) return false;
  if (!(p[at] == '[' ? bracket_class(p, length, &at, scanner)
                     : property_class(p, length, &at, scanner)))
    return false;
  size_t class_length = at - class_start;
  const char *rest = pattern + at;
  size_t rest_length = length - at;
  if (rest_length == 0) return true;
  if (rest_length == 1 && rest[0] == '+') return scanner->run_max = 0, true;
  if (rest_length == 5 && memcmp(rest, "{1,", 3) == 0 && rest[3] >= '1' && rest[3] <= '9' &&
      rest[4] == '}')
    return scanner->run_max = (uint32_t)(rest[3] - '0'), true;
  if (rest_length == 2 * class_length && !scanner->run_lead &&
      memcmp(rest, pattern + class_start, class_length) == 0 &&
      memcmp(rest + class_length, pattern + class_start, class_length) == 0)
    return scanner->run_min = scanner->run_max = 3, true;
  return false;
}

/* Compares a pattern with a known one, which writes CR, LF and TAB as escapes. */
static bool same_pattern(const char *known, const char *pattern, size_t length) {
  for (size_t i = 0; i < length; i++) {
    char escape = pattern[i] == '\r'   ? 'r'
                  : pattern[i] == '\n' ? 'n'
                  : pattern[i] == '\t' ? 't'
                                       : 0;
    if (escape != 0 && *known++ != '\\') return false;
    if (*known++ != (escape != 0 ? escape : pattern[i])) return false;
  }
  return *known == '\0';
}

bool scanner_compile(const char *pattern, size_t length, scanner_t *out) {
  if (length == 0 || length > SCANNER_PATTERN_BYTES_MAX) return false;
  if (memchr(pattern, '\0', length) != NULL) return false;
  for (size_t i = 0; i < ARRAY_LEN(known_patterns); i++) {
    const known_pattern_t *known = &known_patterns[i];
    if (same_pattern(known->pattern, pattern, length)) {
      *out = known->scanner;
      return true;
    }
  }
  return compile_run(pattern, length, out);
}

bool scanner_literal(const char *text, size_t length, scanner_t *out) {
  if (length == 0 || length > SCANNER_LITERAL_MAX) return false;
  *out = (scanner_t){.find = scanner_find_literal, .literal_length = (uint32_t)length};
  memcpy(out->literal, text, length);
  return true;
}

void scanner_digits(scanner_t *out) {
  *out = (scanner_t){.find = scanner_find_run, .extra_digits = true, .run_min = 1, .run_max = 1};
}

void scanner_punctuation(scanner_t *out) {
  *out = (scanner_t){.find = scanner_find_run, .extra_punct = true, .run_min = 1, .run_max = 1};
}

void scanner_blanks(scanner_t *out) {
  *out = (scanner_t){.find = scanner_find_run, .run_classes = CLASS_SPACE, .run_min = 1};
}

bool scanner_map_bytes(scanner_t *scanner) {
  scanner->mapped_bytes = true;
  return scanner->find == scanner_find_run;
}
