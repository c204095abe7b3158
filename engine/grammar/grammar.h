/* grammar.h: constraints on generated text: compile one, then ask which tokens may come next.
 *
 * There are three objects with three lifetimes. A vocabulary is made once per tokenizer. A grammar
 * is compiled once per constraint. It is immutable and reference-counted: any number of requests
 * and threads may share it. A matcher follows one sequence through a grammar; its memory has a
 * fixed size and it never allocates. This module has no threads: compile on a pool thread (a
 * compilation may take a second); use a matcher on the engine thread or a worker, one thread at a
 * time.
 *
 * A constraint that cannot be enforced exactly is refused by name at compile time. The language of
 * the grammar may be narrower than the constraint (bounded white space, keys of a strict schema
 * in its order), but never wider.
 */
#ifndef INFERD_ENGINE_GRAMMAR_GRAMMAR_H
#define INFERD_ENGINE_GRAMMAR_GRAMMAR_H

#include "engine/base/json.h"
#include "engine/grammar/limits.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct grammar grammar_t;
typedef struct grammar_vocabulary grammar_vocabulary_t;
typedef struct grammar_matcher grammar_matcher_t;
typedef struct grammar_scratch grammar_scratch_t;

/* ---- vocabulary ---- */

/* Returns the bytes of token `id` as generated text. *length is 0 for ids that a grammar never
 * allows: special and other added tokens, unused ids. The bytes must stay alive as long as the
 * vocabulary. */
typedef const char *grammar_token_bytes_t(const void *context, int32_t id, size_t *length);

/* num_tokens: ids of the tokenizer; row_width: ids of a logits row, >= 1. Ids at or above either
 * one are never allowed. Load time, any thread. 0 or ERR_NO_MEMORY. */
int grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context, int32_t num_tokens,
                           int32_t row_width, grammar_vocabulary_t **out, inferd_error_t *error);
void grammar_vocabulary_free(grammar_vocabulary_t *vocabulary);    /* NULL is allowed */
int32_t grammar_row_words(const grammar_vocabulary_t *vocabulary); /* uint32_t in a mask row */

/* ---- constraint -> grammar ---- */

typedef enum grammar_kind {
  GRAMMAR_JSON_OBJECT,  /* any JSON object */
  GRAMMAR_JSON_SCHEMA,  /* `schema`, `strict` */
  GRAMMAR_PARAMETERS,   /* the rest of a call behind its name: an object of `schema` (NULL = any),
                           `strict`, each member in `tags`, see schema_parameters.c */
  GRAMMAR_LITERALS,     /* the same as `literals`, see schema_literals.c */
  GRAMMAR_REGEX,        /* `text`: ECMA-262 pattern, anchored at both ends */
  GRAMMAR_CHOICE,       /* `schema`: JSON array of strings, one of which is the output */
  GRAMMAR_EBNF,         /* `text`: user grammar; its first statement decides the notation */
  GRAMMAR_GBNF,         /* `text`: user grammar as llama.cpp writes them, see ebnf.c */
  GRAMMAR_LARK,         /* `text`: user grammar as Lark writes them, see lark.c */
  GRAMMAR_LITERAL,      /* `text` byte for byte; may be empty */
  GRAMMAR_TOKEN,        /* exactly the token `token`, which may be special */
  GRAMMAR_TEXT,         /* any text; with `text`: up to the end of its first occurrence; with
                           `children`, LITERALs: up to the first of them that occurs, which must be
                           one of `min` to `max` - 1 */
  GRAMMAR_TEXT_WITHOUT, /* any text in which `text`, or the LITERALs `children`, do not occur; may
                           be empty */
  GRAMMAR_SEQUENCE,     /* `children` one after the other */
  GRAMMAR_ALTERNATIVES, /* one of `children` */
  GRAMMAR_REPEAT        /* children[0], `min` to `max` times, children[1] (if any) in between */
} grammar_kind_t;

/* A constraint is a tree. A client sends leaves; inner nodes are for tool calls, such as
 * LITERAL("{\"name\": \"f\", \"arguments\": ") SCHEMA LITERAL("}"). Only the compiler reads it. */
