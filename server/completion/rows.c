/* rows.c: prompts of embeddings: base64 -> a file of safetensors -> rows of the model's width, each
 * with its key for the prefix cache.
 *
 * Stage 2 of 9. libuv's pool. Next: server/completion/build_requests.c.
 */
#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/text/base64.h"
#include "server/completion/dialect.h"
#include "server/completion/memory.h"
#include "server/completion/tensor.h"
#include "server/keys/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(row_key_t) == SHA256_BYTES, "a key is a digest");

enum { PLACE_MAX = 32 };

/* "prompt_embeds", or "prompt_embeds[1]" in a list. */
static void name_place(const completion_t *completion, const input_t *input,
                       char place[PLACE_MAX]) {
  const json_t *value = completion->params.prompt_embeds;
  const int index = (int)(input - completion->inputs);
  if (value->type == JSON_ARRAY)
    snprintf(place, PLACE_MAX, "prompt_embeds[%d]", index);
  else
    snprintf(place, PLACE_MAX, "prompt_embeds");
}

static int refuse(const completion_t *completion, const input_t *input, const char *reason) {
  char place[PLACE_MAX];
  name_place(completion, input, place);
  return error_set(&completion->intake->error, ERR_INVALID_VALUE, place, "Invalid '%s': %s.", place,
                   reason);
}

/* The matrix against the model. */
static int check_size(const completion_t *completion, const input_t *input,
                      const tensor_t *tensor) {
  const prompt_rows_info_t *info = completion->info->rows;
  inferd_error_t *error = &completion->intake->error;
  char reason[160];
  if (tensor->columns != info->width) {
    snprintf(reason, sizeof reason, "its rows have %lld values; the model's hidden size is %d",
             (long long)tensor->columns, (int)info->width);
    return refuse(completion, input, reason);
  }
  int code = completion_check_length(input, tensor->rows, false);
  if (code != 0) name_place(completion, input, error->param);
  return code;
}

/* The values and the key of each row. */
static int read_rows(completion_t *completion, input_t *input, const tensor_t *tensor) {
  const prompt_rows_info_t *info = completion->info->rows;
  float *values = input->row_memory;
  row_key_t *keys = (row_key_t *)(void *)(values + tensor->rows * tensor->columns);
  char reason[160];
  input->rows = (prompt_rows_t){.values = values, .keys = keys, .width = info->width};
  for (int64_t row = 0; row < tensor->rows; row++, values += tensor->columns) {
    if (atomic_load(&completion->cancelled))
      return error_set(&completion->intake->error, ERR_REQUEST_TIMEOUT, NULL,
                       "The request was cancelled.");
    const int64_t wrong = tensor_row(tensor, row, info->scale, values);
    if (wrong >= 0) {
      snprintf(reason, sizeof reason, "value %lld of row %lld is not finite", (long long)wrong,
               (long long)row);
      return refuse(completion, input, reason);
    }
    sha256(values, (size_t)tensor->columns * sizeof *values, keys[row].bytes);
  }
  return 0;
}

/* Takes the memory of the rows beside that of the file. */
static int take_memory(completion_t *completion, input_t *input, const tensor_t *tensor,
                       size_t beside) {
  size_t each, bytes, ids;
  const size_t rows = (size_t)tensor->rows;
  const bool fits = checked_mul((size_t)tensor->columns, sizeof(float), &each) &&
                    checked_mul(rows, each + sizeof(row_key_t), &bytes) &&
                    checked_mul(rows, sizeof *input->ids, &ids);
  if (!fits) return refuse(completion, input, "it is larger than memory");
  int code = completion_charge_ids(completion, bytes + ids + beside);
  if (code != 0) return code;
  input->row_memory = malloc(bytes);
  input->ids = calloc(rows, sizeof *input->ids);
  input->held += bytes + ids;
  if (input->row_memory != NULL && input->ids != NULL) return 0;
  return error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
}

static int read_file(completion_t *completion, input_t *input, const buffer_t *file) {
  request_t *request = &input->request;
  inferd_error_t why = {0};
  tensor_t tensor;
  int code = tensor_read(file->bytes, file->length, &tensor, &why);
  if (code == ERR_INVALID_VALUE) {
    char reason[ERROR_MESSAGE_MAX];
    snprintf(reason, sizeof reason, "the file %.*s", (int)sizeof reason - 64, why.message);
    return refuse(completion, input, reason);
  }
  if (code != 0) return error_set(&completion->intake->error, code, NULL, "%s", why.message);
  code = check_size(completion, input, &tensor);
  if (code == 0) code = take_memory(completion, input, &tensor, file->capacity);
  if (code == 0) code = read_rows(completion, input, &tensor);
  if (code != 0) return code;
  for (int64_t i = 0; i < tensor.rows; i++) input->ids[i] = PROMPT_ROW_ID;
  request->prompt_ids = input->ids;
  request->num_prompt_tokens = (int32_t)tensor.rows;
  request->rows = &input->rows;
  return 0;
}

int completion_take_rows(completion_t *completion, input_t *input, const prompt_t *prompt) {
  buffer_t file = {0};
  if (completion->dialect->describe != NULL)
    return error_set(&completion->intake->error, ERR_UNSUPPORTED_PARAMETER, "prompt_embeds",
                     "The parameter 'prompt_embeds' is not supported here: rows have neither text "
                     "nor ids.");
  int code = completion_charge_ids(completion, prompt->length);
  if (code != 0) return code;
  if (base64_append(&file, prompt->rows, prompt->length))
    code = read_file(completion, input, &file);
  else if (file.failed)
    code = error_set(&completion->intake->error, ERR_INTERNAL, NULL, "Out of memory.");
  else
    code = refuse(completion, input,
                  "it is no base64 (RFC 4648, padded, without line breaks), or cut off");
  buffer_free(&file);
  return code != 0 ? code : completion_charge_ids(completion, 0);
}
