/* usage.c: GET /v1/usage, with --store: what keys have used, by days of UTC.
 *
 * The answer is that of OpenAI's usage of completions. An admin key sees all keys, another one
 * itself. The loop thread receives the request and sends the answer; a job of the lanes reads the
 * disk.
 */
#include "server/completion/reply_job.h"
#include "server/store/store.h"
#include "server/tally/tally.h"

#include "engine/base/hex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DAY_S = 24 * 3600, DAYS_DEFAULT = 7, DAYS_MAX = 31, NAMES_BYTES = 1024 };

typedef struct usage_job {
  reply_job_t base; /* first */
  bool all, by_model, by_key;
  int64_t first, end, told;                    /* days; told: the next that is printed */
  bool more;                                   /* days are left */
  char models[NAMES_BYTES], keys[NAMES_BYTES]; /* lists by commas; "" = all */
  stored_use_t *groups;                        /* of one day */
  size_t count, capacity;
} usage_job_t;

/* ---- the answer ---- */

static void print_key(const stored_use_t *use, char out[KEY_NAME_BYTES]) {
  for (int i = 0; i < 4; i++) {
    out[2 * i] = hex_digit(use->owner[i] >> 4);
    out[2 * i + 1] = hex_digit(use->owner[i] & 15);
  }
  out[8] = '\0';
}

static void print_text(buffer_t *out, const char *name, const char *text) {
  buffer_text(out, name);
  if (text != NULL)
    buffer_quote(out, text, strlen(text));
  else
    buffer_text(out, "null");
}

static void print_count(buffer_t *out, const char *name, int64_t count) {
  buffer_text(out, name);
  buffer_int(out, count);
}

static void print_group(const usage_job_t *job, buffer_t *out, const stored_use_t *use) {
  char key[KEY_NAME_BYTES];
  print_key(use, key);
  buffer_text(out, "{\"object\":\"organization.usage.completions.result\"");
  print_count(out, ",\"input_tokens\":", use->input);
  print_count(out, ",\"input_cached_tokens\":", use->cached);
  print_count(out, ",\"output_tokens\":", use->output);
  print_count(out, ",\"num_model_requests\":", use->requests);
  print_text(out, ",\"model\":", job->by_model ? use->model : NULL);
  print_text(out, ",\"api_key_id\":", job->by_key ? key : NULL);
  print_text(out, ",\"api_key_name\":", job->by_key ? use->label : NULL);
  buffer_text(out, ",\"project_id\":null,\"user_id\":null,\"batch\":null}");
}

/* Prints the days before `day`: the groups are those of the first. */
static void print_days(usage_job_t *job, int64_t day) {
  buffer_t *out = &job->base.reply;
  for (; job->told < day; job->told++) {
    if (job->told > job->first) buffer_char(out, ',');
    print_count(out, "{\"object\":\"bucket\",\"start_time\":", job->told * DAY_S);
    print_count(out, ",\"end_time\":", (job->told + 1) * DAY_S);
    buffer_text(out, ",\"results\":[");
    for (size_t i = 0; i < job->count; i++) {
      if (i > 0) buffer_char(out, ',');
      print_group(job, out, &job->groups[i]);
    }
    buffer_text(out, "]}");
    job->count = 0;
  }
}

static bool is_among(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; list[0] != '\0';) {
    size_t own = strcspn(at, ",");
    if (own == length && memcmp(at, name, length) == 0) return true;
    if (at[own] == '\0') return false;
    at += own + 1;
  }
  return true;
}

/* The group of a use; NULL: memory is short. */
static stored_use_t *group_of(usage_job_t *job, const stored_use_t *use) {
  for (size_t i = job->count; i-- > 0;) {
    stored_use_t *group = &job->groups[i];
    bool same_key = !job->by_key || memcmp(group->owner, use->owner, STORE_OWNER_BYTES) == 0;
    if (same_key && (!job->by_model || strcmp(group->model, use->model) == 0)) return group;
    if (job->by_key && !same_key) break; /* they come by key, then by model */
  }
  if (job->count == job->capacity) {
    size_t capacity = job->capacity == 0 ? 16 : 2 * job->capacity;
    size_t bytes = job->base.reply.capacity + capacity * sizeof *use;
    if ((job->base.code = reply_job_charge(&job->base, bytes)) != 0) return NULL;
    stored_use_t *groups = reallocarray(job->groups, capacity, sizeof *groups);
    if (groups == NULL) return NULL;
    job->groups = groups;
    job->capacity = capacity;
  }
  stored_use_t *group = &job->groups[job->count++];
  *group = *use;
  group->requests = group->input = group->cached = group->output = 0;
  return group;
}

static bool add_use(void *context, const stored_use_t *use) {
  usage_job_t *job = context;
  char key[KEY_NAME_BYTES];
  print_key(use, key);
  print_days(job, use->day);
  if (!is_among(job->models, use->model) || !is_among(job->keys, key)) return true;
  stored_use_t *group = group_of(job, use);
  if (group == NULL) {
    if (job->base.code == 0) job->base.reply.failed = true;
    return false;
  }
  group->requests += use->requests;
  group->input += use->input;
  group->cached += use->cached;
  group->output += use->output;
  return true;
}

