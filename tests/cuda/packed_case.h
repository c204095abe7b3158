/* packed_case.h: random matrices, packed as kernel_types.h says, and the same numbers unpacked. */
#ifndef INFERD_TESTS_CUDA_PACKED_CASE_H
#define INFERD_TESTS_CUDA_PACKED_CASE_H

#include "tests/cuda/check.h"

struct packed_form_t {
  gpu_codes_t codes;
  gpu_scales_t scales;
  int group;
  bool has_min;
  gpu_unpack_t unpack;
  const char *name;
};

/* One of each kind that files have. */
static const packed_form_t packed_forms[] = {
    {GPU_CODES_4, GPU_SCALES_F16, 32, false, GPU_UNPACK_FUSED, "Q4_0"},
    {GPU_CODES_4, GPU_SCALES_F16, 32, true, GPU_UNPACK_PRODUCT, "Q4_1"},
    {GPU_CODES_4, GPU_SCALES_TWO_LEVEL, 32, true, GPU_UNPACK_PRODUCT, "Q4_K"},
    {GPU_CODES_4, GPU_SCALES_TWO_LEVEL, 16, false, GPU_UNPACK_PRODUCT, "Q3_K"},
    {GPU_CODES_TABLE, GPU_SCALES_TWO_LEVEL, 32, false, GPU_UNPACK_STEPS, "IQ4_XS"},
    {GPU_CODES_4, GPU_SCALES_F32_WIDE, 128, true, GPU_UNPACK_FUSED, "AWQ"},
    {GPU_CODES_4, GPU_SCALES_F16_ZERO, 256, true, GPU_UNPACK_FUSED, "AWQ in halves"},
    {GPU_CODES_4, GPU_SCALES_F32, 64, true, GPU_UNPACK_STEPS, "groups of 64"},
    {GPU_CODES_4, GPU_SCALES_F32, 32, true, GPU_UNPACK_FUSED, "groups of 32"},
    {GPU_CODES_E2M1, GPU_SCALES_EXPONENT, 32, false, GPU_UNPACK_FUSED, "MXFP4"},
    {GPU_CODES_TABLE, GPU_SCALES_F16, 16, false, GPU_UNPACK_FUSED, "NVFP4 blocks"},
    {GPU_CODES_TABLE, GPU_SCALES_F32, 16, false, GPU_UNPACK_STEPS, "NVFP4"},
    {GPU_CODES_8, GPU_SCALES_F16, 32, false, GPU_UNPACK_FUSED, "Q8_0"},
    {GPU_CODES_8, GPU_SCALES_F16, 32, true, GPU_UNPACK_PRODUCT, "Q5_1"},
    {GPU_CODES_8, GPU_SCALES_TWO_LEVEL, 16, false, GPU_UNPACK_STEPS, "Q6_K"},
    {GPU_CODES_8, GPU_SCALES_TWO_LEVEL, 16, true, GPU_UNPACK_STEPS, "Q4_K beside Q6_K"},
    {GPU_CODES_8, GPU_SCALES_F32, 64, false, GPU_UNPACK_STEPS, "int8 groups"},
    {GPU_CODES_8, GPU_SCALES_F32_WIDE, 256, true, GPU_UNPACK_STEPS, "int8 channels"},
    {GPU_CODES_E4M3, GPU_SCALES_F32_WIDE, 128, false, GPU_UNPACK_STEPS, "fp8 blocks"},
    {GPU_CODES_E4M3, GPU_SCALES_F32_WIDE, 256, false, GPU_UNPACK_STEPS, "fp8 channels"},
    {GPU_CODES_E4M3, GPU_SCALES_F32, 32, false, GPU_UNPACK_STEPS, "fp8 groups"},
    {GPU_CODES_4, GPU_SCALES_F32_WIDE, 256, true, GPU_UNPACK_STEPS, "long scales"},
    {GPU_CODES_TABLE, GPU_SCALES_F32_WIDE, 128, false, GPU_UNPACK_STEPS, "fp4 in wide groups"},
};
/* That of 8 bits which the tests of far rows take. */
static const packed_form_t &packed_form_q8_0 = packed_forms[12];

inline float put_half(uint8_t *to, float value) {
  const f16_t rounded = from_float<f16_t>(value);
  memcpy(to, &rounded, 2);
  return to_float(rounded);
}

/* Where the scales of a unit begin. */
inline int packed_scales_at(const gpu_packed_t &form) {
  return form.codes == GPU_CODES_8 || form.codes == GPU_CODES_E4M3 ? 1024 : 512;
}

/* The level of a random code. */
inline float put_code(const gpu_packed_t &form, uint8_t *panel, int row, int k) {
  const bool nibbles = packed_scales_at(form) == 512;
  uint8_t *lane = panel + k / 128 * form.unit_bytes + row * 64 + k % 32 / 8 * 16;
  if (nibbles) {
    const int code = random_below(16), column = k % 8;
    if (form.codes == GPU_CODES_E2M1) {
      const float size[] = {0, 1, 2, 3, 4, 6, 8, 12};
      lane[k % 128 / 32 * 4 + column % 2 * 2 + column / 4] |= (uint8_t)(code << column / 2 % 2 * 4);
      return code & 8 ? -size[code & 7] : size[code];
    }
    lane[k % 128 / 32 * 4 + k % 8 / 2] |= (uint8_t)(code << k % 2 * 4);
    if (form.codes == GPU_CODES_4) return (float)code - (form.zero - 128);
    return (float)(int)(form.table[code / 4] >> code % 4 * 8 & 255) - (form.zero - 32768);
  }
  uint8_t code = (uint8_t)random_below(256);
  if (form.codes == GPU_CODES_E4M3 && (code & 0x7f) == 0x7f) code ^= 1;
  lane[k % 128 / 64 * 512 + k % 64 / 32 * 8 + k % 8] = code;
  if (form.codes == GPU_CODES_E4M3) return e4m3_to_float(code);
  return (float)code - (form.zero - 32768);
}

