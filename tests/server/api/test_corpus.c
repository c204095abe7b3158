/* test_corpus.c: replays the corpus of tests/server/api/fuzz_api.c. */
#include "tests/fuzz/replay.h"

Test(api_corpus, api, .timeout = 120) {
  cr_assert_gt(replay("api", fuzz_api), 5);
}
