/* emu_check.h: where the emulator tells the checker of the `check` flavour what happens.
 *
 * In the other flavours nothing of it remains. emu_check.cc says what is checked.
 */
#ifndef EMU_CHECK_H
#define EMU_CHECK_H

#include "emu_core.h"

namespace emu {

#if defined(EMU_CHECK)
void check_launch();
void check_block(Block *b);
void check_block_sync(Block *b);
void check_warp_sync(Warp *w);
/* Device memory that was just allocated. */
void check_memory(const void *p, size_t size);
/* Shared memory of a running block whose value is on its way (false) or has come. */
void check_filled(const void *p, size_t size, bool filled);
/* Shared memory that a product in flight reads from now on (true) or has read. */
void check_operand(const void *p, size_t size, bool begins);
/* The running thread's writes so far may be read by products. */
void check_proxy_fence();
/* An access that the emulator makes for the running CUDA thread. */
void check_memory_access(const void *p, size_t size, bool writes, const void *pc);
#else
inline void check_launch() {}
inline void check_block(Block *) {}
inline void check_block_sync(Block *) {}
inline void check_warp_sync(Warp *) {}
inline void check_memory(const void *, size_t) {}
inline void check_filled(const void *, size_t, bool) {}
inline void check_operand(const void *, size_t, bool) {}
inline void check_proxy_fence() {}
#endif

} // namespace emu
#endif
