/* test_no_choice.c: requests that may come to a place where no token is allowed.
 *
 * Drawn from everything that takes tokens away: constraints, ignore_eos, min_tokens, stop ids,
 * allowed ids, bad words, over one choice, several, the best of more, and beams. A reference that
 * knows the words of the constraint and the bytes of the tokens says what may come next. A text
 * that may end there ends; any other request ends with ERR_NO_CHOICE, and none does while a token
 * is left. The same with drafts, threads for masks, masks that are late, and preemptions.
 */
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <string.h>

enum { JOBS = 480, VOCAB = 384, EOS = 0, IM_END = 1, WORDS_MAX = 5 };

typedef struct language {
  const char *pattern; /* NULL: no constraint, any text */
  const char *words[WORDS_MAX];
} language_t;

static const language_t languages[] = {
    {NULL, {NULL}},
    {"$", {""}},
    {"a?", {"", "a"}},
    {"ab", {"ab"}},
    {"a(?:b|bc)?", {"a", "ab", "abc"}},
    {"(?:aa|ab\xC3\xA9)", {"aa", "ab\xC3\xA9"}},
    {"(?:|c|cab|cabb)", {"", "c", "cab", "cabb"}},
};

/* What a job was drawn with; the arrays lie here. */
typedef struct drawn {
  const language_t *language;
  int32_t stops[2], allowed[4], bad_ids[3];
  token_sequence_t bad[2];
} drawn_t;

static drawn_t drawn[JOBS];
static grammar_t *grammars[ARRAY_LEN(languages)];

/* ---- the reference ---- */

static const char *bytes_of(const client_t *c, int32_t id, size_t *length) {
  *length = 0;
  if (tokenizer_flags(c->engine->tokenizer, id) & (TOKEN_SPECIAL | TOKEN_ADDED)) return "";
  return tokenizer_bytes(c->engine->tokenizer, id, length);
}

static bool is_among(const int32_t *ids, int32_t count, int32_t id) {
  for (int32_t i = 0; i < count; i++) {
    if (ids[i] == id) return true;
  }
  return false;
}

/* Whether a word begins with the text; longer: and goes on. */
static bool begins(const language_t *language, const char *text, size_t length, bool longer) {
  for (int i = 0; i < WORDS_MAX && language->words[i] != NULL; i++) {
    size_t whole = strlen(language->words[i]);
    if (whole >= length + longer && memcmp(language->words[i], text, length) == 0) return true;
  }
  return false;
}

static bool is_word(const language_t *language, const char *text, size_t length) {
  for (int i = 0; i < WORDS_MAX && language->words[i] != NULL; i++) {
    if (strlen(language->words[i]) == length && memcmp(language->words[i], text, length) == 0)
      return true;
  }
  return false;
}

static bool is_end(const sampling_params_t *p, int32_t id) {
  return (!p->ignore_eos && (id == EOS || id == IM_END)) ||
         is_among(p->stop_token_ids, p->num_stop_token_ids, id);
}

/* Whether the constraint lets the id come behind the text. */
static bool fits(const client_t *c, const job_t *job, const language_t *language, const char *text,
                 size_t length, int32_t id) {
  char longer[CLIENT_TEXT_MAX + 64];
  size_t more;
  if (language->pattern == NULL) return true;
  if (is_end(&job->request.params, id)) return is_word(language, text, length);
  const char *bytes = bytes_of(c, id, &more);
  if (more == 0 || more > 64) return false;
  memcpy(longer, text, length);
  memcpy(longer + length, bytes, more);
  return begins(language, longer, length + more, false);
}

static bool is_banned(const sampling_params_t *p, const int32_t *output, int32_t count,
                      int32_t id) {
  if (p->num_allowed_ids > 0 && !is_among(p->allowed_ids, p->num_allowed_ids, id)) return true;
  for (int32_t i = 0; i < p->num_bad_words; i++) {
    const token_sequence_t *bad = &p->bad_words[i];
    int32_t before = bad->count - 1;
    if (bad->ids[before] != id || before > count) continue;
    if (memcmp(output + count - before, bad->ids, (size_t)before * sizeof *output) == 0)
      return true;
  }
  return false;
}

