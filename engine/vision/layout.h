/* layout.h: inside engine/vision: the rules of size, one function a family.
 *
 * Each computes as the Python of transformers does: in double precision, with Python's rounding
 * (half to even). Each fills the layout, which is zeroed before, up to what follows from grid and
 * merge. Returns 0 or ERR_INVALID_VALUE. Pure, any thread.
 */
#ifndef INFERD_ENGINE_VISION_LAYOUT_H
#define INFERD_ENGINE_VISION_LAYOUT_H

#include "engine/vision/processor.h"

/* layout_tiles.c. Source: image_processing_NAME.py in transformers, models/gemma3, idefics3,
 * got_ocr2, llava_onevision, llava_next, clip. */
int layout_gemma3(const vision_processor_t *processor, uint32_t width, uint32_t height,
                  vision_layout_t *out);
int layout_idefics3(const vision_processor_t *processor, uint32_t width, uint32_t height,
                    vision_layout_t *out);
int layout_got_ocr2(const vision_processor_t *processor, uint32_t width, uint32_t height,
                    vision_layout_t *out);
int layout_llava(const vision_processor_t *processor, uint32_t width, uint32_t height, bool alone,
                 vision_layout_t *out);
int layout_clip(const vision_processor_t *processor, uint32_t width, uint32_t height,
                vision_layout_t *out);

#endif
