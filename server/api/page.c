/* page.c: `/`, the web page for chats, completions and a look at the server.
 *
 * Loop thread; keeps no state. The page is the same for everyone and needs no key; what it shows
 * comes from the other routes, with the key that its user types in.
 */
#include "server/page/page.h"
#include "server/server.h"

#include <string.h>

/* The header is a list of tags or `*`. An intermediary may have made our tag weak (W/"..."), which
 * the search for the quoted text covers. */
static bool client_has_it(const exchange_t *exchange) {
  const char *tags = exchange_request_header(exchange, "If-None-Match");
  return tags != NULL && (strcmp(tags, "*") == 0 || strstr(tags, page_etag) != NULL);
}

void api_page(exchange_t *exchange) {
  exchange_header(exchange, "ETag", page_etag);
  exchange_header(exchange, "Cache-Control", "no-cache"); /* kept, but asked for each time */
  exchange_header(exchange, "Content-Security-Policy", page_policy);
  exchange_header(exchange, "X-Content-Type-Options", "nosniff");
  exchange_header(exchange, "Referrer-Policy", "no-referrer");
  bool has = client_has_it(exchange);
  exchange_reply_fixed(exchange, has ? 304 : 200, has ? NULL : "text/html; charset=utf-8",
                       page_bytes, has ? 0 : page_length);
}
