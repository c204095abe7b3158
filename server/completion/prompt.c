/* prompt.c: from the body of a completion request to requests for the engine.
 *
 * Stage 2 of 9: JSON -> checked parameters, token ids, request_t. Runs in libuv's pool (small
 * bodies of token ids: on the loop thread); while it runs, no other thread uses the completion. It
 * reads only constants besides: configuration, model names, engine_info, the tokenizer. Next:
 * build_requests.c.
 */
#include "server/completion/chat.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/completion/dialect.h"
#include "server/completion/memory.h"
#include "server/completion/places.h"
#include "server/dialect/unfold.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses the body into intake->doc, within what the client may hold. */
static int parse(completion_t *completion, const json_limits_t *limits) {
  intake_t *intake = completion->intake;
  const held_t *body = &intake->body;
  size_t most = json_memory_bound(body->bytes, body->length, limits);
  int code = completion_charge_values(completion, most);
  if (code != 0) return code;
  code = json_parse(body->bytes, body->length, limits, &intake->doc, &intake->error);
  if (code != 0) return code;
  return completion_charge_values(completion, json_memory(intake->doc));
}

static bool holds_mended(const json_t *value) {
  if (value->mended) return true;
  JSON_EACH(inside, value) {
    if (holds_mended(inside)) return true; /* as deep as the limits of a body */
  }
  return false;
}

/* Parses the body of a client. Half characters are mended in conversations alone: a body that has
 * them elsewhere is refused with its byte. */
static int parse_body(completion_t *completion, reader_t *reader) {
  static const char *const conversation[] = {"messages", "input", "instructions", "system"};
  intake_t *intake = completion->intake;
  bool mends = completion->dialect->is_chat && intake->limits.lenient;
  int code = parse(completion, mends ? &json_limits_mended : &json_limits_request);
  if (code != 0 || !json_is_mended(intake->doc)) return code;
  JSON_EACH(member, json_root(intake->doc)) {
    if (!holds_mended(member)) continue;
    if (json_named_one_of(member, conversation, ARRAY_LEN(conversation))) {
      field_name_mended(reader, "", "half_character");
      continue;
    }
    json_free(intake->doc);
    intake->doc = NULL;
    return parse(completion, &json_limits_request);
  }
  return 0;
}

/* Puts a body of chat in the place of body and document. Takes the text of `chat`. */
static int replace_body(completion_t *completion, reader_t *reader, buffer_t *chat) {
  intake_t *intake = completion->intake;
  json_free(intake->doc);
  intake->doc = NULL;
  size_t length = 0, capacity = chat->capacity;
  char *text = buffer_detach(chat, &length);
  buffer_free(chat);
  if (text == NULL) return error_set(reader->error, ERR_INTERNAL, NULL, "Out of memory.");
  free(intake->body.bytes);
  intake->body.bytes = text;
  intake->body.length = length;
  if (!charge_resize(&intake->body.charge, capacity)) {
    return ledger_refuse(&intake->body.charge, reader->error);
  }
  return parse(completion, &json_limits_translated);
}

/* The body of chat that the dialect makes of the document. */
static int translate(completion_t *completion, reader_t *reader) {
  buffer_t chat = {0};
  const dialect_t *dialect = completion->dialect;
  int code = dialect->translate(completion, reader, json_root(completion->intake->doc), &chat);
  completion->renames = code == 0 && dialect->rename != NULL;
  if (code == 0) return replace_body(completion, reader, &chat);
  buffer_free(&chat);
  return code;
}

/* The same body with its history mended. */
static int mend(completion_t *completion, reader_t *reader) {
  buffer_t chat = {0};
  bool changed = false, places = completion->dialect->translate == NULL;
  const int32_t *origin = NULL;
  int code = 0;
  if (places) code = chat_unfold(reader, json_root(completion->intake->doc), &chat, &origin);
  if (code == 0 && origin != NULL) code = replace_body(completion, reader, &chat);
  if (code == 0) {
    code = history_mend(reader, &completion->server->live->rules,
                        json_root(completion->intake->doc), places, origin, &chat, &changed);
  }
  if (code == 0 && changed) return replace_body(completion, reader, &chat);
  buffer_free(&chat);
  return code;
}

