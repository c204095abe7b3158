/* flight.c: steps in flight: launch (stages 4 to 7 of 9) and landing.
 *
 * Engine thread; allocates in flight_new only. A back end with pipeline_depth 2 gets step N + 1
 * while it works on N, so that it never waits for the host. Ids that N draws are placeholders in N
 * + 1 (ops.h), and a stop found in N makes one row of N + 1 worthless: commit.c drops it. Blocks
 * need no fences, because the device works off its steps in order. With depth 1 nothing of this
 * happens: each launch is followed by its landing.
 */
#include "engine/internal.h"

#include "engine/base/clock.h"

#include <stdlib.h>
#include <string.h>

int flight_new(const engine_t *e, flight_t *f) {
  const engine_options_t *o = &e->options;
  size_t seqs = (size_t)o->max_num_seqs, rows = (size_t)o->max_num_batched_tokens + seqs;
  f->plan.entries = calloc(seqs, sizeof *f->plan.entries);
  f->plan.copies = calloc(seqs, sizeof *f->plan.copies);
  f->sample_rows = calloc(rows, sizeof *f->sample_rows);
  f->sample_results = calloc(rows, sizeof *f->sample_results);
  f->tops = calloc(rows * SAMPLE_TOP_MAX, sizeof *f->tops);
  f->suppressed_ids = calloc(seqs * SUPPRESSED_MAX, sizeof *f->suppressed_ids);
  f->masks = calloc(seqs * (size_t)e->constrain.row_words, sizeof *f->masks);
  if (f->plan.entries == NULL || f->plan.copies == NULL || f->sample_rows == NULL ||
      f->sample_results == NULL || f->tops == NULL || f->suppressed_ids == NULL ||
      f->masks == NULL) {
    return -1;
  }
  return batch_new(o->max_num_batched_tokens, o->max_num_seqs, e->pool->block_size,
                   e->scheduler->table_stride, &f->batch);
}

void flight_free(flight_t *f) {
  batch_free(f->batch);
  free(f->plan.entries);
  free(f->plan.copies);
  free(f->sample_rows);
  free(f->sample_results);
  free(f->tops);
  free(f->suppressed_ids);
  free(f->masks);
}

/* True when the next token depends on the very ids of the ones before it, not only on the logits:
 * such a row can be described only when they are known. */
static bool needs_history(const engine_t *e, const request_t *request) {
  const sampling_params_t *p = &request->params;
  if (request->grammar != NULL) return true;
  if (e->ops->history_on_device) return false;
  return p->presence_penalty != 0 || p->frequency_penalty != 0 || p->repetition_penalty != 1 ||
         p->num_bad_words > 0;
}

/* Whether a step may be launched now. While another is in flight, none of its rows may be one whose
 * next token needs the one that it draws. */
static bool may_launch(const engine_t *e) {
  if (e->num_flights == 0) return true;
  if (e->num_flights == e->flights_most) return false;
  const flight_t *last = &e->flights[(e->next_flight + e->flights_most - 1) % e->flights_most];
  for (int32_t i = 0; i < last->plan.num_entries; i++) {
    const plan_entry_t *entry = &last->plan.entries[i];
    if (entry->do_sample && plan_entry_live(entry) &&
        (needs_history(e, entry->sequence->group->request) ||
         group_forks(entry->sequence->group))) {
      return false;
    }
  }
  return true;
}

/* How long a block takes to the host, as the back end has measured by now. */
static void note_swap_rate(engine_t *e) {
  swap_t *swap = &e->scheduler->swap;
  if (e->info.num_host_blocks == 0) return;
  swap->block_ns = e->host_block_bytes * 1e9 / e->ops->swap->rate(e->device);
}

static void launch_swaps(engine_t *e) {
  const plan_t *plan = &e->scheduler->plan;
  CHECK(plan->num_swap_out == 0 || plan->num_swap_in == 0);
  if (plan->num_swap_out > 0) e->ops->swap->out(e->device, plan->swaps, plan->num_swap_out);
  if (plan->num_swap_in > 0) e->ops->swap->in(e->device, plan->swaps, plan->num_swap_in);
  drafter_swap(e);
}

bool engine_launch(engine_t *e, uint64_t now_ns) {
  if (!may_launch(e)) return false;
  note_swap_rate(e);
  int32_t rows = scheduler_plan(e->scheduler, now_ns);
  launch_swaps(e);
  if (rows == 0) return false;
  flight_t *f = &e->flights[e->next_flight];
  f->launched_ns = now_ns;
  scheduler_take_plan(e->scheduler, &f->plan);
  uint64_t planned_ns = clock_now_ns();
  drafter_guess(e, f);
  uint64_t guessed_ns = clock_now_ns();
  batch_build(f->batch, &f->plan);
  uint64_t built_ns = clock_now_ns();
  e->stats.overhead_ns += built_ns - guessed_ns + planned_ns - now_ns;
  e->ops->begin(e->device, f->batch);
  model_forward(e->model, f->batch);
  engine_sample(e, f);
  drafter_mirror(e, f);
  e->next_flight = (e->next_flight + 1) % e->flights_most;
  e->num_flights++;
  e->stats.device_ns += clock_now_ns() - built_ns + guessed_ns - planned_ns;
  return true;
}

/* What a token of a prefill takes, from steps that are mostly prefills; smoothed. */
static void note_prefill_rate(engine_t *e, const flight_t *f) {
  const plan_t *plan = &f->plan;
  if (e->info.num_host_blocks == 0) return;
  uint64_t now_ns = clock_now_ns();
  uint64_t begun_ns = f->launched_ns > e->landed_ns ? f->launched_ns : e->landed_ns;
  e->landed_ns = now_ns;
  if (plan->num_tokens < 2 * plan->num_entries) return;
  double token_ns = (double)(now_ns - begun_ns) / plan->num_tokens;
  double *mean = &e->scheduler->swap.token_ns;
  *mean = *mean > 0 ? 0.9 * *mean + 0.1 * token_ns : token_ns;
}

flight_t *engine_land(engine_t *e, error_t *error) {
  CHECK(e->num_flights > 0);
  flight_t *f = &e->flights[(e->next_flight + e->flights_most - e->num_flights) % e->flights_most];
  e->num_flights--;
  int code = e->ops->end(e->device, error);
  note_prefill_rate(e, f);
  scheduler_unpin(e->scheduler, &f->plan);
  return code == 0 ? f : NULL;
}

void engine_land_all(engine_t *e) {
  error_t ignored;
  while (e->num_flights > 0) engine_land(e, &ignored);
}
