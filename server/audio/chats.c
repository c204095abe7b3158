/* chats.c: /v1/audio of models that hear in chats and are made to write down speech: a form becomes
 * a chat, as apply_transcription_request of transformers makes one, and its answer a transcript.
 *
 * The sound is a part of the chat, whole: what is too long for the model is refused. unpack runs in
 * a job of the lanes, the rest on the loop thread. Reference: the processors of qwen3_asr and
 * glmasr of transformers.
 */
#include "engine/base/util.h"
#include "server/audio/audio.h"
#include "server/http/multipart.h"
#include "server/observe/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* How a kind of models is asked. */
typedef struct audio_script {
  const char *model;  /* vision_t.writes */
  const char *asks;   /* behind the sound, in the place of a prompt; NULL: the system says that */
  const char *before; /* the answer begins so, with a language; or NULL */
  const char *tag;    /* behind the language */
} audio_script_t;

static const audio_script_t scripts[] = {
    {"qwen3_asr", NULL, "language ", "<asr_text>"},
    {"glmasr", "Please transcribe this audio into text", NULL, NULL},
};

/* Those of Qwen3-ASR. */
static const struct {
  const char *code, *name;
} languages[] = {
    {"ar", "Arabic"},   {"yue", "Cantonese"}, {"zh", "Chinese"},    {"cs", "Czech"},
    {"da", "Danish"},   {"nl", "Dutch"},      {"en", "English"},    {"fil", "Filipino"},
    {"fi", "Finnish"},  {"fr", "French"},     {"de", "German"},     {"el", "Greek"},
    {"hi", "Hindi"},    {"hu", "Hungarian"},  {"id", "Indonesian"}, {"it", "Italian"},
    {"ja", "Japanese"}, {"ko", "Korean"},     {"mk", "Macedonian"}, {"ms", "Malay"},
    {"fa", "Persian"},  {"pl", "Polish"},     {"pt", "Portuguese"}, {"ro", "Romanian"},
    {"ru", "Russian"},  {"es", "Spanish"},    {"sv", "Swedish"},    {"th", "Thai"},
    {"tr", "Turkish"},  {"vi", "Vietnamese"}};

static const audio_script_t *script_of(const completion_t *completion) {
  for (size_t i = 0; i < ARRAY_LEN(scripts); i++)
    if (strcmp(scripts[i].model, completion->info->hearing->writes) == 0) return &scripts[i];
  return NULL; /* a family of towers that writes has a row */
}

/* ---- the form ---- */

static int check_fields(const completion_t *completion, const audio_fields_t *fields,
                        inferd_error_t *error) {
  if (audio_state(completion)->translates)
    return error_set(error, ERR_UNSUPPORTED_ENDPOINT, NULL,
                     "The served model does not translate. Use /v1/audio/transcriptions.");
  if (fields->shape > AUDIO_TEXT)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "response_format",
                     "The served model tells no times: 'response_format' may be \"json\" or "
                     "\"text\".");
  if (fields->has_granularities)
    return error_set(error, ERR_INVALID_VALUE, "timestamp_granularities[]",
                     "'timestamp_granularities[]' needs 'response_format' \"verbose_json\".");
  return 0;
}

static bool is_word(const char *word, const json_t *text) {
  return strlen(word) == text->length && strncasecmp(word, text->text, text->length) == 0;
}

/* The English name of the language that the form asks for; NULL = it asks for none. */
static int find_language(const audio_script_t *script, const json_t *named, const char **out,
                         inferd_error_t *error) {
  char shown[FIELD_SHOWN_MAX];
  *out = NULL;
  if (named == NULL || named->length == 0) return 0;
  if (script->before == NULL)
    return error_set(error, ERR_UNSUPPORTED_PARAMETER, "language",
                     "The served model takes no 'language'.");
  for (size_t i = 0; i < ARRAY_LEN(languages) && *out == NULL; i++) {
    if (is_word(languages[i].code, named) || is_word(languages[i].name, named))
      *out = languages[i].name;
  }
  if (*out != NULL) return 0;
  return error_set(error, ERR_INVALID_VALUE, "language",
                   "Invalid 'language': %s is no language of the served model; it takes ISO 639 "
                   "codes such as \"en\".",
                   field_shown(shown, named));
}

