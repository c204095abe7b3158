/* sums.c: the sum by which the hub names a file, by libcrypto. One thread. */
#include "server/pull/sums.h"

#include "engine/base/hex.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sum {
  EVP_MD_CTX *context;
  bool failed;
};

sum_t *sum_new(int digits, int64_t size) {
  sum_t *sum = calloc(1, sizeof *sum);
  if (sum == NULL) return NULL;
  sum->context = EVP_MD_CTX_new();
  const EVP_MD *kind = digits == 40 ? EVP_sha1() : EVP_sha256();
  if (sum->context == NULL || EVP_DigestInit_ex(sum->context, kind, NULL) != 1) {
    sum_free(sum);
    return NULL;
  }
  char head[48];
  int length = snprintf(head, sizeof head, "blob %lld", (long long)size);
  if (digits == 40) (void)sum_add(sum, head, (size_t)length + 1); /* with its NUL */
  return sum;
}

bool sum_add(sum_t *sum, const void *bytes, size_t length) {
  if (EVP_DigestUpdate(sum->context, bytes, length) != 1) sum->failed = true;
  return !sum->failed;
}

bool sum_equals(sum_t *sum, const char *expected) {
  uint8_t digest[EVP_MAX_MD_SIZE];
  char text[2 * EVP_MAX_MD_SIZE + 1];
  unsigned length = 0;
  if (sum->failed || EVP_DigestFinal_ex(sum->context, digest, &length) != 1) return false;
  for (unsigned i = 0; i < length; i++) {
    text[2 * i] = hex_digit(digest[i] >> 4);
    text[2 * i + 1] = hex_digit(digest[i]);
  }
  text[2 * length] = '\0';
  return strcmp(text, expected) == 0;
}

void sum_free(sum_t *sum) {
  if (sum == NULL) return;
  EVP_MD_CTX_free(sum->context);
  free(sum);
}
