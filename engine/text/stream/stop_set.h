/* stop_set.h: the automaton of a request's stop strings; shared by stop_set.c and detokenizer.c.
 *
 * Read-only after stop_set_new; one owner at a time frees it.
 */
#ifndef INFERD_ENGINE_TEXT_STREAM_STOP_SET_H
#define INFERD_ENGINE_TEXT_STREAM_STOP_SET_H

#include "engine/text/stream/detokenizer.h"

struct stop_set {
  uint16_t column[256]; /* byte -> column of `next`; 0 = in no stop string */
  uint32_t columns, num_states;
  uint32_t *next;  /* [num_states][columns]: next state */
  int8_t *accept;  /* [num_states]: stop string that ends here, -1 = none */
  uint16_t *depth; /* [num_states]: bytes of the longest stop string prefix that ends here */
  int count;
  size_t offset[STOP_STRINGS_MAX], length[STOP_STRINGS_MAX]; /* into text */
  size_t longest;
  char *text;
};

#endif
