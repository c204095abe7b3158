/* block_check.h: the invariants of a block pool. Any thread that owns the pool. */
#ifndef INFERD_TESTS_ENGINE_SCHEDULE_BLOCK_CHECK_H
#define INFERD_TESTS_ENGINE_SCHEDULE_BLOCK_CHECK_H

#include "engine/schedule/block.h"

/* Aborts unless every invariant of the pool holds: counts add up, queue and flags agree, block 0 is
 * untouched, children stand before parents. O(num_blocks^2) at worst. */
void block_pool_check(const block_pool_t *pool);

#endif
