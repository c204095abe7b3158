/* torch_file.h: a file of torch.save that holds a dictionary of tensors, and nothing else.
 *
 * Both forms are read: a zip archive, since torch 1.6, and the row of pickles before it. No code of
 * the file runs (pickle.h). Opening checks every size and place, so that a tensor's numbers lie in
 * the mapping. One thread opens and closes; any thread may read between.
 */
#ifndef INFERD_ENGINE_FILE_TORCH_FILE_H
#define INFERD_ENGINE_FILE_TORCH_FILE_H

#include "engine/file/pickle.h"

enum { TORCH_NAME_MAX = 512, TORCH_PICKLE_MAX = 64 << 20 /* bytes */ };

typedef struct torch_tensor {
  char *name;           /* owned by the file; UTF-8 without NUL */
  pickle_tensor_t form; /* type, shape, strides */
  const uint8_t *data;  /* of the storage, inside the mapping */
} torch_tensor_t;

typedef struct torch_file torch_file_t;

/* ERR_MODEL_MISSING, ERR_MODEL_MALFORMED (also for a name or a value that is no part of a tensor),
 * ERR_PERMISSION, ERR_IO or ERR_NO_MEMORY. */
int torch_file_open(const char *path, torch_file_t **out, inferd_error_t *error);
void torch_file_close(torch_file_t *file); /* NULL is allowed */

size_t torch_file_count(const torch_file_t *file);
/* In order of names, each of which is there once. */
const torch_tensor_t *torch_file_at(const torch_file_t *file, size_t index);
size_t torch_file_size(const torch_file_t *file); /* bytes on the disk */
/* Copies elements [first, first + count) in the order of the dimensions, whatever the strides. */
void torch_tensor_read(const torch_tensor_t *tensor, size_t first, size_t count, uint8_t *out);
/* False when the file shrank or could not be read while it was mapped. */
bool torch_file_intact(const torch_file_t *file);

#endif
