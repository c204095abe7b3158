/* test_parts.c: the parts below the transport: keys, SHA-256, limits, routes, error bodies, access
 * lines. */
#include "server/http/auth.h"
#include "server/http/limit.h"
#include "server/keys/sha256.h"
#include "server/observe/log.h"
#include "server/server.h"

#include "engine/base/json.h"
#include "tests/expect.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(parts, .timeout = 30);

static void hex_of(const uint8_t *bytes, int count, char *out) {
  for (int i = 0; i < count; i++) sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* FIPS 180-4 examples, and lengths around the padding's edges against an independent tool. */
Test(parts, sha256_vectors) {
  static const struct {
    const char *text;
    const char *digest;
  } vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
       "mnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
  };
  uint8_t digest[SHA256_BYTES];
  char hex[65];
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
    sha256(vectors[i].text, strlen(vectors[i].text), digest);
    hex_of(digest, SHA256_BYTES, hex);
    EXPECT_STR_EQ(hex, vectors[i].digest);
  }
  char *million = malloc(1000000);
  memset(million, 'a', 1000000);
  sha256(million, 1000000, digest);
  hex_of(digest, SHA256_BYTES, hex);
  EXPECT_STR_EQ(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  free(million);
}

static int keys_of(const char *flag, auth_t **out, config_t *config, inferd_error_t *error) {
  char *argv[] = {strdup(flag)};
  ASSERT_EQ(config_load(config, 1, argv, error), 0);
  free(argv[0]);
  return auth_new(config, out, error);
}

/* The key of "Bearer KEY"; NULL = it is unknown. */
static api_key_t *key_of(const auth_t *auth, const char *text) {
  char header[80];
  api_key_t *key = NULL;
  snprintf(header, sizeof header, "Bearer %s", text);
  auth_role_t role = auth_check(auth, header, &key);
  EXPECT_EQ((role == AUTH_CLIENT || role == AUTH_ADMIN), (key != NULL));
  return key;
}

Test(parts, keys) {
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  api_key_t *key, *other;
  ASSERT_EQ(keys_of("--api-key=alpha,beta", &auth, &config, &error), 0);
  EXPECT_EQ(auth_key_count(auth), 2);
  EXPECT_EQ(auth_check(auth, "Bearer alpha", &key), AUTH_CLIENT);
  EXPECT_STR_EQ(key->name, "8ed3f6ad"); /* of SHA-256("alpha") */
  EXPECT_EQ(key->tenant, UINT64_C(0x8ed3f6ad685b959e));
  EXPECT_EQ(auth_check(auth, "bEARER  beta ", &other), AUTH_CLIENT);
  EXPECT_NE(key->tenant, other->tenant);
  static const char *const wrong[] = {"Bearer alphaa", "Bearer alph", "Bearer ", "Bearer",
                                      "alpha",         "Basic alpha", "",        "Bearer ALPHA"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    EXPECT_EQ_FOR(auth_check(auth, wrong[i], &key), AUTH_REFUSED, "%s", wrong[i]);
    EXPECT_EQ(key, NULL);
  }
  EXPECT_EQ(auth_check(auth, NULL, &key), AUTH_REFUSED);
  EXPECT_EQ(auth_check_key(auth, "alpha ", &key), AUTH_CLIENT);
  EXPECT_STR_EQ(key->name, "8ed3f6ad");
  EXPECT_EQ(auth_check_key(auth, "Bearer alpha", &key), AUTH_REFUSED);
  EXPECT_EQ(auth_check_key(auth, "", &key), AUTH_REFUSED);
  EXPECT_EQ(auth_check_key(auth, NULL, &key), AUTH_REFUSED);
  EXPECT_EQ(key, NULL);
  auth_free(auth);
  config_free(&config);
}

