/* choices.c: see choices.h. Engine thread while the request lives, loop thread afterwards. */
#include "engine/sample/choices.h"

#include "engine/base/check.h"
#include "engine/base/checked.h"

/* The room: choices_t with its candidates, the path (int32_t per output token), the nodes. Nodes
 * stand by position, then sequence; behind them one spare node per candidate. */

static size_t tops_of(const sampling_params_t *p) {
  return p->num_logprobs < 0 ? 0 : (size_t)p->num_logprobs + (size_t)p->num_logprob_token_ids;
}

static size_t node_bytes(const sampling_params_t *p) {
  return sizeof(choice_node_t) + tops_of(p) * sizeof(token_logprob_t);
}

static size_t path_at(const sampling_params_t *p) {
  return sizeof(choices_t) + (size_t)params_num_sequences(p) * sizeof(candidate_t);
}

static size_t nodes_at(const sampling_params_t *p) {
  return path_at(p) + ((size_t)p->max_tokens + 1) / 2 * 2 * sizeof(int32_t);
}

size_t choices_bytes(const sampling_params_t *p) {
  if (!params_collect(p)) return 0;
  size_t width = (size_t)params_num_sequences(p), nodes, bytes;
  if (!checked_mul(width, (size_t)p->max_tokens + 1, &nodes) ||
      !checked_mul(nodes, node_bytes(p), &bytes) || !checked_add(bytes, nodes_at(p), &bytes)) {
    return SIZE_MAX;
  }
  return bytes;
}

/* ---- tokens ---- */

int32_t choices_index(const sequence_t *q, int32_t position) {
  return position * params_num_sequences(&q->group->request->params) + q->index;
}

choice_node_t *choices_node(const request_t *request, int32_t index) {
  const sampling_params_t *p = &request->params;
  char *nodes = (char *)request->room + nodes_at(p);
  return (choice_node_t *)(void *)(nodes + (size_t)index * node_bytes(p));
}

void choices_set_node(const request_t *request, int32_t index, int32_t parent,
                      const event_t *token) {
  choice_node_t *node = choices_node(request, index);
  int32_t most = (int32_t)tops_of(&request->params);
  *node = (choice_node_t){
      .parent = parent,
      .id = token->token_id,
      .logprob = token->logprob,
      .rank = token->rank,
      .num_top = token->num_top < most ? token->num_top : most,
  };
  for (int32_t i = 0; i < node->num_top; i++) node->top[i] = token->top[i];
}

void choices_keep_token(const sequence_t *q, const event_t *token) {
  int32_t parent = token->position > 0 ? choices_index(q, token->position - 1) : -1;
  choices_set_node(q->group->request, choices_index(q, token->position), parent, token);
}

/* ---- candidates ---- */

static bool ranks_before(const candidate_t *a, double score, int32_t order) {
  return a->score > score || (a->score == score && a->order < order);
}

candidate_t *choices_add(const request_t *request, double score, int32_t order) {
  choices_t *c = choices_of(request);
  int32_t most = params_num_sequences(&request->params), at = c->num_candidates;
  c->num_finished++;
  while (at > 0 && !ranks_before(&c->candidates[at - 1], score, order)) at--;
  if (at == most) return NULL;
  if (c->num_candidates < most) c->num_candidates++;
  for (int32_t i = c->num_candidates - 1; i > at; i--) c->candidates[i] = c->candidates[i - 1];
  c->candidates[at] = (candidate_t){
      .score = score,
      .order = order,
      .tail = -1,
      .stop_token_id = -1,
      .stop_string = -1,
  };
  return &c->candidates[at];
}

int32_t choices_spare_node(const request_t *request) {
  const choices_t *c = choices_of(request);
  int32_t spare = request->params.max_tokens * params_num_sequences(&request->params);
  for (int32_t i = 0; i < c->num_candidates; i++) {
    if (c->candidates[i].tail != spare) continue;
    spare++; /* taken: look again from the start for the next one */
    i = -1;
  }
  return spare;
}

void choices_add_sequence(const sequence_t *q, finish_reason_t finish) {
  int32_t count = q->num_output_tokens;
  double score = count > 0 ? q->cumulative_logprob / count : 0;
  candidate_t *candidate = choices_add(q->group->request, score, q->index);
  if (candidate == NULL) return;
  candidate->cumulative = q->cumulative_logprob;
  candidate->tail = count > 0 ? choices_index(q, count - 1) : -1;
  candidate->num_tokens = count;
  candidate->finish = finish;
  candidate->stop_token_id = q->stop_token_id;
  candidate->stop_string = q->stop_string;
  candidate->by_grammar = q->ended_by_grammar;
}

