/* serve.c: the life of the daemon: open the port, load the model, serve, drain, exit.
 *
 * Loop thread (the main thread). The port is open before the model is loaded, so that a probe or an
 * eager client hears 503 and Retry-After instead of a refused connection. SIGTERM and SIGINT begin
 * the end, and each further one shortens it; SIGHUP reads configuration and keys again
 * (reload.c); SIGUSR1 opens the log file again; SIGUSR2 writes the state to the log.
 */
#include "server/serve.h"

#include "engine/audio/work.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/journal/head.h"
#include "engine/journal/journal.h"
#include "engine/model/source/locate.h"
#include "engine/picture/work.h"
#include "server/api/sleep.h"
#include "server/batches/local.h"
#include "server/completion/chat.h"
#include "server/completion/lora_table.h"
#include "server/http/auth.h"
#include "server/http/listen.h"
#include "server/keys/shared_rates.h"
#include "server/lanes/lanes.h"
#include "server/ledger/ledger.h"
#include "server/media/media.h"
#include "server/observe/crash.h"
#include "server/observe/health.h"
#include "server/observe/log.h"
#include "server/observe/notify.h"
#include "server/store/store.h"
#include "server/tally/tally.h"
#include "server/trace/trace.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
  TICK_BUSY_MS = 250,
  TICK_IDLE_MS = 1000,
  POLL_MS = 10,           /* of an engine that loads or has failed */
  FAILED_GRACE_MS = 1000, /* for the ends of requests to come from an engine that has failed */
  ABORT_GRACE_MS = 1000,  /* for the last error events to leave */
  STOP_S = 30, /* how long to wait for the engine thread; then the process exits without it */
  STOP_FAILED_S = 5,
  EXIT_STUCK = 70, /* the engine thread does not come to its end */
  EXIT_DEVICE_LOST = 71
};

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
enum { SIGNAL_COUNT = ARRAY_LEN(signals) };

/* All state of the daemon; a process has one. */
typedef struct daemon {
  server_t server; /* first member: on_drained and its like convert its address */
  uv_loop_t loop;
  uv_signal_t signals[SIGNAL_COUNT];
  uv_timer_t tick;  /* completions_tick, watchdog */
  uv_timer_t start; /* polls the engine while it loads */
  uv_timer_t drain; /* deadline of the phase, then of an abort */
  bool ready, aborting;
  uint64_t failed_ns;       /* when the engine was found to have failed; 0 = it has not */
  health_verdict_t verdict; /* of the last tick */
  uint64_t watchdog_ns, watchdog_sent_ns;
  uint64_t tokens_told;
  uint64_t extended_ns; /* last EXTEND_TIMEOUT_USEC */
  double progress_seen;
  struct comm *comm; /* other ranks of the model, NULL = none */
  int exit_status;
  int argc; /* what config_load read, for a reload */
  char *const *argv;
} daemon_t;

/* ---- the end ---- */

static void stop_loop(daemon_t *daemon) {
  uv_stop(&daemon->loop);
}

static void on_abort_deadline(uv_timer_t *timer) {
  stop_loop(timer->data);
}

static void abort_now(daemon_t *daemon, const char *why) {
  if (daemon->aborting) return;
  daemon->aborting = true;
  log_line(LOG_WARN, "stop", "%s: ending %d requests", why, completions_live(&daemon->server));
  http_abort(daemon->server.http);
  uv_timer_start(&daemon->drain, on_abort_deadline, ABORT_GRACE_MS, 0);
}

static void on_drain_deadline(uv_timer_t *timer) {
  abort_now(timer->data, "drain timeout");
}

static void drain(daemon_t *daemon, const char *why) {
  server_t *server = &daemon->server;
  server->phase = SERVER_DRAINING;
  int live = completions_live(server);
  log_line(LOG_INFO, "drain", "%s: draining, %d requests left", why, live);
  notify_send("STOPPING=1\nSTATUS=draining, %d requests left", live);
  uv_timer_start(&daemon->drain, on_drain_deadline,
                 (uint64_t)(server->config->drain_timeout * 1000), 0);
  http_leave(server->http);
  http_drain(server->http);
}

static void on_door_deadline(uv_timer_t *timer) {
  drain(timer->data, "drain delay");
}

static void on_leave_deadline(uv_timer_t *timer) {
  daemon_t *daemon = timer->data;
  if (daemon->server.config->refuse_unready) {
    http_narrow(daemon->server.http);
    uv_timer_start(timer, on_door_deadline, DOOR_MS, 0);
  } else {
    drain(daemon, "drain delay");
  }
}

/* Readiness is off from now on, and answers ask clients to close their connections. Requests are
 * still admitted until the routers in front have seen that. */
static void begin_leaving(daemon_t *daemon, const char *why, double delay_s) {
  server_t *server = &daemon->server;
  server->phase = SERVER_LEAVING;
  http_leave(server->http);
  log_line(LOG_INFO, "drain", "%s: not ready any more, draining in %g s", why, delay_s);
  notify_send("STOPPING=1\nSTATUS=not ready any more, draining soon");
  uv_timer_start(&daemon->drain, on_leave_deadline, (uint64_t)(delay_s * 1000), 0);
}

