/* schema_split.c: the ways in which a conjunction can hold.
 *
 * Part of a compilation, on its thread. anyOf, oneOf, if, a schema that must not hold and a schema
 * that depends on a member each give a rule several ways. A rule takes one of them apart, and calls
 * a rule for each way; the rest is left to these rules. Ways that contradict the other parts are
 * left out at once, else k conditions would give 2^k rules.
 */
#include "engine/base/util.h"
#include "engine/grammar/language/schema_logic.h"

#include <string.h>

/* What is taken apart. */
typedef struct split {
  const schema_part_t *holder; /* the part that has the alternatives */
  uint32_t flag;               /* DONE_ bit that it gets */
  bool prune;                  /* ways may contradict the other parts */
  grammar_list_t ways;         /* schema_way_t */
} split_t;

void schema_add_way(const schema_t *schema, grammar_list_t *ways, const schema_part_t *parts,
                    uint32_t count) {
  schema_part_t *kept = compile_scratch(schema->compile, (size_t)count + 1, sizeof *kept);
  memcpy(kept, parts, count * sizeof *kept);
  *(schema_way_t *)list_add(schema->compile, ways, sizeof(schema_way_t)) =
      (schema_way_t){kept, count};
}

/* Returns all parts and those of the way; the holder gets its flag. */
static schema_part_t *with_way(const schema_t *schema, const grammar_list_t *joined,
                               const split_t *split, const schema_way_t *way) {
  uint32_t count = joined->count;
  schema_part_t *parts =
      compile_scratch(schema->compile, (size_t)count + way->count + 1, sizeof *parts);
  compile_spend(schema->compile, count + way->count);
  memcpy(parts, joined->items, count * sizeof *parts);
  for (uint32_t i = 0; i < count; i++) {
    if (parts[i].schema == split->holder->schema &&
        parts[i].done >> PART_MODE_SHIFT == split->holder->done >> PART_MODE_SHIFT)
      parts[i].done |= split->flag;
  }
  memcpy(parts + count, way->parts, way->count * sizeof *parts);
  return parts;
}

static bool contradicts(schema_t *schema, const grammar_list_t *joined, const split_t *split,
                        const schema_way_t *way) {
  const schema_part_t *parts = with_way(schema, joined, split, way);
  return schema_is_empty(schema, parts, joined->count + way->count, 0);
}

const schema_part_t *schema_with_branch(const schema_t *schema, const grammar_list_t *joined,
                                        const schema_part_t *holder, uint32_t flag,
                                        const json_t *json) {
  split_t split = {.holder = holder, .flag = flag};
  schema_part_t branch = {json, holder->pointer, 0, holder};
  schema_way_t way = {&branch, 1};
  schema_refuse_cycle(schema, holder, json);
  return with_way(schema, joined, &split, &way);
}

bool schema_no_branch(schema_t *schema, const grammar_list_t *joined, const schema_part_t *holder,
                      uint32_t flag, const json_t *list, int depth) {
  JSON_EACH(json, list) {
    const schema_part_t *parts = schema_with_branch(schema, joined, holder, flag, json);
    if (!schema_is_empty(schema, parts, joined->count + 1, depth)) return false;
  }
  return true;
}

/* ---- anyOf and oneOf ---- */

static schema_part_t *branches_of(const schema_t *schema, const schema_part_t *holder,
                                  const json_t *list, const char *name) {
  schema_part_t *branches = compile_scratch(schema->compile, list->count, sizeof *branches);
  uint32_t count = 0;
  JSON_EACH(json, list) {
    schema_refuse_cycle(schema, holder, json);
    const char *pointer = schema_pointer_index(schema, holder->pointer, name, count);
    branches[count++] = (schema_part_t){json, pointer, 0, holder};
  }
  return branches;
}

/* Fills a table of which two branches may hold together. */
static uint8_t *find_overlaps(schema_t *schema, const grammar_list_t *joined, split_t *split,
                              const schema_part_t *branches, uint32_t count) {
  uint8_t *overlaps = compile_scratch(schema->compile, (size_t)count * count, 1);
  for (uint32_t left = 0; left < count; left++) {
    for (uint32_t right = left + 1; right < count; right++) {
      schema_way_t both = {(schema_part_t[]){branches[left], branches[right]}, 2};
      bool overlap = !contradicts(schema, joined, split, &both);
      overlaps[left * count + right] = overlaps[right * count + left] = overlap;
      split->prune = split->prune || overlap;
    }
  }
  return overlaps;
}

/* Any of the branches, so that it is known which hold of those that look at members or items: each
 * set of these that may hold together while the others do not, or a branch of another kind while
 * none of these does. */
