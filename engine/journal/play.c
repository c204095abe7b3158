/* play.c: the records of a lane, one after the other, beside what the engine does; see play.h. */
#include "engine/journal/play.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const names[JOURNAL_KINDS] = {
    [JOURNAL_REQUEST] = "a request comes",       [JOURNAL_CONSTRAINT] = "a constraint comes",
    [JOURNAL_CANCEL] = "a request is cancelled", [JOURNAL_BEGIN] = "a plan begins",
    [JOURNAL_PLAN] = "a plan is made",           [JOURNAL_TIME] = "a step ends",
    [JOURNAL_DRAFT_TIME] = "a draft model ends", [JOURNAL_SWAP_TIME] = "the rate of swaps changes",
    [JOURNAL_COMMIT] = "a step is committed",    [JOURNAL_DROP] = "a request makes room",
    [JOURNAL_CHOICE] = "a choice is complete",   [JOURNAL_FINISH] = "a request ends",
    [JOURNAL_GAP] = "records are missing",       [JOURNAL_END] = "the engine ends",
    [JOURNAL_LEFT] = "a step is left",
};

bool play_is_arrival(const journal_record_t *record) {
  return record->kind == JOURNAL_REQUEST || record->kind == JOURNAL_CONSTRAINT ||
         record->kind == JOURNAL_CANCEL;
}

const journal_record_t *play_next(play_t *play) {
  const journal_lane_log_t *lane = &play->log->lanes[play->lane];
  while (play->next < play->fed && play_is_arrival(&lane->records[play->next])) play->next++;
  return play->differs || play->next >= lane->num_records ? NULL : &lane->records[play->next];
}

static void print_entry(const kept_entry_t *entry, bool is_there, char *out, size_t size) {
  if (is_there)
    snprintf(out, size,
             "%" PRIu32 " tokens of request %" PRIu64 " (choice %" PRIu32 ") from token %" PRIu32
             " on",
             entry->num_tokens, entry->id, entry->index, entry->num_computed);
  else
    snprintf(out, size, "no further row");
}

/* The first thing in which two plans differ. */
static void compare_plans(play_t *play, const journal_record_t *was, const journal_record_t *is) {
  kept_plan_t old, new;
  kept_entry_t left = {0}, right = {0};
  char before[128], now[128];
  if (!journal_plan(was, &old) || !journal_plan(is, &new)) return;
  for (uint32_t row = 0;; row++) {
    bool has_left = journal_entry(&old, &left), has_right = journal_entry(&new, &right);
    if (has_left == has_right && (!has_left || memcmp(&left, &right, sizeof left) == 0)) {
      if (has_left) continue;
      break;
    }
    print_entry(&left, has_left, before, sizeof before);
    print_entry(&right, has_right, now, sizeof now);
    snprintf(play->why, sizeof play->why, "row %" PRIu32 " of the plan was %s, and is %s", row,
             before, now);
    return;
  }
  snprintf(play->why, sizeof play->why,
           "beside the plan, %" PRIu64 " waited, %" PRIu64 " ran and %" PRIu64
           " blocks were free; now they are %" PRIu64 ", %" PRIu64 " and %" PRIu64,
           old.waiting, old.running, old.blocks_free, new.waiting, new.running, new.blocks_free);
}

/* The first row in which two commits differ. */
static void compare_commits(play_t *play, const journal_record_t *was, const journal_record_t *is) {
  byte_source_t old = journal_source(was), new = journal_source(is);
  for (int32_t row = 0; old.at < old.end && new.at < new.end; row++) {
    uint8_t before = take_byte(&old), now = take_byte(&new);
    snprintf(play->why, sizeof play->why, "row %d of the step drew %d tokens, and draws %d", row,
             before & COMMIT_TOKENS, now & COMMIT_TOKENS);
    if (before != now) return;
    for (int i = 0; i < (now & COMMIT_TOKENS); i++) {
      uint64_t left = take_uint(&old), right = take_uint(&new);
      snprintf(play->why, sizeof play->why,
               "row %d of the step drew id %" PRIu64 ", and draws id %" PRIu64, row, left, right);
      if (left != right) return;
      bool scored = (now & COMMIT_LOGPROBS) != 0;
      snprintf(play->why, sizeof play->why, "row %d of the step has other log-probabilities", row);
      if (scored && (take_fixed_32(&old) != take_fixed_32(&new) ||
                     take_fixed_32(&old) != take_fixed_32(&new)))
        return;
    }
    snprintf(play->why, sizeof play->why, "row %d of the step scores its prompt otherwise", row);
    if ((now & COMMIT_SCORES) != 0 && take_fixed_32(&old) != take_fixed_32(&new)) return;
  }
  snprintf(play->why, sizeof play->why, "the step draws for another number of rows");
}

static void differ(play_t *play, const journal_record_t *was, const journal_record_t *is) {
  play->differs = true;
  snprintf(play->why, sizeof play->why, "the journal says that %s, and %s", names[was->kind],
           was->kind == is->kind ? "it differs" : names[is->kind]);
  if (was->kind == JOURNAL_PLAN && is->kind == JOURNAL_PLAN) compare_plans(play, was, is);
  if (was->kind == JOURNAL_COMMIT && is->kind == JOURNAL_COMMIT) compare_commits(play, was, is);
}

/* A request that had waited too long, or made room, is cancelled here. */
static bool ends_otherwise(const journal_record_t *was, const journal_record_t *is) {
  byte_source_t left = journal_source(was), right = journal_source(is);
  if (take_uint(&left) != take_uint(&right)) return false;
  uint8_t finish = take_byte(&left);
  int64_t code = take_int(&left);
  return finish == FINISH_ERROR && (code == ERR_QUEUE_FULL || code == ERR_QUEUE_TIMEOUT);
}

void play_compare(play_t *play, const uint8_t *bytes, size_t length) {
  const journal_record_t *was = play_next(play);
  const journal_record_t is = {(journal_kind_t)bytes[0], bytes + 1, (uint32_t)length - 1};
  if (was == NULL) return;
  play->next++;
  play->steps += is.kind == JOURNAL_PLAN;
  bool same = was->kind == is.kind && was->length == is.length &&
              memcmp(was->bytes, is.bytes, is.length) == 0;
  if (!same && was->kind == JOURNAL_FINISH && is.kind == JOURNAL_FINISH)
    same = ends_otherwise(was, &is);
  if (!same) differ(play, was, &is);
}

const journal_record_t *play_take(play_t *play, journal_kind_t kind) {
  const journal_record_t *next = play_next(play);
  const journal_record_t is = {kind, NULL, 0};
  if (next == NULL) return NULL;
  if (next->kind != kind) {
    differ(play, next, &is);
    return NULL;
  }
  play->next++;
  return next;
}

int play_late(const play_t *play, int32_t steps, int32_t entry) {
  const journal_lane_log_t *lane = &play->log->lanes[play->lane];
  size_t at = play->next;
  for (; !play->differs && at < lane->num_records; at++) {
    if (lane->records[at].kind != JOURNAL_COMMIT || steps-- > 0) continue;
    byte_source_t source = journal_source(&lane->records[at]);
    uint8_t flags = 0;
    for (int32_t i = 0; i <= entry; i++) flags = journal_skip_entry(&source);
    return source.failed ? -1 : (flags & COMMIT_LATE) != 0;
  }
  return -1;
}
