/* parser_expression.c: tokens -> expressions, by Jinja's own grammar and precedence.
 *
 * The compiling thread. Every construct that Jinja knows and this interpreter does not is refused
 * here by name.
 */
#include "engine/template/compile/parser.h"
#include "engine/template/library/library.h"

#include <string.h>

static node_t *binary(compiler_t *c, node_kind_t kind, node_t *a, node_t *b) {
  return parse_join(c, parse_node(c, kind), a, b, NULL);
}

static node_t *constant(compiler_t *c, value_t v) {
  node_t *node = parse_node(c, NODE_CONSTANT);
  node->constant = v;
  return node;
}

static node_t *parse_list(compiler_t *c) {
  node_t *node = parse_node(c, NODE_LIST);
  node_list_t list = {0};
  while (!parse_skip(c, OP_RBRACKET)) {
    if (list.first != NULL) parse_expect(c, OP_COMMA, "a comma");
    if (parse_skip(c, OP_RBRACKET)) break;
    parse_append(c, node, &list, parse_expression(c, true));
  }
  node->a = list.first;
  return node;
}

static node_t *parse_dict(compiler_t *c) {
  node_t *node = parse_node(c, NODE_DICT);
  node_list_t list = {0};
  while (!parse_skip(c, OP_RBRACE)) {
    if (list.first != NULL) parse_expect(c, OP_COMMA, "a comma");
    if (parse_skip(c, OP_RBRACE)) break;
    parse_append(c, node, &list, parse_expression(c, true));
    parse_expect(c, OP_COLON, "a colon");
    parse_append(c, node, &list, parse_expression(c, true));
  }
  node->a = list.first;
  return node;
}

static node_t *parse_name(compiler_t *c) {
  static const char *const refused[] = {"self", "super", "lipsum", NULL};
  const token_t *token = parse_token(c);
  const str_t *name = token->value.string;
  c->at++;
  if (str_is(name, "true") || str_is(name, "True")) return constant(c, value_bool(true));
  if (str_is(name, "false") || str_is(name, "False")) return constant(c, value_bool(false));
  if (str_is(name, "none") || str_is(name, "None")) return constant(c, value_none());
  for (const char *const *r = refused; *r != NULL; r++)
    if (str_is(name, *r)) template_fail(c, token->line, "`%s` is not supported", *r);
  node_t *node = parse_node(c, NODE_NAME);
  node->symbol = parse_symbol(c, name);
  if (str_is(name, "caller")) c->macro_seen |= MACRO_CALLER;
  if (str_is(name, "varargs")) c->macro_seen |= MACRO_VARARGS;
  if (str_is(name, "kwargs")) c->macro_seen |= MACRO_KWARGS;
  if (str_is(name, "loop")) c->loop_reads++;
  return node;
}

static node_t *parse_string(compiler_t *c) {
  const str_t *first = parse_token(c)->value.string;
  size_t total = 0, used = 0;
  for (size_t i = c->at; c->tokens[i].type == TOKEN_STRING; i++)
    total += c->tokens[i].value.string->length;
  if (total == first->length && parse_look(c)->type != TOKEN_STRING)
    return constant(c, c->tokens[c->at++].value);
  char *bytes = template_take(c, total + 1);
  for (; parse_token(c)->type == TOKEN_STRING; c->at++) {
    const str_t *part = parse_token(c)->value.string;
    memcpy(bytes + used, part->bytes, part->length);
    used += part->length;
  }
  str_t *joined = template_string(c, "", 0);
  joined->bytes = bytes;
  joined->length = (uint32_t)used;
  return constant(c, value_string(joined));
}

/* "(" is behind us. */
static node_t *parse_parentheses(compiler_t *c) {
  if (parse_skip(c, OP_RPAREN)) return parse_node(c, NODE_TUPLE);
  node_t *node = parse_tuple(c, true, NULL);
  parse_expect(c, OP_RPAREN, "\")\"");
  return node;
}

