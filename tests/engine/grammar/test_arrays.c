/* test_arrays.c: items that are counted. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

Test(arrays, some_item_satisfies_a_schema) {
  static const row_t rows[] = {
      {"{\"contains\":{\"const\":1}}",
       {"3", "{}", "[1]", "[0,1]", "[1,\"a\",1]"},
       {"[]", "[0]", "[\"1\",[1]]"}},
      {"{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"null\"]},"
       "\"contains\":{\"pattern\":\"^a\",\"type\":\"string\"},\"maxItems\":3}",
       {"[\"ab\"]", "[null,\"b\",\"a\"]"},
       {"[]", "[null,\"b\"]", "[null,null,null,", "[null,null,\"b"}},
      {"{\"type\":\"array\",\"contains\":{\"type\":\"object\",\"required\":[\"id\"]}}",
       {"[{\"id\":1}]", "[{},1,{\"id\":[],\"b\":2}]"},
       {"[]", "[{}]", "[\"id\"]"}},
      {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"minContains\":2}",
       {"[1,2]", "[1,\"a\",2,3]"},
       {"[1]", "[1,\"a\"]", "[]"}},
      {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"maxContains\":1}",
       {"[1]", "[\"a\",1,\"b\"]"},
       {"[1,2", "[]", "[\"a\"]"}},
      {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"minContains\":0,"
       "\"maxContains\":1}",
       {"[]", "[\"a\"]", "[\"a\",1]"},
       {"[1,2", "[1,\"a\",2"}},
      {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"minContains\":0}",
       {"[]", "[\"a\"]", "[1,2]"},
       {"1"}},
      {"{\"type\":\"array\",\"minContains\":2,\"maxContains\":1}", {"[]", "[1]"}, {"1"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{}],\"items\":{\"enum\":[1,2]},"
       "\"contains\":{\"const\":1},\"minItems\":3}",
       {"[\"a\",1,2]", "[\"a\",2,1]", "[\"a\",null,2,2,1]"},
       {"[\"a\",1]", "[\"a\",2,2]", "[1"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":false,"
       "\"contains\":{\"const\":\"a\"}}",
       {"[\"a\"]"},
       {"[\"b", "[]", "[\"a\","}},
      /* two of them, which one item may satisfy */
      {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"minimum\":2,\"type\":\"integer\"}},"
       "{\"contains\":{\"maximum\":3,\"type\":\"integer\"},\"maxContains\":2}]}",
       {"[2]", "[1,5]", "[9,9,9,1,1]"},
       {"[1]", "[9]", "[2,2,2", "[]"}},
  };
  CHECK_ROWS(rows);
}

Test(arrays, contains_that_must_not_hold) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"not\":{\"contains\":{\"type\":\"null\"}}}",
       {"[]", "[1,\"a\"]"},
       {"[null]", "[1,null]"}},
      {"{\"not\":{\"contains\":{\"type\":\"null\"},\"minContains\":2,\"maxContains\":3}}",
       {"[]", "[null]", "[1,null,2]", "[null,null,null,null]"},
       {"1", "[null,null]", "[null,1,null,null]"}},
      {"{\"not\":{\"contains\":true}}", {"[]"}, {"[1]", "3"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"if\":{\"contains\":{\"const\":1}},"
       "\"then\":{\"maxItems\":2},\"else\":{\"minItems\":1}}",
       {"[1,2]", "[2,3,4]"},
       {"[]", "[1,2,3]", "[2,3,1]"}},
  };
  CHECK_ROWS(rows);
}

/* A text that was begun can be finished: every mask has a bit until the text ends. */
Test(arrays, random_texts_end) {
  static const char *const schemas[] = {
      "{\"type\":\"array\",\"items\":{\"enum\":[1,12,123]},\"contains\":{\"const\":12},"
      "\"minContains\":2,\"maxItems\":4}",
  };
  rig_t *rig = rig_new();
  uint64_t state = 5;
  for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
    ASSERT_EQ_FOR(rig_schema(rig, schemas[s]), 0, "%s: %s", schemas[s], rig->error.message);
    for (int text = 0; text < 200; text++) {
      int tokens = 0;
      rig_start(rig);
      for (; !grammar_matcher_is_finished(rig->matcher); tokens++) {
        cr_assert(rig_fill(rig), "%s: no token after %d", schemas[s], tokens);
        int32_t id = rig_pick(rig, &state);
        if (id == RIG_STOP) break;
        ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
        cr_assert(tokens < 200, "%s does not end", schemas[s]);
      }
    }
  }
  rig_free(rig);
}
