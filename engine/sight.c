/* sight.c: the eyes of an engine, of the files of its model; the contract is in sight.h. Next:
 * sight_work.c.
 *
 * Engine thread, but for sight_check; allocates at start only.
 */
#include "engine/sight.h"

#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/mmproj.h"
#include "engine/sight_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREPROCESSOR_BYTES_MAX = 1 << 20 };
/* Of rows that are kept, unless one picture has more. */
static const size_t ROWS_BYTES = (size_t)256 << 20;
/* Before anything is known: multiplications in a nanosecond of the slowest machines, and a slice.
 */
static const double WORK_PER_NS = 5;

/* ---- start ---- */

/* Where the tower is: in `mmproj`, if that is given, or beside a model in GGUF, else in the files
 * of the model. `room` is for the second. */
static const char *tower_path(const char *model_dir, const char *mmproj,
                              char room[MMPROJ_PATH_MAX]) {
  if (mmproj != NULL) return mmproj;
  return mmproj_beside(model_dir, room) ? room : model_dir;
}

bool engine_may_see(const char *model_dir, const char *mmproj) {
  tower_plan_t plan;
  inferd_error_t ignored;
  char room[MMPROJ_PATH_MAX];
  const char *path = tower_path(model_dir, mmproj, room);
  return tower_plan_read(path, &plan, &ignored) == 0 && plan.family != NULL && !plan.family->hears;
}

/* The towers whose models were compared with the reference, from pictures to answers. */
static const struct {
  const char *type; /* of tower_family_t */
  bool mrope;       /* without it the text model would place pictures as text */
} compared[] = {{"qwen2_vl_vision", true},
                {"qwen2_5_vl_vision", true},
                {"qwen3_vl_vision", true},
                {"qwen3_vl_moe_vision", true},
                {"qwen3_5_vision", true},
                {"qwen3_5_moe_vision", true},
                {"pixtral", false},
                {"internvl_vision", false},
                {"idefics3_vision", false},
                {"intern_vit_6b", false},
                {"smolvlm_vision", false},
                {"siglip_vision_model", false},
                {"clip_vision_model", false},
                {"gemma4_vision", false},
                {"qwen2_audio_encoder", false},
                {"voxtral_encoder", false},
                {"audioflamingo3_encoder", false},
                {"glmasr_encoder", false},
                {"qwen3_asr_encoder", false},
                {"qwen3_asr_audio_encoder", false},
                {"qwen3_omni_moe_audio_encoder", false}};

static const char *not_compared(const engine_t *engine, const tower_plan_t *plan) {
  for (size_t i = 0; i < ARRAY_LEN(compared); i++) {
    if (strcmp(compared[i].type, plan->family->model_type) != 0) continue;
    const bool turns = engine->blueprint.rope.mrope != MROPE_NONE;
    return turns || !compared[i].mrope ? NULL : "its text model has no mrope_section";
  }
  return "answers about them are not compared with a reference yet";
}

/* Why a model that has a tower sees nothing here; NULL = nothing speaks against it. */
static const char *why_not(const engine_t *engine, const tower_plan_t *plan) {
  const engine_options_t *options = &engine->options;
  if (plan->family->hears ? options->no_sounds : options->no_images) return "they are turned off";
  if (engine->ops->tower == NULL) return "no tower runs on this device";
  if (options->comm != NULL || options->planned_ranks > 1) return "not over ranks or stages";
  if (replicas_planned(engine) > 1) return "not with replicas";
  if (engine->embeds) return "not in vectors";
  if (options->draft_model_dir != NULL) return "not with a draft model";
  if (options->draft.predicts) return "not with a layer that predicts";
  if (options->dummy_weights) return "the tower has no dummy weights";
  return not_compared(engine, plan);
}

static void say_none(const engine_t *engine, const tower_plan_t *plan, const char *why) {
  const bool hears = plan->family != NULL && plan->family->hears;
  engine_say(engine, "%s: %.200s", hears ? "sounds    no sounds" : "images    no pictures", why);
}

static int64_t count_work(const blueprint_t *bp) {
  const int64_t h = bp->hidden_size;
  const int64_t mlp = bp->num_experts > 0
                          ? (int64_t)bp->experts_top * bp->expert_size + bp->shared_size
                          : bp->intermediate_size;
  const int64_t heads = 2 * (int64_t)(bp->num_heads + bp->num_kv_heads) * bp->head_dim;
  return MAX(bp->num_layers * h * (heads + 3 * mlp), 1);
}

