/* emu_launch.h: a kernel call, its arguments converted and copied when it is launched.
 *
 * As the triple angle brackets do: a pointer argument is copied, what it points to is not. The
 * copy lives as long as the stream or graph that holds it.
 */
#ifndef EMU_LAUNCH_H
#define EMU_LAUNCH_H

#include <tuple>
#include <type_traits>

namespace emu {

/* Checks the configuration as the driver does and queues the launch; `release(argument)` is called
 * once, when nothing can run it any more. */
cudaError_t enqueue_launch(cudaStream_t stream, const Launch &launch,
                           void (*release)(void *argument));

template <class... P> struct KernelCall {
  void (*kernel)(P...);
  std::tuple<std::decay_t<P>...> arguments;
  static void run(void *call) {
    KernelCall *c = static_cast<KernelCall *>(call);
    std::apply(c->kernel, c->arguments);
  }
  static unsigned list(void *call, Argument *places) {
    KernelCall *c = static_cast<KernelCall *>(call);
    unsigned count = 0;
    std::apply(
        [&](auto &...value) {
          ((places[count++] = {&value, sizeof value}), ...);
        },
        c->arguments);
    return count;
  }
  static void release(void *call) { delete static_cast<KernelCall *>(call); }
};

template <class... P, class... A>
cudaError_t launch(const LaunchShape &shape, cudaStream_t stream, void (*kernel)(P...),
                   A &&...arguments) {
  typedef KernelCall<P...> Call;
  Call *call =
      new Call{kernel, std::tuple<std::decay_t<P>...>(static_cast<std::decay_t<P>>(arguments)...)};
  static_assert(sizeof...(P) <= ARGUMENTS_MAX, "a kernel of so many parameters");
  const void *address = reinterpret_cast<const void *>(kernel);
  return enqueue_launch(stream, Launch{shape, Call::run, call, sizeof *call, address, Call::list},
                        Call::release);
}

} // namespace emu

template <class R, class... P>
inline cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute name, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), name, value);
}
template <class T> inline cudaError_t cudaMalloc(T **p, size_t size) {
  return cudaMalloc(reinterpret_cast<void **>(p), size);
}
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t size) {
  return cudaMallocHost(reinterpret_cast<void **>(p), size);
}

#endif
