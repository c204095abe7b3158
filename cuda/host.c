/* host.c: experts in host memory, which the CPU back end computes within a step of a GPU.
 *
 * The rows that enter such a layer are copied to pinned memory, a host function of the stream runs
 * the operation there, and a copy brings the sums back: all in the order of the stream, and nodes
 * of graphs as kernels are. The residual travels, too: with it as many bytes go over the bus as
 * with float sums, and the sum is rounded once, as by the kernels of the device. The engine thread
 * waits for none of this. host_run is the only function on another thread, one of the driver's,
 * which may not call CUDA. Steps that are in flight at the same time share all buffers: one stream
 * has both.
 *
 * The device of the CPU back end has weights, threads and the workspace of experts alone: it never
 * begins a step of its own.
 */
#include "cuda/host.h"

#include "cuda/operations.h"
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/half.h"
#include "engine/base/util.h"

#include <stdatomic.h>
#include <string.h>

enum {
  HOST_ROWS = 512,        /* rows that the CPU back end gets at a time: it routes as many */
  HOST_LAYERS_MAX = 1024, /* layers of a model */
  HEAD_DIM = 8,
  VOCAB = 64 /* of the inner device, which has neither heads nor a vocabulary */
};

/* One layer, as its host function is told; the same in every step and graph. */
typedef struct host_job {
  host_experts_t *all;
  moe_t moe;
  bool has_residual;
  uint64_t least_ns; /* that one row took; UINT64_MAX = there was none */
} host_job_t;

struct host_experts {
  device_options_t options; /* of `inner` */
  device_t *inner;          /* of ops_cpu; NULL = all experts are on the device */
  dtype_t dtype;            /* of the rows that travel */
  /* Pinned, [tokens_max, hidden_max]; and the number of tokens of the step that runs. */
  uint16_t *in, *residual, *out;
  int32_t *num_tokens;
  float *rows, *sums; /* of `inner`, [HOST_ROWS, hidden_max] */
  size_t written;     /* values of `out` that may not be 0 */
  /* Rows that are computed at most. Warm-up runs need no more than one: nobody reads what comes of
   * them, and a run of many would read the experts of all layers. */
  _Atomic int32_t rows_most;
  host_job_t *jobs; /* [HOST_LAYERS_MAX] */
  int32_t num_jobs;
};

int host_open(device_t *device, const device_options_t *options, inferd_error_t *error) {
  int code = device_take_heap(device, (void **)&device->host, sizeof *device->host,
                              "experts in host memory", error);
  if (code) return code;
  device->host->options = (device_options_t){.num_threads = options->num_threads,
                                             .isa = options->isa != NULL ? options->isa : "auto"};
  return 0;
}

static int open_inner(device_t *device, device_t **out, inferd_error_t *error) {
  host_experts_t *host = device->host;
  int code = 0;
  if (host->inner == NULL) code = ops_cpu.open(&host->options, &host->inner, error);
  *out = host->inner;
  return code;
}

/* Of the CPU back end: the workspace of experts, and as little as it takes of the rest. */
static step_limits_t inner_limits(const step_limits_t *limits) {
  return (step_limits_t){.tokens_max = MIN(limits->tokens_max, HOST_ROWS),
                         .reqs_max = 1,
                         .logits_rows_max = 1,
                         .hidden_max = limits->hidden_max,
                         .vocab_size = VOCAB,
                         .max_model_len = 1,
                         .heads_max = 1,
                         .head_dim_max = HEAD_DIM,
                         .experts_max = limits->experts_max,
                         .experts_top_max = limits->experts_top_max,
                         .expert_width_max = limits->expert_width_max};
}

/* Rows in pinned memory, thrice, their floats, and what each pair of a row and an expert takes. */
static size_t workspace_bytes(const step_limits_t *limits) {
  const step_limits_t inner = inner_limits(limits);
  const size_t hidden = (size_t)limits->hidden_max, rows = (size_t)inner.tokens_max;
  const size_t pairs = rows * (size_t)inner.experts_top_max;
  return 3 * (size_t)limits->tokens_max * hidden * sizeof(uint16_t) +
         2 * rows * hidden * sizeof(float) +
         pairs * 2 * (hidden + (size_t)inner.expert_width_max) * sizeof(float);
}

const host_ops_t cuda_host = {
    .ops = &ops_cpu, .open = open_inner, .workspace_bytes = workspace_bytes};

int host_prepare(device_t *device, inferd_error_t *error) {
  static const char what[] = "experts in host memory";
  host_experts_t *host = device->host;
  const step_limits_t inner = inner_limits(&device->limits);
  if (host->inner == NULL) return 0;
  const size_t bytes = device_product((size_t)device->limits.tokens_max,
                                      (size_t)device->limits.hidden_max, sizeof(uint16_t));
  host->dtype = device->dtype;
  atomic_store(&host->rows_most, INT32_MAX);
  int code = device_take_pinned(device, (void **)&host->in, bytes, what, error);
  if (!code) code = device_take_pinned(device, (void **)&host->residual, bytes, what, error);
  if (!code) code = device_take_pinned(device, (void **)&host->out, bytes, what, error);
  if (!code)
    code = device_take_pinned(device, (void **)&host->num_tokens, sizeof(int32_t), what, error);
  if (!code)
    code = device_take_heap(device, (void **)&host->jobs,
                            device_product(HOST_LAYERS_MAX, sizeof *host->jobs, 1), what, error);
  if (!code) code = ops_cpu.prepare(host->inner, &inner, error);
  if (code) return code;
  host->rows = (float *)(void *)ops_cpu.buffer(host->inner, inner.tokens_max, inner.hidden_max);
  host->sums = (float *)(void *)ops_cpu.buffer(host->inner, inner.tokens_max, inner.hidden_max);
  if (host->rows != NULL && host->sums != NULL) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL, "no host memory for %s", what);
}

