/* grapheme.h: where user-perceived characters end (extended grapheme clusters, UAX #29).
 *
 * The classes are measured at the reference library (scripts/unicode_tables.py), as far as they
 * matter to charsmap.h: pairs of regional indicators, whose clusters are long, are two clusters
 * here. Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_TEXT_UNICODE_GRAPHEME_H
#define INFERD_ENGINE_TEXT_UNICODE_GRAPHEME_H

#include <stddef.h>
#include <stdint.h>

typedef enum grapheme_class {
  GRAPHEME_OTHER,
  GRAPHEME_CONTROL,
  GRAPHEME_CR,
  GRAPHEME_LF,
  GRAPHEME_PREPEND,
  GRAPHEME_PICTOGRAPH,
  GRAPHEME_CONSONANT,   /* Indic, which a linker joins to the one before */
  GRAPHEME_EXTEND,      /* a mark that ends such a chain */
  GRAPHEME_EXTEND_INCB, /* a mark that does not */
  GRAPHEME_LINKER,
  GRAPHEME_ZWJ,
  GRAPHEME_SPACING,
  GRAPHEME_L,
  GRAPHEME_V,
  GRAPHEME_T,
  GRAPHEME_LV,
  GRAPHEME_LVT
} grapheme_class_t;

extern const uint8_t grapheme_index[4352], grapheme_blocks[];

/* Bytes of the cluster that text[0..length) begins with; well-formed UTF-8, length > 0. */
size_t grapheme_length(const uint8_t *text, size_t length);

#endif
