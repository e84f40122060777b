# The programs for machines without our packages. What Debian has as a static library is linked in; the rest is in
# lib/fsdprun beside bin/, or in data/lib/fsdprun while a wheel is not installed (auditwheel looks there). DT_RPATH, and
# not RUNPATH, because it holds for what those libraries need too. A build-id would depend on the folder of the build.
PORTABLE      := $(BUILD)/portable/bin
PORTABLE_LINK := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib/fsdprun:$$ORIGIN/../data/lib/fsdprun' -Wl,--as-needed \
                 -Wl,--build-id=none
PORTABLE_NODE := -Wl,-Bstatic -luv_a -lyaml -lxxhash -Wl,-Bdynamic -lcjson -lm
$(PORTABLE)/fsdprun: $(call obj,$(LAUNCH_SRC) $(CKPT_SRC) $(JOB_SRC) $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(PORTABLE_LINK) $(PORTABLE_NODE))
$(PORTABLE)/fsdp-agent: $(call obj,agent/daemon/main.c $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(PORTABLE_LINK) $(PORTABLE_NODE))
$(PORTABLE)/fsdp-train: $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a
	$(call link,$(PORTABLE_LINK) $(OPENMP) -Wl$(comma)-Bstatic -lyaml -lxxhash -Wl$(comma)-Bdynamic -lcjson -lcrypto -ldnnl -lm)
# What both archives hold.
PORTABLE_TREE  := $(BUILD)/portable/tree
.PHONY: portable-tree
portable-tree: $(addprefix $(PORTABLE)/,fsdprun fsdp-agent fsdp-train)
	scripts/portable.sh $(BUILD)
ARCH    := $(shell uname -m)
TARBALL := fsdprun-$(VERSION)-$(ARCH)-linux
.PHONY: tarball     ## packs the programs for machines without our packages: build/fsdprun-VERSION-ARCH-linux.tar.gz
tarball: portable-tree
	tar cf - -C $(PORTABLE_TREE) --sort=name --owner=0 --group=0 --numeric-owner --transform 's,^\.,$(TARBALL),' . | \
	  gzip -n > $(BUILD)/$(TARBALL).tar.gz.new
	mv -f $(BUILD)/$(TARBALL).tar.gz.new $(BUILD)/$(TARBALL).tar.gz
	@ls -sh $(BUILD)/$(TARBALL).tar.gz
.PHONY: wheel       ## packs the same for pip, with fsdprun.wrap: build/fsdprun-VERSION-py3-none-manylinux_2_34_ARCH.whl
wheel: portable-tree
	scripts/wheel.sh $(BUILD) $(VERSION) py3-none-manylinux_2_34_$(ARCH)