/* The body of completions or of chat that the dialect makes of one that is no JSON. */
static int unpack(completion_t *completion, reader_t *reader) {
  buffer_t body = {0};
  const int code = completion->dialect->unpack(completion, reader, &body);
  completion->renames = code == 0 && completion->dialect->rename != NULL;
  if (code == 0) return replace_body(completion, reader, &body);
  buffer_free(&body);
  return code;
}

int completion_read(completion_t *completion) {
  intake_t *intake = completion->intake;
  params_t *params = &completion->params;
  inferd_error_t *error = &intake->error;
  reader_t reader = {.limits = &intake->limits, .arena = &completion->arena, .error = error};
  const dialect_t *dialect = completion->dialect;
  int code = completion->dialect->unpack != NULL ? unpack(completion, &reader)
                                                 : parse_body(completion, &reader);
  if (code == 0 && dialect->translate != NULL) code = translate(completion, &reader);
  dialect = completion->dialect; /* `translate` may have chosen another */
  if (code == 0 && dialect->is_chat) code = mend(completion, &reader);
  memcpy(intake->ignored, reader.ignored, sizeof intake->ignored);
  memcpy(intake->mended, reader.mended, sizeof intake->mended);
  if (code != 0) return code;
  const json_t *root = json_root(intake->doc);
  code =
      dialect->table != NULL
          ? params_read_pooled(params, dialect->table, completion->info->embedding, &reader, root)
          : params_read(params, dialect->is_chat, &intake->defaults, &reader, root);
  memcpy(intake->ignored, reader.ignored, sizeof intake->ignored);
  if (code == 0) code = completion_charge_ids(completion, 0);
  if (code != 0) return code;
  bool any = completion->server->config->any_model;
  code = model_check(completion->server->live, any, params->model, error);
  if (code != 0) return code;
  code = params_check(params, &intake->limits, error);
  return code == 0 && dialect->spread != NULL ? dialect->spread(completion) : code;
}

bool completion_has_text(const completion_t *completion) {
  const params_t *params = &completion->params;
  if (params->num_bad_words > 0 || params->is_chat || params->constraint.param != NULL) return true;
  if (params_fills_in(params) || params->decoder_prompt.text != NULL) return true;
  if (completion->info->source != NULL && !tokenizer_is_none(completion->tokenizer)) return true;
  for (int32_t i = 0; i < params->num_prompts; i++) {
    if (params->prompts[i].text != NULL || params->echo) return true;
  }
  return false;
}

/* A prompt that is only counted may be longer than the context. */
static int check_counted(completion_t *completion, int64_t tokens) {
  if (tokens <= TOKENIZE_IDS_MAX) return 0;
  return error_set(
      &completion->intake->error, ERR_INVALID_VALUE, params_prompt_name(&completion->params),
      "The prompt has more than %d tokens, which is the most that are counted.", TOKENIZE_IDS_MAX);
}

int64_t completion_context(const completion_t *completion) {
  const engine_info_t *info = completion->info;
  return MIN(info->kv_tokens, info->max_model_len);
}

/* The check of a dialect in which max_tokens is only an upper bound. */
static int check_prompt_length(completion_t *completion, int64_t tokens) {
  int64_t context = completion_context(completion);
  if (tokens < context) return 0;
  /* A prompt as long as the context leaves no place for the first token. */
  int64_t most = tokens == context ? context - 1 : context;
  return error_set(&completion->intake->error, ERR_CONTEXT_LENGTH, "messages",
                   "prompt is too long: %" PRId64 " tokens > %" PRId64 " maximum", tokens, most);
}

/* An input that becomes a vector may fill the context. The message names it by its place. */
static int check_input_length(const input_t *input, int64_t tokens, bool at_least) {
  const completion_t *completion = input->completion;
  int64_t context = completion->info->max_model_len;
  char place[PLACE_BYTES_MAX];
  if (tokens <= context) return 0;
  params_place(&completion->params, (int32_t)(input - completion->inputs), place);
  return error_set(&completion->intake->error, ERR_CONTEXT_LENGTH,
                   params_prompt_name(&completion->params),
                   "This model's maximum context length is %" PRId64 " tokens. However, '%s' has "
                   "%s%" PRId64 "%s. Please shorten it, or cut it by 'truncate_prompt_tokens'.",
                   context, place, at_least ? "at least " : "", tokens,
                   completion_joins(completion) ? " with its query" : "");
}

