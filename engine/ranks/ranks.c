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
    if (other->max_model_len != views[0].max_model_len ||
        other->num_blocks != views[0].num_blocks || other->sums != views[0].sums ||
        other->cut_layers != views[0].cut_layers ||
        other->limits.tokens_max != views[0].limits.tokens_max ||
        other->limits.reqs_max != views[0].limits.reqs_max ||
        other->limits.num_groups != views[0].limits.num_groups ||
        other->limits.block_size != views[0].limits.block_size)
      return error_set(error, ERR_CONFIGURATION, NULL,
                       "rank %d has other options than rank 0: start all with the same", r);
  }
  return 0;
}
