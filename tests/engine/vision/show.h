/* show.h: a picture of numbers, and what it becomes, as one line of JSON that tests compare.
 *
 * scripts/vectors/pictures.py draws the same pictures and writes the same line from transformers.
 */
#ifndef INFERD_TESTS_ENGINE_VISION_SHOW_H
#define INFERD_TESTS_ENGINE_VISION_SHOW_H

#include "engine/base/buffer.h"
#include "engine/vision/processor.h"

/* Noise that is a function of the seed alone. The caller frees rgb. */
picture_t show_draw(uint32_t width, uint32_t height, uint32_t seed);
uint32_t show_crc(const void *bytes, size_t length); /* that of zlib */

/* `request` has the members preprocessor, processor, config, width, height, alone and seed. Appends
 * the line to *line: views, grids, tokens, the text in place of the picture and the CRC of the
 * rows; or {"refused": true}. Returns 0, or what vision_processor_read returns. */
int show_case(const json_t *request, buffer_t *line, inferd_error_t *error);

#endif
