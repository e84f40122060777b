# What make leaves and installs: libraries, symbols, what each program needs, and a second compiler's opinion.
# Shares: the build folder, in which it runs make
# Long
. tests/support/shell/harness.sh

make -s BUILD="$BUILD" DESTDIR="$WORK/root" PREFIX=/opt/fsdp install > "$WORK/install.log" 2>&1
check_eq "make install ends well" 0 $? || cat "$WORK/install.log" >&2
for path in bin/fsdprun bin/fsdp-agent bin/fsdp-train lib/libfsdp.a lib/libfsdp.so lib/pkgconfig/fsdp.pc \
  include/fsdp/fsdp.h share/man/man1/fsdprun.1 share/fsdprun/configs/quickstart.yaml \
  share/bash-completion/completions/fsdprun share/zsh/site-functions/_fsdprun share/fish/vendor_completions.d/fsdprun.fish \
  lib/systemd/system/fsdp-agent.service lib/systemd/system/fsdp-agent.socket share/systemd/user/fsdp-agent.service \
  share/systemd/user/fsdp-agent.socket lib/sysusers.d/fsdprun.conf lib/tmpfiles.d/fsdprun.conf; do
  check "installs $path" test -s "$WORK/root/opt/fsdp/$path"
done
check_eq "writes nothing outside DESTDIR's prefix" opt/fsdp "$(cd "$WORK/root" && echo */*)"
check "the installed launcher runs" "$WORK/root/opt/fsdp/bin/fsdprun" --version
share=$WORK/root/opt/fsdp/share/fsdprun
check_status "the installed example runs, from another directory" 0 sh -c "cd '$WORK' && '$WORK/root/opt/fsdp/bin/fsdprun' \
  '$share/configs/quickstart.yaml' --set train.steps=2 --set optimizer.warmup_steps=1 --set model.dim=32"
check "... and leaves its run there" test -e "$WORK/runs/quickstart/checkpoints/step-00000002/manifest.json"
text=tests/parity/excerpt.txt
[ ! -f data/bible.txt ] || text=data/bible.txt
check "what it reads is the text of the tree, whole" cmp "$text" "$share/data/bible.txt"
check_status "without a text in the tree an excerpt is installed" 0 make -s BUILD="$BUILD" DESTDIR="$WORK/bare" PREFIX=/usr TEXT= install
check "... of which the example learns" cmp "$WORK/bare/usr/share/fsdprun/data/bible.txt" tests/parity/excerpt.txt

