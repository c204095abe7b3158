/* fingerprint.c: `system_fingerprint` of answers.
 *
 * Loop thread, once, when the model is loaded.
 */
#include "server/serve.h"

#include "engine/base/hash.h"

#include <stdio.h>
#include <string.h>

static uint32_t hash_text(uint32_t hash, const char *text) {
  return fnv_32(hash, text, strlen(text));
}

/* The fingerprint is inferd-<version>-<hash8>. It depends on everything that may change a
 * token: the program, the weights, their type and the kernels. It does not depend on the number of
 * threads, the first word of `device`. */
void serve_set_fingerprint(server_t *server) {
  const engine_info_t *info = engine_info(server->engine);
  const char *kernels = strchr(info->device, ',');
  uint32_t hash = (uint32_t)(info->weights_hash ^ info->weights_hash >> 32) ^ FNV_32_BASIS;
  hash = hash_text(hash, info->backend);
  hash = hash_text(hash, info->dtype);
  hash = hash_text(hash, kernels != NULL ? kernels : info->device);
  snprintf(server->system_fingerprint, sizeof server->system_fingerprint, "inferd-%s-%08x",
           INFERD_VERSION, hash);
}
