/* eval.c: evaluates the expressions of a template; also scopes, and the arguments of calls.
 *
 * The rendering thread only. limits.depth bounds the recursion, which run->depth counts. Every node
 * costs one step of fuel. Errors leave by run_fail with the line of the node at work (run->line).
 */
#include "engine/template/run/eval.h"

#include "engine/base/util.h"

#include <string.h>

const arguments_t arguments_none = {0};

/* ---- scopes ---- */

scope_frame_t *scope_new(run_t *run, scope_frame_t *parent) {
  scope_frame_t *frame = run_take(run, sizeof *frame, true);
  frame->parent = parent;
  return frame;
}

static void frame_set(run_t *run, scope_frame_t *frame, uint32_t symbol, value_t value) {
  for (uint32_t i = 0; i < frame->count; i++)
    if (frame->bindings[i].symbol == symbol) {
      frame->bindings[i].value = value;
      return;
    }
  if (frame->count == frame->capacity) {
    frame->bindings = run_grow(run, frame->bindings, frame->count, MAX(8, frame->count + 1),
                               sizeof *frame->bindings, &frame->capacity);
  }
  frame->bindings[frame->count++] = (binding_t){symbol, value};
}

void scope_set(run_t *run, uint32_t symbol, value_t value) {
  if (run->frame == NULL)
    run->globals[symbol] = value;
  else
    frame_set(run, run->frame, symbol, value);
}

value_t scope_get(run_t *run, uint32_t symbol) {
  for (const scope_frame_t *frame = run->frame; frame != NULL; frame = frame->parent)
    for (uint32_t i = 0; i < frame->count; i++)
      if (frame->bindings[i].symbol == symbol) return frame->bindings[i].value;
  return run->globals[symbol];
}

/* Does `space.name = value`, which Jinja allows on a namespace only. */
static void assign_member(run_t *run, const ast_node_t *target, const value_t *value) {
  value_t space = scope_get(run, target->symbol);
  const str_t *name = target->constant.string;
  if (space.type != VALUE_NAMESPACE)
    run_fail(run, "an attribute can only be set on a namespace, not on %s",
             value_type_name(&space));
  if (name->bytes[0] == '_')
    run_fail(run, "a namespace takes no name that begins with _, such as `%s`",
             run_quote((char[64]){0}, name));
  dict_set(run, space.dict, value_string(name), *value);
}

void scope_assign(run_t *run, const ast_node_t *target, const value_t *value) {
  if (target->kind == NODE_TARGET) {
    scope_set(run, target->symbol, *value);
    return;
  }
  if (target->kind == NODE_MEMBER) {
    assign_member(run, target, value);
    return;
  }
  const value_list_t *list = value_list(run, value);
  uint32_t wanted = 0;
  for (const ast_node_t *node = target->a; node != NULL; node = node->next) wanted++;
  if (list->count != wanted)
    run_fail(run, "%u values cannot be unpacked into %u names", list->count, wanted);
  uint32_t i = 0;
  for (const ast_node_t *node = target->a; node != NULL; node = node->next)
    scope_assign(run, node, &list->items[i++]);
}

/* ---- arguments ---- */

/* Appends one keyword argument. *capacity is that of both arrays. */
static void add_named(run_t *run, arguments_t *out, uint32_t *capacity, const str_t *name,
                      value_t value) {
  for (uint32_t i = 0; i < out->num_named; i++)
    if (str_equal(out->names[i], name))
      run_fail(run, "the argument `%s` is given twice", run_quote((char[64]){0}, name));
  if (out->num_named == *capacity) {
    uint32_t count = out->num_named, need = MAX(4, count + 1), same = *capacity;
    out->names = run_grow(run, out->names, count, need, sizeof *out->names, &same);
    out->named = run_grow(run, out->named, count, need, sizeof *out->named, capacity);
  }
  out->names[out->num_named] = name;
  out->named[out->num_named++] = value;
}

/* Appends the entries of a mapping that was given as **value. */
static void spread_named(run_t *run, arguments_t *out, uint32_t *capacity, const value_t *value) {
  if (value->type != VALUE_DICT)
    run_fail(run, "** needs a mapping, not %s", value_type_name(value));
  for (uint32_t i = 0; i < value->dict->count; i++) {
    const value_t *key = &value->dict->entries[i].key;
    if (key->type != VALUE_STRING)
      run_fail(run, "** needs strings as keys, not %s", value_type_name(key));
    add_named(run, out, capacity, key->string, value->dict->entries[i].value);
  }
}

void eval_arguments(run_t *run, const ast_node_t *list, arguments_t *out) {
  uint32_t capacity = 0;
  *out = arguments_none;
  if (list == NULL) return;
  value_list_t *positional = list_new(run, 0);
  for (const ast_node_t *node = list; node != NULL; node = node->next) {
    if (node->kind == NODE_KEYWORD) {
      add_named(run, out, &capacity, node->constant.string, eval(run, node->a));
    } else if (node->kind == NODE_SPREAD && node->op == 2) {
      value_t value = eval(run, node->a);
      spread_named(run, out, &capacity, &value);
    } else if (node->kind == NODE_SPREAD) {
      value_t value = eval(run, node->a);
      const value_list_t *items = value_list(run, &value);
      for (uint32_t i = 0; i < items->count; i++) list_push(run, positional, items->items[i]);
    } else {
      list_push(run, positional, eval(run, node));
    }
  }
  out->positional = positional->items;
  out->num_positional = positional->count;
}

