/* order.h: what the parent tells the process of a model: to sleep, or to wake up.
 *
 * Loop thread of the parent. One request to /sleep or /wake_up of the child on a connection of its
 * own, whose answer comes when it is done.
 */
#ifndef INFERD_SERVER_MODELS_ORDER_H
#define INFERD_SERVER_MODELS_ORDER_H

#include "engine/base/buffer.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { ORDER_REASON_MAX = 360 };

typedef struct order order_t;
struct order {
  uv_pipe_t pipe;
  bool open;   /* the handle */
  bool sleeps; /* it shall sleep, or wake up */
  uint64_t until_ns;
  buffer_t answer;
  void *owner;
  /* Once; `reason` NULL: it is done, else why it is not. Not after order_end. */
  void (*done)(order_t *order, const char *reason);
  void (*closed)(order_t *order); /* the last: the handle is closed */
};

/* Gives an order that has sleeps, owner, done and closed; `closed` follows in any case. False: it
 * could not be given, and `done` is not called. */
bool order_give(order_t *order, uv_loop_t *loop, const char *socket);
void order_end(order_t *order);                   /* closes its connection, if there is one */
void order_tick(order_t *order, uint64_t now_ns); /* what is late has failed */

#endif
