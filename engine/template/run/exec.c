/* exec.c: statements, macros and the public render call.
 *
 * The rendering thread only. Recursion is bounded by run->depth, macros by run->macro_depth.
 */
#include "engine/template/run/eval.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const jinja_limits_t jinja_limits_default = {5000000, 1000, 64, 64 << 20, 256 << 20, 1000};

enum { OUTPUT_FREE = 1 << 20, OUTPUT_PER_INPUT = 8 };

/* ---- failing, paying, taking ---- */

/* Appends the source of an expression of names, attributes and constant keys: message.content,
 * tools[0]['x']. Returns false for any other expression, or if there is no room. */
static bool describe(const run_t *run, const ast_node_t *node, char *out, size_t room) {
  const str_t *name = NULL;
  const char *before = "", *after = "";
  size_t used = strlen(out);
  if (node->kind == NODE_NAME) {
    name = run->jinja->symbols[node->symbol];
  } else if (node->kind == NODE_ATTRIBUTE) {
    name = node->constant.string;
    before = ".";
  } else if (node->kind == NODE_ITEM && node->b->kind == NODE_CONSTANT) {
    bool text = node->b->constant.type == VALUE_STRING;
    if (!text && node->b->constant.type != VALUE_INT) return false;
    name = text ? node->b->constant.string : NULL;
    before = text ? "['" : "[";
    after = text ? "']" : "]";
  } else {
    return false;
  }
  if (node->kind != NODE_NAME && !describe(run, node->a, out, room)) return false;
  used = strlen(out);
  int n = name != NULL
              ? snprintf(out + used, room - used, "%s%.*s%s", before, (int)name->length,
                         name->bytes, after)
              : snprintf(out + used, room - used, "[%lld]", (long long)node->b->constant.integer);
  return n >= 0 && (size_t)n < room - used;
}

/* The name without its folder: clients read the message, and the path is the operator's. */
static const char *file_name(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash != NULL ? slash + 1 : name;
}

void run_fail(run_t *run, const char *format, ...) {
  char reason[256], culprit[120] = "", why[160] = "";
  if (run->suspect != NULL && describe(run, run->suspect, culprit, sizeof culprit)) {
    snprintf(why, sizeof why, " (`%s` is %s)", culprit,
             run->suspect_is_none ? "null" : "undefined");
  }
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  run->code = error_set(run->error, ERR_BAD_REQUEST, "messages", "%s, line %u: %s%s.",
                        file_name(run->jinja->name), run->line, reason, why);
  longjmp(run->escape, 1);
}

void run_raise(run_t *run, const str_t *message) {
  char text[ERROR_MESSAGE_MAX];
  size_t n = 0;
  for (size_t at = 0; at < message->length;) { /* one line of valid UTF-8, cut between characters */
    size_t begin = at;
    (void)str_next(message->bytes, &at);
    if (n + (at - begin) >= sizeof text - 4) {
      memcpy(text + n, "...", 3);
      n += 3;
      break;
    }
    memcpy(text + n, message->bytes + begin, at - begin);
    if ((uint8_t)text[n] < 0x20 || text[n] == 0x7F) text[n] = ' ';
    n += at - begin;
  }
  text[n] = '\0';
  run->code = error_set(run->error, ERR_BAD_REQUEST, "messages", "%s", text);
  longjmp(run->escape, 1);
}

_Noreturn static void run_out_of_memory(run_t *run) {
  if (!run->arena.out_of_memory)
    run_fail(run, "the render needs more than %zu bytes", run->arena.limit);
  run->code = error_set(run->error, ERR_INTERNAL, NULL, "not enough memory to render a template");
  longjmp(run->escape, 1);
}

void run_refuel(run_t *run, size_t steps) {
  size_t missing = steps - run->slice;
  if (missing >= run->fuel) {
    run->fuel = 0;
    run_fail(run, "the render takes more than %llu steps",
             (unsigned long long)run->input->limits.fuel);
  }
  run->fuel -= missing;
  run->slice = run->fuel < FUEL_SLICE ? (uint32_t)run->fuel : FUEL_SLICE;
  run->fuel -= run->slice;
  if (run->deadline_ns > 0 && clock_now_ns() > run->deadline_ns)
    run_fail(run, "the render takes longer than %u ms", run->input->limits.time_ms);
}

