#!/usr/bin/env bash
# Packs what a machine with a GPU, nvcc and libc needs to check the cuda back end without a network. These are
# the sources, the programs built here, and the libraries that they need beyond libc. At most 64 MiB.
#   scripts/gpu-archive.sh [--built] [FILE]      there: tar xf FILE && cd fsdprun && scripts/gpu-check.sh
# --built: the programs are there already. Exit status: 0; 1 it is too large, or something is missing.
set -eu
cd "$(dirname "$0")/.."
. scripts/libraries.sh
limit=$((64 << 20))
if [ "${1:-}" = --built ]; then shift; else make -s NVCC= tests-build; fi
file=${1:-build/fsdprun-gpu.tar.gz}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
tree=$work/fsdprun
mkdir -p "$tree/build/libs" "$tree/build/bin" "$tree/build/lib" "$tree/build/test"
git ls-files -z Makefile mk scripts shard_runtime tests/gpu tests/parity tests/support tests/run tests/bench/gpu | xargs -0 cp --parents -t "$tree"
for program in build/bin/fsdprun build/bin/fsdp-agent build/bin/fsdp-train build/test/cuda_numerics \
  build/test/attention_time build/test/product_time build/test/parity_compare; do
  cp "$program" "$tree/$program"; strip "$tree/$program"
  copy_libraries "$tree/build/libs" "$libraries_of_libc" "$program" # a library of another libc would not fit
done
# The plug-in too, where it was built: a machine on which its build fails has this one.
[ ! -e build/lib/libfsdp_cuda.so ] || { cp build/lib/libfsdp_cuda.so "$tree/build/lib/"; strip "$tree/build/lib/libfsdp_cuda.so"; }
tar czf "$file" -C "$work" fsdprun
size=$(stat -c %s "$file")
echo "$file: $((size >> 10)) KiB of at most $((limit >> 10))"
[ "$size" -le "$limit" ] || { echo "more than $((limit >> 20)) MiB" >&2; exit 1; }
