/* source.c: prompts of a model with an encoder before its decoder: the prompt is what the encoder
 * reads, and the decoder begins with ids of the model, of languages and of `decoder_prompt`.
 *
 * Stage 2 of 9. libuv's pool; a body of token ids alone: the loop thread. Next:
 * server/completion/build_requests.c.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/completion/memory.h"
#include "server/keys/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEGIN_IDS_MAX = 2, TEMPLATE_IDS_MAX = 8, LANGUAGE_BYTES_MAX = 64 };

/* What the tokenizer puts around a text: of a model of many languages the id of one. */
typedef struct around {
  bool has_language, is_last; /* the id of the language stands behind the text */
  int32_t language;
} around_t;

static int no_memory(completion_t *completion) {
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Finds it by an empty text: what is neither the begin nor the end of a text. */
static int find_around(completion_t *completion, tokenizer_scratch_t *scratch, around_t *out) {
  const tokenizer_t *tokenizer = completion->tokenizer;
  const tokenize_options_t options = {
      .add_special_tokens = true, .ids_max = TEMPLATE_IDS_MAX, .cancelled = &completion->cancelled};
  int32_t *ids = NULL;
  size_t count = 0;
  *out = (around_t){0};
  if (scratch == NULL || tokenizer_is_none(tokenizer)) return 0;
  int code = completion_encode(completion, scratch, "", 0, &options, &ids, &count);
  for (size_t i = 0; code == 0 && i < count; i++) {
    const int32_t id = ids[i];
    if (id == tokenizer_bos_id(tokenizer) || id == tokenizer_eos_id(tokenizer) ||
        id == completion->info->primary_eos || !(tokenizer_flags(tokenizer, id) & TOKEN_SPECIAL))
      continue;
    *out = (around_t){.has_language = true, .is_last = i + 1 == count, .language = id};
  }
  free(ids);
  return code;
}

/* The id of a language: a special token of this name, or of M2M100's spelling of it. */
static int find_language(completion_t *completion, const char *field, const json_t *value,
                         int32_t *out) {
  char spelled[LANGUAGE_BYTES_MAX + 8];
  const tokenizer_t *tokenizer = completion->tokenizer;
  *out = tokenizer_id(tokenizer, value->text, value->length);
  if (*out < 0 && value->length <= LANGUAGE_BYTES_MAX) {
    const int n = snprintf(spelled, sizeof spelled, "__%.*s__", (int)value->length, value->text);
    *out = tokenizer_id(tokenizer, spelled, (size_t)n);
  }
  if (*out >= 0 && *out < completion->info->vocab_size &&
      (tokenizer_flags(tokenizer, *out) & TOKEN_SPECIAL))
    return 0;
  char quoted[96];
  error_quote(quoted, sizeof quoted, value->text, value->length);
  return error_set(&completion->intake->error, ERR_INVALID_VALUE, field,
                   "Invalid '%s': the model has no language \"%s\". Its tokenizer spells the "
                   "languages that it has, e.g. eng_Latn (NLLB), en_XX (mBART), en (M2M100).",
                   field, quoted);
}

/* Puts the language of the source in the place of the tokenizer's. */
static int set_source_language(completion_t *completion, input_t *input, const around_t *around) {
  const json_t *wanted = completion->params.source_lang;
  const request_t *request = &input->request;
  int32_t language;
  if (wanted == NULL || input->ids == NULL) return 0;
  int code = find_language(completion, "source_lang", wanted, &language);
  if (code != 0 || request->num_prompt_tokens == 0) return code;
  int32_t *place = &input->ids[around->is_last ? request->num_prompt_tokens - 1 : 0];
  if (*place == around->language) *place = language;
  return 0;
}

/* The first ids of the decoder. Returns how many, or a negative error. */
static int begin(completion_t *completion, const around_t *around, int32_t out[BEGIN_IDS_MAX]) {
  const source_info_t *info = completion->info->source;
  const json_t *wanted = completion->params.target_lang;
  int32_t start = info->start_id, forced = info->forced_bos_id, language = -1, count = 0;
  if (wanted != NULL) {
    int code = find_language(completion, "target_lang", wanted, &language);
    if (code != 0) return code;
    if (around->is_last || start < 0)
      start = language; /* mBART */
    else
      forced = language;
  }
  if (start < 0)
    return error_set(&completion->intake->error, ERR_INVALID_VALUE, "target_lang",
                     "'target_lang' is missing: the model writes many languages, and its files "
                     "name none to begin with.");
  out[count++] = start;
  if (forced >= 0) out[count++] = forced;
  return count;
}

/* The ids of `decoder_prompt`: NULL when there are none. The caller frees *owned. */
static int read_decoder_prompt(completion_t *completion, tokenizer_scratch_t *scratch,
                               const int32_t **ids, size_t *count, int32_t **owned) {
  const prompt_t *prompt = &completion->params.decoder_prompt;
  const tokenize_options_t options = {.ids_max = (size_t)completion->info->max_model_len + 1,
                                      .word_max = TOKENIZER_WORD_MAX,
                                      .cancelled = &completion->cancelled};
  *ids = prompt->ids;
  *count = (size_t)prompt->count;
  if (prompt->text == NULL) return 0;
  int code = completion_charge_ids(completion, tokenizer_memory(prompt->length, &options));
  if (code == 0)
    code = completion_encode(completion, scratch, prompt->text, prompt->length, &options, owned,
                             count);
  *ids = *owned;
  for (size_t i = 0; code == 0 && i < *count; i++) {
    if ((*ids)[i] < completion->info->vocab_size) continue;
    code = error_set(&completion->intake->error, ERR_INVALID_VALUE, "decoder_prompt",
                     "Token id %" PRId32 " of 'decoder_prompt' is out of vocabulary: the model's "
                     "ids end at %" PRId32 ".",
                     (*ids)[i], completion->info->vocab_size - 1);
  }
  return code;
}

/* What the encoder reads is what the prompt was; the decoder's prompt takes its place. */
static int take_source(completion_t *completion, input_t *input, const around_t *around,
                       const int32_t *decoder, size_t num_decoder) {
  request_t *request = &input->request;
  const source_info_t *info = completion->info->source;
  int32_t first[BEGIN_IDS_MAX];
  if (request->num_prompt_tokens == 0)
    return params_fail_empty(params_prompt_name(&completion->params), &completion->intake->error);
  int code = set_source_language(completion, input, around);
  if (code != 0) return code;
  code = completion_check_length(input, request->num_prompt_tokens, false);
  if (code != 0) return code;
  const int count = begin(completion, around, first);
  if (count < 0) return count;
  input->source =
      (encoder_source_t){.ids = request->prompt_ids, .length = request->num_prompt_tokens};
  CHECK_LE(input->source.length, info->longest);
  sha256(input->source.ids, (size_t)input->source.length * sizeof *input->source.ids,
         input->source.key.bytes);
  input->num_forced = num_decoder > 0 ? 0 : count - 1;
  const size_t total = (size_t)count + num_decoder;
  int32_t *ids = arena_calloc(&completion->arena, total, sizeof *ids);
  if (ids == NULL) return no_memory(completion);
  memcpy(ids, first, (size_t)count * sizeof *ids);
  if (num_decoder > 0) memcpy(ids + count, decoder, num_decoder * sizeof *ids);
  request->source = &input->source;
  request->prompt_ids = ids;
  request->num_prompt_tokens = (int32_t)total;
  return 0;
}

/* A field that says nothing to such a model, or to this one. */
static int check_fields(completion_t *completion, const around_t *around) {
  const params_t *params = &completion->params;
  const bool many = around->has_language;
  const char *field = params->source_lang != NULL ? "source_lang" : "target_lang";
  const bool asked = params->source_lang != NULL || params->target_lang != NULL;
  if (params->echo || params->prompt_logprobs != ABSENT || params_fills_in(params)) {
    field = params->echo ? "echo" : params_fills_in(params) ? "suffix" : "prompt_logprobs";
    return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, field,
                     "The parameter '%s' is not supported: the model has an encoder, which reads "
                     "the prompt, and writes an answer that does not continue it.",
                     field);
  }
  if (!asked || many) return 0;
  return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, field,
                   "The parameter '%s' is not supported: the tokenizer of the model marks no "
                   "languages.",
                   field);
}

