# What is installed, and where.

# The example jobs read ../data/bible.txt. Without the whole text an excerpt is installed under that name: the
# jobs run, and scripts/prepare-data.sh, which is installed next to it, writes the whole.
TEXT  ?= $(wildcard data/bible.txt)
SHARE  = $(DESTDIR)$(PREFIX)/share
# systemd looks for units, and for a user's units, in these folders of /usr, /usr/local and ~/.local.
UNITS  = fsdp-agent.service fsdp-agent.socket
# fsdp.pc names PREFIX, and is written where it is installed. A LIBDIR inside PREFIX follows ${prefix}, so that
# pkg-config --define-prefix finds a tree that was moved.
.PHONY: install ## copies what was built: make install DESTDIR= PREFIX=/usr/local
.PHONY: install-programs
install: all install-programs
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/fsdp
	install -m 644 $(BUILD)/lib/libfsdp.a $(DESTDIR)$(LIBDIR)/
	install -m 755 $(BUILD)/lib/libfsdp.so.$(VERSION) $(wildcard $(BUILD)/lib/libfsdp_cuda.so) $(DESTDIR)$(LIBDIR)/
	ln -sf libfsdp.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libfsdp.so.$(SOVERSION)
	ln -sf libfsdp.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libfsdp.so
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))' \
	  'includedir=$${prefix}/include' '' 'Name: fsdp' \
	  'Description: fully sharded data parallel training runtime' 'Version: $(VERSION)' 'Libs: -L$${libdir} -lfsdp' \
	  'Libs.private: -ldnnl -lcjson -lcrypto -lxxhash -lgomp -lm' 'Cflags: -I$${includedir}' \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/fsdp.pc
	install -m 644 shard_runtime/include/fsdp/*.h $(DESTDIR)$(PREFIX)/include/fsdp/
# The programs and what belongs to them, without the C library.
install-programs: $(BINS)
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system sysusers.d tmpfiles.d) \
	  $(addprefix $(SHARE)/fsdprun/,configs/slurm configs/systemd data examples scripts) $(SHARE)/systemd/user \
	  $(addprefix $(SHARE)/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(BINS) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 configs/*.yaml $(SHARE)/fsdprun/configs/
	install -m 755 configs/slurm/*.sbatch $(SHARE)/fsdprun/configs/slurm/
	install -m 644 shard_runtime/examples/*.c $(SHARE)/fsdprun/examples/
	install -m 644 $(or $(TEXT),tests/parity/excerpt.txt) $(SHARE)/fsdprun/data/bible.txt
	install -m 755 scripts/prepare-data.sh scripts/packages.sh $(SHARE)/fsdprun/scripts/
	$(firstword $(BINS)) --print-completion bash > $(SHARE)/bash-completion/completions/fsdprun
	$(firstword $(BINS)) --print-completion zsh > $(SHARE)/zsh/site-functions/_fsdprun
	$(firstword $(BINS)) --print-completion fish > $(SHARE)/fish/vendor_completions.d/fsdprun.fish
	for page in docs/man/*.[1-8]; do install -D -m 644 $$page $(SHARE)/man/man$${page##*.}/$${page##*/} || exit 1; done
	for unit in $(UNITS); do \
	  sed 's|/usr/local/bin/|$(PREFIX)/bin/|' configs/systemd/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit && \
	  sed 's|/usr/local/bin/|$(PREFIX)/bin/|' configs/systemd/user/$$unit > $(SHARE)/systemd/user/$$unit || exit 1; done
	install -m 644 configs/systemd/fsdprun.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/fsdprun.conf
	install -m 644 configs/systemd/fsdprun.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/fsdprun.conf
	install -m 644 configs/systemd/agent.conf $(SHARE)/fsdprun/configs/systemd/
