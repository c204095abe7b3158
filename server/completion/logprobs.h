/* logprobs.h: prints logprobs for the completions and the chat API, token by token.
 *
 * The four arrays of the logprobs object grow as JSON text while events arrive, so that a chunk or
 * a response only has to join them. Loop thread; buffers are owned by the choice.
 */
#ifndef INFERD_SERVER_COMPLETION_LOGPROBS_H
#define INFERD_SERVER_COMPLETION_LOGPROBS_H

#include "engine/request.h"
#include "server/ledger/cord.h"

typedef struct logprob_text {
  buffer_t offsets, values, tokens, tops; /* elements with commas between, no brackets */
  int32_t count;
} logprob_text_t;

/* Counts code points of text that arrives in arbitrary pieces; an ill-formed sequence counts as the
 * one U+FFFD that stands for it. */
typedef struct text_offset {
  int64_t code_points; /* complete so far */
  size_t walked;       /* bytes of an echoed prompt that the tokens so far cover */
  uint8_t num_pending;
  char pending[4];
} text_offset_t;

/* How tokens are spelled in a response. */
typedef struct token_style {
  const tokenizer_t *tokenizer;
  bool as_ids;              /* "token_id:123" */
  bool skip_special_tokens; /* special tokens are not in the text */
} token_style_t;

/* One position. num_best is the number that the request asked for: entries of `top` after these are
 * extra ids, which are always reported. has_logprob false (first prompt token) prints nulls. */
typedef struct logprob_entry {
  int32_t id;
  bool has_logprob;
  float logprob;
  int32_t rank;
  int32_t num_best;  /* alternatives to report */
  int32_t num_asked; /* alternatives requested from the engine, >= num_best */
  int32_t num_top;
  const token_logprob_t *top;
  int64_t offset; /* code points */
} logprob_entry_t;

void logprob_text_add(logprob_text_t *text, const token_style_t *style,
                      const logprob_entry_t *entry);
/* The same in the shape of chat: {"token":..,"logprob":..,"bytes":[..],"top_logprobs":[..]}, all of
 * it in `tokens`. */
void logprob_text_add_chat(logprob_text_t *text, const token_style_t *style,
                           const logprob_entry_t *entry);
void logprob_text_clear(logprob_text_t *text);
void logprob_text_free(logprob_text_t *text);
size_t logprob_text_held(const logprob_text_t *text); /* bytes of its buffers */
/* {"text_offset":[...],"token_logprobs":[...],"tokens":[...],"top_logprobs":[...]}, the positions
 * of `first` before those of `text`. Both must outlive the cord. */
void logprob_text_object(const logprob_text_t *first, const logprob_text_t *text, cord_t *out);
/* {"content":[...],"refusal":null}, of chat */
void logprob_text_chat_object(const logprob_text_t *text, cord_t *out);
bool logprob_text_failed(const logprob_text_t *text);

/* Appends {"<id>":{"logprob":f,"rank":n,"decoded_token":"..."},...}, one position of
 * prompt_logprobs. */
void prompt_logprob_add(buffer_t *out, const token_style_t *style, const logprob_entry_t *entry);

/* Appends the string of a token, in quotes. */
void token_quote(buffer_t *out, const token_style_t *style, int32_t id);

/* Returns the offset of the text of the next generated token. If the text before it ends in an
 * unfinished character that the token does not continue, that character counts as one. */
int64_t text_offset_before(const text_offset_t *offset, const token_style_t *style, int32_t id);
/* Advances the offset by the text of one generated token. */
void text_offset_token(text_offset_t *offset, const token_style_t *style, int32_t id);
void text_offset_bytes(text_offset_t *offset, const char *bytes, size_t length);
/* Advances the offset by one token of an echoed prompt. The text of the prompt may lack bytes of
 * its tokens (a BOS, a leading space that the tokenizer added): these count nothing. */
void text_offset_prompt(text_offset_t *offset, const token_style_t *style, int32_t id,
                        const char *prompt, size_t length);

#endif
