/* packed_chunks_8.cu: packed_chunks.h for codes of 8 bits and e4m3. */
#include "cuda/kernels/packed_chunks.h"

template <class T> static cudaError_t chunks(const gpu_skinny_t &args, gpu_stream_t stream) {
  return for_packed_8(args.packed, [&](auto kind) { return in_chunks<T>(kind, args, stream); });
}

int packed_chunks_8(dtype_t dtype, const gpu_skinny_t &args, gpu_stream_t stream) {
  return FOR_DTYPE(dtype, chunks, args, stream);
}