node_t *parse_primary(compiler_t *c) {
  node_t *node = NULL;
  parse_enter(c);
  switch (parse_token(c)->type) {
  case TOKEN_NAME: node = parse_name(c); break;
  case TOKEN_STRING: node = parse_string(c); break;
  case TOKEN_NUMBER: node = constant(c, c->tokens[c->at++].value); break;
  case OP_LPAREN:
    c->at++;
    node = parse_parentheses(c);
    break;
  case OP_LBRACKET:
    c->at++;
    node = parse_list(c);
    break;
  case OP_LBRACE:
    c->at++;
    node = parse_dict(c);
    break;
  default: parse_unexpected(c, "an expression");
  }
  parse_leave(c);
  return node;
}

node_t *parse_arguments(compiler_t *c) {
  node_list_t list = {0};
  node_t holder = {0};
  bool keywords = false, spread = false;
  parse_expect(c, OP_LPAREN, "\"(\"");
  while (!parse_skip(c, OP_RPAREN)) {
    if (list.first != NULL) {
      parse_expect(c, OP_COMMA, "a comma");
      if (parse_skip(c, OP_RPAREN)) break;
    }
    node_t *node;
    uint32_t line = parse_token(c)->line;
    if (parse_token(c)->type == OP_MUL || parse_token(c)->type == OP_POW) {
      node = parse_node(c, NODE_SPREAD);
      node->op = parse_token(c)->type == OP_POW ? 2 : 1;
      c->at++;
      if (spread && node->op == 1) template_fail(c, line, "invalid syntax for a call");
      spread = true;
      (void)parse_join(c, node, parse_expression(c, true), NULL, NULL);
    } else if (parse_token(c)->type == TOKEN_NAME && parse_look(c)->type == OP_ASSIGN) {
      node = parse_node(c, NODE_KEYWORD);
      node->constant = parse_token(c)->value;
      c->at += 2;
      keywords = true;
      (void)parse_join(c, node, parse_expression(c, true), NULL, NULL);
    } else {
      if (keywords || spread) template_fail(c, line, "invalid syntax for a call");
      node = parse_expression(c, true);
    }
    parse_append(c, &holder, &list, node);
  }
  return list.first;
}

/* A filter or test that Jinja has and we do not is refused; one that nobody has only fails when it
 * is reached inside a condition. Returns its number, LIBRARY_UNKNOWN for the latter. */
static uint8_t library_number(compiler_t *c, const str_t *name, bool filter, uint32_t line) {
  char shown[48];
  bool known_to_jinja = false;
  int number = filter ? library_filter(name, &known_to_jinja) : library_test(name, &known_to_jinja);
  if (number >= 0) return (uint8_t)number;
  error_quote(shown, sizeof shown, name->bytes, name->length);
  if (known_to_jinja)
    template_fail(c, line, "the %s `%s` is not supported", filter ? "filter" : "test", shown);
  if (!c->soft) template_fail(c, line, "no %s named `%s`", filter ? "filter" : "test", shown);
  if (c->unknown_line == 0) c->unknown_line = line;
  return LIBRARY_UNKNOWN;
}

/* `a.b` is a name of filters and tests too, though nobody has one. */
static const str_t *dotted_name(compiler_t *c) {
  const str_t *name = parse_expect_name(c)->value.string;
  while (parse_skip(c, OP_DOT)) {
    (void)parse_expect_name(c);
    name = template_string(c, "a.name.with.dots", 16);
  }
  return name;
}

node_t *parse_filters(compiler_t *c, node_t *node, bool inline_start) {
  while (inline_start || parse_token(c)->type == OP_PIPE) {
    if (!inline_start) c->at++;
    uint32_t line = parse_token(c)->line;
    const str_t *name = dotted_name(c);
    node_t *filter = parse_node(c, NODE_FILTER);
    filter->op = library_number(c, name, true, line);
    filter->constant = value_string(name);
    filter->line = line;
    node_t *arguments = parse_token(c)->type == OP_LPAREN ? parse_arguments(c) : NULL;
    node = parse_join(c, filter, node, arguments, NULL);
    inline_start = false;
  }
  return node;
}

static node_t *parse_part(compiler_t *c) {
  token_type_t type = (token_type_t)parse_token(c)->type;
  if (type == OP_COLON || type == OP_RBRACKET || type == OP_COMMA) return NULL;
  return parse_expression(c, true);
}

