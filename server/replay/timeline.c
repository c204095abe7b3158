/* timeline.c: plans, and the times of their steps -> spans of each request; see timeline.h. */
#include "server/replay/timeline.h"

#include <stdlib.h>

const char *const span_names[SPAN_KINDS] = {
    "prompt",
    "draws",
    "waits: a step runs",
    "waits: all seats are taken",
    "waits: KV blocks are short",
    "waits: the step has no tokens or time left",
    "waits: its key runs as many as it may",
    "waits: it was preempted",
    "waits: left out (a mask, its turn, a result in flight)",
};

/* A choice of a request that has not ended. */
typedef struct track {
  uint64_t id, computed, since_ns, last_step;
  uint32_t index;
  size_t request;
  bool runs; /* `span` is open */
  timeline_span_t span;
} track_t;

typedef struct scan {
  timeline_t *out;
  const journal_log_t *log;
  int32_t lane;
  track_t *tracks;
  size_t num_tracks, tracks_room;
  size_t first_step, planned, committed; /* steps of this lane */
  journal_wait_t why;                    /* of the plan before */
  bool failed;
} scan_t;

static void add_span(scan_t *scan, const timeline_span_t *span) {
  timeline_t *out = scan->out;
  if (span->end_ns <= span->begin_ns || scan->failed) return;
  scan->failed =
      !journal_grow((void **)&out->spans, &out->spans_room, out->num_spans, sizeof *out->spans);
  if (!scan->failed) out->spans[out->num_spans++] = *span;
}

static size_t request_of(scan_t *scan, uint64_t id) {
  timeline_t *out = scan->out;
  for (size_t i = 0; i < scan->num_tracks; i++)
    if (scan->tracks[i].id == id) return scan->tracks[i].request;
  scan->failed = scan->failed || !journal_grow((void **)&out->requests, &out->requests_room,
                                               out->num_requests, sizeof *out->requests);
  if (scan->failed) return 0;
  out->requests[out->num_requests] =
      (timeline_request_t){id, scan->lane, journal_answer(scan->log, scan->lane, id)};
  return out->num_requests++;
}

static track_t *track_of(scan_t *scan, uint64_t id, uint32_t index, uint64_t now_ns) {
  for (size_t i = 0; i < scan->num_tracks; i++)
    if (scan->tracks[i].id == id && scan->tracks[i].index == index) return &scan->tracks[i];
  size_t request = request_of(scan, id);
  scan->failed = scan->failed || !journal_grow((void **)&scan->tracks, &scan->tracks_room,
                                               scan->num_tracks, sizeof *scan->tracks);
  if (scan->failed) return NULL;
  const kept_answer_t *answer = scan->out->requests[request].answer;
  uint64_t arrival_ns = answer != NULL ? answer->kept.request.arrival_ns : now_ns;
  track_t *track = &scan->tracks[scan->num_tracks++];
  *track = (track_t){.id = id,
                     .index = index,
                     .request = request,
                     .last_step = scan->planned,
                     .since_ns = index == 0 && arrival_ns < now_ns ? arrival_ns : now_ns};
  return track;
}

/* Why it had no row since `since_ns`. */
static span_kind_t cause_of(const scan_t *scan, const track_t *track, uint64_t computed) {
  static const span_kind_t waits[WAIT_KINDS] = {SPAN_STEP, SPAN_SEATS, SPAN_BLOCKS, SPAN_TOKENS,
                                                SPAN_KEY};
  if (track->computed == 0) return waits[scan->why];
  return computed < track->computed ? SPAN_PREEMPTED : SPAN_LEFT_OUT;
}

static void close_span(scan_t *scan, track_t *track) {
  if (track->runs) add_span(scan, &track->span);
  if (track->runs) track->since_ns = track->span.end_ns;
  track->runs = false;
}

static void take_entry(scan_t *scan, const kept_entry_t *entry, const timeline_step_t *step) {
  const uint64_t number = scan->planned;
  track_t *track = track_of(scan, entry->id, entry->index, step->begin_ns);
  if (track == NULL) return;
  const kept_answer_t *answer = scan->out->requests[track->request].answer;
  const int64_t prompt = answer != NULL ? answer->kept.request.num_prompt_tokens : 0;
  const span_kind_t kind = (int64_t)entry->num_computed < prompt ? SPAN_PROMPT : SPAN_DRAWS;
  const bool goes_on = track->runs && track->last_step + 1 == number && track->span.kind == kind &&
                       entry->num_computed >= track->computed;
  if (!goes_on) {
    close_span(scan, track);
    timeline_span_t wait = {.begin_ns = track->since_ns,
                            .end_ns = step->begin_ns,
                            .first_step = track->last_step,
                            .last_step = number,
                            .kind = cause_of(scan, track, entry->num_computed),
                            .index = track->index,
                            .request = track->request};
    const bool is_next = track->computed > 0 && track->last_step + 1 == number;
    if (!is_next) add_span(scan, &wait);
    track->span = (timeline_span_t){.begin_ns = step->begin_ns,
                                    .first_step = number,
                                    .kind = kind,
                                    .index = track->index,
                                    .request = track->request};
    track->runs = true;
  }
  track->span.end_ns = step->end_ns;
  track->span.last_step = number;
  track->span.num_tokens += entry->num_tokens;
  track->computed = (uint64_t)entry->num_computed + entry->num_tokens;
  track->last_step = number;
}