/* What an encoder reads has a length of its own, which the output does not share. */
static int check_source_length(completion_t *completion, int64_t tokens, bool at_least) {
  const int64_t longest = completion->info->source->longest;
  if (tokens <= longest) return 0;
  return error_set(&completion->intake->error, ERR_CONTEXT_LENGTH,
                   params_prompt_name(&completion->params),
                   "This model's encoder reads at most %" PRId64 " tokens. However, the prompt has "
                   "%s%" PRId64 ". Please reduce the length of the prompt.",
                   longest, at_least ? "at least " : "", tokens);
}

int completion_check_length(const input_t *input, int64_t tokens, bool at_least) {
  completion_t *completion = input->completion;
  if (completion->dialect->table != NULL) return check_input_length(input, tokens, at_least);
  if (completion->dialect->clips_max_tokens) return check_prompt_length(completion, tokens);
  int64_t context = completion->info->max_model_len;
  int64_t asked = params_max_tokens(&completion->params);
  if (completion->dialect->counts) return check_counted(completion, tokens);
  if (completion->info->source != NULL && input->request.source == NULL)
    return check_source_length(completion, tokens, at_least);
  int64_t wanted = asked == ABSENT ? 1 : asked;
  if (tokens <= context && tokens + wanted <= context) return 0;
  if (asked == ABSENT) wanted = completion->params.is_chat ? 1 : DEFAULT_MAX_TOKENS;
  const char *bound = at_least ? "at least " : "";
  return error_set(&completion->intake->error, ERR_CONTEXT_LENGTH,
                   params_prompt_name(&completion->params),
                   "This model's maximum context length is %" PRId64 " tokens. However, you "
                   "requested %s%" PRId64 " tokens (%s%" PRId64 " in the prompt, %" PRId64
                   " in the completion). Please reduce the length of the prompt or completion.",
                   context, bound, tokens + wanted, bound, tokens, wanted);
}

/* Sets *keep to the number of tokens to which a prompt is cut; 0 = it is not cut. */
static int truncation(completion_t *completion, int64_t *keep) {
  const params_t *params = &completion->params;
  *keep = 0;
  if (params->truncate_prompt_tokens == NOT_TRUNCATED) return 0;
  int64_t asked = params_max_tokens(params);
  int64_t most = completion->info->max_model_len - (asked == ABSENT ? DEFAULT_MAX_TOKENS : asked);
  if (completion->info->source != NULL) most = completion->info->source->longest;
  *keep = params->truncate_prompt_tokens == -1 ? most : params->truncate_prompt_tokens;
  if (*keep > most || most <= 0) {
    return error_set(&completion->intake->error, ERR_ABOVE_MAX, "truncate_prompt_tokens",
                     "Invalid 'truncate_prompt_tokens': at most %" PRId64 " prompt tokens fit "
                     "beside the completion.",
                     most > 0 ? most : 0);
  }
  if (*keep == 0) {
    return error_set(&completion->intake->error, ERR_BELOW_MIN, "truncate_prompt_tokens",
                     "Invalid 'truncate_prompt_tokens': 0 leaves nothing of the prompt. Expected "
                     "1 to %" PRId64 ", or -1 for as many tokens as fit.",
                     most);
  }
  return 0;
}

/* Cuts ids, and their spans if there are any, to `keep`. If it cuts at the left, a BOS that the
 * tokenizer added stays first. */
static void truncate_ids(const completion_t *completion, int32_t *ids, byte_span_t *spans,
                         size_t *count, int64_t keep, bool from_text) {
  if (keep == 0 || *count <= (size_t)keep) return;
  size_t dropped = *count - (size_t)keep, head = 0;
  if (completion->params.truncation_side == TRUNCATE_LEFT) {
    int32_t bos = tokenizer_bos_id(completion->tokenizer);
    if (from_text && completion->params.add_special_tokens && bos >= 0 && ids[0] == bos) head = 1;
    const size_t left = *count - head - dropped;
    memmove(ids + head, ids + head + dropped, left * sizeof *ids);
    if (spans != NULL) memmove(spans + head, spans + head + dropped, left * sizeof *spans);
  }
  *count = (size_t)keep;
}

