/* inputs.h: a step's inputs from one packet to the arrays that kernels read, on the device.
 *
 * The host packs a batch (engine/device/batch.h) into one buffer, which gpu_inputs spreads. It
 * travels in one copy before that, or the kernel itself fetches it from the host's memory. The
 * arrays have fixed addresses, so a captured graph holds the same call for every step, and rows
 * beyond the batch are padded as kernels.h says. Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_INPUTS_H
#define INFERD_CUDA_KERNELS_INPUTS_H

#include "cuda/kernels/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An entry of the block table that changed: table[index] = block. */
typedef struct gpu_update {
  int32_t index, block;
} gpu_update_t;

/* The state of a row behind the first `behind` tokens of its chunk is stored in `slot`, too. */
typedef struct gpu_save {
  int32_t behind, slot;
} gpu_save_t;

/* The first bytes of a packet. Offsets are in bytes from its begin, multiples of 16. */
typedef struct gpu_packet {
  int32_t num_tokens, num_reqs, num_selected, num_updates;
  int32_t input_ids;       /* [T] int32; < 0: id of the result -1 - input_ids[t] */
  int32_t positions;       /* [T] int32 */
  int32_t slots;           /* [T] int64 */
  int32_t query_start_loc; /* [R + 1] int32 */
  int32_t seq_lens;        /* [R] int32 */
  int32_t selected;        /* [S] int32 */
  int32_t updates;         /* [num_updates] gpu_update_t */
  int32_t adapters;        /* [T] int32; 0 = the step has none */
  int32_t state_slots;     /* [R] int32; 0 = the model has no states */
  int32_t first_save;      /* [R + 1] int32 */
  int32_t saves;           /* [first_save[R]] gpu_save_t */
  int32_t bytes;           /* of all; read where the kernel fetches them */
} gpu_packet_t;

enum { GPU_PACKETS = 2 }; /* of the host, taken in turn: as many as steps are in flight */

typedef struct gpu_inputs {
  gpu_packet_t *packet; /* on the device, of whole vectors of 16 bytes */
  /* In pinned memory: that of the turn is read, and copied to `packet`. NULL, all: it is there. */
  const gpu_packet_t *host[GPU_PACKETS];
  int32_t *turn; /* [2] the packet of this launch, which leaves the next one's; a ticket, 0 */
  const gpu_sample_result_t *drawn;    /* results of the step before */
  int32_t *input_ids, *positions;      /* [tokens] padding: -1, 0 */
  int64_t *slots;                      /* [tokens] padding: -1 */
  int32_t *query_start_loc;            /* [reqs + 1] padding: num_tokens */
  int32_t *seq_lens;                   /* [reqs] padding: 0 */
  int32_t *selected;                   /* [selected_rows] padding: -1 */
  int32_t *adapters;                   /* [tokens] padding: 0; written when the packet has some */
  int32_t *state_slots;                /* [reqs] padding: 0; written when the model has states */
  int32_t *first_save;                 /* [reqs + 1] padding: the last; likewise */
  gpu_save_t *saves;                   /* no padding; likewise */
  int32_t *block_table;                /* only the updates are written */
  int32_t *history;                    /* [slots of the cache] the token id in each */
  int32_t tokens, reqs, selected_rows; /* padded counts, at least those of the packet */
} gpu_inputs_t;
/* Loads the code of a kernel for the current device: 0, or the error of a build that has none for
 * it. *made: the driver has made it from PTX, which takes long when a kernel is loaded first. */
int gpu_code(int32_t *made);
/* Also writes every token's id to history[slot]. */
int gpu_inputs(const gpu_inputs_t *args, gpu_stream_t stream);
/* Copies the ids of the slots, as gpu_page_copy copies K and V. */
int gpu_history_copy(int32_t *history, int32_t block_size, const block_copy_t *copies,
                     int32_t num_copies, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
