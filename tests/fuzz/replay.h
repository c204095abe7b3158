/* replay.h: replays a directory of the corpus, for the tests of this folder and of
 * tests/server/api. One thread. */
#ifndef INFERD_TESTS_FUZZ_REPLAY_H
#define INFERD_TESTS_FUZZ_REPLAY_H

#include "tests/fuzz/targets.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hands one file to a target. Returns 1. */
static inline unsigned replay_file(const char *path, void (*target)(const uint8_t *, size_t)) {
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file, "%s", path);
  cr_assert_eq(fseek(file, 0, SEEK_END), 0);
  long size = ftell(file);
  rewind(file);
  uint8_t *data = malloc(size > 0 ? (size_t)size : 1); /* exact: a read behind it is seen */
  cr_assert_eq(fread(data, 1, (size_t)size, file), (size_t)size);
  fclose(file);
  target(data, (size_t)size);
  free(data);
  return 1;
}

/* Hands every file of tests/fuzz/corpus/NAME to a target. Returns their number. */
static inline unsigned replay(const char *name, void (*target)(const uint8_t *, size_t)) {
  char path[512];
  unsigned count = 0;
  snprintf(path, sizeof path, "tests/fuzz/corpus/%s", name);
  DIR *directory = opendir(path);
  cr_assert_not_null(directory, "%s", path);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", name, entry->d_name);
    count += replay_file(path, target);
  }
  closedir(directory);
  return count;
}

#endif
