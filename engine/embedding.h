/* embedding.h: what an engine makes of prompts instead of tokens: one vector for each, or scores.
 *
 * Plain data. The model directory says how the hidden states of a prompt become its vector, in the
 * files that sentence-transformers writes; options go before them. Constant once the engine is
 * READY. Symbol: h hidden size.
 */
#ifndef INFERD_ENGINE_EMBEDDING_H
#define INFERD_ENGINE_EMBEDDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMBEDDING_SIZES_MAX = 64, DENSE_MAX = 4, DENSE_PATH_MAX = 160 };

typedef enum engine_task {
  TASK_AUTO, /* of an option: as the model says */
  TASK_GENERATE,
  TASK_EMBED,
  TASK_CLASSIFY, /* a text gets a score for each label */
  TASK_RERANK,   /* a pair of texts gets one score */
  TASK_TAG,      /* each token of a text gets a score for each label */
  TASK_POOL      /* of an option: any but to generate */
} engine_task_t;

/* What makes probabilities of the scores of a classifier. */
typedef enum score_activation {
  SCORE_SIGMOID,
  SCORE_SOFTMAX,
  SCORE_TANH,
  SCORE_IDENTITY
} score_activation_t;

/* Which hidden states behind the last norm make the vector. */
typedef enum pooling {
  POOLING_NONE,     /* none: the request generates; of an option: as the model says */
  POOLING_LAST,     /* that of the last token */
  POOLING_MEAN,     /* the mean over all tokens of the prompt */
  POOLING_CLS,      /* that of the first token */
  POOLING_MAX,      /* of each value the largest over all tokens */
  POOLING_WEIGHTED, /* the mean with weights 1, 2, 3 ... */
  POOLING_SQRT,     /* the sum over all tokens, divided by the square root of their number */
  POOLING_EACH      /* all of them: each token has a vector of its own */
} pooling_t;

/* Room for a vector while it is made, in values. */
#define EMBEDDING_ROOM(info)                                                                       \
  ((size_t)((info)->size > (info)->pooled_size ? (info)->size : (info)->pooled_size))

/* A layer behind the pooling: the module Dense of sentence-transformers. */
typedef struct dense_layer {
  char path[DENSE_PATH_MAX]; /* below the model's directory */
  int32_t in, out;
  bool has_bias;
  int32_t activation; /* activation_t; -1 = none */
} dense_layer_t;

typedef struct embedding_options {
  engine_task_t task; /* TASK_AUTO: as the model says */
  pooling_t pooling;  /* POOLING_NONE: as the model says */
  bool matryoshka;    /* vectors may be cut, whatever the model says */
} embedding_options_t;

/* How a model embeds or classifies: the vector of a classifier is the scores of its labels. */
typedef struct embedding_info {
  engine_task_t task; /* EMBED, CLASSIFY, RERANK or TAG */
  pooling_t pooling;
  int32_t size;                       /* of a vector: h, the last dense layer's width, or labels */
  int32_t pooled_size;                /* of what is pooled: h */
  bool normalises;                    /* vectors have length 1 */
  bool matryoshka;                    /* the first values of a vector are a shorter vector */
  int32_t num_sizes;                  /* 0 = any size below h */
  int32_t sizes[EMBEDDING_SIZES_MAX]; /* sizes that vectors may be cut to */
  score_activation_t activation;      /* CLASSIFY, RERANK, TAG */
  const char *const *labels;          /* CLASSIFY, TAG: [size] names, UTF-8 */
  bool judges;                        /* RERANK: a pair is a question, answered by yes or no */
} embedding_info_t;

/* Values that the engine leaves of a prompt of `tokens` tokens. */
static inline size_t embedding_values(const embedding_info_t *info, int32_t tokens) {
  return (size_t)info->size * (info->pooling == POOLING_EACH ? (size_t)tokens : 1);
}

/* Values of the memory in which it makes them. */
static inline size_t embedding_room(const embedding_info_t *info, int32_t tokens) {
  return info->pooling == POOLING_EACH ? embedding_values(info, tokens) : EMBEDDING_ROOM(info);
}

#endif
