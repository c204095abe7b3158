/* bulk.c: a batch and its lines as JSON, see bulk.h.
 *
 * Any thread; holds nothing, and knows neither the store nor the engine.
 */
#include "server/batches/bulk.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bulk_endpoints[BATCH_PATHS] = {"/v1/chat/completions",
                                                 "/v1/completions",
                                                 "/v1/responses",
                                                 "/v1/embeddings",
                                                 "/score",
                                                 "/v1/score",
                                                 "/rerank",
                                                 "/v1/rerank",
                                                 "/v2/rerank"};

static const char *const statuses[BATCH_STATUSES] = {"in_progress", "cancelling", "completed",
                                                     "cancelled",   "expired",    "failed"};

static const json_limits_t limits = {
    .depth_max = 128, .values_max = 3000000, .key_bytes_max = 65536, .mend_text = true};

/* ---- a batch ---- */

void bulk_free(bulk_t *batch) {
  buffer_free(&batch->metadata);
}

void bulk_file_id(const bulk_t *batch, bool errors, char out[STORE_ID_BYTES]) {
  snprintf(out, STORE_ID_BYTES, "file-%.100s-%s", batch->id + strlen("batch_"),
           errors ? "errors" : "output");
}

static void print_name(buffer_t *out, const char *name) {
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":");
}

static void print_text(buffer_t *out, const char *name, const char *value) {
  print_name(out, name);
  if (value != NULL)
    buffer_quote(out, value, strlen(value));
  else
    buffer_text(out, "null");
}

static void print_time(buffer_t *out, const char *name, int64_t value) {
  print_name(out, name);
  if (value != 0)
    buffer_int(out, value);
  else
    buffer_text(out, "null");
}

static void print_file(buffer_t *out, const bulk_t *batch, bool errors) {
  char id[STORE_ID_BYTES];
  bulk_file_id(batch, errors, id);
  bool has = errors ? batch->has_errors : batch->has_output;
  print_text(out, errors ? "error_file_id" : "output_file_id", has ? id : NULL);
}

void bulk_print(buffer_t *out, const bulk_t *batch) {
  const int64_t *times = batch->times;
  buffer_text(out, "{\"id\":");
  buffer_quote(out, batch->id, strlen(batch->id));
  print_text(out, "object", "batch");
  print_text(out, "endpoint", bulk_endpoints[batch->endpoint]);
  print_name(out, "errors");
  if (batch->problem[0] != '\0') {
    buffer_text(out, "{\"object\":\"list\",\"data\":[{\"code\":\"batch_failed\"");
    print_text(out, "message", batch->problem);
    buffer_text(out, ",\"param\":null,\"line\":null}]}");
  } else {
    buffer_text(out, "null");
  }
  print_text(out, "input_file_id", batch->input);
  print_text(out, "completion_window", batch->window);
  print_text(out, "status", statuses[batch->status]);
  print_file(out, batch, false);
  print_file(out, batch, true);
  print_time(out, "created_at", batch->created);
  print_time(out, "in_progress_at", times[BATCH_IN_PROGRESS]);
  print_time(out, "expires_at", batch->expires);
  print_time(out, "finalizing_at", times[BATCH_COMPLETED]);
  print_time(out, "completed_at", times[BATCH_COMPLETED]);
  print_time(out, "failed_at", times[BATCH_FAILED]);
  print_time(out, "expired_at", times[BATCH_EXPIRED]);
  print_time(out, "cancelling_at", times[BATCH_CANCELLING]);
  print_time(out, "cancelled_at", times[BATCH_CANCELLED]);
  buffer_text(out, ",\"request_counts\":{\"total\":");
  buffer_int(out, batch->total);
  buffer_text(out, ",\"completed\":");
  buffer_int(out, batch->completed);
  buffer_text(out, ",\"failed\":");
  buffer_int(out, batch->failed);
  buffer_text(out, "},\"metadata\":");
  if (batch->metadata.length > 0)
    buffer_append(out, batch->metadata.data, batch->metadata.length);
  else
    buffer_text(out, "null");
  buffer_char(out, '}');
}

static int64_t number_of(const json_t *object, const char *name) {
  int64_t value = 0;
  const json_t *member = json_get(object, name);
  if (json_is_given(member)) (void)json_int64(member, &value);
  return value;
}

static void copy_text(const json_t *object, const char *name, char *out, size_t capacity) {
  const json_t *text = json_get(object, name);
  if (text != NULL && text->type == JSON_STRING)
    snprintf(out, capacity, "%.*s", (int)text->length, text->text);
}

static int place_of(const json_t *value, const char *const *words, int count) {
  int place = 0;
  while (place < count && !json_equals(value, words[place])) place++;
  return place;
}

static void read_times(const json_t *root, bulk_t *out) {
  static const char *const names[BATCH_STATUSES] = {
      "in_progress_at", "cancelling_at", "completed_at", "cancelled_at", "expired_at", "failed_at"};
  const json_t *counts = json_get(root, "request_counts");
  for (int i = 0; i < BATCH_STATUSES; i++) out->times[i] = number_of(root, names[i]);
  out->created = number_of(root, "created_at");
  out->expires = number_of(root, "expires_at");
  out->total = number_of(counts, "total");
  out->completed = number_of(counts, "completed");
  out->failed = number_of(counts, "failed");
}

