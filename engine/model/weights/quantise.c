/* quantise.c: rows of 16-bit numbers become Q8_0 blocks on their way to the device.
 *
 * Called by the packing threads of a back end. Keeps nothing: a row is read into the scratch memory
 * of its caller and quantised there, front to back; a block is smaller than its numbers.
 */
#include "engine/model/weights/quantise.h"

#include "engine/model/weights/convert.h"
#include "engine/quant/quant.h"

bool quantise_suits(const ops_t *ops, const weight_source_t *plain) {
  const quant_format_t *format = quant_format(WEIGHT_Q8_0);
  return ops->weight_formats & 1U << WEIGHT_Q8_0 && plain->format == WEIGHT_PLAIN &&
         plain->row_format == NULL && plain->dtype != DTYPE_F32 &&
         quant_row_bytes(format, 0, plain->cols) != 0;
}

static const void *quantised_row(void *context, int64_t row, void *scratch) {
  const weight_source_t *plain = context;
  const quant_format_t *format = quant_format(WEIGHT_Q8_0);
  const uint8_t *in = plain->row(plain->context, row, scratch);
  uint8_t *out = scratch;
  if (in == NULL) return NULL;
  for (int64_t k = 0; k < plain->cols; k += format->block_cols) {
    float values[32];
    convert_row(values, DTYPE_F32, in + (size_t)k * dtype_size(plain->dtype), plain->dtype, 32);
    quant_encode_q8_0(values, out);
    out += format->block_bytes;
  }
  return scratch;
}

weight_source_t quantise_q8_0(weight_source_t *plain) {
  weight_source_t source = *plain;
  source.format = WEIGHT_Q8_0;
  source.row = quantised_row;
  source.context = plain;
  return source;
}
