/* ptx_banks.h: how long the accesses of warps to shared memory take, in wavefronts.
 *
 * Shared memory has 32 banks of 4 bytes. 32 lanes with 4 bytes each, 16 with 8 or 8 with 16 are
 * served at once, unless they want different words of a bank: each further word there is a
 * wavefront more. Only block (0, 0, 0) of a launch is counted; of atomics, the bytes alone.
 */
#ifndef TESTS_PTX_BANKS_H
#define TESTS_PTX_BANKS_H

#include "ptx_program.h"

namespace ptx {

/* Wavefronts of the accesses so far, and what they would be without a conflict. */
struct BankCount {
  uint64_t wavefronts, ideal;
};

/* Forgets everything; the next launch begins. */
void banks_begin();
/* A thread of block (0, 0, 0) accesses `size` bytes at an offset in shared memory. */
void banks_note(const Instruction &i, uint32_t thread, uint32_t address, uint32_t size);
BankCount banks_end();

} // namespace ptx
#endif
