/* window.h: what a sequence and the scheduler know of sliding windows, and how many blocks one
 * keeps. Plain data; window_blocks: any thread.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WINDOW_WINDOW_H
#define INFERD_ENGINE_SCHEDULE_WINDOW_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Of a sequence: its side blocks (sides.h) stand in [first, end) of their tables. */
typedef struct side_range {
  int32_t first, end;
  bool is_lost; /* it cannot go on: side blocks that it would share are gone */
} side_range_t;

/* Of the scheduler. */
typedef struct window_options {
  int32_t tokens;    /* that a layer sees; 0 = no layers have side blocks */
  int32_t in_flight; /* tokens of a sequence that may be in flight */
} window_options_t;

/* Most blocks that a sequence of num_tokens tokens holds in one group of layers with this window,
 * while at most `in_flight` >= 1 of its tokens are in flight: those that its next token sees, and
 * those of the tokens in flight, which may begin at the last row of a block. */
static inline int32_t window_blocks(int32_t block_size, int32_t window, int64_t num_tokens,
                                    int32_t in_flight) {
  int64_t all = (num_tokens + block_size - 1) / block_size;
  int64_t most = (window - 1 + (int64_t)block_size - 1) / block_size + 1 +
                 ((int64_t)block_size + in_flight - 2) / block_size;
  return (int32_t)(all < most ? all : most);
}

#endif