bool bulk_parse(const char *text, size_t length, bulk_t *out) {
  json_doc_t *doc = NULL;
  inferd_error_t why;
  *out = (bulk_t){0};
  if (json_parse(text, length, &limits, &doc, &why) != 0) return false;
  const json_t *root = json_root(doc), *metadata = json_get(root, "metadata");
  int endpoint = place_of(json_get(root, "endpoint"), bulk_endpoints, BATCH_ENDPOINTS);
  int status = place_of(json_get(root, "status"), statuses, BATCH_STATUSES);
  bool good = endpoint < BATCH_ENDPOINTS && status < BATCH_STATUSES;
  if (good) {
    out->endpoint = (bulk_endpoint_t)endpoint;
    out->status = (bulk_status_t)status;
    copy_text(root, "id", out->id, sizeof out->id);
    copy_text(root, "input_file_id", out->input, sizeof out->input);
    copy_text(root, "completion_window", out->window, sizeof out->window);
    out->has_output = json_is_given(json_get(root, "output_file_id"));
    out->has_errors = json_is_given(json_get(root, "error_file_id"));
    copy_text(json_first(json_get(json_get(root, "errors"), "data")), "message", out->problem,
              sizeof out->problem);
    read_times(root, out);
    if (json_is_given(metadata)) json_print(&out->metadata, metadata);
    good = !out->metadata.failed;
  }
  json_free(doc);
  if (!good) bulk_free(out);
  return good;
}

