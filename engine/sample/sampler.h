/* sampler.h: one row of logits -> one token id and its logprobs, stage 7 of 9.
 *
 * A pure function of its row: every back end that samples on the CPU calls it from any of its
 * threads, one row a call. No allocation, no state but the scratch, no order of summation that
 * depends on anything but the row. Order of operations: grammar mask; raw logprobs; allowed ids,
 * bad words; min_tokens, logit_bias; penalties; temperature; min_p; top_k; top_p; draw.
 */
#ifndef INFERD_ENGINE_SAMPLE_SAMPLER_H
#define INFERD_ENGINE_SAMPLE_SAMPLER_H

#include "engine/device/ops.h"

#include <stddef.h>
#include <stdint.h>

/* Below this temperature the best id wins, the lowest one on ties; min_p, top_k, top_p are off. */
#define SAMPLER_GREEDY_BELOW 1e-5f

/* A logprob of -infinity, and the least one that is ever reported. */
#define SAMPLER_LOGPROB_MIN (-9999.0f)

/* Bytes of scratch for one thread, about 13 per vocabulary entry. The caller takes them once, at
 * start, aligned to 64; the contents never matter between calls. */
size_t sampler_scratch_bytes(int32_t vocab);

/* Fills *row->result from logits[vocab] (fp32, after the model's softcap), which it may overwrite.
 * vocab >= 1. result->id is always in [0, vocab). Ids in the parameters that are not are ignored.
 *
 * result->status:
 *   0
 *   ERR_INTERNAL    a logit is NaN, or nothing is above -infinity under the grammar mask: the model
 *                   (or the grammar) said nothing that can be used
 *   ERR_BAD_REQUEST allowed ids, bad words, bias and min_tokens together leave nothing to draw
 * With a status other than 0 the id is 0 and must not be used.
 *
 * +infinity shares all probability evenly among the ids that have it. When the grammar mask leaves
 * only suppressed ids, these are lifted for the row: a finished grammar ends before min_tokens.
 * result->top (num_top >= 0): the num_top best ids by raw logprob, lower ids first on ties, then
 * those of params->logprob_token_ids that are not among them (not when a prompt token is scored).
 *
 * The draw is argmax p/e with e ~ Exp(1), computed as argmax l/T - log(e) in double, the lowest id
 * on ties. top_k keeps ties with the k-th; of equal probabilities at the edge of top_p the lower
 * ids stay; min_p keeps l >= l_max + T log(min_p). */
void sampler_row(float *logits, int32_t vocab, const sample_row_t *row, void *scratch);

#endif
