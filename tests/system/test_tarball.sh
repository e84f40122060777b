# The archive for machines without our packages: what it needs of a machine, and that it runs on a root that has
# glibc, libstdc++ and libgcc_s and nothing else, not even a shell. So does the wheel, unpacked there without a Python.
# Nightly: install
# Long
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh
. tests/support/shell/agents.sh
. tests/support/shell/root.sh
case $BUILD in *asan* | *tsan*) skip "the tarball" "a sanitizer's programs are not for other machines"; exit 0 ;; esac
command -v patchelf > /dev/null || { skip "the tarball" "needs patchelf"; exit 0; }
check "make tarball" make -s BUILD="$BUILD" tarball
name=$(cd "$BUILD" && ls fsdprun-*-linux.tar.gz | head -n 1)
mkdir -p "$WORK/root/opt" && check "it unpacks" tar xf "$BUILD/$name" -C "$WORK/root/opt"
tree=$WORK/root/opt/${name%.tar.gz}
newer() { objdump -T "$tree"/bin/* "$tree"/lib/fsdprun/* | grep -oE 'GLIBC_2\.(3[5-9]|[4-9][0-9])|GLIBC_[3-9].*|GLIBCXX_3\.4\.[3-9][0-9]' | sort -u; }
check_eq "no symbol newer than glibc 2.34 and its libstdc++" "" "$(newer)"
foreign() { ldd "$tree"/bin/* | awk '$3 ~ /^\// { print $3 } /not found/' | grep -v '/opt/' | grep -vE '/(libc|libm|libstdc\+\+|libgcc_s)\.so' | sort -u; }
check_eq "a program loads its own libraries, glibc, libstdc++ and libgcc_s" "" "$(foreign)"
check_eq "uv, yaml and xxhash are linked in" "" "$(ls "$tree/lib/fsdprun" | grep -E 'libuv|libyaml|libxxhash')"
check "the license of each library is there" test -s "$tree/share/doc/fsdprun/licenses/libdnnl2"

root=$WORK/root
mkdir -p "$root"/{proc,dev,tmp,lib64,lib/x86_64-linux-gnu}
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libstdc++.so.6 libgcc_s.so.1; do
  cp -L "$(ldconfig -p | awk -v file=$library '$1 == file { print $NF; exit }')" "$root/lib/x86_64-linux-gnu/"
done
PATH_INSIDE=/opt/${name%.tar.gz}/bin:$PATH_INSIDE
at=/opt/${name%.tar.gz}
if ! inside "$root" "$at/bin/fsdprun" --version > "$WORK/out" 2>&1; then
  if [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null; then not_ok "it runs on a bare root" "$(cat "$WORK/out")"
  else skip "a bare root" "needs root and mount namespaces"; fi
  exit
fi
check_match "fsdprun --version on a bare root" '^fsdprun [0-9.]+' "$(cat "$WORK/out")"
check_status "a job of two ranks trains there" 0 inside "$root" "$at/bin/fsdprun" --nproc-per-node 2 --run-dir /tmp/run "$at/share/fsdprun/configs/quickstart.yaml" \
  $small_job
check "... and saves" test -s "$root/tmp/run/checkpoints/step-00000002/manifest.json"
printf 'a secret of the test, long enough\n' > "$root/tmp/secret"; chmod 600 "$root/tmp/secret"
check_status "TLS between nodes is there" 0 inside "$root" "$at/bin/fsdprun" --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$(port_block) --rdzv-conf last_call_timeout=1 \
  --secret-file /tmp/secret --no-python "$at/bin/fsdprun" --version

type zip unzip > /dev/null 2>&1 || { skip "the wheel on a bare root" "needs zip and unzip"; exit 0; }
check "make wheel" make -s BUILD="$BUILD" wheel
check "the wheel unpacks" unzip -q "$BUILD"/fsdprun-*.whl -d "$root/opt/wheel"
data=$(echo "$root"/opt/wheel/fsdprun-*.data)
at=${data#"$root"}
check_status "the wheel, unpacked on a bare root: fsdprun --version" 0 inside "$root" "$at/scripts/fsdprun" --version
check_status "... a job trains" 0 inside "$root" "$at/scripts/fsdprun" --nproc-per-node 2 --run-dir /tmp/run2 "$at/data/share/fsdprun/configs/quickstart.yaml" $small_job
check "... and saves" test -s "$root/tmp/run2/checkpoints/step-00000002/manifest.json"
check_status "... a program runs, of two ranks" 0 inside "$root" "$at/scripts/fsdprun" --nproc-per-node 2 --no-python "$at/scripts/fsdprun" --version
check_eq "... both" 2 "$(grep -c '^fsdprun [0-9]' "$WORK/out")"
