/* ollama.h: Ollama's wire format, the routes below /api/, as a dialect of chat and completions.
 *
 * request.c, options.c and conversation.c turn a body into one of chat, or of completions where no
 * template is wanted; embed.c does so for vectors. writer.c turns the output into lines of JSON, or
 * into one object. models.c answers what programs ask about the model, or about several, in the
 * words of subject.c. Functions of the request are pure: the loop thread or a job of the lanes
 * calls them.
 */
#ifndef INFERD_SERVER_OLLAMA_OLLAMA_H
#define INFERD_SERVER_OLLAMA_OLLAMA_H

#include "server/completion/completion.h"

#include <cjson/cJSON.h>

enum { OLLAMA_NAME_MAX = 320 };

/* What an answer needs of its request, and what its writer has so far. Lies in the arena of the
 * completion; the memory of the buffer is freed by the dialect. */
typedef struct ollama_state {
  bool generates;    /* /api/generate: the answer is a text, not a message */
  const char *model; /* as the request names it */
  size_t model_length;
  buffer_t call;    /* a call that has begun: its beginning, then its arguments */
  size_t arguments; /* where these begin in it */
} ollama_state_t;

/* What all bodies have, as JSON values of the body; NULL = not given. */
typedef struct ollama_common {
  const json_t *model, *options, *keep_alive;
  const json_t *think, *format;
} ollama_common_t;

/* options.c */
/* Checks the options (NULL = none), and appends those that chat and completions have, in their
 * words: ,"temperature":0.5. An error names options.NAME. */
int ollama_print_options(reader_t *reader, const json_t *options, int64_t context, buffer_t *chat);
/* The same for vectors, which no option changes but num_ctx: *most is that, or -1. */
int ollama_read_context(reader_t *reader, const json_t *options, int64_t context, int64_t *most);
/* A duration, "5m" or seconds. `zero`: it is none, which asks to unload the model. */
int ollama_read_keep_alive(reader_t *reader, const json_t *value, bool *zero);

/* conversation.c: appends "messages":[...], each message of the array in the words of chat.
 * *continues: the last message is of the assistant, and the answer continues it. */
int ollama_print_messages(reader_t *reader, const json_t *messages, buffer_t *chat,
                          bool *continues);
/* Appends the parts of a content: the pictures of `images` (NULL = none), then `text`. */
int ollama_print_parts(reader_t *reader, const char *place, const json_t *images,
                       const json_t *text, buffer_t *chat);

/* names.c: the served name or the adapter that NAME or NAME:latest means, with --any-model the name
 * itself; written to `out`. Returns 0, or an error: none is given (NULL), or nothing has it. */
int ollama_find_model(const server_t *server, const json_t *name, char out[OLLAMA_NAME_MAX],
                      inferd_error_t *error);
/* A name as programs list it, with its tag: NAME:latest unless it has one. */
const char *ollama_listed_name(const char *name, char out[OLLAMA_NAME_MAX]);
/* Checks the model of a request, keeps its name for the answer, and appends "model":"NAME" as it is
 * served. */
int ollama_print_model(completion_t *completion, reader_t *reader, const json_t *name,
                       buffer_t *chat);

/* Reads the members of `root` by `table`; null is as if it were not there. */
int ollama_read_fields(reader_t *reader, const field_table_t *table, const json_t *root);

/* request.c: the bodies of /api/chat and /api/generate. writer.c has the dialects of both: a body
 * without a question only asks for the model to be loaded, and one for which no template is wanted
 * is of completions. */
int ollama_translate_chat(completion_t *completion, reader_t *reader, const json_t *root,
                          buffer_t *chat);
int ollama_translate_generate(completion_t *completion, reader_t *reader, const json_t *root,
                              buffer_t *chat);
extern const dialect_t ollama_raw_dialect, ollama_load_dialect;

/* What is shown of a model: of one that is loaded, or of its files alone. */
typedef struct ollama_subject {
  const completions_t *live; /* its names, templates and formats */
  const config_t *config;
  const engine_info_t *info; /* max_model_len, and the defaults of generation_config.json */
  const tokenizer_t *tokenizer;
  const struct model_card *card;
  engine_task_t task; /* TASK_GENERATE, or what its vectors are */
  bool sees;          /* pictures */
  bool hears;         /* sounds */
} ollama_subject_t;

/* subject.c: adds size, details and modified_at of an entry of /api/tags. `parent`: the name of the
 * model of an adapter, or "". */
void ollama_add_facts(cJSON *object, const struct model_card *card, const char *parent);
/* The answer of /api/show, which the caller frees. */
cJSON *ollama_show(const ollama_subject_t *subject, const char *parent);
void ollama_add_time(cJSON *object, const char *name, int64_t seconds);

/* writer.c: appends "2026-01-31T12:34:56Z" in quotes, of a time in seconds since 1970. */
void ollama_print_time(buffer_t *out, int64_t seconds);
/* Puts the words of this format into errors that speak of fields of chat. */
void ollama_rename(const completion_t *completion, inferd_error_t *error);

#endif