static int refuse_elsewhere(completion_t *completion, const char *field) {
  return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, field,
                   "The parameter '%s' is not supported: no encoder stands before the model.",
                   field);
}

int completion_take_sources(completion_t *completion, tokenizer_scratch_t *scratch) {
  const params_t *params = &completion->params;
  around_t around;
  const int32_t *decoder = NULL;
  int32_t *owned = NULL;
  size_t num_decoder = 0;
  if (completion->dialect->hears) return 0; /* its windows are the sources */
  if (completion->info->source == NULL) {
    if (params->source_lang != NULL) return refuse_elsewhere(completion, "source_lang");
    if (params->target_lang != NULL) return refuse_elsewhere(completion, "target_lang");
    if (params->has_decoder_prompt) return refuse_elsewhere(completion, "decoder_prompt");
    return 0;
  }
  int code = find_around(completion, scratch, &around);
  if (code == 0) code = check_fields(completion, &around);
  if (code == 0) code = read_decoder_prompt(completion, scratch, &decoder, &num_decoder, &owned);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++)
    code = take_source(completion, &completion->inputs[i], &around, decoder, num_decoder);
  free(owned);
  return code;
}

int32_t input_prompt_tokens(const input_t *input) {
  return input->request.num_prompt_tokens + input->source.length;
}
