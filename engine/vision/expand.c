/* expand.c: what stands in the prompt in the place of one picture, as replace_image_token of
 * processing_NAME.py in transformers writes it. Any thread; no state. */
#include "engine/vision/processor.h"

typedef struct writer {
  vision_run_t *out;
  size_t capacity, count;
} writer_t;

static void put(writer_t *writer, vision_run_t run) {
  if (run.count == 0) run.count = 1;
  if (writer->count < writer->capacity) writer->out[writer->count] = run;
  writer->count++;
}

static void put_text(writer_t *writer, const char *text) {
  put(writer, (vision_run_t){.piece = VISION_TEXT, .text = text});
}

static void put_tokens(writer_t *writer, uint32_t count) {
  put(writer, (vision_run_t){.piece = VISION_TOKENS, .count = count});
}

static void put_piece(writer_t *writer, vision_piece_t piece) {
  put(writer, (vision_run_t){.piece = piece});
}

static void gemma3(const vision_layout_t *layout, writer_t *writer) {
  if (layout->views > 1) put_text(writer, "Here is the original image \n\n");
  for (uint32_t i = 0; i < layout->views; i++) {
    if (i == 1) put_text(writer, "\n\n and here are some crops to help you see better \n\n");
    if (i > 1) put_text(writer, "\n\n \n\n");
    if (layout->views == 1) put_text(writer, "\n\n");
    put_piece(writer, VISION_BEGIN);
    put_tokens(writer, layout->view_tokens);
    put_piece(writer, VISION_END);
  }
  put_text(writer, "\n\n");
}

static void idefics3(const vision_layout_t *layout, writer_t *writer) {
  for (uint32_t row = 0; row < layout->tile_rows; row++) {
    for (uint32_t column = 0; column < layout->tile_columns; column++) {
      put_piece(writer, VISION_BEGIN);
      put(writer, (vision_run_t){.piece = VISION_TILE, .row = row + 1, .column = column + 1});
      put_tokens(writer, layout->view_tokens);
    }
    put_text(writer, row + 1 < layout->tile_rows ? "\n" : "\n\n");
  }
  put_piece(writer, VISION_BEGIN);
  put_piece(writer, VISION_WHOLE);
  put_tokens(writer, layout->view_tokens);
  put_piece(writer, VISION_END);
}

static void pixtral(const vision_layout_t *layout, writer_t *writer) {
  for (uint32_t row = 0; row < layout->token_rows; row++) {
    put_tokens(writer, layout->token_columns);
    put_piece(writer, row + 1 < layout->token_rows ? VISION_BREAK : VISION_END);
  }
}

size_t vision_expand(const vision_processor_t *processor, const vision_layout_t *layout,
                     vision_run_t *out, size_t capacity) {
  writer_t writer = {out, capacity, 0};
  switch (processor->kind) {
  case VISION_GEMMA3: gemma3(layout, &writer); break;
  case VISION_IDEFICS3: idefics3(layout, &writer); break;
  case VISION_PIXTRAL: pixtral(layout, &writer); break;
  case VISION_GEMMA4:
  case VISION_GOT_OCR2:
    put_piece(&writer, VISION_BEGIN);
    put_tokens(&writer, layout->tokens);
    put_piece(&writer, VISION_END);
    break;
  case VISION_QWEN2_VL:
  case VISION_GLM4V:
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT:
  case VISION_CLIP: put_tokens(&writer, layout->tokens);
  }
  return writer.count;
}
