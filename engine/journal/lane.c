/* lane.c: what happens on an engine thread -> records; see lane.h. */
#include "engine/journal/lane.h"

#include "engine/base/bytes.h"
#include "engine/grammar/source_bytes.h"
#include "engine/internal.h"
#include "engine/journal/hash.h"
#include "engine/journal/head.h"
#include "engine/journal/play.h"
#include "engine/journal/request_bytes.h"
#include "engine/sample/choices.h"

#include <stdlib.h>

enum { CONSTRAINTS = 64 }; /* the last ones that this region has */

struct journal_lane {
  struct journal_ring *ring; /* NULL = it plays */
  play_t *play;
  byte_sink_t record, commit;  /* [JOURNAL_RECORD_MAX] each; the second of the step in commit */
  bool overflows;              /* a record was too long */
  uint64_t part_id, num_parts; /* of what is cut into parts */
  journal_kind_t part_kind;
  uint64_t constraints[CONSTRAINTS]; /* serial numbers + 1 */
  uint32_t num_constraints, region;
  double swap_ns;
  size_t entry_at; /* flags of the entry in commit; 0 = none yet */
  uint32_t scores;
  char held[STOP_STRING_BYTES_MAX];
};

/* ---- records ---- */

static void too_long(byte_sink_t *sink) {
  ((journal_lane_t *)sink->context)->overflows = true;
  sink->at = 1;
}

static byte_sink_t *begin(journal_lane_t *lane, journal_kind_t kind) {
  lane->record.at = 0;
  lane->overflows = false;
  put_byte(&lane->record, (uint8_t)kind);
  return &lane->record;
}

/* A record that is too long counts as one that found no room. */
static void emit(journal_lane_t *lane, const byte_sink_t *sink) {
  if (lane->play != NULL)
    play_compare(lane->play, sink->bytes, sink->at);
  else
    journal_put(lane->ring, sink->bytes, lane->overflows ? JOURNAL_RECORD_MAX + 1 : sink->at);
}

/* ---- requests ---- */

static void begin_part(journal_lane_t *lane) {
  byte_sink_t *sink = begin(lane, lane->part_kind);
  put_uint(sink, lane->part_id);
  put_uint(sink, lane->num_parts++);
  put_byte(sink, 0);
}

static size_t part_head(const journal_lane_t *lane) {
  byte_sink_t count = {.bytes = (uint8_t[2 * VARINT_BYTES]){0}, .room = 2 * VARINT_BYTES};
  put_uint(&count, lane->part_id);
  put_uint(&count, lane->num_parts - 1);
  return 1 + count.at;
}

static void flush_part(byte_sink_t *sink) {
  journal_lane_t *lane = sink->context;
  journal_put(lane->ring, sink->bytes, sink->at);
  begin_part(lane);
}

static void begin_parts(journal_lane_t *lane, journal_kind_t kind, uint64_t id) {
  lane->part_kind = kind;
  lane->part_id = id;
  lane->num_parts = 0;
  begin_part(lane);
  lane->record.room = JOURNAL_PART_BYTES;
  lane->record.flush = flush_part;
}

static void end_parts(journal_lane_t *lane) {
  lane->record.bytes[part_head(lane)] = 1;
  journal_put(lane->ring, lane->record.bytes, lane->record.at);
  lane->record.room = JOURNAL_RECORD_MAX;
  lane->record.flush = too_long;
}

/* The source of a constraint stands once in each region, so that it is there as long as what names
 * it, or one region longer is lost. */
static void write_constraint(journal_lane_t *lane, const struct grammar *grammar) {
  size_t length;
  const char *source = grammar_source_of(grammar, &length);
  const uint64_t serial = grammar_serial(grammar) + 1;
  const uint32_t region = journal_region(lane->ring);
  if (source == NULL) return;
  if (region != lane->region) memset(lane->constraints, 0, sizeof lane->constraints);
  lane->region = region;
  for (int i = 0; i < CONSTRAINTS; i++)
    if (lane->constraints[i] == serial) return;
  lane->constraints[lane->num_constraints++ % CONSTRAINTS] = serial;
  begin_parts(lane, JOURNAL_CONSTRAINT, serial);
  for (size_t i = 0; i < length; i++) put_byte(&lane->record, (uint8_t)source[i]);
  end_parts(lane);
}

