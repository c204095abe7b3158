/* sampler.h: one row of logits -> one token id and its logprobs, stage 7 of 9.
 *
 * A pure function of its row: every back end that samples on the CPU calls it from any of its
 * threads, one row per call. It allocates nothing, has no state except the scratch, and its order
 * of summation depends on the row alone. Order of operations: (1) grammar mask; (2) raw logprobs;
 * (3) allowed ids, bad words; (4) min_tokens, logit_bias; (5) penalties, rules of
 * transcripts; (6) temperature; (7) min_p; (8) top_k; (9) top_p; (10) draw.
 */
#ifndef INFERD_ENGINE_SAMPLE_SAMPLER_H
#define INFERD_ENGINE_SAMPLE_SAMPLER_H

#include "engine/device/ops.h"

#include <stddef.h>
#include <stdint.h>

/* Below this temperature the id of the largest logit is chosen, on ties the lowest; min_p, top_k
 * and top_p are not used. */
#define SAMPLER_GREEDY_BELOW 1e-5f

/* Stands for a logprob of -infinity; smaller logprobs are reported as this value. */
#define SAMPLER_LOGPROB_MIN (-9999.0f)

/* Returns the bytes of scratch for one thread, about 13 per vocabulary entry. The caller allocates
 * them once, aligned to 64 bytes. The scratch keeps no data between calls. */
size_t sampler_scratch_bytes(int32_t vocab);

/* Fills *row->result from logits[vocab] (fp32, after the model's softcap), which it may overwrite.
 * vocab >= 1. result->id is always in [0, vocab). Parameters with ids outside it are ignored.
 *
 * result->status:
 *   0
 *   ERR_INTERNAL    a logit is NaN, or all are -infinity: the model gave no usable result
 *   ERR_NO_CHOICE   grammar mask, allowed ids, bad words and min_tokens together leave no id to
 *                   draw
 * If the status is not 0 the id is 0 and must not be used.
 *
 * Logits of +infinity share all probability evenly.
 * result->top (num_top >= 0) has the num_top best ids by raw logprob, on ties the lower ids first;
 * then the ids of params->logprob_token_ids that are not among them (except in rows that score).
 *
 * The draw is the Gumbel-max trick: argmax p / e with e ~ Exp(1), computed as argmax l / T - log(e)
 * in double, on ties the lowest id. top_k keeps all ids that tie with the k-th; of equal
 * probabilities at the edge of top_p the lower ids are kept; min_p keeps l >= l_max + T log(min_p).
 */
void sampler_row(float *logits, int32_t vocab, const sample_row_t *row, void *scratch);

#endif
