/* structural_tag.c: structural tags, free text with tags in which the output has a form -> a tree
 * of sources.
 *
 * Stage 2 of 9, first half. Loop thread or libuv's pool; keeps no state. Formats are those of
 * XGrammar; a text that stands behind free text is taken where it first occurs, as a reader of the
 * output takes it. Begins, ends and triggers may also be written by added tokens of the model. What
 * is not enforced exactly is refused with its place. The tree lies in the request's arena. Next:
 * server/completion/constraint.c.
 */
#include "server/fields/structural_tag.h"

#include "engine/base/util.h"
#include "server/fields/tag_tokens.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  FORMAT_DEPTH_MAX = 10,
  FORMATS_MAX = 1000, /* of a request, tags among them */
  TEXTS_MAX = 32,     /* of a list: triggers, ends, excludes */
  REPEAT_MAX = 10000,
  PLACE_MAX = ERROR_PLACE_MAX
};

typedef struct tag_texts {
  const span_t *items;
  uint32_t count;
} tag_texts_t;

typedef struct tagger {
  reader_t *reader;
  const char *param;     /* field of the request */
  char place[PLACE_MAX]; /* of the format being read, "response_format.format.elements[1]" */
  uint32_t depth;        /* formats around it */
  uint32_t formats;      /* read so far */
  uint32_t repeats;      /* repetitions around it, within the innermost tag */
  tag_texts_t stops;     /* ends of the innermost tag: free text does not go past them */
  id_list_t *shown;      /* tokens that are marks: they are printed */
  int code;              /* 0, or that of the first error */
} tagger_t;

/* Reads a format. If `ends` are given, one of these texts follows it, and is part of the source. */
static grammar_source_t build(tagger_t *tagger, const json_t *format, tag_texts_t ends);

/* ---- places and errors ---- */

/* Appends to the place; returns its length before, for leave(). */
__attribute__((format(printf, 2, 3))) static size_t enter(tagger_t *tagger, const char *step, ...) {
  size_t length = strlen(tagger->place);
  va_list arguments;
  va_start(arguments, step);
  vsnprintf(tagger->place + length, PLACE_MAX - length, step, arguments);
  va_end(arguments);
  return length;
}

static void leave(tagger_t *tagger, size_t length) {
  tagger->place[length] = '\0';
}

/* Sets the error "'PLACE.MEMBER' REASON.", unless there is one. */
__attribute__((format(printf, 4, 5))) static void
fail(tagger_t *tagger, int code, const char *member, const char *format, ...) {
  const char *dot = member[0] != '\0' && member[0] != '[' ? "." : "";
  char reason[160];
  va_list arguments;
  if (tagger->code != 0) return;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  tagger->code = error_set(tagger->reader->error, code, tagger->param, "'%s%s%s' %s.",
                           tagger->place, dot, member, reason);
}

static void check_memory(tagger_t *tagger, const void *piece) {
  if (piece == NULL && tagger->code == 0)
    tagger->code = error_set(tagger->reader->error, ERR_INTERNAL, NULL, "Out of memory.");
}

static void *allocate(tagger_t *tagger, size_t count, size_t size) {
  void *piece = arena_calloc(tagger->reader->arena, MAX(count, 1), size);
  check_memory(tagger, piece);
  return piece;
}

/* ---- sources ---- */

static grammar_source_t literal(const char *text, size_t length) {
  return (grammar_source_t){.kind = GRAMMAR_LITERAL, .text = text, .length = length};
}

static grammar_source_t group(tagger_t *tagger, grammar_kind_t kind, const grammar_source_t *items,
                              uint32_t count) {
  grammar_source_t *children = allocate(tagger, count, sizeof *children);
  if (children == NULL) return literal("", 0);
  memcpy(children, items, count * sizeof *children);
  return (grammar_source_t){.kind = kind, .children = children, .num_children = (int32_t)count};
}

static grammar_source_t repeat(tagger_t *tagger, grammar_source_t body, uint32_t min,
                               uint32_t max) {
  grammar_source_t source = group(tagger, GRAMMAR_REPEAT, &body, 1);
  source.min = min;
  source.max = max;
  return source;
}

