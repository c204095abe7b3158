/* compiler.h: the state of a compilation, shared by lexer and parser.
 *
 * The compiling thread. An error jumps (longjmp) to jinja_compile. All memory is in the
 * arena of the template.
 */
#ifndef INFERD_ENGINE_TEMPLATE_COMPILE_COMPILER_H
#define INFERD_ENGINE_TEMPLATE_COMPILE_COMPILER_H

#include "engine/template/compile/ast.h"

#include <setjmp.h>

typedef struct token {
  uint8_t type; /* token_type_t */
  uint32_t line;
  value_t value; /* text of names, data and strings; number */
} token_t;

typedef struct compiler {
  jinja_t *jinja;
  jmp_buf escape;
  inferd_error_t *error;
  const char *source; /* newlines are \n only */
  size_t length;
  token_t *tokens;
  size_t num_tokens, tokens_capacity;
  size_t at; /* of the current token */
  uint32_t num_nodes, depth, line;
  bool soft;             /* inside a condition: an unknown filter fails only when it is reached */
  uint32_t unknown_line; /* of an unknown filter in an expression that may yet be a condition */
  uint32_t loops;        /* open loops of this body, for break and continue */
  uint32_t for_depth;    /* open loops, of outer bodies too */
  uint32_t macro_seen;   /* MACRO_ bits of names read so far in the open macros */
  uint32_t loop_reads;   /* how often `loop` was read so far */
} compiler_t;

_Noreturn void template_fail(compiler_t *compiler, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *template_take(compiler_t *compiler, size_t size);
str_t *template_string(compiler_t *compiler, const char *bytes, size_t length); /* copies */
void lex(compiler_t *compiler); /* source -> tokens */

#endif
