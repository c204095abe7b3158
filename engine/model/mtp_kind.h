/* mtp_kind.h: which layers draft for a model, as data: those of its own files (mtp.h), and heads of
 * EAGLE-3 in files of their own (eagle.h). Part of a family's row and of a blueprint. */
#ifndef INFERD_ENGINE_MODEL_MTP_KIND_H
#define INFERD_ENGINE_MODEL_MTP_KIND_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mtp_kind {
  MTP_NONE,
  MTP_BEHIND, /* as DeepSeek V3: they stand behind the last layer, as many as a key says */
  MTP_APART,  /* as Qwen3-Next: they are mtp.layers; one, unless a key says otherwise */
  MTP_EMBEDS  /* the same with embeddings of their own, which are not read */
} mtp_kind_t;

enum { EAGLE_LAYERS = 3 };

/* Of a head; the vocabulary of its blueprint is that of its drafts. */
typedef struct eagle_config {
  int32_t target_size; /* hidden size of the target; 0 = the model is no head */
  int32_t target_vocab;
  bool has_layers; /* it says before which layers of the target it reads: */
  int32_t layers[EAGLE_LAYERS];
  bool norm_residual; /* what is normed for attention is also what is added to */
} eagle_config_t;

#endif
