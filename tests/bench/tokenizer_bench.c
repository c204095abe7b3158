/* tokenizer_bench.c: MB/s of encoding, milliseconds of hostile text, nanoseconds of detokenizing.
 *
 *   tokenizer_bench [DIR [FILE]]   a tokenizer directory and a text
 *
 * Without arguments it takes the small tokenizers of the test vectors and the documents of this
 * repository with their words shuffled (few different words, so the word cache does well). For
 * numbers on real vocabularies beside the reference library: tests/parity/parity_tokenizer.py
 * --bench. CPU time of one thread, best of the rounds.
 */
#include "engine/text/stream/detokenizer.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, TEXT_BYTES = 8 << 20, HOSTILE_BYTES = 1 << 20 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_file(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *length = (size_t)ftell(file);
  rewind(file);
  char *text = malloc(*length + 1);
  if (text != NULL && fread(text, 1, *length, file) != *length) *length = 0;
  fclose(file);
  return text;
}

/* Words of the repository's documents in a seeded random order, with their spaces. */
static char *shuffled_words(size_t *length) {
  static const char *const paths[] = {"LICENSE", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"};
  enum { WORDS_MAX = 1 << 16 };
  static char *word[WORDS_MAX];
  size_t count = 0, n;
  for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    char *text = read_file(paths[i], &n);
    if (text == NULL) continue;
    text[n] = 0;
    for (char *at = text; (at = strtok(at, " ")) != NULL && count < WORDS_MAX; at = NULL)
      word[count++] = at;
  }
  char *out = malloc(TEXT_BYTES + 4096);
  uint64_t random = 1;
  *length = 0;
  while (out != NULL && count > 0 && *length < TEXT_BYTES) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const char *w = word[(random >> 33) % count];
    n = strnlen(w, 1024);
    memcpy(out + *length, w, n);
    out[*length + n] = ' ';
    *length += n + 1;
  }
  return out;
}

/* Best CPU seconds of encoding the text; the ids of the last round go to *ids. */
static double encode(const tokenizer_t *t, const char *text, size_t length, int rounds,
                     int32_t **ids, size_t *count) {
  tokenizer_scratch_t *s = tokenizer_scratch_new(t);
  tokenize_options_t options = {0};
  double best = 1e9;
  for (int i = 0; s != NULL && i < rounds; i++) {
    inferd_error_t error = {0};
    if (i > 0) free(*ids);
    double start = now();
    if (tokenizer_encode(t, s, text, length, &options, ids, count, &error) != 0) {
      fprintf(stderr, "tokenizer_bench: %s\n", error.message);
      exit(1);
    }
    double seconds = now() - start;
    if (seconds < best) best = seconds;
  }
  tokenizer_scratch_free(s);
  return best;
}

static void hostile(const tokenizer_t *t) {
  static const struct {
    const char *name, *unit;
  } cases[] = {
      {"letter a", "a"}, {"spaces", " "},          {"line feeds", "\n"}, {"marks", "\u0301\u0327"},
      {"CJK", "中"},     {"emoji ZWJ", "👨\u200d"}, {"apostrophes", "'"}, {"half a token", "<|im"},
      {"a A", "aA"}};
  char *text = malloc(HOSTILE_BYTES);
  for (unsigned i = 0; text != NULL && i < sizeof cases / sizeof cases[0]; i++) {
    size_t unit = strlen(cases[i].unit), n = 0, count;
    int32_t *ids;
    while (n + unit <= HOSTILE_BYTES) memcpy(text + n, cases[i].unit, unit), n += unit;
    double seconds = encode(t, text, n, 2, &ids, &count);
    printf("    1 MiB of %-12s %7.1f ms\n", cases[i].name, 1e3 * seconds);
    free(ids);
  }
  free(text);
}

static void detokenize(const tokenizer_t *t, const int32_t *ids, size_t count) {
  static const char *const strings[] = {"\n\nUser:", "<|im_end|>", "Observation:", "```\n"};
  size_t lengths[4], sum = 0;
  stop_set_t *stops = NULL;
  inferd_error_t error = {0};
  for (int i = 0; i < 4; i++) lengths[i] = strlen(strings[i]);
  if (stop_set_new(strings, lengths, 4, &stops, &error) != 0) return;
  char *held = malloc(stop_set_hold_max(stops)), *out = malloc(detokenizer_out_max(t, stops));
  detokenizer_t d;
  double start = now();
  detokenizer_init(&d, t, stops, true, false, held);
  for (size_t i = 0; i < count; i++) {
    detokenized_t x = detokenizer_feed(&d, ids[i], true, out);
    sum += x.length;
    if (x.stop_index >= 0) detokenizer_init(&d, t, stops, true, false, held);
  }
  double seconds = now() - start;
  printf("    detokenize with 4 stop strings: %.0f ns a token (%zu bytes)\n",
         1e9 * seconds / (double)count, sum);
  free(held);
  free(out);
  stop_set_free(stops);
}

static int bench(const char *dir, const char *text, size_t length) {
  tokenizer_t *t;
  inferd_error_t error = {0};
  double start = now();
  if (tokenizer_load(dir, &t, &error) != 0) {
    fprintf(stderr, "tokenizer_bench: %s\n", error.message);
    return 1;
  }
  double load = now() - start;
  int32_t *ids;
  size_t count;
  double seconds = encode(t, text, length, ROUNDS, &ids, &count);
  printf("%s\n    loaded in %.1f ms; %.1f MB/s, %.2f bytes an id\n", dir, 1e3 * load,
         1e-6 * (double)length / seconds, (double)length / (double)count);
  hostile(t);
  detokenize(t, ids, count);
  free(ids);
  tokenizer_free(t);
  return 0;
}

int main(int argc, char **argv) {
  static const char *const defaults[] = {
      "tests/vectors/tokenizer/gpt2", "tests/vectors/tokenizer/llama3",
      "tests/vectors/tokenizer/qwen2", "tests/vectors/tokenizer/llama2"};
  size_t length = 0;
  char *text = argc > 2 ? read_file(argv[2], &length) : shuffled_words(&length);
  if (text == NULL || length == 0) return fprintf(stderr, "tokenizer_bench: no text\n"), 1;
  int rc = 0;
  if (argc > 1) {
    rc = bench(argv[1], text, length);
  } else {
    for (unsigned i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
      rc |= bench(defaults[i], text, length);
  }
  free(text);
  return rc;
}