/* A text as its characters, or with tokens of the model for the parts that are such. */
static grammar_source_t spelled(tagger_t *tagger, const char *text, size_t length) {
  grammar_source_t ways[2] = {literal(text, length)};
  bool has = tag_in_tokens(tagger->reader, (span_t){text, length}, tagger->shown, &ways[1]);
  return has ? group(tagger, GRAMMAR_ALTERNATIVES, ways, 2) : ways[0];
}

static grammar_source_t one_of(tagger_t *tagger, tag_texts_t texts) {
  grammar_source_t *children = allocate(tagger, texts.count, sizeof *children);
  if (children == NULL) return literal("", 0);
  for (uint32_t i = 0; i < texts.count; i++)
    children[i] = literal(texts.items[i].text, texts.items[i].length);
  return (grammar_source_t){
      .kind = GRAMMAR_ALTERNATIVES, .children = children, .num_children = (int32_t)texts.count};
}

static grammar_source_t one_end(tagger_t *tagger, tag_texts_t ends) {
  grammar_source_t *children = allocate(tagger, ends.count, sizeof *children);
  if (children == NULL) return literal("", 0);
  for (uint32_t i = 0; i < ends.count; i++)
    children[i] = spelled(tagger, ends.items[i].text, ends.items[i].length);
  return (grammar_source_t){
      .kind = GRAMMAR_ALTERNATIVES, .children = children, .num_children = (int32_t)ends.count};
}

static grammar_source_t then_ends(tagger_t *tagger, grammar_source_t source, tag_texts_t ends) {
  if (ends.count == 0) return source;
  return group(tagger, GRAMMAR_SEQUENCE, (grammar_source_t[]){source, one_end(tagger, ends)}, 2);
}

static bool same(span_t left, span_t right) {
  return left.length == right.length && memcmp(left.text, right.text, left.length) == 0;
}

static bool holds(span_t text, span_t part) {
  return memmem(text.text, text.length, part.text, part.length) != NULL;
}

static bool among(tag_texts_t texts, span_t text) {
  for (uint32_t i = 0; i < texts.count; i++) {
    if (same(texts.items[i], text)) return true;
  }
  return false;
}

static tag_texts_t joined(tagger_t *tagger, tag_texts_t left, tag_texts_t right) {
  span_t *items = allocate(tagger, left.count + right.count, sizeof *items);
  if (items == NULL) return (tag_texts_t){0};
  if (left.count > 0) memcpy(items, left.items, left.count * sizeof *items);
  if (right.count > 0) memcpy(items + left.count, right.items, right.count * sizeof *items);
  return (tag_texts_t){items, left.count + right.count};
}

/* Free text up to the end of the first of `texts` that occurs, which is one of from .. until - 1,
 * or up to one of these in tokens; if these are none, text in which none of `texts` occurs. */
static grammar_source_t free_text(tagger_t *tagger, tag_texts_t texts, uint32_t from,
                                  uint32_t until) {
  grammar_source_t without = one_of(tagger, texts), up_to = without, tokens;
  without.kind = GRAMMAR_TEXT_WITHOUT;
  if (from == until) return without;
  up_to.kind = GRAMMAR_TEXT;
  up_to.min = from;
  up_to.max = until;
  for (uint32_t i = from; i < until; i++) {
    if (!tag_in_tokens(tagger->reader, texts.items[i], tagger->shown, &tokens)) continue;
    const grammar_source_t pair[] = {without, tokens};
    up_to = group(tagger, GRAMMAR_ALTERNATIVES,
                  (grammar_source_t[]){up_to, group(tagger, GRAMMAR_SEQUENCE, pair, 2)}, 2);
  }
  return up_to;
}

/* ---- members ---- */

static const json_t *member(tagger_t *tagger, const json_t *object, const char *name,
                            json_type_t type, const char *expected) {
  const json_t *value = json_get(object, name);
  if (!json_is_given(value)) {
    fail(tagger, ERR_MISSING_PARAMETER, name, "is missing");
  } else if (value->type != type) {
    fail(tagger, ERR_INVALID_TYPE, name, "must be %s, not %s", expected, json_type_name(value));
  } else {
    return value;
  }
  return NULL;
}

