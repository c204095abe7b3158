/* routes.h: which prompts a replica has been sent, so that the next one with the same beginning
 * goes there, too.
 *
 * A table of keys of blocks (block.h), bounded as the cache of the replica is: a key is forgotten
 * when as many others have come since its last use as the replica has blocks. It is an estimate:
 * what the replica generates takes blocks, too. Loop thread only.
 */
#ifndef INFERD_ENGINE_REPLICAS_ROUTES_H
#define INFERD_ENGINE_REPLICAS_ROUTES_H

#include "engine/schedule/block.h"

typedef struct routes routes_t;

/* For a replica of so many blocks. NULL = no memory. */
routes_t *routes_new(int32_t num_blocks);
void routes_free(routes_t *routes); /* NULL is allowed */
/* How many leading keys of a prompt, [count], are known. NULL knows none. */
int32_t routes_match(const routes_t *routes, const block_key_t *keys, int32_t count);
/* How many keys were new since the start. NULL: 0. */
uint64_t routes_noted(const routes_t *routes);
/* The prompt goes to the replica. NULL is allowed. */
void routes_note(routes_t *routes, const block_key_t *keys, int32_t count);

#endif
