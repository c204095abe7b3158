/* child.c: the process of a model, and the process that plans its memory.
 *
 * Loop thread of the parent. A child is `inferd serve` of this program. Its options are those of
 * the parent that are no matter of ports and keys, and those of its section, all as INFERD_
 * variables, which other users cannot read. It listens on a UNIX socket, and tells what a service
 * manager hears: how far it has loaded, that it is ready, why it has failed, that it lives. It ends
 * when its parent does (serve_join_parent). The plan comes from `inferd check --json`, another
 * process, so that a file that is broken breaks nothing here.
 */
#include "server/models/models_internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "server/keys/shared_rates.h"
#include "server/observe/log.h"
#include "server/observe/notify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
  END_GRACE_S = 10, /* between SIGTERM and SIGKILL; what ran has ended before */
  SURVEY_BYTES_MAX = 1 << 20
};

/* ---- the environment of a child ---- */

static bool is_passed_on(const config_t *config, enum config_option option) {
  static const char *const groups[] = {"model",  "device", "scheduler", "api",
                                       "limits", "memory", "log"};
  static const char *const never[] = {"model",
                                      "models",
                                      "models_dir",
                                      "models_from_cache",
                                      "models_memory",
                                      "models_wait",
                                      "models_idle",
                                      "served_model_name",
                                      "max_connections",
                                      "memory",
                                      "max_connections_per_ip",
                                      "otlp_endpoint"};
  static const char *const always[] = {"api_key",           "api_key_file",    "admin_key",
                                       "admin_key_file",    "disable_grammar", "core_dumps",
                                       "watchdog_interval", "store",           "store_ttl",
                                       "store_size",        "store_sync"};
  const char *name = config_name(option), *group = config_group(option);
  if (!config_given(config, option)) return false;
  for (size_t i = 0; i < ARRAY_LEN(never); i++) {
    if (strcmp(name, never[i]) == 0) return false;
  }
  for (size_t i = 0; i < ARRAY_LEN(always); i++) {
    if (strcmp(name, always[i]) == 0) return true;
  }
  for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
    if (strcmp(group, groups[i]) == 0) return true;
  }
  return false;
}

/* Sets NAME=VALUE, in the place of an earlier value. */
static bool env_set(words_t *env, const char *name, const char *value) {
  char *text = NULL;
  size_t length = strlen(name);
  if (asprintf(&text, "%s=%s", name, value) < 0) return false;
  for (int i = 0; i < env->count; i++) {
    if (strncmp(env->list[i], name, length) != 0 || env->list[i][length] != '=') continue;
    free(env->list[i]);
    env->list[i] = text;
    return true;
  }
  bool added = words_add(env, text);
  free(text);
  return added;
}

