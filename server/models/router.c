/* router.c: requests find their model, and what lifecycle.c decides is done.
 *
 * Loop thread of the parent. models_handle is the handler of every route here: what a model answers
 * is passed on to the one that the request names, the rest is answered here (list.c).
 */
#include "server/models/models_internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "server/models/named.h"
#include "server/observe/log.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 250, RESUME_MS = 5, LOOK_TICKS = 8, SURVEYS_MAX = 2, STEP_BYTES = 128 * 1024 };

/* ---- doing what was decided ---- */

int models_retry_s(const served_t *model) {
  const models_t *models = model->models;
  uint64_t now_ns = clock_now_ns();
  double seconds = 2;
  if (model->life != NULL)
    seconds = (double)life_forecast_ns(models->life, model->life, now_ns) * 1e-9;
  else if (model->plan_state == PLAN_FAILED && model->plan_again_ns > now_ns)
    seconds = (double)(model->plan_again_ns - now_ns) * 1e-9;
  return (int)MIN(MAX(ceil(seconds), 1), 600);
}

static int fail_unloadable(const served_t *model, inferd_error_t *error) {
  return error_set(error, ERR_MODEL_LOADING, NULL, "The model `%.120s` cannot be loaded: %.300s",
                   model->wish.names.list[0], model->reason);
}

/* A plan that could not be made is not made again for each request. */
static int check_plan(const served_t *model, inferd_error_t *error) {
  bool failed = model->life == NULL && model->plan_state == PLAN_FAILED;
  if (!failed || clock_now_ns() >= model->plan_again_ns) return 0;
  return fail_unloadable(model, error);
}

static void refuse(passage_t *passage, life_why_t why) {
  const served_t *model = passage->model;
  const char *name = model->wish.names.list[0];
  inferd_error_t error = {0};
  switch (why) {
  case LIFE_LATE:
    error_set(&error, ERR_MODEL_LOADING, NULL,
              "The model `%.200s` was not in memory within %g s (--models-wait)%s.", name,
              model->models->server->config->models_wait,
              model->life != NULL && model->life->state == LIFE_LOADING ? "; it is being loaded"
                                                                        : "; it waits for room");
    break;
  case LIFE_BROKEN: fail_unloadable(model, &error); break;
  case LIFE_TOO_LARGE:
    error_set(&error, ERR_MODEL_LOADING, NULL,
              "The model `%.200s` needs more memory than models may have (--models-memory) beside "
              "those that are pinned.",
              name);
    break;
  }
  passage->exchange->retry_after_s = models_retry_s(model);
  passage_refuse(passage, &error);
}

static void act(models_t *models, const life_action_t *action) {
  served_t *model = action->model->owner;
  passage_t *passage = (passage_t *)action->request;
  switch (action->what) {
  case LIFE_LOAD:
    if (!child_start(model) && model->child.open_handles == 0)
      life_gone(models->life, model->life, clock_now_ns());
    break;
  case LIFE_UNLOAD: child_stop(model); break;
  case LIFE_FALL: child_order(model, true); break;
  case LIFE_WAKE: child_order(model, false); break;
  case LIFE_BEGIN: passage_begin(passage); break;
  case LIFE_REFUSE: refuse(passage, action->why); break;
  }
}

static void start_surveys(models_t *models, uint64_t now_ns) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    bool wanted = model->plan_state == PLAN_NONE ||
                  (model->plan_state == PLAN_FAILED && now_ns >= model->plan_again_ns &&
                   (model->early != NULL || model->wish.pin || model->wanted));
    if (wanted && model->listed && models->surveys < SURVEYS_MAX && !models->stopping)
      survey_start(model);
  }
}

/* Models that are not listed any more and hold nothing. */
static void forget(models_t *models) {
  for (served_t *model = models->first, *next; model != NULL; model = next) {
    next = model->next;
    const life_model_t *life = model->life;
    bool free = life == NULL || ((life->state == LIFE_UNLOADED || life->state == LIFE_FAILED) &&
                                 life->num_waiting + life->num_running == 0);
    if (model->listed || !free) continue;
    bool used =
        model->early != NULL || model->plan_state == PLAN_RUNS || model->child.open_handles > 0;
    for (const passage_t *p = models->passages; p != NULL && !used; p = p->next)
      used = p->model == model;
    if (!used) model_forget(model);
  }
}

static void on_due(uv_timer_t *timer) {
  models_pump(timer->data);
}