static void take_plan(scan_t *scan, const journal_record_t *record) {
  timeline_t *out = scan->out;
  kept_plan_t plan;
  kept_entry_t entry;
  if (!journal_plan(record, &plan)) return;
  if (plan.num_entries > 0 && scan->first_step + scan->planned < out->num_steps) {
    timeline_step_t *step = &out->steps[scan->first_step + scan->planned];
    step->num_rows = plan.num_entries;
    step->waiting = plan.waiting;
    step->running = plan.running;
    step->swapped = plan.swapped;
    step->blocks_free = plan.blocks_free;
    step->preempted = plan.preempted;
    while (!scan->failed && journal_entry(&plan, &entry)) {
      step->num_tokens += entry.num_tokens;
      take_entry(scan, &entry, step);
    }
    scan->planned++;
  }
  scan->why = (journal_wait_t)plan.why;
}

/* The engine has it: its steps of waiting are counted from here, its time from its arrival. */
static void take_request(scan_t *scan, const journal_record_t *record) {
  byte_source_t source = journal_source(record);
  track_of(scan, take_uint(&source), 0, UINT64_MAX);
}

static void take_finish(scan_t *scan, const journal_record_t *record) {
  byte_source_t source = journal_source(record);
  uint64_t id = take_uint(&source);
  size_t kept = 0;
  for (size_t i = 0; i < scan->num_tracks; i++) {
    track_t *track = &scan->tracks[i];
    if (track->id == id) close_span(scan, track);
    if (track->id != id) scan->tracks[kept++] = *track;
  }
  scan->num_tracks = kept;
}

/* The steps of a lane: plans with rows, in order, and behind each, sooner or later, its time. */
static bool take_steps(timeline_t *out, const journal_log_t *log, int32_t lane) {
  const journal_lane_log_t *records = &log->lanes[lane];
  uint64_t now_ns = 0;
  size_t ended = out->num_steps;
  kept_plan_t plan;
  for (size_t i = 0; i < records->num_records; i++) {
    const journal_record_t *record = &records->records[i];
    byte_source_t source = journal_source(record);
    if (record->kind == JOURNAL_BEGIN) now_ns = take_uint(&source);
    if (record->kind == JOURNAL_PLAN && journal_plan(record, &plan) && plan.num_entries > 0) {
      if (!journal_grow((void **)&out->steps, &out->steps_room, out->num_steps, sizeof *out->steps))
        return false;
      out->steps[out->num_steps++] =
          (timeline_step_t){.begin_ns = now_ns, .end_ns = now_ns, .lane = lane};
    }
    if ((record->kind == JOURNAL_TIME || record->kind == JOURNAL_LEFT) && ended < out->num_steps) {
      double ns = take_double(&source);
      out->steps[ended].end_ns += ns > 0 && ns < 1e15 ? (uint64_t)ns : 0;
      ended++;
    }
  }
  return true;
}

static bool take_lane(timeline_t *out, const journal_log_t *log, int32_t lane) {
  scan_t scan = {.out = out, .log = log, .lane = lane, .first_step = out->num_steps};
  const journal_lane_log_t *records = &log->lanes[lane];
  if (!take_steps(out, log, lane)) return false;
  for (size_t i = 0; i < records->num_records && !scan.failed; i++) {
    if (records->records[i].kind == JOURNAL_REQUEST) take_request(&scan, &records->records[i]);
    if (records->records[i].kind == JOURNAL_PLAN) take_plan(&scan, &records->records[i]);
    if (records->records[i].kind == JOURNAL_FINISH) take_finish(&scan, &records->records[i]);
  }
  for (size_t i = 0; i < scan.num_tracks; i++) close_span(&scan, &scan.tracks[i]);
  free(scan.tracks);
  return !scan.failed;
}

bool timeline_make(const journal_log_t *log, timeline_t *out) {
  *out = (timeline_t){0};
  for (int32_t lane = 0; lane < JOURNAL_LANES_MAX; lane++)
    if (!take_lane(out, log, lane)) return false;
  return true;
}

void timeline_free(timeline_t *timeline) {
  free(timeline->steps);
  free(timeline->spans);
  free(timeline->requests);
}
