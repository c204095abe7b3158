/* config_rope.c: every spelling of rotary settings in config.json becomes one rope_config_t.
 *
 * Old files have rope_theta and rope_scaling {type, ...}; newer ones rope_scaling {rope_type, ...};
 * files of transformers 5 have rope_parameters with the theta inside, flat or one dict per kind of
 * layer. Unknown keys are refused, because a model with wrong angles gives plausible but wrong
 * text. Any thread, no state.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

#include <math.h>
#include <string.h>

static const double THETA_MAX = 1e15, FACTOR_MAX = 1e6, FALLBACK_THETA = 1e4;
enum { PHI3_ORIGINAL_MAX = 4096 };

/* Keys that a rope dict may hold. */
static const char *const rope_keys[] = {
    "rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow", "original_max_position_embeddings", "attention_factor", "attn_factor", "truncate",
    "finetuned", "partial_rotary_factor", "short_factor", "long_factor", "short_mscale",
    "long_mscale", "mscale", "mscale_all_dim", "alpha",
    /* read_mrope */
    "mrope_section", "mrope_interleaved",
    "interleaved", /* beside mrope_interleaved in files of Qwen; nobody reads it */
};
/* Of families with query_growth. */
static const char *const growth_keys[] = {"llama_4_scaling_beta", "max_position_embeddings"};

static void check_keys(config_reader_t *reader, const family_t *family, const char *dict,
                       const json_t *scaling) {
  JSON_EACH(member, scaling) {
    bool known =
        json_named_one_of(member, rope_keys, ARRAY_LEN(rope_keys)) ||
        (family->query_growth && json_named_one_of(member, growth_keys, ARRAY_LEN(growth_keys)));
    char quoted[64];
    if (!known) {
      config_refuse(reader, dict, NULL, "has the key \"%s\", which is not supported",
                    error_quote(quoted, sizeof(quoted), member->key, member->key_length));
    }
  }
}

/* Phi-3 wrote su, and yarn by mistake, for longrope. */
static rope_type_t read_type(config_reader_t *reader, const family_t *family) {
  static const struct {
    const char *name;
    rope_type_t type;
  } types[] = {{"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
               {"llama3", ROPE_LLAMA3},   {"yarn", ROPE_YARN},     {"longrope", ROPE_LONGROPE},
               {"su", ROPE_LONGROPE},     {"mrope", ROPE_DEFAULT}};
  const json_t *type = json_get(reader->root, "rope_type");
  if (family->proportional > 0 && json_equals(type, "proportional")) return ROPE_PROPORTIONAL;
  if (type == NULL) type = json_get(reader->root, "type"); /* as in transformers */
  if (!json_is_given(type)) return ROPE_DEFAULT;
  if (family->longrope && json_equals(type, "yarn")) return ROPE_LONGROPE;
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    if (json_equals(type, types[i].name)) return types[i].type;
  }
  config_refuse(reader, "rope_type", type, "default, linear, dynamic, llama3, yarn, longrope");
  return ROPE_DEFAULT;
}

static void need(config_reader_t *reader, const char *key) {
  if (json_get(reader->root, key) == NULL) {
    config_refuse(reader, key, NULL, "is missing beside this rope_type");
  }
}

