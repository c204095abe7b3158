/* floor.h: the floor under the prefix cache: copies of full blocks in host memory or in a file.
 *
 * A block leaves by its key when its last holder has left, and enters by its key when a request
 * that is admitted finds no more of its prompt in the pool (bring.c). The floor keeps the records:
 * which place has which content. Places are host blocks of the back end (swap_ops.h), behind those
 * of swap.c. Copies to and from them are collected here, and launched before the forward of the
 * next step: first those that leave, then those that enter. A place is pinned from the time when a
 * copy is planned until it is launched.
 *
 * The place that was used least recently is the next one that is used again. A sequence releases
 * its last block first, so that is the end of a prompt, not its beginning.
 *
 * Engine thread only; floor_new allocates everything. A floor that `persists` has records and
 * contents in a file (floor_file.h), in which a record has a checksum over both: it is written
 * last, and compared at the first hit.
 */
#ifndef INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_H
#define INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_H

#include "engine/device/swap_ops.h"
#include "engine/schedule/block.h"

struct scheduler;
struct sequence;

/* Blocks that leave beside a step, and while nothing runs, at most; more do if they are evicted
 * before. */
enum { FLOOR_BLOCKS_A_STEP = 64, FLOOR_BLOCKS_IDLE = 1024 };

/* Of a place; [block_size] token ids follow. */
typedef struct floor_record {
  uint64_t checksum;       /* of a file, over record and content; 0 = there is nothing */
  uint64_t stamp;          /* larger = used later */
  block_key_t key, parent; /* parent: of the block before it; 0 = first block */
  uint64_t domain;         /* of a first block; 0 for later ones */
} floor_record_t;

typedef enum floor_leave {
  LEAVE_NO,     /* not in the ring */
  LEAVE_WANTED, /* in the ring: to be copied when its turn comes, or before it is evicted */
  LEAVE_DONE    /* in the ring: was evicted, and copied before */
} floor_leave_t;

typedef struct floor_place {
  int32_t prev, next; /* in the order of use; 0 ends it */
  int32_t chain;      /* next place of the same hash bucket; 0 ends it */
  int32_t pins;       /* copies that are planned */
  bool is_used;       /* it holds a block; it is in a bucket */
  bool is_checked;    /* of a file: the checksum was compared, or was made by this process */
} floor_place_t;

/* Where records and contents are, if the floor persists. */
typedef struct floor_memory {
  uint8_t *records;       /* [num_places, floor_record_bytes] */
  const uint8_t *content; /* [num_places, content_bytes] */
  size_t content_bytes;
} floor_memory_t;

typedef struct floor_options {
  int32_t num_places; /* >= 1 */
  int32_t first_host; /* host block of the first place */
  int32_t block_size, num_blocks;
  int32_t step_blocks; /* that leave in one plan; 0 = FLOOR_BLOCKS_A_STEP, or FLOOR_BLOCKS_IDLE */
  bool persists;
  floor_memory_t memory; /* of a floor that persists; lives as long as the floor */
} floor_options_t;

typedef struct floor {
  floor_options_t options;
  size_t record_bytes;
  uint8_t *records;      /* of `memory`, or its own; place p at (p - 1) * record_bytes */
  floor_place_t *places; /* [num_places + 1]; place 0 stands for "none" */
  int32_t *buckets;      /* [bucket_mask + 1] hash map: key -> first place of the chain */
  uint32_t bucket_mask;
  int32_t head, tail; /* places: used least and most recently */
  uint64_t stamp;
  /* Full blocks whose last holder has left, and that the floor may lack, in the order of leaving.
   */
  int32_t *leaving; /* [num_blocks] ring of blocks */
  int32_t first_leaving, num_leaving;
  uint8_t *leave;           /* [num_blocks] floor_leave_t */
  block_swap_t *outs, *ins; /* [num_places], [num_blocks]; `host` is a host block of the back end */
  int32_t num_outs, num_ins;
  int32_t *in_of; /* [num_blocks] 1 + index in `ins` of the copy into this block; 0 = none */
  uint64_t num_stored, num_brought, num_damaged; /* blocks, since start */
  int32_t num_used;
} floor_t;

/* Bytes of a record with its ids. */
size_t floor_record_bytes(int32_t block_size);
/* Makes a floor. One that persists takes over what the records say, in the order of their stamps.
 * Returns 0 and *out, to be freed with floor_free, or ERR_NO_MEMORY. */
int floor_new(const floor_options_t *options, floor_t **out, inferd_error_t *error);
void floor_free(floor_t *floor); /* NULL is allowed */

/* The last holder of a full, keyed block has left: it is in the free queue. */
void floor_offer(block_pool_t *pool, int32_t block);
/* The block is about to lose its identity: if it was offered it leaves now. */
void floor_evict(block_pool_t *pool, int32_t block);
/* Plans the copies of at most `most` blocks that were offered. */
void floor_collect(block_pool_t *pool, int32_t most);
/* The copies were launched; those that leave a floor that persists were made. */
void floor_launched(floor_t *floor);

/* Brings the blocks that a sequence needs next, which is being admitted, from the floor into the
 * prefix cache: behind its first `first` blocks, which it holds or (0) does not, up to `most` in
 * all. They are findable and free then, as if they had never left the pool. None if the block
 * before them is still computed. In bring.c. */
void floor_bring(struct scheduler *scheduler, struct sequence *seq, int32_t first, int32_t most);
/* Of bring.c: the place that has this content, which is right; 0 = none. */
int32_t floor_find(floor_t *floor, const block_key_t *key, const block_key_t *parent,
                   uint64_t domain, const int32_t *token_ids);
/* Of bring.c: a copy of the place is planned next: what leaves meanwhile does not take it. */
void floor_pin(floor_t *floor, int32_t place);
/* Of bring.c: plans the copy of a pinned place into a block that was allocated. */
void floor_enter(floor_t *floor, int32_t place, int32_t block);

#endif
