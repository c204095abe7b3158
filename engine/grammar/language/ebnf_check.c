/* ebnf_check.c: refuses user grammars that are not well-formed, with line and column, and finds the
 * rules that begin with each other.
 *
 * Part of a compilation, on its thread. The recursion is as deep as the nesting of groups, which
 * the parser bounds; it never goes from rule to rule.
 */
#include "engine/grammar/language/ebnf.h"

static void check_defined(const ebnf_t *ebnf, const regex_t *regex) {
  if (regex->kind == REGEX_RULE && ebnf_rule(ebnf, regex->min)->tree == NULL) {
    ebnf_fail(ebnf, regex->max, "no rule with the name", ebnf_rule(ebnf, regex->min)->name,
              ebnf_rule(ebnf, regex->min)->length);
  }
  if (regex->kind == REGEX_RULE) ebnf_rule(ebnf, regex->min)->is_used = true;
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling)
    check_defined(ebnf, child);
}

bool ebnf_productive(const ebnf_t *ebnf, const regex_t *regex) {
  switch (regex->kind) {
  case REGEX_SET: return regex->set.count > 0;
  case REGEX_RULE: return ebnf_rule(ebnf, regex->min)->productive;
  case REGEX_DFA: return !dfa_is_empty(regex->dfa);
  case REGEX_REPEAT: return regex->min == 0 || ebnf_productive(ebnf, regex->first);
  case REGEX_CAT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (!ebnf_productive(ebnf, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (ebnf_productive(ebnf, child)) return true;
    }
    return false;
  default: return true;
  }
}

bool ebnf_nullable(const ebnf_t *ebnf, const regex_t *regex) {
  switch (regex->kind) {
  case REGEX_SET: return false;
  case REGEX_RULE: return ebnf_rule(ebnf, regex->min)->nullable;
  case REGEX_DFA: return dfa_matches(regex->dfa, "", 0);
  case REGEX_REPEAT: return regex->min == 0 || ebnf_nullable(ebnf, regex->first);
  case REGEX_CAT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (!ebnf_nullable(ebnf, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (ebnf_nullable(ebnf, child)) return true;
    }
    return false;
  default: return true;
  }
}

static void find_properties(ebnf_t *ebnf) {
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(ebnf->compile, (uint32_t)ebnf->length);
    for (uint32_t i = 0; i < ebnf->rules.count; i++) {
      ebnf_rule_t *rule = ebnf_rule(ebnf, i);
      if (rule->is_terminal) continue;
      bool productive = rule->productive || ebnf_productive(ebnf, rule->tree);
      bool nullable = rule->nullable || ebnf_nullable(ebnf, rule->tree);
      changed = changed || productive != rule->productive || nullable != rule->nullable;
      rule->productive = productive;
      rule->nullable = nullable;
    }
  }
}

/* Adds the rules that can begin a text of the tree. */
static void list_first(const ebnf_t *ebnf, const regex_t *regex, grammar_list_t *out) {
  if (regex->kind == REGEX_RULE)
    *(uint32_t *)list_add(ebnf->compile, out, sizeof(uint32_t)) = regex->min;
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
    list_first(ebnf, child, out);
    if (regex->kind == REGEX_CAT && !ebnf_nullable(ebnf, child)) return;
  }
}

/* Tarjan's search for the groups of rules that begin with each other, with explicit stacks. */
typedef struct group_search {
  ebnf_t *ebnf;
  grammar_list_t *firsts; /* [rules] uint32_t: the rules that the rule can begin with */
  uint32_t *at;           /* [rules] next edge */
  uint32_t *order, *low;  /* [rules] 1 + place in the search; 0 = not met */
  uint32_t *path, *open;  /* stacks: rules that are being searched, rules without a group yet */
  bool *is_open;
  uint32_t depth, num_open, num_met;
  uint32_t *group_of, num_groups;
} group_search_t;

static void enter(group_search_t *search, uint32_t rule) {
  search->order[rule] = search->low[rule] = ++search->num_met;
  search->path[search->depth++] = rule;
  search->open[search->num_open++] = rule;
  search->is_open[rule] = true;
}

