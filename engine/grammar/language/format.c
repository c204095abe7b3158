/* format.c: the automata of the values of `format` that are enforced.
 *
 * Part of a compilation, on its thread. Each is a pattern over the text between the quotes, exact
 * in its ranges (month 13, 24:00, the 29th of February) and never wider than the standard it names;
 * rare forms that programs read differently are not accepted. Any other format is refused.
 */
#include "engine/base/util.h"
#include "engine/grammar/automaton/regex.h"
#include "engine/grammar/language/schema.h"

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
/* RFC 4291 without the dotted tail. */
#define IPV6                                                                                       \
  "(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H "){1,2}|"      \
  "(?:" H ":){1,4}(?::" H "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H            \
  "){1,5}|" H ":(?::" H "){1,6}|:(?::" H "){1,7}|::"
#define UUID "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

/* RFC 3986 with an authority that is a name of RFC 1123 or an IPv4 address. */
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI                                                                                        \
  "[A-Za-z][A-Za-z0-9+.-]{0,19}://" HOSTNAME "(?::[0-9]{1,5})?(?:/" PCHAR "*)*(?:\\?(?:" PCHAR     \
  "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"

static const struct {
  const char *name, *pattern;
} formats[] = {
    {"date-time", DATE "T" TIME},
    {"date", DATE},
    {"time", TIME},
    {"duration", DURATION},
    {"email", EMAIL},
    {"hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", UUID},
    {"uri", URI},
};

dfa_t *format_dfa(schema_t *schema, const json_t *format, const char *pointer) {
  char quoted[80];
  for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
    if (!json_equals(format, formats[i].name)) continue;
    regex_options_t options = {.json = true, .search = false, .what = "built-in format"};
    const char *pattern = formats[i].pattern;
    return regex_dfa(schema->compile, pattern, strlen(pattern), &options);
  }
  schema_fail(schema, ERR_UNSUPPORTED_PARAMETER, pointer,
              "the format '%s' is not supported; date-time, date, time, duration, email, hostname, "
              "ipv4, ipv6, uri and uuid are.",
              error_quote(quoted, sizeof quoted, format->text, format->length));
}
