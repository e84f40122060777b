#!/usr/bin/env bash
# The plug-in alone, where the programs came built (scripts/gpu-archive.sh): nvcc and the compiler it uses, in
# parallel. A build that fails leaves the plug-in of before. What was built here is not built again while no
# source is newer.
set -eu
cd "$(dirname "$0")/.."
. scripts/gpu-env.sh
find_gpu_libraries
plugin=build/lib/libfsdp_cuda.so built=build/lib/libfsdp_cuda.built-here
if [ -e $built ] && [ -e $plugin ] && [ -z "$(find shard_runtime -newer $built -name '*.[ch]*' -print -quit)" ]; then
  echo "$plugin was built here"
  exit 0
fi
nvcc=$(command -v nvcc)
root=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
# A toolkit made of Python packages has its parts in several folders.
includes='' libs=''
for folder in $(toolkit_folders; pytorch_folders); do
  [ -d "$folder" ] || continue
  libs="$libs -L$folder"
  [ ! -d "${folder%/lib*}/include" ] || includes="$includes -isystem ${folder%/lib*}/include"
done
cublaslt=$(loader_has libcublasLt.so) || { echo "gpu-build: no libcublasLt.so" >&2; exit 1; }
# Only for the GPU that is here.
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d .)
arch=${arch:-90}
mkdir -p build/obj build/lib
flags="-I. -Ishard_runtime/include -Xcompiler -fPIC,-fvisibility=hidden -gencode arch=compute_$arch,code=sm_$arch"
{
  for f in shard_runtime/cuda/kernels/*.cu; do echo "$nvcc -std=c++17 -O3 $flags -c $f -o build/obj/$(basename "$f").o"; done
  for f in shard_runtime/cuda/*.c shard_runtime/numerics/cuda_plan_attention.c shard_runtime/core/*.c; do
    [ "$(basename "$f")" != json_parse.c ] || continue # it needs cJSON, and the plug-in does not need it
    echo "gcc -std=gnu11 -O2 -fPIC -fvisibility=hidden -D_GNU_SOURCE -DFSDP_VERSION='\"gpu\"' -DFSDP_COMMIT='\"gpu\"' -I. -Ishard_runtime/include $includes -c $f -o build/obj/$(basename "$f").o"
  done
} | xargs -P "$(nproc)" -d '\n' -I{} sh -c '{}'
gcc -shared -Wl,--version-script=shard_runtime/cuda/exports.map build/obj/*.o -o $plugin.new $libs -lcudart_static "$cublaslt" \
  -lstdc++ -lrt -ldl -lpthread -lm -Wl,-rpath,"$(dirname "$cublaslt")"
mv $plugin.new $plugin
touch $built
echo "$plugin for sm_$arch, by $root, with $cublaslt"
