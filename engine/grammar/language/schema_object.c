/* schema_object.c: objects of a conjunction.
 *
 * Part of a compilation, on its thread. The names are the listed ones in the order of the schema,
 * then those that are required but not listed. The schemas that apply to a member are
 * collected from every part: its properties, its patterns, or else its additionalProperties.
 */
#include "engine/base/hash.h"
#include "engine/grammar/language/schema_logic.h"
#include "engine/grammar/language/schema_members.h"

#include <stdio.h>
#include <string.h>

#define SPACE "[ \\t\\n\\r]{0,8}"

enum { PATTERNS_MAX = 31, CELLS_MAX = 64 };

static void add_part(const schema_t *context, grammar_list_t *parts, const json_t *schema,
                     const char *pointer) {
  *(schema_part_t *)list_add(context->compile, parts, sizeof(schema_part_t)) =
      schema_part(schema, pointer);
}

static void add_additional(const schema_t *schema, grammar_list_t *parts,
                           const keywords_t *keywords) {
  const json_t *json = keywords->values[KEYWORD_ADDITIONAL_PROPERTIES];
  if (json == NULL) return;
  add_part(schema, parts, json,
           schema_pointer(schema, keywords->part->pointer, json->key, json->key_length));
}

/* A member that must not satisfy its schema. */
static void add_literal(const schema_t *schema, grammar_list_t *parts, const keywords_t *keywords,
                        const char *name, size_t length) {
  const json_t *about = keywords->about;
  if (keywords->literal != LITERAL_MEMBER || about->key_length != length ||
      memcmp(about->key, name, length) != 0)
    return;
  *(schema_part_t *)list_add(schema->compile, parts, sizeof(schema_part_t)) =
      (schema_part_t){keywords->against, keywords->part->pointer, schema_mode(PART_NOT), NULL};
}

/* Returns true if the name of a member matches the pattern. */
static bool name_matches(schema_t *schema, const keywords_t *keywords, const json_t *pattern,
                         dfa_text_t name) {
  const char *pointer = schema_pointer_to(schema, keywords->part->pointer, "patternProperties");
  const dfa_t *dfa = schema_pattern(schema, pattern->key, pattern->key_length, true, pointer);
  return dfa_matches(dfa, name.bytes, name.length);
}

grammar_list_t schema_property_parts(schema_t *schema, const conjunction_t *conjunction,
                                     const char *name, size_t length) {
  grammar_list_t parts = {0};
  dfa_text_t canonical = canonical_text(schema->compile, name, (uint32_t)length);
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *own = json_member(keywords->values[KEYWORD_PROPERTIES], name, length);
    const json_t *patterns = keywords->values[KEYWORD_PATTERN_PROPERTIES];
    bool applies = own != NULL;
    compile_spend(schema->compile, 8);
    add_literal(schema, &parts, keywords, name, length);
    if (own != NULL) {
      const char *base = schema_pointer_to(schema, keywords->part->pointer, "properties");
      add_part(schema, &parts, own, schema_pointer(schema, base, name, length));
    }
    if (patterns != NULL) {
      JSON_EACH(json, patterns) {
        if (!name_matches(schema, keywords, json, canonical)) continue;
        const char *base = schema_pointer_to(schema, keywords->part->pointer, "patternProperties");
        add_part(schema, &parts, json, schema_pointer(schema, base, json->key, json->key_length));
        applies = true;
      }
    }
    if (!applies) add_additional(schema, &parts, keywords);
  }
  return parts;
}

/* ---- listed names ---- */

typedef struct names {
  grammar_list_t list; /* member_name_t */
  uint32_t *table, table_size;
} names_t;

static uint32_t hash_name(const char *text, uint32_t length) {
  uint32_t hash = fnv_32(FNV_32_BASIS, text, length);
  return hash ^ hash >> 15;
}

static void grow_names(const schema_t *schema, names_t *names) {
  const member_name_t *items = names->list.items;
  names->table_size = names->table_size ? 2 * names->table_size : 64;
  names->table = compile_scratch(schema->compile, names->table_size, sizeof *names->table);
  for (uint32_t i = 0; i < names->list.count; i++) {
    uint32_t slot = hash_name(items[i].text, items[i].length) & (names->table_size - 1);
    while (names->table[slot]) slot = (slot + 1) & (names->table_size - 1);
    names->table[slot] = i + 1;
  }
}

