/* test_chat.c: finding a model's templates, shaping messages, continuing the last one. */
#include "engine/template/chat/chat_template.h"
#include "tests/engine/template/helpers.h"
#include "tests/expect.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"chat_template.jinja",
                                    "chat_template.json",
                                    "chat_templates/tool_use.jinja",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "other.jinja",
                                    "additional_chat_templates/tool_use.jinja",
                                    "additional_chat_templates/default.jinja",
                                    "additional_chat_templates/rag.jinja"};

typedef struct place {
  char dir[64];
} place_t;

static place_t place_new(void) {
  place_t p = {"/tmp/inferd-template-XXXXXX"};
  cr_assert_not_null(mkdtemp(p.dir));
  return p;
}

static void put(const place_t *p, const char *name, const char *text) {
  char path[256];
  if (strchr(name, '/') != NULL) {
    snprintf(path, sizeof path, "%s/%.*s", p->dir, (int)(strchr(name, '/') - name), name);
    (void)mkdir(path, 0700);
  }
  snprintf(path, sizeof path, "%s/%s", p->dir, name);
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file);
  ASSERT_EQ(fwrite(text, 1, strlen(text), file), strlen(text));
  fclose(file);
}

static void place_free(const place_t *p) {
  char path[256];
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    snprintf(path, sizeof path, "%s/%s", p->dir, files[i]);
    (void)unlink(path);
  }
  snprintf(path, sizeof path, "%s/chat_templates", p->dir);
  (void)rmdir(path);
  snprintf(path, sizeof path, "%s/additional_chat_templates", p->dir);
  (void)rmdir(path);
  (void)rmdir(p->dir);
}

static chat_templates_t *load(const place_t *p) {
  chat_templates_t *t;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(chat_templates_load(p->dir, NULL, &t, &error), 0, "%s", error.message);
  return t;
}

/* Renders the request {messages, tools, kwargs, continue, prompt}. */
static int render(const chat_templates_t *t, const char *request, jinja_output_t *out,
                  inferd_error_t *error) {
  json_doc_t *doc;
  ASSERT_EQ_FOR(json_parse(request, strlen(request), &json_limits_request, &doc, error), 0, "%s",
                error->message);
  const json_t *root = json_root(doc);
  chat_input_t in = {.messages = json_get(root, "messages"),
                     .tools = json_get(root, "tools"),
                     .kwargs = json_get(root, "kwargs"),
                     .effort = json_get(root, "effort"),
                     .picture = json_get(root, "picture") != NULL ? "<see>" : NULL,
                     .continue_final_message = json_get(root, "continue") != NULL,
                     .add_generation_prompt = json_get(root, "prompt") != NULL};
  int rc = chat_template_render(t, &in, out, error);
  json_free(doc);
  return rc;
}

static void expect_chat(const chat_templates_t *t, const char *request, const char *text) {
  jinja_output_t out;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(render(t, request, &out, &error), 0, "%s: %s", request, error.message);
  ASSERT_STR_EQ_FOR(out.text, text, "%s", request);
  jinja_output_free(&out);
}

static void expect_refusal(const chat_templates_t *t, const char *request, int code,
                           const char *param, const char *part) {
  jinja_output_t out;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(render(t, request, &out, &error), code, "%s", request);
  ASSERT_STR_EQ(error.param, param);
  cr_assert_not_null(strstr(error.message, part), "%s", error.message);
}

