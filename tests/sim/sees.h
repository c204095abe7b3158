/* sees.h: prompts with pictures, and of rows: what the model reads of them, a tower that takes
 * virtual time, and the laws of its work. One thread.
 */
#ifndef INFERD_TESTS_SIM_SEES_H
#define INFERD_TESTS_SIM_SEES_H

#include "tests/sim/sim.h"

enum { SIM_CONTENT_MAX = SIM_VOCAB + (SIM_KEYS + 1) * SIM_CONTEXT_MAX };

/* What the token at `position` of a request is to the hashes: its id, or a row of a picture. */
int32_t sees_content(const script_t *script, int32_t position, int32_t id);
/* Whether this is a row of a picture. */
bool sees_may_be(int32_t content);
/* What a row is that stands in the place of an id. */
static inline int32_t sees_row(int32_t id) {
  return SIM_CONTENT_MAX + 1 + id;
}
/* The rows of a prompt that has these ids; NULL = it is ids. Until it is asked again. */
const prompt_rows_t *sees_rows(int index, const script_t *script, const int32_t *ids);
const image_t *sees_images(int index, const script_t *script); /* until it is asked again */

void sees_begin(const scenario_t *scenario); /* the engine is ready */
/* A step is launched: it has its rows and no others, and the pictures that are seen whole to their
 * end. */
void sees_step(const batch_t *batch);
int32_t sees_read(const batch_t *batch, int32_t token, int32_t id); /* content of a token of it */
/* Tokens from this one on that must be in one step: the rest of its picture, seen whole; else 0. */
int32_t sees_run(const script_t *script, int32_t position);
/* Whether the next token of a sequence waits: for the tower, or for a budget that its picture fits.
 */
bool sees_waits(const scheduler_t *scheduler, const sequence_t *sequence);
/* What the tower took before the plan of now, of all or of a tenant (-1 = all). */
double sees_tower_ns(const scheduler_t *scheduler, int32_t tenant);
void sees_idle(void); /* nothing is left: no picture is begun, every row is free */

#endif
