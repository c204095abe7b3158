/* address.c: which addresses are of hosts on the public internet, see address.h. */
#include "server/media/address.h"

#include "engine/base/util.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

typedef struct range {
  uint8_t bytes[16];
  int bits;
} range_t;

static const range_t closed_v4[] = {
    {{0}, 8}, /* this network */
    {{10}, 8},
    {{172, 16}, 12},
    {{192, 168}, 16} /* private */,
    {{100, 64}, 10},     /* of carriers */
    {{127}, 8},          /* loopback */
    {{169, 254}, 16},    /* link-local */
    {{192, 0, 0}, 24},   /* of protocols */
    {{192, 88, 99}, 24}, /* relays of 6to4 */
    {{198, 18}, 15},     /* benchmarks */
    {{192, 0, 2}, 24},
    {{198, 51, 100}, 24},
    {{203, 0, 113}, 24} /* documentation */,
    {{224}, 3} /* multicast, reserved, broadcast */
};

/* Of 2000::/3, which is all that was given out. */
static const range_t closed_v6[] = {
    {{0x20, 0x01}, 23},             /* of protocols: Teredo, benchmarks, ORCHID */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* 6to4 */
    {{0x3f, 0xff}, 20}              /* documentation */
};

static const range_t given_out = {{0x20}, 3};
static const range_t nat64 = {{0x00, 0x64, 0xff, 0x9b}, 96};

static bool is_in(const uint8_t *address, const range_t *range) {
  const int whole = range->bits / 8, rest = range->bits % 8;
  if (memcmp(address, range->bytes, (size_t)whole) != 0) return false;
  return rest == 0 || (address[whole] ^ range->bytes[whole]) >> (8 - rest) == 0;
}

static bool is_in_any(const uint8_t *address, const range_t *ranges, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (is_in(address, &ranges[i])) return true;
  return false;
}

bool media_address_is_public(const struct sockaddr *address) {
  uint8_t bytes[16];
  if (address->sa_family == AF_INET) {
    memcpy(bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    return !is_in_any(bytes, closed_v4, ARRAY_LEN(closed_v4));
  }
  if (address->sa_family != AF_INET6) return false;
  memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
  if (is_in(bytes, &nat64)) return !is_in_any(bytes + 12, closed_v4, ARRAY_LEN(closed_v4));
  return is_in(bytes, &given_out) && !is_in_any(bytes, closed_v6, ARRAY_LEN(closed_v6));
}
