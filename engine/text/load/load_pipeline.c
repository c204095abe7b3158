/* load_pipeline.c: normalizer and pre_tokenizer of tokenizer.json -> compiled chains.
 *
 * The loading thread only. A component that is not known exactly is refused by name, because a
 * slightly different pipeline would silently give wrong ids.
 */
#include "engine/base/util.h"
#include "engine/text/load/load.h"
#include "engine/text/split/split_regex.h"
#include "engine/text/unicode/unicode.h"

#include <stdio.h>
#include <stdlib.h>

enum { WHERE_MAX = 64 };

/* A chain handler reads one component that is no Sequence. */
typedef int component_t(tokenizer_load_t *load, const json_t *value, const char *where);

/* Walks nested Sequences without recursion, in order. */
static int each_component(tokenizer_load_t *load, const json_t *value, const char *name,
                          const char *list_key, component_t *component) {
  const json_t *stack[LOAD_SEQUENCE_DEPTH_MAX + 1];
  unsigned depth = 0;
  stack[0] = value;
  for (;;) {
    const json_t *at = stack[depth];
    if (at == NULL) {
      if (depth == 0) return 0;
      depth--; /* the end of a Sequence; the root has no siblings */
      stack[depth] = depth == 0 ? NULL : json_next(stack[depth]);
      continue;
    }
    const json_t *type = load_field(at, "type");
    if (json_equals(type, "Sequence")) {
      const json_t *list = load_field(at, list_key);
      if (list == NULL || list->type != JSON_ARRAY)
        return load_fail(load, name, "a Sequence needs an array \"%s\"", list_key);
      if (depth == LOAD_SEQUENCE_DEPTH_MAX)
        return load_fail(load, name, "Sequences are nested deeper than %d",
                         LOAD_SEQUENCE_DEPTH_MAX);
      stack[++depth] = json_first(list);
      continue;
    }
    int code = component(load, at, name);
    if (code != 0) return code;
    stack[depth] = depth == 0 ? NULL : json_next(at);
  }
}

/* The pattern of Split or Replace: {"String": s} or {"Regex": s}. */
static const json_t *pattern_of(const json_t *value, bool *regex) {
  const json_t *pattern = load_field(value, "pattern");
  const json_t *string = load_field(pattern, "String");
  *regex = string == NULL;
  if (string == NULL) string = load_field(pattern, "Regex");
  return string != NULL && string->type == JSON_STRING ? string : NULL;
}

static bool keep_text(const json_t *value, char *out, unsigned *length) {
  return load_text(value, out, length, NORMALIZER_TEXT_MAX);
}

static int replace_component(tokenizer_load_t *load, const json_t *value, const char *where,
                             normalizer_step_t *step) {
  bool regex;
  char quoted[96];
  const json_t *pattern = pattern_of(value, &regex);
  step->kind = NORMALIZE_REPLACE;
  if (pattern != NULL && regex) {
    if (!json_equals(pattern, " {2,}"))
      return load_fail(load, where, "Replace: unknown regex \"%s\"", load_quote(quoted, pattern));
    step->kind = NORMALIZE_SPACES;
  }
  if (!keep_text(pattern, step->pattern, &step->pattern_length) || step->pattern_length == 0 ||
      !keep_text(load_field(value, "content"), step->content, &step->content_length))
    return load_fail(load, where, "Replace needs a pattern and a content of at most %d bytes",
                     NORMALIZER_TEXT_MAX);
  return 0;
}

static int precompiled_component(tokenizer_load_t *load, const json_t *value, const char *where,
                                 normalizer_step_t *step) {
  const json_t *blob = load_field(value, "precompiled_charsmap");
  char reason[CHARSMAP_REASON_MAX];
  if (blob == NULL || blob->type != JSON_STRING)
    return load_fail(load, where, "Precompiled needs a string \"precompiled_charsmap\"");
  step->kind = NORMALIZE_CHARSMAP;
  step->charsmap = charsmap_new(blob->text, blob->length, reason);
  if (step->charsmap != NULL) return 0;
  if (reason[0] == '\0') return load_no_memory(load);
  return load_fail(load, where, "Precompiled: precompiled_charsmap: %s", reason);
}

