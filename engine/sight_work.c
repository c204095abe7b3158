/* sight_work.c: the tower's work between steps: whose picture is next, and for how long; the
 * contract is in sight.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/sight_state.h"

#include <math.h>
#include <string.h>

/* A slice while nobody else is there: so late a new request or a cancel may be seen. */
static const double SLICE_ALONE_NS = 20e6;

static void read_pixels(void *context, int32_t first, int32_t count, float *out) {
  const look_t *look = context;
  const image_t *image = look->image;
  if (image->rows != NULL)
    sound_patches(&look->vision->sound, &image->layout, image->rows, first, count, out);
  else
    vision_rows(&look->vision->processor, &image->layout, image->views, (size_t)first,
                (size_t)count, out);
}

/* Writes a row of the tower, or adds it to the tokens in which it counts. Of silence behind a sound
 * there may be none. */
static void write_row(void *context, int32_t row, int32_t plane, const float *values) {
  const look_t *look = context;
  const vision_layout_t *layout = &look->image->layout;
  vision_tap_t taps[VISION_TAPS_MAX];
  if (look->vision->hears && (uint32_t)row >= layout->tokens) return;
  const uint32_t count = vision_taps(layout, (uint32_t)row, taps);
  const bool sums = vision_sums(layout);
  for (uint32_t i = 0; i < count; i++) {
    float *out = look->out[taps[i].token] + (size_t)plane * (size_t)look->width;
    if (!sums) memcpy(out, values, (size_t)look->width * sizeof *out);
    for (int32_t k = 0; sums && k < look->width; k++) out[k] += taps[i].weight * values[k];
  }
}

/* Writes what no row of the tower is: new lines, and zeros where rows are added up. */
static void write_rest(const sight_t *sight, const look_t *look) {
  const vision_layout_t *layout = &look->image->layout;
  const size_t bytes = (size_t)look->width * sizeof(float);
  if (sight->plan.family->names[TOWER_LINE] == NULL) return;
  const float *line = tower_line(sight->tower);
  for (uint32_t i = 0; i < layout->tokens; i++) {
    if (vision_is_line(layout, i))
      memcpy(look->out[i], line, bytes);
    else
      memset(look->out[i], 0, bytes);
  }
}

static void stop(look_t *look) {
  look->request = NULL;
  look->image = NULL;
}

void sight_leave(engine_t *engine, const request_t *request) {
  sight_t *sight = engine->sight;
  for (int i = 0; sight != NULL && i < RUNS; i++) {
    if (sight->looks[i].request != request) continue;
    image_rows_drop(sight->rows, sight->looks[i].entry);
    stop(&sight->looks[i]);
  }
}

/* The pictures that are begun, and where: places[PICTURES_BEGUN_MAX]. */
static pictures_begun_t list_begun(const engine_t *engine, int32_t *places) {
  pictures_begun_t begun = {.count = 0};
  for (int32_t i = 0; i < RUNS; i++) {
    const request_t *request = engine->sight->looks[i].request;
    if (request == NULL) continue;
    places[begun.count] = i;
    begun.groups[begun.count++] = &engine->groups[request->slot];
  }
  return begun;
}

/* The run with the least room for so many patches that is nobody's; -1 = there is none. */
static int32_t find_run(const sight_t *sight, int64_t patches) {
  int32_t found = -1;
  for (int32_t i = 0; i < RUNS; i++)
    if (sight->looks[i].request == NULL && sight->looks[i].patches_max >= patches) found = i;
  return found;
}

static int64_t most_room(const sight_t *sight) {
  int64_t most = 0;
  for (int i = 0; i < RUNS; i++)
    if (sight->looks[i].request == NULL) most = MAX(most, sight->looks[i].patches_max);
  return most;
}

/* Begins the next picture, if there is one and room for its patches and rows. */
static bool begin(engine_t *engine) {
  sight_t *sight = engine->sight;
  scheduler_t *scheduler = engine->scheduler;
  const image_t *image = NULL;
  int32_t places[PICTURES_BEGUN_MAX];
  const pictures_begun_t begun = list_begun(engine, places);
  const group_t *group =
      begun.count < RUNS ? pictures_next(scheduler, &begun, most_room(sight), &image) : NULL;
  if (group == NULL) return false;
  const vision_layout_t *layout = &image->layout;
  const int32_t run = find_run(sight, (int64_t)vision_row_count(layout));
  look_t *look = &sight->looks[run];
  pictures_mark(scheduler);
  look->entry = image_rows_take(sight->rows, group->request, image, look->out);
  if (look->entry == 0) return false;
  look->request = group->request;
  look->image = image;
  look->charged = 0;
  const tower_grid_t grid = {(int32_t)layout->grid_height, (int32_t)layout->grid_width,
                             (int32_t)layout->short_rows};
  for (uint32_t i = 0; i < layout->views; i++) look->grids[i] = grid;
  tower_choose(sight->tower, run);
  write_rest(sight, look);
  tower_begin(sight->tower, look->grids, (int32_t)layout->views, read_pixels, write_row, look);
  engine->stats.images_seen++;
  return true;
}

double sight_slice_ns(const engine_t *engine) {
  const scheduler_t *scheduler = engine->scheduler;
  const pace_options_t *pace = &scheduler->options.pace;
  if (scheduler->running.count + scheduler->waiting.queue.count <= 1) return SLICE_ALONE_NS;
  if (scheduler->options.fair_share && pace->client_ns > 0) return pace->client_ns;
  return pace->step_ns > 0 ? pace->step_ns / 2 : SLICE_ALONE_NS;
}

double sight_rate(double work_per_ns, int64_t work, double ns) {
  return fmin(fmax((double)work / ns, work_per_ns / 2), work_per_ns * 2);
}

void sight_charge(engine_t *engine, const request_t *request, double tokens, bool is_complete,
                  int64_t *charged) {
  const int64_t due = (int64_t)(is_complete ? ceil(tokens) : tokens) - *charged;
  waiting_charge(&engine->scheduler->waiting, &engine->groups[request->slot], (int32_t)due);
  *charged += due;
}

/* A slice of a run. */
static void go_on(engine_t *engine, int32_t run) {
  sight_t *sight = engine->sight;
  look_t *look = &sight->looks[run];
  const int64_t work = (int64_t)(sight_slice_ns(engine) * sight->work_per_ns);
  const uint64_t before_ns = clock_now_ns();
  tower_choose(sight->tower, run);
  const bool is_complete = tower_advance(sight->tower, work);
  const double ns = (double)(clock_now_ns() - before_ns);
  scheduler_note_tower(engine->scheduler, &engine->groups[look->request->slot], ns);
  engine->stats.tower_ns += (uint64_t)ns;
  sight_charge(engine, look->request, (double)tower_work_done(sight->tower) / sight->token_work,
               is_complete, &look->charged);
  /* A part that was cut short says little; one that took long says that it is to be shorter. */
  if (!is_complete && ns > 0) sight->work_per_ns = sight_rate(sight->work_per_ns, work, ns);
  if (!is_complete) return;
  image_rows_fill(sight->rows, look->entry);
  stop(look);
}

bool sight_work(engine_t *engine) {
  int32_t places[PICTURES_BEGUN_MAX];
  if (engine->sight == NULL) return false;
  while (begin(engine)) {
  }
  const pictures_begun_t begun = list_begun(engine, places);
  const int32_t turn = pictures_turn(engine->scheduler, &begun);
  if (turn < 0) return false;
  go_on(engine, places[turn]);
  return true;
}
