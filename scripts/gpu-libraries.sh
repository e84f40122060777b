#!/usr/bin/env bash
# Prints the GPU, the driver, the toolkit, and which file of each library the plug-in would take.
# Exit status: 0; 1 where cuBLASLt, without which the plug-in does not start, is not found.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/gpu-env.sh
find_gpu_libraries
if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then echo "an emulated GPU: no number below means anything"
else nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; fi
if command -v nvcc > /dev/null; then nvcc --version | tail -n 2; else echo "no nvcc"; fi
where_gpu_libraries
[ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || loader_has libcublasLt.so > /dev/null
