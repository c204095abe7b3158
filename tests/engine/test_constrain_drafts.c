/* test_constrain_drafts.c: draft tokens of constrained requests change no token.
 *
 * The same requests without and with draft tokens, on a CPU: patterns, schemas and a grammar,
 * greedy and drawn, with penalties, bans, biases, stop strings, short and least lengths; drafts
 * looked up, made by a model, by a layer of the model that predicts or by a head of EAGLE-3; masks
 * that are late, made by threads, narrow; pools in which sequences are preempted; models with a
 * state. Every token and logprob must be the same, bit for bit.
 */
#include "engine/internal.h"
#include "tests/engine/client.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <string.h>

enum { JOBS = 64, GRAMMARS = 8, NARROW_UNITS = 40 };

static grammar_t *grammars[GRAMMARS];
static stop_set_t *stops[JOBS];

static grammar_t *compile(const client_t *c, grammar_source_t source) {
  grammar_t *grammar = NULL;
  inferd_error_t error = {0};
  if (source.text != NULL) source.length = strlen(source.text);
  int code =
      grammar_compile(&source, engine_grammar_vocabulary(c->engine), NULL, NULL, &grammar, &error);
  ASSERT_EQ_FOR(code, 0, "%s", error.message);
  return grammar;
}

static grammar_t *compile_schema(const client_t *c, const char *text) {
  json_doc_t *doc = NULL;
  json_limits_t limits = {.depth_max = 32, .values_max = 1000, .key_bytes_max = 256};
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(json_parse(text, strlen(text), &limits, &doc, &error), 0, "%s", error.message);
  grammar_t *grammar = compile(
      c,
      (grammar_source_t){.kind = GRAMMAR_JSON_SCHEMA, .param = "schema", .schema = json_root(doc)});
  json_free(doc);
  return grammar;
}

static void compile_all(const client_t *c) {
  const char *patterns[] = {"(?:[0-9]{4}-){1,9}end",
                            "(?:left|right|leftover)(?: and (?:left|right)){3,9}",
                            "the quick brown fox jumps over the lazy dog", "[ab]{40}"};
  for (int i = 0; i < 4; i++)
    grammars[i] = compile(c, (grammar_source_t){.kind = GRAMMAR_REGEX, .text = patterns[i]});
  grammars[4] = compile_schema(c, "{\"type\": \"object\", \"properties\": {\"name\": {\"enum\": "
                                  "[\"Ann\", \"Anna\", \"Bob\"]}, \"many\": {\"type\": \"array\", "
                                  "\"items\": {\"type\": \"boolean\"}, \"minItems\": 3}}, "
                                  "\"required\": [\"name\", \"many\"], "
                                  "\"additionalProperties\": false}");
  grammars[5] = compile_schema(c, "{\"type\": \"array\", \"minItems\": 2, \"items\": {\"const\": "
                                  "{\"kind\": \"constant\", \"of\": [1, 2, 3]}}}");
  grammars[6] = client_grammar(c, "root ::= item (\", \" item){2,9} \".\"\n"
                                  "item ::= \"one\" | \"two\" | \"three\" | \"(\" item \")\"");
  grammars[7] = client_slow_grammar(c);
}

/* Three of four are constrained. Some of the prompts repeat a few tokens. */
static void make_jobs(client_t *c) {
  static const int32_t ends[] = {2, 5};
  static const char *const strings[] = {"e", "t an", "0-", "rue,"};
  static const logit_bias_t bias[] = {{.id = 40, .bias = 3}, {.id = 50, .bias = -4}};
  compile_all(c);
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 6 + (i * 29) % 90, 20 + (i * 7) % 60, i % 60);
    sampling_params_t *p = &job->request.params;
    for (int k = 0; i % 2 && k < job->request.num_prompt_tokens; k++)
      job->prompt[k] = job->prompt[k % 5];
    if (i % 4 != 3) job->request.grammar = grammars[(i + i / 8) % GRAMMARS];
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 7 == 0) p->repetition_penalty = i % 2 ? 0.6f : 1.3f;
    if (i % 5 == 0) p->presence_penalty = 0.5f;
    if (i % 11 == 0) p->logit_bias = bias, p->num_logit_bias = 2;
    if (i % 13 == 0) p->min_tokens = 12;
    if (i % 17 == 0) p->stop_token_ids = ends, p->num_stop_token_ids = 2;
    if (i % 19 == 0) p->num_logprobs = 3;
    if (i % 6 == 2) {
      const char *string[] = {strings[i / 6 % 4]};
      size_t length[] = {strlen(string[0])};
      ASSERT_EQ(stop_set_new(string, length, 1, &stops[i], NULL), 0);
      job->request.stops = stops[i];
    }
    if (i % 5 == 4) p->max_tokens = 3 + i % 11;
    if (i == 24) {
      p->n = p->best_of = 2;
      p->temperature = 1;
      client_several(job);
    }
    if (i == 25) {
      p->n = p->beam_width = 2;
      p->temperature = 0;
      client_several(job);
    }
  }
}

