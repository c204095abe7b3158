/* resample.c: a polyphase filter, see resample.h. One thread, that of the decoder; the taps of all
 * phases are made once. */
#include "engine/audio/resample.h"

#include "engine/audio/audio.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the filter, with both rates measured by the lower one: the middle of its transition, from 0.9
 * to 1 of half the rate, and the half of its length. By Kaiser's formula 0.1 pi of transition and
 * 100 dB want (100 - 7.95) / (2.285 * 0.1 pi) / 2 = 64.1 samples on each side. */
static const double CUT = 0.95, ATTENUATION_DB = 100;
enum { SIDE = 66, LANES = 8 };

struct resampler {
  uint32_t up, down; /* L, M */
  size_t taps;       /* of a phase, a multiple of LANES */
  size_t before;     /* of them, those before the time of the output, that one among them */
  float *phases;     /* (up, taps) */
  float *history;    /* [taps + RESAMPLER_PIECE]: the inputs from `first` on */
  size_t held;       /* of `history` */
  int64_t first;     /* number of the input at history[0]; negative: silence before the file */
  uint64_t inputs;   /* that have come */
  uint64_t outputs;  /* that were written */
};

/* The modified Bessel function of order 0, by its series. */
static double bessel(double at) {
  double term = 1, sum = 1;
  for (int i = 1; term > sum * 1e-17; i++) {
    term *= (at / (2 * i)) * (at / (2 * i));
    sum += term;
  }
  return sum;
}

/* h at `time`, in samples of the lower rate. */
static double filter_at(double time, double beta, double scale) {
  const double pi = 3.14159265358979323846, place = time / SIDE;
  if (place <= -1 || place >= 1) return 0;
  const double angle = pi * CUT * time;
  const double sinc = fabs(angle) < 1e-9 ? 1 : sin(angle) / angle;
  return CUT * sinc * bessel(beta * sqrt(1 - place * place)) * scale;
}

/* Taps of phase p: output m lies p / L behind an input. The sum of each phase is 1, so that a
 * constant stays one. */
static void fill_phases(resampler_t *resampler, double ratio) {
  const double beta = 0.1102 * (ATTENUATION_DB - 8.7), scale = 1 / bessel(beta);
  for (uint32_t p = 0; p < resampler->up; p++) {
    float *taps = resampler->phases + (size_t)p * resampler->taps;
    double sum = 0;
    for (size_t i = 0; i < resampler->taps; i++) {
      const double behind = (double)p / resampler->up + (double)resampler->before - 1 - (double)i;
      taps[i] = (float)(filter_at(behind * ratio, beta, scale) * ratio);
      sum += (double)taps[i];
    }
    for (size_t i = 0; i < resampler->taps; i++) taps[i] = (float)((double)taps[i] / sum);
  }
}

static uint32_t common_divisor(uint32_t one, uint32_t two) {
  while (two != 0) {
    const uint32_t rest = one % two;
    one = two;
    two = rest;
  }
  return one;
}

resampler_t *resampler_new(uint32_t rate) {
  resampler_t *resampler = calloc(1, sizeof *resampler);
  if (resampler == NULL) return NULL;
  const uint32_t common = common_divisor(rate, AUDIO_RATE);
  const double ratio =
      rate > AUDIO_RATE ? (double)AUDIO_RATE / rate : 1; /* lower rate by input's */
  resampler->up = AUDIO_RATE / common;
  resampler->down = rate / common;
  resampler->before = (size_t)ceil(SIDE / ratio);
  resampler->taps = DIV_UP(2 * resampler->before, LANES) * LANES;
  resampler->phases = calloc((size_t)resampler->up * resampler->taps, sizeof *resampler->phases);
  resampler->history = calloc(resampler->taps + RESAMPLER_PIECE, sizeof *resampler->history);
  if (resampler->phases == NULL || resampler->history == NULL) {
    resampler_free(resampler);
    return NULL;
  }
  resampler->held = resampler->before - 1; /* of silence */
  resampler->first = 1 - (int64_t)resampler->before;
  fill_phases(resampler, ratio);
  return resampler;
}

void resampler_free(resampler_t *resampler) {
  if (resampler == NULL) return;
  free(resampler->phases);
  free(resampler->history);
  free(resampler);
}

size_t resampler_room(const resampler_t *resampler) {
  return (resampler->taps + RESAMPLER_PIECE) * (size_t)resampler->up / resampler->down + 2;
}

/* Eight sums, added in pairs: one order whatever the compiler makes of it. */
static float dot(const float *restrict taps, const float *restrict in, size_t count) {
  float sums[LANES] = {0};
  for (size_t i = 0; i < count; i += LANES) {
    for (size_t k = 0; k < LANES; k++) sums[k] += taps[i + k] * in[i + k];
  }
  for (size_t k = 0; k < 4; k++) sums[k] += sums[k + 4];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* The outputs before `end` whose inputs are there. */
static size_t advance(resampler_t *resampler, uint64_t end, float *out) {
  size_t count = 0;
  for (; resampler->outputs < end; resampler->outputs++) {
    const uint64_t at = resampler->outputs * resampler->down;
    const int64_t input = (int64_t)(at / resampler->up); /* the last that is not behind */
    const int64_t begin = input - (int64_t)resampler->before + 1 - resampler->first;
    if ((uint64_t)begin + resampler->taps > resampler->held) break;
    const float *taps = resampler->phases + (size_t)(at % resampler->up) * resampler->taps;
    out[count++] = dot(taps, resampler->history + begin, resampler->taps);
  }
  /* What no later output reads goes. */
  const int64_t next = (int64_t)(resampler->outputs * resampler->down / resampler->up);
  const int64_t gone = next - (int64_t)resampler->before + 1 - resampler->first;
  const size_t drop = MIN((size_t)gone, resampler->held);
  resampler->held -= drop;
  resampler->first += (int64_t)drop;
  memmove(resampler->history, resampler->history + drop,
          resampler->held * sizeof *resampler->history);
  return count;
}

size_t resampler_push(resampler_t *resampler, const float *in, size_t count, float *out) {
  memcpy(resampler->history + resampler->held, in, count * sizeof *in);
  resampler->held += count;
  resampler->inputs += count;
  return advance(resampler, UINT64_MAX, out);
}

size_t resampler_end(resampler_t *resampler, float *out) {
  const uint64_t total =
      (resampler->inputs * resampler->up + resampler->down - 1) / resampler->down;
  size_t count = 0;
  while (resampler->outputs < total) {
    const size_t silence = MIN(resampler->taps, (size_t)RESAMPLER_PIECE);
    memset(resampler->history + resampler->held, 0, silence * sizeof *resampler->history);
    resampler->held += silence;
    count += advance(resampler, total, out + count);
  }
  return count;
}
