/* test_read.cc: the reader: what a module is taken apart into, and the line of what it does not
 * know.
 */
#include "ptx_program.h"
#include "tests/cuda/check.h"

using namespace ptx;

static const char *const head = ".version 9.0\n.target sm_90a\n.address_size 64\n";

/* The text of the Error that reading and making every entry of a module ends with, or "". */
static std::string error_of(const std::string &text) {
  try {
    const Module m = read_module("a.ptx", text);
    for (size_t i = 0; i < m.names.size(); i++) delete make_program(m, read_entry(m, i));
  } catch (const Error &e) {
    return e.what();
  }
  return "";
}

static std::string entry_of(const std::string &body) {
  return std::string(head) + ".visible .entry k(.param .u64 k_0)\n{\n.reg .pred %p<3>;\n" +
         ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n" + body + "\nret;\n}\n";
}

/* The body begins on line 10. */
static void expect_error(const std::string &body, const std::string &error) {
  const std::string got = error_of(entry_of(body));
  check_that(got == error, "'" + body + "' is refused with '" + error + "' and not '" + got + "'");
}

TEST(ptx_reads_a_module) {
  const std::string text = std::string(head) + R"(
.global .align 4 .b8 table[8] = {1, 2, 255};
.extern .shared .align 1024 .b8 dynamic[];
	// .globl	first
.visible .entry first(
	.param .align 8 .b8 first_param_0[24],
	.param .u32 first_param_1
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	.shared .align 4 .b8 sums[128];
	.local .align 16 .b8 depot[32];
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<3>;
	ld.param.u32 	%r1, [first_param_1]; // a comment { with a brace
$L__BB0_1:
	.pragma "nounroll";
	@!%p1 bra 	$L__BB0_1;
	shfl.sync.bfly.b32 	%r2|%p1, %r1, 16, 31, -1;
	{ .reg .b32 %temp; mov.b64 {%r3, %temp}, %rd1; }
	{ .reg .b32 %temp; mov.b64 {%temp, %r3}, %rd1; }
	st.shared.u32 	[sums+-4], 0f3F800000;
	ret;
}
.visible .entry second()
{
	ret;
}
)";
  const Module m = read_module("a.ptx", text);
  check_that(m.names == std::vector<std::string>({"first", "second"}), "two entries");
  check_that(m.target == "sm_90a", "the target");
  check_that(m.globals.size() == 1 && m.globals[0].bytes.size() == 8 &&
                 m.globals[0].bytes[2] == 255 && m.globals[0].bytes[3] == 0,
             "bytes of a global variable");
  check_that(m.shared.size() == 1 && m.shared[0].is_dynamic, "dynamic shared memory");
  const Entry e = read_entry(m, 0);
  check_that(e.parameters.size() == 2 && e.parameters[0].size == 24 && e.parameters[0].align == 8 &&
                 e.parameters[1].size == 4,
             "parameters");
  check_that(e.shared.size() == 1 && e.shared[0].size == 128 && e.local[0].align == 16,
             "variables");
  check_that(e.registers.at("%p1") == 1 && e.registers.at("%rd2") == 64, "registers");
  check_that(e.registers.count("%temp#1") && e.registers.count("%temp#2"), "names in braces");
  check_that(e.statements.size() == 7 && e.labels.at("$L__BB0_1") == 1, "statements and labels");
  const Statement &branch = e.statements[1];
  check_that(branch.guard == "%p1" && branch.guard_is_negated && branch.line == 23, "a guard");
  check_that(e.statements[2].operands[0].kind == OPERAND_PAIR, "a pair of results");
  check_that(e.statements[2].operands[3].number == 31 && e.statements[2].operands[4].number == -1,
             "numbers");
  const Statement &store = e.statements[5];
  check_that(store.opcode == "st.shared.u32" && store.operands[0].number == -4 &&
                 store.operands[1].number == 0x3f800000 && store.operands[1].form == 'f',
             "an address, and the bits of a number");
  check_that(read_entry(m, 1).statements.size() == 1, "the second entry");
}

TEST(ptx_says_what_it_does_not_know) {
  const std::string h = head;
  check_that(error_of(h + ".func f()") == "a.ptx:4: unknown directive .func", "a directive");
  check_that(error_of(h + ".shared .b7 x[4];") == "a.ptx:4: unknown type .b7", "a type");
  check_that(error_of(h + ".global .b8 x[1] = {1, 2};") == "a.ptx:4: more bytes than x has",
             "bytes");
  check_that(error_of(h + ".visible .entry k()\n{ ret;") == "a.ptx:5: an entry without an end",
             "an end");
  expect_error("", "");
  expect_error("tanh.approx.f32 %f1, %f2;",
               "a.ptx:10: tanh.approx.f32: no step for this instruction");
  expect_error("\nadd.s32 %r1, %r2;", "a.ptx:11: add.s32: an operand is missing");
  expect_error("add.s32 %r1, %r2, %r3, %r4;", "a.ptx:10: add.s32: too many operands");
  expect_error("add.s32 %r1, %r2, %rd3;", "a.ptx:10: add.s32: %rd3 has 64 bits");
  expect_error("add.s64 %rd1, %rd2, %r3;", "a.ptx:10: add.s64: %r3 has 32 bits");
  expect_error("add.f32 %f1, %f2, 0d3FF0000000000000;",
               "a.ptx:10: add.f32: a number of another type");
  expect_error("add.f32 %f1, %f2, 0f3F8;", "a.ptx:10: a number of an odd length: 0f3F8");
  expect_error("add.s32 %r1, %r2, %r99;", "a.ptx:10: add.s32: unknown name %r99");
  expect_error("add.s32 5, %r2, %r3;", "a.ptx:10: add.s32: an operand that is no register");
  expect_error("bra $nowhere;", "a.ptx:10: bra: unknown label $nowhere");
  expect_error("here:\nhere:", "a.ptx:11: a second label here");
  expect_error("ld.shared.u32 %r1, [%rd1];", "a.ptx:10: ld.shared.u32: %rd1 has 64 bits");
  expect_error("ld.global.v4.u32 {%r1, %r2, %r3}, [%rd1];",
               "a.ptx:10: ld.global.v4.u32: a list that is too short");
  expect_error("ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];",
               "a.ptx:10: ld.global.v2.u32: a list that is too long");
  expect_error("cp.async.cg.shared.global [%r1], [%rd1+16], 16, 16;",
               "a.ptx:10: cp.async.cg.shared.global: offsets beside two addresses");
}

TEST(ptx_accumulators_lie_side_by_side) {
  auto product = [](const char *first, int begin, int step) {
    std::string text = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {";
    for (int i = 0; i < 32; i++)
      text += (i ? ", " : "") + std::string(first) + std::to_string(begin + i * step);
    return text + "}, {%r1, %r2, %r3, %r4}, %rd1, %p1, 1, 1, 1;\n";
  };
  const std::string more = ".reg .f32 %acc<40>;\n", up = product("%acc", 0, 1);
  const std::string down = product("%acc", 31, -1);
  check_that(error_of(entry_of(more + up + up)).empty(), "the same order twice");
  check_that(error_of(entry_of(more + down)).empty(), "the order that the registers come in");
  check_that(error_of(entry_of(more + up + down)).find("in another order") != std::string::npos,
             "two orders are refused");
}
