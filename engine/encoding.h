/* encoding.h: the encoder before an engine's decoder, and its work between steps.
 *
 * A run is one source; sources of several clients are in it at once and take turns, least served
 * first, so that none waits for a longer one of another. A run goes on in slices before each plan,
 * as those of sight.h, by whose rules it is charged. K and V of what is complete stay in
 * cross_blocks.h. Engine thread only.
 */
#ifndef INFERD_ENGINE_ENCODING_H
#define INFERD_ENGINE_ENCODING_H

#include "engine/base/error.h"
#include "engine/request.h"

#include <stddef.h>

struct engine;
struct step;
struct encoding;

/* Reads what config.json says of the encoder, and refuses by name what does not go with it.
 * engine->encoding is NULL afterwards if no encoder stands before the model. 0 or an error. */
int encoding_read(struct engine *engine, int32_t dtype, inferd_error_t *error);
size_t encoding_weight_bytes(const struct engine *engine);
size_t encoding_work_bytes(const struct engine *engine);
/* Blocks of the K/V pool for sources, of `all` that its memory holds: as many as max_num_seqs
 * sources have, or half of all if that is fewer, and those of one source at least; 0 = none. */
int32_t encoding_choose_blocks(const struct engine *engine, int64_t all, int32_t block_size);
void encoding_say(const struct engine *engine, int32_t num_blocks); /* a line of the log */
/* Checks its files as a load would; reads no weights. 0 or an error. */
int encoding_survey(const struct engine *engine, int32_t dtype, inferd_error_t *error);
/* Loads the encoder, behind the decoder and before `prepare` of the device; takes its memory,
 * behind that. Cross blocks begin at block `first` of the pool. Each returns 0 or an error. */
int encoding_load(struct engine *engine, int32_t dtype, inferd_error_t *error);
int encoding_prepare(struct engine *engine, int32_t first, int32_t count, int32_t block_size,
                     inferd_error_t *error);
/* Gives the scheduler and a step the blocks. 0 or -1 without memory. */
int encoding_join(struct engine *engine, struct step *step);
void encoding_free(struct engine *engine);
uint64_t encoding_hash(const struct engine *engine); /* of the weights; 0 = there are none */
const source_info_t *encoding_info(const struct engine *engine); /* NULL = a source is refused */

/* Before a plan: a slice of the encoder's work. Returns whether some is left. */
bool encoding_work(struct engine *engine);
/* The request ends: its source is not lent any more. */
void encoding_leave(struct engine *engine, const request_t *request);
/* ERR_BAD_REQUEST if the source is not one that the model reads. Loop thread. */
int encoding_check(const struct engine *engine, const request_t *request, inferd_error_t *error);

#endif
