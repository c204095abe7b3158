# Makefile: two commands matter to a newcomer, `make run` and `make test`. Both install what is
# missing first (scripts/bootstrap, Debian and Ubuntu), and need nothing else typed.
#
#   make           build/inferd                     make tidy    style, size and dependency rules
#   make run       build, serve the demo model      make bench   the benchmark programs
#   make test      every test, in every flavour     make parity  compare with transformers
#   make check     the sanitizer flavours alone     make emu     the CUDA kernels, emulated
#   make clean
#
#   make test-ROOM one room's tests (tests/ROOM), e.g. `make test-text`, with SAN=asan|tsan if wanted
#
# BUILD=dir puts everything elsewhere, SAN=asan|tsan builds with sanitizers, CUDA=0|1 overrides what
# was found, RUN="--port 9000" gives `make run` flags, V=1 shows the commands.

BUILD ?= build
SAN   ?= none
V     ?= 0
RUN   ?=
Q     := $(if $(filter 1,$(V)),,@)
.DEFAULT_GOAL := all

CC      := $(if $(filter default,$(origin CC)),cc,$(CC))
VERSION := 0.1.0
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ARCH    := $(shell uname -m)

# A build with CUDA needs nvcc and kernels. There are no kernels (cuda/*.cu) yet, so both values link
# cuda/none.c, whose `open` says that this build has no CUDA back end.
CUDA ?= $(if $(shell command -v nvcc 2>/dev/null),1,0)

WARN   := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
          -Wvla -Werror
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fPIE
HARDEN += $(if $(filter x86_64,$(ARCH)),-fcf-protection)
HARDEN += $(shell $(CC) -ftrivial-auto-var-init=zero -E -x c /dev/null >/dev/null 2>&1 && \
                  echo -ftrivial-auto-var-init=zero)
KERNEL_FLAGS := $(subst =zero,=uninitialized,$(filter -ftrivial%,$(HARDEN)))
CFLAGS_BASE := -std=c11 -D_GNU_SOURCE -g -I. $(WARN) -ffp-contract=off -fno-math-errno -MMD -MP
LDFLAGS_BASE := -pie -Wl,-z,relro,-z,now,-z,noexecstack
ifeq ($(SAN),asan)
CFLAGS_SAN := -O1 -fPIE -fno-omit-frame-pointer -fsanitize=address,undefined \
              -fno-sanitize-recover=all
else ifeq ($(SAN),tsan)
CFLAGS_SAN := -O1 -fPIE -fsanitize=thread -fno-omit-frame-pointer
else
CFLAGS_SAN := -O2 $(HARDEN)
endif
CFLAGS  += $(CFLAGS_BASE) $(CFLAGS_SAN)
LDFLAGS += $(LDFLAGS_BASE) $(filter -fsanitize=%,$(CFLAGS_SAN))
LIBS    := -lmicrohttpd -luv -lcjson -lpthread -lm

