# fsdprun: one Makefile for everything. Flavours have their own folder under build/, so they never mix. `make help` lists the targets.
#   make            build/bin/{fsdprun,fsdp-agent,fsdp-train}, build/lib/libfsdp.{so,a}
#   make test       the tests of scripts/test.sh   make asan, make tsan   the same under sanitizers
#   make nightly    the long tests
#   make install DESTDIR= PREFIX=/usr/local        make format, make lint, make compile_commands.json
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:

VERSION   := 0.1.0
SOVERSION := 0
BUILD     ?= build
PREFIX    ?= /usr/local
DESTDIR   ?=
LIBDIR    ?= $(PREFIX)/lib
CC        ?= cc
ifeq ($(origin CC),default)
CC        := gcc
endif
SAN       ?=
WERROR    ?=
OPENMP    ?= -fopenmp
PKGS      := libuv yaml-0.1 libcjson openssl
COMMIT    := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

comma    := ,
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
CPPFLAGS += -I. -Ishard_runtime/include -D_GNU_SOURCE $(shell pkg-config --cflags $(PKGS) 2> /dev/null)
CFLAGS   += -std=c11 -O2 -g $(WARN) $(SANFLAGS)
ALL_CFLAGS = $(CFLAGS) -fPIC -fvisibility=hidden $(OPENMP)
LDFLAGS  += $(SANFLAGS)
LIBS_UV    := $(shell pkg-config --libs libuv 2> /dev/null)
LIBS_JOB   := $(shell pkg-config --libs yaml-0.1 libcjson 2> /dev/null)
LIBS_TLS   := $(shell pkg-config --libs openssl 2> /dev/null)
# ONEDNN=0: without oneDNN, the products in plain C (slow; what the thread sanitizer runs).
ONEDNN     ?= 1
LIBS_TRAIN := $(if $(filter 1,$(ONEDNN)),-ldnnl)
CPPFLAGS   += $(if $(filter 1,$(ONEDNN)),,-DFSDP_WITHOUT_ONEDNN)

# What is compiled needs these headers; where they are missing a line names each Debian package, before anything is compiled.
# pkg-config's name (- for none) : header : package
NEEDED     := libuv:uv.h:libuv1-dev yaml-0.1:yaml.h:libyaml-dev libcjson:cjson/cJSON.h:libcjson-dev openssl:openssl/ssl.h:libssl-dev \
              -:xxhash.h:libxxhash-dev $(if $(filter 1,$(ONEDNN)),-:dnnl.h:libdnnl-dev)
HEADERS    := $(foreach n,$(NEEDED),$(word 2,$(subst :, ,$(n))))
NEEDS_NONE := clean format help
ifneq ($(if $(MAKECMDGOALS),$(filter-out $(NEEDS_NONE),$(MAKECMDGOALS)),all),)
ifneq ($(shell pkg-config --exists $(PKGS) 2> /dev/null && for h in $(HEADERS); do echo "\#include <$$h>"; done | $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 && echo there),there)
define newline


endef
HASH := \#
# missing PC HEADER PACKAGE: the package, where one of the first two is not there
missing = $(shell { [ $(1) = - ] || pkg-config --exists $(1); } 2> /dev/null && \
  echo '$(HASH)include <$(2)>' | $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 || echo $(3))
MISSING := $(shell command -v $(firstword $(CC)) > /dev/null || echo gcc; command -v pkg-config > /dev/null || echo pkg-config)
ifeq ($(MISSING),)
MISSING := $(foreach n,$(NEEDED),$(call missing,$(word 1,$(subst :, ,$(n))),$(word 2,$(subst :, ,$(n))),$(word 3,$(subst :, ,$(n)))))
endif
$(error these Debian packages are missing$(foreach p,$(MISSING),$(newline)  $(p))$(newline)scripts/packages.sh installs all that the build needs (apt; sudo when not root); docs/dependencies.md says why)
endif
endif

# --- sources: a new file in one of these folders is built without a word here --------------------------------
RUNTIME := core plan shard numerics device comm optim nn data shardfile checkpoint engine state
src      = $(wildcard $(1)/*.c)
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

JOB_SRC     := $(call src,shard_runtime/job)
FSDP_SRC    := $(filter-out $(if $(filter 1,$(ONEDNN)),,shard_runtime/numerics/onednn%),\
               $(foreach d,$(RUNTIME),$(call src,shard_runtime/$(d))))
TRAINER_SRC := $(call src,shard_runtime/trainer)
# What launcher and agent share with the workers: no numerics library is ever loaded by them.
SHARED_SRC  := $(call src,shard_runtime/core) $(call src,shard_runtime/shardfile)
AGENT_SRC   := $(filter-out agent/daemon/main.c,$(wildcard agent/*.c agent/*/*.c))
LAUNCH_SRC  := $(call src,launcher)
EXAMPLES    := $(patsubst shard_runtime/examples/%.c,$(BUILD)/examples/%,$(call src,shard_runtime/examples))

