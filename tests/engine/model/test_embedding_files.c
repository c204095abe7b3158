/* test_embedding_files.c: what modules.json and its kin say, in older and newer spellings, and what
 * of it is refused by name. */
#include "engine/model/config/embedding.h"
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TYPE(class) "{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"" class "\"}"
#define POOLING(path)                                                                              \
  "{\"idx\":1,\"name\":\"1\",\"path\":\"" path                                                     \
  "\",\"type\":\"sentence_transformers.models.Pooling\"}"
static const char whole[] = "[" TYPE("sentence_transformers.models.Transformer") "," POOLING(
    "1_Pooling") "," TYPE("sentence_transformers.models.Normalize") "]";
static const char newer[] = "[" TYPE(
    "sentence_transformers.base.modules.transformer.Transformer") ","
                                                                  "{\"path\":\"1_Pooling\","
                                                                  "\"type\":\"sentence_"
                                                                  "transformers.sentence_"
                                                                  "transformer.modules.pooling."
                                                                  "Pooling\"}]";

/* Files of one directory; NULL = the file is not there. */
typedef struct files {
  const char *modules, *pooling, *bert, *config;
} files_t;

static int read_files(const files_t *files, embedding_files_t *out, inferd_error_t *error) {
  const char *const names[] = {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
                               "config.json"};
  const char *const texts[] = {files->modules, files->pooling, files->bert, files->config};
  maker_t maker;
  char path[128];
  maker_open(&maker);
  snprintf(path, sizeof path, "%s/1_Pooling", maker.dir);
  ASSERT_EQ(mkdir(path, 0700), 0);
  for (int i = 0; i < 4; i++)
    if (texts[i] != NULL) maker_write_file(&maker, names[i], texts[i], strlen(texts[i]));
  int code = embedding_read(maker.dir, out, error);
  snprintf(path, sizeof path, "%s/1_Pooling/config.json", maker.dir);
  unlink(path);
  maker_close(&maker);
  return code;
}

Test(embedding_files, poolings_by_their_spellings) {
  const struct {
    files_t files;
    bool found, normalises;
    pooling_t pooling;
  } cases[] = {
      {{0}, false, true, POOLING_LAST},
      {{.modules = "[]"}, false, true, POOLING_LAST},
      {{whole, "{\"pooling_mode_lasttoken\":true}", 0, 0}, true, true, POOLING_LAST},
      {{whole, "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}", 0, 0},
       true,
       true,
       POOLING_MEAN},
      {{whole, "{\"pooling_mode_cls_token\":true}", 0, 0}, true, true, POOLING_CLS},
      {{whole, "{\"word_embedding_dimension\":64}", 0, 0}, true, true, POOLING_MEAN},
      {{whole, NULL, 0, 0}, true, true, POOLING_MEAN},
      {{newer, "{\"pooling_mode\":\"lasttoken\"}", 0, 0}, true, false, POOLING_LAST},
      {{newer, "{\"pooling_mode\":[\"mean\"]}", 0, 0}, true, false, POOLING_MEAN},
      {{newer, "{\"pooling_mode\":\"cls\",\"include_prompt\":false}", 0, 0},
       true,
       false,
       POOLING_CLS},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    embedding_files_t out;
    inferd_error_t error = {0};
    ASSERT_EQ_FOR(read_files(&cases[i].files, &out, &error), 0, "case %zu: %s", i, error.message);
    ASSERT_EQ_FOR(out.found, cases[i].found, "case %zu", i);
    ASSERT_EQ_FOR(out.info.pooling, cases[i].pooling, "case %zu", i);
    ASSERT_EQ_FOR(out.info.normalises, cases[i].normalises, "case %zu", i);
    ASSERT_EQ(out.max_tokens, 0);
    cr_assert_not(out.info.matryoshka);
  }
}