# A room is a directory; its sources make one archive. engine/error.c and engine/json.c stand alone
# in `base`, because every room uses them.
base_SRC   := engine/error.c engine/json.c
text_SRC   := $(wildcard engine/text/*.c)
model_SRC  := $(wildcard engine/model/*.c)
cpu_SRC    := $(wildcard engine/cpu/*.c)
engine_SRC := $(filter-out $(base_SRC),$(wildcard engine/*.c))
cuda_SRC   := cuda/none.c
config_SRC := $(wildcard config/*.c)
server_SRC := $(filter-out server/main.c,$(wildcard server/*.c))
ROOMS := base text model cpu engine cuda config server

objects  = $(patsubst %.c,$(BUILD)/%.o,$(1))
archive  = $(BUILD)/lib$(1).a
ARCHIVES := $(foreach r,$(ROOMS),$(call archive,$(r)))
LINK_ARCHIVES := -Wl,--start-group $(ARCHIVES) -Wl,--end-group

# Instruction-set tiers: a file's name ends in its tier.
ifeq ($(ARCH),x86_64)
TIER_avx2       := -mavx2 -mfma -mf16c
TIER_avx512     := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
TIER_avx512bf16 := $(TIER_avx512) -mavx512bf16
TIER_amx        := $(TIER_avx512bf16) -mamx-tile -mamx-bf16
endif
tier_flags = $(foreach t,avx2 avx512 avx512bf16 amx,$(if $(filter %_$(t),$(1)),$(TIER_$(t))))

# Sub-makes use every core, unless the caller chose a number.
JOBS    := $(shell nproc 2>/dev/null || echo 1)
SUBMAKE  = $(MAKE) --no-print-directory $(if $(findstring j,$(firstword -$(MAKEFLAGS))),,-j$(JOBS))

.PHONY: all run test check tidy bench parity clean test-programs bench-programs
all: $(BUILD)/inferd $(BUILD)/inferd-bench

run:
	@scripts/bootstrap build
	@$(SUBMAKE) $(BUILD)/inferd
	$(BUILD)/inferd serve models/demo $(RUN)

$(BUILD)/inferd: $(call objects,server/main.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LINK_ARCHIVES) $(LIBS)

# `inferd bench` is a program of its own: the daemon carries no HTTP client.
BENCH_OBJECTS := $(call objects,$(wildcard server/bench/*.c))
$(BUILD)/inferd-bench: $(BENCH_OBJECTS) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(BENCH_OBJECTS) $(LINK_ARCHIVES) -lcurl $(LIBS)

# An archive also depends on its directories, so that a file that is gone leaves it.
define room_rule
$(call archive,$(1)): $(call objects,$($(1)_SRC)) $(sort $(dir $($(1)_SRC)))
	@echo "  AR    $$@"
	$$(Q)rm -f $$@ && ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

# Kernels want -O3 in every flavour, or the sanitizer runs never end.
$(BUILD)/engine/sampler_lanes.o: CFLAGS += -O3
$(BUILD)/engine/cpu/%.o: engine/cpu/%.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -O3 $(KERNEL_FLAGS) $(call tier_flags,$*) -c $< -o $@

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -DINFERD_VERSION='"$(VERSION)"' -DINFERD_COMMIT='"$(COMMIT)"' -c $< -o $@

# The files that print the commit are compiled again when it changes.
$(call objects,$(shell grep -ls INFERD_COMMIT server/*.c engine/*.c)): $(BUILD)/commit-$(COMMIT)
$(BUILD)/commit-$(COMMIT):
	@mkdir -p $(@D) && rm -f $(BUILD)/commit-* && touch $@

# The fake device (tests/sim) stands behind tests and benchmarks of the engine and the server.
SIM := $(BUILD)/libsim.a
$(SIM): $(call objects,tests/sim/fake_ops.c)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^
LINK_TEST = -Wl,--start-group $(SIM) $(ARCHIVES) -Wl,--end-group

# Unit tests: tests/<room>/*.c make one Criterion program, build/tests/<room>/run. The sanitizer
# flavours run it by tests/sanitized.c, which says why.

TEST_ROOMS := $(sort $(foreach f,$(wildcard tests/*/test_*.c),$(notdir $(patsubst %/,%,$(dir $(f))))))
TSAN_ROOMS := $(filter cpu engine http sim,$(TEST_ROOMS)) # the rooms with threads of their own
test_SRC  = $(wildcard tests/$(1)/*.c)
SAN_RUNNER := $(if $(filter none,$(SAN)),,$(call objects,tests/sanitized.c))

define test_rule
$(BUILD)/tests/$(1)/run: $(call objects,$(call test_SRC,$(1))) $(SAN_RUNNER) $(SIM) $(ARCHIVES)
	@echo "  LD    $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $(call objects,$(call test_SRC,$(1))) $(SAN_RUNNER) $$(LINK_TEST) -lcriterion $$(LIBS)
.PHONY: test-$(1)
test-$(1): $(BUILD)/tests/$(1)/run
	$$<
endef
$(foreach r,$(TEST_ROOMS),$(eval $(call test_rule,$(r))))

# Faults made on purpose: scripts/test demands that the sanitizer flavours find each of them.
$(BUILD)/tests/canary/run: $(call objects,tests/canary/canary.c) $(SAN_RUNNER)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcriterion $(LIBS)

test-programs: $(foreach r,$(if $(filter tsan,$(SAN)),$(TSAN_ROOMS),$(TEST_ROOMS)),$(BUILD)/tests/$(r)/run)
test-programs: $(if $(filter none,$(SAN)),,$(BUILD)/tests/canary/run)

# scripts/test ends with one line, `N passed, N failed`, over all flavours.
test:
	@scripts/bootstrap build test
	@$(SUBMAKE) all test-programs
	@$(SUBMAKE) BUILD=$(BUILD)/asan SAN=asan $(BUILD)/asan/inferd test-programs
	@$(SUBMAKE) BUILD=$(BUILD)/tsan SAN=tsan $(BUILD)/tsan/inferd test-programs
	@scripts/test --build $(BUILD) tidy unit asan tsan api api-asan api-tsan

check:
	@scripts/bootstrap build test
	@$(SUBMAKE) BUILD=$(BUILD)/asan SAN=asan $(BUILD)/asan/inferd test-programs
	@$(SUBMAKE) BUILD=$(BUILD)/tsan SAN=tsan $(BUILD)/tsan/inferd test-programs
	@scripts/test --build $(BUILD) asan tsan api-asan api-tsan

tidy:
	@scripts/bootstrap tidy
	@scripts/tidy --lint

# Benchmarks: tests/bench/<stem>.c makes build/bench/<stem>.
BENCHES := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))
$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(SIM) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LINK_TEST) $(LIBS)

# The daemon over the fake device: what HTTP, text and engine cost without a model.
FAKE_ARCHIVES := $(filter-out $(call archive,cpu),$(ARCHIVES))
FAKE_OBJECTS  := $(call objects,server/main.c tests/sim/fake_as_cpu.c)
$(BUILD)/bench/inferd_fake: $(FAKE_OBJECTS) $(FAKE_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(FAKE_OBJECTS) -Wl,--start-group $(FAKE_ARCHIVES) -Wl,--end-group $(LIBS)
bench-programs: $(BENCHES) $(BUILD)/bench/inferd_fake

# BENCH_CPU="--peer .../llama-server --peer-model X.gguf" puts another server beside inferd.
bench:
	@scripts/bootstrap build
	@$(SUBMAKE) all bench-programs
	@for program in $(sort $(BENCHES)); do echo "== $$program"; $$program || exit 1; done
	scripts/bench_http --build $(BUILD)
	scripts/bench_cpu --build $(BUILD) --repeats 1 $(BENCH_CPU)

# Parity with Hugging Face: reference vectors made anew, and fresh random models and texts.
$(BUILD)/model_driver: $(call objects,tests/model_driver/main.c tests/model/rig.c tests/model/naive_ops.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_ARCHIVES) $(LIBS)

parity:
	@scripts/bootstrap build parity
	@$(SUBMAKE) $(BUILD)/model_driver
	build/venv-parity/bin/python scripts/parity.py --build $(BUILD)
	build/venv-parity/bin/python scripts/parity_tokenizer.py --build $(BUILD)

# The CUDA kernels on the emulator.
include tests/emu/emu.mk

clean:
	rm -rf $(BUILD)

.PRECIOUS: $(BUILD)/%.o
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
