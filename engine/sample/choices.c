/* choices.c: the memory of choices that are known only at the end; the contract is in choices.h.
 *
 * Engine thread until EVENT_DONE, loop thread afterwards. Allocates nothing.
 */
#include "engine/sample/choices.h"

#include "engine/base/check.h"
#include "engine/base/checked.h"
#include "engine/base/util.h"

/* Layout of request_t.room: choices_t with its candidates, the path (int32_t per output token), the
 * nodes. Nodes are ordered by position, then by sequence; after them comes one spare node per
 * candidate. */

static size_t tops_of(const sampling_params_t *params) {
  return params->num_logprobs < 0
             ? 0
             : (size_t)params->num_logprobs + (size_t)params->num_logprob_token_ids;
}

static size_t node_bytes(const sampling_params_t *params) {
  return sizeof(choice_node_t) + tops_of(params) * sizeof(token_logprob_t);
}

static size_t path_at(const sampling_params_t *params) {
  return sizeof(choices_t) + (size_t)params_num_sequences(params) * sizeof(candidate_t);
}

static size_t nodes_at(const sampling_params_t *params) {
  return path_at(params) + ((size_t)params->max_tokens + 1) / 2 * 2 * sizeof(int32_t);
}

size_t choices_bytes(const sampling_params_t *params) {
  if (!params_collect(params)) return 0;
  size_t width = (size_t)params_num_sequences(params), nodes, bytes;
  if (!checked_mul(width, (size_t)params->max_tokens + 1, &nodes) ||
      !checked_mul(nodes, node_bytes(params), &bytes) ||
      !checked_add(bytes, nodes_at(params), &bytes)) {
    return SIZE_MAX;
  }
  return bytes;
}

/* ---- tokens ---- */

int32_t choices_index(const sequence_t *seq, int32_t position) {
  return position * params_num_sequences(&seq->group->request->params) + seq->index;
}

static choice_node_t *node_at(const request_t *request, int32_t index) {
  const sampling_params_t *params = &request->params;
  char *nodes = (char *)request->room + nodes_at(params);
  return (choice_node_t *)(void *)(nodes + (size_t)index * node_bytes(params));
}

void choices_set_node(const request_t *request, int32_t index, int32_t parent,
                      const event_t *token) {
  choice_node_t *node = node_at(request, index);
  int32_t most = (int32_t)tops_of(&request->params);
  *node = (choice_node_t){
      .parent = parent,
      .id = token->token_id,
      .logprob = token->logprob,
      .rank = token->rank,
      .num_top = MIN(token->num_top, most),
  };
  for (int32_t i = 0; i < node->num_top; i++) node->top[i] = token->top[i];
}

void choices_keep_token(const sequence_t *seq, const event_t *token) {
  int32_t parent = token->position > 0 ? choices_index(seq, token->position - 1) : -1;
  choices_set_node(seq->group->request, choices_index(seq, token->position), parent, token);
}

/* ---- candidates ---- */

static bool ranks_before(const candidate_t *candidate, double score, int32_t order) {
  return candidate->score > score || (candidate->score == score && candidate->order < order);
}

candidate_t *choices_add(const request_t *request, double score, int32_t order) {
  choices_t *choices = choices_of(request);
  int32_t most = params_num_sequences(&request->params), at = choices->num_candidates;
  choices->num_finished++;
  while (at > 0 && !ranks_before(&choices->candidates[at - 1], score, order)) at--;
  if (at == most) return NULL;
  if (choices->num_candidates < most) choices->num_candidates++;
  for (int32_t i = choices->num_candidates - 1; i > at; i--)
    choices->candidates[i] = choices->candidates[i - 1];
  choices->candidates[at] = (candidate_t){
      .score = score,
      .order = order,
      .tail = -1,
      .stop_token_id = -1,
      .stop_string = -1,
  };
  return &choices->candidates[at];
}

int32_t choices_spare_node(const request_t *request) {
  const choices_t *choices = choices_of(request);
  int32_t spare = request->params.max_tokens * params_num_sequences(&request->params);
  for (int32_t i = 0; i < choices->num_candidates; i++) {
    if (choices->candidates[i].tail != spare) continue;
    spare++; /* this node is used: check the next one against all candidates */
    i = -1;
  }
  return spare;
}

void choices_add_sequence(const sequence_t *seq, finish_reason_t finish) {
  int32_t count = seq->num_output_tokens;
  double score = count > 0 ? seq->cumulative_logprob / count : 0;
  candidate_t *candidate = choices_add(seq->group->request, score, seq->index);
  if (candidate == NULL) return;
  candidate->cumulative = seq->cumulative_logprob;
  candidate->tail = count > 0 ? choices_index(seq, count - 1) : -1;
  candidate->num_tokens = count;
  candidate->finish = finish;
  candidate->stop_token_id = seq->stop_token_id;
  candidate->stop_string = seq->stop_string;
  candidate->by_grammar = seq->ended_by_grammar;
}

