/* test_vectors.c: what Jinja2 printed for tests/vectors/templates.json.
 *
 * tests/parity/parity_templates.py --write makes the file: templates of every family over
 * conversations, and random snippets over values of every type.
 */
#include "tests/engine/template/helpers.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXTS_MAX = 4096 };

typedef struct vectors {
  char *text;
  json_doc_t *doc;
  const json_t *contexts[CONTEXTS_MAX];
  int64_t now;
} vectors_t;

static void load(vectors_t *v) {
  size_t length, count = 0;
  inferd_error_t error = {0};
  v->text = read_all("tests/vectors/templates.json", &length);
  ASSERT_EQ_FOR(json_parse(v->text, length, &json_limits_model, &v->doc, &error), 0, "%s",
                error.message);
  JSON_EACH(context, json_get(json_root(v->doc), "contexts")) {
    ASSERT_LT(count, CONTEXTS_MAX);
    v->contexts[count++] = context;
  }
  cr_assert(json_int64(json_get(json_root(v->doc), "now"), &v->now));
}

static char *source_of(const json_t *test, size_t *length) {
  char path[256];
  const json_t *family = json_get(test, "family"), *template = json_get(test, "template");
  if (family == NULL) {
    *length = template->length;
    return strndup(template->text, template->length);
  }
  snprintf(path, sizeof path, "tests/fixtures/templates/%.*s.jinja", (int)family->length,
           family->text);
  return read_all(path, length);
}

/* True when this interpreter says what Jinja2 said. */
static bool same(const vectors_t *v, const json_t *test) {
  size_t length;
  char *source = source_of(test, &length);
  const json_t *want = json_get(test, "text");
  int64_t context;
  jinja_t *jinja;
  jinja_output_t out = {0};
  inferd_error_t error = {0};
  bool good = false;
  cr_assert(json_int64(json_get(test, "context"), &context));
  int rc = jinja_compile("t", source, length, &jinja, &error);
  if (rc == 0) {
    rc = render_values(jinja, v->contexts[context], v->now, NULL, &out, &error);
    jinja_free(jinja);
  }
  if (want == NULL)
    good = rc != 0;
  else
    good = rc == 0 && out.length == want->length && memcmp(out.text, want->text, out.length) == 0;
  if (!good)
    fprintf(stderr, "%.*s\n  want %.*s\n  got  %s\n", (int)length, source,
            want == NULL ? 5 : (int)want->length, want == NULL ? "error" : want->text,
            rc == 0 ? out.text : error.message);
  jinja_output_free(&out);
  free(source);
  return good;
}

Test(template_vectors, as_jinja2) {
  static vectors_t v;
  unsigned count = 0, different = 0;
  setenv("TZ", "UTC", 1);
  load(&v);
  JSON_EACH(test, json_get(json_root(v.doc), "cases")) {
    count++;
    different += !same(&v, test);
  }
  json_free(v.doc);
  free(v.text);
  ASSERT_GT(count, 500);
  ASSERT_EQ_FOR(different, 0, "%u of %u cases differ", different, count);
}
