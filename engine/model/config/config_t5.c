/* config_t5.c: keys that T5 spells in its own way.
 *
 * Any thread, no state. Reference: transformers 5.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"

#include <string.h>

void config_read_t5_mlp(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  static const struct {
    const char *name;
    bool gated;
    activation_t kind;
  } known[] = {{"relu", false, ACTIVATION_RELU},
               {"gelu", false, ACTIVATION_GELU},
               {"gelu_new", false, ACTIVATION_GELU_TANH},
               {"gated-gelu", true, ACTIVATION_GELU_TANH_MUL}, /* the form with tanh: gelu_new */
               {"gated-gelu_new", true, ACTIVATION_GELU_TANH_MUL},
               {"gated-silu", true, ACTIVATION_SILU_MUL}};
  const json_t *value = config_get(reader, "feed_forward_proj");
  for (size_t i = 0; i < ARRAY_LEN(known); i++) {
    if (value != NULL ? !json_equals(value, known[i].name)
                      : strcmp(family->activation, known[i].name) != 0)
      continue;
    bp->activation = known[i].kind;
    bp->gated_mlp = known[i].gated;
    return;
  }
  config_refuse(reader, "feed_forward_proj", value,
                "relu, gelu, gelu_new, gated-gelu, gated-gelu_new, gated-silu");
}
