/* zmq_api.c: finds libzmq on the machine. Main thread, at start and at the end. */
#include "server/kv_events/zmq_api.h"

#include "engine/base/util.h"

#include <dlfcn.h>
#include <string.h>

int zmq_api_open(zmq_api_t *out, inferd_error_t *error) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {
      {"zmq_ctx_new", &out->ctx_new}, {"zmq_ctx_term", &out->ctx_term},
      {"zmq_socket", &out->socket},   {"zmq_close", &out->close},
      {"zmq_setsockopt", &out->set},  {"zmq_getsockopt", &out->get},
      {"zmq_bind", &out->bind},       {"zmq_connect", &out->connect},
      {"zmq_send", &out->send},       {"zmq_recv", &out->recv},
      {"zmq_poll", &out->poll},       {"zmq_errno", &out->number},
      {"zmq_strerror", &out->text},
  };
  memset(out, 0, sizeof *out);
  out->handle = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  if (out->handle == NULL)
    return error_set(error, ERR_CONFIGURATION, "kv_events_endpoint",
                     "kv_events_endpoint is set, and libzmq.so.5 cannot be opened; install "
                     "libzmq5, or leave the option out");
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(out->handle, functions[i].name);
    if (found == NULL) {
      zmq_api_close(out);
      return error_set(error, ERR_CONFIGURATION, "kv_events_endpoint",
                       "libzmq.so.5 has no %s: it is too old for kv_events_endpoint",
                       functions[i].name);
    }
    memcpy(functions[i].to, &found, sizeof found);
  }
  return 0;
}

void zmq_api_close(zmq_api_t *api) {
  if (api->handle != NULL) dlclose(api->handle);
  memset(api, 0, sizeof *api);
}
