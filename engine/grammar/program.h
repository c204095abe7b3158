/* program.h: what a compiled grammar is made of: nodes, lexemes, objects. Shared by the compiler,
 * which makes it, and the matcher, which only reads it.
 *
 * A grammar is a graph of nodes in which text is consumed by lexemes, byte automata with a small
 * table each. Nodes between lexemes cost nothing while bytes are read; recursion, counting and
 * object members live on a stack of frames (matcher.h). Immutable once compiled.
 */
#ifndef INFERD_ENGINE_GRAMMAR_PROGRAM_H
#define INFERD_ENGINE_GRAMMAR_PROGRAM_H

#include "engine/base/arena.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/unique.h"

#define NONE UINT32_MAX

/* ---- lexemes ---- */

enum {
  DFA_ACCEPT = 1,       /* the text may end in this state */
  DFA_LIVE = 2,         /* some byte leads on */
  DFA_COUNT = 4,        /* entering counts one: a character of a string, a digit */
  DFA_LOOP = 8,         /* every character of several bytes leads back to this state */
  DFA_WIDE = 16,        /* ... to a state with LOOP */
  DFA_EXACT_LOWER = 32, /* any letters a-z go on for exactly `steps`; they accept nowhere */
  DFA_EXACT_ALPHA = 64  /* any letters a-z A-Z */
};

enum { DFA_DEAD = 0, DFA_START = 1, STEPS_FOREVER = 255 };

/* A deterministic automaton over bytes. Every state but DEAD can reach acceptance. A counted one
 * carries a counter beside its state: entering a COUNT state raises it, it must be >= count_min
 * when a state accepts, and count + rest[state] <= count_max always. */
typedef struct dfa {
  uint32_t num_states, num_classes;
  uint8_t class_of[256];
  uint32_t *next; /* [num_states, num_classes] */
  uint8_t *flags; /* [num_states] DFA_ bits */
  uint8_t *steps; /* [num_states, FAMILY_COUNT] characters of a family (vocabulary.h) that keep it
                     alive, whatever they are; in a counted one each of them counts one */
  uint32_t *rest; /* [num_states] least number of counts until acceptance; NULL = not counted */
  uint32_t count_min, count_max;
  uint32_t rest_max;     /* the largest rest */
  uint32_t rest_between; /* the largest rest of a COUNT state */
} dfa_t;

static inline uint32_t dfa_next(const dfa_t *dfa, uint32_t state, uint8_t byte) {
  return dfa->next[(size_t)state * dfa->num_classes + dfa->class_of[byte]];
}

/* ---- nodes ---- */

typedef enum grammar_node_kind {
  NODE_END,     /* the text may end */
  NODE_RETURN,  /* pops the top frame and continues at its return node */
  NODE_LEX,     /* lexeme, then next */
  NODE_EXTRA,   /* lexeme of a key that is no listed name of object `names`, then next */
  NODE_TOKEN,   /* exactly the token, then next */
  NODE_CALL,    /* the rule that starts at node `rule`, then next */
  NODE_ALT,     /* one of edges[first_edge .. first_edge + num_edges) */
  NODE_REPEAT,  /* node `body`, min to max times (NONE = no bound), then next */
  NODE_OBJECT,  /* members of the object and its closing brace, then next */
  NODE_MEMBERS, /* the same after a comma: at least one member; the frame of the object is on top */
  NODE_UNIQUE,  /* items of which no two are equal, at least one, then next */
  NODE_FAIL     /* nothing */
} grammar_node_kind_t;

typedef struct grammar_node {
  grammar_node_kind_t kind;
  uint32_t next;
  union {
    uint32_t operand; /* the first number of every kind, which build_node sets */
    struct {
      uint32_t lexeme, names; /* LEX, EXTRA; names: of EXTRA only */
    };
    struct {
      uint32_t first_edge, num_edges; /* ALT */
    };
    struct {
      uint32_t body, min, max; /* REPEAT */
    };
    uint32_t token;  /* TOKEN */
    uint32_t rule;   /* CALL */
    uint32_t object; /* OBJECT, MEMBERS; UNIQUE: index of `uniques` */
  };
  uint32_t need; /* frames on top of here that the cheapest way out takes; NONE = no way out */
} grammar_node_t;

enum { NODE_ID_END = 0, NODE_ID_RETURN = 1, NODE_ID_FAIL = 2, NODES_FIXED = 3 };

/* ---- objects ---- */

