/* scheme.h: which program wrote the quantised weights of a checkpoint, as its configuration says.
 *
 * The scheme only names the tensors and their packing; bits, groups and symmetry are read from the
 * shapes of the tensors (packed.h), because publishers often give them per layer. Plain data.
 */
#ifndef INFERD_ENGINE_MODEL_PACKED_SCHEME_H
#define INFERD_ENGINE_MODEL_PACKED_SCHEME_H

#include <stdbool.h>
#include <stdint.h>

typedef enum scheme_kind {
  SCHEME_PLAIN,      /* 16 or 32 bit numbers; also gpt-oss, whose experts alone are MXFP4 */
  SCHEME_FP8,        /* quant_method "fp8" (DeepSeek, Qwen) and "fbgemm_fp8" */
  SCHEME_COMPRESSED, /* "compressed-tensors": fp8, int8, packed integers, NVFP4, MXFP4 */
  SCHEME_GPTQ,       /* "gptq", zero points stored minus one */
  SCHEME_GPTQ_V2,    /* "gptq" with checkpoint_format "gptq_v2": zero points as they are */
  SCHEME_AWQ,        /* "awq", version gemm */
  SCHEME_MODELOPT    /* "modelopt": fp8 and NVFP4 */
} scheme_kind_t;

typedef struct scheme {
  scheme_kind_t kind;
  int32_t group; /* columns that share a scale: GPTQ, AWQ; 0 = all, or as the shapes say */
  bool expected; /* GPTQ, AWQ of config.json: weights that are all plain contradict it */
} scheme_t;

#endif