static void add_name(const schema_t *schema, names_t *names, const char *text, uint32_t length,
                     bool required) {
  compile_spend(schema->compile, 4);
  if (2 * names->list.count >= names->table_size) grow_names(schema, names);
  uint32_t slot = hash_name(text, length) & (names->table_size - 1);
  for (; names->table[slot]; slot = (slot + 1) & (names->table_size - 1)) {
    member_name_t *member_name = (member_name_t *)names->list.items + names->table[slot] - 1;
    if (member_name->length != length || memcmp(member_name->text, text, length) != 0) continue;
    member_name->required = member_name->required || required;
    return;
  }
  *(member_name_t *)list_add(schema->compile, &names->list, sizeof(member_name_t)) =
      (member_name_t){text, length, required};
  names->table[slot] = names->list.count;
}

grammar_list_t schema_member_names(const schema_t *schema, const conjunction_t *conjunction) {
  names_t names = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const json_t *properties = conjunction->items[i].values[KEYWORD_PROPERTIES];
    if (properties == NULL) continue;
    JSON_EACH(json, properties) add_name(schema, &names, json->key, json->key_length, false);
  }
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const json_t *required = conjunction->items[i].values[KEYWORD_REQUIRED];
    if (required == NULL) continue;
    JSON_EACH(json, required) add_name(schema, &names, json->text, json->length, true);
  }
  grammar_list_t others = schema_presence_names(schema, conjunction);
  const member_name_t *list = others.items;
  for (uint32_t i = 0; i < others.count; i++)
    add_name(schema, &names, list[i].text, list[i].length, list[i].required);
  return names.list;
}

/* Colon and value, then RETURN. */
static uint32_t entry_of(schema_t *schema, const object_words_t *words,
                         const grammar_list_t *parts) {
  uint32_t rule = schema_rule(schema, parts->items, parts->count);
  uint32_t value = build_node(schema->compile, NODE_CALL, rule, NODE_ID_RETURN);
  return build_lex(schema->compile, lexeme_pattern(schema->compile, words->assign), value);
}

/* ---- propertyNames ---- */

static const dfa_t *both(schema_t *schema, const dfa_t *left, const dfa_t *right) {
  return left == NULL ? right : dfa_product(schema->compile, left, right, false);
}

/* The strings of an enum, or a const. */
static const dfa_t *strings_of(schema_t *schema, const json_t *values, bool is_const) {
  grammar_list_t texts = {0};
  for (const json_t *json = is_const ? values : json_first(values); json != NULL;
       json = is_const ? NULL : json_next(json)) {
    if (json->type != JSON_STRING) continue;
    *(dfa_text_t *)list_add(schema->compile, &texts, sizeof(dfa_text_t)) =
        canonical_text(schema->compile, json->text, json->length);
  }
  return dfa_texts(schema->compile, texts.items, texts.count);
}

static const dfa_t *names_of_length(schema_t *schema, uint32_t min, uint32_t max,
                                    const char *pointer) {
  enum { BYTES = 40 };
  char *text = compile_scratch(schema->compile, BYTES, 1);
  if (max == NONE) {
    snprintf(text, BYTES, "^[^]{%u,}$", min);
  } else {
    snprintf(text, BYTES, "^[^]{%u,%u}$", min, max);
  }
  return schema_pattern(schema, text, (uint32_t)strlen(text), true, pointer);
}

const dfa_t *schema_names_of(schema_t *schema, const schema_part_t *parts, uint32_t count) {
  grammar_list_t joined = {0}, ways = {0};
  conjunction_t conjunction = schema_join(schema, parts, count, &joined);
  uint32_t types = TYPE_STRING, min, max;
  const dfa_t *none = dfa_texts(schema->compile, NULL, 0), *names;
  for (uint32_t i = 0; i < conjunction.count; i++)
    types &= schema_types(schema, &conjunction.items[i]);
  if (conjunction.never || types == 0) return none;
  if (schema_ways(schema, &conjunction, &joined, &ways)) {
    const schema_way_t *way = ways.items;
    names = none;
    for (uint32_t i = 0; i < ways.count && names != NULL; i++, way++) {
      const dfa_t *more = schema_names_of(schema, way->parts, way->count);
      names = more != NULL ? dfa_union(schema->compile, names, more) : NULL;
    }
    return names;
  }
  names = schema_string_content(schema, &conjunction, true, &min, &max);
  for (uint32_t i = 0; i < conjunction.count; i++) {
    const json_t *list = conjunction.items[i].values[KEYWORD_ENUM],
                 *one = conjunction.items[i].values[KEYWORD_CONST];
    if (list != NULL) names = both(schema, names, strings_of(schema, list, false));
    if (one != NULL) names = both(schema, names, strings_of(schema, one, true));
  }
  if (min > max) return none;
  if (min > 0 || max != NONE)
    names = both(schema, names, names_of_length(schema, min, max, parts->pointer));
  return names;
}

