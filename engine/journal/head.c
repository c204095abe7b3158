/* head.c: the options of an engine and what it is, as lines; see head.h. */
#include "engine/journal/head.h"

#include "engine/internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every option that a plan or a token depends on. NUMBER: of any integer type, and bool. */
#define OPTIONS(NUMBER, REAL, TEXT)                                                                \
  NUMBER(dummy_weights)                                                                            \
  NUMBER(no_images)                                                                                \
  NUMBER(no_sounds)                                                                                \
  NUMBER(skip_tokenizer)                                                                           \
  NUMBER(quantise_q8)                                                                              \
  TEXT(dtype)                                                                                      \
  NUMBER(embedding.task)                                                                           \
  NUMBER(embedding.pooling)                                                                        \
  NUMBER(embedding.matryoshka)                                                                     \
  NUMBER(add_ranks)                                                                                \
  NUMBER(cut_layers)                                                                               \
  NUMBER(host_experts)                                                                             \
  NUMBER(batch_invariant)                                                                          \
  NUMBER(max_model_len)                                                                            \
  NUMBER(kv_fp8)                                                                                   \
  NUMBER(kv_int8)                                                                                  \
  NUMBER(block_size)                                                                               \
  NUMBER(num_blocks)                                                                               \
  NUMBER(num_snapshots)                                                                            \
  NUMBER(swap_space_bytes)                                                                         \
  NUMBER(enable_prefix_caching)                                                                    \
  NUMBER(prefix_cache_bytes)                                                                       \
  NUMBER(max_num_seqs)                                                                             \
  NUMBER(max_num_batched_tokens)                                                                   \
  NUMBER(long_prefill_token_threshold)                                                             \
  NUMBER(max_step_ms)                                                                              \
  NUMBER(enable_chunked_prefill)                                                                   \
  NUMBER(short_prompts_pass)                                                                       \
  NUMBER(draft.tokens_max)                                                                         \
  NUMBER(draft.match_min)                                                                          \
  NUMBER(draft.match_max)                                                                          \
  NUMBER(draft.predicts)                                                                           \
  NUMBER(draft.longest)                                                                            \
  TEXT(draft_model_dir)                                                                            \
  NUMBER(mask_units)                                                                               \
  NUMBER(max_loras)                                                                                \
  NUMBER(max_lora_rank)                                                                            \
  NUMBER(priority_policy)                                                                          \
  NUMBER(fair_share)                                                                               \
  NUMBER(slo_policy)                                                                               \
  NUMBER(max_skips)                                                                                \
  NUMBER(max_preemptions)                                                                          \
  NUMBER(queue_time_tokens)                                                                        \
  NUMBER(preemption_mode)                                                                          \
  REAL(watermark)                                                                                  \
  NUMBER(max_queue_requests)                                                                       \
  NUMBER(max_logprobs)                                                                             \
  NUMBER(seed)

/* ---- writing ---- */

static void put_line(buffer_t *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put_line(buffer_t *out, const char *name, const char *format, ...) {
  char value[PATH_MAX + 64];
  va_list list;
  va_start(list, format);
  vsnprintf(value, sizeof value, format, list);
  va_end(list);
  for (char *at = value; *at != '\0'; at++)
    if (*at == '\n') *at = ' ';
  buffer_text(out, name);
  buffer_char(out, ' ');
  buffer_text(out, value);
  buffer_char(out, '\n');
}

static const char *kernels_of(const engine_info_t *info) {
  const char *comma = strchr(info->device, ',');
  return comma != NULL ? comma + 2 : info->device;
}

void head_write(const engine_t *engine, buffer_t *out) {
  engine_options_t now = engine->options, *options = &now;
  const engine_info_t *info = &engine->info;
  now.max_model_len = info->max_model_len;
  now.num_blocks = info->num_blocks;
  now.block_size = info->block_size;
  now.num_snapshots = engine->scheduler->options.num_snapshots;
  put_line(out, "version", "%s", INFERD_VERSION);
  put_line(out, "commit", "%s", INFERD_COMMIT);
  put_line(out, "model", "%s", options->model_dir);
  put_line(out, "weights", "%016" PRIx64, info->weights_hash);
  put_line(out, "backend", "%s", info->backend);
  put_line(out, "kernels", "%s", kernels_of(info));
  put_line(out, "type", "%s", info->dtype);
  put_line(out, "ranks", "%d", info->num_ranks);
  put_line(out, "replicas", "%d", info->num_replicas);
  put_line(out, "mask_threads", "%d", engine->constrain.threads != NULL);
  put_line(out, "cache_file", "%d", options->prefix_cache_file != NULL);
#define NUMBER(field) put_line(out, #field, "%lld", (long long)options->field);
#define REAL(field) put_line(out, #field, "%.17g", options->field);
#define TEXT(field)                                                                                \
  if (options->field != NULL) put_line(out, #field, "%s", options->field);
  OPTIONS(NUMBER, REAL, TEXT)
#undef NUMBER
#undef REAL
#undef TEXT
}

/* ---- reading ---- */

bool head_value(const char *text, const char *name, char *out, size_t size) {
  size_t length = strlen(name);
  for (const char *line = text; *line != '\0';) {
    size_t bytes = strcspn(line, "\n");
    if (bytes > length && strncmp(line, name, length) == 0 && line[length] == ' ') {
      snprintf(out, size, "%.*s", (int)(bytes - length - 1), line + length + 1);
      return true;
    }
    line += bytes + (line[bytes] != '\0');
  }
  out[0] = '\0';
  return false;
}

static bool read_number(const char *text, const char *name, long long *out, bool *bad) {
  char value[64], *end = NULL;
  if (!head_value(text, name, value, sizeof value)) return false;
  *out = strtoll(value, &end, 10);
  *bad = *bad || end == value || *end != '\0';
  return true;
}

static bool read_real(const char *text, const char *name, double *out, bool *bad) {
  char value[64], *end = NULL;
  if (!head_value(text, name, value, sizeof value)) return false;
  *out = strtod(value, &end);
  *bad = *bad || end == value || *end != '\0';
  return true;
}

/* Bounds of what is cast to a type of C, or used as an index: all else the engine checks. */
static bool is_sound(const engine_options_t *options) {
  return options->embedding.task <= TASK_POOL && options->embedding.pooling <= POOLING_EACH &&
         options->preemption_mode <= PREEMPT_SWAP && options->draft.tokens_max >= 0 &&
         options->draft.tokens_max <= DRAFT_TOKENS_MAX && options->max_num_seqs > 0 &&
         options->num_blocks > 1 && options->max_loras >= 0 && options->max_logprobs >= 0 &&
         options->max_model_len > 0 && options->num_snapshots >= 0;
}

int head_read(const char *text, engine_options_t *options, char *room, size_t room_bytes,
              inferd_error_t *error) {
  long long number;
  double real;
  bool bad = false;
  size_t used = 0;
#define NUMBER(field)                                                                              \
  if (read_number(text, #field, &number, &bad)) options->field = (__typeof__(options->field))number;
#define REAL(field)                                                                                \
  if (read_real(text, #field, &real, &bad)) options->field = real;
#define TEXT(field)                                                                                \
  if (head_value(text, #field, room + used, room_bytes - used)) {                                  \
    options->field = room + used;                                                                  \
    used += strlen(room + used) + 1;                                                               \
  }
  OPTIONS(NUMBER, REAL, TEXT)
#undef NUMBER
#undef REAL
#undef TEXT
  if (!bad && is_sound(options)) return 0;
  return error_set(error, ERR_CONFIGURATION, "journal", "the journal has damaged options");
}
