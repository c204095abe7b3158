/* tokenizer_load.c: a model directory -> a tokenizer.
 *
 * The loading thread only. tokenizer.json holds the whole pipeline; without it vocab.json and
 * merges.txt make the GPT-2 pipeline. Everything is read, checked and compiled before the first
 * request; nothing is fetched, guessed from a model's name, or executed.
 */
#include "engine/text/load/load.h"

#include <stdlib.h>

static int read_json(load_t *load, const load_doc_t *file) {
  const json_t *root = json_root(file->doc);
  int rc = load_normalizer(load, load_field(root, "normalizer"));
  if (rc == 0) rc = load_pretokenizer(load, load_field(root, "pre_tokenizer"));
  load->t->bpe.byte_level = load->t->pretokenizer.byte_level;
  if (rc == 0) rc = load_model(load, load_field(root, "model"));
  if (rc == 0) rc = load_added_tokens(load, load_field(root, "added_tokens"));
  if (rc == 0) rc = load_post_processor(load, load_field(root, "post_processor"));
  if (rc == 0) rc = load_decoder(load, load_field(root, "decoder"));
  return rc;
}

/* vocab.json is open; merges.txt must be there too. */
static int read_legacy(load_t *load, const load_doc_t *vocab) {
  load_doc_t merges = {0};
  bool found = false;
  int rc = load_normalizer(load, NULL);
  if (rc == 0) rc = load_default_pretokenizer(load);
  load->t->bpe.byte_level = true;
  if (rc == 0) rc = load_read(load, "merges.txt", LOAD_TEXT_BYTES_MAX, &merges, &found);
  if (rc == 0 && !found)
    rc = error_set(load->error, ERR_MODEL_MISSING, NULL, "vocab.json is there, merges.txt is not");
  load->file = "vocab.json";
  if (rc == 0) rc = load_model_legacy(load, json_root(vocab->doc), &merges);
  if (rc == 0) rc = load_added_begin(load, 0);
  load->t->decoder.steps[0].kind = DECODE_BYTE_LEVEL;
  load->t->decoder.num_steps = 1;
  load_close(&merges);
  return rc;
}

static int read_files(load_t *load) {
  load_doc_t file = {0};
  bool found, legacy = false;
  int rc = load_open(load, "tokenizer.json", &file, &found);
  if (rc == 0 && found) {
    rc = read_json(load, &file);
  } else if (rc == 0) {
    legacy = true;
    rc = load_open(load, "vocab.json", &file, &found);
    if (rc == 0 && !found)
      rc = error_set(load->error, ERR_MODEL_MISSING, NULL,
                     "%.300s: neither tokenizer.json nor vocab.json with merges.txt", load->dir);
    if (rc == 0) rc = read_legacy(load, &file);
  }
  load_close(&file);
  if (rc == 0) rc = load_config(load, legacy);
  load->file = legacy ? "vocab.json" : "tokenizer.json";
  if (rc == 0) rc = load_added_finish(load);
  if (rc == 0 && decoder_compile(load->t) != 0) rc = load_no_memory(load);
  return rc;
}

int tokenizer_load(const char *dir, tokenizer_t **out, error_t *error) {
  load_t load = {.dir = dir, .file = "tokenizer.json", .error = error};
  load.t = calloc(1, sizeof *load.t);
  if (load.t == NULL) return load_no_memory(&load);
  load.t->bos_id = load.t->eos_id = -1;
  load.t->bpe.unk = NO_ID;
  int rc = read_files(&load);
  if (rc != 0) {
    tokenizer_free(load.t);
    return rc;
  }
  *out = load.t;
  return 0;
}
