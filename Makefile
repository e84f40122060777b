# fsdprun: the products are built here; tests, benches, CUDA and linters are in mk/. `make help` lists targets.
# A flavour (SAN=, another CC) has its own folder under build/ (BUILD=), so that flavours never mix.
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:

VERSION   := 0.1.0
SOVERSION := 0
BUILD     ?= build
# One spelling of the folder, because the .d files name their objects by it; goals may have the other one.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
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
comma     := ,
PKGS      := libuv yaml-0.1 libcjson openssl libcurl
COMMIT    := $(shell git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)

WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(WERROR),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
CPPFLAGS += -I. -Ishard_runtime/include -D_GNU_SOURCE $(shell pkg-config --cflags $(PKGS) 2> /dev/null)
CFLAGS   += -std=c11 -O2 -g $(WARN) $(SANFLAGS)
ALL_CFLAGS = $(CFLAGS) -fPIC -fvisibility=$(or $(VISIBILITY),hidden) $(OPENMP)
LDFLAGS  += $(SANFLAGS)
# ONEDNN=0: without oneDNN, matrix products in plain C (slow; for the thread sanitizer).
ONEDNN     ?= 1
CPPFLAGS   += $(if $(filter 1,$(ONEDNN)),,-DFSDP_WITHOUT_ONEDNN)
LIBS_NODE  := $(shell pkg-config --libs libuv libcjson 2> /dev/null) -lxxhash -lm
LIBS_TRAIN := $(OPENMP) $(shell pkg-config --libs libcjson openssl 2> /dev/null) $(if $(filter 1,$(ONEDNN)),-ldnnl) \
              -lxxhash -lm
LIBS_YAML  := $(shell pkg-config --libs yaml-0.1 2> /dev/null)

# $(call link,LIBRARIES and flags): links the prerequisites. The file is renamed at the end: a program that uses the old
# one goes on with it, and no test finds half a file.
define link
@mkdir -p $(@D)
$(CC) $(LDFLAGS) $(filter %.o,$^) -Wl$(comma)--start-group $(filter %.a,$^) -Wl$(comma)--end-group -o $@.new $(1)
@mv -f $@.new $@
endef
# The same for a static library.
define archive
@mkdir -p $(@D)
@rm -f $@.new
ar rcs $@.new $(filter %.o,$^)
@mv -f $@.new $@
endef

.PHONY: all     ## programs, libraries and examples (the default): build/bin, build/lib, build/examples
all:
include mk/needed.mk

# A new file in one of these folders is built without an entry here.
RUNTIME := core plan shard numerics device comm optim nn data objectstore shardfile checkpoint engine state
src      = $(wildcard $(1)/*.c)
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

JOB_SRC     := $(call src,shard_runtime/job)
FSDP_SRC    := $(filter-out $(if $(filter 1,$(ONEDNN)),,shard_runtime/numerics/onednn%),\
               $(foreach d,$(RUNTIME),$(call src,shard_runtime/$(d))))
TRAINER_SRC := $(call src,shard_runtime/trainer)
# What launcher and agent share with the workers: they never load a numerics library.
SHARED_SRC  := $(call src,shard_runtime/core) $(call src,shard_runtime/objectstore) $(call src,shard_runtime/shardfile)
# What `fsdprun ckpt` does with checkpoints.
CKPT_SRC    := $(call src,shard_runtime/ckpt)
AGENT_SRC   := $(filter-out agent/daemon/main.c,$(wildcard agent/*.c agent/*/*.c))
LAUNCH_SRC  := $(call src,launcher)
EXAMPLES    := $(patsubst shard_runtime/examples/%.c,$(BUILD)/examples/%,$(call src,shard_runtime/examples))
BINS        := $(addprefix $(BUILD)/bin/,fsdprun fsdp-agent fsdp-train)
LIBS        := $(addprefix $(BUILD)/lib/,libfsdp.a libfsdp.so)
all: $(BINS) $(LIBS) $(EXAMPLES)

