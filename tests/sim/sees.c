/* sees.c: see sees.h. In place of the files of a model, and of its tower.
 *
 * A picture is a key; a row of it is (key, number), which the device reads back; of a prompt of
 * rows it is (-1, id). The tower is fake:
 * rows come one by one while it works, and the clock goes on. What sight_work.c and the scheduler
 * make of it is real. Laws: whose picture goes on, and that it is one of a live request; a client
 * has one in the tower; what is charged; at the end nothing is left.
 */
#include "tests/sim/sees.h"

#include "engine/base/util.h"
#include "engine/model/towers/family.h"
#include "engine/sight_state.h"
#include "tests/sim/fair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 32, SMALL = 16, VALUES = 2, PAGES_MIN = 4, PAGES_MAX = 8 };

/* What a run of the tower is at. */
typedef struct seen {
  const look_t *look;
  int32_t tokens;
  int64_t done, charged;
} seen_t;

static seen_t runs[RUNS], *chosen;
static image_t images[SIM_REQUESTS_MAX][SIM_IMAGES_MAX];
static prompt_rows_t prompts[SIM_REQUESTS_MAX];
static float row_values[SIM_REQUESTS_MAX][SIM_CONTEXT_MAX][VALUES];
static row_key_t row_keys[SIM_REQUESTS_MAX][SIM_CONTEXT_MAX];
static int32_t num_pages;
static double tower_ns; /* before the plan behind `tower_plan`, for a group of `tower_tenant` */
static uint64_t tower_plan;
static int32_t tower_tenant;

static bool is_on(void) {
  return !sim.torture && sim.scenario != NULL && scenario_has(sim.scenario, SIM_PICTURES);
}

/* ---- pictures ---- */

static const sim_image_t *image_at(const script_t *script, int32_t position) {
  for (int32_t i = 0; i < script->num_images; i++) {
    const sim_image_t *image = &script->images[i];
    if (position >= image->first && position < image->end) return image;
  }
  return NULL;
}

static int32_t content_of(int32_t key, int32_t row) {
  return SIM_VOCAB + key * SIM_CONTEXT_MAX + row;
}

int32_t sees_content(const script_t *script, int32_t position, int32_t id) {
  const sim_image_t *image = image_at(script, position);
  if (script->rows) return sees_row(id);
  return image == NULL ? id : content_of(image->key, position - image->first);
}

bool sees_may_be(int32_t content) {
  return content >= content_of(1, 0) && content < content_of(SIM_KEYS + 1, 0);
}

const prompt_rows_t *sees_rows(int index, const script_t *script, const int32_t *ids) {
  if (!script->rows) return NULL;
  for (int32_t i = 0; i < script->num_prompt; i++) {
    row_values[index][i][0] = -1;
    row_values[index][i][1] = (float)ids[i];
    memcpy(row_keys[index][i].bytes, &ids[i], sizeof ids[i]);
  }
  prompts[index] = (prompt_rows_t){row_values[index][0], row_keys[index], VALUES};
  return &prompts[index];
}

const image_t *sees_images(int index, const script_t *script) {
  static const uint8_t pixels[1];
  for (int32_t i = 0; i < script->num_images; i++) {
    const sim_image_t *from = &script->images[i];
    const uint32_t tokens = (uint32_t)(from->end - from->first);
    image_t *image = &images[index][i];
    *image = (image_t){.views = pixels, .first = from->first, .end = from->end};
    image->layout = (vision_layout_t){.views = 1,
                                      .grid_height = 1,
                                      .grid_width = tokens,
                                      .token_rows = 1,
                                      .token_columns = tokens,
                                      .view_tokens = tokens,
                                      .tokens = tokens};
    memset(image->key.bytes, from->key, sizeof image->key.bytes);
  }
  return images[index];
}

/* ---- eyes without files ---- */

int __real_sight_read(engine_t *engine, int32_t max_model_len, inferd_error_t *error);
int __wrap_sight_read(engine_t *engine, int32_t max_model_len, inferd_error_t *error);
int __real_sight_load(engine_t *engine, inferd_error_t *error);
int __wrap_sight_load(engine_t *engine, inferd_error_t *error);
int __real_sight_prepare(engine_t *engine, inferd_error_t *error);
int __wrap_sight_prepare(engine_t *engine, inferd_error_t *error);
uint64_t __real_tower_hash(const tower_t *tower);
uint64_t __wrap_tower_hash(const tower_t *tower);

