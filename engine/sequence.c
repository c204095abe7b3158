/* sequence.c: states of sequences and the queues they wait in.
 *
 * Engine thread only. Never allocates: groups come from a pool made at start (engine/start.c).
 */
#include "engine/sequence.h"

#include "engine/sampler.h"

#include <string.h>

#define BIT(status) (1u << (status))

/* [from] = set of states that may follow. */
static const unsigned allowed_moves[SEQUENCE_STATUS_COUNT] = {
    [SEQUENCE_NEW] = BIT(SEQUENCE_WAITING) | BIT(SEQUENCE_FINISHED_IGNORED),
    [SEQUENCE_WAITING] =
        BIT(SEQUENCE_RUNNING) | BIT(SEQUENCE_FINISHED_ABORTED) | BIT(SEQUENCE_FINISHED_IGNORED),
    [SEQUENCE_RUNNING] = BIT(SEQUENCE_WAITING) | BIT(SEQUENCE_SWAPPED) |
                         BIT(SEQUENCE_FINISHED_STOPPED) | BIT(SEQUENCE_FINISHED_LENGTH_CAPPED) |
                         BIT(SEQUENCE_FINISHED_ABORTED),
    [SEQUENCE_SWAPPED] = BIT(SEQUENCE_RUNNING) | BIT(SEQUENCE_WAITING) |
                         BIT(SEQUENCE_FINISHED_ABORTED) | BIT(SEQUENCE_FINISHED_IGNORED),
};

bool sequence_transition_allowed(sequence_status_t from, sequence_status_t to) {
  return (allowed_moves[from] & BIT(to)) != 0;
}

void sequence_set_status(sequence_t *sequence, sequence_status_t status) {
  CHECK(sequence_transition_allowed(sequence->status, status));
  sequence->status = status;
}

void group_init(group_t *group, request_t *request, uint64_t arrival) {
  memset(group, 0, sizeof *group);
  group->request = request;
  group->arrival = arrival;
  sequence_t *s = &group->sequence;
  s->group = group;
  s->status = SEQUENCE_NEW;
  s->row = -1;
  s->num_prompt_tokens = request->num_prompt_tokens;
  s->num_prefill_tokens = request->num_prompt_tokens;
  s->rng_key = sampler_rng_key(request->params.seed, 0);
  s->stop_token_id = -1;
  s->stop_string = -1;
}

void queue_push_tail(group_queue_t *queue, group_t *group) {
  queue_insert_before(queue, NULL, group);
}

void queue_push_head(group_queue_t *queue, group_t *group) {
  queue_insert_before(queue, queue->head, group);
}

void queue_insert_before(group_queue_t *queue, group_t *position, group_t *group) {
  group->next = position;
  group->prev = position ? position->prev : queue->tail;
  if (group->prev) {
    group->prev->next = group;
  } else {
    queue->head = group;
  }
  if (position) {
    position->prev = group;
  } else {
    queue->tail = group;
  }
  queue->count++;
}

void queue_remove(group_queue_t *queue, group_t *group) {
  if (group->prev) {
    group->prev->next = group->next;
  } else {
    queue->head = group->next;
  }
  if (group->next) {
    group->next->prev = group->prev;
  } else {
    queue->tail = group->prev;
  }
  group->prev = group->next = NULL;
  queue->count--;
}
