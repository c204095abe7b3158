/* oracle.c: what every simulated request must get, worked out without the engine.
 *
 * The simulated model draws the next token as a hash of the cache domain and of all ids so far (and
 * of the request's random stream when it samples), so a token stream is right or wrong by
 * definition, whatever the batch, the chunks, the cache and the preemptions. Text and stop strings
 * are found here by plain search over whole texts, not by an automaton that sees one token at a
 * time.
 */
#include "tests/sim/oracle.h"

#include "tests/sim/pools.h"
#include "tests/sim/sees.h"

#include "engine/base/random.h"
#include "engine/base/utf8.h"

#include <string.h>

enum {
  EOS_FIRST = 0,
  EOS_SECOND = 1,
  TOP_IDS = 12
}; /* EOS of tests/fixtures/tiny: 0 is the primary one */

uint64_t oracle_start(const script_t *script) {
  const uint64_t domain = script->adapter_from > 0 ? script->base_domain : script->domain;
  return random_mix(domain + 1) | 1;
}

uint64_t oracle_before(const script_t *script, uint64_t prefix, int32_t position) {
  if (position == 0 || position != script->adapter_from) return prefix;
  return random_mix(prefix + script->domain) | 1;
}

uint64_t oracle_extend(uint64_t prefix, int32_t id) {
  return random_mix(prefix + (uint64_t)id * RANDOM_GAMMA) | 1;
}

/* A placeholder may be any row of any picture. */
static bool follows_picture(uint64_t have, uint64_t before, int32_t first, int32_t last) {
  bool right = false;
  for (int32_t content = SIM_VOCAB; !right && content <= SIM_CONTENT_MAX; content++)
    right = sees_may_be(content) && oracle_follows(have, before, content, first, last);
  return right;
}

bool oracle_follows(uint64_t have, uint64_t before, int32_t id, int32_t first, int32_t last) {
  bool right = have == oracle_extend(before, id);
  for (int32_t adapter = first; adapter <= last && !right; adapter++) {
    for (uint64_t salt = 1; salt <= SIM_SALTS_MAX; salt++) {
      const uint64_t domain = salt + SIM_SALTS_MAX * (uint64_t)adapter;
      right |= have == oracle_extend(random_mix(before + domain) | 1, id);
    }
  }
  if (!right && id == SIM_PAD) right = follows_picture(have, before, first, last);
  return right || (id < SIM_VOCAB && oracle_follows(have, before, sees_row(id), first, last));
}

static bool is_listed(const int32_t *ids, int32_t count, int32_t id) {
  for (int32_t i = 0; i < count; i++) {
    if (ids[i] == id) return true;
  }
  return false;
}

int32_t oracle_draw(const scenario_t *c, uint64_t prefix, uint64_t key, uint64_t position,
                    const int32_t *suppressed, int32_t num_suppressed, const uint32_t *allowed) {
  uint64_t state = prefix ^ (key ? random_mix(key + position) : 0);
  for (;;) {
    state = random_mix(state + RANDOM_GAMMA);
    int32_t id = c->first_id + (int32_t)(state % (uint64_t)c->num_ids);
    if (c->eos_one_in && (state >> 32) % c->eos_one_in == 0) id = (int32_t)(state & 1);
    if (is_listed(suppressed, num_suppressed, id)) continue;
    if (!allowed) return id;
    for (int32_t i = 0; i < SIM_VOCAB; i++, id = (id + 1) % SIM_VOCAB) { /* the next that may */
      if (allowed[id / 32] >> id % 32 & 1 && !is_listed(suppressed, num_suppressed, id)) return id;
    }
    return -1;
  }
}

float oracle_logprob(uint64_t prefix, int32_t id) {
  return -(float)(random_mix(prefix ^ (uint64_t)id) % 4096) / 256.0f;
}

/* Beams see a dozen ids of those that are drawn, and the ends; all others are impossible. */
int32_t oracle_top(const scenario_t *c, uint64_t prefix, int32_t wanted, token_logprob_t *top) {
  int32_t ids[2 + TOP_IDS] = {EOS_FIRST, EOS_SECOND}, count = c->eos_one_in ? 2 : 0, found = 0;
  int32_t num_ids = c->num_ids < TOP_IDS ? c->num_ids : TOP_IDS, start = (int32_t)(prefix % 256);
  for (int32_t i = 0; i < num_ids; i++) ids[count++] = c->first_id + (start + 7 * i) % c->num_ids;
  for (int32_t i = 0; i < count; i++) {
    token_logprob_t have = {ids[i], oracle_logprob(prefix, ids[i])};
    int32_t at = found < wanted ? found++ : wanted;
    for (; at > 0; at--) {
      const token_logprob_t *before = &top[at - 1];
      bool stays = before->logprob > have.logprob ||
                   (before->logprob == have.logprob && before->id < have.id);
      if (stays) break;
      if (at < wanted) top[at] = *before;
    }
    if (at < wanted) top[at] = have;
  }
  return found;
}

