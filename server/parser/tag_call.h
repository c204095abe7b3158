/* tag_call.h: one tool call in tags, while it is being written:
 *
 *   <function=NAME> <parameter=KEY>\nVALUE\n</parameter> ... </function>
 *
 * Becomes a JSON object. A value is read by the types that the function's schema lets through
 * (engine/base/json_schema.h): a string is passed on as it comes; anything else waits for its end,
 * and is a string when it is no JSON of these types. One owner, one thread at a time.
 */
#ifndef INFERD_SERVER_PARSER_TAG_CALL_H
#define INFERD_SERVER_PARSER_TAG_CALL_H

#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "server/parser/call_scan.h"

enum { CALL_PARAMETERS_MAX = 1000, CALL_PARAMETER_NAME_BYTES_MAX = 4096 };

typedef enum tag_state {
  TAG_FUNCTION, /* <function= must come */
  TAG_NAME,
  TAG_NEXT, /* a parameter, or the end of the call */
  TAG_KEY,
  TAG_VALUE
} tag_state_t;

typedef struct tag_call {
  tag_state_t state;
  const json_t *functions; /* the request's tools; NULL = every value is a string */
  const json_t *schema;    /* of this function's parameters; or NULL */
  buffer_t name, key;
  buffer_t keys;  /* of the parameters so far, each behind its length */
  buffer_t held;  /* the start of a tag: all of it so far; in a value: of what may end it */
  buffer_t value; /* what was taken of it, unless it is passed on as it comes */
  buffer_t out;   /* arguments that were not said yet */
  uint32_t types; /* of this parameter */
  int num_parameters;
  bool streaming;   /* CALL_BEGIN was said */
  bool first_byte;  /* the next byte is the first behind the tag */
  bool line_starts; /* nothing of the value was taken yet */
  bool repeated;    /* the parameter was there before: the first one counts */
  bool plain;       /* the value is no JSON object or array */
  bool spanning;    /* inside one: what looks like a tag is part of it */
  json_scan_t json;
} tag_call_t;

/* Empties it, keeps its memory. */
void tag_call_start(tag_call_t *call, const json_t *functions);
/* Takes one byte. CALL_DONE: the call was whole, and CALL_END was said. CALL_BAD: the byte was not
 * taken, and what is `held` comes again, as no part of the call; if `streaming`, it has to be
 * closed. CALL_AGAIN: what is in `value`, with this byte, has to come again, after tag_call_again.
 */
call_result_t tag_call_byte(tag_call_t *call, char c, const output_sink_t *sink);
void tag_call_again(tag_call_t *call);
/* What has arrived of the arguments and was not passed on yet. */
void tag_call_flush(tag_call_t *call, const output_sink_t *sink);
/* Ends a call that `streaming` has begun: an open string is closed, another open value counts only
 * when its line has ended. Says CALL_END. */
void tag_call_close(tag_call_t *call, const output_sink_t *sink);
bool tag_call_failed(const tag_call_t *call); /* memory was short */
void tag_call_free(tag_call_t *call);

#endif
