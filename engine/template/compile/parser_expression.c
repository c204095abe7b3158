/* parser_expression.c: tokens -> expressions, by Jinja's own grammar and precedence.
 *
 * The compiling thread. Every construct that Jinja knows and this interpreter does not is refused
 * here by name.
 */
#include "engine/template/compile/parser.h"
#include "engine/template/library/library.h"

#include <string.h>

static ast_node_t *binary(compiler_t *compiler, ast_node_kind_t kind, ast_node_t *left,
                          ast_node_t *right) {
  return parse_join(compiler, parse_node(compiler, kind), left, right, NULL);
}

static ast_node_t *constant(compiler_t *compiler, value_t value) {
  ast_node_t *node = parse_node(compiler, NODE_CONSTANT);
  node->constant = value;
  return node;
}

static ast_node_t *parse_list(compiler_t *compiler) {
  ast_node_t *node = parse_node(compiler, NODE_LIST);
  node_list_t list = {0};
  while (!parse_skip(compiler, OP_RBRACKET)) {
    if (list.first != NULL) parse_expect(compiler, OP_COMMA, "a comma");
    if (parse_skip(compiler, OP_RBRACKET)) break;
    parse_append(compiler, node, &list, parse_expression(compiler, true));
  }
  node->a = list.first;
  return node;
}

static ast_node_t *parse_dict(compiler_t *compiler) {
  ast_node_t *node = parse_node(compiler, NODE_DICT);
  node_list_t list = {0};
  while (!parse_skip(compiler, OP_RBRACE)) {
    if (list.first != NULL) parse_expect(compiler, OP_COMMA, "a comma");
    if (parse_skip(compiler, OP_RBRACE)) break;
    parse_append(compiler, node, &list, parse_expression(compiler, true));
    parse_expect(compiler, OP_COLON, "a colon");
    parse_append(compiler, node, &list, parse_expression(compiler, true));
  }
  node->a = list.first;
  return node;
}

static ast_node_t *parse_name(compiler_t *compiler) {
  static const char *const refused[] = {"self", "super", "lipsum", NULL};
  const token_t *token = parse_token(compiler);
  const str_t *name = token->value.string;
  compiler->at++;
  if (str_is(name, "true") || str_is(name, "True")) return constant(compiler, value_bool(true));
  if (str_is(name, "false") || str_is(name, "False")) return constant(compiler, value_bool(false));
  if (str_is(name, "none") || str_is(name, "None")) return constant(compiler, value_none());
  for (const char *const *r = refused; *r != NULL; r++)
    if (str_is(name, *r)) template_fail(compiler, token->line, "`%s` is not supported", *r);
  ast_node_t *node = parse_node(compiler, NODE_NAME);
  node->symbol = parse_symbol(compiler, name);
  if (str_is(name, "caller")) compiler->macro_seen |= MACRO_CALLER;
  if (str_is(name, "varargs")) compiler->macro_seen |= MACRO_VARARGS;
  if (str_is(name, "kwargs")) compiler->macro_seen |= MACRO_KWARGS;
  if (str_is(name, "loop")) compiler->loop_reads++;
  return node;
}

static ast_node_t *parse_string(compiler_t *compiler) {
  const str_t *first = parse_token(compiler)->value.string;
  size_t total = 0, used = 0;
  for (size_t i = compiler->at; compiler->tokens[i].type == TOKEN_STRING; i++)
    total += compiler->tokens[i].value.string->length;
  if (total == first->length && parse_look(compiler)->type != TOKEN_STRING)
    return constant(compiler, compiler->tokens[compiler->at++].value);
  char *bytes = template_take(compiler, total + 1);
  for (; parse_token(compiler)->type == TOKEN_STRING; compiler->at++) {
    const str_t *part = parse_token(compiler)->value.string;
    memcpy(bytes + used, part->bytes, part->length);
    used += part->length;
  }
  str_t *joined = template_string(compiler, "", 0);
  joined->bytes = bytes;
  joined->length = (uint32_t)used;
  return constant(compiler, value_string(joined));
}

/* The current token follows "(". */
static ast_node_t *parse_parentheses(compiler_t *compiler) {
  if (parse_skip(compiler, OP_RPAREN)) return parse_node(compiler, NODE_TUPLE);
  ast_node_t *node = parse_tuple(compiler, true, NULL);
  parse_expect(compiler, OP_RPAREN, "\")\"");
  return node;
}

