/* choose.c: which files of a repository a server needs.
 *
 * One thread; a pure function of the names. The names are those that the readers of engine/model,
 * engine/text and engine/template open; weights in other formats (ONNX, Mistral's and Meta's own
 * layout) are never read, so they are never downloaded. Pickles are, where there is nothing else:
 * `inferd convert` makes safetensors of them.
 */
#include "engine/base/util.h"
#include "engine/model/source/listing.h"
#include "server/pull/repo.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Patterns of names in the top folder; a * stands for any bytes but a slash. */
static const char *const small_files[] = {"config*.json",         "generation_config.json",
                                          "tokenizer.json",       "tokenizer_config.json",
                                          "tokenizer.model",      "special_tokens_map.json",
                                          "added_tokens.json",    "vocab.json",
                                          "merges.txt",           "tekken.json",
                                          "chat_template*",       "*.jinja",
                                          "hf_quant_config.json", "quant_config.json",
                                          "quantize_config.json"};

static bool is_like(const char *name, const char *pattern) {
  return fnmatch(pattern, name, FNM_PATHNAME) == 0;
}

static bool has(const repo_t *repo, const char *name) {
  for (int i = 0; i < repo->count; i++) {
    if (strcmp(repo->files[i].name, name) == 0) return true;
  }
  return false;
}

/* Names of weights: the one file; with an index, that and the shards, NAME-00001-of-00005. */
typedef struct weight_names {
  const char *one, *index, *shards;
} weight_names_t;

static const weight_names_t safetensors = {"model.safetensors", "model.safetensors.index.json",
                                           "model*-of-*.safetensors"},
                            pickles = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                       "pytorch_model*-of-*.bin"};

static bool has_model(const repo_t *repo, const weight_names_t *names) {
  return has(repo, "config.json") && (has(repo, names->one) || has(repo, names->index));
}

static void choose_model(repo_t *repo, const weight_names_t *names) {
  bool sharded = has(repo, names->index);
  for (int i = 0; i < repo->count; i++) {
    repo_file_t *file = &repo->files[i];
    file->chosen = sharded ? is_like(file->name, names->index) || is_like(file->name, names->shards)
                           : strcmp(file->name, names->one) == 0;
    for (size_t n = 0; n < ARRAY_LEN(small_files) && !file->chosen; n++) {
      file->chosen = is_like(file->name, small_files[n]);
    }
  }
}

static int refuse_gguf(const listing_t *names, const char *id, const char *quant, int count,
                       inferd_error_t *error) {
  char there[280];
  listing_text(names, gguf_is_model, there, sizeof there);
  if (quant[0] == '\0') {
    return error_set(error, ERR_MODEL_MISSING, "model",
                     "%s: has %d GGUF files; name the quantisation, as in %s:Q4_K_M: %s", id, count,
                     id, there);
  }
  return error_set(error, ERR_MODEL_MISSING, "model", "%s: %s of %.64s; there %s: %s", id,
                   count == 0 ? "no GGUF file is" : "several GGUF files are", quant,
                   there[0] != '\0' ? "are" : "is none", there);
}

/* What a repository without safetensors and GGUF files has instead. */
static int refuse_repository(const repo_t *repo, const listing_t *names, const char *id,
                             inferd_error_t *error) {
  char there[200];
  const char *why = "has neither model.safetensors nor a GGUF file";
  if (has(repo, "adapter_config.json")) {
    why = "is a low-rank adapter, not a model; pull its base model, and serve a folder with the "
          "adapter by --enable-lora --lora-modules NAME=DIR";
  } else if (has(repo, "consolidated.safetensors") || has(repo, "params.json")) {
    why = "has weights in Mistral's or Meta's own layout alone (consolidated.*), which is not read";
  } else if (listing_has_suffix(names, ".bin") || listing_has_suffix(names, ".pth")) {
    why = "has pickle files alone, and not as config.json with pytorch_model.bin, which can be "
          "converted; look for a revision or a copy with safetensors";
  }
  listing_text(names, NULL, there, sizeof there);
  return error_set(error, ERR_MODEL_MISSING, "model", "%s: %s; it has: %s", id, why,
                   there[0] != '\0' ? there : "no files");
}

/* Chooses the GGUF file and its parts. The listing has the names of at most one folder deep,
 * because `serve` looks no deeper. */
static int choose_gguf(repo_t *repo, const listing_t *names, const char *id, const char *quant,
                       inferd_error_t *error) {
  int count;
  const char *first = gguf_choose(names, quant, &count);
  if (first == NULL) return refuse_gguf(names, id, quant, count, error);
  for (int i = 0; i < repo->count; i++) {
    repo->files[i].chosen = gguf_is_part_of(repo->files[i].name, first);
  }
  return 0;
}

/* Lists what is at most one folder deep and not hidden, as listing_read does on a disk. */
static void list(const repo_t *repo, listing_t *out) {
  for (int i = 0; i < repo->count; i++) {
    char *name = repo->files[i].name, *slash = strchr(name, '/');
    if (name[0] == '.' || (slash != NULL && (strchr(slash + 1, '/') || slash[1] == '.'))) continue;
    out->names[out->count++] = name;
  }
}

int repo_choose(repo_t *repo, const char *id, const char *quant, inferd_error_t *error) {
  listing_t names = {.names = calloc((size_t)repo->count + 1, sizeof(char *))};
  if (names.names == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for names");
  list(repo, &names);
  int code = 0;
  bool model = has_model(repo, &safetensors);
  if (quant[0] != '\0' || (!model && listing_has_suffix(&names, ".gguf"))) {
    code = choose_gguf(repo, &names, id, quant, error);
  } else if (model) {
    choose_model(repo, &safetensors);
  } else if (has_model(repo, &pickles)) {
    choose_model(repo, &pickles);
  } else {
    code = refuse_repository(repo, &names, id, error);
  }
  free(names.names); /* the names are the repository's */
  return code;
}
