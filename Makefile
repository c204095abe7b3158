# Makefile: two commands matter to a newcomer, `make run` and `make test`. Both install what is
# missing first (scripts/bootstrap, Debian and Ubuntu), and need nothing else typed.
#
#   make           build/inferd                     make tidy    style, size and dependency rules
#   make run       build, serve the demo model      make bench   the benchmark programs
#   make quick     tidy, unit tests, simulator      make parity  compare with transformers
#   make test      every test, once                 make emu     the CUDA kernels, emulated
#   make check     under every sanitizer, and long
#   make clean                                      make sim     the deterministic simulator
#   make docs      docs/*.md from the tables        make compile_commands.json  for clangd
#   make install   under PREFIX                     make deb, make tarball      packages
#   make gpu-bundle  build/gpu-bundle: one folder that checks a machine with a GPU (cuda/dev)
#
#   make test-ROOM one room's tests (TEST_FOLDERS), e.g. `make test-text`, with SAN=asan|tsan if wanted
#
# BUILD=dir puts everything elsewhere, SAN=asan|tsan builds with sanitizers, CUDA=0|1 overrides what
# was found, RUN="--port 9000" gives `make run` flags, V=1 shows the commands.

BUILD ?= build
SAN   ?= none
V     ?= 0
RUN   ?=
comma := ,
Q     := $(if $(filter 1,$(V)),,@)
.DEFAULT_GOAL := all

CC      := $(if $(filter default,$(origin CC)),cc,$(CC))
VERSION := $(or $(patsubst v%,%,$(shell git describe --exact-match --tags --match 'v[0-9]*' 2>/dev/null)),0.1.0)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ARCH    := $(shell uname -m)
MPICC   ?= $(shell command -v mpicc 2>/dev/null)
MPI_PLUGIN := $(if $(MPICC),$(BUILD)/inferd-mpi.so)

