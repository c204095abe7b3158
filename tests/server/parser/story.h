/* story.h: what a parser made of a text, as one text to compare; for the tests of this folder. */
#ifndef INFERD_TESTS_SERVER_PARSER_STORY_H
#define INFERD_TESTS_SERVER_PARSER_STORY_H

#include "engine/base/buffer.h"
#include "server/parser/output.h"

/* What came out: R(thoughts) C(content) #id T(name|arguments). */
typedef struct story {
  buffer_t text;
  output_kind_t last;
  bool open;
} story_t;

void story_take(void *context, output_kind_t kind, const char *text, size_t length);
/* Feeds text cut at the given places; free() the result. */
char *story_tell(const output_options_t *options, const char *text, size_t length,
                 const size_t *cuts, size_t num_cuts);
/* Asserts what comes out, with one cut at every byte, and byte by byte. */
void story_expect(const output_options_t *options, const char *text, size_t length,
                  const char *expected);
size_t story_num_formats(void);
/* Appends one call with the argument `city`, a string, as a grammar writes it. `number` is that of
 * an id. */
void story_write_call(buffer_t *text, const tool_format_t *format, const char *name,
                      const char *number);

#endif
