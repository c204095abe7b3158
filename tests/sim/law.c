/* law.c: the law of fair shares, in its own words and not in those of the scheduler's rule.
 *
 * The law. Clients share the places (max_num_seqs) and the blocks of the pool. The share of a
 * client is its weight's part of each, among the clients that run or wait now; of the places it is
 * one at least. Whoever is below its share with what it asks for begins within LAW_STEPS steps,
 * whoever runs and whoever waits.
 *
 * What a client asks for is the first of its requests that wait, in its own order. Of a request of
 * several independent choices it is one choice: the others ask when that one has begun. Of beams,
 * and of forks that were preempted together, it is all of them, as they draw together. In blocks it
 * is what the known tokens fill, without help of the cache; of a request that reserves its worst
 * case, that. To begin is to run: a sequence of the client runs that did not at the step before.
 *
 * Others make room. Whoever has more than its share gives until it has not, if need be its only
 * request, beams of any width, and all it has. So there is room for all who are below their shares,
 * as the shares of all are no more than the whole; but for clients that have one place where there
 * are more clients than places, and then the room that others have too much is counted.
 *
 * The law owes nothing
 *  - to who is at its share or above it, or would be above it with what it asks for: wide beams,
 *    or a prompt of the whole pool, run when there is room, and make way;
 *  - to who has a group on the host: that one comes first;
 *  - to a request that has not begun, of a client with others that were sent back, while those that
 *    were sent back hold so much (rows) that little is left for who has none;
 *  - to a key that runs as many sequences as its own limit (max_running) allows;
 *  - with the priority policy, to who waits while another client's request of a better priority
 *    waits; and nobody makes room for a request of a worse priority than its own;
 *  - while who is above its share is so by requests that were sent back for others before and have
 *    got no token since. Each request gets one between two such times, so that all of them end.
 *
 * A step counts unless no request could have begun in it: it had no tokens left, or its time was
 * filled by prompts of others, or it had no tokens for a whole prompt where prompts are not cut;
 * requests were preempted for want of blocks, or came back from the host; or tokens of the very
 * request were in flight still. Such steps may be many where prompts are not cut, and where the
 * prompts of others are long: they are not bounded here.
 *
 * Beside other clients what decodes cost is no excuse, whatever steps take and whatever was learned
 * of that: where they leave no time, a client waits for HELD_STEPS steps more. Where admission is
 * bounded by the time of a step, the share of a client is its part of that as well, one sequence at
 * least. And who runs computes: of a client with prompts that wait for nothing but time, one has a
 * row within HELD_STEPS steps and two for each client that has such prompts. Steps without tokens
 * left, or that sent somebody back, count for nothing here, too.
 *
 * Who makes room was above its share, does so for somebody who has no more than its share then, and
 * no more often than others ask: once for each choice of another client that came, or was sent back
 * and asks again, or client that left. Whom others of its own client passed is counted, and nobody
 * else: between clients there is only the share.
 *
 * Written against what can be seen: which sequences of which request stand in which queue. It does
 * not matter whether the choices of a request are one group or several. One thread. */
#include "tests/sim/law.h"
#include "tests/sim/fair.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pace.h"

#include "engine/base/util.h"
#include "engine/schedule/plan.h"

#include <string.h>

/* Steps within which who is below its share begins, for one and for two steps in flight: one in
 * which its turn comes, as many as are in flight, twice, since a request whose token is awaited
 * makes room in the step behind that, and one for who stands before it. */
enum { LAW_STEPS = 2, HELD_STEPS = 2 };
static int law_steps(void) {
  return LAW_STEPS + 2 * sim.scenario->pipeline_depth +
         (scenario_has(sim.scenario, SIM_PACE) ? HELD_STEPS : 0);
}

