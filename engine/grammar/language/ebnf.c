/* ebnf.c: user grammars in the notation that llama.cpp calls GBNF.
 *
 *   root  ::= greeting (", " name)* "!"     # a comment; the text is a `root`
 *   name  ::= [A-Z] [a-z]{1,20} | "the " name
 *
 * Literals in double or single quotes, classes and escapes as in regexes, `.` for any character,
 * groups, ? * + {m} {m,} {m,n}, alternatives. A rule ends where the next one begins. Part of a
 * compilation, on its thread; errors name line and column. Parts without rules become one lexeme.
 * Next: ebnf_check.c, ebnf_build.c.
 */
#include "engine/grammar/language/ebnf.h"

#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct parser {
  ebnf_t *g;
  const char *text;
  size_t length, at;
  uint32_t depth, repeats; /* groups around this place; repetitions of one term */
} parser_t;

static regex_t *parse_alternatives(parser_t *p);

void ebnf_fail(const ebnf_t *g, size_t at, const char *reason, const char *name,
               uint32_t name_length) {
  uint32_t line = 1, column = 1;
  char quoted[80] = "";
  for (size_t i = 0; i < at && i < g->length; i++) {
    column = g->text[i] == '\n' ? 1 : column + ((uint8_t)(g->text[i] & 0xC0) != 0x80);
    line += g->text[i] == '\n';
  }
  if (name != NULL) error_quote(quoted, sizeof quoted, name, name_length);
  compile_fail(g->c, ERR_INVALID_VALUE, "grammar, line %u, column %u: %s%s%s%s.", line, column,
               reason, name != NULL ? " '" : "", quoted, name != NULL ? "'" : "");
}

_Noreturn static void fail(const parser_t *p, size_t at, const char *reason) {
  ebnf_fail(p->g, at, reason, NULL, 0);
}

static char here(const parser_t *p) {
  return p->at < p->length ? p->text[p->at] : 0;
}

/* White space, line ends and comments. */
static void skip(parser_t *p) {
  for (; p->at < p->length; p->at++) {
    char ch = p->text[p->at];
    if (ch == '#') {
      while (p->at < p->length && p->text[p->at] != '\n') p->at++;
      if (p->at == p->length) return;
    } else if (ch != ' ' && ch != '\t' && ch != '\n' && ch != '\r') {
      return;
    }
  }
}

static bool is_name(char ch, bool first) {
  bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
  return letter || (!first && (ch == '-' || (ch >= '0' && ch <= '9')));
}

static size_t name_length(const parser_t *p, size_t at) {
  size_t length = 0;
  while (at + length < p->length && is_name(p->text[at + length], length == 0)) length++;
  return length;
}

/* True when a rule begins here: a name and ::= */
static bool at_rule(const parser_t *p) {
  size_t at = p->at + name_length(p, p->at);
  if (at == p->at) return false;
  while (at < p->length && (p->text[at] == ' ' || p->text[at] == '\t')) at++;
  return p->length - at >= 3 && memcmp(p->text + at, "::=", 3) == 0;
}

/* ---- rules ---- */

static uint32_t hash_name(const char *text, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
  return (hash ^ hash >> 15) % EBNF_BUCKETS;
}

/* The rule of that name, made when it is new. */
static uint32_t rule_of(parser_t *p, size_t at, size_t length) {
  ebnf_t *g = p->g;
  const char *name = p->text + at;
  uint32_t *bucket = &g->buckets[hash_name(name, length)];
  for (uint32_t i = *bucket; i; i = ebnf_rule(g, i - 1)->chain) {
    const ebnf_rule_t *r = ebnf_rule(g, i - 1);
    if (r->length == length && memcmp(r->name, name, length) == 0) return i - 1;
  }
  if (g->rules.count >= g->c->limits->grammar_rules_max) {
    compile_fail(g->c, ERR_BAD_REQUEST, "The grammar has more than %u rules.",
                 g->c->limits->grammar_rules_max);
  }
  ebnf_rule_t *r = list_add(g->c, &g->rules, sizeof *r);
  *r = (ebnf_rule_t){.name = name, .length = (uint32_t)length, .at = at, .chain = *bucket};
  *bucket = g->rules.count;
  return g->rules.count - 1;
}