int __wrap_sight_read(engine_t *engine, int32_t max_model_len, inferd_error_t *error) {
  if (!is_on()) return __real_sight_read(engine, max_model_len, error);
  sight_t *sight = calloc(1, sizeof *sight);
  if (sight == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  vision_processor_default(VISION_PIXTRAL, &sight->vision.processor);
  sight->vision.placeholder_id = sight->vision.mark_id = SIM_PAD;
  sight->vision.tokens_max = sight->vision.patches_max = LARGE;
  sight->plan = (tower_plan_t){.family = &tower_pixtral,
                               .hidden = 4,
                               .num_layers = 1,
                               .num_heads = 1,
                               .mlp_width = 4,
                               .patch_columns = 1,
                               .merge = 1,
                               .out_size = VALUES};
  for (int i = 0; i < RUNS; i++) sight->looks[i].patches_max = i < RUNS_LARGE ? LARGE : SMALL;
  sight->token_work = (double)sim.scenario->tower_work / 2;
  sight->work_per_ns = 5;
  engine->sight = sight;
  return 0;
}

int __wrap_sight_load(engine_t *engine, inferd_error_t *error) {
  return is_on() ? 0 : __real_sight_load(engine, error);
}

int __wrap_sight_prepare(engine_t *engine, inferd_error_t *error) {
  if (!is_on()) return __real_sight_prepare(engine, error);
  sight_t *sight = engine->sight;
  num_pages = PAGES_MIN + (int32_t)(sim.scenario->seed % (PAGES_MAX - PAGES_MIN + 1));
  for (int i = 0; i < RUNS; i++) {
    look_t *look = &sight->looks[i];
    look->vision = &sight->vision;
    look->out = calloc((size_t)look->patches_max, sizeof *look->out);
    if (look->out == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  }
  return image_rows_new((size_t)num_pages * image_rows_bytes(1, VALUES), VALUES, SIM_PAD,
                        &sight->rows, error);
}

uint64_t __wrap_tower_hash(const tower_t *tower) {
  return tower == NULL ? 1 : __real_tower_hash(tower);
}

static void take_rows(const scenario_t *c) {
  engine_t *engine = sim.engine;
  engine->rows = (prompt_rows_info_t){.width = VALUES, .scale = 1};
  engine->info.rows = &engine->rows;
  for (int i = 0; i < c->pipeline_depth; i++)
    REQUIRE(batch_embed(engine->steps[i].batch, c->options.max_num_batched_tokens) == 0,
            "no memory");
}

void sees_begin(const scenario_t *c) {
  memset(runs, 0, sizeof runs);
  chosen = NULL;
  tower_ns = 0;
  tower_plan = 0;
  if (scenario_has(c, SIM_ROWS)) take_rows(c);
  if (!is_on()) return;
  REQUIRE(sim.engine->sight != NULL, "the engine sees nothing");
  sim.engine->scheduler->pictures_whole = c->pictures_whole;
  for (int i = 0; i < c->pipeline_depth; i++) {
    batch_t *batch = sim.engine->steps[i].batch;
    free(batch->seen_room); /* whatever the model says */
    batch->seen_room = NULL;
    if (!c->pictures_whole) continue;
    batch->seen_room = calloc((size_t)c->options.max_num_batched_tokens, sizeof(int32_t));
    REQUIRE(batch->seen_room != NULL, "no memory");
  }
}

/* ---- the tower ---- */

void __wrap_tower_choose(tower_t *tower, int32_t run);
void __wrap_tower_begin(tower_t *tower, const tower_grid_t *grids, int32_t num_images,
                        tower_pixels_t *read, tower_write_t *write, void *context);
bool __wrap_tower_advance(tower_t *tower, int64_t work);
int64_t __wrap_tower_work_done(const tower_t *tower);

void __wrap_tower_choose(tower_t *tower, int32_t run) {
  (void)tower;
  chosen = &runs[run];
}

static const group_t *group_of(const look_t *look) {
  return &sim.engine->groups[look->request->slot];
}

/* A client has another picture in the tower only if that one is less urgent. */
static void check_alone(const look_t *look) {
  const look_t *all = sim.engine->sight->looks;
  for (int i = 0; i < RUNS; i++) {
    if (all[i].request == NULL || &all[i] == look) continue;
    REQUIRE(group_of(&all[i])->tenant != group_of(look)->tenant ||
                (sim.scenario->options.priority_policy &&
                 all[i].request->priority != look->request->priority),
            "requests %d and %d of a client have pictures in the tower",
            check_track_of(all[i].request)->index, check_track_of(look->request)->index);
  }
}

void __wrap_tower_begin(tower_t *tower, const tower_grid_t *grids, int32_t num_images,
                        tower_pixels_t *read, tower_write_t *write, void *context) {
  (void)tower, (void)read, (void)write;
  const look_t *look = context;
  REQUIRE(num_images == 1 && grids[0].height == 1, "a picture has other views");
  *chosen = (seen_t){.look = look, .tokens = grids[0].width};
  REQUIRE(chosen->tokens == look->image->end - look->image->first &&
              chosen->tokens <= look->patches_max,
          "a picture of %d tokens in a run of %d", chosen->tokens, look->patches_max);
  for (int32_t i = 0; i < chosen->tokens; i++) look->out[i][0] = look->out[i][1] = -1;
  check_alone(look);
}

/* Whether another one that is begun should have gone on. */
static void check_turn(const look_t *look) {
  const look_t *all = sim.engine->sight->looks;
  const engine_options_t *o = &sim.scenario->options;
  const tenant_t *tenants = sim.engine->scheduler->waiting.tenants.all;
  for (int i = 0; i < RUNS; i++) {
    if (all[i].request == NULL || &all[i] == look) continue;
    const group_t *own = group_of(look), *other = group_of(&all[i]);
    int64_t first = own->request->priority, second = other->request->priority;
    bool before = o->priority_policy && second < first;
    bool equal = !o->priority_policy || second == first;
    uint64_t served = tenants[own->tenant].served, least = tenants[other->tenant].served;
    before = before || (equal && o->fair_share && least < served);
    equal = equal && (!o->fair_share || least == served);
    before = before || (equal && other->arrival < own->arrival);
    REQUIRE(!before, "the picture of request %d goes on before that of request %d",
            check_track_of(look->request)->index, check_track_of(all[i].request)->index);
  }
}

/* The account of what the client pays, by what is done and not by how. */
static void charge(seen_t *run, bool is_complete) {
  const double tokens = (double)run->done / ((double)sim.scenario->tower_work / 2);
  const int64_t due = (int64_t)(is_complete ? ceil(tokens) : floor(tokens));
  fair_saw(check_track_of(run->look->request), due - run->charged);
  run->charged = due;
}

static void note_time(double ns) {
  const scheduler_t *s = sim.engine->scheduler;
  tower_ns = s->tower_ns + ns; /* of an iteration without a plan, too */
  tower_plan = s->pace.number;
  tower_tenant = group_of(chosen->look)->tenant;
  sim.now_ns += (uint64_t)ns;
}

bool __wrap_tower_advance(tower_t *tower, int64_t work) {
  (void)tower;
  const int64_t each = sim.scenario->tower_work, all = each * chosen->tokens;
  const track_t *k = check_track_of(chosen->look->request);
  REQUIRE(k->submitted && !k->done, "the tower works for request %d, which has ended", k->index);
  REQUIRE(!k->cancelled_iteration || k->cancelled_iteration > sim.iteration,
          "the tower works for request %d, which was cancelled", k->index);
  check_turn(chosen->look);
  const int64_t before = chosen->done;
  chosen->done = MIN(all, before + MAX(work, 1));
  for (int64_t i = before / each; i < chosen->done / each; i++) {
    chosen->look->out[i][0] = chosen->look->image->key.bytes[0];
    chosen->look->out[i][1] = (float)i;
  }
  note_time(floor((double)(chosen->done - before) / (double)sim.scenario->tower_rate));
  charge(chosen, chosen->done == all);
  return chosen->done == all;
}

int64_t __wrap_tower_work_done(const tower_t *tower) {
  (void)tower;
  return chosen->done;
}

double sees_tower_ns(const scheduler_t *s, int32_t tenant) {
  if (tower_plan + 1 != s->pace.number || (tenant >= 0 && tenant != tower_tenant)) return 0;
  return tower_ns;
}

/* ---- a step ---- */

static int32_t find_row(const batch_t *b, int32_t token) {
  for (int32_t i = 0; i < b->num_embedded && b->embedded_tokens[i] <= token; i++)
    if (b->embedded_tokens[i] == token) return i;
  return -1;
}

int32_t sees_read(const batch_t *b, int32_t token, int32_t id) {
  const int32_t at = find_row(b, token);
  if (at < 0) return id;
  const float *row = b->embedded_rows[at];
  if (row[0] < 0) return sees_row((int32_t)row[1]);
  return content_of((int32_t)row[0], (int32_t)row[1]);
}

void sees_step(const batch_t *b) {
  const plan_t *plan = &sim.engine->scheduler->plan;
  int32_t rows = 0;
  for (int32_t t = 0; t < b->num_tokens; t++) {
    const plan_entry_t *entry = &plan->entries[b->request_row[t]];
    const track_t *k = check_track(entry->sequence);
    const sim_image_t *image = image_at(k->script, b->positions[t]);
    const int32_t end = image != NULL && sim.scenario->pictures_whole ? image->end : 0;
    const bool is_row = image != NULL || (k->script->rows && b->positions[t] < k->num_prompt);
    rows += is_row;
    REQUIRE(!is_row || find_row(b, t) >= 0, "request %d: token %d is no row", k->index,
            b->positions[t]);
    REQUIRE((b->seen_until != NULL ? b->seen_until[t] : 0) == end,
            "request %d: token %d sees until %d, it must be %d", k->index, b->positions[t],
            b->seen_until != NULL ? b->seen_until[t] : 0, end);
    REQUIRE(end <= entry->num_computed + entry->num_tokens,
            "request %d: a chunk ends at %d, in the picture that ends at %d", k->index,
            entry->num_computed + entry->num_tokens, end);
  }
  REQUIRE(rows == b->num_embedded, "%d tokens are rows, the batch has %d", rows, b->num_embedded);
}

int32_t sees_run(const script_t *script, int32_t position) {
  const sim_image_t *image = sim.scenario->pictures_whole ? image_at(script, position) : NULL;
  return image != NULL ? image->end - position : 0;
}

/* Its next slice of blocks may bring what a picture lacks. */
bool sees_waits(const scheduler_t *s, const sequence_t *q) {
  const request_t *request = q->group->request;
  const int32_t at = q->num_computed_tokens;
  if (!is_on()) return false;
  const int32_t run = sees_run(check_track(q)->script, at);
  const int32_t room = q->slices.total > 0 ? q->num_blocks * s->pool->block_size - at : run;
  if (run > MIN(room, sim.scenario->options.max_num_batched_tokens - s->plan.num_tokens))
    return true;
  for (int32_t i = 0; i < request->num_images; i++) {
    const image_t *image = &request->images[i];
    if (at >= image->first && at < image->end)
      return !image_rows_has(s->image_rows, request, image);
  }
  return false;
}

void sees_idle(void) {
  static float *out[PAGES_MAX * IMAGE_PAGE_ROWS];
  if (!is_on()) return;
  sight_t *sight = sim.engine->sight;
  for (int i = 0; i < RUNS; i++) REQUIRE(sight->looks[i].request == NULL, "a picture is begun");
  if (sim.lost) return; /* the last step has not ended */
  const request_t request = {.base_salt = UINT64_MAX};
  const image_t all = {.layout = {.tokens = (uint32_t)(num_pages * IMAGE_PAGE_ROWS)}};
  image_rows_unmark(sight->rows);
  const int32_t entry = image_rows_take(sight->rows, &request, &all, out);
  REQUIRE(entry != 0, "rows of pictures are held by nobody");
  image_rows_drop(sight->rows, entry);
}
