/* output.c: the state machine of output.h. One owner, one thread at a time.
 *
 * `pending` holds text whose meaning is not decided: the possible start of a marker, and blanks
 * that are dropped if a marker follows. `raw` holds the text of a call until it is certain that it
 * is a call. The length of `pending` is bounded, so every byte is read a bounded number of times.
 */
#include "server/parser/output.h"

#include "engine/base/util.h"
#include "server/parser/call_scan.h"
#include "server/parser/channels.h"
#include "server/parser/tag_call.h"

#include <stdlib.h>
#include <string.h>

enum { BLANKS_HELD_MAX = 256 };

typedef enum stage {
  STAGE_START,     /* reasoning may begin */
  STAGE_REASONING, /* inside the reasoning */
  STAGE_FIRST,     /* content, or a call without marker, begins */
  STAGE_CONTENT,
  STAGE_OPENED, /* after the marker of a call */
  STAGE_NAME,   /* the name of the call, which comes before its arguments */
  STAGE_CALL,   /* inside its JSON */
  STAGE_TAGS,   /* inside its tags */
  STAGE_CALLED, /* after a call */
  STAGE_DROP    /* all further text is dropped */
} stage_t;

struct output_parser {
  output_options_t options;
  stage_t stage;
  buffer_t pending; /* text from `at` on is not parsed yet */
  size_t at;
  buffer_t raw;  /* the text of the call so far */
  buffer_t name; /* STAGE_NAME */
  bool trim;     /* drop the blanks at the start of the next text */
  bool any_call;
  bool in_list;
  bool name_closed; /* STAGE_NAME: after the name, before the arguments */
  bool bare;        /* the call has no marker */
  bool ended;       /* no text will follow */

  call_scan_t call;
  tag_call_t tags;
  channels_t *channels; /* parses all text if the format has channels; else NULL */
};

output_parser_t *output_parser_new(const output_options_t *options) {
  output_parser_t *parser = calloc(1, sizeof *parser);
  if (parser == NULL) return NULL;
  parser->options = *options;
  parser->stage = options->reasoning != NULL ? STAGE_START : STAGE_FIRST;
  if (options->reasoning != NULL && options->in_reasoning) {
    parser->stage = STAGE_REASONING;
    parser->trim = true;
  }
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
  call_scan_free(&parser->call);
  tag_call_free(&parser->tags);
  channels_free(parser->channels);
  free(parser);
}

bool output_parser_is_reasoning(const output_parser_t *parser) {
  if (parser->channels != NULL) return channels_is_reasoning(parser->channels);
  return parser->stage == STAGE_REASONING;
}

bool output_parser_failed(const output_parser_t *parser) {
  if (parser->channels != NULL && channels_failed(parser->channels)) return true;
  return parser->pending.failed || parser->raw.failed || parser->name.failed ||
         parser->call.value.failed || parser->call.name.failed || tag_call_failed(&parser->tags);
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

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE } match_t;

/* Compares the start of the text with the marker; more text may be needed to decide. */
static match_t match(const char *text, size_t length, const char *marker) {
  size_t wanted = strlen(marker);
  if (length >= wanted) return memcmp(text, marker, wanted) == 0 ? MATCH_WHOLE : MATCH_NONE;
  return memcmp(text, marker, length) == 0 ? MATCH_PART : MATCH_NONE;
}

/* Returns where the marker begins, or where its first part ends the text; `length` if nowhere. */
static size_t find(const char *text, size_t length, const char *marker, bool *whole) {
  for (size_t i = 0; i < length; i++) {
    const char *next = memchr(text + i, marker[0], length - i);
    if (next == NULL) break;
    i = (size_t)(next - text);
    match_t found = match(next, length - i, marker);
    *whole = found == MATCH_WHOLE;
    if (found != MATCH_NONE) return i;
  }
  *whole = false;
  return length;
}

typedef enum said { SAID_ALL, SAID_TO_MARKER, SAID_TO_OTHER } said_t;