void models_pump(models_t *models) {
  models->again = true;
  if (models->pumping) return;
  models->pumping = true;
  while (models->again) {
    life_action_t action;
    models->again = false;
    while (!models->stopping && life_next(models->life, clock_now_ns(), &action))
      act(models, &action);
  }
  models->pumping = false;
  if (models->stopping) return;
  uint64_t now_ns = clock_now_ns(), due_ns = life_due_ns(models->life, now_ns);
  start_surveys(models, now_ns);
  if (due_ns == UINT64_MAX)
    uv_timer_stop(&models->due);
  else
    uv_timer_start(&models->due, on_due, (due_ns - now_ns) / 1000000 + 1, 0);
}

static void on_handle_closed(uv_handle_t *handle) {
  models_handle_closed(handle->data);
}

/* After models_stop: tells when no process and no handle is left. The tick goes last: it ends the
 * processes that have not heard that they should. */
static void tell_if_ended(models_t *models) {
  uv_handle_t *tick = (uv_handle_t *)&models->tick;
  if (!models->stopping || models->done == NULL) return;
  for (const served_t *model = models->first; model != NULL; model = model->next) {
    if (model->child.open_handles > 0 || model->survey.open_handles > 0) return;
  }
  if (!uv_is_closing(tick)) uv_close(tick, on_handle_closed);
  if (models->open_handles > 0) return;
  void (*done)(void *context) = models->done;
  models->done = NULL;
  done(models->context);
}

void models_gone(served_t *model) {
  models_t *models = model->models;
  life_state_t state = model->life->state;
  if (state != LIFE_UNLOADED && state != LIFE_FAILED)
    life_gone(models->life, model->life, clock_now_ns());
  for (passage_t *passage = models->passages; passage != NULL; passage = passage->next) {
    if (passage->model == model) passage_again(passage);
  }
  models_pump(models);
  tell_if_ended(models);
}

void models_planned(served_t *model) {
  models_t *models = model->models;
  uint64_t now_ns = clock_now_ns();
  passage_t *early = model->early, *next;
  if (model->plan_state == PLAN_DONE && (model->wish.preload || model->wanted))
    life_wish(models->life, model->life, model->wanted ? LIFE_MAKE_ROOM : LIFE_IF_ROOM, now_ns);
  model->wanted = false;
  for (; early != NULL; early = next) {
    next = early->early;
    if (model->plan_state == PLAN_DONE) {
      model->early = next;
      if (next != NULL) next->early_link = &model->early;
      early->is_early = false;
      life_ask(models->life, model->life, &early->life, now_ns, early->until_ns, early->ahead);
    } else {
      refuse(early, LIFE_BROKEN);
    }
  }
  models_pump(models);
  tell_if_ended(models);
}

/* ---- time ---- */

static void look_at_directory(models_t *models) {
  if (models->look == NULL) models->look = look_start(models->server->config, &models->looked);
}

/* A look has ended. */
static void on_looked(uv_async_t *bell) {
  models_t *models = bell->data;
  uint64_t hash = models->directory.hash;
  inferd_error_t error = {0};
  if (models->look == NULL || !look_take(models->look, &models->directory)) return;
  models->look = NULL;
  if (models->directory.hash == hash) return;
  if (models_read(models, models->server->config, &error) != 0)
    log_line(LOG_ERROR, "models", "%s", error.message);
  models_pump(models);
}

static void on_tick(uv_timer_t *timer) {
  models_t *models = timer->data;
  static int ticks;
  bool whole = models->num_paused == 0 || ++ticks % (TICK_MS / RESUME_MS) == 0;
  uint64_t now_ns = clock_now_ns();
  for (passage_t *passage = models->passages, *next; passage != NULL; passage = next) {
    next = passage->next;
    passage_resume(passage);
    if (whole) passage_tick(passage, now_ns);
  }
  if (whole) {
    static int looks;
    for (served_t *model = models->first; model != NULL; model = model->next)
      child_tick(model, now_ns);
    if (++looks % LOOK_TICKS == 0) look_at_directory(models);
    forget(models);
    models_pump(models);
  }
  uv_timer_start(timer, on_tick, models->num_paused > 0 ? RESUME_MS : TICK_MS, 0);
}

/* ---- requests ---- */

int models_fail_unknown(const models_t *models, const char *name, size_t length,
                        inferd_error_t *error) {
  char quoted[200], known[300] = "";
  for (const served_t *model = models->first; model != NULL; model = model->next) {
    size_t used = strlen(known), more = strlen(model->wish.names.list[0]) + 4;
    if (model->listed && used + more < sizeof known)
      snprintf(known + used, sizeof known - used, "%s`%s`", used > 0 ? ", " : "",
               model->wish.names.list[0]);
  }
  return error_set(error, ERR_MODEL_NOT_FOUND, "model",
                   "The model `%s` does not exist. This server has %s; GET /v1/models lists every "
                   "name.",
                   error_quote(quoted, sizeof quoted, name, length),
                   known[0] != '\0' ? known : "none yet");
}

