/* tower.c: one forward for every family of towers: patches -> rows of a text model's width.
 *
 * Straight-line op calls on the engine thread, between two steps; what differs between families is
 * in the plan. Nothing is allocated behind tower_prepare. Patches stand in blocks of m x m, the
 * blocks and the patches of a block row by row, so the values of a block lie side by side.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/towers/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_buffer(int32_t patches, inferd_error_t *error) {
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for images of %d patches", patches);
}

static bool take_windows(tower_t *tower, int32_t patches, int32_t block) {
  const size_t P = (size_t)patches, blocks = (size_t)(patches / block);
  tower->window_starts = calloc(blocks + 1, sizeof(int32_t));
  tower->order = calloc(blocks, sizeof(int32_t));
  tower->sorted = calloc(P, (size_t)tower->plan.patch_columns * sizeof(float));
  tower->merged = calloc(blocks, (size_t)tower->plan.out_size * sizeof(float));
  return tower->window_starts != NULL && tower->order != NULL && tower->sorted != NULL &&
         tower->merged != NULL;
}

int tower_prepare(tower_t *tower, int32_t patches_max, inferd_error_t *error) {
  const tower_plan_t *plan = &tower->plan;
  const int64_t P = patches_max, d = plan->hidden, block = (int64_t)plan->merge * plan->merge;
  const bool gated = activation_is_gated(plan->activation);
  const size_t half = (size_t)(d / plan->num_heads / 2);
  struct {
    act_t **buffer;
    int64_t rows, width;
  } buffers[] = {{&tower->pixels, P, plan->patch_columns},
                 {&tower->x, P, d},
                 {&tower->y, P, d},
                 {&tower->qkv, P, 3 * d},
                 {&tower->up, P, MAX((gated ? 2 : 1) * (int64_t)plan->mlp_width, d)},
                 {&tower->inner, P, gated ? plan->mlp_width : 1},
                 {&tower->rows, P / block, plan->out_size}};
  CHECK_GE(P, block);
  CHECK_EQ(P % block, 0);
  for (size_t i = 0; i < ARRAY_LEN(buffers); i++) {
    *buffers[i].buffer = tower->ops->buffer(tower->device, buffers[i].rows, buffers[i].width);
    if (*buffers[i].buffer == NULL) return no_buffer(patches_max, error);
  }
  tower->patches_max = patches_max;
  tower->places = calloc((size_t)P, (size_t)d * sizeof(float));
  tower->cosine = calloc((size_t)P, half * sizeof(float));
  tower->sine = calloc((size_t)P, half * sizeof(float));
  tower->image_starts = calloc((size_t)(P / block) + 1, sizeof(int32_t));
  if (tower->places == NULL || tower->cosine == NULL || tower->sine == NULL ||
      tower->image_starts == NULL)
    return no_buffer(patches_max, error);
  if (plan->window > 0 && !take_windows(tower, patches_max, (int32_t)block))
    return no_buffer(patches_max, error);
  return tower->ops->tower->prepare(tower->device, (int32_t)d / plan->num_heads, error);
}

/* Where a patch of an image is. */
typedef struct place {
  int32_t row, column;
} patch_place_t;

static patch_place_t place_of(tower_grid_t grid, int32_t merge, int32_t patch) {
  const int32_t block = patch / (merge * merge), inside = patch % (merge * merge);
  const int32_t blocks = grid.width / merge;
  return (patch_place_t){block / blocks * merge + inside / merge,
                         block % blocks * merge + inside % merge};
}

/* Where place `index` of `size` falls in a side of the table whose ends are those of the image:
 * between *low and *low + 1, as torch.linspace(0, side - 1, size) in fp32. Returns the weight of
 * the second. */
static float resample(int32_t index, int32_t size, int32_t side, int32_t *low) {
  const float at = (float)index * (float)(side - 1) / (float)MAX(size - 1, 1);
  *low = (int32_t)at;
  return at - (float)*low;
}

