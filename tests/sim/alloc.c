/* alloc.c: the heap of the simulator, counted, and failing when faults.h says so. The program is
 * linked with -Wl,--wrap for each of these functions, so every call from the project's own code
 * passes here. One thread. */
#include "tests/sim/faults.h"
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length);
void __real_free(void *p);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length);
void __wrap_free(void *p);

static uint64_t calls;
static int64_t live;

uint64_t alloc_calls(void) {
  return calls;
}

int64_t alloc_live(void) {
  return live;
}

static void *count(void *p) {
  calls++;
  live += p != NULL;
  return p;
}

void *__wrap_malloc(size_t size) {
  return faults_now() ? NULL : count(__real_malloc(size));
}

void *__wrap_calloc(size_t number, size_t size) {
  return faults_now() ? NULL : count(__real_calloc(number, size));
}

void *__wrap_realloc(void *old, size_t size) {
  if (faults_now()) return NULL;
  calls++;
  void *p = __real_realloc(old, size);
  live += old == NULL && p != NULL;
  return p;
}

void *__wrap_reallocarray(void *old, size_t number, size_t size) {
  if (faults_now()) return NULL;
  calls++;
  void *p = __real_reallocarray(old, number, size);
  live += old == NULL && p != NULL;
  return p;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return faults_now() ? NULL : count(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text) {
  return faults_now() ? NULL : count(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t length) {
  return faults_now() ? NULL : count(__real_strndup(text, length));
}

void __wrap_free(void *p) {
  live -= p != NULL;
  __real_free(p);
}

/* With and without _FORTIFY_SOURCE. */
int __wrap_asprintf(char **out, const char *format, ...);
int __wrap___asprintf_chk(char **out, int flag, const char *format, ...);

static int print(char **out, const char *format, va_list args) {
  if (faults_now()) return -1;
  int length = vasprintf(out, format, args);
  if (length >= 0) count(*out);
  return length;
}

int __wrap_asprintf(char **out, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = print(out, format, args);
  va_end(args);
  return length;
}

int __wrap___asprintf_chk(char **out, int flag, const char *format, ...) {
  (void)flag;
  va_list args;
  va_start(args, format);
  int length = print(out, format, args);
  va_end(args);
  return length;
}
