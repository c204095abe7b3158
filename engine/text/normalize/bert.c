/* bert.c: the BertNormalizer: every character by itself becomes a few, or none.
 *
 * Runs on the tokenizing threads. The tables are measured on the reference library
 * (scripts/unicode_data/bert.py).
 */
#include "engine/base/unicode_case.h"
#include "engine/base/util.h"
#include "engine/text/normalize/normalizer.h"
#include "engine/text/unicode/unicode.h"

/* The ranges of the reference library, its gap before U+2B920 included. */
static bool is_han(uint32_t code) {
  static const uint32_t ranges[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0x2F800, 0x2FA1F}};
  for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
    if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
  return false;
}

static bool write_lower(uint32_t code, buffer_t *out) {
  uint32_t lower[3] = {unicode_bert_lower(code)};
  unsigned count = lower[0] != 0 ? 1 : char_case(code, CASE_LOWER, lower);
  bool ok = buffer_reserve(out, (size_t)4 * count);
  for (unsigned i = 0; ok && i < count; i++)
    out->length += (size_t)utf8_write(out->data + out->length, lower[i]);
  return ok;
}

static bool write_char(const bert_rules_t *rules, uint32_t code, buffer_t *out) {
  if (rules->strips && unicode_bert(code) & BERT_MARK) return true;
  if (rules->lowers) return write_lower(code, out);
  if (!buffer_reserve(out, 4)) return false;
  out->length += (size_t)utf8_write(out->data + out->length, code);
  return true;
}

/* A character that is not ASCII. */
static bool write_other(const bert_rules_t *rules, uint32_t code, buffer_t *out) {
  uint32_t parts[4] = {code};
  unsigned count = 1;
  bool han = rules->splits_han && is_han(code), ok = true;
  if (rules->cleans && unicode_bert(code) & BERT_CONTROL) return true;
  if (rules->cleans && unicode_class(code) & CLASS_SPACE) return buffer_append(out, " ", 1);
  if (han) ok = buffer_append(out, " ", 1);
  if (rules->strips) count = nfc_decompose(code, parts);
  for (unsigned i = 0; ok && i < count; i++) ok = write_char(rules, parts[i], out);
  return ok && (!han || buffer_append(out, " ", 1));
}

bool bert_append(const bert_rules_t *rules, const uint8_t *text, size_t length, buffer_t *out,
                 bool *changed) {
  *changed = true;
  if (!buffer_reserve(out, length)) return false;
  for (size_t at = 0; at < length;) {
    uint8_t byte = text[at];
    unsigned n = 1;
    if (byte < 0x80) {
      bool control = (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
      at++;
      if (rules->cleans && control) continue;
      if (rules->cleans && byte < ' ') byte = ' ';
      if (rules->lowers && byte >= 'A' && byte <= 'Z') byte |= 0x20;
      if (!buffer_append(out, &byte, 1)) return false;
      continue;
    }
    if (!write_other(rules, utf8_read(text + at, &n), out)) return false;
    at += n;
  }
  return true;
}