/* What is remembered of one sequence of a request, or of its beams. */
typedef struct memory {
  bool runs;                         /* at the step before */
  uint64_t admitted;                 /* plan that let its group in, if it ran then */
  int32_t num_skips;                 /* at the iteration before */
  int32_t num_yields;                /* times that it made room */
  int32_t tokens_at_yield;           /* that it had then */
  uint64_t begun_before;             /* asks of others that were met before it ran first */
  bool is_known;                     /* it has run */
  int32_t num_blocks, num_sequences; /* that its group held at the iteration before */
} memory_t;

typedef struct client {
  int64_t sequences, blocks;             /* that it runs, holds */
  int64_t fixed_sequences, fixed_blocks; /* those that make no room for the asking client */
  bool is_there;                         /* it runs or waits */
  const group_t *first;                  /* of those that wait */
} client_t;

typedef struct view {
  client_t clients[SIM_TENANTS + 1];
  int64_t weights; /* of those that are there */
} view_t;

static memory_t memories[SIM_REQUESTS_MAX][SIM_STREAMS_MAX];
/* Steps in which it was owed a place, those that count, and all. */
static int waited[SIM_TENANTS + 1], waited_all[SIM_TENANTS + 1];
/* Steps in which its prompts that ran had no row, for want of time. */
static int lacked[SIM_TENANTS + 1];
static bool any_lacks, any_lacked; /* whatever tokens were left; in this step, the one before */
/* Choices that came, that were sent back, and clients that left; and those that began. */
static uint64_t asks[SIM_TENANTS + 1], begun[SIM_TENANTS + 1];
static bool was_there[SIM_TENANTS + 1];
static uint64_t yields_before;
static law_waits_t longest; /* since the process began */

void law_begin(void) {
  memset(memories, 0, sizeof memories);
  memset(waited, 0, sizeof waited);
  memset(waited_all, 0, sizeof waited_all);
  memset(lacked, 0, sizeof lacked);
  any_lacks = any_lacked = false;
  memset(asks, 0, sizeof asks);
  memset(begun, 0, sizeof begun);
  memset(was_there, 0, sizeof was_there);
  yields_before = 0;
}

bool law_any_lacked(void) {
  return any_lacked;
}

law_waits_t law_longest(void) {
  return longest;
}

static const track_t *track_of(const group_t *g) {
  return check_track(&g->sequence);
}

static uint64_t client_of(const group_t *g) {
  return track_of(g)->script->tenant;
}

static memory_t *memory_of(const group_t *g) {
  return &memories[track_of(g)->index][g->sequence.index];
}

static bool has_beams(const group_t *g) {
  return g->request->params.beam_width > 0;
}

/* Sequences that it runs, or would run, as far as it has come: those of it that have not ended. */
static int32_t sequences_of(const group_t *g) {
  int32_t count = 0;
  if (has_beams(g)) return track_of(g)->num_streams;
  for (const sequence_t *q = &g->sequence; q; q = q->next) count += !sequence_is_finished(q);
  return count;
}

static int64_t weight_of(uint64_t client) {
  int64_t weight = atomic_load(&sim.scenario->quotas[client].weight);
  return scenario_has(sim.scenario, SIM_QUOTAS) && weight > 0 ? weight : 1;
}

static int32_t blocks_of(const scheduler_t *s, const group_t *g) {
  int32_t blocks = 0;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (!sequence_is_live(q)) continue;
    blocks += q->slices.total > 0 ? q->slices.total : q->num_blocks;
    blocks += (q->sides.end - q->sides.first) * s->pool->num_sides;
  }
  return blocks;
}

static int32_t tokens_of(const group_t *g) {
  int32_t most = 0; /* beams have as many each */
  for (const sequence_t *q = &g->sequence; q; q = q->next) most = MAX(most, q->num_output_tokens);
  return most;
}

/* Whether a sequence runs that did not at the step before. A plan may send back and let in again
 * with no step between. */
static bool has_begun(const group_t *g, const sequence_t *q) {
  const memory_t *memory = &memories[track_of(g)->index][has_beams(g) ? 0 : q->index];
  return !memory->runs || g->yield.let_in != memory->admitted;
}

