/* constrain.c: grammars in the step: masks before sampling (stage 7), tokens after it (stage 8).
 *
 * Engine thread; constrain_new takes all memory at start: one matcher per row of the token table,
 * which only sequences with a grammar touch. The state of a matcher is a function of the output
 * tokens. So a sequence whose row has no matcher yet replays its tokens, and preemption, chunking
 * and forks need no further code. If a matcher fails, only its own request ends; a constrained row
 * is never sampled without its mask.
 *
 * The work of a step is bounded, in units. A mask that does not get ready is late: nothing is drawn
 * for its group, which is not planned until its masks are ready. They are made in slices, one group
 * after the other, so a slow grammar slows its own request alone.
 *
 * With mask_threads (mask_threads.h) the walks of masks are given to these threads before the
 * forward, and those of groups that wait whenever there is one to make. The engine thread still
 * takes tokens, looks into the cache and keeps what was made; it makes what no thread has begun
 * when the sampler needs it. Who makes a mask changes neither the mask nor its units, so it changes
 * no token.
 */
#include "engine/sample/constrain.h"

#include "engine/internal.h"
#include "engine/sample/constrain_row.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"
#include "engine/grammar/source_bytes.h"
#include "engine/sample/mask_threads.h"

#include <stdlib.h>
#include <string.h>

/* A request may cost 2,000 steps, and a step for each of its tokens. */
enum { STEP_UNITS = 200000, REQUEST_STEPS = 2000 };
/* The sampler waits so long for masks that threads are making; then their rows are late. */
enum { WAIT_NS = 2000000 };

static const size_t MASKS_BYTES = (size_t)16 << 20; /* cache of masks */

/* The text of a token for grammars. Special and added tokens are control marks and have no text: a
 * grammar that wants one names its id. */
