/* ptx_steps_whole.cc: the instructions on whole numbers, bits and predicates.
 *
 * Arithmetic wraps as the device's does; shifts by the width and more give 0, or the sign.
 */
#include "ptx_steps.h"

namespace ptx {

template <class T> static T shift_left(T a, uint32_t by) {
  return by < sizeof(T) * 8 ? (T)(a << by) : (T)0;
}
template <class T> static T shift_right(T a, uint32_t by) {
  if (by < sizeof(T) * 8) return (T)(a >> by);
  return std::is_signed<T>::value && (int64_t)a < 0 ? (T)-1 : (T)0;
}

template <class T> static T divide(const Instruction &i, T a, T b, bool rest) {
  if (b == 0) fail_at(i, "division by zero");
  if (std::is_signed<T>::value && b == (T)-1) return rest ? (T)0 : (T)(0 - (uint64_t)a);
  return rest ? (T)(a % b) : (T)(a / b);
}

static uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = (uint64_t)high << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t choice = selector >> 4 * i & 0xf;
    uint32_t byte = (uint32_t)(both >> (choice & 7) * 8) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    out |= byte << 8 * i;
  }
  return out;
}

static uint32_t reverse_bits(uint32_t a) {
  uint32_t out = 0;
  for (int i = 0; i < 32; i++) out |= (a >> i & 1) << (31 - i);
  return out;
}

/* By how much `a` is shifted left for its highest bit to be the first; all ones for 0. */
static uint32_t find_shift(uint32_t a) {
  return a != 0 ? (uint32_t)__builtin_clz(a) : UINT32_MAX;
}

template <class T> static T insert_bits(T from, T into, uint32_t at, uint32_t count) {
  at &= 0xff, count &= 0xff;
  const uint32_t width = sizeof(T) * 8;
  if (at >= width || !count) return into;
  const T ones = count >= width ? (T)-1 : (T)(((T)1 << count) - 1);
  return (T)((into & ~(T)(ones << at)) | (T)((from & ones) << at));
}

/* Shifts have an operand of 32 bits beside one of the type. */
#define PTX_SHIFT(opcode, letters, T, function)                                                    \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      put<T>(lane, i.at[0], function<T>(get<T>(lane, i.at[1]), get<uint32_t>(lane, i.at[2])));     \
    }                                                                                              \
  }
#define PTX_MAD_WIDE(opcode, Wide, T)                                                              \
  {                                                                                                \
    opcode, "dWWD", [](Lane &lane, const Instruction &i) {                                         \
      const Wide a = get<T>(lane, i.at[1]), b = get<T>(lane, i.at[2]);                             \
      put<uint64_t>(lane, i.at[0], (uint64_t)(a * b) + get<uint64_t>(lane, i.at[3]));              \
    }                                                                                              \
  }
#define PTX_DIVIDE(opcode, letters, T, rest)                                                       \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      put<T>(lane, i.at[0], divide<T>(i, get<T>(lane, i.at[1]), get<T>(lane, i.at[2]), rest));     \
    }                                                                                              \
  }
#define PTX_INSERT(opcode, letters, T)                                                             \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      put<T>(lane, i.at[0],                                                                        \
             insert_bits<T>(get<T>(lane, i.at[1]), get<T>(lane, i.at[2]),                          \
                            get<uint32_t>(lane, i.at[3]), get<uint32_t>(lane, i.at[4])));          \
    }                                                                                              \
  }
#define PTX_COMPARE(type, letters, T)                                                              \
  PTX_2("setp.eq." type, letters, uint32_t, T, a == b),                                            \
      PTX_2("setp.ne." type, letters, uint32_t, T, a != b)
#define PTX_ORDER(type, letters, T)                                                                \
  PTX_COMPARE(type, letters, T), PTX_2("setp.lt." type, letters, uint32_t, T, a < b),              \
      PTX_2("setp.le." type, letters, uint32_t, T, a <= b),                                        \
      PTX_2("setp.gt." type, letters, uint32_t, T, a > b),                                         \
      PTX_2("setp.ge." type, letters, uint32_t, T, a >= b)
#define PTX_LOGIC(type, letters, T)                                                                \
  PTX_2("and." type, letters, T, T, a &b), PTX_2("or." type, letters, T, T, a | b),                \
      PTX_2("xor." type, letters, T, T, a ^ b)
#define PTX_SUMS(type, letters, T)                                                                 \
  PTX_2("add." type, letters, T, T, a + b), PTX_2("sub." type, letters, T, T, a - b),              \
      PTX_2("mul.lo." type, letters, T, T, (uint64_t)a *b)
#define PTX_LIMITS(type, letters, T)                                                               \
  PTX_2("min." type, letters, T, T, a < b ? a : b), PTX_2("max." type, letters, T, T, a > b ? a : b)

