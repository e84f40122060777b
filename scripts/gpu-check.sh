#!/usr/bin/env bash
# On a machine with a GPU: builds the plug-in, checks it, times it beside PyTorch where that is found, and says what a restart costs. No network,
# less than 8 minutes: each part has its limit. In a checkout it needs what a build needs; unpacked from scripts/gpu-archive.sh only
# nvcc and libc. What it found goes to build/gpu/report.txt as well.
#   scripts/gpu-check.sh [build] [test] [sanitizer] [bench] [restart]     all of them in this order
# Exit status: 0 all is well; 1 a part failed; 2 no such part; 69 there is no nvcc or no GPU here, or the programs of the archive do not
# start, and nothing was done.
# FSDP_TEST_EMULATED_GPU=1 takes the emulated device of the tests in a GPU's place, to try the script itself; its numbers mean nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=$PWD/build
parts=${*:-build test sanitizer bench restart}
out=$BUILD/gpu
for part in $parts; do
  case $part in build | test | sanitizer | bench | restart) ;; *) echo "gpu-check: $part is none of build, test, sanitizer, bench, restart" >&2; exit 2 ;; esac
done
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
# Of the libraries that came along those that are not here: nvcc and PyTorch's Python, which run in this environment too, keep their own.
take_libraries() {
  local library
  rm -rf "$out/libs"; mkdir -p "$out/libs"
  for library in build/libs/*; do
    ldconfig -p 2> /dev/null | grep -q "$(basename "$library") " || ln -s "$PWD/$library" "$out/libs/"
  done
  export LD_LIBRARY_PATH=$out/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  build/bin/fsdprun --version > /dev/null || unavailable "the programs that came along do not start here: they need a glibc as new as that of where they were built"
}
unavailable() { echo "gpu-check: $1" >&2; exit 69; }
look() {
  export PATH=$PATH:/usr/local/cuda/bin
  [ -n "${FSDP_TEST_EMULATED_GPU:-}" ] || [ -e /dev/nvidia0 ] || unavailable "there is no GPU here: /dev/nvidia0 is not there"
  case " $parts " in *" build "*) command -v nvcc > /dev/null || unavailable "no nvcc: put the CUDA toolkit's bin on PATH" ;; esac
}
describe() {
  date -u +%Y-%m-%dT%H:%M:%SZ
  if [ -n "${FSDP_TEST_EMULATED_GPU:-}" ]; then echo "an emulated GPU: no number below means anything"
  else nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; fi
  if command -v nvcc > /dev/null; then nvcc --version | tail -n 2; fi
}
main() {
  describe
  if [ -d build/libs ]; then part build 150 scripts/gpu-build.sh; else part build 150 make -s -j"$(nproc)" all cuda tests-build; fi
  part test 100 env FSDP_TEST_ONLY="${FSDP_TEST_ONLY:-test_[kp]*}" tests/run gpu
  part sanitizer 60 bash tests/gpu/test_sanitizer.sh
  part bench 122 tests/bench/gpu/bench.sh
  part restart 48 tests/bench/gpu/restart.sh
  echo "gpu-check: $failed of the parts failed; $(($(date +%s) - began)) s"
  [ "$failed" -eq 0 ]
}
look
mkdir -p "$out"
export PATH=$PATH:/usr/sbin:/sbin
[ ! -d build/libs ] || take_libraries
main 2>&1 | tee "$out/report.txt"
exit "${PIPESTATUS[0]}"
