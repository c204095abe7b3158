/* config_gguf_encoder.c: what the tensors and keys of a GGUF file say about an encoder and about a
 * classifier.
 *
 * The file names "bert" what transformers calls BERT, RoBERTa, XLM-RoBERTa, CamemBERT or
 * DistilBERT; positions that RoBERTa never uses are cut off already. Any thread, no state.
 */
#include "engine/model/config/metadata.h"

#include <string.h>

static const gguf_tensor_t *find(const metadata_t *writer, const char *name) {
  return gguf_tensor(writer->gguf, name);
}

/* Rows of a matrix, of which a single one may be stored as a vector; 0 = it is not there. */
static int64_t rows_of(const gguf_tensor_t *tensor) {
  if (tensor == NULL) return 0;
  return tensor->rank < 2 ? 1 : tensor->shape[0];
}

static bool is_arch(const metadata_t *writer, const char *name) {
  return strcmp(writer->arch, name) == 0;
}

const char *metadata_encoder(metadata_t *writer, const char *architecture) {
  const bool labels = find(writer, "cls.output.weight") != NULL;
  const bool dense = find(writer, "cls.weight") != NULL;
  if (is_arch(writer, "gemma-embedding")) return architecture;
  if (labels != dense)
    metadata_refuse(writer, labels ? "cls.weight" : "cls.output.weight",
                    "is missing: converters leave the pooler of a classifier of BERT out, and "
                    "scores would be wrong; take the model as safetensors");
  if (is_arch(writer, "nomic-bert"))
    return labels ? "NomicBertForSequenceClassification" : architecture;
  if (is_arch(writer, "modern-bert"))
    return labels ? "ModernBertForSequenceClassification" : architecture;
  if (find(writer, "token_types.weight") == NULL)
    return labels ? "DistilBertForSequenceClassification" : "DistilBertModel";
  return labels ? "BertForSequenceClassification" : architecture;
}

/* ModernBERT: windows, norms with biases or without, and how its classifier pools. */
static void write_modern(metadata_t *writer) {
  char key[KEY_TEXT_MAX];
  int64_t every, pooling = 1;
  const gguf_value_t *act = metadata_find(writer, "%.hidden_activation", key);
  const char *text;
  size_t at = 0, length;
  metadata_copy_int(writer, "local_attention", "%.attention.sliding_window");
  const gguf_value_t *pattern = metadata_find(writer, "%.attention.sliding_window_pattern", key);
  if (pattern != NULL && pattern->kind != GGUF_ARRAY && gguf_int(pattern, 0, &every))
    metadata_put_int(writer, "global_attn_every_n_layers", every);
  else if (pattern != NULL)
    metadata_refuse(writer, key, "is no number of layers");
  metadata_put_bool(writer, "norm_bias", find(writer, "token_embd_norm.bias") != NULL);
  metadata_put_bool(writer, "classifier_bias", find(writer, "cls.bias") != NULL);
  metadata_take_int(writer, "%.classifier.pooling_type", &pooling);
  metadata_put_text(writer, "classifier_pooling", pooling == 1 ? "mean" : "cls");
  if (gguf_next_string(act, &at, &text, &length)) {
    metadata_name(writer, "hidden_activation");
    buffer_quote(writer->json, text, length);
  }
}

void metadata_write_encoder(metadata_t *writer) {
  int64_t labels = rows_of(find(writer, "cls.output.weight"));
  if (is_arch(writer, "gemma-embedding")) {
    if (find(writer, "dense_2.weight") != NULL)
      metadata_refuse(writer, "dense_2.weight",
                      "is a layer behind the pooling, which is read from safetensors alone: take "
                      "the model as such, or a file without it");
    metadata_put_bool(writer, "use_bidirectional_attention", true);
    return;
  }
  metadata_put_int(writer, "type_vocab_size", rows_of(find(writer, "token_types.weight")));
  if (labels > 0) metadata_put_int(writer, "num_labels", labels);
  if (is_arch(writer, "modern-bert")) write_modern(writer);
}

bool metadata_judges(metadata_t *writer) {
  const int64_t rows = rows_of(find(writer, "cls.output.weight"));
  if (rows == 0 || writer->needs & ENCODER) return false;
  if (rows == 2 && is_arch(writer, "qwen3")) return true;
  metadata_refuse(writer, "cls.output.weight",
                  "classifies; of decoders in GGUF files Qwen3-Reranker alone is served: take the "
                  "model as safetensors");
  return false;
}