/* Sets may[VOCAB]: what may come behind the output. Returns how many. */
static int32_t may_come(const client_t *c, const job_t *job, const language_t *language,
                        const int32_t *output, int32_t count, const char *text, size_t length,
                        bool *may) {
  const sampling_params_t *p = &job->request.params;
  int32_t left = 0;
  for (int32_t id = 0; id < VOCAB; id++) {
    bool is_stop = is_among(p->stop_token_ids, p->num_stop_token_ids, id);
    bool is_held = count < p->min_tokens && (id == EOS || id == IM_END || is_stop);
    may[id] =
        fits(c, job, language, text, length, id) && !is_held && !is_banned(p, output, count, id);
    left += may[id];
  }
  return left;
}

/* ---- the requests ---- */

static int32_t below(uint64_t *state, int32_t bound) {
  return (int32_t)(next_random(state) % (uint32_t)bound);
}

static void draw_job(client_t *c, int i, uint64_t *r) {
  static const int32_t pool[] = {66, 67, 68, EOS, IM_END, 17}; /* a b c */
  job_t *job = client_job(c, 3 + below(r, 40), 1 + below(r, 8), i);
  sampling_params_t *p = &job->request.params;
  drawn_t *d = &drawn[i];
  *d = (drawn_t){.language = &languages[below(r, (int32_t)ARRAY_LEN(languages))]};
  for (int k = 0; k < 2; k++) d->stops[k] = pool[below(r, 6)];
  for (int k = 0; k < 4; k++) d->allowed[k] = pool[below(r, 6)];
  for (int k = 0; k < 3; k++) d->bad_ids[k] = pool[below(r, 5)];
  d->bad[0] = (token_sequence_t){.ids = d->bad_ids, .count = 1};
  d->bad[1] = (token_sequence_t){.ids = d->bad_ids + 1, .count = 2};
  job->request.grammar = grammars[d->language - languages];
  p->ignore_eos = below(r, 2) == 0;
  if (below(r, 2)) p->min_tokens = below(r, p->max_tokens + 1);
  if (below(r, 3) == 0) p->stop_token_ids = d->stops, p->num_stop_token_ids = 2;
  int32_t shape = below(r, 6);
  if (shape == 0) p->n = 3;
  if (shape == 1) p->n = 2, p->best_of = 4, p->num_logprobs = 0;
  if (shape == 2) p->n = 2, p->beam_width = 3;
  if (shape <= 2) client_several(job);
  if (shape == 2) return; /* beams take none of what follows */
  if (below(r, 2)) p->temperature = 1.5f;
  if (below(r, 3) == 0) p->allowed_ids = d->allowed, p->num_allowed_ids = 4;
  if (below(r, 2)) p->bad_words = d->bad, p->num_bad_words = 2;
}

static void make_jobs(client_t *c) {
  uint64_t r = 20261129;
  for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
    const char *pattern = languages[i].pattern;
    inferd_error_t error = {0};
    grammars[i] = NULL;
    if (pattern == NULL) continue;
    grammar_source_t source = {.kind = GRAMMAR_REGEX, .text = pattern, .length = strlen(pattern)};
    ASSERT_EQ_FOR(grammar_compile(&source, engine_grammar_vocabulary(c->engine), NULL, NULL,
                                  &grammars[i], &error),
                  0, "%s", error.message);
  }
  for (int i = 0; i < JOBS; i++) draw_job(c, i, &r);
}

/* ---- what came ---- */

/* Follows the tokens of one choice. Sets *dead if none was left behind them; *word if the text may
 * end there. */
static void follow(const client_t *c, int i, const int32_t *output, int32_t count, bool *dead,
                   bool *word) {
  const job_t *job = &c->jobs[i];
  const language_t *language = drawn[i].language;
  char text[CLIENT_TEXT_MAX];
  size_t length = 0, more;
  bool may[VOCAB];
  bool over = false;
  for (int32_t t = 0; t < count; t++) {
    cr_assert(!over, "request %d, output %d: a token behind the end", i, t);
    int32_t left = may_come(c, job, language, output, t, text, length, may);
    cr_assert(left > 0 && may[output[t]], "request %d, output %d: %d is not allowed", i, t,
              output[t]);
    over = is_end(&job->request.params, output[t]);
    const char *bytes = bytes_of(c, output[t], &more);
    if (over) continue;
    memcpy(text + length, bytes, more);
    length += more;
  }
  *word = over || (language->pattern != NULL && is_word(language, text, length));
  *dead = !over && may_come(c, job, language, output, count, text, length, may) == 0;
  *dead = *dead || over || (*word && !begins(language, text, length, true));
}