static ast_node_t *parse_primary(compiler_t *compiler) {
  ast_node_t *node = NULL;
  parse_enter(compiler);
  switch (parse_token(compiler)->type) {
  case TOKEN_NAME: node = parse_name(compiler); break;
  case TOKEN_STRING: node = parse_string(compiler); break;
  case TOKEN_NUMBER: node = constant(compiler, compiler->tokens[compiler->at++].value); break;
  case OP_LPAREN:
    compiler->at++;
    node = parse_parentheses(compiler);
    break;
  case OP_LBRACKET:
    compiler->at++;
    node = parse_list(compiler);
    break;
  case OP_LBRACE:
    compiler->at++;
    node = parse_dict(compiler);
    break;
  default: parse_unexpected(compiler, "an expression");
  }
  parse_leave(compiler);
  return node;
}

/* "(...)": a list, or NULL. */
static ast_node_t *parse_arguments(compiler_t *compiler) {
  node_list_t list = {0};
  ast_node_t holder = {0};
  bool keywords = false, spread = false;
  parse_expect(compiler, OP_LPAREN, "\"(\"");
  while (!parse_skip(compiler, OP_RPAREN)) {
    if (list.first != NULL) {
      parse_expect(compiler, OP_COMMA, "a comma");
      if (parse_skip(compiler, OP_RPAREN)) break;
    }
    ast_node_t *node;
    uint32_t line = parse_token(compiler)->line;
    if (parse_token(compiler)->type == OP_MUL || parse_token(compiler)->type == OP_POW) {
      node = parse_node(compiler, NODE_SPREAD);
      node->op = parse_token(compiler)->type == OP_POW ? 2 : 1;
      compiler->at++;
      if (spread && node->op == 1) template_fail(compiler, line, "invalid syntax for a call");
      spread = true;
      (void)parse_join(compiler, node, parse_expression(compiler, true), NULL, NULL);
    } else if (parse_token(compiler)->type == TOKEN_NAME &&
               parse_look(compiler)->type == OP_ASSIGN) {
      node = parse_node(compiler, NODE_KEYWORD);
      node->constant = parse_token(compiler)->value;
      compiler->at += 2;
      keywords = true;
      (void)parse_join(compiler, node, parse_expression(compiler, true), NULL, NULL);
    } else {
      if (keywords || spread) template_fail(compiler, line, "invalid syntax for a call");
      node = parse_expression(compiler, true);
    }
    parse_append(compiler, &holder, &list, node);
  }
  return list.first;
}

/* Returns the number of a filter or test. One that Jinja has and this interpreter lacks is refused.
 * One that Jinja lacks too gives LIBRARY_UNKNOWN; inside a condition it fails only when it is
 * reached. */
static uint8_t library_number(compiler_t *compiler, const str_t *name, bool filter, uint32_t line) {
  char shown[48];
  bool known_to_jinja = false;
  int number = filter ? library_filter(name, &known_to_jinja) : library_test(name, &known_to_jinja);
  if (number >= 0) return (uint8_t)number;
  error_quote(shown, sizeof shown, name->bytes, name->length);
  if (known_to_jinja)
    template_fail(compiler, line, "the %s `%s` is not supported", filter ? "filter" : "test",
                  shown);
  if (!compiler->soft)
    template_fail(compiler, line, "no %s named `%s`", filter ? "filter" : "test", shown);
  if (compiler->unknown_line == 0) compiler->unknown_line = line;
  return LIBRARY_UNKNOWN;
}

/* Names of filters and tests may be `a.b`, although none exists. */
static const str_t *dotted_name(compiler_t *compiler) {
  const str_t *name = parse_expect_name(compiler)->value.string;
  while (parse_skip(compiler, OP_DOT)) {
    (void)parse_expect_name(compiler);
    name = template_string(compiler, "a.name.with.dots", 16);
  }
  return name;
}

ast_node_t *parse_filters(compiler_t *compiler, ast_node_t *node, bool inline_start) {
  while (inline_start || parse_token(compiler)->type == OP_PIPE) {
    if (!inline_start) compiler->at++;
    uint32_t line = parse_token(compiler)->line;
    const str_t *name = dotted_name(compiler);
    ast_node_t *filter = parse_node(compiler, NODE_FILTER);
    filter->op = library_number(compiler, name, true, line);
    filter->constant = value_string(name);
    filter->line = line;
    ast_node_t *arguments =
        parse_token(compiler)->type == OP_LPAREN ? parse_arguments(compiler) : NULL;
    node = parse_join(compiler, filter, node, arguments, NULL);
    inline_start = false;
  }
  return node;
}

static ast_node_t *parse_part(compiler_t *compiler) {
  token_type_t type = (token_type_t)parse_token(compiler)->type;
  if (type == OP_COLON || type == OP_RBRACKET || type == OP_COMMA) return NULL;
  return parse_expression(compiler, true);
}

