/* align.c: when the tokens of windows were said: passes of the decoder over what it has written, in
 * which weights of its cross attention are kept, and jobs that read them (engine/audio/align.h).
 *
 * The windows of a sound take turns, and a pass keeps the weights of a few heads, so that the
 * memory of one pass is enough; it was taken when the form was read, and none of this can fail.
 * Loop thread, but for `run`, a job of the lanes, which holds its completion by `settling`.
 */
#include "engine/audio/align.h"

#include "engine/audio/audio.h"
#include "engine/audio/mel.h"
#include "engine/base/util.h"
#include "server/audio/audio.h"

#include <string.h>

/* Most models have about as many in their list. */
enum { HEADS_AT_ONCE = 8 };

struct audio_align {
  lane_job_t job; /* first */
  completion_t *completion;
  input_t *input; /* whose turn it is; NULL = nobody's */
  cross_weights_t asked;
  align_t found;
  float *weights; /* [HEADS_AT_ONCE, ids, rows of the encoder] at most */
  void *memory;   /* of `found` */
  int32_t *ids;   /* [ids_max] the prompt of a pass, in the arena */
  bool handing;   /* the job is being submitted */
};

/* ---- memory ---- */

/* Rows of the encoder that have sound, by the rule of transformers. */
static int32_t count_columns(const audio_window_t *window) {
  const int64_t samples = (int64_t)((window->end_s - window->begin_s) * AUDIO_RATE + 0.5);
  return (int32_t)MAX(MIN(samples / MEL_HOP / SOURCE_ROWS, MEL_ROWS / SOURCE_ROWS), 1);
}

static int32_t columns_max(const audio_state_t *state) {
  int32_t most = 1;
  for (int32_t i = 0; i < state->num_windows; i++)
    most = MAX(most, count_columns(&state->windows[i]));
  return most;
}

static size_t weight_bytes(const completion_t *completion) {
  const size_t heads = (size_t)MIN(completion->info->speech->num_heads, HEADS_AT_ONCE);
  const size_t columns = (size_t)columns_max(audio_state(completion));
  return heads * columns * (size_t)completion_context(completion) * sizeof(float);
}

size_t audio_align_bytes(const completion_t *completion) {
  return weight_bytes(completion) +
         align_bytes((int32_t)completion_context(completion), columns_max(audio_state(completion)));
}

bool audio_align_new(completion_t *completion, void *memory) {
  audio_state_t *state = audio_state(completion);
  arena_t *arena = &completion->arena;
  const size_t ids = (size_t)state->ids_max;
  audio_align_t *align = arena_calloc(arena, 1, sizeof *align);
  if (align == NULL) return false;
  state->align = align;
  align->completion = completion;
  align->weights = memory;
  align->memory = (char *)memory + weight_bytes(completion);
  align->ids = arena_calloc(arena, ids, sizeof *align->ids);
  bool taken = align->ids != NULL;
  for (int32_t i = 0; i < state->num_windows && taken; i++) {
    state->windows[i].rows = arena_calloc(arena, ids, sizeof *state->windows[i].rows);
    taken = state->windows[i].rows != NULL;
  }
  return taken;
}

/* ---- passes ---- */

/* Asks for the weights of the next heads. The text is a prompt, behind which the end is drawn. */
static void ask_pass(audio_align_t *align) {
  const audio_state_t *state = audio_state(align->completion);
  const speech_t *speech = align->completion->info->speech;
  request_t *request = &align->input->request;
  align->asked.heads = speech->heads + align->found.num_heads;
  align->asked.num_heads = MIN(speech->num_heads - align->found.num_heads, HEADS_AT_ONCE);
  request->prompt_ids = align->ids;
  request->num_prompt_tokens = align->asked.first + align->asked.count;
  request->cross_weights = &align->asked;
  request->params.temperature = 0;
  request->params.max_tokens = 1;
  request->params.rules = NULL;
  request->params.num_bad_words = 0;
  request->params.allowed_ids = &state->rules.eos_id;
  request->params.num_allowed_ids = 1;
  input_submit(align->input);
}

