/* step_limits.h: how large a step can be.
 *
 * Plain data, fixed before a back end takes its workspaces.
 */
#ifndef INFERD_ENGINE_DEVICE_STEP_LIMITS_H
#define INFERD_ENGINE_DEVICE_STEP_LIMITS_H

#include <stdint.h>

/* Upper bounds of every step, from which `prepare` sizes the workspaces. */
typedef struct step_limits {
  int32_t tokens_max, reqs_max, logits_rows_max;
  int32_t drafts_max, drafts_all_max; /* draft tokens of a row; of all, 0 = not drawn */
  int32_t ranks;                      /* that run the model together; 0 or 1 = one */
  int32_t hidden_max;                 /* width of the widest activation row of the model */
  int32_t vocab_size, max_model_len, heads_max, head_dim_max;
  int32_t experts_max, experts_top_max, expert_width_max; /* experts: E, k, I; 0 = none */
  int32_t adapter_rank_max;                               /* 0 = no low-rank adapters */
  int32_t conv_values_max; /* numbers of a state that belong to a convolution; 0 = none */
} step_limits_t;

#endif
