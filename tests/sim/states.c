/* states.c: a shadow of the states that a model keeps beside its K/V, one hash per slot.
 *
 * A slot holds the hash of the cache domain and of all tokens that its sequence has computed. Every
 * row reads it and compares it with what the oracle says for so many tokens, then extends it by its
 * own. So a state that was not copied, was taken by another, or ran over a token twice is seen.
 * A row stores the hash on its way where the batch says.
 */
#include "tests/sim/states.h"

#include "tests/sim/followers.h"

#include <stdlib.h>

enum { SAVES_MAX = 256 }; /* states that a step writes */

static uint64_t *slots;
static int32_t num_slots;

static int64_t sim_values(int32_t heads, int32_t key_dim, int32_t value_dim) {
  return (int64_t)heads * key_dim * value_dim;
}

static size_t sim_bytes(const state_desc_t *desc, int32_t count) {
  (void)desc;
  return (size_t)count * sizeof *slots;
}

static int sim_make(device_t *d, const state_desc_t *desc, inferd_error_t *error) {
  if (device_follows(d)) return 0; /* what it would do is compared with rank 0 */
  num_slots = desc->num_slots;
  slots = calloc((size_t)num_slots, sizeof *slots);
  return slots ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for simulated states");
}

void states_close(void) {
  free(slots);
  slots = NULL;
  num_slots = 0;
}

void states_begin(const batch_t *b) {
  for (int32_t i = 0; i < b->num_state_copies; i++) {
    const state_copy_t *c = &b->state_copies[i];
    REQUIRE(c->src > 0 && c->src < num_slots && c->dst > 0 && c->dst < num_slots &&
                c->src != c->dst,
            "a copy of state %d to state %d", c->src, c->dst);
    slots[c->dst] = slots[c->src];
  }
  int32_t written[SAVES_MAX], count = 0;
  REQUIRE(b->num_reqs + b->num_state_saves <= SAVES_MAX, "a step writes too many states");
  for (int32_t r = 0; r < b->num_reqs && num_slots > 0; r++) written[count++] = b->state_slots[r];
  for (int32_t i = 0; i < b->num_state_saves; i++) {
    const state_save_t *s = &b->state_saves[i], *before = i > 0 ? s - 1 : NULL;
    REQUIRE(s->row >= 0 && s->row < b->num_reqs && s->slot > 0 && s->slot < num_slots &&
                (!before || before->row < s->row ||
                 (before->row == s->row && before->behind <= s->behind)),
            "row %d stores its state in slot %d", s->row, s->slot);
    const state_save_t *most = i >= STATE_SAVES_OF_TOKEN ? s - STATE_SAVES_OF_TOKEN : NULL;
    REQUIRE(!most || most->row < s->row || most->behind < s->behind,
            "row %d stores its state behind token %d once more", s->row, s->behind);
    written[count++] = s->slot;
  }
  for (int32_t i = 0; i < count; i++) {
    for (int32_t j = 0; j < i; j++)
      REQUIRE(written[i] != written[j], "state %d is written twice", written[i]);
  }
}

void states_run_row(const batch_t *b, int32_t row, const sequence_t *q, const int32_t *ids) {
  if (num_slots == 0) {
    REQUIRE(b->state_slots[row] == 0, "row %d has a state, the model none", row);
    return;
  }
  const track_t *owner = check_track(q);
  const stream_t *k = check_stream(q);
  int32_t slot = b->state_slots[row], computed = b->num_computed_tokens[row];
  REQUIRE(slot > 0 && slot < num_slots, "row %d has state %d", row, slot);
  uint64_t hash = computed ? slots[slot] : oracle_start(owner->script);
  bool ended = computed > owner->num_prompt + k->num_expected; /* in the step before */
  REQUIRE(ended || computed == 0 || hash == k->hash[computed - 1],
          "request %d reads a wrong state: slot %d, behind %d tokens", owner->index, slot,
          computed);
  int32_t count = b->query_start_loc[row + 1] - b->query_start_loc[row];
  for (int32_t i = 0; i < count; i++) {
    hash = oracle_extend(hash, ids[i]);
    for (int32_t s = 0; s < b->num_state_saves; s++) {
      const state_save_t *save = &b->state_saves[s];
      if (save->row == row && save->behind == i + 1) slots[save->slot] = hash;
    }
  }
  slots[slot] = hash;
}

static void no_conv(device_t *d, act_t *out, const act_t *in, const conv_t *conv) {
  (void)d, (void)out, (void)in, (void)conv;
}
static void no_recur(device_t *d, act_t *out, act_t *in, act_t *scratch, const recurrence_t *r) {
  (void)d, (void)out, (void)in, (void)scratch, (void)r;
}
static void no_gate(device_t *d, act_t *out, const act_t *in, const act_t *gate, const gating_t *g,
                    int32_t rows) {
  (void)d, (void)out, (void)in, (void)gate, (void)g, (void)rows;
}

static void no_scale(device_t *d, act_t *x, const vector_t *factors, int32_t width, int32_t rows) {
  (void)d, (void)x, (void)factors, (void)width, (void)rows;
}

const state_ops_t sim_state_ops = {.key_dim_max = INT32_MAX,
                                   .values = sim_values,
                                   .bytes = sim_bytes,
                                   .make = sim_make,
                                   .conv = no_conv,
                                   .recur = no_recur,
                                   .gate = no_gate,
                                   .scale = no_scale};
