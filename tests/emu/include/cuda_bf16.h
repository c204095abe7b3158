/* cuda_bf16.h: stands where the toolkit's header would; the type is in emu_types.h. */
#include "cuda_runtime.h"