FSDP_OBJ := $(call obj,$(FSDP_SRC)) $(ISA_OBJ)
NODE_OBJ := $(call obj,$(AGENT_SRC) $(SHARED_SRC))

BINS := $(if $(wildcard launcher/main.c),$(BUILD)/bin/fsdprun) $(if $(wildcard agent/daemon/main.c),$(BUILD)/bin/fsdp-agent) \
        $(if $(wildcard shard_runtime/trainer/main.c),$(BUILD)/bin/fsdp-train)
LIBS := $(BUILD)/lib/libfsdp.a $(BUILD)/lib/libfsdp.so $(BUILD)/lib/fsdp.pc

.PHONY: all
all: $(BINS) $(LIBS) $(EXAMPLES)

# Row kernels are compiled once for each instruction set and chosen at run time (never -march=native).
ISA_SRC  := $(wildcard shard_runtime/numerics/isa/*.c)
ifeq ($(shell uname -m),x86_64)
ISAS := base avx2 avx512
else
ISAS := base
endif
# Nothing here reads errno or floating-point traps; products are fused only where the source says so (vf_fma).
ISA_CFLAGS       := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off
ISA_FLAGS_base   :=
ISA_FLAGS_avx2   := -mavx2 -mfma
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512
ISA_OBJ  := $(foreach i,$(ISAS),$(patsubst %.c,$(BUILD)/obj/%.$(i).o,$(ISA_SRC)))
define isa_rule
$$(BUILD)/obj/shard_runtime/numerics/isa/%.$(1).o: shard_runtime/numerics/isa/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) -DISA=$(1) $$(ALL_CFLAGS) $$(ISA_CFLAGS) $$(ISA_FLAGS_$(1)) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

# The CUDA plug-in, where nvcc is found (NVCC= builds without): the toolkit's runtime is linked in, its libraries are found where it
# stands; libcuda is never linked, or nothing would start where no driver is. No other binary needs any of it.
NVCC      ?= $(shell command -v nvcc)
CUDA_ROOT ?= $(if $(NVCC),$(abspath $(dir $(NVCC))..))
CUDA_LIB  := $(firstword $(wildcard $(CUDA_ROOT)/lib64 $(CUDA_ROOT)/lib))
# Where the C compiler goes through ccache nvcc does too: it takes long.
CCACHE    := $(if $(filter ccache,$(notdir $(realpath $(shell command -v $(CC))))),ccache)
NVCC_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
NVCCFLAGS := -std=c++17 -O3 $(NVCC_ARCH) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings
# What it has in common with the programs that open it: the core, and which attention is chosen.
CUDA_SHARED := $(call src,shard_runtime/core) shard_runtime/numerics/cuda_plan_attention.c
CUDA_OBJ  := $(patsubst %.c,$(BUILD)/obj/%.o,$(call src,shard_runtime/cuda)) \
             $(patsubst %.cu,$(BUILD)/obj/%.o,$(wildcard shard_runtime/cuda/kernels/*.cu))
$(BUILD)/obj/shard_runtime/cuda/%.o: CPPFLAGS += -isystem $(CUDA_ROOT)/include
$(BUILD)/obj/shard_runtime/cuda/kernels/%.o: shard_runtime/cuda/kernels/%.cu | $(BUILD)/cuda-announced
	@mkdir -p $(@D)
	$(CCACHE) $(NVCC) -I. -Ishard_runtime/include $(NVCCFLAGS) -MMD -MP -c $< -o $@
# Said once, on stderr, which make -s and the quickstart leave alone.
$(BUILD)/cuda-announced:
	@mkdir -p $(@D)
	@echo 'building the CUDA plug-in with $(NVCC): about two minutes ("make NVCC=" builds without it)' >&2
	@touch $@
$(BUILD)/lib/libfsdp_cuda.so: $(CUDA_OBJ) $(call obj,$(CUDA_SHARED))
	@mkdir -p $(@D)
	$(CC) -shared -Wl,--no-undefined $(LDFLAGS) $^ -o $@ -L$(CUDA_LIB) -lcudart_static -lcublasLt -lstdc++ -lrt -ldl -lpthread \
	  -lm -Wl,-rpath,$(CUDA_LIB) -Wl,--version-script=shard_runtime/cuda/exports.map
.PHONY: cuda
cuda: $(BUILD)/lib/libfsdp_cuda.so
all: $(if $(SAN),,$(if $(NVCC),$(BUILD)/lib/libfsdp_cuda.so))

# The version is in one object, so that a new commit does not rebuild the tree.
VERSION_DEFS = -DFSDP_VERSION='"$(VERSION)"' -DFSDP_COMMIT='"$(COMMIT)"'
$(BUILD)/obj/shard_runtime/core/version.o: CPPFLAGS += $(VERSION_DEFS)
$(BUILD)/obj/shard_runtime/core/version.o: $(BUILD)/commit
$(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(COMMIT)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT)' > $@
FORCE:

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# The sums of the collectives and the conversions: plain loops that are to be vectorised.
$(BUILD)/obj/shard_runtime/comm/reduce.o $(BUILD)/obj/shard_runtime/device/cpu_cast.o \
  $(BUILD)/obj/shard_runtime/device/cpu_float8.o: CFLAGS += -O3
# Nobody asks which exceptions a conversion raised: without that promise its choices need no branches.
$(BUILD)/obj/shard_runtime/device/cpu_float8.o: CFLAGS += -fno-trapping-math

$(BUILD)/bin/fsdprun: $(call obj,$(LAUNCH_SRC) $(JOB_SRC)) $(NODE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ -o $@ $(LIBS_UV) $(LIBS_JOB) -lxxhash -lm
$(BUILD)/bin/fsdp-agent: $(call obj,agent/daemon/main.c) $(NODE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ -o $@ $(LIBS_UV) $(shell pkg-config --libs libcjson) -lxxhash -lm
$(BUILD)/bin/fsdp-train: $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(OPENMP) $^ -o $@ $(LIBS_JOB) $(LIBS_TLS) $(LIBS_TRAIN) -lxxhash -lm

RUNTIME_LIBS := $(shell pkg-config --libs libcjson) $(LIBS_TLS) $(LIBS_TRAIN) -lxxhash -lm
$(BUILD)/lib/libfsdp.a: $(FSDP_OBJ) $(ISA_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^
$(BUILD)/lib/libfsdp.so: $(FSDP_OBJ) $(ISA_OBJ)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libfsdp.so.$(SOVERSION) $(LDFLAGS) $(OPENMP) $^ -o $@.$(VERSION) $(RUNTIME_LIBS)
	ln -sf libfsdp.so.$(VERSION) $@.$(SOVERSION)
	ln -sf libfsdp.so.$(SOVERSION) $@
# Names PREFIX, so it is looked at each time; written only when it changes. A LIBDIR inside PREFIX follows ${prefix}, so that
# pkg-config --define-prefix finds a tree that was moved.
$(BUILD)/lib/fsdp.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))' 'includedir=$${prefix}/include' '' 'Name: fsdp' \
	  'Description: fully sharded data parallel training runtime' 'Version: $(VERSION)' \
	  'Libs: -L$${libdir} -lfsdp' 'Libs.private: -ldnnl -lcjson -lcrypto -lxxhash -lgomp -lm' \
	  'Cflags: -I$${includedir}' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/examples/%: shard_runtime/examples/%.c $(BUILD)/lib/libfsdp.so
	@mkdir -p $(@D)
	$(CC) -Ishard_runtime/include -std=c11 -O2 -g $(WARN) $(SANFLAGS) -MMD -MP $< -o $@ -L$(BUILD)/lib -lfsdp \
	  -Wl,-rpath,'$$ORIGIN/../lib' -lm

# --- tests ------------------------------------------------------------------------------------------------------
UNIT_SRC    := $(shell find tests/unit -name '*.c' 2>/dev/null | sort)
UNIT_OBJ    := $(call obj,$(UNIT_SRC))
SUPPORT_SRC := $(call src,tests/support)
SUPPORT_BIN := $(patsubst tests/support/%.c,$(BUILD)/test/%,$(SUPPORT_SRC))
UNIT_LINK   := $(filter-out $(call obj,launcher/main.c shard_runtime/trainer/main.c), \
               $(call obj,$(LAUNCH_SRC) $(AGENT_SRC) $(JOB_SRC) $(TRAINER_SRC) $(FSDP_SRC))) $(ISA_OBJ)

$(UNIT_OBJ): CPPFLAGS += $(shell pkg-config --cflags criterion) -DSOURCE_DIR='"$(CURDIR)"' -DBUILD_DIR='"$(abspath $(BUILD))"'
$(BUILD)/test/unit: $(UNIT_OBJ) $(UNIT_LINK)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(OPENMP) $^ -o $@ $(LIBS_UV) $(LIBS_JOB) $(LIBS_TLS) $(LIBS_TRAIN) -lxxhash \
	  $(shell pkg-config --libs criterion) -lm
# The trainer with one wrong piece of mathematics, for the parity tests: nothing of it is in the product.
$(BUILD)/test/fsdp_train_mutant: tests/support/fsdp_train_mutant.c $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $(LDFLAGS) -Wl,--wrap=numerics_open,--wrap=comm_call_compare $(filter %.c %.o %.a,$^) -o $@ \
	  $(LIBS_JOB) $(LIBS_TLS) $(LIBS_TRAIN) -lxxhash -lm
# NVIDIA's management library, as far as agent/placement/nvml.c asks it, for machines without one.
# And to be preloaded: a resolver that never answers, and a rank that stops where it is told to.
$(BUILD)/test/fake_nvml $(BUILD)/test/blocked_lookup $(BUILD)/test/stop_at: $(BUILD)/test/%: tests/support/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -MMD -MP $< -o $@ $(LDFLAGS)
$(BUILD)/test/unit: | $(BUILD)/test/fake_nvml
# The cuda row beside the reference, in parts.
$(BUILD)/test/cuda_numerics: $(call obj,tests/support/cuda_numerics.c $(call src,tests/support/cuda_row)) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(OPENMP) $(filter %.o %.a,$^) -o $@ $(LDFLAGS) $(RUNTIME_LIBS)
# Toy workers and test programs: one file, one program, libc only, unless its first line names libfsdp.
$(BUILD)/test/%: tests/support/%.c $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $< -o $@ $(LDFLAGS) \
	  $(if $(shell head -n1 $< | grep -w libfsdp),$(BUILD)/lib/libfsdp.a $(RUNTIME_LIBS))

# The kernels of the CUDA plug-in, compiled for the host over tests/emulation, and their tests: no GPU, no nvcc.
KERNEL_SRC    := $(wildcard shard_runtime/cuda/kernels/*.cu)
EMULATED_SRC  := $(KERNEL_SRC) $(wildcard tests/emulation/*.cu)
EMULATED_OBJ  := $(patsubst %.cu,$(BUILD)/obj/%.host.o,$(EMULATED_SRC))
EMULATION_OBJ := $(call obj,$(call src,tests/emulation))
CXX           ?= g++
ifeq ($(origin CXX),default)
CXX           := g++
endif
# -ffp-contract=off: what the kernels want fused they fuse by name. nvcc fuses the rest as it likes: only what goes through
# times() and plus() (number.h) keeps the host's bits on a GPU.
EMULATED_FLAGS := -std=c++17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wshadow $(if $(WERROR),-Werror) $(SANFLAGS) -ffp-contract=off
$(BUILD)/obj/%.host.o: %.cu
	@mkdir -p $(@D)
	$(CXX) -x c++ -I. -Ishard_runtime/include -Itests $(EMULATED_FLAGS) -MMD -MP -c $< -o $@
$(EMULATION_OBJ): CPPFLAGS += $(shell pkg-config --cflags criterion)
$(BUILD)/test/emulation: $(EMULATION_OBJ) $(EMULATED_OBJ) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) $(OPENMP) $^ -o $@ $(RUNTIME_LIBS) $(shell pkg-config --libs criterion) -lm

# The kernels once more, with a call before each load and store (traffic.h): what bytes they move. Never with a sanitizer.
TRAFFIC_OBJ := $(call obj,$(call src,tests/emulation/traffic) tests/emulation/emulate.c tests/emulation/fiber.c)
$(BUILD)/obj/%.counted.o: %.cu
	@mkdir -p $(@D)
	$(CXX) -x c++ -I. -Ishard_runtime/include -Itests $(filter-out -fsanitize=%,$(EMULATED_FLAGS)) \
	  -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -MMD -MP -c $< -o $@
$(BUILD)/test/kernel_traffic: $(TRAFFIC_OBJ) $(KERNEL_SRC:%.cu=$(BUILD)/obj/%.counted.o) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) $(OPENMP) $^ -o $@ $(RUNTIME_LIBS) -lm

# The whole plug-in on the host: the same sources over a CUDA runtime and a cuBLASLt of tests/emulation/cuda, whose headers
# stand in for CUDA's. Not found by any program unless FSDP_CUDA_PLUGIN names it.
EMULATED_CUDA := $(BUILD)/test/emulated
EMULATED_HOST := $(patsubst %.c,$(BUILD)/obj/%.emulated.o,$(call src,shard_runtime/cuda) tests/emulation/cuda/cublaslt.c \
                 tests/emulation/cuda/launches.c)
$(BUILD)/obj/%.emulated.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests/emulation/cuda/include $(ALL_CFLAGS) -MMD -MP -c $< -o $@
EMULATED_RUNTIME := $(filter-out %/cublaslt.c %/launches.c %_standin.c %/cudnn_program.c,$(call src,tests/emulation/cuda))
$(EMULATED_CUDA)/libcudart_emulated.so: $(EMULATED_RUNTIME) $(wildcard tests/emulation/cuda/*.h tests/emulation/cuda/include/*.h)
	@mkdir -p $(@D)
	$(CC) -I. -Itests/emulation/cuda/include $(CFLAGS) -fPIC -shared $(filter %.c,$^) -o $@ $(LDFLAGS)
$(EMULATED_CUDA)/libfsdp_cuda.so: $(EMULATED_HOST) $(KERNEL_SRC:%.cu=$(BUILD)/obj/%.host.o) \
  $(call obj,tests/emulation/emulate.c tests/emulation/fiber.c) $(call obj,$(CUDA_SHARED)) \
  $(EMULATED_CUDA)/libcudart_emulated.so
	$(CXX) -shared -Wl,--no-undefined -Wl,--version-script=shard_runtime/cuda/exports.map $(LDFLAGS) $(filter %.o,$^) -o $@ -L$(EMULATED_CUDA) -lcudart_emulated \
	  -Wl,-rpath,'$$ORIGIN' -lm -ldl
# NCCL's API between processes of one host, for the emulated device; and the same as of 2.18.
NCCL_STANDIN_SRC := $(call src,tests/emulation/cuda/nccl)
$(EMULATED_CUDA)/libnccl_standin.so $(EMULATED_CUDA)/libnccl_standin_old.so: $(EMULATED_CUDA)/lib%.so: $(NCCL_STANDIN_SRC) \
  tests/emulation/cuda/nccl/standin.h shard_runtime/cuda/nccl_api.h $(EMULATED_CUDA)/libcudart_emulated.so
	$(CC) $(CPPFLAGS) -Itests/emulation/cuda/include $(if $(filter %_old,$*),-DNCCL_STANDIN_OLD) $(CFLAGS) -fPIC -fvisibility=hidden \
	  -shared $(NCCL_STANDIN_SRC) -o $@ $(LDFLAGS) -L$(EMULATED_CUDA) -lcudart_emulated -Wl,-rpath,'$$ORIGIN'
# And one with cuDNN's graph API, that computes what a graph says.
$(EMULATED_CUDA)/libcudnn_standin.so: $(addprefix tests/emulation/cuda/cudnn_,standin.c program.c standin.h program.h) \
  shard_runtime/cuda/cudnn_api.h $(EMULATED_CUDA)/libcudart_emulated.so
	$(CC) $(CPPFLAGS) -Itests/emulation/cuda/include $(CFLAGS) -fPIC -fvisibility=hidden -shared $(filter %.c,$^) -o $@ $(LDFLAGS) \
	  -L$(EMULATED_CUDA) -lcudart_emulated -Wl,-rpath,'$$ORIGIN' -lm
# A driver in which modules can be put and nothing runs: cuDNN itself, where it is found, then compiles for a GPU that is not here.
$(EMULATED_CUDA)/driver/libcuda.so.1: tests/emulation/cuda/driver_standin.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -Wl,-soname,libcuda.so.1 $< -o $@ $(LDFLAGS)
# Our descriptions of graphs and how they are handed over, without the plug-in about them.
$(BUILD)/test/cudnn_graphs: tests/support/cudnn_graphs.c $(addprefix shard_runtime/cuda/cudnn_,attention.c plan.c library.c) $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $(filter %.c,$^) -o $@ $(LDFLAGS) $(BUILD)/lib/libfsdp.a $(RUNTIME_LIBS)

.PHONY: test unit emulation system tests-build
# The benches are built too, so that a change elsewhere cannot break one unnoticed.
BENCH_BIN := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/bench_*.c)) $(BUILD)/bench/train/fsdp-train \
             $(BUILD)/bench/launch_worker $(BUILD)/bench/create_model
tests-build: all $(BUILD)/test/unit $(BUILD)/test/emulation $(BUILD)/test/kernel_traffic $(EMULATED_CUDA)/libfsdp_cuda.so \
  $(EMULATED_CUDA)/libnccl_standin.so $(EMULATED_CUDA)/libnccl_standin_old.so $(EMULATED_CUDA)/libcudnn_standin.so $(EMULATED_CUDA)/driver/libcuda.so.1 $(SUPPORT_BIN) \
  $(BENCH_BIN)
test: tests-build
	BUILD=$(BUILD) tests/run --quick unit emulation system parity conformance
unit: $(BUILD)/test/unit
	BUILD=$(BUILD) tests/run unit
emulation: $(BUILD)/test/emulation $(BUILD)/test/kernel_traffic
	BUILD=$(BUILD) tests/run emulation
system: tests-build
	BUILD=$(BUILD) tests/run system

# What is long by nature: scripts/nightly.sh names its parts. PARTS="tsan fuzz" runs these alone.
.PHONY: nightly
nightly:
	scripts/nightly.sh $(PARTS)

# A bench: one program, one table on stdout, the same as build/bench/NAME.json.
$(BUILD)/bench/bench_%: tests/bench/bench_%.c $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $< -o $@ $(LDFLAGS) $(BUILD)/lib/libfsdp.a $(RUNTIME_LIBS)
.PHONY: bench-numerics
bench-numerics: $(BUILD)/bench/bench_numerics
	$< auto $(or $(THREADS),1) $(BUILD)/bench/numerics.json
.PHONY: bench-ways
bench-ways: $(BUILD)/bench/bench_ways
	$< $(or $(THREADS),1)
.PHONY: bench-checkpoint
bench-checkpoint: $(BUILD)/bench/bench_checkpoint
	$< $(BUILD)/bench/checkpoint.json $(or $(BENCH_DIR),$(BUILD))
# fsdp-train with a stopwatch, beside a launcher that takes it for its own.
TRAIN_WRAPPED := numerics_open nn_forward nn_forward_fused nn_backward fsdp_all_gather fsdp_reduce_scatter fsdp_all_reduce overlap_wait \
                 overlap_finish fsdp_optimizer_step fsdp_clip_grad_norm batch_fill
$(BUILD)/bench/train/fsdp-train: tests/bench/train_timers.c $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a \
  $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-agent
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $(LDFLAGS) $(addprefix -Wl$(comma)--wrap=,$(TRAIN_WRAPPED)) \
	  $(filter %.c %.o %.a,$^) -o $@ $(LIBS_JOB) $(LIBS_TLS) $(LIBS_TRAIN) -lxxhash -lm
	cp -f $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-agent $(@D)
.PHONY: bench-train
bench-train: $(BUILD)/bench/bench_train $(BUILD)/bench/train/fsdp-train
	$< $(BUILD)/bench/train.json $(BUILD)/bench/train
.PHONY: bench-comm
bench-comm: $(BUILD)/bench/bench_comm
	$< $(BUILD)/bench/comm.json
.PHONY: bench-mapping
bench-mapping: $(BUILD)/bench/bench_mapping
	$< $(BUILD)/bench/mapping.json
# Linked with libfsdp.so: LD_LIBRARY_PATH says whose. BEFORE is the build directory of another tree, to compare with.
$(BUILD)/bench/create_model: tests/bench/create_model.c $(BUILD)/lib/libfsdp.so
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $< -o $@ $(LDFLAGS) -L$(BUILD)/lib -lfsdp
.PHONY: bench-restart
bench-restart: $(BUILD)/bench/bench_restart $(BUILD)/bench/create_model $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-train
	$< $(BUILD)/bench/restart.json $(BUILD) $(BUILD)/bench/create_model $(or $(BENCH_DIR),$(BUILD)/bench) $(BEFORE)
# Static, and without sanitizers: its start is what is measured.
$(BUILD)/bench/launch_worker: tests/bench/launch_worker.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 $(WARN) -static $< -o $@
.PHONY: bench-launch
bench-launch: $(BUILD)/bench/bench_launch $(BUILD)/bench/launch_worker $(BUILD)/bin/fsdprun
	$< $(BUILD)/bench/launch.json $(BUILD)/bin/fsdprun $(BUILD)/bench/launch_worker tests/bench/launch_worker.py

# Under the thread sanitizer: plain programs of tests/tsan, clang and its OpenMP, products in plain C (with libgomp
# or oneDNN's own threads the sanitizer sees races that are none).
TSAN_CC  ?= clang-14
TSAN_BIN := $(patsubst tests/tsan/%.c,$(BUILD)/test/tsan/%,$(call src,tests/tsan))
$(BUILD)/test/tsan/loop_save: $(call obj,agent/record/save.c agent/record/save_own.c agent/record/search_watch.c)
$(BUILD)/test/tsan/%: tests/tsan/%.c $(BUILD)/lib/libfsdp.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -MMD -MP $< -o $@ $(LDFLAGS) $(filter %.o,$^) $(BUILD)/lib/libfsdp.a \
	  $(RUNTIME_LIBS) $(LIBS_UV)
.PHONY: tsan tsan-programs
tsan-programs: $(TSAN_BIN)
tsan:
	@command -v $(TSAN_CC) > /dev/null || { echo 'make tsan needs $(TSAN_CC), libclang-rt-14-dev and libomp-14-dev' >&2; exit 1; }
	$(MAKE) BUILD=build/tsan CC=$(TSAN_CC) SAN=thread ONEDNN=0 tsan-programs
	BUILD=build/tsan tests/run tsan

# On a machine with a GPU; scripts/gpu-check.sh runs these and more in three parts, gpu-archive packs them for one without our packages.
.PHONY: test-gpu bench-gpu gpu-archive
ifneq ($(wildcard $(BUILD)/libs),)
# The archive, unpacked: the programs came built, and nothing but the plug-in can be built.
test-gpu: ; scripts/gpu-check.sh build products kernels attention lists collectives attention-cudnn attention-time parity memcheck racecheck
bench-gpu: ; scripts/gpu-check.sh build bench-small bench-large pytorch-small pytorch-large
else
test-gpu: all cuda $(SUPPORT_BIN)
	BUILD=$(BUILD) tests/run gpu
bench-gpu: all cuda
	BUILD=$(abspath $(BUILD)) tests/bench/gpu/bench.sh
endif
gpu-archive:
	scripts/gpu-archive.sh $(BUILD)/fsdprun-gpu.tar.gz

.PHONY: asan asan-unit
asan:
	$(MAKE) BUILD=build/asan SAN=address,undefined test
asan-unit:
	$(MAKE) BUILD=build/asan SAN=address,undefined unit emulation

# Each tests/fuzz/fuzz_<name>.c is a libFuzzer target over what launcher, agent and job are made of, with its words in
# <name>.dict and seeds in seeds/<name>/ where they are there. `make fuzz FUZZ_RUNS=10000000` for a longer campaign,
# `make fuzz FUZZ_SECONDS=600` for so long a target, `FUZZ_ONLY=tcpstore` for one target.
FUZZ_RUNS    ?= 200000
FUZZ_SECONDS ?=
FUZZ_ONLY    ?= %
FUZZ_UNTIL   := $(if $(FUZZ_SECONDS),-max_total_time=$(FUZZ_SECONDS),-runs=$(FUZZ_RUNS))
FUZZ_BIN  := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(filter tests/fuzz/fuzz_$(FUZZ_ONLY).c,$(call src,tests/fuzz)))
FUZZ_OBJ  := $(filter-out $(call obj,launcher/main.c),$(call obj,$(LAUNCH_SRC) $(AGENT_SRC) $(JOB_SRC) $(SHARED_SRC)))
$(BUILD)/fuzz/parts.a: $(FUZZ_OBJ)
	@mkdir -p $(@D)
	rm -f $@
	ar rcs $@ $^
$(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/fuzz/parts.a
	$(CC) $(CPPFLAGS) $(CFLAGS) -fsanitize=fuzzer $< -o $@ $(LDFLAGS) $(BUILD)/fuzz/parts.a $(LIBS_UV) $(LIBS_JOB) \
	  $(LIBS_TLS) -lxxhash -lm
.PHONY: fuzz fuzz-run
fuzz:
	$(MAKE) BUILD=build/fuzz CC=clang-14 OPENMP= SAN=fuzzer-no-link,address,undefined fuzz-run
fuzz-run: $(FUZZ_BIN)
	for target in $(FUZZ_BIN); do name=$${target##*/fuzz_}; \
	  mkdir -p $(BUILD)/corpus/$$name; \
	  dict=tests/fuzz/$$name.dict; seeds=tests/fuzz/seeds/$$name; \
	  UBSAN_OPTIONS=halt_on_error=1 $$target $(FUZZ_UNTIL) -seed=1 -max_len=4096 -timeout=10 -verbosity=0 \
	    -artifact_prefix=$(BUILD)/ $$([ -e $$dict ] && echo -dict=$$dict) \
	    $(BUILD)/corpus/$$name $$([ -d $$seeds ] && echo $$seeds) > $(BUILD)/$$name.log 2>&1 || \
    { tail -n 40 $(BUILD)/$$name.log; exit 1; }; \
	  echo "fuzz $$name: $(if $(FUZZ_SECONDS),$(FUZZ_SECONDS) s,$(FUZZ_RUNS) runs), nothing found"; done

