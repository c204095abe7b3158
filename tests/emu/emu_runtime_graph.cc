/* emu_runtime_graph.cc: the fake runtime's stream capture and graphs.
 *
 * A captured call becomes a node: its arguments are kept as they were, the memory they point to is
 * read at replay. A replay takes any legal order of the nodes: the newest that may run, or with
 * EMU_STREAM=random any, so that a missing dependency shows.
 */
#include "emu_runtime.h"

namespace emu {

static const size_t GRAPH_BYTES = 64 << 10; /* of one on the device */

cudaError_t refuse_in_capture() {
  for (CUstream_st *s : runtime().streams)
    if (s->capture) s->capture->broken = cudaErrorStreamCaptureInvalidated;
  return set_error(cudaErrorStreamCaptureUnsupported);
}

static void graph_run(const std::vector<GraphNode> &nodes) {
  std::vector<bool> ran(nodes.size(), false);
  for (size_t count = 0; count < nodes.size(); count++) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); i++) {
      bool free = !ran[i];
      for (size_t earlier : nodes[i].after) free = free && ran[earlier];
      if (free) ready.push_back(i);
    }
    const bool any = runtime().mode == STREAM_RANDOM;
    const size_t node = any ? ready[random_below((uint32_t)ready.size())] : ready.back();
    if (!runtime().sticky) nodes[node].work();
    ran[node] = true;
  }
}

/* Whether every node comes before the ends of the stream that began the capture. */
static bool graph_is_joined(const CUgraph_st *graph, const std::vector<size_t> &ends) {
  std::vector<bool> before(graph->nodes.size(), false);
  for (size_t end : ends) before[end] = true;
  for (size_t i = graph->nodes.size(); i-- > 0;)
    if (before[i])
      for (size_t earlier : graph->nodes[i].after) before[earlier] = true;
  for (bool b : before)
    if (!b) return false;
  return true;
}

extern "C" int emu_graph_hold(cudaStream_t stream, void (*release)(void *), void *context) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  CUgraph_st *graph = stream_of(stream)->capture;
  if (!graph) return 0;
  graph->held.emplace_back(context, release);
  return 1;
}

} // namespace emu

using namespace emu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Call call("cudaStreamBeginCapture");
  if (call.error) return call.error;
  CUstream_st *s = stream_of(stream);
  if (s == &runtime().legacy || s->capture) return set_error(cudaErrorStreamCaptureUnsupported);
  s->capture = new CUgraph_st;
  s->capture->origin = s;
  s->capture->joined.insert(s);
  s->tail.clear();
  runtime().captures++;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  Call call("cudaStreamEndCapture");
  *graph = nullptr;
  if (call.error == NOT_PERMITTED) return call.error;
  CUstream_st *s = stream_of(stream);
  if (!s->capture || s->capture->origin != s) return set_error(cudaErrorStreamCaptureUnmatched);
  CUgraph_st *captured = s->capture;
  cudaError_t error = captured->broken ? cudaErrorStreamCaptureInvalidated : call.error;
  if (!error && !graph_is_joined(captured, s->tail)) error = cudaErrorStreamCaptureUnjoined;
  for (CUstream_st *joined : captured->joined) {
    joined->capture = nullptr;
    joined->tail.clear();
  }
  runtime().captures--;
  if (error)
    delete captured;
  else
    *graph = captured;
  return set_error(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  Call call("cudaGraphInstantiate");
  if (call.error) return call.error;
  *exec = new CUgraphExec_st{graph->nodes, graph->held};
  return cudaSuccess;
}

/* What the device needs of a graph it gets by an upload, or else by the first launch. */
static cudaError_t upload(cudaGraphExec_t exec) {
  if (exec->uploaded) return cudaSuccess;
  exec->uploaded = true;
  return take_memory(GRAPH_BYTES);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  Call call("cudaGraphUpload");
  if (call.error) return call.error;
  if (stream_of(stream)->capture) return refuse_in_capture();
  return set_error(upload(exec));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Call call("cudaGraphLaunch");
  if (call.error) return call.error;
  if (stream_of(stream)->capture) return refuse_in_capture();
  if (!exec->uploaded) runtime().calls["upload by a launch"]++;
  if (cudaError_t error = upload(exec)) return set_error(error);
  return set_error(enqueue(stream, [exec] { graph_run(exec->nodes); }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  drain_all(); /* a replay may still be queued */
  if (exec->uploaded) runtime().memory_used -= GRAPH_BYTES;
  delete exec;
  return cudaSuccess;
}
