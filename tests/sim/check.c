/* check.c: the invariants, looked at in the real engine's state after every iteration.
 *
 * Everything here is written from the contract (engine/README.md), not from the code that it
 * watches: counts are made anew from block tables and queues. It runs a hundred thousand times a
 * second, so each check is linear in the live sequences or their blocks and allocates nothing.
 */
#include "engine/schedule/plan.h"
#include "engine/schedule/state/snapshots.h"
#include "engine/schedule/table.h"
#include "tests/sim/fair.h"
#include "tests/sim/law.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pace.h"
#include "tests/sim/sees.h"

#include <string.h>

enum { ROWS_MAX = 64 };

static engine_stats_t before; /* of the iteration before: counters only grow */
static int32_t num_states;    /* slots; a draft model that is lost leaves its own unused */
static uint64_t recomputed_before;
static int32_t num_live; /* requests that have a group in a queue */
/* What waits, of each tenant, when the last iteration ended or since. */
static int32_t tenant_waits[SIM_TENANTS + 1];
static int64_t tenant_tokens[SIM_TENANTS + 1];

track_t *check_track(const sequence_t *sequence) {
  return check_track_of(sequence->group->request);
}

track_t *check_track_of(const request_t *request) {
  REQUIRE(request->id > 0 && request->id < SIM_IDS, "a request has the id %lld",
          (long long)request->id);
  return &sim.tracks[sim.index_of[request->id]];
}

run_t *check_run(const group_t *group) {
  track_t *k = check_track(&group->sequence);
  int32_t index = group->sequence.index;
  REQUIRE(index >= 0 && index < (group->width > 1 ? 1 : k->num_streams),
          "a group of request %d has the index %d", k->index, index);
  return &k->runs[index];
}

int32_t check_width(const group_t *group) {
  const track_t *k = check_track(&group->sequence);
  return k->script->params.beam_width > 0 ? k->num_streams : 1;
}

stream_t *check_stream(const sequence_t *sequence) {
  track_t *k = check_track(sequence);
  REQUIRE(sequence->index >= 0 && sequence->index < k->num_streams, "a sequence has the index %d",
          sequence->index);
  if (k->script->params.beam_width > 0) return oracle_beam(k, sequence);
  return &k->streams[sequence->index];
}

static long long name_of(const track_t *k) {
  return k->index;
}

/* True when `a` is preempted after `b`. */
static bool came_before(const group_t *a, const group_t *b) {
  const request_t *x = a->request, *y = b->request;
  if (x->best_effort != y->best_effort) return y->best_effort;
  if (sim.scenario->options.priority_policy && x->priority != y->priority) {
    return x->priority < y->priority;
  }
  if (x->id != y->id) return x->id < y->id; /* submitted in the order of their ids */
  return a->sequence.index < b->sequence.index;
}

/* True when `a` has to run before `b`, if both are of one tenant. */
static bool precedes(const group_t *a, const group_t *b) {
  bool same =
      a->request->best_effort == b->request->best_effort &&
      (!sim.scenario->options.priority_policy || a->request->priority == b->request->priority);
  if (same && a->key != b->key) return a->key < b->key; /* check_key: of slo_policy alone */
  return came_before(a, b);
}

/* The time at which it came, and more for the tokens that must be computed; those that were
 * preempted when they had computed some come first. */
static void check_key(const group_t *g) {
  const track_t *k = check_track(&g->sequence);
  bool begun = g->siblings.lead->was_admitted || g->sequence.recomputes ||
               g->queue == &sim.engine->scheduler->swapped;
  bool preempted = g->num_preemptions > 0 && begun;
  bool first = preempted && g->sequence.recomputes && sim.engine->scheduler->pool->num_sides == 0;
  if (!sim.scenario->options.slo_policy) first = preempted = true;
  REQUIRE(g->key == 0 ? preempted : g->key >= k->submitted_ns && !first,
          "request %lld has the key %llu", name_of(k), (unsigned long long)g->key);
}

void check_submitted(track_t *k, const request_t *request) {
  REQUIRE(request->tenant == k->script->tenant, "request %lld is of another tenant", name_of(k));
  tenant_waits[request->tenant]++;
  tenant_tokens[request->tenant] += k->num_prompt;
  fair_submitted(k);
  law_submitted(k);
}

/* ---- the step ---- */

