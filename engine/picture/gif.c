/* gif.c: the first frame of a GIF on its screen. Any thread; no state. Work is linear in the file
 * and the frame: what stands behind the first frame is not read.
 * Source: GIF89a, and its appendix F for the codes. */
#include "engine/picture/decoders.h"

#include <stdlib.h>
#include <string.h>

enum { CODES_MAX = 4096, CODE_BITS_MAX = 12, NO_COLOUR = 256 };

typedef struct gif_frame {
  uint32_t left, top, width, height;
  bool interlaced;
  uint32_t clear; /* index of transparent pixels; NO_COLOUR = none */
  uint8_t colours[768];
} gif_frame_t;

/* Codes across sub-blocks. */
typedef struct codes {
  file_bytes_t rest; /* behind the current sub-block's length byte */
  size_t block;      /* bytes left of it */
  uint32_t bits, count;
} codes_t;

static bool next_byte(codes_t *codes, uint32_t *out) {
  if (codes->block == 0) {
    if (codes->rest.size == 0 || codes->rest.data[0] == 0) return false;
    codes->block = codes->rest.data[0];
    codes->rest.data++;
    codes->rest.size--;
  }
  if (codes->rest.size == 0) return false;
  *out = codes->rest.data[0];
  codes->rest.data++;
  codes->rest.size--;
  codes->block--;
  return true;
}

static bool next_code(codes_t *codes, uint32_t width, uint32_t *out) {
  while (codes->count < width) {
    uint32_t byte;
    if (!next_byte(codes, &byte)) return false;
    codes->bits |= byte << codes->count;
    codes->count += 8;
  }
  *out = codes->bits & ((1u << width) - 1);
  codes->bits >>= width;
  codes->count -= width;
  return true;
}

/* The dictionary: code c is the text of before[c], then last[c]. */
typedef struct dictionary {
  uint16_t before[CODES_MAX], length[CODES_MAX];
  uint8_t last[CODES_MAX], first[CODES_MAX];
} dictionary_t;

/* Writes the text of a code backwards from its end; what is behind `limit` is left out. */
static void write_text(const dictionary_t *book, uint32_t code, uint8_t *at, size_t limit) {
  for (uint32_t i = book->length[code]; i > 0; i--) {
    if (i - 1 < limit) at[i - 1] = book->last[code];
    code = book->before[code];
  }
}

static void book_add(dictionary_t *book, uint32_t code, uint32_t before, uint8_t last) {
  book->before[code] = (uint16_t)before;
  book->length[code] = (uint16_t)(book->length[before] + 1);
  book->last[code] = last;
  book->first[code] = book->first[before];
}

/* Fills indices[count]. False: the codes end too early, or one is of no text. */
static bool unpack(codes_t *codes, uint32_t root, dictionary_t *book, uint8_t *indices,
                   size_t count) {
  const uint32_t clear = 1u << root, end = clear + 1;
  uint32_t width = root + 1, next = end + 1, before = CODES_MAX, code;
  for (uint32_t i = 0; i < clear; i++) {
    book->length[i] = 1;
    book->first[i] = book->last[i] = (uint8_t)i;
  }
  for (size_t done = 0; done < count;) {
    if (!next_code(codes, width, &code) || code == end) return false;
    if (code == clear) {
      width = root + 1;
      next = end + 1;
      before = CODES_MAX;
      continue;
    }
    if (code > next || (code == next && before == CODES_MAX)) return false;
    if (before == CODES_MAX && code >= clear) return false;
    if (before != CODES_MAX && next < CODES_MAX) {
      book_add(book, next, before, book->first[code == next ? before : code]);
      next++;
    } else if (code >= next) {
      return false;
    }
    if (next == 1u << width && width < CODE_BITS_MAX) width++;
    write_text(book, code, indices + done, count - done);
    done += book->length[code];
    before = code;
  }
  return true;
}

static bool skip_blocks(file_bytes_t *rest) {
  while (rest->size > 0) {
    const size_t length = (size_t)rest->data[0] + 1;
    if (length > rest->size) return false;
    rest->data += length;
    rest->size -= length;
    if (length == 1) return true;
  }
  return false;
}

