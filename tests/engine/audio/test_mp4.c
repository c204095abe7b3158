/* test_mp4.c: boxes of MP4 files -> frames. Files of real encoders are in test_files.c. */
#include "engine/audio/mp4.h"
#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <stdlib.h>
#include <string.h>

/* ---- boxes ---- */

static void put(buffer_t *out, uint64_t value, int bytes) {
  while (bytes-- > 0) buffer_char(out, (char)(bytes < 8 ? value >> (8 * bytes) & 0xFF : 0));
}

static void put_box(buffer_t *out, const char *name, buffer_t *inside) {
  put(out, inside->length + 8, 4);
  buffer_append(out, name, 4);
  buffer_append(out, inside->data, inside->length);
  buffer_free(inside);
}

/* A table of whole numbers of 32 bits, or of `bytes`, behind its version and its length. */
static void put_table(buffer_t *out, const char *name, const uint64_t *values, uint32_t count,
                      uint32_t told, int bytes) {
  buffer_t box = {0};
  put(&box, 0, 4);
  put(&box, told, 4);
  for (uint32_t i = 0; i < count; i++) put(&box, values[i], bytes);
  put_box(out, name, &box);
}

/* What a test changes of the file. */
typedef struct plan {
  const char *codec, *handler; /* "mp4a", "soun" */
  uint8_t kind;                /* of the esds: 0x40 */
  int version;                 /* of the entry of stsd */
  bool wave, wide;
  uint32_t sample_size, num_sizes;
  uint64_t sizes[8], chunks[4], runs[6]; /* runs: first chunk, samples, description */
  uint32_t num_chunks, num_runs, told_chunks;
  uint64_t edits[4]; /* length, begin, ...; 2^32 - 1 = nothing */
  uint32_t num_edits;
} plan_t;

static const plan_t plain = {.codec = "mp4a",
                             .handler = "soun",
                             .kind = 0x40,
                             .num_sizes = 5,
                             .sizes = {3, 4, 0, 5, 6},
                             .chunks = {1, 20},
                             .runs = {1, 2, 1, 2, 3, 1},
                             .num_chunks = 2,
                             .num_runs = 2,
                             .told_chunks = 2};

static void put_esds(buffer_t *out, const plan_t *plan) {
  buffer_t esds = {0};
  put(&esds, 0, 4);
  buffer_append(&esds, "\x03\x80\x80\x80\x18\0\x01\x20\0\x02", 10); /* OCR */
  buffer_append(&esds, "\x04\x11", 2);
  put(&esds, plan->kind, 1);
  buffer_append(&esds, "\x15\0\0\0\0\0\0\0\0\0\0\0", 12);
  buffer_append(&esds, "\x05\x02\x12\x10", 4);
  put_box(out, "esds", &esds);
}

static void put_stsd(buffer_t *out, const plan_t *plan) {
  buffer_t stsd = {0}, entry = {0}, wave = {0};
  put(&entry, 0, 8);
  put(&entry, (uint64_t)plan->version, 2);
  put(&entry, 0, 18 + (plan->version == 1 ? 16 : plan->version == 2 ? 36 : 0));
  put_esds(plan->wave ? &wave : &entry, plan);
  if (plan->wave) put_box(&entry, "wave", &wave);
  put(&stsd, 0, 4);
  put(&stsd, 1, 4);
  put_box(&stsd, plan->codec, &entry);
  put_box(out, "stsd", &stsd);
}

static void put_tables(buffer_t *out, const plan_t *plan) {
  buffer_t stsz = {0};
  put_stsd(out, plan);
  put(&stsz, 0, 4);
  put(&stsz, plan->sample_size, 4);
  put(&stsz, plan->num_sizes, 4);
  for (uint32_t i = 0; i < plan->num_sizes && plan->sample_size == 0; i++)
    put(&stsz, plan->sizes[i], 4);
  put_box(out, "stsz", &stsz);
  put_table(out, "stsc", plan->runs, 3 * plan->num_runs, plan->num_runs, 4);
  put_table(out, plan->wide ? "co64" : "stco", plan->chunks, plan->num_chunks, plan->told_chunks,
            plan->wide ? 8 : 4);
}

