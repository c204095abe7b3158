/* blas_tune.c: which algorithm for which product, by the clock, before READY.
 *
 * Engine thread. Each shape and range of rows is timed with the matrices of several layers in turn,
 * so that no cache holds the next one, on memory of the KV pool, which is zeroed afterwards. The
 * choices are kept in a file named after device, driver and library: the next start reads them, and
 * only then do a model's bits stay the same from one start to the next. A file that is missing,
 * damaged or cannot be written costs the measuring, nothing else.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "engine/base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROUNDS = 3, PATH_MAX_BYTES = 512, LINE_BYTES = 512, FILE_VERSION = 1 };

/* ---- the file ---- */

static const char *first_set(const char *const *names, size_t count, size_t *index) {
  for (*index = 0; *index < count; (*index)++) {
    const char *value = getenv(names[*index]);
    if (value != NULL && value[0] == '/') return value;
  }
  return NULL;
}

/* Where the choices are kept: systemd's cache directory, else the user's. False = nowhere. */
static bool file_path(const device_t *d, char *path, size_t bytes) {
  static const char *const names[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
  static const char *const below[] = {"", "/inferd", "/.cache/inferd"};
  size_t index;
  const char *root = first_set(names, sizeof names / sizeof *names, &index);
  if (root == NULL) return false;
  const size_t version = d->blas->api.version();
  uint64_t key = fnv_64(FNV_64_BASIS, d->description, strlen(d->description));
  key = fnv_64(key, &version, sizeof version);
  int length = snprintf(path, bytes, "%s%s", root, below[index]);
  if (length < 0 || (size_t)length >= bytes) return false;
  if (mkdir(path, 0755) != 0 && errno != EEXIST) return false;
  int more = snprintf(path + length, bytes - (size_t)length, "/products-%016" PRIx64 ".txt", key);
  return more > 0 && (size_t)(length + more) < bytes;
}

/* A choice as a line: shape, range, own or the algorithm's bytes, a checksum over all of it. */
static void print_choice(char *line, size_t bytes, const device_t *d, const blas_shape_t *s,
                         int32_t range) {
  const blas_choice_t *choice = &s->choices[range];
  int length = snprintf(line, bytes, "%d %d %d %d %d %d%d%d %d ", FILE_VERSION, (int)d->dtype, s->n,
                        s->k, range, s->has_bias, s->has_residual, s->is_logits, choice->is_own);
  const uint8_t *algo = (const uint8_t *)&choice->algo;
  for (size_t i = 0; i < sizeof choice->algo; i++) {
    length += snprintf(line + length, bytes - (size_t)length, "%02x", algo[i]);
  }
  uint64_t sum = fnv_64(0, line, (size_t)length);
  snprintf(line + length, bytes - (size_t)length, " %016" PRIx64 "\n", sum);
}

static bool parse_algo(const char *hex, cublasLtMatmulAlgo_t *algo) {
  uint8_t *to = (uint8_t *)algo;
  for (size_t i = 0; i < sizeof *algo; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return false;
    to[i] = (uint8_t)byte;
  }
  return true;
}

/* A line that says something of this shape and range becomes its choice. The line is believed when
 * its own print is what it says. */
static void read_choice(const device_t *d, const char *line, blas_shape_t *s) {
  int version, dtype, n, k, range, flags, own, at = 0;
  int fields =
      sscanf(line, "%d %d %d %d %d %d %d %n", &version, &dtype, &n, &k, &range, &flags, &own, &at);
  int expected = s->has_bias * 100 + s->has_residual * 10 + s->is_logits;
  if (fields != 7 || at == 0 || version != FILE_VERSION || dtype != (int)d->dtype) return;
  if (n != s->n || k != s->k || flags != expected || range < 0 || range >= BLAS_RANGES_MAX) return;
  blas_shape_t copy = *s;
  char again[LINE_BYTES];
  copy.choices[range].is_own = own != 0;
  if (strlen(line + at) < 2 * sizeof(cublasLtMatmulAlgo_t)) return;
  if (!parse_algo(line + at, &copy.choices[range].algo)) return;
  print_choice(again, sizeof again, d, &copy, range);
  if (strcmp(again, line) != 0) return;
  s->choices[range] = copy.choices[range];
  s->choices[range].is_known = true;
}

static void read_file(device_t *d, const char *path) {
  FILE *file = fopen(path, "re");
  char line[LINE_BYTES];
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) {
    for (int32_t i = 0; i < d->blas->num_shapes; i++) read_choice(d, line, &d->blas->shapes[i]);
  }
  fclose(file);
}

