/* grammar_bench.c: what constrained output costs: masks at 128,000 tokens, compiling, the trie.
 *
 *   grammar_bench [masks] [compile] [hostile]      without arguments: all three
 *
 * One thread, no model: texts are followed token by token as a model would write them (the longest
 * allowed token that matches a sample text), and each mask is timed by itself: made anew; made anew
 * after the processor's own caches were swept, as a forward leaves them; and kept from an equal
 * place. Prints p50, p90, p99 and the largest, in microseconds of processor time, so that other
 * programs disturb little, and the units of the masks (grammar_units), which nothing disturbs.
 * Instructions: valgrind --tool=callgrind --toggle-collect=grammar_matcher_fill ... masks
 * The vocabulary is made here: bytes, then pieces of words as byte pair merges would give, with the
 * same mixture of lengths, no two alike.
 */
#include "engine/base/clock.h"
#include "engine/grammar/mask/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 128000, STOP = TOKENS, TOKEN_BYTES = 32, SAMPLES_MAX = 200000, PATH_MAX = 512 };
enum { ROUNDS = 5, COMPILE_ROUNDS = 20, SWEEP_BYTES = 16 << 20 };

typedef struct token {
  char bytes[TOKEN_BYTES - 1];
  uint8_t length;
} token_t;

typedef struct series {
  double values[SAMPLES_MAX];
  size_t count;
} series_t;

typedef struct bench {
  token_t *tokens;
  grammar_vocabulary_t *vocabulary;
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  grammar_masks_t *masks;
  uint32_t *row;
  uint8_t *sweep; /* [SWEEP_BYTES] */
  series_t *one;  /* of what is measured now */
  series_t *anew, *swept, *kept, *units;
} bench_t;

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* Letters by their frequency in English, so that prefixes are shared as in a real vocabulary. */
static char letter(uint64_t *state) {
  static const char often[] =
      "eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrr"
      "ddddlllluuuccmmffyywwggppbbvk";
  return often[next_random(state) % (sizeof often - 1)];
}

static void make_token(token_t *t, int32_t id, uint64_t *state) {
  static const char *const marks[] = {
      "\"",   "\":",  "\": \"", "\", \"", "\"},", "{\"",  "}}", "],",
      "\\n",  "\\\"", "\n  ",   "\n    ", ", ",   "[[",   "::", "//",
      "\", ", "\":",  " {",     "();\n",  "...",  "\t\t", " =", "->"};
  uint64_t kind = next_random(state) % 100, length = 2 + next_random(state) % 9;
  *t = (token_t){.length = 1};
  if (id < 256) {
    t->bytes[0] = (char)id;
    return;
  }
  if (kind < 2) { /* punctuation, with a tail of its own so that all differ a little */
    const char *mark = marks[next_random(state) % (sizeof marks / sizeof *marks)];
    t->length = (uint8_t)strlen(mark);
    memcpy(t->bytes, mark, t->length);
    for (uint64_t i = next_random(state) % 3; i > 0; i--) t->bytes[t->length++] = letter(state);
  } else if (kind < 4) {
    for (t->length = 0; t->length < 1 + id % 3; t->length++) {
      t->bytes[t->length] = (char)('0' + next_random(state) % 10);
    }
  } else if (kind < 9) { /* other scripts, some broken in the middle of a character */
    t->length = 0;
    for (uint64_t i = 1 + next_random(state) % 3; i > 0; i--) {
      t->bytes[t->length++] = (char)(0xE3 + next_random(state) % 5);
      t->bytes[t->length++] = (char)(0x80 + next_random(state) % 64);
      t->bytes[t->length++] = (char)(0x80 + next_random(state) % 64);
    }
    if (kind == 8 && id % 4 == 0) t->length--;
  } else {
    t->length = 0;
    if (kind < 60) t->bytes[t->length++] = ' ';
    if (kind % 5 == 0) t->bytes[t->length++] = (char)('A' + next_random(state) % 26);
    while (t->length < length) t->bytes[t->length++] = letter(state);
  }
}

