/* encode.c: the runs of an encoder between steps; the contract is in encode.h.
 *
 * Op calls on the engine thread. All positions of a run go through one phase after the other, in
 * parts of few positions each: whatever attention does not read exists for the positions of one
 * part only.
 */
#include "engine/model/forward/encode.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/forward/internal.h"
#include "engine/model/sizes.h"

#include <stdlib.h>
#include <string.h>

/* Positions of a part: the most; those that rows of weights are worth reading for. */
enum { PART_ROWS = 256, PART_ROWS_MIN = 8 };

/* What all positions go through, one after the other. */
typedef enum encode_phase {
  PHASE_DONE,
  PHASE_ROWS, /* of spectrograms: all rows go through the first convolution */
  PHASE_INPUT,
  PHASE_QKV, /* of each layer */
  PHASE_ATTENTION,
  PHASE_MLP, /* and what is before it */
  PHASE_NORM,
  PHASE_CROSS /* of each layer of the decoder */
} encode_phase_t;

typedef struct encode_run {
  int32_t rows_max;
  act_t *x;    /* [P, h] */
  act_t *qkv;  /* [P, 3 Hq D] */
  act_t *attn; /* [P, Hq D] */
  act_t *mid;  /* [2 P, h], of spectrograms */
  encode_input_t input;
  encode_phase_t phase; /* that is next, from row `done` on */
  int32_t layer, done;
  int64_t work_done; /* multiplications */
} encode_run_t;

struct encode {
  const ops_t *ops;
  device_t *device;
  const model_t *encoder, *decoder;
  act_t *y;        /* [N, h] of the part that is computed */
  act_t *up, *act; /* [N, 2 f] or [N, f]; [N, f] */
  act_t *kv;       /* [N, 2 Hk D] of a layer of the decoder */
  /* Of spectrograms: [N, 3 bands] or [N, 3 h]; the same on the host, and [2 N + 1, h] before. */
  act_t *taps;
  float *host_taps, *host_rows;
  encode_run_t runs[ENCODE_RUNS_MAX], *run;
};

/* ---- sizes ---- */

static int64_t attn_width(const blueprint_t *bp) {
  return (int64_t)bp->num_heads * bp->head_dim;
}

static int64_t kv_width(const blueprint_t *decoder) {
  return 2 * (int64_t)decoder->num_kv_heads * decoder->head_dim;
}

static int64_t up_width(const blueprint_t *bp) {
  return (bp->gated_mlp ? 2 : 1) * (int64_t)bp->intermediate_size;
}

/* Columns of the taps of a convolution, the wider one of two. */
static int64_t taps_width(const blueprint_t *encoder) {
  return encoder->num_bands > 0 ? 3 * (int64_t)MAX(encoder->num_bands, encoder->hidden_size) : 0;
}

static int64_t mid_width(const blueprint_t *encoder) {
  return encoder->num_bands > 0 ? encoder->hidden_size : 0;
}

size_t encode_run_bytes(const blueprint_t *encoder, int32_t rows_max) {
  const int64_t each = encoder->hidden_size + 4 * attn_width(encoder) + 2 * mid_width(encoder);
  return (size_t)(rows_max * each) * sizeof(float);
}

size_t encode_shared_bytes(const blueprint_t *encoder, const blueprint_t *decoder) {
  const int64_t each = encoder->hidden_size + up_width(encoder) + encoder->intermediate_size +
                       kv_width(decoder) + taps_width(encoder);
  return (size_t)(PART_ROWS * each) * sizeof(float);
}

/* Multiplications of a position in a phase. */
static int64_t phase_work(const blueprint_t *encoder, const blueprint_t *decoder,
                          encode_phase_t phase, int32_t length) {
  const int64_t h = encoder->hidden_size, attn = attn_width(encoder);
  switch (phase) {
  case PHASE_ROWS: return encoder->num_bands * 3 * h;
  case PHASE_INPUT: return encoder->num_bands > 0 ? 3 * h * h : h;
  case PHASE_QKV: return 3 * h * attn;
  case PHASE_ATTENTION: return 2 * attn * length;
  case PHASE_MLP: return h * (attn + up_width(encoder) + encoder->intermediate_size);
  case PHASE_CROSS: return h * kv_width(decoder);
  default: return h;
  }
}