static bool env_options(words_t *env, const config_t *config) {
  for (int i = 0; i < OPTION_COUNT; i++) {
    enum config_option option = (enum config_option)i;
    if (!is_passed_on(config, option)) continue;
    char name[80] = "INFERD_", *value = config_text(config, option);
    size_t used = strlen(name);
    for (const char *p = config_name(option); *p != '\0' && used + 1 < sizeof name; p++)
      name[used++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    name[used] = '\0';
    bool added = value != NULL && env_set(env, name, value);
    free(value);
    if (!added) return false;
  }
  return true;
}

/* All but what is of this process: its options, its service manager, its directories. */
static bool env_inherited(words_t *env) {
  static const char *const own[] = {"INFERD_",   "NOTIFY_SOCKET=",     "LISTEN_",
                                    "WATCHDOG_", "RUNTIME_DIRECTORY=", "_INFERD_PARENT="};
  for (char **entry = environ; *entry != NULL; entry++) {
    bool skip = false;
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
      skip |= strncmp(*entry, own[i], strlen(own[i])) == 0;
    if (!skip && !words_add(env, *entry)) return false;
  }
  return true;
}

static bool env_names(words_t *env, const words_t *names) {
  buffer_t text = {0};
  for (int i = 0; i < names->count; i++) {
    buffer_text(&text, i > 0 ? "," : "[");
    buffer_quote(&text, names->list[i], strlen(names->list[i]));
  }
  buffer_text(&text, "]");
  buffer_char(&text, '\0');
  bool added = !text.failed && env_set(env, "INFERD_SERVED_MODEL_NAME", text.data);
  buffer_free(&text);
  return added;
}

static bool env_make(words_t *env, const served_t *model) {
  bool made = env_inherited(env) && env_options(env, model->models->server->config) &&
              env_names(env, &model->wish.names);
  for (int i = 0; i < model->wish.settings.count && made; i++) {
    char name[80];
    const char *setting = model->wish.settings.list[i], *equals = strchr(setting, '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals - setting), setting);
    made = env_set(env, name, equals + 1);
  }
  return made;
}

static bool env_of_server(words_t *env, const served_t *model) {
  const child_t *child = &model->child;
  char parent[24], kv[24], watchdog[24];
  snprintf(parent, sizeof parent, "%ld", (long)getpid());
  snprintf(kv, sizeof kv, "%lld", (long long)model->kv_bytes);
  snprintf(watchdog, sizeof watchdog, "%llu", (unsigned long long)(child->watchdog_ns / 1000));
  bool made = env_make(env, model) && env_set(env, "INFERD_UDS", child->socket) &&
              env_set(env, "INFERD_UDS_MODE", "0600") && env_set(env, "INFERD_WEB_PAGE", "off") &&
              env_set(env, "INFERD_KEEP_ALIVE_TIMEOUT", "1h") &&
              env_set(env, "NOTIFY_SOCKET", child->notify_path) &&
              env_set(env, "_INFERD_PARENT", parent);
  if (made && model->kv_bytes > 0) made = env_set(env, "INFERD_KV_CACHE_BYTES", kv);
  if (made && !model->may_sleep) made = env_set(env, "INFERD_SLEEP_SPACE", "0");
  if (made && child->watchdog_ns > 0) made = env_set(env, "WATCHDOG_USEC", watchdog);
  return made;
}

/* ---- what a child tells ---- */

/* It has its configured adapters when it is ready, and tells of each that comes or goes. */
static void heard_ready(served_t *model) {
  const words_t *adapters = &model->wish.adapters;
  for (int i = 0; i < adapters->count; i++)
    (void)words_add(&model->child.adapters, adapters->list[i]);
}

/* `name` is quoted as in JSON. That of a model stays the model's: there the adapter is listed as
 * BASE:ADAPTER. */
static void heard_adapter(served_t *model, const char *name, bool came) {
  words_t *adapters = &model->child.adapters;
  json_doc_t *doc = NULL;
  inferd_error_t error;
  char plain[MODEL_NAME_MAX], whole[2 * MODEL_NAME_MAX];
  if (json_parse(name, strlen(name), &json_limits_request, &doc, &error) != 0) return;
  const json_t *text = json_root(doc);
  snprintf(plain, sizeof plain, "%.*s", (int)text->length, text->text);
  json_free(doc);
  snprintf(whole, sizeof whole, "%s:%s", model->wish.names.list[0], plain);
  words_remove(adapters, plain);
  words_remove(adapters, whole);
  if (!came) return;
  const served_t *other = models_find(model->models, plain, strlen(plain));
  (void)words_add(adapters, other == NULL ? plain : whole);
}

static void heard_line(served_t *model, const char *line) {
  child_t *child = &model->child;
  models_t *models = model->models;
  int percent, used = 0;
  unsigned long long prompt, generated;
  if (strcmp(line, "READY=1") == 0 && model->life->state == LIFE_LOADING) {
    life_loaded(models->life, model->life, clock_now_ns());
    child->progress = 1;
    model->reason[0] = '\0';
    heard_ready(model);
    log_line(LOG_INFO, "models", "%.200s is ready after %.2f s", model->wish.names.list[0],
             (double)model->life->load_ns * 1e-9);
  } else if (sscanf(line, "STATUS=Loading weights %d%%%n", &percent, &used) == 1 && used > 0) {
    child->progress = percent / 100.0;
  } else if (sscanf(line, "X_INFERD_TOKENS=%llu %llu", &prompt, &generated) == 2) {
    model->prompt_tokens += prompt - child->prompt_tokens;
    model->generation_tokens += generated - child->generation_tokens;
    child->prompt_tokens = prompt;
    child->generation_tokens = generated;
  } else if (strncmp(line, "X_INFERD_ADAPTER_CAME=", 22) == 0) {
    heard_adapter(model, line + 22, true);
  } else if (strncmp(line, "X_INFERD_ADAPTER_WENT=", 22) == 0) {
    heard_adapter(model, line + 22, false);
  } else if (strncmp(line, "STATUS=failed: ", 15) == 0) {
    snprintf(model->reason, sizeof model->reason, "%s", line + 15);
  } else if (strcmp(line, "WATCHDOG=trigger") == 0) {
    snprintf(model->reason, sizeof model->reason, "it stands still");
    uv_process_kill(&child->process, SIGKILL);
  }
}

/* Reads all datagrams that are there. */
static void hear(served_t *model) {
  char text[NOTIFY_BYTES_MAX + 1];
  for (;;) {
    ssize_t got = recv(model->child.notify_fd, text, sizeof text - 1, MSG_DONTWAIT);
    if (got <= 0) return;
    text[got] = '\0';
    model->child.alive_ns = clock_now_ns();
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) heard_line(model, line);
  }
}

static void on_notify(uv_poll_t *poll, int status, int events) {
  served_t *model = poll->data;
  (void)status, (void)events;
  hear(model);
  models_pump(model->models);
}

/* ---- its end ---- */

static void handle_closed(served_t *model) {
  if (--model->child.open_handles == 0) models_gone(model);
}

static void on_closed(uv_handle_t *handle) {
  handle_closed(handle->data);
}

static void close_notify(served_t *model) {
  child_t *child = &model->child;
  if (child->notify_fd < 0) return;
  uv_poll_stop(&child->notify);
  uv_close((uv_handle_t *)&child->notify, on_closed);
  close(child->notify_fd);
  child->notify_fd = -1;
  unlink(child->notify_path);
  unlink(child->socket);
}

static void on_ended(uv_process_t *process, int64_t status, int signal_number) {
  served_t *model = process->data;
  child_t *child = &model->child;
  channels_close(child, UINT64_MAX);
  hear(model); /* its last words may lie there still */
  words_free(&child->adapters);
  child->runs = false;
  order_end(&child->order);
  if (!child->asked_to_end) {
    if (model->reason[0] == '\0' && signal_number != 0)
      snprintf(model->reason, sizeof model->reason, "its process ended by signal %d",
               signal_number);
    if (model->reason[0] == '\0')
      snprintf(model->reason, sizeof model->reason, "its process ended with status %d",
               (int)status);
    model->failures++;
    log_line(LOG_ERROR, "models", "%.200s: %s", model->wish.names.list[0], model->reason);
  } else {
    log_line(LOG_INFO, "models", "%.200s is unloaded", model->wish.names.list[0]);
  }
  uv_close((uv_handle_t *)process, on_closed);
  close_notify(model);
}

void child_stop(served_t *model) {
  child_t *child = &model->child;
  if (!child->runs || child->asked_to_end) return;
  child->asked_to_end = true;
  child->killed_ns = clock_now_ns() + END_GRACE_S * 1000000000ull;
  uv_process_kill(&child->process, SIGTERM);
}

/* ---- orders ---- */

static void on_order_closed(order_t *order) {
  handle_closed(order->owner);
}

/* If it cannot be done the process is ended: there is nothing else by which its memory would come
 * back, or its requests be answered. One that cannot wake has failed, like one that cannot load. */
static void order_failed(served_t *model, const char *reason) {
  child_t *child = &model->child;
  if (!child->runs || child->asked_to_end) return; /* it ends already */
  snprintf(model->reason, sizeof model->reason, "%s", reason);
  log_line(LOG_WARN, "models", "%.200s: %s; its process is ended", model->wish.names.list[0],
           reason);
  if (child->order.sleeps)
    child_stop(model);
  else
    uv_process_kill(&child->process, SIGTERM);
}

static void on_order(order_t *order, const char *reason) {
  served_t *model = order->owner;
  life_t *life = model->models->life;
  const char *name = model->wish.names.list[0];
  if (reason != NULL) {
    order_failed(model, reason);
  } else if (order->sleeps) {
    life_slept(life, model->life);
    log_line(LOG_INFO, "models", "%.200s sleeps", name);
  } else if (model->life->state == LIFE_LOADING) {
    life_loaded(life, model->life, clock_now_ns());
    log_line(LOG_INFO, "models", "%.200s is awake after %.2f s", name,
             (double)model->life->came_ns * 1e-9);
  }
  models_pump(model->models);
}

void child_order(served_t *model, bool sleeps) {
  child_t *child = &model->child;
  child->order =
      (order_t){.sleeps = sleeps, .owner = model, .done = on_order, .closed = on_order_closed};
  child->open_handles++;
  if (!order_give(&child->order, model->models->server->loop, child->socket))
    order_failed(model, "its process takes no connections");
}

/* ---- time ---- */

void child_tick(served_t *model, uint64_t now_ns) {
  child_t *child = &model->child;
  if (!child->runs) return;
  channels_close(child, now_ns);
  order_tick(&child->order, now_ns);
  bool silent = child->watchdog_ns > 0 && model->life->state == LIFE_READY &&
                now_ns - child->alive_ns > 2 * child->watchdog_ns;
  if (silent) snprintf(model->reason, sizeof model->reason, "it stands still");
  if (silent || (child->killed_ns > 0 && now_ns >= child->killed_ns))
    uv_process_kill(&child->process, SIGKILL);
}

/* ---- its start ---- */

static int open_notify(served_t *model) {
  child_t *child = &model->child;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", child->notify_path);
  unlink(child->notify_path);
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
      uv_poll_init(model->models->server->loop, &child->notify, fd) != 0) {
    close(fd);
    return -EIO;
  }
  child->notify_fd = fd;
  child->notify.data = model;
  child->open_handles++;
  uv_poll_start(&child->notify, UV_READABLE, on_notify);
  return 0;
}

