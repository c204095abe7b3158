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

static int check(const char *const *strings, const size_t *lengths, int count,
                 inferd_error_t *error) {
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
static uint32_t fill_columns(stop_set_t *stop_set, const char *const *strings,
                             const size_t *lengths, int count) {
  uint32_t columns = 1;
  for (int i = 0; i < count; i++) {
    for (size_t j = 0; j < lengths[i]; j++) {
      uint8_t byte = (uint8_t)strings[i][j];
      if (stop_set->column[byte] == 0) stop_set->column[byte] = (uint16_t)columns++;
    }
  }
  return columns;
}

static void add_string(stop_set_t *stop_set, const char *string, size_t length, int index) {
  uint32_t state = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t *edge =
        &stop_set->next[state * stop_set->columns + stop_set->column[(uint8_t)string[i]]];
    if (*edge == 0) {
      *edge = stop_set->num_states++;
      stop_set->depth[*edge] = (uint16_t)(stop_set->depth[state] + 1);
    }
    state = *edge;
  }
  if (stop_set->accept[state] < 0)
    stop_set->accept[state] = (int8_t)index; /* equal strings: the first counts */
}

/* Breadth first: missing edges become the edges of the failure state. `queue`, `failure`:
 * [num_states]. */
static void link_failures(stop_set_t *stop_set, uint32_t *queue, uint32_t *failure) {
  uint32_t head = 0, tail = 0;
  for (uint32_t c = 1; c < stop_set->columns; c++)
    if (stop_set->next[c] != 0) failure[stop_set->next[c]] = 0, queue[tail++] = stop_set->next[c];
  while (head < tail) {
    uint32_t state = queue[head++], fail = failure[state];
    /* Strings that end at the same byte: the one that comes first in the list wins. */
    if (stop_set->accept[fail] >= 0 &&
        (stop_set->accept[state] < 0 || stop_set->accept[fail] < stop_set->accept[state]))
      stop_set->accept[state] = stop_set->accept[fail];
    for (uint32_t c = 1; c < stop_set->columns; c++) {
      uint32_t *edge = &stop_set->next[state * stop_set->columns + c],
               other = stop_set->next[fail * stop_set->columns + c];
      if (*edge != 0) {
        failure[*edge] = other;
        queue[tail++] = *edge;
      } else {
        *edge = other;
      }
    }
  }
}

static bool allocate(stop_set_t *stop_set, size_t states) {
  size_t cells;
  if (!checked_mul(states, stop_set->columns, &cells)) return false;
  stop_set->next = calloc(cells, sizeof *stop_set->next);
  stop_set->accept = calloc(states, sizeof *stop_set->accept);
  stop_set->depth = calloc(states, sizeof *stop_set->depth);
  if (stop_set->next == NULL || stop_set->accept == NULL || stop_set->depth == NULL) return false;
  memset(stop_set->accept, -1, states * sizeof *stop_set->accept);
  stop_set->num_states = 1;
  return true;
}

static bool copy_strings(stop_set_t *stop_set, const char *const *strings, const size_t *lengths,
                         int count, size_t total) {
  stop_set->text = malloc(total);
  if (stop_set->text == NULL) return false;
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    memcpy(stop_set->text + at, strings[i], lengths[i]);
    stop_set->offset[i] = at, stop_set->length[i] = lengths[i];
    at += lengths[i];
    if (lengths[i] > stop_set->longest) stop_set->longest = lengths[i];
  }
  stop_set->count = count;
  return true;
}

int stop_set_new(const char *const *strings, const size_t *lengths, int count, stop_set_t **out,
                 inferd_error_t *error) {
  *out = NULL;
  int code = check(strings, lengths, count, error);
  if (code != 0 || count == 0) return code;
  size_t total = 0;
  for (int i = 0; i < count; i++) total += lengths[i];
  stop_set_t *stop_set = calloc(1, sizeof *stop_set);
  uint32_t *queue = calloc(total + 1, sizeof *queue), *failure = calloc(total + 1, sizeof *failure);
  if (stop_set != NULL) stop_set->columns = fill_columns(stop_set, strings, lengths, count);
  bool ok = stop_set != NULL && queue != NULL && failure != NULL && allocate(stop_set, total + 1) &&
            copy_strings(stop_set, strings, lengths, count, total);
  if (ok) {
    for (int i = 0; i < count; i++) add_string(stop_set, strings[i], lengths[i], i);
    link_failures(stop_set, queue, failure);
    *out = stop_set;
  } else {
    stop_set_free(stop_set);
    code = error_set(error, ERR_INTERNAL, NULL, "not enough memory for the stop strings");
  }
  free(queue);
  free(failure);
  return code;
}

void stop_set_free(stop_set_t *stops) {
  if (stops == NULL) return;
  free(stops->next);
  free(stops->accept);
  free(stops->depth);
  free(stops->text);
  free(stops);
}

int stop_set_count(const stop_set_t *stops) {
  return stops == NULL ? 0 : stops->count;
}

const char *stop_set_string(const stop_set_t *stops, int index, size_t *length) {
  *length = 0;
  if (stops == NULL || index < 0 || index >= stops->count) return NULL;
  *length = stops->length[index];
  return stops->text + stops->offset[index];
}

size_t stop_set_hold_max(const stop_set_t *stops) {
  return stops == NULL ? 0 : stops->longest;
}
