/* order.c: a radix sort of the indices of floats: three passes of 11 bits.
 *
 * Any thread. It allocates nothing and compares nothing, so its time depends on the length alone.
 */
#include "engine/device/order.h"

#include <string.h>

enum { BITS = 11, BINS = 1 << BITS, PASSES = 3 };

/* A number that is smaller for a larger value, and equal for 0 and -0. */
static uint32_t key_of(float value) {
  uint32_t bits;
  value += 0.0f;
  memcpy(&bits, &value, sizeof bits);
  return (bits >> 31) != 0 ? bits : ~bits & 0x7FFFFFFF;
}

static uint32_t bin_of(float value, int pass) {
  return key_of(value) >> (pass * BITS) & (BINS - 1);
}

void order_largest(const float *values, int32_t count, int32_t *ids, int32_t *spare) {
  int32_t places[PASSES][BINS] = {{0}};
  for (int32_t i = 0; i < count; i++) {
    for (int pass = 0; pass < PASSES; pass++) places[pass][bin_of(values[i], pass)]++;
  }
  for (int pass = 0; pass < PASSES; pass++) {
    for (int32_t bin = 0, sum = 0; bin < BINS; bin++) {
      int32_t here = places[pass][bin];
      places[pass][bin] = sum;
      sum += here;
    }
  }
  for (int32_t i = 0; i < count; i++) ids[places[0][bin_of(values[i], 0)]++] = i;
  for (int32_t i = 0; i < count; i++) spare[places[1][bin_of(values[ids[i]], 1)]++] = ids[i];
  for (int32_t i = 0; i < count; i++) ids[places[2][bin_of(values[spare[i]], 2)]++] = spare[i];
}
