/* mask_state.h: what a group and its sequences have of the masks of their grammar
 * (engine/sample/constrain.h), and whether they depend on what was drawn.
 *
 * Engine thread only. All but by_history is zero for a group without a grammar.
 */
#ifndef INFERD_ENGINE_SCHEDULE_MASK_STATE_H
#define INFERD_ENGINE_SCHEDULE_MASK_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mask_state {
  bool wait;       /* a mask for its next tokens is not ready: the group is not planned */
  bool by_history; /* a token depends on the ids of those before it, which the host must know */
  bool slow;       /* its last masks took long: the next ones are made before it is planned */
  int code;        /* 0, or the error of the grammar, by which the request ends */
  uint64_t token_units;  /* work for the grammar since the last token */
  uint64_t units;        /* work for the masks of all tokens, as if none had been cached */
  uint64_t units_before; /* the same without those of the next token */
} mask_state_t;

typedef struct sequence_masks {
  int32_t narrow_from; /* output tokens after which its matcher follows one way only; -1 = all */
  bool late;           /* its last token is not taken by its matcher yet: it may have ended */
} sequence_masks_t;

#endif
