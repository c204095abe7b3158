/* compile.c: constraint -> grammar: the frame around the compilers of all kinds of constraints.
 *
 * Runs on the caller's thread, a pool thread of the server. Owns the limits and the place where an
 * error leads to (setjmp). compile_base.c is under all files, which compile each kind of
 * constraint.
 */
#include "engine/grammar/automaton/dfa.h"
#include "engine/grammar/mask/matcher.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/grammar/automaton/regex.h"
#include "engine/grammar/source_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t COMPILE_WORK_MAX =
    15000000; /* about a second: 40 to 70 ns each on a Xeon of 2023 */
enum { SOURCE_DEPTH_MAX = 100 };
static atomic_uint_fast64_t next_serial;

const grammar_limits_t grammar_limits_default = {
    .schema_depth_max = 32,
    .schema_bytes_max = 256 << 10,
    .schema_nodes_max = 10000,
    .rules_max = 20000,
    .pattern_bytes_max = 8192,
    .regex_depth_max = 100,
    .regex_nodes_max = 10000,
    .dfa_states_max = 10000,
    .grammar_bytes_max = 64 << 10,
    .grammar_rules_max = 2000,
    .choices_max = 1000,
    .compile_work_max = COMPILE_WORK_MAX,
    .compile_ns_max = 4000000000u,
};

/* ---- the sources that are not a language of their own ---- */

static uint32_t compile_source(compile_t *compile, const grammar_source_t *source, uint32_t next,
                               int depth);

static uint32_t compile_choice(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  uint32_t count = 0;
  if (source->schema == NULL || source->schema->type != JSON_ARRAY || source->schema->count == 0) {
    compile_fail(compile, ERR_INVALID_VALUE, "Expected a list of at least one string.");
  }
  if (source->schema->count > compile->limits->choices_max) {
    compile_fail(compile, ERR_BAD_REQUEST, "%u choices were given; at most %u are allowed.",
                 source->schema->count, compile->limits->choices_max);
  }
  dfa_text_t *texts = compile_scratch(compile, source->schema->count, sizeof *texts);
  JSON_EACH(json, source->schema) {
    if (json->type != JSON_STRING || json->length == 0) {
      compile_fail(compile, ERR_INVALID_VALUE, "Choice %u must be a string that is not empty.",
                   count);
    }
    texts[count++] = (dfa_text_t){json->text, json->length};
  }
  return build_lex(compile, lexeme_add(compile, dfa_texts(compile, texts, count)), next);
}

static uint32_t compile_regex(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  regex_options_t options = {.json = false, .search = false, .what = "regex"};
  return build_lex(compile,
                   lexeme_add(compile, regex_dfa(compile, source->text, source->length, &options)),
                   next);
}

static uint32_t compile_text(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  bool has_list = source->num_children > 0, is_until = source->kind == GRAMMAR_TEXT;
  uint32_t count = has_list ? (uint32_t)source->num_children : 1;
  if (!has_list && source->length == 0) return build_lex(compile, lexeme_any(compile), next);
  dfa_text_t *texts = compile_scratch(compile, count, sizeof *texts);
  for (uint32_t i = 0; i < count; i++) {
    const grammar_source_t *from = has_list ? &source->children[i] : source;
    texts[i] = (dfa_text_t){from->text, (uint32_t)from->length};
  }
  const dfa_t *dfa = dfa_until(compile, texts, count, has_list ? source->min : 0,
                               has_list ? source->max : is_until);
  return build_lex(compile, lexeme_add(compile, dfa), next);
}

