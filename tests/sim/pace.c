/* pace.c: the time of steps, counted anew from the plan and from the learned costs.
 *
 * What the scheduler may do in a step that decodes: spend its time and the time of each client, go
 * over them by a block of the prompt that is first and a block of the last one, and by what decodes
 * alone take. Decodes of a client that has too many sit out in turns. One thread.
 */
#include "tests/sim/pace.h"

#include "engine/base/util.h"
#include "engine/schedule/plan.h"
#include "tests/sim/fair.h"
#include "tests/sim/language.h"
#include "tests/sim/law.h"
#include "tests/sim/sees.h"

#include <string.h>

static double ns_of(const scheduler_t *s, int32_t start, int32_t tokens, int32_t rows) {
  const double *ns = s->cost.ns;
  double keys = (double)tokens * start + 0.5 * tokens * (tokens + 1.0);
  return ns[COST_TOKEN] * tokens + ns[COST_ROW] * rows +
         ns[tokens > 1 ? COST_PAIR : COST_KEY] * keys;
}

static bool is_decode(const plan_entry_t *entry) {
  const sequence_t *q = entry->sequence;
  return entry->num_tokens - entry->num_drafts == 1 && entry->do_sample &&
         (q->group->forked || entry->num_computed >= q->num_prefill_tokens);
}

/* Without the rows of its draws, for which a chunk keeps one free. */
static double chunk_ns(const scheduler_t *s, const plan_entry_t *entry) {
  return ns_of(s, entry->num_computed, entry->num_tokens, 0);
}

static double decode_ns(const scheduler_t *s, const plan_entry_t *entry) {
  const int32_t drafts = entry->num_drafts + entry->num_cut; /* as it was planned */
  return ns_of(s, entry->num_computed, entry->num_tokens + entry->num_cut, 1 + drafts);
}

typedef struct spent {
  double decodes_ns, chunks_ns,
      blocks_ns;                /* blocks: the two largest of chunks of a block at most */
  int32_t groups, rows, chunks; /* groups that decode, and their sequences; chunks */
  int32_t drafts;               /* tokens */
  bool beams;
} spent_t;

/* What the plan spends on a tenant, or (-1) on all. */
static spent_t spent_on(const scheduler_t *s, int32_t tenant) {
  spent_t spent = {0};
  double largest = 0;
  const group_t *last = NULL;
  for (int32_t i = 0; i < s->plan.num_entries; i++) {
    const plan_entry_t *entry = &s->plan.entries[i];
    const group_t *g = entry->sequence->group;
    if (tenant >= 0 && g->tenant != tenant) continue;
    if (is_decode(entry)) {
      spent.decodes_ns += decode_ns(s, entry);
      spent.groups += g != last;
      spent.rows++;
      spent.drafts += entry->num_drafts;
      spent.beams = spent.beams || g->request->params.beam_width > 0;
      last = g;
      continue;
    }
    double ns = chunk_ns(s, entry);
    spent.chunks++;
    spent.chunks_ns += ns;
    if (entry->num_tokens > s->pool->block_size) continue;
    spent.blocks_ns = MAX(spent.blocks_ns, largest + ns);
    largest = MAX(largest, ns);
  }
  return spent;
}

static bool decodes(const group_t *g) {
  bool behind = false;
  for (const sequence_t *q = &g->sequence; q && g->forked; q = q->next)
    behind = behind || (sequence_is_live(q) && q->num_computed_tokens - q->num_in_flight_tokens <
                                                   sequence_num_tokens(q) - 1);
  return g->forked ? !behind : !sequence_in_prefill(&g->sequence);
}

/* Whether a token is due to a client other than this one; by what the scheduler has counted. */
static bool others_are_due(const scheduler_t *s, int32_t tenant) {
  const tenant_pace_t *client = &s->waiting.tenants.all[tenant].pace;
  bool own = client->number == s->pace.number && client->is_due;
  return s->pace.num_due > own;
}

static bool asks(const group_queue_t *queue, int32_t tenant) {
  for (const group_t *g = queue->head; g; g = g->next)
    if (g->tenant == tenant) return true;
  return false;
}

/* Who has a token due asks for something, and all who decode do. */
static void check_due(const scheduler_t *s) {
  int32_t num_due = 0;
  for (int32_t t = 0; t <= s->waiting.tenants.num_used; t++) {
    const tenant_pace_t *client = &s->waiting.tenants.all[t].pace;
    if (client->number != s->pace.number) continue;
    num_due += client->is_due;
    REQUIRE(client->is_due || client->num_decodes == 0, "tenant %d decodes and is not due", t);
    REQUIRE(!client->is_due || asks(&s->running, t) || asks(&s->waiting.queue, t) ||
                s->plan.num_preempted > 0,
            "nothing is due to tenant %d", t);
  }
  REQUIRE(num_due == s->pace.num_due, "%d clients are due, counted %d", s->pace.num_due, num_due);
}