/* Of InternVL. Code of OpenGVLab writes it into the question: the templates of its files, and of
 * GGUF files that are made of these, take texts alone. */
static const char CHAT_TOKEN[] = "<IMG_CONTEXT>";

static bool is_chat(const json_t *config) {
  return json_equals(json_get(config, "model_type"), "internvl_chat");
}

/* Reads the processor: preprocessor_config.json, or its part of processor_config.json; with a
 * mmproj file what that says. */
static int read_processor(const char *dir, const json_t *config, const tower_plan_t *plan,
                          vision_t *out, inferd_error_t *error) {
  model_file_t own = {0}, whole = {0};
  if (is_chat(config)) return vision_processor_read_internvl(config, &out->processor, error);
  if (mmproj_is(dir))
    return vision_processor_read(json_get(config, "image_processor"), NULL, config, &out->processor,
                                 error);
  int code = model_file_read(dir, "preprocessor_config.json", PREPROCESSOR_BYTES_MAX,
                             &json_limits_model, &own, error);
  if (code != 0) return code;
  code = model_file_read(dir, "processor_config.json", PREPROCESSOR_BYTES_MAX, &json_limits_model,
                         &whole, error);
  const json_t *processor = code == 0 && whole.doc != NULL ? json_root(whole.doc) : NULL;
  const char *key = out->hears ? "feature_extractor" : "image_processor";
  const json_t *part = processor != NULL ? json_get(processor, key) : NULL;
  const json_t *numbers = own.doc != NULL ? json_root(own.doc) : part;
  if (code == 0 && numbers == NULL)
    code = error_set(error, ERR_MODEL_MALFORMED, NULL, "there is no preprocessor_config.json");
  if (code == 0 && out->hears)
    code = sound_processor_read(numbers, plan->bands, &out->sound, error);
  else if (code == 0)
    code = vision_processor_read(numbers, processor, config, &out->processor, error);
  if (whole.doc != NULL) model_file_free(&whole);
  if (own.doc != NULL) model_file_free(&own);
  return code;
}

/* The text of the placeholder, or NULL where config.json has its id. */
static const char *placeholder_of(const json_t *config, size_t *length) {
  const json_t *token = json_get(config, "mmproj_image_token");
  if (token != NULL && token->type == JSON_STRING) {
    *length = token->length;
    return token->text;
  }
  *length = sizeof CHAT_TOKEN - 1;
  return is_chat(config) ? CHAT_TOKEN : NULL;
}

/* The id of the placeholder: config.json has it, or the tokenizer has its text. */
static int read_placeholder(const engine_t *engine, const json_t *config, vision_t *out,
                            inferd_error_t *error) {
  size_t length;
  const char *token = placeholder_of(config, &length);
  const char *index = out->hears ? "audio_token_index" : "image_token_index";
  const char *key = out->hears ? "audio_token_id" : "image_token_id";
  if (json_get(config, index) != NULL) key = index;
  int64_t id = -1;
  if (token != NULL)
    id = tokenizer_id(engine->tokenizer, token, length);
  else if (!json_int64(json_get(config, key), &id))
    id = -1;
  out->placeholder_id = (int32_t)id;
  if (id >= 0 && id < engine->blueprint.vocab_size) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s is %lld; it must be 0 to %d",
                   token != NULL ? token : key, (long long)id, engine->blueprint.vocab_size - 1);
}

static int read_vision(const engine_t *engine, const char *dir, const tower_plan_t *plan,
                       vision_t *out, inferd_error_t *error) {
  model_file_t file;
  int code = tower_config_read(dir, &file, error);
  if (code != 0 || file.doc == NULL) return code;
  const json_t *config = tower_config_around(json_root(file.doc));
  *out = (vision_t){
      .hears = plan->family->hears, .begin_id = -1, .end_id = -1, .break_id = -1, .whole_id = -1};
  if (plan->family->writes) out->writes = plan->family->around;
  out->sound = (sound_processor_t){.merge = plan->merge,
                                   .windows_max = plan->family->windows_max,
                                   .samples_min = plan->family->samples_min,
                                   .silence = plan->family->hears_silence,
                                   .tokens_of_silence = plan->family->rows_of_silence,
                                   .joined = plan->family->joins_windows,
                                   .chunked = plan->chunk > 0};
  code = read_processor(dir, config, plan, out, error);
  if (code == 0 && !out->hears && engine->options.image_max_tokens > 0)
    vision_limit(&out->processor, (uint32_t)engine->options.image_max_tokens);
  out->low = out->processor;
  if (code == 0 && !out->hears) vision_limit(&out->low, VISION_LOW_TOKENS);
  if (code == 0) code = read_placeholder(engine, config, out, error);
  if (out->processor.kind == VISION_GOT_OCR2) out->spelling = CHAT_TOKEN;
  if (code == 0) code = sight_read_marks(engine, out, error);
  model_file_free(&file);
  return code;
}

