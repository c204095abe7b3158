/* fake_ops.h: a back end without arithmetic, for tests, benchmarks and the simulator.
 *
 * Its "model" draws the next token as a hash of all token ids so far, so that a token stream is
 * right or wrong by definition. A shadow KV store keeps the hash of the prefix in every slot and
 * checks on each step that the block table leads to the prefix that the sequence really has.
 */
#ifndef INFERD_TESTS_SIM_FAKE_OPS_H
#define INFERD_TESTS_SIM_FAKE_OPS_H

#include "engine/device/ops.h"

#include <stdatomic.h>

extern const ops_t ops_fake;
const ops_t *fake_ops_deep(void); /* the same with two steps in flight */

/* Set before engine_create; one fake device at a time. */
typedef struct fake_settings {
  /* a step ends no sooner than this after the last one ended; 0 = at once; may change any time */
  _Atomic uint64_t step_ns;
  atomic_bool held;    /* no step ends while it is set: a device that hangs until a test frees it */
  int32_t first_id;    /* drawn ids are first_id .. vocab - 1 */
  uint32_t eos_one_in; /* 0 = never: else one token in so many is `eos_id` */
  int32_t eos_id;
  int32_t fail_at_step; /* > 0: `end` of this step reports a lost device */
  int32_t nan_after;    /* > 0: rows of sequences at this output position fail */
  uint64_t fail_seed;   /* not 0: rows of requests with this seed fail */
  double swap_rate;     /* of swaps, bytes per second; 0 = 1e12 */
  void (*begun)(void);  /* called when a step has begun, on the engine thread; NULL = nothing */
} fake_settings_t;

extern fake_settings_t fake_settings;

/* The next id after `count` ids, as the fake model draws it. */
int32_t fake_next(const int32_t *ids, int32_t count, int32_t vocab_size);
/* The same for a request that samples (temperature > 0). */
int32_t fake_draw(const int32_t *ids, int32_t count, int32_t vocab_size, uint64_t rng_key);
/* The distribution that beam search ranks by; it knows nothing of the drawn ids. */
void fake_logprobs(const int32_t *ids, int32_t count, int32_t vocab_size, float *out);
/* Steps so far, and broken promises of the shadow store (0 in a healthy engine). */
uint64_t fake_steps(void);
uint64_t fake_resolved(void); /* input ids that the step in flight drew */
uint64_t fake_violations(void);

#endif
