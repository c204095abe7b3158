/* params.h: the fields of /v1/completions and /v1/chat/completions, checked, as numbers.
 *
 * stage 2 of 9, first half: JSON -> checked parameters. Pure functions: the loop thread reads small
 * bodies, libuv's pool large ones. Next: server/completion/prompt.c.
 */
#ifndef INFERD_SERVER_FIELDS_PARAMS_H
#define INFERD_SERVER_FIELDS_PARAMS_H

#include "engine/engine.h"
#include "engine/grammar/grammar.h"
#include "server/fields/fields.h"
#include "server/fields/params_embedding.h"

enum {
  PROMPTS_MAX = 128,
  SEQUENCES_MAX = 256, /* prompts x max(n, best_of) of one HTTP request */
  BEAM_WIDTH_MAX = 20,
  TOOLS_MAX = 128,
  BAD_WORDS_FIELD_MAX = 128,
  BAD_WORD_BYTES_MAX = 256,
  DEFAULT_MAX_TOKENS = 16,
  LORA_NAME_MAX = 256, /* bytes, with the terminator */
  LORA_PATH_MAX = 4096,
  ABSENT = -1,       /* of max_tokens, logprobs, prompt_logprobs */
  NOT_TRUNCATED = -2 /* of truncate_prompt_tokens, where -1 is a value */
};

/* The default is the left, whatever the tokenizer's files say: how a text continues depends on its
 * end. So does vLLM. */
typedef enum truncation_side { TRUNCATE_LEFT, TRUNCATE_RIGHT } truncation_side_t;

/* One prompt as it was sent: text, ids or rows. */
typedef struct prompt {
  const char *text; /* valid UTF-8 in the JSON document; NULL = ids or rows */
  const char *rows; /* base64 of a tensor, in the JSON document; NULL = ids or text */
  size_t length;    /* of either */
  const int32_t *ids;
  int32_t count;
} prompt_t;

typedef struct span {
  const char *text; /* in the JSON document */
  size_t length;
} span_t;

typedef enum tool_choice { TOOLS_NONE, TOOLS_AUTO, TOOLS_REQUIRED, TOOLS_NAMED } tool_choice_t;

/* The constraint on the output, whichever field it came from. */
typedef struct constraint {
  const char *param; /* name of the field, static text; NULL = no constraint */
  grammar_kind_t kind;
  const json_t *schema; /* in the body's document or in `doc` */
  span_t text;
  bool strict;
  const grammar_source_t *tree; /* of a structural tag, in the arena, instead of the four above */
  id_list_t shown;              /* tokens that mark its tags, in the arena */
  json_doc_t *doc;              /* of a schema that came as text; the completion frees it */
} constraint_t;

/* Fields of chat requests only; pointers into the JSON document, NULL = not given. */
typedef struct chat_params {
  const json_t *messages, *tools, *documents, *template_kwargs, *reasoning_effort, *chat_template;
  bool generation_prompt, generation_prompt_given, continue_final, tool_choice_given;
  tool_choice_t tool_choice;
  span_t tool_name;            /* of TOOLS_NAMED */
  const json_t *allowed_tools; /* of tool_choice; params_keep_allowed drops all others */
  const int32_t *tool_indices; /* of `tools` in the request; NULL = all, in order */
  bool parallel_tool_calls, include_reasoning, logprobs;
  int64_t top_logprobs; /* ABSENT = null */
  int32_t num_images;   /* parts of the messages that are pictures, or sounds */
} chat_params_t;

