/* timeline.h: the records of a journal as spans of time: what ran, and who waited for what. */
#ifndef INFERD_SERVER_REPLAY_TIMELINE_H
#define INFERD_SERVER_REPLAY_TIMELINE_H

#include "engine/journal/log.h"

typedef enum span_kind {
  SPAN_PROMPT, /* tokens of its prompt are computed */
  SPAN_DRAWS,
  SPAN_STEP,  /* waits: it came, or was let in, while a step ran */
  SPAN_SEATS, /* ... as journal_wait_t */
  SPAN_BLOCKS,
  SPAN_TOKENS,
  SPAN_KEY,
  SPAN_PREEMPTED, /* ... it made room, and is computed again */
  SPAN_LEFT_OUT,  /* ... for a mask, its turn among clients, or a result in flight */
  SPAN_KINDS
} span_kind_t;

extern const char *const span_names[SPAN_KINDS];

typedef struct timeline_step {
  uint64_t begin_ns, end_ns;
  int32_t lane;
  uint32_t num_rows, num_tokens;
  uint64_t waiting, running, swapped, blocks_free, preempted;
} timeline_step_t;

typedef struct timeline_span {
  uint64_t begin_ns, end_ns;
  uint64_t first_step, last_step; /* of the lane */
  span_kind_t kind;
  uint32_t num_tokens, index; /* choice */
  size_t request;             /* of `requests` */
} timeline_span_t;

typedef struct timeline_request {
  uint64_t id;
  int32_t lane;
  const kept_answer_t *answer; /* NULL: it began before the journal */
} timeline_request_t;

typedef struct timeline {
  timeline_step_t *steps;
  timeline_span_t *spans;
  timeline_request_t *requests;
  size_t num_steps, steps_room, num_spans, spans_room, num_requests, requests_room;
} timeline_t;

bool timeline_make(const journal_log_t *log, timeline_t *out); /* false: no memory */
void timeline_free(timeline_t *timeline);

#endif
