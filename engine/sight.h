/* sight.h: the eyes of an engine, or its ears: what its model sees or hears, the tower, and its
 * work between steps. All that is said of pictures holds for sounds.
 *
 * A run of the tower is one picture; pictures of several clients are in it at once and take turns,
 * least served first, so that none waits for a larger one of another. A run goes on in slices
 * before each plan, of no more time than a client may have in a step while others are there; the
 * plan that follows takes that time from the step and from the client. What is complete stays in
 * image_rows.h. Engine thread only.
 */
#ifndef INFERD_ENGINE_SIGHT_H
#define INFERD_ENGINE_SIGHT_H

#include "engine/base/error.h"
#include "engine/request.h"

#include <stddef.h>

struct engine;
struct group;
struct step;

/* Reads what the files say, and chooses the largest picture. engine->vision is NULL afterwards if
 * the model sees nothing, or nothing here: then the log says why, and text is served. Returns 0 or
 * ERR_NO_MEMORY. */
int sight_read(struct engine *engine, int32_t max_model_len, inferd_error_t *error);
/* Fills in the ids of the pieces around a picture, by the kind of the processor. 0, or
 * ERR_MODEL_MALFORMED if the tokenizer lacks one. marks.c */
int sight_read_marks(const struct engine *engine, vision_t *vision, inferd_error_t *error);
/* Bytes of the tower's weights; of its workspace and the rows that are kept. */
size_t sight_weight_bytes(const struct engine *engine);
size_t sight_work_bytes(const struct engine *engine);
void sight_say(const struct engine *engine); /* a line of the log: what a picture costs */
/* Loads the tower, before `prepare` of the device, which counts its widest weight; takes its
 * memory, behind it. A tower whose files are malformed, or of a type that is not read, leaves the
 * text model alone, and the log says why. Each returns 0 or an error. */
int sight_load(struct engine *engine, inferd_error_t *error);
int sight_prepare(struct engine *engine, inferd_error_t *error);
/* Gives the scheduler and a step the rows. 0 or -1 without memory. */
int sight_join(struct engine *engine, struct step *step);
void sight_free(struct engine *engine);
/* Of the model and of its tower, if it is loaded: two that differ have other rows. */
uint64_t sight_weights_hash(const struct engine *engine);
const vision_t *sight_vision(const struct engine *engine);  /* NULL = it sees nothing */
const vision_t *sight_hearing(const struct engine *engine); /* NULL = it hears nothing */
int32_t sight_num_deep(const struct engine *engine);        /* planes of a row behind the first */

/* Before a plan: a slice of the tower's work. Returns whether some is left. */
bool sight_work(struct engine *engine);
/* The time of a slice, of an encoder's too: while others are there as much as a client may have. */
double sight_slice_ns(const struct engine *engine);
/* The work of an ns as it is now believed, when a slice of `work` took `ns`: at most twice what it
 * was, at least half of it. */
double sight_rate(double work_per_ns, int64_t work, double ns);
/* Has the client of a run pay for `tokens`, what its work so far would be in tokens of the model;
 * *charged is what was paid before. */
void sight_charge(struct engine *engine, const request_t *request, double tokens, bool is_complete,
                  int64_t *charged);
/* The request ends: the views are not lent any more. */
void sight_leave(struct engine *engine, const request_t *request);
/* ERR_BAD_REQUEST if pictures and prompt do not match, or are none that the model sees. Loop
 * thread. */
int sight_check(const struct engine *engine, const request_t *request, inferd_error_t *error);

#endif
