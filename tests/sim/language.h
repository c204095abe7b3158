/* language.h: what constrained requests may write, and a judge of it that knows no grammar.
 *
 * A language is `(?:one|two|three){min,max}` over a few words that begin and end alike, so that a
 * text can often be read in several ways. There are SIM_LANGUAGES of them, the same in every run.
 * One thread.
 */
#ifndef INFERD_TESTS_SIM_LANGUAGE_H
#define INFERD_TESTS_SIM_LANGUAGE_H

#include "engine/grammar/grammar.h"
#include "engine/text/tokenizer.h"

enum { LANGUAGE_WORD_MAX = 5, LANGUAGE_MASK_WORDS = 12 };

/* How a text may be read: reach[d] has bit k when the text without its last d bytes is k words. */
typedef struct language_state {
  int index; /* of the language, -1 = any text */
  char tail[LANGUAGE_WORD_MAX];
  uint64_t reach[LANGUAGE_WORD_MAX + 1];
} language_state_t;

void language_begin(language_state_t *state, int index);
void language_add(language_state_t *state, const tokenizer_t *tokenizer, int32_t id);
bool language_may_end(const language_state_t *state);
bool language_is_finished(const language_state_t *state); /* it may end and cannot go on */
/* The ids that may come next, without those that end a text. */
void language_mask(const language_state_t *state, const tokenizer_t *tokenizer, uint32_t *mask);

const char *language_regex(int index);
/* The compiled form, one reference more. language_load makes them all, once in a process. */
void language_load(const grammar_vocabulary_t *vocabulary);
grammar_t *language_grammar(int index);

#endif
