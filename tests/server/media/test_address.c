/* test_address.c: which addresses are public, by what the registries of IANA say. */
#include "server/media/address.h"
#include "tests/expect.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

TestSuite(media_address, .timeout = 30);

static bool is_public(const char *text) {
  struct sockaddr_storage address = {0};
  struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&address;
  address.ss_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
  int read = address.ss_family == AF_INET ? inet_pton(AF_INET, text, &v4->sin_addr)
                                          : inet_pton(AF_INET6, text, &v6->sin6_addr);
  ASSERT_EQ_FOR(read, 1, "%s", text);
  return media_address_is_public((const struct sockaddr *)&address);
}

/* Python 3.11's ipaddress on the first and last address of each range and their neighbours:
 * is_global and not is_multicast. */
static const struct {
  const char *text;
  bool is_public;
} known[] = {
    {"0.0.0.0", false},
    {"0.255.255.255", false},
    {"1.0.0.0", true},
    {"1.1.1.1", true},
    {"8.8.8.8", true},
    {"9.255.255.255", true},
    {"10.0.0.0", false},
    {"10.255.255.255", false},
    {"11.0.0.0", true},
    {"100.63.255.255", true},
    {"100.64.0.0", false},
    {"100.100.100.200", false},
    {"100.127.255.255", false},
    {"100.128.0.0", true},
    {"126.255.255.255", true},
    {"127.0.0.0", false},
    {"127.255.255.255", false},
    {"128.0.0.0", true},
    {"169.253.255.255", true},
    {"169.254.0.0", false},
    {"169.254.169.254", false},
    {"169.254.255.255", false},
    {"169.255.0.0", true},
    {"172.15.255.255", true},
    {"172.16.0.0", false},
    {"172.31.255.255", false},
    {"172.32.0.0", true},
    {"192.0.1.255", true},
    {"192.0.2.0", false},
    {"192.0.2.255", false},
    {"192.0.3.0", true},
    {"192.167.255.255", true},
    {"192.168.0.0", false},
    {"192.168.255.255", false},
    {"192.169.0.0", true},
    {"198.17.255.255", true},
    {"198.18.0.0", false},
    {"198.19.255.255", false},
    {"198.20.0.0", true},
    {"198.51.99.255", true},
    {"198.51.100.0", false},
    {"198.51.100.255", false},
    {"198.51.101.0", true},
    {"203.0.112.255", true},
    {"203.0.113.0", false},
    {"203.0.113.255", false},
    {"203.0.114.0", true},
    {"223.255.255.255", true},
    {"224.0.0.0", false},
    {"239.255.255.255", false},
    {"240.0.0.0", false},
    {"255.255.255.255", false},
    {"::", false},
    {"::1", false},
    {"2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true},
    {"2001::", false},
    {"2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", false},
    {"2001:200::", true},
    {"2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", true},
    {"2001:db8::", false},
    {"2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", false},
    {"2001:db9::", true},
    {"2003::", true},
    {"2606:4700:4700::1111", true},
    {"2a00:1450:4001::200e", true},
    {"3000::", true},
    {"fc00::", false},
    {"fd00:ec2::254", false},
    {"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false},
    {"fe80::", false},
    {"fe80::1", false},
    {"febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false},
    {"ff00::", false},
    {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false},
};

Test(media_address, is_what_python_says) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    EXPECT_EQ_FOR(is_public(known[i].text), known[i].is_public, "%s", known[i].text);
}

/* What Python 3.11 does not know of, or calls global though it leads to another address. */
Test(media_address, is_not_public_where_it_stands_for_another) {
  static const char *const closed[] = {"192.0.0.0",      "192.0.0.255",        "192.88.99.0",
                                       "192.88.99.255", /* protocols, 6to4 */
                                       "::ffff:8.8.8.8", "::ffff:127.0.0.1",   "::127.0.0.1",
                                       "2002:7f00:1::",  "2002:808:808::",     "64:ff9b::7f00:1",
                                       "64:ff9b::a00:1", "64:ff9b:1::808:808", "fec0::1",
                                       "3fff::1",        "3fff:fff:ffff::1",   "1fff:ffff::1",
                                       "4000::1",        "100:0:0:1::1"};
  static const char *const open[] = {"192.0.1.0",        "192.88.98.255", "192.88.100.0",
                                     "64:ff9b::808:808", "2001:200::1",   "2003::1",
                                     "3fff:1000::1"};
  for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
    EXPECT_EQ_FOR(is_public(closed[i]), false, "%s", closed[i]);
  for (size_t i = 0; i < sizeof open / sizeof *open; i++)
    EXPECT_EQ_FOR(is_public(open[i]), true, "%s", open[i]);
}

Test(media_address, another_family_is_not_public) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  cr_expect(!media_address_is_public((const struct sockaddr *)&address));
}
