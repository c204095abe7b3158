/* device.c: the simulated back end: no arithmetic, but a shadow of the KV store.
 *
 * A slot of the store holds the hash of the cache domain and of the ids up to its token. A forward
 * extends the hash that lies in the slot before; attention then reads every slot that a row may see
 * and compares it with what the oracle says for this request. So a wrong block, a block written too
 * early, too late or by somebody else, and a cache hit on foreign content are seen at once, whether
 * or not they would have changed a token. Results stay hidden until `end`, as on a real device.
 */
#include "tests/sim/followers.h"
#include "tests/sim/jumps.h"
#include "tests/sim/mask_units.h"
#include "tests/sim/no_ops.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pools.h"
#include "tests/sim/predicts.h"
#include "tests/sim/sees.h"
#include "tests/sim/states.h"

#include "engine/base/random.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS_MAX = 256, SELECTED_MAX = 256, NOT_YET = INT32_MIN };

/* A result that waits for the `end` of its step. */
typedef struct drawn {
  sample_result_t *result;
  sample_result_t value;
  token_logprob_t top[SAMPLE_TOP_MAX];
} drawn_t;

typedef struct flying {
  int32_t num_tokens, num_rows, num_drawn;
  track_t **rows;     /* [rows_max] */
  drawn_t *drawn;     /* [tokens_max], by selected row */
  float *hidden;      /* SIM_POOLS: where the selected rows go at its `end`; NULL = it has none */
  uint64_t *prefixes; /* [tokens_max] hash behind each of them; 0 = the row is broken */
} flying_t;

struct device {
  bool is_drafter;    /* runs the draft model */
  comm_t *comm;       /* other ranks; NULL = none */
  bool follows;       /* of a rank that is not 0 */
  bool is_predicting; /* in a batch of the layer that predicts */
  uint64_t *shadow;   /* [slots] */
  uint64_t *written;  /* [slots] step that wrote it last */
  int64_t num_slots;
  sim_host_t host;
  int32_t block_size, drawn_max;
  const batch_t *batch;
  uint64_t launched, ended; /* steps */
  int32_t logits_first;
  flying_t flying[2]; /* by step number */
  void *buffers[BUFFERS_MAX];
  int num_buffers;
};

static device_t *device; /* the one that is open */
static uint64_t reads;

const uint64_t *device_rows(int32_t block) {
  return &device->shadow[(int64_t)block * device->block_size];
}

uint64_t *device_slots(device_t *d, int32_t block) {
  int64_t first = (int64_t)block * d->block_size;
  REQUIRE(block > 0 && first < d->num_slots, "there is no block %d", block);
  return &d->shadow[first];
}

sim_host_t *device_host(device_t *d) {
  return d ? &d->host : &device->host;
}

bool device_follows(const device_t *d) {
  return d->follows;
}

uint64_t device_reads(void) {
  return reads;
}

/* ---- set-up ---- */

static int no_memory(inferd_error_t *error) {
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the simulated device");
}

static int sim_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  *out = calloc(1, sizeof **out);
  if (!*out) return no_memory(error);
  (*out)->comm = options->comm;
  (*out)->follows = options->comm != NULL && options->comm->rank > 0;
  (*out)->is_drafter = !(*out)->follows && device != NULL;
  if (!device && !(*out)->follows) device = *out;
  return 0;
}

static void sim_close(device_t *d) {
  for (int i = 0; i < d->num_buffers; i++) free(d->buffers[i]);
  free(d->host.slots);
  free(d->shadow);
  free(d->written);
  for (int i = 0; i < 2; i++) {
    free(d->flying[i].rows);
    free(d->flying[i].drawn);
    free(d->flying[i].prefixes);
  }
  if (!d->is_drafter && !d->follows) states_close();
  if (d == device) device = NULL;
  free(d);
}

static const char *sim_describe(const device_t *d) {
  (void)d;
  return "simulated device";
}

static size_t sim_memory_free(const device_t *d) {
  (void)d;
  return (size_t)1 << 30;
}

static void *keep(device_t *d) {
  void *p = d->num_buffers < BUFFERS_MAX ? calloc(1, 1) : NULL;
  if (p) d->buffers[d->num_buffers++] = p;
  return p;
}

