/* test_workload.c: request bodies are functions of seed and index, with the prefix that was asked
 * for.
 */
#include "server/bench/workload.c"
#include "tests/expect.h"

#include <cjson/cJSON.h>

static const bench_options_t options = {.input_len = 20,
                                        .prefix_len = 12,
                                        .output_len = 5,
                                        .first_id = 300,
                                        .vocab_size = 320,
                                        .stream = true,
                                        .seed = 4};

static cJSON *body_of(const bench_options_t *o, int index) {
  char *text = bench_body(o, "a \"name\\", index);
  cJSON *body = cJSON_Parse(text);
  cr_assert_not_null(body, "%s", text);
  free(text);
  return body;
}

static int id_at(const cJSON *body, int i) {
  return cJSON_GetArrayItem(cJSON_GetObjectItem(body, "prompt"), i)->valueint;
}

Test(workload, ids_are_in_range_and_the_prefix_is_shared) {
  cJSON *a = body_of(&options, 0), *b = body_of(&options, 1);
  ASSERT_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(a, "prompt")), 20);
  int same = 0;
  for (int i = 0; i < 20; i++) {
    ASSERT_GE(id_at(a, i), 300);
    ASSERT_LT(id_at(a, i), 320);
    if (i < 12) {
      ASSERT_EQ(id_at(a, i), id_at(b, i));
    } else {
      same += id_at(a, i) == id_at(b, i);
    }
  }
  ASSERT_LT(same, 8);
  ASSERT_STR_EQ(cJSON_GetObjectItem(a, "model")->valuestring, "a \"name\\");
  ASSERT_EQ(cJSON_GetObjectItem(a, "max_tokens")->valueint, 5);
  cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(a, "stream")));
  cJSON_Delete(a);
  cJSON_Delete(b);
}

Test(workload, the_same_seed_gives_the_same_body_and_another_one_another) {
  bench_options_t other = options;
  other.seed = 5;
  char *a = bench_body(&options, NULL, 3), *b = bench_body(&options, NULL, 3);
  char *c = bench_body(&other, NULL, 3);
  ASSERT_STR_EQ(a, b);
  ASSERT_STR_NE(a, c);
  cr_assert_null(strstr(a, "model"));
  free(a), free(b), free(c);
}

Test(workload, words_when_ids_are_not_understood) {
  bench_options_t o = options;
  o.text_prompts = true;
  o.stream = false;
  cJSON *a = body_of(&o, 0);
  const char *text = cJSON_GetObjectItem(a, "prompt")->valuestring;
  int spaces = 0;
  for (const char *p = text; *p; p++) spaces += *p == ' ';
  ASSERT_EQ(spaces, 19);
  cr_assert_null(cJSON_GetObjectItem(a, "stream"));
  cJSON_Delete(a);
}

Test(workload, uniform_numbers_fill_the_unit_interval) {
  uint64_t state = 9;
  double sum = 0;
  for (int i = 0; i < 10000; i++) {
    double u = bench_uniform(&state);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  cr_assert_float_eq(sum / 10000, 0.5, 0.02);
}
