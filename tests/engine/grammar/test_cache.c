/* test_cache.c: equal constraints share one grammar, others never do, within a budget of bytes. */
#include "engine/grammar/cache.h"
#include "tests/engine/grammar/rig.h"
#include "tests/expect.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { BYTES_MAX = 4 << 20, THREADS = 4, TURNS = 200 };

static grammar_cache_t *cache_new(size_t bytes_max) {
  grammar_cache_t *cache = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ(grammar_cache_new(bytes_max, &cache, &error), 0);
  return cache;
}

static grammar_source_t text_source(grammar_kind_t kind, const char *text) {
  return (grammar_source_t){.kind = kind, .text = text, .length = strlen(text)};
}

/* The grammar of the source, which the cache alone holds afterwards. */
static const grammar_t *compile(grammar_cache_t *cache, const rig_t *rig,
                                const grammar_source_t *source) {
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  int code = grammar_cache_compile(cache, source, rig->vocabulary, NULL, &grammar, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  grammar_unref(grammar);
  return grammar;
}

static const grammar_t *compile_schema(grammar_cache_t *cache, const rig_t *rig, const char *text,
                                       bool strict) {
  json_doc_t *doc;
  inferd_error_t error = {0};
  ASSERT_EQ(json_parse(text, strlen(text), &json_limits_request, &doc, &error), 0);
  grammar_source_t source = {
      .kind = GRAMMAR_JSON_SCHEMA, .schema = json_root(doc), .strict = strict, .param = text};
  const grammar_t *grammar = compile(cache, rig, &source);
  json_free(doc);
  return grammar;
}

Test(cache, equal_constraints_share_a_grammar) {
  rig_t *rig = rig_new();
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  const char *schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\"]}},"
                       "\"required\":[\"a\"],\"additionalProperties\":false}";
  const grammar_t *first = compile_schema(cache, rig, schema, false);
  const char *spaced = "{ \"type\" : \"object\", \"properties\":{\"\\u0061\":{\"enum\":[1,\"x\"]}},"
                       "\"required\":[\"a\"],\"additionalProperties\":false}";
  ASSERT_EQ(compile_schema(cache, rig, spaced, false), first);
  grammar_source_t regex = text_source(GRAMMAR_REGEX, "[ab]+");
  const grammar_t *second = compile(cache, rig, &regex);
  regex.param = "guided_regex"; /* only errors name it */
  ASSERT_EQ(compile(cache, rig, &regex), second);
  grammar_cache_stats_t stats = grammar_cache_stats(cache);
  ASSERT_EQ(stats.hits, 2);
  ASSERT_EQ(stats.misses, 2);
  ASSERT_EQ(stats.entries, 2);
  ASSERT_EQ(stats.evictions, 0);
  ASSERT_GE(stats.bytes, grammar_bytes(first) + grammar_bytes(second));
  grammar_cache_free(cache);
  rig_free(rig);
}

/* Each pair differs in one thing that the grammar depends on. */
Test(cache, anything_that_differs_makes_another_grammar) {
  rig_t *rig = rig_new();
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  const char *schemas[] = {
      "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}",
      "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}", /* another order */
      "{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]}",
      "{\"enum\":[1]}",
      "{\"enum\":[\"1\"]}",
      "{\"enum\":[[1],2]}",
      "{\"enum\":[[1,2]]}",
      "{\"const\":true}",
      "{\"const\":false}",
      "{\"const\":null}",
  };
  grammar_source_t literal = text_source(GRAMMAR_LITERAL, "ab"), pair[2], triple[2];
  pair[0] = text_source(GRAMMAR_LITERAL, "a"), pair[1] = text_source(GRAMMAR_LITERAL, "bb");
  triple[0] = text_source(GRAMMAR_LITERAL, "ab"), triple[1] = text_source(GRAMMAR_LITERAL, "b");
  grammar_source_t sources[] = {
      literal,
      text_source(GRAMMAR_REGEX, "ab"),
      text_source(GRAMMAR_TEXT, "ab"),
      text_source(GRAMMAR_TEXT_WITHOUT, "ab"),
      {.kind = GRAMMAR_SEQUENCE, .children = pair, .num_children = 2},
      {.kind = GRAMMAR_SEQUENCE, .children = triple, .num_children = 2},
      {.kind = GRAMMAR_ALTERNATIVES, .children = pair, .num_children = 2},
      {.kind = GRAMMAR_REPEAT, .children = pair, .num_children = 1, .min = 1, .max = 2},
      {.kind = GRAMMAR_REPEAT, .children = pair, .num_children = 1, .min = 1, .max = 3},
      {.kind = GRAMMAR_REPEAT, .children = pair, .num_children = 2, .min = 1, .max = 3},
      {.kind = GRAMMAR_TOKEN, .token = 300},
      {.kind = GRAMMAR_TOKEN, .token = 301},
  };
  const uint64_t num_schemas = sizeof schemas / sizeof *schemas;
  const uint64_t num_sources = sizeof sources / sizeof *sources;
  for (int round = 0; round < 2; round++) {
    for (uint64_t i = 0; i < num_schemas; i++) compile_schema(cache, rig, schemas[i], false);
    for (uint64_t i = 0; i < num_sources; i++) compile(cache, rig, &sources[i]);
  }
  compile_schema(cache, rig,
                 "{\"type\":\"object\",\"properties\":{},\"required\":[],\"additionalProperties\":"
                 "false}",
                 false);
  compile_schema(cache, rig,
                 "{\"type\":\"object\",\"properties\":{},\"required\":[],\"additionalProperties\":"
                 "false}",
                 true);
  grammar_cache_stats_t stats = grammar_cache_stats(cache);
  ASSERT_EQ(stats.misses, num_schemas + num_sources + 2);
  ASSERT_EQ(stats.hits, num_schemas + num_sources);
  grammar_cache_free(cache);
  rig_free(rig);
}

Test(cache, keeps_within_its_bytes_and_drops_the_longest_unused) {
  rig_t *rig = rig_new();
  char text[32];
  grammar_source_t hot = text_source(GRAMMAR_REGEX, "hot");
  grammar_cache_t *cache = cache_new((size_t)256 << 10);
  compile(cache, rig, &hot);
  for (int i = 0; i < 200; i++) {
    snprintf(text, sizeof text, "[a-z]{%d}", i + 1);
    grammar_source_t cold = text_source(GRAMMAR_REGEX, text);
    compile(cache, rig, &cold);
    ASSERT_LE(grammar_cache_stats(cache).bytes, (size_t)256 << 10);
    compile(cache, rig, &hot);
  }
  grammar_cache_stats_t stats = grammar_cache_stats(cache);
  ASSERT_EQ(stats.hits, 200);
  ASSERT_GT(stats.evictions, 100);
  ASSERT_EQ(stats.entries + stats.evictions, 201);
  grammar_cache_free(cache);
  rig_free(rig);
}

Test(cache, a_grammar_outlives_its_entry) {
  rig_t *rig = rig_new();
  inferd_error_t error = {0};
  grammar_source_t source = text_source(GRAMMAR_REGEX, "[ab]c");
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  ASSERT_EQ(grammar_cache_compile(cache, &source, rig->vocabulary, NULL, &rig->grammar, &error), 0);
  grammar_cache_free(cache);
  cr_assert(rig_accepts(rig, "bc"));
  rig_free(rig);
}

/* A refusal costs its work once; it names the field of the request that it answers. */
Test(cache, a_refusal_is_kept) {
  rig_t *rig = rig_new();
  grammar_t *grammar = NULL;
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  grammar_source_t wrong = text_source(GRAMMAR_REGEX, "(?:a|b)*a(?:a|b){14}");
  static const char *const fields[] = {"regex", "guided_regex"};
  grammar_account_t account = {.client = 1};
  for (int i = 0; i < 4; i++) {
    inferd_error_t error = {0};
    wrong.param = fields[i / 2];
    account.work = 0;
    int code = grammar_cache_find(cache, &wrong, rig->vocabulary, &grammar, &error);
    ASSERT_EQ(code, i % 2 == 0 ? GRAMMAR_CACHE_MISS : ERR_BAD_REQUEST);
    ASSERT_EQ(grammar_cache_compile(cache, &wrong, rig->vocabulary, &account, &grammar, &error),
              ERR_BAD_REQUEST);
    ASSERT_STR_EQ(error.param, fields[i / 2]);
    cr_assert(error.message[0] != '\0');
    if (i % 2 == 0) {
      cr_assert_gt(account.work, 1000);
    } else {
      ASSERT_EQ(account.work, 0);
    }
  }
  grammar_cache_free(cache);
  rig_free(rig);
}

/* A client that brings thousands of constraints that are refused forgets its own ones alone. */
Test(cache, refusals_have_shares) {
  rig_t *rig = rig_new();
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  grammar_account_t honest = {.client = 1}, flood = {.client = 2};
  grammar_source_t wrong = text_source(GRAMMAR_REGEX, "(a");
  ASSERT_EQ(grammar_cache_compile(cache, &wrong, rig->vocabulary, &honest, &grammar, &error),
            ERR_INVALID_VALUE);
  for (int i = 0; i < 2 * GRAMMAR_REFUSALS_MAX; i++) {
    char text[32];
    snprintf(text, sizeof text, "(%d", i);
    grammar_source_t other = text_source(GRAMMAR_REGEX, text);
    cr_assert_neq(grammar_cache_compile(cache, &other, rig->vocabulary, &flood, &grammar, &error),
                  0);
  }
  ASSERT_EQ(grammar_cache_find(cache, &wrong, rig->vocabulary, &grammar, &error),
            ERR_INVALID_VALUE);
  grammar_source_t first = text_source(GRAMMAR_REGEX, "(0");
  ASSERT_EQ(grammar_cache_find(cache, &first, rig->vocabulary, &grammar, &error),
            GRAMMAR_CACHE_MISS);
  grammar_cache_free(cache);
  rig_free(rig);
}

Test(cache, large_constraints_are_not_kept) {
  rig_t *rig = rig_new();
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  grammar_cache_t *cache = cache_new(BYTES_MAX);
  static char marker[GRAMMAR_CACHE_KEY_MAX + 2];
  memset(marker, 'x', sizeof marker - 1);
  grammar_source_t large = text_source(GRAMMAR_EBNF, marker);
  ASSERT_NE(grammar_cache_compile(cache, &large, rig->vocabulary, NULL, &grammar, &error), 0);
  grammar_source_t small = text_source(GRAMMAR_REGEX, "a");
  grammar_cache_t *tiny = cache_new(1000); /* less than any grammar takes */
  compile(tiny, rig, &small);
  compile(tiny, rig, &small);
  ASSERT_EQ(grammar_cache_stats(tiny).misses, 2);
  ASSERT_EQ(grammar_cache_stats(cache).entries + grammar_cache_stats(tiny).entries, 0);
  grammar_cache_free(cache);
  grammar_cache_free(tiny);
  rig_free(rig);
}

typedef struct user {
  grammar_cache_t *cache;
  const rig_t *rig;
  uint64_t state;
} user_t;

static void *use(void *argument) {
  user_t *user = argument;
  for (int i = 0; i < TURNS; i++) {
    char text[32];
    snprintf(text, sizeof text, "[a-z]{%d}", 1 + (int)(rig_random(&user->state) % 24));
    grammar_source_t source = text_source(GRAMMAR_REGEX, text);
    grammar_t *grammar = NULL;
    inferd_error_t error = {0};
    int code =
        grammar_cache_compile(user->cache, &source, user->rig->vocabulary, NULL, &grammar, &error);
    if (code) return user;
    if (grammar_bytes(grammar) == 0) return user;
    grammar_unref(grammar);
  }
  return NULL;
}

Test(cache, threads_share_it) {
  rig_t *rig = rig_new();
  grammar_cache_t *cache = cache_new((size_t)16 << 10); /* about half of what they use */
  pthread_t threads[THREADS];
  user_t users[THREADS];
  for (int i = 0; i < THREADS; i++) {
    users[i] = (user_t){cache, rig, (uint64_t)i};
    ASSERT_EQ(pthread_create(&threads[i], NULL, use, &users[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    cr_assert_null(failed);
  }
  grammar_cache_stats_t stats = grammar_cache_stats(cache);
  ASSERT_EQ(stats.hits + stats.misses, THREADS * TURNS);
  ASSERT_GT(stats.evictions, 0);
  grammar_cache_free(cache);
  rig_free(rig);
}
