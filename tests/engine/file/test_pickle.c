/* test_pickle.c: programs of the pickle machine, byte by byte. Whole files of torch are in
 * tests/engine/model/source/test_pickled.c.
 */
#include "engine/file/pickle.h"
#include "tests/expect.h"
#include "tests/heap.h"

#include <stdlib.h>
#include <string.h>

TestSuite(pickle, .timeout = 60);

#define FLOATS(count)                                                                              \
  "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                               \
  "0X\3\0\0\0cpuK" count "tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define HOOKS "ccollections\nOrderedDict\n)R"

/* The literal ends in a NUL that is not of the program. */
#define RUN(text, out, error) run((const uint8_t *)(text), sizeof(text) - 1, out, error)

static pickle_t machine;

static int run(const uint8_t *data, size_t size, pickle_value_t *out, inferd_error_t *error) {
  *error = (inferd_error_t){0};
  pickle_free(&machine);
  /* its own memory, so that the sanitizer sees a read behind the program */
  static uint8_t *copy;
  free(copy);
  copy = malloc(size);
  cr_assert_not_null(copy);
  memcpy(copy, data, size);
  machine = (pickle_t){.data = copy, .size = size, .path = "a.bin", .error = error};
  return pickle_run(&machine, out);
}

static void expect_refused(const uint8_t *data, size_t size, const char *part) {
  pickle_value_t value;
  inferd_error_t error;
  ASSERT_EQ_FOR(run(data, size, &value, &error), ERR_MODEL_MALFORMED, "%s", part);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
  cr_assert_not_null(strstr(error.message, "a.bin"), "no file in \"%s\"", error.message);
}

#define EXPECT_REFUSED(text, part) expect_refused((const uint8_t *)(text), sizeof(text) - 1, part)

static int64_t number_of(const uint8_t *data, size_t size) {
  pickle_value_t value;
  inferd_error_t error;
  ASSERT_EQ_FOR(run(data, size, &value, &error), 0, "%s", error.message);
  ASSERT_EQ(value.kind, PICKLE_INT);
  return value.number;
}

#define NUMBER(text) number_of((const uint8_t *)(text), sizeof(text) - 1)

Test(pickle, numbers_have_the_sign_and_width_of_python) {
  ASSERT_EQ(NUMBER("K\xFF."), 255);
  ASSERT_EQ(NUMBER("M\xFF\xFF."), 65535);
  ASSERT_EQ(NUMBER("J\xFF\xFF\xFF\xFF."), -1);
  ASSERT_EQ(NUMBER("J\xFF\xFF\xFF\x7F."), INT32_MAX);
  ASSERT_EQ(NUMBER("\x8A\0."), 0);
  ASSERT_EQ(NUMBER("\x8A\1\xFF."), -1);
  ASSERT_EQ(NUMBER("\x8A\5\0\0\0\0\1."), INT64_C(1) << 32);
  ASSERT_EQ(NUMBER("\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F."), INT64_MAX);
  EXPECT_REFUSED("\x8A\x09\0\0\0\0\0\0\0\0\1.", "a number of 9 bytes");
}