static const char *grammar_token(const void *context, int32_t id, size_t *length) {
  const tokenizer_t *tokenizer = context;
  *length = 0;
  if (tokenizer_flags(tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
  return tokenizer_bytes(tokenizer, id, length);
}

/* A thread for masks: the engine thread may sleep until a group's mask is ready. */
static void wake_engine(void *context) {
  const engine_t *engine = context;
  mailbox_wake(engine->mailbox);
}

static int32_t count_threads(const engine_t *engine) {
  const int32_t given = engine->options.mask_threads;
  return given < 0 ? mask_threads_default(topology_num_cpus()) : given;
}

size_t constrain_bytes(const engine_t *engine) {
  const size_t rows = (size_t)scheduler_num_rows(engine->options.max_num_seqs);
  const size_t jobs = rows + (size_t)count_threads(engine);
  return jobs * grammar_matcher_bytes() + MASKS_BYTES;
}

int constrain_new(engine_t *engine, uint64_t *build_ns, inferd_error_t *error) {
  uint64_t start_ns = clock_now_ns();
  constrain_t *constrain = &engine->constrain;
  int code = 0;
  if (engine->replicas.leader != NULL)
    constrain->vocabulary = engine->replicas.leader->constrain.vocabulary;
  else
    code = grammar_vocabulary_new(grammar_token, engine->tokenizer,
                                  tokenizer_vocab_size(engine->tokenizer),
                                  engine->blueprint.vocab_size, &constrain->vocabulary, error);
  if (code) return code;
  *build_ns = clock_now_ns() - start_ns;
  if (engine->options.journal != NULL || engine->options.keeps_constraints)
    grammar_vocabulary_keep_sources(constrain->vocabulary);
  size_t rows = (size_t)engine->scheduler->num_rows;
  const int32_t threads = count_threads(engine);
  size_t jobs = rows + (size_t)threads;
  int32_t wanted = engine->options.mask_units;
  constrain->units = wanted > 0 ? (uint64_t)wanted : STEP_UNITS;
  constrain->row_words = grammar_row_words(constrain->vocabulary);
  constrain->matcher_bytes = grammar_matcher_bytes();
  constrain->matchers = calloc(jobs, constrain->matcher_bytes);
  constrain->scratch = calloc(1, grammar_scratch_bytes());
  constrain->rows = calloc(rows, sizeof *constrain->rows);
  constrain->jobs = calloc(jobs, sizeof *constrain->jobs);
  constrain->spares = calloc(jobs, sizeof *constrain->spares);
  constrain->away = calloc(rows, sizeof *constrain->away);
  constrain->row_masks = calloc(jobs * (size_t)constrain->row_words, sizeof(uint32_t));
  constrain->num_places = 1;
  while (constrain->num_places < rows) constrain->num_places *= 2;
  constrain->places = calloc(constrain->num_places, sizeof *constrain->places);
  if (constrain->matchers == NULL || constrain->scratch == NULL || constrain->rows == NULL ||
      constrain->jobs == NULL || constrain->spares == NULL || constrain->away == NULL ||
      constrain->places == NULL || constrain->row_masks == NULL) {
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the grammars of %zu sequences",
                     rows);
  }
  for (uint32_t i = 0; i < constrain->num_places; i++) constrain->places[i] = -1;
  for (size_t i = 0; i < jobs; i++) {
    constrain->jobs[i] =
        (mask_job_t){.matcher = (grammar_matcher_t *)(void *)(constrain->matchers +
                                                              i * constrain->matcher_bytes),
                     .row = constrain->row_masks + i * (size_t)constrain->row_words};
    if (i < rows) constrain->rows[i].job = (int32_t)i;
    if (i >= rows) constrain->spares[constrain->num_spares++] = (int32_t)i;
  }
  code = grammar_masks_new(constrain->vocabulary, MASKS_BYTES, &constrain->masks, error);
  if (!code) code = constrain_new_drafts(engine, error);
  if (code || threads == 0) return code;
  return mask_threads_new(threads, wake_engine, engine, &constrain->threads, error);
}

void constrain_free(engine_t *engine) {
  constrain_t *constrain = &engine->constrain;
  mask_threads_free(constrain->threads);
  if (engine->replicas.leader == NULL) grammar_vocabulary_free(constrain->vocabulary);
  free(constrain->matchers);
  free(constrain->scratch);
  free(constrain->rows);
  free(constrain->jobs);
  free(constrain->spares);
  free(constrain->away);
  free(constrain->places);
  free(constrain->row_masks);
  grammar_masks_free(constrain->masks);
  constrain_free_drafts(engine);
}

const grammar_vocabulary_t *engine_grammar_vocabulary(const engine_t *engine) {
  return engine_state(engine) == ENGINE_LOADING ? NULL : engine->constrain.vocabulary;
}

static grammar_matcher_t *matcher_of(const engine_t *engine, const sequence_t *seq) {
  return job_of(engine, seq)->matcher;
}

/* The row's mask is to be made anew. */
static void forget_mask(const engine_t *engine, const sequence_t *seq) {
  constrained_t *at = state_of(engine, seq);
  CHECK(!at->away);
  at->ready = false;
  job_of(engine, seq)->walk = (grammar_walk_t){0};
}

/* Lets the matcher follow one way only if its sequence has come to where it began to do so. */
static void narrow_here(const engine_t *engine, sequence_t *seq) {
  const constrained_t *at = &engine->constrain.rows[seq->row];
  if (at->num_accepted == 0 && seq->group->sequence.masks.narrow_from == 0)
    seq->masks.narrow_from = 0;
  if (seq->masks.narrow_from == at->num_accepted) grammar_matcher_narrow(matcher_of(engine, seq));
}

/* Makes the matcher of the sequence's row stand after `num_tokens` output tokens, if it follows
 * another sequence or none yet. Returns 0, GRAMMAR_LATER when the work reaches `end`, or the error
 * of the grammar. */
static int catch_up(const engine_t *engine, sequence_t *seq, int32_t num_tokens, uint64_t end) {
  const constrain_t *constrain = &engine->constrain;
  grammar_matcher_t *matcher = matcher_of(engine, seq);
  constrained_t *at = &constrain->rows[seq->row];
  int code = 0;
  if (seq->grammar_row != seq->row) {
    forget_mask(engine, seq);
    at->num_accepted = 0;
    code = grammar_matcher_start(matcher, constrain->scratch, seq->group->request->grammar,
                                 constrain->vocabulary);
    if (!code) seq->grammar_row = seq->row;
    if (!code) narrow_here(engine, seq);
  }
  while (!code && at->num_accepted < num_tokens) {
    uint64_t now = units_now(engine);
    if (now >= end) return GRAMMAR_LATER;
    forget_mask(engine, seq);
    code = grammar_matcher_accept_on(matcher, constrain->scratch,
                                     seq->tokens[seq->num_prompt_tokens + at->num_accepted],
                                     end - now);
    if (code) break;
    at->num_accepted++;
    narrow_here(engine, seq);
  }
  return code;
}

int32_t constrain_stop_ids(const engine_t *engine, const sampling_params_t *params, int32_t *ids) {
  int32_t count = 0;
  if (!params->ignore_eos) {
    ids[count++] = engine->info.primary_eos;
    for (int32_t i = 0; i < engine->info.num_stop_ids; i++) ids[count++] = engine->info.stop_ids[i];
  }
  for (int32_t i = 0; i < params->num_stop_token_ids && count < SUPPRESSED_MAX; i++) {
    ids[count++] = params->stop_token_ids[i];
  }
  return count;
}

uint64_t constrain_units_max(const engine_t *engine, const group_t *group) {
  uint64_t tokens = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) tokens += (uint64_t)seq->num_output_tokens;
  }
  return engine->constrain.units * (REQUEST_STEPS + tokens);
}