static void read_yarn(config_reader_t *reader, rope_config_t *rope) {
  rope->beta_fast = config_double(reader, KEYS("beta_fast"), 32, 0, 1e6, true);
  rope->beta_slow = config_double(reader, KEYS("beta_slow"), 1, 0, 1e6, true);
  rope->truncate = config_bool(reader, KEYS("truncate"), true);
  if (rope->beta_fast < rope->beta_slow) {
    config_refuse(reader, "beta_fast", NULL, "is %g, less than beta_slow, which is %g",
                  rope->beta_fast, rope->beta_slow);
  }
  if (rope->theta != 0 && rope->theta <= 1.0) {
    config_refuse(reader, "rope_theta", NULL, "is %g; yarn needs more than 1", rope->theta);
  }
  double all_dim = config_double(reader, KEYS("mscale_all_dim"), 0, 0, 1e3, false);
  rope->mscale_all_dim = all_dim;
  const json_t *given = json_get(reader->root, "attention_factor");
  if (json_is_given(given)) {
    rope->attention_factor = config_double(reader, KEYS("attention_factor"), 1, 0, 1e3, true);
    return;
  }
  double extra = config_double(reader, KEYS("attn_factor"), 1, 0, 1e3, true);
  double mscale = config_double(reader, KEYS("mscale"), 0, 0, 1e3, false);
  double grown = rope->factor > 1.0 ? 0.1 * log(rope->factor) : 0.0;
  bool both = mscale > 0 && all_dim > 0;
  double derived = both ? (mscale * grown + 1.0) / (all_dim * grown + 1.0) : grown + 1.0;
  rope->attention_factor = rope->factor > 1.0 ? derived * extra : 1.0;
}

static void read_llama3(config_reader_t *reader, rope_config_t *rope) {
  need(reader, "low_freq_factor");
  need(reader, "high_freq_factor");
  rope->low_freq_factor = config_double(reader, KEYS("low_freq_factor"), 1, 0, 1e6, true);
  rope->high_freq_factor = config_double(reader, KEYS("high_freq_factor"), 4, 0, 1e6, true);
  if (rope->high_freq_factor < rope->low_freq_factor) {
    config_refuse(reader, "high_freq_factor", NULL, "is %g, less than low_freq_factor, which is %g",
                  rope->high_freq_factor, rope->low_freq_factor);
  }
}

static void read_factors(config_reader_t *reader, const char *key, const rope_config_t *rope,
                         int32_t head_dim, float *out) {
  const json_t *list = json_get(reader->root, key);
  need(reader, key);
  if (list == NULL || reader->code != 0) return;
  if (list->type != JSON_ARRAY || list->count != (uint32_t)rope->dims / 2) {
    config_refuse(reader, key, NULL, "has %u values, expected %d (head_dim %d)",
                  list->type == JSON_ARRAY ? list->count : 0, rope->dims / 2, head_dim);
    return;
  }
  int32_t i = 0;
  JSON_EACH(value, list) {
    double factor;
    if (!json_double(value, &factor) || !isfinite(factor) || factor <= 0 || factor > FACTOR_MAX) {
      config_refuse(reader, key, value, "numbers above 0 and at most %g", FACTOR_MAX);
      return;
    }
    out[i++] = (float)factor;
  }
}

/* `reader` looks into the dict. The scale of cos and sin is sqrt(1 + ln(factor) / ln(original)) of
 * the stretch of the context, unless it is given. */
static void read_longrope(config_reader_t *reader, rope_config_t *rope, int32_t max_positions,
                          int32_t head_dim) {
  double stretch = (double)max_positions / rope->original_max;
  read_factors(reader, "short_factor", rope, head_dim, rope->short_factor);
  read_factors(reader, "long_factor", rope, head_dim, rope->long_factor);
  stretch = config_double(reader, KEYS("factor"), stretch, 0, FACTOR_MAX, true);
  double derived = 1.0;
  if (stretch > 1.0 && rope->original_max > 1)
    derived = sqrt(1.0 + log(stretch) / log((double)rope->original_max));
  const json_t *given = json_get(reader->root, "attention_factor");
  if (json_is_given(given)) {
    derived = config_double(reader, KEYS("attention_factor"), 1, 0, 1e3, true);
  }
  rope->short_scale = config_double(reader, KEYS("short_mscale"), derived, 0, 1e3, true);
  rope->long_scale = config_double(reader, KEYS("long_mscale"), derived, 0, 1e3, true);
}

