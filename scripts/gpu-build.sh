#!/usr/bin/env bash
# The plug-in alone, where the programs came built (scripts/gpu-archive.sh): nvcc and the compiler it uses, in parallel.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc)
root=$(cd "$(dirname "$nvcc")/.." && pwd)
lib=$(ls -d "$root"/lib64 "$root"/lib 2> /dev/null | head -n 1)
# Only for the GPU that is here.
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d .)
arch=${arch:-90}
mkdir -p build/obj build/lib
flags="-I. -Ishard_runtime/include -Xcompiler -fPIC,-fvisibility=hidden -gencode arch=compute_$arch,code=sm_$arch"
{
  for f in shard_runtime/cuda/kernels/*.cu; do echo "$nvcc -std=c++17 -O3 $flags -c $f -o build/obj/$(basename "$f").o"; done
  for f in shard_runtime/cuda/*.c shard_runtime/numerics/cuda_plan_attention.c shard_runtime/core/*.c; do
    echo "gcc -std=gnu11 -O2 -fPIC -fvisibility=hidden -D_GNU_SOURCE -DFSDP_VERSION='\"gpu\"' -DFSDP_COMMIT='\"gpu\"' -I. -Ishard_runtime/include -isystem $root/include -c $f -o build/obj/$(basename "$f").o"
  done
} | xargs -P "$(nproc)" -d '\n' -I{} sh -c '{}'
gcc -shared -Wl,--version-script=shard_runtime/cuda/exports.map build/obj/*.o -o build/lib/libfsdp_cuda.so -L"$lib" -lcudart_static -lcublasLt \
  -lstdc++ -lrt -ldl -lpthread -lm -Wl,-rpath,"$lib"
