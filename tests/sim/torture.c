/* torture.c: whatever can fail fails once, and nothing else does.
 *
 * For each case (a start, or a request of some route) the fallible calls of the project's code are
 * counted; then the case runs again once for every one of them, with that call failing: heap,
 * files, random numbers, libuv's pool. Wanted each time: no crash, no leak, an end, the usual
 * status or a 5xx with a valid body, and a next request that is answered as ever on the same engine
 * and server.
 */
#include "tests/sim/faults.h"
#include "tests/sim/web.h"

#include "engine/base/json.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MAX = 3000, POINTS_MAX = 100000, CACHED_BLOCKS_MAX = 64 };

typedef struct torture_case {
  const char *name;
  web_route_t route;
  const char *body;
  int status;
  int hang_up_at; /* iteration; 0 = never */
} torture_case_t;

#define COMPLETIONS                                                                                \
  { "/v1/completions", "", api_completions }
#define CHAT                                                                                       \
  { "/v1/chat/completions", "", api_chat_completions }
#define TOKENIZE                                                                                   \
  { "/tokenize", "", api_tokenize }
#define DETOKENIZE                                                                                 \
  { "/detokenize", "", api_detokenize }

static const torture_case_t cases[] = {
    {"a completion", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":8}", 200, 0},
    {"ids", COMPLETIONS, "{\"prompt\":[66,67,68],\"max_tokens\":8}", 200, 0},
    {"prompts", COMPLETIONS, "{\"prompt\":[\"a b\",\"c\",\"d e f\"],\"max_tokens\":4}", 200, 0},
    {"a stream", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":8,\"stream\":true}", 200, 0},
    {"a stream with usage", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":8,\"stream\":true,"
     "\"stream_options\":{\"include_usage\":true}}",
     200, 0},
    {"a stream of choices", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"stream\":true,\"n\":3}", 200, 0},
    {"choices", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":4,\"n\":3}", 200, 0},
    {"the best of some", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"n\":2,\"best_of\":4}", 200, 0},
    {"stop strings", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":9,\"stop\":[\"ef\",\"x\"]}",
     200, 0},
    {"stop ids", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":9,\"stop_token_ids\":[70]}",
     200, 0},
    {"logprobs", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":4,\"logprobs\":3}", 200, 0},
    {"streamed logprobs", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"logprobs\":3,\"stream\":true}", 200, 0},
    {"echo", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":4,\"echo\":true}", 200, 0},
    {"echoed ids with logprobs", COMPLETIONS,
     "{\"prompt\":[66,67,68],\"max_tokens\":4,\"echo\":true,\"logprobs\":2}", 200, 0},
    {"scores", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":0,\"echo\":true,\"logprobs\":1}",
     200, 0},
    {"prompt logprobs", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"prompt_logprobs\":2}", 200, 0},
    {"token ids", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":4,\"return_token_ids\":true}",
     200, 0},
    {"a bias", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"logit_bias\":{\"66\":5,\"67\":-5}}", 200, 0},
    {"bad words", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"bad_words\":[\"bad\",\"words\"]}", 200, 0},
    {"allowed ids", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"allowed_token_ids\":[66,67,68]}", 200, 0},
    {"a salt", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"cache_salt\":\"mine\",\"request_id\":\"r-1\"}", 200,
     0},
    {"an ignored field", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":4,\"user\":\"somebody\",\"seed\":7}", 200, 0},
    {"a client that goes at once", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":40,\"stream\":true}", 0, 1},
    {"a client that goes later", COMPLETIONS,
     "{\"prompt\":\"hello\",\"max_tokens\":40,\"stream\":true}", 0, 9},
    {"a client that goes while it waits", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":40}",
     0, 9},
    {"no JSON", COMPLETIONS, "{\"prompt\":\"hello\",", 400, 0},
    {"a wrong type", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":\"many\"}", 400, 0},
    {"too many tokens", COMPLETIONS, "{\"prompt\":\"hello\",\"max_tokens\":100000}", 400, 0},
    {"an unknown model", COMPLETIONS, "{\"model\":\"no-such\",\"prompt\":\"hello\"}", 404, 0},
    {"a refused field", COMPLETIONS, "{\"prompt\":\"hello\",\"suffix\":\"x\"}", 400, 0},
    {"a chat without a template", CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}", 400, 0},
    {"tokenize", TOKENIZE, "{\"prompt\":\"hello, world\"}", 200, 0},
    {"tokenize with pieces", TOKENIZE, "{\"prompt\":\"hello, world\",\"return_token_strs\":true}",
     200, 0},
    {"detokenize", DETOKENIZE, "{\"tokens\":[66,67,68]}", 200, 0},
    {"models", {"/v1/models", "", api_models}, "", 200, 0},
    {"a model", {"/v1/models/", "tiny", api_model}, "", 200, 0},
    {"version", {"/version", "", api_version}, "", 200, 0},
    {"ready", {"/readyz", "", api_readyz}, "", 200, 0},
    {"metrics", {"/metrics", "", api_metrics}, "", 200, 0},
};

static const torture_case_t probe = {"the next request", COMPLETIONS,
                                     "{\"prompt\":[70,71,72],\"max_tokens\":6}", 200, 0};

static const char *running; /* for messages */
static uint64_t point;

static void make_options(engine_options_t *o) {
  engine_options_default(o);
  o->mask_threads = 0; /* a run is a function of its seed */
  o->model_dir = "tests/fixtures/tiny";
  o->ops = &ops_sim;
  o->dummy_weights = true;
  o->seed = 7;
  o->num_blocks = 200;
  o->max_num_seqs = 8;
  o->max_num_batched_tokens = 64;
  o->max_model_len = 512;
  o->max_queue_requests = 32;
}