static void check_entry(const plan_entry_t *entry, int32_t context) {
  const sequence_t *q = entry->sequence;
  track_t *k = check_track(q);
  stream_t *stream = check_stream(q);
  int32_t end = entry->num_computed + entry->num_tokens;
  REQUIRE(q->status == SEQUENCE_RUNNING, "request %lld is planned in state %d", name_of(k),
          (int)q->status);
  REQUIRE(!stream->in_plan, "request %lld is planned twice", name_of(k));
  REQUIRE(k->cancelled_iteration == 0, "I6: request %lld is planned after its cancel", name_of(k));
  /* what is known before this step's draw, and its draft tokens */
  int32_t known = sequence_num_planned(q) - entry->do_sample + entry->num_drafts;
  REQUIRE(entry->num_tokens >= 1 && entry->num_computed >= 0 && end <= known && end <= context &&
              q->num_computed_tokens == end,
          "request %lld: chunk %d + %d of %d tokens", name_of(k), entry->num_computed,
          entry->num_tokens, known);
  bool complete = end == known && k->script->params.max_tokens > 0;
  REQUIRE(entry->do_sample == complete, "request %lld: do_sample is wrong at %d of %d", name_of(k),
          end, known);
  int32_t threshold = sim.scenario->options.long_prefill_token_threshold;
  const int32_t most = MAX(threshold, sees_run(k->script, entry->num_computed));
  REQUIRE(threshold == 0 || entry->num_tokens - entry->num_drafts <= most,
          "request %lld: a chunk of %d", name_of(k), entry->num_tokens);
  for (int32_t i = 0; i < sequence_num_tokens(q); i++)
    REQUIRE(table_id(q, i) == stream->ids[i], "request %lld: another id at %d", name_of(k), i);
  run_t *run = check_run(q->group);
  bool is_first = q->group->sequence.index == 0;
  if (!run->in_plan) run->is_new = !run->was_planned;
  if (run->is_new && is_first) k->first_cached = entry->num_computed;
  stream->in_plan = run->in_plan = run->was_planned = true;
  if (is_first) {
    k->computed_to_before = k->computed_to;
    k->num_computed_before = k->num_computed;
  }
  if (is_first && !k->preempted && entry->num_computed < k->num_prompt) {
    int32_t from = entry->num_computed, to = end < k->num_prompt ? end : k->num_prompt;
    if (from < k->computed_to) from = k->computed_to; /* again: a mask was late */
    k->num_computed += to - from;
    k->computed_to = to;
  }
}

static void check_writes(const plan_entry_t *entry) {
  const block_pool_t *pool = sim.engine->pool;
  const sequence_t *q = entry->sequence;
  int32_t bs = pool->block_size, end = entry->num_computed + entry->num_tokens;
  for (int32_t i = entry->num_computed / bs; i * bs < end; i++) {
    REQUIRE(i < q->num_blocks, "request %lld has no block %d", name_of(check_track(q)), i);
    const block_t *block = &pool->blocks[q->blocks[i]];
    REQUIRE(block->ref_count == 1 || block->filler == q,
            "request %lld writes block %d, which %d hold", name_of(check_track(q)), q->blocks[i],
            block->ref_count);
    REQUIRE(block->identity.keyed ? block->filler == q : !block->filler,
            "request %lld writes block %d, which is full or filled by another",
            name_of(check_track(q)), q->blocks[i]);
    REQUIRE(!block->saved.unique_id, "block %d is written and could be reverted", q->blocks[i]);
  }
}

/* True when what is in flight is the last that the sequence needs. */
static bool ends_in_flight(const sequence_t *q) {
  const script_t *r = check_track(q)->script;
  if (r->params.max_tokens == 0) return q->num_computed_tokens == q->num_prompt_tokens;
  return q->num_output_placeholders > 0 &&
         (q->num_output_tokens + q->num_output_placeholders >= r->params.max_tokens ||
          sequence_num_planned(q) >= (int32_t)sim.scenario->options.max_model_len);
}

/* True when its next block is being filled by another, or is not in its table yet. */
static bool is_blocked(const sequence_t *q) {
  const block_pool_t *pool = sim.engine->pool;
  int32_t i = q->num_computed_tokens / pool->block_size;
  if (i == q->num_blocks && q->slices.total > 0) return true; /* its next slice comes */
  /* With windows it may be behind: blocks that it passes when the one behind them comes, too. */
  while (pool->num_sides > 0 && i < q->num_blocks && !pool->blocks[q->blocks[i]].filler &&
         pool->blocks[q->blocks[i]].identity.keyed &&
         q->num_computed_tokens % pool->block_size == 0)
    i++;
  const sequence_t *filler = i < q->num_blocks ? pool->blocks[q->blocks[i]].filler : NULL;
  return filler && filler != q;
}

/* Most side blocks of a sequence of so many tokens. */
int32_t check_most_sides(const scheduler_t *s, int32_t tokens) {
  int32_t bs = s->pool->block_size, all = (tokens + bs - 1) / bs;
  int32_t most =
      (s->options.window.tokens + bs - 2) / bs + 1 + (bs + s->options.window.in_flight - 2) / bs;
  return s->pool->num_sides * (all < most ? all : most);
}

/* Beams draw together: one that has caught up waits for the others. */
static bool waits_for_beams(const sequence_t *q) {
  if (check_track(q)->script->params.beam_width == 0) return false;
  bool ready = q->num_computed_tokens == sequence_num_tokens(q) - 1, behind = false;
  for (const sequence_t *other = &q->group->sequence; other; other = other->next) {
    if (!sequence_is_live(other)) continue;
    int32_t left = sequence_num_tokens(other) - other->num_computed_tokens;
    behind = behind || left > 1 || (left == 1 && check_stream(other)->in_plan);
  }
  return ready && behind;
}

/* True when q was behind by more than its last token when the step was planned: it is given several
 * tokens, draft tokens aside, or has passed over blocks that another has filled. */
static bool caught_up(const sequence_t *q) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (entry->sequence != q) continue;
    return entry->num_tokens - entry->num_drafts > 1 ||
           entry->num_computed > check_stream(q)->num_computed;
  }
  return false;
}