/* ---- text ---- */

static void find_stop(text_t *t) {
  stream_t *k = t->stream;
  for (int i = 0; i < t->script->num_stops && t->stop < 0; i++) {
    size_t length = strlen(t->script->stops[i]);
    if (k->text_length - t->search_begin < length) continue;
    if (memcmp(k->text + k->text_length - length, t->script->stops[i], length) != 0) continue;
    t->stop = i;
    if (!t->script->include_stop) k->text_length -= length;
  }
}

static void add_character(text_t *t, const void *bytes, int count, bool search) {
  stream_t *k = t->stream;
  memcpy(k->text + k->text_length, bytes, (size_t)count);
  k->text_length += (size_t)count;
  if (search) {
    find_stop(t);
  } else {
    t->search_begin = k->text_length;
  }
}

static void add_byte(text_t *t, uint8_t byte, bool search) {
  t->raw[t->num_raw++] = (char)byte;
  while (t->num_raw > 0 && t->stop < 0) {
    int span = utf8_span(t->raw, (size_t)t->num_raw), used = span > 0 ? span : -span;
    uint8_t first = (uint8_t)t->raw[0];
    if (span < 0 && used == t->num_raw && first >= 0xC2 && first <= 0xF4) return; /* unfinished */
    if (span > 0) {
      add_character(t, t->raw, span, search);
    } else {
      add_character(t, "\xEF\xBF\xBD", 3, search);
    }
    t->num_raw -= used;
    memmove(t->raw, t->raw + used, (size_t)t->num_raw);
  }
}

static void add_token(text_t *t, const tokenizer_t *tokenizer, int32_t id, bool search) {
  if (t->script->skip_special && (tokenizer_flags(tokenizer, id) & TOKEN_SPECIAL)) return;
  size_t length;
  const char *bytes = tokenizer_bytes(tokenizer, id, &length);
  for (size_t i = 0; i < length && t->stop < 0; i++) add_byte(t, (uint8_t)bytes[i], search);
}

/* ---- the stream ---- */

static bool is_stop_id(const script_t *r, int32_t id) {
  return is_listed(r->stop_ids, r->params.num_stop_token_ids, id) ||
         (!r->params.ignore_eos && id == EOS_SECOND);
}

bool oracle_is_end(const script_t *r, int32_t id) {
  return is_stop_id(r, id) || (!r->params.ignore_eos && id == EOS_FIRST);
}

void oracle_text_begin(text_t *t, const script_t *script, stream_t *stream) {
  *t = (text_t){.script = script, .stream = stream, .stop = -1};
  language_begin(&t->language, script->language);
}

/* In the order of the contract. */
bool oracle_text_add(text_t *t, const tokenizer_t *tokenizer, int32_t id, int32_t tokens_max) {
  const script_t *r = t->script;
  stream_t *k = t->stream;
  bool may_stop = k->num_expected >= r->params.min_tokens;
  bool eos = may_stop && !r->params.ignore_eos && id == EOS_FIRST;
  bool stop = may_stop && !eos && is_stop_id(r, id);
  if (!(eos || stop) || r->include_stop) add_token(t, tokenizer, id, may_stop);
  k->finish = FINISH_STOP;
  if (stop) k->stop_token_id = id;
  if (eos || stop) return true;
  k->stop_string = t->stop;
  if (t->stop >= 0) return true;
  if (t->language.index >= 0) language_add(&t->language, tokenizer, id);
  if (language_is_finished(&t->language)) return true;
  k->finish = FINISH_LENGTH;
  return k->num_expected >= tokens_max;
}

/* What a stop string has not cut off ends with the unfinished character, if there is one. */
void oracle_text_end(text_t *t) {
  if (t->num_raw > 0 && t->stop < 0) add_character(t, "\xEF\xBF\xBD", 3, false);
}

/* The ids that the constraint leaves, NULL without one. */
static const uint32_t *allow(const text_t *t, const tokenizer_t *tokenizer) {
  static uint32_t mask[LANGUAGE_MASK_WORDS];
  if (t->language.index < 0) return NULL;
  language_mask(&t->language, tokenizer, mask);
  bool ends = language_may_end(&t->language) && !t->script->params.ignore_eos;
  if (ends) mask[0] |= 1u << EOS_FIRST | 1u << EOS_SECOND;
  return mask;
}