/* "[" is behind us. */
static node_t *parse_subscript(compiler_t *c, node_t *node) {
  node_t *index = NULL;
  if (parse_token(c)->type == OP_RBRACKET)
    template_fail(c, parse_token(c)->line, "an empty subscript is not supported");
  if (parse_token(c)->type != OP_COLON) index = parse_expression(c, true);
  if (parse_skip(c, OP_COLON)) {
    node_t *stop = parse_part(c), *step = parse_skip(c, OP_COLON) ? parse_part(c) : NULL;
    index = parse_join(c, parse_node(c, NODE_SLICE), index, stop, step);
  }
  if (parse_token(c)->type == OP_COMMA)
    template_fail(c, parse_token(c)->line, "several subscripts are not supported");
  parse_expect(c, OP_RBRACKET, "\"]\"");
  return binary(c, NODE_ITEM, node, index);
}

static node_t *parse_call(compiler_t *c, node_t *node) {
  node_t *call = parse_node(c, NODE_CALL), *arguments = parse_arguments(c);
  return parse_join(c, call, node, arguments, NULL);
}

static node_t *parse_postfix(compiler_t *c, node_t *node) {
  for (;;) {
    if (parse_skip(c, OP_DOT)) {
      const token_t *token = parse_token(c);
      bool name = token->type == TOKEN_NAME;
      if (!name && (token->type != TOKEN_NUMBER || token->value.type != VALUE_INT))
        parse_unexpected(c, "a name or a number after \".\"");
      c->at++;
      if (name) {
        node = binary(c, NODE_ATTRIBUTE, node, NULL);
        node->constant = token->value;
        (void)parse_symbol(c, token->value.string);
      } else {
        node = binary(c, NODE_ITEM, node, constant(c, token->value));
      }
    } else if (parse_skip(c, OP_LBRACKET)) {
      node = parse_subscript(c, node);
    } else if (parse_token(c)->type == OP_LPAREN) {
      node = parse_call(c, node);
    } else {
      return node;
    }
  }
}

/* `is` is behind us. */
static node_t *parse_test(compiler_t *c, node_t *node) {
  bool negated = parse_skip_name(c, "not");
  uint32_t line = parse_token(c)->line;
  const str_t *name = dotted_name(c);
  node_t *test = parse_node(c, NODE_TEST), *arguments = NULL;
  test->op = library_number(c, name, false, line);
  test->constant = value_string(name);
  test->line = line;
  const token_t *token = parse_token(c);
  if (token->type == OP_LPAREN) {
    arguments = parse_arguments(c);
  } else if (token->type == TOKEN_STRING || token->type == TOKEN_NUMBER ||
             token->type == OP_LBRACKET || token->type == OP_LBRACE ||
             (token->type == TOKEN_NAME && !parse_is_name(token, "else") &&
              !parse_is_name(token, "or") && !parse_is_name(token, "and"))) {
    if (parse_is_name(token, "is")) template_fail(c, line, "tests with `is` cannot be chained");
    arguments = parse_postfix(c, parse_primary(c));
  }
  test = parse_join(c, test, node, arguments, NULL);
  return negated ? binary(c, NODE_NOT, test, NULL) : test;
}

static node_t *parse_unary(compiler_t *c, bool with_filter) {
  node_t *node;
  parse_enter(c);
  if (parse_token(c)->type == OP_SUB || parse_token(c)->type == OP_ADD) {
    node_kind_t kind = parse_token(c)->type == OP_SUB ? NODE_NEGATE : NODE_POSITIVE;
    c->at++;
    node = binary(c, kind, parse_unary(c, false), NULL);
  } else {
    node = parse_primary(c);
  }
  node = parse_postfix(c, node);
  while (with_filter) {
    if (parse_token(c)->type == OP_PIPE)
      node = parse_filters(c, node, false);
    else if (parse_skip_name(c, "is"))
      node = parse_test(c, node);
    else if (parse_token(c)->type == OP_LPAREN)
      node = parse_call(c, node);
    else
      break;
  }
  parse_leave(c);
  return node;
}

