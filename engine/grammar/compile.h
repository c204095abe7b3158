/* compile.h: the state of one compilation: memory, limits, errors, nodes, lexemes.
 *
 * One compilation belongs to one thread. All memory comes from two arenas: `grammar->arena` for
 * the grammar itself, `scratch` for the rest. So any function may give up at any depth:
 * compile_fail fills the error and jumps back (longjmp) to grammar_compile, which frees both
 * arenas. A function must not own any other resource when it calls one that may give up.
 */
#ifndef INFERD_ENGINE_GRAMMAR_COMPILE_H
#define INFERD_ENGINE_GRAMMAR_COMPILE_H

#include "engine/base/json_schema.h"
#include "engine/grammar/mask/vocabulary.h"
#include "engine/grammar/program.h"

#include <setjmp.h>

/* A growing array in the scratch arena. */
typedef struct grammar_list {
  void *items;
  uint32_t count, capacity;
} grammar_list_t;

struct regex;

enum {
  COMPILE_FUEL = 20000,              /* steps between two looks at the account */
  COMPILE_ARENA_BYTES_MAX = 64 << 20 /* of each arena */
};

/* Kinds of texts outside of JSON: the types that the text between two tags may have, or one of the
 * others. 0 = JSON. */
enum { TEXT_RAW = TYPE_ALL + 1, TEXT_MARKED, TEXT_KINDS };

/* A named rule: the nodes before `end` that no rule before it has. */
typedef struct named_rule {
  uint32_t end, length;
  const char *name;
} named_rule_t;

typedef struct compile {
  jmp_buf give_up;
  int code;
  inferd_error_t *error;
  const char *param;
  const grammar_limits_t *limits;
  const grammar_vocabulary_t *vocabulary;
  grammar_account_t *account;
  uint64_t begin_ns; /* CPU time of the thread at the start */
  uint32_t fuel;     /* steps until the next look at the account, the clock and `cancelled` */
  arena_t scratch;
  grammar_t *grammar;
  grammar_list_t nodes;   /* grammar_node_t */
  grammar_list_t edges;   /* uint32_t */
  grammar_list_t dfas;    /* dfa_t * */
  grammar_list_t objects; /* grammar_object_t * */
  grammar_list_t drafts;  /* object_draft_t *, parallel to objects */
  grammar_list_t uniques; /* unique_draft_t *, build.h */
  grammar_list_t wide;    /* uint32_t nodes from which many ways lead on without a byte */
  grammar_list_t rules;   /* named_rule_t of a user grammar */
  uint32_t dfa_states;
  grammar_list_t kept;     /* lexemes by their pattern, see lexeme.c */
  uint32_t value_rule;     /* node of any JSON value; 0 = not made yet */
  const tag_words_t *tags; /* around the texts of GRAMMAR_PARAMETERS; NULL = there are none */
  const char *string_mark; /* around the texts of GRAMMAR_LITERALS; or NULL */
  const dfa_t *texts[TEXT_KINDS]; /* lexeme_content.c; NULL = not made yet */
} compile_t;

/* compile_base.c: giving up, memory ----------------------------------------------------------- */

