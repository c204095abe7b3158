/* tower.c: one forward for every family of towers: patches -> rows of a text model's width.
 *
 * Op calls on the engine thread, between two steps; what differs between families is in the plan.
 * A run is made of parts of few patches each, so that steps and other runs go between them:
 * whatever is not read by attention exists for the patches of one part only. Nothing is allocated
 * behind tower_prepare.
 * Patches stand in blocks of m x m, the blocks and the patches of a block row by row, so the values
 * of a block lie side by side. Behind the blocks of an image stands one more where the family has a
 * class: its first row is that, the others are rows that nothing reads.
 */
#include "engine/base/check.h"
#include "engine/base/patch_place.h"
#include "engine/base/util.h"
#include "engine/model/towers/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Patches of a part: the most; those that rows of weights are worth reading for. */
enum { PART_PATCHES = 256, PART_PATCHES_MIN = 8 };

static bool has_class(const tower_plan_t *plan) {
  return plan->family->names[TOWER_CLASS] != NULL;
}

static bool hears(const tower_plan_t *plan) {
  return plan->bands > 0;
}

/* Whether two convolutions over time make the positions of a sound. */
static bool has_taps(const tower_plan_t *plan) {
  return hears(plan) && !tower_has_chunks(plan);
}

/* Rows of x for so many patches; with a class an image is as large as the table. */
static int64_t rows_most(const tower_plan_t *plan, int64_t patches) {
  if (hears(plan)) return DIV_UP(patches, tower_block(plan)) * tower_block(plan);
  if (!has_class(plan)) return patches;
  return patches +
         DIV_UP(patches, (int64_t)plan->table_side * plan->table_side) * tower_block(plan);
}

/* Whole blocks. */
static int32_t part_most(const tower_plan_t *plan) {
  return MAX(PART_PATCHES / tower_block(plan), 1) * tower_block(plan);
}

/* ---- sizes ---- */

/* Multiplications of a patch before the layers. Of a sound the second convolution reads three rows
 * of the first one, which are made for it alone. */
static int64_t patch_work(const tower_plan_t *plan) {
  const int64_t d = plan->hidden;
  if (tower_has_chunks(plan)) return chunk_work(plan);
  return has_taps(plan) ? TAPS * TAPS * plan->bands * d + TAPS * d * d : plan->patch_columns * d;
}

/* Numbers of a patch on the device before the layers. */
static int64_t patch_values(const tower_plan_t *plan) {
  return has_taps(plan) ? (int64_t)TAPS * TAPS * plan->bands : plan->patch_columns;
}

/* Multiplications for a patch of what every layer does, without attention. */
static int64_t layer_work(const tower_plan_t *plan) {
  const int64_t d = plan->hidden, f = plan->mlp_width;
  return 4 * d * d + (activation_is_gated(plan->activation) ? 3 : 2) * d * f;
}

static int64_t merge_work(const tower_plan_t *plan) { /* for a block */
  const tower_family_t *family = plan->family;
  const int64_t d = plan->hidden, u = plan->merge_width, block = tower_block(plan) * d;
  const bool mixes = family->names[TOWER_MERGE_MIX] != NULL;
  const int64_t in = mixes || family->merge == MERGE_MEAN ? d : block;
  return (mixes ? block * d : 0) + (u > 0 ? u * (in + plan->out_size) : in * plan->out_size);
}

static int64_t deep_work(const tower_plan_t *plan) { /* for a block and a plane */
  const int64_t width = (int64_t)tower_block(plan) * plan->hidden;
  return width * (width + plan->out_size);
}

static int64_t all_merge_work(const tower_plan_t *plan) {
  return merge_work(plan) + plan->num_deep * deep_work(plan);
}

/* Of the buffer of MLPs, those of mergers too, for a patch of a part. */
static int64_t mlp_values(const tower_plan_t *plan) {
  const int64_t f = (activation_is_gated(plan->activation) ? 2 : 1) * (int64_t)plan->mlp_width;
  const int64_t taps = has_taps(plan) ? TAPS * (int64_t)plan->hidden : 0;
  return MAX(MAX(MAX(f, plan->hidden), taps), DIV_UP(plan->merge_width, tower_block(plan)));
}

static bool sees_all(const tower_plan_t *plan, int32_t layer) {
  return plan->window == 0 || plan->full[layer];
}

/* Of `all` patches of an image those that each sees. */
static int64_t seen_by(const tower_plan_t *plan, int32_t layer, int64_t all) {
  const int64_t side = (int64_t)plan->window * plan->merge;
  if (tower_has_chunks(plan)) return MIN(plan->stretch, all);
  return sees_all(plan, layer) ? all : MIN(side * side, all);
}

