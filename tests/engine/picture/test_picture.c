/* test_picture.c: files of pictures against Pillow (tests/vectors/picture_files.jsonl, which
 * scripts/vectors/picture_files.py wrote), each also cut off at every length. */
#include "engine/picture/work.h"
#include "engine/text/base64.h"
#include "tests/engine/vision/show.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>

typedef void (*visit_t)(const json_t *row, const char *name, const buffer_t *file);

static size_t each_file(visit_t visit) {
  FILE *vectors = fopen("tests/vectors/picture_files.jsonl", "r");
  cr_assert_not_null(vectors);
  char *text = NULL, name[64];
  size_t capacity = 0, count = 0;
  for (ssize_t length; (length = getline(&text, &capacity, vectors)) > 0; count++) {
    json_doc_t *doc = NULL;
    inferd_error_t error = {0};
    buffer_t file = {0};
    ASSERT_EQ(json_parse(text, (size_t)length, &json_limits_request, &doc, &error), 0);
    const json_t *row = json_root(doc), *bytes = json_get(row, "file");
    const json_t *named = json_get(row, "name");
    snprintf(name, sizeof name, "%.*s", (int)named->length, named->text);
    cr_assert(base64_append(&file, bytes->text, bytes->length), "%s", name);
    visit(row, name, &file);
    buffer_free(&file);
    json_free(doc);
  }
  fclose(vectors);
  free(text);
  return count;
}

static void same_as_pillow(const json_t *row, const char *name, const buffer_t *file) {
  picture_t picture = {0};
  picture_header_t header;
  inferd_error_t error = {0};
  int status = picture_decode(file->bytes, file->length, &picture, &error);
  if (json_get(row, "refused") != NULL) {
    EXPECT_EQ_FOR(status, ERR_INVALID_VALUE, "%s", name);
    EXPECT_EQ_FOR(error.message[0] != 0, true, "%s", name);
    free(picture.rgb);
    return;
  }
  int64_t width = 0, height = 0, crc = 0;
  (void)json_int64(json_get(row, "width"), &width);
  (void)json_int64(json_get(row, "height"), &height);
  (void)json_int64(json_get(row, "crc"), &crc);
  EXPECT_EQ_FOR(status, 0, "%s: %s", name, error.message);
  if (status != 0) return;
  EXPECT_EQ_FOR(picture.width, (uint32_t)width, "%s", name);
  EXPECT_EQ_FOR(picture.height, (uint32_t)height, "%s", name);
  EXPECT_EQ_FOR(show_crc(picture.rgb, (size_t)(width * height * 3)), (uint32_t)crc, "%s", name);
  ASSERT_EQ(picture_header(file->bytes, file->length, &header, &error), 0);
  EXPECT_EQ_FOR(header.width, picture.width, "%s", name);
  EXPECT_EQ_FOR(header.height, picture.height, "%s", name);
  free(picture.rgb);
}

Test(picture, files_have_the_pixels_that_pillow_reads) {
  ASSERT_LE(70, each_file(same_as_pillow));
}

/* From memory of exactly that length, so that sanitizers see a byte too many. */
static void cut_everywhere(const json_t *row, const char *name, const buffer_t *file) {
  (void)row;
  for (size_t length = 0; length < file->length; length += 1 + length / 40) {
    uint8_t *bytes = malloc(length == 0 ? 1 : length);
    picture_t picture = {0};
    inferd_error_t error = {0};
    cr_assert_not_null(bytes);
    memcpy(bytes, file->data, length);
    int status = picture_decode(bytes, length, &picture, &error);
    cr_expect(status == 0 || status == ERR_INVALID_VALUE, "%s cut to %zu: %d", name, length,
              status);
    free(picture.rgb);
    free(bytes);
  }
}

Test(picture, files_that_end_anywhere_are_refused_or_read) {
  ASSERT_LE(70, each_file(cut_everywhere));
}

