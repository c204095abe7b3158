/* split_regex_pcre2.c: Oniguruma patterns -> PCRE2.
 *
 * Compiling: the loading thread. Matching: the tokenizing threads, each match with data of its own.
 * \s, \w, \d and script names are rewritten to what Oniguruma means by them; whatever else the two
 * read differently, and whatever looks behind the place where a match begins, is refused.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/text/split/split_regex.h"

#include "engine/text/bytes.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_STEPS_MAX = 5000000, MATCH_DEPTH_MAX = 100000, MATCH_HEAP_KB_MAX = 64 << 10 };

typedef struct regex {
  pcre2_code *code;
  pcre2_match_context *limits;
} regex_t;

typedef struct rewrite {
  const char *at, *end;
  bytes_t out;
  bool in_class;
  char *reason;
} rewrite_t;

static const char spaces[] = "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                             "\\x{202f}\\x{205f}\\x{3000}";
static const char words[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

static bool refuse(rewrite_t *w, const char *what) {
  snprintf(w->reason, REGEX_REASON_MAX, "%s is not supported", what);
  return false;
}

static bool put(rewrite_t *w, const char *text, size_t length) {
  return bytes_append(&w->out, text, length) || refuse(w, "so much memory");
}

static bool put_class(rewrite_t *w, const char *members, bool negated) {
  if (w->in_class)
    return negated ? refuse(w, "\\S or \\W inside a class") : put(w, members, strlen(members));
  return put(w, negated ? "[^" : "[", negated ? 2 : 1) && put(w, members, strlen(members)) &&
         put(w, "]", 1);
}

/* \p{Name} or \P{Name}; w->at stands on the p. */
static bool put_property(rewrite_t *w) {
  const char *close = memchr(w->at, '}', (size_t)(w->end - w->at));
  if (w->end - w->at < 3 || w->at[1] != '{' || close == NULL) return refuse(w, "\\p without {}");
  const char *name = w->at + 2;
  size_t length = (size_t)(close - name);
  for (size_t i = 0; i < length; i++)
    if (!((name[i] | 32) >= 'a' && (name[i] | 32) <= 'z')) return refuse(w, "this \\p{...}");
  bool category = length <= 2; /* L, Lu ...; else a script, which PCRE2 reads as an extension */
  bool ok = put(w, w->at[0] == 'p' ? "\\p{" : "\\P{", 3) && (category || put(w, "sc:", 3)) &&
            put(w, name, length) && put(w, "}", 1);
  w->at = close + 1;
  return ok;
}

/* w->at stands behind a backslash. */
static bool put_escape(rewrite_t *w) {
  static const char plain[] = "nrtfv\\.*+?()[]{}|^$/-'\"#&~!@%:;=<>,` ";
  if (w->at == w->end) return refuse(w, "a backslash at the end");
  char c = *w->at;
  if (c == 'p' || c == 'P') return put_property(w);
  w->at++;
  if (c == 's' || c == 'S') return put_class(w, spaces, c == 'S');
  if (c == 'w' || c == 'W') return put_class(w, words, c == 'W');
  if (c == 'd') return put(w, "\\p{Nd}", 6);
  if (c == 'D') return put(w, "\\P{Nd}", 6);
  char name[32];
  snprintf(name, sizeof name, "\\%c", (unsigned char)c < 0x80 ? c : '?');
  if (c == '\0' || strchr(plain, c) == NULL) return refuse(w, name);
  char escaped[2] = {'\\', c};
  return put(w, escaped, 2);
}

/* w->at stands on the bracket. */
static bool put_opening(rewrite_t *w) {
  static const char *const groups[] = {"(?:", "(?=", "(?!", "(?i:", "(?>"};
  if (w->end - w->at < 2 || w->at[1] != '?') return w->at++, put(w, "(", 1);
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
    size_t length = strlen(groups[i]);
    if ((size_t)(w->end - w->at) < length || memcmp(w->at, groups[i], length) != 0) continue;
    w->at += length;
    return put(w, groups[i], length);
  }
  return refuse(w, "this kind of group");
}

