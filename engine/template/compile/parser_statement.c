/* parser_statement.c: tokens -> statements.
 *
 * The compiling thread. Tags that Jinja knows and this interpreter does not are refused by name.
 */
#include "engine/template/compile/parser.h"

#include <string.h>

static node_t *parse_target(compiler_t *c, const char *end, bool members);

/* One name, member or parenthesised list on the left of an assignment. */
static node_t *parse_target_item(compiler_t *c, bool members) {
  node_t *node;
  parse_enter(c);
  if (parse_skip(c, OP_LPAREN)) {
    node = parse_target(c, NULL, members);
    parse_expect(c, OP_RPAREN, "\")\"");
  } else if (parse_token(c)->type == OP_LBRACKET) {
    template_fail(c, parse_token(c)->line, "targets in square brackets are not supported");
  } else {
    const token_t *token = parse_expect_name(c);
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
      if (parse_is_name(token, constants[i]))
        template_fail(c, token->line, "cannot assign to `%s`", constants[i]);
    if (c->for_depth > 0 && parse_is_name(token, "loop"))
      template_fail(c, token->line, "cannot assign to `loop` inside a loop");
    node = parse_node(c, NODE_TARGET);
    node->symbol = parse_symbol(c, token->value.string);
    if (members && parse_skip(c, OP_DOT)) {
      node->kind = NODE_MEMBER;
      node->constant = parse_expect_name(c)->value;
      (void)parse_symbol(c, node->constant.string);
    }
  }
  parse_leave(c);
  return node;
}

static node_t *parse_target(compiler_t *c, const char *end, bool members) {
  node_list_t list = {0};
  node_t *node = parse_node(c, NODE_TARGETS);
  bool several = false;
  for (;;) {
    token_type_t type = (token_type_t)parse_token(c)->type;
    if (list.first != NULL && (type == OP_RPAREN || type == TOKEN_BLOCK_END || type == OP_ASSIGN ||
                               (end != NULL && parse_is_name(parse_token(c), end))))
      break;
    parse_append(c, node, &list, parse_target_item(c, members));
    if (!parse_skip(c, OP_COMMA)) break;
    several = true;
  }
  if (!several) return list.first;
  node->a = list.first;
  return node;
}

/* What a body changes in the compiler, and what comes back behind it. */
typedef struct body_state {
  bool soft;
  uint32_t loops;
} body_state_t;

static body_state_t enter_body(compiler_t *c, bool function) {
  body_state_t saved = {c->soft, c->loops};
  c->soft = false;
  if (function) c->loops = 0;
  return saved;
}

static void leave_body(compiler_t *c, body_state_t saved) {
  c->soft = saved.soft;
  c->loops = saved.loops;
}

static node_t *parse_for(compiler_t *c) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  node_t *node = parse_node(c, NODE_FOR), *head = parse_node(c, NODE_HEAD), *test = NULL;
  c->for_depth++;
  node_t *target = parse_target(c, "in", false);
  if (!parse_skip_name(c, "in")) parse_unexpected(c, "`in`");
  node_t *iterable = parse_tuple(c, false, "recursive");
  body_state_t saved = enter_body(c, false);
  if (parse_skip_name(c, "if")) test = parse_expression(c, true);
  if (parse_is_name(parse_token(c), "recursive"))
    template_fail(c, parse_token(c)->line, "recursive loops are not supported");
  (void)parse_join(c, head, target, iterable, test);
  uint32_t reads = c->loop_reads;
  c->loops++;
  node_t *body = parse_statements(c, ends), *otherwise = NULL;
  c->loops--;
  node->uses_loop = c->loop_reads > reads;
  if (parse_skip_name(c, "else")) otherwise = parse_statements(c, last);
  c->at++; /* endfor */
  c->for_depth--;
  leave_body(c, saved);
  return parse_join(c, node, head, body, otherwise);
}

static node_t *parse_if(compiler_t *c) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                      NULL};
  bool soft = c->soft;
  node_t *first = NULL, *previous = NULL;
  uint32_t branches = 0;
  c->soft = true;
  for (;;) {
    node_t *node = parse_node(c, NODE_IF);
    node_t *test = parse_tuple(c, false, NULL), *body = parse_statements(c, ends);
    (void)parse_join(c, node, test, body, NULL);
    node->op = 1; /* elif chains are walked, not nested */
    if (previous != NULL) previous->c = node;
    if (first == NULL) first = node;
    if (node->height > first->height) first->height = node->height;
    previous = node;
    branches++;
    if (parse_skip_name(c, "elif")) continue;
    if (parse_skip_name(c, "else")) {
      node_t *otherwise = parse_statements(c, last);
      previous->op = 0;
      (void)parse_join(c, first, first->a, first->b, first->c);
      previous->c = otherwise;
      for (const node_t *n = otherwise; n != NULL; n = n->next)
        if (n->height + 1 > first->height) first->height = n->height + 1;
    } else {
      previous->op = 0;
    }
    break;
  }
  c->at++; /* endif */
  c->soft = soft;
  return first;
}

