/* http_exchange.h: one request and its answer, as the http*.c files see it. Loop thread only.
 *
 * Handlers see only the part that http.h declares. An exchange is READING its body, then HANDLING;
 * a single reply makes it ANSWERED, a stream makes it STREAMING and then ENDING. It may become GONE
 * from every state. */
#ifndef INFERD_SERVER_HTTP_HTTP_EXCHANGE_H
#define INFERD_SERVER_HTTP_HTTP_EXCHANGE_H

#include "server/http/http_internal.h"
#include "server/trace/trace.h"

enum {
  HEADERS_MAX = 13
}; /* response headers beyond those of every answer, as the page and models have */

/* exchange_move has the table of the allowed changes. */
typedef enum exchange_state {
  EXCHANGE_READING,   /* the body is arriving */
  EXCHANGE_HANDLING,  /* the handler owns the answer */
  EXCHANGE_ANSWERED,  /* a whole response exists */
  EXCHANGE_STREAMING, /* the handler writes */
  EXCHANGE_ENDING,    /* the stream is complete; its last bytes wait for the socket */
  EXCHANGE_GONE       /* the connection is, or will be, cut */
} exchange_state_t;

typedef struct header {
  char *name, *value;
} header_t;

/* The client's own socket, which the parent of this process has lent (http_loan.c). */
typedef enum loan_state {
  LOAN_NONE,
  LOAN_OFFERED,
  LOAN_ASKED, /* nothing is written until the parent has answered */
  LOAN_TAKEN  /* chunks are written to the socket */
} loan_state_t;
typedef struct loan {
  watch_kind_t kind; /* first */
  loan_state_t state;
  int fd;    /* LOAN_NONE: -1 */
  bool told; /* the parent knows that a chunk may be half sent */
  http_exchange_t *exchange;
} loan_t;

struct http_exchange {
  exchange_t public; /* first: handlers hold a pointer to this */
  struct http *http;
  connection_t *connection;
  struct MHD_Connection *mhd;
  exchange_state_t state;
  struct MHD_Response *response; /* made, not yet queued */
  int status;
  bool in_handler;
  bool suspended; /* by us; libmicrohttpd aborts the process if a running connection is resumed */
  bool counted;   /* in http->in_flight */
  bool close;     /* the connection ends with this answer */
  const char *cause; /* why it ended early; static text */
  const char
      *doom; /* not NULL: cut the connection at the start of the next pump, for this reason */
  http_exchange_t *next_doomed;
  const char *code;            /* error code for the log */
  char param[ERROR_PARAM_MAX]; /* the field at fault, for the log; "" = none */
  trace_context_t trace;
  char *tail;
  char *path;            /* without a route: for the log, printable and cut, without the query */
  const char *allow;     /* of a 405 and of OPTIONS */
  const char *origin;    /* Origin header that CORS allows; points into the connection's memory */
  uint64_t start_ns;     /* headers complete */
  uint64_t given_source; /* by the parent of this process; 0 = none */
  held_t body;           /* what has arrived; a NUL follows it */
  size_t body_capacity;  /* of the block */
  size_t body_limit;
  pace_t body_pace;
  header_t headers[HEADERS_MAX];
  int header_count;
  char *out; /* stream, pieces: bytes out_start..out_end wait for the socket */
  size_t out_start, out_end, out_capacity;
  charge_t out_charge; /* of out_capacity */
  char *head;          /* of a stream, kept until its first chunk is sent; NULL = not */
  size_t head_length;
  bool spare;                  /* counts in http->spare_answers, and its output in no charge */
  pieces_t pieces;             /* print NULL: none, or all was printed */
  bool waits_for_turn;         /* in the list http->next_turn, and suspended */
  http_exchange_t *turn_after; /* in that list */
  http_exchange_t **turn_link; /* what points to this exchange there */
  uint64_t turn;               /* of the loop, in which the last piece was printed */
  size_t turn_bytes;           /* printed in it */
  uint64_t progress_ms;        /* when the socket last accepted bytes, or the client took some */
  uint64_t over_limit_ms;      /* since when more waits than the buffer holds; 0: less */
  bool room_given;             /* back to the system: what a stream does not need to be sent */
  uint64_t given;              /* bytes that streams and pieces have given to libmicrohttpd */
  uint64_t taken;              /* bytes that the client has taken, as far as was seen */
  pace_t pace;                 /* of `taken`, while bytes wait for the client */
  uint64_t bytes_in, bytes_out;
  bool chunked;  /* a stream whose bytes libmicrohttpd sends in chunks */
  bool parked;   /* suspended, and the library has sent all it was given (http_direct.c) */
  size_t framed; /* bytes at out_start that are framed, and wait for the socket */
  void (*on_sent)(exchange_t *exchange); /* exchange_when_sent; NULL = nobody waits */
  loan_t loan;
  struct parcel *parcel; /* with the sender; NULL: none */
  bool awaits_parcel;    /* has something to do when it comes back; in http->num_awaiting */
  http_exchange_t *ready_after, **ready_link; /* in the list http->ready; link NULL: not there */
};

