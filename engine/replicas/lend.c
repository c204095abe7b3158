/* lend.c: a model that runs the weights of another one; see lend.h. */
#include "engine/replicas/lend.h"

#include "engine/model/forward/internal.h"

#include <stdlib.h>
#include <string.h>

/* Activations and adapters, which follow in model_prepare and model_adapters, are its own. */
int model_lend(const model_t *lender, device_t *device, model_t **out, inferd_error_t *error) {
  const size_t count = (size_t)(lender->blueprint.num_layers + lender->blueprint.mtp);
  model_t *model = malloc(sizeof *model);
  layer_t *layers = calloc(count, sizeof *layers);
  uint8_t *flags = calloc(count, sizeof *flags);
  if (model == NULL || layers == NULL || flags == NULL) {
    free(model);
    free(layers);
    free(flags);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  }
  *model = *lender;
  model->device = device;
  model->is_lent = true;
  model->layers = memcpy(layers, lender->layers, count * sizeof *layers);
  model->blueprint.layer_flags = memcpy(flags, lender->blueprint.layer_flags, count);
  for (size_t i = 0; i < count; i++) memset(layers[i].lora, 0, sizeof layers[i].lora);
  model->lora = (model_lora_t){0};
  model->mtp.joined = NULL;
  model->eagle = (eagle_t){0};
  model->mtp.rows = model->mtp.embedded = model->mtp.inputs = NULL;
  *out = model;
  return 0;
}