static uint64_t hash_of(const token_t *t) {
  uint64_t hash = t->length;
  for (int i = 0; i < t->length; i++) hash = (hash ^ (uint8_t)t->bytes[i]) * 0x9E3779B97F4A7C15u;
  return hash >> 20;
}

static void make_tokens(token_t *tokens) {
  enum { SLOTS = 1 << 19 };
  static int32_t slots[SLOTS]; /* id + 1 */
  uint64_t state = 1;
  for (int32_t id = 0; id < TOKENS;) {
    token_t *t = &tokens[id];
    make_token(t, id, &state);
    uint64_t at = hash_of(t);
    for (; slots[at % SLOTS]; at++) {
      const token_t *other = &tokens[slots[at % SLOTS] - 1];
      if (other->length == t->length && memcmp(other->bytes, t->bytes, t->length) == 0) break;
    }
    if (slots[at % SLOTS]) continue;
    slots[at % SLOTS] = ++id;
  }
}

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  const token_t *tokens = context;
  *length = tokens[id].length;
  return tokens[id].bytes;
}

static int by_size(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static void report(series_t *series, const char *name, const char *unit) {
  size_t n = series->count;
  if (n == 0) return;
  qsort(series->values, n, sizeof *series->values, by_size);
  printf("%-40s %6zu  p50 %9.1f  p90 %9.1f  p99 %9.1f  max %9.1f %s\n", name, n,
         series->values[n / 2], series->values[n * 9 / 10], series->values[n * 99 / 100],
         series->values[n - 1], unit);
  fflush(stdout);
}

static void note(series_t *series, double value) {
  if (series->count < SAMPLES_MAX) series->values[series->count++] = value;
}

static double us_since(uint64_t start_ns) {
  return (double)(clock_thread_ns() - start_ns) / 1e3;
}

/* The longest allowed token that the text goes on with. */
static int32_t choose(const bench_t *b, const char *text) {
  size_t rest = strlen(text), best_length = 0;
  int32_t best = -1;
  for (int32_t id = 0; id < TOKENS; id++) {
    const token_t *t = &b->tokens[id];
    if (t->length <= best_length || t->length > rest || !(b->row[id / 32] >> (id % 32) & 1)) {
      continue;
    }
    if (memcmp(t->bytes, text, t->length) == 0) best = id, best_length = t->length;
  }
  return best;
}

/* ALTERNATIVES: a call of one of two functions with the same schema. */
typedef struct sample {
  const char *name;
  grammar_kind_t kind;
  const char *constraint, *text;
} sample_t;

static const char *const calls[] = {"<tool_call>\n{\"name\": \"get_forecast\", \"arguments\": ",
                                    "<tool_call>\n{\"name\": \"get_history\", \"arguments\": "};
static const char call_end[] = "}\n</tool_call>";

static const sample_t samples[] = {
    {"json_object", GRAMMAR_JSON_OBJECT, "{}",
     "{\"title\": \"the rain in these hills\", \"count\": 12, \"tags\": [\"one\", \"another "
     "one\"], "
     "\"inner\": {\"ratio\": -0.25e3, \"none\": null, \"text\": \"it said \\\"no\\\" and "
     "left\\n\"}}"},
    {"schema, person", GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":80},\"age\":"
     "{"
     "\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\","
     "\"format\":"
     "\"email\"},\"born\":{\"type\":\"string\",\"format\":\"date\"},\"kind\":{\"enum\":["
     "\"student\","
     "\"teacher\",\"other\"]},\"scores\":{\"type\":\"array\",\"items\":{\"type\":\"number\","
     "\"minimum\":"
     "0,\"maximum\":10},\"maxItems\":20}},\"required\":[\"name\",\"age\",\"kind\"],"
     "\"additionalProperties\":false}",
     "{\"name\": \"anna maria of the hills\", \"age\": 41, \"email\": \"anna.m@hills.org\", "
     "\"born\": "
     "\"1984-02-29\", \"kind\": \"teacher\", \"scores\": [1, 2.5, 10, 9.75]}"},
    {"schema, parts near their bounds", GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"email\":{\"type\":\"string\",\"format\":"
     "\"email\"},"
     "\"code\":{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]{2,12}-[a-z]{1,16}$\"}},"
     "\"required\":[\"email\",\"code\"],\"additionalProperties\":false}",
     "{\"email\": \"annamariaofthehills.and-of-the-seas@theinternational.houses-of-tea.museum\", "
     "\"code\": \"Thessalonians-internationals\"}"},
    {"schema, recursive anyOf", GRAMMAR_JSON_SCHEMA,
     "{\"$ref\":\"#/$defs/"
     "e\",\"$defs\":{\"e\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"object\","
     "\"properties\":{\"op\":{\"const\":\"add\"},\"left\":{\"$ref\":\"#/$defs/"
     "e\"},\"right\":{\"$ref\":"
     "\"#/$defs/e\"}},\"required\":[\"op\",\"left\",\"right\"],\"additionalProperties\":false},{"
     "\"type\":\"object\",\"properties\":{\"op\":{\"const\":\"say\"},\"text\":{\"type\":\"string\"}"
     "},"
     "\"required\":[\"op\",\"text\"],\"additionalProperties\":false}]}}}",
     "{\"op\": \"add\", \"left\": 1.5, \"right\": {\"op\": \"add\", \"left\": {\"op\": \"say\", "
     "\"text\": "
     "\"hello there\"}, \"right\": -7}}"},
    {"call in tags", GRAMMAR_PARAMETERS,
     "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"content\":{\"type\":"
     "\"string\"},\"line\":{\"type\":[\"integer\",\"null\"]},\"note\":{\"type\":\"string\","
     "\"maxLength\":80}},\"required\":[\"path\",\"content\"],\"additionalProperties\":false}",
     "<parameter=path>\nsrc/main.c\n</parameter>\n<parameter=content>\n#include <stdio.h>\n\nint "
     "main(void) {\n  printf(\"hello there\\n\");\n  return a < b ? 0 : 1;\n}\n\n</parameter>\n"
     "<parameter=line>\n12\n</parameter>\n<parameter=note>\nsays what it is for, and no more than "
     "that\n</parameter>\n</function>"},
    {"schema, list of orders", GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"orders\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\","
     "\"properties\":{\"id\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-9]{4,8}$\"},\"state\":"
     "{"
     "\"enum\":[\"open\",\"paid\",\"sent\",\"returned\",\"cancelled\"]},\"price\":{\"type\":"
     "\"number\","
     "\"minimum\":0},\"lines\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":9,\"items\":{"
     "\"type\":"
     "\"object\",\"properties\":{\"sku\":{\"type\":\"string\"},\"count\":{\"type\":\"integer\","
     "\"minimum\":"
     "1}},\"required\":[\"sku\",\"count\"],\"additionalProperties\":false}},\"gift\":{\"type\":"
     "\"boolean\"},"
     "\"note\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}},\"required\":[\"id\","
     "\"state\","
     "\"price\",\"lines\"],\"additionalProperties\":false}}},\"required\":[\"orders\"],"
     "\"additionalProperties\":false}",
     "{\"orders\": [{\"id\": \"AB-20418\", \"state\": \"paid\", \"price\": 129.5, \"lines\": "
     "[{\"sku\": "
     "\"red lantern\", \"count\": 2}, {\"sku\": \"rope\", \"count\": 14}], \"gift\": true, "
     "\"note\": "
     "\"ring at the other door\"}, {\"id\": \"CD-7001\", \"state\": \"cancelled\", \"price\": 8, "
     "\"lines\": [{\"sku\": \"tea\", \"count\": 1}], \"note\": null}]}"},
    {"any JSON", GRAMMAR_JSON_SCHEMA, "{}",
     "[{\"a\": [1, 2, [3.5, \"four\"]], \"b\": {\"c\": {}}}, \"and some more text\", true, -12e4]"},
    {"tools, one of two", GRAMMAR_ALTERNATIVES,
     "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"
     "\"integer\","
     "\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]}},\"required\":"
     "["
     "\"city\",\"unit\"],\"additionalProperties\":false}",
     "<tool_call>\n{\"name\": \"get_forecast\", \"arguments\": {\"city\": \"Thessaloniki\", "
     "\"days\": 3, "
     "\"unit\": \"celsius\"}}\n</tool_call>"},
    {"regex", GRAMMAR_REGEX, "(?:[a-z]+ ?){1,40}\\.", "the rain in these hills falls on the seas."},
    {"regex, lines of a log", GRAMMAR_REGEX,
     "(?:[0-9]{4}-[0-9]{2}-[0-9]{2} (?:INFO|WARN|ERROR) [a-z_.]+: [^\\n]{1,60}\\n){1,3}",
     "2024-05-17 WARN net.http: the other side closed early\n2024-05-18 INFO disk: 80% used\n"},
    {"grammar, arithmetic", GRAMMAR_EBNF,
     "root ::= e\ne ::= t ((\"+\" | \"-\") t)*\nt ::= f ((\"*\" | \"/\") f)*\nf ::= [0-9]+ | \"(\" "
     "e \")\"",
     "(12+3)*(4-5)/67+(8*(9-1))"},
    {"grammar, queries", GRAMMAR_EBNF,
     "root ::= \"SELECT \" cols \" FROM \" name (\" WHERE \" cond)? \";\"\ncols ::= \"*\" | name "
     "(\", \" "
     "name)*\nname ::= [a-z_]+\ncond ::= term ((\" AND \" | \" OR \") term)*\nterm ::= name \" \" "
     "op \" \" "
     "value | \"(\" cond \")\"\nop ::= \"=\" | \"<\" | \">\" | \"LIKE\"\nvalue ::= [0-9]+ | \"'\" "
     "[^']* "
     "\"'\"",
     "SELECT title, price_of FROM the_books WHERE (author = 'some one' OR price_of < 12) AND year "
     "> "
     "1990;"},
};

static json_doc_t *parse(const char *text) {
  inferd_error_t error = {0};
  json_doc_t *doc = NULL;
  if (json_parse(text, strlen(text), &json_limits_request, &doc, &error)) exit(1);
  return doc;
}

static grammar_t *compile_source(bench_t *b, const sample_t *s, const grammar_source_t *source) {
  inferd_error_t error = {0};
  grammar_t *g = NULL;
  uint64_t start = clock_thread_ns();
  if (grammar_compile(source, b->vocabulary, NULL, NULL, &g, &error)) {
    fprintf(stderr, "%s: %s\n", s->name, error.message);
    exit(1);
  }
  note(b->one, us_since(start));
  return g;
}

static grammar_source_t literal(const char *text) {
  return (grammar_source_t){.kind = GRAMMAR_LITERAL, .text = text, .length = strlen(text)};
}

static grammar_t *compile(bench_t *b, const sample_t *s) {
  grammar_source_t source = {.kind = s->kind, .text = s->constraint};
  json_doc_t *doc = NULL;
  source.length = strlen(s->constraint);
  bool tools = s->kind == GRAMMAR_ALTERNATIVES;
  if (tools) source.kind = GRAMMAR_JSON_SCHEMA;
  if (source.kind == GRAMMAR_JSON_SCHEMA || source.kind == GRAMMAR_PARAMETERS) {
    doc = parse(s->constraint);
    source.schema = json_root(doc);
  }
  grammar_source_t all = source, parts[6], sequences[2];
  for (size_t i = 0; i < 2 && tools; i++) {
    parts[3 * i] = literal(calls[i]);
    parts[3 * i + 1] = source;
    parts[3 * i + 2] = literal(call_end);
    sequences[i] =
        (grammar_source_t){.kind = GRAMMAR_SEQUENCE, .children = &parts[3 * i], .num_children = 3};
    all =
        (grammar_source_t){.kind = GRAMMAR_ALTERNATIVES, .children = sequences, .num_children = 2};
  }
  grammar_t *g = compile_source(b, s, &all);
  json_free(doc);
  return g;
}

/* ---- masks ---- */

/* The tokens of a sample. */
typedef struct path {
  int32_t ids[PATH_MAX];
  int count;
} path_t;

static void find_path(const bench_t *b, const sample_t *s, const grammar_t *g, path_t *path) {
  int32_t stop = STOP;
  const char *text = s->text;
  path->count = 0;
  if (grammar_matcher_start(b->matcher, b->scratch, g, b->vocabulary)) exit(1);
  while (!grammar_matcher_is_finished(b->matcher) && path->count < PATH_MAX) {
    if (grammar_matcher_fill(b->matcher, b->scratch, &stop, 1, b->row)) exit(1);
    int32_t id = choose(b, text);
    if (id < 0) break; /* the sample has ended where the text may go on */
    text += b->tokens[id].length;
    path->ids[path->count++] = id;
    if (grammar_matcher_accept(b->matcher, b->scratch, id)) exit(1);
  }
  if (*text) {
    fprintf(stderr, "%s: the sample does not fit at '%s'\n", s->name, text);
    exit(1);
  }
}

static void sweep(const bench_t *b) {
  for (size_t i = 0; i < SWEEP_BYTES; i += 64) b->sweep[i]++;
}

typedef enum way { ANEW, SWEPT, KEPT } way_t;

/* Times every mask on the path, the one behind its end included. */
static void follow(bench_t *b, const grammar_t *g, const path_t *path, way_t way, series_t *all) {
  int32_t stop = STOP;
  bool hit;
  if (grammar_matcher_start(b->matcher, b->scratch, g, b->vocabulary)) exit(1);
  for (int i = 0; i <= path->count && !grammar_matcher_is_finished(b->matcher); i++) {
    if (way == KEPT) grammar_masks_fill(b->masks, b->matcher, b->scratch, &stop, 1, b->row, &hit);
    if (way == SWEPT) sweep(b);
    uint64_t start = clock_thread_ns(), units = grammar_units(b->scratch);
    int code = way == KEPT
                   ? grammar_masks_fill(b->masks, b->matcher, b->scratch, &stop, 1, b->row, &hit)
                   : grammar_matcher_fill(b->matcher, b->scratch, &stop, 1, b->row);
    double us = us_since(start);
    if (code) exit(1);
    note(all, us);
    note(b->one, us);
    if (way == ANEW) note(b->units, (double)(grammar_units(b->scratch) - units));
    if (i < path->count && grammar_matcher_accept(b->matcher, b->scratch, path->ids[i])) exit(1);
  }
}

static void bench_masks(bench_t *b) {
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    char name[64];
    path_t path;
    grammar_t *g = compile(b, &samples[i]);
    find_path(b, &samples[i], g, &path);
    b->one->count = 0;
    for (int round = 0; round < ROUNDS; round++) follow(b, g, &path, ANEW, b->anew);
    snprintf(name, sizeof name, "mask %s", samples[i].name);
    report(b->one, name, "us");
    follow(b, g, &path, SWEPT, b->swept);
    follow(b, g, &path, KEPT, b->kept);
    b->one->count = 0;
    grammar_unref(g);
  }
  report(b->anew, "masks made anew", "us");
  report(b->swept, "masks made anew, caches swept", "us");
  report(b->kept, "masks kept", "us");
  report(b->units, "masks made anew", "units");
}

