/* compile_template.c: template source -> a compiled template, and what can be told from its tree.
 *
 * The compiling thread. The tree, its constants and the names live in the template's arena and
 * never change afterwards.
 */
#include "engine/base/utf8.h"
#include "engine/template/compile/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_BYTES_MAX = 256 << 20, NODE_HEIGHT_MAX = 400 };

void template_fail(compiler_t *compiler, uint32_t line, const char *format, ...) {
  char reason[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  error_set(compiler->error, ERR_MODEL_MALFORMED, "chat_template", "%s, line %u: %s",
            compiler->jinja->name, line, reason);
  longjmp(compiler->escape, ERR_MODEL_MALFORMED);
}

void *template_take(compiler_t *compiler, size_t size) {
  void *piece = arena_calloc(&compiler->jinja->arena, size, 1);
  if (piece != NULL) return piece;
  error_set(compiler->error, ERR_NO_MEMORY, "chat_template", "%s: not enough memory to compile it",
            compiler->jinja->name);
  longjmp(compiler->escape, ERR_NO_MEMORY);
}

str_t *template_string(compiler_t *compiler, const char *bytes, size_t length) {
  char *copy = template_take(compiler, length + 1);
  memcpy(copy, bytes, length);
  str_t *str = template_take(compiler, sizeof *str);
  *str = (str_t){.bytes = copy, .length = (uint32_t)length, .num_chars = STR_UNCOUNTED};
  return str;
}

/* ---- what both halves of the parser use ---- */

ast_node_t *parse_node(compiler_t *compiler, ast_node_kind_t kind) {
  uint32_t line = parse_token(compiler)->line;
  if (++compiler->num_nodes > TEMPLATE_NODES_MAX)
    template_fail(compiler, line, "the template has more than %d nodes", TEMPLATE_NODES_MAX);
  ast_node_t *node = template_take(compiler, sizeof *node);
  node->kind = (uint8_t)kind;
  node->line = line;
  return node;
}

static void grow(compiler_t *compiler, ast_node_t *parent, const ast_node_t *child) {
  if (child->height + 1 > parent->height) parent->height = child->height + 1;
  if (parent->height > NODE_HEIGHT_MAX)
    template_fail(compiler, child->line, "the template is nested deeper than %d", NODE_HEIGHT_MAX);
}

ast_node_t *parse_join(compiler_t *compiler, ast_node_t *node, ast_node_t *first,
                       ast_node_t *second, ast_node_t *third) {
  ast_node_t *children[] = {first, second, third};
  for (int i = 0; i < 3; i++)
    for (const ast_node_t *child = children[i]; child != NULL; child = child->next)
      grow(compiler, node, child);
  node->a = first;
  node->b = second;
  node->c = third;
  return node;
}

void parse_append(compiler_t *compiler, ast_node_t *parent, node_list_t *list, ast_node_t *node) {
  grow(compiler, parent, node);
  if (list->last == NULL)
    list->first = node;
  else
    list->last->next = node;
  list->last = node;
  list->count++;
}

bool parse_is_name(const token_t *token, const char *name) {
  return token->type == TOKEN_NAME && str_is(token->value.string, name);
}

bool parse_skip(compiler_t *compiler, token_type_t type) {
  if (parse_token(compiler)->type != type) return false;
  compiler->at++;
  return true;
}

bool parse_skip_name(compiler_t *compiler, const char *name) {
  if (!parse_is_name(parse_token(compiler), name)) return false;
  compiler->at++;
  return true;
}

void parse_unexpected(compiler_t *compiler, const char *wanted) {
  char shown[48] = "";
  const token_t *token = parse_token(compiler);
  if (token->type == TOKEN_NAME)
    error_quote(shown, sizeof shown, token->value.string->bytes, token->value.string->length);
  if (shown[0] != '\0')
    template_fail(compiler, token->line, "%s was expected, not `%s`", wanted, shown);
  template_fail(compiler, token->line, "%s was expected", wanted);
}

void parse_expect(compiler_t *compiler, token_type_t type, const char *what) {
  if (!parse_skip(compiler, type)) parse_unexpected(compiler, what);
}

const token_t *parse_expect_name(compiler_t *compiler) {
  const token_t *token = parse_token(compiler);
  if (token->type != TOKEN_NAME) parse_unexpected(compiler, "a name");
  compiler->at++;
  return token;
}

uint32_t parse_symbol(compiler_t *compiler, const str_t *name) {
  jinja_t *jinja = compiler->jinja;
  for (uint32_t i = 0; i < jinja->num_symbols; i++)
    if (str_equal(jinja->symbols[i], name)) return i;
  if (jinja->num_symbols == 4096)
    template_fail(compiler, parse_token(compiler)->line, "too many different names");
  if (jinja->num_symbols == jinja->symbols_capacity) {
    uint32_t capacity = jinja->symbols_capacity == 0 ? 64 : 2 * jinja->symbols_capacity;
    const str_t **symbols = template_take(compiler, capacity * sizeof *symbols);
    if (jinja->num_symbols > 0)
      memcpy(symbols, jinja->symbols, jinja->num_symbols * sizeof *symbols);
    jinja->symbols = symbols;
    jinja->symbols_capacity = capacity;
  }
  jinja->symbols[jinja->num_symbols] = name;
  return jinja->num_symbols++;
}

void parse_enter(compiler_t *compiler) {
  if (++compiler->depth > TEMPLATE_PARSE_DEPTH_MAX)
    template_fail(compiler, parse_token(compiler)->line, "the template is nested too deep");
}

ast_node_t *parse_tuple(compiler_t *compiler, bool with_condition, const char *end) {
  node_list_t list = {0};
  bool several = false;
  ast_node_t *tuple = parse_node(compiler, NODE_TUPLE);
  for (;;) {
    token_type_t type = (token_type_t)parse_token(compiler)->type;
    if (list.first != NULL &&
        (type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END || type == OP_RPAREN ||
         (end != NULL && parse_is_name(parse_token(compiler), end))))
      break;
    parse_append(compiler, tuple, &list, parse_expression(compiler, with_condition));
    if (!parse_skip(compiler, OP_COMMA)) break;
    several = true;
  }
  if (!several) return list.first;
  tuple->a = list.first;
  return tuple;
}

/* ---- compiling ---- */

/* \r\n and \r become \n; one newline at the end is dropped. */
static void normalize(compiler_t *compiler, const char *source, size_t length) {
  char *out = template_take(compiler, length + 1);
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    char byte = source[i];
    if (byte == '\r') {
      if (i + 1 < length && source[i + 1] == '\n') i++;
      byte = '\n';
    }
    out[n++] = byte;
  }
  if (n > 0 && out[n - 1] == '\n') n--;
  compiler->source = out;
  compiler->length = n;
  compiler->jinja->source = out;
  compiler->jinja->source_length = n;
}