/* Whether it was sent back for others, and has got no token since. */
static bool is_spared(const group_t *g) {
  const memory_t *memory = memory_of(g);
  return memory->num_yields > 0 && tokens_of(g) <= memory->tokens_at_yield;
}

static bool is_better(const scheduler_t *s, const group_t *a, const group_t *b) {
  return s->options.priority_policy && a->request->priority < b->request->priority;
}

/* What each client has and asks for, as the group that asks sees it; NULL = nobody asks. */
static view_t look(const scheduler_t *s, const group_t *asks_for) {
  view_t view = {0};
  const group_queue_t *waiting[] = {&s->waiting.queue, &s->swapped};
  for (const group_t *g = s->running.head; g; g = g->next) {
    client_t *client = &view.clients[client_of(g)];
    int32_t sequences = sequences_of(g), blocks = blocks_of(s, g);
    bool is_fixed = asks_for != NULL && (is_spared(g) || is_better(s, g, asks_for));
    client->is_there = true;
    client->sequences += sequences;
    client->blocks += blocks;
    client->fixed_sequences += is_fixed ? sequences : 0;
    client->fixed_blocks += is_fixed ? blocks : 0;
  }
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = waiting[i]->head; g; g = g->next) {
      client_t *client = &view.clients[client_of(g)];
      if (i == 0 && client->first == NULL) client->first = g;
      client->is_there = client->is_there || i == 0;
    }
  }
  for (uint64_t c = 0; c <= SIM_TENANTS; c++)
    view.weights += view.clients[c].is_there ? weight_of(c) : 0;
  return view;
}

/* Above 0: the client has more than its share; times the weights of all, to be a whole number. */
static int64_t excess(const view_t *view, uint64_t client, int64_t has, int64_t limit) {
  return has * view->weights - MAX(limit * weight_of(client), view->weights);
}

double law_part(const scheduler_t *s, const group_t *g) {
  return (double)weight_of(client_of(g)) / (double)look(s, NULL).weights;
}

/* ---- who is owed ---- */

static int32_t asked_sequences(const group_t *g) {
  return sequences_of(g); /* one that has not begun has one sequence yet, unless it has beams */
}

static int32_t asked_blocks(const scheduler_t *s, const group_t *g) {
  int32_t most = s->options.max_preemptions, blocks = 0, bs = s->pool->block_size;
  bool reserves = most > 0 && g->num_preemptions - g->yield.count >= most;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (sequence_is_finished(q) || (q->status == SEQUENCE_NEW && q != &g->sequence)) continue;
    int32_t tokens = sequence_num_tokens(q);
    if (reserves) {
      tokens = q->num_prompt_tokens + g->request->params.max_tokens;
      tokens = MIN(tokens, s->options.max_model_len);
    }
    blocks += DIV_UP(tokens, bs) + check_most_sides(s, tokens);
  }
  return blocks + (s->running.count > 0 ? s->options.watermark_blocks : 0);
}

/* Whether others have so many places too much, or there are so many free ones. */
static bool has_places(const scheduler_t *s, const view_t *view, uint64_t client, int64_t wanted) {
  int64_t found = s->options.max_num_seqs;
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) found -= view->clients[c].sequences;
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) {
    const client_t *other = &view->clients[c];
    int64_t above = excess(view, c, other->sequences, s->options.max_num_seqs);
    if (c == client || above <= 0) continue;
    found +=
        MIN((above + view->weights - 1) / view->weights, other->sequences - other->fixed_sequences);
  }
  return found >= wanted;
}

/* The same of blocks. As the shares of all are no more than the pool, there are enough when each
 * other client has no more than its share, however many blocks they have together. */