Test(pickle, a_tensor_of_torch) {
  pickle_value_t value;
  inferd_error_t error;
  int code = RUN("\x80\2" REBUILD "(" FLOATS("\x06") "K\1K\2K\2\x86K\2K\1\x86\x89" HOOKS "tR.",
                 &value, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  ASSERT_EQ(value.kind, PICKLE_TENSOR);
  const pickle_tensor_t *tensor = &pickle_tensors(&machine)[value.number];
  cr_assert_str_eq(tensor->type, "F32");
  ASSERT_EQ(tensor->rank, 2);
  ASSERT_EQ(tensor->elements, 4);
  ASSERT_EQ(tensor->offset, 1);
}

/* Offset 1, shape (2, 2), strides (2, 1): the last element is at 4, so five are enough. */
Test(pickle, a_tensor_ends_with_its_storage) {
  pickle_value_t value;
  inferd_error_t error;
#define SHAPED(count) REBUILD "(" FLOATS(count) "K\1K\2K\2\x86K\2K\1\x86\x89" HOOKS "tR."
  ASSERT_EQ_FOR(RUN(SHAPED("\x06"), &value, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(RUN(SHAPED("\x05"), &value, &error), 0, "%s", error.message);
  EXPECT_REFUSED(SHAPED("\x04"), "the storage has 4 elements");
  EXPECT_REFUSED(SHAPED("\0"), "the storage has 0 elements");
}

Test(pickle, a_tensor_is_no_larger_than_its_storage) {
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "K\0K\7\x85K\0\x85\x89" HOOKS "tR.", "repeats it");
  EXPECT_REFUSED(REBUILD
                 "(" FLOATS("\x06") "K\0\x8A\5\0\0\0\0\1\x8A\5\0\0\0\0\1\x86K\0K\0\x86\x89" HOOKS
                                    "tR.",
                 "repeats it");
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "K\0K\2\x85\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"
                                            "\x85\x89" HOOKS "tR.",
                 "reaches behind");
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FK\2\x85K\1"
                                            "\x85\x89" HOOKS "tR.",
                 "reaches behind");
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "K\0J\xFF\xFF\xFF\xFF\x85K\1\x85\x89" HOOKS "tR.",
                 "dimension 0");
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "K\0K\2\x85J\xFF\xFF\xFF\xFF\x85\x89" HOOKS "tR.",
                 "dimension 0");
  EXPECT_REFUSED(REBUILD "(" FLOATS("\x06") "J\xFF\xFF\xFF\xFFK\2\x85K\1\x85\x89" HOOKS "tR.",
                 "a place in it");
}

Test(pickle, names_that_run_code_are_named) {
  EXPECT_REFUSED("cos\nsystem\n(X\4\0\0\0truetR.", "it names os.system");
  EXPECT_REFUSED("cbuiltins\neval\n)R.", "it names builtins.eval");
  EXPECT_REFUSED("c__builtin__\nexec\n.", "__builtin__.exec");
  EXPECT_REFUSED("ctorch\nload\n.", "torch.load");
  EXPECT_REFUSED("ctorch._utils\n_rebuild_tensor\n.", "torch._utils._rebuild_tensor,");
  EXPECT_REFUSED("ccollections\nOrderedDic\n.", "collections.OrderedDic,");
  EXPECT_REFUSED("ccollections\nOrderedDictX\n.", "collections.OrderedDictX,");
  EXPECT_REFUSED("ccollections.\nOrderedDict\n.", "collections..OrderedDict,");
  EXPECT_REFUSED("c\n\n.", "it names .,");
  EXPECT_REFUSED("ios\nsystem\n.", "opcode 0x69");
  EXPECT_REFUSED("X\2\0\0\0osX\6\0\0\0system\x93.", "opcode 0x93");
  EXPECT_REFUSED("(K\1os\nsystem\n.", "opcode 0x6f");
  EXPECT_REFUSED(")c\x1B[2J\nx\n.", "it names ?[2J.x");
}

/* A row of the table is no licence to call it. */
Test(pickle, known_names_are_called_as_torch_does) {
  EXPECT_REFUSED("ctorch\nFloatStorage\n)R.", "a call of torch.FloatStorage");
  EXPECT_REFUSED("ctorch\nuint16\n)R.", "a call of torch.uint16");
  EXPECT_REFUSED("ccollections\nOrderedDict\n]\x85R.", "a dictionary made of 1 values");
  EXPECT_REFUSED(REBUILD ")R.", "a tensor made of 0 values");
  EXPECT_REFUSED(REBUILD "(K\0K\0))\x89NtR.", "a tensor without a storage");
  EXPECT_REFUSED("ctorch._utils\n_rebuild_parameter\nN\x89N\x87R.", "made of no tensor");
  EXPECT_REFUSED("ctorch._utils\n_rebuild_parameter\n)R.", "made of no tensor");
  EXPECT_REFUSED("N)R.", "a call of None");
  EXPECT_REFUSED(REBUILD "NR.", "with None");
  EXPECT_REFUSED("N}b.", "attributes of None");
  EXPECT_REFUSED("}Nb.", "attributes of a dictionary");
}

