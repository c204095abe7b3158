/* test_quantise.c: plain rows as a source of Q8_0 blocks. */
#include "engine/model/weights/quantise.h"

#include "engine/base/half.h"
#include "engine/quant/quant.h"
#include "tests/expect.h"

#include <math.h>

enum { ROWS = 3, COLS = 96 };

typedef struct plain_rows {
  uint16_t numbers[ROWS][COLS];
  bool in_scratch;
} plain_rows_t;

static const void *plain_row(void *context, int64_t row, void *scratch) {
  const plain_rows_t *rows = context;
  if (!rows->in_scratch) return rows->numbers[row];
  return memcpy(scratch, rows->numbers[row], sizeof rows->numbers[row]);
}

static const void *no_row(void *context, int64_t row, void *scratch) {
  (void)context, (void)row, (void)scratch;
  return NULL;
}

/* Each number is within half a step of what it was, whether the row lies in the file or in scratch.
 */
Test(quantise, rows_become_blocks) {
  static plain_rows_t rows;
  const quant_format_t *format = quant_format(WEIGHT_Q8_0);
  for (int i = 0; i < ROWS * COLS; i++)
    rows.numbers[i / COLS][i % COLS] = bf16_from_float(sinf((float)i) * (float)(1 + i / 32));
  for (int i = 0; i < 2; i++) {
    rows.in_scratch = i == 1;
    weight_source_t plain = {
        .name = "w", .rows = ROWS, .cols = COLS, .dtype = DTYPE_BF16, .row = plain_row};
    plain.context = &rows;
    cr_assert(quantise_suits(&ops_cpu, &plain));
    weight_source_t source = quantise_q8_0(&plain);
    ASSERT_EQ(source.format, WEIGHT_Q8_0);
    ASSERT_EQ(source.rows, ROWS);
    for (int64_t row = 0; row < ROWS; row++) {
      _Alignas(64) uint8_t scratch[COLS * 4];
      float values[COLS];
      quant_decode(format, 0, source.row(source.context, row, scratch), COLS, values);
      for (int k = 0; k < COLS; k++) {
        float number = float_from_bf16(rows.numbers[row][k]), largest = 0;
        for (int j = k / 32 * 32; j < k / 32 * 32 + 32; j++)
          largest = fmaxf(largest, fabsf(float_from_bf16(rows.numbers[row][j])));
        ASSERT_LE_FOR(fabsf(values[k] - number), largest / 127 * 0.5f + largest * 0x1p-10f,
                      "row %d column %d", (int)row, k);
      }
    }
  }
}

Test(quantise, other_matrices_stay_as_they_are) {
  weight_source_t plain = {.rows = 1, .cols = 64, .dtype = DTYPE_F16, .row = no_row};
  cr_assert(quantise_suits(&ops_cpu, &plain));
  cr_assert_null(quantise_q8_0(&plain).row(&plain, 0, NULL));
  plain.cols = 65;
  cr_assert_not(quantise_suits(&ops_cpu, &plain));
  plain.cols = 64;
  plain.dtype = DTYPE_F32; /* routers */
  cr_assert_not(quantise_suits(&ops_cpu, &plain));
  plain.dtype = DTYPE_F16;
  plain.format = WEIGHT_Q4_0;
  cr_assert_not(quantise_suits(&ops_cpu, &plain));
  plain.format = WEIGHT_PLAIN;
  ops_t without = ops_cpu;
  without.weight_formats = 1U << WEIGHT_MXFP4;
  cr_assert_not(quantise_suits(&without, &plain));
}
