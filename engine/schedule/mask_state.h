/* mask_state.h: what a group has of the masks of its grammar (engine/sample/constrain.h).
 *
 * Engine thread only. All zero for a group without a grammar.
 */
#ifndef INFERD_ENGINE_SCHEDULE_MASK_STATE_H
#define INFERD_ENGINE_SCHEDULE_MASK_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mask_state {
  bool wait;            /* a mask for its next tokens is not ready: the group is not planned */
  bool slow;            /* its last masks took long: the next ones are made before it is planned */
  int code;             /* 0, or the error of the grammar, by which the request ends */
  uint64_t token_units; /* work for the grammar since the last token */
  uint64_t units;       /* work for the grammar of all tokens */
} mask_state_t;

#endif
