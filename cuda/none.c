/* none.c: the CUDA back end of a build without CUDA.
 *
 * A file without CUDA that implements the `ops` table, so that callers need no #ifdef. `open`
 * always fails, with a reason, on any thread. The other functions are never called, because there
 * is no device.
 */
#include "engine/device/ops.h"

static int none_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  (void)options;
  *out = NULL;
  return error_set(error, ERR_CONFIGURATION, "device",
                   "this build has no CUDA back end: there was no nvcc when it was made");
}

const ops_t ops_cuda = {.name = "cuda", .open = none_open};
