/* fuzz_text.c: JSON, templates and chat requests.
 *
 * template: the template, a 0xFF byte, a JSON object of variables. chat: the same with a JSON array
 * of messages; behind a second 0xFF byte an object of what else a request has (tools, documents,
 * kwargs, effort; "path": the operator names a template), behind a third the other files that may
 * hold templates. Fuel is scarce, so that inputs stay fast.
 */
#include "engine/base/buffer.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/template/chat/chat_template.h"
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member is found by its name, which is the first of that name: names are not repeated. */
static void look_up(const json_t *object, const json_t *member) {
  char *name = strndup(member->key, member->key_length);
  if (name == NULL || json_member(object, member->key, member->key_length) != member) abort();
  bool whole = strlen(name) == member->key_length;
  if (whole && (json_get(object, name) != member || !json_named(member, name))) abort();
  free(name);
}

/* Visits every value, so that a bad pointer is used. */
static uint64_t visit(const json_t *value) {
  uint64_t sum = value->type + value->length + value->key_length;
  int64_t whole;
  double real;
  bool flag;
  sum += (uint64_t)json_type_name(value)[0] + json_bool(value, &flag) + json_equals(value, "a");
  for (uint32_t i = 0; i < value->length && value->text != NULL; i++)
    sum += (uint8_t)value->text[i];
  for (uint32_t i = 0; i < value->key_length; i++) sum += (uint8_t)value->key[i];
  sum += json_int64(value, &whole) + (json_double(value, &real) ? 1u : 0u);
  if (value->type == JSON_ARRAY || value->type == JSON_OBJECT) JSON_EACH(child, value) {
      if (value->type == JSON_OBJECT) look_up(value, child);
      sum += visit(child);
    }
  return sum;
}

void fuzz_json(const uint8_t *data, size_t size) {
  static const json_limits_t loose = {.depth_max = 8,
                                      .values_max = 64,
                                      .key_bytes_max = 16,
                                      .allow_infinity = true,
                                      .allow_nul = true};
  const json_limits_t *limits[] = {&json_limits_request, &json_limits_model, &loose};
  inferd_error_t error;
  for (int i = 0; i < 3; i++) {
    json_doc_t *doc = NULL;
    if (json_parse((const char *)data, size, limits[i], &doc, &error) != 0) continue;
    (void)visit(json_root(doc));
    if (json_memory(doc) > json_memory_bound((const char *)data, size, limits[i])) abort();
    json_free(doc);
  }
  char escaped[64];
  (void)json_escape(escaped, sizeof escaped, (const char *)data, size);
}

static json_doc_t *parse_object(const uint8_t *data, size_t size, json_type_t type) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  if (size == 0 || json_parse((const char *)data, size, &json_limits_request, &doc, &error) != 0)
    return NULL;
  if (json_root(doc)->type == type) return doc;
  json_free(doc);
  return NULL;
}

void fuzz_template(const uint8_t *data, size_t size) {
  jinja_variable_t variables[32];
  jinja_input_t input = {.variables = variables, .limits = jinja_limits_default};
  jinja_output_t out;
  jinja_t *jinja;
  inferd_error_t error = {0};
  size_t length;
  const char *source = (const char *)fuzz_part(&data, &size, 0xFF, &length);
  if (jinja_compile("fuzz", source, length, &jinja, &error) != 0) return;
  json_doc_t *doc = parse_object(data, size, JSON_OBJECT);
  if (doc != NULL) JSON_EACH(member, json_root(doc)) {
      if (input.num_variables == 32 || member->key_length == 0) break;
      variables[input.num_variables++] = (jinja_variable_t){
          .name = member->key, .name_length = member->key_length, .json = member};
    }
  input.limits.fuel = 50000;
  input.limits.time_ms = 0;
  input.limits.arena_bytes = 64 << 20;
  (void)jinja_mentions(jinja, "content");
  (void)jinja_iterates(jinja, "content");
  if (jinja_render(jinja, &input, &out, &error) == 0) {
    size_t last = 0;
    for (size_t i = 0; i < out.num_request; i++) {
      if (out.request[i].begin >= out.request[i].end || out.request[i].end > out.length ||
          (i > 0 && out.request[i].begin <= last))
        abort(); /* the contract of spans */
      last = out.request[i].end;
    }
    jinja_output_free(&out);
  }
  json_free(doc);
  jinja_free(jinja);
}

static const json_t *member_of(const json_t *object, const char *name, json_type_t type) {
  const json_t *member = json_get(object, name);
  return member != NULL && member->type == type ? member : NULL;
}

/* What a client gets to render by itself is JSON. */
static void describe(const chat_templates_t *templates) {
  buffer_t out = {0};
  inferd_error_t error = {0};
  if (chat_templates_describe(templates, fuzz_directory(), &out, &error) == 0) {
    json_doc_t *doc = NULL;
    if (json_parse((char *)out.bytes, out.length, &json_limits_model, &doc, &error) != 0) abort();
    json_free(doc);
  }
  buffer_free(&out);
}

static void render(const char *path, const chat_input_t *input) {
  chat_templates_t *templates;
  jinja_output_t out;
  inferd_error_t error = {0};
  if (chat_templates_load(fuzz_directory(), path, &templates, &error) != 0) return;
  describe(templates);
  bool usable = chat_templates_any(templates) && chat_templates_problem(templates) == NULL;
  int code = chat_template_render(templates, input, &out, &error);
  if (code == 0 && !usable && input->tools == NULL) abort(); /* a template for tools stands alone */
  if (code == 0) jinja_output_free(&out);
  chat_templates_free(templates);
}

void fuzz_chat(const uint8_t *data, size_t size) {
  static const char *const beside[] = {"tokenizer_config.json", "chat_template.json", "model.gguf",
                                       "given.jinja", "special_tokens_map.json"};
  char path[256];
  size_t length, messages_length, request_length;
  const uint8_t *source = fuzz_part(&data, &size, 0xFF, &length);
  const uint8_t *messages = fuzz_part(&data, &size, 0xFF, &messages_length);
  const uint8_t *members = fuzz_part(&data, &size, 0xFF, &request_length);
  json_doc_t *doc = parse_object(messages, messages_length, JSON_ARRAY);
  if (doc == NULL) return;
  json_doc_t *more = parse_object(members, request_length, JSON_OBJECT);
  const json_t *request = more != NULL ? json_root(more) : NULL;
  chat_input_t input = {.messages = json_root(doc),
                        .tools = member_of(request, "tools", JSON_ARRAY),
                        .documents = member_of(request, "documents", JSON_ARRAY),
                        .kwargs = member_of(request, "kwargs", JSON_OBJECT),
                        .effort = member_of(request, "effort", JSON_STRING),
                        .add_generation_prompt = size % 2 == 1,
                        .continue_final_message = length % 2 == 1};
  if (length > 0 || size == 0) fuzz_write("chat_template.jinja", source, length);
  fuzz_write_parts(beside, ARRAY_LEN(beside), data, size);
  snprintf(path, sizeof path, "%s/given.jinja", fuzz_directory());
  render(json_get(request, "path") != NULL ? path : NULL, &input);
  fuzz_remove("chat_template.jinja");
  fuzz_remove_parts(beside, ARRAY_LEN(beside));
  json_free(more);
  json_free(doc);
}