/* How many tokens of a window are read: the last one of a text that fills the context is not. */
static int32_t count_read(const audio_state_t *state, const audio_window_t *window) {
  return MIN(window->num_ids, state->ids_max - 1 - state->num_prompt_ids);
}

static void begin(audio_align_t *align, input_t *input) {
  const audio_state_t *state = audio_state(align->completion);
  const audio_window_t *window = audio_window(input);
  const int32_t begin = state->num_prompt_ids, count = count_read(state, window);
  align->input = input;
  align->asked = (cross_weights_t){
      .first = begin, .count = count, .columns = count_columns(window), .out = align->weights};
  align->found = align_begin(count, align->asked.columns,
                             align->completion->info->speech->median_width, align->memory);
  memcpy(align->ids, state->prompt_ids, (size_t)begin * sizeof *align->ids);
  memcpy(align->ids + begin, window->ids, (size_t)count * sizeof *align->ids);
  ask_pass(align);
}

bool audio_align_ask(input_t *input) {
  const audio_state_t *state = audio_state(input->completion);
  audio_window_t *window = audio_window(input);
  if (state->align == NULL || count_read(state, window) < 1) return false;
  window->round = AUDIO_ALIGN;
  if (state->align->input == NULL) begin(state->align, input);
  return true;
}

/* ---- jobs ---- */

static bool is_last(const audio_align_t *align) {
  return align->found.num_heads == align->completion->info->speech->num_heads;
}

static void run(lane_job_t *job) {
  audio_align_t *align = (audio_align_t *)job;
  const audio_window_t *window = audio_window(align->input);
  const int32_t count = align->asked.count;
  if (atomic_load(&align->completion->cancelled)) return;
  align_add(&align->found, align->weights, align->asked.num_heads);
  if (!is_last(align)) return;
  align_find(&align->found, window->rows);
  for (int32_t i = count; i < window->num_ids; i++) window->rows[i] = window->rows[count - 1];
}

/* What comes behind a job: another pass over the window, or the window that waits. */
static void go_on(audio_align_t *align) {
  const audio_state_t *state = audio_state(align->completion);
  if (!is_last(align)) {
    ask_pass(align);
    return;
  }
  align->input = NULL;
  for (int32_t i = 0; i < state->num_windows; i++) {
    if (state->windows[i].round != AUDIO_ALIGN) continue;
    begin(align, &align->completion->inputs[i]);
    return;
  }
}

static bool is_complete(const audio_align_t *align) {
  const audio_state_t *state = audio_state(align->completion);
  bool complete = align->input == NULL;
  for (int32_t i = 0; i < state->num_windows; i++)
    complete = complete && state->windows[i].round == AUDIO_DONE;
  return complete;
}

static void done(lane_job_t *job) {
  audio_align_t *align = (audio_align_t *)job;
  completion_t *completion = align->completion;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion->settling = false;
  if (completion->exchange != NULL) go_on(align);
  if (is_complete(align) && !align->handing)
    completion_settled(completion); /* the last window has ended, and `complete` was put off */
  else
    completion_release(completion);
  if (!align->handing) completions_submit(live);
  completions_leave(live);
}

bool audio_align_read(input_t *input) {
  completion_t *completion = input->completion;
  audio_align_t *align = audio_state(completion)->align;
  const int32_t heads = align->found.num_heads + align->asked.num_heads;
  const bool last = heads == completion->info->speech->num_heads;
  if (last) audio_window(input)->round = AUDIO_DONE;
  align->job =
      (lane_job_t){.run = run, .done = done, .client = completion->source, .kind = LANE_HEAVY};
  completion->settling = align->handing = true;
  lanes_submit(completion->server->lanes, &align->job);
  align->handing = false;
  return !last;
}

bool audio_settle(completion_t *completion) {
  const audio_align_t *align = audio_state(completion)->align;
  return align != NULL && align->input != NULL;
}
