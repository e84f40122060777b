# Sources include these headers. Where some are missing, make names each Debian package in a line, before it
# compiles. pkg-config's name (- for none) : header : package
NEEDED     := libuv:uv.h:libuv1-dev yaml-0.1:yaml.h:libyaml-dev libcjson:cjson/cJSON.h:libcjson-dev \
              openssl:openssl/ssl.h:libssl-dev libcurl:curl/curl.h:libcurl4-openssl-dev -:xxhash.h:libxxhash-dev \
              $(if $(filter 1,$(ONEDNN)),-:dnnl.h:libdnnl-dev)
NEEDS_NONE := clean format help
HASH       := \#
define newline


endef
field = $(word $(2),$(subst :, ,$(1)))
ifneq ($(if $(MAKECMDGOALS),$(filter-out $(NEEDS_NONE),$(MAKECMDGOALS)),all),)
# All headers at once: the usual case costs one call of the compiler.
ifneq ($(shell pkg-config --exists $(PKGS) 2> /dev/null && \
  printf '$(HASH)include <%s>\n' $(foreach n,$(NEEDED),$(call field,$(n),2)) | \
  $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 && echo there),there)
# $(call missing,PC,HEADER,PACKAGE): the package, where pkg-config or the compiler does not find it
missing = $(shell { [ $(1) = - ] || pkg-config --exists $(1); } 2> /dev/null && \
  echo '$(HASH)include <$(2)>' | $(CC) $(CPPFLAGS) -E -x c - > /dev/null 2>&1 || echo $(3))
MISSING := $(shell command -v $(firstword $(CC)) > /dev/null || echo gcc; \
             command -v pkg-config > /dev/null || echo pkg-config)
ifeq ($(MISSING),)
MISSING := $(foreach n,$(NEEDED),$(call missing,$(call field,$(n),1),$(call field,$(n),2),$(call field,$(n),3)))
endif
$(error these Debian packages are missing$(foreach p,$(MISSING),$(newline)  $(p))$(newline)scripts/packages.sh installs all \
that the build needs (apt; sudo when not root); docs/dependencies.md says why)
endif
endif
