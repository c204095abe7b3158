/* sequence.c: states of sequences, and the queues of groups.
 *
 * Engine thread only. Never allocates: groups come from a pool made at start (engine/start.c).
 */
#include "engine/schedule/sequence.h"

#include "engine/base/check.h"
#include "engine/base/random.h"
#include "engine/trace.h"

#include <string.h>

#define BIT(status) (1u << (status))

/* allowed_moves[from] is the set of states that may follow `from`. */
static const unsigned allowed_moves[SEQUENCE_STATUS_COUNT] = {
    /* a fork goes from NEW to RUNNING, the first sequence of a group from NEW to WAITING */
    [SEQUENCE_NEW] = BIT(SEQUENCE_WAITING) | BIT(SEQUENCE_RUNNING) | BIT(SEQUENCE_FINISHED_IGNORED),
    /* WAITING -> STOPPED or LENGTH_CAPPED: the sequence was preempted while its last token was in
     * flight; the same holds for SWAPPED */
    [SEQUENCE_WAITING] = BIT(SEQUENCE_RUNNING) | BIT(SEQUENCE_FINISHED_STOPPED) |
                         BIT(SEQUENCE_FINISHED_LENGTH_CAPPED) | BIT(SEQUENCE_FINISHED_ABORTED) |
                         BIT(SEQUENCE_FINISHED_IGNORED),
    [SEQUENCE_RUNNING] = BIT(SEQUENCE_WAITING) | BIT(SEQUENCE_SWAPPED) |
                         BIT(SEQUENCE_FINISHED_STOPPED) | BIT(SEQUENCE_FINISHED_LENGTH_CAPPED) |
                         BIT(SEQUENCE_FINISHED_ABORTED),
    [SEQUENCE_SWAPPED] = BIT(SEQUENCE_RUNNING) | BIT(SEQUENCE_FINISHED_STOPPED) |
                         BIT(SEQUENCE_FINISHED_LENGTH_CAPPED) | BIT(SEQUENCE_FINISHED_ABORTED) |
                         BIT(SEQUENCE_FINISHED_IGNORED),
    /* the object of a beam that was dropped becomes the fork of another */
    [SEQUENCE_FINISHED_ABORTED] = BIT(SEQUENCE_NEW),
};

bool sequence_transition_allowed(sequence_status_t from, sequence_status_t to) {
  return (allowed_moves[from] & BIT(to)) != 0;
}

/* One record for a group: that of its first live sequence. A fork that starts is none. */
static void trace_move(const sequence_t *sequence, sequence_status_t from, sequence_status_t to) {
  const sequence_t *first = &sequence->group->sequence;
  while (first != sequence && !sequence_is_live(first)) first = first->next;
  if (first != sequence || from == SEQUENCE_NEW || sequence_is_finished(sequence)) return;
  trace_add(sequence->group->trace, to == SEQUENCE_RUNNING ? TRACE_ADMITTED : TRACE_PREEMPTED,
            sequence->group->request, sequence_num_tokens(sequence), to == SEQUENCE_SWAPPED);
}

void sequence_set_status(sequence_t *sequence, sequence_status_t status) {
  sequence_status_t from = sequence->status;
  CHECK(sequence_transition_allowed(from, status));
  sequence->status = status;
  if (sequence->group->trace != NULL) trace_move(sequence, from, status);
}

void sequence_init(sequence_t *child, group_t *group, int32_t index) {
  const request_t *request = group->request;
  *child = (sequence_t){
      .group = group,
      .index = index,
      .status = SEQUENCE_NEW,
      .row = -1,
      .grammar_row = -1,
      .masks.narrow_from = -1,
      .num_prompt_tokens = request->num_prompt_tokens,
      .num_prefill_tokens = request->num_prompt_tokens,
      .rng_key = random_key(request->params.seed, (uint32_t)index),
      .stop_token_id = -1,
      .stop_string = -1,
  };
}

static bool is_plain(const request_t *request) {
  const sampling_params_t *params = &request->params;
  bool is_one = params->beam_width == 0 && params->max_tokens > 0;
  bool is_free =
      request->grammar == NULL && !params_have_penalties(params) && params->num_bad_words == 0;
  return is_one && is_free && request->adapter == 0 && request->second_text == 0 &&
         request->num_images == 0 && request->source == NULL && request->rows == NULL &&
         request->pooling == POOLING_NONE && params->num_prompt_logprobs < 0;
}

static bool tells_text_only(const request_t *request) {
  const sampling_params_t *params = &request->params;
  return !params_multiple(params) && params->num_logprobs < 0 && params->min_tokens == 0 &&
         params->num_stop_token_ids == 0;
}

void group_init(group_t *group, request_t *request, uint64_t arrival) {
  memset(group, 0, sizeof *group);
  group->request = request;
  group->arrival = arrival;
  group->id = request->id;
  group->max_tokens = request->params.max_tokens;
  group->width = (int16_t)params_width(&request->params);
  group->ignore_eos = request->params.ignore_eos;
  group->best_effort = request->best_effort;
  group->is_plain = is_plain(request);
  group->is_terse = group->is_plain && tells_text_only(request);
  group->in_use = true;
  group->siblings = (siblings_t){
      .lead = group,
      .num_begun = 1,
      .num_choices = params_num_sequences(&request->params) / group->width,
  };
  sequence_init(&group->sequence, group, 0);
}

void group_init_choice(group_t *group, group_t *lead, int32_t index) {
  group_init(group, lead->request, lead->arrival + (uint64_t)index);
  group->siblings.lead = lead;
  group->is_plain = group->is_plain && lead->is_plain;
  group->masks.by_history = lead->masks.by_history;
  sequence_init(&group->sequence, group, index);
  group->sequence.num_scored = group->sequence.num_prompt_tokens; /* the lead scores the prompt */
  detokenizer_init_as(&group->sequence.detokenizer, &lead->sequence.detokenizer);
}

void queue_push_tail(group_queue_t *queue, group_t *group) {
  queue_insert_before(queue, NULL, group);
}

void queue_insert_before(group_queue_t *queue, group_t *position, group_t *group) {
  group->next = position;
  group->prev = position != NULL ? position->prev : queue->tail;
  if (group->prev != NULL) {
    group->prev->next = group;
  } else {
    queue->head = group;
  }
  if (position != NULL) {
    position->prev = group;
  } else {
    queue->tail = group;
  }
  queue->count++;
  group->queue = queue;
}

void queue_remove(group_queue_t *queue, group_t *group) {
  if (group->prev != NULL) {
    group->prev->next = group->next;
  } else {
    queue->head = group->next;
  }
  if (group->next != NULL) {
    group->next->prev = group->prev;
  } else {
    queue->tail = group->prev;
  }
  group->prev = group->next = NULL;
  group->queue = NULL;
  queue->count--;
}