bool check_is_awaited(const group_t *g) {
  const track_t *k = check_track(&g->sequence);
  bool always = k->script->language >= 0 || k->script->params.beam_width > 0;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    int32_t planned = sequence_is_live(q) ? check_stream(q)->in_plan : INT32_MAX;
    if (q->num_output_placeholders > planned && (always || (planned == 0 && q->drafts.waits)))
      return true;
  }
  return false;
}

bool check_is_left_out(const group_t *g, bool *decodes) {
  bool left_out = false;
  *decodes = true;
  if (g->masks.wait || check_is_awaited(g)) return false;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (!sequence_is_live(q)) continue;
    bool in_plan = check_stream(q)->in_plan;
    int32_t computed = q->num_computed_tokens, last = sequence_num_planned(q) - 1;
    if (computed < last || (g->forked && caught_up(q)) || sequence_in_prefill(q)) *decodes = false;
    bool waits = ends_in_flight(q) || is_blocked(q) || waits_for_beams(q) ||
                 sees_waits(sim.engine->scheduler, q);
    left_out = left_out || (!in_plan && !waits);
  }
  return left_out;
}

/* The chunk of a prefill that has not forked; NULL = it has none. */
static const plan_entry_t *prefill_entry(const plan_t *plan, const group_t *g) {
  for (int32_t i = 0; i < plan->num_entries && !g->forked; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (entry->sequence->group == g && entry->num_computed < g->sequence.num_prefill_tokens) {
      return entry;
    }
  }
  return NULL;
}

bool check_has_chunk(const scheduler_t *s, const group_t *g) {
  for (int32_t i = 0; i < s->plan.num_entries; i++) {
    const plan_entry_t *entry = &s->plan.entries[i];
    const sequence_t *q = entry->sequence;
    if (q->group == g && entry->num_computed < q->num_prefill_tokens) return true;
  }
  return false;
}

/* Tokens that it lacked before this step. */
static int32_t lacked(const plan_entry_t *entry) {
  return sequence_num_planned(entry->sequence) - entry->do_sample - entry->num_computed;
}

/* Behind a prefill: one that may pass it, as its priority is no worse and it lacks less. */
static bool may_go_before(const group_t *g, const plan_entry_t *ahead, int32_t lacks) {
  bool priorities = sim.scenario->options.priority_policy;
  return !g->forked && lacks < lacked(ahead) &&
         (!priorities || g->request->priority <= ahead->sequence->group->request->priority);
}

/* One behind `first` that may pass it, lacks less than `most`, could run and got nothing. */
static const group_t *find_shorter(const plan_entry_t *first, int32_t most) {
  bool decodes;
  for (const group_t *g = first->sequence->group->next; g; g = g->next) {
    int32_t lacks = sequence_num_planned(&g->sequence) - g->sequence.num_computed_tokens;
    if (lacks < most && may_go_before(g, first, lacks) && check_is_left_out(g, &decodes) &&
        !decodes) {
      return g;
    }
  }
  return NULL;
}

/* A chunk of somebody behind a prefill that lacks more than it is given: only for who may pass it,
 * the shortest first; or for who was passed often enough and is just let in. */
static void check_passer(const scheduler_t *s, const plan_entry_t *first,
                         const plan_entry_t *entry) {
  const group_t *group = entry->sequence->group;
  const track_t *k = check_track(entry->sequence);
  /* One that had lost side blocks may be sent back and let in again by the same plan. */
  bool runs = check_run(group)->runs && group->yield.let_in != s->num_plans;
  if (!runs && group->num_skips > 0 && group->num_skips >= s->options.max_skips) return;
  REQUIRE(may_go_before(group, first, lacked(entry)), "I3: request %lld passes request %lld",
          name_of(k), name_of(check_track(first->sequence)));
  const group_t *shorter = runs ? find_shorter(first, lacked(entry)) : NULL;
  REQUIRE(!shorter, "I3: request %lld passes request %lld, which is shorter", name_of(k),
          name_of(check_track(&shorter->sequence)));
}

/* Tokens from `computed` on up to the next block that another sequence fills, which is waited for.
 */
static int32_t until_another_fills(const scheduler_t *s, const sequence_t *q, int32_t computed) {
  int32_t bs = s->pool->block_size;
  for (int32_t i = computed / bs; i < q->num_blocks; i++) {
    const sequence_t *filler = s->pool->blocks[q->blocks[i]].filler;
    if (filler != NULL && filler != q) return i * bs - computed;
  }
  return INT32_MAX;
}

/* I3: of what decodes leave, the first prefill, with forks that catch up, has one half (with slo a
 * quarter) or all that it can use, and more only if no shorter one behind it, which is let in,
 * could use it. */
