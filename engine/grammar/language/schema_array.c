/* schema_array.c: arrays of a conjunction.
 *
 * Part of a compilation, on its thread. The first items may each have their own schema. All
 * further items share one; a frame counts them, so that maxItems needs no states. `contains` does:
 * a state for each number of items, and of items that satisfied it. Where items are unique, each
 * of their values is a rule of its own.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"

/* prefixItems, or items as an array in older dialects. */
const json_t *schema_prefix(const keywords_t *keywords) {
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

/* What the literal is about does not hold. */
static schema_part_t not_of(const keywords_t *literal) {
  return (schema_part_t){literal->about, literal->part->pointer, schema_mode(PART_NOT), NULL};
}

/* Returns the parts that apply to item `index`; from the prefix on, to all further ones. */
static grammar_list_t item_parts(schema_t *schema, const conjunction_t *conjunction,
                                 uint32_t index) {
  grammar_list_t parts = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *prefix = schema_prefix(keywords);
    schema_part_t part = rest_of(schema, keywords);
    if (prefix != NULL && index < prefix->count) {
      const char *name = keywords->values[KEYWORD_PREFIX_ITEMS] != NULL ? "prefixItems" : "items";
      const json_t *json = json_first(prefix);
      for (uint32_t at = 0; at < index; at++) json = json_next(json);
      part = schema_part(json, schema_pointer_index(schema, keywords->part->pointer, name, index));
    }
    if (keywords->literal == LITERAL_ITEM && schema_part_number(keywords->part) == index)
      part = not_of(keywords);
    if (part.schema != NULL)
      *(schema_part_t *)list_add(schema->compile, &parts, sizeof part) = part;
  }
  return parts;
}

/* Returns the rule of item `index`; after all prefixes, the rule of all further items. */
static uint32_t item_rule(schema_t *schema, const conjunction_t *conjunction, uint32_t index) {
  grammar_list_t parts = item_parts(schema, conjunction, index);
  if (schema_in_elements(schema)) return schema_element_item(schema, &parts);
  return schema_rule(schema, parts.items, parts.count);
}

/* ---- what all schemas of a conjunction say together ---- */

/* How many items satisfy a schema of `contains`. */
typedef struct contained {
  schema_part_t part;
  uint32_t min, max; /* max NONE = no bound */
  uint32_t from;     /* only items from this one on count */
} contained_t;

/* What all schemas of a conjunction say together about an array. */
typedef struct array_rules {
  uint32_t min, max;       /* items; max NONE = no bound */
  uint32_t prefix;         /* first items that have schemas of their own */
  const char *unique;      /* pointer to the schema that has uniqueItems; NULL = none */
  grammar_list_t contains; /* contained_t */
} array_rules_t;

static void add_contained(const schema_t *schema, const keywords_t *keywords,
                          grammar_list_t *list) {
  const json_t *json = keywords->values[KEYWORD_CONTAINS];
  bool is_rest = keywords->literal == LITERAL_REST;
  if (json == NULL && !is_rest) return;
  const char *pointer = schema_pointer_to(schema, keywords->part->pointer, "contains");
  contained_t contained = {is_rest ? not_of(keywords) : schema_part(json, pointer),
                           schema_count(schema, keywords, KEYWORD_MIN_CONTAINS, 1),
                           schema_count(schema, keywords, KEYWORD_MAX_CONTAINS, NONE),
                           is_rest ? schema_part_number(keywords->part) : 0};
  contained_t *others = list->items;
  for (uint32_t i = 0; i < list->count; i++) {
    if (others[i].part.schema != contained.part.schema ||
        others[i].part.done != contained.part.done || others[i].from != contained.from)
      continue;
    others[i].min = MAX(others[i].min, contained.min);
    others[i].max = MIN(others[i].max, contained.max);
    return;
  }
  *(contained_t *)list_add(schema->compile, list, sizeof contained) = contained;
}

