/* output.c: the state machine of output.h. One owner, one thread at a time.
 *
 * `pending` holds text whose meaning is not decided: the possible start of a marker, and blanks
 * that are dropped if a marker follows. `raw` holds the text of a call until it is certain that it
 * is a call. The length of `pending` is bounded, so every byte is read a bounded number of times.
 */
#include "server/parser/output.h"

#include "engine/base/util.h"
#include "server/parser/argument.h"
#include "server/parser/call_scan.h"
#include "server/parser/channels.h"
#include "server/parser/literal_call.h"
#include "server/parser/marks.h"
#include "server/parser/tag_call.h"

#include <stdlib.h>
#include <string.h>

enum { BLANKS_HELD_MAX = 256 };

typedef enum stage {
  STAGE_START,     /* reasoning may begin */
  STAGE_REASONING, /* inside the reasoning */
  STAGE_FIRST,     /* content, or a call without marker, begins */
  STAGE_CONTENT,
  STAGE_SECTION,  /* after the marker of a section: the marker of a call must come */
  STAGE_OPENED,   /* after the marker of a call */
  STAGE_NAME,     /* the name of the call, which comes before its arguments */
  STAGE_CALL,     /* inside its JSON */
  STAGE_TAGS,     /* inside its tags */
  STAGE_LITERALS, /* inside its literals */
  STAGE_CALLED,   /* after a call */
  STAGE_DROP      /* all further text is dropped */
} stage_t;

struct output_parser {
  output_options_t options;
  stage_t stage;
  buffer_t pending; /* text from `at` on is not parsed yet */
  size_t at;
  buffer_t raw;      /* the text of the call so far, and the blanks before it */
  buffer_t name, id; /* STAGE_NAME */
  buffer_t ids;      /* of the calls so far: argument_add_key */
  bool trim;         /* drop the blanks at the start of the next text */
  bool any_call;
  bool in_list;
  bool in_block;      /* after a marker that was not closed yet */
  bool name_begun;    /* STAGE_NAME: name_begin was read, or is missing */
  bool name_closed;   /* STAGE_NAME: after the name, before the arguments */
  bool in_id;         /* STAGE_NAME: after id_mark */
  bool bare;          /* the call has no marker */
  bool inside_text;   /* and stands behind text */
  bool from_thoughts; /* the call stands inside the reasoning */
  bool thoughts_open; /* a call has ended the reasoning; its closing marker may still come */
  bool ended;         /* no text will follow */

  call_scan_t call;
  tag_call_t tags;
  literal_call_t literals;
  channels_t *channels; /* parses all text if the format has channels; else NULL */
};

output_parser_t *output_parser_new(const output_options_t *options) {
  output_parser_t *parser = calloc(1, sizeof *parser);
  if (parser == NULL) return NULL;
  parser->options = *options;
  parser->stage = options->reasoning != NULL ? STAGE_START : STAGE_FIRST;
  if (options->reasoning == NULL || options->reasoning->answer == NULL) return parser;
  parser->channels = channels_new(options);
  if (parser->channels != NULL) return parser;
  output_parser_free(parser);
  return NULL;
}

void output_parser_free(output_parser_t *parser) {
  if (parser == NULL) return;
  buffer_free(&parser->pending);
  buffer_free(&parser->raw);
  buffer_free(&parser->name);
  buffer_free(&parser->id);
  buffer_free(&parser->ids);
  call_scan_free(&parser->call);
  tag_call_free(&parser->tags);
  literal_call_free(&parser->literals);
  channels_free(parser->channels);
  free(parser);
}

bool output_parser_is_reasoning(const output_parser_t *parser) {
  if (parser->channels != NULL) return channels_is_reasoning(parser->channels);
  bool begun = parser->stage == STAGE_START && parser->options.in_reasoning;
  return parser->stage == STAGE_REASONING || begun;
}

bool output_parser_failed(const output_parser_t *parser) {
  if (parser->channels != NULL && channels_failed(parser->channels)) return true;
  return parser->pending.failed || parser->raw.failed || parser->name.failed || parser->id.failed ||
         parser->ids.failed || call_scan_failed(&parser->call) || tag_call_failed(&parser->tags) ||
         literal_call_failed(&parser->literals);
}

/* ---- text and markers ---- */

