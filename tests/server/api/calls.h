/* calls.h: random tools, random calls of them, and how each family writes such a call: a second
 * writer beside the grammar, made from what templates print. For test_calls.c. */
#ifndef INFERD_TESTS_SERVER_API_CALLS_H
#define INFERD_TESTS_SERVER_API_CALLS_H

#include "engine/base/buffer.h"
#include "server/parser/formats.h"

enum { CALLS_ARGUMENTS_MAX = 5 };

/* The tools of a request: one function "get_it" with random parameters. */
typedef struct drawn_tools {
  buffer_t text; /* the JSON array `tools` */
  int num_arguments;
  int kinds[CALLS_ARGUMENTS_MAX];
  char names[CALLS_ARGUMENTS_MAX][16];
  bool required[CALLS_ARGUMENTS_MAX];
} drawn_tools_t;

void calls_draw_tools(uint64_t *state, drawn_tools_t *out);
/* Appends the arguments of a call, JSON of these parameters. Texts are such that the family can
 * write them. */
void calls_draw_arguments(uint64_t *state, const drawn_tools_t *tools, const tool_format_t *format,
                          buffer_t *out);
/* Appends the calls of a message, one with each of these arguments. */
void calls_write(buffer_t *out, const tool_format_t *format, const json_t *const *arguments,
                 int count);

#endif
