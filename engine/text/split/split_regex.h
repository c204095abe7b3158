/* split_regex.h: pre-tokenizer patterns that no scanner knows, through PCRE2 where it is built in.
 *
 * The patterns of tokenizer.json are written for Oniguruma. What PCRE2 would read differently is
 * rewritten or refused by name, never run as it stands. Compiled by the loading thread, read-only
 * afterwards; a match is bounded in steps and memory, never in recursion.
 */
#ifndef INFERD_ENGINE_TEXT_SPLIT_SPLIT_REGEX_H
#define INFERD_ENGINE_TEXT_SPLIT_SPLIT_REGEX_H

#include "engine/text/split/scanner.h"

enum { REGEX_REASON_MAX = 128 };

/* Makes a scanner of a pattern. False with a reason: not supported, not well formed, or a build
 * without PCRE2. regex_free gives back what out->regex holds. */
bool regex_compile(const char *pattern, size_t length, scanner_t *out,
                   char reason[REGEX_REASON_MAX]);
void regex_free(void *regex); /* NULL is allowed */

#endif