/* SIGTERM or SIGINT: each ends what the one before began. Before READY no client waits. */
static void end(daemon_t *daemon, const char *why) {
  const config_t *config = daemon->server.config;
  switch (daemon->server.phase) {
  case SERVER_SERVING:
    if ((config->drain_delay > 0 || config->refuse_unready) &&
        engine_state(daemon->server.engine) == ENGINE_READY) {
      begin_leaving(daemon, why, config->drain_delay);
    } else {
      drain(daemon, why);
    }
    break;
  case SERVER_LEAVING: drain(daemon, why); break;
  case SERVER_DRAINING: abort_now(daemon, why); break;
  }
}

/* Clients whose connections are kept hear within a second that they should close them. */
static void on_succeeded(server_t *server) {
  begin_leaving((daemon_t *)server, "the next process serves", MAX(server->config->drain_delay, 1));
}

static void on_finished(server_t *server) {
  if (server->phase < SERVER_DRAINING) drain((daemon_t *)server, "all lines are answered");
}

static void on_drained(server_t *server) {
  stop_loop((daemon_t *)server);
}

/* ---- engine ---- */

static void on_engine_wake(uv_async_t *async) {
  completions_drain_events(async->data);
  sleep_settle(async->data);
}

/* Engine thread. */
static void engine_woke(void *context) {
  daemon_t *daemon = context;
  uv_async_send(&daemon->server.engine_wake);
}

/* Engine thread. */
static void engine_says(void *context, const char *line) {
  (void)context;
  log_line(LOG_INFO, "load", "%s", line);
}

static const char *dtype_of(const char *name) {
  if (strcmp(name, "half") == 0) return "float16";
  return strcmp(name, "float") == 0 ? "float32" : name;
}

static preemption_mode_t mode_of(const char *name) {
  if (strcmp(name, "swap") == 0) return PREEMPT_SWAP;
  return strcmp(name, "recompute") == 0 ? PREEMPT_RECOMPUTE : PREEMPT_AUTO;
}

static int read_quantization(const char *name, engine_options_t *options, inferd_error_t *error) {
  options->quantise_q8 = strcmp(name, "q8") == 0;
  if (options->quantise_q8 || strcmp(name, "none") == 0) return 0;
  if (strncmp(name, "q4", 2) == 0)
    return error_set(
        error, ERR_CONFIGURATION, "quantization",
        "quantization is \"%.20s\": 4 bits made without calibration lose too much; use q8, "
        "or serve a file that is quantised already, such as a GGUF file in Q4_K_M or an "
        "AWQ checkpoint",
        name);
  return error_set(error, ERR_CONFIGURATION, "quantization",
                   "quantization is \"%.40s\", supported: none, q8; the format of a quantised "
                   "checkpoint is found by itself",
                   name);
}

static int read_cpu_experts(const char *text, engine_options_t *options, inferd_error_t *error) {
  char *end;
  errno = 0;
  const long layers = strtol(text, &end, 10);
  const bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
  const bool all = strcmp(text, "all") == 0;
  if (all || strcmp(text, "auto") == 0) {
    options->host_experts = all ? HOST_EXPERTS_ALL : HOST_EXPERTS_AUTO;
    return 0;
  }
  if (is_number && layers < HOST_EXPERTS_ALL) {
    options->host_experts = (int32_t)layers;
    return 0;
  }
  return error_set(error, ERR_CONFIGURATION, "cpu_experts",
                   "cpu_experts is \"%.40s\"; it must be auto, all, or the number of layers whose "
                   "experts lie in host memory, 0 to %d",
                   text, HOST_EXPERTS_ALL - 1);
}

/* Reads --lora-modules, in the order of the adapter slots. The directory names point into the
 * configured texts. */
static int read_loras(const config_t *config, engine_options_t *options, inferd_error_t *error) {
  static const char *dirs[LORAS_MAX];
  const config_list_t *modules = &config->lora_modules;
  int code = loras_check(config, error);
  if (code != 0 || !config->enable_lora) return code;
  for (int i = 0; i < modules->count; i++) dirs[i] = strchr(modules->items[i], '=') + 1;
  options->lora_dirs = dirs;
  options->num_lora_dirs = modules->count;
  options->max_loras = (int32_t)config->max_loras;
  if (options->max_loras < modules->count) options->max_loras = modules->count;
  options->max_lora_rank = (int32_t)config->max_lora_rank;
  return 0;
}

int serve_locate(config_t *config, inferd_error_t *error) {
  located_t model, draft = {.path = ""};
  if (config->model[0] == '\0') {
    return error_set(error, ERR_USAGE, "model", "model is not set: inferd serve MODEL");
  }
  if (config->models.count > 0)
    return error_set(error, ERR_USAGE, "model", "more than one model: %.60s and %.60s",
                     config->model, config->models.items[0]);
  int code = model_locate(config->model, &model, error);
  if (code == 0 && config->speculative_model[0] != '\0') {
    code = model_locate(config->speculative_model, &draft, error);
    if (code != 0 && error != NULL) snprintf(error->param, ERROR_PARAM_MAX, "speculative_model");
  }
  return code != 0 ? code : config_set_models(config, model.path, model.name, draft.path, error);
}

