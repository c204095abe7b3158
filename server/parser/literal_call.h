/* literal_call.h: parses one tool call whose arguments are literals, while it is generated:
 *
 *   NAME(key=1, other="text", more=[True, {"a": None}])        as a call in Python
 *   NAME{key:1,other:<|"|>text<|"|>,more:[true,{a:null}]}      with a mark around strings
 *
 * The result is a JSON object. Nothing is evaluated: what is not one of these literals is no call.
 * Strings have either quote, Python's escapes and raw line breaks, or marks around raw text;
 * `true false null` mean the same as `True False None`. A call is passed on as a whole. One owner,
 * one thread at a time.
 */
#ifndef INFERD_SERVER_PARSER_LITERAL_CALL_H
#define INFERD_SERVER_PARSER_LITERAL_CALL_H

#include "engine/base/buffer.h"
#include "engine/base/json_schema.h"
#include "server/parser/call_scan.h"

enum { LITERAL_DEPTH_MAX = 256 }; /* as deep as a grammar writes (STACK_DEPTH_MAX) */

typedef enum literal_state {
  LITERAL_NAME,
  LITERAL_ARGUMENT, /* the name of an argument begins, or the arguments end */
  LITERAL_KEY,      /* inside the name of an argument */
  LITERAL_VALUE,    /* a value begins */
  LITERAL_ITEM,     /* inside a list or dictionary: a value or key begins, or it ends */
  LITERAL_ITEM_KEY, /* inside a key without quotes */
  LITERAL_COLON,    /* behind a key with quotes */
  LITERAL_MARK,     /* inside the mark that begins a string */
  LITERAL_MARKED,   /* inside a string between marks */
  LITERAL_STRING,   /* inside quotes */
  LITERAL_WORD,     /* inside a number or a constant */
  LITERAL_AFTER     /* behind a value */
} literal_state_t;

typedef struct literal_call {
  literal_state_t state;
  const literal_words_t *words;
  const json_t *functions, *schema;
  bool known_only; /* a function that was not declared is no call */
  buffer_t name, text, keys, out;
  uint32_t types;                  /* of this argument */
  char closing[LITERAL_DEPTH_MAX]; /* of the open containers */
  int depth;                       /* of the containers inside the arguments */
  int num_keys;
  size_t repeated; /* the call had this argument before: where its text begins in `out`; or 0 */
  char quote;
  bool is_key;     /* the string is a key of a dictionary */
  bool name_ended; /* a blank followed the name or key */
  uint8_t escape;  /* in LITERAL_STRING: 0; 1 = behind a backslash; else digits to come + 1 */
  uint32_t code;   /* of the escape */
  uint32_t high;   /* the first half of a surrogate pair; 0 = none */
} literal_call_t;

/* Begins a new call; keeps the memory. functions: the request's tools, or NULL. */
void literal_call_start(literal_call_t *call, const literal_words_t *words, const json_t *functions,
                        bool known_only);
/* Takes one byte, from the first of the name on. CALL_DONE: the call was passed on. CALL_BAD: the
 * text is no call, and nothing was passed on. */
call_result_t literal_call_byte(literal_call_t *call, char byte, const output_sink_t *sink);
/* The text ends inside the call. If the name is known, passes on the call as far as it goes. */
void literal_call_cut(literal_call_t *call, const output_sink_t *sink);
/* Tells whether the name so far is that of a function, or the start of one. */
bool literal_call_may_be(const literal_call_t *call);
bool literal_call_failed(const literal_call_t *call); /* memory was short */
void literal_call_free(literal_call_t *call);

#endif