/* Without strip_accents the accents are stripped if the text is lower-cased. */
static int bert_component(tokenizer_load_t *load, const json_t *value, const char *where,
                          normalizer_step_t *step) {
  bert_rules_t *rules = &step->bert;
  step->kind = NORMALIZE_BERT;
  *rules = (bert_rules_t){.cleans = true, .splits_han = true, .lowers = true};
  if (!load_bool(load, value, "clean_text", where, &rules->cleans) ||
      !load_bool(load, value, "handle_chinese_chars", where, &rules->splits_han) ||
      !load_bool(load, value, "lowercase", where, &rules->lowers))
    return ERR_MODEL_MALFORMED;
  rules->strips = rules->lowers;
  return load_bool(load, value, "strip_accents", where, &rules->strips) ? 0 : ERR_MODEL_MALFORMED;
}

static int normalizer_component(tokenizer_load_t *load, const json_t *value, const char *where) {
  normalizer_t *normalizer = &load->tokenizer->normalizer;
  const json_t *type = load_field(value, "type");
  char quoted[96];
  int code = 0;
  if (normalizer->num_steps == NORMALIZER_STEPS_MAX)
    return load_fail(load, where, "more than %d steps", NORMALIZER_STEPS_MAX);
  normalizer_step_t *step = &normalizer->steps[normalizer->num_steps];
  if (json_equals(type, "NFC")) {
    step->kind = NORMALIZE_NFC;
  } else if (json_equals(type, "Precompiled")) {
    code = precompiled_component(load, value, where, step);
  } else if (json_equals(type, "Prepend")) {
    step->kind = NORMALIZE_PREPEND;
    if (!keep_text(load_field(value, "prepend"), step->content, &step->content_length))
      return load_fail(load, where, "Prepend needs a string \"prepend\" of at most %d bytes",
                       NORMALIZER_TEXT_MAX);
  } else if (json_equals(type, "Replace")) {
    code = replace_component(load, value, where, step);
  } else if (json_equals(type, "BertNormalizer")) {
    code = bert_component(load, value, where, step);
  } else if (json_equals(type, "Strip")) {
    step->kind = NORMALIZE_STRIP;
    if (!load_bool(load, value, "strip_left", where, &step->strip_left) ||
        !load_bool(load, value, "strip_right", where, &step->strip_right))
      return ERR_MODEL_MALFORMED;
  } else {
    return load_fail(load, where, "type \"%s\" is not supported", load_quote(quoted, type));
  }
  normalizer->num_steps += code == 0;
  return code;
}

int load_normalizer(tokenizer_load_t *load, const json_t *value) {
  normalizer_t *normalizer = &load->tokenizer->normalizer;
  normalizer->steps = calloc(NORMALIZER_STEPS_MAX, sizeof *normalizer->steps);
  if (normalizer->steps == NULL) return load_no_memory(load);
  if (value == NULL) return 0;
  return each_component(load, value, "normalizer", "normalizers", normalizer_component);
}

/* Takes the scanner's regex only when it succeeds. */
static int add_step(tokenizer_load_t *load, const char *where, const scanner_t *scanner,
                    split_behavior_t behavior, bool invert) {
  scanner_t made = *scanner;
  if (load->tokenizer->pretokenizer.byte_level && !scanner_map_bytes(&made))
    return load_fail(load, where, "this component is not supported after ByteLevel");
  pretokenizer_step_t *step = pretokenizer_add_step(&load->tokenizer->pretokenizer);
  if (step == NULL) return load_fail(load, where, "more than %d steps", PRETOKENIZER_STEPS_MAX);
  step->scanner = made, step->behavior = behavior, step->invert = invert;
  return 0;
}

static int add_change(tokenizer_load_t *load, const char *where, const char *text, size_t length,
                      prefix_scheme_t prefix, bool replace_spaces) {
  pretokenizer_phase_t *phase = pretokenizer_add_phase(&load->tokenizer->pretokenizer);
  if (phase == NULL) return load_fail(load, where, "too many components that change the text");
  if (load->tokenizer->pretokenizer.byte_level)
    return load_fail(load, where, "this component is not supported after ByteLevel");
  memcpy(phase->prefix_text, text, length);
  phase->prefix_length = (uint8_t)length;
  phase->prefix = prefix, phase->replace_spaces = replace_spaces;
  return 0;
}

static bool read_behavior(const json_t *value, split_behavior_t *out) {
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
  for (unsigned i = 0; i < ARRAY_LEN(names); i++)
    if (json_equals(value, names[i])) return *out = (split_behavior_t)i, true;
  return false;
}