/* --task, or the same by --runner: check.c has compared them. */
static embedding_options_t embedding_of(const config_t *config) {
  static const char *const poolings[] = {"auto", "last", "mean", "cls"};
  static const struct {
    const char *name;
    engine_task_t task;
  } tasks[] = {{"auto", TASK_AUTO},         {"generate", TASK_GENERATE}, {"embed", TASK_EMBED},
               {"embedding", TASK_EMBED},   {"rerank", TASK_RERANK},     {"score", TASK_RERANK},
               {"classify", TASK_CLASSIFY}, {"token_classify", TASK_TAG}};
  bool pools = strcmp(config->runner, "pooling") == 0;
  bool draws = strcmp(config->runner, "generate") == 0;
  size_t i = 0;
  embedding_options_t out = {.matryoshka = config->matryoshka};
  while (strcmp(config->task, tasks[i].name) != 0) i++;
  out.task = tasks[i].task;
  if (out.task == TASK_AUTO && (pools || draws)) out.task = pools ? TASK_POOL : TASK_GENERATE;
  while (strcmp(config->pooling, poolings[out.pooling]) != 0) out.pooling++;
  return out;
}

/* NULL = none was named. */
static const char *mmproj_of(const config_t *config) {
  return config->mmproj[0] != '\0' ? config->mmproj : NULL;
}

int serve_engine_options(const config_t *config, engine_options_t *options, inferd_error_t *error) {
  engine_options_default(options);
  options->model_dir = config->model;
  options->device = config->device;
  options->batch_invariant = config->batch_invariant;
  options->add_ranks = strcmp(config->tensor_parallel_mode, "fast") == 0;
  options->cut_layers = config->pipeline_parallel_size > 1;
  options->isa = config->cpu_isa;
  options->num_threads = (int32_t)config->threads;
  options->num_replicas = (int32_t)config->data_parallel_size;
  options->dummy_weights = strcmp(config->load_format, "dummy") == 0;
  options->no_images = config->limit_images == 0;
  options->no_sounds = config->limit_audio == 0;
  options->mmproj = mmproj_of(config);
  options->image_max_tokens = (int32_t)config->image_max_tokens;
  options->prompt_embeds = config->enable_prompt_embeds;
  options->skip_tokenizer = config->skip_tokenizer_init;
  options->dtype = dtype_of(config->dtype);
  options->embedding = embedding_of(config);
  options->max_model_len = config->max_model_len;
  options->kv_cache_bytes = config->kv_cache_bytes;
  options->kv_fp8 = strcmp(config->kv_cache_dtype, "fp8") == 0;
  options->kv_int8 = strcmp(config->kv_cache_dtype, "int8") == 0;
  if (config->memory > 0) options->memory_fraction = config->memory;
  if (config->block_size > 0) options->block_size = (int32_t)config->block_size;
  options->num_blocks = (int32_t)config->num_blocks;
  options->num_snapshots = (int32_t)config->state_snapshots;
  options->max_num_seqs = (int32_t)config->max_num_seqs;
  options->max_num_batched_tokens = (int32_t)config->max_num_batched_tokens;
  options->max_step_ms = (int32_t)config->max_step_ms;
  options->mask_threads = (int32_t)config->mask_threads;
  options->long_prefill_token_threshold = (int32_t)config->long_prefill_token_threshold;
  options->draft = (draft_options_t){.tokens_max = (int32_t)config->num_speculative_tokens,
                                     .match_min = (int32_t)config->prompt_lookup_min,
                                     .match_max = (int32_t)config->prompt_lookup_max,
                                     .predicts = strcmp(config->speculative_method, "mtp") == 0};
  options->draft_model_dir =
      config->speculative_model[0] != '\0' ? config->speculative_model : NULL;
  options->enable_chunked_prefill = config->enable_chunked_prefill;
  options->enable_prefix_caching =
      config->enable_prefix_caching && strcmp(config->prefix_share, "none") != 0;
  const char *policy = config->scheduling_policy;
  options->priority_policy = strcmp(policy, "priority") == 0;
  options->slo_policy = strcmp(policy, "slo") == 0;
  options->short_prompts_pass = config->short_prompts_pass;
  options->fair_share = config->fair_share || strcmp(policy, "fair") == 0;
  options->max_skips = (int32_t)config->max_skips;
  options->max_preemptions = (int32_t)config->max_preemptions;
  options->sleep_space_bytes = config->sleep_space;
  options->swap_space_bytes = config->swap_space;
  options->prefix_cache_bytes = config->prefix_cache_space;
  if (config->prefix_cache_file[0] != '\0') options->prefix_cache_file = config->prefix_cache_file;
  options->preemption_mode = mode_of(config->preemption_mode);
  options->max_logprobs = (int32_t)config->max_logprobs;
  options->max_queue_requests = (int32_t)config->max_queue_requests;
  options->max_queue_tokens = config->max_queue_tokens;
  options->max_queue_time_s = config->max_queue_time;
  options->queue_time_tokens = (int32_t)config->queue_time_tokens;
  options->trace = strcmp(config->log_level, "debug") == 0;
  options->seed = (uint64_t)config->seed;
  int code = read_quantization(config->quantization, options, error);
  if (code == 0) code = read_cpu_experts(config->cpu_experts, options, error);
  return code != 0 ? code : read_loras(config, options, error);
}

