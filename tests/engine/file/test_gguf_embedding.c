/* test_gguf_embedding.c: the pooling that a GGUF file names. */
#include "engine/model/config/embedding.h"
#include "tests/engine/file/gguf_maker.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <string.h>

Test(gguf_embedding, poolings_are_numbers) {
  static const pooling_t poolings[] = {POOLING_LAST, POOLING_MEAN, POOLING_CLS, POOLING_LAST};
  for (uint64_t number = 0; number <= 4; number++) {
    embedding_files_t out;
    inferd_error_t error = {0};
    gguf_maker_t maker;
    gguf_maker_open(&maker);
    gguf_maker_text(&maker, "general.architecture", "qwen3");
    gguf_maker_number(&maker, "qwen3.pooling_type", GGUF_U32, number);
    int code = embedding_read(gguf_maker_write(&maker, "model.gguf"), &out, &error);
    if (number == 4) {
      ASSERT_EQ(code, ERR_MODEL_MALFORMED);
      cr_assert(strstr(error.message,
                       "qwen3.pooling_type is 4 (rank), but the file has no classifier") != NULL,
                "%s", error.message);
    } else {
      ASSERT_EQ_FOR(code, 0, "%s", error.message);
      ASSERT_EQ(out.found, number > 0);
      ASSERT_EQ(out.info.pooling, poolings[number]);
      cr_assert(out.info.normalises);
    }
    gguf_maker_close(&maker);
  }
}