static const char *rest(const output_parser_t *parser, size_t *length) {
  *length = parser->pending.length - parser->at;
  return parser->pending.data + parser->at;
}

static size_t blanks(const char *text, size_t length) {
  size_t count = 0;
  while (count < length && json_is_blank(text[count])) count++;
  return count;
}

/* The text comes up to a marker, which is not consumed: sends it. Blanks before a marker are held
 * back and go to `raw`: what the marker begins may prove to be no call. Returns the marker, or NULL
 * if there is none. */
static const char *say_until(output_parser_t *parser, output_kind_t kind, const marks_t *marks,
                             const output_sink_t *sink) {
  size_t length;
  const char *text = rest(parser, &length);
  if (parser->trim) {
    size_t dropped = blanks(text, length);
    parser->at += dropped;
    text = rest(parser, &length);
    if (length > 0) parser->trim = false;
  }
  const char *found = NULL;
  size_t end = marks_find(marks, text, length, &found), held = 0;
  if (parser->ended && found == NULL) end = length;
  bool swallow = parser->ended && found == NULL ? parser->any_call : marks->count > 0;
  while (swallow && held < end && json_is_blank(text[end - held - 1])) held++;
  held %= BLANKS_HELD_MAX + 1; /* as many as if the bytes had arrived one by one */
  if (end > held) sink->take(sink->context, kind, text, end - held);
  if (found != NULL) buffer_append(&parser->raw, text + end - held, held);
  parser->at += found != NULL ? end : end - held;
  if (parser->ended && found == NULL) parser->at = parser->pending.length;
  return found;
}

static void take_raw(output_parser_t *parser, size_t count) {
  buffer_append(&parser->raw, parser->pending.data + parser->at, count);
  parser->at += count;
}

/* ---- calls ---- */

/* The text that looked like a call is not one: sends it as what it stands in. */
static void give_up(output_parser_t *parser, const output_sink_t *sink) {
  output_kind_t kind = parser->from_thoughts ? OUTPUT_REASONING : OUTPUT_CONTENT;
  if (parser->raw.length > 0) {
    sink->take(sink->context, kind, parser->raw.data, parser->raw.length);
  }
  buffer_clear(&parser->raw);
  parser->stage = parser->from_thoughts ? STAGE_REASONING : STAGE_CONTENT;
  parser->in_list = parser->in_block = parser->trim = parser->from_thoughts = false;
}

/* Puts the last bytes back, so that they are parsed again. */
static void put_back(output_parser_t *parser, const char *bytes, size_t length) {
  if (length <= parser->at) {
    parser->at -= length;
    return;
  }
  buffer_t pending = {.failed = parser->pending.failed};
  buffer_append(&pending, bytes, length);
  buffer_append(&pending, parser->pending.data + parser->at, parser->pending.length - parser->at);
  buffer_free(&parser->pending);
  parser->pending = pending;
  parser->at = 0;
}

/* The reasoning may end inside a text that looks like a call: then it is none. */
static bool closes_thoughts(output_parser_t *parser, const output_sink_t *sink) {
  const reasoning_format_t *format = parser->options.reasoning;
  const char *const closes[] = {format->close, format->other_close};
  for (int i = 0; i < 2; i++) {
    const buffer_t *raw = &parser->raw;
    size_t length = closes[i] != NULL ? strlen(closes[i]) : 0;
    if (length == 0 || raw->length < length || raw->failed) continue;
    if (memcmp(raw->data + raw->length - length, closes[i], length) != 0) continue;
    put_back(parser, closes[i], length);
    parser->raw.length -= length;
    give_up(parser, sink);
    return true;
  }
  return false;
}

static marks_t call_marks(const output_parser_t *parser) {
  const tool_format_t *tools = parser->options.tools;
  marks_t marks = {0};
  if (tools == NULL) return marks;
  marks_add(&marks, tools->section);
  if (!tools->needs_section) marks_add(&marks, tools->open);
  marks_add(&marks, tools->other_open);
  return marks;
}

/* Begins what may be a call: `mark` stands next in the text. */
static void begin_call(output_parser_t *parser, const char *mark) {
  const tool_format_t *tools = parser->options.tools;
  take_raw(parser, strlen(mark));
  parser->bare = parser->inside_text = false;
  parser->in_block = true;
  parser->stage = mark == tools->section ? STAGE_SECTION : STAGE_OPENED;
}

