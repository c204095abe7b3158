/* requests.c: answers of a journal -> requests that an engine takes, with what these borrow. */
#include "server/replay/replay.h"

#include "engine/grammar/source_bytes.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(inferd_error_t *error) {
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a request");
}

static void free_one(replayed_t *one) {
  stop_set_free((stop_set_t *)one->request.stops);
  compare_free(&one->comparison);
  free(one->request.room);
  free(one->request.scores);
  free(one->request.pooled);
  free(one);
}

/* Equal constraints are compiled once, as the server does. */
static int find_grammar(replay_run_t *replay, const kept_answer_t *answer, struct grammar **out,
                        inferd_error_t *error) {
  for (size_t i = 0; i < replay->num_compiled; i++) {
    if (replay->compiled[i].source != answer->constraint) continue;
    *out = replay->compiled[i].grammar;
    return 0;
  }
  struct compiled *more =
      reallocarray(replay->compiled, replay->num_compiled + 1, sizeof *replay->compiled);
  if (more == NULL) return no_memory(error);
  replay->compiled = more;
  int code =
      grammar_of_bytes(answer->constraint, answer->constraint_bytes,
                       engine_grammar_vocabulary(replay->engine), &replay->arena, out, error);
  if (code == 0) more[replay->num_compiled++] = (struct compiled){answer->constraint, *out};
  return code;
}

/* Loads the adapter of a request into its slot, unless it is there. */
static int load_adapter(replay_run_t *replay, const request_t *request, inferd_error_t *error) {
  const int32_t slot = request->adapter;
  struct adapter *adapter = NULL;
  if (slot == 0) return 0;
  if (slot > LORAS_MAX || request->adapter_dir[0] == '\0')
    return error_set(error, ERR_CONFIGURATION, NULL, "its adapter is not in the journal");
  const char *there = replay->adapters[slot];
  if (there != NULL && strcmp(there, request->adapter_dir) == 0) return 0;
  int code = engine_adapter_read(replay->engine, request->adapter_dir, &adapter, error);
  if (code != 0) return code;
  engine_adapter_set(replay->engine, slot, adapter);
  replay->adapters[slot] = request->adapter_dir;
  return 0;
}

/* The memory that the engine borrows. */
static int lend(const replay_run_t *replay, request_t *request, inferd_error_t *error) {
  const engine_info_t *info = engine_info(replay->engine);
  size_t room = engine_room_bytes(&request->params);
  size_t scores = engine_scores_bytes(replay->engine, &request->params, request->num_prompt_tokens);
  if (room > 0) request->room = calloc(1, room);
  if (scores > 0) request->scores = calloc(1, scores);
  if (request->pooling != POOLING_NONE && info->embedding != NULL)
    request->pooled = calloc(embedding_room(info->embedding, request->num_prompt_tokens),
                             sizeof *request->pooled);
  bool lacks = (room > 0 && request->room == NULL) || (scores > 0 && request->scores == NULL);
  return lacks ? no_memory(error) : 0;
}

static int check_ids(const request_t *request, const engine_info_t *info, inferd_error_t *error) {
  for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
    int32_t id = request->prompt_ids[i];
    if (id < 0 || id >= info->vocab_size)
      return error_set(error, ERR_CONFIGURATION, NULL,
                       "its prompt has the id %d, and this model has %d", id, info->vocab_size);
  }
  return 0;
}

static int fill(replay_run_t *replay, const kept_answer_t *answer, replayed_t *one,
                inferd_error_t *error) {
  request_t *request = &one->request;
  stop_set_t *stops = NULL;
  const kept_request_t *kept = &answer->kept;
  int code = check_ids(request, engine_info(replay->engine), error);
  if (code == 0)
    code = stop_set_new(kept->stops, kept->stop_lengths, kept->num_stops, &stops, error);
  request->stops = stops;
  if (code == 0) code = lend(replay, request, error);
  if (code == 0) code = load_adapter(replay, request, error);
  if (code == 0 && answer->constraint != NULL)
    code = find_grammar(replay, answer, &request->grammar, error);
  return code;
}

int replay_submit(replay_run_t *replay, kept_answer_t *answer, replayed_t **out,
                  inferd_error_t *error) {
  if (answer->lost != NULL) return error_set(error, ERR_CONFIGURATION, NULL, "%s", answer->lost);
  replayed_t *one = calloc(1, sizeof *one);
  if (one == NULL || !compare_new(answer, &one->comparison)) {
    free(one);
    return no_memory(error);
  }
  memcpy(&one->request, &answer->kept.request, sizeof one->request);
  one->request.owner = one;
  request_t *request = &one->request;
  int code = fill(replay, answer, one, error);
  if (code == 0) code = engine_submit(replay->engine, &request, 1, error);
  if (code != 0) {
    free_one(one);
    return code;
  }
  one->next = replay->live;
  replay->live = one;
  *out = one;
  return 0;
}

static void on_event(void *context, const event_t *event) {
  replay_run_t *replay = context;
  replayed_t *one = event->request->owner, **link = &replay->live;
  comparison_t *comparison = &one->comparison;
  compare_event(comparison, engine_info(replay->engine), event);
  if (!comparison->done) return;
  const kept_answer_t *answer = comparison->answer;
  replay->num_answers += answer->has_finish && event->finish != FINISH_ABORT;
  replay->num_tokens += comparison->num_equal;
  const bool is_cut = replay->plays && event->finish == FINISH_ABORT;
  if (comparison->differs && !is_cut) {
    replay->num_differ++;
    if (answer->kept.request.name[0] != '\0')
      printf("request %llu (%.200s): %s\n", (unsigned long long)answer->id,
             answer->kept.request.name, comparison->why);
    else
      printf("request %llu: %s\n", (unsigned long long)answer->id, comparison->why);
  }
  while (*link != one) link = &(*link)->next;
  *link = one->next;
  free_one(one);
}

void replay_drain(replay_run_t *replay) {
  (void)engine_drain(replay->engine, on_event, replay);
}

void replay_free(replay_run_t *replay) {
  for (size_t i = 0; i < replay->num_compiled; i++) grammar_unref(replay->compiled[i].grammar);
  free(replay->compiled);
  arena_free(&replay->arena);
}
