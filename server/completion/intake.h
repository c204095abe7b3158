/* intake.h: what a completion needs until the engine has its requests: body, JSON, job, account.
 *
 * The loop thread owns it, except while its job runs: then only the job uses it.
 */
#ifndef INFERD_SERVER_COMPLETION_INTAKE_H
#define INFERD_SERVER_COMPLETION_INTAKE_H

#include "engine/grammar/grammar.h"
#include "server/completion/live.h"
#include "server/fields/params.h"
#include "server/lanes/lanes.h"
#include "server/ledger/ledger.h"

/* What is needed only until the engine has the request; the completion frees it then. */
typedef struct intake {
  lane_job_t job; /* first: what is done outside the loop thread */
  completion_t *completion;
  held_t body; /* taken from the exchange: the client may disconnect while the pool still reads */
  json_doc_t *doc;
  charge_t values; /* of the document and of the rendered text */
  field_limits_t limits;
  params_defaults_t defaults;
  jinja_output_t rendered;         /* chat: the prompt's text */
  char ignored[IGNORED_NAMES_MAX]; /* names of unknown fields; "" = none */
  char mended[MENDED_NAMES_MAX];   /* what was mended in the history; "" = nothing */
  bool was_read, was_built;
  bool needs_heavy; /* a heavy job must go on: the constraint is not in the cache, or the request
                     * has pictures */
  grammar_account_t account; /* what was spent on compiling it */
  int code;                  /* result of reading and tokenising: 0 or an ERR_ number */
  inferd_error_t error;
  uint64_t tokenize_ns, tokenize_bytes;
} intake_t;

/* pairs.c: whether each prompt is a pair of texts; the ids of such prompts. Pool. `keep`: tokens to
 * which a pair is cut, 0 = it is not. Returns 0, or an error in the intake. */
bool completion_joins(const completion_t *completion);
int completion_join(completion_t *completion, tokenizer_scratch_t *scratch, int64_t keep);

#endif
