/* mel.c: see mel.h. A real transform of 400 samples as a complex one of 200, by the factors 5, 5,
 * 2, 2, 2 (Cooley and Tukey 1965). Any thread; the tables are made once. */
#include "engine/audio/mel.h"

#include "engine/audio/audio.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 400, HALF = FRAME / 2, BINS = HALF + 1, CENTRE = FRAME / 2 };
enum { LANES = 4 }; /* frames that are transformed at once */
static const double PI = 3.14159265358979323846;
static const double COS_72 = 0.30901699437494742410, SIN_72 = 0.95105651629515357212;
static const double COS_144 = -0.80901699437494742410, SIN_144 = 0.58778525229247312917;

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

/* One value of LANES frames, which are transformed side by side: the same operations, so that the
 * bits of a frame are its own. */
typedef struct mel_lanes {
  double re[LANES], im[LANES];
} mel_lanes_t;

static void turn_lanes(mel_lanes_t *value, complex_value_t by) {
  for (int l = 0; l < LANES; l++) {
    const double re = value->re[l], im = value->im[l];
    value->re[l] = re * by.re - im * by.im;
    value->im[l] = re * by.im + im * by.re;
  }
}

/* (one, two) = (one + two, one - two) */
static void cross_two(mel_lanes_t *one, mel_lanes_t *two) {
  for (int l = 0; l < LANES; l++) {
    const double re = one->re[l], im = one->im[l];
    one->re[l] = re + two->re[l];
    one->im[l] = im + two->im[l];
    two->re[l] = re - two->re[l];
    two->im[l] = im - two->im[l];
  }
}

/* The transform of five values in place, zero[0], zero[step], ...: by sums and differences of those
 * that turn by opposite angles. */
static void cross_five(mel_lanes_t *zero, int step) {
  const double c1 = COS_72, c2 = COS_144, s1 = SIN_72, s2 = SIN_144;
  mel_lanes_t *one = zero + step, *two = zero + 2 * step, *three = zero + 3 * step,
              *four = zero + 4 * step;
  for (int l = 0; l < LANES; l++) {
    const double re = zero->re[l], im = zero->im[l];
    const double outer_re = one->re[l] + four->re[l], outer_im = one->im[l] + four->im[l];
    const double inner_re = two->re[l] + three->re[l], inner_im = two->im[l] + three->im[l];
    const double apart_re = one->re[l] - four->re[l], apart_im = one->im[l] - four->im[l];
    const double near_re = two->re[l] - three->re[l], near_im = two->im[l] - three->im[l];
    const double m1_re = re + c1 * outer_re + c2 * inner_re;
    const double m1_im = im + c1 * outer_im + c2 * inner_im;
    const double m2_re = re + c2 * outer_re + c1 * inner_re;
    const double m2_im = im + c2 * outer_im + c1 * inner_im;
    const double n1_re = s1 * apart_re + s2 * near_re, n1_im = s1 * apart_im + s2 * near_im;
    const double n2_re = s2 * apart_re - s1 * near_re, n2_im = s2 * apart_im - s1 * near_im;
    zero->re[l] = re + outer_re + inner_re;
    zero->im[l] = im + outer_im + inner_im;
    one->re[l] = m1_re + n1_im; /* m1 - i n1 */
    one->im[l] = m1_im - n1_re;
    two->re[l] = m2_re + n2_im;
    two->im[l] = m2_im - n2_re;
    three->re[l] = m2_re - n2_im;
    three->im[l] = m2_im + n2_re;
    four->re[l] = m1_re - n1_im;
    four->im[l] = m1_im + n1_re;
  }
}

/* The transform of in[0], in[stride], ... (`count` values) to out[0 .. count). `factors` are those
 * of count, the first is split off here. Five levels deep. */
static void transform(const mel_t *mel, const mel_lanes_t *in, int stride, int count,
                      const int *factors, mel_lanes_t *out) {
  if (count == 1) {
    out[0] = in[0];
    return;
  }
  const int radix = factors[0], part = count / radix, turn = FRAME / count;
  for (int r = 0; r < radix; r++)
    transform(mel, in + r * stride, stride * radix, part, factors + 1, out + r * part);
  for (int k = 0; k < part; k++) {
    for (int r = 1; r < radix && k > 0; r++)
      turn_lanes(&out[r * part + k], mel->turns[r * k * turn]);
    if (radix == 2)
      cross_two(&out[k], &out[part + k]);
    else
      cross_five(&out[k], part);
  }
}

