/* load_decode.c: post_processor and decoder of tokenizer.json.
 *
 * The loading thread only; the model and the added tokens must be there, because template ids are
 * checked against them.
 */
#include "engine/text/load/load.h"
#include "engine/text/unicode/unicode.h"

/* Checks an id from the file and appends it. */
static int push_affix(tokenizer_load_t *load, const char *where, const json_t *id, int32_t *ids,
                      unsigned *count) {
  int64_t value;
  size_t length;
  if (!json_int64(id, &value) || value < 0 || value >= load->tokenizer->num_ids ||
      tokenizer_spelling(load->tokenizer, (int32_t)value, &length) == NULL)
    return load_fail(load, where, "an id that no token has");
  if (*count == AFFIX_IDS_MAX) return load_fail(load, where, "more than %d ids", AFFIX_IDS_MAX);
  ids[(*count)++] = (int32_t)value;
  return 0;
}

/* Reads the ids of one processor. The reference library passes the parts of the first processor to
 * the second as if they were several texts. */
static int wrap(tokenizer_load_t *load, const char *where, const int32_t *prefix,
                unsigned num_prefix, const int32_t *suffix, unsigned num_suffix) {
  tokenizer_t *tokenizer = load->tokenizer;
  if (tokenizer->num_prefix + tokenizer->num_suffix > 0)
    return load_fail(load, where, "more than one processor that adds ids is not supported");
  memcpy(tokenizer->prefix, prefix, num_prefix * sizeof *prefix);
  memcpy(tokenizer->suffix, suffix, num_suffix * sizeof *suffix);
  tokenizer->num_prefix = num_prefix, tokenizer->num_suffix = num_suffix;
  return 0;
}

/* {"SpecialToken": {"id": name}} -> the ids that special_tokens gives to the name. */
static int template_token(tokenizer_load_t *load, const json_t *value, const json_t *item,
                          int32_t *ids, unsigned *count) {
  static const char where[] = "post_processor";
  char quoted[96];
  const json_t *name = load_field(item, "id");
  const json_t *table = load_field(value, "special_tokens"), *entry = NULL;
  if (name != NULL && name->type == JSON_STRING) {
    entry = json_member(table, name->text, name->length);
  }
  const json_t *list = load_field(entry, "ids");
  if (list == NULL || list->type != JSON_ARRAY)
    return load_fail(load, where, "the template's token \"%s\" has no ids",
                     load_quote(quoted, name));
  JSON_EACH(id, list) {
    int code = push_affix(load, where, id, ids, count);
    if (code != 0) return code;
  }
  return 0;
}

/* One piece of "pair". The tokens up to a place must have the type 0, those behind it the type 1.
 */
static int pair_piece(tokenizer_load_t *load, const json_t *value, const json_t *piece,
                      unsigned *side) {
  pair_template_t *pair = &load->tokenizer->pair;
  const json_t *token = load_field(piece, "SpecialToken");
  const json_t *item = token != NULL ? token : load_field(piece, "Sequence");
  int64_t type = 0;
  bool typed = json_int64(load_field(item, "type_id"), &type) && type == 1;
  if (type < 0 || type > 1 || (pair->typed && !typed) || (typed && *side == 0))
    pair->missing = "the post-processor's template of pairs has types that are not 0, then 1";
  if (typed && !pair->typed) {
    pair->typed = true;
    pair->first_typed = pair->count[1];
    if (*side == 2)
      pair->missing = "the post-processor's template of pairs has types in the last tokens only";
  }
  if (token != NULL)
    return template_token(load, value, token, pair->ids[*side], &pair->count[*side]);
  if (*side == 2 || !json_equals(load_field(item, "id"), *side == 0 ? "A" : "B"))
    pair->missing = "the post-processor's template of pairs does not hold A, then B";
  *side += *side < 2;
  return 0;
}

static int template_pair(tokenizer_load_t *load, const json_t *value) {
  pair_template_t *pair = &load->tokenizer->pair;
  const json_t *list = load_field(value, "pair");
  unsigned side = 0;
  if (list == NULL || list->type != JSON_ARRAY || list->count == 0) {
    pair->missing = "the post-processor has no template for pairs";
    return 0;
  }
  *pair = (pair_template_t){0};
  JSON_EACH(piece, list) {
    int code = pair_piece(load, value, piece, &side);
    if (code != 0) return code;
  }
  if (side != 2) pair->missing = "the post-processor's template of pairs does not hold A, then B";
  return 0;
}

