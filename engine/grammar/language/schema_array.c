/* schema_array.c: arrays of a conjunction.
 *
 * Part of a compilation, on its thread. The first items may each have their own schema, the rest
 * share one and are counted in a frame, so that maxItems costs no states.
 */
#include "engine/grammar/language/schema.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"

/* Schemas of the first items: prefixItems, or items as an array in older dialects. */
static const json_t *prefix_of(const keywords_t *w) {
  const json_t *items = w->values[KEYWORD_ITEMS];
  if (w->values[KEYWORD_PREFIX_ITEMS] != NULL) return w->values[KEYWORD_PREFIX_ITEMS];
  return items != NULL && items->type == JSON_ARRAY ? items : NULL;
}

static part_t rest_of(const schema_t *s, const keywords_t *w) {
  const json_t *items = w->values[KEYWORD_ITEMS], *more = w->values[KEYWORD_ADDITIONAL_ITEMS];
  if (items != NULL && items->type != JSON_ARRAY) {
    return schema_part(items, schema_pointer(s, w->part->pointer, "items", 5));
  }
  if (items == NULL || more == NULL) return schema_part(NULL, NULL);
  return schema_part(more, schema_pointer(s, w->part->pointer, "additionalItems", 15));
}

/* The rule of item `index`; past every prefix it is the one of all further items. */
static uint32_t item_rule(schema_t *s, const conjunction_t *k, uint32_t index) {
  list_t parts = {0};
  for (uint32_t i = 0; i < k->count; i++) {
    const keywords_t *w = &k->items[i];
    const json_t *prefix = prefix_of(w);
    part_t part = rest_of(s, w);
    if (prefix != NULL && index < prefix->count) {
      const char *name = w->values[KEYWORD_PREFIX_ITEMS] != NULL ? "prefixItems" : "items";
      const json_t *v = json_first(prefix);
      for (uint32_t at = 0; at < index; at++) v = json_next(v);
      part = schema_part(v, schema_pointer_index(s, w->part->pointer, name, index));
    }
    if (part.schema != NULL) *(part_t *)list_add(s->c, &parts, sizeof part) = part;
  }
  return schema_rule(s, parts.items, parts.count);
}

typedef struct counts {
  uint32_t min, max, prefix;
} counts_t;

static counts_t counts_of(schema_t *s, const conjunction_t *k) {
  counts_t n = {.max = NONE};
  for (uint32_t i = 0; i < k->count; i++) {
    const keywords_t *w = &k->items[i];
    const json_t *prefix = prefix_of(w), *unique = w->values[KEYWORD_UNIQUE_ITEMS];
    uint32_t min = schema_count(s, w, KEYWORD_MIN_ITEMS, 0);
    uint32_t max = schema_count(s, w, KEYWORD_MAX_ITEMS, NONE);
    if (min > n.min) n.min = min;
    if (max < n.max) n.max = max;
    if (prefix != NULL && prefix->count > n.prefix) n.prefix = prefix->count;
    if (unique != NULL && unique->type == JSON_TRUE && max > 1) n.prefix |= UINT32_C(1) << 31;
  }
  bool unique = n.prefix >> 31;
  n.prefix &= INT32_MAX;
  if (unique && n.max > 1) {
    schema_fail(s, ERR_UNSUPPORTED_PARAMETER, k->items[0].part->pointer,
                "'uniqueItems' is supported with maxItems of at most 1.");
  }
  return n;
}

uint32_t schema_array(schema_t *s, const conjunction_t *k) {
  compile_t *c = s->c;
  counts_t n = counts_of(s, k);
  uint32_t close = build_lex(c, lexeme_pattern(c, SPACE "\\]"), NODE_ID_RETURN);
  uint32_t comma = lexeme_pattern(c, "," SPACE);
  if (n.min > n.max) return NODE_ID_FAIL;
  /* After `count` items, from the last prefix item back to the first. */
  uint32_t count = n.prefix > 0 ? n.prefix : 1;
  uint32_t further = build_node(c, NODE_CALL, item_rule(s, k, count), NODE_ID_RETURN);
  uint32_t max = n.max == NONE ? NONE : n.max > count ? n.max - count : 0;
  uint32_t after =
      build_repeat(c, build_lex(c, comma, further), n.min > count ? n.min - count : 0, max, close);
  for (; count > 1; count--) {
    uint32_t item = build_node(c, NODE_CALL, item_rule(s, k, count - 1), after);
    uint32_t stop = n.min < count ? close : NODE_ID_FAIL;
    uint32_t more = n.max >= count ? build_lex(c, comma, item) : NODE_ID_FAIL;
    after = build_alt(c, (uint32_t[]){stop, more}, 2);
  }
  uint32_t first = build_node(c, NODE_CALL, item_rule(s, k, 0), after);
  uint32_t empty = build_lex(c, lexeme_pattern(c, "\\]"), NODE_ID_RETURN);
  uint32_t branches[] = {n.max > 0 ? first : NODE_ID_FAIL, n.min == 0 ? empty : NODE_ID_FAIL};
  return build_lex(c, lexeme_pattern(c, "\\[" SPACE), build_alt(c, branches, 2));
}
