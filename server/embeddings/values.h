/* values.h: what was pooled of a prompt -> the numbers of an answer; the routes that return them.
 *
 * Loop thread.
 */
#ifndef INFERD_SERVER_EMBEDDINGS_VALUES_H
#define INFERD_SERVER_EMBEDDINGS_VALUES_H

#include "server/completion/dialect.h"

/* Makes, in place, the numbers that are returned of vector `row` of an input: it is normalised if
 * that is wanted, the scores of a classifier become probabilities. Once for each, when it is
 * printed: thousands of them at once would hold up the loop. */
void values_finish(const input_t *input, int32_t row);
int32_t values_rows(const input_t *input);            /* vectors of an input: 1, or its tokens */
int32_t values_count(const completion_t *completion); /* numbers of a vector */
size_t values_total(const input_t *input);            /* numbers of an input */
/* Appends number `index` of the input `list`: cord_items prints a vector. Where each token has one,
 * the first and the last number of a vector have its brackets. */
void values_print_number(buffer_t *out, const void *list, size_t index);
/* A score as the activation leaves it. */
double values_activate(const completion_t *completion, double score);

/* For a completion whose answer begins with its id: appends {"id":"PREFIX-...". */
void values_print_id(buffer_t *out, const completion_t *completion, const char *prefix);
/* Appends "model":"...". */
void values_print_model(buffer_t *out, const completion_t *completion);
/* Appends "usage":{...}, in which all tokens are those of prompts. */
void values_print_usage(buffer_t *out, const completion_t *completion);
/* The `prepare` of these dialects: notes the time. */
bool values_prepare(completion_t *completion);

#endif
