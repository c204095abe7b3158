/* local.c: the lines of a file, without clients; see local.h.
 *
 * Loop thread; a job of the lanes writes. Lines begin in their order, so many at once that the
 * engine is always full, and their answers wait for those before them. The text of the input is in
 * memory as a whole.
 */
#include "server/batches/local.h"

#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "server/batches/line.h"
#include "server/completion/live.h"
#include "server/lanes/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  AHEAD = 4,                /* lines that may be in memory, in sequences of the engine */
  SHOW_MS = 500,            /* between two looks of the progress */
  WRITE_BYTES_MAX = 1 << 20 /* that a job writes at once, and no answer more */
};

struct local {
  struct write_job {
    lane_job_t job; /* first */
    local_t *local;
    buffer_t text;
    int code; /* errno of what failed */
  } write;
  server_t *server;
  char id[40]; /* of the input, as that of a batch: seeds are drawn from it */
  char *text;
  size_t length, at;             /* of the input; at: the next line */
  int64_t number, total, before; /* lines; before: that the output had */
  int64_t answered, failed;
  int file;
  const char *output;
  line_t *first, **last; /* in flight, or their answers wait for those before them */
  int32_t count, in_flight;
  bool writing, finished, stopped;
  uv_idle_t idle; /* active while a turn has work */
  uint64_t began_ns, shown_ns;
  bool shows; /* on a terminal */
};

/* ---- files ---- */

static int fail_file(const char *path, const char *what, inferd_error_t *error) {
  return error_set(error, ERR_IO, NULL, "%.300s cannot be %s: %s", path, what, strerror(errno));
}