/* ---- compiling ---- */

static void bench_compile(bench_t *b) {
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    char name[64];
    b->one->count = 0;
    for (int round = 0; round < COMPILE_ROUNDS; round++) grammar_unref(compile(b, &samples[i]));
    snprintf(name, sizeof name, "compile %s", samples[i].name);
    report(b->one, name, "us");
  }
}

static void bench_vocabulary(bench_t *b) {
  inferd_error_t error = {0};
  for (int i = 0; i < 3; i++) {
    grammar_vocabulary_free(b->vocabulary);
    uint64_t start = clock_thread_ns();
    if (grammar_vocabulary_new(token_bytes, b->tokens, TOKENS, TOKENS + 1, &b->vocabulary,
                               &error)) {
      exit(1);
    }
    note(b->one, us_since(start));
  }
  report(b->one, "trie of 128,000 tokens", "us");
  const grammar_vocabulary_t *v = b->vocabulary;
  printf("%-40s %u nodes, %u tokens outside plain strings, %u ready rows\n", "", v->num_nodes,
         v->group_ids[GROUP_COUNT] - v->group_ids[GROUP_OTHER], v->num_large);
}

/* ---- constraints that a hostile client would send ---- */

enum { TEXT_MAX = 32768, WALKS = 4, WALK_TOKENS = 25 };
static const double HOSTILE_US_MAX = 3e6; /* of masks, for each constraint: then no text begins */