Test(parts, admin_keys) {
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  api_key_t *key;
  ASSERT_EQ(keys_of("--admin-key=root,boss", &auth, &config, &error), 0);
  EXPECT_EQ(auth_key_count(auth), 0);
  EXPECT_EQ(auth_admin_count(auth), 2);
  EXPECT_EQ(auth_check(auth, NULL, &key), AUTH_OPEN);
  EXPECT_EQ(auth_check(auth, "Bearer alpha", &key), AUTH_OPEN);
  EXPECT_EQ(key, NULL);
  EXPECT_EQ(auth_check(auth, "Bearer boss", &key), AUTH_ADMIN);
  EXPECT_NE(key->tenant, 0);
  EXPECT_EQ(strlen(key->name), 8);
  auth_free(auth);
  config_free(&config);

  setenv("INFERD_API_KEY", "alpha", 1);
  ASSERT_EQ(keys_of("--admin-key=root", &auth, &config, &error), 0);
  EXPECT_EQ(auth_check(auth, NULL, &key), AUTH_REFUSED);
  EXPECT_EQ(auth_check(auth, "Bearer alphaa", &key), AUTH_REFUSED);
  EXPECT_EQ(auth_check(auth, "Bearer alpha", &key), AUTH_CLIENT);
  EXPECT_EQ(auth_check(auth, "Bearer root", &key), AUTH_ADMIN);
  auth_free(auth);
  config_free(&config);

  /* What is a key of both kinds would make every client an operator. */
  EXPECT_EQ(keys_of("--admin-key=root,alpha", &auth, &config, &error), ERR_CONFIGURATION);
  cr_expect(strstr(error.message, "admin_key: key 2 of 2: an API key is an admin key too") != NULL,
            "%s", error.message);
  cr_expect(strstr(error.message, "alpha") == NULL, "a key in a message");
  config_free(&config);
  unsetenv("INFERD_API_KEY");
}

Test(parts, no_keys_let_everybody_in) {
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  api_key_t *key;
  ASSERT_EQ(keys_of("--port=1", &auth, &config, &error), 0);
  EXPECT_EQ(auth_check(auth, NULL, &key), AUTH_OPEN);
  EXPECT_EQ(key, NULL);
  auth_free(auth);
  config_free(&config);
}

static void write_file(const char *path, const char *text, mode_t mode) {
  FILE *file = fopen(path, "w");
  fputs(text, file);
  fclose(file);
  chmod(path, mode);
}

static int reload(auth_t *auth, const config_t *config, inferd_error_t *error) {
  auth_t *fresh = NULL;
  int code = auth_new(config, &fresh, error);
  if (code == 0) auth_replace(auth, fresh);
  return code;
}

static void expect_no_reload(auth_t *auth, const config_t *config, int code, const char *part) {
  inferd_error_t error = {0};
  EXPECT_EQ(reload(auth, config, &error), code);
  cr_expect(strstr(error.message, part) != NULL, "'%s' is not in '%s'", part, error.message);
}

Test(parts, key_file) {
  char path[64], flag[96];
  snprintf(path, sizeof path, "/tmp/inferd-keys-%d", (int)getpid());
  snprintf(flag, sizeof flag, "--api-key-file=%s", path);
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  write_file(path, "# comment\n\none team-a\n  two\r\n", 0600);
  ASSERT_EQ_FOR(keys_of(flag, &auth, &config, &error), 0, "%s", error.message);
  EXPECT_EQ(auth_key_count(auth), 2);
  ASSERT_NE(key_of(auth, "one"), NULL);
  EXPECT_STR_EQ(key_of(auth, "one")->label, "team-a");
  EXPECT_STR_EQ(key_of(auth, "two")->label, "");
  EXPECT_EQ(key_of(auth, "one team-a"), NULL);

  write_file(path, "three\n", 0640);
  ASSERT_EQ(reload(auth, &config, &error), 0);
  EXPECT_EQ(key_of(auth, "one"), NULL);
  EXPECT_NE(key_of(auth, "three"), NULL);

  /* A bad file leaves the keys as they are; above all it opens nothing. */
  write_file(path, "four\n", 0644);
  expect_no_reload(auth, &config, ERR_PERMISSION, "has mode 0644; it must be 0600 or 0640");
  write_file(path, "# nothing\n", 0600);
  chmod(path, 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "holds no key");
  write_file(path, "five\n# more\nsi\x01x\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "api_key_file: line 3 of /tmp/inferd-keys-");
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "byte 3 of the key is not allowed");
  write_file(path, "six\nfour team max_wating=3\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "line 2 of /tmp/inferd-keys-");
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "'max_wating' is unknown, supported: max_");
  write_file(path, "six a\nsix b\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "line 2 of /tmp/inferd-keys-");
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "was given before, with another label");
  write_file(path, "six a max_running=3\nsix a max_running=4\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "or other limits");
  unlink(path);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "api_key_file: cannot open /tmp/inferd-keys-");
  EXPECT_NE(key_of(auth, "three"), NULL);
  EXPECT_EQ(key_of(auth, "four"), NULL);
  auth_free(auth);
  config_free(&config);
}

