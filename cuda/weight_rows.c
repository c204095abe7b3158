/* weight_rows.c: writes rows of a matrix, or panels of packed rows, into a buffer, by several
 * threads.
 *
 * Rows of a file cost page faults, and rows of dummy weights arithmetic: one thread makes a third
 * of a billion values a second, which is half a minute for 8 billion. Engine thread. The other
 * threads live for one buffer; if none can be made, the engine thread works alone. The bytes are
 * the same for any number of threads.
 */
#include "cuda/operations.h"
#include "cuda/packed.h"

#include "engine/base/fault.h"
#include "engine/base/util.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static const size_t PIECE_BYTES = 16 << 10; /* that a thread takes at a time */

typedef struct row_gathering {
  weight_items_t *items;
  uint8_t *to;
  int64_t first, count, rows_each;
  _Atomic int64_t next;
} row_gathering_t;

typedef struct gatherer {
  row_gathering_t *all;
  void *scratch; /* of this thread */
} gatherer_t;

static void write_item(weight_items_t *items, int64_t index, uint8_t *to, void *scratch) {
  bool exact = true;
  if (items->packed.codes == GPU_CODES_PLAIN)
    memcpy(to, items->source->row(items->source->context, index, scratch), items->bytes);
  else if (!packed_panel(items->source, &items->packed, index, to, scratch, &exact))
    atomic_store(&items->is_beyond, true);
  if (!exact) atomic_store(&items->is_inexact, true);
}

static void *gather(void *context) {
  const gatherer_t *self = context;
  row_gathering_t *all = self->all;
  fault_stack_use();
  for (;;) {
    const int64_t begin = atomic_fetch_add(&all->next, all->rows_each);
    const int64_t end = MIN(begin + all->rows_each, all->count);
    if (begin >= end) return NULL;
    for (int64_t i = begin; i < end; i++)
      write_item(all->items, all->first + i, all->to + (size_t)i * all->items->bytes,
                 self->scratch);
  }
}

void weight_rows(const device_t *device, weight_items_t *items, int64_t first, int64_t count,
                 uint8_t *to, uint8_t *scratch, size_t scratch_bytes) {
  const int64_t fitting = (int64_t)(PIECE_BYTES / items->bytes), each = MAX(fitting, 1);
  row_gathering_t all = {items, to, first, count, each, 0};
  gatherer_t gatherers[WEIGHT_THREADS_MAX];
  pthread_t threads[WEIGHT_THREADS_MAX];
  sigset_t others, before;
  int started = 0, wanted = device->num_threads;
  if (wanted > DIV_UP(count, each)) wanted = (int)DIV_UP(count, each);
  fault_block_others(&others); /* the new threads get no signals but their own faults */
  pthread_sigmask(SIG_SETMASK, &others, &before);
  for (int i = 0; i < wanted; i++) {
    gatherers[i] = (gatherer_t){&all, scratch + (size_t)i * scratch_bytes};
    if (i > 0 && pthread_create(&threads[started], NULL, gather, &gatherers[i]) == 0) started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (wanted > 0) gather(&gatherers[0]);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