void host_close(device_t *device) {
  if (device->host != NULL && device->host->inner != NULL) ops_cpu.close(device->host->inner);
  if (device->host != NULL) device->host->inner = NULL;
}

int32_t host_layers(const device_t *device, const char **description, double *token_ms) {
  const host_experts_t *host = device->host;
  *description = host->inner != NULL ? ops_cpu.describe(host->inner) : "";
  *token_ms = 0;
  for (int32_t i = 0; i < host->num_jobs; i++)
    if (host->jobs[i].least_ns != UINT64_MAX) *token_ms += (double)host->jobs[i].least_ns * 1e-6;
  return host->num_jobs;
}

static void widen(float *out, const uint16_t *in, size_t count, dtype_t dtype) {
  if (dtype == DTYPE_BF16)
    for (size_t i = 0; i < count; i++) out[i] = float_from_bf16(in[i]);
  else
    for (size_t i = 0; i < count; i++) out[i] = float_from_f16(in[i]);
}

static void narrow(uint16_t *out, const float *in, size_t count, dtype_t dtype) {
  if (dtype == DTYPE_BF16)
    for (size_t i = 0; i < count; i++) out[i] = bf16_from_float(in[i]);
  else
    for (size_t i = 0; i < count; i++) out[i] = f16_from_float(in[i]);
}

/* On a thread of the driver: the rows of the step, and zeros for those that pad it. */
static void host_run(void *context) {
  host_job_t *job = context;
  host_experts_t *host = job->all;
  const size_t width = (size_t)job->moe.host_width;
  const int32_t most = atomic_load(&host->rows_most), count = MIN(*host->num_tokens, most);
  act_t *rows = (act_t *)(void *)host->rows, *sums = (act_t *)(void *)host->sums;
  const uint64_t begin_ns = clock_now_ns();
  for (int32_t first = 0; first < count; first += HOST_ROWS) {
    const int32_t some = MIN(count - first, HOST_ROWS);
    const size_t at = (size_t)first * width, values = (size_t)some * width;
    widen(host->rows, host->in + at, values, host->dtype);
    if (job->has_residual) widen(host->sums, host->residual + at, values, host->dtype);
    ops_cpu.moe(host->inner, sums, rows, job->has_residual ? sums : NULL, &job->moe, some);
    narrow(host->out + at, host->sums, values, host->dtype);
  }
  const size_t end = (size_t)count * width;
  if (end < host->written) memset(host->out + end, 0, (host->written - end) * sizeof *host->out);
  host->written = end;
  if (count == 1) job->least_ns = MIN(job->least_ns, clock_now_ns() - begin_ns);
}

/* What host_run is told of a layer; made by the first warm-up run, which has all layers. */
static host_job_t *job_of(host_experts_t *host, const moe_t *moe, bool has_residual) {
  for (int32_t i = 0; i < host->num_jobs; i++) {
    host_job_t *job = &host->jobs[i];
    if (job->moe.up == moe->up && job->has_residual == has_residual) return job;
  }
  CHECK_LT(host->num_jobs, HOST_LAYERS_MAX);
  host_job_t *made = &host->jobs[host->num_jobs++];
  *made =
      (host_job_t){.all = host, .moe = *moe, .has_residual = has_residual, .least_ns = UINT64_MAX};
  return made;
}

static void copy(device_t *device, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind) {
  if (!device_is_live(device)) return;
  device_note(device, (int)cudaMemcpyAsync(to, from, bytes, kind, device->stream),
              "experts in host memory");
}

void host_count(device_t *device) {
  host_experts_t *host = device->host;
  if (host->inner == NULL) return;
  atomic_store(&host->rows_most, device->is_warming_up ? 1 : INT32_MAX);
  copy(device, host->num_tokens, &device->inputs.packet->num_tokens, sizeof *host->num_tokens,
       cudaMemcpyDeviceToHost);
}

void host_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const moe_t *moe, int32_t rows) {
  host_experts_t *host = device->host;
  if (!device_is_live(device)) return;
  CHECK(moe->cuts == NULL && moe->router_in == NULL);
  CHECK_EQ(rows, device->batch->num_tokens);
  CHECK_LE(moe->host_width, device->limits.hidden_max);
  const size_t bytes = (size_t)rows * (size_t)moe->host_width * sizeof(uint16_t);
  host_job_t *job = job_of(host, moe, residual != NULL);
  copy(device, host->in, in, bytes, cudaMemcpyDeviceToHost);
  if (residual != NULL) copy(device, host->residual, residual, bytes, cudaMemcpyDeviceToHost);
  if (device_is_live(device))
    device_note(device, (int)cudaLaunchHostFunc(device->stream, host_run, job),
                "experts in host memory");
  copy(device, out, host->out, bytes, cudaMemcpyHostToDevice);
}
