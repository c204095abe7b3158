/* canary.c: faults made on purpose, one a test.
 *
 * scripts/test runs this program in the sanitizer flavours only and demands that every fault is
 * reported and every sound test passes. So a sanitizer that has stopped seeing into the tests (it
 * happens: see tests/sanitized.c) is itself a failing test.
 */
#include <criterion/criterion.h>

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

void *volatile kept;
volatile int shared, zero;

static void *add(void *unused) {
  for (int i = 0; i < 1000; i++) shared = shared + 1;
  return unused;
}

static void add_twice(void) {
  pthread_t a, b;
  cr_assert(pthread_create(&a, NULL, add, NULL) == 0);
  cr_assert(pthread_create(&b, NULL, add, NULL) == 0);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
}

Test(sound, nothing_wrong) {
  kept = malloc(10);
  cr_assert(kept != NULL);
  free(kept);
}

Test(fault, assertion) {
  cr_assert(zero != 0);
}

#ifdef __SANITIZE_THREAD__
Test(fault, race) {
  add_twice();
}
#else
Test(sound, threads) {
  add_twice();
}

Test(fault, leak) {
  kept = malloc(10);
  kept = NULL;
}

Test(fault, heap_overflow) {
  volatile char *bytes = malloc(10);
  cr_assert(bytes != NULL);
  bytes[10 + zero] = 1;
  free((void *)bytes);
}

Test(fault, integer_overflow) {
  volatile int number = INT_MAX;
  number = number + 1;
  cr_assert(number != 0);
}
#endif
