/* tensor_torch.c: what torch.save writes of one tensor, and nothing else; a part of tensor.h.
 *
 * The file is a zip archive of entries that are not compressed: NAME/data.pkl, NAME/data/KEY and a
 * few small ones. data.pkl is a program for Python's unpickler. It is not run: that of one dense
 * tensor is always the same but for a few numbers and names, so it is compared, byte by byte, with
 * that one program. Any thread.
 */
#include "server/completion/tensor.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/file/zip.h"

#include <stdio.h>
#include <string.h>

enum {
  ENTRIES_MAX = 16,
  PROGRAM_MAX = 1024 /* bytes of data.pkl */
};

/* Bytes of the file. */
typedef struct part {
  const uint8_t *at;
  size_t length;
} part_t;

typedef struct program {
  const uint8_t *at, *end;
  bool differs; /* it is no program of one tensor */
} program_t;

static int refuse(inferd_error_t *error, const char *reason) {
  return error_set(error, ERR_INVALID_VALUE, NULL, "%s", reason);
}

static int damaged(inferd_error_t *error) {
  return refuse(error, "is a damaged file of torch.save, or cut off");
}

/* ---- the archive ---- */

static bool read_part(const void *archive, void *out, size_t bytes, size_t at) {
  memcpy(out, ((const part_t *)archive)->at + at, bytes);
  return true;
}

/* The one entry whose name is ANY/`path`. Its bytes are NULL if there is none, or several. */
static bool find_entry(part_t file, const char *path, size_t path_length, part_t *out) {
  const zip_source_t source = {read_part, &file, file.length};
  zip_directory_t directory;
  zip_part_t entry;
  size_t at = 0;
  *out = (part_t){NULL, 0};
  if (zip_find_directory(&source, &directory) != NULL || directory.count > ENTRIES_MAX)
    return false;
  for (size_t i = 0; i < directory.count; i++) {
    if (zip_next(&source, file.at + directory.begin, directory.bytes, &at, &entry) != NULL)
      return false;
    const char *slash = memchr(entry.name, '/', entry.name_length);
    const size_t head = slash == NULL ? 0 : (size_t)(slash - entry.name) + 1;
    if (entry.name_length - head != path_length ||
        memcmp(entry.name + head, path, path_length) != 0)
      continue;
    if (out->at != NULL) return false;
    *out = (part_t){file.at + entry.begin, entry.bytes};
  }
  return true;
}

/* ---- the program ---- */

static const uint8_t *take(program_t *program, size_t length) {
  const uint8_t *at = program->at;
  if ((size_t)(program->end - at) < length) program->differs = true;
  if (program->differs) return NULL;
  program->at += length;
  return at;
}

static void expect(program_t *program, const char *bytes, size_t length) {
  const uint8_t *at = take(program, length);
  if (at == NULL || memcmp(at, bytes, length) != 0) program->differs = true;
}

/* The next value is kept under the number of its turn. */
static void expect_memo(program_t *program, uint8_t *memo) {
  const char kept[] = {'q', (char)(*memo)++};
  expect(program, kept, sizeof kept);
}

#define EXPECT(program, text) expect(program, text, sizeof(text) - 1)

static int64_t take_number(program_t *program) {
  const uint8_t *opcode = take(program, 1);
  if (opcode == NULL) return 0;
  const uint8_t *size = *opcode == 0x8A ? take(program, 1) : NULL;
  const size_t bytes = *opcode == 'K'   ? 1
                       : *opcode == 'M' ? 2
                       : *opcode == 'J' ? 4
                       : size != NULL   ? *size
                                        : 0;
  const uint8_t *at = bytes > 0 && bytes <= 8 ? take(program, bytes) : NULL;
  const uint64_t number = at != NULL ? zip_number(at, (int)bytes) : UINT64_MAX;
  if (number > INT64_MAX) program->differs = true;
  return (int64_t)number;
}

/* A short text. */
static part_t take_text(program_t *program) {
  EXPECT(program, "X");
  const uint8_t *size = take(program, 4);
  const size_t length = size != NULL ? zip_number(size, 4) : 0;
  const uint8_t *at = take(program, MIN(length, (size_t)PROGRAM_MAX));
  return (part_t){at, at != NULL ? length : 0};
}

static bool take_class(program_t *program, tensor_type_t *out) {
  static const struct {
    const char *line;
    tensor_type_t type;
  } classes[] = {{"ctorch\nFloatStorage\n", TENSOR_F32},
                 {"ctorch\nHalfStorage\n", TENSOR_F16},
                 {"ctorch\nBFloat16Storage\n", TENSOR_BF16}};
  for (size_t i = 0; i < ARRAY_LEN(classes) && !program->differs; i++) {
    const size_t length = strlen(classes[i].line);
    if ((size_t)(program->end - program->at) < length ||
        memcmp(program->at, classes[i].line, length) != 0)
      continue;
    program->at += length;
    *out = classes[i].type;
    return true;
  }
  program->differs = true;
  return false;
}