/* Drops the bounds that always hold. Returns false if no array can satisfy the others. */
static bool tidy_contained(array_rules_t *rules) {
  contained_t *list = rules->contains.items;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rules->contains.count; i++) {
    if (list[i].min > rules->max || list[i].min > list[i].max) return false;
    if (list[i].max >= rules->max) list[i].max = NONE;
    if (list[i].min > 0 || list[i].max != NONE) list[kept++] = list[i];
  }
  rules->contains.count = kept;
  return true;
}

static array_rules_t rules_of(schema_t *schema, const conjunction_t *conjunction) {
  array_rules_t rules = {.max = NONE};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *prefix = schema_prefix(keywords),
                 *unique = keywords->values[KEYWORD_UNIQUE_ITEMS];
    const json_t *rest = rest_of(schema, keywords).schema;
    uint32_t own = prefix != NULL ? prefix->count : 0;
    rules.min = MAX(rules.min, schema_count(schema, keywords, KEYWORD_MIN_ITEMS, 0));
    rules.max = MIN(rules.max, schema_count(schema, keywords, KEYWORD_MAX_ITEMS, NONE));
    if (rest != NULL && rest->type == JSON_FALSE) rules.max = MIN(rules.max, own);
    if (keywords->literal == LITERAL_ITEM) own = schema_part_number(keywords->part) + 1;
    if (keywords->literal == LITERAL_REST) own = schema_part_number(keywords->part);
    rules.prefix = MAX(rules.prefix, own);
    if (unique != NULL && unique->type == JSON_TRUE) rules.unique = keywords->part->pointer;
    add_contained(schema, keywords, &rules.contains);
  }
  return rules;
}

/* ---- items that are counted ---- */

enum { CONTAINS_MAX = 3, COUNTED_MAX = 32, COUNTS_MAX = 64, STATES_MAX = 8192 };

/* Each item counts for some of the `contains`: a way is a set of bits that says for which. */
typedef struct counting {
  schema_t *schema;
  const array_rules_t *rules;
  uint32_t ways;                  /* 1 << rules->contains.count */
  uint32_t counted[CONTAINS_MAX]; /* each `contains` is counted up to here */
  uint32_t counts;                /* combinations of these counts */
  uint32_t items;                 /* the number of items is counted up to here */
  uint32_t *item;                 /* [rules->prefix + 1, ways] rule of an item */
  uint32_t *after;                /* [items + 1, counts] node behind an item */
} counting_t;

/* Sets the sizes. Refuses what would need too many states. */
static void measure(counting_t *counting) {
  const array_rules_t *rules = counting->rules;
  const contained_t *list = rules->contains.items;
  schema_t *schema = counting->schema;
  uint64_t states;
  if (rules->contains.count > CONTAINS_MAX) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[CONTAINS_MAX].part.pointer,
                "at most %d different 'contains' are supported for one array.", CONTAINS_MAX);
  }
  counting->ways = UINT32_C(1) << rules->contains.count;
  counting->counts = 1;
  for (uint32_t i = 0; i < rules->contains.count; i++) {
    bool has_max = list[i].max != NONE;
    counting->counted[i] = has_max ? list[i].max : list[i].min;
    if (counting->counted[i] > COUNTED_MAX) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[i].part.pointer,
                  "'%s' is supported up to %d beside 'contains'.",
                  has_max ? "maxContains" : "minContains", COUNTED_MAX);
    }
    counting->counts *= counting->counted[i] + 1;
  }
  counting->items = rules->max != NONE ? rules->max : MAX(MAX(rules->prefix, rules->min), 1);
  states = ((uint64_t)counting->items + 1) * counting->counts * counting->ways;
  if (states > STATES_MAX || counting->counts > COUNTS_MAX) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[0].part.pointer,
                "'contains' with these numbers of items needs more than %d states.",
                counting->counts > COUNTS_MAX ? COUNTS_MAX : STATES_MAX);
  }
}

