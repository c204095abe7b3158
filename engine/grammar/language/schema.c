/* schema.c: a JSON schema -> rules.
 *
 * Part of a compilation, on its thread. A rule is a conjunction of subschemas (schema.h). Rules are
 * made on demand and worked off from a list, so that nesting and recursion of the schema never
 * become recursion of the compiler. Next: schema_string.c, schema_number.c, schema_array.c,
 * schema_object.c, schema_values.c.
 */
#include "engine/grammar/language/schema.h"

#include <stdlib.h>
#include <string.h>

typedef struct rule {
  part_t *parts; /* sorted by schema, without doubles */
  uint32_t count, hash;
  uint32_t node; /* NODE_ALT that is filled when the rule's turn comes */
} rule_t;

/* ---- rules by name ---- */

static int compare_parts(const void *left, const void *right) {
  const part_t *a = left, *b = right;
  if (a->schema != b->schema) return a->schema < b->schema ? -1 : 1;
  return a->done < b->done ? -1 : a->done > b->done;
}

static void grow_rules(schema_t *s) {
  uint32_t size = s->table_size ? 2 * s->table_size : 256;
  const rule_t *rules = s->rules.items;
  s->table = compile_scratch(s->c, size, sizeof *s->table);
  s->table_size = size;
  for (uint32_t i = 0; i < s->rules.count; i++) {
    uint32_t slot = rules[i].hash & (size - 1);
    while (s->table[slot]) slot = (slot + 1) & (size - 1);
    s->table[slot] = i + 1;
  }
}

static bool same_parts(const rule_t *r, const part_t *parts, uint32_t count) {
  if (r->count != count) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (compare_parts(&r->parts[i], &parts[i]) != 0) return false;
  }
  return true;
}

uint32_t schema_rule(schema_t *s, const part_t *given, uint32_t count) {
  part_t *parts = compile_scratch(s->c, (size_t)count + 1, sizeof *parts);
  uint32_t kept = 0, hash = 2166136261u;
  compile_spend(s->c, count);
  if (count) memcpy(parts, given, count * sizeof *parts);
  qsort(parts, count, sizeof *parts, compare_parts);
  for (uint32_t i = 0; i < count; i++) {
    if (kept > 0 && compare_parts(&parts[kept - 1], &parts[i]) == 0) continue;
    if (parts[i].schema->type == JSON_TRUE) continue;
    parts[kept++] = parts[i];
    hash = (hash ^ (uint32_t)((uintptr_t)parts[kept - 1].schema >> 3)) * 16777619u;
    hash = (hash ^ parts[kept - 1].done) * 16777619u;
  }
  if (kept == 0) return json_value_rule(s->c);
  if (2 * s->rules.count >= s->table_size) grow_rules(s);
  uint32_t slot = hash & (s->table_size - 1);
  for (; s->table[slot]; slot = (slot + 1) & (s->table_size - 1)) {
    const rule_t *r = (const rule_t *)s->rules.items + s->table[slot] - 1;
    if (r->hash == hash && same_parts(r, parts, kept)) return r->node;
  }
  if (s->rules.count >= s->c->limits->rules_max) {
    compile_fail(s->c, ERR_BAD_REQUEST, "The schema expands to more than %u rules.",
                 s->c->limits->rules_max);
  }
  rule_t *rule = list_add(s->c, &s->rules, sizeof *rule);
  *rule = (rule_t){parts, kept, hash, build_alt(s->c, NULL, 0)};
  s->table[slot] = s->rules.count;
  return rule->node;
}

/* ---- joining ---- */

static void refuse_cycle(const schema_t *s, const part_t *from, const json_t *target) {
  for (const part_t *p = from; p != NULL; p = p->from) {
    if (p->schema == target) {
      schema_fail(s, ERR_INVALID_VALUE, from->pointer,
                  "the schema refers to itself without an object or array in between.");
    }
  }
}

static void add_part(const schema_t *s, list_t *joined, part_t part) {
  const part_t *parts = joined->items;
  compile_spend(s->c, joined->count / 8 + 1);
  for (uint32_t i = 0; i < joined->count; i++) {
    if (compare_parts(&parts[i], &part) == 0) return;
  }
  *(part_t *)list_add(s->c, joined, sizeof part) = part;
}

static const part_t *keep_part(const schema_t *s, const part_t *part) {
  part_t *kept = compile_scratch(s->c, 1, sizeof *kept);
  *kept = *part;
  return kept;
}

