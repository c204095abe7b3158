/* ptx_run.h: runs launches from the PTX of their kernels, on the threads of the emulator. */
#ifndef TESTS_PTX_RUN_H
#define TESTS_PTX_RUN_H

#include "ptx_program.h"

namespace ptx {

/* Runs the PTX of a launch on the device memory as it is; false after a fault. */
bool run_program(const Program &program, const emu::Launch &launch, uint64_t *steps);
} // namespace ptx
#endif
