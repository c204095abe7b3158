/* name_pattern_pcre2.c: expressions by PCRE2, within bounds. Any thread, no state. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/model/adapter/name_pattern.h"

#include <pcre2.h>
#include <string.h>

enum { STEPS_MAX = 100000, DEPTH_MAX = 10000, HEAP_KB_MAX = 4096, NESTED_MAX = 50 };

static pcre2_code *compile(const char *pattern) {
  int code;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (context == NULL) return NULL;
  (void)pcre2_set_parens_nest_limit(context, NESTED_MAX);
  pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern),
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C,
                                   &code, &offset, context);
  pcre2_compile_context_free(context);
  return made;
}

name_match_t name_regex_match(const char *pattern, const char *name) {
  pcre2_code *regex = compile(pattern);
  if (regex == NULL) return NAME_UNREADABLE;
  pcre2_match_context *limits = pcre2_match_context_create(NULL);
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  int code = PCRE2_ERROR_NOMEMORY;
  if (limits != NULL && data != NULL) {
    (void)pcre2_set_match_limit(limits, STEPS_MAX);
    (void)pcre2_set_depth_limit(limits, DEPTH_MAX);
    (void)pcre2_set_heap_limit(limits, HEAP_KB_MAX);
    code = pcre2_match(regex, (PCRE2_SPTR)name, strlen(name), 0, 0, data, limits);
  }
  pcre2_match_data_free(data);
  pcre2_match_context_free(limits);
  pcre2_code_free(regex);
  if (code == PCRE2_ERROR_NOMATCH) return NAME_DIFFERS;
  return code >= 0 ? NAME_MATCHES : NAME_UNREADABLE;
}
