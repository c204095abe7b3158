/* load.c: makes a model from a blueprint: every tensor onto the device, in the order of use.
 *
 * Engine thread, once at start. Never computes; the forward is in model.c.
 */
#include "engine/base/half.h"
#include "engine/model/forward/distances.h"
#include "engine/model/forward/internal.h"
#include "engine/model/forward/rope.h"
#include "engine/model/sizes.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sticky: after the first error nothing more is loaded. */
typedef struct model_load {
  weight_loader_t loader;
  int32_t num_attention, num_mixers; /* layers so far */
  int32_t stored[2];                 /* the last layer of the cache that is full, that slides */
  float *distance_rows; /* [h, 2 span rounded up to 16] of DeBERTa while layers load, or NULL */
  int32_t num_windowed, layer_parts, group_parts; /* layers, or heads: of all groups so far */
  int32_t num_mixtures;                           /* layers with experts so far */
  int code;
  inferd_error_t *error;
} model_load_t;

enum { HEADS_MAX = 1024, DISTANCE_MAX = 128 /* from where on distances are one bucket */ };

/* Of the norms of ranks, whatever rms_norm_eps says: as transformers has it. */
static const float LATENT_NORM_EPS = 1e-6f, INDEX_NORM_EPS = 1e-6f;
static const vector_change_t AS_STORED = {.factor = 1.0f};

static weight_t *matrix_as(model_load_t *load, int32_t layer, int num_roles,
                           const tensor_role_t *roles, dtype_t dtype, bool keep_blocks) {
  weight_t *weight = NULL;
  if (load->code == 0) {
    load->code = weight_loader_matrix(&load->loader, roles, num_roles, layer, dtype, keep_blocks,
                                      &weight, load->error);
  }
  return weight;
}

static weight_t *matrix(model_load_t *load, int32_t layer, int num_roles,
                        const tensor_role_t *roles) {
  return matrix_as(load, layer, num_roles, roles, load->loader.dtype, true);
}

static vector_t *changed_vector(model_load_t *load, int32_t layer, bool bias, int num_roles,
                                const tensor_role_t *roles, vector_change_t change) {
  vector_t *made = NULL;
  if (load->code == 0) {
    load->code = weight_loader_vector(&load->loader, roles, num_roles, layer, bias, change, &made,
                                      load->error);
  }
  return made;
}

static vector_t *vector(model_load_t *load, int32_t layer, bool bias, int num_roles,
                        const tensor_role_t *roles) {
  return changed_vector(load, layer, bias, num_roles, roles, AS_STORED);
}

/* What is added to the weights of a norm: GGUF files of such families hold 1 + w. */
static float norm_add(const blueprint_t *bp) {
  return bp->norm_plus_one && !bp->gguf ? 1.0f : 0.0f;
}

/* The residual stream is kept divided by residual_scale, so that what is added to it needs no
 * factor: RMSNorm(x; eps) = RMSNorm(x / s; eps / s^2), but for norms of what is added. The scale of
 * the logits is a factor of the last norm's weights. */
static norm_t norm(model_load_t *load, const blueprint_t *bp, int32_t layer, tensor_role_t role) {
  const bool added = role == ROLE_ATTN_OUT_NORM || role == ROLE_MLP_OUT_NORM;
  double s = added ? 1.0 : bp->residual_scale;
  norm_t made = {
      .kind = bp->norm, .width = bp->hidden_size, .eps = (float)((double)bp->norm_eps / (s * s))};
  vector_change_t change = {.add = norm_add(bp),
                            .factor = role == ROLE_FINAL_NORM ? (float)bp->head_scale : 1.0f};
  made.weight = changed_vector(load, layer, false, 1, &role, change);
  change.add = 0.0f;
  if (bp->norm == NORM_LAYER) made.bias = changed_vector(load, layer, true, 1, &role, change);
  return made;
}

/* Where K and V of layer i are: the layer of the cache, or the group with a window and the place
 * among the layers, or the heads, of its blocks. */
static void place(model_load_t *load, attention_t *attention, const blueprint_t *bp, int32_t i) {
  const bool grouped = bp->window_groups > 0 && attention->window > 0;
  int32_t *stored = &load->stored[!layer_is_full(bp, i)];
  int32_t *used = grouped ? &load->num_windowed : &load->num_attention;
  if (bp->encoder.bidirectional) return; /* layer 0: K, V go with a step */
  if (!layer_reads_only(bp, i)) {
    *stored = *used;
    *used += grouped ? load->layer_parts : 1;
  }
  attention->layer = grouped ? *stored % load->group_parts : *stored;
  attention->group = grouped ? 1 + *stored / load->group_parts : 0;
}

static const vector_t *numbers(model_load_t *load, const float *values, int64_t count) {
  weight_loader_t *loader = &load->loader;
  vector_t *made = NULL;
  if (load->code != 0) return NULL;
  if (loader->planned != NULL)
    *loader->planned += (size_t)count * sizeof(float);
  else
    load->code = loader->ops->vector(loader->device, values, count, &made, load->error);
  return made;
}

/* A vector that files do not have, since all its numbers are the same. */
static const vector_t *same(model_load_t *load, int32_t count, float value) {
  float *values = calloc((size_t)count, sizeof *values);
  const vector_t *made = NULL;
  if (values == NULL && load->code == 0)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for factors");
  for (int32_t i = 0; values != NULL && i < count; i++) values[i] = value;
  if (values != NULL) made = numbers(load, values, count);
  free(values);
  return made;
}

static attention_t attention(model_load_t *load, const model_t *model, int32_t i) {
  static const tensor_role_t q_norm = ROLE_Q_NORM, k_norm = ROLE_K_NORM, sinks = ROLE_SINKS;
  const blueprint_t *bp = &model->blueprint;
  const bool slides = bp->layer_flags[i] & LAYER_SLIDES;
  const rope_t *rope = slides && model->local_rope.dims > 0 ? &model->local_rope : &model->rope;
  const bool rotates = !bp->learned_positions && !(bp->layer_flags[i] & LAYER_NO_ROPE);
  const vector_change_t change = {.add = norm_add(bp), .factor = 1.0f};
  double scale = bp->attn_scale != 0 ? bp->attn_scale : 1.0 / sqrt((double)bp->head_dim);
  attention_t made = {
      .slopes = model->slopes,
      .distances = model->distances,
      .reach = DISTANCE_MAX,
      .bidirectional = bp->encoder.bidirectional,
      .sees_pictures = bp->picture_mask == PICTURES_WHOLE ||
                       (bp->picture_mask == PICTURES_WHOLE_WHERE_SLIDING && slides),
      .num_heads = shard_heads(bp),
      .num_kv_heads = shard_kv_heads(bp, layer_kv_heads(bp, i)),
      .head_dim = layer_head_dim(bp, i),
      .reads_only = layer_reads_only(bp, i),
      .v_norm = bp->v_norm,
      .scale = (float)scale,
      .softcap = (float)bp->attn_softcap,
      .window = slides ? bp->window : 0,
      .norm_eps = bp->norm_eps,
      .norm_whole = bp->qk_norm_whole,
      .norm_each = bp->qk_norm_each,
      .norm_late = bp->qk_norm_late,
      .rope = rotates ? rope : NULL,
      .q_norm = changed_vector(load, i, false, 1, &q_norm, change),
      .k_norm = changed_vector(load, i, false, 1, &k_norm, change),
      .sinks = vector(load, i, false, 1, &sinks),
  };
  if (bp->qk_norm && tensors_get(&load->loader.list, ROLE_Q_NORM, i, false) == NULL)
    made.q_norm = made.k_norm = same(load, made.head_dim, 1.0f);
  place(load, &made, bp, i);
  return made;
}

/* What K and V of every head are made of: rows [Hq (n + v), R] of the run type. */
typedef struct latent_rows {
  const uint8_t *rows;
  size_t size; /* bytes of an element */
  int32_t heads, rank, nope_dim, value_dim;
} latent_rows_t;

/* Row (h, i) of the matrix that brings queries into the latent space: column i of head h's K. */
static const void *key_row(void *context, int64_t row, void *scratch) {
  const latent_rows_t *from = context;
  const int64_t head = row / from->rank, column = row % from->rank;
  const int64_t first = head * (from->nope_dim + from->value_dim);
  for (int64_t n = 0; n < from->nope_dim; n++)
    memcpy((uint8_t *)scratch + (size_t)n * from->size,
           from->rows + (size_t)((first + n) * from->rank + column) * from->size, from->size);
  return scratch;
}

