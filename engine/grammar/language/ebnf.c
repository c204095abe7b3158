/* ebnf.c: user grammars in the notation that llama.cpp calls GBNF. Lark: engine/grammar/lark.
 *
 *   root  ::= greeting (", " name)* "!"     # a comment; the text is a `root`
 *   name  ::= [A-Z] [a-z]{1,20} | "the " name
 *
 * Literals in double or single quotes, classes and escapes as in regexes, \UXXXXXXXX, `.` for any
 * character, groups, ? * + {m} {m,} {m,n}, alternatives. A rule ends where the next one begins.
 * Names have letters, digits, - and _. References to tokens are refused. Part of a
 * compilation, on its thread; errors name line and column. Parts without rules become one lexeme.
 * Next: ebnf_check.c, ebnf_build.c.
 */
#include "engine/grammar/language/ebnf.h"

#include "engine/base/hash.h"
#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct ebnf_parser {
  ebnf_t *ebnf;
  const char *text;
  size_t length, at;
  uint32_t depth, repeats; /* groups around this place; repetitions of one term */
} ebnf_parser_t;

static regex_t *parse_alternatives(ebnf_parser_t *parser);

void ebnf_fail(const ebnf_t *ebnf, size_t at, const char *reason, const char *name,
               uint32_t name_length) {
  uint32_t line = 1, column = 1;
  char quoted[80] = "";
  for (size_t i = 0; i < at && i < ebnf->length; i++) {
    column = ebnf->text[i] == '\n' ? 1 : column + !utf8_continues((uint8_t)ebnf->text[i]);
    line += ebnf->text[i] == '\n';
  }
  if (name != NULL) error_quote(quoted, sizeof quoted, name, name_length);
  compile_fail(ebnf->compile, ERR_INVALID_VALUE, "grammar, line %u, column %u: %s%s%s%s.", line,
               column, reason, name != NULL ? " '" : "", quoted, name != NULL ? "'" : "");
}

_Noreturn static void fail(const ebnf_parser_t *parser, size_t at, const char *reason) {
  ebnf_fail(parser->ebnf, at, reason, NULL, 0);
}

static char here(const ebnf_parser_t *parser) {
  return parser->at < parser->length ? parser->text[parser->at] : 0;
}

/* White space, line ends and comments. */
static void skip(ebnf_parser_t *parser) {
  for (; parser->at < parser->length; parser->at++) {
    char ch = parser->text[parser->at];
    if (ch == '#') {
      while (parser->at < parser->length && parser->text[parser->at] != '\n') parser->at++;
      if (parser->at == parser->length) return;
    } else if (ch != ' ' && ch != '\t' && ch != '\n' && ch != '\r') {
      return;
    }
  }
}

static bool is_name(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
         ch == '_' || ch == '-';
}

static size_t name_length(const ebnf_parser_t *parser, size_t at) {
  size_t length = 0;
  while (at + length < parser->length && is_name(parser->text[at + length])) length++;
  return length;
}

/* Returns true if a rule begins here: a name and ::= */
static bool at_rule(const ebnf_parser_t *parser) {
  size_t at = parser->at + name_length(parser, parser->at);
  if (at == parser->at) return false;
  while (at < parser->length && (parser->text[at] == ' ' || parser->text[at] == '\t')) at++;
  static const char means[] = "::=";
  const size_t length = sizeof means - 1;
  return parser->length - at >= length && memcmp(parser->text + at, means, length) == 0;
}

/* ---- rules ---- */

static uint32_t hash_name(const char *text, size_t length) {
  uint32_t hash = fnv_32(FNV_32_BASIS, text, length);
  return (hash ^ hash >> 15) % EBNF_BUCKETS;
}

uint32_t ebnf_rule_of(ebnf_t *ebnf, const char *text, size_t at, size_t length) {
  const char *name = text + at;
  uint32_t *bucket = &ebnf->buckets[hash_name(name, length)];
  for (uint32_t i = *bucket; i; i = ebnf_rule(ebnf, i - 1)->chain) {
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i - 1);
    if (rule->length == length && memcmp(rule->name, name, length) == 0) return i - 1;
  }
  if (ebnf->rules.count >= ebnf->compile->limits->grammar_rules_max) {
    compile_fail(ebnf->compile, ERR_BAD_REQUEST, "The grammar has more than %u rules.",
                 ebnf->compile->limits->grammar_rules_max);
  }
  ebnf_rule_t *rule = list_add(ebnf->compile, &ebnf->rules, sizeof *rule);
  *rule = (ebnf_rule_t){.name = name, .length = (uint32_t)length, .at = at, .chain = *bucket};
  *bucket = ebnf->rules.count;
  return ebnf->rules.count - 1;
}

