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

#include <stdio.h>
#include <string.h>

enum {
  END_BYTES = 22, /* records of a zip archive without their texts */
  END64_BYTES = 56,
  LOCATOR_BYTES = 20,
  ENTRY_BYTES = 46,
  LOCAL_BYTES = 30,
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

static uint64_t number_at(const uint8_t *bytes, int count) {
  uint64_t number = 0;
  while (count-- > 0) number = number << 8 | bytes[count];
  return number;
}

/* ---- the archive ---- */

/* The directory, from the record at the end of the file, and from that of 64 bits. */
static bool find_directory(part_t file, part_t *out, size_t *count) {
  if (file.length < END_BYTES) return false;
  const uint8_t *end = file.at + file.length - END_BYTES;
  if (memcmp(end, "PK\5\6", 4) != 0 || number_at(end + 20, 2) != 0) return false;
  uint64_t entries = number_at(end + 10, 2), bytes = number_at(end + 12, 4),
           begin = number_at(end + 16, 4), last = file.length - END_BYTES;
  if (last >= LOCATOR_BYTES && memcmp(end - LOCATOR_BYTES, "PK\6\7", 4) == 0) {
    const uint64_t at = number_at(end - LOCATOR_BYTES + 8, 8);
    if (at > last || last - at < END64_BYTES || memcmp(file.at + at, "PK\6\6", 4) != 0)
      return false;
    entries = number_at(file.at + at + 32, 8);
    bytes = number_at(file.at + at + 40, 8);
    begin = number_at(file.at + at + 48, 8);
    last = at;
  }
  if (begin > last || last - begin < bytes || entries > ENTRIES_MAX) return false;
  *out = (part_t){file.at + begin, (size_t)bytes};
  *count = (size_t)entries;
  return true;
}

/* Takes the numbers that do not fit into 32 bits from the record of 64 bits behind the name. */
static void take_wide(const uint8_t *extra, size_t length, uint64_t *const wide[3]) {
  while (length >= 4) {
    const uint64_t id = number_at(extra, 2), bytes = number_at(extra + 2, 2);
    if (bytes > length - 4) return;
    size_t used = 0;
    for (int i = 0; id == 1 && i < 3; i++) {
      if (*wide[i] != UINT32_MAX || bytes - used < 8) continue;
      *wide[i] = number_at(extra + 4 + used, 8);
      used += 8;
    }
    extra += 4 + bytes, length -= 4 + (size_t)bytes;
  }
}

/* The next entry of the directory, which is moved behind it: its name and its bytes. */
static bool next_entry(part_t file, part_t *directory, part_t *name, part_t *content) {
  const uint8_t *entry = directory->at;
  if (directory->length < ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0) return false;
  const size_t named = number_at(entry + 28, 2), extra = number_at(entry + 30, 2),
               all = ENTRY_BYTES + named + extra + number_at(entry + 32, 2);
  if (directory->length < all) return false;
  uint64_t packed = number_at(entry + 20, 4), bytes = number_at(entry + 24, 4),
           offset = number_at(entry + 42, 4);
  take_wide(entry + ENTRY_BYTES + named, extra, (uint64_t *const[]){&bytes, &packed, &offset});
  const bool is_plain = number_at(entry + 10, 2) == 0 && (number_at(entry + 8, 2) & 1) == 0;
  if (!is_plain || packed != bytes || offset > file.length || file.length - offset < LOCAL_BYTES)
    return false;
  const uint8_t *local = file.at + offset;
  const size_t head = LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2),
               room = file.length - offset;
  if (memcmp(local, "PK\3\4", 4) != 0 || room < head || room - head < bytes) return false;
  *name = (part_t){entry + ENTRY_BYTES, named};
  *content = (part_t){local + head, (size_t)bytes};
  directory->at += all;
  directory->length -= all;
  return true;
}

/* The one entry whose name is ANY/`path`. Its bytes are NULL if there is none, or several. */
static bool find_entry(part_t file, const char *path, size_t path_length, part_t *out) {
  part_t directory, name, content;
  size_t count;
  *out = (part_t){NULL, 0};
  if (!find_directory(file, &directory, &count)) return false;
  for (size_t i = 0; i < count; i++) {
    if (!next_entry(file, &directory, &name, &content)) return false;
    const uint8_t *slash = memchr(name.at, '/', name.length);
    const size_t head = slash == NULL ? 0 : (size_t)(slash - name.at) + 1;
    if (name.length - head != path_length || memcmp(name.at + head, path, path_length) != 0)
      continue;
    if (out->at != NULL) return false;
    *out = content;
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
  const uint64_t number = at != NULL ? number_at(at, (int)bytes) : UINT64_MAX;
  if (number > INT64_MAX) program->differs = true;
  return (int64_t)number;
}

/* A short text. */
static part_t take_text(program_t *program) {
  EXPECT(program, "X");
  const uint8_t *size = take(program, 4);
  const size_t length = size != NULL ? number_at(size, 4) : 0;
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