static int template_processor(tokenizer_load_t *load, const json_t *value) {
  static const char where[] = "post_processor";
  int32_t ids[2][AFFIX_IDS_MAX];
  unsigned count[2] = {0, 0}, side = 0;
  const json_t *single = load_field(value, "single");
  if (single == NULL || single->type != JSON_ARRAY)
    return load_fail(load, where, "TemplateProcessing needs an array \"single\"");
  JSON_EACH(piece, single) {
    const json_t *token = load_field(piece, "SpecialToken"),
                 *sequence = load_field(piece, "Sequence");
    if (sequence != NULL && (!json_equals(load_field(sequence, "id"), "A") || side++ > 0))
      return load_fail(load, where, "\"single\" must hold the sequence A once");
    if (sequence == NULL && token == NULL)
      return load_fail(load, where, "\"single\" holds neither SpecialToken nor Sequence");
    int code = token == NULL ? 0 : template_token(load, value, token, ids[side], &count[side]);
    if (code != 0) return code;
  }
  if (side != 1) return load_fail(load, where, "\"single\" must hold the sequence A once");
  int code = wrap(load, where, ids[0], count[0], ids[1], count[1]);
  return code == 0 ? template_pair(load, value) : code;
}

/* RobertaProcessing and BertProcessing: "cls" and "sep" are [text, id]. Between two texts RoBERTa
 * has two separators; BERT's second text has the type 1. */
static int cls_processor(tokenizer_load_t *load, const json_t *value, bool bert) {
  static const char *const keys[2] = {"cls", "sep"};
  int32_t ids[2][AFFIX_IDS_MAX];
  unsigned count[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    const json_t *pair = load_field(value, keys[i]), *first = json_first(pair);
    if (pair == NULL || pair->type != JSON_ARRAY || pair->count != 2 || first->type != JSON_STRING)
      return load_fail(load, "post_processor", "\"%s\" must be [text, id]", keys[i]);
    int code = push_affix(load, "post_processor", json_next(first), ids[i], &count[i]);
    if (code != 0) return code;
  }
  load->tokenizer->pair =
      (pair_template_t){.ids = {{ids[0][0]}, {ids[1][0], ids[1][0]}, {ids[1][0]}},
                        .count = {1, bert ? 1 : 2, 1},
                        .typed = bert,
                        .first_typed = 1};
  return wrap(load, "post_processor", ids[0], count[0], ids[1], count[1]);
}

/* ByteLevel and RobertaProcessing: both keys are true where they are absent. */
static void read_trimming(tokenizer_t *tokenizer, const json_t *value) {
  const json_t *trims = load_field(value, "trim_offsets");
  const json_t *puts = load_field(value, "add_prefix_space");
  if (trims != NULL && trims->type == JSON_FALSE) return;
  tokenizer->trims_spans = true;
  tokenizer->puts_space = puts == NULL || puts->type != JSON_FALSE;
}

static int processor(tokenizer_load_t *load, const json_t *value) {
  char quoted[96];
  const json_t *type = load_field(value, "type");
  const bool bytes = json_equals(type, "ByteLevel");
  if (bytes || json_equals(type, "RobertaProcessing")) read_trimming(load->tokenizer, value);
  if (bytes) return 0;
  if (json_equals(type, "TemplateProcessing")) return template_processor(load, value);
  if (json_equals(type, "RobertaProcessing")) return cls_processor(load, value, false);
  if (json_equals(type, "BertProcessing")) return cls_processor(load, value, true);
  return load_fail(load, "post_processor", "type \"%s\" is not supported",
                   load_quote(quoted, type));
}

int load_post_processor(tokenizer_load_t *load, const json_t *value) {
  load->tokenizer->pair.typed = true; /* without a template: one text, then the other */
  if (value == NULL) return 0;
  if (!json_equals(load_field(value, "type"), "Sequence")) return processor(load, value);
  const json_t *list = load_field(value, "processors");
  if (list == NULL || list->type != JSON_ARRAY || list->count > LOAD_SEQUENCE_DEPTH_MAX)
    return load_fail(load, "post_processor", "a Sequence needs an array of at most %d processors",
                     LOAD_SEQUENCE_DEPTH_MAX);
  JSON_EACH(item, list) {
    int code = processor(load, item);
    if (code != 0) return code;
  }
  return 0;
}

static bool keep_text(const json_t *value, char *out, unsigned *length) {
  return load_text(value, out, length, DECODER_TEXT_MAX);
}

static bool keep_count(const json_t *value, uint32_t *out) {
  int64_t n;
  if (!json_int64(value, &n) || n < 0 || n > 1024) return false;
  *out = (uint32_t)n;
  return true;
}

static int read_strip(tokenizer_load_t *load, const json_t *value, decoder_step_t *step) {
  step->kind = DECODE_STRIP;
  if (!keep_text(load_field(value, "content"), step->content, &step->content_length) ||
      step->content_length == 0 || !keep_count(load_field(value, "start"), &step->start) ||
      !keep_count(load_field(value, "stop"), &step->stop))
    return load_fail(load, "decoder", "Strip needs \"content\", \"start\" and \"stop\"");
  return 0;
}

