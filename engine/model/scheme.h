/* scheme.h: which program wrote the quantised weights of a checkpoint, as its configuration says.
 *
 * The scheme names the tensors and their packing. Bits, groups and symmetry are read from the
 * shapes of the tensors (packed.h); what the configuration says of every layer must agree. Plain
 * data, but for a list that the blueprint owns.
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

typedef enum packing {
  PACKING_NONE, /* the layer is stored as plain numbers */
  PACKING_FP8,  /* F8_E4M3 [N, K] */
  PACKING_INT8, /* I8 [N, K] */
  PACKING_ROWS, /* I32 [N, K * bits / 32]: the bits of a row one after the other */
  PACKING_GPTQ, /* I32 [K * bits / 32, N]: words along K */
  PACKING_AWQ,  /* I32 [K, N / 8]: words along N, nibbles in the order of AWQ */
  PACKING_FP4   /* U8 [N, K / 2]: two e2m1 numbers a byte, the even column in the low nibble */
} packing_t;

/* Columns that share a scale, where that is no number. */
enum { GROUP_ANY = 0, GROUP_ROW = -1, GROUP_TENSOR = -2, GROUP_BLOCKS = -3 };

typedef enum zero_rule {
  ZEROS_ANY,   /* the files say whether there are zero points */
  ZEROS_NONE,  /* "symmetric": true */
  ZEROS_STORED /* "symmetric": false */
} zero_rule_t;

typedef struct scheme {
  scheme_kind_t kind;
  uint32_t packings; /* bit 1 << packing_t: those of its layers */
  int32_t group;     /* columns that share a scale, or GROUP_ */
  int32_t bits;      /* of an integer code; 0 = as the shapes say */
  zero_rule_t zeros;
  int32_t scale_group; /* of 4-bit floats: 16 (NVFP4) or 32 (MXFP4); 0 = as their scales say */
  bool varies;         /* layers may differ in bits and groups: `group` only chooses between two */
  bool expected;       /* weights that are all plain contradict it */
  char says[64];       /* for messages: "compressed-tensors with pack-quantized" */
  /* The names that its list of plain layers has, each with its NUL, an empty one at the end, and
   * the key of that list. Owned by the blueprint; NULL = none. */
  char *plain;
  char plain_key[32];
} scheme_t;

#endif