void lane_request(journal_lane_t *lane, const request_t *request) {
  if (lane == NULL || lane->play != NULL) return; /* who plays has submitted it */
  if (request->grammar != NULL) write_constraint(lane, request->grammar);
  begin_parts(lane, JOURNAL_REQUEST, request->id);
  request_write(&lane->record, request);
  end_parts(lane);
}

void lane_cancel(journal_lane_t *lane, const request_t *request, int code) {
  if (lane == NULL || lane->play != NULL) return;
  byte_sink_t *sink = begin(lane, JOURNAL_CANCEL);
  put_uint(sink, request->id);
  put_int(sink, code);
  emit(lane, sink);
}

/* ---- plans ---- */

/* Time and threads decide when a mask is ready, so the journal says who waited for one. */
static void settle_masks(const journal_lane_t *lane, engine_t *engine, uint64_t now_ns) {
  enum { TRIES_MAX = 100000 };
  const journal_record_t *record = play_next(lane->play);
  kept_plan_t plan;
  if (engine->constrain.num_requests == 0 || record == NULL || record->kind != JOURNAL_PLAN ||
      !journal_plan(record, &plan))
    return;
  for (group_t *group = engine->scheduler->running.head, *next; group != NULL; group = next) {
    next = group->next;
    if (group->request->grammar == NULL) continue;
    const bool waits = journal_waits_for_mask(&plan, group->id, group->sequence.index);
    for (int i = 0; i < TRIES_MAX && !waits && group->queue != NULL && group->masks.wait; i++) {
      constrain_next_step(engine);
      (void)constrain_continue(engine, now_ns);
    }
    if (waits) group->masks.wait = true;
  }
}

uint64_t lane_begin_plan(journal_lane_t *lane, engine_t *engine, uint64_t now_ns) {
  if (lane == NULL) return now_ns;
  if (lane->play != NULL) {
    const journal_record_t *record = play_take(lane->play, JOURNAL_BEGIN);
    if (record == NULL) return now_ns;
    byte_source_t source = journal_source(record);
    now_ns = take_uint(&source);
    settle_masks(lane, engine, now_ns);
    return now_ns;
  }
  byte_sink_t *sink = begin(lane, JOURNAL_BEGIN);
  put_uint(sink, now_ns);
  emit(lane, sink);
  return now_ns;
}

static journal_wait_t why_wait(const scheduler_t *scheduler) {
  const waiting_t *waiting = &scheduler->waiting;
  const group_t *first = waiting->queue.head;
  if (first == NULL) return WAIT_NONE;
  if (waiting->num_held == waiting->queue.count) return WAIT_KEY;
  if (scheduler->running.count >= scheduler->options.max_num_seqs) return WAIT_SEATS;
  if (first->unfit.is_known && first->unfit.num_blocks > scheduler->pool->num_free)
    return WAIT_BLOCKS;
  return WAIT_TOKENS;
}

static void put_entry(byte_sink_t *sink, const plan_entry_t *entry, uint64_t *id) {
  const sequence_t *seq = entry->sequence;
  const bool indexed = params_multiple(&seq->group->request->params);
  put_int(sink, (int64_t)(seq->group->id - *id));
  put_byte(sink, (entry->do_sample ? ENTRY_SAMPLES : 0) | (indexed ? ENTRY_INDEX : 0));
  if (indexed) put_uint(sink, (uint64_t)seq->index);
  put_uint(sink, (uint64_t)entry->num_computed);
  put_uint(sink, (uint64_t)entry->num_tokens);
  *id = seq->group->id;
}

/* Those that wait for masks; none of them has an entry. */
static void put_waiting(byte_sink_t *sink, const scheduler_t *scheduler) {
  uint64_t count = 0, id = 0;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    count += group->masks.wait;
  put_uint(sink, count);
  for (const group_t *group = scheduler->running.head; group != NULL && count > 0;
       group = group->next) {
    if (!group->masks.wait) continue;
    put_int(sink, (int64_t)(group->id - id));
    put_uint(sink, (uint64_t)group->sequence.index);
    id = group->id;
  }
}

