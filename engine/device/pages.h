/* pages.h: memory of large tables, by pages.
 *
 * A step over thousands of sequences touches some lines of each, in tables of many megabytes. With
 * small pages these are more pages than a processor knows the places of, so that each line costs a
 * walk through the page tables, too. Any thread, at start.
 */
#ifndef INFERD_ENGINE_DEVICE_PAGES_H
#define INFERD_ENGINE_DEVICE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { SMALL_PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

/* Memory of zeros that begins with a page and becomes real page by page, when it is touched. The
 * caller calls pages_unmap with the same `bytes`, 1 or more. NULL = there is none. */
static inline void *pages_map(size_t bytes) {
  void *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}
static inline void pages_unmap(void *memory, size_t bytes) {
  if (memory != NULL) munmap(memory, bytes);
}

/* Asks for huge pages where the `bytes` bytes of a table lie. What is touched of it should lie
 * close together: a page becomes real as a whole. Does nothing for a small table, for NULL, or
 * where the kernel has no huge pages: it is advice only. */
static inline void pages_want_huge(void *memory, size_t bytes) {
  const uintptr_t start = (uintptr_t)memory, mask = SMALL_PAGE_BYTES - 1;
  uintptr_t first = (start + mask) & ~mask, end = (start + bytes) & ~mask;
  if (memory == NULL || bytes < HUGE_PAGE_BYTES) return;
  madvise((char *)memory + (first - start), end - first, MADV_HUGEPAGE);
}

/* Makes the `bytes` bytes of a table real, which are zeros still: no step pays for the first touch
 * of a page, which takes long where pages are huge. Does nothing for NULL. */
static inline void pages_touch(void *memory, size_t bytes) {
  volatile char *page = memory;
  if (memory == NULL) return;
  for (size_t i = 0; i < bytes; i += SMALL_PAGE_BYTES) page[i] = 0;
}

#endif