typedef struct params {
  bool is_chat;
  chat_params_t chat;
  prompt_t *prompts; /* those of rows first */
  int32_t num_prompts, num_row_prompts;
  const json_t *prompt_embeds; /* NULL = not given */
  /* Of models with an encoder; NULL, and no text and no ids, = not given. */
  const json_t *source_lang, *target_lang;
  prompt_t decoder_prompt;
  bool has_decoder_prompt;
  const json_t *suffix; /* text after the gap to fill; NULL or "" = no gap */
  const json_t *model, *cache_salt, *request_id; /* NULL = not given */
  int64_t max_tokens, max_completion_tokens;     /* ABSENT = not given */
  bool no_limit;                                 /* max_tokens is -1: ABSENT, and what fits */
  int64_t n, best_of;                            /* best_of 0 = absent */
  bool use_beam_search;
  early_stopping_t early_stopping;
  /* The model's default unless given. */
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help) float name;
#include "engine/device/sampling.def"
  float length_penalty;
  int64_t top_k, min_tokens;
  bool has_seed;
  int64_t seed;
  int64_t logprobs, prompt_logprobs; /* ABSENT = null */
  bool echo, stream, include_usage, continuous_usage, obfuscation;
  bool stream_options_given;
  span_t stop[STOP_STRINGS_MAX];
  int32_t num_stop;
  span_t *bad_words; /* in the arena */
  int32_t num_bad_words;
  id_list_t stop_token_ids, allowed_token_ids, logprob_token_ids;
  logit_bias_t *logit_bias;
  int32_t num_logit_bias;
  bool include_stop_string, ignore_eos, skip_special_tokens, add_special_tokens;
  int64_t truncate_prompt_tokens; /* NOT_TRUNCATED = absent, -1 = as many as fit */
  truncation_side_t truncation_side;
  bool return_token_ids, tokens_as_ids;
  int64_t priority;
  int64_t stream_interval;
  constraint_t constraint;
  embedding_params_t embedding;
  pair_params_t pairs; /* `raw` is of classifiers, too */
} params_t;

/* Defaults of the server and the model for fields that a request does not have. */
typedef struct params_defaults {
  const engine_info_t *model; /* generation_config values; NULL = ignore them */
  int64_t stream_interval;
  bool tokens_as_ids, return_token_ids;
  bool force_include_usage;
} params_defaults_t;

extern const field_table_t params_table; /* completions */
extern const field_table_t chat_table;   /* chat: its own rows, on top of those of completions */
extern const field_table_t tokenize_table, detokenize_table; /* tokenize.c */
extern const field_table_t schema_table;                     /* schema_check.c */

/* What a request of completions has that names none of its fields. */
void params_default(params_t *params, const params_defaults_t *defaults);
/* Reads `root` into *params: types, ranges, refused fields. The reader's `out` is set here. */
int params_read(params_t *params, bool is_chat, const params_defaults_t *defaults, reader_t *reader,
                const json_t *root);
/* Checks the rules between fields, once the model is known. 0, or an error with param set. */
int params_check(const params_t *params, const field_limits_t *limits, inferd_error_t *error);
/* closed.c: the CLOSED_ bits of the words of --disable-grammar. */
unsigned closed_kinds(char *const *words, int count);
/* Returns true if the schema may contain a pattern, a regular expression. A member whose name or
 * value only looks like one counts too: a reference may point to any value. */
bool schema_has_pattern(const json_t *schema);
/* Returns the max_tokens of the request, or ABSENT. */
int64_t params_max_tokens(const params_t *params);
/* Returns "prompt", "messages", "input" ..., the `param` of errors in the input. */
const char *params_prompt_name(const params_t *params);
/* Puts the prompts of `prompt_embeds` before the others. Returns 0 or an error. */
int params_take_rows(params_t *params, reader_t *reader);
bool params_fills_in(const params_t *params); /* true if the suffix is not empty */
/* Returns true if the logprobs cover an echoed prompt. Chat echoes a message, without logprobs. */
bool params_echoes_scores(const params_t *params);

/* Sets the error (400) for a prompt, named `param`, that is missing or empty. Returns it. */
int params_fail_empty(const char *param, inferd_error_t *error);
/* Sets the error (400) for a min_tokens above `max_tokens`. Returns it. */
int params_fail_min_tokens(const params_t *params, int64_t max_tokens, inferd_error_t *error);
/* params_chat.c: the parts of params_read and params_check for chat requests. */
int params_read_chat(params_t *params, inferd_error_t *error);
int params_check_chat(const params_t *params, inferd_error_t *error);
int params_tool_index(const chat_params_t *chat, int index); /* of chat->tools -> of the request */

/* A request id: [A-Za-z0-9._:-]{1,128}. */
bool request_id_valid(const char *text, size_t length);

#endif
