/* crash.c: the report of a fatal signal.
 *
 * The handler runs in the thread that crashed, on its alternate stack, and calls only functions
 * that are async-signal-safe: everything else, the addresses of the program and its libraries among
 * it, is read by crash_install. glibc's backtrace is not on the list of safe functions, because its
 * first call loads a library; crash_install makes that call. Afterwards it only reads unwind
 * tables. Two guards bound the damage if the handler itself fails: a second fault in it kills the
 * process, for all fault signals are blocked meanwhile, and an alarm ends one that hangs.
 */
#include "server/observe/crash.h"

#include "engine/base/fault.h"
#include "engine/base/hex.h"

#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES_MAX = 64, OBJECTS_MAX = 48, LINE_BYTES = 256, NAME_BYTES = 48, REPORT_S_MAX = 10 };

/* The program or a library. */
typedef struct loaded_object {
  uintptr_t base;       /* what the dynamic linker added to the addresses of the file */
  uintptr_t begin, end; /* of its memory */
  char name[NAME_BYTES];
} loaded_object_t;

static struct {
  loaded_object_t objects[OBJECTS_MAX]; /* [0] is the program */
  int num_objects;
  char build_id[2 * 20 + 1];
} process = {.build_id = "none"};

static void (*_Atomic last)(void); /* of crash_last */
static atomic_int reporter;        /* id of the thread that writes the report; 0 = none yet */

/* ---- one line at a time ---- */

typedef struct crash_line {
  char text[LINE_BYTES];
  size_t used;
} crash_line_t;

static void put(crash_line_t *line, const char *text) {
  while (*text != '\0' && line->used < sizeof line->text - 1) line->text[line->used++] = *text++;
}

static void put_number(crash_line_t *line, uintmax_t value, unsigned base) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do {
    digits[--at] = hex_digit((uint32_t)(value % base));
    value /= base;
  } while (value != 0);
  if (base == 16) put(line, "0x");
  put(line, digits + at);
}

static void finish(crash_line_t *line) {
  line->text[line->used++] = '\n';
  size_t done = 0;
  while (done < line->used) {
    ssize_t n = write(STDERR_FILENO, line->text + done, line->used - done);
    if (n <= 0) break;
    done += (size_t)n;
  }
  line->used = 0;
}

/* ---- the report ---- */

static const char *name_of(int number) {
#define X(signal_number)                                                                           \
  if (number == signal_number) return #signal_number;
  FAULT_SIGNALS(X)
#undef X
  return "a signal";
}

static uintptr_t counter_of(const ucontext_t *context) {
#if defined __x86_64__
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
  return (uintptr_t)context->uc_mcontext.pc;
#else
  (void)context;
  return 0;
#endif
}

/* "inferd+0x1234": what addr2line takes, as the distance from where the object was loaded. */
static void put_place(crash_line_t *line, uintptr_t address) {
  put_number(line, address, 16);
  for (int i = 0; i < process.num_objects; i++) {
    const loaded_object_t *object = &process.objects[i];
    if (address < object->begin || address >= object->end) continue;
    put(line, " ");
    put(line, object->name);
    put(line, "+");
    put_number(line, address - object->base, 16);
    return;
  }
}

static void report(int number, const siginfo_t *info, const ucontext_t *context) {
  char thread[16] = "";
  crash_line_t line = {.used = 0};
  prctl(PR_GET_NAME, thread);
  put(&line, "inferd: crashed by ");
  put(&line, name_of(number));
  put(&line, " in thread ");
  put(&line, thread);
  if (info->si_code > 0 && number != SIGABRT) { /* not sent by kill or abort */
    put(&line, ", address ");
    put_number(&line, (uintptr_t)info->si_addr, 16);
  }
  finish(&line);
  put(&line, "inferd: version " INFERD_VERSION " (" INFERD_COMMIT "), build id ");
  put(&line, process.build_id);
  put(&line, ", loaded at ");
  put_number(&line, process.objects[0].base, 16);
  finish(&line);
  put(&line, "inferd: at ");
  put_place(&line, counter_of(context));
  finish(&line);
  void *frames[FRAMES_MAX];
  int count = backtrace(frames, FRAMES_MAX);
  for (int i = 0; i < count; i++) {
    put(&line, "inferd: frame ");
    put_number(&line, (uintmax_t)i, 10);
    put(&line, ": ");
    put_place(&line, (uintptr_t)frames[i]);
    finish(&line);
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  int none = 0;
  if (atomic_compare_exchange_strong(&reporter, &none, (int)gettid())) {
    signal(SIGALRM, SIG_DFL);
    alarm(REPORT_S_MAX);
    report(number, info, context);
    void (*flush)(void) = atomic_load(&last);
    if (flush != NULL) flush();
  } else if (none != (int)gettid()) {
    for (;;) pause(); /* another thread is writing its report, and will end the process */
  }
  signal(number, SIG_DFL);
  raise(number); /* blocked until this returns */
}

/* ---- set-up ---- */

static void read_build_id(const struct dl_phdr_info *info, const ElfW(Phdr) * header) {
  const unsigned char *at = (const unsigned char *)(info->dlpi_addr + header->p_vaddr);
  const unsigned char *end = at + header->p_memsz;
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    memcpy(&note, at, sizeof note);
    const unsigned char *name = at + sizeof note, *bytes = name + (note.n_namesz + 3) / 4 * 4;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
      size_t count = note.n_descsz <= 20 ? note.n_descsz : 20;
      for (size_t i = 0; i < count; i++)
        snprintf(process.build_id + 2 * i, 3, "%02x", (unsigned)bytes[i]);
      return;
    }
    at = bytes + (note.n_descsz + 3) / 4 * 4;
  }
}

static int add_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  (void)context;
  if (process.num_objects == OBJECTS_MAX) return 1;
  loaded_object_t *object = &process.objects[process.num_objects++];
  bool is_program = object == process.objects;
  const char *slash = strrchr(info->dlpi_name, '/');
  const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
  snprintf(object->name, sizeof object->name, "%s", is_program ? "inferd" : name);
  object->base = info->dlpi_addr;
  object->begin = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (is_program && header->p_type == PT_NOTE) read_build_id(info, header);
    if (header->p_type != PT_LOAD) continue;
    if (begin < object->begin) object->begin = begin;
    if (begin + header->p_memsz > object->end) object->end = begin + header->p_memsz;
  }
  return 0;
}

void crash_last(void (*function)(void)) {
  atomic_store(&last, function);
}

void crash_install(void) {
  if (FAULT_SANITIZED) return;
  void *frame;
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  dl_iterate_phdr(add_object, NULL);
  backtrace(&frame, 1);
  fault_stack_use();
  sigemptyset(&action.sa_mask);
#define X(number) sigaddset(&action.sa_mask, number);
  FAULT_SIGNALS(X)
#undef X
#define X(number) sigaction(number, &action, NULL);
  FAULT_SIGNALS(X)
#undef X
}