typedef struct grammar_source {
  grammar_kind_t kind;
  const char *param;    /* request field that an error names, such as "response_format" */
  const json_t *schema; /* root of `$ref`; its document stays alive while compiling */
  bool strict;          /* the schema must be in OpenAI's strict subset */
  bool known_only;      /* names that no draft of JSON Schema has are refused, not ignored */
  bool object_only;     /* of JSON_SCHEMA: only the objects among the values of the schema */
  const json_t *place; /* of JSON_SCHEMA: the values of this part of `schema`; NULL = of the root */
  const char *pointer; /* ... its JSON pointer */
  const char *text;
  size_t length; /* bytes of text */
  int32_t token;
  uint32_t min, max;                     /* max UINT32_MAX = no bound */
  const struct grammar_source *children; /* PARAMETERS, LITERALS: TOKENs whose `text` is the mark in
                                            the words that the token stands for */
  int32_t num_children;
  const struct tag_words *tags;         /* PARAMETERS: constant; NULL = tag_words_function */
  const struct literal_words *literals; /* LITERALS only: constant */
} grammar_source_t;

/* What one request spends on compiling, over all its constraints and all tries. `work` and
 * `cpu_ns` begin at 0. */
typedef struct grammar_account {
  const atomic_bool *cancelled; /* checked regularly; NULL = never */
  uint64_t client;              /* that sent the request; only cache.h uses it */
  uint64_t work, cpu_ns;
  uint32_t states;             /* of all automata of the last constraint */
  char place[ERROR_PLACE_MAX]; /* JSON pointer of its refusal; "" = the root, or no place */
} grammar_account_t;

/* Compiles a constraint; the caller owns one reference of *out. The grammar uses only bytes that
 * some token of the vocabulary consists of, so that generation never gets stuck. limits NULL = the
 * default ones; account NULL = one of its own.
 *
 * Returns 0; ERR_INVALID_VALUE or ERR_UNSUPPORTED_PARAMETER, naming the construct and its place
 * (pointer into the schema, byte of a regex, line:column of a user grammar); error->param is
 * source->param. ERR_REQUEST_TIMEOUT when cancelled, ERR_BAD_REQUEST beyond a limit, ERR_OVERLOADED
 * beyond the CPU time (a later try may pass), ERR_CONSTRAINT_TOO_EXPENSIVE when more ways lead on
 * from one place than a matcher follows, ERR_NO_MEMORY. */
int grammar_compile(const grammar_source_t *source, const grammar_vocabulary_t *vocabulary,
                    const grammar_limits_t *limits, grammar_account_t *account, grammar_t **out,
                    inferd_error_t *error);

grammar_t *grammar_ref(grammar_t *grammar); /* any thread; returns its argument */
void grammar_unref(grammar_t *grammar);     /* any thread; NULL is allowed; the last one frees */
size_t grammar_bytes(const grammar_t *grammar); /* memory it holds, for caches */
/* Returns the unknown names of its schemas, which restrict nothing, "a,b,format:c", each once, safe
 * in a header; at most GRAMMAR_IGNORED_NAMES_MAX and GRAMMAR_IGNORED_BYTES_MAX. "" = none. */
const char *grammar_ignored(const grammar_t *grammar);

/* ---- one sequence ---- */

/* Bytes of a matcher, and of a scratch (one per thread that fills); zeroed, aligned to 64. */
size_t grammar_matcher_bytes(void);
size_t grammar_scratch_bytes(void);

/* Copies the place of *from in its grammar to *to. Afterwards neither depends on the other. */
void grammar_matcher_copy(grammar_matcher_t *to, const grammar_matcher_t *from);

/* Starts (again) at the first byte of the grammar, which must live until the last use. Returns 0,
 * or ERR_CONSTRAINT_TOO_EXPENSIVE for a grammar that grammar_compile would have refused as such. */
int grammar_matcher_start(grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                          const grammar_t *grammar, const grammar_vocabulary_t *vocabulary);

/* row[grammar_row_words]: bit set = the token may come next; stop ids only where the text may end.
 * Returns 0, also for an empty row where the text may end; ERR_NO_CHOICE if it may not end and no
 * token may come, as when the grammar needs a stop id as text. Then the request ends; it is never
 * sampled without a mask. */
int grammar_matcher_fill(grammar_matcher_t *matcher, grammar_scratch_t *scratch,
                         const int32_t *stop_ids, int32_t num_stop_ids, uint32_t *row);

/* Takes a token that is no stop id. Returns 0; ERR_INTERNAL, changing nothing, if not allowed. */
int grammar_matcher_accept(grammar_matcher_t *matcher, grammar_scratch_t *scratch, int32_t id);

/* From here on the matcher follows only one of the ways in which the text may continue: masks cost
 * little, the language is narrower, its texts can be finished. A mask that is not ready is begun
 * anew by the caller. */
void grammar_matcher_narrow(grammar_matcher_t *matcher);

bool grammar_matcher_is_accepting(const grammar_matcher_t *matcher); /* the text may end here */
bool grammar_matcher_is_finished(const grammar_matcher_t *matcher); /* ... and nothing can follow */

#endif
