/* emu_wgmma.h: what the rest of the emulator asks of the products of warpgroups. */
#ifndef EMU_WGMMA_H
#define EMU_WGMMA_H

#include "emu_core.h"

namespace emu {

void wgmma_begin(const Block *b);
void wgmma_thread_exits(const Fiber *f);
/* Whether these bytes are an accumulator of the running thread whose product is in flight. */
bool wgmma_holds(const void *p, size_t size);

} // namespace emu
#endif
