/* journal.c: the rings of the lanes -> blocks in a file of bounded size; see journal.h.
 *
 * A ring has one writer, the engine thread of its lane, and one reader, the thread of the journal.
 * That sleeps 20 ms after each look, and without a limit when nothing came for a while: then the
 * lane that puts a record wakes it.
 */
#include "engine/journal/journal.h"

#include "engine/base/bytes.h"
#include "engine/base/fault.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  RING_BYTES = 8 << 20, /* a power of two; pages are touched as they are used */
  BLOCK_BYTES = 65536,  /* of records, unless one is larger */
  NAP_NS = 20000000,
  IDLE_NAPS = 10, /* without a record, before the writer sleeps */
  FLUSH_NAPS = 1000,
  LENGTH_BYTES = 4 /* before each record of a ring */
};

struct journal_ring {
  journal_t *journal;
  uint8_t *bytes;                  /* [RING_BYTES] */
  uint64_t gap;                    /* engine thread: dropped since the last record */
  _Alignas(64) atomic_size_t head; /* written by the engine thread */
  _Alignas(64) atomic_size_t tail; /* written by the journal */
};

struct journal {
  int fd;
  char *path;
  void (*changed)(const char *problem);
  bool failed;                       /* the last write has failed */
  uint64_t region_bytes, number, at; /* number of the next block, its place in the region */
  uint32_t region;
  uint8_t *block; /* head and records */
  size_t used;    /* bytes of records */
  pthread_t thread;
  bool has_thread;
  sem_t wake;
  atomic_bool stop, sleeps;
  atomic_uint flush_asked, flush_done, regions_begun;
  atomic_ullong written_bytes, dropped_records;
  pthread_mutex_t lock; /* of `rings` and the head: lanes are made while others run */
  char *text;           /* of the head, until it is written */
  size_t text_bytes;
  struct journal_ring *_Atomic rings[JOURNAL_LANES_MAX];
};

/* ---- the file ---- */

static void tell(journal_t *journal, const char *problem) {
  bool fails = problem != NULL;
  if (journal->failed != fails && journal->changed != NULL) journal->changed(problem);
  journal->failed = fails;
}