/* Rules that all lead to one: every byte closes over all of them. */
static void write_chain(char *text, int count) {
  size_t at = (size_t)snprintf(text, TEXT_MAX, "root ::= a0\n");
  for (int i = 0; i < count; i++)
    at += (size_t)snprintf(text + at, TEXT_MAX - at, "a%d ::= a%d | b\n", i, i + 1);
  snprintf(text + at, TEXT_MAX - at,
           "a%d ::= b\nb ::= [a-zA-Z0-9 .,'()-] a0 \"q\" | [a-zA-Z0-9 .,'()-]\n", count);
}

/* Recursive rules side by side: all are followed at once. */
static void write_side_by_side(char *text, int count) {
  size_t at = (size_t)snprintf(text, TEXT_MAX, "root ::= r0");
  for (int i = 1; i < count; i++) at += (size_t)snprintf(text + at, TEXT_MAX - at, " | r%d", i);
  for (int i = 0; i < count; i++) {
    at += (size_t)snprintf(text + at, TEXT_MAX - at,
                           "\nr%d ::= [a-zA-Z0-9 .,'()-] r%d \"q%d\" | [a-zA-Z0-9 .,'()-] \"w%d\"",
                           i, i, i, i);
  }
}

/* Object types that may all hold each other. */
static void write_union(char *text, int count) {
  char any[1024];
  size_t at = 0, length = 0;
  for (int i = 0; i < count; i++) {
    length += (size_t)snprintf(any + length, sizeof any - length, "%s{\"$ref\":\"#/$defs/T%d\"}",
                               i ? "," : "", i);
  }
  at += (size_t)snprintf(text, TEXT_MAX, "{\"$defs\":{");
  for (int i = 0; i < count; i++) {
    at += (size_t)snprintf(text + at, TEXT_MAX - at,
                           "%s\"T%d\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[%s,"
                           "{\"type\":\"null\"}]},\"v%d\":{\"enum\":[\"a\",\"b\"]}},\"required\":["
                           "\"next\"],\"additionalProperties\":false}",
                           i ? "," : "", i, any, i);
  }
  snprintf(text + at, TEXT_MAX - at,
           "},\"type\":\"object\",\"properties\":{\"r\":{\"anyOf\":[%s]}},\"required\":[\"r\"],"
           "\"additionalProperties\":false}",
           any);
}