/* ---- start ---- */

/* What can be asked of a model, by its task. */
typedef struct invitation {
  const char *route, *fields;
} invitation_t;
static const invitation_t invitations[] = {
    [TASK_GENERATE] = {"completions", "\"prompt\": \"Once upon a time\", \"max_tokens\": 64"},
    [TASK_EMBED] = {"embeddings", "\"input\": \"Once upon a time\""},
    [TASK_CLASSIFY] = {"classify", "\"input\": \"Once upon a time\""},
    [TASK_RERANK] = {"rerank", "\"query\": \"tales\", \"documents\": [\"Once upon a time\"]"},
    [TASK_TAG] = {"classify", "\"input\": \"Once upon a time\""}};

/* Prints the address of the web page, and a command that can be pasted. In a line of JSON the
 * command has no quotes, which would be escaped. */
static void print_invitation(const server_t *server) {
  const config_t *config = server->config;
  const char *address = http_address(server->http, 0);
  const char *scheme = http_has_tls(server->http) ? "https" : "http";
  const char *key = auth_key_count(server->auth) > 0 ? " -H \"Authorization: Bearer $KEY\"" : "";
  const char *name = config->served_model_name.count > 0 ? config->served_model_name.items[0] : "";
  const embedding_info_t *info = engine_info(server->engine)->embedding;
  const invitation_t *call = &invitations[info != NULL ? info->task : TASK_GENERATE];
  char where[256], model[160] = "";
  if (strncmp(address, "unix:", 5) == 0) {
    snprintf(where, sizeof where, "--unix-socket %s http://localhost", address + 5);
  } else if (strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0) {
    snprintf(where, sizeof where, "%s://localhost%s", scheme, strrchr(address, ':'));
  } else {
    snprintf(where, sizeof where, "%s://%s", scheme, address);
  }
  if (strcmp(config->web_page, "on") == 0 && strncmp(address, "unix:", 5) != 0) {
    log_line(LOG_INFO, "ready", "web page: %s/", where);
  }
  if (log_is_json()) {
    log_line(LOG_INFO, "ready", "curl %s%s/v1/models",
             auth_key_count(server->auth) > 0 ? "--oauth2-bearer $KEY " : "", where);
    return;
  }
  if (name[0] != '\0') snprintf(model, sizeof model, "\"model\": \"%.120s\", ", name);
  log_line(LOG_INFO, "ready", "curl %s/v1/%s%s -H 'Content-Type: application/json' -d '{%s%s}'",
           where, call->route, key, model, call->fields);
}

static void on_ready(daemon_t *daemon) {
  server_t *server = &daemon->server;
  const engine_info_t *info = engine_info(server->engine);
  double seconds = (double)(clock_now_ns() - server->start_ns) * 1e-9;
  daemon->ready = true;
  if (info->vision == NULL) { /* nothing will be asked of it */
    helper_stop(server->pictures);
    server->pictures = NULL;
  }
  if (info->speech == NULL && info->hearing == NULL) {
    helper_stop(server->sounds);
    server->sounds = NULL;
  }
  chat_model_ready(server->live, server->config, engine_tokenizer(server->engine));
  serve_set_fingerprint(server);
  if (server->store != NULL) head_write(server->engine, &server->engine_text);
  log_line(LOG_INFO, "ready",
           "context %d tokens, %d sequences at once, %d KV blocks of %d, %s (%s)",
           info->max_model_len, info->max_num_seqs, info->num_blocks - 1, info->block_size,
           info->backend, info->device);
  log_line(LOG_INFO, "ready", "ready in %.2f s", seconds);
  if (server->local == NULL && !server->behind) print_invitation(server);
  inferd_error_t error = {0};
  server->starting = false;
  if (http_ready(server->http, &error) != 0) {
    log_line(LOG_ERROR, "ready", "%s", error.message);
    daemon->exit_status = error_exit_code(error.code);
    stop_loop(daemon);
    return;
  }
  background_start(server);
  runner_tick(server);
  local_tick(server->local);
  notify_send("READY=1\nSTATUS=Serving on %s, %d KV blocks, context %d",
              http_address(server->http, 0), info->num_blocks - 1, info->max_model_len);
}

static void on_failed(daemon_t *daemon, uint64_t now_ns) {
  inferd_error_t error = {0};
  daemon->failed_ns = now_ns;
  engine_failure(daemon->server.engine, &error);
  config_explain(daemon->server.config, &error);
  int status = daemon->ready ? EXIT_DEVICE_LOST : error_exit_code(error.code);
  log_line(LOG_ERROR, daemon->ready ? "device-error" : "load", "%s", error.message);
  notify_send("STATUS=failed: %.200s\nEXIT_STATUS=%d", error.message, status);
  daemon->exit_status = status;
  if (!daemon->ready) stop_loop(daemon);
}