static int sim_weight(device_t *d, const weight_source_t *source, weight_t **out,
                      inferd_error_t *error) {
  (void)source;
  *out = keep(d);
  return *out ? 0 : no_memory(error);
}

static int sim_vector(device_t *d, const float *values, int64_t count, vector_t **out,
                      inferd_error_t *error) {
  (void)values, (void)count;
  *out = keep(d);
  return *out ? 0 : no_memory(error);
}

static size_t sim_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks) {
  return (size_t)num_blocks * (size_t)desc->block_size * sizeof(uint64_t);
}

static int sim_kv_cache(device_t *d, const kv_cache_desc_t *desc, inferd_error_t *error) {
  d->num_slots = (int64_t)desc->num_blocks * desc->block_size;
  d->block_size = desc->block_size;
  d->host.block_size = desc->block_size;
  d->shadow = calloc((size_t)d->num_slots, sizeof *d->shadow);
  d->written = calloc((size_t)d->num_slots, sizeof *d->written);
  return d->shadow && d->written ? 0 : no_memory(error);
}

static int sim_lora(device_t *d, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                    int32_t rank_max, lora_t **out, inferd_error_t *error) {
  (void)kind, (void)rows, (void)cols, (void)slots, (void)rank_max;
  *out = keep(d);
  return *out ? 0 : no_memory(error);
}

static const lora_ops_t sim_lora_ops = {.make = sim_lora,
                                        .set = no_lora_set,
                                        .add = no_lora_add,
                                        .embed = no_lora_embed,
                                        .logits = no_lora_logits};

static int sim_prepare(device_t *d, const step_limits_t *limits, inferd_error_t *error) {
  d->drawn_max = limits->tokens_max;
  for (int i = 0; i < 2; i++) {
    flying_t *f = &d->flying[i];
    f->rows = calloc((size_t)limits->reqs_max, sizeof(track_t *));
    f->drawn = calloc((size_t)d->drawn_max, sizeof *f->drawn);
    f->prefixes = calloc((size_t)d->drawn_max, sizeof *f->prefixes);
    if (!f->rows || !f->drawn || !f->prefixes) return no_memory(error);
  }
  return 0;
}

static act_t *sim_buffer(device_t *d, int64_t rows, int64_t width) {
  (void)rows, (void)width;
  return keep(d);
}

/* ---- a step ---- */

static int64_t slot_of(const device_t *d, const batch_t *b, int32_t row, int32_t group,
                       int32_t position) {
  int32_t block = b->block_table[row][group * b->block_table_stride + position / d->block_size];
  REQUIRE(block > 0 && (int64_t)block * d->block_size < d->num_slots,
          "the block table of row %d, group %d, has %d at position %d", row, group, block,
          position);
  return (int64_t)block * d->block_size + position % d->block_size;
}

/* A GPU makes all copies beside each other: what one writes, no other may read or write. */
static void run_copies(device_t *d, const batch_t *b) {
  for (int32_t i = 0; i < b->num_copies; i++) {
    const block_copy_t *c = &b->copies[i];
    REQUIRE(c->rows >= 1 && c->rows <= d->block_size && c->src != c->dst && c->src > 0 &&
                c->dst > 0,
            "a copy of %d rows from block %d to block %d", c->rows, c->src, c->dst);
    for (int32_t j = 0; j < b->num_copies; j++)
      REQUIRE(b->copies[j].src != c->dst && (j == i || b->copies[j].dst != c->dst),
              "block %d gets a copy, and another copy of the step reads or writes it", c->dst);
    memcpy(&d->shadow[(int64_t)c->dst * d->block_size], &d->shadow[(int64_t)c->src * d->block_size],
           (size_t)c->rows * sizeof *d->shadow);
  }
}

/* The id of a token; one that the step before draws is known here already, but nowhere else. */
static int32_t id_of(const device_t *d, const batch_t *b, int32_t t) {
  if (b->input_ids[t] >= 0) return b->input_ids[t];
  const flying_t *before = &d->flying[(d->launched - 1) % 2];
  int32_t index = -1 - b->input_ids[t];
  REQUIRE(d->launched - d->ended == 2 && index < before->num_drawn,
          "token %d stands for selected row %d of a step that is not in flight", t, index);
  return before->drawn[index].value.id;
}

