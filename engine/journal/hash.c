/* hash.c: what a token is beside its id, and a vector, as few bytes; see hash.h. */
#include "engine/journal/hash.h"

#include "engine/base/hash.h"

#include <string.h>

static uint64_t hash_float(uint64_t hash, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return hash_mix(hash ^ bits);
}

static uint64_t hash_top(int32_t rank, int32_t num_top, const token_logprob_t *top) {
  uint64_t hash = hash_mix((uint64_t)(uint32_t)rank << 32 | (uint32_t)num_top);
  for (int32_t i = 0; i < num_top; i++)
    hash = hash_float(hash_mix(hash ^ (uint32_t)top[i].id), top[i].logprob);
  return hash;
}

uint32_t journal_hash_token(int32_t rank, int32_t num_top, const token_logprob_t *top) {
  return (uint32_t)hash_top(rank, num_top, top);
}

uint32_t journal_hash_score(const event_t *event) {
  uint64_t hash = hash_top(event->rank, event->num_top, event->top);
  hash = hash_mix(hash ^ (uint64_t)(uint32_t)event->position << 32 ^ (uint32_t)event->token_id);
  return (uint32_t)hash_float(hash, event->logprob);
}

uint64_t journal_hash_vector(const double *values, size_t count) {
  uint64_t hash = (uint64_t)(uint32_t)count;
  for (size_t i = 0; i < count; i++) {
    uint64_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    hash = hash_mix(hash ^ bits);
  }
  return hash;
}
