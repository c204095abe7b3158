/* parser.h: what the two halves of the parser share.
 *
 * The compiling thread.
 */
#ifndef INFERD_ENGINE_TEMPLATE_COMPILE_PARSER_H
#define INFERD_ENGINE_TEMPLATE_COMPILE_PARSER_H

#include "engine/template/compile/compiler.h"

typedef struct node_list {
  ast_node_t *first, *last;
  uint32_t count;
} node_list_t;

ast_node_t *parse_node(compiler_t *compiler, ast_node_kind_t kind);
/* Records children, so that the height of the tree stays bounded. NULL children are fine. */
ast_node_t *parse_join(compiler_t *compiler, ast_node_t *node, ast_node_t *first,
                       ast_node_t *second, ast_node_t *third);
void parse_append(compiler_t *compiler, ast_node_t *parent, node_list_t *list, ast_node_t *node);

static inline const token_t *parse_token(const compiler_t *compiler) {
  return &compiler->tokens[compiler->at];
}
static inline const token_t *parse_look(const compiler_t *compiler) {
  return &compiler->tokens[compiler->at + (compiler->at + 1 < compiler->num_tokens)];
}
bool parse_is_name(const token_t *token, const char *name);
bool parse_skip(compiler_t *compiler, token_type_t type);
bool parse_skip_name(compiler_t *compiler, const char *name);
void parse_expect(compiler_t *compiler, token_type_t type, const char *what);
const token_t *parse_expect_name(compiler_t *compiler);
_Noreturn void parse_unexpected(compiler_t *compiler, const char *wanted);
uint32_t parse_symbol(compiler_t *compiler, const str_t *name);
void parse_enter(compiler_t *compiler);
static inline void parse_leave(compiler_t *compiler) {
  compiler->depth--;
}

ast_node_t *parse_expression(compiler_t *compiler, bool with_condition);
/* An expression, or several with commas: a tuple. `end` is a name that also ends it, or NULL. */
ast_node_t *parse_tuple(compiler_t *compiler, bool with_condition, const char *end);
/* Filters after `node` (NULL in blocks); with `inline_start` the first has no bar before it. */
ast_node_t *parse_filters(compiler_t *compiler, ast_node_t *node, bool inline_start);
ast_node_t *parse_statements(compiler_t *compiler, const char *const *ends); /* NULL-terminated */

#endif