int completion_encode(completion_t *completion, tokenizer_scratch_t *scratch, const char *text,
                      size_t length, const tokenize_options_t *options, int32_t **ids,
                      size_t *count) {
  return tokenizer_encode(completion->tokenizer, scratch, text, length, options, ids, count,
                          &completion->intake->error);
}

/* Notes where the tokens of a text stand, if the answer says it. Frees the spans. */
static int take_places(completion_t *completion, input_t *input, const prompt_t *prompt,
                       byte_span_t *spans, size_t count) {
  if (spans == NULL) return 0;
  input->places =
      places_make(completion->tokenizer, prompt->text, prompt->length, input->ids, spans, count);
  free(spans);
  if (input->places == NULL)
    return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  input->held += count * sizeof *input->places;
  return completion_charge_ids(completion, 0);
}

static int encode_prompt(completion_t *completion, tokenizer_scratch_t *scratch, input_t *input,
                         const prompt_t *prompt, int64_t keep) {
  bool counts = completion->dialect->counts;
  const source_info_t *source = completion->info->source;
  size_t context = counts           ? TOKENIZE_IDS_MAX
                   : source != NULL ? (size_t)source->longest
                                    : (size_t)completion->info->max_model_len;
  size_t longest = tokenizer_longest_token(completion->tokenizer);
  size_t count = 0;
  /* With clips_max_tokens the error says how many tokens there are, so all are counted. */
  bool count_all = counts || completion->dialect->clips_max_tokens;
  if (keep == 0 && !count_all && longest > 0 && prompt->length / longest > context) {
    return error_set(&completion->intake->error, ERR_CONTEXT_LENGTH,
                     params_prompt_name(&completion->params),
                     "This model's maximum context length is %zu tokens. However, the prompt has "
                     "%zu bytes, which cannot fit. Please reduce the length of the prompt.",
                     context, prompt->length);
  }
  tokenize_options_t options = {.add_special_tokens = completion->params.add_special_tokens,
                                .keeps_suffix = completion->dialect->table != NULL,
                                .ids_max = keep != 0   ? (size_t)keep
                                           : count_all ? MAX(context, (size_t)TOKENIZE_IDS_MAX) + 1
                                                       : context + 1,
                                .word_max = TOKENIZER_WORD_MAX,
                                .cancelled = &completion->cancelled};
  byte_span_t *spans = NULL;
  if (completion->params.embedding.wants_places) options.spans = &spans;
  if (keep != 0 && completion->params.truncation_side == TRUNCATE_LEFT) {
    options.ids_max = 0;
    options.tail = options.spans != NULL ? 0 : (size_t)keep;
  }
  if (completion->dialect->is_chat) {
    chat_hide_specials(completion->server, &completion->intake->rendered,
                       completion->pictures.count > 0, &options);
  }
  int code = completion_charge_ids(completion, tokenizer_memory(prompt->length, &options));
  if (code != 0) return code;
  uint64_t start = clock_now_ns();
  code = completion_encode(completion, scratch, prompt->text, prompt->length, &options, &input->ids,
                           &count);
  completion->intake->tokenize_ns += clock_now_ns() - start;
  completion->intake->tokenize_bytes += prompt->length;
  if (code == 0 && completion->pictures.count > 0 && count < options.ids_max) {
    code = pictures_expand(&completion->pictures, &input->ids, &count, &completion->intake->error);
  }
  if (code != 0) return code;
  input->held += count * sizeof *input->ids;
  code = completion_charge_ids(completion, 0);
  if (code != 0) free(spans);
  if (code != 0) return code;
  if (keep == 0 && count > context) {
    free(spans);
    return completion_check_length(input, (int64_t)count, true);
  }
  truncate_ids(completion, input->ids, spans, &count, keep, true);
  code = take_places(completion, input, prompt, spans, count);
  if (code != 0) return code;
  if (count > INT32_MAX) return completion_check_length(input, (int64_t)count, false);
  input->request.prompt_ids = input->ids;
  input->request.num_prompt_tokens = (int32_t)count;
  input->request.images = completion->pictures.images;
  input->request.num_images = completion->pictures.count;
  return 0;
}

static int take_id_prompt(completion_t *completion, input_t *input, const prompt_t *prompt,
                          int64_t keep) {
  size_t count = (size_t)prompt->count;
  const int32_t *ids = prompt->ids;
  if (keep != 0 && count > (size_t)keep) {
    if (completion->params.truncation_side == TRUNCATE_LEFT) ids += count - (size_t)keep;
    count = (size_t)keep;
  }
  input->request.prompt_ids = ids;
  input->request.num_prompt_tokens = (int32_t)count;
  return 0;
}