/* The policy slo keeps the mean of all tokens where admission is bounded, and no client's step. */
static double client_bound(const scheduler_t *s, int32_t tenant) {
  const scenario_t *c = sim.scenario;
  const bool by_mean = c->options.slo_policy && scenario_has(c, SIM_SEATS);
  double bound = by_mean ? 0 : c->client_step_ms * 1e6;
  if (bound == 0 || !s->options.fair_share || !others_are_due(s, tenant)) return 1e300;
  return MAX(bound, s->cost.ns[COST_STEP]);
}

/* The time of a step; 0: it has no bound. */
static double most_ns(const scheduler_t *s) {
  const double most = sim.scenario->options.max_step_ms * 1e6;
  return most > 0 ? MAX(most, sim.scenario->reads * s->cost.ns[COST_STEP]) : 0;
}

/* What a step may take: less when those before took more; but for the policy slo nothing is owed.
 */
static double step_bound(const scheduler_t *s) {
  double most = most_ns(s);
  REQUIRE(s->pace.debt_ns >= 0 &&
              s->pace.debt_ns <= (sim.scenario->options.slo_policy ? most / 2 : 0),
          "a debt of %.0f ns", s->pace.debt_ns);
  return most - s->pace.debt_ns;
}

/* What a client may have with its prompts: with slo at least half of what all decodes, and before
 * them the tower, leave of the step. */
static double prompts_bound(const scheduler_t *s, int32_t tenant) {
  const tenant_pace_t *client = &s->waiting.tenants.all[tenant].pace;
  double bound = client_bound(s, tenant);
  double own = client->number == s->pace.number ? client->decodes_ns : 0;
  double left = step_bound(s) - sees_tower_ns(s, -1) - s->cost.ns[COST_STEP] - s->pace.decodes_ns;
  if (!sim.scenario->options.slo_policy || own >= bound) return bound;
  return MAX(bound, own + left / 2);
}

static bool bounds_prompts(const scheduler_t *s) {
  return s->pace.is_on && s->options.chunked_prefill;
}

/* The time of a step in which a group decodes. */
static double seat_ns(const scheduler_t *s, const group_t *g) {
  return check_width(g) * ns_of(s, sequence_num_tokens(&g->sequence), 1, 1);
}

/* Whether with this group decodes alone would take the time of a step. */
static bool is_full(const scheduler_t *s, const group_t *g) {
  double bound = most_ns(s);
  double sum = s->cost.ns[COST_STEP] + seat_ns(s, g);
  if (bound == 0 || !scenario_has(sim.scenario, SIM_SEATS) || s->running.count == 0) return false;
  for (const group_t *r = s->running.head; r; r = r->next) sum += r == g ? 0 : seat_ns(s, r);
  return sum > bound * (1 - 1e-9);
}

/* What a client may always have of the time of a step: its part of it, or one request. */
static bool is_its_part(const scheduler_t *s, const group_t *g, double bound) {
  double sum = 0;
  int32_t count = 0;
  for (const group_t *r = s->running.head; r; r = r->next) {
    sum += r->tenant == g->tenant ? seat_ns(s, r) : 0;
    count += r->tenant == g->tenant;
    if (r == g) break;
  }
  return s->options.fair_share && (count == 1 || sum <= law_part(s, g) * bound * (1 + 1e-9));
}

/* Who is let in, for the first time, finds room among those that decode, if anything runs. */
static void check_seats(const scheduler_t *s) {
  double bound = most_ns(s), sum = s->cost.ns[COST_STEP];
  bool bounds = bound > 0 && scenario_has(sim.scenario, SIM_SEATS) && cost_is_known(&s->cost);
  if (!bounds || s->plan.num_preempted > 0) return;
  for (const group_t *g = s->running.head; g; g = g->next) {
    const track_t *k = check_track(&g->sequence);
    bool is_new = !check_run(g)->runs && g->num_preemptions == 0 && g != s->running.head;
    sum += seat_ns(s, g);
    REQUIRE(!is_new || sum <= bound * (1 + 1e-9) || is_its_part(s, g, bound),
            "I3: request %d is let in, decodes alone would take %.0f of %.0f ns", k->index, sum,
            bound);
  }
}

bool pace_has_no_seat(const scheduler_t *s, const group_t *g, double part) {
  double bound = most_ns(s), sum = seat_ns(s, g);
  for (const group_t *r = s->running.head; r; r = r->next)
    sum += r->tenant == g->tenant ? seat_ns(s, r) : 0;
  return is_full(s, g) && sum > part * bound * (1 - 1e-9);
}