static void check_passing(const scheduler_t *s) {
  const engine_options_t *o = &sim.scenario->options;
  const plan_t *plan = &s->plan;
  int32_t threshold = o->long_prefill_token_threshold, decodes = 0, forks = 0;
  const plan_entry_t *first = NULL;
  if (!o->short_prompts_pass || !o->enable_chunked_prefill || plan->num_preempted > 0) return;
  for (const group_t *g = s->running.head; g && !first; g = g->next) first = prefill_entry(plan, g);
  if (!first || check_track(first->sequence)->script->num_images > 0) return;
  int32_t left = lacked(first);
  if (s->options.has_states && first->sequence->group->masks.wait)
    left--; /* its mask comes first */
  int32_t want = threshold > 0 && left > threshold ? threshold : left;
  const sequence_t *q = first->sequence;
  int32_t room = q->num_blocks * s->pool->block_size - first->num_computed;
  if (q->slices.total > 0 && want > room) want = room; /* its other blocks come in later plans */
  want = MIN(want, until_another_fills(s, q, first->num_computed));
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (!prefill_entry(plan, entry->sequence->group)) {
      *(entry->sequence->group->forked ? &forks : &decodes) += entry->num_tokens + entry->num_cut;
    } else if (entry != first && first->num_tokens < want && !s->pace.is_on) {
      check_passer(s, first, entry);
    }
  }
  int32_t parts = o->slo_policy ? 4 : 2;
  int32_t own = (o->max_num_batched_tokens - decodes + parts - 1) / parts;
  if (s->pace.is_on) /* the rest is bounded in time; this much comes in every step */
    own = law_any_lacked() ? 0 : MIN(s->pool->block_size, own);
  REQUIRE(first->num_tokens + forks >= (want < own ? want : own),
          "I3: request %lld is first and gets %d of %d tokens, of its part of %d",
          name_of(check_track(first->sequence)), first->num_tokens, left, own);
  bool alone = first->num_tokens > own && !s->pace.is_on;
  const group_t *shorter = alone ? find_shorter(first, left) : NULL;
  REQUIRE(!shorter, "I3: request %lld is short and waits for request %lld",
          name_of(check_track(&shorter->sequence)), name_of(check_track(first->sequence)));
}

/* Whether all beams of the group may sit out, which go together: each lacked its last token only,
 * those also that had passed over blocks which another has filled. After a preemption they are
 * prefills still, and are planned as what decodes. */
static bool may_go_in_part(const scheduler_t *s, const group_t *g) {
  bool last_only = g->forked;
  for (const sequence_t *q = &g->sequence; q && last_only; q = q->next) {
    int32_t left = sequence_num_planned(q) - q->num_computed_tokens; /* less its draft tokens */
    last_only = !sequence_is_live(q) || left <= 1;
  }
  for (int32_t i = 0; i < s->plan.num_entries && last_only; i++) {
    last_only = s->plan.entries[i].sequence->group != g;
  }
  return last_only && pace_may_sit_out(s, g);
}

bool check_left_running(const scheduler_t *s, const group_t *g) {
  const run_t *run = check_run(g);
  return s->pool->num_sides > 0 && (run->runs || g->num_preemptions > run->num_preemptions);
}

/* Whether the group had to wait when the plan was begun, and one that was to fill blocks has left
 * running in it, as its side blocks are gone: another fills them from the next plan on. */
static bool lost_its_filler(const scheduler_t *s, const group_t *g) {
  return s->pool->num_sides > 0 && check_run(g)->waited &&
         s->num_recomputed_tokens > recomputed_before;
}

/* I3: nobody who could run is left out. */
static void check_left_out(const scheduler_t *s) {
  const group_t *worst_new = NULL;
  int32_t budget = sim.scenario->options.max_num_batched_tokens - s->plan.num_tokens;
  for (const group_t *g = s->running.head; g; g = g->next) {
    const track_t *k = check_track(&g->sequence);
    const run_t *run = check_run(g);
    bool decodes, left_out = check_is_left_out(g, &decodes);
    if (!run->in_plan && !left_out) continue;
    if (left_out && (decodes ? pace_may_sit_out(s, g) : pace_is_out(s, g) || pace_was_kept(s, g)))
      continue;
    if (left_out && plan_pauses(s, g)) continue; /* and law.c bounds how often */
    if (left_out && (may_go_in_part(s, g) || lost_its_filler(s, g))) continue;
    bool spare = budget >= check_width(g);
    /* A request that preempts itself ends the planning of running ones. */
    REQUIRE(!left_out || !(decodes || spare) || s->plan.num_preempted > 0,
            "I3: request %lld %s and gets no token", name_of(k),
            decodes ? "decodes" : "finds budget");
    if (run->in_plan && run->is_new && (!worst_new || precedes(worst_new, g))) worst_new = g;
  }
  if (worst_new == s->running.head) return; /* nothing ran: the first that fits is let in */
  for (const group_t *g = s->waiting.queue.head; g && worst_new; g = g->next) {
    bool fair = sim.scenario->options.fair_share && g->tenant != worst_new->tenant;
    bool yields = (g->yield.count > 0 && g->yield.plan == s->num_plans) || fair_held(s, g);
    /* fair_step knows whose turn it is among tenants, who makes room, and who may run no more */
    if (fair || yields || check_left_running(s, g) || !precedes(g, worst_new)) continue;
    bool counted = g->num_skips > 0 && g->num_skips <= s->options.max_skips;
    bool same = !sim.scenario->options.priority_policy ||
                g->request->priority == worst_new->request->priority;
    bool rows = g->sequence.row < 0; /* preempted ones hold them all: they go first */
    REQUIRE((counted && same) || rows, "I3: request %lld was admitted before request %lld",
            name_of(check_track(&worst_new->sequence)), name_of(check_track(&g->sequence)));
  }
}

int32_t check_num_sequences(const scheduler_t *s) {
  int32_t count = 0;
  for (const group_t *g = s->running.head; g; g = g->next) count += check_width(g);
  return count;
}

