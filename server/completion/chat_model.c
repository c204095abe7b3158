/* chat_model.c: the chat templates of the model, and how it writes tool calls and reasoning.
 *
 * Main thread, at start or before the first chat; constant afterwards, so that the pool's threads
 * may read it.
 */
#include "server/completion/chat.h"

#include "engine/base/util.h"
#include "server/observe/log.h"
#include "server/parser/json_scan.h"
#include "server/parser/trial.h"

#include <string.h>

int chat_model_load(completions_t *live, const config_t *config, inferd_error_t *error) {
  const char *path = config->chat_template[0] != '\0' ? config->chat_template : NULL;
  if (config->model[0] == '\0') return 0; /* the engine reports it */
  int code = chat_templates_load(config->model, path, &live->templates, error);
  if (code != 0 && path == NULL && code != ERR_NO_MEMORY) {
    /* The engine needs the same files and reports the error to the user. */
    log_line(LOG_WARN, "load", "no chat: %s", error->message);
    return 0;
  }
  if (code == 0 && chat_templates_problem(live->templates) != NULL) {
    log_line(LOG_WARN, "load", "no chat: %s", chat_templates_problem(live->templates));
  }
  if (code == 0) chat_try_shapes(live);
  if (code == 0 && config->enable_tokenizer_info_endpoint) {
    code = chat_templates_describe(live->templates, config->model, &live->tokenizer_info, error);
  }
  return code;
}

void chat_model_free(completions_t *live) {
  chat_templates_free(live->templates);
  live->templates = NULL;
  buffer_free(&live->tokenizer_info);
}

/* ---- trial conversations ---- */

static const char trial_arguments[] =
    "{\"s\": \"say \\\"h\xc3\xa9\\\"\", \"n\": 3, \"o\": {\"k\": [1, 2], \"t\": \"x\"}}";
static const trial_call_t trial_calls[] = {{"zeta_one", trial_arguments},
                                           {"zeta_two", "{\"n\": 4}"}};
static const char trial_reasoning[] = "zeta thinks";

/* What stands behind the call in a trial. */
typedef enum trial_end { END_HERE, END_TOOL_AND_USER } trial_end_t;

typedef struct format_trial {
  int num_calls;     /* 0: an answer in their place */
  bool numbered_ids; /* functions.NAME:0 instead of nine letters */
  bool thinks;       /* the answer has reasoning */
  bool prompt;       /* the question alone, and the generation prompt */
  trial_end_t end;
} format_trial_t;

static void put_tools(buffer_t *body) {
  buffer_text(body, "\"tools\":[");
  for (size_t i = 0; i < ARRAY_LEN(trial_calls); i++) {
    if (i > 0) buffer_char(body, ',');
    buffer_text(body, "{\"type\":\"function\",\"function\":{\"name\":\"");
    buffer_text(body, trial_calls[i].name);
    buffer_text(body, "\",\"description\":\"b\",\"parameters\":{\"type\":\"object\","
                      "\"properties\":{\"s\":{\"type\":\"string\",\"description\":\"d\"},"
                      "\"n\":{\"type\":\"integer\",\"description\":\"d\"},"
                      "\"o\":{\"type\":\"object\",\"description\":\"d\",\"properties\":{"
                      "\"k\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}},"
                      "\"required\":[\"n\"]}}}");
  }
  buffer_char(body, ']');
}

static void put_id(buffer_t *body, const format_trial_t *trial, int index) {
  static const char *const letters[] = {"abcdefghi", "abcdefghj"};
  buffer_char(body, '"');
  if (trial->numbered_ids) {
    buffer_text(body, "functions.");
    buffer_text(body, trial_calls[index].name);
    buffer_char(body, ':');
    buffer_int(body, index);
  } else {
    buffer_text(body, letters[index]);
  }
  buffer_char(body, '"');
}

