/* weights.c: passes the matrices and vectors of a model to a device, row by row.
 *
 * A matrix may be stacked from several stored tensors (q, k, v; gate, up) and its rows may need
 * another element type; both happen in row(), which the back end calls from its packing threads.
 * GPT-2 stores its linear layers transposed: these are transposed in blocks, one tensor at a time.
 * Experts are stored as one tensor each or as stacks, and become one stack. MXFP4 blocks are passed
 * unchanged if the device takes them, else as plain numbers. Layers that are stored quantised
 * (packed.h) are passed as codes and scales if the device takes that, else as plain numbers.
 * Every element is checked: a NaN or an infinity fails the load with the name of the tensor.
 */
#include "engine/model/weights/weights.h"

#include "engine/base/check.h"
#include "engine/base/checked.h"
#include "engine/base/hash.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/dummy.h"
#include "engine/model/weights/quantise.h"
#include "engine/model/weights/shard.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROLES_MAX = 7, TRANSPOSE_BLOCK = 32, FILL_PIECE = 256, NIBBLE_BYTES = MXFP4_COLS / 2 };

/* One stored tensor as rows of a matrix. */
typedef struct weight_part {
  const expected_tensor_t *tensor;
  const stored_tensor_t *stored; /* NULL for dummy weights */
  const uint8_t *data;           /* row-major rows of `type`; NULL = made by `dummy` */
  const packed_t *packed;        /* rows are made from this, as DTYPE_F32; NULL = from `data` */
  dtype_t type;
  const quant_format_t *quant; /* rows of blocks; `type` is then that of the values, float32 */
  const float *factors;        /* of these blocks, one of each matrix of a stack; NULL = none */
  dummy_t dummy;
  void *transposed; /* owned copy of a transposed tensor, or NULL */
  atomic_bool bad;  /* some element is not finite */
} weight_part_t;

/* The parts of a matrix, or of every expert of a stack, one expert after the other. */
typedef struct matrix {
  weight_part_t *parts;      /* owned */
  weight_part_t *exponents;  /* of MXFP4 blocks, the last of `parts`; NULL = none */
  int num_parts;             /* with exponents */
  int parts_each;            /* that make one matrix */
  int64_t rows, cols, stack; /* rows of the whole stack */
  bool interleaved;          /* gate and up rows alternate */
  bool swapped;              /* up rows come before gate rows */
  bool keeps_blocks;         /* rows of blocks are handed over as they are */
  weight_format_t format;    /* of the first row */
  int32_t group;             /* of grouped rows */
  group_scales_t scales;     /* the same */
  dtype_t dtype;
} matrix_t;

static void open_part(const weight_loader_t *loader, const expected_tensor_t *tensor,
                      weight_part_t *part) {
  *part = (weight_part_t){.tensor = tensor, .type = loader->dtype};
  if (loader->stored == NULL) {
    part->dummy = dummy_tensor(tensor, loader->options->dummy_seed);
    return;
  }
  part->stored = loader->stored[tensor - loader->list.tensors];
  part->data = part->stored->data;
  part->type = weights_stored_dtype(part->stored);
  part->quant = part->stored->quant;
  const stored_tensor_t *factors = loader->factors[tensor - loader->list.tensors];
  if (factors != NULL) part->factors = (const float *)(const void *)factors->data;
  if (loader->packed == NULL) return;
  const packed_t *packed = &loader->packed[tensor - loader->list.tensors];
  if (packed->packing == PACKING_NONE) return;
  part->packed = packed;
  part->type = DTYPE_F32;
}

/* Makes elements of a dummy tensor: rounded to the run type, then converted to the requested type.
 */
static void fill_part(const weight_part_t *part, uint8_t *out, dtype_t dtype, int64_t first,
                      int64_t count) {
  uint32_t piece[FILL_PIECE];
  while (count > 0) {
    int64_t n = MIN(count, FILL_PIECE);
    dummy_fill(&part->dummy, piece, part->type, first, n);
    convert_row(out, dtype, piece, part->type, n);
    out += (size_t)n * dtype_size(dtype);
    first += n;
    count -= n;
  }
}

static float factor_of(const weight_part_t *part, int64_t row) {
  return part->factors != NULL ? part->factors[row / part->tensor->rows] : 1.0f;
}

