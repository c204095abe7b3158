/* test_audio.c: forms of /v1/audio as JSON, languages, and ids as segments with their times. */
#include "server/audio/audio.h"
#include "server/http/multipart.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdlib.h>

#define PART(name, text)                                                                           \
  "--b\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" text "\r\n"
#define FILE_PART                                                                                  \
  "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n"
#define END "--b--\r\n"

static void expect_form(const char *body, const char *json) {
  multipart_t form;
  inferd_error_t error = {0};
  buffer_t out = {0};
  ASSERT_EQ_FOR(
      multipart_read("multipart/form-data; boundary=b", body, strlen(body), &form, &error), 0, "%s",
      error.message);
  ASSERT_EQ_FOR(audio_print_form(&form, &transcription_table, &out, &error), 0, "%s",
                error.message);
  buffer_char(&out, '\0');
  EXPECT_STR_EQ(out.data, json);
  buffer_free(&out);
}

Test(audio, forms_become_json_by_the_kinds_of_their_rows) {
  expect_form(END, "{}");
  expect_form(PART("model", "ear") FILE_PART END, "{\"model\":\"ear\",\"file\":true}");
  expect_form(PART("file", "RIFF") END, "{\"file\":\"RIFF\"}");
  expect_form(PART("temperature", "0.5") PART("stream", "true") END,
              "{\"temperature\":0.5,\"stream\":true}");
  expect_form(PART("temperature", "-0") PART("stream", "false") END,
              "{\"temperature\":-0,\"stream\":false}");
  expect_form(PART("temperature", "1e-06") END, "{\"temperature\":1e-06}");
  static const char *const strange[] = {"warm", "",   "1e",  "1e+", "01",
                                        ".5",   "5.", "0x1", "1 ",  "nan"};
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
    char body[256], json[64];
    snprintf(body, sizeof body, PART("temperature", "%s") END, strange[i]);
    snprintf(json, sizeof json, "{\"temperature\":\"%s\"}", strange[i]);
    expect_form(body, json);
  }
  expect_form(PART("prompt", "0.5") PART("stream", "yes") END,
              "{\"prompt\":\"0.5\",\"stream\":\"yes\"}");
  expect_form(PART("timestamp_granularities[]", "segment") PART("model", "a")
                  PART("timestamp_granularities[]", "word") END,
              "{\"timestamp_granularities[]\":[\"segment\",\"word\"],\"model\":\"a\"}");
}

Test(audio, texts_of_a_form_are_utf_8) {
  static const char body[] = PART("prompt", "\xff") END;
  multipart_t form;
  inferd_error_t error = {0};
  buffer_t out = {0};
  ASSERT_EQ(multipart_read("multipart/form-data; boundary=b", body, strlen(body), &form, &error),
            0);
  EXPECT_EQ(audio_print_form(&form, &transcription_table, &out, &error), ERR_INVALID_VALUE);
  EXPECT_STR_EQ(error.param, "prompt");
  buffer_free(&out);
}

Test(audio, texts_of_a_form_have_no_byte_of_0) {
  static const char body[] = PART("prompt", "a\0b") END;
  multipart_t form;
  inferd_error_t error = {0};
  buffer_t out = {0};
  ASSERT_EQ(multipart_read("multipart/form-data; boundary=b", body, sizeof body - 1, &form, &error),
            0);
  EXPECT_EQ(audio_print_form(&form, &transcription_table, &out, &error), ERR_INVALID_VALUE);
  EXPECT_STR_EQ(error.param, "prompt");
  buffer_free(&out);
}

Test(audio, languages_have_codes_and_names) {
  EXPECT_STR_EQ(audio_language_code("en", 2), "en");
  EXPECT_STR_EQ(audio_language_code("German", 6), "de");
  EXPECT_STR_EQ(audio_language_code("YUE", 3), "yue");
  cr_expect_null(audio_language_code("", 0));
  cr_expect_null(audio_language_code("xx", 2));
  EXPECT_STR_EQ(audio_language_name("ht"), "haitian creole");
  cr_expect_null(audio_language_name("xx"));
}

enum { EOS = 20, STAMP = 100 };
static const speech_t speech = {.rules = {.first_stamp_id = STAMP, .eos_id = EOS}};