/* ---- the chat ---- */

static void print_base64(buffer_t *out, const char *bytes, size_t length) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *from = (const uint8_t *)bytes;
  for (size_t i = 0; i < length; i += 3) {
    const size_t left = MIN(length - i, 3);
    const uint32_t three = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                           (left > 2 ? from[i + 2] : 0);
    for (size_t k = 0; k < 4; k++)
      buffer_char(out, k <= left ? digits[three >> (18 - 6 * k) & 63] : '=');
  }
}

static void print_text(buffer_t *out, const char *text, size_t length) {
  buffer_text(out, ",{\"type\":\"text\",\"text\":");
  buffer_quote(out, text, length);
  buffer_char(out, '}');
}

static void print_messages(buffer_t *out, const audio_script_t *script,
                           const audio_fields_t *fields, const multipart_part_t *file,
                           const char *language) {
  const json_t *prompt =
      fields->prompt != NULL && fields->prompt->length > 0 ? fields->prompt : NULL;
  buffer_text(out, "{\"messages\":[");
  if (prompt != NULL && script->asks == NULL) {
    buffer_text(out, "{\"role\":\"system\",\"content\":");
    buffer_quote(out, prompt->text, prompt->length);
    buffer_text(out, "},");
  }
  buffer_text(out, "{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":"
                   "{\"data\":\"");
  print_base64(out, file->bytes, file->length);
  buffer_text(out, "\",\"format\":\"wav\"}}");
  if (script->asks != NULL && prompt != NULL) print_text(out, prompt->text, prompt->length);
  if (script->asks != NULL && prompt == NULL) print_text(out, script->asks, strlen(script->asks));
  buffer_text(out, "]}");
  if (language != NULL) { /* what the model would say of it is said */
    buffer_text(out, ",{\"role\":\"assistant\",\"content\":\"");
    buffer_text(out, script->before);
    buffer_text(out, language);
    buffer_text(out, script->tag);
    buffer_text(out, "\"}],\"add_generation_prompt\":false,\"continue_final_message\":true");
  } else {
    buffer_char(out, ']');
  }
}

static int ask_chat(completion_t *completion, const audio_fields_t *fields,
                    const multipart_part_t *file, buffer_t *body, inferd_error_t *error) {
  const audio_script_t *script = script_of(completion);
  audio_state_t *state = audio_state(completion);
  charge_t *charge = &completion->lent.charge;
  const char *language = NULL;
  int code = check_fields(completion, fields, error);
  if (code == 0) code = find_language(script, fields->language, &language, error);
  if (code == 0 && !charge_resize(charge, file->length / 3 * 4 + 4))
    code = ledger_refuse(charge, error);
  if (code != 0) return code;
  state->shape = fields->shape;
  state->tag = language == NULL ? script->tag : NULL;
  print_messages(body, script, fields, file, language);
  buffer_text(body, ",\"temperature\":");
  buffer_float(body, fields->temperature);
  buffer_text(body, fields->stream ? ",\"stream\":true" : ",\"stream\":false");
  if (fields->model != NULL) json_print_member(body, "model", fields->model);
  buffer_char(body, '}');
  (void)charge_resize(charge, 0); /* the body has a charge of its own */
  return 0;
}

static int unpack(completion_t *completion, reader_t *reader, buffer_t *body) {
  return audio_read_form(completion, reader, ask_chat, body);
}

/* What the chat has a name for is the file, as the form has it. */
static void rename_places(const completion_t *completion, inferd_error_t *error) {
  char place[sizeof error->param + 2], said[sizeof error->message];
  (void)completion;
  if (strncmp(error->param, "messages", 8) != 0) return;
  snprintf(place, sizeof place, "'%s'", error->param);
  snprintf(error->param, sizeof error->param, "file");
  char *at = strstr(error->message, place);
  if (at == NULL) return;
  snprintf(said, sizeof said, "%s", at + strlen(place));
  snprintf(at, sizeof error->message - (size_t)(at - error->message), "'file'%s", said);
}