static void put_scale(buffer_t *out, const char *name, uint32_t scale) {
  buffer_t box = {0};
  put(&box, 0, 12);
  put(&box, scale, 4);
  put(&box, 0, 8);
  put_box(out, name, &box);
}

static void put_edits(buffer_t *out, const plan_t *plan) {
  buffer_t elst = {0}, edts = {0};
  put(&elst, 0, 4);
  put(&elst, plan->num_edits, 4);
  for (uint32_t i = 0; i < plan->num_edits; i++) {
    put(&elst, plan->edits[2 * i], 4);
    put(&elst, plan->edits[2 * i + 1], 4);
    put(&elst, 0x10000, 4);
  }
  put_box(&edts, "elst", &elst);
  put_box(out, "edts", &edts);
}

static buffer_t file_of(const plan_t *plan) {
  buffer_t file = {0}, moov = {0}, trak = {0}, mdia = {0}, minf = {0}, stbl = {0}, hdlr = {0};
  put_tables(&stbl, plan);
  put_box(&minf, "stbl", &stbl);
  put(&hdlr, 0, 8);
  buffer_append(&hdlr, plan->handler, 4);
  put_box(&mdia, "hdlr", &hdlr);
  put_scale(&mdia, "mdhd", 16000);
  put_box(&mdia, "minf", &minf);
  if (plan->num_edits > 0) put_edits(&trak, plan);
  put_box(&trak, "mdia", &mdia);
  put_scale(&moov, "mvhd", 1000);
  put_box(&moov, "trak", &trak);
  put_box(&file, "moov", &moov);
  return file;
}

/* ---- what comes out ---- */

/* Frames as "at+size", or the words of a refusal. */
static void expect_file(const plan_t *plan, const char *expected) {
  buffer_t file = file_of(plan), text = {0};
  mp4_track_t track;
  mp4_span_t frame;
  inferd_error_t error = {0};
  const int code = mp4_open((const uint8_t *)file.data, file.length, &track, &error);
  for (int i = 0; i < 20 && code == 0 && mp4_next(&track, &frame); i++) {
    if (i > 0) buffer_char(&text, ' ');
    buffer_int(&text, frame.bytes - (const uint8_t *)file.data);
    buffer_char(&text, '+');
    buffer_int(&text, (int64_t)frame.size);
  }
  if (code == 0) EXPECT_EQ(memcmp(track.setup.bytes, "\x12\x10", track.setup.size), 0);
  if (code != 0) buffer_text(&text, error.message);
  buffer_char(&text, '\0');
  EXPECT_STR_EQ(text.data, expected);
  buffer_free(&file);
  buffer_free(&text);
}

Test(mp4, frames_lie_in_the_chunks_of_runs) {
  plan_t plan = plain;
  expect_file(&plan, "1+3 4+4 20+5 25+6");
  plan.wide = true;
  expect_file(&plan, "1+3 4+4 20+5 25+6");
  plan.wide = false;
  plan.wave = true, plan.version = 1;
  expect_file(&plan, "1+3 4+4 20+5 25+6");
  plan.version = 2;
  expect_file(&plan, "1+3 4+4 20+5 25+6");
  plan = plain;
  plan.sample_size = 7;
  expect_file(&plan, "1+7 8+7 20+7 27+7 34+7");
  plan.kind = 0x67;
  expect_file(&plan, "1+7 8+7 20+7 27+7 34+7");
}

Test(mp4, files_that_end_early_have_what_is_before) {
  plan_t plan = plain;
  plan.chunks[1] = 100000;
  expect_file(&plan, "1+3 4+4");
  plan = plain;
  plan.sizes[1] = UINT32_MAX;
  expect_file(&plan, "1+3");
  plan = plain;
  plan.told_chunks = UINT32_MAX; /* of which two are there */
  expect_file(&plan, "1+3 4+4 20+5 25+6");
  plan.runs[1] = 0; /* a chunk of no samples */
  expect_file(&plan, "20+3 23+4");
  plan.runs[4] = 0;
  expect_file(&plan, "");
  plan = plain;
  plan.sample_size = 1, plan.num_sizes = UINT32_MAX, plan.runs[1] = plan.runs[4] = 2;
  expect_file(&plan, "1+1 2+1 20+1 21+1");
}

