/* test_arrays.c: items that are unique, and items that are counted. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

Test(arrays, no_value_comes_twice) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true}",
       {"[]", "[\"b\"]", "[\"c\", \"a\"]", "[ \"b\",\"a\",\"c\" ]"},
       {"[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]", "[\"d\"]", "[\"a\",\"b\",\"c\",\"a\"]", "1"}},
      {"{\"items\":{\"type\":[\"boolean\",\"null\"]},\"uniqueItems\":true}",
       {"3", "[true,false,null]", "[null]"},
       {"[true,true]", "[null,false,null]", "[0]"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-1,\"maximum\":2},"
       "\"uniqueItems\":true,\"minItems\":2,\"maxItems\":3}",
       {"[-1,2]", "[0,1,2]"},
       {"[0]", "[0,0]", "[-1,0,1,2]", "[3,0]", "[]"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"exclusiveMinimum\":0,"
       "\"exclusiveMaximum\":50,\"multipleOf\":10},\"uniqueItems\":true}",
       {"[10,20,30,40]"},
       {"[10,10]", "[50]", "[0]"}},
      {"{\"type\":\"array\",\"items\":{\"anyOf\":[{\"const\":\"x\"},{\"type\":\"boolean\"},"
       "{\"enum\":[1,2]}]},\"uniqueItems\":true}",
       {"[\"x\",true,1,false,2]"},
       {"[1,1]", "[\"x\",\"x\"]", "[3]"}},
      /* one value has two spellings, and a schema beside the list takes some away */
      {"{\"type\":\"array\",\"items\":{\"enum\":[1,1.0,1e0,\"1\",\"aa\",\"b\"],\"maxLength\":1},"
       "\"uniqueItems\":true}",
       {"[1,\"1\",\"b\"]"},
       {"[1,1]", "[\"aa\"]", "[1,1.0]"}},
      {"{\"type\":\"array\",\"items\":{\"enum\":[[1],{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]},"
       "\"uniqueItems\":true}",
       {"[[1],{\"a\":1,\"b\":2}]"},
       {"[[1],[1]]", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"}},
      {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d\"},\"uniqueItems\":true,"
       "\"$defs\":{\"d\":{\"oneOf\":[{\"enum\":[1,2,3]},{\"enum\":[3,4]}]}}}",
       {"[4,1,2]"},
       {"[3]", "[4,4]"}},
      {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true,\"minItems\":3}",
       {"[3,1,2]"},
       {"[1,2]", "[1,2,2]"}},
      /* what has no second item cannot repeat one */
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":false,"
       "\"uniqueItems\":true}",
       {"[]", "[\"abc\"]"},
       {"[\"a\",\"a\"]"}},
      {"{\"type\":\"array\",\"items\":false,\"uniqueItems\":true}", {"[]"}, {"[1]"}},
  };
  CHECK_ROWS(rows);
}

Test(arrays, sixteen_values) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":15},"
       "\"uniqueItems\":true,\"minItems\":15}",
       {"[15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,0]", "[1,10,0,2,3,4,5,6,7,8,9,11,12,13,14]"},
       {"[1,1]", "[15,14,13,12,11,10,9,8,7,6,5,4,3,2,1,1]", "[1,2,3,4,5,6,7,8,9,11,12,13,14]"}}};
  CHECK_ROWS(rows);
}

Test(arrays, values_are_kept_for_later_items) {
  static const row_t rows[] = {
      /* the second item has to be 1, so the first is not */
      {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,2]},{\"const\":1}],\"items\":{\"enum\":["
       "2,3]},\"uniqueItems\":true,\"minItems\":2}",
       {"[2,1]", "[2,1,3]"},
       {"[1", "[2,3", "[2,1,2"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,2]},{\"const\":1}],\"items\":{\"enum\":["
       "2,3]},\"uniqueItems\":true}",
       {"[]", "[1]", "[2,1]", "[2,1,3]"},
       {"[1,", "[2,1,2"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"array\",\"items\":["
       "{\"type\":\"boolean\"},{\"type\":\"boolean\"}],\"additionalItems\":{\"type\":\"null\"},"
       "\"uniqueItems\":true,\"minItems\":3}",
       {"[true,false,null]"},
       {"[true,true", "[true,false]", "[true,false,null,null]"}},
  };
  CHECK_ROWS(rows);
}

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

