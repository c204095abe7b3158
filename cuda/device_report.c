/* device_report.c: reports memory use and the choices that were made, for the operator.
 *
 * Engine thread, once, after the warm-up runs.
 */
#include "cuda/blas.h"
#include "cuda/host.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"

#include <stdio.h>

enum { LINE_MAX_BYTES = 200 };
static const double GIB = 1024.0 * 1024.0 * 1024.0;

static void report_products(const device_t *device, char *line) {
  const blas_t *blas = device->blas;
  if (blas != NULL) {
    snprintf(line, LINE_MAX_BYTES,
             "products  cuBLASLt %zu beside own kernels: %d choices measured, %d from the file",
             blas->api.version(), blas->num_timed, blas->num_cached);
  } else {
    snprintf(line, LINE_MAX_BYTES, "products  own kernels: %s",
             device->is_batch_invariant ? "no token depends on other requests"
                                        : "libcublasLt is not on this machine");
  }
}

/* Returns why prefills do not run on wgmma; the checks are in the order of prepare.c. */
static const char *why_not_wgmma(const device_t *device) {
  return device->is_batch_invariant  ? "no token depends on other requests"
         : device->kv.fp8            ? "the cache is e4m3"
         : device->kv.head_dim > 128 ? "heads of more than 128"
                                     : "no sm_90";
}

static void report_attention(const device_t *device, char *line) {
  snprintf(line, LINE_MAX_BYTES, "attention decode by mma.sync, prefill by %s%s",
           device->has_hopper_prefill ? "wgmma" : "mma.sync: ",
           device->has_hopper_prefill ? "" : why_not_wgmma(device));
}

void cuda_report(const device_t *device, void (*say)(void *context, const char *line),
                 void *context) {
  char line[LINE_MAX_BYTES];
  size_t left = 0, total = 0;
  cudaMemGetInfo(&left, &total);
  const size_t work = device->taken - device->taken_by_weights - device->taken_by_kv;
  snprintf(line, sizeof line,
           "device    weights %.2f GiB, kv cache %.2f, workspace %.2f, graphs %.2f (%d, up to %d "
           "rows), left %.2f",
           (double)device->taken_by_weights / GIB, (double)device->taken_by_kv / GIB,
           (double)work / GIB, (double)device->taken_by_graphs / GIB, device->num_graphs,
           device->num_graphs > 0 ? device->graphs[0].tokens : 0, (double)left / GIB);
  say(context, line);
  report_products(device, line);
  say(context, line);
  report_attention(device, line);
  say(context, line);
  const char *threads;
  double token_ms;
  const int32_t layers = host_layers(device, &threads, &token_ms);
  if (layers > 0) {
    snprintf(line, sizeof line,
             "experts   of %d layers in host memory, computed by %.100s: %.1f ms for one token",
             layers, threads, token_ms);
    say(context, line);
  }
  if (device->exchange == NULL) return;
  exchange_describe(device, line, sizeof line);
  say(context, line);
}