/* Makes the rules of the items. Where `contains` has only a minimum, an item that does not count
 * may satisfy it as well: if enough items do, there is a way to count that reaches the minimum. */
static void fill_items(counting_t *counting, const conjunction_t *conjunction) {
  static const json_t never = {.type = JSON_FALSE};
  const array_rules_t *rules = counting->rules;
  const contained_t *list = rules->contains.items;
  uint32_t count = (rules->prefix + 1) * counting->ways;
  counting->item = compile_scratch(counting->schema->compile, count, sizeof *counting->item);
  for (uint32_t i = 0; i < count; i++) {
    grammar_list_t parts = item_parts(counting->schema, conjunction, i / counting->ways);
    for (uint32_t k = 0; k < rules->contains.count; k++) {
      bool counts = i % counting->ways >> k & 1;
      schema_part_t part = list[k].part;
      if (!counts) part.done = schema_mode(PART_NOT); /* only a part that holds has a maximum */
      if (counts && i / counting->ways < list[k].from) part = schema_part(&never, part.pointer);
      if (counts || list[k].max != NONE)
        *(schema_part_t *)list_add(counting->schema->compile, &parts, sizeof part) = part;
    }
    counting->item[i] = schema_rule(counting->schema, parts.items, parts.count);
  }
}

static bool may_end(const counting_t *counting, uint32_t items, uint32_t count) {
  const contained_t *list = counting->rules->contains.items;
  for (uint32_t i = 0; i < counting->rules->contains.count; i++) {
    if (count % (counting->counted[i] + 1) < list[i].min) return false;
    count /= counting->counted[i] + 1;
  }
  return items >= counting->rules->min;
}

/* Returns the counts behind an item; NONE = one of them would be too large. */
static uint32_t count_after(const counting_t *counting, uint32_t count, uint32_t way) {
  uint32_t step = 1, next = count;
  for (uint32_t i = 0; i < counting->rules->contains.count; i++) {
    uint32_t range = counting->counted[i] + 1;
    if (way >> i & 1) {
      if (count / step % range == counting->counted[i]) return NONE;
      next += step;
    }
    step *= range;
  }
  return next;
}

/* Returns the node of one more item. */
static uint32_t counted_item(const counting_t *counting, uint32_t items, uint32_t count) {
  uint32_t branches[1 << CONTAINS_MAX], used = 0;
  const uint32_t *item = counting->item + MIN(items, counting->rules->prefix) * counting->ways;
  const uint32_t *after = counting->after + MIN(items + 1, counting->items) * counting->counts;
  if (items >= counting->rules->max) return NODE_ID_FAIL;
  for (uint32_t way = 0; way < counting->ways; way++) {
    uint32_t next = count_after(counting, count, way);
    if (next == NONE) continue;
    branches[used++] = build_node(counting->schema->compile, NODE_CALL, item[way], after[next]);
  }
  return build_alt(counting->schema->compile, branches, used);
}

/* Returns the node of one or more items. */
static uint32_t counted_items(schema_t *schema, const conjunction_t *conjunction,
                              const array_rules_t *rules, uint32_t comma, uint32_t close) {
  compile_t *compile = schema->compile;
  counting_t counting = {.schema = schema, .rules = rules};
  measure(&counting);
  fill_items(&counting, conjunction);
  uint32_t num_states = (counting.items + 1) * counting.counts;
  counting.after = compile_scratch(compile, num_states, sizeof *counting.after);
  for (uint32_t i = 0; i < num_states; i++) counting.after[i] = build_alt(compile, NULL, 0);
  for (uint32_t i = counting.counts; i < num_states; i++) {
    uint32_t items = i / counting.counts, count = i % counting.counts;
    uint32_t more = counted_item(&counting, items, count);
    uint32_t branches[] = {may_end(&counting, items, count) ? close : NODE_ID_FAIL,
                           build_lex(compile, comma, more)};
    build_alt_fill(compile, counting.after[i], branches, 2);
  }
  return counted_item(&counting, 0, 0);
}

