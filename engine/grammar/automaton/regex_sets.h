/* regex_sets.h: the sets of characters that escapes of patterns name.
 *
 * Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_SETS_H
#define INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_SETS_H

#include "engine/grammar/automaton/regex.h"

/* One name of a general category or script, in lower case without separators, sorted by name. A
 * category of one letter is several rows. */
typedef struct property_name {
  const char *name;
  uint16_t is_script;
  uint16_t first, count; /* in property_ranges */
} property_name_t;

extern const property_name_t property_names[];
extern const uint32_t property_names_count;
extern const char_range_t property_ranges[];

/* Returns the set of \d, \w, \s (`which`), or of dot ('.'), in a dialect. */
charset_t sets_class(compile_t *compile, char which, regex_dialect_t dialect);
/* Returns the set of \p{name}: a general category, or a script with or without Script= before it.
 * count 0: there is none of this name. */
charset_t sets_property(compile_t *compile, const char *name, size_t length);
/* Adds the other cases of the members of a normal set. Outside of Python's dialect a character of
 * ASCII has no other case outside of ASCII, as in ECMA-262. */
charset_t sets_any_case(compile_t *compile, charset_t set, regex_dialect_t dialect);

#endif
