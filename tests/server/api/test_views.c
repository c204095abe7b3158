/* test_views.c: one conversation asked on chat, responses, messages and Ollama's chat, streamed and
 * not: eight answers that must tell the same text, reasoning, calls, end and usage.
 *
 * The model's output is drawn: thoughts, text, calls as each family writes them, pieces of marks,
 * one byte changed. It ends by itself, at a stop string, or at the limit behind any token. Nothing
 * knows what is right: the answers are compared with each other. VIEWS=10000 sets the number of
 * conversations and prints what differed by kind; the draw is the same each time. */
#include "engine/base/util.h"
#include "server/parser/json_scan.h"
#include "tests/expect.h"
#include "tests/random.h"
#include "tests/server/api/calls.h"
#include "tests/server/api/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void start(void) {
  fake_start();
  fake_engine.info.max_model_len = 8192;
  fake_engine.info.kv_tokens = 8192;
}

TestSuite(views, .init = start, .fini = fake_stop, .timeout = 7200);

enum { DRAWN = 600, CUT_EVERYWHERE = 12, PER_TOOLS = 8, TOKENS_MAX = 1500 };

/* What a model says, in tokens. */
typedef struct speech {
  buffer_t text;
  size_t ends[TOKENS_MAX]; /* behind each token */
  int num_tokens;
} speech_t;

typedef struct conversation {
  const tool_format_t *format;
  const reasoning_format_t *reasoning;
  drawn_tools_t drawn;
  view_request_t request;
  speech_t speech;
} conversation_t;

/* How the answer ends, behind `tokens` tokens. */
typedef struct ending {
  int tokens;
  finish_reason_t finish;
} ending_t;

/* What was compared, and differences by part. */
typedef struct counts {
  int conversations, endings, views, differing, calls, cut_calls;
  int parts[VIEW_PARTS];
} counts_t;

static uint32_t below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(next_random_64(state) % bound);
}

static const char *bytes_of(const buffer_t *text) { /* never NULL */
  return text->length > 0 ? text->data : "";
}

/* ---- what the model says ---- */

static void say_text(uint64_t *state, const conversation_t *talk, buffer_t *out) {
  static const char *const words[] = {"Let me look. ", "1 < 2, {a}", "\n\n",     " ",
                                      "h\xc3\xa9llo",  "[1, 2]",     "a <b> c ", "{\"k\": 3}"};
  const char *const *marks = talk->format->marks;
  uint32_t count = below(state, 4), num_marks = 0;
  while (marks != NULL && marks[num_marks] != NULL) num_marks++;
  for (uint32_t i = 0; i < count; i++) {
    const char *word = words[below(state, ARRAY_LEN(words))];
    size_t length = strlen(word);
    bool mark = num_marks > 0 && below(state, 4) == 0;
    if (mark) word = marks[below(state, num_marks)];
    if (mark) length = 1 + below(state, (uint32_t)strlen(word));
    while (mark && length < strlen(word) && (word[length] & 0xC0) == 0x80) length++;
    buffer_append(out, word, length);
  }
}

static void say_thoughts(uint64_t *state, const conversation_t *talk, buffer_t *out) {
  const reasoning_format_t *format = talk->reasoning;
  if (format == NULL || below(state, 3) == 0) return;
  buffer_text(out, format->open);
  buffer_text(out, "I think ");
  say_text(state, talk, out);
  buffer_text(out, format->close);
  if (format->between != NULL) buffer_text(out, format->between);
}

static void say_calls(uint64_t *state, const conversation_t *talk, buffer_t *out) {
  json_doc_t *docs[3] = {NULL};
  const json_t *arguments[3];
  buffer_t texts[3] = {{{0}, 0, 0, 0}};
  int count = 1 + (int)below(state, 3);
  for (int i = 0; i < count; i++) {
    json_limits_t any = json_limits_request;
    any.allow_nul = true;
    calls_draw_arguments(state, &talk->drawn, talk->format, &texts[i]);
    ASSERT_EQ(json_parse(texts[i].data, texts[i].length, &any, &docs[i], NULL), 0);
    arguments[i] = json_root(docs[i]);
  }
  calls_write(out, talk->format, arguments, count);
  for (int i = 0; i < count; i++) {
    json_free(docs[i]);
    buffer_free(&texts[i]);
  }
}

