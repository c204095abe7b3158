/* layouts_gguf_encoders.c: the tensor names of encoders in GGUF files.
 *
 * As layouts_gguf.c says. Classifiers are "cls", "cls.norm" and "cls.output". Constant data; any
 * thread may read it.
 */
#include "engine/model/layouts/layout_gguf_rows.h"

#include <stddef.h>

#define OUTSIDE(role, name, rows, cols, when, bias)                                                \
  { role, name, rows, cols, when, bias, FORM_PLAIN }
#define WORDS OUTSIDE(ROLE_EMBED, "token_embd", DIM_VOCAB, DIM_EMBED, WHEN_ALWAYS, WHEN_NEVER)
#define WORDS_NORM(bias)                                                                           \
  OUTSIDE(ROLE_EMBED_NORM, "token_embd_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, bias)
#define TYPES OUTSIDE(ROLE_TYPES, "token_types", DIM_TYPES, DIM_HIDDEN, WHEN_TYPES, WHEN_NEVER)
#define CLASSIFIER_ROWS(bias)                                                                      \
  OUTSIDE(ROLE_POOLER, "cls", DIM_HIDDEN, DIM_HIDDEN, WHEN_LABELS, bias),                          \
      OUTSIDE(ROLE_CLASSIFIER, "cls.output", DIM_LABELS, DIM_HIDDEN, WHEN_LABELS, WHEN_LABELS)
/* Both norms stand behind their block. */
#define LATE_NORMS                                                                                 \
  LAYER_NORM_ROW(ROLE_ATTN_NORM, "attn_output_norm"),                                              \
      LAYER_NORM_ROW(ROLE_MLP_NORM, "layer_output_norm")

static const tensor_pattern_t bert_patterns[] = {
    WORDS,
    OUTSIDE(ROLE_POSITIONS, "position_embd", DIM_POSITIONS, DIM_HIDDEN, WHEN_ALWAYS, WHEN_NEVER),
    TYPES,
    WORDS_NORM(WHEN_ALWAYS),
    CLASSIFIER_ROWS(WHEN_LABELS),
    FUSED_OR_APART,
    UP_ROW,
    DOWN_ROW,
    LATE_NORMS,
};

static const tensor_pattern_t nomic_bert_patterns[] = {
    WORDS,      TYPES,      WORDS_NORM(WHEN_ALWAYS), CLASSIFIER_ROWS(WHEN_LABELS), FUSED_OR_APART,
    DENSE_ROWS, LATE_NORMS,
};

#define MODERN_NORM(role, name, when, bias) MATRIX(role, name, DIM_HIDDEN, DIM_NONE, when, bias)
static const tensor_pattern_t modern_bert_patterns[] = {
    WORDS,
    WORDS_NORM(WHEN_NORM_BIAS),
    OUTSIDE(ROLE_FINAL_NORM, "output_norm", DIM_HIDDEN, DIM_NONE, WHEN_ALWAYS, WHEN_NORM_BIAS),
    CLASSIFIER_ROWS(WHEN_POOLER_BIAS),
    OUTSIDE(ROLE_POOLER_NORM, "cls.norm", DIM_HIDDEN, DIM_NONE, WHEN_LABELS, WHEN_LABELS_NORM_BIAS),
    MODERN_NORM(ROLE_ATTN_NORM, "attn_norm", WHEN_NOT_FIRST, WHEN_NOT_FIRST_BIAS),
    MODERN_NORM(ROLE_MLP_NORM, "ffn_norm", WHEN_ALWAYS, WHEN_NORM_BIAS),
    FUSED_OR_APART,
    GATE_UP_ROWS,
};

const layout_t layout_gguf_bert = GGUF_LAYOUT(bert_patterns, false);
const layout_t layout_gguf_nomic_bert = GGUF_LAYOUT(nomic_bert_patterns, false);
const layout_t layout_gguf_modern_bert = GGUF_LAYOUT(modern_bert_patterns, false);