/* Until everything that was asked is over and the engine has nothing left. */
static void run_until_idle(int index, int hang_up_at) {
  for (int iteration = 1; iteration < ITERATIONS_MAX; iteration++) {
    sim.iteration++;
    int idle_ms = engine_iterate(sim.engine);
    web_iterate();
    if (iteration == hang_up_at) web_hang_up(index);
    if (idle_ms > 0) sim.now_ns += (uint64_t)idle_ms * 1000000u;
    if (idle_ms > 0 && !web_busy() && sim.engine->num_live == 0) return;
  }
  sim_fail("%s, call %llu (%s): it does not end", running, (unsigned long long)point,
           faults_last());
}

static void require_json(const char *body, size_t length) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  REQUIRE(json_parse(body, length, &json_limits_model, &doc, &error) == 0,
          "%s, call %llu (%s): %s in the body %.*s", running, (unsigned long long)point,
          faults_last(), error.message, (int)length, body);
  json_free(doc);
}

static void check_answer(const torture_case_t *c, int index, bool failed) {
  bool over;
  const char *body;
  size_t length;
  int status = web_status(index, &over, &body, &length);
  if (c->hang_up_at > 0) return; /* it went, or was answered before: both are an end */
  REQUIRE(over && (status == c->status || (failed && status >= 500)),
          "%s, call %llu (%s): status %d", running, (unsigned long long)point, faults_last(),
          status);
  if (length > 6 && memcmp(body, "data: ", 6) == 0) {
    static const char done[] = "data: [DONE]\n\n";
    REQUIRE(length >= sizeof done - 1 &&
                memcmp(body + length - (sizeof done - 1), done, sizeof done - 1) == 0,
            "%s, call %llu (%s): a stream without its end", running, (unsigned long long)point,
            faults_last());
  } else if (length > 0 && (body[0] == '{' || body[0] == '[')) {
    require_json(body, length);
  }
}

static void ask(const torture_case_t *c, int index) {
  web_request(index, &c->route, c->body);
  run_until_idle(index, c->hang_up_at);
}

static void check_probe(void) {
  bool over;
  const char *body;
  size_t length;
  ask(&probe, 1);
  int status = web_status(1, &over, &body, &length);
  REQUIRE(over && status == 200 && memmem(body, length, "\"text\":\"abcdef\"", 15),
          "%s, call %llu (%s): the next request gets %d %.*s", running, (unsigned long long)point,
          faults_last(), status, (int)length, body);
  const block_pool_t *pool = sim.engine->pool;
  REQUIRE(pool->num_free == pool->num_blocks - 1, "%s, call %llu (%s): blocks are held", running,
          (unsigned long long)point, faults_last());
}

/* Returns how many calls have failed. */
static uint64_t run_case(const torture_case_t *c) {
  running = c->name;
  ask(c, 0); /* nothing fails; caches are warm afterwards */
  check_answer(c, 0, false);
  check_probe();
  int64_t heap = alloc_live();
  for (point = 1; point < POINTS_MAX; point++) {
    faults_arm(point);
    ask(c, 0);
    bool failed = faults_disarm();
    check_answer(c, 0, failed);
    check_probe();
    if (!failed) break;
  }
  REQUIRE(alloc_live() <= heap + CACHED_BLOCKS_MAX, "%s: %lld heap blocks are left", c->name,
          (long long)(alloc_live() - heap));
  return point - 1;
}

/* Loading the model: a reason instead of an engine, and nothing left behind. */
static uint64_t run_start(void) {
  engine_options_t options;
  make_options(&options);
  running = "start";
  for (point = 1; point < POINTS_MAX; point++) {
    inferd_error_t error = {0};
    int64_t heap = alloc_live();
    faults_arm(point);
    int code = engine_new(&options, &sim.engine, &error);
    if (code == 0) engine_load(sim.engine);
    bool failed = faults_disarm();
    bool ready = code == 0 && engine_state(sim.engine) == ENGINE_READY;
    if (code == 0 && !ready) engine_failure(sim.engine, &error);
    REQUIRE(ready ? true : failed && error.message[0], "start, call %llu (%s): %s",
            (unsigned long long)point, faults_last(), error.message);
    if (code == 0) engine_destroy(sim.engine);
    REQUIRE(alloc_live() == heap, "start, call %llu (%s): %lld heap blocks are left",
            (unsigned long long)point, faults_last(), (long long)(alloc_live() - heap));
    if (!failed) break;
  }
  return point - 1;
}

uint64_t torture_run(void) {
  memset(&sim, 0, sizeof sim);
  sim.torture = true;
  sim.now_ns = 1000000000u;
  ops_sim.pipeline_depth = 1;
  uint64_t total = run_start();
  printf("torture: %-34s %6llu calls\n", "start", (unsigned long long)total);
  engine_options_t options;
  inferd_error_t error = {0};
  make_options(&options);
  REQUIRE(engine_new(&options, &sim.engine, &error) == 0, "%s", error.message);
  engine_load(sim.engine);
  REQUIRE(engine_state(sim.engine) == ENGINE_READY, "the engine does not start");
  web_start();
  size_t count = sizeof cases / sizeof cases[0];
  for (size_t i = 0; i < count; i++) {
    uint64_t calls = run_case(&cases[i]);
    printf("torture: %-34s %6llu calls\n", cases[i].name, (unsigned long long)calls);
    total += calls;
  }
  engine_end(sim.engine);
  web_iterate();
  web_stop();
  engine_destroy(sim.engine);
  printf("torture: %zu cases, %llu calls failed one by one, no promise broken\n", count + 1,
         (unsigned long long)total);
  return total;
}
