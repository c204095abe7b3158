/* answer.h: what a server sends back for one request, read as it arrives.
 *
 * Knows nothing of sockets or clocks: the caller says when bytes came. Not shared between threads.
 */
#ifndef INFERD_SERVER_BENCH_ANSWER_H
#define INFERD_SERVER_BENCH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct answer {
  bool stream; /* set by the caller: SSE expected */
  int status;  /* set by the caller before the first feed; 200 = the body is an answer */
  void (*on_gap)(void *context, double gap_ms); /* between two tokens of this stream, or NULL */
  void *context;

  bool failed, done;          /* an error object came; [DONE] came */
  bool has_usage;             /* token counts are the server's own */
  int num_chunks;             /* chunks that stand for a token */
  uint64_t first_ns, last_ns; /* first token; last token or finishing chunk; 0 = none */
  int prompt_tokens, cached_tokens, output_tokens;
  char error[256]; /* why it is not a good answer; "" = none known */

  char *bytes; /* unfinished line of a stream, or the whole body */
  size_t length, capacity;
} answer_t;

/* Bytes that arrived at `now_ns`. */
void answer_feed(answer_t *answer, const char *bytes, size_t count, uint64_t now_ns);
/* The body is complete. True: a whole answer with at least one token; otherwise `error` says what
 * is wrong. Without usage from the server the chunks are counted as tokens. */
bool answer_end(answer_t *answer, uint64_t now_ns);
void answer_free(answer_t *answer);

#endif
