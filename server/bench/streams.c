/* streams.c: `inferd bench streams`: many SSE streams at once from a server that is known to make
 * a token every so often; how many arrive, and how evenly.
 *
 * One thread: connections (connection.c) on epoll, so that a client on the same machine takes as
 * little as possible from the server it measures. Frames that come in one read share their time:
 * the gaps of all but the first are 0. Measuring begins a second after the last stream has begun.
 */
#include "engine/base/util.h"
#include "server/bench/bench.h"
#include "server/bench/connection.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { HISTOGRAM_US = 1000000, SETTLE_MS = 1000, START_LIMIT_S = 60, EVENTS_MAX = 1024 };
enum { MARGIN_S = 15 }; /* tokens are asked for beyond the measured time: streams begin by and by */

typedef struct stream {
  client_connection_t connection;
  char *request;
  bool ended;
  int match;  /* characters of "data: {" seen so far */
  int frames; /* in what was read last */
  bool done;  /* [DONE] has come */
  uint64_t start_ns, first_ns, last_ns;
} stream_t;

typedef struct streams {
  bench_options_t body;
  server_address_t address;
  int count, seconds;
  double interval_ms;
  int epoll_fd, num_begun, num_ended;
  stream_t *streams;
  bool measuring;
  uint64_t tokens, reads;
  uint64_t *jitter_us, *gap_us; /* [HISTOGRAM_US + 1] counts; the last one is "or more" */
  uint64_t num_gaps, jitter_max_us;
} streams_t;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- reading ---- */

static void keep_gap(streams_t *streams, uint64_t gap_ns) {
  double off_us = ((double)gap_ns - streams->interval_ms * 1e6) / 1e3;
  uint64_t jitter = (uint64_t)(off_us < 0 ? -off_us : off_us), gap = gap_ns / 1000;
  if (jitter > streams->jitter_max_us) streams->jitter_max_us = jitter;
  streams->jitter_us[MIN(jitter, HISTOGRAM_US)]++;
  streams->gap_us[MIN(gap, HISTOGRAM_US)]++;
  streams->num_gaps++;
}

/* Counts frames whose head ends in these bytes. "d" occurs in the pattern at its start only, so a
 * mismatch never has to look back. */
static void on_body(void *context, const char *bytes, size_t count) {
  static const char pattern[] = "data: {";
  stream_t *stream = context;
  for (size_t i = 0; i < count; i++) {
    if (bytes[i] == '[' && pattern[stream->match] == '{') stream->done = true;
    if (bytes[i] == pattern[stream->match]) {
      stream->match++;
    } else {
      stream->match = bytes[i] == 'd';
    }
    if (pattern[stream->match]) continue;
    stream->match = 0;
    stream->frames++;
  }
}

static void end_stream(streams_t *streams, stream_t *stream) {
  if (stream->ended) return;
  stream->ended = true;
  streams->num_ended++;
  epoll_ctl(streams->epoll_fd, EPOLL_CTL_DEL, stream->connection.fd, NULL);
}

/* False: this run is worth nothing. */
static bool read_stream(streams_t *streams, stream_t *stream) {
  stream->frames = 0;
  connection_progress_t progress = connection_receive(&stream->connection);
  int status = stream->connection.response.status;
  if (status != 0 && status != 200) {
    fprintf(stderr, "inferd-bench: the server answered with HTTP %d\n", status);
    return false;
  }
  uint64_t now = now_ns();
  streams->reads += streams->measuring && stream->frames > 0;
  for (; stream->frames > 0; stream->frames--) {
    if (!stream->first_ns) {
      stream->first_ns = now;
      streams->num_begun++;
    } else if (streams->measuring) {
      keep_gap(streams, now - stream->last_ns);
    }
    streams->tokens += streams->measuring;
    stream->last_ns = now;
  }
  if (stream->done || progress != CONNECTION_WAITS) end_stream(streams, stream);
  if (!stream->ended || stream->first_ns != 0) return true;
  const char *why = progress == CONNECTION_FAILED ? stream->connection.error : "complete";
  fprintf(stderr, "inferd-bench: a stream ended before its first token: %s\n", why);
  return false;
}

/* ---- starting ---- */