static const void *value_row(void *context, int64_t row, void *scratch) {
  (void)scratch;
  const latent_rows_t *from = context;
  const int64_t head = row / from->value_dim, at = row % from->value_dim;
  const int64_t first = head * (from->nope_dim + from->value_dim) + from->nope_dim;
  return from->rows + (size_t)((first + at) * from->rank) * from->size;
}

/* Of a file with K and V of every head apart, K turned: each row stands for itself. */
static weight_t *load_split(model_load_t *load, tensor_role_t role, weight_source_t source,
                            int32_t i) {
  weight_t *weight = NULL;
  latent_rows_t from = {
      .value_dim = 1, .rank = (int32_t)source.cols, .size = dtype_size(source.dtype)};
  source.row = value_row;
  source.context = &from;
  if (load->code != 0) return NULL;
  load->code = weight_loader_rows(&load->loader, role, i, source.dtype, 0, 0, (void **)&from.rows,
                                  load->error);
  if (load->code == 0)
    load->code = weight_loader_pass(&load->loader, &source, &weight, load->error);
  free((void *)(uintptr_t)from.rows);
  return weight;
}

static void load_head_matrices(model_load_t *load, latent_t *latent, int32_t i, bool split) {
  void *rows = NULL;
  weight_t *key = NULL, *value = NULL;
  if (load->code != 0) return;
  latent_rows_t from = {.size = dtype_size(load->loader.dtype),
                        .heads = latent->num_heads,
                        .rank = latent->rank,
                        .nope_dim = latent->nope_dim,
                        .value_dim = latent->value_dim};
  weight_source_t source = {.name = "kv_b_proj",
                            .rows = (int64_t)from.heads * from.rank,
                            .cols = from.nope_dim,
                            .stack = from.heads,
                            .dtype = load->loader.dtype,
                            .row = key_row,
                            .context = &from};
  weight_source_t values = source;
  values.rows = (int64_t)from.heads * from.value_dim;
  values.cols = from.rank;
  values.row = value_row;
  if (split) latent->key = load_split(load, ROLE_LATENT_KEY, source, i);
  if (split) latent->value = load_split(load, ROLE_LATENT_VALUE, values, i);
  if (split) return;
  load->code = weight_loader_rows(&load->loader, ROLE_LATENT_UP, i, load->loader.dtype, 0, 0, &rows,
                                  load->error);
  from.rows = rows;
  if (load->code == 0) load->code = weight_loader_pass(&load->loader, &source, &key, load->error);
  if (load->code == 0) load->code = weight_loader_pass(&load->loader, &values, &value, load->error);
  free(rows);
  latent->key = key;
  latent->value = value;
}

static void load_indexer(model_load_t *load, const blueprint_t *bp, latent_layer_t *latent,
                         int32_t i) {
  static const tensor_role_t q = ROLE_INDEX_Q, key = ROLE_INDEX_KEY, weights = ROLE_INDEX_WEIGHTS;
  static const tensor_role_t norm_of_key = ROLE_INDEX_NORM;
  latent->index_q = matrix(load, i, 1, &q);
  latent->index_key = matrix(load, i, 1, &key);
  latent->index_weights = matrix(load, i, 1, &weights);
  latent->indexer = (indexer_t){.num_heads = bp->index_heads,
                                .dim = bp->index_dim,
                                .norm_eps = INDEX_NORM_EPS,
                                .norm = vector(load, i, false, 1, &norm_of_key),
                                .norm_bias = vector(load, i, true, 1, &norm_of_key)};
}

static void load_latent(model_load_t *load, const model_t *model, layer_t *layer, int32_t i) {
  static const tensor_role_t q_down = ROLE_Q_DOWN, q_norm = ROLE_Q_DOWN_NORM, row = ROLE_LATENT;
  static const tensor_role_t q[2] = {ROLE_Q, ROLE_Q_UP}, norm_of_row = ROLE_LATENT_NORM;
  const blueprint_t *bp = &model->blueprint;
  latent_layer_t *latent = &layer->latent;
  latent->q_down = matrix(load, i, 1, &q_down);
  latent->q_down_bias = vector(load, i, true, 1, &q_down);
  latent->q_norm = (norm_t){.kind = NORM_RMS, .width = bp->q_rank, .eps = LATENT_NORM_EPS};
  latent->q_norm.weight = vector(load, i, false, 1, &q_norm);
  latent->q = matrix(load, i, 2, q);
  latent->row = matrix(load, i, 1, &row);
  latent->row_bias = vector(load, i, true, 1, &row);
  latent->attention = (latent_t){
      .layer = load->num_attention++,
      .num_heads = bp->num_heads,
      .rank = bp->kv_rank,
      .rope_dim = bp->rope_dim,
      .nope_dim = bp->head_dim - bp->rope_dim,
      .value_dim = bp->value_dim,
      .scale = (float)bp->attn_scale,
      .norm_eps = LATENT_NORM_EPS,
      .norm = vector(load, i, false, 1, &norm_of_row),
      .rope = &model->rope,
      .top = bp->index_top,
  };
  load_head_matrices(load, &latent->attention, i, bp->latent_split);
  if (bp->index_top > 0 && !(bp->layer_flags[i] & LAYER_CHOSEN)) load_indexer(load, bp, latent, i);
}

static void load_mlp(model_load_t *load, layer_t *layer, int32_t i) {
  static const tensor_role_t gate_up[4] = {ROLE_GATE, ROLE_UP, ROLE_GATE_UP, ROLE_UP_GATE};
  static const tensor_role_t down = ROLE_DOWN;
  layer->up = matrix(load, i, 4, gate_up);
  layer->up_bias = vector(load, i, true, 4, gate_up);
  layer->down = matrix(load, i, 1, &down);
  layer->down_bias = vector(load, i, true, 1, &down);
}

static const tensor_role_t EXPERTS_UP[3] = {ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_GATE_UP};
static const tensor_role_t EXPERTS_DOWN = ROLE_EXPERT_DOWN;

/* What ops_t.moe needs of a layer. */
static moe_t load_mixture(model_load_t *load, const model_t *model, int32_t i) {
  static const tensor_role_t router = ROLE_ROUTER, factors = ROLE_SHARE_FACTORS;
  static const tensor_role_t choice_bias = ROLE_CHOICE_BIAS;
  const vector_change_t exactly = {.factor = 1.0f, .exact = true};
  const blueprint_t *bp = &model->blueprint;
  return (moe_t){
      .cuts = model->is_cut ? model->cuts.experts : NULL,
      .num_experts = bp->num_experts,
      .top_k = bp->experts_top,
      .width = bp->expert_size,
      .normalise = bp->experts_normalise,
      .routing = bp->routing,
      .choice_bias = changed_vector(load, i, false, 1, &choice_bias, exactly),
      .num_groups = bp->num_groups,
      .groups_top = bp->groups_top,
      .group_pairs = bp->group_pairs,
      .share_floor = (float)bp->share_floor,
      .share_factor = (float)bp->share_factor,
      .share_more = (float)bp->share_more,
      .nearness = (float)bp->nearness,
      .activation = bp->activation,
      .router = matrix_as(load, i, 1, &router, DTYPE_F32, false),
      .router_bias = vector(load, i, true, 1, &router),
      .share_factors = vector(load, i, false, 1, &factors),
      .up = matrix(load, i, 3, EXPERTS_UP),
      .up_bias = vector(load, i, true, 3, EXPERTS_UP),
      .down = matrix(load, i, 1, &EXPERTS_DOWN),
      .down_bias = vector(load, i, true, 1, &EXPERTS_DOWN),
  };
}

/* Where weights go, or by whose rules they are planned. */
typedef struct load_place {
  const ops_t *ops;
  device_t *device;
  size_t *planned;
} load_place_t;

/* Changes the place of what follows; returns the one before. */
static load_place_t go_to(model_load_t *load, load_place_t place) {
  weight_loader_t *loader = &load->loader;
  const load_place_t before = {loader->ops, loader->device, loader->planned};
  loader->ops = place.ops;
  loader->device = place.device;
  loader->planned = place.planned;
  return before;
}

/* The same in host memory, for the back end that computes it there. */
static moe_t load_host_mixture(model_load_t *load, const model_t *model, int32_t i) {
  const host_ops_t *host = model->ops->host;
  size_t bytes = 0; /* planned by model_expert_bytes */
  load_place_t place = {host->ops, NULL, load->loader.planned != NULL ? &bytes : NULL};
  if (load->code == 0 && load->loader.planned == NULL)
    load->code = host->open(model->device, &place.device, load->error);
  const load_place_t before = go_to(load, place);
  moe_t made = load_mixture(load, model, i);
  made.host_width = model->blueprint.hidden_size;
  go_to(load, before);
  return made;
}

