/* suffix.c: fill in the middle: prompt and suffix in the layout of the model.
 *
 * Stage 2 of 9. libuv's pool. Code models have tokens that mark the text before the gap, the text
 * after it, and the gap. The vocabulary shows which ones a model has. The output is the middle
 * only. Next: server/completion/build_requests.c.
 */
#include "engine/base/util.h"
#include "server/completion/completion.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The tokens in their order: `first` PROMPT `second` SUFFIX `third`. */
typedef struct fim_format {
  const char *first, *second, *third;
} fim_format_t;

static const fim_format_t formats[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen Coder, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite Code */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       /* SantaCoder */
    /* DeepSeek Coder: begin, hole, end */
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"},
};

static bool find_tokens(const tokenizer_t *tokenizer, int32_t ids[3]) {
  for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
    const char *const names[] = {formats[i].first, formats[i].second, formats[i].third};
    int found = 0;
    for (int j = 0; j < 3; j++) {
      ids[j] = tokenizer_id(tokenizer, names[j], strlen(names[j]));
      found += ids[j] >= 0;
    }
    if (found == 3) return true;
  }
  return false;
}

bool completion_can_fill_in(const tokenizer_t *tokenizer) {
  int32_t marks[3];
  return find_tokens(tokenizer, marks);
}

/* Arranges prompt and suffix. A BOS that the tokenizer added stays before all other tokens. */
static int lay_out(completion_t *completion, input_t *input, const int32_t marks[3],
                   const int32_t *suffix, size_t num_suffix) {
  request_t *request = &input->request;
  size_t prompt = (size_t)request->num_prompt_tokens, total = prompt + num_suffix + 3, head = 0;
  if (total > INT32_MAX)
    return completion_check_length(&completion->inputs[0], (int64_t)total, true);
  int32_t *ids = arena_calloc(&completion->arena, total, sizeof *ids);
  if (ids == NULL) {
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  }
  bool from_text = input->ids != NULL && completion->params.add_special_tokens;
  if (from_text && prompt > 0 &&
      request->prompt_ids[0] == tokenizer_bos_id(completion->tokenizer)) {
    head = 1;
  }
  size_t at = 0;
  if (head > 0) ids[at++] = request->prompt_ids[0];
  ids[at++] = marks[0];
  if (prompt > head) memcpy(ids + at, request->prompt_ids + head, (prompt - head) * sizeof *ids);
  at += prompt - head;
  ids[at++] = marks[1];
  if (num_suffix > 0) memcpy(ids + at, suffix, num_suffix * sizeof *ids);
  ids[at + num_suffix] = marks[2];
  request->prompt_ids = ids;
  request->num_prompt_tokens = (int32_t)total;
  return 0;
}

int completion_fill_in(completion_t *completion, tokenizer_scratch_t *scratch) {
  const json_t *suffix = completion->params.suffix;
  int32_t marks[3], *ids = NULL;
  size_t count = 0;
  if (!find_tokens(completion->tokenizer, marks)) {
    return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, "suffix",
                     "The parameter 'suffix' is not supported by this model: its vocabulary has no "
                     "tokens for filling in the middle.");
  }
  tokenize_options_t options = {.ids_max = (size_t)completion->info->max_model_len + 1,
                                .cancelled = &completion->cancelled};
  int code =
      completion_encode(completion, scratch, suffix->text, suffix->length, &options, &ids, &count);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    code = lay_out(completion, &completion->inputs[i], marks, ids, count);
  }
  free(ids);
  return code;
}
