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

#include <stdbool.h>
#include <stddef.h>

typedef enum output_kind {
  OUTPUT_CONTENT,
  OUTPUT_REASONING,
  OUTPUT_CALL_BEGIN, /* text = the name */
  OUTPUT_CALL_TEXT,  /* text = the next bytes of the arguments, JSON */
  OUTPUT_CALL_END
} output_kind_t;

/* Receives the parts in order. `text` is valid only during the call. */
typedef struct output_sink {
  void (*take)(void *context, output_kind_t kind, const char *text, size_t length);
  void *context;
} output_sink_t;

/* How a family writes tool calls. */
typedef struct tool_format {
  const char *name;                    /* of --tool-call-parser */
  const char *open;                    /* mark before a call; NULL = none */
  const char *close;                   /* mark after a call; NULL = none */
  const char *begin_name;              /* grammar: the start of a call, up to its name */
  const char *end_name;                /* from the name to the arguments */
  const char *end_call;                /* after the arguments */
  const char *between;                 /* between two calls */
  const char *before_all, *behind_all; /* around all calls of a message */
  bool bare;             /* calls may stand at the start of the output without `open` */
  bool list;             /* one `open`, then an array of calls */
  const char *name_end;  /* `open` may be followed by NAME and this, then the arguments; or NULL */
  const char *id_mark;   /* mark before an id, between NAME and name_end; or NULL */
  bool short_ids;        /* ids of calls are nine letters and digits */
  bool in_channels;      /* calls are messages: the reasoning format must have channels too */
  bool in_tags;          /* arguments are tags, not JSON: tag_call.h */
  const char *bare_open; /* in_tags: a call may begin with it, without `open`; or NULL */
} tool_format_t;

/* How a family marks its reasoning. */
typedef struct reasoning_format {
  const char *name; /* of --reasoning-parser */
  const char *open, *close;
  const char *between; /* channels: text from the end of the reasoning to the next header */
  const char *answer;  /* channels: the header of the content; NULL = output has no channels */
} reasoning_format_t;

extern const char *const channel_marks[]; /* of formats in channels; NULL ends them */

extern const tool_format_t tool_formats[];                         /* the last has name NULL */
extern const reasoning_format_t reasoning_formats[];               /* likewise */
const tool_format_t *tool_format_find(const char *name);           /* NULL = unknown */
const reasoning_format_t *reasoning_format_find(const char *name); /* NULL = unknown */

typedef struct output_options {
  const tool_format_t *tools;          /* NULL = calls are content */
  const reasoning_format_t *reasoning; /* NULL = reasoning is content */
  bool in_reasoning;                   /* the prompt ends inside a reasoning block */
  bool one_call;                       /* text after the first call is dropped */
  const json_t *functions;             /* the request's tools: types of their parameters; or NULL */
  const char *begun;                   /* channels: the last message of the prompt, read by _new */
  size_t begun_length;
} output_options_t;

typedef struct output_parser output_parser_t;

/* Returns NULL if memory is short. The formats and the functions must live longer than the parser.
 */
output_parser_t *output_parser_new(const output_options_t *options);
void output_parser_free(output_parser_t *parser); /* NULL is allowed */
void output_parser_feed(output_parser_t *parser, const char *text, size_t length,
                        const output_sink_t *sink);
/* Ends the text: sends what was held back. */
void output_parser_end(output_parser_t *parser, const output_sink_t *sink);
bool output_parser_is_reasoning(const output_parser_t *parser); /* inside the reasoning */
bool output_parser_failed(const output_parser_t *parser);       /* memory was short */

#endif
