/* chat_load.c: finds and compiles the chat templates of a model.
 *
 * The loading thread only. No file of a model directory is executed, and none names another file:
 * only fixed names are read, each up to a bound. The first that has a template wins:
 *
 * 1. --chat-template;
 * 2. chat_template.jinja, and the folders chat_templates and additional_chat_templates;
 * 3. the field "chat_template" of chat_template.json, which models that see have;
 * 4. that field of tokenizer_config.json.
 *
 * A GGUF file has them among its metadata. If one that is found does not compile, none is used.
 */
#include "engine/base/buffer.h"
#include "engine/file/gguf.h"
#include "engine/template/chat/chat_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20, PATH_BYTES_MAX = 4096 };

const char *const chat_special_tokens[SPECIAL_TOKENS] = {
    "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"};

typedef struct file {
  char *text; /* NULL: there is no such file */
  size_t length;
  json_doc_t *doc;
} file_t;

static void close_file(file_t *file) {
  json_free(file->doc);
  free(file->text);
  *file = (file_t){0};
}

static int read_stream(FILE *stream, const char *path, size_t most, file_t *out,
                       inferd_error_t *error) {
  size_t capacity = 64 << 10, got;
  char *text = malloc(capacity);
  while (text != NULL) {
    got = fread(text + out->length, 1, capacity - out->length, stream);
    out->length += got;
    if (got == 0 || out->length > most) break;
    if (out->length < capacity) continue;
    capacity *= 2;
    char *larger = realloc(text, capacity);
    if (larger == NULL) free(text);
    text = larger;
  }
  out->text = text;
  if (text == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: not enough memory", path);
  if (ferror(stream)) return error_set(error, ERR_IO, NULL, "%s: cannot be read", path);
  if (out->length > most)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: more than %zu bytes", path, most);
  return 0;
}

/* Reads a file. `name` NULL: `dir` is the path. If the file does not exist, out->text is NULL. */
static int read_file(const char *dir, const char *name, size_t most, file_t *out,
                     inferd_error_t *error) {
  char path[PATH_BYTES_MAX];
  *out = (file_t){0};
  int n =
      snprintf(path, sizeof path, "%s%s%s", dir, name == NULL ? "" : "/", name == NULL ? "" : name);
  if (n < 0 || (size_t)n >= sizeof path)
    return error_set(error, ERR_IO, NULL, "the path of a chat template is too long");
  FILE *stream = fopen(path, "rb");
  if (stream == NULL && (errno == ENOENT || errno == ENOTDIR)) return 0;
  if (stream == NULL) return error_system(error, path, errno);
  int code = read_stream(stream, path, most, out, error);
  fclose(stream);
  if (code != 0) close_file(out);
  return code;
}

static int read_json(const char *dir, const char *name, file_t *out, inferd_error_t *error) {
  inferd_error_t reason = {0};
  int code = read_file(dir, name, CONFIG_BYTES_MAX, out, error);
  if (code != 0 || out->text == NULL) return code;
  code = json_parse(out->text, out->length, &json_limits_model, &out->doc, &reason);
  if (code == 0 && json_root(out->doc)->type == JSON_OBJECT) return 0;
  close_file(out);
  if (code == ERR_INTERNAL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", name);
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: %s", name,
                   code == 0 ? "is not a JSON object" : reason.message);
}

/* Compiles into *slot unless a source with precedence filled it. Notes an error of the compiler. */
static int add(chat_templates_t *templates, jinja_t **slot, const char *name, const char *source,
               size_t length, inferd_error_t *error) {
  inferd_error_t reason = {0};
  if (*slot != NULL) return 0;
  int code = jinja_compile(name, source, length, slot, &reason);
  if (code == ERR_NO_MEMORY) return error_set(error, code, NULL, "%s", reason.message);
  if (code != 0 && templates->problem[0] == '\0')
    snprintf(templates->problem, sizeof templates->problem, "%s", reason.message);
  if (code != 0 || slot != &templates->by_default) return 0;
  templates->source = malloc(length + 1);
  if (templates->source == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "not enough memory");
  memcpy(templates->source, source, length);
  templates->source_length = length;
  return 0;
}

static int add_file(chat_templates_t *templates, jinja_t **slot, const char *dir, const char *name,
                    inferd_error_t *error) {
  file_t file;
  int code = read_file(dir, name, TEMPLATE_SOURCE_BYTES_MAX, &file, error);
  if (code == 0 && file.text != NULL)
    code = add(templates, slot, name, file.text, file.length, error);
  close_file(&file);
  return code;
}

/* A string, or a list of {name, template}. */
static int add_field(chat_templates_t *templates, const char *file, const json_t *field,
                     inferd_error_t *error) {
  if (field == NULL) return 0;
  if (field->type == JSON_STRING)
    return add(templates, &templates->by_default, file, field->text, field->length, error);
  if (field->type != JSON_ARRAY) return 0;
  JSON_EACH(entry, field) {
    const json_t *source = json_get(entry, "template"), *name = json_get(entry, "name");
    if (source == NULL || source->type != JSON_STRING || name == NULL) continue;
    jinja_t **slot = json_equals(name, "default")    ? &templates->by_default
                     : json_equals(name, "tool_use") ? &templates->tool_use
                                                     : NULL;
    int code = slot == NULL ? 0 : add(templates, slot, file, source->text, source->length, error);
    if (code != 0) return code;
  }
  return 0;
}

/* The tokens by name, each a string or an object with "content". */
static int add_special(chat_templates_t *templates, const json_t *root, inferd_error_t *error) {
  for (unsigned i = 0; i < SPECIAL_TOKENS; i++) {
    const json_t *token = json_get(root, chat_special_tokens[i]);
    if (token != NULL && token->type == JSON_OBJECT) token = json_get(token, "content");
    if (templates->special[i] != NULL || token == NULL || token->type != JSON_STRING) continue;
    templates->special[i] = malloc((size_t)token->length + 1);
    if (templates->special[i] == NULL)
      return error_set(error, ERR_NO_MEMORY, NULL, "not enough memory");
    memcpy(templates->special[i], token->text, token->length);
    templates->special[i][token->length] = '\0';
    templates->special_length[i] = token->length;
  }
  return 0;
}

static int load_directory(chat_templates_t *chat, const char *dir, bool templates,
                          inferd_error_t *error) {
  file_t config = {0}, map = {0}, processor = {0};
  int code = 0;
  if (templates) {
    code = add_file(chat, &chat->by_default, dir, "chat_template.jinja", error);
    if (code == 0)
      code = add_file(chat, &chat->tool_use, dir, "chat_templates/tool_use.jinja", error);
    if (code == 0)
      code =
          add_file(chat, &chat->tool_use, dir, "additional_chat_templates/tool_use.jinja", error);
    if (code == 0)
      code = add_file(chat, &chat->by_default, dir, "chat_templates/default.jinja", error);
    if (code == 0)
      code =
          add_file(chat, &chat->by_default, dir, "additional_chat_templates/default.jinja", error);
    if (code == 0) code = read_json(dir, "chat_template.json", &processor, error);
    if (code == 0 && processor.doc != NULL && chat->problem[0] == '\0')
      code = add_field(chat, "chat_template.json",
                       json_get(json_root(processor.doc), "chat_template"), error);
  }
  if (code == 0) code = read_json(dir, "tokenizer_config.json", &config, error);
  if (code == 0) code = read_json(dir, "special_tokens_map.json", &map, error);
  if (code == 0 && config.doc != NULL) {
    code = add_special(chat, json_root(config.doc), error);
    if (code == 0 && templates && chat->by_default == NULL && chat->problem[0] == '\0')
      code = add_field(chat, "tokenizer_config.json",
                       json_get(json_root(config.doc), "chat_template"), error);
  }
  if (code == 0 && map.doc != NULL) code = add_special(chat, json_root(map.doc), error);
  close_file(&config);
  close_file(&map);
  close_file(&processor);
  return code;
}

/* The text of a token id, as a special token of the templates. */
static int keep_special(chat_templates_t *chat, unsigned index, const gguf_t *gguf, int64_t id,
                        inferd_error_t *error) {
  const char *text;
  size_t at = 0, length;
  for (int64_t i = 0;
       gguf_next_string(gguf_get(gguf, "tokenizer.ggml.tokens"), &at, &text, &length); i++) {
    if (i != id) continue;
    chat->special[index] = malloc(length + 1);
    if (chat->special[index] == NULL)
      return error_set(error, ERR_NO_MEMORY, NULL, "not enough memory");
    memcpy(chat->special[index], text, length);
    chat->special[index][length] = '\0';
    chat->special_length[index] = length;
    return 0;
  }
  return 0;
}

/* tokenizer.chat_template, and tokenizer.chat_template.tool_use for requests with tools. */
static int load_gguf(chat_templates_t *chat, const char *path, bool templates,
                     inferd_error_t *error) {
  static const char *const ids[SPECIAL_TOKENS] = {"bos",       "eos", "unknown", "padding",
                                                  "seperator", "cls", "mask"};
  static const char of_default[] = "tokenizer.chat_template";
  static const char of_tools[] = "tokenizer.chat_template.tool_use";
  gguf_t *gguf;
  const char *text;
  size_t length;
  int code = gguf_open(path, false, &gguf, error);
  if (code != 0) return code;
  for (unsigned i = 0; code == 0 && i < SPECIAL_TOKENS; i++) {
    char key[64];
    int64_t id;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
    if (gguf_int(gguf_get(gguf, key), 0, &id)) code = keep_special(chat, i, gguf, id, error);
  }
  for (int i = 0; code == 0 && templates && i < 2; i++) {
    const char *key = i == 0 ? of_default : of_tools;
    size_t at = 0;
    if (gguf_next_string(gguf_get(gguf, key), &at, &text, &length) && length > 0)
      code = add(chat, i == 0 ? &chat->by_default : &chat->tool_use, key, text, length, error);
  }
  gguf_close(gguf);
  return code;
}

static int load_path(chat_templates_t *templates, const char *path, inferd_error_t *error) {
  file_t file;
  int code = read_file(path, NULL, TEMPLATE_SOURCE_BYTES_MAX, &file, error);
  if (code == 0 && file.text == NULL)
    code = error_set(error, ERR_CONFIGURATION, "chat_template", "%s: there is no such file", path);
  if (code == 0) code = add(templates, &templates->by_default, path, file.text, file.length, error);
  close_file(&file);
  if (code == 0 && templates->problem[0] != '\0')
    code = error_set(error, ERR_CONFIGURATION, "chat_template", "%s", templates->problem);
  return code;
}

int chat_templates_load(const char *dir, const char *path, chat_templates_t **out,
                        inferd_error_t *error) {
  *out = NULL;
  chat_templates_t *templates = calloc(1, sizeof *templates);
  if (templates == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "not enough memory");
  int code = path == NULL ? 0 : load_path(templates, path, error);
  char model[PATH_BYTES_MAX];
  int found = code == 0 ? gguf_find(dir, model, sizeof model, error) : 0;
  if (found < 0) code = found;
  if (code == 0)
    code = found > 0 ? load_gguf(templates, model, path == NULL, error)
                     : load_directory(templates, dir, path == NULL, error);
  if (code == 0 &&
      templates->problem[0] != '\0') { /* a set of which only a part compiles is not used at all */
    jinja_free(templates->by_default);
    jinja_free(templates->tool_use);
    templates->by_default = templates->tool_use = NULL;
  }
  if (code != 0) {
    chat_templates_free(templates);
    return code;
  }
  *out = templates;
  return 0;
}

void chat_templates_free(chat_templates_t *templates) {
  if (templates == NULL) return;
  jinja_free(templates->by_default);
  jinja_free(templates->tool_use);
  for (unsigned i = 0; i < SPECIAL_TOKENS; i++) free(templates->special[i]);
  free(templates->source);
  free(templates);
}

/* ---- what a client needs to render by itself ---- */

static void print_text(buffer_t *out, const char *name, const char *text, size_t length) {
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":");
  if (text != NULL) {
    buffer_quote(out, text, length);
  } else {
    buffer_text(out, "null");
  }
}

