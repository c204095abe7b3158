/* doctor.h: what a JSON schema would enforce, place by place, and what of it is refused.
 *
 * Any thread that may compile (grammar.h); keeps no state. It compiles what grammar_compile would,
 * so its verdict and its words are those of a request.
 */
#ifndef INFERD_ENGINE_GRAMMAR_DOCTOR_H
#define INFERD_ENGINE_GRAMMAR_DOCTOR_H

#include "engine/base/buffer.h"
#include "engine/grammar/grammar.h"

/* Appends the report, a JSON object (docs/constraints.md), which is the same for an accepted and a
 * refused schema. `source` is a GRAMMAR_JSON_SCHEMA. Of a refused one each place is compiled alone,
 * until the account has no work left. vocabulary NULL = all bytes are tokens. Returns 0, or an
 * error of grammar_compile that is not about the schema. */
int grammar_examine(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                    grammar_account_t *account, buffer_t *out, inferd_error_t *error);

#endif