void *run_take_array(run_t *run, size_t count, size_t size, bool zero) {
  arena_t *arena = &run->arena;
  void *piece = zero ? arena_calloc(arena, count, size) : arena_alloc(arena, count, size);
  if (piece == NULL) run_out_of_memory(run);
  return piece;
}

void *run_grow(run_t *run, const void *items, uint32_t count, uint32_t need, size_t size,
               uint32_t *capacity) {
  void *array = arena_grow(&run->arena, items, count, need, size, capacity);
  if (array == NULL) run_out_of_memory(run);
  return array;
}

void *run_take(run_t *run, size_t size, bool zero) {
  return run_take_array(run, 1, size, zero);
}

/* ---- statements ---- */

static void put_value(run_t *run, const value_t *value) {
  value_print(run, run->out, value);
  if (run->out->length > run->output_max)
    run_fail(run, "the output is longer than %zu bytes", run->output_max);
}

/* Output of a body as a string. */
static const str_t *capture(run_t *run, const ast_node_t *body, flow_t *flow) {
  sink_t *saved = run->out;
  run->out = sink_new(run);
  *flow = exec(run, body);
  const str_t *text = sink_str(run, run->out);
  run->out = saved;
  return text;
}

/* Runs `body` in a scope of its own, captured. */
static const str_t *capture_scoped(run_t *run, const ast_node_t *body, flow_t *flow) {
  scope_frame_t *saved = run->frame;
  run->frame = scope_new(run, saved);
  const str_t *text = capture(run, body, flow);
  run->frame = saved;
  return text;
}

static flow_t exec_if(run_t *run, const ast_node_t *node) {
  for (;;) {
    value_t test = eval(run, node->a);
    if (value_truth(&test)) return exec(run, node->b);
    if (node->op == 0) return exec(run, node->c);
    node = node->c;
  }
}

/* A chain of filters: the innermost has no operand of its own. */
static value_t through_filters(run_t *run, const ast_node_t *outermost, value_t value) {
  const ast_node_t *chain[64];
  unsigned count = 0;
  for (const ast_node_t *filter = outermost; filter != NULL && count < 64; filter = filter->a)
    chain[count++] = filter;
  if (chain[count - 1]->a != NULL) run_fail(run, "too many filters on one block");
  while (count > 0) value = eval_filter(run, chain[--count], &value);
  return value;
}

static flow_t exec_set_block(run_t *run, const ast_node_t *node) {
  flow_t flow;
  value_t value = value_string(capture_scoped(run, node->b, &flow));
  if (flow != FLOW_NEXT) return flow;
  if (node->c != NULL) value = through_filters(run, node->c, value);
  scope_assign(run, node->a, &value);
  return FLOW_NEXT;
}

static flow_t exec_filter_block(run_t *run, const ast_node_t *node) {
  flow_t flow;
  value_t value = value_string(capture_scoped(run, node->b, &flow));
  if (flow != FLOW_NEXT) return flow;
  value = through_filters(run, node->a, value);
  put_value(run, &value);
  return FLOW_NEXT;
}

static value_t macro_new(run_t *run, const ast_node_t *node) {
  macro_t *macro = run_take(run, sizeof *macro, false);
  *macro = (macro_t){node, run->frame};
  return VALUE_OF(VALUE_MACRO, macro, macro);
}

static flow_t exec_call_block(run_t *run, const ast_node_t *node) {
  arguments_t arguments, with;
  value_t callee = eval(run, node->a->a);
  eval_arguments(run, node->a->b, &arguments);
  with = arguments;
  with.num_named++;
  with.names = run_take_array(run, with.num_named, sizeof *with.names, false);
  with.named = run_take_array(run, with.num_named, sizeof *with.named, false);
  for (uint32_t i = 0; i < arguments.num_named; i++) {
    with.names[i] = arguments.names[i];
    with.named[i] = arguments.named[i];
  }
  with.names[arguments.num_named] = run->jinja->symbols[run->jinja->caller];
  with.named[arguments.num_named] = macro_new(run, node->b);
  value_t value = value_call(run, &callee, &with);
  put_value(run, &value);
  return FLOW_NEXT;
}