/* K and V of the whole batch are stored before any attention reads. */
static void store_row(device_t *d, const batch_t *b, int32_t row, const track_t *k) {
  for (int32_t t = b->query_start_loc[row]; t < b->query_start_loc[row + 1]; t++) {
    int32_t position = b->positions[t];
    uint64_t prefix =
        position ? d->shadow[slot_of(d, b, row, 0, position - 1)] : oracle_start(k->script);
    prefix = oracle_before(k->script, prefix, position);
    for (int32_t g = 0; g < b->num_groups; g++) {
      int64_t slot = b->slot_mapping[g * b->slots_stride + t];
      REQUIRE(slot == slot_of(d, b, row, g, position), "row %d writes position %d to slot %lld",
              row, position, (long long)slot);
      REQUIRE(d->written[slot] != d->launched, "slot %lld is written twice in a step",
              (long long)slot);
      d->written[slot] = d->launched;
      d->shadow[slot] = oracle_extend(prefix, sees_read(b, t, id_of(d, b, t)));
    }
  }
}

/* What the layers of a group see: up to the row's last position, from 0 or, with a window, from the
 * first one that the row's first token sees. */
static void read_group(const device_t *d, const batch_t *b, int32_t row, int32_t group,
                       const sequence_t *q, int32_t length) {
  int32_t bs = d->block_size, p = 0, count;
  const track_t *owner = check_track(q);
  const stream_t *k = check_stream(q);
  int32_t first = b->num_computed_tokens[row] + 1 - sim.scenario->window;
  if (group > 0 && first > 0) p = first;
  for (; p < length; p += count) {
    count = bs - p % bs < length - p ? bs - p % bs : length - p;
    const uint64_t *have = &d->shadow[slot_of(d, b, row, group, p)];
    if (memcmp(have, &k->hash[p], (size_t)count * sizeof *have) == 0) continue;
    int32_t i = 0;
    while (have[i] == k->hash[p + i]) i++;
    sim_fail("request %lld reads a wrong slot: position %d of %d, group %d, block %d, %s",
             (long long)owner->index, p + i, length, group,
             b->block_table[row][group * b->block_table_stride + p / bs],
             have[i] ? "foreign content" : "never written");
  }
}

static void read_row(const device_t *d, const batch_t *b, int32_t row, const sequence_t *q,
                     int32_t length) {
  const track_t *owner = check_track(q);
  if (length > owner->num_prompt + check_stream(q)->num_expected)
    return; /* it has ended in the step before */
  for (int32_t g = 0; g < b->num_groups; g++) read_group(d, b, row, g, q, length);
  reads += (uint64_t)length;
}

/* Every token of a row takes the adapter that its request names, from where it begins. */
static void check_adapters(const batch_t *b) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  int32_t adapted = 0;
  for (int32_t t = 0; t < b->num_tokens; t++) {
    const track_t *k = check_track(plan->entries[b->request_row[t]].sequence);
    const int32_t adapter = b->num_adapted > 0 ? b->adapters[t] : 0; /* 0: it is not read */
    const bool is_base = b->positions[t] < k->script->adapter_from;
    const int32_t right = is_base ? 0 : k->script->adapter;
    REQUIRE(adapter == right, "I8: request %d: adapter %d, it must be %d", k->index, adapter,
            right);
    adapted += adapter > 0;
  }
  REQUIRE(b->num_adapted == adapted, "%d tokens take an adapter, the batch says %d", adapted,
          b->num_adapted);
}

/* The sequence of a row of the draft model's own batch. */
static const sequence_t *drafting_sequence(const batch_t *b, int32_t row) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (entry->num_drafts > 0 && entry->sequence->blocks == b->block_table[row]) {
      return entry->sequence;
    }
  }
  sim_fail("row %d of the draft model belongs to no sequence", row);
}

/* A step of the draft model: one of the large model's again, or one draft token for some of its
 * rows. Either way its cache must hold what the large one's holds. */
static void begin_draft(device_t *d, const batch_t *b) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  const batch_t *one = sim.engine->steps[0].batch, *other = sim.engine->steps[1].batch;
  const bool mirror =
      b->block_table == one->block_table || (other != NULL && b->block_table == other->block_table);
  d->flying[d->launched % 2].num_drawn = 0;
  run_copies(d, b);
  for (int32_t r = 0; r < b->num_reqs; r++) {
    const sequence_t *q = mirror ? plan->entries[r].sequence : drafting_sequence(b, r);
    store_row(d, b, r, check_track(q));
  }
  for (int32_t r = 0; r < b->num_reqs; r++) {
    const sequence_t *q = mirror ? plan->entries[r].sequence : drafting_sequence(b, r);
    int32_t known = sequence_num_tokens(q), length = b->seq_lens[r];
    if (mirror) known = length - plan->entries[r].num_drafts; /* those may be wrong */
    read_row(d, b, r, q, length < known ? length : known);
  }
}