static int work(reply_job_t *base) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  usage_job_t *job = (usage_job_t *)base;
  answer_store_t *store = base->server->store;
  buffer_text(&base->reply, "{\"object\":\"page\",\"data\":[");
  store_settle(store, nobody, tally_rows);
  job->told = job->first;
  int code = store_uses(store, job->all ? NULL : base->owner, job->first, job->end, add_use, job,
                        &base->error);
  print_days(job, job->end);
  buffer_text(&base->reply, "],\"has_more\":");
  buffer_text(&base->reply, job->more ? "true,\"next_page\":\"" : "false,\"next_page\":null}");
  if (job->more) {
    buffer_int(&base->reply, job->end * DAY_S);
    buffer_text(&base->reply, "\"}");
  }
  free(job->groups);
  return code != 0 ? code : base->code;
}

/* ---- the request ---- */

/* Reads a number of the query. Returns 0, also if it is not given. */
static int read_number(reply_job_t *base, const char *name, int64_t min, int64_t max,
                       int64_t *out) {
  const char *text = exchange_query(base->exchange, name);
  char *end = NULL;
  if (text == NULL) return 0;
  int64_t value = strtoll(text, &end, 10);
  bool good = end != text && *end == '\0' && value >= min && value <= max;
  if (good) *out = value;
  return good ? 0
              : error_set(&base->error, ERR_INVALID_VALUE, name,
                          "Invalid '%s': \"%.20s\" is not a number from %lld to %lld.", name, text,
                          (long long)min, (long long)max);
}

static int read_names(reply_job_t *base, const char *name, char out[NAMES_BYTES]) {
  const char *text = exchange_query(base->exchange, name);
  if (text != NULL && strlen(text) >= NAMES_BYTES)
    return error_set(&base->error, ERR_INVALID_VALUE, name,
                     "Invalid '%s': at most %d bytes, names with commas between them.", name,
                     NAMES_BYTES - 1);
  if (text != NULL) snprintf(out, NAMES_BYTES, "%s", text);
  return 0;
}

static int read_groups(usage_job_t *job) {
  char names[NAMES_BYTES] = "";
  int code = read_names(&job->base, "group_by", names);
  for (const char *at = names; code == 0 && *at != '\0';) {
    size_t length = strcspn(at, ",");
    bool model = length == 5 && memcmp(at, "model", 5) == 0;
    bool key = length == 10 && memcmp(at, "api_key_id", 10) == 0;
    if (!model && !key)
      code = error_set(&job->base.error, ERR_INVALID_VALUE, "group_by",
                       "Invalid 'group_by': '%.*s' is not 'model' or 'api_key_id'.",
                       (int)(length < 20 ? length : 20), at);
    job->by_model |= model;
    job->by_key |= key;
    at += length + (at[length] == ',');
  }
  return code;
}

/* Reads which days: those that the time from start_time to before end_time touches, a page of
 * them. */
static int read_days(usage_job_t *job, int64_t now_s) {
  reply_job_t *base = &job->base;
  const int64_t latest = INT64_C(1) << 40;
  int64_t start = (now_s / DAY_S - DAYS_DEFAULT + 1) * DAY_S, end = now_s + 1, days = DAYS_DEFAULT;
  const char *width = exchange_query(base->exchange, "bucket_width");
  if (width != NULL && strcmp(width, "1d") != 0)
    return error_set(
        &base->error, ERR_INVALID_VALUE, "bucket_width",
        "Invalid 'bucket_width': \"%.20s\" is not '1d'; use is counted by days of UTC.", width);
  int code = read_number(base, "start_time", 0, latest, &start);
  if (code == 0) code = read_number(base, "end_time", 1, latest, &end);
  if (code == 0) code = read_number(base, "limit", 1, DAYS_MAX, &days);
  if (code == 0 && end <= start)
    code = error_set(&base->error, ERR_INVALID_VALUE, "end_time",
                     "Invalid 'end_time': it is not behind 'start_time', %lld.", (long long)start);
  if (code == 0) code = read_number(base, "page", start, end - 1, &start);
  int64_t last = (end - 1) / DAY_S + 1;
  job->first = start / DAY_S;
  job->more = last - job->first > days;
  job->end = job->more ? job->first + days : last;
  return code;
}

void api_usage(exchange_t *exchange) {
  server_t *server = exchange->server;
  usage_job_t *job = (usage_job_t *)reply_job_new(exchange, sizeof *job, false);
  int64_t now_s = (int64_t)time(NULL);
  if (job == NULL) return;
  reply_job_t *base = &job->base;
  base->work = work;
  job->all = exchange->key != NULL && exchange->key->admin;
  base->code = read_days(job, now_s);
  if (base->code == 0) base->code = read_groups(job);
  if (base->code == 0) base->code = read_names(base, "models", job->models);
  if (base->code == 0) base->code = read_names(base, "api_key_ids", job->keys);
  if (base->code == 0) tally_flush(server->tally, now_s, true);
  reply_job_submit(base);
}
