/* emu_shared.cc: the shared memory of a block, poisoned before and fenced by red zones.
 *
 * Every byte is 0xff when a block starts: NaN as a float, -1 as an integer. Behind the dynamic
 * part and behind each static variable lies a red zone: AddressSanitizer reports a touch at once,
 * and the plain build finds what was written there when the block ends.
 */
#include "emu_check.h"
#include <algorithm>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

enum { DYNAMIC_ALIGNMENT = 1024, STATIC_ALIGNMENT = 16 };

static void shared_make(Block *b) {
  void *memory = mmap(nullptr, SHARED_BYTES + DYNAMIC_ALIGNMENT, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("emu: shared memory");
    abort();
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory) + DYNAMIC_ALIGNMENT - 1;
  b->shared = reinterpret_cast<char *>(address / DYNAMIC_ALIGNMENT * DYNAMIC_ALIGNMENT);
  b->shared_used = SHARED_BYTES;
}

static void red_zone_make(char *p) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(p, RED_ZONE_BYTES);
#endif
  memset(p, RED_ZONE_FILL, RED_ZONE_BYTES);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(p, RED_ZONE_BYTES);
#endif
}

void shared_begin(Block *b, size_t dynamic_bytes) {
  if (!b->shared) shared_make(b);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(b->shared, SHARED_BYTES);
#endif
  const size_t used = std::max(b->shared_used, dynamic_bytes + RED_ZONE_BYTES);
  memset(b->shared, 0xff, std::min((size_t)SHARED_BYTES, used));
  b->dynamic_bytes = dynamic_bytes;
  b->shared_used = dynamic_bytes + RED_ZONE_BYTES;
  b->variables.clear();
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(b->shared + dynamic_bytes, SHARED_BYTES - dynamic_bytes);
#endif
  red_zone_make(b->shared + dynamic_bytes);
}

#if !defined(__SANITIZE_ADDRESS__)
static void red_zone_check(const Block *b, const char *zone, const char *what, size_t size) {
  for (int i = 0; i < RED_ZONE_BYTES; i++) {
    if ((unsigned char)zone[i] == RED_ZONE_FILL) continue;
    char text[300];
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u) wrote %d bytes behind %s (%zu bytes)",
             engine.launch->shape.name, b->index.x, b->index.y, b->index.z, i, what, size);
    report(text);
    return;
  }
}
#endif

void shared_end(Block *b) {
#if !defined(__SANITIZE_ADDRESS__)
  red_zone_check(b, b->shared + b->dynamic_bytes, "dynamic shared memory", b->dynamic_bytes);
  for (const SharedVariable &v : b->variables)
    red_zone_check(b, v.p + v.size, "a SHARED variable", v.size);
#endif
  (void)b;
}

void *dynamic_shared() {
  return self()->owner->shared;
}

void *static_shared(const void *key, size_t size, size_t alignment) {
  Block *b = self()->owner;
  for (const SharedVariable &v : b->variables)
    if (v.key == key) return v.p;
  alignment = std::max(alignment, (size_t)STATIC_ALIGNMENT);
  const size_t offset = (b->shared_used + alignment - 1) / alignment * alignment;
  if (offset + size + RED_ZONE_BYTES > SHARED_BYTES)
    fail("more than %d bytes of shared memory", SHARED_BYTES);
  char *p = b->shared + offset;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(p, size);
#endif
  memset(p, 0xff, size);
  red_zone_make(p + size);
  b->shared_used = offset + size + RED_ZONE_BYTES;
  b->variables.push_back({key, p, size});
  return p;
}

bool is_shared(const void *p, size_t size) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(self()->owner->shared);
  const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - base;
  return offset < SHARED_BYTES && size <= SHARED_BYTES - offset;
}

/* An access that the emulator makes for a CUDA thread, as if the thread's own code had made it. */
void check_access(const void *p, size_t size, bool writes, const char *what) {
#if defined(__SANITIZE_ADDRESS__)
  void *bad = __asan_region_is_poisoned(const_cast<void *>(p), size);
  if (!bad) return;
  const Thread *t = current;
  fprintf(stderr, "emu: %s touches %p, thread %u of block (%u,%u,%u)\n", what, bad,
          t ? t->linear : 0, t ? t->block.x : 0, t ? t->block.y : 0, t ? t->block.z : 0);
  __asan_report_error(__builtin_return_address(0), __builtin_frame_address(0),
                      __builtin_frame_address(0), bad, writes, size);
#elif defined(EMU_CHECK)
  (void)what;
  check_memory_access(p, size, writes, __builtin_return_address(0));
#else
  (void)p, (void)size, (void)writes, (void)what;
#endif
}

} // namespace emu
