/* graph.c: decode steps as graphs: captured before READY, replayed afterwards.
 *
 * Engine thread. A graph is a whole step of a fixed number of tokens, from the packet in the host's
 * memory to the results there; a batch of fewer tokens is padded to the next size. All addresses
 * are fixed and all lengths are read on the device, attention is planned inside, so a replay needs
 * only a new packet, one of two in turn, and its sequences may have draft tokens. The engine makes
 * two warm-up runs of each size: one launch by launch, so that every kernel is loaded, and one that
 * is captured. A graph of a step that draws nothing, of a draft model, is launched as soon as its
 * packet is there. Steps that are not pure decodes, are larger than the largest size, or have rows
 * that the host sorts run without a graph.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

enum {
  FINE_STEP = 8,
  FINE_MAX = 256,
  COARSE_STEP = 16,
  COARSE_MAX = 512,
  WIDE_STEP = 64, /* finer ones, doubled for adapters, would be more than GRAPHS_MAX */
  SIZE_MAX_TOKENS = 1024,
  GRAPH_BYTES = 4 << 20 /* of one graph on the device, for the plan */
};

/* The sizes: 1, 2, 4, 8, 16, ... 256 by 8, then by 16 up to 512, by 64 up to 1,024, none above
 * `most`, and `most` and `rows`, a token of each sequence, themselves. `size` 0 gives the smallest.
 */
static int32_t next_size(int32_t size, int32_t rows, int32_t most) {
  const int32_t step = size < FINE_MAX ? FINE_STEP : size < COARSE_MAX ? COARSE_STEP : WIDE_STEP;
  int32_t next = 1;
  while (next <= size && next < FINE_STEP) next *= 2;
  if (next <= size) next = size / step * step + step;
  if (size < rows) next = MIN(next, rows);
  return MIN(next, most);
}

/* Layers with a state, which have a convolution too, are captured for one token a row. */
int32_t graph_tokens_max(const step_limits_t *limits) {
  int32_t row = limits->conv_values_max > 0 ? 1 : 1 + limits->drafts_max;
  int64_t tokens = (int64_t)limits->reqs_max * row;
  int32_t batch = limits->tokens_max - limits->reqs_max; /* that has further rows of draws alone */
  return (int32_t)MIN(MIN(tokens, batch), SIZE_MAX_TOKENS);
}

/* Lists all sizes, smallest first; returns their number. */
static int32_t all_sizes(const step_limits_t *limits, int32_t sizes[GRAPHS_MAX]) {
  const int32_t rows = limits->reqs_max, most = graph_tokens_max(limits);
  int32_t count = 0, size = 0;
  while (count < GRAPHS_MAX && size < most) sizes[count++] = size = next_size(size, rows, most);
  return count;
}

/* The index-th size from the largest down; 0 = no more. */
static int32_t size_from_top(const device_t *device, int32_t index) {
  int32_t sizes[GRAPHS_MAX], count = all_sizes(&device->limits, sizes);
  return index < count ? sizes[count - 1 - index] : 0;
}

size_t graph_bytes(const step_limits_t *limits) {
  const bool repeats = limits->drafts_max > 0 && limits->drafts_all_max == 0; /* a draft model */
  int32_t sizes[GRAPHS_MAX], times = limits->adapter_rank_max > 0 || repeats ? 2 : 1;
  return (size_t)all_sizes(limits, sizes) * GRAPH_BYTES * (size_t)times;
}

/* Not if ranks exchange through the host. */
static bool has_graphs(const device_t *device) {
  return device->exchange == NULL || device->exchange->way->in_graphs;
}

int32_t cuda_warm_up_rows(device_t *device, int32_t index) {
  int32_t rows = size_from_top(device, index / 2);
  if (!has_graphs(device) && index > 0) rows = 0; /* the largest loads every kernel */
  if (device->blas != NULL && !device->blas->is_tuned && index > 0)
    blas_tune(device); /* every shape is registered now */
  device->warm_up = index;
  device->is_warming_up = rows > 0;
  return rows;
}

