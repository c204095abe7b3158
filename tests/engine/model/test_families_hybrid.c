/* test_families_hybrid.c: what families that mix blocks of several kinds read from config.json, and
 * what they refuse. Their logits are compared in test_parity.c.
 */
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

#define ARCHITECTURE(name) "{\"architectures\":[\"" name "\"]"

static blueprint_t blueprint;
static inferd_error_t error;

/* The status of reading a config of these members. */
static int read_text(const char *text) {
  maker_t maker;
  maker_open(&maker);
  snprintf(maker.config, sizeof(maker.config), "%s", text);
  maker_write_config(&maker);
  error = (inferd_error_t){0};
  int status = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  maker_close(&maker);
  return status;
}

static void good(const char *text) {
  ASSERT_EQ_FOR(read_text(text), 0, "%s: %s", text, error.message);
}

static void bad(const char *text, const char *part) {
  ASSERT_EQ_FOR(read_text(text), ERR_MODEL_MALFORMED, "%s: %s", text, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

Test(families_hybrid, nemotron_h_has_one_block_a_layer) {
  const uint8_t still = LAYER_NO_ROPE;
  const uint8_t flags[4] = {LAYER_MIXER | LAYER_NO_ATTENTION | LAYER_NO_MLP | still,
                            LAYER_NO_ATTENTION | LAYER_EXPERTS | still, LAYER_NO_MLP | still,
                            LAYER_NO_ATTENTION | still};
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"ME*-\"}");
  ASSERT_EQ(blueprint.num_layers, 4);
  cr_assert_arr_eq(blueprint.layer_flags, flags, 4);
  ASSERT_EQ(blueprint.activation, ACTIVATION_RELU2);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"layers_block_type\":[\"linear_attention\",\"moe\","
                                            "\"full_attention\",\"mlp\"]}");
  cr_assert_arr_eq(blueprint.layer_flags, flags, 4);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*X\"}",
      "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*\","
                                           "\"num_hidden_layers\":3}",
      "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") "}", "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"MM\"}", "attention");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*E\","
                                           "\"moe_latent_size\":512}",
      "moe_latent_size");
}