static void join_part(const schema_t *s, list_t *joined, const keywords_t *k) {
  const part_t *from = k->part;
  if (k->values[KEYWORD_REF] != NULL) {
    const part_t *target = schema_resolve(s, k);
    refuse_cycle(s, from, target->schema);
    add_part(s, joined, *target);
  }
  uint32_t index = 0;
  if (k->values[KEYWORD_ALL_OF] == NULL) return;
  JSON_EACH(v, k->values[KEYWORD_ALL_OF]) {
    const char *pointer = schema_pointer_index(s, from->pointer, "allOf", index++);
    add_part(s, joined, (part_t){v, pointer, 0, from});
  }
}

conjunction_t schema_join(const schema_t *s, const part_t *parts, uint32_t count, list_t *joined) {
  conjunction_t k = {0};
  list_t keywords = {0};
  for (uint32_t i = 0; i < count; i++) add_part(s, joined, parts[i]);
  for (uint32_t i = 0; i < joined->count; i++) {
    part_t part = ((const part_t *)joined->items)[i];
    if (part.schema->type == JSON_FALSE) k.never = true;
    if (part.schema->type != JSON_OBJECT) continue;
    keywords_t words = schema_keywords(s, keep_part(s, &part));
    if (!(part.done & DONE_JOINED)) join_part(s, joined, &words);
    ((part_t *)joined->items)[i].done |= DONE_JOINED;
    *(keywords_t *)list_add(s->c, &keywords, sizeof words) = words;
  }
  k.items = keywords.items;
  k.count = keywords.count;
  return k;
}

/* ---- alternatives ---- */

/* All parts, with `flag` set on the one that holds the alternatives, and one branch. */
static part_t *with_branch(const schema_t *s, const list_t *joined, const json_t *holder,
                           uint32_t flag, part_t branch) {
  part_t *parts = compile_scratch(s->c, (size_t)joined->count + 1, sizeof *parts);
  memcpy(parts, joined->items, joined->count * sizeof *parts);
  for (uint32_t i = 0; i < joined->count; i++) {
    if (parts[i].schema == holder) parts[i].done |= flag;
  }
  parts[joined->count] = branch;
  return parts;
}

static void check_one_of(schema_t *s, const list_t *joined, const keywords_t *k,
                         part_t *const *branches, uint32_t count) {
  for (uint32_t a = 0; a < count; a++) {
    for (uint32_t b = a + 1; b < count; b++) {
      uint32_t n = joined->count + 1;
      compile_spend(s->c, n);
      if (schema_disjoint(s, branches[a], n, branches[b], n, 0)) continue;
      schema_fail(
          s, ERR_UNSUPPORTED_PARAMETER, schema_pointer(s, k->part->pointer, "oneOf", 5),
          "branches %u and %u are not provably disjoint; use anyOf, or give each a required "
          "property with its own const.",
          a, b);
    }
  }
}

/* Multiplies the conjunction out over one anyOf or oneOf. */
static void fill_branches(schema_t *s, uint32_t node, const list_t *joined, const keywords_t *k,
                          keyword_t keyword) {
  const json_t *list = k->values[keyword];
  const char *name = keyword == KEYWORD_ANY_OF ? "anyOf" : "oneOf";
  uint32_t flag = keyword == KEYWORD_ANY_OF ? DONE_ANY_OF : DONE_ONE_OF, index = 0;
  uint32_t *nodes = compile_scratch(s->c, list->count, sizeof *nodes);
  part_t **branches = compile_scratch(s->c, list->count, sizeof *branches);
  const part_t *from = keep_part(s, k->part);
  JSON_EACH(v, list) {
    refuse_cycle(s, from, v);
    part_t branch = {v, schema_pointer_index(s, from->pointer, name, index), 0, from};
    branches[index++] = with_branch(s, joined, from->schema, flag, branch);
  }
  if (keyword == KEYWORD_ONE_OF) check_one_of(s, joined, k, branches, index);
  for (uint32_t i = 0; i < index; i++) {
    uint32_t rule = schema_rule(s, branches[i], joined->count + 1);
    nodes[i] = build_node(s->c, NODE_CALL, rule, NODE_ID_RETURN);
  }
  build_alt_fill(s->c, node, nodes, index);
}

/* ---- one rule ---- */

static uint32_t keyword_text(schema_t *s, const char *text) {
  return build_lex(s->c, lexeme_pattern(s->c, text), NODE_ID_RETURN);
}