static uint32_t draw(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static void change_bytes(const json_t *row, const char *name, const buffer_t *file) {
  (void)row;
  uint32_t state = 7;
  for (int i = 0; i < 200 && file->length > 0; i++) {
    picture_t picture = {0};
    inferd_error_t error = {0};
    uint8_t *bytes = malloc(file->length);
    cr_assert_not_null(bytes);
    memcpy(bytes, file->data, file->length);
    for (uint32_t k = 0; k <= draw(&state) % 4; k++)
      bytes[draw(&state) % file->length] = (uint8_t)draw(&state);
    int status = picture_decode(bytes, file->length, &picture, &error);
    cr_expect(status <= 0, "%s", name);
    free(picture.rgb);
    free(bytes);
  }
}

Test(picture, files_with_changed_bytes_do_no_harm) {
  ASSERT_LE(70, each_file(change_bytes));
}

/* A header of these numbers and nothing behind it. */
static int png_of(uint32_t width, uint32_t height) {
  uint8_t bytes[33] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
  picture_header_t header;
  inferd_error_t error = {0};
  for (int i = 0; i < 4; i++) {
    bytes[16 + i] = (uint8_t)(width >> (24 - 8 * i));
    bytes[20 + i] = (uint8_t)(height >> (24 - 8 * i));
  }
  return picture_header(bytes, sizeof bytes, &header, &error);
}

Test(picture, sizes_are_bounded_by_the_header_alone) {
  ASSERT_EQ(png_of(PICTURE_SIDE_MAX - 1, 1), 0);
  ASSERT_EQ(png_of(PICTURE_SIDE_MAX, 1), 0);
  ASSERT_EQ(png_of(PICTURE_SIDE_MAX + 1, 1), ERR_INVALID_VALUE);
  ASSERT_EQ(png_of(1, PICTURE_SIDE_MAX + 1), ERR_INVALID_VALUE);
  ASSERT_EQ(png_of(8000, 5000), 0);
  ASSERT_EQ(png_of(8000, 5001), ERR_INVALID_VALUE);
  ASSERT_EQ(png_of(0, 1), ERR_INVALID_VALUE);
  ASSERT_EQ(png_of(0xFFFFFFFF, 0xFFFFFFFF), ERR_INVALID_VALUE);
}

static helper_t *helper;

/* The libraries get along with the rights that a child has left. */
static void through_a_child(const json_t *row, const char *name, const buffer_t *file) {
  picture_header_t header;
  inferd_error_t error = {0};
  picture_job_t job = {0};
  size_t used = 0;
  if (json_get(row, "refused") != NULL ||
      picture_header(file->bytes, file->length, &header, &error) != 0)
    return;
  job.width = header.width;
  job.height = header.height;
  vision_processor_default(VISION_QWEN2_VL, &job.processor);
  ASSERT_EQ(vision_layout(&job.processor, job.width, job.height, true, &job.layout, &error), 0);
  const size_t bytes = vision_view_bytes(&job.layout);
  uint8_t *ours = calloc(bytes, 1), *theirs = calloc(bytes, 1);
  cr_assert(ours != NULL && theirs != NULL);
  uint64_t spent_ns = 0;
  EXPECT_EQ_FOR(picture_views(helper, &job, file->bytes, file->length, theirs, &spent_ns, &error),
                0, "%s: %s", name, error.message);
  EXPECT_EQ_FOR(picture_work(&job, file->bytes, file->length, ours, bytes, &used, &error), 0,
                "%s: %s", name, error.message);
  EXPECT_EQ_FOR(memcmp(ours, theirs, bytes), 0, "%s", name);
  free(ours);
  free(theirs);
}

Test(picture, every_format_is_read_in_a_child_without_rights) {
  inferd_error_t error = {0};
  ASSERT_EQ(helper_start(&picture_trade, &helper, &error), 0);
  ASSERT_LE(70, each_file(through_a_child));
  helper_stop(helper);
}
