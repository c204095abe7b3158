/* emu_runtime_stream.cc: the fake runtime's streams, events, copies and launches.
 *
 * Work waits in its stream until the host waits for it: the harshest schedule that is legal, in
 * which a host that reads a buffer too early sees the old one. A query answers first and then lets
 * one piece of work run, so that polling ends.
 */
#include "emu_runtime.h"
#include <chrono>
#include <memory>

namespace emu {

enum { GRID_YZ_MAX = 65535, BLOCK_THREADS_MAX = 1024, BLOCK_Z_MAX = 64, SHARED_DEFAULT = 48 << 10 };

double host_clock_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

CUstream_st *stream_of(cudaStream_t stream) {
  return stream ? stream : &runtime().legacy;
}

static void run_one(CUstream_st *s) {
  Work work = std::move(s->queue.front());
  s->queue.pop_front();
  if (!runtime().sticky) work();
  s->done++;
}

/* After a sticky error the queues empty without running. */
void drain(CUstream_st *s, uint64_t position) {
  while (s->done < position && !s->queue.empty()) run_one(s);
}

static bool has_work(const CUstream_st *s) {
  return !s->queue.empty();
}

void drain_all() {
  Runtime &r = runtime();
  for (;;) {
    std::vector<CUstream_st *> busy;
    for (CUstream_st *s : r.streams)
      if (has_work(s)) busy.push_back(s);
    if (busy.empty()) return;
    const uint32_t n = (uint32_t)busy.size();
    CUstream_st *s = busy[r.mode == STREAM_RANDOM ? random_below(n) : n - 1];
    if (r.mode == STREAM_RANDOM)
      run_one(s);
    else
      drain(s, s->queued);
  }
}

static void order_after(CUstream_st *s, CUstream_st *earlier) {
  if (earlier->queued == earlier->done) return;
  const uint64_t position = earlier->queued;
  s->queue.push_back([earlier, position] { drain(earlier, position); });
  s->queued++;
}

static void run_some(void) {
  Runtime &r = runtime();
  for (uint32_t i = random_below(4); i > 0; i--) {
    CUstream_st *s = r.streams[random_below((uint32_t)r.streams.size())];
    if (has_work(s)) run_one(s);
  }
}

extern "C" int emu_run_one(void) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  for (CUstream_st *s : runtime().streams) {
    if (!has_work(s) || s->capture) continue;
    run_one(s);
    return 1;
  }
  return 0;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  Runtime &r = runtime();
  CUstream_st *s = stream_of(stream);
  if (s->capture) {
    s->capture->nodes.push_back({std::move(work), s->tail});
    s->tail = {s->capture->nodes.size() - 1};
    return s->capture->broken;
  }
  if (s == &r.legacy && r.captures) return refuse_in_capture();
  if (s == &r.legacy) {
    for (CUstream_st *other : r.streams)
      if (other != s && other->blocking) order_after(s, other);
  } else if (s->blocking) {
    order_after(s, &r.legacy);
  }
  s->queue.push_back(std::move(work));
  s->queued++;
  if (r.mode == STREAM_EAGER) drain(s, s->queued);
  if (r.mode == STREAM_RANDOM) run_some();
  return r.sticky;
}

static const char *launch_refusal(const LaunchShape &s, const void *kernel) {
  const uint64_t threads = (uint64_t)s.block.x * s.block.y * s.block.z;
  if (!threads || threads > BLOCK_THREADS_MAX || s.block.z > BLOCK_Z_MAX)
    return "size of the block";
  if (!s.grid.x || !s.grid.y || !s.grid.z || s.grid.x > INT32_MAX || s.grid.y > GRID_YZ_MAX ||
      s.grid.z > GRID_YZ_MAX)
    return "size of the grid";
  if (s.cluster > 8 || (s.cluster && s.grid.x % s.cluster)) return "size of the cluster";
  auto found = runtime().shared_limit.find(kernel);
  const int limit = found == runtime().shared_limit.end() ? SHARED_DEFAULT : found->second;
  if (s.shared_bytes > (size_t)limit) return "shared memory above what cudaFuncSetAttribute allows";
  return nullptr;
}

/* The driver loads a kernel's code when it is launched for the first time, which may need memory
 * and wait for the device: no capture may begin with it. */
static cudaError_t load_kernel(const CUstream_st *s, const Launch &launch) {
  if (!runtime().loaded.insert(launch.kernel).second) return cudaSuccess;
  runtime().calls["load"]++;
  if (!s->capture) return cudaSuccess;
  fprintf(stderr, "emu: %s is captured and was never launched\n", launch.shape.name);
  return refuse_in_capture();
}

