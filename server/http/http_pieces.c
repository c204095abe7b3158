/* http_pieces.c: replies that are printed while they are sent.
 *
 * Loop thread. A reply prints at most REPLY_TURN_BYTES in a turn of the loop, and all replies
 * together REPLIES_TURN_BYTES. A reply that may print nothing more in this turn is suspended and
 * waits in a list; the next turns resume as many of the list as they have bytes for.
 */
#include "engine/base/buffer.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "server/http/errand.h"
#include "server/http/http_exchange.h"

#include <stdlib.h>
#include <string.h>

enum {
  PIECE_BYTES = 64 * 1024,
  FIRST_BYTES = REPLY_TURN_BYTES - PIECE_EXCESS_MAX, /* printed before the library asks */
  SMALL_BYTES = 16 * 1024 /* printed at once, however much the turn has printed */
};

/* ---- turns ---- */

void pieces_count(http_exchange_t *exchange, size_t bytes) {
  http_t *http = exchange->http;
  if (exchange->turn != http->turn) exchange->turn_bytes = 0;
  exchange->turn = http->turn;
  exchange->turn_bytes += bytes;
  http->turn_bytes += bytes;
  http->reply_turn_max = MAX(http->reply_turn_max, exchange->turn_bytes);
  http->replies_turn_max = MAX(http->replies_turn_max, http->turn_bytes);
}

static bool may_print(const http_exchange_t *exchange) {
  const http_t *http = exchange->http;
  size_t printed = exchange->turn == http->turn ? exchange->turn_bytes : 0;
  return printed + PIECE_BYTES + PIECE_EXCESS_MAX <= REPLY_TURN_BYTES &&
         http->turn_bytes + PIECE_BYTES + PIECE_EXCESS_MAX <= REPLIES_TURN_BYTES;
}

static void wait_for_turn(http_exchange_t *exchange) {
  http_t *http = exchange->http;
  CHECK(!exchange->waits_for_turn);
  exchange->waits_for_turn = true;
  exchange->turn_after = NULL;
  exchange->turn_link = http->next_turn != NULL ? http->last_turn : &http->next_turn;
  *exchange->turn_link = exchange;
  http->last_turn = &exchange->turn_after;
  exchange_suspend(exchange);
}

static void leave_list(http_exchange_t *exchange) {
  http_exchange_t *after = exchange->turn_after;
  if (!exchange->waits_for_turn) return;
  *exchange->turn_link = after;
  *(after != NULL ? &after->turn_link : &exchange->http->last_turn) = exchange->turn_link;
  exchange->waits_for_turn = false;
}

void pieces_begin_turn(http_t *http) {
  http->turn++;
  http->turn_bytes = 0;
  for (size_t bytes = 0; http->next_turn != NULL && bytes < REPLIES_TURN_BYTES;
       bytes += REPLY_TURN_BYTES) {
    http_exchange_t *exchange = http->next_turn;
    leave_list(exchange);
    exchange_wake(exchange);
  }
}

/* ---- printing ---- */

static void free_pieces(http_exchange_t *exchange) {
  pieces_t pieces = exchange->pieces;
  exchange->pieces = (pieces_t){0};
  if (pieces.free != NULL) pieces.free(pieces.owner);
}

/* Prints the next piece into exchange->out, which is empty. Returns 0; ERR_OVERLOADED if the charge
 * does not fit, ERR_INTERNAL if memory is short. */
static int print_piece(http_exchange_t *exchange, size_t room) {
  buffer_t out = {.data = exchange->out, .capacity = exchange->out_capacity};
  charge_t *charge = &exchange->out_charge;
  /* A buffer grows by half of its size. */
  if (!charge_resize(charge, MAX(out.capacity, (room + PIECE_EXCESS_MAX) / 2 * 3))) {
    return ERR_OVERLOADED;
  }
  bool more = exchange->pieces.print(exchange->pieces.owner, &out, room);
  exchange->out = out.data;
  exchange->out_capacity = out.capacity;
  exchange->out_start = 0;
  exchange->out_end = out.length;
  exchange->bytes_out += out.length;
  (void)charge_resize(charge, out.capacity);
  CHECK_EQ(charge->bytes, out.capacity);
  pieces_count(exchange, out.length);
  if (!more && exchange->state != EXCHANGE_STREAMING) free_pieces(exchange);
  return out.failed ? ERR_INTERNAL : 0;
}

int pieces_fill(http_exchange_t *exchange) {
  if (!may_print(exchange)) {
    wait_for_turn(exchange);
    return 1;
  }
  if (print_piece(exchange, PIECE_BYTES) == 0) return 0;
  exchange->cause = "no_memory";
  return -1;
}

/* libmicrohttpd calls it for the next bytes. */
static ssize_t pieces_read(void *context, uint64_t position, char *buffer, size_t size) {
  (void)position;
  http_exchange_t *exchange = context;
  if (exchange->state == EXCHANGE_GONE) return MHD_CONTENT_READER_END_WITH_ERROR;
  exchange->progress_ms = uv_now(exchange->http->loop);
  if (exchange->out_start == exchange->out_end) {
    if (exchange->pieces.print == NULL) return MHD_CONTENT_READER_END_OF_STREAM;
    int code = pieces_fill(exchange);
    if (code != 0) return code > 0 ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
    if (exchange->out_end == 0) return MHD_CONTENT_READER_END_OF_STREAM;
  }
  size_t n = MIN(exchange->out_end - exchange->out_start, size);
  memcpy(buffer, exchange->out + exchange->out_start, n);
  exchange->out_start += n;
  exchange->given += n;
  return (ssize_t)n;
}

void exchange_reply_pieces(exchange_t *public, const char *content_type, pieces_t pieces) {
  http_exchange_t *exchange = (http_exchange_t *)public;
  if (public->is_errand) {
    errand_reply_pieces(public, pieces);
    return;
  }
  CHECK_EQ(exchange->state, EXCHANGE_HANDLING);
  exchange->pieces = pieces;
  ledger_t *ledger = exchange->spare ? NULL : exchange->http->server->ledger;
  exchange->out_charge = charge_open(ledger, public->source, LEDGER_reply);
  bool small = exchange->http->turn_bytes + REPLY_TURN_BYTES > REPLIES_TURN_BYTES;
  int code = print_piece(exchange, small ? SMALL_BYTES : FIRST_BYTES);
  if (code != 0) {
    inferd_error_t error;
    free_pieces(exchange);
    if (code == ERR_OVERLOADED) {
      (void)ledger_refuse(&exchange->out_charge, &error);
    } else {
      error_set(&error, code, NULL, "Out of memory.");
    }
    exchange_error(public, &error);
    return;
  }
  bool whole = exchange->pieces.print == NULL;
  bool made = whole ? reply_make_out(exchange, content_type)
                    : reply_make_pieces(exchange, content_type, pieces_read);
  exchange_answered(exchange, made, EXCHANGE_ANSWERED);
}

void pieces_free(http_exchange_t *exchange) {
  leave_list(exchange);
  free_pieces(exchange);
  free(exchange->out);
  charge_drop(&exchange->out_charge);
}
