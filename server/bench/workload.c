/* workload.c: the prompts of a benchmark: random token ids or words, with an optional shared
 * prefix.
 *
 * A body is a function of (seed, index), so that two servers get the same load.
 */
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
enum { NUM_WORDS = sizeof words / sizeof *words };

static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

double bench_uniform(uint64_t *state) {
  return (double)(next(state) >> 11) * 0x1p-53;
}

typedef struct text {
  char *bytes;
  size_t length, capacity;
} text_t;

__attribute__((format(printf, 2, 3))) static void append(text_t *t, const char *format, ...) {
  if (t->length + 512 > t->capacity) {
    t->capacity = t->capacity * 2 + 4096;
    t->bytes = realloc(t->bytes, t->capacity);
    if (t->bytes == NULL) abort();
  }
  va_list args;
  va_start(args, format);
  t->length += (size_t)vsnprintf(t->bytes + t->length, t->capacity - t->length, format, args);
  va_end(args);
}

static void append_token(text_t *t, const bench_options_t *o, uint64_t *state, bool first) {
  if (o->text_prompts) {
    append(t, "%s%s", first ? "" : " ", words[next(state) % NUM_WORDS]);
  } else {
    int span = o->vocab_size - o->first_id;
    append(t, "%s%d", first ? "" : ",", o->first_id + (int)(next(state) % (uint64_t)span));
  }
}

static void append_model(text_t *t, const char *model) {
  append(t, "\"model\":\"");
  for (const char *p = model; *p; p++) {
    append(t, *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
  }
  append(t, "\",");
}

/* The members of an object, without its braces. */
static void append_extra(text_t *t, const char *object) {
  for (size_t at = 1, length = strlen(object); at + 1 < length; at += 256) {
    size_t rest = length - 1 - at;
    append(t, "%s%.*s", at == 1 ? "," : "", rest < 256 ? (int)rest : 256, object + at);
  }
}

char *bench_body(const bench_options_t *o, const char *model, int index) {
  text_t t = {0};
  uint64_t shared = o->seed * 1000003 + 1, own = o->seed * 1000003 + 17 + (uint64_t)index * 7919;
  append(&t, "{");
  if (model != NULL) append_model(&t, model);
  append(&t, "\"prompt\":%s", o->text_prompts ? "\"" : "[");
  for (int i = 0; i < o->input_len; i++) {
    append_token(&t, o, i < o->prefix_len ? &shared : &own, i == 0);
  }
  append(&t, "%s,\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":%g",
         o->text_prompts ? "\"" : "]", o->output_len, o->temperature);
  if (o->stream) append(&t, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  if (o->extra_body != NULL) append_extra(&t, o->extra_body);
  append(&t, "}");
  return t.bytes;
}
