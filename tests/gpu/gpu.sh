# Sourced by tests/gpu/test_*.sh: ends the script with a skip where there is no GPU. FSDP_TEST_EMULATED_GPU=1 takes the emulated device and
# the library with NCCL's API in a GPU's place, so that these scripts themselves are tried where there is none.
unset FSDP_CUDA_PLUGIN FSDP_CUDA_DRIVER FSDP_NCCL_LIBRARY FSDP_CUDA_ATTENTION
if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then
  export FSDP_CUDA_PLUGIN=$BUILD/test/emulated/libfsdp_cuda.so FSDP_CUDA_DRIVER=libc.so.6
  export FSDP_NCCL_LIBRARY=$BUILD/test/emulated/libnccl_standin.so NCCL_STANDIN_DIR=$WORK
  export FSDP_CUDNN_LIBRARY=$BUILD/test/emulated/libcudnn_standin.so
elif [ ! -e /dev/nvidia0 ]; then
  skip "$(basename "$0" .sh) on a GPU" "no GPU here"
  exit 0
fi
