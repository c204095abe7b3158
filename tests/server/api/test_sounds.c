/* test_sounds.c: sounds in requests of chat: what becomes of them, and what is refused. */
#include "engine/audio/work.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 700, WAV_BYTES = 44 + SAMPLES };

static vision_t hearing;
static char wav[4 * WAV_BYTES]; /* in base64 */

/* Of `size` bytes, with its padding; `out` has room. */
static void encode(const uint8_t *bytes, int size, char *out) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int i = 0; i < size; i += 3) {
    const unsigned two = i + 1 < size ? bytes[i + 1] : 0, three = i + 2 < size ? bytes[i + 2] : 0;
    const unsigned all = (unsigned)bytes[i] << 16 | two << 8 | three;
    for (int k = 0; k < 4; k++) *out++ = k <= size - i ? letters[all >> (18 - 6 * k) & 63] : '=';
  }
  *out = '\0';
}

/* A file of so many samples of 8 bits. */
static void write_wav(int samples, char *out) {
  static const uint8_t head[44] = {'R', 'I', 'F',  'F',  0,   0,   0,    0,    'W', 'A', 'V',
                                   'E', 'f', 'm',  't',  ' ', 16,  0,    0,    0,   1,   0,
                                   1,   0,   0x80, 0x3e, 0,   0,   0x80, 0x3e, 0,   0,   1,
                                   0,   8,   0,    'd',  'a', 't', 'a',  0,    0,   0,   0};
  uint8_t file[WAV_BYTES];
  memcpy(file, head, sizeof head);
  file[40] = (uint8_t)samples;
  file[41] = (uint8_t)(samples >> 8);
  file[4] = (uint8_t)(samples + 36);
  file[5] = (uint8_t)((samples + 36) >> 8);
  for (int i = 0; i < samples; i++) file[44 + i] = (uint8_t)(128 + i * 37 % 101 - 50);
  encode(file, 44 + samples, out);
}

static void hear(void) {
  inferd_error_t error;
  helper_t *helper = NULL;
  ASSERT_EQ_FOR(helper_start(&audio_trade, &helper, &error), 0, "%s", error.message);
  fake_start();
  server.sounds = helper;
  hearing = (vision_t){.hears = true,
                       .sound = {.bands = 80, .merge = 2, .windows_max = 1},
                       .placeholder_id = FAKE_PICTURE,
                       .mark_id = FAKE_PICTURE};
  fake_engine.info.hearing = &hearing;
  write_wav(SAMPLES, wav);
}

static void stop(void) {
  helper_t *helper = server.sounds;
  fake_stop();
  helper_stop(helper);
}

TestSuite(sounds, .init = hear, .fini = stop, .timeout = 60);

/* A body with a message of a user of these parts, in which % stands for the file. */
static const char *body(const char *parts) {
  static char text[sizeof wav * 20];
  size_t used =
      (size_t)snprintf(text, sizeof text, "{\"messages\":[{\"role\":\"user\",\"content\":[");
  for (const char *p = parts; *p != '\0'; p++)
    used += (size_t)snprintf(text + used, sizeof text - used, *p == '%' ? "%s" : "%.1s",
                             *p == '%' ? wav : p);
  snprintf(text + used, sizeof text - used, "]}],\"max_tokens\":4}");
  return text;
}

#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define SOUND(data)                                                                                \
  "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"" data "\",\"format\":\"wav\"}}"
#define URL(url) "{\"type\":\"audio_url\",\"audio_url\":{\"url\":\"" url "\"}}"

Test(sounds, of_a_sound_the_engine_gets_layout_place_and_spectrogram) {
  fake_exchange_t *exchange =
      fake_call(api_chat_completions,
                body(TEXT("a") "," SOUND("%") "," URL("data:audio/wav;base64,%") "," TEXT("b")));
  cr_assert(!exchange->answered, "%s: %s", exchange->error.param, exchange->error.message);
  const request_t *request = &server.live->first->inputs[0].request;
  ASSERT_EQ(request->num_images, 2);
  for (int i = 0; i < 2; i++) {
    const image_t *image = &request->images[i];
    ASSERT_EQ(image->layout.grid_width, 3); /* 5 rows of the spectrogram */
    ASSERT_EQ(image->layout.tokens, 1);
    ASSERT_EQ(image->end, image->first + 1);
    ASSERT_EQ(request->prompt_ids[image->first], FAKE_PICTURE);
    cr_assert(image->rows != NULL && image->views == NULL);
  }
  ASSERT_EQ(memcmp(&request->images[0].key, &request->images[1].key, sizeof(image_key_t)), 0);
  fake_finish_all();
  fake_deliver();
  fake_exchange_free(exchange);
}

static void refuse(const char *parts, const char *param, const char *says) {
  fake_exchange_t *exchange = fake_call(api_chat_completions, body(parts));
  cr_assert(exchange->answered, "%s", says);
  EXPECT_EQ(exchange->status, 400);
  cr_expect(strstr(exchange->error.message, says) != NULL, "%s", exchange->error.message);
  EXPECT_STR_EQ(exchange->error.param, param);
  fake_exchange_free(exchange);
}

#define FIRST "messages[0].content[0]"

Test(sounds, what_is_no_sound_is_named) {
  refuse(URL("https://x/y.wav"), FIRST, "--allowed-media-hosts");
  refuse(URL("data:audio/wav,xx"), FIRST, "must have ;base64,");
  refuse(URL("data:audio/wav;base64,"), FIRST, "no bytes");
  refuse(SOUND("a?=="), FIRST, "not in base64");
  refuse(SOUND("UklGRg=="), FIRST, "is no sound");
  refuse(SOUND(""), FIRST ".input_audio.data", "input_audio.data");
  refuse("{\"type\":\"input_audio\"}", FIRST ".input_audio", "Missing");
  refuse("{\"type\":\"input_audio\",\"input_audio\":{}}", FIRST ".input_audio.data", "Missing");
  refuse("{\"type\":\"input_audio\",\"input_audio\":\"%\"}", FIRST ".input_audio", "object");
  refuse("{\"type\":\"audio_url\",\"audio_url\":7}", FIRST ".audio_url", "string");
  refuse("{\"type\":\"image_url\",\"image_url\":\"x\"}", FIRST, "text and sounds ('input_audio')");
}

Test(sounds, a_sound_has_a_least_and_a_largest_size) {
  write_wav(320, wav);
  refuse(SOUND("%"), FIRST, "too short");
  write_wav(321, wav);
  fake_exchange_t *exchange = fake_call(api_chat_completions, body(SOUND("%")));
  cr_assert(!exchange->answered, "%s", exchange->error.message);
  fake_finish_all();
  fake_deliver();
  fake_exchange_free(exchange);
  fake_option("max-audio-bytes", "1024");
  write_wav(SAMPLES, wav);
  fake_exchange_t *fits = fake_call(api_chat_completions, body(SOUND("%")));
  cr_assert(!fits->answered, "%s", fits->error.message);
  fake_finish_all();
  fake_deliver();
  fake_exchange_free(fits);
}

Test(sounds, limit_0_takes_none) {
  fake_option("limit-audio", "0");
  refuse(SOUND("%"), FIRST, "--limit-audio 0");
}

Test(sounds, a_model_that_hears_nothing_says_so) {
  fake_engine.info.hearing = NULL;
  refuse(SOUND("%"), FIRST, "this model takes text only");
}
