/* request.c: a form of /v1/audio -> windows with their spectrograms, and a body of completions.
 *
 * Stage 2 of 9, before params.c. audio_open runs on the loop thread, the rest in a job of the
 * lanes, which waits for the process that decodes. Next: server/completion/prompt.c, then rounds.c.
 */
#include "engine/audio/mel.h"
#include "engine/audio/work.h"
#include "engine/base/util.h"
#include "server/audio/audio.h"
#include "server/http/multipart.h"
#include "server/keys/sha256.h"

#include <stdlib.h>
#include <string.h>

/* Shorter sounds are refused, as OpenAI refuses them. */
static const double SECONDS_MIN = 0.1;
/* Bytes of samples that a byte of most files becomes, for the ledger before they are known. */
enum { SAMPLE_BYTES_BY_FILE = 64 };

static int refuse_memory(inferd_error_t *error) {
  return error_set(error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* ---- before the job ---- */

bool audio_open(completion_t *completion) {
  const exchange_t *exchange = completion->exchange;
  const char *type = exchange_request_header(exchange, "Content-Type");
  audio_state_t *state = arena_calloc(&completion->arena, 1, sizeof *state);
  if (state == NULL) return false;
  completion->dialect_state = state;
  completion->lent.charge = charge_open(exchange->server->ledger, exchange->source, LEDGER_sounds);
  if (type == NULL) return true;
  state->type = arena_copy(&completion->arena, type, strlen(type));
  return state->type != NULL;
}

bool audio_open_translation(completion_t *completion) {
  if (!audio_open(completion)) return false;
  audio_state(completion)->translates = true;
  return true;
}

/* ---- fields ---- */

static int take_language(audio_state_t *state, const speech_t *speech, const json_t *name,
                         inferd_error_t *error) {
  const char *code = name != NULL ? audio_language_code(name->text, name->length) : NULL;
  char shown[FIELD_SHOWN_MAX];
  if (name == NULL || name->length == 0) return 0;
  if (speech->num_languages == 0) {
    if (code != NULL && strcmp(code, "en") == 0) return 0;
    return error_set(error, ERR_INVALID_VALUE, "language",
                     "Invalid 'language': %s; the served model knows English alone.",
                     field_shown(shown, name));
  }
  if (code != NULL) state->language = speech_language(speech, code, strlen(code));
  if (state->language != NULL) return 0;
  return error_set(error, ERR_INVALID_VALUE, "language",
                   "Invalid 'language': %s is no language of the served model; it takes ISO 639 "
                   "codes such as \"en\".",
                   field_shown(shown, name));
}

static int check_fields(const completion_t *completion, const audio_fields_t *fields,
                        inferd_error_t *error) {
  const audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  if (fields->stream && fields->shape > AUDIO_TEXT)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "stream",
                     "'stream' is supported with 'response_format' \"json\" and \"text\".");
  if (fields->has_granularities && fields->shape != AUDIO_VERBOSE)
    return error_set(error, ERR_INVALID_VALUE, "timestamp_granularities[]",
                     "'timestamp_granularities[]' needs 'response_format' \"verbose_json\".");
  if (state->translates && speech->translate_id < 0)
    return error_set(error, ERR_UNSUPPORTED_ENDPOINT, NULL,
                     "The served model does not translate. Use /v1/audio/transcriptions.");
  if (fields->prompt != NULL && fields->prompt->length > 0 && speech->previous_id < 0)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "prompt",
                     "The served model takes no 'prompt'.");
  return 0;
}

/* The last tokens of a text that stands before the transcript: " " and the text without space
 * around it, as WhisperTokenizer has it. */
static int take_prompt(completion_t *completion, const json_t *prompt, inferd_error_t *error) {
  audio_state_t *state = audio_state(completion);
  completions_t *live = completion->server->live;
  if (prompt == NULL || prompt->length == 0) return 0;
  const char *text = prompt->text;
  size_t length = prompt->length, count = 0;
  while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL) length--;
  while (length > 0 && strchr(" \t\r\n", *text) != NULL) text++, length--;
  buffer_t spaced = {0};
  int32_t *ids = NULL;
  buffer_char(&spaced, ' ');
  buffer_append(&spaced, text, length);
  const byte_span_t plain = {0, spaced.length};
  const tokenize_options_t options = {.word_max = TOKENIZER_WORD_MAX,
                                      .cancelled = &completion->cancelled,
                                      .plain = &plain,
                                      .num_plain = 1};
  tokenizer_scratch_t *scratch = scratch_take(live, completion->tokenizer);
  int code = scratch == NULL || spaced.failed ? refuse_memory(error) : 0;
  if (code == 0)
    code = tokenizer_encode(completion->tokenizer, scratch, spaced.data, spaced.length, &options,
                            &ids, &count, error);
  scratch_give(live, scratch);
  buffer_free(&spaced);
  const size_t most = (size_t)completion_context(completion) / 2 - 1, kept = MIN(count, most);
  if (code == 0 && kept > 0) state->text_ids = arena_calloc(&completion->arena, kept, sizeof *ids);
  if (code == 0 && kept > 0 && state->text_ids == NULL) code = refuse_memory(error);
  if (code == 0 && kept > 0) memcpy(state->text_ids, ids + count - kept, kept * sizeof *ids);
  if (code == 0) state->num_text_ids = (int32_t)kept;
  free(ids);
  return code;
}

