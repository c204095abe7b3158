/* ranks.c: what the ranks tell each other while they start.
 *
 * Engine thread of each rank, once. No limit of time holds yet: one rank may read a slower disk.
 */
#include "engine/ranks/ranks.h"

#include "engine/base/util.h"

#include <string.h>

/* Each rank's `bytes` of `views`, one behind the other, to all. */
static int share(comm_t *comm, void *views, size_t bytes, inferd_error_t *error) {
  size_t cuts[RANKS_MAX + 1];
  for (int32_t r = 0; r <= comm->size; r++) cuts[r] = (size_t)r * bytes;
  int code = comm_gather(comm, views, cuts, -1);
  if (code != 0) *error = comm->error;
  return code;
}

int ranks_least(comm_t *comm, int32_t *blocks, inferd_error_t *error) {
  int32_t counts[RANKS_MAX] = {0};
  if (comm == NULL) return 0;
  counts[comm->rank] = *blocks;
  int code = share(comm, counts, sizeof counts[0], error);
  for (int32_t r = 0; r < comm->size && code == 0; r++) *blocks = MIN(*blocks, counts[r]);
  return code;
}

static bool have_same_options(const ranks_view_t *one, const ranks_view_t *other) {
  const packet_limits_t *limits = &one->limits, *others = &other->limits;
  return one->max_model_len == other->max_model_len && one->num_blocks == other->num_blocks &&
         one->sums == other->sums && one->cut_layers == other->cut_layers &&
         one->batch_invariant == other->batch_invariant && one->quantise_q8 == other->quantise_q8 &&
         one->kv_fp8 == other->kv_fp8 && one->kv_int8 == other->kv_int8 &&
         one->dtype == other->dtype && one->drafts_max == other->drafts_max &&
         one->lora_rank_max == other->lora_rank_max &&
         limits->adapters_max == others->adapters_max && limits->tokens_max == others->tokens_max &&
         limits->reqs_max == others->reqs_max && limits->num_groups == others->num_groups &&
         limits->block_size == others->block_size &&
         limits->state_saves_max == others->state_saves_max;
}

int ranks_agree(comm_t *comm, ranks_view_t *view, inferd_error_t *error) {
  ranks_view_t views[RANKS_MAX] = {0};
  views[comm->rank] = *view;
  int code = share(comm, views, sizeof views[0], error);
  if (code != 0) return code;
  view->limits.block_table_stride = views[0].limits.block_table_stride;
  for (int32_t r = 1; r < comm->size; r++) {
    const ranks_view_t *other = &views[r];
    if (strncmp(other->backend, views[0].backend, sizeof other->backend) != 0)
      return error_set(error, ERR_CONFIGURATION, "device",
                       "rank %d runs on %.8s, rank 0 on %.8s: set --device", r, other->backend,
                       views[0].backend);
    if (other->weights_hash != views[0].weights_hash)
      return error_set(error, ERR_CONFIGURATION, NULL,
                       "rank %d has read other weights than rank 0: the files differ", r);
    if (!have_same_options(other, &views[0]))
      return error_set(error, ERR_CONFIGURATION, NULL,
                       "rank %d has other options than rank 0: start all with the same", r);
  }
  return 0;
}