/* Writes row `row` of NVFP4 blocks, whose scales have no room for a factor, as WEIGHT_GROUPED_FP4.
 */
static void fp4_row(weight_part_t *part, int64_t row, int64_t cols, uint8_t *out) {
  const int32_t group = part->quant->group;
  const float factor = factor_of(part, row);
  const uint8_t *data = part->data + (size_t)row * quant_row_bytes(part->quant, 0, cols);
  float *scales = (float *)(void *)(out + ROUND_UP((size_t)cols, sizeof(float)));
  for (int64_t first = 0; first < cols; first += QUANT_CHUNK) {
    quant_chunk_t chunk;
    quant_read(part->quant, 0, data, cols, first, &chunk);
    memcpy(out + first, chunk.codes, (size_t)chunk.cols);
    for (int32_t g = 0; g < chunk.cols / group; g++) {
      float scale = chunk.scale[g] * factor;
      if (!isfinite(scale)) atomic_store(&part->bad, true);
      scales[first / group + g] = scale;
      scales[cols / group + first / group + g] = factor;
    }
  }
}

/* Returns row `row` of blocks as it is, or its values in the run type in `scratch`. */
static const void *blocks_row(weight_part_t *part, bool keep, dtype_t dtype, int64_t row,
                              int64_t cols, void *scratch) {
  const uint8_t *data = part->data + (size_t)row * quant_row_bytes(part->quant, 0, cols);
  bool good = quant_is_finite(part->quant, 0, data, cols);
  if (good && !keep) {
    quant_decode(part->quant, 0, data, cols, scratch);
    float *values = scratch;
    for (int64_t i = 0; i < cols && part->factors != NULL; i++) values[i] *= factor_of(part, row);
    convert_row(scratch, dtype, scratch, DTYPE_F32, cols); /* in place: no type is wider */
    good = convert_finite(scratch, dtype, cols);
  }
  if (!good) atomic_store(&part->bad, true);
  return keep ? data : scratch;
}

/* Returns row `row` of a part in the run type: in the file if no conversion is needed, else in
 * `scratch`. */
static const void *part_row(weight_part_t *part, dtype_t dtype, int64_t row, int64_t cols,
                            void *scratch) {
  if (part->data == NULL) {
    fill_part(part, scratch, dtype, row * cols, cols);
    return scratch;
  }
  if (part->packed != NULL) { /* scratch has room for fp32, and converting goes from front to end */
    packed_row(part->packed, row, scratch);
    convert_row(scratch, dtype, scratch, DTYPE_F32, cols);
    if (!convert_finite(scratch, dtype, cols)) atomic_store(&part->bad, true);
    return scratch;
  }
  size_t size = dtype_size(part->type);
  const uint8_t *data = part->data + (size_t)row * (size_t)cols * size;
  const void *out = data;
  if (part->type != dtype || ((uintptr_t)data & (size - 1)) != 0) {
    convert_row(scratch, dtype, data, part->type, cols);
    out = scratch;
  }
  if (!convert_finite(out, dtype, cols)) atomic_store(&part->bad, true);
  return out;
}

/* The result has all gate rows, then all up rows. Returns where row `row` is in a matrix of `rows`
 * rows that is interleaved or swapped. */
static int64_t stored_row(const matrix_t *matrix, int64_t row, int64_t rows) {
  if (matrix->swapped) return row < rows / 2 ? row + rows / 2 : row - rows / 2;
  if (!matrix->interleaved) return row;
  return row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1;
}

static void read_bytes(const weight_part_t *part, uint8_t *out, int64_t first, int64_t count) {
  if (part->data != NULL)
    memcpy(out, part->data + first, (size_t)count);
  else
    dummy_bytes(&part->dummy, part->tensor, out, first, count);
}