/* Changes one byte of ASCII. */
static void spoil(uint64_t *state, buffer_t *text) {
  static const char bytes[] = "ax1\"'{}[]()<>|/=:, \n_";
  if (text->length == 0) return;
  size_t at = next_random_64(state) % text->length;
  if ((uint8_t)text->data[at] < 0x80) text->data[at] = bytes[below(state, sizeof bytes - 1)];
}

static void cut_tokens(uint64_t *state, speech_t *speech) {
  size_t at = 0;
  for (speech->num_tokens = 0; at < speech->text.length; speech->num_tokens++) {
    cr_assert_lt(speech->num_tokens, TOKENS_MAX);
    at += 1 + below(state, 9);
    if (at > speech->text.length) at = speech->text.length;
    while (at < speech->text.length && (speech->text.data[at] & 0xC0) == 0x80) at++;
    speech->ends[speech->num_tokens] = at;
  }
}

static void draw_speech(uint64_t *state, conversation_t *talk) {
  buffer_t *out = &talk->speech.text;
  const reasoning_format_t *channels = talk->reasoning;
  bool in_channels = channels != NULL && channels->answer != NULL;
  do {
    buffer_clear(out);
    say_thoughts(state, talk, out);
    if (!in_channels || below(state, 2) == 0) {
      if (in_channels) buffer_text(out, channels->answer);
      bool framed = channels != NULL && channels->text_open != NULL && below(state, 4) != 0;
      if (framed) buffer_text(out, channels->text_open);
      say_text(state, talk, out);
      if (framed) buffer_text(out, channels->text_close);
    }
    if (talk->request.tools != NULL && below(state, 4) != 0) say_calls(state, talk, out);
    if (below(state, 3) == 0) say_text(state, talk, out);
    if (below(state, 5) == 0) spoil(state, out);
  } while (out->length >= TOKENS_MAX);
  cut_tokens(state, &talk->speech);
}

/* ---- asking ---- */

static void choose(uint64_t *state, conversation_t *talk) {
  static const char *const choices[] = {"auto", "auto", "required", "get_it", "none"};
  view_request_t *request = &talk->request;
  request->choice = choices[below(state, ARRAY_LEN(choices))];
  request->parallel = below(state, 4) != 0;
  request->stop = NULL;
  request->tools = talk->drawn.text.data;
  request->num_choices = 1;
  if (below(state, 12) == 0) request->tools = NULL;
  talk->reasoning = NULL;
  if (talk->format->payload == PAYLOAD_CHANNELS) {
    talk->reasoning = reasoning_format_find("harmony");
  } else if (strcmp(talk->format->name, "kimi_k3") == 0 && below(state, 4) != 0) {
    talk->reasoning = reasoning_format_find("kimi_k3");
  } else if (below(state, 2) == 0) {
    static const char *const names[] = {"think",   "deepseek_r1", "mistral",
                                        "granite", "gemma4",      "minimax_m3"};
    talk->reasoning = reasoning_format_find(names[below(state, ARRAY_LEN(names))]);
  }
}

static void draw_tools(uint64_t *state, conversation_t *talk) {
  buffer_free(&talk->drawn.text);
  talk->drawn = (drawn_tools_t){0};
  calls_draw_tools(state, &talk->drawn);
  buffer_char(&talk->drawn.text, '\0');
}

