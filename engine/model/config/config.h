/* config.h: the reader of config.json: its parts share one document and the first error.
 *
 * Getters take a list of alternative keys, give the default when none is present, and check the
 * range. After the first error they only return defaults, so that the code of a caller is a list of
 * keys; it checks `code` once at the end. One thread per reader.
 */
#ifndef INFERD_ENGINE_MODEL_CONFIG_CONFIG_H
#define INFERD_ENGINE_MODEL_CONFIG_CONFIG_H

#include "engine/base/json.h"
#include "engine/model/families/family.h"

typedef struct config_reader {
  const char *file;    /* "config.json", for messages */
  const json_t *root;  /* object that the keys are looked up in */
  const char *gguf;    /* the architecture of a GGUF file whose metadata are read, or NULL */
  bool encoder;        /* the encoder before a decoder is read, not the decoder */
  const json_t *outer; /* has the keys that `root` lacks, or NULL (text_config of a wrapper) */
  bool is_own;         /* `outer` is wrapper_t.own */
  int code;            /* 0 or the first error */
  inferd_error_t *error;
} config_reader_t;

/* Of every file that config_reader_t reads; config.json of Nemotron-H has an Infinity. */
extern const json_limits_t config_limits;

/* Alternative names of one key, first one wins; NULL ends. */
#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The value of the first key present (null counts), its name in *name; NULL = absent. */
const json_t *config_find(const config_reader_t *reader, const char *const *keys,
                          const char **name);
int64_t config_int(config_reader_t *reader, const char *const *keys, int64_t absent, int64_t min,
                   int64_t max);
/* As config_int, but an explicit null gives `when_null`. */
int64_t config_int_or_null(config_reader_t *reader, const char *const *keys, int64_t absent,
                           int64_t when_null, int64_t min, int64_t max);
/* An integer from 1 on, or a list of the same one for every layer. */
int32_t config_uniform_int(config_reader_t *reader, const char *key, int32_t absent, int32_t max);
/* min <= value <= max, or min < value when `open`. */
double config_double(config_reader_t *reader, const char *const *keys, double absent, double min,
                     double max, bool open);
bool config_bool(config_reader_t *reader, const char *const *keys, bool absent);
/* Records ERR_MODEL_MALFORMED: `FILE: "key" is VALUE, supported: ...`; `value` may be NULL. */
void config_refuse(config_reader_t *reader, const char *key, const json_t *value,
                   const char *supported, ...) __attribute__((format(printf, 4, 5)));

/* As json_get on the root, then on the outer object. */
const json_t *config_get(const config_reader_t *reader, const char *key);

/* Of a wrapper: looks into its text_config from now on. Returns the family of the text model, or
 * NULL. wrappers.c. */
const family_t *config_enter_wrapper(config_reader_t *reader, const wrapper_t *wrapper);
/* Whether the head of a model is the embedding; the key of a wrapper, NULL = none, stands outside.
 */
bool config_ties(config_reader_t *reader, const wrapper_t *wrapper, const family_t *family);

/* Finds the layers with a sliding window and those without rotation; allocates
 * blueprint->layer_flags. config_layers.c. */
void config_read_layers(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Scores that depend on distances, behind the layers. config_alibi.c. */
void config_read_distances(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* What Gemma 4 has of its own, behind the layers; its experts. config_gemma4.c. */
void config_read_gemma4(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
void config_read_beside(config_reader_t *reader, blueprint_t *blueprint);
/* K and V that layers share, `absent` of them by default; embeddings of every layer. */
void config_read_sharing(config_reader_t *reader, int32_t absent, blueprint_t *blueprint);
void config_read_layer_embeddings(config_reader_t *reader, const family_t *family,
                                  blueprint_t *blueprint);
/* What Gemma 3n has of its own, behind the layers. config_gemma3n.c. */
void config_read_gemma3n(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Of a head of EAGLE-3. config_eagle.c. */
void config_read_eagle(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Layers with a state, and what else families that have them spell their own way. config_mixer.c.
 */
void config_read_mixer(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Layers of a model whose num_hidden_layers is absent. */
int32_t config_count_layers(config_reader_t *reader, const family_t *family);
/* Experts, and the layers that have them. config_experts.c. */
void config_read_experts(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Heads of latent attention; the scale of its scores, which needs the rope. config_latent.c. */
void config_read_latent(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
void config_read_indexer(config_reader_t *reader, const family_t *family, blueprint_t *bp);
void config_scale_latent(blueprint_t *blueprint);
/* The same for experts that are scored by a router with a rule of its own. config_router.c. */
void config_read_router(config_reader_t *reader, const family_t *family, blueprint_t *blueprint);
/* Marks the layers that are not dense, by the rule of the family. config_router.c. */
void config_read_dense_layers(config_reader_t *reader, const family_t *family,
                              blueprint_t *blueprint);
/* How the weights are quantised, from config.json or the file beside it that older programs write;
 * refuses what packed.h does not read. config_quantization.c. */
void config_read_quantization(config_reader_t *reader, const char *dir, const family_t *family,
                              blueprint_t *blueprint);
/* Fills blueprint->rope; head_dim, max_position_embeddings are known. config_rope.c. */
void config_read_rope(config_reader_t *reader, const family_t *family, int32_t max_positions,
                      blueprint_t *blueprint);
/* The keys of DeBERTa; after config_read_encoder. config_deberta.c. */
void config_read_deberta(config_reader_t *reader, const family_t *family, blueprint_t *bp);
/* Of models of two stacks: the keys of the sizes of a stack, NULL-terminated; what the decoder has
 * of its own; of generation_config.json what is for such a decoder. config_cross.c. */
const char *const *config_layer_keys(const config_reader_t *reader, const family_t *family);
const char *const *config_head_keys(const family_t *family);
const char *const *config_mlp_keys(const family_t *family);
void config_read_cross(config_reader_t *reader, const char *dir, const family_t *family,
                       blueprint_t *blueprint);
void config_read_cross_defaults(config_reader_t *reader, blueprint_t *blueprint);
/* The activation of T5's MLP, and whether it has a gate. config_t5.c. */
void config_read_t5_mlp(config_reader_t *reader, const family_t *family, blueprint_t *bp);
/* What encoders have beside the rest: directions, types, positions, labels. config_encoder.c. */
void config_read_encoder(config_reader_t *reader, const family_t *family, label_head_t head,
                         blueprint_t *blueprint);
/* Ids of `reader`, one or a list, added to the union. config_generation.c. */
void config_read_eos(config_reader_t *reader, blueprint_t *blueprint);
/* generation_config.json of `dir`, if there is one. */
int config_read_generation(const char *dir, blueprint_t *blueprint, inferd_error_t *error);

#endif