static bool parse_operator(compiler_t *c, token_type_t from, token_type_t to, uint8_t *op) {
  *op = parse_token(c)->type;
  if (*op < from || *op > to) return false;
  c->at++;
  return true;
}

static node_t *parse_operation(compiler_t *c, uint8_t op, node_t *left, node_t *right) {
  node_t *node = binary(c, NODE_BINARY, left, right);
  node->op = op;
  return node;
}

static node_t *parse_power(compiler_t *c) {
  node_t *left = parse_unary(c, true);
  uint8_t op;
  while (parse_operator(c, OP_POW, OP_POW, &op))
    left = parse_operation(c, op, left, parse_unary(c, true));
  return left;
}

static node_t *parse_product(compiler_t *c) {
  node_t *left = parse_power(c);
  uint8_t op;
  while (parse_operator(c, OP_MUL, OP_MOD, &op))
    left = parse_operation(c, op, left, parse_power(c));
  return left;
}

static node_t *parse_concat(compiler_t *c) {
  node_t *first = parse_product(c);
  if (parse_token(c)->type != OP_TILDE) return first;
  node_t *node = parse_node(c, NODE_CONCAT);
  node_list_t list = {0};
  parse_append(c, node, &list, first);
  while (parse_skip(c, OP_TILDE)) parse_append(c, node, &list, parse_product(c));
  node->a = list.first;
  return node;
}

static node_t *parse_sum(compiler_t *c) {
  node_t *left = parse_concat(c);
  uint8_t op;
  while (parse_operator(c, OP_ADD, OP_SUB, &op))
    left = parse_operation(c, op, left, parse_concat(c));
  return left;
}

static node_t *parse_compare(compiler_t *c) {
  node_t *first = parse_sum(c), *node = NULL;
  node_list_t list = {0};
  for (;;) {
    uint8_t op;
    if (parse_skip_name(c, "in")) {
      op = OP_IN;
    } else if (parse_is_name(parse_token(c), "not") && parse_is_name(parse_look(c), "in")) {
      c->at += 2;
      op = OP_NOT_IN;
    } else if (!parse_operator(c, OP_EQ, OP_GE, &op)) {
      break;
    }
    if (node == NULL) node = binary(c, NODE_COMPARE, first, NULL);
    node_t *operand = binary(c, NODE_OPERAND, parse_sum(c), NULL);
    operand->op = op;
    parse_append(c, node, &list, operand);
    node->b = list.first;
  }
  return node == NULL ? first : node;
}

static node_t *parse_not(compiler_t *c) {
  if (!parse_is_name(parse_token(c), "not")) return parse_compare(c);
  c->at++;
  parse_enter(c);
  node_t *node = binary(c, NODE_NOT, parse_not(c), NULL);
  parse_leave(c);
  return node;
}

static node_t *parse_and(compiler_t *c) {
  node_t *left = parse_not(c);
  while (parse_skip_name(c, "and")) left = binary(c, NODE_AND, left, parse_not(c));
  return left;
}

static node_t *parse_or(compiler_t *c) {
  node_t *left = parse_and(c);
  while (parse_skip_name(c, "or")) left = binary(c, NODE_OR, left, parse_and(c));
  return left;
}

/* Unknown filters are fine in all three parts of a condition. The first part is read before it is
 * known to be one, so it reports what it did not know in `unknown_line`. */
node_t *parse_expression(compiler_t *c, bool with_condition) {
  if (!with_condition) return parse_or(c);
  parse_enter(c);
  bool soft = c->soft, condition = false;
  uint32_t outer_unknown = c->unknown_line;
  c->soft = true;
  c->unknown_line = 0;
  node_t *node = parse_or(c);
  while (parse_skip_name(c, "if")) {
    condition = true;
    node_t *test = parse_or(c);
    node_t *other = parse_skip_name(c, "else") ? parse_expression(c, true) : NULL;
    node = parse_join(c, parse_node(c, NODE_CONDITION), test, node, other);
  }
  c->soft = soft;
  if (c->unknown_line > 0 && !condition && !soft)
    template_fail(c, c->unknown_line, "no filter or test of this name");
  if (condition || c->unknown_line == 0) c->unknown_line = outer_unknown;
  parse_leave(c);
  return node;
}
