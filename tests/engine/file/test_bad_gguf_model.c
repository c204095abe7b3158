/* test_bad_gguf_model.c: GGUF files whose bytes are right and whose contents make no model.
 *
 * Each case changes one thing of a small Llama that loads. The message must name the key or the
 * tensor, and what is wrong with it. test_parity.c has good files of every family.
 */
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/file/gguf_maker.h"
#include "tests/expect.h"
#include "tests/heap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIDDEN = 32, MLP = 64, VOCAB = 8, HEADS = 4, KV_HEADS = 2, TYPE_F16 = 1, TYPE_Q8_0 = 8 };

/* What the metadata say costs no more than what the file holds, some 100 KiB. */
enum { HEAP_BYTES_MAX = 1 << 20 };

#define DIMS(...) ((const uint64_t[]){__VA_ARGS__, 0})

/* A pair in place of the one with its key, or an extra one; kind -1: the key is left out. */
typedef struct change {
  const char *key;
  int kind;
  uint64_t number;
  const char *text; /* of strings and of arrays: "ab" are two elements, 'a' and 'b' */
  const char *message;
} change_t;

static uint64_t bits(float number) {
  uint32_t out;
  memcpy(&out, &number, sizeof out);
  return out;
}

static void put_pair(gguf_maker_t *m, const change_t *pair) {
  if (pair->kind < 0) return;
  if (pair->kind == GGUF_STRING) {
    gguf_maker_text(m, pair->key, pair->text);
  } else if (pair->kind == GGUF_ARRAY) {
    gguf_maker_array(m, pair->key, GGUF_I32, strlen(pair->text));
    for (const char *at = pair->text; *at != '\0'; at++) gguf_put(&m->pairs, (uint64_t)*at, 4);
  } else {
    gguf_maker_number(m, pair->key, (uint32_t)pair->kind, pair->number);
  }
}

static void put_pairs(gguf_maker_t *m, const change_t *change) {
  const change_t good[] = {
      {"general.architecture", GGUF_STRING, 0, "llama", NULL},
      {"llama.block_count", GGUF_U32, 1, NULL, NULL},
      {"llama.context_length", GGUF_U32, 64, NULL, NULL},
      {"llama.embedding_length", GGUF_U32, HIDDEN, NULL, NULL},
      {"llama.feed_forward_length", GGUF_U32, MLP, NULL, NULL},
      {"llama.attention.head_count", GGUF_U32, HEADS, NULL, NULL},
      {"llama.attention.head_count_kv", GGUF_U32, KV_HEADS, NULL, NULL},
      {"llama.attention.layer_norm_rms_epsilon", GGUF_F32, bits(1e-5f), NULL, NULL},
      {"llama.rope.freq_base", GGUF_F32, bits(1e4f), NULL, NULL},
  };
  bool replaced = change == NULL;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    bool same = change != NULL && strcmp(change->key, good[i].key) == 0;
    put_pair(m, same ? change : &good[i]);
    replaced = replaced || same;
  }
  if (!replaced) put_pair(m, change);
}

/* A tensor in place of the one with its name; no dimensions: it is left out. */
typedef struct odd_tensor {
  const char *name;
  uint64_t dims[4];
  uint32_t type;
  const char *message;
} odd_tensor_t;

static const odd_tensor_t layer[] = {
    {"token_embd.weight", {HIDDEN, VOCAB}, TYPE_Q8_0, NULL},
    {"output_norm.weight", {HIDDEN}, GGUF_TYPE_F32, NULL},
    {"blk.0.attn_norm.weight", {HIDDEN}, GGUF_TYPE_F32, NULL},
    {"blk.0.attn_q.weight", {HIDDEN, HIDDEN}, TYPE_Q8_0, NULL},
    {"blk.0.attn_k.weight", {HIDDEN, HIDDEN / 2}, TYPE_Q8_0, NULL},
    {"blk.0.attn_v.weight", {HIDDEN, HIDDEN / 2}, TYPE_Q8_0, NULL},
    {"blk.0.attn_output.weight", {HIDDEN, HIDDEN}, TYPE_Q8_0, NULL},
    {"blk.0.ffn_norm.weight", {HIDDEN}, GGUF_TYPE_F32, NULL},
    {"blk.0.ffn_gate.weight", {HIDDEN, MLP}, TYPE_Q8_0, NULL},
    {"blk.0.ffn_up.weight", {HIDDEN, MLP}, TYPE_Q8_0, NULL},
    {"blk.0.ffn_down.weight", {MLP, HIDDEN}, TYPE_Q8_0, NULL},
};

