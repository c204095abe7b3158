/* align.h: when the tokens of a transcript were said, by the weights that some heads of the
 * decoder's cross attention give to the rows of the encoder.
 *
 * As transformers' _extract_token_timestamps does for Whisper: each column of a head is normalised
 * over the tokens, each row smoothed by a median, the heads averaged; then dynamic time warping
 * finds the path of the largest sum that goes through tokens and rows in order. Heads may come in
 * parts, so that their weights need not be in memory at once. Any thread; no allocation.
 */
#ifndef INFERD_ENGINE_AUDIO_ALIGN_H
#define INFERD_ENGINE_AUDIO_ALIGN_H

#include <stddef.h>
#include <stdint.h>

enum { ALIGN_MEDIAN_MAX = 31 };

typedef struct align {
  int32_t count, columns;  /* tokens, rows of the encoder: at least 1 */
  int32_t median_width;    /* odd, at most ALIGN_MEDIAN_MAX */
  int32_t num_heads;       /* that were added */
  float *sums;             /* [count, columns] over heads */
  float *costs, *row_copy; /* [2, count + 1], [columns] */
  uint8_t *steps;          /* [count + 1, columns + 1] */
} align_t;

/* Bytes of the memory that it takes. */
size_t align_bytes(int32_t count, int32_t columns);
/* Begins with `memory` of align_bytes, aligned as floats are, which stays the caller's. */
align_t align_begin(int32_t count, int32_t columns, int32_t median_width, void *memory);
/* Adds weights[num_heads, count, columns], which are changed. */
void align_add(align_t *align, float *weights, int32_t num_heads);
/* At least one head was added: rows[count], the row of the encoder at which each token begins; it
 * never falls, and is -1 for tokens that the path passes before the first row. */
void align_find(align_t *align, int32_t *rows);

#endif