static void split_by_sets(schema_t *schema, const grammar_list_t *joined, split_t *split,
                          const json_t *list) {
  enum { BRANCHES_MAX = 5 };
  uint32_t count = list->count, looking[BRANCHES_MAX], num_looking = 0, index = 0;
  const schema_part_t *branches = branches_of(schema, split->holder, list, "anyOf");
  split->flag = DONE_ANY_OF;
  const uint8_t *overlaps = find_overlaps(schema, joined, split, branches, count);
  schema_part_t *parts = compile_scratch(schema->compile, BRANCHES_MAX + 1, sizeof *parts);
  split->prune = true;
  JSON_EACH(json, list) {
    if (schema_evaluates(json) && num_looking == BRANCHES_MAX) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, split->holder->pointer,
                  "beside 'unevaluatedProperties' and 'unevaluatedItems' at most %d branches of "
                  "'anyOf' may look at members or items.",
                  BRANCHES_MAX);
    }
    if (schema_evaluates(json)) looking[num_looking++] = index;
    index++;
  }
  for (uint32_t set = 1; set < UINT32_C(1) << num_looking; set++) {
    uint32_t used = 0;
    bool possible = true;
    for (uint32_t i = 0; i < num_looking; i++) {
      bool is_in = set >> i & 1, overlap = true;
      for (uint32_t k = 0; k < num_looking; k++) {
        if (k != i && (set >> k & 1))
          overlap = overlap && overlaps[looking[i] * count + looking[k]];
      }
      if (is_in) possible = possible && overlap;
      if (!is_in && !overlap) continue; /* what holds says that it does not */
      parts[used] = branches[looking[i]];
      if (!is_in) parts[used].done = schema_mode(PART_NOT);
      used++;
    }
    if (possible) schema_add_way(schema, &split->ways, parts, used);
  }
  for (uint32_t b = 0; b < count; b++) {
    uint32_t used = 1;
    parts[0] = branches[b];
    if (schema_evaluates(branches[b].schema)) continue;
    for (uint32_t i = 0; i < num_looking; i++) {
      if (!overlaps[b * count + looking[i]]) continue;
      parts[used] = branches[looking[i]];
      parts[used++].done = schema_mode(PART_NOT);
    }
    schema_add_way(schema, &split->ways, parts, used);
  }
}

static void split_any_of(schema_t *schema, split_t *split, const json_t *list) {
  const schema_part_t *branches = branches_of(schema, split->holder, list, "anyOf");
  split->flag = DONE_ANY_OF;
  for (uint32_t i = 0; i < list->count; i++) schema_add_way(schema, &split->ways, &branches[i], 1);
}

/* Exactly one branch: it holds, and the others, as far as they may hold with it, do not. */
static void split_one_of(schema_t *schema, const grammar_list_t *joined, split_t *split,
                         const json_t *list) {
  uint32_t count = list->count;
  const schema_part_t *branches = branches_of(schema, split->holder, list, "oneOf");
  schema_part_t *parts = compile_scratch(schema->compile, count, sizeof *parts);
  split->flag = DONE_ONE_OF;
  const uint8_t *overlaps = find_overlaps(schema, joined, split, branches, count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t used = 0;
    parts[used++] = branches[i];
    for (uint32_t other = 0; other < count; other++) {
      if (!overlaps[i * count + other]) continue;
      parts[used] = branches[other];
      parts[used++].done = schema_mode(PART_NOT);
    }
    schema_add_way(schema, &split->ways, parts, used);
  }
}

/* ---- conditions ---- */

static void split_if(schema_t *schema, split_t *split, const keywords_t *keywords) {
  static const struct {
    keyword_t keyword;
    const char *name;
    part_mode_t mode;
  } sides[] = {{KEYWORD_THEN, "then", PART_PLAIN}, {KEYWORD_ELSE, "else", PART_NOT}};
  const schema_part_t *holder = split->holder;
  const json_t *condition = keywords->values[KEYWORD_IF];
  split->flag = DONE_IF;
  split->prune = true;
  for (int i = 0; i < 2; i++) {
    const json_t *side = keywords->values[sides[i].keyword];
    schema_part_t parts[2] = {{condition, schema_pointer_to(schema, holder->pointer, "if"),
                               schema_mode(sides[i].mode), holder}};
    schema_refuse_cycle(schema, holder, condition);
    if (side != NULL) {
      schema_refuse_cycle(schema, holder, side);
      parts[1] = (schema_part_t){
          side, schema_pointer(schema, holder->pointer, sides[i].name, strlen(sides[i].name)), 0,
          holder};
    }
    schema_add_way(schema, &split->ways, parts, side != NULL ? 2 : 1);
  }
}

/* The member is absent, or the schema that depends on it holds. */
static void split_dependent(schema_t *schema, split_t *split) {
  const schema_part_t *holder = split->holder;
  schema_part_t absent = {holder->schema, holder->pointer, schema_mode(PART_ABSENT), holder};
  schema_part_t present[] = {{holder->schema, holder->pointer, schema_mode(PART_PRESENT), holder},
                             {holder->schema, holder->pointer, 0, holder->from}};
  split->flag = DONE_SPLIT;
  split->prune = true;
  schema_add_way(schema, &split->ways, &absent, 1);
  schema_add_way(schema, &split->ways, present, 2);
}

/* ---- which comes first ---- */

