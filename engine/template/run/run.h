/* run.h: one render at work.
 *
 * A run lives in jinja_render's frame and is used by that thread alone. Failures leave by a long
 * jump to jinja_render: everything that a run allocates lies in its arena, so nothing is lost on
 * the way. Every loop over data spends fuel for what it touches.
 */
#ifndef INFERD_ENGINE_TEMPLATE_RUN_RUN_H
#define INFERD_ENGINE_TEMPLATE_RUN_RUN_H

#include "engine/base/arena.h"
#include "engine/template/template.h"
#include "engine/template/value.h"

#include <setjmp.h>

typedef struct binding {
  uint32_t symbol;
  value_t value;
} binding_t;

/* Names of one scope. The outermost scope has no frame: its names are run->globals. */
typedef struct scope_frame {
  struct scope_frame *parent;
  binding_t *bindings;
  uint32_t count, capacity;
} scope_frame_t;

enum { FUEL_SLICE = 1024, SEARCH_DEPTH_MAX = 1000 };

struct ast_node;

typedef struct run {
  arena_t arena;
  jmp_buf escape;
  int code; /* of the failure */
  const jinja_t *jinja;
  const jinja_input_t *input;
  inferd_error_t *error;
  uint32_t line; /* of the node at work */
  /* The operand at work whose value is undefined or None, which run_fail names; NULL = none. */
  const struct ast_node *suspect;
  bool suspect_is_none;
  uint32_t depth, macro_depth;
  uint32_t data_depth; /* nesting of data at work: comparing, printing */
  uint32_t slice;      /* fuel until the next look at the clock */
  uint64_t fuel;       /* beyond the slice */
  uint64_t deadline_ns;
  size_t output_max;
  size_t input_bytes; /* text that JSON variables have brought */
  sink_t *out;        /* where output goes now */
  value_t *globals;   /* by symbol */
  scope_frame_t *frame;
} run_t;

_Noreturn void run_fail(run_t *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes a text so that run_fail may show it; returns `out`. */
static inline const char *run_quote(char out[64], const str_t *text) {
  return error_quote(out, 64, text->bytes, text->length);
}
/* raise_exception: exactly this text. */
_Noreturn void run_raise(run_t *run, const str_t *message);
void run_refuel(run_t *run, size_t steps); /* pays what the slice cannot, looks at the clock */

/* Pays `steps`; fails when the fuel is used up. */
static inline void run_spend(run_t *run, size_t steps) {
  if (steps < run->slice)
    run->slice -= (uint32_t)steps;
  else
    run_refuel(run, steps);
}
/* Pays for bytes copied, compared or searched. */
static inline void run_spend_bytes(run_t *run, size_t bytes) {
  run_spend(run, bytes / 64);
}
void *run_take(run_t *run, size_t size, bool zero);
void *run_take_array(run_t *run, size_t count, size_t size, bool zero);
/* arena_grow in the memory of the render; never NULL. */
void *run_grow(run_t *run, const void *items, uint32_t count, uint32_t need, size_t size,
               uint32_t *capacity);

/* Nested data is walked by recursion: bounded here. */
static inline void run_enter(run_t *run) {
  if (++run->data_depth > SEARCH_DEPTH_MAX) run_fail(run, "data is nested too deep");
}
static inline void run_leave(run_t *run) {
  run->data_depth--;
}

#endif
