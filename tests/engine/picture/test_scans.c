/* test_scans.c: a JPEG whose scans each visit every block: more than a limit are refused. */
#include "engine/picture/picture.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

enum { SCANS_MAX = 100, BANDS = 63 };

/* Grey, 16 x 16: the mean, each other frequency but for its last bit, then last bits. */
static unsigned char *jpeg_of(int scans, unsigned long *length) {
  static jpeg_scan_info script[1 + 2 * BANDS];
  struct jpeg_compress_struct jpeg;
  struct jpeg_error_mgr handlers;
  unsigned char *bytes = NULL;
  JSAMPLE line[16];
  script[0] = (jpeg_scan_info){.comps_in_scan = 1};
  for (int i = 1; i < scans; i++) {
    const int band = (i - 1) % BANDS + 1, last = i > BANDS;
    script[i] = (jpeg_scan_info){1, {0}, band, band, last, 1 - last};
  }
  jpeg.err = jpeg_std_error(&handlers);
  jpeg_create_compress(&jpeg);
  jpeg_mem_dest(&jpeg, &bytes, length);
  jpeg.image_width = jpeg.image_height = 16;
  jpeg.input_components = 1;
  jpeg.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&jpeg);
  jpeg.scan_info = script;
  jpeg.num_scans = scans;
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < 16; y++) {
    for (int x = 0; x < 16; x++) line[x] = (JSAMPLE)(x * y * 37 % 256);
    JSAMPROW row = line;
    (void)jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return bytes;
}

Test(picture, scans_of_a_jpeg_are_bounded) {
  for (int scans = SCANS_MAX - 1; scans <= SCANS_MAX + 1; scans++) {
    unsigned long length = 0;
    picture_t picture = {0};
    inferd_error_t error = {0};
    unsigned char *bytes = jpeg_of(scans, &length);
    EXPECT_EQ_FOR(picture_decode(bytes, length, &picture, &error),
                  scans <= SCANS_MAX ? 0 : ERR_INVALID_VALUE, "%d scans: %s", scans, error.message);
    if (scans > SCANS_MAX) cr_expect(strstr(error.message, "too many scans") != NULL);
    free(picture.rgb);
    free(bytes);
  }
}
