/* follow.c: an engine over several ranks: what rank 0 sends, and how the others follow.
 *
 * Rank 0: engine thread. A follower has one thread and no server: it loads its part of the model,
 * then runs the forward of each packet. It schedules nothing, draws nothing, and knows of requests
 * what the batch holds.
 */
#include "engine/ranks/follow.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/model/weights/shard.h"
#include "engine/ranks/ranks.h"
#include "engine/ranks/turns.h"

#include <stdio.h>
#include <stdlib.h>

/* Rank 0 sends a sign of life so often, and four times in the limit of the others. */
static const uint64_t IDLE_PACKET_NS = 500000000;

static int refuse(const engine_t *engine, const char *param, const char *what,
                  inferd_error_t *error) {
  const model_part_t *part = &engine->blueprint.shard;
  return error_set(
      error, ERR_CONFIGURATION, param, "%s_parallel_size is %d; %s run on one rank only: use 1",
      part->num_stages > 1 ? "pipeline" : "tensor", MAX(part->size, part->num_stages), what);
}

size_t engine_local_ranks(const engine_t *engine) {
  const comm_t *comm = engine->options.comm;
  if (engine->ops->separate_memory) return 1; /* each has a device of its own */
  return (size_t)MAX(comm != NULL ? comm->local_size : engine->options.planned_ranks, 1);
}

bool engine_follows(const engine_t *engine) {
  return engine->options.comm != NULL && engine->options.comm->rank > 0;
}

/* One in each stage; else one where the other ranks do not hear what the step before has drawn. */
int32_t engine_depth(const engine_t *engine) {
  const rank_ops_t *ranks = engine->ops->ranks;
  if (engine_has_stages(engine)) return MIN(engine->blueprint.shard.num_stages, STAGE_STEPS_MAX);
  if (engine->ops->pipeline_depth < 2) return 1;
  if (engine->options.comm == NULL) return STEPS_IN_FLIGHT_MAX;
  return ranks->depth != NULL ? ranks->depth(engine->device) : 1;
}

void engine_take_part(engine_t *engine) {
  const comm_t *comm = engine->options.comm;
  const int32_t ranks = comm != NULL ? comm->size : engine->options.planned_ranks;
  const int32_t rank = comm != NULL ? comm->rank : 0;
  if (ranks > 1 && engine->options.cut_layers)
    engine->blueprint.shard = (model_part_t){.stage = rank, .num_stages = ranks};
  else if (ranks > 1)
    engine->blueprint.shard =
        (model_part_t){.rank = rank,
                       .size = ranks,
                       .sums = engine->options.add_ranks,
                       .cut_cols = engine->ops->ranks != NULL ? engine->ops->ranks->cut_cols : 0};
}

int engine_check_ranks(const engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const blueprint_t *bp = &engine->blueprint;
  const bool staged = bp->shard.num_stages > 1;
  if (shard_is_whole(bp) && !staged) return 0;
  if (staged && engine->embeds) return refuse(engine, "task", "vectors", error);
  if (staged && options->draft_model_dir != NULL)
    return refuse(engine, "speculative_model", "draft models", error);
  if (options->swap_space_bytes > 0) return refuse(engine, "swap_space", "swapped requests", error);
  if (options->prefix_cache_bytes > 0 || options->prefix_cache_file != NULL)
    return refuse(engine, "prefix_cache_file", "floors of the prefix cache", error);
  return staged ? stages_check(engine->ops, bp, error) : shard_check(engine->ops, bp, error);
}

/* As batch_new has room for. */
static int32_t saves_max(const engine_t *engine) {
  const engine_options_t *o = &engine->options;
  if (engine->blueprint.mixer.kind == MIXER_NONE) return 0;
  return o->max_num_batched_tokens + o->max_num_seqs * SNAPSHOTS_OF_ENTRY;
}