static int split_component(tokenizer_load_t *load, const json_t *value, const char *where) {
  bool regex, invert = false;
  char quoted[96], reason[REGEX_REASON_MAX];
  scanner_t scanner;
  split_behavior_t behavior;
  const json_t *pattern = pattern_of(value, &regex);
  if (pattern == NULL) return load_fail(load, where, "Split needs a pattern");
  if (!regex && !scanner_literal(pattern->text, pattern->length, &scanner))
    return load_fail(load, where, "Split: unknown string \"%s\"", load_quote(quoted, pattern));
  if (!read_behavior(load_field(value, "behavior"), &behavior))
    return load_fail(load, where, "Split: unknown behavior \"%s\"",
                     load_quote(quoted, load_field(value, "behavior")));
  if (!load_bool(load, value, "invert", where, &invert)) return ERR_MODEL_MALFORMED;
  if (regex && !scanner_compile(pattern->text, pattern->length, &scanner) &&
      !regex_compile(pattern->text, pattern->length, &scanner, reason))
    return load_fail(load, where, "Split: regex \"%s\": %s", load_quote(quoted, pattern), reason);
  int code = add_step(load, where, &scanner, behavior, invert);
  if (code != 0 && regex) regex_free(scanner.regex);
  return code;
}

static int byte_level_component(tokenizer_load_t *load, const json_t *value, const char *where) {
  static const char r1[] =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  bool prefix = true, use_regex = true;
  scanner_t scanner;
  if (!load_bool(load, value, "add_prefix_space", where, &prefix) ||
      !load_bool(load, value, "use_regex", where, &use_regex))
    return ERR_MODEL_MALFORMED;
  if (load->tokenizer->pretokenizer.byte_level)
    return load_fail(load, where, "ByteLevel stands in the chain twice");
  int code = prefix ? add_change(load, where, " ", 1, PREFIX_ALWAYS, false) : 0;
  if (code == 0 && use_regex && scanner_compile(r1, sizeof r1 - 1, &scanner))
    code = add_step(load, where, &scanner, SPLIT_ISOLATED, false);
  load->tokenizer->pretokenizer.byte_level = true;
  return code;
}

/* "first" asks where in the raw text a piece begins. Refuses components that insert or remove text
 * before that place, because their effect on it is not tracked. */
static int check_first(tokenizer_load_t *load, const char *where, const char *mark, size_t length) {
  const pretokenizer_t *pretokenizer = &load->tokenizer->pretokenizer;
  const normalizer_t *normalizer = &load->tokenizer->normalizer;
  bool behind = pretokenizer->num_steps > 0 ||
                pretokenizer->phases[pretokenizer->num_phases - 1].prefix_length > 0;
  if (pretokenizer->num_phases > 1 || (behind && pretokenizer->phases[0].prefix_length > 0))
    return load_fail(load, where,
                     "Metaspace: prepend_scheme \"first\" is not supported behind a "
                     "component that changes the text");
  for (unsigned i = 0; i < normalizer->num_steps; i++) {
    const normalizer_step_t *step = &normalizer->steps[i];
    const char *content = step->content;
    bool single =
        step->content_length > 0 && utf8_length((uint8_t)content[0]) == step->content_length;
    bool marks = single && (content[0] == ' ' ||
                            (step->content_length == length && memcmp(content, mark, length) == 0));
    bool one_char = step->kind == NORMALIZE_REPLACE &&
                    utf8_length((uint8_t)step->pattern[0]) == step->pattern_length;
    bool replaces = step->kind == NORMALIZE_REPLACE || step->kind == NORMALIZE_SPACES;
    if (step->kind == NORMALIZE_PREPEND || (step->kind == NORMALIZE_STRIP && step->strip_left) ||
        ((step->kind == NORMALIZE_NFC || step->kind == NORMALIZE_CHARSMAP) && behind) ||
        step->kind == NORMALIZE_BERT || (replaces && !(one_char ? single : marks)))
      return load_fail(load, where,
                       "Metaspace: prepend_scheme \"first\" is not supported with a "
                       "normalizer that may move the start of the text");
  }
  return 0;
}

