/* pieces.h: what files of pictures and sound are made of: chunks, segments, blocks, pages, frames,
 * boxes. Any thread; no state.
 */
#ifndef INFERD_TESTS_FILE_MUTATOR_PIECES_H
#define INFERD_TESTS_FILE_MUTATOR_PIECES_H

#include <stddef.h>
#include <stdint.h>

typedef enum container {
  ANOTHER, /* one piece */
  RIFF,    /* WAV, WebP */
  PNG,
  GIF,
  JPEG,
  OGG,
  FLAC,
  MPEG, /* MP3 */
  MP4   /* boxes in boxes: a box that has some is a piece without them */
} container_t;

container_t container_of_file(const uint8_t *bytes, size_t size);
/* The size of the piece that begins at bytes[at]; at least 1, and no more than there is. */
size_t piece_size(container_t container, const uint8_t *bytes, size_t size, size_t at);
/* Writes the checksums of a piece, without which readers look no further. */
void piece_mend(container_t container, uint8_t *piece, size_t size);

#endif