int64_t encode_work(const blueprint_t *encoder, const blueprint_t *decoder, int32_t length) {
  int64_t each = 0;
  for (encode_phase_t phase = PHASE_ROWS; phase <= PHASE_CROSS; phase++) {
    const bool of_layer = phase >= PHASE_QKV && phase <= PHASE_MLP;
    const int64_t times = of_layer               ? encoder->num_layers
                          : phase == PHASE_CROSS ? decoder->num_layers
                          : phase == PHASE_ROWS  ? SOURCE_ROWS
                                                 : 1;
    each += times * phase_work(encoder, decoder, phase, length);
  }
  return each * length;
}

/* ---- buffers ---- */

typedef struct encode_buffer {
  act_t **buffer;
  int64_t rows, width;
} encode_buffer_t;

static bool take_buffers(const encode_runs_t *encode, const encode_buffer_t *buffers,
                         size_t count) {
  for (size_t i = 0; i < count; i++) {
    *buffers[i].buffer = encode->ops->buffer(encode->device, buffers[i].rows, buffers[i].width);
    if (*buffers[i].buffer == NULL) return false;
  }
  return true;
}

static bool take_all(encode_runs_t *encode, const int32_t *rows_max, int32_t num_runs) {
  const blueprint_t *bp = &encode->encoder->blueprint;
  const int64_t width = attn_width(bp);
  const encode_buffer_t shared[] = {
      {&encode->y, PART_ROWS, bp->hidden_size},
      {&encode->up, PART_ROWS, up_width(bp)},
      {&encode->act, PART_ROWS, bp->intermediate_size},
      {&encode->kv, PART_ROWS, kv_width(&encode->decoder->blueprint)}};
  if (!take_buffers(encode, shared, ARRAY_LEN(shared))) return false;
  for (int32_t i = 0; i < num_runs; i++) {
    encode_run_t *run = &encode->runs[i];
    const encode_buffer_t own[] = {{&run->x, rows_max[i], bp->hidden_size},
                                   {&run->qkv, rows_max[i], 3 * width},
                                   {&run->attn, rows_max[i], width}};
    const encode_buffer_t mid = {&run->mid, SOURCE_ROWS * (int64_t)rows_max[i], bp->hidden_size};
    run->rows_max = rows_max[i];
    if (!take_buffers(encode, own, ARRAY_LEN(own))) return false;
    if (bp->num_bands > 0 && !take_buffers(encode, &mid, 1)) return false;
  }
  if (bp->num_bands == 0) return true;
  const encode_buffer_t taps = {&encode->taps, PART_ROWS, taps_width(bp)};
  const size_t rows = SOURCE_ROWS * PART_ROWS + 1;
  encode->host_taps = calloc((size_t)(PART_ROWS * taps_width(bp)), sizeof *encode->host_taps);
  encode->host_rows = calloc(rows * (size_t)bp->hidden_size, sizeof *encode->host_rows);
  return encode->host_taps != NULL && encode->host_rows != NULL && take_buffers(encode, &taps, 1);
}

int encode_new(const model_t *encoder, const model_t *decoder, const int32_t *rows_max,
               int32_t num_runs, encode_runs_t **out, inferd_error_t *error) {
  const blueprint_t *bp = &encoder->blueprint;
  CHECK_RANGE(num_runs, 1, ENCODE_RUNS_MAX + 1);
  CHECK_EQ(bp->num_heads, bp->num_kv_heads);
  CHECK(bp->block == BLOCK_PRE_NORM || bp->block == BLOCK_POST_NORM);
  encode_runs_t *encode = calloc(1, sizeof *encode);
  if (encode == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for an encoder");
  encode->ops = encoder->ops;
  encode->device = encoder->device;
  encode->encoder = encoder;
  encode->decoder = decoder;
  encode->run = encode->runs;
  if (!take_all(encode, rows_max, num_runs)) {
    encode_free(encode);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for sources of %d positions",
                     rows_max[0]);
  }
  *out = encode;
  return encode->ops->tower->prepare(encode->device, bp->head_dim, error);
}

