# ptx.mk: the PTX that nvcc emits for the kernels, interpreted beside the emulator.
#
#   make ptx          build and run it, where there is nvcc; ends with `N passed, N failed`
#   make ptx-build    what `make ptx` runs
#
# build/ptx/code/*.ptx is what nvcc makes of each file of kernels for PTX_TARGET, with the flags of
# the product. build/ptx/tests_ptx tests reader and instructions; build/ptx/tests_cuda is the kernel
# tests over both (tests/ptx/README.md). build/ptx/wrappers.ptx is that of the wrappers, one by one
# (tests/ptx/ptx_wrappers).

PTX := $(BUILD)/ptx
PTX_TARGET ?= 90a
PTX_KERNELS := $(EMU_KERNEL_SRC) $(wildcard tests/cuda/*.cu)
PTX_CODE := $(patsubst %.cu,$(PTX)/code/%.ptx,$(notdir $(PTX_KERNELS)))
vpath %.cu $(sort $(dir $(PTX_KERNELS)))

define PTX_COMPILE
	@mkdir -p $(@D)
	@echo "  PTX   $<"
	$(Q)$(CCACHE) $(NVCC) -std=c++17 -O3 -I. -arch=compute_$(PTX_TARGET) -MD -MP -MF $(@:.ptx=.d) -MT $@ \
	  -ptx $< -o $@.part && mv $@.part $@
endef
$(PTX)/code/%.ptx: %.cu
	$(PTX_COMPILE)
$(PTX)/wrappers.ptx: tests/ptx/wrappers.cu
	$(PTX_COMPILE)

PTX_ENGINE := $(EMU_ENGINE_SRC) $(filter-out %_witness.cc,$(wildcard tests/ptx/ptx_*.cc))
ptx_objects = $(call emu_objects,plain,$(PTX_ENGINE) $(1))
$(call emu_objects,plain,$(wildcard tests/ptx/*.cc)): EMU_FLAGS += -Itests/ptx
$(PTX)/tests_cuda: $(call ptx_objects,tests/ptx/ptx_witness.cc $(EMU_KERNEL_SRC) $(EMU_KTEST_SRC))
$(PTX)/tests_ptx: $(call ptx_objects,$(wildcard tests/ptx/test_*.cc) tests/cuda/main.cc)
$(PTX)/ptx_list: $(call ptx_objects,tests/ptx/list.cc)
$(PTX)/tests_cuda $(PTX)/tests_ptx $(PTX)/ptx_list:
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) -rdynamic -o $@ $^ -lpthread -lm -ldl
.PHONY: ptx ptx-build
ptx-build: $(PTX)/tests_cuda $(PTX)/tests_ptx $(PTX)/ptx_list $(PTX_CODE) $(PTX)/wrappers.ptx
ptx:
	$(if $(NVCC_GOOD),,$(error make ptx needs nvcc $(NVCC_MIN) or later))
	@$(SUBMAKE) ptx-build
	@$(RUN_TESTS) ptx