static int read_replace(tokenizer_load_t *load, const json_t *value, decoder_step_t *step) {
  step->kind = DECODE_REPLACE;
  const json_t *pattern = load_field(load_field(value, "pattern"), "String");
  if (!keep_text(pattern, step->pattern, &step->pattern_length) || step->pattern_length == 0 ||
      !keep_text(load_field(value, "content"), step->content, &step->content_length))
    return load_fail(load, "decoder",
                     "Replace needs a String pattern and a content of at most %d "
                     "bytes",
                     DECODER_TEXT_MAX);
  return 0;
}

static int read_metaspace(tokenizer_load_t *load, const json_t *value, decoder_step_t *step) {
  const json_t *scheme = load_field(value, "prepend_scheme");
  bool legacy = true;
  step->kind = DECODE_METASPACE;
  if (!keep_text(load_field(value, "replacement"), step->pattern, &step->pattern_length) ||
      step->pattern_length == 0)
    return load_fail(load, "decoder", "Metaspace needs a \"replacement\"");
  if (!load_bool(load, value, "add_prefix_space", "decoder", &legacy)) return ERR_MODEL_MALFORMED;
  step->keep_first = scheme == NULL ? !legacy : json_equals(scheme, "never");
  if (!step->keep_first) load->tokenizer->decoder.first_differs = true;
  return 0;
}

static int read_wordpiece(tokenizer_load_t *load, const json_t *value, decoder_step_t *step) {
  step->kind = DECODE_WORDPIECE;
  step->cleans_up = true;
  if (!keep_text(load_field(value, "prefix"), step->pattern, &step->pattern_length))
    return load_fail(load, "decoder", "WordPiece needs a string \"prefix\"");
  if (!load_bool(load, value, "cleanup", "decoder", &step->cleans_up)) return ERR_MODEL_MALFORMED;
  load->tokenizer->decoder.first_differs = true;
  return 0;
}

/* One component; *fused: the tokens are joined, so the whole text is one. */
static int decoder_component(tokenizer_load_t *load, const json_t *value, bool *fused) {
  decoder_t *decoder = &load->tokenizer->decoder;
  char quoted[96];
  const json_t *type = load_field(value, "type");
  if (json_equals(type, "Fuse")) return *fused = true, 0;
  if (decoder->num_steps == DECODER_STEPS_MAX)
    return load_fail(load, "decoder", "more than %d steps", DECODER_STEPS_MAX);
  decoder_step_t *step = &decoder->steps[decoder->num_steps];
  *step = (decoder_step_t){0};
  int code = 0;
  if (json_equals(type, "ByteLevel"))
    step->kind = DECODE_BYTE_LEVEL;
  else if (json_equals(type, "ByteFallback"))
    step->kind = DECODE_BYTE_FALLBACK;
  else if (json_equals(type, "Replace"))
    code = read_replace(load, value, step);
  else if (json_equals(type, "Metaspace"))
    code = read_metaspace(load, value, step);
  else if (json_equals(type, "Strip"))
    code = read_strip(load, value, step);
  else if (json_equals(type, "WordPiece"))
    code = read_wordpiece(load, value, step);
  else
    code = load_fail(load, "decoder", "type \"%s\" is not supported", load_quote(quoted, type));
  if (code != 0) return code;
  bool after_bytes =
      decoder->num_steps > 0 && decoder->steps[decoder->num_steps - 1].kind == DECODE_BYTE_FALLBACK;
  if (after_bytes && !*fused && step->kind != DECODE_BYTE_FALLBACK)
    return load_fail(load, "decoder", "after ByteFallback only Fuse is supported");
  if (!*fused) { /* ByteLevel joins the tokens too */
    *fused = step->kind == DECODE_BYTE_LEVEL;
    return decoder->num_steps++, 0;
  }
  if (step->kind != DECODE_STRIP || step->stop != 0 || decoder->strip_length != 0)
    return load_fail(load, "decoder",
                     "after Fuse or ByteLevel only one Strip at the start is supported");
  memcpy(decoder->strip_text, step->content, step->content_length);
  decoder->strip_length = step->content_length, decoder->strip_start = step->start;
  return 0;
}

int load_decoder(tokenizer_load_t *load, const json_t *value) {
  decoder_t *decoder = &load->tokenizer->decoder;
  bool fused = false;
  if (value == NULL) {
    decoder->join_with_spaces = decoder->first_differs = true;
    return 0;
  }
  if (!json_equals(load_field(value, "type"), "Sequence"))
    return decoder_component(load, value, &fused);
  const json_t *list = load_field(value, "decoders");
  if (list == NULL || list->type != JSON_ARRAY)
    return load_fail(load, "decoder", "a Sequence needs an array \"decoders\"");
  JSON_EACH(item, list) {
    int code = decoder_component(load, item, &fused);
    if (code != 0) return code;
  }
  return 0;
}