/* Reads a whole file; NULL and errno. */
static char *read_whole(int file, size_t *length) {
  struct stat status;
  if (fstat(file, &status) != 0) return NULL;
  if (!S_ISREG(status.st_mode)) return errno = EINVAL, NULL;
  size_t size = (size_t)status.st_size;
  char *text = malloc(size + 1);
  *length = 0;
  while (text != NULL && *length < size) {
    ssize_t n = read(file, text + *length, size - *length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return free(text), NULL;
    if (n == 0) break;
    *length += (size_t)n;
  }
  return text;
}

/* The next line of the input that is not empty; NULL = there is none. Sets its number. */
static const char *next_text(local_t *local, size_t *length) {
  while (local->at < local->length) {
    const char *line = local->text + local->at;
    const char *stop = memchr(line, '\n', local->length - local->at);
    size_t own = stop != NULL ? (size_t)(stop - line) : local->length - local->at;
    local->at += own + (stop != NULL);
    local->number++;
    if (own > 0 && line[own - 1] == '\r') own--;
    *length = own;
    if (own > 0) return line;
  }
  return NULL;
}

static bool count_line(void *context, int64_t number, const char *line, size_t length) {
  (void)number, (void)line, (void)length;
  ((local_t *)context)->total++;
  return true;
}

/* Whether a line of the output is the answer of one of the input. */
static bool answers(const char *line, size_t length, const char *told, size_t told_length,
                    bool *failed) {
  json_doc_t *doc = NULL;
  inferd_error_t why;
  bulk_line_text_t asked;
  if (bulk_line_read(line, length, &asked, &why) != 0) return false;
  bool good = json_parse(told, told_length, &json_limits_model, &doc, &why) == 0;
  const json_t *id = good ? json_get(json_root(doc), "custom_id") : NULL;
  good = id != NULL && id->type == JSON_STRING && id->length == asked.custom_id->length &&
         memcmp(id->text, asked.custom_id->text, id->length) == 0;
  int64_t status = 0;
  if (good)
    (void)json_int64(json_get(json_get(json_root(doc), "response"), "status_code"), &status);
  *failed = status != 200;
  json_free(doc);
  json_free(asked.doc);
  return good;
}

/* Skips the lines that the output has answers of, and cuts what is behind the last whole one. */
static int resume(local_t *local, const char *told, size_t told_length, inferd_error_t *error) {
  size_t at = 0, length = 0;
  for (int64_t number = 1;; number++) {
    const char *stop = memchr(told + at, '\n', told_length - at);
    if (stop == NULL) break;
    size_t own = (size_t)(stop - told) - at;
    const char *line = next_text(local, &length);
    bool failed = false;
    if (line == NULL || !answers(line, length, told + at, own, &failed))
      return error_set(error, ERR_INVALID_VALUE, NULL,
                       "%.300s is no output of this input: its line %" PRId64
                       " answers no line %" PRId64 "; remove it to begin anew",
                       local->output, number, local->number);
    *(failed ? &local->failed : &local->answered) += 1;
    local->before++;
    at += own + 1;
  }
  if (ftruncate(local->file, (off_t)at) != 0 || lseek(local->file, 0, SEEK_END) < 0)
    return fail_file(local->output, "written", error);
  return 0;
}

static int open_output(local_t *local, inferd_error_t *error) {
  size_t length = 0;
  local->file = open(local->output, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  char *told = local->file >= 0 ? read_whole(local->file, &length) : NULL;
  if (told == NULL) return fail_file(local->output, "written", error);
  int code = resume(local, told, length, error);
  free(told);
  return code;
}

static void local_free(local_t *local) {
  if (local->file >= 0) close(local->file);
  for (line_t *line = local->first, *next; line != NULL; line = next) {
    next = line->next;
    line_free(line);
  }
  buffer_free(&local->write.text);
  free(local->text);
  free(local);
}

int local_open(const char *input, const char *output, local_t **out, inferd_error_t *error) {
  local_t *local = calloc(1, sizeof *local);
  if (local == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the lines");
  local->file = -1;
  local->output = output;
  local->last = &local->first;
  local->write.local = local;
  int code = 0, file = open(input, O_RDONLY | O_CLOEXEC);
  if (file >= 0) local->text = read_whole(file, &local->length);
  if (local->text == NULL) code = fail_file(input, "read", error);
  if (file >= 0) close(file);
  if (code == 0)
    code = bulk_lines_check(local->text, local->length, count_line, local, NULL, error);
  if (code == 0) {
    uint64_t hash = hash_bytes((const uint8_t *)local->text, local->length);
    snprintf(local->id, sizeof local->id, "batch_%016" PRIx64, hash);
    code = open_output(local, error);
  }
  if (code == 0) {
    *out = local;
    return 0;
  }
  local_free(local);
  return code;
}

/* ---- progress ---- */

static void show(local_t *local, bool now) {
  uint64_t now_ns = clock_now_ns();
  if (!local->shows || (!now && now_ns - local->shown_ns < (uint64_t)SHOW_MS * 1000000)) return;
  local->shown_ns = now_ns;
  int64_t done = local->answered + local->failed, own = done - local->before;
  double seconds = (double)(now_ns - local->began_ns) * 1e-9;
  fprintf(stderr, "\r%" PRId64 " of %" PRId64 " lines", done, local->total);
  if (local->failed > 0) fprintf(stderr, ", %" PRId64 " failed", local->failed);
  if (own > 0 && seconds > 1)
    fprintf(stderr, ", %.1f per second, %.0f s left", (double)own / seconds,
            (double)(local->total - done) * seconds / (double)own);
  fputs("\033[K", stderr);
  fflush(stderr);
}

/* ---- the output ---- */

static void turn(uv_idle_t *idle);

static void stir(local_t *local) {
  if (!local->stopped) uv_idle_start(&local->idle, turn);
}

static void write_text(lane_job_t *job) {
  struct write_job *write_job = (struct write_job *)job;
  const buffer_t *text = &write_job->text;
  for (size_t at = 0; at < text->length && write_job->code == 0;) {
    ssize_t n = write(write_job->local->file, text->data + at, text->length - at);
    if (n < 0 && errno != EINTR) write_job->code = errno;
    if (n > 0) at += (size_t)n;
  }
}

static void finish(local_t *local) {
  if (local->finished) return;
  local->finished = true;
  local->server->finished(local->server);
}

static void text_written(lane_job_t *job) {
  struct write_job *write_job = (struct write_job *)job;
  local_t *local = write_job->local;
  local->writing = false;
  buffer_clear(&write_job->text);
  if (write_job->code != 0) {
    fprintf(stderr, "%sinferd: %s cannot be written: %s\n", local->shows ? "\n" : "", local->output,
            strerror(write_job->code));
    finish(local);
  }
  show(local, false);
  stir(local);
}

/* Takes the answers at the head of the list that are there, and has them written. */
static void write_answers(local_t *local) {
  buffer_t *text = &local->write.text;
  if (local->writing || local->finished) return;
  while (local->first != NULL && local->first->step == LINE_OVER &&
         text->length < WRITE_BYTES_MAX) {
    line_t *line = local->first;
    size_t had = text->length;
    bulk_print_result(text, local->id, line->id, &line->custom_id, line->status, &line->answer,
                      NULL, NULL);
    buffer_char(text, '\n');
    if (text->failed) { /* later, when there is memory; what was printed before is there */
      text->length = had;
      text->failed = false;
      break;
    }
    *(line->status == 200 ? &local->answered : &local->failed) += 1;
    local->first = line->next;
    if (local->first == NULL) local->last = &local->first;
    local->count--;
    line_free(line);
  }
  if (text->length == 0) return;
  local->writing = true;
  local->write.job = (lane_job_t){.run = write_text, .done = text_written, .kind = LANE_LIGHT};
  lanes_submit(local->server->lanes, &local->write.job);
}

/* ---- lines ---- */

static void on_left(line_t *line) {
  local_t *local = line->owner;
  local->in_flight--;
  stir(local);
}

static void on_over(line_t *line, line_state_t state) {
  (void)state;
  stir(line->owner);
}

static bool read_line(local_t *local) {
  char id[BATCH_LINE_ID_BYTES];
  size_t length = 0, at = local->at;
  int64_t number = local->number;
  const char *text = next_text(local, &length);
  if (text == NULL) return false;
  snprintf(id, sizeof id, "%07" PRId64, local->number);
  line_t *line = line_read(id, text, length);
  if (line == NULL) { /* memory is short: later */
    local->at = at;
    local->number = number;
    return false;
  }
  line->owner = local;
  line->left = on_left;
  line->ended = on_over;
  *local->last = line;
  local->last = &line->next;
  local->count++;
  return true;
}

static void start_lines(local_t *local) {
  const int32_t most = 2 * engine_info(local->server->engine)->max_num_seqs;
  const line_client_t client = {
      .server = local->server, .batch = local->id, .source = hash_bytes((const uint8_t *)"b", 1)};
  uint64_t now_ns = clock_now_ns();
  while (local->count < AHEAD * most && read_line(local)) continue;
  for (line_t *line = local->first; line != NULL && local->in_flight < most; line = line->next) {
    if (line->step != LINE_QUEUED || line->not_before_ns > now_ns) continue;
    local->in_flight++;
    line_start(line, &client);
    if (line->step == LINE_QUEUED) local->in_flight--;
  }
}

static void turn(uv_idle_t *idle) {
  local_t *local = idle->data;
  server_t *server = local->server;
  bool more = false;
  uv_idle_stop(idle); /* what happens below may start it again */
  completions_enter(server->live);
  for (line_t *line = local->first; line != NULL; line = line->next) {
    if (line->step == LINE_PRINTS) more = line_print(line) || more;
  }
  write_answers(local);
  if (!local->stopped && !local->finished && server->phase < SERVER_DRAINING &&
      server->engine != NULL && engine_state(server->engine) == ENGINE_READY) {
    if (local->began_ns == 0) local->began_ns = clock_now_ns();
    start_lines(local);
    if (local->count == 0 && !local->writing && local->at == local->length) finish(local);
  }
  completions_leave(server->live);
  if (more) stir(local);
}

/* ---- the life of the server ---- */

void local_attach(local_t *local, server_t *server) {
  local->server = server;
  local->shows = isatty(STDERR_FILENO) == 1;
  uv_idle_init(server->loop, &local->idle);
  local->idle.data = local;
  server->local = local;
}

void local_tick(local_t *local) {
  if (local == NULL) return;
  show(local, false);
  stir(local);
}

void local_stop(local_t *local) {
  if (local == NULL || local->server == NULL) return;
  local->stopped = true;
  completions_t *live = local->first != NULL ? local->server->live : NULL; /* NULL: no start */
  if (live != NULL) completions_enter(live);
  for (line_t *line = local->first; line != NULL; line = line->next) {
    if (line->step != LINE_OVER) line_stop(line, "shutdown");
  }
  if (live != NULL) completions_leave(live);
  uv_close((uv_handle_t *)&local->idle, NULL);
}

int local_close(local_t *local) {
  if (local == NULL) return 0;
  show(local, true);
  int64_t done = local->answered + local->failed;
  fprintf(stderr, "%s%" PRId64 " of %" PRId64 " lines are answered in %.300s",
          local->shows ? "\n" : "", local->answered, local->total, local->output);
  if (local->failed > 0) fprintf(stderr, ", %" PRId64 " have an error", local->failed);
  if (done < local->total)
    fprintf(stderr, ", %" PRId64 " are left: the same command goes on", local->total - done);
  fputs("\n", stderr);
  int status = local->answered == local->total ? 0 : 1;
  local_free(local);
  return status;
}
