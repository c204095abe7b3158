/* test_steps.cc: instructions one by one, against what the PTX manual says of them.
 *
 * A snippet is the body of an entry whose only thread leaves its result in %r0 (or %rd0), which is
 * then stored. Nothing of the emulator's kernels takes part.
 */
#include "ptx_run.h"
#include "tests/emu/rig.h"

using namespace ptx;

static const char *const registers =
    ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n"
    ".reg .f64 %fd<9>;\n.shared .align 16 .b8 place[4096];\n.local .align 8 .b8 own[16];\n";

static uint64_t *result_place;
static Work last_work;

static unsigned list_arguments(void *, emu::Argument *places) {
  places[0] = {&result_place, sizeof result_place};
  return 1;
}

/* Runs the snippet on `threads` threads; false after a fault. */
static bool run_snippet(const std::string &body, unsigned threads, std::vector<uint64_t> *results) {
  const std::string text = ".version 9.0\n.target sm_90a\n.address_size 64\n"
                           ".visible .entry k(.param .u64 k_0)\n{\n" +
                           std::string(registers) + "mov.u64 %rd0, 0; mov.u32 %r0, 0;\n" + body +
                           "\n{ .reg .b64 %at; .reg .b32 %id; ld.param.u64 %at, [k_0];\n"
                           "mov.u32 %id, %tid.x; mad.wide.u32 %at, %id, 16, %at;\n"
                           "st.global.u32 [%at], %r0; st.global.u64 [%at+8], %rd0; }\nret;\n}\n";
  const Module m = read_module("snippet.ptx", text);
  const Program *p = make_program(m, read_entry(m, 0));
  const device_array<uint64_t> out((size_t)threads * 2);
  result_place = out.p;
  emu::Launch launch = {{"snippet", dim3(1), dim3(threads), 0, 0, false, false},
                        nullptr,
                        nullptr,
                        0,
                        nullptr,
                        list_arguments};
  const bool good = run_program(*p, launch, &last_work);
  if (good) *results = out.get();
  delete p;
  return good;
}

static void expect(const std::string &body, uint64_t expected) {
  std::vector<uint64_t> got;
  if (!run_snippet(body, 1, &got)) return check_that(false, body + " runs");
  const uint64_t value = body.find("%rd0") == std::string::npos ? (uint32_t)got[0] : got[1];
  char text[100];
  snprintf(text, sizeof text, " gives %llx, expected %llx", (unsigned long long)value,
           (unsigned long long)expected);
  check_that(value == expected, body + text);
}

/* 32 threads access shared memory `stride` bytes apart. */
static void expect_wavefronts(const std::string &access, int stride, uint64_t expected,
                              uint64_t ideal) {
  std::vector<uint64_t> got;
  const std::string body = "mov.u32 %r1, %tid.x; mul.lo.s32 %r1, %r1, " + std::to_string(stride) +
                           "; mov.u32 %r2, place; add.s32 %r2, %r2, %r1; " + access;
  if (!run_snippet(body, 32, &got)) return check_that(false, body + " runs");
  check_that(last_work.banks.wavefronts == expected && last_work.banks.ideal == ideal,
             access + " by " + std::to_string(stride) + ": " +
                 std::to_string(last_work.banks.wavefronts) + " wavefronts, ideally " +
                 std::to_string(last_work.banks.ideal));
}

TEST(ptx_banks) {
  const std::string load = "ld.shared.u32 %r0, [%r2];", store = "st.shared.u64 [%r2], %rd0;";
  const std::string vector = "ld.shared.v4.u32 {%r0, %r3, %r4, %r5}, [%r2];";
  const std::string matrix = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r3}, [%r2];";
  expect_wavefronts(load, 0, 1, 1);
  expect_wavefronts(load, 4, 1, 1);
  expect_wavefronts(load, 8, 2, 1);
  expect_wavefronts(load, 36, 1, 1);
  expect_wavefronts(load, 124, 1, 1);
  expect_wavefronts(load, 64, 16, 1);
  expect_wavefronts(store, 8, 2, 2);
  expect_wavefronts(store, 16, 4, 2);
  expect_wavefronts(vector, 16, 4, 4);
  expect_wavefronts(vector, 64, 16, 4);
  expect_wavefronts(vector, 80, 4, 4);
  expect_wavefronts(matrix, 16, 2, 2);
  expect_wavefronts(matrix, 112, 2, 2);
  expect_wavefronts(matrix, 32, 4, 2);
  expect_wavefronts("setp.lt.s32 %p1, %r1, 96; @%p1 " + load, 12, 1, 1);
}

