/* schema_array.c: arrays of a conjunction.
 *
 * Part of a compilation, on its thread. The first items may each have their own schema. All
 * further items share one; a frame counts them, so that maxItems needs no states.
 */
#include "engine/grammar/language/schema.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"

/* Schemas of the first items: prefixItems, or items as an array in older dialects. */
static const json_t *prefix_of(const keywords_t *keywords) {
  const json_t *items = keywords->values[KEYWORD_ITEMS];
  if (keywords->values[KEYWORD_PREFIX_ITEMS] != NULL) return keywords->values[KEYWORD_PREFIX_ITEMS];
  return items != NULL && items->type == JSON_ARRAY ? items : NULL;
}

/* Returns the schema of the items behind the prefix; an empty part allows anything. */
static schema_part_t rest_of(const schema_t *schema, const keywords_t *keywords) {
  const json_t *items = keywords->values[KEYWORD_ITEMS],
               *more = keywords->values[KEYWORD_ADDITIONAL_ITEMS];
  if (items != NULL && items->type != JSON_ARRAY) {
    return schema_part(items, schema_pointer_to(schema, keywords->part->pointer, "items"));
  }
  if (items == NULL || more == NULL) return schema_part(NULL, NULL);
  return schema_part(more, schema_pointer_to(schema, keywords->part->pointer, "additionalItems"));
}

/* Returns the rule of item `index`; after all prefixes, the rule of all further items. */
static uint32_t item_rule(schema_t *schema, const conjunction_t *conjunction, uint32_t index) {
  grammar_list_t parts = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *prefix = prefix_of(keywords);
    schema_part_t part = rest_of(schema, keywords);
    if (prefix != NULL && index < prefix->count) {
      const char *name = keywords->values[KEYWORD_PREFIX_ITEMS] != NULL ? "prefixItems" : "items";
      const json_t *json = json_first(prefix);
      for (uint32_t at = 0; at < index; at++) json = json_next(json);
      part = schema_part(json, schema_pointer_index(schema, keywords->part->pointer, name, index));
    }
    if (part.schema != NULL)
      *(schema_part_t *)list_add(schema->compile, &parts, sizeof part) = part;
  }
  return schema_rule(schema, parts.items, parts.count);
}

/* What all schemas of a conjunction say together: items of the array, and the longest prefix. */
typedef struct counts {
  uint32_t min, max, prefix;
} counts_t;

static counts_t counts_of(schema_t *schema, const conjunction_t *conjunction) {
  counts_t counts = {.max = NONE};
  bool is_unique = false;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *prefix = prefix_of(keywords), *unique = keywords->values[KEYWORD_UNIQUE_ITEMS];
    uint32_t min = schema_count(schema, keywords, KEYWORD_MIN_ITEMS, 0);
    uint32_t max = schema_count(schema, keywords, KEYWORD_MAX_ITEMS, NONE);
    if (min > counts.min) counts.min = min;
    if (max < counts.max) counts.max = max;
    if (prefix != NULL && prefix->count > counts.prefix) counts.prefix = prefix->count;
    is_unique = is_unique || (unique != NULL && unique->type == JSON_TRUE);
  }
  if (is_unique && counts.max > 1) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, conjunction->items[0].part->pointer,
                "'uniqueItems' is supported with maxItems of at most 1.");
  }
  return counts;
}

uint32_t schema_array(schema_t *schema, const conjunction_t *conjunction) {
  compile_t *compile = schema->compile;
  counts_t counts = counts_of(schema, conjunction);
  uint32_t close = build_lex(compile, lexeme_pattern(compile, SPACE "\\]"), NODE_ID_RETURN);
  uint32_t comma = lexeme_pattern(compile, "," SPACE);
  if (counts.min > counts.max) return NODE_ID_FAIL;
  /* After `count` items, from the last prefix item back to the first. */
  uint32_t count = counts.prefix > 0 ? counts.prefix : 1;
  uint32_t further =
      build_node(compile, NODE_CALL, item_rule(schema, conjunction, count), NODE_ID_RETURN);
  uint32_t max = counts.max == NONE ? NONE : counts.max > count ? counts.max - count : 0;
  uint32_t after = build_repeat(compile, build_lex(compile, comma, further),
                                counts.min > count ? counts.min - count : 0, max, close);
  for (; count > 1; count--) {
    uint32_t item =
        build_node(compile, NODE_CALL, item_rule(schema, conjunction, count - 1), after);
    uint32_t stop = counts.min < count ? close : NODE_ID_FAIL;
    uint32_t more = counts.max >= count ? build_lex(compile, comma, item) : NODE_ID_FAIL;
    after = build_alt(compile, (uint32_t[]){stop, more}, 2);
  }
  uint32_t first = build_node(compile, NODE_CALL, item_rule(schema, conjunction, 0), after);
  uint32_t empty = build_lex(compile, lexeme_pattern(compile, "\\]"), NODE_ID_RETURN);
  uint32_t branches[] = {counts.max > 0 ? first : NODE_ID_FAIL,
                         counts.min == 0 ? empty : NODE_ID_FAIL};
  return build_lex(compile, lexeme_pattern(compile, "\\[" SPACE), build_alt(compile, branches, 2));
}