/* Preempted for want of blocks, so often that it is not again; to others' shares does not count. */
static bool is_protected(const group_t *g) {
  int32_t most = sim.engine->scheduler->options.max_preemptions;
  return most > 0 && g->num_preemptions - g->yield.count >= most;
}

/* Preempted requests hold all rows; or so many, that with fair shares not everybody takes more. */
static bool lacks_rows(const scheduler_t *s, const group_t *head) {
  int32_t half = sim.scenario->options.fair_share ? s->num_rows - 2 * s->options.max_num_seqs : 0;
  return head->sequence.row < 0 && s->num_free_rows <= half;
}

/* I3: the head of the queue is let in when it fits, and only the worst are sent back to it. */
static void check_queue_of(const scheduler_t *s) {
  const engine_options_t *o = &sim.scenario->options;
  const group_t *head = fair_next(s);
  int32_t bs = s->pool->block_size;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    const track_t *k = check_track(&g->sequence);
    if (g->num_preemptions == check_run(g)->num_preemptions || !o->priority_policy ||
        g->yield.plan > check_run(g)->num_plans) /* in this plan, or in one without a step */
      continue;
    for (const group_t *r = s->running.head; r; r = r->next) {
      if (is_protected(r) || check_is_awaited(r)) continue;
      REQUIRE(!came_before(g, r), "request %lld was preempted before request %lld", name_of(k),
              name_of(check_track(&r->sequence)));
    }
  }
  int32_t left = o->max_num_batched_tokens - s->plan.num_tokens;
  if (!head || pace_is_out(s, head) || fair_passed(s) || s->swapped.head ||
      s->plan.num_preempted > 0 || left == 0 || check_width(head) > 1 ||
      check_num_sequences(s) == o->max_num_seqs || head->sequence.num_in_flight_tokens > 0 ||
      lacks_rows(s, head) || plan_has_pause(s)) {
    return;
  }
  int32_t tokens = sequence_num_tokens(&head->sequence), reserved = tokens;
  if (is_protected(head)) { /* it reserves its worst case */
    reserved = head->sequence.num_prompt_tokens + head->request->params.max_tokens;
  }
  int32_t need = DIV_UP(reserved, bs) + check_most_sides(s, reserved) - queue_num_held(s, head);
  int32_t num_free = s->pool->num_free - s->slices.promised;
  bool fits = need + s->options.watermark_blocks <= num_free;
  REQUIRE(!fits || (!o->enable_chunked_prefill && tokens > left),
          "I3: request %lld waits although it fits: %d blocks of %d free ones",
          name_of(check_track(&head->sequence)), need, num_free);
}

/* I14: by best effort nothing runs beside a prompt of others, or while one of them makes room; and
 * none of these is let in while another waits that its key let begin when the plan was begun. If
 * nothing ran, one is. */
static void check_best_effort(const scheduler_t *s) {
  const group_t *lower = NULL, *prompt = NULL, *newcomer = NULL;
  for (int32_t i = 0; i < s->plan.num_entries; i++) {
    const group_t *g = s->plan.entries[i].sequence->group;
    const bool is_other = !check_track(&g->sequence)->script->best_effort;
    if (is_other && s->plan.entries[i].num_computed < g->sequence.num_prefill_tokens && !g->forked)
      prompt = g;
    if (is_other) continue;
    lower = g;
    if (!check_run(g)->runs && check_run(g)->was_there) newcomer = g;
  }
  if (lower == NULL) return;
  REQUIRE(prompt == NULL, "I14: request %lld runs beside the prompt of request %lld",
          name_of(check_track(&lower->sequence)), name_of(check_track(&prompt->sequence)));
  const group_queue_t *away[] = {&s->waiting.queue, &s->swapped};
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = away[i]->head; g; g = g->next) {
      const track_t *k = check_track(&g->sequence);
      if (k->script->best_effort) continue;
      REQUIRE(g->num_preemptions == check_run(g)->num_preemptions,
              "I14: request %lld was preempted while request %lld ran", name_of(k),
              name_of(check_track(&lower->sequence)));
      REQUIRE(newcomer == NULL || i == 1 || s->running.count == 1 || fair_held(s, g) ||
                  fair_was_held(s, g) || !check_run(g)->was_there,
              "I14: request %lld is let in while request %lld waits",
              name_of(check_track(&newcomer->sequence)), name_of(k));
    }
  }
}