static node_t *parse_set(compiler_t *c) {
  static const char *const ends[] = {"endset", NULL};
  uint32_t line = parse_token(c)->line;
  node_t *target = parse_target(c, NULL, true);
  if (parse_skip(c, OP_ASSIGN)) {
    node_t *node = parse_node(c, NODE_SET);
    return parse_join(c, node, target, parse_tuple(c, true, NULL), NULL);
  }
  if (target->kind == NODE_TARGETS) template_fail(c, line, "a set block has one target");
  node_t *node = parse_node(c, NODE_SET_BLOCK), *filter = NULL;
  body_state_t saved = enter_body(c, false);
  if (parse_token(c)->type == OP_PIPE) filter = parse_filters(c, NULL, false);
  node_t *body = parse_statements(c, ends);
  c->at++;
  leave_body(c, saved);
  return parse_join(c, node, target, body, filter);
}

static node_t *parse_parameters(compiler_t *c, node_t *macro) {
  node_list_t list = {0};
  bool defaults = false;
  parse_expect(c, OP_LPAREN, "\"(\"");
  while (!parse_skip(c, OP_RPAREN)) {
    if (list.first != NULL) parse_expect(c, OP_COMMA, "a comma");
    const token_t *token = parse_expect_name(c);
    node_t *parameter = parse_node(c, NODE_PARAMETER);
    if (parse_is_name(token, "caller"))
      template_fail(c, token->line, "a parameter named `caller` is not supported");
    parameter->symbol = parse_symbol(c, token->value.string);
    for (const node_t *p = list.first; p != NULL; p = p->next)
      if (p->symbol == parameter->symbol)
        template_fail(c, token->line, "two parameters have one name");
    if (parse_skip(c, OP_ASSIGN)) {
      defaults = true;
      (void)parse_join(c, parameter, parse_expression(c, true), NULL, NULL);
    } else if (defaults) {
      template_fail(c, token->line, "a parameter without a default follows one with");
    }
    parse_append(c, macro, &list, parameter);
  }
  return list.first;
}

static node_t *parse_macro_body(compiler_t *c, node_t *macro, node_t *parameters,
                                const char *const *ends) {
  uint32_t seen = c->macro_seen;
  body_state_t saved = enter_body(c, true);
  c->macro_seen = 0;
  node_t *body = parse_statements(c, ends);
  c->at++;
  macro->op = (uint8_t)c->macro_seen;
  c->macro_seen |= seen;
  leave_body(c, saved);
  macro->a = parameters;
  node_t *list = parameters;
  (void)parse_join(c, macro, list, body, NULL);
  return macro;
}

static node_t *parse_macro(compiler_t *c) {
  static const char *const ends[] = {"endmacro", NULL};
  node_t *macro = parse_node(c, NODE_MACRO);
  macro->symbol = parse_symbol(c, parse_expect_name(c)->value.string);
  body_state_t saved = enter_body(c, true);
  node_t *parameters = parse_parameters(c, macro);
  leave_body(c, saved);
  return parse_macro_body(c, macro, parameters, ends);
}

static node_t *parse_call_block(compiler_t *c) {
  static const char *const ends[] = {"endcall", NULL};
  node_t *node = parse_node(c, NODE_CALL_BLOCK), *caller = parse_node(c, NODE_MACRO);
  node_t *parameters = NULL;
  caller->symbol = c->jinja->caller;
  if (parse_token(c)->type == OP_LPAREN) parameters = parse_parameters(c, caller);
  uint32_t line = parse_token(c)->line;
  node_t *call = parse_expression(c, true);
  if (call->kind != NODE_CALL) template_fail(c, line, "a call block needs a call");
  (void)parse_macro_body(c, caller, parameters, ends);
  return parse_join(c, node, call, caller, NULL);
}

static node_t *parse_filter_block(compiler_t *c) {
  static const char *const ends[] = {"endfilter", NULL};
  node_t *node = parse_node(c, NODE_FILTER_BLOCK);
  body_state_t saved = enter_body(c, false);
  node_t *filter = parse_filters(c, NULL, true), *body = parse_statements(c, ends);
  c->at++;
  leave_body(c, saved);
  return parse_join(c, node, filter, body, NULL);
}

static node_t *parse_with(compiler_t *c) {
  static const char *const ends[] = {"endwith", NULL};
  node_t *node = parse_node(c, NODE_WITH), *body;
  node_list_t list = {0};
  while (parse_token(c)->type != TOKEN_BLOCK_END) {
    if (list.first != NULL) parse_expect(c, OP_COMMA, "a comma");
    node_t *set = parse_node(c, NODE_SET), *target = parse_target(c, NULL, false);
    parse_expect(c, OP_ASSIGN, "\"=\"");
    parse_append(c, node, &list, parse_join(c, set, target, parse_expression(c, true), NULL));
  }
  body_state_t saved = enter_body(c, false);
  body = parse_statements(c, ends);
  c->at++;
  leave_body(c, saved);
  return parse_join(c, node, list.first, body, NULL);
}

