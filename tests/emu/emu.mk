# emu.mk: the kernels of cuda/ on the emulator (tests/emu), for machines without a GPU or a toolkit.
#
#   make emu          build and run tests/emu and tests/cuda: orders forward, reverse and random,
#                     random streams, under AddressSanitizer and under the checker of races
#                     (emu_check.cc); ends with `N passed, N failed`
#   make emu-check    the last two alone
#   make emu-build    what `make test` runs of it; emu-check-build: what `make emu-check` does
#
# build/emu/FLAVOUR/tests_emu tests the emulator itself, .../tests_cuda the kernels. Both take parts
# of test names as arguments; EMU_ORDER, EMU_SEED, EMU_STREAM are documented in emu_engine.h and
# emu_runtime.h.

CXX := $(if $(filter default,$(origin CXX)),c++,$(CXX))
EMU := $(BUILD)/emu

EMU_INCLUDE := -Itests/emu/include -Itests/emu -I.
EMU_FLAGS := -std=c++17 -g1 $(EMU_INCLUDE) -Wall -Wextra -Werror -Wno-unknown-pragmas \
             -ffp-contract=off -MMD -MP
EMU_FLAGS_plain := -O2 $(if $(findstring clang,$(CXX)),,-ftrivial-auto-var-init=pattern)
EMU_FLAGS_asan  := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
                   -fno-sanitize-recover=all

# The checker stands in for libtsan: kernels call its hooks, the emulator itself does not. It looks at
# every access, so it is the part that is optimised.
EMU_FLAGS_check := -O1 -DEMU_CHECK
EMU_HOOKS_check := -fsanitize=thread $(if $(findstring clang,$(CXX)),,-Wno-tsan)

EMU_CFLAGS_plain := $(CFLAGS)
EMU_CFLAGS_asan  := $(CFLAGS_BASE) -fPIE $(EMU_FLAGS_asan)

EMU_ENGINE_SRC  := $(wildcard tests/emu/emu_*.cc)
EMU_KERNEL_SRC  := $(wildcard cuda/kernels/*.cu cuda/kernels/*/*.cu)
EMU_TEST_SRC    := $(filter-out tests/emu/test_check.cu,$(wildcard tests/emu/test_*.cu)) \
                   tests/cuda/main.cc
