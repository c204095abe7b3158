/* main.c: the C side of `make parity`: a model directory and token ids in, logits out.
 *
 *   model_driver DIR BACKEND ISA DTYPE DUMMY_SEED|- MAX_LEN PROMPT_TOKENS [ADAPTER] < ids > floats
 *
 * DTYPE may end in +int8: then the KV cache has codes of 8 bits.
 * Reads all ids (text) from stdin, runs the first PROMPT_TOKENS as one prefill and the rest one by
 * one, and writes the logits of every position as raw fp32 [ids, vocab]. Errors: "NAME message" on
 * stderr, exit 1. tests/parity/parity.py compares the floats with transformers.
 */
#include "tests/engine/model/naive_ops.h"
#include "tests/engine/model/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 4096 };

static int fail(const inferd_error_t *error) {
  fprintf(stderr, "%s %s\n", error_name(error->code), error->message);
  return 1;
}

static int32_t dtype_of(const char *name) {
  static const char *const names[] = {"float32", "float16", "bfloat16"};
  size_t length = strcspn(name, "+");
  for (int i = 0; i < 3; i++) {
    if (strlen(names[i]) == length && strncmp(name, names[i], length) == 0) return i;
  }
  return -1;
}

static int run_all(rig_t *rig, const int32_t *ids, int32_t count, int32_t prompt,
                   inferd_error_t *error) {
  size_t vocab = (size_t)rig->blueprint.vocab_size;
  float *logits = malloc((size_t)count * vocab * sizeof(float));
  if (logits == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for logits");
  int status = rig_run(rig, ids, prompt, 0, prompt, logits, error);
  for (int32_t i = prompt; i < count && status == 0; i++) {
    status = rig_run(rig, ids + i, 1, i, 1, logits + (size_t)i * vocab, error);
  }
  if (status == 0) fwrite(logits, sizeof(float), (size_t)count * vocab, stdout);
  free(logits);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 8 && argc != 9) {
    fprintf(stderr, "usage: model_driver DIR naive|cpu ISA DTYPE SEED|- MAX_LEN PROMPT [ADAPTER] "
                    "< ids\n");
    return 64;
  }
  rig_options_t options = {
      .ops = strcmp(argv[2], "naive") == 0 ? &ops_naive : &ops_cpu,
      .isa = argv[3],
      .dir = argv[1],
      .dtype = dtype_of(argv[4]),
      .kv_int8 = strstr(argv[4], "+int8") != NULL,
      .dummy = strcmp(argv[5], "-") != 0,
      .seed = strtoull(argv[5], NULL, 10),
      .max_model_len = (int32_t)strtol(argv[6], NULL, 10),
      .adapter = argc == 9 ? argv[8] : NULL,
  };
  static int32_t ids[IDS_MAX];
  int32_t count = 0, prompt = (int32_t)strtol(argv[7], NULL, 10);
  while (count < IDS_MAX && scanf("%d", &ids[count]) == 1) count++;
  inferd_error_t error = {0};
  rig_t rig;
  if (rig_open(&options, &rig, &error) != 0) return fail(&error);
  bool fits = count >= 1 && prompt >= 1 && prompt <= count && count <= rig.max_len;
  for (int32_t i = 0; fits && i < count; i++) {
    fits = ids[i] >= 0 && ids[i] < rig.blueprint.vocab_size;
  }
  int status = fits ? run_all(&rig, ids, count, prompt, &error)
                    : error_set(&error, ERR_USAGE, NULL, "ids or lengths out of range");
  rig_close(&rig);
  return status == 0 ? 0 : fail(&error);
}
