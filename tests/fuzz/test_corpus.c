/* test_corpus.c: replays tests/fuzz/corpus: small inputs that reach much code, and every input that
 * once failed. The sanitizer flavours of the tests are where this bites.
 */
#include "tests/fuzz/replay.h"

#define X(name)                                                                                    \
  Test(corpus, name, .timeout = 120) {                                                             \
    cr_assert_gt(replay(#name, fuzz_##name), 5);                                                   \
  }
FUZZ_TARGETS(X)
#undef X
