/* history.c: the history of a chat request with what is broken in it mended, see history.h.
 *
 * Stage 2 of 9, before chat_fields.c. Loop thread or a job of the lanes; keeps no state. There are
 * two passes over the messages: the first finds which call each result answers and which ids need
 * others. The second prints; it runs without a buffer first, to learn whether there is anything to
 * mend, because most requests have nothing.
 */
#include "server/fields/history.h"

#include "engine/base/util.h"
#include "server/media/media.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

/* A call of the assistant, in the order of the messages. */
typedef struct known_call {
  const json_t *id, *name; /* NULL = none */
  int32_t message;
  int32_t group; /* of the calls with its id; NONE without one */
  int32_t next;  /* the next call with this id in the same message; NONE */
  bool answered; /* a result was met */
  bool renamed;  /* it gets another id than it has */
  bool odd_id;   /* the id is no text */
} known_call_t;

/* The calls that have one id, as far as the first pass has come. Clients use an id again in later
 * messages: a result then means a call of the last message that has it. */
typedef struct id_group {
  int32_t open; /* the next call that a result answers; NONE */
  int32_t last; /* the last call that was met; NONE */
} id_group_t;

typedef struct mender {
  reader_t *reader;
  const history_rules_t *rules;
  unsigned refused; /* SHAPE_ bits that are mended in this request */
  bool has_tools;
  bool lenient, places;
  bool systems_alone;    /* all messages are the system's */
  bool ends_with_user;   /* the last message is the user's */
  const int32_t *origin; /* the index that each message had; NULL: its own */
  const json_t *messages;
  known_call_t *calls;
  int32_t num_calls;
  const json_t **ids; /* sorted, each once */
  id_group_t *groups; /* [num_ids] */
  int32_t num_ids;
  int32_t *results; /* the call that each result answers, NONE = it is not there */
  int32_t num_results;
  /* the second pass */
  buffer_t *out; /* NULL: nothing is printed, mendings are named */
  bool changed;
  int32_t index;                  /* of the message that is printed */
  bool text_apart;                /* its text is a message of its own, printed before */
  int32_t only_call;              /* the one of its calls that is printed; NONE: all */
  int32_t next_call, next_result; /* of those that are printed */
  int32_t num_printed;
} mender_t;

void history_left_out(const json_t *type, char text[LEFT_OUT_MAX], char what[LEFT_OUT_MAX]) {
  static const char *const nouns[][2] = {
      {"image", "image"},   {"screenshot", "image"},        {"audio", "audio"}, {"video", "video"},
      {"document", "file"}, {"file_search", "file_search"}, {"file", "file"},   {"upload", "file"}};
  char noun[40] = "part";
  if (type != NULL && type->type == JSON_STRING && type->length > 0) {
    size_t length = MIN(type->length, sizeof noun - 1);
    for (size_t i = 0; i < length; i++) {
      char c = type->text[i];
      bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      noun[i] = c;
      if (!plain) noun[i] = '_';
    }
    noun[length] = '\0';
  }
  for (size_t i = 0; i < ARRAY_LEN(nouns); i++) {
    if (strstr(noun, nouns[i][0]) == NULL) continue;
    snprintf(noun, sizeof noun, "%s", nouns[i][1]);
    break;
  }
  snprintf(text, LEFT_OUT_MAX, "[%s left out]", noun);
  snprintf(what, LEFT_OUT_MAX, "%s_left_out", noun);
}

/* ---- the first pass: calls and their results ---- */

static bool is_role(const json_t *message, const char *role) {
  return json_equals(json_get(message, "role"), role);
}

static bool is_result(const json_t *message) {
  return is_role(message, "tool") || is_role(message, "function");
}

static bool is_system(const json_t *message) {
  return is_role(message, "system") || is_role(message, "developer");
}

static bool is_of_chat(const json_t *message) {
  return is_result(message) || is_system(message) || is_role(message, "user") ||
         is_role(message, "assistant");
}