/* ---- terms ---- */

static regex_t *parse_pattern(parser_t *p, const char *text, size_t length, size_t at) {
  char what[64];
  uint32_t line = 1;
  for (size_t i = 0; i < at; i++) line += p->text[i] == '\n';
  snprintf(what, sizeof what, "grammar, line %u, term", line);
  regex_options_t options = {.json = false, .search = false, .what = what};
  return regex_parse(p->g->c, text, length, &options);
}

/* A class is a regex of its own. */
static regex_t *parse_class(parser_t *p) {
  size_t start = p->at++;
  for (; here(p) != ']'; p->at++) {
    if (p->at >= p->length) fail(p, start, "the class has no end");
    if (here(p) == '\\') p->at++;
  }
  p->at++;
  if (p->at > p->length) fail(p, start, "the class has no end");
  return parse_pattern(p, p->text + start, p->at - start, start);
}

/* A literal: escapes are those of regexes, everything else stands for itself. */
static regex_t *parse_literal(parser_t *p) {
  char quote = here(p);
  size_t start = p->at++;
  regex_t *cat = regex_node(p->g->c, REGEX_CAT);
  while (here(p) != quote) {
    size_t from = p->at;
    if (p->at >= p->length || here(p) == '\n') fail(p, start, "the literal has no end");
    if (here(p) == '\\') {
      char ch = p->at + 1 < p->length ? p->text[p->at + 1] : 0;
      bool open = ch == 'u' && p->at + 2 < p->length && p->text[p->at + 2] == '{';
      p->at += ch == 'x' ? 4 : ch == 'u' && !open ? 6 : 2;
      while (open && p->at < p->length && p->text[p->at - 1] != '}') p->at++;
      if (p->at > p->length) fail(p, start, "the literal has no end");
      if (strchr("dDwWsS", ch) != NULL && ch) fail(p, from, "a class has no place in a literal");
      regex_append(cat, parse_pattern(p, p->text + from, p->at - from, from));
      continue;
    }
    int span = utf8_span(p->text + p->at, p->length - p->at);
    if (span < 0) fail(p, from, "invalid UTF-8");
    regex_append(cat, regex_character(p->g->c, p->text + from, span));
    p->at += (size_t)span;
  }
  p->at++;
  return cat;
}

static regex_t *parse_any(parser_t *p) {
  p->at++;
  return parse_pattern(p, "[^]", 3, p->at);
}

static regex_t *parse_reference(parser_t *p) {
  size_t length = name_length(p, p->at), at = p->at;
  if (length == 0) fail(p, p->at, "expected a literal, a class, a group or the name of a rule");
  regex_t *node = regex_node(p->g->c, REGEX_RULE);
  node->min = rule_of(p, at, length);
  node->max = (uint32_t)at;
  p->at += length;
  return node;
}

static regex_t *parse_group(parser_t *p) {
  size_t start = p->at++;
  if (++p->depth > p->g->c->limits->regex_depth_max) {
    compile_fail(p->g->c, ERR_BAD_REQUEST, "grammar: groups nest deeper than %u.",
                 p->g->c->limits->regex_depth_max);
  }
  regex_t *inside = parse_alternatives(p);
  skip(p);
  if (here(p) != ')') fail(p, start, "the group has no end");
  p->at++;
  p->depth--;
  return inside;
}

static uint32_t parse_number(parser_t *p) {
  uint32_t value = 0, most = p->g->c->limits->regex_nodes_max;
  if (here(p) < '0' || here(p) > '9') fail(p, p->at, "expected a number");
  for (; here(p) >= '0' && here(p) <= '9'; p->at++) {
    value = value * 10 + (uint32_t)(here(p) - '0');
    if (value > most) {
      compile_fail(p->g->c, ERR_BAD_REQUEST, "grammar: more than %u repetitions.", most);
    }
  }
  return value;
}

