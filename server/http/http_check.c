/* http_check.c: the checks that a request passes before a byte of its body is read.
 *
 * Loop thread. strict.c has read every byte before, so framing and the syntax of headers are right.
 * The order is part of the API: target, Host and Origin, key, route, method, server state, media
 * type, size.
 */
#include "engine/base/util.h"
#include "server/http/http_exchange.h"

#include "engine/base/hash.h"
#include "engine/base/hex.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of a route with ROUTE_SMALL; what a form of ROUTE_AUDIO has beside its file. */
enum { SMALL_BODY_BYTES = 64 * 1024, FORM_BODY_BYTES = 128 * 1024 };

/* Returns true if every `%` is followed by two hex digits other than 00. */
static bool path_ok(const char *path) {
  for (const char *p = path; *p != '\0'; p++) {
    if (*p != '%') continue;
    if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2])) return false;
    if (p[1] == '0' && p[2] == '0') return false;
  }
  return true;
}

/* Returns true unless the target is an absolute address of another server than Host names: two
 * readers could take different ones of them. */
static bool authority_ok(const http_exchange_t *exchange, const char *path) {
  const char *host = exchange_request_header(&exchange->public, "Host");
  if (path[0] == '/' || path[0] == '*' || host == NULL) return true;
  const char *authority = path + strlen("http://");
  size_t length = strcspn(authority, "/");
  return strlen(host) == length && strncasecmp(host, authority, length) == 0;
}

static int check_target(http_exchange_t *exchange, const char *path, inferd_error_t *error) {
  exchange->close = true;
  if (!path_ok(path)) return error_set(error, ERR_BAD_REQUEST, NULL, "Malformed path.");
  if (!authority_ok(exchange, path)) {
    return error_set(error, ERR_BAD_REQUEST, NULL,
                     "The request target and the Host header name different servers.");
  }
  exchange->close = false;
  return 0;
}

/* Returns true if the name in "name", "name:port" or "[v6]:port" equals `wanted`. */
static bool host_is(const char *host, const char *wanted) {
  size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
  return strlen(wanted) == length && strncasecmp(host, wanted, length) == 0;
}

/* A web page of a foreign site can reach a server on loopback through a host name that the site
 * controls (DNS rebinding, CVE-2024-28224). Only the Host header shows this. */
static bool host_allowed(const http_exchange_t *exchange, const char *host) {
  const http_t *http = exchange->http;
  if (!http->check_host || exchange->connection->unix_socket || host == NULL) return true;
  if (host_is(host, "localhost") || host_is(host, "127.0.0.1") || host_is(host, "[::1]")) {
    return true;
  }
  const config_t *config = http->server->config;
  for (int i = 0; i < config->allowed_host.count; i++) {
    if (host_is(host, config->allowed_host.items[i])) return true;
  }
  return host_is(host, config->host);
}

/* Returns true for a page that this machine serves, on any port. */
static bool is_local_origin(const char *origin) {
  const char *host = strstr(origin, "://");
  if (host == NULL) return false;
  size_t scheme = (size_t)(host - origin);
  bool web = (scheme == 4 && strncasecmp(origin, "http", 4) == 0) ||
             (scheme == 5 && strncasecmp(origin, "https", 5) == 0);
  host += 3;
  const char *rest = host + (host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":"));
  if (!web || strlen(host) < (size_t)(rest - host)) return false;
  bool port =
      rest[0] == ':' && rest[1] != '\0' && strspn(rest + 1, "0123456789") == strlen(rest + 1);
  if (rest[0] != '\0' && !port) return false;
  return host_is(host, "localhost") || host_is(host, "127.0.0.1") || host_is(host, "[::1]");
}

/* Returns true if one word of --cors-origin allows the origin. `localhost` counts only while no
 * other machine reaches a listener. */
static bool origin_is(const http_t *http, const char *word, const char *origin) {
  if (strcmp(word, "localhost") == 0) return http->check_host && is_local_origin(origin);
  size_t scheme = strlen(word) - 1; /* all hosts of an application: config/check.c */
  if (scheme > 0 && word[scheme] == '*') return strncasecmp(word, origin, scheme) == 0;
  return strcmp(word, "*") == 0 || strcasecmp(word, origin) == 0;
}

/* Returns false if the site may not call us. Sets exchange->origin if CORS allows the site. */
static bool origin_allowed(http_exchange_t *exchange, const char *origin, const char *host) {
  const config_list_t *allowed = &exchange->http->server->config->cors_origin;
  enum { ORIGIN_BYTES_MAX = 300 }; /* a host has 253 at most; it is echoed in the answer's head */
  if (origin == NULL) return true;
  if (strlen(origin) > ORIGIN_BYTES_MAX) return false;
  for (int i = 0; i < allowed->count; i++) {
    if (origin_is(exchange->http, allowed->items[i], origin)) {
      exchange->origin = origin;
      return true;
    }
  }
  const char *authority = strstr(origin, "://"); /* same origin needs no permission */
  return authority != NULL && host != NULL && strcasecmp(authority + 3, host) == 0;
}

