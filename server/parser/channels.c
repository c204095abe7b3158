/* channels.c: the state machine of channels.h. One owner, one thread at a time.
 *
 * A header is held back until it is complete, up to a bound. Of a body only the start of a mark is
 * held back. Text without any header is content, so that the text of a model that ignores the
 * format is not lost.
 */
#include "server/parser/channels.h"

#include "engine/base/util.h"
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
  bool ended;   /* no text will follow */
  bool cut;     /* and the model did not end it: a piece of a mark is no text */
  call_scan_t call;
};

static void no_sink(void *context, output_kind_t kind, const char *text, size_t length) {
  (void)context, (void)kind, (void)text, (void)length;
}

channels_t *channels_new(const output_options_t *options) {
  static const output_sink_t nowhere = {no_sink, NULL};
  channels_t *channels = calloc(1, sizeof *channels);
  if (channels == NULL) return NULL;
  channels->options = *options;
  if (options->begun_length > 0) {
    channels_feed(channels, options->begun, options->begun_length, &nowhere);
    channels->given = channels->pending.length;
  }
  return channels;
}

void channels_free(channels_t *channels) {
  if (channels == NULL) return;
  buffer_free(&channels->pending);
  call_scan_free(&channels->call);
  free(channels);
}

bool channels_is_reasoning(const channels_t *channels) {
  return channels->stage == CHANNEL_BODY && channels->kind == OUTPUT_REASONING;
}

bool channels_failed(const channels_t *channels) {
  return channels->pending.failed || call_scan_failed(&channels->call);
}

/* Returns where the first mark begins; `length` if there is none. *size is its number of bytes, or
 * 0 if the text ends before the mark is complete. */
