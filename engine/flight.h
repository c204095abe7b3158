/* flight.h: one step from its launch to its commit, and up to two of them at once.
 *
 * Engine thread. Everything is allocated by flight_new.
 */
#ifndef INFERD_ENGINE_FLIGHT_H
#define INFERD_ENGINE_FLIGHT_H

#include "engine/device/ops.h"
#include "engine/schedule/scheduler.h"

struct engine;

enum { FLIGHTS_MAX = 2 };

/* One step from its launch to its commit. */
typedef struct flight {
  plan_t plan; /* a copy: the scheduler makes the next one meanwhile */
  batch_t *batch;
  uint64_t launched_ns;
  sample_row_t *sample_rows;       /* [max_num_batched_tokens + max_num_seqs] */
  sample_result_t *sample_results; /* the same */
  token_logprob_t *tops;           /* [the same, SAMPLE_TOP_MAX], touched by rows that want some */
  int32_t *suppressed_ids;         /* [max_num_seqs, SUPPRESSED_MAX] */
  uint32_t *masks;                 /* [max_num_seqs, row_words], touched by constrained rows only */
} flight_t;

/* Plans and launches one step; false = nothing could be launched:
 * nothing can run, as many as possible are in flight, or the next one needs the tokens of the last.
 */
bool engine_launch(struct engine *engine, uint64_t now_ns);
/* Waits for the oldest step in flight, of which there must be one, and returns it; NULL = the
 * device is lost. It stays valid until the next launch. */
flight_t *engine_land(struct engine *engine, error_t *error);
/* Waits for all of them and drops what they bring. */
void engine_land_all(struct engine *engine);
int flight_new(const struct engine *engine, flight_t *flight); /* 0, or -1 without memory */
void flight_free(flight_t *flight);

#endif