static uint32_t compile_repeat(compile_t *compile, const grammar_source_t *source, uint32_t next,
                               int depth) {
  uint32_t first = NODE_ID_RETURN, max = source->max;
  if (source->num_children == 1) {
    return build_repeat(compile,
                        compile_source(compile, &source->children[0], NODE_ID_RETURN, depth),
                        source->min, max, next);
  }
  /* x (separator x){min - 1, max - 1} */
  uint32_t again = compile_source(compile, &source->children[0], NODE_ID_RETURN, depth);
  again = compile_source(compile, &source->children[1], again, depth);
  uint32_t more = build_repeat(compile, again, source->min > 0 ? source->min - 1 : 0,
                               max == UINT32_MAX ? max
                               : max > 0         ? max - 1
                                                 : 0,
                               next);
  first = compile_source(compile, &source->children[0], more, depth);
  if (source->min > 0) return first;
  return build_alt(compile, (uint32_t[]){next, max > 0 ? first : NODE_ID_FAIL}, 2);
}

static uint32_t compile_source(compile_t *compile, const grammar_source_t *source, uint32_t next,
                               int depth) {
  if (depth > SOURCE_DEPTH_MAX)
    compile_fail(compile, ERR_INTERNAL, "The constraint nests too deep.");
  compile->param = source->param != NULL ? source->param : compile->param;
  compile_spend(compile, 10);
  switch (source->kind) {
  case GRAMMAR_JSON_OBJECT: return json_object_any(compile, next);
  case GRAMMAR_JSON_SCHEMA: return schema_compile(compile, source, next);
  case GRAMMAR_PARAMETERS: return schema_parameters(compile, source, next);
  case GRAMMAR_LITERALS: return schema_literals(compile, source, next);
  case GRAMMAR_REGEX: return compile_regex(compile, source, next);
  case GRAMMAR_CHOICE: return compile_choice(compile, source, next);
  case GRAMMAR_EBNF:
    return lark_detect(source->text, source->length) ? lark_compile(compile, source, next)
                                                     : ebnf_compile(compile, source, next);
  case GRAMMAR_GBNF: return ebnf_compile(compile, source, next);
  case GRAMMAR_LARK: return lark_compile(compile, source, next);
  case GRAMMAR_LITERAL:
    if (source->length == 0) return next;
    return build_lex(compile, lexeme_text(compile, source->text, (uint32_t)source->length), next);
  case GRAMMAR_TOKEN: return build_node(compile, NODE_TOKEN, (uint32_t)source->token, next);
  case GRAMMAR_TEXT_WITHOUT:
  case GRAMMAR_TEXT: return compile_text(compile, source, next);
  case GRAMMAR_SEQUENCE:
    for (int32_t i = source->num_children - 1; i >= 0; i--) {
      next = compile_source(compile, &source->children[i], next, depth + 1);
    }
    return next;
  case GRAMMAR_ALTERNATIVES: {
    uint32_t *nodes = compile_scratch(compile, (size_t)source->num_children, sizeof *nodes);
    for (int32_t i = 0; i < source->num_children; i++) {
      nodes[i] = compile_source(compile, &source->children[i], next, depth + 1);
    }
    return build_alt(compile, nodes, (uint32_t)source->num_children);
  }
  case GRAMMAR_REPEAT: return compile_repeat(compile, source, next, depth + 1);
  }
  compile_fail(compile, ERR_INTERNAL, "The constraint is of an unknown kind.");
}

static void make_fixed_nodes(compile_t *compile) {
  build_node(compile, NODE_END, 0, 0);
  build_node(compile, NODE_RETURN, 0, 0);
  build_node(compile, NODE_FAIL, 0, 0);
}

/* The part of grammar_compile under setjmp. None of its variables changes after setjmp. */
static int run(compile_t *compile, const grammar_source_t *source) {
  if (setjmp(compile->give_up)) return compile->code;
  compile->grammar->arena.limit = COMPILE_ARENA_BYTES_MAX;
  compile->scratch.limit = COMPILE_ARENA_BYTES_MAX;
  make_fixed_nodes(compile);
  build_finish(compile, compile_source(compile, source, NODE_ID_END, 0));
  return 0;
}

