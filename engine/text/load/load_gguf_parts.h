/* load_gguf_parts.h: the vocabulary of a GGUF file, for the files that make tokenizers of it.
 *
 * The loading thread only; of the files load_gguf*.c alone.
 */
#ifndef INFERD_ENGINE_TEXT_LOAD_LOAD_GGUF_PARTS_H
#define INFERD_ENGINE_TEXT_LOAD_LOAD_GGUF_PARTS_H

#include "engine/file/gguf.h"
#include "engine/text/load/load.h"

/* Numbers of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

#define KEY(name) "tokenizer.ggml." name

/* Gives a component of tokenizer.json to its reader; the text is one of ours. */
int load_gguf_component(tokenizer_load_t *load, const char *text,
                        int (*reader)(tokenizer_load_t *load, const json_t *value));
bool load_gguf_flag(const gguf_t *gguf, const char *key, bool absent);
/* An id of the vocabulary, or -1. */
int32_t load_gguf_id(const tokenizer_load_t *load, const gguf_t *gguf, const char *key);
int64_t load_gguf_type(const gguf_t *gguf, uint32_t id);
/* Fills the vocabulary: `put` takes every token that is one, by load_gguf_put. */
int load_gguf_tokens(tokenizer_load_t *load, const gguf_t *gguf,
                     int (*put)(tokenizer_load_t *load, int64_t type, const char *text,
                                size_t length, uint32_t id));
int load_gguf_put(tokenizer_load_t *load, const char *text, size_t length, uint32_t id);
/* Reads the added tokens: those that are matched in a text before it is split. In Phi-3 an added
 * token also removes the spaces after it, with three exceptions. The file has no key for this, so
 * the caller sets `strips` by the architecture. */
int load_gguf_added(tokenizer_load_t *load, const gguf_t *gguf, bool strips);

/* load_gguf_encoders.c: the vocabularies of encoders */
int load_gguf_wordpiece(tokenizer_load_t *load, const gguf_t *gguf);
int load_gguf_unigram(tokenizer_load_t *load, const gguf_t *gguf);
/* A text stands between two tokens: those of the keys, else those that are spelled so. Between two
 * texts stand so many of the second. ERR_MODEL_MALFORMED if there are no such tokens. */
int load_gguf_ends(tokenizer_load_t *load, const gguf_t *gguf, const char *first, const char *last,
                   int separators);

#endif
