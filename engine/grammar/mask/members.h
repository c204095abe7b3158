/* members.h: which members of an object may come next.
 *
 * For matcher.c only; the thread that uses the matcher. Nothing here allocates.
 */
#ifndef INFERD_ENGINE_GRAMMAR_MASK_MEMBERS_H
#define INFERD_ENGINE_GRAMMAR_MASK_MEMBERS_H

#include "engine/grammar/mask/frames.h"

/* The state of an object, unpacked from the count of its frame. */
typedef struct members {
  uint32_t index;     /* next listed index; num_names + 1: extra ones have begun */
  uint32_t count;     /* members so far, in objects without presence states */
  uint32_t state;     /* presence state, in the others */
  uint32_t packed;    /* what it was unpacked from */
  uint32_t low, high; /* listed indices that may come now; low > high = none */
  uint32_t extra;     /* bit v: an extra member that is the witnesses v may come now */
  bool close;         /* the object may end now */
  /* If the order is free, instead of the indices: a bit for each listed name that may come now. */
  uint64_t allowed[SET_WORDS];
} members_t;

/* Unpacks `packed`, the count of the object's frame, whose form grammar_object_t describes
 * (program.h). `parent`: the frame below it. */
members_t members_at(const grammar_matcher_t *matcher, const grammar_object_t *object,
                     uint32_t packed, uint32_t parent);
/* Returns true if a name below this node of the trie may come now. */
bool members_below(grammar_scratch_t *scratch, const grammar_object_t *object,
                   const name_node_t *node, const members_t *members);
/* Returns true if the listed name `index` may come now. */
bool members_allow(const grammar_object_t *object, const members_t *members, uint32_t index);
/* Returns the node of the member `index`. */
uint32_t members_node(const grammar_matcher_t *matcher, const grammar_object_t *object,
                      uint32_t packed, uint32_t index);
/* Sets *after to the count of the frame after the member `index`, a listed one, or from num_names
 * on an extra one, num_names + v if it is the witnesses v. Returns false, and sets closure->full,
 * if there is no room for a set. */
bool members_after(closure_t *closure, const grammar_object_t *object, uint32_t packed,
                   uint32_t index, uint32_t *after);

static inline bool members_are_none(uint32_t packed) {
  return packed == 0;
}

#endif