static bool has_blocks(const scheduler_t *s, const view_t *view, uint64_t client, int64_t wanted) {
  int64_t limit = s->pool->num_blocks - 1;
  if (wanted <= s->pool->num_free - s->slices.promised) return true;
  if (excess(view, client, view->clients[client].blocks + wanted, limit) > 0) return false;
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) {
    const client_t *other = &view->clients[c];
    if (!other->is_there) continue;
    bool is_raised = limit * weight_of(c) < view->weights;
    if (is_raised || (c != client && excess(view, c, other->fixed_blocks, limit) > 0)) return false;
  }
  return true;
}

/* Whether the client would have more than its part of the time of a step, where that is counted. */
static bool is_beyond_time(const scheduler_t *s, const view_t *view, const group_t *g) {
  const uint64_t client = client_of(g);
  return view->clients[client].sequences > 0 && pace_has_no_seat(s, g, law_part(s, g));
}

/* Whether the client is below its share with what it asks for, and others can make room. */
static bool is_owed(const scheduler_t *s, const view_t *view, uint64_t client) {
  const group_t *g = view->clients[client].first;
  int64_t wanted = asked_sequences(g);
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) {
    const group_t *other = view->clients[c].first;
    if (c != client && other != NULL && is_better(s, other, g)) return false;
  }
  return excess(view, client, view->clients[client].sequences + wanted, s->options.max_num_seqs) <=
             0 &&
         has_places(s, view, client, wanted) && has_blocks(s, view, client, asked_blocks(s, g)) &&
         !is_beyond_time(s, view, g);
}

/* Whether the request could have begun in this step: see above. */
static bool counts(const scheduler_t *s, const view_t *view, const group_t *g) {
  const plan_t *plan = &s->plan;
  const bool is_alone = view->weights == weight_of(client_of(g));
  int32_t left = s->options.max_num_batched_tokens - plan->num_tokens;
  bool was_short = plan->num_preempted > 0 && s->num_yields == yields_before;
  for (const sequence_t *q = &g->sequence; q; q = q->next) {
    if (sequence_is_live(q) && q->num_in_flight_tokens > 0) return false;
  }
  if (left <= 0 || was_short || plan->num_swap_in > 0 || pace_is_filled(s)) return false;
  if ((!s->options.chunked_prefill || is_alone) && pace_is_out(s, g)) return false;
  return s->options.chunked_prefill || sequence_num_tokens(&g->sequence) <= left;
}

static bool began_one(const scheduler_t *s, uint64_t client) {
  for (const group_t *g = s->running.head; g; g = g->next) {
    if (client_of(g) != client) continue;
    for (const sequence_t *q = &g->sequence; q; q = q->next) {
      if (has_begun(g, q)) return true;
    }
  }
  return false;
}

/* The client that has most beyond its share, or the one that has most. */
static uint64_t find_most(const view_t *view, uint64_t client) {
  uint64_t most = client == 0;
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) {
    const client_t *one = &view->clients[c], *other = &view->clients[most];
    if (c == client) continue;
    if (one->sequences * weight_of(most) > other->sequences * weight_of(c)) most = c;
  }
  return most;
}

_Noreturn static void fail_owed(const scheduler_t *s, const view_t *view, uint64_t client) {
  const group_t *first = view->clients[client].first;
  uint64_t most = find_most(view, client);
  const client_t *c = &view->clients[client], *other = &view->clients[most];
  sim_fail(
      "the law: client %llu has %lld sequences and %lld blocks, its request %d (of %d sequences) "
      "asks for %d and %d, which is within its share of %d and %d, and has not begun in %d steps; "
      "client %llu has %lld and %lld, %d sequences run, %d blocks are free, %d groups are away",
      (unsigned long long)client, (long long)c->sequences, (long long)c->blocks,
      track_of(first)->index, track_of(first)->num_streams, asked_sequences(first),
      asked_blocks(s, first), s->options.max_num_seqs, s->pool->num_blocks - 1, waited[client],
      (unsigned long long)most, (long long)other->sequences, (long long)other->blocks,
      check_num_sequences(s), s->pool->num_free - s->slices.promised, s->swapped.count);
}