/* Returns true if the route needs no key, whether the server has keys or not. */
static bool is_open(const http_exchange_t *exchange, const route_t *route) {
  if (route == NULL) return false;
  bool metrics = (route->flags & ROUTE_METRICS) != 0;
  if (metrics) return strcmp(exchange->http->server->config->metrics_auth, "off") == 0;
  return (route->flags & (ROUTE_OPEN | ROUTE_PAGE)) != 0;
}

/* A page of a foreign site has no key, and reads nothing of value from a probe or from the web
 * page, which is public. Proxies and probes name a host that this server does not know. */
static bool host_matters(const http_exchange_t *exchange, const route_t *route) {
  if (route != NULL && (route->flags & (ROUTE_OPEN | ROUTE_PAGE)) != 0) return false;
  return auth_key_count(exchange->http->server->auth) == 0 || is_open(exchange, route);
}

static int check_site(http_exchange_t *exchange, const route_t *route, inferd_error_t *error) {
  const char *host = exchange_request_header(&exchange->public, "Host");
  const char *origin = exchange_request_header(&exchange->public, "Origin");
  if (host_matters(exchange, route) && !host_allowed(exchange, host)) {
    char quoted[96];
    return error_set(error, ERR_HOST_NOT_ALLOWED, NULL,
                     "The Host header names %s, which this server on loopback does not know. Set "
                     "--allowed-host NAME here, or `proxy_set_header Host localhost` in the proxy.",
                     error_quote(quoted, sizeof quoted, host, strlen(host)));
  }
  if (!origin_allowed(exchange, origin, host)) {
    return error_set(error, ERR_ORIGIN_NOT_ALLOWED, NULL,
                     "This Origin is not allowed; see --cors-origin.");
  }
  return 0;
}

/* `given`: the request has a header with a key. `alone`: the route reads x-api-key. */
static int fail_key(bool given, const char *kind, bool alone, inferd_error_t *error) {
  if (given) return error_set(error, ERR_INVALID_API_KEY, NULL, "Incorrect %s key provided.", kind);
  return error_set(error, ERR_INVALID_API_KEY, NULL,
                   "You didn't provide an %s key. Send it as Authorization: Bearer KEY%s.", kind,
                   alone ? ", or as x-api-key: KEY" : "");
}

/* What operators do needs an admin key. A server without one trusts who may open its UNIX sockets;
 * there the rules for API keys have been checked before. */
static int check_admin(const http_exchange_t *exchange, auth_role_t role, bool given,
                       inferd_error_t *error) {
  if (role == AUTH_ADMIN) return 0;
  if (auth_admin_count(exchange->http->server->auth) == 0) {
    if (exchange->connection->unix_socket) return 0;
    return error_set(error, ERR_ADMIN_KEY_REQUIRED, NULL,
                     "Without an admin key this route answers on a UNIX socket only; see "
                     "--admin-key and --uds.");
  }
  if (role != AUTH_CLIENT) return fail_key(given, "admin", false, error);
  return error_set(error, ERR_ADMIN_KEY_REQUIRED, NULL,
                   "This route needs an admin key (--admin-key), not an API key.");
}

/* "SOURCE DIGEST" in hexadecimal and the place of the key's rates, which the parent of this process
 * has written; without a key only "SOURCE -". Only the parent reaches the socket. Without the
 * header it asks for itself. */
static void take_client(http_exchange_t *exchange) {
  const char *text = exchange_request_header(&exchange->public, "x-inferd-client");
  const char *id = exchange_request_header(&exchange->public, "x-inferd-request");
  bool has_id = exchange_request_header(&exchange->public, "X-Request-Id") != NULL ||
                exchange_request_header(&exchange->public, "X-Client-Request-Id") != NULL;
  const char *seed = exchange_request_header(&exchange->public, "x-inferd-errand");
  if (id != NULL && !has_id) snprintf(exchange->public.request_id, REQUEST_ID_MAX + 1, "%s", id);
  exchange->public.best_effort = seed != NULL; /* a line of a batch of the parent */
  if (seed != NULL) exchange->public.seed = strtoull(seed, NULL, 16);
  uint8_t digest[KEY_DIGEST_BYTES];
  if (text == NULL) return;
  char *end;
  exchange->given_source = strtoull(text, &end, 16);
  for (int i = 0; i < KEY_DIGEST_BYTES; i++) {
    int high = end[0] == ' ' ? hex_value(end[1 + 2 * i]) : -1;
    int low = high >= 0 ? hex_value(end[2 + 2 * i]) : -1;
    if (low < 0) return;
    digest[i] = (uint8_t)(high * 16 + low);
  }
  api_key_t *key = auth_find(exchange->http->server->auth, digest);
  exchange->public.key = api_key_use(key);
  exchange->public.tenant = key != NULL ? key->tenant : 0;
  if (key != NULL) api_key_share(key, atoi(end + 1 + 2 * KEY_DIGEST_BYTES));
}