# --- the rest ---------------------------------------------------------------------------------------------------
C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)
.PHONY: format lint clean install
# One file a call: given many, clang-tidy 14 takes va_start for unknown from the second on. xargs fails when one does.
CLANG_TIDY ?= $(shell command -v clang-tidy-14 || echo clang-tidy)
format:
	clang-format-14 -i $(C_FILES) 2>/dev/null || clang-format -i $(C_FILES)
lint: compile_commands.json
	printf '%s\n' $(filter launcher/%.c agent/%.c shard_runtime/%.c,$(C_FILES)) | \
	  xargs -P "$$(nproc)" -I FILE $(CLANG_TIDY) --quiet FILE -- $(CPPFLAGS) -std=c11 -fopenmp -DISA=base $(VERSION_DEFS)
	cppcheck --quiet --enable=warning,portability,performance --error-exitcode=1 --inline-suppr --std=c11 \
	  --suppress=missingIncludeSystem -DISA=base -I. -Ishard_runtime/include launcher agent shard_runtime
compile_commands.json: Makefile
	@{ echo '['; for f in $(filter %.c,$(C_FILES)); do printf '{"directory": "%s", "file": "%s", "command": "%s"},\n' \
	  '$(CURDIR)' "$$f" "$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -DISA=base -c $$f"; done | sed '$$ s/,$$//'; echo ']'; } > $@