/* Returns true if every row decodes one token, or verifies draft tokens, and needs the logits of
 * all, or of none. */
static bool is_pure_decode(const device_t *device, const batch_t *batch) {
  int32_t queries = device->state.num_slots > 0 ? 1 : GPU_DECODE_QUERIES_MAX;
  return batch->max_query_len <= queries &&
         (batch->num_selected == batch->num_tokens || batch->num_selected == 0);
}

static bool is_of_kind(const step_graph_t *graph, const batch_t *batch) {
  return graph->is_adapted == (batch->num_adapted > 0) && graph->draws == (batch->num_selected > 0);
}

/* Finds the smallest graph that is large enough for the batch; the list has the largest first. */
static const step_graph_t *smallest_graph(const device_t *device, const batch_t *batch) {
  const step_graph_t *best = NULL;
  if (!is_pure_decode(device, batch) || batch->reports_many) return NULL;
  if (lora_has_factors(device, batch)) return NULL;
  for (int32_t i = 0; i < device->num_graphs && device->graphs[i].tokens >= batch->num_tokens;
       i++) {
    if (is_of_kind(&device->graphs[i], batch)) best = &device->graphs[i];
  }
  return best;
}

void graph_choose(device_t *device, const batch_t *batch) {
  device->selected_rows = batch->num_selected;
  device->graph = NULL;
  device->is_launched = false;
  device->mode = STEP_EAGER;
  if (device->is_warming_up) {
    if (device->warm_up % 2 == 1) device->mode = STEP_CAPTURE;
    return;
  }
  device->graph = smallest_graph(device, batch);
  if (device->graph == NULL) return;
  device->mode = STEP_REPLAY;
  device->selected_rows = device->graph->draws ? device->graph->tokens : 0;
}

void graph_begin_capture(device_t *device) {
  device_note(device, exchange_sync(device), "the step before a capture");
  device_note(device, (int)cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal),
              "the begin of a capture");
}

void graph_end_capture(device_t *device) {
  cudaGraph_t graph = NULL;
  step_graph_t *made = &device->graphs[device->num_graphs];
  CHECK_LT(device->num_graphs, GRAPHS_MAX);
  /* End the capture even after a fault: a stream cannot be used while it captures. */
  int status = (int)cudaStreamEndCapture(device->stream, &graph);
  device_note(device, status, "the end of a capture");
  size_t before = 0, after = 0, total;
  cudaMemGetInfo(&before, &total);
  if (status == 0 && device->fault == 0)
    device_note(device, (int)cudaGraphInstantiate(&made->exec, graph, 0), "the making of a graph");
  if (status == 0 && device->fault == 0) /* or the first replay would do it, in a request */
    device_note(device, (int)cudaGraphUpload(made->exec, device->stream), "the upload of a graph");
  cudaMemGetInfo(&after, &total);
  if (after < before) device->taken_by_graphs += before - after;
  if (graph != NULL) cudaGraphDestroy(graph);
  if (device->fault != 0) {
    if (made->exec != NULL) cudaGraphExecDestroy(made->exec);
    made->exec = NULL;
    return;
  }
  made->tokens = device->batch->num_tokens;
  made->is_adapted = device->batch->num_adapted > 0;
  made->draws = device->batch->num_selected > 0;
  exchange_captured(device, device->num_graphs);
  device->num_graphs++;
}

void graph_launch(device_t *device) {
  if (device->is_launched || device->fault != 0) return;
  device->is_launched = true;
  exchange_replayed(device, (int32_t)(device->graph - device->graphs));
  ((gpu_packet_t *)(void *)device->step->packet)->bytes = (int32_t)device->packed;
  device_note(device, (int)cudaGraphLaunch(device->graph->exec, device->stream), "the graph");
}

void graph_release(device_t *device) {
  for (int32_t i = 0; i < device->num_graphs; i++) cudaGraphExecDestroy(device->graphs[i].exec);
  device->num_graphs = 0;
}
