/* pretokenizer.c: runs a compiled chain of splits over one text.
 *
 * Runs on the tokenizing threads. Pieces flow one at a time from the first step to the sink, so no
 * list of pieces is ever made; the nesting is as deep as the chain in the file, never as the text.
 */
#include "engine/text/split/pretokenizer.h"

#include "engine/base/error.h"
#include "engine/text/split/split_regex.h"

#include <stdlib.h>
#include <string.h>

bool pretokenizer_init(pretokenizer_t *pretokenizer) {
  *pretokenizer = (pretokenizer_t){.num_phases = 1};
  pretokenizer->steps = calloc(PRETOKENIZER_STEPS_MAX, sizeof *pretokenizer->steps);
  return pretokenizer->steps != NULL;
}

void pretokenizer_free(pretokenizer_t *pretokenizer) {
  for (unsigned i = 0; i < pretokenizer->num_steps; i++)
    regex_free(pretokenizer->steps[i].scanner.regex);
  free(pretokenizer->steps);
}

pretokenizer_step_t *pretokenizer_add_step(pretokenizer_t *pretokenizer) {
  if (pretokenizer->num_steps == PRETOKENIZER_STEPS_MAX) return NULL;
  pretokenizer->phases[pretokenizer->num_phases - 1].num_steps++;
  return &pretokenizer->steps[pretokenizer->num_steps++];
}

pretokenizer_phase_t *pretokenizer_add_phase(pretokenizer_t *pretokenizer) {
  pretokenizer_phase_t *last = &pretokenizer->phases[pretokenizer->num_phases - 1];
  if (last->num_steps == 0 && last->prefix_length == 0) return last;
  if (pretokenizer->num_phases == PRETOKENIZER_PHASES_MAX) return NULL;
  last = &pretokenizer->phases[pretokenizer->num_phases++];
  *last = (pretokenizer_phase_t){.first_step = pretokenizer->num_steps};
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

static bool next_segment(const pretokenizer_step_t *step, const uint8_t *text, cursor_t *cursor,
                         segment_t *out) {
  if (cursor->at == cursor->end || cursor->failed) return false;
  if (!cursor->found) {
    cursor->match_start =
        step->scanner.find(&step->scanner, text, cursor->at, cursor->end, &cursor->match_end);
    cursor->failed = cursor->match_start == SCANNER_FAILED;
    if (cursor->failed) return false;
    cursor->found = true;
  }
  out->start = cursor->at;
  if (cursor->at < cursor->match_start) {
    out->end = cursor->match_start, out->match = step->invert;
  } else {
    out->end = cursor->match_end, out->match = !step->invert;
    cursor->found = false;
  }
  cursor->at = out->end;
  return true;
}

/* The next piece by the step's behaviour. */
static bool next_piece(const pretokenizer_step_t *step, const uint8_t *text, cursor_t *cursor,
                       segment_t *piece) {
  segment_t more;
  if (!next_segment(step, text, cursor, piece)) return false;
  if (step->behavior == SPLIT_ISOLATED) return true;
  while (step->behavior == SPLIT_REMOVED && piece->match)
    if (!next_segment(step, text, cursor, piece)) return false;
  if (step->behavior == SPLIT_REMOVED) return true;
  for (;;) {
    cursor_t ahead = *cursor;
    if (!next_segment(step, text, &ahead, &more))
      return cursor->failed = ahead.failed, !cursor->failed;
    bool join = step->behavior == SPLIT_CONTIGUOUS             ? more.match == piece->match
                : step->behavior == SPLIT_MERGED_WITH_PREVIOUS ? !piece->match && more.match
                                                               : piece->match && !more.match;
    if (!join) {
      /* Keep what was searched, so that the next call does not search it again. */
      cursor->match_start = ahead.found ? ahead.match_start : more.start;
      cursor->match_end = ahead.found ? ahead.match_end : more.end;
      cursor->found = true;
      return true;
    }
    *cursor = ahead;
    piece->end = more.end;
    if (step->behavior != SPLIT_CONTIGUOUS) return true;
  }
}

/* One run of the chain. */
typedef struct chain {
  const pretokenizer_t *pretokenizer;
  pretokenizer_scratch_t *scratch;
  piece_sink_t *sink;
  void *context; /* of the sink */
} chain_t;

/* A text on its way through the chain: text[0, length); bytes up to `limit` may be read. */
typedef struct chain_text {
  const uint8_t *text;
  size_t length;
  const uint8_t *limit;
  bool at_start; /* it begins at offset 0 of the whole input */
} chain_text_t;

static int run_phase(const chain_t *chain, unsigned phase, chain_text_t in);

/* Gives what `phase` made to the next phase, or to the sink. */
static int give(const chain_t *chain, unsigned phase, chain_text_t out) {
  if (phase + 1 == chain->pretokenizer->num_phases)
    return chain->sink(chain->context, out.text, out.length, out.limit);
  return run_phase(chain, phase + 1, out);
}

size_t pretokenizer_origin(const pretokenizer_scratch_t *scratch, const uint8_t *byte) {
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) {
    const buffer_t *text = &scratch->text[i];
    if (text->length == 0 || byte < text->bytes || byte >= text->bytes + text->length) continue;
    return ((const uint32_t *)(const void *)scratch->origins[i].data)[byte - text->bytes];
  }
  return (size_t)(byte - scratch->input);
}

