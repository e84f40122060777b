#!/usr/bin/env bash
# On a machine with a GPU: builds the plug-in, checks it, times it beside PyTorch where that is found, and says what a restart costs. No network,
# less than 8 minutes: each part has its limit. In a checkout it needs what a build needs; unpacked from scripts/gpu-archive.sh only
# nvcc and libc. What it found goes to build/gpu/report.txt as well.
#   scripts/gpu-check.sh [build] [test] [bench] [restart]     all of them in this order
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=$PWD/build
parts=${*:-build test bench restart}
out=$BUILD/gpu
mkdir -p "$out"
[ ! -d build/libs ] || export LD_LIBRARY_PATH=$PWD/build/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
began=$(date +%s)
failed=0
part() { # NAME LIMIT_S COMMAND...
  local name=$1 limit=$2 rc t0; shift 2
  case " $parts " in *" $name "*) ;; *) return ;; esac
  echo "== $name"; t0=$(date +%s)
  timeout -k 5 "$limit" "$@"; rc=$?
  [ $rc -eq 0 ] || failed=$((failed + 1))
  echo "== $name: $([ $rc -eq 0 ] && echo done || echo "failed, status $rc") in $(($(date +%s) - t0)) s"
}
fail() { echo "gpu-check: $1" >&2; exit 1; }
main() {
  command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ] || fail "no nvcc: put the CUDA toolkit's bin on PATH"
  export PATH=$PATH:/usr/local/cuda/bin
  [ -e /dev/nvidia0 ] || fail "no GPU: /dev/nvidia0 is not there"
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  nvcc --version | tail -n 2
  if [ -d build/libs ]; then part build 150 scripts/gpu-build.sh; else part build 150 make -s -j"$(nproc)" all cuda tests-build; fi
  part test 130 env tests/run gpu
  part bench 150 tests/bench/gpu/bench.sh
  part restart 40 tests/bench/gpu/restart.sh
  echo "gpu-check: $failed of the parts failed; $(($(date +%s) - began)) s"
  [ "$failed" -eq 0 ]
}
main 2>&1 | tee "$out/report.txt"
exit "${PIPESTATUS[0]}"
