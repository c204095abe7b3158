/* helpers.h: compiling and rendering in one call, for the template tests. */
#ifndef INFERD_TESTS_ENGINE_TEMPLATE_HELPERS_H
#define INFERD_TESTS_ENGINE_TEMPLATE_HELPERS_H

#include "engine/template/template.h"

/* Reads a whole file; malloc'ed, NUL-terminated. Fails the test when it is not there. */
char *read_all(const char *path, size_t *length);

/* Compiles `template`, renders it with the members of the JSON object `context` as variables and
 * frees everything but *out. Returns what compiling or rendering returned. */
int render_with(const char *template, const char *context, const jinja_limits_t *limits,
                jinja_output_t *out, inferd_error_t *error);
int render_values(const jinja_t *jinja, const json_t *context, int64_t now,
                  const jinja_limits_t *limits, jinja_output_t *out, inferd_error_t *error);
/* Renders and compares; fails the test when it differs. */
void expect(const char *template, const char *context, const char *text);
/* Must fail, with `part` in the message; *error says where. */
void expect_error(const char *template, const char *context, const char *part);

#endif
