/* blas_tune.c: measures, before READY, which algorithm is fastest for which product.
 *
 * Engine thread. Each shape and range of rows is timed with the matrices of several layers in turn,
 * so that no cache holds the next one, on memory of the KV pool, which is zeroed afterwards. The
 * choices are kept in a file named after device, driver and library: the next start reads them.
 * Without the file, a start could choose another algorithm than the start before, and the bits of a
 * model would differ between the two. If the file is missing, damaged or cannot be written, the
 * products are measured again.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROUNDS = 3, PATH_MAX_BYTES = 512, LINE_BYTES = 512, FILE_VERSION = 2 };

/* ---- the file ---- */

static const char *first_set(const char *const *names, size_t count, size_t *index) {
  for (*index = 0; *index < count; (*index)++) {
    const char *value = getenv(names[*index]);
    if (value != NULL && value[0] == '/') return value;
  }
  return NULL;
}

/* Makes a folder and those above it, as far as they are missing; `path` is restored. */
static bool make_folder(char *path) {
  for (char *end = strchr(path + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
    *end = '\0';
    bool exists = mkdir(path, 0755) == 0 || errno == EEXIST;
    *end = '/';
    if (!exists) return false;
  }
  return mkdir(path, 0755) == 0 || errno == EEXIST;
}

/* Finds the file of the choices: in systemd's cache directory, else in the user's. Returns false if
 * there is none. */
static bool file_path(const device_t *device, char *path, size_t bytes) {
  static const char *const names[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
  static const char *const below[] = {"", "/inferd", "/.cache/inferd"};
  size_t index;
  const char *root = first_set(names, ARRAY_LEN(names), &index);
  if (root == NULL) return false;
  const size_t version = device->blas->api.version();
  uint64_t key = fnv_64(FNV_64_BASIS, device->description, strlen(device->description));
  key = fnv_64(key, &version, sizeof version);
  int length = snprintf(path, bytes, "%s%s", root, below[index]);
  if (length < 0 || (size_t)length >= bytes) return false;
  if (!make_folder(path)) return false;
  int more = snprintf(path + length, bytes - (size_t)length, "/products-%016" PRIx64 ".txt", key);
  return more > 0 && (size_t)(length + more) < bytes;
}

/* Writes a choice as a line: shape, range, own or the algorithm's bytes, a checksum over all of it.
 */
static void print_choice(char *line, size_t bytes, const device_t *device,
                         const blas_shape_t *shape, int32_t range) {
  const blas_choice_t *choice = &shape->choices[range];
  int length = snprintf(line, bytes, "%d %d %d %d %d %d %d%d%d %d ", FILE_VERSION,
                        (int)device->dtype, shape->n, shape->k, shape->stride, range,
                        shape->has_bias, shape->has_residual, shape->is_logits, choice->is_own);
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

/* Reads a line. If it is of this shape and range, it becomes the choice. The line is valid if
 * printing the choice gives the same line. */
static void read_choice(const device_t *device, const char *line, blas_shape_t *shape) {
  int version, dtype, n, k, stride, range, flags, own, at = 0;
  int fields = sscanf(line, "%d %d %d %d %d %d %d %d %n", &version, &dtype, &n, &k, &stride, &range,
                      &flags, &own, &at);
  int expected = shape->has_bias * 100 + shape->has_residual * 10 + shape->is_logits;
  if (fields != 8 || at == 0 || version != FILE_VERSION || dtype != (int)device->dtype) return;
  if (n != shape->n || k != shape->k || stride != shape->stride || flags != expected) return;
  if (range < 0 || range >= BLAS_RANGES_MAX) return;
  blas_shape_t copy = *shape;
  char again[LINE_BYTES];
  copy.choices[range].is_own = own != 0;
  if (strlen(line + at) < 2 * sizeof(cublasLtMatmulAlgo_t)) return;
  if (!parse_algo(line + at, &copy.choices[range].algo)) return;
  print_choice(again, sizeof again, device, &copy, range);
  if (strcmp(again, line) != 0) return;
  shape->choices[range] = copy.choices[range];
  shape->choices[range].is_known = true;
}

static void read_file(device_t *device, const char *path) {
  FILE *file = fopen(path, "re");
  char line[LINE_BYTES];
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) {
    for (int32_t i = 0; i < device->blas->num_shapes; i++)
      read_choice(device, line, &device->blas->shapes[i]);
  }
  fclose(file);
}

/* Appends the new choices of this model, one line per write, so that two servers can write at once.
 */
static void append_choice(const device_t *device, const char *path, const blas_shape_t *shape,
                          int32_t range) {
  char line[LINE_BYTES];
  FILE *file = fopen(path, "ae");
  if (file == NULL) return;
  print_choice(line, sizeof line, device, shape, range);
  fwrite(line, 1, strlen(line), file);
  fclose(file);
}

/* ---- the clock ---- */

typedef struct blas_trial {
  blas_shape_t *shape;
  gpu_skinny_t layer;
  cudaEvent_t begin, end;
} blas_trial_t;

/* Runs one product with matrix `index`; algo NULL = the own kernel. */
static int run_once(device_t *device, blas_trial_t *trial, int32_t index,
                    const cublasLtMatmulAlgo_t *algo) {
  trial->layer.weight = trial->shape->weights[index % trial->shape->num_weights];
  const blas_call_t call = {.layer = &trial->layer, .narrow_bias = trial->layer.bias};
  if (algo == NULL) return gpu_linear(device->dtype, &trial->layer, device->stream);
  return blas_run(device, trial->shape, &call, algo) == CUBLAS_STATUS_SUCCESS ? 0 : -1;
}

/* Returns the milliseconds of a product, the best of some rounds, or infinity if it cannot be run.
 */
static float time_product(device_t *device, blas_trial_t *trial, const cublasLtMatmulAlgo_t *algo) {
  float best = HUGE_VALF;
  if (run_once(device, trial, 0, algo) != 0) return best;
  for (int round = 0; round < ROUNDS; round++) {
    const int32_t runs = trial->shape->num_weights;
    float ms;
    if (cudaEventRecord(trial->begin, device->stream) != cudaSuccess) return HUGE_VALF;
    for (int32_t i = 0; i < runs; i++) {
      if (run_once(device, trial, i, algo) != 0) return HUGE_VALF;
    }
    if (cudaEventRecord(trial->end, device->stream) != cudaSuccess ||
        cudaEventSynchronize(trial->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, trial->begin, trial->end) != cudaSuccess)
      return HUGE_VALF;
    if (ms / (float)runs < best) best = ms / (float)runs;
  }
  return best;
}

/* Tells the library all of the trial's product, the place of the bias too: it decides which
 * algorithms may be used. */
static bool describe_call(const device_t *device, const blas_trial_t *trial) {
  const blas_call_t call = {.layer = &trial->layer, .narrow_bias = trial->layer.bias};
  return blas_set_call(device->blas, trial->shape, &call) == CUBLAS_STATUS_SUCCESS;
}

static int ask_library(const device_t *device, const blas_trial_t *trial,
                       cublasLtMatmulHeuristicResult_t *results) {
  const blas_t *blas = device->blas;
  const blas_shape_t *shape = trial->shape;
  const uint64_t workspace = BLAS_WORKSPACE;
  cublasLtMatmulPreference_t preference;
  int found = 0;
  if (!describe_call(device, trial)) return 0;
  if (blas->api.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
  blas->api.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                           sizeof workspace);
  if (blas->api.heuristic(blas->handle, shape->desc, shape->a, shape->b, shape->d, shape->d,
                          preference, BLAS_CANDIDATES, results, &found) != CUBLAS_STATUS_SUCCESS)
    found = 0;
  blas->api.preference_destroy(preference);
  return found;
}

/* Measures the fastest way for the largest number of rows of a range. */
static void choose(device_t *device, blas_trial_t *trial, int32_t range) {
  cublasLtMatmulHeuristicResult_t results[BLAS_CANDIDATES];
  blas_choice_t *choice = &trial->shape->choices[range];
  int found = ask_library(device, trial, results);
  float best = time_product(device, trial, NULL);
  *choice = (blas_choice_t){.is_known = true, .is_own = true};
  for (int i = 0; i < found; i++) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    float ms = time_product(device, trial, &results[i].algo);
    if (ms >= best) continue;
    best = ms;
    choice->is_own = false;
    choice->algo = results[i].algo;
  }
  device->blas->num_timed++;
}

/* Checks that the library still accepts a choice that was read from the file, and runs it once:
 * what has never run has no code on the device yet, and a capture cannot wait for it. */
static bool still_valid(device_t *device, blas_trial_t *trial, int32_t range) {
  const blas_t *blas = device->blas;
  const blas_shape_t *shape = trial->shape;
  const blas_choice_t *choice = &shape->choices[range];
  cublasLtMatmulHeuristicResult_t result;
  if (choice->is_own) return true;
  return describe_call(device, trial) &&
         blas->api.check(blas->handle, shape->desc, shape->a, shape->b, shape->d, shape->d,
                         &choice->algo, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= BLAS_WORKSPACE && run_once(device, trial, 0, &choice->algo) == 0;
}

/* Places inputs, residual and outputs of a trial in the KV pool. Returns false if it is too small.
 */
static bool place(const device_t *device, blas_trial_t *trial, int32_t rows) {
  const blas_shape_t *shape = trial->shape;
  const size_t pool = gpu_kv_block_bytes(&device->kv) * (size_t)device->kv.num_blocks *
                      (size_t)device->kv.num_layers;
  const size_t in = (size_t)rows * (size_t)shape->k * sizeof(uint16_t);
  const size_t out =
      (size_t)rows * (size_t)shape->stride * (shape->is_logits ? sizeof(float) : sizeof(uint16_t));
  const size_t bias = (size_t)shape->n * sizeof(float);
  const size_t step = 256, at_out = ROUND_UP(in, step);
  const size_t at_bias = ROUND_UP(at_out + out, step);
  if (at_bias + bias > pool) return false;
  uint8_t *base = device->kv.base;
  trial->layer =
      (gpu_skinny_t){.in = base,
                     .out = base + at_out,
                     .bias = shape->has_bias ? (const float *)(const void *)(base + at_bias) : NULL,
                     .residual = shape->has_residual ? base + at_out : NULL,
                     .rows = rows,
                     .n = shape->n,
                     .k = shape->k,
                     .stride = shape->stride,
                     .logits = shape->is_logits,
                     .workers = device->multiprocessors};
  return true;
}

static void tune_shape(device_t *device, blas_trial_t *trial, const char *path) {
  const int32_t most =
      trial->shape->is_logits ? device->limits.logits_rows_max : device->limits.tokens_max;
  for (int32_t range = 0; range <= blas_range(most) && most >= BLAS_ROWS_MIN; range++) {
    int32_t rows = 64 << range < most ? 64 << range : most;
    blas_choice_t *choice = &trial->shape->choices[range];
    const bool was_known = choice->is_known, is_placed = place(device, trial, rows);
    choice->is_known = false;
    if (!is_placed) continue; /* the own kernel */
    if (was_known && still_valid(device, trial, range)) {
      choice->is_known = true;
      device->blas->num_cached++;
      continue;
    }
    choose(device, trial, range);
    if (path != NULL) append_choice(device, path, trial->shape, range);
  }
}

void blas_tune(device_t *device) {
  blas_t *blas = device->blas;
  char path[PATH_MAX_BYTES];
  blas_trial_t trial = {0};
  bool has_file = file_path(device, path, sizeof path);
  if (has_file) read_file(device, path);
  device_note(device, (int)cudaEventCreate(&trial.begin), "measuring products");
  device_note(device, (int)cudaEventCreate(&trial.end), "measuring products");
  for (int32_t i = 0; i < blas->num_shapes && device->fault == 0; i++) {
    trial.shape = &blas->shapes[i];
    tune_shape(device, &trial, has_file ? path : NULL);
  }
  if (trial.begin != NULL) cudaEventDestroy(trial.begin);
  if (trial.end != NULL) cudaEventDestroy(trial.end);
  size_t pool = gpu_kv_block_bytes(&device->kv) * (size_t)device->kv.num_blocks *
                (size_t)device->kv.num_layers;
  device_note(device, (int)cudaMemsetAsync(device->kv.base, 0, pool, device->stream),
              "measuring products");
  blas->is_tuned = true;
}