/* out[d] = the table at a place, bilinear. */
static void learned_place(const tower_t *tower, tower_grid_t grid, patch_place_t place,
                          float *out) {
  const int32_t side = tower->plan.table_side, d = tower->plan.hidden;
  int32_t top, left;
  const float down = resample(place.row, grid.height, side, &top);
  const float right = resample(place.column, grid.width, side, &left);
  const int32_t bottom = MIN(top + 1, side - 1), other = MIN(left + 1, side - 1);
  const int32_t places[] = {top * side + left, top * side + other, bottom * side + left,
                            bottom * side + other};
  const float weights[] = {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right),
                           down * right};
  for (int32_t i = 0; i < d; i++) {
    float sum = 0;
    for (int tap = 0; tap < 4; tap++)
      sum += tower->table[(int64_t)places[tap] * d + i] * weights[tap];
    out[i] = sum;
  }
}

/* The angles of a patch: those of its row, then those of its column. */
static void turn(const tower_t *tower, patch_place_t place, float *cosine, float *sine) {
  const int32_t quarter = tower->plan.hidden / tower->plan.num_heads / 4;
  for (int32_t i = 0; i < 2 * quarter; i++) {
    const int32_t position = i < quarter ? place.row : place.column;
    const float angle = (float)position * tower->inv_freq[i % quarter];
    cosine[i] = cosf(angle);
    sine[i] = sinf(angle);
  }
}

/* Puts the blocks of a window side by side: windows row by row, and so the blocks of each. The
 * image has its first block at `first`. */
static void sort_blocks(tower_t *tower, tower_grid_t grid, int32_t first) {
  const tower_plan_t *plan = &tower->plan;
  const int32_t rows = grid.height / plan->merge, columns = grid.width / plan->merge;
  const int32_t side = plan->window, block = plan->merge * plan->merge;
  int32_t at = first;
  for (int32_t top = 0; top < rows; top += side) {
    for (int32_t left = 0; left < columns; left += side) {
      for (int32_t row = top; row < MIN(top + side, rows); row++) {
        for (int32_t column = left; column < MIN(left + side, columns); column++)
          tower->order[at++] = first + row * columns + column;
      }
      tower->window_starts[++tower->num_windows] = at * block;
    }
  }
}

/* Fills what depends on the sizes of the images alone. Returns their patches. */
static int32_t place_patches(tower_t *tower, const tower_grid_t *grids, int32_t num_images) {
  const tower_plan_t *plan = &tower->plan;
  const int32_t half = plan->hidden / plan->num_heads / 2;
  const int32_t block = plan->merge * plan->merge;
  int32_t patches = 0;
  tower->num_windows = 0;
  tower->image_starts[0] = 0;
  for (int32_t i = 0; i < num_images; i++) {
    const tower_grid_t grid = grids[i];
    CHECK_RANGE(grid.height, 1, TOWER_SIDE_MAX + 1);
    CHECK_RANGE(grid.width, 1, TOWER_SIDE_MAX + 1);
    CHECK_EQ(grid.height % plan->merge + grid.width % plan->merge, 0);
    CHECK_LE(grid.height * grid.width, tower->patches_max - patches);
    const int32_t first = patches;
    if (plan->window > 0) sort_blocks(tower, grid, first / block);
    for (int32_t p = 0; p < grid.height * grid.width; p++, patches++) {
      const int32_t from =
          plan->window > 0 ? tower->order[patches / block] * block + p % block - first : p;
      const patch_place_t place = place_of(grid, plan->merge, from);
      if (tower->table != NULL)
        learned_place(tower, grid, place, tower->places + (int64_t)patches * plan->hidden);
      turn(tower, place, tower->cosine + (int64_t)patches * half,
           tower->sine + (int64_t)patches * half);
    }
    tower->image_starts[i + 1] = patches;
  }
  return patches;
}

static void linear(tower_t *tower, act_t *out, const act_t *in, const tower_linear_t *layer,
                   const act_t *residual, int32_t rows) {
  tower->ops->linear(tower->device, out, in, layer->weight, layer->bias, residual, rows);
}