int chat_templates_describe(const chat_templates_t *templates, const char *dir, buffer_t *out,
                            inferd_error_t *error) {
  file_t config = {0};
  char model[PATH_BYTES_MAX];
  int code = gguf_find(dir, model, sizeof model, error);
  if (code == 0) code = read_json(dir, "tokenizer_config.json", &config, error);
  if (code < 0) return code;
  const json_t *root = config.doc != NULL ? json_root(config.doc) : NULL;
  const json_t *class = json_get(root, "tokenizer_class");
  buffer_text(out, "{\"tokenizer_class\":");
  if (class != NULL) {
    json_print(out, class);
  } else {
    buffer_text(out, "\"PreTrainedTokenizerFast\"");
  }
  JSON_EACH(member, root) {
    if (member == class || member == json_get(root, "chat_template")) continue;
    buffer_char(out, ',');
    buffer_quote(out, member->key, member->key_length);
    buffer_char(out, ':');
    json_print(out, member);
  }
  for (unsigned i = 0; i < SPECIAL_TOKENS; i++) {
    if (templates->special[i] == NULL || json_get(root, chat_special_tokens[i]) != NULL) continue;
    print_text(out, chat_special_tokens[i], templates->special[i], templates->special_length[i]);
  }
  print_text(out, "chat_template", templates->source, templates->source_length);
  buffer_char(out, '}');
  close_file(&config);
  return out->failed ? error_set(error, ERR_NO_MEMORY, NULL, "not enough memory") : 0;
}