/* Reads the keys of the dict; `reader` looks into it. */
static void read_scaling(config_reader_t *reader, const family_t *family, int32_t head_dim,
                         rope_config_t *rope) {
  rope->type = read_type(reader, family);
  rope->theta = config_double(reader, KEYS("rope_theta"), rope->theta, 0, THETA_MAX, true);
  double alpha = config_double(reader, KEYS("alpha"), 0, 0, 1e9, false);
  if (alpha > 0 && (!family->rope_alpha || rope->type != ROPE_DYNAMIC))
    config_refuse(reader, "alpha", NULL, "is supported beside dynamic of Hunyuan alone");
  if (alpha > 0) {
    rope->type = ROPE_DEFAULT;
    rope->theta *= pow(alpha, (double)head_dim / (head_dim - 2));
    return;
  }
  if (rope->type == ROPE_DEFAULT || rope->type == ROPE_LONGROPE) return;
  if (rope->type == ROPE_PROPORTIONAL) {
    rope->factor = config_double(reader, KEYS("factor"), 1, 0, FACTOR_MAX, true);
    return;
  }
  need(reader, "factor");
  rope->factor = config_double(reader, KEYS("factor"), 1, 1, FACTOR_MAX, false);
  if (rope->type == ROPE_LLAMA3) read_llama3(reader, rope);
  if (rope->type == ROPE_YARN) read_yarn(reader, rope);
  const char *name;
  if (rope->type != ROPE_YARN && config_find(reader, KEYS("mscale", "mscale_all_dim"), &name)) {
    config_refuse(reader, name, NULL, "is supported beside yarn alone");
  }
  if (family->query_growth)
    rope->query_growth = config_double(reader, KEYS("llama_4_scaling_beta"), 0, 0, 1e3, false);
}

/* Returns rope_scaling or rope_parameters; NULL if neither has a value. If both exist, the
 * reference implementation takes the first, but merges them for families with two sets of angles.
 */
static const json_t *find_outer_dict(config_reader_t *reader, const family_t *family,
                                     const char **name) {
  static const char *const names[] = {"rope_scaling", "rope_parameters"};
  const json_t *found = NULL;
  *name = names[0];
  for (int i = 0; i < 2; i++) {
    const json_t *dict = json_get(reader->root, names[i]);
    if (!json_is_given(dict)) continue;
    if (dict->type != JSON_OBJECT) {
      config_refuse(reader, names[i], dict, "an object or null");
    } else if (dict->count > 0 && found == NULL) {
      found = dict;
      *name = names[i];
    } else if (dict->count > 0 && family->local_theta != 0) {
      config_refuse(reader, names[i], dict, "absent or null beside rope_scaling for %s",
                    family->architecture);
    }
  }
  return found;
}

/* The dict of a kind of layer, or NULL. Its theta and partial factor have precedence over those of
 * the top level. In a
 * nested dict every key is a kind of layer; a family with one set of angles takes full_attention
 * alone. A flat dict is that of the full layers. */
static const json_t *find_dict(config_reader_t *reader, const family_t *family, bool sliding,
                               const char **name) {
  const json_t *dict = find_outer_dict(reader, family, name);
  if (dict == NULL || reader->code != 0) return NULL;
  const json_t *full = json_get(dict, "full_attention");
  const json_t *local = json_get(dict, "sliding_attention");
  if (full == NULL && local == NULL) return sliding ? NULL : dict;
  bool known = dict->count == (local != NULL ? 2U : 1U) && full != NULL &&
               full->type == JSON_OBJECT && (local == NULL || local->type == JSON_OBJECT);
  if (known && (family->local_theta != 0 || local == NULL)) return sliding ? local : full;
  config_refuse(reader, *name, dict, "%s",
                family->local_theta != 0
                    ? "full_attention and sliding_attention, each an object"
                    : "one set for all layers; different angles per kind of layer are not");
  return NULL;
}

/* Sets the defaults of the configuration class of gpt-oss, for files without the dict. */
static void take_oss_default(rope_config_t *rope, int64_t *original) {
  rope->type = ROPE_YARN;
  rope->factor = 32;
  rope->beta_fast = 32;
  rope->beta_slow = 1;
  rope->truncate = false;
  rope->attention_factor = 0.1 * log(rope->factor) + 1.0;
  *original = 4096;
}

