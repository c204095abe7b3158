/* encoding.c: the encoder before an engine's decoder; the contract is in encoding.h.
 *
 * Engine thread, but for encoding_check; allocates at start only.
 */
#include "engine/encoding.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/model/forward/encode.h"
#include "engine/schedule/cross_blocks.h"
#include "engine/schedule/sources.h"

#include <math.h>
#include <stdlib.h>

/* Runs, so that sources of clients take turns: of the longest source, and of such as have no more
 * positions than these, which wait for no longer ones. */
enum { RUNS_LONG = 2, RUNS = 4, SHORT_SOURCE = 256 };
_Static_assert((int)RUNS <= (int)ENCODE_RUNS_MAX && (int)RUNS <= (int)PICTURES_BEGUN_MAX, "places");
/* Before anything is known: multiplications in a nanosecond of the slowest machines. */
static const double WORK_PER_NS = 5;

/* A source that has no K and V yet. */
typedef struct reading {
  const request_t *request; /* NULL = nobody's */
  int32_t entry, rows_max;
  int64_t charged; /* tokens, for what is done */
} encoding_run_t;

typedef struct encoding {
  blueprint_t blueprint;
  source_info_t info;
  size_t weight_bytes;
  model_t *encoder; /* NULL until it is loaded */
  encode_runs_t *encode;
  cross_blocks_t *blocks;
  double token_work;             /* multiplications of a token of the decoder, without attention */
  double work_per_ns;            /* learned */
  encoding_run_t readings[RUNS]; /* those with most room first */
} encoding_t;

/* ---- start ---- */

static int refuse(const engine_t *engine, const char *option, const char *what,
                  inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, option,
                   "%s is set, but an encoder stands before the decoder of %s, which does not run "
                   "%s yet",
                   option, engine->blueprint.architecture, what);
}

/* What does not go with an encoder before the decoder; the message names the option. */
static int check_options(const engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const ops_t *ops = engine->ops;
  if (ops->cross == NULL || ops->tower == NULL)
    return error_set(error, ERR_CONFIGURATION, "device",
                     "an encoder stands before the decoder of %s, which does not run on device %s "
                     "yet; it does with --device cpu",
                     engine->blueprint.architecture, ops->name);
  if (engine->embeds)
    return error_set(error, ERR_CONFIGURATION, "task",
                     "the model (%s) generates; its encoder alone embeds under the architecture "
                     "T5EncoderModel in config.json",
                     engine->blueprint.architecture);
  if (options->comm != NULL || options->planned_ranks > 1)
    return refuse(engine, "tensor_parallel_size", "over ranks", error);
  if (replicas_planned(engine) > 1)
    return refuse(engine, "data_parallel_size", "with replicas", error);
  if (options->draft.tokens_max > 0 || options->draft_model_dir != NULL)
    return refuse(engine, "num_speculative_tokens", "with drafts", error);
  if (options->max_loras > 0) return refuse(engine, "enable_lora", "with adapters", error);
  if (options->preemption_mode == PREEMPT_SWAP)
    return refuse(engine, "preemption_mode", "with swapping", error);
  if (options->swap_space_bytes > 0) return refuse(engine, "swap_space", "with swapping", error);
  return 0;
}

static model_options_t model_options(const engine_t *engine, int32_t dtype) {
  return (model_options_t){.dir = engine->options.model_dir,
                           .dummy = engine->options.dummy_weights,
                           .dummy_seed = engine->options.seed,
                           .dtype = dtype,
                           .lacks_embed = true,
                           .embeds = engine->model,
                           .quantise_q8 = engine->options.quantise_q8};
}

static int64_t count_work(const blueprint_t *bp) {
  const int64_t h = bp->hidden_size, mlp = (bp->gated_mlp ? 3 : 2) * (int64_t)bp->intermediate_size;
  return bp->num_layers * h * (6 * (int64_t)bp->num_heads * bp->head_dim + mlp);
}

static int32_t rows_of(const encoding_t *encoding, int run) {
  return run < RUNS_LONG ? encoding->info.longest : MIN(encoding->info.longest, SHORT_SOURCE);
}