static void load_experts(model_load_t *load, const model_t *model, layer_t *layer, int32_t i) {
  static const tensor_role_t shared_up[2] = {ROLE_SHARED_GATE, ROLE_SHARED_UP};
  static const tensor_role_t shared_down = ROLE_SHARED_DOWN, shared = ROLE_SHARED_SWITCH;
  static const tensor_role_t smaller = ROLE_EXPERTS_IN, whole = ROLE_EXPERTS_OUT;
  const blueprint_t *bp = &model->blueprint;
  const bool on_host = load->num_mixtures++ < load->loader.options->host_experts;
  layer->moe = on_host ? load_host_mixture(load, model, i) : load_mixture(load, model, i);
  layer->experts_in = matrix(load, i, 1, &smaller);
  layer->experts_out = matrix(load, i, 1, &whole);
  if (bp->experts_beside) return; /* their place is the dense MLP's */
  layer->up = matrix(load, i, 2, shared_up);
  layer->down = matrix(load, i, 1, &shared_down);
  layer->shared = matrix(load, i, 1, &shared);
}

/* What a layer does with its embeddings. */
static void load_input(model_load_t *load, const blueprint_t *bp, layer_t *layer, int32_t i) {
  static const tensor_role_t gate = ROLE_INPUT_GATE, project = ROLE_INPUT_PROJECT;
  if (bp->per_layer_size == 0) return;
  layer->input_gate = matrix(load, i, 1, &gate);
  layer->input_project = matrix(load, i, 1, &project);
  layer->input_norm = norm(load, bp, i, ROLE_INPUT_NORM);
}

/* The numbers of a matrix that is used as a vector; the caller frees them. NULL without a device.
 */
static float *flat_values(model_load_t *load, int32_t i, tensor_role_t role, int64_t count) {
  weight_loader_t *loader = &load->loader;
  float *made = NULL;
  void *rows = NULL;
  if (load->code != 0 || loader->planned != NULL) return NULL;
  load->code = weight_loader_rows(loader, role, i, loader->dtype, 0, 0, &rows, load->error);
  if (load->code == 0 && (made = calloc((size_t)count, sizeof *made)) == NULL)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for factors");
  if (made != NULL) convert_row(made, DTYPE_F32, rows, loader->dtype, count);
  free(rows);
  return made;
}

static const vector_t *flat(model_load_t *load, int32_t i, tensor_role_t role, int64_t count) {
  float *values = flat_values(load, i, role, count);
  const vector_t *made = numbers(load, values, count);
  free(values);
  return made;
}

/* The router of the streams, with the weights of the norm before it, divided by h. */
static const vector_t *stream_router(model_load_t *load, const blueprint_t *bp, int32_t i) {
  const int64_t width = bp->hidden_size, count = bp->num_streams * width;
  float *rows = flat_values(load, i, ROLE_STREAM_ROUTER, count), *weights = NULL;
  if (rows != NULL)
    load->code =
        weight_loader_values(&load->loader, ROLE_STREAM_NORM, i, false, &weights, load->error);
  for (int64_t r = 0; weights != NULL && r < count; r++)
    rows[r] *= weights[r % width] / (float)width;
  const vector_t *made = numbers(load, rows, count);
  free(rows);
  free(weights);
  return made;
}

