/* kernels.c: chooses the instruction-set tier; see kernels.h.
 *
 * This file has the order of preference of the tiers. Called while a device is opened, never during
 * a step.
 */
#include "engine/cpu/isa/kernels.h"

#include <stdio.h>
#include <string.h>

enum { NUM_TIERS = 10, NAMES_MAX = 96, QUOTE_MAX = 40 };

static const char *const tier_names[NUM_TIERS] = {"amx",     "avx512bf16", "avx512vnni", "avx512",
                                                  "avxvnni", "avx2",       "neoni8mm",   "neondot",
                                                  "neon",    "portable"};

static void list_tiers(const kernels_t *const *tiers, char *out, size_t capacity) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < NUM_TIERS; i++) {
    if (tiers[i] == NULL || !tiers[i]->supported()) continue;
    int n = snprintf(out + used, capacity - used, "%s%s", used ? ", " : "", tiers[i]->name);
    if (n > 0) used += (size_t)n < capacity - used ? (size_t)n : capacity - used - 1;
  }
}

const kernels_t *kernels_find(const char *isa, inferd_error_t *error) {
  const kernels_t *const tiers[NUM_TIERS] = {
      kernels_amx,  kernels_avx512bf16, kernels_avx512vnni, kernels_avx512, kernels_avxvnni,
      kernels_avx2, kernels_neoni8mm,   kernels_neondot,    kernels_neon,   kernels_portable};
  if (isa == NULL || strcmp(isa, "auto") == 0) {
    /* On Intel vdpbf16ps has a quarter of the rate that it has on AMD: half the rate of plain FMA.
     */
#if defined(__x86_64__)
    if (__builtin_cpu_is("intel") && !(kernels_amx != NULL && kernels_amx->supported()) &&
        kernels_avx512 != NULL && kernels_avx512->supported())
      return kernels_avx512vnni != NULL && kernels_avx512vnni->supported() ? kernels_avx512vnni
                                                                           : kernels_avx512;
#endif
    for (int i = 0; i < NUM_TIERS; i++)
      if (tiers[i] != NULL && tiers[i]->supported()) return tiers[i];
  }
  char have[NAMES_MAX], quoted[QUOTE_MAX];
  list_tiers(tiers, have, sizeof have);
  for (int i = 0; isa != NULL && i < NUM_TIERS; i++) {
    if (strcmp(isa, tier_names[i]) != 0) continue;
    if (tiers[i] != NULL && tiers[i]->supported()) return tiers[i];
    error_set(error, ERR_CONFIGURATION, "isa",
              "isa \"%s\": this machine or this build lacks it; there is %s", isa, have);
    return NULL;
  }
  error_set(
      error, ERR_CONFIGURATION, "isa", "isa \"%s\" is unknown; there is %s",
      error_quote(quoted, sizeof quoted, isa != NULL ? isa : "", isa != NULL ? strlen(isa) : 0),
      have);
  return NULL;
}
