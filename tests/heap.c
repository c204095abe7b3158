/* heap.c: counts the bytes of every allocation. The programs are linked with -Wl,--wrap for each of
 * these functions. Any thread. */
#include "tests/heap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);

static atomic_size_t asked;

void heap_restart(void) {
  atomic_store(&asked, 0);
}

size_t heap_asked(void) {
  return atomic_load(&asked);
}

void *__wrap_malloc(size_t size) {
  atomic_fetch_add(&asked, size);
  return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
  atomic_fetch_add(&asked, count * size);
  return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
  atomic_fetch_add(&asked, size);
  return __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size) {
  atomic_fetch_add(&asked, count * size);
  return __real_reallocarray(old, count, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  atomic_fetch_add(&asked, size);
  return __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text) {
  atomic_fetch_add(&asked, strlen(text) + 1);
  return __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t length) {
  atomic_fetch_add(&asked, length + 1);
  return __real_strndup(text, length);
}
