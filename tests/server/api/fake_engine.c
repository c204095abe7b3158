/* fake_engine.c: an engine that admits and waits to be told what to produce. Loop thread. */
#include "engine/base/check.h"
#include "tests/server/api/fake.h"

#include "engine/base/clock.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

struct engine {
  int unused;
};

fake_engine_t fake_engine;

typedef struct queued {
  event_t event;
  char text[64];
  token_logprob_t top[SAMPLE_TOP_MAX];
  bool lives; /* the request was not DONE before this event was queued */
} queued_t;

static queued_t queue[4096];
static int queue_length;

int engine_adapter_read(const engine_t *engine, const char *dir, struct adapter **out,
                        inferd_error_t *error) {
  (void)engine;
  *out = NULL;
  return error_set(error, ERR_MODEL_MISSING, "lora_path", "%.200s: the fake reads none", dir);
}
void engine_adapter_free(struct adapter *adapter) {
  CHECK(adapter == NULL);
}
void engine_adapter_set(engine_t *engine, int32_t slot, struct adapter *adapter) {
  (void)engine, (void)slot, (void)adapter;
}

engine_state_t engine_state(const engine_t *engine) {
  (void)engine;
  return fake_engine.state;
}

unsigned engine_sleep(engine_t *engine, bool sleeps) {
  (void)engine, (void)sleeps;
  return 0;
}

void engine_asleep(const engine_t *engine, engine_sleep_t *out) {
  (void)engine;
  *out = (engine_sleep_t){.can = false};
}

double engine_progress(const engine_t *engine) {
  (void)engine;
  return fake_engine.progress;
}

const engine_info_t *engine_info(const engine_t *engine) {
  (void)engine;
  return fake_engine.state == ENGINE_LOADING ? NULL : &fake_engine.info;
}

const tokenizer_t *engine_tokenizer(const engine_t *engine) {
  return fake_engine.state == ENGINE_LOADING ? NULL : (const tokenizer_t *)(const void *)engine;
}

void engine_stats(const engine_t *engine, engine_stats_t *out) {
  (void)engine;
  *out = fake_engine.stats;
}

void engine_stats_of(const engine_t *engine, int32_t replica, engine_stats_t *out) {
  (void)replica;
  engine_stats(engine, out);
}

bool engine_memory_pressure(double *some_s, double *full_s) {
  *some_s = *full_s = 0;
  return false; /* as of a kernel that does not say */
}

void engine_activity(const engine_t *engine, engine_activity_t *out) {
  (void)engine;
  *out = fake_engine.activity;
}

size_t engine_hash_prompt(const engine_t *engine, const request_t *request, void *out) {
  (void)engine, (void)out;
  return fake_engine.keys_per_token * (size_t)request->num_prompt_tokens;
}

int64_t engine_max_tokens(const engine_t *engine, const request_t *request) {
  (void)engine;
  return fake_engine.info.max_model_len - request->num_prompt_tokens;
}

int engine_submit(engine_t *engine, request_t *const *requests, int count, inferd_error_t *error) {
  (void)engine;
  if (fake_engine.refuse != 0) return error_set(error, fake_engine.refuse, NULL, "refused");
  for (int i = 0; i < count; i++) fake_engine.requests[fake_engine.num_requests++] = requests[i];
  return 0;
}

size_t engine_room_bytes(const sampling_params_t *params) {
  if (!params_collect(params)) return 0;
  return (size_t)params_num_sequences(params) * (size_t)params->max_tokens * 32;
}

size_t engine_scores_bytes(const engine_t *engine, const sampling_params_t *params,
                           int32_t num_prompt_tokens) {
  (void)engine, (void)params, (void)num_prompt_tokens;
  return fake_engine.scores_bytes;
}

static const char *token_bytes(const void *context, int32_t id, size_t *length) {
  bool special = (tokenizer_flags(NULL, id) & TOKEN_SPECIAL) != 0;
  const char *bytes = tokenizer_bytes(context, id, length);
  if (special) *length = 0;
  return bytes;
}

/* The real room of grammars over the fake tokenizer; made once. */
const struct grammar_vocabulary *engine_grammar_vocabulary(const engine_t *engine) {
  static grammar_vocabulary_t *vocabulary;
  (void)engine;
  if (vocabulary == NULL) {
    ASSERT_EQ(grammar_vocabulary_new(token_bytes, NULL, FAKE_VOCAB, FAKE_VOCAB, &vocabulary, NULL),
              0);
  }
  return vocabulary;
}

void engine_cancel(engine_t *engine, request_t *request) {
  (void)engine;
  bool found = false;
  for (int i = 0; i < fake_engine.num_requests; i++) {
    found = found || fake_engine.requests[i] == request;
  }
  cr_assert(found, "cancel of a request that the engine does not have");
  if (!atomic_exchange(&request->cancelled, true)) fake_engine.num_cancelled++;
}

static queued_t *push(request_t *request, event_kind_t kind, const char *text) {
  queued_t *q = &queue[queue_length++];
  memset(q, 0, sizeof *q);
  q->event.request = request;
  q->event.kind = kind;
  q->event.stop_token_id = q->event.stop_string = -1;
  strncpy(q->text, text, sizeof q->text - 1);
  q->event.text = q->text;
  q->event.text_length = (uint32_t)strlen(text);
  q->event.top = q->top;
  return q;
}

static int32_t num_outputs(const request_t *request, int32_t choice) {
  int32_t count = ((const input_t *)request->owner)->choices[choice].num_tokens;
  for (int i = 0; i < queue_length; i++) {
    const event_t *event = &queue[i].event;
    count += event->request == request && event->kind == EVENT_TOKEN && event->choice == choice;
  }
  return count;
}