int64_t bulk_window(const char *text) {
  static const struct {
    char unit;
    int64_t seconds;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  char *end = NULL;
  if (text[0] < '0' || text[0] > '9' || strlen(text) > 8) return 0;
  int64_t count = strtoll(text, &end, 10);
  for (size_t i = 0; i < ARRAY_LEN(units); i++) {
    bool is_it = end[0] == units[i].unit && end[1] == '\0';
    if (is_it && count * units[i].seconds <= BATCH_WINDOW_MAX_S) return count * units[i].seconds;
  }
  return 0;
}

void file_print(buffer_t *out, const char *id, int64_t bytes, int64_t created, const char *name,
                const char *purpose) {
  buffer_text(out, "{\"id\":");
  buffer_quote(out, id, strlen(id));
  print_text(out, "object", "file");
  print_name(out, "bytes");
  buffer_int(out, bytes);
  print_time(out, "created_at", created);
  print_text(out, "filename", name);
  print_text(out, "purpose", purpose);
  print_text(out, "status", "processed");
  buffer_text(out, ",\"expires_at\":null,\"status_details\":null}");
}

/* ---- lines ---- */

static bool is_on(const json_t *body, const char *name) {
  const json_t *value = json_get(body, name);
  return json_is_given(value) && value->type != JSON_FALSE;
}

static int check_line(const json_t *root, bulk_line_text_t *out, inferd_error_t *error) {
  const json_t *url = json_get(root, "url");
  out->custom_id = json_get(root, "custom_id");
  out->body = json_get(root, "body");
  const json_t *id = out->custom_id;
  const char *wrong = NULL;
  int endpoint = place_of(url, bulk_endpoints, BATCH_PATHS);
  if (root->type != JSON_OBJECT)
    wrong = "it is no JSON object";
  else if (id == NULL || id->type != JSON_STRING || id->length == 0 ||
           id->length > BATCH_CUSTOM_ID_MAX)
    wrong = "'custom_id' must be a string of 1 to 512 bytes";
  else if (!json_equals(json_get(root, "method"), "POST"))
    wrong = "'method' must be 'POST'";
  else if (endpoint == BATCH_PATHS)
    wrong = "'url' must be '/v1/chat/completions', '/v1/completions', '/v1/responses' or "
            "'/v1/embeddings'";
  else if (out->body == NULL || out->body->type != JSON_OBJECT)
    wrong = "'body' must be an object";
  else if (is_on(out->body, "stream"))
    wrong = "'body.stream' must be false";
  else if (is_on(out->body, "background"))
    wrong = "'body.background' must be false";
  if (wrong != NULL) return error_set(error, ERR_INVALID_VALUE, "file", "%s", wrong);
  out->endpoint = (bulk_endpoint_t)endpoint;
  return 0;
}

int bulk_line_read(const char *text, size_t length, bulk_line_text_t *out, inferd_error_t *error) {
  *out = (bulk_line_text_t){0};
  int code = json_parse(text, length, &limits, &out->doc, error);
  if (code == 0) code = check_line(json_root(out->doc), out, error);
  if (code == 0) return 0;
  json_free(out->doc);
  out->doc = NULL;
  return code;
}

/* What is wrong with a file, while it is read. */
typedef struct checking {
  uint64_t *ids; /* hashes of each custom_id, and its line */
  int64_t count, wrong;
  bulk_endpoint_t endpoint;
  bool mixed; /* endpoints may differ */
  buffer_t told;
} checking_t;

enum { TOLD_BYTES_MAX = 360 };

static void tell(checking_t *checking, int64_t number, const char *what) {
  buffer_t *told = &checking->told;
  char text[200];
  checking->wrong++;
  if (told->length > TOLD_BYTES_MAX - sizeof text / 2) return;
  snprintf(text, sizeof text, "%sline %" PRId64 ": %.150s", told->length > 0 ? "; " : "", number,
           what);
  buffer_text(told, text);
}

static int compare(const void *left, const void *right) {
  const uint64_t *a = left, *b = right;
  return a[0] != b[0] ? (a[0] < b[0] ? -1 : 1) : (a[1] < b[1] ? -1 : a[1] > b[1]);
}

static void tell_twins(checking_t *checking) {
  if (checking->count == 0) return;
  qsort(checking->ids, (size_t)checking->count, 2 * sizeof *checking->ids, compare);
  for (int64_t i = 1; i < checking->count; i++) {
    const uint64_t *one = &checking->ids[2 * i];
    if (one[0] == one[-2]) tell(checking, (int64_t)one[1], "its 'custom_id' is there before");
  }
}

static void check_one(checking_t *checking, int64_t number, const char *line, size_t length) {
  bulk_line_text_t text;
  inferd_error_t why;
  if (bulk_line_read(line, length, &text, &why) != 0) {
    tell(checking, number, why.message);
    return;
  }
  if (checking->count == 0) checking->endpoint = text.endpoint;
  if (!checking->mixed && text.endpoint >= BATCH_ENDPOINTS)
    tell(checking, number, "its 'url' is for inferd batch alone");
  else if (!checking->mixed && text.endpoint != checking->endpoint)
    tell(checking, number, "its 'url' is another than that of the line before");
  uint64_t *id = &checking->ids[2 * checking->count++];
  id[0] = hash_bytes((const uint8_t *)text.custom_id->text, text.custom_id->length);
  id[1] = (uint64_t)number;
  json_free(text.doc);
}

int bulk_lines_check(const char *text, size_t length,
                     bool (*visit)(void *context, int64_t number, const char *line, size_t length),
                     void *context, bulk_endpoint_t *endpoint, inferd_error_t *error) {
  checking_t checking = {.mixed = endpoint == NULL};
  const char *at = text, *end = text + length;
  int64_t number = 0, most = 1;
  bool goes_on = true;
  for (const char *p = text; p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
    most++;
  if (!checking.mixed && most > BATCH_LINES_MAX + 1)
    return error_set(error, ERR_INVALID_VALUE, "file", "Invalid 'file': it has more than %d lines.",
                     BATCH_LINES_MAX);
  checking.ids = calloc((size_t)most, 2 * sizeof *checking.ids);
  if (checking.ids == NULL) return error_set(error, ERR_OVERLOADED, NULL, "Out of memory.");
  while (at < end && goes_on) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t own = (size_t)((stop != NULL ? stop : end) - at);
    number++;
    if (own > 0 && at[own - 1] == '\r') own--;
    if (own > 0) {
      check_one(&checking, number, at, own);
      if (visit != NULL) goes_on = visit(context, number, at, own);
    }
    at = stop != NULL ? stop + 1 : end;
  }
  tell_twins(&checking);
  int code = 0;
  if (checking.count == 0 && checking.wrong == 0) tell(&checking, 1, "there is none");
  if (checking.wrong > 0)
    code = error_set(error, ERR_INVALID_VALUE, "file",
                     "Invalid 'file': %" PRId64 " lines are wrong: %.*s", checking.wrong,
                     (int)checking.told.length, checking.told.data);
  if (endpoint != NULL) *endpoint = checking.endpoint;
  buffer_free(&checking.told);
  free(checking.ids);
  return code;
}

void bulk_print_result(buffer_t *out, const char *batch, const char *line,
                       const buffer_t *custom_id, int status, const buffer_t *body,
                       const char *code, const char *message) {
  char id[STORE_ID_BYTES + BATCH_LINE_ID_BYTES];
  snprintf(id, sizeof id, "batch_req_%.100s_%s", batch + strlen("batch_"), line);
  buffer_text(out, "{\"id\":");
  buffer_quote(out, id, strlen(id));
  buffer_text(out, ",\"custom_id\":");
  buffer_append(out, custom_id->data, custom_id->length);
  if (body != NULL) {
    buffer_text(out, ",\"response\":{\"status_code\":");
    buffer_int(out, status);
    print_text(out, "request_id", id);
    print_name(out, "body");
    buffer_append(out, body->data, body->length);
    buffer_text(out, "},\"error\":null}");
  } else {
    buffer_text(out, ",\"response\":null,\"error\":{\"code\":");
    buffer_quote(out, code, strlen(code));
    print_text(out, "message", message);
    buffer_text(out, "}}");
  }
}
