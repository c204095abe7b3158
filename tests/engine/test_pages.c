/* test_pages.c: memory by pages: zeros, and the advice that the kernel has taken. */
#include "engine/device/pages.h"
#include "tests/expect.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 8 << 20 };

/* Whether the mapping that has the address is marked for huge pages. */
static bool is_marked(const void *memory) {
  char line[512];
  bool inside = false, marked = false;
  FILE *maps = fopen("/proc/self/smaps", "r");
  cr_assert(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    uintptr_t first, end;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
      inside = first <= (uintptr_t)memory && (uintptr_t)memory < end;
    if (inside && strncmp(line, "VmFlags:", 8) == 0) marked = strstr(line, " hg") != NULL;
  }
  fclose(maps);
  return marked;
}

/* Where the kernel was built without huge pages the advice changes nothing. */
static bool kernel_has_huge(void) {
  return access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
}

Test(pages, a_large_table_is_marked_for_huge_pages) {
  unsigned char *table = pages_map(BYTES);
  cr_assert(table != NULL);
  ASSERT_EQ((uintptr_t)table % SMALL_PAGE_BYTES, 0);
  cr_assert(!is_marked(table + BYTES / 2));
  pages_want_huge(table + 16, BYTES - 32); /* as calloc's: not where a page begins */
  ASSERT_EQ(is_marked(table + BYTES / 2), kernel_has_huge());
  cr_assert(!is_marked(table));
  for (size_t i = 0; i < BYTES; i += 1024) ASSERT_EQ(table[i], 0);
  pages_unmap(table, BYTES);
}

Test(pages, a_small_table_is_not) {
  unsigned char *table = pages_map(BYTES);
  cr_assert(table != NULL);
  pages_want_huge(table, HUGE_PAGE_BYTES - 1);
  cr_assert(!is_marked(table));
  pages_want_huge(NULL, BYTES);
  pages_unmap(table, BYTES);
}
