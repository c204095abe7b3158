/* config_cross.c: models of two stacks of layers, an encoder and the decoder that sees its rows:
 * the keys of each stack, and how a prompt of the decoder begins.
 *
 * Any thread, no state. Reference: transformers 5.
 */
#include "engine/model/config/config.h"

#include "engine/base/util.h"
#include "engine/model/source/safetensors.h"

#include <math.h>

/* Longest sequence of a model without a table of positions, if an option asks for it. */
enum { UNBOUNDED_POSITIONS = 32768, BEAMS_MAX = 64, BANDS_MAX = 128 };

const char *const *config_layer_keys(const config_reader_t *reader, const family_t *family) {
  static const char *const alone[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers",
                                      NULL};
  static const char *const encoder[] = {"encoder_layers", NULL};
  static const char *const decoder[] = {"decoder_layers", NULL};
  static const char *const t5_decoder[] = {"num_decoder_layers", NULL};
  if (family->side == SIDE_ALONE) return alone;
  if (!family->t5_keys) return family->side == SIDE_ENCODER ? encoder : decoder;
  /* null, or no such key: as many as in the encoder */
  const bool given = json_is_given(config_get(reader, t5_decoder[0]));
  return family->side == SIDE_DECODER && given ? t5_decoder : alone;
}

const char *const *config_head_keys(const family_t *family) {
  static const char *const encoder[] = {"encoder_attention_heads", NULL};
  static const char *const decoder[] = {"decoder_attention_heads", NULL};
  static const char *const t5[] = {"num_heads", "num_attention_heads", NULL};
  if (family->t5_keys) return t5;
  return family->side == SIDE_ENCODER ? encoder : decoder;
}

const char *const *config_mlp_keys(const family_t *family) {
  static const char *const alone[] = {"intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size",
                                      "hidden_dim",        "d_ff",    NULL};
  static const char *const encoder[] = {"encoder_ffn_dim", NULL};
  static const char *const decoder[] = {"decoder_ffn_dim", NULL};
  if (family->side == SIDE_ALONE || family->t5_keys) return alone;
  return family->side == SIDE_ENCODER ? encoder : decoder;
}

/* An id, or `absent` for none. */
static int32_t read_id(config_reader_t *reader, const char *key, int32_t absent,
                       const blueprint_t *bp) {
  return (int32_t)config_int_or_null(reader, KEYS(key), absent, absent, 0, bp->vocab_size - 1);
}

/* Words of one id; longer ones are named, and not kept from being generated. */
static void read_banned(config_reader_t *reader, blueprint_t *bp) {
  const json_t *words = json_get(reader->root, "bad_words_ids");
  cross_config_t *cross = &bp->cross;
  if (!json_is_given(words)) return;
  cross->num_banned = 0;
  JSON_EACH(word, words) {
    const json_t *first = word->type == JSON_ARRAY ? json_first(word) : NULL;
    int64_t id;
    if (first == NULL || word->count != 1 || cross->num_banned == BANNED_IDS_MAX) {
      blueprint_note(bp, "%s: bad_words_ids has more than single ids, which are not applied",
                     reader->file);
      continue;
    }
    if (!json_int64(first, &id) || id < 0 || id >= bp->vocab_size)
      config_refuse(reader, "bad_words_ids", first, "ids of 0..%d", bp->vocab_size - 1);
    else
      cross->banned_ids[cross->num_banned++] = (int32_t)id;
  }
}

void config_read_cross_defaults(config_reader_t *reader, blueprint_t *bp) {
  cross_config_t *cross = &bp->cross;
  if (!cross->crosses) return;
  cross->start_id = read_id(reader, "decoder_start_token_id", cross->start_id, bp);
  cross->forced_bos_id = read_id(reader, "forced_bos_token_id", cross->forced_bos_id, bp);
  cross->num_beams = (int32_t)config_int_or_null(reader, KEYS("num_beams"), cross->num_beams,
                                                 cross->num_beams, 1, BEAMS_MAX);
  cross->length_penalty =
      (float)config_double(reader, KEYS("length_penalty"), cross->length_penalty, -1e3, 1e3, false);
  read_banned(reader, bp);
  const json_t *early = json_get(reader->root, "early_stopping");
  if (json_is_given(early))
    cross->early_stopping = early->type == JSON_TRUE      ? EARLY_STOPPING_ON
                            : json_equals(early, "never") ? EARLY_STOPPING_NEVER
                                                          : EARLY_STOPPING_OFF;
  const int64_t longest =
      config_int_or_null(reader, KEYS("max_length"), 0, 0, 0, INT32_MAX); /* with the start id */
  if (bp->max_new_tokens < 0 && longest > 1) bp->max_new_tokens = (int32_t)longest - 1;
}

/* Whether the files have a bias of the logits; false without files. */
static bool has_logits_bias(const char *dir) {
  weight_files_t *files = NULL;
  if (weight_files_open(dir, &files, NULL) != 0) return false;
  const bool found = weight_files_find(files, "final_logits_bias") != NULL;
  weight_files_close(files);
  return found;
}

/* Two vocabularies, of which Marian's first models have one each. */
static void refuse_two_vocabularies(config_reader_t *reader, const blueprint_t *bp) {
  const json_t *shared = config_get(reader, "share_encoder_decoder_embeddings");
  const json_t *own = config_get(reader, "decoder_vocab_size");
  int64_t size = 0;
  if (shared != NULL && shared->type == JSON_FALSE)
    config_refuse(reader, "share_encoder_decoder_embeddings", shared, "absent or true");
  if (json_is_given(own) && json_int64(own, &size) && size != bp->vocab_size)
    config_refuse(reader, "decoder_vocab_size", own, "vocab_size, %d", bp->vocab_size);
}

/* T5 multiplies what its head reads by a number in files that tie the head, and newer files say
 * so in a key of its own. */
static void scale_head(config_reader_t *reader, blueprint_t *bp) {
  const bool scales = config_bool(reader, KEYS("scale_decoder_outputs"), bp->tied);
  if (scales) bp->head_scale = 1 / sqrt((double)bp->hidden_size);
}

void config_read_cross(config_reader_t *reader, const char *dir, const family_t *family,
                       blueprint_t *bp) {
  bp->sinusoid = family->sinusoid;
  if (family->side == SIDE_ALONE) return;
  if (family->num_bands > 0)
    bp->num_bands =
        (int32_t)config_int(reader, KEYS("num_mel_bins"), family->num_bands, 1, BANDS_MAX);
  if (family->sinusoid == SINUSOID_TO_END) /* positions begin behind that of the padding */
    bp->position_offset = 1 + read_id(reader, "pad_token_id", 1, bp);
  if (family->distances && (reader->encoder || family->side == SIDE_DECODER))
    bp->max_model_len = MAX(bp->max_model_len, UNBOUNDED_POSITIONS);
  if (family->side == SIDE_ENCODER) return;
  refuse_two_vocabularies(reader, bp);
  bp->cross = (cross_config_t){.crosses = true,
                               .logits_bias = has_logits_bias(dir),
                               .start_id = family->t5_keys ? 0 : -1,
                               .forced_bos_id = -1,
                               .num_beams = 1,
                               .length_penalty = 1};
  if (family->t5_keys) scale_head(reader, bp);
  config_read_cross_defaults(reader, bp);
}
