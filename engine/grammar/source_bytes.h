/* source_bytes.h: constraints as bytes, for journals: a request is run again with the same one.
 *
 * A grammar keeps the bytes of its source only if its vocabulary says so: they take memory.
 */
#ifndef INFERD_ENGINE_GRAMMAR_SOURCE_BYTES_H
#define INFERD_ENGINE_GRAMMAR_SOURCE_BYTES_H

#include "engine/base/arena.h"
#include "engine/grammar/grammar.h"

/* At start, before anything is compiled: grammars keep their sources. */
void grammar_vocabulary_keep_sources(grammar_vocabulary_t *vocabulary);
/* compile.c: keeps the source of a grammar that was compiled; nothing without memory. */
void grammar_keep_source(grammar_t *grammar, const grammar_source_t *source);
/* The bytes of its source; NULL = it kept none, as a part of a schema (`place`). */
const void *grammar_source_of(const grammar_t *grammar, size_t *length);
uint64_t grammar_serial(const grammar_t *grammar); /* of this process: no other one has it */

/* Compiles such bytes. `arena` must live as long as the grammar.
 * ERR_CONFIGURATION for damaged bytes, or an error of grammar_compile. */
int grammar_of_bytes(const void *bytes, size_t length, const grammar_vocabulary_t *vocabulary,
                     arena_t *arena, grammar_t **out, inferd_error_t *error);

#endif
