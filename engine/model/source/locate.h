/* locate.h: from what a user types to the files of a model on this machine.
 *
 * A user has a directory, a GGUF file, a folder of the Hugging Face cache, or only a name. This
 * module looks at directories and links and reads no weights; it never uses the network. Main
 * thread at start, because it reads the environment.
 */
#ifndef INFERD_ENGINE_MODEL_DISK_LOCATE_H
#define INFERD_ENGINE_MODEL_DISK_LOCATE_H

#include "engine/base/error.h"

enum { LOCATED_PATH_MAX = 4096, LOCATED_NAME_MAX = 256 };

typedef struct located {
  char path[LOCATED_PATH_MAX]; /* a directory with config.json, or one .gguf file: the first part of
                                * a split one */
  /* What requests call the model: "ORG/NAME" of the Hugging Face hub, with ":QUANT" if the user
   * named one; the name of a GGUF file without its ending; "" = the name of the directory */
  char name[LOCATED_NAME_MAX];
} located_t;

/* Finds what `what` means, in this order:
 *   a file, which must be a .gguf file;
 *   a directory: of a model; of the cache (models--ORG--NAME: the snapshot of refs/main, else the
 *   only one); with GGUF files alone (the only one);
 *   PATH:QUANT, the GGUF file of that quantisation, such as Q4_K_M, in the directory;
 *   ORG/NAME, ORG/NAME:QUANT and ORG/NAME@REVISION (a branch, tag or commit, and :QUANT may follow)
 *   in HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
 *   $XDG_CACHE_HOME/huggingface/hub and ~/.cache/huggingface/hub.
 * Returns 0. ERR_MODEL_MISSING: nothing was found, or several models were; the message has the
 * places that were searched, or the names of the models. ERR_MODEL_MALFORMED: what was found cannot
 * be served, such as an adapter or a pickle file; the message says what to do. ERR_PERMISSION,
 * ERR_IO. */
int model_locate(const char *what, located_t *out, inferd_error_t *error);
/* True when weights of a model that was located are missing, as after a download that was cut. */
bool model_lacks_weights(const located_t *model);
/* True when `what` begins as ORG/NAME, ORG/NAME@ or ORG/NAME: of the hub, and is no path that
 * exists. */
bool model_is_hub_name(const char *what);

#endif