/* The number of standard deviations below which a share of normally distributed numbers is. */
static double deviations_of(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; i++) {
    const double middle = (low + high) / 2;
    if (erfc(-middle / sqrt(2)) / 2 < share) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/* What the layers of Gemma 3n have besides. */
static void load_streams(model_load_t *load, const blueprint_t *bp, layer_t *layer, int32_t i) {
  static const tensor_role_t scale = ROLE_STREAM_SCALE;
  static const tensor_role_t down = ROLE_LAUREL_DOWN, up = ROLE_LAUREL_UP;
  const int64_t count = bp->num_streams;
  layer->altup = (altup_t){
      .num_streams = bp->num_streams,
      .width = bp->hidden_size,
      .eps = bp->norm_eps,
      .router = stream_router(load, bp, i),
      .prediction = flat(load, i, ROLE_STREAM_PREDICT, count * count * count),
      .correction = flat(load, i, ROLE_STREAM_CORRECT, count * count),
      .scale = bp->stream_scale ? vector(load, i, false, 1, &scale) : NULL,
  };
  layer->laurel_down = matrix(load, i, 1, &down);
  layer->laurel_up = matrix(load, i, 1, &up);
  layer->laurel_norm = norm(load, bp, i, ROLE_LAUREL_NORM);
  layer->is_sparse = (bp->layer_flags[i] & LAYER_SPARSE) != 0;
  layer->deviations = (float)deviations_of(bp->mlp_sparsity);
}

/* What the layers of Gemma 4 have besides. */
static void load_beside(model_load_t *load, const blueprint_t *bp, layer_t *layer, int32_t i) {
  static const tensor_role_t scalar = ROLE_LAYER_SCALAR, scale = ROLE_ROUTER_SCALE;
  layer->scalar = vector(load, i, false, 1, &scalar);
  if (!bp->experts_beside) return;
  const vector_change_t change = {.factor = 1.0f / sqrtf((float)bp->hidden_size)};
  load_mlp(load, layer, i);
  layer->dense_out_norm = norm(load, bp, i, ROLE_DENSE_OUT_NORM);
  layer->expert_norm = norm(load, bp, i, ROLE_EXPERT_NORM);
  layer->expert_out_norm = norm(load, bp, i, ROLE_EXPERT_OUT_NORM);
  layer->router_norm = (norm_t){.kind = NORM_RMS, .width = bp->hidden_size, .eps = bp->norm_eps};
  layer->router_norm.weight = changed_vector(load, i, false, 1, &scale, change);
}

/* The embeddings of all layers: of a token, norm(W x / sqrt(h)) + sqrt(P) e, divided by sqrt(2).
 * The factors stand in the weights of the norm, in its eps and in the scale of the lookup. */
static void load_inputs(model_load_t *load, model_t *model) {
  static const tensor_role_t embed = ROLE_LAYER_EMBED, project = ROLE_LAYER_PROJECT;
  static const tensor_role_t of_norm = ROLE_LAYER_NORM;
  const blueprint_t *bp = &model->blueprint;
  const vector_change_t change = {.factor = sqrtf(0.5f)};
  if (bp->per_layer_size == 0) return;
  model->layer_embed = matrix(load, -1, 1, &embed);
  model->layer_project = matrix(load, -1, 1, &project);
  model->layer_norm = (norm_t){
      .kind = NORM_RMS, .width = bp->per_layer_size, .eps = bp->norm_eps * (float)bp->hidden_size};
  model->layer_norm.weight = changed_vector(load, -1, false, 1, &of_norm, change);
}

typedef struct given_rows {
  const uint8_t *rows;
  size_t row_bytes;
} given_rows_t;

static const void *given_rows_row(void *context, int64_t row, void *scratch) {
  const given_rows_t *given = context;
  (void)scratch;
  return given->rows + (size_t)row * given->row_bytes;
}

/* Rows [first, first + count) of those in host memory, in the run type; NULL = only planned. */
static const weight_t *given_matrix(model_load_t *load, const void *rows, int64_t first,
                                    int64_t count, int64_t cols) {
  weight_loader_t *loader = &load->loader;
  const size_t row_bytes = (size_t)cols * dtype_size(loader->dtype);
  weight_t *made = NULL;
  given_rows_t given = {rows, row_bytes};
  if (rows != NULL) given.rows += (size_t)first * row_bytes;
  const weight_source_t source = {.name = "rows",
                                  .rows = count,
                                  .cols = cols,
                                  .dtype = loader->dtype,
                                  .row = given_rows_row,
                                  .context = &given};
  if (load->code == 0) load->code = weight_loader_pass(loader, &source, &made, load->error);
  return made;
}

/* Number n of the matrices of a role, which files have one by one or in a stack. */
static const weight_t *stream_matrix(model_load_t *load, tensor_role_t role, int32_t n) {
  weight_loader_t *loader = &load->loader;
  const int32_t width = loader->blueprint->hidden_size;
  void *rows = NULL;
  if (load->code == 0)
    load->code = weight_loader_rows(loader, role, -1, loader->dtype, (int64_t)n * width, width,
                                    &rows, load->error);
  const weight_t *made = given_matrix(load, rows, 0, width, width);
  free(rows);
  return made;
}

/* The matrix of a convolution over rows of `width` values, tap by tap: so the rows that it reads
 * lie side by side (encode.c). Files have its columns channel by channel. */
static const weight_t *convolution(model_load_t *load, tensor_role_t role, int32_t width) {
  weight_loader_t *loader = &load->loader;
  const int64_t h = loader->blueprint->hidden_size, cols = 3 * (int64_t)width;
  const size_t size = dtype_size(loader->dtype);
  void *stored = NULL;
  weight_t *made = NULL;
  if (load->code == 0)
    load->code = weight_loader_rows(loader, role, -1, loader->dtype, 0, 0, &stored, load->error);
  uint8_t *rows = stored != NULL ? calloc((size_t)(h * cols), size) : NULL;
  if (stored != NULL && rows == NULL)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for a convolution");
  for (int64_t i = 0; rows != NULL && i < h * cols; i++) {
    const int64_t tap = i % cols / width, channel = i % cols % width;
    const int64_t at = i / cols * cols + 3 * channel + tap;
    memcpy(rows + (size_t)i * size, (const uint8_t *)stored + (size_t)at * size, size);
  }
  given_rows_t given = {rows, (size_t)cols * size};
  const weight_source_t source = {.name = "convolution",
                                  .rows = h,
                                  .cols = cols,
                                  .dtype = loader->dtype,
                                  .row = given_rows_row,
                                  .context = &given};
  if (load->code == 0) load->code = weight_loader_pass(loader, &source, &made, load->error);
  free(stored);
  free(rows);
  return made;
}

static void load_stream_matrices(model_load_t *load, model_t *model) {
  for (int32_t n = 0; n < model->blueprint.num_streams - 1; n++) {
    model->stream_in[n] = stream_matrix(load, ROLE_STREAM_IN, n);
    model->stream_out[n] = stream_matrix(load, ROLE_STREAM_OUT, n);
  }
}

/* The columns of the projection, as mixer.h has them. */
static void describe_mixer(const blueprint_t *bp, mixer_t *made, int32_t index) {
  const mixer_config_t *mixer = &bp->mixer;
  const int32_t hidden = bp->hidden_size, width = mixer_width(mixer, hidden);
  const int32_t inner = mixer_inner(mixer, hidden), keys = mixer_keys(mixer);
  const bool delta = mixer->kind == MIXER_DELTA;
  const int32_t first = mixer->kind == MIXER_MAMBA2 ? inner : 0; /* of what the convolution takes */
  const int64_t behind = mixer_conv_values(mixer, hidden);
  conv_t *conv = &made->conv;
  conv->layer = index;
  conv->channels = mixer_channels(mixer, hidden);
  conv->taps = mixer->taps;
  conv->in_width = conv->out_width = width;
  conv->in_column = conv->out_column = first;
  conv->before = conv->after = -1;
  conv->silu = true;
  if (mixer->kind == MIXER_CONV) {
    conv->in_column = 2 * hidden;
    conv->before = 0;
    conv->after = hidden;
    conv->out_width = hidden;
    conv->silu = false;
    return;
  }
  if (mixer->kind == MIXER_MAMBA) {
    conv->out_width = inner;
    made->selective.selection = (selective_scan_t){
        .layer = index, .offset = behind, .channels = inner, .rows = mixer->key_dim};
    made->gating = (gating_t){.width = inner, .gate_width = width, .gate_column = inner};
    return;
  }
  recurrence_t *r = &made->recurrence;
  r->kind = delta ? RECURRENCE_DELTA : RECURRENCE_SCAN;
  r->layer = index;
  r->offset = behind;
  r->num_heads = mixer->num_heads;
  r->num_groups = mixer->num_groups;
  r->tiled = mixer->tiled;
  r->doubles = mixer->doubles;
  r->key_dim = mixer->key_dim;
  r->value_dim = mixer->value_dim;
  r->width = width;
  r->v = delta ? 2 * keys : first;
  r->k = delta ? keys : first + inner;
  r->q = delta ? 0 : first + inner + keys;
  r->step = width - mixer->num_heads;
  r->rate = r->step - mixer->num_heads;
  r->step_min = (float)mixer->step_min;
  r->step_max = (float)mixer->step_max;
  made->gating = (gating_t){.width = inner,
                            .gate_width = width,
                            .gate_column = delta ? conv->channels : 0,
                            .gate_first = mixer->gate_first,
                            .group = mixer->norm ? mixer->norm_group : 0,
                            .weight_repeats = delta,
                            .eps = mixer->norm_eps};
}

/* A vector of `count` numbers widths[0] times, then ...; NULL for a model without factors. */
static vector_t *column_factors(model_load_t *load, const blueprint_t *bp, const double *factors,
                                const int32_t *widths, int count) {
  weight_loader_t *loader = &load->loader;
  int64_t total = 0, filled = 0;
  vector_t *made = NULL;
  if (load->code != 0 || !bp->mixer.has_factors) return NULL;
  for (int i = 0; i < count; i++) total += widths[i];
  if (loader->planned != NULL) {
    *loader->planned += (size_t)total * sizeof(float);
    return NULL;
  }
  float *values = calloc((size_t)total, sizeof(float));
  for (int i = 0; i < count && values != NULL; i++)
    for (int32_t n = 0; n < widths[i]; n++) values[filled++] = (float)factors[i];
  load->code = values == NULL
                   ? error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for factors")
                   : loader->ops->vector(loader->device, values, total, &made, load->error);
  free(values);
  return made;
}

/* A [N, I] of the logarithms [I, N]; GGUF files have A itself. */
static const vector_t *load_decays(model_load_t *load, const blueprint_t *bp, int32_t i) {
  const int64_t channels = mixer_inner(&bp->mixer, 0), rows = bp->mixer.key_dim;
  float *stored = NULL, *decays = NULL;
  const vector_t *made = NULL;
  if (load->code == 0 && load->loader.planned == NULL)
    load->code =
        weight_loader_values(&load->loader, ROLE_MIX_DECAY, i, false, &stored, load->error);
  if (stored != NULL && (decays = calloc((size_t)(channels * rows), sizeof(float))) == NULL)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for decays");
  for (int64_t at = 0; decays != NULL && at < channels * rows; at++) {
    const float value = stored[at];
    decays[at % rows * channels + at / rows] = bp->gguf ? value : -expf(value);
  }
  made = numbers(load, decays, channels * rows);
  free(stored);
  free(decays);
  return made;
}

static norm_t part_norm(model_load_t *load, const blueprint_t *bp, tensor_role_t role, int32_t i,
                        int32_t width) {
  norm_t made = {.kind = NORM_RMS, .width = width, .eps = bp->mixer.parts_eps};
  if (!bp->mixer.parts_normed) return (norm_t){0};
  made.weight = bp->mixer.parts_free ? same(load, width, 1.0f) : vector(load, i, false, 1, &role);
  return made;
}

/* What Mamba-1 has behind its convolution. */
static void load_selective(model_load_t *load, const blueprint_t *bp, selective_t *of, int32_t i) {
  static const tensor_role_t steps = ROLE_MIX_STEPS, skip = ROLE_MIX_SKIP;
  const int32_t rank = bp->mixer.step_rank, rows = bp->mixer.key_dim;
  const int64_t inner = mixer_inner(&bp->mixer, 0);
  void *parts = NULL;
  if (load->code == 0)
    load->code = weight_loader_rows(&load->loader, ROLE_MIX_PARTS, i, load->loader.dtype, 0, 0,
                                    &parts, load->error);
  of->rank = given_matrix(load, parts, 0, rank, inner);
  of->keys = given_matrix(load, parts, rank, rows, inner);
  of->queries = given_matrix(load, parts, rank + rows, rows, inner);
  free(parts);
  of->rank_norm = part_norm(load, bp, ROLE_MIX_STEP_NORM, i, rank);
  of->key_norm = part_norm(load, bp, ROLE_MIX_KEY_NORM, i, rows);
  of->query_norm = part_norm(load, bp, ROLE_MIX_QUERY_NORM, i, rows);
  of->steps = matrix(load, i, 1, &steps);
  of->selection.bias = vector(load, i, true, 1, &steps);
  of->selection.decay = load_decays(load, bp, i);
  of->selection.skip = vector(load, i, false, 1, &skip);
}

/* The taps of all channels, [taps, C], of tensors for q, k and v. */
static const vector_t *load_taps(model_load_t *load, const blueprint_t *bp, int32_t i) {
  static const tensor_role_t roles[3] = {ROLE_MIX_CONV_Q, ROLE_MIX_CONV_K, ROLE_MIX_CONV_V};
  const int32_t taps = bp->mixer.taps;
  const size_t channels = (size_t)mixer_channels(&bp->mixer, 0);
  const bool plans = load->loader.planned != NULL;
  float *all = plans ? NULL : calloc((size_t)taps * channels, sizeof(float));
  if (!plans && all == NULL && load->code == 0)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for taps");
  size_t first = 0;
  for (int n = 0; n < 3 && all != NULL && load->code == 0; n++) {
    const size_t width = (size_t)mixer_part(&bp->mixer, n);
    float *values = NULL;
    load->code = weight_loader_values(&load->loader, roles[n], i, false, &values, load->error);
    for (size_t k = 0; k < (size_t)taps && values != NULL; k++)
      memcpy(all + k * channels + first, values + k * width, width * sizeof(float));
    free(values);
    first += width;
  }
  const vector_t *made = numbers(load, all, taps * (int64_t)channels);
  free(all);
  return made;
}

static void load_mixer(model_load_t *load, const blueprint_t *bp, mixer_t *mixer, int32_t i) {
  static const tensor_role_t in[7] = {ROLE_MIX_IN, ROLE_MIX_Q,    ROLE_MIX_K,   ROLE_MIX_V,
                                      ROLE_MIX_Z,  ROLE_MIX_RATE, ROLE_MIX_STEP};
  static const tensor_role_t conv = ROLE_MIX_CONV, out = ROLE_MIX_OUT, decay = ROLE_MIX_DECAY;
  static const tensor_role_t bias = ROLE_MIX_BIAS, skip = ROLE_MIX_SKIP, norm = ROLE_MIX_NORM;
  const vector_change_t below_zero = {.factor = bp->gguf ? 1.0f : -1.0f, .is_logarithm = !bp->gguf};
  describe_mixer(bp, mixer, load->num_mixers++);
  mixer->in = matrix(load, i, 7, in);
  mixer->in_bias = vector(load, i, true, 1, in);
  mixer->conv.weight = bp->mixer.apart ? load_taps(load, bp, i) : vector(load, i, false, 1, &conv);
  mixer->conv.bias = vector(load, i, true, 1, &conv);
  mixer->out = matrix(load, i, 1, &out);
  mixer->out_bias = vector(load, i, true, 1, &out);
  if (bp->mixer.kind == MIXER_MAMBA) {
    load_selective(load, bp, &mixer->selective, i);
    return;
  }
  mixer->recurrence.decay = changed_vector(load, i, false, 1, &decay, below_zero);
  mixer->recurrence.bias = vector(load, i, false, 1, &bias);
  mixer->recurrence.skip = vector(load, i, false, 1, &skip);
  mixer->gating.weight = vector(load, i, false, 1, &norm);
  const int32_t inner = mixer_inner(&bp->mixer, bp->hidden_size), keys = mixer_keys(&bp->mixer);
  const int32_t widths[5] = {inner, inner, keys, keys, bp->mixer.num_heads};
  mixer->in_factors = column_factors(load, bp, bp->mixer.in_factors, widths, 5);
  mixer->out_factors = column_factors(load, bp, &bp->mixer.out_factor, &inner, 1);
}

/* The biases of stacked matrices; zeros for those that have none, if others do. */
static const vector_t *biases(model_load_t *load, int32_t layer, int num_roles,
                              const tensor_role_t *roles) {
  const tensor_list_t *list = &load->loader.list;
  int64_t rows = 0, filled = 0;
  int num_matrices = 0, num_biases = 0;
  for (int i = 0; i < num_roles; i++) {
    const expected_tensor_t *matrix = tensors_get(list, roles[i], layer, false);
    if (matrix == NULL) continue;
    num_matrices++;
    rows += matrix->rows;
    num_biases += tensors_get(list, roles[i], layer, true) != NULL;
  }
  if (num_biases == 0 || num_biases == num_matrices)
    return vector(load, layer, true, num_roles, roles);
  float *all = calloc((size_t)rows, sizeof *all);
  if (all == NULL && load->code == 0)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for biases");
  for (int i = 0; i < num_roles && load->code == 0; i++) {
    const expected_tensor_t *matrix = tensors_get(list, roles[i], layer, false);
    float *values = NULL;
    if (matrix == NULL) continue;
    if (load->loader.planned == NULL && tensors_get(list, roles[i], layer, true) != NULL)
      load->code = weight_loader_values(&load->loader, roles[i], layer, true, &values, load->error);
    if (values != NULL) memcpy(all + filled, values, (size_t)matrix->rows * sizeof *all);
    free(values);
    filled += matrix->rows;
  }
  const vector_t *made = numbers(load, all, rows);
  free(all);
  return made;
}

static void load_cross(model_load_t *load, const blueprint_t *bp, layer_t *layer, int32_t i) {
  static const tensor_role_t q = ROLE_CROSS_Q, o = ROLE_CROSS_O;
  static const tensor_role_t kv[2] = {ROLE_CROSS_K, ROLE_CROSS_V};
  cross_layer_t *cross = &layer->cross;
  if (!bp->cross.crosses) return;
  *cross = (cross_layer_t){.norm = norm(load, bp, i, ROLE_CROSS_NORM),
                           .q = matrix(load, i, 1, &q),
                           .q_bias = vector(load, i, true, 1, &q),
                           .kv = matrix(load, i, 2, kv),
                           .kv_bias = biases(load, i, 2, kv),
                           .o = matrix(load, i, 1, &o),
                           .o_bias = vector(load, i, true, 1, &o)};
  cross->attention = (attention_t){.layer = layer->attention.layer,
                                   .num_heads = layer->attention.num_heads,
                                   .num_kv_heads = layer->attention.num_kv_heads,
                                   .head_dim = layer->attention.head_dim,
                                   .scale = layer->attention.scale,
                                   .reads_only = true,
                                   .crosses = true};
}

static void load_attention(model_load_t *load, model_t *model, int32_t i) {
  static const tensor_role_t qkv[4] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_QKV}, o = ROLE_O;
  static const tensor_role_t qkk[3] = {ROLE_Q, ROLE_K, ROLE_K}, gate = ROLE_ATTN_GATE;
  layer_t *layer = &model->layers[i];
  bool is_fused = tensors_get(&load->loader.list, ROLE_QKV, i, false) != NULL;
  const tensor_role_t *in = is_fused ? qkv + 3 : qkv;
  int num_in = is_fused ? 1 : 3;
  if (layer_k_is_v(&model->blueprint, i)) in = qkk; /* K twice: a norm is to come between them */
  if (model->blueprint.kv_rank > 0) {
    load_latent(load, model, layer, i);
  } else {
    layer->qkv = matrix(load, i, num_in, in);
    layer->qkv_bias = biases(load, i, num_in, in);
    layer->attention = attention(load, model, i);
    layer->attn_gate = matrix(load, i, 1, &gate);
    const attention_t *made = &layer->attention;
    const int32_t kv = made->num_kv_heads * made->head_dim;
    const int32_t widths[3] = {made->num_heads * made->head_dim, kv, kv};
    layer->qkv_factors =
        column_factors(load, &model->blueprint, model->blueprint.mixer.qkv_factors, widths, 3);
  }
  layer->o = matrix(load, i, 1, &o);
  layer->o_bias = vector(load, i, true, 1, &o);
}

