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
  buffer_t gaps;                          /* gap_t: in `tops`, of chat in `tokens` */
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

/* The tokens of an object so far whose strings are its keys. One object is printed at a time. */
typedef struct seen_tokens {
  uint32_t *slots; /* [mask + 1] 1 + index of an alternative; 0 = free */
  uint32_t mask;   /* a power of two less 1 */
} seen_tokens_t;
/* Slots for the tokens of an object of `count` alternatives. */
uint32_t seen_tokens_slots(int32_t count);

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

/* A position whose alternatives are too many to be printed at once: they are printed when the
 * transport takes them, from the memory of the request. */
typedef struct score_row {
  logprob_entry_t entry;
  token_style_t style;
  seen_tokens_t *seen;
} score_row_t;

/* The rows of a request, in the order in which they are filled. */
typedef struct score_rows {
  score_row_t *rows; /* [max], malloc'ed; NULL = none */
  size_t count, max;
  seen_tokens_t seen; /* of all of them; slots malloc'ed */
} score_rows_t;

/* Where the alternatives of a row belong in a text that was printed without them. */
typedef struct gap {
  size_t at; /* in the text */
  const score_row_t *row;
  cord_item_t *item;
  size_t count; /* of items */
} gap_t;

/* Each adds a position. `row` NULL: its alternatives, at most SAMPLE_TOP_MAX, are printed now; else
 * *row is filled, and must outlive the text and what is printed of it. */
void logprob_text_add(logprob_text_t *text, const token_style_t *style,
                      const logprob_entry_t *entry, score_row_t *row);
/* The same in the shape of chat: {"token":..,"logprob":..,"bytes":[..],"top_logprobs":[..]}, all of
 * it in `tokens`. */
void logprob_text_add_chat(logprob_text_t *text, const token_style_t *style,
                           const logprob_entry_t *entry, score_row_t *row);
void logprob_text_clear(logprob_text_t *text);
void logprob_text_free(logprob_text_t *text);
size_t logprob_text_held(const logprob_text_t *text); /* bytes of its buffers */
/* {"text_offset":[...],"token_logprobs":[...],"tokens":[...],"top_logprobs":[...]}, the positions
 * of `first` before those of `text`. Both must outlive the cord. */
void logprob_text_object(const logprob_text_t *first, const logprob_text_t *text, cord_t *out);
/* {"content":[...],"refusal":null}, of chat */
void logprob_text_chat_object(const logprob_text_t *text, cord_t *out);
/* The elements of that content. */
void logprob_text_chat_list(const logprob_text_t *text, cord_t *out);
bool logprob_text_failed(const logprob_text_t *text);

/* Appends {"<id>":{"logprob":f,"rank":n,"decoded_token":"..."},...}, one position of
 * prompt_logprobs. `gaps` and `row` as above. */
void prompt_logprob_add(buffer_t *out, buffer_t *gaps, const token_style_t *style,
                        const logprob_entry_t *entry, score_row_t *row);
/* Appends a text with what belongs into its gaps. */
void logprob_splice(cord_t *out, const buffer_t *text, const buffer_t *gaps);

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