void fake_choice_token(request_t *request, int32_t choice, int32_t id, const char *text) {
  int32_t position = num_outputs(request, choice);
  queued_t *q = push(request, EVENT_TOKEN, text);
  q->event.choice = choice;
  q->event.token_id = id;
  q->event.position = position;
}

void fake_token(request_t *request, int32_t id, const char *text) {
  fake_choice_token(request, 0, id, text);
}

static void add_top(queued_t *q, float logprob, const token_logprob_t *top, int32_t num_top) {
  q->event.has_logprob = true;
  q->event.logprob = logprob;
  q->event.rank = 1;
  q->event.num_top = num_top;
  if (num_top > SAMPLE_TOP_MAX) q->event.top = top; /* the caller's, as the engine's lent memory */
  for (int32_t i = 0; i < num_top && num_top <= SAMPLE_TOP_MAX; i++) q->top[i] = top[i];
}

void fake_choice_token_logprob(request_t *request, int32_t choice, int32_t id, const char *text,
                               float logprob, const token_logprob_t *top, int32_t num_top) {
  fake_choice_token(request, choice, id, text);
  add_top(&queue[queue_length - 1], logprob, top, num_top);
}

void fake_token_logprob(request_t *request, int32_t id, const char *text, float logprob,
                        const token_logprob_t *top, int32_t num_top) {
  fake_choice_token_logprob(request, 0, id, text, logprob, top, num_top);
}

void fake_prompt_logprob(request_t *request, int32_t position, float logprob, int32_t rank,
                         const token_logprob_t *top, int32_t num_top) {
  queued_t *q = push(request, EVENT_PROMPT_LOGPROB, "");
  add_top(q, logprob, top, num_top);
  q->event.position = position;
  q->event.token_id = request->prompt_ids[position];
  q->event.rank = rank;
}

static queued_t *push_end(request_t *request, event_kind_t kind, int32_t choice,
                          finish_reason_t finish, const char *text) {
  int32_t outputs = num_outputs(request, choice);
  queued_t *q = push(request, kind, text);
  q->event.choice = choice;
  q->event.finish = finish;
  q->event.num_output_tokens = outputs;
  q->event.finished_ns = q->event.first_scheduled_ns = clock_now_ns();
  if (outputs > 0) q->event.first_token_ns = q->event.finished_ns;
  return q;
}

static queued_t *push_done(request_t *request, finish_reason_t finish, const char *text) {
  return push_end(request, EVENT_DONE, 0, finish, text);
}

void fake_choice_done(request_t *request, int32_t choice, finish_reason_t finish,
                      const char *text) {
  push_end(request, EVENT_CHOICE_DONE, choice, finish, text);
}

void fake_done(request_t *request, finish_reason_t finish, const char *text) {
  push_done(request, finish, text);
}

void fake_done_stop(request_t *request, int32_t token_id, int32_t stop_string) {
  queued_t *q = push_done(request, FINISH_STOP, "");
  q->event.stop_token_id = token_id;
  q->event.stop_string = stop_string;
}

void fake_fail(request_t *request, int error_code) {
  push_done(request, FINISH_ERROR, "")->event.error_code = error_code;
}

int engine_drain(engine_t *engine, void (*handle)(void *context, const event_t *event),
                 void *context) {
  (void)engine;
  for (int i = 0; i < queue_length; i++) {
    const event_t *event = &queue[i].event;
    if (event->kind == EVENT_DONE) {
      int at = 0;
      while (fake_engine.requests[at] != event->request) at++;
      fake_engine.requests[at] = fake_engine.requests[--fake_engine.num_requests];
    }
    handle(context, event);
  }
  int count = queue_length;
  queue_length = 0;
  return count;
}

uint64_t engine_trace(engine_t *engine, void (*handle)(void *context, const trace_record_t *record),
                      void *context) {
  (void)engine, (void)handle, (void)context;
  return 0;
}

void fake_deliver(void) {
  completions_drain_events(&server);
}

void fake_finish_all(void) {
  while (fake_engine.num_requests > 0) {
    request_t *request = fake_engine.requests[0];
    for (int32_t i = 0; params_multiple(&request->params) && i < request->params.n; i++) {
      fake_choice_done(request, i, FINISH_LENGTH, "");
    }
    fake_done(request, FINISH_LENGTH, "");
    fake_deliver();
  }
}

static struct engine the_engine;

void fake_engine_reset(void) {
  memset(&fake_engine, 0, sizeof fake_engine);
  queue_length = 0;
  fake_engine.state = ENGINE_READY;
  fake_engine.info = (engine_info_t){.max_model_len = FAKE_CONTEXT,
                                     .kv_tokens = 64 * 16,
                                     .vocab_size = FAKE_VOCAB,
                                     .block_size = 16,
                                     .num_blocks = 65,
                                     .max_num_seqs = 8,
                                     .num_replicas = 1,
                                     .max_num_batched_tokens = 256,
                                     .primary_eos = FAKE_EOS,
                                     .temperature = __builtin_nanf(""),
                                     .top_p = __builtin_nanf(""),
                                     .min_p = __builtin_nanf(""),
                                     .repetition_penalty = __builtin_nanf(""),
                                     .top_k = -1,
                                     .max_new_tokens = -1,
                                     .backend = "cpu",
                                     .device = "1 thread",
                                     .dtype = "float32",
                                     .architecture = "Tiny"};
  server.engine = &the_engine;
}