/* Returns true if the group, with this mask, has had its share of work. Cached masks count with the
 * work that they took when they were made, and what its other sequences cost for the same token
 * does not count yet, so the answer does not depend on other requests, nor on whose mask is made
 * first. */
static bool has_spent(const engine_t *engine, const group_t *group, const grammar_walk_t *walk) {
  return group->masks.units_before + walk->units > constrain_units_max(engine, group);
}

/* What a walk has left: it is complete (code 0), or may go on (GRAMMAR_LATER), or has failed. If
 * the group has had its share of work, the sequence follows one way only from here on, and its mask
 * begins anew: then returns GRAMMAR_LATER and sets *anew. */
static int judge(engine_t *engine, sequence_t *seq, int code, bool *anew) {
  const mask_job_t *job = job_of(engine, seq);
  *anew = seq->masks.narrow_from < 0 && has_spent(engine, seq->group, &job->walk);
  if (*anew) {
    seq->masks.narrow_from = state_of(engine, seq)->num_accepted;
    grammar_matcher_narrow(job->matcher);
    forget_mask(engine, seq);
    return GRAMMAR_LATER;
  }
  if (code == GRAMMAR_LATER) return code;
  seq->group->masks.units += job->walk.units;
  state_of(engine, seq)->ready = code == 0;
  engine->stats.grammar_masks++;
  engine->stats.grammar_mask_hits += job->walk.hit;
  return code;
}

/* Continues the mask itself. 0 units: only a cached one. Returns as constrain_advance. */
static int make_mask(engine_t *engine, sequence_t *seq, uint64_t end) {
  const constrain_t *constrain = &engine->constrain;
  mask_job_t *job = job_of(engine, seq);
  int32_t stop_ids[SUPPRESSED_MAX + 1];
  int32_t num_stop_ids = constrain_stop_ids(engine, &seq->group->request->params, stop_ids);
  bool anew = true;
  int code = 0;
  while (anew) {
    uint64_t now = units_now(engine), left = end > now ? end - now : 0;
    code = grammar_masks_fill_on(constrain->masks, job->matcher, constrain->scratch, stop_ids,
                                 num_stop_ids, &job->walk, left, job->row);
    code = judge(engine, seq, code, &anew);
  }
  return code;
}