static int metaspace_component(tokenizer_load_t *load, const json_t *value, const char *where) {
  const json_t *mark = load_field(value, "replacement"),
               *scheme = load_field(value, "prepend_scheme");
  prefix_scheme_t prefix = PREFIX_ALWAYS;
  bool split = true, legacy = true;
  scanner_t scanner;
  if (mark == NULL || mark->type != JSON_STRING || mark->length == 0 || mark->length > 4 ||
      utf8_length((uint8_t)mark->text[0]) != mark->length)
    return load_fail(load, where, "Metaspace needs one character as \"replacement\"");
  if (!load_bool(load, value, "split", where, &split) ||
      !load_bool(load, value, "add_prefix_space", where, &legacy))
    return ERR_MODEL_MALFORMED;
  if (!legacy) prefix = PREFIX_NEVER;
  if (json_equals(scheme, "always"))
    prefix = PREFIX_ALWAYS;
  else if (json_equals(scheme, "first"))
    prefix = PREFIX_FIRST;
  else if (json_equals(scheme, "never"))
    prefix = PREFIX_NEVER;
  else if (scheme != NULL)
    return load_fail(load, where, "Metaspace: unknown prepend_scheme");
  int code = prefix == PREFIX_FIRST ? check_first(load, where, mark->text, mark->length) : 0;
  if (code == 0) code = add_change(load, where, mark->text, mark->length, prefix, true);
  if (code == 0 && split && scanner_literal(mark->text, mark->length, &scanner))
    code = add_step(load, where, &scanner, SPLIT_MERGED_WITH_NEXT, false);
  return code;
}

static int pretokenizer_component(tokenizer_load_t *load, const json_t *value, const char *where) {
  const json_t *type = load_field(value, "type");
  char quoted[96];
  scanner_t scanner;
  split_behavior_t behavior = SPLIT_ISOLATED;
  if (json_equals(type, "Split")) return split_component(load, value, where);
  if (json_equals(type, "ByteLevel")) return byte_level_component(load, value, where);
  if (json_equals(type, "Metaspace")) return metaspace_component(load, value, where);
  bool bert = json_equals(type, "BertPreTokenizer");
  if (bert || json_equals(type, "WhitespaceSplit")) {
    scanner_blanks(&scanner);
    int code = add_step(load, where, &scanner, SPLIT_REMOVED, false);
    scanner_punctuation(&scanner);
    return code == 0 && bert ? add_step(load, where, &scanner, SPLIT_ISOLATED, false) : code;
  }
  if (json_equals(type, "Digits")) {
    bool individual = false;
    if (!load_bool(load, value, "individual_digits", where, &individual))
      return ERR_MODEL_MALFORMED;
    scanner_digits(&scanner);
    return add_step(load, where, &scanner, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
  }
  if (json_equals(type, "Punctuation")) {
    const json_t *name = load_field(value, "behavior");
    if (name != NULL && !read_behavior(name, &behavior))
      return load_fail(load, where, "Punctuation: unknown behavior \"%s\"",
                       load_quote(quoted, name));
    scanner_punctuation(&scanner);
    return add_step(load, where, &scanner, behavior, false);
  }
  return load_fail(load, where, "type \"%s\" is not supported", load_quote(quoted, type));
}

int load_pretokenizer(tokenizer_load_t *load, const json_t *value) {
  if (!pretokenizer_init(&load->tokenizer->pretokenizer)) return load_no_memory(load);
  if (value == NULL) return 0;
  return each_component(load, value, "pre_tokenizer", "pretokenizers", pretokenizer_component);
}

int load_default_pretokenizer(tokenizer_load_t *load) {
  scanner_t scanner;
  static const char r1[] =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  if (!pretokenizer_init(&load->tokenizer->pretokenizer)) return load_no_memory(load);
  if (!scanner_compile(r1, sizeof r1 - 1, &scanner)) return load_no_memory(load);
  int code = add_step(load, "pre_tokenizer", &scanner, SPLIT_ISOLATED, false);
  load->tokenizer->pretokenizer.byte_level = true;
  return code;
}

int load_byte_pretokenizer(tokenizer_load_t *load, const char *regex, size_t length) {
  static const char where[] = "pattern";
  char quoted[96], reason[REGEX_REASON_MAX];
  scanner_t scanner = {0};
  if (!pretokenizer_init(&load->tokenizer->pretokenizer)) return load_no_memory(load);
  bool known = scanner_compile(regex, length, &scanner);
  if (!known && !regex_compile(regex, length, &scanner, reason))
    return load_fail(load, where, "\"%s\": %s", error_quote(quoted, sizeof quoted, regex, length),
                     reason);
  int code = add_step(load, where, &scanner, SPLIT_ISOLATED, false);
  if (code != 0 && !known) regex_free(scanner.regex);
  load->tokenizer->pretokenizer.byte_level = true;
  return code;
}
