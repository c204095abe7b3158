/* fuzz_grammar.c: constraints on generated text: JSON schemas and choices, regexes, user grammars.
 *
 * The constraint, a 0xFF byte, and one byte a step of generation that chooses the token. A mask and
 * `accept` must agree on that token; what may end and cannot go on must not be followed. Nothing
 * that compiled may end with an internal error, and no piece of work may cost more units than its
 * bound: an accepted token, a step of a mask over a large vocabulary.
 */
#include "engine/base/json_schema.h"
#include "engine/grammar/mask/masks.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

/* Units of a piece of work; it may cost GRAMMAR_UNITS_OVER more. Compiling may cost its limit and
 * what is spent between two looks at the account. */
enum { PIECE_UNITS = 50000, COMPILE_OVER = 1000000 };
enum { LARGE_TOKENS = 65536, LARGE_STEPS = 3, LARGE_BYTES = 8 };
enum { NUM_BYTES = 256, NUM_WORDS = 12, STOP = NUM_BYTES + NUM_WORDS, ROW_WIDTH, STEPS_MAX = 64 };

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  static const char *const words[NUM_WORDS] = {"\"}", "{\"",   "\": ", "true", "00", "null,",
                                               "],",  "\": [", "ab",   "1.",   " ",  "\xC3\xA9z"};
  static char bytes[NUM_BYTES];
  (void)context;
  *length = id < NUM_BYTES ? 1 : strlen(words[id - NUM_BYTES]);
  if (id >= NUM_BYTES) return words[id - NUM_BYTES];
  bytes[id] = (char)id;
  return &bytes[id];
}

/* All bytes, then words of 2 to 8 characters that JSON and user grammars like. */
static const char *large_token_bytes(const void *context, int32_t id, size_t *length) {
  static const char often[] = "etaoinshrdlu abcdefgABC0129{}[]\":,.-\\\n";
  static char bytes[LARGE_TOKENS][LARGE_BYTES];
  uint32_t state = (uint32_t)id * 2654435761u;
  (void)context;
  *length = id < NUM_BYTES ? 1 : 2 + (state >> 16) % (LARGE_BYTES - 1);
  for (size_t i = 0; i < *length; i++) {
    state = state * 1664525u + 1013904223u;
    bytes[id][i] = id < NUM_BYTES ? (char)id : often[(state >> 16) % (sizeof often - 1)];
  }
  return bytes[id];
}

static grammar_vocabulary_t *vocabulary, *large_vocabulary;
static grammar_masks_t *large_masks;
static grammar_matcher_t *matcher;
static grammar_scratch_t *scratch;

static void make_once(void) {
  inferd_error_t error;
  if (vocabulary != NULL) return;
  matcher = aligned_alloc(64, (grammar_matcher_bytes() + 63) / 64 * 64);
  scratch = aligned_alloc(64, (grammar_scratch_bytes() + 63) / 64 * 64);
  if (matcher == NULL || scratch == NULL) abort();
  memset(matcher, 0, grammar_matcher_bytes());
  memset(scratch, 0, grammar_scratch_bytes());
  if (grammar_vocabulary_new(token_bytes, NULL, STOP, ROW_WIDTH, &vocabulary, &error) != 0) abort();
  if (grammar_vocabulary_new(large_token_bytes, NULL, LARGE_TOKENS, LARGE_TOKENS + 1,
                             &large_vocabulary, &error) != 0 ||
      grammar_masks_new(large_vocabulary, 1, &large_masks, &error) != 0)
    abort();
}

static void check_piece(uint64_t before) {
  if (grammar_units(scratch) - before > PIECE_UNITS + GRAMMAR_UNITS_OVER) abort();
}

/* Takes the token, in pieces. Returns false if it is not allowed. */
static bool take(int32_t id) {
  for (;;) {
    uint64_t before = grammar_units(scratch);
    int code = grammar_matcher_accept_on(matcher, scratch, id, PIECE_UNITS);
    check_piece(before);
    if (code != GRAMMAR_LATER) return code == 0;
  }
}

/* Masks over a large vocabulary, in pieces as the engine makes them: each piece costs what it was
 * given, and a little more. */