_Noreturn void compile_fail(compile_t *compile, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Counts `work` small steps; gives up if the request has spent its work or is cancelled. */
void compile_spend(compile_t *compile, uint32_t work);
/* Return zeroed memory: scratch until the end of the compilation, kept memory as long as the
 * grammar. Never NULL. */
void *compile_scratch(compile_t *compile, size_t count, size_t size);
void *compile_keep(compile_t *compile, size_t count, size_t size);
/* arena_grow in the scratch memory; never NULL. */
void *compile_grow(compile_t *compile, const void *items, uint32_t count, uint32_t need,
                   size_t size, uint32_t *capacity);
/* Appends a zeroed element of `size` bytes to the list and returns it. */
void *list_add(compile_t *compile, grammar_list_t *list, size_t size);

/* build.c: nodes ------------------------------------------------------------------------------ */

uint32_t build_node(compile_t *compile, grammar_node_kind_t kind, uint32_t operand, uint32_t next);
grammar_node_t *build_at(compile_t *compile, uint32_t id);
uint32_t build_lex(compile_t *compile, uint32_t lexeme, uint32_t next);
uint32_t build_alt(compile_t *compile, const uint32_t *branches, uint32_t count);
/* A text in which `marks` (grammar_source_t) may stand for tokens. */
uint32_t build_words(compile_t *compile, const grammar_source_t *marks, const char *text,
                     uint32_t next);
/* Sets the branches of an alternative that was made without branches. */
void build_alt_fill(compile_t *compile, uint32_t id, const uint32_t *branches, uint32_t count);
uint32_t build_repeat(compile_t *compile, uint32_t body, uint32_t min, uint32_t max, uint32_t next);

/* An object, before the compiler knows which members can occur. */
typedef struct member_draft {
  const char *name; /* canonical JSON string with quotes */
  uint32_t length;
  uint32_t entry; /* node of the value; NONE: the name must not occur */
  bool required;
} member_draft_t;

typedef struct object_draft {
  member_draft_t *members;
  uint32_t num_members;
  uint32_t extra;         /* node or NONE */
  witnesses_t *witnesses; /* NULL = none */
  const char *pointer;    /* of a schema that needs one */
  bool in_order;          /* the members come in this order only */
  uint32_t min, max;
  struct presence_draft *presence; /* build.h; NULL = no condition; else it holds min and max too */
  uint32_t num_presence;
  uint32_t *presence_needs; /* build_presence.c */
} object_draft_t;

/* Returns the node after the opening brace of an object; `next` follows the closing brace. */
uint32_t build_object(compile_t *compile, object_draft_t *draft, uint32_t next);
/* The same for members without braces and commas; `close` follows the last one. *members: the node
 * of one more member. */
uint32_t build_members(compile_t *compile, object_draft_t *draft, uint32_t close,
                       uint32_t *members);
/* Puts nodes that end in `members` before the first member (NONE = nothing) and before others. */
void build_before_members(compile_t *compile, uint32_t object, uint32_t first, uint32_t further);
uint32_t build_extra(compile_t *compile, uint32_t object, uint32_t lexeme, uint32_t next);

/* Removes nodes from which no text can end, and copies the rest into the grammar. Gives up if no
 * text satisfies the constraint, or if a rule reaches itself without a byte (left recursion). */
void build_finish(compile_t *compile, uint32_t start);

/* lexeme.c ------------------------------------------------------------------------------------ */

/* Adds an automaton to the grammar as a lexeme; returns NONE if it accepts no text. */
uint32_t lexeme_add(compile_t *compile, const dfa_t *dfa);
/* Returns the lexeme of a pattern over raw bytes, anchored; equal patterns give the same lexeme.
 * For our own constant patterns only: a mistake in one of them is a bug. */
uint32_t lexeme_pattern(compile_t *compile, const char *pattern);
/* Returns the lexeme of a literal text. */
uint32_t lexeme_text(compile_t *compile, const char *text, uint32_t length);
/* Returns the lexeme of any text, which may be empty. */
uint32_t lexeme_any(compile_t *compile);

/* ---- compilers of the kinds of sources; each returns the start node ---- */

uint32_t schema_compile(compile_t *compile, const grammar_source_t *source, uint32_t next);
uint32_t schema_parameters(compile_t *compile, const grammar_source_t *source, uint32_t next);
uint32_t schema_literals(compile_t *compile, const grammar_source_t *source, uint32_t next);
uint32_t ebnf_compile(compile_t *compile, const grammar_source_t *source, uint32_t next);
uint32_t lark_compile(compile_t *compile, const grammar_source_t *source, uint32_t next);
bool lark_detect(const char *text, size_t length); /* the first statement is one of Lark */

#endif
