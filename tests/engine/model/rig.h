/* rig.h: one model on one back end, driven without the engine: ids in, logits out.
 *
 * Shared by the tests and by the program of `make parity`. One sequence at a time; its blocks are
 * handed out in a scattered order, so that a kernel that ignores the block table is seen.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_RIG_H
#define INFERD_TESTS_ENGINE_MODEL_RIG_H

#include "engine/model/model.h"

typedef struct rig_options {
  const ops_t *ops;
  const char *isa; /* NULL = "auto" */
  const char *dir;
  bool dummy;
  uint64_t seed;
  int32_t dtype;         /* -1 = the checkpoint's */
  int32_t max_model_len; /* 0 = the model's, at most 512 */
  int num_threads;
  bool kv_int8;         /* codes of 8 bits in the cache */
  bool mtp;             /* with the layer that predicts */
  bool sees;            /* with the tower */
  int32_t host_experts; /* model_options_t */
  const char *adapter;  /* directory of an adapter that every token takes; NULL = none */
} rig_options_t;

/* A prompt with pictures, or its first `count` tokens: what batch_t has of a step. */
typedef struct rig_sight {
  int32_t count, num_deep;
  const float *const *rows;      /* [count]; NULL = a token of text */
  const int32_t *rope_positions; /* [3, count]; NULL = none */
  const int32_t *seen_until;     /* [count]; NULL = none */
} rig_sight_t;

typedef struct rig {
  const ops_t *ops;
  device_t *device;
  model_t *model;
  struct tower *tower; /* NULL = it was not asked for */
  blueprint_t blueprint;
  batch_t batch;
  int32_t max_len, tokens_max;
  int32_t adapter; /* slot that tokens take, 0 = none */
  struct adapter *adapted;
  int32_t beside;           /* tokens of the prompt that every step runs as another sequence, too */
  const int32_t *prompt;    /* these, of `sight` */
  const rig_sight_t *sight; /* of the sequence that runs; NULL = text alone */
  int32_t *blocks;          /* [max_len / block_size + 1] */
} rig_t;

int rig_open(const rig_options_t *options, rig_t *rig, inferd_error_t *error);
void rig_close(rig_t *rig);
/* Runs ids[count] at positions start.. and writes the logits of the last `wanted` of them,
 * [wanted, vocab]. What stood before `start` must have been run. 0 or the device's error. */
int rig_run(rig_t *rig, const int32_t *ids, int32_t count, int32_t start, int32_t wanted,
            float *logits, inferd_error_t *error);
/* Fills the batch with these tokens, and the last `wanted` of them selected. */
void rig_batch(rig_t *rig, const int32_t *ids, int32_t count, int32_t start, int32_t wanted);
/* Runs the layer that predicts: `next` are the tokens behind those at start.., `rows` [count, h].
 * Writes what leaves it, `out` [count, h], and its logits [count, vocab]. */
int rig_predict(rig_t *rig, const int32_t *next, int32_t count, int32_t start, const float *rows,
                float *out, float *logits, inferd_error_t *error);

#endif
