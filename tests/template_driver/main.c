/* main.c: renders templates that arrive as JSON lines, for comparison with Jinja2.
 *
 * Each line of stdin is {"template": TEXT, "context": OBJECT, "now": SECONDS}; each line of stdout
 * {"text": TEXT, "request": [begin, end, ...]} or {"stage": "compile" or "render", "error": TEXT}.
 * With "dir" (a model directory) and "chat" (the fields of a request) instead, the whole path of a
 * server is taken. A template that equals the one before is not compiled again. With `--time N`
 * every render is repeated N times and "ns" holds the median. Runs in
 * tests/parity/parity_templates.py, one thread.
 */
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/template/chat/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES_MAX = 64, REPEATS_MAX = 1000 };

typedef struct driver {
  char *source; /* of `jinja` */
  size_t source_length;
  jinja_t *jinja;
  int repeats;
} driver_t;

static void print_string(const char *key, const char *text, size_t length) {
  size_t needed = json_escape(NULL, 0, text, length);
  char *out = malloc(needed + 1);
  if (out == NULL) exit(1);
  (void)json_escape(out, needed, text, length);
  printf("\"%s\": \"%.*s\"", key, (int)needed, out);
  free(out);
}

static void print_error(const char *stage, const inferd_error_t *error) {
  printf("{\"stage\": \"%s\", ", stage);
  print_string("error", error->message, strlen(error->message));
  puts("}");
}

static bool compile(driver_t *d, const json_t *template, inferd_error_t *error) {
  if (d->jinja != NULL && d->source_length == template->length &&
      memcmp(d->source, template->text, template->length) == 0)
    return true;
  jinja_free(d->jinja);
  free(d->source);
  d->jinja = NULL;
  d->source_length = template->length;
  d->source = malloc(template->length + 1);
  if (d->source == NULL) exit(1);
  memcpy(d->source, template->text, template->length);
  return jinja_compile("template", d->source, d->source_length, &d->jinja, error) == 0;
}

static int by_size(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static uint64_t median_ns(const driver_t *d, const jinja_input_t *input) {
  static uint64_t times[REPEATS_MAX];
  for (int i = 0; i < d->repeats; i++) {
    jinja_output_t out;
    uint64_t begin = clock_now_ns();
    if (jinja_render(d->jinja, input, &out, NULL) == 0) jinja_output_free(&out);
    times[i] = clock_now_ns() - begin;
  }
  qsort(times, (size_t)d->repeats, sizeof times[0], by_size);
  return times[d->repeats / 2];
}

static void render(driver_t *d, const jinja_input_t *input) {
  jinja_output_t out;
  inferd_error_t error = {0};
  if (jinja_render(d->jinja, input, &out, &error) != 0) {
    print_error("render", &error);
    return;
  }
  putchar('{');
  print_string("text", out.text, out.length);
  printf(", \"request\": [");
  for (size_t i = 0; i < out.num_request; i++)
    printf("%s%zu, %zu", i > 0 ? ", " : "", out.request[i].begin, out.request[i].end);
  putchar(']');
  if (d->repeats > 0) printf(", \"ns\": %llu", (unsigned long long)median_ns(d, input));
  puts("}");
  jinja_output_free(&out);
}

static void print_output(jinja_output_t *out) {
  putchar('{');
  print_string("text", out->text, out->length);
  puts("}");
  jinja_output_free(out);
}

/* The chat path: load the directory, shape the messages, render. */
static void run_chat(const json_t *dir, const json_t *chat) {
  chat_templates_t *templates;
  jinja_output_t out;
  inferd_error_t error = {0};
  char *path = strndup(dir->text, dir->length);
  if (path == NULL) exit(1);
  chat_input_t input = {.messages = json_get(chat, "messages"),
                        .kwargs = json_get(chat, "chat_template_kwargs")};
  const json_t *tools = json_get(chat, "tools"), *documents = json_get(chat, "documents");
  if (tools != NULL && tools->type == JSON_ARRAY) input.tools = tools;
  if (documents != NULL && documents->type == JSON_ARRAY) input.documents = documents;
  (void)json_bool(json_get(chat, "add_generation_prompt"), &input.add_generation_prompt);
  (void)json_bool(json_get(chat, "continue_final_message"), &input.continue_final_message);
  (void)json_int64(json_get(chat, "now"), &input.now_seconds);
  if (chat_templates_load(path, NULL, &templates, &error) != 0) {
    print_error("load", &error);
  } else {
    if (chat_template_render(templates, &input, &out, &error) != 0)
      print_error("render", &error);
    else
      print_output(&out);
    chat_templates_free(templates);
  }
  free(path);
}

static void run_line(driver_t *d, const json_t *root) {
  const json_t *dir = json_get(root, "dir"), *chat = json_get(root, "chat");
  if (dir != NULL && dir->type == JSON_STRING && chat != NULL) {
    run_chat(dir, chat);
    return;
  }
  jinja_variable_t variables[VARIABLES_MAX];
  char *names[VARIABLES_MAX];
  inferd_error_t error = {0};
  const json_t *template = json_get(root, "template"), *context = json_get(root, "context");
  jinja_input_t input = {.variables = variables, .limits = jinja_limits_default};
  if (template == NULL || template->type != JSON_STRING || !compile(d, template, &error)) {
    print_error("compile", &error);
    return;
  }
  if (json_get(root, "now") != NULL) (void)json_int64(json_get(root, "now"), &input.now_seconds);
  if (context != NULL) JSON_EACH(v, context) {
      if (input.num_variables == VARIABLES_MAX) break;
      char *name = strndup(v->key, v->key_length);
      if (name == NULL) exit(1);
      names[input.num_variables] = name;
      variables[input.num_variables++] = (jinja_variable_t){.name = name, .json = v};
    }
  render(d, &input);
  for (size_t i = 0; i < input.num_variables; i++) free(names[i]);
}

int main(int argc, char **argv) {
  static const json_limits_t limits = {128, 64000000, 65536, false, true, false};
  driver_t d = {0};
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  if (argc > 2 && strcmp(argv[1], "--time") == 0) d.repeats = (int)strtol(argv[2], NULL, 10);
  if (d.repeats < 0 || d.repeats > REPEATS_MAX) return 64;
  while ((length = getline(&line, &capacity, stdin)) > 0) {
    json_doc_t *doc;
    inferd_error_t error = {0};
    if (json_parse(line, (size_t)length, &limits, &doc, &error) != 0) {
      print_error("input", &error);
    } else {
      run_line(&d, json_root(doc));
      json_free(doc);
    }
    fflush(stdout);
  }
  jinja_free(d.jinja);
  free(d.source);
  free(line);
  return 0;
}
