# One build for every machine: the plug-in alone needs a CUDA library, and where it cannot be used one line
# says why.
. tests/support/shell/harness.sh
cd "$WORK" || exit 1
needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
for file in "$BIN"/* "$BUILD"/examples/* "$BUILD"/lib/libfsdp.so; do
  case $file in *.d) continue ;; esac
  check_eq "$(basename "$file") needs no CUDA library" "" "$(needs "$file" | grep -iE 'cuda|cublas|cudnn|nccl|nvidia')"
done
cat > job.yaml <<JOB
run: {name: run}
data: {path: $SOURCE/tests/parity/excerpt.txt, tokenizer: byte}
model: {kind: transformer, layers: 1, dim: 16, heads: 2, vocab: 256, seq: 16}
train: {steps: 1, batch: 1}
launch: {max_restarts: 0}
JOB
train() {
  FSDP_CUDA_DRIVER=$1 FSDP_CUDA_PLUGIN=$2 FSDP_DEVICE=$3 "$BIN/fsdprun" --log-dir "$(mktemp -d "$WORK/XXXXXX")" job.yaml 2>&1
}
out=$(train no-driver.so '' auto)
check_match "without a driver auto is the cpu" 'a step, cpu' "$out"
check_eq "without a word" "" "$(printf '%s' "$out" | grep -iE 'cuda|device')"
check_match "cuda is refused" 'device cuda: no CUDA driver: no-driver.so' "$(train no-driver.so '' cuda)"
out=$(train libc.so.6 /nowhere/plugin.so auto)
check_match "a driver without the plug-in: auto is the cpu" 'a step, cpu' "$out"
check_eq "with one line" 1 "$(printf '%s\n' "$out" | grep -c 'device auto takes the cpu: .*/nowhere/plugin.so')"
if [ -e "$BUILD/lib/libfsdp_cuda.so" ]; then
  check_match "the plug-in needs cuBLASLt" 'libcublasLt' "$(needs "$BUILD/lib/libfsdp_cuda.so")"
  check_eq "and never the driver: nothing would start without one" "" "$(needs "$BUILD/lib/libfsdp_cuda.so" | grep 'libcuda\.')"
  check_eq "nor what it opens by name" "" "$(needs "$BUILD/lib/libfsdp_cuda.so" | grep -iE 'cudnn|nccl|nvidia-ml')"
  check_eq "and exports one function" fsdp_cuda_plugin "$(nm -D --defined-only "$BUILD/lib/libfsdp_cuda.so" | awk '{ print $3 }' | grep -v '^$' | grep -i fsdp)"
  for arch in sm_80 sm_90 compute_90; do check "and has code for $arch" grep -qa "$arch" "$BUILD/lib/libfsdp_cuda.so"; done
  if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    skip "the plug-in refuses where no driver works" "this machine has a driver"
  else
    check_match "the plug-in refuses where no driver works" \
      'device auto takes the cpu: the CUDA plug-in refuses: .*driver' \
      "$(train libc.so.6 "$BUILD/lib/libfsdp_cuda.so" auto)"
  fi
else
  skip "the plug-in itself" "it is not built here: no nvcc, or not by make cuda"
fi
# make builds it where nvcc is found, says so before it begins, and can be told to leave it out; a warning of
# nvcc's is an error.
would() {
  env -u MAKEFLAGS -u MAKELEVEL -u SAN make -C "$SOURCE" --no-print-directory -n -B BUILD="$WORK/none" "$@" 2> /dev/null
}
printf '#!/bin/sh\n' > nvcc; chmod +x nvcc
check_match "make says that it builds the plug-in, how long it takes, and how to leave it out" 'building the CUDA plug-in with .*: about two minutes \("make NVCC=" builds without it\)' \
  "$(would NVCC="$WORK/nvcc" "$WORK/none/cuda-announced")"
compiled=$(would NVCC="$WORK/nvcc" all | grep -- "$WORK/nvcc .*\.cu ")
check_eq "each kernel is compiled for sm_80, sm_90 and as PTX, with warnings as errors" "$(find "$SOURCE"/shard_runtime/cuda/kernels -name '*.cu' | wc -l)" \
  "$(printf '%s\n' "$compiled" | grep -- 'code=sm_80' | grep -- 'code=sm_90' | grep -- 'code=compute_90' | grep -c -- '-Werror all-warnings')"
check_eq "make NVCC= compiles none of it" 0 "$(would NVCC= all | grep -c 'shard_runtime/cuda/')"
. "$SOURCE/scripts/gpu-env.sh"
for script in "$SOURCE"/tests/gpu/test_*.sh; do
  gpu_here || skip "$(basename "$script" .sh) on a GPU" "no GPU here: make test-gpu, scripts/gpu-check.sh"
done
