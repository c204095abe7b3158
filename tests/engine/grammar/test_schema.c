/* test_schema.c: what each keyword of a schema allows and refuses. */
#include "engine/grammar/language/keywords.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

Test(schema, types) {
  static const row_t rows[] = {
      {"{\"type\":\"null\"}", {"null"}, {"nul", "true", "\"null\"", "null "}},
      {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "1"}},
      {"{\"type\":[\"null\",\"integer\"]}", {"null", "-12"}, {"\"a\"", "1.5"}},
      {"{}", {"1", "\"a\"", "[1,{\"a\":null}]", "{\"x\":[]}", "-0.5e-7"}, {"", "01", "{a:1}"}},
      {"true", {"1"}, {"x"}},
      {"{\"maxLength\":1}", {"\"a\"", "12345", "[1,2]"}, {"\"ab\""}},
      {"{\"properties\":{\"a\":{\"type\":\"null\"}}}", {"3", "{\"a\":null}"}, {"{\"a\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, integers) {
  static const row_t rows[] = {
      {"{\"type\":\"integer\"}",
       {"0", "-0", "12345678901234567890123456789012"},
       {"1.0", "1e2", "01", "+1", "-", "123456789012345678901234567890123"}},
      {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
       {"-5", "0", "99", "120", "-1"},
       {"-6", "121", "1000", "-10", "--1"}},
      {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":1e2}",
       {"10", "99"},
       {"9", "100", "-11"}},
      {"{\"type\":\"integer\",\"minimum\":1.5}", {"2", "10"}, {"1", "0", "-2"}},
      {"{\"type\":\"integer\",\"maximum\":-3}", {"-3", "-30"}, {"-2", "0", "3"}},
      {"{\"type\":\"integer\",\"maximum\":1e308}", {"5", "-5"}, {"1.5"}},
      {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "700000007"}, {"8", "1", "-6"}},
      {"{\"type\":\"integer\",\"multipleOf\":2.5}", {"5", "10", "0"}, {"2", "3"}},
      {"{\"type\":\"integer\",\"multipleOf\":4,\"allOf\":[{\"multipleOf\":6}]}",
       {"12", "0", "-24"},
       {"4", "6", "18"}},
      {"{\"type\":\"integer\",\"multipleOf\":10,\"minimum\":5,\"maximum\":25}",
       {"10", "20"},
       {"0", "5", "30"}},
      {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\","
       "\"minimum\":3,\"exclusiveMinimum\":true}",
       {"4"},
       {"3"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, numbers) {
  static const row_t rows[] = {
      {"{\"type\":\"number\"}",
       {"0", "-1.5", "1e10", "2.5E-3", "1e+05", "12345678901234567890"},
       {".5", "1.", "1e", "1e100", "NaN", "0x1"}},
      {"{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":2.25}",
       {"-0.5", "2.25", "2.250", "0", "-0.49", "2"},
       {"-0.51", "2.26", "2.2500001", "1e0", "3"}},
      {"{\"type\":\"number\",\"exclusiveMinimum\":0}", {"0.0001", "1"}, {"0", "0.0", "-1", "-0"}},
      {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-0.1", "-5"}, {"0", "-0", "-0.0", "1"}},
      {"{\"type\":\"number\",\"minimum\":1e-3}", {"0.001", "0.01", "7"}, {"0.0009", "0"}},
      {"{\"type\":\"number\",\"multipleOf\":0.25}", {"0.5", "1", "-2.75"}, {"0.3", "0.125"}},
      {"{\"type\":\"number\",\"minimum\":0,\"multipleOf\":2}", {"4"}, {"3", "4.0", "-4"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, strings) {
  static const row_t rows[] = {
      {"{\"type\":\"string\"}",
       {"\"\"", "\"\\u00e9\\n\\/\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
       {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83dx\"", "\"\xC3\"", "\"\x01\"",
        "\"a"}},
      {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
       {"\"ab\"", "\"abc\"", "\"\xF0\x9F\x98\x80\xC3\xA9\"", "\"\\ud83d\\ude00\\n\""},
       {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
      {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
      {"{\"type\":\"string\",\"minLength\":400,\"maxLength\":500}", {NULL}, {"\"a\"", "\"\""}},
      {"{\"type\":\"string\",\"pattern\":\"b+\"}", {"\"abbc\"", "\"b\""}, {"\"\"", "\"ac\""}},
      {"{\"type\":\"string\",\"pattern\":\"^\\\\d\\\\w$\"}",
       {"\"1a\"", "\"9_\""},
       {"\"a1\"", "\"1\xC3\xA9\"",
        "\"\xD9\xA1"
        "a\"",
        "\"1a\\n\""}},
      {"{\"type\":\"string\",\"pattern\":\"^\\\\s$\"}",
       {"\"\xC2\xA0\"", "\" \"", "\"\\t\""},
       {"\"a\""}},
      {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\]+$\"}",
       {"\"\\\"\"", "\"\\\\\\\"\""},
       {"\"a\"", "\"\\u0022\""}},
      {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":3,\"maxLength\":4}",
       {"\"aaa\"", "\"aaaa\""},
       {"\"aa\"", "\"aaaaa\"", "\"aab\""}},
      {"{\"type\":\"string\",\"pattern\":\"[A-F0-9]{4}$\",\"maxLength\":6}",
       {"\"ABCD\"", "\"zz12AB\""},
       {"\"zzz12AB\"", "\"ABC\""}},
      {"{\"type\":\"string\",\"pattern\":\"^a\",\"allOf\":[{\"pattern\":\"z$\"}]}",
       {"\"az\"", "\"a-z\""},
       {"\"a\"", "\"z\"", "\"za\""}},
  };
  CHECK_ROWS(rows);
}

Test(schema, formats) {
  static const row_t rows[] = {
      {"{\"type\":\"string\",\"format\":\"date\"}",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0004-02-29\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"0000-01-01\"",
        "\"2024-00-10\"", "\"24-01-01\""}},
      {"{\"type\":\"string\",\"format\":\"time\"}",
       {"\"23:59:59Z\"", "\"00:00:00.5+23:59\""},
       {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\"", "\"12:00:00+24:00\""}},
      {"{\"type\":\"string\",\"format\":\"date-time\"}",
       {"\"2024-02-29T23:59:59.25Z\""},
       {"\"2023-02-29T00:00:00Z\"", "\"2024-02-29 00:00:00Z\""}},
      {"{\"type\":\"string\",\"format\":\"duration\"}",
       {"\"P1Y2M3DT4H5M6S\"", "\"PT5S\"", "\"P3W\""},
       {"\"P\"", "\"PT\"", "\"P1S\"", "\"P1D2H\"", "\"P1W2D\""}},
      {"{\"type\":\"string\",\"format\":\"email\"}",
       {"\"a.b+c@ex-ample.org\""},
       {"\"a@b\"", "\".a@b.org\"", "\"a@-b.org\"", "\"a b@c.org\""}},
      {"{\"type\":\"string\",\"format\":\"hostname\"}",
       {"\"a\"", "\"a-b.c1.org\""},
       {"\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"\""}},
      {"{\"type\":\"string\",\"format\":\"ipv4\"}",
       {"\"0.0.0.0\"", "\"255.249.199.9\""},
       {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
      {"{\"type\":\"string\",\"format\":\"ipv6\"}",
       {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::a:b\"", "\"1::8\"",
        "\"1:2:3:4:5:6:7::\""},
       {"\":::\"", "\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
      {"{\"type\":\"string\",\"format\":\"uri\"}",
       {"\"https://a.b-c.org:80/x/y%20z?q=1&r#f\"", "\"ftp://h\"", "\"http://1.2.3.4/\""},
       {"\"a.b\"", "\"http://\"", "\"http://a b\"", "\"http://a/%2\"", "\"1p://a\"", "\"//a\""}},
      {"{\"type\":\"string\",\"format\":\"uuid\"}",
       {"\"2eb8aa08-AA98-11ea-b4aa-73b441d16380\""},
       {"\"2eb8aa08aa9811eab4aa73b441d16380\"", "\"g\""}},
  };
  CHECK_ROWS(rows);
}

Test(schema, formats_of_names_and_pointers) {
  static const row_t rows[] = {
      {"{\"type\":\"string\",\"format\":\"uri\"}",
       {"\"mailto:joe@x.org\"", "\"urn:isbn:0451450523\"", "\"file:///etc/x\"",
        "\"http://[::ffff:1.2.3.4]:8/\"", "\"https://u:p@h_h.org/a?b#c\""},
       {"\"a b:c\"", "\"/x\"", "\"a:[\""}},
      {"{\"type\":\"string\",\"format\":\"uri-reference\"}",
       {"\"\"", "\"../x?q#f\"", "\"//h/x\"", "\"mailto:a\""},
       {"\":a\"", "\"a b\"", "\"%2\""}},
      {"{\"type\":\"string\",\"format\":\"iri\"}",
       {"\"http://日本.jp/ä?ö#ü\""},
       {"\"ä\"", "\"http://a<b/\"", "\"http://日本.j^/\""}},
      {"{\"type\":\"string\",\"format\":\"iri-reference\"}", {"\"é/日\""}, {"\"é|日\""}},
      {"{\"type\":\"string\",\"format\":\"ipv6\"}",
       {"\"::1.2.3.4\"", "\"1:2:3:4:5:6:1.2.3.4\"", "\"1:2:3:4:5::1.2.3.4\""},
       {"\"1:2:3:4:5:6:7:1.2.3.4\"", "\"::1.2.3.256\"", "\"1:2:3:4:5:6::1.2.3.4\""}},
      {"{\"type\":\"string\",\"format\":\"idn-hostname\"}",
       {"\"bücher.example\"", "\"пример.рф\""},
       {"\"-ü\"", "\"ü--a\"", "\"〮a\""}},
      {"{\"type\":\"string\",\"format\":\"idn-email\"}",
       {"\"жук@пример.рф\""},
       {"\"ж@\"", "\"@рф\""}},
      {"{\"type\":\"string\",\"format\":\"uri-template\"}",
       {"\"/a/{b}{?x,y*}{z:12}\""},
       {"\"{\"", "\"{a b}\"", "\"{x:0}\"", "\"%2\""}},
      {"{\"type\":\"string\",\"format\":\"json-pointer\"}",
       {"\"\"", "\"/a~1b/~0\"", "\"/\\\\\""},
       {"\"a\"", "\"/~2\"", "\"/~\""}},
      {"{\"type\":\"string\",\"format\":\"relative-json-pointer\"}",
       {"\"0\"", "\"1/a\"", "\"2#\""},
       {"\"01\"", "\"/a\"", "\"0##\""}},
      {"{\"type\":\"string\",\"format\":\"regex\"}",
       {"\"^[a-z]+\\\\d{2,}(?:a|b(c))*?$\"", "\"\""},
       {"\"(\"", "\"a**\"", "\"[z\"", "\"\\\\\"", "\"a{2,1}\""}},
  };
  CHECK_ROWS(rows);
}

Test(schema, enum_and_const) {
  static const row_t rows[] = {
      {"{\"enum\":[\"a\",\"b\\n\",1,1.5,null,[1,{\"x\":2}]]}",
       {"\"a\"", "\"b\\n\"", "1", "1.5", "null", "[1,{\"x\":2}]", "[1, {\"x\": 2}]"},
       {"\"c\"", "2", "\"\\u0061\"", "[1]", "\"ab\\n\""}},
      {"{\"const\":1.0}", {"1"}, {"1.0", "2", "1."}},
      {"{\"enum\":[\"abc\",\"de\",3],\"type\":\"string\",\"maxLength\":2}",
       {"\"de\""},
       {"\"abc\"", "3"}},
      {"{\"enum\":[1,5,9],\"minimum\":2,\"exclusiveMaximum\":9}", {"5"}, {"1", "9"}},
      {"{\"enum\":[1,2,3],\"allOf\":[{\"enum\":[3,2,7]}]}", {"2", "3"}, {"1", "7"}},
  };
  CHECK_ROWS(rows);
}

/* Generators write null for what they leave out, at every level. */
Test(schema, null_is_absent) {
  static const char *const keywords[] = {
#define X(name, text) text,
      KEYWORDS(X)
#undef X
          "$dynamicRef",
      "$schema",
      "$defs",
      "title",
      "$id",
      "maxLenght"};
  static const row_t rows[] = {
      {"{\"const\":null}", {"null"}, {"1", "{}"}},
      {"{\"enum\":[null]}", {"null"}, {"1"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"properties\":null,"
       "\"required\":null,\"additionalProperties\":false}},\"required\":[\"a\"],"
       "\"additionalProperties\":false}",
       {"{\"a\":{}}"},
       {"{}", "{\"a\":null}", "{\"a\":{\"b\":1}}"}},
      {"{\"anyOf\":[{\"type\":\"array\",\"items\":null,\"maxItems\":1},{\"$ref\":\"#/$defs/s\"}],"
       "\"$defs\":{\"s\":{\"type\":\"string\",\"pattern\":null,\"maxLength\":1}}}",
       {"[{}]", "\"a\""},
       {"[1,2]", "\"ab\"", "1"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/i\","
       "\"minimum\":null,\"definitions\":{\"i\":{\"type\":\"integer\",\"minimum\":3,"
       "\"maximum\":null}}}",
       {"3", "77"},
       {"2"}},
      {"{\"not\":{\"type\":null,\"const\":1}}", {"2"}, {"1"}},
  };
  CHECK_ROWS(rows);
  rig_t *rig = rig_new();
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
    char text[128];
    if (strcmp(keywords[i], "const") == 0) continue;
    snprintf(text, sizeof text, "{\"type\":[\"object\",\"integer\"],\"%s\":null}", keywords[i]);
    if (strcmp(keywords[i], "type") == 0) strcpy(text, "{\"type\":null,\"not\":{\"type\":null}}");
    bool never = strcmp(keywords[i], "type") == 0; /* `not` of the schema that takes anything */
    ASSERT_EQ_FOR(rig_schema(rig, text) == 0, !never, "%s: %s", text, rig->error.message);
    if (!never) cr_assert(rig_accepts(rig, "{\"a\":1}") && rig_accepts(rig, "7"), "%s", text);
  }
  ASSERT_EQ_FOR(rig_strict(rig, "{\"type\":\"object\",\"properties\":null,\"required\":null,"
                                "\"additionalProperties\":false,\"allOf\":null}"),
                0, "%s", rig->error.message);
  cr_assert(rig_accepts(rig, "{}"));
  rig_free(rig);
}

Test(schema, objects) {
  static const row_t rows[] = {
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}"
       "},"
       "\"required\":[\"b\"],\"additionalProperties\":false}",
       {"{\"a\":1,\"b\":null}", "{\"b\":null}", "{\"a\": 1, \"b\": null}", "{\n  \"b\": null\n}",
        "{\"b\":null,\"a\":1}"},
       {"{}", "{\"a\":1}", "{\"b\":null,\"c\":1}", "{\"b\":null,}", "{\"b\":null,\"b\":null}",
        "{\"b\" :null}", "{         \"b\":null}", "{\"b\":null} "}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
       {"{}", "{\"a\":1,\"x\":\"y\"}", "{\"x\":[]}", "{\"ab\":true}", "{\"\":0}",
        "{\"x\":1,\"a\":1,\"y\":2}"},
       {"{\"a\":\"1\"}", "{\"x\":1,\"a\":\"1\"}", "{\"\\u0061\":\"1\"}",
        "{\"a\":1,\"x\":1,\"a\":1}"}},
      {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"boolean\"},\"required\":[\"q\"]}",
       {"{\"q\":true}", "{\"q\":true,\"r\":false}"},
       {"{}", "{\"r\":true}", "{\"q\":1}"}},
      {"{\"type\":\"object\",\"patternProperties\":{\"^n[0-9]$\":{\"type\":\"integer\"}},"
       "\"additionalProperties\":false,\"properties\":{\"n1\":{\"maximum\":5}}}",
       {"{}", "{\"n1\":5}", "{\"n2\":77}", "{\"n1\":1,\"n3\":9}"},
       {"{\"n1\":6}", "{\"n1\":\"a\"}", "{\"n22\":1}", "{\"x\":1}", "{\"n2\":\"a\"}"}},
      {"{\"type\":\"object\",\"patternProperties\":{\"a\":{\"minimum\":3},\"b\":{\"maximum\":5}},"
       "\"additionalProperties\":{\"type\":\"null\"}}",
       {"{\"xa\":9}", "{\"xb\":-9}", "{\"ab\":4}", "{\"x\":null}"},
       {"{\"xa\":1}", "{\"xb\":9}", "{\"ab\":9}", "{\"ab\":1}", "{\"x\":1}"}},
      {"{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":3,\"additionalProperties\":"
       "false,"
       "\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{}}}",
       {"{\"a\":1,\"d\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"c\":1,\"d\":2}"},
       {"{}", "{\"a\":1}", "{\"d\":1}", "{\"a\":1,\"b\":1,\"c\":1,\"d\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}",
       {"{\"b\":null}", "{}", "{\"aa\":1}"},
       {"{\"a\":1}", "{\"b\":null,\"a\":null}"}},
  };
  CHECK_ROWS(rows);
}

#define ABC "\"properties\":{\"a\":{},\"b\":{},\"c\":{}}"

Test(schema, order_of_keys) {
  static const row_t rows[] = {
      {"{\"type\":\"object\"," ABC ",\"required\":[\"a\",\"c\"]}",
       {"{\"c\":1,\"a\":1}", "{\"b\":1,\"c\":1,\"a\":1}", "{\"c\":1,\"a\":1,\"x\":1,\"b\":1}"},
       {"{\"c\":1}", "{\"c\":1,\"b\":1}", "{\"c\":1,\"a\":1,\"c\":1}",
        "{\"c\":1,\"x\":1,\"a\":1}"}},
      {"{\"type\":\"object\"," ABC ",\"required\":[\"b\"],\"maxProperties\":2}",
       {"{\"c\":1,\"b\":1}", "{\"b\":1,\"x\":1}", "{\"b\":1}"},
       {"{\"c\":1,\"a\":1}", "{\"b\":1,\"x\":1,\"a\":1}", "{\"b\":1,\"x\":1,\"x\":1}"}},
      {"{\"type\":\"object\"," ABC ",\"minProperties\":3}",
       {"{\"c\":1,\"b\":1,\"a\":1}", "{\"x\":1,\"c\":1,\"a\":1}",
        "{\"x\":1,\"y\":1,\"c\":1,\"a\":1}"},
       {"{\"c\":1,\"a\":1}", "{\"x\":1,\"c\":1}", "{\"x\":1,\"x\":1,\"c\":1}",
        "{\"x\":1,\"y\":1,\"z\":1}"}},
      {"{\"type\":\"object\"," ABC ",\"minProperties\":2,\"maxProperties\":3}",
       {"{\"x\":1,\"c\":1}", "{\"x\":1,\"y\":1,\"c\":1}", "{\"c\":1,\"b\":1,\"a\":1}"},
       {"{\"x\":1,\"y\":1,\"z\":1}", "{\"x\":1,\"y\":1,\"z\":1,\"c\":1}", "{\"x\":1,\"y\":1}"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, property_names) {
  static const row_t rows[] = {
      {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}",
       {"{}", "{\"ab\":1,\"c\":2}"},
       {"{\"A\":1}", "{\"\":1}", "{\"a\":1,\"b1\":2}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\",3]},\"properties\":"
       "{\"a\":{\"type\":\"null\"},\"c\":{}}}",
       {"{}", "{\"a\":null}", "{\"b\":1}", "{\"a\":null,\"b\":1}"},
       {"{\"a\":1}", "{\"c\":1}", "{\"3\":1}", "{\"b\":1,\"a\":1}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"allOf\":[{\"minLength\":2},{\"maxLength\":3}]}}",
       {"{\"ab\":1}", "{\"\xC3\xA9\xC3\xA9\xC3\xA9\":1}", "{\"\\\"\\n\":1}"},
       {"{\"a\":1}", "{\"abcd\":1}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"},{\"format\":\"date\"}]"
       "},"
       "\"patternProperties\":{\"^2\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
       "\"integer\"}}",
       {"{\"a\":1}", "{\"2024-02-29\":null}", "{\"1999-12-31\":1}"},
       {"{\"b\":1}", "{\"2024-02-30\":null}", "{\"2024-02-29\":1}", "{\"a\":null}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"not\":{\"enum\":[\"a\"]}},\"properties\":{\"a\":{"
       "}}}",
       {"{\"b\":1}", "{\"aa\":1}"},
       {"{\"a\":1}", "{\"b\":1,\"a\":1}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"integer\"}}", {"{}"}, {"{\"a\":1}"}},
      {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"propertyNames\":{\"anyOf\":[{\"const\":"
       "\"a\",\"enum\":[\"b\"]},{\"pattern\":\"a\",\"not\":{\"pattern\":\"a\"}}]}}",
       {"{}"},
       {"{\"a\":1}"}},
      {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":200}}",
       {"{\"abc\":1}"},
       {"{\"a\" :1}"}},
  };
  static const char none[] =
      "{\"type\":\"object\",\"required\":[\"b\"],\"propertyNames\":{\"const\":\"a\"}}";
  CHECK_ROWS(rows);
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_schema(rig, none), ERR_INVALID_VALUE);
  rig_free(rig);
}

/* OpenAI promises the order of the schema for a strict one. */
Test(schema, order_of_strict_keys) {
  static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},"
                               "\"b\":{\"type\":\"null\"}},\"required\":[\"b\",\"a\"],"
                               "\"additionalProperties\":false}";
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_schema(rig, schema), 0);
  cr_expect(rig_accepts(rig, "{\"b\":null,\"a\":null}"));
  ASSERT_EQ(rig_strict(rig, schema), 0);
  cr_expect(!rig_accepts(rig, "{\"b\":null,\"a\":null}"));
  cr_expect(rig_accepts(rig, "{\"a\":null,\"b\":null}"));
  rig_free(rig);
}

Test(schema, arrays) {
  static const row_t rows[] = {
      {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
       {"[1]", "[1, 2,3]", "[ 1 ]"},
       {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]", "[1,2"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"string\"}],\"items\":"
       "false}",
       {"[]", "[null]", "[null,\"a\"]"},
       {"[1]", "[null,1]", "[null,\"a\",1]"}},
      {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"minItems\":2}",
       {"[null,1]", "[null,[],{}]"},
       {"[null]", "[1,1]"}},
      {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"array\","
       "\"items\":[{\"type\":\"null\"}],\"additionalItems\":{\"type\":\"boolean\"}}",
       {"[]", "[null]", "[null,true]"},
       {"[true]", "[null,1]"}},
      {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
      {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
      {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"[]", "[5]"}, {"[5,5]"}},
      {"{\"type\":\"array\",\"uniqueItems\":false}", {"[5,5]"}, {"5"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, combinations) {
  static const row_t rows[] = {
      {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\",\"required\":[\"a\"]}]}",
       {"\"x\"", "{\"a\":1}"},
       {"{}", "1"}},
      {"{\"type\":[\"string\",\"integer\"],\"anyOf\":[{\"maxLength\":1},{\"minimum\":5}]}",
       {"\"a\"", "\"abc\"", "1"},
       {"1.5", "null"}},
      {"{\"anyOf\":[{\"minimum\":0},{\"maximum\":-10}],\"allOf\":[{\"anyOf\":[{\"type\":"
       "\"integer\"},"
       "{\"type\":\"null\"}]}]}",
       {"0", "-10", "null", "5"},
       {"-5", "1.5", "\"a\""}},
      {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
       "\"required\":"
       "[\"a\"]},{\"properties\":{\"a\":{\"minimum\":3},\"b\":{\"const\":1}}}]}",
       {"{\"a\":3}", "{\"a\":4,\"b\":1}"},
       {"{\"a\":2}", "{}", "{\"a\":3,\"b\":2}", "{\"a\":3.5}"}},
      {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"type\":"
       "\"object\","
       "\"properties\":{\"b\":{}}}]}",
       {"{}", "{\"a\":1}"},
       {"{\"b\":1}", "{\"c\":1}"}},
      {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":"
       "\"null\"}},\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
       "\"const\":"
       "\"y\"}},\"required\":[\"k\"]}]}",
       {"{\"k\":\"x\",\"v\":null}", "{\"k\":\"y\",\"v\":1}"},
       {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"z\"}", "{}"}},
      {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"],\"properties\":{\"a\":{}},"
       "\"additionalProperties\":false},{\"required\":[\"b\"],\"properties\":{\"b\":{}}}]}",
       {"{\"a\":1}", "{\"b\":1}", "{\"b\":1,\"c\":2}"},
       {"{}", "{\"a\":1,\"b\":2}"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, references) {
  static const row_t rows[] = {
      {"{\"$defs\":{\"t/~ \":{\"type\":\"integer\"}},\"$ref\":\"#/$defs/t~1~0%20\"}",
       {"1"},
       {"null"}},
      {"{\"definitions\":{\"a\":{\"maximum\":5}},\"$ref\":\"#/definitions/"
       "a\",\"type\":\"integer\"}",
       {"5"},
       {"6", "\"a\""}},
      {"{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"}},\"additionalProperties\":"
       "false}",
       {"{}", "{\"n\":{\"n\":{}}}"},
       {"{\"n\":1}", "{\"n\":{\"m\":{}}}"}},
      {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
      {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"type\":"
       "\"null\"}}}",
       {"null"},
       {"1"}},
  };
  CHECK_ROWS(rows);
}

Test(schema, json_object) {
  rig_t *rig = rig_new();
  ASSERT_EQ(rig_text(rig, GRAMMAR_JSON_OBJECT, ""), 0);
  cr_assert(rig_accepts(rig, "{}"));
  cr_assert(rig_accepts(rig, "{\"a\": [1, -2.5e3, null, \"\\u00e9\"], \"a\": {\"b\": {}}}"));
  const char *const refused[] = {"[]",  "{\"a\":}",    "{\"a\":1]", "{} ",
                                 " {}", "{\"a\":tru}", "{'a':1}"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    cr_assert_not(rig_accepts(rig, refused[i]), "%s", refused[i]);
  }
  rig_free(rig);
}