void ebnf_begin(ebnf_t *ebnf, const char *root) {
  compile_t *compile = ebnf->compile;
  if (ebnf->length > compile->limits->grammar_bytes_max) {
    compile_fail(compile, ERR_BAD_REQUEST, "The grammar has %zu bytes; at most %u are allowed.",
                 ebnf->length, compile->limits->grammar_bytes_max);
  }
  ebnf->buckets = compile_scratch(compile, EBNF_BUCKETS, sizeof *ebnf->buckets);
  ebnf->root = ebnf_rule_of(ebnf, root, 0, strlen(root));
}

void ebnf_add_rule(ebnf_t *ebnf, uint32_t like) {
  const ebnf_rule_t copy = *ebnf_rule(ebnf, like);
  if (ebnf->rules.count >= ebnf->compile->limits->grammar_rules_max) {
    compile_fail(ebnf->compile, ERR_BAD_REQUEST, "The grammar has more than %u rules.",
                 ebnf->compile->limits->grammar_rules_max);
  }
  ebnf_rule_t *rule = list_add(ebnf->compile, &ebnf->rules, sizeof *rule);
  *rule = (ebnf_rule_t){.name = copy.name, .length = copy.length, .at = copy.at};
}

/* ---- terms ---- */

static regex_t *parse_pattern(ebnf_parser_t *parser, const char *text, size_t length, size_t at) {
  char what[64];
  uint32_t line = 1;
  for (size_t i = 0; i < at; i++) line += parser->text[i] == '\n';
  snprintf(what, sizeof what, "grammar, line %u, term", line);
  regex_options_t options = {.dialect = REGEX_GBNF, .what = what};
  return regex_parse(parser->ebnf->compile, text, length, &options);
}

/* A character class is parsed as a regex. */
static regex_t *parse_class(ebnf_parser_t *parser) {
  size_t start = parser->at++;
  for (; here(parser) != ']'; parser->at++) {
    if (parser->at >= parser->length) fail(parser, start, "the class has no end");
    if (here(parser) == '\\') parser->at++;
  }
  parser->at++;
  if (parser->at > parser->length) fail(parser, start, "the class has no end");
  return parse_pattern(parser, parser->text + start, parser->at - start, start);
}

/* A literal: escapes are those of regexes, everything else stands for itself. */
static regex_t *parse_literal(ebnf_parser_t *parser) {
  char quote = here(parser);
  size_t start = parser->at++;
  regex_t *cat = regex_node(parser->ebnf->compile, REGEX_CAT);
  while (here(parser) != quote) {
    size_t from = parser->at;
    if (parser->at >= parser->length || here(parser) == '\n')
      fail(parser, start, "the literal has no end");
    if (here(parser) == '\\') {
      char ch = parser->at + 1 < parser->length ? parser->text[parser->at + 1] : 0;
      bool open =
          ch == 'u' && parser->at + 2 < parser->length && parser->text[parser->at + 2] == '{';
      parser->at += ch == 'x' ? 4 : ch == 'U' ? 10 : ch == 'u' && !open ? 6 : 2;
      while (open && parser->at < parser->length && parser->text[parser->at - 1] != '}')
        parser->at++;
      if (parser->at > parser->length) fail(parser, start, "the literal has no end");
      if (strchr("dDwWsS", ch) != NULL && ch)
        fail(parser, from, "a class has no place in a literal");
      regex_append(cat, parse_pattern(parser, parser->text + from, parser->at - from, from));
      continue;
    }
    if (utf8_span(parser->text + from, parser->length - from) < 0)
      fail(parser, from, "invalid UTF-8");
    unsigned length;
    uint32_t ch = utf8_read((const uint8_t *)parser->text + from, &length);
    regex_append(cat, regex_character(parser->ebnf->compile, ch));
    parser->at += length;
  }
  parser->at++;
  return cat;
}

static regex_t *parse_any(ebnf_parser_t *parser) {
  static const char any[] = "[^]";
  parser->at++;
  return parse_pattern(parser, any, sizeof any - 1, parser->at);
}

static regex_t *parse_reference(ebnf_parser_t *parser) {
  size_t length = name_length(parser, parser->at), at = parser->at;
  if (length == 0)
    fail(parser, parser->at, "expected a literal, a class, a group or the name of a rule");
  regex_t *node = regex_node(parser->ebnf->compile, REGEX_RULE);
  node->min = ebnf_rule_of(parser->ebnf, parser->text, at, length);
  node->max = (uint32_t)at;
  parser->at += length;
  return node;
}

static regex_t *parse_group(ebnf_parser_t *parser) {
  size_t start = parser->at++;
  if (++parser->depth > parser->ebnf->compile->limits->regex_depth_max) {
    compile_fail(parser->ebnf->compile, ERR_BAD_REQUEST, "grammar: groups nest deeper than %u.",
                 parser->ebnf->compile->limits->regex_depth_max);
  }
  regex_t *inside = parse_alternatives(parser);
  skip(parser);
  if (here(parser) != ')') fail(parser, start, "the group has no end");
  parser->at++;
  parser->depth--;
  return inside;
}

