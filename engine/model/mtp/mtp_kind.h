/* mtp_kind.h: how a family has the layers that predict (mtp.h). Plain data, of a family's row and
 * of a blueprint. */
#ifndef INFERD_ENGINE_MODEL_MTP_KIND_H
#define INFERD_ENGINE_MODEL_MTP_KIND_H

typedef enum mtp_kind {
  MTP_NONE,
  MTP_BEHIND, /* as DeepSeek V3: they stand behind the last layer, as many as a key says */
  MTP_APART,  /* as Qwen3-Next: they are mtp.layers; one, unless a key says otherwise */
  MTP_EMBEDS  /* the same with embeddings of their own, which are not read */
} mtp_kind_t;

#endif
