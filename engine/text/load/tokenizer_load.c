/* tokenizer_load.c: a model directory or a GGUF file -> a tokenizer.
 *
 * The loading thread only. tokenizer.json holds the whole pipeline; without it vocab.json and
 * merges.txt make the GPT-2 pipeline. Without both, tokenizer.model or tekken.json is read. A GGUF
 * file has a vocabulary of its own. All files are read, checked and compiled before the first
 * request. Nothing is downloaded, guessed from the name of a model, or executed.
 */
#include "engine/file/gguf.h"
#include "engine/text/load/load.h"

#include <limits.h>
#include <stdlib.h>

static int read_json(tokenizer_load_t *load, const load_doc_t *file) {
  const json_t *root = json_root(file->doc);
  int code = load_normalizer(load, load_field(root, "normalizer"));
  if (code == 0) code = load_pretokenizer(load, load_field(root, "pre_tokenizer"));
  load->tokenizer->bpe.byte_level = load->tokenizer->pretokenizer.byte_level;
  if (code == 0) code = load_model(load, load_field(root, "model"));
  if (code == 0) code = load_added_tokens(load, load_field(root, "added_tokens"));
  if (code == 0) code = load_post_processor(load, load_field(root, "post_processor"));
  if (code == 0) code = load_decoder(load, load_field(root, "decoder"));
  return code;
}

/* vocab.json is open; merges.txt must be there too. */
static int read_legacy(tokenizer_load_t *load, const load_doc_t *vocab) {
  load_doc_t merges = {0};
  bool found = false;
  int code = load_normalizer(load, NULL);
  if (code == 0) code = load_default_pretokenizer(load);
  load->tokenizer->bpe.byte_level = true;
  if (code == 0) code = load_read(load, "merges.txt", LOAD_TEXT_BYTES_MAX, &merges, &found);
  if (code == 0 && !found)
    code =
        error_set(load->error, ERR_MODEL_MISSING, NULL, "vocab.json is there, merges.txt is not");
  load->file = "vocab.json";
  if (code == 0) code = load_model_legacy(load, json_root(vocab->doc), &merges);
  if (code == 0) code = load_added_begin(load, 0);
  load->tokenizer->decoder.steps[0].kind = DECODE_BYTE_LEVEL;
  load->tokenizer->decoder.num_steps = 1;
  load_close(&merges);
  return code;
}

static int finish(tokenizer_load_t *load) {
  int code = load_added_finish(load);
  return code == 0 && decoder_compile(load->tokenizer) != 0 ? load_no_memory(load) : code;
}

/* Finishes a tokenizer that comes from another file than tokenizer.json: such files say which
 * tokens begin and end a text, and a text begins with BOS unless the configuration says no. */
static int take_ends(tokenizer_load_t *load, load_ends_t ends) {
  tokenizer_t *tokenizer = load->tokenizer;
  load_doc_t config = {0};
  bool found, add = true;
  int code = load_open(load, "tokenizer_config.json", &config, &found);
  if (code == 0 && found &&
      !load_bool(load, json_root(config.doc), "add_bos_token", "config", &add))
    code = ERR_MODEL_MALFORMED;
  load_close(&config);
  if (code == 0 && add && ends.bos >= 0 && ends.bos < (int32_t)tokenizer->num_ids)
    tokenizer->prefix[tokenizer->num_prefix++] = ends.bos;
  tokenizer->bos_id = ends.bos;
  tokenizer->eos_id = ends.eos;
  return code;
}

/* Reads the first file that is there; *legacy: vocab.json with merges.txt. */
static int read_first(tokenizer_load_t *load, bool *legacy, load_ends_t *ends) {
  load_doc_t file = {0};
  bool found;
  int code = load_open(load, "tokenizer.json", &file, &found);
  if (code == 0 && found) code = read_json(load, &file);
  if (code == 0 && !found) {
    code = load_open(load, "vocab.json", &file, &found);
    *legacy = found;
    if (code == 0 && found) code = read_legacy(load, &file);
  }
  load_close(&file);
  if (code == 0 && !found) code = load_spm(load, ends, &found);
  if (code == 0 && !found) code = load_tekken(load, ends, &found);
  if (code != 0 || found) return code;
  return error_set(load->error, ERR_MODEL_MISSING, NULL,
                   "%.260s: no tokenizer.json, no vocab.json with merges.txt, no tokenizer.model, "
                   "no tekken.json; --skip-tokenizer-init serves token ids without a tokenizer",
                   load->dir);
}

static int read_files(tokenizer_load_t *load) {
  load_ends_t ends = {-1, -1};
  bool legacy = false;
  int code = read_first(load, &legacy, &ends);
  bool other = ends.bos >= 0 || ends.eos >= 0;
  if (code == 0 && other) code = take_ends(load, ends);
  if (code == 0) code = load_config(load, legacy);
  if (other && load->tokenizer->bos_id < 0) load->tokenizer->bos_id = ends.bos;
  if (other && load->tokenizer->eos_id < 0) load->tokenizer->eos_id = ends.eos;
  load->file = legacy ? "vocab.json" : "tokenizer.json";
  return code != 0 ? code : finish(load);
}

int tokenizer_load(const char *dir, tokenizer_t **out, inferd_error_t *error) {
  tokenizer_load_t load = {.dir = dir, .file = "tokenizer.json", .error = error};
  load.tokenizer = calloc(1, sizeof *load.tokenizer);
  if (load.tokenizer == NULL) return load_no_memory(&load);
  load.tokenizer->bos_id = load.tokenizer->eos_id = -1;
  load.tokenizer->bpe.unk = NO_ID;
  char path[PATH_MAX];
  int code = gguf_find(dir, path, sizeof path, error);
  if (code == 0)
    code = error_within(error, read_files(&load), dir);
  else if (code > 0 && (code = load_gguf(&load, path)) == 0)
    code = finish(&load);
  if (code != 0) {
    tokenizer_free(load.tokenizer);
    return code;
  }
  *out = load.tokenizer;
  return 0;
}

int tokenizer_none(tokenizer_t **out, inferd_error_t *error) {
  tokenizer_t *tokenizer = calloc(1, sizeof *tokenizer);
  if (tokenizer != NULL && decoder_compile(tokenizer) == 0) {
    tokenizer->bos_id = tokenizer->eos_id = -1;
    *out = tokenizer;
    return 0;
  }
  tokenizer_free(tokenizer);
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a tokenizer");
}