/* Sums are of the unsigned type, whose overflow C defines. */
static const Rule rules[] = {
    PTX_SUMS("s16", "hHH", uint16_t),
    PTX_SUMS("u16", "hHH", uint16_t),
    PTX_SUMS("s32", "wWW", uint32_t),
    PTX_SUMS("u32", "wWW", uint32_t),
    PTX_SUMS("s64", "dDD", uint64_t),
    PTX_SUMS("u64", "dDD", uint64_t),
    PTX_LIMITS("s32", "wWW", int32_t),
    PTX_LIMITS("u32", "wWW", uint32_t),
    PTX_LIMITS("s64", "dDD", int64_t),
    PTX_LIMITS("u64", "dDD", uint64_t),
    PTX_1("neg.s32", "wW", uint32_t, uint32_t, 0 - a),
    PTX_1("neg.s64", "dD", uint64_t, uint64_t, 0 - a),
    PTX_1("abs.s32", "wW", uint32_t, int32_t, a < 0 ? 0 - (uint32_t)a : (uint32_t)a),
    PTX_3("mad.lo.s32", "wWWW", uint32_t, uint32_t, a *b + c),
    PTX_3("mad.lo.s64", "dDDD", uint64_t, uint64_t, a *b + c),
    PTX_2("mul.wide.u16", "wHH", uint32_t, uint16_t, (uint32_t)a *b),
    PTX_2("mul.wide.s16", "wHH", int32_t, int16_t, (int32_t)a *b),
    PTX_2("mul.wide.s32", "dWW", int64_t, int32_t, (int64_t)a *b),
    PTX_2("mul.wide.u32", "dWW", uint64_t, uint32_t, (uint64_t)a *b),
    PTX_2("mul.hi.s32", "wWW", int32_t, int32_t, (int64_t)a *b >> 32),
    PTX_2("mul.hi.u32", "wWW", uint32_t, uint32_t, (uint64_t)a *b >> 32),
    PTX_MAD_WIDE("mad.wide.u32", uint64_t, uint32_t),
    PTX_MAD_WIDE("mad.wide.s32", int64_t, int32_t),
    PTX_DIVIDE("div.s32", "wWW", int32_t, false),
    PTX_DIVIDE("div.u32", "wWW", uint32_t, false),
    PTX_DIVIDE("div.s64", "dDD", int64_t, false),
    PTX_DIVIDE("div.u64", "dDD", uint64_t, false),
    PTX_DIVIDE("rem.s32", "wWW", int32_t, true),
    PTX_DIVIDE("rem.u32", "wWW", uint32_t, true),
    PTX_DIVIDE("rem.s64", "dDD", int64_t, true),
    PTX_DIVIDE("rem.u64", "dDD", uint64_t, true),

    PTX_LOGIC("b16", "hHH", uint16_t),
    PTX_LOGIC("b32", "wWW", uint32_t),
    PTX_LOGIC("b64", "dDD", uint64_t),
    PTX_LOGIC("pred", "pPP", uint32_t),
    PTX_1("not.b16", "hH", uint16_t, uint16_t, ~a),
    PTX_1("not.b32", "wW", uint32_t, uint32_t, ~a),
    PTX_1("not.b64", "dD", uint64_t, uint64_t, ~a),
    PTX_1("not.pred", "pP", uint32_t, uint32_t, !a),
    PTX_1("brev.b32", "wW", uint32_t, uint32_t, reverse_bits(a)),
    PTX_1("bfind.shiftamt.u32", "wW", uint32_t, uint32_t, find_shift(a)),
    PTX_SHIFT("shl.b16", "hHW", uint16_t, shift_left),
    PTX_SHIFT("shl.b32", "wWW", uint32_t, shift_left),
    PTX_SHIFT("shl.b64", "dDW", uint64_t, shift_left),
    PTX_SHIFT("shr.u16", "hHW", uint16_t, shift_right),
    PTX_SHIFT("shr.s16", "hHW", int16_t, shift_right),
    PTX_SHIFT("shr.u32", "wWW", uint32_t, shift_right),
    PTX_SHIFT("shr.s32", "wWW", int32_t, shift_right),
    PTX_SHIFT("shr.u64", "dDW", uint64_t, shift_right),
    PTX_SHIFT("shr.s64", "dDW", int64_t, shift_right),
    PTX_3("shf.l.wrap.b32", "wWWW", uint32_t, uint32_t, ((uint64_t)b << 32 | a) << (c & 31) >> 32),
    PTX_3("shf.r.wrap.b32", "wWWW", uint32_t, uint32_t, ((uint64_t)b << 32 | a) >> (c & 31)),
    PTX_3("prmt.b32", "wWWW", uint32_t, uint32_t, permute(a, b, c)),
    PTX_INSERT("bfi.b32", "wWWWW", uint32_t),
    PTX_INSERT("bfi.b64", "dDDWW", uint64_t),
    PTX_1("popc.b32", "wW", uint32_t, uint32_t, __builtin_popcount(a)),
    PTX_1("clz.b32", "wW", uint32_t, uint32_t, a ? __builtin_clz(a) : 32),

    PTX_COMPARE("b16", "pHH", uint16_t),
    PTX_COMPARE("b32", "pWW", uint32_t),
    PTX_COMPARE("b64", "pDD", uint64_t),
    PTX_ORDER("s16", "pHH", int16_t),
    PTX_ORDER("u16", "pHH", uint16_t),
    PTX_ORDER("s32", "pWW", int32_t),
    PTX_ORDER("u32", "pWW", uint32_t),
    PTX_ORDER("s64", "pDD", int64_t),
    PTX_ORDER("u64", "pDD", uint64_t),
};

Rules whole_rules() {
  return {rules, sizeof rules / sizeof rules[0]};
}

} // namespace ptx