void encode_free(encode_runs_t *encode) {
  if (encode == NULL) return;
  free(encode->host_taps);
  free(encode->host_rows);
  free(encode);
}

/* ---- phases ---- */

static act_t *from(const encode_runs_t *encode, act_t *act, int64_t row, int64_t width) {
  return encode->ops->tower->rows(act, row * width);
}

/* out = the activation of a linear layer. */
static void activate(const encode_runs_t *encode, act_t *out, const act_t *in,
                     const fused_linear_t *linear, int32_t rows) {
  const ops_t *ops = encode->ops;
  if (ops->fused_linear != NULL) {
    ops->fused_linear(encode->device, out, in, linear, rows);
    return;
  }
  ops->linear(encode->device, linear->sums, in, linear->weight, linear->bias, NULL, rows);
  ops->activation(encode->device, out, linear->sums, linear->activation, linear->width, rows);
}

/* A convolution with three taps over rows [first - 1, ...) of `rows`, `width` values each, of which
 * there are `total`, beginning with row `held`: every `stride`-th makes one of out[count, h]. */
typedef struct convolution {
  const float *rows;
  int32_t held, total, width, stride;
  const weight_t *weight;
  const vector_t *bias;
} convolution_t;

static void run_taps(const encode_runs_t *encode, const convolution_t *conv, act_t *out,
                     int32_t first, int32_t count) {
  const ops_t *ops = encode->ops;
  device_t *device = encode->device;
  const int32_t h = encode->encoder->blueprint.hidden_size;
  float *taps = encode->host_taps;
  const size_t bytes = (size_t)conv->width * sizeof *taps;
  for (int32_t i = 0; i < 3 * count; i++) {
    const int32_t row = (first + i / 3) * conv->stride + i % 3 - 1;
    float *tap = taps + (int64_t)i * conv->width;
    if (row >= 0 && row < conv->total)
      memcpy(tap, conv->rows + (int64_t)(row - conv->held) * conv->width, bytes);
    else
      memset(tap, 0, bytes);
  }
  ops->write_rows(device, encode->taps, taps, 3 * conv->width, count);
  const fused_linear_t linear = {.weight = conv->weight,
                                 .bias = conv->bias,
                                 .has_activation = true,
                                 .activation = ACTIVATION_GELU,
                                 .width = h,
                                 .sums = encode->y};
  activate(encode, out, encode->taps, &linear, count);
}

/* mid = the rows of the spectrogram behind the first convolution. */
static void run_rows(const encode_runs_t *encode, int32_t first, int32_t count) {
  const model_t *model = encode->encoder;
  const encode_run_t *run = encode->run;
  const convolution_t conv = {.rows = run->input.rows,
                              .total = SOURCE_ROWS * run->input.length,
                              .width = model->blueprint.num_bands,
                              .stride = 1,
                              .weight = model->conv_1,
                              .bias = model->conv_1_bias};
  run_taps(encode, &conv, from(encode, run->mid, first, model->blueprint.hidden_size), first,
           count);
}

/* out = every second one of these behind the second convolution. */
static void run_second(const encode_runs_t *encode, act_t *out, int32_t first, int32_t count) {
  const model_t *model = encode->encoder;
  const encode_run_t *run = encode->run;
  const int32_t h = model->blueprint.hidden_size, total = SOURCE_ROWS * run->input.length;
  const int32_t held = MAX(SOURCE_ROWS * first - 1, 0);
  const int32_t end = MIN(SOURCE_ROWS * (first + count), total);
  encode->ops->read_rows(encode->device, encode->host_rows, from(encode, run->mid, held, h), h,
                         end - held);
  const convolution_t conv = {.rows = encode->host_rows,
                              .held = held,
                              .total = total,
                              .width = h,
                              .stride = SOURCE_ROWS,
                              .weight = model->conv_2,
                              .bias = model->conv_2_bias};
  run_taps(encode, &conv, out, first, count);
}

