/* packet.h: what rank 0 tells the other ranks of a step: the prepared batch, in one packet.
 *
 * A packet has no text, and of the requests no more than the batch has: the ids of the tokens that
 * the step computes. Packets stand in a buffer that is made at start. One thread of each rank.
 */
#ifndef INFERD_ENGINE_RANKS_PACKET_H
#define INFERD_ENGINE_RANKS_PACKET_H

#include "engine/device/batch.h"
#include "engine/device/comm.h"

/* Most steps in flight in stages: as many as there are stages, and no more than these. */
enum { STAGE_STEPS_MAX = 8 };

typedef enum packet_kind {
  PACKET_STEP,
  PACKET_TURN,    /* of stages: their steps go on, and no new one begins */
  PACKET_IDLE,    /* rank 0 lives, and has no step */
  PACKET_ADAPTER, /* one for `slot` follows (model_share_adapter) */
  PACKET_STOP
} packet_kind_t;

/* Sizes of the largest batch; equal on all ranks. */
typedef struct packet_limits {
  int32_t tokens_max, reqs_max, block_table_stride, num_groups, block_size;
  int32_t state_saves_max; /* 0 = no layer has a state */
  int32_t adapters_max;
  int32_t stage_steps; /* batches that a receiver keeps, at most STAGE_STEPS_MAX; 0 means 1 */
} packet_limits_t;

typedef struct packets {
  comm_t *comm;
  packet_limits_t limits;
  uint8_t *bytes; /* owned */
  size_t capacity;
  uint64_t sent_ns; /* when rank 0 sent the last one */
  int32_t slot;     /* of PACKET_ADAPTER: adapter slot that is sent, or was received */
  /* Of a receiver, owned: batches in turn, and [reqs_max][num_groups, stride] of each. */
  batch_t *batches[STAGE_STEPS_MAX];
  int32_t *tables[STAGE_STEPS_MAX];
  batch_t *batch; /* the one received last */
  int32_t next;   /* index of the next one */
} packets_t;

/* 0 or ERR_NO_MEMORY. */
int packets_new(comm_t *comm, const packet_limits_t *limits, packets_t *out, inferd_error_t *error);
void packets_free(packets_t *packets);
/* Rank 0. `batch` is that of a step, else NULL. What fails is in comm->error, too. */
int packets_send(packets_t *packets, packet_kind_t kind, const batch_t *batch);
/* The others: waits for the next packet. With a step packets->batch is filled: all that a forward
 * reads, without what is drawn. It stays so until limits.stage_steps more have come. */
int packets_receive(packets_t *packets, packet_kind_t *kind);

#endif
