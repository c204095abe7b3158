/* test_mutations.c: broken schemas, patterns and grammars end in an error or in a grammar that
 * works.
 *
 * Mutants of good ones: bytes changed, dropped, doubled, pieces of others put in. Whatever compiles
 * is followed for some random tokens: masks are never empty and what they allow is accepted. Under
 * the sanitizers this is a short fuzzing run; the seed is fixed.
 */
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4096, MUTANTS = 1500 };

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-3,"
    "\"multipleOf\":7},"
    "\"b\":{\"enum\":[1,\"x\",null,[2]]}},\"required\":[\"a\"],\"additionalProperties\":false}",
    "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\","
    "\"items\":{\"$ref\":\"#/$defs/n\"},\"maxItems\":3,\"minItems\":1}]}}}",
    "{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^[a-z]{1,9}$\",\"maxLength\":8},{\"minLength\":"
    "2}]}",
    "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"number\",\"maximum\":1e3}},"
    "\"minProperties\":1,\"maxProperties\":4,\"additionalProperties\":{\"type\":\"boolean\"}}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"p\"}},\"required\":[\"k\"]"
    "},"
    "{\"type\":\"string\",\"format\":\"date\"}]}",
    "{\"type\":\"array\",\"prefixItems\":[{\"const\":{\"a\":1}},{}],\"items\":false,"
    "\"uniqueItems\":false}",
    "{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,\"a\"]},\"uniqueItems\":true,\"contains\":{"
    "\"minimum\":2},\"minContains\":1,\"maxContains\":2}",
};
static const char *const patterns[] = {
    "^(?:[a-z]+@[a-z]{2,5}\\.(com|org))?$",
    "[^\\s\\d]{0,3}|\\u00e9+",
    "(a|b)*abb[\\w.-]{2}",
    "x{3}|.{1,4}",
};
static const char *const grammars[] = {
    "root ::= expr\nexpr ::= term ((\"+\" | '-') term)* # c\nterm ::= [0-9]+ | \"(\" expr \")\"",
    "root ::= (\"a\" b?){1,3} .\nb ::= \"\\u00e9\" | [^a-z] root",
};

static char *mutate(const char *const *seeds, size_t count, uint64_t *state, size_t *length) {
  static char text[TEXT_MAX];
  const char *seed = seeds[rig_random(state) % count];
  *length = strlen(seed);
  memcpy(text, seed, *length);
  for (uint64_t n = rig_random(state) % 4; n > 0 && *length > 1; n--) {
    size_t at = rig_random(state) % *length, size = 1 + rig_random(state) % 8;
    const char *other = seeds[rig_random(state) % count];
    size_t from = rig_random(state) % strlen(other);
    if (size > *length - at) size = *length - at;
    switch (rig_random(state) % 5) {
    case 0: text[at] = (char)(rig_random(state) % 95 + 32); break;
    case 1: text[at] = "0123456789{}[]()\"\\*+?|^$,:.-"[rig_random(state) % 28]; break;
    case 2:
      memmove(text + at, text + at + size, *length - at - size);
      *length -= size;
      break;
    case 3:
      memmove(text + at + size, text + at, *length - at);
      *length += size;
      break;
    default:
      if (size > strlen(other) - from) size = strlen(other) - from;
      memmove(text + at + size, text + at, *length - at);
      memcpy(text + at, other + from, size);
      *length += size;
      break;
    }
  }
  return text;
}

/* Follows what compiled. User grammars may turn out too ambiguous on the way: then it ends. */
static void follow(rig_t *rig, uint64_t *state, bool may_fail, const char *text, size_t length) {
  rig_start(rig);
  for (int i = 0; i < 12 && !grammar_matcher_is_finished(rig->matcher); i++) {
    bool filled = rig_fill(rig);
    if (!filled && may_fail) return;
    cr_assert(filled, "%.*s", (int)length, text);
    int32_t id = rig_pick(rig, state);
    if (id == RIG_STOP) return;
    ASSERT_EQ_FOR(grammar_matcher_accept(rig->matcher, rig->scratch, id), 0, "%.*s", (int)length,
                  text);
  }
}

static int compile(rig_t *rig, grammar_kind_t kind, const char *text, size_t length) {
  grammar_limits_t limits = grammar_limits_default;
  grammar_source_t source = {.kind = kind, .param = "p", .text = text, .length = length};
  limits.dfa_states_max = 3000; /* the time goes into variety, not into size */
  if (kind != GRAMMAR_JSON_SCHEMA) return rig_compile(rig, &source, &limits);
  json_doc_t *doc;
  if (json_parse(text, length, &json_limits_request, &doc, &rig->error) != 0)
    return ERR_INVALID_JSON;
  source.schema = json_root(doc);
  int code = rig_compile(rig, &source, &limits);
  json_free(doc);
  return code;
}

static void run(grammar_kind_t kind, const char *const *seeds, size_t count) {
  rig_t *rig = rig_new();
  uint64_t state = 99;
  int compiled = 0;
  for (int i = 0; i < MUTANTS; i++) {
    size_t length;
    const char *text = mutate(seeds, count, &state, &length);
    int code = compile(rig, kind, text, length);
    cr_assert(code == 0 || (code <= ERR_INVALID_JSON && code >= ERR_REQUEST_TIMEOUT), "%d: %.*s",
              code, (int)length, text);
    if (code == 0) follow(rig, &state, kind == GRAMMAR_EBNF, text, length);
    compiled += code == 0;
  }
  cr_assert(compiled > MUTANTS / 50 && compiled < MUTANTS, "%d compiled", compiled);
  rig_free(rig);
}

Test(mutations, schemas) {
  run(GRAMMAR_JSON_SCHEMA, schemas, sizeof schemas / sizeof *schemas);
}

Test(mutations, patterns) {
  run(GRAMMAR_REGEX, patterns, sizeof patterns / sizeof *patterns);
}

Test(mutations, grammars) {
  run(GRAMMAR_EBNF, grammars, sizeof grammars / sizeof *grammars);
}