/* Sends text up to `marker`, which is consumed, or up to the other marker, which is not (NULL =
 * none). Blanks before a marker are dropped, so blanks are held back until it is clear that no
 * marker follows. */
static said_t say_until(output_parser_t *parser, output_kind_t kind, const char *marker,
                        const char *other, const output_sink_t *sink) {
  size_t length;
  const char *text = rest(parser, &length);
  if (parser->trim) {
    size_t dropped = blanks(text, length);
    parser->at += dropped;
    text = rest(parser, &length);
    if (length > 0) parser->trim = false;
  }
  bool whole = false;
  size_t end = length, held = 0;
  said_t found = SAID_TO_MARKER;
  if (marker != NULL) end = find(text, length, marker, &whole);
  if (other != NULL) {
    bool other_whole;
    size_t reach = end + strlen(other) - 1; /* end of an `other` that begins earlier */
    size_t first = find(text, MIN(reach, length), other, &other_whole);
    if (first < end) end = first, whole = other_whole, found = SAID_TO_OTHER;
  }
  if (parser->ended && !whole) end = length;
  bool swallow = parser->ended && !whole ? parser->any_call : marker != NULL;
  while (swallow && held < end && json_is_blank(text[end - held - 1])) held++;
  held %= BLANKS_HELD_MAX + 1; /* as many as if the bytes had arrived one by one */
  if (end > held) sink->take(sink->context, kind, text, end - held);
  parser->at += whole ? end : end - held;
  if (whole && found == SAID_TO_MARKER) parser->at += strlen(marker);
  if (parser->ended && !whole) parser->at = parser->pending.length;
  return whole ? found : SAID_ALL;
}

/* ---- calls ---- */

/* The text that looked like a call is not one: sends it as content. */
static void give_up(output_parser_t *parser, const output_sink_t *sink) {
  if (parser->raw.length > 0) {
    sink->take(sink->context, OUTPUT_CONTENT, parser->raw.data, parser->raw.length);
  }
  buffer_clear(&parser->raw);
  parser->stage = STAGE_CONTENT;
  parser->in_list = parser->trim = false;
}

static void take_raw(output_parser_t *parser, size_t count) {
  buffer_append(&parser->raw, parser->pending.data + parser->at, count);
  parser->at += count;
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
  if (tools->open != NULL) marked = match(text + skip, length - skip, tools->open);
  bool wait = skip == length || marked == MATCH_PART;
  if (wait && skip <= BLANKS_HELD_MAX && !parser->ended) {
    parser->stage = STAGE_FIRST;
    return false;
  }
  if (marked == MATCH_WHOLE) return true;
  bool call = skip < length && skip <= BLANKS_HELD_MAX &&
              (text[skip] == '{' || (tools->list && text[skip] == '['));
  if (call) {
    parser->bare = true;
    take_raw(parser, skip);
    parser->stage = STAGE_OPENED;
  }
  return true;
}

static bool step_content(output_parser_t *parser, const output_sink_t *sink) {
  const tool_format_t *tools = parser->options.tools;
  const char *open = tools != NULL ? tools->open : NULL;
  const char *bare_open = tools != NULL ? tools->bare_open : NULL;
  said_t said = say_until(parser, OUTPUT_CONTENT, open, bare_open, sink);
  if (said == SAID_ALL) return false;
  buffer_clear(&parser->raw);
  if (said == SAID_TO_MARKER) buffer_text(&parser->raw, open);
  parser->bare = false;
  parser->stage = STAGE_OPENED;
  return true;
}

static bool step_opened(output_parser_t *parser, const output_sink_t *sink) {
  const tool_format_t *tools = parser->options.tools;
  size_t length;
  const char *text = rest(parser, &length);
  if (tools->in_tags) {
    tag_call_start(&parser->tags, parser->options.functions);
    parser->stage = STAGE_TAGS;
    return true;
  }
  size_t skip = blanks(text, length);
  take_raw(parser, skip);
  text = rest(parser, &length);
  if (length == 0) return false;
  if (text[0] == '{') {
    call_scan_start(&parser->call, parser->bare);
    parser->stage = STAGE_CALL;
  } else if (text[0] == '[' && tools->list && !parser->in_list) {
    parser->in_list = true;
    take_raw(parser, 1);
  } else if (tools->name_end != NULL && !parser->in_list && !parser->bare) {
    buffer_clear(&parser->name);
    parser->stage = STAGE_NAME;
  } else {
    give_up(parser, sink);
  }
  return true;
}