static span_t text_of(tagger_t *tagger, const json_t *object, const char *name) {
  const json_t *value = member(tagger, object, name, JSON_STRING, "a string");
  return value != NULL ? (span_t){value->text, value->length} : (span_t){"", 0};
}

static bool flag(tagger_t *tagger, const json_t *object, const char *name, bool otherwise) {
  const json_t *value = json_get(object, name);
  bool out = otherwise;
  if (json_is_given(value) && !json_bool(value, &out))
    fail(tagger, ERR_INVALID_TYPE, name, "must be a boolean, not %s", json_type_name(value));
  return out;
}

/* A list of texts that are not empty; absent is an empty one. */
static tag_texts_t texts_of(tagger_t *tagger, const json_t *object, const char *name) {
  const json_t *list = json_get(object, name);
  if (!json_is_given(list)) return (tag_texts_t){0};
  if (list->type != JSON_ARRAY) {
    fail(tagger, ERR_INVALID_TYPE, name, "must be a list of strings");
    return (tag_texts_t){0};
  }
  if (list->count > TEXTS_MAX) {
    fail(tagger, ERR_BAD_REQUEST, name, "has %u texts, at most %d", list->count, TEXTS_MAX);
    return (tag_texts_t){0};
  }
  span_t *items = allocate(tagger, list->count, sizeof *items);
  uint32_t count = 0;
  JSON_EACH(item, list) {
    if (item->type != JSON_STRING || item->length == 0)
      fail(tagger, ERR_INVALID_VALUE, name, "must be a list of strings that are not empty");
    if (tagger->code != 0) return (tag_texts_t){0};
    items[count++] = (span_t){item->text, item->length};
  }
  return (tag_texts_t){items, count};
}

static void check_names(tagger_t *tagger, const json_t *object, const char *known) {
  JSON_EACH(value, object) {
    char quoted[64], name[64];
    snprintf(name, sizeof name, " %.*s ", (int)MIN(value->key_length, 60u), value->key);
    bool is_word = strlen(name) == value->key_length + 2 && strchr(name + 1, ' ')[1] == '\0';
    if (value->type == JSON_NULL || (is_word && strstr(known, name) != NULL)) continue;
    error_quote(quoted, sizeof quoted, value->key, value->key_length);
    fail(tagger, ERR_UNSUPPORTED_PARAMETER, quoted, "is not supported");
  }
}

static void count_format(tagger_t *tagger) {
  if (++tagger->formats > FORMATS_MAX)
    fail(tagger, ERR_BAD_REQUEST, "", "is one of more than %d formats", FORMATS_MAX);
}

/* ---- leaves ---- */

static grammar_source_t const_string(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  const span_t value = text_of(tagger, format, "value");
  return then_ends(tagger, spelled(tagger, value.text, value.length), ends);
}

static grammar_source_t leaf(tagger_t *tagger, grammar_kind_t kind) {
  const char *place = arena_copy(tagger->reader->arena, tagger->place, strlen(tagger->place));
  check_memory(tagger, place);
  if (tagger->code == 0)
    tagger->code =
        closed_check_kind(tagger->reader->limits, kind, tagger->param, tagger->reader->error);
  return (grammar_source_t){.kind = kind, .param = place};
}

/* A schema, or what the older form has under "schema". */
static grammar_source_t of_schema(tagger_t *tagger, const json_t *object, const char *name,
                                  tag_texts_t ends) {
  grammar_source_t source = leaf(tagger, GRAMMAR_JSON_SCHEMA);
  source.schema = json_get(object, name);
  source.known_only = tagger->reader->limits->strict;
  bool is_bool = source.schema != NULL &&
                 (source.schema->type == JSON_TRUE || source.schema->type == JSON_FALSE);
  if (!is_bool) source.schema = member(tagger, object, name, JSON_OBJECT, "a JSON schema");
  if (tagger->code == 0)
    tagger->code = closed_check_patterns(tagger->reader->limits, source.schema, tagger->param,
                                         tagger->reader->error);
  return then_ends(tagger, source, ends);
}