static bool put_in_class(rewrite_t *w, char c) {
  if (c == '[') return refuse(w, "a class inside a class");
  if (c == '&' && w->end - w->at > 1 && w->at[1] == '&') return refuse(w, "&& in a class");
  if (c == ']') w->in_class = false;
  w->at++;
  return put(w, &c, 1);
}

static bool put_next(rewrite_t *w) {
  char c = *w->at;
  if (c == '\\') return w->at++, put_escape(w);
  if (w->in_class) return put_in_class(w, c);
  if (c == '(') return put_opening(w);
  if (c == '^') return refuse(w, "^");
  if (c == '}' && w->end - w->at > 1 && w->at[1] == '+') return refuse(w, "a possessive {n,m}+");
  if (c == '[') {
    w->in_class = true;
    w->at++;
    if (!put(w, "[", 1)) return false;
    if (w->at < w->end && *w->at == '^') return w->at++, put(w, "^", 1);
    return w->at < w->end && *w->at == ']' ? refuse(w, "a class that begins with ]") : true;
  }
  w->at++;
  return put(w, &c, 1);
}

static size_t find(const scanner_t *s, const uint8_t *text, size_t from, size_t end,
                   size_t *match_end) {
  const regex_t *regex = s->regex;
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  if (data == NULL) return SCANNER_FAILED;
  int code = pcre2_match(regex->code, text + from, end - from, 0,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, regex->limits);
  const PCRE2_SIZE *range = pcre2_get_ovector_pointer(data);
  size_t start = code == PCRE2_ERROR_NOMATCH ? end : SCANNER_FAILED;
  if (code >= 0) {
    start = from + range[0];
    *match_end = from + range[1];
  }
  pcre2_match_data_free(data);
  return start;
}

static bool compile(regex_t *regex, const rewrite_t *w) {
  int code;
  uint32_t empty = 1;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return false;
  (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  (void)pcre2_set_parens_nest_limit(context, 50);
  regex->code = pcre2_compile(w->out.data, w->out.length,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &code, &offset, context);
  pcre2_compile_context_free(context);
  if (regex->code == NULL) {
    snprintf(w->reason, REGEX_REASON_MAX, "not well formed (PCRE2 error %d)", code);
    return false;
  }
  (void)pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0) {
    snprintf(w->reason, REGEX_REASON_MAX, "a pattern that matches nothing at all is not supported");
    return false;
  }
  regex->limits = pcre2_match_context_create(NULL);
  if (regex->limits == NULL) return false;
  (void)pcre2_set_match_limit(regex->limits, MATCH_STEPS_MAX);
  (void)pcre2_set_depth_limit(regex->limits, MATCH_DEPTH_MAX);
  (void)pcre2_set_heap_limit(regex->limits, MATCH_HEAP_KB_MAX);
  return true;
}

void regex_free(void *pointer) {
  regex_t *regex = pointer;
  if (regex == NULL) return;
  pcre2_code_free(regex->code);
  pcre2_match_context_free(regex->limits);
  free(regex);
}

bool regex_compile(const char *pattern, size_t length, scanner_t *out,
                   char reason[REGEX_REASON_MAX]) {
  rewrite_t w = {.at = pattern, .end = pattern + length, .reason = reason};
  bool ok = true;
  snprintf(reason, REGEX_REASON_MAX, "not enough memory");
  if (length == 0 || length > SCANNER_PATTERN_BYTES_MAX) {
    snprintf(reason, REGEX_REASON_MAX, "1 to %d bytes are supported", SCANNER_PATTERN_BYTES_MAX);
    return false;
  }
  while (ok && w.at < w.end) ok = put_next(&w);
  regex_t *regex = ok ? calloc(1, sizeof *regex) : NULL;
  ok = regex != NULL && compile(regex, &w);
  bytes_free(&w.out);
  if (!ok) {
    regex_free(regex);
    return false;
  }
  *out = (scanner_t){.find = find, .regex = regex};
  return true;
}
