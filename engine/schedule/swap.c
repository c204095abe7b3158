/* swap.c: the records of preemption by swap; the contract is in swap.h.
 *
 * Engine thread only; allocates in swap_new only. A sequence keeps the blocks of its computed
 * tokens, in-flight ones included: the device writes their rows before the copies read them. Blocks
 * beyond them (for a prompt that is still to be computed, or that another sequence fills) are not
 * kept: swap_in allocates them again.
 */
#include "engine/schedule/swap.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/table.h"

#include <stdlib.h>

int swap_new(scheduler_t *scheduler) {
  swap_t *swap = &scheduler->swap;
  int32_t count = scheduler->options.swap.num_blocks;
  if (count == 0) return 0;
  swap->blocks = calloc((size_t)count, sizeof *swap->blocks);
  swap->free = calloc((size_t)count, sizeof *swap->free);
  scheduler->plan.swaps = calloc((size_t)count, sizeof *scheduler->plan.swaps);
  swap->tables =
      calloc((size_t)scheduler->num_rows * (size_t)scheduler->table_stride, sizeof *swap->tables);
  if (swap->blocks == NULL || swap->free == NULL || scheduler->plan.swaps == NULL ||
      swap->tables == NULL)
    return -1;
  for (int32_t i = count - 1; i >= 0; i--) swap->free[swap->num_free++] = i;
  return 0;
}

void swap_free(scheduler_t *scheduler) {
  free(scheduler->swap.tables);
  free(scheduler->swap.blocks);
  free(scheduler->swap.free);
  free(scheduler->plan.swaps);
}

/* ---- out ---- */

static int32_t num_kept(const scheduler_t *scheduler, const sequence_t *seq) {
  return sequence_is_live(seq) ? scheduler_blocks_for(scheduler, seq->num_computed_tokens) : 0;
}

/* The block that holds the content of the table entry. If the step being planned was to copy the
 * entry from another block, that copy has not run: the source holds the content. */
static int32_t content_of(const scheduler_t *scheduler, const sequence_t *seq, int32_t index) {
  for (int32_t c = 0; c < scheduler->plan.num_copies; c++) {
    const plan_copy_t *copy = &scheduler->plan.copies[c];
    if (copy->sequence == seq && copy->copy.dst == seq->blocks[index]) return copy->copy.src;
  }
  return seq->blocks[index];
}

static void clear_marks(const scheduler_t *scheduler, const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    for (int32_t i = 0; i < num_kept(scheduler, seq); i++)
      scheduler->pool->blocks[content_of(scheduler, seq, i)].mark = 0;
  }
}

static int32_t count_distinct(const scheduler_t *scheduler, const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    for (int32_t i = 0; i < num_kept(scheduler, seq); i++) {
      block_t *block = &scheduler->pool->blocks[content_of(scheduler, seq, i)];
      count += block->mark == 0;
      block->mark = 1;
    }
  }
  clear_marks(scheduler, group);
  return count;
}

bool swap_chosen(const scheduler_t *scheduler, const group_t *group) {
  const swap_t *swap = &scheduler->swap;
  preemption_mode_t mode = scheduler->options.swap.mode;
  const struct floor *floor = scheduler->pool->floor;
  if (swap->num_free == 0 || mode == PREEMPT_RECOMPUTE) return false;
  /* Copies to the host run first: a block that enters in this plan has no content yet. */
  if (floor != NULL && floor->num_ins > 0) return false;
  int32_t count = count_distinct(scheduler, group);
  if (count == 0 || count > swap->num_free) return false;
  if (mode == PREEMPT_SWAP || group->width > 1) return true;
  int32_t tokens = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) tokens += seq->num_computed_tokens;
  }
  return 2 * swap->block_ns * count < swap->token_ns * tokens; /* out and in, against a prefill */
}

void swap_out(scheduler_t *scheduler, group_t *group) {
  swap_t *swap = &scheduler->swap;
  plan_t *plan = &scheduler->plan;
  int32_t before = plan->num_swap_out;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    for (int32_t i = 0; i < num_kept(scheduler, seq); i++) {
      int32_t device = content_of(scheduler, seq, i);
      block_t *block = &scheduler->pool->blocks[device];
      if (block->mark == 0) {
        int32_t host = swap->free[--swap->num_free];
        plan->swaps[plan->num_swap_out++] = (block_swap_t){device, host};
        block->mark = host + 1;
      }
      seq->host_blocks[i] = block->mark - 1;
      swap->blocks[block->mark - 1].ref_count++;
      seq->num_host_blocks = i + 1;
    }
  }
  clear_marks(scheduler, group);
  swap->num_groups_out++;
  swap->num_blocks_out += (uint64_t)(plan->num_swap_out - before);
}

/* ---- in ---- */

static host_block_t *host_block(const scheduler_t *scheduler, const sequence_t *seq,
                                int32_t index) {
  return &scheduler->swap.blocks[seq->host_blocks[index]];
}

static void clear_host_marks(const scheduler_t *scheduler, const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    for (int32_t i = 0; i < seq->num_host_blocks; i++) host_block(scheduler, seq, i)->mark = 0;
  }
}

/* Blocks that the group needs to come back, if the prefix cache has none of them: each different
 * host block once, the blocks of the tokens to come, and a copy for every writer of a shared block
 * except the last. */
