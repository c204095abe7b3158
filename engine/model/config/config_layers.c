/* config_layers.c: properties of single layers: sliding windows, and no rotation.
 *
 * layer_types decides when it is there; otherwise the family's rule does. Any thread, no state.
 */
#include "engine/model/config/config.h"

#include <stdlib.h>
#include <string.h>

/* Where an indexer chooses keys, transformers 5.23 says so of every layer. */
static void read_layer_types(config_reader_t *reader, const family_t *family, const json_t *types,
                             blueprint_t *bp) {
  const char *const full = family->index_top > 0 ? "indexed_attention" : "full_attention";
  if (types->type != JSON_ARRAY || types->count != (uint32_t)bp->num_layers) {
    config_refuse(reader, "layer_types", NULL, "must be a list of %d names, found %s of %u",
                  bp->num_layers, json_type_name(types), types->count);
    return;
  }
  int32_t layer = 0;
  JSON_EACH(type, types) {
    bool slides = json_equals(type, "sliding_attention");
    if (!slides && !json_equals(type, "full_attention") && !json_equals(type, full)) {
      char quoted[64] = "?";
      if (type->type == JSON_STRING) {
        error_quote(quoted, sizeof(quoted), type->text, type->length);
      }
      config_refuse(reader, "layer_types", NULL,
                    "has \"%s\" at layer %d, supported: full_attention, sliding_attention", quoted,
                    layer);
    }
    bp->layer_flags[layer++] |= slides ? LAYER_SLIDES : 0;
  }
}

/* The reference implementation reads layer_types of some families only. For other families the list
 * must agree with the rule of the family. */
static void check_layer_types(config_reader_t *reader, const family_t *family, const json_t *types,
                              bool slides, blueprint_t *bp) {
  read_layer_types(reader, family, types, bp);
  for (int32_t i = 0; i < bp->num_layers && reader->code == 0; i++) {
    if (((bp->layer_flags[i] & LAYER_SLIDES) != 0) == slides) continue;
    config_refuse(reader, "layer_types", NULL,
                  "has \"%s_attention\" at layer %d, supported: %s "
                  "for %s",
                  slides ? "full" : "sliding", i,
                  slides ? "sliding_attention beside sliding_window" : "full_attention",
                  family->architecture);
  }
}

/* The rule of a family for files without layer_types. */
static bool slides_by_rule(config_reader_t *reader, const family_t *family, int32_t layer) {
  int64_t from, pattern;
  switch (family->window_rule) {
  case WINDOW_ALL:
  case WINDOW_LISTED: return true;
  case WINDOW_BEHIND: return layer % family->window_pattern != 0;
  case WINDOW_EVEN: return layer % 2 == 0;
  case WINDOW_UPPER:
  case WINDOW_FROM:
    from = config_int_or_null(reader, KEYS("max_window_layers"),
                              family->window_rule == WINDOW_FROM ? family->num_layers : 28, 0, 0,
                              INT32_MAX);
    return layer >= from;
  case WINDOW_LOCAL:
    pattern = config_int(reader, KEYS("global_attn_every_n_layers"), family->window_pattern, 1,
                         MODEL_LAYERS_MAX);
    return layer % pattern != 0;
  case WINDOW_PATTERN:
    /* Command A+: dense layers in front have a pattern of their own. */
    from = family->expert_keys == EXPERTS_COHERE
               ? config_int(reader, KEYS("first_k_dense_replace"), 0, 0, MODEL_LAYERS_MAX)
               : 0;
    if (layer < from)
      return (layer + 1) % config_int(reader, KEYS("prefix_dense_sliding_window_pattern"), 1, 1,
                                      MODEL_LAYERS_MAX) !=
             0;
    layer -= (int32_t)from;
    pattern = config_int(
        reader,
        KEYS("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"),
        family->window_pattern, 1, MODEL_LAYERS_MAX);
    return (layer + 1) % pattern != 0;
  default: return false;
  }
}

/* GPT-Neo: [[names, how often], ...]; without the list `global` and `local` twelve times. */
static void read_attention_types(config_reader_t *reader, blueprint_t *bp) {
  const json_t *types = config_get(reader, "attention_types");
  int32_t layer = 0;
  const bool given = json_is_given(types);
  bool good = given ? types->type == JSON_ARRAY : bp->num_layers == 24;
  for (; !given && good && layer < 24; layer++)
    if (layer % 2 == 1) bp->layer_flags[layer] |= LAYER_SLIDES;
  JSON_EACH(item, given && good ? types : NULL) {
    const bool pair = item->type == JSON_ARRAY && item->count == 2;
    const json_t *names = pair ? json_first(item) : NULL;
    int64_t count = 0;
    good = good && pair && names->type == JSON_ARRAY && names->count > 0 &&
           json_int64(json_next(names), &count) && count <= MODEL_LAYERS_MAX;
    for (int64_t i = 0; good && i < count; i++) {
      JSON_EACH(name, names) {
        const bool slides = json_equals(name, "local");
        good = good && (slides || json_equals(name, "global")) && layer < bp->num_layers;
        if (good) bp->layer_flags[layer++] |= slides ? LAYER_SLIDES : 0;
      }
    }
  }
  if (!good || layer != bp->num_layers)
    config_refuse(reader, "attention_types", types,
                  "[[names, number], ...] of %d layers, each global or local", bp->num_layers);
}

