/* layouts_gguf_states.c: the tensor names of families with layers that keep a state, in GGUF files.
 *
 * As layouts_gguf.c says. Constant data; any thread may read it.
 */
#include "engine/model/layouts/layout_gguf_rows.h"

#include <stddef.h>

/* The last norm has the name of one behind the embeddings. */
static const tensor_pattern_t lfm2_patterns[] = {
    {ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_FINAL_NORM, "token_embd_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER, FORM_PLAIN},
    {ROLE_HEAD, "output", DIM_VOCAB, DIM_EMBED, WHEN_UNTIED, WHEN_NEVER, FORM_PLAIN},
    NORM_ROW(ROLE_ATTN_NORM, "attn_norm"),
    NORM_ROW(ROLE_MLP_NORM, "ffn_norm"),
    ATTENTION_ROWS,
    MATRIX(ROLE_MIX_IN, "shortconv.in_proj", DIM_MIX_IN, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    {ROLE_MIX_CONV, "blk.#.shortconv.conv", DIM_MIX_CONV, DIM_NONE, WHEN_ALWAYS, WHEN_NEVER,
     FORM_CONV},
    MATRIX(ROLE_MIX_OUT, "shortconv.out_proj", DIM_HIDDEN, DIM_MIX_INNER, WHEN_ALWAYS, WHEN_NEVER),
    SCORED_ROWS,
    CHOICE_ROW,
};

const layout_t layout_gguf_lfm2 = GGUF_LAYOUT(lfm2_patterns, false);
