/* ratio.c: how much a text repeats itself: zlib tells. Loop thread; a text of one window. */
#include "server/audio/audio.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

double audio_ratio(const tokenizer_t *tokenizer, const int32_t *ids, int32_t count) {
  char *text = NULL;
  size_t length = 0, begin = 0;
  inferd_error_t ignored;
  if (tokenizer_decode(tokenizer, ids, (size_t)count, true, &text, &length, &ignored) != 0)
    return 0;
  while (length > 0 && is_space(text[length - 1])) length--;
  while (begin < length && is_space(text[begin])) begin++;
  uLongf packed = compressBound(length - begin);
  uint8_t *room = malloc(packed);
  double ratio = 0;
  if (room != NULL && length > begin &&
      compress(room, &packed, (const Bytef *)text + begin, length - begin) == Z_OK)
    ratio = (double)(length - begin) / (double)packed;
  free(room);
  free(text);
  return ratio;
}