/* Returns a row of blocks in the layout of weight_source.h, or converted to the run type. */
static const void *block_row(matrix_t *matrix, int64_t row, uint8_t *scratch) {
  static const float codes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  weight_part_t *part = &matrix->parts[0];
  const int64_t groups = matrix->cols / MXFP4_COLS;
  const size_t wide = MXFP4_COLS * dtype_size(matrix->dtype);
  bool good = true;
  for (int64_t g = row * groups; g < (row + 1) * groups; g++) {
    uint8_t block[MXFP4_BYTES];
    float values[MXFP4_COLS];
    read_bytes(part, block, g * NIBBLE_BYTES, NIBBLE_BYTES);
    read_bytes(matrix->exponents, block + NIBBLE_BYTES, g, 1);
    int exponent = block[NIBBLE_BYTES];
    for (int i = 0; i < MXFP4_COLS; i++) {
      int code = block[i / 2] >> (i % 2 ? 4 : 0) & 15;
      float value = exponent == 255 ? NAN : ldexpf(codes[code & 7], exponent - 127);
      values[i] = code & 8 ? -value : value;
    }
    good = good && convert_finite(values, DTYPE_F32, MXFP4_COLS);
    if (matrix->format == WEIGHT_MXFP4) {
      memcpy(scratch + (size_t)(g - row * groups) * MXFP4_BYTES, block, MXFP4_BYTES);
    } else {
      uint8_t *out = scratch + (size_t)(g - row * groups) * wide;
      convert_row(out, matrix->dtype, values, DTYPE_F32, MXFP4_COLS);
      good = good && convert_finite(out, matrix->dtype, MXFP4_COLS);
    }
  }
  if (!good) atomic_store(&part->bad, true);
  return scratch;
}

/* The part that holds row *row of the whole stack; *row becomes the row of that tensor. */
static weight_part_t *find_part(const matrix_t *matrix, int64_t *row) {
  int64_t rows = matrix->rows / matrix->stack, expert = *row / rows, at = *row - expert * rows;
  const bool in_stacks = tensor_is_stack(matrix->parts[0].tensor);
  weight_part_t *part = &matrix->parts[in_stacks ? 0 : expert * matrix->parts_each];
  at = stored_row(matrix, at, rows);
  while (at >= part->tensor->rows) at -= part++->tensor->rows;
  at = tensor_stored_row(part->tensor, at);
  *row = in_stacks ? expert * part->tensor->rows + at : at;
  return part;
}

static const void *matrix_row(void *context, int64_t row, void *scratch) {
  matrix_t *matrix = context;
  weight_part_t *part = find_part(matrix, &row);
  if (matrix->exponents != NULL) return block_row(matrix, row, scratch);
  if (part->quant != NULL && matrix->format == WEIGHT_GROUPED_FP4) {
    fp4_row(part, row, matrix->cols, scratch);
    return scratch;
  }
  if (part->quant != NULL)
    return blocks_row(part, matrix->keeps_blocks, matrix->dtype, row, matrix->cols, scratch);
  if (matrix->format != WEIGHT_PLAIN) {
    if (!packed_grouped_row(part->packed, row, matrix->format, matrix->group, scratch))
      atomic_store(&part->bad, true);
    return scratch;
  }
  return part_row(part, matrix->dtype, row, matrix->cols, scratch);
}

static weight_format_t matrix_row_format(void *context, int64_t row) {
  return find_part(context, &row)->quant->format;
}

/* [cols, rows] as stored, from element `base` on, becomes [rows, cols], a block of stored rows at a
 * time. */
static void transpose_rows(weight_part_t *part, int64_t base, uint8_t *out, uint8_t *made) {
  const int64_t rows = part->tensor->rows, cols = part->tensor->cols;
  const size_t size = dtype_size(part->type);
  for (int64_t first = 0; first < cols; first += TRANSPOSE_BLOCK) {
    int64_t count = MIN(cols - first, TRANSPOSE_BLOCK);
    const uint8_t *in = made;
    if (part->data != NULL)
      in = part->data + (size_t)(base + first * rows) * size;
    else
      dummy_fill(&part->dummy, made, part->type, base + first * rows, count * rows);
    for (int64_t row = 0; row < rows; row++) {
      uint8_t *to = out + (size_t)(base + row * cols + first) * size;
      for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * size, in + (size_t)(i * rows + row) * size, size);
      }
    }
  }
}

static int transpose(weight_part_t *part, inferd_error_t *error) {
  const expected_tensor_t *tensor = part->tensor;
  size_t bytes = (size_t)tensor_elements(tensor) * dtype_size(part->type);
  size_t block = (size_t)tensor->rows * TRANSPOSE_BLOCK * dtype_size(part->type);
  uint8_t *made = part->data == NULL ? malloc(block) : NULL;
  part->transposed = malloc(bytes);
  if (part->transposed == NULL || (part->data == NULL && made == NULL)) {
    free(made);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory to transpose %s", tensor->name);
  }
  for (int64_t i = 0; i < tensor->stack; i++) {
    transpose_rows(part, i * tensor->rows * tensor->cols, part->transposed, made);
  }
  part->data = part->transposed;
  free(made);
  return 0;
}

