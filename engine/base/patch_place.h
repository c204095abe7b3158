/* patch_place.h: where a patch of a picture stands. Pure; any thread. */
#ifndef INFERD_ENGINE_BASE_PATCH_PLACE_H
#define INFERD_ENGINE_BASE_PATCH_PLACE_H

#include <stdint.h>

typedef struct patch_place {
  int32_t row, column; /* patches */
} patch_place_t;

/* Of patches that come in blocks of `merge` x `merge`, the blocks and the patches of a block row by
 * row, `width` of them side by side: the place of number `patch`. With a merge of 1 they come row
 * by row. */
static inline patch_place_t patch_place(int32_t width, int32_t merge, int32_t patch) {
  const int32_t block = patch / (merge * merge), inside = patch % (merge * merge);
  const int32_t blocks = width / merge;
  return (patch_place_t){block / blocks * merge + inside / merge,
                         block % blocks * merge + inside % merge};
}

#endif