/* Names as canonical JSON strings with both quotes, in one trie in preorder. */
typedef struct name_node {
  uint32_t child, sibling; /* first child, next sibling; 0 = none (the root has no parent) */
  uint32_t first, count;   /* range of `sorted`: listed names that end in this subtree */
  uint8_t byte;
  bool is_name;   /* a name ends here; no extra key may */
  uint32_t index; /* of the listed name that ends here; NONE */
} name_node_t;

/* A node of a decision diagram, which asks whether the name `index` occurs. */
typedef struct presence_state {
  uint32_t index;         /* num_names: an extra member; NONE: nothing is left to ask */
  uint32_t without, with; /* the next state; NONE = no object continues this way */
  uint32_t forced;        /* least index that must still come; NONE = the object may end */
  uint32_t cheapest;      /* next index on the way to the end that needs fewest frames; NONE */
} presence_state_t;

enum { COUNT_NAMES_MAX = 31, SET_NAMES_MAX = 255, SET_WORDS = 4, FREE_STATES_MAX = 64 };
/* Extra members come behind the required ones. The listed ones come in any order, or else in that
 * of the schema, before the extra ones. Frame count of a free order: a bit for each listed name
 * that has come, above them the number of extra members (saturated unless it matters); with many
 * names the number of such a set (place.h). Or else: next listed index in the low half; in the high
 * half the number of members (likewise), or the presence state. 0 = no member has come. */
typedef struct grammar_object {
  uint32_t num_names;      /* listed names that can occur, in order */
  uint32_t *entry;         /* [num_names] node: colon and value, then RETURN */
  uint32_t *next_required; /* [num_names + 1] least required index >= i; num_names = none */
  uint32_t *required_from; /* [num_names + 1] number of required indices >= i */
  name_node_t *trie;
  uint32_t *sorted; /* listed indices, ascending within the range of each trie node */
  uint32_t extra;   /* node: an extra member, then RETURN; NONE = no extra members */
  uint32_t first;   /* node before the first member; NONE = it comes at once */
  uint32_t comma, close_empty, close; /* nodes */
  uint32_t min, max;                  /* members; max NONE = no bound */
  presence_state_t *presence;         /* NULL = none; it holds `min`, `max`; with a max one extra */
  bool is_free, has_sets;             /* the order is; the count is the number of a set */
  uint32_t num_presence;              /* states; in a free order at most FREE_STATES_MAX */
  uint32_t need;                      /* most frames on top of the object's that a member takes */
  uint64_t required[SET_WORDS];       /* in a free order: bits of the required names */
  struct witnesses *witnesses;        /* NULL = none; only in a free order */
} grammar_object_t;

/* Extra members of some kinds that must come, the witnesses; one member may be several. Behind a
 * witness comes no name of its kind but another one: it might take back the value. The number of
 * extra members is 0, or 1 and the bits of the witnesses that have come. */
enum { WITNESSES_MAX = 3, WITNESS_SETS = 1 << WITNESSES_MAX, WITNESS_KINDS = 27 };
typedef struct witnesses {
  uint32_t all;                 /* bits of all witnesses */
  uint32_t node[WITNESS_KINDS]; /* by witness_kind: a member, then RETURN; NONE = it cannot occur */
  uint32_t need[WITNESS_SETS];  /* frames that the cheapest way takes if these have come; NONE */
  uint32_t best[WITNESS_SETS];  /* the bits of the next member on it; 0 = all have come */
} witnesses_t;

/* The kind of a member that is the witnesses `is` after `came`: a digit for each witness, 0 = it
 * has any name and value, 1 = not a name of this kind, 2 = it is the witness. */
static inline uint32_t witness_kind(uint32_t all, uint32_t came, uint32_t is) {
  uint32_t kind = 0;
  for (uint32_t i = WITNESSES_MAX; i-- > 0;) {
    if (all >> i & 1) kind = 3 * kind + (is >> i & 1 ? 2 : came >> i & 1);
  }
  return kind;
}

struct grammar {
  atomic_uint references;
  uint64_t serial; /* no other grammar of this process has had it */
  arena_t arena;   /* everything below, and the struct itself */
  grammar_node_t *nodes;
  uint32_t *edges;
  dfa_t *const *dfas;
  grammar_object_t *const *objects;
  grammar_unique_t *uniques;
  uint32_t num_nodes, num_objects, num_ignored;
  uint32_t start;                              /* node */
  char ignored[GRAMMAR_IGNORED_BYTES_MAX + 1]; /* see grammar_ignored */
  const char *source;                          /* source_bytes.h; NULL = not kept */
  size_t source_bytes;
};

enum { STACK_DEPTH_MAX = 256 };

#endif
