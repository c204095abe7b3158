/* schema.c: a JSON schema -> rules.
 *
 * Part of a compilation, on its thread. A rule is a conjunction of subschemas (schema.h). Rules are
 * made on demand and processed from a list, so the compiler does not recurse, however deeply the
 * schema nests. Next: schema_string.c, schema_array.c,
 * schema_object.c, schema_values.c.
 */
#include "engine/grammar/language/schema_base.h"
#include "engine/grammar/language/schema_logic.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

typedef struct rule {
  schema_part_t *parts; /* sorted by schema, without doubles */
  uint32_t count, hash;
  uint32_t node; /* NODE_ALT; filled when the rule is processed */
} rule_t;

/* ---- rules by name ---- */

static int compare_parts(const void *left, const void *right) {
  const schema_part_t *first = left, *second = right;
  if (first->schema != second->schema) return first->schema < second->schema ? -1 : 1;
  return first->done < second->done ? -1 : first->done > second->done;
}

static void grow_rules(schema_t *schema) {
  uint32_t size = schema->table_size ? 2 * schema->table_size : 256;
  const rule_t *rules = schema->rules.items;
  schema->table = compile_scratch(schema->compile, size, sizeof *schema->table);
  schema->table_size = size;
  for (uint32_t i = 0; i < schema->rules.count; i++) {
    uint32_t slot = rules[i].hash & (size - 1);
    while (schema->table[slot]) slot = (slot + 1) & (size - 1);
    schema->table[slot] = i + 1;
  }
}

static bool same_parts(const rule_t *rule, const schema_part_t *parts, uint32_t count) {
  if (rule->count != count) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (compare_parts(&rule->parts[i], &parts[i]) != 0) return false;
  }
  return true;
}

uint32_t schema_rule(schema_t *schema, const schema_part_t *given, uint32_t count) {
  schema_part_t *parts = compile_scratch(schema->compile, (size_t)count + 1, sizeof *parts);
  uint32_t kept = 0, hash = FNV_32_BASIS;
  compile_spend(schema->compile, count);
  if (count) memcpy(parts, given, count * sizeof *parts);
  qsort(parts, count, sizeof *parts, compare_parts);
  for (uint32_t i = 0; i < count; i++) {
    if (kept > 0 && compare_parts(&parts[kept - 1], &parts[i]) == 0) continue;
    if (parts[i].done == 0 && parts[i].schema->type == JSON_TRUE) continue;
    parts[kept++] = parts[i];
    hash = fnv_32_step(hash, (uint32_t)((uintptr_t)parts[kept - 1].schema >> 3));
    hash = fnv_32_step(hash, parts[kept - 1].done);
  }
  if (kept == 0 && schema_any(schema) == NULL) return json_value_rule(schema->compile);
  if (kept == 0) parts[kept++] = *schema_any(schema);
  if (2 * schema->rules.count >= schema->table_size) grow_rules(schema);
  uint32_t slot = hash & (schema->table_size - 1);
  for (; schema->table[slot]; slot = (slot + 1) & (schema->table_size - 1)) {
    const rule_t *rule = (const rule_t *)schema->rules.items + schema->table[slot] - 1;
    if (rule->hash == hash && same_parts(rule, parts, kept)) return rule->node;
  }
  if (schema->rules.count >= schema->compile->limits->rules_max) {
    compile_fail(schema->compile, ERR_BAD_REQUEST, "The schema expands to more than %u rules.",
                 schema->compile->limits->rules_max);
  }
  rule_t *rule = list_add(schema->compile, &schema->rules, sizeof *rule);
  *rule = (rule_t){parts, kept, hash, build_alt(schema->compile, NULL, 0)};
  schema->table[slot] = schema->rules.count;
  return rule->node;
}

/* ---- joining ---- */

void schema_refuse_cycle(const schema_t *schema, const schema_part_t *from, const json_t *target) {
  for (const schema_part_t *part = from; part != NULL; part = part->from) {
    if (part->schema == target) {
      schema_fail(schema, ERR_INVALID_VALUE, from->pointer,
                  "the schema refers to itself without an object or array in between.");
    }
  }
}

