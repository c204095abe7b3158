/* formats.h: how families of models write tool calls and reasoning, as rows of constant data.
 *
 * A row is read twice: the parser finds calls with its marks (output.h), and the grammar of forced
 * calls writes its words (server/completion/constraint.c). In text a call is
 *
 *   [section] open PAYLOAD [close] [open PAYLOAD [close]] ... [section_end]
 *
 * Blanks between marks are free. All pointers are constants; any thread.
 */
#ifndef INFERD_SERVER_PARSER_FORMATS_H
#define INFERD_SERVER_PARSER_FORMATS_H

#include "engine/base/json_schema.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum payload {
  PAYLOAD_JSON,     /* {"name": ..., "arguments": {...}}, or a name before {...}: call_scan.h */
  PAYLOAD_TAGS,     /* a tag for each argument: tag_call.h */
  PAYLOAD_LITERALS, /* f(a=1, b="x"), or f{a:1}: literal_call.h */
  PAYLOAD_CHANNELS  /* a message of its own: channels.h */
} payload_t;

/* How a family writes tool calls. */
typedef struct tool_format {
  const char *name;    /* of --tool-call-parser; NULL ends the table */
  const char *aliases; /* other names, each between blanks: " a b "; or NULL */
  payload_t payload;
  const char *const *marks; /* texts that may be special tokens of the model; NULL ends them */

  /* Reading; each may be NULL. */
  const char *section, *section_end;    /* around all calls of a message */
  const char *open, *close;             /* around one call, or around a list of calls */
  const char *other_open, *other_close; /* another spelling of the two */
  const char *name_begin;               /* between `open` and a name that stands before {...} */
  const char *name_end;                 /* behind that name; NULL: the name is a member */
  const char *id_mark;                  /* mark before an id, between the name and name_end */
  const char *fence;                    /* behind the arguments, before `close` */
  const tag_words_t *tags;              /* PAYLOAD_TAGS */
  const literal_words_t *literals;      /* PAYLOAD_LITERALS */
  bool bare;                            /* calls may begin the output without a mark */
  bool inside_text;   /* and may follow text, if they begin with the name of a known function */
  bool list;          /* an array of calls may stand for one */
  bool names_are_ids; /* the name is written as NAME:NUMBER, and this is the id of the call */
  bool name_is_key;   /* a call is {NAME: {...}} */
  bool text_in_marks; /* text has tokens of its own around it: no grammar has it beside calls */
  bool short_ids;     /* ids of calls are nine letters and digits */
  bool needs_section; /* a call without `section` is content (restricted rows only) */

  /* Writing. begin_name, end_name and end_call are never NULL. */
  const char *begin_name;              /* from the start of a call to its name */
  const char *number;                  /* behind the name, before the number of the call; or NULL */
  const char *end_name;                /* from the name to the arguments */
  const char *end_call;                /* behind the arguments */
  const char *between;                 /* between two calls */
  const char *before_all, *behind_all; /* around all calls of a message; or NULL */

  const char *signs[3]; /* words of a prompt that explains this format and no other; or NULL */
} tool_format_t;

/* How a family marks its reasoning. */
typedef struct reasoning_format {
  const char *name;         /* of --reasoning-parser; NULL ends the table */
  const char *aliases;      /* like those of a tool_format_t */
  const char *const *marks; /* texts that may be special tokens of the model; NULL ends them */
  const char *open, *close;
  const char *other_open, *other_close; /* another spelling of the two; or NULL */
  bool open_optional;  /* the output begins as reasoning, unless the prompt has closed it */
  const char *between; /* channels: text from the end of the reasoning to the next header */
  const char *answer;  /* channels: the header of the content; NULL = output has no channels */
  /* Marks around the content and at the end of the message, which are no text; all or none. */
  const char *text_open, *text_close, *message_close;
} reasoning_format_t;

extern const char *const channel_marks[]; /* of formats in channels; NULL ends them */
extern const tool_format_t tool_formats[];
extern const reasoning_format_t reasoning_formats[];
/* By name or alias; NULL = unknown. */
const tool_format_t *tool_format_find(const char *name);
const reasoning_format_t *reasoning_format_find(const char *name);
/* The first mark of a call in text; NULL = a call has none. */
const char *tool_format_opener(const tool_format_t *format);

#endif
