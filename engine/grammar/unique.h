/* unique.h: arrays whose items have few values and are never equal, as a compiled grammar has them.
 *
 * The state of such an array is the set of values that were used: its size is the number of items
 * so far. Immutable once compiled.
 */
#ifndef INFERD_ENGINE_GRAMMAR_UNIQUE_H
#define INFERD_ENGINE_GRAMMAR_UNIQUE_H

#include <stddef.h>
#include <stdint.h>

enum { UNIQUE_VALUES_MAX = 16 };

/* What a set of used values allows. */
enum { UNIQUE_LEADS = 1 /* the array can be finished */, UNIQUE_ENDS = 2 /* it may end here */ };

/* Frame count: a bit for each value that was used. */
typedef struct grammar_unique {
  uint32_t num_values, num_rows;
  uint32_t *entry; /* [num_rows, num_values] node: the value, behind a comma except in row 0, then
                      RETURN; row i is of item i, the last row of all further ones */
  uint8_t *ways;   /* [1 << num_values] UNIQUE_ bits, by the set of used values */
} grammar_unique_t;

/* Returns the entries of the item that comes next. */
static inline const uint32_t *unique_row(const grammar_unique_t *unique, uint32_t used) {
  uint32_t item = (uint32_t)__builtin_popcount(used);
  if (item >= unique->num_rows) item = unique->num_rows - 1;
  return unique->entry + (size_t)item * unique->num_values;
}

#endif
