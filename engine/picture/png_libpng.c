/* png_libpng.c: PNG by libpng. One thread a call; libpng leaves an error by a long jump. */
#include "engine/picture/decoders.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct png_state {
  file_bytes_t rest;
  png_structp png;
  png_infop info;
  canvas_t *out;
  uint8_t **lines; /* (height) */
  uint8_t *wide;   /* 16-bit grey: (height, width, 2) */
  inferd_error_t *error;
  int status;
} png_state_t;

static void take(png_structp png, png_bytep to, size_t count) {
  png_state_t *state = png_get_io_ptr(png);
  if (count > state->rest.size) png_error(png, "it ends too early");
  memcpy(to, state->rest.data, count);
  state->rest.data += count;
  state->rest.size -= count;
}

static void fail(png_structp png, png_const_charp what) {
  png_state_t *state = png_get_error_ptr(png);
  char shown[128];
  error_quote(shown, sizeof shown, what, strlen(what));
  state->status = picture_damaged(state->error, "PNG", shown);
  png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp what) {
  (void)png;
  (void)what;
}

/* Everything becomes 8-bit RGB or RGBA, but 16-bit grey stays as it is. Returns whether that is. */
static bool choose(png_state_t *state) {
  png_structp png = state->png;
  const uint32_t colour = png_get_color_type(png, state->info);
  const bool marked = png_get_valid(png, state->info, PNG_INFO_tRNS) != 0;
  if (png_get_bit_depth(png, state->info) == 16 && colour == PNG_COLOR_TYPE_GRAY && !marked)
    return true;
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  return false;
}

/* What long jumps may cross keeps all that must be freed in *state. */
static void read_all(png_state_t *state) {
  png_structp png = state->png;
  canvas_t *out = state->out;
  if (setjmp(png_jmpbuf(png)) != 0) return;
  png_set_read_fn(png, state, take);
  png_set_user_limits(png, PICTURE_SIDE_MAX, PICTURE_SIDE_MAX);
  png_read_info(png, state->info);
  const bool grey = choose(state);
  (void)png_set_interlace_handling(png);
  png_read_update_info(png, state->info);
  const uint32_t channels = png_get_channels(png, state->info);
  if (png_get_image_width(png, state->info) != out->width ||
      png_get_image_height(png, state->info) != out->height)
    png_error(png, "it has two sizes");
  if (!grey && channels != 3 && channels != 4) png_error(png, "of unknown channels");
  state->status = canvas_make(out, grey ? 3 : channels, state->error);
  if (state->status != 0) return;
  const size_t line = (size_t)out->width * (grey ? 2 : channels);
  state->lines = calloc(out->height, sizeof *state->lines);
  if (grey) state->wide = calloc(out->height, line);
  if (state->lines == NULL || (grey && state->wide == NULL)) {
    state->status = error_set(state->error, ERR_NO_MEMORY, NULL, "no memory for a PNG");
    return;
  }
  for (uint32_t y = 0; y < out->height; y++)
    state->lines[y] = (grey ? state->wide : out->pixels) + y * line;
  png_read_image(png, state->lines);
}

int decode_png(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  png_state_t state = {.rest = file, .out = out, .error = error};
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, fail, ignore);
  state.info = state.png == NULL ? NULL : png_create_info_struct(state.png);
  if (state.info == NULL)
    state.status = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a PNG");
  else
    read_all(&state);
  const size_t count = (size_t)out->width * out->height;
  for (size_t i = 0; state.status == 0 && state.wide != NULL && i < count; i++)
    memset(out->pixels + i * 3, state.wide[i * 2] != 0 ? 255 : state.wide[i * 2 + 1], 3);
  png_destroy_read_struct(&state.png, &state.info, NULL);
  free(state.lines);
  free(state.wide);
  return state.status;
}
