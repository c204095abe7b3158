/* calls.c: what calls.h says. */
#include "tests/server/api/calls.h"

#include "engine/base/util.h"
#include "server/dialect/chat_body.h"
#include "tests/random.h"

#include <stdio.h>
#include <string.h>

/* ---- tools ---- */

static const char *const schemas[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"integer\"}",
    "{\"type\":\"number\"}",
    "{\"type\":\"boolean\"}",
    "{\"type\":\"null\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":4}",
    "{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"boolean\",\"null\"]},\"maxItems\":4}",
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"of it\":{\"type\":"
    "\"boolean\"},\"l\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"t\":"
    "{\"type\":\"string\"}},\"additionalProperties\":false},\"maxItems\":3}},"
    "\"additionalProperties\":false}",
    "{\"enum\":[\"a b\",\"\xc3\xa9\\\"\",7,true,null]}",
};

enum {
  KIND_STRING,
  KIND_INTEGER,
  KIND_NUMBER,
  KIND_BOOLEAN,
  KIND_NULL,
  KIND_STRINGS,
  KIND_MIXED,
  KIND_OBJECT,
  KIND_ENUM,
  KINDS
};

static uint32_t below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(next_random_64(state) % bound);
}

void calls_draw_tools(uint64_t *state, drawn_tools_t *out) {
  static const char *const names[] = {"a", "abc", "city", "x-1", "y.z", "\xc3\xa9t\xc3\xa9"};
  const char *comma = "";
  uint32_t first = below(state, ARRAY_LEN(names));
  buffer_clear(&out->text);
  out->num_arguments = (int)below(state, CALLS_ARGUMENTS_MAX + 1);
  buffer_text(&out->text,
              "[{\"type\":\"function\",\"function\":{\"name\":\"get_it\",\"parameters\":"
              "{\"type\":\"object\",\"properties\":{");
  for (int i = 0; i < out->num_arguments; i++) {
    out->kinds[i] = (int)below(state, KINDS);
    out->required[i] = below(state, 2) == 0;
    const char *name = names[(first + (uint32_t)i) % ARRAY_LEN(names)];
    snprintf(out->names[i], sizeof out->names[i], "%s", name);
    buffer_text(&out->text, comma);
    buffer_quote(&out->text, name, strlen(name));
    buffer_char(&out->text, ':');
    buffer_text(&out->text, schemas[out->kinds[i]]);
    comma = ",";
  }
  buffer_text(&out->text, "},\"required\":[");
  comma = "";
  for (int i = 0; i < out->num_arguments; i++) {
    if (!out->required[i]) continue;
    buffer_text(&out->text, comma);
    buffer_quote(&out->text, out->names[i], strlen(out->names[i]));
    comma = ",";
  }
  buffer_text(&out->text, "],\"additionalProperties\":false}}}]");
}

/* ---- arguments ---- */

/* Texts that mean something to a parser, but for those that end a value. */
static const char *const pieces[] = {"a",
                                     "Z\xc3\xbcrich",
                                     "\"",
                                     "'",
                                     "\\",
                                     "\\n",
                                     "\n",
                                     "\n\n",
                                     "\t",
                                     " ",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "=",
                                     "(",
                                     ")",
                                     ")\n",
                                     "<",
                                     ">",
                                     "</",
                                     "<|",
                                     "|>",
                                     "\xf0\x9f\x98\x80",
                                     "\xef\xbd\x9c",
                                     "null",
                                     "True",
                                     "12",
                                     "-1.5e3",
                                     "<parameter",
                                     "</tool",
                                     "```",
                                     "f(x=1)",
                                     "[{\"name\": \"get_it\"",
                                     "\xe2\x82\xac"};

static bool begins_a_line(const char *text, const char *word) {
  for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
    if (at == text || at[-1] == '\n') return true;
  }
  return false;
}

/* Returns false if the family cannot write the text; in_tag: it stands between tags as it is. */
static bool fits(const tool_format_t *format, buffer_t *buffer, bool in_tag) {
  const tag_words_t *tags = format->tags;
  size_t length = buffer->length;
  buffer_char(buffer, '\0');
  buffer->length--;
  const char *text = buffer->data;
  if (format->literals != NULL && format->literals->string_mark != NULL)
    return strstr(text, format->literals->string_mark) == NULL;
  if (tags != NULL && tags->mark != NULL) return strstr(text, tags->mark) == NULL;
  if (!in_tag || tags == NULL) return true;
  bool edges = length > 0 && (text[0] == '\n' || text[length - 1] == '\n');
  bool told = tags->end_text_key != NULL || tags->begin_type != NULL;
  bool counted = tags->around_value[0] != '\0' || told;
  return (counted || !edges) && strstr(text, tags->end_value) == NULL &&
         !begins_a_line(text, tags->begin_key) && !begins_a_line(text, tags->end_call);
}

