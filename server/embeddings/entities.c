/* entities.c: labels of tokens -> the parts of a text that a classifier of tokens names.
 *
 * Stage 9 of 9. Loop thread. Reference: the token-classification pipeline of transformers.
 *
 *  1. The scores of each token become probabilities. Tokens of the post-processor are left out.
 *  2. With first, average and max the tokens of a word are one unit, labelled by its first token,
 * by the mean of its tokens, or by that of its tokens that has the highest score; else each token
 *     is a unit.
 *  3. But for none, units that stand side by side are one entity if their labels are the same
 *     behind B- and I-, and the later one has no B-. Its score is their mean.
 *  4. What is labelled O is no entity.
 */
#include "server/embeddings/entities.h"

#include "server/completion/places.h"

#include <string.h>

typedef struct tagged {
  int32_t first, last; /* tokens */
  int32_t label;
  double score;
} tagged_t;

typedef struct label_part {
  const char *text;
  size_t length;
  bool begins; /* the label has B- */
} label_part_t;

static double *row_of(const input_t *input, int32_t token) {
  return input->request.pooled + (size_t)token * (size_t)values_count(input->completion);
}

static bool is_special(const input_t *input, int32_t token) {
  if (input->places != NULL) return input->places[token].special;
  const int32_t id = input->request.prompt_ids[token];
  return (tokenizer_flags(input->completion->tokenizer, id) & TOKEN_SPECIAL) != 0;
}

static int32_t best_of(const double *row, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; i++)
    if (row[i] > row[best]) best = i;
  return best;
}

/* The first token from `token` on that is not special, or the number of tokens. */
static int32_t next_token(const input_t *input, int32_t token) {
  while (token < values_rows(input) && is_special(input, token)) token++;
  return token;
}

/* Labels the unit: its rows are probabilities by now. The first of them is overwritten. */
static void label_unit(const input_t *input, aggregation_t aggregation, tagged_t *unit) {
  const int32_t count = values_count(input->completion);
  double *row = row_of(input, unit->first);
  int32_t tokens = 1;
  for (int32_t t = next_token(input, unit->first + 1); t <= unit->last;
       t = next_token(input, t + 1), tokens++) {
    double *other = row_of(input, t);
    if (aggregation == AGGREGATE_AVERAGE) {
      for (int32_t i = 0; i < count; i++) row[i] += other[i];
    } else if (aggregation == AGGREGATE_MAX &&
               other[best_of(other, count)] > row[best_of(row, count)]) {
      row = other;
    }
  }
  unit->label = best_of(row, count);
  unit->score = row[unit->label] / (aggregation == AGGREGATE_AVERAGE ? tokens : 1);
}

/* The unit that begins at or behind `token`. Returns false at the end. */
static bool next_unit(const input_t *input, int32_t token, tagged_t *unit) {
  const aggregation_t aggregation = input->completion->params.embedding.aggregation;
  const bool words = aggregation >= AGGREGATE_FIRST && input->places != NULL;
  const int32_t end = values_rows(input);
  unit->first = next_token(input, token);
  if (unit->first == end) return false;
  unit->last = unit->first;
  values_finish(input, unit->first);
  for (int32_t t = next_token(input, unit->first + 1); words && t < end && input->places[t].inner;
       t = next_token(input, t + 1)) {
    values_finish(input, t);
    unit->last = t;
  }
  label_unit(input, aggregation, unit);
  return true;
}

/* What stands behind B- and I-. */
static label_part_t part_of(const input_t *input, int32_t label) {
  const char *text = input->completion->info->embedding->labels[label];
  const bool begins = strncmp(text, "B-", 2) == 0, inside = strncmp(text, "I-", 2) == 0;
  if (begins || inside) text += 2;
  return (label_part_t){text, strlen(text), begins};
}

static bool goes_on(const input_t *input, const tagged_t *entity, const tagged_t *next) {
  const label_part_t a = part_of(input, entity->label), b = part_of(input, next->label);
  return !b.begins && a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

static void print_place(buffer_t *out, const input_t *input, const tagged_t *entity) {
  if (input->places == NULL) {
    buffer_text(out, ",\"word\":null,\"start\":null,\"end\":null}");
    return;
  }
  const token_place_t *first = &input->places[entity->first], *last = &input->places[entity->last];
  const size_t end = last->end > first->begin ? last->end : first->begin;
  const prompt_t *text = &input->completion->params.prompts[input - input->completion->inputs];
  buffer_text(out, ",\"word\":");
  buffer_quote(out, text->text + first->begin, end - first->begin);
  buffer_text(out, ",\"start\":");
  buffer_uint(out, first->first_char);
  buffer_text(out, ",\"end\":");
  buffer_uint(out, last->end_char);
  buffer_char(out, '}');
}

/* Prints the entity unless it is none. Returns whether it did. */
static bool print_entity(buffer_t *out, const input_t *input, const tagged_t *entity, bool comma) {
  const bool each = input->completion->params.embedding.aggregation == AGGREGATE_NONE;
  const char *whole = input->completion->info->embedding->labels[entity->label], *name = whole;
  const char *dash = strchr(whole, '-');
  if (!each && dash != NULL) name = dash + 1;
  if (strcmp(name, "O") == 0) return false;
  buffer_text(out, comma ? ",{\"" : "{\"");
  buffer_text(out, each ? "entity\":" : "entity_group\":");
  buffer_quote(out, name, strlen(name));
  buffer_text(out, ",\"score\":");
  buffer_float(out, (float)entity->score);
  if (each) {
    buffer_text(out, ",\"index\":");
    buffer_int(out, entity->first);
  }
  print_place(out, input, entity);
  return true;
}

void entities_print(buffer_t *out, const input_t *input) {
  const bool each = input->completion->params.embedding.aggregation == AGGREGATE_NONE;
  tagged_t entity, next;
  bool printed = false, more = next_unit(input, 0, &entity);
  while (more) {
    int32_t units = 1;
    more = next_unit(input, entity.last + 1, &next);
    for (; more && !each && goes_on(input, &entity, &next);
         more = next_unit(input, entity.last + 1, &next), units++) {
      entity.last = next.last;
      entity.score += next.score;
    }
    entity.score /= units;
    printed = print_entity(out, input, &entity, printed) || printed;
    entity = next;
  }
}

bool entities_keep(completion_t *completion) {
  params_t *params = &completion->params;
  size_t bytes = 0;
  for (int32_t i = 0; i < params->num_prompts; i++) bytes += params->prompts[i].length;
  if (!params->embedding.wants_places || bytes == 0) return true;
  char *copy = arena_calloc(&completion->arena, bytes, 1);
  for (int32_t i = 0; copy != NULL && i < params->num_prompts; i++) {
    prompt_t *text = &params->prompts[i];
    if (text->text == NULL) continue;
    memcpy(copy, text->text, text->length);
    text->text = copy;
    copy += text->length;
  }
  return copy != NULL;
}