/* ---- sound ---- */

static int name_file(int code, inferd_error_t *error) {
  char reason[ERROR_MESSAGE_MAX];
  if (code != ERR_INVALID_VALUE) return code;
  snprintf(reason, sizeof reason, "%s", error->message);
  return error_set(error, code, "file", "Invalid 'file': %s.", reason);
}

static int read_sound(completion_t *completion, const multipart_part_t *file, audio_sound_t *out,
                      inferd_error_t *error) {
  audio_state_t *state = audio_state(completion);
  const server_t *server = completion->server;
  const size_t most = (size_t)server->config->max_audio_bytes;
  const audio_job_t job = {.seconds_max = (uint32_t)server->config->max_audio_seconds};
  if (file->length > most)
    return error_set(error, ERR_INVALID_VALUE, "file",
                     "Invalid 'file': it has %zu bytes; at most %zu (--max-audio-bytes) are taken.",
                     file->length, most);
  const size_t room = (size_t)job.seconds_max * AUDIO_RATE * sizeof(float);
  const size_t guess = MIN(room, file->length * SAMPLE_BYTES_BY_FILE) + file->length;
  charge_t *charge = &completion->lent.charge;
  if (!charge_resize(charge, guess)) return ledger_refuse(charge, error);
  const int code = name_file(audio_read(server->sounds, &job, (const uint8_t *)file->bytes,
                                        file->length, out, &state->helper_ns, error),
                             error);
  completion->intake->job.aside_ns += state->helper_ns;
  if (code != 0) return code;
  state->duration_s = (double)out->count / AUDIO_RATE;
  if (state->duration_s < SECONDS_MIN)
    return error_set(error, ERR_INVALID_VALUE, "file",
                     "Invalid 'file': the sound has %.3f s; at least %.1f s are needed.",
                     state->duration_s, SECONDS_MIN);
  return 0;
}

static size_t row_values(const completion_t *completion) {
  return (size_t)MEL_ROWS * (size_t)completion->info->speech->bands;
}

/* Finds the windows; their spectrograms follow. */
static int cut_windows(completion_t *completion, const audio_sound_t *sound,
                       inferd_error_t *error) {
  audio_state_t *state = audio_state(completion);
  const size_t most = windows_most(sound->count);
  state->windows = arena_calloc(&completion->arena, most, sizeof *state->windows);
  if (state->windows == NULL) return refuse_memory(error);
  for (size_t at = 0; at < sound->count;) {
    audio_window_t *window = &state->windows[state->num_windows++];
    const size_t length = window_length(sound->samples + at, sound->count - at);
    window->begin_s = (double)at / AUDIO_RATE;
    at += length;
    window->end_s = (double)at / AUDIO_RATE;
  }
  return 0;
}

/* The rows follow from the samples, which are fewer in a short window. */
static void hash_window(const float *samples, size_t count, const float *rows, size_t values,
                        source_key_t *out) {
  if (count < values)
    sha256(samples, count * sizeof *samples, out->bytes);
  else
    sha256(rows, values * sizeof *rows, out->bytes);
}

static int make_rows(completion_t *completion, const audio_sound_t *sound, inferd_error_t *error) {
  audio_state_t *state = audio_state(completion);
  const size_t values = row_values(completion), windows = (size_t)state->num_windows;
  const size_t row_bytes = windows * values * sizeof(float);
  const size_t bytes = row_bytes + (state->words ? audio_align_bytes(completion) : 0);
  held_t *lent = &completion->lent;
  if (!charge_resize(&lent->charge, sound->count * sizeof *sound->samples + bytes))
    return ledger_refuse(&lent->charge, error);
  lent->bytes = malloc(bytes);
  mel_t *mel = mel_new(completion->info->speech->bands);
  int code = lent->bytes == NULL || mel == NULL ? refuse_memory(error) : 0;
  if (code == 0) state->align_memory = lent->bytes + row_bytes;
  for (size_t i = 0; code == 0 && i < windows; i++) {
    audio_window_t *window = &state->windows[i];
    const size_t at = (size_t)(window->begin_s * AUDIO_RATE + 0.5);
    const size_t end = (size_t)(window->end_s * AUDIO_RATE + 0.5);
    float *rows = (float *)(void *)lent->bytes + i * values;
    if (atomic_load(&completion->cancelled))
      code = error_set(error, ERR_REQUEST_TIMEOUT, NULL, "The request was cancelled.");
    mel_window(mel, sound->samples + at, end - at, rows);
    window->source = (encoder_source_t){.rows = rows, .length = MEL_ROWS / SOURCE_ROWS};
    hash_window(sound->samples + at, end - at, rows, values, &window->source.key);
  }
  mel_free(mel);
  if (code == 0) (void)charge_resize(&lent->charge, bytes);
  return code;
}

