/* parser_statement.c: tokens -> statements.
 *
 * The compiling thread. Tags that Jinja knows and this interpreter does not are refused by name.
 */
#include "engine/base/util.h"
#include "engine/template/compile/parser.h"

#include <string.h>

static ast_node_t *parse_target(compiler_t *compiler, const char *end, bool members);

/* One name, member or parenthesised list on the left of an assignment. */
static ast_node_t *parse_target_item(compiler_t *compiler, bool members) {
  ast_node_t *node;
  parse_enter(compiler);
  if (parse_skip(compiler, OP_LPAREN)) {
    node = parse_target(compiler, NULL, members);
    parse_expect(compiler, OP_RPAREN, "\")\"");
  } else if (parse_token(compiler)->type == OP_LBRACKET) {
    template_fail(compiler, parse_token(compiler)->line,
                  "targets in square brackets are not supported");
  } else {
    const token_t *token = parse_expect_name(compiler);
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
      if (parse_is_name(token, constants[i]))
        template_fail(compiler, token->line, "cannot assign to `%s`", constants[i]);
    if (compiler->for_depth > 0 && parse_is_name(token, "loop"))
      template_fail(compiler, token->line, "cannot assign to `loop` inside a loop");
    node = parse_node(compiler, NODE_TARGET);
    node->symbol = parse_symbol(compiler, token->value.string);
    if (members && parse_skip(compiler, OP_DOT)) {
      node->kind = NODE_MEMBER;
      node->constant = parse_expect_name(compiler)->value;
      (void)parse_symbol(compiler, node->constant.string);
    }
  }
  parse_leave(compiler);
  return node;
}

static ast_node_t *parse_target(compiler_t *compiler, const char *end, bool members) {
  node_list_t list = {0};
  ast_node_t *node = parse_node(compiler, NODE_TARGETS);
  bool several = false;
  for (;;) {
    token_type_t type = (token_type_t)parse_token(compiler)->type;
    if (list.first != NULL && (type == OP_RPAREN || type == TOKEN_BLOCK_END || type == OP_ASSIGN ||
                               (end != NULL && parse_is_name(parse_token(compiler), end))))
      break;
    parse_append(compiler, node, &list, parse_target_item(compiler, members));
    if (!parse_skip(compiler, OP_COMMA)) break;
    several = true;
  }
  if (!several) return list.first;
  node->a = list.first;
  return node;
}

/* The state of the compiler that a body changes; it is restored after the body. */
typedef struct body_state {
  bool soft;
  uint32_t loops;
} body_state_t;

static body_state_t enter_body(compiler_t *compiler, bool function) {
  body_state_t saved = {compiler->soft, compiler->loops};
  compiler->soft = false;
  if (function) compiler->loops = 0;
  return saved;
}

static void leave_body(compiler_t *compiler, body_state_t saved) {
  compiler->soft = saved.soft;
  compiler->loops = saved.loops;
}

static ast_node_t *parse_for(compiler_t *compiler) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  ast_node_t *node = parse_node(compiler, NODE_FOR), *head = parse_node(compiler, NODE_HEAD),
             *test = NULL;
  compiler->for_depth++;
  ast_node_t *target = parse_target(compiler, "in", false);
  if (!parse_skip_name(compiler, "in")) parse_unexpected(compiler, "`in`");
  ast_node_t *iterable = parse_tuple(compiler, false, "recursive");
  body_state_t saved = enter_body(compiler, false);
  if (parse_skip_name(compiler, "if")) test = parse_expression(compiler, true);
  if (parse_is_name(parse_token(compiler), "recursive"))
    template_fail(compiler, parse_token(compiler)->line, "recursive loops are not supported");
  (void)parse_join(compiler, head, target, iterable, test);
  uint32_t reads = compiler->loop_reads;
  compiler->loops++;
  ast_node_t *body = parse_statements(compiler, ends), *otherwise = NULL;
  compiler->loops--;
  node->uses_loop = compiler->loop_reads > reads;
  if (parse_skip_name(compiler, "else")) otherwise = parse_statements(compiler, last);
  compiler->at++; /* endfor */
  compiler->for_depth--;
  leave_body(compiler, saved);
  return parse_join(compiler, node, head, body, otherwise);
}

