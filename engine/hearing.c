/* hearing.c: the rules of transcripts, of the files of a model. At the start; nothing runs later.
 */
#include "engine/hearing.h"

#include "engine/internal.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/family.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 22 };
static const char HEARS[] = "WhisperForConditionalGeneration";

/* Whether a tower of sounds stands beside the model. */
static bool has_tower(const char *model_dir) {
  tower_plan_t plan;
  inferd_error_t ignored;
  return tower_plan_read(model_dir, &plan, &ignored) == 0 && plan.family != NULL &&
         plan.family->hears;
}

bool engine_may_hear(const char *model_dir) {
  model_file_t file = {0};
  inferd_error_t ignored;
  if (has_tower(model_dir)) return true;
  if (model_file_read(model_dir, "config.json", FILE_BYTES_MAX, &json_limits_model, &file,
                      &ignored) != 0 ||
      file.doc == NULL)
    return false;
  const json_t *names = json_get(json_root(file.doc), "architectures");
  const bool hears = names != NULL && names->type == JSON_ARRAY && json_first(names) != NULL &&
                     json_equals(json_first(names), HEARS);
  model_file_free(&file);
  return hears;
}

static int read_file(const engine_t *engine, const char *name, model_file_t *out,
                     inferd_error_t *error) {
  int code = model_file_read(engine->options.model_dir, name, FILE_BYTES_MAX, &json_limits_model,
                             out, error);
  if (code == 0 && out->doc == NULL)
    code = error_set(error, ERR_MODEL_MISSING, NULL, "%s: no %s, which has the ids of transcripts",
                     engine->options.model_dir, name);
  return code;
}

int hearing_read(engine_t *engine, inferd_error_t *error) {
  model_file_t generation = {0}, config = {0};
  if (strcmp(engine->blueprint.architecture, HEARS) != 0) return 0;
  int code = read_file(engine, "generation_config.json", &generation, error);
  if (code == 0) code = read_file(engine, "config.json", &config, error);
  speech_t *speech = code == 0 ? calloc(1, sizeof *speech) : NULL;
  if (code == 0 && speech == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the rules of transcripts");
  if (code == 0)
    code = speech_read(json_root(generation.doc), json_root(config.doc),
                       engine->blueprint.vocab_size, speech, error);
  if (config.doc != NULL) model_file_free(&config);
  if (generation.doc != NULL) model_file_free(&generation);
  if (code == 0)
    engine->speech = speech;
  else
    free(speech);
  return code;
}

void hearing_free(engine_t *engine) {
  free(engine->speech);
  engine->speech = NULL;
}