void check_step(const batch_t *b) {
  const scheduler_t *s = sim.engine->scheduler;
  const plan_t *plan = &s->plan;
  const engine_options_t *o = &sim.scenario->options;
  int32_t total = 0, cut = 0; /* drafts that a grammar has cut since */
  for (int32_t r = 0; r < plan->num_entries; r++) {
    check_entry(&plan->entries[r], (int32_t)o->max_model_len);
    check_writes(&plan->entries[r]);
    REQUIRE(b->query_start_loc[r] == total, "query_start_loc[%d] is wrong", r);
    total += plan->entries[r].num_tokens;
    cut += plan->entries[r].num_cut;
    REQUIRE(b->seq_lens[r] == plan->entries[r].sequence->num_computed_tokens,
            "seq_lens[%d] is wrong", r);
  }
  REQUIRE(total + cut == plan->num_tokens && total == b->num_tokens &&
              plan->num_tokens <= o->max_num_batched_tokens && (!cut || s->options.draft_model),
          "a step of %d tokens, planned %d, cut %d", b->num_tokens, plan->num_tokens, cut);
  REQUIRE(plan->num_entries == b->num_reqs && check_num_sequences(s) <= o->max_num_seqs &&
              plan->num_entries <= check_num_sequences(s),
          "a step of %d rows, %d sequences run, at most %d", b->num_reqs, check_num_sequences(s),
          o->max_num_seqs);
  fair_step();
  if (scenario_has(sim.scenario, SIM_BEST_EFFORT)) {
    check_best_effort(s); /* the others know one class */
  } else {
    law_step();
    check_passing(s);
    check_left_out(s);
    check_queue_of(s);
    pace_step(s);
  }
  host_pool_check_step(s);
  for (int32_t r = 0; r < plan->num_entries; r++) {
    check_run(plan->entries[r].sequence->group)->in_plan = false;
    check_stream(plan->entries[r].sequence)->in_plan = false;
  }
  for (const group_t *g = s->running.head; g; g = g->next) {
    for (const sequence_t *q = &g->sequence; q; q = q->next) {
      if (sequence_is_live(q)) check_stream(q)->num_computed = q->num_computed_tokens;
    }
  }
}

/* Only those by best effort lose a step, and no two in a row; nothing but K/V comes of it. */
void check_left(void) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  REQUIRE(!sim.was_left, "I14: two steps in a row are left");
  REQUIRE(plan->num_entries > 0 && plan->num_drafts == 0 && !scenario_has(sim.scenario, SIM_STATES),
          "I14: a step is left in which more than K/V is computed");
  for (int32_t r = 0; r < plan->num_entries; r++) {
    const plan_entry_t *entry = &plan->entries[r];
    track_t *k = check_track(entry->sequence);
    run_t *run = check_run(entry->sequence->group);
    REQUIRE(k->script->best_effort, "I14: request %lld loses a step", name_of(k));
    check_stream(entry->sequence)->num_computed = entry->num_computed;
    if (run->is_new) run->was_planned = false;
    if (entry->sequence->group->sequence.index != 0) continue;
    k->computed_to = k->computed_to_before;
    k->num_computed = k->num_computed_before;
  }
}

/* ---- sequences and gauges ---- */

/* It holds what its next tokens see, and what is in flight, and no more. */
static void check_window(const sequence_t *q, const block_pool_t *pool) {
  const scheduler_t *s = sim.engine->scheduler;
  int32_t bs = pool->block_size, committed = q->num_computed_tokens - q->num_in_flight_tokens;
  int32_t first = committed + 1 - s->options.window.tokens;
  if (pool->num_sides == 0) return;
  REQUIRE(q->sides.first <= (first > 0 ? first / bs : 0) &&
              q->sides.end * bs >= q->num_computed_tokens && q->sides.end <= q->num_blocks,
          "request %lld has side blocks from %d to %d, and %d of %d tokens are committed",
          name_of(check_track(q)), q->sides.first, q->sides.end, committed, q->num_computed_tokens);
  int32_t held = pool->num_sides * (q->sides.end - q->sides.first);
  REQUIRE(held <= check_most_sides(s, (int32_t)sim.scenario->options.max_model_len),
          "request %lld holds %d side blocks", name_of(check_track(q)), held);
  int32_t seen = (committed / bs) - (s->options.window.tokens + bs - 2) / bs;
  REQUIRE(q->sides.first >= seen || q->num_in_flight_tokens > 0,
          "request %lld keeps side blocks from %d on, and sees those from %d on",
          name_of(check_track(q)), q->sides.first, seen);
}

static void check_running(const sequence_t *q, const block_pool_t *pool) {
  const track_t *k = check_track(q);
  int32_t num_tokens = sequence_num_planned(q);
  int32_t ahead = num_tokens + sim.scenario->options.draft.tokens_max; /* drafts in flight */
  REQUIRE(0 <= q->num_cached_tokens && q->num_cached_tokens < k->num_prompt &&
              q->num_computed_tokens <= ahead &&
              num_tokens <= (int32_t)sim.scenario->options.max_model_len,
          "request %lld: %d cached, %d computed of %d tokens", name_of(k), q->num_cached_tokens,
          q->num_computed_tokens, num_tokens);
  int32_t need = (q->num_computed_tokens + pool->block_size - 1) / pool->block_size;
  int32_t most = (ahead + pool->block_size - 1) / pool->block_size;
  if (is_protected(q->group)) {
    most = sim.engine->scheduler->table_stride; /* it has reserved its worst case */
  }
  REQUIRE(need <= q->num_blocks && q->num_blocks <= most,
          "request %lld holds %d blocks for %d of %d tokens", name_of(k), q->num_blocks,
          q->num_computed_tokens, num_tokens);
  REQUIRE(q->num_published <= q->num_blocks, "request %lld published more than it has", name_of(k));
  check_window(q, pool);
}

