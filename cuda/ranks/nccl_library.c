/* nccl_library.c: finds NCCL on the machine, without being linked to it.
 *
 * Engine thread, once at start, and only with several ranks. Functions of the program itself have
 * precedence: tests replace the library in this way.
 */
#include "cuda/ranks/nccl.h"
#include "engine/base/util.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char LIBRARY[] = "libnccl.so.2";

bool nccl_library_open(nccl_api_t *api, char *why, size_t why_size) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {
      {"ncclGetVersion", &api->version},
      {"ncclGetUniqueId", &api->unique_id},
      {"ncclCommInitRank", &api->init},
      {"ncclCommDestroy", &api->destroy},
      {"ncclCommAbort", &api->abort},
      {"ncclCommGetAsyncError", &api->async_error},
      {"ncclGetErrorString", &api->error_string},
      {"ncclAllGather", &api->all_gather},
      {"ncclBroadcast", &api->broadcast},
      {"ncclSend", &api->send},
      {"ncclRecv", &api->receive},
      {"ncclGroupStart", &api->group_start},
      {"ncclGroupEnd", &api->group_end},
  };
  memset(api, 0, sizeof *api);
  const bool is_inside = dlsym(RTLD_DEFAULT, functions[0].name) != NULL;
  /* Its code stays when it is closed: threads may still be in it. */
  if (!is_inside) api->handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!is_inside && api->handle == NULL) {
    snprintf(why, why_size, "%s", dlerror());
    return false;
  }
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(is_inside ? RTLD_DEFAULT : api->handle, functions[i].name);
    if (found == NULL) {
      snprintf(why, why_size, "%s has no %s", LIBRARY, functions[i].name);
      nccl_library_close(api);
      return false;
    }
    memcpy(functions[i].to, &found, sizeof found);
  }
  return true;
}

void nccl_library_close(nccl_api_t *api) {
  if (api->handle != NULL) dlclose(api->handle);
  memset(api, 0, sizeof *api);
}
