/* pretokenizer.c: runs a compiled chain of splits over one text.
 *
 * Runs on the tokenizing threads. Pieces flow one at a time from the first step to the sink, so no
 * list of pieces is ever made; the nesting is as deep as the chain in the file, never as the text.
 */
#include "engine/text/split/pretokenizer.h"

#include "engine/base/error.h"
#include "engine/text/split/split_regex.h"

#include <stdlib.h>

bool pretokenizer_init(pretokenizer_t *p) {
  *p = (pretokenizer_t){.num_phases = 1};
  p->steps = calloc(PRETOKENIZER_STEPS_MAX, sizeof *p->steps);
  return p->steps != NULL;
}

void pretokenizer_free(pretokenizer_t *p) {
  for (unsigned i = 0; i < p->num_steps; i++) regex_free(p->steps[i].scanner.regex);
  free(p->steps);
}

pretokenizer_step_t *pretokenizer_add_step(pretokenizer_t *p) {
  if (p->num_steps == PRETOKENIZER_STEPS_MAX) return NULL;
  p->phases[p->num_phases - 1].num_steps++;
  return &p->steps[p->num_steps++];
}

pretokenizer_phase_t *pretokenizer_add_phase(pretokenizer_t *p) {
  pretokenizer_phase_t *last = &p->phases[p->num_phases - 1];
  if (last->num_steps == 0 && last->prefix_length == 0) return last;
  if (p->num_phases == PRETOKENIZER_PHASES_MAX) return NULL;
  last = &p->phases[p->num_phases++];
  *last = (pretokenizer_phase_t){.first_step = p->num_steps};
  return last;
}

/* One step at work on one piece: the segments of text[at, end), matches and gaps in turn. */
typedef struct cursor {
  size_t at, end;
  size_t match_start, match_end; /* the next match, when `found`; match_start == end: none */
  bool found;
  bool failed; /* the search gave up: a bound was reached */
} cursor_t;

typedef struct segment {
  size_t start, end;
  bool match;
} segment_t;

static bool next_segment(const pretokenizer_step_t *step, const uint8_t *text, cursor_t *c,
                         segment_t *out) {
  if (c->at == c->end || c->failed) return false;
  if (!c->found) {
    c->match_start = step->scanner.find(&step->scanner, text, c->at, c->end, &c->match_end);
    c->failed = c->match_start == SCANNER_FAILED;
    if (c->failed) return false;
    c->found = true;
  }
  out->start = c->at;
  if (c->at < c->match_start) {
    out->end = c->match_start, out->match = step->invert;
  } else {
    out->end = c->match_end, out->match = !step->invert;
    c->found = false;
  }
  c->at = out->end;
  return true;
}

/* The next piece by the step's behaviour. */
static bool next_piece(const pretokenizer_step_t *step, const uint8_t *text, cursor_t *c,
                       segment_t *piece) {
  segment_t more;
  if (!next_segment(step, text, c, piece)) return false;
  if (step->behavior == SPLIT_ISOLATED) return true;
  while (step->behavior == SPLIT_REMOVED && piece->match)
    if (!next_segment(step, text, c, piece)) return false;
  if (step->behavior == SPLIT_REMOVED) return true;
  for (;;) {
    cursor_t ahead = *c;
    if (!next_segment(step, text, &ahead, &more)) return c->failed = ahead.failed, !c->failed;
    bool join = step->behavior == SPLIT_CONTIGUOUS             ? more.match == piece->match
                : step->behavior == SPLIT_MERGED_WITH_PREVIOUS ? !piece->match && more.match
                                                               : piece->match && !more.match;
    if (!join) {
      /* Keep what was searched, so that the next call does not search it again. */
      c->match_start = ahead.found ? ahead.match_start : more.start;
      c->match_end = ahead.found ? ahead.match_end : more.end;
      c->found = true;
      return true;
    }
    *c = ahead;
    piece->end = more.end;
    if (step->behavior != SPLIT_CONTIGUOUS) return true;
  }
}