/* A queue that is full makes room for a client that has less in it: the newest request goes of the
 * client that has most. */
static int check_queue(models_t *models, const exchange_t *exchange, inferd_error_t *error) {
  int64_t waiting = lobby_count(models->lobby), count;
  int64_t own = lobby_count_of(models->lobby, exchange->source);
  if (waiting < models->server->config->max_queue_requests) return 0;
  guest_t *newest = lobby_newest_of_most(models->lobby, &count);
  passage_t *most = count > own + 1 ? newest->owner : NULL;
  error_set(error, ERR_QUEUE_FULL, NULL,
            "%lld requests wait for models, of which %lld are of this client; see "
            "--max-queue-requests.",
            (long long)waiting, (long long)(most != NULL ? count : own));
  if (most == NULL) return ERR_QUEUE_FULL;
  passage_refuse(most, error);
  return 0;
}

/* Below /api/ a name may have the tag that nobody writes. */
static served_t *find(const models_t *models, const exchange_t *exchange, const char *name) {
  static const char latest[] = ":latest";
  size_t length = strlen(name), tag = sizeof latest - 1;
  served_t *model = models_find(models, name, length);
  bool tagged = length > tag && strcmp(name + length - tag, latest) == 0;
  if (model == NULL && exchange->wire == WIRE_OLLAMA && tagged)
    model = models_find(models, name, length - tag);
  return model != NULL ? model : models_find_loaded(models, name, length);
}

/* As clients of llama.cpp's server ask: a request that has no model loaded. */
static int check_autoload(const exchange_t *exchange, const served_t *model,
                          inferd_error_t *error) {
  const char *autoload = exchange_query(exchange, "autoload");
  bool off = autoload != NULL && (strcmp(autoload, "false") == 0 || strcmp(autoload, "0") == 0);
  const life_model_t *life = model->life;
  bool comes = life != NULL && (life->state == LIFE_LOADING || life->state == LIFE_READY ||
                                life->state == LIFE_ASLEEP);
  if (!off || comes) return 0;
  return error_set(error, ERR_BAD_REQUEST, "autoload",
                   "The model `%.200s` is not in memory, and with autoload=false no request loads "
                   "it.",
                   model->wish.names.list[0]);
}

/* Passes the request on to the model that it names. `code`: that of reading the name; the body is
 * the passage's then. */
static void pass_on(exchange_t *exchange, const named_t *named, held_t *body, int code,
                    inferd_error_t *error) {
  models_t *models = exchange->server->models;
  served_t *model = code == 0 ? find(models, exchange, named->model) : NULL;
  if (code == 0 && model == NULL)
    code = models_fail_unknown(models, named->model, strlen(named->model), error);
  if (code == 0) code = check_autoload(exchange, model, error);
  if (code == 0 && (code = check_plan(model, error)) != 0)
    exchange->retry_after_s = models_retry_s(model);
  if (code == 0) code = check_queue(models, exchange, error);
  if (code != 0) {
    held_free(body);
    exchange_error(exchange, error);
    return;
  }
  /* Lines of JSON have no comments: such a stream begins with the model's own. */
  passage_new(exchange, model, body, named->stream && exchange->wire != WIRE_OLLAMA);
  models_pump(models);
}

/* ---- large bodies ---- */

/* A body that is looked through for its model, STEP_BYTES in a turn of the loop, and those of other
 * requests in the turns between. */
struct body_read {
  body_read_t *next, **link;
  exchange_t *exchange;
  held_t body;
  named_scan_t scan;
};

static void leave_readings(models_t *models, body_read_t *reading) {
  *reading->link = reading->next;
  *(reading->next != NULL ? &reading->next->link : &models->last_reading) = reading->link;
  if (models->readings == NULL) uv_idle_stop(&models->reads);
}

static void join_readings(models_t *models, body_read_t *reading) {
  reading->next = NULL;
  reading->link = models->readings != NULL ? models->last_reading : &models->readings;
  *reading->link = reading;
  models->last_reading = &reading->next;
}

static void on_reader_gone(exchange_t *exchange, const char *cause) {
  body_read_t *reading = exchange->user;
  (void)cause;
  leave_readings(exchange->server->models, reading);
  held_free(&reading->body);
  free(reading);
}

