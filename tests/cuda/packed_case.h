/* packed_case.h: random matrices, packed as kernel_types.h says, and the same numbers unpacked. */
#ifndef INFERD_TESTS_CUDA_PACKED_CASE_H
#define INFERD_TESTS_CUDA_PACKED_CASE_H

#include "tests/cuda/check.h"

struct packed_form_t {
  gpu_codes_t codes;
  gpu_scales_t scales;
  int group;
  bool has_min;
  const char *name;
};

/* One of each kind that files have. */
static const packed_form_t packed_forms[] = {
    {GPU_CODES_4, GPU_SCALES_F16, 32, false, "Q4_0"},
    {GPU_CODES_4, GPU_SCALES_F16, 32, true, "Q4_1"},
    {GPU_CODES_4, GPU_SCALES_TWO_LEVEL, 32, true, "Q4_K"},
    {GPU_CODES_4, GPU_SCALES_F32, 128, true, "AWQ"},
    {GPU_CODES_4, GPU_SCALES_EXPONENT, 32, false, "MXFP4"},
    {GPU_CODES_4, GPU_SCALES_F32, 16, false, "NVFP4"},
    {GPU_CODES_8, GPU_SCALES_F16, 32, false, "Q8_0"},
    {GPU_CODES_8, GPU_SCALES_TWO_LEVEL, 16, false, "Q6_K"},
    {GPU_CODES_8, GPU_SCALES_TWO_LEVEL, 16, true, "Q4_K beside Q6_K"},
    {GPU_CODES_8, GPU_SCALES_F32, 256, true, "int8 channels"},
    {GPU_CODES_E4M3, GPU_SCALES_F32, 128, false, "fp8 blocks"},
    {GPU_CODES_E4M3, GPU_SCALES_F32, 256, false, "fp8 channels"},
};

inline float put_half(uint8_t *to, float value) {
  const f16_t rounded = from_float<f16_t>(value);
  memcpy(to, &rounded, 2);
  return to_float(rounded);
}

/* The level of a random code. */
inline float put_code(const gpu_packed_t &form, uint8_t *panel, int row, int k) {
  if (form.codes == GPU_CODES_4) {
    const int code = random_below(16), in_unit = k % 128;
    uint8_t *to =
        panel + k / 128 * 512 + row * 64 + in_unit % 32 / 8 * 16 + in_unit / 32 * 4 + k % 8 / 2;
    *to |= (uint8_t)(code << k % 2 * 4);
    return (float)(int)(form.table[code / 4] >> code % 4 * 8 & 255) - (float)form.offset;
  }
  uint8_t code = (uint8_t)random_below(256);
  if (form.codes == GPU_CODES_E4M3 && (code & 0x7f) == 0x7f) code ^= 1;
  const int in_unit = k % 64;
  panel[k / 64 * 512 + row * 64 + in_unit % 32 / 8 * 16 + in_unit / 32 * 8 + k % 8] = code;
  if (form.codes == GPU_CODES_E4M3) return e4m3_to_float(code);
  return (float)code - (float)form.offset;
}

/* A matrix [rows, cols]: bytes on the device, and its numbers, rounded once to T. */
template <class T> struct packed_matrix_t {
  gpu_packed_t form = {};
  std::vector<uint8_t> bytes;
  std::vector<T> values;
  int rows, cols;

  packed_matrix_t(const packed_form_t &f, int num_rows, int num_cols)
      : rows(num_rows), cols(num_cols) {
    const size_t unit = f.codes == GPU_CODES_4 ? 128 : 64;
    const size_t units = (cols + unit - 1) / unit, groups = (cols + f.group - 1) / f.group;
    form.codes = f.codes, form.scales = f.scales, form.has_min = f.has_min;
    while (1 << form.group_shift < f.group) form.group_shift++;
    form.offset = f.codes == GPU_CODES_4 ? 128 : random_below(200);
    for (int i = 0; i < 16; i++) form.table[i / 4] |= (uint32_t)random_below(256) << i % 4 * 8;
    form.scales_at = units * 512;
    form.supers_at = (form.scales_at + groups * 8 * scale_bytes() + 15) / 16 * 16;
    form.panel_bytes = form.supers_at;
    if (f.scales == GPU_SCALES_TWO_LEVEL)
      form.panel_bytes += (cols + 255) / 256 * 8 * (f.has_min ? 4 : 2);
    form.panel_bytes = (form.panel_bytes + 15) / 16 * 16;
    bytes.resize((rows + 7) / 8 * form.panel_bytes);
    values.resize((size_t)rows * cols);
    for (int r = 0; r < rows; r++) fill_row(r);
  }

  size_t scale_bytes() const {
    const size_t one = form.scales == GPU_SCALES_F32 ? 4 : form.scales == GPU_SCALES_F16 ? 2 : 1;
    return form.has_min ? 2 * one : one;
  }

  void fill_row(int r) {
    uint8_t *panel = &bytes[r / 8 * form.panel_bytes];
    const int group = 1 << form.group_shift;
    float scale = 0, min = 0, super = 0, super_min = 0;
    for (int k = 0; k < cols; k++) {
      if (k % 256 == 0 && form.scales == GPU_SCALES_TWO_LEVEL)
        put_supers(panel, r % 8, k / 256, &super, &super_min);
      if (k % group == 0) put_scale(panel, r % 8, k / group, super, super_min, &scale, &min);
      const float product = put_code(form, panel, r % 8, k) * scale;
      values[(size_t)r * cols + k] = from_float<T>(product - min);
    }
  }

  void put_supers(uint8_t *panel, int row, int chunk, float *super, float *super_min) {
    const int size = form.has_min ? 4 : 2;
    uint8_t *to = panel + form.supers_at + (chunk * 8 + row) * size;
    *super = put_half(to, random_float(1e-4f));
    if (form.has_min) *super_min = put_half(to + 2, random_float(1e-4f));
  }

  /* About 0.005 for levels of 100, and more for e4m3 and nibbles of exponents. */
  void put_scale(uint8_t *panel, int row, int at, float super, float super_min, float *scale,
                 float *min) {
    uint8_t *to = panel + form.scales_at + (at * 8 + row) * scale_bytes();
    *min = 0;
    if (form.scales == GPU_SCALES_F32) {
      *scale = random_float(0.01f);
      memcpy(to, scale, 4);
      if (form.has_min) *min = random_float(1), memcpy(to + 4, min, 4);
    } else if (form.scales == GPU_SCALES_F16) {
      *scale = put_half(to, random_float(0.01f));
      if (form.has_min) *min = put_half(to + 2, random_float(1));
    } else if (form.scales == GPU_SCALES_TWO_LEVEL) {
      to[0] = (uint8_t)random_below(256);
      *scale = super * (float)(int8_t)to[0];
      if (form.has_min) to[1] = (uint8_t)random_below(256), *min = super_min * (float)to[1];
    } else {
      to[0] = (uint8_t)(at == 0 ? row : 118 + random_below(8)); /* the smallest numbers as well */
      *scale = std::ldexp(1.0f, to[0] - 128);
    }
  }
};

#endif
