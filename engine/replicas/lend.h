/* lend.h: a model that runs the weights of another one. Engine thread of the new model. */
#ifndef INFERD_ENGINE_REPLICAS_LEND_H
#define INFERD_ENGINE_REPLICAS_LEND_H

#include "engine/model/model.h"

/* Makes a model for `device`, which was opened with the lender's as device_options_t.lender. The
 * lender is loaded, and lives longer. Then come model_adapters and model_prepare, as after
 * model_load. Returns 0 or ERR_NO_MEMORY. */
int model_lend(const model_t *lender, device_t *device, model_t **out, inferd_error_t *error);

#endif