static int hear(completion_t *completion, const multipart_part_t *file, inferd_error_t *error) {
  audio_sound_t sound = {0};
  int code = read_sound(completion, file, &sound, error);
  if (code == 0) code = cut_windows(completion, &sound, error);
  if (code == 0) code = make_rows(completion, &sound, error);
  audio_sound_free(&sound);
  return code;
}

/* ---- the body ---- */

/* All that reading it needs; prompts and parameters follow by windows (audio_spread, rounds.c). */
static void print_body(const completion_t *completion, const audio_fields_t *fields,
                       buffer_t *out) {
  buffer_text(out, "{\"prompt\":[");
  buffer_int(out, completion->info->speech->start_id);
  buffer_text(out, "],\"max_tokens\":1,\"temperature\":0,\"top_p\":1,\"stream\":");
  buffer_text(out, fields->stream ? "true" : "false");
  if (fields->model != NULL) json_print_member(out, "model", fields->model);
  buffer_char(out, '}');
}

static int take_fields(completion_t *completion, const audio_fields_t *fields,
                       inferd_error_t *error) {
  audio_state_t *state = audio_state(completion);
  int code = take_language(state, completion->info->speech, fields->language, error);
  state->shape = fields->shape;
  state->temperature = fields->temperature;
  state->stream = fields->stream;
  state->words = fields->words;
  state->segments = fields->segments || !fields->words;
  if (code == 0) code = check_fields(completion, fields, error);
  return code == 0 ? take_prompt(completion, fields->prompt, error) : code;
}

static int ask_windows(completion_t *completion, const audio_fields_t *fields,
                       const multipart_part_t *file, buffer_t *body, inferd_error_t *error) {
  int code = take_fields(completion, fields, error);
  if (code == 0) code = hear(completion, file, error);
  if (code == 0) print_body(completion, fields, body);
  return code;
}

/* ---- the form ---- */

static int read_parts(completion_t *completion, reader_t *reader, const multipart_t *form,
                      const json_t *root, audio_form_t *then, buffer_t *body) {
  const bool translates = audio_state(completion)->translates;
  const multipart_part_t *file = multipart_find(form, "file");
  audio_fields_t fields = {0};
  const field_table_t *table = translates ? &translation_table : &transcription_table;
  reader->out = &fields;
  fields_default(table, &fields);
  int code = fields_read(table, reader, root);
  if (code == 0 && file == NULL)
    code = error_set(reader->error, ERR_MISSING_PARAMETER, "file",
                     "Missing required parameter: 'file'.");
  return code == 0 ? then(completion, &fields, file, body, reader->error) : code;
}

int audio_read_form(completion_t *completion, reader_t *reader, audio_form_t *then,
                    buffer_t *body) {
  const held_t *raw = &completion->intake->body;
  audio_state_t *state = audio_state(completion);
  buffer_t text = {0};
  json_doc_t *doc = NULL;
  multipart_t form;
  const field_table_t *table = state->translates ? &translation_table : &transcription_table;
  int code = multipart_read(state->type, raw->bytes, raw->length, &form, reader->error);
  if (code == 0) code = audio_print_form(&form, table, &text, reader->error);
  if (code == 0 && text.failed) code = refuse_memory(reader->error);
  if (code == 0)
    code = json_parse(text.data, text.length, &json_limits_request, &doc, reader->error);
  if (code == 0) code = read_parts(completion, reader, &form, json_root(doc), then, body);
  json_free(doc);
  buffer_free(&text);
  return code;
}

int audio_unpack(completion_t *completion, reader_t *reader, buffer_t *body) {
  return audio_read_form(completion, reader, ask_windows, body);
}

int audio_spread(completion_t *completion) {
  const audio_state_t *state = audio_state(completion);
  params_t *params = &completion->params;
  const size_t windows = (size_t)state->num_windows;
  prompt_t *prompts = arena_calloc(&completion->arena, windows, sizeof *prompts);
  if (prompts == NULL) return refuse_memory(&completion->intake->error);
  for (size_t i = 0; i < windows; i++)
    prompts[i] = (prompt_t){.ids = &completion->info->speech->start_id, .count = 1};
  params->prompts = prompts;
  params->num_prompts = state->num_windows;
  return 0;
}

void audio_free(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  if (state != NULL) buffer_free(&state->text);
}
