/* backend.c: see backend.h. The only file of the product that names the back ends. */
#include "engine/backend.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICE_INDEX_DIGITS_MAX = 4 };

/* The number N of "cuda:N", 0 for "cuda"; -1 = neither. */
static int32_t cuda_index(const char *device) {
  if (strcmp(device, "cuda") == 0) return 0;
  if (strncmp(device, "cuda:", 5) != 0) return -1;
  const char *digits = device + 5;
  size_t length = strspn(digits, "0123456789");
  if (length == 0 || length > DEVICE_INDEX_DIGITS_MAX || digits[length] != '\0') return -1;
  return (int32_t)strtol(digits, NULL, 10);
}

int backend_choose(const char *device, backend_choice_t *out, inferd_error_t *error) {
  *out = (backend_choice_t){0};
  if (device == NULL || strcmp(device, "auto") == 0) {
    out->ops[0] = &ops_cuda;
    out->ops[1] = &ops_cpu;
    bool has_gpu = ops_cuda.available != NULL && ops_cuda.available(0);
    out->expected = has_gpu ? &ops_cuda : &ops_cpu;
    return 0;
  }
  int32_t index = cuda_index(device);
  if (index < 0 && strcmp(device, "cpu") != 0) {
    return error_set(error, ERR_CONFIGURATION, "device",
                     "device is \"%s\"; supported: auto, cpu, cuda, cuda:N", device);
  }
  out->ops[0] = out->expected = index < 0 ? &ops_cpu : &ops_cuda;
  out->device_index = index < 0 ? 0 : index;
  return 0;
}
