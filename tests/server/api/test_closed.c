/* test_closed.c: constraints that the operator has closed are refused at every door, and nothing of
 * them is compiled; what needs no constraint stays possible.
 */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <string.h>

TestSuite(closed, .init = fake_start, .fini = fake_stop, .timeout = 60);
TestSuite(doors, .timeout = 60); /* each starts a server of its own */

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define FORMAT(schema)                                                                             \
  "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","                 \
  "\"schema\":" schema "}}"
#define TOOLS(more)                                                                                \
  "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"                              \
  "{\"type\":\"function\",\"function\":{\"name\":\"g\"" more "}}]"
#define OBJECT(properties)                                                                         \
  "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[\"a\"],"                     \
  "\"additionalProperties\":false}"
#define PLAIN OBJECT("\"a\":{\"type\":\"integer\"}")
#define PATTERN OBJECT("\"a\":{\"type\":\"string\",\"pattern\":\"^x$\"}")
#define NAMED "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

#define TAGGED(format) "\"response_format\":{\"type\":\"structural_tag\",\"format\":" format "}"

/* The field that is refused while `closed` is closed; NULL = the request is taken. */
typedef struct door {
  const char *closed, *fields, *param;
} door_t;

static const door_t doors[] = {
    {"schema", FORMAT(PLAIN), "response_format"},
    {"schema", "\"response_format\":{\"type\":\"json_object\"}", "response_format"},
    {"schema", "\"response_format\":{\"type\":\"json_object\",\"schema\":" PLAIN "}",
     "response_format"},
    {"schema", TAGGED("{\"type\":\"any_text\"}"), "response_format"},
    {"schema", "\"structured_outputs\":{\"json\":{}}", "structured_outputs.json"},
    {"schema", "\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object"},
    {"schema", "\"guided_json\":{}", "guided_json"},
    {"schema", "\"guided_json\":\"{\"", "guided_json"}, /* not even parsed */
    {"schema", "\"json_schema\":{}", "json_schema"},
    {"schema", TOOLS(",\"strict\":true,\"parameters\":" PLAIN), "tools[1].function.strict"},
    {"schema", TOOLS("") ",\"tool_choice\":\"required\"", "tool_choice"},
    {"schema", TOOLS("") "," NAMED, "tool_choice"},
    {"schema", TOOLS("") ",\"regex\":\"a\"", "tools"},
    {"schema", TOOLS(",\"parameters\":" PLAIN), NULL},
    {"schema", TOOLS(",\"strict\":true") ",\"tool_choice\":\"none\"", NULL},
    {"schema", "\"regex\":\"a\"", NULL},
    {"schema", "\"response_format\":{\"type\":\"text\"}", NULL},
    {"schema", "\"structured_outputs\":{\"json_object\":false}", NULL},
    {"regex", "\"regex\":\"a\"", "regex"},
    {"regex", "\"regex\":\"(\"", "regex"}, /* not even parsed */
    {"regex", "\"guided_regex\":\"a\"", "guided_regex"},
    {"regex", "\"structured_outputs\":{\"regex\":\"a\"}", "structured_outputs.regex"},
    {"regex", "\"guided_choice\":[\"a\"]", "guided_choice"},
    {"regex", "\"structured_outputs\":{\"choice\":[\"a\"]}", "structured_outputs.choice"},
    {"regex", FORMAT(PATTERN), "response_format"},
    {"regex", TAGGED("{\"type\":\"regex\",\"pattern\":\"a\"}"), "response_format"},
    {"regex", TAGGED("{\"type\":\"json_schema\",\"json_schema\":" PATTERN "}"), "response_format"},
    {"regex", TAGGED("{\"type\":\"json_schema\",\"json_schema\":" PLAIN "}"), NULL},
    {"regex", "\"guided_json\":{\"patternProperties\":{\"x\":{}}}", "guided_json"},
    {"regex", "\"guided_json\":\"{\\\"pattern\\\":\\\"x\\\"}\"", "guided_json"},
    /* a reference can make a schema of any value */
    {"regex", "\"guided_json\":{\"$ref\":\"#/const/0\",\"const\":[{\"pattern\":\"x\"}]}",
     "guided_json"},
    {"regex", "\"guided_json\":{\"$ref\":\"#/properties\",\"properties\":{\"pattern\":\"x\"}}",
     "guided_json"},
    {"regex", TOOLS(",\"strict\":true,\"parameters\":" PATTERN), "tools[1].function.parameters"},
    {"regex", TOOLS(",\"parameters\":" PATTERN) ",\"tool_choice\":\"required\"",
     "tools[1].function.parameters"},
    {"regex", TOOLS(",\"parameters\":" PATTERN) "," NAMED, "tools[1].function.parameters"},
    {"regex", FORMAT(PLAIN), NULL},
    {"regex", "\"guided_json\":{\"properties\":{\"pattern\":{\"type\":\"string\"}}}", NULL},
    {"regex", "\"response_format\":{\"type\":\"json_object\"}", NULL},
    {"regex", "\"grammar\":\"root ::= [a-z]\"", NULL},
    {"regex", TOOLS(",\"parameters\":" PATTERN), NULL},
    {"grammar", "\"grammar\":\"root ::= [a-z]\"", "grammar"},
    {"grammar", "\"ebnf\":\"root\"", "ebnf"},
    {"grammar", TAGGED("{\"type\":\"grammar\",\"grammar\":\"root ::= [a-z]\"}"), "response_format"},
    {"grammar", "\"guided_grammar\":\"root ::= [a-z]\"", "guided_grammar"},
    {"grammar", "\"structured_outputs\":{\"grammar\":\"root ::= [a-z]\"}",
     "structured_outputs.grammar"},
    {"grammar", "\"grammar\":\"\"", NULL},
    {"grammar", "\"regex\":\"a\"", NULL},
    {"grammar", FORMAT(PATTERN), NULL},
    {"grammar", TOOLS("") ",\"tool_choice\":\"required\"", NULL},
};

