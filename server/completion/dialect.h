/* dialect.h: what differs between the wire formats in which clients ask for a completion.
 *
 * A dialect translates at the edge. On the way in its `translate` turns a body into a body of
 * /v1/chat/completions, which then is read and checked like any other. On the way out its writer
 * gets the parts of the output: reasoning, text, calls, the end. So every feature between the two
 * edges exists once. A route's handler calls completion_start with its dialect.
 *
 * All output functions run on the loop thread. They end a failed request by completion_fail.
 */
#ifndef INFERD_SERVER_COMPLETION_DIALECT_H
#define INFERD_SERVER_COMPLETION_DIALECT_H

#include "server/completion/completion.h"

struct dialect {
  const char *route;  /* the label in metrics; NULL with `describe` */
  const char *effort; /* what clients call reasoning_effort; NULL = that */
  bool is_chat;       /* the prompt comes from messages and a template */
  /* Not NULL: the fields of a route whose answer is a vector, or scores, for each prompt; there are
   * no parts of output. `tasks`: 1 << engine_task_t of the models that serve it. */
  const field_table_t *table;
  unsigned tasks;
  bool hears; /* for models that write down speech, and only these */
  /* max_tokens is an upper bound: it is clipped to what is left of the context, and a prompt that
   * leaves nothing is refused in Anthropic's words, from which clients read both numbers. */
  bool clips_max_tokens;
  /* With `describe`: only the prompt is built, whatever its length, to be counted. */
  bool counts;

  /* ---- input; NULL = the body is one of chat or of completions already ---- */

  /* Loop thread, or a job of the lanes. Reads `root`, the body, checks what only this dialect has,
   * and appends the same request to `chat` as a JSON body of chat. The document is freed after the
   * call: what the answer repeats is copied into completion->arena, and kept at
   * completion->dialect_state. Unknown names go to field_unknown(reader, ...). Returns 0, or an
   * error with the place in the words of this dialect in reader->error. */
  int (*translate)(completion_t *completion, reader_t *reader, const json_t *root, buffer_t *chat);
  /* Not NULL: the body is no JSON, and a job of the lanes reads it. `open` runs before, on the loop
   * thread, while there is an exchange; returns false if memory is short. `unpack` appends a body
   * of completions, or with is_chat of chat, to `body`, and what it keeps goes to
   * completion->dialect_state; `spread` replaces the prompts that were read of it; `equip` adds to
   * the requests that were made of these, and may hold inputs back, though not all. Each returns 0
   * or an error in the intake. */
  bool (*open)(completion_t *completion);
  int (*unpack)(completion_t *completion, reader_t *reader, buffer_t *body);
  int (*spread)(completion_t *completion);
  int (*equip)(completion_t *completion);
  /* NULL, or whether `translate` waits for a disk, so that it must not run on the loop thread.
   * Looks at the bytes of the body alone; a true too much costs a job. */
  bool (*waits)(const completion_t *completion);
  /* An error that was found later, before the first byte of the answer: puts its `param`, a name of
   * chat such as messages[2].content, into the words of this dialect. NULL: the names are equal. */
  void (*rename)(const completion_t *completion, inferd_error_t *error);
  /* Not NULL: a request was read and checked like any other, and is not run now: takes the exchange
   * of the completion (completion_take_exchange) and releases it, or fails it. `translate` may have
   * set completion->dialect to a dialect that has it. Loop thread. */
  void (*take_over)(completion_t *completion);
  /* Not NULL: a request is built and described, not run: prints completion->reply from
   * inputs[].request and intake, which stay until the reply is sent. The constraint is not
   * compiled. Loop thread. Returns false if memory is short. The functions below are not called
   * then, but for `free`. */
  bool (*describe)(completion_t *completion);
  /* NULL, or what the reply goes on with when all of completion->reply, which is empty then, was
   * printed. Returns false if that was all. */
  bool (*describe_next)(completion_t *completion);

  /* ---- output ---- */