/* `reader` looks into the dict, or has no root. Only GGUF files say by a key whether sections are
 * interleaved, and text models around which other programs put a tower have no other sign of them:
 * in safetensors files of these the keys say nothing, as in the reference. */
static void read_mrope(config_reader_t *reader, const family_t *family, rope_config_t *rope) {
  const json_t *list = json_get(reader->root, "mrope_section");
  int64_t sum = 0;
  int32_t i = 0;
  rope->mrope = family->mrope;
  memcpy(rope->sections, family->mrope_sections, sizeof rope->sections);
  if (rope->mrope == MROPE_NONE && (reader->gguf == NULL || list == NULL)) return;
  if (rope->mrope == MROPE_NONE)
    rope->mrope =
        config_bool(reader, KEYS("mrope_interleaved"), false) ? MROPE_INTERLEAVED : MROPE_PARTS;
  if (list != NULL && (list->type != JSON_ARRAY || list->count != 3)) {
    config_refuse(reader, "mrope_section", list, "three numbers: of time, line and column");
    return;
  }
  if (list != NULL) {
    JSON_EACH(value, list) {
      int64_t pairs = -1;
      if (!json_int64(value, &pairs) || pairs < 0 || pairs > rope->dims / 2)
        config_refuse(reader, "mrope_section", value, "0..%d pairs", rope->dims / 2);
      rope->sections[i++] = (int32_t)pairs;
    }
  }
  for (i = 0; i < 3; i++) sum += rope->sections[i];
  if (rope->mrope == MROPE_PARTS && sum != rope->dims / 2)
    config_refuse(reader, "mrope_section", list,
                  "three numbers whose sum is %d, the pairs of a head", rope->dims / 2);
}

/* Reads the angles of one kind of layer; *rope has the defaults. */
static void read_angles(config_reader_t *reader, const family_t *family, bool sliding,
                        int32_t max_positions, int32_t head_dim, rope_config_t *rope) {
  const char *name;
  double partial = family->rotary_factor != 0 ? family->rotary_factor : 1.0;
  partial = config_double(reader, KEYS("rotary_pct", "partial_rotary_factor"), partial, 0, 1, true);
  if (family->rotary_dim_key && config_get(reader, "partial_rotary_factor") == NULL)
    partial = (double)config_int(reader, KEYS("rotary_dim"), head_dim, 2, head_dim) / head_dim;
  if (family->rotary_dim != 0)
    partial =
        (double)config_int(reader, KEYS("rotary_dim"), family->rotary_dim, 2, head_dim) / head_dim;
  int64_t original = max_positions;
  const json_t *dict = find_dict(reader, family, sliding, &name);
  config_reader_t inner = *reader;
  inner.root = dict;
  inner.outer = NULL;
  if (dict != NULL && family->rotary_dim != 0)
    config_refuse(reader, name, dict, "absent or null for %s", family->architecture);
  if (dict != NULL) {
    check_keys(&inner, family, name, dict);
    read_scaling(&inner, family, head_dim, rope);
    if (!family->whole_factor)
      partial = config_double(&inner, KEYS("partial_rotary_factor"), partial, 0, 1, true);
    original = config_int(&inner, KEYS("original_max_position_embeddings"), original, 1, 1 << 24);
    reader->code = inner.code;
  } else if (family->expert_keys == EXPERTS_GPT_OSS) {
    take_oss_default(rope, &original);
  } else if (family->proportional > 0 && !sliding) {
    rope->type = ROPE_PROPORTIONAL;
    partial = family->proportional; /* class default */
  }
  bool proportional = rope->type == ROPE_PROPORTIONAL;
  if (partial != 1.0 && !family->longrope && family->rotary_factor == 0 &&
      family->rotary_dim == 0 && !proportional) {
    config_refuse(reader, "partial_rotary_factor", NULL, "is %g, supported: 1 for %s", partial,
                  family->architecture);
  }
  /* Phi-3 has this key beside the dict. Its value there has precedence, even its default. */
  if (family->longrope) original = PHI3_ORIGINAL_MAX;
  original = config_int(reader, KEYS("original_max_position_embeddings"), original, 1, 1 << 24);
  if (rope->theta == 0.0) {
    config_refuse(reader, "rope_theta", NULL, "is missing and %s has no agreed default",
                  family->architecture);
  }
  rope->original_max = (int32_t)original;
  rope->dims = proportional ? head_dim : (int32_t)(head_dim * partial + 1e-9);
  rope->moving = (int32_t)floor(partial * head_dim / 2) * 2;
  if (rope->dims < 2 || rope->dims % 2 != 0) {
    config_refuse(reader, "partial_rotary_factor", NULL,
                  "%g leaves %d rotated dimensions of head_dim %d; an even number is needed",
                  partial, rope->dims, head_dim);
  }
  if (rope->type == ROPE_DYNAMIC && rope->dims < 4) {
    config_refuse(reader, "rope_type", NULL, "dynamic needs at least 4 rotated dimensions");
  }
  if (rope->type == ROPE_LONGROPE && reader->code == 0) {
    inner.code = 0;
    read_longrope(&inner, rope, max_positions, head_dim);
    reader->code = inner.code;
  }
}

