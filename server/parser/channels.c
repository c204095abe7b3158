/* channels.c: the state machine of channels.h. One owner, one thread at a time.
 *
 * A header is held back until it is complete, up to a bound. Of a body only the start of a mark is
 * held back. Text without any header is content, so that the text of a model that ignores the
 * format is not lost.
 */
#include "server/parser/channels.h"

#include "server/parser/call_scan.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES_MAX = 512 };

typedef enum channel_stage {
  CHANNEL_HEADER,
  CHANNEL_BODY, /* text of `kind` */
  CHANNEL_CALL, /* the arguments of a call */
  CHANNEL_SKIP, /* after the arguments */
  CHANNEL_DROP  /* all further text is dropped */
} channel_stage_t;

struct channels {
  output_options_t options;
  channel_stage_t stage;
  output_kind_t kind;
  buffer_t pending; /* text from `at` on is not parsed yet */
  size_t at;
  size_t given; /* bytes of the header at `at` that were in the prompt */
  bool any;     /* a message has begun */
  call_scan_t call;
};

static void no_sink(void *context, output_kind_t kind, const char *text, size_t length) {
  (void)context, (void)kind, (void)text, (void)length;
}

channels_t *channels_new(const output_options_t *options) {
  static const output_sink_t nowhere = {no_sink, NULL};
  channels_t *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->options = *options;
  if (options->begun_length > 0) {
    channels_feed(c, options->begun, options->begun_length, false, &nowhere);
    c->given = c->pending.length;
  }
  return c;
}

void channels_free(channels_t *c) {
  if (c == NULL) return;
  buffer_free(&c->pending);
  call_scan_free(&c->call);
  free(c);
}

bool channels_is_reasoning(const channels_t *c) {
  return c->stage == CHANNEL_BODY && c->kind == OUTPUT_REASONING;
}

bool channels_failed(const channels_t *c) {
  return c->pending.failed || c->call.value.failed || c->call.name.failed;
}

/* Returns where the first mark begins; `length` if there is none. *size is its number of bytes, or
 * 0 if the text ends before the mark is complete. */
static size_t find_mark(const char *text, size_t length, size_t *size) {
  for (size_t i = 0; i < length; i++) {
    const char *next = memchr(text + i, '<', length - i);
    if (next == NULL) break;
    i = (size_t)(next - text);
    for (const char *const *mark = channel_marks; *mark != NULL; mark++) {
      size_t wanted = strlen(*mark), there = length - i < wanted ? length - i : wanted;
      if (memcmp(next, *mark, there) != 0) continue;
      *size = there == wanted ? wanted : 0;
      return i;
    }
  }
  *size = 0;
  return length;
}

/* ---- headers ---- */

/* Returns the text after `word` in a header, up to a blank or a mark; *length 0 = none. */
static const char *value_behind(const char *header, size_t header_length, const char *word,
                                size_t *length) {
  *length = 0;
  const char *at = memmem(header, header_length, word, strlen(word));
  if (at == NULL) return "";
  at += strlen(word);
  size_t left = header_length - (size_t)(at - header);
  while (*length < left && at[*length] != ' ' && at[*length] != '<') ++*length;
  return at;
}

static void open_message(channels_t *c, const char *header, size_t length) {
  static const char functions[] = "functions.";
  size_t channel_length, to_length, prefix = sizeof functions - 1;
  const char *channel = value_behind(header, length, "<|channel|>", &channel_length);
  const char *to = value_behind(header, length, "to=", &to_length);
  bool thoughts = channel_length == 8 && memcmp(channel, "analysis", 8) == 0;
  c->any = true;
  c->stage = CHANNEL_BODY;
  c->kind = thoughts ? OUTPUT_REASONING : OUTPUT_CONTENT;
  if (c->options.tools == NULL || to_length <= prefix || memcmp(to, functions, prefix) != 0) return;
  if (to_length - prefix > CALL_NAME_BYTES_MAX) return;
  c->stage = CHANNEL_CALL;
  call_scan_start_named(&c->call, to + prefix, to_length - prefix);
}

