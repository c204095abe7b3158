/* eval.h: the walk over the tree.
 *
 * The rendering thread only.
 */
#ifndef INFERD_ENGINE_TEMPLATE_RUN_EVAL_H
#define INFERD_ENGINE_TEMPLATE_RUN_EVAL_H

#include "engine/template/compile/ast.h"
#include "engine/template/library/library.h"
#include "engine/template/run/run.h"

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow_t;

value_t eval(run_t *run, const ast_node_t *node);
flow_t exec(run_t *run, const ast_node_t *list);
void eval_arguments(run_t *run, const ast_node_t *list, arguments_t *out);
value_t eval_filter(run_t *run, const ast_node_t *node, const value_t *in);

/* Assigns in the current scope. */
void scope_set(run_t *run, uint32_t symbol, value_t value);
value_t scope_get(run_t *run, uint32_t symbol);
scope_frame_t *scope_new(run_t *run, scope_frame_t *parent);
void scope_assign(run_t *run, const ast_node_t *target, const value_t *value);

typedef struct macro {
  const ast_node_t *node;
  scope_frame_t *frame; /* where it was defined */
} macro_t;
value_t macro_call(run_t *run, const macro_t *macro, const arguments_t *arguments);

/* The `loop` of a for. */
typedef struct loop {
  const value_list_t *source;
  const ast_node_t *head; /* its filter, c, may be NULL */
  scope_frame_t *frame, *test_frame;
  uint32_t next;  /* in source */
  uint32_t index; /* of the current item, from 0 */
  uint32_t depth0;
  int64_t length; /* -1: not computed yet */
  value_t previous, current, after;
  bool has_previous, has_after;
  value_list_t *changed; /* what loop.changed saw last */
} loop_t;
flow_t loop_run(run_t *run, const ast_node_t *node);
value_t loop_attribute(run_t *run, loop_t *loop, const str_t *name);
value_t loop_method(run_t *run, loop_t *loop, int number, const arguments_t *arguments);
enum { LOOP_CYCLE, LOOP_CHANGED };

#endif