static bool open_stream(streams_t *streams, stream_t *stream, int index) {
  char *body = bench_body(&streams->body, streams->body.model, index);
  size_t length;
  stream->request = connection_request(&streams->address, "POST", "/v1/completions",
                                       streams->body.api_key, body, &length);
  free(body);
  stream->start_ns = now_ns();
  if (!connection_open(&stream->connection, &streams->address)) return false;
  connection_begin(&stream->connection, stream->request, length, on_body, stream);
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = stream};
  return epoll_ctl(streams->epoll_fd, EPOLL_CTL_ADD, stream->connection.fd, &event) == 0;
}

/* Sends what is left of the request; afterwards only reads matter. */
static bool write_stream(streams_t *streams, stream_t *stream) {
  if (connection_send(&stream->connection) == CONNECTION_FAILED) {
    fprintf(stderr, "inferd-bench: cannot send: %s\n", stream->connection.error);
    return false;
  }
  if (connection_is_sending(&stream->connection)) return true;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
  return epoll_ctl(streams->epoll_fd, EPOLL_CTL_MOD, stream->connection.fd, &event) == 0;
}

static bool run_once(streams_t *streams, int timeout_ms) {
  static struct epoll_event events[EVENTS_MAX];
  int count = epoll_wait(streams->epoll_fd, events, EVENTS_MAX, timeout_ms);
  for (int i = 0; i < count; i++) {
    stream_t *stream = events[i].data.ptr;
    if (stream->ended) continue;
    if ((events[i].events & EPOLLOUT) && !write_stream(streams, stream)) return false;
    if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !read_stream(streams, stream)) {
      return false;
    }
  }
  return count >= 0 || errno == EINTR;
}

static bool run_for(streams_t *streams, uint64_t ms) {
  uint64_t until = now_ns() + ms * 1000000u, now;
  while ((now = now_ns()) < until) {
    if (!run_once(streams, (int)((until - now) / 1000000u) + 1)) return false;
  }
  return true;
}

/* ---- the run ---- */

static double at_percent(const uint64_t *histogram, uint64_t total, double percent) {
  uint64_t seen = 0, rank = (uint64_t)(percent / 100 * (double)total);
  for (int us = 0; us <= HISTOGRAM_US; us++) {
    seen += histogram[us];
    if (seen > rank) return us / 1e3;
  }
  return 0;
}

static void print_results(const streams_t *streams, double seconds) {
  double *firsts = calloc((size_t)streams->count, sizeof *firsts);
  if (firsts == NULL) abort();
  for (int i = 0; i < streams->count; i++) {
    firsts[i] = (double)(streams->streams[i].first_ns - streams->streams[i].start_ns) / 1e6;
  }
  bench_sort(firsts, (size_t)streams->count);
  double due = streams->count * seconds * 1000 / streams->interval_ms;
  printf("{\"streams\": %d, \"interval_ms\": %g, \"seconds\": %.3f, \"tokens\": %llu, "
         "\"tokens_per_s\": %.1f, \"share\": %.5f, \"tokens_per_read\": %.3f, "
         "\"ended_early\": %d, ",
         streams->count, streams->interval_ms, seconds, (unsigned long long)streams->tokens,
         (double)streams->tokens / seconds, (double)streams->tokens / due,
         streams->reads ? (double)streams->tokens / (double)streams->reads : 0, streams->num_ended);
  printf("\"first_token_ms\": {\"p50\": %.2f, \"p99\": %.2f, \"max\": %.2f}, ",
         firsts[streams->count / 2], firsts[(int)(0.99 * streams->count)],
         firsts[streams->count - 1]);
  printf("\"gap_ms\": {\"p50\": %.3f, \"p99\": %.3f}, ",
         at_percent(streams->gap_us, streams->num_gaps, 50),
         at_percent(streams->gap_us, streams->num_gaps, 99));
  printf("\"jitter_ms\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f}}\n",
         at_percent(streams->jitter_us, streams->num_gaps, 50),
         at_percent(streams->jitter_us, streams->num_gaps, 90),
         at_percent(streams->jitter_us, streams->num_gaps, 99),
         (double)streams->jitter_max_us / 1e3);
  free(firsts);
}

