/* mmproj.h: a tower in a GGUF file of its own, as llama.cpp's converter writes it (mmproj-*.gguf).
 *
 * The file says in its own words what config.json and preprocessor_config.json of the whole model
 * say. They are written here in the words of these, so that a family has one set of rules, and so
 * are the names of tensors. Any thread, no state.
 */
#ifndef INFERD_ENGINE_MODEL_TOWERS_MMPROJ_H
#define INFERD_ENGINE_MODEL_TOWERS_MMPROJ_H

#include "engine/model/source/model_file.h"
#include "engine/model/towers/family.h"

enum { MMPROJ_PATH_MAX = 4096 };

/* Whether `path` is a GGUF file, and so no directory of a model. */
bool mmproj_is(const char *path);
/* Finds the file beside a model in GGUF: *mmproj*.gguf in the same directory. Of several the one
 * whose name says BF16, else F16, F32, Q8_0, else the first by name. False: there is none. */
bool mmproj_beside(const char *model_path, char out[MMPROJ_PATH_MAX]);

/* The configuration of the whole model as far as the file knows it, the processor's as
 * `image_processor`; `mmproj_image_token` is the text of the placeholder. Returns 0 and *out, freed
 * with model_file_free; out->doc is NULL for a model of text. ERR_MODEL_MALFORMED with file and
 * key: a projector of another kind, or a number is missing; or an error of gguf_open. */
int mmproj_config(const char *path, model_file_t *out, inferd_error_t *error);

/* What a tensor of a role is called: `part` is "weight", "bias" or, of a bare one, "". False where
 * the file has none of that role. */
bool mmproj_name(const tower_plan_t *plan, tower_role_t role, int32_t index, const char *part,
                 char *out, size_t size);
/* Whether queries and keys lie in the order of llama.cpp's rotation: of each head, pair by pair. */
bool mmproj_turns_heads(const tower_plan_t *plan, tower_role_t role);
/* Whether a tensor of the file is read, or is one that the text model has too. */
bool mmproj_is_copy(const char *name);

#endif