/* ---- items that are unique ---- */

/* Built where the values of the items can be listed. The list may hold more than the schemas of an
 * item allow: each value becomes a rule of its own beside these schemas, and build_unique.c drops
 * the rules that no text satisfies. */
enum { DEPTH_MAX = 6, LISTS_MAX = 200, DIGITS_MAX = 16 };

typedef struct item_values {
  schema_t *schema;
  const json_t *values[UNIQUE_VALUES_MAX];
  uint32_t count, lists;
} item_values_t;

/* Each of these adds values, and returns false if it cannot list them. */

/* Only numbers whose digits are kept are known to be equal or not. */
static bool is_comparable(const json_t *json) {
  if (json->type == JSON_NUMBER) {
    decimal_t decimal = decimal_of(json);
    return !decimal.huge && !decimal.fine;
  }
  JSON_EACH(child, json) {
    if (!is_comparable(child)) return false;
  }
  return true;
}

static bool add_value(item_values_t *listing, const json_t *json) {
  for (uint32_t i = 0; i < listing->count; i++) {
    compile_spend(listing->schema->compile, 2);
    if (schema_equal(listing->values[i], json)) return true;
  }
  if (listing->count == UNIQUE_VALUES_MAX || !is_comparable(json)) return false;
  listing->values[listing->count++] = json;
  return true;
}

static bool add_word(item_values_t *listing, json_type_t type) {
  json_t *json = compile_scratch(listing->schema->compile, 1, sizeof *json);
  json->type = (uint8_t)type;
  return add_value(listing, json);
}

static bool add_listed(item_values_t *listing, const conjunction_t *conjunction,
                       const json_t *values, uint32_t types) {
  bool is_enum = false;
  for (uint32_t i = 0; i < conjunction->count; i++)
    is_enum = is_enum || conjunction->items[i].values[KEYWORD_ENUM] == values;
  if (!is_enum) return !(schema_type_of(values) & types) || add_value(listing, values);
  JSON_EACH(json, values) {
    if ((schema_type_of(json) & types) && !add_value(listing, json)) return false;
  }
  return true;
}

/* Adds the numbers that the automaton accepts behind `text`, whatever it counts. Each of its states
 * can reach acceptance, so a long search ends with too many numbers, or too many digits. */
static bool add_integers(item_values_t *listing, const dfa_t *dfa, uint32_t state, const char *text,
                         uint32_t length) {
  static const char bytes[] = "0123456789-";
  compile_t *compile = listing->schema->compile;
  compile_spend(compile, 4);
  if (dfa->flags[state] & DFA_ACCEPT) {
    json_t *json = compile_scratch(compile, 1, sizeof *json);
    *json = (json_t){.type = JSON_NUMBER, .text = text, .length = length};
    if (!add_value(listing, json)) return false;
  }
  if (length == DIGITS_MAX) return !(dfa->flags[state] & DFA_LIVE);
  for (size_t i = 0; i < sizeof bytes - 1; i++) {
    uint32_t to = dfa_next(dfa, state, (uint8_t)bytes[i]);
    if (to == DFA_DEAD) continue;
    char *longer = compile_scratch(compile, (size_t)length + 1, 1);
    if (length > 0) memcpy(longer, text, length);
    longer[length] = bytes[i];
    if (!add_integers(listing, dfa, to, longer, length + 1)) return false;
  }
  return true;
}

static bool has_either(const conjunction_t *conjunction, keyword_t first, keyword_t second) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const json_t *const *values = conjunction->items[i].values;
    if (values[first] != NULL || values[second] != NULL) return true;
  }
  return false;
}

