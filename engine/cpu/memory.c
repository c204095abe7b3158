/* memory.c: memory of the CPU back end.
 *
 * Owns the arenas of a device: anonymous mappings on huge pages, from which weights, vectors and
 * buffers are cut front to back. All are freed together. Used at set-up only, never in a step. The
 * kernel gives a page its memory when it is first written, on the NUMA node of the thread that
 * writes: for weights one that packs them.
 */
#include "engine/base/util.h"
#include "engine/cpu/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, ARENA_BYTES = 64 << 20, ALIGN = 64 };

bool size_product(size_t *out, size_t first, size_t second, size_t third) {
  size_t two;
  return !__builtin_mul_overflow(first, second, &two) && !__builtin_mul_overflow(two, third, out);
}

int no_memory(inferd_error_t *error, const char *what, size_t bytes) {
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s (%zu bytes)", what, bytes);
}

void *memory_map(size_t bytes, size_t *mapped) {
  if (bytes > SIZE_MAX / 2) return NULL;
  size_t size = ROUND_UP(bytes, HUGE_PAGE);
  /* One huge page more, so that an aligned range of `size` bytes lies inside. */
  uint8_t *raw =
      mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  size_t lead = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
  if (lead > 0) munmap(raw, lead);
  munmap(raw + lead + size, HUGE_PAGE - lead);
  madvise(raw + lead, size, MADV_HUGEPAGE); /* only advice: huge pages may be disabled */
  *mapped = size;
  return raw + lead;
}

void memory_unmap(void *base, size_t mapped) {
  if (base != NULL) munmap(base, mapped);
}

void *memory_take(device_t *device, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  size_t size = ROUND_UP(bytes, ALIGN);
  device_arena_t *arena = device->arenas;
  if (arena == NULL || arena->size - arena->used < size) {
    arena = calloc(1, sizeof *arena);
    if (arena == NULL) return NULL;
    arena->base = memory_map(MAX(size, ARENA_BYTES), &arena->size);
    if (arena->base == NULL) {
      free(arena);
      return NULL;
    }
    /* A large piece gets its own arena after the current one, so that the rest of the current arena
     * is still used. */
    if (device->arenas != NULL && size > ARENA_BYTES / 2) {
      arena->next = device->arenas->next;
      device->arenas->next = arena;
    } else {
      arena->next = device->arenas;
      device->arenas = arena;
    }
  }
  void *taken = arena->base + arena->used;
  arena->used += size;
  return taken;
}

void memory_release(device_t *device) {
  while (device->arenas != NULL) {
    device_arena_t *arena = device->arenas;
    device->arenas = arena->next;
    memory_unmap(arena->base, arena->size);
    free(arena);
  }
}