/* The names that all parts of the object allow. */
static const dfa_t *property_names(schema_t *schema, const conjunction_t *conjunction) {
  static const json_t string[] = {
      {.type = JSON_OBJECT, .count = 1},
      {.type = JSON_STRING, .key = "type", .key_length = 4, .text = "string", .length = 6}};
  grammar_list_t parts = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    const json_t *json = keywords->values[KEYWORD_PROPERTY_NAMES];
    if (json == NULL) continue;
    const char *pointer = schema_pointer_to(schema, keywords->part->pointer, "propertyNames");
    if (schema->source->literals != NULL) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer,
                  "'propertyNames' is not supported in the calls of this model.");
    }
    add_part(schema, &parts, json, pointer);
  }
  if (parts.count == 0) return NULL;
  add_part(schema, &parts, string, "");
  return schema_names_of(schema, parts.items, parts.count);
}

/* ---- members ---- */

static void draft_members(schema_t *schema, const conjunction_t *conjunction,
                          const object_words_t *words, const grammar_list_t *names,
                          const dfa_t *allowed, object_draft_t *draft) {
  const member_name_t *list = names->items;
  draft->members = compile_scratch(schema->compile, names->count, sizeof *draft->members);
  draft->num_members = names->count;
  for (uint32_t i = 0; i < names->count; i++) {
    grammar_list_t parts = schema_property_parts(schema, conjunction, list[i].text, list[i].length);
    dfa_text_t name = schema_member_text(schema, words, &list[i]);
    uint32_t entry = entry_of(schema, words, &parts);
    if (allowed != NULL) {
      dfa_text_t inside = canonical_text(schema->compile, list[i].text, list[i].length);
      if (!dfa_matches(allowed, inside.bytes, inside.length)) entry = NONE;
    }
    for (uint32_t b = 0; b < name.length; b++) {
      if (!schema->compile->vocabulary->has_byte[(uint8_t)name.bytes[b]])
        entry = NONE; /* cannot be written */
    }
    draft->members[i] = (member_draft_t){name.bytes, name.length, entry, list[i].required};
  }
}

/* ---- extra members ---- */

typedef struct pattern {
  const dfa_t *dfa;
  const json_t *schema; /* its key is the pattern */
  const keywords_t *of;
} pattern_t;

/* Parts for a name that matches exactly the patterns in `set`. */
static grammar_list_t extra_parts(schema_t *schema, const conjunction_t *conjunction,
                                  const grammar_list_t *patterns, uint32_t set) {
  grammar_list_t parts = {0};
  const pattern_t *list = patterns->items;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    bool applies = false;
    for (uint32_t p = 0; p < patterns->count; p++) {
      if (list[p].of != keywords || !(set >> p & 1)) continue;
      const char *base = schema_pointer_to(schema, keywords->part->pointer, "patternProperties");
      const json_t *json = list[p].schema;
      add_part(schema, &parts, json, schema_pointer(schema, base, json->key, json->key_length));
      applies = true;
    }
    if (!applies) add_additional(schema, &parts, keywords);
  }
  return parts;
}

grammar_list_t schema_extra_parts(schema_t *schema, const conjunction_t *conjunction) {
  return extra_parts(schema, conjunction, &(grammar_list_t){0}, 0);
}

/* Names that match exactly the patterns in `set`. */
typedef struct cell {
  const dfa_t *names; /* the text between the quotes */
  uint32_t set;
} cell_t;

/* What extra members are made of. */
typedef struct extras {
  const conjunction_t *conjunction;
  const object_words_t *words;
  grammar_list_t patterns; /* pattern_t */
  grammar_list_t cells;    /* cell_t: all names that are allowed and not listed */
  const schema_part_t *witnesses[WITNESSES_MAX]; /* parts of mode PART_SOME_ */
  const dfa_t *theirs[WITNESSES_MAX];            /* their names */
  uint32_t num_witnesses;
} extras_t;

static void add_cell(schema_t *schema, grammar_list_t *cells, const dfa_t *names, uint32_t set,
                     const char *pointer) {
  if (dfa_is_empty(names)) return;
  if (cells->count == CELLS_MAX) {
    schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer,
                "the patterns for one object match names in more than %d combinations.", CELLS_MAX);
  }
  *(cell_t *)list_add(schema->compile, cells, sizeof(cell_t)) = (cell_t){names, set};
}

