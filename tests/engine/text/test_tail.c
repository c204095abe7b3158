/* test_tail.c: the last ids of a text without the work for all of it, with every fixture tokenizer.
 */
#include "engine/base/util.h"
#include "engine/text/tokenizer_internal.h"
#include "tests/engine/text/helpers.h"
#include "tests/expect.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const char root[] = "tests/vectors/tokenizer";

enum { TEXT_MAX = 8192, ROUNDS = 60 };

static const char *const parts[] = {"a",
                                    "b",
                                    "the",
                                    " ",
                                    " ",
                                    "  ",
                                    "\n",
                                    "\t",
                                    "1",
                                    "2024",
                                    ".",
                                    ",",
                                    "'s",
                                    "\"",
                                    "\xc3\xa9",
                                    "\xe4\xb8\xad",
                                    "x",
                                    "<s>",
                                    "</s>",
                                    "Zq",
                                    "e\xcc\x81",
                                    "\xf0\x9f\x98\x80",
                                    "<|endoftext|>",
                                    "\xe2\x96\x81",
                                    "\x01",
                                    "-"};

/* Pieces in any order, or a long run of one piece with a few others. */
static size_t random_text(uint64_t *state, char *text) {
  size_t length = 0, wanted = 1 + test_random(state) % 600;
  const char *run = NULL;
  if (test_random(state) % 3 == 0) {
    run = parts[test_random(state) % (sizeof parts / sizeof *parts)];
    wanted = 1 + test_random(state) % (TEXT_MAX / 2);
  }
  while (length < wanted) {
    const char *part = parts[test_random(state) % (sizeof parts / sizeof *parts)];
    if (run != NULL && test_random(state) % 50 != 0) part = run;
    memcpy(text + length, part, strlen(part));
    length += strlen(part);
  }
  return length;
}

static int32_t *encode(const tokenizer_t *tokenizer, tokenizer_scratch_t *scratch, const char *text,
                       size_t length, size_t tail, bool special, size_t *count) {
  tokenize_options_t options = {.add_special_tokens = special, .tail = tail};
  inferd_error_t error = {0};
  int32_t *ids = NULL;
  ASSERT_EQ_FOR(tokenizer_encode(tokenizer, scratch, text, length, &options, &ids, count, &error),
                0, "%s", error.message);
  return ids;
}

static void check_text(const char *name, const tokenizer_t *tokenizer, const char *text,
                       size_t length) {
  static const size_t tails[] = {1, 2, 5, 17, 100, 3000};
  for (int special = 0; special <= 1; special++) {
    tokenizer_scratch_t *scratch = tokenizer_scratch_new(tokenizer);
    size_t count, head = special ? tokenizer->num_prefix : 0;
    size_t affixes = special ? head + tokenizer->num_suffix : 0;
    int32_t *ids = encode(tokenizer, scratch, text, length, 0, special, &count);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
      size_t some, least = MIN(tails[i], count - affixes) + affixes;
      int32_t *tail = encode(tokenizer, scratch, text, length, tails[i], special, &some);
      ASSERT_GE(some, least);
      ASSERT_LE(some, count);
      bool same = memcmp(tail, ids, head * sizeof *ids) == 0 &&
                  memcmp(tail + head, ids + head + count - some, (some - head) * sizeof *ids) == 0;
      cr_assert(same, "%s: the last %zu ids of \"%.*s\" differ", name, tails[i],
                (int)MIN(length, 300), text);
      free(tail);
    }
    free(ids);
    tokenizer_scratch_free(scratch);
  }
}

static tokenizer_t *load(const char *name) {
  char path[300];
  tokenizer_t *tokenizer = NULL;
  inferd_error_t error = {0};
  snprintf(path, sizeof path, "%s/%s", root, name);
  ASSERT_EQ_FOR(tokenizer_load(path, &tokenizer, &error), 0, "%s: %s", name, error.message);
  return tokenizer;
}

Test(tail, ids_are_those_of_the_whole_text, .timeout = 300) {
  static char text[TEXT_MAX + 64];
  int seen = 0;
  uint64_t state = 20261123;
  DIR *directory = opendir(root);
  cr_assert_not_null(directory);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (strchr(entry->d_name, '.') != NULL) continue;
    tokenizer_t *tokenizer = load(entry->d_name);
    for (int round = 0; round < ROUNDS; round++) {
      check_text(entry->d_name, tokenizer, text, random_text(&state, text));
    }
    check_text(entry->d_name, tokenizer, "", 0);
    tokenizer_free(tokenizer);
    seen++;
  }
  closedir(directory);
  ASSERT_GE(seen, 39);
}

/* The work of merging is that of the end alone. */
Test(tail, work_is_that_of_the_end) {
  enum { WORDS = 20000, WORD_BYTES = 8 };
  static const char *const names[] = {"gpt2", "llama3", "qwen2", "tekken"};
  char *text = malloc((size_t)WORDS * WORD_BYTES);
  uint64_t state = 7;
  for (size_t i = 0; i < (size_t)WORDS * WORD_BYTES; i++) {
    text[i] = i % WORD_BYTES == 0 ? ' ' : (char)('a' + test_random(&state) % 26);
  }
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    tokenizer_t *tokenizer = load(names[n]);
    uint64_t work[2];
    for (size_t i = 0; i < 2; i++) {
      tokenizer_scratch_t *scratch = tokenizer_scratch_new(tokenizer);
      size_t count;
      free(encode(tokenizer, scratch, text, (size_t)WORDS * WORD_BYTES, i * 5, false, &count));
      work[i] = scratch->bpe->work;
      tokenizer_scratch_free(scratch);
    }
    ASSERT_LE_FOR(work[1] * 1000, work[0], "%s", names[n]);
    tokenizer_free(tokenizer);
  }
  free(text);
}

/* One word cannot be taken apart: above the bound it is refused before it is merged. */
Test(tail, a_word_is_bounded) {
  enum { LONGEST = 5000 };
  static const char *const names[] = {"gpt2", "llama3"};
  static char text[LONGEST + 1];
  memset(text, 'a', sizeof text);
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    tokenizer_t *tokenizer = load(names[n]);
    tokenizer_scratch_t *scratch = tokenizer_scratch_new(tokenizer);
    for (size_t length = LONGEST - 4; length <= LONGEST + 1; length += 5) {
      tokenize_options_t options = {.tail = length % 2, .word_max = LONGEST};
      uint64_t work = scratch->bpe->work;
      inferd_error_t error = {0};
      int32_t *ids = NULL;
      size_t count;
      int code = tokenizer_encode(tokenizer, scratch, text, length, &options, &ids, &count, &error);
      ASSERT_EQ_FOR(code, length > LONGEST ? ERR_INVALID_VALUE : 0, "%s %zu", names[n], length);
      if (code != 0) {
        ASSERT_EQ(scratch->bpe->work, work);
        cr_assert_not_null(strstr(error.message, "5000 bytes"), "%s", error.message);
      }
      free(ids);
    }
    tokenizer_scratch_free(scratch);
    tokenizer_free(tokenizer);
  }
}