cudaError_t enqueue_launch(cudaStream_t stream, const Launch &launch, void (*release)(void *)) {
  std::shared_ptr<void> arguments(launch.argument, release);
  Call call("launch");
  if (call.error) return call.error;
  if (const char *why = launch_refusal(launch.shape, launch.kernel)) {
    fprintf(stderr, "emu: launch of %s refused: %s\n", launch.shape.name, why);
    return set_error(cudaErrorInvalidConfiguration);
  }
  if (stream && stream->device != device_set) return set_error(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = load_kernel(stream_of(stream), launch)) return error;
  return set_error(enqueue(stream, [launch, arguments] {
    if (!launch_runner(launch)) set_error(cudaErrorLaunchFailure);
    check_guards(launch.shape.name);
  }));
}

/* ---- Copies ---- */

static void copy_bytes(void *dst, const void *src, size_t size) {
  if (size) memcpy(dst, src, size);
}

static bool side_is_right(const void *p, size_t size, bool on_device) {
  return !size || is_inside(runtime().device, p, size) == on_device;
}

static cudaError_t copy_check(const void *dst, const void *src, size_t size, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (side_is_right(dst, size, to_device) && side_is_right(src, size, from_device))
    return cudaSuccess;
  fprintf(stderr, "emu: copy of kind %d, %zu bytes: wrong side or out of range\n", (int)kind, size);
  return cudaErrorInvalidValue;
}

} // namespace emu

using namespace emu;

/* Pageable memory is read when the copy runs: most drivers stage it before they return, but need
 * not where the device reads such memory itself. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Call call("cudaMemcpyAsync");
  if (call.error) return call.error;
  if (cudaError_t error = copy_check(dst, src, size, kind)) return set_error(error);
  Runtime &r = runtime();
  CUstream_st *s = stream_of(stream);
  auto is_pageable = [&r, size](const void *p) {
    return !is_inside(r.device, p, size) && !is_inside(r.pinned, p, size);
  };
  const cudaError_t error = enqueue(stream, [=] { copy_bytes(dst, src, size); });
  if (is_pageable(dst) && !s->capture) drain(s, s->queued);
  return set_error(error);
}

/* Row by row: every row is checked. */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  if (width > dst_pitch || width > src_pitch) return set_error(cudaErrorInvalidValue);
  for (size_t row = 0; row < height; row++) {
    cudaError_t error =
        cudaMemcpyAsync(static_cast<char *>(dst) + row * dst_pitch,
                        static_cast<const char *>(src) + row * src_pitch, width, kind, stream);
    if (error) return error;
  }
  return cudaSuccess;
}

/* Copies between the device and pinned memory, in any order. */
cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes,
                                 size_t count, cudaMemcpyAttributes *attributes, size_t *firsts,
                                 size_t num_attributes, cudaStream_t stream) {
  Call call("cudaMemcpyBatchAsync");
  if (call.error) return call.error;
  Runtime &r = runtime();
  if (!stream || count == 0 || num_attributes != 1 || firsts[0] != 0 ||
      attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream)
    return set_error(cudaErrorInvalidValue);
  if (stream->capture) return refuse_in_capture();
  struct Copy {
    void *dst;
    const void *src;
    size_t size;
  };
  std::vector<Copy> copies;
  auto is_known = [&r](const void *p, size_t size) {
    return is_inside(r.device, p, size) || is_inside(r.pinned, p, size);
  };
  for (size_t i = 0; i < count; i++) {
    if (sizes[i] == 0 || !is_known(dsts[i], sizes[i]) || !is_known(srcs[i], sizes[i]))
      return set_error(cudaErrorInvalidValue);
    copies.push_back({dsts[i], srcs[i], sizes[i]});
    std::swap(copies.back(), copies[random_below((uint32_t)copies.size())]);
  }
  return set_error(enqueue(stream, [copies] {
    for (const Copy &c : copies) copy_bytes(c.dst, c.src, c.size);
  }));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t size, cudaMemcpyKind kind) {
  Call call("cudaMemcpy");
  if (call.error) return call.error;
  if (cudaError_t error = copy_check(dst, src, size, kind)) return set_error(error);
  if (cudaError_t error = enqueue(nullptr, [=] { copy_bytes(dst, src, size); }))
    return set_error(error);
  drain(&runtime().legacy, runtime().legacy.queued);
  return set_error(runtime().sticky);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream) {
  Call call("cudaMemsetAsync");
  if (call.error) return call.error;
  if (!side_is_right(p, size, true)) return set_error(cudaErrorInvalidValue);
  return set_error(enqueue(stream, [=] {
    if (size) memset(p, value, size);
  }));
}
cudaError_t cudaMemset(void *p, int value, size_t size) {
  return cudaMemsetAsync(p, value, size, nullptr);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
  Call call("cudaLaunchHostFunc");
  if (call.error) return call.error;
  return set_error(enqueue(stream, [=] { run_host_function(function, argument); }));
}