static void on_reads(uv_idle_t *idle) {
  models_t *models = idle->data;
  body_read_t *reading = models->readings;
  inferd_error_t error = {0};
  int code = named_step(&reading->scan, STEP_BYTES, &error);
  leave_readings(models, reading);
  if (code == NAMED_MORE) {
    join_readings(models, reading);
    uv_idle_start(idle, on_reads);
    return;
  }
  reading->exchange->on_gone = NULL;
  pass_on(reading->exchange, &reading->scan.named, &reading->body, code, &error);
  free(reading);
}

static int begin_scan(const exchange_t *exchange, const held_t *body, named_scan_t *scan,
                      inferd_error_t *error) {
  const char *type = exchange_request_header(exchange, "Content-Type");
  if ((exchange->route->flags & ROUTE_AUDIO) != 0)
    return named_begin_form(scan, type, body->bytes, body->length, error);
  named_begin(scan, body->bytes, body->length);
  return 0;
}

/* Finds the model of a request with a body. */
static void read_body(exchange_t *exchange) {
  models_t *models = exchange->server->models;
  inferd_error_t error = {0};
  held_t body = {0};
  named_scan_t scan = {0};
  bool taken = exchange_take_body(exchange, &body);
  int code = taken ? begin_scan(exchange, &body, &scan, &error) : ERR_OVERLOADED;
  if (code == 0) code = named_step(&scan, STEP_BYTES, &error);
  body_read_t *reading = code == NAMED_MORE ? calloc(1, sizeof *reading) : NULL;
  if (!taken || (code == NAMED_MORE && reading == NULL))
    code = error_set(&error, ERR_OVERLOADED, NULL, "The server is short of memory.");
  if (reading == NULL) {
    pass_on(exchange, &scan.named, &body, code, &error);
    return;
  }
  *reading = (body_read_t){.exchange = exchange, .scan = scan, .body = body};
  reading->body.charge = charge_move(&body.charge);
  exchange->user = reading;
  exchange->on_gone = on_reader_gone;
  join_readings(models, reading);
  uv_idle_start(&models->reads, on_reads);
}

/* Of a request without a body, its query has the name. */
static void read_query(exchange_t *exchange) {
  const char *query = exchange_query(exchange, "model");
  inferd_error_t error = {0};
  named_t named;
  held_t none = {0};
  int code = named_word(query != NULL ? query : "", &named, &error);
  if (code == 0 && !exchange_take_body(exchange, &none))
    code = error_set(&error, ERR_OVERLOADED, NULL, "The server is short of memory.");
  pass_on(exchange, &named, &none, code, &error);
}

void models_handle(exchange_t *exchange) {
  const route_t *route = exchange->route;
  bool named = (route->flags & ROUTE_QUERY) != 0 && exchange_query(exchange, "model") != NULL;
  inferd_error_t error = {0};
  if (exchange->server->phase >= SERVER_DRAINING && (route->flags & ROUTE_ENGINE) != 0) {
    error_set(&error, ERR_DRAINING, NULL, "The server is shutting down.");
    exchange_error(exchange, &error);
  } else if (named ||
             (route->flags & (ROUTE_ENGINE | ROUTE_PARENT | ROUTE_STORE)) == ROUTE_ENGINE) {
    if (exchange->body_length > 0)
      read_body(exchange);
    else
      read_query(exchange);
  } else {
    route->handle(exchange);
  }
}

void models_errand(exchange_t *exchange, const char *path) {
  const char *allow;
  char *tail;
  exchange->route = route_find("POST", path, ROUTE_STORE, &allow, &tail);
  free(tail);
  if (exchange->route != NULL) {
    read_body(exchange);
    return;
  }
  inferd_error_t error;
  error_set(&error, ERR_OVERLOADED, NULL, "Out of memory.");
  exchange_error(exchange, &error);
}

bool models_ready(const server_t *server) {
  for (const served_t *model = server->models->first; model != NULL; model = model->next) {
    const life_model_t *life = model->life;
    bool ready =
        life != NULL && (life->state == LIFE_READY || life->state == LIFE_ASLEEP || life->wakes);
    bool failed = model->plan_state == PLAN_FAILED || (life != NULL && life->state == LIFE_FAILED);
    if (model->listed && model->wish.pin && !ready && !failed) return false;
  }
  return true;
}

/* ---- the whole ---- */

bool models_wanted(const config_t *config) {
  return config->models.count > 0 || config->models_dir[0] != '\0' || config->models_from_cache ||
         config->num_sections > 0;
}