int constrain_advance(engine_t *engine, sequence_t *seq, uint64_t end) {
  uint64_t start_ns = clock_now_ns(), before = units_now(engine);
  activity_for(&engine->activity, seq->group->request->id);
  int code = catch_up(engine, seq, seq->num_output_tokens, end);
  if (!code && !state_of(engine, seq)->ready && !seq->masks.late)
    code = make_mask(engine, seq, end);
  engine->stats.grammar_mask_ns += clock_now_ns() - start_ns;
  seq->group->masks.token_units += units_now(engine) - before;
  return code;
}

/* The list of the rows whose masks the threads make for the places of this hash, or of others. */
static int32_t *first_of(const engine_t *engine, uint64_t place) {
  const constrain_t *constrain = &engine->constrain;
  return &constrain->places[place & (constrain->num_places - 1)];
}

/* Whether the threads make a mask for an equal place. Its copy will be in the cache. */
static bool is_on_its_way(const engine_t *engine, uint64_t place) {
  const constrain_t *constrain = &engine->constrain;
  if (place == 0) return false;
  int32_t row = *first_of(engine, place);
  while (row >= 0 && constrain->rows[row].place != place) row = constrain->rows[row].next_row;
  return row >= 0;
}

void constrain_row(engine_t *engine, sample_row_t *row, sequence_t *seq, int32_t entry) {
  group_t *group = seq->group;
  uint64_t part = engine->constrain.units / PARTS, now = units_now(engine);
  int code = group->masks.code ? group->masks.code : GRAMMAR_LATER;
  const constrained_t *at = state_of(engine, seq);
  bool elsewhere =
      !at->ready && (at->away || is_on_its_way(engine, job_of(engine, seq)->walk.place));
  const int late = lane_late(engine->lane, engine->num_steps - 1, entry); /* of a journal */
  uint64_t end = late == 0 ? UINT64_MAX : MIN(end_of(engine, 1), now + part);
  bool may = !elsewhere && !seq->masks.late && !is_cancelled(group);
  if (late >= 0) may = late == 0;
  if (code == GRAMMAR_LATER && may) code = constrain_advance(engine, seq, end);
  if (code == 0) {
    row->allowed_mask = job_of(engine, seq)->row;
    return;
  }
  group->masks.wait = group->masks.slow = true;
  if (code != GRAMMAR_LATER) group->masks.code = code;
}

/* ---- masks that threads make ---- */

/* Gives the sequence's mask to the threads. */
static void give_away(engine_t *engine, sequence_t *seq, bool urgent) {
  constrain_t *constrain = &engine->constrain;
  mask_job_t *job = job_of(engine, seq);
  uint64_t most = constrain_units_max(engine, seq->group), before = seq->group->masks.units_before;
  job->context = seq;
  job->units_max = UINT64_MAX;
  if (seq->masks.narrow_from < 0) job->units_max = most > before ? most - before : 0;
  constrained_t *at = state_of(engine, seq);
  at->away = true;
  at->away_at = constrain->num_away;
  at->place = job->walk.place;
  constrain->away[constrain->num_away++] = seq->row;
  if (at->place != 0) {
    at->next_row = *first_of(engine, at->place);
    *first_of(engine, at->place) = seq->row;
  }
  mask_threads_post(constrain->threads, job, urgent);
}

/* The threads have not the sequence's mask any more. */
static void come_back(engine_t *engine, const sequence_t *seq) {
  constrain_t *constrain = &engine->constrain;
  constrained_t *at = state_of(engine, seq);
  if (at->place != 0) {
    int32_t *link = first_of(engine, at->place);
    while (*link != seq->row) link = &constrain->rows[*link].next_row;
    *link = at->next_row;
  }
  int32_t last = constrain->away[--constrain->num_away];
  constrain->away[at->away_at] = last;
  constrain->rows[last].away_at = at->away_at;
  at->away = false;
}