bool pace_is_filled(const scheduler_t *s) {
  const double left = most_ns(s) - s->cost.ns[COST_STEP] - s->pace.decodes_ns;
  return bounds_prompts(s) && left >= 2 * ns_of(s, 0, s->pool->block_size, 0) &&
         cost_ns(&s->cost, &s->plan.work) >= step_bound(s) - sees_tower_ns(s, -1);
}

bool pace_is_out(const scheduler_t *s, const group_t *g) {
  if (is_full(s, g) && cost_is_known(&s->cost)) return true;
  if (!bounds_prompts(s)) return false;
  const tenant_pace_t *client = &s->waiting.tenants.all[g->tenant].pace;
  bool is_now = client->number == s->pace.number;
  double spent =
      is_now ? MAX(client->spent_ns + sees_tower_ns(s, g->tenant), client->decodes_ns) : 0;
  return cost_ns(&s->cost, &s->plan.work) >= step_bound(s) - sees_tower_ns(s, -1) ||
         spent >= prompts_bound(s, g->tenant);
}

bool pace_was_kept(const scheduler_t *s, const group_t *g) {
  if (!bounds_prompts(s) || !sim.scenario->options.short_prompts_pass || !check_has_chunk(s, g))
    return false;
  const double left = step_bound(s) - sees_tower_ns(s, -1) - cost_ns(&s->cost, &s->plan.work);
  return left < ns_of(s, 0, s->pool->block_size, 0);
}

bool pace_was_out(const scheduler_t *s, const group_t *g) {
  const plan_entry_t *first = NULL;
  if (!bounds_prompts(s) || !sim.scenario->options.short_prompts_pass) return false;
  for (const group_t *r = s->running.head; r && !first; r = r->next) {
    for (int32_t i = 0; i < s->plan.num_entries && !first; i++) {
      const plan_entry_t *entry = &s->plan.entries[i];
      if (entry->sequence->group == r && !is_decode(entry)) first = entry;
    }
  }
  if (!first || first->sequence->group->tenant != g->tenant) return false;
  double left_ns = prompts_bound(s, g->tenant) - spent_on(s, g->tenant).decodes_ns;
  for (int32_t n = 1; n <= s->pool->block_size; n++)
    if (ns_of(s, first->num_computed, n, 0) >= left_ns) return true;
  return false;
}

/* Whether a choice of a group that came from the host in this plan finds no time: it was not among
 * the decodes that were counted before, and comes behind all of them. */
static bool comes_late(const scheduler_t *s, const group_t *g) {
  double largest = 0;
  if (check_run(g)->runs) return false;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (sequence_is_live(q)) largest = MAX(largest, ns_of(s, q->num_computed_tokens, 1, 1));
  }
  spent_t spent = spent_on(s, g->tenant);
  double total = spent.decodes_ns + spent.chunks_ns + largest;
  return total > client_bound(s, g->tenant) * (1 - 1e-9);
}

bool pace_may_sit_out(const scheduler_t *s, const group_t *g) {
  const tenant_pace_t *client = &s->waiting.tenants.all[g->tenant].pace;
  bool is_now = client->number == s->pace.number;
  return s->pace.is_on &&
         ((is_now && client->decodes_ns > client_bound(s, g->tenant)) || comes_late(s, g));
}

static void check_bound(spent_t spent, double fixed_ns, double bound_ns, const char *of) {
  double total = fixed_ns + spent.decodes_ns + spent.chunks_ns;
  REQUIRE(spent.chunks == 0 || total <= bound_ns * (1 + 1e-9) + spent.blocks_ns ||
              (fixed_ns + spent.decodes_ns >= bound_ns && spent.chunks_ns <= spent.blocks_ns),
          "a step of %.0f ns for %s, of which %.0f are chunks, at most %.0f", total, of,
          spent.chunks_ns, bound_ns);
}

/* No group sits out for longer than its client takes to give each of its others two turns. */
static void check_turns(const scheduler_t *s) {
  for (const group_t *g = s->running.head; g; g = g->next) {
    const track_t *k = check_track(&g->sequence);
    bool sits = pace_may_sit_out(s, g) && !check_run(g)->in_plan && decodes(g) && !g->masks.wait;
    int32_t *count = &check_run(g)->sat_out;
    *count = sits ? *count + 1 : 0;
    REQUIRE(*count <= 2 * s->options.max_num_seqs + 2, "I3: request %d sits out for %d steps",
            k->index, *count);
  }
}

/* Forks of which one is behind after a preemption come with the prompts, those that decode too. */
static bool is_behind(const group_t *g) {
  bool behind = !check_run(g)->runs;
  for (const sequence_t *q = &g->sequence; q; q = q->next)
    behind = behind ||
             (sequence_is_live(q) && check_stream(q)->num_computed < sequence_num_tokens(q) - 1);
  return behind;
}