TEST(ptx_whole_numbers) {
  expect("add.s32 %r0, 2147483647, 1;", 0x80000000u);
  expect("sub.s64 %rd0, 3, 5;", (uint64_t)-2);
  expect("mul.wide.s32 %rd0, -3, 5;", (uint64_t)-15);
  expect("mul.wide.u32 %rd0, -1, 2;", 0x1fffffffeu);
  expect("mov.u16 %rs1, -21845; mul.wide.u16 %r0, %rs1, 3;", 0x20001);
  expect("mad.lo.s32 %r0, 7, -2, 4;", (uint32_t)-10);
  expect("mad.wide.u32 %rd0, -1, -1, 1;", 0xfffffffe00000002u);
  expect("div.s32 %r0, -7, 2;", (uint32_t)-3);
  expect("rem.s32 %r0, -7, 2;", (uint32_t)-1);
  expect("div.u32 %r0, -7, 2;", 0x7ffffffc);
  expect("div.s32 %r0, -2147483648, -1;", 0x80000000u);
  expect("min.s32 %r0, -1, 1;", 0xffffffffu);
  expect("min.u32 %r0, -1, 1;", 1);
  expect("shl.b32 %r0, 1, 32;", 0);
  expect("shr.u32 %r0, -1, 33;", 0);
  expect("shr.s32 %r0, -8, 99;", 0xffffffffu);
  expect("shr.s64 %rd0, -8, 1;", (uint64_t)-4);
  expect("shf.l.wrap.b32 %r0, 0x80000001, 0x7, 33;", 0xf);
  expect("bfi.b32 %r0, 5, -1, 3, 2;", 0xffffffefu);
  expect("bfi.b64 %rd0, 1, 2, 32, 32;", 0x100000002u);
  expect("brev.b32 %r0, 0x80000006;", 0x60000001);
  expect("bfind.shiftamt.u32 %r0, 0x00012345;", 15);
  expect("bfind.shiftamt.u32 %r0, 0;", 0xffffffffu);
  expect("prmt.b32 %r0, 0x33221100, 0x77665544, 0x7250;", 0x77225500);
  expect("prmt.b32 %r0, 0x80, 0x7f00, 0xd8d8;", 0x00ff00ff);
  expect("mov.u16 %rs1, 128; cvt.s16.s8 %rs2, %rs1; mov.b32 %r0, {%rs2, 1};", 0x1ff80);
  expect("mov.b64 {%r1, %r0}, 0x500000006;", 5);
  expect("mov.b64 %rd0, {7, 8};", 0x800000007u);
  expect("mov.u64 %rd1, 0x1ffffffff; cvt.s64.s32 %rd0, %rd1;", (uint64_t)-1);
}

/* Sets %r0 to 1 where the comparison holds. */
static void expect_compare(const std::string &type, const std::string &a, const std::string &b,
                           const std::string &holding) {
  const std::string all[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                             "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (const std::string &op : all) {
    const bool is_real = type[0] == 'f';
    if (op.size() == 3 && !is_real) continue;
    const bool holds = (" " + holding + " ").find(" " + op + " ") != std::string::npos;
    expect("setp." + op + "." + type + " %p1, " + a + ", " + b + "; selp.u32 %r0, 1, 0, %p1;",
           holds);
  }
}

TEST(ptx_comparisons) {
  const std::string one = "0f3F800000", two = "0f40000000", nan = "0f7FC00000";
  expect_compare("s32", "-1", "1", "ne lt le");
  expect_compare("u32", "-1", "1", "ne gt ge");
  expect_compare("s64", "5", "5", "eq le ge");
  expect_compare("f32", one, two, "ne lt le neu ltu leu num");
  expect_compare("f32", two, two, "eq le ge equ leu geu num");
  expect_compare("f32", two, one, "ne gt ge neu gtu geu num");
  expect_compare("f32", nan, one, "equ neu ltu leu gtu geu nan");
  expect_compare("f64", "0d3FF0000000000000", "0d7FF8000000000000", "equ neu ltu leu gtu geu nan");
  expect("mov.pred %p1, 1; not.pred %p2, %p1; xor.pred %p3, %p1, %p2; selp.b32 %r0, 6, 7, %p3;", 6);
}