static void speak(request_t *request, const conversation_t *talk, const ending_t *ending,
                  int choices) {
  size_t at = 0;
  for (int i = 0; i < ending->tokens; i++) {
    char piece[16] = "";
    size_t length = talk->speech.ends[i] - at;
    memcpy(piece, talk->speech.text.data + at, length);
    for (int choice = 0; choice < choices; choice++) {
      fake_choice_token(request, choice, 'a', piece);
    }
    at += length;
    if (i % 3 != 1) fake_deliver();
  }
  if (talk->request.stop != NULL) {
    fake_done_stop(request, -1, 0);
  } else {
    for (int choice = 0; choices > 1 && choice < choices; choice++)
      fake_choice_done(request, choice, ending->finish, "");
    fake_done(request, ending->finish, "");
  }
  fake_deliver();
}

static view_t view_of(int index, const conversation_t *talk, const ending_t *ending, int choices) {
  view_request_t request = talk->request;
  request.num_choices = choices;
  fake_exchange_t *exchange = view_ask(index, &request);
  cr_assert(!exchange->answered, "%s: %s", talk->format->name, exchange->body);
  speak(&server.live->first->inputs[0].request, talk, ending, choices);
  view_t view = view_read(index, &request, exchange, choices - 1);
  fake_exchange_free(exchange);
  return view;
}

/* ---- comparing ---- */

static bool same(const buffer_t *left, const buffer_t *right) {
  return left->length == right->length &&
         (left->length == 0 || memcmp(left->data, right->data, left->length) == 0);
}

static void tell(const conversation_t *talk, const ending_t *ending, int part, const char *name,
                 const buffer_t *first, const buffer_t *other) {
  size_t length = ending->tokens > 0 ? talk->speech.ends[ending->tokens - 1] : 0;
  cr_log_warn("%s/%s/%s, finish %d%s, of: %.*s\n  %s differs: chat <%.*s> %s <%.*s>",
              talk->format->name, talk->reasoning != NULL ? talk->reasoning->name : "-",
              talk->request.choice, (int)ending->finish, talk->request.stop != NULL ? " stop" : "",
              (int)length, length > 0 ? talk->speech.text.data : "", view_part_names[part],
              (int)first->length, bytes_of(first), name, (int)other->length, bytes_of(other));
}

/* A mark of the format in the text of an answer that was cut is a mistake of all eight alike. */
static void compare(const conversation_t *talk, const ending_t *ending, counts_t *counts,
                    int told_max) {
  view_t first = view_of(0, talk, ending, 1);
  bool differs = false;
  bool many = talk->request.stop == NULL && ending->tokens % 4 == 0;
  counts->endings++;
  counts->calls += first.parts[VIEW_CALLS].length > 0;
  counts->cut_calls +=
      first.parts[VIEW_CALLS].length > 0 &&
      memchr(first.parts[VIEW_CALLS].data, '~', first.parts[VIEW_CALLS].length) != NULL;
  for (int i = 1; i < NUM_VIEWS + 2 * many; i++) {
    bool two = i >= NUM_VIEWS; /* the second of two choices, whose usage is that of both */
    int index = two ? i - NUM_VIEWS : i;
    view_t other = view_of(index, talk, ending, two ? 2 : 1);
    counts->views++;
    for (int part = 0; part < VIEW_PARTS - two; part++) {
      bool untold = part == VIEW_FINISH && other.parts[part].length == 0;
      if (untold || same(&first.parts[part], &other.parts[part])) continue;
      differs = true;
      if (counts->parts[part]++ < told_max)
        tell(talk, ending, part, view_names[index], &first.parts[part], &other.parts[part]);
    }
    view_free(&other);
  }
  counts->differing += differs;
  view_free(&first);
}

static void draw_ending(uint64_t *state, conversation_t *talk, ending_t *ending) {
  uint32_t how = below(state, 3);
  *ending = (ending_t){talk->speech.num_tokens, FINISH_STOP};
  if (how == 0) return;
  ending->tokens = (int)below(state, (uint32_t)talk->speech.num_tokens + 1);
  if (how == 1) ending->finish = FINISH_LENGTH;
  if (how == 2) talk->request.stop = "END";
}

