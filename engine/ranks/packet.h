/* packet.h: what rank 0 tells the other ranks of a step: the prepared batch, in one packet.
 *
 * A packet has no text, and of the requests no more than the batch has: the ids of the tokens that
 * the step computes. Packets stand in a buffer that is made at start. One thread of each rank.
 */
#ifndef INFERD_ENGINE_RANKS_PACKET_H
#define INFERD_ENGINE_RANKS_PACKET_H

#include "engine/device/batch.h"
#include "engine/device/comm.h"

typedef enum packet_kind {
  PACKET_STEP,
  PACKET_IDLE,    /* rank 0 lives, and has no step */
  PACKET_ADAPTER, /* one for `slot` follows (model_share_adapter) */
  PACKET_STOP
} packet_kind_t;

/* Sizes of the largest batch; equal on all ranks. */
typedef struct packet_limits {
  int32_t tokens_max, reqs_max, block_table_stride, num_groups, block_size;
  int32_t state_saves_max; /* 0 = no layer has a state */
  int32_t adapters_max;
} packet_limits_t;

typedef struct packets {
  comm_t *comm;
  packet_limits_t limits;
  uint8_t *bytes; /* owned */
  size_t capacity;
  uint64_t sent_ns; /* when rank 0 sent the last one */
  int32_t slot;     /* of PACKET_ADAPTER: what is sent, or was received */
  batch_t *batch;   /* of a receiver, owned */
  int32_t *tables;  /* [reqs_max][num_groups, stride] of a receiver's batch, owned */
} packets_t;

/* 0 or ERR_NO_MEMORY. */
int packets_new(comm_t *comm, const packet_limits_t *limits, packets_t *out, inferd_error_t *error);
void packets_free(packets_t *packets);
/* Rank 0. `batch` is that of a step, else NULL. What fails is in comm->error, too. */
int packets_send(packets_t *packets, packet_kind_t kind, const batch_t *batch);
/* The others: waits for the next packet. With a step packets->batch is filled: all that a forward
 * reads, without what is drawn. */
int packets_receive(packets_t *packets, packet_kind_t *kind);

#endif
