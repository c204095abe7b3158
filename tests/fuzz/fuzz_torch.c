/* fuzz_torch.c: a file of torch.save.
 *
 * Behind a first byte of 0 the input is the file; else it is the pickle of an archive whose
 * storages "0" to "3" have STORAGE_BYTES each. Of what opens, every tensor is read whole and in two
 * parts, which must agree.
 */
#include "engine/base/buffer.h"
#include "engine/file/torch_file.h"
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORAGE_BYTES = 96 };

static void put(buffer_t *out, uint64_t number, int bytes) {
  for (; bytes > 0; bytes--, number >>= 8) buffer_char(out, (char)(number & 0xFF));
}

/* Appends an entry to the archive, and to its directory. */
static void add_entry(buffer_t *archive, buffer_t *directory, const char *name, const void *bytes,
                      size_t length) {
  const size_t at = archive->length;
  put(archive, 0x04034B50, 4);
  put(archive, 0, 14); /* version, flags, method, time, sum */
  put(archive, length, 4), put(archive, length, 4);
  put(archive, strlen(name), 2), put(archive, 0, 2);
  buffer_text(archive, name);
  buffer_append(archive, bytes, length);
  put(directory, 0x02014B50, 4);
  put(directory, 0, 8), put(directory, 0, 8);
  put(directory, length, 4), put(directory, length, 4);
  put(directory, strlen(name), 2), put(directory, 0, 6), put(directory, 0, 6);
  put(directory, at, 4);
  buffer_text(directory, name);
}

static void write_archive(const char *path, const uint8_t *pickle, size_t size) {
  buffer_t archive = {0}, directory = {0};
  uint8_t numbers[STORAGE_BYTES];
  char name[24];
  add_entry(&archive, &directory, "a/data.pkl", pickle, size);
  add_entry(&archive, &directory, "a/byteorder", "little", 6);
  for (int i = 0; i < 4; i++) {
    for (int n = 0; n < STORAGE_BYTES; n++) numbers[n] = (uint8_t)(i * STORAGE_BYTES + n);
    snprintf(name, sizeof name, "a/data/%d", i);
    add_entry(&archive, &directory, name, numbers, sizeof numbers);
  }
  const size_t at = archive.length;
  buffer_append(&archive, directory.data, directory.length);
  put(&archive, 0x06054B50, 4);
  put(&archive, 0, 4), put(&archive, 6, 2), put(&archive, 6, 2);
  put(&archive, directory.length, 4), put(&archive, at, 4), put(&archive, 0, 2);
  fuzz_write(path, archive.bytes, archive.length);
  buffer_free(&archive);
  buffer_free(&directory);
}

static void read_twice(const torch_tensor_t *tensor) {
  const size_t count = tensor->form.elements, bytes = tensor->form.element_bytes;
  uint8_t *whole = malloc(count * bytes + 1), *parts = malloc(count * bytes + 1);
  if (whole == NULL || parts == NULL) abort();
  torch_tensor_read(tensor, 0, count, whole);
  torch_tensor_read(tensor, 0, count / 2, parts);
  torch_tensor_read(tensor, count / 2, count - count / 2, parts + count / 2 * bytes);
  if (memcmp(whole, parts, count * bytes) != 0) abort();
  free(whole);
  free(parts);
}

void fuzz_torch(const uint8_t *data, size_t size) {
  torch_file_t *file = NULL;
  inferd_error_t error = {0};
  char path[256];
  if (size < 2) return;
  if (data[0] == 0) {
    fuzz_write("pytorch_model.bin", data + 1, size - 1);
  } else {
    write_archive("pytorch_model.bin", data + 1, size - 1);
  }
  snprintf(path, sizeof path, "%s/pytorch_model.bin", fuzz_directory());
  int code = torch_file_open(path, &file, &error);
  if ((code == 0) != (file != NULL) || (code != 0) != (error.message[0] != '\0')) abort();
  size_t budget = 1 << 22; /* bytes: an input may be many views of one storage */
  for (size_t i = 0; file != NULL && i < torch_file_count(file); i++) {
    const torch_tensor_t *tensor = torch_file_at(file, i);
    const size_t bytes = tensor->form.elements * tensor->form.element_bytes;
    if (bytes > torch_file_size(file)) abort();
    if (bytes > budget) break;
    budget -= bytes;
    read_twice(tensor);
  }
  torch_file_close(file);
  fuzz_remove("pytorch_model.bin");
}
