/* draft_ops.h: the part of the back end interface for heads that draft with a vocabulary of their
 * own (engine/model/forward/eagle.h). A back end that has none leaves ops_t.drafts NULL. */
#ifndef INFERD_ENGINE_DEVICE_DRAFT_OPS_H
#define INFERD_ENGINE_DEVICE_DRAFT_OPS_H

#include <stdint.h>

struct device;

typedef struct draft_ops {
  /* Of the first `rows` rows of the last `logits` call: moves logit i to ids[i], ascending and at
   * least i; the other ones of vocab_size <= that of step_limits_t become -infinity. */
  void (*spread_logits)(struct device *device, const int32_t *ids, int32_t count,
                        int32_t vocab_size, int32_t rows);
} draft_ops_t;

#endif