/* Every tensor has room for the largest type and shape here. */
static void put_tensors(gguf_maker_t *m, const odd_tensor_t *odd) {
  uint64_t at = 0;
  for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
    bool same = odd != NULL && strcmp(odd->name, layer[i].name) == 0;
    const odd_tensor_t *tensor = same ? odd : &layer[i];
    if (tensor->dims[0] == 0) continue;
    gguf_maker_info(m, tensor->name, tensor->dims, tensor->type, at);
    at += 8 * HIDDEN * MLP;
  }
  for (uint64_t i = 0; i < at; i += 8) gguf_put(&m->data, 0, 8);
}

static int plan(gguf_maker_t *m, inferd_error_t *error) {
  blueprint_t blueprint;
  size_t bytes;
  const char *path = gguf_maker_write(m, "a.gguf");
  model_options_t options = {.dir = path, .dtype = -1};
  int code = blueprint_read(path, 0, -1, &blueprint, error);
  if (code != 0) return code;
  code = model_weight_bytes(&ops_cpu, &blueprint, &options, &bytes, error);
  blueprint_free(&blueprint);
  return code;
}

static void expect_refusal(gguf_maker_t *m, const char *name, const char *message) {
  inferd_error_t error = {0};
  heap_restart();
  int code = plan(m, &error);
  ASSERT_LE_FOR(heap_asked(), (size_t)HEAP_BYTES_MAX, "%s", name);
  ASSERT_EQ_FOR(code, ERR_MODEL_MALFORMED, "%s: \"%s\", expected \"%s\"", name, error.message,
                message);
  cr_assert_not_null(strstr(error.message, message), "%s: \"%s\" is not in \"%s\"", name, message,
                     error.message);
  gguf_maker_clear(m);
}

Test(bad_gguf_model, the_model_itself_loads) {
  gguf_maker_t m;
  inferd_error_t error = {0};
  gguf_maker_open(&m);
  put_pairs(&m, NULL);
  put_tensors(&m, NULL);
  ASSERT_EQ_FOR(plan(&m, &error), 0, "%s", error.message);
  gguf_maker_close(&m);
}

