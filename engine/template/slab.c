/* slab.c: bump allocation in chunks that double up to 1 MiB.
 *
 * The thread that owns the slab; see slab.h.
 */
#include "engine/template/slab.h"

#include "engine/base/checked.h"

#include <stdlib.h>
#include <string.h>

struct slab_chunk {
  slab_chunk_t *next;
  size_t size; /* of the bytes behind this header */
};

enum { CHUNK_FIRST = 32 << 10, CHUNK_LARGEST = 1 << 20 };

static bool add_chunk(slab_t *slab, size_t size) {
  size_t wanted = slab->chunks == NULL ? CHUNK_FIRST : 2 * slab->chunks->size, bytes;
  if (wanted > CHUNK_LARGEST) wanted = CHUNK_LARGEST;
  if (wanted < size) wanted = size;
  slab_chunk_t *chunk = NULL;
  if (checked_add(wanted, sizeof *chunk, &bytes)) chunk = malloc(bytes);
  if (chunk == NULL) {
    slab->out_of_memory = true;
    return false;
  }
  *chunk = (slab_chunk_t){slab->chunks, wanted};
  slab->chunks = chunk;
  slab->at = (char *)(chunk + 1);
  slab->end = slab->at + wanted;
  return true;
}

void *slab_take(slab_t *slab, size_t size, bool zero) {
  size_t aligned, total;
  if (!checked_align(size, 8, &aligned) || !checked_add(slab->taken, aligned, &total) ||
      total > slab->limit)
    return NULL;
  if ((size_t)(slab->end - slab->at) < aligned && !add_chunk(slab, aligned)) return NULL;
  void *piece = slab->at;
  slab->at += aligned;
  slab->taken = total;
  if (zero && size > 0) memset(piece, 0, size);
  return piece;
}

void slab_free(slab_t *slab) {
  for (slab_chunk_t *chunk = slab->chunks, *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  *slab = (slab_t){.limit = slab->limit};
}
