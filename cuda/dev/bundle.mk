# bundle.mk: one folder for a machine with a GPU and nothing else of ours, and its rehearsal here.
#
#   make gpu-bundle      build/gpu-bundle: scripts/gpu_check and all that it runs, for the generations of
#                        CUDA_TARGETS, and as PTX for later ones
#   make gpu-rehearsal   the same folder over the emulator, run in a chroot with planted failures
#
# The kernels are one shared object, once for all programs. Whatever is not glibc lies beside the
# programs, which find it by $ORIGIN (scripts/gpu_bundle).

KIT       := $(BUILD)/kit
KIT_RPATH := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/lib' -Wl,-rpath,'$$ORIGIN/../lib'
# Without what libstdc++ has and nothing calls, whose symbols would ask for a newer glibc.
KIT_LD    := -static-libgcc -static-libstdc++ -Wl,--gc-sections $(KIT_RPATH)
KIT_FLAGS := -std=c++17 -O3 -I. -Werror all-warnings -Xcompiler -fPIC -Xfatbin -compress-all \
             $(foreach t,$(CUDA_TARGETS),-gencode arch=compute_$(t),code=sm_$(t)) \
             -gencode arch=compute_90,code=compute_90
KIT_CUDA  := -L$(KIT)/lib -linferd_kernels -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -lcudart -ldl -lpthread
kit_objects = $(patsubst $(BUILD)/gpu/%,$(KIT)/%,$(filter-out %.c.o,$(1))) $(filter %.c.o,$(1))

$(KIT)/%.cc.o: %.cc
	@mkdir -p $(@D)
	@echo "  NVCC  $< (kit)"
	$(Q)$(CCACHE) $(NVCC) $(KIT_FLAGS) -x cu -MD -MP -MF $(@:.o=.d) -c $< -o $@
$(KIT)/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $< (kit)"
	$(Q)$(CCACHE) $(NVCC) $(KIT_FLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(KIT)/lib/libinferd_kernels.so: $(call kit_objects,$(filter %.cu.o,$(GPU_OBJECTS)))
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) -shared $(KIT_LD) -o $@ $^ -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -lcudart
$(KIT)/tests_cuda: $(call kit_objects,$(GPU_TESTS)) $(KIT)/lib/libinferd_kernels.so
	@echo "  LD    $@"
	$(Q)$(CXX) $(KIT_LD) -o $@ $(filter %.o,$^) $(KIT_CUDA)
$(KIT)/gpu_bench: $(call kit_objects,$(GPU_BENCH)) $(KIT)/lib/libinferd_kernels.so
	@echo "  LD    $@"
	$(Q)$(CXX) $(KIT_LD) -o $@ $(filter %.o,$^) $(KIT_CUDA)
KIT_ARCHIVES := $(filter-out $(call archive,cuda),$(ARCHIVES))
$(KIT)/inferd: $(call objects,server/main.c) $(filter %.c.o,$(GPU_OBJECTS)) $(KIT_ARCHIVES) $(KIT)/lib/libinferd_kernels.so
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(KIT_RPATH) -o $@ $(filter %.o,$^) -Wl,--start-group $(KIT_ARCHIVES) -Wl,--end-group $(KIT_CUDA) $(LIBS)
# The load generator needs no device.
$(KIT)/inferd-bench: $(BENCH_OBJECTS) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(KIT_RPATH) -o $@ $(BENCH_OBJECTS) $(LINK_ARCHIVES) $(LIBS)

.PHONY: gpu-bundle kit-programs
KIT_PROGRAMS := inferd inferd-bench tests_cuda gpu_bench
kit-programs: $(KIT_PROGRAMS:%=$(KIT)/%)
gpu-bundle:
	@scripts/bootstrap build
	@$(SUBMAKE) CUDA=1 kit-programs
	@scripts/gpu_bundle --programs $(KIT) --out $(BUILD)/gpu-bundle --libraries $(CUDA_HOME)/lib64

# The same programs over the emulator.
TWIN := $(BUILD)/twin
$(TWIN)/inferd: $(call objects,server/main.c) $(call emu_host,plain) $(EMU_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS) $(KIT_LD) -rdynamic -o $@ $(filter %.o,$^) -Wl,--start-group $(EMU_ARCHIVES) -Wl,--end-group $(LIBS) -ldl
$(TWIN)/tests_cuda: $(call emu_objects,plain,$(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC) $(EMU_KTEST_SRC))
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(KIT_LD) -o $@ $^ -lpthread -lm
$(TWIN)/gpu_bench: $(call emu_objects,plain,$(EMU_BENCH_SRC) $(EMU_ENGINE_SRC) $(EMU_KERNEL_SRC))
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CXX) $(KIT_LD) -rdynamic -o $@ $^ -lpthread -lm -ldl
$(TWIN)/inferd-bench: $(KIT)/inferd-bench
	@mkdir -p $(@D) && cp $< $@
.PHONY: gpu-rehearsal gpu-rehearsal-build
gpu-rehearsal-build: $(KIT_PROGRAMS:%=$(TWIN)/%)
gpu-rehearsal:
	@scripts/bootstrap build test
	@$(SUBMAKE) gpu-rehearsal-build
	@tests/gpu/gpu_rehearsal --build $(BUILD)
