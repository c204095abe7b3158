/* slab.h: the memory of one template or of one render: taken piece by piece, given back as a whole.
 *
 * A slab belongs to one thread. It never returns a piece before slab_free, and never hands out more
 * than its limit.
 */
#ifndef INFERD_ENGINE_TEMPLATE_SLAB_H
#define INFERD_ENGINE_TEMPLATE_SLAB_H

#include <stdbool.h>
#include <stddef.h>

typedef struct slab_chunk slab_chunk_t;

typedef struct slab {
  slab_chunk_t *chunks; /* newest first */
  char *at, *end;       /* free part of the newest chunk */
  size_t taken, limit;  /* bytes handed out, and how many may be */
  bool out_of_memory;   /* malloc failed, as opposed to the limit */
} slab_t;

/* `size` bytes, aligned to 8 and zeroed when `zero`; NULL at the limit or without memory. */
void *slab_take(slab_t *slab, size_t size, bool zero);
void slab_free(slab_t *slab); /* all pieces; the slab is empty and usable again */

#endif
