/* rig.h: what the emulator's own tests share: the kernel tests' helpers, and faults on purpose. */
#ifndef EMU_RIG_H
#define EMU_RIG_H

#include "tests/cuda/check.h"

#include "emu_runtime.h"

template <class T> inline bool is_bf16() {
  return false;
}
template <> inline bool is_bf16<bf16_t>() {
  return true;
}

/* While one lives, faults are remembered and not the end of the process; the device forgets them
 * at the end. */
struct fault_watch {
  bool aborts = emu::settings.abort_on_fault;
  unsigned before = emu::fault_count();
  fault_watch() { emu::settings.abort_on_fault = false; }
  ~fault_watch() {
    cudaDeviceReset();
    emu::settings.abort_on_fault = aborts;
  }
  /* Whether a fault came whose text has all of `parts`. */
  bool saw(std::initializer_list<const char *> parts) const {
    if (emu::fault_count() == before) return false;
    for (const char *part : parts)
      if (!strstr(emu::fault_text(), part)) return false;
    return true;
  }
};

/* A mistake that the checker reports, and that shows in the results of the other flavours. */
template <class Shows> inline void expect_check(const char *text, const char *what, Shows shows) {
  fault_watch watch;
  const bool seen = shows();
#if defined(EMU_CHECK)
  (void)seen;
  check_that(watch.saw({text}), std::string(what) + " is reported: " + emu::fault_text());
#else
  (void)text;
  check_that(seen && watch.before == emu::fault_count(), std::string(what) + " shows");
#endif
}

#endif