/* Whether what is left of the rows is for clients of which no request was sent back. */
static bool are_rows_kept(const scheduler_t *s, const group_t *first) {
  const int32_t left = s->num_free_rows - first->width;
  if (first->sequence.row >= 0 || left >= s->num_rows - 2 * s->options.max_num_seqs) return false;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next)
    if (client_of(g) == client_of(first) && g->sequence.row >= 0) return true;
  return false;
}

/* Whether the client is owed a place in this step. */
static bool must_begin(const scheduler_t *s, uint64_t client, view_t *view) {
  *view = look(s, NULL);
  const group_t *first = view->clients[client].first;
  for (const group_t *g = s->swapped.head; g; g = g->next)
    if (client_of(g) == client) return false;
  if (first == NULL || began_one(s, client) || fair_held(s, first) || are_rows_kept(s, first))
    return false;
  *view = look(s, first);
  return is_owed(s, view, client);
}

static void check_owed(const scheduler_t *s) {
  for (uint64_t client = 0; client <= SIM_TENANTS; client++) {
    view_t view;
    if (!must_begin(s, client, &view)) {
      waited[client] = waited_all[client] = 0;
      continue;
    }
    waited_all[client]++;
    longest.all = MAX(longest.all, waited_all[client]);
    if (!counts(s, &view, view.clients[client].first)) continue;
    waited[client]++;
    longest.counted = MAX(longest.counted, waited[client]);
    if (waited[client] > law_steps()) fail_owed(s, &view, client);
  }
}

/* Whether a prompt of the client that runs lacks nothing but time, and none of them has a row. */
static bool lacks_time(const scheduler_t *s, uint64_t client) {
  bool any = false;
  for (const group_t *g = s->running.head; g; g = g->next) {
    bool decodes, left_out = client_of(g) == client && check_is_left_out(g, &decodes);
    if (client_of(g) == client && check_has_chunk(s, g)) return false;
    any = any || (left_out && !decodes && !plan_pauses(s, g));
  }
  return any;
}

static void check_rows(const scheduler_t *s) {
  int32_t clients = 0, left = s->options.max_num_batched_tokens - s->plan.num_tokens;
  any_lacked = any_lacks;
  for (uint64_t client = 0; client <= SIM_TENANTS; client++) {
    const bool lacks = lacks_time(s, client);
    lacked[client] = lacks ? lacked[client] : 0;
    clients += lacks;
  }
  any_lacks = clients > 0;
  if (left <= 0 || s->plan.num_preempted > 0 || !s->options.chunked_prefill) return;
  for (uint64_t client = 0; client <= SIM_TENANTS; client++) {
    lacked[client] += lacks_time(s, client);
    longest.rows = MAX(longest.rows, lacked[client]);
    REQUIRE(lacked[client] <= HELD_STEPS + 2 * (SIM_TENANTS + 1),
            "the law: prompts of client %llu have had no row for %d steps, as %d clients do",
            (unsigned long long)client, lacked[client], clients);
  }
}

/* ---- who makes room ---- */

static uint64_t sum_of_others(const uint64_t *counts, uint64_t client) {
  uint64_t sum = 0;
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) sum += c != client ? counts[c] : 0;
  return sum;
}

static bool made_room_now(const group_t *g) {
  return g->yield.count > memory_of(g)->num_yields;
}

/* Whether its client had more than its share before the last of its requests made room, in places
 * or in blocks; the last one was the largest, or there was more before it. */