/* ---- the answer ---- */

static bool prepare(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  completion->created = (int64_t)time(NULL);
  state->duration_s = completion->pictures.sound_seconds;
  metrics_heard(completion->server->metrics, state->duration_s, 1);
  return true;
}

static void take(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  audio_state_t *state = audio_state(choice->input->completion);
  if (kind != OUTPUT_CONTENT && kind != OUTPUT_REASONING) return; /* there are no tools */
  buffer_append(&state->text, text, length);
  choice->text.failed = choice->text.failed || state->text.failed;
}

/* Finds where the transcript begins. False: the language is still being written. What has ended
 * without one is all transcript. Until it is found `told` is where the next search begins: so a
 * long answer without it is read once. */
static bool find_begin(audio_state_t *state, bool ended) {
  const buffer_t *text = &state->text;
  if (state->tag == NULL) return true;
  const size_t length = strlen(state->tag), from = MIN(state->told, text->length);
  const char *found = text->length > from
                          ? memmem(text->data + from, text->length - from, state->tag, length)
                          : NULL;
  if (found == NULL) {
    state->told = ended || text->length < length ? state->begin : text->length - length + 1;
    return ended;
  }
  state->begin = state->told = (size_t)(found - text->data) + length;
  state->tag = NULL;
  return true;
}

/* All of the transcript, in a buffer that the caller frees. */
static buffer_t transcript(audio_state_t *state) {
  buffer_t out = {0};
  (void)find_begin(state, true);
  if (state->text.length > state->begin)
    buffer_append(&out, state->text.data + state->begin, state->text.length - state->begin);
  audio_strip(&out);
  return out;
}

static bool print_response(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  buffer_t *out = &completion->reply.own, text = transcript(state);
  if (state->shape == AUDIO_JSON)
    audio_print_json(out, state, &text);
  else
    audio_print_text(completion, &text);
  out->failed = out->failed || text.failed || state->text.failed;
  buffer_free(&text);
  return !cord_failed(&completion->reply);
}

/* ---- the stream ---- */

/* Sends what is known of the transcript, which begins without a space. */
static void send_chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  audio_state_t *state = audio_state(completion);
  buffer_t *out = &completion->server->live->frame.own;
  const buffer_t *text = &state->text;
  choice->unsent_tokens = 0;
  choice->sent_any = true;
  if (completion->exchange == NULL || !find_begin(state, last)) return;
  size_t from = state->told;
  while (state->told == state->begin && from < text->length && audio_is_space(text->data[from]))
    from++;
  if (from == text->length && !text->failed) return;
  buffer_clear(out);
  audio_print_delta(out, text->data + from, text->length - from);
  out->failed = out->failed || text->failed;
  state->told = text->length;
  sse_send_buffer(completion, out);
}

static void send_done(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  buffer_t *out = &completion->server->live->frame.own;
  if (completion->exchange == NULL) return;
  buffer_t text = transcript(state);
  buffer_clear(out);
  audio_print_done(out, state, &text);
  out->failed = out->failed || text.failed;
  buffer_free(&text);
  sse_send_buffer(completion, out);
}

static void send_error(completion_t *completion, const inferd_error_t *error) {
  text_dialect.error(completion, error);
}

static void send_ping(completion_t *completion) {
  text_dialect.ping(completion);
}

/* ---- dialects ---- */

#define CHAT_DIALECT(label, opens)                                                                 \
  {                                                                                                \
    .route = (label), .is_chat = true, .open = (opens), .unpack = unpack, .rename = rename_places, \
    .prepare = prepare, .take = take, .chunk = send_chunk, .done = send_done, .error = send_error, \
    .ping = send_ping, .response = print_response, .held = audio_held, .free = audio_free          \
  }
const dialect_t audio_chat_transcriptions = CHAT_DIALECT("/v1/audio/transcriptions", audio_open);
const dialect_t audio_chat_translations =
    CHAT_DIALECT("/v1/audio/translations", audio_open_translation);
