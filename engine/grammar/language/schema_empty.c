/* schema_empty.c: proofs that no value satisfies a conjunction.
 *
 * Part of a compilation, on its thread. What is not proved may still be empty: then a rule accepts
 * nothing, which build.c finds. Used where a proof saves work: branches of oneOf that never hold
 * together, ways of a condition that contradict the rest.
 */
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

enum { DEPTH_MAX = 3 };

static bool has_word(const keywords_t *keywords, keyword_t first, keyword_t last) {
  for (int word = (int)first; word <= (int)last; word++) {
    if (keywords->values[word] != NULL) return true;
  }
  return false;
}

/* How many parts restrict the content of strings, or the size of numbers: one alone is hardly ever
 * empty, and an automaton costs more than it saves. */
static uint32_t count_restricting(const conjunction_t *conjunction, bool strings) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    bool pattern =
        has_word(keywords, KEYWORD_PATTERN, KEYWORD_FORMAT) || keywords->literal == LITERAL_PATTERN;
    bool bound = has_word(keywords, KEYWORD_MINIMUM, KEYWORD_MULTIPLE_OF) ||
                 keywords->literal == LITERAL_MULTIPLE_OF;
    count += strings ? pattern : bound;
  }
  return count;
}

static bool no_string(schema_t *schema, const conjunction_t *conjunction) {
  uint32_t min = 0, max = NONE;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    uint32_t low = schema_count(schema, &conjunction->items[i], KEYWORD_MIN_LENGTH, 0);
    uint32_t high = schema_count(schema, &conjunction->items[i], KEYWORD_MAX_LENGTH, NONE);
    if (low > min) min = low;
    if (high < max) max = high;
  }
  if (min > max) return true;
  if (count_restricting(conjunction, true) < 2) return false;
  bool json = schema_text_kind(schema, conjunction) == 0;
  const dfa_t *content = schema_string_content(schema, conjunction, json, &min, &max);
  return content != NULL && dfa_is_empty(content);
}

static bool no_number(schema_t *schema, const conjunction_t *conjunction, uint32_t types) {
  if (count_restricting(conjunction, false) < 2) return false;
  return dfa_is_empty(schema_number_dfa(schema, conjunction, !(types & TYPE_FRACTION)));
}

static bool no_array(const schema_t *schema, const conjunction_t *conjunction) {
  uint32_t min = 0, max = NONE;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    uint32_t low = schema_count(schema, &conjunction->items[i], KEYWORD_MIN_ITEMS, 0);
    uint32_t high = schema_count(schema, &conjunction->items[i], KEYWORD_MAX_ITEMS, NONE);
    if (low > min) min = low;
    if (high < max) max = high;
  }
  return min > max;
}

static bool no_object(schema_t *schema, const conjunction_t *conjunction, int depth) {
  grammar_list_t names = schema_member_names(schema, conjunction);
  const member_name_t *list = names.items;
  for (uint32_t i = 0; i < names.count; i++) {
    if (!list[i].required) continue;
    compile_spend(schema->compile, 20);
    grammar_list_t parts = schema_property_parts(schema, conjunction, list[i].text, list[i].length);
    if (parts.count > 0 && schema_is_empty(schema, parts.items, parts.count, depth + 1))
      return true;
  }
  return schema_presence_condition(schema, conjunction, &names) == PRESENCE_NEVER;
}

/* Returns true if the keywords of each type allow no value. */
static bool no_value(schema_t *schema, const conjunction_t *conjunction, uint32_t types,
                     int depth) {
  if (schema_first_values(conjunction) != NULL) return false;
  if ((types & TYPE_NULL) && schema_allows_word(schema, conjunction, JSON_NULL)) return false;
  if ((types & TYPE_BOOLEAN) && (schema_allows_word(schema, conjunction, JSON_TRUE) ||
                                 schema_allows_word(schema, conjunction, JSON_FALSE)))
    return false;
  if ((types & TYPE_STRING) && !no_string(schema, conjunction)) return false;
  if ((types & TYPE_NUMBER) && !no_number(schema, conjunction, types)) return false;
  if ((types & TYPE_ARRAY) && !no_array(schema, conjunction)) return false;
  return !(types & TYPE_OBJECT) || no_object(schema, conjunction, depth);
}

/* Returns true if the alternatives of some part all contradict the rest. */
static bool no_branch(schema_t *schema, const conjunction_t *conjunction,
                      const grammar_list_t *joined, int depth) {
  static const struct {
    keyword_t keyword;
    uint32_t done;
  } lists[] = {{KEYWORD_ANY_OF, DONE_ANY_OF}, {KEYWORD_ONE_OF, DONE_ONE_OF}};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    for (int k = 0; k < 2; k++) {
      const json_t *list = keywords->values[lists[k].keyword];
      if (list == NULL || (keywords->part->done & lists[k].done)) continue;
      if (schema_no_branch(schema, joined, keywords->part, lists[k].done, list, depth + 1))
        return true;
    }
  }
  return false;
}

bool schema_is_empty(schema_t *schema, const schema_part_t *parts, uint32_t count, int depth) {
  grammar_list_t joined = {0};
  if (depth > DEPTH_MAX) return false;
  conjunction_t conjunction = schema_join(schema, parts, count, &joined);
  if (conjunction.never) return true;
  uint32_t types = TYPE_ALL;
  for (uint32_t i = 0; i < conjunction.count; i++)
    types &= schema_types(schema, &conjunction.items[i]);
  if (types == 0) return true;
  if (schema_first_values(&conjunction) != NULL && !schema_any_value(schema, &conjunction, types))
    return true;
  if (no_value(schema, &conjunction, types, depth)) return true;
  return depth < DEPTH_MAX && no_branch(schema, &conjunction, &joined, depth);
}
