/* nccl.h: what is used of NCCL, which is opened by name, and the way of exchange.h over it.
 *
 * Types, numbers and prototypes are those of the library's own header, version 2: see
 * tests/emu/nccl/nccl_excerpt.h. Behind that header this one declares no types. Engine thread.
 */
#ifndef INFERD_CUDA_RANKS_NCCL_H
#define INFERD_CUDA_RANKS_NCCL_H

#include "cuda/ranks/exchange.h"

#include <cuda_runtime_api.h>

#ifndef NCCL_H_
typedef struct ncclComm *ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclUint8 = 1 } ncclDataType_t;
#endif

/* The functions of the library that are used. */
typedef struct nccl_api {
  void *handle; /* of dlopen */
  ncclResult_t (*version)(int *version);
  ncclResult_t (*unique_id)(ncclUniqueId *id);
  ncclResult_t (*init)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
  ncclResult_t (*destroy)(ncclComm_t comm);
  ncclResult_t (*abort)(ncclComm_t comm);
  ncclResult_t (*async_error)(ncclComm_t comm, ncclResult_t *error);
  const char *(*error_string)(ncclResult_t result);
  ncclResult_t (*all_gather)(const void *send, void *receive, size_t count, ncclDataType_t type,
                             ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*broadcast)(const void *send, void *receive, size_t count, ncclDataType_t type,
                            int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*send)(const void *data, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream);
  ncclResult_t (*receive)(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream);
  ncclResult_t (*group_start)(void);
  ncclResult_t (*group_end)(void);
} nccl_api_t;

/* nccl_library.c. False if the library, or one of its functions, is missing: `why` says so. */
bool nccl_library_open(nccl_api_t *api, char *why, size_t why_size);
void nccl_library_close(nccl_api_t *api);

typedef struct nccl_end nccl_end_t; /* nccl.c */

/* A communicator of all ranks. */
typedef struct nccl {
  nccl_api_t api;
  ncclComm_t comm; /* NULL = closed, or aborted */
  nccl_end_t *end; /* NULL = none has begun */
  int version;     /* 22809 = 2.28.9 */
} nccl_t;

extern const rank_way_t exchange_nccl; /* launches on the stream; with graphs */

/* Every rank calls it; waits for the others. False, with the reason, if a rank lacks the library;
 * *code is then 0. Otherwise *code is 0, or what failed with the library. */
bool nccl_open(struct device *device, char *why, size_t why_size, int *code, inferd_error_t *error);

#endif