static void converse(int count, int cut_everywhere, counts_t *counts, int told_max) {
  uint64_t state = 41;
  conversation_t talk = {.format = tool_formats};
  for (int i = 0; i < count; i++) {
    if (i % PER_TOOLS == 0) draw_tools(&state, &talk);
    ending_t ending;
    choose(&state, &talk);
    server.live->tool_format = talk.format;
    server.live->reasoning_format = talk.reasoning;
    draw_speech(&state, &talk);
    draw_ending(&state, &talk, &ending);
    compare(&talk, &ending, counts, told_max);
    counts->conversations++;
    talk.request.stop = NULL;
    ending.finish = FINISH_LENGTH;
    bool everywhere = i < cut_everywhere;
    for (ending.tokens = 0; everywhere && ending.tokens <= talk.speech.num_tokens; ending.tokens++)
      compare(&talk, &ending, counts, told_max);
    if ((++talk.format)->name == NULL) talk.format = tool_formats;
  }
  buffer_free(&talk.drawn.text);
  buffer_free(&talk.speech.text);
}

Test(views, eight_answers_are_one) {
  const char *asked = getenv("VIEWS");
  int count = asked != NULL ? atoi(asked) : DRAWN;
  counts_t counts = {0};
  converse(count, asked != NULL ? count / 50 : CUT_EVERYWHERE, &counts, 3);
  if (asked != NULL) {
    printf("%d conversations, %d endings (%d with calls, %d cut), %d comparisons, %d differ:",
           counts.conversations, counts.endings, counts.calls, counts.cut_calls, counts.views,
           counts.differing);
    for (int i = 0; i < VIEW_PARTS; i++) printf(" %s %d", view_part_names[i], counts.parts[i]);
    printf("\n");
  }
  ASSERT_EQ(counts.differing, 0);
}

/* ---- what no comparison finds: all eight could be wrong alike ---- */

/* The answer is calls alone, and is cut behind any token: no view has a byte of text, and what it
 * has of the calls is the beginning of what the whole answer has. */
static void cut_calls_of(conversation_t *talk, uint64_t *state) {
  static const char *const choices[] = {"auto", "required", "get_it"};
  talk->speech.text.length = 0;
  say_calls(state, talk, &talk->speech.text);
  cut_tokens(state, &talk->speech);
  for (int i = 0; i < 3 * (talk->speech.num_tokens + 1); i++) {
    ending_t ending = {i / 3, FINISH_LENGTH};
    talk->request.choice = choices[i % 3];
    int index = (int)below(state, NUM_VIEWS);
    view_t view = view_of(index, talk, &ending, 1);
    const buffer_t *text = &view.parts[VIEW_TEXT], *calls = &view.parts[VIEW_CALLS];
    size_t length = ending.tokens > 0 ? talk->speech.ends[ending.tokens - 1] : 0;
    for (size_t at = 0; at < text->length; at++) {
      cr_assert(json_is_blank(text->data[at]), "%s, %s: text <%.*s> of %.*s", talk->format->name,
                view_names[index], (int)text->length, bytes_of(text), (int)length,
                talk->speech.text.data);
    }
    bool named = calls->length == 0 || memcmp(calls->data, "get_it(", 7) == 0;
    cr_assert(named, "%s: %.*s", talk->format->name, (int)calls->length, bytes_of(calls));
    view_free(&view);
  }
}

Test(views, a_call_that_is_cut_is_never_text) {
  uint64_t state = 14;
  conversation_t talk = {.format = tool_formats};
  for (; talk.format->name != NULL; talk.format++) {
    draw_tools(&state, &talk);
    talk.request = (view_request_t){.tools = talk.drawn.text.data, .parallel = true};
    talk.reasoning = NULL;
    if (talk.format->payload == PAYLOAD_CHANNELS) talk.reasoning = reasoning_format_find("harmony");
    server.live->tool_format = talk.format;
    server.live->reasoning_format = talk.reasoning;
    cut_calls_of(&talk, &state);
  }
  buffer_free(&talk.drawn.text);
  buffer_free(&talk.speech.text);
}

typedef struct cut_text {
  const char *tools, *reasoning, *said; /* formats; what the model said */
  const char *thoughts, *text;          /* what a client sees of it; no calls */
} cut_text_t;

