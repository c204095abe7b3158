/* call_scan.h: parses one tool call, {"name": ..., "arguments": {...}}, while it is generated.
 *
 * Members may stand in any order; `parameters` means the same as `arguments`. Arguments may be an
 * object or a string that holds one. If the name is known, the bytes of an object are passed on as
 * they arrive, from its first key on. One owner, one thread at a time.
 */
#ifndef INFERD_SERVER_PARSER_CALL_SCAN_H
#define INFERD_SERVER_PARSER_CALL_SCAN_H

#include "engine/base/buffer.h"
#include "server/parser/json_scan.h"
#include "server/parser/output.h"

enum { CALL_NAME_BYTES_MAX = 256, CALL_KEY_BYTES_MAX = 16 };

typedef enum call_member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS } call_member_t;

typedef struct call_scan {
  json_scan_t json;
  bool needs_arguments;
  bool known_first;        /* the name must come first, and be that of one of `functions` */
  bool whole;              /* nothing is passed on before the call is complete */
  const json_t *functions; /* the request's tools; or NULL */
  bool name_is_key;        /* the object has one member, which is the arguments */
  bool only_arguments;     /* the name came before the object, and the object is the arguments */
  char key[CALL_KEY_BYTES_MAX];
  uint8_t key_length; /* CALL_KEY_BYTES_MAX: longer than any member that we know */
  call_member_t member;
  bool in_value;  /* inside the value of a member of the outermost object */
  buffer_t value; /* the value of the name, or of arguments that cannot be passed on yet */
  buffer_t name;  /* decoded */
  buffer_t id;    /* that the model gave the call; empty = none */
  bool has_name, has_arguments;
  bool streaming; /* CALL_BEGIN was sent: arguments are passed on as they arrive */
} call_scan_t;

typedef enum call_result { CALL_MORE, CALL_DONE, CALL_BAD, CALL_AGAIN } call_result_t;

/* Begins a new call; keeps the memory. The caller may then set needs_arguments (an object without
 * arguments is no call), known_first, whole, functions and name_is_key. */
void call_scan_start(call_scan_t *scan);
/* Begins a call whose name is known: the bytes that follow are the object of its arguments. The
 * caller may then set whole and id. */
void call_scan_start_named(call_scan_t *scan, const char *name, size_t length);
/* Takes one byte; the first byte must begin the outermost object. CALL_DONE: the call is complete
 * and CALL_END was sent. CALL_BAD: the text is no call; if `streaming`, a part of it was sent
 * already. */
call_result_t call_scan_byte(call_scan_t *scan, char byte, const output_sink_t *sink);
/* Passes on the bytes of the arguments that have arrived so far. */
void call_scan_flush(call_scan_t *scan, const output_sink_t *sink);
/* The text ends inside the call. If the name is known, sends the call as far as it goes, and its
 * end. */
void call_scan_cut(call_scan_t *scan, const output_sink_t *sink);
/* Tells whether the text so far may be that of a call of one of `functions`: its name, or what came
 * of it, is the first member. */
bool call_scan_may_be(const call_scan_t *scan, const json_t *functions);
bool call_scan_failed(const call_scan_t *scan); /* memory was short */
void call_scan_free(call_scan_t *scan);

#endif
