/* emu_context.cc: stacks of fibers and the switch between them, for x86-64 and AArch64.
 *
 * A switch saves the callee-saved registers on the old stack and takes them from the new one.
 * AddressSanitizer is told of every switch, or it would call the other stack's frames overflows.
 */
#include "emu_core.h"
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* emu_switch_stack(save, load): stores the stack pointer in *save and continues on `load`. */
extern "C" void emu_switch_stack(void **save, void *load);

#if defined(__x86_64__)
enum { SAVED_WORDS = 6 };
asm(".text\n.globl emu_switch_stack\n.type emu_switch_stack, @function\nemu_switch_stack:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    ".size emu_switch_stack, .-emu_switch_stack\n");

/* The entry is returned to, with the stack as if it had been called. */
static void *first_frame(char *top, void (*entry)()) {
  void **p = reinterpret_cast<void **>(top) - 1;
  *p = nullptr;
  *--p = reinterpret_cast<void *>(entry);
  for (int i = 0; i < SAVED_WORDS; i++) *--p = nullptr;
  return p;
}
#elif defined(__aarch64__)
enum { SAVED_BYTES = 160, LINK_WORD = 11 };
asm(".text\n.globl emu_switch_stack\n.type emu_switch_stack, %function\nemu_switch_stack:\n"
    "sub sp, sp, #160\n stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n add sp, sp, #160\n ret\n"
    ".size emu_switch_stack, .-emu_switch_stack\n");

static void *first_frame(char *top, void (*entry)()) {
  void **p = reinterpret_cast<void **>(top - SAVED_BYTES);
  memset(p, 0, SAVED_BYTES);
  p[LINK_WORD] = reinterpret_cast<void *>(entry);
  return p;
}
#else
#error "emu_context.cc has no stack switch for this processor"
#endif

namespace emu {

enum { GUARD_BYTES = 4096, COLOURS = 64, COLOUR_BYTES = 64 };

/* Stacks that all begin at the same offset of a page would share a few sets of the cache. */
static char *stack_top(const Fiber *f) {
  const uintptr_t number = reinterpret_cast<uintptr_t>(f->stack) / (STACK_BYTES + GUARD_BYTES);
  return f->stack + STACK_BYTES - number * 5 % COLOURS * COLOUR_BYTES;
}

Fiber *fiber_make(void (*entry)()) {
  Fiber *f = new Fiber;
  void *memory = mmap(nullptr, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) {
    perror("emu: a stack");
    abort();
  }
  f->stack = static_cast<char *>(memory) + GUARD_BYTES;
  f->stack_pointer = first_frame(stack_top(f), entry);
  return f;
}

void fiber_reset(Fiber *f, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES);
  f->fake_stack = nullptr;
#endif
  f->stack_pointer = first_frame(stack_top(f), entry);
  f->done = true;
}

__attribute__((noinline)) void fiber_switch(Fiber *to) {
  Fiber *from = self();
  void **save = from ? &from->stack_pointer : &engine.host_stack_pointer;
  current = to;
  engine.left_host = from == nullptr;
#if defined(__SANITIZE_ADDRESS__)
  void **fake = from ? &from->fake_stack : &engine.host_fake_stack;
  __sanitizer_start_switch_fiber(fake, to ? to->stack : engine.host_stack,
                                 to ? (size_t)STACK_BYTES : engine.host_stack_bytes);
#endif
  emu_switch_stack(save, to ? to->stack_pointer : engine.host_stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  const void *left_stack;
  size_t left_bytes;
  __sanitizer_finish_switch_fiber(from ? from->fake_stack : engine.host_fake_stack, &left_stack,
                                  &left_bytes);
  if (engine.left_host) engine.host_stack = left_stack, engine.host_stack_bytes = left_bytes;
#endif
}

} // namespace emu
