/* chunks.c: three convolutions over time and frequency, and a matrix: rows of a spectrogram ->
 * positions of Qwen3-ASR's encoder. Reference: qwen3_asr of transformers.
 *
 * Op calls on the engine thread, between two steps. A chunk is by itself: what stands around it is
 * zero. Each convolution is a product of rows, of which one is what a place of its output reads:
 * three times by three frequencies of all channels. Values stand (time, frequency, channel).
 */
#include "engine/base/util.h"
#include "engine/model/towers/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  CHUNK_PART = 256, /* rows of a product */
  CONVOLUTIONS = 3,
  SIDE = 3, /* of what a place reads */
  READ = SIDE * SIDE
};

typedef struct chunk_plane {
  int32_t times, bands, channels;
} chunk_plane_t;

/* What goes into convolution `index` of a chunk of `rows`, or what comes out of the last one. */
static chunk_plane_t plane_from(const tower_plan_t *plan, int index, int32_t rows) {
  chunk_plane_t plane = {rows, plan->bands, 1};
  for (int i = 0; i < index; i++)
    plane = (chunk_plane_t){DIV_UP(plane.times, 2), DIV_UP(plane.bands, 2), plan->channels};
  return plane;
}

static chunk_plane_t plane_of(const tower_plan_t *plan, int index) {
  return plane_from(plan, index, TOWER_CHUNK_ROWS);
}

static int64_t places_of(chunk_plane_t plane) {
  return (int64_t)plane.times * plane.bands;
}

/* Columns of the last matrix. */
static int64_t out_columns(const tower_plan_t *plan) {
  const chunk_plane_t plane = plane_of(plan, CONVOLUTIONS);
  return (int64_t)plane.bands * plane.channels;
}

int64_t chunk_work(const tower_plan_t *plan) {
  int64_t work = plan->chunk * out_columns(plan) * plan->hidden;
  for (int i = 0; i < CONVOLUTIONS; i++)
    work += places_of(plane_of(plan, i + 1)) * plan->channels * READ * plane_of(plan, i).channels;
  return work / plan->chunk;
}

int64_t chunk_num_weights(const tower_plan_t *plan) {
  int64_t count = out_columns(plan) * plan->hidden;
  for (int i = 0; i < CONVOLUTIONS; i++)
    count += (int64_t)plan->channels * READ * plane_of(plan, i).channels;
  return count;
}

static int64_t plane_values(const tower_plan_t *plan) {
  return MAX((int64_t)TOWER_CHUNK_ROWS * plan->bands,
             places_of(plane_of(plan, 1)) * plan->channels);
}

static int64_t read_values(const tower_plan_t *plan) {
  return MAX((int64_t)READ * plan->channels, out_columns(plan));
}

size_t chunk_bytes(const tower_plan_t *plan) {
  if (!tower_has_chunks(plan)) return 0;
  const int64_t part = 2 * read_values(plan) + plan->channels;
  return (size_t)(2 * plane_values(plan) + CHUNK_PART * part) * sizeof(float);
}

bool chunk_take(tower_t *tower) {
  const tower_plan_t *plan = &tower->plan;
  tower_chunk_t *chunk = &tower->chunk;
  if (!tower_has_chunks(plan)) return true;
  for (int i = 0; i < 2; i++) chunk->planes[i] = calloc((size_t)plane_values(plan), sizeof(float));
  chunk->columns = calloc((size_t)read_values(plan), CHUNK_PART * sizeof(float));
  chunk->read = tower->ops->buffer(tower->device, CHUNK_PART, read_values(plan));
  chunk->made = tower->ops->buffer(tower->device, CHUNK_PART, plan->channels);
  return chunk->planes[0] != NULL && chunk->planes[1] != NULL && chunk->columns != NULL &&
         chunk->read != NULL && chunk->made != NULL;
}

void chunk_free(tower_t *tower) {
  free(tower->chunk.planes[0]);
  free(tower->chunk.planes[1]);
  free(tower->chunk.columns);
}

/* In fp32, as the reference. */
void chunk_table(const tower_plan_t *plan, float *out) {
  const int32_t half = plan->hidden / 2;
  const float step = (float)(-log(10000) / (half - 1));
  for (int32_t place = 0; place < plan->chunk; place++) {
    float *row = out + (int64_t)place * plan->hidden;
    for (int32_t i = 0; i < half; i++) {
      const float angle = (float)place * expf(step * (float)i);
      row[i] = sinf(angle);
      row[half + i] = cosf(angle);
    }
  }
}

/* What place (time, band) of the output reads of `in`: (time, frequency, channel). */
static void read_place(const float *in, chunk_plane_t plane, int32_t time, int32_t band,
                       float *out) {
  const size_t bytes = (size_t)plane.channels * sizeof *out;
  for (int32_t k = 0; k < READ; k++, out += plane.channels) { /* frequency by frequency */
    const int32_t t = 2 * time + k % SIDE - 1, f = 2 * band + k / SIDE - 1;
    if (t < 0 || t >= plane.times || f < 0 || f >= plane.bands)
      memset(out, 0, bytes);
    else
      memcpy(out, in + ((int64_t)t * plane.bands + f) * plane.channels, bytes);
  }
}

static void convolve(tower_t *tower, int index, int32_t rows, const float *in, float *out) {
  const tower_linear_t *const layers[] = {&tower->patch, &tower->conv, &tower->conv_3};
  const tower_linear_t *layer = layers[index];
  const ops_t *ops = tower->ops;
  tower_chunk_t *chunk = &tower->chunk;
  const chunk_plane_t plane = plane_from(&tower->plan, index, rows);
  const chunk_plane_t made = plane_from(&tower->plan, index + 1, rows);
  const int32_t columns = READ * plane.channels, places = (int32_t)places_of(made);
  for (int32_t first = 0; first < places; first += CHUNK_PART) {
    const int32_t count = MIN(CHUNK_PART, places - first);
    for (int32_t i = 0; i < count; i++)
      read_place(in, plane, (first + i) / made.bands, (first + i) % made.bands,
                 chunk->columns + (int64_t)i * columns);
    ops->write_rows(tower->device, chunk->read, chunk->columns, columns, count);
    ops->linear(tower->device, chunk->made, chunk->read, layer->weight, layer->bias, NULL, count);
    ops->activation(tower->device, chunk->made, chunk->made, ACTIVATION_GELU, made.channels, count);
    ops->read_rows(tower->device, out + (int64_t)first * made.channels, chunk->made, made.channels,
                   count);
  }
}

void chunk_run(tower_t *tower, act_t *out, const float *rows, int32_t num_rows, int32_t count) {
  const ops_t *ops = tower->ops;
  tower_chunk_t *chunk = &tower->chunk;
  convolve(tower, 0, num_rows, rows, chunk->planes[0]);
  convolve(tower, 1, num_rows, chunk->planes[0], chunk->planes[1]);
  convolve(tower, 2, num_rows, chunk->planes[1], chunk->planes[0]);
  ops->write_rows(tower->device, chunk->read, chunk->planes[0], (int32_t)out_columns(&tower->plan),
                  count);
  ops->linear(tower->device, out, chunk->read, tower->conv_out.weight, tower->conv_out.bias, NULL,
              count);
}
