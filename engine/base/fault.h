/* fault.h: what each thread must do so that a fatal signal in it can be reported.
 *
 * The handler is the server's (server/observe/crash.h). A thread without an alternate signal stack
 * cannot report the overflow of its own stack, and a thread that blocks SIGSEGV ends by it without
 * the handler. No function allocates. Sanitizers have handlers and stacks of their own.
 */
#ifndef INFERD_ENGINE_BASE_FAULT_H
#define INFERD_ENGINE_BASE_FAULT_H

#include <signal.h>

/* X(signal): the signals that a defect of the program raises. */
#define FAULT_SIGNALS(X) X(SIGSEGV) X(SIGBUS) X(SIGILL) X(SIGFPE) X(SIGABRT)

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define FAULT_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAULT_SANITIZED 1
#endif
#endif
#ifndef FAULT_SANITIZED
#define FAULT_SANITIZED 0
#endif

/* Gives the calling thread its alternate signal stack; may be called more than once. A stack that
 * it has stays: a sanitizer's runtime, also one that is loaded into a plain build, unmaps what it
 * finds where the thread ends. */
void fault_stack_use(void);
/* Sets *set to all signals except FAULT_SIGNALS: the mask of a thread that must handle no others.
 */
void fault_block_others(sigset_t *set);

#endif