static ast_node_t *parse_if(compiler_t *compiler) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif",
                                                                                      NULL};
  bool soft = compiler->soft;
  ast_node_t *first = NULL, *previous = NULL;
  uint32_t branches = 0;
  compiler->soft = true;
  for (;;) {
    ast_node_t *node = parse_node(compiler, NODE_IF);
    ast_node_t *test = parse_tuple(compiler, false, NULL), *body = parse_statements(compiler, ends);
    (void)parse_join(compiler, node, test, body, NULL);
    node->op = 1; /* elif chains are walked, not nested */
    if (previous != NULL) previous->c = node;
    if (first == NULL) first = node;
    if (node->height > first->height) first->height = node->height;
    previous = node;
    branches++;
    if (parse_skip_name(compiler, "elif")) continue;
    if (parse_skip_name(compiler, "else")) {
      ast_node_t *otherwise = parse_statements(compiler, last);
      previous->op = 0;
      (void)parse_join(compiler, first, first->a, first->b, first->c);
      previous->c = otherwise;
      for (const ast_node_t *branch = otherwise; branch != NULL; branch = branch->next)
        if (branch->height + 1 > first->height) first->height = branch->height + 1;
    } else {
      previous->op = 0;
    }
    break;
  }
  compiler->at++; /* endif */
  compiler->soft = soft;
  return first;
}

static ast_node_t *parse_set(compiler_t *compiler) {
  static const char *const ends[] = {"endset", NULL};
  uint32_t line = parse_token(compiler)->line;
  ast_node_t *target = parse_target(compiler, NULL, true);
  if (parse_skip(compiler, OP_ASSIGN)) {
    ast_node_t *node = parse_node(compiler, NODE_SET);
    return parse_join(compiler, node, target, parse_tuple(compiler, true, NULL), NULL);
  }
  if (target->kind == NODE_TARGETS) template_fail(compiler, line, "a set block has one target");
  ast_node_t *node = parse_node(compiler, NODE_SET_BLOCK), *filter = NULL;
  body_state_t saved = enter_body(compiler, false);
  if (parse_token(compiler)->type == OP_PIPE) filter = parse_filters(compiler, NULL, false);
  ast_node_t *body = parse_statements(compiler, ends);
  compiler->at++;
  leave_body(compiler, saved);
  return parse_join(compiler, node, target, body, filter);
}

static ast_node_t *parse_parameters(compiler_t *compiler, ast_node_t *macro) {
  node_list_t list = {0};
  bool defaults = false;
  parse_expect(compiler, OP_LPAREN, "\"(\"");
  while (!parse_skip(compiler, OP_RPAREN)) {
    if (list.first != NULL) parse_expect(compiler, OP_COMMA, "a comma");
    const token_t *token = parse_expect_name(compiler);
    ast_node_t *parameter = parse_node(compiler, NODE_PARAMETER);
    if (parse_is_name(token, "caller"))
      template_fail(compiler, token->line, "a parameter named `caller` is not supported");
    parameter->symbol = parse_symbol(compiler, token->value.string);
    for (const ast_node_t *node = list.first; node != NULL; node = node->next)
      if (node->symbol == parameter->symbol)
        template_fail(compiler, token->line, "two parameters have one name");
    if (parse_skip(compiler, OP_ASSIGN)) {
      defaults = true;
      (void)parse_join(compiler, parameter, parse_expression(compiler, true), NULL, NULL);
    } else if (defaults) {
      template_fail(compiler, token->line, "a parameter without a default follows one with");
    }
    parse_append(compiler, macro, &list, parameter);
  }
  return list.first;
}