# Where nvcc and a driver are found, the daemon has the CUDA back end beside the CPU's; without them,
# and in tests and sanitizer builds, cuda/none.c stands in and its `open` says why not. CUDA=1 builds
# it without a driver, too, which takes nvcc minutes. CUDA_TARGETS are the
# generations that get machine code: that of 8.0 runs on 8.6 and 8.9, too, for which no kernel has code
# of its own, that of 10.0 on 10.3, that of 12.0 on 12.1; others run the PTX of compute_90. An nvcc that
# is older than 12.8 knows neither of the last two. An nvcc that is older than
# NVCC_MIN is not used, and make says so; with CUDA=1 it is an error.
NVCC      ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
NVCC_MIN  := 12.4
NVCC_HERE := $(if $(NVCC),$(or $(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p'),unknown))
NVCC_GOOD := $(and $(NVCC),$(filter $(NVCC_MIN),$(shell printf '%s\n' $(NVCC_MIN) $(NVCC_HERE:unknown=0) | sort -V | head -n 1)))
ifneq ($(NVCC),)
ifeq ($(NVCC_GOOD),)
NVCC_NOTE := $(NVCC) is release $(NVCC_HERE), older than $(NVCC_MIN)
$(if $(filter 1,$(CUDA))$(filter gpu-%,$(MAKECMDGOALS)),$(error $(NVCC_NOTE)))
$(if $(filter 0,$(MAKELEVEL)),$(if $(CUDA),,$(info make: $(NVCC_NOTE): building for the CPU alone)))
endif
endif
DRIVER    ?= $(wildcard /dev/nvidiactl /dev/dxg /dev/nvhost-gpu)
ifeq ($(CUDA)$(DRIVER),)
$(if $(NVCC_GOOD),$(if $(filter run all install deb tarball,$(or $(MAKECMDGOALS),all)),$(info make: nvcc, but no driver of a GPU: building for the CPU alone; CUDA=1 builds for both)))
endif
CUDA      ?= $(if $(NVCC_GOOD),$(if $(DRIVER),1,0),0)
CUDA_HOME ?= $(abspath $(dir $(NVCC))/..)
NVCC_NEW  := $(and $(NVCC_GOOD),$(filter 12.8,$(shell printf '%s\n' 12.8 $(NVCC_HERE) | sort -V | head -n 1)))
CUDA_TARGETS ?= 80 90a $(if $(NVCC_NEW),100 120)
WITH_CUDA := $(and $(filter 1,$(CUDA)),$(filter none,$(SAN)))

WARN   := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
          -Wvla -Werror
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fPIE
HARDEN += $(if $(filter x86_64,$(ARCH)),-fcf-protection)
HARDEN += $(shell $(CC) -ftrivial-auto-var-init=zero -E -x c /dev/null >/dev/null 2>&1 && \
                  echo -ftrivial-auto-var-init=zero)
KERNEL_FLAGS := $(subst =zero,=uninitialized,$(filter -ftrivial%,$(HARDEN)))
# Traces of crashes and sanitizers print files and lines, which need the least of debug information;
# more of it is a sixth of the wait. DEBUG=-g builds for gdb, FIRST=1 what `make run` builds first.
DEBUG  ?= $(if $(FIRST),-g0,-g1)
CFLAGS_BASE := -std=c11 -D_GNU_SOURCE $(DEBUG) -I. $(WARN) -ffp-contract=off -fno-math-errno -MMD -MP
LDFLAGS_BASE := -pie -Wl,--build-id,-z,relro,-z,now,-z,noexecstack
ifeq ($(SAN),fuzz) # clang, for `make fuzz`
CFLAGS_SAN := -O1 -fPIE -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link \
              -fno-sanitize-recover=all -w
else ifeq ($(SAN),cov) # clang, for `scripts/fuzz --coverage`
CFLAGS_SAN := -O1 -fPIE -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link -w
else ifeq ($(SAN),asan)
CFLAGS_SAN := -O1 -fPIE -fno-omit-frame-pointer -fsanitize=address,undefined \
              -fno-sanitize-recover=all
else ifeq ($(SAN),tsan)
CFLAGS_SAN := -O1 -fPIE -fsanitize=thread -fno-omit-frame-pointer
else
CFLAGS_SAN := $(if $(FIRST),-O1,-O2) $(HARDEN)
endif
CFLAGS  += $(CFLAGS_BASE) $(CFLAGS_SAN)
LDFLAGS += $(LDFLAGS_BASE) $(filter -fsanitize=%,$(CFLAGS_SAN))
# Pre-tokenizer patterns that no scanner knows, and expressions of adapters, go through PCRE2, where it
# is installed.
PCRE2   ?= $(if $(wildcard $(addsuffix /pcre2.h,/usr/include /usr/local/include)),1,0)
# Pictures: each format is read where its library is installed. Linked by those programs alone that
# have a use for it.
has_header = $(if $(wildcard $(addsuffix /$(1),/usr/include /usr/local/include)),1,0)
LIBPNG  ?= $(call has_header,png.h)
LIBJPEG ?= $(call has_header,jpeglib.h)
LIBWEBP ?= $(call has_header,webp/demux.h)
PICTURE_LIBS := $(if $(filter 1,$(LIBPNG)),-lpng) $(if $(filter 1,$(LIBJPEG)),-ljpeg) \
                $(if $(filter 1,$(LIBWEBP)),-lwebpdemux -lwebp)
# Sound, likewise, but opened by name, and by the process that decodes alone.
LIBSNDFILE ?= $(call has_header,sndfile.h)
FILE_LIBS := $(PICTURE_LIBS)
LIBS    := -lmicrohttpd -lgnutls -luv -lcjson -lsqlite3 -lz -lpthread -lm $(if $(filter 1,$(PCRE2)),-lpcre2-8) \
           $(if $(strip $(FILE_LIBS)),-Wl$(comma)--push-state$(comma)--as-needed $(FILE_LIBS) -Wl$(comma)--pop-state)

# A room is a folder with its own folders below; its sources make one archive.
sources_in = $(wildcard $(addsuffix /*.c,$(1)))
base_SRC   := $(call sources_in,engine/base)
file_SRC   := $(call sources_in,engine/file)
quant_SRC  := $(call sources_in,engine/quant)
vision_SRC := $(call sources_in,engine/vision)
helper_SRC := $(call sources_in,engine/helper)
picture_SRC := $(filter-out $(addprefix engine/picture/,png_% jpeg_% webp_%),$(call sources_in,engine/picture)) \
               engine/picture/png_$(if $(filter 1,$(LIBPNG)),libpng,none).c \
               engine/picture/jpeg_$(if $(filter 1,$(LIBJPEG)),libjpeg,none).c \
               engine/picture/webp_$(if $(filter 1,$(LIBWEBP)),libwebp,none).c
audio_SRC  := $(filter-out engine/audio/sound_%.c,$(call sources_in,engine/audio)) \
              engine/audio/sound_$(if $(filter 1,$(LIBSNDFILE)),sndfile,none).c
text_SRC   := $(filter-out engine/text/split/split_regex_%.c,$(call sources_in,engine/text engine/text/*)) \
              engine/text/split/split_regex_$(if $(filter 1,$(PCRE2)),pcre2,none).c
grammar_SRC := $(call sources_in,engine/grammar engine/grammar/*)
template_SRC := $(call sources_in,engine/template engine/template/*)
model_SRC  := $(filter-out engine/model/adapter/name_pattern_%.c,$(call sources_in,engine/model engine/model/*)) \
              engine/model/adapter/name_pattern_$(if $(filter 1,$(PCRE2)),pcre2,none).c
cpu_SRC    := $(call sources_in,engine/cpu engine/cpu/*)
engine_SRC := $(call sources_in,engine engine/device engine/journal engine/kv_events engine/ranks engine/replicas engine/schedule engine/schedule/draft engine/schedule/floor engine/schedule/state engine/schedule/window engine/sample) engine/ranks/mpi/mpi_open.c
cuda_SRC   := cuda/none.c
config_SRC := $(call sources_in,config)
server_SRC := $(filter-out server/main.c,$(call sources_in,server $(addprefix server/,curl http http/sockets keys kv_events lanes ledger media store tally fields completion dialect audio batches embeddings messages models llama ollama responses api observe replay tls trace top)))
parser_SRC := $(call sources_in,server/parser)
pull_SRC   := $(filter-out server/pull/main.c,$(call sources_in,server/pull))
ROOMS := base file quant vision helper picture audio text template grammar model cpu engine cuda config server parser pull

objects  = $(patsubst %.c,$(BUILD)/%.o,$(1))
archive  = $(BUILD)/lib$(1).a
ARCHIVES := $(foreach r,$(ROOMS),$(call archive,$(r)))
LINK_ARCHIVES := -Wl,--start-group $(ARCHIVES) -Wl,--end-group

# Instruction-set tiers: a file's name ends in its tier.
ifeq ($(ARCH),x86_64)
# In the frames that AddressSanitizer makes to detect use after return, gcc 12 may place variables
# 32 bytes beside a multiple of 64, and aligned stores of 64 bytes fault. So these files have none.
ifeq ($(SAN),asan)
NO_FAKE_STACK   := $(shell f=--param=asan-use-after-return=0; \
                     $(CC) $$f -Werror -E -x c /dev/null >/dev/null 2>&1 && echo $$f)
endif
TIER_avx2       := -mavx2 -mfma -mf16c
TIER_avx512     := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c $(NO_FAKE_STACK)
TIER_avxvnni    := $(TIER_avx2) -mavxvnni
TIER_avx512vnni := $(TIER_avx512) -mavx512vnni
TIER_avx512bf16 := $(TIER_avx512vnni) -mavx512bf16
TIER_amx        := $(TIER_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
else ifeq ($(ARCH),aarch64)
TIER_neondot    := -march=armv8.2-a+dotprod
TIER_neoni8mm   := -march=armv8.2-a+dotprod+i8mm
endif
tier_flags = $(foreach t,avx2 avxvnni avx512 avx512vnni avx512bf16 amx neondot neoni8mm,$(if $(filter %_$(t),$(1)),$(TIER_$(t))))

# Sub-makes use every core, unless the caller chose a number.
JOBS    := $(shell nproc 2>/dev/null || echo 1)
SUBMAKE  = $(MAKE) --no-print-directory $(if $(findstring j,$(firstword -$(MAKEFLAGS))),,-j$(JOBS))

.PHONY: all run test check tidy bench parity clean ptxas-report gpu-report test-programs bench-programs
all: $(BUILD)/inferd $(BUILD)/inferd-bench $(BUILD)/inferd-pull $(MPI_PLUGIN)

run:
	@scripts/bootstrap build
	@$(SUBMAKE) MPICC= $(if $(IS_FIRST),FIRST=1 BUILD=$(BUILD)/first) $(RUN_BUILD)/inferd
	@[ -z "$(IS_FIRST)" ] || ln -f $(RUN_BUILD)/inferd $(BUILD)/inferd
	@[ -z "$(IS_FIRST)" ] || echo "make: built in a hurry, for one instruction set; \`make\` builds the faster program"
	$(BUILD)/inferd serve models/demo $(RUN)

# The first minute: on a clone where nothing is built, `run` makes a program of its own under
# $(BUILD)/first: little optimised, without debug information, and with the kernels of one instruction
# set, AVX2 where the processor has it. That is a third of all compiling. Not beside CUDA, whose
# kernels take longer than the rest.
IS_FIRST  := $(if $(WITH_CUDA)$(wildcard $(call archive,cpu)),,1)
RUN_BUILD := $(BUILD)$(if $(IS_FIRST),/first)
ifneq ($(and $(FIRST),$(filter x86_64,$(ARCH))),)
CPU_FLAGS := $(shell sed -n '/^flags/{p;q}' /proc/cpuinfo 2>/dev/null)
LEFT_OUT  := $(addprefix %_,avxvnni avx512 avx512vnni avx512bf16 amx \
             $(if $(filter 3,$(words $(filter avx2 fma f16c,$(CPU_FLAGS)))),portable,avx2))
endif

# The daemon with CUDA takes libgpu.a in the place of libcuda.a, which holds cuda/none.c.
GPU_ARCHIVE := $(BUILD)/libgpu.a
GPU_OBJECTS := $(patsubst %,$(BUILD)/gpu/%.o,$(filter-out cuda/none.c,$(wildcard cuda/*.c cuda/ranks/*.c)) $(wildcard cuda/kernels/*.cu cuda/kernels/*/*.cu))
DAEMON_ARCHIVES := $(if $(WITH_CUDA),$(filter-out $(call archive,cuda),$(ARCHIVES)) $(GPU_ARCHIVE),$(ARCHIVES))
GPU_LIBS := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -lcudart_static -ldl -lrt \
            -static-libgcc -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic
$(BUILD)/inferd: $(call objects,server/main.c) $(DAEMON_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(DAEMON_ARCHIVES) -Wl,--end-group $(if $(WITH_CUDA),$(GPU_LIBS)) $(LIBS)
# With CUDA whatever `all` has: `make check` sees by it that nvcc takes the kernels.
$(BUILD)/gpu/inferd: $(call objects,server/main.c) $(filter-out $(call archive,cuda),$(ARCHIVES)) $(GPU_ARCHIVE)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(GPU_LIBS) $(LIBS)
$(GPU_ARCHIVE): $(GPU_OBJECTS)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/gpu/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $< (gpu)"
	$(Q)$(CC) $(CFLAGS) -isystem $(CUDA_HOME)/include -c $< -o $@
NVCC_FLAGS := -std=c++17 -O3 -I. -lineinfo -Werror all-warnings -Xcompiler -fPIE \
  $(foreach t,$(CUDA_TARGETS),-gencode arch=compute_$(t),code=sm_$(t)) \
  -gencode arch=compute_90,code=compute_90

# For a machine with a GPU (scripts/gpu_check): the kernel tests of tests/cuda and the benchmark, by
# nvcc. CUDA_TARGETS=90a builds for one generation and is faster.
GPU_TESTS := $(patsubst %,$(BUILD)/gpu/%.o,$(wildcard tests/cuda/*.cc tests/cuda/*.cu))
.PHONY: gpu-programs
gpu-programs: $(BUILD)/gpu/tests_cuda $(BUILD)/gpu/gpu_bench
$(BUILD)/gpu/tests_cuda: $(GPU_TESTS) $(filter %.cu.o,$(GPU_OBJECTS))
	@echo "  LD    $@"
	$(Q)$(NVCC) -Xcompiler -pie -o $@ $^
GPU_BENCH := $(patsubst %,$(BUILD)/gpu/%.o,$(wildcard cuda/dev/*.cu) cuda/blas_library.c)
$(BUILD)/gpu/gpu_bench: $(GPU_BENCH) $(filter %.cu.o,$(GPU_OBJECTS))
	@echo "  LD    $@"
	$(Q)$(NVCC) -Xcompiler -pie -o $@ $^ -ldl
$(BUILD)/gpu/%.cc.o: %.cc
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(CCACHE) $(NVCC) $(NVCC_FLAGS) -x cu -MD -MP -MF $(@:.o=.d) -c $< -o $@
CCACHE := $(shell command -v ccache 2>/dev/null)
$(BUILD)/gpu/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(CCACHE) $(NVCC) $(NVCC_FLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

# `inferd bench` is a program of its own: the daemon carries no HTTP client.
BENCH_OBJECTS := $(call objects,$(wildcard server/bench/*.c))
$(BUILD)/inferd-bench: $(BENCH_OBJECTS) $(DAEMON_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(BENCH_OBJECTS) -Wl,--start-group $(DAEMON_ARCHIVES) -Wl,--end-group $(if $(WITH_CUDA),$(GPU_LIBS)) $(LIBS)

# `inferd pull` is one too, and the only one that is linked with libcurl and libcrypto.
PULL_ARCHIVES := $(foreach r,base model server pull,$(call archive,$(r)))
$(BUILD)/inferd-pull: $(call objects,server/pull/main.c) $(PULL_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(PULL_ARCHIVES) -Wl,--end-group -lcurl -lcrypto -lm

# Ranks that mpirun starts: a shared object that the daemon opens then, where mpicc is installed.
$(BUILD)/inferd: | $(MPI_PLUGIN)
$(BUILD)/inferd-mpi.so: engine/ranks/mpi/mpi.c engine/ranks/mpi/mpi_open.h engine/device/comm.h \
                         engine/base/error.h
	@mkdir -p $(@D)
	@echo "  MPICC $@"
	$(Q)$(MPICC) -std=c11 -D_GNU_SOURCE -O2 -g -I. $(WARN) -fPIC -shared -o $@ $<

# docs/examples/embed.c: the engine in a program of its own, without the libraries of the server.
EMBED := $(BUILD)/examples/embed
ENGINE_ARCHIVES := $(foreach r,base file quant vision audio text template grammar model cpu engine cuda,$(call archive,$(r)))
$(EMBED): $(call objects,docs/examples/embed.c) $(ENGINE_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(ENGINE_ARCHIVES) -Wl,--end-group -lpthread -lm $(if $(filter 1,$(PCRE2)),-lpcre2-8)
all test-programs: $(EMBED)

# An archive also depends on its directories, so that a file that is gone leaves it.
define room_rule
$(call archive,$(1)): $(call objects,$($(1)_SRC)) $(sort $(dir $($(1)_SRC)))
	@echo "  AR    $$@"
	$$(Q)rm -f $$@ && ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

# The web page: three sources become one file, and C that holds its bytes.
PAGE_SRC := $(addprefix server/page/,page.html page.css page.js)
$(call archive,server): $(BUILD)/page_bytes.o
$(BUILD)/page_bytes.c: $(BUILD)/embed_page $(PAGE_SRC)
	@echo "  PAGE  $@"
	$(Q)$^ > $@.part && mv $@.part $@
$(BUILD)/page_bytes.o: $(BUILD)/page_bytes.c server/page/page.h
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/embed_page: scripts/embed_page.c server/keys/sha256.c server/keys/sha256.h server/page/page.h \
                     engine/device/sampling.def
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -I. $(WARN) -o $@ $(filter %.c,$^)

# docs/openapi.json, from the tables, as C that holds its bytes.
OPENAPI_TABLES := $(wildcard server/fields/*.def) engine/device/sampling.def server/http/routes.def engine/base/error.def \
                  scripts/reference.h scripts/request_rows.h
$(call archive,server): $(BUILD)/openapi_bytes.o
$(BUILD)/openapi_bytes.c: $(BUILD)/openapi
	@echo "  PAGE  $@"
	$(Q)$< c > $@.part && mv $@.part $@
$(BUILD)/openapi_bytes.o: $(BUILD)/openapi_bytes.c server/api/openapi.h
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/openapi: scripts/openapi.c $(OPENAPI_TABLES)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -I. $(WARN) -Wno-unused-function -o $@ $<

# Kernels want -O3 in every flavour, or the sanitizer runs never end. With sanitizers the kernels of
# an instruction set get -O1: they are written in intrinsics, and -O3 takes minutes to compile them.
KERNEL_LEVEL = $(if $(and $(filter-out none,$(SAN)),$(call tier_flags,$(1))),-O1,$(if $(FIRST),-O2,-O3))
$(BUILD)/engine/sample/sampler_lanes.o: CFLAGS += -O3
$(BUILD)/engine/audio/resample.o $(BUILD)/engine/audio/mel.o: CFLAGS += $(if $(filter none,$(SAN)),-O3)
$(BUILD)/engine/cpu/%.o: engine/cpu/%.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) $(call KERNEL_LEVEL,$*) $(KERNEL_FLAGS) $(if $(filter $(LEFT_OUT),$*),-DTIER_LEFT_OUT,$(call tier_flags,$*)) -c $< -o $@

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -DINFERD_VERSION='"$(VERSION)"' -DINFERD_COMMIT='"$(COMMIT)"' -c $< -o $@

# Without a library the build ends in one line, before a compiler lists every file that misses it.
PRODUCT_OBJECTS := $(call objects,$(foreach r,$(ROOMS),$($(r)_SRC)) server/main.c server/pull/main.c) $(BENCH_OBJECTS)
$(PRODUCT_OBJECTS): | $(BUILD)/libraries
HEADERS := microhttpd.h gnutls/gnutls.h uv.h cjson/cJSON.h sqlite3.h zlib.h curl/curl.h openssl/evp.h
missing  = $(strip $(foreach h,$(HEADERS),$(shell $(CC) -E -include $h -x c /dev/null >/dev/null 2>&1 || echo '$h')))
$(BUILD)/libraries:
	$(if $(missing),$(error $(missing) not found: run `scripts/bootstrap build`))
	@mkdir -p $(@D) && touch $@

# The files that print the commit are compiled again when it changes.
$(call objects,$(shell grep -rls --include=*.c INFERD_COMMIT server engine)): $(BUILD)/commit-$(COMMIT)
$(BUILD)/commit-$(COMMIT):
	@mkdir -p $(@D) && rm -f $(BUILD)/commit-* && touch $@

# The fake device (tests/sim) stands behind tests and benchmarks of the engine and the server.
SIM := $(BUILD)/libsim.a
$(SIM): $(call objects,tests/sim/fake_ops.c)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^
LINK_TEST = -Wl,--start-group $(SIM) $(ARCHIVES) -Wl,--end-group

# The simulator: the whole engine in one thread, with a clock, a device and a heap of its own.
# `make sim SIM_STEPS=1000000 SIM_SEED=1`; tests/sim/main.c says more.
SIM_STEPS ?= 1000000
SIM_SEED  ?= 1
WRAPPED   := malloc calloc realloc reallocarray aligned_alloc strdup strndup free \
             asprintf __asprintf_chk open openat read pread fopen fstat stat mmap getrandom \
             eventfd close write \
             tokenizer_load tokenizer_free grammar_vocabulary_new grammar_vocabulary_free \
             blueprint_check_family blueprint_read gguf_find engine_submit engine_drain engine_trace \
             sight_read sight_load sight_prepare tower_hash tower_choose tower_begin tower_advance \
             tower_work_done mailbox_has_others
SIM_OBJECTS := $(call objects,$(filter-out tests/sim/fake_%,$(wildcard tests/sim/*.c)))
$(BUILD)/sim: $(SIM_OBJECTS) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $(SIM_OBJECTS) $(LINK_ARCHIVES) $(LIBS)
.PHONY: sim
sim:
	@scripts/bootstrap build
	@$(SUBMAKE) $(BUILD)/sim
	$(BUILD)/sim --steps $(SIM_STEPS) --seed $(SIM_SEED)

# Unit tests: a folder of tests/ makes one Criterion program, build/tests/<room>/run; tests/ mirrors
# the tree. The sanitizer flavours run it by tests/sanitized.c, which says why.
TEST_FOLDERS := config fuzz engine $(addprefix engine/,audio base cpu file grammar helper model picture quant sample template text vision) \
                $(addprefix server/,api bench http keys kv_events lanes ledger media models observe parser pull store tally top)
TEST_ROOM_engine/sample := sampler
TEST_ROOM_server/api    := api_unit
TEST_ROOM_server/bench  := bench_unit
test_room = $(or $(TEST_ROOM_$(1)),$(notdir $(1)))
TEST_ROOMS := $(sort $(foreach f,$(TEST_FOLDERS),$(call test_room,$(f))))
$(foreach f,$(TEST_FOLDERS),$(eval FOLDER_OF_$(call test_room,$(f)) := tests/$(f)))
TSAN_ROOMS := cpu engine grammar http store template # as TSAN_SUITES of scripts/test: tests with threads
test_SRC  = $(wildcard $(FOLDER_OF_$(1))/*.c $(if $(filter engine,$(1)),tests/engine/schedule/*.c) $(if $(filter model,$(1)),tests/engine/model/source/*.c)) \
            $(if $(filter fuzz,$(1)),server/bench/answer.c server/bench/response.c) \
            $(if $(filter file model,$(1)),tests/heap.c) $(if $(filter picture,$(1)),tests/engine/vision/show.c)
HEAP_WRAPPED := malloc calloc realloc reallocarray aligned_alloc strdup strndup
HEAP_LINK = $(if $(filter file model,$(1)),$(HEAP_WRAPPED:%=-Wl,--wrap=%))
SAN_RUNNER := $(if $(filter none,$(SAN)),,$(call objects,tests/sanitized.c))

# Without Criterion the build of a test ends in one line.
TEST_OBJECTS = $(sort $(foreach r,$(TEST_ROOMS),$(call objects,$(call test_SRC,$(r)))) $(call objects,tests/canary/canary.c))
$(TEST_OBJECTS): | $(BUILD)/criterion
no_criterion = $(shell $(CC) -E -include criterion/criterion.h -x c /dev/null >/dev/null 2>&1 || echo no)
$(BUILD)/criterion:
	$(if $(no_criterion),$(error criterion/criterion.h not found: run `scripts/bootstrap unit`))
	@mkdir -p $(@D) && touch $@

define test_rule
$(BUILD)/tests/$(1)/run: $(call objects,$(call test_SRC,$(1))) $(SAN_RUNNER) $(SIM) $(ARCHIVES)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(LDFLAGS) $(HEAP_LINK) -o $$@ $(call objects,$(call test_SRC,$(1))) $(SAN_RUNNER) $$(LINK_TEST) -lcriterion $$(LIBS)
.PHONY: test-$(1)
test-$(1): $(BUILD)/tests/$(1)/run
	$$<
endef
$(foreach r,$(TEST_ROOMS),$(eval $(call test_rule,$(r))))

# Faults made on purpose: scripts/test demands that the sanitizer flavours find each of them.
$(BUILD)/tests/canary/run: $(call objects,tests/canary/canary.c) $(SAN_RUNNER)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcriterion $(LIBS)

# scripts/test asks which programs there are, and what they are made of.
.PHONY: list-test-rooms
list-test-rooms:
	@$(foreach r,$(TEST_ROOMS),echo '$(r): $(filter %.c,$(call test_SRC,$(r)))';)
test-programs: $(foreach r,$(if $(filter tsan,$(SAN)),$(TSAN_ROOMS),$(TEST_ROOMS)),$(BUILD)/tests/$(r)/run)
test-programs: $(if $(filter none,$(SAN)),,$(BUILD)/tests/canary/run)
test-programs: $(if $(filter none,$(SAN)),$(BUILD)/bench/policy)
test-programs: $(if $(filter tsan,$(SAN)),,$(BUILD)/sim) # one thread: nothing to race
# What `make parity` drives is linked in every run, so that it does not rot.
test-programs: $(if $(filter none,$(SAN)),$(addprefix $(BUILD)/,model_driver vision_driver grammar_driver template_driver picture_driver sound_driver file_mutator))

# scripts/test ends with one line, `N passed, N failed`. TEST_JOBS programs run side by side: one more
# than processors, for tests of servers often wait for them.
TEST_JOBS := $(shell expr $(JOBS) + 1)
RUN_TESTS  = scripts/test --build $(BUILD) --jobs $(TEST_JOBS) $(if $(RECORD),--record)
test:
	@scripts/bootstrap build unit
	@$(SUBMAKE) environments all pages test-programs emu-build
	@NVCC="$(NVCC)" $(RUN_TESTS) tidy tidy-rules unit sim policy emu package shipped page api hostile \
	  clients

# The Python environments of the API tests: minutes of network, so they are made beside the build.
.PHONY: environments
environments:
	@scripts/bootstrap build test fleet

# The long half: every sanitizer, the checker of races, the simulator's long runs, the image, and
# where there is nvcc the kernels' machine code.
check:
	@scripts/bootstrap build unit $(if $(NVCC_GOOD),sass)
	@[ "$$(id -u)" -ne 0 ] || scripts/bootstrap package image || true # their tests say what they lack
	@$(SUBMAKE) environments all bench-programs $(BUILD)/sim emu-build emu-check-build \
	  gpu-rehearsal-build $(if $(NVCC_GOOD),ptx-build)
	@$(if $(NVCC_GOOD),$(SUBMAKE) CUDA=1 $(BUILD)/gpu/inferd)
	@scripts/bootstrap contract evaluation
	@$(SUBMAKE) BUILD=$(BUILD)/asan SAN=asan all test-programs
	@$(SUBMAKE) BUILD=$(BUILD)/tsan SAN=tsan $(BUILD)/tsan/inferd test-programs
	@NVCC="$(NVCC)" $(RUN_TESTS) asan sim-asan sim-more sim-days tsan emu-more emu-check \
	  $(if $(NVCC_GOOD),ptx gpu-report) rehearsal rehearsal-cards rehearsal-planted boot image api-asan \
	  api-tsan hostile-asan contract newest evaluation fleet

# The image with the CUDA back end: nvcc takes 10 to 30 minutes.
.PHONY: check-cuda-image
check-cuda-image:
	@scripts/bootstrap image
	@$(RUN_TESTS) image-cuda

# What to run while you work: less than a minute on two processors, after the build.
.PHONY: quick
quick:
	@scripts/bootstrap build unit
	@$(SUBMAKE) test-programs
	@$(RUN_TESTS) tidy tidy-rules unit sim-quick policy

tidy:
	@scripts/bootstrap tidy
	@scripts/tidy --lint

# Benchmarks: tests/bench/<stem>.c makes build/bench/<stem>.
BENCHES := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))
$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(SIM) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LINK_TEST) $(LIBS)

# Scheduling policies over drawn traces, in virtual time; tests/policy/main.c says more.
POLICY_OBJECTS := $(call objects,$(wildcard tests/policy/*.c))
$(BUILD)/bench/policy: $(POLICY_OBJECTS) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(POLICY_OBJECTS) $(LINK_ARCHIVES) $(LIBS)
.PHONY: bench-policy
bench-policy:
	@scripts/bootstrap build
	@$(SUBMAKE) $(BUILD)/bench/policy
	$(BUILD)/bench/policy --floors tests/policy/floors.txt

# The daemon over the fake device: what HTTP, text and engine cost without a model.
FAKE_ARCHIVES := $(filter-out $(call archive,cpu),$(ARCHIVES))
FAKE_OBJECTS  := $(call objects,server/main.c tests/sim/fake_as_cpu.c)
$(BUILD)/bench/inferd_fake: $(FAKE_OBJECTS) $(FAKE_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(FAKE_OBJECTS) -Wl,--start-group $(FAKE_ARCHIVES) -Wl,--end-group $(LIBS)
bench-programs: $(BENCHES) $(BUILD)/bench/policy $(BUILD)/bench/inferd_fake

# BENCH_CPU="--peer .../llama-server --peer-model X.gguf" puts another server beside inferd.
bench:
	@scripts/bootstrap build
	@$(SUBMAKE) all bench-programs
	@for program in $(sort $(BENCHES)); do echo "== $$program"; $$program || exit 1; done
	tests/bench/bench_http --build $(BUILD)
	tests/bench/bench_cpu --build $(BUILD) --repeats 1 $(BENCH_CPU)

# Parity with Hugging Face: reference vectors made anew, and fresh random models and texts.
$(BUILD)/model_driver: $(call objects,tests/model_driver/main.c tests/engine/model/rig.c tests/engine/model/naive_ops.c tests/engine/model/naive_state.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_ARCHIVES) $(LIBS)

# Models that see (tests/parity/parity_vision.py).
$(BUILD)/vision_driver: $(call objects,tests/model_driver/pictures.c tests/engine/model/rig.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_ARCHIVES) $(LIBS)

# Grammars driven by tests/parity/parity_schemas.py and tests/parity/coverage_schemas.py, which check them with
# Python's jsonschema, and by tests/bench/bench_schemas.py, which times them beside llguidance.
$(BUILD)/grammar_driver: $(call objects,tests/grammar_driver/main.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LINK_ARCHIVES) $(LIBS)

# Pictures of numbers for comparison with transformers (tests/parity/parity_pictures.py).
$(BUILD)/picture_driver: $(call objects,tests/picture_driver/main.c tests/engine/vision/show.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_ARCHIVES) $(LIBS)

# Files of sound -> samples, for comparison with FFmpeg (tests/parity/parity_sounds.py).
DECODER_ARCHIVES := $(foreach r,audio picture vision helper base,$(call archive,$(r)))
$(BUILD)/sound_driver: $(call objects,tests/sound_driver/main.c) $(DECODER_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lm

# Damaged files of pictures and sounds, read in processes without rights or under sanitizers
# (tests/fuzz/README.md).
$(BUILD)/file_mutator: $(call objects,$(call sources_in,tests/file_mutator)) $(DECODER_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

# Templates rendered for comparison with Jinja2 (tests/parity/parity_templates.py).
$(BUILD)/template_driver: $(call objects,tests/template_driver/main.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LINK_ARCHIVES) $(LIBS)

# libFuzzer over every target of tests/fuzz, FUZZ_SECONDS each; finds stay in build/fuzz/finds. The
# committed corpus is replayed by `make test-fuzz` and `make test-api_unit`. For hours over all of
# them: scripts/fuzz --minutes 240.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(shell sed -n 's/^  X(\([a-z]*\)).*/\1/p' tests/fuzz/targets.h) api
.PHONY: fuzz fuzz-programs fuzz-coverage
fuzz:
	@scripts/bootstrap build unit fuzz
	@$(SUBMAKE) BUILD=$(BUILD)/fuzz SAN=fuzz CC=clang CUDA=0 fuzz-programs
	@scripts/fuzz --build $(BUILD)/fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)
# Lines of the parsers that the corpora reach: the committed one, and what runs of `make fuzz` found.
fuzz-coverage:
	@scripts/bootstrap build unit fuzz
	@$(SUBMAKE) BUILD=$(BUILD)/cov SAN=cov CC=clang CUDA=0 fuzz-programs
	@scripts/fuzz --build $(BUILD)/cov --out $(BUILD)/fuzz --coverage $(FUZZ_TARGETS)
fuzz-programs: $(foreach t,$(FUZZ_TARGETS),$(BUILD)/run_$(t))
FUZZ_OBJECTS := $(filter-out $(BUILD)/tests/fuzz/test_%,$(call objects,$(call test_SRC,fuzz)))
.SECONDARY: $(FUZZ_TARGETS:%=$(BUILD)/entry_%.o)
$(BUILD)/entry_%.o: tests/fuzz/entry/main.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -DFUZZ_TARGET=$* -c $< -o $@
FUZZ_ARCHIVES := $(foreach r,base file quant vision helper picture audio text template grammar model engine config parser server pull,$(call archive,$(r)))
# The unit program of the targets has no other archives, so that `make fuzz` links whenever it does.
$(BUILD)/tests/fuzz/run: LINK_TEST = -Wl,--start-group $(FUZZ_ARCHIVES) -Wl,--end-group
FUZZ_RUNTIMES := $(if $(filter cov,$(SAN)),-fprofile-instr-generate,-fsanitize=address,undefined)
FUZZ_LINK = $(Q)$(CC) -pie $(FUZZ_RUNTIMES) -fsanitize=fuzzer -o $@ $(filter %.o,$^) \
  -Wl,--start-group $(FUZZ_ARCHIVES) -Wl,--end-group
$(BUILD)/run_%: $(BUILD)/entry_%.o $(FUZZ_OBJECTS) $(FUZZ_ARCHIVES)
	@echo "  LD    $@"
	$(FUZZ_LINK) $(LIBS)
$(BUILD)/run_api: $(BUILD)/entry_api.o $(call objects,tests/fuzz/entry/asserts.c tests/fuzz/files.c \
    tests/server/api/fuzz_api.c $(wildcard tests/server/api/fake_*.c) engine/quota.c) $(FUZZ_ARCHIVES)
	@echo "  LD    $@"
	$(FUZZ_LINK) -lcriterion $(LIBS)

parity:
	@scripts/bootstrap build parity
	@$(SUBMAKE) $(BUILD)/model_driver $(BUILD)/vision_driver $(BUILD)/grammar_driver $(BUILD)/template_driver $(BUILD)/picture_driver $(BUILD)/tests/api_unit/run
	CALLS=10000 $(BUILD)/tests/api_unit/run --filter='calls/*'
	VIEWS=10000 $(BUILD)/tests/api_unit/run --filter='views/*'
	build/venv-parity/bin/python tests/parity/parity_templates.py --build $(BUILD) --random 20000
	build/venv-parity/bin/python tests/parity/parity.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_scores.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_embeddings.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_encoders.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_crossed.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_served.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_rows.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_adapters.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_checkpoints.py --build $(BUILD)
	build/venv-parity/bin/python scripts/vectors/torch_files.py --build $(BUILD) --check 400
	build/venv-parity/bin/python tests/parity/parity_pictures.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_vision.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_seen.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_heard.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_speech.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_tokenizer.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_tokenizer.py --build $(BUILD) --gguf
	build/venv-parity/bin/python tests/parity/parity_pipelines.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD)
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --tags
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --recursive
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --logic --instances 20
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --arrays --instances 20
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --regex --max-tokens 40
	build/venv-parity/bin/python tests/parity/parity_schemas.py --build $(BUILD) --grammar --max-tokens 30
	build/venv-parity/bin/python tests/parity/parity_classes.py --build $(BUILD)

# The CUDA kernels on the emulator, and what ptxas says of them.
include tests/emu/emu.mk
include tests/ptx/ptx.mk
include cuda/dev/bundle.mk
include config/package/package.mk

# The emulator's flavour is the one that reads kernels as C++, without a toolkit.
.PHONY: compile_commands.json
compile_commands.json:
	@$(MAKE) --no-print-directory --dry-run --always-make V=1 CUDA=0 all test-programs bench-programs \
	  $(EMU)/plain/tests_emu $(EMU)/plain/tests_cuda $(EMU)/plain/inferd $(EMU)/tests_host | \
	  scripts/compile_commands
# The source of a release, as it is committed: build/inferd-VERSION.tar.gz and its sum.
DIST = $(BUILD)/inferd-$(VERSION).tar.gz
.PHONY: dist
dist:
	@mkdir -p $(BUILD)
	@git diff --quiet HEAD || { echo 'make dist: commit first: a release is what is committed' >&2; exit 1; }
	git archive --format=tar.gz --prefix=inferd-$(VERSION)/ -o $(DIST) HEAD
	cd $(BUILD) && sha256sum $(notdir $(DIST)) >$(notdir $(DIST)).sha256

# The reference pages of docs/, from the tables; scripts/tidy says when one is stale.
.PHONY: docs
docs:
	@scripts/reference

# What can be known of speed without a GPU: fails when a kernel is worse than tests/cuda/performance.md
# says. REPORT=--write writes the page anew.
gpu-report:
	$(if $(NVCC_GOOD),,$(error make gpu-report needs nvcc $(NVCC_MIN) or later))
	@scripts/bootstrap sass
	@$(SUBMAKE) CUDA=1 $(filter %.cu.o,$(GPU_OBJECTS))
	NVCC="$(NVCC)" tests/gpu/gpu_report --objects $(BUILD)/gpu/cuda/kernels $(REPORT)

ptxas-report:
	tests/ptx/ptxas_report --nvcc "$(NVCC)" --out $(BUILD)/ptxas 80 86 89 90a

clean:
	rm -rf $(BUILD)

# The compiler writes these beside the objects.
%.d: ;
.PRECIOUS: $(BUILD)/%.o
# The Debian of tests/package/boot has files of that ending too.
-include $(shell find $(BUILD) -path '$(BUILD)/package-root*' -prune -o -name '*.d' -type f -print 2>/dev/null)
