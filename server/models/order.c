/* order.c: a request of the parent to the process of a model, to sleep or to wake up.
 *
 * Loop thread of the parent; see order.h. It knows a path of a socket and nothing of models.
 */
#include "server/models/order.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_BYTES_MAX = 16 * 1024, ORDER_S = 120 };

static void on_closed(uv_handle_t *handle) {
  order_t *order = handle->data;
  buffer_free(&order->answer);
  order->open = false;
  order->closed(order);
}

void order_end(order_t *order) {
  uv_handle_t *handle = (uv_handle_t *)&order->pipe;
  if (order->open && !uv_is_closing(handle)) uv_close(handle, on_closed);
}

/* What the answer says of a failure. */
static void read_reason(const order_t *order, char out[ORDER_REASON_MAX]) {
  const char *what = order->sleeps ? "sleep" : "wake up";
  const buffer_t *answer = &order->answer;
  const char *body =
      answer->length > 0 ? memmem(answer->data, answer->length, "\r\n\r\n", 4) : NULL;
  json_doc_t *doc = NULL;
  inferd_error_t error;
  snprintf(out, ORDER_REASON_MAX, "it does not %s", what);
  if (body == NULL) return;
  size_t length = answer->length - (size_t)(body + 4 - answer->data);
  if (json_parse(body + 4, length, &json_limits_request, &doc, &error) != 0) return;
  const json_t *fault = json_get(json_root(doc), "error");
  const json_t *message = fault != NULL ? json_get(fault, "message") : NULL;
  if (message != NULL)
    snprintf(out, ORDER_REASON_MAX, "it does not %s: %.*s", what,
             message->length < 300 ? (int)message->length : 300, message->text);
  json_free(doc);
}

static void finish(order_t *order) {
  static const char ok[] = "HTTP/1.1 200 ";
  char reason[ORDER_REASON_MAX];
  bool good = order->answer.length > sizeof ok && !order->answer.failed &&
              memcmp(order->answer.data, ok, sizeof ok - 1) == 0;
  if (!good) read_reason(order, reason);
  order_end(order);
  order->done(order, good ? NULL : reason);
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out) {
  static char room[4096];
  (void)handle, (void)wanted;
  *out = uv_buf_init(room, sizeof room);
}

static void on_bytes(uv_stream_t *stream, ssize_t got, const uv_buf_t *bytes) {
  order_t *order = stream->data;
  if (got < 0)
    finish(order);
  else if (order->answer.length + (size_t)got <= ANSWER_BYTES_MAX)
    buffer_append(&order->answer, bytes->base, (size_t)got);
}

void order_tick(order_t *order, uint64_t now_ns) {
  bool late = order->open && now_ns >= order->until_ns;
  if (late && !uv_is_closing((uv_handle_t *)&order->pipe)) finish(order);
}

static int connect_to(order_t *order, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  int code = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
  if (code == 0) code = uv_pipe_open(&order->pipe, fd);
  if (code != 0) close(fd);
  return code;
}

bool order_give(order_t *order, uv_loop_t *loop, const char *socket) {
  char text[160];
  int length = snprintf(text, sizeof text,
                        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                        "Connection: close\r\n\r\n",
                        order->sleeps ? "/sleep?level=1" : "/wake_up");
  order->open = true;
  order->until_ns = clock_now_ns() + ORDER_S * 1000000000ull;
  uv_pipe_init(loop, &order->pipe, 0);
  order->pipe.data = order;
  uv_buf_t part = uv_buf_init(text, (unsigned)length);
  int code = connect_to(order, socket);
  /* A new connection takes so much at once. */
  if (code == 0 && uv_try_write((uv_stream_t *)&order->pipe, &part, 1) != length) code = -EIO;
  if (code == 0) code = uv_read_start((uv_stream_t *)&order->pipe, on_room, on_bytes);
  if (code != 0) order_end(order);
  return code == 0;
}