static node_t *parse_generation(compiler_t *c) {
  static const char *const ends[] = {"endgeneration", NULL};
  node_t *node = parse_node(c, NODE_SCOPE);
  body_state_t saved = enter_body(c, true);
  node_t *body = parse_statements(c, ends);
  c->at++;
  leave_body(c, saved);
  return parse_join(c, node, body, NULL, NULL);
}

static node_t *parse_print(compiler_t *c) {
  node_t *first = NULL, *last = NULL;
  uint32_t count = 0;
  while (parse_token(c)->type != TOKEN_BLOCK_END) {
    if (count++ > 0) parse_expect(c, OP_COMMA, "a comma");
    node_t *node = parse_node(c, NODE_OUTPUT);
    (void)parse_join(c, node, parse_expression(c, true), NULL, NULL);
    if (first == NULL) first = node;
    if (last != NULL) last->next = node;
    last = node;
  }
  if (first == NULL) first = parse_node(c, NODE_DATA);
  if (first->kind == NODE_DATA) first->constant = value_string(template_string(c, "", 0));
  return first;
}

static node_t *parse_jump(compiler_t *c, node_kind_t kind, uint32_t line) {
  if (c->loops == 0) template_fail(c, line, "break or continue outside of a loop");
  return parse_node(c, kind);
}

static node_t *parse_statement(compiler_t *c) {
  static const char *const refused[] = {"include", "import",     "from", "extends",
                                        "block",   "autoescape", NULL};
  const token_t *token = parse_expect_name(c);
  char name[48];
  if (parse_is_name(token, "for")) return parse_for(c);
  if (parse_is_name(token, "if")) return parse_if(c);
  if (parse_is_name(token, "set")) return parse_set(c);
  if (parse_is_name(token, "macro")) return parse_macro(c);
  if (parse_is_name(token, "call")) return parse_call_block(c);
  if (parse_is_name(token, "filter")) return parse_filter_block(c);
  if (parse_is_name(token, "with")) return parse_with(c);
  if (parse_is_name(token, "generation")) return parse_generation(c);
  if (parse_is_name(token, "print")) return parse_print(c);
  if (parse_is_name(token, "break")) return parse_jump(c, NODE_BREAK, token->line);
  if (parse_is_name(token, "continue")) return parse_jump(c, NODE_CONTINUE, token->line);
  for (const char *const *r = refused; *r != NULL; r++)
    if (parse_is_name(token, *r))
      template_fail(c, token->line, "the tag `%s` is not supported", *r);
  error_quote(name, sizeof name, token->value.string->bytes, token->value.string->length);
  template_fail(c, token->line, "unknown tag `%s`", name);
}

static bool at_end(const compiler_t *c, const char *const *ends) {
  for (; ends != NULL && *ends != NULL; ends++)
    if (parse_is_name(parse_look(c), *ends)) return true;
  return false;
}

/* Statements up to a tag that is one of `ends`; that name is the token in hand afterwards. With
 * `ends` NULL: up to the end of the template. */
static node_t *parse_body(compiler_t *c, const char *const *ends) {
  node_t holder = {0};
  node_list_t list = {0};
  for (;;) {
    const token_t *token = parse_token(c);
    node_t *node;
    c->line = token->line;
    switch (token->type) {
    case TOKEN_DATA:
      node = parse_node(c, NODE_DATA);
      node->constant = token->value;
      c->at++;
      break;
    case TOKEN_VARIABLE_BEGIN:
      c->at++;
      node = parse_node(c, NODE_OUTPUT);
      (void)parse_join(c, node, parse_tuple(c, true, NULL), NULL, NULL);
      parse_expect(c, TOKEN_VARIABLE_END, "\"}}\"");
      break;
    case TOKEN_BLOCK_BEGIN:
      if (at_end(c, ends)) {
        c->at++;
        return list.first;
      }
      c->at++;
      node = parse_statement(c);
      parse_expect(c, TOKEN_BLOCK_END, "\"%}\"");
      break;
    default:
      if (ends != NULL) template_fail(c, token->line, "the template ends; `%s` is missing", *ends);
      return list.first;
    }
    parse_append(c, &holder, &list, node);
    while (list.last->next != NULL) list.last = list.last->next; /* print gives several */
  }
}

node_t *parse_statements(compiler_t *c, const char *const *ends) {
  if (ends != NULL) {
    (void)parse_skip(c, OP_COLON);
    parse_expect(c, TOKEN_BLOCK_END, "\"%}\"");
  }
  parse_enter(c);
  node_t *body = parse_body(c, ends);
  parse_leave(c);
  return body;
}
