/* output.h: what a model writes in a chat -> reasoning, content and tool calls.
 *
 * Models mark their thoughts and their calls in the text, each family in its own way. A parser
 * takes the text of one choice as it is generated, in pieces of any size, and says what it is;
 * where the pieces end changes nothing. It is linear in the text, treats it as hostile, and
 * evaluates nothing: what is not a well-formed call is content. One owner, one thread at a time.
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

/* Where the parts go, in order. The text lives during the call only. */
typedef struct output_sink {
  void (*take)(void *context, output_kind_t kind, const char *text, size_t length);
  void *context;
} output_sink_t;

/* How a family writes tool calls. */
typedef struct tool_format {
  const char *name;                    /* of --tool-call-parser */
  const char *open;                    /* stands before a call; NULL = none */
  const char *close;                   /* stands behind it; NULL = nothing does */
  const char *begin_name;              /* grammar: what a call begins with, up to its name */
  const char *end_name;                /* from the name to the arguments */
  const char *end_call;                /* behind the arguments */
  const char *between;                 /* between two calls */
  const char *before_all, *behind_all; /* around the calls of one turn */
  bool bare;             /* calls may stand at the start of the output without `open` */
  bool list;             /* one `open`, then an array of calls */
  const char *name_end;  /* `open` may be followed by NAME and this, then the arguments; or NULL */
  const char *id_mark;   /* stands before an id between NAME and name_end; or NULL */
  bool short_ids;        /* ids of calls are nine letters and digits */
  bool in_channels;      /* calls are messages: `reasoning` has to be of channels, too */
  bool in_tags;          /* arguments are tags, not JSON: tag_call.h */
  const char *bare_open; /* in_tags: a call may begin with it, without `open`; or NULL */
} tool_format_t;

/* How a family marks its thoughts. */
typedef struct reasoning_format {
  const char *name; /* of --reasoning-parser */
  const char *open, *close;
  const char *between; /* channels: from the end of the thoughts to the next header */
  const char *answer;  /* channels: the header of the content; NULL = output has no channels */
} reasoning_format_t;

extern const char *const channel_marks[]; /* of formats in channels; NULL ends them */

extern const tool_format_t tool_formats[];                         /* the last has name NULL */
extern const reasoning_format_t reasoning_formats[];               /* likewise */
const tool_format_t *tool_format_find(const char *name);           /* NULL = unknown */
const reasoning_format_t *reasoning_format_find(const char *name); /* NULL = unknown */

typedef struct output_options {
  const tool_format_t *tools;          /* NULL = calls are content */
  const reasoning_format_t *reasoning; /* NULL = thoughts are content */
  bool in_reasoning;                   /* the prompt has opened the thoughts */
  bool one_call;                       /* what follows the first call is dropped */
  const json_t *functions;             /* the request's tools: types of their parameters; or NULL */
  const char *begun;                   /* channels: the last message of the prompt, read by _new */
  size_t begun_length;
} output_options_t;

typedef struct output_parser output_parser_t;

/* NULL when memory is short. The formats and the functions must outlive it. */
output_parser_t *output_parser_new(const output_options_t *options);
void output_parser_free(output_parser_t *parser); /* NULL is allowed */
void output_parser_feed(output_parser_t *parser, const char *text, size_t length,
                        const output_sink_t *sink);
/* The text has ended: says what was held back. */
void output_parser_end(output_parser_t *parser, const output_sink_t *sink);
bool output_parser_is_reasoning(const output_parser_t *parser); /* thoughts are open */
bool output_parser_failed(const output_parser_t *parser);       /* memory was short */

#endif