/* Two or three numbers in a tuple. Returns how many. */
static size_t take_sizes(program_t *program, uint8_t *memo, int64_t sizes[3]) {
  size_t count = 0;
  while (count < 3 && !program->differs) {
    sizes[count++] = take_number(program);
    const uint8_t next = program->at < program->end ? *program->at : 0;
    if (next == 0x86 || next == 0x87) break;
  }
  const uint8_t *tuple = take(program, 1);
  if (tuple == NULL || count < 2 || *tuple != 0x84 + count) program->differs = true;
  expect_memo(program, memo);
  return count;
}

/* What the program says of its tensor. */
typedef struct described {
  tensor_type_t type;
  part_t key;
  int64_t elements, offset, shape[3], stride[3]; /* elements: of the storage */
  size_t rank;
} described_t;

static bool read_program(part_t bytes, described_t *out) {
  program_t program = {.at = bytes.at, .end = bytes.at + bytes.length};
  uint8_t memo = 0;
  EXPECT(&program, "\x80\2ctorch._utils\n_rebuild_tensor_v2\n");
  expect_memo(&program, &memo);
  EXPECT(&program, "((X\7\0\0\0storage");
  expect_memo(&program, &memo);
  (void)take_class(&program, &out->type);
  expect_memo(&program, &memo);
  out->key = take_text(&program);
  expect_memo(&program, &memo);
  (void)take_text(&program); /* the device */
  expect_memo(&program, &memo);
  out->elements = take_number(&program);
  EXPECT(&program, "t");
  expect_memo(&program, &memo);
  EXPECT(&program, "Q");
  out->offset = take_number(&program);
  out->rank = take_sizes(&program, &memo, out->shape);
  if (take_sizes(&program, &memo, out->stride) != out->rank) program.differs = true;
  const uint8_t *needs_gradient = take(&program, 1);
  if (needs_gradient == NULL || (*needs_gradient != 0x88 && *needs_gradient != 0x89)) return false;
  EXPECT(&program, "ccollections\nOrderedDict\n");
  expect_memo(&program, &memo);
  EXPECT(&program, ")R");
  expect_memo(&program, &memo);
  EXPECT(&program, "t");
  expect_memo(&program, &memo);
  EXPECT(&program, "R");
  expect_memo(&program, &memo);
  EXPECT(&program, ".");
  return !program.differs && program.at == program.end;
}

/* ---- the tensor ---- */

/* Rows one behind the other, inside of the storage. */
static int place(const described_t *described, part_t storage, tensor_t *out,
                 inferd_error_t *error) {
  const size_t each = out->type == TENSOR_F32 ? 4 : 2, last = described->rank - 1;
  const int64_t *shape = described->shape, *stride = described->stride;
  size_t elements, bytes, begin, end;
  if (described->rank == 3 && shape[0] != 1)
    return refuse(error, "has several matrices; send a list of files instead");
  out->rows = shape[last - 1];
  out->columns = shape[last];
  if (out->rows < 1 || out->columns < 1) return refuse(error, "has a tensor of no values");
  if ((out->columns > 1 && stride[last] != 1) ||
      (out->rows > 1 && stride[last - 1] != out->columns))
    return refuse(error, "has a tensor that is not contiguous; send tensor.contiguous()");
  if (!checked_mul((size_t)described->elements, each, &bytes) || bytes != storage.length ||
      !checked_mul((size_t)out->rows, (size_t)out->columns, &elements) ||
      !checked_mul(elements, each, &elements) ||
      !checked_mul((size_t)described->offset, each, &begin) ||
      !checked_add(begin, elements, &end) || end > storage.length)
    return damaged(error);
  out->data = storage.at + begin;
  return 0;
}

int tensor_read_torch(const uint8_t *bytes, size_t length, tensor_t *out, inferd_error_t *error) {
  const part_t file = {bytes, length};
  part_t program, order, storage;
  described_t described = {0};
  char path[64];
  if (!find_entry(file, "data.pkl", strlen("data.pkl"), &program) ||
      !find_entry(file, "byteorder", strlen("byteorder"), &order))
    return damaged(error);
  if (program.at == NULL) return refuse(error, "is a zip archive that torch.save has not written");
  if (order.at != NULL && (order.length != 6 || memcmp(order.at, "little", 6) != 0))
    return refuse(error, "has numbers that are not little endian");
  if (program.length > PROGRAM_MAX || !read_program(program, &described))
    return refuse(error, "is no file of torch.save with one dense tensor of two dimensions, of "
                         "float32, float16 or bfloat16; no other program is read or run");
  const int n = snprintf(path, sizeof path, "data/%.*s", (int)MIN(described.key.length, 32),
                         (const char *)described.key.at);
  if (!find_entry(file, path, (size_t)n, &storage) || storage.at == NULL) return damaged(error);
  out->type = described.type;
  return place(&described, storage, out, error);
}
