/* speech_rules.h: which tokens may follow in a transcript, part of sampling_params.h.
 *
 * Those of Whisper (arXiv:2212.04356, section 4.5), as SuppressTokensAtBeginLogitsProcessor and
 * WhisperTimeStampLogitsProcessor of transformers apply them, in that order, behind all that else
 * changes logits: a function of the output so far and of the logits alone. Plain data, read-only.
 */
#ifndef INFERD_ENGINE_DEVICE_SPEECH_RULES_H
#define INFERD_ENGINE_DEVICE_SPEECH_RULES_H

#include <stdbool.h>
#include <stdint.h>

enum { SPEECH_BEGIN_IDS_MAX = 16 };

typedef struct speech_rules {
  int32_t begin_ids[SPEECH_BEGIN_IDS_MAX]; /* [num_begin_ids] that no output begins with */
  int32_t num_begin_ids;
  /* The output has stamps: ids from first_stamp_id on, in pairs that never decrease. The first
   * token is one, of at most max_initial steps from the first; -1 = any. */
  bool stamps;
  int32_t first_stamp_id, no_stamps_id, eos_id, max_initial;
} speech_rules_t;

#endif
