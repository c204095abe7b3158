/* rows.h: where a row of a step stands, and where its state lies: shared by the kernels of states.
 *
 * Device functions only.
 */
#ifndef INFERD_CUDA_KERNELS_STATE_ROWS_H
#define INFERD_CUDA_KERNELS_STATE_ROWS_H

#include "cuda/device_code/lanes.h"
#include "cuda/kernels/state/state.h"

typedef struct state_row {
  int64_t start;  /* its first token of the step */
  int32_t tokens; /* of the step */
  float *state;   /* NULL = begins with zeros and is not stored */
  bool fresh;     /* begins with zeros */
  int32_t save, last_save;
} state_row_t;

GPU_FN state_row_t state_row(const gpu_states_t &states, int row) {
  state_row_t made;
  const int32_t slot = states.slots[row];
  made.start = states.query_start_loc[row];
  made.tokens = states.query_start_loc[row + 1] - (int32_t)made.start;
  made.state = slot > 0 ? states.base + slot * states.stride : nullptr;
  made.fresh = slot <= 0 || states.seq_lens[row] <= made.tokens;
  made.save = states.first_save[row];
  made.last_save = states.first_save[row + 1];
  return made;
}

/* Where the state behind the first `behind` tokens is to be saved as well; NULL = nowhere else. The
 * kernels call it STATE_SAVES_OF_TOKEN times for each `behind` in ascending order. */
GPU_FN float *state_save(const gpu_states_t &states, state_row_t &row, int32_t behind) {
  if (row.save >= row.last_save || states.saves[row.save].behind != behind) return nullptr;
  return states.base + states.saves[row.save++].slot * states.stride;
}

#endif