static client_t *run(const engine_options_t *options) {
  client_t *c = client_run_all(options, make_jobs);
  for (int i = 0; i < GRAMMARS; i++) grammar_unref(grammars[i]);
  for (int i = 0; i < JOBS; i++) {
    stop_set_free(stops[i]);
    stops[i] = NULL;
  }
  return c;
}

static const char *const HEAD = "tests/fixtures/eagle"; /* for models as small as tiny */

/* `predicts`: the model has a layer that predicts, which drafts where nothing is looked up. */
static void check_model(const ops_t *ops, const char *model, bool states, bool predicts) {
  const struct {
    const char *name;
    int seqs, blocks, drafts, units, threads;
    bool longest;
    const char *drafter; /* NULL = prompt lookup */
  } variants[] = {
      {"looked up", 8, 600, 4, 0, 0, true, NULL},
      {"as long as they pay", 8, 600, 15, 0, 0, false, NULL},
      {"two at once", 2, 600, 7, 0, 0, false, NULL},
      {"preempted", 16, 40, 5, 0, 0, true, NULL},
      {"late masks", 8, 600, 4, 4000, 0, true, NULL},
      {"masks by threads", 8, 600, 6, 0, 2, true, NULL},
      {"late masks by threads", 8, 600, 6, 4000, 2, true, NULL},
      {"a draft model", 8, 600, 3, 0, 0, true, "tests/fixtures/tiny"},
      {"a draft model, preempted, late masks", 16, 40, 4, 4000, 0, true, "tests/fixtures/tiny"},
      {"a head", 8, 600, 3, 0, 0, true, HEAD},
      {"a head, preempted, late masks", 16, 40, 4, 4000, 0, true, HEAD},
  };
  engine_options_t o = client_options(ops);
  o.model_dir = model;
  o.max_model_len = 512;
  o.max_num_seqs = 2; /* of the choices */
  o.num_blocks = 600;
  o.mask_threads = 0;
  o.enable_prefix_caching = true;
  client_t *plain = run(&o);
  ASSERT_EQ(client_stats(plain).draft_tokens, 0);
  for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
    if (variants[v].drafter == HEAD && ops->drafts == NULL) continue; /* it is refused */
    o.max_num_seqs = variants[v].seqs;
    o.num_blocks = variants[v].blocks;
    o.mask_units = variants[v].units;
    o.mask_threads = variants[v].threads;
    o.draft = (draft_options_t){.tokens_max = variants[v].drafts,
                                .match_min = 1,
                                .match_max = 3,
                                .predicts = predicts && variants[v].drafter == NULL,
                                .longest = variants[v].longest};
    o.draft_model_dir = variants[v].drafter;
    client_t *c = run(&o);
    client_expect_same(plain, c, variants[v].name);
    engine_stats_t s = client_stats(c);
    EXPECT_GT(s.draft_tokens_accepted, 0);
    EXPECT_GT(s.draft_tokens, s.draft_tokens_accepted);
    if (!states && variants[v].units > 0) EXPECT_GT(s.grammar_masks_late, 0);
    EXPECT_EQ((s.preemptions > 0), (variants[v].blocks == 40));
    client_check_idle(c);
    client_free(c);
  }
  client_free(plain);
}

Test(constrain_drafts, change_no_token, .timeout = 300) {
  check_model(&ops_cpu, "tests/fixtures/tiny", false, false);
}

Test(constrain_drafts, change_no_token_of_a_model_with_states, .timeout = 300) {
  check_model(&ops_cpu, "tests/fixtures/states", true, false);
}

Test(constrain_drafts, change_no_token_of_a_model_with_states_that_predicts, .timeout = 300) {
  check_model(&ops_cpu, "tests/fixtures/delta", true, true);
}

Test(constrain_drafts, change_no_token_beside_steps_that_overlap, .timeout = 300) {
  check_model(&ops_fake, "tests/fixtures/tiny", false, false);
  check_model(fake_ops_deep(), "tests/fixtures/tiny", false, false);
}

/* ---- constrained requests alone ---- */

