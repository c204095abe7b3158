/* roles.h: what each tensor of a model is for, and how files hold it. Symbols as in layout.h and
 * latent_ops.h. */
#ifndef INFERD_ENGINE_MODEL_ROLES_H
#define INFERD_ENGINE_MODEL_ROLES_H

/* What a tensor does in the forward. The layer roles repeat once per layer. */
typedef enum tensor_role {
  ROLE_EMBED,         /* [V, E] */
  ROLE_POSITIONS,     /* [positions + offset, h] */
  ROLE_PROJECT_IN,    /* [h, E] */
  ROLE_PROJECT_OUT,   /* [E, h] */
  ROLE_FINAL_NORM,    /* [h] */
  ROLE_HEAD,          /* [V, E] */
  ROLE_TYPES,         /* [types of tokens, h] */
  ROLE_TASKS,         /* [kinds of tasks, h] */
  ROLE_DISTANCES,     /* [buckets, Hq] what scores have for distances */
  ROLE_DISTANCE_ROWS, /* [2 span, h] vectors of distances, of which K and Q are made */
  ROLE_DISTANCE_NORM, /* [h] of these */
  ROLE_LAYER_EMBED,   /* [V, layers x P]: embeddings of every layer; P is per_layer_size */
  ROLE_LAYER_PROJECT, /* [layers x P, h] */
  ROLE_LAYER_NORM,    /* [P] */
  ROLE_STREAM_IN,     /* [h, h] of each residual stream but the first, of which they are made */
  ROLE_STREAM_OUT,    /* [h, h] of each of these before all are added */
  ROLE_EMBED_NORM,    /* [h], or [E] before the projection that follows: */
  ROLE_EMBED_PROJECT, /* [h, E] */
  ROLE_POOLER,        /* [h, h], before the classifier */
  ROLE_POOLER_NORM,   /* [h] */
  ROLE_CLASSIFIER,    /* [labels, h] */
  ROLE_HEAD_BIAS,     /* [V] of logits, in a tensor of its own */
  ROLE_CONV_1,        /* [h, 3 bands], before an encoder that reads spectrograms */
  ROLE_CONV_2,        /* [h, 3 h], of every second row */
  ROLE_ATTN_NORM,     /* [h]; the first of a layer */
  ROLE_FIRST_OF_LAYER = ROLE_ATTN_NORM,
  ROLE_MLP_NORM,              /* [h] */
  ROLE_ATTN_OUT_NORM,         /* [h] after attention, before the residual sum */
  ROLE_MLP_OUT_NORM,          /* [h] */
  ROLE_QKV,                   /* fused in the file: [(Hq + 2 Hk) D, h] */
  ROLE_Q,                     /* [Hq D, h] */
  ROLE_K,                     /* [Hk D, h] */
  ROLE_V,                     /* [Hk D, h] */
  ROLE_O,                     /* [h, Hq D] */
  ROLE_Q_NORM,                /* [D] or [Hq D] */
  ROLE_K_NORM,                /* [D] or [Hk D] */
  ROLE_SINKS,                 /* [Hq] */
  ROLE_Q_DOWN,                /* latent attention: [q rank, h] */
  ROLE_Q_DOWN_NORM,           /* [q rank] */
  ROLE_Q_UP,                  /* [Hq D, q rank] */
  ROLE_LATENT,                /* [R + r, h]: the row of the cache */
  ROLE_LATENT_NORM,           /* [R] */
  ROLE_LATENT_UP,             /* [Hq (n + v), R]: K and V of every head */
  ROLE_LATENT_KEY,            /* GGUF, in its place: [Hq R, n], K turned; */
  ROLE_LATENT_VALUE,          /* [Hq v, R] */
  ROLE_INDEX_Q,               /* of an indexer: [Hi d, q rank] */
  ROLE_INDEX_KEY,             /* [d, h] */
  ROLE_INDEX_NORM,            /* [d] */
  ROLE_INDEX_WEIGHTS,         /* [Hi, h] */
  ROLE_GATE,                  /* [f, h] */
  ROLE_UP,                    /* [f, h]; fc1 of a plain MLP */
  ROLE_GATE_UP,               /* fused in the file: [2 f, h], gate first */
  ROLE_UP_GATE,               /* fused in the file: [2 f, h], up first */
  ROLE_DOWN,                  /* [h, f]; fc2 of a plain MLP */
  ROLE_ROUTER,                /* [E, h] */
  ROLE_CHOICE_BIAS,           /* [E] is added to the scores for the choice */
  ROLE_EXPERT_GATE,           /* [I, h] of each expert */
  ROLE_EXPERT_UP,             /* [I, h] */
  ROLE_EXPERT_GATE_UP,        /* [2 I, h], gate and up interleaved: all experts in one tensor */
  ROLE_EXPERT_GATE_UP_SCALES, /* follows the role of its blocks */
  ROLE_EXPERT_DOWN,           /* [h, I] */
  ROLE_EXPERT_DOWN_SCALES,
  ROLE_EXPERTS_IN,    /* [H, h] before all experts, whose vectors have H numbers */
  ROLE_EXPERTS_OUT,   /* [h, H] behind them */
  ROLE_SHARED_GATE,   /* [s, h] */
  ROLE_SHARED_UP,     /* [s, h] */
  ROLE_SHARED_DOWN,   /* [h, s] */
  ROLE_SHARED_SWITCH, /* [1, h] */
  ROLE_ATTN_GATE,     /* [Hq D, h], or [Hq, h]: factors of the output of attention */
  /* [1] of the activation of a layer's MLP (xielu_t) */
  ROLE_XIELU_ABOVE,
  ROLE_XIELU_BELOW,
  ROLE_XIELU_BETA,
  ROLE_XIELU_EPS,
  /* Of Gemma 4; the norms of the MLP are those of both parts together */
  ROLE_INPUT_GATE,      /* [P, h] of the embeddings of the layer */
  ROLE_INPUT_PROJECT,   /* [h, P] */
  ROLE_INPUT_NORM,      /* [h] behind it */
  ROLE_LAYER_SCALAR,    /* [1] */
  ROLE_ROUTER_SCALE,    /* [h] of the router's norm */
  ROLE_SHARE_FACTORS,   /* [E] */
  ROLE_DENSE_OUT_NORM,  /* [h] of the dense MLP beside experts */
  ROLE_EXPERT_NORM,     /* [h] before the experts */
  ROLE_EXPERT_OUT_NORM, /* [h] */
  /* Of a layer that predicts a further token (mtp.h) */
  ROLE_MTP_EMBED_NORM,  /* [h] */
  ROLE_MTP_HIDDEN_NORM, /* [h] */
  ROLE_MTP_JOIN,        /* [h, 2 h] */
  ROLE_MTP_NORM,        /* [h] */
  /* Of Gemma 3n, which has N residual streams (altup_ops.h) */
  ROLE_STREAM_NORM,    /* [h] before the router */
  ROLE_STREAM_ROUTER,  /* [N, h] */
  ROLE_STREAM_PREDICT, /* [N N, N] */
  ROLE_STREAM_CORRECT, /* [N, N] */
  ROLE_STREAM_SCALE,   /* [h] */
  ROLE_LAUREL_DOWN,    /* [r, h] beside attention */
  ROLE_LAUREL_UP,      /* [h, r] */
  ROLE_LAUREL_NORM,    /* [h] */
  /* Of a layer that sees the rows of an encoder, behind its attention */
  ROLE_CROSS_NORM, /* [h] */
  ROLE_CROSS_Q,    /* [Hq D, h] */
  ROLE_CROSS_K,    /* [Hk D, h] of the encoder's rows */
  ROLE_CROSS_V,    /* [Hk D, h] */
  ROLE_CROSS_O,    /* [h, Hq D] */
  /* Of layers with a state (mixer.h); M columns behind the projection in all, C channels */
  ROLE_MIX_IN,    /* rows of [M, h], from the first on */
  ROLE_MIX_Z,     /* the next rows, if they stand in other tensors */
  ROLE_MIX_RATE,  /* [heads, h] */
  ROLE_MIX_STEP,  /* [heads, h] */
  ROLE_MIX_CONV,  /* [C, 1, taps] */
  ROLE_MIX_DECAY, /* [heads] logarithms; in GGUF files what follows from them, below 0 */
  ROLE_MIX_BIAS,  /* [heads] of the steps */
  ROLE_MIX_SKIP,  /* [heads] */
  ROLE_MIX_NORM,  /* [head dim], or [inner] */
  ROLE_MIX_OUT,   /* [h, inner] */
  /* Of Mamba-1: R is the rank of the steps, N the rows of its state; its ROLE_MIX_DECAY and SKIP
   * are [inner, N] and [inner] */
  ROLE_MIX_PARTS,      /* [R + 2 N, inner] steps, B and C of what the convolution gives */
  ROLE_MIX_STEPS,      /* [inner, R] */
  ROLE_MIX_STEP_NORM,  /* [R] */
  ROLE_MIX_KEY_NORM,   /* [N] of B */
  ROLE_MIX_QUERY_NORM, /* [N] of C */
  /* Of gated DeltaNet, in the place of ROLE_MIX_IN and ROLE_MIX_CONV: */
  ROLE_MIX_Q,      /* [G Dk, h] */
  ROLE_MIX_K,      /* [G Dk, h] */
  ROLE_MIX_V,      /* [inner, h] */
  ROLE_MIX_CONV_Q, /* [G Dk, 1, taps] */
  ROLE_MIX_CONV_K, /* [G Dk, 1, taps] */
  ROLE_MIX_CONV_V, /* [inner, 1, taps] */
  ROLE_COUNT
} tensor_role_t;

/* How the file holds a tensor that is used as [rows, cols]. */
typedef enum form {
  FORM_PLAIN,            /* [rows, cols], or [rows] */
  FORM_TRANSPOSED,       /* [cols, rows] */
  FORM_ROW,              /* [1, rows] of a vector */
  FORM_SCALAR,           /* [], used as a vector of one */
  FORM_TAPS,             /* [rows, cols / 3, 3]: three taps of each channel */
  FORM_CONV,             /* [C, 1, taps], used as a vector [taps, C] */
  FORM_HEADS,            /* a vector of rows: a row of [rows / D, D] for each head or channel */
  FORM_BY_HEAD,          /* [Hq, rows / Hq, cols] */
  FORM_EACH,             /* one tensor per expert; '*' in the name is the expert */
  FORM_EACH_HEAD,        /* one vector per head; '*' is the head */
  FORM_STACK,            /* [E, rows] or [E, rows, cols] */
  FORM_STACK_TRANSPOSED, /* [E, cols, rows] */
  FORM_STACK_BLOCKS,     /* U8 [E, rows, cols / 32, 16]: nibbles of MXFP4 */
  FORM_STACK_SCALES      /* U8 [E, rows, cols / 32]: their exponents */
} form_t;

#endif
