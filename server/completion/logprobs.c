/* logprobs.c: prints the logprobs of a choice while its tokens arrive.
 *
 * Part of stage 9 of 9. Loop thread. Never allocates per token once its buffers have grown.
 */
#include "server/completion/logprobs.h"

#include "engine/base/hash.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"

#include <math.h>
#include <string.h>

static const float LOGPROB_FLOOR = -9999.0f; /* stands for minus infinity */

static void print_logprob(buffer_t *out, float value) {
  if (!(value > LOGPROB_FLOOR)) value = LOGPROB_FLOOR;
  if (!(value < 0)) value = 0; /* also makes 0 of -0, the logprob of a certain token */
  buffer_float(out, value);
}

void token_quote(buffer_t *out, const token_style_t *style, int32_t id) {
  if (style->as_ids) {
    buffer_text(out, "\"token_id:");
    buffer_int(out, id);
    buffer_char(out, '"');
    return;
  }
  size_t length;
  const char *bytes = tokenizer_bytes(style->tokenizer, id, &length);
  buffer_quote(out, bytes, length);
}

/* One alternative of a position, to be printed in an object whose keys are token strings. */
typedef struct alternative {
  int32_t id;
  float logprob;
  bool dropped;      /* not printed: another alternative has the same string */
  size_t at, length; /* its string among the rendered keys */
} alternative_t;

enum { ALTERNATIVES_MAX = 1 + SAMPLE_TOP_MAX };

/* Lists the sampled token first, then the best ones, then the extra ids; each id once. */
static int collect(const logprob_entry_t *entry, alternative_t *list) {
  int count = 0;
  list[count++] = (alternative_t){.id = entry->id, .logprob = entry->logprob};
  for (int32_t i = 0; i < entry->num_top; i++) {
    if (i >= entry->num_best && i < entry->num_asked) continue;
    if (count == ALTERNATIVES_MAX) break;
    bool known = false;
    for (int j = 0; j < count; j++) known = known || list[j].id == entry->top[i].id;
    if (known) continue;
    list[count++] = (alternative_t){.id = entry->top[i].id, .logprob = entry->top[i].logprob};
  }
  return count;
}

/* Two ids may have the same string, since parts of characters print as U+FFFD. Of these the sampled
 * token is kept, else the likelier one, else the first. */
static void drop_equal_strings(alternative_t *list, int count, const char *keys) {
  for (int i = 1; i < count; i++) {
    for (int j = 0; j < i; j++) {
      alternative_t *left = &list[j], *right = &list[i];
      if (left->dropped || left->length != right->length) continue;
      if (memcmp(keys + left->at, keys + right->at, left->length) != 0) continue;
      if (j != 0 && right->logprob > left->logprob) {
        left->dropped = true;
      } else {
        right->dropped = true;
      }
      break;
    }
  }
}

/* Appends {"token":logprob,...}. The keys are first rendered after the end of the buffer, to
 * compare them. Then the object is printed after them and moved down over them. */
static void print_top(buffer_t *out, const token_style_t *style, const logprob_entry_t *entry) {
  alternative_t list[ALTERNATIVES_MAX];
  int count = collect(entry, list);
  size_t start = out->length;
  for (int i = 0; i < count; i++) {
    list[i].at = out->length;
    token_quote(out, style, list[i].id);
    list[i].length = out->length - list[i].at;
  }
  size_t keys_length = out->length - start;
  if (out->failed || !buffer_reserve(out, keys_length + (size_t)count * 32 + 2)) return;
  drop_equal_strings(list, count, out->data);
  /* The object is printed after the keys, then moved down over them. */
  size_t object = out->length;
  buffer_char(out, '{');
  for (int i = 0; i < count; i++) {
    if (list[i].dropped) continue;
    if (out->length != object + 1) buffer_char(out, ',');
    if (!buffer_reserve(out, list[i].length)) return;
    buffer_append(out, out->data + list[i].at, list[i].length);
    buffer_char(out, ':');
    print_logprob(out, list[i].logprob);
  }
  buffer_char(out, '}');
  if (out->failed) return;
  memmove(out->data + start, out->data + object, out->length - object);
  out->length -= object - start;
}

/* ---- alternatives that are printed later ---- */

uint32_t seen_tokens_slots(int32_t count) {
  uint32_t slots = 1;
  while (slots < 2 * ((uint32_t)count + 1)) slots *= 2;
  return slots;
}

/* Index 0 is the sampled token; the others follow. */
static int32_t id_of(const score_row_t *row, size_t index) {
  return index == 0 ? row->entry.id : row->entry.top[index - 1].id;
}