static bool step_first(output_parser_t *parser) {
  const tool_format_t *tools = parser->options.tools;
  size_t length;
  const char *text = rest(parser, &length);
  size_t skip = blanks(text, length);
  parser->stage = STAGE_CONTENT;
  if (tools == NULL || !tools->bare) return true;
  if (parser->trim) {
    parser->at += skip;
    text = rest(parser, &length);
    skip = 0;
  }
  match_t marked = MATCH_NONE;
  if (tools->open != NULL) marked = mark_match(text + skip, length - skip, tools->open);
  bool wait = skip == length || marked == MATCH_PART;
  if (wait && skip <= BLANKS_HELD_MAX && !parser->ended) {
    parser->stage = STAGE_FIRST;
    return false;
  }
  if (marked == MATCH_WHOLE || skip == length || skip > BLANKS_HELD_MAX) return true;
  bool object = tools->payload == PAYLOAD_JSON && text[skip] == '{';
  if (object || (tools->list && text[skip] == '[')) {
    parser->bare = true;
    parser->inside_text = false;
    take_raw(parser, skip);
    parser->stage = STAGE_OPENED;
  }
  return true;
}

static bool frames_text(const reasoning_format_t *format, const char *mark) {
  return format != NULL &&
         (mark == format->text_open || mark == format->text_close || mark == format->message_close);
}

static bool step_content(output_parser_t *parser, const output_sink_t *sink) {
  static const char object[] = "{", list[] = "[";
  const tool_format_t *tools = parser->options.tools;
  const reasoning_format_t *reasoning = parser->options.reasoning;
  marks_t marks = call_marks(parser);
  bool anywhere = tools != NULL && tools->inside_text && parser->options.functions != NULL;
  if (anywhere) marks_add(&marks, object);
  if (anywhere && tools->list) marks_add(&marks, list);
  if (parser->thoughts_open) marks_add(&marks, reasoning->close);
  if (reasoning != NULL) {
    marks_add(&marks, reasoning->text_open);
    marks_add(&marks, reasoning->text_close);
    marks_add(&marks, reasoning->message_close);
  }
  const char *mark = say_until(parser, OUTPUT_CONTENT, &marks, sink);
  if (mark == NULL) return false;
  if (mark == object || mark == list) {
    parser->bare = parser->inside_text = true;
    parser->stage = STAGE_OPENED;
  } else if (frames_text(reasoning, mark)) {
    buffer_clear(&parser->raw);
    parser->at += strlen(mark);
  } else if (parser->thoughts_open && mark == reasoning->close) {
    buffer_clear(&parser->raw);
    parser->at += strlen(mark);
    parser->trim = true;
    parser->thoughts_open = false;
  } else {
    begin_call(parser, mark);
  }
  return true;
}

static bool step_section(output_parser_t *parser, const output_sink_t *sink) {
  size_t length;
  const char *text = rest(parser, &length), *open = parser->options.tools->open;
  take_raw(parser, blanks(text, length));
  text = rest(parser, &length);
  if (length == 0) return false;
  match_t found = mark_match(text, length, open);
  if (found == MATCH_PART && !parser->ended) return false;
  if (found == MATCH_WHOLE) {
    take_raw(parser, strlen(open));
    parser->stage = STAGE_OPENED;
  } else {
    give_up(parser, sink);
  }
  return true;
}

static bool opens_json(output_parser_t *parser, char next) {
  const tool_format_t *tools = parser->options.tools;
  if (next == '{') {
    call_scan_start(&parser->call);
    parser->call.needs_arguments = parser->bare;
    parser->call.known_first = parser->inside_text;
    parser->call.whole = parser->options.whole;
    parser->call.functions = parser->options.functions;
    parser->call.name_is_key = tools->name_is_key;
    parser->stage = STAGE_CALL;
    return true;
  }
  if (tools->name_end == NULL || parser->in_list || parser->bare) return false;
  buffer_clear(&parser->name);
  buffer_clear(&parser->id);
  parser->name_begun = tools->name_begin == NULL;
  parser->name_closed = parser->in_id = false;
  parser->stage = STAGE_NAME;
  return true;
}