static bool add_types(item_values_t *listing, const conjunction_t *conjunction, uint32_t types) {
  if (types & ~(uint32_t)(TYPE_NULL | TYPE_BOOLEAN | TYPE_INTEGER)) return false;
  if ((types & TYPE_NULL) && !add_word(listing, JSON_NULL)) return false;
  if ((types & TYPE_BOOLEAN) && !(add_word(listing, JSON_TRUE) && add_word(listing, JSON_FALSE)))
    return false;
  if (!(types & TYPE_INTEGER)) return true;
  if (!has_either(conjunction, KEYWORD_MINIMUM, KEYWORD_EXCLUSIVE_MINIMUM) ||
      !has_either(conjunction, KEYWORD_MAXIMUM, KEYWORD_EXCLUSIVE_MAXIMUM))
    return false;
  const dfa_t *dfa = schema_number_dfa(listing->schema, conjunction, true);
  return add_integers(listing, dfa, DFA_START, "", 0);
}

static bool add_values(item_values_t *listing, const schema_part_t *parts, uint32_t count,
                       int depth);

/* The values of all branches of some anyOf or oneOf. */
static bool add_branches(item_values_t *listing, const conjunction_t *conjunction,
                         const grammar_list_t *joined, int depth) {
  static const struct {
    keyword_t keyword;
    uint32_t done;
  } rows[] = {{KEYWORD_ANY_OF, DONE_ANY_OF}, {KEYWORD_ONE_OF, DONE_ONE_OF}};
  for (uint32_t i = 0; i < 2 * conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i / 2];
    const json_t *list = keywords->values[rows[i % 2].keyword];
    uint32_t done = rows[i % 2].done, before = listing->count;
    bool all = true;
    if (list == NULL || (keywords->part->done & done)) continue;
    JSON_EACH(json, list) {
      if (!all) break;
      const schema_part_t *parts =
          schema_with_branch(listing->schema, joined, keywords->part, done, json);
      all = add_values(listing, parts, joined->count + 1, depth + 1);
    }
    if (all) return true;
    listing->count = before;
  }
  return false;
}

static bool add_values(item_values_t *listing, const schema_part_t *parts, uint32_t count,
                       int depth) {
  grammar_list_t joined = {0};
  uint32_t types = TYPE_ALL, before = listing->count;
  if (depth > DEPTH_MAX || listing->lists++ == LISTS_MAX) return false;
  conjunction_t conjunction = schema_join(listing->schema, parts, count, &joined);
  if (conjunction.never) return true;
  for (uint32_t i = 0; i < conjunction.count; i++)
    types &= schema_types(listing->schema, &conjunction.items[i]);
  const json_t *values = schema_first_values(&conjunction);
  if (values != NULL) return add_listed(listing, &conjunction, values, types);
  if (add_types(listing, &conjunction, types)) return true;
  listing->count = before;
  return add_branches(listing, &conjunction, &joined, depth);
}

static uint32_t size_of(const json_t *json) {
  uint32_t size = 1;
  JSON_EACH(child, json) size += size_of(child);
  return size;
}

/* Returns the schema {"const": value}. A document stores its values in preorder (json.h). */
static const json_t *schema_of(const schema_t *schema, const json_t *value) {
  uint32_t size = size_of(value);
  json_t *json = compile_scratch(schema->compile, (size_t)size + 1, sizeof *json);
  compile_spend(schema->compile, size);
  json[0] = (json_t){.type = JSON_OBJECT, .count = 1};
  memcpy(json + 1, value, size * sizeof *json);
  json[1].key = "const";
  json[1].key_length = 5;
  json[1].next = 0;
  return json;
}

/* Returns the rule of what is the value and satisfies the parts. */
static uint32_t rule_of(schema_t *schema, const json_t *value, const schema_part_t *parts,
                        uint32_t count, const char *pointer) {
  schema_part_t *all = compile_scratch(schema->compile, (size_t)count + 1, sizeof *all);
  if (count > 0) memcpy(all, parts, count * sizeof *all);
  all[count] = schema_part(value, pointer);
  return schema_rule(schema, all, count + 1);
}