/* What K and Q of a layer make of the vectors of distances. */
static void load_tables(model_load_t *load, model_t *model, int32_t i) {
  static const tensor_role_t roles[2] = {ROLE_K, ROLE_Q};
  const blueprint_t *bp = &model->blueprint;
  attention_t *attention = &model->layers[i].attention;
  const bool has[2] = {bp->encoder.distance_keys, bp->encoder.distance_queries};
  const vector_t **tables[2] = {&attention->key_table, &attention->query_table};
  const int32_t entries = distance_entries(bp->encoder.distance_span);
  const int64_t count = (int64_t)bp->hidden_size * entries;
  if (entries == 0) return;
  attention->entries = model->entries;
  attention->num_entries = entries;
  attention->reach = model->num_distances - 1;
  for (int n = 0; n < 2; n++) {
    float *weight = NULL, *bias = NULL, *table = NULL;
    if (!has[n] || load->code != 0) continue;
    if (load->loader.planned == NULL) {
      load->code = weight_loader_rows(&load->loader, roles[n], i, DTYPE_F32, 0, 0, (void **)&weight,
                                      load->error);
      if (load->code == 0)
        load->code = weight_loader_values(&load->loader, roles[n], i, true, &bias, load->error);
      if (load->code == 0 && (table = calloc((size_t)count, sizeof(float))) == NULL)
        load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for distances");
      if (load->code == 0)
        distance_table(table, load->distance_rows, weight, bias, bp->hidden_size, bp->head_dim,
                       entries);
    }
    *tables[n] = numbers(load, table, count);
    free(weight);
    free(bias);
    free(table);
  }
}