static int find_name(const char *const *names, const str_t *name) {
  for (int i = 0; names[i] != NULL; i++)
    if (str_is(name, names[i])) return i;
  return -1;
}

void arguments_bind(run_t *run, const arguments_t *arguments, const char *function,
                    const char *const *names, value_t *values) {
  uint32_t count = 0;
  for (; names[count] != NULL; count++) values[count] = value_missing();
  if (arguments->num_positional > count)
    run_fail(run, "%s takes at most %u arguments, not %u", function, count,
             arguments->num_positional);
  for (uint32_t i = 0; i < arguments->num_positional; i++) values[i] = arguments->positional[i];
  for (uint32_t i = 0; i < arguments->num_named; i++) {
    int at = find_name(names, arguments->names[i]);
    if (at < 0)
      run_fail(run, "%s has no argument `%s`", function,
               run_quote((char[64]){0}, arguments->names[i]));
    if (!value_is_missing(&values[at]))
      run_fail(run, "%s: `%s` is given twice", function, names[at]);
    values[at] = arguments->named[i];
  }
}

void arguments_refuse(run_t *run, const arguments_t *arguments, const char *function) {
  static const char *const names[] = {NULL};
  value_t none[1];
  arguments_bind(run, arguments, function, names, none);
}

int64_t argument_integer(run_t *run, const value_t *value, const char *what, int64_t fallback) {
  int64_t integer;
  if (value_is_missing(value)) return fallback;
  if (!value_integer(value, &integer))
    run_fail(run, "%s must be an integer, not %s", what, value_type_name(value));
  return integer;
}

const str_t *argument_string(run_t *run, const value_t *value, const char *what) {
  if (value->type != VALUE_STRING)
    run_fail(run, "%s must be a string, not %s", what, value_type_name(value));
  return value->string;
}

/* ---- nodes ---- */

/* Tells run_fail which operand of the next operation is missing. */
static void suspect(run_t *run, const ast_node_t *node, const value_t *value) {
  bool is_none = value->type == VALUE_NONE;
  if (!is_none && value->type != VALUE_UNDEFINED) return;
  run->suspect = node;
  run->suspect_is_none = is_none;
}

static value_t eval_sequence(run_t *run, const ast_node_t *node) {
  value_list_t *list = list_new(run, 0);
  for (const ast_node_t *item = node->a; item != NULL; item = item->next)
    list_push(run, list, eval(run, item));
  return VALUE_OF(node->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, list, list);
}

static value_t eval_dict(run_t *run, const ast_node_t *node) {
  dict_t *dict = dict_new(run, 0);
  for (const ast_node_t *key = node->a; key != NULL; key = key->next->next) {
    value_t value = eval(run, key);
    dict_set(run, dict, value, eval(run, key->next));
  }
  return VALUE_OF(VALUE_DICT, dict, dict);
}

/* `op` is a token of NODE_OPERAND; the default is OP_NOT_IN. */
static bool compare(run_t *run, int op, const value_t *left, const value_t *right) {
  switch (op) {
  case OP_EQ: return value_equal(run, left, right);
  case OP_NE: return !value_equal(run, left, right);
  case OP_LT: return value_less(run, left, right);
  case OP_GT: return value_less(run, right, left);
  case OP_LE: return value_less(run, left, right) || value_equal(run, left, right);
  case OP_GE: return value_less(run, right, left) || value_equal(run, left, right);
  case OP_IN: return value_contains(run, left, right);
  default: return !value_contains(run, left, right);
  }
}

/* A chain a < b < c: each operand is evaluated once, and the first false comparison ends it. */
static value_t eval_compare(run_t *run, const ast_node_t *node) {
  value_t left = eval(run, node->a);
  for (const ast_node_t *operand = node->b; operand != NULL; operand = operand->next) {
    value_t right = eval(run, operand->a);
    if (operand == node->b) suspect(run, node->a, &left);
    suspect(run, operand->a, &right);
    bool holds = compare(run, operand->op, &left, &right);
    run->suspect = NULL;
    if (!holds) return value_bool(false);
    left = right;
  }
  return value_bool(true);
}

static value_t eval_concat(run_t *run, const ast_node_t *node) {
  sink_t *sink = sink_new(run);
  for (const ast_node_t *item = node->a; item != NULL; item = item->next) {
    value_t value = eval(run, item);
    value_print(run, sink, &value);
  }
  return value_string(sink_str(run, sink));
}