/* The bits of a float result, from %f0. */
static void expect_real(const std::string &body, uint32_t bits) {
  expect(body + " mov.b32 %r0, %f0;", bits);
}

TEST(ptx_real_numbers) {
  const std::string tiny = "0f00000001", nan = "0f7FC00000", minus_0 = "0f80000000";
  expect_real("fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002;", 0x28800000); /* 2^-46 */
  expect_real("mul.rn.f32 %f1, 0f3F800001, 0f3F800001; add.rn.f32 %f0, %f1, 0fBF800002;", 0);
  expect_real("fma.rm.f32 %f0, 0f3F800000, 0f3F800000, 0f33000000;", 0x3f800000);
  expect_real("fma.rm.f32 %f0, 0fBF800000, 0f3F800000, 0f33000000;", 0xbf800000);
  expect_real("fma.rm.f32 %f0, 0fBF800000, 0f3F800000, 0fB1000000;", 0xbf800001);
  expect_real("fma.rn.f32 %f0, 0fBF800000, 0f3F800000, 0fB1000000;", 0xbf800000);
  expect_real("add.rz.f32 %f0, 0f3F800000, 0f33C00000;", 0x3f800000);
  expect_real("add.rz.f32 %f0, 0fBF800000, 0fB3C00000;", 0xbf800000);
  expect_real("add.rn.f32 %f0, 0f3F800000, 0f33C00000;", 0x3f800001);
  expect_real("max.f32 %f0, " + nan + ", 0f3F800000;", 0x3f800000);
  expect_real("min.f32 %f0, 0f00000000, " + minus_0 + ";", 0x80000000);
  expect_real("max.f32 %f0, " + minus_0 + ", 0f00000000;", 0);
  expect_real("copysign.f32 %f0, " + minus_0 + ", 0f40000000;", 0xc0000000);
  expect_real("cvt.sat.f32.f32 %f0, 0fBF800000;", 0);
  expect_real("cvt.sat.f32.f32 %f0, 0f40000000;", 0x3f800000);
  expect_real("cvt.sat.f32.f32 %f0, " + nan + ";", 0);
  expect_real("ex2.approx.ftz.f32 %f0, 0fC3020000;", 0); /* 2^-130 */
  expect_real("ex2.approx.ftz.f32 %f0, 0f40400000;", 0x41000000);
  expect_real("rcp.approx.ftz.f32 %f0, " + tiny + ";", 0x7f800000);
  expect_real("rcp.rn.f32 %f0, 0f40000000;", 0x3f000000);
  expect_real("cvt.rni.f32.f32 %f0, 0f40200000;", 0x40000000); /* 2.5 to 2 */
  expect("cvt.rni.s32.f32 %r0, 0fC0600000;", (uint32_t)-4);    /* -3.5 */
  expect("cvt.rzi.u32.f32 %r0, 0fBF800000;", 0);
  expect("cvt.rzi.u32.f32 %r0, 0f5F800000;", 0xffffffffu);
  expect("cvt.rzi.s32.f64 %r0, 0dC1E0000000200000;", 0x80000000u);
  expect("cvt.rpi.f64.f64 %fd1, 0d3FF199999999999A; mov.b64 %rd0, %fd1;", 0x4000000000000000u);
  expect("rcp.approx.ftz.f64 %fd1, 0d4008000000000000; mov.b64 %rd0, %fd1;", 0x3fd5555500000000u);
  expect("mov.b32 %r1, 0x3c003f80; fma.rn.f16x2 %r0, %r1, 0x40004000, 0x80008000;", 0x40004380);
  expect("mov.b32 %r1, 0x3f803c00; fma.rn.bf16x2 %r0, %r1, 0x40004000, 0x80008000;", 0x40003c80);
  expect("cvt.rn.bf16.f32 %rs1, 0f3F808000; mov.b32 %r0, {%rs1, 0};", 0x3f80);
  expect("cvt.rn.f16.f32 %rs1, 0f477FF000; mov.b32 %r0, {%rs1, 0};", 0x7c00);
  expect("mov.u16 %rs1, 14462; cvt.rn.f16x2.e4m3x2 %r0, %rs1;", 0x3c005f00);  /* 448, 1 */
  expect("mov.u16 %rs1, -32511; cvt.rn.f16x2.e4m3x2 %r0, %rs1;", 0x98001800); /* 2^-9, -2^-9 */
}