static void fill_types(schema_t *s, uint32_t node, const conjunction_t *k) {
  uint32_t types = TYPE_ALL, branches[8], count = 0;
  for (uint32_t i = 0; i < k->count; i++) {
    types &= schema_types(s, &k->items[i]);
  }
  if (schema_first_values(k) != NULL) {
    branches[count++] = schema_values(s, k, types);
    build_alt_fill(s->c, node, branches, count);
    return;
  }
  if (types & TYPE_OBJECT) branches[count++] = schema_object(s, k);
  if (types & TYPE_ARRAY) branches[count++] = schema_array(s, k);
  if (types & TYPE_STRING) branches[count++] = schema_string(s, k);
  if (types & TYPE_INTEGER) {
    branches[count++] = schema_number(s, k, !(types & TYPE_FRACTION));
  }
  if (types & TYPE_BOOLEAN) branches[count++] = keyword_text(s, "true|false");
  if (types & TYPE_NULL) branches[count++] = keyword_text(s, "null");
  build_alt_fill(s->c, node, branches, count);
}

static void fill_rule(schema_t *s, const rule_t *rule) {
  list_t joined = {0};
  conjunction_t k = schema_join(s, rule->parts, rule->count, &joined);
  if (k.never) return; /* an alternative without branches: nothing */
  for (uint32_t i = 0; i < k.count; i++) {
    uint32_t done = k.items[i].part->done;
    if (k.items[i].values[KEYWORD_ANY_OF] != NULL && !(done & DONE_ANY_OF)) {
      fill_branches(s, rule->node, &joined, &k.items[i], KEYWORD_ANY_OF);
      return;
    }
    if (k.items[i].values[KEYWORD_ONE_OF] != NULL && !(done & DONE_ONE_OF)) {
      fill_branches(s, rule->node, &joined, &k.items[i], KEYWORD_ONE_OF);
      return;
    }
  }
  fill_types(s, rule->node, &k);
}

/* ---- the whole ---- */

typedef struct size {
  uint32_t nodes, depth_max;
  size_t bytes;
} size_count_t;

static void measure(const json_t *v, uint32_t depth, size_count_t *size) {
  if (depth > size->depth_max) size->depth_max = depth;
  size->bytes += (size_t)v->length + v->key_length + 4;
  if (v->type == JSON_OBJECT) size->nodes++;
  if (v->type != JSON_OBJECT && v->type != JSON_ARRAY) return;
  JSON_EACH(child, v) {
    size->nodes += v->type == JSON_ARRAY && child->type != JSON_OBJECT;
    measure(child, depth + 1, size); /* the reader bounds the depth */
  }
}

static void check_size(const schema_t *s) {
  const grammar_limits_t *limits = s->c->limits;
  size_count_t size = {0};
  measure(s->root, 0, &size);
  if (size.bytes > limits->schema_bytes_max) {
    compile_fail(s->c, ERR_BAD_REQUEST, "The schema has %zu bytes; at most %u are allowed.",
                 size.bytes, limits->schema_bytes_max);
  }
  if (size.nodes > limits->schema_nodes_max) {
    compile_fail(s->c, ERR_BAD_REQUEST,
                 "The schema has %u subschemas and values; at most %u are allowed.", size.nodes,
                 limits->schema_nodes_max);
  }
  /* A level of schema is two of JSON: `properties`, and the name in it. */
  if (size.depth_max > 2 * limits->schema_depth_max) {
    compile_fail(s->c, ERR_BAD_REQUEST, "The schema nests deeper than %u levels.",
                 limits->schema_depth_max);
  }
}

void schema_begin(schema_t *s, bool strict) {
  if (s->root == NULL || (s->root->type != JSON_OBJECT && s->root->type != JSON_TRUE)) {
    compile_fail(s->c, ERR_INVALID_TYPE, "Expected a JSON schema, which is an object.");
  }
  check_size(s);
  schema_dialect(s);
  if (strict) schema_check_strict(s);
}

void schema_finish(schema_t *s) {
  for (uint32_t i = 0; i < s->rules.count; i++) {
    rule_t rule = ((const rule_t *)s->rules.items)[i];
    compile_spend(s->c, 10);
    fill_rule(s, &rule);
  }
}

uint32_t schema_compile(compile_t *c, const grammar_source_t *source, uint32_t next) {
  schema_t s = {.c = c, .root = source->schema};
  schema_begin(&s, source->strict);
  part_t root = schema_part(s.root, "");
  uint32_t start = schema_rule(&s, &root, 1);
  schema_finish(&s);
  return build_node(c, NODE_CALL, start, next);
}