static void read_window(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  if (family->window_rule == WINDOW_REFUSED &&
      config_bool(reader, KEYS("use_sliding_window"), false)) {
    config_refuse(reader, "use_sliding_window", config_get(reader, "use_sliding_window"),
                  "false for %s", family->architecture);
  }
  const json_t *types = config_get(reader, "layer_types");
  if (types != NULL && types->type == JSON_NULL) types = NULL;
  if (family->window_rule == WINDOW_NEVER || family->window_rule == WINDOW_REFUSED) {
    if (types != NULL) check_layer_types(reader, family, types, false, bp);
    return;
  }
  const bool typed = family->window_rule == WINDOW_TYPES;
  const char *const *keys = typed                                 ? KEYS("window_size")
                            : family->window_rule == WINDOW_LOCAL ? KEYS("local_attention")
                                                                  : KEYS("sliding_window");
  int64_t window = config_int_or_null(reader, keys, family->window, 0, 0, INT32_MAX);
  if (family->window_rule == WINDOW_UPPER &&
      !config_bool(reader, KEYS("use_sliding_window"), false)) {
    window = 0;
  }
  if (typed) {
    read_attention_types(reader, bp);
  } else if (types != NULL && family->window_rule == WINDOW_ALL && window > 0) {
    check_layer_types(reader, family, types, true, bp);
  } else if (types != NULL) {
    read_layer_types(reader, family, types, bp);
  } else {
    for (int32_t i = 0; i < bp->num_layers; i++) {
      if (window > 0 && slides_by_rule(reader, family, i)) bp->layer_flags[i] |= LAYER_SLIDES;
    }
  }
  bool any = memchr(bp->layer_flags, LAYER_SLIDES, (size_t)bp->num_layers) != NULL;
  if (any && window == 0) {
    config_refuse(reader, "sliding_window", NULL,
                  "is null or off, but layer_types has sliding_attention");
  }
  bp->window = any ? (int32_t)window : 0;
}

/* Layers that see the whole context may have no rotation beside layers with windows. */
static void read_full_layers(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  int64_t window =
      config_int_or_null(reader, KEYS("sliding_window"), family->window, 0, 0, INT32_MAX);
  if (family->full_rule == FULL_UNROTATED_BESIDE_WINDOWS && window == 0) return;
  for (int32_t i = 0; i < bp->num_layers; i++) {
    if (!(bp->layer_flags[i] & LAYER_SLIDES)) bp->layer_flags[i] |= LAYER_NO_ROPE;
  }
}

/* SmolLM 3: 0 in no_rope_layers (sic) is a layer without rotation; without the list every fourth.
 */
static void read_no_rope(config_reader_t *reader, blueprint_t *bp) {
  const json_t *list = config_get(reader, "no_rope_layers");
  int64_t every = config_int(reader, KEYS("no_rope_layer_interval"), 4, 1, MODEL_LAYERS_MAX);
  int32_t layer = 0;
  if (!json_is_given(list)) {
    for (; layer < bp->num_layers; layer++) {
      if ((layer + 1) % every == 0) bp->layer_flags[layer] |= LAYER_NO_ROPE;
    }
    return;
  }
  if (list->type != JSON_ARRAY || list->count != (uint32_t)bp->num_layers) {
    config_refuse(reader, "no_rope_layers", NULL, "must be a list of %d numbers, found %s of %u",
                  bp->num_layers, json_type_name(list), list->count);
    return;
  }
  JSON_EACH(item, list) {
    int64_t flag;
    bool on;
    if (json_bool(item, &on)) {
      flag = on;
    } else if (!json_int64(item, &flag) || flag < 0 || flag > 1) {
      config_refuse(reader, "no_rope_layers", item, "0 or 1 for every layer");
      return;
    }
    if (flag == 0) bp->layer_flags[layer] |= LAYER_NO_ROPE;
    layer++;
  }
}

void config_read_layers(config_reader_t *reader, const family_t *family, blueprint_t *blueprint) {
  blueprint->layer_flags = calloc((size_t)blueprint->num_layers + 1, 1); /* with that of mtp.h */
  if (blueprint->layer_flags == NULL) {
    reader->code = error_set(reader->error, ERR_NO_MEMORY, NULL, "no memory for the layer list");
    return;
  }
  if (family->mixer_keys != MIXERS_NONE) return; /* config_mixer.c reads their layer_types */
  read_window(reader, family, blueprint);
  if (family->full_rule != FULL_ROTATED) read_full_layers(reader, family, blueprint);
  if (family->no_rope_keys) read_no_rope(reader, blueprint);
}