TEST(ptx_memory) {
  const std::string at = "mov.u32 %r1, place; ";
  expect(at + "st.shared.v4.u32 [%r1], {1, 2, 3, 4}; ld.shared.u32 %r0, [place+8];", 3);
  expect(at + "st.shared.u32 [%r1+4], -2; ld.shared.s32 %rd0, [%r1+4];", (uint64_t)-2);
  expect(at + "st.shared.u32 [%r1], -1; ld.shared.u8 %r0, [%r1+3];", 0xff);
  expect(at + "st.shared.u32 [%r1+4], 77; cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd2, %rd1; "
              "ld.u32 %r0, [%rd2+4];",
         77);
  expect(at + "st.shared.u32 [%r1], 5; atom.shared.add.u32 %r2, [%r1], 7; ld.shared.u32 %r3, [%r1];"
              " mad.lo.s32 %r0, %r2, 100, %r3;",
         512);
  expect("mov.u64 %rd1, own; st.local.u32 [%rd1+12], 9; ld.u32 %r0, [%rd1+12];", 9);
  for (uint32_t old : {2u, 3u, 7u}) /* counts to 3, then from 0 */
    expect("ld.param.u64 %rd1, [k_0]; st.global.u32 [%rd1], " + std::to_string(old) +
               "; atom.global.inc.u32 %r2, [%rd1], 3; ld.global.u32 %r3, [%rd1];"
               "mad.lo.s32 %r0, %r2, 100, %r3;",
           old * 100 + (old == 2 ? 3 : 0));
  expect("ld.param.u64 %rd1, [k_0]; st.global.u32 [%rd1], 3; atom.global.exch.b32 %r2, [%rd1], 4;"
         " ld.global.u32 %r3, [%rd1]; mad.lo.s32 %r0, %r3, 10, %r2;",
         43);
}

TEST(ptx_divergent_threads_meet) {
  std::vector<uint64_t> got;
  const std::string body = "mov.u32 %r1, %tid.x; mov.u32 %r2, 0;\n"
                           "again:\nadd.s32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, %r1;\n"
                           "@%p1 bra again;\n"
                           "shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1;\n"
                           "shfl.sync.up.b32 %r4|%p3, %r2, 4, 0x1800, -1;\n"
                           "selp.u32 %r5, 1, 0, %p3;\n"
                           "mad.lo.s32 %r0, %r3, 100, %r4;\nmad.lo.s32 %r0, %r5, 10000, %r0;";
  check_that(run_snippet(body, 32, &got), "a loop of another length in each thread");
  bool right = got.size() == 64;
  for (uint32_t i = 0; right && i < 32; i++) {
    auto count = [](uint32_t lane) { return lane ? lane : 1u; };
    const bool is_inside = i % 8 >= 4; /* segments of eight lanes */
    const uint32_t up = is_inside ? count(i - 4) : count(i);
    right = (uint32_t)got[i * 2] == count(i ^ 1) * 100 + up + is_inside * 10000;
  }
  check_that(right, "shuffles after divergent loops");
}

static void expect_fault(const std::string &body, const char *text) {
  fault_watch watch;
  std::vector<uint64_t> got;
  const bool good = run_snippet(body, 32, &got);
  check_that(!good && watch.saw({text, "snippet.ptx:"}),
             body + " is reported: " + emu::fault_text());
}

TEST(ptx_faults_name_the_line) {
  expect_fault("ld.param.u64 %rd1, [k_0]; ld.global.u32 %r0, [%rd1+-64];", "in no allocation");
  expect_fault("ld.param.u64 %rd1, [k_0]; ld.global.u32 %r0, [%rd1+4096];", "in no allocation");
  expect_fault("ld.param.u64 %rd1, [k_0]; prefetch.global.L2 [%rd1+4096];", "in no allocation");
  expect_fault("ld.param.u64 %rd1, [k_0]; ld.global.v2.u32 {%r0, %r1}, [%rd1+4];", "misaligned");
  expect_fault("ld.shared.u32 %r0, [place+8192];", "beyond shared memory");
  expect_fault("ld.shared.u64 %rd0, [place+4];", "misaligned");
  expect_fault("div.s32 %r0, %r0, 0;", "division by zero");
  expect_fault("shfl.sync.bfly.b32 %r1|%p1, %r0, 1, 15, -1;", "unknown clamp");
  expect_fault("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 5; @%p1 bra there;\nbar.sync 0;\nthere:",
               "__syncthreads");
}