/* Number of candidates that are returned. */
static int32_t num_returned(const request_t *request) {
  int32_t n = params_num_choices(&request->params);
  int32_t there = choices_of(request)->num_candidates;
  return MIN(n, there);
}

int64_t choices_num_tokens(const request_t *request) {
  int64_t sum = 0;
  for (int32_t i = 0; i < num_returned(request); i++) {
    sum += choices_of(request)->candidates[i].num_tokens;
  }
  return sum;
}

finish_reason_t choices_finish(const request_t *request) {
  const choices_t *choices = choices_of(request);
  return choices->num_candidates > 0 ? choices->candidates[0].finish : FINISH_LENGTH;
}

/* ---- reading ---- */

typedef struct replay {
  const event_t *done;
  detokenizer_t detokenizer;
  char *text;
  void (*handle)(void *context, const event_t *event);
  void *context;
} replay_t;

/* Whether the bytes of a token belong to the text. Those of a final stop token belong to it only
 * with include_stop_string. */
static bool shows_token(const request_t *request, const candidate_t *candidate, int32_t id,
                        bool last) {
  bool is_eos = last && candidate->finish == FINISH_STOP && candidate->stop_string < 0 &&
                !candidate->by_grammar;
  (void)id;
  return !is_eos || request->include_stop_string;
}

static void replay_token(replay_t *replay, const candidate_t *candidate, int32_t choice,
                         int32_t position, const choice_node_t *node) {
  const request_t *request = replay->done->request;
  bool has_logprob = request->params.num_logprobs >= 0;
  detokenized_t text = {.text = ""};
  if (shows_token(request, candidate, node->id, position == candidate->num_tokens - 1)) {
    bool may_stop = position + 1 >= request->params.min_tokens;
    text = detokenizer_feed(&replay->detokenizer, node->id, may_stop, replay->text);
  }
  event_t event = {
      .request = replay->done->request,
      .kind = EVENT_TOKEN,
      .choice = choice,
      .token_id = node->id,
      .position = position,
      .has_logprob = has_logprob,
      .logprob = node->logprob,
      .rank = node->rank,
      .num_top = has_logprob ? node->num_top : 0,
      .top = node->top,
      .top_lent = true,
      .text = text.text,
      .text_length = (uint32_t)text.length,
      .stop_token_id = -1,
      .stop_string = -1,
  };
  replay->handle(replay->context, &event);
}

static void replay_end(replay_t *replay, const candidate_t *candidate, int32_t choice) {
  detokenized_t rest = {.text = ""};
  if (candidate->stop_string < 0 && candidate->num_tokens > 0)
    rest = detokenizer_finish(&replay->detokenizer, replay->text);
  event_t event = *replay->done;
  event.kind = EVENT_CHOICE_DONE;
  event.choice = choice;
  event.text = rest.text;
  event.text_length = (uint32_t)rest.length;
  event.finish = candidate->finish;
  event.stop_token_id = candidate->stop_token_id;
  event.stop_string = candidate->stop_string;
  event.num_output_tokens = candidate->num_tokens;
  event.cumulative_logprob = candidate->cumulative;
  replay->handle(replay->context, &event);
}

void choices_replay(const event_t *done, const tokenizer_t *tokenizer, char *text, char *held,
                    void (*handle)(void *context, const event_t *event), void *context) {
  const request_t *request = done->request;
  replay_t replay = {.done = done, .text = text, .handle = handle, .context = context};
  int32_t *path = (int32_t *)(void *)((char *)request->room + path_at(&request->params));
  /* With a tiny vocabulary the search may end with too few candidates: the missing choices are
   * empty. */
  const candidate_t none = {
      .tail = -1, .finish = FINISH_LENGTH, .stop_token_id = -1, .stop_string = -1};
  for (int32_t i = 0; i < params_num_choices(&request->params); i++) {
    const candidate_t *candidate =
        i < num_returned(request) ? &choices_of(request)->candidates[i] : &none;
    int32_t count = candidate->num_tokens;
    for (int32_t node = candidate->tail; node >= 0; node = node_at(request, node)->parent) {
      CHECK_GT(count, 0);
      path[--count] = node;
    }
    detokenizer_init(&replay.detokenizer, tokenizer, request->stops, request->skip_special_tokens,
                     request->include_stop_string, held);
    replay.detokenizer.shown_ids = request->shown_ids;
    replay.detokenizer.num_shown_ids = request->num_shown_ids;
    for (int32_t t = 0; t < candidate->num_tokens; t++) {
      replay_token(&replay, candidate, i, t, node_at(request, path[t]));
    }
    replay_end(&replay, candidate, i);
  }
}