# A user's program against what was installed, by pkg-config.
export PKG_CONFIG_PATH=$WORK/root/opt/fsdp/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$WORK/root
example=$(ls shard_runtime/examples/*.c | head -n 1)
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
check "an example builds against the installed library" \
  sh -c "cc -std=c11 -Wall -Wextra -Werror $san $example -o $WORK/example \$(pkg-config --cflags --libs fsdp) -lm"
check_match "libfsdp.so has a version in its name" 'SONAME.*libfsdp\.so\.[0-9]' "$(readelf -d "$BUILD/lib/libfsdp.so")"

exported=$(nm -D --defined-only "$BUILD/lib/libfsdp.so" | awk '{print $3}' | grep -v '^fsdp_' | grep -vE '^(_init|_fini|__.*|_ITM.*)$')
[ -z "$san" ] && check_eq "libfsdp.so shows nothing but fsdp_*" "" "$exported"
missing=$(for name in $(sed -n '/FSDP_API/,/;/p' shard_runtime/include/fsdp/*.h | grep -oE '\bfsdp_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u); do
  nm -D --defined-only "$BUILD/lib/libfsdp.so" | awk '{print $3}' | grep -qx "$name" || echo "$name"; done)
check_eq "every function of the public headers is there" "" "$missing"

needed() { readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'; }
for program in fsdprun fsdp-agent; do
  check_eq "$program loads no numerics" "" "$(needed "$BIN/$program" | grep -E 'dnnl|gomp|libomp')"
  [ -z "$san" ] && check_eq "$program loads no OpenSSL until there is a secret" "" "$(needed "$BIN/$program" | grep -E 'ssl|crypto')"
done
mkdir "$WORK/old" && cc -shared -fPIC -x c /dev/null -o "$WORK/old/libssl.so.3"
echo "a secret of many words" > "$WORK/secret" && chmod 600 "$WORK/secret"
check_status "a secret where OpenSSL is another one is refused" 78 env LD_LIBRARY_PATH="$WORK/old" "$BIN/fsdprun" --nnodes 2 --node-rank 0 \
  --rdzv-endpoint 127.0.0.1:1 --secret-file "$WORK/secret" --no-python true
check_match "in one line that names what it lacks" 'libssl.so.3 has no [A-Za-z_]+' "$(cat "$WORK/err")"
check_eq "nothing needs CUDA" "" "$(for f in "$BIN"/* "$BUILD/lib/libfsdp.so"; do needed "$f"; done | grep -iE 'cuda|nccl|cublas|cudnn')"
check_eq "the trainer has one OpenMP" libgomp.so.1 "$(needed "$BIN/fsdp-train" | grep -E 'gomp|omp')"
for header in shard_runtime/include/fsdp/status.h agent/config.h; do
  check_match "$header is a known dependency" '\.o' "$(make -n BUILD="$BUILD" -W $header all 2> /dev/null | grep -o -- '-o [^ ]*\.o' | head -n 1)"
done
check "compile_commands.json is JSON" sh -c "make -s -B compile_commands.json && $BUILD/test/json_check compile_commands.json"

check "scripts/lint.sh finds nothing" scripts/lint.sh
undocumented=$(. scripts/packages.sh; for name in $packages_run $packages_build $packages_data $packages_test $packages_pytorch $packages_lint; do
  grep -qw -- "$name" docs/dependencies.md || echo "$name"; done)
check_eq "every package that is installed stands in docs/dependencies.md" "" "$undocumented"

if command -v cloc > /dev/null; then
  mkdir -p "$WORK"/tree/{launcher,agent,shard_runtime,tests}
  printf 'int a /* x */ = b+++c; // y\n\n/* z */\nchar *s = "a/*b*/", c = %s;\nx->y <<= 0x1.8p-3f;\n' "'\"'" > "$WORK/tree/launcher/a.c"
  check_eq "scripts/size.sh counts lines and tokens" "launcher 1 5 3 1 24" \
    "$(scripts/size.sh "$WORK/tree" | grep '^launcher' | xargs)"
else skip "scripts/size.sh" "there is no cloc"; fi

# A commit while tests run: each start finds a whole program, the old one or the new one.
touch "$WORK/before"
make -s BUILD="$BUILD" NVCC= -W launcher/main.c "$BIN/fsdprun" > "$WORK/relink" 2>&1 &
broken=0
while kill -0 $! 2> /dev/null; do "$BIN/fsdprun" --version > /dev/null 2>&1 || broken=$((broken + 1)); done
wait $!
check_eq "the launcher is linked again" 0 $? || cat "$WORK/relink" >&2
check "... and is a new file" test "$BIN/fsdprun" -nt "$WORK/before"
check_eq "... and at no time is there none" 0 $broken
check_match "its objects know their headers however BUILD was written" "^${BUILD#"$PWD"/}/obj/launcher/main.o:" "$(head -n 1 "$BUILD/obj/launcher/main.d")"

# What a new user meets: packages that are missing, and a compiler that takes minutes.
check_status "make without its packages fails" 2 env PKG_CONFIG_LIBDIR="$WORK" PKG_CONFIG_PATH= make BUILD="$WORK/none"
check_match "... and names the script that installs them" 'scripts/packages\.sh' "$(cat "$WORK/err")"
check_eq "... and each package in a line, with nothing compiled" \
  "libuv1-dev libyaml-dev libcjson-dev libssl-dev libcurl4-openssl-dev" \
  "$(sed -n 's/^  \([a-z0-9.-]*\) *$/\1/p' "$WORK/err" | xargs)"
printf '#!/bin/sh\ncase $* in *-E*) ! grep -q dnnl.h ;; esac\n' > "$WORK/cc-without-dnnl"; chmod +x "$WORK/cc-without-dnnl"
check_status "make without one header fails" 2 make BUILD="$WORK/none" CC="$WORK/cc-without-dnnl"
check_eq "... and names its package alone" "libdnnl-dev" "$(sed -n 's/^  \([a-z0-9.-]*\) *$/\1/p' "$WORK/err" | xargs)"
check_eq "make help has every target but those that only other targets call" "fuzz-run help install-programs portable-tree tsan-programs" \
  "$(grep -h '^\.PHONY:' Makefile mk/*.mk | grep -v '##' | cut -d ' ' -f 2- | xargs -n 1 | sort | xargs)"
check_match "... with a line each" '^unit +unit tests$' "$(make -s help | grep '^unit ')"
check_status "make clean needs none" 0 env PKG_CONFIG_LIBDIR="$WORK" PKG_CONFIG_PATH= make -n clean
printf '#!/bin/sh\necho "nvcc $*" >&2\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\nexit 0\n' > "$WORK/nvcc"; chmod +x "$WORK/nvcc"
kernel=$(ls shard_runtime/cuda/kernels/*.cu | head -n 1)
announced() { make -s BUILD="$WORK/cuda" NVCC="$WORK/nvcc" CCACHE= "$WORK/cuda/obj/${kernel%.cu}.o" 2>&1; }
check_match "the CUDA plug-in is announced before it is compiled" '^building the CUDA plug-in.*minutes.*\.nvcc ' "$(announced | tr '\n' '.')"
check_eq "once" "" "$(announced)"

# clang 14 has nothing to say about it either. (Its own OpenMP is not used: shipped binaries have libgomp.)
if [ -z "$san" ] && command -v clang-14 > /dev/null; then
  check "clang 14 builds it without a warning" make -s -j"$(nproc)" BUILD=build/clang CC=clang-14 OPENMP=-fopenmp WERROR=1 \
    SANFLAGS='-O0 -g0' ISA_CFLAGS= build/clang/lib/libfsdp.a build/clang/bin/fsdprun build/clang/bin/fsdp-agent
fi
