/* fuzz_request.c: a body of /v1/completions and /v1/chat/completions. */
#include "engine/base/arena.h"
#include "server/fields/params.h"
#include "tests/fuzz/targets.h"

#include <string.h>

void fuzz_request(const uint8_t *data, size_t size) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
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
    arena_free(&arena);
  }
  json_free(doc);
}