static void follow_large(const grammar_t *grammar, const uint8_t *choices, size_t count) {
  static const int32_t stop = LARGE_TOKENS;
  static uint32_t row[LARGE_TOKENS / 32 + 1];
  if (grammar_matcher_start(matcher, scratch, grammar, large_vocabulary) != 0) abort();
  for (size_t i = 0; i < count && i < LARGE_STEPS; i++) {
    grammar_walk_t walk = {0};
    int code = GRAMMAR_LATER;
    for (int pieces = 0; code == GRAMMAR_LATER && pieces < 20; pieces++) {
      uint64_t before = grammar_units(scratch);
      code =
          grammar_masks_fill_on(large_masks, matcher, scratch, &stop, 1, &walk, PIECE_UNITS, row);
      check_piece(before);
      if (code < 0) abort();
    }
    if (code || grammar_matcher_is_finished(matcher)) return;
    int32_t id = choices[i];
    bool allowed = (row[id / 32] >> (id % 32) & 1) != 0;
    if (take(id) != allowed) abort();
  }
}

static void follow(const grammar_t *grammar, const uint8_t *choices, size_t count) {
  static const int32_t stop = STOP;
  uint32_t row[(ROW_WIDTH + 31) / 32];
  if (grammar_matcher_start(matcher, scratch, grammar, vocabulary) != 0) abort();
  if (count > STEPS_MAX) count = STEPS_MAX;
  for (size_t i = 0; i < count; i++) {
    if (grammar_matcher_fill(matcher, scratch, &stop, 1, row) != 0) abort();
    bool accepting = (row[STOP / 32] >> (STOP % 32) & 1) != 0;
    if (accepting != grammar_matcher_is_accepting(matcher)) abort();
    int32_t id = choices[i];
    if (i + 1 < count && id == 0x01) id = NUM_BYTES + choices[++i] % NUM_WORDS;
    bool allowed = (row[id / 32] >> (id % 32) & 1) != 0;
    if (allowed && grammar_matcher_is_finished(matcher)) abort();
    bool taken = take(id);
    if (taken != allowed) abort();
    if (!taken) return;
  }
}

static void run(grammar_source_t *source, const uint8_t *choices, size_t count) {
  inferd_error_t error = {0};
  grammar_t *grammar = NULL;
  grammar_limits_t limits = grammar_limits_default;
  limits.compile_ns_max = 1000000000u;
  grammar_account_t account = {0};
  make_once();
  int code = grammar_compile(source, vocabulary, &limits, &account, &grammar, &error);
  fuzz_cost += account.work;
  if (code == ERR_INTERNAL || account.work > limits.compile_work_max + COMPILE_OVER) abort();
  if (code != 0) return;
  follow(grammar, choices, count);
  follow_large(grammar, choices, count);
  grammar_unref(grammar);
}

/* An array is a choice, anything else a schema: of JSON, and of parameters in tags. */
void fuzz_schema(const uint8_t *data, size_t size) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  size_t length;
  fuzz_cost = 0;
  const char *text = (const char *)fuzz_part(&data, &size, 0xFF, &length);
  if (json_parse(text, length, &json_limits_request, &doc, &error) != 0) return;
  const json_t *root = json_root(doc);
  grammar_source_t source = {.kind =
                                 root->type == JSON_ARRAY ? GRAMMAR_CHOICE : GRAMMAR_JSON_SCHEMA,
                             .param = "fuzz",
                             .schema = root,
                             .strict = length % 2 == 1};
  run(&source, data, size);
  static const literal_words_t words[] = {{'(', '=', ')', NULL}, {'{', ':', '}', "<|\"|>"}};
  source.kind = GRAMMAR_PARAMETERS;
  if (length / 2 % 2 == 1) {
    source.kind = GRAMMAR_LITERALS;
    source.literals = &words[length / 4 % 2];
  }
  run(&source, data, size);
  json_free(doc);
}

static void fuzz_source(grammar_kind_t kind, const uint8_t *data, size_t size) {
  grammar_source_t source = {.kind = kind, .param = "fuzz"};
  fuzz_cost = 0;
  source.text = (const char *)fuzz_part(&data, &size, 0xFF, &source.length);
  run(&source, data, size);
}

void fuzz_regex(const uint8_t *data, size_t size) {
  fuzz_source(GRAMMAR_REGEX, data, size);
}

void fuzz_ebnf(const uint8_t *data, size_t size) {
  fuzz_source(GRAMMAR_EBNF, data, size);
}

void fuzz_lark(const uint8_t *data, size_t size) {
  fuzz_source(GRAMMAR_LARK, data, size);
}
