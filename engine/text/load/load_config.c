/* load_config.c: reads tokenizer_config.json, special_tokens_map.json and added_tokens.json, which
 * add to the pipeline.
 *
 * The loading thread only. Beside tokenizer.json they name the special tokens, change the
 * properties of added ones, say whether BOS and EOS are put around a text, and give the length
 * limit. Beside vocab.json they are the only source of added tokens.
 */
#include "engine/base/util.h"
#include "engine/text/load/load.h"

#include <stdlib.h>
#include <string.h>

/* A token is a string or an object with "content"; NULL when it is neither. */
static const json_t *token_text(const json_t *value) {
  if (value != NULL && value->type == JSON_OBJECT) value = load_field(value, "content");
  return value != NULL && value->type == JSON_STRING ? value : NULL;
}

static int32_t token_id(const tokenizer_t *tokenizer, const json_t *first, const json_t *second,
                        const char *key) {
  const json_t *text = token_text(load_field(first, key));
  if (text == NULL) text = token_text(load_field(second, key));
  return text == NULL ? -1 : tokenizer_id(tokenizer, text->text, text->length);
}

/* Sets the defaults that files of GPT-2 rely on. */
static const char end_of_text[] = "<|endoftext|>";

static int32_t end_of_text_id(const tokenizer_t *tokenizer) {
  return tokenizer_id(tokenizer, end_of_text, sizeof end_of_text - 1);
}

static bool read_flags(tokenizer_load_t *load, const json_t *object, const char *where,
                       added_token_t *token) {
  return load_bool(load, object, "lstrip", where, &token->lstrip) &&
         load_bool(load, object, "rstrip", where, &token->rstrip) &&
         load_bool(load, object, "single_word", where, &token->single_word) &&
         load_bool(load, object, "normalized", where, &token->normalized) &&
         load_bool(load, object, "special", where, &token->special);
}

/* A special token by its name, a string or an object. A token that is listed already is
 * unchanged, except for properties that added_tokens.json cannot express. Beside tokenizer.json a
 * token without an id is ignored. */
static int add_named(tokenizer_load_t *load, const json_t *named, const char *where, bool legacy) {
  const json_t *text = token_text(named);
  added_token_t token = {.special = true};
  if (text == NULL || text->length == 0) return 0;
  uint32_t id = vocab_find(&load->tokenizer->added_vocab, text->text, text->length);
  if (id != NO_ID && (!legacy || load->tokenizer->added[load->tokenizer->added_of[id]].special))
    return 0;
  if (!legacy && tokenizer_id(load->tokenizer, text->text, text->length) < 0) return 0;
  if (named->type == JSON_OBJECT && !read_flags(load, named, where, &token))
    return ERR_MODEL_MALFORMED;
  token.special = true;
  return load_added_token(load, text->text, text->length, token);
}

/* Tokens that the configuration calls special are matched in a text even if the list of added
 * tokens lacks them. */
static int add_named_tokens(tokenizer_load_t *load, const json_t *config, const json_t *map,
                            bool legacy) {
  static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};
  static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
  int code = 0;
  for (unsigned i = 0; i < ARRAY_LEN(keys) && code == 0; i++) {
    const json_t *named = load_field(config, keys[i]);
    if (named == NULL) named = load_field(map, keys[i]);
    code = add_named(load, named, keys[i], legacy);
  }
  for (unsigned i = 0; i < ARRAY_LEN(lists); i++) {
    const json_t *list = load_field(config, lists[i]);
    if (list == NULL) list = load_field(map, lists[i]);
    if (list == NULL || (list->type != JSON_ARRAY && list->type != JSON_OBJECT)) continue;
    JSON_EACH(named, list) {
      if (code == 0) code = add_named(load, named, lists[i], legacy);
    }
  }
  bool all = true; /* of bos, eos and unk */
  for (unsigned i = 0; i < 3; i++)
    all = all && (load_field(config, keys[i]) != NULL || load_field(map, keys[i]) != NULL);
  if (code != 0 || !legacy || all || end_of_text_id(load->tokenizer) < 0) return code;
  return load_added_token(load, end_of_text, sizeof end_of_text - 1,
                          (added_token_t){.special = true});
}

/* A token of added_tokens_decoder {"id": {"content": ...}} or added_tokens.json {"content": id}. */
typedef struct listed {
  const char *content;
  size_t length;
  int64_t id;
  added_token_t token;
} listed_t;

static int read_listed(tokenizer_load_t *load, const char *where, const json_t *entry, bool decoder,
                       listed_t *out) {
  *out = (listed_t){.content = entry->key, .length = entry->key_length};
  out->token.normalized = true;
  bool ok = json_int64(entry, &out->id);
  if (decoder) {
    const json_t *text = load_field(entry, "content");
    char digits[16] = "", *end = digits;
    if (entry->key_length > 0 && entry->key_length < sizeof digits && entry->key[0] != '-')
      memcpy(digits, entry->key, entry->key_length);
    out->id = strtoll(digits, &end, 10);
    ok = end != digits && *end == '\0' && text != NULL && text->type == JSON_STRING;
    if (ok) out->content = text->text, out->length = text->length;
    if (!read_flags(load, entry, where, &out->token)) return ERR_MODEL_MALFORMED;
  }
  if (ok && out->id >= 0 && out->id < VOCAB_ID_MAX) return 0;
  return load_fail(load, where, "a token has no content, or no id below %d", VOCAB_ID_MAX);
}

/* Known tokens take the properties; new ones follow in the order of their ids, which must be the
 * next free ones. */
