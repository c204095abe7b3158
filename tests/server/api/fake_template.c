/* fake_template.c: a chat template that writes "<role>content" for every message, and
 * "[type=text]" for a part, FAKE_PICTURE for a picture. Any thread.
 *
 * With tools it begins with their number and "#"; a kwarg "think" opens thoughts; the role "raise"
 * makes it raise. */
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_template_t fake_template;

struct chat_templates {
  int unused;
};

static struct chat_templates the_templates;

void fake_template_reset(void) {
  fake_template = (fake_template_t){.tools = true};
  server.live->templates = &the_templates;
  server.live->chat_is_ready = true;
  server.live->tool_format = tool_format_find("hermes");
}

int chat_templates_load(const char *dir, const char *path, chat_templates_t **out,
                        inferd_error_t *error) {
  (void)dir;
  *out = NULL;
  if (fake_template.broken && path != NULL) {
    return error_set(error, ERR_CONFIGURATION, NULL, "own.jinja, line 3: no");
  }
  *out = &the_templates;
  return 0;
}

int chat_templates_describe(const chat_templates_t *templates, const char *dir, buffer_t *out,
                            inferd_error_t *error) {
  (void)templates, (void)dir, (void)error;
  buffer_text(out, "{\"chat_template\":\"fake\"}");
  return 0;
}

const char *chat_templates_text(const chat_templates_t *templates, size_t *length) {
  (void)templates;
  *length = fake_template.none ? 0 : strlen("fake");
  return fake_template.none ? NULL : "fake";
}

const char *chat_templates_problem(const chat_templates_t *templates) {
  (void)templates;
  return fake_template.broken ? "tokenizer_config.json, line 3: no" : NULL;
}

void chat_templates_free(chat_templates_t *templates) {
  (void)templates;
}

bool chat_templates_any(const chat_templates_t *templates) {
  (void)templates;
  return !fake_template.none;
}

bool chat_template_mentions(const chat_templates_t *templates, bool has_tools, const char *name) {
  (void)templates, (void)has_tools;
  if (strcmp(name, "tools") == 0) return fake_template.tools;
  return fake_template.knows != NULL && strcmp(name, fake_template.knows) == 0;
}

static void write_part(buffer_t *out, const json_t *part) {
  const json_t *type = json_get(part, "type"), *text = json_get(part, "text");
  const bool sound = json_equals(type, "input_audio") || json_equals(type, "audio_url");
  if (sound || json_equals(type, "image_url")) {
    if (!fake_template.blind) buffer_char(out, FAKE_PICTURE);
    return;
  }
  buffer_char(out, '[');
  buffer_append(out, type->text, type->length);
  buffer_char(out, '=');
  buffer_append(out, text->text, text->length);
  buffer_char(out, ']');
}

int chat_template_render(const chat_templates_t *templates, const chat_input_t *input,
                         jinja_output_t *out, inferd_error_t *error) {
  buffer_t text = {0};
  if (input->tools != NULL) buffer_int(&text, input->tools->count), buffer_char(&text, '#');
  if (fake_template.format_words != NULL) buffer_text(&text, fake_template.format_words);
  if (input->effort != NULL && chat_template_mentions(templates, false, "reasoning_effort")) {
    buffer_append(&text, input->effort->text, input->effort->length);
  }
  const json_t *last = NULL;
  JSON_EACH(message, input->messages) {
    const json_t *role = json_get(message, "role"), *content = json_get(message, "content");
    last = message;
    if (json_equals(role, "raise")) {
      buffer_free(&text);
      return error_set(error, ERR_BAD_REQUEST, NULL, "roles must alternate");
    }
    buffer_char(&text, '<');
    buffer_append(&text, role->text, role->length);
    buffer_char(&text, '>');
    if (content != NULL && content->type == JSON_STRING) {
      buffer_append(&text, content->text, content->length);
    }
    JSON_EACH(part, content) write_part(&text, part);
  }
  cr_assert(last != NULL);
  if (input->add_generation_prompt) buffer_text(&text, "<a>");
  if (json_get(input->kwargs, "think") != NULL) buffer_text(&text, "<think>\n");
  *out = (jinja_output_t){0};
  out->length = text.length;
  out->text = buffer_detach(&text, &out->length);
  return 0;
}