/* Returns true if an alternative before `index` has the string that ends at out->length and begins
 * at `begin`; else remembers it. The sampled token comes first, then the likelier ones, so that the
 * same strings are kept as by drop_equal_strings. */
static bool was_seen(buffer_t *out, const score_row_t *row, size_t index, size_t begin) {
  seen_tokens_t *seen = row->seen;
  size_t length = out->length - begin;
  if (index == 0) memset(seen->slots, 0, ((size_t)seen->mask + 1) * sizeof *seen->slots);
  uint64_t hash = hash_bytes((const uint8_t *)out->data + begin, length);
  for (uint32_t at = (uint32_t)hash & seen->mask;; at = (at + 1) & seen->mask) {
    if (seen->slots[at] == 0) {
      seen->slots[at] = (uint32_t)index + 1;
      return false;
    }
    size_t end = out->length;
    token_quote(out, &row->style, id_of(row, seen->slots[at] - 1));
    bool same = !out->failed && out->length - end == length &&
                memcmp(out->data + begin, out->data + end, length) == 0;
    out->length = end;
    if (same) return true;
  }
}

/* One member of {"token":logprob,...}. */
static void print_member(buffer_t *out, const void *list, size_t index) {
  const score_row_t *row = list;
  if (index > 0 && id_of(row, index) == row->entry.id) return;
  size_t start = out->length;
  if (index > 0) buffer_char(out, ',');
  size_t begin = out->length;
  token_quote(out, &row->style, id_of(row, index));
  if (out->failed) return;
  if (!row->style.as_ids && was_seen(out, row, index, begin)) {
    out->length = start;
    return;
  }
  buffer_char(out, ':');
  print_logprob(out, index == 0 ? row->entry.logprob : row->entry.top[index - 1].logprob);
}

static void add_gap(buffer_t *gaps, const buffer_t *text, const score_row_t *row, cord_item_t *item,
                    size_t count) {
  gap_t gap = {.at = text->length, .row = row, .item = item, .count = count};
  buffer_append(gaps, &gap, sizeof gap);
}

/* Items of a row whose list begins with the sampled token. */
static size_t count_items(const logprob_entry_t *entry) {
  return 1 + (size_t)MIN(entry->num_top, entry->num_best);
}

/* An empty buffer has no data to point into. */
static void put_part(cord_t *out, const buffer_t *text, size_t from, size_t end) {
  if (end > from) cord_bytes(out, text->data + from, end - from);
}

void logprob_splice(cord_t *out, const buffer_t *text, const buffer_t *gaps) {
  const gap_t *gap = (const gap_t *)(const void *)gaps->data;
  size_t count = gaps->length / sizeof *gap, from = 0;
  for (size_t i = 0; i < count; i++) {
    put_part(out, text, from, gap[i].at);
    cord_joined(out, gap[i].item, gap[i].row, gap[i].count);
    from = gap[i].at;
  }
  put_part(out, text, from, text->length);
}

/* ---- positions ---- */

void logprob_text_add(logprob_text_t *text, const token_style_t *style,
                      const logprob_entry_t *entry, score_row_t *row) {
  if (text->count++ != 0) {
    buffer_char(&text->offsets, ',');
    buffer_char(&text->values, ',');
    buffer_char(&text->tokens, ',');
    buffer_char(&text->tops, ',');
  }
  buffer_int(&text->offsets, entry->offset);
  token_quote(&text->tokens, style, entry->id);
  if (!entry->has_logprob) {
    buffer_text(&text->values, "null");
    buffer_text(&text->tops, "null");
    return;
  }
  print_logprob(&text->values, entry->logprob);
  if (row == NULL) {
    print_top(&text->tops, style, entry);
    return;
  }
  *row = (score_row_t){.entry = *entry, .style = *style, .seen = row->seen};
  buffer_char(&text->tops, '{');
  add_gap(&text->gaps, &text->tops, row, print_member, count_items(entry));
  buffer_char(&text->tops, '}');
}

/* "token":"..","logprob":f,"bytes":[..]: `bytes` is exact where `token` shows U+FFFD. */
static void print_chat_token(buffer_t *out, const token_style_t *style, int32_t id, float logprob) {
  size_t length;
  const char *bytes = tokenizer_bytes(style->tokenizer, id, &length);
  buffer_text(out, "\"token\":");
  token_quote(out, style, id);
  buffer_text(out, ",\"logprob\":");
  print_logprob(out, logprob);
  buffer_text(out, ",\"bytes\":[");
  for (size_t i = 0; i < length; i++) {
    if (i != 0) buffer_char(out, ',');
    buffer_int(out, (uint8_t)bytes[i]);
  }
  buffer_char(out, ']');
}