static void run_state(const device_t *d, const batch_t *b, int32_t row, const sequence_t *q) {
  static int32_t ids[SIM_CONTEXT_MAX];
  int32_t first = b->query_start_loc[row], count = b->query_start_loc[row + 1] - first;
  for (int32_t i = 0; i < count; i++) ids[i] = id_of(d, b, first + i);
  states_run_row(b, row, q, ids);
}

/* What kernels take their grids and tables from. */
static void check_bounds(const batch_t *b) {
  int32_t queries = 0, length = 0;
  for (int32_t r = 0; r < b->num_reqs; r++) {
    const int32_t count = b->query_start_loc[r + 1] - b->query_start_loc[r];
    if (count > queries) queries = count;
    if (b->seq_lens[r] > length) length = b->seq_lens[r];
  }
  REQUIRE(b->max_query_len == queries && b->max_seq_len == length,
          "a batch says rows of %d tokens at most in sequences of %d, they have %d in %d",
          b->max_query_len, b->max_seq_len, queries, length);
}

static void sim_begin(device_t *d, const batch_t *b) {
  d->batch = b;
  check_bounds(b);
  d->is_predicting = predicts_runs(b);
  if (d->is_predicting) {
    predicts_begin(b);
    return;
  }
  d->launched++;
  if (d->follows) {
    run_copies(d, b);
    return;
  }
  if (d->is_drafter) {
    begin_draft(d, b);
    return;
  }
  flying_t *f = &d->flying[d->launched % 2];
  REQUIRE(d->launched - d->ended <= (uint64_t)ops_sim.pipeline_depth, "too many steps in flight");
  f->num_tokens = b->num_tokens;
  f->num_rows = b->num_reqs;
  f->num_drawn = 0;
  if (sim.torture) {
    f->num_rows = 0;
    return;
  }
  check_step(b);
  queue_check_step(sim.engine);
  sees_step(b);
  mask_units_step(sim.engine);
  run_copies(d, b);
  const plan_t *plan = &sim.engine->scheduler->plan;
  for (int32_t r = 0; r < b->num_reqs; r++) {
    f->rows[r] = check_track(plan->entries[r].sequence);
    store_row(d, b, r, f->rows[r]);
  }
  states_begin(b);
  for (int32_t r = 0; r < b->num_reqs; r++) run_state(d, b, r, plan->entries[r].sequence);
  check_adapters(b);
  for (int32_t r = 0; r < b->num_reqs; r++) {
    const plan_entry_t *entry = &plan->entries[r];
    read_row(d, b, r, entry->sequence, b->seq_lens[r] - entry->num_drafts); /* they may be wrong */
  }
}

/* Slots, copies and snapshots of a follower are those of rank 0, whose states are checked. */
static void check_states(const device_t *d, const batch_t *b) {
  const batch_t *first = device->batch;
  const size_t rows = (size_t)b->num_reqs * sizeof *b->state_slots;
  REQUIRE(memcmp(b->state_slots, first->state_slots, rows) == 0, "rank %d uses other states",
          d->comm->rank);
  REQUIRE(b->num_state_copies == first->num_state_copies &&
              memcmp(b->state_copies, first->state_copies,
                     (size_t)b->num_state_copies * sizeof *b->state_copies) == 0,
          "rank %d copies other states", d->comm->rank);
  REQUIRE(b->num_state_saves == first->num_state_saves &&
              memcmp(b->state_saves, first->state_saves,
                     (size_t)b->num_state_saves * sizeof *b->state_saves) == 0,
          "rank %d saves other states", d->comm->rank);
}

/* A follower does with its own store what rank 0 has done in this step, which waits for it, unless
 * it is lost. */