Test(arrays, counted_items_of_unique_ones) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,\"a\"]},\"uniqueItems\":true,"
       "\"contains\":{\"type\":\"integer\"},\"minContains\":2,\"maxItems\":3}",
       {"[1,2]", "[\"a\",3,1]"},
       {"[1]", "[\"a\",1]", "[1,1]", "[]"}},
      {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,\"a\"]},\"uniqueItems\":true,"
       "\"contains\":{\"minimum\":2,\"type\":\"integer\"},\"maxContains\":1,\"minItems\":3}",
       {"[1,\"a\",2]", "[3,\"a\",1]"},
       {"[2,3", "[1,\"a\"]", "[2,1,3"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"maxItems\":1,"
       "\"contains\":{\"const\":\"a\"}}",
       {"[\"a\"]"},
       {"[]", "[\"b\"]", "[\"a\",\"a\"]"}},
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
Test(arrays, items_that_must_not_all_hold) {
  static const row_t rows[] = {
      {"{\"not\":{\"items\":{\"type\":\"integer\"}}}",
       {"[\"a\"]", "[1,\"a\"]", "[\"a\",1]", "[1,null,2]"},
       {"[]", "[1]", "[1,2]", "{}", "3"}},
      {"{\"type\":\"array\",\"maxItems\":2,\"not\":{\"items\":{\"const\":1}}}",
       {"[2]", "[1,2]", "[2,1]"},
       {"[]", "[1]", "[1,1]", "[1,1,2]"}},
      {"{\"type\":\"array\",\"maxItems\":0,\"anyOf\":[{\"not\":{\"items\":{\"const\":1}}},true]}",
       {"[]"},
       {"[2]"}},
      {"{\"not\":{\"prefixItems\":[{\"const\":1},{\"const\":2}]}}",
       {"[2]", "[1,1]", "[3,2,9]"},
       {"[]", "[1]", "[1,2]", "[1,2,9]", "null"}},
      {"{\"not\":{\"prefixItems\":[{\"const\":1}],\"items\":{\"type\":\"integer\"}}}",
       {"[2]", "[1,\"a\"]", "[1,2,\"a\"]", "[\"a\",1]"},
       {"[]", "[1]", "[1,2,3]"}},
      {"{\"not\":{\"prefixItems\":[true],\"items\":false}}", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/"
       "schema#\",\"not\":{\"items\":[{\"const\":1}],"
       "\"additionalItems\":{\"const\":2}}}",
       {"[2]", "[1,1]", "[1,2,1]"},
       {"[]", "[1]", "[1,2]", "[1,2,2]"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"not\":{\"items\":{\"const\":1},"
       "\"additionalItems\":false}}",
       {"[2]", "[1,2]"},
       {"[]", "[1,1]"}},
      {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2,3]},\"not\":{\"items\":{"
       "\"enum\":[1,2]}}}",
       {"[3]", "[1,3]", "[3,2,1]"},
       {"[]", "[1,2]", "[3,3]"}},
      {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":\"array\","
       "\"items\":{\"type\":\"number\"}}]}",
       {"[1.5]", "[1,1.5]"},
       {"[]", "[1]", "[\"a\"]"}},
  };
  CHECK_ROWS(rows);
}

Test(arrays, random_texts_end) {
  static const char *const schemas[] = {
      "{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,2,3]},{\"enum\":[1,2]},{\"const\":1}],"
      "\"items\":{\"enum\":[2,3,4,5]},\"uniqueItems\":true,\"minItems\":5}",
      "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,\"a\",\"b\"]},\"uniqueItems\":true,"
      "\"contains\":{\"type\":\"integer\"},\"maxContains\":1,\"minItems\":3}",
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