static grammar_source_t json_schema(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  const json_t *style = json_get(format, "style");
  flag(tagger, format, "any_order", false); /* the order of the schema is one of them */
  if (json_is_given(style) && !json_equals(style, "json"))
    fail(tagger, ERR_UNSUPPORTED_PARAMETER, "style", "must be \"json\"; no other is supported");
  return of_schema(tagger, format, "json_schema", ends);
}

static grammar_source_t of_text(tagger_t *tagger, grammar_kind_t kind, span_t text,
                                tag_texts_t ends) {
  grammar_source_t source = leaf(tagger, kind);
  source.text = text.text;
  source.length = text.length;
  return then_ends(tagger, source, ends);
}

static grammar_source_t regex(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return of_text(tagger, GRAMMAR_REGEX, text_of(tagger, format, "pattern"), ends);
}

static grammar_source_t grammar(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return of_text(tagger, GRAMMAR_EBNF, text_of(tagger, format, "grammar"), ends);
}

/* Where free text may stand: it has to end before something begins anew. */
static void check_free(tagger_t *tagger) {
  if (tagger->repeats > 0)
    fail(tagger, ERR_UNSUPPORTED_PARAMETER, "", "is free text without an end in a repetition");
}

/* A text that is to be found behind free text must not be hidden by another. */
static void check_texts(tagger_t *tagger, tag_texts_t wanted, tag_texts_t others) {
  for (uint32_t i = 0; i < wanted.count; i++) {
    for (uint32_t k = 0; k < others.count; k++) {
      if (!holds(wanted.items[i], others.items[k])) continue;
      char quoted[64];
      error_quote(quoted, sizeof quoted, others.items[k].text, others.items[k].length);
      fail(tagger, ERR_INVALID_VALUE, "", "hides a trigger or end by the text '%s' within it",
           quoted);
    }
  }
}

static tag_texts_t others_than(tagger_t *tagger, tag_texts_t texts, uint32_t index) {
  span_t *items = allocate(tagger, texts.count, sizeof *items);
  uint32_t count = 0;
  for (uint32_t i = 0; i < texts.count && items != NULL; i++) {
    if (i != index) items[count++] = texts.items[i];
  }
  return (tag_texts_t){items, count};
}

/* Each of the texts is taken where it first occurs, so none may lie within another. */
static void check_apart(tagger_t *tagger, tag_texts_t texts) {
  for (uint32_t i = 0; i < texts.count && tagger->code == 0; i++)
    check_texts(tagger, (tag_texts_t){texts.items + i, 1}, others_than(tagger, texts, i));
}

static grammar_source_t any_text(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  tag_texts_t excludes = texts_of(tagger, format, "excludes");
  if (ends.count == 0) check_free(tagger);
  for (uint32_t i = 0; i < excludes.count; i++) {
    if (!among(ends, excludes.items[i]))
      check_texts(tagger, ends, (tag_texts_t){excludes.items + i, 1});
  }
  const tag_texts_t stops = joined(tagger, tagger->stops, excludes);
  return free_text(tagger, stops, 0, ends.count);
}

/* ---- compositions ---- */

static const json_t *elements_of(tagger_t *tagger, const json_t *format, const char *name) {
  const json_t *list = member(tagger, format, name, JSON_ARRAY, "a list");
  if (list != NULL && list->count == 0) fail(tagger, ERR_INVALID_VALUE, name, "must not be empty");
  if (list != NULL && list->count > FORMATS_MAX)
    fail(tagger, ERR_BAD_REQUEST, name, "has %u elements, at most %d", list->count, FORMATS_MAX);
  return tagger->code == 0 ? list : NULL;
}

