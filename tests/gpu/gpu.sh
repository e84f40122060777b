# Sourced by tests/gpu/test_*.sh and tests/bench/gpu/*.sh: finds the libraries, and ends the script with a
# skip where there is no GPU.
# What the caller set (FSDP_CUDA_*, FSDP_NCCL_LIBRARY, ...) stays set. FSDP_TEST_EMULATED_GPU=1 takes the
# emulated device and the libraries with NCCL's and cuDNN's API in a GPU's place, so that these scripts
# themselves are tried where there is none.
. scripts/gpu-env.sh
if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then
  export FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6
  export FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so NCCL_STANDIN_DIR=$WORK
  export FSDP_CUDNN_LIBRARY=$BUILD/test/emulated/libcudnn_standin.so
elif ! gpu_here; then
  skip "$(basename "$0" .sh) on a GPU" "no GPU here"
  exit 0
else
  find_gpu_libraries
fi
# The collectives of a run at one rank: NCCL's where there is one, to see it open.
alone=auto; ! has_nccl || alone=nccl
