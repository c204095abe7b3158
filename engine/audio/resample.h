/* resample.h: one channel at any rate -> the same at AUDIO_RATE.
 *
 * Output m is sum over k of x[k] h(m M / L - k), with L / M the ratio of the rates in lowest terms
 * and h a sinc under a Kaiser window (Smith, Digital Audio Resampling; Kaiser 1974), one set of
 * taps for each of the L phases. With F half of the lower of both rates: what lies below 0.9 F
 * keeps its level within 0.005 dB, what lies above F is below -90 dB. Nothing is shifted: output 0
 * is at the time of input 0. Before the first and behind the last sample there is silence.
 *
 * Every output is a sum in one order, which depends on its number alone, so the pieces in which the
 * input comes change no bit. A resampler belongs to one thread.
 */
#ifndef INFERD_ENGINE_AUDIO_RESAMPLE_H
#define INFERD_ENGINE_AUDIO_RESAMPLE_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct resampler resampler_t;

/* For inputs of `rate`, AUDIO_RATE_MIN to AUDIO_RATE_MAX, and not AUDIO_RATE. Returns NULL if
 * memory is short. */
resampler_t *resampler_new(uint32_t rate);
/* The next `count` samples come, at most RESAMPLER_PIECE; writes the outputs that they complete to
 * `out`, which has room for resampler_room, and returns how many. */
size_t resampler_push(resampler_t *resampler, const float *in, size_t count, float *out);
/* The input has ended: the outputs that are left, so that there are audio_samples of all. Room for
 * resampler_room. */
size_t resampler_end(resampler_t *resampler, float *out);
size_t resampler_room(const resampler_t *resampler);
void resampler_free(resampler_t *resampler);

enum { RESAMPLER_PIECE = 4096 };

#endif