static void run_follower(device_t *d, const batch_t *b) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  const flying_t *f = &device->flying[device->launched % 2];
  REQUIRE(d->launched == device->launched && b->num_reqs == f->num_rows &&
              b->num_tokens == f->num_tokens,
          "rank %d runs step %llu, %d rows, %d tokens; rank 0 step %llu, %d rows, %d tokens",
          d->comm->rank, (unsigned long long)d->launched, b->num_reqs, b->num_tokens,
          (unsigned long long)device->launched, f->num_rows, f->num_tokens);
  for (int32_t r = 0; r < b->num_reqs; r++) store_row(d, b, r, f->rows[r]);
  check_adapters(b);
  if (scenario_has(sim.scenario, SIM_STATES)) check_states(d, b);
  for (int32_t r = 0; r < b->num_reqs; r++) {
    const plan_entry_t *entry = &plan->entries[r];
    read_row(d, b, r, entry->sequence, b->seq_lens[r] - entry->num_drafts);
  }
}

/* Each rank says how many rows of a table it has. */
static void sim_rank_embed(device_t *d, act_t *out, const weight_t *table, float scale,
                           const int32_t *cuts) {
  (void)out, (void)table, (void)scale;
  int32_t rows[SIM_RANKS_MAX] = {0};
  size_t bytes[SIM_RANKS_MAX + 1];
  for (int32_t r = 0; r <= d->comm->size; r++) bytes[r] = (size_t)r * sizeof *rows;
  rows[d->comm->rank] = cuts[d->comm->rank + 1] - cuts[d->comm->rank];
  if (comm_gather(d->comm, rows, bytes, -1) != 0) return;
  for (int32_t r = 0; r < d->comm->size; r++)
    REQUIRE(rows[r] == cuts[r + 1] - cuts[r], "rank %d has %d rows", r, rows[r]);
  if (d->follows && !sim.lost) run_follower(d, d->batch);
}

/* Each rank says which columns it has. */
static void sim_rank_gather(device_t *d, act_t *out, const act_t *own, const act_t *residual,
                            const int32_t *cuts, int32_t rows) {
  (void)out, (void)own, (void)residual, (void)rows;
  int32_t columns[SIM_RANKS_MAX][2];
  size_t bytes[SIM_RANKS_MAX + 1];
  memset(columns, -1, sizeof columns);
  for (int32_t r = 0; r <= d->comm->size; r++) bytes[r] = (size_t)r * sizeof *columns;
  memcpy(columns[d->comm->rank], &cuts[d->comm->rank], sizeof *columns);
  if (comm_gather(d->comm, columns, bytes, -1) != 0) return;
  for (int32_t r = 0; r < d->comm->size; r++)
    REQUIRE(columns[r][0] == cuts[r] && columns[r][1] == cuts[r + 1],
            "rank %d has columns from %d to %d, they must be %d to %d", r, columns[r][0],
            columns[r][1], cuts[r], cuts[r + 1]);
}

static void sim_rank_reduce(device_t *d, act_t *out, act_t *sums, const act_t *residual,
                            int32_t width, int32_t rows) {
  (void)out, (void)sums, (void)residual, (void)width, (void)rows;
  float count = 1;
  if (comm_reduce(d->comm, &count, 1) == 0)
    REQUIRE(count == (float)d->comm->size, "the sum of %d ranks is %f", d->comm->size, count);
}

/* Rank 0 gets of every rank what it has behind the selected rows. */
static void sim_rank_logits(device_t *d, const int32_t *cuts, int32_t rows) {
  (void)cuts;
  static uint64_t hashes[SIM_RANKS_MAX][SIM_RANKS_MAX * SELECTED_MAX];
  const batch_t *b = d->batch;
  size_t bytes[SIM_RANKS_MAX + 1];
  uint64_t *all = hashes[d->comm->rank], *own = all + d->comm->rank * rows;
  REQUIRE(rows <= SELECTED_MAX, "%d selected rows", rows);
  for (int32_t r = 0; r <= d->comm->size; r++) bytes[r] = (size_t)(r * rows) * sizeof *all;
  for (int32_t i = 0; i < rows; i++)
    own[i] = d->shadow[b->slot_mapping[b->selected_token_indices[d->logits_first + i]]];
  if (comm_gather(d->comm, all, bytes, 0) != 0 || d->follows) return;
  for (int32_t i = 0; i < d->comm->size * rows; i++)
    REQUIRE(all[i] == own[i % rows], "rank %d has another text behind selected row %d", i / rows,
            d->logits_first + i % rows);
}