uint64_t weights_sample_hash(uint64_t hash, const stored_tensor_t *tensor) {
  size_t step = tensor->bytes / 16 + 1;
  for (size_t at = 0; at < tensor->bytes; at += step)
    hash = fnv_64(hash, tensor->data + at, MIN(tensor->bytes - at, 8));
  return hash;
}

/* Adds name, shape, type and a sample of the data. */
static void add_hash(weight_loader_t *loader, const weight_part_t *part) {
  const expected_tensor_t *tensor = part->tensor;
  int64_t numbers[3] = {tensor->stack * tensor->rows, tensor->cols, (int64_t)part->type};
  uint64_t hash = fnv_64(loader->hash, tensor->name, strlen(tensor->name));
  hash = fnv_64(hash, numbers, sizeof(numbers));
  if (part->stored == NULL) {
    hash = fnv_64(hash, &part->dummy.key, sizeof(part->dummy.key));
  } else {
    hash = weights_sample_hash(hash, part->stored);
    if (part->packed != NULL) hash = weights_sample_hash(hash, part->packed->scales);
  }
  loader->hash = random_mix(hash);
}

/* Bytes of a matrix on the device. */
static size_t source_bytes(const ops_t *ops, const weight_source_t *source) {
  if (ops->weight_bytes != NULL) return ops->weight_bytes(source);
  size_t elements = (size_t)(source->rows * source->cols);
  return source->format == WEIGHT_MXFP4 ? elements / MXFP4_COLS * MXFP4_BYTES
                                        : elements * dtype_size(source->dtype);
}

static int close_parts(weight_loader_t *loader, matrix_t *matrix, int code, inferd_error_t *error) {
  for (int i = 0; i < matrix->num_parts; i++) {
    weight_part_t *part = &matrix->parts[i];
    if (code == 0 && atomic_load(&part->bad) && part->packed != NULL) {
      code = packed_not_finite(part->packed, loader->files, error);
    } else if (code == 0 && atomic_load(&part->bad)) {
      bool blocks = part->tensor->form == FORM_STACK_BLOCKS;
      bool narrowed = !blocks && part->type == DTYPE_F32 && loader->dtype != DTYPE_F32;
      code = error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s: holds NaN or infinity%s",
                       part->stored != NULL ? part->stored->name : part->tensor->name,
                       narrowed ? ", or a number that the chosen dtype cannot hold" : "");
    }
    if (code == 0) add_hash(loader, part);
    if (part->stored != NULL) weight_files_done(loader->files, part->stored);
    free(part->transposed);
    if (i == 0 || part->tensor != part[-1].tensor) /* K that is V, too, is two parts */
      loader->elements_done += tensor_elements(part->tensor);
  }
  free(matrix->parts);
  const model_options_t *options = loader->options;
  if (code == 0 && options->progress != NULL) {
    options->progress(options->progress_context,
                      (double)loader->elements_done / (double)loader->elements_total);
  }
  return code;
}

/* Lets the device have the rows as they are stored, if every part is quantised with the same groups
 * and the device takes that. The products then run in 8 bits, so not for a run in fp32. */
static void choose_format(const weight_loader_t *loader, matrix_t *matrix) {
  weight_format_t format = WEIGHT_PLAIN;
  int32_t group = 0;
  if (matrix->dtype == DTYPE_F32 || matrix->exponents != NULL) return;
  for (int i = 0; i < matrix->num_parts; i++) {
    int32_t own_group = 0;
    const packed_t *packed = matrix->parts[i].packed;
    weight_format_t own = packed != NULL ? packed_format(packed, &own_group) : WEIGHT_PLAIN;
    if (own == WEIGHT_PLAIN || (i > 0 && own_group != group)) return;
    if (i > 0 && own != format && (own == WEIGHT_GROUPED_FP8 || format == WEIGHT_GROUPED_FP8))
      return;
    format = i > 0 && own != format ? WEIGHT_GROUPED : own;
    group = own_group;
    packed_scales(packed, i == 0, &matrix->scales);
  }
  if ((loader->ops->weight_formats & 1U << format) == 0) return;
  matrix->format = format;
  matrix->group = group;
}