static void compile(compiler_t *compiler, const char *source, size_t length) {
  for (size_t at = 0; at < length;) {
    int span = utf8_span(source + at, length - at);
    if (span < 0) template_fail(compiler, 1, "invalid UTF-8 at byte %zu", at);
    at += (size_t)span;
  }
  jinja_t *jinja = compiler->jinja;
  normalize(compiler, source, length);
  lex(compiler);
  jinja->caller = parse_symbol(compiler, template_string(compiler, "caller", 6));
  jinja->varargs = parse_symbol(compiler, template_string(compiler, "varargs", 7));
  jinja->kwargs = parse_symbol(compiler, template_string(compiler, "kwargs", 6));
  jinja->loop = parse_symbol(compiler, template_string(compiler, "loop", 4));
  jinja->body = parse_statements(compiler, NULL);
}

int jinja_compile(const char *name, const char *source, size_t length, jinja_t **out,
                  inferd_error_t *error) {
  *out = NULL;
  if (length > TEMPLATE_SOURCE_BYTES_MAX)
    return error_set(error, ERR_MODEL_MALFORMED, "chat_template",
                     "%s: %zu bytes, a template has at most %d", name, length,
                     TEMPLATE_SOURCE_BYTES_MAX);
  jinja_t *jinja = calloc(1, sizeof *jinja);
  if (jinja == NULL)
    return error_set(error, ERR_NO_MEMORY, "chat_template", "%s: not enough memory", name);
  jinja->arena.limit = COMPILE_BYTES_MAX;
  jinja->name = name;
  compiler_t compiler = {.jinja = jinja, .error = error};
  int code = setjmp(compiler.escape);
  if (code == 0) {
    jinja->name = template_string(&compiler, name, strlen(name))->bytes;
    compile(&compiler, source, length);
    *out = jinja;
    return 0;
  }
  jinja_free(jinja);
  return code;
}