static value_t eval_item(run_t *run, const ast_node_t *node) {
  value_t value = eval(run, node->a), result;
  if (node->b->kind != NODE_SLICE) {
    value_t key = eval(run, node->b);
    suspect(run, node->a, &value);
    result = value_item(run, &value, &key);
    run->suspect = NULL;
    return result;
  }
  value_t part[3] = {value_none(), value_none(), value_none()};
  const ast_node_t *nodes[3] = {node->b->a, node->b->b, node->b->c};
  for (int i = 0; i < 3; i++)
    if (nodes[i] != NULL) part[i] = eval(run, nodes[i]);
  suspect(run, node->a, &value);
  result = value_slice(run, &value, &part[0], &part[1], &part[2]);
  run->suspect = NULL;
  return result;
}

static value_t eval_call(run_t *run, const ast_node_t *node) {
  arguments_t arguments;
  value_t callee = eval(run, node->a);
  eval_arguments(run, node->b, &arguments);
  run->line = node->line;
  suspect(run, node->a, &callee);
  value_t result = value_call(run, &callee, &arguments);
  run->suspect = NULL;
  return result;
}

value_t eval_filter(run_t *run, const ast_node_t *node, const value_t *in) {
  arguments_t arguments;
  if (node->op == LIBRARY_UNKNOWN)
    run_fail(run, "no filter named `%s`", run_quote((char[64]){0}, node->constant.string));
  eval_arguments(run, node->b, &arguments);
  run->line = node->line;
  if (node->a != NULL) suspect(run, node->a, in);
  value_t result = filter_apply(run, node->op, in, &arguments);
  run->suspect = NULL;
  return result;
}

static value_t eval_test(run_t *run, const ast_node_t *node) {
  arguments_t arguments;
  value_t value = eval(run, node->a);
  if (node->op == LIBRARY_UNKNOWN)
    run_fail(run, "no test named `%s`", run_quote((char[64]){0}, node->constant.string));
  eval_arguments(run, node->b, &arguments);
  run->line = node->line;
  return value_bool(test_apply(run, node->op, &value, &arguments));
}

static value_t eval_unary(run_t *run, const ast_node_t *node) {
  value_t value = eval(run, node->a);
  int64_t integer;
  if (node->kind == NODE_NOT) return value_bool(!value_truth(&value));
  bool negate = node->kind == NODE_NEGATE;
  if (value.type == VALUE_FLOAT) {
    if (negate) value.number = -value.number;
    return value;
  }
  if (!value_integer(&value, &integer) || (negate && integer == INT64_MIN))
    run_fail(run, "bad operand for a sign: %s", value_type_name(&value));
  value_t result = value_int(negate ? -integer : integer);
  result.request = value.request;
  return result;
}

/* Returns the operand that decides an `and` or `or`, as Python does, not a bool. */
static value_t eval_choice(run_t *run, const ast_node_t *node) {
  value_t left = eval(run, node->a);
  if (value_truth(&left) == (node->kind == NODE_OR)) return left;
  return eval(run, node->b);
}

static value_t eval_condition(run_t *run, const ast_node_t *node) {
  value_t test = eval(run, node->a);
  if (value_truth(&test)) return eval(run, node->b);
  return node->c == NULL ? value_undefined() : eval(run, node->c);
}

static value_t eval_node(run_t *run, const ast_node_t *node) {
  value_t value, result;
  switch (node->kind) {
  case NODE_CONSTANT: return node->constant;
  case NODE_NAME: return scope_get(run, node->symbol);
  case NODE_ATTRIBUTE:
    value = eval(run, node->a);
    suspect(run, node->a, &value);
    result = value_attribute(run, &value, node->constant.string);
    run->suspect = NULL;
    return result;
  case NODE_ITEM: return eval_item(run, node);
  case NODE_LIST:
  case NODE_TUPLE: return eval_sequence(run, node);
  case NODE_DICT: return eval_dict(run, node);
  case NODE_BINARY:
    value = eval(run, node->a);
    result = eval(run, node->b);
    run->line = node->line;
    suspect(run, node->a, &value);
    suspect(run, node->b, &result);
    value = value_operate(run, node->op, &value, &result);
    run->suspect = NULL;
    return value;
  case NODE_AND:
  case NODE_OR: return eval_choice(run, node);
  case NODE_NOT:
  case NODE_NEGATE:
  case NODE_POSITIVE: return eval_unary(run, node);
  case NODE_COMPARE: return eval_compare(run, node);
  case NODE_CONCAT: return eval_concat(run, node);
  case NODE_CONDITION: return eval_condition(run, node);
  case NODE_CALL: return eval_call(run, node);
  case NODE_FILTER: value = eval(run, node->a); return eval_filter(run, node, &value);
  case NODE_TEST: return eval_test(run, node);
  default: return value_undefined(); /* a statement has no value */
  }
}

value_t eval(run_t *run, const ast_node_t *node) {
  run_spend(run, 1);
  run->line = node->line;
  if (node->kind == NODE_CONSTANT) return node->constant;
  if (node->kind == NODE_NAME) return scope_get(run, node->symbol);
  if (++run->depth > run->input->limits.depth)
    run_fail(run, "evaluation is nested deeper than %u", run->input->limits.depth);
  value_t value = eval_node(run, node);
  run->depth--;
  return value;
}
