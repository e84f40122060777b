#!/usr/bin/env bash
# What no compiler checks: the form of the product's C, that what is ignored is what is named, the kernels of
# docs/cuda.md, and the places of CUDA's own words. `make lint` and tests/system/test_build.sh run this.
#   scripts/lint.sh [FOLDER...]     in these folders instead of those that $formed names
# Prints "FILE:LINE: what is wrong". Exit status 1 if there is something.
set -u
cd "$(dirname "$0")/.." || exit 1
# The folders whose C and headers have no line over 110 columns and no banner comment, and are as clang-format
# leaves them.
formed=(launcher agent
  shard_runtime/{checkpoint,comm,core,cuda,data,device,engine,examples,include,nn,objectstore,optim,plan,shard,shardfile,state,trainer}
  tests/{bench,fuzz,sim,support,tsan,unit})
[ $# -eq 0 ] || formed=("$@")
found=$(mktemp) && trap 'rm -f "$found"' EXIT

if [ ${#formed[@]} -gt 0 ]; then
  mapfile -t files < <(find "${formed[@]}" -type f | grep -E '\.(c|h|cu|cuh)$' | sort)
  grep -nE '^.{111,}' "${files[@]}" /dev/null | sed -E 's/^([^:]*:[0-9]+):.*/\1: over 110 columns/' >> "$found"
  grep -nE '/[*/] ?(-{3}|={3})' "${files[@]}" /dev/null |
    sed -E 's/^([^:]*:[0-9]+):.*/\1: a banner comment/' >> "$found"
  mapfile -t files < <(printf '%s\n' "${files[@]}" | grep '\.[ch]$')
  if command -v clang-format-14 > /dev/null; then
    clang-format-14 --dry-run "${files[@]}" 2>&1 | sed -nE 's/^([^:]*:[0-9]+):.*warning:.*/\1: not formatted/p' |
      sort -u >> "$found"
  else
    echo "clang-format-14 is not installed: formatting is not checked" >&2
  fi
fi

# IGNORED(name, call) ignores the result of a call of `name`: of ncclX by nccl.X, of cudnnX by api->X, of
# others by name.
for file in shard_runtime/cuda/*.c; do
  tr -s '\n ' '  ' < "$file" | grep -oE '\bIGNORED\(\w+, *[^(]+\(' | sed -E 's/^IGNORED\(//; s/\($//' |
    sed -E 's/, *[^ ]*\bnccl\./ nccl/; s/, *[^ ]*\bapi->/ cudnn/; s/, */ /' |
    awk -v file="$file" '$1 != $2 { print file ": IGNORED(" $1 ") of a call of " $2 }' >> "$found"
done

# docs/cuda.md has a row for each kernel.
table=$(sed -n '/^| file: kernels/,/^$/p' docs/cuda.md)
grep -hA1 __global__ shard_runtime/cuda/kernels/*.cu | grep -oE '[a-z_0-9]+\(' | tr -d '(' | grep -v launch_bounds |
  while read -r kernel; do grep -q "\`$kernel\`" <<< "$table" || echo "docs/cuda.md: no row for $kernel"; done >> "$found"

# CUDA's own words stand in two headers alone, which have a version for the host: the emulation cannot take them.
raw='<<<|extern __shared__|\basm\b|cooperative_groups|cub/|mma\.h|__syncthreads|__shfl|__h(add|sub|mul|div|fma|neg|max|min)[0-9_a-z]*\('
grep -nE "$raw" shard_runtime/cuda/kernels/* | grep -vE '/(launch|tile)\.h:' |
  sed -E 's/^([^:]*:[0-9]+):.*/\1: raw CUDA outside launch.h and tile.h/' >> "$found"

cat "$found"
[ ! -s "$found" ]
