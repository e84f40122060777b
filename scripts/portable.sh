#!/usr/bin/env bash
# Lays out the programs with the libraries that they need, for machines without our packages: glibc 2.34 or
# later, libstdc++ and libgcc_s are what is expected there. `make tarball` and `make wheel` link the programs,
# call this, and pack what it leaves.
#   scripts/portable.sh BUILD          writes BUILD/portable/tree, with bin, lib/fsdprun and share
set -eu
cd "$(dirname "$0")/.."
. scripts/libraries.sh
build=$1
tree=$build/portable/tree
command -v patchelf > /dev/null || { echo "make tarball and make wheel need patchelf" >&2; exit 1; }
rm -rf "$tree"
make -s BUILD="$build" install-programs BINS="$build/portable/bin/fsdprun $build/portable/bin/fsdp-agent $build/portable/bin/fsdp-train" \
  DESTDIR="$tree" PREFIX=
mkdir -p "$tree/lib/fsdprun" "$tree/share/doc/fsdprun/licenses"
copy_libraries "$tree/lib/fsdprun" "$libraries_of_libc|libstdc\+\+|libgcc_s" "$build"/portable/bin/*
# Opened by name: TLS between nodes with a secret, and an etcd.
for file in libssl.so.3 libcurl.so.4; do
  path=$(ldconfig -p | awk -v file="$file" '$1 == file { print $NF; exit }')
  [ -n "$path" ] || { echo "$file is not installed here" >&2; exit 1; }
  cp -nL "$path" "$tree/lib/fsdprun/"
  copy_libraries "$tree/lib/fsdprun" "$libraries_of_libc|libstdc\+\+|libgcc_s" "$path"
done
strip "$tree"/bin/*
# Each finds the others beside it, whatever program loads it.
for file in "$tree"/lib/fsdprun/*; do patchelf --force-rpath --set-rpath '$ORIGIN' "$file"; done
for file in "$tree"/lib/fsdprun/*; do
  package=$(dpkg -S "*/$(basename "$file")" 2> /dev/null | head -n 1 | cut -d: -f1)
  [ -z "$package" ] || cp -nL "/usr/share/doc/$package/copyright" "$tree/share/doc/fsdprun/licenses/$package" 2> /dev/null || :
done
cp LICENSE "$tree/share/doc/fsdprun/"
# One commit gives the same archive, whenever it is built.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 315619200)} # else the second day of zip's time
find "$tree" -exec touch -h -d "@$time" {} +
