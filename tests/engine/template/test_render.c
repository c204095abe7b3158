/* test_render.c: single rules of the language, origin of bytes, limits, messages. */
#include "tests/engine/template/helpers.h"
#include "tests/expect.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char none[] = "{}";

Test(template_render, whitespace) {
  expect("  {% if true %}\n  a\n  {% endif %}\nb\n", none, "  a\nb");
  expect("x  {% set a=1 %} {% set b=2 %}\ny", none, "x   y");
  expect("a \n {{- 1 -}} \n b", none, "a1b");
  expect("{%+ if true +%}\nx{% endif %}", none, "\nx");
  expect("a\r\nb\rc\r\n", none, "a\nb\nc");
  expect("{# c\n #}\n  {#- x -#}  z", none, "z");
  expect("{% raw %}\n{{ x }}{% endraw %}\ny", none, "\n{{ x }}y");
}

Test(template_render, scopes) {
  expect("{% for i in [1,2] %}{% set x = i %}{{ x }}{% endfor %}[{{ x }}]", none, "12[]");
  expect("{% set n = namespace(v=0) %}{% for i in [1,2] %}{% set n.v = n.v + i %}{% endfor %}{{ "
         "n.v }}",
         none, "3");
  expect("{% macro m() %}{{ a }}{% endmacro %}{% set a = 1 %}{{ m() }}{% set a = 2 %}{{ m() }}",
         none, "12");
  expect("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         none, "3210");
  expect("{% for i in [1,2,3] if i != 2 %}{{ loop.index }}/{{ loop.length }} {% endfor %}", none,
         "1/2 2/2 ");
}

Test(template_render, refuses_by_name_when_compiled) {
  expect_error("a\n{% include 'x' %}", none, "test, line 2: the tag `include` is not supported");
  expect_error("{{ x|urlize }}", none, "the filter `urlize` is not supported");
  expect_error("{{ x|nothing }}", none, "no filter");
  expect_error("{% for x in y recursive %}{% endfor %}", none, "recursive loops");
  expect_error("{{ self }}", none, "`self` is not supported");
  expect_error("\n\n{% if x %}", none, "line 3: the template ends");
  expect_error("{{ 'a }}", none, "a string does not end");
  expect("{% if false %}{{ x|nothing }}{% endif %}ok", none, "ok");
}

Test(template_render, failures_name_their_line) {
  expect_error("a\n{{ 1 + 'a' }}", none, "test, line 2: '+' cannot take int and str.");
  /* What was undefined or null is named, where the source has a name for it. */
  expect_error("{{ 'a' + m.content }}", "{\"m\": {\"content\": null}}",
               "'+' cannot take str and None (`m.content` is null).");
  expect_error("{{ 'a' + m['x'].y }}", "{\"m\": {\"x\": {}}}", "(`m['x'].y` is undefined).");
  expect_error("{{ 1 + 'a' }}", "{\"m\": null}", "'+' cannot take int and str.");
  expect_error("{{ x.y.z }}", "{\"x\": {}}", "line 1: `z` of an undefined value");
  expect_error("{{ raise_exception('Only ' ~ 3) }}", none, "Only 3");
  jinja_output_t out;
  inferd_error_t error = {0};
  ASSERT_EQ(render_with("{{ raise_exception('a\\nb') }}", none, NULL, &out, &error),
            ERR_BAD_REQUEST);
  ASSERT_STR_EQ(error.message, "a b");
}

Test(template_render, request_data_cannot_be_changed) {
  expect("{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}", none, "[1, 2]");
  expect_error("{{ l.append(2) }}", "{\"l\": [1]}", "cannot be changed");
  expect_error("{{ d.update(a=1) }}", "{\"d\": {}}", "cannot be changed");
}

/* Marks the bytes of the request with ^. */
static void expect_marks(const char *template, const char *context, const char *text,
                         const char *marks) {
  jinja_output_t out;
  inferd_error_t error = {0};
  char shown[256] = "";
  ASSERT_EQ_FOR(render_with(template, context, NULL, &out, &error), 0, "%s", error.message);
  ASSERT_STR_EQ(out.text, text);
  memset(shown, ' ', out.length);
  shown[out.length] = '\0';
  size_t last = 0;
  for (size_t i = 0; i < out.num_request; i++) {
    ASSERT_LT(out.request[i].begin, out.request[i].end);
    cr_assert(i == 0 || out.request[i].begin > last);
    last = out.request[i].end;
    memset(shown + out.request[i].begin, '^', out.request[i].end - out.request[i].begin);
  }
  ASSERT_STR_EQ_FOR(shown, marks, "%s", template);
  jinja_output_free(&out);
}

Test(template_render, bytes_of_the_request_are_marked) {
  const char *c = "{\"u\": \"ab cd\", \"l\": [\"x\", \"y\"], \"n\": 12}";
  expect_marks("<{{ u }}>", c, "<ab cd>", " ^^^^^ ");
  expect_marks("<{{ u|upper }}>", c, "<AB CD>", " ^^^^^ ");
  expect_marks("{{ '<' + u + '>' }}", c, "<ab cd>", " ^^^^^ ");
  expect_marks("{{ ('<' ~ u)[2:] ~ '|' }}", c, "b cd|", "^^^^ ");
  expect_marks("{{ u.split(' ')|join('-') }}", c, "ab-cd", "^^ ^^");
  expect_marks("{{ u.replace('b', 'Z') }}", c, "aZ cd", "^ ^^^");
  expect_marks("{{ l|tojson }}", c, "[\"x\", \"y\"]", "  ^    ^  ");
  expect_marks("{{ '<%s>' % u }}", c, "<ab cd>", " ^^^^^ ");
  expect_marks("{{ '{}!'.format(u) }}", c, "ab cd!", "^^^^^ ");
  expect_marks("{{ n }}{{ n + 1 }}", c, "1213", "^^^^");
  expect_marks("{% set x %}<{{ u }}>{% endset %}{{ x|trim }}", c, "<ab cd>", " ^^^^^ ");
  expect_marks("{% set n = namespace(t='') %}{% for i in l %}{% set n.t = n.t + i + '.' %}"
               "{% endfor %}{{ n.t }}",
               c, "x.y.", "^ ^ ");
  expect_marks("{{ (u ~ '<e>')|replace('e', u) }}", c, "ab cd<ab cd>", "^^^^^ ^^^^^ ");
}

/* Without limits: the usual ones but for the time, which a busy machine would reach first. */
static void expect_limit(const char *template, const char *context, const jinja_limits_t *limits,
                         const char *part) {
  jinja_limits_t patient = jinja_limits_default;
  patient.time_ms = 60000;
  jinja_output_t out;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(render_with(template, context, limits ? limits : &patient, &out, &error),
                ERR_BAD_REQUEST, "%s", template);
  cr_assert_not_null(strstr(error.message, part), "%s: %s", template, error.message);
}

Test(template_render, every_limit_fires) {
  expect_limit("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               none, NULL, "more than 5000000 steps");
  expect_limit("{{ range(100001) }}", none, NULL, "more than 100000 elements");
  expect_limit("{% set x = 'a' * 100000000 %}{{ x }}", none, NULL, "too long");
  expect_limit("{% set x = 'a' * 2000000 %}{{ x }}", none, NULL, "the output is longer");
  expect_limit("{{ 'ab' * 999999999999 }}", none, NULL, "too long");
  expect_limit("{{ [1, 2] * 999999999999 }}", none, NULL, "too long");
  expect_limit("{{ '%5000000d' % 3 }}", none, NULL, "larger than");
  expect_limit("{{ 'a'|indent(3000000000, true) }}", none, NULL, "too long");
  expect_limit("{{ 'a'|center(3000000000) }}", none, NULL, "too large");
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", none, NULL, "macros are nested");
  expect_limit("{% set n = namespace(l=[]) %}{% for i in range(2000) %}{% set n.l = [n.l] %}"
               "{% endfor %}{{ n.l }}",
               none, NULL, "nested too deep");
  expect_limit("{{ strftime_now('%Q') }}", none, NULL, "format letter");
  expect_limit("{% set n = namespace(l=[1, 2]) %}{% for i in range(30) %}{% set n.l = n.l + n.l %}"
               "{% endfor %}",
               none, NULL, "more than");
  jinja_limits_t slow = jinja_limits_default;
  slow.fuel = UINT64_MAX / 2;
  slow.time_ms = 20;
  expect_limit("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               none, &slow, "longer than 20 ms");
  jinja_limits_t flat = jinja_limits_default;
  flat.depth = 3;
  expect_limit("{{ ((1 + 2) * 3 - 4) / 5 }}", none, &flat, "nested deeper than 3");
}

/* What a template does wrong is said with the value, name or format at fault. */
Test(template_render, errors_name_what_is_wrong) {
  static const struct {
    const char *template, *part;
  } rows[] = {
      {"{{ range('a') }}", "range takes integers, not str"},
      {"{{ range(1, 2, 3, 4) }}", "not 4 arguments"},
      {"{{ range(200000) }}", "more than 100000 elements: 200000"},
      {"{{ dict([[1, 2, 3]]) }}", "pairs, not 3 values"},
      {"{{ dict({}, {}) }}", "one mapping, not 2 arguments"},
      {"{{ namespace(_a=1) }}", "begins with _, such as `_a`"},
      {"{{ strftime_now('%Q is odd') }}", "not supported in `%Q is odd`"},
      {"{{ strftime_now('x' * 200) }}", "200 bytes, at most 127"},
      {"{{ [3]|join(glue='-') }}", "no argument `glue`"},
      {"{{ [3]|join('-', 1, 2) }}", "at most 2 arguments, not 3"},
      {"{{ [3]|batch(1.5)|list }}", "must be an integer, not float"},
      {"{{ 1|round(precision=1, precision=2) }}", "`precision` is given twice"},
      {"{{ 'a'|join(**{1: 2}) }}", "strings as keys, not int"},
      {"{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "a macro has no argument `b`"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "at most 1 arguments, not 2"},
      {"{% if 1 %}{{ 1|frobnicate }}{% endif %}", "no filter named `frobnicate`"},
      {"{% if 1 %}{{ 1 is frobnicated }}{% endif %}", "no test named `frobnicated`"},
      {"{{ '%d' % 'x' }}", "%d needs a number, not str"},
      {"{{ '%x' % 1.5 }}", "%x needs an integer, not a float"},
      {"{{ '%c' % 'xy' }}", "%c needs a character, not str"},
      {"{{ '%d' % 1e30 }}", "not 1e+30"},
      {"{{ '%q' % 1 }}", "not supported in the format `%q`"},
      {"{{ '%s and %' % 1 }}", "the format `%s and %` is incomplete"},
      {"{{ '%s and %s' % (1,) }}", "not enough arguments for the format: 1"},
      {"{{ '%s' % (1, 2) }}", "arguments of the format `%s` are used"},
      {"{{ '%(b)s' % {'a': 1} }}", "key `b` is not in the mapping"},
      {"{{ '%(b)s' % 1 }}", "needs a mapping, not int"},
      {"{{ '%(b' % {'a': 1} }}", "in the format `%(b`"},
      {"{{ '%*d' % (200000, 1) }}", "larger than 100000: 200000"},
      {"{{ '{:,x}'.format(10) }}", "base 16"},
      {"{{ '{:.f}'.format(1.5) }}", "the format `.f` has no precision"},
      {"{{ '{:dd}'.format(1) }}", "the format `dd` is invalid"},
      {"{{ '{:d}'.format('a') }}", "the format `d` is not for strings"},
      {"{{ '{:d}'.format([]) }}", "the format `d` is not for list"},
      {"{{ '{:d}'.format(1.5) }}", "the format `d` of a float"},
      {"{{ '{:s}'.format(1) }}", "the format `s` is not for integers"},
      {"{{ '{}{}'.format(1) }}", "argument 1 is missing"},
      {"{{ '{3}'.format(1) }}", "argument 3 is missing"},
      {"{{ '{a}'.format(1) }}", "argument `a` is missing"},
      {"{{ '{3a}'.format(1) }}", "field name `3a` is invalid"},
      {"{{ '{a.b}'.format(a=1) }}", "supported: `a.b`"},
      {"{{ '{!a}'.format(1) }}", "conversion of `!a`"},
      {"{{ 'ab}'.format(1) }}", "} stands alone at byte 2"},
      {"{{ 'ab{'.format(1) }}", "{ stands alone at byte 2"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_limit(rows[i].template, none, NULL, rows[i].part);
}

Test(template_render, parse_limits) {
  char *source = malloc(TEMPLATE_SOURCE_BYTES_MAX + 2);
  jinja_t *jinja;
  inferd_error_t error = {0};
  memset(source, '(', 1500);
  memset(source + 1500, ')', 1500);
  memcpy(source, "{{", 2);
  memcpy(source + 1499, "1 ", 2);
  memcpy(source + 2998, "}}", 2);
  ASSERT_EQ(jinja_compile("deep", source, 3000, &jinja, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "nested too deep"), "%s", error.message);
  memset(source, 'x', TEMPLATE_SOURCE_BYTES_MAX + 1);
  ASSERT_EQ(jinja_compile("long", source, TEMPLATE_SOURCE_BYTES_MAX, &jinja, &error), 0);
  jinja_free(jinja);
  ASSERT_EQ(jinja_compile("long", source, TEMPLATE_SOURCE_BYTES_MAX + 1, &jinja, &error),
            ERR_MODEL_MALFORMED);
  size_t n = 0;
  for (; n < 1000000; n += 5) memcpy(source + n, "{{1}}", 5);
  ASSERT_EQ(jinja_compile("nodes", source, n, &jinja, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "too long"), "%s", error.message);
  ASSERT_EQ(jinja_compile("bytes", "a\xff", 2, &jinja, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "invalid UTF-8"), "%s", error.message);
  free(source);
}

Test(template_render, a_string_that_grows_in_a_loop_stays_linear) {
  expect("{% set n = namespace(t='') %}{% for i in range(50000) %}{% set n.t = n.t + 'abcdefgh' %}"
         "{% endfor %}{{ n.t|length }}",
         none, "400000");
}

typedef struct shared {
  const jinja_t *jinja;
  const json_t *context;
  const char *want;
  int wrong;
} shared_t;

static void *render_often(void *argument) {
  shared_t *s = argument;
  for (int i = 0; i < 200; i++) {
    jinja_output_t out;
    inferd_error_t error = {0};
    if (render_values(s->jinja, s->context, 0, NULL, &out, &error) != 0) {
      s->wrong++;
      continue;
    }
    s->wrong += strcmp(out.text, s->want) != 0;
    jinja_output_free(&out);
  }
  return NULL;
}

Test(template_render, one_template_on_many_threads) {
  static const char context[] = "{\"m\": [{\"r\": \"u\", \"c\": \"Gr\\u00fc\\u00dfe\"}]}";
  static const char source[] = "{% macro q(x) %}'{{ x|upper }}'{% endmacro %}"
                               "{% for i in m %}{{ q(i.c) }}{{ i|tojson }}{% endfor %}";
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  shared_t shared[THREADS];
  json_doc_t *doc;
  jinja_t *jinja;
  inferd_error_t error = {0};
  ASSERT_EQ(json_parse(context, strlen(context), &json_limits_request, &doc, &error), 0);
  ASSERT_EQ(jinja_compile("t", source, strlen(source), &jinja, &error), 0);
  for (int i = 0; i < THREADS; i++) {
    shared[i] = (shared_t){jinja, json_root(doc),
                           "'GR\u00dcSSE'{\"r\": \"u\", \"c\": \"Gr\u00fc\u00dfe\"}", 0};
    ASSERT_EQ(pthread_create(&threads[i], NULL, render_often, &shared[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    ASSERT_EQ(pthread_join(threads[i], NULL), 0);
    ASSERT_EQ(shared[i].wrong, 0);
  }
  jinja_free(jinja);
  json_free(doc);
}
