# emu.mk: the kernels of cuda/ on the emulator (tests/emu), for machines without a GPU or a toolkit.
#
#   make emu          build and run tests/emu and tests/cuda: orders forward, reverse and random,
#                     random streams, and under AddressSanitizer; ends with `N passed, N failed`
#   make emu-build    build only
#
# build/emu/FLAVOUR/tests_emu tests the emulator itself, .../tests_cuda the kernels. Both take parts
# of test names as arguments; EMU_ORDER, EMU_SEED, EMU_STREAM are documented in emu_engine.h and
# emu_runtime.h.

CXX := $(if $(filter default,$(origin CXX)),c++,$(CXX))
EMU := $(BUILD)/emu

EMU_INCLUDE := -Itests/emu/include -Itests/emu -I.
EMU_FLAGS := -std=c++17 -g $(EMU_INCLUDE) -Wall -Wextra -Werror -Wno-unknown-pragmas \
             -ffp-contract=off -MMD -MP
EMU_FLAGS_plain := -O2 $(if $(findstring clang,$(CXX)),,-ftrivial-auto-var-init=pattern)
EMU_FLAGS_asan  := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
                   -fno-sanitize-recover=all

EMU_ENGINE_SRC  := $(wildcard tests/emu/emu_*.cc)
EMU_KERNEL_SRC  := $(wildcard cuda/*.cu)
EMU_TEST_SRC    := $(wildcard tests/emu/test_*.cu) tests/cuda/main.cc
EMU_KTEST_SRC   := $(wildcard tests/cuda/*.cc)

emu_objects = $(patsubst %,$(EMU)/$(1)/%.o,$(2))

define emu_flavour
$(EMU)/$(1)/%.o: %
	@mkdir -p $$(@D)
	@echo "  EMU   $$< ($(1))"
	$$(Q)$$(CXX) $$(EMU_FLAGS) $$(EMU_FLAGS_$(1)) -x c++ -c $$< -o $$@
$(EMU)/$(1)/tests_emu: $(call emu_objects,$(1),$(EMU_ENGINE_SRC) $(EMU_TEST_SRC))
	@echo "  LD    $$@"
	$$(Q)$$(CXX) $$(EMU_FLAGS_$(1)) -o $$@ $$^ -lpthread -lm
$(EMU)/$(1)/tests_cuda: $(call emu_objects,$(1),$(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC) $(EMU_KTEST_SRC))
	@echo "  LD    $$@"
	$$(Q)$$(CXX) $$(EMU_FLAGS_$(1)) -o $$@ $$^ -lpthread -lm
.PRECIOUS: $(EMU)/$(1)/%.o
endef
EMU_FLAVOURS := plain asan
$(foreach f,$(EMU_FLAVOURS),$(eval $(call emu_flavour,$(f))))

.PHONY: emu emu-build
emu-build: $(foreach f,$(EMU_FLAVOURS),$(EMU)/$(f)/tests_emu $(EMU)/$(f)/tests_cuda)
emu:
	@$(SUBMAKE) emu-build
	@tests/emu/run $(EMU)