static const char one[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";

Test(template_chat, sources_in_order_of_preference) {
  place_t p = place_new();
  chat_templates_t *t = load(&p);
  cr_assert(!chat_templates_any(t));
  cr_assert_null(chat_templates_problem(t));
  expect_refusal(t, one, ERR_BAD_REQUEST, "messages", "no chat template");
  chat_templates_free(t);
  put(&p, "tokenizer_config.json",
      "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": null, \"chat_template\": "
      "[{\"name\": \"tool_use\", \"template\": \"T{{ tools|length }}\"}, "
      "{\"name\": \"default\", \"template\": \"D{{ bos_token }}{{ eos_token }}\"}]}");
  put(&p, "special_tokens_map.json", "{\"eos_token\": \"</s>\", \"bos_token\": \"no\"}");
  t = load(&p);
  expect_chat(t, one, "D<s></s>");
  expect_chat(t, "{\"messages\": [], \"tools\": [{}, {}]}", "T2");
  expect_chat(t, "{\"messages\": [], \"tools\": []}", "D<s></s>");
  chat_templates_free(t);
  put(&p, "chat_template.json", "{\"chat_template\": \"J\"}");
  t = load(&p);
  expect_chat(t, one, "J");
  chat_templates_free(t);
  put(&p, "chat_template.jinja", "F{{ messages[0].content }}\n");
  t = load(&p);
  expect_chat(t, one, "Fhi");
  chat_templates_free(t);
  place_free(&p);
}

/* As transformers saves several templates: the default one, and the others in a folder. */
Test(template_chat, further_templates_stand_in_a_folder) {
  static const char tools[] = "{\"messages\": [], \"tools\": [{}, {}]}";
  place_t p = place_new();
  put(&p, "additional_chat_templates/tool_use.jinja", "U{{ tools|length }}"); /* alone */
  chat_templates_t *alone = load(&p);
  cr_assert(chat_templates_any(alone));
  expect_chat(alone, tools, "U2");
  expect_refusal(alone, one, ERR_BAD_REQUEST, "tools", "(tool_use) and no default one");
  chat_templates_free(alone);
  put(&p, "additional_chat_templates/default.jinja", "A");
  put(&p, "additional_chat_templates/rag.jinja", "{% for %}"); /* not ours to compile */
  chat_templates_t *t = load(&p);
  expect_chat(t, one, "A");
  chat_templates_free(t);
  put(&p, "additional_chat_templates/tool_use.jinja", "T{{ tools|length }}");
  put(&p, "chat_template.jinja", "F{{ messages[0].content }}");
  t = load(&p);
  expect_chat(t, one, "Fhi");
  expect_chat(t, tools, "T2");
  expect_chat(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": []}", "Fx");
  chat_templates_free(t);
  put(&p, "chat_templates/tool_use.jinja", "C{{ tools|length }}"); /* the older folder first */
  t = load(&p);
  expect_chat(t, tools, "C2");
  chat_templates_free(t);
  put(&p, "chat_templates/tool_use.jinja", "{% for %}");
  t = load(&p);
  cr_assert_not_null(chat_templates_problem(t));
  chat_templates_free(t);
  place_free(&p);
}

Test(template_chat, a_path_replaces_all) {
  place_t p = place_new();
  char path[256];
  chat_templates_t *t;
  inferd_error_t error = {0};
  put(&p, "chat_template.jinja", "F");
  put(&p, "other.jinja", "O{{ bos_token }}");
  put(&p, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
  snprintf(path, sizeof path, "%s/other.jinja", p.dir);
  ASSERT_EQ_FOR(chat_templates_load(p.dir, path, &t, &error), 0, "%s", error.message);
  expect_chat(t, one, "O<s>");
  chat_templates_free(t);
  put(&p, "other.jinja", "\n{% for %}");
  ASSERT_EQ(chat_templates_load(p.dir, path, &t, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "other.jinja, line 2: "), "%s", error.message);
  ASSERT_EQ(chat_templates_load(p.dir, "/nowhere/x.jinja", &t, &error), ERR_CONFIGURATION);
  place_free(&p);
}

Test(template_chat, a_template_that_does_not_compile_refuses_chat) {
  place_t p = place_new();
  put(&p, "chat_template.jinja", "a\n{{ x|urlize }}");
  put(&p, "tokenizer_config.json", "{\"chat_template\": \"never this one\"}");
  chat_templates_t *t = load(&p);
  cr_assert(!chat_templates_any(t));
  ASSERT_STR_EQ(chat_templates_problem(t),
                "chat_template.jinja, line 2: the filter `urlize` is not supported");
  expect_refusal(t, one, ERR_BAD_REQUEST, "messages", "cannot be used: chat_template.jinja");
  chat_templates_free(t);
  put(&p, "tokenizer_config.json", "{\"chat_template\": ");
  inferd_error_t error = {0};
  ASSERT_EQ(chat_templates_load(p.dir, NULL, &t, &error), ERR_MODEL_MALFORMED);
  place_free(&p);
}

static chat_templates_t *with_template(place_t *p, const char *source) {
  *p = place_new();
  put(p, "chat_template.jinja", source);
  return load(p);
}

Test(template_chat, shaping) {
  place_t p;
  chat_templates_t *t = with_template(&p, "{{ messages|tojson }}");
  expect_chat(t, "{\"messages\": [{\"role\": \"developer\", \"content\": \"d\"}]}",
              "[{\"role\": \"system\", \"content\": \"d\"}]");
  expect_chat(t,
              "{\"messages\": [{\"role\": \"a\", \"tool_calls\": [], \"content\": "
              "[{\"type\": \"text\", \"text\": \"x\"}, {\"type\": \"text\", \"text\": \"y\"}]}]}",
              "[{\"role\": \"a\", \"content\": \"x\\ny\"}]");
  expect_chat(t,
              "{\"messages\": [{\"tool_calls\": [{\"function\": {\"arguments\": \"{\\\"a\\\": "
              "1.0}\"}}, {\"function\": {\"arguments\": \"\"}}, {\"function\": {\"arguments\": "
              "null}}, {\"function\": {\"name\": \"f\"}}]}]}",
              "[{\"tool_calls\": [{\"function\": {\"arguments\": {\"a\": 1.0}}}, {\"function\": "
              "{\"arguments\": {}}}, {\"function\": {\"arguments\": {}}}, {\"function\": "
              "{\"name\": \"f\"}}]}]");
  expect_chat(t, "{\"messages\": [{\"role\": \"a\", \"reasoning\": \"r\"}]}",
              "[{\"thinking\": \"r\", \"role\": \"a\", \"reasoning\": \"r\", "
              "\"reasoning_content\": \"r\"}]");
  expect_chat(t,
              "{\"messages\": [{\"tool_calls\": [{\"function\": {\"arguments\": \"{\\\"a\\\": "
              "\\\"b\"}}]}]}",
              "[{\"tool_calls\": [{\"function\": {\"arguments\": \"{\\\"a\\\": \\\"b\"}}]}]");
  chat_templates_free(t);
  place_free(&p);
  t = with_template(&p, "developer {% for m in messages %}{{ m.role }}{% for x in m.content %}"
                        "{{ x.text }}|{% endfor %}{% endfor %}");
  cr_assert(chat_template_mentions(t, false, "content"));
  cr_assert(!chat_template_mentions(t, false, "cont"));
  expect_chat(t,
              "{\"messages\": [{\"role\": \"developer\", \"content\": [{\"text\": \"x\"}, "
              "{\"text\": \"y\"}]}]}",
              "developer developerx|y|");
  chat_templates_free(t);
  place_free(&p);
}

/* A call that was cut has arguments that are no JSON. It is accepted as history by every template:
 * by those that print an object's members as an object of one member. */
Test(template_chat, cut_calls_are_history) {
  static const struct {
    const char *source, *printed;
  } rows[] = {
      {"{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments }}"
       "{% endfor %}{% endfor %}",
       "{\"a\": \"b<"},
      {"{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in "
       "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}",
       "arguments={\"a\": \"b<;"},
      {"{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in "
       "c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}",
       "arguments={\"a\": \"b<;"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    place_t p;
    chat_templates_t *t = with_template(&p, rows[i].source);
    expect_chat(t,
                "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
                "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b<\"}}]}]}",
                rows[i].printed);
    chat_templates_free(t);
    place_free(&p);
  }
}

/* Arguments that are JSON, but no object: printed as they are, and as an object where a template
 * takes objects alone. */
Test(template_chat, arguments_that_are_no_object_are_history) {
  static const char as_they_are[] = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
  static const char as_object[] =
      "{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}="
      "{{ v | tojson }};{% endfor %}";
  static const char *const rows[][3] = {
      {"null", "null", ""},
      {"[1]", "[1]", "arguments=\"[1]\";"},
      {"7", "7", "arguments=\"7\";"},
      {"\\\"b\\\"", "\"b\"", "arguments=\"\\\"b\\\"\";"},
  };
  for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
    char request[200];
    place_t p;
    chat_templates_t *t = with_template(&p, i % 2 == 0 ? as_they_are : as_object);
    snprintf(request, sizeof request,
             "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
             "{\"arguments\": \"%s\"}}]}]}",
             rows[i / 2][0]);
    expect_chat(t, request, rows[i / 2][1 + i % 2]);
    chat_templates_free(t);
    place_free(&p);
  }
}

/* Answers as inferd gives them, and as the openai SDK writes them back with all of its fields. */
static const char *const answers[] = {
    "\"content\": null",
    "\"tool_calls\": []",
    "\"content\": null, \"reasoning\": \"x\"",
    "\"content\": null, \"refusal\": null, \"reasoning\": \"x\"",
    "\"content\": null, \"refusal\": null, \"annotations\": null, \"audio\": null, "
    "\"function_call\": null, \"tool_calls\": null, \"reasoning\": null",
};

/* An answer without content and calls is one whose content is the empty text, for every template.
 */
Test(template_chat, an_answer_without_content_is_history) {
  DIR *dir = opendir("tests/fixtures/templates");
  int count = 0;
  cr_assert_not_null(dir);
  for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    char path[512], request[600], empty[600];
    chat_templates_t *t;
    inferd_error_t error = {0};
    if (strstr(entry->d_name, ".jinja") == NULL) continue;
    snprintf(path, sizeof path, "tests/fixtures/templates/%s", entry->d_name);
    place_t p = place_new();
    put(&p, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    ASSERT_EQ_FOR(chat_templates_load(p.dir, path, &t, &error), 0, "%s", error.message);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
      static const char ends[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                 "{\"role\": \"assistant\", %s}, "
                                 "{\"role\": \"user\", \"content\": \"b\"}]}";
      bool thought = strstr(answers[i], "\"x\"") != NULL;
      jinja_output_t out;
      snprintf(request, sizeof request, ends, answers[i]);
      snprintf(empty, sizeof empty, ends,
               thought ? "\"content\": \"\", \"reasoning\": \"x\"" : "\"content\": \"\"");
      ASSERT_EQ_FOR(render(t, empty, &out, &error), 0, "%s: %s", path, error.message);
      expect_chat(t, request, out.text);
      jinja_output_free(&out);
    }
    count++;
    chat_templates_free(t);
    place_free(&p);
  }
  closedir(dir);
  ASSERT_GT(count, 15);
}

Test(template_chat, an_empty_content_is_a_list_where_parts_are) {
  place_t p;
  chat_templates_t *t = with_template(&p, "{{ messages|tojson }}");
  static const char request[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": null, "
                                "\"name\": null}, {\"role\": \"assistant\", \"content\": null, "
                                "\"tool_calls\": [{}]}]}";
  expect_chat(t, request,
              "[{\"role\": \"assistant\", \"content\": \"\"}, {\"role\": \"assistant\", "
              "\"content\": null, \"tool_calls\": [{}]}]");
  chat_templates_free(t);
  place_free(&p);
  t = with_template(&p, "{% for m in messages %}{% for x in m.content or [] %}{{ x }}{% endfor %}"
                        "{% endfor %}{{ messages|tojson }}");
  expect_chat(t, request,
              "[{\"role\": \"assistant\", \"content\": []}, {\"role\": \"assistant\", "
              "\"content\": null, \"tool_calls\": [{}]}]");
  chat_templates_free(t);
  place_free(&p);
}

/* Each family has a name of its own for it. One switch stands for the others. */
Test(template_chat, an_effort_under_the_names_of_all_families) {
  place_t p;
  chat_templates_t *t = with_template(
      &p, "{{ enable_thinking }} {{ thinking }} {{ thinking_mode }} {{ thinking_effort }} "
          "{{ thinking_budget }}{# enabled, disabled #}");
  cr_assert(chat_template_reads_effort(t, false));
  expect_chat(t, "{\"messages\": [], \"effort\": \"low\"}", "True True enabled low ");
  expect_chat(t, "{\"messages\": [], \"effort\": \"minimal\"}", "True True enabled low ");
  expect_chat(t, "{\"messages\": [], \"effort\": \"xhigh\"}", "True True enabled max ");
  expect_chat(t, "{\"messages\": [], \"effort\": \"none\"}", "False False disabled  0");
  expect_chat(t, "{\"messages\": [], \"kwargs\": {\"thinking\": false}}",
              "False False disabled  0");
  expect_chat(t, "{\"messages\": [], \"kwargs\": {\"enable_thinking\": true}}",
              "True True enabled  ");
  expect_chat(t,
              "{\"messages\": [], \"effort\": \"low\", \"kwargs\": {\"thinking_effort\": "
              "\"high\", \"thinking_mode\": \"adaptive\"}}",
              "True True adaptive high ");
  expect_chat(t, "{\"messages\": []}", "    ");
  chat_templates_free(t);
  place_free(&p);
}

Test(template_chat, effort_turns_thinking_on_and_off) {
  place_t p;
  chat_templates_t *t = with_template(&p, "{{ reasoning_effort }} {{ enable_thinking }}");
  expect_chat(t, "{\"messages\": []}", " ");
  expect_chat(t, "{\"messages\": [], \"effort\": \"low\"}", "low True");
  expect_chat(t, "{\"messages\": [], \"effort\": \"none\"}", "none False");
  expect_chat(t,
              "{\"messages\": [], \"effort\": \"low\", \"kwargs\": {\"enable_thinking\": false}}",
              "low False");
  expect_chat(t, "{\"messages\": [], \"effort\": \"none\", \"kwargs\": {\"x\": 1}}", "none False");
  chat_templates_free(t);
  place_free(&p);
}

Test(template_chat, variables) {
  place_t p;
  chat_templates_t *t = with_template(
      &p, "{{ tools is none }}{{ documents }}{{ add_generation_prompt }}{{ x }}{{ y is defined }}");
  expect_chat(t, "{\"messages\": [], \"prompt\": 1, \"kwargs\": {\"x\": [1], \"z\": 2}}",
              "TrueNoneTrue[1]False");
  expect_refusal(t, "{\"messages\": [], \"kwargs\": {\"tokenize\": true}}", ERR_INVALID_VALUE,
                 "chat_template_kwargs", "\"tokenize\"");
  expect_refusal(t, "{\"messages\": [], \"kwargs\": {\"bos_token\": \"x\"}}", ERR_INVALID_VALUE,
                 "chat_template_kwargs", "\"bos_token\"");
  expect_refusal(t, "{\"messages\": [], \"kwargs\": {\"namespace\": 1}}", ERR_INVALID_VALUE,
                 "chat_template_kwargs", "\"namespace\"");
  chat_templates_free(t);
  place_free(&p);
}

Test(template_chat, continuing_the_last_message) {
  place_t p;
  chat_templates_t *t =
      with_template(&p, "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}");
  jinja_output_t out;
  inferd_error_t error = {0};
  expect_chat(t,
              "{\"continue\": 1, \"messages\": [{\"role\": \"u\", \"content\": \"a\"}, {\"role\": "
              "\"a\", \"content\": \"One, two \"}]}",
              "<u>a</><a>One, two ");
  ASSERT_EQ(render(t, "{\"continue\": 1, \"messages\": [{\"role\": \"a\", \"content\": \"x\"}]}",
                   &out, &error),
            0);
  ASSERT_EQ(out.num_request, 2);
  ASSERT_EQ(out.request[1].end, out.length);
  jinja_output_free(&out);
  expect_refusal(t, "{\"continue\": 1, \"messages\": [{\"role\": \"a\", \"content\": null}]}",
                 ERR_INVALID_VALUE, "continue_final_message", "no text");
  chat_templates_free(t);
  place_free(&p);
  t = with_template(&p, "{% for m in messages %}{{ m.content|trim }}{% endfor %}!");
  expect_chat(t, "{\"continue\": 1, \"messages\": [{\"content\": \" a b \\n\"}]}", "a b");
  chat_templates_free(t);
  place_free(&p);
  t = with_template(&p, "nothing of content");
  expect_refusal(t, "{\"continue\": 1, \"messages\": [{\"content\": \"a\"}]}", ERR_INVALID_VALUE,
                 "continue_final_message", "does not print");
  chat_templates_free(t);
  place_free(&p);
}

/* The bytes of a picture are not the template's; a template without parts does not see it, unless
 * the model has a text for it. */
Test(template_chat, a_picture_is_a_part_without_its_bytes) {
  place_t p;
  static const char request[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
      "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:x\"}}]}]}";
  chat_templates_t *t =
      with_template(&p, "{% for m in messages %}{% for x in m.content %}{{ x.type }}{% endfor %}"
                        "{% endfor %}{{ messages|tojson }}");
  expect_chat(t, request,
              "textimage[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
              "\"a\"}, {\"type\": \"image\"}]}]");
  chat_templates_free(t);
  place_free(&p);
  t = with_template(&p, "{{ messages|tojson }}");
  expect_chat(t, request, "[{\"role\": \"user\", \"content\": \"a\"}]");
  static const char spelled[] =
      "{\"picture\": 1, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
      "\"image_url\", \"image_url\": {\"url\": \"data:x\"}}, {\"type\": \"text\", \"text\": "
      "\"a\"}, "
      "{\"type\": \"image_url\", \"image_url\": \"data:y\"}]}]}";
  expect_chat(t, spelled, "[{\"role\": \"user\", \"content\": \"<see>\\na\\n<see>\"}]");
  chat_templates_free(t);
  place_free(&p);
}
