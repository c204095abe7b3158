/* schema_base.h: what a `$ref` names: base URIs, anchors and JSON pointers of one document.
 *
 * Part of a compilation (compile.h), on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_BASE_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_SCHEMA_BASE_H

#include "engine/grammar/language/schema.h"

/* Lists the schemas of the document that have an `$id` or an anchor. Refuses two of one name. */
void schema_find_bases(schema_t *schema);
/* Returns true if the schema is the root or is listed with its own `$id`. */
bool schema_is_base(const schema_t *schema, const json_t *json);
/* Refuses schemas below the root with an `$id`. `what` cannot be made of them. */
void schema_refuse_bases(const schema_t *schema, const char *what);
/* Returns the part that the `$ref` of these keywords names. Refuses other documents. */
const schema_part_t *schema_resolve(const schema_t *schema, const keywords_t *keywords);

/* uri.c: resolves a reference without fragment against a base without fragment, by RFC 3986,
 * section 5.2; an empty base leaves a relative reference as it is, but for its dot segments. */
typedef struct uri_text {
  const char *text; /* not NUL-terminated */
  size_t length;
} uri_text_t;
uri_text_t uri_resolve(compile_t *compile, uri_text_t base, uri_text_t reference);

#endif