# Pages made from the tables of options and keys; tests/unit/launcher/test_docs.c holds them against the tables.
DOC_PAGES := docs/config.md docs/man/fsdprun.1 docs/man/fsdp.yaml.5
.PHONY: docs
docs: $(BUILD)/bin/fsdprun
	for page in $(DOC_PAGES); do mkdir -p $${page%/*} && $(BUILD)/bin/fsdprun --docs=$${page##*/} > $$page || exit 1; done

clean:
	rm -rf build compile_commands.json

# Each .PHONY target that a person may want, with what it does; tests/system/test_build.sh holds it against the Makefile.
define HELP
all               programs, libraries and examples (the default): build/bin, build/lib, build/examples
cuda              the CUDA plug-in, build/lib/libfsdp_cuda.so; part of `all` where nvcc is found
install           copies what was built: make install DESTDIR= PREFIX=/usr/local
clean             removes build/
test              the tests of ./scripts/test.sh, which installs packages as well
nightly           the long tests; PARTS="tsan fuzz" for some, scripts/nightly.sh --list names all
unit              unit tests
emulation         the GPU kernels on an emulated GPU
system            the scripts of tests/system, nightly ones included
tests-build       builds what the tests need
asan              the tests of `make test` under ASan and UBSan
asan-unit         unit tests and emulated kernels under ASan and UBSan
tsan              the programs of tests/tsan under TSan
fuzz              the targets of tests/fuzz; FUZZ_SECONDS=600, FUZZ_ONLY=tcpstore
test-gpu          the tests for a machine with a GPU
bench-launch      what launching costs, beside torchrun and bare posix_spawn
bench-restart     how soon a job goes on after a death; BEFORE=DIR compares with another build
bench-comm        collectives, beside copies and gloo
bench-mapping     what one mapping for all ranks of a host would gain
bench-train       training steps, beside FSDP2
bench-numerics    products and row kernels, beside peak and memcpy
bench-ways        the figures behind the tables of numerics/ways.c
bench-checkpoint  saves and loads, beside plain I/O and PyTorch's
bench-gpu         training on a machine with a GPU
gpu-archive       packs the programs for a GPU machine without our packages
format            clang-format over every file
lint              clang-tidy and cppcheck
docs              writes the pages that are made from the tables of options and keys
endef
export HELP
.PHONY: help
help:
	@echo "$$HELP"