static bool is_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
}

/* Reads NAME[ARGS]{...} or NAME[CALL_ID]id[ARGS]{...}. The markers may be missing: they are special
 * tokens, which may be removed from the text. */
static bool step_name(output_parser_t *parser, const output_sink_t *sink) {
  const tool_format_t *tools = parser->options.tools;
  for (;;) {
    size_t length;
    const char *text = rest(parser, &length);
    if (length == 0) return false;
    match_t args = match(text, length, tools->name_end);
    match_t id = tools->id_mark != NULL ? match(text, length, tools->id_mark) : MATCH_NONE;
    if (text[0] == '{' && parser->name.length > 0) break;
    if (args == MATCH_WHOLE) {
      take_raw(parser, strlen(tools->name_end));
    } else if (id == MATCH_WHOLE) {
      take_raw(parser, strlen(tools->id_mark));
      parser->name_closed = true;
    } else if (args == MATCH_PART || id == MATCH_PART) {
      return false;
    } else if (is_name_byte(text[0]) &&
               parser->raw.length < BLANKS_HELD_MAX + CALL_NAME_BYTES_MAX) {
      if (!parser->name_closed) buffer_char(&parser->name, text[0]);
      take_raw(parser, 1);
    } else {
      give_up(parser, sink);
      return true;
    }
  }
  parser->name_closed = false;
  call_scan_start_named(&parser->call, parser->name.data, parser->name.length);
  parser->stage = STAGE_CALL;
  return true;
}

static void after_call(output_parser_t *parser, stage_t next) {
  parser->any_call = true;
  buffer_clear(&parser->raw);
  parser->stage = parser->options.one_call ? STAGE_DROP : next;
}

static bool step_call(output_parser_t *parser, const output_sink_t *sink) {
  while (parser->at < parser->pending.length) {
    call_result_t result = call_scan_byte(&parser->call, parser->pending.data[parser->at], sink);
    if (result == CALL_BAD) {
      if (!parser->call.streaming) {
        give_up(parser, sink);
      } else { /* a part was sent already, so the call ends here */
        call_scan_flush(&parser->call, sink);
        sink->take(sink->context, OUTPUT_CALL_END, "", 0);
        after_call(parser, STAGE_CONTENT);
      }
      return true;
    }
    if (!parser->call.streaming) {
      take_raw(parser, 1);
    } else {
      parser->at++;
    }
    if (result == CALL_DONE) {
      after_call(parser, STAGE_CALLED);
      return true;
    }
  }
  call_scan_flush(&parser->call, sink);
  return false;
}

/* Puts the last bytes back, so that they are parsed again. */
static void put_back(output_parser_t *parser, const buffer_t *bytes) {
  if (bytes->length <= parser->at) {
    parser->at -= bytes->length;
    return;
  }
  buffer_t pending = {.failed = parser->pending.failed};
  buffer_append(&pending, bytes->data, bytes->length);
  buffer_append(&pending, parser->pending.data + parser->at, parser->pending.length - parser->at);
  buffer_free(&parser->pending);
  parser->pending = pending;
  parser->at = 0;
}

