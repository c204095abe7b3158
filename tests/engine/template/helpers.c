/* helpers.c: see helpers.h. */
#include "tests/engine/template/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES_MAX = 64 };

char *read_all(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  cr_assert_not_null(file, "%s", path);
  ASSERT_EQ(fseek(file, 0, SEEK_END), 0);
  long size = ftell(file);
  rewind(file);
  char *text = malloc((size_t)size + 1);
  ASSERT_EQ(fread(text, 1, (size_t)size, file), (size_t)size);
  text[size] = '\0';
  fclose(file);
  *length = (size_t)size;
  return text;
}

int render_values(const jinja_t *jinja, const json_t *context, int64_t now,
                  const jinja_limits_t *limits, jinja_output_t *out, inferd_error_t *error) {
  jinja_variable_t variables[VARIABLES_MAX];
  jinja_input_t input = {.variables = variables, .now_seconds = now};
  input.limits = limits == NULL ? jinja_limits_default : *limits;
  JSON_EACH(member, context) {
    ASSERT_LT(input.num_variables, VARIABLES_MAX);
    variables[input.num_variables++] =
        (jinja_variable_t){.name = member->key, .name_length = member->key_length, .json = member};
  }
  return jinja_render(jinja, &input, out, error);
}

int render_with(const char *template, const char *context, const jinja_limits_t *limits,
                jinja_output_t *out, inferd_error_t *error) {
  jinja_t *jinja;
  json_doc_t *doc;
  *out = (jinja_output_t){0};
  int rc = jinja_compile("test", template, strlen(template), &jinja, error);
  if (rc != 0) return rc;
  ASSERT_EQ(json_parse(context, strlen(context), &json_limits_request, &doc, error), 0);
  rc = render_values(jinja, json_root(doc), 0, limits, out, error);
  json_free(doc);
  jinja_free(jinja);
  return rc;
}

void expect(const char *template, const char *context, const char *text) {
  jinja_output_t out;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(render_with(template, context, NULL, &out, &error), 0, "%s: %s", template,
                error.message);
  ASSERT_STR_EQ_FOR(out.text, text, "%s", template);
  jinja_output_free(&out);
}

void expect_error(const char *template, const char *context, const char *part) {
  jinja_output_t out;
  inferd_error_t error = {0};
  int rc = render_with(template, context, NULL, &out, &error);
  ASSERT_LT_FOR(rc, 0, "%s gave \"%s\"", template, out.text);
  ASSERT_EQ(rc, error.code);
  cr_assert_not_null(strstr(error.message, part), "%s: \"%s\" has no \"%s\"", template,
                     error.message, part);
}
