/* ptx_steps_move.cc: selections, moves, and conversions between whole numbers.
 */
#include "ptx_steps.h"

namespace ptx {

#define PTX_SELECT(opcode, letters, T)                                                             \
  {                                                                                                \
    opcode, letters, [](Lane &lane, const Instruction &i) {                                        \
      put<T>(lane, i.at[0], get<T>(lane, i.at[get<uint32_t>(lane, i.at[3]) ? 1 : 2]));             \
    }                                                                                              \
  }

template <class Whole, class Half> static void take_apart(Lane &lane, const Instruction &i) {
  const Whole both = get<Whole>(lane, i.at[0]);
  put<Half>(lane, i.list[0], (Half)both);
  put<Half>(lane, i.list[1], (Half)(both >> sizeof(Half) * 8));
}
template <class Whole, class Half> static void put_together(Lane &lane, const Instruction &i) {
  const Whole low = get<Half>(lane, i.list[0]), high = get<Half>(lane, i.list[1]);
  put<Whole>(lane, i.at[0], (Whole)(high << sizeof(Half) * 8 | low));
}

static const Rule rules[] = {
    PTX_SELECT("selp.u16", "hHHp", uint16_t),
    PTX_SELECT("selp.b16", "hHHp", uint16_t),
    PTX_SELECT("selp.b32", "wWWp", uint32_t),
    PTX_SELECT("selp.u32", "wWWp", uint32_t),
    PTX_SELECT("selp.s32", "wWWp", uint32_t),
    PTX_SELECT("selp.f32", "wWWp", uint32_t),
    PTX_SELECT("selp.b64", "dDDp", uint64_t),
    PTX_SELECT("selp.u64", "dDDp", uint64_t),
    PTX_SELECT("selp.s64", "dDDp", uint64_t),
    PTX_SELECT("selp.f64", "dDDp", uint64_t),

    PTX_1("mov.pred", "pP", uint32_t, uint32_t, a != 0),
    PTX_1("mov.u16", "hH", uint16_t, uint16_t, a),
    PTX_1("mov.b16", "hH", uint16_t, uint16_t, a),
    PTX_1("mov.b32", "wW", uint32_t, uint32_t, a),
    PTX_1("mov.u32", "wW", uint32_t, uint32_t, a),
    PTX_1("mov.s32", "wW", uint32_t, uint32_t, a),
    PTX_1("mov.f32", "wW", uint32_t, uint32_t, a),
    PTX_1("mov.b64", "dD", uint64_t, uint64_t, a),
    PTX_1("mov.u64", "dD", uint64_t, uint64_t, a),
    PTX_1("mov.f64", "dD", uint64_t, uint64_t, a),
    {"mov.b32 apart", "{2h}W", take_apart<uint32_t, uint16_t>},
    {"mov.b32 together", "w{2H}", put_together<uint32_t, uint16_t>},
    {"mov.b64 apart", "{2w}D", take_apart<uint64_t, uint32_t>},
    {"mov.b64 together", "d{2W}", put_together<uint64_t, uint32_t>},

    PTX_1("cvt.s16.s8", "hX", int16_t, int8_t, a),
    PTX_1("cvt.u16.u32", "hX", uint16_t, uint32_t, a),
    PTX_1("cvt.u16.u64", "hX", uint16_t, uint64_t, a),
    PTX_1("cvt.u32.u8", "wX", uint32_t, uint8_t, a),
    PTX_1("cvt.u32.u16", "wX", uint32_t, uint16_t, a),
    PTX_1("cvt.s32.s8", "wX", int32_t, int8_t, a),
    PTX_1("cvt.s32.s16", "wX", int32_t, int16_t, a),
    PTX_1("cvt.u32.u64", "wX", uint32_t, uint64_t, a),
    PTX_1("cvt.u64.u16", "dX", uint64_t, uint16_t, a),
    PTX_1("cvt.u64.u32", "dX", uint64_t, uint32_t, a),
    PTX_1("cvt.s64.s32", "dX", int64_t, int32_t, a),
};

Rules move_rules() {
  return {rules, sizeof rules / sizeof rules[0]};
}

} // namespace ptx