void lane_plan(journal_lane_t *lane, const scheduler_t *scheduler) {
  if (lane == NULL) return;
  const plan_t *plan = &scheduler->plan;
  byte_sink_t *sink = begin(lane, JOURNAL_PLAN);
  uint64_t id = 0;
  put_uint(sink, (uint64_t)scheduler->waiting.queue.count);
  put_uint(sink, (uint64_t)scheduler->running.count);
  put_uint(sink, (uint64_t)scheduler->swapped.count);
  put_uint(sink, (uint64_t)scheduler->pool->num_free);
  put_uint(sink, why_wait(scheduler));
  put_uint(sink, (uint64_t)plan->num_preempted);
  put_uint(sink, (uint64_t)plan->num_entries);
  for (int32_t i = 0; i < plan->num_entries; i++) put_entry(sink, &plan->entries[i], &id);
  put_waiting(sink, scheduler);
  emit(lane, sink);
}

double lane_time(journal_lane_t *lane, journal_kind_t kind, double ns) {
  if (lane == NULL) return ns;
  if (lane->play != NULL) {
    const journal_record_t *next = play_next(lane->play);
    const bool same = kind == JOURNAL_SWAP_TIME && (next == NULL || next->kind != kind);
    if (same) return lane->swap_ns;
    const journal_record_t *record = play_take(lane->play, kind);
    if (record == NULL) return ns;
    byte_source_t source = journal_source(record);
    ns = take_double(&source);
    if (kind == JOURNAL_SWAP_TIME) lane->swap_ns = ns;
    return ns;
  }
  if (kind == JOURNAL_SWAP_TIME && lane->swap_ns == ns) return ns;
  if (kind == JOURNAL_SWAP_TIME) lane->swap_ns = ns;
  byte_sink_t *sink = begin(lane, kind);
  put_double(sink, ns);
  emit(lane, sink);
  return ns;
}

/* ---- results ---- */

/* The same with the flags of the entry before it closed. */
static void close_entry(journal_lane_t *lane) {
  if (lane->entry_at == 0) return;
  if ((lane->commit.bytes[lane->entry_at] & COMMIT_SCORES) != 0)
    put_fixed_32(&lane->commit, lane->scores);
  lane->entry_at = 0;
}

void lane_begin_commit(journal_lane_t *lane) {
  if (lane == NULL) return;
  lane->commit.at = 0;
  lane->entry_at = 0;
  put_byte(&lane->commit, JOURNAL_COMMIT);
}

void lane_entry(journal_lane_t *lane, bool late) {
  if (lane == NULL) return;
  close_entry(lane);
  lane->scores = 0;
  put_byte(&lane->commit, late ? COMMIT_LATE : 0);
  lane->entry_at = lane->commit.at - 1;
}

static void put_token(byte_sink_t *sink, int32_t id, bool has_logprob, float logprob,
                      uint32_t hash) {
  put_uint(sink, (uint64_t)id);
  if (!has_logprob) return;
  put_float(sink, logprob);
  put_fixed_32(sink, hash);
}

void lane_token(journal_lane_t *lane, const sample_result_t *result, bool has_logprob) {
  if (lane == NULL || lane->entry_at == 0) return;
  uint8_t *flags = &lane->commit.bytes[lane->entry_at];
  uint32_t hash = has_logprob ? journal_hash_token(result->rank, result->num_top, result->top) : 0;
  *flags = (uint8_t)((*flags + 1) | (has_logprob ? COMMIT_LOGPROBS : 0));
  put_token(&lane->commit, result->id, has_logprob, result->logprob, hash);
}

void lane_score(journal_lane_t *lane, const event_t *event) {
  if (lane == NULL || lane->entry_at == 0) return;
  lane->commit.bytes[lane->entry_at] |= COMMIT_SCORES;
  lane->scores += journal_hash_score(event);
}

void lane_end_commit(journal_lane_t *lane) {
  if (lane == NULL) return;
  close_entry(lane);
  lane->overflows = false;
  emit(lane, &lane->commit);
}