/* One sequence of a live group; `rows` collects the rows that are held. */
static void check_sequence(const engine_t *e, const sequence_t *q, sequence_status_t status,
                           uint64_t *rows) {
  const track_t *k = check_track(q);
  if (q->row >= 0) {
    REQUIRE(q->row < ROWS_MAX && !(*rows >> q->row & 1), "row %d is held twice", q->row);
    *rows |= UINT64_C(1) << q->row;
  }
  if (!sequence_is_live(q)) {
    REQUIRE(q->num_blocks == 0 && q->state.slot == 0,
            "request %lld: a sequence in state %d holds blocks", name_of(k), (int)q->status);
    return;
  }
  bool has_state = e->scheduler->options.has_states && q->status == SEQUENCE_RUNNING;
  REQUIRE((q->state.slot > 0) == has_state, "request %lld: state %d holds slot %d", name_of(k),
          (int)q->status, q->state.slot);
  REQUIRE(q->status == status, "request %lld: state %d in a queue of %d", name_of(k),
          (int)q->status, (int)status);
  if (status == SEQUENCE_RUNNING) {
    REQUIRE(q->row >= 0, "request %lld runs without a row", name_of(k));
    check_running(q, e->pool);
  } else {
    REQUIRE(q->num_blocks == 0, "request %lld waits and holds blocks", name_of(k));
  }
}

static void check_queue(const engine_t *e, const group_queue_t *queue, sequence_status_t status,
                        uint64_t *rows) {
  int32_t count = 0;
  const group_t *previous = NULL;
  for (const group_t *g = queue->head; g; previous = g, g = g->next) {
    track_t *k = check_track(&g->sequence);
    REQUIRE(g->prev == previous, "a broken queue");
    REQUIRE(k->submitted && !k->done, "request %lld is live and was not submitted", name_of(k));
    REQUIRE(k->cancelled_iteration == 0 || k->cancelled_iteration > sim.iteration,
            "I6: request %lld is still there after its cancel", name_of(k));
    check_run(g)->num_preemptions = g->num_preemptions;
    check_run(g)->num_plans = sim.engine->scheduler->num_plans;
    if (g->num_preemptions > 0 && g->sequence.index == 0) k->preempted = true;
    check_key(g);
    num_live += !k->is_met;
    k->is_met = true;
    for (const sequence_t *q = &g->sequence; q; q = q->next) check_sequence(e, q, status, rows);
    bool first = status == SEQUENCE_RUNNING || !previous ||
                 (status == SEQUENCE_WAITING && previous->tenant < g->tenant);
    REQUIRE(first || (precedes(previous, g) &&
                      (status == SEQUENCE_SWAPPED || previous->tenant == g->tenant)),
            "request %lld waits before request %lld",
            name_of(previous ? check_track(&previous->sequence) : k), name_of(k));
    count++;
  }
  REQUIRE(count == queue->count, "a queue of %d says %d", count, queue->count);
}

bool check_quota_lacks(const track_t *k) {
  const quota_t *quota = &sim.scenario->quotas[k->script->tenant];
  int32_t waiting = tenant_waits[k->script->tenant];
  int64_t tokens = tenant_tokens[k->script->tenant] + k->num_prompt;
  if (!scenario_has(sim.scenario, SIM_QUOTAS)) return false;
  return (quota->max_waiting > 0 && waiting >= quota->max_waiting) ||
         (quota->max_tokens_waiting > 0 && waiting > 0 && tokens > quota->max_tokens_waiting);
}

static void check_quotas(void) {
  for (int t = 0; t <= SIM_TENANTS && scenario_has(sim.scenario, SIM_QUOTAS); t++) {
    quota_t *quota = &sim.scenario->quotas[t];
    REQUIRE(atomic_load(&quota->waiting) == tenant_waits[t] &&
                atomic_load(&quota->tokens_waiting) == tenant_tokens[t],
            "I11: %d requests and %lld tokens of tenant %d wait, its quota says %d and %lld",
            tenant_waits[t], (long long)tenant_tokens[t], t, atomic_load(&quota->waiting),
            (long long)atomic_load(&quota->tokens_waiting));
  }
}

static void check_queues(engine_t *e) {
  const scheduler_t *s = e->scheduler;
  uint64_t rows = 0;
  num_live = 0;
  for (int i = 0; i < sim.scenario->count; i++) sim.tracks[i].is_met = false;
  check_queue(e, &s->running, SEQUENCE_RUNNING, &rows);
  check_queue(e, &s->waiting.queue, SEQUENCE_WAITING, &rows);
  check_queue(e, &s->swapped, SEQUENCE_SWAPPED, &rows);
  int32_t held = __builtin_popcountll(rows);
  REQUIRE(held + s->num_free_rows == s->num_rows, "%d rows are held, %d are free, of %d", held,
          s->num_free_rows, s->num_rows);
  for (int32_t i = 0; i < s->num_free_rows; i++) {
    REQUIRE(!(rows >> s->free_rows[i] & 1), "row %d is held and free", s->free_rows[i]);
  }
  REQUIRE(num_live == e->num_live, "I11: %d requests run, wait or are swapped, %d live", num_live,
          e->num_live);
  int32_t queued = 0, num_held = 0;
  int64_t queued_tokens = 0;
  memset(tenant_waits, 0, sizeof tenant_waits);
  memset(tenant_tokens, 0, sizeof tenant_tokens);
  const group_queue_t *queues[] = {&s->waiting.queue, &s->running, &s->swapped};
  for (int i = 0; i < 3; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      const track_t *k = check_track(&g->sequence);
      if (k->was_landed) continue;
      queued++;
      queued_tokens += k->num_prompt;
      tenant_waits[k->script->tenant]++;
      tenant_tokens[k->script->tenant] += k->num_prompt;
    }
  }
  for (const group_t *g = s->waiting.queue.head; g != NULL; g = g->next) {
    num_held += s->waiting.tenants.all[g->tenant].held;
  }
  REQUIRE(num_held == s->waiting.num_held, "I11: %d groups of held tenants wait, counted were %d",
          num_held, s->waiting.num_held);
  REQUIRE(queued == atomic_load(&e->queued_requests) &&
              queued_tokens == atomic_load(&e->queued_tokens),
          "I11: %d requests and %lld tokens wait, the gauges say %d and %lld", queued,
          (long long)queued_tokens, atomic_load(&e->queued_requests),
          (long long)atomic_load(&e->queued_tokens));
}

