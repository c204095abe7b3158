/* responses.h: POST /v1/responses: a body becomes a body of chat, and what the model writes becomes
 * items and events.
 *
 * A dialect of server/completion/dialect.h. The translator (request.c, items.c, tools.c) runs where
 * bodies are read, the loop thread or a job of the lanes; the writer (writer.c, object.c) on the
 * loop thread. With --store an answer is kept (kept.c), and stored.c serves it later.
 */
#ifndef INFERD_SERVER_RESPONSES_RESPONSES_H
#define INFERD_SERVER_RESPONSES_RESPONSES_H

#include "server/completion/dialect.h"
#include "server/dialect/chat_body.h"
#include "server/store/store.h"

/* Bytes of JSON of the request that each of a response's three objects repeats: the loop thread
 * prints them. Codex sends about 40 kB. */
enum { REPEATED_BYTES_MAX = 128 * 1024 };

enum { KEPT_ID_BYTES = 40 };

/* Of an answer that is kept the loop thread prints so much at once; a job prints the rest. */
enum { PUT_TURN_BYTES = 64 * 1024, PUT_TURN_TOKENS = 16 * 1024 /* of a prompt, in its recipe */ };

/* The request's own fields; pointers into the body's document, NULL = not given. */
typedef struct responses_fields {
  const json_t *input, *instructions, *tools, *tool_choice, *reasoning, *text, *include, *metadata;
  const json_t *previous;     /* previous_response_id */
  const json_t *conversation; /* its id */
  bool alone;                 /* `input` is to be stored alone: outputs may lack their calls */
  bool store, store_is_given, background;
  const json_t *history; /* the items of the answers before, or of the conversation; NULL = none */
  int64_t max_output_tokens, top_logprobs; /* ABSENT = not given */
} responses_fields_t;

/* A tool that the model is shown as a function. Texts lie in the arena, NUL-terminated. */
typedef struct response_tool {
  const char *name;  /* of the function */
  const char *space; /* the namespace; NULL = none. Then `name` is SPACE__OWN */
  const char *own;   /* the name in the request */
  const char *place; /* "tools[2].tools[0]" */
  bool is_custom;    /* it takes a text: a function with one string, `input` */
} response_tool_t;

typedef enum item_kind {
  ITEM_NONE,
  ITEM_REASONING,
  ITEM_TEXT,
  ITEM_CALL,  /* of a function */
  ITEM_CUSTOM /* of a custom tool */
} item_kind_t;

typedef enum response_status {
  RESPONSE_QUEUED,
  RESPONSE_IN_PROGRESS,
  RESPONSE_COMPLETED,
  RESPONSE_INCOMPLETE,
  RESPONSE_FAILED
} response_status_t;
/* The state of a completion of this dialect, in its arena. */
typedef struct response {
  /* what the answer repeats: JSON texts in the arena, NUL-terminated */
  const char *instructions, *metadata, *tools, *tool_choice, *format, *effort;
  int64_t max_output_tokens, top_logprobs; /* ABSENT = not given */
  response_tool_t *shown;                  /* [num_shown] */
  int32_t num_shown;
  bool background;
  held_t request; /* with `background`: the body as it came */
  /* to be kept */
  bool is_kept; /* what the answer says of itself */
  bool was_put; /* the store has it, or has not been able to take it */
  char id[KEPT_ID_BYTES];
  const char *previous, *conversation; /* "" = none; in the arena */
  buffer_t input;                      /* the items of the request, as elements of an array */
  buffer_t drawn;                      /* its tokens, for the recipe */
  /* output */
  cord_t items; /* finished items, as elements of an array */
  int32_t num_items;
  item_kind_t open;            /* the item that is being written */
  buffer_t item_id, call_id;   /* the body of a JSON string */
  const response_tool_t *tool; /* of a call; NULL = the request has no such tool */
  buffer_t name;               /* of a call, as the model wrote it */
  buffer_t text;               /* of the open item, or the arguments of a call */
  size_t sent;                 /* bytes of it that events have carried */
  buffer_t logprobs;           /* of its tokens, as elements of an array */
  size_t sent_logprobs;
  buffer_t kept;     /* buffer_t of large texts, to which `items` and events point */
  size_t kept_bytes; /* of these */
  cord_t frames;     /* flat: events that wait to be sent */
  cord_t *out;       /* where events are printed: frames, or completion->reply */
  bool begun;        /* response.created is in them */
  int64_t sequence_number;
} responses_answer_t;

