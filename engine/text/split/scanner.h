/* scanner.h: the splitting patterns of the model families, written by hand.
 *
 * A pattern is recognised by its exact text (scanner_compile), never guessed from a model's name.
 * Each scanner finds the leftmost match like the regex it stands for and needs time linear in the
 * text: no backtracking. Read-only after load; any thread.
 */
#ifndef INFERD_ENGINE_TEXT_SPLIT_SCANNER_H
#define INFERD_ENGINE_TEXT_SPLIT_SCANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCANNER_RANGES_MAX = 192, SCANNER_LITERAL_MAX = 256, SCANNER_PATTERN_BYTES_MAX = 16384 };

/* What a find function returns when a bound or the memory of a match was reached. */
#define SCANNER_FAILED SIZE_MAX

typedef enum { CONTRACTION_NONE, CONTRACTION_LOWER, CONTRACTION_ANY_CASE } contraction_t;

typedef struct scanner scanner_t;
/* Finds the first match in text[from, end), well-formed UTF-8 (bytes when the scanner is for mapped
 * bytes). Returns its start and sets *match_end > start, or returns `end` when there is none, or
 * SCANNER_FAILED.
 * Lookarounds see only text[from.. end) as a piece: `end` is the end of the piece. */
typedef size_t scanner_find_t(const scanner_t *scanner, const uint8_t *text, size_t from,
                              size_t end, size_t *match_end);

struct scanner {
  scanner_find_t *find;
  void *regex; /* split_regex.h; the pre-tokenizer frees it */
  contraction_t contraction;
  uint8_t letters;    /* class bits of a letter: CLASS_LETTER, or with CLASS_MARK */
  uint8_t digits_max; /* longest run of \p{N}, 0 = no bound */
  bool lead;          /* [^\r\n\p{L}\p{N}]? before letters, instead of an optional space */
  bool newline_tail;  /* [\r\n]* after other characters */
  bool slash_tail;    /* [\r\n/]* instead */
  bool newline_runs;  /* \s*[\r\n]+ */
  bool whole_at_end;  /* \s++$ first */
  /* runs of one class: \s?[...]+ and the like */
  bool run_lead;       /* \s? in front */
  bool extra_digits;   /* Digits: unicode_extra instead of the class */
  bool extra_punct;    /* Punctuation */
  bool mapped_bytes;   /* the text is bytes that stand for characters of the byte-level alphabet */
  uint8_t run_classes; /* class bits that belong to the run */
  uint32_t run_min, run_max; /* characters; run_max 0 = no bound */
  uint64_t ascii[2];         /* bitmap of the ASCII members of the ranges */
  uint32_t num_ranges;
  uint32_t range[SCANNER_RANGES_MAX][2]; /* first and last code point, sorted; of
                                          scanner_find_o200k what is a match of its own */
  uint32_t literal_length;
  uint8_t literal[SCANNER_LITERAL_MAX];
};

/* The scanner of a regex pattern, by exact text. False: not known. */
bool scanner_compile(const char *pattern, size_t length, scanner_t *out);
/* Plain text, 1..SCANNER_LITERAL_MAX bytes. */
bool scanner_literal(const char *text, size_t length, scanner_t *out);
/* The Digits (one by one) and Punctuation predicates, one character a match. */
void scanner_digits(scanner_t *out);
void scanner_punctuation(scanner_t *out);
void scanner_blanks(scanner_t *out); /* WhitespaceSplit: runs of whitespace */
/* The same scanner for text that ByteLevel has mapped; false when it cannot be used there. */
bool scanner_map_bytes(scanner_t *scanner);

/* One find function per template. */
scanner_find_t scanner_find_gpt;      /* R1-R4: scanner_gpt.c */
scanner_find_t scanner_find_o200k;    /* R5, R6: scanner_o200k.c */
scanner_find_t scanner_find_deepseek; /* R7: scanner_o200k.c */
scanner_find_t scanner_find_run, scanner_find_space_end, scanner_find_literal; /* scanner_run.c */

/* End of the whitespace match at `at` (text[at] is whitespace): \s*[\r\n]+|\s+(?!\S)|\s+ */
size_t scanner_spaces(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end);
/* End of a contraction at `at`, where text[at] is an apostrophe; `at` when there is none. */
size_t scanner_contraction(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end);

#endif
