/* compile_template.c: template source -> a compiled template, and questions about it.
 *
 * The compiling thread. The tree, its constants and the names live in the template's slab and never
 * change afterwards.
 */
#include "engine/base/utf8.h"
#include "engine/template/compile/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_BYTES_MAX = 256 << 20, NODE_HEIGHT_MAX = 400 };

void template_fail(compiler_t *c, uint32_t line, const char *format, ...) {
  char reason[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  error_set(c->error, ERR_MODEL_MALFORMED, "chat_template", "%s, line %u: %s", c->jinja->name, line,
            reason);
  longjmp(c->escape, ERR_MODEL_MALFORMED);
}

void *template_take(compiler_t *c, size_t size) {
  void *piece = slab_take(&c->jinja->slab, size, true);
  if (piece != NULL) return piece;
  error_set(c->error, ERR_NO_MEMORY, "chat_template", "%s: not enough memory to compile it",
            c->jinja->name);
  longjmp(c->escape, ERR_NO_MEMORY);
}

str_t *template_string(compiler_t *c, const char *bytes, size_t length) {
  char *copy = template_take(c, length + 1);
  memcpy(copy, bytes, length);
  str_t *s = template_take(c, sizeof *s);
  *s = (str_t){.bytes = copy, .length = (uint32_t)length, .num_chars = STR_UNCOUNTED};
  return s;
}

/* ---- what both halves of the parser use ---- */

node_t *parse_node(compiler_t *c, node_kind_t kind) {
  uint32_t line = parse_token(c)->line;
  if (++c->num_nodes > TEMPLATE_NODES_MAX)
    template_fail(c, line, "the template has more than %d nodes", TEMPLATE_NODES_MAX);
  node_t *node = template_take(c, sizeof *node);
  node->kind = (uint8_t)kind;
  node->line = line;
  return node;
}

static void grow(compiler_t *c, node_t *parent, const node_t *child) {
  if (child->height + 1 > parent->height) parent->height = child->height + 1;
  if (parent->height > NODE_HEIGHT_MAX)
    template_fail(c, child->line, "the template is nested deeper than %d", NODE_HEIGHT_MAX);
}

node_t *parse_join(compiler_t *c, node_t *node, node_t *first, node_t *second, node_t *third) {
  node_t *children[] = {first, second, third};
  for (int i = 0; i < 3; i++)
    for (const node_t *child = children[i]; child != NULL; child = child->next)
      grow(c, node, child);
  node->a = first;
  node->b = second;
  node->c = third;
  return node;
}

void parse_append(compiler_t *c, node_t *parent, node_list_t *list, node_t *node) {
  grow(c, parent, node);
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

bool parse_skip(compiler_t *c, token_type_t type) {
  if (parse_token(c)->type != type) return false;
  c->at++;
  return true;
}

bool parse_skip_name(compiler_t *c, const char *name) {
  if (!parse_is_name(parse_token(c), name)) return false;
  c->at++;
  return true;
}

void parse_unexpected(compiler_t *c, const char *wanted) {
  char shown[48] = "";
  const token_t *token = parse_token(c);
  if (token->type == TOKEN_NAME)
    error_quote(shown, sizeof shown, token->value.string->bytes, token->value.string->length);
  if (shown[0] != '\0') template_fail(c, token->line, "%s was expected, not `%s`", wanted, shown);
  template_fail(c, token->line, "%s was expected", wanted);
}

void parse_expect(compiler_t *c, token_type_t type, const char *what) {
  if (!parse_skip(c, type)) parse_unexpected(c, what);
}

const token_t *parse_expect_name(compiler_t *c) {
  const token_t *token = parse_token(c);
  if (token->type != TOKEN_NAME) parse_unexpected(c, "a name");
  c->at++;
  return token;
}

uint32_t parse_symbol(compiler_t *c, const str_t *name) {
  jinja_t *j = c->jinja;
  for (uint32_t i = 0; i < j->num_symbols; i++)
    if (str_equal(j->symbols[i], name)) return i;
  if (j->num_symbols == 4096) template_fail(c, parse_token(c)->line, "too many different names");
  if (j->num_symbols == j->symbols_capacity) {
    uint32_t capacity = j->symbols_capacity == 0 ? 64 : 2 * j->symbols_capacity;
    const str_t **symbols = template_take(c, capacity * sizeof *symbols);
    if (j->num_symbols > 0) memcpy(symbols, j->symbols, j->num_symbols * sizeof *symbols);
    j->symbols = symbols;
    j->symbols_capacity = capacity;
  }
  j->symbols[j->num_symbols] = name;
  return j->num_symbols++;
}

void parse_enter(compiler_t *c) {
  if (++c->depth > TEMPLATE_PARSE_DEPTH_MAX)
    template_fail(c, parse_token(c)->line, "the template is nested too deep");
}

node_t *parse_tuple(compiler_t *c, bool with_condition, const char *end) {
  node_list_t list = {0};
  bool several = false;
  node_t *tuple = parse_node(c, NODE_TUPLE);
  for (;;) {
    token_type_t type = (token_type_t)parse_token(c)->type;
    if (list.first != NULL &&
        (type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END || type == OP_RPAREN ||
         (end != NULL && parse_is_name(parse_token(c), end))))
      break;
    parse_append(c, tuple, &list, parse_expression(c, with_condition));
    if (!parse_skip(c, OP_COMMA)) break;
    several = true;
  }
  if (!several) return list.first;
  tuple->a = list.first;
  return tuple;
}

/* ---- compiling ---- */

/* \r\n and \r become \n; one newline at the end is dropped. */
static void normalize(compiler_t *c, const char *source, size_t length) {
  char *out = template_take(c, length + 1);
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
  c->source = out;
  c->length = n;
  c->jinja->source = out;
  c->jinja->source_length = n;
}

static void compile(compiler_t *c, const char *source, size_t length) {
  for (size_t at = 0; at < length;) {
    int span = utf8_span(source + at, length - at);
    if (span < 0) template_fail(c, 1, "invalid UTF-8 at byte %zu", at);
    at += (size_t)span;
  }
  jinja_t *j = c->jinja;
  normalize(c, source, length);
  lex(c);
  j->caller = parse_symbol(c, template_string(c, "caller", 6));
  j->varargs = parse_symbol(c, template_string(c, "varargs", 7));
  j->kwargs = parse_symbol(c, template_string(c, "kwargs", 6));
  j->loop = parse_symbol(c, template_string(c, "loop", 4));
  j->body = parse_statements(c, NULL);
}

int jinja_compile(const char *name, const char *source, size_t length, jinja_t **out,
                  error_t *error) {
  *out = NULL;
  if (length > TEMPLATE_SOURCE_BYTES_MAX)
    return error_set(error, ERR_MODEL_MALFORMED, "chat_template",
                     "%s: %zu bytes, a template has at most %d", name, length,
                     TEMPLATE_SOURCE_BYTES_MAX);
  jinja_t *jinja = calloc(1, sizeof *jinja);
  if (jinja == NULL)
    return error_set(error, ERR_NO_MEMORY, "chat_template", "%s: not enough memory", name);
  jinja->slab.limit = COMPILE_BYTES_MAX;
  jinja->name = name;
  compiler_t c = {.jinja = jinja, .error = error};
  int code = setjmp(c.escape);
  if (code == 0) {
    jinja->name = template_string(&c, name, strlen(name))->bytes;
    compile(&c, source, length);
    *out = jinja;
    return 0;
  }
  jinja_free(jinja);
  return code;
}

void jinja_free(jinja_t *jinja) {
  if (jinja == NULL) return;
  slab_free(&jinja->slab);
  free(jinja);
}

/* ---- questions ---- */

static bool word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
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

typedef struct question {
  const jinja_t *jinja;
  const char *name;
  uint8_t *set_from; /* by symbol: was set from x.name somewhere */
  bool looking_for_sets, found;
} question_t;

static bool names(const question_t *q, const node_t *node) {
  if (node == NULL) return false;
  switch (node->kind) {
  case NODE_NAME: return q->set_from[node->symbol];
  case NODE_ATTRIBUTE: return str_is(node->constant.string, q->name);
  case NODE_ITEM:
    if (node->b != NULL && node->b->kind == NODE_CONSTANT)
      return node->b->constant.type == VALUE_STRING && str_is(node->b->constant.string, q->name);
    return node->b != NULL && node->b->kind == NODE_SLICE && names(q, node->a);
  case NODE_FILTER: return names(q, node->a);
  case NODE_CONDITION: return names(q, node->b) || names(q, node->c);
  case NODE_OR:
  case NODE_AND: return names(q, node->a) || names(q, node->b);
  default: return false;
  }
}

static void ask(question_t *q, const node_t *list) {
  for (const node_t *node = list; node != NULL; node = node->next) {
    if (node->kind == NODE_SET && q->looking_for_sets && node->a->kind == NODE_TARGET &&
        names(q, node->b))
      q->set_from[node->a->symbol] = 1;
    if (node->kind == NODE_HEAD && !q->looking_for_sets && names(q, node->b)) q->found = true;
    ask(q, node->a);
    ask(q, node->b);
    ask(q, node->c);
  }
}

bool jinja_iterates(const jinja_t *jinja, const char *name) {
  question_t q = {.jinja = jinja, .name = name, .looking_for_sets = true};
  q.set_from = calloc((size_t)jinja->num_symbols + 1, 1);
  if (q.set_from == NULL) return false;
  for (uint32_t i = 0; i < jinja->num_symbols; i++) /* a macro's parameter of that name */
    q.set_from[i] = str_is(jinja->symbols[i], name);
  ask(&q, jinja->body);
  q.looking_for_sets = false;
  ask(&q, jinja->body);
  free(q.set_from);
  return q.found;
}
