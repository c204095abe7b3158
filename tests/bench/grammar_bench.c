/* grammar_bench.c: what constrained output costs: masks at 128,000 tokens, compiling, the trie.
 *
 * One thread, no model: texts are followed token by token as a model would write them (the longest
 * allowed token that matches a sample text), and each mask is timed by itself. Prints microseconds:
 * p50, p90, p99 and the largest. The vocabulary is made here: bytes, then pieces of words as byte
 * pair merges would give, with the same mixture of lengths.
 */
#include "engine/base/clock.h"
#include "engine/grammar/mask/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 128000, STOP = TOKENS, TOKEN_BYTES = 32, ROUNDS = 40, SAMPLES_MAX = 200000 };

typedef struct token {
  char bytes[TOKEN_BYTES - 1];
  uint8_t length;
} token_t;

typedef struct bench {
  token_t *tokens;
  grammar_vocabulary_t *vocabulary;
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  uint32_t *row;
  double *samples;
  size_t num_samples;
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

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  const token_t *tokens = context;
  *length = tokens[id].length;
  return tokens[id].bytes;
}

static int by_size(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static void report(bench_t *b, const char *name) {
  if (b->num_samples == 0) return;
  qsort(b->samples, b->num_samples, sizeof *b->samples, by_size);
  size_t n = b->num_samples;
  printf("%-34s %8zu  p50 %8.1f  p90 %8.1f  p99 %8.1f  max %8.1f us\n", name, n, b->samples[n / 2],
         b->samples[n * 9 / 10], b->samples[n * 99 / 100], b->samples[n - 1]);
  b->num_samples = 0;
}

static void note(bench_t *b, uint64_t start_ns) {
  if (b->num_samples < SAMPLES_MAX) {
    b->samples[b->num_samples++] = (double)(clock_now_ns() - start_ns) / 1e3;
  }
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

typedef struct sample {
  const char *name;
  grammar_kind_t kind;
  const char *constraint, *text;
} sample_t;

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
    {"regex", GRAMMAR_REGEX, "(?:[a-z]+ ?){1,40}\\.", "the rain in these hills falls on the seas."},
    {"grammar, arithmetic", GRAMMAR_EBNF,
     "root ::= e\ne ::= t ((\"+\" | \"-\") t)*\nt ::= f ((\"*\" | \"/\") f)*\nf ::= [0-9]+ | \"(\" "
     "e \")\"",
     "(12+3)*(4-5)/67+(8*(9-1))"},
};

static grammar_t *compile(bench_t *b, const sample_t *s, json_doc_t **doc) {
  inferd_error_t error = {0};
  grammar_t *g = NULL;
  grammar_source_t source = {.kind = s->kind, .text = s->constraint};
  source.length = strlen(s->constraint);
  *doc = NULL;
  if (s->kind == GRAMMAR_JSON_SCHEMA || s->kind == GRAMMAR_PARAMETERS) {
    if (json_parse(s->constraint, source.length, &json_limits_request, doc, &error)) exit(1);
    source.schema = json_root(*doc);
  }
  uint64_t start = clock_now_ns();
  if (grammar_compile(&source, b->vocabulary, NULL, NULL, &g, &error)) {
    fprintf(stderr, "%s: %s\n", s->name, error.message);
    exit(1);
  }
  note(b, start);
  return g;
}

static void follow(bench_t *b, const sample_t *s, const grammar_t *g, double *all, size_t *count) {
  int32_t stop = STOP;
  const char *text = s->text;
  if (grammar_matcher_start(b->matcher, b->scratch, g, b->vocabulary)) exit(1);
  while (!grammar_matcher_is_finished(b->matcher)) {
    uint64_t start = clock_now_ns();
    if (grammar_matcher_fill(b->matcher, b->scratch, &stop, 1, b->row)) exit(1);
    note(b, start);
    if (*count < SAMPLES_MAX) all[(*count)++] = b->samples[b->num_samples - 1];
    int32_t id = choose(b, text);
    if (id < 0) break; /* the sample has ended where the text may go on */
    text += b->tokens[id].length;
    if (grammar_matcher_accept(b->matcher, b->scratch, id)) exit(1);
  }
  if (*text) {
    fprintf(stderr, "%s: the sample does not fit at '%s'\n", s->name, text);
    exit(1);
  }
}

static void bench_vocabulary(bench_t *b) {
  inferd_error_t error = {0};
  for (int i = 0; i < 5; i++) {
    grammar_vocabulary_free(b->vocabulary);
    uint64_t start = clock_now_ns();
    if (grammar_vocabulary_new(token_bytes, b->tokens, TOKENS, TOKENS + 1, &b->vocabulary,
                               &error)) {
      exit(1);
    }
    note(b, start);
  }
  report(b, "trie of 128,000 tokens");
  const grammar_vocabulary_t *v = b->vocabulary;
  printf("%-34s %u nodes, %u tokens outside plain strings, %u ready rows\n", "", v->num_nodes,
         v->group_ids[GROUP_COUNT] - v->group_ids[GROUP_OTHER], v->num_large);
}

/* ---- constraints that a hostile client would send ---- */

enum { TEXT_MAX = 32768, WALKS = 12, WALK_TOKENS = 40 };

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

/* Random walks; returns how many ended with an error of the grammar. */
static int wander(bench_t *b, const grammar_t *g) {
  int32_t stop = STOP;
  int failed = 0;
  for (uint64_t seed = 1; seed <= WALKS; seed++) {
    uint64_t state = seed;
    int code = grammar_matcher_start(b->matcher, b->scratch, g, b->vocabulary);
    for (int i = 0; i < WALK_TOKENS && !code; i++) {
      if (grammar_matcher_is_finished(b->matcher)) break;
      uint64_t start = clock_now_ns();
      code = grammar_matcher_fill(b->matcher, b->scratch, &stop, 1, b->row);
      note(b, start);
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
  json_doc_t *doc;
  sample_t sample = {.name = name, .kind = kind, .constraint = text};
  grammar_t *g = compile(b, &sample, &doc);
  b->num_samples = 0;
  int failed = wander(b, g);
  snprintf(line, sizeof line, "mask %s", name);
  report(b, line);
  printf("%-34s %d of %d texts ended with an error\n", "", failed, WALKS);
  grammar_unref(g);
  json_free(doc);
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

int main(void) {
  bench_t b = {0};
  uint64_t state = 1;
  size_t count = 0, num_samples = sizeof samples / sizeof *samples;
  double *all = calloc(SAMPLES_MAX, sizeof *all);
  b.tokens = calloc(TOKENS, sizeof *b.tokens);
  b.samples = calloc(SAMPLES_MAX, sizeof *b.samples);
  b.matcher = aligned_alloc(64, grammar_matcher_bytes());
  b.scratch = aligned_alloc(64, grammar_scratch_bytes());
  if (!all || !b.tokens || !b.samples || !b.matcher || !b.scratch) return 1;
  memset(b.scratch, 0, grammar_scratch_bytes());
  for (int32_t id = 0; id < TOKENS; id++) make_token(&b.tokens[id], id, &state);
  bench_vocabulary(&b);
  b.row = calloc((size_t)grammar_row_words(b.vocabulary), sizeof *b.row);
  if (!b.row) return 1;
  for (size_t i = 0; i < num_samples; i++) {
    char name[64];
    json_doc_t *doc;
    for (int round = 0; round < ROUNDS; round++) {
      grammar_unref(compile(&b, &samples[i], &doc));
      json_free(doc);
    }
    snprintf(name, sizeof name, "compile %s", samples[i].name);
    report(&b, name);
    grammar_t *g = compile(&b, &samples[i], &doc);
    b.num_samples = 0;
    for (int round = 0; round < ROUNDS / 8; round++) follow(&b, &samples[i], g, all, &count);
    snprintf(name, sizeof name, "mask %s", samples[i].name);
    report(&b, name);
    grammar_unref(g);
    json_free(doc);
  }
  memcpy(b.samples, all, count * sizeof *all);
  b.num_samples = count;
  report(&b, "mask, all of them");
  bench_hostile_all(&b);
  grammar_vocabulary_free(b.vocabulary);
  free(all), free(b.tokens), free(b.samples), free(b.matcher), free(b.scratch), free(b.row);
  return 0;
}
