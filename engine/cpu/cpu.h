/* cpu.h: what the files of the CPU back end share: the device and the operations of ops_cpu.
 *
 * All functions are called on the engine thread, except the tasks that workers run. Buffers are
 * fp32, row-major, exactly [rows, width]. Set-up allocates from the device's memory list; a step
 * does not. */
#ifndef INFERD_ENGINE_CPU_CPU_H
#define INFERD_ENGINE_CPU_CPU_H

#include "engine/cpu/isa/kernels.h"
#include "engine/cpu/kv.h"
#include "engine/cpu/moe.h"
#include "engine/cpu/populate.h"
#include "engine/cpu/threads.h"
#include "engine/cpu/weight.h"

enum {
  ROW_BLOCK = 256,       /* rows of a linear layer that are staged at a time */
  PARTIAL_ROWS = 16384,  /* rows of split results kept between the two passes of attention */
  AHEAD_CLASSES = 3,     /* of numbers of rows: 1, 2 and more */
  DISTANCE_KEYS = 64,    /* keys that get what tables of distances add at a time; not fewer than
                          * the rows of a tile */
  ROPE_TABLES = 2,       /* distinct rotary settings whose cos and sin are kept for a step */
  INLINE_ELEMENTS = 8192 /* smaller row operations stay on the calling thread */
};

/* One mapping taken from the kernel; weights and buffers are cut from it front to back. */
typedef struct device_arena {
  struct device_arena *next;
  uint8_t *base;
  size_t size, used;
} device_arena_t;

/* A query tile of attention: tokens [token, token + count) of one request, splits [first, last). */
typedef struct item {
  int32_t request, token, count;
  int32_t split_first, split_last;
  int32_t partial; /* first row in `partials` when the splits run apart, -1 = merged at once */
} item_t;

typedef struct rope_table {
  const rope_t *rope;   /* NULL = not filled in this step */
  float *cosine, *sine; /* [tokens, dims / 2] */
} rope_table_t;

/* What one worker of attention needs: rows = max(ATTENTION_ROWS or ATTEND_ROWS, heads). */
typedef struct attention_scratch {
  float *q, *acc, *total;                   /* [rows, head_dim padded]; q holds bf16 for `attend` */
  float *scores;                            /* [rows, SCORE_STRIDE], or the space of `attend` */
  float *max, *sum, *total_max, *total_sum; /* [rows] */
  struct key_range *seen;                   /* [rows], for `attend` */
  float *by_entry;                          /* [DISTANCE_KEYS, SCORE_STRIDE] */
  int worker;
  strip_t entries;     /* of a table of distances, as keys */
  strip_t strip, next; /* `next` of a decode by `attend`: only its keys are read */
} attention_scratch_t;

typedef struct tower_scratch tower_scratch_t; /* tower.c */

struct device {
  const kernels_t *kernels;
  pool_t *pool;
  char description[64];
  device_arena_t *arenas;
  /* K/V pool: [layer][block][K part | V part] */
  kv_cache_desc_t kv;
  uint8_t *kv_base;
  size_t kv_mapped, states_mapped;
  populate_t kv_populate;
  kv_kind_t kv_kinds[2];          /* of most layers, or of a head of window_heads; of the others */
  size_t kv_first[KV_LAYERS_MAX]; /* where the blocks of a layer begin */
  size_t kv_block_bytes;          /* of a block in all layers */
  int32_t key_stride;             /* lanes of a K row: block_size, at least SEGMENT_KEYS */
  /* a strip of a pool in 8 bits as numbers: [threads] of K [widened_keys bytes], then V */
  uint8_t *widened;
  size_t widened_bytes, widened_keys;
  /* blocks of a mapped file, swap.c */
  uint8_t *swap_base;
  int32_t swap_blocks;
  double swap_rate;
  /* states of sequences, state.c */
  state_desc_t state;
  float *states;
  /* probe.c: gemm_t.ahead of 1, 2 and more rows, of bf16 and of quantised weights; the largest */
  bool ahead[2][AHEAD_CLASSES];
  const weight_t *probed[2];
  /* workspaces, taken in prepare */
  step_limits_t limits;
  bool prepared;
  int64_t cols_max, staged_cols; /* of the widest weight; of staged */
  uint8_t *staged;               /* [ROW_BLOCK, staged_cols + DEPTH_ALIGN] of 4 bytes */
  float *logits;                 /* [logits_rows_max, logits_stride] */
  int64_t logits_stride, logits_cols;
  rope_table_t rope_tables[ROPE_TABLES];
  int32_t rope_next;              /* the table that the next new setting replaces */
  attention_scratch_t *attention; /* [threads] */
  tower_scratch_t *tower;         /* [threads] for heads of tower_dims values, or NULL; tower.c */
  int32_t tower_dims;
  item_t *items, *split_items; /* [items_max], [PARTIAL_ROWS] */
  int32_t num_items, num_split_items;
  float *partials; /* [PARTIAL_ROWS, partial_stride] */
  int64_t partial_stride;
  moe_space_t moe;
  int64_t unpacked_depth; /* deepest MXFP4 weight */
  uint8_t *unpacked;      /* [threads, unpacked_depth * 64] bf16: a panel in use */
  void **sample_scratch;  /* [threads] */
  const batch_t *batch;   /* of the step */
  comm_t *comm;           /* NULL = one rank */
  float *gathered;        /* of all ranks: [tokens, hidden_max] or [logits rows, V], ranks.c */
  int32_t *places;        /* [tokens] */
  bool has_adapters;      /* lora.c made places for some */
  float *lora_low;        /* [logits_rows_max, largest rank] */
};

