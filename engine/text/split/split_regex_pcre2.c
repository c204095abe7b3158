/* split_regex_pcre2.c: Oniguruma patterns -> PCRE2.
 *
 * Compiling: the loading thread. Matching: the tokenizing threads, each match with data of its own.
 * \s, \w, \d and script names are rewritten to what Oniguruma means by them; whatever else the two
 * read differently, and whatever looks behind the place where a match begins, is refused.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/text/split/split_regex.h"

#include "engine/base/buffer.h"
#include "engine/base/util.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_STEPS_MAX = 5000000, MATCH_DEPTH_MAX = 100000, MATCH_HEAP_KB_MAX = 64 << 10 };

typedef struct pcre2_regex {
  pcre2_code *code;
  pcre2_match_context *limits;
} pcre2_regex_t;

typedef struct rewrite {
  const char *at, *end;
  buffer_t out;
  bool in_class;
  char *reason;
} rewrite_t;

static const char spaces[] = "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                             "\\x{202f}\\x{205f}\\x{3000}";
static const char words[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

static bool refuse(rewrite_t *rewrite, const char *what) {
  snprintf(rewrite->reason, REGEX_REASON_MAX, "%s is not supported", what);
  return false;
}

static bool put(rewrite_t *rewrite, const char *text, size_t length) {
  return buffer_append(&rewrite->out, text, length) || refuse(rewrite, "so much memory");
}

static bool put_class(rewrite_t *rewrite, const char *members, bool negated) {
  if (rewrite->in_class)
    return negated ? refuse(rewrite, "\\S or \\W inside a class")
                   : put(rewrite, members, strlen(members));
  return put(rewrite, negated ? "[^" : "[", negated ? 2 : 1) &&
         put(rewrite, members, strlen(members)) && put(rewrite, "]", 1);
}

/* \p{Name} or \P{Name}; rewrite->at stands on the p. */
static bool put_property(rewrite_t *rewrite) {
  const char *close = memchr(rewrite->at, '}', (size_t)(rewrite->end - rewrite->at));
  if (rewrite->end - rewrite->at < 3 || rewrite->at[1] != '{' || close == NULL)
    return refuse(rewrite, "\\p without {}");
  const char *name = rewrite->at + 2;
  size_t length = (size_t)(close - name);
  for (size_t i = 0; i < length; i++)
    if (!((name[i] | 32) >= 'a' && (name[i] | 32) <= 'z')) return refuse(rewrite, "this \\p{...}");
  bool category = length <= 2; /* L, Lu ...; else a script, which PCRE2 reads as an extension */
  bool ok = put(rewrite, rewrite->at[0] == 'p' ? "\\p{" : "\\P{", 3) &&
            (category || put(rewrite, "sc:", 3)) && put(rewrite, name, length) &&
            put(rewrite, "}", 1);
  rewrite->at = close + 1;
  return ok;
}

/* w->at stands behind a backslash. */
static bool put_escape(rewrite_t *rewrite) {
  static const char plain[] = "nrtfv\\.*+?()[]{}|^$/-'\"#&~!@%:;=<>,` ";
  if (rewrite->at == rewrite->end) return refuse(rewrite, "a backslash at the end");
  char c = *rewrite->at;
  if (c == 'p' || c == 'P') return put_property(rewrite);
  rewrite->at++;
  if (c == 's' || c == 'S') return put_class(rewrite, spaces, c == 'S');
  if (c == 'w' || c == 'W') return put_class(rewrite, words, c == 'W');
  if (c == 'd') return put(rewrite, "\\p{Nd}", 6);
  if (c == 'D') return put(rewrite, "\\P{Nd}", 6);
  char name[32];
  snprintf(name, sizeof name, "\\%c", (unsigned char)c < 0x80 ? c : '?');
  if (c == '\0' || strchr(plain, c) == NULL) return refuse(rewrite, name);
  char escaped[2] = {'\\', c};
  return put(rewrite, escaped, 2);
}