static flow_t exec_with(run_t *run, const ast_node_t *node) {
  scope_frame_t *saved = run->frame, *frame = scope_new(run, saved);
  for (const ast_node_t *set = node->a; set != NULL; set = set->next) {
    value_t value = eval(run, set->b); /* the values belong to the scope outside */
    run->frame = frame;
    scope_assign(run, set->a, &value);
    run->frame = saved;
  }
  run->frame = frame;
  flow_t flow = exec(run, node->b);
  run->frame = saved;
  return flow;
}

static flow_t exec_node(run_t *run, const ast_node_t *node) {
  value_t value;
  flow_t flow;
  switch (node->kind) {
  case NODE_DATA: put_value(run, &node->constant); return FLOW_NEXT;
  case NODE_OUTPUT:
    value = eval(run, node->a);
    put_value(run, &value);
    return FLOW_NEXT;
  case NODE_IF: return exec_if(run, node);
  case NODE_FOR: return loop_run(run, node);
  case NODE_SET:
    value = eval(run, node->b);
    scope_assign(run, node->a, &value);
    return FLOW_NEXT;
  case NODE_SET_BLOCK: return exec_set_block(run, node);
  case NODE_MACRO: scope_set(run, node->symbol, macro_new(run, node)); return FLOW_NEXT;
  case NODE_CALL_BLOCK: return exec_call_block(run, node);
  case NODE_FILTER_BLOCK: return exec_filter_block(run, node);
  case NODE_WITH: return exec_with(run, node);
  case NODE_SCOPE:
    value = value_string(capture_scoped(run, node->a, &flow));
    put_value(run, &value);
    return FLOW_NEXT;
  case NODE_BREAK: return FLOW_BREAK;
  default: return FLOW_CONTINUE;
  }
}

flow_t exec(run_t *run, const ast_node_t *list) {
  if (++run->depth > run->input->limits.depth)
    run_fail(run, "evaluation is nested deeper than %u", run->input->limits.depth);
  flow_t flow = FLOW_NEXT;
  for (const ast_node_t *node = list; node != NULL && flow == FLOW_NEXT; node = node->next) {
    run_spend(run, 1);
    run->line = node->line;
    flow = exec_node(run, node);
  }
  run->depth--;
  return flow;
}

/* ---- macros ---- */

static value_t take_named(const arguments_t *arguments, const str_t *name, bool *used) {
  for (uint32_t i = 0; i < arguments->num_named; i++)
    if (!used[i] && str_equal(arguments->names[i], name)) {
      used[i] = true;
      return arguments->named[i];
    }
  return value_missing();
}

static void bind_rest(run_t *run, const macro_t *macro, const arguments_t *arguments,
                      uint32_t parameters, bool *used) {
  const jinja_t *jinja = run->jinja;
  unsigned bits = macro->node->op;
  if (bits & MACRO_CALLER) {
    value_t caller = take_named(arguments, jinja->symbols[jinja->caller], used);
    scope_set(run, jinja->caller, value_is_missing(&caller) ? value_undefined() : caller);
  }
  dict_t *rest = dict_new(run, 0);
  for (uint32_t i = 0; i < arguments->num_named; i++)
    if (!used[i]) dict_append(run, rest, value_string(arguments->names[i]), arguments->named[i]);
  if (bits & MACRO_KWARGS)
    scope_set(run, jinja->kwargs, VALUE_OF(VALUE_DICT, dict, rest));
  else if (rest->count > 0)
    run_fail(run, "a macro has no argument `%s`",
             run_quote((char[64]){0}, rest->entries[0].key.string));
  if (bits & MACRO_VARARGS) {
    value_list_t *more = list_new(run, 0);
    for (uint32_t i = parameters; i < arguments->num_positional; i++)
      list_push(run, more, arguments->positional[i]);
    scope_set(run, jinja->varargs, VALUE_OF(VALUE_TUPLE, list, more));
  } else if (arguments->num_positional > parameters) {
    run_fail(run, "a macro takes at most %u arguments, not %u", parameters,
             arguments->num_positional);
  }
}