/* Returns true if the alternatives are named ids (logprob_token_ids) without the sampled one. */
static bool lacks_sampled(const logprob_entry_t *entry) {
  if (entry->num_best > 0 || entry->num_top <= entry->num_asked) return false;
  for (int32_t i = entry->num_asked; i < entry->num_top; i++) {
    if (entry->top[i].id == entry->id) return false;
  }
  return true;
}

static void print_chat_alternative(buffer_t *out, const token_style_t *style, int32_t id,
                                   float logprob) {
  if (out->length > 0 && out->data[out->length - 1] != '[') buffer_char(out, ',');
  buffer_char(out, '{');
  print_chat_token(out, style, id, logprob);
  buffer_char(out, '}');
}

static void print_listed(buffer_t *out, const void *list, size_t index) {
  const score_row_t *row = list;
  const token_logprob_t *top = &row->entry.top[index];
  buffer_text(out, index > 0 ? ",{" : "{");
  print_chat_token(out, &row->style, top->id, top->logprob);
  buffer_char(out, '}');
}

void logprob_text_add_chat(logprob_text_t *text, const token_style_t *style,
                           const logprob_entry_t *entry, score_row_t *row) {
  buffer_t *out = &text->tokens;
  if (text->count++ != 0) buffer_char(out, ',');
  buffer_char(out, '{');
  print_chat_token(out, style, entry->id, entry->logprob);
  buffer_text(out, ",\"top_logprobs\":[");
  if (row != NULL) {
    *row = (score_row_t){.entry = *entry, .style = *style, .seen = row->seen};
    add_gap(&text->gaps, out, row, print_listed, count_items(entry) - 1);
    buffer_text(out, "]}");
    return;
  }
  if (lacks_sampled(entry)) print_chat_alternative(out, style, entry->id, entry->logprob);
  for (int32_t i = 0; i < entry->num_top; i++) {
    if (i >= entry->num_best && i < entry->num_asked) continue;
    print_chat_alternative(out, style, entry->top[i].id, entry->top[i].logprob);
  }
  buffer_text(out, "]}");
}

void logprob_text_chat_list(const logprob_text_t *text, cord_t *out) {
  logprob_splice(out, &text->tokens, &text->gaps);
}

void logprob_text_chat_object(const logprob_text_t *text, cord_t *out) {
  buffer_text(&out->own, "{\"content\":[");
  logprob_text_chat_list(text, out);
  buffer_text(&out->own, "],\"refusal\":null}");
}

void logprob_text_clear(logprob_text_t *text) {
  text->count = 0;
  buffer_clear(&text->offsets);
  buffer_clear(&text->values);
  buffer_clear(&text->tokens);
  buffer_clear(&text->tops);
  buffer_clear(&text->gaps);
}

void logprob_text_free(logprob_text_t *text) {
  buffer_free(&text->offsets);
  buffer_free(&text->values);
  buffer_free(&text->tokens);
  buffer_free(&text->tops);
  buffer_free(&text->gaps);
}

bool logprob_text_failed(const logprob_text_t *text) {
  return text->offsets.failed || text->values.failed || text->tokens.failed || text->tops.failed ||
         text->gaps.failed;
}

size_t logprob_text_held(const logprob_text_t *text) {
  return text->offsets.capacity + text->values.capacity + text->tokens.capacity +
         text->tops.capacity + text->gaps.capacity;
}

static void print_joined(const char *name, const buffer_t *first, const buffer_t *second,
                         cord_t *out) {
  buffer_text(&out->own, name);
  cord_bytes(out, first->data, first->length);
  if (first->length > 0 && second->length > 0) buffer_char(&out->own, ',');
  cord_bytes(out, second->data, second->length);
}

void logprob_text_object(const logprob_text_t *first, const logprob_text_t *text, cord_t *out) {
  print_joined("{\"text_offset\":[", &first->offsets, &text->offsets, out);
  print_joined("],\"token_logprobs\":[", &first->values, &text->values, out);
  print_joined("],\"tokens\":[", &first->tokens, &text->tokens, out);
  buffer_text(&out->own, "],\"top_logprobs\":[");
  logprob_splice(out, &first->tops, &first->gaps);
  if (first->count > 0 && text->count > 0) buffer_char(&out->own, ',');
  logprob_splice(out, &text->tops, &text->gaps);
  buffer_text(&out->own, "]}");
}