/* w->at stands on the bracket. */
static bool put_opening(rewrite_t *rewrite) {
  static const char *const groups[] = {"(?:", "(?=", "(?!", "(?i:", "(?>"};
  if (rewrite->end - rewrite->at < 2 || rewrite->at[1] != '?')
    return rewrite->at++, put(rewrite, "(", 1);
  for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
    size_t length = strlen(groups[i]);
    if ((size_t)(rewrite->end - rewrite->at) < length ||
        memcmp(rewrite->at, groups[i], length) != 0)
      continue;
    rewrite->at += length;
    return put(rewrite, groups[i], length);
  }
  return refuse(rewrite, "this kind of group");
}

static bool put_in_class(rewrite_t *rewrite, char digit) {
  if (digit == '[') return refuse(rewrite, "a class inside a class");
  if (digit == '&' && rewrite->end - rewrite->at > 1 && rewrite->at[1] == '&')
    return refuse(rewrite, "&& in a class");
  if (digit == ']') rewrite->in_class = false;
  rewrite->at++;
  return put(rewrite, &digit, 1);
}

static bool put_next(rewrite_t *rewrite) {
  char c = *rewrite->at;
  if (c == '\\') return rewrite->at++, put_escape(rewrite);
  if (rewrite->in_class) return put_in_class(rewrite, c);
  if (c == '(') return put_opening(rewrite);
  if (c == '^') return refuse(rewrite, "^");
  if (c == '}' && rewrite->end - rewrite->at > 1 && rewrite->at[1] == '+')
    return refuse(rewrite, "a possessive {n,m}+");
  if (c == '[') {
    rewrite->in_class = true;
    rewrite->at++;
    if (!put(rewrite, "[", 1)) return false;
    if (rewrite->at < rewrite->end && *rewrite->at == '^')
      return rewrite->at++, put(rewrite, "^", 1);
    return rewrite->at < rewrite->end && *rewrite->at == ']'
               ? refuse(rewrite, "a class that begins with ]")
               : true;
  }
  rewrite->at++;
  return put(rewrite, &c, 1);
}

static size_t find(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                   size_t *match_end) {
  const pcre2_regex_t *regex = scanner->regex;
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

static bool compile(pcre2_regex_t *regex, const rewrite_t *rewrite) {
  int code;
  uint32_t empty = 1;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return false;
  (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  (void)pcre2_set_parens_nest_limit(context, 50);
  regex->code = pcre2_compile(rewrite->out.bytes, rewrite->out.length,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &code, &offset, context);
  pcre2_compile_context_free(context);
  if (regex->code == NULL) {
    snprintf(rewrite->reason, REGEX_REASON_MAX, "not well formed (PCRE2 error %d)", code);
    return false;
  }
  (void)pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0) {
    snprintf(rewrite->reason, REGEX_REASON_MAX,
             "a pattern that matches nothing at all is not supported");
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
  pcre2_regex_t *regex = pointer;
  if (regex == NULL) return;
  pcre2_code_free(regex->code);
  pcre2_match_context_free(regex->limits);
  free(regex);
}

bool regex_compile(const char *pattern, size_t length, scanner_t *out,
                   char reason[REGEX_REASON_MAX]) {
  rewrite_t rewrite = {.at = pattern, .end = pattern + length, .reason = reason};
  bool ok = true;
  snprintf(reason, REGEX_REASON_MAX, "not enough memory");
  if (length == 0 || length > SCANNER_PATTERN_BYTES_MAX) {
    snprintf(reason, REGEX_REASON_MAX, "1 to %d bytes are supported", SCANNER_PATTERN_BYTES_MAX);
    return false;
  }
  while (ok && rewrite.at < rewrite.end) ok = put_next(&rewrite);
  pcre2_regex_t *regex = ok ? calloc(1, sizeof *regex) : NULL;
  ok = regex != NULL && compile(regex, &rewrite);
  buffer_free(&rewrite.out);
  if (!ok) {
    regex_free(regex);
    return false;
  }
  *out = (scanner_t){.find = find, .regex = regex};
  return true;
}