Test(bad_gguf_model, metadata) {
  const change_t cases[] = {
      {"general.architecture", -1, 0, NULL, "\"general.architecture\" is missing"},
      {"general.architecture", GGUF_STRING, 0, "clip", "is \"clip\", supported: llama, "},
      {"general.architecture", GGUF_U32, 7, NULL, "is missing or no text"},
      {"llama.block_count", -1, 0, NULL, "\"llama.block_count\" is missing"},
      {"llama.block_count", GGUF_U32, 0, NULL, "llama.block_count"},
      {"llama.block_count", GGUF_U32, UINT32_MAX, NULL, "llama.block_count"},
      {"llama.block_count", GGUF_STRING, 0, "1", "\"llama.block_count\" is no integer"},
      {"llama.block_count", GGUF_U32, 2, NULL, "tensor blk.1."},
      {"llama.context_length", GGUF_U32, 0, NULL, "llama.context_length"},
      {"llama.context_length", GGUF_F32, bits(64), NULL, "is no integer"},
      {"llama.embedding_length", -1, 0, NULL, "\"llama.embedding_length\" is missing"},
      {"llama.embedding_length", GGUF_U32, 0, NULL, "llama.embedding_length"},
      {"llama.embedding_length", GGUF_U64, 1ULL << 62, NULL, "llama.embedding_length"},
      {"llama.embedding_length", GGUF_U32, 64, NULL, "expected [8, 64]"},
      {"llama.feed_forward_length", GGUF_ARRAY, 0, "@A", "differs between layers: 64 at layer 0"},
      {"llama.feed_forward_length", GGUF_U32, 63, NULL, "expected [63, 32]"},
      {"llama.attention.head_count", -1, 0, NULL, "\"llama.attention.head_count\" is missing"},
      {"llama.attention.head_count", GGUF_U32, 0, NULL, "llama.attention.head_count"},
      {"llama.attention.head_count", GGUF_I32, UINT32_MAX, NULL, "llama.attention.head_count"},
      {"llama.attention.head_count_kv", GGUF_U32, 3, NULL, "llama.attention.head_count_kv"},
      {"llama.attention.head_count_kv", GGUF_U32, 0, NULL, "llama.attention.head_count_kv"},
      {"llama.attention.head_count_kv", GGUF_ARRAY, 0, "\2\1", "differs between layers"},
      {"llama.attention.key_length", GGUF_U32, 16, NULL, "expected [64, 32]"},
      {"llama.attention.key_length", GGUF_U32, 7, NULL, "llama.attention.key_length"},
      {"llama.attention.value_length", GGUF_U32, 16, NULL, "supported: as the key's, 8"},
      {"llama.attention.layer_norm_rms_epsilon", -1, 0, NULL, "rms_epsilon\" is missing"},
      {"llama.attention.layer_norm_rms_epsilon", GGUF_F32, bits(NAN), NULL, "no finite number"},
      {"llama.attention.layer_norm_rms_epsilon", GGUF_F32, bits(-1), NULL, "rms_epsilon"},
      {"llama.rope.freq_base", GGUF_F32, bits(INFINITY), NULL, "no finite number"},
      {"llama.rope.freq_base", GGUF_F32, bits(0), NULL, "llama.rope.freq_base"},
      {"llama.rope.dimension_count", GGUF_U32, 9, NULL, "llama.rope.dimension_count"},
      {"llama.rope.scaling.type", GGUF_STRING, 0, "magic", "is \"magic\", supported: none"},
      {"llama.rope.scaling.type", GGUF_U32, 1, NULL, "is no text"},
      {"llama.rope.scaling.type", GGUF_STRING, 0, "yarn", "llama.rope.scaling.factor"},
      {"llama.rope.scaling.type", GGUF_STRING, 0, "linear", "llama.rope.scaling.factor"},
      {"llama.expert_count", GGUF_U32, 100000, NULL, "llama.expert_feed_forward_length"},
      {"llama.expert_count", GGUF_U32, 4, NULL, "llama.expert_feed_forward_length"},
  };
  gguf_maker_t m;
  gguf_maker_open(&m);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[96];
    snprintf(name, sizeof name, "case %zu, %s", i, cases[i].key);
    put_pairs(&m, &cases[i]);
    put_tensors(&m, NULL);
    expect_refusal(&m, name, cases[i].message);
  }
  gguf_maker_close(&m);
}

