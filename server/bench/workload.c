/* workload.c: the prompts of a benchmark: random token ids or words, with an optional shared
 * prefix.
 *
 * A body is a function of (seed, index), so that two servers get the same load.
 */
#include "engine/base/util.h"
#include "server/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
    "time",   "way",    "day",   "man",     "thing",  "woman",   "life",     "child",
    "world",  "school", "state", "family",  "group",  "country", "hand",     "part",
    "place",  "case",   "week",  "company", "system", "program", "question", "work",
    "number", "night",  "point", "home",    "water",  "room",    "mother",   "area",
    "money",  "story",  "fact",  "month",   "lot",    "right",   "study",    "book",
};
enum { NUM_WORDS = ARRAY_LEN(words) };

static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

double bench_uniform(uint64_t *state) {
  return (double)(next(state) >> 11) * 0x1p-53;
}

typedef struct body_text {
  char *bytes;
  size_t length, capacity;
} body_text_t;

__attribute__((format(printf, 2, 3))) static void append(body_text_t *text, const char *format,
                                                         ...) {
  if (text->length + 512 > text->capacity) {
    text->capacity = text->capacity * 2 + 4096;
    text->bytes = realloc(text->bytes, text->capacity);
    if (text->bytes == NULL) abort();
  }
  va_list args;
  va_start(args, format);
  text->length +=
      (size_t)vsnprintf(text->bytes + text->length, text->capacity - text->length, format, args);
  va_end(args);
}

static void append_token(body_text_t *text, const bench_options_t *options, uint64_t *state,
                         bool first) {
  if (options->text_prompts) {
    append(text, "%s%s", first ? "" : " ", words[next(state) % NUM_WORDS]);
  } else {
    int span = options->vocab_size - options->first_id;
    append(text, "%s%d", first ? "" : ",", options->first_id + (int)(next(state) % (uint64_t)span));
  }
}

static void append_model(body_text_t *text, const char *model) {
  append(text, "\"model\":\"");
  for (const char *p = model; *p; p++) {
    append(text, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
  }
  append(text, "\",");
}

/* The members of an object, without its braces. */
static void append_extra(body_text_t *text, const char *object) {
  for (size_t at = 1, length = strlen(object); at + 1 < length; at += 256) {
    size_t rest = length - 1 - at;
    append(text, "%s%.*s", at == 1 ? "," : "", rest < 256 ? (int)rest : 256, object + at);
  }
}

char *bench_body(const bench_options_t *options, const char *model, int index) {
  body_text_t text = {0};
  uint64_t shared = options->seed * 1000003 + 1,
           own = options->seed * 1000003 + 17 + (uint64_t)index * 7919;
  append(&text, "{");
  if (model != NULL) append_model(&text, model);
  append(&text, "\"prompt\":%s", options->text_prompts ? "\"" : "[");
  for (int i = 0; i < options->input_len; i++) {
    append_token(&text, options, i < options->prefix_len ? &shared : &own, i == 0);
  }
  append(&text, "%s,\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":%g",
         options->text_prompts ? "\"" : "]", options->output_len, options->temperature);
  if (options->stream)
    append(&text, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  if (options->extra_body != NULL) append_extra(&text, options->extra_body);
  append(&text, "}");
  return text.bytes;
}