int encoding_read(engine_t *engine, int32_t dtype, inferd_error_t *error) {
  const blueprint_t *bp = &engine->blueprint;
  engine_options_t *options = &engine->options;
  if (!bp->cross.crosses) return 0;
  int code = check_options(engine, error);
  encoding_t *encoding = code == 0 ? calloc(1, sizeof *encoding) : NULL;
  if (code == 0 && encoding == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for an encoder");
  if (code != 0) return code;
  options->swap_space_bytes = 0;
  engine->encoding = encoding;
  code = blueprint_read_encoder(options->model_dir, tokenizer_model_max_length(engine->tokenizer),
                                &encoding->blueprint, error);
  if (code != 0) return code;
  encoding->blueprint.dtype = bp->dtype;
  const int32_t most = encoding->blueprint.max_model_len;
  encoding->info =
      (source_info_t){.columns = encoding->blueprint.num_bands,
                      .longest = options->max_model_len > 0 && encoding->blueprint.num_bands == 0
                                     ? (int32_t)MIN(options->max_model_len, most)
                                     : encoding->blueprint.default_model_len,
                      .start_id = bp->cross.start_id,
                      .forced_bos_id = bp->cross.forced_bos_id,
                      .num_beams = bp->cross.num_beams,
                      .length_penalty = bp->cross.length_penalty,
                      .early_stopping = bp->cross.early_stopping};
  encoding->token_work = (double)count_work(bp);
  encoding->work_per_ns = WORK_PER_NS;
  const model_options_t model = model_options(engine, dtype);
  return model_weight_bytes(engine->ops, &encoding->blueprint, &model, &encoding->weight_bytes,
                            error);
}

size_t encoding_weight_bytes(const engine_t *engine) {
  return engine->encoding != NULL ? engine->encoding->weight_bytes : 0;
}

size_t encoding_work_bytes(const engine_t *engine) {
  const encoding_t *encoding = engine->encoding;
  if (encoding == NULL) return 0;
  size_t bytes = encode_shared_bytes(&encoding->blueprint, &engine->blueprint);
  for (int i = 0; i < RUNS; i++)
    bytes += encode_run_bytes(&encoding->blueprint, rows_of(encoding, i));
  return bytes;
}

int32_t encoding_choose_blocks(const engine_t *engine, int64_t all, int32_t block_size) {
  if (engine->encoding == NULL) return 0;
  const int64_t one = DIV_UP(engine->encoding->info.longest, block_size);
  const int64_t most = one * engine->options.max_num_seqs;
  return (int32_t)MAX(MIN(MIN(most, all / 2), INT32_MAX / 4), one);
}

void encoding_say(const engine_t *engine, int32_t num_blocks) {
  const encoding_t *encoding = engine->encoding;
  if (encoding == NULL) return;
  const blueprint_t *bp = &encoding->blueprint;
  const double tokens =
      (double)encode_work(bp, &engine->blueprint, encoding->info.longest) / encoding->token_work;
  engine_say(engine,
             "encoder   %d layers of %d; at most %d tokens a source, which take as long as %.0f of "
             "the decoder; %d blocks for their K and V",
             bp->num_layers, bp->hidden_size, encoding->info.longest, ceil(tokens), num_blocks);
  engine_say(engine, "encoder   one text is made of another: /v1/completions, no conversations%s",
             encoding->info.num_beams > 1 ? "; beam search, unless a request says otherwise" : "");
}

int encoding_survey(const engine_t *engine, int32_t dtype, inferd_error_t *error) {
  if (engine->encoding == NULL) return 0;
  const model_options_t options = model_options(engine, dtype);
  return model_survey(engine->ops, &engine->encoding->blueprint, &options, error);
}

int encoding_load(engine_t *engine, int32_t dtype, inferd_error_t *error) {
  encoding_t *encoding = engine->encoding;
  if (encoding == NULL) return 0;
  const model_options_t options = model_options(engine, dtype);
  return model_load(engine->ops, engine->device, &encoding->blueprint, encoding->info.longest,
                    &options, &encoding->encoder, error);
}

int encoding_prepare(engine_t *engine, int32_t first, int32_t count, int32_t block_size,
                     inferd_error_t *error) {
  encoding_t *encoding = engine->encoding;
  int32_t rows[RUNS];
  if (encoding == NULL) return 0;
  for (int i = 0; i < RUNS; i++) encoding->readings[i].rows_max = rows[i] = rows_of(encoding, i);
  int code =
      cross_blocks_new(first, count, block_size, encoding->info.longest, &encoding->blocks, error);
  if (code == 0)
    code = encode_new(encoding->encoder, engine->model, rows, RUNS, &encoding->encode, error);
  return code;
}

int encoding_join(engine_t *engine, step_t *step) {
  if (engine->encoding == NULL) return 0;
  engine->scheduler->cross_blocks = engine->encoding->blocks;
  return batch_cross(step->batch, engine->options.max_num_seqs, engine->encoding->blocks);
}

void encoding_free(engine_t *engine) {
  encoding_t *encoding = engine->encoding;
  if (encoding == NULL) return;
  encode_free(encoding->encode);
  cross_blocks_free(encoding->blocks);
  model_free(encoding->encoder);
  blueprint_free(&encoding->blueprint);
  free(encoding);
  engine->encoding = NULL;
}

uint64_t encoding_hash(const engine_t *engine) {
  return engine->encoding != NULL ? random_mix(model_hash(engine->encoding->encoder)) : 0;
}

const source_info_t *encoding_info(const engine_t *engine) {
  return engine->encoding != NULL ? &engine->encoding->info : NULL;
}

/* ---- between steps ---- */

static void stop(encoding_run_t *reading) {
  reading->request = NULL;
}

void encoding_leave(engine_t *engine, const request_t *request) {
  encoding_t *encoding = engine->encoding;
  for (int i = 0; encoding != NULL && i < RUNS; i++) {
    if (encoding->readings[i].request != request) continue;
    cross_blocks_drop(encoding->blocks, encoding->readings[i].entry);
    stop(&encoding->readings[i]);
  }
}

/* The sources that are begun, and where: places[PICTURES_BEGUN_MAX]. */
static pictures_begun_t list_begun(const engine_t *engine, int32_t *places) {
  pictures_begun_t begun = {.count = 0};
  for (int32_t i = 0; i < RUNS; i++) {
    const request_t *request = engine->encoding->readings[i].request;
    if (request == NULL) continue;
    places[begun.count] = i;
    begun.groups[begun.count++] = &engine->groups[request->slot];
  }
  return begun;
}

/* The run with the least room for so many positions that is nobody's; -1 = there is none. */
static int32_t find_run(const encoding_t *encoding, int32_t length) {
  int32_t found = -1;
  for (int32_t i = 0; i < RUNS; i++)
    if (encoding->readings[i].request == NULL && encoding->readings[i].rows_max >= length)
      found = i;
  return found;
}

static int32_t most_room(const encoding_t *encoding) {
  int32_t most = 0;
  for (int i = 0; i < RUNS; i++)
    if (encoding->readings[i].request == NULL) most = MAX(most, encoding->readings[i].rows_max);
  return most;
}

/* Begins the next source, if there is one and room for it and for its K and V. */
static bool begin(engine_t *engine) {
  encoding_t *encoding = engine->encoding;
  scheduler_t *scheduler = engine->scheduler;
  int32_t places[PICTURES_BEGUN_MAX];
  const pictures_begun_t begun = list_begun(engine, places);
  const int32_t room = most_room(encoding);
  const group_t *group = room > 0 ? sources_next(scheduler, &begun, room) : NULL;
  if (group == NULL) return false;
  const encoder_source_t *source = group->request->source;
  const int32_t run = find_run(encoding, source->length);
  encoding_run_t *reading = &encoding->readings[run];
  encode_input_t input = {.ids = source->ids, .rows = source->rows, .length = source->length};
  sources_mark(scheduler);
  reading->entry =
      cross_blocks_take(encoding->blocks, group->request, source->length, &input.blocks);
  if (reading->entry == 0) return false;
  reading->request = group->request;
  reading->charged = 0;
  encode_choose(encoding->encode, run);
  encode_begin(encoding->encode, &input);
  engine->stats.sources_read++;
  return true;
}

/* A slice of a run. */
static void go_on(engine_t *engine, int32_t run) {
  encoding_t *encoding = engine->encoding;
  encoding_run_t *reading = &encoding->readings[run];
  const int64_t work = (int64_t)(sight_slice_ns(engine) * encoding->work_per_ns);
  const uint64_t before_ns = clock_now_ns();
  encode_choose(encoding->encode, run);
  const bool is_complete = encode_advance(encoding->encode, work);
  const double ns = (double)(clock_now_ns() - before_ns);
  scheduler_note_tower(engine->scheduler, &engine->groups[reading->request->slot], ns);
  engine->stats.encoder_ns += (uint64_t)ns;
  sight_charge(engine, reading->request,
               (double)encode_work_done(encoding->encode) / encoding->token_work, is_complete,
               &reading->charged);
  /* A part that was cut short says little; one that took long says that it is to be shorter. */
  if (!is_complete && ns > 0) encoding->work_per_ns = sight_rate(encoding->work_per_ns, work, ns);
  if (!is_complete) return;
  cross_blocks_fill(encoding->blocks, reading->entry);
  stop(reading);
}

bool encoding_work(engine_t *engine) {
  int32_t places[PICTURES_BEGUN_MAX];
  if (engine->encoding == NULL) return false;
  while (begin(engine)) {
  }
  const pictures_begun_t begun = list_begun(engine, places);
  const int32_t turn = pictures_turn(engine->scheduler, &begun);
  if (turn < 0) return false;
  go_on(engine, places[turn]);
  return true;
}

/* ---- the door ---- */

/* What is wrong here is the server's mistake, or that of the model's files. */
static int check_weights(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  const cross_weights_t *weights = request->cross_weights;
  const blueprint_t *bp = &engine->blueprint;
  if (weights == NULL) return 0;
  if (engine->ops->cross->weigh == NULL)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, NULL,
                     "Device %s does not tell the weights of attention.", engine->ops->name);
  bool right = weights->num_heads > 0 && weights->first >= 0 && weights->count > 0 &&
               weights->count <= request->num_prompt_tokens - weights->first &&
               weights->columns > 0 && weights->columns <= request->source->length;
  for (int32_t i = 0; i < weights->num_heads && right; i++)
    right = weights->heads[i].layer >= 0 && weights->heads[i].layer < bp->num_layers &&
            weights->heads[i].head >= 0 && weights->heads[i].head < bp->num_heads;
  if (right) return 0;
  return error_set(error, ERR_INTERNAL, NULL, "Weights of attention that are none were asked for.");
}

int encoding_check(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  const source_info_t *info = engine->info.source;
  const encoder_source_t *source = request->source;
  if (info == NULL && source == NULL && request->cross_weights == NULL) return 0;
  if (info == NULL)
    return error_set(error, ERR_BAD_REQUEST, "prompt", "No encoder stands before the model.");
  if (source == NULL || (info->columns > 0 ? source->rows == NULL : source->ids == NULL))
    return error_set(error, ERR_BAD_REQUEST, "prompt",
                     "An encoder stands before the model; the request brings nothing for it.");
  if (info->columns > 0 && source->length != info->longest)
    return error_set(error, ERR_BAD_REQUEST, "prompt",
                     "This model's encoder reads %d positions. However, the request has %d.",
                     info->longest, source->length);
  if (source->length >= 1 && source->length <= info->longest)
    return check_weights(engine, request, error);
  return error_set(error, ERR_CONTEXT_LENGTH, "prompt",
                   "This model's encoder reads at most %d tokens. However, the prompt has %d.",
                   info->longest, source->length);
}