/* Looks for the sequence's mask in the cache, and gives its walk away if it is not there. Returns
 * as constrain_advance. */
static int look_up(engine_t *engine, sequence_t *seq, bool urgent) {
  uint64_t start_ns = clock_now_ns();
  int code = make_mask(engine, seq, 0);
  if (code == GRAMMAR_LATER && !is_on_its_way(engine, job_of(engine, seq)->walk.place))
    give_away(engine, seq, urgent);
  engine->stats.grammar_mask_ns += clock_now_ns() - start_ns;
  return code;
}

/* The group's request ends by an error of its grammar, as soon as it is looked at. */
static void fail_group(group_t *group, int code) {
  group->masks.code = code;
  group->masks.wait = true;
}

/* Takes over what the threads have made. */
static void collect(engine_t *engine) {
  constrain_t *constrain = &engine->constrain;
  for (int32_t i = constrain->num_away - 1; i >= 0; i--) {
    mask_job_t *job = &constrain->jobs[constrain->rows[constrain->away[i]].job];
    if (mask_threads_state(constrain->threads, job) != MASK_DONE) continue;
    sequence_t *seq = job->context;
    int32_t stop_ids[SUPPRESSED_MAX + 1];
    int32_t num_stop_ids = constrain_stop_ids(engine, &seq->group->request->params, stop_ids);
    bool anew;
    mask_threads_take(constrain->threads, job);
    come_back(engine, seq);
    engine->stats.grammar_mask_ns += job->ns;
    engine->stats.grammar_masks_helped++;
    seq->group->masks.token_units += job->walk.units;
    int code = job->code;
    if (code == 0)
      code = grammar_masks_end(constrain->masks, job->matcher, stop_ids, num_stop_ids, &job->walk,
                               job->row);
    code = judge(engine, seq, code, &anew);
    if (code != GRAMMAR_LATER && code != 0) fail_group(seq->group, code);
  }
}

void constrain_begin(engine_t *engine, const step_t *step) {
  if (engine->constrain.threads == NULL || engine->constrain.num_requests == 0) return;
  uint64_t part = engine->constrain.units / PARTS;
  for (int32_t i = 0; i < step->plan.num_entries; i++) {
    const plan_entry_t *entry = &step->plan.entries[i];
    sequence_t *seq = entry->sequence;
    if (!entry->do_sample || seq->group->request->grammar == NULL) continue;
    if (seq->masks.late || seq->group->masks.code || is_cancelled(seq->group)) continue;
    uint64_t end = MIN(end_of(engine, 1), units_now(engine) + part);
    activity_for(&engine->activity, seq->group->request->id);
    if (catch_up(engine, seq, seq->num_output_tokens, end))
      continue; /* constrain_row sees it, too */
    if (!state_of(engine, seq)->ready && !state_of(engine, seq)->away) look_up(engine, seq, true);
  }
}

/* Makes a part of the mask that a thread would begin next. Returns false if there is none. */
static bool help_threads(engine_t *engine, bool only_urgent) {
  constrain_t *constrain = &engine->constrain;
  const mask_job_t *job = mask_threads_take_next(constrain->threads, only_urgent);
  if (job == NULL) return false;
  sequence_t *seq = job->context;
  come_back(engine, seq);
  uint64_t end = MIN(end_of(engine, 1), units_now(engine) + constrain->units / PARTS);
  int code = constrain_advance(engine, seq, end);
  if (code == GRAMMAR_LATER) give_away(engine, seq, false);
  if (code != GRAMMAR_LATER && code != 0) fail_group(seq->group, code);
  return true;
}

void constrain_finish(engine_t *engine) {
  constrain_t *constrain = &engine->constrain;
  if (constrain->num_away == 0) return;
  while (units_now(engine) < end_of(engine, 1) && help_threads(engine, true)) {
  }
  mask_threads_wait(constrain->threads, WAIT_NS);
  collect(engine);
}

void constrain_arrives(engine_t *engine, const request_t *request) {
  engine->constrain.num_requests += request->grammar != NULL;
}

