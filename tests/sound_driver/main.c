/* main.c: files of sound -> samples, for comparison with other decoders.
 *
 * Each line of stdin is the path of a file. Of each, stdout has a line, the number of samples or
 * "refused: " and why, and behind a number the samples, in floats. Runs in
 * tests/parity/parity_sounds.py, one thread.
 */
#include "engine/audio/audio.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 64 << 20, SAMPLES_MAX = 600 * AUDIO_RATE };

int main(void) {
  char *path = NULL;
  size_t capacity = 0;
  uint8_t *bytes = malloc(FILE_MAX);
  float *samples = malloc(SAMPLES_MAX * sizeof *samples);
  for (ssize_t length; (length = getline(&path, &capacity, stdin)) > 0;) {
    path[length - 1] = '\0';
    FILE *in = fopen(path, "rb");
    if (in == NULL || bytes == NULL || samples == NULL) return 1;
    const size_t size = fread(bytes, 1, FILE_MAX, in);
    fclose(in);
    uint64_t count = 0;
    audio_source_t source;
    inferd_error_t error = {0};
    if (audio_decode(bytes, size, samples, SAMPLES_MAX, &count, &source, &error) != 0) {
      printf("refused: %s\n", error.message);
    } else {
      printf("%" PRIu64 "\n", count);
      (void)fwrite(samples, sizeof *samples, count, stdout);
    }
    fflush(stdout);
  }
  free(path);
  free(bytes);
  free(samples);
  return 0;
}