/* The current token follows "[". */
static ast_node_t *parse_subscript(compiler_t *compiler, ast_node_t *node) {
  ast_node_t *index = NULL;
  if (parse_token(compiler)->type == OP_RBRACKET)
    template_fail(compiler, parse_token(compiler)->line, "an empty subscript is not supported");
  if (parse_token(compiler)->type != OP_COLON) index = parse_expression(compiler, true);
  if (parse_skip(compiler, OP_COLON)) {
    ast_node_t *stop = parse_part(compiler),
               *step = parse_skip(compiler, OP_COLON) ? parse_part(compiler) : NULL;
    index = parse_join(compiler, parse_node(compiler, NODE_SLICE), index, stop, step);
  }
  if (parse_token(compiler)->type == OP_COMMA)
    template_fail(compiler, parse_token(compiler)->line, "several subscripts are not supported");
  parse_expect(compiler, OP_RBRACKET, "\"]\"");
  return binary(compiler, NODE_ITEM, node, index);
}

static ast_node_t *parse_call(compiler_t *compiler, ast_node_t *node) {
  ast_node_t *call = parse_node(compiler, NODE_CALL), *arguments = parse_arguments(compiler);
  return parse_join(compiler, call, node, arguments, NULL);
}

static ast_node_t *parse_postfix(compiler_t *compiler, ast_node_t *node) {
  for (;;) {
    if (parse_skip(compiler, OP_DOT)) {
      const token_t *token = parse_token(compiler);
      bool name = token->type == TOKEN_NAME;
      if (!name && (token->type != TOKEN_NUMBER || token->value.type != VALUE_INT))
        parse_unexpected(compiler, "a name or a number after \".\"");
      compiler->at++;
      if (name) {
        node = binary(compiler, NODE_ATTRIBUTE, node, NULL);
        node->constant = token->value;
        (void)parse_symbol(compiler, token->value.string);
      } else {
        node = binary(compiler, NODE_ITEM, node, constant(compiler, token->value));
      }
    } else if (parse_skip(compiler, OP_LBRACKET)) {
      node = parse_subscript(compiler, node);
    } else if (parse_token(compiler)->type == OP_LPAREN) {
      node = parse_call(compiler, node);
    } else {
      return node;
    }
  }
}

/* The current token follows `is`. */
static ast_node_t *parse_test(compiler_t *compiler, ast_node_t *node) {
  bool negated = parse_skip_name(compiler, "not");
  uint32_t line = parse_token(compiler)->line;
  const str_t *name = dotted_name(compiler);
  ast_node_t *test = parse_node(compiler, NODE_TEST), *arguments = NULL;
  test->op = library_number(compiler, name, false, line);
  test->constant = value_string(name);
  test->line = line;
  const token_t *token = parse_token(compiler);
  if (token->type == OP_LPAREN) {
    arguments = parse_arguments(compiler);
  } else if (token->type == TOKEN_STRING || token->type == TOKEN_NUMBER ||
             token->type == OP_LBRACKET || token->type == OP_LBRACE ||
             (token->type == TOKEN_NAME && !parse_is_name(token, "else") &&
              !parse_is_name(token, "or") && !parse_is_name(token, "and"))) {
    if (parse_is_name(token, "is"))
      template_fail(compiler, line, "tests with `is` cannot be chained");
    arguments = parse_postfix(compiler, parse_primary(compiler));
  }
  test = parse_join(compiler, test, node, arguments, NULL);
  return negated ? binary(compiler, NODE_NOT, test, NULL) : test;
}

static ast_node_t *parse_unary(compiler_t *compiler, bool with_filter) {
  ast_node_t *node;
  parse_enter(compiler);
  if (parse_token(compiler)->type == OP_SUB || parse_token(compiler)->type == OP_ADD) {
    ast_node_kind_t kind = parse_token(compiler)->type == OP_SUB ? NODE_NEGATE : NODE_POSITIVE;
    compiler->at++;
    node = binary(compiler, kind, parse_unary(compiler, false), NULL);
  } else {
    node = parse_primary(compiler);
  }
  node = parse_postfix(compiler, node);
  while (with_filter) {
    if (parse_token(compiler)->type == OP_PIPE)
      node = parse_filters(compiler, node, false);
    else if (parse_skip_name(compiler, "is"))
      node = parse_test(compiler, node);
    else if (parse_token(compiler)->type == OP_LPAREN)
      node = parse_call(compiler, node);
    else
      break;
  }
  parse_leave(compiler);
  return node;
}

static bool parse_operator(compiler_t *compiler, token_type_t from, token_type_t to, uint8_t *op) {
  *op = parse_token(compiler)->type;
  if (*op < from || *op > to) return false;
  compiler->at++;
  return true;
}

