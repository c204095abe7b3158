/* fault.c: alternate signal stacks, one in the thread-local memory of every thread.
 *
 * Any thread, each for itself. It never installs a handler.
 */
#include "engine/base/fault.h"

#include "engine/base/check.h"

/* A signal frame takes up to 11 KiB on a processor with AMX, unwinding a few more. */
enum { FAULT_STACK_BYTES = 32 * 1024 };

static _Thread_local _Alignas(64) unsigned char stack_bytes[FAULT_STACK_BYTES];

void fault_stack_use(void) {
  const stack_t stack = {.ss_sp = stack_bytes, .ss_size = sizeof stack_bytes};
  stack_t old;
  CHECK_EQ(sigaltstack(NULL, &old), 0);
  if (old.ss_flags & SS_DISABLE) CHECK_EQ(sigaltstack(&stack, NULL), 0);
}

void fault_block_others(sigset_t *set) {
  sigfillset(set);
#define X(number) sigdelset(set, number);
  FAULT_SIGNALS(X)
#undef X
}
