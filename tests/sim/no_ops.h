/* no_ops.h: the operations of a back end that does no arithmetic: they launch nothing. */
#ifndef INFERD_TESTS_SIM_NO_OPS_H
#define INFERD_TESTS_SIM_NO_OPS_H

#include "engine/device/ops.h"

static inline void no_embed(device_t *d, act_t *x, const weight_t *t, float s) {
  (void)d, (void)x, (void)t, (void)s;
}
static inline void no_positions(device_t *d, act_t *x, const weight_t *t, int32_t o) {
  (void)d, (void)x, (void)t, (void)o;
}
static inline void no_norm(device_t *d, act_t *o, const act_t *i, const act_t *r, const norm_t *n,
                           int32_t rows) {
  (void)d, (void)o, (void)i, (void)r, (void)n, (void)rows;
}
static inline void no_linear(device_t *d, act_t *o, const act_t *i, const weight_t *w,
                             const vector_t *b, const act_t *r, int32_t rows) {
  (void)d, (void)o, (void)i, (void)w, (void)b, (void)r, (void)rows;
}
static inline void no_rope(device_t *d, act_t *q, const attention_t *a) {
  (void)d, (void)q, (void)a;
}
static inline void no_attention(device_t *d, act_t *o, const act_t *q, const attention_t *a) {
  (void)d, (void)o, (void)q, (void)a;
}
static inline void no_activation(device_t *d, act_t *o, const act_t *i, activation_t k, int32_t w,
                                 int32_t rows) {
  (void)d, (void)o, (void)i, (void)k, (void)w, (void)rows;
}
static inline void no_gated_add(device_t *d, act_t *o, const act_t *i, const act_t *g,
                                const act_t *r, int32_t w, int32_t rows) {
  (void)d, (void)o, (void)i, (void)g, (void)r, (void)w, (void)rows;
}
static inline void no_gate(device_t *d, act_t *out, const act_t *in, const act_t *factors,
                           const input_gate_t *gate, int32_t rows) {
  (void)d, (void)out, (void)in, (void)factors, (void)gate, (void)rows;
}

static inline void no_scale(device_t *d, act_t *x, const vector_t *factor, int32_t width,
                            int32_t rows) {
  (void)d, (void)x, (void)factor, (void)width, (void)rows;
}

static inline void no_moe(device_t *d, act_t *o, const act_t *i, const act_t *r, const moe_t *m,
                          int32_t rows) {
  (void)d, (void)o, (void)i, (void)r, (void)m, (void)rows;
}
static inline void no_lora_set(device_t *d, lora_t *l, int32_t slot, const lora_values_t *v) {
  (void)d, (void)l, (void)slot, (void)v;
}
static inline void no_lora_add(device_t *d, act_t *o, const act_t *i, const act_t *p,
                               const lora_t *l, int32_t column, int32_t width) {
  (void)d, (void)o, (void)i, (void)p, (void)l, (void)column, (void)width;
}
static inline void no_lora_embed(device_t *d, act_t *o, const lora_t *l, float scale) {
  (void)d, (void)o, (void)l, (void)scale;
}
static inline void no_lora_logits(device_t *d, const act_t *h, const vector_t *b, const lora_t *l,
                                  float cap, int32_t first, int32_t rows) {
  (void)d, (void)h, (void)b, (void)l, (void)cap, (void)first, (void)rows;
}
static inline void no_gather(device_t *d, act_t *o, const act_t *i, int32_t w) {
  (void)d, (void)o, (void)i, (void)w;
}

#endif