/* allowed: NULL = any name is. */
static void fill_cells(schema_t *schema, extras_t *extras, const dfa_t *listed,
                       const dfa_t *allowed) {
  const pattern_t *list = extras->patterns.items;
  const dfa_t *names =
      dfa_product(schema->compile, canonical_string(schema->compile), listed, true);
  const char *pointer = extras->conjunction->items[0].part->pointer;
  if (allowed != NULL) names = dfa_product(schema->compile, names, allowed, false);
  add_cell(schema, &extras->cells, names, 0, pointer);
  for (uint32_t p = 0; p < extras->patterns.count; p++) {
    grammar_list_t before = extras->cells;
    const cell_t *cells = before.items;
    extras->cells = (grammar_list_t){0};
    for (uint32_t i = 0; i < before.count; i++) {
      const dfa_t *with = dfa_product(schema->compile, cells[i].names, list[p].dfa, false);
      const dfa_t *without = dfa_product(schema->compile, cells[i].names, list[p].dfa, true);
      add_cell(schema, &extras->cells, without, cells[i].set, pointer);
      add_cell(schema, &extras->cells, with, cells[i].set | UINT32_C(1) << p, pointer);
    }
  }
}

static grammar_list_t collect_patterns(schema_t *schema, const conjunction_t *conjunction) {
  grammar_list_t patterns = {0};
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const keywords_t *keywords = &conjunction->items[i];
    if (keywords->values[KEYWORD_PATTERN_PROPERTIES] == NULL) continue;
    const char *pointer = schema_pointer_to(schema, keywords->part->pointer, "patternProperties");
    JSON_EACH(json, keywords->values[KEYWORD_PATTERN_PROPERTIES]) {
      const dfa_t *dfa = schema_pattern(schema, json->key, json->key_length, true, pointer);
      *(pattern_t *)list_add(schema->compile, &patterns, sizeof(pattern_t)) =
          (pattern_t){dfa, json, keywords};
    }
    if (patterns.count > PATTERNS_MAX) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer,
                  "more than %d patterns for one object.", PATTERNS_MAX);
    }
  }
  return patterns;
}

static dfa_t *listed_names(schema_t *schema, const grammar_list_t *names) {
  const member_name_t *list = names->items;
  dfa_text_t *texts = compile_scratch(schema->compile, names->count, sizeof *texts);
  for (uint32_t i = 0; i < names->count; i++) {
    texts[i] = canonical_text(schema->compile, list[i].text, list[i].length);
  }
  return dfa_texts(schema->compile, texts, names->count);
}

/* Returns the key of an extra member; NONE = there is no such name. */
static uint32_t extra_key(schema_t *schema, const extras_t *extras, const dfa_t *inside) {
  const dfa_t *bare = extras->words->bare ? lexeme_dfa(schema->compile, BARE_NAME) : NULL;
  if (dfa_is_empty(inside)) return NONE;
  return lexeme_add(schema->compile, bare != NULL
                                         ? dfa_product(schema->compile, inside, bare, false)
                                         : dfa_quote(schema->compile, inside));
}

/* Returns the node of an extra member of this kind (witness_kind). */
static uint32_t extra_of(schema_t *schema, const extras_t *extras, uint32_t kind) {
  grammar_list_t branches = {0};
  const cell_t *cells = extras->cells.items;
  for (uint32_t i = 0; i < extras->cells.count; i++) {
    const dfa_t *inside = cells[i].names;
    grammar_list_t parts =
        extra_parts(schema, extras->conjunction, &extras->patterns, cells[i].set);
    for (uint32_t w = 0, digits = kind; digits > 0; w++, digits /= 3) {
      const schema_part_t *of = extras->witnesses[w];
      const json_t *against = schema_some_against(of);
      if (digits % 3 == 0) continue;
      inside = dfa_product(schema->compile, inside, extras->theirs[w], digits % 3 == 1);
      if (digits % 3 == 2 && against != NULL)
        *(schema_part_t *)list_add(schema->compile, &parts, sizeof(schema_part_t)) =
            (schema_part_t){against, of->pointer, schema_mode(PART_NOT), NULL};
    }
    uint32_t key = extra_key(schema, extras, inside);
    if (key == NONE) continue;
    *(uint32_t *)list_add(schema->compile, &branches, sizeof(uint32_t)) =
        build_lex(schema->compile, key, entry_of(schema, extras->words, &parts));
  }
  return build_alt(schema->compile, branches.items, branches.count);
}