static bool was_above(const scheduler_t *s, const view_t *view, uint64_t client) {
  int64_t sequences = 0, blocks = 0;
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    if (client_of(g) != client || !made_room_now(g)) continue;
    /* It may have been let in by this very plan. */
    sequences = MAX(sequences, asked_sequences(g));
    /* Each of its sequences may have got blocks in the plan, for a token and its drafts. */
    int64_t each = DIV_UP(1 + s->options.draft.tokens_max, s->pool->block_size);
    int64_t grown = memory_of(g)->num_blocks + each * (1 + s->pool->num_sides) * sequences_of(g);
    blocks = MAX(blocks, MAX(grown, asked_blocks(s, g)));
  }
  sequences += view->clients[client].sequences;
  blocks += view->clients[client].blocks;
  return excess(view, client, sequences, s->options.max_num_seqs) > 0 ||
         excess(view, client, blocks, s->pool->num_blocks - 1) > 0;
}

/* Whether it was let in by this plan, or waits with room made for it, and its client is within its
 * share with it. Those of its client that were let in behind it do not count. The giver's plan may
 * have had no step, and the one behind it may have sent the receiver back for want of blocks. */
static bool is_receiver(const scheduler_t *s, const view_t *view, const group_t *g,
                        const group_t *giver) {
  bool is_in = g->queue == &s->running, was_in = g->yield.let_in == giver->yield.plan;
  if (is_in ? !has_begun(g, &g->sequence) : !g->yield.was_granted && !was_in) return false;
  int64_t has = view->clients[client_of(g)].sequences + (is_in ? 0 : asked_sequences(g));
  for (const group_t *r = is_in ? g->next : NULL; r; r = r->next) {
    if (client_of(r) == client_of(g) && has_begun(r, &r->sequence)) has -= sequences_of(r);
  }
  return excess(view, client_of(g), has, s->options.max_num_seqs) <= 0;
}

static bool has_receiver(const scheduler_t *s, const view_t *view, const group_t *giver) {
  const group_queue_t *queues[] = {&s->running, &s->waiting.queue};
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      if (client_of(g) != client_of(giver) && is_receiver(s, view, g, giver)) return true;
    }
  }
  return false;
}

/* NULL for the view: the plan had no step, and what its clients had then is not known. */
static void check_giver(const scheduler_t *s, const view_t *view, const group_t *g) {
  const track_t *k = track_of(g);
  bool draws = g->request->params.max_tokens > 0;
  REQUIRE(s->options.fair_share, "request %d makes room without fair shares", k->index);
  REQUIRE(!draws || !is_spared(g), "the law: request %d makes room again, and has got no token",
          k->index);
  REQUIRE(view == NULL || was_above(s, view, client_of(g)),
          "the law: request %d makes room, its client was within its share", k->index);
  REQUIRE(view == NULL || has_receiver(s, view, g),
          "request %d makes room for nobody who is within its share", k->index);
  uint64_t asked = sum_of_others(asks, client_of(g)) - memory_of(g)->begun_before;
  REQUIRE((uint64_t)g->yield.count <= asked,
          "the law: request %d makes room %d times, others have asked %llu times", k->index,
          g->yield.count, (unsigned long long)asked);
}

static void check_givers(const scheduler_t *s, const view_t *view) {
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    if (made_room_now(g)) check_giver(s, view, g);
  }
  /* Who made room in a plan that had no step, and was let in again, runs now. */
  const group_queue_t *queues[] = {&s->waiting.queue, &s->running, &s->swapped};
  for (int i = 0; i < 3; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      if (!made_room_now(g)) continue;
      memory_of(g)->num_yields = g->yield.count;
      memory_of(g)->tokens_at_yield = g->yield.num_output; /* one may have been in flight */
    }
  }
}

/* Whom another client passed is not counted. */
static void check_passed(const scheduler_t *s) {
  for (const group_t *g = s->waiting.queue.head; g; g = g->next) {
    bool is_own = g->num_skips <= memory_of(g)->num_skips;
    for (const group_t *r = s->running.head; r && !is_own; r = r->next)
      is_own = client_of(r) == client_of(g) && has_begun(r, &r->sequence);
    /* or has begun and been sent back by the same plan */
    for (const group_t *r = s->waiting.queue.head; r && !is_own; r = r->next)
      is_own = client_of(r) == client_of(g) && r->num_preemptions > check_run(r)->num_preemptions;
    REQUIRE(is_own, "the law: request %d counts as passed, and nobody of its client has begun",
            track_of(g)->index);
  }
}