Test(pickle, storages_are_five_values) {
  EXPECT_REFUSED("NQ.", "is no storage");
  EXPECT_REFUSED(")Q.", "is no storage");
  EXPECT_REFUSED("(X\6\0\0\0modulectorch\nFloatStorage\nX\1\0\0\0"
                 "0X\3\0\0\0cpuK\1tQ.",
                 "is no storage");
  EXPECT_REFUSED("(X\7\0\0\0storageccollections\nOrderedDict\nX\1\0\0\0"
                 "0X\3\0\0\0cpuK\1tQ.",
                 "is no storage");
  EXPECT_REFUSED("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                 "0X\3\0\0\0cpuJ\xFF\xFF\xFF\xFFtQ.",
                 "is no storage");
  EXPECT_REFUSED("(X\7\0\0\0storagectorch\nDoubleStorage\nX\1\0\0\0"
                 "0X\3\0\0\0cpu"
                 "\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FtQ.",
                 "a storage of 9223372036854775807 elements");
  EXPECT_REFUSED("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                 "0X\3\0\0\0cpuK\1)tQ.",
                 "a view of a storage");
}

Test(pickle, the_stack_never_underflows) {
  static const char opcodes[] = "tQRbsuaehj\x85\x86\x87";
  for (size_t i = 0; i < sizeof opcodes - 1; i++) {
    for (int below = 0; below < 3; below++) { /* nothing, a mark, a value */
      uint8_t program[8] = {0};
      size_t size = 0;
      pickle_value_t value;
      inferd_error_t error;
      if (below > 0) program[size++] = below == 1 ? '(' : 'N';
      program[size++] = (uint8_t)opcodes[i];
      program[size++] = '.';
      const bool good = (below == 1 && opcodes[i] == 't') || (below == 2 && opcodes[i] == '\x85');
      ASSERT_EQ_FOR(run(program, size, &value, &error), good ? 0 : ERR_MODEL_MALFORMED,
                    "opcode %d above %d", opcodes[i], below);
    }
  }
  EXPECT_REFUSED(".", "no single value");
  EXPECT_REFUSED("NN.", "no single value");
  EXPECT_REFUSED("(.", "no single value");
  EXPECT_REFUSED("q\0N.", "needs more values");
}

Test(pickle, the_memo_has_what_was_put_there) {
  pickle_value_t value;
  inferd_error_t error;
  ASSERT_EQ_FOR(RUN("K\7q\3r\4\0\0\0h\3j\4\0\0\0\x87.", &value, &error), 0, "%s", error.message);
  const pickle_value_t *items = (const pickle_value_t *)(const void *)machine.items.data;
  for (int i = 0; i < 3; i++) ASSERT_EQ(items[value.number + i].number, 7);
  EXPECT_REFUSED("h\0.", "place 0 of the memo is empty");
  EXPECT_REFUSED("Nq\2h\1.", "place 1 of the memo is empty");
  EXPECT_REFUSED("Nr\xFF\xFF\xFF\xFFh\0.", "values");
}

/* Whatever is cut off, the reading ends with a sentence and knows that more bytes could help. */
Test(pickle, a_program_may_end_anywhere) {
  static const char text[] =
      "\x80\2}X\1\0\0\0a" REBUILD
      "(" FLOATS("\x06") "K\1K\2K\2\x86K\2K\1\x86\x89" HOOKS
                         "tRq\1r\0\0\1\0G\0\0\0\0\0\0\0\0\x8A\2\0\0M\0\0J\0\0\0\0.";
  for (size_t size = 1; size < sizeof text - 1; size++) {
    pickle_value_t value;
    inferd_error_t error;
    ASSERT_EQ(run((const uint8_t *)text, size, &value, &error), ERR_MODEL_MALFORMED);
    ASSERT_EQ_FOR(machine.is_cut, true, "%zu bytes: %s", size, error.message);
  }
}

Test(pickle, other_protocols_are_named) {
  EXPECT_REFUSED("\x80\4N.", "protocol 4");
  EXPECT_REFUSED("\x80\0N.", "protocol 0");
  EXPECT_REFUSED("\x95\0\0\0\0\0\0\0\0N.", "opcode 0x95");
}

/* Memory follows the length of the program, whatever its numbers say. */
Test(pickle, memory_is_bounded_by_the_program) {
  heap_restart();
  EXPECT_REFUSED("X\xFF\xFF\xFF\xFFx.", "cut off");
  EXPECT_REFUSED("\x8A\xFFx.", "a number of 255 bytes");
  ASSERT_LE(heap_asked(), (size_t)16 << 10);
}