static void draw_string(uint64_t *state, const tool_format_t *format, bool in_tag, buffer_t *out) {
  buffer_t text = {0};
  do {
    buffer_clear(&text);
    uint32_t count = below(state, 4) == 0 ? 0 : below(state, 8);
    for (uint32_t i = 0; i < count; i++)
      buffer_text(&text, pieces[below(state, ARRAY_LEN(pieces))]);
  } while (!fits(format, &text, in_tag));
  buffer_quote(out, text.length > 0 ? text.data : "", text.length);
  buffer_free(&text);
}

static void draw_list(uint64_t *state, const tool_format_t *format, bool strings, buffer_t *out) {
  static const char *const items[] = {"0", "-12", "true", "false", "null"};
  uint32_t count = below(state, 4);
  buffer_char(out, '[');
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) buffer_text(out, ", ");
    if (strings) draw_string(state, format, false, out);
    if (!strings) buffer_text(out, items[below(state, ARRAY_LEN(items))]);
  }
  buffer_char(out, ']');
}

static void draw_object(uint64_t *state, const tool_format_t *format, buffer_t *out) {
  static const char *const comma = ", ";
  bool any = false;
  buffer_char(out, '{');
  if (below(state, 2) == 0) {
    buffer_text(out, "\"s\": ");
    draw_string(state, format, false, out);
    any = true;
  }
  if (below(state, 2) == 0) {
    if (any) buffer_text(out, comma);
    buffer_text(out, below(state, 2) == 0 ? "\"of it\": true" : "\"of it\": false");
    any = true;
  }
  if (below(state, 2) == 0) {
    if (any) buffer_text(out, comma);
    buffer_text(out, "\"l\": [{}, {\"t\": ");
    draw_string(state, format, false, out);
    buffer_text(out, "}]");
  }
  buffer_char(out, '}');
}

static void draw_value(uint64_t *state, int kind, const tool_format_t *format, buffer_t *out) {
  static const char *const listed[] = {"\"a b\"", "\"\xc3\xa9\\\"\"", "7", "true", "null"};
  char number[40];
  switch (kind) {
  case KIND_STRING: draw_string(state, format, true, out); break;
  case KIND_INTEGER:
    snprintf(number, sizeof number, "%d", (int)below(state, 2000) - 1000);
    buffer_text(out, number);
    break;
  case KIND_NUMBER:
    snprintf(number, sizeof number, "%d.%u", (int)below(state, 20) + 1, below(state, 9) + 1);
    buffer_text(out, number);
    break;
  case KIND_BOOLEAN: buffer_text(out, below(state, 2) == 0 ? "true" : "false"); break;
  case KIND_NULL: buffer_text(out, "null"); break;
  case KIND_STRINGS: draw_list(state, format, true, out); break;
  case KIND_MIXED: draw_list(state, format, false, out); break;
  case KIND_OBJECT: draw_object(state, format, out); break;
  default: buffer_text(out, listed[below(state, ARRAY_LEN(listed))]); break;
  }
}

void calls_draw_arguments(uint64_t *state, const drawn_tools_t *tools, const tool_format_t *format,
                          buffer_t *out) {
  const char *comma = "";
  buffer_char(out, '{');
  for (int i = 0; i < tools->num_arguments; i++) {
    if (!tools->required[i] && below(state, 2) == 0) continue;
    buffer_text(out, comma);
    buffer_quote(out, tools->names[i], strlen(tools->names[i]));
    buffer_text(out, ": ");
    draw_value(state, tools->kinds[i], format, out);
    comma = ", ";
  }
  buffer_char(out, '}');
}

/* ---- writing ---- */

static void put_json(buffer_t *out, const json_t *value, const literal_words_t *words);

static void put_text(buffer_t *out, const json_t *value, const literal_words_t *words) {
  const char *mark = words != NULL ? words->string_mark : NULL;
  if (mark == NULL) {
    buffer_quote(out, value->text, value->length);
    return;
  }
  buffer_text(out, mark);
  buffer_append(out, value->text, value->length);
  buffer_text(out, mark);
}

static void put_members(buffer_t *out, const json_t *value, const literal_words_t *words) {
  const char *comma = "";
  bool marked = words != NULL && words->string_mark != NULL;
  JSON_EACH(member, value) {
    buffer_text(out, comma);
    bool bare = marked && memchr(member->key, ' ', member->key_length) == NULL;
    if (bare) buffer_append(out, member->key, member->key_length);
    if (!bare) buffer_quote(out, member->key, member->key_length);
    buffer_text(out, marked ? ":" : ": ");
    put_json(out, member, words);
    comma = marked ? "," : ", ";
  }
}

