/* swap_double.c: see swap_double.h. Engine thread. A device block is spoilt before it is filled
 * from the host, so that what a copy leaves out is no number. */
#include "tests/engine/schedule/swap_double.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { POOLS_MAX = 2 };

typedef struct host_pool {
  const device_t *device;
  uint8_t *bytes; /* [num_blocks, layers, block_bytes] */
} host_pool_t;

static host_pool_t pools[POOLS_MAX]; /* of the model and of its draft model */

static host_pool_t *pool_of(const device_t *d) {
  for (int i = 0; i < POOLS_MAX; i++) {
    if (pools[i].device == d) return &pools[i];
  }
  CHECK(false);
  return NULL;
}

static size_t layers(const device_t *d) {
  return (size_t)d->kv.num_layers;
}

/* Bytes of a block in a layer, of the kind that has most. */
static size_t widest(const device_t *d) {
  return MAX(d->kv_kinds[0].block_bytes, d->kv_kinds[1].block_bytes);
}

static uint8_t *at(const device_t *d, int32_t host, int32_t layer) {
  size_t index = (size_t)host * layers(d) + (size_t)layer;
  return pool_of(d)->bytes + index * widest(d);
}

static int double_pool(device_t *d, int32_t num_blocks, void *memory, inferd_error_t *error) {
  CHECK(memory == NULL);
  host_pool_t *pool = pool_of(NULL);
  pool->bytes = malloc((size_t)num_blocks * layers(d) * widest(d));
  if (!pool->bytes) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the host pool");
  pool->device = d;
  return 0;
}

static double double_rate(const device_t *d) {
  (void)d;
  return 1e10;
}

static void double_out(device_t *d, const block_swap_t *swaps, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    for (int32_t l = 0; l < d->kv.num_layers; l++) {
      memcpy(at(d, swaps[i].host, l), kv_block(d, l, swaps[i].device), kv_kind(d, l)->block_bytes);
    }
  }
}

static void double_in(device_t *d, const block_swap_t *swaps, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    for (int32_t l = 0; l < d->kv.num_layers; l++) {
      memset(kv_block(d, l, swaps[i].device), 0xff, kv_kind(d, l)->block_bytes);
      memcpy(kv_block(d, l, swaps[i].device), at(d, swaps[i].host, l), kv_kind(d, l)->block_bytes);
    }
  }
}

static void double_close(device_t *d) {
  for (int i = 0; i < POOLS_MAX; i++) {
    if (pools[i].device != d) continue;
    free(pools[i].bytes);
    pools[i] = (host_pool_t){NULL, NULL};
  }
  ops_cpu.close(d);
}

const ops_t *swap_double_ops(void) {
  static const swap_ops_t swap = {
      .pool = double_pool, .rate = double_rate, .out = double_out, .in = double_in};
  static ops_t ops;
  ops = ops_cpu;
  ops.swap = &swap;
  ops.close = double_close;
  return &ops;
}
