/* status.h: the states of a sequence; engine/README.md has the table of moves.
 *
 * sequence.c owns the table and the one function that changes a status. Engine thread only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_STATUS_H
#define INFERD_ENGINE_SCHEDULE_STATUS_H

#include <stdbool.h>

/* The finished states are the largest, so that "is finished" is one comparison. */
typedef enum sequence_status {
  SEQUENCE_NEW,                    /* made: not queued yet, or a fork without its first token */
  SEQUENCE_WAITING,                /* not admitted yet, or preempted by recompute: no blocks */
  SEQUENCE_RUNNING,                /* admitted: blocks on the device; may get 0 tokens in a step */
  SEQUENCE_SWAPPED,                /* preempted by swap: blocks on the host */
  SEQUENCE_FINISHED_STOPPED,       /* EOS, stop id, stop string */
  SEQUENCE_FINISHED_LENGTH_CAPPED, /* max_tokens or the context */
  SEQUENCE_FINISHED_ABORTED,       /* client disconnected, deadline, shutdown, engine error */
  SEQUENCE_FINISHED_IGNORED,       /* can never run: needs more blocks than the pool has */
  SEQUENCE_STATUS_COUNT
} sequence_status_t;

bool sequence_transition_allowed(sequence_status_t from, sequence_status_t to);

#endif