/* Notes where the bytes of a phase's text come from: `ahead` that were put in front from the first
 * one, those of a mark from its space. */
static bool note_origins(const chain_t *chain, unsigned number, const chain_text_t *in,
                         size_t ahead) {
  pretokenizer_scratch_t *scratch = chain->scratch;
  const pretokenizer_phase_t *phase = &chain->pretokenizer->phases[number];
  buffer_t *out = &scratch->origins[number];
  out->length = 0;
  for (size_t i = 0; i < in->length; i++) {
    const uint32_t origin = (uint32_t)pretokenizer_origin(scratch, in->text + i);
    size_t copies = in->text[i] == ' ' && phase->replace_spaces ? phase->prefix_length : 1;
    if (i == 0) copies += ahead;
    while (copies-- > 0)
      if (!buffer_append(out, &origin, sizeof origin)) return false;
  }
  return true;
}

/* Applies Metaspace or add_prefix_space: text moves to the phase's own buffer. */
static bool change(const chain_t *chain, unsigned number, chain_text_t *piece) {
  const pretokenizer_phase_t *phase = &chain->pretokenizer->phases[number];
  buffer_t *out = &chain->scratch->text[number];
  const uint8_t *in = piece->text, *mark = phase->prefix_text;
  const size_t n = phase->prefix_length, length = piece->length;
  size_t spaces = 0;
  bool starts = length >= n && memcmp(in, mark, n) == 0;
  if (phase->replace_spaces && in[0] == ' ') starts = true;
  for (size_t i = 0; phase->replace_spaces && i < length; i++) spaces += in[i] == ' ';
  out->length = 0;
  if (!buffer_reserve(out, length + n + spaces * n)) return false;
  uint8_t *o = out->bytes;
  if (!starts &&
      (phase->prefix == PREFIX_ALWAYS || (phase->prefix == PREFIX_FIRST && piece->at_start)))
    memcpy(o, mark, n), o += n;
  for (size_t i = 0; i < length; i++) {
    if (in[i] == ' ' && phase->replace_spaces) {
      for (size_t j = 0; j < n; j++) *o++ = mark[j];
    } else {
      *o++ = in[i];
    }
  }
  const size_t made = (size_t)(o - out->bytes), marked = length + spaces * (n - 1);
  if (chain->scratch->notes_origins && !note_origins(chain, number, piece, made - marked))
    return false;
  out->length = made;
  piece->text = out->bytes;
  piece->length = out->length;
  piece->limit = out->bytes + out->capacity;
  return true;
}

static int run_phase(const chain_t *chain, unsigned phase, chain_text_t in) {
  const pretokenizer_phase_t *current = &chain->pretokenizer->phases[phase];
  const pretokenizer_step_t *steps = chain->pretokenizer->steps + current->first_step;
  if (current->prefix_length > 0 && !change(chain, phase, &in)) return ERR_INTERNAL;
  if (current->num_steps == 0) return give(chain, phase, in);
  cursor_t cursors[PRETOKENIZER_STEPS_MAX];
  unsigned level = 0;
  cursors[0] = (cursor_t){.end = in.length};
  for (;;) {
    segment_t piece;
    if (!next_piece(&steps[level], in.text, &cursors[level], &piece)) {
      if (cursors[level].failed) return ERR_BAD_REQUEST;
      if (level == 0) return 0;
      level--;
      continue;
    }
    if (level + 1 < current->num_steps) {
      cursors[++level] = (cursor_t){.at = piece.start, .end = piece.end};
      continue;
    }
    const chain_text_t out = {in.text + piece.start, piece.end - piece.start, in.limit,
                              in.at_start && piece.start == 0};
    int code = give(chain, phase, out);
    if (code != 0) return code;
  }
}

int pretokenizer_run(const pretokenizer_t *pretokenizer, pretokenizer_scratch_t *scratch,
                     const uint8_t *text, size_t length, const uint8_t *limit, bool at_start,
                     piece_sink_t *sink, void *context) {
  if (length == 0) return 0;
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) scratch->text[i].length = 0;
  scratch->input = text;
  const chain_t chain = {pretokenizer, scratch, sink, context};
  return run_phase(&chain, 0, (chain_text_t){text, length, limit, at_start});
}

void pretokenizer_scratch_trim(pretokenizer_scratch_t *scratch, size_t keep_max) {
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) {
    buffer_trim(&scratch->text[i], keep_max);
    buffer_trim(&scratch->origins[i], keep_max);
  }
}

void pretokenizer_scratch_free(pretokenizer_scratch_t *scratch) {
  for (unsigned i = 0; i < PRETOKENIZER_PHASES_MAX; i++) {
    buffer_free(&scratch->text[i]);
    buffer_free(&scratch->origins[i]);
  }
}
