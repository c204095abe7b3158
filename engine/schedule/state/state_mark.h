/* state_mark.h: what a sequence knows of its state (states.h). Engine thread only. */
#ifndef INFERD_ENGINE_SCHEDULE_STATE_STATE_MARK_H
#define INFERD_ENGINE_SCHEDULE_STATE_STATE_MARK_H

#include <stdint.h>

enum { SNAPSHOTS_OF_ENTRY = 2 }; /* where a prompt branches off, and its last full block */

typedef struct sequence_state {
  int32_t slot;       /* 0 = it holds none */
  int32_t branch;     /* tokens in blocks that the cache had at admission */
  int32_t latest;     /* the snapshot made last while it decodes; 0 = none */
  uint64_t latest_id; /* unique id of the block that it was attached to */
} sequence_state_t;

/* A snapshot that a step makes of the state of an entry. */
typedef struct snapshot_place {
  int32_t behind; /* so many tokens of the entry, at least 1 */
  int32_t slot;
} snapshot_place_t;

#endif
