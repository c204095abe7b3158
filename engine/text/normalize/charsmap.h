/* charsmap.h: SentencePiece's map of characters, `precompiled_charsmap` of a Precompiled
 * normalizer.
 *
 * A double-array trie (darts-clone) from byte strings to places in a list of replacements. It is
 * checked as a whole when it is made, so that a look-up cannot leave it. Read-only afterwards, any
 * thread; linear time.
 */
#ifndef INFERD_ENGINE_TEXT_NORMALIZE_CHARSMAP_H
#define INFERD_ENGINE_TEXT_NORMALIZE_CHARSMAP_H

#include "engine/base/buffer.h"

enum { CHARSMAP_BYTES_MAX = 4 << 20, CHARSMAP_REASON_MAX = 96 };

typedef struct charsmap {
  uint32_t *units; /* [num_units], the trie */
  uint32_t num_units;
  buffer_t text;         /* replacements, each with a NUL behind it */
  bool ascii_stays[128]; /* no key begins with this byte */
} charsmap_t;

/* Reads a map from base64. Returns a map that the caller frees with charsmap_free; or NULL, with
 * the reason if the map is malformed, and with an empty reason if memory is short. */
charsmap_t *charsmap_new(const char *base64, size_t length, char reason[CHARSMAP_REASON_MAX]);
/* The same from the bytes themselves. */
charsmap_t *charsmap_of_bytes(const void *data, size_t length, char reason[CHARSMAP_REASON_MAX]);
void charsmap_free(charsmap_t *map); /* NULL is allowed */

/* Appends the mapped text to `out`; if nothing is mapped, sets *changed to false and leaves `out`
 * as it is. A grapheme cluster of at most five bytes is replaced as a whole by what its shortest
 * known beginning maps to, as in the reference library; a longer cluster is mapped character by
 * character. Returns false if memory is short. */
bool charsmap_append(const charsmap_t *map, const uint8_t *text, size_t length, buffer_t *out,
                     bool *changed);

#endif