  /* Before the engine gets the request; may add response headers (exchange_header). Returns false
   * if memory is short. */
  bool (*prepare)(completion_t *completion);
  /* NULL, or: every choice is complete, and the answer is about to end. Returns true if a job has
   * to run before: it has set completion->settling, and calls completion_settled when it is done.
   * Then it is asked again. */
  bool (*settle)(completion_t *completion);
  /* Takes the next part of a choice, in order: server/parser/output.h says what the kinds mean. The
   * text is valid only during the call. If memory is short the writer says so in `failed`. */
  void (*take)(choice_t *choice, output_kind_t kind, const char *text, size_t length);
  /* NULL, or hears of each token before its text is taken. */
  void (*drawn)(choice_t *choice, const event_t *event);
  /* NULL, or: the request of an input has ended well. Calls input_submit for what comes next, of
   * this input or of others. Returns true if this one goes on, now or when another has ended: what
   * its choice has taken is dropped then. */
  bool (*again)(input_t *input);
  /* Stream: sends what was taken since the last call, if anything. `last`: the choice has ended;
   * choice->finish, stop_token_id and stop_string say why. May be called without new text. */
  void (*chunk)(choice_t *choice, bool last);
  void (*done)(completion_t *completion); /* stream: the end, behind the last chunk */
  /* Stream that has begun: sends the error and the end, by sse_send. Never fails the request: it
   * has failed. */
  void (*error)(completion_t *completion, const inferd_error_t *error);
  void (*ping)(completion_t *completion); /* stream: keeps an idle connection open */
  /* With `table`, or NULL. Pool: copies what the answer repeats of the body into the arena. Returns
   * false if memory is short. */
  bool (*keep)(completion_t *completion);
  /* With `table`, or NULL: an input is done, and its values are there. */
  void (*pooled)(input_t *input);
  /* No stream: makes completion->reply. Returns false if memory is short. */
  bool (*response)(completion_t *completion);
  /* The memory of the writer; NULL = it has none of its own. `held`: bytes of its buffers, which
   * the ledger counts for each choice. `free`: the answer needs them no more; may be called twice,
   * also without `translate` before. */
  size_t (*held)(const completion_t *completion);
  void (*free)(completion_t *completion);
};

extern const dialect_t text_dialect, chat_dialect; /* sse.c */

/* completion.c: takes a request of a route of this dialect. Loop thread; handlers call it. */
void completion_start(exchange_t *exchange, const dialect_t *dialect);

/* events.c: submits the input's request at the end of the turn. Called by `again`; by the end of a
 * job, which then calls completions_submit, as there is no turn. Both inside completions_enter. */
void input_submit(input_t *input);
void completions_submit(completions_t *live);
/* events.c: the job of `settle` has ended; completion->settling is false again. Loop thread, inside
 * completions_enter. */
void completion_settled(completion_t *completion);

/* sse.c: for `chunk`, `done`, `error` and `ping`. Gives complete frames to the transport; the first
 * ones begin the stream with the status 200. Does nothing if the client disconnected. */
void sse_send(completion_t *completion, const char *bytes, size_t length);
/* The same for a buffer, which stays the caller's. If the buffer has failed, the request fails
 * instead: a part of a frame must not be sent. */
void sse_send_buffer(completion_t *completion, buffer_t *frames);

/* Sums over prompts and choices, as `usage` of chat has them. */
typedef struct usage {
  int64_t prompt, cached; /* cached < prompt: the last token is always computed */
  int64_t floor;          /* of `cached`: what the floor of the prefix cache had */
  int64_t generated, reasoning;
} token_usage_t;
token_usage_t completion_usage(const completion_t *completion);
/* Appends a new random id: the prefix, and 24 letters and digits. */
void dialect_print_id(buffer_t *out, const char *prefix);
/* sse.c: appends ,"obfuscation":"..." so that the frame that begins at `begin` is a multiple of 32
 * bytes long, if the request asks for it. */
void dialect_pad(buffer_t *out, size_t begin, completion_t *completion);
/* chat_output.c: appends the id of the call that OUTPUT_CALL_BEGIN begins: the one that the model
 * gave it; else a new random one, call_ and 24 letters and digits, or for models whose template
 * wants it nine of these alone. */
void chat_print_call_id(buffer_t *out, const completion_t *completion);

#endif
