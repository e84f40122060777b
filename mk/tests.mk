# Unit tests, the programs that scripts use, sanitizers and fuzzing. tests/run runs the suites.
UNIT_SRC    := $(shell find tests/unit -name '*.c' 2>/dev/null | sort)
UNIT_OBJ    := $(call obj,$(UNIT_SRC))
CRITERION    = $(shell pkg-config --libs criterion)
# Everything without the mains. Programs of the tests link this, so that no list of theirs knows a file of the
# product.
PARTS_SRC   := $(filter-out launcher/main.c,$(LAUNCH_SRC)) $(CKPT_SRC) $(AGENT_SRC) $(JOB_SRC)
# A callback of a test need not use all its arguments.
$(UNIT_OBJ): CPPFLAGS += -Wno-unused-parameter $(shell pkg-config --cflags criterion) -DSOURCE_DIR='"$(CURDIR)"' -DBUILD_DIR='"$(abspath $(BUILD))"'
$(BUILD)/test/unit: $(UNIT_OBJ) $(call obj,$(PARTS_SRC) $(filter-out %/main.c,$(TRAINER_SRC))) $(FSDP_OBJ) | $(addprefix $(BUILD)/test/,fake_nvml fake_s3)
	$(call link,$(LIBS_NODE) $(LIBS_YAML) $(LIBS_TRAIN) $(CRITERION))
$(BUILD)/test/parts.a: $(call obj,$(PARTS_SRC) $(SHARED_SRC))
	$(archive)

# The simulation of several nodes (tests/sim/sim.h). The linker takes its functions first, and the product's files that
# it replaces stay in the archive. A mutant is one file of the product with a planted bug.
SIM_OBJ     := $(call obj,$(call src,tests/sim) tests/sim/arbiter/store.c)
SIM_WRAPPED := coordinator_form coordinator_depose run_member save_create save_prepare save_idle save_when_idle \
  events_open rundir_write session_core_send session_core_take
SIM_LIBS    := $(SIM_WRAPPED:%=-Wl$(comma)--wrap=%)
$(BUILD)/test/sim: $(SIM_OBJ) $(BUILD)/test/parts.a
	$(call link,$(SIM_LIBS) $(LIBS_NODE))
# The simulation of who leads (tests/sim/arbiter/model.h), on the same ground.
SIM_ARBITER_OBJ := $(call obj,$(call src,tests/sim/arbiter) tests/sim/sim.c tests/sim/main.c)
$(BUILD)/test/sim_arbiter: $(SIM_ARBITER_OBJ) $(BUILD)/test/parts.a
	$(call link,$(LIBS_NODE))