static uint32_t parse_number(ebnf_parser_t *parser) {
  uint32_t value = 0, most = parser->ebnf->compile->limits->regex_nodes_max;
  if (here(parser) < '0' || here(parser) > '9') fail(parser, parser->at, "expected a number");
  for (; here(parser) >= '0' && here(parser) <= '9'; parser->at++) {
    value = value * 10 + (uint32_t)(here(parser) - '0');
    if (value > most) {
      compile_fail(parser->ebnf->compile, ERR_BAD_REQUEST, "grammar: more than %u repetitions.",
                   most);
    }
  }
  return value;
}

static regex_t *parse_postfix(ebnf_parser_t *parser, regex_t *term) {
  for (;; skip(parser)) {
    uint32_t min = 0, max = NONE;
    size_t start = parser->at;
    char ch = here(parser);
    if (ch == '?') {
      max = 1;
    } else if (ch == '+') {
      min = 1;
    } else if (ch == '{') {
      parser->at++;
      min = max = parse_number(parser);
      if (here(parser) == ',') {
        parser->at++;
        max = here(parser) == '}' ? NONE : parse_number(parser);
      }
      if (here(parser) != '}') fail(parser, start, "the repetition has no end");
      if (max < min) fail(parser, start, "the repetition is out of order");
    } else if (ch != '*') {
      return term;
    }
    parser->at++;
    if (++parser->repeats > parser->ebnf->compile->limits->regex_depth_max)
      fail(parser, start, "too many repetitions");
    regex_t *node = regex_node(parser->ebnf->compile, REGEX_REPEAT);
    regex_append(node, term);
    node->min = min;
    node->max = max;
    term = node;
  }
}

_Noreturn static void refuse_token(const ebnf_parser_t *parser) {
  fail(parser, parser->at, "a reference to a token (<name>, <[id]>, !<name>) is not supported");
}

static regex_t *parse_term(ebnf_parser_t *parser) {
  uint32_t repeats = parser->repeats;
  regex_t *term;
  parser->repeats = 0;
  switch (here(parser)) {
  case '"':
  case '\'': term = parse_literal(parser); break;
  case '[': term = parse_class(parser); break;
  case '.': term = parse_any(parser); break;
  case '(': term = parse_group(parser); break;
  case '<':
  case '!': refuse_token(parser);
  default: term = parse_reference(parser); break;
  }
  term = parse_postfix(parser, term);
  parser->repeats = repeats;
  return term;
}

static regex_t *parse_alternatives(ebnf_parser_t *parser) {
  regex_t *either = regex_node(parser->ebnf->compile, REGEX_ALT);
  for (;;) {
    regex_t *cat = regex_node(parser->ebnf->compile, REGEX_CAT);
    for (skip(parser); parser->at < parser->length && here(parser) != '|' && here(parser) != ')' &&
                       !at_rule(parser);
         skip(parser)) {
      regex_append(cat, parse_term(parser));
    }
    regex_append(either, cat);
    if (here(parser) != '|') return either;
    parser->at++;
  }
}

/* ---- entry point ---- */

static void parse_rules(ebnf_parser_t *parser) {
  for (skip(parser); parser->at < parser->length; skip(parser)) {
    size_t start = parser->at, length = name_length(parser, parser->at);
    if (!at_rule(parser)) fail(parser, start, "expected a rule: a name and ::=");
    uint32_t rule = ebnf_rule_of(parser->ebnf, parser->text, start, length);
    if (ebnf_rule(parser->ebnf, rule)->tree != NULL) {
      ebnf_fail(parser->ebnf, start, "a second rule with the name", parser->text + start,
                (uint32_t)length);
    }
    parser->at = start + length;
    while (here(parser) != '=') parser->at++;
    parser->at++;
    regex_t *tree = parse_alternatives(parser);
    ebnf_rule(parser->ebnf, rule)->tree = tree;
    ebnf_rule(parser->ebnf, rule)->at = start;
  }
}

uint32_t ebnf_compile(compile_t *compile, const grammar_source_t *source, uint32_t next) {
  static const char root[] = "root";
  ebnf_t ebnf = {.compile = compile, .text = source->text, .length = source->length};
  ebnf_parser_t parser = {.ebnf = &ebnf, .text = source->text, .length = source->length};
  ebnf_begin(&ebnf, root);
  parse_rules(&parser);
  if (ebnf_rule(&ebnf, ebnf.root)->tree == NULL)
    ebnf_fail(&ebnf, 0, "no rule with the name", root, sizeof root - 1);
  ebnf_check(&ebnf);
  return ebnf_build(&ebnf, next);
}