/* Opens the tensors of `roles`. Returns the number of parts, or ERR_NO_MEMORY. */
static int gather_parts(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                        int32_t layer, bool bias, matrix_t *matrix, inferd_error_t *error) {
  const expected_tensor_t *found[ROLES_MAX];
  int count = 0, copies = 1;
  CHECK_LE(num_roles, ROLES_MAX);
  matrix->stack = 1;
  for (int i = 0; i < num_roles; i++) {
    const expected_tensor_t *tensor = tensors_get(&loader->list, roles[i], layer, bias);
    if (tensor == NULL) continue;
    found[count++] = tensor;
    copies = tensor->copies;
    matrix->stack = tensor->stack > 1 ? tensor->stack : copies;
    matrix->rows += tensor->rows * matrix->stack;
    matrix->cols = tensor->cols;
    matrix->interleaved = tensor->interleaved;
    matrix->swapped = tensor->role == ROLE_UP_GATE;
  }
  if (count == 0) return 0;
  matrix->parts = calloc((size_t)(count * copies) + 1, sizeof(weight_part_t));
  if (matrix->parts == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for experts");
  matrix->parts_each = count;
  for (int expert = 0; expert < copies; expert++) {
    for (int i = 0; i < count; i++) {
      open_part(loader, found[i] + expert, &matrix->parts[matrix->num_parts++]);
    }
  }
  if (found[0]->form == FORM_STACK_BLOCKS) { /* the exponents' role follows that of the blocks */
    matrix->exponents = &matrix->parts[matrix->num_parts++];
    open_part(loader, tensors_get(&loader->list, found[0]->role + 1, layer, false),
              matrix->exponents);
    bool taken = loader->ops->weight_formats & 1U << WEIGHT_MXFP4 && matrix->dtype == DTYPE_BF16;
    matrix->format = taken ? WEIGHT_MXFP4 : WEIGHT_PLAIN;
  }
  if (loader->packed != NULL && !bias) choose_format(loader, matrix);
  return matrix->num_parts;
}

/* True when every part is of blocks that the device takes. */
static bool takes_all(const weight_loader_t *loader, const matrix_t *matrix) {
  for (int i = 0; i < matrix->num_parts; i++) {
    const quant_format_t *quant = matrix->parts[i].quant;
    if (quant == NULL || !(loader->ops->weight_formats & 1U << quant->format)) return false;
    if (matrix->parts[i].factors != NULL) return false;
  }
  return matrix->dtype == loader->dtype && matrix->dtype != DTYPE_F32; /* products in 8 bits */
}

/* True when every part is of NVFP4 blocks, with factors or without, and the device takes their
 * codes. */
static bool takes_fp4(const weight_loader_t *loader, const matrix_t *matrix) {
  for (int i = 0; i < matrix->num_parts; i++) {
    const quant_format_t *quant = matrix->parts[i].quant;
    if (quant == NULL || quant->format != WEIGHT_NVFP4) return false;
  }
  return matrix->dtype == loader->dtype && matrix->dtype != DTYPE_F32 &&
         loader->ops->weight_formats & 1U << WEIGHT_GROUPED_FP4;
}

int weight_loader_matrix(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, dtype_t dtype, bool keep_blocks, weight_t **out,
                         inferd_error_t *error) {
  matrix_t matrix = {.dtype = dtype};
  *out = NULL;
  int code = gather_parts(loader, roles, num_roles, layer, false, &matrix, error);
  if (code <= 0) return code;
  code = 0;
  matrix.keeps_blocks = keep_blocks && takes_all(loader, &matrix);
  if (matrix.keeps_blocks) {
    matrix.format = matrix.parts[0].quant->format;
  } else if (keep_blocks && takes_fp4(loader, &matrix)) {
    matrix.format = WEIGHT_GROUPED_FP4;
    matrix.group = matrix.parts[0].quant->group;
    matrix.scales.kind = SCALES_E4M3;
  }
  for (int i = 0; i < matrix.num_parts && code == 0 && loader->planned == NULL; i++) {
    form_t form = matrix.parts[i].tensor->form;
    bool transposed = form == FORM_TRANSPOSED || form == FORM_STACK_TRANSPOSED;
    if (transposed) code = transpose(&matrix.parts[i], error);
  }
  if (code == 0) {
    weight_source_t source = {.name = matrix.parts[0].tensor->name,
                              .rows = matrix.rows,
                              .cols = matrix.cols,
                              .stack = (int32_t)matrix.stack,
                              .format = matrix.format,
                              .dtype = matrix.dtype,
                              .group = matrix.group,
                              .scales = matrix.scales,
                              .row_format = matrix.keeps_blocks ? matrix_row_format : NULL,
                              .row = matrix_row,
                              .context = &matrix};
    shard_source_t whole;
    const shard_rows_t rows = shard_rows_of(loader->blueprint, roles[0], matrix.rows);
    weight_source_t quantised = source;
    if (loader->options->quantise_q8 && quantise_suits(loader->ops, &source))
      quantised = quantise_q8_0(&source);
    if (!shard_is_whole(loader->blueprint))
      code = shard_source_cut(&rows, loader->ops->ranks->panel_rows, &whole, &quantised, error);
    if (code == 0 && loader->planned != NULL) {
      *loader->planned += source_bytes(loader->ops, &quantised);
      free(matrix.parts);
      return 0;
    }
    if (code == 0) code = loader->ops->weight(loader->device, &quantised, out, error);
  }
  return close_parts(loader, &matrix, code, error);
}

int weight_loader_rows(weight_loader_t *loader, tensor_role_t role, int32_t layer, dtype_t dtype,
                       int64_t first, int64_t count, void **out, inferd_error_t *error) {
  matrix_t matrix = {.dtype = dtype};
  *out = NULL;
  int code = gather_parts(loader, &role, 1, layer, false, &matrix, error);
  CHECK(code != 0); /* the layouts of such models have the role */
  if (code < 0) return code;
  if (loader->planned != NULL) {
    free(matrix.parts);
    return 0;
  }
  matrix.format = WEIGHT_PLAIN;
  const size_t width = (size_t)matrix.cols * dtype_size(dtype);
  if (count == 0) count = matrix.rows;
  CHECK_LE(first + count, matrix.rows);
  uint8_t *rows = calloc((size_t)count, width);
  void *scratch = calloc((size_t)matrix.cols, sizeof(float));
  code = rows == NULL || scratch == NULL ? error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s",
                                                     matrix.parts[0].tensor->name)
                                         : 0;
  if (code == 0 && matrix.parts[0].tensor->form == FORM_TRANSPOSED)
    code = transpose(&matrix.parts[0], error);
  for (int64_t r = 0; r < count && code == 0; r++)
    memcpy(rows + (size_t)r * width, matrix_row(&matrix, first + r, scratch), width);
  free(scratch);
  code = close_parts(loader, &matrix, code, error);
  if (code != 0) {
    free(rows);
    return code;
  }
  *out = rows;
  return 0;
}