/* x[P, d] goes through a layer; y, qkv and up are scratch. */
static void run_layer(tower_t *tower, const tower_layer_t *layer, const tower_segments_t *segments,
                      int32_t patches) {
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t dim = plan->hidden / plan->num_heads;
  const tower_attention_t attention = {.num_heads = plan->num_heads,
                                       .head_dim = dim,
                                       .scale = 1.0f / sqrtf((float)dim),
                                       .cosine = tower->cosine,
                                       .sine = tower->sine,
                                       .rope_parts = 1};
  act_t *inner = activation_is_gated(plan->activation) ? tower->inner : tower->up;
  ops->norm(tower->device, tower->y, tower->x, NULL, &layer->norm_1, patches);
  linear(tower, tower->qkv, tower->y, &layer->qkv, NULL, patches);
  ops->tower->attend(tower->device, tower->y, tower->qkv, &attention, segments);
  linear(tower, tower->x, tower->y, &layer->o, tower->x, patches);
  ops->norm(tower->device, tower->y, tower->x, NULL, &layer->norm_2, patches);
  linear(tower, tower->up, tower->y, &layer->up, NULL, patches);
  ops->activation(tower->device, inner, tower->up, plan->activation, plan->mlp_width, patches);
  linear(tower, tower->x, inner, &layer->down, tower->x, patches);
}

/* out[P / m^2, h] in host memory = what a merger makes of x[P, d]. */
static void merge(tower_t *tower, const tower_merger_t *merger, int32_t patches, float *out) {
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t block = plan->merge * plan->merge, rows = patches / block;
  const int32_t width = block * plan->hidden;
  const int64_t values = (int64_t)patches * plan->hidden;
  ops->norm(tower->device, tower->y, tower->x, NULL, &merger->norm,
            (int32_t)(values / merger->norm.width));
  linear(tower, tower->up, tower->y, &merger->up, NULL, rows);
  ops->activation(tower->device, tower->up, tower->up, ACTIVATION_GELU, width, rows);
  linear(tower, tower->rows, tower->up, &merger->down, NULL, rows);
  ops->read_rows(tower->device, out, tower->rows, plan->out_size, rows);
}

/* Pixels in the order of the windows. */
static const float *sort_pixels(tower_t *tower, const float *pixels, int32_t patches) {
  const int32_t block = tower->plan.merge * tower->plan.merge;
  const size_t values = (size_t)block * (size_t)tower->plan.patch_columns;
  if (tower->plan.window == 0) return pixels;
  for (int32_t i = 0; i < patches / block; i++)
    memcpy(tower->sorted + (size_t)i * values, pixels + (size_t)tower->order[i] * values,
           values * sizeof(float));
  return tower->sorted;
}

/* Rows in the order of the input. */
static void merge_sorted(tower_t *tower, const tower_merger_t *merger, int32_t patches,
                         float *out) {
  const size_t width = (size_t)tower->plan.out_size;
  merge(tower, merger, patches, tower->merged);
  for (int32_t i = 0; i < patches / (tower->plan.merge * tower->plan.merge); i++)
    memcpy(out + (size_t)tower->order[i] * width, tower->merged + (size_t)i * width,
           width * sizeof(float));
}

void tower_run(tower_t *tower, const tower_grid_t *grids, int32_t num_images, const float *pixels,
               float *out) {
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t patches = place_patches(tower, grids, num_images);
  const int64_t plane = (int64_t)patches / (plan->merge * plan->merge) * plan->out_size;
  act_t *places = tower->table != NULL ? tower->x : NULL;
  const tower_segments_t images = {tower->image_starts, num_images};
  const tower_segments_t windows = {tower->window_starts, tower->num_windows};
  int32_t deep = 0;
  ops->write_rows(tower->device, tower->pixels, sort_pixels(tower, pixels, patches),
                  plan->patch_columns, patches);
  if (places != NULL) ops->write_rows(tower->device, places, tower->places, plan->hidden, patches);
  linear(tower, tower->x, tower->pixels, &tower->patch, places, patches);
  for (int32_t i = 0; i < plan->num_layers; i++) {
    const bool sees_all = plan->window == 0 || plan->full[i];
    run_layer(tower, &tower->layers[i], sees_all ? &images : &windows, patches);
    if (deep == plan->num_deep || plan->deep_layers[deep] != i) continue;
    merge(tower, &tower->deep[deep], patches, out + (deep + 1) * plane);
    deep++;
  }
  if (plan->window > 0)
    merge_sorted(tower, &tower->merger, patches, out);
  else
    merge(tower, &tower->merger, patches, out);
}
