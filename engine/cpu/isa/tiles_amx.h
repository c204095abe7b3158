/* tiles_amx.h: how the kernels of the amx tier use the eight tile registers.
 *
 * A block is up to 2 x 2 tiles: 0..3 accumulate, 4 and 5 hold the left operand, 6 and 7 the right
 * one. Included by files that are compiled for AMX; any pool worker.
 */
#ifndef INFERD_ENGINE_CPU_ISA_TILES_AMX_H
#define INFERD_ENGINE_CPU_ISA_TILES_AMX_H

#include "engine/cpu/isa/attend.h"

#include <immintrin.h>
#include <string.h>

enum {
  TILE_ROWS = 16,
  TILE_BYTES = 64, /* of a tile row: 16 floats or 32 bf16 */
  TILE_DEPTH = 32, /* k of one product */
  NUM_TILES = 8
};

/* Intel SDM, TILECFG. */
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config_t;

/* `upper` rows in tiles 0, 1, 4 and `lower` rows in tiles 2, 3, 5 of a 2 x 2 block; with lower 0
 * all four accumulators have `upper` rows. The tiles lose their content. */
static inline void tiles_configure(int32_t upper, int32_t lower) {
  static const uint8_t is_lower[NUM_TILES] = {0, 0, 1, 1, 0, 1, 0, 0};
  tile_config_t config;
  memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < NUM_TILES; i++) {
    config.row_bytes[i] = TILE_BYTES;
    config.rows[i] = (uint8_t)(i >= 6 ? TILE_ROWS : lower > 0 && is_lower[i] ? lower : upper);
  }
  __asm__ volatile("" ::: "memory"); /* the intrinsic does not say that it reads all 64 bytes */
  _tile_loadconfig(&config);
}

/* attention_amx.c: the entry `attend` of the amx table */
void attend_amx(const attend_t *attend);

#endif