/* memory.c: returns zeroed memory, aligned to 64 bytes; NULL if memory is short. */
void *memory_take(device_t *device, size_t bytes);
void *memory_map(size_t bytes, size_t *mapped); /* own mapping on huge pages; NULL = none */
void memory_unmap(void *base, size_t mapped);
void memory_release(device_t *device);
bool size_product(size_t *out, size_t first, size_t second, size_t third); /* false on overflow */
int no_memory(inferd_error_t *error, const char *what, size_t bytes);

/* linear.c */
void cpu_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                const vector_t *bias, const act_t *residual, int32_t rows);
void cpu_fused_linear(device_t *device, act_t *out, const act_t *in, const fused_linear_t *linear,
                      int32_t rows);
void cpu_logits(device_t *device, const act_t *hidden, const weight_t *head, const vector_t *bias,
                float softcap, int32_t first, int32_t rows);
void cpu_read_logits(device_t *device, float *out, int32_t rows);

/* rows.c */
void cpu_embed(device_t *device, act_t *out, const weight_t *table, float scale);
void cpu_embed_positions(device_t *device, act_t *out, const weight_t *table, int32_t offset);
void cpu_embed_types(device_t *device, act_t *out, const weight_t *table);
void cpu_embed_known(device_t *device, act_t *out, const weight_t *table, float scale);
void cpu_cross_look_up(device_t *device, act_t *out, const cross_lookup_t *lookup, int32_t rows);
void cpu_embed_pictures(device_t *device, act_t *out, int32_t plane, int32_t width);
void cpu_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const norm_t *norm, int32_t rows);
void cpu_activation(device_t *device, act_t *out, const act_t *in, activation_t kind, int32_t width,
                    int32_t rows);
void cpu_read_rows(device_t *device, float *out, const act_t *in, int32_t width, int32_t rows);
void cpu_write_rows(device_t *device, act_t *out, const float *in, int32_t width, int32_t rows);
void cpu_gather(device_t *device, act_t *out, const act_t *in, int32_t width);

/* kv.c; see kv.h. Cos and sin of the positions of the step. */
const rope_table_t *rope_table(device_t *device, const rope_t *rope);

/* attention.c */
void cpu_attention(device_t *device, act_t *out, const act_t *qkv, const attention_t *attention);
void cpu_cross_weigh(device_t *device, const act_t *q, const attention_t *attention, int32_t layer);
/* out[T, Hq, rank] = sums of latent rows for q[T, Hq, R + r]. The heads are divided into groups:
 * attention->num_kv_heads of them, although the pool has one head. */
void attention_latent(device_t *device, float *out, const float *q, const attention_t *attention,
                      int32_t rank);

/* indexed.c; sums[T, Hq R] of queries[T, Hq (R + r)], in units of `group` heads. */
void cpu_store_keys(device_t *device, act_t *keys, const latent_t *latent,
                    const indexer_t *indexer);
void cpu_choose(device_t *device, act_t *chosen, act_t *q, const act_t *weights,
                const latent_t *latent, const indexer_t *indexer);
void indexed_attend(device_t *device, float *sums, const float *queries, const float *chosen,
                    const latent_t *latent, int32_t group);
/* Whether a token of the step sees more keys than it may attend to. */
bool indexed_chooses(const device_t *device, const latent_t *latent);

/* kv.c */
void cpu_cross_store(device_t *device, const act_t *kv, const attention_t *attention,
                     const int32_t *blocks, int32_t first, int32_t rows);
/* latent.c, swap.c, per_layer.c, altup.c, linear.c, tower.c */
extern const latent_ops_t cpu_latent_ops;
extern const swap_ops_t cpu_swap_ops;
extern const per_layer_ops_t cpu_per_layer_ops;
extern const altup_ops_t cpu_altup_ops;
extern const value_ops_t cpu_value_ops;
extern const struct draft_ops cpu_draft_ops;
extern const tower_ops_t cpu_tower_ops;

/* sample.c */
size_t sample_scratch_bytes(int32_t vocab_size); /* per worker */
void cpu_sample(device_t *device, const sample_row_t *rows, int32_t num_rows);

#endif