static int add_listed(tokenizer_load_t *load, const char *where, const json_t *list, bool decoder) {
  char quoted[96];
  for (int64_t last = -1;;) {
    listed_t best = {.id = -1}, at;
    JSON_EACH(entry, list) {
      int code = read_listed(load, where, entry, decoder, &at);
      bool known = code == 0 && tokenizer_id(load->tokenizer, at.content, at.length) >= 0;
      if (code == 0 && known && last < 0)
        code = load_added_token(load, at.content, at.length, at.token);
      if (code != 0) return code;
      if (!known && (best.id < 0 || at.id < best.id)) best = at;
    }
    if (best.id < 0) return 0;
    int code = load_added_token(load, best.content, best.length, best.token);
    if (code != 0) return code;
    last = tokenizer_id(load->tokenizer, best.content, best.length);
    if (last != best.id)
      return load_fail(load, where, "\"%s\" has the id %lld, but the next free one is %lld",
                       error_quote(quoted, sizeof quoted, best.content, (unsigned)best.length),
                       (long long)best.id, (long long)last);
  }
}

/* vocab.json with merges.txt does not describe the pipeline: it is that of GPT-2. */
static int check_legacy(tokenizer_load_t *load, const json_t *config) {
  const json_t *name = load_field(config, "tokenizer_class");
  char quoted[96];
  bool prefix = false;
  if (name != NULL && !json_equals(name, "GPT2Tokenizer") &&
      !json_equals(name, "GPT2TokenizerFast"))
    return load_fail(load, "tokenizer_class",
                     "\"%s\" needs a tokenizer.json; vocab.json with merges.txt is read as that "
                     "of GPT2Tokenizer",
                     load_quote(quoted, name));
  if (!load_bool(load, config, "add_prefix_space", "config", &prefix)) return ERR_MODEL_MALFORMED;
  if (prefix) {
    load->tokenizer->pretokenizer.phases[0].prefix = PREFIX_ALWAYS;
    load->tokenizer->pretokenizer.phases[0].prefix_text[0] = ' ';
    load->tokenizer->pretokenizer.phases[0].prefix_length = 1;
  }
  return 0;
}

/* Adds BOS and EOS that the configuration requests and the post-processor does not add. */
static int add_affixes(tokenizer_load_t *load, const json_t *config) {
  tokenizer_t *tokenizer = load->tokenizer;
  bool bos = false, eos = false;
  if (!load_bool(load, config, "add_bos_token", "config", &bos) ||
      !load_bool(load, config, "add_eos_token", "config", &eos))
    return ERR_MODEL_MALFORMED;
  for (unsigned i = 0; i < tokenizer->num_prefix; i++)
    bos = bos && tokenizer->prefix[i] != tokenizer->bos_id;
  for (unsigned i = 0; i < tokenizer->num_suffix; i++)
    eos = eos && tokenizer->suffix[i] != tokenizer->eos_id;
  if (bos && tokenizer->bos_id >= 0 && tokenizer->num_prefix < AFFIX_IDS_MAX) {
    memmove(tokenizer->prefix + 1, tokenizer->prefix,
            tokenizer->num_prefix * sizeof tokenizer->prefix[0]);
    tokenizer->prefix[0] = tokenizer->bos_id;
    tokenizer->num_prefix++;
  }
  if (eos && tokenizer->eos_id >= 0 && tokenizer->num_suffix < AFFIX_IDS_MAX)
    tokenizer->suffix[tokenizer->num_suffix++] = tokenizer->eos_id;
  return 0;
}

static int apply(tokenizer_load_t *load, const json_t *config, const json_t *map, bool legacy) {
  tokenizer_t *tokenizer = load->tokenizer;
  const json_t *listed = load_field(config, "added_tokens_decoder");
  int code = legacy ? check_legacy(load, config) : 0;
  if (code == 0 && listed != NULL) code = add_listed(load, "added_tokens_decoder", listed, true);
  if (code == 0) code = add_named_tokens(load, config, map, legacy);
  if (code != 0) return code;
  tokenizer->bos_id = token_id(tokenizer, config, map, "bos_token");
  tokenizer->eos_id = token_id(tokenizer, config, map, "eos_token");
  if (legacy && tokenizer->bos_id < 0) tokenizer->bos_id = end_of_text_id(tokenizer);
  if (legacy && tokenizer->eos_id < 0) tokenizer->eos_id = end_of_text_id(tokenizer);
  double limit = 0;
  if (json_double(load_field(config, "model_max_length"), &limit) && limit > 0)
    tokenizer->model_max_length = limit;
  return config == NULL ? 0 : add_affixes(load, config);
}

int load_config(tokenizer_load_t *load, bool legacy) {
  load_doc_t config = {0}, map = {0}, added = {0};
  bool has_config, has_map, has_added = false;
  int code = legacy ? load_open(load, "added_tokens.json", &added, &has_added) : 0;
  if (code == 0 && has_added) code = add_listed(load, "added_tokens", json_root(added.doc), false);
  load_close(&added);
  if (code == 0) code = load_open(load, "special_tokens_map.json", &map, &has_map);
  if (code == 0) code = load_open(load, "tokenizer_config.json", &config, &has_config);
  if (code == 0) {
    if (!has_config) load->file = "special_tokens_map.json";
    code = apply(load, has_config ? json_root(config.doc) : NULL,
                 has_map ? json_root(map.doc) : NULL, legacy);
  }
  load_close(&config);
  load_close(&map);
  return code;
}
