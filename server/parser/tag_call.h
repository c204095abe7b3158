/* tag_call.h: parses one tool call in tags while it is generated, such as
 *
 *   NAME> <parameter=KEY>\nVALUE\n</parameter> ... </function>
 *
 * with the words of a row (engine/base/json_schema.h). The result is a JSON object. The schema of
 * the function says which types a value may have (engine/base/json_schema.h). A string is passed on
 * as it arrives. Any other value is collected until its end; if it is not JSON of an allowed type,
 * it becomes a string. One owner, one thread at a time.
 */
#ifndef INFERD_SERVER_PARSER_TAG_CALL_H
#define INFERD_SERVER_PARSER_TAG_CALL_H

#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "engine/base/json_schema.h"
#include "server/parser/call_scan.h"

typedef enum tag_state {
  TAG_NAME,
  TAG_NEXT, /* a parameter, or the end of the call */
  TAG_KEY,
  TAG_BEFORE_VALUE, /* the mark that begins a value must come */
  TAG_VALUE,
  TAG_JSON /* inside the object that stands in place of all arguments */
} tag_state_t;

typedef struct tag_call {
  tag_state_t state;
  const tag_words_t *words;
  const json_t *functions; /* the request's tools; NULL = every value is a string */
  const json_t *schema;    /* of this function's parameters; or NULL */
  buffer_t name, key;
  buffer_t keys;  /* names of the parameters so far, each after its length */
  buffer_t held;  /* the start of a tag; inside a value: the start of what may end the value */
  buffer_t value; /* the value so far, unless it is passed on as it arrives */
  buffer_t out;   /* arguments that were not sent yet */
  uint32_t types; /* of this parameter */
  int num_parameters;
  bool whole;       /* nothing is passed on before the call is complete */
  bool begun;       /* the call has a parameter or has ended: the text is one of a call */
  bool streaming;   /* CALL_BEGIN was sent */
  bool first_byte;  /* the next byte is the first after the tag */
  bool line_starts; /* the value has no byte yet */
  bool is_raw;      /* the tag says that the value is text: every byte of it counts */
  bool repeated;    /* the call had this parameter before: the first value counts */
  bool plain;       /* the value is no JSON object or array */
  bool whole_json;  /* the arguments came as one object */
  /* Where values are elements: */
  schema_set_t place;      /* of this parameter */
  int32_t depth, num_ends; /* elements that are open in the value; those named like an end_call */
  bool spanning;           /* inside an object or array: text like a tag is part of it */
  json_scan_t json;
} tag_call_t;

/* Begins a new call, at its name; keeps the memory. The caller may then set `whole`. */
void tag_call_start(tag_call_t *call, const tag_words_t *words, const json_t *functions);
/* Takes one byte. CALL_DONE: the call is complete and CALL_END was sent. CALL_BAD: the byte was not
 * taken; the caller must parse `held` again as text outside of the call and, if `streaming`, close
 * the call. CALL_AGAIN: after tag_call_again, the caller must feed the bytes of `value` and this
 * byte again. */
call_result_t tag_call_byte(tag_call_t *call, char byte, const output_sink_t *sink);
void tag_call_again(tag_call_t *call);
/* Passes on the bytes of the arguments that have arrived so far. */
void tag_call_flush(tag_call_t *call, const output_sink_t *sink);
/* Ends a call of which a part was sent (`streaming`): closes an open string; any other open value
 * counts only if its line has ended. Sends CALL_END. */
void tag_call_close(tag_call_t *call, const output_sink_t *sink);
/* The text ends inside the call. If the name is known, sends the call as far as it goes, and
 * CALL_END. */
void tag_call_cut(tag_call_t *call, const output_sink_t *sink);
bool tag_call_failed(const tag_call_t *call); /* memory was short */
void tag_call_free(tag_call_t *call);

#endif