/* The engine says of each request that it has failed, which takes until its steps in flight have
 * ended. What an abort ends would hear that the server is shutting down. */
static void end_failed(daemon_t *daemon, uint64_t now_ns) {
  if (daemon->failed_ns == 0) on_failed(daemon, now_ns);
  if (completions_live(&daemon->server) == 0 ||
      now_ns - daemon->failed_ns >= FAILED_GRACE_MS * 1000000ull)
    abort_now(daemon, "the engine has failed");
}

/* Extends the start timeout of the service manager, once a second, while the weights are being
 * read, and once for what follows. */
static void report_loading(daemon_t *daemon) {
  double progress = engine_progress(daemon->server.engine);
  uint64_t now_ns = clock_now_ns(), since_ns = now_ns - daemon->extended_ns;
  if (progress <= daemon->progress_seen || (progress < 1 && since_ns < 1000000000u)) return;
  daemon->progress_seen = progress;
  daemon->extended_ns = now_ns;
  notify_loading(progress);
}

static void on_start_timer(uv_timer_t *timer) {
  daemon_t *daemon = timer->data;
  switch (engine_state(daemon->server.engine)) {
  case ENGINE_LOADING: report_loading(daemon); return;
  case ENGINE_READY: on_ready(daemon); break;
  case ENGINE_FAILED: on_failed(daemon, clock_now_ns()); break;
  case ENGINE_STOPPED: stop_loop(daemon); break;
  }
  uv_timer_stop(timer);
}

/* ---- steady state ---- */

static void pet_watchdog(daemon_t *daemon, uint64_t now_ns) {
  if (daemon->watchdog_ns == 0 || now_ns - daemon->watchdog_sent_ns < daemon->watchdog_ns / 2)
    return;
  /* If the device does not answer, or the engine thread stands still, for a whole interval, the
   * service manager must restart the process: stop sending WATCHDOG=1. */
  bool fails = health_verdict(&daemon->server, now_ns, daemon->watchdog_ns) >= HEALTH_STUCK;
  daemon->watchdog_sent_ns = now_ns;
  notify_send(fails ? "WATCHDOG=trigger" : "WATCHDOG=1");
}

/* The parent of several models counts what each of them computes. */
static void tell_parent(daemon_t *daemon) {
  engine_stats_t stats;
  if (!daemon->server.behind || !daemon->ready) return;
  engine_stats(daemon->server.engine, &stats);
  if (stats.prompt_tokens + stats.generation_tokens == daemon->tokens_told) return;
  daemon->tokens_told = stats.prompt_tokens + stats.generation_tokens;
  notify_send("X_INFERD_TOKENS=%llu %llu", (unsigned long long)stats.prompt_tokens,
              (unsigned long long)stats.generation_tokens);
}

/* Logs a change of the verdict. */
static void report_verdict(daemon_t *daemon, uint64_t now_ns) {
  static const char *const words[HEALTH_VERDICTS] = {"", "the engine is late",
                                                     "the engine is stuck", "the device hangs"};
  const server_t *server = &daemon->server;
  health_verdict_t verdict = health_verdict(server, now_ns, health_limit_ns(server));
  if (verdict == daemon->verdict) return;
  daemon->verdict = verdict;
  if (verdict == HEALTH_FINE) {
    log_line(LOG_WARN, "watchdog", "the engine makes steps again");
    return;
  }
  engine_activity_t activity;
  engine_activity(server->engine, &activity);
  log_line(verdict == HEALTH_LATE ? LOG_WARN : LOG_ERROR, "watchdog",
           "no step for %.0f s, %d requests wait: %s while %s, last for request %s",
           (double)health_stall_ns(server, now_ns) * 1e-9, completions_live(server), words[verdict],
           health_phase(activity.phase), completions_request_id(server, activity.request_id));
}

static void on_tick(uv_timer_t *timer) {
  daemon_t *daemon = timer->data;
  uint64_t now_ns = clock_now_ns();
  completions_tick(&daemon->server, now_ns);
  tally_flush(daemon->server.tally, (int64_t)time(NULL), false);
  background_tick(&daemon->server);
  runner_tick(&daemon->server);
  local_tick(daemon->server.local);
  pet_watchdog(daemon, now_ns);
  tell_parent(daemon);
  http_identity_refresh(daemon->server.http, now_ns);
  report_verdict(daemon, now_ns);
  if (daemon->ready && !daemon->aborting && engine_state(daemon->server.engine) == ENGINE_FAILED)
    end_failed(daemon, now_ns);
  uint64_t next_ms = completions_live(&daemon->server) > 0 ? TICK_BUSY_MS : TICK_IDLE_MS;
  if (daemon->failed_ns > 0) next_ms = POLL_MS;
  uint64_t half_ms = daemon->watchdog_ns / 4000000;
  if (half_ms > 0 && half_ms < next_ms) next_ms = half_ms;
  uv_timer_start(timer, on_tick, next_ms, 0);
}