Test(bad_gguf_model, tensors) {
  static const odd_tensor_t cases[] = {
      {"token_embd.weight", {0}, 0, "\"token_embd.weight\" is missing"},
      {"token_embd.weight", {HIDDEN}, GGUF_TYPE_F32, "\"token_embd.weight\" is no matrix"},
      {"token_embd.weight", {64, VOCAB}, TYPE_Q8_0, "shape [8, 64], expected [8, 32]"},
      {"output_norm.weight", {0}, 0, "tensor output_norm.weight is missing"},
      {"output_norm.weight", {HIDDEN}, TYPE_Q8_0, "type Q8_0 is not supported"},
      {"blk.0.attn_q.weight", {0}, 0, "tensor blk.0.attn_q.weight is missing"},
      {"blk.0.attn_q.weight", {HIDDEN, MLP}, TYPE_Q8_0, "shape [64, 32], expected [32, 32]"},
      {"blk.0.attn_q.weight", {HIDDEN, HIDDEN, 2}, TYPE_Q8_0, "attn_q.weight: shape [2, 32, 32]"},
      {"blk.0.attn_q.weight", {HIDDEN, HIDDEN}, 24, "type I8 is not supported"},
      {"blk.0.attn_q.weight", {HIDDEN, HIDDEN}, 28, "Take the same model as Q4_K_M"},
      {"blk.0.attn_q.weight", {HIDDEN, HIDDEN}, 9, "type Q8_1 is not supported"},
      {"blk.0.attn_norm.weight", {MLP}, GGUF_TYPE_F32, "shape [64], expected [32]"},
      {"blk.0.ffn_down.weight", {HIDDEN, MLP}, TYPE_F16, "shape [64, 32], expected [32, 64]"},
  };
  gguf_maker_t m;
  gguf_maker_open(&m);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_pairs(&m, NULL);
    put_tensors(&m, &cases[i]);
    expect_refusal(&m, cases[i].name, cases[i].message);
  }
  put_pairs(&m, NULL);
  put_tensors(&m, NULL);
  gguf_maker_info(&m, "blk.0.attn_magic.weight", DIMS(8), GGUF_TYPE_F32, m.data.length);
  for (int i = 0; i < 4; i++) gguf_put(&m.data, 0, 8);
  expect_refusal(&m, "an extra tensor", "1 unexpected tensor, first: blk.0.attn_magic.weight");
  gguf_maker_close(&m);
}

/* A vocabulary of three tokens, with one thing changed. */
typedef struct vocabulary {
  const char *model, *pre;
  const char *tokens[4], *merges[3];
  uint32_t num_types, num_scores; /* of 3; 9: one is NaN */
  const char *message;
} vocabulary_t;

static void put_list(gguf_maker_t *m, const char *key, const char *const *texts) {
  uint64_t count = 0;
  while (texts[count] != NULL) count++;
  gguf_maker_array(m, key, GGUF_STRING, count);
  for (uint64_t i = 0; i < count; i++) gguf_put_text(&m->pairs, texts[i]);
}

static void put_vocabulary(gguf_maker_t *m, const vocabulary_t *v) {
  uint32_t scores = v->num_scores == 9 ? 3 : v->num_scores;
  if (v->model != NULL) gguf_maker_text(m, "tokenizer.ggml.model", v->model);
  if (v->pre != NULL) gguf_maker_text(m, "tokenizer.ggml.pre", v->pre);
  if (v->tokens[0] != NULL) put_list(m, "tokenizer.ggml.tokens", v->tokens);
  if (v->merges[0] != NULL) put_list(m, "tokenizer.ggml.merges", v->merges);
  if (v->num_types > 0) gguf_maker_array(m, "tokenizer.ggml.token_type", GGUF_I32, v->num_types);
  for (uint32_t i = 0; i < v->num_types; i++) gguf_put(&m->pairs, 1, 4);
  if (scores > 0) gguf_maker_array(m, "tokenizer.ggml.scores", GGUF_F32, scores);
  for (uint32_t i = 0; i < scores; i++)
    gguf_put(&m->pairs, bits(v->num_scores == 9 && i == 2 ? NAN : -(float)i), 4);
}