/* Adds what this model brought; a whole line at a time, so that two servers do no harm. */
static void append_choice(const device_t *d, const char *path, const blas_shape_t *s,
                          int32_t range) {
  char line[LINE_BYTES];
  FILE *file = fopen(path, "ae");
  if (file == NULL) return;
  print_choice(line, sizeof line, d, s, range);
  fwrite(line, 1, strlen(line), file);
  fclose(file);
}

/* ---- the clock ---- */

typedef struct trial {
  blas_shape_t *shape;
  gpu_skinny_t layer;
  cudaEvent_t begin, end;
} trial_t;

/* One product with matrix `index`; algo NULL = the own kernel. */
static int run_once(device_t *d, trial_t *t, int32_t index, const cublasLtMatmulAlgo_t *algo) {
  t->layer.weight = t->shape->weights[index % t->shape->num_weights];
  const blas_call_t call = {.layer = &t->layer, .narrow_bias = t->layer.bias};
  if (algo == NULL) return gpu_linear(d->dtype, &t->layer, d->stream);
  return blas_run(d, t->shape, &call, algo) == CUBLAS_STATUS_SUCCESS ? 0 : -1;
}

/* Milliseconds of a product, the best of some rounds; infinity when it cannot be run. */
static float time_product(device_t *d, trial_t *t, const cublasLtMatmulAlgo_t *algo) {
  float best = HUGE_VALF;
  if (run_once(d, t, 0, algo) != 0) return best;
  for (int round = 0; round < ROUNDS; round++) {
    const int32_t runs = t->shape->num_weights;
    float ms;
    if (cudaEventRecord(t->begin, d->stream) != cudaSuccess) return HUGE_VALF;
    for (int32_t i = 0; i < runs; i++) {
      if (run_once(d, t, i, algo) != 0) return HUGE_VALF;
    }
    if (cudaEventRecord(t->end, d->stream) != cudaSuccess ||
        cudaEventSynchronize(t->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess)
      return HUGE_VALF;
    if (ms / (float)runs < best) best = ms / (float)runs;
  }
  return best;
}

static int ask_library(const device_t *d, const blas_shape_t *s, int32_t rows,
                       cublasLtMatmulHeuristicResult_t *results) {
  const blas_t *b = d->blas;
  const uint64_t cols = (uint64_t)rows, workspace = BLAS_WORKSPACE;
  cublasLtMatmulPreference_t preference;
  int found = 0;
  b->api.layout_set(s->b, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
  b->api.layout_set(s->d, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
  if (b->api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
  b->api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                        sizeof workspace);
  if (b->api.heuristic(b->handle, s->desc, s->a, s->b, s->d, s->d, preference, BLAS_CANDIDATES,
                       results, &found) != CUBLAS_STATUS_SUCCESS)
    found = 0;
  b->api.preference_destroy(preference);
  return found;
}

/* The fastest way for the most rows of a range. */
static void choose(device_t *d, trial_t *t, int32_t range) {
  cublasLtMatmulHeuristicResult_t results[BLAS_CANDIDATES];
  blas_choice_t *choice = &t->shape->choices[range];
  int found = ask_library(d, t->shape, t->layer.rows, results);
  float best = time_product(d, t, NULL);
  *choice = (blas_choice_t){.is_known = true, .is_own = true};
  for (int i = 0; i < found; i++) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    float ms = time_product(d, t, &results[i].algo);
    if (ms >= best) continue;
    best = ms;
    choice->is_own = false;
    choice->algo = results[i].algo;
  }
  d->blas->num_timed++;
}

/* A choice that was read must still be one that the library takes. */
static bool still_valid(const device_t *d, const blas_shape_t *s, int32_t range, int32_t rows) {
  const blas_t *b = d->blas;
  const blas_choice_t *choice = &s->choices[range];
  const uint64_t cols = (uint64_t)rows;
  cublasLtMatmulHeuristicResult_t result;
  if (choice->is_own) return true;
  b->api.layout_set(s->b, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
  b->api.layout_set(s->d, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
  return b->api.check(b->handle, s->desc, s->a, s->b, s->d, s->d, &choice->algo, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= BLAS_WORKSPACE;
}

/* Inputs, residual and outputs of a trial lie in the KV pool; false when it is too small. */
static bool place(const device_t *d, trial_t *t, int32_t rows) {
  const blas_shape_t *s = t->shape;
  const size_t pool =
      gpu_kv_block_bytes(&d->kv) * (size_t)d->kv.num_blocks * (size_t)d->kv.num_layers;
  const size_t in = (size_t)rows * (size_t)s->k * sizeof(uint16_t);
  const size_t out =
      (size_t)rows * (size_t)s->n * (s->is_logits ? sizeof(float) : sizeof(uint16_t));
  const size_t bias = (size_t)s->n * sizeof(float);
  const size_t step = 256, at_out = (in + step - 1) / step * step;
  const size_t at_bias = (at_out + out + step - 1) / step * step;
  if (at_bias + bias > pool) return false;
  uint8_t *base = d->kv.base;
  t->layer =
      (gpu_skinny_t){.in = base,
                     .out = base + at_out,
                     .bias = s->has_bias ? (const float *)(const void *)(base + at_bias) : NULL,
                     .residual = s->has_residual ? base + at_out : NULL,
                     .rows = rows,
                     .n = s->n,
                     .k = s->k,
                     .logits = s->is_logits,
                     .workers = d->multiprocessors};
  return true;
}

static void tune_shape(device_t *d, trial_t *t, const char *path) {
  const int32_t most = t->shape->is_logits ? d->limits.logits_rows_max : d->limits.tokens_max;
  for (int32_t range = 0; range <= blas_range(most) && most >= BLAS_ROWS_MIN; range++) {
    int32_t rows = 64 << range < most ? 64 << range : most;
    blas_choice_t *choice = &t->shape->choices[range];
    if (choice->is_known && still_valid(d, t->shape, range, rows)) {
      d->blas->num_cached++;
      continue;
    }
    choice->is_known = false;
    if (!place(d, t, rows)) return;
    choose(d, t, range);
    if (path != NULL) append_choice(d, path, t->shape, range);
  }
}

void blas_tune(device_t *d) {
  blas_t *b = d->blas;
  char path[PATH_MAX_BYTES];
  trial_t trial = {0};
  bool has_file = file_path(d, path, sizeof path);
  if (has_file) read_file(d, path);
  device_note(d, (int)cudaEventCreate(&trial.begin), "measuring products");
  device_note(d, (int)cudaEventCreate(&trial.end), "measuring products");
  for (int32_t i = 0; i < b->num_shapes && d->fault == 0; i++) {
    trial.shape = &b->shapes[i];
    tune_shape(d, &trial, has_file ? path : NULL);
  }
  if (trial.begin != NULL) cudaEventDestroy(trial.begin);
  if (trial.end != NULL) cudaEventDestroy(trial.end);
  size_t pool = gpu_kv_block_bytes(&d->kv) * (size_t)d->kv.num_blocks * (size_t)d->kv.num_layers;
  device_note(d, (int)cudaMemsetAsync(d->kv.base, 0, pool, d->stream), "measuring products");
  b->is_tuned = true;
}
