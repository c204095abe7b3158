/* none.c: the CUDA back end of a build without CUDA.
 *
 * The null file behind the `ops` seam: callers need no #ifdef. `open` refuses with a reason on
 * whatever thread asks; nothing else is ever called, because no device is ever made.
 */
#include "engine/device/ops.h"

static int none_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  (void)options;
  *out = NULL;
  return error_set(error, ERR_CONFIGURATION, "device",
                   "this build has no CUDA back end: there was no nvcc when it was made");
}

const ops_t ops_cuda = {.name = "cuda", .open = none_open};
