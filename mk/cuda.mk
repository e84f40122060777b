# The CUDA plug-in, and what replaces CUDA where there is none: the kernels on the host, and libraries with
# the API of CUDA's runtime, cuBLASLt, NCCL and cuDNN.

# Built where nvcc is found (NVCC= builds without). The toolkit's runtime is linked in, and its libraries are
# found where the toolkit stands. libcuda is never linked: without a driver no program would start. No other
# binary needs any of it.
NVCC      ?= $(shell command -v nvcc)
CUDA_ROOT ?= $(if $(NVCC),$(abspath $(dir $(NVCC))..))
CUDA_LIB  := $(firstword $(wildcard $(CUDA_ROOT)/lib64 $(CUDA_ROOT)/lib))
# nvcc goes through ccache where the C compiler does: it takes long.
CCACHE    := $(if $(filter ccache,$(notdir $(realpath $(shell command -v $(CC))))),ccache)
NVCC_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
NVCCFLAGS := -std=c++17 -O3 $(NVCC_ARCH) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings
CUDA_SRC   := $(call src,shard_runtime/cuda)
KERNEL_SRC := $(wildcard shard_runtime/cuda/kernels/*.cu)
CUDA_LINK  := -shared -Wl,--no-undefined -Wl,--version-script=shard_runtime/cuda/exports.map
$(BUILD)/obj/shard_runtime/cuda/%.o: CPPFLAGS += -isystem $(CUDA_ROOT)/include
$(BUILD)/obj/shard_runtime/cuda/kernels/%.o: shard_runtime/cuda/kernels/%.cu | $(BUILD)/cuda-announced
	@mkdir -p $(@D)
	$(CCACHE) $(NVCC) -I. -Ishard_runtime/include $(NVCCFLAGS) -MMD -MP -c $< -o $@
# Printed once, on stderr, which make -s and the quickstart leave alone.
$(BUILD)/cuda-announced:
	@mkdir -p $(@D)
	@echo 'building the CUDA plug-in with $(NVCC): about two minutes ("make NVCC=" builds without it)' >&2
	@touch $@
# The plug-in takes from libfsdp.a what both sides of its table need: the core, and the choice of an
# attention.
$(BUILD)/lib/libfsdp_cuda.so: $(call obj,$(CUDA_SRC)) $(KERNEL_SRC:%.cu=$(BUILD)/obj/%.o) $(BUILD)/lib/libfsdp.a
	$(call link,$(CUDA_LINK) -L$(CUDA_LIB) -lcudart_static -lcublasLt -lstdc++ -lrt -ldl -lpthread -lm -Wl$(comma)-rpath$(comma)$(CUDA_LIB))
.PHONY: cuda        ## the CUDA plug-in, build/lib/libfsdp_cuda.so; part of `all` where nvcc is found
cuda: $(BUILD)/lib/libfsdp_cuda.so
all: $(if $(SAN),,$(if $(NVCC),$(BUILD)/lib/libfsdp_cuda.so))

# The kernels, compiled for the host over tests/emulation, and their tests: no GPU, no nvcc.
CXX ?= g++
ifeq ($(origin CXX),default)
CXX := g++
endif
# -ffp-contract=off: what the kernels want fused they fuse by name. nvcc fuses the rest as it likes: only what
# goes through times() and plus() (number.h) keeps the host's bits on a GPU.
EMULATED_FLAGS := -std=c++17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wshadow $(if $(WERROR),-Werror) $(SANFLAGS) \
                  -ffp-contract=off
EMULATION_OBJ  := $(call obj,$(call src,tests/emulation))
$(BUILD)/obj/%.host.o: %.cu
	@mkdir -p $(@D)
	$(CXX) -x c++ -I. -Ishard_runtime/include -Itests $(EMULATED_FLAGS) -MMD -MP -c $< -o $@
$(EMULATION_OBJ): CPPFLAGS += $(shell pkg-config --cflags criterion)
$(BUILD)/test/emulation: $(EMULATION_OBJ) $(patsubst %.cu,$(BUILD)/obj/%.host.o,$(KERNEL_SRC) $(wildcard tests/emulation/*.cu)) \
  $(BUILD)/lib/libfsdp.a
	$(call link,-lstdc++ $(LIBS_TRAIN) $(CRITERION))
$(BUILD)/test/emulation.a: $(EMULATION_OBJ)
	$(archive)

# The kernels once more, with a call before each load and store (traffic.h): what bytes they move. Never with
# a sanitizer.
$(BUILD)/obj/%.counted.o: %.cu
	@mkdir -p $(@D)
	$(CXX) -x c++ -I. -Ishard_runtime/include -Itests $(filter-out -fsanitize=%,$(EMULATED_FLAGS)) \
	  -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -MMD -MP -c $< -o $@
$(BUILD)/test/kernel_traffic: $(call obj,$(call src,tests/emulation/traffic)) $(KERNEL_SRC:%.cu=$(BUILD)/obj/%.counted.o) \
  $(BUILD)/test/emulation.a $(BUILD)/lib/libfsdp.a
	$(call link,-lstdc++ $(LIBS_TRAIN))

# The whole plug-in on the host: the same sources over a CUDA runtime and a cuBLASLt of tests/emulation/cuda,
# whose headers stand in for CUDA's. No program finds it unless FSDP_CUDA_PLUGIN names it.
EMULATED      := $(BUILD)/test/emulated
EMULATED_BIN  := $(BUILD)/test/emulation $(BUILD)/test/kernel_traffic $(EMULATED)/driver/libcuda.so.1 \
                 $(addprefix $(EMULATED)/,libfsdp_cuda.so libnccl_standin.so libnccl_standin_old.so libcudnn_standin.so)
EMULATED_LINK := -shared -L$(EMULATED) -lcudart_emulated -Wl,-rpath,'$$ORIGIN' -lm -ldl
emulated       = $(patsubst %.c,$(BUILD)/obj/%.emulated.o,$(1))
$(BUILD)/obj/%.emulated.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/emulation/cuda/include $(ALL_CFLAGS) -MMD -MP -c $< -o $@
EMULATED_CUDA    := $(addprefix tests/emulation/cuda/,cublaslt.c launches.c)
EMULATED_CUDNN   := $(addprefix tests/emulation/cuda/,cudnn_standin.c cudnn_program.c)
EMULATED_RUNTIME := $(filter-out $(EMULATED_CUDA) $(EMULATED_CUDNN) %/driver_standin.c,$(call src,tests/emulation/cuda))
NCCL_STANDIN_SRC := $(call src,tests/emulation/cuda/nccl)
$(call emulated,$(EMULATED_RUNTIME)): VISIBILITY := default
$(EMULATED)/libcudart_emulated.so: $(call emulated,$(EMULATED_RUNTIME))
	$(call link,-shared)
$(BUILD)/test/emulated_cuda.a: $(call emulated,$(CUDA_SRC))
	$(archive)
$(EMULATED)/libfsdp_cuda.so: $(call emulated,$(CUDA_SRC) $(EMULATED_CUDA)) $(KERNEL_SRC:%.cu=$(BUILD)/obj/%.host.o) \
  $(BUILD)/test/emulation.a $(BUILD)/lib/libfsdp.a $(EMULATED)/libcudart_emulated.so
	$(call link,$(CUDA_LINK) $(EMULATED_LINK) -lstdc++)
# NCCL's API between processes of one host, for the emulated device; and the same as of NCCL 2.18.
$(EMULATED)/libnccl_standin.so: $(call emulated,$(NCCL_STANDIN_SRC)) $(EMULATED)/libcudart_emulated.so
	$(call link,$(EMULATED_LINK))
$(BUILD)/obj/%.emulated_old.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/emulation/cuda/include -DNCCL_STANDIN_OLD $(ALL_CFLAGS) -MMD -MP -c $< -o $@
$(EMULATED)/libnccl_standin_old.so: $(patsubst %.c,$(BUILD)/obj/%.emulated_old.o,$(NCCL_STANDIN_SRC)) $(EMULATED)/libcudart_emulated.so
	$(call link,$(EMULATED_LINK))
# cuDNN's graph API, which computes what a graph says.
$(EMULATED)/libcudnn_standin.so: $(call emulated,$(EMULATED_CUDNN)) $(EMULATED)/libcudart_emulated.so
	$(call link,$(EMULATED_LINK))
# A driver in which modules can be put and nothing runs: cuDNN itself, where it is found, then compiles for a
# GPU that is absent.
$(EMULATED)/driver/libcuda.so.1: $(call obj,tests/emulation/cuda/driver_standin.c)
	$(call link,-shared -Wl$(comma)-soname$(comma)libcuda.so.1)
$(call obj,tests/emulation/cuda/driver_standin.c): VISIBILITY := default
# Our descriptions of graphs and how they are handed to cuDNN, without the plug-in around them.
$(BUILD)/test/cudnn_graphs: $(BUILD)/test/emulated_cuda.a
