/* replay.c: `inferd replay`: arguments, the engine as it was, and what came of it; requests are
 * those of a journal, or the one of an answer that is stored.
 *
 * An answer does not depend on its batch, so each request is run alone by default; --schedule plays
 * the engine thread's journal, plan by plan. Exit status 0: everything is equal; 1: something
 * differs, or could not be run.
 */
#include "server/replay/replay.h"

#include "config/config.h"
#include "engine/journal/head.h"
#include "engine/journal/run.h"
#include "engine/model/source/locate.h"
#include "server/observe/crash.h"
#include "server/serve.h"
#include "server/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 64, EXIT_IO = 74 };

typedef struct arguments {
  const char *journal, *store, *request, *out, *trace;
  bool schedule, until_crash, timeline;
} replay_flags_t;

static const char usage[] =
    "usage: inferd replay JOURNAL MODEL [--request ID] [flags]\n"
    "       inferd replay --store FILE ID MODEL [flags]\n"
    "       inferd replay --schedule|--until-crash JOURNAL MODEL [flags]\n"
    "       inferd replay --timeline JOURNAL [-o FILE.svg] | --trace FILE.json JOURNAL\n";

static int fail(const inferd_error_t *error, int code) {
  fprintf(stderr, "inferd: %s\n", error->message);
  return error_exit_code(code);
}

/* ---- arguments ---- */

/* Takes own flags out of the arguments; what is left is JOURNAL, or the ID of an answer, and then
 * those of config_load. */
static bool read_arguments(int *argc, char **argv, replay_flags_t *out) {
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    const struct {
      const char *name;
      const char **value;
      bool *flag;
    } own[] = {{"--store", &out->store, NULL},
               {"--request", &out->request, NULL},
               {"-o", &out->out, NULL},
               {"--trace", &out->trace, NULL},
               {"--schedule", NULL, &out->schedule},
               {"--until-crash", NULL, &out->until_crash},
               {"--timeline", NULL, &out->timeline}};
    size_t which = 0;
    while (which < ARRAY_LEN(own) && strcmp(argv[i], own[which].name) != 0) which++;
    if (which == ARRAY_LEN(own)) {
      argv[kept++] = argv[i];
    } else if (own[which].flag != NULL) {
      *own[which].flag = true;
    } else if (i + 1 == *argc) {
      return false;
    } else {
      *own[which].value = argv[++i];
    }
  }
  *argc = kept;
  if (kept == 0 || argv[0][0] == '-') return false;
  bool plays = out->schedule || out->until_crash;
  if (out->store != NULL && out->request != NULL) return false;
  *(out->store != NULL ? &out->request : &out->journal) = argv[0];
  bool draws = out->timeline || out->trace != NULL;
  return !(draws && (plays || out->request != NULL || kept > 1)) &&
         !(plays && out->request != NULL) && (out->out == NULL || out->timeline);
}

/* ---- pictures ---- */

static int draw(const journal_log_t *log, const char *path,
                bool (*print)(const journal_log_t *log, FILE *out)) {
  FILE *out = path == NULL ? stdout : fopen(path, "we");
  bool good = out != NULL && print(log, out);
  if (out != NULL) good = (path == NULL ? fflush(out) : fclose(out)) == 0 && good;
  if (!good)
    fprintf(stderr, "inferd: %s: %s\n", path != NULL ? path : "standard output", strerror(errno));
  return good ? 0 : EXIT_IO;
}

/* ---- what differs ---- */

static int print_cause(const char *what, const char *then, const char *now) {
  if (strcmp(then, now) == 0) return 0;
  printf("why: the %s differ%s: %s then, %s now\n", what, what[strlen(what) - 1] == 's' ? "" : "s",
         then, now);
  return 1;
}

/* Says what is not as it was, of all that tokens depend on. */
static void print_causes(const journal_log_t *log, const engine_t *engine) {
  const engine_info_t *info = engine_info(engine);
  const char *comma = strchr(info->device, ',');
  char then[512], weights[32], sums[8], ranks[16];
  int count = 0;
  snprintf(weights, sizeof weights, "%016" PRIx64, info->weights_hash);
  const struct {
    const char *name, *what, *now;
  } lines[] = {{"weights", "weights", weights},
               {"type", "type", info->dtype},
               {"backend", "backend", info->backend},
               {"kernels", "kernels", comma != NULL ? comma + 2 : info->device},
               {"version", "version", INFERD_VERSION},
               {"commit", "build", INFERD_COMMIT}};
  for (size_t i = 0; i < ARRAY_LEN(lines); i++)
    if (head_value(log->text, lines[i].name, then, sizeof then))
      count += print_cause(lines[i].what, then, lines[i].now);
  (void)head_value(log->text, "add_ranks", sums, sizeof sums);
  (void)head_value(log->text, "ranks", ranks, sizeof ranks);
  if (strcmp(sums, "1") == 0 && strcmp(ranks, "1") != 0) {
    printf("why: the placement differs: %s ranks added up parts of sums (fast), now one\n", ranks);
    count++;
  }
  if (count == 0) puts("why: all that a token may depend on is the same: this is a bug of inferd");
}