/* Writes where a node is: the rule of a user grammar. */
static void name_place(const compile_t *compile, uint32_t node, char *out, size_t size) {
  const named_rule_t *rules = compile->rules.items;
  char quoted[80];
  out[0] = '\0';
  for (uint32_t i = 0; i < compile->rules.count; i++) {
    if (node >= rules[i].end) continue;
    error_quote(quoted, sizeof quoted, rules[i].name, rules[i].length);
    snprintf(out, size, " in the rule '%s'", quoted);
    return;
  }
}

/* Where the text begins, and from every node with many ways, no bound of the matcher may be passed:
 * such an ambiguity is refused now, and not when a token is generated. The first node that is found
 * has no other below it. */
static int try_places(compile_t *compile, grammar_matcher_t *matcher, grammar_scratch_t *scratch) {
  const uint32_t *wide = compile->wide.items;
  char place[128];
  int code = grammar_matcher_start(matcher, scratch, compile->grammar, compile->vocabulary);
  if (code) name_place(compile, compile->grammar->start, place, sizeof place);
  for (uint32_t i = 0; i < compile->wide.count; i++) {
    if (matcher_has_room(matcher, scratch, wide[i])) continue;
    name_place(compile, wide[i], place, sizeof place);
    code = ERR_CONSTRAINT_TOO_EXPENSIVE;
    break;
  }
  if (!code) return 0;
  return error_set(compile->error, code, compile->param,
                   "The constraint is too ambiguous: more than %d alternatives would have to be "
                   "followed at once%s.",
                   THREADS_MAX, place);
}

static int try_grammar(compile_t *compile) {
  grammar_matcher_t *matcher = calloc(1, sizeof *matcher);
  grammar_scratch_t *scratch = calloc(1, sizeof *scratch);
  int code =
      matcher != NULL && scratch != NULL
          ? try_places(compile, matcher, scratch)
          : error_set(compile->error, ERR_NO_MEMORY, compile->param, "no memory for a grammar");
  free(matcher);
  free(scratch);
  return code;
}

int grammar_compile(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                    const grammar_limits_t *limits, grammar_account_t *account, grammar_t **out,
                    inferd_error_t *error) {
  grammar_account_t own = {0};
  compile_t compile = {
      .error = error,
      .param = source->param,
      .limits = limits != NULL ? limits : &grammar_limits_default,
      .vocabulary = vocabulary,
      .account = account != NULL ? account : &own,
      .begin_ns = clock_thread_ns(),
      .fuel = COMPILE_FUEL,
  };
  compile.grammar = calloc(1, sizeof *compile.grammar);
  if (compile.grammar == NULL)
    return error_set(error, ERR_NO_MEMORY, source->param, "no memory for a grammar");
  atomic_init(&compile.grammar->references, 1);
  compile.account->place[0] = '\0';
  compile.grammar->serial = atomic_fetch_add_explicit(&next_serial, 1, memory_order_relaxed);
  int code = run(&compile, source);
  if (!code) code = try_grammar(&compile);
  if (!code && vocabulary->keeps_sources) grammar_keep_source(compile.grammar, source);
  arena_free(&compile.scratch);
  compile.account->states = compile.dfa_states;
  compile.account->work += COMPILE_FUEL - compile.fuel;
  compile.account->cpu_ns += clock_thread_ns() - compile.begin_ns;
  if (code) {
    grammar_unref(compile.grammar);
  } else {
    *out = compile.grammar;
  }
  return code;
}

grammar_t *grammar_ref(grammar_t *grammar) {
  atomic_fetch_add_explicit(&grammar->references, 1, memory_order_relaxed);
  return grammar;
}

void grammar_unref(grammar_t *grammar) {
  if (grammar == NULL ||
      atomic_fetch_sub_explicit(&grammar->references, 1, memory_order_acq_rel) != 1)
    return;
  arena_free(&grammar->arena);
  free(grammar);
}

const char *grammar_ignored(const grammar_t *grammar) {
  return grammar->ignored;
}

size_t grammar_bytes(const grammar_t *grammar) {
  return sizeof *grammar + grammar->arena.held;
}