/* request.c */
extern const field_table_t responses_table;
int responses_translate(completion_t *completion, reader_t *reader, const json_t *root,
                        buffer_t *chat);
void responses_rename(const completion_t *completion, inferd_error_t *error);
/* Copies JSON text that was printed into `text`, and empties it. NULL: memory is short. */
const char *responses_keep(arena_t *arena, buffer_t *text);

/* Of what is kept: the server printed it. A model may write a NUL, which becomes U+FFFD. */
extern const json_limits_t responses_kept_limits;

/* kept.c: with --store. The three may run in a job of the lanes; responses_put on the loop thread.
 * What the answer says of itself is true of its end: an answer that could not be put ends with
 * "store": false, though its first events may have said true. */
/* Prints the items of the answers before this one, or of the conversation, as an array. Waits for a
 * disk. `charge` has what is held meanwhile. 0, or an error of `previous_response_id` or
 * `conversation`. */
int responses_history(const completion_t *completion, reader_t *reader,
                      const responses_fields_t *fields, charge_t *charge, buffer_t *items);
/* Appends the elements of `items` to those that `stored` appends to its conversation; each has an
 * id. Returns false if memory is short. */
bool responses_split(stored_t *stored, const json_t *items);
/* Prints an item as it is listed later: with an id and a type, and a message with parts. `fresh`:
 * with an id of its own, whatever the client called it. */
void responses_print_kept(buffer_t *out, const json_t *item, bool fresh);
/* Notes what will be kept: the items of the request, each with an id. 0 or an error of `store`. */
int responses_keep_input(const completion_t *completion, reader_t *reader,
                         const responses_fields_t *fields, responses_answer_t *response);
bool responses_waits(const completion_t *completion);         /* dialect_t.waits */
void responses_drawn(choice_t *choice, const event_t *event); /* dialect_t.drawn; loop thread */
/* Gives an answer that has ended to the store, once, if it is to be kept. Returns true if a job
 * prints it first: dialect_t.settle. One that must not wait for a job, and is larger than
 * PUT_TURN_BYTES, is not kept. */
bool responses_put(completion_t *completion, response_status_t status, const inferd_error_t *error,
                   bool may_wait);

/* writer.c: how a request of a client is served; one with `background`, which is checked and put
 * aside; and the errand that runs it later. */
extern const dialect_t responses_dialect, responses_posted, responses_background;

/* items.c: writes the conversation. 0, or an error with its place. */
int responses_messages(const responses_fields_t *fields, reader_t *reader, chat_body_t *body);
/* The name under which the model is shown a tool of a namespace: SPACE__OWN. */
void responses_join_name(buffer_t *out, const json_t *space, const json_t *own);

/* tools.c: appends ,"tools":[...],"tool_choice":... to `chat`, and fills in response->shown. 0, or
 * an error with its place. */
int responses_tools(const responses_fields_t *fields, reader_t *reader,
                    responses_answer_t *response, buffer_t *chat);

/* Texts above this size are not copied into events and items, which are printed while they are
 * sent then. */
enum { LARGE_BYTES = 16 << 10 };

/* object.c: the response object. */
/* `error`: of RESPONSE_FAILED, else NULL. A cord that is not flat points to the items and to what
 * the answer repeats of the request. */
void responses_print(cord_t *out, const completion_t *completion, response_status_t status,
                     const inferd_error_t *error);
void responses_print_error(buffer_t *out, const inferd_error_t *error);
/* The open item, with its text if it is `whole`, else as it begins. */
void responses_print_item(cord_t *out, const responses_answer_t *response, const char *status,
                          bool whole);

#endif
