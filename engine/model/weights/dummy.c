/* dummy.c: seeded random weights. Pure functions, any thread; the recipe is in dummy.h. */
#include "engine/model/weights/dummy.h"

#include "engine/base/hash.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/model/weights/convert.h"

#include <math.h>
#include <string.h>

static bool is_norm(tensor_role_t role) {
  return role == ROLE_ATTN_NORM || role == ROLE_MLP_NORM || role == ROLE_FINAL_NORM ||
         role == ROLE_Q_NORM || role == ROLE_K_NORM || role == ROLE_ATTN_OUT_NORM ||
         role == ROLE_MLP_OUT_NORM || role == ROLE_MIX_NORM || role == ROLE_EMBED_NORM ||
         role == ROLE_POOLER_NORM || role == ROLE_Q_DOWN_NORM || role == ROLE_LATENT_NORM ||
         (role >= ROLE_LAYER_SCALAR && role <= ROLE_MTP_HIDDEN_NORM) || role == ROLE_INPUT_NORM ||
         role == ROLE_LAYER_NORM || role == ROLE_MTP_NORM || role == ROLE_STREAM_NORM ||
         role == ROLE_LAUREL_NORM || role == ROLE_INDEX_NORM ||
         (role >= ROLE_MIX_STEP_NORM && role <= ROLE_MIX_QUERY_NORM);
}

dummy_t dummy_tensor(const expected_tensor_t *tensor, uint64_t seed) {
  uint64_t name = fnv_64(FNV_64_BASIS, tensor->name, strlen(tensor->name));
  int64_t cols = tensor->form == FORM_CONV ? tensor->shape[2] : tensor->cols;
  double deviation = cols == 0 ? 0.1 : 1.0 / sqrt((double)cols);
  return (dummy_t){
      .key = random_mix(name ^ random_mix(seed)),
      .scale = (float)(deviation / sqrt(21845.0)),
      .offset = !tensor->bias && is_norm(tensor->role) && !tensor->around_zero ? 1.0f : 0.0f,
  };
}

/* Sums of the four bytes of both halves: low half in the low 32 bits. */
static uint64_t byte_sums(uint64_t word) {
  uint64_t pairs = (word & 0x00ff00ff00ff00ffU) + (word >> 8 & 0x00ff00ff00ff00ffU);
  return (pairs & 0x0000ffff0000ffffU) + (pairs >> 16 & 0x0000ffff0000ffffU);
}

enum { CHUNK = 256 };

/* `count` values from element `first`; at most CHUNK. */
static void fill_chunk(const dummy_t *dummy, float *out, int64_t first, int64_t count) {
  float pair[CHUNK + 2];
  uint64_t counter = dummy->key + (uint64_t)(first / 2) * RANDOM_GAMMA;
  int64_t skip = first & 1, words = (skip + count + 1) / 2;
  for (int64_t i = 0; i < words; i++) {
    uint64_t sums = byte_sums(random_mix(counter + (uint64_t)i * RANDOM_GAMMA));
    pair[2 * i] = (float)((int32_t)(uint32_t)sums - 510) * dummy->scale + dummy->offset;
    pair[2 * i + 1] = (float)((int32_t)(sums >> 32) - 510) * dummy->scale + dummy->offset;
  }
  memcpy(out, pair + skip, (size_t)count * sizeof(float));
}

void dummy_fill(const dummy_t *dummy, void *out, dtype_t dtype, int64_t first, int64_t count) {
  float values[CHUNK];
  uint8_t *at = out;
  while (count > 0) {
    int64_t n = MIN(count, CHUNK);
    fill_chunk(dummy, values, first, n);
    convert_row(at, dtype, values, DTYPE_F32, n);
    at += (size_t)n * dtype_size(dtype);
    first += n;
    count -= n;
  }
}

void dummy_bytes(const dummy_t *dummy, const expected_tensor_t *tensor, uint8_t *out, int64_t first,
                 int64_t count) {
  int exponent = 125;
  for (int64_t cols = tensor->cols; cols >= 4; cols /= 4) exponent--;
  for (int64_t i = 0; i < count; i++) {
    uint64_t word = random_mix(dummy->key + (uint64_t)((first + i) / 8) * RANDOM_GAMMA);
    uint8_t byte = (uint8_t)(word >> (first + i) % 8 * 8);
    out[i] = tensor->form == FORM_STACK_SCALES ? (uint8_t)(exponent + (byte & 1)) : byte;
  }
}