void constrain_leaves(engine_t *engine, const request_t *request) {
  engine->constrain.num_requests -= request->grammar != NULL;
}

void constrain_end(engine_t *engine, const group_t *group) {
  constrain_t *constrain = &engine->constrain;
  for (const sequence_t *seq = &group->sequence; seq != NULL && constrain->num_away > 0;
       seq = seq->next) {
    if (seq->row < 0 || seq->grammar_row != seq->row || !state_of(engine, seq)->away) continue;
    come_back(engine, seq);
    if (mask_threads_drop(constrain->threads, job_of(engine, seq), group->request->grammar))
      continue;
    /* A thread has it until its slice ends. So the row gets another matcher and mask. */
    for (const mask_job_t *job; (job = mask_threads_dropped(constrain->threads)) != NULL;)
      constrain->spares[constrain->num_spares++] = (int32_t)(job - constrain->jobs);
    CHECK_GT(constrain->num_spares, 0);
    state_of(engine, seq)->job = constrain->spares[--constrain->num_spares];
  }
}

/* ---- groups that wait ---- */

/* The group of `running` that waits for masks and comes next in turn; NULL = none waits. */
static group_t *next_waiting(const engine_t *engine) {
  group_t *first = NULL, *later = NULL;
  for (group_t *group = engine->scheduler->running.head; group != NULL; group = group->next) {
    if (!group->masks.wait || is_cancelled(group)) continue;
    if (first == NULL || group->arrival < first->arrival) first = group;
    if (group->arrival > engine->constrain.served &&
        (later == NULL || group->arrival < later->arrival)) {
      later = group;
    }
  }
  return later != NULL ? later : first;
}

/* Continues the masks of one group, and says which of its sequences have ended. Returns 0 when all
 * are ready, GRAMMAR_LATER, or an error. */
static int advance_group(engine_t *engine, group_t *group, uint64_t end, uint64_t now_ns) {
  int code = group->masks.code;
  for (sequence_t *seq = &group->sequence, *next; seq != NULL && !code; seq = next) {
    next = seq->next;
    if (!sequence_is_live(seq)) continue;
    if (seq->masks.late) {
      code = catch_up(engine, seq, seq->num_output_tokens, end);
      if (code) return code;
      seq->masks.late = false;
      engine_append_late(engine, seq, grammar_matcher_is_finished(matcher_of(engine, seq)), now_ns);
      if (group->queue == NULL) return 0;
      if (!sequence_is_live(seq)) continue;
    }
    code = constrain_advance(engine, seq, end);
  }
  return code;
}

/* The group waits no longer: its masks are ready, or `code` ends it. */
static void waits_no_longer(engine_t *engine, group_t *group, int code, uint64_t now_ns) {
  group->masks.wait = false;
  /* A state cannot take a token back: there every mask is made before its row is planned. */
  group->masks.slow = engine->scheduler->options.has_states ||
                      group->masks.token_units > engine->constrain.units / PARTS;
  if (code) engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, code, now_ns);
}

/* The same as advance_group where threads make the masks. They get them when all tokens of the
 * group are taken, because only then is it known which of its sequences go on. */
static int advance_helped(engine_t *engine, group_t *group, uint64_t end, uint64_t now_ns) {
  int code = group->masks.code;
  for (sequence_t *seq = &group->sequence, *next; seq != NULL && !code; seq = next) {
    next = seq->next;
    if (!sequence_is_live(seq) || state_of(engine, seq)->away) continue;
    activity_for(&engine->activity, group->request->id);
    code = catch_up(engine, seq, seq->num_output_tokens, end);
    if (code || !seq->masks.late) continue;
    seq->masks.late = false;
    engine_append_late(engine, seq, grammar_matcher_is_finished(matcher_of(engine, seq)), now_ns);
    if (group->queue == NULL) return 0;
  }
  if (code == GRAMMAR_LATER) engine->constrain.rests = false;
  if (code) return code;
  int later = 0;
  for (sequence_t *seq = &group->sequence; seq != NULL && !code; seq = seq->next) {
    const constrained_t *at = state_of(engine, seq);
    if (!sequence_is_live(seq) || at->ready) continue;
    code = at->away ? GRAMMAR_LATER : look_up(engine, seq, false);
    if (code != GRAMMAR_LATER) continue;
    later = code;
    code = 0;
  }
  return code ? code : later;
}