EMU_TEST_check  := tests/emu/test_check.cu
EMU_KTEST_SRC   := $(wildcard tests/cuda/*.cc tests/cuda/*.cu)

emu_objects = $(patsubst %,$(EMU)/$(1)/%.o,$(2))

define emu_flavour
$(EMU)/$(1)/%.c.o: %.c
	@mkdir -p $$(@D)
	@echo "  EMU   $$< ($(1))"
	$$(Q)$$(CC) $$(EMU_CFLAGS_$(1)) -Itests/emu/include -c $$< -o $$@
$(EMU)/$(1)/%.o: %
	@mkdir -p $$(@D)
	@echo "  EMU   $$< ($(1))"
	$$(Q)$$(CXX) $$(EMU_FLAGS) $$(EMU_FLAGS_$(1)) $$(if $$(filter %.cu,$$<),$$(EMU_HOOKS_$(1))) \
	  -x c++ -c $$< -o $$@
$(EMU)/$(1)/tests_emu: $(call emu_objects,$(1),$(EMU_ENGINE_SRC) $(EMU_TEST_SRC) $(EMU_TEST_$(1)))
	@echo "  LD    $$@"
	$$(Q)$$(CXX) $$(EMU_FLAGS_$(1)) -o $$@ $$^ -lpthread -lm
$(EMU)/$(1)/tests_cuda: $(call emu_objects,$(1),$(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC) $(EMU_KTEST_SRC))
	@echo "  LD    $$@"
	$$(Q)$$(CXX) $$(EMU_FLAGS_$(1)) -o $$@ $$^ -lpthread -lm
.PRECIOUS: $(EMU)/$(1)/%.o
endef
EMU_FLAVOURS := plain asan check
$(foreach f,$(EMU_FLAVOURS),$(eval $(call emu_flavour,$(f))))
$(call emu_objects,check,$(EMU_ENGINE_SRC)): EMU_FLAGS_check += -O2

# The daemon on the emulated device and tests of the host half of the back end. They take every room
# but `cuda` from the ordinary builds: build/emu/FLAVOUR/inferd, and build/emu/tests_host.
EMU_HOST_SRC := $(filter-out cuda/none.c,$(wildcard cuda/*.c cuda/ranks/*.c))
emu_host = $(call emu_objects,$(1),$(EMU_HOST_SRC) $(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC))
EMU_ARCHIVES := $(filter-out $(call archive,cuda),$(ARCHIVES))
$(EMU)/plain/inferd: $(call objects,server/main.c) $(call emu_host,plain) $(EMU_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) -Wl,--start-group $(EMU_ARCHIVES) -Wl,--end-group $(LIBS) -ldl

EMU_ASAN_PARTS := $(patsubst $(BUILD)/%,$(BUILD)/asan/%,$(call objects,server/main.c) $(EMU_ARCHIVES))
.PHONY: emu-asan-parts
emu-asan-parts:
	@$(SUBMAKE) BUILD=$(BUILD)/asan SAN=asan $(EMU_ASAN_PARTS)
$(EMU)/asan/inferd: $(call emu_host,asan) emu-asan-parts
	@echo "  LD    $@"
	$(Q)$(CXX) -pie -fsanitize=address,undefined -rdynamic -o $@ $(filter %.o,$^) -Wl,--start-group $(EMU_ASAN_PARTS) -Wl,--end-group $(LIBS) -ldl

EMU_HTEST_SRC := $(wildcard tests/emu/host/*.c) tests/engine/model/rig.c tests/engine/model/vectors.c tests/engine/crew.c tests/engine/client.c tests/engine/support.c
$(EMU)/tests_host: $(call emu_objects,plain,$(EMU_HTEST_SRC)) $(call emu_host,plain) $(EMU_ARCHIVES)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) -rdynamic -o $@ $(filter %.o,$^) -Wl,--start-group $(EMU_ARCHIVES) -Wl,--end-group -lcriterion $(LIBS) -ldl

# What stands in for libnccl.so.2; the program that opens it has the runtime.
$(EMU)/nccl/libnccl.so.2: tests/emu/nccl/nccl_double.c tests/emu/nccl/nccl_excerpt.h cuda/ranks/nccl.h
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(EMU_CFLAGS_plain) -Itests/emu/include -fPIC -shared -o $@ $<

# The GPU's benchmark, to try it: its figures mean nothing here.
EMU_BENCH_SRC := $(wildcard cuda/dev/*.cu) cuda/blas_library.c
$(EMU)/plain/gpu_bench: $(call emu_objects,plain,$(EMU_BENCH_SRC) $(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC))
	@echo "  LD    $@"
	$(Q)$(CXX) -rdynamic -o $@ $^ -lpthread -lm -ldl

.PHONY: emu emu-check emu-build emu-check-build
emu-build: $(EMU)/nccl/libnccl.so.2 $(EMU)/plain/tests_emu $(EMU)/plain/tests_cuda $(EMU)/plain/inferd $(EMU)/tests_host $(EMU)/plain/gpu_bench
emu-check-build: $(EMU)/nccl/libnccl.so.2 $(foreach f,asan check,$(EMU)/$(f)/tests_emu $(EMU)/$(f)/tests_cuda) $(EMU)/asan/inferd
emu:
	@$(SUBMAKE) emu-build emu-check-build
	@$(RUN_TESTS) emu emu-more emu-check
emu-check:
	@$(SUBMAKE) emu-check-build
	@$(RUN_TESTS) emu-check