static void expect_segments(const int32_t *ids, int32_t count, const char *expected) {
  const audio_window_t window = {
      .begin_s = 10, .end_s = 14, .ids = (int32_t *)(uintptr_t)ids, .num_ids = count};
  audio_segment_t segment;
  buffer_t out = {0};
  int32_t at = 0;
  while (audio_next_segment(&speech, &window, &at, &segment)) {
    audio_print_time(&out, segment.begin_s, '.');
    buffer_char(&out, ' ');
    audio_print_time(&out, segment.end_s, ',');
    for (int32_t i = 0; i < segment.count; i++) {
      buffer_char(&out, ' ');
      buffer_int(&out, segment.ids[i]);
    }
    buffer_char(&out, '\n');
  }
  buffer_char(&out, '\0');
  EXPECT_STR_EQ(out.data, expected);
  buffer_free(&out);
}

#define SEGMENTS(expected, ...)                                                                    \
  expect_segments((const int32_t[]){__VA_ARGS__},                                                  \
                  sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), expected)

Test(audio, segments_stand_between_stamps) {
  expect_segments(NULL, 0, "");
  SEGMENTS("", STAMP, STAMP + 50);
  SEGMENTS("00:00:10.000 00:00:11,000 1 2\n", STAMP, 1, 2, STAMP + 50);
  SEGMENTS("00:00:10.000 00:00:11,000 1\n00:00:11.020 00:00:12,000 2\n", STAMP, 1, STAMP + 50,
           STAMP + 51, 2, STAMP + 100);
  /* Edges of the window stand for stamps that are missing, or behind it. */
  SEGMENTS("00:00:10.000 00:00:14,000 1\n", 1);
  SEGMENTS("00:00:10.500 00:00:14,000 1\n", STAMP + 25, 1);
  SEGMENTS("00:00:14.000 00:00:14,000 1\n", STAMP + 1000, 1, STAMP + 1500);
}

Test(audio, times_have_hours_and_are_rounded) {
  buffer_t out = {0};
  audio_print_time(&out, 3723.9996, ',');
  buffer_char(&out, ' ');
  audio_print_time(&out, 0.0004, '.');
  buffer_char(&out, '\0');
  EXPECT_STR_EQ(out.data, "01:02:04,000 00:00:00.000");
  buffer_free(&out);
}

/* Words as "[text first+ids]", of a text whose bytes are its ids. */
static void expect_words(const char *language, const char *spoken, const char *expected) {
  int32_t ids[64], count = 0;
  audio_word_t words[64];
  buffer_t text = {0}, out = {0};
  for (const char *at = spoken; *at != '\0'; at++)
    ids[count++] = *at == '~' ? FAKE_THE : (int32_t)(unsigned char)*at;
  const int32_t found = audio_find_words(NULL, language, ids, count, words, &text);
  for (int32_t i = 0; i < found; i++) {
    buffer_char(&out, '[');
    buffer_append(&out, text.data + words[i].at, words[i].length);
    buffer_char(&out, ' ');
    buffer_int(&out, words[i].first);
    buffer_char(&out, '+');
    buffer_int(&out, words[i].num_ids);
    buffer_char(&out, ']');
  }
  buffer_char(&out, '\0');
  EXPECT_STR_EQ(out.data, expected);
  buffer_free(&text);
  buffer_free(&out);
}

/* tests/parity/parity_speech.py compares more of them with WhisperTokenizer. */
Test(audio, words_begin_at_spaces_and_keep_their_marks) {
  expect_words("en", "", "");
  expect_words("en", "Hi", "[Hi 0+2]");
  expect_words("en", " Hi, you.", "[Hi, 0+4][you. 4+5]");
  expect_words("en", "say~ cat", "[say 0+3][the 3+1][cat 4+4]");
  expect_words(NULL, "say \"yes!\"", "[say 0+3][\"yes!\" 3+7]");
  expect_words("en", "a (b) c", "[a 0+1][(b) 1+4][c 5+2]");
  expect_words("en", "a-b", "[a 0+1][-b 1+2]");
  expect_words("en", ".", "[. 0+1]");
  expect_words("en", " ", "");
  expect_words("zh", "ab,c", "[a 0+1][b, 1+2][c 3+1]");
  expect_words("yue", "a b", "[a 0+1][b 1+2]");
}