static grammar_source_t elements(tagger_t *tagger, const json_t *format, grammar_kind_t kind,
                                 tag_texts_t ends) {
  const json_t *list = elements_of(tagger, format, "elements");
  grammar_source_t *children =
      list != NULL ? allocate(tagger, list->count, sizeof *children) : NULL;
  if (children == NULL) return literal("", 0);
  uint32_t count = 0;
  JSON_EACH(element, list) {
    bool is_last = kind == GRAMMAR_ALTERNATIVES || count + 1 == list->count;
    size_t place = enter(tagger, ".elements[%u]", count);
    children[count++] = build(tagger, element, is_last ? ends : (tag_texts_t){0});
    leave(tagger, place);
    if (tagger->code != 0) break;
  }
  return (grammar_source_t){.kind = kind, .children = children, .num_children = (int32_t)count};
}

static grammar_source_t sequence(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return elements(tagger, format, GRAMMAR_SEQUENCE, ends);
}

static grammar_source_t either(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return elements(tagger, format, GRAMMAR_ALTERNATIVES, ends);
}

static grammar_source_t content_of(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  const json_t *content = member(tagger, format, "content", JSON_OBJECT, "a format");
  if (content == NULL) return literal("", 0);
  size_t place = enter(tagger, ".content");
  grammar_source_t source = build(tagger, content, ends);
  leave(tagger, place);
  return source;
}

static grammar_source_t optional(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  grammar_source_t source = content_of(tagger, format, ends);
  if (ends.count == 0) return repeat(tagger, source, 0, 1);
  return group(tagger, GRAMMAR_ALTERNATIVES, (grammar_source_t[]){source, one_end(tagger, ends)},
               2);
}

static grammar_source_t repeated(tagger_t *tagger, const json_t *format, uint32_t min, uint32_t max,
                                 tag_texts_t ends) {
  tagger->repeats++;
  grammar_source_t source = repeat(tagger, content_of(tagger, format, (tag_texts_t){0}), min, max);
  tagger->repeats--;
  return then_ends(tagger, source, ends);
}

static grammar_source_t plus(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return repeated(tagger, format, 1, UINT32_MAX, ends);
}

static grammar_source_t star(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return repeated(tagger, format, 0, UINT32_MAX, ends);
}

static grammar_source_t times(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  int64_t min = 0, max = 0;
  const json_t *low = json_get(format, "min"), *high = json_get(format, "max");
  if (low == NULL || !json_int64(low, &min) || min < 0 || min > REPEAT_MAX)
    fail(tagger, ERR_INVALID_VALUE, "min", "must be an integer from 0 to %d", REPEAT_MAX);
  if (high == NULL || !json_int64(high, &max) || max < -1 || max > REPEAT_MAX)
    fail(tagger, ERR_INVALID_VALUE, "max", "must be an integer from -1 to %d", REPEAT_MAX);
  if (max >= 0 && max < min)
    fail(tagger, ERR_INVALID_VALUE, "max", "is %lld, below the %lld of 'min'", (long long)max,
         (long long)min);
  return repeated(tagger, format, (uint32_t)min, max < 0 ? UINT32_MAX : (uint32_t)max, ends);
}

/* ---- tags ---- */

static tag_texts_t ends_of(tagger_t *tagger, const json_t *tag) {
  const json_t *end = json_get(tag, "end");
  if (end != NULL && end->type == JSON_ARRAY) {
    tag_texts_t ends = texts_of(tagger, tag, "end");
    check_apart(tagger, ends);
    return ends;
  }
  span_t *item = allocate(tagger, 1, sizeof *item);
  const span_t text = text_of(tagger, tag, "end");
  if (item != NULL) *item = text;
  return (tag_texts_t){item, text.length > 0}; /* an empty end is none */
}

/* What stands behind the first `skip` bytes of a tag's begin. `name`: of the schema of the older
 * form; NULL = the tag has content. */
static grammar_source_t tag_from(tagger_t *tagger, const json_t *tag, size_t skip,
                                 const char *name) {
  const span_t begin = text_of(tagger, tag, "begin");
  const tag_texts_t ends = ends_of(tagger, tag), outer = tagger->stops;
  uint32_t repeats = tagger->repeats;
  check_names(tagger, tag, name != NULL ? " begin schema end " : " type begin content end ");
  if (tagger->code != 0) return literal("", 0);
  if (ends.count > 0) {
    tagger->stops = ends;
    tagger->repeats = 0;
  }
  grammar_source_t inside =
      name != NULL ? of_schema(tagger, tag, name, ends) : content_of(tagger, tag, ends);
  tagger->stops = outer;
  tagger->repeats = repeats;
  return group(
      tagger, GRAMMAR_SEQUENCE,
      (grammar_source_t[]){spelled(tagger, begin.text + skip, begin.length - skip), inside}, 2);
}

