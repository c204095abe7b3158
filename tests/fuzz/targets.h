/* targets.h: what is fuzzed: one function an input format, each taking any bytes at all.
 *
 * `make fuzz` links each with libFuzzer (entry/main.c); tests/fuzz/test_corpus.c replays the
 * committed corpus and every input that once failed in the ordinary tests. A target frees what it
 * makes; crashes, leaks, undefined behaviour, hangs and broken promises (abort) are the findings.
 */
#ifndef INFERD_TESTS_FUZZ_TARGETS_H
#define INFERD_TESTS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* X(name): a function fuzz_NAME and a corpus directory tests/fuzz/corpus/NAME */
#define FUZZ_TARGETS(X)                                                                            \
  X(json)                                                                                          \
  X(template)                                                                                      \
  X(chat)                                                                                          \
  X(tokenizer)                                                                                     \
  X(spm)                                                                                           \
  X(tekken)                                                                                        \
  X(config)                                                                                        \
  X(safetensors)                                                                                   \
  X(gguf)                                                                                          \
  X(split)                                                                                         \
  X(packed)                                                                                        \
  X(request)                                                                                       \
  X(schema)                                                                                        \
  X(regex)                                                                                         \
  X(ebnf)                                                                                          \
  X(lark)                                                                                          \
  X(pattern)                                                                                       \
  X(charsmap)                                                                                      \
  X(parser)                                                                                        \
  X(strict)                                                                                        \
  X(hub)                                                                                           \
  X(adapter)                                                                                       \
  X(options)                                                                                       \
  X(keys)                                                                                          \
  X(answer)                                                                                        \
  X(stops)                                                                                         \
  X(names)                                                                                         \
  X(trace)                                                                                         \
  X(modules)                                                                                       \
  X(tensor)                                                                                        \
  X(torch)                                                                                         \
  X(picture)                                                                                       \
  X(vision)                                                                                        \
  X(sound)                                                                                         \
  X(form)                                                                                          \
  X(journal)

#define X(name) void fuzz_##name(const uint8_t *data, size_t size);
FUZZ_TARGETS(X)
#undef X

/* tests/server/api/fuzz_api.c, replayed by tests/server/api: it needs the fakes of that folder,
 * which stand in for functions that other targets call. */
void fuzz_api(const uint8_t *data, size_t size);

/* Work units of the last input, compiling alone: schema, regex, ebnf and lark set it. test_costs.c
 * has a bound for the dearest inputs; with FUZZ_COSTS set the programs of `make fuzz` print it. */
extern uint64_t fuzz_cost;

/* A directory of this process, on a memory file system where there is one, with `name` in it. */
const char *fuzz_directory(void);
void fuzz_write(const char *name, const uint8_t *data, size_t size);
void fuzz_remove(const char *name);
/* Further files of that directory: what stands between 0xFF bytes, each led by a letter: 'a' is
 * names[0], 'b' names[1] and so on. A part with no such letter is left out. */
void fuzz_write_parts(const char *const *names, size_t count, const uint8_t *data, size_t size);
void fuzz_remove_parts(const char *const *names, size_t count);

/* The part of data[0..size) up to `separator` (the whole when it does not occur); moves data and
 * size behind it. */
static inline const uint8_t *fuzz_part(const uint8_t **data, size_t *size, uint8_t separator,
                                       size_t *length) {
  const uint8_t *begin = *data, *hit = *size == 0 ? NULL : memchr(*data, separator, *size);
  *length = hit == NULL ? *size : (size_t)(hit - begin);
  size_t behind = hit == NULL ? *size : *length + 1;
  *data += behind;
  *size -= behind;
  return begin;
}

#endif