static void put_json(buffer_t *out, const json_t *value, const literal_words_t *words) {
  bool python = words != NULL && words->string_mark == NULL;
  const char *comma = "";
  switch ((json_type_t)value->type) {
  case JSON_NULL: buffer_text(out, python ? "None" : "null"); break;
  case JSON_FALSE: buffer_text(out, python ? "False" : "false"); break;
  case JSON_TRUE: buffer_text(out, python ? "True" : "true"); break;
  case JSON_NUMBER: buffer_append(out, value->text, value->length); break;
  case JSON_STRING: put_text(out, value, words); break;
  case JSON_ARRAY:
    buffer_char(out, '[');
    JSON_EACH(item, value) {
      buffer_text(out, comma);
      put_json(out, item, words);
      comma = ", ";
    }
    buffer_char(out, ']');
    break;
  case JSON_OBJECT:
    buffer_char(out, '{');
    put_members(out, value, words);
    buffer_char(out, '}');
    break;
  }
}

static const char *type_of(const json_t *value) {
  static const char *const names[] = {
      [JSON_NULL] = "null",     [JSON_FALSE] = "boolean", [JSON_TRUE] = "boolean",
      [JSON_NUMBER] = "number", [JSON_STRING] = "string", [JSON_ARRAY] = "array",
      [JSON_OBJECT] = "object"};
  return names[value->type];
}

/* An element of MiniMax M3: objects and arrays are elements in it. */
static void put_element(buffer_t *out, const tag_words_t *tags, const char *name, size_t length,
                        const json_t *value) {
  bool nested = value->type == JSON_ARRAY || value->type == JSON_OBJECT;
  buffer_text(out, tags->begin_key);
  buffer_append(out, name, length);
  buffer_text(out, tags->end_key);
  if (value->type == JSON_STRING) buffer_append(out, value->text, value->length);
  if (value->type != JSON_STRING && !nested) put_json(out, value, NULL);
  JSON_EACH(child, nested ? value : NULL) {
    bool item = value->type == JSON_ARRAY;
    put_element(out, tags, item ? "item" : child->key, item ? 4 : child->key_length, child);
  }
  buffer_text(out, tags->mark);
  buffer_text(out, "</");
  buffer_append(out, name, length);
  buffer_char(out, '>');
}

static void put_tags(buffer_t *out, const tag_words_t *tags, const json_t *arguments) {
  JSON_EACH(member, arguments) {
    bool is_text = member->type == JSON_STRING;
    const char *end_key = is_text ? tags->end_text_key : tags->end_json_key;
    if (tags->mark != NULL) {
      put_element(out, tags, member->key, member->key_length, member);
      continue;
    }
    buffer_text(out, tags->begin_key);
    buffer_append(out, member->key, member->key_length);
    if (tags->begin_type != NULL) buffer_text(out, tags->begin_type);
    if (tags->begin_type != NULL) buffer_text(out, type_of(member));
    buffer_text(out, end_key != NULL ? end_key : tags->end_key);
    buffer_text(out, tags->before_value);
    buffer_text(out, tags->around_value);
    if (is_text) buffer_append(out, member->text, member->length);
    if (!is_text) put_json(out, member, NULL);
    buffer_text(out, tags->around_value);
    buffer_text(out, tags->end_value);
    buffer_text(out, tags->behind_value);
  }
  buffer_text(out, tags->end_call);
}

static void put_literals(buffer_t *out, const literal_words_t *words, const json_t *arguments) {
  const char *comma = "";
  JSON_EACH(member, arguments) {
    buffer_text(out, comma);
    buffer_append(out, member->key, member->key_length);
    buffer_char(out, words->assign);
    put_json(out, member, words);
    comma = words->string_mark != NULL ? "," : ", ";
  }
  buffer_char(out, words->close);
}

static void put_call(buffer_t *out, const tool_format_t *format, const json_t *arguments,
                     int number) {
  buffer_text(out, format->begin_name);
  buffer_text(out, "get_it");
  if (format->names_are_ids) buffer_char(out, ':'), buffer_int(out, number);
  if (format->number != NULL) buffer_text(out, format->number), buffer_int(out, number + 1);
  buffer_text(out, format->end_name);
  if (format->tags != NULL) {
    put_tags(out, format->tags, arguments);
  } else if (format->literals != NULL) {
    put_literals(out, format->literals, arguments);
  } else {
    put_json(out, arguments, NULL);
  }
  buffer_text(out, format->end_call);
}

void calls_write(buffer_t *out, const tool_format_t *format, const json_t *const *arguments,
                 int count) {
  if (format->before_all != NULL) buffer_text(out, format->before_all);
  for (int i = 0; i < count; i++) {
    if (i > 0) buffer_text(out, format->between);
    put_call(out, format, arguments[i], i);
  }
  if (format->behind_all != NULL) buffer_text(out, format->behind_all);
}