/* http_check.c: checks a request before its body is read. Returns 0, or the ERR_ of the first check
 * that failed. Sets route, tail, tenant and body_limit. */
int check_request(http_exchange_t *exchange, const char *path, inferd_error_t *error);
/* Checks the state of the server (loading, failed, draining) again when the body is complete. */
int check_state(const http_exchange_t *exchange, inferd_error_t *error);
/* Returns true if the headers announce a body. */
bool check_has_body(const http_exchange_t *exchange);

/* http_exchange.c */
void request_id_draw(char id[REQUEST_ID_MAX + 1]); /* a random one */
/* Ends a request while its body arrives: writes the error to the socket. Returns MHD_NO. */
enum MHD_Result exchange_refuse_body(http_exchange_t *exchange, const inferd_error_t *error);
enum MHD_Result exchange_access(void *context, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_size, void **request_context);
void exchange_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                        enum MHD_RequestTerminationCode how);
void exchange_cut(http_exchange_t *exchange, const char *cause);
void exchange_cut_doomed(http_t *http);
void exchange_move(http_exchange_t *exchange,
                   exchange_state_t to); /* the only function that changes the state */
void exchange_suspend(http_exchange_t *exchange);
void exchange_wake(http_exchange_t *exchange); /* resumes; harmless when not suspended */
/* Calls the handler's on_gone, at most once: the client will not read the answer. */
void exchange_tell_gone(http_exchange_t *exchange, const char *cause);
void exchange_doom(http_exchange_t *exchange, const char *cause); /* cut before the next pump */

/* http_answer.c */
/* To be called when the response was made, or could not be. The response is sent now, or when the
 * handler returns. */
void exchange_answered(http_exchange_t *exchange, bool made, exchange_state_t state);
void exchange_shutdown(http_exchange_t *exchange);     /* http_abort of one exchange */
bool out_grow(http_exchange_t *exchange, size_t more); /* room behind out_end; false: no memory */
void out_emptied(http_exchange_t *exchange);           /* nothing waits in exchange->out any more */
void exchange_tell_sent(http_exchange_t *exchange);    /* calls on_sent, if somebody waits */
/* libmicrohttpd must ask the stream once more, because its buffer is larger than need be. */
bool stream_wants_room_back(const http_exchange_t *exchange);

/* http_loan.c */
/* As gate_receive; keeps a descriptor that comes along for the next request of the connection. */
ssize_t loan_receive(connection_t *connection, char *bytes, size_t length, int flags);
void loan_begin(http_exchange_t *exchange); /* takes the descriptor that came with the request */
/* A stream is parked. Returns true if the socket lent was asked for: until loan_answer nothing is
 * written. */
bool loan_ask(http_exchange_t *exchange);
void loan_answer(http_exchange_t *exchange); /* the connection has something to read */
/* The socket lent has taken a part of a chunk, or nothing, and is watched for room; or no longer.
 */
void loan_watch(http_exchange_t *exchange, bool wait);
void loan_end(http_exchange_t *exchange); /* closes the socket lent, if there is one */
void loan_cut(http_exchange_t *exchange); /* says that the stream on the socket lent is cut */

/* http_pieces.c */
void pieces_begin_turn(http_t *http); /* resumes the replies whose turn it is */
/* Prints the next piece into exchange->out, which is empty. Returns 0; 1 if that must wait for the
 * next turn, and the exchange is suspended; -1 if memory is short: the connection must end. */
int pieces_fill(http_exchange_t *exchange);
void pieces_free(http_exchange_t *exchange);
/* Counts bytes of a reply that were printed in this turn. */
void pieces_count(http_exchange_t *exchange, size_t bytes);

/* http_reply.c: the response with every header that belongs to it; false when memory is short */
bool reply_make(http_exchange_t *exchange, int status, const char *content_type, char *body,
                size_t length);
/* The same with bytes that live as long as the process. */
bool reply_make_fixed(http_exchange_t *exchange, int status, const char *type, const void *bytes,
                      size_t length);
/* The same for the bytes in exchange->out, which still belong to the exchange. */
bool reply_make_out(http_exchange_t *exchange, const char *content_type);
bool reply_make_stream(http_exchange_t *exchange, MHD_ContentReaderCallback reader);
/* A body whose length is not known before its end. */
bool reply_make_pieces(http_exchange_t *exchange, const char *content_type,
                       MHD_ContentReaderCallback reader);
bool reply_make_error(http_exchange_t *exchange, const inferd_error_t *error);

#endif
