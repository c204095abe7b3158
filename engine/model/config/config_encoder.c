/* config_encoder.c: what encoders have beside the rest: both directions, types of tokens, positions
 * behind the padding, and the classifier on top of them.
 *
 * Any thread, no state. Reference: transformers 5.
 */
#include "engine/model/config/config.h"

#include "engine/base/util.h"

#include <string.h>

enum { TYPES_MAX = 1024, TABLE_SIZE_MAX = 65536, LABELS_DEFAULT = 2, LABELS_MAX = 65536 };

/* Keys of other variants of the same architectures, with the one value that is served. */
static void refuse_variants(config_reader_t *reader, const family_t *family) {
  static const char *const must_be_off[] = {"logn_attention_scale",
                                            "prenorm",
                                            "use_rms_norm",
                                            "parallel_block",
                                            "sinusoidal_pos_embds",
                                            "qkv_proj_bias",
                                            "mlp_fc1_bias",
                                            "rotary_emb_interleaved",
                                            "rotary_scaling_factor",
                                            "rotary_value",
                                            "chunk_size_feed_forward",
                                            "is_decoder"};
  const json_t *kind = config_get(reader, "position_embedding_type");
  const char *served = family->rotary ? "rope" : "absolute";
  if (json_is_given(kind) && !json_equals(kind, served))
    config_refuse(reader, "position_embedding_type", kind, "%s for %s", served,
                  family->architecture);
  for (size_t i = 0; i < ARRAY_LEN(must_be_off); i++) {
    const json_t *value = config_get(reader, must_be_off[i]);
    double number = 0;
    if (!json_is_given(value) || value->type == JSON_FALSE) continue;
    if (json_double(value, &number) && number == 0) continue;
    config_refuse(reader, must_be_off[i], value, "absent, null or false");
  }
}

/* RoBERTa's positions begin behind the id of the padding. */
static void read_padding(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (!family->padded_positions) return;
  int64_t pad = config_int_or_null(reader, KEYS("pad_token_id"), family->pad_id, family->pad_id, 0,
                                   bp->vocab_size - 1);
  if (family->distances && pad != family->pad_id)
    config_refuse(reader, "pad_token_id", config_get(reader, "pad_token_id"), "%d for %s",
                  family->pad_id, family->architecture);
  bp->position_offset = (int32_t)pad + 1;
  if (bp->num_positions <= bp->position_offset) {
    config_refuse(reader, "max_position_embeddings", NULL, "is %d; more than pad_token_id + 1, %d",
                  bp->num_positions, bp->position_offset);
    return;
  }
  bp->num_positions -= bp->position_offset;
  bp->max_model_len = MIN(bp->max_model_len, bp->num_positions);
  bp->default_model_len = MIN(bp->default_model_len, bp->num_positions);
}

/* A Qwen3-Reranker may be named as a classifier: its scores are rows of the head. */
static bool read_judge(const config_reader_t *reader, blueprint_t *bp) {
  const json_t *original = config_get(reader, "is_original_qwen3_reranker");
  bp->encoder.judges = original != NULL && original->type == JSON_TRUE;
  return bp->encoder.judges;
}

/* Tables of a width of their own: of ELECTRA's small models, and of ALBERT, which always projects
 * and has one layer again and again. */
static void read_tables(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  static const char *const groups[] = {"num_hidden_groups", "inner_group_num"};
  const char *key = family->table_key != NULL ? family->table_key : "embedding_size";
  const int32_t absent =
      family->table_size == TABLE_IS_HIDDEN ? bp->hidden_size : family->table_size;
  if (family->table_size == 0) return;
  const int64_t width =
      config_int_or_null(reader, KEYS(key), absent, bp->hidden_size, 1, TABLE_SIZE_MAX);
  if (width != bp->hidden_size || family->one_layer || family->table_projects)
    bp->encoder.table_size = (int32_t)width;
  bp->encoder.one_layer = family->one_layer;
  for (size_t i = 0; family->one_layer && i < ARRAY_LEN(groups); i++)
    if (config_int(reader, KEYS(groups[i]), 1, 0, INT32_MAX) != 1)
      config_refuse(reader, groups[i], config_get(reader, groups[i]), "1");
}

