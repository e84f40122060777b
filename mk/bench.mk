# Benches: each is one program that prints one table and writes the same as build/bench/NAME.json.
BENCH     := $(BUILD)/bench
BENCH_BIN := $(patsubst tests/bench/%.c,$(BENCH)/%,$(wildcard tests/bench/bench_*.c)) $(BENCH)/train/fsdp-train \
             $(BENCH)/launch_worker $(BENCH)/create_model
$(BENCH)/bench_%: $(BUILD)/obj/tests/bench/bench_%.o $(BUILD)/lib/libfsdp.a
	$(call link,$(LIBS_TRAIN))

.PHONY: bench-launch ## what launching costs, compared with torchrun and bare posix_spawn
bench-launch: $(BENCH)/bench_launch $(BENCH)/launch_worker $(BUILD)/bin/fsdprun
	$< $(BENCH)/launch.json $(BUILD)/bin/fsdprun $(BENCH)/launch_worker tests/bench/launch_worker.py
# Static, and without sanitizers: its start is what is measured.
$(BENCH)/launch_worker: tests/bench/launch_worker.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 $(WARN) -static $< -o $@

.PHONY: bench-restart ## how soon a job goes on after a death; BEFORE=DIR compares with another build
bench-restart: $(BENCH)/bench_restart $(BENCH)/create_model $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-train
	$< $(BENCH)/restart.json $(BUILD) $(BENCH)/create_model $(or $(BENCH_DIR),$(BENCH)) $(BEFORE)
# Linked with libfsdp.so: LD_LIBRARY_PATH says whose. BEFORE is the build directory of another tree.
$(BENCH)/create_model: $(BUILD)/obj/tests/bench/create_model.o $(BUILD)/lib/libfsdp.so
	$(call link,-L$(BUILD)/lib -lfsdp)

.PHONY: bench-rendezvous ## what meeting costs with up to 10,000 nodes, compared with bare handshakes
bench-rendezvous: $(BENCH)/bench_rendezvous $(BUILD)/bin/fsdprun
	$< $(BENCH)/rendezvous.json $(BUILD)/bin/fsdprun
$(BENCH)/bench_rendezvous: $(call obj,$(addprefix tests/bench/,bench_rendezvous.c member_swarm.c real_nodes.c)) $(BUILD)/test/parts.a $(BUILD)/lib/libfsdp.a
	$(call link,$(LIBS_NODE) $(LIBS_TRAIN))

.PHONY: bench-comm ## collectives, compared with copies and gloo
bench-comm: $(BENCH)/bench_comm
	$< $(BENCH)/comm.json
.PHONY: bench-mapping ## what one mapping for all ranks of a host would gain
bench-mapping: $(BENCH)/bench_mapping
	$< $(BENCH)/mapping.json

.PHONY: bench-train ## training steps, compared with FSDP2
bench-train: $(BENCH)/bench_train $(BENCH)/train/fsdp-train
	$< $(BENCH)/train.json $(BENCH)/train
# fsdp-train with a stopwatch, next to a copy of the launcher, which starts the trainer in its own folder.
TRAIN_WRAPPED := numerics_open nn_forward nn_forward_fused nn_backward fsdp_all_gather fsdp_reduce_scatter fsdp_all_reduce \
                 overlap_wait overlap_finish fsdp_optimizer_step fsdp_clip_grad_norm batch_fill
$(BENCH)/train/fsdp-train: $(call obj,tests/bench/train_timers.c $(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a \
  $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-agent
	$(call link,$(TRAIN_WRAPPED:%=-Wl$(comma)--wrap=%) $(LIBS_YAML) $(LIBS_TRAIN))
	cp -f $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-agent $(@D)

.PHONY: bench-numerics ## products and row kernels, compared with peak and memcpy
bench-numerics: $(BENCH)/bench_numerics
	$< auto $(or $(THREADS),1) $(BENCH)/numerics.json
.PHONY: bench-ways ## the figures behind the tables of numerics/ways.c
bench-ways: $(BENCH)/bench_ways
	$< $(or $(THREADS),1)
.PHONY: bench-checkpoint ## saves, loads and restarts, compared with fio and PyTorch's; SIZES="256 1024 4096" in MiB
SIZES ?= $(if $(BENCH_RUNS),256,256 1024 4096)
bench-checkpoint: $(BENCH)/bench_checkpoint $(BENCH)/bench_restart $(BENCH)/create_model $(BUILD)/bin/fsdprun $(BUILD)/bin/fsdp-train
	$< $(BENCH)/checkpoint.json $(or $(BENCH_DIR),$(BUILD)) $(SIZES)
	$(BENCH)/bench_restart $(BENCH)/checkpoint-jobs.json $(BUILD) $(BENCH)/create_model $(or $(BENCH_DIR),$(BENCH)) memory
