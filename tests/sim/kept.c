/* kept.c: what is read once for all runs of a process, as it depends on the fixtures alone: the
 * tokenizer, the vocabulary of grammars, what the files of a model say of it, and that a directory
 * has no GGUF file.
 *
 * Linked in front of the functions that make these. The torture, in which each call may fail, has
 * none of it. One thread.
 */
#include "engine/file/gguf.h"
#include "engine/grammar/grammar.h"
#include "engine/model/blueprint.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATHS_MAX = 16, PATH_BYTES = 64 };

/* Paths for which something is known. */
typedef struct paths {
  char of[PATHS_MAX][PATH_BYTES];
  int count;
} paths_t;

/* The place of the path, -1 = it is not there. */
static int find_path(const paths_t *paths, const char *path) {
  for (int i = 0; i < paths->count; i++) {
    if (strcmp(paths->of[i], path) == 0) return i;
  }
  return -1;
}

/* The place of a new one, -1 = there is none. */
static int add_path(paths_t *paths, const char *path) {
  if (paths->count == PATHS_MAX || strlen(path) >= PATH_BYTES) return -1;
  snprintf(paths->of[paths->count], PATH_BYTES, "%s", path);
  return paths->count++;
}

int __real_tokenizer_load(const char *dir, tokenizer_t **out, inferd_error_t *error);
int __wrap_tokenizer_load(const char *dir, tokenizer_t **out, inferd_error_t *error);
void __real_tokenizer_free(tokenizer_t *tokenizer);
void __wrap_tokenizer_free(tokenizer_t *tokenizer);

int __wrap_tokenizer_load(const char *dir, tokenizer_t **out, inferd_error_t *error) {
  if (sim.torture) return __real_tokenizer_load(dir, out, error);
  static tokenizer_t *tokenizer;
  if (!tokenizer && __real_tokenizer_load(dir, &tokenizer, error) != 0) return error->code;
  *out = tokenizer;
  return 0;
}

void __wrap_tokenizer_free(tokenizer_t *tokenizer) {
  if (sim.torture) __real_tokenizer_free(tokenizer);
}

int __real_grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context,
                                  int32_t num_tokens, int32_t row_width, grammar_vocabulary_t **out,
                                  inferd_error_t *error);
int __wrap_grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context,
                                  int32_t num_tokens, int32_t row_width, grammar_vocabulary_t **out,
                                  inferd_error_t *error);
void __real_grammar_vocabulary_free(grammar_vocabulary_t *vocabulary);
void __wrap_grammar_vocabulary_free(grammar_vocabulary_t *vocabulary);

int __wrap_grammar_vocabulary_new(grammar_token_bytes_t *bytes, const void *context,
                                  int32_t num_tokens, int32_t row_width, grammar_vocabulary_t **out,
                                  inferd_error_t *error) {
  static grammar_vocabulary_t *vocabulary;
  static int32_t tokens, width;
  bool makes = sim.torture || !vocabulary;
  REQUIRE(makes || (tokens == num_tokens && width == row_width), "another vocabulary");
  if (!makes) {
    *out = vocabulary;
    return 0;
  }
  int code = __real_grammar_vocabulary_new(bytes, context, num_tokens, row_width, out, error);
  if (code || sim.torture) return code;
  vocabulary = *out;
  tokens = num_tokens;
  width = row_width;
  return 0;
}

void __wrap_grammar_vocabulary_free(grammar_vocabulary_t *vocabulary) {
  if (sim.torture) __real_grammar_vocabulary_free(vocabulary);
}

int __real_gguf_find(const char *path, char *out, size_t capacity, inferd_error_t *error);
int __wrap_gguf_find(const char *path, char *out, size_t capacity, inferd_error_t *error);

int __wrap_gguf_find(const char *path, char *out, size_t capacity, inferd_error_t *error) {
  static paths_t without;
  if (sim.torture) return __real_gguf_find(path, out, capacity, error);
  if (find_path(&without, path) >= 0) return 0;
  int found = __real_gguf_find(path, out, capacity, error);
  if (found == 0) add_path(&without, path);
  return found;
}

int __real_blueprint_check_family(const char *dir, inferd_error_t *error);
int __wrap_blueprint_check_family(const char *dir, inferd_error_t *error);
int __real_blueprint_read(const char *dir, double tokenizer_max, int32_t tokenizer_eos,
                          blueprint_t *out, inferd_error_t *error);
int __wrap_blueprint_read(const char *dir, double tokenizer_max, int32_t tokenizer_eos,
                          blueprint_t *out, inferd_error_t *error);

int __wrap_blueprint_check_family(const char *dir, inferd_error_t *error) {
  static paths_t served;
  if (sim.torture) return __real_blueprint_check_family(dir, error);
  if (find_path(&served, dir) >= 0) return 0;
  int code = __real_blueprint_check_family(dir, error);
  if (code == 0) add_path(&served, dir);
  return code;
}

/* All runs have one tokenizer. */
int __wrap_blueprint_read(const char *dir, double tokenizer_max, int32_t tokenizer_eos,
                          blueprint_t *out, inferd_error_t *error) {
  static paths_t known;
  static struct {
    blueprint_t blueprint;
    uint8_t layer_flags[MODEL_LAYERS_MAX + 1];
  } kept[PATHS_MAX];
  int at = sim.torture ? -1 : find_path(&known, dir);
  if (at >= 0) {
    size_t bytes = (size_t)kept[at].blueprint.num_layers + 1;
    *out = kept[at].blueprint;
    out->layer_flags = malloc(bytes);
    REQUIRE(out->layer_flags, "no memory");
    memcpy(out->layer_flags, kept[at].layer_flags, bytes);
    return 0;
  }
  int code = __real_blueprint_read(dir, tokenizer_max, tokenizer_eos, out, error);
  if (code != 0 || sim.torture || out->scheme.plain != NULL) return code;
  at = add_path(&known, dir);
  if (at < 0) return 0;
  kept[at].blueprint = *out;
  memcpy(kept[at].layer_flags, out->layer_flags, (size_t)out->num_layers + 1);
  return 0;
}