/* As many keys as there may be, and as many that are none; then one more. A check compares a few
 * digests, not all. */
Test(parts, four_thousand_keys) {
  enum { KEYS = 4096, LINE = 16 };
  char path[64], flag[96], bearer[32];
  snprintf(path, sizeof path, "/tmp/inferd-many-%d", (int)getpid());
  snprintf(flag, sizeof flag, "--api-key-file=%s", path);
  char *text = calloc(KEYS + 2, LINE);
  int n = 0;
  for (int k = 0; k < KEYS; k++) n += sprintf(text + n, "key-%d\n", k);
  write_file(path, text, 0600);
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(keys_of(flag, &auth, &config, &error), 0, "%s", error.message);
  EXPECT_EQ(auth_key_count(auth), KEYS);
  for (int round = 0; round < 2; round++) {
    for (int k = 0; k < KEYS; k++) {
      api_key_t *key = NULL, *again = NULL;
      snprintf(bearer, sizeof bearer, "Bearer key-%d", k);
      ASSERT_EQ_FOR(auth_check(auth, bearer, &key), AUTH_CLIENT, "%s", bearer);
      ASSERT_EQ(auth_check(auth, bearer, &again), AUTH_CLIENT);
      ASSERT_EQ(key, again);
      snprintf(bearer, sizeof bearer, "Bearer key-%d", KEYS + k);
      ASSERT_EQ_FOR(auth_check(auth, bearer, &key), AUTH_REFUSED, "%s", bearer);
      ASSERT_EQ(key, NULL);
    }
    ASSERT_EQ(reload(auth, &config, &error), 0);
  }
  int known = 0, unknown = 0;
  for (int k = 0; k < KEYS; k++) {
    snprintf(bearer, sizeof bearer, "key-%d", k);
    known += auth_comparisons(auth, bearer);
    snprintf(bearer, sizeof bearer, "key-%d", KEYS + k);
    unknown += auth_comparisons(auth, bearer);
  }
  /* Half of the slots are taken: 1.5 and 2.5 at the mean are expected. */
  ASSERT_LT(known, 2 * KEYS);
  ASSERT_LT(unknown, 3 * KEYS);
  sprintf(text + n, "one-more\n");
  write_file(path, text, 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "more than 4096 keys");
  unlink(path);
  free(text);
  auth_free(auth);
  config_free(&config);
}

/* A key that stays counts on: a reload must not give it its places again. One that goes stays in
 * memory for the requests that it has in flight. */