/* Candidates that are returned. */
static int32_t num_returned(const request_t *request) {
  int32_t n = params_num_choices(&request->params);
  int32_t there = choices_of(request)->num_candidates;
  return n < there ? n : there;
}

int64_t choices_num_tokens(const request_t *request) {
  int64_t sum = 0;
  for (int32_t i = 0; i < num_returned(request); i++) {
    sum += choices_of(request)->candidates[i].num_tokens;
  }
  return sum;
}

finish_reason_t choices_finish(const request_t *request) {
  const choices_t *c = choices_of(request);
  return c->num_candidates > 0 ? c->candidates[0].finish : FINISH_LENGTH;
}

/* ---- reading ---- */

typedef struct replay {
  const event_t *done;
  detokenizer_t detokenizer;
  char *text;
  void (*handle)(void *context, const event_t *event);
  void *context;
} replay_t;

/* Whether the bytes of the last token belong to the text. */
static bool shows_token(const request_t *request, const candidate_t *c, int32_t id, bool last) {
  bool is_eos = last && c->finish == FINISH_STOP && c->stop_string < 0 && !c->by_grammar;
  (void)id;
  return !is_eos || request->include_stop_string;
}

static void replay_token(replay_t *r, const candidate_t *c, int32_t choice, int32_t position,
                         const choice_node_t *node) {
  const request_t *request = r->done->request;
  bool has_logprob = request->params.num_logprobs >= 0;
  detokenized_t text = {.text = ""};
  if (shows_token(request, c, node->id, position == c->num_tokens - 1)) {
    bool may_stop = position + 1 >= request->params.min_tokens;
    text = detokenizer_feed(&r->detokenizer, node->id, may_stop, r->text);
  }
  event_t event = {
      .request = r->done->request,
      .kind = EVENT_TOKEN,
      .choice = choice,
      .token_id = node->id,
      .position = position,
      .has_logprob = has_logprob,
      .logprob = node->logprob,
      .rank = node->rank,
      .num_top = has_logprob ? node->num_top : 0,
      .top = node->top,
      .text = text.text,
      .text_length = (uint32_t)text.length,
      .stop_token_id = -1,
      .stop_string = -1,
  };
  r->handle(r->context, &event);
}

static void replay_end(replay_t *r, const candidate_t *c, int32_t choice) {
  detokenized_t rest = {.text = ""};
  if (c->stop_string < 0 && c->num_tokens > 0) rest = detokenizer_finish(&r->detokenizer, r->text);
  event_t event = *r->done;
  event.kind = EVENT_CHOICE_DONE;
  event.choice = choice;
  event.text = rest.text;
  event.text_length = (uint32_t)rest.length;
  event.finish = c->finish;
  event.stop_token_id = c->stop_token_id;
  event.stop_string = c->stop_string;
  event.num_output_tokens = c->num_tokens;
  event.cumulative_logprob = c->cumulative;
  r->handle(r->context, &event);
}

void choices_replay(const event_t *done, const tokenizer_t *tokenizer, char *text, char *held,
                    void (*handle)(void *context, const event_t *event), void *context) {
  const request_t *request = done->request;
  replay_t r = {.done = done, .text = text, .handle = handle, .context = context};
  int32_t *path = (int32_t *)(void *)((char *)request->room + path_at(&request->params));
  /* Should a tiny vocabulary have ended the search early, the choices that lack are empty. */
  const candidate_t none = {
      .tail = -1, .finish = FINISH_LENGTH, .stop_token_id = -1, .stop_string = -1};
  for (int32_t i = 0; i < params_num_choices(&request->params); i++) {
    const candidate_t *c = i < num_returned(request) ? &choices_of(request)->candidates[i] : &none;
    int32_t count = c->num_tokens;
    for (int32_t node = c->tail; node >= 0; node = choices_node(request, node)->parent) {
      CHECK_GT(count, 0);
      path[--count] = node;
    }
    detokenizer_init(&r.detokenizer, tokenizer, request->stops, request->skip_special_tokens,
                     request->include_stop_string, held);
    r.detokenizer.shown_ids = request->shown_ids;
    r.detokenizer.num_shown_ids = request->num_shown_ids;
    for (int32_t t = 0; t < c->num_tokens; t++) {
      replay_token(&r, c, i, t, choices_node(request, path[t]));
    }
    replay_end(&r, c, i);
  }
}