static bool write_all(journal_t *journal, const uint8_t *bytes, size_t length, uint64_t place) {
  size_t done = 0;
  while (done < length) {
    ssize_t n = pwrite(journal->fd, bytes + done, length - done, (off_t)(place + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      tell(journal, strerror(n < 0 ? errno : ENOSPC));
      return false;
    }
    done += (size_t)n;
  }
  atomic_fetch_add(&journal->written_bytes, length);
  tell(journal, NULL);
  return true;
}

static void set_32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static void set_64(uint8_t *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static void write_head(journal_t *journal) {
  pthread_mutex_lock(&journal->lock);
  char *text = journal->text;
  journal->text = NULL;
  pthread_mutex_unlock(&journal->lock);
  uint8_t *head = text != NULL ? calloc(1, JOURNAL_HEAD_BYTES) : NULL;
  if (head != NULL) {
    const size_t length = MIN(journal->text_bytes, (size_t)JOURNAL_HEAD_BYTES - 40);
    memcpy(head, JOURNAL_MAGIC, sizeof JOURNAL_MAGIC);
    set_32(head + 16, JOURNAL_VERSION);
    set_32(head + 20, fnv_32(FNV_32_BASIS, text, length));
    set_64(head + 24, journal->region_bytes);
    set_32(head + 32, JOURNAL_REGIONS);
    set_32(head + 36, (uint32_t)length);
    memcpy(head + 40, text, length);
    (void)write_all(journal, head, JOURNAL_HEAD_BYTES, 0);
  }
  free(head);
  free(text);
}

/* Writes the records that were collected, all of one lane. */
static void write_block(journal_t *journal, int32_t lane, uint64_t count) {
  if (journal->used == 0) return;
  size_t bytes = JOURNAL_BLOCK_HEAD_BYTES + journal->used;
  if (journal->at + bytes > journal->region_bytes) {
    journal->region = (journal->region + 1) % JOURNAL_REGIONS;
    journal->at = 0;
    atomic_fetch_add(&journal->regions_begun, 1);
  }
  set_32(journal->block + 4, (uint32_t)journal->used | (uint32_t)lane << 24);
  set_64(journal->block + 8, journal->number);
  set_32(journal->block, fnv_32(FNV_32_BASIS, journal->block + 4, bytes - 4));
  uint64_t place = JOURNAL_HEAD_BYTES + journal->region * journal->region_bytes + journal->at;
  if (write_all(journal, journal->block, bytes, place)) {
    journal->at += bytes;
    journal->number++;
  } else {
    atomic_fetch_add(&journal->dropped_records, count);
    journal->number += 2; /* a reader sees that something is missing */
  }
  journal->used = 0;
}

/* ---- the rings ---- */

static void copy_in(struct journal_ring *ring, size_t at, const void *bytes, size_t length) {
  size_t place = at & (RING_BYTES - 1), first = MIN(length, RING_BYTES - place);
  memcpy(ring->bytes + place, bytes, first);
  memcpy(ring->bytes, (const uint8_t *)bytes + first, length - first);
}

static void copy_out(const struct journal_ring *ring, size_t at, void *bytes, size_t length) {
  size_t place = at & (RING_BYTES - 1), first = MIN(length, RING_BYTES - place);
  memcpy(bytes, ring->bytes + place, first);
  memcpy((uint8_t *)bytes + first, ring->bytes, length - first);
}

static bool put_one(struct journal_ring *ring, const void *record, size_t length) {
  size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
  size_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
  uint32_t size = (uint32_t)length;
  if (RING_BYTES - (head - tail) < length + LENGTH_BYTES) return false;
  copy_in(ring, head, &size, LENGTH_BYTES);
  copy_in(ring, head + LENGTH_BYTES, record, length);
  atomic_store_explicit(&ring->head, head + LENGTH_BYTES + length, memory_order_release);
  return true;
}

/* The gap stands before the first record behind it. */
static bool put_gap(struct journal_ring *ring) {
  uint8_t record[1 + VARINT_BYTES] = {JOURNAL_GAP};
  byte_sink_t sink = {.bytes = record, .room = sizeof record, .at = 1};
  put_uint(&sink, ring->gap);
  if (!put_one(ring, record, sink.at)) return false;
  ring->gap = 0;
  return true;
}

bool journal_put(struct journal_ring *ring, const void *record, size_t length) {
  journal_t *journal = ring->journal;
  bool put = length <= JOURNAL_RECORD_MAX && (ring->gap == 0 || put_gap(ring)) &&
             put_one(ring, record, length);
  if (!put) {
    ring->gap++;
    atomic_fetch_add_explicit(&journal->dropped_records, 1, memory_order_relaxed);
  }
  if (atomic_load(&journal->sleeps) && atomic_exchange(&journal->sleeps, false))
    sem_post(&journal->wake);
  return put;
}

uint32_t journal_region(const struct journal_ring *ring) {
  return atomic_load_explicit(&ring->journal->regions_begun, memory_order_relaxed);
}

/* Moves what a ring has into blocks. Returns whether there was something. */
static bool drain(journal_t *journal, int32_t lane) {
  struct journal_ring *ring = atomic_load_explicit(&journal->rings[lane], memory_order_acquire);
  if (ring == NULL) return false;
  size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed), begun = tail;
  size_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
  uint64_t count = 0;
  while (tail != head) {
    uint32_t length;
    copy_out(ring, tail, &length, LENGTH_BYTES);
    if (journal->used > 0 && journal->used + length + VARINT_BYTES > BLOCK_BYTES) {
      write_block(journal, lane, count);
      count = 0;
    }
    byte_sink_t sink = {.bytes = journal->block + JOURNAL_BLOCK_HEAD_BYTES + journal->used,
                        .room = VARINT_BYTES};
    put_uint(&sink, length);
    copy_out(ring, tail + LENGTH_BYTES, sink.bytes + sink.at, length);
    journal->used += sink.at + length;
    count++;
    tail += LENGTH_BYTES + length;
    atomic_store_explicit(&ring->tail, tail, memory_order_release);
  }
  write_block(journal, lane, count);
  return tail != begun;
}

static bool drain_all(journal_t *journal) {
  bool any = false;
  write_head(journal);
  for (int32_t lane = 0; lane < JOURNAL_LANES_MAX; lane++) any = drain(journal, lane) || any;
  return any;
}

static bool is_empty(const journal_t *journal) {
  for (int32_t lane = 0; lane < JOURNAL_LANES_MAX; lane++) {
    const struct journal_ring *ring = atomic_load(&journal->rings[lane]);
    if (ring != NULL && atomic_load(&ring->head) != atomic_load(&ring->tail)) return false;
  }
  return true;
}

/* Sleeps until a lane has a record. One that came meanwhile is seen by is_empty, or its lane sees
 * `sleeps`. */
static void sleep_long(journal_t *journal) {
  atomic_store(&journal->sleeps, true);
  if (!is_empty(journal) || atomic_load(&journal->stop)) {
    if (atomic_exchange(&journal->sleeps, false)) return;
  }
  while (sem_wait(&journal->wake) != 0) continue;
}

static void *journal_main(void *context) {
  journal_t *journal = context;
  const struct timespec nap = {.tv_nsec = NAP_NS};
  fault_stack_use();
  for (int32_t idle = 0;;) {
    unsigned asked = atomic_load(&journal->flush_asked);
    bool stops = atomic_load(&journal->stop), any = drain_all(journal);
    atomic_store(&journal->flush_done, asked);
    if (stops && !any) return NULL;
    idle = any ? 0 : idle + 1;
    if (idle < IDLE_NAPS)
      nanosleep(&nap, NULL);
    else
      sleep_long(journal);
  }
}

/* ---- life ---- */

/* Makes the file anew; one that is there gets another name. */
static int make_file(journal_t *journal, inferd_error_t *error) {
  struct stat found;
  size_t room = strlen(journal->path) + sizeof ".old";
  char *old = malloc(room);
  if (old == NULL) return error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal");
  snprintf(old, room, "%s.old", journal->path);
  int code = 0;
  if (lstat(journal->path, &found) == 0) {
    if (!S_ISREG(found.st_mode))
      code = error_set(error, ERR_CONFIGURATION, "journal", "%.300s is no regular file",
                       journal->path);
    else if (rename(journal->path, old) != 0)
      code = error_system(error, old, errno);
  }
  free(old);
  if (code != 0) return code;
  journal->fd = open(journal->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  return journal->fd < 0 ? error_system(error, journal->path, errno) : 0;
}

static int start(journal_t *journal, inferd_error_t *error) {
  sigset_t others, before;
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  int number = pthread_create(&journal->thread, NULL, journal_main, journal);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (number != 0)
    return error_set(error, ERR_NO_MEMORY, "journal", "the journal's thread does not start: %s",
                     strerror(number));
  pthread_setname_np(journal->thread, "journal");
  journal->has_thread = true;
  return 0;
}

int journal_open(const journal_options_t *options, journal_t **out, inferd_error_t *error) {
  if (options->bytes_max < JOURNAL_BYTES_MIN)
    return error_set(error, ERR_CONFIGURATION, "journal_size",
                     "journal_size is %lld; it must be at least %d", (long long)options->bytes_max,
                     (int)JOURNAL_BYTES_MIN);
  journal_t *journal = calloc(1, sizeof *journal);
  if (journal == NULL) return error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal");
  journal->fd = -1;
  journal->path = strdup(options->path);
  journal->changed = options->changed;
  journal->region_bytes = ((uint64_t)options->bytes_max - JOURNAL_HEAD_BYTES) / JOURNAL_REGIONS;
  journal->block =
      malloc(JOURNAL_BLOCK_HEAD_BYTES + BLOCK_BYTES + VARINT_BYTES + JOURNAL_RECORD_MAX);
  pthread_mutex_init(&journal->lock, NULL);
  sem_init(&journal->wake, 0, 0);
  int code = journal->path == NULL || journal->block == NULL
                 ? error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal")
                 : make_file(journal, error);
  if (code == 0) code = start(journal, error);
  if (code != 0) {
    journal_close(journal);
    return code;
  }
  *out = journal;
  return 0;
}

void journal_close(journal_t *journal) {
  if (journal == NULL) return;
  if (journal->has_thread) {
    atomic_store(&journal->stop, true);
    sem_post(&journal->wake);
    pthread_join(journal->thread, NULL);
  }
  if (journal->fd >= 0) close(journal->fd);
  for (int32_t lane = 0; lane < JOURNAL_LANES_MAX; lane++) {
    struct journal_ring *ring = atomic_load(&journal->rings[lane]);
    if (ring != NULL) free(ring->bytes);
    free(ring);
  }
  sem_destroy(&journal->wake);
  pthread_mutex_destroy(&journal->lock);
  free(journal->text);
  free(journal->block);
  free(journal->path);
  free(journal);
}

void journal_flush(journal_t *journal) {
  const struct timespec nap = {.tv_nsec = 1000000};
  if (!journal->has_thread || pthread_equal(pthread_self(), journal->thread)) return;
  unsigned asked = atomic_fetch_add(&journal->flush_asked, 1) + 1;
  atomic_store(&journal->sleeps, false);
  sem_post(&journal->wake);
  for (int i = 0; i < FLUSH_NAPS && atomic_load(&journal->flush_done) != asked; i++)
    nanosleep(&nap, NULL);
}

void journal_stats(journal_t *journal, journal_stats_t *out) {
  out->written_bytes = atomic_load(&journal->written_bytes);
  out->dropped_records = atomic_load(&journal->dropped_records);
}

struct journal_ring *journal_ring(journal_t *journal, int32_t lane) {
  struct journal_ring *ring = aligned_alloc(_Alignof(struct journal_ring), sizeof *ring);
  if (ring == NULL) return NULL;
  *ring = (struct journal_ring){.journal = journal, .bytes = malloc(RING_BYTES)};
  if (ring->bytes == NULL) {
    free(ring);
    return NULL;
  }
  atomic_store_explicit(&journal->rings[lane], ring, memory_order_release);
  return ring;
}

void journal_describe(journal_t *journal, const char *text, size_t length) {
  char *copy = malloc(length + 1);
  if (copy == NULL) return;
  memcpy(copy, text, length);
  pthread_mutex_lock(&journal->lock);
  journal->text = copy;
  journal->text_bytes = length;
  pthread_mutex_unlock(&journal->lock);
}