static bool read_colours(file_bytes_t *rest, uint32_t flags, uint8_t colours[768]) {
  const size_t bytes = (size_t)3 << ((flags & 7) + 1);
  if (bytes > rest->size) return false;
  memset(colours, 0, 768);
  memcpy(colours, rest->data, bytes);
  rest->data += bytes;
  rest->size -= bytes;
  return true;
}

/* Goes to the first frame: *rest begins at its smallest code. */
static bool find_frame(file_bytes_t *rest, gif_frame_t *frame) {
  const uint32_t flags = rest->data[10];
  frame->clear = NO_COLOUR;
  for (uint32_t i = 0; i < 768; i++) frame->colours[i] = (uint8_t)(i / 3);
  rest->data += 13;
  rest->size -= 13;
  if ((flags & 0x80) != 0 && !read_colours(rest, flags, frame->colours)) return false;
  while (rest->size >= 11 && rest->data[0] == 0x21) {
    if (rest->data[1] == 0xF9 && rest->data[2] == 4)
      frame->clear = (rest->data[3] & 1) != 0 ? rest->data[6] : NO_COLOUR;
    rest->data += 2;
    rest->size -= 2;
    if (!skip_blocks(rest)) return false;
  }
  if (rest->size < 11 || rest->data[0] != 0x2C) return false;
  frame->left = little_16(rest->data + 1);
  frame->top = little_16(rest->data + 3);
  frame->width = little_16(rest->data + 5);
  frame->height = little_16(rest->data + 7);
  const uint32_t own = rest->data[9];
  frame->interlaced = (own & 0x40) != 0;
  rest->data += 10;
  rest->size -= 10;
  return (own & 0x80) == 0 || read_colours(rest, own, frame->colours);
}

/* The line of the frame that the i-th line of an interlaced file is. */
static uint32_t line_of(const gif_frame_t *frame, uint32_t i) {
  static const uint32_t begins[4] = {0, 4, 2, 1}, steps[4] = {8, 8, 4, 2};
  if (!frame->interlaced) return i;
  for (int pass = 0; pass < 4; pass++) {
    const uint32_t lines = frame->height <= begins[pass]
                               ? 0
                               : (frame->height - begins[pass] + steps[pass] - 1) / steps[pass];
    if (i < lines) return begins[pass] + i * steps[pass];
    i -= lines;
  }
  return 0;
}

static void put(const gif_frame_t *frame, uint32_t index, const canvas_t *out, uint8_t *to) {
  memcpy(to, frame->colours + (size_t)index * 3, 3);
  if (out->channels == 4) to[3] = index == frame->clear ? 0 : 255;
}

static void paint(const gif_frame_t *frame, const uint8_t *indices, const canvas_t *out) {
  const uint32_t around = frame->clear == NO_COLOUR ? 0 : frame->clear;
  const size_t pixel = out->channels;
  for (size_t i = 0; i < (size_t)out->width * out->height; i++)
    put(frame, around, out, out->pixels + i * pixel);
  for (uint32_t i = 0; i < frame->height; i++) {
    uint8_t *to =
        out->pixels + ((size_t)(frame->top + line_of(frame, i)) * out->width + frame->left) * pixel;
    for (uint32_t x = 0; x < frame->width; x++, to += pixel) put(frame, *indices++, out, to);
  }
}

int decode_gif(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  gif_frame_t frame;
  if (!find_frame(&file, &frame) || file.size == 0)
    return picture_damaged(error, "GIF", "it has no frame");
  if (frame.width == 0 || frame.height == 0 || frame.left + frame.width > out->width ||
      frame.top + frame.height > out->height)
    return picture_damaged(error, "GIF", "its first frame is empty or outside of the screen");
  const uint32_t root = file.data[0];
  if (root < 1 || root > 8) return picture_damaged(error, "GIF", "its codes have a wrong width");
  const size_t count = (size_t)frame.width * frame.height;
  dictionary_t *book = calloc(1, sizeof *book);
  uint8_t *indices = calloc(count, 1);
  codes_t codes = {.rest = {file.data + 1, file.size - 1}};
  int status = 0;
  if (book == NULL || indices == NULL)
    status = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a GIF");
  else if (!unpack(&codes, root, book, indices, count))
    status = picture_damaged(error, "GIF", "its codes are wrong or end too early");
  if (status == 0) status = canvas_make(out, frame.clear == NO_COLOUR ? 3 : 4, error);
  if (status == 0) paint(&frame, indices, out);
  free(book);
  free(indices);
  return status;
}