/* A random allowed id, as a model at a high temperature draws it. */
static int32_t draw(const bench_t *b, uint64_t *state) {
  uint64_t seen = 0;
  int32_t chosen = -1;
  for (int32_t id = 0; id < TOKENS; id++) {
    if ((b->row[id / 32] >> (id % 32) & 1) && next_random(state) % ++seen == 0) chosen = id;
  }
  return chosen;
}

/* Random walks; returns how many ended with an error of the grammar, of *texts. */
static int wander(bench_t *b, const grammar_t *g, int *texts) {
  int32_t stop = STOP;
  int failed = 0;
  double spent = 0;
  for (*texts = 0; *texts < WALKS && spent < HOSTILE_US_MAX; ++*texts) {
    uint64_t state = (uint64_t)*texts + 1;
    int code = grammar_matcher_start(b->matcher, b->scratch, g, b->vocabulary);
    for (int i = 0; i < WALK_TOKENS && !code && spent < HOSTILE_US_MAX; i++) {
      if (grammar_matcher_is_finished(b->matcher)) break;
      uint64_t start = clock_thread_ns(), units = grammar_units(b->scratch);
      code = grammar_matcher_fill(b->matcher, b->scratch, &stop, 1, b->row);
      note(b->one, us_since(start));
      note(b->units, (double)(grammar_units(b->scratch) - units));
      spent += us_since(start);
      int32_t id = code ? -1 : draw(b, &state);
      if (id < 0) break;
      code = grammar_matcher_accept(b->matcher, b->scratch, id);
    }
    failed += code != 0;
  }
  return failed;
}

