/* families.c: the table of model families, and what is looked up in it.
 *
 * Defaults are those of the transformers configuration classes; names and shapes are those of the
 * published checkpoints. Constant data; any thread may read it.
 */
#include "engine/base/util.h"
#include "engine/model/families/family.h"

#include <stdio.h>
#include <string.h>

/* The lineages, each in a file of its name. */
extern const family_table_t lineage_llama, lineage_mistral, lineage_qwen, lineage_gemma,
    lineage_phi, lineage_olmo, lineage_granite, lineage_glm, lineage_deepseek, lineage_falcon,
    lineage_cohere, lineage_gpt, lineage_hunyuan, lineage_experts, lineage_exaone, lineage_nemotron,
    lineage_arcee, lineage_lfm2, lineage_bert, lineage_bloom, lineage_deberta, lineage_t5,
    lineage_bart, lineage_whisper, lineage_nanochat, lineage_apertus, lineage_mamba, lineage_eagle;
static const family_table_t *const tables[] = {
    &lineage_llama,    &lineage_mistral, &lineage_qwen,    &lineage_gemma,    &lineage_phi,
    &lineage_olmo,     &lineage_granite, &lineage_glm,     &lineage_deepseek, &lineage_falcon,
    &lineage_cohere,   &lineage_gpt,     &lineage_hunyuan, &lineage_experts,  &lineage_exaone,
    &lineage_nemotron, &lineage_arcee,   &lineage_lfm2,    &lineage_bert,     &lineage_bloom,
    &lineage_deberta,  &lineage_t5,      &lineage_bart,    &lineage_whisper,  &lineage_nanochat,
    &lineage_apertus,  &lineage_mamba,   &lineage_eagle};

/* The row behind `row`, of the first table when `row` is NULL; NULL = no more. */
static const family_t *next_family(const family_t *row, size_t *table) {
  if (row == NULL) return tables[*table = 0]->rows;
  if (++row < tables[*table]->rows + tables[*table]->count) return row;
  return ++*table < ARRAY_LEN(tables) ? tables[*table]->rows : NULL;
}

static bool same(const char *name, const char *text, size_t length) {
  return strlen(name) == length && memcmp(name, text, length) == 0;
}

const char *const *layout_prefixes(const layout_t *layout, bool gguf) {
  static const char *const none[LAYOUT_PREFIXES_MAX] = {""};
  return gguf ? none : layout->prefixes;
}

const char *const *layout_ignored(const layout_t *layout, bool gguf) {
  /* The divisors of the angles are read with the metadata; cls.output of a decoder that judges
   * holds rows of its head. */
  static const char *const all[LAYOUT_IGNORED_MAX] = {
      "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight",
      "$.attn_rot_embd.weight", "cls.output.weight"};
  return gguf ? all : layout->ignored;
}

const family_t *family_by_architecture(const char *architecture, size_t length) {
  size_t table;
  const family_t *row = next_family(NULL, &table);
  while (row != NULL && !same(row->architecture, architecture, length))
    row = next_family(row, &table);
  return row;
}

const family_t *family_by_name(const char *name, size_t length) {
  size_t table;
  const family_t *row = next_family(NULL, &table);
  while (row != NULL && !same(row->name, name, length)) row = next_family(row, &table);
  return row;
}

const gguf_name_t *family_gguf(size_t index) {
  for (size_t i = 0; i < ARRAY_LEN(tables); index -= tables[i++]->num_gguf)
    if (index < tables[i]->num_gguf) return &tables[i]->gguf[index];
  return NULL;
}

const family_t *family_by_text_type(const char *type, size_t length) {
  size_t table;
  const family_t *row = next_family(NULL, &table);
  while (row != NULL && !same(row->name, type, length) &&
         (row->text_type == NULL || !same(row->text_type, type, length)))
    row = next_family(row, &table);
  return row;
}

const family_t *family_by_text(const char *architecture, const char *type, size_t length) {
  size_t table;
  const family_t *row = next_family(NULL, &table);
  for (; row != NULL; row = next_family(row, &table)) {
    if (row->text_type != NULL && same(row->text_type, type, length) &&
        strcmp(row->architecture, architecture) == 0)
      return row;
  }
  return NULL;
}

