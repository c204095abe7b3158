/* output.c: the state machine of output.h. One owner, one thread at a time.
 *
 * `pending` holds text whose meaning is not decided: the possible start of a marker, and blanks
 * that are dropped if a marker follows. `raw` holds the text of a call until it is certain that it
 * is a call. The length of `pending` is bounded, so every byte is read a bounded number of times.
 */
#include "server/parser/output.h"

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
  output_parser_t *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->options = *options;
  p->stage = options->reasoning != NULL ? STAGE_START : STAGE_FIRST;
  if (options->reasoning != NULL && options->in_reasoning) {
    p->stage = STAGE_REASONING;
    p->trim = true;
  }
  if (options->reasoning == NULL || options->reasoning->answer == NULL) return p;
  p->channels = channels_new(options);
  if (p->channels != NULL) return p;
  output_parser_free(p);
  return NULL;
}

void output_parser_free(output_parser_t *p) {
  if (p == NULL) return;
  buffer_free(&p->pending);
  buffer_free(&p->raw);
  buffer_free(&p->name);
  call_scan_free(&p->call);
  tag_call_free(&p->tags);
  channels_free(p->channels);
  free(p);
}

bool output_parser_is_reasoning(const output_parser_t *p) {
  if (p->channels != NULL) return channels_is_reasoning(p->channels);
  return p->stage == STAGE_REASONING;
}

bool output_parser_failed(const output_parser_t *p) {
  if (p->channels != NULL && channels_failed(p->channels)) return true;
  return p->pending.failed || p->raw.failed || p->name.failed || p->call.value.failed ||
         p->call.name.failed || tag_call_failed(&p->tags);
}

/* ---- text and markers ---- */

