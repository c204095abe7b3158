/* pairs.c: prompts that are pairs of texts: a query and a document, joined as the model reads them.
 *
 * Stage 2 of 9, for the routes that score pairs. Pool. A cross-encoder reads both texts with the
 * special tokens of the tokenizer around them; a model that judges (Qwen3-Reranker) reads a
 * question. What the documents of one query have in common is tokenised once. Next:
 * build_requests.c.
 */
#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/completion/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The question, as the card of Qwen3-Reranker has it. */
static const char question_before[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
static const char question_behind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char question_usual[] =
    "Given a web search query, retrieve relevant passages that answer the query";

typedef struct id_text {
  int32_t *ids; /* malloc'ed */
  size_t count;
} id_text_t;

typedef struct joiner {
  completion_t *completion;
  tokenizer_scratch_t *scratch;
  bool judges;
  int64_t keep;   /* tokens to which a pair is cut; 0 = it is not */
  int64_t most;   /* tokens of a pair: `keep`, or the context */
  id_text_t head; /* of the query of pair `of`; of a question all that stands before a document */
  int32_t of;     /* -1 = none yet */
  id_text_t question; /* its beginning */
  id_text_t behind;   /* its end */
} joiner_t;

bool completion_joins(const completion_t *completion) {
  return completion->params.pairs.wanted && !completion->params.pairs.cosine;
}

static int no_memory(const joiner_t *joiner) {
  return error_set(&joiner->completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Ids of a text without the special tokens around it. `plain`: it holds none either. `max`: the
 * most that are wanted; 0 = all. */
static int encode(const joiner_t *joiner, span_t text, bool plain, size_t max, id_text_t *out) {
  completion_t *completion = joiner->completion;
  const byte_span_t whole = {0, text.length};
  tokenize_options_t options = {.ids_max = max,
                                .word_max = TOKENIZER_WORD_MAX,
                                .cancelled = &completion->cancelled,
                                .plain = &whole,
                                .num_plain = plain ? 1 : 0};
  int code = completion_charge_ids(completion, tokenizer_memory(text.length, &options));
  if (code != 0) return code;
  code = completion_encode(completion, joiner->scratch, text.text, text.length, &options, &out->ids,
                           &out->count);
  completion->intake->tokenize_bytes += text.length;
  return code;
}

/* So many ids of a text are enough to know how a pair is cut, or that it is too long. */
static size_t enough(const joiner_t *joiner, int64_t own_max) {
  if (own_max > 0) return (size_t)own_max;
  bool from_left = joiner->completion->params.truncation_side == TRUNCATE_LEFT;
  return joiner->keep > 0 && from_left ? 0 : (size_t)joiner->most + 1;
}

/* Puts the ids of two texts, one after the other, in the place of *out. */
static int concatenate(const joiner_t *joiner, const id_text_t *first, const id_text_t *second,
                       id_text_t *out) {
  int32_t *ids = calloc(first->count + second->count + 1, sizeof *ids);
  if (ids == NULL) return no_memory(joiner);
  if (first->count > 0) memcpy(ids, first->ids, first->count * sizeof *ids);
  if (second->count > 0) memcpy(ids + first->count, second->ids, second->count * sizeof *ids);
  free(out->ids);
  *out = (id_text_t){ids, first->count + second->count};
  return 0;
}

/* Everything of a question that stands before the document. The space behind the last colon goes
 * with the document, as a word begins with the space before it. */
static int encode_question(joiner_t *joiner, const prompt_t *query) {
  completion_t *completion = joiner->completion;
  const json_t *given = completion->params.pairs.instruction;
  buffer_t text = {0};
  id_text_t middle = {0};
  buffer_text(&text, "<Instruct>: ");
  if (given != NULL)
    buffer_append(&text, given->text, given->length);
  else
    buffer_text(&text, question_usual);
  buffer_text(&text, "\n<Query>: ");
  buffer_append(&text, query->text, query->length);
  buffer_text(&text, "\n<Document>:");
  int code = text.failed ? no_memory(joiner)
                         : encode(joiner, (span_t){text.data, text.length}, true, enough(joiner, 0),
                                  &middle);
  buffer_free(&text);
  if (code == 0) code = concatenate(joiner, &joiner->question, &middle, &joiner->head);
  free(middle.ids);
  return code;
}

static int encode_query(joiner_t *joiner, int32_t index) {
  const pair_params_t *pairs = &joiner->completion->params.pairs;
  int32_t of = pairs->queries.count == 1 ? 0 : index;
  const prompt_t *query = &pairs->queries.texts[of];
  if (joiner->of == of) return 0;
  joiner->of = of;
  if (joiner->judges) return encode_question(joiner, query);
  free(joiner->head.ids);
  joiner->head = (id_text_t){0};
  return encode(joiner, (span_t){query->text, query->length}, false,
                enough(joiner, pairs->query_tokens_max), &joiner->head);
}

static int encode_document(const joiner_t *joiner, const prompt_t *text, id_text_t *out) {
  const pair_params_t *pairs = &joiner->completion->params.pairs;
  size_t max = enough(joiner, pairs->document_tokens_max);
  buffer_t spaced = {0};
  if (!joiner->judges) return encode(joiner, (span_t){text->text, text->length}, false, max, out);
  buffer_char(&spaced, ' ');
  buffer_append(&spaced, text->text, text->length);
  int code = spaced.failed ? no_memory(joiner)
                           : encode(joiner, (span_t){spaced.data, spaced.length}, true, max, out);
  buffer_free(&spaced);
  return code;
}

/* A pair of `count` tokens is too long; `around`: those that are never cut. */
static int fail_length(const joiner_t *joiner, int32_t index, size_t count, size_t around) {
  const input_t *input = &joiner->completion->inputs[index];
  if (joiner->keep == 0) return completion_check_length(input, (int64_t)count, true);
  return error_set(&joiner->completion->intake->error, ERR_INVALID_VALUE, "truncate_prompt_tokens",
                   "'truncate_prompt_tokens' cuts pairs to %" PRId64 " tokens, but what cannot be "
                   "cut of them has %zu.",
                   joiner->keep, around);
}

/* How many tokens of two texts stay, if there is room for so many: the longer text gives first. As
 * `tokenizers` cuts pairs. */
static void cut_pair(size_t room, size_t *first, size_t *second) {
  size_t *low = *first <= *second ? first : second, *high = low == first ? second : first;
  if (*first + *second <= room) return;
  size_t left = *low > room ? *low : MAX(*low, room - *low);
  if (*low + left > room) {
    *low = room / 2;
    left = *low + room % 2;
  }
  *high = MIN(*high, left);
}

/* The ids that stay of a text. */
static const int32_t *kept(const joiner_t *joiner, const id_text_t *text, size_t count) {
  bool from_left = joiner->completion->params.truncation_side == TRUNCATE_LEFT;
  return text->ids + (from_left ? text->count - count : 0);
}

/* Gives the input memory for its ids. */
static int take_ids(const joiner_t *joiner, int32_t index, size_t count) {
  input_t *input = &joiner->completion->inputs[index];
  input->held += count * sizeof *input->ids;
  int code = completion_charge_ids(joiner->completion, 0);
  if (code != 0) return code;
  input->ids = calloc(count + 1, sizeof *input->ids);
  if (input->ids == NULL) return no_memory(joiner);
  input->request.prompt_ids = input->ids;
  input->request.num_prompt_tokens = (int32_t)count;
  return 0;
}

static int join_texts(const joiner_t *joiner, int32_t index, const id_text_t *document) {
  const completion_t *completion = joiner->completion;
  const char *why = "";
  input_t *input = &completion->inputs[index];
  size_t extra = (size_t)tokenizer_pair_extra(completion->tokenizer, &why);
  size_t first = joiner->head.count, second = document->count;
  if (joiner->keep > 0 && extra < (size_t)joiner->keep)
    cut_pair((size_t)joiner->keep - extra, &first, &second);
  if (first + second + extra > (size_t)joiner->most)
    return fail_length(joiner, index, first + second + extra, extra);
  int code = take_ids(joiner, index, first + second + extra);
  if (code != 0) return code;
  const token_pair_t pair = {.first = kept(joiner, &joiner->head, first),
                             .second = kept(joiner, document, second),
                             .num_first = first,
                             .num_second = second};
  int64_t typed = tokenizer_join(completion->tokenizer, &pair, input->ids);
  input->request.second_text = typed > 0 ? (int32_t)typed : 0;
  return 0;
}

/* Only the document may be cut: the question and its end stay. */
static int join_question(const joiner_t *joiner, int32_t index, const id_text_t *document) {
  input_t *input = &joiner->completion->inputs[index];
  size_t around = joiner->head.count + joiner->behind.count, most = (size_t)joiner->most;
  size_t count = document->count;
  if (joiner->keep > 0 && around < most) count = MIN(count, most - around);
  if (around + count > most) return fail_length(joiner, index, around + count, around);
  int code = take_ids(joiner, index, around + count);
  if (code != 0) return code;
  int32_t *out = input->ids;
  memcpy(out, joiner->head.ids, joiner->head.count * sizeof *out);
  out += joiner->head.count;
  if (count > 0) memcpy(out, kept(joiner, document, count), count * sizeof *out);
  memcpy(out + count, joiner->behind.ids, joiner->behind.count * sizeof *out);
  return 0;
}

static int join(joiner_t *joiner, int32_t index) {
  id_text_t document = {0};
  int code = encode_query(joiner, index);
  if (code == 0)
    code = encode_document(joiner, &joiner->completion->params.prompts[index], &document);
  if (code == 0)
    code = joiner->judges ? join_question(joiner, index, &document)
                          : join_texts(joiner, index, &document);
  free(document.ids);
  return code;
}

int completion_join(completion_t *completion, tokenizer_scratch_t *scratch, int64_t keep) {
  joiner_t joiner = {.completion = completion,
                     .scratch = scratch,
                     .judges = completion->info->embedding->judges,
                     .keep = keep,
                     .most = keep > 0 ? keep : completion->info->max_model_len,
                     .of = -1};
  int code = 0;
  if (joiner.judges) {
    code = encode(&joiner, (span_t){question_before, sizeof question_before - 1}, false, 0,
                  &joiner.question);
    if (code == 0)
      code = encode(&joiner, (span_t){question_behind, sizeof question_behind - 1}, false, 0,
                    &joiner.behind);
  }
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) code = join(&joiner, i);
  free(joiner.head.ids);
  free(joiner.question.ids);
  free(joiner.behind.ids);
  return code;
}
