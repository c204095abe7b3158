/* pictures.c: the spans of a journal as SVG for people, and as JSON for Perfetto and Chrome.
 *
 * The SVG has the last STEPS_MAX steps and REQUESTS_MAX requests, and says what it leaves out; the
 * JSON has everything: "Trace Event Format", a process for each replica and a thread for each
 * request in it.
 */
#include "server/replay/replay.h"
#include "server/replay/timeline.h"

#include "engine/base/util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 2000, REQUESTS_MAX = 300, ROW = 14, LEFT = 180, WIDTH = 1200, STRIP = 60 };

static const char *const colours[SPAN_KINDS] = {"#3b7dd8", "#3fa463", "#bbbbbb",
                                                "#e8a33d", "#d9534f", "#b58ad6",
                                                "#8a6d3b", "#7a1f1f", "#e6d36a"};

/* ---- SVG ---- */

static void print_xml(FILE *out, const char *text) {
  for (; text != NULL && *text != '\0'; text++) {
    const unsigned char byte = (unsigned char)*text;
    if (byte == '<' || byte == '>' || byte == '&' || byte == '"')
      fprintf(out, "&#%d;", byte);
    else
      fputc(byte < 0x20 || byte >= 0x7f ? '?' : byte, out);
  }
}

typedef struct frame {
  uint64_t begin_ns, end_ns;
  size_t first_step;
} window_of_steps_t;

static double place(const window_of_steps_t *frame, uint64_t ns) {
  const uint64_t at = MIN(MAX(ns, frame->begin_ns), frame->end_ns) - frame->begin_ns;
  return LEFT + (double)at * WIDTH / (double)(frame->end_ns - frame->begin_ns);
}

static void print_legend(FILE *out) {
  for (int i = 0; i < SPAN_KINDS; i++)
    fprintf(out,
            "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>"
            "<text x=\"%d\" y=\"%d\">%s</text>\n",
            LEFT + i % 3 * 400, 22 + i / 3 * 14, colours[i], LEFT + 14 + i % 3 * 400,
            31 + i / 3 * 14, span_names[i]);
}

/* A bar for each step, as high as it has tokens. */
static void print_steps(FILE *out, const timeline_t *timeline, const window_of_steps_t *frame,
                        int top) {
  uint32_t most = 1;
  for (size_t i = frame->first_step; i < timeline->num_steps; i++)
    most = MAX(most, timeline->steps[i].num_tokens);
  for (size_t i = frame->first_step; i < timeline->num_steps; i++) {
    const timeline_step_t *step = &timeline->steps[i];
    double x = place(frame, step->begin_ns), width = place(frame, step->end_ns) - x;
    double height = (double)step->num_tokens * STRIP / most;
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"#777\"><title>step "
            "%zu: %" PRIu32 " rows, %" PRIu32 " tokens, %.3f ms; %" PRIu64 " wait, %" PRIu64
            " run, %" PRIu64 " blocks free, %" PRIu64 " preempted</title></rect>\n",
            x, top + STRIP - height, MAX(width, 0.3), height, i + 1, step->num_rows,
            step->num_tokens, (double)(step->end_ns - step->begin_ns) / 1e6, step->waiting,
            step->running, step->blocks_free, step->preempted);
  }
}

static void print_spans(FILE *out, const timeline_t *timeline, const window_of_steps_t *frame,
                        const int32_t *rows, int top) {
  for (size_t i = 0; i < timeline->num_spans; i++) {
    const timeline_span_t *span = &timeline->spans[i];
    const int32_t row = rows[span->request];
    if (row < 0 || span->end_ns <= frame->begin_ns || span->begin_ns >= frame->end_ns) continue;
    double x = place(frame, span->begin_ns), width = place(frame, span->end_ns) - x;
    bool waits = span->kind > SPAN_DRAWS;
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s, choice "
            "%" PRIu32 ", %.3f ms, %" PRIu32 " tokens</title></rect>\n",
            x, top + row * ROW + (waits ? 4 : 1), MAX(width, 0.3), waits ? ROW - 8 : ROW - 2,
            colours[span->kind], span_names[span->kind], span->index,
            (double)(span->end_ns - span->begin_ns) / 1e6, span->num_tokens);
  }
}

static void print_names(FILE *out, const timeline_t *timeline, const int32_t *rows, int top) {
  for (size_t i = 0; i < timeline->num_requests; i++) {
    const timeline_request_t *request = &timeline->requests[i];
    char name[28] = "";
    if (rows[i] < 0) continue;
    if (request->answer != NULL && request->answer->kept.request.name != NULL)
      snprintf(name, sizeof name, "%s", request->answer->kept.request.name);
    fprintf(out, "<text x=\"2\" y=\"%d\">%" PRIu64 " ", top + rows[i] * ROW + ROW - 4, request->id);
    print_xml(out, name);
    fputs("</text>\n", out);
  }
}

/* The requests that have a span in the frame get rows, the first ones. Returns how many there are.
 */
static int32_t choose_rows(const timeline_t *timeline, const window_of_steps_t *frame,
                           int32_t *rows) {
  int32_t count = 0;
  for (size_t i = 0; i < timeline->num_requests; i++) rows[i] = -1;
  for (size_t i = 0; i < timeline->num_spans; i++) {
    const timeline_span_t *span = &timeline->spans[i];
    if (span->end_ns > frame->begin_ns) rows[span->request] = -2;
  }
  for (size_t i = 0; i < timeline->num_requests; i++)
    if (rows[i] == -2) rows[i] = count < REQUESTS_MAX ? count : -1, count++;
  return count;
}

