/* eval.h: runs the tree of a compiled template: expressions give values, statements give output.
 *
 * Shared by eval.c, exec.c and loop.c; for the rendering thread only. No function returns an error:
 * a failure leaves by run_fail (run.h). All memory belongs to the render. The trees are read-only.
 */
#ifndef INFERD_ENGINE_TEMPLATE_RUN_EVAL_H
#define INFERD_ENGINE_TEMPLATE_RUN_EVAL_H

#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

/* How a list of statements ended: at its end, or at a `break` or `continue` of its loop. */
typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow_t;

/* Returns the value of one expression. `node` is not NULL. */
value_t eval(run_t *run, const ast_node_t *node);
/* exec.c: runs a list of statements (NULL = none); the text that they print goes to run->out. */
flow_t exec(run_t *run, const ast_node_t *list);
/* Evaluates the argument list of a call (NULL = no arguments), and unpacks *a and **a into *out. */
void eval_arguments(run_t *run, const ast_node_t *list, arguments_t *out);
/* Applies the filter of a NODE_FILTER to *in. It evaluates the arguments, but not the operand a. */
value_t eval_filter(run_t *run, const ast_node_t *node, const value_t *in);

/* Assigns in the current scope, run->frame. A scope outside it keeps its own value of the name. */
void scope_set(run_t *run, uint32_t symbol, value_t value);
/* Searches from the current scope outwards to the globals. Undefined if no scope has the name. */
value_t scope_get(run_t *run, uint32_t symbol);
/* Makes an empty scope inside `parent` (NULL = the globals). It is not entered: the caller sets
 * run->frame, and sets it back afterwards. */
scope_frame_t *scope_new(run_t *run, scope_frame_t *parent);
/* Assigns to a target: a name, an attribute of a namespace, or several targets to unpack into.
 * Fails if the number of values is not that of the targets. */
void scope_assign(run_t *run, const ast_node_t *target, const value_t *value);

typedef struct macro {
  const ast_node_t *node; /* NODE_MACRO */
  scope_frame_t *frame;   /* scope of its definition, the parent of each call's scope */
} macro_t;
/* exec.c: returns what the macro prints, as a string. */
value_t macro_call(run_t *run, const macro_t *macro, const arguments_t *arguments);

/* The state of one running for loop, which the template sees as `loop`. */
typedef struct loop {
  const value_list_t *source;        /* items; those from `next` on are not filtered yet */
  const ast_node_t *head;            /* NODE_HEAD; its filter c may be NULL */
  scope_frame_t *frame, *test_frame; /* scopes of the body and of the filter (NULL = no filter) */
  uint32_t next;                     /* index in source of the item that is taken next */
  uint32_t index;  /* of the current item, from 0; counts only what passes the filter */
  uint32_t depth0; /* loop.depth0: always 0, no loop is recursive */
  int64_t length;  /* items that pass the filter; -1: not computed yet */
  value_t previous, current, after; /* after: taken ahead for loop.last and loop.nextitem */
  bool has_previous, has_after;
  value_list_t *changed; /* the arguments of the last loop.changed(); NULL: not called yet */
} loop_t;
/* loop.c: runs a NODE_FOR. A break or continue of its body ends here; the result is the flow of the
 * else branch if that ran, otherwise FLOW_NEXT. */
flow_t loop_run(run_t *run, const ast_node_t *node);
/* Returns loop.NAME; undefined if there is no such attribute. Methods come bound to the loop. */
value_t loop_attribute(run_t *run, loop_t *loop, const str_t *name);
/* Calls loop.cycle or loop.changed; `number` is LOOP_CYCLE or LOOP_CHANGED. */
value_t loop_method(run_t *run, loop_t *loop, int number, const arguments_t *arguments);
enum { LOOP_CYCLE, LOOP_CHANGED };

#endif