int64_t tower_work(const tower_plan_t *plan, tower_grid_t grid) {
  const int64_t P = (int64_t)grid.height * grid.width, d = plan->hidden;
  int64_t work = P * patch_work(plan);
  for (int32_t i = 0; i < plan->num_layers; i++)
    work += P * (layer_work(plan) + 2 * d * seen_by(plan, i, P));
  return work + P / tower_block(plan) * all_merge_work(plan);
}

int64_t tower_num_weights(const tower_plan_t *plan) {
  const int64_t d = plan->hidden;
  const int64_t first = tower_has_chunks(plan) ? chunk_num_weights(plan)
                        : hears(plan)          ? TAPS * (plan->bands + d) * d
                                               : plan->patch_columns * d;
  return first + plan->num_layers * layer_work(plan) + all_merge_work(plan);
}

size_t tower_run_bytes(const tower_plan_t *plan, int32_t patches_max) {
  const int64_t d = plan->hidden, half = d / plan->num_heads / 2;
  return (size_t)(rows_most(plan, patches_max) * (5 * d + 2 * half + 3)) * sizeof(float);
}

size_t tower_shared_bytes(const tower_plan_t *plan) {
  const int64_t d = plan->hidden, f = plan->mlp_width, h = plan->out_size;
  const int64_t first = plan->patch_columns + 2 * patch_values(plan) + (hears(plan) ? d : 0);
  const int64_t each = first + mlp_values(plan) + f + d + 2 * h;
  const int64_t clips = plan->clips ? 2 * MAX(d, f) : 0;
  const int64_t table = tower_has_chunks(plan) ? plan->chunk : tower_places(plan);
  return (size_t)(part_most(plan) * (each + clips) + table * d) * sizeof(float) + chunk_bytes(plan);
}

/* ---- buffers ---- */

typedef struct tower_buffer {
  act_t **buffer;
  int64_t rows, width;
} tower_buffer_t;

static bool take_buffers(const tower_t *tower, const tower_buffer_t *buffers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    *buffers[i].buffer = tower->ops->buffer(tower->device, buffers[i].rows, buffers[i].width);
    if (*buffers[i].buffer == NULL) return false;
  }
  return true;
}

/* What a part needs, of whichever run. */
static bool take_shared(tower_t *tower) {
  const tower_plan_t *plan = &tower->plan;
  const int64_t part = part_most(plan), wide = plan->mlp_width;
  const int64_t taps = has_taps(plan) ? TAPS : 1, columns = patch_values(plan) / taps;
  const tower_buffer_t buffers[] = {
      {&tower->pixels, taps * part, columns},
      {&tower->up, part, mlp_values(plan)},
      {&tower->inner, part, activation_is_gated(plan->activation) ? wide : 1},
      {&tower->rows, part / tower_block(plan), plan->out_size},
      {&tower->clip_in, plan->clips ? part : 1, MAX(wide, plan->hidden)},
      {&tower->clip_out, plan->clips ? part : 1, MAX(wide, plan->hidden)}};
  tower->places = calloc((size_t)part * 2, (size_t)plan->hidden * sizeof(float));
  tower->host_pixels =
      calloc((size_t)part, (size_t)(plan->patch_columns + patch_values(plan)) * sizeof(float));
  tower->merged = calloc((size_t)part, (size_t)plan->out_size * sizeof(float));
  return tower->places != NULL && tower->host_pixels != NULL && tower->merged != NULL &&
         chunk_take(tower) && take_buffers(tower, buffers, ARRAY_LEN(buffers));
}

static bool take_run(const tower_t *tower, tower_run_t *run, int32_t patches) {
  const tower_plan_t *plan = &tower->plan;
  const int64_t rows = rows_most(plan, patches), d = plan->hidden;
  const size_t P = (size_t)rows, blocks = P / (size_t)tower_block(plan);
  const size_t half = (size_t)(d / plan->num_heads / 2);
  const tower_buffer_t buffers[] = {
      {&run->x, rows, d}, {&run->y, rows, d}, {&run->qkv, rows, 3 * d}};
  run->patches_max = patches;
  run->cosine = calloc(plan->theta > 0 ? P : 1, half * sizeof(float));
  run->sine = calloc(plan->theta > 0 ? P : 1, half * sizeof(float));
  run->image_starts = calloc(blocks + 1, sizeof(int32_t));
  run->window_starts = calloc(blocks + 1, sizeof(int32_t));
  run->order = calloc(blocks, sizeof(int32_t));
  return run->cosine != NULL && run->sine != NULL && run->image_starts != NULL &&
         run->window_starts != NULL && run->order != NULL &&
         take_buffers(tower, buffers, ARRAY_LEN(buffers));
}

