/* salt.c: the prefix-cache domain of a request: a keyed hash of tenant and cache_salt.
 *
 * Pure function, any thread. The key is random and drawn once per process, so a client cannot
 * compute a salt that gives the cache domain of another one.
 */
#include "server/completion/salt.h"

#include "engine/base/siphash.h"

uint64_t salt_hash(const uint64_t key[2], uint64_t tenant, const char *salt, size_t length) {
  siphash_t siphash = siphash_begin(key);
  siphash_word(&siphash, tenant, 2);
  siphash_bytes(&siphash, salt, length, 2);
  return siphash_end(&siphash, 2);
}
