/* stop_set.c: the stop strings of one request, compiled to one Aho-Corasick automaton over bytes.
 *
 * The loop side builds it before the request is submitted; afterwards it is read-only and the
 * engine thread walks it one byte at a time. At most 16 strings of 1 KiB: the table has a row per
 * state. A. Aho and M. Corasick, "Efficient string matching", 1975.
 */
#include "engine/text/stream/stop_set.h"

#include "engine/base/checked.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static int check(const char *const *strings, const size_t *lengths, int count, error_t *error) {
  if (count < 0 || count > STOP_STRINGS_MAX)
    return error_set(error, ERR_ABOVE_MAX, "stop", "at most %d stop strings are allowed",
                     STOP_STRINGS_MAX);
  for (int i = 0; i < count; i++) {
    if (lengths[i] == 0)
      return error_set(error, ERR_INVALID_VALUE, "stop", "a stop string must not be empty");
    if (lengths[i] > STOP_STRING_BYTES_MAX)
      return error_set(error, ERR_ABOVE_MAX, "stop", "a stop string has at most %d bytes",
                       STOP_STRING_BYTES_MAX);
    if (!utf8_valid(strings[i], lengths[i]))
      return error_set(error, ERR_INVALID_VALUE, "stop", "a stop string is not valid UTF-8");
  }
  return 0;
}

/* Maps the bytes that occur in a stop string to columns; column 0 is every other byte. */
static uint32_t fill_columns(stop_set_t *s, const char *const *strings, const size_t *lengths,
                             int count) {
  uint32_t columns = 1;
  for (int i = 0; i < count; i++) {
    for (size_t j = 0; j < lengths[i]; j++) {
      uint8_t byte = (uint8_t)strings[i][j];
      if (s->column[byte] == 0) s->column[byte] = (uint16_t)columns++;
    }
  }
  return columns;
}

static void add_string(stop_set_t *s, const char *string, size_t length, int index) {
  uint32_t state = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t *edge = &s->next[state * s->columns + s->column[(uint8_t)string[i]]];
    if (*edge == 0) {
      *edge = s->num_states++;
      s->depth[*edge] = (uint16_t)(s->depth[state] + 1);
    }
    state = *edge;
  }
  if (s->accept[state] < 0) s->accept[state] = (int8_t)index; /* equal strings: the first counts */
}

/* Breadth first: missing edges become the edges of the failure state. `queue`, `failure`:
 * [num_states]. */
static void link_failures(stop_set_t *s, uint32_t *queue, uint32_t *failure) {
  uint32_t head = 0, tail = 0;
  for (uint32_t c = 1; c < s->columns; c++)
    if (s->next[c] != 0) failure[s->next[c]] = 0, queue[tail++] = s->next[c];
  while (head < tail) {
    uint32_t state = queue[head++], fail = failure[state];
    /* Strings that end at the same byte: the one that comes first in the list wins. */
    if (s->accept[fail] >= 0 && (s->accept[state] < 0 || s->accept[fail] < s->accept[state]))
      s->accept[state] = s->accept[fail];
    for (uint32_t c = 1; c < s->columns; c++) {
      uint32_t *edge = &s->next[state * s->columns + c], other = s->next[fail * s->columns + c];
      if (*edge != 0) {
        failure[*edge] = other;
        queue[tail++] = *edge;
      } else {
        *edge = other;
      }
    }
  }
}

static bool allocate(stop_set_t *s, size_t states) {
  size_t cells;
  if (!checked_mul(states, s->columns, &cells)) return false;
  s->next = calloc(cells, sizeof *s->next);
  s->accept = calloc(states, sizeof *s->accept);
  s->depth = calloc(states, sizeof *s->depth);
  if (s->next == NULL || s->accept == NULL || s->depth == NULL) return false;
  memset(s->accept, -1, states * sizeof *s->accept);
  s->num_states = 1;
  return true;
}

static bool copy_strings(stop_set_t *s, const char *const *strings, const size_t *lengths,
                         int count, size_t total) {
  s->text = malloc(total);
  if (s->text == NULL) return false;
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    memcpy(s->text + at, strings[i], lengths[i]);
    s->offset[i] = at, s->length[i] = lengths[i];
    at += lengths[i];
    if (lengths[i] > s->longest) s->longest = lengths[i];
  }
  s->count = count;
  return true;
}

int stop_set_new(const char *const *strings, const size_t *lengths, int count, stop_set_t **out,
                 error_t *error) {
  *out = NULL;
  int code = check(strings, lengths, count, error);
  if (code != 0 || count == 0) return code;
  size_t total = 0;
  for (int i = 0; i < count; i++) total += lengths[i];
  stop_set_t *s = calloc(1, sizeof *s);
  uint32_t *queue = calloc(total + 1, sizeof *queue), *failure = calloc(total + 1, sizeof *failure);
  if (s != NULL) s->columns = fill_columns(s, strings, lengths, count);
  bool ok = s != NULL && queue != NULL && failure != NULL && allocate(s, total + 1) &&
            copy_strings(s, strings, lengths, count, total);
  if (ok) {
    for (int i = 0; i < count; i++) add_string(s, strings[i], lengths[i], i);
    link_failures(s, queue, failure);
    *out = s;
  } else {
    stop_set_free(s);
    code = error_set(error, ERR_INTERNAL, NULL, "not enough memory for the stop strings");
  }
  free(queue);
  free(failure);
  return code;
}

void stop_set_free(stop_set_t *s) {
  if (s == NULL) return;
  free(s->next);
  free(s->accept);
  free(s->depth);
  free(s->text);
  free(s);
}

const char *stop_set_string(const stop_set_t *s, int index, size_t *length) {
  *length = 0;
  if (s == NULL || index < 0 || index >= s->count) return NULL;
  *length = s->length[index];
  return s->text + s->offset[index];
}

size_t stop_set_hold_max(const stop_set_t *s) {
  return s == NULL ? 0 : s->longest;
}