/* ---- what is remembered ---- */

void law_submitted(const track_t *k) {
  asks[k->script->tenant] += (uint64_t)k->num_streams;
}

static void note_ask(const group_t *g) {
  memory_t *memory = memory_of(g);
  asks[client_of(g)] += (uint64_t)memory->num_sequences;
  memory->runs = false;
}

/* Those that were preempted for want of blocks, or for others, ask again. */
static void note_asks(const scheduler_t *s) {
  view_t view = look(s, NULL);
  const group_queue_t *away[] = {&s->waiting.queue, &s->swapped};
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = away[i]->head; g; g = g->next)
      if (memory_of(g)->runs) note_ask(g);
  }
  for (const group_t *g = s->running.head; g; g = g->next) {
    if (memory_of(g)->runs && has_begun(g, &g->sequence)) note_ask(g);
  }
  for (uint64_t c = 0; c <= SIM_TENANTS; c++) {
    /* The shares of the others grow when a client leaves. */
    if (was_there[c] && !view.clients[c].is_there) asks[c] += (uint64_t)sim.scenario->count;
    was_there[c] = view.clients[c].is_there;
  }
}

static void note_runs(const scheduler_t *s) {
  const group_queue_t *waiting[] = {&s->waiting.queue, &s->swapped};
  for (int i = 0; i < 2; i++) {
    for (const group_t *g = waiting[i]->head; g; g = g->next) {
      for (const sequence_t *q = &g->sequence; q; q = q->next)
        memories[track_of(g)->index][q->index].runs = false;
    }
  }
  for (const group_t *g = s->running.head; g; g = g->next) {
    memory_t *first = memory_of(g);
    if (!first->is_known) first->begun_before = sum_of_others(begun, client_of(g));
    first->is_known = true;
    for (const sequence_t *q = &g->sequence; q; q = q->next) {
      memory_t *memory = &memories[track_of(g)->index][has_beams(g) ? 0 : q->index];
      begun[client_of(g)] += has_begun(g, q);
      memory->runs = true;
      memory->admitted = g->yield.let_in;
    }
  }
}

/* Where --with shapes asks for it, until 10^8 steps of it have held; and where costs jump. It knows
 * one class of requests. */
static bool is_asked(const scheduler_t *s) {
  if (scenario_has(sim.scenario, SIM_BEST_EFFORT)) return false;
  const bool is_law =
      scenario_has(sim.scenario, SIM_SHAPES) || scenario_has(sim.scenario, SIM_JUMPS);
  return is_law && (s->options.fair_share || s->num_yields > yields_before);
}

void law_step(void) {
  const scheduler_t *s = sim.engine->scheduler;
  note_asks(s);
  if (is_asked(s)) {
    const view_t view = look(s, NULL);
    check_passed(s);
    check_givers(s, &view);
    check_owed(s);
  }
  if (s->options.fair_share) check_rows(s);
  note_runs(s);
  yields_before = s->num_yields;
}

void law_iteration(void) {
  const scheduler_t *s = sim.engine->scheduler;
  const group_queue_t *queues[] = {&s->waiting.queue, &s->swapped, &s->running};
  if (is_asked(s) && s->num_yields > yields_before) { /* of a plan without a step */
    note_asks(s);
    check_givers(s, NULL);
  }
  for (int i = 0; i < 3; i++) {
    for (const group_t *g = queues[i]->head; g; g = g->next) {
      memory_t *memory = memory_of(g);
      memory->num_skips = g->num_skips;
      if (i < 2) continue;
      memory->num_blocks = blocks_of(s, g);
      memory->num_sequences = sequences_of(g);
    }
  }
}
