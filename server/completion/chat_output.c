/* chat_output.c: output of a chat choice -> the delta of a chunk, the message of a response.
 *
 * Between stages 8 and 9 of 9. Loop thread. If the choice has a parser, its text goes through
 * it. Each part is printed as JSON while it arrives, so that a chunk or a response only has to join
 * the parts. Next: server/completion/sse.c.
 */
#include "server/completion/chat.h"
#include "server/completion/dialect.h"

#include <string.h>
#include <sys/random.h>

enum { CALL_ID_LETTERS = 24, CALL_ID_LETTERS_SHORT = 9 };

static void print_random(buffer_t *out, size_t count) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  unsigned char random[CALL_ID_LETTERS];
  if (getrandom(random, count, 0) != (ssize_t)count) out->failed = true;
  for (size_t i = 0; i < count; i++) buffer_char(out, letters[random[i] % (sizeof letters - 1)]);
}

void dialect_print_id(buffer_t *out, const char *prefix) {
  buffer_text(out, prefix);
  print_random(out, CALL_ID_LETTERS);
}

/* Mistral's templates require an id of nine letters; for others any unique id is right. */
void chat_print_call_id(buffer_t *out, const completion_t *completion) {
  if (completion->call_id.text != NULL) {
    buffer_escape(out, completion->call_id.text, completion->call_id.length);
  } else if (completion->tool_format->short_ids) {
    print_random(out, CALL_ID_LETTERS_SHORT);
  } else {
    dialect_print_id(out, "call_");
  }
}

static void close_call(choice_t *choice) {
  if (choice->call_open) buffer_text(&choice->tool_calls, "\"}}");
  choice->call_open = false;
}

/* Begins an element of the array: a call, or in a stream the next part of one. The string of its
 * arguments is closed by the next element or at the end of the chunk, so that a chunk has one
 * element per call. */
static void open_call(choice_t *choice, const char *name, size_t length) {
  const completion_t *completion = choice->input->completion;
  buffer_t *out = &choice->tool_calls;
  close_call(choice);
  if (out->length > 0) buffer_char(out, ',');
  buffer_char(out, '{');
  if (completion->params.stream) {
    buffer_text(out, "\"index\":");
    buffer_int(out, choice->num_calls - 1);
    buffer_char(out, ',');
  }
  if (name != NULL) {
    buffer_text(out, "\"id\":\"");
    chat_print_call_id(out, completion);
    buffer_text(out, "\",\"type\":\"function\",\"function\":{\"name\":");
    buffer_quote(out, name, length);
    buffer_char(out, ',');
  } else {
    buffer_text(out, "\"function\":{");
  }
  buffer_text(out, "\"arguments\":\"");
  choice->call_open = true;
}

void chat_take_part(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  const completion_t *completion = choice->input->completion;
  switch (kind) {
  case OUTPUT_CONTENT: buffer_append(&choice->text, text, length); break;
  case OUTPUT_REASONING:
    if (completion->params.chat.include_reasoning) {
      buffer_append(&choice->reasoning, text, length);
    }
    break;
  case OUTPUT_CALL_ID: break; /* chat_print_call_id has it */
  case OUTPUT_CALL_BEGIN:
    choice->num_calls++;
    open_call(choice, text, length);
    break;
  case OUTPUT_CALL_TEXT:
    if (!choice->call_open) open_call(choice, NULL, 0);
    buffer_escape(&choice->tool_calls, text, length);
    break;
  case OUTPUT_CALL_END: close_call(choice); break;
  }
}

/* Gives a part to the writer of the request's dialect. */
static void give(void *context, output_kind_t kind, const char *text, size_t length) {
  choice_t *choice = context;
  completion_t *completion = choice->input->completion;
  bool is_id = kind == OUTPUT_CALL_ID;
  if (!is_id) completion->dialect->take(choice, kind, text, length);
  completion->call_id = is_id ? (span_t){text, length} : (span_t){NULL, 0};
}

