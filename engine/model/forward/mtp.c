/* mtp.c: the layer that predicts the token after the next one; the contract is in mtp.h.
 *
 * Engine thread. Rows are joined on the host, because only a CPU runs this yet: there a row is in
 * host memory anyway.
 */
#include "engine/model/forward/mtp.h"

#include "engine/base/util.h"
#include "engine/model/forward/internal.h"
#include "engine/model/weights/tensors.h"

#include <stdlib.h>
#include <string.h>

int mtp_choose(const ops_t *ops, blueprint_t *blueprint, inferd_error_t *error) {
  const blueprint_t *bp = blueprint;
  const char *why = NULL;
  if (bp->gguf)
    why = "it is a GGUF file, of which that layer is not read yet";
  else if (bp->num_mtp == 0)
    why =
        "its config.json names no layer that predicts further tokens (num_nextn_predict_layers or "
        "mtp_num_hidden_layers) of a family in which it is known";
  else if (bp->mtp_kind == MTP_EMBEDS)
    why =
        "mtp_use_dedicated_embeddings is true in its config.json: only embeddings that are shared "
        "with the model are read";
  else if (ops->write_rows == NULL || ops->pipeline_depth > 1)
    why = "the layer that predicts runs with --device cpu only";
  else if (!shard_is_whole(bp) || bp->shard.num_stages > 1)
    why = "the layer that predicts does not run on several ranks yet";
  if (why != NULL)
    return error_set(error, ERR_CONFIGURATION, "speculative_method",
                     "speculative_method is mtp, which does not work for %s: %s", bp->architecture,
                     why);
  blueprint->mtp = 1;
  blueprint->layer_flags[bp->num_layers] =
      bp->mtp_kind == MTP_APART /* the first of its own */
          ? bp->layer_flags[0] & LAYER_EXPERTS
          : bp->layer_flags[bp->num_layers - 1] | (bp->num_experts > 0 ? LAYER_EXPERTS : 0);
  return tensors_count_parameters(blueprint, &blueprint->num_parameters, error);
}

int mtp_prepare(model_t *model, int64_t rows) {
  mtp_t *mtp = &model->mtp;
  const int64_t hidden = model->blueprint.hidden_size;
  const size_t count = (size_t)(rows * hidden);
  const int64_t target = EAGLE_LAYERS * (int64_t)model->blueprint.eagle.target_size;
  mtp->joined = model->ops->buffer(model->device, rows, MAX(2 * hidden, target));
  mtp->rows = calloc(count, sizeof *mtp->rows);
  mtp->embedded = calloc(count, sizeof *mtp->embedded);
  mtp->inputs = calloc(count, 2 * sizeof *mtp->inputs);
  bool complete = mtp->joined != NULL && mtp->rows != NULL && mtp->embedded != NULL;
  return complete && mtp->inputs != NULL ? 0 : -1;
}

void mtp_free(mtp_t *mtp) {
  free(mtp->rows);
  free(mtp->embedded);
  free(mtp->inputs);
}

const float *mtp_rows(const model_t *model) {
  return model->mtp.rows;
}

/* inputs[T, 2 h] = the rows of both norms side by side. */
static void join_rows(const mtp_t *mtp, const blueprint_t *bp, const batch_t *batch) {
  const size_t width = (size_t)bp->hidden_size;
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    float *to = mtp->inputs + 2 * width * (size_t)t;
    const size_t first = width * (size_t)t;
    if (batch->positions[t] == 0 && bp->mtp_kind == MTP_BEHIND)
      memset(to, 0, width * sizeof *to);
    else
      memcpy(to, mtp->embedded + first, width * sizeof *to);
    memcpy(to + width, mtp->rows + first, width * sizeof *to);
  }
}

void mtp_forward(model_t *model, const batch_t *batch, const float *rows, float *out) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  const mtp_t *mtp = &model->mtp;
  const int32_t hidden = model->blueprint.hidden_size, count = batch->num_tokens;
  act_t *x = model->x, *y = model->y;
  model->lora.num_tokens = 0;
  model->lora.with_factors = false;
  ops->write_rows(device, y, rows, hidden, count);
  ops->norm(device, x, y, NULL, &mtp->hidden_norm, count);
  ops->read_rows(device, mtp->rows, x, hidden, count);
  ops->embed(device, y, model->embed, model->embed_scale);
  ops->norm(device, x, y, NULL, &mtp->embed_norm, count);
  ops->read_rows(device, mtp->embedded, x, hidden, count);
  join_rows(mtp, &model->blueprint, batch);
  ops->write_rows(device, mtp->joined, mtp->inputs, 2 * hidden, count);
  ops->linear(device, x, mtp->joined, mtp->join, NULL, NULL, count);
  model_run_layer(model, &model->layers[model->blueprint.num_layers], x, y, count);
  ops->gather(device, y, x, hidden); /* y[S, h] */
  if (model->blueprint.mtp_kind == MTP_APART) {
    ops->norm(device, x, y, NULL, &mtp->norm, batch->num_selected);
    y = x;
  }
  ops->read_rows(device, out, y, hidden, batch->num_selected);
}

void mtp_head(model_t *model, const float *rows, int32_t count) {
  const ops_t *ops = model->ops;
  device_t *device = model->device;
  model->lora.num_tokens = 0;
  ops->write_rows(device, model->y, rows, model->blueprint.hidden_size, count);
  model->head_in = model->y;
  if (model->blueprint.mtp_kind == MTP_APART) return; /* they are normed */
  ops->norm(device, model->x, model->y, NULL, &model->mtp.norm, count);
  model->head_in = model->x;
}
