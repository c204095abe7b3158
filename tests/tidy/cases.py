"""Planted cases of scripts/tidy: (rule, files of a small tree, what the rule must say of them).

The pattern is searched in what `scripts/tidy --only RULE` prints; None: the rule must hold. A rule
without a planted case is a failure (tests/tidy/run), so a new rule brings its case here. `COMMITS`
is not a file: its lines are the subjects of commits."""

COMMITS = "COMMITS"


def head(name, text=""):
    """A file that begins as it must."""
    return f"/* {name}: what it owns. */\n{text}"


def function(lines):
    return "void act(void) {\n" + "  step();\n" * (lines - 2) + "}\n"


def parameters(count):
    return ", ".join(f"int p{i}" for i in range(count))


ONLY_B = "/* a.h: what b.c has. No other file of\n * the product includes it. */\n"
CASES = [
    ("columns", {"engine/a.c": head("a.c", f"/* {'x' * 95} */\n")}, r"a\.c:2: 101 columns"),
    ("columns", {"tests/emu/a.cc": head("a.cc", f"/* {'x' * 95} */\n")}, r"a\.cc:2: 101 columns"),
    ("columns", {"engine/a.c": head("a.c", f"/* {'x' * 94} */\n")}, None),
    ("functions", {"engine/a.c": head("a.c", function(71))}, r"a\.c:2: act has 71 lines"),
    ("functions", {"tests/emu/a.cc": head("a.cc", function(71))}, r"a\.cc:2: act has 71 lines"),
    ("functions", {"engine/a.c": head("a.c", function(70))}, None),
    ("paragraph", {"engine/a.c": "int a;\n"}, r"a\.c:1: does not begin"),
    ("paragraph", {"tests/emu/a.cc": "int a;\n"}, r"a\.cc:1: does not begin"),
    ("paragraph", {"scripts/a.py": "import os\n"}, r"a\.py:1: does not begin"),
    ("paragraph", {"engine/a.c": head("a.c"), "scripts/a.py": '"""What it is."""\n'}, None),
    ("rooms", {"engine/text/a.c": head("a.c", '#include "engine/engine.h"\n')},
     r"a\.c:2: engine/text/ may not know engine/engine\.h"),
    ("rooms", {"engine/text/a.c": head("a.c", '#include "engine/base/error.h"\n')}, None),
    ("libraries", {"engine/a.c": head("a.c", "#include <uv.h>\n")}, r"<uv\.h> belongs to server/"),
    ("libraries", {"server/a.c": head("a.c", "#include <uv.h>\n")}, None),
    ("circles", {"engine/a.c": head("a.c", "void a(void) {\n  b();\n}\n"),
                 "engine/b.c": head("b.c", "void b(void) {\n  c();\n}\n"),
                 "engine/c.c": head("c.c", "void c(void) {\n  a();\n}\n")},
     r"engine/a\.c: 3 files call each other \(0 are known\): engine/a\.c calls b of engine/b\.c"),
    ("circles", {"engine/a.c": head("a.c", "void a(void) {\n  b();\n}\n"),
                 "engine/a.h": head("a.h", "void a(void);\nstatic inline void in(void) {\n}\n"),
                 "engine/b.c": head("b.c", "/* a() */\nstatic void a(void) {\n}\n"
                                           "void b(void) {\n  a();\n  say(\"a\", of->a);\n}\n")},
     None),
    ("circles", {"engine/file/gguf.c": head("gguf.c", "void a(void) {\n}\n")},
     r"engine/file/gguf\.c is in no circle now"),
    ("calls", {"engine/a.c": head("a.c", "void f(void) {\n  strcpy(a, b);\n}\n")},
     r"a\.c:3: strcpy: no bound"),
    ("calls", {"engine/a.c": head("a.c", "/* strcpy(a, b) */\n")}, None),
    ("allocations", {"engine/a.c": head("a.c", "void *p = malloc(count * size);\n")},
     r"a\.c:2: unchecked product in malloc"),
    ("allocations", {"engine/a.c": head("a.c", "void *p = malloc(sizeof(int) * 4);\n")}, None),
    ("gpu_words", {"cuda/kernels/a.cu": head("a.cu", 'asm("x");\n')}, r"a\.cu:2: `asm` belongs"),
    ("gpu_words", {"tests/emu/a.cc": head("a.cc", 'asm("x");\n')}, r"a\.cc:2: `asm` belongs"),
    ("gpu_words", {"cuda/kernels/a.cu": head("a.cu", "/* asm */\n")}, None),
    ("leftovers", {"engine/a.c": head("a.c", "/* TO" + "DO: later */\n")}, r"a\.c:2: unfinished"),
    ("leftovers", {"engine/a.c": head("a.c", "/* METHODS */\n")}, None),
    ("links", {"A.md": "See [it](engine/b.c).\n"}, r"A\.md:1: links to engine/b\.c"),
    ("links", {"engine/A.md": "\nSee [it](../b.md#part).\n"}, r"engine/A\.md:2: links to \.\./b"),
    ("links", {"A.md": "[a](B.md#x), [b](https://a.b/c), [c](#x)\n```\n[d](no.c)\n```\n",
               "B.md": "[up](A.md)\n", "engine/C.md": "[up](../A.md)\n"}, None),
    ("comment_files", {"engine/a.c": head("a.c", "\n/* As the\n * loop of gone.c. */\n")},
     r"a\.c:4: the comment names gone\.c"),
    ("comment_files", {"engine/a.c": head("a.c", "// see base/gone.h\n")},
     r"a\.c:2: the comment names base/gone\.h"),
    ("comment_files", {"engine/a.c": head("a.c", "/* base/here.h, here.h, ../engine/base/here.h, "
                                                 "<stdio.h>, stdio.h, modeling_llama.py */\n"),
                       "engine/base/here.h": head("here.h")}, None),
    ("comment_words", {"engine/a.c": head("a.c", "/* As of\n * old_name. */\nint new_name;\n")},
     r"a\.c:3: the comment names old_name"),
    ("comment_words", {"engine/a.c": head("a.c", "/* new_name, other_file.h, FOO_BAR, x_max, "
                                                 "pidfd_open(2) */\nint new_name;\n"),
                       "engine/other_file.h": head("other_file.h")}, None),
    ("messages", {"docs/troubleshooting.md": "| `is at war` | a | b |\n",
                  "engine/a.c": head("a.c", "/* is at war */\nx = \"is at peace\";\n")},
     r"troubleshooting\.md:1: no message says 'is at war'"),
    ("messages", {"docs/troubleshooting.md": "| `is at peace` | a | b |\n",
                  "engine/a.c": head("a.c", "x = \"%s is \"\n    \"at peace\";\n")}, None),
    ("families", {"docs/models.md": "| a | `AModel` |\n", "tests/PARITY.md": "| `AModel` | 4 |\n",
                  "engine/model/config/a.c": head("a.c", '{.architecture = "BModel"},\n')},
     r"config/a\.c:2: BModel is not in docs/models\.md(.|\n)*BModel is not in tests/PARITY\.md"),
    ("families", {"docs/models.md": "| a | `AModel` |\n", "tests/PARITY.md": "| `AModel` | 4 |\n",
                  "engine/model/config/a.c": head("a.c", '{.architecture = "AModel"},\n')}, None),
    ("families", {"engine/model/families/a.c": head("a.c", '{A, NAMES("a", "AModel")},\n'
                                                           '{A, NAMES("b", "BModel"), .c = 1},\n'),
                  "tests/vectors/models/a/config.json": '{"architectures": ["AModel"]}'},
     r"families/a\.c:3: BModel has no vector"),
    ("families", {"engine/model/families/a.c": head("a.c", '{A, NAMES("a", "AModel"), .c = 1},\n'
                                                           '{A, NAMES("b", "BModel"),\n'
                                                           ' TEXT_OF("c")},\n'),
                  "tests/vectors/models/a/config.json": '{"architectures": ["AModel"]}'}, None),
    ("types", {"engine/a.h": head("a.h", "typedef struct x {\n  int a;\n} x_t;\n"),
               "server/b.h": head("b.h", "typedef enum { A } x_t;\n")},
     r"server/b\.h:2: engine/a\.h has a type x_t too"),
    ("types", {"engine/a.h": head("a.h", "typedef int (*x_t)(int a);\n"),
               "server/b.h": head("b.h", "typedef struct x x_t;\n")}, r"a type x_t too"),
    ("types", {"engine/a.h": head("a.h", "typedef struct x {\n  int a;\n} x_t;\n"),
               "server/b.h": head("b.h", "x_t *b(void);\n")}, None),
    ("types", {"engine/a.h": head("a.h", "typedef enum { A } x_t;\n"),
               "server/b.c": head("b.c", "typedef struct x {\n  int a;\n} x_t;\n")},
     r"server/b\.c:4: engine/a\.h has a type x_t too"),
    ("types", {"engine/cpu/isa/a.c": head("a.c", "typedef int x_t;\n"),
               "engine/cpu/isa/b.c": head("b.c", "typedef long x_t;\n")}, None),
    ("rulers", {"engine/a.c": head("a.c", "/* -- steps ------ */\n")}, r"a\.c:2: a ruler is"),
    ("rulers", {"tests/a.c": head("a.c", "/* ---- steps ----\n * why. */\n")}, r"a\.c:2: a ruler"),
    ("rulers", {"engine/a.c": head("a.c", "/* ---- steps ---- */\nint a; /* --flag */\n")}, None),
    ("poured", {"engine/a.c": head("a.c", "/* The end. Order    first this\n * and that. */\n")},
     r"a\.c:2: a row of a table within a line: 'Order'"),
    ("poured", {"engine/a.c": head("a.c", "/* Operands  two.\n * Order     first this. */\n"
                                          'const char *a = "b. Order    c";\n')}, None),
    ("includers", {"engine/a.h": ONLY_B,
                   "engine/c.c": head("c.c", '#include "engine/a.h"\n')},
     r"a\.h:1: engine/c\.c includes it too"),
    ("includers", {"engine/a.h": ONLY_B,
                   "engine/b.c": head("b.c", '#include "engine/a.h"\n'),
                   "tests/d.c": head("d.c", '#include "engine/a.h"\n')}, None),
    ("null", {"engine/a.c": head("a.c", "int act(char *name) {\n  if (!name) return 0;\n}\n")},
     r"a\.c:3: `name` is a pointer"),
    ("null", {"engine/a.c": head("a.c", "int act(void) {\n  list_t *list = of();\n"
                                        "  return list ? 1 : 0;\n}\n")},
     r"a\.c:4: `list` is a pointer"),
    ("null", {"engine/a.c": head("a.c", "int act(bool *set, bool on) {\n"
                                        "  if (set == NULL || !on) return 0;\n"
                                        "  return *set ? 1 : !set[1] + (last == set ? 2 : 1);\n"
                                        "}\n")}, None),
    ("parameters", {"engine/a.c": head("a.c", "static int act(int count, char *s) {\n}\n")},
     r"a\.c:2: act calls a parameter `s`"),
    ("parameters", {"engine/a.h": head("a.h", "int act(int count,\n        float (*f)(int));\n")},
     r"a\.h:2: act calls a parameter `f`"),
    ("parameters", {"engine/a.c": head("a.c", "int act(const int x[4]) {\n}\n")}, r"parameter `x`"),
    ("parameters", {"engine/a.c": head("a.c", "int act(int i, int n, const float *q, void *k, int "
                                              "v[2]) {\n  call(x);\n}\nint none(void);\n"),
                    "tests/a.c": head("a.c", "int act(int x);\n")}, None),
    ("parameter_counts", {"engine/a.c": head("a.c", f"int act({parameters(9)});\n")},
     r"a\.c:2: act has 9 parameters, at most 8"),
    ("parameter_counts", {"engine/a.c": head("a.c", f"int act({parameters(8)});\n"),
                          "cuda/a.inc": head("a.inc", f"INLINE int act({parameters(9)}) {{\n}}"),
                          "tests/a.c": head("a.c", f"int act({parameters(9)});\n")}, None),
    ("unused", {"engine/a.h": head("a.h", "int act(int count);\n"),
                "engine/a.c": head("a.c", "int act(int count) {\n  return act(count - 1);\n}\n"),
                "tests/b.c": head("b.c", "int b(void) {\n  return act(1);\n}\n")},
     r"engine/a\.h: no other file of the product uses act"),
    ("unused", {"engine/a.h": head("a.h", "int act(int count);\n"),
                "engine/b.c": head("b.c", "/* act(1) */\nstatic const char *b = \"act\";\n")},
     r"engine/a\.h: no other file of the product uses act"),
    ("unused", {"engine/a.h": head("a.h", "int token_quote(int count);\n"),
                "engine/b.c": head("b.c", "int b(void) {\n  return token_quote(1);\n}\n")},
     r"the product uses token_quote: not FOR_OTHERS"),
    ("unused", {"engine/a.h": head("a.h", "int act(int count);\nint one(void)\n"
                                          "    __attribute__((cold));\n"
                                          "#define ONE() one()\nint row(int i);\n"),
                "engine/a.c": head("a.c", "int act(int count) {\n}\n"),
                "engine/b.c": head("b.c", "int b(void) {\n  return act(1);\n}\n"),
                "engine/c.def": "ROW(row)\n"}, None),
    ("mutants", {"tests/sim/mutants.txt": "= late: why\n@ engine/a.c\n-  gone();\n+  new();\n",
                 "engine/a.c": head("a.c", "  step();\n")},
     r"mutants\.txt:2: late: found 0 times in engine/a\.c"),
    ("mutants", {"tests/sim/mutants.txt": "= late: why\n@ engine/b.c\n-  step();\n+  new();\n"},
     r"mutants\.txt:2: late: there is no engine/b\.c"),
    ("mutants", {"tests/cuda/mutants.json": '[{"name": "mask", "file": "cuda/a.c", "from": "x",'
                                            ' "to": "y"}]',
                 "cuda/a.c": head("a.c", "x = x;\n")}, r"mask: found 2 times in cuda/a\.c"),
    ("mutants", {"tests/sim/mutants.txt": "= late: why\n@ engine/a.c\n-  step();\n-  go(\n+  no(",
                 "tests/cuda/mutants.json": '[{"name": "m", "file": "engine/a.c", "from": "go("}]',
                 "engine/a.c": head("a.c", "  step();\n  go(1);\n")}, None),
    ("kernels", {"cuda/kernels/a.cu": "__global__ void __launch_bounds__(f(8), 2)\n    one_kernel("
                                      "int n) {\n}\n",
                 "tests/cuda/performance.json": '{"kernels": {"H100": {"two_kernel<8>": {}}}}'},
     r"performance\.json: H100: no kernel is called two_kernel: make gpu-report"),
    ("kernels", {"cuda/kernels/a.cu": "__global__ void one_kernel(int n) {\n}\n",
                 "tests/cuda/performance.json": '{"kernels": {"H100": {}}}'},
     r"a\.cu: one_kernel is not in tests/cuda/performance\.json, H100"),
    ("kernels", {"tests/cuda/a.cu": "__global__ void one_kernel(int n) {\n}\n",
                 "tests/ptx/README.md": "| `one_kernel` | a |\n| `two_kernel` | a |\n"},
     r"README\.md:2: no kernel is called two_kernel"),
    ("kernels", {"cuda/kernels/a.cu": "__global__ void two_kernel(int n) {\n}\n",
                 "tests/cuda/a.cu": "__global__ void one_kernel(int n) {\n}\n",
                 "tests/ptx/README.md": "| `one_kernel` | a |\n"},
     r"a\.cu: two_kernel is not in tests/ptx/README\.md"),
    ("kernels", {"cuda/kernels/b/a.cu": "template <class T>\n__global__ void one_kernel() {\n}\n",
                 "tests/cuda/performance.json": '{"kernels": {"H100": {"one_kernel<float>": {}}}}'},
     None),
    ("folders", {"ARCHITECTURE.md": "[c](config)\n"}, r"does not link to server/"),
    ("reference", {"scripts/reference": "#!/bin/sh\necho docs/a.md is not as the table\nexit 1\n"},
     r"docs/a\.md is not as the table"),
    ("commits", {COMMITS: f"engine: {'x' * 65}"}, r"has 73 columns, at most 72"),
    ("commits", {COMMITS: "Fix things"}, r"`Fix things` does not begin with an area"),
    ("commits", {COMMITS: "misc: things"}, r"`misc: things` does not begin with an area"),
    ("commits", {COMMITS: "docs: a page\ntests, build: both\nengine: " + "x" * 64,
                 "engine/a.c": head("a.c")}, None),
    ("format", {"engine/a.c": head("a.c", "int  a;\n"), ".clang-format": "BasedOnStyle: LLVM\n"},
     r"a\.c:2: clang-format -i would change it"),
    ("format", {"tests/emu/a.cc": head("a.cc", "int  a;\n"),
                ".clang-format": "BasedOnStyle: LLVM\n"}, r"a\.cc:2: clang-format -i would"),
    ("format", {"engine/a.c": head("a.c", "int a;\n"), ".clang-format": "BasedOnStyle: LLVM\n"},
     None),
    ("lint", {"engine/a.c": head("a.c", "int act(int a) {\n  return a == a;\n}\n"),
              ".clang-tidy": "Checks: 'misc-redundant-expression'\n"}, r"misc-redundant"),
]
# What cannot be planted: `fence` reads the table in scripts/tidy itself.
WITHOUT_CASE = {"fence"}
