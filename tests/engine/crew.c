/* crew.c: an engine of a test over several ranks. */
#include "tests/engine/crew.h"

#include "engine/device/ops.h"
#include "engine/ranks/ranks.h"
#include "engine/ranks/shared.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *follow(void *context) {
  follower_t *follower = context;
  follower->code = engine_follow(&follower->options, &follower->error);
  return NULL;
}

engine_options_t crew_start(crew_t *crew, engine_options_t options, int32_t size) {
  inferd_error_t error = {0};
  int fd = -1;
  *crew = (crew_t){.size = size};
  ASSERT_EQ_FOR(shared_make(size, &fd, &error), 0, "%s", error.message);
  for (int32_t r = 0; r < size; r++)
    ASSERT_EQ_FOR(shared_join(fd, r, &crew->comms[r], &error), 0, "%s", error.message);
  close(fd);
  options.num_threads = 1;
  options.rank_limit_ns = 60000000000u;
  for (int32_t r = 1; r < size; r++) {
    follower_t *follower = &crew->followers[r];
    follower->options = options;
    follower->options.comm = crew->comms[r];
    ASSERT_EQ(pthread_create(&follower->thread, NULL, follow, follower), 0);
  }
  options.comm = crew->comms[0];
  return options;
}

void crew_end(crew_t *crew, int code, const char *name) {
  for (int32_t r = 1; r < crew->size; r++) {
    pthread_join(crew->followers[r].thread, NULL);
    if (code == 0)
      ASSERT_EQ_FOR(crew->followers[r].code, 0, "%s, rank %d: %s", name, r,
                    crew->followers[r].error.message);
    else
      cr_assert(crew->followers[r].code != 0, "%s: rank %d has not failed", name, r);
  }
  for (int32_t r = 0; r < crew->size; r++) comm_close(crew->comms[r]);
}

client_t *crew_run(engine_options_t options, int32_t size, void (*make)(client_t *client),
                   const char *name) {
  crew_t crew;
  options = crew_start(&crew, options, size);
  client_t *client = client_run_all(&options, make);
  client_check_idle(client);
  engine_stop(client->engine);
  cr_assert(crew.comms[0]->num_calls > 0, "%s: the ranks exchanged nothing", name);
  crew_end(&crew, 0, name);
  return client;
}

void crew_set_adapter(client_t *client, int32_t slot, const char *dir) {
  struct adapter *adapter = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(engine_adapter_read(client->engine, dir, &adapter, &error), 0, "%s", error.message);
  engine_adapter_set(client->engine, slot, adapter);
}

engine_options_t crew_options(const char *model, bool as_bf16) {
  static char dir[256], file[300];
  engine_options_t o = client_options(&ops_cpu);
  snprintf(dir, sizeof dir, "tests/vectors/models/%s", model);
  snprintf(file, sizeof file, "%s/model.safetensors", dir);
  o.model_dir = dir;
  o.dummy_weights = strncmp(model, "gguf", 4) != 0 && access(file, R_OK) != 0;
  o.skip_tokenizer = true;
  if (as_bf16) o.dtype = "bfloat16"; /* quantised panels: a float32 run decodes them */
  o.max_num_batched_tokens = 40;
  return o;
}

void crew_add_jobs(client_t *c, int count) {
  const int context = engine_info(c->engine)->max_model_len,
            longest = context < 100 ? context : 100;
  for (int i = 0; i < count; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % (longest / 2), 1 + (i * 7) % (longest / 4), i % 6);
    for (int k = 0; k < job->request.num_prompt_tokens; k++) job->prompt[k] %= CREW_VOCAB;
    sampling_params_t *p = &job->request.params;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 5 == 0) p->repetition_penalty = 1.3f;
    if (i % 4 == 0) p->num_prompt_logprobs = 0;
    p->ignore_eos = true;
  }
}
