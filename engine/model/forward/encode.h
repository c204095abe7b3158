/* encode.h: the encoder before a decoder: a source -> rows -> K and V of these in the decoder's
 * layers.
 *
 * The encoder is a model as any other (load.c) whose attention sees both ways; its layers run here,
 * between steps, part by part, so that steps and other runs go between them. A run is one source.
 * The bits of its rows depend on the source alone: not on other runs, nor on the parts in which
 * they are made. Engine thread only; nothing is allocated behind encode_new.
 * Symbols: P positions of a source, h hidden size, Hq/Hk heads, D head_dim.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_ENCODE_H
#define INFERD_ENGINE_MODEL_FORWARD_ENCODE_H

#include "engine/encoder_source.h"
#include "engine/model/model.h"

enum { ENCODE_RUNS_MAX = 8 };

typedef struct encode encode_runs_t;

typedef struct encode_input {
  const int32_t *ids; /* [P]; NULL = rows */
  const float *rows;  /* [2 P, bands], of an encoder that reads spectrograms */
  int32_t length;     /* P; at most the rows_max of the run */
  /* [P / block_size] where K and V of the rows are stored, in every layer of the decoder */
  const int32_t *blocks;
} encode_input_t;

/* Takes the buffers of runs of at most rows_max[i] positions. Both models are on one device and
 * stay; after `prepare` of the device. 0 and *out, or ERR_NO_MEMORY. */
int encode_new(const model_t *encoder, const model_t *decoder, const int32_t *rows_max,
               int32_t num_runs, encode_runs_t **out, inferd_error_t *error);
void encode_free(encode_runs_t *encode); /* NULL is allowed; device memory goes with the device */

/* The sizes that a plan of memory and of time needs: bytes that encode_new takes for a run, and for
 * all of them together; multiplications of a source. */
size_t encode_run_bytes(const blueprint_t *encoder, int32_t rows_max);
size_t encode_shared_bytes(const blueprint_t *encoder, const blueprint_t *decoder);
int64_t encode_work(const blueprint_t *encoder, const blueprint_t *decoder, int32_t length);

/* Which run the functions below mean; the first one until it is called. */
void encode_choose(encode_runs_t *encode, int32_t run);
/* Starts a run, in place of one that is not complete. What `input` points to is used until it is.
 */
void encode_begin(encode_runs_t *encode, const encode_input_t *input);
/* Does about so many multiplications of it, some at least. Returns whether it is complete. */
bool encode_advance(encode_runs_t *encode, int64_t work);
int64_t encode_work_done(const encode_runs_t *encode); /* multiplications, since it began */
/* For tests, of a complete run: out[P, h] = the rows of the encoder. */
void encode_read(const encode_runs_t *encode, float *out);

#endif