static void add_part(const schema_t *context, grammar_list_t *joined, schema_part_t part) {
  const schema_part_t *parts = joined->items;
  compile_spend(context->compile, joined->count / 8 + 1);
  for (uint32_t i = 0; i < joined->count; i++) {
    if (compare_parts(&parts[i], &part) == 0) return;
  }
  *(schema_part_t *)list_add(context->compile, joined, sizeof part) = part;
}

static schema_part_t *keep_part(const schema_t *schema, const schema_part_t *part) {
  schema_part_t *kept = compile_scratch(schema->compile, 1, sizeof *kept);
  *kept = *part;
  return kept;
}

static void add_dependent(const schema_t *schema, grammar_list_t *joined,
                          const keywords_t *keywords, keyword_t keyword) {
  const schema_part_t *from = keywords->part;
  const json_t *map = keywords->values[keyword];
  if (map == NULL) return;
  const char *name = schema_keyword_name(keyword);
  const char *base = schema_pointer(schema, from->pointer, name, strlen(name));
  JSON_EACH(json, map) {
    if (json->type == JSON_ARRAY) continue;
    const char *pointer = schema_pointer(schema, base, json->key, json->key_length);
    add_part(schema, joined, (schema_part_t){json, pointer, schema_mode(PART_DEPENDENT), from});
  }
}

static void join_part(const schema_t *schema, grammar_list_t *joined, const keywords_t *keywords) {
  const schema_part_t *from = keywords->part;
  if (keywords->values[KEYWORD_REF] != NULL) {
    const schema_part_t *target = schema_resolve(schema, keywords);
    schema_refuse_cycle(schema, from, target->schema);
    add_part(schema, joined, *target);
  }
  if (keywords->values[KEYWORD_NOT] != NULL) {
    const char *pointer = schema_pointer_to(schema, from->pointer, "not");
    add_part(schema, joined,
             (schema_part_t){keywords->values[KEYWORD_NOT], pointer, schema_mode(PART_NOT), from});
  }
  add_dependent(schema, joined, keywords, KEYWORD_DEPENDENT_SCHEMAS);
  add_dependent(schema, joined, keywords, KEYWORD_DEPENDENCIES);
  uint32_t index = 0;
  if (keywords->values[KEYWORD_ALL_OF] == NULL) return;
  JSON_EACH(json, keywords->values[KEYWORD_ALL_OF]) {
    const char *pointer = schema_pointer_index(schema, from->pointer, "allOf", index++);
    add_part(schema, joined, (schema_part_t){json, pointer, 0, from});
  }
}

/* A schema that fails in one way is that way. Returns the flags that the part gets; sets *never if
 * it holds always. */
static uint32_t join_not(schema_t *schema, grammar_list_t *joined, const schema_part_t *part,
                         bool *never) {
  grammar_list_t ways = schema_negations(schema, part);
  const schema_way_t *way = ways.items;
  if (ways.count == 0) *never = true;
  if (ways.count != 1) return DONE_JOINED;
  for (uint32_t i = 0; i < way->count; i++) {
    part_mode_t mode = schema_part_mode(&way->parts[i]);
    if (mode == PART_PLAIN || mode == PART_NOT)
      schema_refuse_cycle(schema, part, way->parts[i].schema);
    add_part(schema, joined, way->parts[i]);
  }
  return DONE_JOINED | DONE_SPLIT;
}

conjunction_t schema_join(schema_t *schema, const schema_part_t *parts, uint32_t count,
                          grammar_list_t *joined) {
  conjunction_t conjunction = {0};
  grammar_list_t keywords = {0};
  for (uint32_t i = 0; i < count; i++) add_part(schema, joined, parts[i]);
  for (uint32_t i = 0; i < joined->count; i++) {
    schema_part_t part = ((const schema_part_t *)joined->items)[i];
    part_mode_t mode = schema_part_mode(&part);
    uint32_t done = DONE_JOINED;
    if (mode == PART_PLAIN && part.schema->type == JSON_FALSE) conjunction.never = true;
    if (mode == PART_PLAIN && part.schema->type != JSON_OBJECT) continue;
    schema_part_t *kept = keep_part(schema, &part);
    keywords_t words = schema_keywords(schema, kept);
    if (mode == PART_PLAIN && !(part.done & DONE_JOINED)) join_part(schema, joined, &words);
    if (mode == PART_NOT && !(part.done & DONE_JOINED))
      done = join_not(schema, joined, kept, &conjunction.never);
    ((schema_part_t *)joined->items)[i].done |= done;
    kept->done |= done & DONE_SPLIT;
    *(keywords_t *)list_add(schema->compile, &keywords, sizeof words) = words;
  }
  conjunction.items = keywords.items;
  conjunction.count = keywords.count;
  return conjunction;
}