static size_t find_mark(const char *text, size_t length, size_t *size) {
  for (size_t i = 0; i < length; i++) {
    const char *next = memchr(text + i, '<', length - i);
    if (next == NULL) break;
    i = (size_t)(next - text);
    for (const char *const *mark = channel_marks; *mark != NULL; mark++) {
      size_t wanted = strlen(*mark), there = MIN(length - i, wanted);
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

static void open_message(channels_t *channels, const char *header, size_t length) {
  static const char functions[] = "functions.";
  size_t channel_length, to_length, prefix = sizeof functions - 1;
  const char *channel = value_behind(header, length, "<|channel|>", &channel_length);
  const char *to = value_behind(header, length, "to=", &to_length);
  bool is_reasoning = channel_length == 8 && memcmp(channel, "analysis", 8) == 0;
  channels->any = true;
  channels->stage = CHANNEL_BODY;
  channels->kind = is_reasoning ? OUTPUT_REASONING : OUTPUT_CONTENT;
  if (channels->options.tools == NULL || to_length <= prefix || memcmp(to, functions, prefix) != 0)
    return;
  if (to_length - prefix > CALL_NAME_BYTES_MAX) return;
  channels->stage = CHANNEL_CALL;
  call_scan_start_named(&channels->call, to + prefix, to_length - prefix);
  channels->call.whole = channels->options.whole;
}

/* Reads a header. Returns true if it was complete. */
static bool step_header(channels_t *channels) {
  static const char end[] = "<|message|>";
  const char *text = channels->pending.data + channels->at;
  size_t length = channels->pending.length - channels->at;
  size_t most = channels->given + HEADER_BYTES_MAX + sizeof end - 1; /* with its end */
  bool endless = length > most + 1;
  length = MIN(length, most);
  const char *hit = memmem(text, length, end, sizeof end - 1);
  if (hit != NULL) {
    open_message(channels, text, (size_t)(hit - text));
    channels->at += (size_t)(hit - text) + sizeof end - 1;
    channels->given = 0;
    return true;
  }
  if (!endless && !channels->ended) return false;
  size_t size, mark = find_mark(text + channels->given, length - channels->given, &size);
  bool piece = channels->cut && mark == 0;
  if (endless || (!channels->any && !piece && (mark > 0 || size == 0))) { /* no header at all */
    channels->at += channels->given + (mark == 0 ? size : 0);             /* a mark is no text */
    channels->stage = CHANNEL_BODY;
    channels->kind = OUTPUT_CONTENT;
  } else {
    channels->at = channels->pending.length;
  }
  channels->given = 0;
  return channels->at < channels->pending.length;
}

/* ---- bodies ---- */

static void say(const output_sink_t *sink, output_kind_t kind, const char *text, size_t length) {
  if (length > 0) sink->take(sink->context, kind, text, length);
}

static void end_call(channels_t *channels, const output_sink_t *sink) {
  call_scan_flush(&channels->call, sink);
  sink->take(sink->context, OUTPUT_CALL_END, "", 0);
}

static channel_stage_t behind_call(const channels_t *channels) {
  return channels->options.one_call ? CHANNEL_DROP : CHANNEL_SKIP;
}

/* The arguments so far prove to be none: they are content. */
static void give_up(channels_t *channels, const output_sink_t *sink) {
  const buffer_t *value = &channels->call.value;
  channels->stage = CHANNEL_BODY;
  channels->kind = OUTPUT_CONTENT;
  say(sink, channels->kind, value->data, value->length);
}

static void take_arguments(channels_t *channels, const char *text, size_t length,
                           const output_sink_t *sink) {
  for (size_t i = 0; i < length; i++) {
    bool begun = channels->call.streaming || channels->call.value.length > 0;
    if (!begun && json_is_blank(text[i])) continue;
    call_result_t result = call_scan_byte(&channels->call, text[i], sink);
    if (result == CALL_MORE) continue;
    if (result == CALL_DONE || channels->call.streaming) {
      if (result == CALL_BAD)
        end_call(channels, sink); /* a part was sent already, so the call ends here */
      channels->stage = behind_call(channels);
    } else {
      give_up(channels, sink);
      say(sink, channels->kind, text + i, length - i);
    }
    return;
  }
  call_scan_flush(&channels->call, sink);
}

/* Ends the body. A call whose arguments are missing has the empty object. */
static void close_message(channels_t *channels, const output_sink_t *sink) {
  if (channels->stage != CHANNEL_CALL) return;
  if (channels->cut) {
    call_scan_cut(&channels->call, sink);
  } else if (channels->call.streaming) {
    end_call(channels, sink);
  } else if (channels->call.value.length > 0) {
    give_up(channels, sink);
    return;
  } else {
    (void)call_scan_byte(&channels->call, '{', sink);
    (void)call_scan_byte(&channels->call, '}', sink);
  }
  channels->stage = behind_call(channels);
}

/* Reads a body. Returns true if a mark ended it. */
static bool step_body(channels_t *channels, const output_sink_t *sink) {
  const char *text = channels->pending.data + channels->at;
  size_t length = channels->pending.length - channels->at, size,
         end = find_mark(text, length, &size);
  if (channels->ended && !channels->cut && size == 0) end = length;
  if (channels->stage == CHANNEL_BODY) say(sink, channels->kind, text, end);
  if (channels->stage == CHANNEL_CALL) take_arguments(channels, text, end, sink);
  channels->at += end;
  if (size == 0 || channels->stage == CHANNEL_DROP) return false;
  close_message(channels, sink);
  if (channels->stage == CHANNEL_DROP) return false;
  channels->stage = CHANNEL_HEADER;
  return true; /* the mark is part of the header */
}

static void run(channels_t *channels, const output_sink_t *sink) {
  bool more = true;
  while (more && channels->at < channels->pending.length) {
    if (channels->stage == CHANNEL_HEADER) {
      more = step_header(channels);
    } else {
      more = channels->stage != CHANNEL_DROP && step_body(channels, sink);
    }
  }
  if (channels->stage == CHANNEL_DROP) channels->at = channels->pending.length;
  size_t left = channels->pending.length - channels->at;
  if (left > 0) memmove(channels->pending.data, channels->pending.data + channels->at, left);
  channels->pending.length = left;
  channels->at = 0;
}

void channels_feed(channels_t *channels, const char *text, size_t length,
                   const output_sink_t *sink) {
  buffer_append(&channels->pending, text, length);
  if (!channels->pending.failed) run(channels, sink);
}

void channels_end(channels_t *channels, bool cut, const output_sink_t *sink) {
  channels->ended = true;
  channels->cut = cut;
  run(channels, sink);
  close_message(channels, sink);
  buffer_clear(&channels->pending);
  channels->at = 0;
}
