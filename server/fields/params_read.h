/* params_read.h: what a row of the .def files of fields becomes, and the readers of structured
 * fields. Each reader stores into the params_t behind reader->out; 0 or an error with param set.
 */
#ifndef INFERD_SERVER_FIELDS_PARAMS_READ_H
#define INFERD_SERVER_FIELDS_PARAMS_READ_H

#include "server/fields/params.h"

/* The struct that `member` of a row belongs to; a table for another struct defines it anew. */
#define FIELDS_STRUCT params_t
/* The place of a member, which must have this type: fields.c writes a value of the row's kind
 * there. A row with a member of another type does not compile. */
#define AT(type, member)                                                                           \
  (offsetof(FIELDS_STRUCT, member) +                                                               \
   0 * sizeof(char[_Generic(((FIELDS_STRUCT *)0)->member, type : 1)]))
#define ANY_COUNT 0x1p53 /* what does not fit is found out by the rules on lengths */

/* The rows of the .def files as elements of an array of field_t. Their texts are for docs/api.md.
 */
#define BOOLEAN(name, member, fallback, help)                                                      \
  {name, FIELD_BOOL, 0, AT(bool, member), 0, 0, fallback, 0, 0},
#define INTEGER(name, member, min, max, fallback, help)                                            \
  {name, FIELD_INT, 0, AT(int64_t, member), min, max, fallback, 0, 0},
#define INTEGER_FLAGS(name, member, flags, min, max, fallback, help)                               \
  {name, FIELD_INT, flags, AT(int64_t, member), min, max, fallback, 0, 0},
#define NUMBER(name, member, flags, min, max, fallback, help)                                      \
  {name, FIELD_NUMBER, flags, AT(float, member), min, max, fallback, 0, 0},
#define STRING(name, member, min, max, help)                                                       \
  {name, FIELD_STRING, 0, AT(const json_t *, member), min, max, 0, 0, 0},
#define IDS(name, member, min, max, help)                                                          \
  {name, FIELD_IDS, 0, AT(id_list_t, member), min, max, 0, 0, 0},
#define CUSTOM(name, reader, accepts, help) {name, FIELD_CUSTOM, 0, 0, 0, 0, 0, reader, 0},
#define REFUSED(name, noop, hint) {name, FIELD_REFUSED, noop, 0, 0, 0, 0, 0, hint},
#define REFUSED_UNLESS(name, value, other, hint)                                                   \
  {name, FIELD_REFUSED, NOOP_NUMBERS, 0, value, other, 0, 0, hint},
#define REFUSED_PREFIX(name, noop) {name, FIELD_REFUSED, FIELD_PREFIX | noop, 0, 0, 0, 0, 0, 0},
#define IGNORED(name, max) {name, FIELD_IGNORED, 0, 0, 0, max, 0, read_ignored_string, 0},
#define IGNORED_ANY(name) {name, FIELD_IGNORED, 0, 0, 0, 0, 0, 0, 0},
#define IGNORED_READ(name, reader, accepts) {name, FIELD_IGNORED, 0, 0, 0, 0, 0, reader, 0},
#define HINT(name) {name, FIELD_IGNORED, FIELD_NAMED, 0, 0, 0, 0, 0, 0},

int read_prompt(reader_t *reader, const field_t *field, const json_t *value);
int read_prompt_embeds(reader_t *reader, const field_t *field, const json_t *value);
int read_decoder_prompt(reader_t *reader, const field_t *field, const json_t *value);
int read_logit_bias(reader_t *reader, const field_t *field, const json_t *value);
int read_stop(reader_t *reader, const field_t *field, const json_t *value);
int check_stop(reader_t *reader, const field_t *field, const json_t *value); /* takes nothing */
int read_stream_options(reader_t *reader, const field_t *field, const json_t *value);
int read_seed(reader_t *reader, const field_t *field, const json_t *value);
int read_truncation_side(reader_t *reader, const field_t *field, const json_t *value);
int read_allowed_ids(reader_t *reader, const field_t *field, const json_t *value);
int read_bad_words(reader_t *reader, const field_t *field, const json_t *value);
int read_early_stopping(reader_t *reader, const field_t *field, const json_t *value);
int read_request_id(reader_t *reader, const field_t *field, const json_t *value);
int read_ignored_string(reader_t *reader, const field_t *field, const json_t *value);
int read_metadata(reader_t *reader, const field_t *field, const json_t *value);
/* The same, kept: the first member of the output struct is a const json_t * for it. */
int read_pairs(reader_t *reader, const field_t *field, const json_t *value);

/* params_embedding.c */
int read_raw_scores(reader_t *reader, const field_t *field, const json_t *value);
int read_use_activation(reader_t *reader, const field_t *field, const json_t *value);
int read_endianness(reader_t *reader, const field_t *field, const json_t *value);
int read_numbers_only(reader_t *reader, const field_t *field, const json_t *value);

/* closed.c: what the operator has closed. Each returns 0 or ERR_UNSUPPORTED_PARAMETER with a
 * message that names `param` and the switch. */
int closed_check_kind(const field_limits_t *limits, grammar_kind_t kind, const char *param,
                      inferd_error_t *error);
/* Looks for patterns in a schema, if these are closed. */
int closed_check_patterns(const field_limits_t *limits, const json_t *schema, const char *param,
                          inferd_error_t *error);
/* Forced calls, strict functions, and functions beside a constraint are compiled from schemas. */
int closed_check_tools(const params_t *params, const field_limits_t *limits, inferd_error_t *error);

/* constraint_fields.c */
int read_response_format(reader_t *reader, const field_t *field, const json_t *value);
int read_structured_outputs(reader_t *reader, const field_t *field, const json_t *value);
int read_format(reader_t *reader, const field_t *field, const json_t *value);
int read_schema(reader_t *reader, const field_t *field, const json_t *value);
int read_regex(reader_t *reader, const field_t *field, const json_t *value);
int read_choice(reader_t *reader, const field_t *field, const json_t *value);
int read_grammar(reader_t *reader, const field_t *field, const json_t *value);

/* params_chat.c: leaves the functions of chat->allowed_tools in chat->tools, if it is given. */
int params_keep_allowed(chat_params_t *chat, reader_t *reader);

/* chat_fields.c */
int read_messages(reader_t *reader, const field_t *field, const json_t *value);
int read_tools(reader_t *reader, const field_t *field, const json_t *value);
int read_tool_choice(reader_t *reader, const field_t *field, const json_t *value);
int read_modalities(reader_t *reader, const field_t *field, const json_t *value);
int read_template_kwargs(reader_t *reader, const field_t *field, const json_t *value);
int read_documents(reader_t *reader, const field_t *field, const json_t *value);
int read_generation_prompt(reader_t *reader, const field_t *field, const json_t *value);

#endif
