/* loop.c: for loops and the `loop` variable.
 *
 * The rendering thread only. Items are taken one by one and the loop's filter is asked when an item
 * is due, so that a body sees, and changes, what later filters look at, as in Jinja.
 */
#include "engine/template/run/eval.h"

/* What a filtered loop continues with: the targets put together again, as Jinja's generator does.
 */
static value_t rebuild(run_t *run, const ast_node_t *target, const value_t *item) {
  if (target->kind != NODE_TARGETS) return *item;
  const value_list_t *from = value_list(run, item);
  value_list_t *list = list_new(run, from->count);
  uint32_t i = 0;
  for (const ast_node_t *node = target->a; node != NULL; node = node->next)
    list_push(run, list, rebuild(run, node, &from->items[i++]));
  return VALUE_OF(VALUE_TUPLE, list, list);
}

/* The next item that passes the filter. */
static bool take_next(run_t *run, loop_t *loop, value_t *out) {
  while (loop->next < loop->source->count) {
    *out = loop->source->items[loop->next++];
    if (loop->head->c == NULL) return true;
    scope_frame_t *saved = run->frame;
    run->frame = loop->test_frame;
    scope_assign(run, loop->head->a, out);
    value_t test = eval(run, loop->head->c);
    run->frame = saved;
    if (!value_truth(&test)) continue;
    *out = rebuild(run, loop->head->a, out);
    return true;
  }
  return false;
}

static bool peek(run_t *run, loop_t *loop) {
  if (!loop->has_after) loop->has_after = take_next(run, loop, &loop->after);
  return loop->has_after;
}

static bool advance(run_t *run, loop_t *loop, value_t *out) {
  if (!peek(run, loop)) return false;
  *out = loop->after;
  loop->has_after = false;
  return true;
}

static int64_t length(run_t *run, loop_t *loop) {
  if (loop->length >= 0) return loop->length;
  if (loop->head->c != NULL) { /* the rest is filtered now, as Jinja does it */
    value_list_t *rest = list_new(run, 0);
    value_t value;
    if (loop->has_after) list_push(run, rest, loop->after);
    while (take_next(run, loop, &value)) list_push(run, rest, value);
    loop->has_after = false;
    loop->source = rest;
    loop->next = 0;
    ast_node_t *head = run_take(run, sizeof *head, false);
    *head = *loop->head;
    head->c = NULL;
    loop->head = head;
    loop->length = (int64_t)loop->index + 1 + rest->count;
  } else {
    loop->length = (int64_t)loop->index + 1 + (loop->source->count - loop->next) + loop->has_after;
  }
  return loop->length;
}

value_t loop_attribute(run_t *run, loop_t *loop, const str_t *name) {
  if (str_is(name, "index")) return value_int((int64_t)loop->index + 1);
  if (str_is(name, "index0")) return value_int(loop->index);
  if (str_is(name, "first")) return value_bool(loop->index == 0);
  if (str_is(name, "last")) return value_bool(!peek(run, loop));
  if (str_is(name, "length")) return value_int(length(run, loop));
  if (str_is(name, "revindex")) return value_int(length(run, loop) - loop->index);
  if (str_is(name, "revindex0")) return value_int(length(run, loop) - loop->index - 1);
  if (str_is(name, "depth")) return value_int((int64_t)loop->depth0 + 1);
  if (str_is(name, "depth0")) return value_int(loop->depth0);
  if (str_is(name, "previtem")) return loop->has_previous ? loop->previous : value_undefined();
  if (str_is(name, "nextitem")) return peek(run, loop) ? loop->after : value_undefined();
  int number = str_is(name, "cycle") ? LOOP_CYCLE : str_is(name, "changed") ? LOOP_CHANGED : -1;
  if (number < 0) return value_undefined();
  method_t *method = run_take(run, sizeof *method, false);
  *method = (method_t){VALUE_OF(VALUE_LOOP, loop, loop), number};
  return VALUE_OF(VALUE_METHOD, method, method);
}

value_t loop_method(run_t *run, loop_t *loop, int number, const arguments_t *arguments) {
  if (arguments->num_named > 0) run_fail(run, "methods of loop take no named arguments");
  if (number == LOOP_CYCLE) {
    if (arguments->num_positional == 0) run_fail(run, "loop.cycle needs an argument");
    return arguments->positional[loop->index % arguments->num_positional];
  }
  value_list_t *seen = list_new(run, arguments->num_positional);
  for (uint32_t i = 0; i < arguments->num_positional; i++)
    list_push(run, seen, arguments->positional[i]);
  value_t now = VALUE_OF(VALUE_TUPLE, list, seen);
  value_t before = VALUE_OF(VALUE_TUPLE, list, loop->changed);
  bool changed = loop->changed == NULL || !value_equal(run, &before, &now);
  loop->changed = seen;
  return value_bool(changed);
}

flow_t loop_run(run_t *run, const ast_node_t *node) {
  value_t iterable = eval(run, node->a->b), item;
  scope_frame_t *saved = run->frame;
  loop_t *loop = run_take(run, sizeof *loop, true);
  loop->source = value_list(run, &iterable);
  loop->head = node->a;
  loop->length = -1;
  loop->frame = scope_new(run, saved);
  if (node->a->c != NULL) loop->test_frame = scope_new(run, saved);
  bool any = false;
  flow_t flow = FLOW_NEXT;
  while (flow != FLOW_BREAK && advance(run, loop, &item)) {
    run_spend(run, 1);
    loop->index += any;
    loop->has_previous = any;
    loop->previous = loop->current;
    loop->current = item;
    any = true;
    loop->frame->count = 0;
    run->frame = loop->frame;
    scope_assign(run, node->a->a, &item);
    if (node->uses_loop) scope_set(run, run->jinja->loop, VALUE_OF(VALUE_LOOP, loop, loop));
    flow = exec(run, node->b);
    run->frame = saved;
  }
  if (any || node->c == NULL) return FLOW_NEXT;
  run->frame = scope_new(run, saved);
  flow = exec(run, node->c);
  run->frame = saved;
  return flow;
}