/* Returns the entries of a row of unique_draft_t: [num_values]. */
static void fill_row(schema_t *schema, const conjunction_t *conjunction, const array_rules_t *rules,
                     const json_t *const *values, unique_draft_t *draft, uint32_t row) {
  compile_t *compile = schema->compile;
  uint32_t count = draft->unique.num_values, *entry = draft->unique.entry + (size_t)row * count;
  uint32_t comma = lexeme_pattern(compile, "," SPACE);
  grammar_list_t parts = item_parts(schema, conjunction, MIN(row, rules->prefix));
  for (uint32_t i = 0; i < count; i++) {
    uint32_t rule = rule_of(schema, values[i], parts.items, parts.count, rules->unique);
    entry[i] = build_node(compile, NODE_CALL, rule, NODE_ID_RETURN);
    if (row > 0) entry[i] = build_lex(compile, comma, entry[i]);
  }
}

/* The values that satisfy a `contains`: a rule from which a text can end says so. */
static void fill_counts(schema_t *schema, const array_rules_t *rules, const json_t *const *values,
                        unique_draft_t *draft) {
  compile_t *compile = schema->compile;
  const contained_t *list = rules->contains.items;
  uint32_t count = rules->contains.count, num_values = draft->unique.num_values;
  draft->counts = compile_scratch(compile, count, sizeof *draft->counts);
  draft->num_counts = count;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *is = compile_scratch(compile, num_values, sizeof *is);
    uint32_t *is_not = compile_scratch(compile, num_values, sizeof *is_not);
    schema_part_t yes = list[i].part, no = list[i].part;
    no.done = schema_mode(PART_NOT);
    for (uint32_t k = 0; k < num_values; k++) {
      is[k] = rule_of(schema, values[k], &yes, 1, yes.pointer);
      is_not[k] = NODE_ID_FAIL;
      if (list[i].max != NONE) is_not[k] = rule_of(schema, values[k], &no, 1, no.pointer);
    }
    draft->counts[i] = (unique_count_t){is, is_not, list[i].min, list[i].max};
  }
}

/* Values are counted wherever they stand. */
static void refuse_later(const schema_t *schema, const array_rules_t *rules) {
  const contained_t *list = rules->contains.items;
  for (uint32_t i = 0; i < rules->contains.count; i++) {
    if (list[i].from == 0) continue;
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, list[i].part.pointer,
                "items behind the first ones that must not hold are not supported beside "
                "'uniqueItems'.");
  }
}

/* Returns the node of one or more items, no two of them equal; `close` follows. Refuses items of
 * which it cannot list the values. */
static uint32_t unique_items(schema_t *schema, const conjunction_t *conjunction,
                             const array_rules_t *rules, uint32_t close) {
  item_values_t listing = {.schema = schema};
  const json_t *values[UNIQUE_VALUES_MAX];
  refuse_later(schema, rules);
  for (uint32_t i = 0; i <= rules->prefix && i < rules->max; i++) {
    grammar_list_t parts = item_parts(schema, conjunction, i);
    if (add_values(&listing, parts.items, parts.count, 0)) continue;
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, rules->unique,
                "'uniqueItems' is supported with 'maxItems' of at most 1, or where the items have "
                "at most %d values that are listed: enum, const, boolean, null, integers in a "
                "range.",
                UNIQUE_VALUES_MAX);
  }
  uint32_t count = listing.count, rows = MIN(MAX(rules->prefix, 1) + 1, count);
  if (count == 0) return NODE_ID_FAIL;
  for (uint32_t i = 0; i < count; i++) values[i] = schema_of(schema, listing.values[i]);
  unique_draft_t *draft = compile_scratch(schema->compile, 1, sizeof *draft);
  uint32_t *entry = compile_scratch(schema->compile, (size_t)rows * count, sizeof *entry);
  draft->unique = (grammar_unique_t){.num_values = count, .num_rows = rows, .entry = entry};
  draft->min = rules->min;
  draft->max = rules->max;
  for (uint32_t row = 0; row < rows; row++)
    fill_row(schema, conjunction, rules, values, draft, row);
  fill_counts(schema, rules, values, draft);
  return build_unique(schema->compile, draft, close);
}