/* Finds the parts that say that some extra member must come. */
static void find_witnesses(schema_t *schema, extras_t *extras) {
  const conjunction_t *conjunction = extras->conjunction;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const schema_part_t *part = conjunction->items[i].part;
    if (conjunction->items[i].literal != LITERAL_SOME) continue;
    if (extras->num_witnesses == WITNESSES_MAX) {
      schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, part->pointer,
                  "more than %d names that must come and are not listed are not supported.",
                  WITNESSES_MAX);
    }
    extras->theirs[extras->num_witnesses] = schema_some_names(schema, part);
    extras->witnesses[extras->num_witnesses++] = part;
  }
}

/* Sets the nodes of extra members. Where any name is allowed, without patterns, a key must only
 * differ from the listed names, which the matcher checks in their trie. */
static void draft_extra(schema_t *schema, const conjunction_t *conjunction,
                        const object_words_t *words, const grammar_list_t *names,
                        const dfa_t *allowed, object_draft_t *draft, uint32_t object) {
  extras_t extras = {conjunction, words, .patterns = collect_patterns(schema, conjunction)};
  find_witnesses(schema, &extras);
  if (extras.patterns.count == 0 && allowed == NULL) {
    grammar_list_t parts = schema_extra_parts(schema, conjunction);
    uint32_t key =
        words->bare ? lexeme_pattern(schema->compile, BARE_NAME) : lexeme_key(schema->compile);
    draft->extra = build_extra(schema->compile, object, key, entry_of(schema, words, &parts));
    if (extras.num_witnesses == 0) return;
  }
  fill_cells(schema, &extras, listed_names(schema, names), allowed);
  if (draft->extra == NONE) draft->extra = extra_of(schema, &extras, 0);
  if (extras.num_witnesses == 0) return;
  draft->witnesses = compile_scratch(schema->compile, 1, sizeof *draft->witnesses);
  draft->witnesses->all = (UINT32_C(1) << extras.num_witnesses) - 1;
  draft->pointer = extras.witnesses[0]->pointer;
  draft->witnesses->node[0] = draft->extra;
  uint32_t kinds = 1;
  for (uint32_t w = 0; w < extras.num_witnesses; w++) kinds *= 3;
  for (uint32_t kind = 1; kind < WITNESS_KINDS; kind++)
    draft->witnesses->node[kind] = kind < kinds ? extra_of(schema, &extras, kind) : NONE;
}

/* Extra keys may repeat, and a JSON reader counts equal keys once: only one is certain to count. */
static void refuse_many_extra(const schema_t *schema, const conjunction_t *conjunction,
                              uint32_t num_names, uint32_t min) {
  if (min <= num_names + 1) return;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    const json_t *additional = conjunction->items[i].values[KEYWORD_ADDITIONAL_PROPERTIES];
    if (additional != NULL && additional->type == JSON_FALSE)
      return; /* then nothing satisfies it */
  }
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, conjunction->items[0].part->pointer,
              "'minProperties' is supported up to one more than there are listed names.");
}

void schema_member_bounds(const schema_t *schema, const conjunction_t *conjunction,
                          uint32_t num_names, object_draft_t *draft) {
  draft->max = NONE;
  draft->in_order = schema->source->strict;
  for (uint32_t i = 0; i < conjunction->count; i++) {
    uint32_t min = schema_count(schema, &conjunction->items[i], KEYWORD_MIN_PROPERTIES, 0);
    uint32_t max = schema_count(schema, &conjunction->items[i], KEYWORD_MAX_PROPERTIES, NONE);
    if (min > draft->min) draft->min = min;
    if (max < draft->max) draft->max = max;
  }
  refuse_many_extra(schema, conjunction, num_names, draft->min);
}

uint32_t schema_object(schema_t *schema, const conjunction_t *conjunction) {
  if (schema_in_elements(schema)) return schema_element_object(schema, conjunction);
  object_words_t words = schema_object_words(schema, conjunction);
  object_draft_t *draft = compile_scratch(schema->compile, 1, sizeof *draft);
  uint32_t object = words.is_call ? schema_call_arguments(schema, draft)
                                  : build_object(schema->compile, draft, NODE_ID_RETURN);
  grammar_list_t names = schema_member_names(schema, conjunction);
  schema_member_bounds(schema, conjunction, names.count, draft);
  if (!schema_presence(schema, conjunction, &names, draft)) return NODE_ID_FAIL;
  if (words.is_call) schema_bound_arguments(schema, draft, names.count);
  const dfa_t *allowed = property_names(schema, conjunction);
  draft_members(schema, conjunction, &words, &names, allowed, draft);
  draft_extra(schema, conjunction, &words, &names, allowed, draft,
              build_at(schema->compile, object)->object);
  if (words.is_call) return object;
  return build_lex(schema->compile, lexeme_pattern(schema->compile, "\\{" SPACE), object);
}
