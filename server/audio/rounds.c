/* rounds.c: what the engine is asked for a window, round by round.
 *
 * audio_equip runs in the job that reads the request; the rest on the loop thread, as events come.
 * Thresholds are those of openai-whisper; probabilities are those of the model before any id is
 * left out.
 */
#include "server/audio/audio.h"

#include "engine/base/util.h"
#include "server/completion/memory.h"

#include <math.h>
#include <string.h>

/* Of a window that came out badly: a lower mean of log-probabilities; of silence, where that is as
 * low, a higher probability of none. */
static const double LOGPROB_LOW = -1.0, SILENCE_HIGH = 0.6;
static const float TEMPERATURE_STEP = 0.2f;

/* ---- before the engine ---- */

static bool has_stamps(const audio_state_t *state) {
  return state->shape >= AUDIO_SRT;
}

/* The prompt of the second round, which all windows share once the language is known. Its room was
 * taken by audio_equip. */
static void write_prompt(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  int32_t *ids = state->prompt_ids, n = 0;
  if (state->num_text_ids > 0) ids[n++] = speech->previous_id;
  for (int32_t i = 0; i < state->num_text_ids; i++) ids[n++] = state->text_ids[i];
  ids[n++] = speech->start_id;
  if (state->language != NULL) {
    ids[n++] = state->language->id;
    ids[n++] = state->translates ? speech->translate_id : speech->transcribe_id;
  }
  if (!has_stamps(state)) ids[n++] = speech->rules.no_stamps_id;
  state->num_prompt_ids = n;
}

/* One token behind the start: the language; where it is known, or there is one, nothing that
 * matters. */
static void ask_start(input_t *input) {
  const completion_t *completion = input->completion;
  const audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  request_t *request = &input->request;
  request->prompt_ids = &speech->start_id;
  request->num_prompt_tokens = 1;
  request->params.temperature = 0;
  request->params.max_tokens = 1;
  request->params.rules = NULL;
  request->params.num_bad_words = 0;
  request->params.allowed_ids = state->language_ids;
  request->params.num_allowed_ids = MAX(speech->num_languages, 1);
  request->params.logprob_token_ids = &speech->no_speech_id;
  request->params.num_logprob_token_ids = 1;
}

static void ask_text(input_t *input, float temperature) {
  const completion_t *completion = input->completion;
  const audio_state_t *state = audio_state(completion);
  audio_window_t *window = audio_window(input);
  request_t *request = &input->request;
  window->round = AUDIO_WRITE;
  window->temperature = temperature;
  window->num_ids = 0;
  window->logprob_sum = 0;
  request->prompt_ids = state->prompt_ids;
  request->num_prompt_tokens = state->num_prompt_ids;
  request->params.temperature = temperature;
  request->params.max_tokens = (int32_t)completion_context(completion) - state->num_prompt_ids;
  request->params.rules = &state->rules;
  request->params.bad_words = state->suppressed;
  request->params.num_bad_words = state->num_suppressed;
  request->params.num_allowed_ids = 0;
  request->params.num_logprob_token_ids = 0;
  input_submit(input);
}

static int refuse_memory(completion_t *completion) {
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

/* Everything that rounds need, so that none of them can fail. */
static int take_room(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  arena_t *arena = &completion->arena;
  const size_t ids = (size_t)completion_context(completion);
  const size_t suppressed = (size_t)speech->num_suppressed;
  const size_t languages = (size_t)MAX(speech->num_languages, 1);
  state->ids_max = (int32_t)ids;
  state->prompt_ids = arena_calloc(arena, ids, sizeof *state->prompt_ids);
  state->suppressed = arena_calloc(arena, MAX(suppressed, 1), sizeof *state->suppressed);
  state->language_ids = arena_calloc(arena, languages, sizeof *state->language_ids);
  if (state->prompt_ids == NULL || state->suppressed == NULL || state->language_ids == NULL)
    return refuse_memory(completion);
  for (int32_t i = 0; i < state->num_windows; i++) {
    state->windows[i].ids = arena_calloc(arena, ids, sizeof *state->windows[i].ids);
    if (state->windows[i].ids == NULL) return refuse_memory(completion);
  }
  if (state->words && !audio_align_new(completion, state->align_memory))
    return refuse_memory(completion);
  for (size_t i = 0; i < suppressed; i++)
    state->suppressed[i] = (token_sequence_t){&speech->suppressed[i], 1};
  state->num_suppressed = (int32_t)suppressed;
  state->language_ids[0] = speech->no_speech_id;
  for (int32_t i = 0; i < speech->num_languages; i++)
    state->language_ids[i] = speech->languages[i].id;
  state->rules = speech->rules;
  state->rules.stamps = has_stamps(state);
  return completion_charge_ids(completion, 0);
}

/* No more than have seats, so that none waits for another one of its own sound in the queue. */
static int32_t most_at_once(const completion_t *completion) {
  const int64_t queue = completion->server->config->max_queue_requests;
  const int64_t seats = MIN(completion->info->max_num_seqs, queue);
  return (int32_t)MIN(seats, AUDIO_WINDOWS_AT_ONCE);
}

int audio_equip(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  const int code = take_room(completion);
  if (code != 0) return code;
  state->num_begun = MIN(completion->num_inputs, most_at_once(completion));
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    input->held_back = i >= state->num_begun;
    input->request.source = &state->windows[i].source;
    input->request.params.num_logprobs = 0;
    ask_start(input);
  }
  return 0;
}

