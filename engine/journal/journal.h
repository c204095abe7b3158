/* journal.h: the file of --journal: what an engine was given and what it did, step by step.
 *
 * From it alone `inferd replay` runs requests again, alone or by the very schedule of steps. It
 * holds prompts and answers, so its mode is 0600. The bytes of the format, version 1, integers with
 * the lowest byte first; numbers, texts and floats of records as in engine/base/bytes.h:
 *
 *   head, JOURNAL_HEAD_BYTES: "inferd journal\n\0", u32 version, u32 FNV-1a of the text, u64 bytes
 *     of a region, u32 regions, u32 bytes of the text; then the text, lines of "name value": build,
 *     weights, device, and the options of the engine (head.h). The rest is zero.
 *   regions, one behind the other. The writer fills one after the other and begins again with the
 *     first: that bounds the file. A region is blocks, one behind the other; what is behind the
 *     last one is zero or older.
 *   block: u32 FNV-1a of all that follows in it, u32 bytes of its records + lane << 24, u64 number,
 *     one more than that of the block before, whichever region that is in; then its records: each a
 *     varint with its bytes, and those. The first byte of a record is its journal_kind_t.
 *   A lane is the engine thread of one replica; the order of its records is the order in which
 *     things happened there. Records do not cross blocks.
 *
 * The engine thread puts records into a ring of memory and never waits; a thread of the journal
 * looks for them every 20 ms and writes them. A record that finds no room is dropped and counted
 * (JOURNAL_GAP). What was written is the kernel's: neither a crash nor kill -9 loses it, and kill
 * -9 loses what came since the last look. journal_flush, in the handler of a fatal signal, has the
 * rest written.
 */
#ifndef INFERD_ENGINE_JOURNAL_JOURNAL_H
#define INFERD_ENGINE_JOURNAL_JOURNAL_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOURNAL_MAGIC "inferd journal\n"

enum {
  JOURNAL_VERSION = 1,
  JOURNAL_HEAD_BYTES = 16384,
  JOURNAL_BLOCK_HEAD_BYTES = 16,
  JOURNAL_REGIONS = 8,
  JOURNAL_LANES_MAX = 16,
  JOURNAL_PART_BYTES = 16384,   /* of a request or constraint in one record */
  JOURNAL_BYTES_MIN = 32 << 20, /* of a file: regions hold the largest record */
  JOURNAL_RECORD_MAX = 2 << 20
};

typedef enum journal_kind {
  /* varint id, varint number of the part, u8 last; then bytes. A request as request_bytes.h writes
   * it, cut into parts. The engine takes it over behind the last. */
  JOURNAL_REQUEST = 1,
  /* The same of a constraint, before the first request that names it: id is its serial number. */
  JOURNAL_CONSTRAINT,
  /* varint id, signed code: the request ends here, because its client left (0), or waited too long
   * or made room (ERR_). */
  JOURNAL_CANCEL,
  /* varint now_ns: a plan is begun. Monotonic clock. */
  JOURNAL_BEGIN,
  /* Behind BEGIN. Varints: waiting, running, swapped, blocks that are free, journal_wait_t of the
   * first that waits, preempted, entries; and of each entry signed (id - id of the entry before, or
   * 0), u8 journal_entry flags, varint index (ENTRY_INDEX), varint computed tokens, varint tokens
   * of the chunk. Behind these varint number of running choices that wait for a mask, of each its
   * id as in entries and varint index. No entries: there is no step. */
  JOURNAL_PLAN,
  /* double: the step that was launched first took so long, as the scheduler learns it. Before its
   * COMMIT. */
  JOURNAL_TIME,
  JOURNAL_DRAFT_TIME, /* double: the same of a draft model */
  JOURNAL_SWAP_TIME,  /* double: of the copy of a block, when it has changed */
  /* Of the oldest plan that has none, for each of its entries: u8 tokens + flags; of each token
   * varint id, and with LOGPROBS float and u32 journal_hash_token; with SCORES u32, the sum of
   * journal_hash_score of prompt tokens. LATE: its mask was not ready, so it drew nothing. */
  JOURNAL_COMMIT,
  JOURNAL_DROP,   /* varint id: within a commit; it had made room for another */
  JOURNAL_CHOICE, /* of choices that are known at the end: varint id, varint choice, u8 whether its
                   * tokens have logarithms; then these, as above */
  JOURNAL_FINISH, /* varint id, u8 finish_reason_t, signed code, varint tokens, u64 hash of its
                   * vector, or 0 */
  JOURNAL_GAP,    /* varint: so many records were dropped here */
  JOURNAL_END,    /* the engine ended as it should */
  /* double: the step that was launched first was left after so long, in the place of its TIME and
   * COMMIT. */
  JOURNAL_LEFT,
  JOURNAL_KINDS
} journal_kind_t;

/* Flags of an entry of a plan, and of one of a commit. */
enum { ENTRY_SAMPLES = 1, ENTRY_INDEX = 2 };
enum { COMMIT_TOKENS = 31, COMMIT_LATE = 32, COMMIT_LOGPROBS = 64, COMMIT_SCORES = 128 };

/* Why the first of the queue has not begun. */
typedef enum journal_wait {
  WAIT_NONE,   /* nobody waits */
  WAIT_SEATS,  /* as many sequences run as may */
  WAIT_BLOCKS, /* it lacks KV blocks */
  WAIT_TOKENS, /* the step has no tokens or no time left for it */
  WAIT_KEY,    /* its key runs as many as it may */
  WAIT_KINDS
} journal_wait_t;

typedef struct journal journal_t;

typedef struct journal_options {
  const char *path;
  int64_t bytes_max; /* of the file, at least JOURNAL_BYTES_MIN */
  /* Called by the writer when it fails for the first time, and when it works again (NULL). */
  void (*changed)(const char *problem);
} journal_options_t;

/* Makes the file, mode 0600, and starts the writer. A file that is there becomes PATH.old: a
 * supervisor starts the next process before anybody has looked at what the crash left. Returns 0
 * and *out, or an error that names the file. */
int journal_open(const journal_options_t *options, journal_t **out, inferd_error_t *error);
/* After the engine is destroyed: writes what is left. NULL is allowed. */
void journal_close(journal_t *journal);
/* The handler of a fatal signal: gives the writer up to a second to write what the lanes have. */
void journal_flush(journal_t *journal);

typedef struct journal_stats {
  uint64_t written_bytes, dropped_records; /* since start */
} journal_stats_t;
void journal_stats(journal_t *journal, journal_stats_t *out); /* any thread */

/* ---- lane.c and engine thread ---- */

struct journal_ring;
/* The ring of a lane, made at start; NULL without memory. */
struct journal_ring *journal_ring(journal_t *journal, int32_t lane);
/* Sets the text of the head; once, by lane 0. */
void journal_describe(journal_t *journal, const char *text, size_t length);
/* Copies a record. Never waits. Returns false if it was dropped. */
bool journal_put(struct journal_ring *ring, const void *record, size_t length);
/* Grows with each region that is begun. */
uint32_t journal_region(const struct journal_ring *ring);

#endif