static bool step_tags(output_parser_t *parser, const output_sink_t *sink) {
  tag_call_t *call = &parser->tags;
  while (parser->at < parser->pending.length) {
    call_result_t result = tag_call_byte(call, parser->pending.data[parser->at], sink);
    if (result == CALL_BAD) {
      put_back(parser, &call->held);
      if (call->streaming) {
        tag_call_close(call, sink);
        after_call(parser, STAGE_CONTENT);
      } else {
        parser->raw.length -= call->held.length;
        give_up(parser, sink);
      }
      return true;
    }
    if (!call->streaming) {
      take_raw(parser, 1);
    } else {
      parser->at++;
    }
    if (result == CALL_AGAIN) {
      put_back(parser, &call->value);
      tag_call_again(call);
    } else if (result == CALL_DONE) {
      after_call(parser, STAGE_CALLED);
      return true;
    }
  }
  tag_call_flush(call, sink);
  return false;
}

/* Reads what follows a call: the next call of a list, the closing marker, or the separator of calls
 * without marker. */
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
  parser->stage = STAGE_CONTENT;
  if (tools->close != NULL) {
    match_t found = match(text, length, tools->close);
    if (found == MATCH_WHOLE) parser->at += strlen(tools->close);
    if (found == MATCH_PART && !parser->ended) parser->stage = STAGE_CALLED;
    return found != MATCH_PART || parser->ended;
  }
  if (!tools->bare || parser->in_list) return true;
  bool separator = text[0] == ';' || text[0] == ',';
  if (separator) take_raw(parser, 1);
  if (separator || text[0] == '{') parser->stage = STAGE_OPENED;
  return true;
}

/* ---- the whole output ---- */

static bool step_start(output_parser_t *parser) {
  size_t length;
  const char *text = rest(parser, &length);
  size_t skip = blanks(text, length);
  match_t found = match(text + skip, length - skip, parser->options.reasoning->open);
  bool near = skip <= BLANKS_HELD_MAX;
  if (found == MATCH_PART && near && !parser->ended) return false;
  if (found == MATCH_WHOLE && near) {
    parser->at += skip + strlen(parser->options.reasoning->open);
    parser->trim = true;
    parser->stage = STAGE_REASONING;
  } else {
    parser->stage = STAGE_FIRST;
  }
  return true;
}

/* Parses a part of `pending`. Returns false if it needs more text. */
static bool step(output_parser_t *parser, const output_sink_t *sink) {
  switch (parser->stage) {
  case STAGE_START: return step_start(parser);
  case STAGE_REASONING:
    if (say_until(parser, OUTPUT_REASONING, parser->options.reasoning->close, NULL, sink) ==
        SAID_ALL) {
      return false;
    }
    parser->stage = STAGE_FIRST;
    parser->trim = true;
    return true;
  case STAGE_FIRST: return step_first(parser);
  case STAGE_CONTENT: return step_content(parser, sink);
  case STAGE_OPENED: return step_opened(parser, sink);
  case STAGE_NAME: return step_name(parser, sink);
  case STAGE_CALL: return step_call(parser, sink);
  case STAGE_TAGS: return step_tags(parser, sink);
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
    put_back(parser, &parser->tags.value);
    tag_call_again(&parser->tags);
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
    channels_feed(parser->channels, text, length, false, sink);
    return;
  }
  buffer_append(&parser->pending, text, length);
  if (parser->pending.failed) return;
  run(parser, sink);
}

void output_parser_end(output_parser_t *parser, const output_sink_t *sink) {
  if (parser->channels != NULL) {
    channels_feed(parser->channels, "", 0, true, sink);
    return;
  }
  parser->ended = true;
  run(parser, sink);
  end_tags(parser, sink);
  if (parser->stage == STAGE_CALL && parser->call.streaming) {
    call_scan_flush(&parser->call, sink);
    sink->take(sink->context, OUTPUT_CALL_END, "", 0);
    buffer_clear(&parser->raw);
  }
  bool open = parser->stage == STAGE_OPENED || parser->stage == STAGE_NAME ||
              parser->stage == STAGE_CALL || parser->stage == STAGE_TAGS;
  if (open && parser->raw.length > 0) give_up(parser, sink);
  if (parser->stage != STAGE_DROP && parser->pending.length > 0) {
    sink->take(sink->context, OUTPUT_CONTENT, parser->pending.data, parser->pending.length);
  }
  buffer_clear(&parser->pending);
}
