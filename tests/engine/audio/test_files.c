/* test_files.c: files of sound (tests/vectors/sound_files.jsonl and sound_mp4.jsonl, which
 * scripts/vectors/speech.py wrote), here and in a child without rights, cut off, and damaged. */
#include "engine/audio/work.h"
#include "engine/base/json.h"
#include "engine/text/base64.h"
#include "tests/engine/audio/signals.h"
#include "tests/expect.h"

#include <stdio.h>
#include <sys/resource.h>

enum { ROOM = 2 * AUDIO_RATE, FILES = 46, FILES_OF_MP4 = 24 };

typedef void (*visit_t)(const json_t *row, const char *name, const buffer_t *file);

static int each_file_of(const char *path, visit_t visit) {
  FILE *vectors = fopen(path, "r");
  char *text = NULL, name[64];
  size_t capacity = 0;
  int count = 0;
  cr_assert_not_null(vectors);
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

static void each_file(visit_t visit) {
  ASSERT_LE(FILES, each_file_of("tests/vectors/sound_files.jsonl", visit));
  ASSERT_LE(FILES_OF_MP4, each_file_of("tests/vectors/sound_mp4.jsonl", visit));
}

static float out[ROOM];

/* The samples that FFmpeg hears, as they are at AUDIO_RATE: where it stops within the last frame,
 * an edit list may have ours stop before. */
static void compare(const json_t *row, const char *name, uint64_t count) {
  enum { EVERY = 37, FRAME = 1024 };
  const json_t *heard = json_get(row, "heard");
  int64_t theirs = 0, first = 0;
  if (heard == NULL) return;
  (void)json_int64(json_get(row, "count"), &theirs);
  (void)json_int64(json_get(row, "first"), &first);
  EXPECT_LE_FOR(count, (uint64_t)theirs, "%s", name);
  EXPECT_LE_FOR((uint64_t)theirs, count + FRAME, "%s", name);
  double furthest = 0, value = 0;
  size_t at = (size_t)first;
  for (const json_t *one = json_first(heard); one != NULL && at < count; one = json_next(one)) {
    (void)json_double(one, &value);
    furthest = fmax(furthest, fabs(value - (double)out[at]));
    at += EVERY;
  }
  EXPECT_LE_FOR(furthest, 2e-6, "%s", name);
}

static void hear(const json_t *row, const char *name, const buffer_t *file) {
  uint64_t count = 0;
  audio_source_t source;
  inferd_error_t error = {0};
  const int status =
      audio_decode((const uint8_t *)file->data, file->length, out, ROOM, &count, &source, &error);
  const json_t *words = json_get(row, "refused");
  if (words != NULL) {
    EXPECT_EQ_FOR(status, ERR_INVALID_VALUE, "%s", name);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%.*s", (int)words->length, words->text);
    cr_expect(strstr(error.message, wanted) != NULL, "%s: %s", name, error.message);
    return;
  }
  int64_t rate = 0, channels = 0;
  double level = 0;
  (void)json_int64(json_get(row, "rate"), &rate);
  (void)json_int64(json_get(row, "channels"), &channels);
  (void)json_double(json_get(row, "level"), &level);
  EXPECT_EQ_FOR(status, 0, "%s: %s", name, error.message);
  if (status != 0) return;
  EXPECT_EQ_FOR(source.channels, (uint32_t)channels, "%s", name);
  /* Codecs add some at both ends, and Opus knows its own rates. */
  EXPECT_LE_FOR(AUDIO_RATE / 4, count, "%s", name);
  EXPECT_LE_FOR(count, (uint64_t)AUDIO_RATE * 2 / 5, "%s", name);
  const double heard = signal_level(out + AUDIO_RATE / 20, AUDIO_RATE / 10, 1000, AUDIO_RATE);
  EXPECT_LE_FOR(fabs(heard - level), 0.03, "%s: %f", name, heard);
  compare(row, name, count);
}

Test(sound_files, are_heard_or_refused_by_name) {
  each_file(hear);
}

static helper_t *helper;

static void through_a_child(const json_t *row, const char *name, const buffer_t *file) {
  uint64_t count = 0, spent_ns = 0;
  audio_source_t source;
  audio_sound_t sound;
  inferd_error_t error = {0};
  const audio_job_t job = {.seconds_max = 2};
  const uint8_t *bytes = (const uint8_t *)file->data;
  const int ours = audio_decode(bytes, file->length, out, ROOM, &count, &source, &error);
  const int theirs = audio_read(helper, &job, bytes, file->length, &sound, &spent_ns, &error);
  EXPECT_EQ_FOR(theirs, ours, "%s: %s", name, error.message);
  cr_expect(strstr(error.message, "its decoder failed") == NULL, "%s", name);
  EXPECT_EQ_FOR(json_get(row, "refused") == NULL, theirs == 0, "%s", name);
  if (theirs != 0) return;
  EXPECT_EQ_FOR(sound.count, count, "%s", name);
  EXPECT_EQ_FOR(memcmp(sound.samples, out, count * sizeof *out), 0, "%s", name);
  EXPECT_EQ_FOR(sound.source.frames, source.frames, "%s", name);
  audio_sound_free(&sound);
}

Test(sound_files, are_read_in_a_child_without_rights) {
  inferd_error_t error = {0};
  ASSERT_EQ(helper_start(&audio_trade, &helper, &error), 0);
  each_file(through_a_child);
  helper_stop(helper);
}

/* From memory of exactly that length, so that sanitizers see a byte too many. */
static void cut_everywhere(const json_t *row, const char *name, const buffer_t *file) {
  (void)row;
  for (size_t length = 0; length < file->length; length += 1 + length / 20) {
    uint8_t *bytes = malloc(length == 0 ? 1 : length);
    uint64_t count;
    audio_source_t source;
    inferd_error_t error = {0};
    cr_assert_not_null(bytes);
    memcpy(bytes, file->data, length);
    const int status = audio_decode(bytes, length, out, ROOM, &count, &source, &error);
    cr_expect(status == 0 || status == ERR_INVALID_VALUE, "%s cut to %zu: %d", name, length,
              status);
    free(bytes);
  }
}

Test(sound_files, that_end_anywhere_are_refused_or_read) {
  each_file(cut_everywhere);
}

/* A process that may open nothing has no library, as a machine without the package. */
static void without_library(const json_t *row, const char *name, const buffer_t *file) {
  uint64_t count = 0;
  audio_source_t source;
  inferd_error_t error = {0};
  struct rlimit usual;
  if (json_get(row, "refused") != NULL) return;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = usual.rlim_max}), 0);
  const int code =
      audio_decode((const uint8_t *)file->data, file->length, out, ROOM, &count, &source, &error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ_FOR(code, ERR_INVALID_VALUE, "%s", name);
  cr_expect(strstr(error.message, "MP4 with AAC") && strstr(error.message, "package libfaad2"),
            "%s: %s", name, error.message);
}