/* Requests of one grammar. Returns the tokens of all, and what the engine counted. */
static int32_t run_one(const engine_options_t *options, int32_t count, int32_t tokens,
                       grammar_t *(*make)(const client_t *c), char text[][CLIENT_TEXT_MAX],
                       engine_stats_t *stats) {
  client_t *c = client_new(options);
  grammar_t *grammar = make(c);
  int32_t sum = 0;
  for (int32_t i = 0; i < count; i++) {
    job_t *job = client_job(c, 6 + i, tokens, i);
    job->request.grammar = grammar;
    job->request.params.temperature = i % 2 ? 0.9f : 0;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  client_run(c);
  for (int32_t i = 0; i < count; i++) {
    sum += c->jobs[i].num_output;
    memcpy(text[i], c->jobs[i].text, c->jobs[i].text_length);
    text[i][c->jobs[i].text_length] = 0;
    ASSERT_NE(c->jobs[i].done.finish, FINISH_ERROR);
  }
  *stats = client_stats(c);
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
  return sum;
}

static grammar_t *make_sentence(const client_t *c) {
  return compile(c, (grammar_source_t){.kind = GRAMMAR_REGEX,
                                       .text = "the quick brown fox jumps over the lazy dog"});
}

static char plain_text[8][CLIENT_TEXT_MAX], draft_text[8][CLIENT_TEXT_MAX];

/* Nothing of it stood in the prompt, so the grammar alone can have drafted it. */
Test(constrain_drafts, what_a_grammar_spells_out_is_drafted) {
  engine_options_t o = client_options(&ops_cpu);
  engine_stats_t stats;
  o.draft = (draft_options_t){.tokens_max = 7, .match_min = 3, .match_max = 3};
  int32_t tokens = run_one(&o, 1, 80, make_sentence, draft_text, &stats);
  ASSERT_STR_EQ(draft_text[0], "the quick brown fox jumps over the lazy dog");
  EXPECT_GT(stats.draft_tokens_accepted, (uint64_t)tokens / 3);
  EXPECT_LT(stats.steps, (uint64_t)tokens);
}

/* A request that costs too much follows one way from some token on: from the same one with drafts.
 */
Test(constrain_drafts, narrow_at_the_same_token) {
  engine_options_t o = client_options(&ops_cpu);
  engine_stats_t stats;
  static char wide[8][CLIENT_TEXT_MAX];
  int differ = 0;
  run_one(&o, 8, 40, client_slow_grammar, wide, &stats);
  o.mask_units = NARROW_UNITS;
  run_one(&o, 8, 40, client_slow_grammar, plain_text, &stats);
  o.draft = (draft_options_t){.tokens_max = 5, .match_min = 1, .match_max = 3, .longest = true};
  run_one(&o, 8, 40, client_slow_grammar, draft_text, &stats);
  for (int i = 0; i < 8; i++) {
    ASSERT_STR_EQ(draft_text[i], plain_text[i]);
    differ += strcmp(plain_text[i], wide[i]) != 0;
  }
  EXPECT_GT(differ, 0);
  EXPECT_GT(stats.draft_tokens_accepted, 0);
}

static grammar_t *make_spelled(const client_t *c) {
  return compile(c,
                 (grammar_source_t){.kind = GRAMMAR_REGEX, .text = "(?:[0-9]{4}~\\^~\\^~\\^){9}"});
}

/* The drafts of the model are cut at each digit, so that the sequence pauses. */
Test(constrain_drafts, what_a_grammar_spells_out_is_drafted_while_a_model_pauses) {
  engine_options_t o = client_options(&ops_cpu);
  engine_stats_t stats;
  o.draft = (draft_options_t){.tokens_max = 4};
  o.draft_model_dir = "tests/fixtures/tiny";
  ASSERT_EQ(run_one(&o, 1, 99, make_spelled, draft_text, &stats), 90);
  EXPECT_GT(stats.drafts_paused + stats.drafts_slow, 3);
  EXPECT_GE(stats.draft_tokens_accepted, 9 * 4);
}

/* ---- what drafts teach ---- */

/* What is known of the drafts of one request when it has ended. */
static draft_history_t history_of(const engine_options_t *options, const char *pattern) {
  client_t *c = client_new(options);
  grammar_t *grammar = compile(c, (grammar_source_t){.kind = GRAMMAR_REGEX, .text = pattern});
  job_t *job = client_job(c, 6, 60, 1);
  job->request.grammar = grammar;
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  draft_history_t history = c->engine->groups[job->request.slot].sequence.drafts.history;
  EXPECT_GT(client_stats(c).draft_tokens_accepted, 0);
  grammar_unref(grammar);
  client_check_idle(c);
  client_free(c);
  return history;
}

/* Its tokens are two bytes, which prompt lookup finds from the third on. */
Test(constrain_drafts, what_a_grammar_leaves_no_choice_for_teaches_nothing) {
  engine_options_t o = client_options(&ops_cpu);
  o.draft = (draft_options_t){.tokens_max = 4, .match_min = 1, .match_max = 3, .longest = true};
  EXPECT_EQ((int)history_of(&o, "(?:~\\^){20}").tried, 0);
}

/* The model drafts what it would write itself, which is not always a digit. */
Test(constrain_drafts, what_a_grammar_cuts_was_wrong) {
  engine_options_t o = client_options(&ops_cpu);
  o.draft = (draft_options_t){.tokens_max = 4, .longest = true};
  o.draft_model_dir = "tests/fixtures/tiny";
  draft_history_t history = history_of(&o, "[0-9]{40}");
  cr_expect(history.right < history.tried - 1, "%.1f of %.1f were right", (double)history.right,
            (double)history.tried);
}
