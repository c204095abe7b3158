/* flight.c: steps in flight: launch (stages 4 to 7 of 9) and landing.
 *
 * Engine thread; allocates in flight_new only. A back end with pipeline_depth 2 gets step N + 1
 * while it works on N, so that it never waits for the host. Ids that N draws are placeholders in N
 * + 1 (ops.h), and a stop found in N makes one row of N + 1 worthless: commit.c drops it. Blocks
 * need no fences, because the device works off its steps in order. With depth 1 nothing of this
 * happens: each launch is followed by its landing.
 */
#include "engine/internal.h"

#include "engine/clock.h"

#include <stdlib.h>
#include <string.h>

int flight_new(const engine_t *e, flight_t *f) {
  const engine_options_t *o = &e->options;
  size_t seqs = (size_t)o->max_num_seqs, rows = (size_t)o->max_num_batched_tokens + seqs;
  f->plan.entries = calloc(seqs, sizeof *f->plan.entries);
  f->plan.copies = calloc(seqs, sizeof *f->plan.copies);
  f->sample_rows = calloc(rows, sizeof *f->sample_rows);
  f->sample_results = calloc(rows, sizeof *f->sample_results);
  f->suppressed_ids = calloc(seqs * SUPPRESSED_MAX, sizeof *f->suppressed_ids);
  f->masks = calloc(seqs * (size_t)e->constrain.row_words, sizeof *f->masks);
  if (!f->plan.entries || !f->plan.copies || !f->sample_rows || !f->sample_results ||
      !f->suppressed_ids || !f->masks) {
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

bool engine_launch(engine_t *e, uint64_t now_ns) {
  if (!may_launch(e) || scheduler_plan(e->scheduler, now_ns) == 0) return false;
  flight_t *f = &e->flights[e->next_flight];
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

flight_t *engine_land(engine_t *e, error_t *error) {
  CHECK(e->num_flights > 0);
  flight_t *f = &e->flights[(e->next_flight + e->flights_most - e->num_flights) % e->flights_most];
  e->num_flights--;
  int code = e->ops->end(e->device, error);
  scheduler_unpin(e->scheduler, &f->plan);
  return code == 0 ? f : NULL;
}

void engine_land_all(engine_t *e) {
  error_t ignored;
  while (e->num_flights > 0) engine_land(e, &ignored);
}
