/* stage_log.c: the debug lines of requests, see stage_log.h.
 *
 * Loop thread. The engine's own lines come from its trace, a bounded ring that the loop prints: the
 * engine never waits for the log.
 */
#include "server/completion/stage_log.h"

#include "server/observe/log.h"

static const char EVENT_NAME[] = "stage";

void stage_log_checked(const completion_t *completion) {
  if (!log_wanted(LOG_DEBUG)) return;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    const input_t *input = &completion->inputs[i];
    log_line(LOG_DEBUG, EVENT_NAME, "request %llu: checked, id %s, %d prompt tokens, %d choices",
             (unsigned long long)input->request.id, completion->exchange->request_id,
             input->request.num_prompt_tokens, input->num_choices);
  }
}

void stage_log_queued(const completion_t *completion) {
  if (!log_wanted(LOG_DEBUG)) return;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    if (completion->inputs[i].held_back) continue;
    log_line(LOG_DEBUG, EVENT_NAME, "request %llu: queued",
             (unsigned long long)completion->inputs[i].request.id);
  }
}

static void print_record(void *context, const trace_record_t *record) {
  static const char *const finish[] = {"none", "stop", "length", "abort", "error"};
  char what[64] = "";
  (void)context;
  switch (record->kind) {
  case TRACE_ADMITTED:
    snprintf(what, sizeof what, "admitted with %d tokens", record->num_tokens);
    break;
  case TRACE_PREEMPTED:
    snprintf(what, sizeof what, "preempted with %d tokens, %s", record->num_tokens,
             record->detail != 0 ? "swapped to the host" : "to be computed again");
    break;
  case TRACE_FIRST_TOKEN: snprintf(what, sizeof what, "first token"); break;
  case TRACE_FINISHED:
    snprintf(what, sizeof what, "finished by %s, %d output tokens", finish[record->detail],
             record->num_tokens);
    break;
  }
  log_line(LOG_DEBUG, EVENT_NAME, "request %llu: %s, %.3f ms after its arrival",
           (unsigned long long)record->request_id, what,
           (double)(record->time_ns - record->arrival_ns) * 1e-6);
}

void stage_log_engine(server_t *server) {
  uint64_t dropped = engine_trace(server->engine, print_record, NULL);
  if (dropped == 0) return;
  log_line(LOG_DEBUG, EVENT_NAME, "%llu lines of the engine were dropped",
           (unsigned long long)dropped);
}