static void check_stats(const engine_t *e) {
  engine_stats_t s;
  engine_stats(e, &s);
  const block_pool_t *pool = e->pool;
  int32_t used = pool->num_blocks - 1 - pool->num_free;
  /* An iteration that only launches a step says nothing new. */
  bool quiet = s.steps == before.steps && e->num_steps > 0;
  REQUIRE(quiet || (s.num_running == e->scheduler->running.count &&
                    s.num_waiting == e->scheduler->waiting.queue.count && s.blocks_used == used &&
                    s.num_swapped == e->scheduler->swapped.count &&
                    s.host_blocks_free == e->scheduler->swap.num_free &&
                    s.blocks_cached == pool->num_cached &&
                    s.blocks_free == pool->num_free - pool->num_cached),
          "I11: the gauges are not the state");
  bool grows =
      s.prompt_tokens >= before.prompt_tokens &&
      s.prompt_tokens_cached >= before.prompt_tokens_cached &&
      s.generation_tokens >= before.generation_tokens &&
      s.prefix_queries_tokens >= before.prefix_queries_tokens &&
      s.prefix_hits_tokens >= before.prefix_hits_tokens && s.preemptions >= before.preemptions &&
      s.finished_stop >= before.finished_stop && s.finished_length >= before.finished_length &&
      s.finished_abort >= before.finished_abort && s.finished_error >= before.finished_error &&
      s.scheduled_tokens >= before.scheduled_tokens && s.steps >= before.steps;
  REQUIRE(grows, "I11: a counter went back");
  bool cut = sim.lost || sim.scenario->stop_at > 0; /* steps in flight count for nothing */
  REQUIRE(cut || (s.steps == sim.steps && s.scheduled_tokens == sim.tokens),
          "I11: %llu steps and %llu tokens have ended, the counters say %llu and %llu",
          (unsigned long long)sim.steps, (unsigned long long)sim.tokens,
          (unsigned long long)s.steps, (unsigned long long)s.scheduled_tokens);
  REQUIRE(s.prefix_hits_tokens <= s.prefix_queries_tokens, "I11: more hits than queries");
  before = s;
}

void check_begin(void) {
  check_pool_begin();
  memset(&before, 0, sizeof before);
  recomputed_before = 0;
  fair_begin();
  law_begin();
  queue_begin();
  num_states = scheduler_state_slots(&sim.engine->scheduler->options);
  memset(tenant_waits, 0, sizeof tenant_waits);
  memset(tenant_tokens, 0, sizeof tenant_tokens);
  REQUIRE(sim.engine->scheduler->num_rows <= ROWS_MAX, "the scenario is larger than the checks");
}

/* Who was let in and waits, for blocks that another fills or for its next slice, is not new when it
 * computes at last. */
static void note_running(const scheduler_t *s) {
  for (const group_t *g = s->running.head; g; g = g->next) {
    run_t *run = check_run(g);
    run->was_planned = run->runs = true;
    run->waited = false;
    for (const sequence_t *q = &g->sequence; q; q = q->next)
      run->waited = run->waited || (sequence_is_live(q) && is_blocked(q));
  }
  /* A plan without a step may have sent it back. */
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) check_run(g)->runs = false;
  for (const group_t *g = s->swapped.head; g; g = g->next) check_run(g)->runs = false;
  recomputed_before = s->num_recomputed_tokens;
}

void check_iteration(void) {
  engine_t *e = sim.engine;
  note_running(e->scheduler);
  check_queues(e);
  fair_iteration();
  law_iteration();
  queue_check(e);
  check_quotas();
  check_pool(e, check_walks());
  host_pool_check(e);
  check_stats(e);
}

void check_idle(void) {
  const engine_t *e = sim.engine;
  REQUIRE(e->num_live == 0 && sim.num_live == 0 && e->loop_live == 0, "I2: %d requests are alive",
          e->num_live);
  REQUIRE(e->pool->num_free == e->pool->num_blocks - 1, "I2: %d blocks are held",
          e->pool->num_blocks - 1 - e->pool->num_free);
  check_pool(e, true);
  const scheduler_t *s = e->scheduler;
  REQUIRE(s->num_free_states == num_states, "I2: states are held");
  REQUIRE(!s->snapshots || s->snapshots->num_taken == 0, "I2: snapshots are held");
  check_quotas();
  sees_idle();
}