/* ---- running ---- */

static sem_t woken;

static void wake(void *context) {
  (void)context;
  sem_post(&woken);
}

static int await_ready(engine_t *engine, inferd_error_t *error) {
  while (engine_state(engine) == ENGINE_LOADING) (void)sem_wait(&woken);
  if (engine_state(engine) == ENGINE_READY) return 0;
  engine_failure(engine, error);
  return error->code;
}

/* The id that a client saw has a prefix, such as "chatcmpl-". */
static bool is_named(const kept_answer_t *answer, const char *name) {
  const char *own = answer->kept.request.name;
  if (own == NULL || own[0] == '\0') return false;
  const char *rest = strpbrk(name, "-_");
  return strcmp(own, name) == 0 || (rest != NULL && strcmp(own, rest + 1) == 0);
}

static void leave_out(replay_run_t *replay, const kept_answer_t *answer, const char *why) {
  replay->num_left++;
  printf("request %" PRIu64 " is not run: %s\n", answer->id, why);
}

static int run_alone(replay_run_t *replay, const char *name) {
  inferd_error_t error = {0};
  bool found = false;
  for (size_t i = 0; i < replay->log->num_answers; i++) {
    kept_answer_t *answer = &replay->log->answers[i];
    replayed_t *one;
    if (name != NULL && !is_named(answer, name)) continue;
    found = true;
    const char *why = !answer->has_finish              ? "it has not ended in the journal"
                      : answer->finish == FINISH_ABORT ? "it was cancelled"
                      : answer->finish == FINISH_ERROR ? "it ended with an error"
                                                       : NULL;
    if (answer->lost == NULL && why != NULL) {
      leave_out(replay, answer, why);
    } else if (replay_submit(replay, answer, &one, &error) != 0) {
      leave_out(replay, answer, error.message);
      replay->num_differ += answer->lost == NULL;
    }
    while (replay->live != NULL) {
      (void)sem_wait(&woken);
      replay_drain(replay);
    }
  }
  if (found || name == NULL) return 0;
  fprintf(stderr, "inferd: the journal has no request '%.200s'\n", name);
  return EXIT_USAGE;
}

typedef struct playing {
  replay_run_t *replay;
  play_t *play;
} playing_t;

static bool submit(void *context, uint64_t id) {
  playing_t *playing = context;
  kept_answer_t *answer = journal_answer(playing->play->log, playing->play->lane, id);
  inferd_error_t error = {.message = "it is damaged"};
  replayed_t *one;
  if (answer != NULL && replay_submit(playing->replay, answer, &one, &error) == 0) return true;
  snprintf(playing->play->why, sizeof playing->play->why,
           "request %" PRIu64 " cannot be run: %.300s", id, error.message);
  return false;
}

static bool cancel(void *context, uint64_t id) {
  playing_t *playing = context;
  for (replayed_t *one = playing->replay->live; one != NULL; one = one->next) {
    if (one->request.id != id) continue;
    engine_cancel(playing->replay->engine, &one->request);
    return true;
  }
  return true; /* it has ended in this very iteration, and its end was drained */
}

static void drain(void *context) {
  replay_drain(((playing_t *)context)->replay);
}

/* Plays one lane, in this thread. Returns 0, or the code of an error. */
static int run_lane(replay_run_t *replay, engine_options_t *options, int32_t lane, bool until_crash,
                    inferd_error_t *error) {
  const journal_lane_log_t *records = &replay->log->lanes[lane];
  play_t play = {.log = replay->log, .lane = lane};
  playing_t playing = {.replay = replay, .play = &play};
  const play_client_t client = {
      .submit = submit, .cancel = cancel, .drain = drain, .context = &playing};
  options->play = &play;
  int code = play_start(options, &replay->engine, error);
  if (code != 0) return code;
  play_run(replay->engine, &play, &client);
  if (play.differs) {
    printf("replica %d, step %" PRIu64 ": %s\n", lane, play.steps, play.why);
    if (replay->num_differ == 0 || !until_crash) print_causes(replay->log, replay->engine);
    replay->num_differ++;
  } else {
    printf("replica %d: %" PRIu64 " plans are the same%s\n", lane, play.steps,
           records->ends ? "" : "; the journal ends here, and nothing has crashed");
  }
  engine_destroy(replay->engine);
  replay->engine = NULL;
  memset(replay->adapters, 0, sizeof replay->adapters);
  return 0;
}

/* Whether the beginning of a lane is there, all behind it, and what each request needs. */
static bool can_play(const journal_log_t *log, int32_t index) {
  const journal_lane_log_t *lane = &log->lanes[index];
  const char *why = NULL;
  char cut[8];
  if (head_value(log->text, "cut_layers", cut, sizeof cut) && cut[0] == '1')
    why = "the model was cut into stages, which have steps at once";
  if (lane->gaps > 0) why = "records are missing";
  if (!lane->begins) why = "the beginning was overwritten (--journal-size)";
  for (size_t i = 0; i < log->num_answers && why == NULL; i++)
    if (log->answers[i].lane == index) why = log->answers[i].lost;
  if (why == NULL) return true;
  printf("replica %d: its schedule cannot be run again: %s; its requests can, one by one\n", index,
         why);
  return false;
}