/* out[bin]: the power of windowed frames at each frequency, frames[i] = their sample i. */
static void power(const mel_t *mel, double frames[FRAME][LANES], double out[BINS][LANES]) {
  static const int factors[] = {5, 5, 2, 2, 2};
  mel_lanes_t packed[HALF], spectrum[HALF];
  for (int i = 0; i < HALF; i++) {
    for (int l = 0; l < LANES; l++) {
      packed[i].re[l] = frames[2 * i][l] * mel->window[2 * i];
      packed[i].im[l] = frames[2 * i + 1][l] * mel->window[2 * i + 1];
    }
  }
  transform(mel, packed, 1, HALF, factors, spectrum);
  for (int k = 0; k < BINS; k++) {
    const mel_lanes_t *a = &spectrum[k % HALF], *b = &spectrum[(HALF - k) % HALF];
    const complex_value_t turn = mel->turns[k];
    for (int l = 0; l < LANES; l++) {
      const double even_re = (a->re[l] + b->re[l]) / 2, even_im = (a->im[l] - b->im[l]) / 2;
      const double odd_re = (a->im[l] + b->im[l]) / 2, odd_im = (b->re[l] - a->re[l]) / 2;
      const double re = even_re + (odd_re * turn.re - odd_im * turn.im);
      const double im = even_im + (odd_re * turn.im + odd_im * turn.re);
      out[k][l] = re * re + im * im;
    }
  }
}

/* ---- window ---- */

/* Sample `at` of `total`, mirrored at both ends. */
static double sample_at(const float *samples, size_t count, int64_t total, int64_t at) {
  if (at < 0) at = -at;
  if (at >= total) at = 2 * (total - 1) - at;
  return (uint64_t)at < count ? (double)samples[at] : 0;
}

/* log10 of the bands of LANES rows, at least -10. */
static void mel_rows(const mel_t *mel, double frames[FRAME][LANES], float *out) {
  double bins[BINS][LANES];
  power(mel, frames, bins);
  for (int32_t b = 0; b < mel->bands; b++) {
    const mel_band_t *band = &mel->band[b];
    double sum[LANES] = {0};
    for (int32_t i = 0; i < band->count; i++)
      for (int l = 0; l < LANES; l++) sum[l] += band->weights[i] * bins[band->first + i][l];
    for (int l = 0; l < LANES; l++)
      out[(int64_t)l * mel->bands + b] = (float)log10(MAX(sum[l], 1e-10));
  }
}

/* The first `num_rows` rows of a sound of `length` samples, of which those from `count` on are 0.
 */
static void make_rows(const mel_t *mel, const float *samples, size_t count, int64_t length,
                      int64_t num_rows, float *out) {
  const int64_t bands = mel->bands;
  double frames[FRAME][LANES];
  float rows[LANES * MEL_BANDS_MAX], top = -10;
  for (int64_t t = 0; t < num_rows; t += LANES) {
    const int64_t first = t * MEL_HOP - CENTRE, own = MIN(LANES, num_rows - t);
    if (first >= (int64_t)count && first + FRAME + LANES * MEL_HOP < length) {
      for (int64_t i = 0; i < own * bands; i++) rows[i] = -10; /* silence behind the end */
    } else {
      for (int i = 0; i < FRAME; i++)
        for (int l = 0; l < LANES; l++)
          frames[i][l] = sample_at(samples, count, length, first + l * MEL_HOP + i);
      mel_rows(mel, frames, rows);
    }
    memcpy(out + t * bands, rows, (size_t)(own * bands) * sizeof *rows);
  }
  for (int64_t i = 0; i < num_rows * bands; i++) top = MAX(top, out[i]);
  for (int64_t i = 0; i < num_rows * bands; i++) out[i] = (MAX(out[i], top - 8) + 4) / 4;
}

void mel_windows(const mel_t *mel, const float *samples, size_t count, size_t windows, float *out) {
  make_rows(mel, samples, count, (int64_t)windows * MEL_SAMPLES, (int64_t)windows * MEL_ROWS, out);
}

void mel_sound(const mel_t *mel, const float *samples, size_t count, float *out) {
  make_rows(mel, samples, count, (int64_t)count, (int64_t)mel_sound_rows(count), out);
}

void mel_window(const mel_t *mel, const float *samples, size_t count, float *out) {
  mel_windows(mel, samples, count, 1, out);
}
