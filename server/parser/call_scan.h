/* call_scan.h: one tool call, {"name": ..., "arguments": {...}}, while it is being written.
 *
 * Members may stand in any order; `parameters` is `arguments` by another name; arguments may be an
 * object or a string that holds one. The arguments of an object are passed on byte for byte as they
 * come, once the name is known. One owner, one thread at a time.
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
  bool only_arguments; /* the name stood before: the object is the arguments themselves */
  char key[CALL_KEY_BYTES_MAX];
  uint8_t key_length; /* beyond the room: CALL_KEY_BYTES_MAX, no member of ours */
  call_member_t member;
  bool in_value;  /* inside the value of a member of the outermost object */
  buffer_t value; /* the value of the name, or of arguments that cannot be passed on yet */
  buffer_t name;  /* decoded */
  bool has_name, has_arguments;
  bool streaming; /* CALL_BEGIN was said: arguments are passed on as they come */
} call_scan_t;

typedef enum call_result { CALL_MORE, CALL_DONE, CALL_BAD, CALL_AGAIN } call_result_t;

/* Empties it, keeps its memory. needs_arguments: an object without them is no call. */
void call_scan_start(call_scan_t *scan, bool needs_arguments);
/* The name is known already: what follows is the object of the arguments. */
void call_scan_start_named(call_scan_t *scan, const char *name, size_t length);
/* Takes one byte; the outermost object has to begin with the first. CALL_DONE: the call was whole,
 * and CALL_END was said. CALL_BAD: it is no call; if `streaming`, a part of it was said already. */
call_result_t call_scan_byte(call_scan_t *scan, char c, const output_sink_t *sink);
/* What has arrived of the arguments and was not passed on yet. */
void call_scan_flush(call_scan_t *scan, const output_sink_t *sink);
void call_scan_free(call_scan_t *scan);

#endif