int engine_join_ranks(engine_t *engine, const kv_cache_desc_t *kv, int32_t max_model_len,
                      inferd_error_t *error) {
  comm_t *comm = engine->options.comm;
  const scheduler_t *scheduler = engine->scheduler; /* of rank 0 */
  ranks_view_t view = {
      /* of what has been read, which differs by stage */
      .weights_hash = engine->options.cut_layers ? 0 : model_hash(engine->model),
      .cut_layers = engine->options.cut_layers,
      .max_model_len = max_model_len,
      .num_blocks = kv->num_blocks,
      .sums = engine->options.add_ranks,
      .batch_invariant = engine->options.batch_invariant,
      .quantise_q8 = engine->options.quantise_q8,
      .kv_fp8 = kv->fp8,
      .kv_int8 = kv->int8,
      .dtype = (int32_t)engine->blueprint.dtype,
      .drafts_max = engine->options.draft.tokens_max,
      .lora_rank_max = engine->options.max_lora_rank,
      .limits = {.tokens_max = engine->options.max_num_batched_tokens,
                 .reqs_max = engine->options.max_num_seqs,
                 .num_groups = 1 + engine->blueprint.window_groups,
                 .block_size = kv->block_size,
                 .state_saves_max = saves_max(engine),
                 .adapters_max = engine->options.max_loras,
                 .stage_steps = engine_has_stages(engine) ? engine_depth(engine) : 1,
                 .block_table_stride = scheduler != NULL ? scheduler->table_stride : 0}};
  if (comm == NULL) return 0;
  snprintf(view.backend, sizeof view.backend, "%s", engine->ops->name);
  int code = ranks_agree(comm, &view, error);
  if (code == 0) code = packets_new(comm, &view.limits, &engine->packets, error);
  if (code != 0) return code;
  comm->limit_ns = engine->options.rank_limit_ns;
  return 0;
}

void engine_say_ranks(engine_t *engine) {
  const comm_t *comm = engine->options.comm;
  const blueprint_t *bp = &engine->blueprint;
  if (bp->shard.num_stages > 1)
    engine_say(engine, "ranks     %d over %s, layers %d to %d of %d here", bp->shard.num_stages,
               comm != NULL ? comm->ops->name : "shared memory or MPI",
               stage_begin(bp, bp->shard.stage), stage_begin(bp, bp->shard.stage + 1) - 1,
               bp->num_layers);
  if (shard_is_whole(bp)) return;
  char heads[64] = "all heads"; /* latent attention is not cut */
  if (bp->kv_rank == 0)
    snprintf(heads, sizeof heads, "heads %d/%d of %d/%d", shard_heads(bp),
             shard_kv_heads(bp, bp->num_kv_heads), bp->num_heads, bp->num_kv_heads);
  engine_say(engine, "ranks     %d over %s, %s here; %s", bp->shard.size,
             comm != NULL ? comm->ops->name : "shared memory or MPI", heads,
             bp->shard.sums ? "fast: each has parts of sums" : "exact: each has whole sums");
}

/* ---- rank 0 ---- */

void engine_send_step(engine_t *engine, const batch_t *batch) {
  const packet_kind_t kind = batch != NULL ? PACKET_STEP : PACKET_TURN;
  if (engine->packets.comm == NULL) return;
  (void)packets_send(&engine->packets, kind, batch); /* `end` reports what fails */
  engine->packets.sent_ns = clock_now_ns();
}

static int share_bytes(void *comm, void *data, size_t bytes) {
  return comm_broadcast(comm, data, bytes, 0);
}

static int share_adapter(engine_t *engine, const adapter_t *adapter) {
  comm_t *comm = engine->packets.comm;
  return model_share_adapter(engine->model, comm != NULL ? share_bytes : NULL, comm,
                             engine->packets.slot, engine->options.max_lora_rank, adapter);
}

