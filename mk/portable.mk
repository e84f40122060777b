# The programs for machines without our packages. What Debian has as a static library is linked in; the rest is in
# lib/fsdprun beside bin/. DT_RPATH, and not RUNPATH, because it holds for what those libraries need too.
PORTABLE      := $(BUILD)/portable/bin
PORTABLE_LINK := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib/fsdprun' -Wl,--as-needed
PORTABLE_NODE := -Wl,-Bstatic -luv_a -lyaml -lxxhash -Wl,-Bdynamic -lcjson -lm
$(PORTABLE)/fsdprun: $(call obj,$(LAUNCH_SRC) $(CKPT_SRC) $(JOB_SRC) $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(PORTABLE_LINK) $(PORTABLE_NODE))
$(PORTABLE)/fsdp-agent: $(call obj,agent/daemon/main.c $(AGENT_SRC) $(SHARED_SRC))
	$(call link,$(PORTABLE_LINK) $(PORTABLE_NODE))
$(PORTABLE)/fsdp-train: $(call obj,$(TRAINER_SRC) $(JOB_SRC)) $(BUILD)/lib/libfsdp.a
	$(call link,$(PORTABLE_LINK) $(OPENMP) -Wl$(comma)-Bstatic -lyaml -lxxhash -Wl$(comma)-Bdynamic -lcjson -lcrypto -ldnnl -lm)
TARBALL := fsdprun-$(VERSION)-$(shell uname -m)-linux
.PHONY: tarball     ## packs the programs for machines without our packages: build/fsdprun-VERSION-ARCH-linux.tar.gz
tarball: $(addprefix $(PORTABLE)/,fsdprun fsdp-agent fsdp-train)
	scripts/tarball.sh $(BUILD) $(TARBALL)
