# Formatting, linters, and the list of compile commands for editors.
C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)

.PHONY: format  ## clang-format over every file
format:
	clang-format-14 -i $(C_FILES) 2>/dev/null || clang-format -i $(C_FILES)

# One file a call: given many, clang-tidy 14 takes va_start for unknown from the second on. xargs fails when
# one does.
CLANG_TIDY ?= $(shell command -v clang-tidy-14 || echo clang-tidy)
.PHONY: lint    ## scripts/lint.sh, clang-tidy and cppcheck
lint: compile_commands.json
	scripts/lint.sh
	printf '%s\n' $(filter launcher/%.c agent/%.c shard_runtime/%.c,$(C_FILES)) | \
	  xargs -P "$$(nproc)" -I FILE $(CLANG_TIDY) --quiet FILE -- $(CPPFLAGS) -std=c11 -fopenmp -DISA=base $(VERSION_DEFS)
	cppcheck --quiet --enable=warning,portability,performance --error-exitcode=1 --inline-suppr --std=c11 \
	  --suppress=missingIncludeSystem -DISA=base -I. -Ishard_runtime/include launcher agent shard_runtime

compile_commands.json: Makefile
	@{ echo '['; for f in $(filter %.c,$(C_FILES)); do printf '{"directory": "%s", "file": "%s", "command": "%s"},\n' \
	  '$(CURDIR)' "$$f" "$(CC) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -DISA=base -c $$f"; done | sed '$$ s/,$$//'; echo ']'; } > $@