static void put_answer(buffer_t *body, const format_trial_t *trial) {
  buffer_text(body, ",{\"role\":\"assistant\",\"content\":");
  buffer_text(body, trial->num_calls > 0 ? "\"\",\"tool_calls\":[" : "\"0\"");
  for (int i = 0; i < trial->num_calls; i++) {
    buffer_text(body, i > 0 ? ",{\"id\":" : "{\"id\":");
    put_id(body, trial, i);
    buffer_text(body, ",\"type\":\"function\",\"function\":{\"name\":\"");
    buffer_text(body, trial_calls[i].name);
    buffer_text(body, "\",\"arguments\":");
    buffer_quote(body, trial_calls[i].arguments, strlen(trial_calls[i].arguments));
    buffer_text(body, "}}");
  }
  if (trial->num_calls > 0) buffer_char(body, ']');
  if (trial->thinks) {
    buffer_text(body, ",\"reasoning_content\":\"");
    buffer_text(body, trial_reasoning);
    buffer_char(body, '"');
  }
  buffer_char(body, '}');
  if (trial->end == END_HERE) return;
  for (int i = 0; i < trial->num_calls; i++) {
    buffer_text(body, ",{\"role\":\"tool\",\"content\":\"7\",\"name\":\"");
    buffer_text(body, trial_calls[i].name);
    buffer_text(body, "\",\"tool_call_id\":");
    put_id(body, trial, i);
    buffer_char(body, '}');
  }
  if (trial->num_calls > 0) buffer_text(body, ",{\"role\":\"assistant\",\"content\":\"8\"}");
  buffer_text(body, ",{\"role\":\"user\",\"content\":\"c\"}");
}

/* Renders a trial with the model's template. Returns false if the template refuses it. */
static bool render_trial(const completions_t *live, const format_trial_t *trial, bool has_tools,
                         jinja_output_t *out) {
  buffer_t body = {0};
  json_doc_t *doc = NULL;
  buffer_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}");
  if (!trial->prompt) put_answer(&body, trial);
  buffer_text(&body, "],\"kwargs\":{\"thinking\":true},");
  put_tools(&body);
  buffer_char(&body, '}');
  bool fine =
      !body.failed && json_parse(body.data, body.length, &json_limits_request, &doc, NULL) == 0;
  if (fine) {
    const json_t *root = json_root(doc);
    chat_input_t input = {.messages = json_get(root, "messages"),
                          .tools = has_tools ? json_get(root, "tools") : NULL,
                          .kwargs = has_tools ? NULL : json_get(root, "kwargs"),
                          .add_generation_prompt = trial->prompt};
    fine = chat_template_render(live->templates, &input, out, NULL) == 0;
  }
  json_free(doc);
  buffer_free(&body);
  return fine;
}

/* ---- how calls are written ---- */

/* Leaves in *text what the first text has and the second has not, between their equal ends. */
static void difference(const jinja_output_t *with, const jinja_output_t *without, span_t *text) {
  size_t begin = 0, end = 0, most = MIN(with->length, without->length);
  while (begin < most && with->text[begin] == without->text[begin]) begin++;
  while (end < most - begin &&
         with->text[with->length - 1 - end] == without->text[without->length - 1 - end]) {
    end++;
  }
  *text = (span_t){with->text + begin, with->length - begin - end};
}

/* The texts of calls that the template writes. */
typedef struct trial_texts {
  jinja_output_t out[8];
  span_t text[8];
  format_trial_t trial[8];
  int count;
} trial_texts_t;

static bool shows_calls(const span_t *text, int num_calls) {
  for (int i = 0; i < num_calls; i++) {
    const char *name = trial_calls[i].name;
    if (memmem(text->text, text->length, name, strlen(name)) == NULL) return false;
  }
  return true;
}

/* Collects the texts of all trials that the template takes and in which it writes the calls. */
static void write_texts(const completions_t *live, trial_texts_t *texts) {
  bool shown[4] = {false}; /* by kind of ids and number of calls */
  for (int i = 0; i < 8; i++) {
    format_trial_t with = {.num_calls = 1 + (i & 1),
                           .end = (i & 2) != 0 ? END_TOOL_AND_USER : END_HERE,
                           .numbered_ids = (i & 4) != 0};
    format_trial_t without = {.end = with.end};
    int kind = (i & 1) | (i & 4) >> 1;
    if (with.end != END_HERE && !shown[kind]) continue;
    jinja_output_t other = {0}, *out = &texts->out[texts->count];
    span_t *text = &texts->text[texts->count];
    if (!render_trial(live, &with, true, out)) continue;
    bool fine = render_trial(live, &without, true, &other);
    if (fine) difference(out, &other, text);
    fine = fine && shows_calls(text, with.num_calls);
    jinja_output_free(&other);
    if (!fine) jinja_output_free(out);
    if (!fine) continue;
    shown[kind] = true;
    texts->trial[texts->count++] = with;
  }
}