static void check_cut_text(const cut_text_t *cut) {
  conversation_t talk = {.format = tool_format_find(cut->tools)};
  uint64_t state = 3;
  talk.request = (view_request_t){.choice = "auto", .parallel = true};
  talk.request.tools = "[{\"type\":\"function\",\"function\":{\"name\":\"get_it\","
                       "\"parameters\":{\"type\":\"object\"}}}]";
  if (cut->reasoning != NULL) talk.reasoning = reasoning_format_find(cut->reasoning);
  server.live->tool_format = talk.format;
  server.live->reasoning_format = talk.reasoning;
  buffer_text(&talk.speech.text, cut->said);
  cut_tokens(&state, &talk.speech);
  for (int index = 0; index < NUM_VIEWS; index++) {
    ending_t ending = {talk.speech.num_tokens, FINISH_LENGTH};
    view_t view = view_of(index, &talk, &ending, 1);
    buffer_t *thoughts = &view.parts[VIEW_REASONING], *text = &view.parts[VIEW_TEXT];
    buffer_char(thoughts, '\0');
    buffer_char(text, '\0');
    ASSERT_STR_EQ_FOR(thoughts->data, cut->thoughts, "%s of %s", view_names[index], cut->said);
    ASSERT_STR_EQ_FOR(text->data, cut->text, "%s of %s", view_names[index], cut->said);
    ASSERT_EQ_FOR(view.parts[VIEW_CALLS].length, 0, "%s", cut->said);
    view_free(&view);
  }
  buffer_free(&talk.speech.text);
}

/* Thoughts and text that are cut inside a mark, whole or not, or beside one. */
Test(views, a_piece_of_a_mark_is_never_text) {
  static const cut_text_t cuts[] = {
      {"hermes", "think", "<think>so be</thi", "so be", ""},
      {"hermes", "think", "<thi", "", ""},
      {"hermes", "think", "<think>so</think>\n\nLet me <tool", "so", "Let me"},
      {"hermes", "think", "<think>so</think>\n\nLet me <tools>", "so", "Let me <tools>"},
      {"hermes", "think", "<think>so <tool_call>", "so", ""},
      {"hermes", NULL, "1 < 2 ", "", "1 < 2 "},
      {"hermes", NULL, "a <tool_call>no {", "", "a <tool_call>no {"},
      {"json", NULL, "{\"answer\": [4, 2", "", "{\"answer\": [4, 2"},
      {"json", NULL, "{\"name\": \"Bo", "", "{\"name\": \"Bo"},
      {"json", NULL, "{\"na", "", ""},
      {"pythonic", NULL, "[maybe(1", "", "[maybe(1"},
      {"pythonic", NULL, "[get_", "", ""},
      {"mistral", "mistral", "[THINK]a[/THI", "a", ""},
      {"kimi_k3", "kimi_k3", "<|open|>think<|sep|>a<|close|>thi", "a", ""},
      {"kimi_k3", "kimi_k3", "<|open|>response<|sep|>a <|open|", "", "a"},
      {"kimi_k3", "kimi_k3", "<|open|>response<|sep|>a<|close|>respo", "", "a"},
      {"mistral", NULL, "[TOOL_CA", "", ""},
      {"minimax_m3", "minimax_m3", "<mm:think>a</mm:th", "a", ""},
      {"minimax_m3", NULL, "a ]<]minimax[>[<tool_ca", "", "a"},
      {"minimax_m3", NULL, "]<]mini", "", ""},
      {"mistral", NULL, "[1, 2, 3", "", "[1, 2, 3"},
      {"harmony", "harmony", "<|chan", "", ""},
      {"harmony", "harmony", "<|channel|>analysis<|message|>hm<|en", "hm", ""},
      {"harmony", "harmony", "<|channel|>final<|message|>x <|ret", "", "x "},
  };
  for (size_t i = 0; i < ARRAY_LEN(cuts); i++) check_cut_text(&cuts[i]);
}