/* True when a dict has the old key for the type beside the new one, with another type. */
static bool has_two_types(const json_t *dict) {
  const json_t *type = json_get(dict, "rope_type"), *old = json_get(dict, "type");
  if (type == NULL || old == NULL || type->type != JSON_STRING || old->type != JSON_STRING)
    return false;
  if (json_equals(old, "mrope") || (json_equals(type, "longrope") && json_equals(old, "su")))
    return false;
  return type->length != old->length || memcmp(type->text, old->text, type->length) != 0;
}

/* Says where a file can be read in two ways, and which is taken. */
static void note_readings(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const char *name;
  const json_t *dict = find_outer_dict(reader, family, &name);
  if (dict == NULL) return;
  const json_t *full = json_get(dict, "full_attention"),
               *local = json_get(dict, "sliding_attention");
  const bool is_new = strcmp(name, "rope_parameters") == 0, nested = full != NULL || local != NULL;
  if (family->local_theta != 0 && is_new && !nested)
    blueprint_note(bp, "warning: rope_parameters has no full_attention and sliding_attention: its "
                       "values are taken, where transformers takes its defaults");
  if (family->local_theta == 0 && nested)
    blueprint_note(bp,
                   "warning: the %s of full_attention are taken for all layers, where "
                   "transformers takes its defaults",
                   name);
  const json_t *const dicts[] = {dict, full, local};
  for (size_t i = 0; i < ARRAY_LEN(dicts); i++) {
    const json_t *type = dicts[i] != NULL ? json_get(dicts[i], "rope_type") : NULL;
    char shown[32];
    if (type != NULL && has_two_types(dicts[i]))
      blueprint_note(bp, "warning: %s has another \"type\" than \"rope_type\", which is taken: %s",
                     name, error_quote(shown, sizeof shown, type->text, type->length));
  }
}

/* Mistral 4: the part of a whole head that is rotated, which its sizes say, too. */
static void check_whole_factor(config_reader_t *reader, const blueprint_t *bp) {
  const double own = (double)bp->rope_dim / bp->head_dim;
  const double part = config_double(reader, KEYS("partial_rotary_factor"), own, 0, 1, true);
  if ((int32_t)(part * bp->head_dim) != (int32_t)(own * bp->head_dim))
    config_refuse(reader, "partial_rotary_factor", NULL,
                  "is %g, but qk_rope_head_dim %d of %d dimensions are %g", part, bp->rope_dim,
                  bp->head_dim, own);
}

/* Granite SWA: a base of the rotation for every layer, 0 = none. Layers of a kind, with a window or
 * without, must have one. */