/* ---- one rule ---- */

static uint32_t keyword_text(schema_t *schema, const char *text) {
  return build_lex(schema->compile, lexeme_pattern(schema->compile, text), NODE_ID_RETURN);
}

static void fill_types(schema_t *schema, uint32_t node, const conjunction_t *conjunction,
                       const grammar_list_t *joined) {
  uint32_t types = TYPE_ALL, branches[8], count = 0;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    types &= schema_types(schema, &conjunction->items[i]);
  }
  if (schema_fill_structures(schema, node, conjunction, joined, types)) return;
  if (schema_first_values(conjunction) != NULL) {
    branches[count++] = schema_values(schema, conjunction, types);
    build_alt_fill(schema->compile, node, branches, count);
    return;
  }
  if (types & TYPE_OBJECT) branches[count++] = schema_object(schema, conjunction);
  if (types & TYPE_ARRAY) branches[count++] = schema_array(schema, conjunction);
  if (types & TYPE_STRING) branches[count++] = schema_string(schema, conjunction);
  if (types & TYPE_NUMBER) {
    branches[count++] = schema_number(schema, conjunction, !(types & TYPE_FRACTION));
  }
  static const struct {
    uint32_t type;
    json_type_t value;
  } words[] = {{TYPE_BOOLEAN, JSON_TRUE}, {TYPE_BOOLEAN, JSON_FALSE}, {TYPE_NULL, JSON_NULL}};
  for (size_t i = 0; i < ARRAY_LEN(words); i++) {
    if ((types & words[i].type) && schema_allows_word(schema, conjunction, words[i].value))
      branches[count++] = keyword_text(schema, schema_word(schema, words[i].value));
  }
  build_alt_fill(schema->compile, node, branches, count);
}

/* Returns true if the other parts hold all that the part says. */
static bool is_spent(const schema_t *schema, const schema_part_t *part) {
  part_mode_t mode = schema_part_mode(part);
  if (mode == PART_NOT || mode == PART_DEPENDENT || schema_is_some(part))
    return part->done & DONE_SPLIT;
  if (mode != PART_PLAIN || part->schema->type != JSON_OBJECT) return false;
  keywords_t keywords = schema_keywords(schema, part);
  if (part->done & DONE_JOINED) {
    keywords.values[KEYWORD_REF] = NULL;
    keywords.values[KEYWORD_ALL_OF] = NULL;
    keywords.values[KEYWORD_NOT] = NULL;
    keywords.values[KEYWORD_DEPENDENT_SCHEMAS] = NULL;
  }
  if (!schema_is_conditional(&keywords)) keywords.values[KEYWORD_IF] = NULL;
  if (keywords.values[KEYWORD_IF] == NULL) {
    keywords.values[KEYWORD_THEN] = NULL;
    keywords.values[KEYWORD_ELSE] = NULL;
  }
  if (part->done & DONE_ANY_OF) keywords.values[KEYWORD_ANY_OF] = NULL;
  if (part->done & DONE_ONE_OF) keywords.values[KEYWORD_ONE_OF] = NULL;
  for (int i = 0; i < KEYWORD_COUNT; i++) {
    if (keywords.values[i] != NULL) return false;
  }
  return true;
}

/* If some parts are spent, the rule calls the rule of the others: places that refer to one schema
 * then share a rule, so that the matcher need not follow a copy for each place. Returns true if it
 * does. */
