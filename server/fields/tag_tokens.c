/* tag_tokens.c: a text of a structural tag as pieces of text and tokens of the model.
 *
 * Loop thread or libuv's pool; keeps no state. Next: structural_tag.c.
 */
#include "server/fields/tag_tokens.h"

#include "engine/base/util.h"

#include <string.h>

enum {
  TEXT_BYTES_MAX = 1024, /* of a text that is searched for tokens */
  TOKEN_BYTES_MAX = 64,
  TOKENS_MAX = 8, /* within one text */
  SHOWN_MAX = 64  /* of a request */
};

static bool ends_answers(const field_limits_t *limits, int32_t id) {
  const engine_info_t *model = limits->model;
  for (int32_t i = 0; model != NULL && i < model->num_stop_ids; i++) {
    if (model->stop_ids[i] == id) return true;
  }
  return model != NULL && model->primary_eos == id;
}

/* The longest added token with which the text begins, and its length; -1 = none. */
static int32_t token_at(const field_limits_t *limits, span_t text, size_t *length) {
  for (*length = MIN(text.length, TOKEN_BYTES_MAX); *length > 0; --*length) {
    int32_t id = tokenizer_id(limits->tokenizer, text.text, *length);
    if (id < 0 || id >= limits->vocab_size || ends_answers(limits, id)) continue;
    if ((tokenizer_flags(limits->tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) != 0) return id;
  }
  return -1;
}

static void show(reader_t *reader, id_list_t *shown, int32_t id) {
  int32_t *ids = (int32_t *)(uintptr_t)shown->ids; /* the arena's */
  if (ids == NULL) shown->ids = ids = arena_calloc(reader->arena, SHOWN_MAX, sizeof *ids);
  for (int32_t i = 0; i < shown->count; i++) {
    if (ids[i] == id) return;
  }
  if (ids != NULL && shown->count < SHOWN_MAX) ids[shown->count++] = id;
}

bool tag_in_tokens(reader_t *reader, span_t text, id_list_t *shown, grammar_source_t *out) {
  grammar_source_t *parts = NULL;
  int32_t count = 0;
  size_t begun = 0, length;
  if (reader->limits->tokenizer == NULL || text.length > TEXT_BYTES_MAX) return false;
  for (size_t at = 0; at < text.length && count < 2 * TOKENS_MAX; at++) {
    int32_t id = token_at(reader->limits, (span_t){text.text + at, text.length - at}, &length);
    if (id < 0) continue;
    if (parts == NULL) parts = arena_calloc(reader->arena, 2 * TOKENS_MAX + 1, sizeof *parts);
    if (parts == NULL) return false;
    parts[count++] = (grammar_source_t){
        .kind = GRAMMAR_LITERAL, .text = text.text + begun, .length = at - begun};
    parts[count++] = (grammar_source_t){.kind = GRAMMAR_TOKEN, .token = id};
    show(reader, shown, id);
    begun = at + length;
    at = begun - 1;
  }
  if (parts == NULL) return false;
  parts[count++] = (grammar_source_t){
      .kind = GRAMMAR_LITERAL, .text = text.text + begun, .length = text.length - begun};
  *out = (grammar_source_t){.kind = GRAMMAR_SEQUENCE, .children = parts, .num_children = count};
  return true;
}
