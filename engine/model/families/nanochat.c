/* nanochat.c: NanoChat: norms without weights, one of them behind the embeddings; heads are normed
 * behind their rotation, which turns the other way.
 *
 * Rows of tensors as in rows.h. Constant data; any thread may read it.
 */
#include "engine/model/families/rows.h"

static const tensor_pattern_t nanochat_patterns[] = {
    EMBED("embed_tokens"), HEAD("/lm_head", WHEN_NEVER), PROJECTION_ROWS, UP("fc1"), DOWN("fc2"),
};

static const layout_t layout_nanochat = {LLAMA_LIKE(nanochat_patterns)};

static const family_t rows[] = {
    {LLAMA_PARTS, NAMES("nanochat", "NanoChatForCausalLM"), .layout = &layout_nanochat,
     SIZES(50304, 768, 8192, 12, 6, 0, 0, 2048), IDS(1, 0), .activation = "relu2",
     .gated_mlp = false, .attention_bias_key = "attention_bias", .embed_norm = true,
     .qk_norm = true, .qk_norm_late = true, .rope_reversed = true, .final_softcap = 15},
};

const family_table_t lineage_nanochat = {rows, ARRAY_LEN(rows), NULL, 0};