int lane_left(const journal_lane_t *lane) {
  if (lane == NULL || lane->play == NULL) return -1;
  const journal_record_t *next = play_next(lane->play);
  return next == NULL ? -1 : next->kind == JOURNAL_LEFT;
}

int lane_late(const journal_lane_t *lane, int32_t steps, int32_t entry) {
  if (lane == NULL || lane->play == NULL) return -1;
  return play_late(lane->play, steps, entry);
}

bool lane_may_begin(journal_lane_t *lane, const request_t *request, bool may) {
  if (lane == NULL) return may;
  if (lane->play != NULL) {
    const journal_record_t *next = play_next(lane->play);
    return next == NULL || next->kind != JOURNAL_DROP ||
           play_take(lane->play, JOURNAL_DROP) == NULL;
  }
  if (may) return true;
  byte_sink_t *sink = begin(lane, JOURNAL_DROP);
  put_uint(sink, request->id);
  emit(lane, sink);
  return false;
}

static void on_choice(void *context, const event_t *event) {
  journal_lane_t *lane = context;
  byte_sink_t *sink = &lane->record;
  if (event->kind == EVENT_TOKEN && event->position == 0) sink = begin(lane, JOURNAL_CHOICE);
  if (event->kind == EVENT_TOKEN && event->position == 0) {
    put_uint(sink, event->request->id);
    put_uint(sink, (uint64_t)event->choice);
    put_byte(sink, event->has_logprob);
  }
  if (event->kind == EVENT_TOKEN) {
    put_token(sink, event->token_id, event->has_logprob, event->logprob,
              event->has_logprob ? journal_hash_token(event->rank, event->num_top, event->top) : 0);
  } else if (event->num_output_tokens > 0) {
    emit(lane, sink);
  }
}

void lane_finish(journal_lane_t *lane, engine_t *engine, const event_t *event, bool complete) {
  if (lane == NULL) return;
  const request_t *request = event->request;
  if (complete && params_collect(&request->params))
    choices_replay(event, engine->tokenizer, engine->text, lane->held, on_choice, lane);
  const size_t size =
      engine->embeds ? embedding_values(&engine->embedding, request->num_prompt_tokens) : 0;
  const bool has_vector = complete && request->pooled != NULL;
  byte_sink_t *sink = begin(lane, JOURNAL_FINISH);
  put_uint(sink, request->id);
  put_byte(sink, (uint8_t)event->finish);
  put_int(sink, event->error_code);
  put_uint(sink, (uint64_t)event->num_output_tokens);
  put_fixed_64(sink, has_vector ? journal_hash_vector(request->pooled, size) : 0);
  emit(lane, sink);
}

void lane_end(journal_lane_t *lane) {
  if (lane != NULL) emit(lane, begin(lane, JOURNAL_END));
}

/* ---- life ---- */

static void describe(const engine_t *engine, journal_t *journal) {
  buffer_t text = {0};
  head_write(engine, &text);
  if (!text.failed) journal_describe(journal, text.data, text.length);
  buffer_free(&text);
}

int lane_new(const engine_t *engine, journal_lane_t **out, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const int32_t index = engine->replicas.leader != NULL ? engine->replicas.index : 0;
  *out = NULL;
  if (options->journal == NULL && options->play == NULL) return 0;
  journal_lane_t *lane = calloc(1, sizeof *lane);
  if (lane == NULL) return error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal");
  lane->play = options->play;
  if (options->play == NULL) lane->ring = journal_ring(options->journal, index);
  lane->record = lane->commit =
      (byte_sink_t){.room = JOURNAL_RECORD_MAX, .flush = too_long, .context = lane};
  lane->record.bytes = malloc(JOURNAL_RECORD_MAX);
  lane->commit.bytes = malloc(JOURNAL_RECORD_MAX);
  if (lane->record.bytes == NULL || lane->commit.bytes == NULL ||
      (lane->ring == NULL && lane->play == NULL)) {
    lane_free(lane);
    return error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal");
  }
  if (index == 0 && lane->ring != NULL) describe(engine, options->journal);
  *out = lane;
  return 0;
}

void lane_free(journal_lane_t *lane) {
  if (lane == NULL) return;
  free(lane->record.bytes);
  free(lane->commit.bytes);
  free(lane);
}