/* Makes the text of a prompt of ids, with its special tokens, as they stand in a prompt of text. A
 * BOS that the tokenizer put before a text is no part of this text. The caller frees *text, and
 * takes it from what the ids are charged with. */
static int decode_prompt(completion_t *completion, const request_t *request, bool from_text,
                         char **text, size_t *length) {
  const int32_t *ids = request->prompt_ids;
  size_t count = (size_t)request->num_prompt_tokens;
  int32_t bos = tokenizer_bos_id(completion->tokenizer);
  bool may_have_bos = from_text && completion->params.add_special_tokens && bos >= 0 && count > 0;
  if (may_have_bos && ids[0] == bos) {
    ids++, count--;
  }
  int code =
      completion_charge_ids(completion, tokenizer_decode_memory(completion->tokenizer, ids, count));
  if (code != 0) return code;
  return tokenizer_decode(completion->tokenizer, ids, count, false, text, length,
                          &completion->intake->error);
}

/* Echo: keeps the text of the prompt, which every choice begins with, as it is printed. */
static int take_echo(completion_t *completion, input_t *input, const prompt_t *prompt) {
  const params_t *params = &completion->params;
  const request_t *request = &input->request;
  size_t length = prompt->length;
  const char *text = prompt->text;
  char *decoded = NULL;
  /* A truncated prompt is echoed as the model gets it. */
  if (text == NULL || params->truncate_prompt_tokens != NOT_TRUNCATED) {
    int code = decode_prompt(completion, request, text != NULL, &decoded, &length);
    if (code != 0) return code;
    text = decoded;
  }
  buffer_escape(&input->echo, text, length);
  if (params->logprobs != ABSENT) {
    token_style_t style = {completion->tokenizer, params->tokens_as_ids,
                           params->skip_special_tokens};
    logprob_entry_t first = {.id = request->prompt_ids[0]};
    buffer_append(&input->echo_text, text, length);
    logprob_text_add(&input->echo_logprobs, &style, &first, NULL);
    text_offset_prompt(&input->offset, &style, first.id, text, length);
  }
  free(decoded);
  (void)completion_charge_ids(completion, 0);
  if (!input->echo.failed && !input->echo_text.failed) return 0;
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Prints what all choices of the prompt share. */
static int take_shared(completion_t *completion, input_t *input, const prompt_t *prompt) {
  const params_t *params = &completion->params;
  const request_t *request = &input->request;
  int code = params->echo && !params->is_chat ? take_echo(completion, input, prompt) : 0;
  if (code != 0) return code;
  if (params->return_token_ids) {
    const encoder_source_t *source = request->source; /* the prompt that was sent */
    if (request->rows != NULL)
      buffer_text(&input->prompt_ids, "null");
    else if (source != NULL)
      buffer_ids(&input->prompt_ids, source->ids, (size_t)source->length);
    else
      buffer_ids(&input->prompt_ids, request->prompt_ids, (size_t)request->num_prompt_tokens);
  }
  if (completion_charge_input(input)) return 0;
  return ledger_refuse(&completion->output, &completion->intake->error);
}

/* Refuses ids for which the model has no row. A tokenizer may have such ids, for tokens that were
 * added to it and never trained. */
static int check_ids(completion_t *completion, const request_t *request) {
  int32_t rows = completion->info->vocab_size;
  if (tokenizer_vocab_size(completion->tokenizer) <= rows) return 0;
  for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
    if (request->prompt_ids[i] < rows) continue;
    return error_set(&completion->intake->error, ERR_INVALID_VALUE,
                     params_prompt_name(&completion->params),
                     "Token id %" PRId32 " of the prompt is out of vocabulary. The tokenizer knows "
                     "it, but the model's ids end at %" PRId32 ".",
                     request->prompt_ids[i], rows - 1);
  }
  return 0;
}

