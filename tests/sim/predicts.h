/* predicts.h: the layer that predicts (predict.h of the engine), in the simulator.
 *
 * For scenarios with SIM_MTP. A row of the model holds the hash of the ids up to its token. The
 * layer may be given no other row, and no other token behind it. One thread.
 */
#ifndef INFERD_TESTS_SIM_PREDICTS_H
#define INFERD_TESTS_SIM_PREDICTS_H

#include "tests/sim/sim.h"

/* Whether a batch is one of the layer, and not a step of the model. */
bool predicts_runs(const batch_t *batch);
/* The batch begins: its places and ids must be those of sequences that run. */
void predicts_begin(const batch_t *batch);
/* A row of the model or of the layer that goes to the host: `prefix` is its hash. */
void predicts_read(float *row, int32_t width, uint64_t prefix);
/* The rows that the host gives for the tokens of this batch are those of the model, or those that
 * left the layer there before; each with the token behind makes the latter, which are kept for the
 * selected rows. */
void predicts_take(const batch_t *batch, const float *rows, int32_t width);
/* What was kept of selected row `index`. */
uint64_t predicts_kept(int32_t index);

#endif