/* x = the embeddings of the ids, with their positions, and normed, where the family has these. */
static void run_input(const encode_runs_t *encode, int32_t first, int32_t count) {
  const model_t *model = encode->encoder;
  const encode_run_t *run = encode->run;
  act_t *x = from(encode, run->x, first, model->blueprint.hidden_size);
  const bool spectral = model->blueprint.num_bands > 0;
  if (spectral) run_second(encode, x, first, count);
  const cross_lookup_t lookup = {.table = spectral ? NULL : model->embed,
                                 .ids = spectral ? NULL : run->input.ids + first,
                                 .scale = model->embed_scale,
                                 .places = model->positions,
                                 .first = first + model->blueprint.position_offset};
  encode->ops->cross->look_up(encode->device, x, &lookup, count);
  if (model->embed_norm.width > 0)
    encode->ops->norm(encode->device, x, x, NULL, &model->embed_norm, count);
}

/* qkv = what the rows ask and are asked for. */
static void run_qkv(const encode_runs_t *encode, const layer_t *layer, int32_t first,
                    int32_t count) {
  const ops_t *ops = encode->ops;
  const blueprint_t *bp = &encode->encoder->blueprint;
  const encode_run_t *run = encode->run;
  act_t *in = from(encode, run->x, first, bp->hidden_size);
  if (bp->block == BLOCK_PRE_NORM) {
    ops->norm(encode->device, encode->y, in, NULL, &layer->attn_norm, count);
    in = encode->y;
  }
  ops->linear(encode->device, from(encode, run->qkv, first, 3 * attn_width(bp)), in, layer->qkv,
              layer->qkv_bias, NULL, count);
}

/* attn = what the rows see. */
static void run_attention(const encode_runs_t *encode, const layer_t *layer, int32_t first,
                          int32_t count) {
  const encode_run_t *run = encode->run;
  const attention_t *own = &layer->attention;
  const int32_t starts[] = {0, run->input.length};
  const tower_segments_t all = {starts, 1};
  const tower_attention_t attention = {.num_heads = own->num_heads,
                                       .head_dim = own->head_dim,
                                       .scale = own->scale,
                                       .rope_parts = 1,
                                       .distances = own->distances,
                                       .reach = own->reach,
                                       .rounds = encode->encoder->blueprint.dtype == DTYPE_BF16,
                                       .first_row = first,
                                       .end_row = first + count};
  encode->ops->tower->attend(encode->device, run->attn, run->qkv, &attention, &all);
}

/* x goes through the rest of a layer. */
static void run_mlp(const encode_runs_t *encode, const layer_t *layer, int32_t first,
                    int32_t count) {
  const ops_t *ops = encode->ops;
  device_t *device = encode->device;
  const blueprint_t *bp = &encode->encoder->blueprint;
  const encode_run_t *run = encode->run;
  const bool before = bp->block == BLOCK_PRE_NORM;
  act_t *x = from(encode, run->x, first, bp->hidden_size), *y = encode->y;
  act_t *attn = from(encode, run->attn, first, attn_width(bp));
  ops->linear(device, before ? x : y, attn, layer->o, layer->o_bias, x, count);
  ops->norm(device, before ? y : x, before ? x : y, NULL,
            before ? &layer->mlp_norm : &layer->attn_norm, count);
  const fused_linear_t up = {.weight = layer->up,
                             .bias = layer->up_bias,
                             .has_activation = true,
                             .activation = bp->activation,
                             .width = bp->intermediate_size,
                             .sums = encode->up};
  activate(encode, encode->act, before ? y : x, &up, count);
  ops->linear(device, before ? x : y, encode->act, layer->down, layer->down_bias, x, count);
  if (!before) ops->norm(device, x, y, NULL, &layer->mlp_norm, count);
}

static void run_norm(const encode_runs_t *encode, int32_t first, int32_t count) {
  const model_t *model = encode->encoder;
  act_t *x = from(encode, encode->run->x, first, model->blueprint.hidden_size);
  if (model->blueprint.final_norm)
    encode->ops->norm(encode->device, x, x, NULL, &model->final_norm, count);
}

