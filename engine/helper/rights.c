/* rights.c: limits and a seccomp filter for the child that decodes (seccomp(2), BPF). One thread.
 */
#include "engine/helper/rights.h"

#include "engine/base/util.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp filter for this architecture"
#endif

/* Sanitizers map terabytes and call what they like: their runs test what decoders do, not this. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

#define LOAD(field)                                                                                \
  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define END(verdict) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##verdict)
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skipped))
#define IF_ANY(bits, skipped) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (skipped), 0)
/* The call is not made, and fails. */
#define REFUSE(call) UNLESS(SYS_##call, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES)
#define ALLOW(call) UNLESS(SYS_##call, 1), END(ALLOW)
/* The third argument, protection, must not have PROT_EXEC. */
#define ALLOW_UNLESS_EXECUTABLE(call)                                                              \
  UNLESS(SYS_##call, 4), LOAD(args[2]), IF_ANY(PROT_EXEC, 1), END(ALLOW), END(KILL_PROCESS)

/* The argument, under a mask, must have this value. */
#define ALLOW_IF(call, index, mask, value)                                                         \
  UNLESS(SYS_##call, 5), LOAD(args[index]), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (mask)),           \
      UNLESS((value), 1), END(ALLOW), END(KILL_PROCESS)

/* None of these calls waits: who sleeps spends no processor time, and would never reach its bound.
 * A futex may be woken, as libraries do behind what they do once. Opening a file fails (libsndfile
 * looks beside each for another), and so does asking for the size of memory (qsort). */
static bool filter_calls(int out) {
  struct sock_filter filter[] = {LOAD(arch),
                                 UNLESS(THIS_ARCH, 1),
                                 BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
                                 END(KILL_PROCESS),
                                 LOAD(nr),
                                 ALLOW_IF(write, 0, ~0u, (uint32_t)out),
                                 ALLOW_IF(futex, 1, (uint32_t)FUTEX_CMD_MASK, FUTEX_WAKE),
                                 REFUSE(openat),
                                 REFUSE(sysinfo),
                                 ALLOW(munmap),
                                 ALLOW(brk),
                                 ALLOW(mremap),
                                 ALLOW(madvise),
                                 ALLOW(exit),
                                 ALLOW(exit_group),
                                 ALLOW(rt_sigreturn),
                                 ALLOW(clock_gettime),
                                 ALLOW(getrandom),
                                 ALLOW_UNLESS_EXECUTABLE(mprotect),
                                 ALLOW_UNLESS_EXECUTABLE(mmap),
                                 END(KILL_PROCESS)};
  const struct sock_fprog program = {(unsigned short)ARRAY_LEN(filter), filter};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool limit(int what, rlim_t most) {
  return setrlimit(what, &(struct rlimit){most, most}) == 0;
}

bool rights_drop(int out, unsigned cpu_seconds, unsigned memory_mib) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0) return false;
  if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_CPU, cpu_seconds)) return false;
  if (SANITIZED) return true;
  return limit(RLIMIT_NOFILE, 0) && limit(RLIMIT_FSIZE, 0) &&
         limit(RLIMIT_AS, (rlim_t)memory_mib << 20) && filter_calls(out);
}