/* Reads a header. Returns true if it was complete. */
static bool step_header(channels_t *c, bool ended) {
  static const char end[] = "<|message|>";
  const char *text = c->pending.data + c->at;
  size_t length = c->pending.length - c->at;
  const char *hit = memmem(text, length, end, sizeof end - 1);
  if (hit != NULL && (size_t)(hit - text) <= c->given + HEADER_BYTES_MAX) {
    open_message(c, text, (size_t)(hit - text));
    c->at += (size_t)(hit - text) + sizeof end - 1;
    c->given = 0;
    return true;
  }
  bool endless = length > c->given + HEADER_BYTES_MAX + sizeof end;
  if (!endless && !ended) return false;
  size_t size, mark = find_mark(text + c->given, length - c->given, &size);
  if (endless || (!c->any && (mark > 0 || size == 0))) { /* no header at all */
    c->at += c->given;
    c->stage = CHANNEL_BODY;
    c->kind = OUTPUT_CONTENT;
  } else {
    c->at = c->pending.length;
  }
  c->given = 0;
  return c->at < c->pending.length;
}

/* ---- bodies ---- */

static void say(const output_sink_t *sink, output_kind_t kind, const char *text, size_t length) {
  if (length > 0) sink->take(sink->context, kind, text, length);
}

static void end_call(channels_t *c, const output_sink_t *sink) {
  call_scan_flush(&c->call, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
}

static channel_stage_t behind_call(const channels_t *c) {
  return c->options.one_call ? CHANNEL_DROP : CHANNEL_SKIP;
}

static void take_arguments(channels_t *c, const char *text, size_t length,
                           const output_sink_t *sink) {
  for (size_t i = 0; i < length; i++) {
    if (!c->call.streaming && json_is_blank(text[i])) continue;
    call_result_t result = call_scan_byte(&c->call, text[i], sink);
    if (result == CALL_MORE) continue;
    if (result == CALL_DONE || c->call.streaming) {
      if (result == CALL_BAD)
        end_call(c, sink); /* a part was sent already, so the call ends here */
      c->stage = behind_call(c);
    } else {
      c->stage = CHANNEL_BODY;
      c->kind = OUTPUT_CONTENT;
      say(sink, c->kind, text + i, length - i);
    }
    return;
  }
  call_scan_flush(&c->call, sink);
}

/* Ends the body. A call whose arguments are missing has the empty object. */
static void close_message(channels_t *c, const output_sink_t *sink) {
  if (c->stage != CHANNEL_CALL) return;
  if (c->call.streaming) {
    end_call(c, sink);
  } else {
    (void)call_scan_byte(&c->call, '{', sink);
    (void)call_scan_byte(&c->call, '}', sink);
  }
  c->stage = behind_call(c);
}

/* Reads a body. Returns true if a mark ended it. */
static bool step_body(channels_t *c, bool ended, const output_sink_t *sink) {
  const char *text = c->pending.data + c->at;
  size_t length = c->pending.length - c->at, size, end = find_mark(text, length, &size);
  if (ended && size == 0) end = length;
  if (c->stage == CHANNEL_BODY) say(sink, c->kind, text, end);
  if (c->stage == CHANNEL_CALL) take_arguments(c, text, end, sink);
  c->at += end;
  if (size == 0 || c->stage == CHANNEL_DROP) return false;
  close_message(c, sink);
  if (c->stage == CHANNEL_DROP) return false;
  c->stage = CHANNEL_HEADER;
  return true; /* the mark is part of the header */
}

void channels_feed(channels_t *c, const char *text, size_t length, bool ended,
                   const output_sink_t *sink) {
  buffer_append(&c->pending, text, length);
  if (c->pending.failed) return;
  bool more = true;
  while (more && c->at < c->pending.length) {
    if (c->stage == CHANNEL_HEADER) {
      more = step_header(c, ended);
    } else {
      more = c->stage != CHANNEL_DROP && step_body(c, ended, sink);
    }
  }
  if (ended) close_message(c, sink);
  if (ended || c->stage == CHANNEL_DROP) c->at = c->pending.length;
  size_t left = c->pending.length - c->at;
  if (left > 0) memmove(c->pending.data, c->pending.data + c->at, left);
  c->pending.length = left;
  c->at = 0;
}
