/* draft_case.h: a reference case of a layer or head that drafts, under tests/vectors/mtp or eagle
 * (scripts/vectors/mtp.py, eagle.py).
 *
 * Functions assert: a missing or broken file fails the test that asked for it.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_DRAFT_CASE_H
#define INFERD_TESTS_ENGINE_MODEL_DRAFT_CASE_H

#include <stdint.h>

enum { DRAFT_PROMPT = 24, DRAFT_POSITIONS = 4, DRAFT_VOCAB = 384 };

/* What expected.json of a case says. A logit of -INFINITY is no token of the head. */
typedef struct draft_case {
  int32_t prompt[DRAFT_PROMPT], positions[DRAFT_POSITIONS];
  double first[DRAFT_POSITIONS][DRAFT_VOCAB]; /* logits behind each position */
  int32_t drafted;                            /* the likeliest token behind the prompt */
  double second[DRAFT_VOCAB];                 /* logits behind that token */
  int32_t seed;                               /* of the model's dummy weights */
} draft_case_t;

/* Reads the case of a directory. The caller frees it. */
draft_case_t *draft_case_read(const char *dir);
/* The logits of the places before the last one of the prompt, [DRAFT_PROMPT - 1, DRAFT_VOCAB], are
 * those of `first`, and the likeliest token at the last of them is `drafted`. `name` is that of the
 * case. */
void draft_case_expect_first(const char *name, const draft_case_t *c, const float *logits);
void draft_case_expect_second(const char *name, const draft_case_t *c, const float *logits);

/* Makes the directory `dir`, a template of mkdtemp, with the config.json of another directory in
 * which the text `from` is replaced by `to`. draft_config_remove removes both. */
void draft_config_make(char *dir, const char *of, const char *from, const char *to);
void draft_config_remove(const char *dir);

#endif