/* ERNIE: tokens may have a kind of task, too, of which all are 0. */
static void read_tasks(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (family->task_types == 0 || !config_bool(reader, KEYS("use_task_id"), false)) return;
  bp->encoder.task_types =
      (int32_t)config_int(reader, KEYS("task_type_vocab_size"), family->task_types, 1, TYPES_MAX);
  if (bp->encoder.token_types == 0)
    config_refuse(reader, "type_vocab_size", NULL, "is 0, beside use_task_id supported: 1..%d",
                  TYPES_MAX);
}

static void read_labels(config_reader_t *reader, const family_t *family, label_head_t head,
                        blueprint_t *bp) {
  const json_t *names = config_get(reader, "id2label");
  int64_t count =
      config_int_or_null(reader, KEYS("num_labels"), LABELS_DEFAULT, LABELS_DEFAULT, 1, LABELS_MAX);
  if (names != NULL && names->type == JSON_OBJECT && names->count > 0) count = names->count;
  bp->encoder.num_labels = (int32_t)count;
  bp->encoder.tags = head == LABELS_OF_TOKENS;
  if (!family->encoder) return;
  bool modern = family->first_unnormed, late = strcmp(family->name, "eurobert") == 0;
  if (bp->encoder.tags && !modern) return; /* nothing stands between a token and its labels */
  bp->encoder.has_pooler = true;
  bp->encoder.pooler_norm = modern;
  bp->encoder.pooler_bias = !modern || config_bool(reader, KEYS("classifier_bias"), false);
  bp->encoder.pooler = modern ? ACTIVATION_GELU : ACTIVATION_TANH;
  if (strcmp(family->name, "distilbert") == 0) bp->encoder.pooler = ACTIVATION_RELU;
  if (late || family->deberta_keys || strcmp(family->name, "electra") == 0)
    bp->encoder.pooler = ACTIVATION_GELU;
  if (strcmp(family->name, "roformer") == 0) bp->encoder.pooler = bp->activation;
  const json_t *act = config_get(reader, "classifier_activation");
  if (modern && act != NULL && !json_equals(act, "gelu"))
    config_refuse(reader, "classifier_activation", act, "gelu");
  if (bp->encoder.tags) return;
  const json_t *pooling = config_get(reader, "classifier_pooling");
  bp->encoder.mean_pooled = (modern || late) && json_equals(pooling, "mean");
  if (late && !bp->encoder.mean_pooled && !json_equals(pooling, "bos"))
    config_refuse(reader, "classifier_pooling", pooling, "bos, mean (its default is late)");
  if (modern && pooling != NULL && !bp->encoder.mean_pooled && !json_equals(pooling, "cls"))
    config_refuse(reader, "classifier_pooling", pooling, "cls, mean");
}

void config_read_encoder(config_reader_t *reader, const family_t *family, label_head_t head,
                         blueprint_t *bp) {
  if (family->norm_bias_key != NULL)
    bp->encoder.plain_norms = !config_bool(reader, KEYS(family->norm_bias_key), false);
  const json_t *both = config_get(reader, "use_bidirectional_attention");
  bool both_ways = both != NULL && both->type == JSON_TRUE;
  if (both_ways && !bp->headless)
    config_refuse(reader, "use_bidirectional_attention", both,
                  "absent, null or false in a model that generates");
  bp->encoder.bidirectional = family->encoder || both_ways;
  /* The window counts the tokens of both sides; an attention of ours those of one, and itself. */
  if (bp->encoder.bidirectional && bp->window > 0) bp->window = bp->window / 2 + 1;
  if (!read_judge(reader, bp) && head != LABELS_NONE) read_labels(reader, family, head, bp);
  bp->encoder.embed_norm = family->embed_norm;
  if (!family->encoder) return;
  refuse_variants(reader, family);
  bp->encoder.first_unnormed = family->first_unnormed;
  if (family->token_types > 0)
    bp->encoder.token_types =
        (int32_t)config_int(reader, KEYS("type_vocab_size"), family->token_types, 0, TYPES_MAX);
  read_tasks(reader, family, bp);
  read_tables(reader, family, bp);
  read_padding(reader, family, bp);
}
