/* pieces.h: where the keys of every request are cut, so that no sum depends on who is in the batch.
 *
 * Pure functions of the position. A piece is the range of one running sum; pieces are then added
 * in order of their keys (softmax.h). Up to key 2048 a piece has 128 keys; from then on there are
 * sixteen pieces to every doubling, so that a row of a million keys has 160.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_PIECES_H
#define INFERD_CUDA_DEVICE_CODE_PIECES_H

#include "cuda/device_code/gpu.h"

enum { PIECE_SHIFT = 7, PIECES_AN_OCTAVE = 16, FIRST_OCTAVE_SHIFT = 11 };

/* Doublings of the piece's length at this key. */
GPU_BOTH_FN int piece_octave(int key) {
  int octave = 0;
  while (key >> FIRST_OCTAVE_SHIFT >> octave >= 2) octave++;
  return octave;
}

/* Number of the piece that has this key. */
GPU_BOTH_FN int piece_of(int key) {
  const int octave = piece_octave(key);
  return PIECES_AN_OCTAVE * octave + (key >> PIECE_SHIFT >> octave);
}

/* First key of a piece. */
GPU_BOTH_FN int piece_begin(int piece) {
  const int octave = piece < 2 * PIECES_AN_OCTAVE ? 0 : piece / PIECES_AN_OCTAVE - 1;
  return (piece - PIECES_AN_OCTAVE * octave) << PIECE_SHIFT << octave;
}

/* One past the last key of the piece that has `key`. */
GPU_BOTH_FN int piece_end(int key) {
  const int shift = PIECE_SHIFT + piece_octave(key);
  return ((key >> shift) + 1) << shift;
}

#endif