static ast_node_t *parse_macro_body(compiler_t *compiler, ast_node_t *macro, ast_node_t *parameters,
                                    const char *const *ends) {
  uint32_t seen = compiler->macro_seen;
  body_state_t saved = enter_body(compiler, true);
  compiler->macro_seen = 0;
  ast_node_t *body = parse_statements(compiler, ends);
  compiler->at++;
  macro->op = (uint8_t)compiler->macro_seen;
  compiler->macro_seen |= seen;
  leave_body(compiler, saved);
  macro->a = parameters;
  ast_node_t *list = parameters;
  (void)parse_join(compiler, macro, list, body, NULL);
  return macro;
}

static ast_node_t *parse_macro(compiler_t *compiler) {
  static const char *const ends[] = {"endmacro", NULL};
  ast_node_t *macro = parse_node(compiler, NODE_MACRO);
  macro->symbol = parse_symbol(compiler, parse_expect_name(compiler)->value.string);
  body_state_t saved = enter_body(compiler, true);
  ast_node_t *parameters = parse_parameters(compiler, macro);
  leave_body(compiler, saved);
  return parse_macro_body(compiler, macro, parameters, ends);
}

static ast_node_t *parse_call_block(compiler_t *compiler) {
  static const char *const ends[] = {"endcall", NULL};
  ast_node_t *node = parse_node(compiler, NODE_CALL_BLOCK),
             *caller = parse_node(compiler, NODE_MACRO);
  ast_node_t *parameters = NULL;
  caller->symbol = compiler->jinja->caller;
  if (parse_token(compiler)->type == OP_LPAREN) parameters = parse_parameters(compiler, caller);
  uint32_t line = parse_token(compiler)->line;
  ast_node_t *call = parse_expression(compiler, true);
  if (call->kind != NODE_CALL) template_fail(compiler, line, "a call block needs a call");
  (void)parse_macro_body(compiler, caller, parameters, ends);
  return parse_join(compiler, node, call, caller, NULL);
}

static ast_node_t *parse_filter_block(compiler_t *compiler) {
  static const char *const ends[] = {"endfilter", NULL};
  ast_node_t *node = parse_node(compiler, NODE_FILTER_BLOCK);
  body_state_t saved = enter_body(compiler, false);
  ast_node_t *filter = parse_filters(compiler, NULL, true),
             *body = parse_statements(compiler, ends);
  compiler->at++;
  leave_body(compiler, saved);
  return parse_join(compiler, node, filter, body, NULL);
}

static ast_node_t *parse_with(compiler_t *compiler) {
  static const char *const ends[] = {"endwith", NULL};
  ast_node_t *node = parse_node(compiler, NODE_WITH), *body;
  node_list_t list = {0};
  while (parse_token(compiler)->type != TOKEN_BLOCK_END) {
    if (list.first != NULL) parse_expect(compiler, OP_COMMA, "a comma");
    ast_node_t *set = parse_node(compiler, NODE_SET), *target = parse_target(compiler, NULL, false);
    parse_expect(compiler, OP_ASSIGN, "\"=\"");
    parse_append(compiler, node, &list,
                 parse_join(compiler, set, target, parse_expression(compiler, true), NULL));
  }
  body_state_t saved = enter_body(compiler, false);
  body = parse_statements(compiler, ends);
  compiler->at++;
  leave_body(compiler, saved);
  return parse_join(compiler, node, list.first, body, NULL);
}

static ast_node_t *parse_generation(compiler_t *compiler) {
  static const char *const ends[] = {"endgeneration", NULL};
  ast_node_t *node = parse_node(compiler, NODE_SCOPE);
  body_state_t saved = enter_body(compiler, true);
  ast_node_t *body = parse_statements(compiler, ends);
  compiler->at++;
  leave_body(compiler, saved);
  return parse_join(compiler, node, body, NULL, NULL);
}

static ast_node_t *parse_print(compiler_t *compiler) {
  ast_node_t *first = NULL, *last = NULL;
  uint32_t count = 0;
  while (parse_token(compiler)->type != TOKEN_BLOCK_END) {
    if (count++ > 0) parse_expect(compiler, OP_COMMA, "a comma");
    ast_node_t *node = parse_node(compiler, NODE_OUTPUT);
    (void)parse_join(compiler, node, parse_expression(compiler, true), NULL, NULL);
    if (first == NULL) first = node;
    if (last != NULL) last->next = node;
    last = node;
  }
  if (first == NULL) first = parse_node(compiler, NODE_DATA);
  if (first->kind == NODE_DATA) first->constant = value_string(template_string(compiler, "", 0));
  return first;
}

