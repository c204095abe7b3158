/* config_gguf.h: the metadata of a GGUF file in the place of config.json. Any thread, no state. */
#ifndef INFERD_ENGINE_MODEL_CONFIG_CONFIG_GGUF_H
#define INFERD_ENGINE_MODEL_CONFIG_CONFIG_GGUF_H

#include "engine/base/buffer.h"
#include "engine/file/gguf.h"
#include "engine/model/model.h"

/* Appends to `json` what config.json would say. *arch is the general.architecture, static text.
 * ERR_MODEL_MALFORMED with file, key, value and what is supported; ERR_NO_MEMORY. */
int config_from_gguf(const gguf_t *gguf, const char **arch, buffer_t *json, inferd_error_t *error);

/* The key of the metadata that a key of config.json was made from, for messages; `key` itself when
 * there is none. Returns `out` or `key`. */
const char *config_gguf_key(const char *arch, const char *key, char *out, size_t capacity);

/* What the list of tensors says: which biases and norms there are. config_from_gguf comes first. */
void config_from_gguf_tensors(const gguf_t *gguf, blueprint_t *blueprint);

/* Sampling defaults, as generation_config.json gives them; outside their range they are ignored. */
void config_from_gguf_sampling(const gguf_t *gguf, blueprint_t *blueprint);

/* A line for the log: the file, its architecture, how many tensors of which types. */
void config_from_gguf_note(const gguf_t *gguf, const char *arch, blueprint_t *blueprint);

#endif