int weight_loader_pass(weight_loader_t *loader, const weight_source_t *source, weight_t **out,
                       inferd_error_t *error) {
  *out = NULL;
  if (loader->planned == NULL) return loader->ops->weight(loader->device, source, out, error);
  *loader->planned += source_bytes(loader->ops, source);
  return 0;
}

/* Appends the elements of one tensor, or of one expert of a stack. */
static size_t add_elements(const matrix_t *matrix, const expected_tensor_t *tensor,
                           const float *stored, vector_change_t change, float *out) {
  for (int64_t k = 0; k < tensor->rows; k++) {
    int64_t at = tensor_stored_row(tensor, stored_row(matrix, k, tensor->rows));
    float value = change.is_logarithm ? expf(stored[at]) : stored[at];
    out[k] = (value + change.add) * change.factor;
  }
  return (size_t)tensor->rows;
}

/* Vectors are rounded to the run type, as the matrices are, and handed over in fp32. Those of GGUF
 * files are float32 beside blocks, and stay so. The caller frees *out. */
static int vector_values(matrix_t *matrix, vector_change_t change, float **out,
                         inferd_error_t *error) {
  size_t count = (size_t)matrix->rows, filled = 0, first = 0;
  float *values = calloc(count, sizeof(float)), *stored = calloc(count, sizeof(float));
  float *scratch = calloc(count, sizeof(float));
  const bool good = values != NULL && stored != NULL && scratch != NULL;
  for (int i = 0; good && i < matrix->num_parts; i++) {
    int64_t n = matrix->parts[i].tensor->rows * matrix->parts[i].tensor->stack;
    const void *row = part_row(&matrix->parts[i], matrix->dtype, 0, n, scratch);
    convert_row(stored + first, DTYPE_F32, row, matrix->dtype, n);
    first += (size_t)n;
  }
  for (int64_t expert = 0; good && expert < matrix->parts[0].tensor->stack; expert++) {
    first = 0; /* of the stacks, expert by expert */
    for (int i = 0; i < matrix->num_parts; i++) {
      const expected_tensor_t *tensor = matrix->parts[i].tensor;
      const float *from = stored + first + expert * tensor->rows;
      filled += add_elements(matrix, tensor, from, change, values + filled);
      first += (size_t)(tensor->rows * tensor->stack);
    }
  }
  free(stored);
  free(scratch);
  *out = values;
  if (good) {
    CHECK_EQ(filled, count);
    return 0;
  }
  free(values);
  *out = NULL;
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a vector of %zu", count);
}