Test(parts, a_reload_keeps_what_is_counted) {
  char path[64], flag[96];
  snprintf(path, sizeof path, "/tmp/inferd-keys-%d", (int)getpid());
  snprintf(flag, sizeof flag, "--api-key-file=%s", path);
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  write_file(path,
             "one a max_waiting=2\ntwo b max_tokens_waiting=50 grammar=off\none a "
             "max_waiting=2\n",
             0600);
  ASSERT_EQ_FOR(keys_of(flag, &auth, &config, &error), 0, "%s", error.message);
  EXPECT_EQ_FOR(auth_key_count(auth), 2, "the same line twice is one key");
  api_key_t *one = api_key_use(key_of(auth, "one")), *two = api_key_use(key_of(auth, "two"));
  EXPECT_EQ(one->quota.max_waiting, 2);
  EXPECT_EQ(two->quota.max_tokens_waiting, 50);
  cr_expect(two->limits.grammar_off);
  quota_wait(&one->quota, 30);
  quota_wait(&two->quota, 40);
  write_file(path, "one c max_waiting=1\n", 0600);
  ASSERT_EQ_FOR(reload(auth, &config, &error), 0, "%s", error.message);
  EXPECT_EQ(key_of(auth, "one"), one);
  EXPECT_EQ(key_of(auth, "two"), NULL);
  EXPECT_STR_EQ(one->label, "c");
  EXPECT_EQ(one->quota.max_waiting, 1);
  EXPECT_EQ(quota_check(&one->quota, 1, 1, &error), ERR_RATE_LIMITED);
  EXPECT_EQ(atomic_load(&two->quota.waiting), 1);
  quota_leave(&one->quota, 30);
  quota_leave(&two->quota, 40);
  EXPECT_EQ(quota_check(&one->quota, 1, 1, &error), 0);
  api_key_release(two);
  auth_free(auth);
  EXPECT_EQ(one->num_users, 1);
  api_key_release(one);
  unlink(path);
  config_free(&config);
}

Test(parts, admin_key_file) {
  char path[64], flag[96];
  snprintf(path, sizeof path, "/tmp/inferd-admin-%d", (int)getpid());
  snprintf(flag, sizeof flag, "--admin-key-file=%s", path);
  config_t config;
  auth_t *auth = NULL;
  inferd_error_t error = {0};
  api_key_t *key;
  write_file(path, "# who may load adapters\nroot operator\n", 0600);
  ASSERT_EQ_FOR(keys_of(flag, &auth, &config, &error), 0, "%s", error.message);
  EXPECT_EQ(auth_check(auth, "Bearer root", &key), AUTH_ADMIN);
  write_file(path, "boss\n", 0640);
  ASSERT_EQ(reload(auth, &config, &error), 0);
  EXPECT_EQ(auth_check(auth, "Bearer root", &key), AUTH_OPEN);
  EXPECT_EQ(auth_check(auth, "Bearer boss", &key), AUTH_ADMIN);
  write_file(path, "four\n", 0604);
  expect_no_reload(auth, &config, ERR_PERMISSION, "admin_key_file: /tmp/inferd-admin-");
  write_file(path, "\n", 0600);
  chmod(path, 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "holds no key");
  write_file(path, "ro\x01t\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION,
                   "admin_key_file: line 1 of /tmp/inferd-admin-");
  write_file(path, "root x max_waiting=3\n", 0600);
  expect_no_reload(auth, &config, ERR_CONFIGURATION, "an admin key has no limits; leave them out");
  unlink(path);
  EXPECT_EQ(auth_check(auth, "Bearer boss", &key), AUTH_ADMIN);
  auth_free(auth);
  config_free(&config);
}

/* ---- limits ---- */

static peer_t peer_of(const char *text) {
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  peer_t peer;
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    peer_from((struct sockaddr *)&v4, &peer);
  } else {
    ASSERT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    peer_from((struct sockaddr *)&v6, &peer);
  }
  return peer;
}

/* All that can run and wait has a connection, in each replica. */
Test(parts, connections_by_the_options) {
  config_t config = {.max_num_seqs = 1024, .max_queue_requests = 500, .data_parallel_size = 1};
  EXPECT_EQ(limit_connections(&config), 4096);
  config.data_parallel_size = 16;
  EXPECT_EQ(limit_connections(&config), 16 * 1024 + 500 + 256);
  config.max_num_seqs = 0;
  EXPECT_EQ(limit_connections(&config), 16 * 256 + 500 + 256);
  config.max_connections = 7;
  EXPECT_EQ(limit_connections(&config), 7);
}