const char *history_other_role(const json_t *role) {
  static const char *const meant[][2] = {
      {"human", "user"},    {"ai", "assistant"},      {"model", "assistant"},
      {"bot", "assistant"}, {"gpt", "assistant"},     {"chatbot", "assistant"},
      {"ipython", "tool"},  {"tool_result", "tool"},  {"tool_results", "tool"},
      {"user", "user"},     {"system", "system"},     {"developer", "developer"},
      {"tool", "tool"},     {"function", "function"}, {"assistant", "assistant"}};
  char name[16];
  if (role == NULL || role->type != JSON_STRING || role->length >= sizeof name) return NULL;
  for (uint32_t i = 0; i < role->length; i++) {
    char c = role->text[i];
    name[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  name[role->length] = '\0';
  for (size_t i = 0; i < ARRAY_LEN(meant); i++) {
    if (strcmp(name, meant[i][0]) == 0) return json_equals(role, meant[i][1]) ? NULL : meant[i][1];
  }
  return NULL;
}

static const json_t *list_of(const json_t *object, const char *name) {
  const json_t *list = json_get(object, name);
  return list != NULL && list->type == JSON_ARRAY ? list : NULL;
}

/* A function call of OpenAI's first form, on a message of the assistant. */
static const json_t *old_call(const json_t *message) {
  const json_t *call = is_role(message, "assistant") ? json_get(message, "function_call") : NULL;
  bool has_new =
      list_of(message, "tool_calls") != NULL && list_of(message, "tool_calls")->count > 0;
  return call != NULL && call->type == JSON_OBJECT && !has_new ? call : NULL;
}

static const json_t *text_member(const json_t *object, const char *name) {
  const json_t *text = json_get(object, name);
  return text != NULL && text->type == JSON_STRING && text->length > 0 ? text : NULL;
}

static int compare_texts(const json_t *left, const json_t *right) {
  if (left->length != right->length) return left->length < right->length ? -1 : 1;
  return memcmp(left->text, right->text, left->length);
}

static int compare_ids(const void *left, const void *right) {
  return compare_texts(*(const json_t *const *)left, *(const json_t *const *)right);
}

static int32_t find_group(const mender_t *mender, const json_t *id) {
  const json_t **found = id == NULL ? NULL
                                    : bsearch(&id, mender->ids, (size_t)mender->num_ids,
                                              sizeof *mender->ids, compare_ids);
  return found == NULL ? NONE : (int32_t)(found - mender->ids);
}

static void count_calls(const json_t *messages, size_t *calls, size_t *results) {
  JSON_EACH(message, messages) {
    if (message->type != JSON_OBJECT) continue;
    if (is_result(message)) ++*results;
    if (!is_role(message, "assistant")) continue;
    const json_t *list = list_of(message, "tool_calls");
    if (list != NULL) *calls += list->count;
    if (old_call(message) != NULL) ++*calls;
  }
}

static const json_t *function_of(const json_t *call) {
  const json_t *function = json_get(call, "function");
  return function != NULL ? function : json_get(call, "custom");
}

static void add_call(mender_t *mender, int32_t message, const json_t *call) {
  known_call_t *known = &mender->calls[mender->num_calls++];
  *known = (known_call_t){.id = text_member(call, "id"),
                          .name = text_member(function_of(call), "name"),
                          .message = message,
                          .next = NONE};
  const json_t *id = json_get(call, "id");
  known->odd_id = mender->lenient && json_is_given(id) && id->type != JSON_STRING;
}

/* Fills in the calls, and the ids that they have. */
static bool collect_calls(mender_t *mender) {
  size_t calls = 0, results = 0;
  int32_t index = 0;
  arena_t *arena = mender->reader->arena;
  count_calls(mender->messages, &calls, &results);
  mender->calls = arena_calloc(arena, calls + 1, sizeof *mender->calls);
  mender->ids = arena_calloc(arena, calls + 1, sizeof *mender->ids);
  mender->groups = arena_calloc(arena, calls + 1, sizeof *mender->groups);
  mender->results = arena_calloc(arena, results + 1, sizeof *mender->results);
  if (mender->calls == NULL || mender->ids == NULL || mender->groups == NULL ||
      mender->results == NULL) {
    return false;
  }
  JSON_EACH(message, mender->messages) {
    const json_t *old = old_call(message);
    if (is_role(message, "assistant")) {
      JSON_EACH(call, list_of(message, "tool_calls")) add_call(mender, index, call);
    }
    if (old != NULL) {
      add_call(mender, index, old);
      mender->calls[mender->num_calls - 1].name = text_member(old, "name");
    }
    index++;
  }
  int32_t n = 0;
  for (int32_t i = 0; i < mender->num_calls; i++) {
    if (mender->calls[i].id != NULL) mender->ids[n++] = mender->calls[i].id;
  }
  qsort(mender->ids, (size_t)n, sizeof *mender->ids, compare_ids);
  for (int32_t i = 0; i < n; i++) {
    if (i > 0 && compare_texts(mender->ids[i], mender->ids[mender->num_ids - 1]) == 0) continue;
    mender->groups[mender->num_ids] = (id_group_t){NONE, NONE};
    mender->ids[mender->num_ids++] = mender->ids[i];
  }
  return true;
}

static bool fits_form(const json_t *id, call_id_form_t form) {
  if (form == CALL_IDS_ANY) return true;
  if (id == NULL) return false;
  if (form == CALL_IDS_NUMBERED) {
    return id->length > 10 && memcmp(id->text, "functions.", 10) == 0 &&
           memchr(id->text, ':', id->length) != NULL;
  }
  bool plain = id->length == 9;
  for (uint32_t i = 0; plain && i < id->length; i++) {
    char c = id->text[i];
    plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  }
  return plain;
}

/* The first pass comes to a call. From here on results with its id belong to it, no more to a call
 * of an older message, and among calls of one message to one after the other. */
static void meet_call(mender_t *mender, int32_t index) {
  known_call_t *call = &mender->calls[index];
  call->group = find_group(mender, call->id);
  call->renamed = call->odd_id || !fits_form(call->id, mender->rules->ids);
  if (call->group == NONE) return;
  id_group_t *group = &mender->groups[call->group];
  if (group->last != NONE && mender->lenient) call->renamed = true;
  if (group->last == NONE || mender->calls[group->last].message != call->message) {
    group->open = index;
  } else {
    mender->calls[group->last].next = index;
    if (group->open == NONE) group->open = index;
  }
  group->last = index;
}

/* Returns the call that a result answers. Without an id it is the first one of the last message
 * with calls that has no result yet; `first` and `end` are those calls. `follows`: no more than
 * results came since. Some templates take a result nowhere else. */
static int32_t answer_call(mender_t *mender, const json_t *message, int32_t first, int32_t end,
                           bool follows) {
  const json_t *id = text_member(message, "tool_call_id");
  int32_t found = NONE, group = find_group(mender, id);
  bool in_place = (mender->refused & (SHAPE_LOST_RESULT | SHAPE_OPEN_CALL)) != 0;
  if (in_place && !follows) return NONE;
  if (id == NULL) {
    for (int32_t i = first; i < end && found == NONE; i++) {
      if (!mender->calls[i].answered) found = i;
    }
  } else if (group != NONE && mender->groups[group].last != NONE) {
    id_group_t *calls = &mender->groups[group];
    found = calls->open != NONE ? calls->open : calls->last;
    if (in_place && mender->calls[found].message != mender->calls[end - 1].message) return NONE;
    if (calls->open != NONE) calls->open = mender->calls[calls->open].next;
  }
  if (found != NONE) mender->calls[found].answered = true;
  return found;
}

static bool find_results(mender_t *mender) {
  int32_t next = 0, first = 0, index = 0;
  bool follows = false; /* the last calls: only results came since */
  if (!collect_calls(mender)) return false;
  JSON_EACH(message, mender->messages) {
    if (next < mender->num_calls && mender->calls[next].message == index) first = next;
    while (next < mender->num_calls && mender->calls[next].message == index) {
      meet_call(mender, next++);
    }
    while (first < next && mender->calls[first].answered) first++;
    bool result = message->type == JSON_OBJECT && is_result(message);
    follows = result ? follows : next > 0 && mender->calls[next - 1].message == index;
    if (result) {
      mender->results[mender->num_results++] = answer_call(mender, message, first, next, follows);
    }
    index++;
  }
  return true;
}

/* ---- printing ---- */

static void put(mender_t *mender, const char *text) {
  if (mender->out != NULL) buffer_text(mender->out, text);
}

static void put_quoted(mender_t *mender, const char *text, size_t length) {
  if (mender->out != NULL) buffer_quote(mender->out, text, length);
}

static void put_value(mender_t *mender, const json_t *value) {
  if (mender->out != NULL) json_print(mender->out, value);
}

/* Prints the name of a member of the request, behind a comma unless it is the first of its object:
 * `any` says whether one was printed, here and below. */
static void put_name(mender_t *mender, bool *any, const json_t *member) {
  put(mender, *any ? "," : "");
  *any = true;
  put_quoted(mender, member->key, member->key_length);
  put(mender, ":");
}

/* The same for a name of ours. */
static void put_key(mender_t *mender, bool *any, const char *name) {
  put(mender, *any ? ",\"" : "\"");
  *any = true;
  put(mender, name);
  put(mender, "\":");
}

/* Names a mending of the message that is printed, in the pass without a buffer: so once. */
static void note(mender_t *mender, const char *inside, int32_t part, const char *what) {
  char place[ERROR_PARAM_MAX] = "";
  mender->changed = true;
  if (mender->out != NULL) return;
  if (mender->places) {
    int32_t index = mender->origin != NULL ? mender->origin[mender->index] : mender->index;
    int length = snprintf(place, sizeof place, "messages[%d]%s", (int)index, inside);
    if (part >= 0 && length > 0 && (size_t)length < sizeof place) {
      snprintf(place + length, sizeof place - (size_t)length, "[%d]", (int)part);
    }
  }
  field_name_mended(mender->reader, place, what);
}

/* ---- content ---- */

/* The last message of a user is the question itself: what it cannot say is refused. */
static bool is_question(const json_t *message) {
  return json_next(message) == NULL && is_role(message, "user");
}

static const char *const text_types[] = {"text",    "input_text",   "output_text",
                                         "refusal", "summary_text", "reasoning_text"};

static bool is_text_part(const json_t *part) {
  for (size_t i = 0; i < ARRAY_LEN(text_types); i++) {
    if (json_equals(json_get(part, "type"), text_types[i])) return true;
  }
  return false;
}

static void put_text_part(mender_t *mender, const char *text, size_t length) {
  put(mender, "{\"type\":\"text\",\"text\":");
  put_quoted(mender, text, length);
  put(mender, "}");
}

/* A value that is no text, as JSON in a text. */
static void put_json_text(mender_t *mender, const json_t *value) {
  buffer_t text = {0};
  json_print(&text, value);
  put_quoted(mender, text.length > 0 ? text.data : "", text.length);
  if (mender->out != NULL) mender->out->failed = mender->out->failed || text.failed;
  buffer_free(&text);
}

/* A part without a type: its text if it has one, null as no text, else JSON. */
static void put_untyped(mender_t *mender, int32_t index, const json_t *part) {
  const json_t *text = json_get(part, "text");
  bool is_text = text != NULL && text->type == JSON_STRING, none = part->type == JSON_NULL;
  note(mender, ".content", index, is_text ? "text_part" : none ? "part_left_out" : "json");
  if (is_text || none) {
    put_text_part(mender, is_text ? text->text : "", is_text ? text->length : 0);
    return;
  }
  put(mender, "{\"type\":\"text\",\"text\":");
  put_json_text(mender, part);
  put(mender, "}");
}

/* Whether a file is here or may be fetched; one that lies elsewhere is lost. */
static bool is_in_reach(const mender_t *mender, const json_t *url) {
  static const char scheme[] = "data:";
  const size_t length = sizeof scheme - 1;
  if (url != NULL && url->type == JSON_OBJECT) url = json_get(url, "url");
  if (url == NULL || url->type != JSON_STRING) return false;
  return (url->length > length && memcmp(url->text, scheme, length) == 0) ||
         media_allows(mender->reader->limits->media, url->text, url->length);
}

/* A picture in a message that may have some. */
static bool is_kept_picture(const mender_t *mender, const json_t *message, const json_t *part) {
  const field_limits_t *limits = mender->reader->limits;
  if (!limits->sees || limits->images_max == 0 ||
      !json_equals(json_get(part, "type"), "image_url") ||
      !(is_role(message, "user") || is_role(message, "tool")))
    return false;
  return is_in_reach(mender, json_get(part, "image_url"));
}

/* The same of a sound. */
static bool is_kept_sound(const mender_t *mender, const json_t *message, const json_t *part) {
  const field_limits_t *limits = mender->reader->limits;
  const json_t *type = json_get(part, "type"), *data = json_get(part, "input_audio");
  if (!limits->hears || limits->sounds_max == 0 ||
      !(is_role(message, "user") || is_role(message, "tool")))
    return false;
  if (json_equals(type, "input_audio")) return data != NULL && data->type == JSON_OBJECT;
  return json_equals(type, "audio_url") && is_in_reach(mender, json_get(part, "audio_url"));
}

static void put_part(mender_t *mender, const json_t *message, int32_t index, const json_t *part) {
  const json_t *type = json_get(part, "type"), *text = json_get(part, "text");
  bool refusal = json_equals(type, "refusal");
  if (refusal) text = json_get(part, "refusal");
  bool is_text = text != NULL && text->type == JSON_STRING;
  bool as_it_is = json_equals(type, "text") || (refusal && is_role(message, "assistant"));
  char placeholder[LEFT_OUT_MAX], what[LEFT_OUT_MAX];
  if (is_question(message)) {
    put_value(mender, part); /* what is no text is refused by the reader of chat, in its words */
  } else if (part->type == JSON_STRING) {
    note(mender, ".content", index, "text_part");
    put_text_part(mender, part->text, part->length);
  } else if ((as_it_is && is_text) || is_kept_picture(mender, message, part) ||
             is_kept_sound(mender, message, part)) {
    put_value(mender, part);
  } else if (!json_is_given(type)) {
    put_untyped(mender, index, part);
  } else if (is_text_part(part) && (is_text || !json_is_given(text))) {
    note(mender, ".content", index, is_text ? "text_part" : "empty");
    put_text_part(mender, is_text ? text->text : "", is_text ? text->length : 0);
  } else if (is_text_part(part)) {
    put_value(mender, part);
  } else {
    history_left_out(type, placeholder, what);
    note(mender, ".content", index, what);
    put_text_part(mender, placeholder, strlen(placeholder));
  }
}

/* Prints the parts of a content, behind a comma if there are others. A text is one part. */
static void put_parts(mender_t *mender, const json_t *message, bool *any) {
  const json_t *content = json_get(message, "content");
  int32_t index = 0;
  if (content != NULL && content->type == JSON_STRING && content->length > 0) {
    put(mender, *any ? "," : "");
    put_text_part(mender, content->text, content->length);
    *any = true;
  } else if (content != NULL && content->type == JSON_ARRAY) {
    JSON_EACH(part, content) {
      put(mender, *any ? "," : "");
      put_part(mender, message, index++, part);
      *any = true;
    }
  } else if (json_is_given(content) && content->type != JSON_STRING) {
    put(mender, *any ? "," : "");
    put_part(mender, message, 0, content);
    *any = true;
  }
}

static bool has_calls(const json_t *message) {
  const json_t *calls = list_of(message, "tool_calls");
  return (calls != NULL && calls->count > 0) || old_call(message) != NULL;
}

/* Whether the role of a message is one that the template neither takes nor names. */
static bool drops_role(const mender_t *mender, const json_t *message) {
  const json_t *role = json_get(message, "role");
  const chat_templates_t *templates = mender->rules->templates;
  unsigned refused = mender->rules->refused[mender->has_tools];
  char name[ROLE_BYTES_MAX + 3];
  if (message->type != JSON_OBJECT || role == NULL || role->type != JSON_STRING) return false;
  if (role->length == 0 || role->length > ROLE_BYTES_MAX || is_of_chat(message)) return false;
  if ((refused & SHAPE_OTHER_ROLE) == 0 || templates == NULL) return false;
  for (int quote = 0; quote < 2; quote++) {
    snprintf(name, sizeof name, quote ? "\"%s\"" : "'%s'", role->text);
    if (chat_template_mentions(templates, mender->has_tools, name)) return false;
  }
  return true;
}

/* The content of one message; it may be absent. */
static void put_content(mender_t *mender, const json_t *message, bool *any) {
  const json_t *content = json_get(message, "content"), *audio = json_get(message, "audio");
  bool assistant = is_role(message, "assistant"), given = json_is_given(content);
  bool empty = !given || (content->type == JSON_ARRAY && content->count == 0);
  bool mends = mender->lenient && !is_question(message);
  bool drops_null = (mender->refused & SHAPE_CALL_WITHOUT_TEXT) != 0;
  if (mender->text_apart) {
    put_key(mender, any, "content");
    put(mender, "\"\"");
  } else if (empty && mends && assistant && json_is_given(audio) && !has_calls(message)) {
    put_key(mender, any, "content");
    put(mender, "\"[audio left out]\"");
  } else if (empty && mends && assistant && drops_null && has_calls(message)) {
    mender->changed = true; /* in a form that the template takes: nothing was lost */
    put_key(mender, any, "content");
    put(mender, "\"\"");
  } else if (empty && mends && assistant && given) {
    note(mender, ".content", NONE, "empty");
    put_key(mender, any, "content");
    put(mender, "null");
  } else if (empty && mends && !assistant && (is_of_chat(message) || drops_role(mender, message))) {
    note(mender, ".content", NONE, "empty");
    put_key(mender, any, "content");
    put(mender, "\"\"");
  } else if (content != NULL && content->type == JSON_ARRAY && mender->lenient) {
    bool parts = false;
    put_key(mender, any, "content");
    put(mender, "[");
    put_parts(mender, message, &parts);
    put(mender, "]");
  } else if (mends && given && content->type == JSON_OBJECT) { /* one part without its list */
    put_key(mender, any, "content");
    put(mender, "[");
    note(mender, ".content", NONE, "text_part");
    put_part(mender, message, 0, content);
    put(mender, "]");
  } else if (mends && given && content->type != JSON_STRING) {
    note(mender, ".content", NONE, "json");
    put_key(mender, any, "content");
    put_json_text(mender, content);
  } else if (content != NULL) {
    put_key(mender, any, "content");
    put_value(mender, content);
  }
}

/* ---- calls ---- */

static void put_call_id(mender_t *mender, const known_call_t *call) {
  char text[32];
  int32_t index = (int32_t)(call - mender->calls);
  call_id_form_t form = mender->rules->ids;
  mender->changed = mender->changed || call->renamed;
  if (!call->renamed) {
    put_quoted(mender, call->id != NULL ? call->id->text : "",
               call->id != NULL ? call->id->length : 0);
  } else if (form == CALL_IDS_NUMBERED && call->name != NULL && mender->out != NULL) {
    buffer_text(mender->out, "\"functions.");
    buffer_escape(mender->out, call->name->text, call->name->length);
    buffer_char(mender->out, ':');
    buffer_int(mender->out, index);
    buffer_char(mender->out, '"');
  } else {
    snprintf(text, sizeof text, form == CALL_IDS_NINE ? "\"c%08d\"" : "\"call_mended_%d\"",
             (int)index);
    put(mender, text);
  }
}

/* Arguments, or the input of a custom tool, as a text of JSON. */
static void put_arguments(mender_t *mender, const json_t *arguments, bool is_input) {
  buffer_t text = {0};
  if (!is_input) {
    put_json_text(mender, arguments);
    return;
  }
  buffer_text(&text, "{\"input\":");
  json_print(&text, arguments);
  buffer_char(&text, '}');
  put_quoted(mender, text.data, text.length);
  if (mender->out != NULL) mender->out->failed = mender->out->failed || text.failed;
  buffer_free(&text);
}

static void put_function(mender_t *mender, const json_t *function) {
  bool any = false, named = text_member(function, "name") != NULL;
  bool has_arguments = json_get(function, "arguments") != NULL;
  put(mender, "{");
  JSON_EACH(member, function) {
    bool arguments = json_named(member, "arguments");
    if (json_named(member, "name") && !named) continue;
    put_name(mender, &any, member);
    if (arguments && (member->type == JSON_ARRAY || member->type == JSON_NUMBER ||
                      member->type == JSON_TRUE || member->type == JSON_FALSE)) {
      note(mender, ".tool_calls", NONE, "arguments");
      put_arguments(mender, member, false);
    } else {
      put_value(mender, member);
    }
  }
  if (!has_arguments) {
    note(mender, ".tool_calls", NONE, "arguments");
    put_key(mender, &any, "arguments");
    put(mender, "\"{}\"");
  }
  if (!named) {
    note(mender, ".tool_calls", NONE, "call_without_name");
    put_key(mender, &any, "name");
    put(mender, "\"unknown\"");
  }
  put(mender, "}");
}

/* A call of a custom tool, as the call of a function with one text. */
static void put_custom(mender_t *mender, const json_t *custom) {
  const json_t *name = text_member(custom, "name"), *input = json_get(custom, "input");
  note(mender, ".tool_calls", NONE, "custom_call");
  put(mender, "{\"name\":");
  put_quoted(mender, name != NULL ? name->text : "unknown", name != NULL ? name->length : 7);
  put(mender, ",\"arguments\":");
  if (input != NULL) {
    put_arguments(mender, input, true);
  } else {
    put(mender, "\"{}\"");
  }
  put(mender, "}");
}

static void put_call(mender_t *mender, const json_t *call) {
  const known_call_t *known = &mender->calls[mender->next_call++];
  const json_t *function = json_get(call, "function"), *custom = json_get(call, "custom");
  bool any = false, is_function = function != NULL && function->type == JSON_OBJECT;
  bool is_custom = !is_function && custom != NULL && custom->type == JSON_OBJECT;
  const json_t *type = json_get(call, "type");
  if (call->type != JSON_OBJECT || !mender->lenient) is_function = is_custom = false;
  if (call->type != JSON_OBJECT) {
    put_value(mender, call);
    return;
  }
  bool duplicate = mender->lenient && known->renamed && known->group != NONE &&
                   fits_form(known->id, mender->rules->ids);
  if (duplicate) note(mender, ".tool_calls", NONE, "duplicate_id");
  if (known->odd_id) note(mender, ".tool_calls", NONE, "id");
  put(mender, "{");
  JSON_EACH(member, call) {
    bool own = (is_function || is_custom) && json_named(member, "type");
    if (json_named(member, "id") || own || (is_function && member == function) ||
        (is_custom && member == custom))
      continue;
    put_name(mender, &any, member);
    put_value(mender, member);
  }
  if (known->id != NULL || known->renamed) {
    put_key(mender, &any, "id");
    put_call_id(mender, known);
  } else if (json_is_given(json_get(call, "id"))) {
    put_key(mender, &any, "id");
    put_value(mender, json_get(call, "id"));
  }
  if (is_function || is_custom) {
    bool other = json_is_given(type) && !json_equals(type, "function") && is_function;
    if (other) note(mender, ".tool_calls", NONE, "type");
    put_key(mender, &any, "type");
    put(mender, "\"function\"");
    put_key(mender, &any, "function");
    if (is_function) put_function(mender, function);
    if (is_custom) put_custom(mender, custom);
  }
  put(mender, "}");
}

/* Prints the calls of a message, behind a comma if there are others. */
static void put_calls(mender_t *mender, const json_t *message, bool *any) {
  const json_t *old = old_call(message);
  bool shown = (mender->refused & SHAPE_CALLS) == 0;
  if (!shown && mender->lenient && has_calls(message))
    note(mender, ".tool_calls", NONE, "calls_left_out");
  int32_t index = 0;
  JSON_EACH(call, list_of(message, "tool_calls")) {
    if (mender->only_call != NONE && mender->only_call != index++) continue;
    put(mender, *any ? "," : "");
    *any = true;
    put_call(mender, call);
  }
  if (old == NULL) return;
  known_call_t *known = &mender->calls[mender->next_call++];
  known->renamed = true; /* it has no id */
  note(mender, ".function_call", NONE, "tool_calls");
  put(mender, *any ? ",{\"id\":" : "{\"id\":");
  *any = true;
  put_call_id(mender, known);
  put(mender, ",\"type\":\"function\",\"function\":");
  put_function(mender, old);
  put(mender, "}");
}

/* ---- messages ---- */

typedef enum effective_role { AS_OTHER, AS_SYSTEM, AS_USER, AS_ASSISTANT, AS_RESULT } role_t;

/* The role that a message has for the template: one that it cannot take becomes the user's.
 * `result`: which of the results it is, if it is one. */
static role_t role_of(const mender_t *mender, const json_t *message, bool leads, int32_t result) {
  unsigned refused = mender->refused;
  if (message->type != JSON_OBJECT) return AS_OTHER;
  if (is_role(message, "user")) return AS_USER;
  if (is_role(message, "assistant")) return AS_ASSISTANT;
  if (is_system(message)) {
    unsigned shapes = leads ? SHAPE_SYSTEM : SHAPE_LATE_SYSTEM;
    if (mender->systems_alone && json_next(message) == NULL) shapes |= SHAPE_SYSTEM_ALONE;
    if (!mender->ends_with_user) shapes |= SHAPE_SYSTEM_HIDDEN;
    return (refused & shapes) != 0 ? AS_USER : AS_SYSTEM;
  }
  if (!is_result(message)) {
    return mender->lenient && drops_role(mender, message) ? AS_USER : AS_OTHER;
  }
  bool lost = mender->results[result] == NONE;
  bool unfit = lost && (refused & (SHAPE_LOST_RESULT | SHAPE_TWO_USERS)) != 0;
  return unfit || (refused & SHAPE_CALLS) != 0 ? AS_USER : AS_RESULT;
}

/* Names what makes a message the user's, and a result without its call. */
static void note_role(mender_t *mender, const json_t *message, role_t role) {
  if (!mender->lenient) return;
  bool lost = is_result(message) && mender->results[mender->next_result] == NONE;
  if (lost) note(mender, "", NONE, "result_without_call");
  if (role == AS_USER && !is_role(message, "user") && !lost) {
    const char *what = is_system(message) ? "system_as_user" : "role";
    note(mender, "", NONE, is_result(message) ? "result_as_user" : what);
  }
}

static void put_result_id(mender_t *mender, const json_t *message, bool *any) {
  int32_t call = mender->results[mender->next_result];
  const json_t *id = json_get(message, "tool_call_id");
  bool given = text_member(message, "tool_call_id") != NULL;
  if (call != NONE && (mender->calls[call].renamed || (!given && mender->lenient))) {
    if (!given && mender->lenient) note(mender, "", NONE, "result_without_id");
    put_key(mender, any, "tool_call_id");
    put_call_id(mender, &mender->calls[call]);
  } else if (call == NONE && mender->rules->ids == CALL_IDS_NINE && !fits_form(id, CALL_IDS_NINE)) {
    mender->changed = true;
    put_key(mender, any, "tool_call_id");
    put(mender, "\"c00000000\"");
  } else if (id != NULL && (given || !mender->lenient)) {
    put_key(mender, any, "tool_call_id");
    put_value(mender, id);
  } else if (mender->lenient) {
    put_key(mender, any, "tool_call_id");
    put(mender, "\"\"");
  }
}

static void put_message(mender_t *mender, const json_t *message, role_t role) {
  static const char *const own[] = {"content", "tool_calls", "tool_call_id", "role"};
  bool any = false, calls = false;
  const json_t *old = mender->lenient ? old_call(message) : NULL;
  bool audio =
      mender->lenient && is_role(message, "assistant") && json_get(message, "audio") != NULL;
  bool of_user = role == AS_USER && !is_role(message, "user");
  note_role(mender, message, role);
  put(mender, "{");
  put_key(mender, &any, "role");
  if (of_user) {
    put(mender, "\"user\"");
  } else if (mender->lenient && is_role(message, "function") && role == AS_RESULT) {
    put(mender, "\"tool\"");
  } else {
    put_value(mender, json_get(message, "role"));
  }
  JSON_EACH(member, message) {
    if (json_named_one_of(member, own, ARRAY_LEN(own))) continue;
    if (mender->lenient && json_named(member, "function_call") && is_role(message, "assistant"))
      continue;
    if (audio && json_named(member, "audio")) continue;
    put_name(mender, &any, member);
    put_value(mender, member);
  }
  put_content(mender, message, &any);
  if (json_is_given(json_get(message, "function_call")) && old == NULL && mender->lenient) {
    note(mender, ".function_call", NONE, "left_out");
  }
  if (audio) note(mender, ".audio", NONE, "left_out");
  if (is_result(message) && !of_user) put_result_id(mender, message, &any);
  const json_t *list = json_get(message, "tool_calls");
  if (is_role(message, "assistant") && (list_of(message, "tool_calls") != NULL || old != NULL)) {
    put_key(mender, &any, "tool_calls");
    put(mender, "[");
    put_calls(mender, message, &calls);
    put(mender, "]");
  } else if (list != NULL) {
    put_key(mender, &any, "tool_calls");
    put_value(mender, list);
  }
  put(mender, "}");
}

static void put_comma(mender_t *mender) {
  put(mender, mender->num_printed++ > 0 ? "," : "");
}

/* Prints a message of the assistant with no more than a call of another message. */
static void put_next_call(mender_t *mender, const json_t *message) {
  bool drops_null = (mender->refused & SHAPE_CALL_WITHOUT_TEXT) != 0, any = false;
  note(mender, ".tool_calls", mender->only_call, "message");
  put_comma(mender);
  put(mender, "{\"role\":\"assistant\",\"content\":");
  put(mender, drops_null ? "\"\",\"tool_calls\":[" : "null,\"tool_calls\":[");
  put_calls(mender, message, &any);
  put(mender, "]}");
}

/* A message of the user between two of the assistant, where the template wants turns. */
static void put_turn(mender_t *mender) {
  if ((mender->refused & SHAPE_TWO_ANSWERS) == 0) return;
  put(mender, "{\"role\":\"user\",\"content\":\"[no message]\"}");
  put_comma(mender);
}

/* Prints `count` messages of one role as one message, or their calls behind their texts. */
static void put_joined(mender_t *mender, const json_t *message, int32_t number, role_t role) {
  bool any = false, calls = false, has_any_calls = false;
  const json_t *first = message, *reasoning = NULL;
  for (int32_t i = 0; i < number; i++, message = json_next(message)) {
    has_any_calls = has_any_calls || has_calls(message);
    const json_t *thought = json_get(message, "reasoning_content");
    if (reasoning == NULL && json_is_given(thought)) reasoning = thought;
  }
  put(mender, role == AS_USER ? "{\"role\":\"user\",\"content\":["
                              : "{\"role\":\"assistant\",\"content\":[");
  message = first;
  int32_t begin = mender->index;
  for (int32_t i = 0; i < number; i++, message = json_next(message)) {
    mender->index = begin + i;
    if (i > 0) note(mender, "", NONE, "joined");
    note_role(mender, message, role);
    put_parts(mender, message, &any);
    if (is_result(message)) mender->next_result++;
  }
  if (any && has_any_calls && (mender->refused & SHAPE_TEXT_HIDDEN) != 0) {
    put(mender, "]}");
    put_comma(mender);
    put_turn(mender);
    put(mender, "{\"role\":\"assistant\",\"content\":[");
    any = false;
  }
  if (!any) put_text_part(mender, "", 0);
  put(mender, "]");
  if (reasoning != NULL) {
    put(mender, ",\"reasoning_content\":");
    put_value(mender, reasoning);
  }
  if (has_any_calls) put(mender, ",\"tool_calls\":[");
  message = first;
  for (int32_t i = 0; i < number; i++, message = json_next(message)) {
    if (role == AS_ASSISTANT) put_calls(mender, message, &calls);
  }
  put(mender, has_any_calls ? "]}" : "}");
  mender->index = begin;
}

static void put_system_text(mender_t *mender, const json_t *text, bool *any) {
  if (text->length == 0) return;
  put(mender, *any ? "\\n\\n" : "");
  *any = true;
  if (mender->out != NULL) buffer_escape(mender->out, text->text, text->length);
}

/* Prints system messages as one, with a blank line between their texts, as the other routes do. */
static void put_joined_systems(mender_t *mender, const json_t *message, int32_t number) {
  bool any = false;
  int32_t begin = mender->index;
  put(mender, "{\"role\":\"system\",\"content\":\"");
  for (int32_t i = 0; i < number; i++, message = json_next(message)) {
    const json_t *content = json_get(message, "content");
    mender->index = begin + i;
    if (i > 0) note(mender, "", NONE, "joined");
    const json_t *part = content;
    if (content != NULL && content->type == JSON_ARRAY) part = json_first(content);
    for (; part != NULL; part = part == content ? NULL : json_next(part)) {
      const json_t *text = part->type == JSON_OBJECT ? json_get(part, "text") : part;
      if (text != NULL && text->type == JSON_STRING) put_system_text(mender, text, &any);
    }
  }
  put(mender, "\"}");
  mender->index = begin;
}

static bool splits_calls(const mender_t *mender, const json_t *message) {
  const json_t *calls = list_of(message, "tool_calls");
  return (mender->refused & SHAPE_TWO_CALLS) != 0 && calls != NULL && calls->count > 1;
}

/* Whether a message has calls beside a text, which the template takes apart alone. */
static bool parts_text(const mender_t *mender, const json_t *message) {
  static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning"};
  const json_t *content = json_get(message, "content");
  bool thinks = false, is_list = content != NULL && content->type == JSON_ARRAY;
  for (size_t i = 0; i < ARRAY_LEN(thoughts); i++) {
    const json_t *thought = json_get(message, thoughts[i]);
    thinks = thinks || (thought != NULL && thought->type == JSON_STRING && thought->length > 0);
  }
  bool says = content != NULL &&
              (is_list ? content->count > 0 : content->type == JSON_STRING && content->length > 0);
  bool apart = (mender->refused & SHAPE_TEXT_HIDDEN) != 0 ||
               (thinks && (mender->refused & SHAPE_TEXT_OF_CALL) != 0);
  return apart && says && has_calls(message);
}

/* Prints the text of a message as a message in front of it. */
static void put_text_apart(mender_t *mender, const json_t *message) {
  bool any = true;
  note(mender, ".content", NONE, "message");
  put(mender, "{\"role\":\"assistant\"");
  put_content(mender, message, &any);
  put(mender, "}");
  put_comma(mender);
  put_turn(mender);
  mender->text_apart = true;
}

/* Prints a result for each call of the last message with calls that has none, and an answer if a
 * message of the user follows and the template counts them. `end`: the first call behind them. */
static void put_missing_results(mender_t *mender, int32_t first, int32_t end, role_t next) {
  for (int32_t i = first; i < end; i++) {
    if (mender->calls[i].answered) continue;
    note(mender, "", NONE, "call_without_result");
    put_comma(mender);
    put(mender, "{\"role\":\"tool\",\"content\":\"[no result]\",\"tool_call_id\":");
    put_call_id(mender, &mender->calls[i]);
    put(mender, "}");
  }
  if (first == end || next != AS_USER || (mender->refused & SHAPE_TWO_USERS) == 0) return;
  note(mender, "", NONE, "answer_missing");
  put_comma(mender);
  put(mender, "{\"role\":\"assistant\",\"content\":\"[no answer]\"}");
}

/* Prints a message with several calls as one for each call, with its results behind it. Returns how
 * many messages it was: this one and the results that follow. */
static int32_t put_one_by_one(mender_t *mender, const json_t *message) {
  int32_t number = 1, begin = mender->index, first_result = mender->next_result;
  int32_t count = (int32_t)list_of(message, "tool_calls")->count, first = mender->next_call;
  const json_t *results = json_next(message), *end = results;
  for (; end != NULL && end->type == JSON_OBJECT && is_result(end); end = json_next(end)) {
    int32_t call = mender->results[first_result + number - 1];
    if (call < first || call >= first + count) break;
    number++;
  }
  for (int32_t i = 0; i < count; i++) {
    int32_t result = first_result;
    mender->index = begin;
    mender->only_call = i;
    if (i == 0) put_message(mender, message, AS_ASSISTANT);
    if (i > 0) put_next_call(mender, message);
    mender->only_call = NONE;
    mender->text_apart = false;
    for (const json_t *at = results; at != end; at = json_next(at), result++) {
      if (mender->results[result] != first + i) continue;
      mender->index = begin + 1 + result - first_result;
      mender->next_result = result;
      put_comma(mender);
      put_message(mender, at, AS_RESULT);
    }
    if ((mender->refused & SHAPE_OPEN_CALL) != 0)
      put_missing_results(mender, first + i, first + i + 1, AS_RESULT);
  }
  mender->index = begin;
  mender->next_result = first_result + number - 1;
  return number;
}

/* How many messages from this one on become one: those in a row that the template would refuse. */
static int32_t count_joined(const mender_t *mender, const json_t *message, role_t role,
                            bool leads) {
  static const unsigned shapes[] = {[AS_SYSTEM] = SHAPE_TWO_SYSTEMS,
                                    [AS_USER] = SHAPE_TWO_USERS,
                                    [AS_ASSISTANT] = SHAPE_TWO_ANSWERS,
                                    [AS_RESULT] = 0};
  int32_t number = 1, result = mender->next_result + is_result(message);
  if ((mender->refused & shapes[role]) == 0) return 1;
  for (message = json_next(message); message != NULL; message = json_next(message)) {
    leads = leads && is_system(message);
    if (role_of(mender, message, leads, result) != role) break;
    result += is_result(message);
    number++;
  }
  return number;
}

static void put_messages(mender_t *mender) {
  bool leads = true, begun = false;
  int32_t first_call = 0;
  const json_t *message = json_first(mender->messages);
  mender->index = mender->next_call = mender->next_result = mender->num_printed = 0;
  mender->only_call = NONE;
  while (message != NULL) {
    leads = leads && is_system(message);
    role_t role = role_of(mender, message, leads, mender->next_result);
    if (role != AS_RESULT && (mender->refused & SHAPE_OPEN_CALL) != 0) {
      put_missing_results(mender, first_call, mender->next_call, role);
      first_call = mender->next_call;
    }
    if (!leads && !begun && role == AS_ASSISTANT && (mender->refused & SHAPE_ANSWER_FIRST) != 0) {
      note(mender, "", NONE, "question_missing");
      put_comma(mender);
      put(mender, "{\"role\":\"user\",\"content\":\"[no message]\"}");
    }
    begun = begun || !leads || role == AS_USER;
    int32_t number = count_joined(mender, message, role, leads);
    put_comma(mender);
    if (role == AS_ASSISTANT && number == 1 && parts_text(mender, message))
      put_text_apart(mender, message);
    if (role == AS_SYSTEM && number > 1) {
      put_joined_systems(mender, message, number);
    } else if (number > 1) {
      put_joined(mender, message, number, role);
    } else if (role == AS_ASSISTANT && splits_calls(mender, message)) {
      number = put_one_by_one(mender, message);
      first_call = mender->next_call;
    } else if (role == AS_OTHER) {
      put_value(mender, message);
    } else {
      first_call = role == AS_ASSISTANT ? mender->next_call : first_call;
      put_message(mender, message, role);
      if (is_result(message)) mender->next_result++;
    }
    mender->text_apart = false;
    for (int32_t i = 0; i < number; i++, message = json_next(message)) mender->index++;
  }
}

static bool has_tools(const json_t *root) {
  const json_t *tools = list_of(root, "tools");
  return tools != NULL && tools->count > 0 && !json_equals(json_get(root, "tool_choice"), "none");
}

/* Refuses a role that the template would drop; in a history it is mended. Counts who speaks. */
static int check_roles(mender_t *mender) {
  int32_t index = 0;
  mender->systems_alone = true;
  JSON_EACH(message, mender->messages) {
    bool refused = drops_role(mender, message);
    mender->systems_alone = mender->systems_alone && is_system(message);
    mender->ends_with_user = is_role(message, "user");
    if (refused && (!mender->lenient || json_next(message) == NULL)) {
      char place[ERROR_PARAM_MAX], shown[FIELD_SHOWN_MAX];
      int32_t own = mender->origin != NULL ? mender->origin[index] : index;
      snprintf(place, sizeof place, "messages[%d].role", (int)own);
      return error_set(mender->reader->error, ERR_INVALID_VALUE, place,
                       "'%s' must be 'system', 'developer', 'user', 'assistant', 'tool' or "
                       "'function', but got %s: the chat template knows no others.",
                       place, field_shown(shown, json_get(message, "role")));
    }
    index++;
  }
  return 0;
}

int history_mend(reader_t *reader, const history_rules_t *rules, const json_t *root, bool places,
                 const int32_t *origin, buffer_t *out, bool *changed) {
  mender_t mender = {.reader = reader,
                     .rules = rules,
                     .has_tools = has_tools(root),
                     .only_call = NONE,
                     .lenient = reader->limits->lenient,
                     .places = places,
                     .origin = origin,
                     .messages = list_of(root, "messages")};
  *changed = false;
  if (mender.messages == NULL) return 0;
  int code = check_roles(&mender);
  if (code != 0 || (!mender.lenient && rules->ids == CALL_IDS_ANY)) return code;
  if (mender.lenient) mender.refused = rules->refused[mender.has_tools];
  if (!find_results(&mender)) return field_no_memory(reader);
  put_messages(&mender);
  *changed = mender.changed;
  if (!mender.changed) return 0;
  mender.out = out;
  bool any = false;
  put(&mender, "{");
  JSON_EACH(member, root) {
    put_name(&mender, &any, member);
    if (member != mender.messages) {
      put_value(&mender, member);
      continue;
    }
    put(&mender, "[");
    put_messages(&mender);
    put(&mender, "]");
  }
  put(&mender, "}");
  return out->failed ? field_no_memory(reader) : 0;
}