static grammar_source_t tag(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return then_ends(tagger, tag_from(tagger, format, 0, NULL), ends);
}

/* The tags of a list as alternatives; with `trigger` only those that begin with it, without it.
 * Returns no alternative if there is none. */
static grammar_source_t tags_of(tagger_t *tagger, const json_t *list, const char *list_name,
                                const span_t *trigger, const char *schema_name) {
  grammar_source_t *children = allocate(tagger, list->count, sizeof *children);
  uint32_t count = 0, index = 0;
  JSON_EACH(item, list) {
    size_t place = enter(tagger, ".%s[%u]", list_name, index++), skip = 0;
    if (item->type != JSON_OBJECT) fail(tagger, ERR_INVALID_TYPE, "", "must be a tag");
    if (schema_name == NULL && !json_equals(json_get(item, "type"), "tag"))
      fail(tagger, ERR_INVALID_VALUE, "type", "must be \"tag\"");
    const span_t begin = tagger->code == 0 ? text_of(tagger, item, "begin") : (span_t){"", 0};
    bool taken = trigger == NULL || (begin.length >= trigger->length &&
                                     memcmp(begin.text, trigger->text, trigger->length) == 0);
    if (trigger != NULL) skip = trigger->length;
    if (taken) count_format(tagger);
    if (tagger->code == 0 && taken && children != NULL)
      children[count++] = tag_from(tagger, item, skip, schema_name);
    leave(tagger, place);
    if (tagger->code != 0) break;
  }
  return (grammar_source_t){
      .kind = GRAMMAR_ALTERNATIVES, .children = children, .num_children = (int32_t)count};
}

/* Free text in which each trigger starts what follows it. `turns`: what follows each trigger. */
typedef struct triggered {
  tag_texts_t triggers, excludes;
  const grammar_source_t *turns;
  const grammar_source_t *first; /* the text begins with this; NULL = with free text */
  bool once;                     /* it ends behind the first of them */
} triggered_t;

static grammar_source_t build_triggered(tagger_t *tagger, const triggered_t *made,
                                        tag_texts_t ends) {
  const tag_texts_t stops = tagger->stops, marks = joined(tagger, made->triggers, stops);
  check_apart(tagger, marks);
  for (uint32_t i = 0; i < made->excludes.count; i++) {
    if (!among(stops, made->excludes.items[i]))
      check_texts(tagger, marks, (tag_texts_t){made->excludes.items + i, 1});
  }
  const tag_texts_t texts = joined(tagger, marks, made->excludes);
  grammar_source_t *turns = allocate(tagger, made->triggers.count, sizeof *turns);
  if (tagger->code != 0) return literal("", 0);
  for (uint32_t i = 0; i < made->triggers.count; i++) {
    const grammar_source_t pair[] = {free_text(tagger, texts, i, i + 1), made->turns[i]};
    turns[i] = group(tagger, GRAMMAR_SEQUENCE, pair, 2);
  }
  const grammar_source_t turn = {.kind = GRAMMAR_ALTERNATIVES,
                                 .children = turns,
                                 .num_children = (int32_t)made->triggers.count};
  const grammar_source_t rest =
      free_text(tagger, texts, made->triggers.count, made->triggers.count + ends.count);
  if (made->first != NULL && made->once) return then_ends(tagger, *made->first, ends);
  if (made->once)
    return group(tagger, GRAMMAR_ALTERNATIVES,
                 (grammar_source_t[]){then_ends(tagger, turn, ends), rest}, 2);
  const grammar_source_t more = repeat(tagger, turn, 0, UINT32_MAX);
  if (made->first == NULL)
    return group(tagger, GRAMMAR_SEQUENCE, (grammar_source_t[]){more, rest}, 2);
  return group(tagger, GRAMMAR_SEQUENCE, (grammar_source_t[]){*made->first, more, rest}, 3);
}