static const char *rest(const output_parser_t *p, size_t *length) {
  *length = p->pending.length - p->at;
  return p->pending.data + p->at;
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
static said_t say_until(output_parser_t *p, output_kind_t kind, const char *marker,
                        const char *other, const output_sink_t *sink) {
  size_t length;
  const char *text = rest(p, &length);
  if (p->trim) {
    size_t dropped = blanks(text, length);
    p->at += dropped;
    text = rest(p, &length);
    if (length > 0) p->trim = false;
  }
  bool whole = false;
  size_t end = length, held = 0;
  said_t found = SAID_TO_MARKER;
  if (marker != NULL) end = find(text, length, marker, &whole);
  if (other != NULL) {
    bool other_whole;
    size_t reach = end + strlen(other) - 1; /* end of an `other` that begins earlier */
    size_t first = find(text, reach < length ? reach : length, other, &other_whole);
    if (first < end) end = first, whole = other_whole, found = SAID_TO_OTHER;
  }
  if (p->ended && !whole) end = length;
  bool swallow = p->ended && !whole ? p->any_call : marker != NULL;
  while (swallow && held < end && json_is_blank(text[end - held - 1])) held++;
  held %= BLANKS_HELD_MAX + 1; /* as many as if the bytes had arrived one by one */
  if (end > held) sink->take(sink->context, kind, text, end - held);
  p->at += whole ? end : end - held;
  if (whole && found == SAID_TO_MARKER) p->at += strlen(marker);
  if (p->ended && !whole) p->at = p->pending.length;
  return whole ? found : SAID_ALL;
}

/* ---- calls ---- */

/* The text that looked like a call is not one: sends it as content. */
static void give_up(output_parser_t *p, const output_sink_t *sink) {
  if (p->raw.length > 0) {
    sink->take(sink->context, OUTPUT_CONTENT, p->raw.data, p->raw.length);
  }
  buffer_clear(&p->raw);
  p->stage = STAGE_CONTENT;
  p->in_list = p->trim = false;
}

static void take_raw(output_parser_t *p, size_t count) {
  buffer_append(&p->raw, p->pending.data + p->at, count);
  p->at += count;
}

static bool step_first(output_parser_t *p) {
  const tool_format_t *tools = p->options.tools;
  size_t length;
  const char *text = rest(p, &length);
  size_t skip = blanks(text, length);
  p->stage = STAGE_CONTENT;
  if (tools == NULL || !tools->bare) return true;
  if (p->trim) {
    p->at += skip;
    text = rest(p, &length);
    skip = 0;
  }
  match_t marked = MATCH_NONE;
  if (tools->open != NULL) marked = match(text + skip, length - skip, tools->open);
  bool wait = skip == length || marked == MATCH_PART;
  if (wait && skip <= BLANKS_HELD_MAX && !p->ended) {
    p->stage = STAGE_FIRST;
    return false;
  }
  if (marked == MATCH_WHOLE) return true;
  bool call = skip < length && skip <= BLANKS_HELD_MAX &&
              (text[skip] == '{' || (tools->list && text[skip] == '['));
  if (call) {
    p->bare = true;
    take_raw(p, skip);
    p->stage = STAGE_OPENED;
  }
  return true;
}

static bool step_content(output_parser_t *p, const output_sink_t *sink) {
  const tool_format_t *tools = p->options.tools;
  const char *open = tools != NULL ? tools->open : NULL;
  const char *bare_open = tools != NULL ? tools->bare_open : NULL;
  said_t said = say_until(p, OUTPUT_CONTENT, open, bare_open, sink);
  if (said == SAID_ALL) return false;
  buffer_clear(&p->raw);
  if (said == SAID_TO_MARKER) buffer_text(&p->raw, open);
  p->bare = false;
  p->stage = STAGE_OPENED;
  return true;
}

static bool step_opened(output_parser_t *p, const output_sink_t *sink) {
  const tool_format_t *tools = p->options.tools;
  size_t length;
  const char *text = rest(p, &length);
  if (tools->in_tags) {
    tag_call_start(&p->tags, p->options.functions);
    p->stage = STAGE_TAGS;
    return true;
  }
  size_t skip = blanks(text, length);
  take_raw(p, skip);
  text = rest(p, &length);
  if (length == 0) return false;
  if (text[0] == '{') {
    call_scan_start(&p->call, p->bare);
    p->stage = STAGE_CALL;
  } else if (text[0] == '[' && tools->list && !p->in_list) {
    p->in_list = true;
    take_raw(p, 1);
  } else if (tools->name_end != NULL && !p->in_list && !p->bare) {
    buffer_clear(&p->name);
    p->stage = STAGE_NAME;
  } else {
    give_up(p, sink);
  }
  return true;
}

static bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/* Reads NAME[ARGS]{...} or NAME[CALL_ID]id[ARGS]{...}. The markers may be missing: they are special
 * tokens, which may be removed from the text. */
static bool step_name(output_parser_t *p, const output_sink_t *sink) {
  const tool_format_t *tools = p->options.tools;
  for (;;) {
    size_t length;
    const char *text = rest(p, &length);
    if (length == 0) return false;
    match_t args = match(text, length, tools->name_end);
    match_t id = tools->id_mark != NULL ? match(text, length, tools->id_mark) : MATCH_NONE;
    if (text[0] == '{' && p->name.length > 0) break;
    if (args == MATCH_WHOLE) {
      take_raw(p, strlen(tools->name_end));
    } else if (id == MATCH_WHOLE) {
      take_raw(p, strlen(tools->id_mark));
      p->name_closed = true;
    } else if (args == MATCH_PART || id == MATCH_PART) {
      return false;
    } else if (is_name_byte(text[0]) && p->raw.length < BLANKS_HELD_MAX + CALL_NAME_BYTES_MAX) {
      if (!p->name_closed) buffer_char(&p->name, text[0]);
      take_raw(p, 1);
    } else {
      give_up(p, sink);
      return true;
    }
  }
  p->name_closed = false;
  call_scan_start_named(&p->call, p->name.data, p->name.length);
  p->stage = STAGE_CALL;
  return true;
}

static void after_call(output_parser_t *p, stage_t next) {
  p->any_call = true;
  buffer_clear(&p->raw);
  p->stage = p->options.one_call ? STAGE_DROP : next;
}

static bool step_call(output_parser_t *p, const output_sink_t *sink) {
  while (p->at < p->pending.length) {
    call_result_t result = call_scan_byte(&p->call, p->pending.data[p->at], sink);
    if (result == CALL_BAD) {
      if (!p->call.streaming) {
        give_up(p, sink);
      } else { /* a part was sent already, so the call ends here */
        call_scan_flush(&p->call, sink);
        sink->take(sink->context, OUTPUT_CALL_END, "", 0);
        after_call(p, STAGE_CONTENT);
      }
      return true;
    }
    if (!p->call.streaming) {
      take_raw(p, 1);
    } else {
      p->at++;
    }
    if (result == CALL_DONE) {
      after_call(p, STAGE_CALLED);
      return true;
    }
  }
  call_scan_flush(&p->call, sink);
  return false;
}

/* Puts the last bytes back, so that they are parsed again. */
static void put_back(output_parser_t *p, const buffer_t *bytes) {
  if (bytes->length <= p->at) {
    p->at -= bytes->length;
    return;
  }
  buffer_t pending = {.failed = p->pending.failed};
  buffer_append(&pending, bytes->data, bytes->length);
  buffer_append(&pending, p->pending.data + p->at, p->pending.length - p->at);
  buffer_free(&p->pending);
  p->pending = pending;
  p->at = 0;
}

static bool step_tags(output_parser_t *p, const output_sink_t *sink) {
  tag_call_t *call = &p->tags;
  while (p->at < p->pending.length) {
    call_result_t result = tag_call_byte(call, p->pending.data[p->at], sink);
    if (result == CALL_BAD) {
      put_back(p, &call->held);
      if (call->streaming) {
        tag_call_close(call, sink);
        after_call(p, STAGE_CONTENT);
      } else {
        p->raw.length -= call->held.length;
        give_up(p, sink);
      }
      return true;
    }
    if (!call->streaming) {
      take_raw(p, 1);
    } else {
      p->at++;
    }
    if (result == CALL_AGAIN) {
      put_back(p, &call->value);
      tag_call_again(call);
    } else if (result == CALL_DONE) {
      after_call(p, STAGE_CALLED);
      return true;
    }
  }
  tag_call_flush(call, sink);
  return false;
}

/* Reads what follows a call: the next call of a list, the closing marker, or the separator of calls
 * without marker. */
static bool step_called(output_parser_t *p) {
  const tool_format_t *tools = p->options.tools;
  size_t length;
  const char *text = rest(p, &length);
  p->at += blanks(text, length);
  text = rest(p, &length);
  if (length == 0) return false;
  p->trim = true;
  if (p->in_list && (text[0] == ',' || text[0] == ']')) {
    p->in_list = text[0] == ',';
    if (p->in_list) {
      p->stage = STAGE_OPENED;
      take_raw(p, 1);
    } else {
      p->at++;
    }
    return true;
  }
  p->stage = STAGE_CONTENT;
  if (tools->close != NULL) {
    match_t found = match(text, length, tools->close);
    if (found == MATCH_WHOLE) p->at += strlen(tools->close);
    if (found == MATCH_PART && !p->ended) p->stage = STAGE_CALLED;
    return found != MATCH_PART || p->ended;
  }
  if (!tools->bare || p->in_list) return true;
  bool separator = text[0] == ';' || text[0] == ',';
  if (separator) take_raw(p, 1);
  if (separator || text[0] == '{') p->stage = STAGE_OPENED;
  return true;
}

/* ---- the whole output ---- */

static bool step_start(output_parser_t *p) {
  size_t length;
  const char *text = rest(p, &length);
  size_t skip = blanks(text, length);
  match_t found = match(text + skip, length - skip, p->options.reasoning->open);
  bool near = skip <= BLANKS_HELD_MAX;
  if (found == MATCH_PART && near && !p->ended) return false;
  if (found == MATCH_WHOLE && near) {
    p->at += skip + strlen(p->options.reasoning->open);
    p->trim = true;
    p->stage = STAGE_REASONING;
  } else {
    p->stage = STAGE_FIRST;
  }
  return true;
}

/* Parses a part of `pending`. Returns false if it needs more text. */
static bool step(output_parser_t *p, const output_sink_t *sink) {
  switch (p->stage) {
  case STAGE_START: return step_start(p);
  case STAGE_REASONING:
    if (say_until(p, OUTPUT_REASONING, p->options.reasoning->close, NULL, sink) == SAID_ALL) {
      return false;
    }
    p->stage = STAGE_FIRST;
    p->trim = true;
    return true;
  case STAGE_FIRST: return step_first(p);
  case STAGE_CONTENT: return step_content(p, sink);
  case STAGE_OPENED: return step_opened(p, sink);
  case STAGE_NAME: return step_name(p, sink);
  case STAGE_CALL: return step_call(p, sink);
  case STAGE_TAGS: return step_tags(p, sink);
  case STAGE_CALLED: return step_called(p);
  case STAGE_DROP: p->at = p->pending.length; return false;
  }
  return false;
}

static void run(output_parser_t *p, const output_sink_t *sink) {
  while (p->at < p->pending.length && step(p, sink)) continue;
  size_t left = p->pending.length - p->at;
  if (left > 0) memmove(p->pending.data, p->pending.data + p->at, left);
  p->pending.length = left;
  p->at = 0;
}

/* Ends a call in tags inside which the text ended. An open object or array becomes a string. */
static void end_tags(output_parser_t *p, const output_sink_t *sink) {
  while (p->stage == STAGE_TAGS && p->tags.spanning) {
    put_back(p, &p->tags.value);
    tag_call_again(&p->tags);
    run(p, sink);
  }
  if (p->stage != STAGE_TAGS || !p->tags.streaming) return;
  tag_call_close(&p->tags, sink);
  after_call(p, STAGE_CONTENT);
}

void output_parser_feed(output_parser_t *p, const char *text, size_t length,
                        const output_sink_t *sink) {
  if (length == 0) return;
  if (p->channels != NULL) {
    channels_feed(p->channels, text, length, false, sink);
    return;
  }
  buffer_append(&p->pending, text, length);
  if (p->pending.failed) return;
  run(p, sink);
}

void output_parser_end(output_parser_t *p, const output_sink_t *sink) {
  if (p->channels != NULL) {
    channels_feed(p->channels, "", 0, true, sink);
    return;
  }
  p->ended = true;
  run(p, sink);
  end_tags(p, sink);
  if (p->stage == STAGE_CALL && p->call.streaming) {
    call_scan_flush(&p->call, sink);
    sink->take(sink->context, OUTPUT_CALL_END, "", 0);
    buffer_clear(&p->raw);
  }
  bool open = p->stage == STAGE_OPENED || p->stage == STAGE_NAME || p->stage == STAGE_CALL ||
              p->stage == STAGE_TAGS;
  if (open && p->raw.length > 0) give_up(p, sink);
  if (p->stage != STAGE_DROP && p->pending.length > 0) {
    sink->take(sink->context, OUTPUT_CONTENT, p->pending.data, p->pending.length);
  }
  buffer_clear(&p->pending);
}