static int spawn(served_t *model) {
  uv_stdio_container_t inherited[] = {{.flags = UV_IGNORE},
                                      {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
                                      {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
                                      {.flags = UV_INHERIT_FD, .data.fd = shared_rates_fd()}};
  words_t env = {0};
  char self[] = "/proc/self/exe", serve[] = "serve";
  char *arguments[] = {self, serve, model->wish.what, NULL};
  uv_process_options_t options = {
      .exit_cb = on_ended, .file = self, .args = arguments, .stdio_count = 4, .stdio = inherited};
  int code = env_of_server(&env, model) ? 0 : UV_ENOMEM;
  options.env = env.list;
  model->child.process.data = model;
  if (code == 0) {
    model->child.open_handles++; /* also where it fails, the handle must be closed */
    code = uv_spawn(model->models->server->loop, &model->child.process, &options);
    if (code != 0) uv_close((uv_handle_t *)&model->child.process, on_closed);
  }
  words_free(&env);
  return code;
}

bool child_start(served_t *model) {
  models_t *models = model->models;
  child_t *child = &model->child;
  CHECK_EQ(child->open_handles, 0);
  *child = (child_t){.notify_fd = -1};
  child->watchdog_ns = (uint64_t)(models->server->config->watchdog_interval * 1e9);
  child->alive_ns = clock_now_ns();
  snprintf(child->socket, sizeof child->socket, "%.79s/%d.sock", models->dir, model->number);
  snprintf(child->notify_path, sizeof child->notify_path, "%.79s/%d.notify", models->dir,
           model->number);
  log_line(LOG_INFO, "models", "%.200s: loading %.300s", model->wish.names.list[0],
           model->wish.what);
  int code = open_notify(model);
  if (code == 0) code = spawn(model);
  if (code == 0) {
    child->runs = true;
    return true;
  }
  snprintf(model->reason, sizeof model->reason, "its process cannot be started: %s",
           uv_strerror(code));
  model->failures++;
  log_line(LOG_ERROR, "models", "%.200s: %s", model->wish.names.list[0], model->reason);
  close_notify(model);
  return false;
}

/* ---- the plan ---- */

static bool take_number(const json_t *object, const char *name, int64_t *out) {
  return json_int64(json_get(object, name), out) && *out >= 0;
}

/* Models get a share of what is free in a place when it is first heard of. */
static void find_limit(models_t *models, int place, int64_t room, double share) {
  if (models->limit_known[place]) return;
  models->limit_known[place] = true;
  life_set_limit(models->life, place, (int64_t)((double)room * share));
}

/* Reads what `inferd check --json` has printed: bytes of each place. */
static bool read_plan(served_t *model, const json_t *root, life_plan_t *plan) {
  int64_t weights, workspace, kv, states, swap, host_weights, room, host_room;
  double contexts;
  if (!take_number(root, "weights", &weights) || !take_number(root, "workspace", &workspace) ||
      !take_number(root, "kv_cache", &kv) || !take_number(root, "states", &states) ||
      !take_number(root, "swap", &swap) || !take_number(root, "free", &room) ||
      !take_number(root, "host_weights", &host_weights) ||
      !take_number(root, "host_free", &host_room) ||
      !take_number(root, "context", &model->context) ||
      !json_double(json_get(root, "contexts"), &contexts))
    return false;
  const config_t *config = model->models->server->config;
  bool own_kv = model->wish.has_kv || config->kv_cache_bytes > 0 || config->num_blocks > 0;
  model->kv_bytes = 0;
  if (!own_kv && contexts > 0) {
    int64_t one = (int64_t)((double)kv / contexts) + 1;
    kv = MIN(kv, MAX(one, (int64_t)KV_BYTES_USUAL));
    model->kv_bytes = kv;
  }
  const json_t *name = json_get(root, "architecture"), *place = json_get(root, "place");
  if (name != NULL)
    snprintf(model->architecture, sizeof model->architecture, "%.*s", (int)name->length,
             name->text);
  bool on_host = json_equals(place, "host");
  const char *number = strchr(config->device, ':'); /* cuda:N */
  int gpu = number != NULL ? MIN(MAX(atoi(number + 1), 0), LIFE_GPUS - 1) : 0;
  int at = on_host ? LIFE_HOST : 1 + gpu;
  plan->bytes[LIFE_HOST] = PROCESS_BYTES + swap + host_weights;
  plan->bytes[at] += weights + workspace + kv + states;
  model->may_sleep = !on_host && weights <= config->sleep_space && !model->wish.never_sleeps;
  if (model->may_sleep) {
    plan->asleep[LIFE_HOST] = plan->bytes[LIFE_HOST] + weights;
    plan->asleep[at] = workspace;
    plan->asleep[LIFE_SLEEP] = MAX(weights, 1);
  }
  double share = config->memory > 0 ? config->memory : on_host ? 0.7 : 0.9;
  find_limit(model->models, at, room, share);
  if (!on_host) find_limit(model->models, LIFE_HOST, host_room, 0.7); /* processes, swapping */
  return true;
}

static void survey_failed(served_t *model) {
  survey_t *survey = &model->survey;
  size_t length = survey->reason.length;
  const char *text = survey->reason.data;
  while (length > 0 && text[length - 1] == '\n') length--;
  const char *line = length > 0 ? memrchr(text, '\n', length) : NULL; /* the last line */
  if (line != NULL) length -= (size_t)(line + 1 - text), text = line + 1;
  if (length > 3 && text[0] == '<' && text[2] == '>') text += 3, length -= 3;
  if (length > 8 && strncmp(text, "inferd: ", 8) == 0) text += 8, length -= 8;
  if (length > 0) {
    snprintf(model->reason, sizeof model->reason, "%.*s", (int)MIN(length, 390u), text);
  } else {
    snprintf(model->reason, sizeof model->reason, "its plan cannot be made: status %d",
             (int)survey->status);
  }
}

static void survey_ended(served_t *model) {
  survey_t *survey = &model->survey;
  models_t *models = model->models;
  life_plan_t plan = {.priority = model->wish.priority,
                      .pinned = model->wish.pin,
                      .idle_ns = (uint64_t)(model->wish.idle_s * 1e9)};
  json_doc_t *doc = NULL;
  inferd_error_t error;
  const char *text = survey->text.data, *end = text;
  if (survey->text.length > 0) end = memchr(text, '\n', survey->text.length); /* of the plan */
  bool good = survey->status == 0 && !survey->text.failed && end != NULL &&
              json_parse(text, (size_t)(end - text), &json_limits_request, &doc, &error) == 0 &&
              read_plan(model, json_root(doc), &plan);
  if (good) model_take_description(model, end + 1, survey->text.length - (size_t)(end + 1 - text));
  json_free(doc);
  models->surveys--;
  if (good && model->life == NULL)
    model->life = life_add(models->life, &plan, model, clock_now_ns());
  else if (good)
    life_replan(models->life, model->life, &plan, clock_now_ns());
  model->plan_state = good && model->life != NULL ? PLAN_DONE : PLAN_FAILED;
  model->plan_again_ns = clock_now_ns() + 10 * 1000000000ull;
  if (model->plan_state == PLAN_DONE) {
    model->reason[0] = '\0';
  } else {
    survey_failed(model);
    log_line(LOG_ERROR, "models", "%.200s: %s", model->wish.names.list[0], model->reason);
  }
  models_planned(model);
}

static void on_survey_closed(uv_handle_t *handle) {
  served_t *model = handle->data;
  if (--model->survey.open_handles == 0) survey_ended(model);
}

static void on_survey_exit(uv_process_t *process, int64_t status, int signal_number) {
  served_t *model = process->data;
  model->survey.status = signal_number != 0 ? 128 + signal_number : status;
  uv_close((uv_handle_t *)process, on_survey_closed);
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out) {
  static char room[4096];
  (void)handle, (void)wanted;
  *out = uv_buf_init(room, sizeof room);
}

static void on_text(uv_stream_t *stream, ssize_t got, const uv_buf_t *bytes) {
  served_t *model = stream->data;
  survey_t *survey = &model->survey;
  buffer_t *to = (uv_pipe_t *)stream == &survey->out ? &survey->text : &survey->reason;
  if (got > 0 && to->length + (size_t)got <= SURVEY_BYTES_MAX)
    buffer_append(to, bytes->base, (size_t)got);
  if (got < 0) uv_close((uv_handle_t *)stream, on_survey_closed);
}

void survey_start(served_t *model) {
  survey_t *survey = &model->survey;
  uv_loop_t *loop = model->models->server->loop;
  words_t env = {0};
  char self[] = "/proc/self/exe", check[] = "check", json[] = "--json", show[] = "--show";
  char *arguments[] = {self, check, json, show, model->wish.what, NULL};
  uv_stdio_container_t streams[3] = {
      {.flags = UV_IGNORE},
      {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&survey->out},
      {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&survey->err}};
  uv_process_options_t options = {.exit_cb = on_survey_exit,
                                  .file = self,
                                  .args = arguments,
                                  .stdio_count = 3,
                                  .stdio = streams};
  model->plan_state = PLAN_RUNS;
  model->models->surveys++;
  buffer_clear(&survey->text);
  buffer_clear(&survey->reason);
  survey->text.failed = survey->reason.failed = false;
  survey->status = -1;
  uv_pipe_init(loop, &survey->out, 0);
  uv_pipe_init(loop, &survey->err, 0);
  survey->out.data = survey->err.data = survey->process.data = model;
  survey->open_handles = 3;
  /* It is found out here whether the model may sleep. */
  bool made = env_make(&env, model) && env_set(&env, "INFERD_SLEEP_SPACE", "0");
  options.env = env.list;
  int code = made ? uv_spawn(loop, &survey->process, &options) : UV_ENOMEM;
  words_free(&env);
  if (code == 0) {
    uv_read_start((uv_stream_t *)&survey->out, on_room, on_text);
    uv_read_start((uv_stream_t *)&survey->err, on_room, on_text);
    return;
  }
  buffer_text(&survey->reason, uv_strerror(code));
  if (made)
    uv_close((uv_handle_t *)&survey->process, on_survey_closed);
  else
    survey->open_handles--;
  uv_close((uv_handle_t *)&survey->out, on_survey_closed);
  uv_close((uv_handle_t *)&survey->err, on_survey_closed);
}