static void print_ranked(buffer_t *out, const token_style_t *style, int32_t id, float logprob,
                         int32_t rank) {
  buffer_char(out, '"');
  buffer_int(out, id);
  buffer_text(out, "\":{\"logprob\":");
  print_logprob(out, logprob);
  buffer_text(out, ",\"rank\":");
  buffer_int(out, rank);
  buffer_text(out, ",\"decoded_token\":");
  token_quote(out, style, id);
  buffer_char(out, '}');
}

/* One member of the object of a prompt token. */
static void print_ranked_member(buffer_t *out, const void *list, size_t index) {
  const score_row_t *row = list;
  const logprob_entry_t *entry = &row->entry;
  if (index == 0) {
    print_ranked(out, &row->style, entry->id, entry->logprob, entry->rank);
    return;
  }
  const token_logprob_t *top = &entry->top[index - 1];
  if (top->id == entry->id) return;
  buffer_char(out, ',');
  print_ranked(out, &row->style, top->id, top->logprob, (int32_t)index);
}

void prompt_logprob_add(buffer_t *out, buffer_t *gaps, const token_style_t *style,
                        const logprob_entry_t *entry, score_row_t *row) {
  score_row_t now = {.entry = *entry, .style = *style};
  size_t count = count_items(entry);
  buffer_char(out, '{');
  if (row != NULL) {
    now.seen = row->seen;
    *row = now;
    add_gap(gaps, out, row, print_ranked_member, count);
  } else {
    for (size_t i = 0; i < count; i++) print_ranked_member(out, &now, i);
  }
  buffer_char(out, '}');
}

void text_offset_bytes(text_offset_t *offset, const char *bytes, size_t length) {
  char joined[8];
  while (length > 0) {
    const char *at = bytes;
    size_t room = length;
    /* An unfinished sequence is decoded together with the bytes that follow. */
    if (offset->num_pending > 0) {
      size_t take = MIN(length, 4);
      memcpy(joined, offset->pending, offset->num_pending);
      memcpy(joined + offset->num_pending, bytes, take);
      at = joined;
      room = offset->num_pending + take;
    }
    int span = utf8_span(at, room);
    size_t used = (size_t)(span > 0 ? span : -span);
    if (span < 0 && used == room && room < 4) { /* the sequence may continue in the next piece */
      memcpy(offset->pending, at, room);
      offset->num_pending = (uint8_t)room;
      return;
    }
    offset->code_points++;
    if (used < offset->num_pending) { /* does not happen: the pending bytes are a valid start */
      used = offset->num_pending;
    }
    bytes += used - offset->num_pending;
    length -= used - offset->num_pending;
    offset->num_pending = 0;
  }
}

int64_t text_offset_before(const text_offset_t *offset, const token_style_t *style, int32_t id) {
  char joined[8];
  size_t length, pending = offset->num_pending;
  const char *bytes = tokenizer_bytes(style->tokenizer, id, &length);
  if (pending == 0) return offset->code_points;
  size_t take = MIN(length, 4);
  memcpy(joined, offset->pending, pending);
  if (take > 0) memcpy(joined + pending, bytes, take);
  int span = utf8_span(joined, pending + take);
  bool continues = take == 0 || span > 0 || (size_t)-span > pending;
  return continues ? offset->code_points : offset->code_points + 1;
}

void text_offset_token(text_offset_t *offset, const token_style_t *style, int32_t id) {
  size_t length;
  if (style->skip_special_tokens && (tokenizer_flags(style->tokenizer, id) & TOKEN_SPECIAL) != 0) {
    return;
  }
  const char *bytes = tokenizer_bytes(style->tokenizer, id, &length);
  text_offset_bytes(offset, bytes, length);
}

void text_offset_prompt(text_offset_t *offset, const token_style_t *style, int32_t id,
                        const char *prompt, size_t length) {
  size_t count;
  const char *bytes = tokenizer_bytes(style->tokenizer, id, &count);
  size_t left = length - offset->walked;
  bool special = (tokenizer_flags(style->tokenizer, id) & TOKEN_SPECIAL) != 0;
  if (count == 0) return;
  bool matches = count <= left && memcmp(bytes, prompt + offset->walked, count) == 0;
  if (!matches && special) return;
  if (!matches && bytes[0] == ' ' && count - 1 <= left &&
      memcmp(bytes + 1, prompt + offset->walked, count - 1) == 0) {
    count--;
  }
  if (count > left) count = left;
  text_offset_bytes(offset, prompt + offset->walked, count);
  offset->walked += count;
}