Test(parts, connections_per_peer) {
  limit_t *limit = limit_new(100, 2);
  peer_t a = peer_of("192.0.2.1"), b = peer_of("192.0.2.2"), local = peer_of("127.9.9.9");
  peer_t six = peer_of("2001:db8::1"), six_same_net = peer_of("2001:db8::ffff"),
         mapped = peer_of("::ffff:192.0.2.1"), local6 = peer_of("::1");
  limit_peer_add(limit, &a);
  cr_expect_not(limit_peer_full(limit, &a));
  limit_peer_add(limit, &mapped);
  cr_expect(limit_peer_full(limit, &a));
  cr_expect_not(limit_peer_full(limit, &b));
  limit_peer_remove(limit, &a);
  cr_expect_not(limit_peer_full(limit, &a));
  limit_peer_add(limit, &six);
  limit_peer_add(limit, &six_same_net);
  cr_expect(limit_peer_full(limit, &six));
  for (int i = 0; i < 10; i++) limit_peer_add(limit, &local), limit_peer_add(limit, &local6);
  cr_expect_not(limit_peer_full(limit, &local));
  cr_expect_not(limit_peer_full(limit, &local6));
  limit_free(limit);
}

/* Random adds and removes against a plain array: removal must not hide peers that were pushed on.
 */
Test(parts, peer_table_agrees_with_a_plain_count) {
  enum { PEERS = 200 };
  limit_t *limit = limit_new(PEERS, 3);
  peer_t peers[PEERS];
  int counts[PEERS] = {0};
  unsigned state = 7;
  for (int i = 0; i < PEERS; i++) {
    char text[32];
    snprintf(text, sizeof text, "198.51.100.%d", i);
    peers[i] = peer_of(text);
  }
  for (int step = 0; step < 100000; step++) {
    state = state * 1664525u + 1013904223u;
    int i = (int)(state >> 10) % PEERS;
    if ((state >> 30) % 2 == 0 && counts[i] < 3) {
      limit_peer_add(limit, &peers[i]);
      counts[i]++;
    } else if (counts[i] > 0) {
      limit_peer_remove(limit, &peers[i]);
      counts[i]--;
    }
    ASSERT_EQ(limit_peer_full(limit, &peers[i]), counts[i] >= 3);
  }
  limit_free(limit);
}

Test(parts, pace) {
  pace_t pace = {0};
  cr_expect_not(pace_is_slow(&pace, 5000, 700)); /* a window begins */
  cr_expect_not(pace_is_slow(&pace, 14999, 700));
  cr_expect(pace_is_slow(&pace, 15000, 700 + 10 * 1024 - 1));
  cr_expect_not(pace_is_slow(&pace, 25000, 700 + 20 * 1024)); /* one byte more than before */
  cr_expect_not(pace_is_slow(&pace, 26000, 700 + 20 * 1024));
  pace = (pace_t){0}; /* nothing waited */
  cr_expect_not(pace_is_slow(&pace, 100000, 700 + 20 * 1024));
  cr_expect(pace_is_slow(&pace, 110000, 700 + 20 * 1024));
}

/* ---- routes ---- */

static const char *label_of(const char *method, const char *path) {
  const char *allow;
  char *tail;
  const route_t *route = route_find(method, path, 0, &allow, &tail);
  free(tail);
  return route != NULL ? route->label : allow != NULL ? allow : "none";
}

Test(parts, routes_may_be_absent) {
  const char *methods[] = {"GET", "HEAD", "POST", "OPTIONS"};
  const char *allow;
  char *tail;
  for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
    cr_expect_null(route_find(methods[i], "/", ROUTE_PAGE, &allow, &tail));
    cr_expect_null(allow);
  }
  cr_expect_not_null(route_find("GET", "/livez", ROUTE_PAGE, &allow, &tail));
}