/* Tags behind triggers, in both forms. */
static grammar_source_t triggered(tagger_t *tagger, const json_t *format, const char *list_name,
                                  const char *schema_name, tag_texts_t ends) {
  const json_t *list = elements_of(tagger, format, list_name);
  triggered_t made = {.triggers = texts_of(tagger, format, "triggers"),
                      .excludes = texts_of(tagger, format, "excludes"),
                      .once = flag(tagger, format, "stop_after_first", false)};
  bool at_least_one = flag(tagger, format, "at_least_one", false);
  if (tagger->code == 0 && made.triggers.count == 0)
    fail(tagger, ERR_MISSING_PARAMETER, "triggers", "must hold a text");
  if (ends.count == 0) check_free(tagger);
  check_apart(tagger, made.triggers);
  grammar_source_t *turns = allocate(tagger, made.triggers.count, sizeof *turns);
  grammar_source_t *firsts = allocate(tagger, made.triggers.count, sizeof *firsts);
  int32_t used = 0;
  for (uint32_t i = 0; tagger->code == 0 && i < made.triggers.count; i++) {
    turns[i] = tags_of(tagger, list, list_name, &made.triggers.items[i], schema_name);
    used += turns[i].num_children;
    const grammar_source_t pair[] = {
        spelled(tagger, made.triggers.items[i].text, made.triggers.items[i].length), turns[i]};
    firsts[i] = group(tagger, GRAMMAR_SEQUENCE, pair, 2);
    if (tagger->code == 0 && turns[i].num_children == 0)
      fail(tagger, ERR_INVALID_VALUE, "triggers", "holds a text with which no tag begins");
  }
  if (tagger->code == 0 && used < (int32_t)list->count)
    fail(tagger, ERR_INVALID_VALUE, list_name, "holds a tag that begins with no trigger");
  const grammar_source_t first = {.kind = GRAMMAR_ALTERNATIVES,
                                  .children = firsts,
                                  .num_children = (int32_t)made.triggers.count};
  if (at_least_one) made.first = &first;
  made.turns = turns;
  return tagger->code == 0 ? build_triggered(tagger, &made, ends) : literal("", 0);
}

static grammar_source_t triggered_tags(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  return triggered(tagger, format, "tags", NULL, ends);
}

static grammar_source_t dispatch(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  const json_t *rules = elements_of(tagger, format, "rules");
  if (rules != NULL && rules->count > TEXTS_MAX)
    fail(tagger, ERR_BAD_REQUEST, "rules", "has %u rules, at most %d", rules->count, TEXTS_MAX);
  uint32_t count = rules != NULL ? rules->count : 0, index = 0;
  grammar_source_t *turns = allocate(tagger, count, sizeof *turns);
  span_t *triggers = allocate(tagger, count, sizeof *triggers);
  triggered_t made = {.triggers = {triggers, count},
                      .excludes = texts_of(tagger, format, "excludes"),
                      .turns = turns,
                      .once = !flag(tagger, format, "loop", true)};
  if (ends.count == 0) check_free(tagger);
  if (tagger->code != 0) return literal("", 0);
  JSON_EACH(rule, rules) {
    size_t place = enter(tagger, ".rules[%u]", index);
    const json_t *text = rule->type == JSON_ARRAY && rule->count == 2 ? json_first(rule) : NULL;
    if (text == NULL || text->type != JSON_STRING || text->length == 0) {
      fail(tagger, ERR_INVALID_VALUE, "", "must be a list of a text and a format");
      break;
    }
    triggers[index] = (span_t){text->text, text->length};
    enter(tagger, "[1]");
    turns[index++] = build(tagger, json_next(text), (tag_texts_t){0});
    leave(tagger, place);
    if (tagger->code != 0) break;
  }
  return tagger->code == 0 ? build_triggered(tagger, &made, ends) : literal("", 0);
}

