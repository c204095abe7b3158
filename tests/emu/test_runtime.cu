/* test_runtime.cu: the fake runtime: memory, streams, events, graphs, refusals, injected errors. */
#include "tests/emu/rig.h"

#include <thread>

__global__ void fill_kernel(int *p, int value) {
  p[threadIdx.x] = value;
}
__global__ void add_kernel(int *p, const int *q) {
  p[threadIdx.x] += q[threadIdx.x];
}

/* Restores the mode of streams: these tests need the harshest one. */
struct lazy_streams {
  emu::StreamMode before = emu::runtime().mode;
  lazy_streams() { emu::set_stream_mode(emu::STREAM_LAZY); }
  ~lazy_streams() { emu::set_stream_mode(before); }
};
/* Forgets the last error, which a test caused on purpose. */
static bool fails_with(cudaError_t got, cudaError_t expected) {
  cudaGetLastError();
  return got == expected;
}

/* ---- Memory ---- */

TEST(memory_is_counted_and_bounded) {
  size_t before, during, total;
  MUST(cudaMemGetInfo(&before, &total));
  char *p;
  MUST(cudaMalloc(&p, 1000));
  MUST(cudaMemGetInfo(&during, &total));
  check_that(before - during == 1000, "used memory");
  void *all;
  check_that(fails_with(cudaMalloc(&all, total), cudaErrorMemoryAllocation), "out of memory");
  MUST(cudaFree(p));
  check_that(fails_with(cudaFree(&total), cudaErrorInvalidValue), "a pointer of somebody else");
  std::vector<unsigned char> bytes(8);
  MUST(cudaMalloc(&p, 8));
  MUST(cudaMemcpy(bytes.data(), p, 8, cudaMemcpyDeviceToHost));
  check_that(bytes == std::vector<unsigned char>(8, 0xff), "fresh memory is poisoned");
  MUST(cudaFree(p));
}

TEST(copies_know_their_sides) {
  device_array<int> device(8);
  std::vector<int> host(8);
  check_that(fails_with(cudaMemcpy(host.data(), device.p, 32, cudaMemcpyHostToDevice),
                        cudaErrorInvalidValue),
             "wrong direction");
  check_that(fails_with(cudaMemcpy(host.data(), device.p, 36, cudaMemcpyDeviceToHost),
                        cudaErrorInvalidValue),
             "past the end");
  check_that(fails_with(cudaMemset(device.p + 1, 0, 32), cudaErrorInvalidValue), "memset too far");
}

/* ---- Streams and events ---- */

TEST(pinned_copies_happen_when_the_host_waits) {
  lazy_streams lazy;
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int *pinned;
  MUST(cudaMallocHost(&pinned, 128));
  device_array<int> device(32);
  pinned[0] = 1;
  MUST(cudaMemcpyAsync(device.p, pinned, 128, cudaMemcpyHostToDevice, stream));
  pinned[0] = 2; /* too early: the copy has not read it */
  MUST(cudaStreamSynchronize(stream));
  check_that(device.get()[0] == 2, "a staging buffer that was overwritten");
  MUST(LAUNCH(fill_kernel, (1), (32), 0, stream, device.p, 9));
  MUST(cudaMemcpyAsync(pinned, device.p, 128, cudaMemcpyDeviceToHost, stream));
  check_that(pinned[0] == 2, "read before the wait");
  MUST(cudaStreamSynchronize(stream));
  check_that(pinned[0] == 9, "read after the wait");
  std::vector<int> pageable(32, 5);
  MUST(cudaMemcpyAsync(device.p, pageable.data(), 128, cudaMemcpyHostToDevice, stream));
  pageable.assign(32, 6); /* too early here, too */
  MUST(cudaStreamSynchronize(stream));
  check_that(device.get()[31] == 6, "pageable memory may be read after the call");
  MUST(cudaFreeHost(pinned));
  MUST(cudaStreamDestroy(stream));
}