/* Without --store they are no routes, so that unserved.def refuses them by name. */
Test(parts, routes_of_the_store) {
  const char *allow;
  char *tail;
  EXPECT_STR_EQ(label_of("GET", "/v1/responses/resp_1"), "/v1/responses/{id}");
  EXPECT_STR_EQ(label_of("HEAD", "/responses/resp_1/input_items"), "/v1/responses/{id}");
  EXPECT_STR_EQ(label_of("DELETE", "/v1/responses/resp_1"), "/v1/responses/{id}");
  EXPECT_STR_EQ(label_of("PUT", "/v1/responses/resp_1"), "GET, HEAD, POST, DELETE, OPTIONS");
  EXPECT_STR_EQ(label_of("POST", "/v1/responses/resp_1/cancel"), "/v1/responses/{id}/cancel");
  EXPECT_STR_EQ(label_of("POST", "/v1/responses"), "/v1/responses");
  cr_expect_null(route_find("GET", "/v1/responses/resp_1", ROUTE_STORE, &allow, &tail));
  cr_expect_null(allow);
}

Test(parts, routes) {
  EXPECT_STR_EQ(label_of("POST", "/v1/completions"), "/v1/completions");
  EXPECT_STR_EQ(label_of("POST", "/completions/"), "/v1/completions");
  EXPECT_STR_EQ(label_of("POST", "//v1///completions?stream=1"), "/v1/completions");
  EXPECT_STR_EQ(label_of("POST", "http://localhost:8000/v1/completions"), "/v1/completions");
  EXPECT_STR_EQ(label_of("HEAD", "/v1/models"), "/v1/models");
  EXPECT_STR_EQ(label_of("GET", "/metrics/"), "/metrics");
  EXPECT_STR_EQ(label_of("DELETE", "/ping"), "GET, HEAD, POST, OPTIONS");
  EXPECT_STR_EQ(label_of("GET", "/v1/tokenize"), "POST, OPTIONS");
  EXPECT_STR_EQ(label_of("POST", "/v1/models/x"), "GET, HEAD, OPTIONS");
  EXPECT_STR_EQ(label_of("GET", "/?a"), "/");
  EXPECT_STR_EQ(label_of("POST", "/"), "GET, HEAD, OPTIONS");
  EXPECT_STR_EQ(label_of("GET", ""), "none");
  EXPECT_STR_EQ(label_of("GET", "*"), "none");
  EXPECT_STR_EQ(label_of("GET", "/v1/modelsx"), "none");
  EXPECT_STR_EQ(label_of("GET", "/V1/models"), "none");
  const char *allow;
  char *tail;
  static const char *const tails[][2] = {{"/v1/models/a", "a"},
                                         {"/models/org/name", "org/name"},
                                         {"/v1/models/org%2Fname/", "org/name"},
                                         {"/v1/models/%e4%BD%a0", "\xe4\xbd\xa0"},
                                         {"/v1/models/100%", "100%"},
                                         {"/v1/models/a%00b", "a%00b"}};
  for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
    const route_t *route = route_find("GET", tails[i][0], 0, &allow, &tail);
    cr_assert(route != NULL);
    EXPECT_STR_EQ(tail, tails[i][1]);
    free(tail);
  }
}