/* The tower and the processor must mean the same patches. */
static int check_match(const sight_t *sight, inferd_error_t *error) {
  const vision_processor_t *processor = &sight->vision.processor;
  const tower_plan_t *plan = &sight->plan;
  if (sight->vision.hears) {
    const int32_t window = SOUND_CHUNKS * SOUND_CHUNK_POSITIONS;
    if (plan->chunk > 0 && window % plan->stretch != 0)
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "config.json: n_window_infer is of %d positions; served are parts of %d",
                       plan->stretch, window);
    if (plan->chunk > 0 || plan->table_side == 0 || plan->table_side == SOUND_POSITIONS) return 0;
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "config.json: max_source_positions is %d; served is %d", plan->table_side,
                     SOUND_POSITIONS);
  }
  const int32_t side = (int32_t)(processor->view_side / processor->patch);
  const bool fixed = plan->table_side > 0 && plan->table == TABLE_OF_IMAGE;
  const int64_t longest = (int64_t)processor->view_tokens * plan->merge; /* of Gemma 4, one row */
  if (plan->table == TABLE_OF_AXES && longest > plan->table_side)
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "the processor makes views of up to %lld patches a side; the tower has places "
                     "of %d",
                     (long long)longest, plan->table_side);
  if ((plan->family->names[TOWER_LINE] != NULL) != (vision_lines_max(processor, 1) > 0))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "the processor is that of another model: %s new lines behind rows of tiles",
                     vision_lines_max(processor, 1) > 0 ? "only it has" : "only the tower has");
  if (side % plan->merge != 0 || (fixed && side != plan->table_side))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "the processor makes views of %d patches a side; the tower reads %s%d", side,
                     fixed ? "" : "multiples of ", fixed ? plan->table_side : plan->merge);
  if (vision_row_values(processor) == (size_t)sight->plan.patch_columns &&
      processor->merge == (uint32_t)sight->plan.merge &&
      plan->raster == (processor->order != VISION_BLOCKS) &&
      plan->by_pixel == (processor->order == VISION_RASTER_PIXEL))
    return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "the processor makes patches of %zu values, %u x %u of them a token; the tower "
                   "reads %d and %d x %d",
                   vision_row_values(processor), processor->merge, processor->merge,
                   sight->plan.patch_columns, sight->plan.merge, sight->plan.merge);
}

/* A mmproj file may be that of another model. */
static int check_width(const engine_t *engine, const tower_plan_t *plan, inferd_error_t *error) {
  if (plan->out_size == engine->blueprint.hidden_size) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "the tower makes rows of %d values, the text model reads %d", plan->out_size,
                   engine->blueprint.hidden_size);
}

static int32_t block_of(const sight_t *sight) {
  return tower_block(&sight->plan);
}

static size_t workspace_bytes(const sight_t *sight) {
  size_t bytes = tower_shared_bytes(&sight->plan);
  for (int i = 0; i < RUNS; i++)
    bytes += tower_run_bytes(&sight->plan, sight->looks[i].patches_max);
  return bytes;
}

/* Tokens of pictures of so many patches. */
static int32_t tokens_of(const sight_t *sight, int32_t patches) {
  const vision_processor_t *processor = &sight->vision.processor;
  const int32_t rows = patches / block_of(sight), view = (int32_t)MAX(processor->view_tokens, 1);
  return rows + (int32_t)vision_lines_max(processor, DIV_UP(rows, view));
}