static void load_layer(model_load_t *load, model_t *model, int32_t i) {
  const blueprint_t *bp = &model->blueprint;
  layer_t *layer = &model->layers[i];
  layer->attn_norm = norm(load, bp, i, ROLE_ATTN_NORM);
  if (i == 0 && bp->encoder.first_unnormed) layer->attn_norm.width = 0;
  if (bp->layer_flags[i] & LAYER_MIXER) load_mixer(load, bp, &layer->mixer, i);
  if (!(bp->layer_flags[i] & LAYER_NO_ATTENTION)) load_attention(load, model, i);
  load_tables(load, model, i);
  load_cross(load, bp, layer, i);
  layer->attn_out_norm = norm(load, bp, i, ROLE_ATTN_OUT_NORM);
  layer->mlp_norm = bp->shared_norm ? layer->attn_norm : norm(load, bp, i, ROLE_MLP_NORM);
  layer->mlp_width = layer_mlp_width(bp, i);
  if (bp->layer_flags[i] & LAYER_EXPERTS)
    load_experts(load, model, layer, i);
  else if (!(bp->layer_flags[i] & LAYER_NO_MLP))
    load_mlp(load, layer, i);
  const int32_t *cuts = model->cuts.mlp, rank = bp->shard.rank;
  const int32_t width = model->is_cut ? cuts[rank + 1] - cuts[rank] : layer->mlp_width;
  const int32_t widths[2] = {width, width};
  if (bp->xielu) {
    static const tensor_role_t roles[4] = {ROLE_XIELU_ABOVE, ROLE_XIELU_BELOW, ROLE_XIELU_BETA,
                                           ROLE_XIELU_EPS};
    layer->xielu =
        (xielu_t){vector(load, i, false, 1, &roles[0]), vector(load, i, false, 1, &roles[1]),
                  vector(load, i, false, 1, &roles[2]), vector(load, i, false, 1, &roles[3])};
  }
  layer->up_factors = column_factors(load, bp, bp->mixer.mlp_factors, widths, 2);
  const int32_t *shared = model->cuts.shared;
  if (bp->shared_mean && bp->layer_flags[i] & LAYER_EXPERTS)
    layer->shared_factors =
        same(load, model->is_cut ? shared[rank + 1] - shared[rank] : bp->shared_size, 0.5f);
  load_input(load, bp, layer, i);
  if (bp->layer_scalars) load_beside(load, bp, layer, i);
  if (bp->num_streams > 0) load_streams(load, bp, layer, i);
  layer->mlp_out_norm = norm(load, bp, i, ROLE_MLP_OUT_NORM);
}

/* The layers of a classifier, in float32: [pooler,] labels. */
static void load_classifier(model_load_t *load, model_t *model) {
  static const tensor_role_t pooler = ROLE_POOLER, classifier = ROLE_CLASSIFIER;
  static const vector_change_t exact = {.factor = 1.0f, .exact = true};
  const blueprint_t *bp = &model->blueprint;
  if (bp->encoder.num_labels == 0) return;
  if (bp->encoder.has_pooler) {
    post_layer_t *layer = &model->post_layers[model->num_post_layers++];
    layer->weight = matrix_as(load, -1, 1, &pooler, DTYPE_F32, false);
    layer->bias = changed_vector(load, -1, true, 1, &pooler, exact);
    layer->in = layer->out = bp->hidden_size;
    layer->activation = (int32_t)bp->encoder.pooler;
    if (bp->encoder.pooler_norm) layer->norm = norm(load, bp, -1, ROLE_POOLER_NORM);
  }
  post_layer_t *labels = &model->post_layers[model->num_post_layers++];
  labels->weight = matrix_as(load, -1, 1, &classifier, DTYPE_F32, false);
  labels->bias = changed_vector(load, -1, true, 1, &classifier, exact);
  labels->in = bp->encoder.has_pooler ? bp->hidden_size : bp->embed_size;
  labels->out = bp->encoder.num_labels;
  labels->activation = -1;
}

/* One layer, from a hidden row to the difference of two logits. */
static void load_judge(model_load_t *load, model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  const bool apart = bp->encoder.answer_rows;
  const tensor_role_t role = bp->tied && !apart ? ROLE_EMBED : ROLE_HEAD;
  const int32_t width = bp->embed_size;
  float *rows[2] = {0};
  weight_t *weight = NULL;
  if (!bp->encoder.judges || load->code != 0) return;
  for (int i = 0; i < 2 && load->code == 0; i++) {
    const int64_t row = apart ? 1 - i : bp->encoder.answer_ids[i];
    load->code = weight_loader_rows(&load->loader, role, -1, DTYPE_F32, row, 1, (void **)&rows[i],
                                    load->error);
  }
  for (int32_t c = 0; load->code == 0 && rows[1] != NULL && c < width; c++)
    rows[1][c] -= rows[0][c];
  given_rows_t given = {(const uint8_t *)rows[1], (size_t)width * sizeof(float)};
  const weight_source_t source = {.name = "answers",
                                  .rows = 1,
                                  .cols = width,
                                  .dtype = DTYPE_F32,
                                  .row = given_rows_row,
                                  .context = &given};
  if (load->code == 0)
    load->code = weight_loader_pass(&load->loader, &source, &weight, load->error);
  free(rows[0]);
  free(rows[1]);
  model->post_layers[model->num_post_layers++] = (post_layer_t){weight, NULL, width, 1, -1, {0}};
}

/* The layers behind the pooling, which stand in files of their own. */
static void load_post_layers(model_load_t *load, model_t *model) {
  const model_options_t *options = load->loader.options;
  for (int32_t i = 0; i < options->num_dense && load->code == 0; i++) {
    const dense_layer_t *dense = &options->dense[i];
    weight_t *weight = NULL;
    vector_t *bias = NULL;
    load->code = weights_dense(model->ops, model->device, options->dir, dense, load->loader.planned,
                               &weight, &bias, load->error);
    model->post_layers[model->num_post_layers++] =
        (post_layer_t){weight, bias, dense->in, dense->out, dense->activation, {0}};
  }
}

/* What layer i has beside those of a decoder layer; of a head not all of it. */
static void load_mtp(model_load_t *load, model_t *model, int32_t i) {
  static const tensor_role_t join = ROLE_MTP_JOIN;
  const blueprint_t *bp = &model->blueprint;
  model->mtp.embed_norm = norm(load, bp, i, ROLE_MTP_EMBED_NORM);
  model->mtp.hidden_norm = norm(load, bp, i, ROLE_MTP_HIDDEN_NORM);
  model->mtp.join = matrix(load, i, 1, &join);
  model->mtp.norm = norm(load, bp, i, ROLE_MTP_NORM);
}

/* Press et al. (2022), ALiBi: of heads whose number n is no power of two, those of the power below
 * it, and then every second one of twice that power. */
static void load_slopes(model_load_t *load, model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  float slopes[HEADS_MAX];
  int32_t power = 1;
  if (bp->alibi_max == 0) return;
  while (2 * power <= bp->num_heads) power *= 2;
  for (int32_t h = 0; h < bp->num_heads; h++) {
    const double step = h < power ? (double)(h + 1) / power : (h - power + 0.5) / power;
    slopes[h] = (float)exp2(-bp->alibi_max * step);
  }
  model->slopes = numbers(load, slopes, bp->num_heads);
}

/* The bucket of a key at distance j - p (Raffel et al. 2020, T5): one each up to half of those of a
 * direction, from there on by logarithm, in fp32 as the reference has it. A decoder sees nothing
 * behind a token, and has all buckets for what is before it. */
static int32_t bucket_of(int32_t distance, int32_t buckets, bool both_ways) {
  const int32_t half = both_ways ? buckets / 2 : buckets, exact = half / 2;
  const int32_t away = both_ways ? abs(distance) : MAX(-distance, 0);
  const int32_t side = both_ways && distance > 0 ? half : 0;
  if (away < exact) return side + away;
  const float part = logf((float)away / (float)exact) / (float)log((double)DISTANCE_MAX / exact) *
                     (float)(half - exact);
  return side + MIN(exact + (int32_t)part, half - 1);
}

static void load_distances(model_load_t *load, model_t *model) {
  const int32_t buckets = model->blueprint.distance_buckets, heads = model->blueprint.num_heads;
  const int32_t width = 2 * DISTANCE_MAX + 1;
  const bool both = model->blueprint.encoder.bidirectional;
  void *rows = NULL;
  if (buckets == 0 || load->code != 0) return;
  load->code =
      weight_loader_rows(&load->loader, ROLE_DISTANCES, -1, DTYPE_F32, 0, 0, &rows, load->error);
  float *values = calloc((size_t)heads * (size_t)width, sizeof(float));
  if (values == NULL && load->code == 0)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for distances");
  const float *of_buckets = rows; /* [buckets, Hq]; NULL: only planned */
  for (int32_t i = 0; of_buckets != NULL && values != NULL && i < heads * width; i++)
    values[i] = of_buckets[bucket_of(i % width - DISTANCE_MAX, buckets, both) * heads + i / width];
  model->distances = numbers(load, values, (int64_t)heads * width);
  free(values);
  free(rows);
}