static grammar_source_t tags_with_separator(tagger_t *tagger, const json_t *format,
                                            tag_texts_t ends) {
  const json_t *list = elements_of(tagger, format, "tags");
  const span_t separator = text_of(tagger, format, "separator");
  uint32_t min = flag(tagger, format, "at_least_one", false);
  uint32_t max = flag(tagger, format, "stop_after_first", false) ? 1 : UINT32_MAX;
  if (tagger->code != 0) return literal("", 0);
  const grammar_source_t pair[] = {tags_of(tagger, list, "tags", NULL, NULL),
                                   spelled(tagger, separator.text, separator.length)};
  grammar_source_t source = group(tagger, GRAMMAR_REPEAT, pair, separator.length > 0 ? 2 : 1);
  source.min = min;
  source.max = max;
  return then_ends(tagger, source, ends);
}

/* ---- formats ---- */

static const struct {
  const char *name;
  grammar_source_t (*build)(tagger_t *tagger, const json_t *format, tag_texts_t ends);
  const char *members; /* between blanks */
} formats[] = {
    {"const_string", const_string, " type value "},
    {"json_schema", json_schema, " type json_schema style any_order "},
    {"grammar", grammar, " type grammar "},
    {"regex", regex, " type pattern "},
    {"any_text", any_text, " type excludes "},
    {"sequence", sequence, " type elements "},
    {"or", either, " type elements "},
    {"optional", optional, " type content "},
    {"plus", plus, " type content "},
    {"star", star, " type content "},
    {"repeat", times, " type min max content "},
    {"tag", tag, " type begin content end "},
    {"triggered_tags", triggered_tags,
     " type triggers tags at_least_one stop_after_first excludes "},
    {"tags_with_separator", tags_with_separator,
     " type tags separator at_least_one stop_after_first "},
    {"dispatch", dispatch, " type rules loop excludes "},
};

static grammar_source_t build(tagger_t *tagger, const json_t *format, tag_texts_t ends) {
  grammar_source_t source = literal("", 0);
  if (format->type != JSON_OBJECT) fail(tagger, ERR_INVALID_TYPE, "", "must be a format");
  const json_t *type =
      tagger->code == 0 ? member(tagger, format, "type", JSON_STRING, "a string") : NULL;
  if (tagger->depth >= FORMAT_DEPTH_MAX)
    fail(tagger, ERR_BAD_REQUEST, "", "is nested in %d formats, which is the limit",
         FORMAT_DEPTH_MAX);
  count_format(tagger);
  if (tagger->code != 0) return source;
  tagger->depth++;
  for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
    if (!json_equals(type, formats[i].name)) continue;
    check_names(tagger, format, formats[i].members);
    if (tagger->code == 0) source = formats[i].build(tagger, format, ends);
    tagger->depth--;
    return source;
  }
  char quoted[64];
  error_quote(quoted, sizeof quoted, type->text, type->length);
  fail(tagger, ERR_UNSUPPORTED_PARAMETER, "type", "'%s' is no format that is supported", quoted);
  return source;
}

int structural_tag_read(reader_t *reader, const char *param, const json_t *value,
                        const grammar_source_t **out, id_list_t *shown) {
  tagger_t tagger = {.reader = reader, .param = param, .shown = shown};
  grammar_source_t *source = allocate(&tagger, 1, sizeof *source);
  if (source == NULL) return tagger.code;
  enter(&tagger, "%s", param);
  const json_t *format = json_get(value, "format");
  if (!json_equals(json_get(value, "type"), "structural_tag")) {
    fail(&tagger, ERR_INVALID_VALUE, "type", "must be \"structural_tag\"");
  } else if (json_is_given(json_get(value, "structures"))) {
    check_names(&tagger, value, " type structures triggers ");
    if (tagger.code == 0)
      *source = triggered(&tagger, value, "structures", "schema", (tag_texts_t){0});
  } else if (!json_is_given(format)) {
    fail(&tagger, ERR_MISSING_PARAMETER, "format", "is missing");
  } else {
    check_names(&tagger, value, " type format ");
    enter(&tagger, ".format");
    if (tagger.code == 0) *source = build(&tagger, format, (tag_texts_t){0});
  }
  *out = source;
  return tagger.code;
}
