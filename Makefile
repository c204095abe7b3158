# Makefile: two commands matter to a newcomer, `make run` and `make test`.
#
#   make           build/inferd                     make check   the tests under ASan+UBSan and TSan
#   make run       build, serve the demo model      make tidy    style, size and dependency rules
#   make test      build, run every test            make bench   the benchmark programs
#
# BUILD=dir puts everything elsewhere, SAN=asan|tsan builds with sanitizers, CUDA=0|1 overrides what
# was found, V=1 shows the commands.

BUILD ?= build
SAN   ?= none
V     ?= 0
Q     := $(if $(filter 1,$(V)),,@)
.DEFAULT_GOAL := all

CC      := $(if $(filter default,$(origin CC)),cc,$(CC))
VERSION := 0.1.0
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
ARCH    := $(shell uname -m)

WARN   := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE
CFLAGS_BASE := -std=c11 -D_GNU_SOURCE -g -I. $(WARN) -ffp-contract=off -fno-math-errno -MMD -MP
LDFLAGS_BASE := -pie -Wl,-z,relro,-z,now,-z,noexecstack
ifeq ($(SAN),asan)
CFLAGS_SAN := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else ifeq ($(SAN),tsan)
CFLAGS_SAN := -O1 -fsanitize=thread -fno-omit-frame-pointer
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

# Instruction-set tiers: a file's name ends in its tier.
ifeq ($(ARCH),x86_64)
TIER_avx2       := -mavx2 -mfma -mf16c
TIER_avx512     := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
TIER_avx512bf16 := $(TIER_avx512) -mavx512bf16
TIER_amx        := $(TIER_avx512bf16) -mamx-tile -mamx-bf16
endif
tier_flags = $(foreach t,avx2 avx512 avx512bf16 amx,$(if $(filter %_$(t),$(1)),$(TIER_$(t))))

.PHONY: all run test check tidy bench clean
all: $(BUILD)/inferd

$(BUILD)/inferd: $(call objects,server/main.c) $(ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(ARCHIVES) -Wl,--end-group $(LIBS)

define room_rule
$(call archive,$(1)): $(call objects,$($(1)_SRC))
	@echo "  AR    $$@"
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

# Kernels want -O3 in every flavour, or the sanitizer runs never end.
$(BUILD)/engine/cpu/%.o: engine/cpu/%.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -O3 $(call tier_flags,$*) -c $< -o $@

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -DINFERD_VERSION='"$(VERSION)"' -DINFERD_COMMIT='"$(COMMIT)"' -c $< -o $@

# Unit tests: tests/<room>/*.c make one Criterion program.

TEST_ROOMS := $(sort $(foreach f,$(wildcard tests/*/test_*.c),$(notdir $(patsubst %/,%,$(dir $(f))))))
test_SRC  = $(wildcard tests/$(1)/*.c)
define test_rule
$(BUILD)/tests/$(1)/run: $(call objects,$(call test_SRC,$(1))) $(ARCHIVES)
	@echo "  LD    $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $(call objects,$(call test_SRC,$(1))) -Wl,--start-group $$(ARCHIVES) -Wl,--end-group -lcriterion $$(LIBS)
test-$(1): $(BUILD)/tests/$(1)/run
	$$< --verbose=0
endef
$(foreach r,$(TEST_ROOMS),$(eval $(call test_rule,$(r))))

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
