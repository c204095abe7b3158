/* jpeg_libjpeg.c: JPEG by libjpeg-turbo: the slow integer transform and smooth upsampling, as
 * Pillow. One thread a call; the library leaves an error by a long jump. */
#include "engine/picture/decoders.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

/* A progressive file may have thousands of scans that each visit every block. */
enum { SCANS_MAX = 100 };

typedef struct jpeg_state {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr handlers;
  struct jpeg_progress_mgr progress;
  jmp_buf leave;
  canvas_t *out;
  uint8_t *inks; /* a line of CMYK */
  inferd_error_t *error;
  int status;
} jpeg_state_t;

static void leave(jpeg_state_t *state, const char *what) {
  if (state->status == 0) state->status = picture_damaged(state->error, "JPEG", what);
  longjmp(state->leave, 1);
}

static void fail(j_common_ptr jpeg) {
  char text[JMSG_LENGTH_MAX], shown[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  leave(jpeg->client_data, error_quote(shown, sizeof shown, text, strlen(text)));
}

/* Warnings are of damaged blocks, which Pillow shows, or of an end that is missing. */
static void warn(j_common_ptr jpeg, int level) {
  if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF)
    leave(jpeg->client_data, "it ends too early");
}

static void watch(j_common_ptr jpeg) {
  jpeg_state_t *state = jpeg->client_data;
  if (state->jpeg.input_scan_number > SCANS_MAX) leave(state, "it has too many scans");
}

/* Pillow's conversion of inverted inks: black is the light that is left. */
static void inks_to_rgb(const uint8_t *inks, uint32_t width, uint8_t *to) {
  for (uint32_t x = 0; x < width; x++, inks += 4) {
    const uint32_t light = inks[3];
    for (int k = 0; k < 3; k++) {
      const uint32_t sum = (255u - inks[k]) * light + 128;
      *to++ = (uint8_t)(light - ((sum + (sum >> 8)) >> 8));
    }
  }
}

/* What long jumps may cross keeps all that must be freed in *state. */
static void read_all(jpeg_state_t *state, file_bytes_t file) {
  struct jpeg_decompress_struct *jpeg = &state->jpeg;
  canvas_t *out = state->out;
  if (setjmp(state->leave) != 0) return;
  jpeg_create_decompress(jpeg);
  jpeg->client_data = state;
  jpeg->progress = &state->progress;
  state->progress.progress_monitor = watch;
  jpeg_mem_src(jpeg, file.data, file.size);
  (void)jpeg_read_header(jpeg, TRUE);
  if (jpeg->image_width != out->width || jpeg->image_height != out->height)
    leave(state, "it has two sizes");
  const bool inks = jpeg->num_components == 4;
  jpeg->out_color_space = inks ? JCS_CMYK : JCS_RGB;
  (void)jpeg_start_decompress(jpeg);
  state->status = canvas_make(out, 3, state->error);
  if (state->status != 0) return;
  if (inks) state->inks = calloc(out->width, 4);
  if (inks && state->inks == NULL) {
    state->status = error_set(state->error, ERR_NO_MEMORY, NULL, "no memory for a JPEG");
    return;
  }
  for (uint8_t *to = out->pixels; jpeg->output_scanline < jpeg->output_height;
       to += (size_t)out->width * 3) {
    JSAMPROW line = inks ? state->inks : to;
    if (jpeg_read_scanlines(jpeg, &line, 1) != 1) leave(state, "it ends too early");
    if (inks) inks_to_rgb(line, out->width, to);
  }
}

int decode_jpeg(file_bytes_t file, canvas_t *out, inferd_error_t *error) {
  jpeg_state_t *state = calloc(1, sizeof *state);
  if (state == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a JPEG");
  state->out = out;
  state->error = error;
  state->jpeg.err = jpeg_std_error(&state->handlers);
  state->jpeg.client_data = state;
  state->handlers.error_exit = fail;
  state->handlers.emit_message = warn;
  read_all(state, file);
  int status = state->status;
  jpeg_destroy_decompress(&state->jpeg);
  free(state->inks);
  free(state);
  return status;
}