static int run_schedule(replay_run_t *replay, engine_options_t *options, bool until_crash,
                        inferd_error_t *error) {
  int code = 0;
  options->num_replicas = 1;
  options->mask_threads = 0;
  replay->plays = true;
  if (until_crash) crash_install();
  for (int32_t lane = 0; lane < JOURNAL_LANES_MAX && code == 0; lane++) {
    if (replay->log->lanes[lane].num_records == 0) continue;
    if (can_play(replay->log, lane))
      code = run_lane(replay, options, lane, until_crash, error);
    else
      replay->num_differ++;
  }
  return code;
}

static int run_engine(replay_run_t *replay, engine_options_t *options,
                      const replay_flags_t *arguments, int *status, inferd_error_t *error) {
  sem_init(&woken, 0, 0);
  options->wake = wake;
  options->max_queue_time_s = 0; /* what waited too long has ended in the journal */
  if (arguments->schedule || arguments->until_crash)
    return run_schedule(replay, options, arguments->until_crash, error);
  options->num_blocks = options->num_snapshots = 0; /* of this machine */
  options->num_replicas = 1;
  int code = engine_create(options, &replay->engine, error);
  if (code == 0) code = await_ready(replay->engine, error);
  const char *name = arguments->store != NULL ? NULL : arguments->request; /* there is one */
  if (code == 0) *status = run_alone(replay, name);
  if (code == 0 && replay->num_differ > 0) print_causes(replay->log, replay->engine);
  engine_destroy(replay->engine);
  return code;
}

/* The engine as the journal's head has it, on the device that the flags name. */
static int read_options(const journal_log_t *log, const config_t *config, engine_options_t *options,
                        char *room, size_t room_bytes, inferd_error_t *error) {
  char value[16];
  int code = serve_engine_options(config, options, error);
  if (code == 0) code = head_read(log->text, options, room, room_bytes, error);
  options->lora_dirs = NULL;
  options->num_lora_dirs = 0;
  options->prefix_cache_file = NULL;
  options->cut_layers = options->add_ranks = false;
  if (head_value(log->text, "cache_file", value, sizeof value) && value[0] == '1') {
    puts("note: the prefix cache was in a file: plans may differ, answers do not");
    options->prefix_cache_bytes = 0;
  }
  return code;
}

static int run(const journal_log_t *log, const replay_flags_t *arguments, int argc, char **argv) {
  static char room[4 * LOCATED_PATH_MAX];
  config_t config;
  engine_options_t options;
  inferd_error_t error = {0};
  replay_run_t replay = {.log = log};
  int status = 0, code = config_load(&config, argc, argv, &error);
  if (code == 0) code = serve_locate(&config, &error);
  if (code == 0) code = read_options(log, &config, &options, room, sizeof room, &error);
  if (code == 0) code = run_engine(&replay, &options, arguments, &status, &error);
  if (code == 0)
    printf("replayed %" PRIu64 " answers, %" PRIu64 " tokens: %" PRIu64 " differ, %" PRIu64
           " were left out\n",
           replay.num_answers, replay.num_tokens, replay.num_differ, replay.num_left);
  replay_free(&replay);
  if (code != 0) status = fail(&error, code);
  config_free(&config);
  return status != 0 ? status : replay.num_differ > 0 ? REPLAY_DIFFERS : 0;
}

/* The recipe of an answer of --store as a log of one answer. */
static int read_answer(const char *path, const char *id, journal_log_t **out,
                       inferd_error_t *error) {
  buffer_t recipe = {0};
  int code = store_recipe(path, id, &recipe, error);
  if (code == 0)
    code = error_within(error, journal_parse_recipe(recipe.data, recipe.length, out, error), path);
  if (code == 0) (*out)->answers[0].kept.request.name = id;
  buffer_free(&recipe);
  return code;
}

int replay_command(int argc, char **argv) {
  replay_flags_t arguments = {0};
  journal_log_t *log = NULL;
  inferd_error_t error = {0};
  if (!read_arguments(&argc, argv, &arguments)) {
    fputs(usage, stderr);
    return EXIT_USAGE;
  }
  int code = arguments.store != NULL ? read_answer(arguments.store, arguments.request, &log, &error)
                                     : journal_read(arguments.journal, &log, &error);
  if (code != 0) return fail(&error, code);
  if (log->notes[0] != '\0') fprintf(stderr, "inferd: %s: %s\n", arguments.journal, log->notes);
  int status = 0;
  if (arguments.timeline) status = draw(log, arguments.out, timeline_svg);
  if (arguments.trace != NULL && status == 0) status = draw(log, arguments.trace, timeline_trace);
  if (!arguments.timeline && arguments.trace == NULL)
    status = run(log, &arguments, argc - 1, argv + 1);
  journal_log_free(log);
  return status;
}