static int check_key(http_exchange_t *exchange, const route_t *route, inferd_error_t *error) {
  const server_t *server = exchange->http->server;
  if (server->behind) return take_client(exchange), 0;
  const char *metrics_auth = server->config->metrics_auth;
  bool open = is_open(exchange, route);
  bool admin = route != NULL && (route->flags & ROUTE_ADMIN) != 0;
  if (route != NULL && (route->flags & ROUTE_METRICS) != 0) {
    admin = strcmp(metrics_auth, "admin") == 0;
  }
  /* A CORS preflight has no key by design. It is harmless: only an allowed site reaches this line.
   */
  if (strcmp(exchange->public.method, "OPTIONS") == 0 && exchange->origin != NULL) open = true;
  const char *authorization = exchange_request_header(&exchange->public, "Authorization");
  bool may_stand_alone = route != NULL && (route->flags & ROUTE_KEY_ALONE) != 0;
  const char *alone = NULL; /* a key without the word Bearer */
  if (may_stand_alone && authorization == NULL) {
    alone = exchange_request_header(&exchange->public, "x-api-key");
  }
  bool given = authorization != NULL || alone != NULL;
  api_key_t *key = NULL;
  auth_role_t role = alone != NULL ? auth_check_key(server->auth, alone, &key)
                                   : auth_check(server->auth, authorization, &key);
  exchange->public.key = api_key_use(key);
  exchange->public.tenant = key != NULL ? key->tenant : 0;
  if (open) return 0;
  if (role == AUTH_REFUSED) return fail_key(given, "API", may_stand_alone, error);
  return admin ? check_admin(exchange, role, given, error) : 0;
}

/* Without keys all requests of a peer are those of one client. Peers on loopback and UNIX sockets
 * look alike, so there each connection counts as a client. */
static uint64_t source_of(const http_exchange_t *exchange) {
  const connection_t *connection = exchange->connection;
  if (exchange->public.tenant != 0) return exchange->public.tenant;
  if (exchange->given_source != 0) return exchange->given_source;
  if (!connection->peer.counted) return hash_mix(connection->number);
  return hash_bytes(connection->peer.bytes, sizeof connection->peer.bytes);
}

int check_state(const http_exchange_t *exchange, inferd_error_t *error) {
  const server_t *server = exchange->http->server;
  const route_t *route = exchange->public.route;
  if (route == NULL || (route->flags & ROUTE_ENGINE) == 0) return 0;
  if (server->phase >= SERVER_DRAINING) {
    return error_set(error, ERR_DRAINING, NULL, "The server is shutting down.");
  }
  if (server->models != NULL) return 0; /* its requests may wait for a model */
  engine_state_t state = server->engine != NULL ? engine_state(server->engine) : ENGINE_LOADING;
  if (state == ENGINE_READY && server->starting) state = ENGINE_LOADING;
  switch (state) {
  case ENGINE_READY: return 0;
  case ENGINE_LOADING:
    return error_set(error, ERR_MODEL_LOADING, NULL, "The model is still loading.");
  case ENGINE_FAILED:
  case ENGINE_STOPPED: break;
  }
  return error_set(error, ERR_ENGINE_FAILED, NULL, "The engine has failed.");
}

bool check_has_body(const http_exchange_t *exchange) {
  const char *length = exchange_request_header(&exchange->public, "Content-Length");
  if (length != NULL) return strtoull(length, NULL, 10) > 0;
  return exchange_request_header(&exchange->public, "Transfer-Encoding") != NULL;
}

/* application/json or application/anything+json; parameters are free, but charset must be UTF-8. */
static bool media_type_ok(const char *type) {
  size_t length = strcspn(type, "; \t");
  bool json = length == 16 && strncasecmp(type, "application/json", 16) == 0;
  json |= length > 17 && strncasecmp(type, "application/", 12) == 0 &&
          strncasecmp(type + length - 5, "+json", 5) == 0;
  if (!json) return false;
  const char *charset = strcasestr(type + length, "charset");
  if (charset == NULL) return true;
  charset += 7 + strspn(charset + 7, " \t");
  if (*charset != '=') return false;
  charset += 1 + strspn(charset + 1, " \t\"");
  size_t n = strcspn(charset, " \t\";");
  return (n == 5 && strncasecmp(charset, "utf-8", 5) == 0) ||
         (n == 4 && strncasecmp(charset, "utf8", 4) == 0);
}

