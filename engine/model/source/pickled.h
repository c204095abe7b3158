/* pickled.h: safetensors files made from those that torch.save has written.
 *
 * The server never reads a pickle: `inferd convert` makes files of it once, and torch_file.h runs
 * no code on the way. One thread.
 */
#ifndef INFERD_ENGINE_MODEL_SOURCE_PICKLED_H
#define INFERD_ENGINE_MODEL_SOURCE_PICKLED_H

#include "engine/base/error.h"

/* Makes of pytorch_model.bin, or of the shards that pytorch_model.bin.index.json names, and of
 * adapter_model.bin, the files that take their places: model.safetensors, model-00001-of-00002
 * .safetensors with model.safetensors.index.json, adapter_model.safetensors. They appear in `dir`
 * whole, the index last, and can be opened; after an error there are none. `say` gets a line for
 * each. ERR_MODEL_MISSING: there is nothing to convert; ERR_CONFIGURATION: it is done already;
 * errors of torch_file_open; ERR_IO, ERR_PERMISSION. */
int pickled_convert(const char *dir, void (*say)(const char *line), inferd_error_t *error);
/* True when `dir` has files that pickled_convert takes. */
bool pickled_is_in(const char *dir);

#endif
