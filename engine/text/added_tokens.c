/* added_tokens.c: finds added tokens in raw or normalised text.
 *
 * Runs on the tokenizing threads over read-only tables. Most texts hold no added token, so a filter
 * on the first byte does nearly all the work.
 */
#include "engine/text/added_tokens.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/text/unicode/unicode.h"

#include <stdlib.h>

bool token_matcher_init(token_matcher_t *matcher, size_t bytes) {
  *matcher = (token_matcher_t){.only_first = -1, .num_nodes = 1};
  uint32_t slots = 16;
  while (slots < 2 * bytes) slots *= 2;
  matcher->edges = calloc(slots, sizeof *matcher->edges);
  matcher->accept = calloc(bytes + 1, sizeof *matcher->accept);
  if (matcher->edges == NULL || matcher->accept == NULL) {
    token_matcher_free(matcher);
    return false;
  }
  matcher->edge_mask = slots - 1, matcher->nodes_max = (uint32_t)bytes + 1;
  return true;
}

void token_matcher_free(token_matcher_t *matcher) {
  free(matcher->edges);
  free(matcher->accept);
  *matcher = (token_matcher_t){.only_first = -1};
}

/* Returns the slot of an edge, or the empty slot where it would be inserted. */
static uint32_t edge_slot(const token_matcher_t *matcher, uint32_t node, uint8_t byte) {
  uint32_t key = node << 8 | byte;
  uint32_t slot = (uint32_t)hash_mix(key + 1ULL) & matcher->edge_mask;
  while (matcher->edges[slot] != 0 && (uint32_t)(matcher->edges[slot] >> 32) != key)
    slot = (slot + 1) & matcher->edge_mask;
  return slot;
}

void token_matcher_add(token_matcher_t *matcher, const uint8_t *content, size_t length,
                       uint32_t index) {
  uint32_t node = 0;
  if (length == 0) return;
  for (size_t i = 0; i < length; i++) {
    uint32_t slot = edge_slot(matcher, node, content[i]);
    if (matcher->edges[slot] == 0)
      matcher->edges[slot] = (uint64_t)(node << 8 | content[i]) << 32 | matcher->num_nodes++;
    node = (uint32_t)matcher->edges[slot];
  }
  if (matcher->accept[node] == 0) matcher->accept[node] = index + 1;
  matcher->first[content[0]] = true;
}

void token_matcher_finish(token_matcher_t *matcher) {
  int count = 0;
  for (int byte = 0; byte < 256; byte++)
    if (matcher->first[byte]) count++, matcher->only_first = byte;
  if (count != 1) matcher->only_first = -1;
}

static size_t skip_to_first(const token_matcher_t *matcher, const uint8_t *text, size_t at,
                            size_t length) {
  if (matcher->only_first >= 0) {
    const uint8_t *hit = memchr(text + at, matcher->only_first, length - at);
    return hit == NULL ? length : (size_t)(hit - text);
  }
  while (at < length && !matcher->first[text[at]]) at++;
  return at;
}

/* First match at or after `from`; false when there is none. */
static bool find_next(const token_matcher_t *matcher, const uint8_t *text, size_t from,
                      size_t length, token_match_t *match) {
  if (matcher->num_nodes <= 1) return false;
  for (size_t at = from; (at = skip_to_first(matcher, text, at, length)) < length; at++) {
    uint32_t node = 0, found = 0;
    for (size_t i = at; i < length; i++) {
      uint64_t edge = matcher->edges[edge_slot(matcher, node, text[i])];
      if (edge == 0) break;
      node = (uint32_t)edge;
      if (matcher->accept[node] != 0) found = matcher->accept[node], match->end = i + 1;
    }
    if (found != 0) {
      match->start = at, match->index = found - 1;
      return true;
    }
  }
  return false;
}

static bool word_before(const uint8_t *text, size_t at) {
  unsigned n;
  if (at == 0) return false;
  return unicode_extra(utf8_read(text + utf8_previous(text, at), &n)) & EXTRA_WORD;
}

static bool word_after(const uint8_t *text, size_t at, size_t length) {
  unsigned n;
  return at < length && (unicode_extra(utf8_read(text + at, &n)) & EXTRA_WORD);
}

/* Start of the whitespace that ends at `at`, not before `floor`. */
static size_t spaces_before(const uint8_t *text, size_t at, size_t floor) {
  while (at > floor) {
    unsigned n;
    size_t previous = utf8_previous(text, at);
    if (!(unicode_class(utf8_read(text + previous, &n)) & CLASS_SPACE)) break;
    at = previous;
  }
  return MAX(at, floor);
}

static size_t spaces_after(const uint8_t *text, size_t at, size_t length) {
  while (at < length) {
    unsigned n;
    if (!(unicode_class(utf8_read(text + at, &n)) & CLASS_SPACE)) break;
    at += n;
  }
  return at;
}

/* Matches and spans both ascend, so spans before the match need not be checked again. */
static bool touches_plain(token_walk_t *walk, size_t start, size_t end) {
  start += walk->plain_offset;
  end += walk->plain_offset;
  while (walk->num_plain > 0 && walk->plain[0].end <= start) walk->plain++, walk->num_plain--;
  return walk->num_plain > 0 && walk->plain[0].begin < end;
}

bool token_walk_next(token_walk_t *walk, token_span_t *span) {
  token_match_t match;
  if (walk->done) return false;
  while (find_next(walk->matcher, walk->text, walk->from, walk->length, &match)) {
    const added_token_t *token = &walk->tokens[match.index];
    if (token->special && touches_plain(walk, match.start, match.end)) {
      walk->from = match.start + 1; /* a valid match may begin inside this one */
      continue;
    }
    walk->from = match.end; /* the search continues before the spaces that rstrip removed */
    if (token->single_word &&
        (word_before(walk->text, match.start) || word_after(walk->text, match.end, walk->length)))
      continue;
    size_t start = match.start, stop = match.end;
    if (token->lstrip) start = spaces_before(walk->text, start, walk->gap_start);
    if (token->rstrip) stop = spaces_after(walk->text, stop, walk->length);
    if (start >= stop) continue; /* empty: an earlier token took it with its spaces */
    *span =
        (token_span_t){.gap_start = walk->gap_start, .gap_end = walk->gap_start, .has_token = true};
    if (walk->gap_start < start) span->gap_end = start;
    span->index = match.index;
    walk->gap_start = stop;
    return true;
  }
  walk->done = true;
  *span = (token_span_t){.gap_start = walk->gap_start, .gap_end = walk->length};
  return walk->gap_start < walk->length;
}