static int run(streams_t *streams) {
  for (int i = 0; i < streams->count; i++) {
    if (!open_stream(streams, &streams->streams[i], i)) {
      fprintf(stderr, "inferd-bench: stream %d: %s\n", i, strerror(errno));
      return 69;
    }
  }
  uint64_t limit = now_ns() + START_LIMIT_S * 1000000000ull;
  while (streams->num_begun < streams->count) {
    if (!run_once(streams, 100)) return 1;
    if (now_ns() < limit) continue;
    fprintf(stderr, "inferd-bench: %d of %d streams began within %d s\n", streams->num_begun,
            streams->count, START_LIMIT_S);
    return 1;
  }
  if (!run_for(streams, SETTLE_MS)) return 1;
  puts("measuring");
  fflush(stdout);
  uint64_t begin = now_ns();
  streams->measuring = true;
  if (!run_for(streams, (uint64_t)streams->seconds * 1000)) return 1;
  streams->measuring = false;
  double seconds = (double)(now_ns() - begin) / 1e9;
  puts("measured");
  fflush(stdout);
  print_results(streams, seconds);
  if (streams->num_ended == 0) return 0;
  fprintf(stderr, "inferd-bench: %d streams ended before the measurement did\n",
          streams->num_ended);
  return 1;
}

/* ---- options ---- */

static const struct option long_options[] = {
    {"base-url", required_argument, NULL, 'u'},
    {"api-key", required_argument, NULL, 'k'},
    {"model", required_argument, NULL, 'm'},
    {"streams", required_argument, NULL, 'n'},
    {"interval-ms", required_argument, NULL, 'i'},
    {"seconds", required_argument, NULL, 's'},
    {"output-len", required_argument, NULL, 'o'},
    {"input-len", required_argument, NULL, 'p'},
    {"vocab-size", required_argument, NULL, 'v'},
    {"first-id", required_argument, NULL, 'f'},
    {NULL, 0, NULL, 0},
};

static const char usage_text[] =
    "usage: inferd bench streams [--base-url http://HOST:PORT] [--streams N] [--interval-ms MS]\n"
    "         [--seconds N] [--output-len N] [--input-len N] [--vocab-size N] [--first-id N]\n"
    "         [--model NAME] [--api-key KEY]\n";

static bool parse(int argc, char **argv, streams_t *streams) {
  bool valid = true;
  for (int c; valid && (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
    switch (c) {
    case 'u': streams->body.base_url = optarg; break;
    case 'k': streams->body.api_key = optarg; break;
    case 'm': streams->body.model = optarg; break;
    case 'n': valid = bench_int(optarg, 1, 1000000, &streams->count); break;
    case 'i': valid = bench_number(optarg, 0.001, 1e6, &streams->interval_ms); break;
    case 's': valid = bench_int(optarg, 1, 86400, &streams->seconds); break;
    case 'o': valid = bench_int(optarg, 1, 1 << 30, &streams->body.output_len); break;
    case 'p': valid = bench_int(optarg, 1, 1 << 24, &streams->body.input_len); break;
    case 'v': valid = bench_int(optarg, 1, 1 << 30, &streams->body.vocab_size); break;
    case 'f': valid = bench_int(optarg, 0, 1 << 30, &streams->body.first_id); break;
    default: valid = false;
    }
  }
  return valid && optind == argc && streams->body.vocab_size > streams->body.first_id;
}

int bench_streams(int argc, char **argv) {
  streams_t streams = {.count = 1000, .seconds = 10, .interval_ms = 20};
  streams.body = (bench_options_t){.base_url = "http://127.0.0.1:8000",
                                   .input_len = 4,
                                   .first_id = 5,
                                   .vocab_size = 300,
                                   .stream = true,
                                   .seed = 1};
  if (!parse(argc, argv, &streams)) {
    fputs(usage_text, stderr);
    return 64;
  }
  if (streams.body.output_len == 0) {
    streams.body.output_len = (int)((streams.seconds + MARGIN_S) * 1000 / streams.interval_ms) + 1;
  }
  struct rlimit files = {0};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  int code = address_find(streams.body.base_url, &streams.address);
  if (code != 0) return code;
  streams.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  streams.streams = calloc((size_t)streams.count, sizeof *streams.streams);
  streams.jitter_us = calloc(HISTOGRAM_US + 1, sizeof *streams.jitter_us);
  streams.gap_us = calloc(HISTOGRAM_US + 1, sizeof *streams.gap_us);
  if (streams.epoll_fd < 0 || streams.streams == NULL || streams.jitter_us == NULL ||
      streams.gap_us == NULL)
    abort();
  for (int i = 0; i < streams.count; i++) streams.streams[i].connection.fd = -1;
  code = run(&streams);
  for (int i = 0; i < streams.count; i++) {
    connection_close(&streams.streams[i].connection);
    free(streams.streams[i].request);
  }
  close(streams.epoll_fd);
  free(streams.streams);
  free(streams.jitter_us);
  free(streams.gap_us);
  return code;
}
