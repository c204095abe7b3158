/* mistral.c: Mistral, Ministral and Mixtral.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t mixtral_patterns[] = {
    DECODER_ROWS,
    PRE_NORMS,
    ATTENTION_ROWS,
    ROUTER("block_sparse_moe.gate", WHEN_NEVER),
    EXPERTS("block_sparse_moe.experts.*.", "w1", "w3", "w2"),
    GGUF_EXPERTS(WHEN_NEVER),
};

static const layout_t layout_mixtral = {LLAMA_LIKE(mixtral_patterns)};

#define MISTRAL                                                                                    \
  LLAMA_PARTS, SIZES(32000, 4096, 14336, 32, 32, 8, 0, 131072), IDS(2, 1),                         \
      .window = 4096, .window_rule = WINDOW_ALL
#define MINISTRAL3                                                                                 \
  LLAMA_PARTS, SIZES(131072, 4096, 14336, 34, 32, 8, 128, 262144), IDS(2, 1),                      \
      .norm_eps = 1e-5, .rope_theta = 0, .window_rule = WINDOW_ALL, .query_growth = true,          \
      .gguf_zipped = true

static const family_t rows[] = {
    {MISTRAL, NAMES("mistral", "MistralForCausalLM")},
    /* Mistral whose layers may have windows of their own. */
    {MISTRAL, NAMES("ministral", "MinistralForCausalLM"), .window_rule = WINDOW_LISTED,
     .gguf_zipped = true},
    {MINISTRAL3, NAMES("ministral3", "Ministral3ForCausalLM")},
    /* The wrapper of Mistral's models that see images has two kinds of text models. */
    {MISTRAL, NAMES("mistral3", "Mistral3ForConditionalGeneration"), TEXT_OF("mistral"),
     .tied = true},
    {MINISTRAL3, NAMES("mistral3_ministral3", "Mistral3ForConditionalGeneration"),
     TEXT_OF("ministral3"), .tied = true},
    {LLAMA_PARTS, NAMES("mixtral", "MixtralForCausalLM"), .layout = &layout_mixtral,
     SIZES(32000, 4096, 14336, 32, 32, 8, 0, 131072), IDS(2, 1), .norm_eps = 1e-5,
     .rope_theta = 1e6, .window_rule = WINDOW_ALL, .expert_keys = EXPERTS_MIXTRAL, .num_experts = 8,
     .experts_top = 2, .gguf_zipped = true},
};

static const gguf_name_t gguf[] = {
    {"mistral3", "Ministral3ForCausalLM", QUERY_GROWTH, 0},
};

const family_table_t lineage_mistral = {rows, ARRAY_LEN(rows), gguf, ARRAY_LEN(gguf)};