static bool begins_with_itself(const group_search_t *search, uint32_t rule) {
  const uint32_t *firsts = search->firsts[rule].items;
  for (uint32_t i = 0; i < search->firsts[rule].count; i++) {
    if (firsts[i] == rule) return true;
  }
  return false;
}

/* Ends the search of a rule: it and the rules above it are one group if none reaches further down.
 */
static void leave(group_search_t *search, uint32_t rule) {
  search->depth--;
  if (search->depth > 0) {
    uint32_t caller = search->path[search->depth - 1];
    if (search->low[rule] < search->low[caller]) search->low[caller] = search->low[rule];
  }
  if (search->low[rule] != search->order[rule]) return;
  bool alone = search->open[search->num_open - 1] == rule;
  if (!alone || begins_with_itself(search, rule)) search->num_groups++;
  uint32_t group = !alone || begins_with_itself(search, rule) ? search->num_groups : 0, member;
  do {
    member = search->open[--search->num_open];
    search->is_open[member] = false;
    search->group_of[member] = group;
  } while (member != rule);
}

static void find_groups(group_search_t *search) {
  uint32_t count = search->ebnf->rules.count;
  for (uint32_t root = 0; root < count; root++) {
    if (search->order[root] == 0) enter(search, root);
    while (search->depth > 0) {
      uint32_t rule = search->path[search->depth - 1];
      compile_spend(search->ebnf->compile, 1);
      if (search->at[rule] == search->firsts[rule].count) {
        leave(search, rule);
        continue;
      }
      uint32_t next = ((const uint32_t *)search->firsts[rule].items)[search->at[rule]++];
      if (search->order[next] == 0) {
        enter(search, next);
      } else if (search->is_open[next] && search->order[next] < search->low[rule]) {
        search->low[rule] = search->order[next];
      }
    }
  }
}

/* Returns the search, done. */
static group_search_t search_groups(ebnf_t *ebnf) {
  compile_t *compile = ebnf->compile;
  uint32_t count = ebnf->rules.count;
  group_search_t search = {.ebnf = ebnf};
  search.firsts = compile_scratch(compile, count, sizeof *search.firsts);
  search.at = compile_scratch(compile, count, sizeof *search.at);
  search.order = compile_scratch(compile, count, sizeof *search.order);
  search.low = compile_scratch(compile, count, sizeof *search.low);
  search.path = compile_scratch(compile, count, sizeof *search.path);
  search.open = compile_scratch(compile, count, sizeof *search.open);
  search.is_open = compile_scratch(compile, count, sizeof *search.is_open);
  search.group_of = compile_scratch(compile, count, sizeof *search.group_of);
  for (uint32_t i = 0; i < count; i++) {
    if (!ebnf_rule(ebnf, i)->is_terminal)
      list_first(ebnf, ebnf_rule(ebnf, i)->tree, &search.firsts[i]);
  }
  find_groups(&search);
  return search;
}

/* Writes left recursion as repetition. What is left afterwards are tails that may be empty. */
static void rewrite_left_recursion(ebnf_t *ebnf) {
  group_search_t search = search_groups(ebnf);
  if (search.num_groups == 0) return;
  ebnf_rewrite_left(ebnf, search.group_of, search.num_groups);
  find_properties(ebnf);
  search = search_groups(ebnf);
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    if (search.group_of[i] == 0) continue;
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    ebnf_fail(ebnf, rule->at,
              "left recursion before something that may be empty; write a repetition, such as "
              "a ::= b (\"+\" b)*, in the rule",
              rule->name, rule->length);
  }
}

void ebnf_check(ebnf_t *ebnf) {
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (rule->tree != NULL && !rule->is_terminal) check_defined(ebnf, rule->tree);
  }
  find_properties(ebnf);
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (!rule->productive)
      ebnf_fail(ebnf, rule->at, "no text can finish the rule", rule->name, rule->length);
  }
  rewrite_left_recursion(ebnf);
}