static uint64_t compiled(void) {
  return grammar_cache_stats(server.live->grammars).misses;
}

static void try_door(const door_t *door, bool is_chat) {
  char body[1024], word[64];
  fake_start();
  fake_option("disable-grammar", door->closed);
  uint64_t before = compiled();
  snprintf(body, sizeof body, "{%s,%s}", is_chat ? USER : "\"prompt\":[1,2]", door->fields);
  fake_exchange_t *exchange = fake_call(is_chat ? api_chat_completions : api_completions, body);
  ASSERT_EQ_FOR(exchange->answered, door->param != NULL, "%s %s: %s", door->closed, body,
                exchange->body);
  if (door->param != NULL) {
    ASSERT_EQ_FOR(exchange->error.code, ERR_UNSUPPORTED_PARAMETER, "%s: %s", body, exchange->body);
    ASSERT_STR_EQ_FOR(exchange->error.param, door->param, "%s: %s", body, exchange->body);
    snprintf(word, sizeof word, "--disable-grammar %s", door->closed);
    cr_assert(strstr(exchange->error.message, word) != NULL, "%s", exchange->error.message);
    cr_assert(strstr(exchange->error.message, door->param) != NULL, "%s", exchange->error.message);
    ASSERT_EQ_FOR(compiled(), before, "%s was compiled", body);
  }
  fake_finish_all();
  fake_exchange_free(exchange);
  fake_stop();
}

Test(doors, every_one) {
  for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
    bool tools = strstr(doors[i].fields, "\"tools\"") != NULL;
    if (!tools) try_door(&doors[i], false);
    try_door(&doors[i], true);
  }
}

/* A function that the request does not insist on takes any object, as with a schema that cannot be
 * enforced: its pattern is not compiled. */
Test(closed, a_pattern_of_a_loose_function) {
  static const char tools[] = TOOLS(",\"parameters\":" PATTERN);
  char body[1024];
  snprintf(body, sizeof body, "{" USER ",%s,\"response_format\":{\"type\":\"json_object\"}}",
           tools);
  for (int closed = 0; closed < 2; closed++) {
    if (closed) fake_option("disable-grammar", "regex,grammar");
    fake_exchange_t *exchange = fake_call(api_chat_completions, body);
    cr_assert(!exchange->answered, "%s", exchange->body);
    const request_t *request = fake_engine.requests[0];
    cr_assert(request->grammar != NULL);
    ASSERT_EQ_FOR(compiled(), (uint64_t)closed + 1, "an other grammar than the one with a pattern");
    bool named = strstr(exchange->headers,
                        "x-inferd-ignored-params: tools[1].function.parameters\n") != NULL;
    ASSERT_EQ_FOR(named, closed == 1, "%s", exchange->headers);
    fake_finish_all();
    fake_exchange_free(exchange);
  }
}

Test(closed, all_kinds_and_none) {
  static char *words[] = {"schema", "regex", "grammar"};
  EXPECT_EQ(closed_kinds(words, 3), CLOSED_ALL);
  EXPECT_EQ(closed_kinds(words, 1), CLOSED_SCHEMA);
  EXPECT_EQ(closed_kinds(NULL, 0), 0);
}