static void free_texts(trial_texts_t *texts) {
  for (int i = 0; i < texts->count; i++) jinja_output_free(&texts->out[i]);
}

/* Reads one text. It may end in a part of the mark that ends the message: from the last `<` or `[`
 * on it may be left out. */
static bool reads_text(output_options_t *options, const span_t *text, const format_trial_t *trial) {
  bool to_the_end = trial->end == END_HERE;
  for (int thinks = 0; thinks < 2; thinks++) {
    options->in_reasoning = thinks == 1;
    if (thinks == 1 && options->reasoning == NULL) continue;
    if (trial_reads(options, text->text, text->length, trial_calls, trial->num_calls, to_the_end))
      return true;
    size_t cut = text->length;
    while (cut > 0 && text->text[cut - 1] != '<' && text->text[cut - 1] != '[') cut--;
    if (cut > 1 &&
        trial_reads(options, text->text, cut - 1, trial_calls, trial->num_calls, to_the_end))
      return true;
  }
  return false;
}

/* A row fits if it reads all texts with one kind of ids. */
static bool reads_back(const completions_t *live, const tool_format_t *format,
                       const json_t *functions, const trial_texts_t *texts) {
  output_options_t options = {
      .tools = format, .reasoning = live->reasoning_format, .functions = functions, .whole = true};
  if (format->payload == PAYLOAD_CHANNELS) options.reasoning = reasoning_format_find("harmony");
  bool channels = options.reasoning != NULL && options.reasoning->answer != NULL;
  if (channels && format->payload != PAYLOAD_CHANNELS) options.reasoning = NULL;
  for (int ids = 0; ids < 2; ids++) {
    int fits = 0, others = 0;
    for (int i = 0; i < texts->count; i++) {
      if (texts->trial[i].numbered_ids != (ids == 1)) continue;
      if (reads_text(&options, &texts->text[i], &texts->trial[i])) {
        fits++;
      } else {
        others++;
      }
    }
    if (fits > 0 && others == 0) return true;
  }
  return false;
}

static bool has_words(const span_t *text, const char *words) {
  size_t length = strlen(words);
  while (length > 0 && json_is_blank(words[length - 1])) length--;
  return memmem(text->text, text->length, words, length) != NULL;
}

/* Finds the row that reads the texts, best one that would write them in these words. */
static const tool_format_t *format_of_texts(const completions_t *live, const json_t *functions,
                                            const trial_texts_t *texts) {
  const tool_format_t *first = NULL;
  for (const tool_format_t *format = tool_formats; format->name != NULL; format++) {
    if (!reads_back(live, format, functions, texts)) continue;
    if (first == NULL) first = format;
    for (int i = 0; i < texts->count; i++) {
      if (has_words(&texts->text[i], format->begin_name) &&
          has_words(&texts->text[i], format->end_name))
        return format;
    }
  }
  return first;
}

static const tool_format_t *format_by_signs(const completions_t *live) {
  format_trial_t prompt = {.prompt = true};
  jinja_output_t out = {0};
  if (!render_trial(live, &prompt, true, &out)) return NULL;
  const tool_format_t *format = trial_format_by_signs(out.text, out.length);
  jinja_output_free(&out);
  return format;
}

/* Finds the format by reading back calls that the template writes; if it writes none, by the words
 * that explain the format to the model. */
static const tool_format_t *format_of_template(const completions_t *live) {
  trial_texts_t texts = {.count = 0};
  buffer_t body = {0};
  json_doc_t *doc = NULL;
  buffer_char(&body, '{');
  put_tools(&body);
  buffer_char(&body, '}');
  const tool_format_t *format = NULL;
  if (!body.failed && json_parse(body.data, body.length, &json_limits_request, &doc, NULL) == 0) {
    write_texts(live, &texts);
    format = texts.count > 0 ? format_of_texts(live, json_get(json_root(doc), "tools"), &texts)
                             : format_by_signs(live);
    free_texts(&texts);
  }
  json_free(doc);
  buffer_free(&body);
  return format;
}

static const tool_format_t *find_tool_format(const completions_t *live, const char *option) {
  if (strcmp(option, "auto") != 0) return tool_format_find(option); /* NULL for "none" */
  if (!chat_takes_tools(live)) return NULL;
  const tool_format_t *format = format_of_template(live);
  if (format == NULL) {
    log_line(LOG_WARN, "ready",
             "no tool calls: the chat template shows no format of calls that is known; name one "
             "with --tool-call-parser");
  }
  return format;
}

