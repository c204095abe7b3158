/* floor_start.h: the floor of an engine, at its start: options, file, records.
 *
 * Engine thread. Called by start.c only.
 */
#ifndef INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_START_H
#define INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_START_H

#include "engine/schedule/floor/floor_file.h"

struct engine;

/* What the start of an engine knows of its floor. */
typedef struct floor_plan {
  int32_t num_places; /* 0 = no floor */
  size_t block_bytes;
  uint64_t secret[2]; /* of the keys; drawn, or of the file */
  floor_memory_t memory;
} floor_plan_t;

/* Whether the options ask for a floor. */
bool floor_wanted(const struct engine *engine);
/* Refuses a floor where the model, the back end or another option allows none. */
int floor_check(const struct engine *engine, inferd_error_t *error);
/* Sets how many places there are, of plan->block_bytes each, and opens the file. Returns 0 or an
 * error. A file that cannot be used is named in the log, and there is no floor. */
int floor_plan(struct engine *engine, int32_t block_size, int32_t max_model_len, floor_plan_t *plan,
               inferd_error_t *error);
/* Makes the floor of the pool: its places are the host blocks from first_host on. */
int floor_start(struct engine *engine, const floor_plan_t *plan, int32_t first_host,
                inferd_error_t *error);
void floor_end(struct engine *engine);

#endif