static void read_layer_thetas(config_reader_t *reader, blueprint_t *bp) {
  const json_t *list = config_get(reader, "layer_rope_theta");
  double thetas[2] = {0, 0}; /* of the layers without a window, of those with one */
  int32_t layer = 0;
  if (!json_is_given(list)) return;
  if (list->type != JSON_ARRAY || list->count != (uint32_t)bp->num_layers) {
    config_refuse(reader, "layer_rope_theta", NULL, "must be a list of %d numbers, found %s of %u",
                  bp->num_layers, json_type_name(list), list->count);
    return;
  }
  JSON_EACH(item, list) {
    uint8_t *flags = &bp->layer_flags[layer++];
    double *known = &thetas[(*flags & LAYER_SLIDES) != 0], theta;
    if (!json_double(item, &theta) || !isfinite(theta) || theta < 0 || theta > THETA_MAX) {
      config_refuse(reader, "layer_rope_theta", item, "0..%g for every layer", THETA_MAX);
      return;
    }
    if (theta > 0 && *known > 0 && theta != *known) {
      config_refuse(reader, "layer_rope_theta", item,
                    "%g, as in layers before with %s window, or 0 (layer %d)", *known,
                    *flags & LAYER_SLIDES ? "a" : "no", layer - 1);
      return;
    }
    if (theta > 0)
      *known = theta;
    else
      *flags |= LAYER_NO_ROPE;
  }
  bp->rope.theta = thetas[0] > 0 ? thetas[0] : thetas[1];
  if (thetas[0] > 0 && thetas[1] > 0 && thetas[0] != thetas[1]) {
    bp->local_rope = bp->rope;
    bp->local_rope.theta = thetas[1];
  }
}

static bool any_rotates(const blueprint_t *bp) {
  for (int32_t i = 0; i < bp->num_layers; i++)
    if (!(bp->layer_flags[i] & LAYER_NO_ROPE)) return true;
  return false;
}

void config_read_rope(config_reader_t *reader, const family_t *family, int32_t max_positions,
                      blueprint_t *blueprint) {
  rope_config_t start = {
      .type = ROPE_DEFAULT, .factor = 1.0, .truncate = true, .reversed = family->rope_reversed};
  rope_config_t *rope = &blueprint->rope, *local = &blueprint->local_rope;
  *rope = *local = start;
  if (!any_rotates(blueprint)) { /* what the keys say changes nothing */
    rope->theta = FALLBACK_THETA;
    rope->dims = blueprint->head_dim;
    local->type = ROPE_NONE;
    return;
  }
  blueprint->rope_pairs = family->rope_pairs;
  rope->theta = config_double(reader, KEYS("rope_theta", "rotary_emb_base"), family->rope_theta, 0,
                              THETA_MAX, true);
  if (family->rotary_dim != 0) rope->theta = family->rope_theta; /* no key changes it */
  local->theta = rope->theta;
  if (family->local_theta > 0)
    local->theta = config_double(reader, KEYS("rope_local_base_freq"), family->local_theta, 0,
                                 THETA_MAX, true);
  int32_t head_dim = family->latent ? blueprint->rope_dim : blueprint->head_dim;
  int32_t full_dim = blueprint->full_head_dim > 0 ? blueprint->full_head_dim : head_dim;
  if (family->rope_interleave_key)
    blueprint->rope_pairs = config_bool(reader, KEYS("rope_interleave"), family->rope_pairs);
  read_angles(reader, family, false, max_positions, full_dim, rope);
  /* A flat dict gives its theta to all layers, its scaling to the full ones alone. */
  const char *name;
  const json_t *dict = reader->code == 0 ? find_outer_dict(reader, family, &name) : NULL;
  config_reader_t inner = *reader;
  inner.root = dict;
  inner.outer = NULL;
  if (reader->code == 0) read_mrope(&inner, family, rope);
  if (reader->code == 0 && family->whole_factor) check_whole_factor(&inner, blueprint);
  reader->code = inner.code;
  if (family->local_theta < 0 && dict != NULL && json_get(dict, "full_attention") == NULL)
    local->theta = rope->theta;
  if (family->local_theta != 0)
    read_angles(reader, family, true, max_positions, head_dim, local);
  else
    local->type = ROPE_NONE;
  if (family->layer_thetas && reader->code == 0) read_layer_thetas(reader, blueprint);
  if (reader->code == 0) note_readings(reader, family, blueprint);
}