static bool step_opened(output_parser_t *parser, const output_sink_t *sink) {
  const tool_format_t *tools = parser->options.tools;
  size_t length;
  const char *text = rest(parser, &length);
  if (tools->payload == PAYLOAD_TAGS) {
    tag_call_start(&parser->tags, tools->tags, parser->options.functions);
    parser->tags.whole = parser->options.whole;
    parser->stage = STAGE_TAGS;
    return true;
  }
  take_raw(parser, blanks(text, length));
  text = rest(parser, &length);
  if (length == 0) return false;
  if (text[0] == '[' && tools->list && !parser->in_list) {
    parser->in_list = true;
    take_raw(parser, 1);
  } else if (tools->payload == PAYLOAD_LITERALS) {
    literal_call_start(&parser->literals, tools->literals, parser->options.functions, parser->bare);
    parser->stage = STAGE_LITERALS;
  } else if (!opens_json(parser, text[0])) {
    give_up(parser, sink);
  }
  return true;
}

static bool is_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
}

/* The name NAME:NUMBER is the id of the call. Returns false if it has no number. */
static bool split_id(output_parser_t *parser) {
  const tool_format_t *tools = parser->options.tools;
  buffer_t *name = &parser->name;
  size_t length = name->length;
  while (length > 0 && name->data[length - 1] >= '0' && name->data[length - 1] <= '9') length--;
  if (length < 2 || length == name->length || name->data[length - 1] != ':') return false;
  buffer_text(&parser->id, tools->name_begin);
  buffer_append(&parser->id, name->data, name->length);
  name->length = length - 1;
  return true;
}

static bool begin_named(output_parser_t *parser) {
  bool ids = parser->options.tools->names_are_ids;
  if (ids && !split_id(parser)) return false;
  buffer_t *id = &parser->id;
  call_scan_start_named(&parser->call, parser->name.data, parser->name.length);
  parser->call.whole = parser->options.whole;
  if (id->length > 0 && argument_add_key(&parser->ids, id->data, id->length)) {
    buffer_append(&parser->call.id, id->data, id->length);
  }
  parser->stage = STAGE_CALL;
  return true;
}

/* Takes a byte of the name, or of the id behind it. Returns false if it cannot belong to them. */
static bool take_name_byte(output_parser_t *parser, char byte) {
  const tool_format_t *tools = parser->options.tools;
  bool ids = tools->names_are_ids, fits = is_name_byte(byte) || (ids && byte == ':');
  if (json_is_blank(byte)) {
    if (parser->name.length > 0) parser->name_closed = true;
    fits = true;
  } else if (fits && parser->in_id) {
    buffer_char(&parser->id, byte);
  } else if (fits && !parser->name_closed) {
    buffer_char(&parser->name, byte);
    parser->name_begun = true;
  } else {
    return false;
  }
  take_raw(parser, 1);
  return parser->raw.length < 2 * (BLANKS_HELD_MAX + CALL_NAME_BYTES_MAX);
}

/* Reads NAME[ARGS]{...} or NAME[CALL_ID]id[ARGS]{...}, with the marks of the format. The marks may
 * be missing. */
static bool step_name(output_parser_t *parser, const output_sink_t *sink) {
  const tool_format_t *tools = parser->options.tools;
  for (;;) {
    size_t length;
    const char *text = rest(parser, &length);
    if (length == 0) return false;
    match_t args = mark_match(text, length, tools->name_end);
    match_t id = mark_match(text, length, tools->id_mark);
    match_t begin = MATCH_NONE;
    if (!parser->name_begun) begin = mark_match(text, length, tools->name_begin);
    bool part = args == MATCH_PART || id == MATCH_PART || begin == MATCH_PART;
    if (text[0] == '{' && parser->name.length > 0) break;
    if (begin == MATCH_WHOLE) {
      take_raw(parser, strlen(tools->name_begin));
      parser->name_begun = true;
    } else if (args == MATCH_WHOLE) {
      take_raw(parser, strlen(tools->name_end));
      parser->name_closed = true;
      parser->in_id = false;
    } else if (id == MATCH_WHOLE) {
      take_raw(parser, strlen(tools->id_mark));
      parser->name_closed = parser->in_id = true;
    } else if (part && !parser->ended) {
      return false;
    } else if (!take_name_byte(parser, text[0])) {
      give_up(parser, sink);
      return true;
    }
  }
  if (!begin_named(parser)) give_up(parser, sink);
  return true;
}