int tower_prepare(tower_t *tower, const int32_t *patches_max, int32_t num_runs,
                  inferd_error_t *error) {
  const tower_plan_t *plan = &tower->plan;
  CHECK_RANGE(num_runs, 1, TOWER_RUNS_MAX + 1);
  tower->run = tower->runs;
  bool fits = take_shared(tower);
  for (int32_t i = 0; i < num_runs && fits; i++) {
    CHECK_GE(patches_max[i], tower_block(plan));
    if (!hears(plan)) CHECK_EQ(patches_max[i] % tower_block(plan), 0);
    fits = take_run(tower, &tower->runs[i], patches_max[i]);
  }
  if (!fits)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for images of %d patches",
                     patches_max[0]);
  return tower->ops->tower->prepare(tower->device, plan->hidden / plan->num_heads, error);
}

/* ---- where patches are ---- */

/* Where place `index` of `size` falls in a side of the table whose ends are those of the image:
 * between *low and *low + 1, as torch.linspace(0, side - 1, size) in fp32. Returns the weight of
 * the second. */
static float resample(int32_t index, int32_t size, int32_t side, int32_t *low) {
  const float at = (float)index * (float)(side - 1) / (float)MAX(size - 1, 1);
  *low = (int32_t)at;
  return at - (float)*low;
}

