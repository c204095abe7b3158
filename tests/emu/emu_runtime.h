/* emu_runtime.h: the fake CUDA runtime's structures, and what tests may ask of it.
 *
 * Every entry point takes one lock, and work runs on whichever host thread waits for it. Streams
 * are queues of closures, graphs are closures with dependencies. EMU_STREAM=lazy (the default: work
 * runs only when the host waits), eager, random; EMU_MEMORY=bytes; EMU_SM=80|90; EMU_CARD=the name
 * of a real card, whose capability, multiprocessors and L2 it then has; EMU_DRIVER=0 for none, or
 * its version as 13000; EMU_DEVICES=n, one device where it is not set;
 * EMU_FAIL=function:call[:error] makes that call fail, counting from 1; with `hang` in the place of
 * the error it never returns.
 */
#ifndef EMU_RUNTIME_H
#define EMU_RUNTIME_H

#include "emu_core.h"
#include <map>
#include <memory>
#include <mutex>
#include <set>

namespace emu {

typedef std::function<void()> Work;
struct GraphNode {
  Work work;
  std::vector<size_t> after; /* earlier nodes */
};
} // namespace emu

struct CUgraph_st {
  std::vector<emu::GraphNode> nodes;
  CUstream_st *origin = nullptr;
  std::set<CUstream_st *> joined; /* streams that capture into it, the origin among them */
  cudaError_t broken = cudaSuccess;
  std::vector<std::shared_ptr<void>> held; /* by emu_graph_hold */
};
struct CUgraphExec_st {
  std::vector<emu::GraphNode> nodes;
  std::vector<std::shared_ptr<void>> held;
  bool uploaded = false;
};
struct CUstream_st {
  std::deque<emu::Work> queue;
  uint64_t queued = 0, done = 0;
  int device = 0;       /* of the thread that made it */
  bool blocking = true; /* ordered with the legacy stream */
  CUgraph_st *capture = nullptr;
  std::vector<size_t> tail; /* nodes that the next captured one comes after */
};
struct CUevent_st {
  int device = 0;
  CUstream_st *stream = nullptr; /* null: never recorded, which counts as done */
  uint64_t position = 0;
  double time_s = 0;
  CUgraph_st *capture = nullptr;
  std::vector<size_t> tail;
};

namespace emu {

enum StreamMode { STREAM_LAZY, STREAM_EAGER, STREAM_RANDOM };

struct Failure {
  int call;
  cudaError_t error;
  bool hangs;
};

struct Card {
  std::string name;
  int capability, multiprocessors, l2_bytes;
};

struct Runtime {
  std::recursive_mutex lock;
  StreamMode mode = STREAM_LAZY;
  CUstream_st legacy;
  std::vector<CUstream_st *> streams, retired;
  std::map<uintptr_t, size_t> device, pinned; /* address -> bytes */
  std::set<uintptr_t> mapped; /* those of `device` that are of emu_mapped.cc, without guards */
  size_t memory_used = 0, memory_total = 0;
  std::map<const void *, int> shared_limit; /* of a kernel, bytes */
  std::set<const void *> loaded;            /* kernels whose code the driver has loaded */
  std::map<std::string, Failure> failure;
  std::map<std::string, int> calls;
  cudaError_t last = cudaSuccess, sticky = cudaSuccess;
  Card card;
  int capability = 90, driver = CUDART_VERSION, captures = 0;
  int devices = 1;    /* all the same memory: a process uses one of them */
  double ahead_s = 0; /* the device's clock, which events tell, before the host's */
  Runtime();
  void fail(const std::string &at); /* EMU_FAIL */
};
Runtime &runtime();
double host_clock_s();              /* from some moment on */
extern thread_local int device_set; /* by cudaSetDevice: every thread begins with device 0 */
cudaError_t take_memory(size_t bytes);

/* Makes the call-th call of `function` from now on fail once. "launch" is any launch. */
void inject_failure(const char *function, int call, cudaError_t error);
void set_stream_mode(StreamMode mode);

/* Remembers an error as the runtime does; sticky ones stay until cudaDeviceReset. */
cudaError_t set_error(cudaError_t error);
bool is_inside(const std::map<uintptr_t, size_t> &ranges, const void *p, size_t size);
/* Reports what was written behind an allocation; `who` names the work that just ended. */
void check_guards(const char *who);
bool memory_is_sparse(size_t size);

/* Runs one piece of queued work, if there is any, as a device does by itself; for other threads
 * than those that wait. */
extern "C" int emu_run_one(void);
/* For doubles of libraries: release(context) is called when the last graph is destroyed that has
 * what `stream` captures now, as by cudaGraphRetainUserObject. 0 when it captures nothing. */
extern "C" int emu_graph_hold(cudaStream_t stream, void (*release)(void *), void *context);
CUstream_st *stream_of(cudaStream_t stream);
cudaError_t enqueue(cudaStream_t stream, Work work);
void drain(CUstream_st *stream, uint64_t position);
void drain_all();
/* The error of a call that may not happen while a stream captures; it spoils the captures. */
cudaError_t refuse_in_capture();

const cudaError_t NOT_PERMITTED = (cudaError_t)800; /* cudaErrorNotPermitted */
/* Runs a host function as the driver does: on a thread of its own, which may not call the runtime.
 * The caller waits, and holds the lock. */
void run_host_function(cudaHostFn_t function, void *argument);

/* Takes the lock, counts the call and answers what must fail: a sticky or an injected error; in a
 * host function every call, with NOT_PERMITTED. */
struct Call {
  std::unique_lock<std::recursive_mutex> hold;
  cudaError_t error;
  explicit Call(const char *function);
};

} // namespace emu
#endif
