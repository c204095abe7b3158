/* format.c: the automata of the values of `format`: those that the drafts define.
 *
 * Part of a compilation, on its thread. Each is a pattern over the text between the quotes, exact
 * in its ranges (month 13, 24:00, the 29th of February) and never wider than the standard it names;
 * rare forms that programs read differently are not accepted.
 */
#include "engine/base/util.h"
#include "engine/grammar/automaton/regex.h"
#include "engine/grammar/language/schema_names.h"

#include <string.h>

/* RFC 3339; year 0000 is not written. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
  "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]" \
  "|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME CLOCK ":[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-]" CLOCK ")"

/* RFC 3339 appendix A. */
#define D "[0-9]{1,6}"
#define DURATION_TIME "T(?:" D "H(?:" D "M(?:" D "S)?)?|" D "M(?:" D "S)?|" D "S)"
#define DURATION_DATE "(?:" D "Y(?:" D "M(?:" D "D)?)?|" D "M(?:" D "D)?|" D "D)"
#define DURATION "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|" D "W)"

/* RFC 1123, no two hyphens in a row (they announce other encodings); at most 5 labels of 49, so
 * never more than the 253 characters of a name. */
#define LABEL "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,24}"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,4}"
/* RFC 5321 dot-string, within 64 characters, and a domain that ends in letters. */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define EMAIL ATOM "(?:\\." ATOM "){0,2}@(?:" LABEL "\\.){1,3}[A-Za-z]{2,12}"

#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H "[0-9A-Fa-f]{1,4}"
/* RFC 4291; the last two groups may be an IPv4 address. */
#define IPV6                                                                                       \
  "(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H "){1,2}|"      \
  "(?:" H ":){1,4}(?::" H "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H            \
  "){1,5}|" H ":(?::" H "){1,6}|:(?::" H "){1,7}|::|(?:(?:" H ":){6}|::(?:" H ":){0,5}|" H         \
  "::(?:" H ":){0,4}|(?:" H ":){2}:(?:" H ":){0,3}|(?:" H ":){3}:(?:" H ":){0,2}|(?:" H            \
  ":){4}:(?:" H ":)?|(?:" H ":){5}:)" IPV4
#define UUID "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

/* RFC 3986. The host is a name of letters and digits, an IPv4 address or an IPv6 address in
 * brackets; it may be empty in front of a path (`file:///x`). */
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]{0,19}"
#define PCT "%[0-9A-Fa-f]{2}"
#define PLAIN "A-Za-z0-9._~!$&'()*+,;="
#define PORT "(?::[0-9]{1,5})?"
#define HOST "(?:[A-Za-z0-9](?:[._-]?[A-Za-z0-9])*|\\[(?:" IPV6 ")\\])"
#define USER "(?:(?:[" PLAIN ":-]|" PCT ")*@)?"
/* `more`: characters beyond ASCII. */
#define PCHAR(more) "(?:[" PLAIN more ":@-]|" PCT ")"
#define PATH(more) "(?:/" PCHAR(more) "*)*"
#define TAIL(more) "(?:\\?(?:" PCHAR(more) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define NET(host, more) "//(?:" USER host PORT PATH(more) "|/" PCHAR(more) "*" PATH(more) ")"
#define ROOTED(more) "/(?:" PCHAR(more) "+" PATH(more) ")?"
#define ABSOLUTE(host, more)                                                                       \
  SCHEME ":(?:" NET(host, more) "|" ROOTED(more) "|" PCHAR(more) "+" PATH(more) ")?" TAIL(more)
/* The first segment of a relative path has no colon. */
#define REFERENCE(host, more)                                                                      \
  "(?:(?:" SCHEME ":)?(?:" NET(host, more) "|" ROOTED(more) ")?|" SCHEME ":" PCHAR(more) "+" PATH( \
      more) "|(?:[" PLAIN more "@-]|" PCT ")+" PATH(more) ")" TAIL(more)

/* RFC 3987: ucschar of its first two planes, without marks of direction (section 4.1). */
#define UCS                                                                                        \
  "\\u00a0-\\u200d\\u2010-\\u2029\\u202f-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef"                    \
  "\xF0\x90\x80\x80-\xF0\x9F\xBF\xBD"
#define IHOST "(?:[A-Za-z0-9" UCS "][A-Za-z0-9." UCS "-]*|\\[(?:" IPV6 ")\\])"

/* RFC 5890: labels of ASCII, or with small letters of scripts that need no rule of context; the
 * longest is within 60 bytes as an A-label, so four are within the 253 of a name. */
