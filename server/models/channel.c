/* channel.c: a connection to the process of a model.
 *
 * Loop thread of the parent. A channel has one request at a time and is kept for the next, so most
 * requests open none. A request is sent in the turn in which it was read. Here ends what is idle
 * for IDLE_NS; the child would keep it for longer, so no request goes to a channel that is being
 * closed.
 */
#include "server/models/models_internal.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, IDLE_NS = 1000000000 };

/* ---- the end ---- */

static void free_sent(channel_t *channel) {
  free(channel->head);
  channel->head = NULL;
  held_free(&channel->body);
}

static void on_closed(uv_handle_t *handle) {
  channel_t *channel = handle->data;
  models_t *models = channel->models;
  free_sent(channel);
  free(channel);
  models_handle_closed(models);
}

static void leave_idle(channel_t *channel) {
  if (channel->link == NULL) return;
  *channel->link = channel->next;
  if (channel->next != NULL) channel->next->link = channel->link;
  channel->link = NULL;
}

static void channel_close(channel_t *channel) {
  leave_idle(channel);
  channel->passage = NULL;
  if (!uv_is_closing((uv_handle_t *)&channel->pipe))
    uv_close((uv_handle_t *)&channel->pipe, on_closed);
}

void channel_leave(channel_t *channel, served_t *model, bool keep) {
  child_t *child = &model->child;
  channel->passage = NULL;
  if (!keep || channel->writing || !child->runs || child->asked_to_end) {
    channel_close(channel);
    return;
  }
  channel->idle_ns = clock_now_ns();
  channel->next = child->idle;
  channel->link = &child->idle;
  if (channel->next != NULL) channel->next->link = &channel->next;
  child->idle = channel;
}

void channels_close(child_t *child, uint64_t now_ns) {
  for (channel_t *channel = child->idle, *next; channel != NULL; channel = next) {
    next = channel->next;
    if (now_ns - channel->idle_ns >= IDLE_NS) channel_close(channel);
  }
}

/* ---- reading ---- */

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out) {
  static char room[READ_BYTES];
  const channel_t *channel = handle->data;
  (void)wanted;
  size_t most = (size_t)channel->models->server->config->stream_buffer_bytes / 2;
  *out = uv_buf_init(room, (unsigned)MIN(sizeof room, most));
}

/* A channel without a request has nothing to say: it has ended, or is out of step. */
static void on_bytes(uv_stream_t *stream, ssize_t got, const uv_buf_t *bytes) {
  channel_t *channel = stream->data;
  if (got == 0) return;
  if (channel->passage == NULL)
    channel_close(channel);
  else
    passage_read(channel->passage, bytes->base, got);
}

void channel_read(channel_t *channel, bool on) {
  if (on)
    uv_read_start((uv_stream_t *)&channel->pipe, on_room, on_bytes);
  else
    uv_read_stop((uv_stream_t *)&channel->pipe);
}

/* ---- a request ---- */

static int channel_connect(channel_t *channel, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  int code = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
  if (code == 0) code = uv_pipe_open(&channel->pipe, fd);
  if (code != 0) close(fd);
  return code;
}

int channel_take(passage_t *passage, channel_t **out) {
  child_t *child = &passage->model->child;
  models_t *models = passage->model->models;
  channel_t *channel = child->idle;
  *out = NULL;
  if (channel != NULL) {
    leave_idle(channel);
  } else {
    channel = calloc(1, sizeof *channel);
    if (channel == NULL) return -ENOMEM;
    channel->models = models;
    uv_pipe_init(models->server->loop, &channel->pipe, 0);
    models->open_handles++;
    channel->pipe.data = channel->write.data = channel;
    int code = channel_connect(channel, child->socket);
    if (code != 0) {
      channel_close(channel);
      return code;
    }
    channel_read(channel, true);
  }
  channel->passage = passage;
  *out = channel;
  return 0;
}

static void on_written(uv_write_t *write, int status) {
  channel_t *channel = write->data;
  (void)status; /* what is wrong is seen by the reader, behind what the child has said before */
  channel->writing = false;
  free_sent(channel);
}

/* Sends what the socket takes at once, and the descriptor with its first byte. */
static ssize_t send_first(int fd, const uv_buf_t parts[2], int lent) {
  union {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof lent)];
  } control = {0};
  struct iovec data[2] = {{parts[0].base, parts[0].len}, {parts[1].base, parts[1].len}};
  struct msghdr message = {.msg_iov = data, .msg_iovlen = 2};
  if (lent >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof lent);
    memcpy(CMSG_DATA(&control.header), &lent, sizeof lent);
  }
  return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int channel_send(channel_t *channel, buffer_t *head, held_t *body, int lent) {
  size_t length = 0;
  uv_os_fd_t fd;
  channel->head = buffer_detach(head, &length);
  channel->body = *body;
  channel->body.charge = charge_move(&body->charge);
  *body = (held_t){0};
  if (channel->head == NULL) return -ENOMEM;
  uv_buf_t parts[2] = {uv_buf_init(channel->head, (unsigned)length),
                       uv_buf_init(channel->body.bytes, (unsigned)channel->body.length)};
  int code = uv_fileno((uv_handle_t *)&channel->pipe, &fd);
  if (code != 0) return code;
  ssize_t sent = send_first(fd, parts, lent);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    code = -errno;
    *body = channel->body;
    body->charge = charge_move(&channel->body.charge);
    channel->body = (held_t){0};
    return code;
  }
  for (int i = 0; i < 2 && sent > 0; i++) {
    size_t n = MIN((size_t)sent, parts[i].len);
    parts[i].base += n;
    parts[i].len -= n;
    sent -= (ssize_t)n;
  }
  if (parts[0].len + parts[1].len == 0) {
    free_sent(channel);
    return 0;
  }
  channel->writing = true;
  return uv_write(&channel->write, (uv_stream_t *)&channel->pipe, parts, 2, on_written);
}

bool channel_grant(channel_t *channel) {
  const char byte = LOAN_GRANT;
  uv_os_fd_t fd;
  return uv_fileno((uv_handle_t *)&channel->pipe, &fd) == 0 &&
         send(fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}