# A mutant of one or of the other.
SIM_MUTANTS := $(patsubst tests/sim/mutants/%.patch,$(BUILD)/test/sim-mutants/%,$(wildcard tests/sim/mutants/*.patch)) \
  $(patsubst tests/sim/arbiter/mutants/%.patch,$(BUILD)/test/sim_arbiter-mutants/%,$(wildcard tests/sim/arbiter/mutants/*.patch))
$(BUILD)/test/sim-mutants/%: tests/sim/mutants/%.patch $(SIM_OBJ) $(BUILD)/test/parts.a
	$(call mutant,$(SIM_OBJ),$(SIM_LIBS))
$(BUILD)/test/sim_arbiter-mutants/%: tests/sim/arbiter/mutants/%.patch $(SIM_ARBITER_OBJ) $(BUILD)/test/parts.a
	$(call mutant,$(SIM_ARBITER_OBJ))
define mutant
	@rm -rf $@.d
	@file=$$(sed -n 's|^+++ b/||p' $<) && old=$$(sed '1,/^@@/d' $< | sed -n 's/^[- ]//p') && rest=$$(cat $$file) && \
	  case $${rest#*"$$old"} in *"$$old"*) echo "$<: what it changes is twice in $$file" >&2; exit 1 ;; esac && \
	  mkdir -p $@.d/$$(dirname $$file) && cp $$file $@.d/$$file && \
	  (cd $@.d && GIT_CEILING_DIRECTORIES=$(abspath $(@D)) git apply --unidiff-zero $(abspath $<)) && \
	  $(CC) $(CPPFLAGS) $(ALL_CFLAGS) -w -c $@.d/$$file -o $@.o
	$(CC) $(LDFLAGS) $(1) $@.o $(BUILD)/test/parts.a -o $@ $(2) $(LIBS_NODE)
endef
.PHONY: sim         ## simulated nodes: 10,000 seeds; SEED=n replays one, SEEDS=500 runs so many
SEEDS ?= 10000
sim: $(BUILD)/test/sim $(BUILD)/test/sim_arbiter
	$(BUILD)/test/sim_arbiter $(if $(SEED),$(SEED),1 $(SEEDS) $(shell nproc))
	$(BUILD)/test/sim $(if $(SEED),$(SEED),1 $(SEEDS) $(shell nproc))
.PHONY: sim-mutants ## builds the simulation with each planted bug of tests/sim/mutants
sim-mutants: $(SIM_MUTANTS)

# Test programs (tests/support): what ranks run (workers), what stands in for other software (fakes), and what knows
# the right answer (oracles). A file is a program; only the libraries that it uses are loaded.
PROGRAM_SRC := $(wildcard $(addprefix tests/support/,workers/*.c fakes/*.c oracles/*.c))
PRELOAD_SRC := $(call src,tests/support/fakes/preload)
program      = $(patsubst %.c,$(BUILD)/test/%,$(notdir $(1)))
$(foreach s,$(PROGRAM_SRC) $(PRELOAD_SRC),$(eval $(call program,$(s)): $(call obj,$(s))))
SUPPORT_BIN := $(call program,$(PROGRAM_SRC) $(PRELOAD_SRC))
$(call program,$(PROGRAM_SRC)): $(BUILD)/lib/libfsdp.a
	$(call link,$(WRAPPED:%=-Wl$(comma)--wrap=%) -Wl$(comma)--as-needed $(PROGRAM_LIBS) $(LIBS_YAML) $(LIBS_TRAIN))
# One has a part of an agent.
$(BUILD)/test/arbiter_agent: PROGRAM_LIBS := $(LIBS_NODE)
$(BUILD)/test/arbiter_agent: $(BUILD)/test/parts.a
$(addprefix $(BUILD)/test/,cuda_numerics cuda_cudnn attention_time product_time): \
  $(call obj,$(call src,tests/support/oracles/cuda_row))
# The trainer with one wrong piece of mathematics or a slow rank, and with ranks that differ: the product has none of it.
$(BUILD)/test/fsdp_train_mutant: WRAPPED := numerics_open batch_fill
$(BUILD)/test/fsdp_train_compared: WRAPPED := comm_call_compare device_comm_wrap fsdp_model_forward_backward
$(BUILD)/test/fsdp_train_mutant $(BUILD)/test/fsdp_train_compared: $(call obj,$(TRAINER_SRC) $(JOB_SRC))
# Shared objects, loaded by LD_PRELOAD or in the place of a library.
$(call obj,$(PRELOAD_SRC)): VISIBILITY := default
$(call program,$(PRELOAD_SRC)):
	$(call link,-shared)

.PHONY: tests-build ## builds what the tests need
# The benches are built too, so that a change elsewhere cannot break one unnoticed.
tests-build: all $(BUILD)/test/unit $(BUILD)/test/sim $(BUILD)/test/sim_arbiter $(SUPPORT_BIN) $(BENCH_BIN) $(EMULATED_BIN)
.PHONY: test        ## the tests of ./scripts/test.sh, which installs packages as well
test: tests-build
	BUILD=$(BUILD) tests/run --quick unit emulation system parity conformance
.PHONY: nightly     ## the long tests; PARTS="tsan fuzz" for some, scripts/nightly.sh --list names all
nightly:
	scripts/nightly.sh $(PARTS)
.PHONY: unit        ## unit tests
unit: $(BUILD)/test/unit
	BUILD=$(BUILD) tests/run unit
.PHONY: emulation   ## the GPU kernels on an emulated GPU
emulation: $(BUILD)/test/emulation $(BUILD)/test/kernel_traffic
	BUILD=$(BUILD) tests/run emulation
.PHONY: system      ## the scripts of tests/system, nightly ones included
system: tests-build
	BUILD=$(BUILD) tests/run system
.PHONY: test-index  ## every file of tests, with what it shows
test-index:
	scripts/find-test.sh
# Scripts that documents name: a target each, so that a script gets another name without a change of a document.
.PHONY: faults      ## what each fault costs, between network namespaces (root); ROW="3 cut" for one
.PHONY: storm       ## agents and random faults (root); FSDP_TEST_AGENTS, FSDP_TEST_FAULTS, FSDP_TEST_SEED
.PHONY: false-alarms ## jobs on a machine that is busy for two hours; BUSY_S, BUSY_SEED, BUSY_LOAD=0 without load of its own
.PHONY: slurm       ## a real Slurm of four nodes; FSDP_SLURM_ROUNDS=5 times
.PHONY: torch-recovery ## how soon a PyTorch program goes on; FSDP_TEST_PYTHON
.PHONY: output-volume  ## how fast output is passed on
faults: tests-build
	BUILD=$(abspath $(BUILD)) bash tests/system/test_namespaces.sh $(ROW)
storm: tests-build
	BUILD=$(abspath $(BUILD)) bash tests/system/test_storm.sh
false-alarms: tests-build
	BUSY_S=$(or $(BUSY_S),7200) BUILD=$(abspath $(BUILD)) bash tests/system/test_false_alarms.sh
slurm: tests-build
	BUILD=$(abspath $(BUILD)) bash tests/system/test_slurm.sh
torch-recovery: tests-build
	BUILD=$(abspath $(BUILD)) bash tests/conformance/test_torch_recovery.sh
output-volume: tests-build
	BUILD=$(abspath $(BUILD)) bash tests/conformance/test_output_volume.sh
.PHONY: asan        ## the tests of `make test` under ASan and UBSan
asan:
	$(MAKE) BUILD=build/asan SAN=address,undefined test
.PHONY: asan-unit   ## unit tests and emulated kernels under ASan and UBSan
asan-unit:
	$(MAKE) BUILD=build/asan SAN=address,undefined unit emulation

# Plain programs of tests/tsan, with clang and its OpenMP and products in plain C. With libgomp or oneDNN's
# own threads the thread sanitizer reports races that are none.
TSAN_CC  ?= clang-14
TSAN_BIN := $(patsubst tests/tsan/%.c,$(BUILD)/test/tsan/%,$(call src,tests/tsan))
$(BUILD)/test/tsan/loop_save $(BUILD)/test/tsan/pulse $(BUILD)/test/tsan/lead: $(BUILD)/test/parts.a
$(BUILD)/test/tsan/%: $(BUILD)/obj/tests/tsan/%.o $(BUILD)/lib/libfsdp.a
	$(call link,$(LIBS_NODE) $(LIBS_TRAIN))
TSAN_MAKE = $(MAKE) BUILD=build/tsan CC=$(TSAN_CC) SAN=thread ONEDNN=0
.PHONY: tsan        ## the programs of tests/tsan under TSan
.PHONY: tsan-build  ## links the programs of tests/tsan and runs none
.PHONY: tsan-programs
tsan-programs: $(TSAN_BIN)
tsan-build:
	@command -v $(TSAN_CC) > /dev/null || \
	  { echo 'make tsan needs $(TSAN_CC), libclang-rt-14-dev and libomp-14-dev' >&2; exit 1; }
	+$(TSAN_MAKE) tsan-programs
tsan: tsan-build
	BUILD=build/tsan tests/run tsan

# Each tests/fuzz/fuzz_NAME.c is a libFuzzer target, with its words in NAME.dict and its seeds in seeds/NAME/,
# where there are some. FUZZ_RUNS=10000000 for a longer campaign, FUZZ_SECONDS=600 for so long a target,
# FUZZ_ONLY=tcpstore for one target.
FUZZ_RUNS    ?= 200000
FUZZ_SECONDS ?=
FUZZ_ONLY    ?= %
FUZZ_UNTIL   := $(if $(FUZZ_SECONDS),-max_total_time=$(FUZZ_SECONDS),-runs=$(FUZZ_RUNS))
FUZZ_NAMES := $(patsubst tests/fuzz/fuzz_%.c,%,$(filter tests/fuzz/fuzz_$(FUZZ_ONLY).c,$(call src,tests/fuzz)))
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/test/parts.a
	$(call link,-fsanitize=fuzzer $(LIBS_NODE) $(LIBS_YAML) $(shell pkg-config --libs openssl))
.PHONY: fuzz        ## the targets of tests/fuzz; FUZZ_SECONDS=600, FUZZ_ONLY=tcpstore
.PHONY: fuzz-run
fuzz:
	$(MAKE) BUILD=build/fuzz CC=clang-14 OPENMP= SAN=fuzzer-no-link,address,undefined fuzz-run
fuzz-run: $(FUZZ_NAMES:%=fuzz-run-%)
$(FUZZ_NAMES:%=fuzz-run-%): fuzz-run-%: $(BUILD)/fuzz/fuzz_%
	@mkdir -p $(BUILD)/corpus/$*
	@UBSAN_OPTIONS=halt_on_error=1 $< $(FUZZ_UNTIL) -seed=1 -max_len=4096 -timeout=10 -verbosity=0 \
	  -artifact_prefix=$(BUILD)/ $(addprefix -dict=,$(wildcard tests/fuzz/$*.dict)) \
	  $(BUILD)/corpus/$* $(wildcard tests/fuzz/seeds/$*) > $(BUILD)/$*.log 2>&1 || { tail -n 40 $(BUILD)/$*.log; exit 1; }
	@echo "fuzz $*: $(if $(FUZZ_SECONDS),$(FUZZ_SECONDS) s,$(FUZZ_RUNS) runs), nothing found"

# On a machine with a GPU. scripts/gpu-check.sh runs these and more in three parts.
.PHONY: test-gpu    ## the tests for a machine with a GPU
.PHONY: bench-gpu   ## training on a machine with a GPU
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
.PHONY: gpu-archive ## packs the programs for a GPU machine without our packages
gpu-archive:
	scripts/gpu-archive.sh $(BUILD)/fsdprun-gpu.tar.gz
