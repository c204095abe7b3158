/* metadata.h: the metadata of a GGUF file while they are written as config.json.
 *
 * For the files config_gguf*.c. A source is a key of the metadata, in which "%"
 * stands for the architecture. The first refusal sets `code`, and what follows is not kept. Any
 * thread, no state.
 */
#ifndef INFERD_ENGINE_MODEL_GGUF_METADATA_H
#define INFERD_ENGINE_MODEL_GGUF_METADATA_H

#include "engine/base/buffer.h"
#include "engine/file/gguf.h"
#include "engine/model/families/rules.h"

#include <stdbool.h>
#include <stdint.h>

enum { KEY_TEXT_MAX = 96 };

typedef struct metadata {
  const gguf_t *gguf;
  const char *arch; /* of a row of a lineage */
  int needs;        /* of rules.h */
  int wide_layers;
  buffer_t *json; /* not owned */
  int code;
  inferd_error_t *error;
} metadata_t;

/* Sets the error: file, key, and the reason in the format. */
__attribute__((format(printf, 3, 4))) void metadata_refuse(metadata_t *writer, const char *key,
                                                           const char *format, ...);
/* The key of a source, in `out`, which is returned. */
const char *metadata_key(const char *arch, const char *source, char *out, size_t capacity);
/* The value of a source or NULL; its key in `key`, of KEY_TEXT_MAX bytes. */
const gguf_value_t *metadata_find(const metadata_t *writer, const char *source, char *key);
/* The tensor blk.LAYER.PART, or NULL. */
const gguf_tensor_t *metadata_layer_tensor(const metadata_t *writer, int64_t layer,
                                           const char *part);

/* A member of the JSON object. */
void metadata_name(metadata_t *writer, const char *key);
void metadata_put_text(metadata_t *writer, const char *key, const char *text);
void metadata_put_int(metadata_t *writer, const char *key, int64_t number);
void metadata_put_double(metadata_t *writer, const char *key, double number);
void metadata_put_bool(metadata_t *writer, const char *key, bool flag);
void metadata_plain_double(metadata_t *writer, double number); /* without a name */

/* The number of a source; false when the key is absent or refused. A list with one integer for
 * every layer counts if they are all the same. */
bool metadata_take_int(metadata_t *writer, const char *source, int64_t *out);
bool metadata_take_double(metadata_t *writer, const char *source, double *out);
/* An absent key is refused. */
void metadata_need_int(metadata_t *writer, const char *source, int64_t *out);
/* Takes and puts, if the key is there. */
void metadata_copy_int(metadata_t *writer, const char *key, const char *source);
bool metadata_copy_double(metadata_t *writer, const char *key, const char *source);

/* Theta, and the scaling of the angles. */
void metadata_write_rope(metadata_t *writer);

/* The layers of the model: without those that predict further tokens. */
int64_t metadata_layers(metadata_t *writer);

/* What the keys and tensors say about `experts` experts: those of Qwen, Mixtral and gpt-oss, and
 * those of routers that score. */
void metadata_write_experts(metadata_t *writer, int64_t experts);
/* Files that do not say so have a bias of the choice with a sigmoid alone. */
bool metadata_scores_by_sigmoid(metadata_t *writer);
void metadata_write_router(metadata_t *writer, int64_t experts);

/* Of layers with a state: the number of a source where it is not 0, `absent` without the key. */
int64_t metadata_take_most(metadata_t *writer, const char *source, int64_t absent);
void metadata_write_mlp(metadata_t *writer, int64_t experts);
void metadata_write_states(metadata_t *writer, int64_t experts);

/* Sizes, angles and `experts` experts of Gemma 4; the same of Gemma 3n, which has none. */
void metadata_write_gemma4(metadata_t *writer, int64_t experts);
void metadata_write_gemma3n(metadata_t *writer);

/* The architecture of an encoder, by its tensors: that of a classifier if it has one. */
const char *metadata_encoder(metadata_t *writer, const char *architecture);
void metadata_write_encoder(metadata_t *writer);
/* A Qwen3-Reranker: rows of the head stand as a classifier. */
bool metadata_judges(metadata_t *writer);

#endif
