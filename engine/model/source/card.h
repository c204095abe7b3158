/* card.h: what the files of a model say of it, for pages that show a model: sizes, family,
 * metadata.
 *
 * Reads headers, no weights. A job of the lanes calls it, because it waits for the disk; the card
 * never changes afterwards.
 */
#ifndef INFERD_ENGINE_MODEL_SOURCE_CARD_H
#define INFERD_ENGINE_MODEL_SOURCE_CARD_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"

enum { CARD_WORD_MAX = 64 };

typedef struct model_card {
  bool is_gguf;
  int64_t bytes;              /* of the files with weights; 0 = there are none */
  int64_t parameters;         /* elements of all tensors; 0 = the files do not tell */
  int64_t modified_s;         /* the newest of the files, in seconds since 1970 */
  char family[CARD_WORD_MAX]; /* "llama", as the files call the architecture */
  char level[CARD_WORD_MAX];  /* "Q4_K_M", "BF16", "AWQ": how most weights are stored */
  buffer_t license;           /* as a GGUF file has it; empty = none */
  /* Members of a JSON object in the words of GGUF, with commas between: those of a GGUF file, where
   * arrays are null, or what config.json has of them. All but the context, which the caller knows:
   * FAMILY.context_length. */
  buffer_t info;
} model_card_t;

/* Reads the files of `path`, a directory or a GGUF file. A directory without weights has a card,
 * too. Returns 0, or an error of weight_files_open or model_file_read; then *out is empty. */
int model_card_read(const char *path, model_card_t *out, inferd_error_t *error);
void model_card_free(model_card_t *card); /* leaves an empty one */

#endif