static const rank_ops_t sim_rank_ops = {.panel_rows = 1,
                                        .gather = sim_rank_gather,
                                        .reduce = sim_rank_reduce,
                                        .embed = sim_rank_embed,
                                        .logits = sim_rank_logits};

static void sim_logits(device_t *d, const act_t *hidden, const weight_t *head, const vector_t *bias,
                       float softcap, int32_t first, int32_t rows) {
  (void)hidden, (void)head, (void)bias, (void)softcap, (void)rows;
  d->logits_first = first;
}

static void draw(const device_t *d, const sample_row_t *row, int32_t index, const track_t *k,
                 sample_result_t *r) {
  const batch_t *b = d->batch;
  uint64_t hash = d->shadow[b->slot_mapping[b->selected_token_indices[index]]];
  bool greedy = row->params->temperature == 0;
  REQUIRE(row->num_prompt == (k->script->rows ? 0 : k->num_prompt),
          "a sample row says %d prompt tokens", row->num_prompt);
  const sequence_t *q = sim.engine->scheduler->plan.entries[b->selected_row[index]].sequence;
  const int32_t *ids = check_stream(q)->ids;
  REQUIRE(
      memcmp(row->output_ids, ids + k->num_prompt, (size_t)q->num_output_tokens * sizeof *ids) == 0,
      "the sampler is shown other output than the request has");
  bool nan = row->score_id < 0 && k->script->nan_at == (int32_t)row->rng_position;
  r->status = nan || k->script->fault ? ERR_INTERNAL : 0;
  r->id = row->score_id;
  if (row->score_id < 0) {
    r->id =
        oracle_draw(sim.scenario, hash, greedy ? 0 : row->rng_key, greedy ? 0 : row->rng_position,
                    row->suppressed_ids, row->num_suppressed, row->allowed_mask);
    if (r->id < 0) r->status = ERR_INTERNAL;
  }
  if (row->params->beam_width > 0 && row->score_id < 0) {
    r->num_top = oracle_top(sim.scenario, hash, row->num_top, r->top);
    return;
  }
  r->logprob = oracle_logprob(hash, r->id);
  r->rank = 1;
  r->num_top = row->num_top > 0 ? row->num_top : 0;
  for (int32_t i = 0; i < r->num_top; i++) {
    r->top[i] = (token_logprob_t){.id = i, .logprob = oracle_logprob(hash, i)};
  }
}

/* All rows of a step for the layer that predicts, or what leaves it. */
static void read_predicted(const device_t *d, float *out, int32_t width, int32_t rows) {
  const batch_t *b = d->batch;
  for (int32_t i = 0; i < rows; i++) {
    uint64_t prefix = i < b->num_selected ? predicts_kept(i) : 0;
    if (!d->is_predicting) prefix = d->shadow[b->slot_mapping[i]];
    predicts_read(out + (size_t)i * (size_t)width, width, prefix);
  }
}

static void sim_write_rows(device_t *d, act_t *out, const float *in, int32_t width, int32_t rows) {
  (void)out, (void)rows;
  if (d->is_predicting && width == SIM_POOLED) predicts_take(d->batch, in, width);
}

/* The selected rows of an engine that makes vectors. Nothing is there before `end`. */
static void sim_read_rows(device_t *d, float *out, const act_t *in, int32_t width, int32_t rows) {
  (void)in;
  const batch_t *b = d->batch;
  if (!sim.torture && scenario_has(sim.scenario, SIM_MTP)) {
    read_predicted(d, out, width, rows);
    return;
  }
  flying_t *f = &d->flying[d->launched % 2];
  REQUIRE(width == SIM_POOLED && rows == b->num_selected && rows <= d->drawn_max,
          "%d rows of %d values are read, %d are selected", rows, width, b->num_selected);
  f->hidden = out;
  f->num_drawn = rows;
  for (int32_t i = 0; i < rows; i++) {
    int32_t token = b->selected_token_indices[i];
    const script_t *script = f->rows[b->selected_row[i]]->script;
    bool breaks = pools_breaks(script, b->positions[token]);
    f->prefixes[i] = breaks ? 0 : d->shadow[b->slot_mapping[token]];
    for (int32_t c = 0; c < width; c++) out[i * width + c] = NAN;
  }
}