# The example jobs read ../data/bible.txt. Without the whole text an excerpt is installed under that name: they run, and
# scripts/prepare-data.sh, which is installed next to it, writes the whole.
TEXT ?= $(wildcard data/bible.txt)
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/fsdp
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/fsdprun/,configs data examples scripts)
	install -m 755 $(BINS) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/lib/libfsdp.a $(DESTDIR)$(LIBDIR)/
	[ ! -e $(BUILD)/lib/libfsdp_cuda.so ] || install -m 755 $(BUILD)/lib/libfsdp_cuda.so $(DESTDIR)$(LIBDIR)/
	install -m 755 $(BUILD)/lib/libfsdp.so.$(VERSION) $(DESTDIR)$(LIBDIR)/
	ln -sf libfsdp.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libfsdp.so.$(SOVERSION)
	ln -sf libfsdp.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libfsdp.so
	install -m 644 $(BUILD)/lib/fsdp.pc $(DESTDIR)$(LIBDIR)/pkgconfig/
	install -m 644 shard_runtime/include/fsdp/*.h $(DESTDIR)$(PREFIX)/include/fsdp/
	install -m 644 $(wildcard configs/*.yaml) $(DESTDIR)$(PREFIX)/share/fsdprun/configs/
	install -m 644 $(wildcard shard_runtime/examples/*.c) $(DESTDIR)$(PREFIX)/share/fsdprun/examples/
	install -m 644 $(or $(TEXT),tests/parity/excerpt.txt) $(DESTDIR)$(PREFIX)/share/fsdprun/data/bible.txt
	install -m 755 scripts/prepare-data.sh scripts/packages.sh $(DESTDIR)$(PREFIX)/share/fsdprun/scripts/
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(BUILD)/bin/fsdprun --print-completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/fsdprun
	$(BUILD)/bin/fsdprun --print-completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_fsdprun
	$(BUILD)/bin/fsdprun --print-completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/fsdprun.fish
	for page in $(wildcard docs/man/*.[1-8]); do section=$${page##*.}; \
	  install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$$section/$${page##*/}; done

-include $(shell find $(BUILD)/obj $(BUILD)/test $(BUILD)/examples $(BUILD)/bench -name '*.d' 2>/dev/null)
