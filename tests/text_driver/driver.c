/* driver.c: a tokenizer on a pipe, for the differential test and for benchmarks.
 *
 *   driver encode DIR 0|1   records (uint32 length, bytes) on stdin -> (uint32 count, int32 ids) on
 *                           stdout; 1 = with the post-processor
 *   driver decode DIR 0|1   records (uint32 count, int32 ids) -> (uint32 length, bytes); 1 =
 * without special tokens
 *   driver spans DIR 0|1    as encode, but (uint32 count, uint32 first and last byte of each id)
 *   driver bench DIR FILE   encodes the file a few times; prints MB/s and the
 * number of ids driver load DIR         loads the tokenizer; prints milliseconds
 *
 * tests/parity/parity_tokenizer.py builds and runs it. A test tool, not part of the product.
 */
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* other programs do not count */
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const inferd_error_t *error) {
  fprintf(stderr, "driver: %s\n", error->message);
  return 1;
}

static void *read_record(size_t unit, uint32_t *count) {
  if (fread(count, sizeof *count, 1, stdin) != 1) return NULL;
  void *data = malloc((size_t)*count * unit + 1);
  if (data == NULL || fread(data, unit, *count, stdin) != *count) exit(2);
  return data;
}

static int encode(const tokenizer_t *t, bool special) {
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  tokenize_options_t options = {.add_special_tokens = special};
  uint32_t length;
  char *text;
  while ((text = read_record(1, &length)) != NULL) {
    inferd_error_t error = {0};
    int32_t *ids;
    size_t count;
    if (tokenizer_encode(t, scratch, text, length, &options, &ids, &count, &error) != 0)
      return fail(&error);
    uint32_t n = (uint32_t)count;
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(ids, sizeof *ids, count, stdout);
    free(ids);
    free(text);
  }
  tokenizer_scratch_free(scratch);
  return 0;
}

static int spans(const tokenizer_t *t, bool special) {
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  byte_span_t *found = NULL;
  tokenize_options_t options = {.add_special_tokens = special, .spans = &found};
  uint32_t length;
  char *text;
  while ((text = read_record(1, &length)) != NULL) {
    inferd_error_t error = {0};
    int32_t *ids;
    size_t count;
    if (tokenizer_encode(t, scratch, text, length, &options, &ids, &count, &error) != 0)
      return fail(&error);
    uint32_t n = (uint32_t)count;
    fwrite(&n, sizeof n, 1, stdout);
    for (size_t i = 0; i < count; i++) {
      const bool nowhere = found[i].begin > found[i].end;
      uint32_t span[2] = {nowhere ? 0 : (uint32_t)found[i].begin, (uint32_t)found[i].end};
      fwrite(span, sizeof span, 1, stdout);
    }
    free(found);
    free(ids);
    free(text);
  }
  tokenizer_scratch_free(scratch);
  return 0;
}

static int decode(const tokenizer_t *t, bool skip) {
  uint32_t count;
  int32_t *ids;
  while ((ids = read_record(sizeof *ids, &count)) != NULL) {
    inferd_error_t error = {0};
    char *text;
    size_t length;
    if (tokenizer_decode(t, ids, count, skip, &text, &length, &error) != 0) return fail(&error);
    uint32_t n = (uint32_t)length;
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(text, 1, length, stdout);
    free(ids);
    free(text);
  }
  return 0;
}

static int bench(const tokenizer_t *t, const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return perror(path), 1;
  fseek(file, 0, SEEK_END);
  size_t length = (size_t)ftell(file);
  rewind(file);
  char *text = malloc(length + 1);
  if (text == NULL || fread(text, 1, length, file) != length) return 1;
  fclose(file);
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  tokenize_options_t options = {0};
  double best = 1e9;
  size_t count = 0;
  for (int round = 0; round < 5; round++) {
    inferd_error_t error = {0};
    int32_t *ids;
    double start = now();
    if (tokenizer_encode(t, scratch, text, length, &options, &ids, &count, &error) != 0)
      return fail(&error);
    if (now() - start < best) best = now() - start;
    free(ids);
  }
  printf("%.1f MB/s, %zu bytes, %zu ids, best of 5: %.1f ms\n", (double)length / 1e6 / best, length,
         count, best * 1e3);
  tokenizer_scratch_free(scratch);
  free(text);
  return 0;
}

int main(int argc, char **argv) {
  inferd_error_t error = {0};
  tokenizer_t *t;
  if (argc < 3) return fprintf(stderr, "usage: driver encode|decode|bench|load DIR [...]\n"), 2;
  double start = now();
  if (tokenizer_load(argv[2], &t, &error) != 0) return fail(&error);
  int rc = 2;
  if (argc > 3 && strcmp(argv[1], "encode") == 0) rc = encode(t, argv[3][0] == '1');
  if (argc > 3 && strcmp(argv[1], "spans") == 0) rc = spans(t, argv[3][0] == '1');
  if (argc > 3 && strcmp(argv[1], "decode") == 0) rc = decode(t, argv[3][0] == '1');
  if (argc > 3 && strcmp(argv[1], "bench") == 0) rc = bench(t, argv[3]);
  if (strcmp(argv[1], "load") == 0) rc = printf("%.1f ms\n", 1e3 * (now() - start)) < 0;
  tokenizer_free(t);
  return rc;
}