static regex_t *parse_postfix(parser_t *p, regex_t *term) {
  for (;; skip(p)) {
    uint32_t min = 0, max = NONE;
    size_t start = p->at;
    char ch = here(p);
    if (ch == '?') {
      max = 1;
    } else if (ch == '+') {
      min = 1;
    } else if (ch == '{') {
      p->at++;
      min = max = parse_number(p);
      if (here(p) == ',') {
        p->at++;
        max = here(p) == '}' ? NONE : parse_number(p);
      }
      if (here(p) != '}') fail(p, start, "the repetition has no end");
      if (max < min) fail(p, start, "the repetition is out of order");
    } else if (ch != '*') {
      return term;
    }
    p->at++;
    if (++p->repeats > p->g->c->limits->regex_depth_max) fail(p, start, "too many repetitions");
    regex_t *node = regex_node(p->g->c, REGEX_REPEAT);
    regex_append(node, term);
    node->min = min;
    node->max = max;
    term = node;
  }
}

static regex_t *parse_term(parser_t *p) {
  uint32_t repeats = p->repeats;
  regex_t *term;
  p->repeats = 0;
  switch (here(p)) {
  case '"':
  case '\'': term = parse_literal(p); break;
  case '[': term = parse_class(p); break;
  case '.': term = parse_any(p); break;
  case '(': term = parse_group(p); break;
  default: term = parse_reference(p); break;
  }
  term = parse_postfix(p, term);
  p->repeats = repeats;
  return term;
}

static regex_t *parse_alternatives(parser_t *p) {
  regex_t *either = regex_node(p->g->c, REGEX_ALT);
  for (;;) {
    regex_t *cat = regex_node(p->g->c, REGEX_CAT);
    for (skip(p); p->at < p->length && here(p) != '|' && here(p) != ')' && !at_rule(p); skip(p)) {
      regex_append(cat, parse_term(p));
    }
    regex_append(either, cat);
    if (here(p) != '|') return either;
    p->at++;
  }
}

/* ---- the whole ---- */

static void parse_rules(parser_t *p) {
  for (skip(p); p->at < p->length; skip(p)) {
    size_t start = p->at, length = name_length(p, p->at);
    if (!at_rule(p)) fail(p, start, "expected a rule: a name and ::=");
    uint32_t rule = rule_of(p, start, length);
    if (ebnf_rule(p->g, rule)->tree != NULL) {
      ebnf_fail(p->g, start, "a second rule with the name", p->text + start, (uint32_t)length);
    }
    p->at = start + length;
    while (here(p) != '=') p->at++;
    p->at++;
    regex_t *tree = parse_alternatives(p);
    ebnf_rule(p->g, rule)->tree = tree;
    ebnf_rule(p->g, rule)->at = start;
  }
}

uint32_t ebnf_compile(compile_t *c, const grammar_source_t *source, uint32_t next) {
  ebnf_t g = {.c = c, .text = source->text, .length = source->length};
  parser_t p = {.g = &g, .text = source->text, .length = source->length};
  if (source->length > c->limits->grammar_bytes_max) {
    compile_fail(c, ERR_BAD_REQUEST, "The grammar has %zu bytes; at most %u are allowed.",
                 source->length, c->limits->grammar_bytes_max);
  }
  g.buckets = compile_scratch(c, EBNF_BUCKETS, sizeof *g.buckets);
  g.root = rule_of(&(parser_t){.g = &g, .text = "root"}, 0, 4);
  parse_rules(&p);
  if (ebnf_rule(&g, g.root)->tree == NULL) ebnf_fail(&g, 0, "no rule with the name", "root", 4);
  ebnf_check(&g);
  return ebnf_build(&g, next);
}
