/* test_logic.c: keywords that combine other keywords, and what they allow and refuse. */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

Test(logic, names_that_occur_together) {
  static const row_t rows[] = {
      {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false,"
       "\"dependentRequired\":{\"a\":[\"b\"]}}",
       {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
       {"{\"a\":1}"}},
      {"{\"properties\":{\"b\":{},\"a\":{}},\"additionalProperties\":false,"
       "\"dependencies\":{\"a\":[\"b\"]}}",
       {"3", "[]", "{}", "{\"b\":1}", "{\"b\":1,\"a\":2}"},
       {"{\"a\":1}"}},
      /* a name that only the condition mentions, and extra members */
      {"{\"dependentRequired\":{\"a\":[\"b\",\"c\"]}}",
       {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2,\"c\":3,\"x\":4,\"y\":5}", "{\"c\":1,\"x\":2}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"x\":2}", "{\"a\":1,\"c\":2}"}},
      {"{\"required\":[\"a\"],\"dependentRequired\":{\"a\":[\"b\"],\"c\":[\"d\"]}}",
       {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{}"}},
      /* the member that must come cannot: so its trigger must not */
      {"{\"properties\":{\"a\":{},\"b\":false},\"dependentRequired\":{\"a\":[\"b\"]}}",
       {"{}", "{\"x\":1}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
      {"{\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]},"
       "\"maxProperties\":1}",
       {"{}", "{\"b\":1}", "{\"x\":1}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"x\":1}", "{\"x\":1,\"y\":1}"}},
      {"{\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":[\"b\"]},"
       "\"minProperties\":2}",
       {"{\"a\":1,\"b\":1}", "{\"b\":1,\"x\":1}", "{\"a\":1,\"b\":1,\"x\":1}"},
       {"{}", "{\"b\":1}", "{\"a\":1,\"x\":1}", "{\"x\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(logic, schemas_that_must_not_hold) {
  static const row_t rows[] = {
      {"{\"not\":{\"type\":\"string\"}}", {"1", "null", "[]", "{}"}, {"\"a\""}},
      {"{\"not\":{\"type\":\"integer\"}}", {"\"1\"", "1.5", "-0.25", "null"}, {"1", "1.0", "1e2"}},
      {"{\"not\":{\"type\":[\"integer\",\"object\",\"array\"]}}",
       {"\"1\"", "1.5"},
       {"1", "{}", "[]"}},
      {"{\"type\":\"string\",\"not\":{\"const\":\"a\"}}",
       {"\"\"", "\"b\"", "\"aa\""},
       {"\"a\"", "\"\\u0061\"", "1"}},
      {"{\"type\":\"string\",\"not\":{\"enum\":[\"ab\",\"a\\\"\",3]},\"maxLength\":2}",
       {"\"a\"", "\"ba\"", "\"3\""},
       {"\"ab\"", "\"a\\\"\"", "\"abc\""}},
      {"{\"type\":\"integer\",\"not\":{\"const\":5}}", {"4", "-5", "50"}, {"5", "5.0"}},
      {"{\"type\":\"number\",\"not\":{\"enum\":[1.50,-2]}}",
       {"1.55", "1", "2", "-2.5"},
       {"1.5", "1.50", "-2", "-2.0", "15e-1"}},
      {"{\"not\":{\"enum\":[null,true]}}", {"false", "1", "\"true\"", "[]"}, {"null", "true"}},
      {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}",
       {"\"\"", "\"ba\""},
       {"\"a\"", "\"ab\""}},
      {"{\"type\":\"string\",\"not\":{\"minLength\":3}}", {"\"\"", "\"ab\""}, {"\"abc\""}},
      {"{\"not\":{\"maxLength\":2}}", {"\"abc\""}, {"\"ab\"", "1", "null", "{}"}},
      {"{\"not\":{\"minimum\":3}}", {"2", "2.9", "-1"}, {"3", "3.1", "\"a\""}},
      {"{\"type\":\"integer\",\"not\":{\"minimum\":3,\"maximum\":5}}", {"2", "6"}, {"3", "4", "5"}},
      {"{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", {"1", "-2", "100"}, {"0", "3", "-99"}},
      {"{\"type\":\"array\",\"not\":{\"minItems\":2}}", {"[]", "[1]"}, {"[1,2]"}},
      {"{\"not\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\"}]}}",
       {"1", "{}"},
       {"null", "[]"}},
      {"{\"type\":\"integer\",\"not\":{\"allOf\":[{\"minimum\":3},{\"multipleOf\":2}]}}",
       {"2", "3", "5"},
       {"4", "6"}},
      {"{\"not\":{\"not\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
      {"{\"type\":\"integer\",\"not\":{\"oneOf\":[{\"minimum\":2},{\"maximum\":4}]}}",
       {"2", "3", "4"},
       {"1", "5"}},
      {"{\"type\":\"integer\",\"not\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"minimum\":3}}}",
       {"2"},
       {"3"}},
      {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\",\"not\":{"
       "\"minimum\":3,\"exclusiveMinimum\":true}}",
       {"3", "2"},
       {"4"}},
      {"{\"enum\":[1,2,\"a\",null],\"not\":{\"enum\":[2,null]}}", {"1", "\"a\""}, {"2", "null"}},
      {"{\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}}}}",
       {"{\"a\":1}", "{\"a\":\"x\",\"b\":2}"},
       {"{}", "{\"a\":null}", "1", "[]"}},
      {"{\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]}}",
       {"{\"a\":1}", "{}", "{\"b\":null}"},
       {"{\"a\":null}", "3"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"properties\":{\"a\":{}},"
       "\"additionalProperties\":false}}",
       {"{\"b\":1}", "{\"a\":1,\"c\":1}", "{\"x\":1,\"y\":2}"},
       {"{}", "{\"a\":1}"}},
  };
  CHECK_ROWS(rows);
}

/* Listed objects and arrays are judged by what stands beside the list, and may be what must not be.
 */
Test(logic, structures_beside_other_keywords) {
  static const row_t rows[] = {
      {"{\"enum\":[{\"a\":1},{\"a\":\"x\"},{},3],\"properties\":{\"a\":{\"type\":\"integer\"}}}",
       {"{\"a\":1}", "{ \"a\": 1 }", "{}", "3"},
       {"{\"a\":\"x\"}", "{\"a\":2}", "{\"a\":1,\"b\":1}", "4"}},
      {"{\"const\":{\"a\":[1,{\"b\":null}],\"c\":2},\"minProperties\":2,\"required\":[\"c\"]}",
       {"{\"a\":[1,{\"b\":null}],\"c\":2}", "{\"c\":2,\"a\":[1,{\"b\":null}]}"},
       {"{\"a\":[1,{\"b\":null}]}", "{\"a\":[1,{\"b\":1}],\"c\":2}", "{\"a\":[1],\"c\":2}"}},
      {"{\"enum\":[[1,2],[1],[],[\"a\"]],\"items\":{\"type\":\"integer\"},\"minItems\":1}",
       {"[1,2]", "[1]"},
       {"[]", "[\"a\"]", "[2]", "[1,2,3]"}},
      {"{\"enum\":[[1,1],[1,2]],\"uniqueItems\":true}", {"[1,2]"}, {"[1,1]", "[1]"}},
      {"{\"allOf\":[{\"enum\":[{\"a\":1},{\"b\":1}]},{\"not\":{\"required\":[\"a\"]}}]}",
       {"{\"b\":1}"},
       {"{\"a\":1}", "{}"}},
      {"{\"allOf\":[{\"enum\":[{\"a\":1},{\"b\":\"s\"}]},{\"not\":{\"additionalProperties\":{"
       "\"type\":\"string\"}}}]}",
       {"{\"a\":1}"},
       {"{\"b\":\"s\"}"}},
      {"{\"not\":{\"enum\":[{\"a\":1},[1,[2]],3]}}",
       {"{}", "{\"a\":2}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "[]", "[1]", "[1,[3]]", "[1,[2],3]",
        "4"},
       {"{\"a\":1}", "[1,[2]]", "3"}},
      {"{\"not\":{\"const\":{}}}", {"{\"a\":1}", "[]", "null"}, {"{}"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"not\":{\"enum\":[[],[1]]}}",
       {"[2]", "[1,1]", "{}"},
       {"[]", "[1]"}},
  };
  CHECK_ROWS(rows);
}

/* Some member must occur that fails. Behind it no name of its kind comes that takes the value back.
 */
Test(logic, members_that_must_fail) {
  static const row_t rows[] = {
      {"{\"not\":{\"patternProperties\":{\"^a\":{\"type\":\"string\"}}}}",
       {"{\"a\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}", "{\"ab\":\"x\",\"a\":2}"},
       {"{}", "{\"a\":\"s\"}", "{\"b\":1}", "{\"ab\":1,\"ab\":\"x\"}", "3"}},
      {"{\"not\":{\"propertyNames\":{\"pattern\":\"^a\"}}}",
       {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2,\"b\":3}"},
       {"{}", "{\"a\":1}", "[]"}},
      {"{\"not\":{\"propertyNames\":false}}", {"{\"a\":1}"}, {"{}", "1"}},
      {"{\"properties\":{\"x\":{\"type\":\"integer\"}},\"not\":{\"additionalProperties\":{"
       "\"type\":\"string\"}}}",
       {"{\"x\":1}", "{\"x\":1,\"y\":\"s\"}", "{\"y\":\"s\",\"z\":1}"},
       {"{}", "{\"y\":\"s\"}", "{\"x\":\"s\",\"z\":1}"}},
      {"{\"not\":{\"properties\":{\"x\":true},\"patternProperties\":{\"^y\":true},"
       "\"additionalProperties\":false}}",
       {"{\"z\":1}", "{\"x\":1,\"y\":1,\"z\":1}"},
       {"{}", "{\"x\":1}", "{\"y\":1,\"y2\":1}"}},
      /* a listed name may be the one */
      {"{\"properties\":{\"ab\":{\"type\":\"integer\"},\"c\":{}},\"additionalProperties\":false,"
       "\"not\":{\"patternProperties\":{\"^a\":{\"minimum\":3}}}}",
       {"{\"ab\":2}", "{\"c\":1,\"ab\":0}"},
       {"{}", "{\"ab\":3}", "{\"c\":1}"}},
      /* two of them: one member or two, in any order */
      {"{\"allOf\":[{\"not\":{\"patternProperties\":{\"a\":false}}},{\"not\":{"
       "\"patternProperties\":{"
       "\"b\":false}}}]}",
       {"{\"ab\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"a\":1}",
        "{\"c\":1,\"b\":1,\"a\":1,\"d\":1}"},
       {"{}", "{\"a\":1}", "{\"b\":1}", "{\"c\":1}"}},
      /* the first would take back what the second must be: it comes before */
      {"{\"additionalProperties\":{\"type\":\"integer\"},\"allOf\":[{\"not\":{"
       "\"patternProperties\":{"
       "\"^a\":{\"minimum\":5}}}},{\"not\":{\"patternProperties\":{\"^[ab]\":{\"maximum\":5}}}}]}",
       {"{\"a\":1,\"b\":9}", "{\"ac\":9,\"ab\":1,\"b\":9}", "{\"a\":9,\"a\":1,\"b\":9}"},
       {"{\"a\":1}", "{\"b\":9}", "{\"a\":9}", "{\"a\":9,\"a\":1}", "{\"b\":9,\"b\":1,\"a\":1}"}},
      {"{\"maxProperties\":1,\"not\":{\"propertyNames\":{\"maxLength\":2}}}",
       {"{\"abc\":1}"},
       {"{}", "{\"ab\":1}", "{\"abc\":1,\"d\":1}", "{\"abc\":1,\"abc\":1}"}},
      {"{\"minProperties\":2,\"properties\":{\"a\":{}},\"not\":{\"propertyNames\":{\"const\":\"a\"}"
       "}}",
       {"{\"a\":1,\"b\":1}"},
       {"{\"a\":1}", "{\"b\":1}", "{}"}},
  };
  CHECK_ROWS(rows);
}

Test(logic, names_that_must_not_be_required) {
  static const row_t rows[] = {
      {"{\"not\":{\"required\":[\"a\"]}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}", "1", "null", "[]"}},
      {"{\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\",\"b\"]}}",
       {"{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"c\":1}"},
       {"{\"a\":1,\"b\":1}", "3"}},
      {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
       {"{\"a\":1}", "{\"b\":1}", "{\"b\":1,\"c\":2}"},
       {"{}", "{\"a\":1,\"b\":1}", "1"}},
      {"{\"type\":\"object\",\"not\":{\"dependentRequired\":{\"a\":[\"b\"]}}}",
       {"{\"a\":1}", "{\"a\":1,\"c\":1}"},
       {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}},
      {"{\"type\":\"object\",\"not\":{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}}",
       {"{}", "{\"c\":1}"},
       {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(logic, conditions) {
  static const row_t rows[] = {
      {"{\"if\":{\"type\":\"string\"},\"then\":{\"maxLength\":1},\"else\":{\"type\":\"null\"}}",
       {"\"a\"", "null"},
       {"\"ab\"", "1"}},
      {"{\"if\":{\"const\":1},\"else\":{\"const\":2}}", {"1", "2"}, {"3"}},
      {"{\"then\":false}", {"1"}, {NULL}},
      {"{\"if\":true,\"then\":{\"type\":\"null\"}}", {"null"}, {"1"}},
      {"{\"if\":false,\"then\":{\"type\":\"null\"},\"else\":{\"type\":\"string\"}}",
       {"\"a\""},
       {"null"}},
      /* the condition holds when the member is absent */
      {"{\"type\":\"object\",\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":["
       "\"b\"]}}",
       {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"a\":2}", "{\"a\":2,\"b\":1}"},
       {"{}", "{\"a\":1}", "{\"c\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"x\",\"y\"]},\"v\":{}},"
       "\"required\":["
       "\"kind\"],\"additionalProperties\":false,"
       "\"allOf\":[{\"if\":{\"properties\":{\"kind\":{\"const\":\"x\"}},\"required\":[\"kind\"]},"
       "\"then\":{\"properties\":{\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"]}},"
       "{\"if\":{\"properties\":{\"kind\":{\"const\":\"y\"}}},"
       "\"then\":{\"properties\":{\"v\":{\"type\":\"string\"}}}}]}",
       {"{\"kind\":\"x\",\"v\":1}", "{\"kind\":\"y\"}", "{\"kind\":\"y\",\"v\":\"a\"}"},
       {"{\"kind\":\"x\"}", "{\"kind\":\"x\",\"v\":\"a\"}", "{\"kind\":\"y\",\"v\":1}",
        "{\"v\":1}"}},
      {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":["
       "\"b\"]}},"
       "\"properties\":{\"a\":{},\"b\":{}}}",
       {"{}", "1", "{\"b\":1}", "{\"a\":1,\"b\":null}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
      {"{\"dependencies\":{\"a\":{\"required\":[\"b\"]},\"c\":[\"d\"]},\"properties\":{\"a\":{},"
       "\"b\":{},"
       "\"c\":{},\"d\":{}}}",
       {"{}", "{\"a\":1,\"b\":1}", "{\"c\":1,\"d\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"},
       {"{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(logic, exactly_one_branch) {
  static const row_t rows[] = {
      {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}", {"1.5", "-0.1"}, {"1", "2.0"}},
      {"{\"type\":\"integer\",\"oneOf\":[{\"multipleOf\":2},{\"multipleOf\":3}]}",
       {"2", "3", "4", "9"},
       {"0", "6", "12", "1", "5"}},
      {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":5},{\"type\":\"integer\",\"minimum\":6}]}",
       {"5", "6"},
       {"\"a\""}},
      {"{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"b$\"}]}",
       {"\"a\"", "\"b\"", "\"ax\""},
       {"\"ab\"", "\"x\""}},
      {"{\"oneOf\":[{\"type\":\"string\"},{\"const\":\"a\"},{\"type\":\"null\"}]}",
       {"\"b\"", "null"},
       {"\"a\"", "1"}},
      {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"type\":\"null\"}},"
       "\"required\":[\"a\"],\"additionalProperties\":false},"
       "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"a\"],"
       "\"additionalProperties\":false}]}",
       {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":null,\"c\":2}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":null}", "{\"b\":1}"}},
  };
  CHECK_ROWS(rows);
}

/* ---- every set of names against the rule itself ---- */

enum { NAMES = 6, RULES = 4 };

typedef struct rules {
  uint32_t trigger[RULES], needs[RULES]; /* a name; a set of names */
  uint32_t required, min, max, forbidden;
} rules_t;

static bool allows(const rules_t *rules, uint32_t set) {
  uint32_t count = (uint32_t)__builtin_popcount(set);
  if ((set & rules->required) != rules->required || (set & rules->forbidden)) return false;
  if (count < rules->min || count > rules->max) return false;
  for (int i = 0; i < RULES; i++) {
    if ((set >> rules->trigger[i] & 1) && (set & rules->needs[i]) != rules->needs[i]) return false;
  }
  return true;
}

static size_t write_names(char *out, uint32_t set) {
  size_t length = 0;
  for (int i = 0; i < NAMES; i++) {
    if (!(set >> i & 1)) continue;
    if (length > 0) out[length++] = ',';
    length += (size_t)sprintf(out + length, "\"%c\"", 'a' + i);
  }
  out[length] = '\0';
  return length;
}

static void write_schema(char *out, const rules_t *rules) {
  char names[64];
  size_t length = (size_t)sprintf(out, "{\"properties\":{");
  for (int i = 0; i < NAMES; i++) {
    length += (size_t)sprintf(out + length, "%s\"%c\":%s", i ? "," : "", 'a' + i,
                              rules->forbidden >> i & 1 ? "false" : "{\"type\":\"null\"}");
  }
  write_names(names, rules->required);
  length +=
      (size_t)sprintf(out + length,
                      "},\"type\":\"object\",\"additionalProperties\":false,\"minProperties\":"
                      "%u,\"maxProperties\":%u,\"required\":[%s],\"allOf\":[",
                      rules->min, rules->max, names);
  for (int i = 0; i < RULES; i++) {
    write_names(names, rules->needs[i]);
    length += (size_t)sprintf(out + length, "%s{\"dependentRequired\":{\"%c\":[%s]}}", i ? "," : "",
                              'a' + (int)rules->trigger[i], names);
  }
  sprintf(out + length, "]}");
}

static void write_object(char *out, uint32_t set) {
  size_t length = (size_t)sprintf(out, "{");
  for (int i = 0; i < NAMES; i++) {
    if (set >> i & 1)
      length += (size_t)sprintf(out + length, "%s\"%c\":null", length > 1 ? "," : "", 'a' + i);
  }
  sprintf(out + length, "}");
}

/* Whatever is drawn, the text can go on. */
static void walk(rig_t *rig, uint64_t *seed, const char *schema) {
  rig_start(rig);
  for (int i = 0; i < 60 && !grammar_matcher_is_finished(rig->matcher); i++) {
    cr_assert(rig_fill(rig), "%s: nothing may follow", schema);
    int32_t id = rig_pick(rig, seed);
    if (id == RIG_STOP) return;
    ASSERT_EQ(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0);
  }
}

Test(logic, every_set_of_names_is_judged_as_the_rules_say) {
  rig_t *rig = rig_new();
  uint64_t seed = 7;
  char schema[1024], text[256];
  for (int round = 0; round < 150; round++) {
    rules_t rules = {.min = (uint32_t)(rig_random(&seed) % 3), .max = NAMES};
    if (rig_random(&seed) % 2) rules.max = (uint32_t)(rig_random(&seed) % NAMES) + 1;
    if (rig_random(&seed) % 2) rules.required = 1u << rig_random(&seed) % NAMES;
    if (rig_random(&seed) % 2) rules.forbidden = 1u << rig_random(&seed) % NAMES;
    for (int i = 0; i < RULES; i++) {
      rules.trigger[i] = (uint32_t)(rig_random(&seed) % NAMES);
      rules.needs[i] = (uint32_t)(rig_random(&seed) & rig_random(&seed) & ((1u << NAMES) - 1));
    }
    bool any = false;
    for (uint32_t set = 0; set < 1u << NAMES; set++) any = any || allows(&rules, set);
    write_schema(schema, &rules);
    int code = rig_schema(rig, schema);
    ASSERT_EQ_FOR(code, any ? 0 : ERR_INVALID_VALUE, "%s: %s", schema, rig->error.message);
    if (any) walk(rig, &seed, schema);
    for (uint32_t set = 0; any && set < 1u << NAMES; set++) {
      write_object(text, set);
      ASSERT_EQ_FOR(rig_accepts(rig, text), allows(&rules, set), "%s: %s", schema, text);
    }
  }
  rig_free(rig);
}

/* Each row has names that a part looks at only if it holds. */
Test(logic, unevaluated_properties) {
  static const row_t rows[] = {
      {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"allOf\":[{\"properties\":{\"b\":{}}}],"
       "\"unevaluatedProperties\":false}",
       {"{}", "{\"a\":1,\"b\":1}"},
       {"{\"c\":1}", "{\"a\":1,\"c\":1}"}},
      {"{\"type\":\"object\",\"$ref\":\"#/$defs/o\",\"unevaluatedProperties\":{\"type\":\"null\"},"
       "\"$defs\":{\"o\":{\"patternProperties\":{\"^x\":{}}}}}",
       {"{\"x\":1,\"c\":null}"},
       {"{\"c\":1}"}},
      {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}}},{\"required\":"
       "[\"b\"],\"properties\":{\"b\":{}}}],\"unevaluatedProperties\":false}",
       {"{}", "{\"a\":null}", "{\"b\":1}", "{\"a\":null,\"b\":1}"},
       {"{\"a\":1}", "{\"a\":1,\"b\":1}", "{\"c\":1}"}},
      {"{\"type\":\"object\",\"if\":{\"required\":[\"a\"],\"properties\":{\"a\":{\"const\":1}}},"
       "\"then\":{\"properties\":{\"b\":{}}},\"else\":{\"properties\":{\"c\":{}}},"
       "\"unevaluatedProperties\":false}",
       {"{}", "{\"a\":1,\"b\":2}", "{\"c\":1}"},
       {"{\"a\":1,\"c\":2}", "{\"b\":1}", "{\"a\":2}"}},
      {"{\"type\":\"object\",\"if\":{\"properties\":{\"a\":{\"const\":1}}},"
       "\"unevaluatedProperties\":false}",
       {"{}", "{\"a\":1}"},
       {"{\"a\":2}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{\"properties\":"
       "{\"b\":{}}}},\"unevaluatedProperties\":false}",
       {"{}", "{\"a\":1,\"b\":1}"},
       {"{\"b\":1}"}},
      /* a sibling sees nothing of another one; whoever takes all names leaves none */
      {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}}},{\"unevaluatedProperties\":"
       "false}]}",
       {"{}"},
       {"{\"a\":1}"}},
      {"{\"type\":\"object\",\"allOf\":[{\"additionalProperties\":{\"type\":\"null\"}}],"
       "\"unevaluatedProperties\":false}",
       {"{\"a\":null}"},
       {"{\"a\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(logic, unevaluated_items) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{},{}]}],\"prefixItems\":[{\"type\":"
       "\"null\"}],"
       "\"unevaluatedItems\":false}",
       {"[]", "[null]", "[null,1]"},
       {"[1]", "[null,1,2]"}},
      {"{\"type\":\"array\",\"oneOf\":[{\"minItems\":3,\"prefixItems\":[{},{}]},{\"maxItems\":2}],"
       "\"unevaluatedItems\":{\"type\":\"null\"}}",
       {"[]", "[null,null]", "[1,1,null,null]"},
       {"[1]", "[1,1,1]"}},
      {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"unevaluatedItems\":false}",
       {"[null,null]"},
       {"[1]"}},
      {"{\"$schema\":\"https://json-schema.org/draft/2019-09/schema\",\"type\":\"array\","
       "\"items\":[{}],\"unevaluatedItems\":false}",
       {"[]", "[1]"},
       {"[1,1]"}},
  };
  CHECK_ROWS(rows);
}

/* Members that depend on each other come in any order too. */
Test(logic, order_of_keys) {
  static const row_t rows[] = {
      {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"dependentRequired\":"
       "{\"a\":[\"c\"]},\"additionalProperties\":false}",
       {"{\"c\":1,\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"b\":1}", "{\"c\":1,\"b\":1}"},
       {"{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"c\":1,\"a\":1,\"c\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\"],"
       "\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
       {"{\"c\":1,\"b\":1}", "{\"b\":1,\"c\":1,\"x\":1,\"x\":1}", "{\"a\":1,\"c\":1}"},
       {"{\"c\":1}", "{\"b\":1,\"c\":1,\"a\":1}", "{\"b\":1,\"x\":1,\"c\":1}",
        "{\"c\":1,\"x\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"maxProperties\":2,"
       "\"dependentRequired\":{\"c\":[\"b\"]}}",
       {"{\"c\":1,\"b\":1}", "{\"x\":1,\"a\":1}", "{\"b\":1,\"x\":1}"},
       {"{\"a\":1,\"c\":1}", "{\"x\":1,\"c\":1}", "{\"x\":1,\"y\":1,\"a\":1}"}},
  };
  CHECK_ROWS(rows);
}