static void dump_state(const server_t *server) {
  engine_stats_t stats;
  http_stats_t http;
  engine_stats(server->engine, &stats);
  http_stats(server->http, &http);
  log_line(
      LOG_INFO, "state",
      "%s: running %d, waiting %d, swapped %d, blocks used %d cached %d free %d, on the host %d, "
      "steps %llu; connections idle %d reading %d waiting %d streaming %d; log lines dropped %llu",
      health_state(server), stats.num_running, stats.num_waiting, stats.num_swapped,
      stats.blocks_used, stats.blocks_cached, stats.blocks_free, stats.host_blocks_used,
      (unsigned long long)stats.steps, http.connections_idle, http.connections_reading,
      http.connections_waiting, http.connections_streaming, (unsigned long long)log_dropped());
}

static void on_signal(uv_signal_t *handle, int number) {
  daemon_t *daemon = handle->data;
  switch (number) {
  case SIGTERM: end(daemon, "SIGTERM"); break;
  case SIGINT: end(daemon, "SIGINT"); break;
  case SIGHUP: serve_reload(&daemon->server, daemon->argc, daemon->argv); break;
  case SIGUSR1: log_reopen(); break;
  case SIGUSR2: dump_state(&daemon->server); break;
  default: break;
  }
}

/* ---- set-up and tear-down ---- */

/* A core file holds prompts and keys, so there is none unless the operator asks. */
static void limit_core_files(bool wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  if (wanted && limit.rlim_max == 0)
    log_line(LOG_WARN, "start", "core_dumps: the hard limit of core files is 0 (ulimit -Hc)");
  limit.rlim_cur = wanted ? limit.rlim_max : 0;
  (void)setrlimit(RLIMIT_CORE, &limit);
}

static void ignore_signals(void) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ,
         SIG_IGN); /* at the size limit of the log file, lines are lost but the daemon runs on */
}

