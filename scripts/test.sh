#!/usr/bin/env bash
# Installs what the tests need (apt; sudo when not root), builds, runs all of them.
# Last line: N passed, N failed, N skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/packages.sh
install_packages $packages_build $packages_data $packages_test || exit 1
werror=${CI:+1}
jobs=$(nproc)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
closing='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'

# suite TITLE COMMAND...: shows what the command says and adds up its closing line.
suite() {
  local title=$1 line p f s; shift
  echo "== $title"
  "$@" 2>&1 | tee "$log" | grep -vE "$closing"
  line=$(grep -E "$closing" "$log" | tail -n 1)
  if [ -z "$line" ]; then failed=$((failed + 1)); echo "$title: no result"; return; fi
  read -r p _ f _ s _ <<< "${line//,/}"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
asan_units() {
  make -s -j"$jobs" BUILD=build/asan SAN=address,undefined build/asan/test/unit build/asan/test/emulation \
    build/asan/test/kernel_traffic &&
    BUILD=build/asan tests/run unit emulation
}
# The plug-in on the emulated device, where each call fails once: what is left behind then, and who still uses it.
asan_faults() {
  local emulated=build/asan/test/emulated
  make -s -j"$jobs" NVCC= BUILD=build/asan SAN=address,undefined build/asan/bin/fsdprun build/asan/bin/fsdp-train \
    $emulated/libfsdp_cuda.so $emulated/libnccl_standin.so &&
    BUILD=build/asan FSDP_FAULTS_BRIEF=1 FSDP_TEST_ONLY=test_cuda_faults tests/run system
}
# What anybody who reaches the store may send to it: a minute of it here, longer ones by `make fuzz FUZZ_SECONDS=600`.
fuzz_store() {
  if make -s -j"$jobs" fuzz FUZZ_ONLY=tcpstore FUZZ_SECONDS=60; then echo "1 passed, 0 failed, 0 skipped"
  else echo "0 passed, 1 failed, 0 skipped"; fi
}

echo "== build"
make -s -j"$jobs" WERROR="$werror" tests-build || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
suite "unit, emulated-GPU, system and parity tests" tests/run unit emulation system parity conformance
suite "unit and emulated-GPU tests under ASan and UBSan" asan_units
suite "failed calls of the CUDA plug-in under ASan and UBSan" asan_faults
suite "threads under TSan" make -s -j"$jobs" tsan
suite "the store's protocol, fuzzed for a minute" fuzz_store
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