Test(sound_files, name_the_package_that_is_not_there) {
  ASSERT_LE(FILES_OF_MP4, each_file_of("tests/vectors/sound_mp4.jsonl", without_library));
}

/* 16 bits, one channel, AUDIO_RATE: the values themselves. */
static size_t wav_of(uint8_t *bytes, const int16_t *values, size_t count) {
  const uint32_t size = (uint32_t)count * 2, riff = size + 36, rate = AUDIO_RATE, by = 2 * rate;
  memcpy(bytes, "RIFF....WAVEfmt \x10\0\0\0\x01\0\x01\0........\x02\0\x10\0data", 40);
  memcpy(bytes + 4, &riff, 4);
  memcpy(bytes + 24, &rate, 4);
  memcpy(bytes + 28, &by, 4);
  memcpy(bytes + 40, &size, 4);
  memcpy(bytes + 44, values, size);
  return size + 44;
}

Test(sound_files, of_the_rate_keep_each_value) {
  enum { VALUES = 65536 };
  static int16_t values[VALUES];
  static uint8_t bytes[VALUES * 2 + 44];
  static float heard[VALUES];
  uint64_t count = 0;
  audio_source_t source;
  inferd_error_t error = {0};
  for (int i = 0; i < VALUES; i++) values[i] = (int16_t)(i - 32768);
  const size_t size = wav_of(bytes, values, VALUES);
  ASSERT_EQ(audio_decode(bytes, size, heard, VALUES, &count, &source, &error), 0);
  ASSERT_EQ(count, VALUES);
  for (int i = 0; i < VALUES; i++) ASSERT_EQ(heard[i], (float)(i - 32768) / 32768);
  /* A sample more than there is room for. */
  EXPECT_EQ(audio_decode(bytes, size, heard, VALUES, &count, &source, &error), 0);
  EXPECT_EQ(audio_decode(bytes, size, heard, VALUES - 1, &count, &source, &error),
            ERR_INVALID_VALUE);
  cr_expect(strstr(error.message, "longer than 4 s") != NULL, "%s", error.message);
}
