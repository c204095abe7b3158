/* backend.h: the back ends, by the names that --device gives them.
 *
 * The rest of the engine knows a back end by its ops_t only. Any thread; no state.
 */
#ifndef INFERD_ENGINE_BACKEND_H
#define INFERD_ENGINE_BACKEND_H

#include "engine/device/ops.h"

typedef struct backend_choice {
  const ops_t *ops[2];   /* to be opened in this order, until one opens; [1] NULL = no other */
  const ops_t *expected; /* the one that will be opened, as far as a cheap look can tell */
  int32_t device_index;  /* which of several GPUs */
} backend_choice_t;

/* `device` is "auto" (a GPU where there is one, else the CPU), "cpu", "cuda" or "cuda:N"; NULL
 * stands for "auto". 0, or ERR_CONFIGURATION for any other text. */
int backend_choose(const char *device, backend_choice_t *out, inferd_error_t *error);

#endif