void engine_share_adapter(engine_t *engine, int32_t slot, const adapter_t *adapter) {
  packets_t *packets = &engine->packets;
  packets->slot = slot;
  if (packets->comm != NULL) (void)packets_send(packets, PACKET_ADAPTER, NULL);
  (void)share_adapter(engine, adapter); /* the next packet reports what fails */
  if (packets->comm != NULL) packets->sent_ns = clock_now_ns();
}

static uint64_t idle_packet_ns(const engine_t *engine) {
  const uint64_t limit_ns = engine->packets.comm->limit_ns;
  return limit_ns > 0 ? MIN(limit_ns / 4, IDLE_PACKET_NS) : IDLE_PACKET_NS;
}

int engine_idle_ms(const engine_t *engine, int idle_ms) {
  if (engine->packets.comm == NULL) return idle_ms;
  return MIN(idle_ms, MAX((int)(idle_packet_ns(engine) / 1000000), 1));
}

int engine_send_idle(engine_t *engine, inferd_error_t *error) {
  const uint64_t now_ns = clock_now_ns();
  if (engine->packets.comm == NULL || now_ns - engine->packets.sent_ns < idle_packet_ns(engine))
    return 0;
  engine->packets.sent_ns = now_ns;
  int code = packets_send(&engine->packets, PACKET_IDLE, NULL);
  if (code != 0) *error = engine->packets.comm->error;
  return code;
}

void engine_send_stop(engine_t *engine) {
  if (engine->packets.comm != NULL && engine->packets.comm->rank == 0)
    (void)packets_send(&engine->packets, PACKET_STOP, NULL);
}

/* ---- the other ranks ---- */

void engine_follow_draw(engine_t *engine, const batch_t *batch) {
  const int32_t total = engine->embeds ? 0 : batch->num_selected, most = engine->logits_rows_max;
  for (int32_t first = 0; first < total; first += most) /* as engine_draw */
    model_logits(engine->model, first, total - first < most ? total - first : most);
}

void engine_follow_step(engine_t *engine) {
  const batch_t *batch = engine->packets.batch;
  engine->ops->begin(engine->device, batch);
  model_forward(engine->model, batch);
  engine_follow_draw(engine, batch);
  if (engine->ops->ranks->pass_drawn != NULL) engine->ops->ranks->pass_drawn(engine->device);
}

/* Waits for the steps in flight but `most` of them. */
static int end_steps(engine_t *engine, int32_t most, inferd_error_t *error) {
  int code = 0;
  for (; engine->num_steps > most && code == 0; engine->num_steps--)
    code = engine->ops->end(engine->device, error);
  return code;
}

/* Of two steps in flight the first is waited for when there is a third. */
static int follow_packet(engine_t *engine, packet_kind_t kind, inferd_error_t *error) {
  if (engine_has_stages(engine) && (kind == PACKET_STEP || kind == PACKET_TURN))
    return engine_follow_turn(engine, kind == PACKET_STEP ? engine->packets.batch : NULL, error);
  const int32_t depth = engine_depth(engine);
  int code = end_steps(engine, kind == PACKET_STEP ? depth - 1 : 0, error);
  if (code == 0 && kind == PACKET_ADAPTER) {
    code = share_adapter(engine, NULL);
    if (code != 0) *error = engine->packets.comm->error;
  }
  if (code != 0 || kind != PACKET_STEP) return code;
  engine_follow_step(engine);
  engine->num_steps++;
  return depth == 1 ? end_steps(engine, 0, error) : 0;
}

int engine_follow(const engine_options_t *options, inferd_error_t *error) {
  engine_t *engine = NULL;
  packet_kind_t kind = PACKET_IDLE;
  int code = engine_new(options, &engine, error);
  if (code == 0) code = engine_start(engine, error);
  while (code == 0 && kind != PACKET_STOP) {
    code = packets_receive(&engine->packets, &kind);
    if (code != 0) *error = options->comm->error;
    if (code == 0) code = follow_packet(engine, kind, error);
  }
  if (code != 0) comm_abandon(options->comm, error->message);
  engine_destroy(engine);
  return code;
}
