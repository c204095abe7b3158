/* load_gguf_pre.h: what a name in tokenizer.ggml.pre stands for. Constant data; any thread. */
#ifndef INFERD_ENGINE_TEXT_LOAD_LOAD_GGUF_PRE_H
#define INFERD_ENGINE_TEXT_LOAD_LOAD_GGUF_PRE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gguf_pre {
  const char *names;         /* with a space after each */
  const char *normalizer;    /* component of tokenizer.json, NULL = none */
  const char *pre_tokenizer; /* the same */
  bool ignore_merges;        /* a piece that is a token is not merged */
  bool adds_bos;             /* unless tokenizer.ggml.add_bos_token says otherwise */
  int separators;            /* of an encoder: tokens between two texts; 0 = it is none */
} gguf_pre_t;

/* The row of a name, or NULL. */
const gguf_pre_t *gguf_pre_find(const char *name, size_t length);

#endif
