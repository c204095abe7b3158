/* params_read.h: the rows of the tables in params.c and params_chat.c, and the readers of their
 * structured fields. Each stores into the params_t behind reader->out; 0 or an error with param
 * set.
 */
#ifndef INFERD_SERVER_FIELDS_PARAMS_READ_H
#define INFERD_SERVER_FIELDS_PARAMS_READ_H

#include "server/fields/params.h"

#define AT(member) offsetof(params_t, member)
#define ANY_COUNT 0x1p53 /* what does not fit is found out by the rules on lengths */

#define BOOLEAN(name, member, fallback)                                                            \
  { name, FIELD_BOOL, 0, AT(member), 0, 0, fallback, 0, 0 }
#define INTEGER(name, member, min, max, fallback)                                                  \
  { name, FIELD_INT, 0, AT(member), min, max, fallback, 0, 0 }
#define INTEGER_FLAGS(name, member, flags, min, max, fallback)                                     \
  { name, FIELD_INT, flags, AT(member), min, max, fallback, 0, 0 }
#define NUMBER(name, member, flags, min, max, fallback)                                            \
  { name, FIELD_NUMBER, flags, AT(member), min, max, fallback, 0, 0 }
#define STRING(name, member, min, max)                                                             \
  { name, FIELD_STRING, 0, AT(member), min, max, 0, 0, 0 }
#define IDS(name, member, min, max)                                                                \
  { name, FIELD_IDS, 0, AT(member), min, max, 0, 0, 0 }
#define CUSTOM(name, reader)                                                                       \
  { name, FIELD_CUSTOM, 0, 0, 0, 0, 0, reader, 0 }
#define REFUSED(name, noop, hint)                                                                  \
  { name, FIELD_REFUSED, noop, 0, 0, 0, 0, 0, hint }
#define REFUSED_UNLESS(name, value, other, hint)                                                   \
  { name, FIELD_REFUSED, NOOP_NUMBERS, 0, value, other, 0, 0, hint }
#define IGNORED(name, max)                                                                         \
  { name, FIELD_IGNORED, 0, 0, 0, max, 0, read_ignored_string, 0 }
#define IGNORED_ANY(name)                                                                          \
  { name, FIELD_IGNORED, 0, 0, 0, 0, 0, 0, 0 }

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

/* constraint_fields.c */
int read_response_format(reader_t *reader, const field_t *field, const json_t *value);
int read_structured_outputs(reader_t *reader, const field_t *field, const json_t *value);
int read_schema(reader_t *reader, const field_t *field, const json_t *value);
int read_regex(reader_t *reader, const field_t *field, const json_t *value);
int read_choice(reader_t *reader, const field_t *field, const json_t *value);
int read_grammar(reader_t *reader, const field_t *field, const json_t *value);

/* chat_fields.c */
int read_messages(reader_t *reader, const field_t *field, const json_t *value);
int read_tools(reader_t *reader, const field_t *field, const json_t *value);
int read_tool_choice(reader_t *reader, const field_t *field, const json_t *value);
int read_modalities(reader_t *reader, const field_t *field, const json_t *value);
int read_verbosity(reader_t *reader, const field_t *field, const json_t *value);
int read_template_kwargs(reader_t *reader, const field_t *field, const json_t *value);
int read_documents(reader_t *reader, const field_t *field, const json_t *value);
int read_generation_prompt(reader_t *reader, const field_t *field, const json_t *value);

#endif