static void bench_hostile(bench_t *b, const char *name, grammar_kind_t kind, const char *text) {
  char line[64];
  int texts;
  sample_t sample = {.name = name, .kind = kind, .constraint = text};
  grammar_t *g = compile(b, &sample);
  b->one->count = b->units->count = 0;
  int failed = wander(b, g, &texts);
  snprintf(line, sizeof line, "mask %s", name);
  report(b->one, line, "us");
  report(b->units, "", "units");
  printf("%-40s %d of %d texts ended with an error\n", "", failed, texts);
  grammar_unref(g);
}

static void bench_hostile_all(bench_t *b) {
  static char text[TEXT_MAX];
  write_chain(text, 40);
  bench_hostile(b, "hostile, chain of 40 rules", GRAMMAR_EBNF, text);
  write_chain(text, 120);
  bench_hostile(b, "hostile, chain of 120 rules", GRAMMAR_EBNF, text);
  write_side_by_side(text, 12);
  bench_hostile(b, "hostile, 12 rules side by side", GRAMMAR_EBNF, text);
  for (int count = 2; count <= 8; count *= 2) {
    char name[40];
    snprintf(name, sizeof name, "hostile, union of %d types", count);
    write_union(text, count);
    bench_hostile(b, name, GRAMMAR_JSON_SCHEMA, text);
  }
}

