/* route.c: finds the route of a path in the table routes.def, and normalises paths.
 *
 * Loop thread. The table says which checks a request passes before its handler sees it; no handler
 * checks keys, methods or media types by itself.
 */
#include "engine/base/hex.h"
#include "engine/base/util.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const route_t routes[] = {
#define ROUTE(method, path, flags, label, handle, help) {method, path, flags, label, handle},
#include "server/http/routes.def"
#undef ROUTE
};
enum { ROUTE_COUNT = ARRAY_LEN(routes) };

/* Doubled slashes become one, the query and one trailing slash go, an absolute-form target loses
 * its scheme and authority. `out` holds strlen(path) + 2 bytes. */
static void normalise(const char *path, char *out) {
  if (strncasecmp(path, "http://", 7) == 0) {
    const char *slash = strchr(path + 7, '/');
    path = slash != NULL ? slash : "/";
  }
  size_t n = 0;
  for (const char *p = path; *p != '\0' && *p != '?' && *p != '#'; p++) {
    if (*p == '/' && n > 0 && out[n - 1] == '/') continue;
    out[n++] = *p;
  }
  if (n > 1 && out[n - 1] == '/') n--;
  out[n] = '\0';
}

/* NULL when memory is short. A malformed or zero escape stays as it is: http_check refused it
 * before. */
static char *percent_decode(const char *text) {
  char *out = malloc(strlen(text) + 1);
  if (out == NULL) return NULL;
  size_t n = 0;
  for (const char *p = text; *p != '\0'; p++) {
    int high = *p == '%' ? hex_value(p[1]) : -1;
    int low = high >= 0 ? hex_value(p[2]) : -1;
    if (low >= 0 && high * 16 + low != 0) {
      out[n++] = (char)(high * 16 + low);
      p += 2;
    } else {
      out[n++] = *p;
    }
  }
  out[n] = '\0';
  return out;
}

typedef struct unserved {
  const char *path, *what, *instead;
} unserved_t;

static const unserved_t unserved[] = {
#define UNSERVED(path, what, instead) {path, what, instead},
#include "server/http/unserved.def"
#undef UNSERVED
};

int route_refuse(const char *path, inferd_error_t *error) {
  char *clean = malloc(strlen(path) + 2);
  if (clean == NULL) return 0;
  normalise(path, clean);
  const char *bare = strncmp(clean, "/v1/", 4) == 0 ? clean + 3 : clean;
  int code = 0;
  for (size_t i = 0; i < ARRAY_LEN(unserved) && code == 0; i++) {
    const unserved_t *row = &unserved[i];
    size_t length = strlen(row->path);
    if (strncmp(bare, row->path, length) != 0) continue; /* a shorter path has no byte there */
    if (row->path[length - 1] != '/' && bare[length] != '\0' && bare[length] != '/') continue;
    char quoted[96];
    code =
        error_set(error, ERR_UNSERVED_ROUTE, NULL, "inferd does not serve %s (%s)%s%s.", row->what,
                  error_quote(quoted, sizeof quoted, clean, strlen(clean)),
                  row->instead != NULL ? "; use " : "", row->instead != NULL ? row->instead : "");
  }
  free(clean);
  return code;
}

static bool path_matches(const route_t *route, const char *path) {
  if ((route->flags & ROUTE_PREFIX) == 0) return strcmp(route->path, path) == 0;
  size_t length = strlen(route->path);
  return strncmp(route->path, path, length) == 0 && path[length] != '\0';
}

/* The methods that a path has, as the header Allow lists them; NULL = none. */
static const char *allow_list(bool get, bool post, bool delete) {
  static const char *const lists[2][2][2] = {
      {{NULL, "DELETE, OPTIONS"}, {"POST, OPTIONS", "POST, DELETE, OPTIONS"}},
      {{"GET, HEAD, OPTIONS", "GET, HEAD, DELETE, OPTIONS"},
       {"GET, HEAD, POST, OPTIONS", "GET, HEAD, POST, DELETE, OPTIONS"}}};
  return lists[get][post][delete];
}

const route_t *route_find(const char *method, const char *path, unsigned absent, const char **allow,
                          char **tail) {
  const route_t *found = NULL;
  bool get = false, post = false, delete = false;
  *allow = NULL;
  *tail = NULL;
  char *clean = malloc(strlen(path) + 2);
  if (clean == NULL) return NULL;
  normalise(path, clean);
  const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
  for (int i = 0; i < ROUTE_COUNT && found == NULL; i++) {
    if ((routes[i].flags & absent) != 0 || !path_matches(&routes[i], clean)) continue;
    get |= strcmp(routes[i].method, "GET") == 0;
    post |= strcmp(routes[i].method, "POST") == 0;
    delete |= strcmp(routes[i].method, "DELETE") == 0;
    if (strcmp(routes[i].method, wanted) == 0) found = &routes[i];
  }
  if (found == NULL) {
    *allow = allow_list(get, post, delete);
  } else if ((found->flags & ROUTE_PREFIX) != 0) {
    *tail = percent_decode(clean + strlen(found->path));
    if (*tail == NULL) found = NULL;
  }
  free(clean);
  return found;
}

wire_t route_wire(const route_t *route, const char *path) {
  static const char ollama[] = "/api/";
  if (route != NULL && (route->flags & ROUTE_MESSAGES) != 0) return WIRE_ANTHROPIC;
  if (route != NULL) {
    return strncmp(route->label, ollama, sizeof ollama - 1) == 0 ? WIRE_OLLAMA : WIRE_OPENAI;
  }
  char *clean = malloc(strlen(path) + 2);
  wire_t found = WIRE_OPENAI;
  if (clean == NULL) return found;
  normalise(path, clean);
  if (strncmp(clean, ollama, sizeof ollama - 1) == 0) found = WIRE_OLLAMA;
  for (int i = 0; i < ROUTE_COUNT && found == WIRE_OPENAI; i++) {
    bool messages = (routes[i].flags & ROUTE_MESSAGES) != 0;
    if (messages && path_matches(&routes[i], clean)) found = WIRE_ANTHROPIC;
  }
  free(clean);
  return found;
}