static void set_most(sight_t *sight, int64_t patches) {
  const int32_t block = block_of(sight), most = (int32_t)MAX(patches / block, 1) * block;
  sight->vision.tokens_max = tokens_of(sight, most);
  sight->vision.patches_max = most;
  for (int i = 0; i < RUNS; i++)
    sight->looks[i].patches_max = i < RUNS_LARGE ? most : MIN(most, SMALL_PATCHES / block * block);
  /* Of a sound, positions behind the last token. */
  const int32_t more = sight->vision.hears ? block - 1 : 0;
  sight->vision.patches_max += more;
  for (int i = 0; i < RUNS; i++) sight->looks[i].patches_max += more;
}

/* Whether tokens of a picture see all of it. */
static bool sees_whole(const engine_t *engine) {
  return engine->blueprint.picture_mask != PICTURES_CAUSAL;
}

/* Tokens that see each other are in one step, beside a token of every sequence. */
static int check_step(const engine_t *engine, const vision_t *vision, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const uint32_t run = vision->processor.view_tokens;
  const int64_t least = (int64_t)run + options->max_num_seqs;
  if (!sees_whole(engine) || options->max_num_batched_tokens >= least) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "max_num_batched_tokens is %d; the %u tokens of a picture are in one step, so "
                   "it must be at least %lld with max_num_seqs %d",
                   options->max_num_batched_tokens, run, (long long)least, options->max_num_seqs);
}

/* Patches of the largest picture: what the processor makes, in a context (where all patches become
 * tokens, which those of silence may not), in the memory of a quarter of what is free. */
static void choose_patches(const engine_t *engine, sight_t *sight, int32_t context) {
  const vision_processor_t *processor = &sight->vision.processor;
  const int64_t block = block_of(sight);
  const int64_t most = sight->vision.hears ? SOUND_POSITIONS : vision_patches_max(processor);
  const size_t room = engine->ops->memory_free(engine->device) / 4;
  const sound_processor_t *sound = &sight->vision.sound;
  const bool silent = sight->vision.hears && sound->silence && !sound->tokens_of_silence;
  const bool packs = vision_lines_max(processor, 1) > 0 || silent;
  set_most(sight, packs ? most : MIN(most, (context - 1) * block));
  while (sight->vision.patches_max >= 2 * block && workspace_bytes(sight) > room)
    set_most(sight, sight->vision.patches_max / 2);
}

static int32_t row_values(const sight_t *sight) {
  return (1 + sight->plan.num_deep) * sight->plan.out_size;
}