/* The pictures of a chat, as far as their headers say what they become. */
static int read_pictures(completion_t *completion) {
  const params_t *params = &completion->params;
  inferd_error_t *error = &completion->intake->error;
  if (params->chat.num_images == 0) return 0;
  if (params->truncate_prompt_tokens != NOT_TRUNCATED) {
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "truncate_prompt_tokens",
                     "The parameter 'truncate_prompt_tokens' is not supported with %s.",
                     completion->info->hearing != NULL ? "sounds" : "pictures");
  }
  const engine_info_t *info = completion->info;
  return pictures_read(&completion->pictures, info->vision != NULL ? info->vision : info->hearing,
                       params->chat.messages, params->chat.num_images, error);
}

/* Tokenises the prompts as the client sent them. */
static int build_prompts(completion_t *completion, tokenizer_scratch_t *scratch) {
  const params_t *params = &completion->params;
  int64_t keep;
  int code = truncation(completion, &keep);
  if (code == 0) code = read_pictures(completion);
  if (code == 0 && params->is_chat) code = chat_render(completion);
  if (code == 0 && params->is_chat) {
    size_t rendered = completion->intake->rendered.length + 1;
    code = completion_charge_values(completion, json_memory(completion->intake->doc) + rendered);
  }
  if (code == 0 && completion_joins(completion)) code = completion_join(completion, scratch, keep);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    const prompt_t *prompt = &params->prompts[i];
    input_t *input = &completion->inputs[i];
    if (completion_joins(completion)) break;
    if (prompt->rows != NULL)
      code = completion_take_rows(completion, input, prompt);
    else
      code = prompt->text != NULL ? encode_prompt(completion, scratch, input, prompt, keep)
                                  : take_id_prompt(completion, input, prompt, keep);
  }
  if (code == 0 && params_fills_in(params)) code = completion_fill_in(completion, scratch);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    code = check_ids(completion, &completion->inputs[i].request);
  }
  if (code == 0 && !completion->dialect->counts)
    code = completion_take_sources(completion, scratch);
  bool counts = completion->dialect->counts;
  bool (*keep_texts)(completion_t *) = completion->dialect->keep;
  if (code == 0 && keep_texts != NULL && !keep_texts(completion))
    code = error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  if (code == 0 && !counts) code = completion_build_requests(completion, scratch);
  if (code == 0 && completion->dialect->equip != NULL)
    code = completion->dialect->equip(completion);
  if (code == 0 && completion->dialect->describe == NULL) {
    code = pictures_decode(&completion->pictures, completion->server->pictures,
                           &completion->cancelled, &completion->intake->error);
    completion->intake->job.aside_ns += completion->pictures.decoder_ns;
  }
  return code != 0 ? code : completion_charge_ids(completion, 0);
}

int completion_finish(completion_t *completion, bool may_compile) {
  const params_t *params = &completion->params;
  int code = completion_constrain(completion, may_compile);
  if (completion->intake->needs_heavy) return code;
  if (code == 0 && params->is_chat) code = chat_begin_choices(completion);
  for (int32_t i = 0; code == 0 && i < completion->num_inputs; i++) {
    code = take_shared(completion, &completion->inputs[i], &params->prompts[i]);
  }
  return code;
}

static bool make_inputs(completion_t *completion) {
  const params_t *params = &completion->params;
  size_t inputs = (size_t)params->num_prompts, each = (size_t)params->n;
  completion->inputs = arena_calloc(&completion->arena, inputs, sizeof *completion->inputs);
  completion->choices = arena_calloc(&completion->arena, inputs * each, sizeof(choice_t));
  if (completion->inputs == NULL || completion->choices == NULL) return false;
  completion->num_inputs = (int32_t)inputs;
  completion->num_choices = (int32_t)(inputs * each);
  for (int32_t i = 0; i < completion->num_choices; i++) {
    input_t *input = &completion->inputs[i / (int32_t)each];
    completion->choices[i] = (choice_t){.input = input, .index = i};
  }
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    input->completion = completion;
    input->choices = &completion->choices[i * (int32_t)each];
    input->num_choices = (int32_t)each;
  }
  return true;
}

int completion_build(completion_t *completion) {
  completions_t *live = completion->server->live;
  tokenizer_scratch_t *scratch = NULL;
  bool made = make_inputs(completion);
  if (made && completion_has_text(completion)) {
    scratch = scratch_take(live, completion->tokenizer);
    made = scratch != NULL;
  }
  if (!made) return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  int code = build_prompts(completion, scratch);
  scratch_give(live, scratch);
  return code;
}