/* To find the merges of a token of n bytes takes n look-ups of n bytes. */
Test(bad_gguf_model, tokens_that_are_too_long_to_split) {
  static char first[60001], second[60001];
  memset(first, 'a', sizeof first - 1);
  memset(second, 'b', sizeof second - 1);
  const vocabulary_t vocabulary = {"llama", NULL, {"a", first, second}, {NULL}, 3, 3, NULL};
  tokenizer_t *tokenizer;
  inferd_error_t error = {0};
  gguf_maker_t m;
  gguf_maker_open(&m);
  put_vocabulary(&m, &vocabulary);
  int code = tokenizer_load(gguf_maker_write(&m, "a.gguf"), &tokenizer, &error);
  ASSERT_EQ_FOR(code, ERR_MODEL_MALFORMED, "%s", error.message);
  cr_assert_not_null(strstr(error.message, "too long to be split"), "%s", error.message);
  gguf_maker_close(&m);
}

Test(bad_gguf_model, vocabularies) {
  static const vocabulary_t cases[] = {
      {NULL,
       NULL,
       {"a", "b", "ab"},
       {"a b"},
       3,
       0,
       "model: is missing; --skip-tokenizer-init serves"},
      {"rwkv",
       NULL,
       {"a", "b", "ab"},
       {"a b"},
       3,
       0,
       "\"rwkv\", supported: gpt2, llama, gemma4, bert, t5"},
      {"bert", NULL, {"a", "b", "ab"}, {NULL}, 3, 0, "unknown_token_id: is missing"},
      {"bert", NULL, {"a", "b", "a"}, {NULL}, 3, 0, "token 2, \"##a\", is there twice"},
      {"t5", NULL, {"a", "b", "ab"}, {NULL}, 3, 0, "0 scores for 3 tokens"},
      {"t5", NULL, {"a", "b", "ab"}, {NULL}, 3, 9, "the score of token 2 is no number"},
      {"t5", NULL, {"a", "b", "ab"}, {NULL}, 3, 3, "unknown_token_id: is missing"},
      {"gpt2", NULL, {"a", "b", "ab"}, {"a b"}, 3, 0, "is missing: the file is older than"},
      {"gpt2", "magic", {"a", "b", "ab"}, {"a b"}, 3, 0, "\"magic\" is not known"},
      {"gpt2", "gpt-2", {NULL}, {"a b"}, 3, 0, "tokens: a list of texts is needed"},
      {"gpt2", "gpt-2", {"a", "b", "a"}, {"a b"}, 3, 0, "token 2, \"a\", is there twice"},
      {"gpt2", "gpt-2", {"a", "b", "ab"}, {"a b"}, 2, 0, "2 types for 3 tokens"},
      {"gpt2", "gpt-2", {"a", "b", "ab"}, {NULL}, 3, 0, "merges: a list of texts is needed"},
      {"gpt2", "gpt-2", {"a", "b", "ab"}, {"a c"}, 3, 0, "tokenizer.ggml.merges"},
      {"gpt2", "gpt-2", {"a", "b", "ab"}, {"b a"}, 3, 0, "tokenizer.ggml.merges"},
      {"gpt2", "gpt-2", {"a", "b", "ab"}, {"ab"}, 3, 0, "tokenizer.ggml.merges"},
      {"llama", NULL, {"a", "b", "ab"}, {NULL}, 3, 0, "0 scores for 3 tokens"},
      {"llama", NULL, {"a", "b", "ab"}, {NULL}, 3, 2, "2 scores for 3 tokens"},
      {"llama", NULL, {"a", "b", "ab"}, {NULL}, 3, 9, "the score of token 2 is no number"},
  };
  gguf_maker_t m;
  gguf_maker_open(&m);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tokenizer_t *tokenizer;
    inferd_error_t error = {0};
    put_vocabulary(&m, &cases[i]);
    int code = tokenizer_load(gguf_maker_write(&m, "a.gguf"), &tokenizer, &error);
    ASSERT_EQ_FOR(code, ERR_MODEL_MALFORMED, "case %zu: \"%s\", expected \"%s\"", i, error.message,
                  cases[i].message);
    cr_assert_not_null(strstr(error.message, cases[i].message), "\"%s\" is not in \"%s\"",
                       cases[i].message, error.message);
    gguf_maker_clear(&m);
  }
  gguf_maker_close(&m);
}
