/* trial.h: finds the format of a model by reading back calls that its chat template has written.
 *
 * No state, any thread; allocates while it runs.
 */
#ifndef INFERD_SERVER_PARSER_TRIAL_H
#define INFERD_SERVER_PARSER_TRIAL_H

#include "server/parser/output.h"

/* A call that stands in a text. */
typedef struct trial_call {
  const char *name, *arguments; /* arguments: JSON */
} trial_call_t;

/* Tells whether a parser with these options reads exactly these calls out of the text, with no
 * content but blanks before and between them; `to_the_end`: nor behind them. Arguments are compared
 * as JSON values, whatever the order of their members. */
bool trial_reads(const output_options_t *options, const char *text, size_t length,
                 const trial_call_t *calls, int num_calls, bool to_the_end);
/* Returns the only row of which the text has a sign; NULL if there is none, or are several. */
const tool_format_t *trial_format_by_signs(const char *text, size_t length);

#endif