static bool forks_are_behind(const plan_t *plan) {
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const group_t *g = plan->entries[i].sequence->group;
    if (g->forked && is_behind(g)) return true;
  }
  return false;
}

/* Whether somebody comes from the host, who was not among the decodes that were counted; it needs
 * no copies if the device has its blocks still. */
static bool comes_back(const plan_t *plan) {
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (is_decode(entry) && !check_run(entry->sequence->group)->runs) return true;
  }
  return plan->num_swap_in > 0;
}

/* Whether the language of a request leaves one id behind a text, and no end. */
static bool leaves_one(const script_t *script, const language_state_t *text) {
  uint32_t mask[LANGUAGE_MASK_WORDS];
  int count = 0;
  if (language_may_end(text) && !script->params.ignore_eos) return false;
  language_mask(text, sim.engine->tokenizer, mask);
  for (int w = 0; w < LANGUAGE_MASK_WORDS; w++) count += __builtin_popcount(mask[w]);
  return count == 1;
}

/* Draft tokens of an entry that may be wrong: its language leaves more than one id. */
static int32_t count_guesses(const plan_entry_t *entry) {
  const sequence_t *q = entry->sequence;
  const script_t *script = check_track(q)->script;
  int32_t guesses = 0;
  language_state_t text;
  if (script->language < 0) return entry->num_drafts;
  language_begin(&text, script->language);
  for (int32_t i = 0; i < q->num_output_tokens + entry->num_drafts; i++) {
    guesses += i >= q->num_output_tokens && !leaves_one(script, &text);
    language_add(&text, sim.engine->tokenizer, q->tokens[q->num_prompt_tokens + i]);
  }
  return guesses;
}

/* Each token of a draft makes the step better than it was without, by what was right and by the
 * costs; but with LONGEST, or a draft model, whose time is another by now, and those that a
 * language leaves no choice for. */
static void check_drafts(const scheduler_t *s) {
  bool longest = s->options.draft.longest || s->options.draft_model;
  int32_t most = s->options.has_states ? DRAFT_STATES_MAX : DRAFTS_IN_FLIGHT_MAX, sum = 0;
  for (int32_t i = 0; i < s->plan.num_entries; i++) {
    const plan_entry_t *entry = &s->plan.entries[i];
    const draft_history_t *history = &entry->sequence->drafts.history;
    double right = (history->right + 1.6) / (history->tried + 2), each = 1;
    sequence_t before = *entry->sequence;
    before.num_computed_tokens = entry->num_computed;
    draft_step_t step = plan_draft_step(s, &before);
    sum += entry->num_drafts;
    REQUIRE(entry->num_drafts <= sim.scenario->options.draft.tokens_max, "a draft of %d",
            entry->num_drafts);
    const int32_t guesses = longest || entry->num_drafts <= 1 ? 0 : count_guesses(entry);
    for (int32_t n = 0; n < guesses && guesses > 1; n++) { /* one token may be a try */
      each *= right;
      REQUIRE(each * (step.cost + n) > step.tokens * (1 - 1e-6),
              "draft token %d of %d is right by %.3f, the step yields %.3f in the time of %.3f", n,
              guesses, each, step.tokens, step.cost + n);
      step.tokens += each;
    }
  }
  REQUIRE(sum <= most, "%d draft tokens in a step", sum);
}

void pace_step(const scheduler_t *s) {
  const plan_t *plan = &s->plan;
  check_drafts(s);
  bool tokens_only = sim.scenario->options.max_step_ms == 0;
  REQUIRE(!tokens_only || !s->pace.is_on, "a bound of time that nobody set");
  check_turns(s);
  check_due(s);
  check_seats(s);
  if (!s->pace.is_on || plan->num_preempted > 0 || comes_back(plan) || forks_are_behind(plan))
    return;
  if (s->options.chunked_prefill)
    check_bound(spent_on(s, -1), s->cost.ns[COST_STEP], step_bound(s), "all");
  for (int32_t t = 0; t <= s->waiting.tenants.num_used; t++) {
    spent_t spent = spent_on(s, t);
    double bound = client_bound(s, t);
    if (s->options.chunked_prefill) check_bound(spent, 0, prompts_bound(s, t), "a client");
    bool least = (spent.rows <= 1 || (spent.groups <= 1 && spent.beams)) && spent.drafts == 0;
    REQUIRE(spent.decodes_ns <= bound * (1 + 1e-9) || least ||
                scenario_has(sim.scenario, SIM_BEAMS),
            "%d requests of a client decode in %.0f ns, it may take %.0f", spent.groups,
            spent.decodes_ns, bound);
  }
}
