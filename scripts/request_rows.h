/* request_rows.h: the rows of server/fields, as the programs that write docs/ read them. */
#ifndef INFERD_SCRIPTS_REQUEST_ROWS_H
#define INFERD_SCRIPTS_REQUEST_ROWS_H

#include "server/fields/params.h"

#include <math.h>

typedef struct row {
  const char *name;
  field_kind_t kind;
  unsigned flags;
  double min, max;
  const char *fallback, *accepts, *help; /* of REFUSED rows `help` ends the sentence, or is NULL */
  const char *reader;                    /* the name of the function that checks, or NULL */
} row_t;

#define ANY_COUNT INFINITY
#define BOOLEAN(name, member, fallback, help)                                                      \
  {name, FIELD_BOOL, 0, 0, 0, #fallback, NULL, help, NULL},
#define INTEGER(name, member, min, max, fallback, help)                                            \
  {name, FIELD_INT, 0, min, max, #fallback, NULL, help, NULL},
#define INTEGER_FLAGS(name, member, flags, min, max, fallback, help)                               \
  {name, FIELD_INT, flags, min, max, #fallback, NULL, help, NULL},
#define NUMBER(name, member, flags, min, max, fallback, help)                                      \
  {name, FIELD_NUMBER, flags, min, max, #fallback, NULL, help, NULL},
#define STRING(name, member, min, max, help)                                                       \
  {name, FIELD_STRING, 0, min, max, "", NULL, help, NULL},
#define IDS(name, member, min, max, help) {name, FIELD_IDS, 0, min, max, "", NULL, help, NULL},
#define CUSTOM(name, reader, accepts, help)                                                        \
  {name, FIELD_CUSTOM, 0, 0, 0, "", accepts, help, #reader},
#define REFUSED(name, noop, hint) {name, FIELD_REFUSED, noop, 0, 0, NULL, NULL, hint, NULL},
#define REFUSED_UNLESS(name, value, other, hint)                                                   \
  {name, FIELD_REFUSED, NOOP_NUMBERS, value, other, NULL, NULL, hint, NULL},
#define REFUSED_PREFIX(name, noop)                                                                 \
  {name, FIELD_REFUSED, FIELD_PREFIX | (noop), 0, 0, NULL, NULL, NULL, NULL},
#define IGNORED(name, max) {name, FIELD_IGNORED, 0, 0, max, NULL, NULL, NULL, NULL},
#define IGNORED_ANY(name) {name, FIELD_IGNORED, 0, 0, ANY_COUNT, NULL, "any value", NULL, NULL},
#define IGNORED_READ(name, reader, accepts)                                                        \
  {name, FIELD_IGNORED, 0, 0, 0, NULL, accepts, NULL, #reader},
#define HINT(name)                                                                                 \
  {name, FIELD_IGNORED, 0, 0, 0, NULL, "any value, a hint; `x-inferd-ignored-params` names it",    \
   NULL, NULL},

static const row_t completion_rows[] = {
#include "server/fields/completion_fields.def"
};
static const row_t chat_rows[] = {
#include "server/fields/chat_fields.def"
};
static const row_t responses_rows[] = {
#include "server/fields/responses_fields.def"
};
static const row_t conversation_rows[] = {
#include "server/fields/conversation_fields.def"
};
static const row_t batch_rows[] = {
#include "server/fields/batch_fields.def"
};
static const row_t embedding_rows[] = {
#include "server/fields/embedding_fields.def"
};
static const row_t transcription_rows[] = {
#include "server/fields/transcription_fields.def"
};
static const row_t translation_rows[] = {
#include "server/fields/translation_fields.def"
};
static const row_t rerank_rows[] = {
#include "server/fields/pooled/rerank_fields.def"
};
static const row_t score_rows[] = {
#include "server/fields/pooled/score_fields.def"
};
static const row_t classify_rows[] = {
#include "server/fields/pooled/classify_fields.def"
};
static const row_t pooling_rows[] = {
#include "server/fields/pooled/pooling_fields.def"
};
static const row_t messages_rows[] = {
#include "server/fields/messages_fields.def"
};
static const row_t llama_completion_rows[] = {
#include "server/fields/llama/completion_fields.def"
};
static const row_t llama_infill_rows[] = {
#include "server/fields/llama/infill_fields.def"
};
static const row_t ollama_chat_rows[] = {
#include "server/fields/ollama/chat_fields.def"
};
static const row_t ollama_generate_rows[] = {
#include "server/fields/ollama/generate_fields.def"
};
static const row_t ollama_option_rows[] = {
#include "server/fields/ollama/option_fields.def"
};
static const row_t ollama_embed_rows[] = {
#include "server/fields/ollama/embed_fields.def"
};
static const row_t ollama_embeddings_rows[] = {
#include "server/fields/ollama/embeddings_fields.def"
};
static const row_t ollama_show_rows[] = {
#include "server/fields/ollama/show_fields.def"
};
static const row_t ollama_pull_rows[] = {
#include "server/fields/ollama/pull_fields.def"
};
static const row_t tokenize_rows[] = {
#include "server/fields/tokenize_fields.def"
};
static const row_t detokenize_rows[] = {
#include "server/fields/detokenize_fields.def"
};
static const row_t schema_rows[] = {
#include "server/fields/schema_fields.def"
};
static const row_t model_name_rows[] = {
#include "server/fields/model_name_fields.def"
};
static const row_t load_adapter_rows[] = {
#include "server/fields/load_adapter_fields.def"
};
static const row_t unload_adapter_rows[] = {
#include "server/fields/unload_adapter_fields.def"
};

#endif