Test(mp4, frames_have_no_more_bytes_than_the_file) {
  plan_t plan = plain;
  plan.sample_size = 100, plan.num_sizes = UINT32_MAX;
  plan.runs[1] = plan.runs[4] = 1;
  plan.chunks[1] = plan.chunks[2] = plan.chunks[3] = 1;
  plan.num_chunks = plan.told_chunks = 4;
  buffer_t file = file_of(&plan);
  ASSERT_LE(3 * 100, file.length); /* three chunks at one place, and no fourth */
  ASSERT_LT(file.length, 4 * 100);
  buffer_free(&file);
  expect_file(&plan, "1+100 1+100 1+100");
}

Test(mp4, what_is_refused_is_named) {
  static const char codec[] = "the sound has a codec that is not read; of MP4, AAC is";
  static const char fragments[] =
      "the sound has no frames; of MP4, files in fragments are not read";
  plan_t plan = plain;
  plan.codec = "alac";
  expect_file(&plan, codec);
  plan = plain;
  plan.kind = 0x6B;
  expect_file(&plan, codec);
  plan = plain;
  plan.handler = "vide";
  expect_file(&plan, "the sound is not there: the file has no track with any");
  plan = plain;
  plan.num_sizes = 0;
  expect_file(&plan, fragments);
  plan = plain;
  plan.num_chunks = 0;
  expect_file(&plan, fragments);
  plan = plain;
  plan.num_runs = 0;
  expect_file(&plan, fragments);
}

static void expect_edits(const plan_t *plan, uint64_t skip, uint64_t length) {
  buffer_t file = file_of(plan);
  mp4_track_t track;
  inferd_error_t error = {0};
  EXPECT_EQ(mp4_open((const uint8_t *)file.data, file.length, &track, &error), 0);
  EXPECT_EQ(track.timescale, 16000);
  EXPECT_EQ(track.skip, skip);
  EXPECT_EQ(track.length, length);
  buffer_free(&file);
}

Test(mp4, edit_lists_say_what_is_heard) {
  plan_t plan = plain;
  expect_edits(&plan, 0, 0);
  plan.num_edits = 1;
  plan.edits[0] = 250, plan.edits[1] = 1024;
  expect_edits(&plan, 1024, 4000);
  plan.num_edits = 2; /* a pause, which is left out */
  plan.edits[1] = UINT32_MAX;
  plan.edits[2] = 500, plan.edits[3] = 2112;
  expect_edits(&plan, 2112, 8000);
  plan.edits[3] = UINT32_MAX;
  expect_edits(&plan, 0, 0);
}

/* Cut anywhere, and with any byte changed, in memory of exactly that length. */
Test(mp4, damaged_files_end) {
  plan_t plan = plain;
  plan.num_edits = 1;
  const buffer_t whole = file_of(&plan);
  uint64_t random = 3;
  for (int round = 0; round < 20000; round++) {
    const size_t length =
        round % 3 == 0 ? (size_t)(next_random(&random) % (whole.length + 1)) : whole.length;
    uint8_t *bytes = malloc(MAX(length, 1));
    mp4_track_t track;
    mp4_span_t frame;
    inferd_error_t error = {0};
    cr_assert_not_null(bytes);
    memcpy(bytes, whole.data, length);
    for (int i = 0; i < round % 4 && length > 0; i++)
      bytes[next_random(&random) % length] = (uint8_t)next_random(&random);
    if (mp4_open(bytes, length, &track, &error) == 0)
      for (int i = 0; i < 1000 && mp4_next(&track, &frame); i++) {
        cr_assert(frame.bytes >= bytes && frame.bytes + frame.size <= bytes + length);
        cr_assert(frame.size > 0);
      }
    free(bytes);
  }
  free(whole.data);
}
