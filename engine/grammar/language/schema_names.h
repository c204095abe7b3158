/* schema_names.h: names in a schema that may be unknown: keywords, and the values of `format`.
 *
 * Part of a compilation (compile.h), on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_NAMES_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_NAMES_H

#include "engine/grammar/language/schema.h"

/* schema_names.c: returns if a name that is not enforced restricts nothing; lists it for the header
 * if it is unknown. Otherwise refuses it: a keyword that is not built, a misspelt one. */
void schema_pass_name(const schema_t *schema, const schema_part_t *part, const json_t *json);
/* Lists a keyword that restricts nothing because it stands beside `$ref`. */
void schema_pass_beside_ref(const schema_t *schema, const schema_part_t *part, const json_t *json);
/* Lists a format that no draft defines. */
void schema_pass_format(const schema_t *schema, const json_t *format);

/* What a name in a schema is, where the dialect has no say. */
typedef enum name_kind { NAME_ENFORCED, NAME_NOT_BUILT, NAME_ANNOTATION, NAME_UNKNOWN } name_kind_t;
name_kind_t schema_name_kind(const json_t *json);

/* format.c: json: over the inside of JSON strings, else over the text itself. NULL = a name that is
 * no format of the drafts, which restricts nothing. */
const dfa_t *format_dfa(schema_t *schema, const json_t *format, bool json, const char *pointer);
bool format_is_known(const json_t *format); /* a name that a draft defines */

#endif
