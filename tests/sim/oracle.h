/* oracle.h: what every request of a scenario must get, known before the engine has seen it.
 *
 * Functions of the scenario; oracle_prepare and oracle_search fill a track. One thread.
 */
#ifndef INFERD_TESTS_SIM_ORACLE_H
#define INFERD_TESTS_SIM_ORACLE_H

#include "tests/sim/language.h"
#include "tests/sim/sim.h"

/* oracle.c: the model of the simulated device, and what follows from it. */
uint64_t oracle_start(const script_t *script); /* hash before the first token */
/* The hash before the token at `position`, of the hash behind the one before it: another where the
 * request's adapter begins. */
uint64_t oracle_before(const script_t *script, uint64_t prefix, int32_t position);
/* Whether a slot has what follows `before`; adapter first to last, of any salt, may begin with the
 * token. */
bool oracle_follows(uint64_t have, uint64_t before, int32_t id, int32_t first, int32_t last);
uint64_t oracle_extend(uint64_t prefix, int32_t id); /* hash with one token more */
/* The token after a prefix, -1 = none may come. `key` and `position` are the random stream, 0 and 0
 * when greedy; `allowed` has a bit for each id, NULL = all. */
int32_t oracle_draw(const scenario_t *scenario, uint64_t prefix, uint64_t key, uint64_t position,
                    const int32_t *suppressed, int32_t num_suppressed, const uint32_t *allowed);
float oracle_logprob(uint64_t prefix, int32_t id);
/* The `wanted` best ids after a prefix, as beams ask for them. Returns how many there are. */
int32_t oracle_top(const scenario_t *scenario, uint64_t prefix, int32_t wanted,
                   token_logprob_t *top);
/* Fills everything that must come for a prompt. */
void oracle_prepare(const scenario_t *scenario, int index, const tokenizer_t *tokenizer,
                    const int32_t *prompt, int32_t num_prompt, track_t *track);

/* oracle_beam.c: fills what a request with beams must get; its prompt is in every stream. */
void oracle_search(const scenario_t *scenario, track_t *track, const tokenizer_t *tokenizer);
/* What the sequence of a beam must hold now, checked to be one of those that live. */
stream_t *oracle_beam(track_t *track, const sequence_t *sequence);

/* oracle.c, of one continuation: its text, and where it ends. */
typedef struct text {
  const script_t *script;
  stream_t *stream;
  char raw[8];
  int num_raw;         /* bytes of an unfinished character */
  size_t search_begin; /* stop strings lie behind this */
  int stop;            /* index, or -1 */
  language_state_t language;
} text_t;

void oracle_text_begin(text_t *text, const script_t *script, stream_t *stream);
/* The stop check of the contract, for the id that was appended last; num_expected counts it. True =
 * the sequence ends with it. */
bool oracle_text_add(text_t *text, const tokenizer_t *tokenizer, int32_t id, int32_t tokens_max);
void oracle_text_end(text_t *text);
bool oracle_is_end(const script_t *script, int32_t id); /* EOS, or a stop id */

/* Most side blocks that a sequence of so many tokens holds. */
int32_t check_most_sides(const scheduler_t *scheduler, int32_t tokens);
/* Whether a group that waits has run in the plan that was made last, when others were let in. With
 * windows the chunk of a prefill that these have passed may preempt it, or finds that it must go
 * back itself. */
bool check_left_running(const scheduler_t *scheduler, const group_t *group);

#endif
