/* element.c: what element.h says. Any thread; allocates as `out` grows. */
#include "server/parser/element.h"

#include "server/parser/argument.h"
#include "server/parser/json_scan.h"

#include <string.h>

enum { DEPTH_MAX = 128, FUEL = 1000000 };

typedef struct element_reading {
  buffer_t *out;
  const char *mark;
  uint32_t fuel; /* for the schemas of all places together */
} element_reading_t;

/* An element among others: its name and what is between its tags. */
typedef struct element {
  element_tag_t tag;
  const char *text;
  size_t length;
} element_t;

int element_tag(const char *mark, const char *text, size_t length, element_tag_t *tag) {
  size_t begin = strlen(mark), at = begin;
  if (memcmp(text, mark, length < begin ? length : begin) != 0) return 0;
  if (length <= begin) return -1;
  if (text[at++] != '<') return 0;
  bool closes = at < length && text[at] == '/';
  if (closes) at++;
  for (size_t name = at; at < length; at++) {
    bool ends = text[at] == '>';
    bool bad = text[at] == '<' || text[at] == '\n' || at - name > CALL_ARGUMENT_NAME_BYTES_MAX;
    if (bad || (ends && at == name)) return 0;
    if (!ends) continue;
    *tag = (element_tag_t){text + name, at - name, at + 1, closes};
    return 1;
  }
  return -1;
}

/* Takes the next element; what is before it must be blank. Returns false if there is none. */
static bool next_element(const element_reading_t *in, const char **text, const char *end,
                         element_t *out) {
  element_tag_t tag;
  const char *at = *text;
  while (at < end && json_is_blank(*at)) at++;
  if (element_tag(in->mark, at, (size_t)(end - at), &out->tag) != 1 || out->tag.closes)
    return false;
  at += out->tag.bytes;
  out->text = at;
  for (int depth = 1; at < end; at++) {
    at = memmem(at, (size_t)(end - at), in->mark, strlen(in->mark));
    if (at == NULL) break;
    if (element_tag(in->mark, at, (size_t)(end - at), &tag) != 1) continue;
    depth += tag.closes ? -1 : 1;
    if (depth > 0) continue;
    out->length = (size_t)(at - out->text);
    *text = at + tag.bytes;
    return true;
  }
  out->length = (size_t)(end - out->text); /* its end is missing */
  *text = end;
  return true;
}

/* Whether the text is elements and nothing else. */
static bool is_elements(const element_reading_t *in, const char *text, size_t length) {
  const char *end = text + length;
  element_t element;
  bool any = false;
  while (next_element(in, &text, end, &element)) any = true;
  while (text < end && json_is_blank(*text)) text++;
  return any && text == end;
}

static void read_text(element_reading_t *in, const char *text, size_t length, uint32_t types) {
  const char *trimmed = text, *json = NULL;
  size_t size = length;
  buffer_t copy = {0};
  while (size > 0 && json_is_blank(trimmed[size - 1])) size--;
  while (size > 0 && json_is_blank(trimmed[0])) trimmed++, size--;
  bool empty = size == 0 && !(types & TYPE_STRING);
  if (empty && (types & (TYPE_ARRAY | TYPE_OBJECT))) {
    buffer_text(in->out, types & TYPE_ARRAY ? "[]" : "{}");
    return;
  }
  if (empty && (types & TYPE_NULL)) { /* as the template writes it in a list */
    buffer_text(in->out, "null");
    return;
  }
  if (types != TYPE_ALL) {
    buffer_append(&copy, trimmed, size);
    buffer_char(&copy, '\0');
    if (!copy.failed) json = argument_read(copy.data, &size, types);
  }
  if (json != NULL) buffer_append(in->out, json, size);
  if (json == NULL) buffer_quote(in->out, text, length);
  in->out->failed = in->out->failed || copy.failed;
  buffer_free(&copy);
}

static void read_value(element_reading_t *in, const char *text, size_t length,
                       const schema_set_t *place, int depth);

static void read_array(element_reading_t *in, const char *text, const char *end,
                       const schema_set_t *place, int depth) {
  element_t element;
  buffer_char(in->out, '[');
  for (uint32_t index = 0; next_element(in, &text, end, &element); index++) {
    schema_set_t inside;
    json_schema_step(place, NULL, 0, index, &inside, &in->fuel);
    if (index > 0) buffer_text(in->out, ", ");
    read_value(in, element.text, element.length, &inside, depth + 1);
  }
  buffer_char(in->out, ']');
}

static bool same_name(const element_t *left, const element_t *right) {
  return left->tag.length == right->tag.length &&
         memcmp(left->tag.name, right->tag.name, left->tag.length) == 0;
}

/* The value of a member, with those of the further elements of its name. */
static void read_member(element_reading_t *in, const element_t *first, const char *text,
                        const char *end, const schema_set_t *place, int depth) {
  schema_set_t inside;
  element_t other;
  bool many = false;
  json_schema_step(place, first->tag.name, first->tag.length, 0, &inside, &in->fuel);
  for (const char *at = text; !many && next_element(in, &at, end, &other);)
    many = same_name(first, &other);
  if (many) buffer_char(in->out, '[');
  read_value(in, first->text, first->length, &inside, depth + 1);
  while (many && next_element(in, &text, end, &other)) {
    if (!same_name(first, &other)) continue;
    buffer_text(in->out, ", ");
    read_value(in, other.text, other.length, &inside, depth + 1);
  }
  if (many) buffer_char(in->out, ']');
}

static void read_object(element_reading_t *in, const char *text, const char *end,
                        const schema_set_t *place, int depth) {
  element_t element;
  buffer_t names = {0};
  bool any = false;
  buffer_char(in->out, '{');
  while (next_element(in, &text, end, &element)) {
    if (!argument_add_key(&names, element.tag.name, element.tag.length)) continue;
    if (any) buffer_text(in->out, ", ");
    any = true;
    buffer_quote(in->out, element.tag.name, element.tag.length);
    buffer_text(in->out, ": ");
    read_member(in, &element, text, end, place, depth);
  }
  buffer_char(in->out, '}');
  in->out->failed = in->out->failed || names.failed;
  buffer_free(&names);
}

static void read_value(element_reading_t *in, const char *text, size_t length,
                       const schema_set_t *place, int depth) {
  uint32_t types = json_schema_set_types(place, &in->fuel);
  bool array = types & TYPE_ARRAY, object = types & TYPE_OBJECT;
  if (depth > DEPTH_MAX || !(array || object) || !is_elements(in, text, length)) {
    read_text(in, text, length, types);
    return;
  }
  element_t first;
  const char *at = text, *end = text + length;
  next_element(in, &at, end, &first);
  bool item = first.tag.length == 4 && memcmp(first.tag.name, "item", 4) == 0;
  if (array && (item || !object)) {
    read_array(in, text, end, place, depth);
  } else {
    read_object(in, text, end, place, depth);
  }
}

void element_read(buffer_t *out, const char *mark, const char *text, size_t length,
                  const schema_set_t *place) {
  element_reading_t in = {.out = out, .mark = mark, .fuel = FUEL};
  read_value(&in, text, length, place, 0);
}