Test(parts, unserved_routes) {
  static const struct {
    const char *path, *part;
  } rows[] = {
      {"/v1/audio/speech", "does not serve audio (/v1/audio/speech)."},
      {"//v1/images/edits/?x=1", "does not serve images (/v1/images/edits)."},
      {"/v1/threads/t1/runs", "does not serve assistants"},
      {"/realtime", "realtime sessions"},
      {"/api/delete", "changes of models by clients (/api/delete); use inferd pull"},
      {"/api/blobs/sha256:0", "changes of models by clients (/api/blobs/sha256:0)"},
      {"/api/chat", NULL},
      {"/slots/0?action=save", "slots in files of llama.cpp (/slots/0); use --prefix-cache-file"},
      {"/slots", NULL},
      {"/sleep?level=1", NULL},
      {"/v1/responses/resp_1/cancel", "stored answers (/v1/responses/resp_1/cancel); use "},
      {"/chat/completions/chatcmpl-1", "does not serve stored answers"},
      {"/v1/responses", NULL},
      {"/v1/audios", NULL},
      {"/api", NULL},
      {"/", NULL},
      {"/v1/completions", NULL}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    inferd_error_t error = {0};
    int code = route_refuse(rows[i].path, &error);
    EXPECT_EQ_FOR(code, rows[i].part != NULL ? ERR_UNSERVED_ROUTE : 0, "%s", rows[i].path);
    if (rows[i].part == NULL) continue;
    cr_expect(strstr(error.message, rows[i].part) != NULL, "%s", error.message);
  }
}

/* A route is open only by name: everything else needs a key when keys exist. */
Test(parts, open_routes) {
  static const char *const paths[] = {"/v1/completions",
                                      "/v1/chat/completions",
                                      "/v1/embeddings",
                                      "/v1/models",
                                      "/v1/models/x",
                                      "/tokenize",
                                      "/detokenize",
                                      "/version",
                                      "/metrics",
                                      "/livez",
                                      "/readyz",
                                      "/health",
                                      "/ping"};
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    const char *allow;
    char *tail;
    const route_t *route = route_find("GET", paths[i], 0, &allow, &tail);
    free(tail);
    if (route == NULL) route = route_find("POST", paths[i], 0, &allow, &tail);
    cr_assert(route != NULL, "%s", paths[i]);
    EXPECT_EQ_FOR((route->flags & ROUTE_OPEN) != 0, i >= 9, "%s", paths[i]);
  }
}

/* ---- error bodies ---- */

Test(parts, error_bodies_are_json) {
  inferd_error_t error = {0};
  size_t length;
  error_set(&error, ERR_CONTEXT_LENGTH, "prompt", "Too long: \"%s\"",
            "a\\b\nc\x01"); /* controls become '?' */
  char *body = error_body(&error, false, &length);
  EXPECT_EQ(strlen(body), length);
  EXPECT_STR_EQ(body, "{\"error\":{\"message\":\"Too long: \\\"a\\\\b?c?\\\"\",\"type\":"
                      "\"invalid_request_error\",\"param\":\"prompt\",\"code\":"
                      "\"context_length_exceeded\"}}");
  free(body);
  error_set(&error, ERR_BAD_REQUEST, NULL, "No.");
  body = error_body(&error, false, &length);
  cr_expect(strstr(body, "\"param\":null,\"code\":null}}") != NULL);
  free(body);
  body = error_body(&error, true, &length);
  cr_expect(strstr(body, "\"code\":400}}") != NULL);
  free(body);
  memset(error.message, 1, sizeof error.message - 1); /* the longest that escaping can make it */
  body = error_body(&error, false, &length);
  json_doc_t *doc = NULL;
  EXPECT_EQ_FOR(json_parse(body, length, &json_limits_request, &doc, &error), 0, "%s", body);
  json_free(doc);
  free(body);
}

/* ---- access lines ---- */