const family_t *family_by_body(const char *architecture, size_t length, label_head_t *head) {
  static const char *const ends[] = {"ForSequenceClassification",
                                     "ForTokenClassification",
                                     "ForMaskedLM",
                                     "ForPreTraining",
                                     "TextModel",
                                     "Model"};
  static const label_head_t heads[ARRAY_LEN(ends)] = {LABELS_OF_TEXTS, LABELS_OF_TOKENS};
  static const char *const rows[] = {"ForCausalLM", "LMHeadModel", "Model"};
  for (size_t i = 0; i < ARRAY_LEN(ends) * ARRAY_LEN(rows); i++) {
    const char *end = ends[i / ARRAY_LEN(rows)], *row = rows[i % ARRAY_LEN(rows)];
    size_t tail = strlen(end);
    char whole[64];
    if (length <= tail || length > 48 || memcmp(architecture + length - tail, end, tail) != 0)
      continue;
    int n = snprintf(whole, sizeof(whole), "%.*s%s", (int)(length - tail), architecture, row);
    const family_t *family = family_by_architecture(whole, (size_t)n);
    *head = heads[i / ARRAY_LEN(rows)];
    if (family != NULL) return family;
  }
  return NULL;
}

static const char alibi[] = "it needs a bias of the scores by distance (ALiBi)";
static const char by_layer[] = "it needs numbers by distance in each layer";
static const char lightning[] = "it needs lightning attention";
static const char reference[] =
    "it is published with remote code alone, with which nothing was compared yet";
static const char factor[] = "its reference leaves out the factor of its text model's logits";
static const struct {
  const char *begin, *advice; /* of its name */
} advices[] = {
    {"ChatGLMModel", "its files for transformers are (names end in -hf, GlmForCausalLM)"},
    {"ChatGLM", "GLM-4 is (GlmForCausalLM, Glm4ForCausalLM)"},
    {"RWForCausalLM", "newer files of the same model are (FalconForCausalLM)"},
    {"StableLMEpoch", "newer files of the same model are (StableLmForCausalLM)"},
    {"MixFormerSequential", "newer files of the same model are (PhiForCausalLM)"},
    {"Baichuan", "it needs a norm of the head's rows, and ALiBi"},
    {"Phi3Small", "it needs attention to blocks of keys"},
    {"BitNet", "it needs norms inside of the blocks"},
    {"BailingHybrid", "it needs layers of linear attention"},
    {"Bailing", reference},
    {"MiMoForCausalLM", reference},
    {"MiniCPMForCausalLM", reference},
    {"MiniCPM3", "it needs scales of its embeddings and residuals beside latent attention"},
    {"MiMoV2Flash", "it needs values of another width than keys, beside windows and sinks"},
    {"DeciLM", "its layers differ in their heads and widths"},
    {"Qwen2ForRewardModel", "it needs a head of two layers"},
    {"Dbrx", "it needs clipped q, k and v"},
    {"DBRX", "it needs clipped q, k and v"},
    {"Zamba", "it needs blocks of attention that layers share"},
    {"RWKV", "it needs layers of RWKV, which have no attention"},
    {"Rwkv", "it needs layers of RWKV, which have no attention"},
    {"MiniMaxText01", lightning},
    {"MiniMaxM1", lightning},
    {"MiniMaxForCausalLM", lightning},
    {"LongcatFlash", "it needs two attentions a layer and experts that compute nothing"},
    {"JinaBert", alibi},
    {"NeoBERT", reference},
    {"Ernie4_5_VL", "it needs experts of images beside those of text"},
    {"Llama4", "it needs attention in chunks"},
    {"KimiLinear", "it needs Kimi Delta Attention"},
    {"DebertaModel", "DeBERTa V2 and V3 are (DebertaV2Model)"},
    {"DebertaFor", "DeBERTa V2 and V3 are (DebertaV2Model)"},
    {"T5Gemma", "it needs layers of Gemma on both sides"},
    {"T5", "its encoder is (T5EncoderModel), and so is T5ForConditionalGeneration"},
    {"UMT5", by_layer},
    {"MT5", "its encoder is (MT5EncoderModel), and so is MT5ForConditionalGeneration"},
    {"Bart", "BartForConditionalGeneration is"},
    {"MBart", "MBartForConditionalGeneration is"},
    {"PLBart", "it was not compared with its reference yet"},
    {"Whisper", "WhisperForConditionalGeneration is"},
    {"PaliGemma", "it needs attention in both directions within prompts"},
    {"AyaVision", factor},
    {"Cohere2Vision", factor},
    {"GraniteSpeech", factor},
};

const char *family_advice(const char *architecture, size_t length) {
  for (size_t i = 0; i < ARRAY_LEN(advices); i++) {
    size_t begin = strlen(advices[i].begin);
    if (length >= begin && memcmp(advices[i].begin, architecture, begin) == 0)
      return advices[i].advice;
  }
  return NULL;
}