int weight_loader_values(weight_loader_t *loader, tensor_role_t role, int32_t layer, bool bias,
                         float **out, inferd_error_t *error) {
  matrix_t matrix = {.dtype = loader->is_gguf ? DTYPE_F32 : loader->dtype};
  int code = gather_parts(loader, &role, 1, layer, bias, &matrix, error);
  *out = NULL;
  CHECK(code != 0);
  if (code < 0) return code;
  code = vector_values(&matrix, (vector_change_t){.factor = 1}, out, error);
  code = close_parts(loader, &matrix, code, error);
  if (code == 0) return 0;
  free(*out);
  *out = NULL;
  return code;
}

int weight_loader_vector(weight_loader_t *loader, const tensor_role_t *roles, int num_roles,
                         int32_t layer, bool bias, vector_change_t change, vector_t **out,
                         inferd_error_t *error) {
  matrix_t matrix = {.dtype = loader->is_gguf || change.exact ? DTYPE_F32 : loader->dtype};
  *out = NULL;
  int code = gather_parts(loader, roles, num_roles, layer, bias, &matrix, error);
  if (code <= 0) return code;
  const shard_rows_t rows = shard_rows_of(loader->blueprint, roles[0], matrix.rows);
  if (loader->planned != NULL) {
    const int64_t count = rows.num_pieces > 0 ? shard_rows_count(&rows) : matrix.rows;
    *loader->planned += (size_t)count * sizeof(float);
    free(matrix.parts);
    return 0;
  }
  float *values = NULL;
  code = vector_values(&matrix, change, &values, error);
  if (code == 0)
    code = loader->ops->vector(loader->device, values, shard_vector_cut(&rows, matrix.rows, values),
                               out, error);
  free(values);
  return close_parts(loader, &matrix, code, error);
}

static int open_files(weight_loader_t *loader, const blueprint_t *blueprint,
                      inferd_error_t *error) {
  const family_t *family = family_by_name(blueprint->family, strlen(blueprint->family));
  int code = weight_files_open(loader->options->dir, &loader->files, error);
  if (code != 0) return code;
  loader->stored = calloc((size_t)loader->list.count, sizeof(stored_tensor_t *));
  loader->factors = calloc((size_t)loader->list.count, sizeof(stored_tensor_t *));
  if (loader->stored == NULL || loader->factors == NULL) {
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  }
  code = weights_check(loader, family->layout, blueprint, error);
  if (code == 0 && loader->kv_scales != NULL) {
    size_t bytes = 2 * (size_t)blueprint->num_layers * sizeof(float);
    loader->hash = random_mix(fnv_64(loader->hash, loader->kv_scales, bytes));
  }
  return code;
}

int weight_loader_open(weight_loader_t *loader, const ops_t *ops, device_t *device,
                       const blueprint_t *blueprint, const model_options_t *options,
                       inferd_error_t *error) {
  *loader =
      (weight_loader_t){.ops = ops, .device = device, .options = options, .blueprint = blueprint};
  loader->dtype = options->dtype >= 0 ? (dtype_t)options->dtype : blueprint->dtype;
  loader->hash = random_mix((uint64_t)loader->dtype | (uint64_t)options->quantise_q8 << 8);
  loader->elements_total = blueprint->num_parameters;
  loader->num_experts = blueprint->num_experts;
  loader->is_gguf = blueprint->gguf;
  int code = tensors_expect(blueprint, &loader->list, error);
  if (code == 0 && !options->dummy) code = open_files(loader, blueprint, error);
  if (code != 0) weight_loader_close(loader);
  return error_within(error, code, options->dir);
}