static void after_call(output_parser_t *parser, stage_t next) {
  parser->any_call = true;
  if (parser->from_thoughts) parser->thoughts_open = true;
  parser->from_thoughts = false;
  buffer_clear(&parser->raw);
  parser->stage = parser->options.one_call ? STAGE_DROP : next;
}

/* ---- payloads ---- */

static bool is_streaming(const output_parser_t *parser) {
  if (parser->stage == STAGE_CALL) return parser->call.streaming;
  return parser->stage == STAGE_TAGS && parser->tags.streaming;
}

static call_result_t payload_byte(output_parser_t *parser, char byte, const output_sink_t *sink) {
  if (parser->stage == STAGE_CALL) return call_scan_byte(&parser->call, byte, sink);
  if (parser->stage == STAGE_TAGS) return tag_call_byte(&parser->tags, byte, sink);
  return literal_call_byte(&parser->literals, byte, sink);
}

/* The payload is no call, or ends here because a part of it was sent already. */
static void stop_payload(output_parser_t *parser, const output_sink_t *sink) {
  bool tags = parser->stage == STAGE_TAGS, streaming = is_streaming(parser);
  const buffer_t *held = &parser->tags.held;
  if (tags && held->length > 0) put_back(parser, held->data, held->length);
  if (!streaming) {
    if (tags) parser->raw.length -= held->length;
    give_up(parser, sink);
    return;
  }
  if (tags) {
    tag_call_close(&parser->tags, sink);
  } else {
    call_scan_flush(&parser->call, sink);
    sink->take(sink->context, OUTPUT_CALL_END, "", 0);
  }
  after_call(parser, STAGE_CONTENT);
}

/* The value of a parameter is not what it began as: its bytes are parsed again. */
static void read_value_again(output_parser_t *parser) {
  const buffer_t *value = &parser->tags.value;
  if (!parser->tags.streaming) parser->raw.length -= value->length;
  put_back(parser, value->data, value->length);
  tag_call_again(&parser->tags);
}

static bool step_payload(output_parser_t *parser, const output_sink_t *sink) {
  while (parser->at < parser->pending.length) {
    call_result_t result = payload_byte(parser, parser->pending.data[parser->at], sink);
    if (result == CALL_BAD) {
      stop_payload(parser, sink);
      return true;
    }
    if (is_streaming(parser)) {
      parser->at++;
    } else {
      take_raw(parser, 1);
      if (result == CALL_MORE && parser->from_thoughts && closes_thoughts(parser, sink))
        return true;
    }
    if (result == CALL_AGAIN) {
      read_value_again(parser);
    } else if (result == CALL_DONE) {
      after_call(parser, STAGE_CALLED);
      return true;
    }
  }
  if (parser->stage == STAGE_CALL) call_scan_flush(&parser->call, sink);
  if (parser->stage == STAGE_TAGS) tag_call_flush(&parser->tags, sink);
  return false;
}

/* ---- behind a call ---- */

/* Reads a closing marker. Returns MATCH_PART if more text is needed. */
static match_t read_close(output_parser_t *parser, const char *text, size_t length) {
  const tool_format_t *tools = parser->options.tools;
  const char *const marks[] = {tools->fence, tools->close, tools->other_close, tools->section_end};
  match_t best = MATCH_NONE;
  for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
    match_t found = mark_match(text, length, marks[i]);
    if (found == MATCH_PART) best = MATCH_PART;
    if (found != MATCH_WHOLE) continue;
    parser->at += strlen(marks[i]);
    bool section = tools->section != NULL && marks[i] != tools->section_end;
    if (marks[i] != tools->fence && !section) parser->in_block = false;
    return MATCH_WHOLE;
  }
  return best;
}

/* Tells whether the next call of the same block begins here, without a marker of its own. */
static match_t begins_next(const output_parser_t *parser, const char *text, size_t length) {
  const tool_format_t *tools = parser->options.tools;
  if (!parser->in_block) return MATCH_NONE;
  if (tools->section != NULL) return mark_match(text, length, tools->open);
  bool lines = tools->payload == PAYLOAD_LITERALS && tools->literals->string_mark == NULL;
  return lines && is_name_byte(text[0]) ? MATCH_WHOLE : MATCH_NONE;
}

