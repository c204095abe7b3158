/* features.h: what a simulated run may have, each with its chance. */
#ifndef INFERD_TESTS_SIM_FEATURES_H
#define INFERD_TESTS_SIM_FEATURES_H

/* X(name, chance that a seed has it in 1/16, what it does) */
#define SIM_FEATURES(X)                                                                            \
  X(CACHING, 12, "prefix caching is on")                                                           \
  X(SHARED, 12, "prompts share documents")                                                         \
  X(SALTS, 4, "requests come from several cache domains")                                          \
  X(TIGHT, 10, "the pool holds little more than one context")                                      \
  X(WHOLE, 3, "chunked prefill is off")                                                            \
  X(THRESHOLD, 5, "a prompt's chunk per step is bounded")                                          \
  X(WATERMARK, 5, "admission keeps blocks free")                                                   \
  X(PRIORITY, 5, "requests have priorities")                                                       \
  X(EOS, 10, "the model ends some sequences")                                                      \
  X(STOP_IDS, 5, "requests have stop ids")                                                         \
  X(STOPS, 6, "requests have stop strings")                                                        \
  X(MIN_TOKENS, 5, "requests have min_tokens")                                                     \
  X(BYTES, 6, "tokens are parts of UTF-8 characters")                                              \
  X(SAMPLED, 6, "requests are drawn at random, with seeds")                                        \
  X(LOGPROBS, 3, "requests want logprobs")                                                         \
  X(SCORES, 4, "requests want prompt logprobs, or nothing but these")                              \
  X(CANCELS, 9, "clients go away")                                                                 \
  X(FAULTS, 4, "single requests fail in the engine")                                               \
  X(NANS, 4, "the model returns NaN for single rows")                                              \
  X(DEVICE_LOSS, 1, "the device is lost")                                                          \
  X(QUEUE_LIMIT, 5, "the waiting queue is short")                                                  \
  X(QUEUE_TIME, 4, "waiting has a deadline")                                                       \
  X(ASYNC, 8, "two steps are in flight")                                                           \
  X(DRAFTS, 5, "decodes draft tokens ahead")                                                       \
  X(CHOICES, 6, "requests want several choices, or the best of several")                           \
  X(API, 3, "requests come as JSON bodies through the API")                                        \
  X(BURSTS, 6, "requests come in bursts")                                                          \
  X(SLOW_LOOP, 4, "the loop thread is late")                                                       \
  X(SHUTDOWN, 2, "the engine is stopped while requests run")                                       \
  X(FAIR, 4, "tenants have fair shares")                                                           \
  X(ADAPTERS, 4, "requests name low-rank adapters")                                                \
  X(DRAFT_MODEL, 3, "a small model drafts tokens")                                                 \
  X(GRAMMARS, 4, "requests have a constraint on their output")                                     \
  X(BEAMS, 4, "requests search with beams")                                                        \
  X(SWAP, 7, "preempted requests may go to the host")                                              \
  X(PASSING, 11, "short prompts pass a long one that is in progress")                              \
  X(TRACE, 6, "the engine traces what happens to requests")                                        \
  X(HOSTILE, 4, "one tenant floods a short queue: bursts, cancels, prompts that do not fit")       \
  X(QUOTAS, 5, "keys have limits of their own")                                                    \
  X(SLICES, 8, "an admission takes few blocks a step")                                             \
  X(PACE, 7, "steps, and what a client has in them, are bounded in time")                          \
  X(AWAITED, 8, "steps overlap although tokens are awaited")                                       \
  X(STATES, 5, "the model keeps a state per sequence")                                             \
  X(SEATS, 6, "with PACE: admission stops before decodes alone take a step")                       \
  X(SLO, 5, "short prompts go first, and first tokens have a deadline")                            \
  X(WINDOWS, 6, "layers with a window free their blocks")                                          \
  X(POOLS, 3, "prompts become vectors, and nothing is generated")                                  \
  X(FLOOR, 10, "blocks that leave the prefix cache go to the host")                                \
  X(LONGEST, 8, "drafts are as long as they may be, whatever they cost")                           \
  X(MTP, 4, "a layer of the model predicts tokens, and drafts them")                               \
  X(RANKS, 2, "several ranks run the model, and one of them may fail")                             \
  X(RETURNS, 11, "with FLOOR: prompts branch off few documents, which come back from it")          \
  X(CROWDED, 2, "several choices, two steps in flight, priorities; short of blocks and rows")      \
  X(BROKEN_OFF, 3, "clients go while their prompts are computed, and others share these")          \
  X(PICTURES, 12, "prompts have pictures, which a tower sees first")                               \
  X(SHAPES, 0, "clients with fair shares ask for any shape: all places, beams, the whole pool")    \
  X(BEST_EFFORT, 3, "requests get what others leave")                                              \
  X(JUMPS, 8, "what steps cost jumps, and what was learned before is wrong")                       \
  X(ROWS, 4, "prompts are rows in the place of ids")

typedef enum sim_feature {
#define X(name, chance, text) SIM_##name,
  SIM_FEATURES(X)
#undef X
      SIM_FEATURE_COUNT
} sim_feature_t;

#endif
