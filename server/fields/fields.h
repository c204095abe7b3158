/* fields.h: reads request bodies by tables: one row describes one field.
 *
 * A row holds the name, the kind, the bounds, the default and where the value goes. All JSON routes
 * use the same function. It checks and stores known fields, answers 400 for refused fields unless
 * their value changes nothing, checks and drops ignored fields, and reports unknown ones. Pure
 * functions: any thread.
 *
 * Value rules: null means the default; nothing is coerced; an integer field takes 16 and 16.0, not
 * 16.5, "16" or true; every float is finite and in range.
 */
#ifndef INFERD_SERVER_FIELDS_FIELDS_H
#define INFERD_SERVER_FIELDS_FIELDS_H

#include "engine/base/arena.h"
#include "engine/base/json.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct field field_t;
typedef struct reader reader_t;

typedef enum field_kind {
  FIELD_BOOL,    /* bool */
  FIELD_INT,     /* int64_t, min..max */
  FIELD_NUMBER,  /* float, min..max */
  FIELD_STRING,  /* const json_t *, min..max bytes */
  FIELD_IDS,     /* id_list_t of min..max ids, each in the vocabulary */
  FIELD_CUSTOM,  /* read() does everything */
  FIELD_REFUSED, /* 400 unsupported_parameter unless `noop` holds */
  FIELD_IGNORED  /* checked by read() if there is one, then dropped */
} field_kind_t;

enum field_flag {
  FIELD_OPEN_MIN = 1,     /* the lower bound itself is not allowed */
  FIELD_ALTERNATIVES = 2, /* up to the server's max_logprobs; -1 = the whole vocabulary */
  FIELD_WHOLE_INT64 = 4,  /* no bounds but the type's */
  FIELD_PREFIX = 8,       /* the name is the start of a family of names */
  NOOP_FALSE = 16,        /* values that change nothing, for FIELD_REFUSED; null always is one */
  NOOP_EMPTY = 32,        /* "", [] and {} */
  NOOP_NUMBERS = 64,      /* the numbers `min` and `max` change nothing */
  NOOP_TEXT_FORMAT = 128, /* {"type":"text"} */
  FIELD_NAMED = 256,      /* of FIELD_IGNORED: reader->ignored names the field */
  FIELD_MAY_END = 512     /* -1 = no limit, so a smaller value is told what the limits are */
};

struct field {
  const char *name;
  field_kind_t kind;
  unsigned flags;
  size_t offset; /* of the value in the output struct */
  double min, max, fallback;
  int (*read)(reader_t *reader, const field_t *field, const json_t *value);
  const char *hint; /* ends the message of a refusal; NULL = none */
};

typedef struct field_table {
  const field_t *rows;
  size_t count;
  const struct field_table *base; /* rows for the names that this table lacks; or NULL */
} field_table_t;

typedef struct id_list {
  const int32_t *ids; /* in the arena */
  int32_t count;
  bool given;
} id_list_t;

/* Kinds of constraints on the output that an operator can close. */
enum closed_kind {
  CLOSED_REGEX = 1,   /* patterns, also those in schemas, and lists of choices */
  CLOSED_GRAMMAR = 2, /* grammars */
  CLOSED_SCHEMA = 4,  /* JSON schemas, JSON mode, strict functions, forced calls */
  CLOSED_ALL = 7
};

typedef struct field_limits {
  int32_t vocab_size;
  int32_t max_logprobs;
  int32_t inputs_max;           /* of a request for embeddings */
  bool strict;                  /* unknown fields are errors */
  bool lenient;                 /* what is only in the history is mended (--lenient-history) */
  bool stores;                  /* answers are kept (--store) */
  bool makes_later;             /* also those of `background` */
  bool sees;                    /* the model reads pictures */
  bool hears;                   /* or sounds */
  int32_t images_max;           /* of a request (--limit-images); 0 = none are taken */
  int32_t sounds_max;           /* of a request (--limit-audio); 0 = none are taken */
  const struct media *media;    /* what fetches pictures of other hosts; NULL = nothing does */
  bool deny_special_ids;        /* in prompts of ids */
  const tokenizer_t *tokenizer; /* for deny_special_ids and structural tags; NULL = none */
  const engine_info_t *model;   /* the ids that end an answer; NULL = none do */
  unsigned closed;              /* CLOSED_ bits: constraints that are refused */
  bool closed_by_key;           /* by the line of the API key; else by --disable-grammar */
} field_limits_t;

enum { IGNORED_NAMES_MAX = 256, MENDED_NAMES_MAX = 1024 };

struct reader {
  void *out; /* the struct that offsets refer to */
  const field_limits_t *limits;
  arena_t *arena;
  inferd_error_t *error;
  char ignored[IGNORED_NAMES_MAX]; /* fields without effect that the answer names, "a,b": safe in
                                    * a header, cut when too many */
  char mended[MENDED_NAMES_MAX];   /* what was mended in the history, "PLACE:what,PLACE:what" */
};

/* Writes every default into reader->out; strings become NULL, lists empty. */
void fields_default(const field_table_t *table, void *out);
/* Reads the members of `root` (the top level of a body). 0 or an error with param set. */
int fields_read(const field_table_t *table, reader_t *reader, const json_t *root);
/* Reads one value that is not null by its row. */
int field_read(reader_t *reader, const field_t *row, const json_t *value);
const field_t *fields_find(const field_table_t *table, const char *name, size_t length);

/* The readers behind the kinds, for custom rows. `name` is what messages and `param` say. */
int field_fail_type(reader_t *reader, const char *name, const char *expected, const json_t *value);
/* The same for a value of the right type: the message has what field_shown returns. */
int field_fail_value(reader_t *reader, const char *name, const char *expected, const json_t *value);
/* What came, for a message: a number as the client wrote it, a string in quotes, both cut to fit
 * into `out` and printable, or "an object" and its like; "nothing" for NULL. May return `out`. */
enum { FIELD_SHOWN_MAX = 48 };
const char *field_shown(char out[FIELD_SHOWN_MAX], const json_t *value);
/* The one sentence for a limit on tokens that is 0, where that is no limit, or below -1. */
int field_fail_limit(inferd_error_t *error, const char *name, int64_t value);
int field_integer(reader_t *reader, const char *name, const json_t *value, double min, double max,
                  int64_t *out);
int field_float(reader_t *reader, const char *name, const json_t *value, const field_t *field,
                float *out);
int field_string(reader_t *reader, const char *name, const json_t *value, double min, double max);
int field_ids(reader_t *reader, const char *name, const json_t *value, double min, double max,
              id_list_t *out);
int field_no_memory(reader_t *reader);
/* Appends a name to `ignored`, a list of IGNORED_NAMES_MAX bytes, unless the list is full. The name
 * must be safe in a header. */
void field_name_ignored(char *ignored, const char *name);
/* Appends "PLACE:WHAT" to reader->mended; "..." stands for those that do not fit. */
void field_name_mended(reader_t *reader, const char *place, const char *what);
/* Counts an unknown name (the access log and x-inferd-ignored-params name it), or refuses it. */
int field_unknown(reader_t *reader, const char *prefix, const char *name, size_t length);

/* The limits of a body of chat that a dialect makes of its own. It may have more values and nest
 * deeper than what a client may send: the dialect wraps values. */
extern const json_limits_t json_limits_translated; /* 80, 3e6, 256, false */

#endif