/* ---- the array ---- */

static uint32_t behind(compile_t *compile, uint32_t comma, uint32_t next) {
  return comma != NONE ? build_lex(compile, comma, next) : next;
}

/* comma: NONE = nothing stands between items. */
static uint32_t plain_items(schema_t *schema, const conjunction_t *conjunction,
                            const array_rules_t *rules, uint32_t comma, uint32_t close) {
  compile_t *compile = schema->compile;
  /* After `count` items, from the last prefix item back to the first. */
  uint32_t count = rules->prefix > 0 ? rules->prefix : 1;
  uint32_t further =
      build_node(compile, NODE_CALL, item_rule(schema, conjunction, count), NODE_ID_RETURN);
  uint32_t max = rules->max == NONE ? NONE : rules->max > count ? rules->max - count : 0;
  uint32_t after = build_repeat(compile, behind(compile, comma, further),
                                rules->min > count ? rules->min - count : 0, max, close);
  for (; count > 1; count--) {
    uint32_t item =
        build_node(compile, NODE_CALL, item_rule(schema, conjunction, count - 1), after);
    uint32_t stop = rules->min < count ? close : NODE_ID_FAIL;
    uint32_t more = rules->max >= count ? behind(compile, comma, item) : NODE_ID_FAIL;
    after = build_alt(compile, (uint32_t[]){stop, more}, 2);
  }
  return build_node(compile, NODE_CALL, item_rule(schema, conjunction, 0), after);
}

static bool may_be_empty(const array_rules_t *rules) {
  const contained_t *list = rules->contains.items;
  for (uint32_t i = 0; i < rules->contains.count; i++) {
    if (list[i].min > 0) return false;
  }
  return rules->min == 0;
}

/* Items as elements, nothing around or between them. */
static uint32_t elements(schema_t *schema, const conjunction_t *conjunction,
                         const array_rules_t *rules) {
  bool counted = rules->contains.count > 0;
  if (counted || (rules->unique != NULL && rules->max > 1)) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, conjunction->items[0].part->pointer,
                "'%s' is not supported in the calls of this model.",
                counted ? "contains" : "uniqueItems");
  }
  uint32_t branches[] = {NODE_ID_FAIL, rules->min == 0 ? NODE_ID_RETURN : NODE_ID_FAIL};
  if (rules->max > 0) branches[0] = plain_items(schema, conjunction, rules, NONE, NODE_ID_RETURN);
  return build_alt(schema->compile, branches, 2);
}

uint32_t schema_array(schema_t *schema, const conjunction_t *conjunction) {
  compile_t *compile = schema->compile;
  array_rules_t rules = rules_of(schema, conjunction);
  if (schema_in_elements(schema)) {
    bool none = rules.min > rules.max || !tidy_contained(&rules);
    return none ? NODE_ID_FAIL : elements(schema, conjunction, &rules);
  }
  uint32_t close = build_lex(compile, lexeme_pattern(compile, SPACE "\\]"), NODE_ID_RETURN);
  uint32_t comma = lexeme_pattern(compile, "," SPACE), first;
  if (rules.min > rules.max || !tidy_contained(&rules)) return NODE_ID_FAIL;
  if (rules.unique != NULL && rules.max > 1) {
    first = unique_items(schema, conjunction, &rules, close);
  } else if (rules.contains.count > 0) {
    first = counted_items(schema, conjunction, &rules, comma, close);
  } else {
    first = plain_items(schema, conjunction, &rules, comma, close);
  }
  uint32_t empty = build_lex(compile, lexeme_pattern(compile, "\\]"), NODE_ID_RETURN);
  uint32_t branches[] = {rules.max > 0 ? first : NODE_ID_FAIL,
                         may_be_empty(&rules) ? empty : NODE_ID_FAIL};
  return build_lex(compile, lexeme_pattern(compile, "\\[" SPACE), build_alt(compile, branches, 2));
}