void jinja_free(jinja_t *jinja) {
  if (jinja == NULL) return;
  arena_free(&jinja->arena);
  free(jinja);
}

/* ---- what a template uses: jinja_mentions and jinja_iterates ---- */

static bool word_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

bool jinja_mentions(const jinja_t *jinja, const char *name) {
  size_t length = strlen(name);
  const char *at = jinja->source, *end = at + jinja->source_length;
  while ((at = memmem(at, (size_t)(end - at), name, length)) != NULL) {
    bool begins = at == jinja->source || !word_byte(at[-1]);
    bool ends = at + length == end || !word_byte(at[length]);
    if (begins && ends) return true;
    at++;
  }
  return false;
}

/* The search of jinja_iterates: does a loop run over `x.name`, `x["name"]` or a variable that was
 * set from one of them? A first walk over the tree finds those variables, a second one the loops.
 */
typedef struct loop_search {
  const jinja_t *jinja;
  const char *name;
  uint8_t *set_from;    /* [num_symbols] 1 = the variable was set from x.name somewhere */
  bool finds_variables; /* the first walk */
  bool found;
} loop_search_t;

/* Returns true if the value of an expression is, or may be, the attribute `name` of something. */
static bool is_attribute(const loop_search_t *search, const ast_node_t *node) {
  if (node == NULL) return false;
  switch (node->kind) {
  case NODE_NAME: return search->set_from[node->symbol];
  case NODE_ATTRIBUTE: return str_is(node->constant.string, search->name);
  case NODE_ITEM:
    if (node->b != NULL && node->b->kind == NODE_CONSTANT)
      return node->b->constant.type == VALUE_STRING &&
             str_is(node->b->constant.string, search->name);
    return node->b != NULL && node->b->kind == NODE_SLICE && is_attribute(search, node->a);
  case NODE_FILTER: return is_attribute(search, node->a);
  case NODE_CONDITION: return is_attribute(search, node->b) || is_attribute(search, node->c);
  case NODE_OR:
  case NODE_AND: return is_attribute(search, node->a) || is_attribute(search, node->b);
  default: return false;
  }
}

/* One walk over a list of nodes and all below them. */
static void walk(loop_search_t *search, const ast_node_t *list) {
  for (const ast_node_t *node = list; node != NULL; node = node->next) {
    if (node->kind == NODE_SET && search->finds_variables && node->a->kind == NODE_TARGET &&
        is_attribute(search, node->b))
      search->set_from[node->a->symbol] = 1;
    if (node->kind == NODE_HEAD && !search->finds_variables && is_attribute(search, node->b))
      search->found = true;
    walk(search, node->a);
    walk(search, node->b);
    walk(search, node->c);
  }
}

bool jinja_iterates(const jinja_t *jinja, const char *name) {
  loop_search_t search = {.jinja = jinja, .name = name, .finds_variables = true};
  search.set_from = calloc((size_t)jinja->num_symbols + 1, 1);
  if (search.set_from == NULL) return false;
  for (uint32_t i = 0; i < jinja->num_symbols; i++) /* a macro's parameter of that name */
    search.set_from[i] = str_is(jinja->symbols[i], name);
  walk(&search, jinja->body);
  search.finds_variables = false;
  walk(&search, jinja->body);
  free(search.set_from);
  return search.found;
}
