/* output.h: the output of a model in a chat -> reasoning, content and tool calls.
 *
 * Every family of models has its own marks for reasoning and tool calls. A parser takes the text of
 * one choice while it is generated, in pieces of any size, and separates the three. The result does
 * not depend on where the pieces end. The time is linear in the text. The text may be hostile:
 * nothing is evaluated, and text that is not a well-formed call is content. One owner, one thread
 * at a time.
 */
#ifndef INFERD_SERVER_PARSER_OUTPUT_H
#define INFERD_SERVER_PARSER_OUTPUT_H

#include "engine/base/json.h"
#include "server/parser/formats.h"

typedef enum output_kind {
  OUTPUT_CONTENT,
  OUTPUT_REASONING,
  OUTPUT_CALL_ID,    /* text = the id that the model gave the call that begins next */
  OUTPUT_CALL_BEGIN, /* text = the name */
  OUTPUT_CALL_TEXT,  /* text = the next bytes of the arguments, JSON */
  OUTPUT_CALL_END
} output_kind_t;

/* Receives the parts in order. `text` is valid only during the call. */
typedef struct output_sink {
  void (*take)(void *context, output_kind_t kind, const char *text, size_t length);
  void *context;
} output_sink_t;

typedef struct output_options {
  const tool_format_t *tools;          /* NULL = calls are content */
  const reasoning_format_t *reasoning; /* NULL = reasoning is content */
  bool in_reasoning;                   /* the prompt ends inside a reasoning block */
  bool one_call;                       /* text after the first call is dropped */
  bool whole;                          /* calls are passed on when they are complete; for trial.c */
  const json_t *functions; /* the request's tools: names, types of parameters; or NULL */
  const char *begun;       /* channels: the last message of the prompt, read by _new */
  size_t begun_length;
} output_options_t;

typedef struct output_parser output_parser_t;

/* Returns NULL if memory is short. The formats and the functions must live longer than the parser.
 */
output_parser_t *output_parser_new(const output_options_t *options);
void output_parser_free(output_parser_t *parser); /* NULL is allowed */
void output_parser_feed(output_parser_t *parser, const char *text, size_t length,
                        const output_sink_t *sink);
/* Ends the text. If the model ended it, what was held back is sent: text that is no whole call is
 * content. If it was `cut`, by a limit or a stop string, a call whose name is known is sent as far
 * as it goes, and what may be a piece of markup is dropped. */
void output_parser_end(output_parser_t *parser, bool cut, const output_sink_t *sink);
bool output_parser_is_reasoning(const output_parser_t *parser); /* inside the reasoning */
bool output_parser_failed(const output_parser_t *parser);       /* memory was short */

#endif
