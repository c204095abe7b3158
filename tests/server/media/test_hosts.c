/* test_hosts.c: which URLs of pictures may be fetched. */
#include "server/media/hosts.h"
#include "tests/expect.h"

#include <string.h>

TestSuite(media_hosts, .timeout = 30);

static char *names[] = {"pictures.example", "other.example:8443", "127.0.0.1:9", "[::1]:9"};
static const config_list_t list = {.items = names, .count = 4};
static inferd_error_t error;
static media_url_t url;

static int read_bytes(const char *text, size_t length) {
  static curl_api_t curl;
  const media_hosts_t hosts = {&curl, &list};
  if (curl.url == NULL)
    ASSERT_EQ_FOR(curl_api_open("allowed_media_hosts", &curl, &error), 0, "%s", error.message);
  int code = media_url_read(&hosts, "picture", text, length, &url, &error);
  if (code == 0) media_url_free(&hosts, &url);
  return code;
}

static int read(const char *text) {
  return read_bytes(text, strlen(text));
}

Test(media_hosts, takes_listed_hosts_and_ports) {
  static const struct {
    const char *text, *host;
    bool is_address;
  } rows[] = {{"https://pictures.example/a.png?b=c#d", "pictures.example:443", false},
              {"HTTPS://PICTURES.example:443/", "PICTURES.example:443", false},
              {"https://other.example:8443/x", "other.example:8443", false},
              {"https://127.0.0.1:9/", "127.0.0.1:9", true},
              {"https://[::1]:9/", "[::1]:9", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(read(rows[i].text), 0, "%s: %s", rows[i].text, error.message);
    EXPECT_STR_EQ(url.host, rows[i].host);
    EXPECT_EQ(url.is_address, rows[i].is_address);
  }
}

Test(media_hosts, refuses_all_others) {
  static const struct {
    const char *text, *words;
  } rows[] = {{"http://pictures.example/", "only data: and https:"},
              {"ftp://pictures.example/", "only data: and https:"},
              {"file:///etc/passwd", "only data: and https:"},
              {"gopher://pictures.example/", "only data: and https:"},
              {"https://", "cannot be read"},
              {"https:///a", "'a:443' are not fetched"},
              {"pictures.example/a.png", "cannot be read"},
              {"https://pictures.example:99999/", "cannot be read"},
              {"https://pictures example/", "cannot be read"},
              {"https://pictures.example:444/", "'pictures.example:444' are not fetched"},
              {"https://pictures.example./", "'pictures.example.:443' are not fetched"},
              {"https://a.pictures.example/", "'a.pictures.example:443' are not fetched"},
              {"https://pictures.example.evil.example/", "evil.example:443' are not fetched"},
              {"https://other.example/", "'other.example:443' are not fetched"},
              {"https://evil.example\\@pictures.example/", "must not have a user"},
              {"https://pictures.example@evil.example/", "must not have a user"},
              {"https://a:b@pictures.example/", "must not have a user"},
              {"https://127.0.0.1/", "'127.0.0.1:443' are not fetched"},
              {"https://[::ffff:127.0.0.1]:9/", "are not fetched"},
              {"https://localhost:9/", "'localhost:9' are not fetched"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ASSERT_EQ_FOR(read(rows[i].text), ERR_INVALID_VALUE, "%s", rows[i].text);
    cr_expect(strstr(error.message, rows[i].words) != NULL, "%s: %s", rows[i].text, error.message);
  }
}

/* Each is the loopback address in another dress; none makes a listed address of a listed name. */
Test(media_hosts, other_spellings_of_an_address_are_that_address) {
  static const char *const same[] = {"https://0x7f000001:9/", "https://2130706433:9/",
                                     "https://0177.0.0.1:9/", "https://127.1:9/"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    ASSERT_EQ_FOR(read(same[i]), 0, "%s: %s", same[i], error.message);
    EXPECT_STR_EQ(url.host, "127.0.0.1:9");
    cr_expect(url.is_address);
  }
}

Test(media_hosts, a_url_has_a_length) {
  static char text[MEDIA_URL_MAX + 2];
  const char begin[] = "https://pictures.example/";
  memset(text, 'a', sizeof text);
  memcpy(text, begin, sizeof begin - 1);
  EXPECT_EQ(read_bytes(text, MEDIA_URL_MAX - 1), 0);
  EXPECT_EQ(read_bytes(text, MEDIA_URL_MAX), 0);
  EXPECT_EQ(read_bytes(text, MEDIA_URL_MAX + 1), ERR_INVALID_VALUE);
  EXPECT_STR_EQ(error.message, "the URL of a picture has 8193 bytes; at most 8192");
  text[40] = '\0';
  EXPECT_EQ(read_bytes(text, 50), ERR_INVALID_VALUE);
  EXPECT_STR_EQ(error.message, "the URL of a picture has a NUL in it");
}