/* How many scales a row has in a unit and of how many bytes, and which is that of the group of
 * column k. */
inline int packed_slots(const gpu_packed_t &form) {
  return form.group_shift > 7 ? 1 : 128 >> form.group_shift;
}
inline bool is_packed_f32(const gpu_packed_t &form) {
  return form.scales == GPU_SCALES_F32 || form.scales == GPU_SCALES_F32_WIDE;
}
inline size_t packed_scale_bytes(const gpu_packed_t &form) {
  const bool is_f16 = form.scales == GPU_SCALES_F16 || form.scales == GPU_SCALES_F16_ZERO;
  const size_t one = is_packed_f32(form) ? 4 : is_f16 ? 2 : 1;
  return form.has_min ? 2 * one : one;
}
inline int packed_slot(const gpu_packed_t &form, int k) {
  return form.group_shift == 4 ? k / 16 % 2 * 4 + k % 128 / 32 : k % 128 >> form.group_shift;
}

/* A matrix [rows, cols]: bytes on the device, and its numbers, rounded once to T. */
template <class T> struct packed_matrix_t {
  gpu_packed_t form = {};
  std::vector<uint8_t> bytes;
  std::vector<T> values;
  int rows, cols;

  packed_matrix_t(const packed_form_t &f, int num_rows, int num_cols)
      : rows(num_rows), cols(num_cols) {
    const bool two_level = f.scales == GPU_SCALES_TWO_LEVEL;
    form.codes = f.codes, form.scales = f.scales, form.unpack = f.unpack;
    form.has_min = f.has_min;
    while (1 << form.group_shift < f.group) form.group_shift++;
    if (f.codes == GPU_CODES_4)
      form.zero = two_level ? 128 + 4.0f * random_below(2) : 136.0f;
    else
      form.zero =
          32768.0f +
          (f.unpack == GPU_UNPACK_STEPS && f.codes == GPU_CODES_8 ? random_below(200) : 128);
    for (int i = 0; i < 16; i++) form.table[i / 4] |= (uint32_t)random_below(256) << i % 4 * 8;
    form.supers_at = packed_scales_at(form) + 8 * packed_slots(form) * packed_scale_bytes(form);
    form.unit_bytes = form.supers_at + (two_level ? 8 * (f.has_min ? 4 : 2) : 0);
    form.panel_bytes = (cols + 127) / 128 * form.unit_bytes;
    bytes.resize((rows + 7) / 8 * form.panel_bytes);
    values.resize((size_t)rows * cols);
    for (int r = 0; r < rows; r++) fill_row(r);
  }

  void fill_row(int r) {
    uint8_t *panel = &bytes[r / 8 * form.panel_bytes];
    const int group = 1 << (form.group_shift > 7 ? 7 : form.group_shift);
    float scale = 0, min = 0, super = 0, super_min = 0;
    for (int k = 0; k < cols; k++) {
      if (k % 128 == 0 && form.scales == GPU_SCALES_TWO_LEVEL)
        put_supers(panel + k / 128 * form.unit_bytes, r % 8, &super, &super_min);
      if (k % group == 0) put_scale(panel, r % 8, k, super, super_min, &scale, &min);
      const float product = put_code(form, panel, r % 8, k) * scale;
      values[(size_t)r * cols + k] = from_float<T>(product - min);
    }
  }

  void put_supers(uint8_t *unit, int row, float *super, float *super_min) {
    uint8_t *to = unit + form.supers_at + row * (form.has_min ? 4 : 2);
    *super = put_half(to, random_float(1e-4f));
    if (form.has_min) *super_min = put_half(to + 2, random_float(1e-4f));
  }

  /* About 0.005 for levels of 100, and more for e4m3 and nibbles of exponents. */
  void put_scale(uint8_t *panel, int row, int k, float super, float super_min, float *scale,
                 float *min) {
    uint8_t *to = panel + k / 128 * form.unit_bytes + packed_scales_at(form) +
                  (row * packed_slots(form) + packed_slot(form, k)) * packed_scale_bytes(form);
    *min = 0;
    if (is_packed_f32(form)) {
      const bool is_short = form.unpack == GPU_UNPACK_FUSED;
      *scale = is_short ? to_float(from_float<f16_t>(random_float(0.01f))) : random_float(0.01f);
      memcpy(to, scale, 4);
      if (form.has_min) *min = is_short ? *scale * (float)random_below(256) : random_float(1);
      if (form.has_min) memcpy(to + 4, min, 4);
    } else if (form.scales == GPU_SCALES_F16_ZERO) {
      const float point = (float)random_below(256);
      *scale = put_half(to, random_float(0.01f)), *min = *scale * point;
      put_half(to + 2, form.zero + point);
    } else if (form.scales == GPU_SCALES_F16) {
      *scale = put_half(to, random_float(0.01f));
      if (form.has_min) *min = put_half(to + 2, random_float(1));
    } else if (form.scales == GPU_SCALES_TWO_LEVEL) {
      to[0] = (uint8_t)random_below(256);
      *scale = super * (float)(int8_t)to[0];
      if (form.has_min) to[1] = (uint8_t)random_below(256), *min = super_min * (float)to[1];
    } else {
      to[0] = (uint8_t)(k == 0 ? row : 118 + random_below(8)); /* the smallest numbers as well */
      *scale = std::ldexp(1.0f, to[0] - 128);
    }
  }
};

#endif
