/* pickle.c: a pickle machine without Python; pickle.h says what it does not do.
 *
 * Opcodes are those that Python's pickler writes for a dictionary of tensors by protocol 2, which
 * torch.save uses, and 3. Each takes at least a byte of the program and leaves at most one value,
 * so memory is bounded by the program's length, and by PICKLE_VALUES_MAX. No recursion.
 */
#include "engine/file/pickle.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum name_role {
  ROLE_DICT,
  ROLE_TENSOR,
  ROLE_TYPED_TENSOR,
  ROLE_PARAMETER,
  ROLE_STORAGE,
  ROLE_TYPE
} name_role_t;

/* Every name that a file may hold. The type is that of a storage's elements. */
static const struct known_name {
  const char *module, *name;
  name_role_t role;
  const char *type;
  uint32_t bytes;
} known_names[] = {
    {"collections", "OrderedDict", ROLE_DICT, NULL, 0},
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, NULL, 0},
    {"torch._utils", "_rebuild_tensor_v3", ROLE_TYPED_TENSOR, NULL, 0},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, NULL, 0},
    {"torch", "FloatStorage", ROLE_STORAGE, "F32", 4},
    {"torch", "BFloat16Storage", ROLE_STORAGE, "BF16", 2},
    {"torch", "HalfStorage", ROLE_STORAGE, "F16", 2},
    {"torch", "DoubleStorage", ROLE_STORAGE, "F64", 8},
    {"torch", "LongStorage", ROLE_STORAGE, "I64", 8},
    {"torch", "IntStorage", ROLE_STORAGE, "I32", 4},
    {"torch", "ShortStorage", ROLE_STORAGE, "I16", 2},
    {"torch", "CharStorage", ROLE_STORAGE, "I8", 1},
    {"torch", "ByteStorage", ROLE_STORAGE, "U8", 1},
    {"torch", "BoolStorage", ROLE_STORAGE, "BOOL", 1},
    {"torch", "ComplexFloatStorage", ROLE_STORAGE, "C64", 8},
    {"torch.storage", "UntypedStorage", ROLE_STORAGE, "U8", 1},
    {"torch", "float8_e4m3fn", ROLE_TYPE, "F8_E4M3", 1},
    {"torch", "float8_e5m2", ROLE_TYPE, "F8_E5M2", 1},
    {"torch", "float8_e8m0fnu", ROLE_TYPE, "F8_E8M0", 1},
    {"torch", "uint16", ROLE_TYPE, "U16", 2},
    {"torch", "uint32", ROLE_TYPE, "U32", 4},
    {"torch", "uint64", ROLE_TYPE, "U64", 8},
};

const char *pickle_kind_name(pickle_kind_t kind) {
  static const char *const names[] = {"None",    "a truth value", "a number", "a number",
                                      "a text",  "a tuple",       "a list",   "a dictionary",
                                      "a class", "a storage",     "a tensor", "a mark"};
  return names[kind];
}