static int run_phase(const pretokenizer_t *p, pretokenizer_scratch_t *s, unsigned phase,
                     const uint8_t *text, size_t length, const uint8_t *limit, bool at_start,
                     piece_sink_t *sink, void *context);

static int give(const pretokenizer_t *p, pretokenizer_scratch_t *s, unsigned phase,
                const uint8_t *text, size_t length, const uint8_t *limit, bool at_start,
                piece_sink_t *sink, void *context) {
  if (phase + 1 == p->num_phases) return sink(context, text, length, limit);
  return run_phase(p, s, phase + 1, text, length, limit, at_start, sink, context);
}

/* Applies Metaspace or add_prefix_space: text moves to the phase's own buffer. */
static bool change(const pretokenizer_phase_t *phase, bytes_t *out, const uint8_t **text,
                   size_t *length, const uint8_t **limit, bool at_start) {
  const uint8_t *in = *text, *mark = phase->prefix_text;
  size_t n = phase->prefix_length, spaces = 0;
  bool starts = *length >= n && memcmp(in, mark, n) == 0;
  if (phase->replace_spaces && in[0] == ' ') starts = true;
  for (size_t i = 0; phase->replace_spaces && i < *length; i++) spaces += in[i] == ' ';
  out->length = 0;
  if (!bytes_reserve(out, *length + n + spaces * n)) return false;
  uint8_t *o = out->data;
  if (!starts && (phase->prefix == PREFIX_ALWAYS || (phase->prefix == PREFIX_FIRST && at_start)))
    memcpy(o, mark, n), o += n;
  for (size_t i = 0; i < *length; i++) {
    if (in[i] == ' ' && phase->replace_spaces) {
      for (size_t j = 0; j < n; j++) *o++ = mark[j];
    } else {
      *o++ = in[i];
    }
  }
  out->length = (size_t)(o - out->data);
  *text = out->data, *length = out->length, *limit = out->data + out->capacity;
  return true;
}

static int run_phase(const pretokenizer_t *p, pretokenizer_scratch_t *s, unsigned phase,
                     const uint8_t *text, size_t length, const uint8_t *limit, bool at_start,
                     piece_sink_t *sink, void *context) {
  const pretokenizer_phase_t *f = &p->phases[phase];
  const pretokenizer_step_t *steps = p->steps + f->first_step;
  if (f->prefix_length > 0 && !change(f, &s->text[phase], &text, &length, &limit, at_start))
    return ERR_INTERNAL;
  if (f->num_steps == 0) return give(p, s, phase, text, length, limit, at_start, sink, context);
  cursor_t cursors[PRETOKENIZER_STEPS_MAX];
  unsigned level = 0;
  cursors[0] = (cursor_t){.end = length};
  for (;;) {
    segment_t piece;
    if (!next_piece(&steps[level], text, &cursors[level], &piece)) {
      if (cursors[level].failed) return ERR_BAD_REQUEST;
      if (level == 0) return 0;
      level--;
      continue;
    }
    if (level + 1 < f->num_steps) {
      cursors[++level] = (cursor_t){.at = piece.start, .end = piece.end};
      continue;
    }
    int code = give(p, s, phase, text + piece.start, piece.end - piece.start, limit,
                    at_start && piece.start == 0, sink, context);
    if (code != 0) return code;
  }
}

int pretokenizer_run(const pretokenizer_t *p, pretokenizer_scratch_t *s, const uint8_t *text,
                     size_t length, const uint8_t *limit, bool at_start, piece_sink_t *sink,
                     void *context) {
  if (length == 0) return 0;
  return run_phase(p, s, 0, text, length, limit, at_start, sink, context);
}

void pretokenizer_scratch_trim(pretokenizer_scratch_t *s, size_t keep_max) {
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) bytes_trim(&s->text[i], keep_max);
}

void pretokenizer_scratch_free(pretokenizer_scratch_t *s) {
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) bytes_free(&s->text[i]);
}