static void end_rows(flying_t *f) {
  for (int32_t i = 0; i < f->num_drawn; i++) {
    float *row = &f->hidden[i * SIM_POOLED];
    for (int32_t c = 0; c < SIM_POOLED; c++) row[c] = pools_value(f->prefixes[i], c);
    if (f->prefixes[i] == 0) row[i % SIM_POOLED] = i % 2 ? NAN : INFINITY;
  }
  f->hidden = NULL;
  f->num_drawn = 0;
}

/* Without an oracle: letters in the order of the alphabet. */
static void draw_letters(const sample_row_t *rows, int32_t num_rows) {
  for (int32_t i = 0; i < num_rows; i++) {
    sample_result_t *r = rows[i].result;
    r->id = rows[i].score_id >= 0 ? rows[i].score_id : 66 + (int32_t)(rows[i].rng_position % 26);
    r->status = 0;
    r->logprob = -1;
    r->rank = 1;
    r->num_top = rows[i].num_top > 0 ? rows[i].num_top : 0;
    for (int32_t t = 0; t < r->num_top; t++) r->top[t] = (token_logprob_t){66 + t, -1};
  }
}

/* Right in three of four cases, wrong or not at all in the others. */
static void draft(const device_t *d, const sample_row_t *row, int32_t index, sample_result_t *r) {
  const batch_t *b = d->batch;
  uint64_t hash = d->is_predicting ? predicts_kept(index)
                                   : d->shadow[b->slot_mapping[b->selected_token_indices[index]]];
  bool greedy = row->params->temperature == 0;
  REQUIRE(row->rng_position == (uint64_t)row->num_output,
          "a draft token is drawn for position %llu of %d", (unsigned long long)row->rng_position,
          row->num_output);
  int32_t id = oracle_draw(sim.scenario, hash, greedy ? 0 : row->rng_key,
                           greedy ? 0 : row->rng_position, NULL, 0, NULL);
  r->id = hash % 8 == 0 ? (id + 1) % SIM_VOCAB : id;
  r->status = hash % 8 == 1 ? ERR_INTERNAL : 0;
  r->num_top = 0;
}

static void sim_sample(device_t *d, const sample_row_t *rows, int32_t num_rows) {
  if (sim.torture) {
    draw_letters(rows, num_rows);
    return;
  }
  const bool drafts = d->is_drafter || d->is_predicting;
  for (int32_t i = 0; drafts && i < num_rows; i++) {
    draft(d, &rows[i], d->logits_first + i, rows[i].result);
  }
  if (drafts) return;
  flying_t *f = &d->flying[d->launched % 2];
  for (int32_t i = 0; i < num_rows; i++) {
    int32_t index = d->logits_first + i;
    REQUIRE(index == f->num_drawn && index < d->drawn_max, "results out of order");
    drawn_t *drawn = &f->drawn[f->num_drawn++];
    drawn->result = rows[i].result;
    drawn->value.top = drawn->top;
    draw(d, &rows[i], index, f->rows[d->batch->selected_row[index]], &drawn->value);
    rows[i].result->id = NOT_YET;
  }
}

static void copy_result(sample_result_t *to, const sample_result_t *from) {
  to->id = from->id;
  to->status = from->status;
  to->logprob = from->logprob;
  to->rank = from->rank;
  to->num_top = from->num_top;
  memcpy(to->top, from->top, (size_t)from->num_top * sizeof *to->top);
}

/* A lost draft model ends no request. */
static int end_draft(device_t *d, inferd_error_t *error) {
  int32_t lost = sim.scenario->lose_drafter_at;
  if (++d->ended < (uint64_t)lost || lost == 0) return 0;
  return error_set(error, ERR_DEVICE_FAILED, NULL, "the simulated draft model is lost");
}

/* Somebody comes while one of four steps runs that may be left. */
bool __wrap_mailbox_has_others(const mailbox_t *mailbox);
bool __wrap_mailbox_has_others(const mailbox_t *mailbox) {
  (void)mailbox;
  if (sim.torture) return false;
  sim.left = random_mix(sim.scenario->seed ^ (device->launched << 8)) % 4 == 0;
  return sim.left;
}