/* ---- how reasoning is marked ---- */

static bool ends_with(const jinja_output_t *out, const char *mark) {
  size_t length = out->length, bytes = mark != NULL ? strlen(mark) : 0;
  while (length > 0 && json_is_blank(out->text[length - 1])) length--;
  while (bytes > 0 && json_is_blank(mark[bytes - 1])) bytes--;
  return bytes > 0 && length >= bytes && memcmp(out->text + length - bytes, mark, bytes) == 0;
}

/* Finds the marks around the reasoning in a rendered text. */
static bool marks_reasoning(const jinja_output_t *out, const char *open, const char *close) {
  const char *at = memmem(out->text, out->length, trial_reasoning, sizeof trial_reasoning - 1);
  if (at == NULL || open == NULL || close == NULL) return false;
  const char *behind = at + sizeof trial_reasoning - 1, *end = out->text + out->length;
  while (at > out->text && json_is_blank(at[-1])) at--;
  while (behind < end && json_is_blank(*behind)) behind++;
  size_t before = strlen(open), after = strlen(close);
  while (before > 0 && json_is_blank(open[before - 1])) before--;
  return (size_t)(at - out->text) >= before && memcmp(at - before, open, before) == 0 &&
         (size_t)(end - behind) >= after && memcmp(behind, close, after) == 0;
}

static bool has_tokens(const tokenizer_t *tokenizer, const char *const *marks) {
  for (int i = 0; i < 2; i++) {
    if (marks[i] == NULL || tokenizer_id(tokenizer, marks[i], strlen(marks[i])) < 0) return false;
  }
  return true;
}

/* Finds the row by the end of the generation prompt, by the marks around the reasoning of an
 * earlier answer, by marks in a prompt that asks for reasoning, and by the tokens of the
 * vocabulary. */
static const reasoning_format_t *
find_reasoning_format(const completions_t *live, const char *option, const tokenizer_t *tokenizer) {
  if (strcmp(option, "auto") != 0) return reasoning_format_find(option);
  format_trial_t prompt = {.prompt = true}, answer = {.thinks = true};
  jinja_output_t asked = {0}, answered = {0};
  bool has_prompt = render_trial(live, &prompt, false, &asked);
  bool has_answer = render_trial(live, &answer, false, &answered);
  const reasoning_format_t *found = NULL;
  for (int round = 0; round < 4 && found == NULL; round++) {
    for (const reasoning_format_t *f = reasoning_formats; f->name != NULL && found == NULL; f++) {
      bool fits = false;
      if (round == 0 && has_prompt) {
        fits = ends_with(&asked, f->open) || ends_with(&asked, f->other_open) ||
               ends_with(&asked, f->close);
      } else if (round == 1 && has_answer) {
        fits = marks_reasoning(&answered, f->open, f->close) ||
               marks_reasoning(&answered, f->other_open, f->other_close);
      } else if (round == 2 && has_prompt) {
        bool words = f->marks[0] == NULL; /* marks that are plain text stand in no vocabulary */
        fits = words && memmem(asked.text, asked.length, f->open, strlen(f->open)) != NULL;
      } else if (round == 3) {
        fits = has_tokens(tokenizer, f->marks);
      }
      if (fits) found = f;
    }
  }
  jinja_output_free(&asked);
  jinja_output_free(&answered);
  return found;
}

void chat_model_ready(completions_t *live, const config_t *config, const tokenizer_t *tokenizer) {
  if (live->chat_is_ready) return;
  live->chat_is_ready = true;
  if (live->templates == NULL || !chat_templates_any(live->templates)) return;
  live->reasoning_format = find_reasoning_format(live, config->reasoning_parser, tokenizer);
  live->tool_format = find_tool_format(live, config->tool_call_parser);
  if (live->tool_format != NULL && live->tool_format->names_are_ids) {
    live->rules.ids = CALL_IDS_NUMBERED;
  }
  if (live->tool_format != NULL && live->tool_format->payload == PAYLOAD_CHANNELS) {
    live->reasoning_format = reasoning_format_find("harmony");
  }
  log_line(LOG_INFO, "ready", "chat: tool calls %s, reasoning %s",
           live->tool_format != NULL ? live->tool_format->name : "none",
           live->reasoning_format != NULL ? live->reasoning_format->name : "none");
}
