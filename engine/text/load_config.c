/* load_config.c: what tokenizer_config.json and special_tokens_map.json add to the pipeline.
 *
 * The loading thread only. These files never change how text is split; they name the special
 * tokens, say whether BOS and EOS are put around a text, and give the length limit.
 */
#include "engine/text/load.h"

#include <string.h>

/* A token is a string or an object with "content"; NULL when it is neither. */
static const json_t *token_text(const json_t *value) {
  if (value != NULL && value->type == JSON_OBJECT) value = load_field(value, "content");
  return value != NULL && value->type == JSON_STRING ? value : NULL;
}

static int32_t token_id(const tokenizer_t *t, const json_t *first, const json_t *second,
                        const char *key) {
  const json_t *text = token_text(load_field(first, key));
  if (text == NULL) text = token_text(load_field(second, key));
  return text == NULL ? -1 : tokenizer_id(t, text->text, text->length);
}

/* vocab.json has no list of added tokens: the named special tokens of the configuration are it. */
static int add_named_tokens(load_t *load, const json_t *config, const json_t *map) {
  static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};
  static const char end_of_text[] = "<|endoftext|>"; /* what GPT-2's own files take for granted */
  bool any = false;
  for (unsigned i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const json_t *named = load_field(config, keys[i]);
    if (named == NULL) named = load_field(map, keys[i]);
    const json_t *text = token_text(named);
    added_token_t token = {.special = true};
    if (text == NULL || text->length == 0) continue;
    any = true;
    if (named->type == JSON_OBJECT &&
        (!load_bool(load, named, "lstrip", keys[i], &token.lstrip) ||
         !load_bool(load, named, "rstrip", keys[i], &token.rstrip) ||
         !load_bool(load, named, "single_word", keys[i], &token.single_word) ||
         !load_bool(load, named, "normalized", keys[i], &token.normalized)))
      return ERR_MODEL_MALFORMED;
    int rc = load_added_token(load, text->text, text->length, token);
    if (rc != 0) return rc;
  }
  if (any || tokenizer_id(load->t, end_of_text, sizeof end_of_text - 1) < 0) return 0;
  return load_added_token(load, end_of_text, sizeof end_of_text - 1,
                          (added_token_t){.special = true});
}

/* BOS and EOS that the configuration asks for and the post-processor does not give. */
static int add_affixes(load_t *load, const json_t *config) {
  tokenizer_t *t = load->t;
  bool bos = false, eos = false;
  if (!load_bool(load, config, "add_bos_token", "config", &bos) ||
      !load_bool(load, config, "add_eos_token", "config", &eos))
    return ERR_MODEL_MALFORMED;
  for (unsigned i = 0; i < t->num_prefix; i++) bos = bos && t->prefix[i] != t->bos_id;
  for (unsigned i = 0; i < t->num_suffix; i++) eos = eos && t->suffix[i] != t->eos_id;
  if (bos && t->bos_id >= 0 && t->num_prefix < AFFIX_IDS_MAX) {
    memmove(t->prefix + 1, t->prefix, t->num_prefix * sizeof t->prefix[0]);
    t->prefix[0] = t->bos_id;
    t->num_prefix++;
  }
  if (eos && t->eos_id >= 0 && t->num_suffix < AFFIX_IDS_MAX)
    t->suffix[t->num_suffix++] = t->eos_id;
  return 0;
}

static int apply(load_t *load, const json_t *config, const json_t *map, bool legacy) {
  tokenizer_t *t = load->t;
  int rc = legacy ? add_named_tokens(load, config, map) : 0;
  if (rc != 0) return rc;
  t->bos_id = token_id(t, config, map, "bos_token");
  t->eos_id = token_id(t, config, map, "eos_token");
  if (legacy && t->eos_id < 0 && t->num_added == 1) t->bos_id = t->eos_id = (int32_t)t->added[0].id;
  double limit = 0;
  if (json_double(load_field(config, "model_max_length"), &limit) && limit > 0)
    t->model_max_length = limit;
  t->truncates_left = json_equals(load_field(config, "truncation_side"), "left");
  return config == NULL ? 0 : add_affixes(load, config);
}

int load_config(load_t *load, bool legacy) {
  load_doc_t config = {0}, map = {0};
  bool has_config, has_map;
  int rc = load_open(load, "special_tokens_map.json", &map, &has_map);
  if (rc == 0) rc = load_open(load, "tokenizer_config.json", &config, &has_config);
  if (rc == 0) {
    if (!has_config) load->file = "special_tokens_map.json";
    rc = apply(load, has_config ? json_root(config.doc) : NULL, has_map ? json_root(map.doc) : NULL,
               legacy);
  }
  load_close(&config);
  load_close(&map);
  return rc;
}
