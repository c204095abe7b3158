/* charsmap.h: SentencePiece's map of characters, `precompiled_charsmap` of a Precompiled
 * normalizer.
 *
 * A double-array trie (darts-clone) maps byte strings to replacements. The trie comes from a model
 * file, so the whole of it is checked when the map is made; a look-up can then not read outside it.
 * A map is made on the loading thread and never changes afterwards: any thread may read it. Mapping
 * takes linear time.
 */
#ifndef INFERD_ENGINE_TEXT_NORMALIZE_CHARSMAP_H
#define INFERD_ENGINE_TEXT_NORMALIZE_CHARSMAP_H

#include "engine/base/buffer.h"

/* Bytes; CHARSMAP_BYTES_MAX bounds the base64 text and the decoded map alike. */
enum { CHARSMAP_BYTES_MAX = 4 << 20, CHARSMAP_REASON_MAX = 96 };

typedef struct charsmap {
  uint32_t *units; /* [num_units] the trie; charsmap.c describes a unit */
  uint32_t num_units;
  buffer_t text;         /* replacements, each with a NUL behind it */
  bool ascii_stays[128]; /* true: no key begins with this byte, so alone it is not mapped */
} charsmap_t;

/* Reads a map from `length` bytes of base64. Returns a map that the caller frees with
 * charsmap_free, or NULL. `reason` then says what is wrong with the map; an empty reason means that
 * memory is short. The input is copied. */
charsmap_t *charsmap_new(const char *base64, size_t length, char reason[CHARSMAP_REASON_MAX]);
/* The same from the decoded bytes. */
charsmap_t *charsmap_of_bytes(const void *data, size_t length, char reason[CHARSMAP_REASON_MAX]);
void charsmap_free(charsmap_t *map); /* NULL is allowed */

/* Appends the mapped text to `out` and sets *changed to true. If nothing is mapped, it sets
 * *changed to false and leaves `out` as it is. The text is well-formed UTF-8 and does not lie in
 * `out`.
 *
 * As in the reference library, a grapheme cluster of at most five bytes is replaced as a whole by
 * the replacement of its shortest prefix that is a key. Any other cluster is mapped character by
 * character. Returns false if memory is short; `out` may then hold a part of the result. */
bool charsmap_append(const charsmap_t *map, const uint8_t *text, size_t length, buffer_t *out,
                     bool *changed);

#endif