static bool wanted(int argc, char **argv, const char *part) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], part) == 0) return true;
  }
  return argc < 2;
}

static bool make(bench_t *b) {
  series_t **const series[] = {&b->one, &b->anew, &b->swept, &b->kept, &b->units};
  for (size_t i = 0; i < sizeof series / sizeof *series; i++) {
    *series[i] = calloc(1, sizeof **series[i]);
    if (*series[i] == NULL) return false;
  }
  b->tokens = calloc(TOKENS, sizeof *b->tokens);
  b->sweep = calloc(SWEEP_BYTES, 1);
  b->matcher = aligned_alloc(64, grammar_matcher_bytes());
  b->scratch = aligned_alloc(64, grammar_scratch_bytes());
  if (!b->tokens || !b->sweep || !b->matcher || !b->scratch) return false;
  memset(b->scratch, 0, grammar_scratch_bytes());
  return true;
}

int main(int argc, char **argv) {
  static bench_t bench;
  bench_t *b = &bench;
  inferd_error_t error = {0};
  if (!make(b)) return 1;
  make_tokens(b->tokens);
  bench_vocabulary(b);
  b->row = calloc((size_t)grammar_row_words(b->vocabulary), sizeof *b->row);
  if (!b->row || grammar_masks_new(b->vocabulary, (size_t)16 << 20, &b->masks, &error)) return 1;
  if (wanted(argc, argv, "masks")) bench_masks(b);
  if (wanted(argc, argv, "compile")) bench_compile(b);
  if (wanted(argc, argv, "hostile")) bench_hostile_all(b);
  grammar_masks_free(b->masks);
  grammar_vocabulary_free(b->vocabulary);
  free(b->one), free(b->anew), free(b->swept), free(b->kept), free(b->units);
  free(b->tokens), free(b->sweep), free(b->matcher), free(b->scratch), free(b->row);
  return 0;
}
