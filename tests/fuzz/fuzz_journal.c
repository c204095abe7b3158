/* fuzz_journal.c: a file of --journal, whole; or records alone, put into a file whose sums hold;
 * and either as a recipe.
 *
 * Records come as in a block: a varint with the bytes of each. All that `inferd replay` reads of a
 * journal before it loads a model is read, and its pictures are drawn.
 */
#include "engine/base/hash.h"
#include "engine/journal/head.h"
#include "engine/journal/log.h"
#include "server/replay/replay.h"
#include "tests/fuzz/targets.h"

#include <limits.h>
#include <stdlib.h>

static const char TEXT[] = "max_num_seqs 4\nnum_blocks 40\nmax_model_len 512\nweights 0123\n";

static void set_32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* A journal of one block, with these records. */
static uint8_t *frame(const uint8_t *data, size_t size, size_t *length) {
  const size_t text = sizeof TEXT - 1, records = size & 0xffff;
  *length = JOURNAL_HEAD_BYTES + JOURNAL_BLOCK_HEAD_BYTES + records;
  uint8_t *file = calloc(1, *length), *block = file + JOURNAL_HEAD_BYTES;
  if (file == NULL) abort();
  memcpy(file, JOURNAL_MAGIC, sizeof JOURNAL_MAGIC);
  set_32(file + 16, JOURNAL_VERSION);
  set_32(file + 20, fnv_32(FNV_32_BASIS, TEXT, text));
  set_32(file + 24, JOURNAL_BYTES_MIN / JOURNAL_REGIONS);
  set_32(file + 32, JOURNAL_REGIONS);
  set_32(file + 36, (uint32_t)text);
  memcpy(file + 40, TEXT, text);
  set_32(block + 4, (uint32_t)records);
  memcpy(block + JOURNAL_BLOCK_HEAD_BYTES, data, records);
  set_32(block, fnv_32(FNV_32_BASIS, block + 4, JOURNAL_BLOCK_HEAD_BYTES - 4 + records));
  return file;
}

static void look(const journal_log_t *log) {
  static char room[4 * PATH_MAX];
  engine_options_t options = {0};
  inferd_error_t error = {0};
  if (head_read(log->text, &options, room, sizeof room, &error) != 0 && error.message[0] == 0)
    abort();
  for (size_t i = 0; i < log->num_answers; i++) {
    const kept_answer_t *answer = &log->answers[i];
    if (answer->lost == NULL && answer->kept.request.num_prompt_tokens < 1) abort();
    if (answer->num_choices < 1) abort();
  }
  FILE *out = fopen("/dev/null", "w");
  if (out == NULL || !timeline_svg(log, out) || !timeline_trace(log, out)) abort();
  fclose(out);
}

static void try_recipe(const uint8_t *data, size_t size) {
  journal_log_t *log = NULL;
  inferd_error_t error = {0};
  if (journal_parse_recipe(data, size, &log, &error) == 0)
    look(log);
  else if (error.message[0] == 0)
    abort();
  journal_log_free(log);
}

void fuzz_journal(const uint8_t *data, size_t size) {
  const bool whole = size >= sizeof JOURNAL_MAGIC && memcmp(data, JOURNAL_MAGIC, 8) == 0;
  size_t length = size;
  uint8_t *file = whole ? malloc(size) : frame(data, size, &length);
  journal_log_t *log = NULL;
  inferd_error_t error = {0};
  if (file == NULL) abort();
  try_recipe(data, size);
  if (whole) memcpy(file, data, size);
  if (journal_parse(file, length, &log, &error) != 0) {
    if (error.message[0] == 0) abort();
    return;
  }
  look(log);
  journal_log_free(log);
}