Test(embedding_files, limits_and_sizes) {
  embedding_files_t out;
  inferd_error_t error = {0};
  files_t files = {whole, NULL, "{\"max_seq_length\":512,\"do_lower_case\":false}",
                   "{\"matryoshka_dimensions\":[32,64]}"};
  ASSERT_EQ_FOR(read_files(&files, &out, &error), 0, "%s", error.message);
  ASSERT_EQ(out.max_tokens, 512);
  cr_assert(out.info.matryoshka);
  ASSERT_EQ(out.info.num_sizes, 2);
  ASSERT_EQ(out.info.sizes[1], 64);
  files = (files_t){whole, NULL, "{\"max_seq_length\":null}", "{\"is_matryoshka\":true}"};
  ASSERT_EQ_FOR(read_files(&files, &out, &error), 0, "%s", error.message);
  ASSERT_EQ(out.max_tokens, 0);
  cr_assert(out.info.matryoshka);
  ASSERT_EQ(out.info.num_sizes, 0);
}

Test(embedding_files, what_changes_vectors_is_refused_by_name) {
  const struct {
    files_t files;
    const char *text;
  } cases[] = {
      {{.modules = "{}"}, "modules.json: must be a JSON array, found an object"},
      {{.modules = "[" TYPE("sentence_transformers.models.LayerNorm") "]"},
       "\"type\" is \"sentence_transformers.models.LayerNorm\", supported: Transformer, Pooling, "
       "Dense, Normalize"},
      {{.modules = "[" TYPE("sentence_transformers.models.Dense") "]"},
       "a directory below the model's"},
      {{.modules = "[{\"type\":\"x.Dense\",\"path\":\"2_Dense\"}," POOLING("1_Pooling") "]"},
       "at most 4 Dense, behind the Pooling"},
      {{.modules = "[" POOLING("1_Pooling") ",{\"type\":\"x.Dense\",\"path\":\"2_Dense\"}]"},
       "a directory with the config.json of a Dense"},
      {{.modules = "[1]"}, "Transformer, Pooling, Dense, Normalize"},
      {{.modules = "[" POOLING("1_Pooling") "," POOLING("1_Pooling") "]"}, "one Pooling"},
      {{.modules = "[" POOLING("../other") "]"}, "a directory below the model's"},
      {{.modules = "[" POOLING("/etc") "]"}, "a directory below the model's"},
      {{.modules = whole,
        .pooling = "{\"pooling_mode_max_tokens\":true,\"pooling_mode_lasttoken\":true}"},
       "\"pooling_mode_max_tokens\" is true, supported: one of lasttoken, mean, cls"},
      {{.modules = whole,
        .pooling = "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":true}"},
       "supported: one of"},
      {{.modules = newer, .pooling = "{\"pooling_mode\":\"largest\"}"}, "supported: one of"},
      {{.modules = newer, .pooling = "{\"pooling_mode\":[\"mean\",\"cls\"]}"}, "supported: one of"},
      {{.modules = newer, .pooling = "{\"pooling_mode\":7}"}, "supported: one of"},
      {{.modules = newer, .pooling = "{\"pooling_mode\":\"mean\",\"include_prompt\":false}"},
       "\"include_prompt\" is false"},
      {{.modules = whole, .bert = "{\"do_lower_case\":true}"}, "\"do_lower_case\" is true"},
      {{.modules = whole, .bert = "{\"max_seq_length\":0}"}, "\"max_seq_length\" is 0"},
      {{.config = "{\"matryoshka_dimensions\":[0]}"}, "\"matryoshka_dimensions\" is 0"},
      {{.config = "{\"matryoshka_dimensions\":3}"}, "a list of at most 64 sizes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    embedding_files_t out;
    inferd_error_t error = {0};
    ASSERT_EQ_FOR(read_files(&cases[i].files, &out, &error), ERR_MODEL_MALFORMED, "case %zu", i);
    cr_assert(strstr(error.message, cases[i].text) != NULL, "case %zu: %s", i, error.message);
  }
}