/* The vectors of distances of DeBERTa, normed, turned, and where each distance finds its own. */
static void load_distance_rows(model_load_t *load, model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  const int32_t span = bp->encoder.distance_span, hidden = bp->hidden_size;
  float *rows = NULL, *weight = NULL, *bias = NULL;
  if (span == 0 || load->code != 0 || load->loader.planned != NULL) return;
  load->code = weight_loader_rows(&load->loader, ROLE_DISTANCE_ROWS, -1, DTYPE_F32, 0, 0,
                                  (void **)&rows, load->error);
  if (bp->encoder.distance_norm && load->code == 0)
    load->code =
        weight_loader_values(&load->loader, ROLE_DISTANCE_NORM, -1, false, &weight, load->error);
  if (bp->encoder.distance_norm && load->code == 0)
    load->code =
        weight_loader_values(&load->loader, ROLE_DISTANCE_NORM, -1, true, &bias, load->error);
  if (load->code == 0 && bp->encoder.distance_norm)
    distance_norm(rows, weight, bias, bp->norm_eps, 2 * span, hidden);
  load->distance_rows = calloc((size_t)hidden * (size_t)distance_entries(span), sizeof(float));
  model->entries = calloc(2 * (size_t)model->num_distances - 1, sizeof(int32_t));
  if (load->code == 0 && (load->distance_rows == NULL || model->entries == NULL))
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for distances");
  if (load->code == 0) {
    distance_turn(load->distance_rows, rows, 2 * span, hidden);
    for (int32_t i = 0; i < 2 * model->num_distances - 1; i++)
      model->entries[i] =
          distance_entry(model->num_distances - 1 - i, span, bp->encoder.distance_longest);
  }
  free(rows);
  free(weight);
  free(bias);
}

/* Added to a logit, so that its token is never generated, and all sums stay finite. */
static const float NEVER = -1e30f;

/* What is added to the logits in a tensor of its own, and to those of banned ids. */
static void load_logits_bias(model_load_t *load, model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  const bool plans = load->loader.planned != NULL;
  float *values = NULL;
  if ((!bp->cross.logits_bias && bp->cross.num_banned == 0) || load->code != 0) return;
  if (bp->cross.logits_bias && !plans)
    load->code =
        weight_loader_values(&load->loader, ROLE_HEAD_BIAS, -1, false, &values, load->error);
  else
    values = calloc((size_t)bp->vocab_size, sizeof *values);
  if (values == NULL && load->code == 0)
    load->code = error_set(load->error, ERR_NO_MEMORY, NULL, "no memory for a bias of logits");
  for (int32_t i = 0; values != NULL && i < bp->cross.num_banned; i++)
    values[bp->cross.banned_ids[i]] = NEVER;
  model->head_bias = numbers(load, values, bp->vocab_size);
  free(values);
}

/* A table of positions that no file has, in fp32, or in the type of activations where a back end
 * reads its tables in that. */
typedef struct sinusoids {
  const blueprint_t *bp;
  dtype_t dtype;
} sinusoids_t;

static void put_value(void *row, int32_t i, double value, dtype_t dtype) {
  switch (dtype) {
  case DTYPE_BF16: ((uint16_t *)row)[i] = bf16_from_float((float)value); break;
  case DTYPE_F16: ((uint16_t *)row)[i] = f16_from_float((float)value); break;
  default: ((float *)row)[i] = (float)value;
  }
}

static const void *sinusoid_row(void *context, int64_t row, void *scratch) {
  const sinusoids_t *table = context;
  const blueprint_t *bp = table->bp;
  const int32_t half = bp->hidden_size / 2;
  for (int32_t i = 0; i < half; i++) {
    double angle = (double)row / pow(10000, 2.0 * i / bp->hidden_size);
    if (bp->sinusoid == SINUSOID_TO_END) { /* in fp32, as the reference */
      const float step = (float)(-log(10000) / (half - 1));
      angle = (double)((float)row * expf((float)i * step));
    }
    put_value(scratch, i, sin(angle), table->dtype);
    put_value(scratch, half + i, cos(angle), table->dtype);
  }
  return scratch;
}

static void load_sinusoids(model_load_t *load, model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  sinusoids_t table = {bp, model->ops->act_bytes == 2 ? load->loader.dtype : DTYPE_F32};
  weight_t *weight = NULL;
  if (bp->sinusoid == SINUSOID_NONE || load->code != 0) return;
  const weight_source_t source = {.name = "embed_positions",
                                  .rows = (int64_t)bp->num_positions + bp->position_offset,
                                  .cols = bp->hidden_size,
                                  .dtype = table.dtype,
                                  .row = sinusoid_row,
                                  .context = &table};
  load->code = weight_loader_pass(&load->loader, &source, &weight, load->error);
  model->positions = weight;
}

/* The rows of types of tokens; where tokens have a task, too, with row 0 of the tasks in each. */
static const weight_t *load_types(model_load_t *load, const blueprint_t *bp) {
  static const tensor_role_t types = ROLE_TYPES;
  const int32_t width = bp->hidden_size;
  float *rows = NULL, *task = NULL;
  weight_t *made = NULL;
  if (bp->encoder.task_types == 0 || load->code != 0)
    return matrix_as(load, -1, 1, &types, load->loader.dtype, false);
  load->code = weight_loader_rows(&load->loader, ROLE_TYPES, -1, DTYPE_F32, 0, 0, (void **)&rows,
                                  load->error);
  if (load->code == 0)
    load->code = weight_loader_rows(&load->loader, ROLE_TASKS, -1, DTYPE_F32, 0, 1, (void **)&task,
                                    load->error);
  for (int32_t i = 0; task != NULL && i < bp->encoder.token_types * width; i++)
    rows[i] += task[i % width];
  given_rows_t given = {(const uint8_t *)rows, (size_t)width * sizeof(float)};
  const weight_source_t source = {.name = "token_type_embeddings",
                                  .rows = bp->encoder.token_types,
                                  .cols = width,
                                  .dtype = DTYPE_F32,
                                  .row = given_rows_row,
                                  .context = &given};
  if (load->code == 0) load->code = weight_loader_pass(&load->loader, &source, &made, load->error);
  free(rows);
  free(task);
  return made;
}

static void load_all(model_load_t *load, model_t *model) {
  static const tensor_role_t embed = ROLE_EMBED, head = ROLE_HEAD, positions = ROLE_POSITIONS;
  static const tensor_role_t project_in = ROLE_PROJECT_IN, project_out = ROLE_PROJECT_OUT;
  static const tensor_role_t project = ROLE_EMBED_PROJECT;
  static const tensor_role_t conv_1 = ROLE_CONV_1, conv_2 = ROLE_CONV_2;
  const blueprint_t *bp = &model->blueprint;
  const bool first = stage_is_first(bp), last = stage_is_last(bp);
  const model_options_t *options = load->loader.options;
  if (options->lacks_embed)
    model->embed = options->embeds != NULL ? options->embeds->embed : NULL;
  else if (first || (last && bp->tied)) /* blocks stay: a lookup reads the rows of a step */
    model->embed = matrix(load, -1, 1, &embed);
  if (first) model->positions = matrix_as(load, -1, 1, &positions, load->loader.dtype, false);
  load_sinusoids(load, model);
  if (bp->num_bands > 0) {
    model->conv_1 = convolution(load, conv_1, bp->num_bands);
    model->conv_2 = convolution(load, conv_2, bp->hidden_size);
    model->conv_1_bias = vector(load, -1, true, 1, &conv_1);
    model->conv_2_bias = vector(load, -1, true, 1, &conv_2);
  }
  if (first) model->types = load_types(load, bp);
  if (bp->encoder.embed_norm) model->embed_norm = norm(load, bp, -1, ROLE_EMBED_NORM);
  if (bp->encoder.table_size > 0) {
    model->embed_norm.width = bp->encoder.table_size;
    model->embed_project = matrix(load, -1, 1, &project);
    model->embed_project_bias = vector(load, -1, true, 1, &project);
  }
  const kv_cache_desc_t kv = model_kv(bp);
  load->layer_parts = kv.window_heads > 0 ? kv.num_kv_heads : 1;
  load->group_parts = kv.window_heads > 0 ? kv.window_heads : kv.num_layers;
  if (first) model->project_in = matrix(load, -1, 1, &project_in);
  load_inputs(load, model);
  load_stream_matrices(load, model);
  load_slopes(load, model);
  load_distances(load, model);
  load_distance_rows(load, model);
  for (int32_t i = 0; i < bp->num_layers + bp->mtp && load->code == 0; i++) {
    if (i > 0 && bp->encoder.one_layer)
      model->layers[i] = model->layers[0];
    else if (stage_has(bp, i) || i >= bp->num_layers)
      load_layer(load, model, i);
  }
  if (bp->mtp > 0 || bp->eagle.target_size > 0)
    load_mtp(load, model, bp->mtp > 0 ? bp->num_layers : 0);
  if (last) model->final_norm = norm(load, bp, -1, ROLE_FINAL_NORM);
  if (last) model->project_out = matrix(load, -1, 1, &project_out);
  if (last && !bp->headless) model->head_bias = vector(load, -1, true, 1, &head);
  load_logits_bias(load, model);
  if (last && !bp->headless) model->head = bp->tied ? model->embed : matrix(load, -1, 1, &head);
  free(load->distance_rows);
  load->distance_rows = NULL;
  load_post_layers(load, model);
  load_classifier(load, model);
  load_judge(load, model);
  if (load->code == 0) load->code = weight_loader_finish(&load->loader, load->error);
}