static int32_t count_need(const scheduler_t *scheduler, const group_t *group) {
  int32_t need = 0, block_size = scheduler->pool->block_size;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    int32_t kept = seq->num_host_blocks, next = seq->num_computed_tokens / block_size;
    if (!sequence_is_live(seq)) continue;
    for (int32_t i = 0; i < kept; i++) {
      host_block_t *block = host_block(scheduler, seq, i);
      if (block->mark > 0) continue;
      block->mark = 1;
      need++;
    }
    int32_t total = scheduler_blocks_for(scheduler, scheduler_tokens_reserved(scheduler, seq));
    need += total > kept ? total - kept : 0;
    if (next == kept) continue;
    host_block_t *block = host_block(scheduler, seq, next);
    block->mark++;
    bool needs_copy = block->mark <= block->ref_count; /* all but the last writer copy */
    if (needs_copy) need++;
  }
  clear_host_marks(scheduler, group);
  return need;
}

/* The full block of a swapped sequence at `index`, after the block `parent`, if the prefix cache
 * has it computed; else NO_BLOCK. */
static int32_t find_cached(scheduler_t *scheduler, const sequence_t *seq, int32_t index,
                           int32_t parent) {
  int32_t block_size = scheduler->pool->block_size;
  if (index >= seq->num_computed_tokens / block_size) return NO_BLOCK;
  int32_t block = table_find(scheduler, seq, index, parent);
  if (block == NO_BLOCK) return NO_BLOCK;
  return scheduler->pool->blocks[block].identity.num_valid == block_size ? block : NO_BLOCK;
}

/* Number of leading blocks of a swapped sequence that the prefix cache has. Writes them to
 * seq->blocks without holding them. */
static int32_t take_cached(scheduler_t *scheduler, sequence_t *seq) {
  int32_t count = 0, block = NO_BLOCK;
  while ((block = find_cached(scheduler, seq, count, block)) != NO_BLOCK) {
    seq->blocks[count++] = block;
  }
  return count;
}

/* Number of different host blocks that need no free block, because another sequence holds the same
 * content on the device. */
static int32_t count_held(scheduler_t *scheduler, const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    int32_t block = NO_BLOCK;
    if (!sequence_is_live(seq)) continue;
    for (int32_t i = 0; (block = find_cached(scheduler, seq, i, block)) != NO_BLOCK; i++) {
      host_block_t *host = host_block(scheduler, seq, i);
      if (host->mark == 0 && block_is_held(&scheduler->pool->blocks[block])) count++;
      host->mark = 1;
    }
  }
  clear_host_marks(scheduler, group);
  return count;
}

swap_verdict_t swap_verdict(scheduler_t *scheduler, group_t *group) {
  int32_t need = count_need(scheduler, group), free = promised_num_free(scheduler), watermark = 0;
  scheduler->num_looks++;
  if (need > scheduler->pool->num_blocks - 1) return SWAP_NEVER;
  if (scheduler->running.head != NULL) watermark = scheduler->options.watermark_blocks;
  if (need + watermark <= free) return SWAP_OK;
  need += watermark - count_held(scheduler, group);
  if (need <= free) return SWAP_OK;
  group->unfit =
      (unfit_t){.is_known = true, .num_blocks = need, .num_claims = scheduler->num_claims};
  return SWAP_LATER;
}

/* Fills the block table of one sequence. Full blocks that come back are findable at once: their
 * copies run before every step that is planned from now on. */
static void bring(scheduler_t *scheduler, sequence_t *seq) {
  plan_t *plan = &scheduler->plan;
  int32_t found = take_cached(scheduler, seq);
  for (int32_t i = 0; i < seq->num_host_blocks; i++) {
    host_block_t *block = host_block(scheduler, seq, i);
    if (block->device == 0 && i >= found) {
      block->device = block_allocate(scheduler->pool);
      CHECK_GT(block->device, 0);
      block_use(scheduler->pool, block->device, scheduler_owner(scheduler, seq));
      block_written(scheduler->pool, block->device);
      plan->swaps[plan->num_swap_in++] = (block_swap_t){block->device, seq->host_blocks[i]};
    } else {
      if (block->device == 0) block->device = seq->blocks[i];
      block_acquire(scheduler->pool, block->device);
    }
    seq->blocks[i] = block->device;
    seq->num_blocks = i + 1;
  }
  scheduler->num_claims += found > 0; /* cached ones are held again: others may share them */
  table_claim(scheduler, seq, seq->num_computed_tokens / scheduler->pool->block_size);
}

void swap_in(scheduler_t *scheduler, group_t *group) {
  int32_t before = scheduler->plan.num_swap_in;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) bring(scheduler, seq);
  }
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    swap_release(scheduler, seq);
    if (!sequence_is_live(seq)) continue;
    table_grow(scheduler, seq,
               scheduler_tokens_reserved(scheduler, seq) - seq->num_computed_tokens);
    table_claim(scheduler, seq, sequence_num_tokens(seq) / scheduler->pool->block_size);
  }
  scheduler->swap.num_blocks_in += (uint64_t)(scheduler->plan.num_swap_in - before);
}

void swap_release(scheduler_t *scheduler, sequence_t *sequence) {
  swap_t *swap = &scheduler->swap;
  for (; sequence->num_host_blocks > 0; sequence->num_host_blocks--) {
    host_block_t *block = host_block(scheduler, sequence, sequence->num_host_blocks - 1);
    CHECK_GT(block->ref_count, 0);
    block->device = 0;
    if (--block->ref_count == 0)
      swap->free[swap->num_free++] = sequence->host_blocks[sequence->num_host_blocks - 1];
  }
}
