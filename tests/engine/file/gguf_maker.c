/* gguf_maker.c: appends the parts of a GGUF file to buffers and writes them. One thread. */
#include "tests/engine/file/gguf_maker.h"

#include "engine/base/half.h"
#include "tests/expect.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void gguf_maker_open(gguf_maker_t *maker) {
  *maker = (gguf_maker_t){.dir = "/tmp/inferd-gguf-XXXXXX", .alignment = 32};
  cr_assert_not_null(mkdtemp(maker->dir));
}

void gguf_maker_clear(gguf_maker_t *maker) {
  gguf_maker_t fresh = {.alignment = 32};
  memcpy(fresh.dir, maker->dir, sizeof fresh.dir);
  buffer_free(&maker->pairs);
  buffer_free(&maker->tensors);
  buffer_free(&maker->data);
  *maker = fresh;
}

void gguf_maker_close(gguf_maker_t *maker) {
  gguf_maker_clear(maker);
  DIR *stream = opendir(maker->dir);
  cr_assert_not_null(stream);
  for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", maker->dir, entry->d_name);
    (void)unlink(path);
  }
  closedir(stream);
  rmdir(maker->dir);
}

void gguf_put(buffer_t *buffer, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; i++) buffer_char(buffer, (char)(number >> 8 * i & 255));
}

void gguf_put_text(buffer_t *buffer, const char *text) {
  gguf_put(buffer, strlen(text), 8);
  buffer_text(buffer, text);
}

void gguf_maker_key(gguf_maker_t *maker, const char *key, uint32_t kind) {
  gguf_put_text(&maker->pairs, key);
  gguf_put(&maker->pairs, kind, 4);
  maker->num_pairs++;
}

void gguf_maker_text(gguf_maker_t *maker, const char *key, const char *text) {
  gguf_maker_key(maker, key, GGUF_STRING);
  gguf_put_text(&maker->pairs, text);
}

void gguf_maker_number(gguf_maker_t *maker, const char *key, uint32_t kind, uint64_t number) {
  static const int bytes[GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  gguf_maker_key(maker, key, kind);
  gguf_put(&maker->pairs, number, bytes[kind]);
}

void gguf_maker_f32(gguf_maker_t *maker, const char *key, float number) {
  gguf_maker_number(maker, key, GGUF_F32, float_bits(number));
}

void gguf_maker_array(gguf_maker_t *maker, const char *key, uint32_t element, uint64_t count) {
  gguf_maker_key(maker, key, GGUF_ARRAY);
  gguf_put(&maker->pairs, element, 4);
  gguf_put(&maker->pairs, count, 8);
}

void gguf_maker_info(gguf_maker_t *maker, const char *name, const uint64_t *dims, uint32_t type,
                     uint64_t offset) {
  uint32_t rank = 0;
  while (dims[rank] != 0) rank++;
  gguf_put_text(&maker->tensors, name);
  gguf_put(&maker->tensors, rank, 4);
  for (uint32_t i = 0; i < rank; i++) gguf_put(&maker->tensors, dims[i], 8);
  gguf_put(&maker->tensors, type, 4);
  gguf_put(&maker->tensors, offset, 8);
  maker->num_tensors++;
}

void gguf_maker_tensor(gguf_maker_t *maker, const char *name, uint64_t rows, uint64_t cols,
                       float first) {
  uint64_t dims[3] = {cols, rows, 0};
  while (maker->data.length % maker->alignment != 0) buffer_char(&maker->data, 0);
  gguf_maker_info(maker, name, dims, GGUF_TYPE_F32, maker->data.length);
  for (uint64_t i = 0; i < (rows == 0 ? 1 : rows) * cols; i++) {
    gguf_put(&maker->data, float_bits(first + (float)i), 4);
  }
}

const char *gguf_maker_write(const gguf_maker_t *maker, const char *name) {
  static char path[320];
  buffer_t header = {0};
  gguf_put(&header, maker->magic != 0 ? maker->magic : 0x46554747, 4);
  gguf_put(&header, maker->version != 0 ? maker->version : 3, 4);
  gguf_put(&header, maker->tensor_count != 0 ? maker->tensor_count : maker->num_tensors, 8);
  gguf_put(&header, maker->pair_count != 0 ? maker->pair_count : maker->num_pairs, 8);
  buffer_append(&header, maker->pairs.data, maker->pairs.length);
  buffer_append(&header, maker->tensors.data, maker->tensors.length);
  while (header.length % maker->alignment != 0) buffer_char(&header, 0);
  buffer_append(&header, maker->data.data, maker->data.length);
  cr_assert_not(header.failed);
  cr_assert_leq(maker->cut, header.length);
  snprintf(path, sizeof path, "%s/%s", maker->dir, name);
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file, "%s", path);
  size_t length = header.length - maker->cut;
  cr_assert_eq(fwrite(header.data, 1, length, file), length);
  fclose(file);
  buffer_free(&header);
  return path;
}