static int make_rope(const rope_config_t *config, int32_t max_model_len, float **inv_freq,
                     rope_t *out, inferd_error_t *error) {
  size_t half = (size_t)config->dims / 2;
  double *exact = calloc(half, sizeof(double)), scale;
  *inv_freq = calloc(half, sizeof(float));
  if (exact == NULL || *inv_freq == NULL) {
    free(exact);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for rotary frequencies");
  }
  rope_frequencies(config, max_model_len, exact, &scale);
  for (size_t i = 0; i < half; i++) (*inv_freq)[i] = (float)exact[i];
  free(exact);
  *out = (rope_t){.dims = config->dims, .inv_freq = *inv_freq, .scale = (float)scale};
  return 0;
}

static int make_ropes(model_t *model, int32_t max_model_len, inferd_error_t *error) {
  const blueprint_t *bp = &model->blueprint;
  if (bp->learned_positions) return 0;
  int code = make_rope(&bp->rope, max_model_len, &model->inv_freq, &model->rope, error);
  if (code == 0 && bp->rope.mrope != MROPE_NONE) {
    model->rope_axes = calloc((size_t)bp->rope.dims / 2, 1);
    if (model->rope_axes == NULL)
      return error_set(error, ERR_NO_MEMORY, NULL, "no memory for rotary sections");
    rope_axes(&bp->rope, model->rope_axes);
    model->rope.axes = model->rope_axes;
  }
  if (code != 0 || bp->local_rope.type == ROPE_NONE) return code;
  return make_rope(&bp->local_rope, max_model_len, &model->local_inv_freq, &model->local_rope,
                   error);
}

static model_t *make_model(const ops_t *ops, device_t *device, const blueprint_t *blueprint) {
  model_t *model = calloc(1, sizeof(*model));
  if (model == NULL) return NULL;
  size_t count = (size_t)(blueprint->num_layers + blueprint->mtp);
  model->ops = ops;
  model->device = device;
  model->blueprint = *blueprint;
  model->blueprint.scheme.plain = NULL; /* of what loads, which has its own blueprint */
  model->is_cut = !shard_is_whole(blueprint);
  if (model->is_cut) shard_cut(blueprint, &model->cuts);
  model->layers = calloc(count, sizeof(layer_t));
  model->blueprint.layer_flags = calloc(count, 1);
  if (model->layers == NULL || model->blueprint.layer_flags == NULL) {
    model_free(model);
    return NULL;
  }
  memcpy(model->blueprint.layer_flags, blueprint->layer_flags, count);
  return model;
}

/* Gemma rounds the square root of h to the type that the model runs in. */
static float rounded_scale(const blueprint_t *bp, double scale) {
  float exact = (float)scale, rounded;
  convert_row(&rounded, bp->dtype, &exact, DTYPE_F32, 1);
  convert_row(&exact, DTYPE_F32, &rounded, bp->dtype, 1);
  return exact;
}

static void set_embed_scale(model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  double scale = bp->embed_scale / bp->residual_scale;
  model->embed_scale = bp->embed_rounds ? rounded_scale(bp, scale) : (float)scale;
  model->layer_embed_scale = rounded_scale(bp, sqrt(bp->per_layer_size)) * sqrtf(0.5f);
}

int model_load(const ops_t *ops, device_t *device, const blueprint_t *blueprint,
               int32_t max_model_len, const model_options_t *options, model_t **out,
               inferd_error_t *error) {
  if (max_model_len < 1 || max_model_len > blueprint->max_model_len) {
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "max_model_len is %d; the model allows 1 to %d", max_model_len,
                     blueprint->max_model_len);
  }
  int code = model_check_device(ops, blueprint, options->dtype, error);
  if (code != 0) return code;
  model_t *model = make_model(ops, device, blueprint);
  if (model == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  model_load_t load = {.error = error};
  load.code = make_ropes(model, max_model_len, error);
  if (load.code == 0) {
    load.code = weight_loader_open(&load.loader, ops, device, blueprint, options, error);
  }
  if (load.code == 0) {
    model->blueprint.dtype = load.loader.dtype;
    set_embed_scale(model);
    model->num_distances = max_model_len;
    load_all(&load, model);
    model->hash = load.loader.hash;
    model->kv_scales = load.loader.kv_scales;
    load.loader.kv_scales = NULL;
    weight_loader_close(&load.loader);
  }
  if (load.code != 0) {
    model_free(model);
    return error_within(error, load.code, options->dir);
  }
  *out = model;
  return 0;
}

void model_free(model_t *model) {
  if (model == NULL) return;
  free(model->layers);
  if (!model->is_lent) {
    free(model->inv_freq);
    free(model->local_inv_freq);
    free(model->rope_axes);
    free(model->entries);
    free(model->kv_scales);
  }
  free(model->lora.pair);
  free(model->lora.has_factors);
  mtp_free(&model->mtp);
  eagle_free(&model->eagle);
  blueprint_free(&model->blueprint);
  free(model);
}

/* Bytes of the experts of layer i on a device of `ops`, and how many of them a token reads. */
static void plan_mixture(model_load_t *load, const model_t *model, int32_t i, const ops_t *ops,
                         size_t *all, size_t *read) {
  const blueprint_t *bp = &model->blueprint;
  size_t stacks = 0;
  *all = 0;
  go_to(load, (load_place_t){ops, NULL, all});
  load_mixture(load, model, i);
  go_to(load, (load_place_t){ops, NULL, &stacks});
  matrix(load, i, 3, EXPERTS_UP);
  matrix(load, i, 1, &EXPERTS_DOWN);
  *read = *all - stacks + stacks / (size_t)bp->num_experts * (size_t)bp->experts_top;
}

int model_expert_bytes(const ops_t *ops, const blueprint_t *blueprint,
                       const model_options_t *options, expert_bytes_t *out, inferd_error_t *error) {
  model_options_t quiet = *options;
  quiet.log = NULL;
  model_load_t load = {.error = error};
  model_t *model = make_model(ops, NULL, blueprint);
  if (model == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  load.code = weight_loader_open(&load.loader, ops, NULL, blueprint, &quiet, error);
  const bool is_open = load.code == 0;
  for (int32_t i = 0; i < blueprint->num_layers && load.code == 0; i++) {
    out[i] = (expert_bytes_t){0};
    if ((blueprint->layer_flags[i] & LAYER_EXPERTS) == 0) continue;
    plan_mixture(&load, model, i, ops, &out[i].device, &out[i].device_read);
    plan_mixture(&load, model, i, ops->host->ops, &out[i].host, &out[i].host_read);
  }
  if (is_open) weight_loader_close(&load.loader);
  model_free(model);
  return load.code;
}

uint64_t model_hash(const model_t *model) {
  return model->hash;
}

const float *model_kv_scales(const model_t *model) {
  return model->kv_scales;
}

int model_weight_bytes(const ops_t *ops, const blueprint_t *blueprint,
                       const model_options_t *options, size_t *out, inferd_error_t *error) {
  model_options_t quiet = *options; /* model_load says the same things again */
  quiet.log = NULL;
  model_load_t load = {.error = error};
  model_t *model = make_model(ops, NULL, blueprint);
  *out = 0;
  if (model == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  load.code = weight_loader_open(&load.loader, ops, NULL, blueprint, &quiet, error);
  if (load.code == 0) {
    load.loader.planned = out;
    load_all(&load, model);
    weight_loader_close(&load.loader);
  }
  model_free(model);
  return load.code;
}