int sight_read(engine_t *engine, int32_t max_model_len, inferd_error_t *error) {
  const char *mmproj = engine->options.mmproj;
  inferd_error_t why = {0};
  tower_plan_t plan = {0};
  char room[MMPROJ_PATH_MAX];
  const char *path = tower_path(engine->options.model_dir, mmproj, room);
  int code = tower_plan_read(path, &plan, &why);
  if (code == 0 && mmproj != NULL && (plan.family == NULL || !mmproj_is(mmproj)))
    code = error_set(&why, ERR_MODEL_MALFORMED, NULL, "%s is no mmproj file", mmproj);
  if (code == 0 && plan.family == NULL) return 0;
  const char *reason = code == 0 ? why_not(engine, &plan) : why.message;
  sight_t *sight = reason == NULL ? calloc(1, sizeof *sight) : NULL;
  if (reason == NULL && sight == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  if (reason == NULL) {
    sight->plan = plan;
    snprintf(sight->path, sizeof sight->path, "%s", path);
    code = read_vision(engine, path, &plan, &sight->vision, &why);
    if (code == 0) code = check_match(sight, &why);
    if (code == 0) code = check_width(engine, &plan, &why);
    if (code == 0) code = check_step(engine, &sight->vision, &why);
    if (code != 0) reason = why.message;
  }
  if (reason != NULL) {
    say_none(engine, &plan, reason);
    free(sight);
    return mmproj == NULL || engine->options.no_images
               ? 0
               : error_set(error, ERR_CONFIGURATION, "mmproj", "mmproj: %.200s", reason);
  }
  choose_patches(engine, sight, max_model_len);
  sight->token_work = (double)count_work(&engine->blueprint);
  sight->work_per_ns = WORK_PER_NS;
  engine->sight = sight;
  return 0;
}

size_t sight_weight_bytes(const engine_t *engine) {
  if (engine->sight == NULL) return 0;
  const size_t each = engine->blueprint.dtype == DTYPE_F32 ? 4 : 2;
  return (size_t)tower_num_weights(&engine->sight->plan) * each;
}

static size_t kept_bytes(const sight_t *sight) {
  size_t begun = 0;
  for (int i = 0; i < RUNS; i++)
    begun += image_rows_bytes(tokens_of(sight, sight->looks[i].patches_max), row_values(sight));
  return MAX(ROWS_BYTES, begun);
}

size_t sight_work_bytes(const engine_t *engine) {
  const sight_t *sight = engine->sight;
  if (sight == NULL) return 0;
  return workspace_bytes(sight) + kept_bytes(sight);
}

/* What a picture takes, as if the text model computed so many tokens. */
static int32_t cost_in_tokens(const sight_t *sight, tower_grid_t grid, int32_t views) {
  const double work = (double)tower_work(&sight->plan, grid) * views;
  return (int32_t)fmin(ceil(work / sight->token_work), INT32_MAX / 2);
}

void sight_say(const engine_t *engine) {
  const sight_t *sight = engine->sight;
  vision_layout_t layout;
  inferd_error_t ignored;
  if (sight == NULL) return;
  const bool hears = sight->vision.hears;
  if (mmproj_is(sight->path)) engine_say(engine, "images    by %.400s", sight->path);
  engine_say(engine,
             "%s    %d layers of %d; at most %d tokens a %s; weights %.2f GiB, "
             "workspace and rows %.2f",
             hears ? "sounds" : "images", sight->plan.num_layers, sight->plan.hidden,
             sight->vision.tokens_max, hears ? "sound" : "picture",
             (double)sight_weight_bytes(engine) / (1 << 30),
             (double)sight_work_bytes(engine) / (1 << 30));
  const uint64_t samples = (uint64_t)SOUND_SECONDS * SOUND_RATE;
  int32_t windows;
  if (hears ? sound_layout(&sight->vision.sound, samples, &layout, &windows, &ignored) != 0
            : vision_layout(&sight->vision.processor, 1024, 768, true, &layout, &ignored) != 0)
    return;
  const tower_grid_t grid = {(int32_t)layout.grid_height, (int32_t)layout.grid_width, 0};
  engine_say(engine, "%s is %u tokens, and takes as long as %d more",
             hears ? "sounds    one of 30 s" : "images    one of 1024 x 768", layout.tokens,
             cost_in_tokens(sight, grid, (int32_t)layout.views));
}

int sight_load(engine_t *engine, inferd_error_t *error) {
  sight_t *sight = engine->sight;
  if (sight == NULL) return 0;
  const int code = tower_load(engine->ops, engine->device, sight->path, &sight->plan,
                              engine->blueprint.dtype, &sight->tower, error);
  if (code != ERR_MODEL_MALFORMED) return code;
  say_none(engine, &sight->plan, error->message);
  sight_free(engine);
  return engine->options.mmproj != NULL ? code : 0;
}

int sight_prepare(engine_t *engine, inferd_error_t *error) {
  sight_t *sight = engine->sight;
  if (sight == NULL) return 0;
  int32_t patches[RUNS];
  for (int i = 0; i < RUNS; i++) patches[i] = sight->looks[i].patches_max;
  int code = tower_prepare(sight->tower, patches, RUNS, error);
  if (!code)
    code = image_rows_new(kept_bytes(sight), row_values(sight), sight->vision.placeholder_id,
                          &sight->rows, error);
  for (int i = 0; i < RUNS && !code; i++) {
    look_t *look = &sight->looks[i];
    look->vision = &sight->vision;
    look->width = sight->plan.out_size;
    look->out = calloc((size_t)tokens_of(sight, patches[i]), sizeof *look->out);
    if (look->out == NULL) code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tower");
  }
  return code;
}

int sight_join(engine_t *engine, step_t *step) {
  if (engine->sight == NULL) return 0;
  engine->scheduler->image_rows = engine->sight->rows;
  engine->scheduler->pictures_whole = sees_whole(engine);
  step->batch->num_deep = engine->sight->plan.num_deep;
  return batch_see(step->batch, engine->options.max_num_batched_tokens, engine->sight->rows,
                   sees_whole(engine));
}

void sight_free(engine_t *engine) {
  sight_t *sight = engine->sight;
  if (sight == NULL) return;
  tower_free(sight->tower);
  image_rows_free(sight->rows);
  for (int i = 0; i < RUNS; i++) free(sight->looks[i].out);
  free(sight);
  engine->sight = NULL;
}

uint64_t sight_weights_hash(const engine_t *engine) {
  const sight_t *sight = engine->sight;
  const uint64_t text = model_hash(engine->model);
  return sight != NULL ? random_mix(text + tower_hash(sight->tower)) : text;
}

const vision_t *sight_vision(const engine_t *engine) {
  const sight_t *sight = engine->sight;
  return sight != NULL && !sight->vision.hears ? &sight->vision : NULL;
}

const vision_t *sight_hearing(const engine_t *engine) {
  const sight_t *sight = engine->sight;
  return sight != NULL && sight->vision.hears ? &sight->vision : NULL;
}

int32_t sight_num_deep(const engine_t *engine) {
  return engine->sight != NULL ? engine->sight->plan.num_deep : 0;
}

/* ---- the door ---- */

static int refuse(inferd_error_t *error, int32_t index, const char *what) {
  return error_set(error, ERR_BAD_REQUEST, "images", "image %d %s", index, what);
}

static bool is_sound(const vision_t *vision, const vision_layout_t *layout) {
  const sound_processor_t *sound = &vision->sound;
  const uint32_t rows = layout->grid_width / (uint32_t)sound->merge;
  const bool whole = !sound->silence || sound->tokens_of_silence;
  if (layout->short_rows > 0 &&
      layout->grid_width != DIV_UP(layout->short_rows, SOUND_CHUNK_STRIDE))
    return false;
  return layout->views == 1 && layout->grid_height == 1 && layout->grid_width <= SOUND_POSITIONS &&
         (whole ? layout->tokens == rows : layout->tokens <= rows) &&
         (!sound->silence || layout->grid_width == SOUND_POSITIONS);
}

static int check_image(const vision_t *vision, const request_t *request, int32_t i,
                       inferd_error_t *error) {
  const image_t *image = &request->images[i];
  const int32_t *ids = request->prompt_ids;
  const int32_t least = i > 0 ? request->images[i - 1].end : 0;
  uint32_t count = 0;
  if (image->first < least || image->end <= image->first || image->end > request->num_prompt_tokens)
    return refuse(error, i, "has no place in the prompt, or stands before the one before it.");
  if (vision->hears ? image->rows == NULL : image->views == NULL || image->rows != NULL)
    return refuse(error, i, vision->hears ? "has no spectrogram." : "has no pixels.");
  if (vision->hears && !is_sound(vision, &image->layout))
    return refuse(error, i, "is no sound of this model.");
  for (int32_t t = image->first; t < image->end; t++) count += ids[t] == vision->placeholder_id;
  if (count != image->layout.tokens || ids[image->first] != vision->placeholder_id ||
      ids[image->end - 1] != vision->placeholder_id)
    return error_set(error, ERR_BAD_REQUEST, "images",
                     "image %d has %u tokens; in its place of the prompt stand %u placeholders.", i,
                     image->layout.tokens, count);
  if (image->layout.views > VISION_TILES_MAX)
    return error_set(error, ERR_BAD_REQUEST, "images",
                     "image %d is cut into %u views; at most %d are taken.", i, image->layout.views,
                     VISION_TILES_MAX);
  if (image->layout.tokens > (uint32_t)vision->tokens_max)
    return error_set(error, ERR_BAD_REQUEST, "images",
                     "image %d has %u tokens; this server has memory for at most %d.", i,
                     image->layout.tokens, vision->tokens_max);
  if (vision_row_count(&image->layout) > (size_t)vision->patches_max)
    return error_set(error, ERR_BAD_REQUEST, "images",
                     "image %d has %zu patches; this server has memory for at most %d.", i,
                     vision_row_count(&image->layout), vision->patches_max);
  return 0;
}

int sight_check(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  const vision_t *vision = engine->info.vision != NULL ? engine->info.vision : engine->info.hearing;
  int code = 0;
  if (request->num_images == 0) return 0;
  if (vision == NULL)
    return error_set(error, ERR_BAD_REQUEST, "images", "The model sees no images here.");
  for (int32_t i = 0; i < request->num_images && code == 0; i++)
    code = check_image(vision, request, i, error);
  return code;
}