static ast_node_t *parse_jump(compiler_t *compiler, ast_node_kind_t kind, uint32_t line) {
  if (compiler->loops == 0) template_fail(compiler, line, "break or continue outside of a loop");
  return parse_node(compiler, kind);
}

static ast_node_t *parse_statement(compiler_t *compiler) {
  static const char *const refused[] = {"include", "import",     "from", "extends",
                                        "block",   "autoescape", NULL};
  const token_t *token = parse_expect_name(compiler);
  char name[48];
  if (parse_is_name(token, "for")) return parse_for(compiler);
  if (parse_is_name(token, "if")) return parse_if(compiler);
  if (parse_is_name(token, "set")) return parse_set(compiler);
  if (parse_is_name(token, "macro")) return parse_macro(compiler);
  if (parse_is_name(token, "call")) return parse_call_block(compiler);
  if (parse_is_name(token, "filter")) return parse_filter_block(compiler);
  if (parse_is_name(token, "with")) return parse_with(compiler);
  if (parse_is_name(token, "generation")) return parse_generation(compiler);
  if (parse_is_name(token, "print")) return parse_print(compiler);
  if (parse_is_name(token, "break")) return parse_jump(compiler, NODE_BREAK, token->line);
  if (parse_is_name(token, "continue")) return parse_jump(compiler, NODE_CONTINUE, token->line);
  for (const char *const *r = refused; *r != NULL; r++)
    if (parse_is_name(token, *r))
      template_fail(compiler, token->line, "the tag `%s` is not supported", *r);
  error_quote(name, sizeof name, token->value.string->bytes, token->value.string->length);
  template_fail(compiler, token->line, "unknown tag `%s`", name);
}

static bool at_end(const compiler_t *compiler, const char *const *ends) {
  for (; ends != NULL && *ends != NULL; ends++)
    if (parse_is_name(parse_look(compiler), *ends)) return true;
  return false;
}

/* Statements up to a tag that is one of `ends`; that name is the current token afterwards. With
 * `ends` NULL: up to the end of the template. */
static ast_node_t *parse_body(compiler_t *compiler, const char *const *ends) {
  ast_node_t holder = {0};
  node_list_t list = {0};
  for (;;) {
    const token_t *token = parse_token(compiler);
    ast_node_t *node;
    compiler->line = token->line;
    switch (token->type) {
    case TOKEN_DATA:
      node = parse_node(compiler, NODE_DATA);
      node->constant = token->value;
      compiler->at++;
      break;
    case TOKEN_VARIABLE_BEGIN:
      compiler->at++;
      node = parse_node(compiler, NODE_OUTPUT);
      (void)parse_join(compiler, node, parse_tuple(compiler, true, NULL), NULL, NULL);
      parse_expect(compiler, TOKEN_VARIABLE_END, "\"}}\"");
      break;
    case TOKEN_BLOCK_BEGIN:
      if (at_end(compiler, ends)) {
        compiler->at++;
        return list.first;
      }
      compiler->at++;
      node = parse_statement(compiler);
      parse_expect(compiler, TOKEN_BLOCK_END, "\"%}\"");
      break;
    default:
      if (ends != NULL)
        template_fail(compiler, token->line, "the template ends; `%s` is missing", *ends);
      return list.first;
    }
    parse_append(compiler, &holder, &list, node);
    while (list.last->next != NULL) list.last = list.last->next; /* print gives several */
  }
}

ast_node_t *parse_statements(compiler_t *compiler, const char *const *ends) {
  if (ends != NULL) {
    (void)parse_skip(compiler, OP_COLON);
    parse_expect(compiler, TOKEN_BLOCK_END, "\"%}\"");
  }
  parse_enter(compiler);
  ast_node_t *body = parse_body(compiler, ends);
  parse_leave(compiler);
  return body;
}