#define WIDE                                                                                       \
  "\\u00e0-\\u00f6\\u00f8-\\u00ff\\u03ac-\\u03ce\\u0430-\\u045f\\u3041-\\u3096\\u30a1-\\u30fa"     \
  "\\u4e00-\\u9fff\\uac00-\\ud7a3"
#define ILABEL "(?:" LABEL "|[a-z0-9" WIDE "](?:-?[a-z0-9" WIDE "]){0,9})"
#define IDN_HOSTNAME ILABEL "(?:\\." ILABEL "){0,3}"
#define IATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" WIDE "-]{1,10}"
#define IDN_EMAIL IATOM "(?:\\." IATOM ")?@(?:" ILABEL "\\.){1,3}(?:[A-Za-z]{2,12}|[" WIDE "]{2,9})"

/* RFC 6570, without the operators that it reserves. */
#define VARIABLE                                                                                   \
  "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*(?::[1-9][0-9]{0,3}|\\*)?"
#define URI_TEMPLATE                                                                               \
  "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS "]|" PCT "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE ")*\\})*"

/* RFC 6901. */
#define JSON_POINTER "(?:/(?:[^~/]|~[01])*)*"

/* ECMA-262 with groups in groups up to four deep; repetition by numbers that are in order by their
 * form, classes with the common ranges only, no look-around and no back reference. */
#define TIMES "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?|[01],[1-9][0-9]{0,2})\\})[?]?)?"
#define ESCAPE "\\\\[dDwWsStnrfv^$.*+?()\\[\\]{}|\\\\/]"
#define IN_CLASS "(?:[^\\\\\\[\\]^-]|a-z|A-Z|0-9|a-f|A-F|" ESCAPE ")"
#define ONE "(?:[^\\\\^$.*+?()\\[\\]{}|/]|\\.|" ESCAPE "|\\[\\^?" IN_CLASS "+\\])" TIMES "|[\\^$|]"
#define GROUP(inside) "\\((?:\\?:)?(?:" inside ")*\\)" TIMES
#define REGEX "(?:" ONE "|" GROUP(ONE "|" GROUP(ONE "|" GROUP(ONE "|" GROUP(ONE)))) ")*"

static const struct {
  const char *name, *pattern;
} formats[] = {
    {"date-time", DATE "T" TIME},
    {"date", DATE},
    {"time", TIME},
    {"duration", DURATION},
    {"email", EMAIL},
    {"idn-email", IDN_EMAIL},
    {"hostname", HOSTNAME},
    {"idn-hostname", IDN_HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", UUID},
    {"uri", ABSOLUTE(HOST, "")},
    {"uri-reference", REFERENCE(HOST, "")},
    {"iri", ABSOLUTE(IHOST, UCS)},
    {"iri-reference", REFERENCE(IHOST, UCS)},
    {"uri-template", URI_TEMPLATE},
    {"json-pointer", JSON_POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]{0,8})(?:#|" JSON_POINTER ")"},
    {"regex", REGEX},
};

bool format_is_known(const json_t *format) {
  for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
    if (json_equals(format, formats[i].name)) return true;
  }
  return false;
}

/* Compiles a format once for a schema. `length` FORMAT_LENGTH tells it from a pattern of the
 * client. */
static const dfa_t *compile_format(schema_t *schema, const char *pattern, bool json) {
  enum { FORMAT_LENGTH = INT32_MAX };
  const pattern_dfa_t *known = schema->patterns.items;
  for (uint32_t i = 0; i < schema->patterns.count; i++) {
    if (known[i].length == FORMAT_LENGTH && known[i].text == pattern && known[i].json == json)
      return known[i].dfa;
  }
  regex_options_t options = {.json = json, .own = true, .what = "built-in format"};
  const dfa_t *dfa = regex_dfa(schema->compile, pattern, strlen(pattern), &options);
  *(pattern_dfa_t *)list_add(schema->compile, &schema->patterns, sizeof(pattern_dfa_t)) =
      (pattern_dfa_t){pattern, FORMAT_LENGTH, json, dfa};
  return dfa;
}

const dfa_t *format_dfa(schema_t *schema, const json_t *format, bool json, const char *pointer) {
  char quoted[80];
  for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
    if (json_equals(format, formats[i].name))
      return compile_format(schema, formats[i].pattern, json);
  }
  if (!schema->known_only) return NULL;
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer,
              "the format '%s' is unknown; unknown names are refused in a strict schema and with "
              "--strict-params.",
              error_quote(quoted, sizeof quoted, format->text, format->length));
}