int models_check(const config_t *config, inferd_error_t *error) {
  static const char section[] = "set it in the section [model NAME] of each model that gets one";
  static const char whole[] = "leave it out, or run the model that needs it as a server of its own";
  const struct {
    const char *option;
    bool given;
    const char *way;
  } rows[] = {{"kv_events_endpoint", config->kv_events_endpoint[0] != '\0', whole},
              {"prefix_cache_file", config->prefix_cache_file[0] != '\0', section},
              {"served_model_name", config->served_model_name.count > 0,
               "a model is called as its section is, and `aliases` in it are further names"},
              {"lora_modules", config->lora_modules.count > 0, section},
              {"hand_over", config->hand_over[0] != '\0', whole},
              {"take_over", config->take_over, whole},
              {"journal", config->journal[0] != '\0', section},
              {"otlp_endpoint", config->otlp_endpoint[0] != '\0', whole}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    if (!rows[i].given) continue;
    return error_set(error, ERR_CONFIGURATION, rows[i].option,
                     "%s is of one model, and this server has several: %s", rows[i].option,
                     rows[i].way);
  }
  return 0;
}

int models_new(server_t *server, inferd_error_t *error) {
  const config_t *config = server->config;
  models_t *models = calloc(1, sizeof *models);
  life_limits_t limits = {.turn_ns = 30000000000u,
                          .age_ns = 10000000000u,
                          .pause_ns = 1000000000u,
                          .pause_ns_max = 300000000000u,
                          .steady_ns = 60000000000u};
  if (models == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for models");
  server->models = models;
  models->server = server;
  models->dir_lock = -1;
  limits.bytes[LIFE_HOST] = config->models_memory;
  limits.bytes[LIFE_SLEEP] = config->sleep_space;
  models->limit_known[LIFE_HOST] = config->models_memory > 0;
  models->life = life_new(&limits);
  models->lobby = lobby_new();
  uv_timer_init(server->loop, &models->due);
  uv_timer_init(server->loop, &models->tick);
  uv_async_init(server->loop, &models->looked, on_looked);
  uv_idle_init(server->loop, &models->reads);
  models->open_handles = 4;
  models->due.data = models->tick.data = models->looked.data = models->reads.data = models;
  if (models->life == NULL || models->lobby == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for models");
  int code = sockets_open(models, error);
  places_t places;
  if (code == 0 && !places_of(config, &places))
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for models");
  if (code == 0) {
    directory_read(&places, &models->directory);
    places_free(&places);
  }
  if (code == 0) code = models_read(models, config, error);
  if (code != 0) return code;
  uv_timer_start(&models->tick, on_tick, 0, 0);
  return 0;
}

void models_reload(models_t *models, const config_t *fresh) {
  inferd_error_t error = {0};
  if (models_read(models, fresh, &error) != 0)
    log_line(LOG_ERROR, "reload-rejected", "%s", error.message);
  models_signal(models, SIGHUP);
  look_at_directory(models);
  models_pump(models);
}

void models_signal(models_t *models, int number) {
  for (served_t *model = models->first; model != NULL; model = model->next) {
    if (model->child.runs) uv_process_kill(&model->child.process, number);
  }
}

/* ---- the end ---- */

void models_handle_closed(models_t *models) {
  models->open_handles--;
  tell_if_ended(models);
}

static void on_end_tick(uv_timer_t *timer) {
  const models_t *models = timer->data;
  uint64_t now_ns = clock_now_ns();
  for (served_t *model = models->first; model != NULL; model = model->next)
    child_tick(model, now_ns);
}

void models_stop(models_t *models, void (*done)(void *context), void *context) {
  models->stopping = true;
  models->done = done;
  models->context = context;
  for (served_t *model = models->first; model != NULL; model = model->next) {
    child_stop(model);
    if (model->plan_state == PLAN_RUNS) uv_process_kill(&model->survey.process, SIGKILL);
  }
  if (models->look != NULL) look_leave(models->look);
  models->look = NULL;
  uv_close((uv_handle_t *)&models->looked, on_handle_closed);
  uv_close((uv_handle_t *)&models->reads, on_handle_closed);
  uv_close((uv_handle_t *)&models->due, on_handle_closed);
  uv_timer_start(&models->tick, on_end_tick, TICK_MS, TICK_MS);
  tell_if_ended(models); /* there may be no process */
}

void models_free(models_t *models) {
  if (models == NULL) return;
  while (models->first != NULL) {
    served_t *model = models->first;
    model->life = NULL; /* life_free has all of them */
    model_forget(model);
  }
  life_free(models->life);
  lobby_free(models->lobby);
  directory_free(&models->directory);
  sockets_close(models);
  free(models);
}