static bool continue_helped(engine_t *engine, uint64_t now_ns) {
  constrain_t *constrain = &engine->constrain;
  uint64_t part = constrain->units / PARTS;
  bool waited = false;
  constrain->rests = true;
  if (constrain->num_away > 0) collect(engine);
  for (group_t *group = engine->scheduler->running.head, *next; group != NULL; group = next) {
    next = group->next;
    if (!group->masks.wait || is_cancelled(group)) continue;
    waited = true;
    uint64_t now = units_now(engine), end = MIN(end_of(engine, 0), now + part);
    int code = advance_helped(engine, group, MAX(end, now + 1), now_ns);
    if (code != GRAMMAR_LATER || constrain->num_away == 0) constrain->rests = false;
    if (code != GRAMMAR_LATER && group->queue != NULL) waits_no_longer(engine, group, code, now_ns);
  }
  return waited;
}

bool constrain_continue(engine_t *engine, uint64_t now_ns) {
  constrain_t *constrain = &engine->constrain;
  if (constrain->num_requests == 0 && constrain->num_away == 0) return false;
  if (constrain->threads != NULL) return continue_helped(engine, now_ns);
  uint64_t end = end_of(engine, 0), part = constrain->units / PARTS;
  bool waited = false;
  for (group_t *group = next_waiting(engine); group != NULL && (!waited || units_now(engine) < end);
       group = next_waiting(engine)) {
    uint64_t now = units_now(engine);
    constrain->served = group->arrival;
    waited = true;
    int code = advance_group(engine, group, MAX(MIN(end, now + part), now + 1), now_ns);
    if (code != GRAMMAR_LATER && group->queue != NULL) waits_no_longer(engine, group, code, now_ns);
  }
  return waited;
}

void constrain_next_step(engine_t *engine) {
  constrain_t *constrain = &engine->constrain;
  uint64_t now = units_now(engine), spent = now - constrain->step_units;
  if (spent > constrain->step_units_max) constrain->step_units_max = spent;
  constrain->step_units = now;
}

int constrain_accept(engine_t *engine, sequence_t *seq, bool *finished) {
  group_t *group = seq->group;
  group->masks.token_units = 0;
  group->masks.units_before = group->masks.units;
  int code = catch_up(engine, seq, seq->num_output_tokens, end_of(engine, 2));
  seq->masks.late = code == GRAMMAR_LATER;
  group->masks.wait = group->masks.slow || seq->masks.late || group->masks.wait;
  *finished = !code && grammar_matcher_is_finished(matcher_of(engine, seq));
  return code;
}

bool constrain_may_end(const engine_t *engine, const sequence_t *seq) {
  if (seq->group->request->grammar == NULL || seq->grammar_row != seq->row) return false;
  return state_of(engine, seq)->num_accepted == seq->num_output_tokens &&
         grammar_matcher_is_accepting(matcher_of(engine, seq));
}

void constrain_fork(const engine_t *engine, const sequence_t *parent, sequence_t *child) {
  child->grammar_row = -1; /* its matcher follows the tokens anew */
  child->masks.late = parent->masks.late;
  child->masks.narrow_from = parent->masks.narrow_from;
  if (parent->grammar_row < 0 || parent->grammar_row != parent->row) return;
  CHECK(!state_of(engine, parent)->away);
  forget_mask(engine, child);
  grammar_matcher_copy(matcher_of(engine, child), matcher_of(engine, parent));
  state_of(engine, child)->num_accepted = state_of(engine, parent)->num_accepted;
  child->grammar_row = child->row;
}
