/* mel.c: see mel.h. A real transform of 400 samples as a complex one of 200, by the factors 5, 5,
 * 2, 2, 2 (Cooley and Tukey 1965). Any thread; the tables are made once. */
#include "engine/audio/mel.h"

#include "engine/audio/audio.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 400, HALF = FRAME / 2, BINS = HALF + 1, CENTRE = FRAME / 2 };
static const double PI = 3.14159265358979323846;

typedef struct complex_value {
  double re, im;
} complex_value_t;

/* A band: a triangle over some of the bins. */
typedef struct mel_band {
  int32_t first, count;
  const double *weights; /* [count], in mel_t.weights */
} mel_band_t;

struct mel {
  int32_t bands;
  double window[FRAME];
  complex_value_t turns[FRAME]; /* exp(-2 pi i k / FRAME) */
  mel_band_t band[MEL_BANDS_MAX];
  double weights[2 * BINS + MEL_BANDS_MAX]; /* a bin is in at most two bands */
};

/* ---- bands ---- */

static const double LINEAR_HZ = 1000, LINEAR_MEL = 15; /* up to here the scale is linear */

static double mel_of(double hz) {
  if (hz < LINEAR_HZ) return 3 * hz / 200;
  return LINEAR_MEL + log(hz / LINEAR_HZ) * (27 / log(6.4));
}

static double hz_of(double mel) {
  if (mel < LINEAR_MEL) return 200 * mel / 3;
  return LINEAR_HZ * exp((mel - LINEAR_MEL) * (log(6.4) / 27));
}

static void make_bands(mel_t *mel) {
  const double top = mel_of(AUDIO_RATE / 2.0);
  double *at = mel->weights;
  for (int32_t b = 0; b < mel->bands; b++) {
    double edge[3];
    for (int i = 0; i < 3; i++) edge[i] = hz_of(top * (b + i) / (mel->bands + 1));
    mel_band_t *band = &mel->band[b];
    band->weights = at;
    for (int32_t bin = 0; bin < BINS; bin++) {
      const double hz = (double)bin * AUDIO_RATE / FRAME;
      const double up = (hz - edge[0]) / (edge[1] - edge[0]);
      const double down = (edge[2] - hz) / (edge[2] - edge[1]);
      const double weight = MIN(up, down);
      if (weight <= 0) continue;
      if (band->count == 0) band->first = bin;
      band->count++;
      *at++ = weight * 2 / (edge[2] - edge[0]);
    }
  }
}

mel_t *mel_new(int32_t bands) {
  mel_t *mel = calloc(1, sizeof *mel);
  if (mel == NULL) return NULL;
  mel->bands = bands;
  for (int i = 0; i < FRAME; i++) {
    mel->window[i] = 0.5 - 0.5 * cos(2 * PI * i / FRAME);
    mel->turns[i] = (complex_value_t){cos(2 * PI * i / FRAME), -sin(2 * PI * i / FRAME)};
  }
  make_bands(mel);
  return mel;
}

void mel_free(mel_t *mel) {
  free(mel);
}

/* ---- transform ---- */

static complex_value_t times(complex_value_t one, complex_value_t two) {
  return (complex_value_t){one.re * two.re - one.im * two.im, one.re * two.im + one.im * two.re};
}

/* The transform of in[0], in[stride], ... (`count` values) to out[0 .. count). `factors` are those
 * of count, the first is split off here. Five levels deep. */
static void transform(const mel_t *mel, const complex_value_t *in, int stride, int count,
                      const int *factors, complex_value_t *out) {
  if (count == 1) {
    out[0] = in[0];
    return;
  }
  const int radix = factors[0], part = count / radix, turn = FRAME / count;
  complex_value_t piece[5];
  for (int r = 0; r < radix; r++)
    transform(mel, in + r * stride, stride * radix, part, factors + 1, out + r * part);
  for (int k = 0; k < part; k++) {
    for (int r = 0; r < radix; r++) piece[r] = times(out[r * part + k], mel->turns[r * k * turn]);
    for (int j = 0; j < radix; j++) {
      complex_value_t sum = piece[0];
      for (int r = 1; r < radix; r++) {
        const complex_value_t add = times(piece[r], mel->turns[r * j % radix * (FRAME / radix)]);
        sum.re += add.re;
        sum.im += add.im;
      }
      out[j * part + k] = sum;
    }
  }
}

/* The power of a windowed frame at each frequency. */
static void power(const mel_t *mel, const double *frame, double *out) {
  static const int factors[] = {5, 5, 2, 2, 2};
  complex_value_t packed[HALF], spectrum[HALF];
  for (int i = 0; i < HALF; i++)
    packed[i] = (complex_value_t){frame[2 * i] * mel->window[2 * i],
                                  frame[2 * i + 1] * mel->window[2 * i + 1]};
  transform(mel, packed, 1, HALF, factors, spectrum);
  for (int k = 0; k < BINS; k++) {
    const complex_value_t a = spectrum[k % HALF], b = spectrum[(HALF - k) % HALF];
    const complex_value_t even = {(a.re + b.re) / 2, (a.im - b.im) / 2};
    const complex_value_t odd = {(a.im + b.im) / 2, (b.re - a.re) / 2};
    const complex_value_t turned = times(odd, mel->turns[k]);
    const double re = even.re + turned.re, im = even.im + turned.im;
    out[k] = re * re + im * im;
  }
}

/* ---- window ---- */

/* Sample `at` of `total`, mirrored at both ends. */
static double sample_at(const float *samples, size_t count, int64_t total, int64_t at) {
  if (at < 0) at = -at;
  if (at >= total) at = 2 * (total - 1) - at;
  return (uint64_t)at < count ? (double)samples[at] : 0;
}

/* log10 of the bands of one row, at least -10. */
static void mel_row(const mel_t *mel, const double *frame, float *out) {
  double bins[BINS];
  power(mel, frame, bins);
  for (int32_t b = 0; b < mel->bands; b++) {
    const mel_band_t *band = &mel->band[b];
    double sum = 0;
    for (int32_t i = 0; i < band->count; i++) sum += band->weights[i] * bins[band->first + i];
    out[b] = (float)log10(MAX(sum, 1e-10));
  }
}

void mel_windows(const mel_t *mel, const float *samples, size_t count, size_t windows, float *out) {
  const size_t total = (size_t)mel->bands * MEL_ROWS * windows;
  const int64_t length = (int64_t)windows * MEL_SAMPLES;
  double frame[FRAME];
  float top = -10;
  for (int64_t t = 0; t < (int64_t)windows * MEL_ROWS; t++) {
    bool silent = true;
    for (int i = 0; i < FRAME; i++) {
      frame[i] = sample_at(samples, count, length, t * MEL_HOP + i - CENTRE);
      silent = silent && frame[i] == 0;
    }
    float *row = out + (size_t)t * (size_t)mel->bands;
    if (!silent) mel_row(mel, frame, row);
    for (int32_t b = 0; silent && b < mel->bands; b++) row[b] = -10;
  }
  for (size_t i = 0; i < total; i++) top = MAX(top, out[i]);
  for (size_t i = 0; i < total; i++) out[i] = (MAX(out[i], top - 8) + 4) / 4;
}

void mel_window(const mel_t *mel, const float *samples, size_t count, float *out) {
  mel_windows(mel, samples, count, 1, out);
}
