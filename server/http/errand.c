/* errand.c: an exchange without a connection, see errand.h. Loop thread; never touches a socket. */
#include "server/http/errand.h"

#include "engine/base/buffer.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdlib.h>

static errand_t *errand_of(exchange_t *public) {
  CHECK(public->is_errand);
  return (errand_t *)public;
}

static void end(errand_t *errand, const inferd_error_t *error) {
  errand->public.on_gone = NULL;
  errand->ended(errand, error);
}

bool errand_comes_again(int status) {
  return status == 429 || status == 503 || status == 507;
}

void errand_stop(errand_t *errand, const char *cause) {
  void (*on_gone)(exchange_t *, const char *) = errand->public.on_gone;
  errand->public.on_gone = NULL;
  if (on_gone != NULL) on_gone(&errand->public, cause);
}

void errand_free(errand_t *errand) {
  pieces_t pieces = errand->pieces;
  errand->pieces = (pieces_t){0};
  if (pieces.free != NULL) pieces.free(pieces.owner);
  held_free(&errand->body);
}

bool errand_take_body(exchange_t *public, held_t *out) {
  errand_t *errand = errand_of(public);
  *out = errand->body;
  out->charge = charge_move(&errand->body.charge);
  errand->body = (held_t){0};
  public->body = "";
  public->body_length = 0;
  return true;
}

void errand_reply(exchange_t *public) {
  end(errand_of(public), NULL);
}

/* Without `keeps` the owner has the answer already, or wants its end alone: nothing is printed. */
void errand_reply_pieces(exchange_t *public, pieces_t pieces) {
  errand_t *errand = errand_of(public);
  if (errand->keeps) errand->pieces = pieces;
  bool keeps = errand->keeps;
  end(errand, NULL);
  if (!keeps) pieces.free(pieces.owner);
}

/* An answer that lies in memory as a whole. */
typedef struct whole {
  char *text;
  size_t length, at;
} whole_t;

static bool print_whole(void *owner, buffer_t *out, size_t room) {
  whole_t *whole = owner;
  size_t more = MIN(room, whole->length - whole->at);
  buffer_append(out, whole->text + whole->at, more);
  whole->at += more;
  return whole->at < whole->length;
}

static void free_whole(void *owner) {
  whole_t *whole = owner;
  free(whole->text);
  free(whole);
}

void errand_reply_text(exchange_t *public, int status, char *text, size_t length) {
  whole_t *whole = malloc(sizeof *whole);
  if (whole == NULL) {
    inferd_error_t error;
    free(text);
    error_set(&error, ERR_OVERLOADED, NULL, "Out of memory.");
    end(errand_of(public), &error);
    return;
  }
  *whole = (whole_t){.text = text, .length = length};
  errand_of(public)->status = status;
  errand_reply_pieces(public, (pieces_t){.print = print_whole, .free = free_whole, .owner = whole});
}

void errand_fail(exchange_t *public, const inferd_error_t *error) {
  end(errand_of(public), error);
}

void errand_stream_pieces(exchange_t *public, pieces_t pieces) {
  errand_t *errand = errand_of(public);
  CHECK(errand->pieces.print == NULL);
  errand->streams = true;
  errand->pieces = pieces;
  errand->prints(errand);
}

void errand_stream_more(exchange_t *public) {
  errand_of(public)->prints(errand_of(public));
}

bool errand_write(exchange_t *public, const char *bytes, size_t length) {
  errand_t *errand = errand_of(public);
  if (errand->overflowed) return false;
  errand->overflowed = !errand->wrote(errand, bytes, length);
  return !errand->overflowed;
}