int weight_loader_finish(weight_loader_t *loader, inferd_error_t *error) {
  return loader->files != NULL ? weight_files_intact(loader->files, error) : 0;
}

void weight_loader_close(weight_loader_t *loader) {
  weight_files_close(loader->files);
  free(loader->stored);
  free(loader->factors);
  free(loader->packed);
  free(loader->kv_scales);
  tensors_free(&loader->list);
  *loader = (weight_loader_t){0};
}

/* ---- layers behind the pooling ---- */

typedef struct dense_rows {
  const stored_tensor_t *stored;
  dtype_t type;
  int64_t cols;
  atomic_bool bad; /* some element is not finite */
} dense_rows_t;

static const void *dense_row(void *context, int64_t row, void *scratch) {
  dense_rows_t *rows = context;
  const uint8_t *data = rows->stored->data + (size_t)(row * rows->cols) * dtype_size(rows->type);
  convert_row(scratch, DTYPE_F32, data, rows->type, rows->cols);
  if (!convert_finite(scratch, DTYPE_F32, rows->cols)) atomic_store(&rows->bad, true);
  return scratch;
}

/* A tensor of this shape; rank 1 if `cols` is 0. */
static int find_dense(const weight_files_t *files, const char *name, int64_t num_rows, int64_t cols,
                      dense_rows_t *out, inferd_error_t *error) {
  const stored_tensor_t *stored = weight_files_find(files, name);
  if (stored == NULL)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s is missing", name);
  bool fits = stored->rank == (cols > 0 ? 2 : 1) && stored->shape[0] == num_rows &&
              (cols == 0 || stored->shape[1] == cols);
  if (!fits)
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s is not of out_features %lld x in_features %lld", name, (long long)num_rows,
                     (long long)cols);
  int code = weights_check_type(stored, FORM_PLAIN, error);
  *out = (dense_rows_t){
      .stored = stored, .type = weights_stored_dtype(stored), .cols = cols > 0 ? cols : num_rows};
  return code;
}

static int read_dense(const ops_t *ops, device_t *device, const weight_files_t *files,
                      const dense_layer_t *layer, weight_t **weight, vector_t **bias,
                      inferd_error_t *error) {
  dense_rows_t rows, values;
  int code = find_dense(files, "linear.weight", layer->out, layer->in, &rows, error);
  if (code == 0 && layer->has_bias)
    code = find_dense(files, "linear.bias", layer->out, 0, &values, error);
  if (code != 0) return code;
  const weight_source_t source = {.name = "linear.weight",
                                  .rows = layer->out,
                                  .cols = layer->in,
                                  .dtype = DTYPE_F32,
                                  .row = dense_row,
                                  .context = &rows};
  code = ops->weight(device, &source, weight, error);
  bool bad = code == 0 && atomic_load(&rows.bad);
  if (code == 0 && layer->has_bias) {
    float *row = calloc((size_t)layer->out, sizeof *row);
    if (row == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a bias");
    code = ops->vector(device, dense_row(&values, 0, row), layer->out, bias, error);
    bad = bad || atomic_load(&values.bad);
    free(row);
  }
  if (code != 0 || !bad) return code;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "linear has a NaN or an infinity");
}

int weights_dense(const ops_t *ops, device_t *device, const char *dir, const dense_layer_t *layer,
                  size_t *planned, weight_t **weight, vector_t **bias, inferd_error_t *error) {
  char path[PATH_MAX];
  weight_files_t *files = NULL;
  snprintf(path, sizeof path, "%s/%s", dir, layer->path);
  if (device == NULL) {
    *planned += (size_t)layer->out * ((size_t)layer->in + 1) * sizeof(float);
    return 0;
  }
  int code = weight_files_open(path, &files, error);
  if (code == 0) code = read_dense(ops, device, files, layer, weight, bias, error);
  if (code == 0) code = weight_files_intact(files, error);
  weight_files_close(files);
  return error_within(error, code, layer->path);
}