static bool fill_call(schema_t *schema, const rule_t *rule, const conjunction_t *conjunction,
                      const grammar_list_t *joined) {
  const schema_part_t *parts = joined->items;
  schema_part_t *kept = compile_scratch(schema->compile, (size_t)joined->count + 1, sizeof *kept);
  uint32_t count = 0;
  if (schema_has_unevaluated(conjunction)) return false; /* it asks which parts hold */
  for (uint32_t i = 0; i < joined->count; i++) {
    if (!is_spent(schema, &parts[i])) kept[count++] = parts[i];
  }
  if (count == joined->count) return false;
  uint32_t to = schema_rule(schema, kept, count);
  uint32_t branch = build_node(schema->compile, NODE_CALL, to, NODE_ID_RETURN);
  build_alt_fill(schema->compile, rule->node, &branch, 1);
  return true;
}

static void fill_rule(schema_t *schema, const rule_t *rule) {
  grammar_list_t joined = {0};
  conjunction_t conjunction = schema_join(schema, rule->parts, rule->count, &joined);
  if (conjunction.never) return; /* an alternative without branches accepts nothing */
  if (fill_call(schema, rule, &conjunction, &joined)) return;
  if (schema_fill_split(schema, rule->node, &conjunction, &joined)) return;
  conjunction = schema_evaluate(schema, &conjunction);
  fill_types(schema, rule->node, &conjunction, &joined);
}

/* ---- entry point ---- */

typedef struct size {
  uint32_t nodes, depth_max;
  size_t bytes;
} size_count_t;

static void measure(const json_t *json, uint32_t depth, size_count_t *size) {
  if (depth > size->depth_max) size->depth_max = depth;
  size->bytes += (size_t)json->length + json->key_length + 4;
  if (json->type == JSON_OBJECT) size->nodes++;
  if (json->type != JSON_OBJECT && json->type != JSON_ARRAY) return;
  JSON_EACH(child, json) {
    size->nodes += json->type == JSON_ARRAY && child->type != JSON_OBJECT;
    measure(child, depth + 1, size); /* the reader bounds the depth */
  }
}

static void check_size(const schema_t *schema) {
  const grammar_limits_t *limits = schema->compile->limits;
  size_count_t size = {0};
  measure(schema->root, 0, &size);
  if (size.bytes > limits->schema_bytes_max) {
    compile_fail(schema->compile, ERR_BAD_REQUEST,
                 "The schema has %zu bytes; at most %u are allowed.", size.bytes,
                 limits->schema_bytes_max);
  }
  if (size.nodes > limits->schema_nodes_max) {
    compile_fail(schema->compile, ERR_BAD_REQUEST,
                 "The schema has %u subschemas and values; at most %u are allowed.", size.nodes,
                 limits->schema_nodes_max);
  }
  /* A level of schema is two of JSON: `properties`, and the name in it. */
  if (size.depth_max > 2 * limits->schema_depth_max) {
    compile_fail(schema->compile, ERR_BAD_REQUEST, "The schema nests deeper than %u levels.",
                 limits->schema_depth_max);
  }
}

void schema_begin(schema_t *schema, const grammar_source_t *source) {
  schema->source = source;
  if (schema->root == NULL ||
      (schema->root->type != JSON_OBJECT && schema->root->type != JSON_TRUE)) {
    compile_fail(schema->compile, ERR_INVALID_TYPE, "Expected a JSON schema, which is an object.");
  }
  check_size(schema);
  schema_dialect(schema, json_get(schema->root, "$schema"), "");
  schema_find_bases(schema);
  schema->known_only = source->known_only || source->strict;
  if (source->strict) schema_check_strict(schema);
}

void schema_finish(schema_t *schema) {
  for (uint32_t i = 0; i < schema->rules.count; i++) {
    rule_t rule = ((const rule_t *)schema->rules.items)[i];
    compile_spend(schema->compile, 10);
    fill_rule(schema, &rule);
  }
}

uint32_t schema_compile(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const json_t object[] = {
      {.type = JSON_OBJECT, .count = 1},
      {.type = JSON_STRING, .key = "type", .key_length = 4, .text = "object", .length = 6}};
  schema_t schema = {.compile = compile, .root = source->schema};
  schema_begin(&schema, source);
  bool whole = source->place == NULL;
  schema_part_t parts[] = {
      schema_part(whole ? schema.root : source->place, whole ? "" : source->pointer),
      schema_part(object, "")};
  uint32_t start = schema_rule(&schema, parts, source->object_only ? 2 : 1);
  schema_finish(&schema);
  return build_node(compile, NODE_CALL, start, next);
}
