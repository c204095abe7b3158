/* ast.h: the tree that a template becomes.
 *
 * Made by the compiling thread, constant afterwards.
 */
#ifndef INFERD_ENGINE_TEMPLATE_COMPILE_AST_H
#define INFERD_ENGINE_TEMPLATE_COMPILE_AST_H

#include "engine/base/arena.h"
#include "engine/template/template.h"
#include "engine/template/value.h"

/* A node uses a, b, c as its comment says; `next` chains the members of a list. */
typedef enum ast_node_kind {
  NODE_CONSTANT,     /* constant */
  NODE_NAME,         /* symbol */
  NODE_LIST,         /* a: items */
  NODE_TUPLE,        /* a: items */
  NODE_DICT,         /* a: key, value, key, value ... */
  NODE_BINARY,       /* op: token; a, b */
  NODE_AND,          /* a, b */
  NODE_OR,           /* a, b */
  NODE_NOT,          /* a */
  NODE_NEGATE,       /* a */
  NODE_POSITIVE,     /* a */
  NODE_COMPARE,      /* a: first; b: NODE_OPERAND list */
  NODE_OPERAND,      /* op: token or OP_IN, OP_NOT_IN; a */
  NODE_CONCAT,       /* a: items */
  NODE_CONDITION,    /* a if b else c (NULL) */
  NODE_ATTRIBUTE,    /* a.constant */
  NODE_ITEM,         /* a[b] */
  NODE_SLICE,        /* a:b:c, each may be NULL; only as b of NODE_ITEM */
  NODE_CALL,         /* a(b: arguments) */
  NODE_FILTER,       /* a|op(b: arguments); a NULL in filter blocks; constant: its name */
  NODE_TEST,         /* a is op(b: arguments); constant: its name */
  NODE_KEYWORD,      /* argument constant=a */
  NODE_SPREAD,       /* argument *a, or **a with op 2 */
  NODE_TARGET,       /* assignment: symbol */
  NODE_TARGETS,      /* a: targets to unpack into */
  NODE_MEMBER,       /* assignment: symbol.constant */
  NODE_DATA,         /* constant: text as it is */
  NODE_OUTPUT,       /* {{ a }} */
  NODE_IF,           /* if a: b else c */
  NODE_FOR,          /* symbol unused; a: NODE_HEAD; b: body; c: else */
  NODE_HEAD,         /* a: target; b: iterable; c: filter or NULL */
  NODE_SET,          /* a = b */
  NODE_SET_BLOCK,    /* a = body b, through filter c (NULL) */
  NODE_MACRO,        /* symbol(a: parameters): b; op: MACRO_ bits */
  NODE_PARAMETER,    /* symbol=a (NULL) */
  NODE_CALL_BLOCK,   /* a: call; b: NODE_MACRO, the caller */
  NODE_FILTER_BLOCK, /* a: filter; b: body */
  NODE_WITH,         /* a: NODE_SET list; b: body */
  NODE_SCOPE,        /* a: body with a scope of its own (generation) */
  NODE_BREAK,
  NODE_CONTINUE
} ast_node_kind_t;

enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

typedef struct ast_node {
  uint8_t kind; /* ast_node_kind_t */
  uint8_t op;
  bool uses_loop; /* NODE_FOR: the body reads `loop` */
  uint32_t line;
  uint32_t symbol;
  uint32_t height; /* of the tree below */
  struct ast_node *next, *a, *b, *c;
  value_t constant;
} ast_node_t;

typedef enum token_type {
  TOKEN_END,
  TOKEN_DATA,
  TOKEN_VARIABLE_BEGIN,
  TOKEN_VARIABLE_END,
  TOKEN_BLOCK_BEGIN,
  TOKEN_BLOCK_END,
  TOKEN_NAME,
  TOKEN_STRING,
  TOKEN_NUMBER,
  /* operators */
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_DIV,
  OP_FLOOR,
  OP_MOD,
  OP_POW,
  OP_TILDE,
  OP_EQ,
  OP_NE,
  OP_LT,
  OP_LE,
  OP_GT,
  OP_GE,
  OP_ASSIGN,
  OP_DOT,
  OP_COMMA,
  OP_COLON,
  OP_SEMICOLON,
  OP_PIPE,
  OP_LPAREN,
  OP_RPAREN,
  OP_LBRACKET,
  OP_RBRACKET,
  OP_LBRACE,
  OP_RBRACE,
  OP_IN, /* never lexed: made by the parser */
  OP_NOT_IN
} token_type_t;

struct jinja {
  arena_t arena;
  const char *name;
  const str_t **symbols;
  uint32_t num_symbols, symbols_capacity;
  uint32_t caller, varargs, kwargs, loop; /* symbols */
  ast_node_t *body;
  const char *source; /* newlines are \n only */
  size_t source_length;
};

#endif
