/* kernels_amx.c: no such tier yet. */
#include "engine/cpu/kernels.h"
const kernels_t *const kernels_amx = NULL;
