/* crew.h: an engine of a test over several ranks, which are threads with a device, a part of the
 * model and a KV cache each; collectives are those of one host.
 */
#ifndef INFERD_TESTS_ENGINE_CREW_H
#define INFERD_TESTS_ENGINE_CREW_H

#include "engine/device/comm.h"
#include "tests/engine/client.h"

#include <pthread.h>

enum { CREW_MAX = 9, CREW_VOCAB = 64 };

typedef struct follower {
  pthread_t thread;
  engine_options_t options;
  int code;
  inferd_error_t error;
} follower_t;

typedef struct crew {
  comm_t *comms[CREW_MAX];
  follower_t followers[CREW_MAX];
  int32_t size;
} crew_t;

/* Starts the ranks from 1 on. Returns the options of rank 0. */
engine_options_t crew_start(crew_t *crew, engine_options_t options, int32_t size);
/* When the engine of rank 0 has stopped: what each follower returned is `code`. */
void crew_end(crew_t *crew, int code, const char *name);
/* A whole run: what `make` asks for, by `size` ranks. */
client_t *crew_run(engine_options_t options, int32_t size, void (*make)(client_t *client),
                   const char *name);
/* Adds `count` requests of many kinds: greedy and drawn, penalties, scored prompts, logprobs. Their
 * ids are below CREW_VOCAB, which every model has. */
void crew_add_jobs(client_t *client, int count);
/* Sets an adapter while the engine runs, as a request to load one does. */
void crew_set_adapter(client_t *client, int32_t slot, const char *dir);
/* A model of tests/vectors/models, with the weights of its files, or random ones where only
 * config.json is kept. The strings are valid until the next call. */
engine_options_t crew_options(const char *model, bool as_bf16);

#endif
