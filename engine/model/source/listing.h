/* listing.h: the names in a directory, and what GGUF files say by their names.
 *
 * Any thread; no state.
 */
#ifndef INFERD_ENGINE_MODEL_DISK_LISTING_H
#define INFERD_ENGINE_MODEL_DISK_LISTING_H

#include "engine/base/error.h"

#include <stddef.h>

enum { LISTING_NAMES_MAX = 65536 };

typedef struct listing {
  char **names; /* sorted; owned */
  int count;
} listing_t;

/* Reads the names in `dir`, except names that begin with a dot. A folder in it is followed by its
 * own names as "FOLDER/NAME", because repositories keep the parts of a split GGUF file in a folder.
 * Returns 0 and *out, freed with listing_free; or an error of error_system, ERR_NO_MEMORY,
 * ERR_MODEL_MALFORMED for more than LISTING_NAMES_MAX names. */
int listing_read(const char *dir, listing_t *out, inferd_error_t *error);
void listing_free(listing_t *listing);
bool listing_has(const listing_t *listing, const char *name);
/* True when a name ends in `suffix`. */
bool listing_has_suffix(const listing_t *listing, const char *suffix);
/* Writes "a, b, c" of the names that `wanted` accepts (NULL: all), "..." after those that fit.
 * Returns `out`. */
const char *listing_text(const listing_t *listing, bool (*wanted)(const char *name), char *out,
                         size_t capacity);

/* True for a GGUF file that a model can be loaded from: neither a later part of a split file, nor
 * an image projector (mmproj), nor an importance matrix. */
bool gguf_is_model(const char *name);
/* True when `quant` stands in the name as a whole word, in any case: "q4_k_m" in "x-Q4_K_M.gguf",
 * not "Q4_K" there. *plain (may be NULL) is false when "UD-" stands before it. */
bool gguf_has_quant(const char *name, const char *quant, bool *plain);
/* Bytes of the name of a GGUF file before ".gguf" and before the number of a part. */
int gguf_stem_length(const char *name);
/* True when `name` is `first` itself, or another part of the split file that `first` begins. */
bool gguf_is_part_of(const char *name, const char *first);
/* The GGUF file that is meant by a quantisation, "" = none was named: the only one that fits. Of
 * two files of one quantisation the plain one is meant, not the one whose name has "UD-" before it.
 * *count is the number of files that fit. Returns NULL when none is meant. */
const char *gguf_choose(const listing_t *listing, const char *quant, int *count);

#endif
