/* page.h: the web page at `/`, as bytes of the program.
 *
 * page.html, page.css and page.js are its sources; scripts/embed_page.c makes one file of them
 * while the daemon is built, and defines what stands here. Constant; any thread. */
#ifndef INFERD_SERVER_PAGE_PAGE_H
#define INFERD_SERVER_PAGE_PAGE_H

#include <stddef.h>

enum { PAGE_BYTES_MAX = 64 * 1024 };

extern const unsigned char page_bytes[]; /* HTML with its style and its script inside */
extern const size_t page_length;
extern const char page_etag[];   /* of these bytes, quoted */
extern const char page_policy[]; /* Content-Security-Policy: this style, this script, this server */

#endif