static int check_media(const http_exchange_t *exchange, inferd_error_t *error) {
  const char *type = exchange_request_header(&exchange->public, "Content-Type");
  const char *encoding = exchange_request_header(&exchange->public, "Content-Encoding");
  /* A browser sends form types to any site without a preflight, but not JSON. */
  bool no_browser = exchange_request_header(&exchange->public, "Origin") == NULL;
  bool type_ok = type == NULL ? no_browser : media_type_ok(type);
  /* Ollama reads any type, and its documentation has curl send that of a form. */
  if (!type_ok && no_browser && exchange->public.wire == WIRE_OLLAMA) {
    type_ok = strcasecmp(type, "application/x-www-form-urlencoded") == 0;
  }
  if (!type_ok) {
    return error_set(error, ERR_UNSUPPORTED_MEDIA_TYPE, NULL,
                     "Content-Type must be application/json "
                     "(curl: add -H 'Content-Type: application/json').");
  }
  bool plain = encoding == NULL || (strncasecmp(encoding, "identity", 8) == 0 &&
                                    encoding[8 + strspn(encoding + 8, " \t")] == '\0');
  if (!plain) {
    return error_set(error, ERR_UNSUPPORTED_MEDIA_TYPE, NULL,
                     "Content-Encoding is not supported; send the body as it is.");
  }
  return 0;
}

static int check_size(http_exchange_t *exchange, inferd_error_t *error) {
  const char *length = exchange_request_header(&exchange->public, "Content-Length");
  const unsigned flags = exchange->public.route->flags;
  exchange->body_limit = (size_t)exchange->http->server->config->max_body_bytes;
  if ((flags & ROUTE_AUDIO) != 0)
    exchange->body_limit =
        (size_t)exchange->http->server->config->max_audio_bytes + FORM_BODY_BYTES;
  if ((flags & ROUTE_SMALL) != 0)
    exchange->body_limit = MIN(exchange->body_limit, SMALL_BODY_BYTES);
  if (length != NULL && strtoull(length, NULL, 10) > exchange->body_limit) {
    return error_set(error, ERR_BODY_TOO_LARGE, NULL, "The body is larger than %zu bytes.",
                     exchange->body_limit);
  }
  return 0;
}

/* Returns the path behind --root-path, or the whole path if it does not begin so. */
static const char *behind_root(const http_exchange_t *exchange, const char *path) {
  const char *root = exchange->http->server->config->root_path;
  size_t length = strlen(root);
  if (strncmp(path, root, length) != 0) return path;
  bool ends = path[length] == '\0' || path[length] == '/' || path[length] == '?';
  return ends ? path + length : path;
}

/* Keeps the path of a request that has no route. A query may hold a secret. If memory is short, the
 * log lacks the path. */
static void keep_path(http_exchange_t *exchange, const char *path) {
  exchange->path = malloc(LOG_PATH_MAX);
  if (exchange->path != NULL) error_quote(exchange->path, LOG_PATH_MAX, path, strcspn(path, "?"));
}

int check_request(http_exchange_t *exchange, const char *path, inferd_error_t *error) {
  int code = check_target(exchange, path, error);
  if (code != 0) return code;
  path = behind_root(exchange, path);
  const config_t *config = exchange->http->server->config;
  exchange_t *public = &exchange->public;
  const unsigned absent = (strcmp(config->web_page, "off") == 0 ? ROUTE_PAGE : 0u) |
                          (exchange->http->server->store == NULL ? ROUTE_STORE : 0u);
  const route_t *route =
      route_find(public->method, path, absent, &exchange->allow, &exchange->tail);
  public->route =
      route; /* set first, so that refusals are logged and counted under the route too */
  public->wire = route_wire(route, path);
  if (route == NULL) keep_path(exchange, path);
  public->path_tail = exchange->tail != NULL ? exchange->tail : "";
  if ((code = check_site(exchange, route, error)) != 0) return code;
  if ((code = check_key(exchange, route, error)) != 0) return code;
  public->source = source_of(exchange);
  if (public->tenant != 0 || exchange->connection->peer.counted)
    exchange->connection->client = public->source;
  if (route == NULL) {
    if (exchange->allow == NULL) {
      if ((code = route_refuse(path, error)) != 0) return code;
      char quoted[96];
      return error_set(error, ERR_UNKNOWN_URL, NULL, "Unknown request URL: %.32s %s",
                       public->method, error_quote(quoted, sizeof quoted, path, strlen(path)));
    }
    if (strcmp(public->method, "OPTIONS") == 0) return 0;
    return error_set(error, ERR_METHOD_NOT_ALLOWED, NULL, "Method not allowed; use %s.",
                     exchange->allow);
  }
  if ((code = check_state(exchange, error)) != 0) return code;
  if ((route->flags & ROUTE_JSON) != 0 && (code = check_media(exchange, error)) != 0) return code;
  return check_size(exchange, error);
}
