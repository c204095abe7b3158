/* classifier.c: config.json, or a GGUF file: names of labels, and what makes probabilities of
 * scores.
 *
 * Reference: vLLM, whose order this is: the kind of problem, then what sentence-transformers wrote,
 * then sigmoid for one label and softmax for more. Any thread, no state.
 */
#include "engine/model/config/classifier.h"

#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 24 };

/* The keys of older and of newer sentence-transformers. */
static const json_t *find_function(const config_reader_t *reader) {
  const json_t *newer = config_get(reader, "sentence_transformers");
  const json_t *function =
      newer != NULL && newer->type == JSON_OBJECT ? json_get(newer, "activation_fn") : NULL;
  return json_is_given(function) ? function
                                 : config_get(reader, "sbert_ce_default_activation_function");
}

static void read_activation(config_reader_t *reader, int32_t num_labels, classifier_files_t *out) {
  static const struct {
    const char *name;
    score_activation_t activation;
  } known[] = {{"torch.nn.modules.linear.Identity", SCORE_IDENTITY},
               {"torch.nn.modules.activation.Sigmoid", SCORE_SIGMOID},
               {"torch.nn.modules.activation.Softmax", SCORE_SOFTMAX},
               {"torch.nn.modules.activation.Tanh", SCORE_TANH}};
  const json_t *problem = config_get(reader, "problem_type"), *function = find_function(reader);
  out->activation = num_labels > 1 ? SCORE_SOFTMAX : SCORE_SIGMOID;
  if (json_equals(problem, "regression")) {
    out->activation = SCORE_IDENTITY;
  } else if (json_equals(problem, "multi_label_classification")) {
    out->activation = SCORE_SIGMOID;
  } else if (json_is_given(function) && !json_equals(problem, "single_label_classification")) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
      if (!json_equals(function, known[i].name)) continue;
      out->activation = known[i].activation;
      return;
    }
    config_refuse(reader, "activation_fn", function,
                  "Identity, Sigmoid, Softmax, Tanh of torch.nn.modules");
  }
}

/* The names lie behind the pointers to them. A label without a name is LABEL_i. */
static void read_labels(config_reader_t *reader, int32_t num_labels, classifier_files_t *out) {
  const json_t *names = config_get(reader, "id2label");
  bool given = names != NULL && names->type == JSON_OBJECT;
  char key[16], absent[24];
  size_t count = (size_t)num_labels, bytes = count * (sizeof *out->labels + sizeof absent);
  for (int32_t i = 0; given && i < num_labels; i++) {
    snprintf(key, sizeof key, "%d", i);
    const json_t *name = json_get(names, key);
    if (name != NULL && name->type == JSON_STRING) bytes += name->length + 1;
  }
  out->labels = calloc(1, bytes);
  if (out->labels == NULL) {
    reader->code = error_set(reader->error, ERR_NO_MEMORY, NULL, "no memory for labels");
    return;
  }
  char *text = (char *)(out->labels + count);
  for (int32_t i = 0; i < num_labels; i++) {
    snprintf(key, sizeof key, "%d", i);
    snprintf(absent, sizeof absent, "LABEL_%d", i);
    const json_t *name = given ? json_get(names, key) : NULL;
    bool named = name != NULL && name->type == JSON_STRING;
    size_t length = named ? name->length : strlen(absent);
    memcpy(text, named ? name->text : absent, length);
    out->labels[i] = text;
    text += length + 1;
  }
}

/* The same of a GGUF file. */
static int read_gguf(const char *path, int32_t num_labels, classifier_files_t *out,
                     inferd_error_t *error) {
  gguf_t *gguf;
  buffer_t json = {0};
  json_doc_t *doc = NULL;
  char key[128], index[24];
  const char *text = "";
  size_t at = 0, length;
  int code = gguf_open(path, false, &gguf, error);
  if (code != 0) return code;
  const gguf_value_t *architecture = gguf_get(gguf, "general.architecture");
  bool named = gguf_next_string(architecture, &at, &text, &length) && length < 64;
  snprintf(key, sizeof key, "%.*s.classifier.output_labels", named ? (int)length : 0, text);
  const gguf_value_t *names = gguf_get(gguf, key);
  buffer_text(&json, "{\"id2label\":{");
  at = 0;
  for (int32_t i = 0; i < num_labels && gguf_next_string(names, &at, &text, &length); i++) {
    snprintf(index, sizeof index, "%s\"%d\":", i > 0 ? "," : "", i);
    buffer_text(&json, index);
    buffer_quote(&json, text, length);
  }
  buffer_text(&json, "}}");
  if (json.failed) code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for labels");
  if (code == 0) code = json_parse(json.data, json.length, &config_limits, &doc, error);
  if (code == 0) {
    config_reader_t reader = {.file = path, .root = json_root(doc), .error = error};
    read_activation(&reader, num_labels, out);
    if (num_labels > 0) read_labels(&reader, num_labels, out);
    code = reader.code;
  }
  json_free(doc);
  buffer_free(&json);
  gguf_close(gguf);
  return code;
}

/* [no, yes]. */
static void read_answers(config_reader_t *reader, classifier_files_t *out) {
  const json_t *given = config_get(reader, "classifier_from_token");
  int n = 0;
  if (!json_is_given(given)) return;
  if (given->type == JSON_ARRAY && given->count == 2) {
    JSON_EACH(token, given) {
      if (token->type != JSON_STRING || token->length == 0 || token->length >= ANSWER_BYTES_MAX)
        break;
      memcpy(out->answers[n], token->text, token->length);
      out->answers[n++][token->length] = '\0';
    }
  }
  if (n != 2)
    config_refuse(reader, "classifier_from_token", given, "two tokens, such as [\"no\", \"yes\"]");
}

int classifier_read(const char *dir, int32_t num_labels, classifier_files_t *out,
                    inferd_error_t *error) {
  char path[PATH_MAX];
  model_file_t file;
  *out = (classifier_files_t){.activation = SCORE_SIGMOID, .answers = {"no", "yes"}};
  int code = gguf_find(dir, path, sizeof path, error);
  if (code != 0) return code < 0 ? code : read_gguf(path, num_labels, out, error);
  code = model_file_read(dir, "config.json", CONFIG_BYTES_MAX, &config_limits, &file, error);
  if (code != 0 || file.doc == NULL) return error_within(error, code, dir);
  config_reader_t reader = {.file = "config.json", .root = json_root(file.doc), .error = error};
  read_activation(&reader, num_labels, out);
  if (reader.code == 0) read_answers(&reader, out);
  if (reader.code == 0 && num_labels > 0) read_labels(&reader, num_labels, out);
  model_file_free(&file);
  return error_within(error, reader.code, dir);
}