/* Reads what follows a call: the next call of a list or section, closing markers, or the separator
 * of calls without marker. */
static bool step_called(output_parser_t *parser) {
  const tool_format_t *tools = parser->options.tools;
  size_t length;
  const char *text = rest(parser, &length);
  parser->at += blanks(text, length);
  text = rest(parser, &length);
  if (length == 0) return false;
  parser->trim = true;
  if (parser->in_list && (text[0] == ',' || text[0] == ']')) {
    parser->in_list = text[0] == ',';
    if (parser->in_list) {
      parser->stage = STAGE_OPENED;
      take_raw(parser, 1);
    } else {
      parser->at++;
    }
    return true;
  }
  match_t closes = read_close(parser, text, length);
  if (closes == MATCH_WHOLE) return true;
  match_t next = begins_next(parser, text, length);
  if ((closes == MATCH_PART || next == MATCH_PART) && next != MATCH_WHOLE && !parser->ended) {
    return false;
  }
  parser->stage = STAGE_CONTENT;
  if (next == MATCH_WHOLE) {
    if (tools->section != NULL) take_raw(parser, strlen(tools->open));
    parser->stage = STAGE_OPENED;
    return true;
  }
  if (!tools->bare || parser->in_list || tools->payload != PAYLOAD_JSON) return true;
  bool separator = text[0] == ';' || text[0] == ',';
  if (separator) take_raw(parser, 1);
  if (separator || text[0] == '{') parser->stage = STAGE_OPENED;
  return true;
}

/* ---- the whole output ---- */

/* Drops the mark that begins the reasoning, which may repeat that of the prompt. */
static bool step_start(output_parser_t *parser) {
  const reasoning_format_t *format = parser->options.reasoning;
  const char *const opens[] = {format->open, format->other_open};
  size_t length, mark = 0;
  const char *text = rest(parser, &length);
  size_t skip = blanks(text, length);
  bool part = false, near = skip <= BLANKS_HELD_MAX, begun = parser->options.in_reasoning;
  for (int i = 0; i < 2; i++) {
    match_t found = mark_match(text + skip, length - skip, opens[i]);
    if (found == MATCH_WHOLE && strlen(opens[i]) > mark) mark = strlen(opens[i]);
    if (found == MATCH_PART) part = true;
  }
  if (part && near && !parser->ended) return false;
  if (mark > 0 && near) parser->at += skip + mark;
  begun |= mark > 0 && near;
  parser->stage = begun ? STAGE_REASONING : STAGE_FIRST;
  parser->trim = begun;
  return true;
}

static bool step_reasoning(output_parser_t *parser, const output_sink_t *sink) {
  const reasoning_format_t *format = parser->options.reasoning;
  marks_t marks = call_marks(parser);
  marks_add(&marks, format->close);
  marks_add(&marks, format->other_close);
  const char *mark = say_until(parser, OUTPUT_REASONING, &marks, sink);
  if (mark == NULL) return false;
  if (mark != format->close && mark != format->other_close) {
    begin_call(parser, mark);
    parser->from_thoughts = true;
    return true;
  }
  buffer_clear(&parser->raw);
  parser->at += strlen(mark);
  parser->stage = STAGE_FIRST;
  parser->trim = true;
  return true;
}

/* Parses a part of `pending`. Returns false if it needs more text. */
static bool step(output_parser_t *parser, const output_sink_t *sink) {
  switch (parser->stage) {
  case STAGE_START: return step_start(parser);
  case STAGE_REASONING: return step_reasoning(parser, sink);
  case STAGE_FIRST: return step_first(parser);
  case STAGE_CONTENT: return step_content(parser, sink);
  case STAGE_SECTION: return step_section(parser, sink);
  case STAGE_OPENED: return step_opened(parser, sink);
  case STAGE_NAME: return step_name(parser, sink);
  case STAGE_CALL:
  case STAGE_TAGS:
  case STAGE_LITERALS: return step_payload(parser, sink);
  case STAGE_CALLED: return step_called(parser);
  case STAGE_DROP: parser->at = parser->pending.length; return false;
  }
  return false;
}

static void run(output_parser_t *parser, const output_sink_t *sink) {
  while (parser->at < parser->pending.length && step(parser, sink)) continue;
  size_t left = parser->pending.length - parser->at;
  if (left > 0) memmove(parser->pending.data, parser->pending.data + parser->at, left);
  parser->pending.length = left;
  parser->at = 0;
}

