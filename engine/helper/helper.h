/* helper.h: files of clients are read in processes without rights.
 *
 * helper_start forks a keeper, which is small because the daemon still is: it must run before
 * threads, weights and secrets. For each file the keeper forks one child. The child gives up its
 * rights (rights.c: no files, no network, no new processes, no sleep; bounded memory and time),
 * reads the file from shared memory, writes its result there, and ends. A file that crashes, hangs
 * or captures its child costs its own request, and no file meets the child of another.
 *
 *   caller (any thread)      keeper                 child
 *   memory: file, room  -->  fork              -->  the work of the trade, into the memory
 *   answer, or the end  <-------------------------  status, bytes of the result
 *
 * A trade is one kind of work: pictures (engine/picture/work.h) and sound (engine/audio/work.h)
 * have a keeper each. It ends when the daemon does. If it is killed, every later file is refused; a
 * supervisor's restart brings it back: from a daemon with threads nothing may be forked.
 */
#ifndef INFERD_ENGINE_HELPER_HELPER_H
#define INFERD_ENGINE_HELPER_HELPER_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  HELPER_JOB_MAX = 1024, /* bytes of a job */
  HELPER_NICE = 10       /* of a child, as of nice(2): a CPU back end comes first */
};

/* One kind of work. Constant, and the same in keeper and callers. */
typedef struct helper_trade {
  const char *name;         /* of what is read, in errors: "picture" */
  const char *process;      /* of the keeper, at most 15 bytes */
  size_t job_bytes;         /* of a job: plain data without pointers, at most HELPER_JOB_MAX */
  size_t file_bytes_max;    /* of a file */
  unsigned cpu_seconds_max; /* of a child; then it is killed */
  unsigned wait_s_max;      /* of a caller, on a machine that is busy */
  unsigned memory_mib_max;  /* address space of a child */
  /* The result fills its room, whose memory is taken before; else how much it fills is known at its
   * end alone, and memory is taken as it is written. */
  bool fills;
  /* NULL, or runs in the keeper at its start: opens what the work needs, for its children can open
   * nothing. */
  void (*ready)(void);
  /* Runs in the child: reads `bytes` of `file`, writes at most `room` bytes to `out`, zeroed
   * before, and sets *used, which is `room` until then. Returns 0 or an ERR_ number with *error. */
  int (*work)(const void *job, const uint8_t *file, size_t bytes, uint8_t *out, size_t room,
              size_t *used, inferd_error_t *error);
} helper_trade_t;

/* What a child has left; free it by helper_result_free. `(helper_result_t){0}` has nothing. */
typedef struct helper_result {
  const uint8_t *bytes; /* [length], on a page of their own */
  size_t length;        /* at most the room that was given */
  void *memory;         /* where they lie: the mapping, of `mapped` bytes */
  size_t mapped;
} helper_result_t;

typedef struct helper helper_t;

/* ---- make ---- */

/* Before any other thread. `trade` outlives the helper. Returns 0, or ERR_IO. */
int helper_start(const helper_trade_t *trade, helper_t **out, inferd_error_t *error);

/* ---- use ---- */

/* Waits for the child; for threads that may wait, never the loop. Returns 0 and *out;
 * ERR_INVALID_VALUE, the file's fault, also where its child died; ERR_NO_MEMORY; or ERR_OVERLOADED:
 * the keeper is gone, or the machine too busy. Adds to *spent_ns what the child took of a
 * processor, or, where it died, how long it lived. Any thread, and several at once. */
int helper_run(helper_t *helper, const void *job, const uint8_t *file, size_t bytes, size_t room,
               helper_result_t *out, uint64_t *spent_ns, inferd_error_t *error);

/* ---- free ---- */

void helper_result_free(helper_result_t *result);
void helper_stop(helper_t *helper); /* ends the keeper; NULL is allowed */

#endif