static void expect_stream(const scenario_t *c, track_t *track, int index,
                          const tokenizer_t *tokenizer) {
  const script_t *r = track->script;
  stream_t *k = &track->streams[index];
  text_t text;
  int32_t suppressed[2 + SIM_STOP_IDS_MAX] = {EOS_FIRST, EOS_SECOND}, num_suppressed = 2;
  for (int32_t i = 0; i < r->params.num_stop_token_ids; i++) {
    suppressed[num_suppressed++] = r->stop_ids[i];
  }
  oracle_text_begin(&text, r, k);
  uint64_t key = r->params.temperature > 0 ? random_key(r->params.seed, (uint32_t)index) : 0;
  uint64_t hash = k->hash[track->num_prompt - 1];
  int32_t tokens_max = (int32_t)c->options.max_model_len - track->num_prompt;
  if (tokens_max > r->params.max_tokens) tokens_max = r->params.max_tokens;
  bool over = r->params.max_tokens == 0;
  while (!over) {
    if (k->num_expected == r->nan_at) {
      track->error_code = ERR_INTERNAL;
      return;
    }
    bool early = k->num_expected < r->params.min_tokens;
    int32_t at = track->num_prompt + k->num_expected;
    k->ids[at] = oracle_draw(c, hash, key, key ? (uint64_t)k->num_expected : 0, suppressed,
                             early ? num_suppressed : 0, allow(&text, tokenizer));
    REQUIRE(k->ids[at] >= 0, "a language without an end");
    k->cumulative += oracle_logprob(hash, k->ids[at]);
    k->hash[at] = hash = oracle_extend(hash, k->ids[at]);
    k->num_expected++;
    over = oracle_text_add(&text, tokenizer, k->ids[at], tokens_max);
  }
  oracle_text_end(&text);
}

static double mean_logprob(const stream_t *k) {
  return k->num_expected ? k->cumulative / k->num_expected : 0;
}

/* best_of: by mean logprob, the lower index wins a tie. */
static void rank_streams(track_t *k) {
  bool beams = k->script->params.beam_width > 0;
  for (int32_t i = 0; i < k->num_streams; i++) k->best[i] = beams ? SIM_STREAMS_MAX + i : i;
  if (beams || !params_collect(&k->script->params)) return;
  for (int32_t i = 1; i < k->num_streams; i++) {
    for (int32_t j = i; j > 0; j--) {
      const stream_t *a = &k->streams[k->best[j - 1]], *b = &k->streams[k->best[j]];
      if (mean_logprob(a) >= mean_logprob(b)) break;
      int32_t better = k->best[j];
      k->best[j] = k->best[j - 1];
      k->best[j - 1] = better;
    }
  }
}

static void begin_stream(const script_t *r, stream_t *k, const int32_t *prompt,
                         int32_t num_prompt) {
  k->num_expected = 0;
  memset(&k->finish, 0, offsetof(stream_t, text) - offsetof(stream_t, finish));
  memset(&k->text_length, 0, sizeof *k - offsetof(stream_t, text_length));
  k->finish = FINISH_LENGTH;
  k->stop_token_id = k->stop_string = -1;
  if (prompt != k->ids) memcpy(k->ids, prompt, (size_t)num_prompt * sizeof *k->ids);
  uint64_t hash = oracle_start(r);
  for (int32_t p = 0; p < num_prompt; p++)
    k->hash[p] = hash = oracle_extend(oracle_before(r, hash, p), sees_content(r, p, k->ids[p]));
}

/* Draws a token or scores its prompt: the first prompt token has no score. */
static bool asks_for_logits(const script_t *r, int32_t num_prompt) {
  return r->params.max_tokens > 0 || (r->params.num_prompt_logprobs >= 0 && num_prompt > 1);
}

void oracle_prepare(const scenario_t *c, int index, const tokenizer_t *tokenizer,
                    const int32_t *prompt, int32_t num_prompt, track_t *k) {
  const script_t *r = k->script = &c->scripts[index];
  bool beams = r->params.beam_width > 0;
  k->index = index;
  k->num_prompt = num_prompt;
  /* fails with the first row of logits that it asks for, with nothing said */
  k->error_code = r->fault && asks_for_logits(r, num_prompt) ? ERR_INTERNAL : 0;
  k->num_streams = params_num_sequences(&r->params);
  k->num_choices = params_num_choices(&r->params);
  for (int32_t j = 0; j < (beams ? 2 * SIM_STREAMS_MAX : k->num_streams); j++) {
    begin_stream(r, &k->streams[j], prompt, num_prompt);
    if (k->error_code == 0 && !beams) expect_stream(c, k, j, tokenizer);
  }
  if (scenario_has(c, SIM_POOLS)) {
    k->error_code = pools_error(c, r, num_prompt);
    k->streams[0].finish = FINISH_STOP;
  }
  rank_streams(k);
  if (beams) oracle_search(c, k, tokenizer);
}