/* Stores K and V of the rows for a layer of the decoder. */
static void run_cross(const encode_runs_t *encode, const layer_t *layer, int32_t first,
                      int32_t count) {
  const ops_t *ops = encode->ops;
  const encode_run_t *run = encode->run;
  const act_t *x = from(encode, run->x, first, encode->encoder->blueprint.hidden_size);
  const cross_layer_t *cross = &layer->cross;
  ops->linear(encode->device, encode->kv, x, cross->kv, cross->kv_bias, NULL, count);
  ops->cross->store(encode->device, encode->kv, &cross->attention, run->input.blocks, first, count);
}

/* ---- a run ---- */

void encode_choose(encode_runs_t *encode, int32_t run) {
  CHECK_RANGE(run, 0, ENCODE_RUNS_MAX);
  encode->run = &encode->runs[run];
  CHECK(encode->run->x != NULL);
}

void encode_begin(encode_runs_t *encode, const encode_input_t *input) {
  encode_run_t *run = encode->run;
  CHECK_RANGE(input->length, 1, run->rows_max + 1);
  run->input = *input;
  run->phase = encode->encoder->blueprint.num_bands > 0 ? PHASE_ROWS : PHASE_INPUT;
  run->layer = run->done = 0;
  run->work_done = 0;
}

static void run_phase(const encode_runs_t *encode, int32_t first, int32_t count) {
  const encode_run_t *run = encode->run;
  const layer_t *layer = &encode->encoder->layers[run->layer];
  switch (run->phase) {
  case PHASE_ROWS: run_rows(encode, first, count); return;
  case PHASE_INPUT: run_input(encode, first, count); return;
  case PHASE_QKV: run_qkv(encode, layer, first, count); return;
  case PHASE_ATTENTION: run_attention(encode, layer, first, count); return;
  case PHASE_MLP: run_mlp(encode, layer, first, count); return;
  case PHASE_NORM: run_norm(encode, first, count); return;
  default: run_cross(encode, &encode->decoder->layers[run->layer], first, count);
  }
}

/* What follows a phase that all positions have gone through. */
static encode_phase_t phase_behind(const encode_runs_t *encode) {
  encode_run_t *run = encode->run;
  switch (run->phase) {
  case PHASE_ROWS: return PHASE_INPUT;
  case PHASE_INPUT: return PHASE_QKV;
  case PHASE_QKV: return PHASE_ATTENTION;
  case PHASE_ATTENTION: return PHASE_MLP;
  case PHASE_MLP:
    if (++run->layer < encode->encoder->blueprint.num_layers) return PHASE_QKV;
    return PHASE_NORM;
  case PHASE_NORM: run->layer = 0; return PHASE_CROSS;
  default: return ++run->layer < encode->decoder->blueprint.num_layers ? PHASE_CROSS : PHASE_DONE;
  }
}

bool encode_advance(encode_runs_t *encode, int64_t work) {
  encode_run_t *run = encode->run;
  for (bool any = false; run->phase != PHASE_DONE && (work > 0 || !any); any = true) {
    const int64_t each = phase_work(&encode->encoder->blueprint, &encode->decoder->blueprint,
                                    run->phase, run->input.length);
    const int64_t fits = MAX(work / each, PART_ROWS_MIN);
    const int32_t rows =
        run->phase == PHASE_ROWS ? SOURCE_ROWS * run->input.length : run->input.length;
    /* Attention alone writes into no buffer of a part. */
    const int32_t most = run->phase == PHASE_ATTENTION ? rows : PART_ROWS;
    const int32_t count = (int32_t)MIN(MIN(fits, most), rows - run->done);
    run_phase(encode, run->done, count);
    work -= count * each;
    run->work_done += count * each;
    run->done += count;
    if (run->done < rows) continue;
    run->done = 0;
    run->phase = phase_behind(encode);
  }
  return run->phase == PHASE_DONE;
}

int64_t encode_work_done(const encode_runs_t *encode) {
  return encode->run->work_done;
}

void encode_read(const encode_runs_t *encode, float *out) {
  const encode_run_t *run = encode->run;
  encode->ops->read_rows(encode->device, out, run->x, encode->encoder->blueprint.hidden_size,
                         run->input.length);
}
