/* config_checks.h: reads a config.json that a test spells, and expects that it is taken or refused.
 *
 * For test programs of one thread: the blueprint and the error are those of the last config.
 */
#ifndef INFERD_TESTS_ENGINE_MODEL_CONFIG_CHECKS_H
#define INFERD_TESTS_ENGINE_MODEL_CONFIG_CHECKS_H

#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

#define ARCHITECTURE(name) "{\"architectures\":[\"" name "\"]"

static blueprint_t blueprint;
static inferd_error_t error;

/* The status of reading a config of these members. */
static inline int read_text(const char *text) {
  maker_t maker;
  maker_open(&maker);
  snprintf(maker.config, sizeof(maker.config), "%s", text);
  maker_write_config(&maker);
  error = (inferd_error_t){0};
  int status = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  maker_close(&maker);
  return status;
}

static inline void good(const char *text) {
  ASSERT_EQ_FOR(read_text(text), 0, "%s: %s", text, error.message);
}

static inline void bad(const char *text, const char *part) {
  ASSERT_EQ_FOR(read_text(text), ERR_MODEL_MALFORMED, "%s: %s", text, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

#endif
