/* windows.h: where a long file is cut into windows that a model hears.
 *
 * As vLLM does: a window is at most 30 s long; what is left after it begins at the quietest of the
 * stretches of 0.1 s (lowest root mean square, the first of equals) in its last second. The windows
 * lie one behind another, so no sample is heard twice. Any thread; no state.
 */
#ifndef INFERD_ENGINE_AUDIO_WINDOWS_H
#define INFERD_ENGINE_AUDIO_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

/* How many of samples[0 .. count) the window has that begins with the first; count >= 1. */
size_t window_length(const float *samples, size_t count);

/* The most windows that `count` samples make. */
size_t windows_most(size_t count);

#endif