static bool find_list(schema_t *schema, const conjunction_t *conjunction,
                      const grammar_list_t *joined, split_t *split) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    uint32_t done = keywords->part->done;
    split->holder = keywords->part;
    if (keywords->values[KEYWORD_ANY_OF] != NULL && !(done & DONE_ANY_OF)) {
      const json_t *list = keywords->values[KEYWORD_ANY_OF];
      if (schema_has_unevaluated(conjunction)) {
        split_by_sets(schema, joined, split, list);
      } else {
        split_any_of(schema, split, list);
      }
      return true;
    }
    if (keywords->values[KEYWORD_ONE_OF] != NULL && !(done & DONE_ONE_OF)) {
      split_one_of(schema, joined, split, keywords->values[KEYWORD_ONE_OF]);
      return true;
    }
  }
  return false;
}

bool schema_is_conditional(const keywords_t *keywords) {
  return keywords->values[KEYWORD_IF] != NULL && !(keywords->part->done & DONE_IF) &&
         (keywords->values[KEYWORD_THEN] != NULL || keywords->values[KEYWORD_ELSE] != NULL);
}

/* Returns true if the `if` has to be taken apart. One without `then` and `else` restricts nothing;
 * but where a keyword asks which members were looked at, it must be known whether the `if` holds.
 */
static bool is_asked(const conjunction_t *conjunction, const keywords_t *keywords) {
  return schema_is_conditional(keywords) ||
         (keywords->values[KEYWORD_IF] != NULL && !(keywords->part->done & DONE_IF) &&
          schema_has_unevaluated(conjunction));
}

static bool find_condition(schema_t *schema, const conjunction_t *conjunction, split_t *split) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    part_mode_t mode = schema_part_mode(keywords->part);
    split->holder = keywords->part;
    if (is_asked(conjunction, keywords)) {
      split_if(schema, split, keywords);
      return true;
    }
    if (keywords->part->done & DONE_SPLIT) continue;
    if (mode == PART_DEPENDENT) {
      split_dependent(schema, split);
      return true;
    }
    if (mode == PART_NOT) {
      split->flag = DONE_SPLIT;
      split->prune = true;
      split->ways = schema_negations(schema, keywords->part);
      return true;
    }
  }
  return false;
}

/* A member that must occur is one of those that the other parts list, or none of them. So these
 * come first, and so do listed values, which are taken apart by schema_fill_structures. */
static bool find_some(schema_t *schema, const conjunction_t *conjunction, split_t *split) {
  if (schema_first_values(conjunction) != NULL) return false;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    split->holder = conjunction->items[i].part;
    if (!schema_is_undecided(split->holder)) continue;
    split->flag = DONE_SPLIT;
    split->prune = true;
    split->ways = schema_some_ways(schema, conjunction, split->holder);
    return true;
  }
  return false;
}

/* Returns true if a part is a negation or a literal: beside it, any way may be a contradiction. */
static bool has_literals(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    if (schema_part_mode(conjunction->items[i].part) != PART_PLAIN) return true;
  }
  return false;
}

bool schema_ways(schema_t *schema, const conjunction_t *conjunction, const grammar_list_t *joined,
                 grammar_list_t *out) {
  split_t split = {.prune = has_literals(conjunction)};
  if (!find_list(schema, conjunction, joined, &split) &&
      !find_condition(schema, conjunction, &split) && !find_some(schema, conjunction, &split))
    return false;
  const schema_way_t *ways = split.ways.items;
  for (uint32_t i = 0; i < split.ways.count; i++) {
    if (split.prune && contradicts(schema, joined, &split, &ways[i])) continue;
    const schema_part_t *parts = with_way(schema, joined, &split, &ways[i]);
    *(schema_way_t *)list_add(schema->compile, out, sizeof(schema_way_t)) =
        (schema_way_t){parts, joined->count + ways[i].count};
  }
  return true;
}

bool schema_fill_split(schema_t *schema, uint32_t node, const conjunction_t *conjunction,
                       const grammar_list_t *joined) {
  grammar_list_t list = {0};
  if (!schema_ways(schema, conjunction, joined, &list)) return false;
  const schema_way_t *ways = list.items;
  uint32_t *nodes = compile_scratch(schema->compile, (size_t)list.count + 1, sizeof *nodes);
  for (uint32_t i = 0; i < list.count; i++) {
    uint32_t rule = schema_rule(schema, ways[i].parts, ways[i].count);
    nodes[i] = build_node(schema->compile, NODE_CALL, rule, NODE_ID_RETURN);
  }
  build_alt_fill(schema->compile, node, nodes, list.count);
  return true;
}

bool schema_has_split(const conjunction_t *conjunction) {
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    uint32_t done = keywords->part->done;
    part_mode_t mode = schema_part_mode(keywords->part);
    if (keywords->values[KEYWORD_ANY_OF] != NULL && !(done & DONE_ANY_OF)) return true;
    if (keywords->values[KEYWORD_ONE_OF] != NULL && !(done & DONE_ONE_OF)) return true;
    if (is_asked(conjunction, keywords) || schema_is_undecided(keywords->part)) return true;
    if ((mode == PART_NOT || mode == PART_DEPENDENT) && !(done & DONE_SPLIT)) return true;
  }
  return false;
}