/* Ends a call in tags inside which the text ended. An open object or array becomes a string. */
static void end_tags(output_parser_t *parser, const output_sink_t *sink) {
  while (parser->stage == STAGE_TAGS && parser->tags.spanning) {
    read_value_again(parser);
    run(parser, sink);
  }
  if (parser->stage != STAGE_TAGS || !parser->tags.streaming) return;
  tag_call_close(&parser->tags, sink);
  after_call(parser, STAGE_CONTENT);
}

void output_parser_feed(output_parser_t *parser, const char *text, size_t length,
                        const output_sink_t *sink) {
  if (length == 0) return;
  if (parser->channels != NULL) {
    channels_feed(parser->channels, text, length, sink);
    return;
  }
  buffer_append(&parser->pending, text, length);
  if (parser->pending.failed) return;
  run(parser, sink);
}

/* ---- a text that was cut ---- */

/* Tells whether text that may be a call without a mark may still become one, or is one: its name is
 * that of a function, or the start of one. Else it is content. */
static bool may_be_call(const output_parser_t *parser) {
  const json_t *functions = parser->options.functions;
  if (parser->stage == STAGE_LITERALS) return literal_call_may_be(&parser->literals);
  return parser->stage != STAGE_CALL || call_scan_may_be(&parser->call, functions);
}

/* The name of a call stands before its arguments, which have not begun. */
static bool is_named(output_parser_t *parser) {
  const buffer_t *name = &parser->name;
  if (parser->stage != STAGE_NAME || !parser->name_closed || !begin_named(parser)) return false;
  return argument_function(parser->options.functions, name->data, name->length) != NULL;
}

/* Sends the call in which the text was cut, if its name is known. What is left is markup. */
static void cut_call(output_parser_t *parser, const output_sink_t *sink) {
  if (parser->bare && !may_be_call(parser)) {
    give_up(parser, sink);
    return;
  }
  switch (parser->stage) {
  case STAGE_NAME:
    if (is_named(parser)) call_scan_cut(&parser->call, sink);
    break;
  case STAGE_CALL: call_scan_cut(&parser->call, sink); break;
  case STAGE_TAGS: tag_call_cut(&parser->tags, sink); break;
  case STAGE_LITERALS: literal_call_cut(&parser->literals, sink); break;
  default: break;
  }
}

/* Ends a text that was cut. Blanks are text; anything else that waits may be a piece of a mark. */
static void end_cut(output_parser_t *parser, const output_sink_t *sink) {
  bool thoughts = output_parser_is_reasoning(parser);
  bool text = parser->stage <= STAGE_CONTENT && !parser->any_call && !parser->trim;
  size_t length = parser->pending.length;
  if (parser->stage >= STAGE_SECTION && parser->stage <= STAGE_LITERALS) cut_call(parser, sink);
  if (text && length > 0 && blanks(parser->pending.data, length) == length) {
    output_kind_t kind = thoughts ? OUTPUT_REASONING : OUTPUT_CONTENT;
    sink->take(sink->context, kind, parser->pending.data, length);
  }
  buffer_clear(&parser->pending);
  parser->stage = STAGE_DROP;
}

void output_parser_end(output_parser_t *parser, bool cut, const output_sink_t *sink) {
  if (parser->channels != NULL) {
    channels_end(parser->channels, cut, sink);
    return;
  }
  if (cut) {
    end_cut(parser, sink);
    return;
  }
  parser->ended = true;
  run(parser, sink);
  end_tags(parser, sink);
  if (parser->stage == STAGE_CALL && parser->call.streaming) {
    call_scan_flush(&parser->call, sink);
    sink->take(sink->context, OUTPUT_CALL_END, "", 0);
    after_call(parser, STAGE_CONTENT);
  }
  bool open = parser->stage >= STAGE_SECTION && parser->stage <= STAGE_LITERALS;
  if (open && parser->raw.length > 0) {
    give_up(parser, sink);
    run(parser, sink);
  }
  if (parser->stage != STAGE_DROP && parser->pending.length > 0) {
    sink->take(sink->context, OUTPUT_CONTENT, parser->pending.data, parser->pending.length);
  }
  buffer_clear(&parser->pending);
}
