/* fuzz_request.c: request bodies, and the constraints they may carry.
 *
 * request: a body of /v1/completions and /v1/chat/completions. grammar: the first byte chooses
 * JSON schema, regex, choice or EBNF; the rest is its text.
 */
#include "engine/grammar/grammar.h"
#include "server/arena.h"
#include "server/params.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>

void fuzz_request(const uint8_t *data, size_t size) {
  json_doc_t *doc = NULL;
  error_t error = {0};
  field_limits_t limits = {.vocab_size = 1000, .max_logprobs = 20, .strict = size % 2 == 1};
  params_defaults_t defaults = {.stream_interval = 1};
  if (json_parse((const char *)data, size, &json_limits_request, &doc, &error) != 0) return;
  for (int chat = 0; chat < 2; chat++) {
    arena_t arena = {0};
    static params_t params;
    reader_t reader = {.limits = &limits, .arena = &arena, .error = &error};
    memset(&params, 0, sizeof params);
    if (params_read(&params, chat == 1, &defaults, &reader, json_root(doc)) == 0)
      (void)params_check(&params, &limits, &error);
    arena_release(&arena);
  }
  json_free(doc);
}

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  static char bytes[256];
  (void)context;
  bytes[id & 255] = (char)id;
  *length = 1;
  return &bytes[id & 255];
}

void fuzz_grammar(const uint8_t *data, size_t size) {
  static grammar_vocabulary_t *vocabulary;
  static const grammar_kind_t kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE,
                                         GRAMMAR_EBNF};
  error_t error = {0};
  json_doc_t *doc = NULL;
  grammar_t *grammar = NULL;
  if (size < 2) return;
  if (vocabulary == NULL &&
      grammar_vocabulary_new(token_bytes, NULL, 256, 256, &vocabulary, &error) != 0)
    return;
  grammar_limits_t limits = grammar_limits_default;
  limits.compile_ns_max = 1000000000u;
  grammar_source_t source = {.kind = kinds[data[0] % 4],
                             .param = "fuzz",
                             .text = (const char *)data + 1,
                             .length = size - 1,
                             .strict = (data[0] & 4) != 0};
  if (source.kind == GRAMMAR_JSON_SCHEMA || source.kind == GRAMMAR_CHOICE) {
    if (json_parse(source.text, source.length, &json_limits_request, &doc, &error) != 0) return;
    source.schema = json_root(doc);
  }
  if (grammar_compile(&source, vocabulary, &limits, NULL, &grammar, &error) == 0)
    grammar_unref(grammar);
  json_free(doc);
}
