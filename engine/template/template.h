/* template.h: Jinja2 templates as chat templates use them, compiled once and rendered many times.
 *
 * The language is that of Jinja2 3.1 in the environment that Hugging Face `transformers` sets up
 * (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, `generation` blocks):
 * a template either renders byte for byte the same or is refused by name when it is compiled. A
 * template is immutable after compiling: any number of threads may render it at once, each render
 * with an arena of its own. The template comes with the model and is trusted in part; the
 * variables may be hostile. So every render is bounded in steps, depth, memory, output and time.
 */
#ifndef INFERD_ENGINE_TEMPLATE_TEMPLATE_H
#define INFERD_ENGINE_TEMPLATE_TEMPLATE_H

#include "engine/base/byte_span.h"
#include "engine/base/error.h"
#include "engine/base/json.h"

#include <stddef.h>
#include <stdint.h>

enum {
  TEMPLATE_SOURCE_BYTES_MAX = 1 << 20,
  TEMPLATE_NODES_MAX = 200000,
  TEMPLATE_PARSE_DEPTH_MAX = 200
};

typedef struct jinja jinja_t; /* a compiled template */

/* Compiles `length` bytes of UTF-8. `name` (copied) stands in messages. 0, ERR_MODEL_MALFORMED
 * ("NAME, line N: reason"), ERR_NO_MEMORY. The caller frees *out with jinja_free. */
int jinja_compile(const char *name, const char *source, size_t length, jinja_t **out,
                  inferd_error_t *error);
void jinja_free(jinja_t *jinja); /* NULL is allowed */

/* Returns true if the template reads the variable `name`, or an attribute or key of that name. */
bool jinja_mentions(const jinja_t *jinja, const char *name);
/* Returns true if a loop iterates over an attribute or key `name`: `for x in message.content`, also
 * through a filter or a variable that was set from it. */
bool jinja_iterates(const jinja_t *jinja, const char *name);

typedef struct jinja_limits {
  uint64_t fuel;        /* steps: nodes, iterations, calls, every 64 bytes copied or compared */
  uint32_t depth;       /* nested evaluations */
  uint32_t macro_depth; /* nested macro calls */
  size_t output_bytes;
  size_t arena_bytes; /* everything the render allocates */
  uint32_t time_ms;   /* wall clock */
} jinja_limits_t;

/* 5 M steps, 1000, 64, 64 MiB, 256 MiB, 1 s. The output may also not be longer than 8 times the
 * text of the JSON variables plus 1 MiB. */
extern const jinja_limits_t jinja_limits_default;

/* One variable: `kind` says which member holds its value. */
typedef enum jinja_variable_kind {
  JINJA_JSON,    /* `json`, from the request */
  JINJA_TEXT,    /* `text`, `text_length`, from the model */
  JINJA_FLAG,    /* `flag` */
  JINJA_NOTHING, /* None */
  JINJA_BUILT    /* made by `build`; only chat_template.c uses it */
} jinja_variable_kind_t;

struct run;
struct value;

typedef struct jinja_variable {
  const char *name;
  size_t name_length; /* 0: name ends with a NUL */
  jinja_variable_kind_t kind;
  const json_t *json;
  const char *text;
  size_t text_length;
  bool flag;
  void (*build)(struct run *run, void *context, struct value *out);
  void *context;
} jinja_variable_t;

typedef struct jinja_input {
  const jinja_variable_t *variables; /* of equal names the later one is used */
  size_t num_variables;
  int64_t now_seconds; /* for strftime_now, seconds since 1970; printed as local time */
  jinja_limits_t limits;
} jinja_input_t;

typedef struct jinja_output {
  char *text; /* malloc'ed, NUL-terminated UTF-8 */
  size_t length;
  byte_span_t *request; /* malloc'ed: bytes that come from JSON variables; NULL = none */
  size_t num_request;
} jinja_output_t;

/* Renders. 0, or ERR_BAD_REQUEST: "NAME, line N: reason", a limit, or exactly the message that the
 * template gave to raise_exception; ERR_INTERNAL without memory. jinja_output_free after success.
 */
int jinja_render(const jinja_t *jinja, const jinja_input_t *input, jinja_output_t *out,
                 inferd_error_t *error);
void jinja_output_free(jinja_output_t *out);

#endif
