/* params_read.h: readers of the structured fields of POST /v1/completions, named by the table in
 * params.c. Each stores into the params_t behind reader->out; 0 or an error with param set.
 */
#ifndef INFERD_SERVER_PARAMS_READ_H
#define INFERD_SERVER_PARAMS_READ_H

#include "server/params.h"

int read_prompt(reader_t *reader, const field_t *field, const json_t *value);
int read_logit_bias(reader_t *reader, const field_t *field, const json_t *value);
int read_stop(reader_t *reader, const field_t *field, const json_t *value);
int read_stream_options(reader_t *reader, const field_t *field, const json_t *value);
int read_seed(reader_t *reader, const field_t *field, const json_t *value);
int read_truncation_side(reader_t *reader, const field_t *field, const json_t *value);
int read_allowed_ids(reader_t *reader, const field_t *field, const json_t *value);
int read_bad_words(reader_t *reader, const field_t *field, const json_t *value);
int read_prompt_logprobs(reader_t *reader, const field_t *field, const json_t *value);
int read_early_stopping(reader_t *reader, const field_t *field, const json_t *value);
int read_request_id(reader_t *reader, const field_t *field, const json_t *value);
int read_ignored_string(reader_t *reader, const field_t *field, const json_t *value);
int read_metadata(reader_t *reader, const field_t *field, const json_t *value);

#endif