static window_of_steps_t frame_of(const timeline_t *timeline) {
  window_of_steps_t frame = {.begin_ns = UINT64_MAX};
  if (timeline->num_steps > STEPS_MAX) frame.first_step = timeline->num_steps - STEPS_MAX;
  for (size_t i = frame.first_step; i < timeline->num_steps; i++) {
    frame.begin_ns = MIN(frame.begin_ns, timeline->steps[i].begin_ns);
    frame.end_ns = MAX(frame.end_ns, timeline->steps[i].end_ns);
  }
  if (frame.first_step == 0)
    for (size_t i = 0; i < timeline->num_spans; i++)
      frame.begin_ns = MIN(frame.begin_ns, timeline->spans[i].begin_ns);
  if (timeline->num_steps == 0) frame.begin_ns = 0;
  frame.end_ns = MAX(frame.end_ns, frame.begin_ns + 1);
  return frame;
}

bool timeline_svg(const journal_log_t *log, FILE *out) {
  timeline_t timeline;
  bool good = timeline_make(log, &timeline);
  int32_t *rows = calloc(timeline.num_requests + 1, sizeof *rows);
  if (good && rows != NULL) {
    window_of_steps_t frame = frame_of(&timeline);
    int32_t count = choose_rows(&timeline, &frame, rows), shown = MIN(count, REQUESTS_MAX);
    int top = 76 + STRIP;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n<text x=\"2\" y=\"14\">%.3f ms, %zu steps of %zu, %d requests of %d; "
            "rest the pointer on a bar</text>\n",
            LEFT + WIDTH + 20, top + shown * ROW + 10,
            (double)(frame.end_ns - frame.begin_ns) / 1e6, timeline.num_steps - frame.first_step,
            timeline.num_steps, shown, count);
    print_legend(out);
    fprintf(out, "<text x=\"2\" y=\"%d\">tokens of steps</text>\n", top - 6);
    print_steps(out, &timeline, &frame, top - STRIP - 4);
    print_names(out, &timeline, rows, top);
    print_spans(out, &timeline, &frame, rows, top);
    fputs("</svg>\n", out);
  }
  good = good && rows != NULL && !ferror(out);
  free(rows);
  timeline_free(&timeline);
  return good;
}

/* ---- JSON ---- */

static double micros(uint64_t ns) {
  return (double)ns / 1e3;
}

static void print_json_name(FILE *out, const timeline_request_t *request) {
  buffer_t text = {0};
  const char *name = request->answer != NULL ? request->answer->kept.request.name : NULL;
  buffer_escape(&text, name != NULL ? name : "", name != NULL ? strlen(name) : 0);
  fprintf(out,
          "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%" PRIu64
          ",\"args\":{\"name\":\"request %" PRIu64 " %.*s\"}},\n",
          request->lane, request->id, request->id, (int)text.length,
          text.length > 0 ? text.data : "");
  buffer_free(&text);
}

static void print_json_step(FILE *out, const timeline_step_t *step) {
  fprintf(out,
          "{\"ph\":\"X\",\"name\":\"step\",\"cat\":\"step\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,"
          "\"dur\":%.3f,\"args\":{\"rows\":%" PRIu32 ",\"tokens\":%" PRIu32
          ",\"preempted\":%" PRIu64 "}},\n",
          step->lane, micros(step->begin_ns), micros(step->end_ns - step->begin_ns), step->num_rows,
          step->num_tokens, step->preempted);
  fprintf(out,
          "{\"ph\":\"C\",\"name\":\"requests\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":{"
          "\"waiting\":%" PRIu64 ",\"running\":%" PRIu64 ",\"swapped\":%" PRIu64 "}},\n",
          step->lane, micros(step->begin_ns), step->waiting, step->running, step->swapped);
  fprintf(out,
          "{\"ph\":\"C\",\"name\":\"KV blocks\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"args\":{"
          "\"free\":%" PRIu64 "}},\n",
          step->lane, micros(step->begin_ns), step->blocks_free);
}

bool timeline_trace(const journal_log_t *log, FILE *out) {
  timeline_t timeline;
  bool good = timeline_make(log, &timeline);
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", out);
  for (size_t i = 0; good && i < timeline.num_requests; i++)
    print_json_name(out, &timeline.requests[i]);
  for (size_t i = 0; good && i < timeline.num_steps; i++) print_json_step(out, &timeline.steps[i]);
  for (size_t i = 0; good && i < timeline.num_spans; i++) {
    const timeline_span_t *span = &timeline.spans[i];
    const timeline_request_t *request = &timeline.requests[span->request];
    fprintf(out,
            "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"request\",\"pid\":%d,\"tid\":%" PRIu64
            ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"choice\":%" PRIu32 ",\"tokens\":%" PRIu32
            ",\"first step\":%" PRIu64 ",\"last step\":%" PRIu64 "}},\n",
            span_names[span->kind], request->lane, request->id, micros(span->begin_ns),
            micros(span->end_ns - span->begin_ns), span->index, span->num_tokens,
            span->first_step + 1, span->last_step + 1);
  }
  fputs("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"inferd\"}}\n]}\n",
        out);
  timeline_free(&timeline);
  return good && !ferror(out);
}