static void check_end(const client_t *c, int i, const event_t *done, const int32_t *output,
                      int32_t count) {
  bool dead, word;
  follow(c, i, output, count, &dead, &word);
  if (done->finish == FINISH_STOP)
    cr_assert(dead && word, "request %d stopped after %d tokens", i, count);
  if (done->finish == FINISH_LENGTH)
    ASSERT_EQ_FOR(count, c->jobs[i].request.params.max_tokens, "request %d", i);
}

/* Beams rank words of the language only, and end no search that has one with an error. */
static void check_beams(const job_t *job, int i) {
  const language_t *language = drawn[i].language;
  for (int k = 0; k < job->num_choices && language->pattern != NULL; k++) {
    const choice_t *choice = &job->choices[k];
    if (choice->done.finish == FINISH_STOP)
      cr_assert(is_word(language, choice->text, choice->text_length), "request %d: '%.*s'", i,
                (int)choice->text_length, choice->text);
  }
}

/* Returns whether the request ended with ERR_NO_CHOICE. */
static bool check_job(const client_t *c, int i) {
  const job_t *job = &c->jobs[i];
  const sampling_params_t *p = &job->request.params;
  bool failed = job->done.finish == FINISH_ERROR, any_stuck = false;
  ASSERT_EQ_FOR(job->num_done, 1, "request %d", i);
  ASSERT_EQ_FOR(job->done.error_code, (failed ? ERR_NO_CHOICE : 0), "request %d", i);
  if (p->beam_width > 0) {
    if (!failed) check_beams(job, i);
    return failed;
  }
  if (!failed && job->choices == NULL) check_end(c, i, &job->done, job->output, job->num_output);
  for (int k = 0; !failed && k < job->num_choices; k++)
    check_end(c, i, &job->choices[k].done, job->choices[k].output, job->choices[k].num_output);
  if (!failed || params_collect(p)) return failed;
  for (int k = 0; k < MAX(job->num_choices, 1); k++) {
    const choice_t *choice = job->choices ? &job->choices[k] : NULL;
    bool dead, word;
    follow(c, i, choice ? choice->output : job->output,
           choice ? choice->num_output : job->num_output, &dead, &word);
    any_stuck = any_stuck || (dead && !word);
  }
  cr_assert(any_stuck, "request %d failed though a token was left", i);
  return true;
}

static client_t *run(const engine_options_t *options) {
  client_t *c = client_run_all(options, make_jobs);
  int num_failed = 0, num_empty = 0;
  for (int i = 0; i < JOBS; i++) {
    num_failed += check_job(c, i);
    num_empty += c->jobs[i].done.finish == FINISH_STOP && c->jobs[i].done.num_output_tokens == 0;
  }
  for (size_t i = 0; i < ARRAY_LEN(languages); i++) grammar_unref(grammars[i]);
  EXPECT_GT(num_failed, JOBS / 20);
  EXPECT_GT(num_empty, JOBS / 40);
  client_check_idle(c);
  return c;
}

/* Requests of one choice must get the same, whatever the engine does beside. */
static void expect_alike(const client_t *want, const client_t *got, const char *name) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *a = &want->jobs[i], *b = &got->jobs[i];
    ASSERT_EQ_FOR(b->done.finish, a->done.finish, "%s: request %d", name, i);
    if (a->choices != NULL) continue;
    ASSERT_EQ_FOR(b->num_output, a->num_output, "%s: request %d", name, i);
    ASSERT_IDS_EQ(b->output, a->output, (size_t)a->num_output);
  }
}

Test(no_choice, every_combination_ends_as_the_reference_says) {
  engine_options_t plain = client_options(&ops_cpu), o = plain;
  client_t *want = run(&plain), *got;
  o.draft = (draft_options_t){.tokens_max = 4, .match_min = 1, .match_max = 3, .longest = true};
  expect_alike(want, got = run(&o), "drafts");
  client_free(got);
  o.mask_threads = 2;
  expect_alike(want, got = run(&o), "drafts, threads for masks");
  client_free(got);
  o = plain;
  o.mask_units = 40;
  expect_alike(want, got = run(&o), "late masks");
  client_free(got);
  o = plain;
  o.num_blocks = 24;
  expect_alike(want, got = run(&o), "a small pool");
  client_free(got);
  client_free(want);
}
