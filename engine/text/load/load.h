/* load.h: reads the files of a tokenizer; shared by the load_*.c files.
 *
 * The loading thread only. Every refusal is ERR_MODEL_MALFORMED with a message that names the file
 * and the component, so that the user can find the line.
 */
#ifndef INFERD_ENGINE_TEXT_LOAD_LOAD_H
#define INFERD_ENGINE_TEXT_LOAD_LOAD_H

#include "engine/base/json.h"
#include "engine/text/tokenizer_internal.h"

enum {
  LOAD_FILE_BYTES_MAX = 256 << 20,
  LOAD_SEQUENCE_DEPTH_MAX = 16,
  LOAD_TEXT_BYTES_MAX = 64 << 20, /* merges.txt */
  LOAD_ADDED_MAX = 1 << 20,
  LOAD_NAMED_MAX = 4096 /* tokens that only the configuration names */
};

typedef struct tokenizer_load {
  tokenizer_t *tokenizer;
  const char *dir;
  const char *file;   /* the file that is being read, for messages */
  uint32_t added_max; /* room for added tokens */
  inferd_error_t *error;
} tokenizer_load_t;

/* One parsed file; json_free(doc) and free(text) through load_close. */
typedef struct load_doc {
  char *text;
  size_t length;
  json_doc_t *doc;
} load_doc_t;

/* "file: component: reason"; returns ERR_MODEL_MALFORMED. */
int load_fail(tokenizer_load_t *load, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int load_no_memory(tokenizer_load_t *load);
/* Reads a whole file of the directory; *found false when it does not exist (no error). */
int load_read(tokenizer_load_t *load, const char *name, size_t bytes_max, load_doc_t *out,
              bool *found);
/* Reads a file and parses it; the root must be an object. */
int load_open(tokenizer_load_t *load, const char *name, load_doc_t *out, bool *found);
void load_close(load_doc_t *doc);

/* Member that is present and not null, else NULL. */
const json_t *load_field(const json_t *object, const char *key);
/* Optional fields: false and an error when the type is wrong. `where` names the component. */
bool load_bool(tokenizer_load_t *load, const json_t *object, const char *key, const char *where,
               bool *out);
/* Copies a string of at most `bytes_max` bytes. Returns false if the value is none. */
bool load_text(const json_t *value, char *out, unsigned *length, size_t bytes_max);
/* Returns a printable form of a JSON value for messages; `buffer` has 96 bytes. */
const char *load_quote(char *buffer, const json_t *value);

/* load_pipeline.c */
int load_normalizer(tokenizer_load_t *load, const json_t *value);
int load_pretokenizer(tokenizer_load_t *load, const json_t *value);
int load_default_pretokenizer(tokenizer_load_t *load); /* ByteLevel with R1 */
/* Split by a regex, then bytes. */
int load_byte_pretokenizer(tokenizer_load_t *load, const char *regex, size_t length);
/* load_decode.c */
int load_post_processor(tokenizer_load_t *load, const json_t *value);
int load_decoder(tokenizer_load_t *load, const json_t *value);
/* load_model.c */
int load_model(tokenizer_load_t *load, const json_t *value);
int load_model_legacy(tokenizer_load_t *load, const json_t *vocab, const load_doc_t *merges);
/* load_splits.c: makes the merges of a vocabulary that is already filled. `ids` [count] are the
 * pieces in the order in which they merge, the first one first. Each way to split a piece into two
 * pieces that `merges` accepts becomes one merge. */
typedef struct split_order {
  const uint32_t *ids;
  uint32_t count;
  bool (*merges)(const void *context, uint32_t id);
  const void *context;
} split_order_t;
int load_splits(tokenizer_load_t *load, const split_order_t *order);
/* The same for SentencePiece, which merges the neighbours whose joined piece has the highest score:
 * sorts `pieces` [count], the highest score first, of equal ones the smaller id. */
typedef struct scored_piece {
  double score;
  uint32_t id;
} scored_piece_t;
int load_splits_by_score(tokenizer_load_t *load, scored_piece_t *pieces, uint32_t count,
                         bool (*merges)(const void *context, uint32_t id), const void *context);
/* load_spm.c, load_tekken.c: tokenizer.model and tekken.json. *found false: there is no such file.
 * *ends: BOS and EOS of the file, -1 = none. */
typedef struct load_ends {
  int32_t bos, eos;
} load_ends_t;
int load_spm(tokenizer_load_t *load, load_ends_t *ends, bool *found);
int load_tekken(tokenizer_load_t *load, load_ends_t *ends, bool *found);
/* Adds the merge "left right" with this rank. `where` names the list for messages; `joined` is
 * scratch memory. */
int load_merge(tokenizer_load_t *load, const char *where, uint32_t rank, const char *line,
               size_t length, buffer_t *joined);
/* load_gguf.c: the whole tokenizer, from the metadata of a GGUF file. */
int load_gguf(tokenizer_load_t *load, const char *path);
/* The object of tokens and ids of a BPE or WordPiece model. */
int load_vocab(tokenizer_load_t *load, const json_t *vocab);
/* load_wordpiece.c */
int load_wordpiece(tokenizer_load_t *load, const json_t *model);
/* load_unigram.c */
int load_unigram(tokenizer_load_t *load, const json_t *model);
/* load_added.c; the model must be loaded. Reserves space for `count_max` tokens and for
 * LOAD_NAMED_MAX that the configuration may add. */
int load_added_begin(tokenizer_load_t *load, uint32_t count_max);
int load_added_token(tokenizer_load_t *load, const char *content, size_t length,
                     added_token_t token);
/* As load_added_token, but with an id that the model's vocabulary does not have. */
int load_added_at(tokenizer_load_t *load, const char *content, size_t length, uint32_t id,
                  added_token_t token);
int load_added_tokens(tokenizer_load_t *load, const json_t *list);
int load_added_finish(tokenizer_load_t *load);
/* load_config.c: tokenizer_config.json, special_tokens_map.json, added_tokens.json */
int load_config(tokenizer_load_t *load, bool legacy);

#endif