/* out[d] = the table at a place, bilinear. */
static void resampled_place(const tower_t *tower, tower_grid_t grid, patch_place_t place,
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

/* The part of a side of the table in which place `index` of `size` begins, in fp32 as
 * torch.bucketize finds it among the multiples of 1 / side. */
static int32_t part_of_side(int32_t index, int32_t size, int32_t side) {
  const float at = fminf((float)index * (1.0f / (float)size), (float)(1.0 - 1e-6));
  const double step = 1.0 / side;
  int32_t part = 0;
  while (part < side - 1 && (float)(step + part * step) <= at) part++;
  return part;
}

/* out[d] = what is learned of a place. */
static void learned_place(const tower_t *tower, tower_grid_t grid, patch_place_t place,
                          float *out) {
  const tower_plan_t *plan = &tower->plan;
  const int32_t side = plan->table_side, d = plan->hidden;
  if (plan->table == TABLE_RESAMPLED) {
    resampled_place(tower, grid, place, out);
    return;
  }
  if (plan->table == TABLE_OF_PARTS) {
    place.row = part_of_side(place.row, grid.height, side);
    place.column = part_of_side(place.column, grid.width, side);
  }
  if (plan->table == TABLE_OF_AXES) {
    const float *column = tower->table + (int64_t)place.column * d;
    const float *row = tower->table + (int64_t)(side + place.row) * d;
    for (int32_t i = 0; i < d; i++) out[i] = column[i] + row[i];
    return;
  }
  const int64_t at = has_class(plan) + (int64_t)place.row * side + place.column;
  memcpy(out, tower->table + at * d, (size_t)d * sizeof *out);
}

/* The angles of a patch: those of its row, then those of its column, or the reverse. */
static void turn(const tower_t *tower, patch_place_t place, float *cosine, float *sine) {
  const int32_t quarter = tower->plan.hidden / tower->plan.num_heads / 4;
  for (int32_t i = 0; i < 2 * quarter; i++) {
    const bool is_row = (i < quarter) != tower->plan.rope_halves;
    const int32_t position = is_row ? place.row : place.column;
    const float angle = (float)position * tower->inv_freq[i];
    cosine[i] = cosf(angle);
    sine[i] = sinf(angle);
  }
}

/* Puts the blocks of a window side by side: windows row by row, and so the blocks of each. The
 * image has its first block at `first`. */
static void sort_blocks(tower_t *tower, tower_grid_t grid, int32_t first) {
  tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const int32_t rows = grid.height / plan->merge, columns = grid.width / plan->merge;
  const int32_t side = plan->window, block = tower_block(plan);
  int32_t at = first;
  for (int32_t top = 0; top < rows; top += side) {
    for (int32_t left = 0; left < columns; left += side) {
      for (int32_t row = top; row < MIN(top + side, rows); row++) {
        for (int32_t column = left; column < MIN(left + side, columns); column++)
          run->order[at++] = first + row * columns + column;
      }
      run->window_starts[++run->num_windows] = at * block;
    }
  }
}

/* The block of a class, which is seen by its image, and rows that nobody sees. */
static void add_class(tower_t *tower, int32_t first) {
  tower_run_t *run = tower->run;
  const int32_t block = tower_block(&tower->plan);
  run->order[first] = -1;
  run->window_starts[++run->num_windows] = first * block + 1;
  if (block > 1) run->window_starts[++run->num_windows] = (first + 1) * block;
}

/* The blocks of a sound of `count` positions, of which the last one may lack some. Returns how many
 * there are. */
static int32_t add_line(tower_t *tower, int32_t count, int32_t first) {
  tower_run_t *run = tower->run;
  const int32_t block = tower_block(&tower->plan), whole = count / block;
  const int32_t blocks = DIV_UP(count, block);
  const int32_t stretch = tower->plan.stretch, side = tower->plan.table_side;
  CHECK_RANGE(count, 1, (side > 0 ? side : TOWER_SIDE_MAX) + 1);
  CHECK_EQ(run->merged, first * block);
  for (int32_t b = 0; b < blocks; b++) run->order[first + b] = first + b;
  for (int32_t at = stretch; stretch > 0 && at < count; at += stretch)
    run->window_starts[++run->num_windows] = first * block + at;
  run->window_starts[++run->num_windows] = first * block + count;
  if (whole < blocks) run->window_starts[++run->num_windows] = (first + blocks) * block;
  run->merged += whole * block;
  return blocks;
}

/* Sorts the blocks of the images. Returns the rows of x. */
static int32_t lay_out(tower_t *tower, const tower_grid_t *grids, int32_t num_images) {
  tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const int32_t block = tower_block(plan), side = plan->table_side;
  int32_t blocks = 0, source = 0; /* of x, of the input */
  run->num_windows = 0;
  run->image_starts[0] = run->merged = 0;
  for (int32_t i = 0; i < num_images; i++) {
    const tower_grid_t grid = grids[i];
    CHECK_RANGE(grid.height, 1, TOWER_SIDE_MAX + 1);
    CHECK_RANGE(grid.width, 1, TOWER_SIDE_MAX + 1);
    if (hears(plan)) {
      CHECK_EQ(grid.height, 1);
      blocks += add_line(tower, grid.width, blocks);
      CHECK_LE(blocks * block, rows_most(plan, run->patches_max));
      run->image_starts[i + 1] = blocks * block;
      continue;
    }
    CHECK_EQ(grid.height % plan->merge + grid.width % plan->merge, 0);
    if (side > 0 && plan->table == TABLE_OF_IMAGE) CHECK(grid.height == side && grid.width == side);
    if (plan->table == TABLE_OF_AXES) CHECK(grid.height <= side && grid.width <= side);
    CHECK_LE(grid.height * grid.width, run->patches_max - source * block);
    const int32_t own = grid.height * grid.width / block;
    if (plan->window > 0) sort_blocks(tower, grid, blocks);
    for (int32_t b = 0; plan->window == 0 && b < own; b++) run->order[blocks + b] = source + b;
    blocks += own;
    source += own;
    if (has_class(plan)) add_class(tower, blocks++);
    run->image_starts[i + 1] = blocks * block;
  }
  return blocks * block;
}

/* ---- parts ---- */

static act_t *from(tower_t *tower, act_t *act, int64_t patch, int64_t width) {
  return tower->ops->tower->rows(act, patch * width);
}

static void linear(tower_t *tower, act_t *out, const act_t *in, const tower_linear_t *layer,
                   const act_t *residual, int32_t rows) {
  tower->ops->linear(tower->device, out, in, layer->weight, layer->bias, residual, rows);
}

/* The same, within its bounds, into the columns of `out`. */
static void clipped(tower_t *tower, act_t *out, tower_columns_t columns, const act_t *in,
                    int32_t in_width, const tower_linear_t *layer, int32_t rows) {
  const tower_ops_t *ops = tower->ops->tower;
  const tower_columns_t all = {0, in_width, in_width};
  ops->clip(tower->device, tower->clip_in, &all, in, layer->in_least, layer->in_most, rows);
  linear(tower, tower->clip_out, tower->clip_in, layer, NULL, rows);
  ops->clip(tower->device, out, &columns, tower->clip_out, layer->out_least, layer->out_most, rows);
}

/* out[rows, width] = a matrix of a layer, without a residual. */
static void project(tower_t *tower, act_t *out, int32_t width, const act_t *in, int32_t in_width,
                    const tower_linear_t *layer, int32_t rows) {
  if (tower->plan.clips)
    clipped(tower, out, (tower_columns_t){0, width, width}, in, in_width, layer, rows);
  else
    linear(tower, out, in, layer, NULL, rows);
}

/* out[rows, count * width] = matrices side by side: one, or with bounds those of `split`. */
static void project_all(tower_t *tower, act_t *out, int32_t width, const act_t *in,
                        const tower_linear_t *stack, const tower_linear_t *split, int32_t count,
                        int32_t rows) {
  if (!tower->plan.clips) {
    linear(tower, out, in, stack, NULL, rows);
    return;
  }
  for (int32_t i = 0; i < count; i++)
    clipped(tower, out, (tower_columns_t){i * width, width, count * width}, in, tower->plan.hidden,
            &split[i], rows);
}

/* The place of a position of a sound in the table. */
static int32_t line_place(const tower_plan_t *plan, int32_t position) {
  if (tower_has_chunks(plan)) return position % plan->chunk;
  return plan->table_side > 0 ? MIN(position, plan->table_side - 1) : position;
}

/* Reads the pixels of row `row` of x, a patch of the image `run->image`, and what is known of its
 * place, as row `at` of a part. */
static void read_patch(tower_t *tower, int32_t row, int32_t at) {
  const tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const int32_t block = tower_block(plan), half = plan->hidden / plan->num_heads / 2;
  const tower_grid_t grid = run->grids[run->image];
  const int32_t first = run->image_patch;
  const int32_t source = run->order[row / block] * block + row % block;
  const patch_place_t place = hears(plan) ? (patch_place_t){0, line_place(plan, source - first)}
                                          : patch_place(grid.width, plan->merge, source - first);
  float *pixels = tower->host_pixels + (int64_t)at * plan->patch_columns;
  if (hears(plan) && source - first >= grid.width) /* what a block lacks, which nobody sees */
    memset(pixels, 0, (size_t)plan->patch_columns * sizeof *pixels);
  else if (hears(plan))
    run->read(run->context, source, 1, pixels);
  else if (plan->raster)
    run->read(run->context, first + place.row * grid.width + place.column, 1, pixels);
  else if (row % block == 0)
    run->read(run->context, source, block, pixels);
  if (tower->table != NULL)
    learned_place(tower, grid, place, tower->places + (int64_t)at * plan->hidden);
  if (plan->theta > 0)
    turn(tower, place, run->cosine + (int64_t)row * half, run->sine + (int64_t)row * half);
}

/* out[count, d] += what is learned of the places. */
static void add_places(tower_t *tower, act_t *out, int32_t count) {
  const int32_t d = tower->plan.hidden;
  const float *places = tower->places;
  float *made = tower->places + (int64_t)part_most(&tower->plan) * d;
  tower->ops->read_rows(tower->device, made, out, d, count);
  for (int64_t i = 0; i < (int64_t)count * d; i++) made[i] += places[i];
  tower->ops->write_rows(tower->device, out, made, d, count);
}

/* out = the first positions of a chunk, as many as the sound has in it. */
static void run_chunk(tower_t *tower, act_t *out, int32_t count) {
  const tower_plan_t *plan = &tower->plan;
  const int64_t columns = plan->patch_columns;
  memset(tower->host_pixels + count * columns, 0,
         (size_t)((plan->chunk - count) * columns) * sizeof(float));
  const int32_t rows = tower->run->grids[tower->run->image].rows;
  chunk_run(tower, out, tower->host_pixels, rows > 0 ? rows : TOWER_CHUNK_ROWS, count);
  add_places(tower, out, count);
}

/* out = the positions of sounds behind the two convolutions, with what is learned of their places.
 * Between the convolutions the row before the first one is nothing. */
static void run_spectrum(tower_t *tower, act_t *out, int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t d = plan->hidden, columns = TAPS * plan->bands;
  const float *rows = tower->host_pixels;
  float *taps = tower->host_pixels + (int64_t)part_most(plan) * plan->patch_columns;
  float *made = tower->places + (int64_t)part_most(plan) * d;
  for (int32_t i = 0; i < TAPS * count; i++)
    memcpy(taps + (int64_t)i * columns,
           rows + (int64_t)(i / TAPS) * plan->patch_columns + i % TAPS * plan->bands,
           (size_t)columns * sizeof *taps);
  ops->write_rows(tower->device, tower->pixels, taps, columns, TAPS * count);
  linear(tower, tower->up, tower->pixels, &tower->patch, NULL, TAPS * count);
  ops->activation(tower->device, tower->up, tower->up, ACTIVATION_GELU, d, TAPS * count);
  memset(made, 0, (size_t)d * sizeof *made);
  for (int32_t image = 0; image < run->num_images; image++) {
    const int32_t at = run->image_starts[image] - first;
    if (at >= 0 && at < count)
      ops->write_rows(tower->device, from(tower, tower->up, TAPS * at, d), made, d, 1);
  }
  linear(tower, out, tower->up, &tower->conv, NULL, count);
  ops->activation(tower->device, out, out, ACTIVATION_GELU, d, count);
  if (tower->table != NULL) add_places(tower, out, count);
}

/* x = the patches of the images, with their learned positions. The places of all layers, too. */
static void run_patches(tower_t *tower, int32_t first, int32_t count) {
  tower_run_t *run = tower->run;
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t block = tower_block(plan), d = plan->hidden;
  act_t *x = from(tower, run->x, first, d);
  act_t *places = tower->table != NULL ? x : NULL;
  for (int32_t p = first; p < first + count; p++) {
    while (p >= run->image_starts[run->image + 1]) {
      const tower_grid_t passed = run->grids[run->image++];
      run->image_patch += passed.height * passed.width;
    }
    if (run->order[p / block] >= 0) read_patch(tower, p, p - first);
  }
  if (tower_has_chunks(plan)) {
    run_chunk(tower, x, count);
    return;
  }
  if (hears(plan)) {
    run_spectrum(tower, x, first, count);
    return;
  }
  for (int64_t i = 0; plan->family->centres && i < (int64_t)count * plan->patch_columns; i++)
    tower->host_pixels[i] = 2 * (tower->host_pixels[i] - 0.5f);
  ops->write_rows(tower->device, tower->pixels, tower->host_pixels, plan->patch_columns, count);
  if (places != NULL) ops->write_rows(tower->device, places, tower->places, d, count);
  linear(tower, x, tower->pixels, &tower->patch, places, count);
  for (int32_t p = first; p < first + count; p += block) {
    if (run->order[p / block] < 0)
      ops->write_rows(tower->device, from(tower, run->x, p, d), tower->own, d, 1);
  }
  if (tower->pre_norm.width > 0) ops->norm(tower->device, x, x, NULL, &tower->pre_norm, count);
}

/* qkv = what the patches of x ask and are asked for. */
static void run_qkv(tower_t *tower, const tower_layer_t *layer, int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const int32_t d = tower->plan.hidden;
  act_t *y = from(tower, run->y, first, d);
  tower->ops->norm(tower->device, y, from(tower, run->x, first, d), NULL, &layer->norm_1, count);
  project_all(tower, from(tower, run->qkv, first, 3 * (int64_t)d), d, y, &layer->qkv,
              &layer->split[SPLIT_Q], 3, count);
}

/* y = what the patches see. */
static void run_attention(tower_t *tower, int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const int32_t dim = plan->hidden / plan->num_heads;
  const tower_layer_t *layer = &tower->layers[run->layer];
  const tower_attention_t attention = {.num_heads = plan->num_heads,
                                       .head_dim = dim,
                                       .scale = plan->family->unscaled ? 1 : 1 / sqrtf((float)dim),
                                       .q_norm = layer->q_norm,
                                       .k_norm = layer->k_norm,
                                       .norm_eps = plan->norm_eps,
                                       .cosine = plan->theta > 0 ? run->cosine : NULL,
                                       .sine = run->sine,
                                       .rope_parts = plan->rope_halves ? 2 : 1,
                                       .rounds = tower->dtype == DTYPE_BF16,
                                       .first_row = first,
                                       .end_row = first + count};
  const tower_segments_t images = {run->image_starts, run->num_images};
  const tower_segments_t windows = {run->window_starts, run->num_windows};
  const bool whole = sees_all(plan, run->layer) && !has_class(plan) && !hears(plan);
  tower->ops->tower->attend(tower->device, run->y, run->qkv, &attention,
                            whole ? &images : &windows);
}

/* x goes through the rest of a layer. */
static void run_mlp(tower_t *tower, const tower_layer_t *layer, int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  act_t *x = from(tower, run->x, first, plan->hidden);
  act_t *y = from(tower, run->y, first, plan->hidden);
  const int32_t d = plan->hidden, f = plan->mlp_width;
  act_t *inner = activation_is_gated(plan->activation) ? tower->inner : tower->up;
  if (layer->out_norm_1.width > 0) {
    project(tower, tower->up, d, y, d, &layer->o, count);
    ops->norm(tower->device, x, tower->up, x, &layer->out_norm_1, count);
  } else {
    linear(tower, x, y, &layer->o, x, count);
  }
  ops->norm(tower->device, y, x, NULL, &layer->norm_2, count);
  project_all(tower, tower->up, f, y, &layer->up, &layer->split[SPLIT_GATE], 2, count);
  ops->activation(tower->device, inner, tower->up, plan->activation, f, count);
  if (layer->out_norm_2.width > 0) {
    project(tower, y, d, inner, f, &layer->down, count);
    ops->norm(tower->device, x, y, x, &layer->out_norm_2, count);
  } else {
    linear(tower, x, inner, &layer->down, x, count);
  }
}

/* What a family makes of the mean of a block. */
static void change_mean(const tower_t *tower, float *row) {
  const int32_t d = tower->plan.hidden;
  const float factor = tower->plan.family->mean_grows ? (float)sqrt(d) : 1;
  for (int32_t i = 0; i < d; i++) row[i] *= factor;
  for (int32_t i = 0; tower->mean_scale != NULL && i < d; i++)
    row[i] = (row[i] - tower->mean_bias[i]) * tower->mean_scale[i];
}

/* out[count / m^2, d] = the means of blocks of in[count, d]. */
static void average(tower_t *tower, act_t *out, const act_t *in, int32_t count) {
  const ops_t *ops = tower->ops;
  const int32_t d = tower->plan.hidden, block = tower_block(&tower->plan);
  float *rows = tower->places;
  ops->read_rows(tower->device, rows, in, d, count);
  for (int32_t row = 0; row < count / block; row++) {
    for (int32_t i = 0; i < d; i++) {
      float sum = 0;
      for (int32_t k = 0; k < block; k++) sum += rows[((int64_t)row * block + k) * d + i];
      rows[(int64_t)row * d + i] = sum / (float)block;
    }
    change_mean(tower, rows + (int64_t)row * d);
  }
  ops->write_rows(tower->device, out, rows, d, count / block);
}

/* What a merger's MLP or matrix reads of x. Overwrites y, and with a mix x, which nobody reads
 * afterwards. */
static act_t *gather_blocks(tower_t *tower, const tower_merger_t *merger, tower_merge_t rule,
                            int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const ops_t *ops = tower->ops;
  device_t *device = tower->device;
  const int32_t d = tower->plan.hidden, rows = count / tower_block(&tower->plan);
  act_t *x = from(tower, run->x, first, d), *y = from(tower, run->y, first, d), *in = x;
  if (merger == &tower->merger && tower->post_norm.width > 0) {
    ops->norm(device, y, in, NULL, &tower->post_norm, count);
    in = y;
  }
  if (rule == MERGE_MEAN) {
    average(tower, y, in, count);
    in = y;
  }
  if (merger->norm.width > 0) {
    const int64_t values = (int64_t)(rule == MERGE_MEAN ? rows : count) * d;
    ops->norm(device, y, in, NULL, &merger->norm, (int32_t)(values / merger->norm.width));
    in = y;
  }
  if (merger->mix.weight == NULL) return in;
  act_t *mixed = in == x ? y : x;
  linear(tower, mixed, in, &merger->mix, NULL, rows);
  return mixed;
}

/* Plane `plane` of the rows that a merger makes of x. */
static void run_merger(tower_t *tower, const tower_merger_t *merger, int32_t plane, int32_t first,
                       int32_t count) {
  const tower_run_t *run = tower->run;
  const ops_t *ops = tower->ops;
  const tower_plan_t *plan = &tower->plan;
  const int32_t block = tower_block(plan), rows = count / block;
  const int32_t width = plane == 0 ? plan->merge_width : block * plan->hidden;
  act_t *in =
      gather_blocks(tower, merger, plane == 0 ? plan->family->merge : MERGE_NORM_ALL, first, count);
  if (merger->up.weight != NULL) {
    linear(tower, tower->up, in, &merger->up, NULL, rows);
    ops->activation(tower->device, tower->up, tower->up, ACTIVATION_GELU, width, rows);
    in = tower->up;
  }
  linear(tower, tower->rows, in, &merger->down, NULL, rows);
  ops->read_rows(tower->device, tower->merged, tower->rows, plan->out_size, rows);
  for (int32_t i = 0; i < rows; i++) {
    const int32_t place = run->order[first / block + i];
    if (place >= 0)
      run->write(run->context, place, plane, tower->merged + (int64_t)i * plan->out_size);
  }
}

/* ---- a run ---- */

void tower_choose(tower_t *tower, int32_t run) {
  CHECK_RANGE(run, 0, TOWER_RUNS_MAX);
  tower->run = &tower->runs[run];
  CHECK(tower->run->x != NULL);
}

void tower_begin(tower_t *tower, const tower_grid_t *grids, int32_t num_images,
                 tower_pixels_t *read, tower_write_t *write, void *context) {
  tower_run_t *run = tower->run;
  run->patches = lay_out(tower, grids, num_images);
  if (!hears(&tower->plan)) run->merged = run->patches;
  run->grids = grids;
  run->num_images = num_images;
  run->read = read;
  run->write = write;
  run->context = context;
  run->phase = PHASE_PATCHES;
  run->image = run->image_patch = run->layer = run->num_deep = run->patch_done = 0;
  run->work_done = 0;
}

/* Multiplications of a patch in the phase that is next. */
static int64_t phase_work(const tower_t *tower) {
  const tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const int64_t d = plan->hidden;
  switch (run->phase) {
  case PHASE_PATCHES: return patch_work(plan);
  case PHASE_QKV: return 3 * d * d;
  case PHASE_ATTENTION:
    return 2 * d * seen_by(plan, run->layer, MAX(run->patches / run->num_images, 1));
  case PHASE_MLP: return layer_work(plan) - 3 * d * d;
  case PHASE_DEEP: return deep_work(plan) / tower_block(plan);
  default: return merge_work(plan) / tower_block(plan);
  }
}

static void run_phase(tower_t *tower, int32_t first, int32_t count) {
  const tower_run_t *run = tower->run;
  const tower_layer_t *layer = &tower->layers[run->layer];
  switch (run->phase) {
  case PHASE_PATCHES: run_patches(tower, first, count); return;
  case PHASE_QKV: run_qkv(tower, layer, first, count); return;
  case PHASE_ATTENTION: run_attention(tower, first, count); return;
  case PHASE_MLP: run_mlp(tower, layer, first, count); return;
  case PHASE_DEEP:
    run_merger(tower, &tower->deep[run->num_deep], 1 + run->num_deep, first, count);
    return;
  default: run_merger(tower, &tower->merger, 0, first, count);
  }
}

/* What follows a phase that all patches have gone through. */
static tower_phase_t phase_behind(tower_t *tower) {
  tower_run_t *run = tower->run;
  const tower_plan_t *plan = &tower->plan;
  const bool is_deep =
      run->num_deep < plan->num_deep && plan->deep_layers[run->num_deep] == run->layer;
  switch (run->phase) {
  case PHASE_PATCHES: return PHASE_QKV;
  case PHASE_QKV: return PHASE_ATTENTION;
  case PHASE_ATTENTION: return PHASE_MLP;
  case PHASE_MLP:
    if (is_deep) return PHASE_DEEP;
    break;
  case PHASE_DEEP: run->num_deep++; break;
  default: return PHASE_DONE;
  }
  return ++run->layer < plan->num_layers ? PHASE_QKV : PHASE_MERGE;
}

/* Positions up to the end of the chunk that is next. */
static int32_t left_of_chunk(const tower_t *tower) {
  const tower_run_t *run = tower->run;
  const int32_t chunk = tower->plan.chunk;
  int32_t image = 0;
  while (run->patch_done >= run->image_starts[image + 1]) image++;
  const int32_t place = run->patch_done - run->image_starts[image];
  return MIN(chunk - place % chunk, run->image_starts[image + 1] - run->patch_done);
}

bool tower_advance(tower_t *tower, int64_t work) {
  tower_run_t *run = tower->run;
  const int32_t block = tower_block(&tower->plan), most = part_most(&tower->plan);
  for (bool any = false; run->phase != PHASE_DONE && (work > 0 || !any); any = true) {
    const int64_t each = MAX(phase_work(tower), 1), fits = MAX(work / each, PART_PATCHES_MIN);
    int32_t count = (int32_t)MIN(fits, most);
    const int32_t all = run->phase == PHASE_MERGE ? run->merged : run->patches;
    count = MIN(MAX(count / block, 1) * block, all - run->patch_done);
    if (run->phase == PHASE_PATCHES && tower_has_chunks(&tower->plan)) count = left_of_chunk(tower);
    if (count > 0) run_phase(tower, run->patch_done, count);
    work -= count * each;
    run->work_done += count * each;
    run->patch_done += count;
    if (run->patch_done < all) continue;
    run->patch_done = 0;
    run->phase = phase_behind(tower);
  }
  return run->phase == PHASE_DONE;
}

int64_t tower_work_done(const tower_t *tower) {
  return tower->run->work_done;
}