/* The time that a step takes at last: up to `jitter` times as long, or as short; and jumps. */
static uint64_t vary(const scenario_t *c, uint64_t step, const flying_t *f) {
  uint64_t ns = c->step_ns + c->token_ns * (uint64_t)f->num_tokens;
  uint64_t bits = random_mix(c->seed + step), times = 1 + bits / 2 % (uint64_t)MAX(c->jitter, 1);
  ns = bits % 2 ? ns * times : ns / times;
  return (uint64_t)(jumps_factor(c, step, f->num_tokens, f->num_rows) * (double)ns);
}

static int end_follower(device_t *d, inferd_error_t *error) {
  d->ended++;
  if (d->comm->error.code != 0) *error = d->comm->error;
  if (d->comm->error.code == 0 && followers_breaks(d->comm))
    error_set(error, ERR_DEVICE_FAILED, NULL, "the device of rank %d breaks", d->comm->rank);
  return error->code;
}

static int sim_end(device_t *d, inferd_error_t *error) {
  if (d->follows) return end_follower(d, error);
  if (d->is_drafter) return end_draft(d, error);
  if (d->is_predicting) return 0;
  static const scenario_t none;
  const scenario_t *c = sim.torture ? &none : sim.scenario;
  sim.now_ns += sim.torture ? 1000000 : 0;
  REQUIRE(d->ended < d->launched, "a step is ended that was not launched");
  flying_t *f = &d->flying[++d->ended % 2];
  sim.now_ns += vary(c, d->ended, f);
  sim.landed_ns = sim.now_ns;
  if (d->comm != NULL && d->comm->error.code != 0) {
    sim.steps++;
    *error = d->comm->error;
    return ERR_DEVICE_FAILED;
  }
  if (sim.left) check_left();
  sim.was_left = sim.left;
  if (sim.left) {
    REQUIRE(f->num_drawn == 0 && f->hidden == NULL, "I14: a step that is left is drawn");
    sim.left = false;
    return 0;
  }
  if (f->hidden != NULL) end_rows(f);
  for (int32_t i = 0; i < f->num_drawn; i++) copy_result(f->drawn[i].result, &f->drawn[i].value);
  for (int32_t r = 0; r < f->num_rows; r++) f->rows[r]->was_landed = true;
  sim.steps++;
  sim.tokens += (uint64_t)f->num_tokens;
  const bool breaks = d->comm != NULL && followers_breaks(d->comm);
  if (!breaks && (c->lose_device_at == 0 || d->ended < (uint64_t)c->lose_device_at)) return 0;
  sim.lost = true;
  return error_set(error, ERR_DEVICE_FAILED, NULL, "the simulated device was told to fail");
}

/* ---- arithmetic that is not done ---- */

static void no_logits(device_t *d, float *out, int32_t rows) {
  (void)d, (void)out, (void)rows;
}

static void no_pictures(device_t *d, act_t *x, int32_t plane, int32_t width) {
  (void)d, (void)x, (void)plane, (void)width; /* sees_read */
}

static void no_layer_pictures(device_t *d, act_t *out, const weight_t *table, int32_t id,
                              float scale) {
  (void)d, (void)out, (void)table, (void)id, (void)scale;
}

static const per_layer_ops_t no_per_layer = {no_layer_pictures, no_gate, no_scale};

ops_t ops_sim = {
    .name = "simulated",
    .pipeline_depth = 1,
    .kv_groups = true,
    .ranks = &sim_rank_ops,
    .swap = &sim_swap_ops,
    .state = &sim_state_ops,
    .per_layer = &no_per_layer,
    .open = sim_open,
    .close = sim_close,
    .describe = sim_describe,
    .memory_free = sim_memory_free,
    .weight = sim_weight,
    .vector = sim_vector,
    .kv_bytes = sim_kv_bytes,
    .kv_cache = sim_kv_cache,
    .lora = &sim_lora_ops,
    .prepare = sim_prepare,
    .buffer = sim_buffer,
    .begin = sim_begin,
    .embed = no_embed,
    .embed_positions = no_positions,
    .embed_pictures = no_pictures,
    .norm = no_norm,
    .linear = no_linear,
    .rope_store = no_rope,
    .attention = no_attention,
    .activation = no_activation,
    .moe = no_moe,
    .gated_add = no_gated_add,
    .gather = no_gather,
    .read_rows = sim_read_rows,
    .write_rows = sim_write_rows,
    .logits = sim_logits,
    .sample = sim_sample,
    .end = sim_end,
    .read_logits = no_logits,
};
