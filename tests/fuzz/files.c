/* files.c: a directory for the loaders that read files; the cost of an input. One thread. */
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t fuzz_cost;

static char directory[64];

static void remove_directory(void) {
  (void)rmdir(directory);
}

const char *fuzz_directory(void) {
  if (directory[0] != '\0') return directory;
  snprintf(directory, sizeof directory, "%s/inferd-fuzz-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (mkdtemp(directory) == NULL) abort();
  atexit(remove_directory);
  return directory;
}

static void path_of(char path[256], const char *name) {
  snprintf(path, 256, "%s/%s", fuzz_directory(), name);
}

void fuzz_write(const char *name, const uint8_t *data, size_t size) {
  char path[256];
  path_of(path, name);
  FILE *file = fopen(path, "wb");
  if (file == NULL) abort();
  if (size > 0 && fwrite(data, 1, size, file) != size) abort();
  fclose(file);
}

void fuzz_remove(const char *name) {
  char path[256];
  path_of(path, name);
  (void)unlink(path);
}

void fuzz_write_parts(const char *const *names, size_t count, const uint8_t *data, size_t size) {
  while (size > 0) {
    size_t length;
    const uint8_t *part = fuzz_part(&data, &size, 0xFF, &length);
    if (length > 0 && part[0] >= 'a' && part[0] - 'a' < (int)count)
      fuzz_write(names[part[0] - 'a'], part + 1, length - 1);
  }
}

void fuzz_remove_parts(const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++) fuzz_remove(names[i]);
}