Test(parts, access_lines_are_bounded_and_well_formed) {
  char id[REQUEST_ID_MAX + 1], line[LOG_ACCESS_BYTES_MAX + 1];
  char path[LOG_PATH_MAX], param[ERROR_PARAM_MAX];
  memset(param, 'p', sizeof param - 1);
  param[sizeof param - 1] = '\0';
  memset(id, 'x', REQUEST_ID_MAX);
  id[REQUEST_ID_MAX] = '\0';
  memset(path, '/', sizeof path - 1);
  path[sizeof path - 1] = '\0';
  exchange_log_t log = {
      "length", "a \"quoted\"\n model with a name that goes on and on and on and on",
      true,     131072,
      131072,   131072,
      123456.7, 123456.7,
      123456.7, 1,
      2,        3,
      4};
  access_t access = {.id = id,
                     .peer = "2001:0db8:0000:0000:0000:ff00:0042:8329",
                     .key = "12345678",
                     .method = "POST",
                     .route = "/v1/chat/completions",
                     .path = path,
                     .code = "context_length_exceeded",
                     .param = param,
                     .cause = "slow_reader",
                     .status = 499,
                     .duration_ns = 123456789012345u,
                     .bytes_in = 16777216,
                     .bytes_out = 268435456,
                     .log = &log};
  for (int json = 0; json <= 1; json++) {
    int n = log_access_format(&access, json != 0, "2026-01-31T12:00:00.000000Z", line, sizeof line);
    EXPECT_LE(n, LOG_ACCESS_BYTES_MAX);
    EXPECT_EQ((int)strlen(line), n);
    EXPECT_EQ(line[n - 1], '\n');
    EXPECT_EQ(strchr(line, '\n'), line + n - 1);
    cr_expect(strstr(line, "499") != NULL && strstr(line, path) != NULL);
    cr_expect_not_null(strstr(line, param));
  }
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  EXPECT_EQ_FOR(json_parse(line, strlen(line), &json_limits_request, &doc, &error), 0, "%s", line);
  json_free(doc);
  exchange_log_t none = EXCHANGE_LOG_UNKNOWN;
  access_t small = {.id = "i", .method = "GET", .route = "/health", .status = 200, .log = &none};
  log_access_format(&small, false, "T", line, sizeof line);
  EXPECT_STR_EQ(line, "T request status=200 method=GET route=/health e2e_ms=0.0 bytes_in=0 "
                      "bytes_out=0 id=i\n");
}

/* A sink that nobody reads loses lines, counted, and never blocks the writer. */
Test(parts, full_pipe_drops_lines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  uint64_t before = log_dropped();
  for (int i = 0; i < 2000; i++) log_line(LOG_WARN, "test", "%0100d", i);
  uint64_t dropped = log_dropped() - before;
  dup2(saved, STDERR_FILENO);
  close(ends[0]), close(ends[1]), close(saved);
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 2000);
}

Test(parts, log_file_is_opened_again) {
  char path[64], moved[80], flag[96], level[] = "--log-format=json";
  snprintf(path, sizeof path, "/tmp/inferd-log-%d", (int)getpid());
  snprintf(moved, sizeof moved, "%s.1", path);
  snprintf(flag, sizeof flag, "--log-file=%s", path);
  char *argv[] = {flag, level};
  config_t config;
  inferd_error_t error = {0};
  ASSERT_EQ(config_load(&config, 2, argv, &error), 0);
  ASSERT_EQ(log_open(&config, &error), 0);
  log_line(LOG_INFO, "one", "first \"quoted\"");
  rename(path, moved);
  log_reopen();
  log_line(LOG_INFO, "two", "second");
  log_line(LOG_DEBUG, "three", "below the level");
  log_close();
  char text[512];
  FILE *file = fopen(moved, "r");
  cr_assert(file != NULL);
  cr_assert(fgets(text, sizeof text, file) != NULL);
  cr_expect(strstr(text, "\"event\":\"one\",\"msg\":\"first \\\"quoted\\\"\"}\n") != NULL, "%s",
            text);
  EXPECT_EQ(fgets(text, sizeof text, file), NULL);
  fclose(file);
  file = fopen(path, "r");
  cr_assert(file != NULL);
  cr_assert(fgets(text, sizeof text, file) != NULL);
  cr_expect(strstr(text, "\"event\":\"two\"") != NULL);
  EXPECT_EQ(fgets(text, sizeof text, file), NULL);
  fclose(file);
  unlink(path), unlink(moved);
  config_free(&config);
}
