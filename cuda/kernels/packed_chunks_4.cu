/* packed_chunks_4.cu: packed_chunks.h for codes of 4 bits. */
#include "cuda/kernels/packed_chunks.h"

template <class T> static cudaError_t chunks(const gpu_skinny_t &args, gpu_stream_t stream) {
  return for_packed_4(args.packed, [&](auto kind) { return in_chunks<T>(kind, args, stream); });
}

int packed_chunks_4(dtype_t dtype, const gpu_skinny_t &args, gpu_stream_t stream) {
  return FOR_DTYPE(dtype, chunks, args, stream);
}