static ast_node_t *parse_operation(compiler_t *compiler, uint8_t op, ast_node_t *left,
                                   ast_node_t *right) {
  ast_node_t *node = binary(compiler, NODE_BINARY, left, right);
  node->op = op;
  return node;
}

static ast_node_t *parse_power(compiler_t *compiler) {
  ast_node_t *left = parse_unary(compiler, true);
  uint8_t op;
  while (parse_operator(compiler, OP_POW, OP_POW, &op))
    left = parse_operation(compiler, op, left, parse_unary(compiler, true));
  return left;
}

static ast_node_t *parse_product(compiler_t *compiler) {
  ast_node_t *left = parse_power(compiler);
  uint8_t op;
  while (parse_operator(compiler, OP_MUL, OP_MOD, &op))
    left = parse_operation(compiler, op, left, parse_power(compiler));
  return left;
}

static ast_node_t *parse_concat(compiler_t *compiler) {
  ast_node_t *first = parse_product(compiler);
  if (parse_token(compiler)->type != OP_TILDE) return first;
  ast_node_t *node = parse_node(compiler, NODE_CONCAT);
  node_list_t list = {0};
  parse_append(compiler, node, &list, first);
  while (parse_skip(compiler, OP_TILDE))
    parse_append(compiler, node, &list, parse_product(compiler));
  node->a = list.first;
  return node;
}

static ast_node_t *parse_sum(compiler_t *compiler) {
  ast_node_t *left = parse_concat(compiler);
  uint8_t op;
  while (parse_operator(compiler, OP_ADD, OP_SUB, &op))
    left = parse_operation(compiler, op, left, parse_concat(compiler));
  return left;
}

static ast_node_t *parse_compare(compiler_t *compiler) {
  ast_node_t *first = parse_sum(compiler), *node = NULL;
  node_list_t list = {0};
  for (;;) {
    uint8_t op;
    if (parse_skip_name(compiler, "in")) {
      op = OP_IN;
    } else if (parse_is_name(parse_token(compiler), "not") &&
               parse_is_name(parse_look(compiler), "in")) {
      compiler->at += 2;
      op = OP_NOT_IN;
    } else if (!parse_operator(compiler, OP_EQ, OP_GE, &op)) {
      break;
    }
    if (node == NULL) node = binary(compiler, NODE_COMPARE, first, NULL);
    ast_node_t *operand = binary(compiler, NODE_OPERAND, parse_sum(compiler), NULL);
    operand->op = op;
    parse_append(compiler, node, &list, operand);
    node->b = list.first;
  }
  return node == NULL ? first : node;
}

static ast_node_t *parse_not(compiler_t *compiler) {
  if (!parse_is_name(parse_token(compiler), "not")) return parse_compare(compiler);
  compiler->at++;
  parse_enter(compiler);
  ast_node_t *node = binary(compiler, NODE_NOT, parse_not(compiler), NULL);
  parse_leave(compiler);
  return node;
}

static ast_node_t *parse_and(compiler_t *compiler) {
  ast_node_t *left = parse_not(compiler);
  while (parse_skip_name(compiler, "and"))
    left = binary(compiler, NODE_AND, left, parse_not(compiler));
  return left;
}

static ast_node_t *parse_or(compiler_t *compiler) {
  ast_node_t *left = parse_and(compiler);
  while (parse_skip_name(compiler, "or"))
    left = binary(compiler, NODE_OR, left, parse_and(compiler));
  return left;
}

/* Unknown filters are fine in all three parts of a condition. The first part is read before it is
 * known to be one, so it reports what it did not know in `unknown_line`. */
ast_node_t *parse_expression(compiler_t *compiler, bool with_condition) {
  if (!with_condition) return parse_or(compiler);
  parse_enter(compiler);
  bool soft = compiler->soft, condition = false;
  uint32_t outer_unknown = compiler->unknown_line;
  compiler->soft = true;
  compiler->unknown_line = 0;
  ast_node_t *node = parse_or(compiler);
  while (parse_skip_name(compiler, "if")) {
    condition = true;
    ast_node_t *test = parse_or(compiler);
    ast_node_t *other = parse_skip_name(compiler, "else") ? parse_expression(compiler, true) : NULL;
    node = parse_join(compiler, parse_node(compiler, NODE_CONDITION), test, node, other);
  }
  compiler->soft = soft;
  if (compiler->unknown_line > 0 && !condition && !soft)
    template_fail(compiler, compiler->unknown_line, "no filter or test of this name");
  if (condition || compiler->unknown_line == 0) compiler->unknown_line = outer_unknown;
  parse_leave(compiler);
  return node;
}