void chat_add_text(choice_t *choice, const char *text, size_t length) {
  output_sink_t sink = {give, choice};
  if (choice->parser == NULL) {
    give(choice, OUTPUT_CONTENT, text, length);
  } else {
    output_parser_feed(choice->parser, text, length, &sink);
  }
}

bool chat_is_cut(const choice_t *choice) {
  return choice->done && (choice->finish == FINISH_LENGTH || choice->stop_string >= 0);
}

/* A call that ends only where the text does is cut. */
static void give_end(void *context, output_kind_t kind, const char *text, size_t length) {
  choice_t *choice = context;
  if (kind == OUTPUT_CALL_END) choice->call_cut = chat_is_cut(choice);
  give(context, kind, text, length);
}

void chat_end_text(choice_t *choice) {
  output_sink_t sink = {give_end, choice};
  if (choice->parser != NULL) output_parser_end(choice->parser, chat_is_cut(choice), &sink);
}

bool chat_is_reasoning(const choice_t *choice) {
  return choice->parser != NULL && output_parser_is_reasoning(choice->parser);
}

bool chat_failed(const choice_t *choice) {
  return choice->reasoning.failed || choice->tool_calls.failed ||
         (choice->parser != NULL && output_parser_failed(choice->parser));
}

/* Prints text in quotes. */
static void print_text(cord_t *out, const buffer_t *text) {
  buffer_char(&out->own, '"');
  cord_escape(out, text->data, text->length);
  buffer_char(&out->own, '"');
}

/* Prints the reasoning under both names that clients read: vLLM's and DeepSeek's. */
static void print_reasoning(cord_t *out, const buffer_t *text) {
  buffer_text(&out->own, "\"reasoning\":");
  print_text(out, text);
  buffer_text(&out->own, ",\"reasoning_content\":");
  print_text(out, text);
}

static void print_calls(cord_t *out, const choice_t *choice) {
  buffer_text(&out->own, "\"tool_calls\":[");
  cord_bytes(out, choice->tool_calls.data, choice->tool_calls.length);
  buffer_char(&out->own, ']');
}

bool chat_delta_is_empty(const choice_t *choice) {
  return choice->parser != NULL && choice->text.length == 0 && choice->reasoning.length == 0 &&
         choice->tool_calls.length == 0;
}

void chat_print_delta(cord_t *out, choice_t *choice) {
  const char *comma = "";
  close_call(choice);
  buffer_text(&out->own, "\"delta\":{");
  if (choice->reasoning.length > 0) {
    print_reasoning(out, &choice->reasoning);
    comma = ",";
  }
  /* Without a parser a token without text gets a chunk too, because clients count chunks. */
  bool nothing = choice->reasoning.length == 0 && choice->tool_calls.length == 0;
  if (choice->text.length > 0 || (nothing && choice->parser == NULL)) {
    buffer_text(&out->own, comma);
    buffer_text(&out->own, "\"content\":");
    print_text(out, &choice->text);
    comma = ",";
  }
  if (choice->tool_calls.length > 0) {
    buffer_text(&out->own, comma);
    print_calls(out, choice);
  }
  buffer_char(&out->own, '}');
}

void chat_print_message(cord_t *out, choice_t *choice) {
  close_call(choice);
  buffer_text(&out->own, "\"message\":{\"role\":\"assistant\",\"content\":");
  if (choice->text.length == 0 && (choice->num_calls > 0 || choice->reasoning.length > 0)) {
    buffer_text(&out->own, "null");
  } else {
    print_text(out, &choice->text);
  }
  buffer_text(&out->own, ",\"refusal\":null");
  if (choice->reasoning.length > 0) {
    buffer_char(&out->own, ',');
    print_reasoning(out, &choice->reasoning);
  }
  if (choice->num_calls > 0) {
    buffer_char(&out->own, ',');
    print_calls(out, choice);
  }
  buffer_char(&out->own, '}');
}
