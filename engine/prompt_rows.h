/* prompt_rows.h: a prompt of rows that its client has made, in the place of ids, and what an engine
 * says of such prompts.
 *
 * Plain data. The server makes prompt_rows_t, the engine reads it until EVENT_DONE. The prompt_ids
 * of such a request are PROMPT_ROW_ID: they stand for nothing, and nothing is penalised for them.
 */
#ifndef INFERD_ENGINE_PROMPT_ROWS_H
#define INFERD_ENGINE_PROMPT_ROWS_H

#include <stdint.h>

enum { PROMPT_ROW_ID = 0 };

/* SHA-256 of a row's values. Rows of one key are taken to be equal, and the keys stand in those of
 * the prefix cache: clients must not be able to choose two rows with one key. */
typedef struct row_key {
  uint8_t bytes[32];
} row_key_t;

typedef struct prompt_rows {
  const float *values; /* [num_prompt_tokens, width], finite, scaled by prompt_rows_info_t.scale */
  const row_key_t *keys; /* [num_prompt_tokens] */
  int32_t width;
} prompt_rows_t;

/* Of a model whose prompts may be rows; constant from READY on. */
typedef struct prompt_rows_info {
  int32_t width; /* the model's hidden size */
  /* What a row of the model's table is multiplied by when it comes from a client: 1, unless the
   * family scales what it is given in the place of embeddings, too. */
  float scale;
} prompt_rows_info_t;

#endif
