/* embed.c: an example: the engine in a program of its own, without the server.
 *
 *     make && build/examples/embed models/demo "Once upon a time"
 *
 * Loads a model, submits one request and prints its text while it is generated. engine/engine.h and
 * engine/request.h are the whole interface; engine/README.md says what holds between the calls. The
 * main thread is the loop thread of these headers; the engine starts a thread of its own.
 */
#include "engine/base/clock.h"
#include "engine/engine.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 32 };

/* Posted by the engine thread whenever there are events to drain. */
static sem_t events_ready;

static void wake(void *context) {
  (void)context;
  sem_post(&events_ready);
}

/* Called by engine_drain on the main thread. The event is valid during the call only. */
static void on_event(void *context, const event_t *event) {
  bool *done = context;
  if (event->kind == EVENT_TOKEN) printf("%.*s", (int)event->text_length, event->text);
  if (event->kind != EVENT_DONE) return;
  printf("%.*s\n", (int)event->text_length, event->text);
  fprintf(stderr, "%s after %d tokens\n",
          event->finish == FINISH_STOP     ? "stop"
          : event->finish == FINISH_LENGTH ? "length"
                                           : error_name(event->error_code),
          event->num_output_tokens);
  *done = true;
}

static int fail(const inferd_error_t *error) {
  fprintf(stderr, "embed: %s\n", error->message);
  return error_exit_code(error->code);
}

/* Starts the engine and waits until the model is loaded. */
static int start(const char *model_dir, engine_t **engine, inferd_error_t *error) {
  engine_options_t options;
  engine_options_default(&options);
  options.model_dir = model_dir;
  options.device = "cpu";
  options.max_model_len = 512;
  options.wake = wake;
  int code = engine_create(&options, engine, error);
  if (code != 0) return code;
  while (engine_state(*engine) == ENGINE_LOADING) nanosleep(&(struct timespec){0, 1000000}, NULL);
  if (engine_state(*engine) == ENGINE_READY) return 0;
  engine_failure(*engine, error);
  return error->code;
}

/* Text -> token ids, which the caller frees. */
static int encode(const engine_t *engine, const char *text, int32_t **ids, size_t *count,
                  inferd_error_t *error) {
  const tokenizer_t *tokenizer = engine_tokenizer(engine);
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(tokenizer);
  if (scratch == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  tokenize_options_t options = {.add_special_tokens = true};
  int code = tokenizer_encode(tokenizer, scratch, text, strlen(text), &options, ids, count, error);
  tokenizer_scratch_free(scratch);
  return code;
}

/* Submits a prompt and prints its answer until the request's one EVENT_DONE has come. */
static int generate(engine_t *engine, const int32_t *ids, size_t count, inferd_error_t *error) {
  request_t request = {.id = 1,
                       .prompt_ids = ids,
                       .num_prompt_tokens = (int32_t)count,
                       .skip_special_tokens = true,
                       .arrival_ns = clock_now_ns(),
                       .params = {.temperature = 0, /* always the most likely token */
                                  .top_p = 1,
                                  .repetition_penalty = 1,
                                  .max_tokens = MAX_TOKENS,
                                  .num_logprobs = -1,
                                  .num_prompt_logprobs = -1}};
  request_t *requests[] = {&request};
  int code = engine_submit(engine, requests, 1, error);
  bool done = code != 0;
  while (!done) {
    sem_wait(&events_ready);
    engine_drain(engine, on_event, &done);
    fflush(stdout);
  }
  return code; /* the engine has given the request back */
}

int main(int argc, char **argv) {
  inferd_error_t error = {0};
  engine_t *engine = NULL;
  int32_t *ids = NULL;
  size_t count = 0;
  if (argc != 3) {
    fprintf(stderr, "usage: embed MODEL_DIR PROMPT\n");
    return 64;
  }
  sem_init(&events_ready, 0, 0);
  int code = start(argv[1], &engine, &error);
  if (code == 0) code = encode(engine, argv[2], &ids, &count, &error);
  if (code == 0) code = generate(engine, ids, count, &error);
  if (engine != NULL) engine_destroy(engine);
  free(ids);
  sem_destroy(&events_ready);
  return code == 0 ? 0 : fail(&error);
}
