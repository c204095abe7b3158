/* log.c: regions -> blocks in their order -> records -> answers; see log.h and journal.h. */
#include "engine/journal/log.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_FIXED = 40, CHOICES_MAX = 4096 };

static uint32_t get_32(const uint8_t *at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get_64(const uint8_t *at) {
  return get_32(at) | (uint64_t)get_32(at + 4) << 32;
}

static void note(journal_log_t *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(journal_log_t *log, const char *format, ...) {
  va_list list;
  size_t used = strlen(log->notes);
  if (used > sizeof log->notes / 2) return;
  va_start(list, format);
  if (used > 0) used += (size_t)snprintf(log->notes + used, sizeof log->notes - used, "; ");
  vsnprintf(log->notes + used, sizeof log->notes - used, format, list);
  va_end(list);
}

/* ---- head ---- */

static int damaged(inferd_error_t *error, const char *what) {
  return error_set(error, ERR_CONFIGURATION, "journal", "the journal %s", what);
}

static int read_head(journal_log_t *log, uint64_t *region_bytes, inferd_error_t *error) {
  const uint8_t *head = log->bytes;
  if (log->num_bytes < sizeof JOURNAL_MAGIC ||
      memcmp(head, JOURNAL_MAGIC, sizeof JOURNAL_MAGIC) != 0)
    return damaged(error, "is no journal of inferd");
  if (log->num_bytes < JOURNAL_HEAD_BYTES) return damaged(error, "is cut within its head");
  if (get_32(head + 16) != JOURNAL_VERSION)
    return error_set(error, ERR_CONFIGURATION, "journal",
                     "the journal has version %" PRIu32 "; this inferd reads %d", get_32(head + 16),
                     (int)JOURNAL_VERSION);
  uint32_t length = get_32(head + 36);
  *region_bytes = get_64(head + 24);
  if (length > JOURNAL_HEAD_BYTES - HEAD_FIXED ||
      fnv_32(FNV_32_BASIS, head + HEAD_FIXED, length) != get_32(head + 20))
    return damaged(error, "has a damaged head");
  if (get_32(head + 32) != JOURNAL_REGIONS || *region_bytes < JOURNAL_BLOCK_HEAD_BYTES ||
      *region_bytes > INT64_MAX / (2 * JOURNAL_REGIONS))
    return damaged(error, "has a damaged head");
  log->text = arena_copy(&log->arena, (const char *)head + HEAD_FIXED, length);
  return log->text != NULL ? 0 : error_set(error, ERR_NO_MEMORY, "journal", "no memory");
}

/* ---- blocks ---- */

typedef struct block {
  const uint8_t *records;
  uint32_t length, lane;
  uint64_t number;
} journal_block_t;

/* Reads the block at `at`. Returns its bytes, or 0: there is none, or it is damaged. */
static size_t read_block(const uint8_t *at, size_t room, journal_block_t *out) {
  if (room < JOURNAL_BLOCK_HEAD_BYTES) return 0;
  uint32_t word = get_32(at + 4), length = word & 0xffffff;
  if (length == 0 || length > room - JOURNAL_BLOCK_HEAD_BYTES || word >> 24 >= JOURNAL_LANES_MAX)
    return 0;
  size_t bytes = JOURNAL_BLOCK_HEAD_BYTES + length;
  if (fnv_32(FNV_32_BASIS, at + 4, bytes - 4) != get_32(at)) return 0;
  *out = (journal_block_t){at + JOURNAL_BLOCK_HEAD_BYTES, length, word >> 24, get_64(at + 8)};
  return bytes;
}

static bool add_record(journal_log_t *log, uint32_t lane, const journal_record_t *record) {
  journal_lane_log_t *to = &log->lanes[lane];
  if (to->num_records == to->room) {
    size_t room = 2 * to->room + 256;
    journal_record_t *more = reallocarray(to->records, room, sizeof *more);
    if (more == NULL) return false;
    to->records = more;
    to->room = room;
  }
  to->records[to->num_records++] = *record;
  return true;
}

/* Adds the records of a block. Returns false without memory. */
static bool add_block(journal_log_t *log, const journal_block_t *block) {
  byte_source_t source = {.at = block->records, .end = block->records + block->length};
  while (source.at < source.end) {
    size_t length;
    const uint8_t *bytes = (const uint8_t *)take_text(&source, &length);
    if (source.failed || length == 0 || bytes[0] == 0 || bytes[0] >= JOURNAL_KINDS) {
      note(log, "block %" PRIu64 " has a damaged record", block->number);
      log->lanes[block->lane].gaps++;
      return true;
    }
    journal_record_t record = {(journal_kind_t)bytes[0], bytes + 1, (uint32_t)length - 1};
    byte_source_t inner = journal_source(&record);
    if (record.kind == JOURNAL_GAP) log->lanes[block->lane].gaps += take_uint(&inner);
    if (record.kind != JOURNAL_GAP && !add_record(log, block->lane, &record)) return false;
  }
  return true;
}

typedef struct region {
  uint64_t first; /* number of its first block */
  const uint8_t *at;
  size_t room;
} region_t;

static int by_number(const void *left, const void *right) {
  const region_t *a = left, *b = right;
  return (a->first > b->first) - (a->first < b->first);
}

/* Numbers are unbroken, also from a region to the next, or records are missing. */
static bool read_region(journal_log_t *log, const region_t *region, uint64_t *next) {
  size_t at = 0, bytes;
  journal_block_t block;
  while ((bytes = read_block(region->at + at, region->room - at, &block)) > 0) {
    bool is_older = block.number < *next;
    if (is_older) return true; /* of the turn before */
    if (block.number > *next) {
      note(log, "%" PRIu64 " blocks before number %" PRIu64 " are missing", block.number - *next,
           block.number);
      for (int lane = 0; lane < JOURNAL_LANES_MAX; lane++)
        log->lanes[lane].gaps += log->lanes[lane].num_records > 0;
    }
    if (!add_block(log, &block)) return false;
    *next = block.number + 1;
    at += bytes;
  }
  size_t left = region->room - at;
  if (left >= JOURNAL_BLOCK_HEAD_BYTES && get_32(region->at + at + 4) != 0 &&
      get_64(region->at + at + 8) >= *next)
    note(log, "block %" PRIu64 ", at byte %zu, is cut or damaged", *next,
         (size_t)(region->at - log->bytes) + at);
  return true;
}

static int read_regions(journal_log_t *log, uint64_t region_bytes, inferd_error_t *error) {
  region_t regions[JOURNAL_REGIONS];
  size_t count = 0;
  journal_block_t block;
  for (uint64_t i = 0; i < JOURNAL_REGIONS; i++) {
    uint64_t at = JOURNAL_HEAD_BYTES + i * region_bytes;
    if (at >= log->num_bytes) break;
    region_t region = {.at = log->bytes + at,
                       .room = (size_t)MIN(region_bytes, log->num_bytes - at)};
    if (read_block(region.at, region.room, &block) == 0) {
      bool is_empty = region.room < JOURNAL_BLOCK_HEAD_BYTES || get_32(region.at + 4) == 0;
      if (!is_empty) note(log, "the block at byte %" PRIu64 " is cut or damaged", at);
      continue;
    }
    region.first = block.number;
    regions[count++] = region;
  }
  qsort(regions, count, sizeof *regions, by_number);
  uint64_t next = count > 0 ? regions[0].first : 0;
  for (int lane = 0; lane < JOURNAL_LANES_MAX; lane++) log->lanes[lane].begins = next == 0;
  for (size_t i = 0; i < count; i++)
    if (!read_region(log, &regions[i], &next))
      return error_set(error, ERR_NO_MEMORY, "journal", "no memory for the journal");
  return 0;
}

/* ---- plans ---- */

bool journal_plan(const journal_record_t *record, kept_plan_t *out) {
  *out = (kept_plan_t){.source = journal_source(record)};
  out->waiting = take_uint(&out->source);
  out->running = take_uint(&out->source);
  out->swapped = take_uint(&out->source);
  out->blocks_free = take_uint(&out->source);
  out->why = take_uint(&out->source);
  out->preempted = take_uint(&out->source);
  out->num_entries = (uint32_t)take_count(&out->source);
  return !out->source.failed && out->why < WAIT_KINDS;
}

bool journal_entry(kept_plan_t *plan, kept_entry_t *out) {
  byte_source_t *source = &plan->source;
  if (plan->num_taken == plan->num_entries) return false;
  plan->num_taken++;
  plan->id += (uint64_t)take_int(source);
  *out = (kept_entry_t){.id = plan->id, .flags = take_byte(source)};
  if ((out->flags & ENTRY_INDEX) != 0) out->index = (uint32_t)take_uint(source);
  out->num_computed = (uint32_t)take_uint(source);
  out->num_tokens = (uint32_t)take_uint(source);
  return !source->failed;
}

bool journal_waits_for_mask(const kept_plan_t *plan, uint64_t id, int32_t index) {
  kept_plan_t rest = *plan;
  kept_entry_t entry;
  uint64_t other = 0;
  while (journal_entry(&rest, &entry)) continue;
  for (int32_t count = take_count(&rest.source); count > 0; count--) {
    other += (uint64_t)take_int(&rest.source);
    uint64_t choice = take_uint(&rest.source);
    if (!rest.source.failed && other == id && choice == (uint64_t)index) return true;
  }
  return false;
}

uint8_t journal_skip_entry(byte_source_t *commit) {
  uint8_t flags = take_byte(commit);
  for (int i = 0; i < (flags & COMMIT_TOKENS); i++) {
    (void)take_uint(commit);
    if ((flags & COMMIT_LOGPROBS) != 0) (void)take_fixed_64(commit);
  }
  if ((flags & COMMIT_SCORES) != 0) (void)take_fixed_32(commit);
  return flags;
}

/* ---- answers ---- */

kept_answer_t *journal_answer(const journal_log_t *log, int32_t lane, uint64_t id) {
  for (size_t i = log->num_answers; i > 0; i--) {
    kept_answer_t *answer = &log->answers[i - 1];
    if (answer->id == id && answer->lane == lane) return answer;
  }
  return NULL;
}

/* While a lane is read: the parts of what is being taken, and the constraints so far. */
typedef struct building {
  journal_log_t *log;
  int32_t lane;
  buffer_t parts;
  uint64_t num_parts;
  bool broken;
  struct source {
    uint64_t serial;
    const uint8_t *bytes;
    size_t length;
  } * sources;
  size_t num_sources;
  kept_answer_t **live; /* [num_live] that have not finished */
  size_t num_live, live_room;
  size_t oldest; /* of the plans that have no commit: index of a record */
} building_t;

bool journal_grow(void **items, size_t *room, size_t count, size_t size) {
  if (count < *room) return true;
  size_t wanted = 2 * *room + 64;
  void *more = reallocarray(*items, wanted, size);
  if (more == NULL) return false;
  *items = more;
  *room = wanted;
  return true;
}

static void find_constraint(const building_t *building, kept_answer_t *answer) {
  uint64_t serial = answer->kept.constraint;
  if (serial == 0) return;
  for (size_t i = building->num_sources; i > 0; i--) {
    const struct source *source = &building->sources[i - 1];
    if (source->serial != serial) continue;
    answer->constraint = source->bytes;
    answer->constraint_bytes = source->length;
    return;
  }
  answer->lost = "its constraint was not kept";
}

static bool add_answer(building_t *building, uint64_t id) {
  journal_log_t *log = building->log;
  if (log->num_answers == log->answers_room) return false; /* counted before */
  kept_answer_t *answer = &log->answers[log->num_answers++];
  *answer = (kept_answer_t){.id = id, .lane = building->lane};
  if (building->broken ||
      !request_read(building->parts.bytes, building->parts.length, &log->arena, &answer->kept)) {
    answer->lost = "its request is damaged";
    answer->kept = (kept_request_t){0};
  }
  if (answer->lost == NULL) find_constraint(building, answer);
  if (answer->kept.num_images > 0) answer->lost = "it has pictures or sounds, which are not kept";
  if (answer->kept.has_rows) answer->lost = "its prompt is rows, which are not kept";
  if (answer->kept.has_source) answer->lost = "it has a source of an encoder, which is not kept";
  const sampling_params_t *params = &answer->kept.request.params;
  answer->num_choices = params_num_choices(params);
  if (params_num_sequences(params) > CHOICES_MAX) answer->lost = "it asks for too many choices";
  if (answer->num_choices > CHOICES_MAX) answer->num_choices = 1;
  answer->choices = arena_calloc(&log->arena, (size_t)answer->num_choices, sizeof *answer->choices);
  if (answer->choices == NULL || !journal_grow((void **)&building->live, &building->live_room,
                                               building->num_live, sizeof(void *)))
    return false;
  building->live[building->num_live++] = answer;
  return true;
}

static kept_answer_t *live_answer(const building_t *building, uint64_t id) {
  for (size_t i = building->num_live; i > 0; i--)
    if (building->live[i - 1]->id == id) return building->live[i - 1];
  return NULL;
}

static bool take_part(building_t *building, const journal_record_t *record) {
  byte_source_t source = journal_source(record);
  uint64_t id = take_uint(&source), number = take_uint(&source);
  bool is_last = take_byte(&source) != 0;
  if (number == 0) {
    buffer_clear(&building->parts);
    building->num_parts = 0;
    building->broken = false;
  }
  building->broken = building->broken || number != building->num_parts++ || source.failed;
  if (!source.failed) buffer_append(&building->parts, source.at, source_left(&source));
  if (!is_last) return !building->parts.failed;
  if (record->kind == JOURNAL_REQUEST) return add_answer(building, id);
  struct source *more = reallocarray(building->sources, building->num_sources + 1, sizeof *more);
  char *copy = arena_copy(&building->log->arena, building->parts.data, building->parts.length);
  if (more != NULL) building->sources = more;
  if (more == NULL || copy == NULL) return false;
  if (!building->broken)
    more[building->num_sources++] =
        (struct source){id, (const uint8_t *)copy, building->parts.length};
  return true;
}

static bool take_token(byte_source_t *source, bool has_logprob, arena_t *arena,
                       kept_choice_t *choice) {
  kept_token_t token = {.has_logprob = has_logprob};
  uint64_t id = take_uint(source);
  token.id = id <= INT32_MAX ? (int32_t)id : -1;
  if (has_logprob) {
    token.logprob = take_float(source);
    token.hash = take_fixed_32(source);
  }
  if (choice == NULL || source->failed) return true;
  kept_token_t *grown = choice->tokens;
  if (choice->num_tokens == choice->room)
    grown = arena_grow(arena, choice->tokens, choice->num_tokens, choice->num_tokens + 1,
                       sizeof token, &choice->room);
  if (grown == NULL) return false;
  choice->tokens = grown;
  choice->tokens[choice->num_tokens++] = token;
  return true;
}

/* The oldest plan with entries that no commit was read for. */
static const journal_record_t *oldest_plan(building_t *building, size_t before) {
  const journal_lane_log_t *lane = &building->log->lanes[building->lane];
  for (; building->oldest < before; building->oldest++) {
    const journal_record_t *record = &lane->records[building->oldest];
    kept_plan_t plan;
    if (record->kind == JOURNAL_PLAN && journal_plan(record, &plan) && plan.num_entries > 0)
      return &lane->records[building->oldest++];
  }
  return NULL;
}

static bool take_commit(building_t *building, size_t at, const journal_record_t *record) {
  const journal_record_t *of = oldest_plan(building, at);
  byte_source_t source = journal_source(record);
  kept_plan_t plan;
  kept_entry_t entry;
  if (of == NULL || !journal_plan(of, &plan)) return true;
  while (source.at < source.end && journal_entry(&plan, &entry)) {
    uint8_t flags = take_byte(&source);
    kept_answer_t *answer = live_answer(building, entry.id);
    bool is_there = answer != NULL && entry.index < (uint32_t)answer->num_choices;
    for (int i = 0; i < (flags & COMMIT_TOKENS); i++)
      if (!take_token(&source, (flags & COMMIT_LOGPROBS) != 0, &building->log->arena,
                      is_there ? &answer->choices[entry.index] : NULL))
        return false;
    uint32_t scores = (flags & COMMIT_SCORES) != 0 ? take_fixed_32(&source) : 0;
    if (answer != NULL) answer->scores += scores;
  }
  return true;
}

static bool take_choice(const building_t *building, const journal_record_t *record) {
  byte_source_t source = journal_source(record);
  kept_answer_t *answer = live_answer(building, take_uint(&source));
  uint64_t index = take_uint(&source);
  bool has_logprob = take_byte(&source) != 0;
  if (answer == NULL || index >= (uint64_t)answer->num_choices) return true;
  answer->choices[index].num_tokens = 0;
  while (source.at < source.end && !source.failed)
    if (!take_token(&source, has_logprob, &building->log->arena, &answer->choices[index]))
      return false;
  return true;
}

static void take_finish(const building_t *building, const journal_record_t *record) {
  byte_source_t source = journal_source(record);
  kept_answer_t *answer = live_answer(building, take_uint(&source));
  uint8_t finish = take_byte(&source);
  int64_t code = take_int(&source);
  if (answer == NULL || finish > FINISH_ERROR || code > 0 || code < -1000) return;
  answer->finish = (finish_reason_t)finish;
  answer->error_code = (int32_t)code;
  answer->num_output_tokens = take_uint(&source);
  answer->vector = take_fixed_64(&source);
  answer->has_finish = !source.failed;
}

/* Tokens of the step in which a request ends stand behind its end, in the commit. */
static void drop_ended(building_t *building) {
  size_t kept = 0;
  for (size_t i = 0; i < building->num_live; i++)
    if (!building->live[i]->has_finish) building->live[kept++] = building->live[i];
  building->num_live = kept;
}

static bool build_lane(building_t *building) {
  const journal_lane_log_t *lane = &building->log->lanes[building->lane];
  bool good = true;
  for (size_t i = 0; i < lane->num_records && good; i++) {
    const journal_record_t *record = &lane->records[i];
    switch (record->kind) {
    case JOURNAL_REQUEST:
    case JOURNAL_CONSTRAINT: good = take_part(building, record); break;
    case JOURNAL_COMMIT:
      good = take_commit(building, i, record);
      drop_ended(building);
      break;
    case JOURNAL_LEFT: (void)oldest_plan(building, i); break;
    case JOURNAL_CHOICE: good = take_choice(building, record); break;
    case JOURNAL_FINISH: take_finish(building, record); break;
    default: break;
    }
  }
  return good;
}

/* Behind a gap nobody knows which tokens were lost. */
static void doubt_answers(journal_log_t *log) {
  for (size_t i = 0; i < log->num_answers; i++) {
    kept_answer_t *answer = &log->answers[i];
    uint64_t tokens = 0;
    for (int32_t c = 0; c < answer->num_choices; c++) tokens += answer->choices[c].num_tokens;
    bool is_short =
        answer->has_finish && answer->finish < FINISH_ABORT && tokens != answer->num_output_tokens;
    if (answer->lost == NULL && is_short) answer->lost = "the journal lacks some of its tokens";
  }
}

static int build_answers(journal_log_t *log, inferd_error_t *error) {
  for (int lane = 0; lane < JOURNAL_LANES_MAX; lane++)
    for (size_t i = 0; i < log->lanes[lane].num_records; i++)
      log->answers_room += log->lanes[lane].records[i].kind == JOURNAL_REQUEST;
  log->answers = calloc(log->answers_room + 1, sizeof *log->answers);
  bool good = log->answers != NULL;
  for (int lane = 0; lane < JOURNAL_LANES_MAX && good; lane++) {
    journal_lane_log_t *records = &log->lanes[lane];
    building_t building = {.log = log, .lane = lane};
    good = build_lane(&building);
    records->ends =
        records->num_records > 0 && records->records[records->num_records - 1].kind == JOURNAL_END;
    buffer_free(&building.parts);
    free(building.sources);
    free(building.live);
  }
  if (good) doubt_answers(log);
  return good ? 0 : error_set(error, ERR_NO_MEMORY, "journal", "no memory for the journal");
}

/* ---- life ---- */

int journal_parse(uint8_t *bytes, size_t length, journal_log_t **out, inferd_error_t *error) {
  journal_log_t *log = calloc(1, sizeof *log);
  uint64_t region_bytes = 0;
  if (log == NULL) {
    free(bytes);
    return error_set(error, ERR_NO_MEMORY, "journal", "no memory for the journal");
  }
  log->bytes = bytes;
  log->num_bytes = length;
  int code = read_head(log, &region_bytes, error);
  if (code == 0) code = read_regions(log, region_bytes, error);
  if (code == 0) code = build_answers(log, error);
  if (code != 0) {
    journal_log_free(log);
    return code;
  }
  *out = log;
  return 0;
}

/* Takes the bytes, which `log` owns. */
static int read_recipe(journal_log_t *log, inferd_error_t *error) {
  byte_source_t source = {.at = log->bytes, .end = log->bytes + log->num_bytes};
  size_t length;
  uint64_t version = take_uint(&source);
  const char *text = take_text(&source, &length);
  if (!source.failed && version != JOURNAL_VERSION)
    return error_set(error, ERR_CONFIGURATION, "recipe",
                     "the recipe has version %" PRIu64 "; this inferd reads %d", version,
                     (int)JOURNAL_VERSION);
  log->text = arena_copy(&log->arena, text, length);
  const journal_block_t block = {.records = source.at, .length = (uint32_t)source_left(&source)};
  if (log->text == NULL || !add_block(log, &block))
    return error_set(error, ERR_NO_MEMORY, "recipe", "no memory for a recipe");
  int code = build_answers(log, error);
  bool whole = log->num_answers == 1 && log->answers[0].has_finish && log->lanes[0].gaps == 0;
  if (code == 0 && (source.failed || !whole))
    code = error_set(error, ERR_CONFIGURATION, "recipe", "the recipe is damaged");
  return code;
}

int journal_parse_recipe(const void *bytes, size_t length, journal_log_t **out,
                         inferd_error_t *error) {
  journal_log_t *log = calloc(1, sizeof *log);
  if (log != NULL) log->bytes = malloc(length + 1);
  if (log == NULL || log->bytes == NULL || length > UINT32_MAX) {
    journal_log_free(log);
    return error_set(error, ERR_NO_MEMORY, "recipe", "no memory for a recipe of %zu bytes", length);
  }
  memcpy(log->bytes, bytes, length);
  log->num_bytes = length;
  int code = read_recipe(log, error);
  if (code == 0)
    *out = log;
  else
    journal_log_free(log);
  return code;
}

int journal_read(const char *path, journal_log_t **out, inferd_error_t *error) {
  struct stat found;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &found) != 0) {
    int number = errno;
    if (fd >= 0) close(fd);
    return error_system(error, path, number);
  }
  size_t length = S_ISREG(found.st_mode) ? (size_t)found.st_size : 0, done = 0;
  uint8_t *bytes = malloc(length + 1);
  while (bytes != NULL && done < length) {
    ssize_t n = read(fd, bytes + done, length - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += (size_t)n;
  }
  close(fd);
  if (bytes == NULL)
    return error_set(error, ERR_NO_MEMORY, "journal", "no memory for a journal of %zu bytes",
                     length);
  return error_within(error, journal_parse(bytes, done, out, error), path);
}

void journal_log_free(journal_log_t *log) {
  if (log == NULL) return;
  for (int lane = 0; lane < JOURNAL_LANES_MAX; lane++) free(log->lanes[lane].records);
  arena_free(&log->arena);
  free(log->answers);
  free(log->bytes);
  free(log);
}