/* ---- events ---- */

static void take_start(const completion_t *completion, audio_window_t *window,
                       const event_t *event) {
  audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  for (int32_t i = 0; i < event->num_top; i++) {
    if (event->top[i].id == speech->no_speech_id)
      window->no_speech = exp((double)event->top[i].logprob);
  }
  if (window != state->windows) return; /* the first one decides */
  for (int32_t i = 0; i < speech->num_languages && state->language == NULL; i++) {
    if (speech->languages[i].id == event->token_id) state->language = &speech->languages[i];
  }
}

void audio_drawn(choice_t *choice, const event_t *event) {
  const completion_t *completion = choice->input->completion;
  const audio_state_t *state = audio_state(completion);
  audio_window_t *window = audio_window(choice->input);
  if (window->round == AUDIO_START) {
    take_start(completion, window, event);
    return;
  }
  if (window->round == AUDIO_ALIGN) return;
  window->logprob_sum += (double)event->logprob;
  if (event->token_id == completion->info->speech->rules.eos_id) return;
  if (window->num_ids < state->ids_max) window->ids[window->num_ids++] = event->token_id;
}

double audio_mean_logprob(const audio_window_t *window) {
  return window->logprob_sum / (window->num_ids + 1);
}

bool audio_is_silent(const audio_window_t *window) {
  return window->no_speech > SILENCE_HIGH && audio_mean_logprob(window) < LOGPROB_LOW;
}

/* Whether the window is written again, warmer. A stream has sent its text. */
static bool try_again(const audio_state_t *state, input_t *input) {
  const audio_window_t *window = audio_window(input);
  if (state->stream || state->temperature > 0 || audio_is_silent(window)) return false;
  if (audio_mean_logprob(window) >= LOGPROB_LOW &&
      audio_ratio(input->completion->tokenizer, window->ids, window->num_ids) <= AUDIO_RATIO_HIGH)
    return false;
  if (window->temperature + TEMPERATURE_STEP > 1.001f) return false;
  ask_text(input, window->temperature + TEMPERATURE_STEP);
  return true;
}

/* Whether the window is read again, for the times of its words. */
static bool align(input_t *input) {
  return !audio_is_silent(audio_window(input)) && audio_align_ask(input);
}

/* The next window begins when one has ended. */
static void begin_next(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  if (state->num_begun == state->num_windows) return;
  input_submit(&completion->inputs[state->num_begun++]);
}

bool audio_again(input_t *input) {
  completion_t *completion = input->completion;
  audio_state_t *state = audio_state(completion);
  audio_window_t *window = audio_window(input);
  if (window->round == AUDIO_WRITE && (try_again(state, input) || align(input))) return true;
  if (window->round == AUDIO_ALIGN && audio_align_read(input)) return true;
  if (window->round != AUDIO_START) {
    window->round = AUDIO_DONE;
    begin_next(completion);
    return false;
  }
  window->started = true;
  /* The language of the first window is that of all. */
  if (!state->windows[0].started) return true;
  if (state->num_prompt_ids == 0) write_prompt(completion);
  for (int32_t i = 0; i < state->num_windows; i++) {
    const audio_window_t *other = &state->windows[i];
    if (other->started && other->round == AUDIO_START)
      ask_text(&completion->inputs[i], state->temperature);
  }
  return true;
}
