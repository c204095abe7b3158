/* structural_tag.h: structural tags, a form of constraint, become trees of sources.
 *
 * Loop thread or libuv's pool.
 */
#ifndef INFERD_SERVER_FIELDS_STRUCTURAL_TAG_H
#define INFERD_SERVER_FIELDS_STRUCTURAL_TAG_H

#include "server/fields/params_read.h"

/* Reads {"type": "structural_tag", ...}, the value of the field `param`. *out lies in the reader's
 * arena and points into the document of `value`; *shown has the added tokens that may mark tags.
 * Returns 0 or an error that names the place. */
int structural_tag_read(reader_t *reader, const char *param, const json_t *value,
                        const grammar_source_t **out, id_list_t *shown);

#endif