# Row kernels are compiled once for each instruction set and chosen at run time (never -march=native).
ISA_SRC  := $(call src,shard_runtime/numerics/isa)
ISAS     := base $(if $(filter x86_64,$(shell uname -m)),avx2 avx512)
# No kernel reads errno or floating-point traps; products are fused only where the source says so (vf_fma).
ISA_CFLAGS       := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off
ISA_FLAGS_base   :=
ISA_FLAGS_avx2   := -mavx2 -mfma
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512
FSDP_OBJ := $(call obj,$(FSDP_SRC)) $(foreach i,$(ISAS),$(patsubst %.c,$(BUILD)/obj/%.$(i).o,$(ISA_SRC)))
define isa_rule
$$(BUILD)/obj/shard_runtime/numerics/isa/%.$(1).o: shard_runtime/numerics/isa/%.c
	@mkdir -p $$(@D)
	$$(CC) $$(CPPFLAGS) -DISA=$(1) $$(ALL_CFLAGS) $$(ISA_CFLAGS) $$(ISA_FLAGS_$(1)) -MMD -MP -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

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
# The sums of the collectives and the conversions: plain loops that are to be vectorised. No caller reads which
# exceptions a conversion to float8 raised: so its choices need no branches.
$(BUILD)/obj/shard_runtime/comm/reduce.o $(BUILD)/obj/shard_runtime/device/cpu_cast.o \
  $(BUILD)/obj/shard_runtime/device/cpu_float8.o: CFLAGS += -O3
$(BUILD)/obj/shard_runtime/device/cpu_float8.o: CFLAGS += -fno-trapping-math

$(BUILD)/bin/fsdprun: $(call obj,$(LAUNCH_SRC) $(CKPT_SRC) $(JOB_SRC) $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(LIBS_NODE) $(LIBS_YAML))
$(BUILD)/bin/fsdp-agent: $(call obj,agent/daemon/main.c $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(LIBS_NODE))
$(BUILD)/bin/fsdp-train: $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a
	$(call link,$(LIBS_YAML) $(LIBS_TRAIN))
$(BUILD)/lib/libfsdp.a: $(FSDP_OBJ)
	$(archive)
$(BUILD)/lib/libfsdp.so.$(VERSION): $(FSDP_OBJ)
	$(call link,-shared -Wl$(comma)-soname$(comma)libfsdp.so.$(SOVERSION) $(LIBS_TRAIN))
$(BUILD)/lib/libfsdp.so: $(BUILD)/lib/libfsdp.so.$(VERSION)
	ln -sf libfsdp.so.$(VERSION) $@.$(SOVERSION)
	ln -sf libfsdp.so.$(SOVERSION) $@
# An example sees the public headers alone.
$(BUILD)/examples/%: shard_runtime/examples/%.c $(BUILD)/lib/libfsdp.so
	@mkdir -p $(@D)
	$(CC) -Ishard_runtime/include -std=c11 -O2 -g $(WARN) $(SANFLAGS) -MMD -MP -MF $@.d -MT $@ $< -o $@.new \
	  -L$(BUILD)/lib -lfsdp -Wl,-rpath,'$$ORIGIN/../lib' -lm
	@mv -f $@.new $@

$(CURDIR)/$(BUILD)/%: $(BUILD)/% ;

include mk/bench.mk mk/cuda.mk mk/tests.mk mk/lint.mk mk/install.mk mk/portable.mk

# docs/config.md, and in two manual pages the part between the marks BEGIN and END, are made from the tables of
# options and keys. A unit test holds them against the tables.
.PHONY: docs    ## writes the pages that are made from the tables of options and keys
docs: $(BUILD)/bin/fsdprun
	$(BUILD)/bin/fsdprun --docs=config.md > docs/config.md
	for page in fsdprun.1 fsdp.yaml.5; do \
	  $(BUILD)/bin/fsdprun --docs=$$page > $(BUILD)/$$page && \
	  sed -i -e '/^\.\\" BEGIN/,/^\.\\" END/ { /^\.\\" [BE][EN]/ !d }' -e '/^\.\\" BEGIN/ r '$(BUILD)/$$page \
	    docs/man/$$page || exit 1; done

.PHONY: clean   ## removes build/
clean:
	rm -rf build compile_commands.json

.PHONY: help
help:
	@sed -n 's/^\.PHONY: *\([a-z-]*\) *## *\(.*\)/\1 \2/p' Makefile mk/*.mk | \
	  while read -r name what; do printf '%-17s %s\n' "$$name" "$$what"; done

-include $(shell find $(BUILD)/obj $(BUILD)/examples -name '*.d' 2>/dev/null)
