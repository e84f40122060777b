#!/usr/bin/env bash
# Packs the programs with the libraries that they need, for machines without our packages: glibc 2.34 or
# later, libstdc++ and libgcc_s are what is expected there. `make tarball` links the programs and calls this.
#   scripts/tarball.sh BUILD NAME      writes BUILD/NAME.tar.gz, with one folder NAME
set -eu
cd "$(dirname "$0")/.."
. scripts/libraries.sh
build=$1 name=$2
tree=$build/portable/$name
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
for file in "$tree"/lib/fsdprun/*; do
  package=$(dpkg -S "*/$(basename "$file")" 2> /dev/null | head -n 1 | cut -d: -f1)
  [ -z "$package" ] || cp -nL "/usr/share/doc/$package/copyright" "$tree/share/doc/fsdprun/licenses/$package" 2> /dev/null || :
done
cp LICENSE "$tree/share/doc/fsdprun/"
tar czf "$build/$name.tar.gz.new" -C "$build/portable" --owner=0 --group=0 "$name"
mv -f "$build/$name.tar.gz.new" "$build/$name.tar.gz"
echo "$build/$name.tar.gz: $(($(stat -c %s "$build/$name.tar.gz") >> 10)) KiB"