value_t macro_call(run_t *run, const macro_t *macro, const arguments_t *arguments) {
  if (++run->macro_depth > run->input->limits.macro_depth)
    run_fail(run, "macros are nested deeper than %u", run->input->limits.macro_depth);
  scope_frame_t *saved = run->frame;
  run->frame = scope_new(run, macro->frame);
  bool *used = run_take(run, arguments->num_named + 1, true);
  uint32_t count = 0;
  for (const ast_node_t *node = macro->node->a; node != NULL; node = node->next, count++) {
    value_t value = value_missing();
    if (count < arguments->num_positional)
      value = arguments->positional[count];
    else
      value = take_named(arguments, run->jinja->symbols[node->symbol], used);
    scope_set(run, node->symbol, value);
  }
  bind_rest(run, macro, arguments, count, used);
  for (const ast_node_t *node = macro->node->a; node != NULL; node = node->next) {
    value_t value = scope_get(run, node->symbol);
    if (!value_is_missing(&value)) continue;
    scope_set(run, node->symbol, node->a == NULL ? value_undefined() : eval(run, node->a));
  }
  flow_t flow;
  const str_t *text = capture(run, macro->node->b, &flow);
  run->frame = saved;
  run->macro_depth--;
  return value_string(text);
}

/* ---- rendering ---- */

static bool has_name(const jinja_variable_t *variable, const str_t *symbol) {
  if (variable->name_length == 0) return str_is(symbol, variable->name);
  return symbol->length == variable->name_length &&
         memcmp(symbol->bytes, variable->name, variable->name_length) == 0;
}

static value_t from_variable(run_t *run, const jinja_variable_t *variable) {
  value_t built;
  switch (variable->kind) {
  case JINJA_JSON: return value_from_json(run, variable->json);
  case JINJA_TEXT:
    return value_string(str_wrap(run, variable->text, variable->text_length, ORIGIN_TEMPLATE));
  case JINJA_FLAG: return value_bool(variable->flag);
  case JINJA_BUILT: variable->build(run, variable->context, &built); return built;
  default: return value_none();
  }
}

static void bind_variables(run_t *run) {
  const jinja_t *jinja = run->jinja;
  const jinja_input_t *input = run->input;
  run->globals = run_take_array(run, jinja->num_symbols, sizeof *run->globals, true);
  for (uint32_t i = 0; i < jinja->num_symbols; i++) {
    int function = function_find(jinja->symbols[i]);
    if (function >= 0) run->globals[i] = VALUE_OF(VALUE_FUNCTION, function, function);
    for (size_t k = input->num_variables; k-- > 0;)
      if (has_name(&input->variables[k], jinja->symbols[i])) {
        run->globals[i] = from_variable(run, &input->variables[k]);
        break;
      }
  }
  size_t allowed = OUTPUT_PER_INPUT * run->input_bytes + OUTPUT_FREE;
  run->output_max = MIN(input->limits.output_bytes, allowed);
}

static int copy_output(run_t *run, jinja_output_t *out) {
  const sink_t *sink = run->out;
  out->text = malloc(sink->length + 1);
  if (sink->num_marks > 0) out->request = calloc(sink->num_marks, sizeof *out->request);
  if (out->text == NULL || (sink->num_marks > 0 && out->request == NULL)) {
    jinja_output_free(out);
    return error_set(run->error, ERR_INTERNAL, NULL, "not enough memory to render a template");
  }
  if (sink->length > 0) memcpy(out->text, sink->data, sink->length);
  out->text[sink->length] = '\0';
  out->length = sink->length;
  out->num_request = sink->num_marks;
  if (sink->num_marks > 0)
    memcpy(out->request, sink->marks, sink->num_marks * sizeof *out->request);
  return 0;
}

int jinja_render(const jinja_t *jinja, const jinja_input_t *input, jinja_output_t *out,
                 inferd_error_t *error) {
  *out = (jinja_output_t){0};
  run_t run = {.jinja = jinja, .input = input, .error = error, .fuel = input->limits.fuel};
  run.arena.limit = input->limits.arena_bytes;
  if (input->limits.time_ms > 0)
    run.deadline_ns = clock_now_ns() + (uint64_t)input->limits.time_ms * 1000000u;
  if (setjmp(run.escape) == 0) {
    run_refuel(&run, 0);
    bind_variables(&run);
    run.out = sink_new(&run);
    (void)exec(&run, jinja->body);
    run.code = copy_output(&run, out);
  }
  arena_free(&run.arena);
  return run.code;
}

void jinja_output_free(jinja_output_t *out) {
  free(out->text);
  free(out->request);
  *out = (jinja_output_t){0};
}
