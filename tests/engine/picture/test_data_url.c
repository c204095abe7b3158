/* test_data_url.c: URLs that bring a picture's bytes, and those that do not. */
#include "engine/picture/data_url.h"
#include "engine/picture/work.h"
#include "tests/expect.h"

#include <stdlib.h>

static const struct url {
  const char *url, *bytes; /* NULL: refused */
} urls[] = {{"data:image/png;base64,QUJD", "ABC"},
            {"data:image/png;base64,QUI=", "AB"},
            {"DATA:image/jpeg;charset=utf-8;BASE64,QQ==", "A"},
            {"data:;base64,QUJD", "ABC"},
            {"data:text/plain;base64,QUJD", "ABC"},
            {"data:image/png;base64,", NULL},
            {"data:image/png;base64,QUI", NULL},
            {"data:image/png;base64,QUJ=", NULL},
            {"data:image/png;base64,QU=C", NULL},
            {"data:image/png;base64,QUJD\n", NULL},
            {"data:image/png;base64,QU-_", NULL},
            {"data:image/png,QUJD", NULL},
            {"data:base64,QUJD", NULL},
            {"data:image/png;base64", NULL},
            {"data:", NULL},
            {"", NULL},
            {"https://example.com/a.png", NULL},
            {"http://127.0.0.1/a.png", NULL},
            {"file:///etc/passwd", NULL},
            {" data:image/png;base64,QUJD", NULL},
            {"QUJD", NULL}};

Test(data_url, brings_its_bytes_or_says_why_not) {
  for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
    buffer_t out = {0};
    inferd_error_t error = {0};
    const size_t length = strlen(urls[i].url);
    char *exact = malloc(length + 1);
    cr_assert_not_null(exact);
    memcpy(exact, urls[i].url, length);
    int status = data_url_read(&data_picture, exact, length, &out, &error);
    EXPECT_EQ_FOR(status, urls[i].bytes == NULL ? ERR_INVALID_VALUE : 0, "%s", urls[i].url);
    if (status == 0) {
      buffer_char(&out, 0);
      cr_expect_str_eq(out.data, urls[i].bytes, "%s", urls[i].url);
    } else {
      EXPECT_EQ_FOR(error.message[0] != 0, true, "%s", urls[i].url);
    }
    buffer_free(&out);
    free(exact);
  }
}

Test(data_url, the_type_may_be_long_but_not_endless) {
  char url[400] = "data:image/png;a=";
  for (size_t length = 100; length < 130; length++) { /* bytes before the comma */
    memset(url + 17, 'a', length - 24);
    memcpy(url + length - 7, ";base64,QUJD", 12);
    buffer_t out = {0};
    inferd_error_t error = {0};
    EXPECT_EQ_FOR(data_url_read(&data_picture, url, length + 5, &out, &error),
                  length < 128 ? 0 : ERR_INVALID_VALUE, "%zu", length);
    buffer_free(&out);
  }
}

Test(data_url, files_are_bounded_before_they_are_decoded) {
  static const char head[] = "data:;base64,";
  const size_t most = (PICTURE_FILE_MAX + 2) / 3 * 4 + 4;
  char *url = malloc(sizeof head + most);
  cr_assert_not_null(url);
  for (size_t i = 0; i < 3; i++) {
    const size_t bytes = PICTURE_FILE_MAX - 1 + i, groups = (bytes + 2) / 3;
    memcpy(url, head, sizeof head - 1);
    memset(url + sizeof head - 1, 'A', groups * 4);
    memset(url + sizeof head - 1 + groups * 4 - (groups * 3 - bytes), '=', groups * 3 - bytes);
    buffer_t out = {0};
    inferd_error_t error = {0};
    EXPECT_EQ_FOR(data_url_read(&data_picture, url, sizeof head - 1 + groups * 4, &out, &error),
                  i < 2 ? 0 : ERR_INVALID_VALUE, "%zu bytes", bytes);
    EXPECT_EQ_FOR(out.length, i < 2 ? bytes : 0, "%zu bytes", bytes);
    buffer_free(&out);
  }
  free(url);
}

Test(data_url, base64_alone_has_its_own_kind_and_limit) {
  static const struct {
    const char *text, *says; /* NULL: good */
  } rows[] = {{"QUJD", NULL},
              {"QUI=", NULL},
              {"QUJDRA==", "has 4 bytes; at most 3"},
              {"", "the sound has no bytes"},
              {"QUJ", "bytes of a sound are not in base64"},
              {"data:audio/wav;base64,QUJD", "has"}};
  const data_kind_t sound = {"sound", "no URL", 3};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    buffer_t out = {0};
    inferd_error_t error = {0};
    const int code = data_base64_read(&sound, rows[i].text, strlen(rows[i].text), &out, &error);
    EXPECT_EQ_FOR(code, rows[i].says == NULL ? 0 : ERR_INVALID_VALUE, "%s", rows[i].text);
    if (rows[i].says != NULL)
      cr_expect(strstr(error.message, rows[i].says) != NULL, "%s", error.message);
    buffer_free(&out);
  }
}
