/* json_copy.h: JSON values that outlive the document they were parsed in.
 *
 * Any thread, the owner of the arena.
 */
#ifndef INFERD_SERVER_FIELDS_JSON_COPY_H
#define INFERD_SERVER_FIELDS_JSON_COPY_H

#include "engine/base/arena.h"
#include "engine/base/json.h"

/* Copy of a value and of all text in it. Returns NULL when memory is short or `value` is NULL. */
const json_t *json_copy(arena_t *arena, const json_t *value);
/* Number of values of a subtree, itself with them; they lie one behind the other. */
size_t json_count_values(const json_t *value);

#endif