/* Makes the handles of the loop. They need descriptors: without any they fail. */
static int init_handles(daemon_t *daemon, inferd_error_t *error) {
  int code = uv_loop_init(&daemon->loop);
  daemon->server.loop = &daemon->loop;
  if (code == 0) code = uv_async_init(&daemon->loop, &daemon->server.engine_wake, on_engine_wake);
  daemon->server.engine_wake.data = &daemon->server;
  for (int i = 0; i < SIGNAL_COUNT && code == 0; i++) {
    code = uv_signal_init(&daemon->loop, &daemon->signals[i]);
    daemon->signals[i].data = daemon;
    if (code == 0) code = uv_signal_start(&daemon->signals[i], on_signal, signals[i]);
  }
  if (code != 0) {
    return error_set(error, ERR_IO, NULL, "the event loop cannot be made: %s%s", uv_strerror(code),
                     code == UV_EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
  }
  uv_timer_init(&daemon->loop, &daemon->tick);
  uv_timer_init(&daemon->loop, &daemon->start);
  uv_timer_init(&daemon->loop, &daemon->drain);
  daemon->tick.data = daemon->start.data = daemon->drain.data = daemon;
  return 0;
}

/* Any thread. */
static void warn_of_traces(const char *text) {
  log_line(LOG_WARN, "trace", "%s", text);
}

/* Thread of the journal. */
static void journal_changed(const char *problem) {
  if (problem != NULL)
    log_line(LOG_ERROR, "journal", "the journal cannot be written: %s", problem);
  else
    log_line(LOG_INFO, "journal", "the journal is written again");
}

static struct journal *crashing; /* of this process */

static void flush_journal(void) {
  journal_flush(crashing);
}

/* Opens --journal. */
static int open_journal(const config_t *config, struct journal **out, inferd_error_t *error) {
  const journal_options_t options = {
      .path = config->journal, .bytes_max = config->journal_size, .changed = journal_changed};
  if (config->journal[0] == '\0') return 0;
  int code = journal_open(&options, out, error);
  if (code != 0) return code;
  crashing = *out;
  crash_last(flush_journal);
  log_line(LOG_INFO, "start", "the steps of the engine are written to %.300s", config->journal);
  return 0;
}

static int set_up(daemon_t *daemon, config_t *config, inferd_error_t *error) {
  server_t *server = &daemon->server;
  engine_options_t options;
  int code = config_load(&server->asked, daemon->argc, daemon->argv, error);
  server->queue_requests_max = config->max_queue_requests;
  if (code == 0) code = serve_locate(config, error);
  if (code == 0) code = serve_engine_options(config, &options, error);
  if (code != 0) return code;
  log_line(LOG_INFO, "start", "model %.400s", config->model);
  options.comm = daemon->comm;
  options.rank_limit_ns = (uint64_t)(config->watchdog_interval * 1e9);
  options.wake = engine_woke;
  options.log = engine_says;
  options.context = daemon;
  if ((code = auth_new(config, &server->auth, error)) != 0) return code;
  if ((code = server_open_store(server, error)) != 0) return code;
  if (server->store != NULL)
    code = tally_new(server->store, (int64_t)time(NULL), &server->tally, error);
  if (code != 0) return code;
  if ((code = open_journal(config, &server->journal, error)) != 0) return code;
  options.journal = server->journal;
  options.keeps_constraints = server->store != NULL;
  if ((code = tracer_start(config, warn_of_traces, &server->tracer, error)) != 0) return code;
  if (server->tracer != NULL)
    log_line(LOG_INFO, "start", "spans go to %s", tracer_address(server->tracer));
  if (config->allowed_media_hosts.count > 0 &&
      (code = media_open(&config->allowed_media_hosts, server->loop, &server->media, error)) != 0)
    return code;
  server->drained = on_drained;
  server->succeeded = on_succeeded;
  server->finished = on_finished;
  server->lanes = lanes_new(server->loop);
  server->ledger = ledger_new((size_t)config->max_request_memory);
  if (server->lanes != NULL && server->ledger != NULL && completions_new(server) == 0) {
    server->metrics = metrics_new(server, model_name(server->live));
  }
  if (server->metrics == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the server");
  if (!server->behind && (code = background_new(server, error)) != 0) return code;
  if (!server->behind && (code = runner_new(server, error)) != 0) return code;
  if ((code = chat_model_load(server->live, config, error)) != 0) return code;
  if ((code = http_start(server, &server->http, error)) != 0) return code;
  int keys = auth_key_count(server->auth);
  const char *address;
  for (int i = 0; (address = http_address(server->http, i)) != NULL; i++) {
    bool tls = http_has_tls(server->http) && strncmp(address, "unix:", 5) != 0;
    log_line(LOG_INFO, "start", "listening on %s%s, %s", address, tls ? " with TLS" : "",
             keys > 0 ? "API key needed" : "no API key set");
  }
  server_warn_of_access(server);
  if ((code = publish_start(server, &options, error)) != 0) return code;
  return engine_create(&options, &server->engine, error);
}

static void run(daemon_t *daemon) {
  daemon->watchdog_ns = notify_watchdog_ns();
  daemon->server.starting = true;
  uv_timer_start(&daemon->start, on_start_timer, 0, POLL_MS);
  uv_timer_start(&daemon->tick, on_tick, TICK_BUSY_MS, 0);
  uv_run(&daemon->loop, UV_RUN_DEFAULT);
}

static void close_all(daemon_t *daemon) {
  for (int i = 0; i < SIGNAL_COUNT; i++) uv_close((uv_handle_t *)&daemon->signals[i], NULL);
  uv_close((uv_handle_t *)&daemon->tick, NULL);
  uv_close((uv_handle_t *)&daemon->start, NULL);
  uv_close((uv_handle_t *)&daemon->drain, NULL);
}

static const engine_t *stopping; /* the engine whose thread does not end */
static bool device_is_lost;

/* Only a device that does not answer, or has failed, is reported as lost. */
static void leave(int number) {
  (void)number;
  engine_activity_t activity;
  engine_activity(stopping, &activity);
  bool is_device = activity.phase == ENGINE_LAUNCHES || activity.phase == ENGINE_WAITS;
  _exit(device_is_lost || is_device ? EXIT_DEVICE_LOST : EXIT_STUCK);
}

/* Limits how long the process waits for the engine to end: a lost device may never answer. */
static void limit_stop(const daemon_t *daemon) {
  stopping = daemon->server.engine;
  device_is_lost = daemon->exit_status == EXIT_DEVICE_LOST;
  signal(SIGALRM, leave);
  alarm(daemon->verdict >= HEALTH_STUCK || device_is_lost ? STOP_FAILED_S : STOP_S);
}

/* Exits at once if a signal stops the daemon while the model loads, which may take minutes. The
 * engine has no request yet, and its thread ends with the process. */
static void leave_loading(const daemon_t *daemon) {
  http_stop(daemon->server.http);
  log_line(LOG_INFO, "stop", "stopped while loading");
  log_close();
  _exit(daemon->exit_status);
}

/* Frees everything. The engine first gives all requests back, and the jobs in libuv's pool finish
 * while the loop runs; only then is their memory freed. */
static void tear_down(daemon_t *daemon) {
  server_t *server = &daemon->server;
  if (server->http != NULL) http_stop(server->http);
  background_stop(server);
  runner_stop(server);
  local_stop(server->local);
  if (server->engine != NULL) {
    limit_stop(daemon);
    engine_stop(server->engine);
    completions_drain_events(server);
  }
  publish_stop(server);
  media_stop(server->media);
  close_all(daemon);
  uv_close((uv_handle_t *)&server->engine_wake, NULL);
  uv_run(&daemon->loop, UV_RUN_DEFAULT);
  CHECK_EQ(uv_loop_close(&daemon->loop), 0);
  tally_flush(server->tally, (int64_t)time(NULL), true);
  store_close(server->store);
  tally_free(server->tally);
  background_free(server);
  runner_free(server);
  completions_free(server);
  media_free(server->media);
  lanes_free(server->lanes);
  ledger_free(server->ledger);
  if (server->engine != NULL) engine_destroy(server->engine);
  crash_last(NULL);
  journal_close(server->journal);
  buffer_free(&server->engine_text);
  if (server->metrics != NULL) metrics_free(server->metrics);
  tracer_stop(server->tracer);
  helper_stop(server->pictures);
  helper_stop(server->sounds);
  auth_free(server->auth);
  config_free(&server->asked);
}

/* Large blocks, which are those of requests, go back to the system when they are freed. Else the C
 * library raises the size of such blocks to that of the largest one freed so far, up to 32 MiB, and
 * keeps smaller ones: then a process holds what its requests have held at some time. */
static void return_large_blocks(void) {
  enum { LARGE_BYTES = 256 * 1024 };
  (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
}

/* Whether the model may be one that sees. What is wrong with it is told when it is loaded. */
static bool may_see(const config_t *config) {
  located_t model;
  inferd_error_t ignored;
  return config->limit_images > 0 && config->model[0] != '\0' &&
         model_locate(config->model, &model, &ignored) == 0 &&
         engine_may_see(model.path, mmproj_of(config));
}

static bool may_hear(const config_t *config) {
  located_t model;
  inferd_error_t ignored;
  return config->model[0] != '\0' && model_locate(config->model, &model, &ignored) == 0 &&
         engine_may_hear(model.path);
}

/* The helpers are forked now, from a process without threads, handlers of signals, secrets and
 * weights. They take descriptors, which few models have a use for. */
static int start_helpers(server_t *server, const config_t *config, inferd_error_t *error) {
  int code = 0;
  if (may_see(config)) code = helper_start(&picture_trade, &server->pictures, error);
  if (code == 0 && may_hear(config)) code = helper_start(&audio_trade, &server->sounds, error);
  return code;
}

static bool joined; /* serve_join_parent has found a parent */

void serve_join_parent(void) {
  const char *text = getenv("_INFERD_PARENT");
  if (text == NULL) return;
  pid_t parent = (pid_t)strtol(text, NULL, 10);
  /* It may have ended before this call. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(EXIT_STUCK);
  joined = true;
}

void serve_begin_process(void) {
  ignore_signals();
  tzset();
  return_large_blocks();
}

int serve_open_log(const config_t *config, inferd_error_t *error) {
  int code = log_open(config, error);
  if (code != 0) {
    fprintf(stderr, "%sinferd: %s\n", log_priority(LOG_ERROR), error->message);
    return code;
  }
  log_line(LOG_INFO, "start", "inferd %s (%s)", INFERD_VERSION, INFERD_COMMIT);
  limit_core_files(config->core_dumps);
  for (int i = 0; i < config->notices.count; i++)
    log_line(LOG_WARN, "start", "%s", config->notices.items[i]);
  return 0;
}

static int serve(config_t *config, int argc, char *const *argv, struct comm *comm,
                 struct local *local) {
  static daemon_t daemon; /* static, because callbacks may run until the process ends */
  inferd_error_t error = {0};
  serve_begin_process();
  int code = start_helpers(&daemon.server, config, &error);
  if (code == 0 && joined) code = shared_rates_join(SHARED_RATES_FD, &error);
  crash_install();
  daemon.server.config = config;
  daemon.server.behind = joined;
  daemon.comm = comm;
  daemon.argc = argc;
  daemon.argv = argv;
  daemon.server.start_ns = clock_now_ns();
  daemon.server.start_time = (int64_t)time(NULL);
  if (serve_open_log(config, &error) != 0) return error_exit_code(error.code);
  if (code == 0) code = init_handles(&daemon, &error);
  if (code != 0) { /* the end of the process frees all that was taken so far */
    log_line(LOG_ERROR, "start", "%s", error.message);
    log_close();
    return error_exit_code(code);
  }
  if (local != NULL) local_attach(local, &daemon.server);
  code = set_up(&daemon, config, &error);
  if (code == 0) {
    run(&daemon);
    const engine_state_t state = engine_state(daemon.server.engine);
    if (state == ENGINE_LOADING) leave_loading(&daemon);
    /* A signal may end the loop before a tick has seen that the engine failed. */
    if (state == ENGINE_FAILED && daemon.failed_ns == 0) on_failed(&daemon, clock_now_ns());
  } else {
    config_explain(config, &error);
    log_line(LOG_ERROR, "start", "%s", error.message);
    daemon.exit_status = error_exit_code(code);
    notify_send("STATUS=failed: %.300s\nEXIT_STATUS=%d", error.message, daemon.exit_status);
  }
  tear_down(&daemon);
  /* Of an end with an error the last line says which. */
  if (code == 0 && daemon.exit_status == 0) log_line(LOG_INFO, "stop", "stopped");
  log_close();
  return daemon.exit_status;
}

int serve_run(config_t *config, int argc, char *const *argv, struct comm *comm) {
  return serve(config, argc, argv, comm, NULL);
}

int serve_batch(config_t *config, int argc, char *const *argv, struct local *local) {
  int status = serve(config, argc, argv, NULL, local);
  int lines = local_close(local);
  return status != 0 ? status : lines;
}
