/* ptx_run.h: runs launches from the PTX of their kernels, on the threads of the emulator. */
#ifndef TESTS_PTX_RUN_H
#define TESTS_PTX_RUN_H

#include "ptx_banks.h"

namespace ptx {

/* What a launch took: instructions of all threads, wavefronts of block (0, 0, 0). */
struct Work {
  uint64_t steps;
  BankCount banks;
};

/* Runs the PTX of a launch on the device memory as it is; false after a fault. */
bool run_program(const Program &program, const emu::Launch &launch, Work *work);

} // namespace ptx
#endif