__attribute__((format(printf, 2, 3))) static int refuse(const pickle_t *machine, const char *format,
                                                        ...) {
  char reason[ERROR_MESSAGE_MAX - 160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return error_set(machine->error, ERR_MODEL_MALFORMED, NULL, "%s: byte %zu of the pickle: %s",
                   machine->path, machine->at, reason);
}

/* ---- pools and the stack ---- */

static int no_memory(const pickle_t *machine) {
  return error_set(machine->error, ERR_NO_MEMORY, NULL, "%s: no memory for the pickle",
                   machine->path);
}

static int keep(pickle_t *machine, buffer_t *pool, const void *record, size_t bytes) {
  if (pool->length / bytes >= PICKLE_VALUES_MAX)
    return refuse(machine, "more than %d values", PICKLE_VALUES_MAX);
  return buffer_append(pool, record, bytes) ? 0 : no_memory(machine);
}

static pickle_value_t *values(const buffer_t *pool) {
  return (pickle_value_t *)(void *)pool->data;
}

static size_t depth(const pickle_t *machine) {
  return machine->stack.length / sizeof(pickle_value_t);
}

static void drop(pickle_t *machine, size_t count) {
  machine->stack.length -= count * sizeof(pickle_value_t);
}

static int push(pickle_t *machine, pickle_kind_t kind, int64_t number, size_t count) {
  const pickle_value_t value = {.kind = kind, .count = (uint32_t)count, .number = number};
  return keep(machine, &machine->stack, &value, sizeof value);
}

/* The last `count` values of the stack, none of them a mark. NULL: there are fewer. */
static const pickle_value_t *top(const pickle_t *machine, size_t count) {
  if (depth(machine) < count) return NULL;
  const pickle_value_t *first = values(&machine->stack) + depth(machine) - count;
  for (size_t i = 0; i < count; i++) {
    if (first[i].kind == PICKLE_MARK) return NULL;
  }
  return first;
}

static int too_few(const pickle_t *machine) {
  return refuse(machine, "an opcode needs more values than there are");
}

/* Takes the uppermost mark away, whose place the values above it take. False without one. */
static bool take_mark(pickle_t *machine, size_t *count) {
  const size_t all = depth(machine);
  pickle_value_t *stack = values(&machine->stack);
  for (*count = 0; *count < all; ++*count) {
    pickle_value_t *mark = &stack[all - 1 - *count];
    if (mark->kind != PICKLE_MARK) continue;
    memmove(mark, mark + 1, *count * sizeof *mark);
    drop(machine, 1);
    return true;
  }
  return false;
}

/* ---- what an opcode carries ---- */

/* The next `count` bytes of the program; NULL: it ends before. */
static const uint8_t *carried(pickle_t *machine, size_t count) {
  if (machine->size - machine->at < count) return NULL;
  machine->at += count;
  return machine->data + machine->at - count;
}

static int ends_early(pickle_t *machine) {
  machine->is_cut = true;
  return refuse(machine, "the pickle ends here, the file is cut off");
}

static bool carried_number(pickle_t *machine, size_t bytes, uint64_t *out) {
  const uint8_t *at = carried(machine, bytes);
  *out = 0;
  for (size_t i = bytes; at != NULL && i-- > 0;) *out = *out << 8 | at[i];
  return at != NULL;
}

static int push_integer(pickle_t *machine, size_t bytes, bool is_signed) {
  uint64_t bits;
  if (!carried_number(machine, bytes, &bits)) return ends_early(machine);
  const unsigned above = 64 - 8 * (unsigned)bytes;
  const int64_t number = is_signed && bytes > 0 ? (int64_t)(bits << above) >> above : (int64_t)bits;
  return push(machine, PICKLE_INT, number, 0);
}

static int push_long(pickle_t *machine) {
  uint64_t bytes;
  if (!carried_number(machine, 1, &bytes)) return ends_early(machine);
  if (bytes > 8) return refuse(machine, "a number of %d bytes", (int)bytes);
  return bytes == 0 ? push(machine, PICKLE_INT, 0, 0) : push_integer(machine, (size_t)bytes, true);
}

static int push_text(pickle_t *machine) {
  uint64_t bytes;
  if (!carried_number(machine, 4, &bytes) || carried(machine, (size_t)bytes) == NULL)
    return ends_early(machine);
  return push(machine, PICKLE_TEXT, (int64_t)(machine->at - bytes), (size_t)bytes);
}

/* A line of a GLOBAL; its end is not part of it. */
static const char *carried_line(pickle_t *machine, size_t *length) {
  const uint8_t *from = machine->data + machine->at;
  const uint8_t *end =
      machine->at < machine->size ? memchr(from, '\n', machine->size - machine->at) : NULL;
  if (end == NULL) return NULL;
  *length = (size_t)(end - from);
  machine->at += *length + 1;
  return (const char *)from;
}

static bool is_text(const char *text, size_t length, const char *known) {
  return length == strlen(known) && memcmp(text, known, length) == 0;
}

static int push_name(pickle_t *machine) {
  size_t length[2];
  const char *module = carried_line(machine, &length[0]);
  const char *name = module != NULL ? carried_line(machine, &length[1]) : NULL;
  if (name == NULL) return ends_early(machine);
  for (size_t i = 0; i < ARRAY_LEN(known_names); i++) {
    if (is_text(module, length[0], known_names[i].module) &&
        is_text(name, length[1], known_names[i].name))
      return push(machine, PICKLE_NAME, (int64_t)i, 0);
  }
  char shown[2][96];
  return refuse(machine, "it names %s.%s, which is no part of a tensor and is not run",
                error_quote(shown[0], sizeof shown[0], module, length[0]),
                error_quote(shown[1], sizeof shown[1], name, length[1]));
}

/* ---- tuples, lists, dictionaries, the memo ---- */

static int push_tuple(pickle_t *machine, size_t count) {
  const pickle_value_t *from = top(machine, count);
  const int64_t first = (int64_t)(machine->items.length / sizeof *from);
  if (from == NULL) return too_few(machine);
  for (size_t i = 0; i < count; i++) {
    int code = keep(machine, &machine->items, &from[i], sizeof *from);
    if (code != 0) return code;
  }
  drop(machine, count);
  return push(machine, PICKLE_TUPLE, first, count);
}

static int push_container(pickle_t *machine, pickle_kind_t kind) {
  const size_t none = 0;
  int code = keep(machine, &machine->counts, &none, sizeof none);
  return code != 0 ? code
                   : push(machine, kind, (int64_t)(machine->counts.length / sizeof none) - 1, 0);
}

static size_t *container_count(const pickle_t *machine, const pickle_value_t *container) {
  return (size_t *)(void *)machine->counts.data + container->number;
}

/* Puts the last `count` values into the container below them. */
static int fill(pickle_t *machine, pickle_kind_t kind, size_t count) {
  const size_t step = kind == PICKLE_DICT ? 2 : 1;
  const pickle_value_t *container = top(machine, count + 1);
  if (container == NULL) return too_few(machine);
  if (container->kind != kind || count % step != 0)
    return refuse(machine, "values for %s, found %s", pickle_kind_name(kind),
                  pickle_kind_name(container->kind));
  for (size_t i = 1; i <= count; i += step) {
    pickle_node_t node = {.container = container->number, .value = container[i + step - 1]};
    if (kind == PICKLE_DICT) node.key = container[i];
    int code = keep(machine, &machine->nodes, &node, sizeof node);
    if (code != 0) return code;
  }
  *container_count(machine, container) += count;
  drop(machine, count);
  return 0;
}

static int fill_from_mark(pickle_t *machine, pickle_kind_t kind) {
  size_t count;
  return take_mark(machine, &count) ? fill(machine, kind, count) : too_few(machine);
}

static int put_memo(pickle_t *machine, size_t bytes) {
  uint64_t index;
  const pickle_value_t *value = top(machine, 1);
  if (!carried_number(machine, bytes, &index)) return ends_early(machine);
  if (value == NULL) return too_few(machine);
  const pickle_value_t nothing = {.kind = PICKLE_MARK};
  while (machine->memo.length / sizeof nothing <= index) {
    int code = keep(machine, &machine->memo, &nothing, sizeof nothing);
    if (code != 0) return code;
  }
  values(&machine->memo)[index] = *value;
  return 0;
}

static int get_memo(pickle_t *machine, size_t bytes) {
  uint64_t index;
  if (!carried_number(machine, bytes, &index)) return ends_early(machine);
  if (index >= machine->memo.length / sizeof(pickle_value_t) ||
      values(&machine->memo)[index].kind == PICKLE_MARK)
    return refuse(machine, "place %llu of the memo is empty", (unsigned long long)index);
  return keep(machine, &machine->stack, &values(&machine->memo)[index], sizeof(pickle_value_t));
}

/* ---- storages and tensors ---- */

static bool has_role(const pickle_value_t *value, name_role_t role) {
  return value->kind == PICKLE_NAME && known_names[value->number].role == role;
}

/* ('storage', class, key, place, count), and None where torch before 0.4 had a view. */
static int push_storage(pickle_t *machine) {
  const pickle_value_t *id = top(machine, 1);
  if (id == NULL) return too_few(machine);
  const pickle_value_t *of = values(&machine->items) + (id->kind == PICKLE_TUPLE ? id->number : 0);
  if (id->kind != PICKLE_TUPLE || (id->count != 5 && id->count != 6) || of[0].kind != PICKLE_TEXT ||
      !is_text((const char *)machine->data + of[0].number, of[0].count, "storage") ||
      !has_role(&of[1], ROLE_STORAGE) || of[2].kind != PICKLE_TEXT || of[3].kind != PICKLE_TEXT ||
      of[4].kind != PICKLE_INT || of[4].number < 0)
    return refuse(machine, "an object outside of the pickle that is no storage");
  if (id->count == 6 && of[5].kind != PICKLE_NONE)
    return refuse(machine, "a view of a storage, as torch before 0.4 wrote them");
  const struct known_name *row = &known_names[of[1].number];
  pickle_storage_t storage = {.key = of[2], .type = row->type, .element_bytes = row->bytes};
  if (!checked_mul((size_t)of[4].number, storage.element_bytes, &storage.bytes))
    return refuse(machine, "a storage of %lld elements", (long long)of[4].number);
  int code = keep(machine, &machine->storages, &storage, sizeof storage);
  if (code != 0) return code;
  drop(machine, 1);
  return push(machine, PICKLE_STORAGE, (int64_t)(machine->storages.length / sizeof storage) - 1, 0);
}

/* Reads shape and strides, which must stay inside of a storage of `room` elements. A tensor has no
 * more elements than its storage: what repeats them would make a large file of a small one. */
static int read_shape(const pickle_t *machine, const pickle_value_t *shape,
                      const pickle_value_t *stride, size_t room, pickle_tensor_t *out) {
  size_t last = out->offset, span;
  if (shape->kind != PICKLE_TUPLE || stride->kind != PICKLE_TUPLE || shape->count != stride->count)
    return refuse(machine, "a tensor whose shape and strides are no pair of tuples");
  if (shape->count > PICKLE_RANK_MAX)
    return refuse(machine, "a tensor of %u dimensions, at most %d", shape->count, PICKLE_RANK_MAX);
  out->rank = (int32_t)shape->count;
  out->elements = 1;
  bool inside = true;
  for (int32_t i = 0; i < out->rank; i++) {
    const pickle_value_t *size = values(&machine->items) + shape->number + i;
    const pickle_value_t *step = values(&machine->items) + stride->number + i;
    if (size->kind != PICKLE_INT || step->kind != PICKLE_INT || size->number < 0 ||
        step->number < 0)
      return refuse(machine, "dimension %d of a tensor is no number of at least 0", i);
    out->shape[i] = (size_t)size->number, out->stride[i] = (size_t)step->number;
    if (out->shape[i] == 0) {
      out->elements = 0;
      continue;
    }
    inside = inside && checked_mul(out->shape[i] - 1, out->stride[i], &span) &&
             checked_add(last, span, &last) &&
             checked_mul(out->elements, out->shape[i], &out->elements);
  }
  if (out->elements == 0) return 0;
  if (inside && last < room && out->elements <= room) return 0;
  return refuse(machine,
                "a tensor reaches behind its storage, or repeats it: the storage has %zu elements",
                room);
}

/* (storage, offset, shape, strides, needs gradients, hooks[, type][, more]) */
static int push_tensor(pickle_t *machine, const pickle_value_t *arguments, bool typed) {
  const pickle_value_t *of = values(&machine->items) + arguments->number;
  const uint32_t least = typed ? 7 : 6;
  if (arguments->count != least && arguments->count != least + 1)
    return refuse(machine, "a tensor made of %u values", arguments->count);
  if (of[0].kind != PICKLE_STORAGE || of[1].kind != PICKLE_INT || of[1].number < 0 ||
      (typed && !has_role(&of[6], ROLE_TYPE)))
    return refuse(machine, "a tensor without a storage, a place in it, or a type");
  const pickle_value_t *more = &of[least];
  if (arguments->count > least && more->kind != PICKLE_NONE &&
      (more->kind != PICKLE_DICT || *container_count(machine, more) > 0))
    return refuse(machine, "a tensor with marks of its own, such as a conjugate or negative view");
  const pickle_storage_t *storage =
      (const pickle_storage_t *)(const void *)machine->storages.data + of[0].number;
  pickle_tensor_t tensor = {.storage = of[0].number,
                            .type = typed ? known_names[of[6].number].type : storage->type,
                            .element_bytes =
                                typed ? known_names[of[6].number].bytes : storage->element_bytes,
                            .offset = (size_t)of[1].number};
  int code = read_shape(machine, &of[2], &of[3], storage->bytes / tensor.element_bytes, &tensor);
  if (code == 0) code = keep(machine, &machine->tensors, &tensor, sizeof tensor);
  if (code != 0) return code;
  return push(machine, PICKLE_TENSOR, (int64_t)(machine->tensors.length / sizeof tensor) - 1, 0);
}

/* ---- calls, which only these are ---- */

static int push_called(pickle_t *machine) {
  const pickle_value_t *call = top(machine, 2);
  if (call == NULL) return too_few(machine);
  const pickle_value_t called = call[0], arguments = call[1];
  if (called.kind != PICKLE_NAME || arguments.kind != PICKLE_TUPLE)
    return refuse(machine, "a call of %s with %s", pickle_kind_name(called.kind),
                  pickle_kind_name(arguments.kind));
  drop(machine, 2);
  const struct known_name *row = &known_names[called.number];
  const pickle_value_t *of = values(&machine->items) + arguments.number;
  switch (row->role) {
  case ROLE_DICT:
    if (arguments.count == 0) return push_container(machine, PICKLE_DICT);
    return refuse(machine, "a dictionary made of %u values", arguments.count);
  case ROLE_TENSOR: return push_tensor(machine, &arguments, false);
  case ROLE_TYPED_TENSOR: return push_tensor(machine, &arguments, true);
  case ROLE_PARAMETER:
    if (arguments.count == 3 && of[0].kind == PICKLE_TENSOR)
      return push(machine, PICKLE_TENSOR, of[0].number, 0);
    return refuse(machine, "a parameter that is made of no tensor");
  case ROLE_STORAGE:
  case ROLE_TYPE: break;
  }
  return refuse(machine, "a call of %s.%s, which is none", row->module, row->name);
}

/* The attributes of a dictionary: torch keeps the versions of its modules there. */
static int take_attributes(pickle_t *machine) {
  const pickle_value_t *of = top(machine, 2);
  if (of == NULL) return too_few(machine);
  if (of[0].kind != PICKLE_DICT || of[1].kind != PICKLE_DICT)
    return refuse(machine, "attributes of %s", pickle_kind_name(of[0].kind));
  drop(machine, 1);
  return 0;
}

static int read_protocol(pickle_t *machine) {
  uint64_t protocol;
  if (!carried_number(machine, 1, &protocol)) return ends_early(machine);
  if (protocol == 2 || protocol == 3) return 0;
  return refuse(machine, "protocol %d, read are 2 (torch's own) and 3", (int)protocol);
}

static int run_one(pickle_t *machine, uint8_t opcode) {
  switch (opcode) {
  case 0x80: return read_protocol(machine);
  case '(': return push(machine, PICKLE_MARK, 0, 0);
  case 'N': return push(machine, PICKLE_NONE, 0, 0);
  case 0x88: return push(machine, PICKLE_BOOL, 1, 0);
  case 0x89: return push(machine, PICKLE_BOOL, 0, 0);
  case 'K': return push_integer(machine, 1, false);
  case 'M': return push_integer(machine, 2, false);
  case 'J': return push_integer(machine, 4, true);
  case 0x8A: return push_long(machine);
  case 'G':
    return carried(machine, 8) == NULL ? ends_early(machine) : push(machine, PICKLE_FLOAT, 0, 0);
  case 'X': return push_text(machine);
  case 'c': return push_name(machine);
  case ')': return push_tuple(machine, 0);
  case 0x85: return push_tuple(machine, 1);
  case 0x86: return push_tuple(machine, 2);
  case 0x87: return push_tuple(machine, 3);
  case ']': return push_container(machine, PICKLE_LIST);
  case '}': return push_container(machine, PICKLE_DICT);
  case 'a': return fill(machine, PICKLE_LIST, 1);
  case 's': return fill(machine, PICKLE_DICT, 2);
  case 'e': return fill_from_mark(machine, PICKLE_LIST);
  case 'u': return fill_from_mark(machine, PICKLE_DICT);
  case 'q': return put_memo(machine, 1);
  case 'r': return put_memo(machine, 4);
  case 'h': return get_memo(machine, 1);
  case 'j': return get_memo(machine, 4);
  case 'Q': return push_storage(machine);
  case 'R': return push_called(machine);
  case 'b': return take_attributes(machine);
  case 't': {
    size_t count;
    return take_mark(machine, &count) ? push_tuple(machine, count) : too_few(machine);
  }
  default: return refuse(machine, "opcode 0x%02x, which a file of tensors does not need", opcode);
  }
}

int pickle_run(pickle_t *machine, pickle_value_t *out) {
  buffer_clear(&machine->stack);
  buffer_clear(&machine->memo);
  /* so that the addresses of no values at all are addresses */
  if (!buffer_reserve(&machine->stack, 1) || !buffer_reserve(&machine->items, 1))
    return no_memory(machine);
  for (;;) {
    const uint8_t *opcode = carried(machine, 1);
    if (opcode == NULL) return ends_early(machine);
    if (*opcode == '.') break;
    int code = run_one(machine, *opcode);
    if (code != 0) return code;
  }
  const pickle_value_t *result = top(machine, 1);
  if (result == NULL || depth(machine) != 1)
    return refuse(machine, "the pickle ends with no single value");
  *out = *result;
  return 0;
}

void pickle_free(pickle_t *machine) {
  buffer_t *const pools[] = {&machine->stack,  &machine->memo,   &machine->items,
                             &machine->nodes,  &machine->counts, &machine->storages,
                             &machine->tensors};
  for (size_t i = 0; i < ARRAY_LEN(pools); i++) buffer_free(pools[i]);
}