TEST(events_order_streams_and_their_lack_shows) {
  lazy_streams lazy;
  cudaStream_t a, b;
  cudaEvent_t done;
  MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  MUST(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  device_array<int> x(std::vector<int>(32, 1)), y(std::vector<int>(32, 1));
  for (int with_event = 0; with_event < 2; with_event++) {
    MUST(LAUNCH(fill_kernel, (1), (32), 0, a, x.p, 10));
    MUST(cudaEventRecord(done, a));
    check_that(cudaEventQuery(done) == cudaErrorNotReady || !with_event, "not done yet");
    MUST(LAUNCH(fill_kernel, (1), (32), 0, a, x.p, 20));
    MUST(cudaEventRecord(done, a));
    if (with_event) MUST(cudaStreamWaitEvent(b, done, 0));
    MUST(LAUNCH(add_kernel, (1), (32), 0, b, y.p, x.p));
    MUST(cudaStreamSynchronize(b));
    MUST(cudaStreamSynchronize(a));
  }
  check_that(y.get()[3] != 1 + 20 + 20 && y.get()[3] >= 1 + 1 + 20, "stale, then fresh");
  int polls = 0;
  MUST(LAUNCH(fill_kernel, (1), (32), 0, a, x.p, 30));
  MUST(cudaEventRecord(done, a));
  while (cudaEventQuery(done) == cudaErrorNotReady) polls++;
  check_that(polls == 2, "polling an event lets its stream run");
  MUST(cudaEventDestroy(done));
  MUST(cudaStreamDestroy(a));
  MUST(cudaStreamDestroy(b));
}

static void add_one(void *counter) {
  ++*static_cast<int *>(counter);
}

TEST(host_functions_run_in_their_turn) {
  int counter = 0;
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  MUST(cudaLaunchHostFunc(stream, add_one, &counter));
  MUST(cudaLaunchHostFunc(stream, add_one, &counter));
  MUST(cudaStreamSynchronize(stream));
  check_that(counter == 2, "host functions");
  MUST(cudaStreamDestroy(stream));
}

/* What a host function of a driver sees. */
struct host_view {
  std::thread::id thread;
  cudaError_t launched, waited;
  int *pinned, seen;
};

static void look_around(void *context) {
  host_view *view = static_cast<host_view *>(context);
  view->thread = std::this_thread::get_id();
  view->launched = cudaMemsetAsync(view->pinned, 0, 4, nullptr);
  view->waited = cudaStreamSynchronize(nullptr);
  view->seen = *view->pinned;
  *view->pinned += 1;
}

TEST(a_host_function_has_a_thread_of_its_own_and_may_not_call) {
  host_view view = {};
  MUST(cudaMallocHost((void **)&view.pinned, 4));
  *view.pinned = 5;
  MUST(cudaLaunchHostFunc(nullptr, look_around, &view));
  MUST(cudaDeviceSynchronize());
  check_that(view.thread != std::this_thread::get_id(), "another thread");
  check_that(view.launched == emu::NOT_PERMITTED, "a launch is refused");
  check_that(view.waited == emu::NOT_PERMITTED, "waiting is refused");
  check_that(view.seen == 5 && *view.pinned == 6, "memory");
  MUST(cudaFreeHost(view.pinned));
}

/* ---- Launches ---- */

TEST(impossible_launches_are_refused) {
  device_array<int> out(32);
  const cudaError_t invalid = cudaErrorInvalidConfiguration;
  check_that(fails_with(LAUNCH(fill_kernel, (0), (32), 0, nullptr, out.p, 1), invalid), "no grid");
  check_that(fails_with(LAUNCH(fill_kernel, (1, 65536), (32), 0, nullptr, out.p, 1), invalid),
             "grid y");
  check_that(fails_with(LAUNCH(fill_kernel, (1), (1025), 0, nullptr, out.p, 1), invalid), "block");
  check_that(fails_with(LAUNCH(fill_kernel, (1), (32), 60 << 10, nullptr, out.p, 1), invalid),
             "shared memory without asking");
  MUST(cudaFuncSetAttribute(fill_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 60 << 10));
  MUST(LAUNCH(fill_kernel, (1), (32), 60 << 10, nullptr, out.p, 4));
  check_that(out.get()[5] == 4, "shared memory after asking");
}

/* ---- Graphs ---- */

struct two_streams {
  cudaStream_t a, b;
  cudaEvent_t fork, join;
  two_streams() {
    device_array<int> x(32);
    MUST(LAUNCH(add_kernel, (1), (32), 0, nullptr, x.p, x.p)); /* loads what is captured */
    MUST(LAUNCH(fill_kernel, (1), (32), 0, nullptr, x.p, 0));
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreate(&fork));
    MUST(cudaEventCreate(&join));
  }
  ~two_streams() {
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
};

TEST(a_graph_forks_joins_and_reads_memory_at_replay) {
  two_streams s;
  device_array<int> x(std::vector<int>(32, 0)), y(std::vector<int>(32, 3));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
  MUST(LAUNCH(add_kernel, (1), (32), 0, s.a, x.p, y.p));
  MUST(cudaEventRecord(s.fork, s.a));
  MUST(cudaStreamWaitEvent(s.b, s.fork, 0));
  MUST(LAUNCH(add_kernel, (1), (32), 0, s.b, x.p, y.p));
  MUST(cudaEventRecord(s.join, s.b));
  MUST(cudaStreamWaitEvent(s.a, s.join, 0));
  MUST(LAUNCH(add_kernel, (1), (32), 0, s.a, y.p, x.p));
  MUST(cudaStreamEndCapture(s.a, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphDestroy(graph));
  check_that(x.get()[0] == 0, "a capture runs nothing");
  MUST(cudaGraphLaunch(exec, s.a)); /* x = 6, y = 9 */
  MUST(cudaGraphLaunch(exec, s.a)); /* x = 24, y = 33 */
  MUST(cudaStreamSynchronize(s.a));
  check_that(x.get()[31] == 24 && y.get()[31] == 33, "two replays");
  MUST(cudaGraphExecDestroy(exec));
}

/* Copies to and from pinned memory and the host function between them are nodes, which read memory
 * when they are replayed. */
TEST(a_graph_has_host_functions) {
  two_streams s;
  host_view view = {};
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  device_array<int> x(std::vector<int>(32, 7));
  MUST(cudaMallocHost((void **)&view.pinned, 4));
  *view.pinned = 0;
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  MUST(cudaMemcpyAsync(view.pinned, x.p, 4, cudaMemcpyDeviceToHost, s.a));
  MUST(cudaLaunchHostFunc(s.a, look_around, &view));
  MUST(cudaMemcpyAsync(x.p, view.pinned, 4, cudaMemcpyHostToDevice, s.a));
  MUST(cudaStreamEndCapture(s.a, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphDestroy(graph));
  check_that(view.seen == 0, "a capture runs nothing");
  for (int turn = 0; turn < 3; turn++) MUST(cudaGraphLaunch(exec, s.a));
  MUST(cudaStreamSynchronize(s.a));
  check_that(view.seen == 9 && x.get()[0] == 10 && x.get()[1] == 7, "three replays");
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaFreeHost(view.pinned));
}

/* As a driver does: behind an error of the device nothing is called. */
TEST(a_lost_device_calls_no_host_function) {
  fault_watch watch;
  lazy_streams lazy;
  int counter = 0;
  MUST(cudaLaunchHostFunc(nullptr, add_one, &counter));
  emu::set_error(cudaErrorLaunchFailure);
  check_that(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "lost");
  check_that(counter == 0, "not called");
}

TEST(a_dependency_that_was_not_captured_shows) {
  lazy_streams lazy;
  two_streams s;
  device_array<int> x(std::vector<int>(32, 0)), y(std::vector<int>(32, 3));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
  MUST(cudaEventRecord(s.fork, s.a)); /* before the write that b needs */
  MUST(LAUNCH(add_kernel, (1), (32), 0, s.a, x.p, y.p));
  MUST(cudaStreamWaitEvent(s.b, s.fork, 0));
  MUST(LAUNCH(add_kernel, (1), (32), 0, s.b, y.p, x.p));
  MUST(cudaEventRecord(s.join, s.b));
  MUST(cudaStreamWaitEvent(s.a, s.join, 0));
  MUST(cudaStreamEndCapture(s.a, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, s.a));
  MUST(cudaStreamSynchronize(s.a));
  check_that(y.get()[0] == 3, "the reader ran first");
  MUST(cudaGraphDestroy(graph));
  MUST(cudaGraphExecDestroy(exec));
}

TEST(captures_refuse_what_they_cannot_hold) {
  two_streams s;
  device_array<int> x(32);
  cudaGraph_t graph;
  void *p;
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
  check_that(fails_with(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported), "malloc");
  check_that(fails_with(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureInvalidated),
             "it spoils the capture");
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
  check_that(fails_with(cudaStreamSynchronize(s.a), cudaErrorStreamCaptureUnsupported), "wait");
  check_that(fails_with(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureInvalidated),
             "a wait spoils it too");
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
  MUST(cudaEventRecord(s.fork, s.a));
  MUST(cudaStreamWaitEvent(s.b, s.fork, 0));
  MUST(LAUNCH(fill_kernel, (1), (32), 0, s.b, x.p, 1));
  check_that(fails_with(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureUnjoined),
             "a fork that never joins");
  MUST(LAUNCH(fill_kernel, (1), (32), 0, s.b, x.p, 8));
  MUST(cudaStreamSynchronize(s.b));
  check_that(x.get()[0] == 8, "streams work on after a failed capture");
}

__global__ void late_kernel(int *p) {
  p[threadIdx.x] = 1;
}

TEST(a_kernel_that_was_never_launched_is_not_captured) {
  two_streams s;
  device_array<int> x(32);
  cudaGraph_t graph;
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  check_that(
      fails_with(LAUNCH(late_kernel, (1), (32), 0, s.a, x.p), cudaErrorStreamCaptureUnsupported),
      "its code would be loaded now");
  check_that(fails_with(cudaStreamEndCapture(s.a, &graph), cudaErrorStreamCaptureInvalidated),
             "it spoils the capture");
}

static void count_release(void *counter) {
  ++*static_cast<int *>(counter);
}

TEST(graphs_take_memory_by_an_upload_and_hold_what_libraries_ask) {
  two_streams s;
  device_array<int> x(32);
  size_t before, made, uploaded, launched, total;
  int released = 0;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check_that(emu::emu_graph_hold(s.a, count_release, &released) == 0, "no capture");
  MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
  MUST(LAUNCH(fill_kernel, (1), (32), 0, s.a, x.p, 1));
  check_that(emu::emu_graph_hold(s.a, count_release, &released) == 1, "a capture");
  MUST(cudaStreamEndCapture(s.a, &graph));
  MUST(cudaMemGetInfo(&before, &total));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaMemGetInfo(&made, &total));
  MUST(cudaGraphUpload(exec, s.a));
  MUST(cudaMemGetInfo(&uploaded, &total));
  MUST(cudaGraphLaunch(exec, s.a));
  MUST(cudaMemGetInfo(&launched, &total));
  check_that(made == before && uploaded < made && launched == uploaded, "memory of a graph");
  MUST(cudaGraphDestroy(graph));
  check_that(released == 0, "the executable graph has it, too");
  MUST(cudaGraphExecDestroy(exec));
  check_that(released == 1, "released once");
}

/* ---- Devices ---- */

TEST(each_thread_has_a_device_of_its_own) {
  emu::runtime().devices = 2;
  device_array<int> x(32);
  cudaStream_t other;
  cudaEvent_t event;
  MUST(cudaEventCreate(&event));
  MUST(cudaSetDevice(1));
  MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int device = -1;
  std::thread([&device] { MUST(cudaGetDevice(&device)); }).join();
  check_that(device == 0, "a new thread has the first device");
  check_that(fails_with(cudaEventRecord(event, other), cudaErrorInvalidResourceHandle),
             "an event of another device");
  MUST(LAUNCH(fill_kernel, (1), (32), 0, other, x.p, 1));
  MUST(cudaSetDevice(0));
  check_that(
      fails_with(LAUNCH(fill_kernel, (1), (32), 0, other, x.p, 2), cudaErrorInvalidResourceHandle),
      "a stream of another device");
  MUST(cudaStreamDestroy(other));
  MUST(cudaEventDestroy(event));
  emu::runtime().devices = 1;
}

/* ---- Errors ---- */

TEST(injected_errors_come_once_and_sticky_ones_stay) {
  emu::inject_failure("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void *p, *q;
  MUST(cudaMalloc(&p, 16));
  check_that(fails_with(cudaMalloc(&q, 16), cudaErrorMemoryAllocation), "the second call fails");
  MUST(cudaMalloc(&q, 16));
  MUST(cudaFree(p));
  MUST(cudaFree(q));
  device_array<int> x(32);
  emu::inject_failure("launch", 1, cudaErrorIllegalAddress);
  check_that(LAUNCH(fill_kernel, (1), (32), 0, nullptr, x.p, 1) == cudaErrorIllegalAddress,
             "an injected fault");
  check_that(cudaDeviceSynchronize() == cudaErrorIllegalAddress, "it is sticky");
  cudaGetLastError();
  check_that(cudaMalloc(&p, 16) == cudaErrorIllegalAddress, "every call fails with it");
  MUST(cudaDeviceReset());
  MUST(LAUNCH(fill_kernel, (1), (32), 0, nullptr, x.p, 2));
  check_that(x.get()[0] == 2, "after a reset");
}

/* Offsets beyond 2^31 elements, in memory that is never touched between. */
__global__ void far_kernel(char *p, int64_t offset) {
  p[offset + threadIdx.x] = (char)threadIdx.x;
}

TEST(huge_allocations_are_sparse) {
  const size_t size = (size_t)5 << 30;
  emu::runtime().memory_total += size;
  char *p;
  MUST(cudaMalloc(&p, size));
  MUST(LAUNCH(far_kernel, (1), (32), 0, nullptr, p, (int64_t)size - 32));
  char last;
  MUST(cudaMemcpy(&last, p + size - 1, 1, cudaMemcpyDeviceToHost));
  check_that(last == 31, "the last byte");
  MUST(cudaFree(p));
  emu::runtime().memory_total -= size;
}
