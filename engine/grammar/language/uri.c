/* uri.c: base URI and reference -> URI, as RFC 3986 says in section 5.2.
 *
 * Part of a compilation, on its thread. Fragments are cut off before. Nothing is normalised but dot
 * segments: URIs are compared byte by byte.
 */
#include "engine/grammar/language/schema_base.h"

#include <string.h>

/* The parts of a URI, each with the mark that makes it one: "http:", "//host", "/path", "?query".
 * An absent part is empty. */
typedef struct uri {
  uri_text_t scheme, authority, path, query;
} uri_t;

static bool is_letter(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* Returns the bytes of the scheme with its colon; 0 = the reference is relative. */
static size_t scheme_length(uri_text_t uri) {
  for (size_t i = 0; i < uri.length; i++) {
    char c = uri.text[i];
    if (c == ':') return i > 0 ? i + 1 : 0;
    bool inside = (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    if (!is_letter(c) && (i == 0 || !inside)) return 0;
  }
  return 0;
}

/* Returns the bytes before the first of the marks. */
static size_t before(uri_text_t uri, size_t from, const char *marks) {
  size_t at = from;
  while (at < uri.length && strchr(marks, uri.text[at]) == NULL) at++;
  return at;
}

static uri_t split(uri_text_t uri) {
  uri_t parts = {0};
  size_t at = scheme_length(uri), end = at;
  parts.scheme = (uri_text_t){uri.text, at};
  bool has_authority = uri.length - at >= 2 && memcmp(uri.text + at, "//", 2) == 0;
  if (has_authority) end = before(uri, at + 2, "/?");
  parts.authority = (uri_text_t){uri.text + at, end - at};
  at = end;
  end = before(uri, at, "?");
  parts.path = (uri_text_t){uri.text + at, end - at};
  parts.query = (uri_text_t){uri.text + end, uri.length - end};
  return parts;
}

typedef struct uri_writer {
  char *text;
  size_t length;
} uri_writer_t;

static void put(uri_writer_t *writer, uri_text_t part) {
  if (part.length > 0) memcpy(writer->text + writer->length, part.text, part.length);
  writer->length += part.length;
}

/* Removes "." and ".." from the path that begins at `from` (section 5.2.4, on whole segments). */
static void remove_dots(uri_writer_t *writer, size_t from) {
  char *text = writer->text;
  size_t out = from, end = writer->length;
  for (size_t at = from; at < end;) {
    size_t stop = at + (text[at] == '/');
    while (stop < end && text[stop] != '/') stop++;
    size_t skip = text[at] == '/', count = stop - at - skip;
    bool dot = count == 1 && text[at + skip] == '.';
    bool dots = count == 2 && text[at + skip] == '.' && text[at + skip + 1] == '.';
    if (dots) {
      while (out > from && text[out - 1] != '/') out--;
      if (out > from) out--;
    }
    if (!dot && !dots) {
      memmove(text + out, text + at, stop - at);
      out += stop - at;
    } else if (stop == end && skip) {
      text[out++] = '/';
    }
    at = (dot || dots) && !skip && stop < end ? stop + 1 : stop;
  }
  writer->length = out;
}

/* The path of a relative reference stands beside the last segment of the base. */
static void put_merged(uri_writer_t *writer, const uri_t *base, uri_text_t path) {
  size_t keep = base->path.length;
  while (keep > 0 && base->path.text[keep - 1] != '/') keep--;
  if (keep == 0 && base->authority.length > 0) put(writer, (uri_text_t){"/", 1});
  put(writer, (uri_text_t){base->path.text, keep});
  put(writer, path);
}

uri_text_t uri_resolve(compile_t *compile, uri_text_t base_text, uri_text_t text) {
  uri_t base = split(base_text), reference = split(text);
  uri_writer_t writer = {compile_scratch(compile, base_text.length + text.length + 2, 1), 0};
  compile_spend(compile, (uint32_t)(base_text.length + text.length) / 8 + 1);
  bool absolute = reference.scheme.length > 0, hosted = absolute || reference.authority.length > 0;
  put(&writer, absolute ? reference.scheme : base.scheme);
  put(&writer, hosted ? reference.authority : base.authority);
  size_t path = writer.length;
  if (hosted || (reference.path.length > 0 && reference.path.text[0] == '/')) {
    put(&writer, reference.path);
  } else if (reference.path.length == 0) {
    put(&writer, base.path);
  } else {
    put_merged(&writer, &base, reference.path);
  }
  remove_dots(&writer, path);
  bool keeps_query = !hosted && reference.path.length == 0 && reference.query.length == 0;
  put(&writer, keeps_query ? base.query : reference.query);
  return (uri_text_t){writer.text, writer.length};
}