/* ---- Streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  Call call("cudaStreamCreate");
  if (call.error) return call.error;
  *stream = new CUstream_st;
  (*stream)->device = device_set;
  (*stream)->blocking = !(flags & cudaStreamNonBlocking);
  runtime().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  std::vector<CUstream_st *> &all = runtime().streams;
  for (size_t i = 1; i < all.size(); i++) {
    if (all[i] != stream) continue;
    drain_all(); /* others may wait for it */
    all.erase(all.begin() + (long)i);
    runtime().retired.push_back(stream); /* events may still name it */
    return cudaSuccess;
  }
  return set_error(cudaErrorInvalidResourceHandle);
}

/* Where waiting fails the device is lost: what the stream had is never run. */
static void lose_work(CUstream_st *s) {
  s->done += s->queue.size();
  s->queue.clear();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call("cudaStreamSynchronize");
  CUstream_st *s = stream_of(stream);
  if (call.error == NOT_PERMITTED) return call.error;
  if (call.error) {
    lose_work(s);
    return call.error;
  }
  if (s->capture) return refuse_in_capture();
  drain(s, s->queued);
  return set_error(runtime().sticky);
}

cudaError_t cudaDeviceSynchronize(void) {
  Call call("cudaDeviceSynchronize");
  if (call.error) return call.error;
  if (runtime().captures) return refuse_in_capture();
  drain_all();
  return set_error(runtime().sticky);
}

cudaError_t cudaDeviceReset(void) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  drain_all();
  runtime().sticky = runtime().last = cudaSuccess;
  return cudaSuccess;
}

/* ---- Events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  Call call("cudaEventCreate");
  if (call.error) return call.error;
  *event = new CUevent_st;
  (*event)->device = device_set;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  if (event && event->stream) drain(event->stream, event->position); /* it sets the time */
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call("cudaEventRecord");
  if (call.error) return call.error;
  CUstream_st *s = stream_of(stream);
  if (stream && s->device != event->device) return set_error(cudaErrorInvalidResourceHandle);
  event->capture = s->capture;
  if (s->capture) {
    event->tail = s->tail;
    return s->capture->broken;
  }
  const cudaError_t error =
      enqueue(stream, [event] { event->time_s = host_clock_s() + runtime().ahead_s; });
  event->stream = s;
  event->position = s->queued;
  return set_error(error);
}

static bool event_is_done(cudaEvent_t event) {
  return !event->stream || event->stream->done >= event->position;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call("cudaEventSynchronize");
  if (call.error) return call.error;
  if (event->capture) return refuse_in_capture();
  if (event->stream) drain(event->stream, event->position);
  return set_error(runtime().sticky);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call("cudaEventQuery");
  if (call.error) return call.error;
  if (event->capture) return refuse_in_capture();
  if (event_is_done(event)) return set_error(runtime().sticky);
  run_one(event->stream);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
  Call call("cudaEventElapsedTime");
  if (call.error) return call.error;
  if (!begin->stream || !end->stream) return set_error(cudaErrorInvalidResourceHandle);
  if (!event_is_done(begin) || !event_is_done(end)) return cudaErrorNotReady;
  *ms = (float)((end->time_s - begin->time_s) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Call call("cudaStreamWaitEvent");
  if (call.error) return call.error;
  CUstream_st *s = stream_of(stream);
  if (event->capture) { /* the stream joins the capture that the event belongs to */
    if (s->capture && s->capture != event->capture) return refuse_in_capture();
    s->capture = event->capture;
    s->capture->joined.insert(s);
    s->tail.insert(s->tail.end(), event->tail.begin(), event->tail.end());
    return cudaSuccess;
  }
  if (s->capture) {
    s->capture->broken = cudaErrorStreamCaptureIsolation;
    return set_error(cudaErrorStreamCaptureIsolation);
  }
  if (event_is_done(event)) return cudaSuccess;
  CUstream_st *other = event->stream;
  const uint64_t position = event->position;
  return set_error(enqueue(stream, [other, position] { drain(other, position); }));
}
