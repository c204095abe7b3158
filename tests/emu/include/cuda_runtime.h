/* cuda_runtime.h: stands where the toolkit's header would, so that C++ sources name one header.
 *
 * Types, the part of the runtime that the fake one implements, and, in C++, what kernels see.
 * It must be found before a real toolkit's header: the emulated build adds no other directory.
 */
#ifndef EMU_INCLUDE_CUDA_RUNTIME_H
#define EMU_INCLUDE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#ifdef __cplusplus
#include "../emu_types.h"

#include "../emu_engine.h"

#include "../emu_device.h"

#include "../emu_arithmetic.h"

#include "../emu_launch.h"
#endif

#endif
